//! One node's run, live: the loop's body.

use crate::ingest::process::{Process, State};
use crate::ingest::{Ingest, Outlasting, Round, limits};
use crate::live_timeline::LiveTimeline;
pub use crate::node_watch::NodeWatch;
use crate::notes::Notes;
use crate::options::LIVENESS_PERIOD;
pub use crate::options::{Mode, Options};
use crate::run_directory::command_end::CommandEnd;
use crate::sampling::Sampling;
use crate::sampling::clock::{CALIBRATION, CALIBRATION_MIN, SessionClock, Timer, best_reading, recognise};
use crate::sampling::sampler::Sampler;
use crate::sampling::samples::FoundCounter;
use crate::serving::latest::Latest;
use crate::serving::publishing::{Published, Publisher};
use crate::stacks::StackSampling;
use ampere_counters::UsedGpus;
use ampere_model::{Clocks, Timestamp};
use ampere_ring::{Kind, Session};
use ampere_settings::{Config, StackPeriod};
use ampere_timeline::attributor::Attributor;
use ampere_timeline::merger::Merger;
use ampere_trace::spool::SpoolDirectory;
use std::time::{Duration, Instant};

/// How often all rings are drained and what is in them attributed, at least. In between, only those are that fill up: of hundreds of
/// threads with few events each, looking at a handful at a time would cost more than the events.
const THOROUGH_PERIOD: Duration = Duration::from_millis(100);
/// After so many records it is time, too: they are still in the cache when they are attributed.
const THOROUGH_RECORDS: usize = 1 << 18;
/// So long is waited for samples of stacks at most.
const LONGEST_STACK_WAIT: Duration = Duration::from_millis(500);
/// Batches of what an earlier collector has read that are decoded between two looks at the rings: some 50 ms.
const BATCHES_PER_ROUND: usize = 32;
/// How long the command's start waits for the counters. A vendor's library can take a second.
const COUNTERS_WAIT_MAX: Duration = Duration::from_millis(100);
/// Records in which a first event is looked for.
const FIRST_RECORDS: usize = 64;

/// A node's run: its parts (ingest, sampling and so on), and when each is due.
pub struct LiveRun {
    pub(crate) session: Session,
    pub(crate) options: Options,
    pub(crate) began: Began,
    pub(crate) ingest: Ingest,
    pub(crate) sampling: Sampling,
    /// `None` until it is known how fast the run's clock goes.
    pub(crate) timeline: Option<LiveTimeline>,
    pub(crate) publisher: Publisher,
    /// `None` in a replay, and in a run that is over.
    pub(crate) node: Option<NodeWatch>,
    pub(crate) notes: Notes,
    /// The output directory, where it has been made again.
    pub(crate) output_again: Option<ampere_owned::Held>,
    next_thorough: Instant,
    /// Records that were taken out of rings since the last thorough round.
    taken: usize,
    next_liveness: Instant,
    /// How the command of `ampere run` ended, once that is known.
    pub(crate) command_end: Option<CommandEnd>,
    /// The loop has seen nothing happen for a while.
    pub is_idle: bool,
}

/// When the run began, by all clocks.
pub(crate) struct Began {
    pub clocks: Clocks,
    pub instant: Instant,
}

impl LiveRun {
    /// `node`: of a run that goes on now, on this machine. The estimate is made from the CPU time of the run's processes, which it
    /// counts.
    pub fn new(
        session: Session,
        options: Options,
        node: Option<NodeWatch>,
        latest: Latest,
    ) -> Result<LiveRun, ampere_ring::Error> {
        let rings_are_lost = options.mode == Mode::RecoveryFromDisk;
        let store = options.manifest.store(&options.spool);
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
        run.begin_replay()?;
        run.take_over();
        Ok(run)
    }

    /// The shared memory that ranks attach to.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// The figures that were published last.
    pub fn latest(&self) -> &Latest {
        &self.publisher.latest
    }

    /// Lines about the run that its summary will have.
    pub fn notes(&self) -> &[String] {
        self.notes.lines()
    }

    /// A line that the summary will have.
    pub fn add_note(&mut self, line: impl Into<String>) {
        self.notes.add(line);
    }

    /// Ranks and other processes that have attached since the run began.
    pub fn processes_seen(&self) -> usize {
        self.ingest.processes_seen()
    }

    /// Whether processes have come and all of them are over.
    pub fn all_over(&mut self) -> bool {
        self.ingest.all_over(&self.session)
    }

