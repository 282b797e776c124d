//! From stacks to enters and leaves. A sample stands for the CPU time since the one before: its stack is taken to be the thread's from
//! then on, so that what a thread did is written once its next sample has come.

use super::Said;
use super::clock::EventClock;
use super::not_seen::{NotSeen, Unseen};
use super::quality;
use super::unsampled::{FILLED, Unsampled};
use ampere_counters::Stat;
use ampere_model::{
    Definition, LOCAL_RANKS, LocalLocation, Location, LocationKind, Process, Region, RegionHandle,
    SAMPLED_HOST, STACK_PERIOD, Timestamp, VISIBLE_DEVICES,
};
use ampere_ring::session::Command;
use ampere_ring::{EventWriter, LogWriter, RingProducer, Session};
use ampere_stacks::{Figures, FunctionId, Sampler, Sink, StacksError, foreign};
use scorep_abi::{paradigm, region_type};
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::time::Duration;

/// A thread without a sample for so long used no CPU time: it is in no function until it does.
const PAUSE: Duration = Duration::from_millis(20);
/// Samples that are younger may not have been fetched.
const SLACK: Duration = Duration::from_millis(2);
/// So long only processes had samples whose functions are recorded: the others hardly run.
const SETTLED: Duration = Duration::from_millis(300);
/// A process with fewer samples gets no row of its own.
const LEAST_SAMPLES: usize = 3;
/// A process without samples gets no row of its own where it ran for less.
const LEAST_UNSAMPLED: Duration = Duration::from_millis(10);
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
/// The handle of what stands for functions that were not seen.
const NOT_SEEN: u32 = 2;
/// A function's handle is its number and so many.
const FUNCTIONS: u32 = 3;

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
    /// Processes whose own functions are recorded now: nothing is written of them.
    recorded: HashSet<u32>,
    /// When there were last samples of one that is not among these, in nanoseconds.
    needed: u64,
    not_seen: Option<NotSeen>,
}

/// Samples whose functions are in no row.
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
    /// What it was forked by.
    parent: Option<u32>,
    /// Times on a CPU of threads, and of children, that no sample is of.
    unsampled: Unsampled,
    /// What was not seen at all, until this time.
    not_seen: Option<(EventWriter, Timestamp)>,
    /// When threads that have ended were in functions, as far as this is not written.
    in_functions: Vec<(u64, u64)>,
}

enum Log {
    /// There are too few samples yet.
    Waiting(Vec<Sample>),
    /// With what its file's name begins with.
    Open { log: LogWriter, name: String },
    /// It cannot be written.
    Failed,
}

struct Thread {
    writer: EventWriter,
    stack: Vec<u32>,
    /// The time of its last sample, by both clocks.
    last: u64,
    last_event: Timestamp,
    /// It is on a CPU, or waits for one, since its last sample.
    runs: bool,
    /// Until then that was so.
    ran_until: u64,
    /// When it came into the functions of its stack, and when it was in some before, in nanoseconds.
    since: u64,
    in_functions: Vec<(u64, u64)>,
}

impl Writer {
    pub fn new(session: Session, clock: EventClock, period: Duration, not_seen: Option<NotSeen>) -> Writer {
        Writer {
            session,
            clock,
            period: period.as_nanos() as u64,
            pause: PAUSE.max(3 * period).as_nanos() as u64,
            processes: HashMap::new(),
            reached: 0,
            left_out: LeftOut::default(),
            recorded: HashSet::new(),
            needed: 0,
            not_seen,
        }
    }

    /// The functions of a process are recorded from now on: its samples are left out.
    pub fn set_recorded(&mut self, process: u32) {
        self.recorded.insert(process);
        self.end_process(process);
        self.needed = self.clock.look();
    }

    /// They are not any more.
    pub fn set_unrecorded(&mut self, process: u32) {
        self.recorded.remove(&process);
    }

