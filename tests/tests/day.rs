//! The events of a long run through one collector: the collector's own loop reads real rings in shared memory, with a simulated
//! clock as in a replay. Four ranks make nested calls at a constant rate, and a counter is sampled 20 times a second. A simulated
//! second takes about a millisecond. No trace is written, because a day's trace would take 17 GB.
//!
//! Every rank is in `main` from start to end, so each rank gets a quarter of all joules.
//!
//! `AMPERE_TEST_DAY_SECONDS` is the number of simulated seconds: by default a minute, with `make soak` a day.

use ampere_collector::live::{LiveRun, Mode, Options};
use ampere_collector::run_directory::manifest::Manifest;
use ampere_collector::sampling::sampler;
use ampere_collector::serving::latest::Latest;
use ampere_model::{Definition, LocalLocation, Location, LocationKind, Region, RegionHandle};
use ampere_ring::{EventWriter, LogWriter, RingProducer, Session};
use ampere_settings::Config;
use ampere_tests::random::{Random, seed, setting};
use ampere_tests::runs::{list, number, parse};
use ampere_trace::replay::{Replay, ReplayedLocation, ReplayedMetric, ReplayedProcess};
use serde_json::Value;
use std::path::Path;

const RANKS: u32 = 4;
/// Events of all ranks together in a simulated second.
const EVENTS_PER_SECOND: u64 = 20_000;
const TICKS_PER_SECOND: u64 = 1_000_000_000;
/// Samples of the counter, and rounds of the collector, in a simulated second.
const STEPS_PER_SECOND: u64 = 20;
const RING_RECORDS: u64 = 1 << 16;
/// Regions below `main`: a parent calls one of several children.
const CHILDREN: u32 = 6;
const WATTS_MAX: u64 = 800;
/// The relative error of sums of joules that rounding may cause.
const CONSERVED: f64 = 1e-9;
/// Bytes by which the collector may grow after the first tenth of the day. A leak that grows with time would take more.
const FLAT_BYTES: u64 = 8 << 20;

const MAIN: u32 = 1;
const SOLVE: u32 = 2;
const FIRST_CHILD: u32 = 3;

struct Rank {
    /// The log stays locked for as long as the rank counts as running.
    _log: LogWriter,
    writer: EventWriter,
    random: Random,
    /// The time at which its next call starts.
    next: u64,
}

#[test]
fn memory_stays_flat_and_every_joule_is_accounted_for() {
    let seconds = setting("AMPERE_TEST_DAY_SECONDS", 60).max(10);
    let seed = seed();
    println!("AMPERE_TEST_SEED={seed}");
    let directory = tempfile::Builder::new().prefix("ampere-day-").tempdir().expect("a directory");
    let mut day = Day::new(directory.path(), seed, seconds);
    let mut early_bytes = 0;
    for second in 0..seconds {
        day.simulate(second);
        if second == seconds / 10 {
            early_bytes = resident_bytes();
        }
        if second.is_multiple_of((seconds / 24).max(1)) {
            println!("{second} of {seconds} simulated seconds, {:.1} MB", resident_bytes() as f64 / 1e6);
        }
    }
    let grown = resident_bytes().saturating_sub(early_bytes);
    assert!(grown <= FLAT_BYTES, "{grown} bytes more than after the first tenth");
    let (summary, joules) = day.finish(seconds);
    assert_all_is_there(&summary, joules, seconds);
}

/// A collector with its inputs.
struct Day {
    run: LiveRun,
    /// Sets the simulated time.
    clock: Session,
    ranks: Vec<Rank>,
    samples: EventWriter,
    random: Random,
    watts: u64,
    nanojoules: u64,
}

const START: u64 = TICKS_PER_SECOND;
/// Ticks of a call of four events, chosen such that there are `EVENTS_PER_SECOND`.
const CALL: u64 = TICKS_PER_SECOND * 4 * RANKS as u64 / EVENTS_PER_SECOND;