    /// Reads how the command of `ampere run` ended, where `ampere run` has left that.
    pub fn learn_command_end(&mut self) {
        if self.command_end.is_none() {
            self.command_end = CommandEnd::load(self.session.directory());
        }
    }

    /// Whether the command of `ampere run` is known to have ended.
    pub fn command_has_ended(&self) -> bool {
        self.command_end.is_some()
    }

    /// The command of `ampere run` has ended: what of it may still come, if there is anything.
    pub fn outlasting(&mut self) -> Option<Outlasting> {
        self.read_definitions();
        // The end of a location comes after all of its records.
        if self.is_catching_up() {
            return Some(Outlasting::ReadAgain);
        }
        self.next_liveness = Instant::now();
        self.check_liveness();
        let was_killed = self.command_end.as_ref().is_some_and(|end| end.signal().is_some());
        self.ingest.outlasting(&self.session, was_killed)
    }

    /// Starts the sampler of the counters, which opens them in a thread of its own.
    pub fn sample_counters(&mut self) {
        if self.sampling.sampler.is_none() && self.timeline.is_none() {
            self.start_sampler(Timer::usual());
        }
    }

    /// Waits until the counters are open, or for [`COUNTERS_WAIT_MAX`]: what is used before their first reading is not known.
    pub fn await_counters(&self) {
        self.sampling.sampler.iter().for_each(|sampler| sampler.wait_until_found(COUNTERS_WAIT_MAX));
    }

    /// Samples stacks, if that is wanted: of what `ampere run` is about to start, or has started before an earlier collector was
    /// killed, and of processes that are found.
    pub fn sample_stacks(&mut self, launcher: Option<u32>, takes_over: bool) {
        let period = self.options.config.sampler.stacks.and_then(StackPeriod::period);
        let Some(period) = period.filter(|_| self.options.replay.is_none()) else { return };
        let run_cpu = self.node.as_ref().map(NodeWatch::shared);
        let launched = launcher.filter(|_| !takes_over);
        match StackSampling::begin(self.session.directory(), launched, period, run_cpu) {
            Ok(stacks) => {
                if let Some(why) = &stacks.failure {
                    self.notes.add(format!("no stacks are sampled: {why}"));
                }
                let running = launcher.filter(|_| takes_over).map(descendants).unwrap_or_default();
                running.into_iter().for_each(|process| stacks.add(process));
                self.sampling.stacks = Some(stacks);
            }
            Err(why) => self.notes.add(format!("no stacks are sampled: {why}")),
        }
    }

    /// Samples the stacks of processes that were started by none that is sampled: of those that write logs, and of commands.
    fn sample_found(&mut self) {
        for command in self.ingest.take_commands() {
            match &self.sampling.stacks {
                Some(stacks) if command.waits => stacks.add_command(command),
                Some(stacks) => stacks.add(command.pid),
                None => self.session.release_command(&command),
            }
        }
        let Some(stacks) = &self.sampling.stacks else { return };
        self.ingest.take_found().for_each(|process| stacks.add(process));
    }

    /// Nothing more is sampled: what there is, is in the rings. Gives the CPU time from one sample to the next where it is not what
    /// was asked for.
    pub(crate) fn end_stacks(&mut self) -> Option<Duration> {
        let stacks = self.sampling.stacks.take();
        self.note_killed_sampler(stacks.as_ref().is_some_and(|stacks| stacks.failure.is_none()));
        let said = stacks?.stop();
        self.notes.extend(said.notes);
        said.losses.into_iter().for_each(|loss| self.notes.add_loss(loss));
        if said.is_loss {
            self.notes.set_incomplete();
        }
        said.period
    }

    /// Standard errors are those of samples so far apart.
    pub(crate) fn set_stack_period(&mut self, period: Duration) {
        self.ingest.processes.iter_mut().for_each(|process| process.set_stack_period(period));
        self.timeline.iter_mut().for_each(|timeline| timeline.attributor.stack_period = Some(period));
    }

    /// A collector before this one was killed while it sampled stacks.
    fn note_killed_sampler(&mut self, goes_on: bool) {
        if !self.ingest.processes.iter().any(Process::lost_its_sampler) {
            return;
        }
        let what = "what a killed collector had not yet written of the samples of stacks is missing, and it is not known how much";
        if goes_on {
            let until = "until another collector sampled on, that time is in the functions before it, or in none but the program";
            self.notes.add(format!("{what}: {until}"));
        } else {
            self.notes.add_loss(format!("{what}: no stack was sampled after that"));
        }
    }

