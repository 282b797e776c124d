//! Converts samples to enters and leaves. A sample represents the CPU time since the previous one: the thread is assumed to have
//! had this stack during that time. Therefore the functions of a thread are written when its next sample is known.

use super::SamplingReport;
use super::budget::{self, Periods};
use super::clock::EventClock;
use super::cpu_intervals::FILLED_PAUSE_MAX;
use super::cpu_times::{self, Span, ThreadStart};
use super::event_sums::EventSums;
use super::handover::{Handover, Left};
use super::process::{Log, SampledProcess, Timing, executable};
use super::quality;
use super::sink::{Event, Fetched, Sample};
use super::unsampled_processes::{Action, UnsampledProcesses};
use crate::sampling::clock::best_reading;
use ampere_model::Timestamp;
use ampere_model::digits::significant;
use ampere_model::time_namespace::ticks_since_boot;
use ampere_ring::Session;
use ampere_ring::process::start_time;
use ampere_ring::session::Command;
use ampere_stacks::{Figures, Sampler, StacksError, cpu_of_process, foreign};
use rustc_hash::{FxHashMap, FxHashSet};
use rustix::time::{ClockId, clock_gettime};
use std::collections::HashMap;
use std::time::Duration;

/// A thread without a sample for this time has used no CPU time: it is in no function until it uses some again.
const PAUSE: Duration = Duration::from_millis(20);
/// Samples that are more recent than this may not have been fetched yet.
const SLACK: Duration = Duration::from_millis(2);
/// A process with fewer samples than this gets no row of its own.
const SAMPLES_MIN: usize = 3;
/// A process without samples gets no row of its own if it ran for less than this.
const UNSAMPLED_MIN: Duration = Duration::from_millis(10);
/// The sampler passes on events that are at least this old.
const KNOWN_AFTER: Duration = Duration::from_millis(1);
/// The interval at which the kernel's count of CPU time is read where it reports no switches.
const COUNTED_PERIOD: Duration = Duration::from_millis(100);
/// The longest time for which the CPU times of a gap, after a collector was killed, are waited for, unless it takes longer to
/// sample the processes again.
const HANDOVER_MAX: Duration = Duration::from_millis(500);
/// For this time after its end, a process may still be found by its CPU time.
const ENDED_TIME: Duration = Duration::from_secs(1);
/// If this percentage of samples, or more, are the first of their threads, a note reports it.
const FIRST_SAMPLES_NOTED: f64 = 10.0;
/// The maximum number of processes with rows at a time.
const PROCESSES_MAX: usize = 4096;

/// Writes samples as records into rings, and the functions in them as definitions into logs.
pub(super) struct Writer {
    session: Session,
    timing: Timing,
    periods: Periods,
    /// The kernel's time at which this was made.
    began: u64,
    processes: FxHashMap<u32, SampledProcess>,
    /// The time before which everything has been written.
    watermark: u64,
    left_out: LeftOut,
    /// The processes that record their own functions now: if they cannot be sampled, their CPU time is still in rows.
    recorded: FxHashSet<u32>,
    /// The processes that have ended in the last second, and when: all their CPU time is known from the kernel's records.
    ended: FxHashMap<u32, u64>,
    /// Whether stacks are sampled. Otherwise only CPU time is written, and only of processes that record their calls.
    has_samples: bool,
    /// The state of the session's logs when they were last looked at.
    generation: Option<u64>,
    /// The processes whose switches the kernel does not report and whose CPU time is read instead, with the time of the last
    /// reading.
    counted: HashMap<u32, u64>,
    unsampled: Option<UnsampledProcesses>,
    /// Memory for the events of a fetch, which is used again.
    fetched: Fetched,
    /// The cost of a sample for the sampled thread, if it could be measured.
    sample_cost: Option<Duration>,
    events: EventSums,
    /// The CPU time of processes without rows that their parents were given, in nanoseconds.
    given_to_parents: u64,
    /// What a killed collector has left for this one: the processes whose CPU time since then is not written yet.
    left: Handover,
    /// The CPU time since then that was written as unknown functions, in nanoseconds.
    bridged: u64,
    /// The number of samples that were the first of their thread.
    first_samples: u64,
    /// What this collector leaves if it is killed.
    leaves: Handover,
    /// Whether processes of the killed collector wait until this one samples them.
    pub is_taking_over: bool,
}

/// The numbers of samples whose functions are in no row.
#[derive(Default)]
struct LeftOut {
    /// Samples of processes with fewer than [`SAMPLES_MIN`].
    samples: u64,
    /// Samples of processes with rows, from before the rows began.
    early: u64,
    /// The first failure to write.
    failure: Option<String>,
}

impl Writer {
    pub fn new(
        session: Session,
        clock: EventClock,
        (periods, sample_cost): (Periods, Option<Duration>),
        unsampled: Option<UnsampledProcesses>,
        has_samples: bool,
        records_cpu_times: bool,
    ) -> Writer {
        Writer {
            left: Handover::load(session.directory()).unwrap_or_default(),
            leaves: Handover::default(),
            is_taking_over: false,
            bridged: 0,
            first_samples: 0,
            session,
            began: clock.now(),
            timing: Timing { records_cpu_times, ..Timing::new(clock, periods.now, PAUSE) },
            periods,
            processes: FxHashMap::default(),
            watermark: 0,
            left_out: LeftOut::default(),
            recorded: FxHashSet::default(),
            ended: FxHashMap::default(),
            has_samples,
            generation: None,
            counted: HashMap::new(),
            unsampled,
            fetched: Fetched::default(),
            sample_cost,
            events: EventSums::default(),
            given_to_parents: 0,
        }
    }

