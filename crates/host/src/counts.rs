//! Counts of this process in the run's table, by name: units of work, and ranges that are not frames. Counting needs no
//! measurement: it also works in a process that Score-P measures.

use crate::definitions::INVALID;
use crate::measurement::{self, StartedBy};
use crate::regions_by_key::{RegionsByKey, hash};
use crate::state::{State, state};
use crate::{guard, plugin, preloaded, signal, stack};
use ampere_model::Counted;
use ampere_signal_safety::{is_on_alternate_stack, preserving_thread_state};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU64, Ordering};

/// The counts that are kept for the ranges with one name.
pub const OF_RANGES: [Counted; 3] = [Counted::RangesStarted, Counted::RangesEnded, Counted::RangeSeconds];

/// The largest number of names that a process can use for counting: the number of rows in the run's table.
const NAMES_MAX: usize = 4096;

/// A number for each name, by its hash: 1 plus the position in [`ROWS`].
static NAMES: RegionsByKey = RegionsByKey::new();
/// For each name and each of its counts, a pointer to the bits of an `f64` in the run's table, which is never unmapped.
static ROWS: [[AtomicPtr<AtomicU64>; OF_RANGES.len()]; NAMES_MAX] =
    [const { [const { AtomicPtr::new(null_mut()) }; OF_RANGES.len()] }; NAMES_MAX];
/// The process that was the first to count, or 0. Its forked children have another pid.
static PID: AtomicI32 = AtomicI32::new(0);

/// Opens the run's table if there is one, so that children that this process forks can count.
pub fn prepare() {
    // SAFETY: a system call without arguments.
    PID.store(unsafe { libc::getpid() }, Ordering::Relaxed);
    signal::blocked(|| guard::guarded((), plugin::open_work));
}

/// Counts units of work.
pub fn work(name: &[u8], units: f64) {
    if !(units.is_finite() && units > 0.0) {
        return plugin::leave_out_work();
    }
    let known = NAMES.get(hash(Counted::Work as u64, name));
    let row = match known {
        INVALID if !may_define() => null_mut(),
        // In a forked child, another thread of the parent may have held the lock of the names.
        INVALID if is_forked() => guard::guarded(null_mut(), || plugin::work_row(Counted::Work, name, false)),
        INVALID => row(new_number(&[Counted::Work], name), 0),
        number => row(number, 0),
    };
    if !add(row, units) {
        plugin::leave_out_work();
    }
}

/// Returns the number of ranges with this name, for [`add_to_ranges`]; `INVALID` if they cannot be counted.
pub fn ranges(name: &[u8]) -> u32 {
    match NAMES.get(hash(OF_RANGES[0] as u64, name)) {
        INVALID if !may_define() || is_forked() => INVALID,
        INVALID => new_number(&OF_RANGES, name),
        number => number,
    }
}

/// Adds to a count of [`OF_RANGES`], by its position.
pub fn add_to_ranges(number: u32, count: usize, amount: f64) {
    add(row(number, count), amount);
}

/// Returns `false` if there is no row.
fn add(row: *mut AtomicU64, amount: f64) -> bool {
    // SAFETY: null, or a number in the run's table.
    let Some(row) = (unsafe { row.as_ref() }) else { return false };
    let add = |bits: u64| Some((f64::from_bits(bits) + amount).to_bits());
    // Relaxed: nothing else depends on the number.
    let _ = row.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
    true
}

/// Whether a new name can be defined here, which is not async-signal-safe.
#[cold]
#[inline(never)]
fn may_define() -> bool {
    !is_on_alternate_stack()
        && !signal::blocked(|| preserving_thread_state(|| stack::on_own(signal::inside_handler)))
}

fn is_forked() -> bool {
    // SAFETY: a system call without arguments.
    let pid = unsafe { libc::getpid() };
    let first =
        PID.compare_exchange(0, pid, Ordering::Relaxed, Ordering::Relaxed).unwrap_or_else(|first| first);
    first != 0 && first != pid
}

/// Finds the rows of a name that this process has not used before. Returns `INVALID` if there are none.
#[cold]
#[inline(never)]
fn new_number(kinds: &[Counted], name: &[u8]) -> u32 {
    if preloaded::is_taken() && state() == State::New {
        // If no other process has started a collector on this node, this starts one.
        guard::inside((), |slot| _ = measurement::start(slot, StartedBy::Range));
    }
    signal::blocked(|| guard::guarded(INVALID, || define(kinds, name)))
}

fn define(kinds: &[Counted], name: &[u8]) -> u32 {
    NAMES.get_or_define(hash(kinds[0] as u64, name), |names| {
        let Some(places) = ROWS.get(names) else { return INVALID };
        for (place, kind) in places.iter().zip(kinds) {
            let row = plugin::work_row(*kind, name, true);
            if row.is_null() {
                return INVALID;
            }
            place.store(row, Ordering::Release);
        }
        names as u32 + 1
    })
}

/// Returns the row of a name's number; null for `INVALID`.
fn row(number: u32, count: usize) -> *mut AtomicU64 {
    let places = ROWS.get((number as usize).wrapping_sub(1));
    // Acquire: pairs with the Release in `define`.
    places.map_or(null_mut(), |places| places[count].load(Ordering::Acquire))
}
