//! The share clock: the ticks that one active consumer has been due since the last sample.

use ampere_model::Timestamp;

/// The clock as a function of time. It is a straight line between two *breaks*: times at which a consumer starts or stops
/// running, or a sample ends the interval. The clock at an event between two breaks is computed from that line, so the order in
/// which the locations report their events does not matter, not even to the last bit.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ShareClock {
    /// The clock as of `now`.
    pub ticks: f64,
    /// The advance of the clock per tick of time from `now` on; 0 while no consumer is active.
    pub rate: f64,
    /// The time of the latest break.
    pub now: Timestamp,
    /// The time of the latest event.
    pub reached: Timestamp,
    /// The number of late events.
    pub late: u64,
}

impl ShareClock {
    /// Returns the clock at a time that is not before the latest break.
    #[inline]
    pub fn at(&self, time: Timestamp) -> f64 {
        self.ticks + (time - self.now) as f64 * self.rate
    }

    /// Returns the time that an event gets. An event before the latest break is late, and so is a break before the latest
    /// event: it is counted, and treated as if it happened at that break or event.
    #[inline]
    pub fn timely(&mut self, time: Timestamp, is_break: bool) -> Timestamp {
        let earliest = if is_break { self.reached } else { self.now };
        if time < earliest {
            self.late += 1;
            return earliest;
        }
        self.reached = self.reached.max(time);
        time
    }

    /// Advances to a break. Returns the ticks since the last break.
    pub fn advance(&mut self, time: Timestamp) -> u64 {
        let ticks = time - self.now;
        self.ticks = self.at(time);
        self.now = time;
        ticks
    }
}
