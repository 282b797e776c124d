//! Maps from numbers: handles and references. The keys come from measurement systems, not from an adversary who could gain
//! from collisions, and the lookup is made for every event.

use crate::RegionRef;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A map whose keys are numbers.
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

/// A map from numbers of which most are small, as those of a trace's main locations: they are found without hashing.
pub struct NumberTable<V> {
    small: Vec<Option<V>>,
    others: NumberMap<u64, V>,
}

/// What is smaller has its place in a vector.
const SMALL: u64 = 1 << 16;

impl<V> NumberTable<V> {
    /// Replaces what the number had.
    pub fn insert(&mut self, number: u64, value: V) {
        if number < SMALL {
            let at = number as usize;
            self.small.resize_with(self.small.len().max(at + 1), || None);
            self.small[at] = Some(value);
        } else {
            self.others.insert(number, value);
        }
    }

    /// What the number has.
    #[inline]
    pub fn get_mut(&mut self, number: u64) -> Option<&mut V> {
        match self.small.get_mut(number as usize) {
            Some(place) => place.as_mut(),
            None => self.others.get_mut(&number),
        }
    }
}

impl<V> Default for NumberTable<V> {
    fn default() -> NumberTable<V> {
        NumberTable { small: Vec::new(), others: NumberMap::default() }
    }
}

/// A process' region handles. Programs call few regions at a time: those are found in a small table in front of the map.
#[derive(Clone)]
pub struct Handles {
    all: NumberMap<u32, RegionRef>,
    recent: Box<[(u32, RegionRef); RECENT]>,
}

const RECENT: usize = 256;
/// No region has it: the table begins with it everywhere.
const NO_REGION: RegionRef = RegionRef(u32::MAX);

impl Handles {
    /// From now on the handle is this region's.
    pub fn insert(&mut self, handle: u32, region: RegionRef) {
        self.all.insert(handle, region);
        self.recent[Self::place(handle)] = (handle, region);
    }

    /// For a handle that is not to be remembered: for now it has this region. [`Handles::find`] does not find it.
    pub fn pretend(&mut self, handle: u32, region: RegionRef) {
        self.recent[Self::place(handle)] = (handle, region);
    }

    /// The region of a handle.
    #[inline]
    pub fn get(&mut self, handle: u32) -> Option<RegionRef> {
        match self.recent[Self::place(handle)] {
            (known, region) if known == handle && region != NO_REGION => Some(region),
            _ => self.look_up(handle),
        }
    }

    #[inline(never)]
    fn look_up(&mut self, handle: u32) -> Option<RegionRef> {
        let region = self.find(handle)?;
        self.recent[Self::place(handle)] = (handle, region);
        Some(region)
    }

    /// As [`Handles::get`], for one that only reads.
    pub fn find(&self, handle: u32) -> Option<RegionRef> {
        self.all.get(&handle).copied()
    }

    #[inline]
    fn place(handle: u32) -> usize {
        handle.wrapping_mul(0x9e37_79b9) as usize >> 24
    }
}

impl Default for Handles {
    fn default() -> Handles {
        Handles { all: NumberMap::default(), recent: Box::new([(0, NO_REGION); RECENT]) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_finds_what_was_put_in() {
        let numbers = [0, 3, SMALL - 1, SMALL, 1 << 32, (1 << 32) + 3, u64::MAX];
        let mut table = NumberTable::default();
        assert_eq!(table.get_mut(0), None);
        for number in numbers {
            table.insert(number, !number);
            assert_eq!(table.get_mut(number), Some(&mut !number));
        }
        assert_eq!(table.get_mut(1), None);
        assert_eq!(table.get_mut(SMALL + 1), None);
    }

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
