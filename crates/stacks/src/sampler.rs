//! Begin and poll: records of all CPUs in the order of time, handed to a `Sink`.

use std::collections::{HashMap, HashSet};
use std::os::fd::BorrowedFd;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::events::{Begin, Events, Ring, StacksError, online_cpus, threads_of};
use crate::figures::{Counts, CutReason, Figures};
use crate::file::Files;
use crate::functions::{Function, FunctionId, Functions};
use crate::machine;
use crate::processes::{Mappings, Processes};
use crate::records::{Header, Record};
use crate::stack::{End, Registers, Stack, Walked, Walker};

/// How a command is sampled.
#[derive(Debug, Clone)]
pub struct Options {
    /// CPU time of a thread between two samples of it.
    pub period: Duration,
    /// How much of a stack is copied: what lies deeper is cut off. A multiple of 8, less than 64 kB.
    pub stack_bytes: u32,
    /// The clock of all times: CLOCK_MONOTONIC, or another one that `perf_event_open` takes.
    pub clock: libc::clockid_t,
    /// Samples where a thread is in the kernel, too, if the machine allows it (users where perf_event_paranoid is at
    /// most 1): they are of the function that called it.
    pub kernel: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            period: Duration::from_millis(1),
            stack_bytes: 24 << 10,
            clock: libc::CLOCK_MONOTONIC,
            kernel: false,
        }
    }
}

/// Receives samples, and starts and ends of processes, in the order of time.
pub trait Sink {
    /// A thread was there after another period of its CPU time. The outermost function comes first. `is_cut_off`: more
    /// functions are outside it, which are not known.
    fn sample(&mut self, process: u32, thread: u32, time_ns: u64, frames: &[FunctionId], is_cut_off: bool);
    /// The thread of the sample that follows has been on a CPU, or waited for one, since then.
    fn sample_runs_since(&mut self, _since_ns: u64) {}
    /// A process executes a program with this name; a forked process (without a name) is its parent's copy so far.
    fn started(&mut self, process: u32, time_ns: u64, name: Option<&str>);
    /// A process was forked by this one.
    fn forked(&mut self, _process: u32, _parent: u32) {}
    /// A thread was on a CPU, or waited for one, from then to then.
    fn ran(&mut self, _process: u32, _thread: u32, _from_ns: u64, _until_ns: u64) {}
    /// Some of this was lost, up to now: nothing is known to run.
    fn lost(&mut self) {}
    /// A thread has ended; without one, the process.
    fn ended(&mut self, process: u32, thread: Option<u32>, time_ns: u64);
}

/// How long after its time a record may still reach its ring.
const SLACK: Duration = Duration::from_millis(1);

/// The kernel is asked not more often than this.
const REFRESH_NS: u64 = 1_000_000_000;

/// It is looked no more often than this which CPUs there are.
const CPUS_NS: u64 = 500_000_000;

/// So many threads that run are known at a time.
const RUNNING_MAX: usize = 1 << 16;

/// Samples processes, and what they start.
pub struct Sampler {
    events: Events,
    options: Options,
    files: Files,
    functions: Functions,
    processes: Processes,
    /// Processes that ran already when they were added.
    incomplete: Vec<Incomplete>,
    /// Threads that are on a CPU or wait for one, and since when.
    running: HashMap<u32, u64>,
    counts: Counts,
    /// The latest time in each ring, and of what was handed over.
    latest_of_rings: Vec<u64>,
    latest: u64,
    /// When records were lost and it was last looked in /proc which processes have ended.
    refreshed: u64,
    /// When it was last looked which CPUs there are, and what says so.
    cpus_looked: u64,
    cpus: fn() -> Vec<u32>,
    /// Processes whose events [`Sampler::retain`] has closed.
    without_events: HashSet<u32>,
    /// How much the time of day is ahead of the clock of all times.
    day_ahead: i64,
    scratch: Scratch,
}

/// A process whose threads may have started others before they were sampled themselves.
struct Incomplete {
    process: u32,
    /// All of its threads at that time.
    threads: Vec<u32>,
    at: u64,
}

/// Memory that is used again at each poll.
#[derive(Default)]
struct Scratch {
    /// Time, ring and position of the records to be handed over.
    records: Vec<(u64, usize, u64)>,
    record: Vec<u8>,
    frames: Vec<FunctionId>,
}