    /// Of a replay, clock and devices are known before it begins.
    fn begin_replay(&mut self) -> Result<(), ampere_ring::Error> {
        let Some(replay) = &self.options.replay else { return Ok(()) };
        let clock = SessionClock::replayed(replay.ticks_per_second, replay.first, replay.realtime_ns);
        let mut timeline = LiveTimeline::new(clock, true, &self.options.config, &self.ingest.spool);
        self.notes.extend(replay.notes.iter().chain(&replay.odd).cloned());
        let found = replay.metrics.iter().map(FoundCounter::replayed).collect();
        self.sampling.begin_replay(found, &self.ingest.spool, &mut timeline)?;
        self.timeline = Some(timeline);
        Ok(())
    }

    /// Goes on from the manifest that an earlier collector has left: its clock, and its sampler's ring.
    fn take_over(&mut self) {
        let Some((clock, is_certain)) = self.options.manifest.clock() else { return };
        if self.timeline.is_some() {
            return;
        }
        let mut timeline = LiveTimeline::new(clock, is_certain, &self.options.config, &self.ingest.spool);
        let run_cpu = self.node.as_ref().map(NodeWatch::shared);
        let (options, spool) = (&mut self.options, &self.ingest.spool);
        self.sampling.take_over(options, spool, run_cpu, &mut timeline, &mut self.notes);
        self.timeline = Some(timeline);
    }

    /// One round: read definitions, drain rings, attribute what is certain, publish.
    pub fn round(&mut self) -> Round {
        self.session.beat();
        self.find_clock_and_devices();
        let Some(timeline) = &self.timeline else {
            self.check_liveness();
            return Round::default();
        };
        // Before anything is read: what has a timestamp before this and is not in a ring by now is late.
        let now = timeline.now(&self.session);
        self.read_definitions();
        self.take_over_ended_processes();
        let catching_up = self.is_catching_up();
        let is_due = self.taken >= THOROUGH_RECORDS || self.next_thorough <= Instant::now();
        // What is published is as new as can be.
        let thorough = is_due || self.publisher.is_due() || self.is_replayed() || catching_up;
        let round = self.drain_rings(thorough, now);
        self.taken += round.records;
        if !thorough && self.ingest.is_ring_pressed() {
            self.spool_taken();
        }
        if thorough {
            let certain = self.attribute_samples(now);
            if catching_up
                || self.is_replayed()
                || self.ingest.is_spooling_due(self.sampling.samples.as_ref())
            {
                self.spool_taken();
            }
            if catching_up {
                self.catch_up(certain);
                self.next_thorough = Instant::now(); // nothing is published before all is attributed
                return Round { fullest: 1.0, ..round };
            }
            self.advance_to(certain);
            if let Some(timeline) = &mut self.timeline {
                self.ingest.look_at_callpaths(timeline, now, &mut self.notes);
            }
            self.sample_unrecorded();
        }
        self.check_liveness();
        if self.publisher.is_due() {
            self.publish();
        }
        if thorough {
            // This follows publishing, so that what is due next is due at the same time.
            (self.next_thorough, self.taken) = (Instant::now() + THOROUGH_PERIOD, 0);
        }
        if let Some(sampler) = &self.sampling.sampler {
            sampler.set_calm(self.is_idle);
        }
        round
    }

    fn is_replayed(&self) -> bool {
        self.timeline.as_ref().is_some_and(|timeline| timeline.clock.is_replayed())
    }

    /// No events come, and nothing asks for the figures.
    fn is_calm(&self) -> bool {
        self.is_idle && self.publisher.is_unwatched()
    }

    fn drain_rings(&mut self, thorough: bool, now: Timestamp) -> Round {
        match self.timeline.as_mut().filter(|timeline| timeline.clock_is_certain) {
            Some(timeline) => self.ingest.drain_all(timeline, thorough, now, &mut self.notes),
            None => Round::default(),
        }
    }

