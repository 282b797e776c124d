//! One node's run, live: the body of the collector's loop, and what is due in it.
//!
//! ```text
//! mod.rs          one round: read definitions, drain rings, attribute what is certain, publish
//! clock.rs        the clock of the timestamps, and the devices that are read with it
//! liveness.rs     which processes are running, and what happens to those that have ended
//! stacks.rs       whose stacks are sampled, and when
//! catching_up.rs  replaces a killed collector
//! ```

pub(crate) mod catching_up;
pub(crate) mod clock;
pub(crate) mod liveness;
pub mod stacks;

use crate::ingest::{Ingest, Round, StillExpected, finding, limits};
use crate::live_timeline::LiveTimeline;
pub use crate::node_watch::NodeWatch;
use crate::notes::Notes;
pub use crate::options::{Mode, Options};
use crate::run_directory::command_end::CommandEnd;
use crate::sampling::Sampling;
use crate::sampling::clock::{Timer, best_reading};
use crate::sampling::samples::Samples;
use crate::serving::latest::Latest;
use crate::serving::publishing::{Published, Publisher};
use crate::stacks::StackSampling;
use ampere_model::{Clocks, Timestamp};
use ampere_ring::Session;
use ampere_settings::Config;
use ampere_trace::spool::SpoolDirectory;
use std::time::{Duration, Instant};

/// The longest time between two rounds in which all rings are drained and their events attributed. In between, only rings that
/// fill up are drained: with hundreds of threads that have few events each, reading a handful at a time would cost more than the
/// events.
const THOROUGH_PERIOD: Duration = Duration::from_millis(100);
/// The longest time between two such rounds while no one requests the figures.
const UNWATCHED_PERIOD: Duration = Duration::from_millis(200);
/// All rings are also drained after this number of records, so that these are still in the cache when they are attributed.
const THOROUGH_RECORDS: usize = 1 << 18;
/// Upper bound on waiting for stack samples.
const STACK_WAIT_MAX: Duration = Duration::from_millis(500);
/// The longest time for which the command's start waits for the counters. A vendor's library can take a second.
const COUNTERS_WAIT_MAX: Duration = Duration::from_millis(100);

/// A node's run: its parts (ingest, sampling and so on), and when each is due.
pub struct LiveRun {
    pub(crate) session: Session,
    pub(crate) options: Options,
    pub(crate) began: Began,
    pub(crate) ingest: Ingest,
    pub(crate) sampling: Sampling,
    /// The pipeline; `None` until the rate of the run's clock is known.
    pub(crate) timeline: Option<LiveTimeline>,
    pub(crate) publisher: Publisher,
    /// `None` in a replay, and in a run that has ended.
    pub(crate) node: Option<NodeWatch>,
    pub(crate) notes: Notes,
    /// The output directory, if it has been made again.
    pub(crate) output_again: Option<ampere_owned::Held>,
    next_thorough: Instant,
    /// Records that were taken out of rings since the last thorough round.
    taken: usize,
    next_liveness: Instant,
    /// How the command of `ampere run` ended, once that is known.
    pub(crate) command_end: Option<CommandEnd>,
    /// Whether nothing has happened for a while.
    pub is_idle: bool,
}

/// The time of the run's start, on all clocks.
pub(crate) struct Began {
    pub clocks: Clocks,
    pub instant: Instant,
}

