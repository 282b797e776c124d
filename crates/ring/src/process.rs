//! The identity of processes: a pid can be reused, but a pid together with a start time cannot.

use ampere_model::time_namespace::ticks_since_boot;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// Returns the start time of a process in clock ticks since boot, the same in all time namespaces. `None` if there is
/// no such process, or if it is a zombie. Source: `/proc/<pid>/stat`, field 22; the command in field 2 may contain
/// spaces and parentheses.
pub fn start_time(pid: u32) -> Option<u64> {
    start_time_of(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

fn start_time_of(stat: &str) -> Option<u64> {
    let after_command = &stat[stat.rfind(')')? + 1..];
    let mut fields = after_command.split_ascii_whitespace();
    let state = fields.next()?;
    let threads: u32 = fields.nth(16)?.parse().ok()?;
    // A process in state Z has ended, unless it has threads other than the main thread.
    if state == "X" || state == "Z" && threads <= 1 {
        return None;
    }
    fields.nth(1)?.parse().ok().map(ticks_since_boot)
}

/// Whether a process with this pid is alive, not necessarily the one that had the pid before. A zombie is not alive. Does not
/// allocate.
pub fn seems_alive(pid: u32) -> bool {
    use std::io::Write;
    let mut path = [0u8; 32];
    let mut left = &mut path[..];
    if write!(left, "/proc/{pid}/stat").is_err() {
        return false;
    }
    let Ok(path) = std::ffi::CStr::from_bytes_until_nul(&path) else { return false };
    let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC;
    let file = match rustix::fs::open(path, flags, rustix::fs::Mode::empty()) {
        Ok(file) => file,
        Err(rustix::io::Errno::NOENT) if proc_is_there() => return false,
        // For example, no descriptor is left.
        Err(_) => return has_pid(pid),
    };
    let mut stat = [0; 128];
    let Ok(count) = rustix::io::read(&file, &mut stat) else { return false };
    // The command in parentheses has at most 15 bytes; the state follows.
    let after = stat[..count].iter().rposition(|byte| *byte == b')').and_then(|at| stat.get(at + 2));
    !matches!(after, None | Some(b'Z' | b'X'))
}

/// Whether the error has a cause other than the end of the process, for example that no descriptor was left.
fn is_unknown(error: &std::io::Error) -> bool {
    let gone = [rustix::io::Errno::NOENT, rustix::io::Errno::SRCH];
    !gone.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error())) || !proc_is_there()
}

/// Whether /proc exists: a process may have changed its root to a directory without it.
fn proc_is_there() -> bool {
    rustix::fs::access(c"/proc/self/stat", rustix::fs::Access::READ_OK).is_ok()
}

fn has_pid(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
    let probe = |pid| rustix::process::test_kill_process(pid);
    pid.is_some_and(|pid| matches!(probe(pid), Ok(()) | Err(rustix::io::Errno::PERM)))
}

/// Returns the id of the node's boot; 0, 0 if it is not known. After another boot, pids and start times repeat. Source:
/// /proc/sys/kernel/random/boot_id.
pub fn boot_id() -> [u64; 2] {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    let half = |at: usize| digits.get(at..at + 16).and_then(|part| u64::from_str_radix(part, 16).ok());
    [half(0).unwrap_or(0), half(16).unwrap_or(0)]
}

/// [`boot_id`] as text: `ampere run` passes it to its command's processes, which compare it with their node's.
pub fn boot_text() -> String {
    let [first, second] = boot_id();
    format!("{first:016x}{second:016x}")
}

/// Returns a number for the pid namespace of this process; 0 if it is not known.
pub fn pid_namespace() -> u64 {
    rustix::fs::stat(c"/proc/self/ns/pid").map_or(0, |found| found.st_ino)
}

/// Returns a name for files that no other process of the node uses: the pid and its namespace.
pub fn own_name() -> String {
    format!("{}.{}", std::process::id(), pid_namespace())
}

/// Whether the process of this node with this [`own_name`] is known to have ended.
pub fn is_gone(name: &str) -> bool {
    let pid = name.strip_suffix(&format!(".{}", pid_namespace())).and_then(|pid| pid.parse().ok());
    pid.is_some_and(|pid| start_time(pid).is_none())
}

/// Returns the name of the node that this process runs on.
pub fn node_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Returns the name of this node with a number from its boot id, which is used if another node of the run has the same
/// name.
pub fn distinct_node_name() -> String {
    let [first, second] = boot_id();
    let number = first ^ second.rotate_left(1);
    format!("{}-{:08x}", node_name(), (number ^ number >> 32) as u32)
}

/// Returns the names that a run can use for this node.
pub fn names_of_this_node() -> [String; 2] {
    [node_name(), distinct_node_name()]
}

/// Whether a run may use this name for this node.
pub fn is_this_node(name: &str) -> bool {
    names_of_this_node().iter().any(|own| own == name)
}

/// Returns `node`, the name of the collector's node in a run, if it is `hostname` plus the suffix of [`distinct_node_name`].
pub fn name_in_run(hostname: &str, node: &str) -> Option<String> {
    let number = node.strip_prefix(hostname)?.strip_prefix('-')?;
    let is_distinct = number.len() == 8 && number.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_distinct.then(|| node.to_owned())
}

