//! Figures that say how good the others are.

use super::Fact;
use crate::summary::Summary;

impl Fact {
    /// A figure that is only told.
    pub fn new(label: &str, value: f64, unit: &str) -> Fact {
        Fact { label: label.to_owned(), value, unit: unit.to_owned(), ..Fact::default() }
    }

    /// A figure that should be 0.
    pub fn expected_none(label: &str, count: u64) -> Fact {
        Fact { warns: count > 0, ..Fact::new(label, count as f64, "") }
    }
}

/// Of a counter's range that is reached, and of calls that are told in groups, nothing is lost.
pub(super) fn quality(summary: &Summary) -> Vec<Fact> {
    let (run, q) = (&summary.run, &summary.quality);
    let is_measured = run.energy == "measured" || run.energy.is_empty();
    let uncovered = summary.devices.iter().filter(|device| device.unit == "J");
    let uncovered = uncovered.map(|device| device.uncovered_seconds).fold(0.0, f64::max);
    let count = |label: &str, count: u64| Fact::new(label, count as f64, "");
    let status = run.bad_status();
    let status =
        status.map(|text| Fact { text, warns: true, ..Fact::new("exit status of the command", 0.0, "") });
    let figures = vec![
        Fact { text: run.energy.clone(), warns: !is_measured, ..Fact::new("energy", 0.0, "") },
        Fact::new("conservation error", q.conservation_error_joules, "J"),
        count("events", q.events),
        Fact::expected_none("events late", q.late_events),
        Fact::expected_none("readings that could not be true", q.unusable_samples),
        Fact::expected_none("counters that stand still", q.stale_counters),
        Fact { warns: uncovered > 0.0, ..Fact::new("time whose energy is not known", uncovered, "s") },
        Fact::expected_none("counter resets", q.counter_resets),
        Fact::expected_none("gaps in sampling", q.sampling_gaps),
        count("calls coalesced: recorded in groups", q.coalesced_calls),
        Fact::expected_none("calls suppressed: they found no room", q.suppressed_calls),
        Fact::expected_none("calls unrecorded: their threads had no ring", q.unrecorded_calls),
        Fact::expected_none("records dropped", q.dropped_records),
        Fact::expected_none("records damaged", q.damaged_records),
        Fact::expected_none("events mended", q.repaired_events),
        Fact::expected_none("definitions left out", q.left_out_definitions),
    ];
    status.into_iter().chain(figures).collect()
}

/// Nothing where it was not measured live.
pub(super) fn monitor(summary: &Summary) -> Vec<Fact> {
    let overhead = &summary.overhead;
    if overhead.collector_peak_rss_bytes == 0 {
        return Vec::new();
    }
    let mut facts = vec![
        Fact::new("CPU time of the collector", overhead.collector_cpu_seconds, "s"),
        Fact::new("memory of the collector, at most", overhead.collector_peak_rss_bytes as f64, "B"),
    ];
    if let Some(sampler) = &overhead.sampler {
        facts.push(Fact::new("of a core, sampling", sampler.cpu_share, "ratio"));
        facts.push(Fact::new("samples more than 1 ms late", sampler.missed_deadlines as f64, ""));
        facts.push(Fact::new("latest sample, late by", sampler.longest_late_seconds, "s"));
    }
    facts
}
