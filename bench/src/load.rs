//! Puts a real collector under load: this program takes the place of many processes and fills their rings as fast as the
//! collector reads them.

use crate::ring_size::RingSizes;
use crate::trace::{Event, Walk};
use crate::{Missing, child};
use ampere_model::{
    Communicator, Definition, LocalLocation, Location, LocationKind, Members, Process, Region, RegionHandle,
};
use ampere_ring::communication::{Communication, Message, RECORDS_MAX};
use ampere_ring::{Kind, LogWriter, Record, RingGauge, RingProducer, Session, clock};
use anyhow::{Context, bail};
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::time::{Duration, Instant};

#[derive(Clone, Copy)]
pub struct Load {
    pub processes: u32,
    /// Threads of each process. The first one is its main thread.
    pub threads: u32,
    pub pattern: Pattern,
    pub trace: bool,
    /// Whether the frames of all threads count for their rank, not only those of the main thread.
    pub all_threads: bool,
    /// The limit on the number of series of one metric.
    pub most_series: u32,
    /// Whether the energy of ranks that wait for each other is found.
    pub waits: bool,
}

/// The events that each location repeats.
#[derive(Clone, Copy)]
pub enum Pattern {
    /// The calls of a typical program: a few hundred call paths, up to 20 frames deep. Every `calls_per_message`-th call sends a
    /// message; with 0 no call does.
    Walk { calls_per_message: usize },
    /// All paths of a tree that is `deep` calls deep, in which each function calls `wide` others.
    Tree { deep: u32, wide: u32 },
    /// Each process sends to the next one and receives from the one before. Every other process receives first.
    Exchange,
}

/// Number of records of one location that are written at once.
const CHUNK: usize = 1 << 10;
const WAIT_MAX: Duration = Duration::from_secs(60);
const SETTLING: Duration = Duration::from_secs(2);

/// A collector under load, and the rings and processes that this program feeds it.
pub struct Feed {
    _shm: tempfile::TempDir,
    output: tempfile::TempDir,
    session: Session,
    /// The collector's process; `None` after it has been waited for.
    collector: Option<Child>,
    hosts: Vec<Child>,
    logs: Vec<LogWriter>,
    locations: Vec<FedLocation>,
    pattern: Rc<[Record]>,
    /// The time of the last record that was written, in ticks.
    last: u64,
    longest_wait: Duration,
}

/// A location, the ring that is fed for it, and the chunks that have been written.
struct FedLocation {
    ring: RingProducer,
    gauge: RingGauge,
    /// The ends of the chunks that have been written and that the consumer had not read when we last looked, with the times at
    /// which their writing began.
    written: VecDeque<(u64, Instant)>,
    pattern: Rc<[Record]>,
    /// Position in the pattern.
    at: usize,
}

pub struct Outcome {
    pub events: u64,
    /// CPU time of all threads until all events were attributed.
    pub cpu_nanoseconds: f64,
    /// CPU time of all threads until the end, with the writing of the trace.
    pub cpu_nanoseconds_at_end: f64,
    /// Wall-clock time from the moment when the last process leaves to the collector's end.
    pub seconds_to_finish: f64,
    /// Size of the trace's event files.
    pub trace_bytes: f64,
    pub peak_bytes: f64,
    /// The longest time between writing and reading a record, checked twice per millisecond. It is measured only for a run at a
    /// given rate.
    pub longest_wait_seconds: f64,
    pub summary: serde_json::Value,
    /// Sizes of summary.json, summary.txt and report.html.
    pub results_bytes: [f64; 3],
}

/// The resources of its node that a run uses while it is running.
pub struct Footprint {
    /// Size of the session in shared memory.
    pub shared_bytes: f64,
    /// Open descriptors of the collector.
    pub descriptors: f64,
    /// Number of files in the output directory.
    pub files: f64,
    /// The collector's write calls, to files and to sockets.
    pub writes_per_second: f64,
}

impl Outcome {
    pub fn cpu_per_event(&self) -> f64 {
        self.cpu_nanoseconds / self.events as f64
    }
}

impl Feed {
    pub fn output(&self) -> PathBuf {
        self.output.path().join("out")
    }

