//! The records of one sampled process and its threads.

use super::clock::EventClock;
use super::cpu_intervals::CpuIntervals;
use super::cpu_times::{CpuRing, CpuTimes, Span, ThreadLocation, UNSHARED_LOCATIONS};
use super::sink::Sample;
use ampere_counters::Stat;
use ampere_model::{
    Definition, LOCAL_RANKS, LocalLocation, Location, LocationKind, Process, Region, RegionHandle,
    SAMPLED_HOST, STACK_EVENTS, STACK_PERIOD, Timestamp, VISIBLE_DEVICES,
};
use ampere_ring::{EventWriter, LogReader, LogWriter, RING_RECORDS_MIN, RingProducer, Session};
use ampere_stacks::{Function, Sampler, foreign};
use rustc_hash::FxHashMap;
use scorep_abi::{paradigm, region_type};
use std::collections::{HashSet, VecDeque};
use std::path::Path;
use std::time::Duration;

/// The capacity of a ring, enough for a second in which a few frames change each millisecond.
const RING_RECORDS: u64 = 1 << 13;
/// The library that `ampere run` preloads.
const HOST_LIBRARY: &str = "libampere_host.so";
/// The prefix of that library's functions that forward to an MPI function without recording the call; the rest of the name is
/// the MPI function's.
const WATCHED: &str = "ampere_watched_";
/// The region handle of the program itself.
const PROGRAM: u32 = 0;
/// The region handle that represents a recorded call.
const IN_CALL: u32 = 1;
/// The region handle that represents unknown functions.
const UNKNOWN: u32 = 2;
/// The region handle of functions of ampere's own libraries.
const OWN: u32 = 3;
/// The region handle that represents a recorded call whose outer callers are not known.
const IN_CUT_CALL: u32 = 4;
/// The offset from a function's number to its region handle.
const FUNCTIONS: u32 = 5;

/// The clocks, and the times that decide how long a sample counts.
pub(super) struct Timing {
    pub clock: EventClock,
    /// The CPU time between two samples, in nanoseconds.
    pub period: u64,
    /// The nanoseconds without a sample after which a thread is in no function.
    pub pause: u64,
    /// Whether the times at which threads are on a CPU are recorded.
    pub records_cpu_times: bool,
    /// The names of the events that each sample has counts of, separated by commas.
    pub events: String,
}

impl Timing {
    /// `pause` is the minimum of [`Timing::pause`], which is longer if the period is long.
    pub fn new(clock: EventClock, period: Duration, pause: Duration) -> Timing {
        let mut timing =
            Timing { clock, period: 0, pause: 0, records_cpu_times: false, events: String::new() };
        timing.set_period(period, pause);
        timing
    }

    pub fn set_period(&mut self, period: Duration, pause: Duration) {
        self.period = period.as_nanos() as u64;
        self.pause = pause.max(3 * period).as_nanos() as u64;
    }
}

/// A process, from the exec with which it started.
pub(super) struct SampledProcess {
    pub program: String,
    pub log: Log,
    /// The logs that the process writes itself. They describe its threads better than samples.
    own_logs: OwnLogs,
    pub threads: FxHashMap<u32, SampledThread>,
    /// Locations of threads that have ended, for use by new threads. The key is the location where the thread's calls are
    /// recorded, if there is one, because that location and the one here are shown as one.
    free: FxHashMap<Option<ThreadLocation>, VecDeque<SampledThread>>,
    /// The number of the next thread's location.
    next_id: u32,
    /// The region handles of the functions that are defined in the log.
    defined: HashSet<u32>,
    /// The process that forked this one.
    pub parent: Option<u32>,
    /// Intervals on a CPU of threads, and of children, without a sample.
    pub intervals: CpuIntervals,
    /// The writer for CPU time without samples or records, the time up to which it has written, and the CPU time until then.
    unknown: Option<(EventWriter, Timestamp, u64)>,
    /// The times at which threads that have ended were in functions, since intervals were last written.
    in_functions: Vec<(u64, u64)>,
    /// The CPU time of its threads.
    pub cpu: CpuTimes,
    /// The locations of samples that threads have, or had when they used CPU time that is not written yet.
    sampled_threads: FxHashMap<u32, ThreadLocation>,
    /// Whether the regions that do not depend on samples are defined.
    has_regions: bool,
}

/// In this many counts after a process has joined, its threads' CPU time is counted from that moment: a thread that runs without
/// a context switch may be seen only at the second count.
const COUNTS_SINCE_JOINED: u32 = 2;

/// The logs of a process that records its own calls.
#[derive(Default)]
struct OwnLogs {
    /// The logs, and whether each is of this process, and not of another one with its pid.
    logs: Vec<(LogReader, bool)>,
    /// The locations of threads there.
    threads: FxHashMap<u32, ThreadLocation>,
    /// How often the CPU time of threads has been counted.
    counts: u32,
    /// The kernel's time at which the process joined the session, if its CPU time since then is not written yet.
    joined: Option<u64>,
    /// The names of the calls of CUDA and HIP that are recorded there.
    runtime_calls: HashSet<String>,
}

pub(super) enum Log {
    /// There are too few samples yet.
    Waiting(Vec<Sample>),
    /// The open log, and the prefix of its file's name.
    Open { log: LogWriter, name: String },
    /// The log cannot be written.
    Failed,
}

pub(super) struct SampledThread {
    /// The number of its location.
    location: u32,
    /// The thread that the location was made for.
    made_for: u32,
    /// The location where the thread's calls are recorded.
    recorded: Option<ThreadLocation>,
    writer: EventWriter,
    stack: Vec<u32>,
    /// The last stack, while the thread waits and `stack` is empty.
    paused: Vec<u32>,
    /// The time of the thread's last sample, by the kernel's clock.
    last: u64,
    /// The time of its last event, by the clock of the events.
    last_event: Timestamp,
    /// Whether the thread has been on a CPU, or waited for one, since its last sample.
    pub runs: bool,
    /// The time until which the thread was on a CPU or waited for one.
    pub ran_until: u64,
    /// The time at which the thread entered the functions of its stack, by the kernel's clock.
    since: u64,
    /// The earlier times in functions.
    in_functions: Vec<(u64, u64)>,
}

