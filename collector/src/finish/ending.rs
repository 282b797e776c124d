//! How a run ends: processes that are over, the last events, the trace and the summary.

use crate::ingest::process::{LiveLocation, Process, State};
use crate::live::{LIVENESS_PERIOD, LiveRun, Mode};
use crate::overhead;
use crate::run_directory::command_end::CommandEnd;
use crate::run_directory::files::{write_whole, write_whole_bytes, write_whole_with};
use crate::run_directory::leftover;
use crate::run_directory::manifest;
use crate::run_directory::manifest::Losses;
use crate::run_directory::nodes;
use crate::run_directory::output;
use crate::sampling::clock::{CALIBRATION, Timer, best_reading};
use crate::sampling::gauges::Seen;
use ampere_counters::RunCpu;
use ampere_model::Timestamp;
use ampere_report;
use ampere_report::clock_text;
use ampere_report::missing;
use ampere_report::summary::{Ending, Gap, MpiRanks};
use ampere_report::summary::{Overhead, QualityFigures, Readings, Run, SamplerOverhead, Summary};
use ampere_ring::session::{ENV_DISABLE, switches_off};
use ampere_ring::{Kind, Record, Session};
use ampere_timeline::attributor::{Attributor, Unit};
use ampere_timeline::conflicts;
use ampere_trace::spool::{Retired, Spool};
use ampere_trace::write::{self, NoTrace, TracedRun};
use std::collections::BTreeSet;
use std::io::Write;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::time::Instant;

/// A run that is recovered ends with its last sample, or so long after it.
const UNSAMPLED_SECONDS: f64 = 0.1;
/// Notes of one kind.
const MOST_ALIKE: usize = 8;
const SAMPLES_REVISED: &str = "readings of a counter turned out to be wrong later";
const LINKS_MOVED: &str = "who spends from which device became known only while it ran";

impl LiveRun {
    /// Who did not end in order.
    fn endings(&self) -> Vec<Ending> {
        let date = |time: Option<Timestamp>| {
            let time = self.clock.zip(time).and_then(|(clock, time)| clock.realtime_ns(time));
            time.map_or_else(String::new, clock_text::rfc3339)
        };
        let command = CommandEnd::load(self.session.directory());
        let died = self.processes.iter().filter(|process| process.state == State::Died);
        let mut endings: Vec<Ending> = died
            .map(|process| {
                let pid = process.info.pid;
                let signal = command.as_ref().filter(|end| end.pid == pid).and_then(CommandEnd::signal);
                let what = match signal {
                    Some(signal) => format!("killed by {signal}"),
                    None => "ended without finishing its measurement".to_owned(),
                };
                let is_alone = process.rank.is_some_and(|(_, size)| size == 1) && process.replayed.is_none();
                let rank = process.rank_number().filter(|_| !is_alone);
                Ending { rank, pid, what, time: date(process.died_at), signal: signal.map(|s| s.0) }
            })
            .collect();
        // The one of which nothing is known last.
        endings.sort_by_key(|ending| (ending.time.is_empty(), ending.time.clone()));
        endings
    }

    /// Times without sampling.
    pub(crate) fn gaps(&self) -> Vec<Gap> {
        let (Some(samples), Some(clock), Some(attributor)) = (&self.samples, self.clock, &self.attributor)
        else {
            return Vec::new();
        };
        let date = |time| clock.realtime_ns(time).map_or_else(String::new, clock_text::rfc3339);
        let on_top = |device: usize| {
            attributor.devices[device].info.unit == Unit::Joules && attributor.whole(device).is_none()
        };
        let mut gaps: Vec<Gap> = samples
            .gaps
            .closed()
            .map(|gap| Gap {
                start: date(gap.begin),
                seconds: clock.seconds(gap.end.saturating_sub(gap.begin)),
                joules: Some(gap.joules.iter().filter(|(at, _)| on_top(*at)).map(|(_, joules)| joules).sum()),
            })
            .collect();
        // Nobody has sampled since the collector was killed, and the program went on.
        let locations = self.processes.iter().flat_map(|process| &process.locations);
        let last_event = locations.map(|location| location.stream.last_time()).max();
        if let (Some((_, last)), Some(event)) = (samples.span, last_event)
            && self.options.mode != Mode::Collector
            && clock.seconds(event.saturating_sub(last)) > UNSAMPLED_SECONDS
        {
            gaps.push(Gap { start: date(last), seconds: clock.seconds(event - last), joules: None });
        }
        gaps
    }

