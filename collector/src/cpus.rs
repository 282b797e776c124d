//! Where the collector runs: `AMPERE_COLLECTOR_CPUS`, a list as Slurm, taskset and the kernel write them ("0-3,8").
//!
//! Without one it goes where the scheduler puts it, off the core that a launcher may have bound the starting rank to.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cpus(Vec<usize>);

impl Cpus {
    /// The error says what is wrong with the list.
    pub fn parse(text: &str) -> Result<Cpus, String> {
        let wrong = || format!("{text:?} is no list of CPUs: write it like 0-3,8");
        let mut cpus = Vec::new();
        for part in text.split(',').map(str::trim) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let number = |text: &str| text.trim().parse::<usize>().map_err(|_| wrong());
            let (first, last) = (number(first)?, number(last)?);
            if first > last {
                return Err(wrong());
            }
            if last >= CpuSet::MAX_CPU {
                return Err(format!("{text:?}: CPUs are numbered up to {}", CpuSet::MAX_CPU - 1));
            }
            cpus.extend(first..=last);
        }
        Ok(Cpus(cpus))
    }

    /// This thread, and those that it will start, run there from now on. The error is one line; nothing has changed then.
    pub fn go(&self) -> Result<(), String> {
        let mut wanted = CpuSet::new();
        self.0.iter().for_each(|cpu| wanted.set(*cpu));
        sched_setaffinity(None, &wanted).map_err(|error| {
            format!("cannot run on the CPUs of AMPERE_COLLECTOR_CPUS: {error}; this job has {}", allowed())
        })
    }
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
    fn lists_are_read_as_others_write_them() {
        assert_eq!(Cpus::parse("3"), Ok(Cpus(vec![3])));
        assert_eq!(Cpus::parse("0-2, 8"), Ok(Cpus(vec![0, 1, 2, 8])));
        for wrong in ["", "a", "1-", "-1", "3-1", "1,,2", "0-99999999999"] {
            assert!(Cpus::parse(wrong).unwrap_err().contains(&format!("{wrong:?}")), "{wrong}");
        }
    }

    #[test]
    fn a_thread_goes_where_it_is_told() {
        let first = (0..CpuSet::MAX_CPU).find(|cpu| sched_getaffinity(None).unwrap().is_set(*cpu)).unwrap();
        std::thread::spawn(move || {
            Cpus(vec![first]).go().unwrap();
            assert_eq!(allowed(), first.to_string());
            let there_is_none = Cpus(vec![CpuSet::MAX_CPU - 1]).go().unwrap_err();
            assert!(there_is_none.ends_with(&format!("this job has {first}")), "{there_is_none}");
        })
        .join()
        .unwrap();
    }
}
