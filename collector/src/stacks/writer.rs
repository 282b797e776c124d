//! From stacks to enters and leaves. A sample stands for the CPU time since the one before: its stack is taken to be the thread's from
//! then on, so that what a thread did is written once its next sample has come.

use super::clock::EventClock;
use super::{Ended, quality};
use ampere_counters::Stat;
use ampere_model::{
    Definition, LOCAL_RANKS, LocalLocation, Location, LocationKind, Process, Region, RegionHandle,
    SAMPLED_HOST, STACK_PERIOD, Timestamp, VISIBLE_DEVICES,
};
use ampere_ring::session::Command;
use ampere_ring::{EventWriter, LogWriter, RingProducer, Session};
use ampere_stacks::{Figures, FunctionId, Sampler, Sink, StacksError};
use scorep_abi::{paradigm, region_type};
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::time::Duration;

/// A thread without a sample for so long used no CPU time: it is in no function until it does.
const PAUSE: Duration = Duration::from_millis(20);
/// Samples that are younger may not have been fetched.
const SLACK: Duration = Duration::from_millis(2);
/// A process with fewer samples gets no row of its own.
const LEAST_SAMPLES: usize = 3;
/// More processes at once get no rows.
const MOST_PROCESSES: usize = 4096;
/// Records of a ring: at a change of a few frames in each millisecond a second's.
const RING_RECORDS: u64 = 1 << 13;
/// What `ampere run` preloads.
const HOST_LIBRARY: &str = "libampere_host.so";
/// The handle of the program itself.
const PROGRAM: u32 = 0;
/// The handle of what stands for a call that is recorded.
const IN_CALL: u32 = 1;
/// A function's handle is its number and so many.
const FUNCTIONS: u32 = 2;

/// Writes what is sampled.
pub(super) struct Writer {
    session: Session,
    clock: EventClock,
    /// CPU time between two samples, in nanoseconds.
    period: u64,
    /// After so many nanoseconds without a sample, a thread is in no function.
    pause: u64,
    processes: HashMap<u32, Sampled>,
    /// Everything before this has been written.
    reached: u64,
    left_out: LeftOut,
}

/// Samples that are in no row.
#[derive(Default)]
struct LeftOut {
    /// Of processes with fewer than [`LEAST_SAMPLES`].
    samples: u64,
    /// Of processes that have rows, from before these began.
    early: u64,
    /// The first failure.
    failure: Option<String>,
}

/// A process, from the exec that it began with.
struct Sampled {
    program: String,
    log: Log,
    /// It writes a log itself: what its threads do between two samples is known better than from here.
    is_recorded: bool,
    threads: HashMap<u32, Thread>,
    /// Of the next thread's location.
    next_id: u32,
    defined: HashSet<u32>,
}

enum Log {
    /// There are too few samples yet.
    Waiting(Vec<Sample>),
    /// With what its file's name begins with.
    Open { log: LogWriter, name: String },
    /// It cannot be written.
    Failed,
    /// The program's own functions are recorded: there are no samples of it.
    NotNeeded,
}

struct Thread {
    writer: EventWriter,
    stack: Vec<u32>,
    /// The time of its last sample, by both clocks.
    last: u64,
    last_event: Timestamp,
}

impl Writer {
    pub fn new(session: Session, clock: EventClock, period: Duration) -> Writer {
        Writer {
            session,
            clock,
            period: period.as_nanos() as u64,
            pause: PAUSE.max(3 * period).as_nanos() as u64,
            processes: HashMap::new(),
            reached: 0,
            left_out: LeftOut::default(),
        }
    }

    /// Everything before this time has been written.
    pub fn reached(&self) -> Timestamp {
        self.clock.at(self.reached)
    }

    /// Writes what has been sampled; if nothing follows, all of it. Whether there was anything.
    pub fn fetch(&mut self, sampler: &mut Sampler, is_last: bool) -> bool {
        let now = self.clock.look();
        let mut fetched = Fetched::default();
        match is_last {
            true => sampler.finish(&mut fetched),
            false => sampler.poll(&mut fetched),
        }
        let found = !fetched.0.is_empty();
        for event in fetched.0 {
            match event {
                Event::Sample(process, sample) => self.sample(process, sample, sampler),
                Event::Started(process, program) => self.start_process(process, &program),
                Event::Ended(process, None) => self.end_process(process),
                Event::Ended(process, Some(thread)) => {
                    self.processes
                        .get_mut(&process)
                        .into_iter()
                        .for_each(|sampled| sampled.end_thread(thread));
                }
            }
        }
        let until = if is_last { u64::MAX } else { now.saturating_sub(self.pause) };
        for (pid, process) in &mut self.processes {
            let is_open = matches!(process.log, Log::Open { .. });
            if is_open
                && !process.is_recorded
                && self.session.directory().join(format!("{pid}.defs")).exists()
            {
                process.is_recorded = true;
            }
            process.pause(until);
        }
        if is_last {
            let all: Vec<u32> = self.processes.keys().copied().collect();
            all.into_iter().for_each(|process| self.end_process(process));
        }
        self.reached = now.saturating_sub(self.pause + SLACK.as_nanos() as u64);
        found
    }