    /// Takes the samples that have come. Returns the time before which nothing is expected any more.
    fn attribute_samples(&mut self, now: Timestamp) -> Timestamp {
        self.drain_samples();
        let Some(timeline) = &mut self.timeline else { return 0 };
        timeline.attributor.learn_rises();
        timeline.attributor.judge_devices(false);
        if timeline.waiting() > limits::MOST_WAITING {
            let future = now.saturating_add(timeline.clock.ticks(limits::FUTURE));
            self.ingest.relieve(timeline, now, future, &mut self.notes);
        }
        let is_replayed = timeline.clock.is_replayed();
        let slack = if is_replayed { 0 } else { timeline.clock.ticks(self.options.config.attribution.slack) };
        let stacks = self.sampling.stacks.as_ref().map_or(Timestamp::MAX, StackSampling::watermark);
        let longest = timeline.clock.ticks(LONGEST_STACK_WAIT);
        let stacks = stacks.max(now.saturating_sub(longest));
        now.saturating_sub(slack).min(timeline.behind.unwrap_or(Timestamp::MAX)).min(stacks)
    }

    pub(crate) fn drain_samples(&mut self) {
        let (Some(samples), Some(timeline)) = (&mut self.sampling.samples, &mut self.timeline) else {
            return;
        };
        samples.drain(&mut self.ingest.batch, timeline);
    }

    /// Brings to disk what was taken out of the rings.
    pub(crate) fn spool_taken(&mut self) {
        self.ingest.spool_taken(self.sampling.samples.as_mut(), &mut self.notes);
    }

    /// Hands over what is before that time.
    pub(crate) fn advance_to(&mut self, time: Timestamp) {
        let Some(timeline) = &mut self.timeline else { return };
        timeline.watermark = timeline.watermark.max(time);
        // In the session's time: of a replay, an hour may pass in a second.
        let wanted = self.options.config.attribution.stream_lag;
        let longest_lag = timeline.clock.ticks(wanted.unwrap_or(Config::STREAM_LAG));
        let replayed = self.options.replay.as_ref().filter(|_| wanted.is_none());
        let longest_lag = replayed.map_or(longest_lag, |r| r.longest_lag_ticks.max(longest_lag));
        let streams = self.ingest.streams();
        let awaits_streams = self.ingest.awaits_streams();
        let samples = &mut self.sampling.samples;
        let queue_samples = |attributor: &mut Attributor, mergers: &mut [Merger]| {
            samples.iter_mut().for_each(|samples| samples.queue(attributor, mergers));
        };
        timeline.advance(queue_samples, &streams, longest_lag, awaits_streams);
    }

    /// Reads logs if a process has said that there is something new.
    pub(crate) fn read_definitions(&mut self) {
        let (node, replay) = (self.node.as_ref(), self.options.replay.as_ref());
        if self.ingest.read_logs(&self.session, node, replay, &mut self.notes) {
            self.introduce();
            self.sample_found();
            self.look_for_lost_beginnings();
            self.sample_unrecorded();
        }
    }

    /// What does not record its own functions is sampled: says so where that has changed. A process ceases to be sampled once it has
    /// been in a function of its own for a while, and is sampled again when its recording ends.
    fn sample_unrecorded(&mut self) {
        let (Some(timeline), Some(stacks)) = (&self.timeline, &self.sampling.stacks) else { return };
        for process in &mut self.ingest.processes {
            if let Some(is_recorded) = process.find_recording(&timeline.attributor, stacks.failure.is_none())
            {
                stacks.set_recorded(process.info.pid, is_recorded);
            }
        }
    }

    /// Makes what is new known to the attributor. Before the clock is certain the attributor may yet be made anew.
    pub(crate) fn introduce(&mut self) {
        let Some(timeline) = self.timeline.as_mut().filter(|timeline| timeline.clock_is_certain) else {
            return;
        };
        let samples = self.sampling.samples.as_mut();
        let known = &mut self.options.manifest.progress.queues;
        let mut has_queues = false;
        for process in &mut self.ingest.processes {
            if let Some(node) = self.node.as_ref().filter(|_| timeline.attributor.tells_gpus_apart())
                && process.is_first_queue_look_due()
            {
                let used = gpus_of(process, node, self.sampling.sampler.as_ref());
                has_queues |= matches!(used, UsedGpus::At(_));
                process.find_gpus(used, known);
            }
            if !known.is_empty() {
                process.set_gpus(known.get(&process.pid_and_start()));
            }
        }
        if has_queues {
            self.options.save_manifest(&self.ingest.spool, &mut self.notes);
        }
        self.ingest.introduce(timeline, samples, &mut self.notes);
    }

