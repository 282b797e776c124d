//! Figures about the quality of the energy figures, and about the cost of the measurement.

use super::Fact;
use ampere_figures::losses::{Count, ReadingLosses, RecordLosses};
use ampere_figures::site::Site;
use ampere_figures::summary::{StacksOverhead, Summary};

impl Fact {
    /// Returns a figure that never causes a warning.
    pub fn new(label: &str, value: f64, unit: &str) -> Fact {
        Fact { label: label.to_owned(), value, unit: unit.to_owned(), ..Fact::default() }
    }
}

pub(super) fn quality(summary: &Summary) -> Vec<Fact> {
    let (run, losses) = (&summary.run, &summary.quality);
    let is_measured = run.energy == "measured" || run.energy.is_empty();
    let uncovered = summary.devices.iter().filter(|device| device.unit == "J");
    let uncovered = uncovered.map(|device| device.uncovered_seconds).fold(0.0, f64::max);
    let status = run.bad_status();
    let status =
        status.map(|text| Fact { text, warns: true, ..Fact::new("exit status of the command", 0.0, "") });
    let energy = Fact { text: run.energy.clone(), warns: !is_measured, ..Fact::new("energy", 0.0, "") };
    let uncovered =
        Fact { warns: uncovered > 0.0, ..Fact::new("time whose energy is not known", uncovered, "s") };
    let stale = losses.stale_counters;
    let stale = Fact { warns: stale > 0, ..Fact::new("counters that do not change", stale as f64, "") };
    let error = Fact::new("conservation error", losses.conservation_error_joules, "J");
    let times = losses.gpu_clocks.map(|clocks| Fact {
        text: clocks.text(),
        warns: clocks.is_inexact(),
        ..Fact::new("times of GPUs", 0.0, "")
    });
    let is_incomplete = !run.complete && !run.running;
    let text = if run.missing.is_empty() { "see the notes".to_owned() } else { run.missing.join("; ") };
    let missing = is_incomplete.then(|| Fact { text, warns: true, ..Fact::new("incomplete", 0.0, "") });
    let mut facts: Vec<Fact> =
        missing.into_iter().chain(status).chain([energy, error]).chain(times).collect();
    let site = run.site.iter().flat_map(Site::lines);
    facts.extend(site.map(|(name, text)| Fact { text, ..Fact::new(name, 0.0, "") }));
    facts.extend(counts(RecordLosses::ALL, &losses.records));
    facts.extend([uncovered, stale]);
    facts.extend(counts(ReadingLosses::ALL, &losses.readings));
    facts
}

fn counts<T>(all: &[Count<T>], of: &T) -> impl Iterator<Item = Fact> {
    all.iter().map(|count| {
        let number = (count.get)(of);
        Fact { warns: count.is_loss && number > 0, ..Fact::new(count.label, number as f64, "") }
    })
}

/// Returns facts about the cost of measuring, and whether the collector keeps up; empty if the run was not measured live.
pub(super) fn monitor(summary: &Summary) -> Vec<Fact> {
    let overhead = &summary.overhead;
    if overhead.collector_peak_rss_bytes == 0 {
        return Vec::new();
    }
    let mut facts = vec![
        Fact::new("CPU time of the collector", overhead.collector_cpu_seconds, "s"),
        Fact::new("peak memory of the collector", overhead.collector_peak_rss_bytes as f64, "B"),
    ];
    if let Some(sampler) = &overhead.sampler {
        facts.push(Fact::new("CPU time of the sampler, as a share of one core", sampler.cpu_share, "ratio"));
        facts.push(Fact::new("samples more than 1 ms late", sampler.missed_deadlines as f64, ""));
        facts.push(Fact::new("greatest delay of a sample", sampler.longest_late_seconds, "s"));
    }
    if let Some(share) = overhead.stacks.as_ref().and_then(StacksOverhead::share) {
        facts.push(Fact::new(
            "CPU time of stack sampling, as a share of the program's (an estimate)",
            share,
            "ratio",
        ));
    }
    facts
}
