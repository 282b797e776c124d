//! A file that somebody truncates while it is mapped. Touching what is gone raises SIGBUS, whose default ends the process:
//! the user's job, for a figure of ours. [`survive`] installs a handler that puts memory of nobody's in the place of what is
//! gone, so that whoever was reading or writing goes on and finds out afterwards.
//!
//! Why not otherwise: only nameless files can be sealed against it, and the name is what lets records outlive their writer;
//! `read` and `write` instead of a mapping would cost a system call an event.
//!
//! The handler minds addresses within our own mappings and nothing else. Any other SIGBUS goes to who had the signal before,
//! as if we were not here. It neither allocates nor locks: mappings are in a list that only ever grows, of places that are
//! used again.

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr::{null_mut, with_exposed_provenance_mut};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

/// One mapping, or a place for one.
pub(crate) struct Watched {
    /// 0: free. 1: being filled in.
    start: AtomicUsize,
    end: AtomicUsize,
    lost: AtomicBool,
    next: AtomicPtr<Watched>,
}

static FIRST: AtomicPtr<Watched> = AtomicPtr::new(null_mut());
static PAGE: AtomicUsize = AtomicUsize::new(4096);
static INSTALLED: AtomicBool = AtomicBool::new(false);
static TELL: AtomicPtr<()> = AtomicPtr::new(null_mut());
/// What was done about the signal before. Valid once `PREVIOUS_IS_SET`.
static mut PREVIOUS: MaybeUninit<libc::sigaction> = MaybeUninit::uninit();
static PREVIOUS_IS_SET: AtomicBool = AtomicBool::new(false);

/// Remembers a mapping for as long as it is one.
pub(crate) fn watch(start: usize, bytes: usize) -> &'static Watched {
    let mut at = FIRST.load(Ordering::Acquire);
    // SAFETY: what is in the list is never freed.
    while let Some(place) = unsafe { at.as_ref() } {
        if place.start.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok() {
            return place.fill(start, bytes);
        }
        at = place.next.load(Ordering::Acquire);
    }
    let place = Box::leak(Box::new(Watched {
        start: AtomicUsize::new(1),
        end: AtomicUsize::new(0),
        lost: AtomicBool::new(false),
        next: AtomicPtr::new(null_mut()),
    }));
    let place: &'static Watched = place;
    loop {
        let first = FIRST.load(Ordering::Relaxed);
        place.next.store(first, Ordering::Relaxed);
        let mine = std::ptr::from_ref(place).cast_mut();
        // Release: who finds the place finds what is in it.
        if FIRST.compare_exchange(first, mine, Ordering::Release, Ordering::Relaxed).is_ok() {
            return place.fill(start, bytes);
        }
    }
}

impl Watched {
    fn fill(&'static self, start: usize, bytes: usize) -> &'static Watched {
        self.lost.store(false, Ordering::Relaxed);
        self.end.store(start + bytes, Ordering::Relaxed);
        self.start.store(start, Ordering::Release);
        self
    }

    /// The mapping is about to go.
    pub(crate) fn forget(&self) {
        self.start.store(0, Ordering::Release);
    }

    /// Something of the file was gone when it was touched: what is in memory is no longer what is in the file.
    pub(crate) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }
}

/// From now on a file that is truncated ends nobody. `tell` is called from the signal handler whenever it happens: it may do
/// what a signal handler may. The first call counts.
pub fn survive(tell: Option<extern "C" fn()>) {
    if INSTALLED.swap(true, Ordering::AcqRel) {
        return;
    }
    PAGE.store(rustix::param::page_size(), Ordering::Relaxed);
    TELL.store(tell.map_or(null_mut(), |tell| tell as *mut ()), Ordering::Relaxed);
    // SAFETY: plain structures of ours; the handler has the signature that SA_SIGINFO asks for.
    unsafe {
        let mut previous = MaybeUninit::<libc::sigaction>::zeroed().assume_init();
        if libc::sigaction(libc::SIGBUS, std::ptr::null(), &mut previous) != 0 {
            return;
        }
        // As the one before wants it: it may be called from ours.
        let mut ours = previous;
        ours.sa_sigaction = on_bus_error as *const () as usize;
        ours.sa_flags = libc::SA_SIGINFO | previous.sa_flags & !libc::SA_RESETHAND;
        if !is_function(previous.sa_sigaction) {
            ours.sa_flags |= libc::SA_ONSTACK;
        }
        (&raw mut PREVIOUS).write(MaybeUninit::new(previous));
        PREVIOUS_IS_SET.store(true, Ordering::Release);
        libc::sigaction(libc::SIGBUS, &ours, null_mut());
    }
}

