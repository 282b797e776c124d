//! The end of a run, step by step.
//!
//! ```text
//! mod.rs             the steps: attribute everything, write the figures, then the trace, then the final figures
//! summary.rs         what a run's summary contains
//! results.rs         files that are written into the output directory
//! running.rs         the summary that is on disk during the run
//! settling.rs        figures that are computed again from the trace
//! cpu_time_check.rs  CPU time that is in no row
//! played.rs          the figures of a replay are those of the trace that was played
//! waits.rs           the energy that ranks used while they waited for each other
//! whole_run.rs       the figures of all nodes as one
//! preloaded.rs       processes that the preloaded library left alone
//! unseen.rs          programs whose MPI calls cannot be recorded
//! ```

mod cpu_time_check;
mod played;
mod preloaded;
mod results;
pub mod running;
mod settling;
pub(crate) mod summary;
mod unseen;
mod waits;
mod whole_run;

pub use results::{ResultsError, has_more_events, write_results};
pub use waits::find_waits_of_nodes;
pub use whole_run::join_figures;

use crate::ingest::process::{Process, State};
use crate::ingest::process_ends;
use crate::live::{LiveRun, Mode, catching_up, clock, liveness, stacks};
use crate::live_timeline::LiveTimeline;
use crate::run_directory::manifest::{self, SavedLosses};
use crate::run_directory::{nodes, output, spool_place};
use crate::sampling::clock::{CALIBRATION_MIN, Timer};
use ampere_counters::ProcessCpu;
use ampere_figures::summary::Summary;
use ampere_model::Timestamp;
use ampere_model::text::printable;
use ampere_ring::Session;
use ampere_ring::process::{is_alive, is_ending};
use ampere_timeline::attributor::Attributor;
use ampere_timeline::conflicts;
use ampere_trace::power::Recorded;
use ampere_trace::write::{self, NoTrace, Power, TracedRun};
use played::take_played;
use settling::{BASELINES_LEARNED, KERNELS_LEFT_OUT, LINKS_MOVED};
use std::collections::BTreeSet;
use std::sync::PoisonError;
use summary::RunSummary;

/// The maximum number of running processes that a note names.
const NAMED_MAX: usize = 8;

/// A trace of at most this number of events is written in a few milliseconds, so the figures are written after it.
const QUICK_TRACE_EVENTS_MAX: u64 = 10_000;

const BEFORE_THE_TRACE: &str =
    "these figures are from before the trace was written: `ampere report` of this directory finishes the run";
const TRACE_IS_CUT: &str = "the trace lacks a part of what was measured; the figures have it";
const COLLECTOR_ENDED_FIRST: &str =
    "the collector ended before the processes of the run did: what they did later is not included";
const NO_TRACE: &str = "there is no trace to compute the figures from again";

struct Traced {
    is_whole: bool,
    /// Whether there is no trace, and the records are kept to make it later.
    keeps_records: bool,
}

impl LiveRun {
    /// Ends the run and writes its results. `has_ended`: all of its processes have ended. The error is one line.
    pub fn finish(self, has_ended: bool) -> Result<(Summary, Session), ResultsError> {
        Finish { run: self }.finish(has_ended)
    }

    /// Makes the trace and the summary of an ended run from the records that remain. The error is one line.
    pub fn recover(self) -> Result<(Summary, Session), ResultsError> {
        Finish { run: self }.recover()
    }
}

/// A run whose results are being made.
struct Finish {
    run: LiveRun,
}

