//! The CPU time of ended children, finer than in `/proc`.

use std::time::Duration;

/// Returns the CPU time of the children that this process has waited for, including that of the children that these have waited
/// for.
pub fn cpu_time_of_ended_children() -> Duration {
    // SAFETY: all-zero bytes are a valid `rusage`.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: getrusage fills the structure and keeps no pointer to it.
    if unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, &mut usage) } != 0 {
        return Duration::ZERO;
    }
    let duration = |time: libc::timeval| {
        Duration::from_secs(time.tv_sec.try_into().unwrap_or(0))
            + Duration::from_micros(time.tv_usec.try_into().unwrap_or(0))
    };
    duration(usage.ru_utime) + duration(usage.ru_stime)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_child_that_has_ended_is_counted() {
        let before = cpu_time_of_ended_children();
        let script = "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done";
        assert!(std::process::Command::new("sh").args(["-c", script]).status().unwrap().success());
        let used = cpu_time_of_ended_children() - before;
        assert!((Duration::from_micros(500)..Duration::from_secs(5)).contains(&used), "{used:?}");
    }
}