fn is_function(action: usize) -> bool {
    action != libc::SIG_DFL && action != libc::SIG_IGN
}

extern "C" fn on_bus_error(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the thread's own errno; the handler must leave it as it was.
    let errno = unsafe { *libc::__errno_location() };
    // SAFETY: the kernel's, for this call. si_addr is there for a fault, whose code is positive.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr() as usize) };
    if code > 0 && replace(address) {
        // SAFETY: as above.
        unsafe { *libc::__errno_location() = errno };
        return;
    }
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
    pass_on(signal, info, context);
}

/// If the address is ours: from its page on, the mapping is of memory that nobody else sees.
fn replace(address: usize) -> bool {
    let page = address & !(PAGE.load(Ordering::Relaxed) - 1);
    let mut at = FIRST.load(Ordering::Acquire);
    // SAFETY: what is in the list is never freed.
    while let Some(place) = unsafe { at.as_ref() } {
        let start = place.start.load(Ordering::Acquire);
        let end = place.end.load(Ordering::Relaxed);
        if start > 1 && (start..end).contains(&address) {
            // SAFETY: the range is within a mapping of ours, which is plain memory to whoever uses it: any bytes are valid.
            let mapped = unsafe {
                libc::mmap(
                    with_exposed_provenance_mut(page),
                    end - page,
                    libc::PROT_READ | libc::PROT_WRITE,
                    libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE,
                    -1,
                    0,
                )
            };
            if mapped == libc::MAP_FAILED {
                return false;
            }
            place.lost.store(true, Ordering::Release);
            let tell = TELL.load(Ordering::Relaxed);
            if !tell.is_null() {
                // SAFETY: `survive` stored a function of this type.
                unsafe { std::mem::transmute::<*mut (), extern "C" fn()>(tell)() };
            }
            return true;
        }
        at = place.next.load(Ordering::Acquire);
    }
    false
}

/// Not ours: what would have happened without us.
fn pass_on(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    if !PREVIOUS_IS_SET.load(Ordering::Acquire) {
        return;
    }
    // SAFETY: written once, before the handler was installed.
    let previous = unsafe { (&raw const PREVIOUS).read().assume_init() };
    // SAFETY: the kernel's, for this call.
    let is_fault = unsafe { (*info).si_code } > 0;
    let action = previous.sa_sigaction;
    if !is_function(action) {
        if action == libc::SIG_IGN && !is_fault {
            return;
        }
        // SAFETY: back to the default, which a fault meets when its instruction is tried again, and a signal from somebody
        // when it is raised again: it is delivered when this handler returns.
        unsafe {
            libc::signal(signal, libc::SIG_DFL);
            if !is_fault {
                libc::raise(signal);
            }
        }
        return;
    }
    if previous.sa_flags & libc::SA_RESETHAND != 0 {
        // SAFETY: as the one before asked for: it is called once.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    // SAFETY: the handler before ours, called as its flags say.
    unsafe {
        if previous.sa_flags & libc::SA_SIGINFO != 0 {
            type Handler = extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);
            std::mem::transmute::<usize, Handler>(action)(signal, info, context);
        } else {
            std::mem::transmute::<usize, extern "C" fn(c_int)>(action)(signal);
        }
    }
}
