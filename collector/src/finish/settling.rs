//! Computes figures from the trace if live attribution did not have all information in time.

use super::waits::{self, TRACE, take_tables};
use super::{Finish, Traced};
use crate::run_directory::output;
use ampere_figures::summary::Summary;
use ampere_model::text::plural;
use ampere_timeline::attributor::Attributor;
use ampere_trace::offline;
use ampere_trace::power;
use ampere_trace::share_figures::Attributed;
use ampere_trace::write::{NoTrace, Power};
use std::sync::PoisonError;

const SAMPLES_REVISED: &str = "readings of a counter turned out to be wrong later";
pub(super) const BASELINES_LEARNED: &str = "the static power of a device became known only during the run";
pub(super) const KERNELS_LEFT_OUT: &str = "during the run, joules of GPUs were not divided by kernels";
pub(super) const LINKS_MOVED: &str = "the device that a location draws from became known only during the run";

/// A condition under which figures have to be computed again.
type Condition = fn(&Attributor) -> bool;

impl Finish {
    /// Whether a condition holds for the run's attributor, if there is one.
    pub(super) fn attribution(&self, holds: Condition) -> bool {
        self.run.timeline.as_ref().is_some_and(|timeline| holds(&timeline.pipeline.attributor))
    }

    /// Returns the reasons why the figures differ from those that would result if everything had been known in time; empty if
    /// there is none.
    pub(super) fn unsettled(&self, summary: &Summary) -> String {
        let late = summary.quality.records.late_events;
        let late = (late > 0).then(|| format!("{} came late", plural(late, "event")));
        let reasons: [(Condition, &str); 4] = [
            (Attributor::links_changed_late, LINKS_MOVED),
            (Attributor::samples_are_revised, SAMPLES_REVISED),
            (Attributor::has_learned_baselines, BASELINES_LEARNED),
            (Attributor::leaves_kernels_out, KERNELS_LEFT_OUT),
        ];
        let reasons = reasons.into_iter().filter(|(holds, _)| self.attribution(*holds));
        late.into_iter().chain(reasons.map(|(_, why)| why.to_owned())).collect::<Vec<_>>().join("; ")
    }

    /// Computes the final figures from the trace. During the run, late events, and joules of locations that were not yet linked
    /// to a device, were charged with what was known at that time. The trace has all events in order. The power of the final
    /// figures is then written into the trace, too.
    pub(super) fn settle(
        &mut self,
        summary: &mut Summary,
        why_again: &str,
        waits: bool,
        traced: &mut Traced,
    ) {
        let values = power::Values::default();
        let mut again = match self.attribute_trace(waits, &values) {
            Ok(again) => again.summary,
            Err(why) => {
                let note = format!("{why_again}, and the figures could not be computed again: {why:#}");
                return summary.run.notes.push(note);
            }
        };
        summary.topology = std::mem::take(&mut again.topology);
        summary.quality.records.kernels_without_launch = again.quality.records.kernels_without_launch;
        summary.quality.readings.counter_resets = again.quality.readings.counter_resets;
        take_tables(summary, again);
        summary.run.notes.push(format!("{why_again}: the figures below were computed again from the trace"));
        if self.run.options.config.trace_power
            && let Err(no_trace) = self.write_trace_again(&values, summary.run.complete)
        {
            self.keep_records(&no_trace, false);
            *traced = Traced { is_whole: false, keeps_records: true };
            summary.run.lacks(no_trace.why);
        }
    }

    fn attribute_trace(&self, waits: bool, values: &power::Values) -> anyhow::Result<Attributed> {
        let (trace, config) = (self.run.options.output.join(TRACE), &self.run.options.config);
        match config.trace_power {
            true => offline::attribute_with_power(&trace, config, waits, &self.run.ingest.spool, values),
            false => waits::attribute(&trace, config, waits),
        }
    }

    /// Writes the trace again, with the power of the final figures.
    fn write_trace_again(&mut self, values: &power::Values, has_ended: bool) -> Result<u64, NoTrace> {
        output::remove_unfinished_trace(&self.run.options.output, &mut self.run.options.manifest);
        self.announce_trace();
        let values = values.lock().unwrap_or_else(PoisonError::into_inner);
        self.write_archive(has_ended, Power::OfTrace(&values))
    }
}
