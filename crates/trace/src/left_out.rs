//! Metrics of a trace that look like energy or power but are not devices. All of them are named in notes.

use crate::places::Place;
use crate::series::{Series, quantity_of};
use ampere_model::Quantity;
use ampere_model::counted::{Counted, is_not_consumption, looks_like_energy};
use ampere_model::text::{compact, listed};
use otf2::{Definitions, MetricMember};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// The metrics, by the reason why they are left out.
#[derive(Clone, Default)]
pub(crate) struct LeftOut {
    pub limits: BTreeSet<String>,
    /// Power metrics of parts of a node for which the trace also has an energy metric.
    pub measured: BTreeSet<String>,
    /// Power metrics in `measured` that count all parts of a kind, while the energy metrics count single parts.
    pub of_all: BTreeSet<String>,
    /// Power metrics of unknown parts, in a trace that has energy metrics.
    pub of_unknown: BTreeSet<String>,
    /// Power metrics, each with the power metric of the same device that is used instead.
    pub same: BTreeMap<String, String>,
    /// Metrics with a unit that is not known, with that unit.
    pub without_unit: BTreeMap<String, String>,
    /// Metrics that are recorded as differences.
    pub relative: BTreeSet<String>,
    /// Metrics that no `[[device]]` of the settings matches.
    pub not_configured: BTreeSet<String>,
}

/// An upper bound on the names in a line.
const NAMES_MAX: usize = 16;

impl LeftOut {
    /// Whether a metric's unit or name suggests energy or power.
    pub fn looks_like_energy(member: &MetricMember) -> bool {
        quantity_of(member).is_some()
            || looks_like_energy(&member.name)
            || looks_like_energy(&member.unit)
            || is_apparent_power(&member.unit)
    }

    /// Whether joules of the metric may be missing in the figures.
    pub fn is_doubtful(&self, name: &str) -> bool {
        [&self.of_unknown, &self.of_all, &self.relative].iter().any(|names| names.contains(name))
            || self.without_unit.contains_key(name)
    }

    /// Returns a line for each reason.
    pub fn notes(&self) -> Vec<String> {
        let mut notes: Vec<String> = (self.same.iter())
            .map(|(name, first)| format!("metric {name} is left out: {first} measures the same device"))
            .collect();
        let relative = self.relative.iter();
        notes.extend(relative.map(|name| {
            format!("metric {name} is recorded as differences, which are not supported: it is left out")
        }));
        notes.extend(self.without_unit.iter().map(|(name, unit)| {
            format!(
                "metric {name} is left out: by its name or unit it is energy or power, but its unit, '{unit}', is not known; a [[device]] with \
                 its scale makes it a device"
            )
        }));
        for (names, why) in [
            (&self.limits, "not a consumption, according to their names"),
            (&self.measured, "powers of devices whose energy is recorded, too"),
            (
                &self.of_unknown,
                "powers next to energies, which may already contain their joules; a [[device]] makes one a device",
            ),
            (&self.not_configured, "in no [[device]] of the configuration"),
        ] {
            if !names.is_empty() {
                notes.push(format!(
                    "metrics are left out because they are {why}: {}",
                    compact(&names.iter().map(String::as_str).collect::<Vec<_>>())
                ));
            }
        }
        notes
    }
}

/// Whether a unit is one of apparent power (volts times amperes), such as `kVA`. Apparent power exceeds the power that is used.
fn is_apparent_power(unit: &str) -> bool {
    let letters: String = unit.chars().filter(|c| c.is_alphabetic()).collect();
    let word = letters.to_lowercase();
    ["VA", "mVA", "kVA", "MVA"].contains(&letters.as_str())
        || ["voltampere", "voltamperes", "voltamps"].contains(&word.as_str())
}

/// The readings of a metric that is left out: their sum and number.
#[derive(Clone, Copy, Default)]
pub(crate) struct Shown {
    sum: f64,
    readings: u64,
}

impl Shown {
    pub fn add(&mut self, value: f64) {
        self.sum += value;
        self.readings += 1;
    }
}

/// A power is already counted if its mean differs by at most this fraction from that of a device of its node.
const SAME_POWER_DIFFERENCE_MAX: f64 = 0.15;
/// A power matters if it is at least this fraction of the sum of the mean powers of its node's devices.
const SHARE_MIN: f64 = 0.01;

/// The mean power of a device.
pub(crate) struct MeanPower {
    pub node: String,
    pub kind: String,
    pub watts: f64,
}

/// Returns the metrics whose joules may be missing.
pub(crate) fn missing(
    definitions: &Definitions,
    shown: &HashMap<Series, Shown>,
    counted: &[MeanPower],
) -> BTreeSet<String> {
    let is_counted = |series: &Series, of: &Shown, member: &MetricMember| {
        let Some(Quantity::Power(watts_per_unit)) = quantity_of(member) else { return false };
        let watts = of.sum / of.readings.max(1) as f64 * watts_per_unit;
        let node = Place::new(definitions, series.location, series.instance, &member.name).node;
        let mut of_node = counted.iter().filter(|device| device.node == node);
        let sum: f64 = of_node.clone().map(|device| device.watts).sum();
        // A power metric with a known part counts all parts of that kind; see `of_all`.
        if let Some(level) = Counted::by_name(&member.name).level {
            let parts = of_node.filter(|device| device.kind == level.kind());
            return watts
                <= parts.map(|device| device.watts).sum::<f64>() * (1.0 + SAME_POWER_DIFFERENCE_MAX);
        }
        watts < SHARE_MIN * sum
            || of_node.any(|device| (watts - device.watts).abs() <= SAME_POWER_DIFFERENCE_MAX * device.watts)
    };
    (shown.iter())
        .filter(|(_, of)| of.sum != 0.0)
        .filter_map(|(series, of)| Some((series, of, definitions.metric_members.get(series.member)?)))
        .filter(|(series, of, member)| !is_not_consumption(&member.name) && !is_counted(series, of, member))
        .map(|(_, _, member)| member.name.clone())
        .collect()
}

/// Returns why a run with samples of these metrics is incomplete.
pub(crate) fn doubt(missing: &BTreeSet<String>) -> Option<String> {
    (!missing.is_empty()).then(|| {
        let names = listed(missing.iter(), NAMES_MAX);
        match missing.len() {
            1 => format!(
                "joules may be missing: a metric with samples is left out: {names}; see the note about it"
            ),
            _ => format!(
                "joules may be missing: metrics with samples are left out: {names}; see the notes about them"
            ),
        }
    })
}
