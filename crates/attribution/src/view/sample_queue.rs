//! The queue of samples that a view has received before the events that precede them.

use super::recording::Charge;
use crate::steps::NodeIndex;
use ampere_model::Timestamp;

#[derive(Clone, Debug)]
pub(super) struct QueuedSample {
    /// The start of the interval that it ends.
    pub start: Timestamp,
    pub end: Timestamp,
    pub joules: f64,
    /// The joules per tick of the share clock.
    pub price: f64,
    /// The number of charged call paths, and the last of them: its consumer and its ticks.
    pub charged: usize,
    pub last: Option<(u32, NodeIndex, f64)>,
    /// All charges, if intervals are recorded.
    pub charges: Vec<Charge>,
}

/// The maximum number of queued samples of a view.
const QUEUED_MAX: usize = u64::BITS as usize;

#[derive(Clone, Debug, Default)]
pub(super) struct SampleQueue {
    pub samples: Vec<QueuedSample>,
    /// The number of samples that have been taken.
    pub taken: usize,
}

impl SampleQueue {
    /// Whether a further sample may be queued: none has been taken, and there is room.
    pub fn is_open(&self) -> bool {
        self.taken == 0 && self.samples.len() < QUEUED_MAX
    }

    /// Returns the end of the last interval.
    pub fn last_end(&self) -> Option<Timestamp> {
        self.samples.last().map(|sample| sample.end)
    }

    pub fn push(&mut self, start: Timestamp, end: Timestamp, joules: f64) {
        let price = joules / (end - start) as f64;
        self.samples.push(QueuedSample {
            start,
            end,
            joules,
            price,
            charged: 0,
            last: None,
            charges: Vec::new(),
        });
    }
}
