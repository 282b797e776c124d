//! The hooks of `-finstrument-functions`: from a function's address to its region.
//!
//! The table is open-addressed and only grows. Readers take no lock, inserting does. A grown table replaces the old one, which is
//! not freed because it may be in use.

use crate::definitions::{self, FILTERED, INVALID};
use crate::measurement::{
    self, FORWARD, NEW, RUNNING, count_missed, inside, inside_or, on_own_stack_uninterrupted,
};
use crate::tls::Slot;
use crate::{alloc, filter, signal, symbols, thread};
use ampere_signal_safety::{is_on_alternate_stack, preserving_thread_state};
use scorep_abi::{AnyHandle, paradigm, region_type};
use std::ffi::{CStr, c_void};
use std::ptr::null_mut;
use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};

const ENTRIES_FIRST: usize = 4096;

struct Entry {
    address: AtomicUsize,
    region: AtomicU32,
}

struct Table {
    /// 64 minus the logarithm of the number of entries.
    shift: u32,
    entries: Box<[Entry]>,
}

static TABLE: AtomicPtr<Table> = AtomicPtr::new(null_mut());
/// Held to insert; holds the number of entries in use.
static INSERTING: Mutex<usize> = Mutex::new(0);

impl Table {
    fn new(entries: usize) -> Table {
        let entries = (0..entries)
            .map(|_| Entry { address: AtomicUsize::new(0), region: AtomicU32::new(INVALID) })
            .collect::<Box<[Entry]>>();
        Table { shift: 64 - entries.len().trailing_zeros(), entries }
    }

    /// The region of this address, or INVALID. The table always has empty entries.
    #[inline(always)]
    fn get(&self, address: usize) -> AnyHandle {
        let mut index = self.first(address);
        loop {
            // SAFETY: an index is below the number of entries, by the shift and the mask.
            let entry = unsafe { self.entries.get_unchecked(index) };
            // Acquire pairs with the Release in `put`: with the address, its region is visible.
            let found = entry.address.load(Ordering::Acquire);
            if found == address {
                return entry.region.load(Ordering::Relaxed);
            }
            if found == 0 {
                return INVALID;
            }
            index = (index + 1) & (self.entries.len() - 1);
        }
    }

    #[inline(always)]
    fn first(&self, address: usize) -> usize {
        // Fibonacci hashing: the upper bits of the product are well mixed.
        ((address as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> self.shift) as usize
    }

    fn put(&self, address: usize, region: AnyHandle) {
        let mut index = self.first(address);
        while self.entries[index].address.load(Ordering::Relaxed) != 0 {
            index = (index + 1) & (self.entries.len() - 1);
        }
        self.entries[index].region.store(region, Ordering::Relaxed);
        self.entries[index].address.store(address, Ordering::Release);
    }
}

#[inline(always)]
fn lookup(address: usize) -> AnyHandle {
    // Acquire pairs with the Release in `define`. Null until the first definition.
    let table = TABLE.load(Ordering::Acquire);
    // SAFETY: null, or a leaked table.
    unsafe { table.as_ref() }.map_or(INVALID, |table| table.get(address))
}

/// Called on entry to every instrumented function.
///
/// # Safety
/// By the compiler, with the function's address.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __cyg_profile_func_enter(function: *mut c_void, site: *mut c_void) {
    inside_or(count_missed, |slot| {
        if measurement::state() == RUNNING && !slot.thread.get().is_null() {
            let region = lookup(function as usize);
            if region != INVALID {
                // SAFETY: this thread's own state, which is not used otherwise while the slot is busy.
                unsafe { &mut *slot.thread.get() }.enter(function as usize, region);
                return;
            }
        }
        enter_first(slot, function, site);
    });
}

/// Called on exit from every instrumented function.
///
/// # Safety
/// By the compiler, with the function's address.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __cyg_profile_func_exit(function: *mut c_void, site: *mut c_void) {
    inside((), |slot| {
        if measurement::state() == RUNNING {
            if !slot.thread.get().is_null() {
                // SAFETY: as above.
                unsafe { &mut *slot.thread.get() }.leave(function as usize);
            }
        } else if measurement::state() == FORWARD {
            forward(c"__cyg_profile_func_exit", &NEXT_EXIT, function, site);
        }
    });
}