impl LiveRun {
    /// `node` is present if the run is running now, on this machine. It counts the CPU time of the run's processes, from which
    /// the estimate is made.
    pub fn new(
        session: Session,
        options: Options,
        node: Option<NodeWatch>,
        latest: Latest,
    ) -> Result<LiveRun, ampere_ring::Error> {
        let rings_are_lost = options.mode == Mode::RecoveryFromDisk;
        let mut store = options.manifest.store(&options.spool);
        if options.mode == Mode::Collector && options.config.trace {
            let _ = store.begin(); // if that fails, the first records are written elsewhere, or the failure is noted then
        }
        let spool = SpoolDirectory::new(&options.spool, store, options.config.trace, rings_are_lost);
        let clocks = options.manifest.started();
        let begins = options.mode == Mode::Collector && options.manifest.clock().is_none();
        let mut run = LiveRun {
            began: Began { clocks, instant: instant_of(&clocks) },
            ingest: Ingest::new(spool, begins, options.manifest.node.clone()),
            sampling: Sampling::new(session.directory()),
            timeline: None,
            publisher: Publisher::new(latest, options.config.metrics.most_series),
            node,
            notes: Notes::default(),
            output_again: None,
            next_thorough: Instant::now(),
            taken: 0,
            next_liveness: Instant::now(),
            command_end: None,
            is_idle: false,
            session,
            options,
        };
        clock::begin_replay(&mut run)?;
        clock::take_over(&mut run);
        Ok(run)
    }

    /// Returns the session: the shared memory that ranks attach to.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Returns the figures that were published last.
    pub fn latest(&self) -> &Latest {
        &self.publisher.latest
    }

    /// Returns the notes that the summary will contain.
    pub fn notes(&self) -> &[String] {
        self.notes.lines()
    }

    /// Adds a note to the summary.
    pub fn add_note(&mut self, line: impl Into<String>) {
        self.notes.add(line);
    }

    /// Adds a note about a loss, which makes the run incomplete.
    pub fn add_loss(&mut self, line: impl Into<String>) {
        self.notes.add_loss(line);
    }

    /// Returns the number of ranks and other processes that have attached since the run began.
    pub fn processes_seen(&self) -> usize {
        self.ingest.processes_seen()
    }

    /// Whether there were processes and all of them have ended.
    pub fn have_all_ended(&mut self) -> bool {
        self.ingest.have_all_ended(&self.session)
    }

    /// Reads how the command of `ampere run` ended, if `ampere run` has recorded that.
    pub fn learn_command_end(&mut self) {
        if self.command_end.is_none() {
            self.command_end = CommandEnd::load(self.session.directory());
            let notes = self.command_end.iter().flat_map(|end| end.notes.iter().cloned());
            self.notes.extend(notes);
        }
    }

    /// Whether the command of `ampere run` is known to have ended.
    pub fn command_has_ended(&self) -> bool {
        self.command_end.is_some()
    }

    /// Returns what is still expected after the command of `ampere run` has ended.
    pub fn still_expected(&mut self) -> Option<StillExpected> {
        self.read_definitions();
        // A location ends after all of its records.
        if catching_up::is_catching_up(self) {
            return Some(StillExpected::ReadAgain);
        }
        self.next_liveness = Instant::now();
        liveness::check(self);
        let was_killed = self.command_end.as_ref().is_some_and(|end| end.signal().is_some());
        self.ingest.still_expected(&self.session, was_killed)
    }

    /// Starts the sampler of the counters, which opens them in a thread of its own.
    pub fn sample_counters(&mut self) {
        if self.sampling.sampler.is_none() && self.timeline.is_none() {
            clock::start_sampler(self, Timer::usual());
        }
    }

    /// Waits until the counters are open, for up to [`COUNTERS_WAIT_MAX`]: energy before their first reading is unknown.
    pub fn await_counters(&self) {
        self.sampling.sampler.iter().for_each(|sampler| sampler.wait_until_found(COUNTERS_WAIT_MAX));
    }

    /// Returns the time until a round attributes energy, if one is planned.
    pub fn until_thorough(&self) -> Option<Duration> {
        self.timeline.as_ref().map(|_| self.next_thorough.saturating_duration_since(Instant::now()))
    }

