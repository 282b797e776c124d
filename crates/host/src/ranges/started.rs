//! Ranges that are started and ended, perhaps on different threads. They may overlap, so they are not frames: they are counted
//! and timed by their names, in the run's table.

use super::Interface;
use crate::definitions::INVALID;
use crate::regions_by_key::hash;
use crate::{counts, plugin};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// The largest number of bytes of a name together with its interface.
const NAME_BYTES_MAX: usize = 112;
const PLACES: usize = 4096;
/// The number of places in which a key is sought.
const NEAR: usize = 64;
/// Marks a place to which a thread is writing. This is not a key, because keys are odd.
const BUSY: usize = 2;

/// A table in static memory, without locks. Each entry has a key, the number of a name, and a time.
pub struct Table([Place; PLACES]);

struct Place {
    /// 0 while the place is free.
    key: AtomicUsize,
    number: AtomicU32,
    time: AtomicU64,
}

/// The ranges that are open in this process.
static OPEN: Table = Table::new();
static LAST_ID: AtomicU64 = AtomicU64::new(0);

impl Table {
    pub const fn new() -> Table {
        Table(
            [const { Place { key: AtomicUsize::new(0), number: AtomicU32::new(INVALID), time: AtomicU64::new(0) } };
                PLACES],
        )
    }

    fn near(&self, key: usize) -> impl Iterator<Item = &Place> {
        (0..NEAR).map(move |at| &self.0[((key >> 32) + at) % PLACES])
    }

    /// Keeps a number and a time. Returns `false` if there is no room.
    pub fn put(&self, key: usize, number: u32, time: u64) -> bool {
        let is_free = |place: &&Place| {
            place.key.load(Ordering::Relaxed) == 0
                && place.key.compare_exchange(0, BUSY, Ordering::Acquire, Ordering::Relaxed).is_ok()
        };
        let Some(place) = self.near(key).find(is_free) else { return false };
        place.number.store(number, Ordering::Relaxed);
        place.time.store(time, Ordering::Relaxed);
        // Release: pairs with the Acquire in `take` and `get`.
        place.key.store(key, Ordering::Release);
        true
    }

    /// Removes an entry with this key, and returns its number and its time. If there are several, only one is removed.
    pub fn take(&self, key: usize) -> Option<(u32, u64)> {
        let is_it = |place: &&Place| {
            place.key.load(Ordering::Relaxed) == key
                && place.key.compare_exchange(key, BUSY, Ordering::Acquire, Ordering::Relaxed).is_ok()
        };
        let place = self.near(key).find(is_it)?;
        let kept = (place.number.load(Ordering::Relaxed), place.time.load(Ordering::Relaxed));
        place.key.store(0, Ordering::Release);
        Some(kept)
    }

    /// Returns the number that is kept with this key.
    pub fn get(&self, key: usize) -> Option<u32> {
        let place = self.near(key).find(|place| place.key.load(Ordering::Acquire) == key)?;
        Some(place.number.load(Ordering::Relaxed))
    }
}

/// Returns the key of the range that an interface identifies by these numbers.
pub fn key(interface: Interface, id: [u64; 4]) -> usize {
    id.into_iter().fold(hash(0, interface.name.as_bytes()), |key, part| hash(key as u64, &part.to_ne_bytes()))
}

fn key_of_number(interface: Interface, id: u64) -> usize {
    key(interface, [id, 0, 0, 0])
}

/// Returns the number of the ranges with this name; `INVALID` if they cannot be counted.
pub fn number_of(interface: Interface, name: &[u8]) -> u32 {
    let (mut full, mut used) = ([0; NAME_BYTES_MAX], 0);
    let name = if name.is_empty() { b"(range)" } else { name };
    for part in [interface.name.as_bytes(), b"::", name] {
        let part = &part[..part.len().min(full.len() - used)];
        full[used..][..part.len()].copy_from_slice(part);
        used += part.len();
    }
    counts::ranges(&full[..used])
}

/// Starts a range that is ended by its key.
pub fn start(interface: Interface, key: usize, name: &[u8]) {
    start_of(key, number_of(interface, name));
}

/// Starts a range whose name has this number.
pub fn start_of(key: usize, number: u32) {
    if number == INVALID {
        return plugin::leave_out_range();
    }
    clear_in_children();
    match OPEN.put(key, number, now()) {
        true => counts::add_to_ranges(number, 0, 1.0),
        false => plugin::leave_out_range(),
    }
}

/// Ends a range, on any thread. An end without a start does nothing.
pub fn end(key: usize) {
    let Some((number, start)) = OPEN.take(key) else { return };
    counts::add_to_ranges(number, 2, now().saturating_sub(start) as f64 * 1e-9);
    counts::add_to_ranges(number, 1, 1.0);
}

/// Starts a range, and returns the number by which it is ended.
pub fn start_new(interface: Interface, name: &[u8]) -> u64 {
    let id = LAST_ID.fetch_add(1, Ordering::Relaxed) + 1;
    start(interface, key_of_number(interface, id), name);
    id
}

/// Starts a range that the interface has numbered.
pub fn start_numbered(interface: Interface, id: u64, name: &[u8]) {
    start(interface, key_of_number(interface, id), name);
}

/// Ends the range with this number.
pub fn end_numbered(interface: Interface, id: u64) {
    end(key_of_number(interface, id));
}

/// Makes forked children clear the table, because ranges that are open in the parent do not end in the child.
fn clear_in_children() {
    static IS_DONE: AtomicBool = AtomicBool::new(false);
    extern "C" fn forked() {
        OPEN.0.iter().for_each(|place| place.key.store(0, Ordering::Relaxed));
    }
    if !IS_DONE.load(Ordering::Relaxed) && !IS_DONE.swap(true, Ordering::Relaxed) {
        // SAFETY: the function has the required type, and lives as long as the process: this library is never closed.
        unsafe { libc::pthread_atfork(None, None, Some(forked)) };
    }
}

fn now() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes the given structure.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_neighbourhood_has_no_room_and_equal_keys_are_taken_one_by_one() {
        let table = Table::new();
        for time in 0..NEAR as u64 {
            assert!(table.put(1, 7, time));
        }
        assert!(!table.put(3, 8, 0), "the same places are near");
        assert_eq!((table.get(1), table.get(3), table.take(3)), (Some(7), None, None));
        let times: Vec<u64> = (0..NEAR).map(|_| table.take(1).unwrap().1).collect();
        assert_eq!(times, (0..NEAR as u64).collect::<Vec<_>>());
        assert!(table.take(1).is_none() && table.put(3, 8, 0));
    }

    #[test]
    fn threads_take_each_range_once() {
        static TABLE: Table = Table::new();
        let taken = AtomicU64::new(0);
        let interface = Interface { paradigm: 0, name: "test" };
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let taken = &taken;
                scope.spawn(move || {
                    for at in (thread..80_000).step_by(4) {
                        assert!(TABLE.put(key_of_number(interface, at), 1, at));
                        assert_eq!(TABLE.take(key_of_number(interface, at)), Some((1, at)));
                        taken.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(taken.into_inner(), 80_000);
        assert!(TABLE.0.iter().all(|place| place.key.load(Ordering::Relaxed) == 0));
    }
}