    /// Ranks and sizes of the processes. Of a process that became other programs, the last one's.
    fn mpi_ranks(&self) -> impl Iterator<Item = (u32, u32)> {
        let of_jobs = self.processes.iter().filter(|process| process.replayed.is_none());
        of_jobs.filter(|process| process.state != State::Replaced).filter_map(|process| process.rank)
    }

    /// Ranks that the launcher, or MPI, knows of and that never came. `is_alone`: no other node has a part of the run.
    fn look_for_missing_ranks(&mut self, is_alone: bool) {
        if self.options.replay.is_some() {
            return;
        }
        let mpi = MpiRanks::of(self.mpi_ranks());
        let ranks = mpi.as_ref().map_or_else(Vec::new, MpiRanks::missing);
        let size = mpi.map_or(0, |mpi| mpi.size);
        let here = missing::on_this_node(self.processes.iter().map(Process::environment));
        let of_all = || (is_alone && !ranks.is_empty()).then(|| missing::note_of_all_nodes(&ranks, size));
        if let Some(note) = missing::note_of_this_node(&here, Some((&ranks, size))).or_else(of_all) {
            self.is_incomplete = true;
            self.note(note);
        }
    }

    /// Two jobs in one run, one after the other or one by the other, have ranks of the same number.
    fn note_of_equal_ranks(&self) -> Option<String> {
        let ranks = self.mpi_ranks();
        let mut numbers: Vec<u32> = ranks.filter(|(_, size)| *size > 1).map(|(rank, _)| rank).collect();
        numbers.sort_unstable();
        let twice = numbers.windows(2).find(|pair| pair[0] == pair[1])?[0];
        Some(format!(
            "several processes are MPI Rank {twice}, as when mpirun is started twice, or by MPI_Comm_spawn: what is \
             shown of a rank is of all that have its number"
        ))
    }

    pub(crate) fn check_liveness(&mut self) {
        if Instant::now() < self.next_liveness {
            return;
        }
        self.next_liveness = Instant::now() + LIVENESS_PERIOD;
        self.look_at_room();
        for at in 0..self.processes.len() {
            let process = &self.processes[at];
            let is_over = || !process.is_alive() || process.is_another_program() || self.is_replaced(at);
            if process.state == State::Running && is_over() {
                // What it wrote before it ended is in its log and its rings.
                self.processes[at].read_log(&self.spool);
                self.tell_attributor();
                if self.processes[at].state == State::Running {
                    self.set_ended(at);
                }
            }
            if self.processes[at].state != State::Running {
                self.close_locations(at);
                // It runs as a program that is not measured, and may become one that is.
                let lives_on = self.processes[at].state == State::Replaced
                    && !self.is_replaced(at)
                    && self.processes[at].is_alive();
                self.processes[at].lives_on = lives_on;
                if !lives_on {
                    self.processes[at].rest();
                }
            } else {
                self.look_at_threads(at);
                self.processes[at].seen_alive = self.clock.map(|clock| clock.now(&self.session));
            }
        }
    }

    fn look_at_threads(&mut self, process: usize) {
        let of = &mut self.processes[process];
        of.look_at_threads();
        let (Some(attributor), Some(seconds)) = (&mut self.attributor, of.thread_seconds) else { return };
        attributor.set_cpu_seconds(process as u64, seconds);
        for location in &of.locations {
            if let Some(index) = location.index {
                attributor.locations[index.0 as usize].name.clone_from(&location.definition.name);
            }
        }
    }

    /// It did not say goodbye, and its program runs no more.
    pub(crate) fn set_ended(&mut self, process: usize) {
        let of = &self.processes[process];
        let is_replaced = self.is_replaced(process) || of.is_another_program();
        self.processes[process].state = if is_replaced { State::Replaced } else { State::Died };
    }

    /// Whether the process became another program, which is measured, too.
    fn is_replaced(&self, process: usize) -> bool {
        self.processes.iter().any(|other| self.processes[process].is_before(other))
    }