    fn find_clock_and_devices(&mut self) {
        self.sample_counters();
        if self.timeline.is_none() && self.began.instant.elapsed() >= CALIBRATION {
            self.set_clock(Timer::usual());
        }
        if !self.clock_is_certain() {
            self.read_definitions();
            if self.timeline.is_some() {
                self.find_clock();
            }
        }
        self.find_devices();
    }

    pub(crate) fn clock_is_certain(&self) -> bool {
        self.timeline.as_ref().is_some_and(|timeline| timeline.clock_is_certain)
    }

    fn start_sampler(&mut self, timer: Timer) {
        let run_cpu = self.node.as_ref().map(NodeWatch::shared);
        self.sampling.start(timer, None, &self.options, run_cpu, &mut self.notes);
    }

    /// The sampler may have opened its counters: they become devices.
    pub(crate) fn find_devices(&mut self) {
        let Some(timeline) = &mut self.timeline else { return };
        let (options, spool) = (&self.options, &self.ingest.spool);
        if self.sampling.find_devices(options, spool, timeline, &mut self.notes)
            && let Some(samples) = &mut self.sampling.samples
        {
            self.ingest.queue_streams(timeline, samples);
        }
    }

    /// The first event of the first process says which clock the run goes by. Until then it is taken to be the usual
    /// one, so that sampling begins before the program does.
    pub(crate) fn find_clock(&mut self) {
        let now = best_reading();
        let mut seen = None;
        let Ingest { processes, batch, .. } = &mut self.ingest;
        for process in processes {
            for location in &mut process.locations {
                batch.clear();
                let _ = location.ring.copy_out(batch, FIRST_RECORDS);
                let first = batch.iter().find(|record| matches!(record.kind(), Some(Kind::Enter)));
                if let Some(record) = first {
                    let joined = &process.info.clocks;
                    seen = seen.or(Some(recognise(record.word0, &earlier(joined), joined, &now)));
                }
            }
        }
        let timer = match seen {
            Some(Some(timer)) => timer,
            Some(None) => {
                self.notes.add(
                    "cannot tell which clock the events come from (SCOREP_TIMER): nothing is attributed rightly",
                );
                Timer::usual()
            }
            None => return,
        };
        if self.timeline.is_none() || timer != Timer::usual() {
            std::thread::sleep(CALIBRATION_MIN.saturating_sub(self.began.instant.elapsed()));
            self.set_clock(timer);
        }
        self.timeline.iter_mut().for_each(|timeline| timeline.clock_is_certain = true);
        self.remember_clock();
        self.introduce();
    }

    /// Begins to attribute by this clock. What was sampled by another one is forgotten: no event was before it.
    pub(crate) fn set_clock(&mut self, timer: Timer) {
        let clock = SessionClock::calibrated(timer, &self.began.clocks);
        let is_certain = self.clock_is_certain();
        self.timeline = Some(LiveTimeline::new(clock, is_certain, &self.options.config, &self.ingest.spool));
        self.publisher.forget_power();
        if timer != Timer::usual() && self.sampling.forget(&mut self.notes) {
            self.options.manifest.progress.breaks.clear();
            self.start_sampler(timer);
        }
        self.remember_clock();
    }

    pub(crate) fn remember_clock(&mut self) {
        let Some(timeline) = self.timeline.as_ref().filter(|_| self.options.replay.is_none()) else { return };
        self.options.manifest.set_clock(&timeline.clock, timeline.clock_is_certain);
        self.options.save_manifest(&self.ingest.spool, &mut self.notes);
    }

    /// Those who ask over the network get the figures as of now.
    pub fn publish(&mut self) {
        self.publish_as(false);
    }

    /// `is_last`: the run is over.
    pub(crate) fn publish_as(&mut self, is_last: bool) {
        self.node.iter_mut().for_each(NodeWatch::look);
        let is_calm = self.is_calm();
        let published = self.timeline.as_ref().map(|timeline| Published {
            options: &self.options,
            timeline,
            now: timeline.now(&self.session),
            ingest: &mut self.ingest,
            sampling: &self.sampling,
            node: self.node.as_ref(),
            elapsed: self.began.instant.elapsed(),
        });
        self.publisher.publish(published, is_calm, is_last);
    }

