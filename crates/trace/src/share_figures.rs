//! The figures of a trace's shares, and of the whole trace.

use crate::evidence;
use crate::index::{IN_DOUBT, no_energy, trace_id};
use crate::left_out;
use crate::locations::add_locations;
use crate::meters::{Meter, doubts_of_shared, notes_of_shared};
use crate::metric_recorders::are_in_doubt;
use crate::metrics::Metrics;
use crate::nesting::Nesting;
use crate::places::doubt_of_uncounted;
use crate::series::Series;
use ampere_figures::clock_text;
use ampere_figures::nodes::summaries::of_one_trace;
use ampere_figures::summary::{Run, Summary};
use ampere_figures::waits::Waiting;
use ampere_settings::Config;
use ampere_timeline::attributor::{Attributor, Unit};
use ampere_timeline::conflicts;
use ampere_timeline::pipeline::{GpuStreams, Pipeline};
use ampere_timeline::threads::OtherThreads;
use anyhow::{Context, bail};
use otf2::{Definitions, Trace};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::path::Path;

const INCOMPLETE: &str = "the run that wrote this trace is incomplete: see its own summary";

/// The figures of a trace, and the lines that are printed with them.
pub struct Attributed {
    /// The summary that `--json` prints.
    pub summary: Summary,
    /// One line for each part of the trace that was not read.
    pub warnings: Vec<String>,
    /// One line for each doubtful setting or metric.
    pub odd: Vec<String>,
}

/// The figures of a share.
#[derive(Serialize, Deserialize)]
pub struct Part {
    /// The summary. Its `run` has only what depends on the share.
    pub(crate) summary: Summary,
    /// A line for each part of the trace that was not read.
    pub(crate) warnings: Vec<String>,
    /// A line for each doubtful metric.
    pub(crate) notes: Vec<String>,
    /// The series that are devices: location, member and instance.
    pub(crate) devices: Vec<(u64, u32, Option<u32>)>,
    /// Lines that state why joules are in doubt.
    pub(crate) doubts: Vec<String>,
    /// Metrics whose joules may be missing.
    pub(crate) missing: BTreeSet<String>,
    /// The devices that may be meters of several nodes.
    pub(crate) meters: Vec<Meter>,
    pub(crate) nesting: Nesting,
    /// Ticks of the first and the last reading of counters.
    pub(crate) readings: Option<(u64, u64)>,
    /// Joules that may be counted twice or be missing.
    pub(crate) doubtful_joules: f64,
    pub(crate) other_threads: OtherThreads,
}

/// Joins the figures of all shares of a trace.
///
/// # Errors
/// The trace has no device.
pub fn join(path: &Path, config: &Config, mut parts: Vec<Part>) -> anyhow::Result<Attributed> {
    let trace = Trace::open(path)?;
    let definitions = trace.definitions();
    let mut metrics = Metrics::new(definitions, config);
    let warnings: Vec<String> = parts.iter().flat_map(|part| part.warnings.clone()).collect();
    if parts.iter().all(|part| part.summary.devices.is_empty()) {
        // If events are missing, samples may be missing, too.
        let first = warnings.first().map_or_else(String::new, |first| format!(" ({first})"));
        bail!("{}{first}", no_energy(path, definitions, &metrics.left_out, metrics.energy_is_known, config));
    }
    let mut odd = setting_notes(definitions, config, &metrics, &parts);
    // This order does not depend on the shares.
    odd.extend(parts.iter().flat_map(|part| part.notes.clone()).collect::<BTreeSet<String>>());
    let devices = || parts.iter().flat_map(|part| &part.summary.devices);
    metrics.left_out.measured.retain(|name| devices().all(|device| device.metric != *name));
    odd.extend(metrics.left_out.notes());
    let is_incomplete = evidence::is_incomplete(definitions);
    odd.extend(is_incomplete.then(|| INCOMPLETE.to_owned()));
    let firsts = parts.iter().filter_map(|part| Some(part.readings?.0));
    let lasts = parts.iter().filter_map(|part| Some(part.readings?.1));
    let readings = firsts.min().zip(lasts.max());
    let doubtful_joules = parts.iter().map(|part| part.doubtful_joules).sum();
    let nesting = parts.iter().fold(Nesting::default(), |all, part| all.and(part.nesting));
    odd.extend(nesting.note());
    let missing = parts.iter().flat_map(|part| part.missing.iter().cloned()).collect();
    let meters: Vec<Meter> = parts.iter().flat_map(|part| part.meters.iter().cloned()).collect();
    let energies = devices().filter(|device| device.unit == Unit::Joules.as_str());
    let counted = energies.map(|device| device.node.clone()).collect();
    odd.extend(notes_of_shared(&meters));
    let doubts: BTreeSet<String> = (parts.iter().flat_map(|part| part.doubts.clone()))
        .chain(left_out::doubt(&missing))
        .chain(doubt_of_uncounted(definitions, &counted))
        .chain(nesting.doubt())
        .chain(doubts_of_shared(&meters))
        .collect();
    let other_threads = other_threads(definitions, &mut parts);
    let mut summaries = parts.into_iter().map(|part| part.summary);
    let first = summaries.next().context("a trace without a share")?;
    let mut summary = of_one_trace(first, summaries.collect());
    let mut of_parts = std::mem::take(&mut summary.run.notes);
    of_parts.extend(other_threads.note());
    of_parts.extend(summary.run.waiting.as_ref().and_then(note_of_unmatched));
    summary.run.id = trace_id(path);
    describe(&mut summary.run, definitions, readings);
    let of_trace = is_incomplete.then(|| INCOMPLETE.to_owned());
    let mut missing: Vec<String> = warnings.iter().cloned().chain(of_trace).collect();
    missing.extend(doubts.iter().cloned());
    missing.append(&mut summary.run.missing);
    odd.extend(doubts);
    summary.run.notes = warnings.iter().chain(&odd).cloned().chain(of_parts).collect();
    if are_in_doubt(doubtful_joules, summary.run.total_joules) {
        odd.push(IN_DOUBT.to_owned());
        summary.run.notes.push(IN_DOUBT.to_owned());
        missing.push(IN_DOUBT.to_owned());
    }
    summary.run.complete = missing.is_empty();
    summary.run.missing = missing;
    Ok(Attributed { summary, warnings, odd })
}

