//! Hands a series of samples from the collector's file to Score-P.

use super::node::Node;
use super::selection::Metric;
use crate::inert::report_in_this_process;
use ampere_ring::clock::Moment;
use ampere_ring::samples::{self, Sample};
use scorep_abi::metric::TimeValuePair;
use std::ptr::null_mut;
use std::time::{Duration, Instant};

/// The maximum time to wait for the last samples after the end of a measurement. The collector writes them every 10 ms.
const LAST_SAMPLES_WAIT_MAX: Duration = Duration::from_millis(100);
const NANOJOULES_PER_MICROJOULE: u64 = 1000;

#[derive(Clone, Copy)]
pub struct End {
    /// The end by Score-P's clock and ours.
    moment: Moment,
    /// The time when this process read the clocks, from which [`LAST_SAMPLES_WAIT_MAX`] counts.
    read: Instant,
}

impl End {
    pub fn at(moment: Moment) -> End {
        End { moment, read: Instant::now() }
    }
}

/// Returns the samples of the measurement, as a list that Score-P then owns, and the list's length.
pub fn deliver(node: &Node, metric: &Metric, begin: Moment, end: End) -> (*mut TimeValuePair, u64) {
    let path = node.samples_of(metric.device);
    let is_written = || samples::read_end(&path).is_ok_and(|until| until >= end.moment.usual);
    while !is_written() && end.read.elapsed() < LAST_SAMPLES_WAIT_MAX {
        std::thread::sleep(Duration::from_millis(1));
    }
    if !is_written() && !node.collector_is_alive() {
        report_in_this_process(&format!(
            "{} ends early in Score-P's trace: ampere's collector ended before the program did",
            metric.name
        ));
    }
    let series = match samples::read(&path) {
        Ok(series) => series,
        Err(why) => {
            report_in_this_process(&format!("{} is not in Score-P's trace: {why}", metric.name));
            return (null_mut(), 0);
        }
    };
    hand_over(&between(&series.samples, begin, end.moment))
}

/// Returns the samples within the measurement, with timestamps of Score-P's clock. The times of other samples cannot be
/// converted.
fn between(samples: &[Sample], begin: Moment, end: Moment) -> Vec<TimeValuePair> {
    let inside = samples.iter().filter(|(time, _)| (begin.usual..=end.usual).contains(time));
    let converted = inside.filter_map(|(time, nanojoules)| {
        let timestamp = Moment::convert(begin, end, *time)?;
        Some(TimeValuePair { timestamp, value: nanojoules / NANOJOULES_PER_MICROJOULE })
    });
    converted.collect()
}

fn hand_over(pairs: &[TimeValuePair]) -> (*mut TimeValuePair, u64) {
    if pairs.is_empty() {
        return (null_mut(), 0);
    }
    // SAFETY: the size is not 0. FREES WITH FREE.
    let list: *mut TimeValuePair = unsafe { libc::malloc(size_of_val(pairs)) }.cast();
    if list.is_null() {
        return (null_mut(), 0);
    }
    // SAFETY: the list has room for all pairs.
    unsafe { std::ptr::copy_nonoverlapping(pairs.as_ptr(), list, pairs.len()) };
    (list, pairs.len() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_within_the_measurement_are_delivered_by_score_ps_clock_in_microjoules() {
        let samples = [(999, 1), (1000, 5_000_000), (3000, 6_999_999), (5000, 9_000_000), (5001, 10_000_000)];
        let (begin, end) = (Moment { usual: 1000, other: 50 }, Moment { usual: 5000, other: 90 });
        let (list, length) = hand_over(&between(&samples, begin, end));
        // SAFETY: the list has this number of entries, and comes from malloc.
        let delivered = unsafe {
            let pairs: Vec<(u64, u64)> = (0..length as usize)
                .map(|at| *list.add(at))
                .map(|pair| (pair.timestamp, pair.value))
                .collect();
            libc::free(list.cast());
            pairs
        };
        assert_eq!(delivered, [(50, 5000), (70, 6999), (90, 9000)]);
        assert_eq!(hand_over(&between(&samples, end, begin)), (null_mut(), 0));
    }
}