    /// Samples what a process becomes that waits.
    pub fn add_command(&mut self, command: &Command, sampler: &mut Sampler) {
        self.add(sampler.add_launcher(command.pid));
        self.release_command(command);
    }

    pub fn release_command(&self, command: &Command) {
        self.session.release_command(command);
    }

    /// A process is sampled from now on, or is not.
    pub fn add(&mut self, outcome: Result<(), StacksError>) {
        match outcome {
            Ok(()) | Err(StacksError::NoProcess { .. }) => {}
            Err(why) => self.left_out.fail(format!("{why}; stacks of that process are not sampled")),
        }
    }

    /// What there is to say at the end.
    pub fn ended(&self, sampler: &Sampler) -> Ended {
        let figures = sampler.figures();
        let mut ended = quality::of(&figures, Duration::from_nanos(self.period));
        ended.notes.splice(..0, self.notes(&figures, sampler));
        ended
    }

    fn notes(&self, figures: &Figures, sampler: &Sampler) -> Vec<String> {
        let mut notes = Vec::from_iter(self.left_out.failure.clone());
        let percent = |part: u64| 100.0 * part as f64 / figures.samples.max(1) as f64;
        notes.push(format!(
            "call paths of functions that are not instrumented are sampled, once in {:?} of each thread's CPU time: {} samples, \
             {:.1} % of them unwound to the thread's begin; their calls are not counted",
            Duration::from_nanos(self.period),
            figures.samples,
            percent(figures.complete),
        ));
        let LeftOut { samples, early, .. } = self.left_out;
        if samples + early > 0 {
            notes.push(format!(
                "{} samples ({:.1} %) are in no row: {samples} of processes with fewer than {LEAST_SAMPLES} each, {early} of others \
                 from before they had a row",
                samples + early,
                percent(samples + early)
            ));
        }
        if !sampler.samples_kernel() {
            notes.push(
                "samples are of the program's own code alone: time in the kernel, as for input and output, is not charged to it; \
                 /proc/sys/kernel/perf_event_paranoid of at most 1 allows both".to_owned(),
            );
        }
        if figures.lost > 0 {
            notes.push(format!(
                "{} samples of stacks were lost: the collector did not fetch them in time",
                figures.lost
            ));
        }
        notes
    }

    fn start_process(&mut self, process: u32, program: &str) {
        self.end_process(process);
        if self.processes.len() >= MOST_PROCESSES {
            return self.left_out.fail(format!(
                "more than {MOST_PROCESSES} processes at once: stacks of others are not sampled"
            ));
        }
        // A fork has no name of its own, and may be gone before its log is made.
        let own = if program.is_empty() { executable(process) } else { None };
        self.processes.insert(
            process,
            Sampled {
                program: own.unwrap_or_else(|| program.to_owned()),
                log: Log::Waiting(Vec::new()),
                is_recorded: false,
                threads: HashMap::new(),
                next_id: 0,
                defined: HashSet::new(),
            },
        );
    }