    /// When a process ended, or, where it did not say so, when it was last known to run. Nothing may come before what has
    /// been handed to the engine.
    fn end_of(&self, process: usize, now: Timestamp) -> Timestamp {
        let process = &self.processes[process];
        let last_event = process.locations.iter().map(|location| location.stream.last_time()).max();
        match (process.program_end, process.state) {
            (Some(end), _) => end,
            (None, State::Died | State::Replaced) => {
                // The next program began no later than it joined.
                let next = self.processes.iter().filter(|other| process.is_before(other));
                let next = next.filter_map(|other| Some(self.clock?.at(&other.info.clocks))).min();
                let seen = process.seen_alive.unwrap_or(0).min(next.unwrap_or(Timestamp::MAX));
                seen.max(last_event.unwrap_or(0)).max(self.watermark)
            }
            (None, _) => now,
        }
    }

    /// Ends what is still open on the locations of a process that is over, or is taken to be.
    fn close_locations(&mut self, process: usize) {
        let Some(clock) = self.clock.filter(|_| self.clock_is_certain) else { return };
        while self.processes[process].locations.iter().any(|location| !location.closed) {
            // Nothing is read of a location that it does not know.
            self.tell_attributor();
            let known = self.processes[process].locations.len();
            (0..known).for_each(|location| self.drain_to_its_end(process, location));
            let end = self.end_of(process, clock.now(&self.session));
            (0..known).for_each(|location| self.close_location(process, location, end));
            // Its log may have been read meanwhile, and have told of another one.
            if self.processes[process].locations.len() == known {
                return;
            }
        }
    }

    /// What is there now, and no more: a process that is still running would never let us end.
    fn drain_to_its_end(&mut self, process: usize, location: usize) {
        let live = &mut self.processes[process].locations[location];
        if live.closed {
            return;
        }
        let end = live.ring.position() + live.waiting() as u64;
        let mut batch = std::mem::take(&mut self.batch);
        loop {
            let before = self.processes[process].locations[location].ring.position();
            if before >= end {
                break;
            }
            self.drain_location(process, location, &mut batch);
            if self.processes[process].locations[location].ring.position() == before {
                break;
            }
            // Lanes grow with what is drained: let them go on, but no further than the others have been read.
            self.advance(self.watermark);
        }
        self.batch = batch;
    }

    /// Ends what is still open on a location, of which everything has been read.
    pub(crate) fn close_location(&mut self, process: usize, location: usize, end: Timestamp) {
        let of = &mut self.processes[process];
        let live = &mut of.locations[location];
        if live.closed || (live.index.is_none() && live.waiting() > 0) {
            return;
        }
        live.closed = true;
        live.ring.release_pages();
        // A run may be of thousands of processes, one after the other. What was read is on disk; if it is not, the ring is kept.
        let is_kept = live.spool.as_ref().map_or(self.spool.wanted, Spool::is_cut);
        if of.state != State::Running && self.options.mode == Mode::Collector && !live.damaged && !is_kept {
            let retired = Retired {
                records: live.ring.position(),
                suppressed_calls: live.ring.suppressed_calls(),
                dropped_records: live.ring.dropped_records(),
            };
            let directory = self.spool.of_retired(self.session.directory());
            let stream = of.stream_of(&of.locations[location].definition);
            if retired.save(directory, &stream).is_ok() {
                let _ = of.locations[location].ring.retire();
            }
        }
        let live = &of.locations[location];
        if of.state == State::Died {
            of.died_at = of.died_at.max(Some(end.max(live.stream.last_time())));
        }
        self.end_frames(process, location, end);
    }

    /// Ends what is open on a location.
    pub(crate) fn end_frames(&mut self, process: usize, location: usize, end: Timestamp) {
        let live = &mut self.processes[process].locations[location];
        if live.stream.is_open() {
            let record = Record::new(Kind::LocationEnd, end.max(live.stream.last_time()), 0);
            if let Some(spool) = &mut live.spool {
                let _ = spool.append(record);
            }
            self.decode(process, location, &[record]);
        }
    }