    /// From now on, writes with each sample how often each of these events has happened, and adds up their sums.
    pub fn count(&mut self, events: EventSums) {
        self.timing.events = events.names();
        self.events = events;
    }

    /// Sets whether a process records its own functions.
    pub fn set_recorded(&mut self, process: u32, is_recorded: bool) {
        match is_recorded {
            true => self.recorded.insert(process),
            false => self.recorded.remove(&process),
        };
    }

    /// Samples less often once a run has lasted long, and if there are many switches, unless the user has set the period.
    pub fn lengthen_period(&mut self, sampler: &mut Sampler) {
        if !self.has_samples {
            return;
        }
        let lasted = Duration::from_nanos(self.timing.clock.now().saturating_sub(self.began));
        let longer = self.periods.due(lasted).or_else(|| {
            self.periods.longer_for_switches(lasted, sampler.switches_and_cpu(), self.sample_cost)
        });
        let Some(period) = longer else { return };
        // There may be too many perf events to open again.
        if sampler.set_period(period) {
            self.periods.change(period, sampler.figures().samples);
            self.timing.set_period(period, PAUSE);
        }
    }

    pub fn is_recorded(&self, process: u32) -> bool {
        self.recorded.contains(&process)
    }

    /// Returns the time before which everything has been written.
    pub fn watermark(&self) -> Timestamp {
        self.timing.clock.at(self.watermark)
    }

    /// Writes what has been sampled; with `is_last`, all of it. Returns whether programs have started.
    pub fn fetch(&mut self, mut sampler: Option<&mut Sampler>, is_last: bool) -> bool {
        let before = self.timing.clock.now();
        let now = self.timing.clock.read();
        let counts: FxHashMap<u32, u64> =
            self.processes.keys().filter_map(|process| Some((*process, cpu_of_process(*process)?))).collect();
        let mut has_started = false;
        if let Some(sampler) = &mut sampler {
            let mut fetched = std::mem::take(&mut self.fetched);
            match is_last {
                true => sampler.finish(&mut fetched),
                false => sampler.poll(&mut fetched),
            }
            // Which location a new thread has must be known before its first sample is written.
            self.read_own_logs();
            has_started = self.take(&mut fetched, sampler, (before, now));
            self.fetched = fetched;
            self.events.add(&self.session, &sampler.event_totals(), is_last);
        } else {
            self.read_own_logs();
        }
        let until = if is_last { u64::MAX } else { now.saturating_sub(self.timing.pause) };
        self.read_counted(now);
        self.bridge_ended(is_last, now);
        self.processes.values_mut().for_each(|process| process.pause(until, &self.timing));
        self.write_intervals(until);
        self.write_cpu_times(until);
        self.write_unknown(sampler, now);
        if is_last {
            let all: Vec<u32> = self.processes.keys().copied().collect();
            all.into_iter().for_each(|process| self.end_process(process));
        } else if !self.awaits_bridges(now) {
            self.leave(until, &counts);
        }
        self.watermark = now.saturating_sub(self.timing.pause + FILLED_PAUSE_MAX + SLACK.as_nanos() as u64);
        // The CPU time of a process whose counts are read is known only up to the last reading.
        self.counted.values().for_each(|read| self.watermark = self.watermark.min(*read));
        let held = self.processes.values().filter_map(|process| process.cpu.held_since());
        self.watermark = held.fold(self.watermark, u64::min);
        if self.awaits_bridges(now) {
            // The rate of the event clock is not exact yet.
            let error = now.saturating_sub(self.left.until) / 100;
            self.watermark = self.watermark.min(self.left.until.saturating_sub(error));
        }
        has_started
    }

    /// Processes the events of a fetch. Returns whether programs have started.
    fn take(&mut self, fetched: &mut Fetched, sampler: &Sampler, (before, now): (u64, u64)) -> bool {
        let (mut has_lost, mut has_started) = (false, false);
        for event in fetched.events.drain(..) {
            match event {
                Event::Sample(process, sample) => self.sample(process, sample, sampler),
                Event::Started(process, program) => {
                    has_started = true;
                    self.start_process(process, &program);
                    // A program that was executed does not record its functions yet.
                    if !program.is_empty() {
                        self.recorded.remove(&process);
                    }
                }
                Event::Forked(process, parent) => {
                    let program = self.processes.get(&parent).map(|parent| parent.program.clone());
                    if let Some(forked) = self.processes.get_mut(&process) {
                        forked.parent = Some(parent);
                        // A fork that has already ended has no name in /proc. It ran its parent's program.
                        if forked.program.is_empty() {
                            forked.program = program.unwrap_or_default();
                        }
                    }
                }
                Event::Ran(process, thread, from, until) => self.ran(process, thread, from, until),
                Event::OnCpu(process, thread, from, until) => self.on_cpu(process, thread, from, until),
                Event::Lost => {
                    has_lost = true;
                    let threads =
                        self.processes.values_mut().flat_map(|process| process.threads.values_mut());
                    threads.for_each(|thread| thread.runs = false);
                }
                Event::Ended(process, None) => {
                    self.end_process(process);
                    self.recorded.remove(&process);
                    self.ended.insert(process, now);
                }
                Event::Ended(process, Some(thread)) => {
                    self.processes
                        .get_mut(&process)
                        .into_iter()
                        .for_each(|sampled| sampled.end_thread(thread, &self.timing));
                }
            }
        }
        self.count_threads(has_lost, (before, now));
        has_started
    }

