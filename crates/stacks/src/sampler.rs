//! Polls the rings and passes the records of all CPUs, in time order, to a `Sink`.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use rustc_hash::FxHashMap;
use rustix::time::{ClockId, clock_gettime};

use crate::counts::{self, EventTotals};
use crate::events::{Events, Ring, SamplingStart, online_cpus, threads_of};
use crate::figures::{Counts, CutReason, End, Figures, Walked};
use crate::file::Files;
use crate::functions::{Function, FunctionId, Functions};
use crate::machine;
use crate::options::{Options, StacksError, check};
use crate::processes::{Mappings, Processes};
use crate::records::{Header, Record, SwitchedTo};
use crate::stack::{Registers, Stack};
use crate::walker::Walker;

/// Receives samples, and starts and ends of processes, in time order.
pub trait Sink {
    /// Receives the call path of a thread after another period of its CPU time. The outermost function comes first.
    /// `is_cut_off`: there are further functions outside of it, which are not known.
    fn sample(&mut self, process: u32, thread: u32, time_ns: u64, frames: &[FunctionId], is_cut_off: bool);
    /// Receives the time at which the thread of the next sample began to run or to wait for a CPU.
    fn sample_runs_since(&mut self, _since_ns: u64) {}
    /// Receives how often each of `Options::events` has happened in the thread of the next sample since the thread's last
    /// sample.
    fn sample_counts(&mut self, _counts: &[u64]) {}
    /// Receives the start of a program with this name in a process. A forked process has no name, and is still a copy of its
    /// parent.
    fn started(&mut self, process: u32, time_ns: u64, name: Option<&str>);
    /// Receives the fork of `_process` by `_parent`.
    fn forked(&mut self, _process: u32, _parent: u32) {}
    /// Receives an interval during which a thread was on a CPU, or waited for one.
    fn ran(&mut self, _process: u32, _thread: u32, _from_ns: u64, _until_ns: u64) {}
    /// Receives an interval during which a thread was on a CPU. Longer intervals are passed on in parts, up to the time of each
    /// poll.
    fn on_cpu(&mut self, _process: u32, _thread: u32, _from_ns: u64, _until_ns: u64) {}
    /// Called when the kernel has lost records, so that it is not known which threads run.
    fn lost(&mut self) {}
    /// Receives the end of a thread, or, if `thread` is `None`, that of the process.
    fn ended(&mut self, process: u32, thread: Option<u32>, time_ns: u64);
}

/// The maximum delay between the time of a record and its arrival in the ring.
const SLACK: Duration = Duration::from_millis(1);

/// The minimum interval at which /proc is searched for processes that have ended, after records were lost.
const REFRESH_NS: u64 = 1_000_000_000;

/// The minimum interval at which new CPUs are searched for.
const CPUS_NS: u64 = 500_000_000;

/// The maximum number of events that are opened to change the period.
const REOPENED_MAX: usize = 4096;

/// The maximum number of running threads that are known at a time.
const RUNNING_MAX: usize = 1 << 16;

/// Samples processes, and everything that they start.
pub struct Sampler {
    events: Events,
    options: Options,
    files: Files,
    functions: Functions,
    processes: Processes,
    /// Processes that were running already when they were added.
    incomplete: Vec<Incomplete>,
    /// The threads that are on a CPU or wait for one, each with the time at which that began.
    running: FxHashMap<u32, u64>,
    /// The threads that have been on a CPU.
    on_cpu: FxHashMap<u32, OnCpu>,
    /// Threads whose first switch is not known, each with its process and a time since which it may have been on a CPU: that at
    /// which the process was added, or at which records were lost.
    not_switched: FxHashMap<u32, (u32, u64)>,
    /// The time of the last [`Sampler::set_period`], and threads, with their processes, that were started before that time but
    /// became known later: they may have no events.
    reopened: u64,
    missed: Vec<(u32, u32)>,
    counts: Counts,
    events_counted: counts::Counts,
    /// The latest time in each ring, and the latest time that was passed on.
    latest_of_rings: Vec<u64>,
    latest: u64,
    /// Whether records were lost since /proc was last searched for processes that have ended, and the time of that search.
    has_lost: bool,
    refreshed: u64,
    /// The last time that new CPUs were searched for, and the function that lists the CPUs.
    cpus_checked: u64,
    cpus: fn() -> Vec<u32>,
    /// The difference between the time of day and the clock of the samples.
    day_ahead: i64,
    scratch: Scratch,
}

