//! A read allocates nothing.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use ampere_counters::{ReadError, Settings, open_sources};

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: everything is the system allocator's; counting is a thread's own cell without a destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

#[test]
fn a_read_allocates_nothing() {
    let library = std::env::current_exe().unwrap().parent().unwrap().join("librocm_smi64.so");
    let mut opened = open_sources(&Settings {
        which: Some(vec!["rocm_smi".into(), "estimate".into()]),
        rocm_smi_library: Some(library),
        ..Settings::default()
    });
    assert_eq!(opened.sources.len(), 2, "{:?}", opened.notes);
    let before = ALLOCATIONS.get();
    for _ in 0..100 {
        for source in &mut opened.sources {
            source.read(0).unwrap();
            assert!(matches!(source.read(99), Err(ReadError::NoSuchDevice)));
        }
    }
    assert_eq!(ALLOCATIONS.get(), before);
}