    /// Once the disk has no more room than the trace will need, it ends here: for all at the same time.
    fn look_at_room(&mut self) {
        let locations = self.processes.iter_mut().flat_map(|process| &mut process.locations);
        let spools = locations.filter_map(|location| location.spool.as_mut());
        let samples = self.samples.as_mut().and_then(|samples| samples.spool.as_mut());
        let mut spools: Vec<&mut Spool> = spools.chain(samples).filter(|spool| !spool.is_cut()).collect();
        let recorded = spools.iter().map(|spool| spool.bytes()).sum();
        if spools.is_empty() {
            return;
        }
        let Some(left) = self.room.shortage(recorded) else { return };
        spools.iter_mut().for_each(|spool| spool.cut());
        self.note(format!(
            "{} has only {} MB left: the trace ends early, so that there is room for it; the figures go on",
            self.options.output.display(),
            left / 1_000_000
        ));
    }

    /// Whether something that was measured is not in the trace.
    fn trace_is_cut(&self) -> bool {
        let locations = self.processes.iter().flat_map(|process| &process.locations);
        let spools = locations.map(|location| location.spool.as_ref());
        let samples = self.samples.iter().map(|samples| samples.spool.as_ref());
        self.spool.wanted && spools.chain(samples).any(|spool| spool.is_none_or(Spool::is_cut))
    }

    /// Whether processes have come and all of them are over.
    pub fn all_over(&mut self) -> bool {
        let over = !self.processes.is_empty()
            && self.processes.iter().all(|process| process.state != State::Running && !process.lives_on);
        if !over {
            self.quiet_since = None;
        }
        // All ranks have joined before MPI lets one of them end. Of others, one may be joining just now: a moment for it.
        let are_ranks =
            || self.processes.iter().all(|process| process.rank.is_some_and(|(_, size)| size > 1));
        let are_all = self.session.joined() as usize <= self.processes.len();
        over && (are_all && are_ranks()
            || self.quiet_since.get_or_insert_with(Instant::now).elapsed() > LIVENESS_PERIOD)
    }

    pub fn summary(&self, complete: bool) -> Summary {
        let empty = Attributor::new(self.options.config.clone(), 1);
        let attributor = self.attributor.as_ref().unwrap_or(&empty);
        let (mut nodes, ranks) = Summary::nodes_and_ranks(attributor);
        if nodes.is_empty() && self.options.replay.is_none() {
            nodes.push(self.options.manifest.node.clone());
        }
        // The time that the joules are about: first to last sample.
        let span = self.samples.as_ref().and_then(|samples| samples.span).zip(self.clock);
        let (first, last, seconds) = match span {
            Some(((first, last), clock)) => {
                (clock.realtime_ns(first), clock.realtime_ns(last), clock.seconds(last - first))
            }
            None => (
                Some(self.started.realtime_ns),
                Some(best_reading().realtime_ns),
                self.begun.elapsed().as_secs_f64(),
            ),
        };
        let date = |time: Option<u64>| time.map_or_else(String::new, clock_text::rfc3339);
        let losses = &self.options.manifest.losses;
        let sum = |value: fn(&LiveLocation) -> u64| self.sum(value);
        let quality = QualityFigures {
            events: sum(|l| l.events),
            coalesced_calls: sum(|l| l.stream.coalesced_calls),
            suppressed_calls: sum(LiveLocation::suppressed_calls).max(losses.suppressed_calls),
            dropped_records: self.dropped_records().max(losses.dropped_records),
            late_events: self.lanes.iter().map(|lane| lane.late()).sum(),
            repaired_events: sum(|l| {
                let r = l.stream.repairs;
                r.unmatched_leaves + r.missing_leaves + r.backward
            }),
            damaged_records: sum(|l| l.stream.repairs.damaged),
            unrecorded_calls: self.processes.iter().fold(0, |sum, p| sum.saturating_add(p.unrecorded.1)),
            left_out_definitions: self
                .processes
                .iter()
                .fold(0, |sum, p| sum.saturating_add(p.left_out_definitions)),
            ..QualityFigures::default()
        };
        let (gaps, endings) = (self.gaps(), self.endings());
        let mut notes = self.notes.clone();
        notes.extend(Gap::notes(&gaps));
        notes.extend(Ending::notes(&endings));
        notes.extend(self.processes.iter().filter_map(Process::note_of_unrecorded).take(MOST_ALIKE));
        notes.extend(self.processes.iter().filter_map(Process::note_of_replaced).take(MOST_ALIKE));
        notes.extend(self.note_of_unmeasured());
        notes.extend(self.notes_of_node());
        notes.extend(self.note_of_equal_ranks());
        if quality.suppressed_calls > 0 {
            notes.push(format!(
                "{} calls were suppressed, because the collector could not follow: they are not among the calls below, and \
                 their time and joules are in the functions that made them",
                quality.suppressed_calls
            ));
        }
        if let Some(sampler) = &self.sampler {
            let failed = sampler.figures.failed_readings();
            if failed > 0 {
                notes.push(format!("{failed} readings of a counter failed"));
            }
        }
        let run = Run {
            id: self.options.run_id.clone(),
            job: self.options.manifest.job.clone(),
            command: self.options.command.clone(),
            start: date(first),
            end: date(last),
            complete: self.is_complete(complete),
            running: false,
            host: self.processes.first().map_or_else(String::new, |process| process.info.host.clone()),
            nodes,
            ranks,
            energy: String::new(),
            total_joules: 0.0,
            seconds,
            timer: self.clock.map_or_else(String::new, |clock| clock.timer.as_str().to_owned()),
            ticks_per_second: self.clock.map_or(0, |clock| clock.ticks_per_second),
            notes,
            node_cpu: self.node_cpu,
            command_status: CommandEnd::load(self.session.directory()).map(|end| end.status),
            endings,
            gaps,
            mpi: MpiRanks::of(self.mpi_ranks()),
        };
        let mut summary = Summary::new(attributor, None, run, quality);
        for (device, figures) in summary.devices.iter_mut().zip(self.sampled()) {
            device.readings = figures.map(Readings::from);
            let gauges = figures.iter().flat_map(|figures| &figures.gauges);
            device.gauges = gauges.filter_map(Seen::over_the_run).collect();
        }
        summary.overhead = Overhead {
            collector_cpu_seconds: overhead::cpu_seconds(),
            collector_peak_rss_bytes: overhead::peak_resident_bytes(),
            sampler: self.sampler.as_ref().map(|sampler| SamplerOverhead::from(&*sampler.figures)),
        };
        summary
    }