    /// Whether, for a while, there were samples of nothing but processes whose functions are recorded.
    fn needs_few(&self) -> bool {
        !self.recorded.is_empty() && self.clock.now().saturating_sub(self.needed) > SETTLED.as_nanos() as u64
    }

    /// Ends the samples of processes whose functions are recorded, once nothing else runs: beside others that are sampled, the events
    /// of all would have to be opened anew.
    pub fn leave_recorded_alone(&mut self, sampler: &mut Sampler) {
        if !self.needs_few() {
            return;
        }
        let recorded = &self.recorded;
        match sampler.retain(|process| !recorded.contains(&process)) {
            Ok(()) => self.needed = u64::MAX,
            // They are sampled on, and the samples are left out.
            Err(_) => self.needed = self.clock.now(),
        }
    }

    pub fn is_recorded(&self, process: u32) -> bool {
        self.recorded.contains(&process)
    }

    /// Everything before this time has been written.
    pub fn reached(&self) -> Timestamp {
        self.clock.at(self.reached)
    }

    /// Writes what has been sampled; if nothing follows, all of it. Whether there was anything.
    pub fn fetch(&mut self, mut sampler: Option<&mut Sampler>, is_last: bool) -> bool {
        let now = self.clock.look();
        let mut found = false;
        if let Some(sampler) = &mut sampler {
            let mut fetched = Fetched::default();
            match is_last {
                true => sampler.finish(&mut fetched),
                false => sampler.poll(&mut fetched),
            }
            found = !fetched.events.is_empty();
            self.take(fetched, sampler);
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
            process.pause(until, &self.clock);
        }
        self.write_unsampled(until);
        self.write_not_seen(sampler, now);
        if is_last {
            let all: Vec<u32> = self.processes.keys().copied().collect();
            all.into_iter().for_each(|process| self.end_process(process));
        }
        self.reached = now.saturating_sub(self.pause + FILLED + SLACK.as_nanos() as u64);
        found
    }

    fn take(&mut self, fetched: Fetched, sampler: &Sampler) {
        for event in fetched.events {
            match event {
                Event::Sample(process, sample) => self.sample(process, sample, sampler),
                Event::Started(process, program) => self.start_process(process, &program),
                Event::Forked(process, parent) => {
                    let forked = self.processes.get_mut(&process);
                    forked.into_iter().for_each(|forked| forked.parent = Some(parent));
                }
                Event::Ran(process, thread, from, until) => self.ran(process, thread, from, until),
                Event::Lost => {
                    let threads =
                        self.processes.values_mut().flat_map(|process| process.threads.values_mut());
                    threads.for_each(|thread| thread.runs = false);
                }
                Event::Ended(process, None) => {
                    self.end_process(process);
                    self.recorded.remove(&process);
                }
                Event::Ended(process, Some(thread)) => {
                    self.processes
                        .get_mut(&process)
                        .into_iter()
                        .for_each(|sampled| sampled.end_thread(thread, &self.clock));
                }
            }
        }
    }

    /// What processes used that are neither sampled nor recorded is theirs, in functions that are not known.
    fn write_not_seen(&mut self, mut sampler: Option<&mut Sampler>, now: u64) {
        let Some(mut not_seen) = self.not_seen.take() else { return };
        let is_sampled = |process| sampler.as_ref().is_some_and(|sampler| sampler.has(process));
        for unseen in not_seen.look(|process| self.is_recorded(process) || is_sampled(process)) {
            let (process, ran) = match unseen {
                Unseen::Ran(process, ran) => (process, ran),
                Unseen::Found(process) => {
                    let outcome = sampler.as_mut().map(|sampler| sampler.add_running(process));
                    if let Some(Err(why)) = outcome {
                        not_seen.set_reason(process, &why.to_string());
                    }
                    continue;
                }
            };
            if !self.processes.contains_key(&process) {
                self.start_process(process, "");
            }
            let Some(sampled) = self.processes.get_mut(&process) else { continue };
            let written = sampled.write_not_seen(
                &self.session,
                process,
                (&self.clock, self.period),
                (now - ran.min(now), now),
            );
            match written {
                Ok(()) => self.session.announce(),
                Err(why) => self.left_out.fail(format!("{why}; what was not seen of a process has no row")),
            }
        }
        not_seen.take_ended().into_iter().for_each(|process| self.end_process(process));
        self.not_seen = Some(not_seen);
    }