impl SampledProcess {
    pub fn new(program: String, parent: Option<u32>) -> SampledProcess {
        SampledProcess {
            program,
            log: Log::Waiting(Vec::new()),
            own_logs: OwnLogs::default(),
            threads: FxHashMap::default(),
            free: FxHashMap::default(),
            next_id: 0,
            defined: HashSet::new(),
            parent,
            intervals: CpuIntervals::default(),
            unknown: None,
            in_functions: Vec::new(),
            cpu: CpuTimes::default(),
            sampled_threads: FxHashMap::default(),
            has_regions: false,
        }
    }

    /// Whether the process writes a log itself.
    pub fn is_recorded(&self) -> bool {
        self.own_logs.logs.iter().any(|(_, is_own)| *is_own)
    }

    /// Counts this call. For the first [`COUNTS_SINCE_JOINED`] calls, returns the kernel's time at which the process began to
    /// record, if its CPU time since then is not written yet. Returns `None` afterwards: threads that are counted later have
    /// started after the process was found.
    pub fn next_join_time(&mut self) -> Option<u64> {
        let own = &mut self.own_logs;
        own.counts = own.counts.saturating_add(1);
        own.joined.filter(|_| own.counts <= COUNTS_SINCE_JOINED)
    }

    /// Whether a thread has a location in a log that the process writes itself.
    pub fn records_calls_of(&self, thread: u32) -> bool {
        self.own_logs.threads.contains_key(&thread)
    }

    /// Adds a time on a CPU of a thread that has no sample yet. If calls of the thread are recorded, they get its CPU time, and
    /// nothing is added here.
    pub fn add_unsampled(&mut self, thread: u32, from: u64, until: u64) {
        if !self.threads.contains_key(&thread) && !self.records_calls_of(thread) {
            self.intervals.add(thread, from, until);
        }
    }

    /// Reads which threads have locations in the logs that the process writes itself.
    pub fn read_own_logs(&mut self, directory: &Path, pid: u32) {
        self.own_logs.read(directory, pid);
    }

    /// Makes the log and defines the process in it. If that fails, nothing more is written for the process.
    pub fn open(&mut self, session: &Session, pid: u32, timing: &Timing) -> Result<(), ampere_ring::Error> {
        let opened = self.make_log(session, pid, timing);
        if opened.is_err() {
            self.log = Log::Failed;
        }
        opened
    }

    fn make_log(&mut self, session: &Session, pid: u32, timing: &Timing) -> Result<(), ampere_ring::Error> {
        let (mut log, name) = (1..)
            .find_map(|number| {
                let name = format!("{pid}{MARK}{number}");
                match LogWriter::create(&session.directory().join(format!("{name}.defs"))) {
                    Err(ampere_ring::Error::Io { source, .. })
                        if source.kind() == std::io::ErrorKind::AlreadyExists =>
                    {
                        None
                    }
                    made => Some(made.map(|log| (log, name))),
                }
            })
            .expect("a number that is free")?;
        log.append(&Definition::Process(Process {
            pid,
            start_time: ampere_ring::process::start_time(pid).unwrap_or(0),
            hostname: ampere_ring::process::node_name(),
            executable: self.program.clone(),
            host: SAMPLED_HOST.to_owned(),
            clocks: timing.clock.began(),
            environment: environment(pid, timing),
            pid_namespace: ampere_ring::process::pid_namespace(),
        }));
        self.log = Log::Open { log, name };
        Ok(())
    }

    /// Defines the regions that are not functions, such as the program itself.
    fn define_regions(&mut self) {
        let Log::Open { log, .. } = &mut self.log else { return };
        if std::mem::replace(&mut self.has_regions, true) {
            return;
        }
        let program = Path::new(&self.program).file_name().unwrap_or_default().to_string_lossy();
        for (handle, name, paradigm, region_type) in [
            (PROGRAM, program.as_ref(), paradigm::MEASUREMENT, region_type::ARTIFICIAL),
            (IN_CALL, "(recorded call)", paradigm::SAMPLING, region_type::ARTIFICIAL),
            (IN_CUT_CALL, "(recorded call, callers unknown)", paradigm::SAMPLING, region_type::WRAPPER),
            (UNKNOWN, "(not seen)", paradigm::SAMPLING, 0),
            (OWN, "ampere", paradigm::SAMPLING, 0),
        ] {
            log.append_region(&Region {
                handle: RegionHandle(handle),
                name,
                canonical_name: name,
                source_file: "",
                begin_line: 0,
                end_line: 0,
                region_type: region_type as u8,
                paradigm: paradigm as u8,
            });
        }
    }

    /// Writes a sample. Returns whether there is something new in the log.
    pub fn write(
        &mut self,
        session: &Session,
        sample: &Sample,
        sampler: &Sampler,
        timing: &Timing,
        watermark: u64,
    ) -> Result<bool, ampere_ring::Error> {
        self.define_regions();
        self.release_wrong_location(sample.thread, timing);
        let before = (self.defined.len(), self.next_id);
        let recorded = self.own_logs.threads.get(&sample.thread).copied();
        let stack = self.define_stack(sample, sampler);
        let mut thread = match self.threads.remove(&sample.thread) {
            Some(known) => known,
            None => match self.begin_thread(session, sample.thread, recorded)? {
                Some(new) => new,
                None => return Ok(false),
            },
        };
        thread.recorded = recorded;
        thread.add(sample, stack, watermark, timing);
        self.threads.insert(sample.thread, thread);
        Ok(before != (self.defined.len(), self.next_id))
    }

    /// Whether the thread has been sampled before.
    pub fn has_thread(&self, thread: u32) -> bool {
        self.threads.contains_key(&thread)
    }