    /// Reads the kernel's count of the CPU time of threads: of new ones, and after records of switches were lost, of all.
    fn count_threads(&mut self, has_lost: bool, (before, now): (u64, u64)) {
        // Switches are known up to these times.
        let times = [before, now].map(|time| time.saturating_sub(KNOWN_AFTER.as_nanos() as u64)).into();
        for (process, sampled) in &mut self.processes {
            let threads = sampled.cpu.threads().filter(|(_, is_known)| has_lost || !is_known);
            let threads: Vec<u32> = threads.map(|(thread, _)| thread).collect();
            if threads.is_empty() {
                continue;
            }
            let start = sampled.next_join_time().map_or(ThreadStart::Unknown, ThreadStart::Joined);
            for thread in threads {
                if let Some(counted) = cpu_times::counted(*process, thread) {
                    sampled.cpu.set_counted(thread, counted, times, start);
                }
            }
        }
    }

    /// Reads the kernel's count of the CPU time of all threads of processes whose switches it does not report.
    fn read_counted(&mut self, now: u64) {
        let due: Vec<(u32, u64)> = (self.counted.iter())
            .filter(|(_, last)| now.saturating_sub(**last) >= COUNTED_PERIOD.as_nanos() as u64)
            .map(|(process, last)| (*process, *last))
            .collect();
        for (process, last) in due {
            let Ok(tasks) = std::fs::read_dir(format!("/proc/{process}/task")) else {
                self.counted.remove(&process);
                self.end_process(process);
                continue;
            };
            self.counted.insert(process, now);
            self.bridge(process, cpu_of_process(process), now);
            if !self.processes.contains_key(&process) {
                self.start_process(process, "");
            }
            let Some(sampled) = self.processes.get_mut(&process) else { continue };
            let before: Vec<u32> = sampled.cpu.threads().map(|(thread, _)| thread).collect();
            let names = tasks.filter_map(|task| task.ok()?.file_name().to_str()?.parse::<u32>().ok());
            let threads: Vec<u32> = names.collect();
            let joined = sampled.next_join_time();
            for thread in &threads {
                if let Some(counted) = cpu_times::counted(process, *thread) {
                    let start = match joined {
                        _ if last > 0 && !before.contains(thread) => ThreadStart::New,
                        joined => joined.map_or(ThreadStart::Unknown, ThreadStart::Joined),
                    };
                    sampled.cpu.set_counted(*thread, counted, (last, now), start);
                }
            }
            // Threads that have ended since the last reading have used some of this CPU time, too.
            if let Some(counted) = cpu_of_process(process).filter(|_| last > 0) {
                sampled.cpu.set_counted_of_all(counted, (last, now));
            }
            let ended = before.into_iter().filter(|thread| !threads.contains(thread));
            ended.for_each(|thread| sampled.end_thread(thread, &self.timing));
        }
    }

    /// Learns which processes record their calls, and in which threads, if there is something new in a log.
    fn read_own_logs(&mut self) {
        let generation = self.session.generation();
        if self.generation.replace(generation) == Some(generation) {
            return;
        }
        let directory = self.session.directory();
        self.processes.iter_mut().for_each(|(process, sampled)| sampled.read_own_logs(directory, *process));
    }

    fn on_cpu(&mut self, process: u32, thread: u32, from: u64, until: u64) {
        if !self.processes.contains_key(&process) {
            self.start_process(process, "");
        }
        let has_samples = self.has_samples;
        let Some(sampled) = self.processes.get_mut(&process) else { return };
        sampled.cpu.add(thread, from, until);
        if has_samples {
            sampled.add_unsampled(thread, from, until);
        }
    }

