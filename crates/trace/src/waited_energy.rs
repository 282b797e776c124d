//! Collects the energy that each location uses while it waits in MPI, for the trace of the run.
//!
//! Waits are known a little later than the events around them. When they are settled, the sum of a location's joules is stored at
//! the start and at the end of each wait, in the spool, until the trace is written. A wait that starts within [`APART_SECONDS`]
//! after the last value adds no value at its start, so short waits close together share two values.

use crate::spool::{Spool, SpoolDirectory};
use ampere_model::Timestamp;
use ampere_ring::Record;
use ampere_timeline::waiting::Span;
use std::io;

/// The metric's name in the trace. No device has this name.
pub const NAME: &str = "ampere::waited_energy";

/// The shortest time between a value at the start of a wait and the previous value at a start.
const APART_SECONDS: f64 = 1e-3;
/// The number of values that are spooled at once.
const VALUES_AT_ONCE: usize = 256;

/// The sums of all locations.
#[derive(Default)]
pub(crate) struct WaitedEnergy {
    locations: Vec<Option<Sum>>,
}

/// The sum of a location.
struct Sum {
    joules: f64,
    /// The end of the last wait.
    end: Timestamp,
    /// The time of the last value, if there was one.
    last: Option<Timestamp>,
    /// The values that are not yet in the spool.
    values: Vec<Record>,
    spool: Spool,
}

impl WaitedEnergy {
    /// Adds waits, all of which start after those that were added before. Their times are later than those in the trace by
    /// `shift`.
    pub fn add(
        &mut self,
        mut spans: Vec<Span>,
        spool: &SpoolDirectory,
        shift: Timestamp,
        ticks_per_second: f64,
    ) -> io::Result<()> {
        spans.sort_unstable_by_key(|span| (span.location, span.start, span.end));
        let apart = (APART_SECONDS * ticks_per_second) as Timestamp;
        for span in spans {
            let at = span.location.0 as usize;
            self.locations.resize_with(self.locations.len().max(at + 1), || None);
            if self.locations[at].is_none() {
                let spool = spool.open(&format!("sampler.waited.{at}"), 0);
                self.locations[at] = spool.map(Sum::new);
            }
            if let Some(sum) = &mut self.locations[at] {
                let [start, end] = [span.start, span.end].map(|time| time.saturating_sub(shift));
                sum.add(start, end, span.joules, apart);
                sum.spool_values(VALUES_AT_ONCE)?;
            }
        }
        Ok(())
    }

    /// Returns the values of each location.
    pub fn end(&mut self) -> io::Result<Vec<Option<Spool>>> {
        let mut all = Vec::new();
        for sum in self.locations.drain(..) {
            let Some(mut sum) = sum else {
                all.push(None);
                continue;
            };
            sum.put(sum.end);
            sum.spool_values(1)?;
            all.push(Some(sum.spool));
        }
        Ok(all)
    }
}

impl Sum {
    fn new(spool: Spool) -> Sum {
        Sum { joules: 0.0, end: 0, last: None, values: Vec::new(), spool }
    }

    /// Adds the joules of a wait. Several devices have joules of the same wait.
    fn add(&mut self, start: Timestamp, end: Timestamp, joules: f64, apart: Timestamp) {
        if end > self.end {
            let start = start.max(self.end);
            if self.last.is_none_or(|last| start - last >= apart) {
                if self.last.is_some() {
                    self.put(self.end);
                }
                self.put(start);
            }
            self.end = end;
        }
        self.joules += joules;
    }

    /// Stores the sum at a time.
    fn put(&mut self, time: Timestamp) {
        if self.last.is_none_or(|last| last < time) {
            self.last = Some(time);
            self.values.push(Record::from_words([time, self.joules.to_bits()]));
        }
    }

    /// Spools the values if there are at least `least` of them.
    fn spool_values(&mut self, least: usize) -> io::Result<()> {
        if self.values.len() < least {
            return Ok(());
        }
        let values = std::mem::take(&mut self.values);
        self.spool.write(self.spool.end(), &values)
    }
}
