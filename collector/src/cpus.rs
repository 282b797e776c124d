//! Where the collector runs: on the CPUs of `AMPERE_COLLECTOR_CPUS`, or else where the scheduler puts it, off the core that a
//! launcher may have bound the starting rank to.

use ampere_settings::Cpus;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// This thread, and those that it will start, run on these CPUs from now on. The error is one line; nothing has changed then.
pub fn run_on(cpus: &Cpus) -> Result<(), String> {
    let mut wanted = CpuSet::new();
    cpus.0.iter().for_each(|cpu| wanted.set(*cpu));
    sched_setaffinity(None, &wanted).map_err(|error| {
        format!("cannot run on the CPUs of AMPERE_COLLECTOR_CPUS: {error}; this job has {}", allowed())
    })
}

/// To all that there are. The kernel takes what the job's cpuset allows; failing leaves us where we are, which works too.
pub fn leave_the_core() {
    let mut all = CpuSet::new();
    (0..CpuSet::MAX_CPU).for_each(|cpu| all.set(cpu));
    let _ = sched_setaffinity(None, &all);
}

/// How many CPUs this process may use.
pub fn count() -> usize {
    sched_getaffinity(None).map_or(1, |set| set.count() as usize)
}

/// The CPUs that this process may use, as a list.
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
    fn a_thread_goes_where_it_is_told() {
        let first = (0..CpuSet::MAX_CPU).find(|cpu| sched_getaffinity(None).unwrap().is_set(*cpu)).unwrap();
        std::thread::spawn(move || {
            run_on(&Cpus::parse(&first.to_string()).unwrap()).unwrap();
            assert_eq!(allowed(), first.to_string());
            let there_is_none =
                run_on(&Cpus::parse(&(CpuSet::MAX_CPU - 1).to_string()).unwrap()).unwrap_err();
            assert!(there_is_none.ends_with(&format!("this job has {first}")), "{there_is_none}");
        })
        .join()
        .unwrap();
    }
}
