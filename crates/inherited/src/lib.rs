//! Lets a command inherit the same state as the process that starts it: signals that are ignored or blocked, closed standard
//! streams, and the environment as it is. `nohup` and a shell's background jobs ignore the signals of a terminal, and service
//! managers ignore SIGPIPE.
//!
//! Rust's start-up code ignores SIGPIPE and opens standard streams that are closed, and `Command` sorts the environment and
//! drops entries that it does not understand. Only the command `ampere` contains this crate.

use libc::{c_char, c_int};
use std::ffi::{CStr, CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// The signals that were ignored when this process started: bit n is signal n.
static IGNORED: AtomicU32 = AtomicU32::new(0);
/// The standard streams that were closed: bit n is descriptor n.
static CLOSED: AtomicU32 = AtomicU32::new(0);
/// The signals that were blocked before this process unblocked them.
static BLOCKED: OnceLock<libc::sigset_t> = OnceLock::new();

/// The C library calls this before Rust's start-up code.
#[used]
// SAFETY: the section has functions of this type.
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = remember;

extern "C" fn remember() {
    let bits = |of: &mut dyn Iterator<Item = c_int>| of.fold(0, |all, bit| all | 1 << bit);
    IGNORED.store(bits(&mut (1..32).filter(|signal| is_ignored(*signal))), Ordering::Relaxed);
    // SAFETY: the call only reads the descriptor's flags.
    let is_closed = |fd: &c_int| unsafe { libc::fcntl(*fd, libc::F_GETFD) } == -1;
    CLOSED.store(bits(&mut (0..3).filter(is_closed)), Ordering::Relaxed);
}

fn is_ignored(signal: c_int) -> bool {
    // SAFETY: zeros are a valid value, which is only written to.
    let mut now: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: the call only reads the disposition.
    let is_known = unsafe { libc::sigaction(signal, std::ptr::null(), &mut now) } == 0;
    is_known && now.sa_sigaction == libc::SIG_IGN
}

/// Restores the default for SIGCHLD, so that this process can wait for its children: if it is ignored, the kernel discards their
/// exit status. Call this before any child is started.
pub fn restore_sigchld() {
    // SAFETY: the default is valid for this signal.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
}

/// Lets this thread, and those that it starts, receive all signals. Commands still inherit which ones were blocked.
pub fn unblock_signals() {
    // SAFETY: zeros are valid sets, and only the second one is written to.
    unsafe {
        let (mut none, mut before) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigemptyset(&mut none);
        libc::pthread_sigmask(libc::SIG_SETMASK, &none, &mut before);
        let _ = BLOCKED.set(before);
    }
}

/// Does to this process what a signal does by default: it ends or stops the process. Returns once the process is continued, or
/// at once if the kernel ignores the signal, as it does for the first process of a container.
pub fn take_default_action(signal: c_int) {
    // SAFETY: zeros are valid values, the default is valid for each signal, and what was there before is put back.
    unsafe {
        let default: libc::sigaction = std::mem::zeroed();
        let (mut before, mut only) = (default, std::mem::zeroed());
        libc::sigemptyset(&mut only);
        libc::sigaddset(&mut only, signal);
        // The signal is raised while it is blocked. If the same signal comes from a terminal and stops this process first,
        // continuing the process discards the raised one, and the process is not stopped twice.
        libc::pthread_sigmask(libc::SIG_BLOCK, &only, std::ptr::null_mut());
        libc::raise(signal);
        let is_changed = libc::sigaction(signal, &default, &mut before) == 0;
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &only, std::ptr::null_mut());
        if is_changed {
            libc::sigaction(signal, &before, std::ptr::null_mut());
        }
    }
}

unsafe extern "C" {
    static mut environ: *const *const c_char;
}