    /// Returns the region handles of a sample's functions, outermost first. New functions are defined.
    fn define_stack(&mut self, sample: &Sample, sampler: &Sampler) -> Vec<u32> {
        let mut stack = vec![PROGRAM];
        let functions = sample.stack.iter().map(|function| sampler.function(*function));
        let functions = functions.map(|function| (function.name.as_str(), &*function.module));
        let call_at = recorded_call(functions, &self.own_logs.runtime_calls);
        for (at, number) in sample.stack.iter().enumerate() {
            if Some(at) == call_at {
                stack.push(if sample.is_cut_off { IN_CUT_CALL } else { IN_CALL });
                break;
            }
            let function = sampler.function(*number);
            let of_mpi = mpi_function(&function.name);
            // Score-P's own calls of MPI are not the program's: their time belongs to the function of Score-P that makes them.
            let caller = at.checked_sub(1).map(|at| sampler.function(sample.stack[at]));
            if of_mpi.is_some() && caller.is_some_and(|by| is_of_score_p(&by.name, &by.module)) {
                break;
            }
            if of_mpi.is_none() && is_of_ampere(&function.module) {
                if stack.last() != Some(&OWN) {
                    stack.push(OWN);
                }
                continue;
            }
            let handle = number.0 + FUNCTIONS;
            self.define_function(handle, function, of_mpi);
            stack.push(handle);
            if of_mpi.is_some() {
                break;
            }
        }
        stack
    }

    /// Defines a function unless it is defined. `of_mpi`: its name, if it is an MPI function.
    fn define_function(&mut self, handle: u32, function: &Function, of_mpi: Option<&str>) {
        let Log::Open { log, .. } = &mut self.log else { return };
        if self.defined.insert(handle) {
            log.append_region(&Region {
                handle: RegionHandle(handle),
                name: of_mpi.unwrap_or(&function.name),
                canonical_name: function.canonical.as_str(),
                source_file: function.file.as_str(),
                begin_line: function.line,
                end_line: 0,
                region_type: 0,
                paradigm: of_mpi.map_or(paradigm::SAMPLING, |_| paradigm::MPI) as u8,
            });
        }
    }

    /// Returns a location for a thread's first sample: a free one, or a new one. `None` if the log is not open.
    fn begin_thread(
        &mut self,
        session: &Session,
        thread: u32,
        recorded: Option<ThreadLocation>,
    ) -> Result<Option<SampledThread>, ampere_ring::Error> {
        let Log::Open { log, name } = &mut self.log else { return Ok(None) };
        self.intervals.forget(thread);
        // The location that has been free for longest is used: the thread that ended last may still use a CPU in the kernel.
        let free = self.free.get_mut(&recorded).and_then(VecDeque::pop_front);
        let sampled = match free {
            Some(free) => free,
            None => {
                let id = self.next_id;
                self.next_id += 1;
                let named = name_of_location(&self.program, thread, id);
                let new_location = NewLocation { kind: LocationKind::CpuThread, id, named, thread };
                SampledThread::new(id, thread, make_location(session, log, name, new_location)?)
            }
        };
        self.sampled_threads.insert(thread, sampled.location());
        Ok(Some(sampled))
    }

    /// Writes the intervals without a sample that ended before this time. Returns whether they are the first.
    pub fn write_intervals(
        &mut self,
        session: &Session,
        until: u64,
        timing: &Timing,
    ) -> Result<bool, ampere_ring::Error> {
        self.define_regions();
        let Log::Open { log, name } = &mut self.log else { return Ok(false) };
        let mut in_functions = std::mem::take(&mut self.in_functions);
        for thread in self.threads.values_mut() {
            in_functions.append(&mut thread.in_functions);
            in_functions.extend(Some((thread.since, u64::MAX)).filter(|_| !thread.stack.is_empty()));
        }
        let due = self.intervals.take_due(until, &in_functions);
        let is_first = !due.is_empty() && !self.intervals.has_writer();
        if is_first {
            let id = self.next_id;
            self.next_id += 1;
            let named = "threads and children without a sample".to_owned();
            let new_location = NewLocation { kind: LocationKind::CpuThread, id, named, thread: 0 };
            let mut writer = make_location(session, log, name, new_location)?;
            // If CPU times are recorded, this location starts with a CPU time of 0. Later CPU times are added in the order of
            // time, so the start must not be after the first of them.
            if let Some((from, _)) = due.first().filter(|_| timing.records_cpu_times) {
                let from = self.cpu.first_waiting().map_or(*from, |first| first.min(*from));
                writer.cpu_time(timing.clock.at(from), 0, 0);
            }
            self.intervals.set_writer(writer);
        }
        self.intervals.write(&due, PROGRAM, |ns| timing.clock.at(ns));
        Ok(is_first)
    }

    /// Writes the times on a CPU before this time. Returns whether there is something new in the log, and why something could not
    /// be written.
    pub fn write_cpu_times(
        &mut self,
        session: &Session,
        until: u64,
        timing: &Timing,
    ) -> (bool, Result<(), ampere_ring::Error>) {
        let Log::Open { log, name } = &mut self.log else { return (false, Ok(())) };
        let (sampled, recorded) = (&self.sampled_threads, &self.own_logs.threads);
        let location_of = |thread: u32| recorded.get(&thread).or_else(|| sampled.get(&thread)).copied();
        let before = self.next_id;
        let next_id = &mut self.next_id;
        let make = |thread: Option<(u32, ThreadLocation)>| {
            let thread = thread.map(|(thread, location)| match location {
                ThreadLocation::Recorded { .. } => thread,
                ThreadLocation::Sampled { made_for, .. } => made_for,
            });
            let named = match thread {
                Some(thread) => format!("CPU time of thread {thread}"),
                None => "other threads".to_owned(),
            };
            let (kind, id, thread) = (LocationKind::CpuTime, *next_id, thread.unwrap_or(0));
            *next_id += 1;
            make_location(session, log, name, NewLocation { kind, id, named, thread }).map(CpuRing::new)
        };
        let written = self.cpu.write(until, &timing.clock, location_of, make);
        // The kernel may give the numbers of threads that have ended to others.
        self.sampled_threads
            .retain(|thread, _| self.threads.contains_key(thread) || self.cpu.has_thread(*thread));
        (before != self.next_id, written)
    }