/// A process whose threads may have started further threads before they were sampled themselves.
struct Incomplete {
    process: u32,
    /// All threads of the process at the time `at`.
    threads: Vec<u32>,
    at: u64,
}

/// Whether a thread is on a CPU.
struct OnCpu {
    process: u32,
    is_on: bool,
    /// The time up to which the interval was passed on, or at which the thread left the CPU.
    at: u64,
}

impl OnCpu {
    /// Passes on the interval up to `until`, and returns its nanoseconds.
    fn pass(&mut self, thread: u32, until: u64, sink: &mut dyn Sink) -> u64 {
        let passed = until.saturating_sub(self.at);
        if passed > 0 {
            sink.on_cpu(self.process, thread, self.at, until);
            self.at = until;
        }
        passed
    }
}

/// Memory that is used again at each poll.
#[derive(Default)]
struct Scratch {
    /// The time, ring and position of the records to be passed on.
    records: Vec<(u64, usize, u64)>,
    record: Vec<u8>,
    frames: Vec<FunctionId>,
}

impl Sampler {
    /// Prepares sampling; no process is sampled yet. The calling thread must live as long as the sampler.
    ///
    /// # Errors
    ///
    /// The kernel does not allow it, or has no memory for it.
    pub fn begin(options: &Options) -> Result<Sampler, StacksError> {
        Sampler::begin_on(options, online_cpus)
    }

    /// Like [`Sampler::begin`]. `online` lists the CPUs that exist now.
    fn begin_on(options: &Options, online: fn() -> Vec<u32>) -> Result<Sampler, StacksError> {
        check(options)?;
        let mut options = options.clone();
        let cpus = online();
        let events = match Events::open(&options, &cpus) {
            Err(StacksError::Denied | StacksError::Paranoid { .. }) if options.kernel => {
                options.kernel = false;
                Events::open(&options, &cpus)?
            }
            events => events?,
        };
        Ok(Sampler {
            latest_of_rings: vec![0; events.rings.len()],
            events,
            files: Files::new(),
            functions: Functions::new(),
            processes: Processes::default(),
            incomplete: Vec::new(),
            running: FxHashMap::default(),
            on_cpu: FxHashMap::default(),
            not_switched: FxHashMap::default(),
            reopened: 0,
            missed: Vec::new(),
            counts: Counts::default(),
            events_counted: counts::Counts::new(&options.events),
            latest: 0,
            has_lost: false,
            refreshed: 0,
            cpus_checked: 0,
            cpus: online,
            day_ahead: 0,
            scratch: Scratch::default(),
            options,
        })
    }

    /// Starts to sample the commands that `launcher` executes, and everything that these start. Does not sample the launcher
    /// itself, nor commands that are executed by threads that it creates after this call. Does nothing for a process that is
    /// already sampled.
    ///
    /// # Errors
    ///
    /// The kernel does not allow it, or has no memory for it.
    pub fn add_launcher(&mut self, launcher: u32) -> Result<(), StacksError> {
        if self.processes.has(launcher) {
            return Ok(());
        }
        self.add(launcher, threads_of(launcher)?, SamplingStart::AtExec).map(drop)
    }

    /// Starts to sample a process that is already running, and everything that it starts. Does nothing for a process that is
    /// already sampled; [`Sampler::poll`] later adds the threads that were started during this call.
    ///
    /// # Errors
    ///
    /// The kernel does not allow it, or has no memory for it.
    pub fn add_running(&mut self, process: u32) -> Result<(), StacksError> {
        if self.processes.has(process) {
            return Ok(());
        }
        let now = clock_ns(self.options.clock);
        let threads = self.add(process, threads_of(process)?, SamplingStart::Now)?;
        if self.options.cpu_times {
            self.not_switched.extend(threads.into_iter().map(|thread| (thread, (process, now))));
        }
        self.recheck_threads(process)
    }

