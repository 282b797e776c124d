//! The place at which the last search in a list ended: the next search often ends near it.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The position at which a search starts. It makes no difference to the result.
#[derive(Debug, Default)]
pub struct Hint(AtomicUsize);

impl Clone for Hint {
    fn clone(&self) -> Hint {
        Hint(AtomicUsize::new(self.0.load(Relaxed)))
    }
}

impl Hint {
    /// Returns what [`slice::partition_point`] returns, in a time that depends on how far that is from the last result.
    #[inline]
    pub fn partition_point<T>(&self, all: &[T], is_before: impl Fn(&T) -> bool) -> usize {
        let start = self.0.load(Relaxed).min(all.len());
        let mut low = start;
        let mut high = start;
        let mut step = 1;
        if start > 0 && !is_before(&all[start - 1]) {
            high = start - 1;
            low = loop {
                let probe = high.saturating_sub(step);
                if probe == high || is_before(&all[probe]) {
                    break (probe + 1).min(high);
                }
                (high, step) = (probe, 2 * step);
            };
        } else {
            high = loop {
                let probe = (high + step - 1).min(all.len());
                if probe == all.len() || !is_before(&all[probe]) {
                    break probe;
                }
                (low, high, step) = (probe + 1, probe + 1, 2 * step);
            };
        }
        while low < high {
            let middle = low + (high - low) / 2;
            if is_before(&all[middle]) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        self.0.store(low, Relaxed);
        low
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_search_finds_the_same_with_any_hint() {
        for length in 0..40u64 {
            let all: Vec<u64> = (0..length).map(|number| number / 2).collect();
            for start in 0..45 {
                for sought in 0..25 {
                    let hint = Hint(AtomicUsize::new(start));
                    let expected = all.partition_point(|number| *number < sought);
                    assert_eq!(hint.partition_point(&all, |number| *number < sought), expected);
                    assert_eq!(hint.clone().partition_point(&all, |number| *number < sought), expected);
                }
            }
        }
    }
}