    /// Writes CPU time that the process used in unknown functions.
    pub fn write_unknown(
        &mut self,
        session: &Session,
        pid: u32,
        timing: &Timing,
        Span { from, until, used }: Span,
    ) -> Result<(), ampere_ring::Error> {
        if matches!(self.log, Log::Waiting(_)) {
            self.open(session, pid, timing)?;
        }
        self.define_regions();
        let Log::Open { log, name } = &mut self.log else { return Ok(()) };
        if self.unknown.is_none() {
            let id = self.next_id;
            self.next_id += 1;
            let named = "(not seen)".to_owned();
            let new_location = NewLocation { kind: LocationKind::CpuThread, id, named, thread: 0 };
            self.unknown = Some((make_location(session, log, name, new_location)?, 0, 0));
        }
        if let Some((writer, last, total)) = &mut self.unknown {
            let begin = timing.clock.at(from).max(*last);
            let end = timing.clock.at(until).max(begin);
            let mut write_cpu_time = |writer: &mut EventWriter, time, used| {
                *total += used;
                if timing.records_cpu_times {
                    writer.cpu_time(time, 0, *total);
                }
            };
            write_cpu_time(writer, begin, 0);
            [PROGRAM, UNKNOWN].iter().for_each(|region| writer.enter(begin, *region));
            write_cpu_time(writer, end, used);
            [UNKNOWN, PROGRAM].iter().for_each(|region| writer.leave(end, *region));
            *last = end;
        }
        Ok(())
    }

    /// Ends the functions of threads that have waited since this time.
    pub fn pause(&mut self, since: u64, timing: &Timing) {
        self.threads
            .values_mut()
            .filter(|thread| thread.last_seen() < since && !thread.runs)
            .for_each(|thread| thread.pause(timing));
    }

    pub fn end_thread(&mut self, thread: u32, timing: &Timing) {
        self.cpu.end_thread(thread);
        if let Some(sampled) = self.threads.remove(&thread) {
            self.release(thread, sampled, timing);
        }
    }

    /// Ends the location of a thread that has ended, or keeps it for another thread.
    fn release(&mut self, number: u32, mut thread: SampledThread, timing: &Timing) {
        if number == thread.made_for {
            // The location where its calls are recorded may have become known after the last sample.
            thread.recorded = self.own_logs.threads.get(&number).copied();
        }
        let is_kept = thread.recorded.is_some() || thread.location().is_shared();
        if is_kept {
            thread.pause(timing)
        } else {
            thread.end(timing)
        }
        self.in_functions.append(&mut thread.in_functions);
        if is_kept {
            thread.runs = false;
            thread.paused.clear();
            self.free.entry(thread.recorded).or_default().push_back(thread);
        }
    }

    /// Releases a thread's location if it was made for another thread, and the thread's calls are recorded on another location
    /// than the one to which it belongs.
    fn release_wrong_location(&mut self, thread: u32, timing: &Timing) {
        let recorded = self.own_logs.threads.get(&thread);
        let is_wrong =
            |sampled: &SampledThread| sampled.made_for != thread && sampled.recorded.as_ref() != recorded;
        if self.threads.get(&thread).is_some_and(is_wrong)
            && let Some(sampled) = self.threads.remove(&thread)
        {
            self.release(thread, sampled, timing);
        }
    }

    pub fn end(&mut self, session: &Session, timing: &Timing) {
        let _ = self.write_cpu_times(session, u64::MAX, timing);
        self.cpu.end(&timing.clock);
        let free = self.free.drain().flat_map(|(_, free)| free);
        free.for_each(|mut thread| thread.end(timing));
        self.threads.values_mut().for_each(|thread| thread.end(timing));
        let _ = self.write_intervals(session, u64::MAX, timing);
        if let Some((mut writer, last, _)) = self.unknown.take() {
            writer.location_end(last);
            writer.close();
        }
        std::mem::take(&mut self.intervals).end();
        if let Log::Open { log, .. } = &mut self.log {
            let left_out = log.left_out();
            log.append(&Definition::Finished { left_out });
        }
    }
}

/// A location that is to be made.
struct NewLocation {
    kind: LocationKind,
    id: u32,
    named: String,
    thread: u32,
}

/// The mark in the names of logs of samples, to distinguish them from logs that processes write themselves.
const MARK: &str = "-s";

/// Whether the log at a path is one of samples.
pub(crate) fn is_log_of_samples(path: &Path) -> bool {
    path.file_stem().is_some_and(|name| name.to_string_lossy().contains(MARK))
}

/// Returns the name of a location that is made for this thread.
fn name_of_location(program: &str, thread: u32, id: u32) -> String {
    // A thread that has ended already is named after its program, whose name threads have at first.
    let of_program = || Path::new(program).file_name().unwrap_or_default().to_string_lossy().into_owned();
    let named = Stat::of_thread(thread, thread).map_or_else(of_program, |stat| stat.name);
    match id < UNSHARED_LOCATIONS {
        true => format!("{named} (thread {thread}, sampled)"),
        false => format!("{named} (thread {thread} and later ones, sampled)"),
    }
}

/// Makes a ring for a location, and defines it.
fn make_location(
    session: &Session,
    log: &mut LogWriter,
    process: &str,
    NewLocation { kind, id, named, thread }: NewLocation,
) -> Result<EventWriter, ampere_ring::Error> {
    let ring = format!("{process}.{id}.ring");
    let path = session.directory().join(&ring);
    let records = if kind == LocationKind::CpuTime { RING_RECORDS_MIN } else { RING_RECORDS };
    let producer = RingProducer::create_with_headroom(&path, records, id, session.headroom())?;
    log.append(&Definition::Location(Location { id: LocalLocation(id), kind, name: named, ring, thread }));
    Ok(EventWriter::new(producer))
}

/// Whether a recorded region is a function of CUDA or HIP, and neither a kernel nor a range.
fn is_runtime_call(region: &Region) -> bool {
    [paradigm::CUDA, paradigm::HIP].contains(&i32::from(region.paradigm))
        && ![region_type::KERNEL, region_type::USER].contains(&i32::from(region.region_type))
}

