//! Messages about leave events that did not match the innermost region. The reader matches them by name (`otf2::Nesting`).

use serde::{Deserialize, Serialize};

/// The number of such events, by kind.
#[derive(Clone, Copy, Default, Serialize, Deserialize)]
pub(crate) struct Nesting {
    reordered: u64,
    unmatched: u64,
    reversed: u64,
    unended: u64,
}

impl Nesting {
    /// `ends` has, for each region that is open at the end of its location, the time of the location's last event. If the
    /// counters were not read for much longer, the region has all of its joules. `readings` are the times of the first and the
    /// last reading.
    pub fn of(found: &otf2::Nesting, ends: &[u64], readings: Option<(u64, u64)>) -> Nesting {
        let otf2::Nesting { reordered, unmatched, reversed, unended } = *found;
        let (first, last) = readings.unwrap_or_default();
        let is_early = |end: &&u64| end.saturating_add(last.saturating_sub(first) / 100) < last;
        let unended = unended + ends.iter().filter(is_early).count() as u64;
        Nesting { reordered, unmatched, reversed, unended }
    }

    pub fn and(self, other: Nesting) -> Nesting {
        Nesting {
            reordered: self.reordered + other.reordered,
            unmatched: self.unmatched + other.unmatched,
            reversed: self.reversed + other.reversed,
            unended: self.unended + other.unended,
        }
    }

    /// Returns the number of events that were changed.
    pub fn repaired(self) -> u64 {
        self.reordered + self.unmatched + self.reversed
    }

    /// Returns a note about how the trace's events were read.
    pub fn note(self) -> Option<String> {
        (self.reordered + self.reversed > 0).then(|| {
            format!(
                "{} leaves are of regions that were not the innermost ones: each ended the region that it names, and the regions inside continued; \
                 {} calls took no time, and the trace has their leave before their enter",
                self.reordered, self.reversed
            )
        })
    }

    /// Returns a note about the events that a replay leaves out.
    pub fn note_of_replay(self) -> Option<String> {
        (self.reordered > 0).then(|| {
            "regions that continue after the region around them is left are replayed as separate calls: numbers of calls are not right \
             (ampere attribute has them)"
                .to_owned()
        })
    }

    /// Returns a line about joules that are in doubt because of leaves and regions without their counterpart.
    pub fn doubt(self) -> Option<String> {
        let unended = "regions that are never left, and end with a region around them or the last event of their location";
        let counts = [
            (unended, self.unended),
            ("leaves of regions that were not open, which are left out", self.unmatched),
        ];
        let lines: Vec<String> = counts
            .iter()
            .filter(|(_, count)| *count > 0)
            .map(|(what, count)| format!("{what}: {count}"))
            .collect();
        (!lines.is_empty())
            .then(|| format!("enters or leaves are missing in the trace: {}", lines.join("; ")))
    }
}
