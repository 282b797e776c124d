//! Makes the summary of a run that was measured live.

use super::{preloaded, unseen};
use crate::ingest::process::{Process, State};
use crate::ingest::process_ends;
use crate::live::{LiveRun, Mode, catching_up};
use crate::node_watch::NodeWatch;
use crate::overhead;
use crate::run_directory::command_end::CommandEnd;
use crate::run_directory::nodes;
use crate::sampling::clock::{SessionClock, best_reading};
use ampere_figures::clock_text;
use ampere_figures::losses::{GpuClocks, Losses, RecordLosses};
use ampere_figures::missing;
use ampere_figures::summary::{Ending, EstimateWatts, Gap, MpiRanks, Overhead, Range, Readings, Run};
use ampere_figures::summary::{SamplerOverhead, Summary, UNKNOWN_SHARE_MAX};
use ampere_model::NOT_RECORDED;
use ampere_model::filter::ENV_FILTER;
use ampere_model::text::plural;
use ampere_model::{CUDA_LIBRARY, ENV_CUDA_INJECTION};
use ampere_model::{Quality, SAMPLED_HOST, Timestamp};
use ampere_settings::ENV_RECORDER;
use ampere_timeline::attributor::{Attributor, Unit};
use ampere_trace::spool::Spool;
use std::collections::HashSet;

/// A run that is recovered ends with its last sample, or at most this long after it.
const UNSAMPLED_SECONDS: f64 = 0.1;
/// Seconds without a reading of any counter, at the start and the end of a run together. Only a longer time is mentioned.
const UNREAD_SECONDS_MAX: f64 = 0.5;
/// A pause of the collector is mentioned only if it is longer than this number of seconds.
const PAUSE_SECONDS_MAX: f64 = 2.0;
/// The reason why a run is incomplete if no note states one for a process that has not ended its measurement.
const UNFINISHED_PROCESSES: &str =
    "some processes did not end their measurement: what they did last may be missing, so repeat the run";
/// The maximum number of notes of one kind.
const ALIKE_NOTES_MAX: usize = 8;

/// Returns a note about the time in which programs had switched recording off. The host records this time as a range
/// (`crates/host/src/mpi/pcontrol.rs`).
fn not_recorded(attributor: &Attributor) -> Option<String> {
    let ranges = Range::of_run(&attributor.work);
    let off = ranges.iter().find(|range| (&*range.interface, &*range.name) == NOT_RECORDED)?;
    let open = match off.open {
        0 => String::new(),
        open => format!(", and {} has not been switched on again", plural(open, "process")),
    };
    Some(format!(
        "regions and MPI calls are not recorded for {:.3} s, the sum over all processes: the program has switched recording off {} \
         with MPI_Pcontrol(0){open}; the joules of that time are in the frames around it and in what is sampled",
        off.seconds,
        plural(off.count + off.open, "time"),
    ))
}

impl LiveRun {
    /// Returns the current figures. `complete`: nothing of the run is missing, as far as the caller knows.
    pub fn summary(&self, complete: bool) -> Summary {
        RunSummary::of(self)
            .made_by(complete, |attributor, run, quality| Summary::new(attributor, None, run, quality))
    }
}

pub(crate) struct RunSummary<'a> {
    run: &'a LiveRun,
}