    /// Writes the CPU time of processes that are neither sampled nor recorded as that of unknown functions.
    fn write_unknown(&mut self, mut sampler: Option<&mut Sampler>, now: u64) {
        self.ended.retain(|_, at| now.saturating_sub(*at) < ENDED_TIME.as_nanos() as u64);
        let Some(mut unsampled) = self.unsampled.take() else { return };
        let is_sampled = |process| sampler.as_ref().is_some_and(|sampler| sampler.has(process));
        // Processes that a killed collector sampled have their own requests: to sample all of them at once would take too long.
        let is_awaited = |process| self.awaits_bridges(now) && self.left.processes.contains_key(&process);
        let is_seen = |process| {
            self.is_recorded(process)
                || is_sampled(process)
                || is_awaited(process)
                || self.ended.contains_key(&process)
        };
        for action in unsampled.poll(is_seen) {
            let (process, ran) = match action {
                Action::Write(process, ran) => (process, ran),
                Action::Sample(process) => {
                    let outcome = sampler.as_mut().map(|sampler| self.add_running(process, sampler));
                    if let Some(Err(why)) = outcome {
                        unsampled.set_reason(process, &why.to_string());
                    }
                    continue;
                }
            };
            if !self.processes.contains_key(&process) {
                self.start_process(process, "");
            }
            let Some(sampled) = self.processes.get_mut(&process) else { continue };
            let written = sampled.write_unknown(
                &self.session,
                process,
                &self.timing,
                Span { from: now - ran.min(now), until: now, used: ran },
            );
            match written {
                Ok(()) => self.session.announce(),
                Err(why) => self
                    .left_out
                    .fail(format!("{why}; CPU time of unknown functions of a process has no row")),
            }
        }
        unsampled.take_ended().into_iter().for_each(|process| self.end_process(process));
        self.unsampled = Some(unsampled);
    }

    /// Samples the program that a waiting process becomes.
    pub fn add_command(&mut self, command: &Command, sampler: Option<&mut Sampler>) {
        self.keep_failure(sampler.map_or(Ok(()), |sampler| sampler.add_launcher(command.pid)));
        self.release_command(command);
    }

    pub fn release_command(&self, command: &Command) {
        self.session.release_command(command);
    }

    /// Samples a process that is running, or only records its CPU time if it records its own functions.
    pub fn add(&mut self, process: u32, sampler: Option<&mut Sampler>) {
        let is_recorded = self.is_recorded(process);
        let Some(sampler) = sampler else {
            return self.read_cpu_time_of(process);
        };
        match self.add_running(process, sampler) {
            // The process records its calls, and needs no samples.
            Err(_) if is_recorded || !self.has_samples => self.read_cpu_time_of(process),
            outcome => self.keep_failure(outcome),
        }
    }

    /// Samples a process that is running, or records its switches if it records its own functions. Its CPU time from now on is
    /// in these records. The CPU time that a killed collector has not written ends here, so that none is counted twice.
    fn add_running(&mut self, process: u32, sampler: &mut Sampler) -> Result<(), StacksError> {
        let (now, counted) = (best_reading().monotonic_ns, cpu_of_process(process));
        let outcome = sampler.add_running(process);
        // Otherwise the kernel's count is read instead, and the gap ends with the first reading.
        if outcome.is_ok() || self.has_samples && !self.is_recorded(process) {
            self.bridge(process, counted, now);
        }
        outcome
    }

    /// Learns of a process that was running before this collector replaced a killed one. It may have started after the killed one
    /// wrote CPU times for the last time, or so shortly before that the killed one has left no CPU time of it.
    pub fn expect(&mut self, process: u32) {
        let until = self.left.until;
        let log = self.session.directory().join(format!("{process}-s1.defs"));
        let is_new = !self.processes.contains_key(&process);
        if until == 0 || !is_new {
            return;
        }
        if has_started_since(process, until) {
            self.left.processes.insert(process, Left::default());
        } else if log.exists() {
            self.left.processes.entry(process).or_default();
        }
    }

    /// Saves up to when CPU times are written, for the collector that replaces this one if it is killed. `counts` are the
    /// kernel's counts of the CPU time of processes, from before their switches were read. Those of new processes are read here.
    fn leave(&mut self, until: u64, counts: &FxHashMap<u32, u64>) {
        let until = until - until % 1_000_000;
        let passed = until.saturating_sub(self.leaves.until);
        if passed == 0 {
            return;
        }
        let before = std::mem::take(&mut self.leaves.processes);
        let left = |(process, sampled): (&u32, &SampledProcess)| {
            let counted = counts.get(process).copied().or_else(|| cpu_of_process(*process))?;
            let counted = sampled.cpu.counted_before_waiting(counted);
            let rise = before.get(process).map_or(0, |before| counted.saturating_sub(before.counted));
            let per_second = (u128::from(rise) * 1_000_000_000 / u128::from(passed)) as u64;
            let (is_recorded, program) = (self.is_recorded(*process), sampled.program.clone());
            Some((*process, Left { counted, per_second, is_recorded, program }))
        };
        self.leaves = Handover { until, processes: self.processes.iter().filter_map(left).collect() };
        self.leaves.save(self.session.directory());
    }

    /// Whether CPU time that processes used after a killed collector wrote CPU times for the last time is still to be written.
    fn awaits_bridges(&self, now: u64) -> bool {
        let is_early = now.saturating_sub(self.began) < HANDOVER_MAX.as_nanos() as u64;
        (is_early || self.is_taking_over) && !self.left.processes.is_empty()
    }

    /// Writes the CPU time since a killed collector wrote it for the last time, for processes that have ended since then. They
    /// are assumed to have continued as before. At the end of the run, does this for all other processes, too.
    fn bridge_ended(&mut self, is_last: bool, now: u64) {
        let all: Vec<u32> = self.left.processes.keys().copied().collect();
        for process in all {
            let counted = cpu_of_process(process);
            if counted.is_none() || is_last {
                self.bridge(process, counted, now);
            }
            if counted.is_none() {
                self.end_process(process);
            }
        }
    }