    fn sample(&mut self, process: u32, sample: Sample, sampler: &mut Sampler) {
        if !self.processes.contains_key(&process) {
            self.start_process(process, "");
        }
        let Some(sampled) = self.processes.get_mut(&process) else { return };
        let mut has_defined = matches!(sampled.log, Log::Waiting(_));
        let mut waiting = match &mut sampled.log {
            Log::Failed | Log::NotNeeded => return,
            Log::Open { .. } => Vec::new(),
            Log::Waiting(waiting) if waiting.len() + 1 < LEAST_SAMPLES => return waiting.push(sample),
            Log::Waiting(waiting) => {
                let waiting = std::mem::take(waiting);
                sampled.program = executable(process).unwrap_or_else(|| std::mem::take(&mut sampled.program));
                if sampler.records_functions(process, &sampled.program) {
                    sampled.log = Log::NotNeeded;
                    return;
                }
                if let Err(why) = sampled.open(&self.session, process, &self.clock, self.period) {
                    sampled.log = Log::Failed;
                    return self.left_out.fail(format!("{why}; stacks of that process are not sampled"));
                }
                waiting
            }
        };
        waiting.push(sample);
        // What waited too long is not awaited any more.
        let all = waiting.len();
        waiting.retain(|sample| sample.time >= self.reached);
        self.left_out.early += (all - waiting.len()) as u64;
        for sample in waiting {
            let times = (&self.clock, self.period, self.pause);
            match sampled.write(&self.session, &sample, sampler, times) {
                Ok(defines) => has_defined |= defines,
                Err(why) => {
                    sampled.end();
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

    fn end_process(&mut self, process: u32) {
        match self.processes.remove(&process) {
            Some(Sampled { log: Log::Waiting(waiting), .. }) if !waiting.is_empty() => {
                self.left_out.samples += waiting.len() as u64;
            }
            Some(mut sampled) => {
                sampled.end();
                self.session.announce();
            }
            None => {}
        }
    }
}

impl LeftOut {
    fn fail(&mut self, why: String) {
        self.failure.get_or_insert(why);
    }
}

impl Sampled {
    /// Makes the log, which begins with what the process is.
    fn open(
        &mut self,
        session: &Session,
        pid: u32,
        clock: &EventClock,
        period: u64,
    ) -> Result<(), ampere_ring::Error> {
        let (mut log, name) = (1..)
            .find_map(|number| {
                let name = format!("{pid}-s{number}");
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
        let program = Path::new(&self.program).file_name().unwrap_or_default().to_string_lossy();
        log.append(&Definition::Process(Process {
            pid,
            start_time: ampere_ring::process::start_time(pid).unwrap_or(0),
            hostname: ampere_ring::process::node_name(),
            executable: self.program.clone(),
            host: SAMPLED_HOST.to_owned(),
            clocks: clock.began(),
            environment: environment(pid, period),
            pid_namespace: ampere_ring::process::pid_namespace(),
        }));
        for (handle, name, paradigm) in [
            (PROGRAM, program.as_ref(), paradigm::MEASUREMENT),
            (IN_CALL, "(recorded call)", paradigm::SAMPLING),
        ] {
            log.append_region(&Region {
                handle: RegionHandle(handle),
                name,
                canonical_name: name,
                source_file: "",
                begin_line: 0,
                end_line: 0,
                region_type: region_type::ARTIFICIAL as u8,
                paradigm: paradigm as u8,
            });
        }
        self.log = Log::Open { log, name };
        Ok(())
    }

    /// Whether there is something new in the log.
    fn write(
        &mut self,
        session: &Session,
        sample: &Sample,
        sampler: &Sampler,
        times: (&EventClock, u64, u64),
    ) -> Result<bool, ampere_ring::Error> {
        let Log::Open { log, name } = &mut self.log else { return Ok(false) };
        let mut stack = vec![PROGRAM];
        let before = (self.defined.len(), self.next_id);
        for function in &sample.stack {
            let handle = function.0 + FUNCTIONS;
            let function = sampler.function(*function);
            if has_wrappers(&function.module) {
                stack.push(IN_CALL);
                break;
            }
            let of_mpi = mpi_function(&function.name);
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
            stack.push(handle);
            if of_mpi.is_some() {
                break;
            }
        }
        let thread = match self.threads.entry(sample.thread) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                let id = self.next_id;
                self.next_id += 1;
                let program = Path::new(&self.program).file_name().unwrap_or_default().to_string_lossy();
                new.insert(Thread::new(session, log, (name, &program, sample.thread, id))?)
            }
        };
        thread.change_to(stack, sample.time, times, self.is_recorded);
        Ok(before != (self.defined.len(), self.next_id))
    }

    /// Threads without samples since then are in no function.
    fn pause(&mut self, since: u64) {
        self.threads.values_mut().filter(|thread| thread.last < since).for_each(Thread::pause);
    }

    fn end_thread(&mut self, thread: u32) {
        self.threads.remove(&thread).iter_mut().for_each(Thread::end);
    }

    fn end(&mut self) {
        self.threads.values_mut().for_each(Thread::end);
        if let Log::Open { log, .. } = &mut self.log {
            let left_out = log.left_out();
            log.append(&Definition::Finished { left_out });
        }
    }
}

impl Thread {
    fn new(
        session: &Session,
        log: &mut LogWriter,
        (name, program, thread, id): (&str, &str, u32, u32),
    ) -> Result<Thread, ampere_ring::Error> {
        let ring = format!("{name}.{id}.ring");
        let producer = RingProducer::create_leaving(
            &session.directory().join(&ring),
            RING_RECORDS,
            id,
            session.to_leave(),
        )?;
        // One that has ended already is called as its program, whose name threads have at first.
        let name = Stat::of_thread(thread, thread).map_or_else(|| program.to_owned(), |stat| stat.name);
        log.append(&Definition::Location(Location {
            id: LocalLocation(id),
            kind: LocationKind::CpuThread,
            name: format!("{name} (thread {thread}, sampled)"),
            ring,
            thread,
        }));
        Ok(Thread { writer: EventWriter::new(producer), stack: Vec::new(), last: 0, last_event: 0 })
    }

    /// It was here since its last sample; after a pause, and where it is known that it was elsewhere, for one period.
    fn change_to(
        &mut self,
        stack: Vec<u32>,
        time: u64,
        (clock, period, pause): (&EventClock, u64, u64),
        is_recorded: bool,
    ) {
        if time.saturating_sub(self.last) > pause {
            self.pause();
        }
        let period_ago = clock.at(time.saturating_sub(period)).max(self.last_event);
        // Inside a call, it says nothing of the time before.
        let since = match stack.last() {
            Some(&IN_CALL) => clock.at(time).max(self.last_event),
            _ if self.stack.is_empty() || is_recorded => period_ago,
            _ => self.last_event,
        };
        let same = self.stack.iter().zip(&stack).take_while(|(before, now)| before == now).count();
        self.stack[same..].iter().rev().for_each(|region| self.writer.leave(since, *region));
        stack[same..].iter().for_each(|region| self.writer.enter(since, *region));
        (self.stack, self.last, self.last_event) = (stack, time, clock.at(time).max(since));
    }

    fn end(&mut self) {
        self.pause();
        self.writer.location_end(self.last_event);
        self.writer.close();
    }

    fn pause(&mut self) {
        self.stack.iter().rev().for_each(|region| self.writer.leave(self.last_event, *region));
        self.stack.clear();
    }
}

/// Whether functions of this library are wrappers of those whose calls are recorded: ampere's own, or Score-P's of MPI.
fn has_wrappers(library: &str) -> bool {
    let name = library.rsplit('/').next().unwrap_or_default();
    name == HOST_LIBRARY || name.starts_with("libscorep_adapter_mpi")
}

/// The name of a function of MPI, below which nothing is shown, as where its calls are recorded. It has two symbols.
fn mpi_function(name: &str) -> Option<&str> {
    let public = name.strip_prefix('P').unwrap_or(name);
    let is_one = |rest: &str| rest.starts_with(|first: char| first.is_ascii_uppercase());
    public.strip_prefix("MPI_").is_some_and(is_one).then_some(public)
}

/// The path of a process' program. `None` once it is gone.
fn executable(pid: u32) -> Option<String> {
    let path = std::fs::read_link(format!("/proc/{pid}/exe")).ok()?.display().to_string();
    // What the kernel puts behind the path of a file that is gone.
    Some(path.strip_suffix(" (deleted)").map_or(path.clone(), str::to_owned))
}

/// Variables that say which devices a process uses, and how often it is sampled.
fn environment(pid: u32, period: u64) -> Vec<String> {
    let variables = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    let is_evidence = |entry: &&str| {
        entry
            .split_once('=')
            .is_some_and(|(name, _)| VISIBLE_DEVICES.contains(&name) || LOCAL_RANKS.contains(&name))
    };
    let text = variables.split(|byte| *byte == 0).filter_map(|entry| std::str::from_utf8(entry).ok());
    text.filter(is_evidence).map(str::to_owned).chain([format!("{STACK_PERIOD}={period}")]).collect()
}

/// What happened, in the order of time.
#[derive(Default)]
struct Fetched(Vec<Event>);

enum Event {
    Sample(u32, Sample),
    /// With the program's path or name.
    Started(u32, String),
    /// Without a thread: all of them.
    Ended(u32, Option<u32>),
}

struct Sample {
    thread: u32,
    time: u64,
    /// Outermost first.
    stack: Vec<FunctionId>,
}

impl Sink for Fetched {
    fn sample(&mut self, process: u32, thread: u32, time_ns: u64, frames: &[FunctionId], _is_cut_off: bool) {
        self.0.push(Event::Sample(process, Sample { thread, time: time_ns, stack: frames.to_vec() }));
    }

    fn started(&mut self, process: u32, _time_ns: u64, name: Option<&str>) {
        self.0.push(Event::Started(process, name.unwrap_or_default().to_owned()));
    }

    fn ended(&mut self, process: u32, thread: Option<u32>, _time_ns: u64) {
        self.0.push(Event::Ended(process, thread));
    }
}
