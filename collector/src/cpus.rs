//! Chooses the CPUs of the collector: those of `AMPERE_COLLECTOR_CPUS`, else those of `ampere run`. A collector that a rank
//! starts would be bound to the rank's core, so it may run on the whole CPU set of the job's control group.

use ampere_settings::Cpus;
use rustix::io::Errno;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// An error: the CPUs of `AMPERE_COLLECTOR_CPUS` cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("cannot run on the CPUs of AMPERE_COLLECTOR_CPUS: {why}; this job has {allowed}")]
pub struct AffinityError {
    why: Errno,
    allowed: String,
}

/// Makes this thread and those that it starts later run on these CPUs. After an error, nothing has changed.
pub fn run_on(cpus: &Cpus) -> Result<(), AffinityError> {
    let mut wanted = CpuSet::new();
    cpus.0.iter().for_each(|cpu| wanted.set(*cpu));
    sched_setaffinity(None, &wanted).map_err(|why| AffinityError { why, allowed: allowed() })
}

/// Lets this thread run on all CPUs of the job's control group. It asks for all CPUs, and the kernel excludes those of other
/// jobs. If that fails, nothing changes.
pub fn leave_the_ranks_core() {
    let mut all = CpuSet::new();
    (0..CpuSet::MAX_CPU).for_each(|cpu| all.set(cpu));
    let _ = sched_setaffinity(None, &all);
}

/// Returns the number of CPUs that this process may use.
pub fn count() -> usize {
    sched_getaffinity(None).map_or(1, |set| set.count() as usize)
}

/// Returns the CPUs that this process may use, as a list like "0-3,8".
fn allowed() -> String {
    let Ok(set) = sched_getaffinity(None) else { return "others".to_owned() };
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for cpu in (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)) {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == cpu => *last = cpu,
            _ => ranges.push((cpu, cpu)),
        }
    }
    let text = |(first, last): &(usize, usize)| {
        if first == last { format!("{first}") } else { format!("{first}-{last}") }
    };
    ranges.iter().map(text).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_runs_on_the_given_cpus() {
        let first = (0..CpuSet::MAX_CPU).find(|cpu| sched_getaffinity(None).unwrap().is_set(*cpu)).unwrap();
        std::thread::spawn(move || {
            run_on(&Cpus::parse(&first.to_string()).unwrap()).unwrap();
            assert_eq!(allowed(), first.to_string());
            let absent = Cpus::parse(&(CpuSet::MAX_CPU - 1).to_string()).unwrap();
            let why = run_on(&absent).unwrap_err().to_string();
            assert!(why.ends_with(&format!("this job has {first}")), "{why}");
        })
        .join()
        .unwrap();
    }
}