    /// Writes the CPU time that a process has used, up to `now`, since a killed collector wrote it for the last time. `counted`
    /// is the kernel's count now. The process' functions in this time are unknown, unless it records them itself.
    fn bridge(&mut self, process: u32, counted: Option<u64>, now: u64) {
        let Some(left) = self.left.processes.remove(&process) else { return };
        let from = self.left.until;
        let passed = now.saturating_sub(from);
        let used = match counted {
            Some(counted) if left == Left::default() => counted.min(passed),
            Some(counted) if counted >= left.counted => counted - left.counted,
            _ => (u128::from(left.per_second) * u128::from(passed) / 1_000_000_000) as u64,
        };
        if passed == 0 || used < KNOWN_AFTER.as_nanos() as u64 {
            return;
        }
        if !self.processes.contains_key(&process) {
            self.start_process(process, &left.program);
        }
        let Some(sampled) = self.processes.get_mut(&process) else { return };
        let span = Span { from, until: now, used };
        // The CPU time of a process that has started since then and records its calls is counted from its first record on.
        if left == Left::default() && sampled.is_recorded() {
            return;
        }
        if !self.has_samples || left.is_recorded && counted.is_some() {
            return sampled.cpu.take_over(vec![span]);
        }
        match sampled.write_unknown(&self.session, process, &self.timing, span) {
            Ok(()) => {
                self.bridged += used;
                self.session.announce();
            }
            Err(why) => {
                self.left_out
                    .fail(format!("{why}; CPU time from before a collector was replaced has no row"));
            }
        }
    }

    /// From now on, reads the kernel's count of the CPU time of a process whose switches are not reported.
    fn read_cpu_time_of(&mut self, process: u32) {
        if self.timing.records_cpu_times {
            self.counted.entry(process).or_insert(0);
        }
    }

    /// Keeps the reason, if a process cannot be sampled.
    fn keep_failure(&mut self, outcome: Result<(), StacksError>) {
        match outcome {
            Ok(()) | Err(StacksError::NoProcess { .. }) => {}
            Err(why) => self.left_out.fail(format!("{why}; stacks of that process are not sampled")),
        }
    }

    /// Returns the data for the summary.
    pub fn report(&self, sampler: Option<&Sampler>) -> SamplingReport {
        let figures = sampler.map(Sampler::figures);
        let overhead = figures.as_ref().map(|figures| {
            let period = Some(self.period(figures)).filter(|_| self.has_samples);
            budget::overhead(figures, period, self.sample_cost)
        });
        let sampled = sampler.zip(figures.as_ref()).filter(|_| self.has_samples);
        let failure = if sampled.is_none() { self.left_out.failure.clone() } else { None };
        let mut report = sampled.map_or_else(SamplingReport::default, |(sampler, figures)| {
            let mut report = quality::of(figures, self.period(figures));
            report.period = report.period.or(self.periods.average(figures.samples));
            report.notes.splice(..0, self.notes(figures, sampler));
            report.notes.extend(self.events.notes(&sampler.event_totals()));
            report
        });
        report.overhead = overhead;
        report.given_to_parents = Duration::from_nanos(self.given_to_parents);
        report.notes.extend(failure);
        if self.bridged > 0 {
            report.notes.push(format!(
                "{:.2} s of CPU time are in rows (not seen): from a killed collector's last samples to the next one's first",
                self.bridged as f64 * 1e-9
            ));
        }
        if let Some(unsampled) = &self.unsampled {
            let notes = if unsampled.is_loss() { &mut report.losses } else { &mut report.notes };
            notes.extend(unsampled.notes());
        }
        report
    }

    /// Returns the CPU time between two samples, on average.
    fn period(&self, figures: &Figures) -> Duration {
        self.periods.average(figures.samples).unwrap_or(self.periods.now)
    }

    fn notes(&self, figures: &Figures, sampler: &Sampler) -> Vec<String> {
        let mut notes = Vec::from_iter(self.left_out.failure.clone());
        let percent = |part: u64| 100.0 * part as f64 / figures.samples.max(1) as f64;
        notes.push(format!(
            "call paths of functions that are not instrumented are sampled, once in {} ms of each thread's CPU time: {} \
             samples, {:.1} % of them unwound to the thread's start; their calls are not counted",
            significant(1e3 * self.period(figures).as_secs_f64(), 3),
            figures.samples,
            percent(figures.complete),
        ));
        let LeftOut { samples, early, .. } = self.left_out;
        if quality::is_notable_part(samples + early, figures) {
            let parts = [
                (
                    samples,
                    format!("count for the program or parent: their processes had fewer than {SAMPLES_MIN}"),
                ),
                (early, "are in no row: their process had none yet".to_owned()),
            ];
            let parts = parts.into_iter().filter(|(part, _)| *part > 0);
            notes.extend(parts.map(|(part, why)| format!("{part} samples ({:.1} %) {why}", percent(part))));
        }
        if percent(self.first_samples) >= FIRST_SAMPLES_NOTED {
            notes.push(format!(
                "{:.0} % of the samples are the first of their thread, a whole period after its start: functions that short threads \
                 call first have too little, and the standard errors do not show it",
                percent(self.first_samples)
            ));
        }
        if !sampler.samples_kernel() {
            notes.push(
                "only the program's own code is sampled: time in the kernel, for example for input and output, is not charged to it; \
                 /proc/sys/kernel/perf_event_paranoid of at most 1 allows both".to_owned(),
            );
        }
        notes.extend(foreign::notes());
        notes
    }