    pub fn start(load: &Load) -> anyhow::Result<Feed> {
        let memory = Path::new("/dev/shm");
        let sizes = RingSizes::for_ranks(load.processes);
        let rings = (0..load.threads).map(|thread| sizes.next(thread, false)).sum::<u64>();
        let rings = rings * u64::from(load.processes);
        if child::free_bytes(memory) < 2 * rings {
            return Err(Missing(format!("no space in /dev/shm for {} MB of rings", rings >> 20)).into());
        }
        let shm = tempfile::tempdir_in(memory)?;
        let output = tempfile::tempdir_in(memory)?;
        let place = shm.path().join("s-bench");
        std::fs::create_dir(&place)?;
        let session = Session::open_or_create_in(&place)?;
        let collector = Command::new(child::sibling("ampere-collector"))
            .arg("--session")
            .arg(session.directory())
            .arg("--output")
            .arg(output.path().join("out"))
            .args(["--listen", "127.0.0.1:0"])
            .env("AMPERE_COUNTERS", "estimate")
            .env("AMPERE_LOCATIONS", if load.all_threads { "all" } else { "main" })
            .env("AMPERE_MOST_SERIES", load.most_series.to_string())
            .env("AMPERE_TRACE", if load.trace { "on" } else { "off" })
            .env("AMPERE_WAITS", if load.waits { "on" } else { "off" })
            .stdin(Stdio::null())
            .spawn()
            .context("ampere-collector: cargo build --release --workspace")?;
        let mut feed = Feed {
            _shm: shm,
            output,
            session,
            collector: Some(collector),
            hosts: Vec::new(),
            logs: Vec::new(),
            locations: Vec::new(),
            pattern: load.pattern.records().into(),
            last: clock::ticks(),
            longest_wait: Duration::ZERO,
        };
        for process in 0..load.processes {
            feed.add_process(process, load)?;
        }
        feed.last = clock::ticks();
        feed.enter_main();
        Ok(feed)
    }

    /// Starts a process that only sleeps. This program writes its events.
    fn add_process(&mut self, number: u32, load: &Load) -> anyhow::Result<()> {
        let host = Command::new("sleep").arg("3600").stdin(Stdio::null()).spawn()?;
        let pid = host.id();
        self.hosts.push(host);
        let directory = self.session.directory().to_owned();
        let mut log = LogWriter::create(&directory.join(format!("{pid}.defs")))?;
        log.append(&Definition::Process(Process {
            pid,
            start_time: ampere_ring::process::start_time(pid).unwrap_or(0),
            hostname: ampere_ring::process::node_name(),
            executable: "bench".to_owned(),
            host: "embedded".to_owned(),
            clocks: clock::read_clocks(),
            ..Process::default()
        }));
        log.append(&Definition::Rank { rank: number, size: load.processes });
        log.append(&Definition::Communicator(Communicator {
            handle: MESSAGE.communicator,
            members: Members::World,
        }));
        let pattern = match load.pattern {
            Pattern::Exchange => exchange(number, load.processes).into(),
            _ => self.pattern.clone(),
        };
        for region in 0..=load.pattern.regions() {
            log.append(&Definition::Region(Region {
                handle: RegionHandle(region),
                name: format!("function {region}"),
                canonical_name: String::new(),
                source_file: String::new(),
                begin_line: 0,
                end_line: 0,
                region_type: 0,
                paradigm: load.pattern.paradigm(region),
            }));
        }
        let sizes = RingSizes::for_ranks(load.processes);
        for thread in 0..load.threads {
            let name = format!("{pid}.{thread}.ring");
            let path = directory.join(&name);
            let records = sizes.next(thread, false) / size_of::<Record>() as u64;
            let ring = RingProducer::create(&path, records, thread)?;
            log.append(&Definition::Location(Location {
                id: LocalLocation(thread),
                kind: LocationKind::CpuThread,
                name: if thread == 0 { "Master thread".to_owned() } else { format!("thread {thread}") },
                ring: name,
                thread: 0,
            }));
            let gauge = RingGauge::open(&path)?;
            let pattern = pattern.clone();
            self.locations.push(FedLocation { ring, gauge, written: VecDeque::new(), pattern, at: 0 });
        }
        self.logs.push(log);
        self.session.join();
        Ok(())
    }

