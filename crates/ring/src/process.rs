//! Who a process is: a pid can be used again, a pid with its start time cannot.

/// Start time of a process in clock ticks since boot, or `None` if there is no such process.
/// Source: `/proc/<pid>/stat`, field 22; the command in field 2 may hold spaces and parentheses.
pub fn start_time(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let after_command = &stat[stat.rfind(')')? + 1..];
    let mut fields = after_command.split_ascii_whitespace();
    let state = fields.next()?;
    let threads: u32 = fields.nth(16)?.parse().ok()?;
    // A zombie runs no more, unless only its main thread has ended and others go on.
    if state == "X" || state == "Z" && threads <= 1 {
        return None;
    }
    fields.nth(1)?.parse().ok()
}

/// Name of the node that this process runs on.
pub fn node_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Whether the process that had this pid and start time still runs.
pub fn is_alive(pid: u32, started: u64) -> bool {
    start_time(pid) == Some(started)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn we_are_alive_and_others_are_not() {
        let me = std::process::id();
        let started = start_time(me).unwrap();
        assert!(is_alive(me, started));
        assert!(!is_alive(me, started + 1));
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id();
        child.wait().unwrap();
        assert_eq!(start_time(pid), None);
    }
}
