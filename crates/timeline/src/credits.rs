//! Divides the time that a thread spends outside its recorded calls among the stacks that were sampled there, so that each sample
//! stands for the same time.
//!
//! A thread is sampled once in each period of its CPU time. If a sample's stack were charged until the next sample outside calls,
//! functions that make no recorded calls would get too much: after their samples, more of the time is outside calls than after
//! those of functions that make many. So each stack's share of the recent CPU time outside calls is its share of the recent
//! samples. The stack that is charged is called the one that is *shown*: a stack is shown from its sample on, and when a call
//! ends after it has exceeded its share by half a sample's time, the stack that is furthest below its share is shown.

use ampere_model::RegionRef;

/// The factor by which earlier samples count less with each sample.
const DECAY: f64 = 1.0 - 1.0 / 256.0;
/// A stack is forgotten when its samples count as less than this.
const SAMPLES_MIN: f64 = 0.5;

#[derive(Default)]
pub(crate) struct Credits {
    stacks: Vec<Credit>,
    /// The index of the stack that is shown.
    shown: usize,
    /// All samples, and the time in which any stack was shown.
    all: Shares,
}

struct Credit {
    stack: Vec<RegionRef>,
    shares: Shares,
}

#[derive(Clone, Copy, Default)]
struct Shares {
    samples: f64,
    /// The ticks of CPU time for which the stack was shown.
    time: f64,
}

impl Credits {
    /// Counts a sample that was taken outside of calls. Its stack is shown from then on.
    pub fn add(&mut self, stack: &[RegionRef]) {
        for credit in &mut self.stacks {
            credit.shares.samples *= DECAY;
            credit.shares.time *= DECAY;
        }
        self.stacks.retain(|credit| credit.shares.samples >= SAMPLES_MIN);
        self.shown = self.stacks.iter().position(|credit| credit.stack == stack).unwrap_or_else(|| {
            self.stacks.push(Credit { stack: stack.to_vec(), shares: Shares::default() });
            self.stacks.len() - 1
        });
        self.stacks[self.shown].shares.samples += 1.0;
        self.all = self.stacks.iter().fold(Shares::default(), |all, Credit { shares, .. }| Shares {
            samples: all.samples + shares.samples,
            time: all.time + shares.time,
        });
    }

    /// Counts CPU time that passed outside of calls for the stack that is shown.
    #[inline]
    pub fn spend(&mut self, ticks: f64) {
        if let Some(shown) = self.stacks.get_mut(self.shown) {
            shown.shares.time += ticks;
            self.all.time += ticks;
        }
    }

    /// Chooses the stack that is shown from now on.
    #[inline]
    pub fn choose(&mut self) {
        let mean = self.all.time / self.all.samples;
        let due = |credit: &Credit| credit.shares.samples * mean - credit.shares.time;
        if self.stacks.get(self.shown).is_some_and(|shown| due(shown) < -0.5 * mean) {
            let of_stacks = self.stacks.iter().map(due).enumerate();
            let most = of_stacks.max_by(|(_, one), (_, other)| one.total_cmp(other));
            self.shown = most.map_or(0, |(at, _)| at);
        }
    }

    /// Returns the stack that is shown. It is empty before the first sample.
    #[inline]
    pub fn shown(&self) -> &[RegionRef] {
        self.stacks.get(self.shown).map_or(&[], |credit| &credit.stack)
    }
}