    fn note_of_unmeasured(&self) -> Option<String> {
        let why = "what they used is in the others' joules, or idle; each said why on standard error, on a node's first rank";
        match self.session.unmeasured() {
            0 => None,
            1 => Some(format!("1 process could not be measured, or not to its end: {why}")),
            many => Some(format!("{many} processes could not be measured, or not to their end: {why}")),
        }
    }

    /// Whether nothing of the run is missing, if it is over (`over`).
    fn is_complete(&self, over: bool) -> bool {
        let is_whole = self.options.replay.as_ref().is_none_or(|replay| replay.notes.is_empty());
        let is_all = self.session.unmeasured() == 0 && self.processes.iter().all(Process::is_whole);
        over && is_whole && !self.is_incomplete && is_all
    }

    /// The end: everything that is left is attributed, and the trace and the summary are written.
    pub fn finish(mut self, complete: bool) -> Result<(Summary, Session), String> {
        self.session.set_finishing(true);
        self.read_definitions();
        self.wait_for_clock();
        self.find_devices();
        self.catch_up_to_the_end();
        for at in 0..self.processes.len() {
            self.close_locations(at);
        }
        // What ended processes used last is in the sampler's last reading.
        self.with_run_cpu(RunCpu::look);
        if self.sampler.as_mut().is_some_and(|sampler| !sampler.stop()) {
            self.sampler_hangs();
        }
        self.find_devices(); // its last news
        self.drain_samples();
        let devices = self.attributor.iter_mut().flat_map(|attributor| &mut attributor.devices);
        devices.for_each(|device| device.counter_mut().end());
        self.queue_samples();
        if let Some(attributor) = &mut self.attributor {
            for lane in &mut self.lanes {
                lane.advance(Timestamp::MAX, attributor);
            }
            attributor.end_time();
            attributor.learn_silence();
            attributor.learn_rises();
        }
        self.look_at_settings();
        self.publish_last();
        self.room.give_back();
        if !self.room.is_of(&self.options.output) {
            output::remake(&self.options.output).map_err(|why| self.write_elsewhere(why))?;
            self.note(
                "the output directory was removed while the job ran, and has been made again".to_owned(),
            );
        }
        self.look_for_unread();
        let other_nodes = nodes::first_of(&self.options.output, &self.options.manifest);
        self.look_for_missing_ranks(other_nodes.is_none());
        let is_empty = self.processes.is_empty() && (self.attributor.is_none() || self.clock.is_none());
        if let Some(all) = &other_nodes {
            self.note(ampere_report::nodes::note(&self.options.manifest.node, all));
        } else if self.processes.is_empty() && !is_empty {
            self.look_for_reason();
        }
        // The figures are ready: they are on disk before the trace, which may take its time, is begun.
        self.write_figures(&self.summary(false)).map_err(|why| self.write_elsewhere(why))?;
        if is_empty {
            self.note("it was over before anything could be recorded: there is no trace".to_owned());
        }
        if !is_empty && self.spool.wanted && !output::holds_trace(&self.options.output) {
            // Said before it is done: who goes on after us takes half of a trace away, and nothing else of that name.
            // Where it cannot be said, half of a trace is in the way, and a note says so.
            self.options.manifest.trace_begun = true;
            self.options.manifest.has_ended |= self.options.mode == Mode::Collector;
            self.options.manifest.is_drained |=
                self.options.mode != Mode::RecoveryFromDisk && !self.trace_is_cut();
            let _ = self.options.manifest.save(&self.spool.directory);
        }
        let written = match (&self.attributor, self.clock) {
            _ if is_empty || !self.spool.wanted => Ok(()),
            (Some(attributor), Some(clock)) => {
                let run = TracedRun {
                    ticks_per_second: clock.ticks_per_second,
                    realtime_ns: &|time| clock.realtime_ns(time),
                    regions: &attributor.regions,
                    processes: self.processes.iter().map(Process::as_traced).collect(),
                    metrics: self.samples.as_ref().map_or(&[][..], |samples| &samples.metrics),
                    samples: self.samples.as_ref().and_then(|samples| samples.spool.as_ref()),
                    complete: self.is_complete(complete) && !self.trace_is_cut(),
                };
                write::write(&self.options.output, &self.spool.directory, &run)
            }
            _ => Err(NoTrace { why: self.why_nothing_is_left(), was_begun: false }),
        };
        self.look_for_latecomers();
        let is_cut = self.trace_is_cut();
        let traced = written.is_ok() && !is_cut;
        let keep_records = written.is_err() && self.attributor.is_some();
        if keep_records {
            // What could not be written has been taken away again, as a rule.
            let was_begun = written.as_ref().is_err_and(|no_trace| no_trace.was_begun);
            self.options.manifest.trace_begun &= was_begun && output::holds_trace(&self.options.output);
            // The rings go now: who makes the trace later need not miss them.
            self.options.manifest.is_drained |= self.options.mode != Mode::RecoveryFromDisk && !is_cut;
            // Before that there is no trace is noted: it may be made yet.
            self.options.manifest.losses = self.losses();
            self.options.manifest.has_no_collector();
            self.save_manifest();
            let end = CommandEnd::load(self.session.directory());
            end.iter().for_each(|end| end.save(&self.spool.directory));
        }
        if let Err(NoTrace { why, .. }) = written {
            self.note(why);
        }
        if output::holds_foreign_page(&self.options.output, &self.options.run_id) {
            self.note(format!(
                "{} is somebody else's, and stays: ampere report -f html makes the page",
                output::PAGE
            ));
        }
        let mut summary = self.summary(complete && traced);
        let unsettled = self.unsettled(&summary);
        if traced && self.spool.wanted && !unsettled.is_empty() {
            self.settle(&mut summary, &unsettled);
        } else {
            let there_is_no_trace = "there is no trace to compute the figures from again";
            if summary.quality.late_events > 0 {
                let late = summary.quality.late_events;
                let note = format!(
                    "{late} events came late, and are charged as of when they came: {there_is_no_trace}"
                );
                summary.run.notes.push(note);
            }
            if self.links_moved() {
                let note = format!("{LINKS_MOVED}, and joules until then were shared by what was known");
                summary.run.notes.push(note);
            }
        }
        // Those of before the trace was written are there where a disk has no room for these.
        if let Err(why) = self.write_figures(&summary) {
            eprintln!("ampere-collector: {why}: the figures are those of before the trace was written");
        }
        if let Err(why) = self.write_page(&summary) {
            eprintln!("ampere-collector: {why}: ampere report -f html makes it of summary.json");
        }
        // Records that did not make it into a trace stay.
        if !keep_records {
            manifest::remove_spool(&self.spool.directory);
        }
        Ok((summary, self.session))
    }

