//! Counts samples, and those that were cut off, by reason.

use std::collections::HashMap;
use std::sync::Arc;

use rustix::time::{ClockId, clock_getres};

use crate::processes::FileNumber;

/// The reason why the outer frames of a sample are not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum CutReason {
    /// The stack is larger than the part that was copied.
    StackTooDeep,
    /// The function has neither correct unwind tables nor a frame pointer.
    NoUnwindTables,
    /// The stack continues in other memory: that of a signal handler or of a coroutine.
    OtherStack,
    /// The program has 32 bits.
    OtherMachine,
}

impl CutReason {
    /// Returns the reason as a text for messages.
    pub fn text(self) -> &'static str {
        match self {
            CutReason::StackTooDeep => "the stack is deeper than the part that is copied",
            CutReason::NoUnwindTables => "no unwind tables and no frame pointer",
            CutReason::OtherStack => "the stack continues in other memory",
            CutReason::OtherMachine => "a 32-bit program",
        }
    }
}

/// Samples that were cut off in code of the same file for the same reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CutOff {
    /// The file of the outermost function that is known.
    pub module: Arc<str>,
    #[allow(missing_docs)]
    pub reason: CutReason,
    /// The number of such samples.
    pub samples: u64,
}

/// Whether a stack was walked to its outer end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Complete,
    CutOff(CutReason, FileNumber),
}

/// The result of walking a stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Walked {
    pub(crate) end: End,
    /// The file of the innermost code, if its function is not known.
    pub(crate) unnamed: Option<FileNumber>,
    /// The file of the first function whose caller was found by searching for a return address.
    pub(crate) guessed: Option<FileNumber>,
    /// Whether the innermost code is in no known mapping.
    pub(crate) is_unmapped: bool,
}

/// The reason why code has no names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum UnnamedReason {
    /// The code was made at run time, and its runtime writes no names for perf.
    Memory,
    /// The mapped file was removed or replaced.
    Gone,
    /// The file exists, but it is damaged or not for this machine.
    NotUnderstood,
    /// Neither the symbols nor the unwind tables of the file have a function at this address.
    NoFunction,
    /// The mapping is not known: the kernel's record of it was lost, or too many files are mapped.
    Unmapped,
}

impl UnnamedReason {
    /// Returns the reason as a text for messages.
    pub fn text(self) -> &'static str {
        match self {
            UnnamedReason::Memory => "made at run time, without names for perf",
            UnnamedReason::Gone => "removed or replaced before it was read",
            UnnamedReason::NotUnderstood => "not a program that can be read",
            UnnamedReason::NoFunction => "in none of its functions",
            UnnamedReason::Unmapped => "the mapped file is unknown",
        }
    }
}

/// Samples in code of the same file whose functions are not known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unnamed {
    /// The file that contains the code.
    pub module: Arc<str>,
    #[allow(missing_docs)]
    pub reason: UnnamedReason,
    /// The number of such samples.
    pub samples: u64,
}

/// The counts of samples, and of those that were cut off, by reason.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Figures {
    /// The number of samples that were passed to the sink.
    pub samples: u64,
    /// The number of samples that were unwound to `main`, or to the function that the thread was started with.
    pub complete: u64,
    /// The samples that were cut off, by file and reason, in descending order of their number.
    pub cut_off: Vec<CutOff>,
    /// The number of records that were damaged, or for which the kernel had no space.
    pub lost: u64,
    /// The approximate number of samples that the kernel did not take, because there were too many
    /// (`perf_event_max_sample_rate`).
    pub throttled: u64,
    /// The samples in code whose function is not known, in descending order of their number.
    pub unnamed: Vec<Unnamed>,
    /// The number of processes with more than a twentieth of their samples in functions that are not known, except in code that
    /// was made at run time.
    pub unnamed_processes: u64,
    /// The number of samples, by file, whose callers were found by searching the stack for return addresses, because the code
    /// has no unwind tables.
    pub guessed: Vec<(Arc<str>, u64)>,
    /// The number of CPUs that appeared while processes were sampled.
    pub later_cpus: u64,
    /// The reason why such a CPU is not sampled.
    pub unsampled_cpu: Option<String>,
    /// The number of frames in all samples.
    pub frames: u64,
    /// The number of records of switches.
    pub switches: u64,
    /// The time that threads were on a CPU according to these records; 0 unless `Options::cpu_times` is set.
    pub on_cpu_ns: u64,
    /// The CPU time that `poll` has used.
    pub cpu_ns: u64,
}

/// The figures while they are counted.
#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) figures: Figures,
    cut_off: HashMap<(FileNumber, CutReason), u64>,
    unnamed: HashMap<(FileNumber, UnnamedReason), u64>,
    guessed: HashMap<FileNumber, u64>,
    processes: HashMap<u32, ProcessCounts>,
    /// The time since which each stopped event has taken no samples, by the event's number.
    stopped: HashMap<u64, u64>,
}

