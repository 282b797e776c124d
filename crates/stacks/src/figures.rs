//! How many samples there were, and which were cut off, and why.

use std::collections::HashMap;
use std::sync::Arc;

use crate::stack::End;

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
    pub(crate) cut_off: HashMap<(u32, CutReason), u64>,
}

impl Counts {
    /// A sample with so many frames.
    pub(crate) fn add(&mut self, frames: usize, end: End) {
        self.figures.samples += 1;
        self.figures.frames += frames as u64;
        match end {
            End::Complete => self.figures.complete += 1,
            End::CutOff(reason, file) => *self.cut_off.entry((file, reason)).or_default() += 1,
        }
    }

    pub(crate) fn figures(&self, module: impl Fn(u32) -> Arc<str>) -> Figures {
        let mut cut_off: Vec<CutOff> = (self.cut_off.iter())
            .map(|(&(file, reason), &samples)| CutOff { module: module(file), reason, samples })
            .collect();
        cut_off.sort_by(|a, b| (b.samples, &a.module, a.reason).cmp(&(a.samples, &b.module, b.reason)));
        Figures { cut_off, ..self.figures.clone() }
    }
}