    /// Of a run without a trace, because no event tells which clock its times are of.
    fn why_nothing_is_left(&self) -> String {
        let locations = self.processes.iter().flat_map(|process| &process.locations);
        match locations.map(|location| location.ring.position()).fold(0, u64::saturating_add) {
            0 => "no process wrote any event: there is no trace".to_owned(),
            read => format!(
                "{read} records had been taken out of shared memory, and are lost with what was on disk: there is no trace"
            ),
        }
    }

    /// A run may be over before it was known how fast its clock goes. A moment more, and what it has used has times.
    fn wait_for_clock(&mut self) {
        if self.clock.is_none() && self.sampler.is_some() {
            std::thread::sleep(CALIBRATION.saturating_sub(self.begun.elapsed()));
            self.set_clock(Timer::usual());
        }
    }

    /// For who makes the trace when the rings are gone.
    fn losses(&self) -> Losses {
        let before = &self.options.manifest.losses;
        Losses {
            suppressed_calls: self.sum(LiveLocation::suppressed_calls).max(before.suppressed_calls),
            dropped_records: self.dropped_records().max(before.dropped_records),
            is_incomplete: self.is_incomplete || before.is_incomplete,
            notes: self.notes.clone(),
        }
    }

    fn sum(&self, value: impl Fn(&LiveLocation) -> u64) -> u64 {
        self.processes.iter().map(|process| process.sum(&value)).fold(0, u64::saturating_add)
    }