impl Finish {
    fn finish(mut self, has_ended: bool) -> Result<(Summary, Session), ResultsError> {
        self.run.session.set_finishing(true);
        self.run.learn_command_end();
        let samples_stacks = self.run.sampling.stacks.as_ref().is_some_and(|stacks| stacks.wants_samples);
        let stack_period = stacks::end(&mut self.run);
        self.read_everything();
        stack_period.into_iter().for_each(|period| stacks::set_period(&mut self.run, period));
        self.note_still_running();
        self.end_sampling();
        self.run.timeline.iter_mut().for_each(LiveTimeline::advance_to_the_end);
        self.note_odd_settings();
        self.run.publish_as(true);
        self.forget_partial_waits();
        self.note_unmeasured_cpu_time(samples_stacks);
        self.remake_output()?;
        process_ends::look_for_unread(&mut self.run.ingest, &mut self.run.notes);
        self.note_missing_parts();
        // The figures are written first, because the trace may take a long time.
        let mut summary = self.run.summary(false);
        summary.run.lacks(BEFORE_THE_TRACE.to_owned());
        let are_written = summary.quality.records.events > QUICK_TRACE_EVENTS_MAX;
        if are_written {
            self.write_figures(&summary).map_err(|why| self.write_elsewhere(why))?;
        }
        let needs_no_settling = self.unsettled(&summary).is_empty();
        let mut traced = self.write_trace(has_ended, needs_no_settling);
        self.explain_incomplete(has_ended, traced.is_whole);
        let (summary, is_recomputed) =
            self.complete_summary(summary, has_ended && traced.is_whole, &mut traced);
        // If the tables on disk are already final, only the description of the run in front of them is replaced.
        match self.write_final_figures(&summary, are_written && !is_recomputed) {
            Err(why) if are_written => {
                eprintln!("ampere-collector: {why}: the figures are those from before the trace was written");
            }
            Err(why) => return Err(self.write_elsewhere(why)),
            Ok(()) => {}
        }
        self.write_final_page(&summary);
        self.run.publisher.latest.page.set(&summary);
        if !traced.keeps_records {
            manifest::remove_spool(&self.run.ingest.spool.directory);
            self.remove_records();
        }
        Ok((summary, self.run.session))
    }

    /// Removes the records that the run's own copy of the manifest lists, because the manifest in the output directory may have
    /// been removed.
    fn remove_records(&self) {
        let records = self.run.options.manifest.records.iter();
        let own = records.filter(|records| spool_place::is_of(records, &self.run.ingest.spool.directory));
        own.for_each(|records| spool_place::remove(records));
    }