    /// Samples what a process becomes that waits.
    pub fn add_command(&mut self, command: &Command, sampler: Option<&mut Sampler>) {
        self.added(sampler.map_or(Ok(()), |sampler| sampler.add_launcher(command.pid)));
        self.release_command(command);
    }

    pub fn release_command(&self, command: &Command) {
        self.session.release_command(command);
    }

    /// Samples a process that runs.
    pub fn add(&mut self, process: u32, sampler: Option<&mut Sampler>) {
        self.added(sampler.map_or(Ok(()), |sampler| sampler.add_running(process)));
    }

    /// A process is sampled from now on, or is not.
    fn added(&mut self, outcome: Result<(), StacksError>) {
        match outcome {
            Ok(()) | Err(StacksError::NoProcess { .. }) => {}
            Err(why) => self.left_out.fail(format!("{why}; stacks of that process are not sampled")),
        }
    }

    /// What the summary should say.
    pub fn said(&self, sampler: Option<&Sampler>) -> Said {
        let mut said = sampler.map_or_else(Said::default, |sampler| {
            let figures = sampler.figures();
            let mut said = quality::of(&figures, Duration::from_nanos(self.period));
            said.notes.splice(..0, self.notes(&figures, sampler));
            said
        });
        said.notes.extend(self.not_seen.iter().flat_map(NotSeen::notes));
        said.is_loss = self.not_seen.as_ref().is_some_and(NotSeen::matters);
        said
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
                "{} samples ({:.1} %) are in no function: {samples} of processes with fewer than {LEAST_SAMPLES} each, whose time is \
                 their program's or their parent's own, {early} of others from before they had a row",
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
        notes.extend(foreign::notes());
        if figures.lost > 0 {
            notes.push(format!(
                "{} samples of stacks were lost: the collector did not fetch them in time",
                figures.lost
            ));
        }
        notes
    }