    fn dropped_records(&self) -> u64 {
        let of_samples = self.samples.as_ref().map_or(0, |samples| samples.ring.dropped_records());
        self.sum(|l| l.ring.dropped_records()).saturating_add(of_samples)
    }

    /// Unless there are some that know more than the records that are left.
    fn write_figures(&self, summary: &Summary) -> Result<(), String> {
        if knows_more(&self.options.output, summary) {
            return Ok(());
        }
        write_tables(&self.options.output, summary)
    }

    /// Figures that the output directory does not take are nowhere else once this process is gone: they are left where
    /// temporary files are. `why` it does not take them; what becomes of the records is another matter.
    fn write_elsewhere(&self, why: String) -> String {
        if self.options.mode != Mode::Collector {
            return why; // `ampere recover -o` may have another directory
        }
        let directory = std::env::temp_dir().join(output::default_directory(&self.options.run_id));
        let made = std::fs::DirBuilder::new().mode(0o700).create(&directory).map_err(|e| e.to_string());
        match made.and_then(|()| write_results(&directory, &self.summary(false))) {
            Ok(()) => format!("{why}; the figures without a trace are in {}", directory.display()),
            Err(_) => why,
        }
    }

    /// Of the figures that lie there.
    fn write_page(&self, summary: &Summary) -> Result<(), String> {
        let directory = &self.options.output;
        if output::holds_foreign_page(directory, &summary.run.id) {
            return Ok(()); // a note says so
        }
        if !knows_more(directory, summary) {
            return write_page(directory, summary);
        }
        let known = std::fs::read(directory.join("summary.json")).map_err(|e| e.to_string())?;
        write_page(directory, &serde_json::from_slice(&known).map_err(|e| e.to_string())?)
    }

    /// Who joined when it was only just too late.
    fn look_for_latecomers(&mut self) {
        let logs = leftover::logs_in(self.session.directory());
        let unknown = logs.iter().filter(|log| !self.known_logs.contains(*log)).count();
        if unknown > 0 {
            self.is_incomplete = true;
            self.note(format!(
                "{unknown} processes began when the results were being written: they were not measured"
            ));
        }
    }

    /// Why no process has come.
    fn look_for_reason(&mut self) {
        let off = std::env::var(ENV_DISABLE).is_ok_and(|value| switches_off(&value));
        if self.options.mode == Mode::Collector && self.options.replay.is_none() && !off {
            self.note(
                "nothing of it was recorded: no process of it that can see this run made MPI calls or has instrumented functions \
                 (-finstrument-functions, or Score-P)"
                    .to_owned(),
            );
        }
    }