impl OwnLogs {
    fn read(&mut self, directory: &Path, pid: u32) {
        let is_first = self.logs.is_empty();
        loop {
            let path = match self.logs.len() {
                0 => directory.join(format!("{pid}.defs")),
                before => directory.join(format!("{pid}-{}.defs", before + 1)),
            };
            let Ok(Some(mut log)) = LogReader::open(&path) else { break };
            log.release_descriptor();
            self.logs.push((log, false));
        }
        // The logs before the last one are those of programs that the process executed before: they are never read.
        if is_first && let Some((_, earlier)) = self.logs.split_last_mut() {
            earlier.iter_mut().for_each(|(log, _)| log.close());
        }
        let start_time = ampere_ring::process::start_time(pid);
        let (threads, runtime_calls) = (&mut self.threads, &mut self.runtime_calls);
        let namespace = ampere_ring::process::pid_namespace();
        // A collector that was replaced, or this one before the process executed another program, has written its CPU time.
        let has_earlier_times = || directory.join(format!("{pid}{MARK}1.defs")).exists();
        for (number, (log, is_own)) in self.logs.iter_mut().enumerate() {
            let at = |location: LocalLocation| ThreadLocation::Recorded { log: number, location: location.0 };
            let _ = log.read_new(|definition| match definition {
                Definition::Process(process) => {
                    *is_own = start_time.is_none_or(|start_time| process.start_time == start_time)
                        && [0, namespace].contains(&process.pid_namespace);
                    if *is_own && !has_earlier_times() {
                        self.joined = Some(process.clocks.monotonic_ns);
                    }
                }
                Definition::Location(Location {
                    kind: LocationKind::CpuThread,
                    thread,
                    id: location,
                    ..
                })
                | Definition::Thread { thread, location }
                    if *is_own =>
                {
                    threads.insert(thread, at(location));
                }
                Definition::Region(region) if *is_own && is_runtime_call(&region) => {
                    runtime_calls.insert(region.name);
                }
                _ => {}
            });
        }
    }
}

impl SampledThread {
    fn new(location: u32, made_for: u32, writer: EventWriter) -> SampledThread {
        SampledThread {
            location,
            made_for,
            recorded: None,
            writer,
            stack: Vec::new(),
            paused: Vec::new(),
            last: 0,
            last_event: 0,
            runs: false,
            ran_until: 0,
            since: 0,
            in_functions: Vec::new(),
        }
    }

    fn location(&self) -> ThreadLocation {
        ThreadLocation::Sampled { location: self.location, made_for: self.made_for }
    }

    /// Returns the latest time at which the thread is known to have been on a CPU, or to have waited for one.
    fn last_seen(&self) -> u64 {
        self.last.max(self.ran_until)
    }

    /// Writes a sample and its counts of events. The thread's calls are recorded if `recorded` is set.
    fn add(&mut self, sample: &Sample, stack: Vec<u32>, watermark: u64, timing: &Timing) {
        let is_recorded = self.recorded.is_some();
        let since = sample.runs_since.unwrap_or(sample.time).max(watermark);
        let counts = (0..).zip(&sample.counts).filter(|(_, count)| **count > 0);
        let counted_at = self.counts_before(&stack, sample.time, timing).filter(|_| is_recorded);
        if let Some(time) = counted_at {
            counts.clone().for_each(|(event, count)| self.writer.counts(time, event, *count));
        }
        let changed = self.change_to(stack, sample.time, since, timing, is_recorded);
        if counted_at.is_none() {
            counts.for_each(|(event, count)| self.writer.counts(changed, event, *count));
        }
    }

    /// Returns when to record the event counts of a sample that is charged no time before itself: one period earlier, when the
    /// thread may still have been in a call. `None` if they belong at the time that [`SampledThread::change_to`] returns.
    fn counts_before(&self, stack: &[u32], time: u64, timing: &Timing) -> Option<Timestamp> {
        let is_in_call = matches!(stack.last(), Some(&(IN_CALL | IN_CUT_CALL)));
        let has_paused = !self.runs && time.saturating_sub(self.last_seen()) > timing.pause;
        let period_ago = timing.clock.at(time.saturating_sub(timing.period)).max(self.last_event);
        (!is_in_call && !has_paused && !self.stack.is_empty()).then_some(period_ago)
    }

    /// Makes the stack of a sample the thread's stack. The thread is assumed to have had this stack since its last sample. After
    /// a pause, this is assumed for one period, or for as long as the thread has run or waited for a CPU (`runs_since`) if that
    /// is longer. If its calls are recorded, this is assumed only after a pause, because the thread may have done something else.
    /// Then every sample is written, by leaving and entering the thread's innermost function, because the time between calls is
    /// divided among samples. A sample inside a recorded call counts for no time before it. Returns the time from which the
    /// thread is assumed to have this stack.
    fn change_to(
        &mut self,
        stack: Vec<u32>,
        time: u64,
        runs_since: u64,
        timing: &Timing,
        is_recorded: bool,
    ) -> Timestamp {
        let Timing { clock, period, pause, .. } = timing;
        let stopped = self.last_seen();
        if time.saturating_sub(stopped) > *pause && !self.runs {
            self.pause(timing);
        }
        if self.stack.is_empty() {
            self.since = time.saturating_sub(*period).min(runs_since).max(stopped);
        }
        let period_ago = match is_recorded {
            true => time.saturating_sub(*period),
            // The thread may have waited for a CPU in the meantime.
            false => time.saturating_sub(*period).min(runs_since),
        };
        let period_ago = clock.at(period_ago).max(self.last_event);
        // A sample inside a recorded call does not show what the thread did before. If calls are recorded, a sample outside of
        // them counts from its time on, too: the time before the first sample after a call is divided among all recent samples.
        let is_in_call = matches!(stack.last(), Some(&(IN_CALL | IN_CUT_CALL)));
        let since = match self.stack.is_empty() {
            true if !is_in_call => period_ago,
            false if !is_in_call && !is_recorded => self.last_event,
            _ => clock.at(time).max(self.last_event),
        };
        self.runs = true;
        let mut same = self.stack.iter().zip(&stack).take_while(|(before, now)| before == now).count();
        // A sample inside a recorded call may be in another call from the same place as the sample before.
        if is_recorded || is_in_call {
            same = same.min(stack.len() - 1);
        }
        self.stack[same..].iter().rev().for_each(|region| self.writer.leave(since, *region));
        stack[same..].iter().for_each(|region| self.writer.enter(since, *region));
        (self.stack, self.last, self.last_event) = (stack, time, clock.at(time).max(since));
        since
    }