    fn check_liveness(&mut self) {
        if Instant::now() < self.next_liveness {
            return;
        }
        self.next_liveness = Instant::now() + LIVENESS_PERIOD;
        self.look_at_disks();
        for at in 0..self.ingest.processes.len() {
            if self.ingest.processes[at].life.state == State::Running && self.ingest.has_ended_silently(at) {
                // What it wrote before it ended is in its log and its rings.
                self.ingest.processes[at].read_log(&self.ingest.spool);
                self.introduce();
                if self.ingest.processes[at].life.state == State::Running {
                    self.ingest.mark_dead(at);
                }
            }
            if self.ingest.processes[at].life.state != State::Running {
                self.close_locations(at);
                self.ingest.check_unmeasured_successor(at);
            } else {
                self.look_at_threads(at);
                self.ingest.processes[at].look_at_unsampled_threads();
                self.look_at_queues(at);
                let now = self.timeline.as_ref().map(|timeline| timeline.now(&self.session));
                self.ingest.processes[at].life.seen_alive = now;
            }
        }
    }

    fn look_at_disks(&mut self) {
        let directory = self.options.manifest.records.as_deref();
        self.ingest.leave_full_directory(directory, &mut self.notes);
        if let Some(left) = self.ingest.shortage() {
            self.spool_taken();
            let samples = self.sampling.samples.as_mut().and_then(|samples| samples.spool.as_mut());
            self.ingest.end_trace(samples, &self.options.output, left, &mut self.notes);
            // What cannot be spooled has been said.
            self.timeline.iter_mut().for_each(|timeline| _ = timeline.attributor.end_recording());
        }
    }

    fn look_at_threads(&mut self, process: usize) {
        let of = &mut self.ingest.processes[process];
        of.look_at_threads();
        let (Some(timeline), Some(seconds)) = (&mut self.timeline, of.threads.seconds) else { return };
        timeline.attributor.set_cpu_seconds(process as u64, seconds);
        for location in &of.locations {
            if let Some(index) = location.index {
                let known = &mut timeline.attributor.locations[index.0 as usize];
                known.name.clone_from(&location.definition.name);
            }
        }
    }

    /// Looks which GPUs a process uses. The driver forgets it with the process: the manifest keeps it for the next collector.
    fn look_at_queues(&mut self, process: usize) {
        let (Some(node), Some(timeline)) = (&self.node, &self.timeline) else { return };
        let process = &mut self.ingest.processes[process];
        if !timeline.attributor.tells_gpus_apart() || !process.is_queue_look_due() {
            return;
        }
        let used = gpus_of(process, node, self.sampling.sampler.as_ref());
        let has_queues = matches!(used, UsedGpus::At(_));
        if process.find_gpus(used, &mut self.options.manifest.progress.queues) {
            if has_queues {
                self.options.save_manifest(&self.ingest.spool, &mut self.notes);
            }
            self.introduce();
        }
    }

    /// Ends what is still open on the locations of a process that is over, or is taken to be.
    pub(crate) fn close_locations(&mut self, process: usize) {
        while self.clock_is_certain() && self.ingest.processes[process].locations.iter().any(|l| !l.closed) {
            // Nothing is read of a location that the attributor does not know.
            self.introduce();
            let known = self.ingest.processes[process].locations.len();
            (0..known).for_each(|location| self.drain_to_its_end(process, location));
            self.spool_taken();
            let Some(timeline) = &mut self.timeline else { return };
            let end = self.ingest.end_of(process, timeline, timeline.now(&self.session));
            let keeps_rings = self.options.mode != Mode::Collector;
            for location in 0..known {
                let place = (self.session.directory(), keeps_rings);
                self.ingest.close_location(process, location, end, timeline, place);
            }
            // Its log may have been read meanwhile, and have told of another one.
            if self.ingest.processes[process].locations.len() == known {
                return;
            }
        }
    }

    /// What is there now, and no more: a process that is still running would never let the run end.
    fn drain_to_its_end(&mut self, process: usize, location: usize) {
        let live = &mut self.ingest.processes[process].locations[location];
        if live.closed {
            return;
        }
        let end = live.ring.position() + live.waiting() as u64;
        loop {
            let before = self.ingest.processes[process].locations[location].ring.position();
            let Some(timeline) = self.timeline.as_mut().filter(|_| before < end) else { return };
            let now = timeline.now(&self.session);
            self.ingest.drain_location(process, location, timeline, now, &mut self.notes);
            if self.ingest.processes[process].locations[location].ring.position() == before {
                return;
            }
            // Mergers grow with what is drained: let them go on, but no further than the others have been read.
            self.advance_to(0);
        }
    }

