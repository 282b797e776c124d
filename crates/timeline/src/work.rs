//! Units of work, such as time steps, and ranges that processes or the user have counted.

use ampere_model::Counted;
use std::collections::BTreeMap;

/// The units that each recorder has counted so far, by the name of the metric.
#[derive(Debug, Default)]
pub struct CountedWork {
    units: BTreeMap<String, BTreeMap<String, f64>>,
}

impl CountedWork {
    /// Adds the units that a recorder, such as a node, has counted since its start. Impossible values are ignored, and so are
    /// values that are lower than an earlier one.
    pub fn count(&mut self, metric: &str, recorder: &str, units: f64) {
        if units.is_finite() && units > 0.0 {
            let known =
                self.units.entry(metric.to_owned()).or_default().entry(recorder.to_owned()).or_default();
            *known = known.max(units);
        }
    }

    /// Returns the counts of all recorders with their kinds, by name.
    pub fn totals(&self) -> impl Iterator<Item = (Counted, &str, f64)> {
        self.units.iter().filter_map(|(metric, recorders)| {
            let (kind, name) = Counted::of_metric(metric)?;
            Some((kind, name, recorders.values().sum()))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_units_of_nodes_are_added_and_never_decrease() {
        let mut work = CountedWork::default();
        let counted =
            [("a", 1.0), ("b", 10.0), ("a", 3.0), ("a", 2.0), ("b", f64::NAN), ("b", f64::INFINITY)];
        counted.into_iter().for_each(|(node, units)| work.count("ampere::work::steps", node, units));
        work.count("ampere::work::cells", "a", -1.0);
        assert_eq!(work.totals().collect::<Vec<_>>(), [(Counted::Work, "steps", 13.0)]);
    }
}