    /// Rings that were not read to their end.
    fn look_for_unread(&mut self) {
        let locations = self.processes.iter_mut().flat_map(|process| &mut process.locations);
        let unread = locations.filter(|location| !location.closed).map(LiveLocation::waiting).sum::<usize>();
        if unread > 0 {
            self.is_incomplete = true;
            self.note(format!("{unread} records were not read: what they say is not in the figures below"));
        }
    }

    fn links_moved(&self) -> bool {
        self.attributor.as_ref().is_some_and(Attributor::links_moved)
    }

    /// Why figures are not yet as they would be, had everything been known in time.
    fn unsettled(&self, summary: &Summary) -> String {
        let late = summary.quality.late_events;
        let late = (late > 0).then(|| format!("{late} events came late"));
        let moved = self.links_moved().then(|| LINKS_MOVED.to_owned());
        let revised = self.attributor.as_ref().is_some_and(Attributor::samples_are_revised);
        let revised = revised.then(|| SAMPLES_REVISED.to_owned());
        late.into_iter().chain(moved).chain(revised).collect::<Vec<_>>().join("; ")
    }

    /// What is odd about the settings, now that everything is known.
    fn look_at_settings(&mut self) {
        let Some(attributor) = &self.attributor else { return };
        let mut metrics: BTreeSet<String> =
            attributor.devices.iter().map(|device| device.info.metric.clone()).collect();
        metrics.extend(self.options.replay.iter().flat_map(|replay| replay.metric_names.iter().cloned()));
        for line in conflicts::notes(attributor, &metrics) {
            self.note(line);
        }
    }

    /// Events that came late, and joules of who was not yet known to spend from a device, were charged as well as could be
    /// at that time. The trace has everything in its place: the final figures are computed again from it.
    fn settle(&self, summary: &mut Summary, why_again: &str) {
        let trace = self.options.output.join("traces.otf2");
        let again = ampere_trace::offline::attribute(&trace, &self.options.config, None, &mut |_, _| {});
        match again {
            Ok(again) => {
                summary.topology = again.summary.topology;
                for device in &mut summary.devices {
                    let same = again.summary.devices.iter().find(|d| {
                        (&d.node, &d.metric, &d.name) == (&device.node, &device.metric, &device.name)
                    });
                    if let Some(same) = same {
                        let (source, energy) = (device.source.clone(), device.energy.clone());
                        let (readings, gauges) = (device.readings.take(), std::mem::take(&mut device.gauges));
                        let checks = std::mem::take(&mut device.checks); // sensors are not in the trace
                        let same = same.clone();
                        *device = ampere_report::summary::Device {
                            source,
                            energy,
                            readings,
                            gauges,
                            checks,
                            ..same
                        };
                    }
                }
                let note = format!("{why_again}: the figures below were computed again from the trace");
                summary.run.notes.push(note);
            }
            Err(why) => {
                summary.run.notes.push(format!("{why_again}, and joules are charged as of then: {why:#}"))
            }
        }
    }
}

/// Whether the figures that lie there already are the same run's, of more events: where the disk was full, the records end
/// early and the figures do not.
pub fn knows_more(directory: &Path, summary: &Summary) -> bool {
    let text = std::fs::read(directory.join("summary.json")).unwrap_or_default();
    let there: serde_json::Value = serde_json::from_slice(&text).unwrap_or_default();
    let events = |name: &str| there["quality"][name].as_u64().unwrap_or(0);
    let quality = &summary.quality;
    there["run"]["id"] == summary.run.id.as_str()
        && events("events").saturating_add(events("coalesced_calls"))
            > quality.events.saturating_add(quality.coalesced_calls)
}

/// `summary.json`, `summary.txt` and `report.html`, each whole or not at all.
pub fn write_results(directory: &Path, summary: &Summary) -> Result<(), String> {
    write_tables(directory, summary)?;
    write_page(directory, summary)
}

fn write_tables(directory: &Path, summary: &Summary) -> Result<(), String> {
    let path = directory.join("summary.json");
    write_whole_with(&path, |file| {
        serde_json::to_writer_pretty(&mut *file, summary)?;
        file.write_all(b"\n")
    })?;
    write_whole(&directory.join("summary.txt"), &ampere_report::text::render(summary, false))
}

fn write_page(directory: &Path, summary: &Summary) -> Result<(), String> {
    let page = ampere_report::render(summary, ampere_report::Format::Html, false)?;
    write_whole_bytes(&directory.join(output::PAGE), &page)
}
