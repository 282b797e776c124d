//! Computes, at the end of a run, the energy that ranks used while they waited for each other. Only the trace has all messages
//! in order, so it is read once more.

use super::Finish;
use super::results::{ResultsError, read_summary, write_results_among_others};
use super::whole_run::BYTES_MAX;
use crate::run_directory::nodes;
use ampere_figures::build::uncovered_note;
use ampere_figures::losses::Losses;
use ampere_figures::summary::{Device, Head, Run, Summary, topmost};
use ampere_model::sum;
use ampere_settings::Config;
use ampere_trace::join::nodes_of;
use ampere_trace::offline::{self, AttributionOptions};
use ampere_trace::share_figures::Attributed;
use ampere_trace::waits::has_partners;
use std::path::Path;

/// The anchor file of a run's trace.
pub(super) const TRACE: &str = "traces.otf2";

/// A trace with more events is not read again, because the end of the run would take too long.
const EVENTS_MAX: u64 = 16_000_000;

/// Attributes a trace again.
pub(super) fn attribute(trace: &Path, config: &Config, waits: bool) -> anyhow::Result<Attributed> {
    let (threads, progress) = (offline::cores(), &mut |_, _| {});
    offline::attribute_as(
        trace,
        AttributionOptions { config, only: None, waits, recorder: None, threads, progress },
    )
}

/// Whether the waits of a run are to be found. Adds a note if its trace is too large for that, and they were not found live.
fn are_wanted(config: &Config, trace: &Path, run: &mut Run, quality: &Losses) -> bool {
    if !config.attribution.waits || run.ranks < 2 || !has_partners(trace).unwrap_or(false) {
        return false;
    }
    let events = quality.records.events;
    if events > EVENTS_MAX && run.waiting.is_none() {
        let note = format!(
            "the energy that ranks used while waiting was not computed: the trace has {events} events, and with more than \
             {EVENTS_MAX} the end of the run would take too long; ampere attribute computes it"
        );
        if !run.notes.contains(&note) {
            run.notes.push(note);
        }
    }
    events <= EVENTS_MAX
}

impl Finish {
    /// Leaves the waits that were found live out of the results if they are only a part of the run's waits.
    pub(super) fn forget_partial_waits(&mut self) {
        let options = &self.run.options;
        let has_nodes = nodes::first_of(&options.output, &options.manifest).is_some();
        if let Some(timeline) = &mut self.run.timeline
            && (has_nodes || timeline.waits.is_off())
        {
            timeline.pipeline.attributor.waiting = None;
        }
    }

    /// Whether this node computes the energy of waiting. If there are several nodes, the last one computes it for all of them.
    pub(super) fn wants_waits(&self, summary: &mut Summary) -> bool {
        let options = &self.run.options;
        // The figures of a replay are those of the trace that it plays.
        options.replay.is_none()
            && nodes::first_of(&options.output, &options.manifest).is_none()
            && are_wanted(&options.config, &options.output.join(TRACE), &mut summary.run, &summary.quality)
    }

    /// Adds the energy of waiting to a summary. Returns whether it could be computed.
    pub(super) fn find_waits(&self, summary: &mut Summary) -> bool {
        add_waits(&self.run.options.output.join(TRACE), &self.run.options.config, summary)
    }
}

/// Adds the waits in a trace to the summary of its run. Returns whether they could be found.
fn add_waits(trace: &Path, config: &Config, summary: &mut Summary) -> bool {
    match attribute(trace, config, true) {
        Ok(again) => {
            take_tables(summary, again.summary);
            true
        }
        Err(why) => {
            summary
                .run
                .notes
                .push(format!("the energy that ranks used while waiting could not be computed: {why:#}"));
            false
        }
    }
}

/// Adds the energy of waiting on several nodes to the figures in the run's directory, if these figures and the trace there
/// include all nodes. Nothing happens if it has been done already.
///
/// # Errors
/// Figures that cannot be read or written.
pub fn find_waits_of_nodes(directory: &Path, run_id: &str, config: &Config) -> Result<(), ResultsError> {
    let (path, trace) = (directory.join("summary.json"), directory.join(TRACE));
    let is_whole = |run: &Run| run.id == run_id && !run.running && run.complete && run.nodes.len() > 1;
    let Some(mut head) = Head::of(&path).filter(|head| is_whole(&head.run)) else { return Ok(()) };
    let has_all_nodes =
        nodes_of(&trace).is_ok_and(|in_trace| head.run.nodes.iter().all(|node| in_trace.contains(node)));
    let is_small = path.metadata().is_ok_and(|file| file.len() <= BYTES_MAX);
    let notes = head.run.notes.len();
    if head.run.waiting.is_some() || !has_all_nodes || !is_small {
        return Ok(());
    }
    let wanted = are_wanted(config, &trace, &mut head.run, &head.quality);
    if !wanted && head.run.notes.len() == notes {
        return Ok(());
    }
    let mut summary = read_summary(directory)?;
    summary.run.notes = head.run.notes;
    if wanted {
        add_waits(&trace, config, &mut summary);
    }
    write_results_among_others(directory, &summary)
}

/// Replaces the tables of a summary with those of its trace, which has the same devices.
pub(super) fn take_tables(summary: &mut Summary, mut again: Summary) {
    let notes = std::mem::take(&mut again.run.notes);
    summary.run.waiting = again.run.waiting.take();
    summary.run.events = std::mem::take(&mut again.run.events);
    let (again, events) = summary.renumbered(vec![again]);
    summary.events = events;
    let has_note = |devices: &[Device], note: &String| {
        devices.iter().filter_map(uncovered_note).any(|of_device| of_device == *note)
    };
    summary.run.notes.retain(|note| !has_note(&summary.devices, note));
    summary.run.notes.extend(notes.into_iter().filter(|note| has_note(&again, note)));
    for device in &mut summary.devices {
        let is_same = |other: &&Device| {
            (&other.node, &other.metric, &other.name) == (&device.node, &device.metric, &device.name)
        };
        let Some(same) = again.iter().find(is_same).cloned() else { continue };
        let before = std::mem::replace(device, same);
        (device.source, device.energy) = (before.source, before.energy);
        // The following figures are not in the trace.
        (device.readings, device.gauges, device.checks) = (before.readings, before.gauges, before.checks);
        device.estimate = before.estimate;
    }
    summary.run.total_joules = sum(topmost(summary).map(|device| device.total_joules));
    let views = summary.devices.iter().flat_map(|device| &device.views);
    summary.quality.conservation_error_joules =
        views.map(|view| view.conservation_error_joules).fold(0.0, f64::max);
}
