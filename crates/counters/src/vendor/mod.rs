//! The common part of all vendors' libraries: finds and loads them, and makes sure that there is only one call at a time, and
//! none while the process ends.
//!
//! - **One call at a time**: AMD's libraries are not thread-safe before ROCm 7.2. Every call holds the lock of [`lock`].
//! - **Nothing is called while the process ends.** The libraries keep their devices in C++ statics. Exit handlers run in reverse
//!   order. A measurement system that finishes in an exit handler of its own finds those statics destroyed, and librocm_smi64
//!   5.2.3 segfaults. [`watch_for_exit`] therefore registers a handler after the library's handlers: it runs before them and
//!   prevents all further calls.
//!
//! A library is never unloaded: it may have threads, exit handlers and copies of our pointers.
#![allow(unsafe_code)]

use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, TryLockError};
use std::time::Duration;

pub(crate) mod find;

/// The status that a vendor's library returned, as a number and with its name in the header (without the prefix).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Status {
    pub code: u32,
    /// The name, such as `NOT_SUPPORTED`.
    pub name: &'static str,
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name, self.code)
    }
}

/// The reason why a file could not be used as the library.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// `dlopen` failed, with this text.
    #[error("{0}")]
    Open(String),
    /// The library lacks a required function.
    #[error("it has no function {0}")]
    Symbol(&'static str),
}

/// The reason why a call returned nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CallError {
    #[error("{0}")]
    Status(Status),
    #[error("the process is ending")]
    Ended,
}

/// This lock is held during every call into a library.
static CALLS: Mutex<()> = Mutex::new(());

/// Set by the exit handler, which then waits for `CALLS`; read by every call while it holds `CALLS`. So a call either sees it, or
/// holds the lock while the handler waits.
static ENDED: AtomicBool = AtomicBool::new(false);

/// Takes the lock that a call needs.
pub(crate) fn lock() -> Result<MutexGuard<'static, ()>, CallError> {
    let guard = CALLS.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if ENDED.load(Ordering::SeqCst) { Err(CallError::Ended) } else { Ok(guard) }
}

/// Prevents all further calls when the process ends, before the library's own exit handlers run. This must be called after every
/// function that will be called later has been called once, because a library makes some of its statics on first use. Returns
/// `false` if no further handler can be registered. Then nothing may be read.
pub(crate) fn watch_for_exit() -> bool {
    // SAFETY: `at_exit` does not unwind, and it stays loaded: glibc runs the handlers of a shared object when that is
    // unloaded, and not later.
    unsafe { libc::atexit(at_exit) == 0 }
}

/// Runs when the process ends: no call starts from here on, and one in progress is waited for. The wait is limited: a process
/// that hangs at its end, for example because a signal handler within a call called `exit`, is worse than the risk.
extern "C" fn at_exit() {
    ENDED.store(true, Ordering::SeqCst);
    for _ in 0..1000 {
        match CALLS.try_lock() {
            Ok(_) | Err(TryLockError::Poisoned(_)) => return,
            Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}

/// Checks that the loader finds a library by this name, as Score-P looks for its plugins, and that it has the function. The
/// library stays loaded.
///
/// # Errors
/// The reason, in one line.
pub fn loads(file: &str, function: &'static str) -> Result<(), LoadError> {
    // SAFETY: the user named the file for this purpose; the function is looked up and not called.
    unsafe {
        let library = Symbols::open(Path::new(file))?;
        library.get::<*const std::ffi::c_void>(function)?;
        library.keep();
    }
    Ok(())
}

/// A loaded library, whose functions can be looked up.
pub(crate) struct Symbols(libloading::os::unix::Library);

impl Symbols {
    /// Loads a library and calls nothing in it except its initialisers.
    ///
    /// # Safety
    /// The file's initialisers must be harmless: it is a vendor's library by its name, or one that the user named for this
    /// purpose. More cannot be checked.
    pub unsafe fn open(path: &Path) -> Result<Symbols, LoadError> {
        use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
        // SAFETY: the caller guarantees the conditions above.
        unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) }.map(Symbols).map_err(open_error)
    }

    /// Looks up a function by its name.
    ///
    /// # Safety
    /// `F` is the type of the function of that name.
    pub unsafe fn get<F: Copy>(&self, name: &'static str) -> Result<F, LoadError> {
        // SAFETY: the caller guarantees the conditions above.
        let symbol = unsafe { self.0.get::<F>(name) };
        symbol.map(|symbol| *symbol).map_err(|_| LoadError::Symbol(name))
    }

    /// Keeps the library loaded, so that the functions that were looked up stay valid.
    pub fn keep(self) {
        std::mem::forget(self.0);
    }
}

/// Extracts `dlopen`'s own text, which libloading has in the source of its error.
fn open_error(error: libloading::Error) -> LoadError {
    LoadError::Open(match std::error::Error::source(&error) {
        Some(inner) => inner.to_string(),
        None => error.to_string(),
    })
}