    fn start_process(&mut self, process: u32, program: &str) {
        let parent = self.processes.get(&process).and_then(|before| before.parent);
        self.end_process(process);
        if self.processes.len() >= PROCESSES_MAX {
            return self.left_out.fail(format!(
                "more than {PROCESSES_MAX} processes at once: stacks of others are not sampled"
            ));
        }
        // A fork has no name of its own, and may end before its log is made.
        let own = if program.is_empty() { executable(process) } else { None };
        let program = own.unwrap_or_else(|| program.to_owned());
        let mut new = SampledProcess::new(program, parent);
        new.read_own_logs(self.session.directory(), process);
        self.processes.insert(process, new);
    }

    fn sample(&mut self, process: u32, sample: Sample, sampler: &Sampler) {
        if !self.processes.contains_key(&process) {
            self.start_process(process, "");
        }
        let Some(sampled) = self.processes.get_mut(&process) else { return };
        let mut has_defined = matches!(sampled.log, Log::Waiting(_));
        let mut waiting = match &mut sampled.log {
            Log::Failed => return,
            Log::Open { .. } => Vec::new(),
            Log::Waiting(waiting) if waiting.len() + 1 < SAMPLES_MIN => return waiting.push(sample),
            Log::Waiting(waiting) => {
                let waiting = std::mem::take(waiting);
                sampled.program = executable(process).unwrap_or_else(|| std::mem::take(&mut sampled.program));
                if let Err(why) = sampled.open(&self.session, process, &self.timing) {
                    return self.left_out.fail(format!("{why}; stacks of that process are not sampled"));
                }
                waiting
            }
        };
        waiting.push(sample);
        // Samples from before the watermark are too late.
        let all = waiting.len();
        waiting.retain(|sample| sample.time >= self.watermark);
        self.left_out.early += (all - waiting.len()) as u64;
        for sample in waiting {
            self.first_samples += u64::from(!sampled.has_thread(sample.thread));
            match sampled.write(&self.session, &sample, sampler, &self.timing, self.watermark) {
                Ok(defines) => has_defined |= defines,
                Err(why) => {
                    sampled.end(&self.session, &self.timing);
                    sampled.log = Log::Failed;
                    self.left_out.fail(format!("{why}; stacks of that process are not sampled any more"));
                    has_defined = true;
                    break;
                }
            }
        }
        if has_defined {
            self.session.announce();
        }
    }

    fn ran(&mut self, process: u32, thread: u32, from: u64, until: u64) {
        if !self.has_samples {
            return;
        }
        let Some(sampled) = self.processes.get_mut(&process) else { return };
        let calls_are_recorded = sampled.records_calls_of(thread);
        match sampled.threads.get_mut(&thread) {
            Some(thread) => thread.ran(from, until, (self.watermark, calls_are_recorded), &self.timing),
            // `on_cpu` gets the times on a CPU in this interval. It gets them earlier, before the thread leaves the CPU.
            None if self.timing.records_cpu_times => {}
            None => sampled.add_unsampled(thread, from, until),
        }
    }

    /// Returns the process to which the CPU time of a process without a row belongs: its parent, unless the process has run long
    /// enough that it would already have a row if it were sampled.
    fn parent_with_time_of(&self, process: &SampledProcess) -> Option<u32> {
        let long = (2 * SAMPLES_MIN as u64 * self.timing.period).max(UNSAMPLED_MIN.as_nanos() as u64);
        let has_run_long = process.intervals.total() > long;
        process.parent.filter(|parent| !has_run_long && self.processes.contains_key(parent))
    }

    /// Writes the intervals without a sample that ended before this time. All samples from before this time are known.
    fn write_intervals(&mut self, until: u64) {
        let least = UNSAMPLED_MIN.as_nanos() as u64;
        let waiting = self.processes.iter().filter(|(_, sampled)| matches!(sampled.log, Log::Waiting(_)));
        let moved: Vec<(u32, Option<u32>)> = waiting
            .filter(|(_, sampled)| sampled.intervals.is_due(until))
            .map(|(process, sampled)| (*process, self.parent_with_time_of(sampled)))
            .collect();
        for (process, parent) in moved {
            let Some(sampled) = self.processes.get_mut(&process) else { continue };
            match parent {
                // The process has run only for a short time, so its intervals are given to its parent.
                Some(parent) => {
                    let due = sampled.intervals.split_off(until);
                    let parent = self.processes.get_mut(&parent);
                    parent.into_iter().for_each(|parent| parent.intervals.take_over(&due));
                }
                None if sampled.intervals.total() >= least => {
                    sampled.program =
                        executable(process).unwrap_or_else(|| std::mem::take(&mut sampled.program));
                    if let Err(why) = sampled.open(&self.session, process, &self.timing) {
                        self.left_out.fail(format!("{why}; stacks of that process are not sampled"));
                    }
                }
                None => {}
            }
        }
        for sampled in self.processes.values_mut() {
            match sampled.write_intervals(&self.session, until, &self.timing) {
                Ok(false) => {}
                Ok(true) => self.session.announce(),
                Err(why) => self.left_out.fail(format!("{why}; threads without a sample have no row")),
            }
        }
    }

