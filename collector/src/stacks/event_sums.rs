//! The sums of the events that are counted in sampled threads. They go into the run's table of counts, like units of work, so that
//! they are in the trace and in all figures.

use ampere_model::Counted;
use ampere_ring::Session;
use ampere_ring::work::WorkTable;
use ampere_stacks::{EventTotals, NotCounted};

/// If the counters of a processor counted the events for less than this fraction of the time, a note reports it.
const COUNTING_RATIO_MIN: f64 = 0.95;

/// The sums of a run on one node.
#[derive(Default)]
pub(super) struct EventSums {
    names: Vec<String>,
    table: Option<WorkTable>,
    /// What the table already contains.
    added: Vec<u64>,
}

impl EventSums {
    pub fn new(names: Vec<String>) -> EventSums {
        EventSums { added: vec![0; names.len()], names, table: None }
    }

    /// Returns the names of the events, separated by commas.
    pub fn names(&self) -> String {
        self.names.join(",")
    }

    /// Adds what has been counted since the last call: everything if `is_last`, otherwise only what samples contained.
    pub fn add(&mut self, session: &Session, totals: &EventTotals, is_last: bool) {
        if self.names.is_empty() {
            return;
        }
        if self.table.is_none() {
            self.table = WorkTable::open_or_create(session).ok();
        }
        let Some(table) = &self.table else { return };
        let sums = totals.sampled.iter().zip(&totals.counted);
        for ((name, added), (sampled, counted)) in self.names.iter().zip(&mut self.added).zip(sums) {
            let sum = if is_last { (*counted).max(*sampled) } else { *sampled };
            let more = sum.saturating_sub(*added);
            if more > 0
                && let Some(row) = table.row(Counted::Events, name, false)
            {
                row.add(more as f64);
                *added = sum;
            }
        }
    }

    /// Returns notes about events that were not always counted.
    pub fn notes(&self, totals: &EventTotals) -> Vec<String> {
        let mut notes = Vec::new();
        if !self.names.is_empty() && totals.counting_ratio < COUNTING_RATIO_MIN {
            notes.push(format!(
                "the processor's counters counted {} only {:.0} % of the time, because others use them, too: the counts are too \
                 small, and so is the number of stack samples",
                self.names.join(", "),
                100.0 * totals.counting_ratio
            ));
        }
        if totals.failed_openings > 0 {
            notes.push(format!(
                "{} were not counted for {} threads on single CPUs, which had no counter left: the counts are too small",
                self.names.join(", "),
                totals.failed_openings
            ));
        }
        notes
    }
}

/// Returns notes about events that are not counted at all, one for each reason.
pub(crate) fn notes_of_not_counted(all: &[NotCounted]) -> Vec<String> {
    let mut reasons: Vec<&str> = Vec::new();
    all.iter().for_each(|one| {
        if !reasons.contains(&one.why) {
            reasons.push(one.why)
        }
    });
    let note = |why: &str| {
        let names: Vec<&str> = all.iter().filter(|one| one.why == why).map(|one| one.name.as_str()).collect();
        format!("not counted: {} ({why})", names.join(", "))
    };
    reasons.into_iter().map(note).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn sums_are_added_once_and_in_the_end_include_what_no_sample_had() {
        let place = tempfile::tempdir().unwrap();
        let session = Session::open_or_create_in(place.path()).unwrap();
        let mut sums = EventSums::new(vec!["instructions".to_owned(), "faults".to_owned()]);
        let mut totals = EventTotals::default();
        let mut add = |sampled: [u64; 2], counted: [u64; 2], is_last| {
            (totals.sampled, totals.counted) = (sampled.to_vec(), counted.to_vec());
            sums.add(&session, &totals, is_last);
        };
        add([100, 0], [0, 0], false);
        add([100, 0], [0, 0], false);
        add([150, 0], [40, 0], false);
        add([160, 0], [170, 3], true);
        let found = WorkTable::open(place.path()).unwrap().unwrap().totals();
        let expected = [("ampere::events::faults", 3.0), ("ampere::events::instructions", 170.0)];
        assert_eq!(found, BTreeMap::from(expected.map(|(name, sum)| (name.to_owned(), sum))));
        assert!(sums.notes(&EventTotals::default()).len() == 1, "a ratio of 0");
    }

    #[test]
    fn events_that_are_not_counted_for_one_reason_have_one_note() {
        let one = |name: &str, why| NotCounted { name: name.to_owned(), why };
        let all = [one("cycles", "no counter"), one("flops", "not known"), one("faults", "no counter")];
        let expected = ["not counted: cycles, faults (no counter)", "not counted: flops (not known)"];
        assert_eq!(notes_of_not_counted(&all), expected);
    }
}