impl<'a> RunSummary<'a> {
    pub fn of(run: &'a LiveRun) -> RunSummary<'a> {
        RunSummary { run }
    }

    /// Returns the current totals and largest rows; `None` before there are any, and while the successor of a killed
    /// collector reads the earlier records.
    pub fn running(&self) -> Option<Summary> {
        let has_figures = self.run.timeline.is_some()
            && self.run.processes_seen() > 0
            && !catching_up::is_catching_up(self.run);
        has_figures.then(|| self.made_by(false, Summary::of_running))
    }

    pub fn made_by(&self, complete: bool, make: impl FnOnce(&Attributor, Run, Losses) -> Summary) -> Summary {
        let empty = Attributor::new(self.run.options.config.clone(), 1);
        let attributor = self.run.timeline.as_ref().map_or(&empty, |timeline| &timeline.pipeline.attributor);
        let quality = self.quality();
        let run = self.described_run(attributor, &quality, complete);
        let mut summary = make(attributor, run, quality);
        let sampled = self.run.sampling.figures(attributor.devices.len());
        for device in &mut summary.devices {
            let is_same = |of: &ampere_timeline::attributor::Device| {
                (&of.info.node, &of.info.metric) == (&device.node, &device.metric)
            };
            let place = attributor.devices.iter().position(is_same);
            if let Some((at, figures)) = place.and_then(|at| Some((at, sampled[at]?))) {
                device.readings = Some(Readings::from(figures));
                let energy = attributor.devices[at].energy_over_time();
                let gauges = figures.gauges.iter().filter_map(|gauge| gauge.over_the_run_of(energy));
                device.gauges = gauges.collect();
            }
            let settings = &self.run.options.config.sources;
            device.estimate = (device.source == "estimate").then_some(EstimateWatts {
                idle_watts: settings.idle_watts,
                watts_per_core: settings.watts_per_core,
            });
        }
        let sampler = self.run.sampling.sampler.as_ref();
        summary.overhead = Overhead {
            collector_cpu_seconds: overhead::cpu_seconds(),
            collector_peak_rss_bytes: overhead::peak_resident_bytes(),
            sampler: sampler.map(|sampler| SamplerOverhead::from(&*sampler.figures)),
            stacks: self.run.sampling.stacks_overhead.clone(),
        };
        if let Some(left) = &self.run.options.left {
            let (all, before) = (&mut summary.overhead, &left.overhead);
            all.collector_cpu_seconds += before.collector_cpu_seconds;
            all.collector_peak_rss_bytes = all.collector_peak_rss_bytes.max(before.collector_peak_rss_bytes);
            all.sampler = all.sampler.take().or(before.sampler.clone());
            all.stacks = all.stacks.take().or(before.stacks.clone());
        }
        summary
    }

    fn described_run(&self, attributor: &Attributor, quality: &Losses, complete: bool) -> Run {
        let mut node_ranks = Summary::ranks_of_nodes(attributor);
        if node_ranks.is_empty() && self.run.options.replay.is_none() {
            node_ranks.insert(self.run.options.manifest.node.clone(), 0);
        }
        let (start, end, seconds) = self.span();
        let (gaps, endings) = (self.gaps(), self.endings());
        let mut notes = self.all_notes(attributor, quality, &gaps, &endings);
        notes.extend(not_recorded(attributor));
        notes.extend(self.note_of_foreign_time());
        if complete && self.run.options.replay.is_none() {
            let processes = self.run.ingest.processes.iter();
            let processes = processes.filter(|process| !process.is_sampled() || process.has_samples());
            let ran = processes.map(|process| (process.info.executable.as_str(), process.has_samples()));
            notes.extend(unseen::notes(ran, &self.run.options.command));
        }
        let clock = self.run.timeline.as_ref().map(|timeline| timeline.clock);
        let mut hosts = self.run.ingest.processes.iter().map(|process| process.info.host.as_str());
        let sampled = hosts.clone().next().unwrap_or_default();
        // If ranks are also sampled, the host that records their events is named.
        let host = hosts.find(|host| *host != SAMPLED_HOST).unwrap_or(sampled).to_owned();
        let lacks_score_p = complete && self.lacks_score_p(&host);
        let mut missing = self.missing(complete, &gaps, &endings);
        if lacks_score_p {
            notes.push(unseen::NO_SCORE_P.to_owned());
            missing.insert(0, unseen::NO_SCORE_P.to_owned());
        }
        Run {
            id: self.run.options.run_id.clone(),
            job: self.run.options.manifest.job.clone(),
            command: self.run.options.command.clone(),
            start,
            end,
            complete: complete && missing.is_empty(),
            missing,
            host,
            nodes: node_ranks.keys().cloned().collect(),
            ranks: node_ranks.values().sum(),
            node_ranks,
            seconds,
            timer: clock.map_or_else(String::new, |clock| clock.timer.as_str().to_owned()),
            ticks_per_second: clock.map_or(0, |clock| clock.ticks_per_second),
            clock: clock.map_or_else(Vec::new, |clock| self.readings_of(&clock)),
            activity: self.run.options.manifest.progress.activity.clone(),
            notes,
            node_cpu: self.run.node.as_ref().and_then(NodeWatch::cpu).or(self
                .run
                .options
                .left
                .as_ref()
                .and_then(|left| left.run.node_cpu)),
            command_status: self.run.command_end.as_ref().map(|end| end.status),
            endings,
            gaps,
            mpi: MpiRanks::of(self.mpi_ranks()),
            ..Run::default()
        }
    }

    /// Returns the readings with which the clocks of the nodes are compared. For a recovered run, no reading is taken now,
    /// because the run ended earlier.
    fn readings_of(&self, clock: &SessionClock) -> Vec<[u64; 2]> {
        if !clock.is_dated() || clock.is_replayed() {
            return Vec::new();
        }
        let now = (self.run.options.mode == Mode::Collector).then(best_reading);
        let readings = [clock.epoch].into_iter().chain(now);
        readings.map(|reading| [clock.at(&reading), reading.realtime_ns]).collect()
    }

    /// Returns the time from the first to the last sample, which the joules belong to: its start and end (RFC 3339), and its
    /// seconds.
    fn span(&self) -> (String, String, f64) {
        let date = |time: Option<u64>| time.map_or_else(String::new, clock_text::rfc3339);
        let span = self.run.sampling.samples.as_ref().and_then(|samples| samples.span);
        match span.zip(self.run.timeline.as_ref()) {
            Some(((first, last), timeline)) => {
                let clock = timeline.clock;
                (date(clock.realtime_ns(first)), date(clock.realtime_ns(last)), clock.seconds(last - first))
            }
            None => {
                let seconds = self.run.began.instant.elapsed().as_secs_f64();
                (
                    date(Some(self.run.began.clocks.realtime_ns)),
                    date(Some(best_reading().realtime_ns)),
                    seconds,
                )
            }
        }
    }

    fn quality(&self) -> Losses {
        let mut records = self.record_losses();
        let before = self.run.options.manifest.progress.losses.iter();
        before.for_each(|before| records.raise(&before.records.only_in_rings()));
        if let Some(timeline) = &self.run.timeline {
            records.late_events = timeline.pipeline.late();
            records.kernels_without_launch = timeline.pipeline.all_without_launch();
        }
        let processes = self.run.ingest.processes.iter();
        let gpu_clocks = processes.map(Process::gpu_clocks).fold(None, GpuClocks::worst);
        Losses { records, gpu_clocks, ..Losses::default() }
    }

    /// Returns the losses of events of all processes, and of samples.
    pub fn record_losses(&self) -> RecordLosses {
        let mut sum = RecordLosses::default();
        self.run.ingest.processes.iter().for_each(|process| sum.add(&process.record_losses()));
        let samples =
            self.run.sampling.samples.as_ref().map_or(0, |samples| samples.reader.ring.dropped_records());
        sum.dropped_records = sum.dropped_records.saturating_add(samples);
        sum
    }

    fn all_notes(
        &self,
        attributor: &Attributor,
        quality: &Losses,
        gaps: &[Gap],
        endings: &[Ending],
    ) -> Vec<String> {
        let processes = &self.run.ingest.processes;
        let mut notes = Vec::new();
        notes.extend(Gap::notes(gaps));
        notes.extend(self.interruption());
        notes.extend(Ending::notes(endings));
        notes.extend(processes.iter().filter_map(Process::note_of_unrecorded).take(ALIKE_NOTES_MAX));
        notes.extend(processes.iter().filter_map(Process::note_of_gpu_records).take(ALIKE_NOTES_MAX));
        notes.extend(processes.iter().filter_map(Process::note_of_replaced).take(ALIKE_NOTES_MAX));
        notes.extend(self.note_of_unmeasured());
        notes.extend(preloaded::notes(self.run.session.directory()));
        notes.extend(self.run.node.iter().flat_map(|node| node.notes(attributor)));
        if !self.run.session.is_finishing() {
            notes.extend(attributor.note_of_kernels().map(str::to_owned));
        }
        notes.extend(self.note_of_equal_ranks());
        notes.extend(self.note_of_filter());
        notes.extend(self.note_of_cuda_library());
        notes.extend(self.note_of_unsampled().filter(|_| !attributor.records_functions()));
        if quality.records.suppressed_calls > 0 {
            notes.push(format!(
                "{} calls were suppressed, because the collector could not follow: they are not among the calls below, and \
                 their time and joules are in the functions that made them",
                quality.records.suppressed_calls
            ));
        }
        let failed =
            self.run.sampling.sampler.as_ref().map_or(0, |sampler| sampler.figures.failed_readings());
        if failed > 0 {
            notes.push(format!("{failed} readings of a counter failed"));
        }
        notes.extend(self.note_of_pause());
        self.run.notes.with(notes)
    }

    /// Returns the notes that make the run incomplete, the most important first. An ended run without any is complete.
    fn missing(&self, has_ended: bool, gaps: &[Gap], endings: &[Ending]) -> Vec<String> {
        let open: Vec<Gap> = gaps.iter().filter(|gap| gap.joules.is_none()).cloned().collect();
        let processes = &self.run.ingest.processes;
        let unrecorded = processes.iter().filter(|process| !process.is_whole());
        let of_processes =
            |of: fn(&Process) -> Option<String>| unrecorded.clone().filter_map(of).take(ALIKE_NOTES_MAX);
        let replay = self.run.options.replay.iter().flat_map(|replay| replay.notes.iter().cloned());
        let mut missing: Vec<String> = Gap::notes(&open);
        missing.extend(self.interruption());
        missing.extend(Ending::notes(endings));
        missing.extend(self.run.notes.losses().iter().cloned());
        missing.extend(of_processes(Process::note_of_unrecorded));
        missing.extend(of_processes(Process::note_of_gpu_records));
        missing.extend(of_processes(Process::note_of_replaced));
        missing.extend(self.note_of_unmeasured());
        missing.extend(self.note_of_slow_counters());
        missing.extend(self.note_of_other_pids());
        missing.extend(replay);
        if has_ended && missing.is_empty() && !process_ends::is_whole(&self.run.ingest) {
            missing.push(UNFINISHED_PROCESSES.to_owned());
        }
        missing
    }

    /// Returns the signal that ended the command, in words, if processes did not end their measurement.
    fn interruption(&self) -> Option<String> {
        let end = self.run.command_end.as_ref().filter(|_| !process_ends::is_whole(&self.run.ingest))?;
        end.interruption(self.span().2)
    }

    /// Returns a note if processes that record their calls are also sampled under other pids, because they are in another pid
    /// namespace. Then it is unknown which sampled process is which recorded one.
    fn note_of_other_pids(&self) -> Option<String> {
        let processes = &self.run.ingest.processes;
        let sampled: HashSet<&str> =
            processes.iter().filter(|of| of.has_samples()).map(|of| &*of.info.executable).collect();
        let is_elsewhere =
            |of: &&Process| !of.is_sampled() && !of.has_pid_here() && sampled.contains(&*of.info.executable);
        let count = processes.iter().filter(is_elsewhere).count();
        (count > 0 && self.run.options.replay.is_none()).then(|| {
            format!(
                "{} in another PID namespace: samples of the same programs are in rows of their own, with a part of their joules; start ampere in the container",
                plural(count as u64, "process")
            )
        })
    }

    /// Returns a note if the CPU time of processes in other PID namespaces is not known.
    fn note_of_foreign_time(&self) -> Option<String> {
        self.run.node.as_ref().filter(|node| node.is_partial())?;
        let mut devices = self.run.timeline.iter().flat_map(|timeline| &timeline.pipeline.attributor.devices);
        let effect = match devices.any(|device| device.info.quality == Quality::Estimated) {
            true => "the estimate lacks their joules",
            false => "no joules are given to other jobs",
        };
        Some(format!(
            "the CPU time of processes in another PID namespace is not known, so {effect}: start ampere in the container"
        ))
    }

    /// Returns a note if no counter had a reading near the start or the end of the run.
    fn note_of_slow_counters(&self) -> Option<String> {
        let (unread, whole) = self.run.sampling.unread_ticks()?;
        let clock = self.run.timeline.as_ref()?.clock;
        let (unread, whole) = (clock.seconds(unread), clock.seconds(whole));
        (unread > UNREAD_SECONDS_MAX.max(UNKNOWN_SHARE_MAX * whole)).then(|| {
            format!(
                "no counter had a reading for {unread:.2} s of {whole:.2} s, at the start or the end: what was used then is missing"
            )
        })
    }

    /// Returns a note if the collector once did not run for a long time, because it was stopped, as by Slurm's suspend, or had no
    /// CPU. Joules of that time may be another job's.
    fn note_of_pause(&self) -> Option<String> {
        let sampler = SamplerOverhead::from(&*self.run.sampling.sampler.as_ref()?.figures);
        let seconds = sampler.longest_late_seconds;
        (seconds > PAUSE_SECONDS_MAX).then(|| {
            format!(
                "no counter was read for {seconds:.1} s, because a reading took so long, or the collector was stopped or had no CPU: the joules of that time are \
                 divided as between any two samples"
            )
        })
    }

    /// Returns a note if the stacks of some ranks were sampled, and those of others were not.
    fn note_of_unsampled(&self) -> Option<String> {
        let processes = &self.run.ingest.processes;
        let sampled: HashSet<u32> = processes
            .iter()
            .filter(|process| process.has_samples())
            .map(|process| process.info.pid)
            .collect();
        let ranks =
            processes.iter().filter(|process| process.rank_number().is_some() && !process.is_sampled());
        let without = ranks.filter(|process| !sampled.contains(&process.info.pid)).count();
        (!sampled.is_empty() && without > 0).then(|| {
            format!(
                "the stacks of {without} ranks were not sampled: they hardly ran, or are in a container with process numbers of its \
                 own. Only their MPI functions and marked ranges are known"
            )
        })
    }

    /// Returns the processes that did not end their measurement properly.
    pub fn endings(&self) -> Vec<Ending> {
        let clock = self.run.timeline.as_ref().map(|timeline| timeline.clock);
        let date = |time: Option<Timestamp>| {
            let time = clock.zip(time).and_then(|(clock, time)| clock.realtime_ns(time));
            time.map_or_else(String::new, clock_text::rfc3339)
        };
        let command = self.run.command_end.as_ref();
        let has_died = |process: &&Process| process.life.state == State::Died && !process.is_sampled();
        let died = self.run.ingest.processes.iter().filter(has_died);
        let ending = |process: &Process| {
            let pid = process.info.pid;
            let signal = command.filter(|end| end.pid == pid).and_then(CommandEnd::signal);
            let what = match signal {
                Some(signal) => format!("killed by {signal}"),
                None => "ended without finishing its measurement".to_owned(),
            };
            let is_alone = process.rank.is_some_and(|(_, size)| size == 1) && process.replayed.is_none();
            let rank = process.rank_number().filter(|_| !is_alone);
            Ending { rank, pid, what, time: date(process.life.died_at), signal: signal.map(|s| s.0) }
        };
        let mut endings: Vec<Ending> = died.map(ending).collect();
        // Processes whose end is unknown come last.
        endings.sort_by_key(|ending| (ending.time.is_empty(), ending.time.clone()));
        endings
    }

    /// Returns the times in which no counter was sampled.
    pub fn gaps(&self) -> Vec<Gap> {
        let (Some(samples), Some(timeline)) = (&self.run.sampling.samples, &self.run.timeline) else {
            return Vec::new();
        };
        let (clock, attributor) = (timeline.clock, &timeline.pipeline.attributor);
        let date = |time| clock.realtime_ns(time).map_or_else(String::new, clock_text::rfc3339);
        let on_top = |device: usize| {
            let is_energy = attributor.devices[device].info.unit == Unit::Joules;
            is_energy && attributor.counts(device) && attributor.whole(device).is_none()
        };
        let closed = timeline.pipeline.gaps.closed().map(|gap| Gap {
            start: date(gap.begin),
            seconds: clock.seconds(gap.end.saturating_sub(gap.begin)),
            joules: Some(gap.joules.iter().filter(|(at, _)| on_top(*at)).map(|(_, joules)| joules).sum()),
        });
        let mut gaps: Vec<Gap> = closed.collect();
        // No counter was read after the collector was killed, while the program continued.
        if let (Some((_, last)), Some(event)) = (samples.span, self.run.ingest.last_event())
            && self.run.options.mode != Mode::Collector
            && clock.seconds(event.saturating_sub(last)) > UNSAMPLED_SECONDS
        {
            gaps.push(Gap { start: date(last), seconds: clock.seconds(event - last), joules: None });
        }
        gaps
    }

    /// Returns the ranks and sizes of MPI processes. If a process has executed several programs, only the last one counts.
    fn mpi_ranks(&self) -> impl Iterator<Item = (u32, u32)> {
        let of_jobs = self.run.ingest.processes.iter().filter(|process| process.replayed.is_none());
        of_jobs.filter(|process| process.life.state != State::Replaced).filter_map(|process| process.rank)
    }

    /// Returns a note about ranks that the launcher or MPI has started and that were not measured. `is_alone`: no other node has
    /// a part of the run.
    pub fn note_of_missing_ranks(&self, is_alone: bool) -> Option<String> {
        if self.run.options.replay.is_some() {
            return None;
        }
        let mpi = MpiRanks::of(self.mpi_ranks());
        let ranks = mpi.as_ref().map(MpiRanks::missing).unwrap_or_default();
        let size = mpi.map_or(0, |mpi| mpi.size);
        let here = missing::on_this_node(self.run.ingest.processes.iter().map(Process::environment));
        let of_all = || (is_alone && !ranks.is_empty()).then(|| missing::note_of_all_nodes(&ranks, size));
        let of_commands = || self.run.ingest.note_of_missing_commands();
        missing::note_of_this_node(&here, Some((&ranks, size))).or_else(of_all).or_else(of_commands)
    }

    /// Returns a note if several processes have the same rank, because the command ran several MPI jobs.
    fn note_of_equal_ranks(&self) -> Option<String> {
        let ranks = self.mpi_ranks();
        let mut numbers: Vec<u32> = ranks.filter(|(_, size)| *size > 1).map(|(rank, _)| rank).collect();
        numbers.sort_unstable();
        let twice = numbers.windows(2).find(|pair| pair[0] == pair[1])?[0];
        Some(format!(
            "several processes are MPI Rank {twice}, as when mpirun is started twice, or by MPI_Comm_spawn: the figures \
             of a rank are those of all processes with its number"
        ))
    }

    /// Returns a note about functions that the user has excluded.
    fn note_of_filter(&self) -> Option<String> {
        let variables = self.run.ingest.processes.iter().flat_map(Process::environment);
        let file = |variable: &String| Some(variable.strip_prefix(ENV_FILTER)?.strip_prefix('=')?.to_owned());
        let file = variables.filter_map(file).find(|file| !file.is_empty())?;
        Some(format!(
            "functions that {file} excludes are not recorded: their time and joules are in the functions that called them"
        ))
    }

    /// Returns a note if CUDA loads another tool's library, because it loads only one.
    fn note_of_cuda_library(&self) -> Option<String> {
        let variables = self.run.ingest.processes.iter().flat_map(Process::environment);
        let library = |variable: &String| {
            Some(variable.strip_prefix(ENV_CUDA_INJECTION)?.strip_prefix('=')?.to_owned())
        };
        let other =
            variables.filter_map(library).find(|one| !one.is_empty() && !one.ends_with(CUDA_LIBRARY))?;
        Some(format!(
            "work that CUDA runs on GPUs is not recorded: {ENV_CUDA_INJECTION} was set to {other}, and CUDA loads one library only"
        ))
    }

    fn note_of_unmeasured(&self) -> Option<String> {
        let why = "their joules count for other processes or as idle; the first rank of a node printed the reason on standard error";
        match self.run.session.unmeasured() {
            0 => None,
            1 => Some(format!("1 process could not be measured, or not until its end: {why}")),
            many => Some(format!("{many} processes could not be measured, or not until their end: {why}")),
        }
    }

    /// Whether the run has ended and nothing of it is missing.
    pub fn is_complete(&self, has_ended: bool) -> bool {
        has_ended && self.missing(has_ended, &self.gaps(), &self.endings()).is_empty()
    }

    /// Whether the user asked for Score-P's events, but no node has any.
    fn lacks_score_p(&self, host: &str) -> bool {
        let is_wanted = std::env::var(ENV_RECORDER).is_ok_and(|recorder| recorder == "scorep");
        let options = &self.run.options;
        is_wanted && host != "score-p" && nodes::below(&options.output, &options.run_id).is_empty()
    }

    /// Whether something that was measured is not in the trace.
    pub fn trace_is_cut(&self) -> bool {
        let spools = self.run.ingest.locations().map(|location| location.reader.spool.as_ref());
        let samples = self.run.sampling.samples.iter().map(|samples| samples.reader.spool.as_ref());
        self.run.ingest.spool.wanted && spools.chain(samples).any(|spool| spool.is_none_or(Spool::is_cut))
    }
}