    /// Writes the times on a CPU before this time. Everything that happened before this time is known.
    fn write_cpu_times(&mut self, until: u64) {
        // Only whole milliseconds are written, so that an interval of a millisecond is not split.
        let until = if until == u64::MAX { until } else { until - until % 1_000_000 };
        let waiting = self.processes.iter().filter(|(_, sampled)| matches!(sampled.log, Log::Waiting(_)));
        let due: Vec<(u32, Option<u32>)> = waiting
            .filter(|(_, sampled)| sampled.cpu.is_due(until))
            .map(|(process, sampled)| (*process, self.parent_with_time_of(sampled)))
            .collect();
        for (process, parent) in due {
            let Some(sampled) = self.processes.get_mut(&process) else { continue };
            let is_large = self.has_samples && sampled.cpu.used() >= UNSAMPLED_MIN.as_nanos() as u64;
            if sampled.is_recorded() || parent.is_none() && is_large {
                if let Err(why) = sampled.open(&self.session, process, &self.timing) {
                    self.left_out.fail(format!("{why}; the CPU time of that process is not recorded"));
                }
            } else if !self.has_samples {
                sampled.cpu.split_off(until);
            } else if let Some(parent) = parent {
                let times = sampled.cpu.split_off(until);
                self.give_to_parent(parent, times);
            }
        }
        for sampled in self.processes.values_mut() {
            let (is_new, written) = sampled.write_cpu_times(&self.session, until, &self.timing);
            if is_new {
                self.session.announce();
            }
            if let Err(why) = written {
                self.left_out.fail(format!("{why}; some threads have no CPU time of their own"));
            }
        }
    }

    /// Adds the CPU time of a process that has no row to that of its parent.
    fn give_to_parent(&mut self, parent: u32, times: Vec<Span>) {
        if let Some(parent) = self.processes.get_mut(&parent) {
            self.given_to_parents += times.iter().map(|span| span.used).sum::<u64>();
            parent.cpu.take_over(times);
        }
    }

    fn end_process(&mut self, process: u32) {
        if let Some(sampled) = self.processes.get_mut(&process)
            && matches!(sampled.log, Log::Waiting(_))
        {
            sampled.read_own_logs(self.session.directory(), process);
            // The process has recorded its calls, and ended before its CPU time was written.
            if sampled.is_recorded() && sampled.cpu.used() > 0 {
                let _ = sampled.open(&self.session, process, &self.timing);
            }
        }
        match self.processes.remove(&process) {
            Some(SampledProcess { log: Log::Waiting(waiting), parent, intervals, mut cpu, .. }) => {
                self.left_out.samples += waiting.len() as u64;
                // The parent waits for this process, or has ended.
                let of = parent.and_then(|parent| Some((parent, self.processes.get_mut(&parent)?)));
                if let Some((parent, of_parent)) = of {
                    of_parent.intervals.take_over(&intervals);
                    if self.has_samples {
                        self.give_to_parent(parent, cpu.split_off(u64::MAX));
                    }
                }
            }
            Some(mut sampled) => {
                sampled.end(&self.session, &self.timing);
                self.session.announce();
            }
            None => {}
        }
    }
}

/// Whether a process has started since a time of the kernel's clock, in nanoseconds.
fn has_started_since(process: u32, time: u64) -> bool {
    const NS_PER_TICK: u64 = 10_000_000;
    let passed = best_reading().monotonic_ns.saturating_sub(time);
    let ticks_now =
        Duration::try_from(clock_gettime(ClockId::Boottime)).map(|now| now.as_nanos() as u64 / NS_PER_TICK);
    let age = ticks_now
        .ok()
        .zip(start_time(process))
        .map(|(now, started)| ticks_since_boot(now).saturating_sub(started));
    age.is_some_and(|age| age * NS_PER_TICK <= passed)
}

