//! Events that were counted with the samples of threads, such as instructions: their sums over the run, and a row for each call
//! path.

use crate::callpaths::{Callpath, Figures};
use crate::summary::Run;
use ampere_model::Counted;
use ampere_timeline::attributor::Attributor;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How often an event has happened in a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EventSum {
    pub name: String,
    /// All events of the threads whose stacks are sampled, also of those that have ended without a sample. `None` if that is not
    /// known, because a collector was killed.
    pub count: Option<u64>,
    /// The events that are in the rows of call paths.
    pub in_call_paths: u64,
    /// The other events: those of threads and processes without samples, or after a thread's last one.
    pub rest: Option<u64>,
    /// All events for each joule of the run; `None` if either is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_joule: Option<f64>,
}

impl EventSum {
    fn new(name: &str, count: Option<u64>, in_call_paths: u64) -> EventSum {
        let count = count.filter(|count| *count >= in_call_paths);
        let rest = count.map(|count| count - in_call_paths);
        EventSum { name: name.to_owned(), count, in_call_paths, rest, per_joule: None }
    }

    /// Returns the sums of a run, in the order in which its events became known.
    pub(crate) fn of_run(attributor: &Attributor) -> Vec<EventSum> {
        let names = attributor.events.names();
        let mut in_call_paths = vec![0_u64; names.len()];
        for (_, _, counts) in attributor.events.by_path() {
            let sums = in_call_paths.iter_mut().zip(counts);
            sums.for_each(|(sum, count)| *sum = sum.saturating_add(*count));
        }
        let counted: BTreeMap<&str, u64> = attributor
            .work
            .totals()
            .filter(|(kind, ..)| *kind == Counted::Events)
            .map(|(_, name, count)| (name, count as u64))
            .collect();
        let known = names.iter().zip(in_call_paths);
        let known = known.map(|(name, sum)| EventSum::new(name, counted.get(name.as_str()).copied(), sum));
        // These events are in no row, because no sampled process had them.
        let is_new = |name: &&str| !names.iter().any(|known| known == name);
        let others = counted.keys().filter(|name| is_new(name));
        known.chain(others.map(|name| EventSum::new(name, counted.get(name).copied(), 0))).collect()
    }

    /// Adds the sums of a run's nodes.
    pub(crate) fn joined<'a>(nodes: impl Iterator<Item = &'a Run>) -> Vec<EventSum> {
        let mut sums: Vec<EventSum> = Vec::new();
        for one in nodes.flat_map(|node| &node.events) {
            match sums.iter_mut().find(|sum| sum.name == one.name) {
                Some(sum) => {
                    let count = sum.count.zip(one.count).map(|(a, b)| a.saturating_add(b));
                    *sum =
                        EventSum::new(&one.name, count, sum.in_call_paths.saturating_add(one.in_call_paths));
                }
                None => sums.push(EventSum { per_joule: None, ..one.clone() }),
            }
        }
        sums
    }

    /// Sets the events for each joule. `joules` are those of the run, if a device was measured.
    pub(crate) fn with_joules(sums: Vec<EventSum>, joules: Option<f64>) -> Vec<EventSum> {
        let per_joule = |sum: &EventSum| {
            joules.zip(sum.count).map(|(joules, count)| count as f64 / joules).filter(|rate| rate.is_finite())
        };
        sums.into_iter().map(|sum| EventSum { per_joule: per_joule(&sum), ..sum }).collect()
    }
}

/// How often each event has happened in each call path of each location.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Columns", into = "Columns")]
pub struct EventTable {
    /// The names of the events, in alphabetical order.
    pub names: Vec<String>,
    pub rows: Vec<EventRow>,
}

/// The events of a call path of a location.
#[derive(Clone, Debug, PartialEq)]
pub struct EventRow {
    /// The call path and the location, without figures.
    pub at: Callpath,
    /// The count of each event, in the order of [`EventTable::names`].
    pub counts: Vec<u64>,
}

/// The table as it is in the file: a column for each event.
#[derive(Serialize, Deserialize)]
struct Columns {
    path: Vec<u32>,
    location_group: Vec<u32>,
    location: Vec<u32>,
    counts: BTreeMap<String, Vec<u64>>,
}

fn callpath(path: u32, location_group: u32, location: u32) -> Callpath {
    Callpath { path, location_group, location, figures: Figures::default() }
}

impl TryFrom<Columns> for EventTable {
    type Error = &'static str;

    fn try_from(columns: Columns) -> Result<EventTable, &'static str> {
        let Columns { path, location_group, location, counts } = columns;
        let lengths = [path.len(), location_group.len(), location.len()];
        if lengths != [path.len(); 3] || counts.values().any(|column| column.len() != path.len()) {
            return Err("columns of events differ in length");
        }
        let row = |at: usize| EventRow {
            at: callpath(path[at], location_group[at], location[at]),
            counts: counts.values().map(|column| column[at]).collect(),
        };
        let rows = (0..path.len()).map(row).collect();
        Ok(EventTable { rows, names: counts.into_keys().collect() })
    }
}

