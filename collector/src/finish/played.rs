//! The final figures of a replay: those that `ampere attribute` computes from the trace that was played, because a replay passes
//! on only a part of what the trace contains. Only the description of the replay is kept from the live run, with its losses of
//! records, its overhead and its notes.

use super::Finish;
use super::waits::attribute;
use ampere_figures::losses::{Losses, RecordLosses};
use ampere_figures::summary::{Run, Summary};

impl Finish {
    /// Returns the figures of the trace if a replay has played it to its end. If they cannot be computed, a note reports it.
    pub(super) fn figures_of_played(&mut self) -> Option<Summary> {
        let (replay, config) = (self.run.options.replay.as_ref()?, &self.run.options.config);
        if self.is_empty() || !self.run_summary().endings().is_empty() {
            return None;
        }
        match attribute(&replay.trace, config, config.attribution.waits) {
            Ok(mut played) => {
                // The replay has lines of its own about parts that were not read.
                let is_new = |line: &String| !played.warnings.contains(line);
                played.summary.run.notes.retain(is_new);
                played.summary.run.missing.retain(is_new);
                Some(played.summary)
            }
            Err(why) => {
                let note =
                    format!("the figures are those of the replay, and may differ from the trace's: {why:#}");
                self.run.notes.add(note);
                None
            }
        }
    }
}

/// Replaces the figures of a replay by those of the trace that it has played.
pub(super) fn take_played(summary: &mut Summary, played: Summary) {
    let live = std::mem::replace(summary, played);
    let (run, quality) = (&mut summary.run, &mut summary.quality);
    let (mut notes, mut missing) = (live.run.notes, live.run.missing);
    add_new(&mut notes, &run.notes);
    add_new(&mut missing, &run.missing);
    *run = Run {
        complete: live.run.complete && run.complete,
        notes,
        missing,
        nodes: std::mem::take(&mut run.nodes),
        ranks: run.ranks,
        node_ranks: std::mem::take(&mut run.node_ranks),
        energy: std::mem::take(&mut run.energy),
        total_joules: run.total_joules,
        stack_period_seconds: run.stack_period_seconds,
        waiting: run.waiting.take(),
        work: std::mem::take(&mut run.work),
        ranges: std::mem::take(&mut run.ranges),
        events: std::mem::take(&mut run.events),
        site: run.site.take(),
        ..live.run
    };
    let kernels_without_launch = quality.records.kernels_without_launch;
    *quality = Losses {
        records: RecordLosses { kernels_without_launch, ..live.quality.records },
        gpu_clocks: live.quality.gpu_clocks,
        ..*quality
    };
    summary.overhead = live.overhead;
}

/// Adds the lines that are not there yet.
fn add_new(lines: &mut Vec<String>, others: &[String]) {
    let is_new = |line: &&String| !lines.contains(line);
    let new: Vec<String> = others.iter().filter(is_new).cloned().collect();
    lines.extend(new);
}