    fn start_process(&mut self, process: u32, program: &str) {
        let parent = self.processes.get(&process).and_then(|before| before.parent);
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
                parent,
                unsampled: Unsampled::default(),
                not_seen: None,
                in_functions: Vec::new(),
                program: own.unwrap_or_else(|| program.to_owned()),
                log: Log::Waiting(Vec::new()),
                is_recorded: false,
                threads: HashMap::new(),
                next_id: 0,
                defined: HashSet::new(),
            },
        );
    }

    fn sample(&mut self, process: u32, sample: Sample, sampler: &Sampler) {
        if self.is_recorded(process) {
            return;
        }
        self.needed = self.needed.max(sample.time);
        if !self.processes.contains_key(&process) {
            self.start_process(process, "");
        }
        let Some(sampled) = self.processes.get_mut(&process) else { return };
        let mut has_defined = matches!(sampled.log, Log::Waiting(_));
        let mut waiting = match &mut sampled.log {
            Log::Failed => return,
            Log::Open { .. } => Vec::new(),
            Log::Waiting(waiting) if waiting.len() + 1 < LEAST_SAMPLES => return waiting.push(sample),
            Log::Waiting(waiting) => {
                let waiting = std::mem::take(waiting);
                sampled.program = executable(process).unwrap_or_else(|| std::mem::take(&mut sampled.program));
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
            match sampled.write(&self.session, &sample, sampler, times, self.reached) {
                Ok(defines) => has_defined |= defines,
                Err(why) => {
                    sampled.end(&self.session, &self.clock);
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
        if self.is_recorded(process) {
            return;
        }
        let Some(sampled) = self.processes.get_mut(&process) else { return };
        match sampled.threads.get_mut(&thread) {
            Some(thread) if thread.runs => (thread.runs, thread.ran_until) = (false, until),
            Some(_) => {}
            None => sampled.unsampled.add(thread, from, until),
        }
    }

    /// Of what ran before this time, all samples are known: the rest is of threads and processes that are too short for one.
    fn write_unsampled(&mut self, until: u64) {
        let least = LEAST_UNSAMPLED.as_nanos() as u64;
        let waiting = self.processes.iter().filter(|(_, sampled)| matches!(sampled.log, Log::Waiting(_)));
        let moved: Vec<(u32, Option<u32>)> = waiting
            .filter(|(_, sampled)| sampled.unsampled.is_due(until))
            .map(|(process, sampled)| (*process, sampled.parent))
            .collect();
        for (process, parent) in moved {
            let parent = parent.filter(|parent| self.processes.contains_key(parent));
            let Some(sampled) = self.processes.get_mut(&process) else { continue };
            match parent {
                // It runs so little that its parent has it.
                Some(parent) => {
                    let due = sampled.unsampled.split_off(until);
                    let parent = self.processes.get_mut(&parent);
                    parent.into_iter().for_each(|parent| parent.unsampled.take_over(&due));
                }
                None if sampled.unsampled.total() >= least => {
                    sampled.program =
                        executable(process).unwrap_or_else(|| std::mem::take(&mut sampled.program));
                    if let Err(why) = sampled.open(&self.session, process, &self.clock, self.period) {
                        sampled.log = Log::Failed;
                        self.left_out.fail(format!("{why}; stacks of that process are not sampled"));
                    }
                }
                None => {}
            }
        }
        for sampled in self.processes.values_mut() {
            match sampled.write_unsampled(&self.session, until, &self.clock) {
                Ok(false) => {}
                Ok(true) => self.session.announce(),
                Err(why) => self.left_out.fail(format!("{why}; threads without a sample have no row")),
            }
        }
    }

    fn end_process(&mut self, process: u32) {
        match self.processes.remove(&process) {
            Some(Sampled { log: Log::Waiting(waiting), parent, unsampled, .. }) => {
                self.left_out.samples += waiting.len() as u64;
                // Those that it was started by wait for it, or have ended.
                let parent = parent.and_then(|parent| self.processes.get_mut(&parent));
                parent.into_iter().for_each(|parent| parent.unsampled.take_over(&unsampled));
            }
            Some(mut sampled) => {
                sampled.end(&self.session, &self.clock);
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
            (NOT_SEEN, "(not seen)", paradigm::SAMPLING),
        ] {
            log.append_region(&Region {
                handle: RegionHandle(handle),
                name,
                canonical_name: name,
                source_file: "",
                begin_line: 0,
                end_line: 0,
                region_type: if handle == NOT_SEEN { 0 } else { region_type::ARTIFICIAL as u8 },
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
        reached: u64,
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
                self.unsampled.forget(sample.thread);
                // One that has ended already is called as its program, whose name threads have at first.
                let named = Stat::of_thread(sample.thread, sample.thread);
                let named = named.map_or_else(|| program.to_string(), |stat| stat.name);
                let named = format!("{named} (thread {}, sampled)", sample.thread);
                new.insert(Thread::new(make_location(session, log, name, (id, named, sample.thread))?))
            }
        };
        let since = sample.runs_since.unwrap_or(sample.time).max(reached);
        thread.change_to(stack, (sample.time, since), times, self.is_recorded);
        Ok(before != (self.defined.len(), self.next_id))
    }

    /// Writes what ran before this time and has no sample. Whether that is the first.
    fn write_unsampled(
        &mut self,
        session: &Session,
        until: u64,
        clock: &EventClock,
    ) -> Result<bool, ampere_ring::Error> {
        let Log::Open { log, name } = &mut self.log else { return Ok(false) };
        let mut in_functions = std::mem::take(&mut self.in_functions);
        for thread in self.threads.values_mut() {
            in_functions.append(&mut thread.in_functions);
            in_functions.extend(Some((thread.since, u64::MAX)).filter(|_| !thread.stack.is_empty()));
        }
        let due = self.unsampled.take_due(until, &in_functions);
        let is_first = !due.is_empty() && !self.unsampled.has_writer();
        if is_first {
            let id = self.next_id;
            self.next_id += 1;
            let named = "threads and children without a sample".to_owned();
            self.unsampled.set_writer(make_location(session, log, name, (id, named, 0))?);
        }
        self.unsampled.write(&due, PROGRAM, |ns| clock.at(ns));
        Ok(is_first)
    }

    /// It ran then, unseen.
    fn write_not_seen(
        &mut self,
        session: &Session,
        pid: u32,
        (clock, period): (&EventClock, u64),
        (from, until): (u64, u64),
    ) -> Result<(), ampere_ring::Error> {
        if matches!(self.log, Log::Waiting(_)) {
            self.open(session, pid, clock, period)?;
        }
        let Log::Open { log, name } = &mut self.log else { return Ok(()) };
        if self.not_seen.is_none() {
            let id = self.next_id;
            self.next_id += 1;
            let writer = make_location(session, log, name, (id, "(not seen)".to_owned(), 0))?;
            self.not_seen = Some((writer, 0));
        }
        if let Some((writer, last)) = &mut self.not_seen {
            let (begin, end) = (clock.at(from).max(*last), clock.at(until));
            [PROGRAM, NOT_SEEN].iter().for_each(|region| writer.enter(begin, *region));
            [NOT_SEEN, PROGRAM].iter().for_each(|region| writer.leave(end, *region));
            *last = end;
        }
        Ok(())
    }

    /// Threads without samples since then are in no function.
    fn pause(&mut self, since: u64, clock: &EventClock) {
        self.threads
            .values_mut()
            .filter(|thread| thread.last < since && !thread.runs)
            .for_each(|thread| thread.pause(clock));
    }

    fn end_thread(&mut self, thread: u32, clock: &EventClock) {
        let Some(mut thread) = self.threads.remove(&thread) else { return };
        thread.end(clock);
        self.in_functions.append(&mut thread.in_functions);
    }

    fn end(&mut self, session: &Session, clock: &EventClock) {
        self.threads.values_mut().for_each(|thread| thread.end(clock));
        let _ = self.write_unsampled(session, u64::MAX, clock);
        self.unsampled.end();
        if let Some((mut writer, last)) = self.not_seen.take() {
            writer.location_end(last);
            writer.close();
        }
        if let Log::Open { log, .. } = &mut self.log {
            let left_out = log.left_out();
            log.append(&Definition::Finished { left_out });
        }
    }
}

/// Makes a ring for a location, and defines it.
fn make_location(
    session: &Session,
    log: &mut LogWriter,
    process: &str,
    (id, name, thread): (u32, String, u32),
) -> Result<EventWriter, ampere_ring::Error> {
    let ring = format!("{process}.{id}.ring");
    let path = session.directory().join(&ring);
    let producer = RingProducer::create_with_headroom(&path, RING_RECORDS, id, session.headroom())?;
    log.append(&Definition::Location(Location {
        id: LocalLocation(id),
        kind: LocationKind::CpuThread,
        name,
        ring,
        thread,
    }));
    Ok(EventWriter::new(producer))
}

impl Thread {
    fn new(writer: EventWriter) -> Thread {
        Thread {
            writer,
            stack: Vec::new(),
            last: 0,
            last_event: 0,
            runs: false,
            ran_until: 0,
            since: 0,
            in_functions: Vec::new(),
        }
    }

    /// It was here since its last sample; after a pause, and where it is known that it was elsewhere, for one period.
    fn change_to(
        &mut self,
        stack: Vec<u32>,
        (time, runs_since): (u64, u64),
        (clock, period, pause): (&EventClock, u64, u64),
        is_recorded: bool,
    ) {
        if time.saturating_sub(self.last) > pause && !self.runs {
            self.pause(clock);
        }
        if self.stack.is_empty() {
            self.since = time.saturating_sub(period).min(runs_since).max(self.last);
        }
        let period_ago = match is_recorded {
            true => time.saturating_sub(period),
            // It waited for a CPU meanwhile.
            false => time.saturating_sub(period).min(runs_since),
        };
        let period_ago = clock.at(period_ago).max(self.last_event);
        // Inside a call, it says nothing of the time before.
        let since = match stack.last() {
            Some(&IN_CALL) => clock.at(time).max(self.last_event),
            _ if self.stack.is_empty() || is_recorded => period_ago,
            _ => self.last_event,
        };
        self.runs = true;
        let same = self.stack.iter().zip(&stack).take_while(|(before, now)| before == now).count();
        self.stack[same..].iter().rev().for_each(|region| self.writer.leave(since, *region));
        stack[same..].iter().for_each(|region| self.writer.enter(since, *region));
        (self.stack, self.last, self.last_event) = (stack, time, clock.at(time).max(since));
    }

    fn end(&mut self, clock: &EventClock) {
        self.pause(clock);
        self.writer.location_end(self.last_event);
        self.writer.close();
    }

    /// It is in no function from when it began to wait after its last sample.
    fn pause(&mut self, clock: &EventClock) {
        let mut until = self.last;
        if self.ran_until > self.last {
            until = self.ran_until;
            self.last_event = self.last_event.max(clock.at(until));
        }
        if !self.stack.is_empty() {
            self.in_functions.push((self.since, until));
        }
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

/// Bytes of a process' environment that are read.
const ENVIRONMENT_MAX: u64 = 8 << 20;

/// Variables that say which devices a process uses, and how often it is sampled.
fn environment(pid: u32, period: u64) -> Vec<String> {
    let variables = foreign::read(format!("/proc/{pid}/environ"), ENVIRONMENT_MAX).unwrap_or_default();
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
struct Fetched {
    events: Vec<Event>,
    /// Of the sample that follows.
    runs_since: Option<u64>,
}

enum Event {
    Sample(u32, Sample),
    /// With the program's path or name.
    Started(u32, String),
    /// By this process.
    Forked(u32, u32),
    /// The process' thread was on a CPU from then to then.
    Ran(u32, u32, u64, u64),
    /// Such times were lost.
    Lost,
    /// Without a thread: all of them.
    Ended(u32, Option<u32>),
}

struct Sample {
    thread: u32,
    time: u64,
    /// On a CPU, or waiting for one.
    runs_since: Option<u64>,
    /// Outermost first.
    stack: Vec<FunctionId>,
}

impl Sink for Fetched {
    fn sample(&mut self, process: u32, thread: u32, time_ns: u64, frames: &[FunctionId], _is_cut_off: bool) {
        let runs_since = self.runs_since.take();
        let sample = Sample { thread, time: time_ns, runs_since, stack: frames.to_vec() };
        self.events.push(Event::Sample(process, sample));
    }

    fn sample_runs_since(&mut self, since_ns: u64) {
        self.runs_since = Some(since_ns);
    }

    fn started(&mut self, process: u32, _time_ns: u64, name: Option<&str>) {
        self.events.push(Event::Started(process, name.unwrap_or_default().to_owned()));
    }

    fn forked(&mut self, process: u32, parent: u32) {
        self.events.push(Event::Forked(process, parent));
    }

    fn ran(&mut self, process: u32, thread: u32, from_ns: u64, until_ns: u64) {
        self.events.push(Event::Ran(process, thread, from_ns, until_ns));
    }

    fn lost(&mut self) {
        self.events.push(Event::Lost);
    }

    fn ended(&mut self, process: u32, thread: Option<u32>, _time_ns: u64) {
        self.events.push(Event::Ended(process, thread));
    }
}