    /// Records that the thread was on a CPU or waited for one from `from` until `until`, and has waited since. If it had no
    /// sample in this time, it is assumed to have been in the functions of its last sample, but not before `earliest`. If its
    /// calls are recorded, its samples are only added up: see `sampled.rs` of ampere-timeline.
    pub fn ran(
        &mut self,
        from: u64,
        until: u64,
        (earliest, calls_are_recorded): (u64, bool),
        timing: &Timing,
    ) {
        if !self.runs {
            if from.saturating_sub(self.last_seen()) > timing.pause {
                self.pause(timing);
            }
            if self.stack.is_empty() && !calls_are_recorded {
                self.resume(from.max(earliest), timing);
            }
        }
        self.runs = false;
        if !self.stack.is_empty() {
            self.ran_until = until;
        }
    }

    fn resume(&mut self, from: u64, timing: &Timing) {
        self.last_event = timing.clock.at(from).max(self.last_event);
        self.stack = std::mem::take(&mut self.paused);
        self.stack.iter().for_each(|region| self.writer.enter(self.last_event, *region));
        self.since = from;
    }

    fn end(&mut self, timing: &Timing) {
        self.pause(timing);
        self.writer.location_end(self.last_event);
        self.writer.close();
    }

    /// Ends the thread's functions at the time at which it began to wait.
    fn pause(&mut self, timing: &Timing) {
        if self.stack.is_empty() {
            return;
        }
        let mut until = self.last;
        if self.ran_until > self.last {
            until = self.ran_until;
            self.last_event = self.last_event.max(timing.clock.at(until));
        }
        self.in_functions.push((self.since, until));
        self.stack.iter().rev().for_each(|region| self.writer.leave(self.last_event, *region));
        self.paused = std::mem::take(&mut self.stack);
    }
}

/// Whether functions of this library are ampere's and not the program's. All of them are shown as one row.
fn is_of_ampere(module: &str) -> bool {
    let library = module.rsplit('/').next().unwrap_or_default();
    library.starts_with("libampere_") || library == "libscorep_substrate_ampere.so"
}

/// Returns the index of the outermost recorded call in a stack (outermost function first): a wrapper, or a GPU runtime function
/// that calls ampere's GPU library or is in `known`, the names recorded before. Each function in `stack` is a name and a module.
fn recorded_call<'a>(
    stack: impl Iterator<Item = (&'a str, &'a str)> + Clone,
    known: &HashSet<String>,
) -> Option<usize> {
    let known_at = stack.clone().position(|(name, _)| known.contains(name));
    [known_at, call_of_library(stack)].into_iter().flatten().min()
}

/// Returns the index of the recorded call in a stack that has a function of a library that records calls.
fn call_of_library<'a>(stack: impl Iterator<Item = (&'a str, &'a str)> + Clone) -> Option<usize> {
    let library = |module: &'a str| module.rsplit('/').next().unwrap_or_default();
    let is_one = |name: &str, module: &'a str| is_ours(library(module)) && !name.starts_with(WATCHED);
    let (at, (_, module)) = stack.clone().enumerate().find(|(_, (name, module))| is_one(name, module))?;
    let call_of_runtime = || stack.take(at).position(|(name, _)| is_call_of_runtime(name));
    is_gpu_library(library(module)).then(call_of_runtime).flatten().or(Some(at))
}

/// Whether a function is Score-P's own, which may be linked into the program.
fn is_of_score_p(name: &str, module: &str) -> bool {
    let library = module.rsplit('/').next().unwrap_or_default();
    library.starts_with("libscorep_") || name.starts_with("SCOREP_")
}

/// Whether functions of this library are wrappers of recorded calls, or record calls: ampere's own, or those of Score-P for MPI.
fn is_ours(library: &str) -> bool {
    library == HOST_LIBRARY || library.starts_with("libscorep_adapter_mpi") || is_gpu_library(library)
}

fn is_gpu_library(name: &str) -> bool {
    ampere_model::GPU_LIBRARIES.contains(&name)
}

/// Whether a function has a name like those of CUDA, HIP and OpenCL.
fn is_call_of_runtime(name: &str) -> bool {
    let is_one = |rest: &str| rest.starts_with(|first: char| first.is_ascii_uppercase());
    ["cuda", "cu", "hip", "cl"].iter().any(|prefix| name.strip_prefix(prefix).is_some_and(is_one))
}

/// Returns the name of an MPI function, without the P of its second symbol and without [`WATCHED`]. The functions inside an MPI
/// function are not shown, even if its calls are not recorded.
fn mpi_function(name: &str) -> Option<&str> {
    let name = name.strip_prefix(WATCHED).unwrap_or(name);
    let public = name.strip_prefix('P').unwrap_or(name);
    let is_one = |rest: &str| rest.starts_with(|first: char| first.is_ascii_uppercase());
    public.strip_prefix("MPI_").is_some_and(is_one).then_some(public)
}

/// Returns the path of a process' program. `None` if the process has ended. If the program was started by a link next to it, this
/// is the path of the link: `mpirun` and not `orterun`, because a process that ends early is known only by that name.
pub(super) fn executable(pid: u32) -> Option<String> {
    let path = std::fs::read_link(format!("/proc/{pid}/exe")).ok()?;
    let started = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let link = path.with_file_name(started.trim_end());
    // The program python3.13 is also called python3, but the name with the version is more precise.
    let is_longer =
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(started.trim_end()));
    if !is_longer && std::fs::canonicalize(&link).is_ok_and(|file| file == path) {
        return Some(link.display().to_string());
    }
    let path = path.display().to_string();
    // The kernel adds this to the path of a removed file.
    Some(path.strip_suffix(" (deleted)").map_or(path.clone(), str::to_owned))
}

/// The maximum number of bytes of a process' environment that are read.
const ENVIRONMENT_MAX: u64 = 8 << 20;