    /// Takes samples with another period from now on. Returns false if the change would take too many events or open files; then
    /// all processes are sampled as before.
    pub fn set_period(&mut self, period: Duration) -> bool {
        // Inherited events keep their period, so each thread gets its own event on each CPU.
        let threads: usize = self.processes.with_threads().iter().map(|of| of.threads.len()).sum();
        if threads * self.events.rings.len() > REOPENED_MAX {
            return false;
        }
        self.events.set_period(period);
        // Closing an event also ends the events inherited from it, so each process gets its own.
        let all = self.processes.all().into_iter();
        let all: Vec<_> = all.map(|process| (process, self.events.start_of(process))).collect();
        let before = self.events.take();
        for (process, start) in all {
            match threads_of(process).and_then(|threads| self.add(process, threads, start)) {
                Ok(_) | Err(StacksError::NoProcess { .. }) => {}
                Err(_) => {
                    self.events.put_back(before);
                    self.events.set_period(self.options.period);
                    return false;
                }
            }
        }
        (self.options.period, self.reopened) = (period, clock_ns(self.options.clock));
        true
    }

    /// Opens events for threads of a process. Returns the threads that now have events.
    fn add(
        &mut self,
        process: u32,
        threads: Vec<u32>,
        begin: SamplingStart,
    ) -> Result<Vec<u32>, StacksError> {
        let threads = self.events.add(process, threads, begin)?;
        self.processes.added(process, &threads);
        Ok(threads)
    }

    /// Lists the threads of a process once more, to add those that were started in the meantime: see
    /// [`Sampler::add_missed_threads`].
    fn recheck_threads(&mut self, process: u32) -> Result<(), StacksError> {
        let threads = threads_of(process)?;
        self.incomplete.push(Incomplete { process, threads, at: clock_ns(self.options.clock) });
        Ok(())
    }

    /// Adds threads that are not sampled and were not started by a sampled thread. All events before `until` are known.
    fn add_missed_threads(&mut self, until: u64) {
        for (process, thread) in std::mem::take(&mut self.missed) {
            // A thread that has ended in the meantime needs no event.
            let _ = self.add(process, vec![thread], SamplingStart::Now);
        }
        // A thread is visible in /proc slightly before the kernel writes its record.
        let is_due = |looked: &mut Incomplete| looked.at.saturating_add(SLACK.as_nanos() as u64) < until;
        let due: Vec<Incomplete> = self.incomplete.extract_if(.., is_due).collect();
        for Incomplete { process, mut threads, .. } in due {
            threads.retain(|thread| !self.processes.has_thread(process, *thread));
            let added = self.add(process, threads, SamplingStart::Now);
            if added.is_ok_and(|added| !added.is_empty()) {
                let _ = self.recheck_threads(process);
            }
        }
    }

    /// Returns the time in which the rings fill up when every CPU is busy. Polling twice in this time loses nothing.
    pub fn ring_duration(&self) -> Duration {
        let ring = self.events.rings.iter().map(Ring::bytes).min().unwrap_or(0);
        let samples = ring / (self.options.stack_bytes as usize + 128);
        self.options.period * samples as u32
    }

    /// Waits until half a ring has been written, `until` can be read, or the time `longest` has passed.
    pub fn wait(&self, longest: Duration, until: BorrowedFd) {
        self.events.wait(longest, until);
    }

    /// Whether a process is sampled, according to the records that [`Sampler::poll`] has read.
    pub fn has(&self, process: u32) -> bool {
        self.processes.has(process)
    }

    /// Whether threads are sampled in the kernel, too.
    pub fn samples_kernel(&self) -> bool {
        self.options.kernel
    }

    /// Passes on everything that happened up to a millisecond ago.
    pub fn poll(&mut self, sink: &mut dyn Sink) {
        let now = clock_ns(self.options.clock);
        self.deliver_until(now.saturating_sub(SLACK.as_nanos() as u64), sink);
    }

    /// Passes on everything, after the command has ended, and closes the events if they were counted.
    pub fn finish(&mut self, sink: &mut dyn Sink) {
        self.deliver_until(u64::MAX, sink);
        if self.events_counted.are_read() {
            self.events.close();
        }
    }

    /// Returns how often each of `Options::events` has happened so far.
    pub fn event_totals(&self) -> EventTotals {
        self.events
            .totals
            .lock()
            .map_or_else(|_| EventTotals::default(), |closed| self.events_counted.totals(&closed))
    }

    /// Returns the counts of samples, and of those that were cut off, by reason.
    pub fn figures(&self) -> Figures {
        self.counts.figures(|file| self.files.path(file))
    }