/// The first call of the process, of the thread, or of the function.
#[cold]
fn enter_first(slot: &Slot, function: *mut c_void, site: *mut c_void) {
    let running = match measurement::state() {
        NEW => measurement::start(slot, false),
        FORWARD => return forward(c"__cyg_profile_func_enter", &NEXT_ENTER, function, site),
        state => state == RUNNING,
    };
    if !running {
        if measurement::state() == FORWARD {
            forward(c"__cyg_profile_func_enter", &NEXT_ENTER, function, site);
        }
        return;
    }
    let is_refused = slot.thread.get().is_null() && slot.finished.load(Ordering::Relaxed);
    let region = if is_refused || alloc::is_low() || definitions::is_full() {
        INVALID
    } else {
        make_known(slot, function as usize)
    };
    if region == INVALID {
        count_missed(slot);
    }
    // SAFETY: this thread's own state, which is not used otherwise while the slot is busy.
    if let Some(thread) = unsafe { slot.thread.get().as_mut() } {
        thread.enter(function as usize, region);
    }
}

/// Gives the thread a location and the function a region, unless it has one. INVALID if it gets none.
#[cold]
fn make_known(slot: &Slot, function: usize) -> AnyHandle {
    // The plugin's work for a new location or definition is not async-signal-safe.
    let refuse = || {
        thread::IN_HANDLER.fetch_add(1, Ordering::Relaxed);
        INVALID
    };
    if is_on_alternate_stack() {
        return refuse();
    }
    on_own_stack_uninterrupted(INVALID, || {
        if signal::inside_handler() {
            return refuse();
        }
        if slot.thread.get().is_null() && measurement::attach(slot).is_none() {
            return INVALID;
        }
        // SAFETY: as in `enter_first`; `attach` has set it.
        if let Some(thread) = unsafe { slot.thread.get().as_ref() } {
            measurement::report_missed(&slot.missed, thread.location);
        }
        match lookup(function) {
            INVALID => define(function),
            region => region,
        }
    })
}

/// Defines the region of a function.
fn define(address: usize) -> AnyHandle {
    // Before the lock: another thread may wait for it with the loader's lock held.
    let place = symbols::locate(address);
    let Ok(mut used) = INSERTING.lock() else { return INVALID };
    let known = lookup(address);
    if known != INVALID {
        return known;
    }
    let symbol = symbols::resolve(place);
    let region = if filter::excludes(&symbol) {
        FILTERED
    } else {
        definitions::region(
            &symbol.name,
            &symbol.canonical_name,
            &symbol.file,
            symbol.line,
            region_type::FUNCTION,
            paradigm::COMPILER,
        )
    };
    if region == INVALID {
        return INVALID;
    }
    // SAFETY: null, or a leaked table.
    let table = unsafe { TABLE.load(Ordering::Relaxed).as_ref() };
    let table = match table {
        Some(table) if *used * 2 < table.entries.len() => table,
        old => {
            let grown = Table::new(old.map_or(ENTRIES_FIRST, |old| old.entries.len() * 2));
            for entry in old.iter().flat_map(|old| &old.entries) {
                let address = entry.address.load(Ordering::Relaxed);
                if address != 0 {
                    grown.put(address, entry.region.load(Ordering::Relaxed));
                }
            }
            let grown = Box::leak(Box::new(grown));
            TABLE.store(grown, Ordering::Release);
            grown
        }
    };
    table.put(address, region);
    *used += 1;
    region
}

static NEXT_ENTER: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
static NEXT_EXIT: AtomicPtr<c_void> = AtomicPtr::new(null_mut());

/// Passes a hook on to the next library that has it (the C library has empty ones).
#[cold]
fn forward(name: &CStr, next: &AtomicPtr<c_void>, function: *mut c_void, site: *mut c_void) {
    let mut target = next.load(Ordering::Relaxed);
    if target.is_null() {
        // SAFETY: a lookup by name after this library.
        target = preserving_thread_state(|| unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) });
        if target.is_null() {
            return;
        }
        next.store(target, Ordering::Relaxed);
    }
    type Hook = unsafe extern "C" fn(*mut c_void, *mut c_void);
    // SAFETY: the symbols of these names have this type; the arguments are the compiler's own.
    unsafe { std::mem::transmute::<*mut c_void, Hook>(target)(function, site) };
}
