//! A table of regions by key: the address of a function, or the hash of a range's name.
//!
//! The table is open-addressed and only grows. Readers take no lock; inserting takes one. A larger table replaces the old one,
//! which is not freed because it may be in use.

use crate::definitions::INVALID;
use scorep_abi::AnyHandle;
use std::ptr::null_mut;
use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};

const ENTRIES_FIRST: usize = 4096;

struct Entry {
    key: AtomicUsize,
    region: AtomicU32,
}

struct Table {
    /// 64 minus the base-2 logarithm of the number of entries.
    shift: u32,
    entries: Box<[Entry]>,
}

pub struct RegionsByKey {
    /// The current table, null until the first region.
    table: AtomicPtr<Table>,
    /// The number of entries in use. The lock is held to insert.
    used: Mutex<usize>,
}

impl Table {
    fn new(entries: usize) -> Table {
        let entries = (0..entries)
            .map(|_| Entry { key: AtomicUsize::new(0), region: AtomicU32::new(INVALID) })
            .collect::<Box<[Entry]>>();
        Table { shift: 64 - entries.len().trailing_zeros(), entries }
    }

    /// Returns the region of this key, or INVALID. The table always has empty entries, which end the search.
    #[inline(always)]
    fn get(&self, key: usize) -> AnyHandle {
        let mut index = self.first(key);
        loop {
            // SAFETY: an index is below the number of entries, by the shift and the mask.
            let entry = unsafe { self.entries.get_unchecked(index) };
            // Acquire pairs with the Release in `put`: a thread that sees the key sees its region.
            let found = entry.key.load(Ordering::Acquire);
            if found == key {
                return entry.region.load(Ordering::Relaxed);
            }
            if found == 0 {
                return INVALID;
            }
            index = (index + 1) & (self.entries.len() - 1);
        }
    }

    #[inline(always)]
    fn first(&self, key: usize) -> usize {
        // Fibonacci hashing: the upper bits of the product are well mixed.
        ((key as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> self.shift) as usize
    }

    fn put(&self, key: usize, region: AnyHandle) {
        let mut index = self.first(key);
        while self.entries[index].key.load(Ordering::Relaxed) != 0 {
            index = (index + 1) & (self.entries.len() - 1);
        }
        self.entries[index].region.store(region, Ordering::Relaxed);
        self.entries[index].key.store(key, Ordering::Release);
    }
}

impl RegionsByKey {
    pub const fn new() -> RegionsByKey {
        RegionsByKey { table: AtomicPtr::new(null_mut()), used: Mutex::new(0) }
    }

    /// Returns the region of this key, or INVALID.
    #[inline(always)]
    pub fn get(&self, key: usize) -> AnyHandle {
        // Acquire pairs with the Release in `get_or_define`.
        let table = self.table.load(Ordering::Acquire);
        // SAFETY: the pointer is null or points to a leaked table.
        unsafe { table.as_ref() }.map_or(INVALID, |table| table.get(key))
    }

    /// Returns the region of this key. If there is none, `define` gets the number of regions and returns a new one.
    pub fn get_or_define(&self, key: usize, define: impl FnOnce(usize) -> AnyHandle) -> AnyHandle {
        let Ok(mut used) = self.used.lock() else { return INVALID };
        let known = self.get(key);
        if known != INVALID {
            return known;
        }
        let region = define(*used);
        if region == INVALID {
            return INVALID;
        }
        // SAFETY: the pointer is null or points to a leaked table.
        let table = unsafe { self.table.load(Ordering::Relaxed).as_ref() };
        let table = match table {
            Some(table) if *used * 2 < table.entries.len() => table,
            old => {
                let grown = Table::new(old.map_or(ENTRIES_FIRST, |old| old.entries.len() * 2));
                for entry in old.iter().flat_map(|old| &old.entries) {
                    let key = entry.key.load(Ordering::Relaxed);
                    if key != 0 {
                        grown.put(key, entry.region.load(Ordering::Relaxed));
                    }
                }
                let grown = Box::leak(Box::new(grown));
                self.table.store(grown, Ordering::Release);
                grown
            }
        };
        table.put(key, region);
        *used += 1;
        region
    }
}

/// Returns a key for a region: a hash of its other properties and its name, with the lowest bit set so that it is never 0. Names
/// of kernels can be long, so eight bytes are hashed at a time.
#[inline]
pub fn hash(properties: u64, name: &[u8]) -> usize {
    let mix = |hash: u64, bytes: u64| {
        let product = u128::from(hash ^ bytes) * 0x9e37_79b9_7f4a_7c15;
        product as u64 ^ (product >> 64) as u64
    };
    let (words, rest) = name.as_chunks::<8>();
    let hash = words.iter().fold(!properties, |hash, word| mix(hash, u64::from_le_bytes(*word)));
    let last = rest.iter().fold(rest.len() as u64, |last, byte| last << 8 | u64::from(*byte));
    mix(mix(hash, last), name.len() as u64) as usize | 1
}
