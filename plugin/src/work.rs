//! The run's table of units of work and ranges, for the embedded host.

use crate::guard::guarded_also_inert;
use crate::process::State;
use ampere_model::Counted;
use ampere_ring::Session;
use ampere_ring::session_name::session_name;
use ampere_ring::work::WorkTable;
use std::ptr::null;
use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;

/// The table, opened once and never closed. `None` if there is no run, or no room for a table.
static TABLE: OnceLock<Option<WorkTable>> = OnceLock::new();

fn open() -> Option<WorkTable> {
    match State::of_this_process() {
        Some(state) => WorkTable::open_or_create(&state.session).ok(),
        None => WorkTable::open_or_create(&Session::open_named(&session_name()).ok()?).ok(),
    }
}

/// Opens the table if the run is there already, so that children that this process forks can count.
#[unsafe(no_mangle)]
pub extern "C" fn ampere_plugin_open_work() {
    guarded_also_inert((), || {
        if let Some(table) = open().filter(|_| TABLE.get().is_none()) {
            // Another thread may have opened it in the meantime.
            let _ = TABLE.set(Some(table));
        }
    });
}

/// Returns the bits of the `f64` with the count of this kind (a number of [`Counted`]) and name; null if there is none. They are
/// valid as long as the process lives. `may_open`: whether the table is opened if it has not been.
///
/// # Safety
/// `name` has `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ampere_plugin_work_row(
    kind: u32,
    name: *const u8,
    length: usize,
    may_open: bool,
) -> *const AtomicU64 {
    // SAFETY: by this function's contract.
    let name = unsafe { std::slice::from_raw_parts(name, length) };
    guarded_also_inert(null(), || {
        let name = String::from_utf8_lossy(name);
        let name = if name.trim().is_empty() { "(work)" } else { name.trim() };
        let table = if may_open { Some(TABLE.get_or_init(open)) } else { TABLE.get() };
        let row = Counted::of_number(kind)
            .zip(table.and_then(Option::as_ref))
            .and_then(|(kind, table)| table.row(kind, name, may_open));
        row.map_or(null(), |row| std::ptr::from_ref(row.bits()))
    })
}

/// Counts a call whose units are not counted.
#[unsafe(no_mangle)]
pub extern "C" fn ampere_plugin_leave_out_work() {
    if let Some(table) = TABLE.get().and_then(Option::as_ref) {
        table.leave_out();
    }
}

/// Counts a range that is not counted.
#[unsafe(no_mangle)]
pub extern "C" fn ampere_plugin_leave_out_range() {
    if let Some(table) = TABLE.get().and_then(Option::as_ref) {
        table.leave_out_range();
    }
}