    fn run_summary(&self) -> RunSummary<'_> {
        RunSummary::of(&self.run)
    }

    fn recover(mut self) -> Result<(Summary, Session), ResultsError> {
        self.run.read_definitions();
        if !self.run.clock_is_certain() {
            clock::find_clock(&mut self.run);
        }
        liveness::take_over_ended_processes(&mut self.run);
        self.catch_up_to_the_end();
        let manifest = &self.run.options.manifest;
        if self.run.options.mode == Mode::RecoveryFromDisk && !manifest.progress.is_drained {
            self.run.notes.add_loss(if manifest.progress.has_ended {
                "the disk had no room for all records, and the shared memory with the others is gone: they are lost"
            } else {
                "the shared memory of the run is gone: records that were not yet on disk are lost"
            });
        }
        let earlier_summary = self.run.options.left.iter().map(|summary| &summary.run);
        // The earlier summary lists the missing trace among the reasons why the run is incomplete, which is no longer true. The
        // saved losses do not list it.
        match &manifest.progress.losses {
            Some(before) => {
                before.missing.iter().for_each(|loss| self.run.notes.add_loss(loss));
                self.run.notes.extend(before.notes.iter().cloned());
            }
            None => {
                let missing = earlier_summary.clone().flat_map(|run| &run.missing);
                missing.for_each(|loss| self.run.notes.add_loss(loss));
            }
        }
        self.run.notes.extend(earlier_summary.flat_map(|run| run.notes.iter().cloned()));
        if !manifest.progress.has_ended {
            let note = "the run and its collector were killed: these results were recovered from the remaining records";
            // The kernel may have held samples that no collector has read.
            match self.run.ingest.processes.iter().any(Process::has_samples) {
                true => self.run.notes.add_loss(note),
                false => self.run.notes.add(note),
            }
        }
        self.finish(true)
    }

    /// Reads everything that processes have recorded, and ends the frames that are still open.
    fn read_everything(&mut self) {
        self.run.read_definitions();
        self.wait_for_clock();
        clock::find_devices(&mut self.run);
        self.catch_up_to_the_end();
        (0..self.run.ingest.processes.len())
            .for_each(|process| liveness::close_locations(&mut self.run, process));
    }

    /// Determines the clock of the events, and its rate, if the run ended before they were known.
    fn wait_for_clock(&mut self) {
        if !self.run.clock_is_certain() {
            clock::find_clock(&mut self.run);
            if self.run.timeline.as_ref().is_some_and(|timeline| timeline.clock.timer != Timer::usual()) {
                self.run.notes.add_loss(
                    "the run ended before the counters were read with the clock of its events (SCOREP_TIMER)",
                );
            }
        }
        if self.run.timeline.is_none() && self.run.sampling.sampler.is_some() {
            std::thread::sleep(CALIBRATION_MIN.saturating_sub(self.run.began.instant.elapsed()));
            clock::set_clock(&mut self.run, Timer::usual());
        }
    }

    /// Adds a note that names the processes that the command has left running. The figures include what they have recorded until
    /// now.
    fn note_still_running(&mut self) {
        if self.run.options.mode != Mode::Collector || !self.run.command_has_ended() {
            return;
        }
        let mut running = self.run.ingest.still_running();
        running.extend(self.unrecorded_and_running());
        if running.is_empty() {
            return;
        }
        let mut named: Vec<String> = running.iter().take(NAMED_MAX).cloned().collect();
        if running.len() > NAMED_MAX {
            named.push(format!("{} more", running.len() - NAMED_MAX));
        }
        let note = format!(
            "the command has ended, but some of its processes are still running; they were measured until its end: {}",
            named.join(", ")
        );
        match self.run.ingest.processes.iter().any(|process| process.life.state == State::Running) {
            true => self.run.notes.add_loss(note),
            false => self.run.notes.add(note),
        }
    }

    /// Returns the programs and pids of the run's processes that are still running and have neither samples nor records.
    fn unrecorded_and_running(&self) -> Vec<String> {
        let Some(node) = &self.run.node else { return Vec::new() };
        node.read_processes();
        let is_known = |of: &ProcessCpu| {
            let mut known = self.run.ingest.processes.iter().filter(|process| process.has_pid_here());
            known.any(|process| (process.info.pid, process.info.start_time) == (of.pid, of.started))
        };
        let program = |pid: u32| std::fs::read_link(format!("/proc/{pid}/exe")).ok();
        let launcher = rustix::process::getppid().and_then(|pid| program(pid.as_raw_nonzero().get() as u32));
        // The process of `ampere run` that watches for signals is its child, with the same program.
        let is_of_the_command = |of: &ProcessCpu| launcher.is_none() || program(of.pid) != launcher;
        let runs = |of: &ProcessCpu| is_alive(of.pid, of.started) && !is_ending(of.pid);
        let running =
            node.processes().into_iter().filter(|of| runs(of) && !is_known(of) && is_of_the_command(of));
        let name = |pid: u32| std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        running.map(|of| format!("{} (process {})", printable(name(of.pid).trim_end()), of.pid)).collect()
    }

    fn catch_up_to_the_end(&mut self) {
        while catching_up::is_catching_up(&self.run) {
            self.run.drain_samples();
            self.run.spool_taken();
            catching_up::catch_up(&mut self.run, Timestamp::MAX);
        }
    }

    /// Lets the sampler read its counters a last time, and takes all of its samples.
    fn end_sampling(&mut self) {
        // The sampler's last reading is to include the last CPU time of processes that have ended.
        if let Some(node) = &self.run.node {
            self.run.command_end.iter().for_each(|end| node.command_used(end.cpu_ns));
            node.read_processes();
        }
        let attributor = self.run.timeline.as_ref().map(|timeline| &timeline.pipeline.attributor);
        if let Some(loss) = self.run.node.as_ref().zip(attributor).and_then(|(node, of)| node.loss(of)) {
            self.run.notes.add_loss(loss);
        }
        if let Some(timeline) = &mut self.run.timeline {
            let now = timeline.now(&self.run.session);
            let attributor = &mut timeline.pipeline.attributor;
            if self.run.sampling.sampler.is_some() {
                attributor.end_sampling(now);
            }
            // In a replay, devices should have been read for the whole time in which functions ran, up to now.
            let ran = self.run.options.replay.iter().flat_map(|replay| &replay.functions_ran);
            let ran = ran.filter(|(_, (first, _))| *first <= now);
            ran.for_each(|(node, (first, last))| attributor.extend_run(node, (*first, (*last).min(now))));
        }
        self.run.sampling.stop(&mut self.run.notes);
        clock::find_devices(&mut self.run); // the devices that the sampler announced last
        self.run.drain_samples();
        let Some(timeline) = &mut self.run.timeline else { return };
        timeline.pipeline.end_samples();
        self.run.spool_taken();
    }

    /// Adds notes about settings that do not match the run, now that everything about it is known.
    fn note_odd_settings(&mut self) {
        let Some(timeline) = &self.run.timeline else { return };
        let attributor = &timeline.pipeline.attributor;
        let devices = attributor.devices.iter().map(|device| device.info.metric.clone());
        let mut metrics: BTreeSet<String> = devices.collect();
        metrics.extend(self.run.options.replay.iter().flat_map(|replay| replay.metric_names.iter().cloned()));
        self.run.notes.extend(conflicts::notes(attributor, &metrics));
    }

    fn remake_output(&mut self) -> Result<(), ResultsError> {
        self.run.ingest.disk.release();
        if !self.run.ingest.disk.is_of(&self.run.options.output) {
            let remade = output::remake(&self.run.options.output, &self.run.options.run_id);
            self.run.output_again = remade.map_err(|why| self.write_elsewhere(why.into()))?;
            self.run.notes.add("the output directory was removed while the job ran, and was made again");
        }
        Ok(())
    }

    /// Adds notes about the parts of other nodes, about missing ranks, or about why nothing was recorded.
    fn note_missing_parts(&mut self) {
        let other_nodes = nodes::first_of(&self.run.options.output, &self.run.options.manifest);
        let missing = self.run_summary().note_of_missing_ranks(other_nodes.is_none());
        missing.into_iter().for_each(|note| self.run.notes.add_loss(note));
        if let Some(first) = &other_nodes {
            self.run
                .notes
                .add(ampere_figures::nodes::summaries::note(&self.run.options.manifest.node, first));
        } else if self.run.ingest.processes.is_empty()
            && !self.is_empty()
            && self.run.options.mode == Mode::Collector
            && self.run.options.replay.is_none()
        {
            self.run.notes.add(
                "nothing was recorded: no process that can see this run made MPI calls or has instrumented \
                 functions (-finstrument-functions, or Score-P)",
            );
        }
    }

    /// Whether the run ended before anything could be recorded.
    fn is_empty(&self) -> bool {
        self.run.ingest.processes.is_empty() && self.run.timeline.is_none()
    }

    /// Writes the trace, or notes why there is none.
    fn write_trace(&mut self, has_ended: bool, needs_no_settling: bool) -> Traced {
        let is_empty = self.is_empty();
        if is_empty {
            self.run.notes.add("the run ended before anything could be recorded: there is no trace");
        }
        let is_wanted = !is_empty && self.run.ingest.spool.wanted;
        if is_wanted && !output::holds_trace(&self.run.options.output) {
            self.announce_trace();
        }
        let power = self.take_power(needs_no_settling);
        let written = match is_wanted {
            true => self.write_archive(has_ended, Power::OfRun(&power)),
            false => Ok(0),
        };
        process_ends::look_for_latecomers(&self.run.ingest, &self.run.session, &mut self.run.notes);
        let is_cut = self.run_summary().trace_is_cut();
        let keeps_records = written.is_err() && self.run.timeline.is_some();
        if let Err(no_trace) = &written
            && keeps_records
        {
            self.keep_records(no_trace, is_cut);
        }
        let is_whole = written.is_ok() && !is_cut;
        match written {
            Ok(0) => {}
            Ok(left_out) => self.run.notes.add(format!(
                "the trace lacks {left_out} MPI messages and collectives. Possible reasons: a communicator includes processes \
                 that are not in the trace, spans two MPI_COMM_WORLDs or, with Score-P, has two groups; requests could not be followed; \
                 more than 1024 communicators and windows existed at once; or a call's partners are unknown"
            )),
            Err(NoTrace { why, .. }) => self.run.notes.add_loss(why),
        }
        Traced { is_whole, keeps_records }
    }

    /// Adds a reason if the collector ended first, or the trace lacks something, and no note states why.
    fn explain_incomplete(&mut self, has_ended: bool, is_whole: bool) {
        let lacks = match (has_ended, is_whole) {
            (true, true) => return,
            (true, false) => TRACE_IS_CUT,
            (false, _) => COLLECTOR_ENDED_FIRST,
        };
        if self.run_summary().is_complete(true) {
            self.run.notes.add_loss(lacks);
        }
    }

    /// Before the trace is written, the manifest records that it is being written, so that a successor removes a half-written
    /// trace, and nothing else of that name. If the manifest cannot be written, a half-written trace may be left, and a note
    /// reports it.
    fn announce_trace(&mut self) {
        let is_cut = self.run_summary().trace_is_cut();
        let mode = self.run.options.mode;
        let manifest = &mut self.run.options.manifest;
        manifest.progress.trace_begun = true;
        manifest.progress.has_ended |= mode == Mode::Collector;
        manifest.progress.is_drained |= mode != Mode::RecoveryFromDisk && !is_cut;
        let _ = manifest.save(&self.run.ingest.spool.directory);
    }

    /// Ends the recording of the power that is attributed to each location, and returns it; empty if it is known only after the
    /// trace is attributed again.
    fn take_power(&mut self, needs_no_settling: bool) -> Recorded {
        let is_whole = !self.run_summary().trace_is_cut();
        let Some(timeline) = &mut self.run.timeline else { return Recorded::default() };
        if let Err(why) = timeline.pipeline.attributor.end_recording() {
            self.run.notes.add(format!("the trace lacks the attributed power: {why}"));
        }
        if !needs_no_settling && is_whole {
            return Recorded::default();
        }
        std::mem::take(&mut timeline.power.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Writes the trace. Returns the number of messages that were left out.
    fn write_archive(&self, has_ended: bool, power: Power) -> Result<u64, NoTrace> {
        let Some(timeline) = &self.run.timeline else {
            return Err(NoTrace { why: self.why_nothing_is_left(), was_begun: false });
        };
        let samples = self.run.sampling.samples.as_ref();
        let run = TracedRun {
            ticks_per_second: timeline.clock.ticks_per_second,
            realtime_ns: &|time| timeline.clock.realtime_ns(time),
            regions: &timeline.pipeline.attributor.regions,
            processes: self.run.ingest.processes.iter().map(|process| process.as_traced()).collect(),
            metrics: samples.map_or(&[][..], |samples| &samples.metrics),
            samples: samples.and_then(|samples| samples.reader.spool.as_ref()),
            power,
            knows_cpu_times: timeline.pipeline.attributor.knows_cpu_times,
            complete: self.run_summary().is_complete(has_ended) && !self.run_summary().trace_is_cut(),
            is_part: nodes::first_of(&self.run.options.output, &self.run.options.manifest).is_some(),
        };
        write::write(&self.run.options.output, &self.run.ingest.spool.directory, &run)
    }

    /// Saves in the manifest what is needed to make the trace later, when the rings no longer exist.
    fn keep_records(&mut self, no_trace: &NoTrace, is_cut: bool) {
        let losses = self.losses();
        let is_there = output::holds_trace(&self.run.options.output);
        let reads_rings = self.run.options.mode != Mode::RecoveryFromDisk;
        let manifest = &mut self.run.options.manifest;
        // A trace that could not be written completely has usually been removed again.
        manifest.progress.trace_begun &= no_trace.was_begun && is_there;
        manifest.progress.is_drained |= reads_rings && !is_cut;
        manifest.progress.losses = Some(losses);
        manifest.remove_collector();
        self.run.options.save_manifest(&self.run.ingest.spool, &mut self.run.notes);
        self.run.command_end.iter().for_each(|end| end.save(&self.run.ingest.spool.directory));
    }

    /// Returns the losses for a trace that is made after the rings are gone.
    fn losses(&self) -> SavedLosses {
        let before = self.run.options.manifest.progress.losses.as_ref();
        let mut records = before.map(|before| before.records).unwrap_or_default();
        records.raise(&self.run_summary().record_losses().only_in_rings());
        SavedLosses {
            records,
            notes: self.run.notes.lines().to_vec(),
            missing: self.run.notes.losses().to_vec(),
        }
    }

    /// Returns the reason why there is no trace: no event showed which clock its times are from.
    fn why_nothing_is_left(&self) -> String {
        let read = self.run.ingest.locations().map(|location| location.reader.ring.position());
        match read.fold(0, u64::saturating_add) {
            0 => "no process wrote any event: there is no trace".to_owned(),
            read => format!(
                "{read} records had been moved from shared memory to disk, and are lost: there is no trace"
            ),
        }
    }

    /// Returns the final summary, and whether its tables were computed again from the trace, because events came late, links
    /// changed, readings were revised, or ranks may have waited for each other. The tables of a replay are those of the trace
    /// that was played.
    fn complete_summary(&mut self, before: Summary, complete: bool, traced: &mut Traced) -> (Summary, bool) {
        if output::holds_foreign_page(&self.run.options.output, &self.run.options.run_id) {
            let page = output::PAGE;
            self.run.notes.add(format!(
                "{page} belongs to another run and is kept: ampere report -f html makes the page of this one"
            ));
        }
        let played = self.figures_of_played();
        let mut summary = self.run_summary().made_by(complete, |attributor, run, quality| match &played {
            // The trace's figures have notes of their own.
            Some(_) => Summary { run, quality, ..before },
            None => before.described_again(attributor, run, quality),
        });
        let unsettled = self.unsettled(&summary);
        let has_trace = traced.is_whole && self.run.ingest.spool.wanted;
        let waits = has_trace && self.wants_waits(&mut summary);
        let is_recomputed = has_trace && !unsettled.is_empty();
        if is_recomputed {
            self.settle(&mut summary, &unsettled, waits, traced);
        }
        if let Some(played) = played {
            take_played(&mut summary, played);
            return (summary, true);
        }
        if is_recomputed {
            return (summary, true);
        }
        if waits {
            let are_found = self.find_waits(&mut summary);
            return (summary, are_found);
        }
        if summary.quality.records.late_events > 0 {
            summary.run.notes.push(format!(
                "{} events came late and are charged as if they happened when they came: {NO_TRACE}",
                summary.quality.records.late_events
            ));
        }
        if self.attribution(Attributor::links_changed_late) {
            let note = format!("{LINKS_MOVED}, and earlier joules were divided without knowing it");
            summary.run.notes.push(note);
        }
        if self.attribution(Attributor::leaves_kernels_out) {
            summary.run.notes.push(format!("{KERNELS_LEFT_OUT}, and {NO_TRACE}"));
        }
        if self.attribution(Attributor::has_learned_baselines) {
            let note = format!("{BASELINES_LEARNED}, and all earlier joules count as dynamic: {NO_TRACE}");
            summary.run.notes.push(note);
        }
        (summary, false)
    }
}