/// Returns the notes that depend on all nodes.
fn setting_notes(
    definitions: &Definitions,
    config: &Config,
    metrics: &Metrics,
    parts: &[Part],
) -> Vec<String> {
    if config.devices.is_empty() {
        return Vec::new();
    }
    let attributor = Attributor::new(config.clone(), definitions.clock.timer_resolution);
    let mut pipeline = Pipeline::new(attributor, GpuStreams::InTime);
    add_locations(definitions, None, &[], &BTreeSet::new(), &mut pipeline);
    let mut attributor = pipeline.attributor;
    for series in parts.iter().flat_map(|part| &part.devices) {
        if let Some(mut found) = metrics.describe(definitions, Series::of_numbers(*series)) {
            found.add_to(&mut attributor);
        }
    }
    conflicts::setting_notes(&attributor, &crate::index::metric_names(definitions))
}

/// Combines the other threads of all parts, and replaces the parts' own notes about them.
fn other_threads(definitions: &Definitions, parts: &mut [Part]) -> OtherThreads {
    let groups =
        || definitions.locations.values().filter_map(|of| definitions.location_groups.get(of.group?));
    let place = |name: &str| groups().position(|group| group.name == name).unwrap_or(usize::MAX);
    parts.iter_mut().fold(OtherThreads::None, |all, part| {
        let own = std::mem::take(&mut part.other_threads);
        let note = own.note();
        part.summary.run.notes.retain(|of_part| Some(of_part) != note.as_ref());
        all.with(own, place)
    })
}

/// Messages without a counterpart are mentioned if they are at least this fraction of all messages.
const UNMATCHED_PART_MIN: f64 = 0.01;

/// Returns a note about messages without a counterpart. If some waiting was found, reports say that it is a lower bound.
fn note_of_unmatched(waiting: &Waiting) -> Option<String> {
    let is_mentioned = waiting.joules == 0.0 && waiting.unmatched_share() >= UNMATCHED_PART_MIN;
    is_mentioned.then(|| {
        format!(
            "{} of {} messages have no counterpart in the trace, or a communicator that cannot be followed, such as one \
             between two groups: energy that ranks used waiting for them is not known",
            waiting.unmatched_messages,
            waiting.matched_messages + waiting.unmatched_messages
        )
    })
}

/// Sets the dates and the length of a run.
fn describe(run: &mut Run, definitions: &Definitions, readings: Option<(u64, u64)>) {
    let clock = &definitions.clock;
    let seconds = |ticks: u64| ticks as f64 / clock.timer_resolution.max(1) as f64;
    let length = seconds(clock.trace_length);
    let end = clock.realtime_timestamp.map(|start| start.saturating_add((length * 1e9) as u64));
    let date = |time: Option<u64>| time.map_or_else(String::new, clock_text::rfc3339);
    // As in a measured run, the length is the time from the first to the last reading.
    let sampled = readings.map(|(first, last)| seconds(last.saturating_sub(first)));
    run.start = date(clock.realtime_timestamp);
    run.end = date(end);
    run.host = "trace".to_owned();
    run.timer = "trace".to_owned();
    run.ticks_per_second = clock.timer_resolution;
    run.seconds = sampled.filter(|seconds| *seconds > 0.0).unwrap_or(length);
}

#[test]
fn messages_without_a_counterpart_are_noted_if_no_waiting_was_found() {
    let note = |joules, matched_messages, unmatched_messages| {
        note_of_unmatched(&Waiting { joules, matched_messages, unmatched_messages, ..Waiting::default() })
    };
    assert!(note(0.0, 1, 2).is_some_and(|note| note.starts_with("2 of 3 messages have no counterpart")));
    assert_eq!(
        [note(0.0, 3, 0), note(0.0, 0, 0), note(1.0, 1, 2), note(0.0, 1000, 2)],
        [None, None, None, None]
    );
}