    /// Returns the number of switches so far, and the CPU time of the threads.
    pub fn switches_and_cpu(&self) -> (u64, Duration) {
        let Figures { switches, on_cpu_ns, .. } = &self.counts.figures;
        (*switches, Duration::from_nanos(*on_cpu_ns))
    }

    /// Returns a function that was passed on.
    pub fn function(&self, id: FunctionId) -> &Function {
        self.functions.get(id)
    }

    fn deliver_until(&mut self, until: u64, sink: &mut dyn Sink) {
        let began = cpu_ns();
        let now = clock_ns(self.options.clock);
        self.day_ahead = (clock_ns(libc::CLOCK_REALTIME) as i64).wrapping_sub(now as i64);
        self.add_new_cpus(now);
        if self.options.cpu_times {
            self.processes.read_clocks(|| clock_ns(self.options.clock));
        }
        self.files.fetch();
        let mut scratch = std::mem::take(&mut self.scratch);
        let ends: Vec<u64> =
            (0..self.events.rings.len()).map(|ring| self.gather(ring, until, &mut scratch.records)).collect();
        // The records of each ring are in order already: a stable sort merges them.
        scratch.records.sort();
        for (time, ring, position) in scratch.records.drain(..) {
            let time = time.max(self.latest);
            self.latest = time;
            self.compare_clocks(time);
            self.deliver(time, ring, position, &mut scratch.record, &mut scratch.frames, sink);
        }
        for (ring, end) in self.events.rings.iter_mut().zip(ends) {
            ring.release(end);
        }
        self.scratch = scratch;
        self.forget_ended(sink);
        self.add_missed_threads(until);
        self.pass_on_cpu(until.min(now), sink);
        self.counts.figures.cpu_ns += cpu_ns().saturating_sub(began);
    }

    /// Forgets the processes whose end may be among the lost records. This is done only now, because samples of an ended process
    /// in another ring need its mappings.
    fn forget_ended(&mut self, sink: &mut dyn Sink) {
        if !self.has_lost || self.latest.saturating_sub(self.refreshed) < REFRESH_NS {
            return;
        }
        (self.has_lost, self.refreshed) = (false, self.latest);
        for process in self.processes.remove_ended() {
            self.files.forget(process);
            self.counts.end(process);
            sink.ended(process, None, self.latest);
        }
    }

    /// Extends sampling to new CPUs.
    fn add_new_cpus(&mut self, now: u64) {
        if now.saturating_sub(self.cpus_checked) < CPUS_NS {
            return;
        }
        let is_first = std::mem::replace(&mut self.cpus_checked, now) == 0;
        for cpu in if is_first { Vec::new() } else { (self.cpus)() } {
            if self.events.has_cpu(cpu) || self.counts.figures.unsampled_cpu.is_some() {
                continue;
            }
            match self.events.add_cpu(cpu, &self.processes.with_threads()) {
                Ok(true) => self.counts.figures.later_cpus += 1,
                Ok(false) => {}
                Err(why) => self.counts.figures.unsampled_cpu = Some(format!("CPU {cpu}: {why}")),
            }
            self.latest_of_rings.resize(self.events.rings.len(), self.latest);
        }
    }

    fn time_of_day(&self, time: u64) -> i64 {
        (time as i64).wrapping_add(self.day_ahead)
    }

    /// Collects the records of a ring up to `until`. Returns the position after the last one.
    fn gather(&mut self, number: usize, until: u64, records: &mut Vec<(u64, usize, u64)>) -> u64 {
        let ring = &mut self.events.rings[number];
        ring.refresh();
        let range = ring.range();
        let mut position = range.start;
        while position < range.end {
            let header = ring.word(position).and_then(Header::of_word);
            let timed = header.and_then(|header| {
                let end = position.checked_add(header.bytes.into()).filter(|end| *end <= range.end)?;
                Some((ring.word(position + header.time_at())?, end))
            });
            let Some((time, end)) = timed else {
                // The start of the next record is not known.
                self.counts.figures.lost += 1;
                return range.end;
            };
            // Records that interrupted each other can be slightly out of order.
            let time = time.max(self.latest_of_rings[number]);
            if time > until {
                break;
            }
            self.latest_of_rings[number] = time;
            records.push((time, number, position));
            position = end;
        }
        position
    }