    /// Of processes that ended while there was no collector, everything is brought to disk: it is read in the order of time with
    /// the rest. What is open in those that did not end in order ends when they were last known to run.
    pub(crate) fn take_over_ended_processes(&mut self) {
        if !self.clock_is_certain() || !self.ingest.begins_to_take_over() {
            return;
        }
        for at in 0..self.ingest.processes.len() {
            let process = &self.ingest.processes[at];
            let is_alive = self.options.mode == Mode::Collector && process.is_alive();
            if process.life.state == State::Running && is_alive {
                continue;
            }
            self.ingest.processes[at].read_log(&self.ingest.spool);
            self.introduce();
            if self.ingest.processes[at].life.state == State::Running {
                self.ingest.mark_dead(at);
            }
            self.ingest.spool_all(at);
        }
    }

    pub(crate) fn is_catching_up(&self) -> bool {
        self.ingest.furthest_behind(self.sampling.samples.as_ref()).is_some()
    }

    /// Decodes more of what earlier collectors have spooled. `limit`: what is later may not have come yet.
    pub(crate) fn catch_up(&mut self, limit: Timestamp) {
        use crate::ingest::Again;
        for _ in 0..BATCHES_PER_ROUND {
            let samples = self.sampling.samples.as_ref();
            let Some((which, reached)) = self.ingest.furthest_behind(samples) else { return };
            self.advance_to(reached.min(limit));
            let Some(timeline) = &mut self.timeline else { return };
            match which {
                Again::Location(process, location) => {
                    let place = (self.options.mode, self.session.directory());
                    let last = self.sampling.predecessors_last;
                    self.ingest.read_again((process, location), place, last, timeline, &mut self.notes);
                }
                Again::Samples => {
                    let batch = &mut self.ingest.batch;
                    batch.clear();
                    let samples = self.sampling.samples.iter_mut();
                    samples.for_each(|samples| samples.read_again(batch, timeline, &mut self.notes));
                }
            }
        }
    }

    /// Records that were read and not kept: the run goes on, with what was before missing.
    fn look_for_lost_beginnings(&mut self) {
        if !self.ingest.take_lost_beginnings() {
            return;
        }
        let now = ampere_report::clock_text::rfc3339(best_reading().realtime_ns);
        let what = match self.options.mode {
            Mode::Collector => format!("the collector was killed, and another one went on at {now}"),
            _ => "the collector was killed".to_owned(),
        };
        self.notes.add_loss(format!(
            "{what}: records are kept on disk only for a trace, so what had been measured before is lost"
        ));
    }
}

/// The GPUs that a process uses now, as their drivers tell.
fn gpus_of(process: &Process, node: &NodeWatch, sampler: Option<&Sampler>) -> UsedGpus {
    let pid = process.info.pid;
    let of_libraries = sampler.map(|sampler| sampler.gpus_of(pid)).unwrap_or_default();
    node.gpus_of(pid).and(&of_libraries)
}

/// What a process has started, without this one.
fn descendants(process: u32) -> Vec<u32> {
    let children = |process: u32| {
        let tasks = std::fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
        let lists = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
        lists.flat_map(|list| list.split(' ').filter_map(|pid| pid.parse().ok()).collect::<Vec<u32>>())
    };
    let mut all: Vec<u32> = children(process).filter(|child| *child != std::process::id()).collect();
    let mut at = 0;
    while let Some(process) = all.get(at) {
        all.extend(children(*process).collect::<Vec<_>>());
        at += 1;
    }
    all
}

/// When the clocks showed this; now, if that was before this boot.
fn instant_of(clocks: &Clocks) -> Instant {
    let now = best_reading();
    let ago = Duration::from_nanos(now.monotonic_ns.saturating_sub(clocks.monotonic_ns));
    Instant::now().checked_sub(ago).unwrap_or_else(Instant::now)
}

/// Ten seconds before a reading: Score-P takes the time of the program's beginning before it loads a plugin.
fn earlier(clocks: &Clocks) -> Clocks {
    const NANOSECONDS: u64 = 10_000_000_000;
    Clocks {
        tsc: clocks.tsc.saturating_sub(5 * NANOSECONDS),
        monotonic_ns: clocks.monotonic_ns.saturating_sub(NANOSECONDS),
        monotonic_raw_ns: clocks.monotonic_raw_ns.saturating_sub(NANOSECONDS),
        realtime_ns: clocks.realtime_ns.saturating_sub(NANOSECONDS),
    }
}
