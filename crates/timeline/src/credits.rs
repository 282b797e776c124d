//! Divides the time of a thread outside its recorded calls by the samples that were taken outside, so that all of them count for
//! the same time.
//!
//! A thread is sampled once in each period of its CPU time. If each sample counted until the next one, a function without calls
//! would get too much: until the next sample outside of calls, more of the time after it is outside than of the time around calls.
//! So each sample adds the mean CPU time between two samples to the credit of its stack, and the CPU time outside of calls is taken
//! from the credit of the stack that is shown. After a call, the stack with the most credit is shown.

use ampere_model::RegionRef;

/// The number of times between samples that the mean is taken of, and of samples after which a stack is forgotten.
const SAMPLES: u32 = 64;

#[derive(Default)]
pub(crate) struct Credits {
    stacks: Vec<Credit>,
    /// The index of the stack that is shown.
    shown: usize,
    /// The most credit of a stack that is not shown.
    most_of_others: f64,
    /// The number of samples.
    samples: u32,
    /// The mean time outside of calls between two samples, and the time since the last one.
    mean: f64,
    since_sample: f64,
}

struct Credit {
    stack: Vec<RegionRef>,
    /// In ticks of CPU time. Only differences between stacks have a meaning.
    ticks: f64,
    /// The number of the last sample with this stack.
    sampled: u32,
}

impl Credits {
    /// Counts a sample that was taken outside of calls. Its stack is shown from then on.
    pub fn add(&mut self, stack: &[RegionRef]) {
        if self.samples > 0 {
            self.mean += (self.since_sample - self.mean) / f64::from(self.samples.min(SAMPLES));
        }
        self.samples = self.samples.saturating_add(1);
        self.since_sample = 0.0;
        let samples = self.samples;
        self.stacks.retain(|credit| samples - credit.sampled <= SAMPLES);
        self.shown = self.stacks.iter().position(|credit| credit.stack == stack).unwrap_or_else(|| {
            // A new stack neither owes time to the others nor the other way round.
            let all: f64 = self.stacks.iter().map(|credit| credit.ticks).sum();
            let ticks = all / self.stacks.len().max(1) as f64;
            self.stacks.push(Credit { stack: stack.to_vec(), ticks, sampled: samples });
            self.stacks.len() - 1
        });
        let shown = &mut self.stacks[self.shown];
        shown.sampled = samples;
        shown.ticks += self.mean;
        self.find_most_of_others();
    }

    /// Takes CPU time that passed outside of calls from the credit of the stack that is shown.
    #[inline]
    pub fn spend(&mut self, ticks: f64) {
        self.since_sample += ticks;
        if let Some(shown) = self.stacks.get_mut(self.shown) {
            shown.ticks -= ticks;
        }
    }

    /// Chooses the stack that is shown from now on: another one only if it has clearly more credit.
    #[inline]
    pub fn choose(&mut self) {
        let is_enough = |shown: &Credit| shown.ticks + self.mean / 2.0 >= self.most_of_others;
        if self.stacks.get(self.shown).is_some_and(is_enough) {
            return;
        }
        let most =
            self.stacks.iter().enumerate().max_by(|(_, one), (_, other)| one.ticks.total_cmp(&other.ticks));
        self.shown = most.map_or(0, |(at, _)| at);
        self.find_most_of_others();
    }

    fn find_most_of_others(&mut self) {
        let others = self.stacks.iter().enumerate().filter(|(at, _)| *at != self.shown);
        self.most_of_others = others.fold(f64::NEG_INFINITY, |most, (_, credit)| most.max(credit.ticks));
    }

    /// Returns the stack that is shown. It is empty before the first sample.
    #[inline]
    pub fn shown(&self) -> &[RegionRef] {
        self.stacks.get(self.shown).map_or(&[], |credit| &credit.stack)
    }
}