    fn deliver(
        &mut self,
        time: u64,
        ring: usize,
        position: u64,
        scratch: &mut Vec<u8>,
        frames: &mut Vec<FunctionId>,
        sink: &mut dyn Sink,
    ) {
        let ring = &self.events.rings[ring];
        let bytes = ring.word(position).and_then(Header::of_word).map_or(0, |header| header.bytes);
        let has_counts = self.events_counted.are_read();
        let record = ring.slice(position, bytes.into(), scratch);
        let record = record.and_then(|record| Record::parse(record, has_counts));
        let Some(record) = record else {
            self.counts.figures.lost += 1;
            return;
        };
        match record {
            Record::Sample { process, thread, registers, stack, counts } => {
                let stack_bytes = self.options.stack_bytes;
                let (files, functions) = (&mut self.files, &mut self.functions);
                let mut walk = |processes: &mut Processes, files: &mut Files| {
                    let mappings = mappings_of(processes, files, process);
                    let walker = Walker { files, functions, process, mappings: &mappings };
                    walk(walker, registers, stack, stack_bytes, frames)
                };
                let mut walked = walk(&mut self.processes, files);
                if walked.is_unmapped && self.processes.request_mappings(process, time) {
                    walked = walk(&mut self.processes, files);
                }
                let why = walked.unnamed.map(|file| self.files.unnamed_reason(file));
                self.counts.add(process, frames.len(), &walked, why);
                self.running.get(&thread).iter().for_each(|since| sink.sample_runs_since(**since));
                if let Some(counts) = counts {
                    sink.sample_counts(self.events_counted.since_last(thread, &counts));
                }
                sink.sample(process, thread, time, frames, walked.end != End::Complete);
            }
            Record::Mapped { process, mapped } => {
                let mapped_at = self.time_of_day(time);
                let file = self.files.number(&mapped, process, Some(mapped_at));
                self.processes.mapped(process, &mapped, file, &|file| self.files.is_memory(file));
            }
            Record::Exec { process, name, .. } => {
                // The CPU time up to here is that of the program before. A thread that executes a program gets the ID of the
                // main thread, and no record says that its own ID has ended.
                let (on_cpu, running) = (&mut self.on_cpu, &mut self.running);
                self.counts.figures.on_cpu_ns += end_threads(on_cpu, running, process, time, sink);
                self.processes.exec(process);
                self.counts.end(process);
                self.files.forget(process);
                self.files.maps.executed(process, self.time_of_day(time));
                sink.started(process, time, Some(&String::from_utf8_lossy(name)));
                self.events.executed(process);
                self.switch_in(process, time);
                if !self.on_cpu.get(&process).is_some_and(|entry| entry.is_on) {
                    self.begins_on_cpu(process, process, time);
                }
            }
            Record::Forked { process, parent, thread } => {
                if self.processes.forked(process, parent, thread) {
                    self.files.forget(process);
                    self.files.maps.forked(process, parent, self.time_of_day(time));
                    sink.started(process, time, None);
                    sink.forked(process, parent);
                }
                self.switch_in(thread, time);
                if time <= self.reopened {
                    self.missed.push((process, thread));
                }
            }
            Record::Switched { process, thread, to: SwitchedTo::Running } => {
                self.counts.figures.switches += 1;
                self.switch_in(thread, time);
                self.begins_on_cpu(process, thread, time);
            }
            Record::Switched { process, thread, to } => {
                self.counts.figures.switches += 1;
                if to == SwitchedTo::Waiting {
                    self.switch_out(process, thread, time, sink);
                }
                self.ends_on_cpu(process, thread, time, sink);
            }
            Record::Ended { process, thread } => {
                self.switch_out(process, thread, time, sink);
                self.ends_on_cpu(process, thread, time, sink);
                self.on_cpu.remove(&thread);
                self.events_counted.end_thread(thread);
                sink.ended(process, Some(thread), time);
                if self.processes.ended(process, thread) {
                    self.files.forget(process);
                    self.counts.end(process);
                    self.events.retain(|root| self.processes.has_any_of(root));
                    sink.ended(process, None, time);
                }
            }
            Record::Lost(count) => {
                self.counts.figures.lost = self.counts.figures.lost.saturating_add(count);
                self.running.clear();
                let on = self.on_cpu.drain().filter(|(_, entry)| entry.is_on);
                self.not_switched.extend(on.map(|(thread, entry)| (thread, (entry.process, time))));
                sink.lost();
                self.has_lost = true;
            }
            Record::Throttled { event, is_stopped } => {
                let period = self.options.period.as_nanos() as u64;
                self.counts.throttled(event, time, is_stopped, period);
            }
            Record::Other => {}
        }
    }
}