    fn enter_main(&mut self) {
        let now = clock::ticks();
        for location in &mut self.locations {
            location.ring.push_with_room(Record::new(Kind::Enter, now, 0));
        }
        self.last = now;
    }

    /// Writes at least this number of events as fast as the collector takes them.
    pub fn run_for_events(mut self, events: u64) -> anyhow::Result<Outcome> {
        let mut written = 0;
        while written < events {
            written += self.write_chunks()?;
        }
        self.finish(written)
    }

    /// Writes events with [`Feed::write_at_rate`], and ends the run.
    pub fn run_at_rate(mut self, rate: f64, duration: Duration) -> anyhow::Result<Outcome> {
        let written = self.write_at_rate(rate, duration)?;
        self.finish(written)
    }

    /// Returns the CPU nanoseconds of all threads per event, measured after the collector has found all processes and read each
    /// ring.
    pub fn settled_cpu_per_event(mut self, rate: f64, duration: Duration) -> anyhow::Result<f64> {
        let before = self.write_at_rate(rate, SETTLING)?;
        let begun = self.cpu_nanoseconds()?;
        let events = self.write_at_rate(rate, duration)?;
        let run = self.finish(before + events)?;
        Ok((run.cpu_nanoseconds - begun) / events as f64)
    }

    /// Writes `rate` events per second in all locations together. Returns the number of events that were written.
    pub fn write_at_rate(&mut self, rate: f64, duration: Duration) -> anyhow::Result<u64> {
        let begun = Instant::now();
        let mut written = 0;
        while begun.elapsed() < duration {
            while (written as f64) < begun.elapsed().as_secs_f64() * rate {
                written += self.write_chunks()?;
            }
            self.update_longest_wait();
            std::thread::sleep(Duration::from_micros(500));
        }
        Ok(written)
    }

    /// Measures the node's resources that a run at this rate uses.
    pub fn footprint(mut self, rate: f64, duration: Duration) -> anyhow::Result<Footprint> {
        let mut written = self.write_at_rate(rate, duration)?; // until the collector has settled
        let before = self.write_calls()?;
        written += self.write_at_rate(rate, duration)?;
        let writes = self.write_calls()? - before;
        let pid = self.collector.as_ref().context("no collector")?.id();
        let count = |path: &Path| std::fs::read_dir(path).map(|entries| entries.flatten().count() as f64);
        let files = std::fs::read_dir(self.session.directory())?.flatten();
        let bytes: u64 = files.filter_map(|file| Some(file.metadata().ok()?.len())).sum();
        let spool = std::fs::read_dir(self.output())?.flatten().find(|entry| entry.path().is_dir());
        let in_spool = spool.map_or(Ok(0.0), |spool| count(&spool.path()))?;
        let footprint = Footprint {
            shared_bytes: bytes as f64,
            descriptors: count(Path::new(&format!("/proc/{pid}/fd")))?,
            files: count(&self.output())? + in_spool,
            writes_per_second: writes / duration.as_secs_f64(),
        };
        self.finish(written)?;
        Ok(footprint)
    }

    /// Returns the number of write calls that the collector has made so far.
    fn write_calls(&self) -> anyhow::Result<f64> {
        let pid = self.collector.as_ref().context("no collector")?.id();
        let text = std::fs::read_to_string(format!("/proc/{pid}/io"))?;
        let calls = text.lines().find_map(|line| line.strip_prefix("syscw: ")).context("no syscw")?;
        Ok(calls.parse()?)
    }

    /// Returns the CPU seconds per second of the whole collector while the job does nothing.
    pub fn idle(self, duration: Duration) -> anyhow::Result<f64> {
        std::thread::sleep(Duration::from_secs(5)); // until the collector has settled
        let (begun, before) = (Instant::now(), self.cpu_nanoseconds()?);
        std::thread::sleep(duration);
        let used = self.cpu_nanoseconds()? - before;
        let share = used * 1e-9 / begun.elapsed().as_secs_f64();
        self.finish(0)?;
        Ok(share)
    }

