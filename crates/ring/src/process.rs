//! Who a process is: a pid can be used again, a pid with its start time cannot.

/// Start time of a process in clock ticks since boot, or `None` if there is no such process.
/// Source: `/proc/<pid>/stat`, field 22; the command in field 2 may hold spaces and parentheses.
pub fn start_time(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let after_command = &stat[stat.rfind(')')? + 1..];
    let mut fields = after_command.split_ascii_whitespace();
    let state = fields.next()?;
    if state == "Z" || state == "X" {
        return None; // a zombie runs no more
    }
    fields.nth(18)?.parse().ok()
}

/// Which boot of the machine this is: pids and start times begin anew with each. Source: /proc/sys/kernel/random/boot_id.
/// 0, 0 where the kernel does not say.
pub fn boot_id() -> [u64; 2] {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    let half = |at: usize| digits.get(at..at + 16).and_then(|part| u64::from_str_radix(part, 16).ok());
    [half(0).unwrap_or(0), half(16).unwrap_or(0)]
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

    #[test]
    fn this_boot_has_a_name() {
        assert_ne!(boot_id(), [0, 0]);
        assert_eq!(boot_id(), boot_id());
    }
}