impl Sampler {
    /// Makes what is needed to sample processes. None is sampled yet. The calling thread has to live as long.
    ///
    /// # Errors
    ///
    /// The kernel does not allow it, or has no room.
    pub fn begin(options: &Options) -> Result<Sampler, StacksError> {
        Sampler::begin_on(options, online_cpus)
    }

    /// `online`: which CPUs there are now.
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
            options,
            files: Files::new(),
            functions: Functions::new(),
            processes: Processes::default(),
            incomplete: Vec::new(),
            running: HashMap::new(),
            counts: Counts::default(),
            latest: 0,
            refreshed: 0,
            cpus_looked: 0,
            cpus: online,
            without_events: HashSet::new(),
            day_ahead: 0,
            scratch: Scratch::default(),
        })
    }

    /// From now on, the commands that `launcher` executes, and all that these start, are sampled; the launcher itself is
    /// not, nor what is started by threads that it makes after this call. One that is sampled stays as it is.
    ///
    /// # Errors
    ///
    /// The kernel does not allow it, or has no room.
    pub fn add_launcher(&mut self, launcher: u32) -> Result<(), StacksError> {
        if self.processes.has(launcher) {
            return Ok(());
        }
        self.add(launcher, threads_of(launcher)?, Begin::AtExec).map(drop)
    }

    /// From now on, a process that runs already, and all that it starts, are sampled. One that is sampled stays as it is; what
    /// it was started by is known from [`Sampler::poll`].
    ///
    /// # Errors
    ///
    /// The kernel does not allow it, or has no room.
    pub fn add_running(&mut self, process: u32) -> Result<(), StacksError> {
        // Records from before its events were closed can make a process known again, without events.
        if self.processes.has(process) && !self.without_events.remove(&process) {
            return Ok(());
        }
        self.without_events.remove(&process);
        self.add(process, threads_of(process)?, Begin::Now)?;
        self.look_at_threads_again(process)
    }

    /// Processes of which this is not true are not sampled any more, nor is what they start from now on. One that is added later
    /// is sampled again.
    ///
    /// # Errors
    ///
    /// The others cannot be sampled without these, as too few files may be open: all are sampled as before.
    pub fn retain(&mut self, is_sampled: impl Fn(u32) -> bool) -> Result<(), StacksError> {
        // Events are inherited, and end only with those that they were inherited from. So the others get their own.
        let before = self.events.take();
        for process in self.processes.all() {
            if !is_sampled(process) {
                continue;
            }
            let added = threads_of(process).and_then(|threads| self.add(process, threads, Begin::Now));
            match added {
                Ok(_) | Err(StacksError::NoProcess { .. }) => {}
                Err(why) => {
                    self.events.put_back(before);
                    return Err(why);
                }
            }
        }
        drop(before);
        self.without_events.extend(self.processes.all().into_iter().filter(|process| !is_sampled(*process)));
        self.processes.retain(is_sampled);
        Ok(())
    }

    /// Gives the threads that are sampled now.
    fn add(&mut self, process: u32, threads: Vec<u32>, begin: Begin) -> Result<Vec<u32>, StacksError> {
        let threads = self.events.add(process, threads, begin)?;
        self.processes.added(process, &threads);
        Ok(threads)
    }

    fn look_at_threads_again(&mut self, process: u32) -> Result<(), StacksError> {
        let threads = threads_of(process)?;
        self.incomplete.push(Incomplete { process, threads, at: clock_ns(self.options.clock) });
        Ok(())
    }

    /// Threads that are not sampled, nor were started by one that is, are added. `until`: all that happened before is known.
    fn add_missed_threads(&mut self, until: u64) {
        // The kernel shows a thread a little earlier than it tells of it.
        let is_due = |looked: &mut Incomplete| looked.at.saturating_add(SLACK.as_nanos() as u64) < until;
        let due: Vec<Incomplete> = self.incomplete.extract_if(.., is_due).collect();
        for Incomplete { process, mut threads, .. } in due {
            threads.retain(|thread| !self.processes.has_thread(process, *thread));
            if self.add(process, threads, Begin::Now).is_ok_and(|added| !added.is_empty()) {
                let _ = self.look_at_threads_again(process);
            }
        }
    }

    /// How long the rings last when every CPU is busy. Polling twice as often loses nothing.
    pub fn lasts(&self) -> Duration {
        let ring = self.events.rings.iter().map(Ring::bytes).min().unwrap_or(0);
        let samples = ring / (self.options.stack_bytes as usize + 128);
        self.options.period * samples as u32
    }

    /// Waits so long; or until half a ring has been written since that was last so, or `until` can be read.
    pub fn wait(&self, longest: Duration, until: BorrowedFd) {
        self.events.wait(longest, until);
    }

    /// Whether a process is sampled, as far as is known from [`Sampler::poll`].
    pub fn has(&self, process: u32) -> bool {
        self.processes.has(process)
    }

    /// Whether threads are sampled in the kernel, too.
    pub fn samples_kernel(&self) -> bool {
        self.options.kernel
    }

    /// Hands over what happened until now, but for the last millisecond.
    pub fn poll(&mut self, sink: &mut dyn Sink) {
        let now = clock_ns(self.options.clock);
        self.hand_over(now.saturating_sub(SLACK.as_nanos() as u64), sink);
    }

    /// Hands over all that is there: after the command has ended.
    pub fn finish(&mut self, sink: &mut dyn Sink) {
        self.hand_over(u64::MAX, sink);
    }

    /// How many samples there were, and which were cut off, and why.
    pub fn figures(&self) -> Figures {
        self.counts.figures(|file| self.files.path(file))
    }

    /// A function that was handed over.
    pub fn function(&self, id: FunctionId) -> &Function {
        self.functions.get(id)
    }

    fn hand_over(&mut self, until: u64, sink: &mut dyn Sink) {
        let began = cpu_ns();
        let now = clock_ns(self.options.clock);
        self.day_ahead = (clock_ns(libc::CLOCK_REALTIME) as i64).wrapping_sub(now as i64);
        self.look_at_cpus(now);
        self.files.fetch();
        let mut scratch = std::mem::take(&mut self.scratch);
        let ends: Vec<u64> =
            (0..self.events.rings.len()).map(|ring| self.gather(ring, until, &mut scratch.records)).collect();
        // Within a ring, the order is the ring's.
        scratch.records.sort_unstable();
        for (time, ring, position) in scratch.records.drain(..) {
            let time = time.max(self.latest);
            self.latest = time;
            self.hand_over_one(time, ring, position, &mut scratch.record, &mut scratch.frames, sink);
        }
        for (ring, end) in self.events.rings.iter_mut().zip(ends) {
            ring.release(end);
        }
        self.scratch = scratch;
        self.add_missed_threads(until);
        self.counts.figures.cpu_ns += cpu_ns().saturating_sub(began);
    }

    /// CPUs that have come are sampled, too.
    fn look_at_cpus(&mut self, now: u64) {
        if now.saturating_sub(self.cpus_looked) < CPUS_NS {
            return;
        }
        let is_first = std::mem::replace(&mut self.cpus_looked, now) == 0;
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

    /// The time of day at a time of the records.
    fn time_of_day(&self, time: u64) -> i64 {
        (time as i64).wrapping_add(self.day_ahead)
    }

    /// Collects the records of a ring up to `until`. Returns the position behind the last one.
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
                // Where the next record begins is not known.
                self.counts.figures.lost += 1;
                return range.end;
            };
            // Records that interrupted each other can be a little out of order.
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

    fn hand_over_one(
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
        let record = ring.slice(position, bytes.into(), scratch).and_then(Record::parse);
        let Some(record) = record else {
            self.counts.figures.lost += 1;
            return;
        };
        match record {
            Record::Sample { process, thread, registers, stack } => {
                let stack_bytes = self.options.stack_bytes;
                let (files, functions) = (&mut self.files, &mut self.functions);
                let mut walk = |processes: &mut Processes, files: &mut Files| {
                    let mappings = mappings_of(processes, files, process);
                    let walker = Walker { files, functions, process, mappings: &mappings };
                    walk(walker, registers, stack, stack_bytes, frames)
                };
                let mut walked = walk(&mut self.processes, files);
                if walked.is_unmapped && self.processes.look_again(process, time) {
                    walked = walk(&mut self.processes, files);
                }
                let why = walked.unnamed.map(|file| self.files.why_unnamed(file));
                self.counts.add(process, frames.len(), &walked, why);
                self.running.get(&thread).iter().for_each(|since| sink.sample_runs_since(**since));
                sink.sample(process, thread, time, frames, walked.end != End::Complete);
            }
            Record::Mapped { process, mapped } => {
                let mapped_at = self.time_of_day(time);
                let file = self.files.number(&mapped, process, Some(mapped_at));
                self.processes.mapped(process, &mapped, file, &|file| self.files.is_memory(file));
            }
            Record::Exec { process, name, .. } => {
                self.processes.exec(process);
                self.counts.end(process);
                self.files.forget(process);
                self.files.maps.executed(process, self.time_of_day(time));
                sink.started(process, time, Some(&String::from_utf8_lossy(name)));
                self.switch_in(process, time);
            }
            Record::Forked { process, parent, thread } => {
                if self.processes.forked(process, parent, thread) {
                    self.files.forget(process);
                    self.files.maps.forked(process, parent, self.time_of_day(time));
                    sink.started(process, time, None);
                    sink.forked(process, parent);
                }
                self.switch_in(thread, time);
            }
            Record::Switched { thread, is_out: false, .. } => self.switch_in(thread, time),
            Record::Switched { process, thread, is_out: true } => {
                self.switch_out(process, thread, time, sink);
            }
            Record::Ended { process, thread } => {
                self.switch_out(process, thread, time, sink);
                sink.ended(process, Some(thread), time);
                if self.processes.ended(process, thread) {
                    self.without_events.remove(&process);
                    self.files.forget(process);
                    self.counts.end(process);
                    self.events.retain(|root| self.processes.has_any_of(root));
                    sink.ended(process, None, time);
                }
            }
            Record::Lost(count) => {
                self.counts.figures.lost = self.counts.figures.lost.saturating_add(count);
                self.running.clear();
                sink.lost();
                if time.saturating_sub(self.refreshed) >= REFRESH_NS {
                    self.refreshed = time;
                    for process in self.processes.lost() {
                        self.files.forget(process);
                        self.counts.end(process);
                        sink.ended(process, None, time);
                    }
                }
            }
            Record::Throttled { event, is_stopped } => {
                let period = self.options.period.as_nanos() as u64;
                self.counts.throttled(event, time, is_stopped, period);
            }
            Record::Other => {}
        }
    }
}