impl Day {
    fn new(directory: &Path, seed: u64, seconds: u64) -> Day {
        let (session, output) = (directory.join("session"), directory.join("out"));
        let spool = output.join("spool");
        std::fs::create_dir_all(&spool).expect("a directory");
        let session = make_session(&session);
        let mut ranks: Vec<Rank> = (0..RANKS).map(|rank| make_rank(&session, rank, seed)).collect();
        let ring = RingProducer::create(&session.directory().join(sampler::RING_NAME), RING_RECORDS, 0);
        let mut samples = EventWriter::new(ring.expect("a ring"));
        let options = Options {
            output,
            spool,
            config: Config { trace: false, ..Config::default() },
            command: vec!["a day".to_owned()],
            run_id: "day".to_owned(),
            replay: Some(replay(seconds)),
            manifest: Manifest::new(session.directory(), "day", &[], None),
            left: None,
            mode: Mode::Collector,
        };
        let clock = Session::open(session.directory()).expect("the session");
        let run = LiveRun::new(session, options, None, Latest::default()).expect("a collector");
        for rank in &mut ranks {
            rank.next = START;
            rank.writer.program_begin(START);
            rank.writer.enter(START, MAIN);
        }
        samples.sample(START, 0, 0);
        Day { run, clock, ranks, samples, random: Random::new(seed), watts: WATTS_MAX / 2, nanojoules: 0 }
    }

    fn simulate(&mut self, second: u64) {
        for step in 0..STEPS_PER_SECOND {
            let until = START + second * TICKS_PER_SECOND + (step + 1) * TICKS_PER_SECOND / STEPS_PER_SECOND;
            for rank in &mut self.ranks {
                while rank.next + CALL <= until {
                    rank.call(CALL);
                }
            }
            self.watts = (self.watts + self.random.below(41)).saturating_sub(20).clamp(50, WATTS_MAX);
            self.nanojoules += self.watts * 1_000_000_000 / STEPS_PER_SECOND;
            self.samples.sample(until, 0, self.nanojoules);
            // All earlier events are in the rings.
            self.clock.set_replay_time(self.ranks.iter().map(|rank| rank.next).fold(until, u64::min));
            self.run.round();
        }
    }

    /// Returns the summary, and the joules by which the counter has risen.
    fn finish(mut self, seconds: u64) -> (Value, f64) {
        let end = START + seconds * TICKS_PER_SECOND;
        for rank in &mut self.ranks {
            rank.writer.leave(end, MAIN);
            rank.writer.program_end(end);
            rank.writer.close();
        }
        self.clock.set_replay_time(end + 1);
        while self.run.round().records > 0 {}
        let (summary, _) = self.run.finish(true).expect("results");
        (
            parse(serde_json::to_vec(&summary).expect("JSON")).expect("a summary"),
            self.nanojoules as f64 * 1e-9,
        )
    }
}

#[track_caller]
fn assert_all_is_there(summary: &Value, counter_joules: f64, seconds: u64) {
    let device = &summary["devices"][0];
    let view = &device["views"][0];
    let near = |what: &str, found: f64, expected: f64| {
        let error = (found - expected).abs() / counter_joules;
        assert!(error <= CONSERVED, "{what}: {found} J, not {expected} J");
    };
    let total = number(device, "total_joules");
    near("the device's total", total, counter_joules);
    let parts = ["attributed_joules", "idle_joules", "lost_joules"].map(|part| number(view, part));
    near("attributed, idle and lost", parts.iter().sum(), total);
    near("the error that is reported", number(&summary["quality"], "conservation_error_joules"), 0.0);
    let mains = list(view, "callpaths").iter().filter(|row| list(row, "path").len() == 1);
    let mains: Vec<f64> = mains.map(|row| number(row, "inclusive_joules")).collect();
    assert_eq!(mains.len(), RANKS as usize);
    mains.iter().for_each(|joules| near("a rank", *joules, counter_joules / f64::from(RANKS)));
    let quality = &summary["quality"];
    for name in ["coalesced_calls", "suppressed_calls", "dropped_records", "late_events"] {
        assert_eq!(quality[name], 0, "{name}");
    }
    let events = number(quality, "events");
    assert!(events >= 0.99 * (EVENTS_PER_SECOND * seconds) as f64, "{events} events");
}

impl Rank {
    /// Writes a call of a child within a call of `solve`: four events in `length` ticks.
    fn call(&mut self, length: u64) {
        let child = FIRST_CHILD + self.random.below(u64::from(CHILDREN)) as u32;
        let (before, inside) = (self.random.below(length / 2), 1 + self.random.below(length / 4));
        let at = self.next;
        self.writer.enter(at, SOLVE);
        self.writer.enter(at + before, child);
        self.writer.leave(at + before + inside, child);
        self.writer.leave(at + before + inside + length / 8, SOLVE);
        self.next += length;
    }
}