fn mappings_of(processes: &mut Processes, files: &mut Files, process: u32) -> Mappings {
    processes.mappings(process, |mapped| {
        let number = files.number(mapped, process, None);
        (number, files.is_memory(number))
    })
}

impl Sampler {
    fn switch_in(&mut self, thread: u32, time: u64) {
        // The time for which threads wait for a CPU is used only together with samples.
        if self.options.samples && self.running.len() < RUNNING_MAX {
            self.running.entry(thread).or_insert(time);
        }
    }

    fn begins_on_cpu(&mut self, process: u32, thread: u32, time: u64) {
        if !self.options.cpu_times {
            return;
        }
        self.not_switched.remove(&thread);
        if self.on_cpu.len() >= RUNNING_MAX && !self.on_cpu.contains_key(&thread) {
            return;
        }
        let entry = self.on_cpu.entry(thread).or_insert(OnCpu { process, is_on: false, at: 0 });
        // A thread that was found to be runnable when it was added has waited for a CPU until now.
        let at = match entry.is_on {
            true => time.max(entry.at),
            false => self.processes.begins_on_cpu(process, time, entry.at),
        };
        *entry = OnCpu { process, is_on: true, at };
    }

    fn ends_on_cpu(&mut self, process: u32, thread: u32, time: u64, sink: &mut dyn Sink) {
        if !self.options.cpu_times {
            return;
        }
        let first = self.not_switched.remove(&thread);
        let new = OnCpu { process, is_on: first.is_some(), at: first.map_or(time, |(_, since)| since) };
        if self.on_cpu.len() >= RUNNING_MAX && !self.on_cpu.contains_key(&thread) {
            return;
        }
        let entry = self.on_cpu.entry(thread).or_insert(new);
        if std::mem::replace(&mut entry.is_on, false) && entry.at < time {
            let passed = entry.pass(thread, time, sink);
            self.counts.figures.on_cpu_ns += passed;
            self.processes.passed_on_cpu(process, passed, true);
        }
    }

    /// Passes on the time that threads have been on a CPU. All events before `until` are known.
    fn pass_on_cpu(&mut self, until: u64, sink: &mut dyn Sink) {
        // A thread that runs and has not been switched since it was added has run since then.
        let is_due = |_: &u32, (_, at): &mut (u32, u64)| *at < until;
        for (thread, (process, at)) in self.not_switched.extract_if(is_due) {
            if is_runnable(process, thread) {
                self.on_cpu.insert(thread, OnCpu { process, is_on: true, at });
            }
        }
        self.compare_clocks(until);
        for (thread, entry) in self.on_cpu.iter_mut().filter(|(_, entry)| entry.is_on) {
            let passed = entry.pass(*thread, until, sink);
            self.counts.figures.on_cpu_ns += passed;
            self.processes.passed_on_cpu(entry.process, passed, false);
        }
    }

    /// Compares the times on a CPU with the kernel's clocks that were read before `until`.
    fn compare_clocks(&mut self, until: u64) {
        if self.processes.has_reading_before(until) {
            let on = self.on_cpu.values().filter(|entry| entry.is_on).map(|entry| (entry.process, entry.at));
            let uncertain: Vec<u32> = self.not_switched.values().map(|(process, _)| *process).collect();
            self.processes.compare_clocks(until, on, &uncertain);
        }
    }

    fn switch_out(&mut self, process: u32, thread: u32, time: u64, sink: &mut dyn Sink) {
        if let Some(since) = self.running.remove(&thread) {
            sink.ran(process, thread, since, time);
        }
    }
}

/// Ends the threads of a process that has executed a program. Returns the nanoseconds that are passed on.
fn end_threads(
    on_cpu: &mut FxHashMap<u32, OnCpu>,
    running: &mut FxHashMap<u32, u64>,
    process: u32,
    time: u64,
    sink: &mut dyn Sink,
) -> u64 {
    let on = on_cpu.iter_mut().filter(|(_, entry)| entry.process == process && entry.is_on);
    let passed = on.map(|(thread, entry)| entry.pass(*thread, time, sink)).sum();
    let others = on_cpu.extract_if(|thread, entry| entry.process == process && *thread != process);
    others.for_each(|(thread, _)| _ = running.remove(&thread));
    passed
}