/// The samples of a process.
#[derive(Default)]
struct ProcessCounts {
    samples: u64,
    /// The samples in functions that are not known, except in code that was made at run time.
    unnamed: u64,
}

impl ProcessCounts {
    fn is_unnamed(&self) -> bool {
        /// A smaller number of samples is not significant.
        const SAMPLES_MIN: u64 = 10;
        self.unnamed >= SAMPLES_MIN && 20 * self.unnamed > self.samples
    }
}

/// The maximum number of stopped events that are tracked at a time.
const STOPPED_MAX: usize = 1 << 16;

impl Counts {
    /// Counts a sample with this number of frames.
    pub(crate) fn add(&mut self, process: u32, frames: usize, walked: &Walked, why: Option<UnnamedReason>) {
        self.figures.samples += 1;
        self.figures.frames += frames as u64;
        match walked.end {
            End::Complete => self.figures.complete += 1,
            End::CutOff(reason, file) => *self.cut_off.entry((file, reason)).or_default() += 1,
        }
        if let Some(file) = walked.guessed {
            *self.guessed.entry(file).or_default() += 1;
        }
        let of_process = self.processes.entry(process).or_default();
        of_process.samples += 1;
        if let (Some(file), Some(why)) = (walked.unnamed, why) {
            of_process.unnamed += u64::from(why != UnnamedReason::Memory);
            *self.unnamed.entry((file, why)).or_default() += 1;
        }
    }

    /// Called when a process has ended, or becomes another program.
    pub(crate) fn end(&mut self, process: u32) {
        let ended = self.processes.remove(&process);
        self.figures.unnamed_processes += u64::from(ended.is_some_and(|ended| ended.is_unnamed()));
    }

    /// Called when the kernel has stopped or resumed an event. It resumes an event at its next tick, or later if the thread does
    /// not run.
    pub(crate) fn throttled(&mut self, event: u64, time: u64, is_stopped: bool, period: u64) {
        if is_stopped {
            if self.stopped.len() < STOPPED_MAX {
                self.stopped.insert(event, time);
            }
        } else if let Some(since) = self.stopped.remove(&event) {
            let tick = clock_getres(ClockId::MonotonicCoarse);
            let stopped = time.saturating_sub(since).min(tick.tv_nsec as u64);
            self.figures.throttled += stopped / period.max(1);
        }
    }

    pub(crate) fn figures(&self, module: impl Fn(FileNumber) -> Arc<str>) -> Figures {
        let mut cut_off: Vec<CutOff> = (self.cut_off.iter())
            .map(|(&(file, reason), &samples)| CutOff { module: module(file), reason, samples })
            .collect();
        cut_off.sort_by(|a, b| (b.samples, &a.module, a.reason).cmp(&(a.samples, &b.module, b.reason)));
        let mut unnamed: Vec<Unnamed> = (self.unnamed.iter())
            .map(|(&(file, reason), &samples)| Unnamed { module: module(file), reason, samples })
            .collect();
        unnamed.sort_by(|a, b| (b.samples, &a.module, a.reason).cmp(&(a.samples, &b.module, b.reason)));
        let mut guessed: Vec<_> =
            self.guessed.iter().map(|(file, samples)| (module(*file), *samples)).collect();
        guessed.sort_by(|a, b| (b.1, &a.0).cmp(&(a.1, &b.0)));
        let running = self.processes.values().filter(|process| process.is_unnamed()).count();
        let unnamed_processes = self.figures.unnamed_processes + running as u64;
        Figures { cut_off, unnamed, unnamed_processes, guessed, ..self.figures.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_that_the_kernel_does_not_take_are_counted_by_the_time_without_samples() {
        let tick = clock_getres(ClockId::MonotonicCoarse).tv_nsec as u64;
        let period = tick / 4;
        type Throttling<'a> = &'a [(u64, u64, bool)];
        let cases: [(Throttling, u64); 5] = [
            (&[(1, 1000, true), (1, 1000 + 2 * period, false)], 2),
            // Two events are stopped at once, and there are no further records of one of them.
            (&[(1, 0, true), (2, 0, true), (2, period, false)], 1),
            // The thread did not run after the next tick.
            (&[(1, 0, true), (1, 9 * tick, false)], 4),
            // The first record was lost, or times decrease.
            (&[(1, tick, false)], 0),
            (&[(1, tick, true), (1, 0, false)], 0),
        ];
        for (given, expected) in cases {
            let mut counts = Counts::default();
            given
                .iter()
                .for_each(|(event, time, is_stopped)| counts.throttled(*event, *time, *is_stopped, period));
            assert_eq!(counts.figures(|_| "".into()).throttled, expected, "{given:?}");
        }
    }
}