/// Returns the pid of a process' parent.
pub fn parent(pid: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat[stat.rfind(')')? + 1..].split_ascii_whitespace().nth(1)?.parse().ok()
}

/// Whether the process with this pid and start time is still running.
pub fn is_alive(pid: u32, started: u64) -> bool {
    match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => start_time_of(&stat) == Some(started),
        Err(error) => is_unknown(&error) && has_pid(pid),
    }
}

/// Whether all threads of a process are about to end: the kernel is removing it, which can take a while.
pub fn is_ending(pid: u32) -> bool {
    /// The kernel's PF_EXITING, in field 9 of a thread's `stat`.
    const EXITING: u64 = 4;
    let is_exiting = |path: &Path| {
        let stat = std::fs::read_to_string(path.join("stat")).unwrap_or_default();
        let after_command = stat.rfind(')').and_then(|at| stat.get(at + 1..)).unwrap_or_default();
        let flags = after_command.split_ascii_whitespace().nth(6).and_then(|flags| flags.parse::<u64>().ok());
        flags.is_some_and(|flags| flags & EXITING != 0)
    };
    let process = PathBuf::from(format!("/proc/{pid}"));
    is_exiting(&process)
        && std::fs::read_dir(process.join("task"))
            .is_ok_and(|threads| threads.flatten().all(|thread| is_exiting(&thread.path())))
}

/// A handle for checking frequently whether a process is running. It takes one system call instead of reading a file of /proc.
pub struct ProcessHandle(OwnedFd);

impl ProcessHandle {
    /// `None` if the process has ended, or if the kernel is older than Linux 5.3.
    pub fn open(pid: u32, started: u64) -> Option<ProcessHandle> {
        let number = rustix::process::Pid::from_raw(i32::try_from(pid).ok()?)?;
        let handle = rustix::process::pidfd_open(number, rustix::process::PidfdFlags::empty()).ok()?;
        // The handle is for the process that has the pid now, which may be another one.
        is_alive(pid, started).then_some(ProcessHandle(handle))
    }

    /// Whether the process is still running.
    pub fn is_alive(&self) -> bool {
        // The handle becomes readable when the process ends.
        let mut poll = [rustix::event::PollFd::new(&self.0, rustix::event::PollFlags::IN)];
        let now = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
        !matches!(rustix::event::poll(&mut poll, Some(&now)), Ok(ended) if ended > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_has_this_process_as_its_parent() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        assert_eq!(parent(child.id()), Some(std::process::id()));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(parent(child.id()), None);
        assert_eq!(parent(u32::MAX), None);
    }

    #[test]
    fn a_handle_shows_when_its_process_ends() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let started = start_time(child.id()).unwrap();
        assert!(ProcessHandle::open(child.id(), started + 1).is_none());
        let handle = ProcessHandle::open(child.id(), started).unwrap();
        assert!(handle.is_alive());
        child.kill().unwrap();
        let begun = std::time::Instant::now();
        while handle.is_alive() {
            assert!(begun.elapsed().as_secs() < 10, "a zombie is not alive");
        }
        child.wait().unwrap();
    }

    #[test]
    fn this_process_is_alive_and_an_ended_one_is_not() {
        let me = std::process::id();
        let started = start_time(me).unwrap();
        assert!(is_alive(me, started));
        assert!(!is_alive(me, started + 1));
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id();
        let begun = std::time::Instant::now();
        // The child is a zombie until it is waited for.
        while seems_alive(pid) || start_time(pid).is_some() {
            assert!(begun.elapsed().as_secs() < 10, "a process that has ended is not alive");
        }
        child.wait().unwrap();
        assert_eq!(start_time(pid), None);
        assert!(!seems_alive(pid) && seems_alive(me));
    }

    #[test]
    fn a_node_is_recognised_by_the_name_that_a_run_has_given_it() {
        for (host, node, is_same_node) in [
            ("n1", "n1-0a1b2c3d", true),
            // A host name that itself ends like the suffix, and one that is a prefix of another node's.
            ("n1-0a1b2c3d", "n1-0a1b2c3d-00000001", true),
            ("n1", "n1-0a1b2c3d-00000001", false),
            ("n", "n1-0a1b2c3d", false),
            ("n1", "n1", false),
            ("n1", "n10a1b2c3d", false),
            ("n1", "n1-2", false),
            ("n1", "n1-compute0", false),
            ("n1.cluster", "n1-0a1b2c3d", false),
        ] {
            assert_eq!(name_in_run(host, node), is_same_node.then(|| node.to_owned()), "{host} {node}");
        }
        let distinct = distinct_node_name();
        assert_eq!(name_in_run(&node_name(), &distinct), Some(distinct.clone()));
        assert!(is_this_node(&node_name()) && is_this_node(&distinct) && !is_this_node("n1-0a1b2c3d"));
    }

    #[test]
    fn the_boot_id_is_known_and_constant() {
        assert_ne!(boot_id(), [0, 0]);
        assert_eq!(boot_id(), boot_id());
    }
}
