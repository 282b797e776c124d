//! Maps from numbers: handles and references. The keys come from measurement systems, not from an adversary who could gain
//! from collisions, and the lookup is made for every event.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

pub type NumberMap<K, V> = HashMap<K, V, BuildHasherDefault<NumberHasher>>;

/// Fibonacci hashing: one multiplication spreads neighbouring numbers over the table.
#[derive(Default)]
pub struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    #[inline]
    fn write_u32(&mut self, number: u32) {
        self.write_u64(u64::from(number));
    }

    #[inline]
    fn write_u64(&mut self, number: u64) {
        let mixed = (self.0.rotate_left(5) ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        // The table takes its place from the low bits and its tag from the high ones: both must depend on all of it.
        self.0 = mixed ^ (mixed >> 32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_and_multiples_are_spread() {
        for step in [1u64, 16, 1 << 32] {
            let low = (0..1024).map(|i| {
                let mut hasher = NumberHasher::default();
                hasher.write_u64(i * step);
                hasher.finish() % 1024
            });
            let distinct: std::collections::HashSet<u64> = low.collect();
            assert!(distinct.len() > 500, "{step}: {} of 1024 places", distinct.len());
        }
    }
}
