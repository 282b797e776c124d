//! Checks the cores, whether one is left for the collector, and the clock of timestamps.

use super::findings::{Check, Group};
use ampere_collector::sampling::clock::{CALIBRATION, SessionClock, Timer, best_reading};
use ampere_model::text::plural;
use std::path::Path;

/// The number of cores that this process may use, and the number that are online.
pub struct Cores {
    pub allowed: usize,
    online: usize,
}

impl Cores {
    pub fn count() -> Cores {
        let online = std::fs::read_to_string("/sys/devices/system/cpu/online");
        let online = online.ok().and_then(|list| members(list.trim()));
        let allowed = rustix::thread::sched_getaffinity(None).map_or(0, |set| set.count() as usize);
        let allowed = if allowed == 0 { online.unwrap_or(1) } else { allowed };
        Cores { allowed, online: online.unwrap_or(allowed) }
    }
}

/// Returns how many numbers are in a list like `0-3,8`.
fn members(list: &str) -> Option<usize> {
    let range = |range: &str| match range.split_once('-') {
        None => range.parse::<usize>().ok().map(|_| 1),
        Some((first, last)) => {
            last.parse::<usize>().ok()?.checked_sub(first.parse().ok()?).map(|more| more + 1)
        }
    };
    list.split(',').map(range).sum()
}

pub fn check(cores: &Cores, root: &Path) -> Vec<Check> {
    let mut group = Group::new("cores and clock");
    look_at_cores(&mut group, cores);
    look_at_clock(&mut group, root);
    group.checks
}

fn look_at_cores(group: &mut Group, cores: &Cores) {
    let Cores { allowed, online } = *cores;
    let found = format!("{} of {online} may be used", plural(allowed as u64, "core"));
    // The collector of `ampere run` may use the same cores as this process. A collector that a rank starts may use all cores of
    // the job's cpuset, so it shares the rank's core only if the job has no other.
    if allowed == 1 {
        let advice = "if this is the job's only core, request one core more than the ranks need; otherwise calls may be coalesced";
        let found = format!("{found} in this allocation, which the collector shares with the program");
        group.note("cores", found, Some(advice.to_owned()));
    } else if allowed < online {
        let advice = "if the job is meant to have all of them, ask the launcher for more cores or switch off its binding"
            .to_owned();
        group.note("cores", format!("{found} by affinity"), Some(advice));
    } else {
        group.ok("cores", format!("{found}: {} for ranks and 1 for the collector", allowed - 1));
    }
    // A limit on CPU time stops all processes for a while, including the collector.
    let limited = std::thread::available_parallelism().map_or(allowed, usize::from);
    if limited < allowed {
        let advice = "measure without a limit on CPU time, or expect late samples".to_owned();
        group.note(
            "CPU time",
            format!("limited to that of {} by the cgroup", plural(limited as u64, "core")),
            Some(advice),
        );
    }
}

fn look_at_clock(group: &mut Group, root: &Path) {
    let start = best_reading();
    std::thread::sleep(CALIBRATION);
    let timer = Timer::usual();
    let clock = SessionClock::calibrated(timer, &start);
    let rate = format!("{}, {:.3} MHz", timer.as_str(), clock.ticks_per_second as f64 / 1e6);
    let clocks = root.join("sys/devices/system/clocksource/clocksource0");
    let read = |name: &str| std::fs::read_to_string(clocks.join(name)).map(|text| text.trim().to_owned());
    let kernel_clock = read("current_clocksource").unwrap_or_else(|_| "unknown".to_owned());
    let available = read("available_clocksource").unwrap_or_default();
    if timer != Timer::Tsc || !cfg!(target_arch = "x86_64") {
        // The kernel's clocks, and the time counters of other architectures, run steadily by definition.
        return group.ok("clock", format!("{rate}; the kernel's is {kernel_clock}"));
    }
    let info = std::fs::read_to_string(root.join("proc/cpuinfo")).unwrap_or_default();
    let flags = info.lines().find(|line| line.starts_with("flags")).unwrap_or_default();
    let lacks: Vec<&str> = ["constant_tsc", "nonstop_tsc"]
        .into_iter()
        .filter(|flag| !flags.split_whitespace().any(|f| f == *flag))
        .collect();
    let advice = || Some("with Score-P: export SCOREP_TIMER=clock_gettime".to_owned());
    if !lacks.is_empty() {
        let found = format!(
            "{rate}, and it may stop or change its pace: no {}; the kernel's is {kernel_clock}",
            lacks.join(", ")
        );
        group.note("clock", found, advice());
    } else if !available.is_empty() && !available.split_whitespace().any(|name| name == "tsc") {
        let found = format!("{rate}, steady, but the kernel does not trust it and uses {kernel_clock}");
        group.note("clock", found, advice());
    } else {
        group.ok(
            "clock",
            format!("{rate}, steady (constant_tsc, nonstop_tsc); the kernel's is {kernel_clock}"),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::members;

    #[test]
    fn members_of_cpu_lists_are_counted() {
        let cases =
            [("0", Some(1)), ("0-127", Some(128)), ("0-3,8,10-11", Some(7)), ("", None), ("3-1", None)];
        for (list, expected) in cases {
            assert_eq!(members(list), expected, "{list:?}");
        }
    }
}