/// Whether a thread runs or waits for a CPU.
fn is_runnable(process: u32, thread: u32) -> bool {
    let stat = std::fs::read(format!("/proc/{process}/task/{thread}/stat")).unwrap_or_default();
    let after_name = stat.iter().rposition(|byte| *byte == b')').and_then(|at| stat.get(at + 2));
    after_name == Some(&b'R')
}

/// Finds the functions on a copied stack, the outermost first.
fn walk(
    mut walker: Walker,
    registers: Option<[u64; machine::RECORDED.len()]>,
    stack: &[u8],
    stack_bytes: u32,
    frames: &mut Vec<FunctionId>,
) -> Walked {
    let Some(recorded) = registers else {
        frames.clear();
        frames.push(FunctionId(0));
        let end = End::CutOff(CutReason::OtherMachine, 0);
        return Walked { end, unnamed: None, guessed: None, is_unmapped: false };
    };
    let mut stack = Stack::new(recorded[machine::SP_RECORDED], stack, stack.len() >= stack_bytes as usize);
    let walked = walker.walk(Registers::new(&recorded), &mut stack, frames);
    frames.reverse();
    walked
}

fn clock_ns(clock: libc::clockid_t) -> u64 {
    let clock = match clock {
        libc::CLOCK_MONOTONIC_RAW => ClockId::MonotonicRaw,
        libc::CLOCK_REALTIME => ClockId::Realtime,
        libc::CLOCK_BOOTTIME => ClockId::Boottime,
        _ => ClockId::Monotonic,
    };
    let time = clock_gettime(clock);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::cpu_of_process;
    use std::collections::HashMap;
    use std::io::{BufRead, BufReader, Read, Write};
    use std::process::{Command, Stdio};
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicBool, Ordering};

    /// Whether the last of the CPUs is online.
    static IS_THERE: AtomicBool = AtomicBool::new(false);

    fn listed() -> Vec<u32> {
        let mut cpus = online_cpus();
        if !IS_THERE.load(Ordering::Relaxed) {
            cpus.pop();
        }
        cpus
    }

    static CPUS: Mutex<Vec<u32>> = Mutex::new(Vec::new());

    #[test]
    fn cpus_come_and_go_and_one_that_does_not_exist_is_not_counted() {
        const SECOND: u64 = 1_000_000_000;
        let online = online_cpus();
        *CPUS.lock().unwrap() = online[..1].to_vec();
        let Ok(mut sampler) = Sampler::begin_on(&Options::default(), || CPUS.lock().unwrap().clone()) else {
            println!("skipped: perf_event_open is not allowed here");
            return;
        };
        sampler.add_new_cpus(SECOND);
        let later = online.len() as u64 - 1;
        let all = [&online[..], &[u32::MAX / 2]].concat();
        for (time, cpus, expected) in [
            // The CPUs are not listed at each poll.
            (SECOND + CPUS_NS / 2, &online[..], 0),
            (2 * SECOND, &online[..], later),
            (3 * SECOND, &online[..1], later),
            (4 * SECOND, &[], later),
            (5 * SECOND, &all[..], later),
        ] {
            *CPUS.lock().unwrap() = cpus.to_vec();
            sampler.add_new_cpus(time);
            let figures = sampler.figures();
            assert_eq!((figures.later_cpus, figures.unsampled_cpu), (expected, None), "{time} {cpus:?}");
            assert_eq!(sampler.latest_of_rings.len(), 1 + expected as usize);
        }
        sampler.poll(&mut Count(0));
    }

    struct Count(u64);

    impl Sink for Count {
        fn sample(&mut self, _: u32, _: u32, _: u64, _: &[FunctionId], _: bool) {
            self.0 += 1;
        }

        fn started(&mut self, _: u32, _: u64, _: Option<&str>) {}

        fn ended(&mut self, _: u32, _: Option<u32>, _: u64) {}
    }

    /// The number of samples of each process.
    #[derive(Default)]
    struct Counts(HashMap<u32, u64>);

    impl Sink for Counts {
        fn sample(&mut self, process: u32, _: u32, _: u64, _: &[FunctionId], _: bool) {
            *self.0.entry(process).or_default() += 1;
        }

        fn started(&mut self, _: u32, _: u64, _: Option<&str>) {}

        fn ended(&mut self, _: u32, _: Option<u32>, _: u64) {}
    }

    /// Measures the CPU time per sample of a process, while it uses a quarter of a second.
    fn cpu_per_sample(sampler: &mut Sampler, process: u32) -> Duration {
        let cpu = || cpu_of_process(process).expect("the process runs");
        let mut counts = Counts::default();
        sampler.poll(&mut counts);
        counts.0.clear();
        let since = cpu();
        while cpu() - since < 250_000_000 {
            std::thread::sleep(Duration::from_millis(10));
            sampler.poll(&mut counts);
        }
        Duration::from_nanos((cpu() - since) / counts.0.get(&process).copied().unwrap_or(0).max(1))
    }

    /// Whether the CPU time per sample is one of these, in seconds. It is measured up to ten times, because no sample is taken in
    /// stolen time.
    fn is_cpu_per_sample(sampler: &mut Sampler, process: u32, expected: &[f64]) -> bool {
        (0..10).any(|_| {
            let found = cpu_per_sample(sampler, process);
            println!("{found:?} for each sample, {expected:?} expected");
            expected.iter().any(|expected| (found.as_secs_f64() / expected - 1.0).abs() < 0.2)
        })
    }

    #[test]
    fn another_period_applies_to_all_processes_and_to_those_started_just_before() {
        // With small copies of stacks, the rings have room for the samples of a second, so that none is lost.
        let options = Options { stack_bytes: 1 << 10, ..Options::default() };
        let Ok(mut sampler) = Sampler::begin(&options) else {
            println!("skipped: perf_event_open is not allowed here");
            return;
        };
        let spin = r#"while :; do :; done & echo $!; all="$all $!"; read line"#;
        let script = format!("ulimit -t 30; {spin}; {spin}; kill $all");
        let mut shell = Command::new("bash");
        let mut shell =
            shell.args(["-c", &script]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (mut stdin, mut lines) =
            (shell.stdin.take().unwrap(), BufReader::new(shell.stdout.take().unwrap()).lines());
        let mut next = || lines.next().unwrap().unwrap().parse::<u32>().unwrap();
        let first = next();
        sampler.add_running(shell.id()).unwrap();
        sampler.add_running(first).unwrap();
        let before = is_cpu_per_sample(&mut sampler, first, &[0.001]);
        writeln!(stdin).unwrap();
        let second = next();
        // The sampler has not yet read the record of this process's start.
        let period = Duration::from_millis(4);
        assert!(sampler.set_period(period));
        // A process that was started just before may be sampled by two events.
        let after = is_cpu_per_sample(&mut sampler, first, &[0.004])
            && is_cpu_per_sample(&mut sampler, second, &[0.004, 0.002]);
        drop(stdin);
        shell.wait().unwrap();
        assert!(before && after, "{before} {after}");
    }

    #[test]
    fn a_cpu_that_comes_later_is_sampled() {
        let cpus = online_cpus();
        let (Some(last), true) = (cpus.last(), cpus.len() > 1) else {
            println!("skipped: one CPU");
            return;
        };
        let Ok(mut sampler) = Sampler::begin_on(&Options::default(), listed) else {
            println!("skipped: perf_event_open is not allowed here");
            return;
        };
        let spin = "echo; while :; do :; done & while :; do :; done";
        let mut spins = Command::new("taskset")
            .args(["-c", &last.to_string(), "sh", "-c", spin])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        spins.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        sampler.add_running(spins.id()).unwrap();
        let mut count = Count(0);
        for _ in 0..30 {
            sampler.poll(&mut count);
            std::thread::sleep(Duration::from_millis(10));
        }
        let (before, later) = (count.0, sampler.figures().later_cpus);
        IS_THERE.store(true, Ordering::Relaxed);
        for _ in 0..1000 {
            sampler.poll(&mut count);
            std::thread::sleep(Duration::from_millis(10));
            if count.0 > 50 {
                break;
            }
        }
        let children = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", spins.id()));
        for child in children.unwrap_or_default().split_whitespace() {
            let _ = Command::new("kill").arg(child).status();
        }
        spins.kill().unwrap();
        spins.wait().unwrap();
        assert_eq!((before, later), (0, 0));
        assert!(count.0 > 50, "{}", count.0);
        assert_eq!(sampler.figures().later_cpus, 1);
    }
}