fn make_session(directory: &Path) -> Session {
    use std::os::unix::fs::PermissionsExt;
    std::fs::create_dir(directory).expect("a directory");
    std::fs::set_permissions(directory, std::fs::Permissions::from_mode(0o700)).expect("ours");
    Session::open_or_create_in(directory).expect("a session")
}

fn make_rank(session: &Session, rank: u32, seed: u64) -> Rank {
    let process = process_of(rank);
    let pid = process.id();
    let mut log = LogWriter::create(&session.directory().join(format!("{pid}.defs"))).expect("a log");
    log.append(&Definition::Process(process.as_defined()));
    log.append(&Definition::Rank { rank, size: RANKS });
    let names =
        ["main".to_owned(), "solve".to_owned()].into_iter().chain((0..CHILDREN).map(|n| format!("part_{n}")));
    for (handle, name) in (MAIN..).zip(names) {
        log.append(&Definition::Region(Region {
            handle: RegionHandle(handle),
            canonical_name: name.clone(),
            name,
            source_file: String::new(),
            begin_line: 0,
            end_line: 0,
            region_type: 0,
            paradigm: 0,
        }));
    }
    let ring = format!("{pid}.0.ring");
    let producer = RingProducer::create(&session.directory().join(&ring), RING_RECORDS, 0).expect("a ring");
    log.append(&Definition::Location(Location {
        id: LocalLocation(0),
        kind: LocationKind::CpuThread,
        name: "Master thread".to_owned(),
        ring,
        thread: 0,
    }));
    session.join();
    let random = Random::new(seed ^ u64::from(rank + 1));
    Rank { _log: log, writer: EventWriter::new(producer), random, next: 0 }
}

fn process_of(rank: u32) -> ReplayedProcess {
    ReplayedProcess {
        reference: rank,
        number: rank,
        size: RANKS,
        rank: Some(rank),
        node: "node".to_owned(),
        group: format!("MPI Rank {rank}"),
        owner: String::new(),
        environment: Vec::new(),
        locations: vec![ReplayedLocation {
            reference: u64::from(rank),
            id: 0,
            name: "Master thread".to_owned(),
            gpu: false,
            node: "node".to_owned(),
            group: format!("MPI Rank {rank}"),
            is_of_process: true,
            accelerator: Default::default(),
            samples: Default::default(),
        }],
    }
}

/// Returns the description of this run that the collector gets.
fn replay(seconds: u64) -> Replay {
    Replay {
        trace: Default::default(),
        ticks_per_second: TICKS_PER_SECOND,
        first: TICKS_PER_SECOND,
        last: TICKS_PER_SECOND * (seconds + 1),
        realtime_ns: None,
        processes: (0..RANKS).map(process_of).collect(),
        metrics: vec![ReplayedMetric {
            node: "node".to_owned(),
            name: "test:::energy".to_owned(),
            description: "node: energy, simulated".to_owned(),
            unit: "J".to_owned(),
            binary: false,
            exponent: -9,
            value: otf2::MetricValueType::U64,
            joules_per_unit: Some(1e-9),
            series: (0, 0, None),
            recorded: Default::default(),
            evidence: Default::default(),
            traits: Default::default(),
        }],
        metric_names: vec!["test:::energy".to_owned()],
        other_jobs: Vec::new(),
        work: Vec::new(),
        recorders: Vec::new(),
        events: 0,
        stream_lag_ticks: Some(0),
        longest_lag_ticks: 0,
        clock_error_ticks: 0,
        has_cpu_times: false,
        notes: Vec::new(),
        functions_ran: std::collections::BTreeMap::new(),
        odd: Vec::new(),
    }
}

/// Returns the resident memory of this process. The kernel counts the pages when `smaps_rollup` is read. The figure in
/// `status` may be off by megabytes on machines with many CPUs.
fn resident_bytes() -> u64 {
    let kilobytes = |file: &str, name: &str| {
        let text = std::fs::read_to_string(format!("/proc/self/{file}")).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_ascii_whitespace().next()?.parse::<u64>().ok()
    };
    kilobytes("smaps_rollup", "Rss:").or_else(|| kilobytes("status", "VmRSS:")).expect("a figure") * 1024
}
