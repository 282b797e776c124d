//! The lengths of the last intervals, from which the usual length is found.

/// A ring of lengths in ticks.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Intervals {
    ticks: [u64; Intervals::KEPT],
    count: usize,
}

impl Intervals {
    const KEPT: usize = 15;

    pub fn add(&mut self, ticks: u64) {
        self.ticks[self.count % Intervals::KEPT] = ticks;
        self.count += 1;
    }

    /// Returns the median length; `None` with fewer than `least` intervals.
    pub fn median(&self, least: usize) -> Option<u64> {
        self.quantile(2, least)
    }

    /// Returns the length below which a quarter of the intervals are.
    pub fn lower_quartile(&self) -> Option<u64> {
        self.quantile(4, 1)
    }

    fn quantile(&self, parts: usize, least: usize) -> Option<u64> {
        let mut known = self.ticks;
        let known = &mut known[..self.count.min(Intervals::KEPT)];
        known.sort_unstable();
        (known.len() >= least).then(|| known[known.len() / parts])
    }
}