/// Returns the variables that show which devices a process uses, and the period of its samples and the events that these count.
fn environment(pid: u32, timing: &Timing) -> Vec<String> {
    let variables = foreign::read(format!("/proc/{pid}/environ"), ENVIRONMENT_MAX).unwrap_or_default();
    let is_evidence = |entry: &&str| {
        entry
            .split_once('=')
            .is_some_and(|(name, _)| VISIBLE_DEVICES.contains(&name) || LOCAL_RANKS.contains(&name))
    };
    let text = variables.split(|byte| *byte == 0).filter_map(|entry| std::str::from_utf8(entry).ok());
    let period = format!("{STACK_PERIOD}={}", timing.period);
    let events = (!timing.events.is_empty()).then(|| format!("{STACK_EVENTS}={}", timing.events));
    text.filter(is_evidence).map(str::to_owned).chain([period]).chain(events).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ampere_ring::{Kind, Record, RingConsumer};
    use std::process::{Command, Stdio};

    #[test]
    fn logs_of_programs_that_the_process_executed_before_are_never_read() {
        let directory = tempfile::tempdir().unwrap();
        let pid = std::process::id();
        let write = |name: String, call: &str, location| {
            let mut log = LogWriter::create(&directory.path().join(name)).unwrap();
            log.append(&Definition::Process(Process {
                pid,
                start_time: ampere_ring::process::start_time(pid).unwrap(),
                hostname: String::new(),
                executable: String::new(),
                host: String::new(),
                clocks: Default::default(),
                environment: Vec::new(),
                pid_namespace: 0,
            }));
            log.append_region(&Region {
                handle: RegionHandle(0),
                name: call,
                canonical_name: "",
                source_file: "",
                begin_line: 0,
                end_line: 0,
                region_type: region_type::FUNCTION as u8,
                paradigm: paradigm::CUDA as u8,
            });
            log.append(&Definition::Thread { thread: pid, location: LocalLocation(location) });
            log
        };
        let _logs = [write(format!("{pid}.defs"), "earlier", 7), write(format!("{pid}-2.defs"), "later", 8)];
        let mut own = OwnLogs::default();
        for _ in 0..2 {
            own.read(directory.path(), pid);
            let expected = ThreadLocation::Recorded { log: 1, location: 8 };
            assert_eq!(own.threads.get(&pid), Some(&expected));
            assert_eq!(own.runtime_calls, HashSet::from(["later".to_owned()]));
        }
    }

    #[test]
    fn a_program_has_the_name_of_the_link_that_started_it() {
        let directory = tempfile::tempdir().expect("a directory");
        let at = |name: &str| directory.path().canonicalize().expect("a path").join(name);
        std::fs::copy("/bin/sh", at("orterun")).expect("a shell");
        std::os::unix::fs::symlink(at("orterun"), at("mpirun")).expect("a link");
        for name in ["mpirun", "orterun"] {
            let waits = Command::new(at(name)).args(["-c", "read x"]).stdin(Stdio::piped()).spawn();
            let mut waits = waits.expect("it starts");
            assert_eq!(executable(waits.id()), Some(at(name).display().to_string()));
            drop(waits.stdin.take());
            waits.wait().expect("it ends");
        }
    }

    #[test]
    fn a_recorded_call_hides_the_libraries_inside_it() {
        let at = |names: &[&'static str]| {
            let function = |name: &&'static str| name.split_once('@').unwrap_or((name, "/usr/bin/program"));
            recorded_call(names.iter().map(function), &HashSet::new())
        };
        assert_eq!(at(&["main", "solve"]), None);
        assert_eq!(at(&["main", "solve", "MPI_Send@/opt/libampere_host.so", "send@libmpi.so"]), Some(2));
        // CUDA's runtime is linked into the program.
        let launch = ["main", "solve", "cudaLaunchKernel", "x@libcuda.so.1", "x@libcupti.so.13"];
        assert_eq!(
            at(&[&launch[..], &["y@/opt/libampere_cuda.so", "enter@/opt/libampere_host.so"]].concat()),
            Some(2)
        );
        assert_eq!(
            at(&["main", "y@/opt/libampere_opencl.so", "clEnqueueNDRangeKernel@libOpenCL.so.1"]),
            Some(1)
        );
        // Nothing shows that the call is recorded.
        assert_eq!(at(&launch), None);
        assert_eq!(at(&["main", "cluster", "custom", "MPI_Send@libampere_host.so"]), Some(3));
        let known = HashSet::from(["cudaLaunchKernel".to_owned()]);
        assert_eq!(recorded_call(launch.iter().map(|name| (*name, "")), &known), Some(2));
        let in_mpi = [("main", ""), ("MPI_Send", "/opt/libampere_host.so"), ("cudaLaunchKernel", "")];
        assert_eq!(recorded_call(in_mpi.into_iter(), &known), Some(1));
        // A function that only watches the requests of another function is shown as that other function.
        let watched = "ampere_watched_PMPI_Test@/opt/libampere_host.so";
        assert_eq!(at(&["main", watched, "MPI_Test@libmpi.so"]), None);
        assert_eq!(mpi_function("ampere_watched_PMPI_Test"), Some("MPI_Test"));
    }

    #[test]
    fn functions_of_our_own_libraries_share_one_row() {
        for module in
            ["/opt/lib/libampere_preload.so", "libscorep_substrate_ampere.so", "/x/libampere_plugin.so"]
        {
            assert!(is_of_ampere(module), "{module}");
        }
        for module in ["/usr/bin/ampere_of_a_user", "/opt/libampere/lib/libm.so.6", "[vdso]", ""] {
            assert!(!is_of_ampere(module), "{module}");
        }
    }

    #[test]
    fn functions_of_score_p_are_known_by_their_library_or_name() {
        assert!(is_of_score_p("SCOREP_Ipc_Recv", "/usr/bin/program"));
        assert!(is_of_score_p("receive_and_unify", "/opt/scorep/lib/libscorep_measurement.so.11"));
        assert!(!is_of_score_p("solve", "/home/user/scorep/program"));
    }

    /// Returns a thread, and a function that returns the records that were written for it.
    fn thread_with_ring() -> (SampledThread, impl FnOnce() -> Vec<Record>) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ring");
        let producer = RingProducer::create(&path, RING_RECORDS, 0).unwrap();
        let records_of_ring = move || {
            let mut records = Vec::new();
            let mut ring = RingConsumer::open(&directory.path().join("ring")).unwrap();
            ring.copy_out(&mut records, usize::MAX).unwrap();
            records
        };
        (SampledThread::new(0, 1, EventWriter::new(producer)), records_of_ring)
    }

    #[test]
    fn a_thread_that_waits_most_of_the_time_is_in_its_functions_while_it_runs() {
        let (mut thread, records_of_ring) = thread_with_ring();
        let ms = |ms: u64| ms * 1_000_000;
        let timing = Timing::new(EventClock::new(), Duration::from_millis(10), Duration::from_millis(20));
        let start = timing.clock.now();
        thread.change_to(vec![PROGRAM, 7], start, start - ms(1), &timing, false);
        // It runs for 1 ms of 10 ms five times, and then for 1 ms of 100 ms.
        let short = (0..5).map(|run| start + ms(10 * run));
        let long = (1..4).map(|run| start + ms(100 * run));
        let runs: Vec<u64> = short.chain(long).collect();
        runs.iter().for_each(|from| thread.ran(*from, from + ms(1), (0, false), &timing));
        // A time on a CPU that is partly handed over already, and one of a thread whose calls are recorded.
        thread.ran(start + ms(500), start + ms(510), (start + ms(504), false), &timing);
        thread.ran(start + ms(600), start + ms(601), (0, true), &timing);
        thread.end(&timing);
        let records = records_of_ring();
        let times_of = |kind| -> Vec<Timestamp> {
            let of_function = |record: &&Record| record.kind() == Some(kind) && record.argument() == 7;
            records.iter().filter(of_function).map(|record| record.word0).collect()
        };
        let at = |time: u64| timing.clock.at(start + ms(time));
        let enters = times_of(Kind::Enter);
        assert_eq!(enters[1..], [100, 200, 300, 504].map(at));
        assert_eq!(times_of(Kind::Leave), [41, 101, 201, 301, 510].map(at));
    }

    #[test]
    fn samples_count_for_the_time_since_the_one_before_when_the_period_changes() {
        let (mut thread, records_of_ring) = thread_with_ring();
        let pause = Duration::from_millis(20);
        let mut timing = Timing::new(EventClock::new(), Duration::from_millis(1), pause);
        let mut time = timing.clock.now();
        let periods = [1, 2, 4].map(Duration::from_millis);
        for (function, period) in (7..).zip(periods) {
            timing.set_period(period, pause);
            for _ in 0..100 {
                time += timing.period;
                thread.change_to(vec![PROGRAM, function], time, time - timing.period, &timing, false);
            }
        }
        thread.end(&timing);
        let records = records_of_ring();
        let at = |kind, function| {
            let is_it = |record: &&Record| record.kind() == Some(kind) && record.argument() == function;
            records.iter().find(is_it).unwrap().word0
        };
        let whole = at(Kind::Leave, PROGRAM) - at(Kind::Enter, PROGRAM);
        for (function, period) in (7..).zip(periods) {
            let share = (at(Kind::Leave, function) - at(Kind::Enter, function)) as f64 / whole as f64;
            let expected = period.as_secs_f64() / 0.007;
            assert!((share / expected - 1.0).abs() < 1e-3, "{share} instead of {expected}");
        }
    }

    #[test]
    fn each_sample_inside_a_recorded_call_is_written_although_the_stack_stays_the_same() {
        let (mut thread, records_of_ring) = thread_with_ring();
        let timing = Timing::new(EventClock::new(), Duration::from_millis(1), Duration::from_millis(20));
        let began = timing.clock.now();
        let times: Vec<u64> = (1..=3).map(|sample| began + sample * timing.period).collect();
        for time in &times {
            thread.change_to(vec![PROGRAM, 7, IN_CALL], *time, *time - timing.period, &timing, true);
        }
        thread.end(&timing);
        let records = records_of_ring();
        let times_of = |function| -> Vec<Timestamp> {
            let is_enter =
                |record: &&Record| record.kind() == Some(Kind::Enter) && record.argument() == function;
            records.iter().filter(is_enter).map(|record| record.word0).collect()
        };
        let expected: Vec<Timestamp> = times.iter().map(|time| timing.clock.at(*time)).collect();
        assert_eq!(times_of(IN_CALL), expected);
        assert_eq!((times_of(PROGRAM).len(), times_of(7).len()), (1, 1));
    }

    /// A location without a known CPU time counts as active while a frame is open, and the CPU time of the other threads is
    /// recorded for one location only.
    #[test]
    fn all_threads_without_a_sample_have_one_location_whose_cpu_time_is_known() {
        let directory = tempfile::tempdir().unwrap();
        let session = Session::open_or_create_in(directory.path()).unwrap();
        let timing = Timing {
            records_cpu_times: true,
            ..Timing::new(EventClock::new(), Duration::from_millis(1), Duration::from_millis(20))
        };
        let mut process = SampledProcess::new("program".to_owned(), None);
        process.open(&session, std::process::id(), &timing).unwrap();
        let time = timing.clock.now();
        process.intervals.add(7, time, time + 1000);
        process.cpu.add(7, time - 5000, time + 1000);
        assert!(process.write_intervals(&session, u64::MAX, &timing).unwrap());
        process.intervals.add(8, time + 100_000_000, time + 100_001_000);
        assert!(!process.write_intervals(&session, u64::MAX, &timing).unwrap());
        process.end(&session, &timing);
        let Log::Open { name, .. } = &process.log else { panic!("the log is open") };
        let mut ring = RingConsumer::open(&session.directory().join(format!("{name}.0.ring"))).unwrap();
        let mut records = Vec::new();
        ring.copy_out(&mut records, usize::MAX).unwrap();
        let of = |kind| records.iter().filter(|record| record.kind() == Some(kind)).count();
        assert_eq!((of(Kind::CpuTime), of(Kind::Enter), of(Kind::Leave)), (1, 2, 2));
        assert_eq!((records[0].kind(), records[1].word0), (Some(Kind::CpuTime), 0));
        assert_eq!(
            records[0].word0,
            timing.clock.at(time - 5000),
            "not after the start of the recorded CPU time"
        );
    }
}