impl LeftOut {
    fn fail(&mut self, why: String) {
        self.failure.get_or_insert(why);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ampere_counters::{RunCpu, Settings};
    use ampere_ring::{Kind, Record, RingConsumer};
    use ampere_settings::StackPeriod;
    use ampere_stacks::Options;
    use std::sync::{Arc, Mutex};

    fn writer(directory: &std::path::Path) -> Writer {
        let session = Session::open_or_create_in(directory).unwrap();
        let period = Duration::from_millis(1);
        let periods = Periods::new(period, StackPeriod::Every(period));
        Writer::new(session, EventClock::new(), (periods, None), None, true, true)
    }

    fn left(counted: u64, per_second: u64) -> Left {
        Left { counted, per_second, is_recorded: false, program: "/bin/program".to_owned() }
    }

    fn records_of(writer: &Writer, process: u32) -> Vec<Record> {
        let path = writer.session.directory().join(format!("{process}-s1.0.ring"));
        let mut records = Vec::new();
        RingConsumer::open(&path).unwrap().copy_out(&mut records, usize::MAX).unwrap();
        records
    }

    #[test]
    fn cpu_time_of_a_gap_after_a_killed_collector_is_in_unknown_functions() {
        let directory = tempfile::tempdir().unwrap();
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        let (lives, ended) = (std::process::id(), child.id());
        let mut writer = writer(directory.path());
        let until = writer.began - 1_000_000_000;
        let processes = [(lives, left(7_000_000, 0)), (ended, left(5_000_000, 400_000_000))];
        writer.left = Handover { until, processes: processes.into_iter().collect() };
        writer.fetch(None, false);
        assert!(writer.watermark < until, "the CPU time of the gap is waited for");
        // It used 0.3 s of the second.
        let now = writer.began;
        writer.bridge(lives, Some(307_000_000), now);
        writer.fetch(None, false);
        assert!(writer.watermark > until);
        let records = records_of(&writer, lives);
        let kinds: Vec<Kind> = records.iter().filter_map(|record| record.kind()).collect();
        let cpu_time = [Kind::CpuTime, Kind::Value];
        let expected = [cpu_time, [Kind::Enter; 2], cpu_time, [Kind::Leave; 2]].concat();
        assert_eq!((kinds, records[1].word0, records[5].word0), (expected, 0, 300_000_000));
        let seconds = (records[4].word0 - records[0].word0) as f64
            / (writer.timing.clock.at(now) - writer.timing.clock.at(until)) as f64;
        assert!((seconds - 1.0).abs() < 1e-3, "{seconds} s");
        // A process that has ended is assumed to have continued to use 0.4 s of CPU time per second.
        let used = records_of(&writer, ended)[5].word0;
        assert!((400_000_000..1_000_000_000).contains(&used), "{used} ns");
        assert!(!writer.processes.contains_key(&ended));
    }

    #[test]
    fn the_cpu_time_of_a_gap_ends_when_its_process_is_sampled_for_whatever_reason() {
        let Ok(mut sampler) = Sampler::begin(&Options { cpu_times: true, ..Options::default() }) else {
            println!("skipped: perf_event_open is not allowed here");
            return;
        };
        let directory = tempfile::tempdir().unwrap();
        let mut child = std::process::Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        let (pid, mut run) = (child.id(), RunCpu::new(&Settings::default(), 1));
        run.add(pid, start_time(pid).unwrap());
        let run = Arc::new(Mutex::new(run));
        let mut writer = writer(directory.path());
        writer.unsampled = Some(UnsampledProcesses::of(run.clone(), None, None));
        let processes = [(pid, left(0, 0))].into_iter().collect();
        writer.left = Handover { until: writer.began - 1_000_000_000, processes };
        let mut fetch = |is_taking_over| {
            (writer.began, writer.is_taking_over) = (0, is_taking_over);
            run.lock().unwrap().own_ns();
            writer.fetch(Some(&mut sampler), false);
            (sampler.has(pid), writer.left.processes.contains_key(&pid))
        };
        // While its request waits, the process is not sampled. Without a request, the kernel's count shows it at the second poll.
        assert_eq!([true, true, true, false].map(&mut fetch), [(false, true); 4]);
        assert_eq!(fetch(false), (true, false));
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn a_process_that_waited_in_the_gap_has_no_row_and_a_recorded_one_has_its_functions() {
        let directory = tempfile::tempdir().unwrap();
        let mut writer = writer(directory.path());
        let until = writer.began - 1_000_000_000;
        let recorded = Left { is_recorded: true, ..left(0, 0) };
        let processes = [(1, left(7_000_000, 0)), (2, recorded)];
        writer.left = Handover { until, processes: processes.into_iter().collect() };
        writer.bridge(1, Some(7_900_000), writer.began);
        assert!(writer.processes.is_empty());
        writer.bridge(2, Some(300_000_000), writer.began);
        let cpu = &mut writer.processes.get_mut(&2).unwrap().cpu;
        assert_eq!(cpu.split_off(u64::MAX), [Span { from: until, until: writer.began, used: 300_000_000 }]);
    }

    #[test]
    fn what_is_left_for_the_next_collector_is_the_cpu_time_that_is_written() {
        let directory = tempfile::tempdir().unwrap();
        let mut writer = writer(directory.path());
        writer.start_process(7, "/bin/program");
        writer.leave(1_000_000_000, &[(7, 50_000_000), (8, 1)].into_iter().collect());
        writer.processes.get_mut(&7).unwrap().cpu.add(7, 1_090_000_000, 1_100_000_000);
        writer.leave(1_100_500_000, &[(7, 90_000_000)].into_iter().collect());
        let expected = Handover {
            until: 1_100_000_000,
            processes: [(7, left(80_000_000, 300_000_000))].into_iter().collect(),
        };
        assert_eq!(Handover::load(writer.session.directory()), Some(expected));
    }

    #[test]
    fn a_process_that_has_started_in_the_gap_is_known_by_its_age() {
        let now = best_reading().monotonic_ns;
        let mut child =
            std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        assert!(has_started_since(child.id(), now - 100_000_000));
        assert!(!has_started_since(1, now - 100_000_000));
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(!has_started_since(child.id(), now - 100_000_000));
    }
}
