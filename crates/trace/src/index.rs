//! Lookups in a trace's definitions: the names of its regions and metrics, and the messages about ambiguous definitions.

use crate::left_out::LeftOut;
use crate::places::node_of;
use crate::power;
use crate::scorep_names;
use crate::series::quantity_of;
use crate::waited_energy;
use ampere_model::text::listed;
use ampere_model::{
    Counted, MetricValue, OTHER_JOBS_CPU_TIME, Quality, Quantity, Region, RegionHandle, SAMPLED_EVENTS,
};
use ampere_settings::Config;
use otf2::{AttributeRef, Definitions, LocationRef, MetricMember, Trace};
use std::collections::BTreeSet;
use std::path::Path;

/// The name of the attribute with the number of coalesced calls, which only ampere's own traces have.
pub const CALLS_NAME: &str = "ampere::calls";
/// The name of the attribute with the id that a launch and the launched work have in common; only ampere's own traces have it.
pub(crate) const CORRELATION_NAME: &str = "ampere::correlation";
/// The metric of a location's own CPU time: cumulative, in seconds.
pub(crate) const CPU_TIME: &str = "ampere::cpu_time";
/// The reason for an incomplete run if several recorders may read the same counter.
pub(crate) const IN_DOUBT: &str = "it is unknown which recorders of one metric read the same counter: more than 1 % of the joules may be counted twice, be missing, or belong to another node";

/// Finds the attribute with the number of calls that an enter event stands for.
pub(crate) fn calls_attribute(definitions: &otf2::Definitions) -> Option<AttributeRef> {
    attribute(definitions, CALLS_NAME)
}

/// Finds the attribute with the correlation id of an enter event.
pub(crate) fn correlation_attribute(definitions: &otf2::Definitions) -> Option<AttributeRef> {
    attribute(definitions, CORRELATION_NAME)
}

fn attribute(definitions: &otf2::Definitions, name: &str) -> Option<AttributeRef> {
    let mut attributes = definitions.attributes.iter();
    attributes.find(|(_, attribute)| attribute.name == name).map(|(reference, _)| reference)
}

pub fn as_model(region: &otf2::Region) -> Region {
    Region {
        handle: RegionHandle(0),
        name: region.name.clone(),
        canonical_name: region.canonical_name.clone(),
        source_file: region.source_file.clone().unwrap_or_default(),
        begin_line: region.begin_line,
        end_line: region.end_line,
        region_type: scorep_names::region_type_of(region.role),
        paradigm: scorep_names::paradigm_of(region.paradigm),
    }
}

/// Converts a sample's value to the model's type.
pub(crate) fn value(value: otf2::MetricValue) -> MetricValue {
    match value {
        otf2::MetricValue::U64(value) => MetricValue::U64(value),
        otf2::MetricValue::I64(value) => MetricValue::I64(value),
        otf2::MetricValue::F64(value) => MetricValue::F64(value),
    }
}

pub(crate) fn number(value: otf2::MetricValue) -> f64 {
    match value {
        otf2::MetricValue::U64(value) => value as f64,
        otf2::MetricValue::I64(value) => value as f64,
        otf2::MetricValue::F64(value) => value,
    }
}

/// Returns the metrics that were recorded, without those that ampere has computed itself.
pub(crate) fn recorded_metrics(definitions: &otf2::Definitions) -> impl Iterator<Item = &MetricMember> {
    definitions.metric_members.values().filter(|member| {
        let own = [power::NAME, waited_energy::NAME, CPU_TIME, OTHER_JOBS_CPU_TIME];
        !own.contains(&member.name.as_str())
            && !member.name.starts_with(SAMPLED_EVENTS)
            && Counted::of_metric(&member.name).is_none()
    })
}

pub(crate) fn metric_names(definitions: &otf2::Definitions) -> BTreeSet<String> {
    recorded_metrics(definitions).map(|member| member.name.clone()).collect()
}

/// Returns the quality of a metric, which ampere's own traces have in the description; `None` for a metric of another tool.
pub(crate) fn quality_of(description: &str) -> Option<Quality> {
    let says = |quality: &Quality| description.ends_with(&format!(": energy, {}", quality.as_str()));
    [Quality::Measured, Quality::Estimated, Quality::Simulated, Quality::Integrated].into_iter().find(says)
}

pub(crate) fn missing_line(trace: &Trace, location: LocationRef) -> String {
    let definitions = trace.definitions();
    let named = definitions.locations.get(location);
    let group = named.and_then(|l| l.group).and_then(|g| definitions.location_groups.get(g));
    format!(
        "location {} ({}/{}) has no event file and is left out",
        location.0,
        group.map_or("", |g| &g.name),
        named.map_or("", |l| &l.name)
    )
}