    /// Writes a chunk of records on every location, with timestamps between those of the previous chunk and now.
    fn write_chunks(&mut self) -> anyhow::Result<u64> {
        let begun = Instant::now();
        let chunk = CHUNK.min(self.pattern.len());
        let room = (chunk + RECORDS_MAX) as u64;
        while self.locations.iter_mut().any(|location| location.ring.free() < room) {
            std::thread::sleep(Duration::from_micros(100));
            if begun.elapsed() > WAIT_MAX {
                bail!("the collector does not read");
            }
        }
        let now = clock::ticks();
        let step = (now - self.last) / room;
        let mut events = 0;
        for (number, location) in self.locations.iter_mut().enumerate() {
            let mut time = self.last + (number as u64 * 7919) % (step + 1);
            let mut count = 0;
            loop {
                let record = location.pattern[location.at];
                let is_payload = record.kind() == Some(Kind::Payload);
                if count >= chunk && !is_payload {
                    break; // a message is published as a whole
                }
                let [word0, word1] = record.words();
                time += if is_payload { 0 } else { step };
                let word0 = if is_payload { word0 } else { time };
                location.ring.put_with_room(count as u64, Record::from_words([word0, word1]));
                location.at = (location.at + 1) % location.pattern.len();
                count += 1;
                events += u64::from(matches!(record.kind(), Some(Kind::Enter | Kind::Leave)));
            }
            location.ring.publish(count as u64);
            location.written.push_back((location.ring.position(), begun));
        }
        self.last = now;
        Ok(events)
    }

    /// Returns the CPU time that all threads of the collector have used so far.
    pub fn cpu_nanoseconds(&self) -> anyhow::Result<f64> {
        let pid = self.collector.as_ref().context("no collector")?.id() as libc::pid_t;
        let mut clock = 0;
        // SAFETY: an all-zero timespec is valid; both outlive the calls.
        let (error, time) = unsafe {
            let mut time: libc::timespec = std::mem::zeroed();
            let error = libc::clock_getcpuclockid(pid, &mut clock);
            (if error == 0 { libc::clock_gettime(clock, &mut time) } else { error }, time)
        };
        if error != 0 {
            bail!("the collector has no CPU clock: it has ended");
        }
        Ok(time.tv_sec as f64 * 1e9 + time.tv_nsec as f64)
    }

    fn update_longest_wait(&mut self) {
        for location in &mut self.locations {
            let (_, read) = location.gauge.positions();
            while let Some((_, since)) = location.written.front().filter(|(position, _)| *position <= read) {
                self.longest_wait = self.longest_wait.max(since.elapsed());
                location.written.pop_front();
            }
        }
    }

    /// Ends the processes and waits for the collector.
    pub fn finish(mut self, events: u64) -> anyhow::Result<Outcome> {
        let begun = Instant::now();
        let is_unread = |(written, read): (u64, u64)| read < written;
        while self.locations.iter().any(|location| is_unread(location.gauge.positions())) {
            std::thread::sleep(Duration::from_millis(1));
            if begun.elapsed() > WAIT_MAX {
                bail!("the collector does not read");
            }
        }
        // This is longer than the slack and the period of snapshots.
        std::thread::sleep(Duration::from_millis(250));
        let cpu_nanoseconds = self.cpu_nanoseconds()?;
        let begun = Instant::now();
        let now = clock::ticks();
        for location in &mut self.locations {
            location.ring.push_with_room(Record::new(Kind::LocationEnd, now, 0));
            location.ring.close();
        }
        for log in &mut self.logs {
            log.append(&Definition::Finished { left_out: 0 });
            self.session.leave();
        }
        let collector = self.collector.take().context("no collector")?;
        let used = child::wait(collector).context("the collector")?;
        let seconds_to_finish = begun.elapsed().as_secs_f64();
        let summary = std::fs::read(self.output().join("summary.json"))?;
        let summary: serde_json::Value = serde_json::from_slice(&summary)?;
        let seen = summary["quality"]["events"].as_u64().unwrap_or(0);
        if seen < events {
            bail!("{seen} events of {events} in the summary");
        }
        let peak_bytes = summary["overhead"]["collector_peak_rss_bytes"].as_f64().unwrap_or(f64::NAN);
        let longest_wait_seconds = self.longest_wait.as_secs_f64();
        Ok(Outcome {
            events,
            cpu_nanoseconds,
            cpu_nanoseconds_at_end: used.cpu_seconds * 1e9,
            seconds_to_finish,
            trace_bytes: event_bytes(&self.output().join("traces")),
            peak_bytes,
            longest_wait_seconds,
            summary,
            results_bytes: ["summary.json", "summary.txt", "report.html"].map(|name| {
                std::fs::metadata(self.output().join(name)).map_or(f64::NAN, |file| file.len() as f64)
            }),
        })
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        for host in self.hosts.iter_mut().chain(&mut self.collector) {
            let _ = host.kill();
            let _ = host.wait();
        }
    }
}