impl From<EventTable> for Columns {
    fn from(EventTable { names, rows }: EventTable) -> Columns {
        let column = |at: usize| rows.iter().map(|row| row.counts[at]).collect();
        Columns {
            path: rows.iter().map(|row| row.at.path).collect(),
            location_group: rows.iter().map(|row| row.at.location_group).collect(),
            location: rows.iter().map(|row| row.at.location).collect(),
            counts: names.iter().enumerate().map(|(at, name)| (name.clone(), column(at))).collect(),
        }
    }
}

impl EventTable {
    /// Whether nothing was counted.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Makes the rows of an attributor. If there are more than `limit`, those with the most events are kept.
    /// A row has the number of its location, and that of the call path within its location, until the summary numbers them.
    pub(crate) fn of_attributor(attributor: &Attributor, limit: usize) -> EventTable {
        let known = attributor.events.names();
        let mut order: Vec<usize> = (0..known.len()).collect();
        order.sort_by_key(|at| &known[*at]);
        let row = |counts: &[u64]| order.iter().map(|at| counts[*at]).collect::<Vec<u64>>();
        let mut rows: Vec<EventRow> = (attributor.events.by_path())
            .map(|(location, path, counts)| EventRow {
                at: callpath(path.0, 0, location.0),
                counts: row(counts),
            })
            .collect();
        if rows.len() > limit {
            rows.sort_unstable_by(|a, b| {
                let sums =
                    [a, b].map(|row| row.counts.iter().fold(0, |sum: u64, count| sum.saturating_add(*count)));
                sums[1].cmp(&sums[0]).then((a.at.location, a.at.path).cmp(&(b.at.location, b.at.path)))
            });
            rows.truncate(limit);
        }
        EventTable { names: order.iter().map(|at| known[*at].clone()).collect(), rows }
    }

    pub(crate) fn callpaths(&self) -> impl Iterator<Item = &Callpath> {
        self.rows.iter().map(|row| &row.at)
    }

    pub(crate) fn callpaths_mut(&mut self) -> impl Iterator<Item = &mut Callpath> {
        self.rows.iter_mut().map(|row| &mut row.at)
    }

    /// Sorts the rows by their numbers in the summary.
    pub(crate) fn sort(&mut self) {
        self.rows.sort_by_key(|row| (row.at.location_group, row.at.location, row.at.path));
    }

    /// Adds the rows of another table, which have the numbers of the same summary.
    pub(crate) fn append(&mut self, other: EventTable) {
        let mut names: Vec<String> = self.names.iter().chain(&other.names).cloned().collect();
        names.sort_unstable();
        names.dedup();
        let before = std::mem::take(self);
        for table in [before, other] {
            let place = |name: &String| table.names.iter().position(|known| known == name);
            let places: Vec<Option<usize>> = names.iter().map(place).collect();
            self.rows.extend(table.rows.into_iter().map(|row| EventRow {
                counts: places.iter().map(|place| place.map_or(0, |at| row.counts[at])).collect(),
                ..row
            }));
        }
        self.names = names;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(names: &[&str], rows: &[(u32, &[u64])]) -> EventTable {
        let row =
            |(path, counts): &(u32, &[u64])| EventRow { at: callpath(*path, 1, 2), counts: counts.to_vec() };
        EventTable {
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            rows: rows.iter().map(row).collect(),
        }
    }

    #[test]
    fn a_table_is_written_in_columns_and_read_again() {
        let given = table(&["cycles", "instructions"], &[(3, &[1, 2]), (4, &[5, u64::MAX])]);
        let text = serde_json::to_string(&given).expect("JSON");
        let expected = r#"{"path":[3,4],"location_group":[1,1],"location":[2,2],"counts":{"cycles":[1,5],"instructions":[2,18446744073709551615]}}"#;
        assert_eq!(text, expected);
        assert_eq!(serde_json::from_str::<EventTable>(&text).expect("a table"), given);
        for damaged in ["[3,4]", "[1,5]"] {
            assert!(serde_json::from_str::<EventTable>(&text.replace(damaged, "[7]")).is_err());
        }
    }

    #[test]
    fn events_of_nodes_are_added_by_name() {
        let mut all = table(&["cycles"], &[(1, &[7])]);
        all.append(table(&["cycles", "branches"], &[(2, &[1, 2])]));
        assert_eq!(all, table(&["branches", "cycles"], &[(1, &[0, 7]), (2, &[2, 1])]));
        let node = |count, in_call_paths| Run {
            events: vec![EventSum::new("cycles", count, in_call_paths)],
            ..Run::default()
        };
        let sum =
            |nodes: [Run; 2]| EventSum::with_joules(EventSum::joined(nodes.iter()), Some(2.0)).remove(0);
        let both = sum([node(Some(10), 8), node(Some(20), 19)]);
        assert_eq!(
            (both.count, both.in_call_paths, both.rest, both.per_joule),
            (Some(30), 27, Some(3), Some(15.0))
        );
        let unknown = sum([node(Some(10), 8), node(None, 19)]);
        assert_eq!(
            (unknown.count, unknown.in_call_paths, unknown.rest, unknown.per_joule),
            (None, 27, None, None)
        );
        assert_eq!(EventSum::new("cycles", Some(5), 8).rest, None, "a collector was killed");
    }
}