    /// Does one round: reads definitions, drains rings, attributes what is certain, and publishes.
    pub fn round(&mut self) -> Round {
        self.session.beat();
        clock::find_clock_and_devices(self);
        let Some(timeline) = &self.timeline else {
            liveness::check(self);
            return Round::default();
        };
        // These times are taken before any ring is read: records with earlier timestamps that are not in a ring by now are late.
        let now = timeline.now(&self.session);
        let stacks_until = self.sampling.stacks.as_ref().map_or(Timestamp::MAX, StackSampling::watermark);
        self.read_definitions();
        liveness::take_over_ended_processes(self);
        let catching_up = catching_up::is_catching_up(self);
        let is_due = self.taken >= THOROUGH_RECORDS || self.next_thorough <= Instant::now();
        // Figures are published right after a thorough round.
        let thorough = is_due || self.publisher.is_due() || self.is_replayed() || catching_up;
        let round = self.drain_rings(thorough, now);
        self.taken += round.records;
        if !thorough && self.ingest.is_ring_pressed() {
            self.spool_taken();
        }
        if thorough {
            let certain = self.attribute_samples(now, stacks_until);
            if catching_up
                || self.is_replayed()
                || self.ingest.is_spooling_due(self.sampling.samples.as_ref())
            {
                self.spool_taken();
            }
            if catching_up {
                catching_up::catch_up(self, certain);
                self.next_thorough = Instant::now(); // nothing is published before all is attributed
                return Round { fullest: 1.0, ..round };
            }
            self.advance_to(certain);
            if let Some(timeline) = &mut self.timeline {
                timeline.pipeline.attributor.learn_baselines();
                self.ingest.look_at_callpaths(timeline, now, &mut self.notes);
                self.publisher.see_power(timeline);
            }
            stacks::find_recorded(self);
        }
        liveness::check(self);
        if self.publisher.is_due() {
            self.publish();
        }
        if thorough {
            // This is done after publishing, so that both are next due at the same time.
            let period = if self.publisher.is_unwatched() { UNWATCHED_PERIOD } else { THOROUGH_PERIOD };
            (self.next_thorough, self.taken) = (Instant::now() + period, 0);
        }
        if let Some(sampler) = &self.sampling.sampler {
            sampler.set_calm(self.is_idle);
        }
        round
    }

    /// Whether the figures are older than those of the killed collector that this one replaces. They are not published then,
    /// because published figures must not decrease.
    fn is_behind_predecessor(&self) -> bool {
        self.timeline.as_ref().is_some_and(|timeline| timeline.watermark < self.sampling.predecessors_last)
    }

    fn is_replayed(&self) -> bool {
        self.timeline.as_ref().is_some_and(|timeline| timeline.clock.is_replayed())
    }

    fn drain_rings(&mut self, thorough: bool, now: Timestamp) -> Round {
        match self.timeline.as_mut().filter(|timeline| timeline.clock_is_certain) {
            Some(timeline) => self.ingest.drain_all(timeline, thorough, now, &mut self.notes),
            None => Round::default(),
        }
    }

    /// Hands over the new samples. Returns the watermark: the time before which no further event is expected. All stack samples
    /// and CPU times before `stacks_until` are in the rings that were read since `now`.
    fn attribute_samples(&mut self, now: Timestamp, stacks_until: Timestamp) -> Timestamp {
        self.drain_samples();
        let Some(timeline) = &mut self.timeline else { return 0 };
        timeline.pipeline.attributor.learn_rises();
        timeline.pipeline.attributor.judge_devices(false);
        if timeline.pipeline.waiting() > limits::WAITING_MAX {
            let future = now.saturating_add(timeline.clock.ticks(limits::FUTURE));
            self.ingest.reduce_waiting_events(timeline, now, future, &mut self.notes);
        }
        let is_replayed = timeline.clock.is_replayed();
        let slack = if is_replayed { 0 } else { timeline.clock.ticks(self.options.config.attribution.slack) };
        let longest = timeline.clock.ticks(STACK_WAIT_MAX);
        // If a killed collector was replaced, the first samples and CPU times may be of a long time ago.
        let is_new =
            self.sampling.stacks.as_ref().is_some_and(|stacks| stacks.began.elapsed() < STACK_WAIT_MAX);
        let stacks = stacks_until.max(if is_new { 0 } else { now.saturating_sub(longest) });
        now.saturating_sub(slack).min(timeline.behind.unwrap_or(Timestamp::MAX)).min(stacks)
    }