/// What a process has mapped.
fn mappings_of(processes: &mut Processes, files: &mut Files, process: u32) -> Mappings {
    processes.mappings(process, |mapped| {
        let number = files.number(mapped, process, None);
        (number, files.is_memory(number))
    })
}

impl Sampler {
    fn switch_in(&mut self, thread: u32, time: u64) {
        if self.running.len() < RUNNING_MAX {
            self.running.entry(thread).or_insert(time);
        }
    }

    fn switch_out(&mut self, process: u32, thread: u32, time: u64, sink: &mut dyn Sink) {
        if let Some(since) = self.running.remove(&thread) {
            sink.ran(process, thread, since, time);
        }
    }
}

/// The functions on a stack that was copied, the outermost first.
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

fn check(options: &Options) -> Result<(), StacksError> {
    let error = |what: String, advice| Err(StacksError::Option { what, advice });
    // The kernel's records have at most 64 kB.
    if !options.stack_bytes.is_multiple_of(8) || options.stack_bytes > 64000 {
        return error(format!("{} bytes of a stack", options.stack_bytes), "a multiple of 8, at most 64000");
    }
    if options.period < Duration::from_micros(10) || options.period > Duration::from_secs(3600) {
        return error(format!("a period of {:?}", options.period), "10 us to an hour");
    }
    match options.clock {
        libc::CLOCK_MONOTONIC | libc::CLOCK_MONOTONIC_RAW | libc::CLOCK_REALTIME | libc::CLOCK_BOOTTIME => {
            Ok(())
        }
        clock => error(format!("clock {clock}"), "CLOCK_MONOTONIC, _RAW, CLOCK_REALTIME or CLOCK_BOOTTIME"),
    }
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
    use std::io::Read;
    use std::process::{Command, Stdio};
    use std::sync::atomic::{AtomicBool, Ordering};

    /// Whether the last of the CPUs is there yet.
    static IS_THERE: AtomicBool = AtomicBool::new(false);

    fn listed() -> Vec<u32> {
        let mut cpus = online_cpus();
        if !IS_THERE.load(Ordering::Relaxed) {
            cpus.pop();
        }
        cpus
    }

    struct Count(u64);

    impl Sink for Count {
        fn sample(&mut self, _: u32, _: u32, _: u64, _: &[FunctionId], _: bool) {
            self.0 += 1;
        }

        fn started(&mut self, _: u32, _: u64, _: Option<&str>) {}

        fn ended(&mut self, _: u32, _: Option<u32>, _: u64) {}
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
