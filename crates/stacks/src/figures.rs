//! How many samples there were, and which were cut off, and why.

use std::collections::HashMap;
use std::sync::Arc;

use rustix::time::{ClockId, clock_getres};

use crate::processes::FileNumber;
use crate::stack::{End, Walked};

/// Why the outer frames of a sample are not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum CutReason {
    /// The stack goes on beyond the part that was copied.
    StackTooDeep,
    /// The function has neither unwind tables that are right nor a frame pointer.
    NoUnwindTables,
    /// The stack leads to other memory: a signal handler's own stack, or a coroutine's.
    OtherStack,
    /// A program of 32 bits.
    OtherMachine,
}

impl CutReason {
    /// For people.
    pub fn text(self) -> &'static str {
        match self {
            CutReason::StackTooDeep => "the stack is deeper than the part that is copied",
            CutReason::NoUnwindTables => "no unwind tables and no frame pointer",
            CutReason::OtherStack => "the stack goes on in other memory",
            CutReason::OtherMachine => "a program of 32 bits",
        }
    }
}

/// Samples that were cut off for one reason in code of one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CutOff {
    /// The file of the outermost function that is known.
    pub module: Arc<str>,
    /// Why.
    pub reason: CutReason,
    /// How many.
    pub samples: u64,
}

/// Why code has no names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum WhyUnnamed {
    /// It was made at run time, and its runtime writes no names for perf.
    Memory,
    /// The file that was mapped is gone, or another one is in its place.
    Gone,
    /// The file is there, and is none that this machine executes, or damaged.
    NotUnderstood,
}

impl WhyUnnamed {
    /// For people.
    pub fn text(self) -> &'static str {
        match self {
            WhyUnnamed::Memory => "made at run time, without names for perf",
            WhyUnnamed::Gone => "gone, or replaced by another file, when it was to be read",
            WhyUnnamed::NotUnderstood => "no program that can be read",
        }
    }
}

/// Samples in code of one file whose functions are not known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unnamed {
    /// The file.
    pub module: Arc<str>,
    /// Why.
    pub why: WhyUnnamed,
    /// How many.
    pub samples: u64,
}

/// How many samples there were, and which were cut off, and why.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Figures {
    /// All that were handed to the sink.
    pub samples: u64,
    /// Those that were unwound to `main`, or to the function that the thread was started with.
    pub complete: u64,
    /// The others, most first.
    pub cut_off: Vec<CutOff>,
    /// Records that the kernel had no room for, and damaged ones.
    pub lost: u64,
    /// Samples that the kernel did not take, as there were too many for it (`perf_event_max_sample_rate`): about how many.
    pub throttled: u64,
    /// Samples in code whose function is not known, most first.
    pub unnamed: Vec<Unnamed>,
    /// Processes with more than a twentieth of their samples in files that are gone or not understood.
    pub unnamed_processes: u64,
    /// Samples whose callers were found by looking for return addresses on the stack, as the code has no unwind tables, by file.
    pub guessed: Vec<(Arc<str>, u64)>,
    /// CPUs that came while processes were sampled.
    pub later_cpus: u64,
    /// Why such a CPU is not sampled.
    pub unsampled_cpu: Option<String>,
    /// Frames of all samples.
    pub frames: u64,
    /// CPU time that `poll` has used.
    pub cpu_ns: u64,
}

/// The figures as they are counted.
#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) figures: Figures,
    /// By the file's number.
    cut_off: HashMap<(FileNumber, CutReason), u64>,
    unnamed: HashMap<(FileNumber, WhyUnnamed), u64>,
    guessed: HashMap<FileNumber, u64>,
    processes: HashMap<u32, OfProcess>,
    /// Since when the samples of an event are stopped.
    stopped: HashMap<u64, u64>,
}

/// The samples of a process.
#[derive(Default)]
struct OfProcess {
    samples: u64,
    /// Those in files that are gone, or not understood.
    unnamed: u64,
}

impl OfProcess {
    fn is_unnamed(&self) -> bool {
        /// Fewer samples are no reason to doubt a run.
        const SAMPLES_MIN: u64 = 10;
        self.unnamed >= SAMPLES_MIN && 20 * self.unnamed > self.samples
    }
}

/// Events of so many threads can be stopped at a time.
const STOPPED_MAX: usize = 1 << 16;

impl Counts {
    /// A sample with so many frames.
    pub(crate) fn add(&mut self, process: u32, frames: usize, walked: &Walked, why: Option<WhyUnnamed>) {
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
            of_process.unnamed += u64::from(why != WhyUnnamed::Memory);
            *self.unnamed.entry((file, why)).or_default() += 1;
        }
    }

    /// A process has ended, or becomes another program.
    pub(crate) fn end(&mut self, process: u32) {
        let ended = self.processes.remove(&process);
        self.figures.unnamed_processes += u64::from(ended.is_some_and(|ended| ended.is_unnamed()));
    }

    /// The kernel has stopped an event, or lets it continue: at its next tick, or later if the thread does not run.
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
            .map(|(&(file, why), &samples)| Unnamed { module: module(file), why, samples })
            .collect();
        unnamed.sort_by(|a, b| (b.samples, &a.module, a.why).cmp(&(a.samples, &b.module, b.why)));
        let mut guessed: Vec<_> =
            self.guessed.iter().map(|(file, samples)| (module(*file), *samples)).collect();
        guessed.sort_by(|a, b| (b.1, &a.0).cmp(&(a.1, &b.0)));
        let running = self.processes.values().filter(|process| process.is_unnamed()).count();
        let unnamed_processes = self.figures.unnamed_processes + running as u64;
        Figures { cut_off, unnamed, unnamed_processes, guessed, ..self.figures.clone() }
    }
}