    pub(crate) fn drain_samples(&mut self) {
        // The sampler announces each device and each name of work before the first sample of it.
        let waiting = self.sampling.samples.as_mut().map_or(0, Samples::waiting);
        clock::find_devices(self);
        let (Some(samples), Some(timeline)) = (&mut self.sampling.samples, &mut self.timeline) else {
            return;
        };
        samples.drain(waiting, &mut self.ingest.batch, timeline);
    }

    /// Writes the records that were taken out of the rings to disk.
    pub(crate) fn spool_taken(&mut self) {
        self.ingest.spool_taken(self.sampling.samples.as_mut(), &mut self.notes);
    }

    /// Attributes everything before this time.
    pub(crate) fn advance_to(&mut self, time: Timestamp) {
        let Some(timeline) = &mut self.timeline else { return };
        timeline.watermark = timeline.watermark.max(time);
        // The lag is in the session's time: in a replay, an hour may pass in a second.
        let wanted = self.options.config.attribution.stream_lag;
        let longest_lag = timeline.clock.ticks(wanted.unwrap_or(Config::STREAM_LAG));
        let replayed = self.options.replay.as_ref().filter(|_| wanted.is_none());
        let longest_lag = replayed.map_or(longest_lag, |r| r.longest_lag_ticks.max(longest_lag));
        timeline.advance(longest_lag, self.ingest.awaits_streams());
    }

    /// Reads the logs if a process has announced new entries.
    pub(crate) fn read_definitions(&mut self) {
        let (node, replay) = (self.node.as_ref(), self.options.replay.as_ref());
        if finding::read_logs(&mut self.ingest, &self.session, node, replay, &mut self.notes) {
            self.add_new_definitions();
            stacks::sample_found(self);
            catching_up::look_for_lost_beginnings(self);
            stacks::find_recorded(self);
        }
    }

    /// Adds new definitions to the attributor, once the clock is certain. Until then, the attributor may be replaced.
    pub(crate) fn add_new_definitions(&mut self) {
        let Some(timeline) = self.timeline.as_mut().filter(|timeline| timeline.clock_is_certain) else {
            return;
        };
        let known = &mut self.options.manifest.progress.queues;
        let mut has_changed = false;
        for process in &mut self.ingest.processes {
            if let Some(node) =
                self.node.as_ref().filter(|_| timeline.pipeline.attributor.distinguishes_gpus())
                && process.count_first_queue_check()
            {
                let used = liveness::gpus_of(process, node, self.sampling.sampler.as_ref());
                has_changed |= process.find_gpus(used, known);
            }
            if !known.is_empty() {
                process.set_gpus(process.gpus_among(known));
            }
        }
        if has_changed {
            self.options.save_manifest(&self.ingest.spool, &mut self.notes);
        }
        finding::add_new_definitions(&mut self.ingest, timeline, &mut self.notes);
    }

    pub(crate) fn clock_is_certain(&self) -> bool {
        self.timeline.as_ref().is_some_and(|timeline| timeline.clock_is_certain)
    }

    /// Publishes the current figures for requests over the network, except while older records are still to be attributed.
    pub fn publish(&mut self) {
        if !self.is_behind_predecessor() && !catching_up::is_catching_up(self) {
            self.publish_as(false);
        }
    }

    /// Publishes the current figures. `is_last`: the run has ended.
    pub(crate) fn publish_as(&mut self, is_last: bool) {
        self.node.iter_mut().for_each(NodeWatch::look);
        let published = self.timeline.as_ref().map(|timeline| Published {
            options: &self.options,
            timeline,
            now: timeline.now(&self.session),
            ingest: &mut self.ingest,
            sampling: &self.sampling,
            node: self.node.as_ref(),
            elapsed: self.began.instant.elapsed(),
        });
        self.publisher.publish(published, is_last);
    }
}

/// Returns the instant of this reading of the clocks, or the present if the reading is from before the last boot.
fn instant_of(clocks: &Clocks) -> Instant {
    let now = best_reading();
    let ago = Duration::from_nanos(now.monotonic_ns.saturating_sub(clocks.monotonic_ns));
    Instant::now().checked_sub(ago).unwrap_or_else(Instant::now)
}
