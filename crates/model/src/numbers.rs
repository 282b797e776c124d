//! Maps from numbers (handles and references). A lookup is made for every event, so the hash is fast, and collisions can be
//! provoked. That is harmless: a run or a trace with colliding numbers slows only the processes that read it.

use crate::RegionRef;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A hash map from numbers.
pub type NumberMap<K, V> = HashMap<K, V, BuildHasherDefault<NumberHasher>>;

/// Fibonacci hashing: one multiplication spreads neighbouring numbers over the table.
#[derive(Default)]
pub struct NumberHasher(u64);

impl Hasher for NumberHasher {
    #[inline]
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
        // The table uses the low bits for the position and the high bits for the tag, so both must depend on all bits of the
        // number.
        self.0 = mixed ^ (mixed >> 32);
    }
}

/// A map from numbers most of which are small, like those of a trace's main locations. Small ones are found without hashing.
pub struct NumberTable<V> {
    small: Vec<Option<V>>,
    others: NumberMap<u64, V>,
}

/// Numbers below this one are indices into a vector.
const SMALL: u64 = 1 << 16;

impl<V> NumberTable<V> {
    /// Sets the value of a number.
    pub fn insert(&mut self, number: u64, value: V) {
        if number < SMALL {
            let at = number as usize;
            self.small.resize_with(self.small.len().max(at + 1), || None);
            self.small[at] = Some(value);
        } else {
            self.others.insert(number, value);
        }
    }

    /// Returns the value of a number.
    #[inline]
    pub fn get(&self, number: u64) -> Option<&V> {
        match self.small.get(number as usize) {
            Some(place) => place.as_ref(),
            None => self.others.get(&number),
        }
    }

    /// Returns all values.
    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.small.iter().flatten().chain(self.others.values())
    }

    /// Returns the value of a number.
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

/// A process' region handles. Programs use few regions at a time, which are found in a small table in front of the map.
#[derive(Clone)]
pub struct Handles {
    all: NumberMap<u32, RegionRef>,
    recent: Box<[(u32, RegionRef); RECENT_MAX]>,
}

const RECENT_MAX: usize = 256;
/// The value of empty entries of the table. No region has this number.
const NO_REGION: RegionRef = RegionRef(u32::MAX);

impl Handles {
    /// Maps a handle to this region.
    pub fn insert(&mut self, handle: u32, region: RegionRef) {
        self.all.insert(handle, region);
        self.recent[Self::place(handle)] = (handle, region);
    }

    /// Maps a handle to a region until another handle takes its place in the table; [`Handles::find`] does not find it.
    pub fn insert_temporarily(&mut self, handle: u32, region: RegionRef) {
        self.recent[Self::place(handle)] = (handle, region);
    }

    /// Returns the region of a handle.
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

    /// Like [`Handles::get`], but looks only into the map.
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
        Handles { all: NumberMap::default(), recent: Box::new([(0, NO_REGION); RECENT_MAX]) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_finds_inserted_values() {
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