impl Pattern {
    fn regions(self) -> u32 {
        match self {
            Pattern::Walk { .. } => Walk::REGIONS,
            Pattern::Tree { deep, wide } => deep * wide,
            Pattern::Exchange => RECEIVE,
        }
    }

    fn paradigm(self, region: u32) -> u8 {
        match self {
            Pattern::Exchange if region > 0 => scorep_abi::paradigm::MPI as u8,
            _ => 0,
        }
    }

    /// Returns enters and leaves of the regions from 1 on, properly nested, and the messages.
    pub fn records(self) -> Vec<Record> {
        let mut records = Vec::new();
        match self {
            Pattern::Walk { calls_per_message } => {
                let mut calls = 0usize;
                for event in Walk::new(1, 1 << 14) {
                    match event {
                        Event::Enter(_, region) => {
                            records.push(Record::new(Kind::Enter, 0, 1 + region));
                            calls += 1;
                            if calls_per_message > 0 && calls.is_multiple_of(calls_per_message) {
                                records.extend(Communication::MpiSend(MESSAGE).records(0));
                            }
                        }
                        Event::Leave(_, region) => records.push(Record::new(Kind::Leave, 0, 1 + region)),
                        Event::Communicate(..) => unreachable!("a walk has no messages"),
                    }
                }
            }
            Pattern::Tree { deep, wide } => tree(0, deep, wide, &mut records),
            Pattern::Exchange => return exchange(0, 1),
        }
        records
    }
}

pub const MESSAGE: Message = Message { peer: 1, communicator: 0, tag: 7, bytes: 1 << 16 };

/// The regions of an exchange.
const SEND: u32 = 1;
const RECEIVE: u32 = 2;

/// Returns the records of a process that sends to the next one and receives from the one before.
fn exchange(rank: u32, ranks: u32) -> Vec<Record> {
    let of = |peer: u32| Message { peer: peer % ranks, bytes: 8, ..MESSAGE };
    let mut calls = [
        (SEND, Communication::MpiSend(of(rank + 1))),
        (RECEIVE, Communication::MpiRecv(of(rank + ranks - 1))),
    ];
    if rank % 2 == 1 {
        calls.reverse();
    }
    let call = |(region, event): (u32, Communication)| {
        let mut records = vec![Record::new(Kind::Enter, 0, region)];
        records.extend(event.records(0));
        records.push(Record::new(Kind::Leave, 0, region));
        records
    };
    calls.into_iter().flat_map(call).collect::<Vec<_>>().repeat(CHUNK / 8)
}

fn tree(level: u32, deep: u32, wide: u32, records: &mut Vec<Record>) {
    if level == deep {
        return;
    }
    for function in 0..wide {
        let region = 1 + level * wide + function;
        records.push(Record::new(Kind::Enter, 0, region));
        tree(level + 1, deep, wide, records);
        records.push(Record::new(Kind::Leave, 0, region));
    }
}

/// Returns the size of a trace's event files in bytes.
pub fn event_bytes(traces: &Path) -> f64 {
    let files = std::fs::read_dir(traces).into_iter().flatten().flatten();
    let events = files.filter(|file| file.path().extension().is_some_and(|end| end == "evt"));
    events.filter_map(|file| Some(file.metadata().ok()?.len() as f64)).sum()
}