/// Returns why a trace has no joules.
pub(crate) fn no_energy(
    path: &Path,
    definitions: &Definitions,
    left_out: &LeftOut,
    energy_known: bool,
    config: &Config,
) -> String {
    if definitions.locations.is_empty() {
        return format!("{} has no locations, so nothing was recorded in it", path.display());
    }
    if !left_out.relative.is_empty() {
        let names = listed(left_out.relative.iter(), 6);
        return format!("{} has {names} as differences, which are not supported", path.display());
    }
    let mut members: Vec<&MetricMember> = recorded_metrics(definitions).collect();
    // The most likely metrics come first: those of energy, then those of power.
    members.sort_by_key(|member| match quantity_of(member) {
        Some(Quantity::Energy(_)) => 0,
        Some(Quantity::Power(_)) => 1,
        None => 2,
    });
    let names: Vec<&str> = members.iter().map(|member| member.name.as_str()).collect();
    let has = match names.len() {
        0 => "it has no metric at all".to_owned(),
        _ => format!("it has {}", listed(names.iter(), 6)),
    };
    let by_metric =
        config.devices.iter().find(|setting| names.iter().any(|name| setting.metric.is_match(name)));
    if let Some(node) = by_metric.and_then(|setting| setting.node.as_ref()) {
        let nodes: std::collections::BTreeSet<String> =
            definitions.locations.iter().map(|(l, _)| node_of(definitions, l)).collect();
        let nodes = nodes.into_iter().collect::<Vec<_>>().join(", ");
        let pattern = node.as_str().trim_start_matches("^(?:").trim_end_matches(")$");
        return format!(
            "no node of {} matches node = '{pattern}' of the configuration: there are {nodes}",
            path.display()
        );
    }
    if !config.devices.is_empty() {
        return format!(
            "no [[device]] of the configuration matches a metric with samples in {}: {has}",
            path.display()
        );
    }
    if names.is_empty() {
        return format!(
            "{} has no metric, so it has no energy: --time gives a time profile; for energy measure with ampere run, or have Score-P record an energy counter \
             (SCOREP_METRIC_PAPI, or a metric plugin)",
            path.display()
        );
    }
    if energy_known && left_out.limits.is_empty() {
        return format!("{} has no samples of an energy metric: {has}", path.display());
    }
    if let Some((name, unit)) = left_out.without_unit.first_key_value() {
        return format!(
            "{} has no energy metric with a known unit: '{unit}', the unit of {name}, is not known; a [[device]] with its scale in --config makes it a \
             device",
            path.display()
        );
    }
    format!(
        "{} has no energy metric: {has}; name the right one with a [[device]] in --config",
        path.display()
    )
}

pub(crate) fn trace_id(path: &Path) -> String {
    let parent = std::fs::canonicalize(path).ok();
    let name = parent.as_deref().and_then(Path::parent).and_then(Path::file_name);
    name.map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Metrics;
    use otf2::{Location, MetricMode};

    #[test]
    fn the_reason_for_a_trace_without_joules_is_named() {
        let of = |unit: &str, mode: MetricMode, has_location: bool, settings: &str| {
            let mut definitions = Definitions::default();
            if has_location {
                definitions.locations.insert(LocationRef(0), Location::default());
            }
            let (name, unit) = ("energy".to_owned(), unit.to_owned());
            definitions.metric_members.push(MetricMember { name, unit, mode, ..MetricMember::default() });
            let config = Config::parse(settings, "test").unwrap();
            let Metrics { left_out, energy_is_known, .. } = Metrics::new(&definitions, &config);
            no_energy(Path::new("t.otf2"), &definitions, &left_out, energy_is_known, &config)
        };
        let (start, differences) = (MetricMode::AccumulatedStart, MetricMode::RelativeNext);
        assert_eq!(of("J", start, true, ""), "t.otf2 has no samples of an energy metric: it has energy");
        let device = "[[device]]\nname = \"node\"\nmetric = \"energy\"\n";
        for settings in ["", device] {
            let expected = "t.otf2 has energy as differences, which are not supported";
            assert_eq!(of("J", differences, true, settings), expected);
        }
        assert_eq!(of("J", start, false, ""), "t.otf2 has no locations, so nothing was recorded in it");
        let unknown = of("wh", start, true, "");
        assert!(unknown.contains("'wh', the unit of energy, is not known"), "{unknown}");
    }
}