/// Returns a command with the program, the arguments, the directory and the environment of another one. The new command
/// inherits everything that this process has inherited. Its standard streams may be set, unless they were closed.
pub fn inheriting(of: &Command) -> Command {
    let mut command = Command::new(of.get_program());
    command.args(of.get_args());
    of.get_current_dir().into_iter().for_each(|directory| _ = command.current_dir(directory));
    let changes: Vec<_> = of.get_envs().collect();
    // SAFETY: no other thread changes the environment.
    let entries = edited(unsafe { own_environment() }, &changes);
    let mut pointers: Vec<*const c_char> =
        entries.into_iter().map(|entry| entry.into_raw().cast_const()).collect();
    pointers.push(std::ptr::null());
    // The environment must outlive a failed exec.
    let environment = pointers.leak().as_ptr().expose_provenance();
    let (ignored, closed) = (IGNORED.load(Ordering::Relaxed), CLOSED.load(Ordering::Relaxed));
    let blocked = BLOCKED.get();
    let restore = move || {
        let bits = |of: u32| (0..32).filter(move |bit| of & 1 << bit != 0);
        // SAFETY: valid signals, a set and an environment that are never freed, and descriptors that only this process uses.
        unsafe {
            bits(ignored).for_each(|signal| _ = libc::signal(signal, libc::SIG_IGN));
            bits(closed).for_each(|fd| _ = libc::close(fd));
            blocked.map(|set| libc::pthread_sigmask(libc::SIG_SETMASK, set, std::ptr::null_mut()));
            environ = std::ptr::with_exposed_provenance(environment);
        }
        Ok(())
    };
    // SAFETY: the closure is async-signal-safe.
    unsafe { command.pre_exec(restore) };
    command
}

/// # Safety
/// No thread changes the environment while the entries are read.
unsafe fn own_environment() -> Vec<&'static CStr> {
    let mut entries = Vec::new();
    // SAFETY: the array ends with NULL, and has C strings.
    unsafe {
        let mut at = environ;
        while !at.is_null() && !(*at).is_null() {
            entries.push(CStr::from_ptr(*at));
            at = at.add(1);
        }
    }
    entries
}

/// Changes entries of an environment in place, and adds new ones at its end. If several entries have a name whose value is
/// changed, one of them remains, because some programs read the first and others the last.
fn edited(entries: Vec<&CStr>, changes: &[(&OsStr, Option<&OsStr>)]) -> Vec<CString> {
    let mut is_done = vec![false; changes.len()];
    let entry =
        |name: &OsStr, value: &OsStr| CString::new([name.as_bytes(), b"=", value.as_bytes()].concat()).ok();
    let mut all = Vec::new();
    for old in entries {
        let name = old.to_bytes().iter().position(|byte| *byte == b'=').map(|end| &old.to_bytes()[..end]);
        let change = changes.iter().position(|(changed, _)| name == Some(changed.as_bytes()));
        match change.map(|at| (std::mem::replace(&mut is_done[at], true), changes[at])) {
            None => all.push(old.to_owned()),
            Some((_, (_, None))) => {}
            Some((true, _)) => {}
            Some((false, (name, Some(value)))) => all.extend(entry(name, value)),
        }
    }
    let new = changes.iter().zip(is_done).filter(|(_, is_done)| !is_done);
    all.extend(new.filter_map(|((name, value), _)| entry(name, (*value)?)));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_environment_keeps_its_order_its_duplicates_and_what_is_not_a_variable() {
        let old = vec![c"B=1", c"X=1", c"NOEQUALS", c"=weird", c"X=2", c"Y=1", c"Y=2", c"GONE=1", c"GONE=2"];
        let value = |text: &'static str| Some(OsStr::new(text));
        let changes =
            [(OsStr::new("X"), value("3")), (OsStr::new("GONE"), None), (OsStr::new("NEW"), value("n"))];
        let new = edited(old, &changes);
        let texts: Vec<_> = new.iter().map(|entry| entry.to_str().expect("UTF-8")).collect();
        assert_eq!(texts, ["B=1", "X=3", "NOEQUALS", "=weird", "Y=1", "Y=2", "NEW=n"]);
    }
}
