//! A day's events through one collector: the collector's own loop, over real rings in shared memory, with the time told as a
//! replay does. Four ranks make nested calls at an even rate, and a counter is sampled 20 times a second; a simulated second
//! takes about a millisecond. No trace is written: a day's would take 17 GB.
//!
//! Every rank is in `main` from the beginning to the end, so each has a quarter of all joules.

use crate::random::Random;
use crate::{Row, Settings};
use ampere_collector::live::{LiveRun, Mode, Options};
use ampere_collector::run_directory::manifest::Manifest;
use ampere_collector::sampling::sampler;
use ampere_collector::serving::metrics::Latest;
use ampere_model::{Definition, LocalLocation, Location, LocationKind, Process, Region, RegionHandle};
use ampere_ring::{EventWriter, LogWriter, RingProducer, Session};
use ampere_settings::Config;
use ampere_trace::replay::{Replay, ReplayedLocation, ReplayedMetric, ReplayedProcess, ValueType};
use serde_json::json;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

const RANKS: u32 = 4;
const TICKS_PER_SECOND: u64 = 1_000_000_000;
const SAMPLES_PER_SECOND: u64 = 20;
/// Between two rounds of the collector.
const STEPS_PER_SECOND: u64 = 20;
const RING_RECORDS: u64 = 1 << 16;
/// Regions below `main`: a parent with one of several children in it.
const CHILDREN: u32 = 6;
const MOST_WATTS: u64 = 800;
/// What rounding may leave, of the total.
const CONSERVED: f64 = 1e-9;
/// After the first tenth of the day the collector may take so much more, in bytes: what grows with time would take more.
const FLAT_BYTES: u64 = 8 << 20;

const MAIN: u32 = 1;
const SOLVE: u32 = 2;
const FIRST_CHILD: u32 = 3;

/// One rank's program.
struct Rank {
    /// Does nothing and lives: each rank has to be a process of its own.
    process: Child,
    writer: EventWriter,
    random: Random,
    /// When its next call begins.
    next: u64,
}

pub fn row(settings: &Settings) -> Result<Row, String> {
    let directory =
        tempfile::Builder::new().prefix("ampere-soak-day-").tempdir().map_err(|e| e.to_string())?;
    let seconds = settings.day_seconds.max(10);
    let (session, output) = (directory.path().join("session"), directory.path().join("out"));
    let spool = output.join("spool");
    std::fs::create_dir_all(&spool).map_err(|e| e.to_string())?;
    std::fs::create_dir(&session).map_err(|e| e.to_string())?;
    let session = make_session(&session)?;
    let mut ranks =
        (0..RANKS).map(|rank| make_rank(&session, rank, settings.seed)).collect::<Result<Vec<_>, _>>()?;
    let ring = RingProducer::create(&session.directory().join(sampler::RING_NAME), RING_RECORDS, 0);
    let mut samples = EventWriter::new(ring.map_err(|e| e.to_string())?);
    let options = Options {
        output,
        spool,
        config: Config { trace: false, ..Config::default() },
        command: vec!["a day".to_owned()],
        run_id: "day".to_owned(),
        replay: Some(replay(seconds)),
        manifest: Manifest::new(session.directory(), "day", &[], None),
        mode: Mode::Collector,
    };
    let teller = Session::open(session.directory()).map_err(|e| e.to_string())?;
    let mut run = LiveRun::new(session, options, Latest::default())?;
    let begun = Instant::now();
    let mut random = Random::new(settings.seed);
    // Of two events each, and so long that they are `day_rate` a second of all ranks together.
    let call = TICKS_PER_SECOND * 4 * u64::from(RANKS) / settings.day_rate.max(16);
    let (mut nanojoules, mut watts, mut early_bytes) = (0, MOST_WATTS / 2, 0);
    let start = TICKS_PER_SECOND;
    for rank in &mut ranks {
        rank.next = start;
        rank.writer.program_begin(start);
        rank.writer.enter(start, MAIN);
    }
    samples.sample(start, 0, nanojoules);
    for second in 0..seconds {
        for step in 0..STEPS_PER_SECOND {
            let until = start + second * TICKS_PER_SECOND + (step + 1) * TICKS_PER_SECOND / STEPS_PER_SECOND;
            for rank in &mut ranks {
                while rank.next + call <= until {
                    rank.call(call);
                }
            }
            if (step + 1).is_multiple_of(STEPS_PER_SECOND / SAMPLES_PER_SECOND) {
                watts = (watts + random.below(41)).saturating_sub(20).clamp(50, MOST_WATTS);
                nanojoules += watts * 1_000_000_000 / SAMPLES_PER_SECOND;
                samples.sample(until, 0, nanojoules);
            }
            // Everything before is in the rings.
            teller.tell_time(ranks.iter().map(|rank| rank.next).fold(until, u64::min));
            run.round();
        }
        if second == seconds / 10 {
            early_bytes = resident_bytes();
        }
        if second.is_multiple_of((seconds / 24).max(1)) {
            eprintln!(
                "day: {} of {seconds} simulated seconds, {:.0} s, {:.1} MB",
                second,
                begun.elapsed().as_secs_f64(),
                resident_bytes() as f64 / 1e6
            );
        }
    }
    let grown = resident_bytes().saturating_sub(early_bytes);
    let end = start + seconds * TICKS_PER_SECOND;
    for rank in &mut ranks {
        rank.writer.leave(end, MAIN);
        rank.writer.program_end(end);
        rank.writer.close();
    }
    teller.tell_time(end + 1);
    while run.round().records > 0 {}
    let (summary, _) = run.finish(true)?;
    let summary = serde_json::to_value(&summary).map_err(|e| e.to_string())?;
    let took = begun.elapsed().as_secs_f64();
    check(&summary, nanojoules as f64 * 1e-9, grown, settings, took)
}

fn check(
    summary: &serde_json::Value,
    counter_joules: f64,
    grown: u64,
    settings: &Settings,
    took: f64,
) -> Result<Row, String> {
    let device = &summary["devices"][0];
    let view = &device["views"][0];
    let number = |value: &serde_json::Value| value.as_f64().unwrap_or(f64::NAN);
    let total = number(&device["total_joules"]);
    let sum = ["attributed_joules", "idle_joules", "lost_joules"]
        .iter()
        .map(|part| number(&view[part]))
        .sum::<f64>();
    let mains: Vec<f64> = view["callpaths"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|row| row["path"].as_array().is_some_and(|path| path.len() == 1))
        .map(|row| number(&row["inclusive_joules"]))
        .collect();
    let share = counter_joules / f64::from(RANKS);
    // The largest of all that could be wrong, of the total.
    let errors = [
        ("total", (total - counter_joules).abs()),
        ("parts", (sum - total).abs()),
        ("told", number(&summary["quality"]["conservation_error_joules"]).abs()),
        ("shares", mains.iter().map(|joules| (joules - share).abs()).fold(0.0, f64::max)),
    ];
    let worst = errors.iter().map(|(_, error)| error / counter_joules).fold(0.0, f64::max);
    let lost = ["coalesced_calls", "suppressed_calls", "dropped_records", "late_events"]
        .map(|name| summary["quality"][name].as_u64().unwrap_or(u64::MAX));
    let events = summary["quality"]["events"].as_u64().unwrap_or(0);
    let wanted = settings.day_rate * settings.day_seconds;
    let all_there = events as f64 >= 0.99 * wanted as f64 && lost == [0; 4] && mains.len() == RANKS as usize;
    Ok(Row {
        what: format!(
            "{:.0} h worth of events ({} a second) through one collector: memory flat, conservation {CONSERVED:e}",
            settings.day_seconds as f64 / 3600.0,
            settings.day_rate
        ),
        found: format!(
            "{events} events in {took:.0} s, {:.1} MB more after the first tenth, error {worst:.1e}",
            grown as f64 / 1e6
        ),
        good: worst <= CONSERVED && grown <= FLAT_BYTES && all_there,
        details: json!({
            "events": events, "seconds": took, "joules": counter_joules, "grown_bytes": grown, "worst_error": worst,
            "errors": errors.iter().map(|(name, error)| json!({"what": name, "joules": error})).collect::<Vec<_>>(),
            "quality": summary["quality"], "notes": summary["run"]["notes"], "peak_bytes": summary["overhead"]["collector_peak_rss_bytes"],
        }),
    })
}

impl Drop for Rank {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Rank {
    /// A call of one of the children within one of `solve`: four events in `length` ticks.
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

fn make_session(directory: &Path) -> Result<Session, String> {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(directory, std::fs::Permissions::from_mode(0o700)).map_err(|e| e.to_string())?;
    Session::open_or_create_in(directory).map_err(|e| e.to_string())
}

fn make_rank(session: &Session, rank: u32, seed: u64) -> Result<Rank, String> {
    let sleeps = Command::new("sleep").arg("infinity").stdin(Stdio::null()).spawn();
    let process = sleeps.map_err(|e| format!("cannot start sleep: {e}"))?;
    let pid = process.id();
    let mut log =
        LogWriter::create(&session.directory().join(format!("{pid}.defs"))).map_err(|e| e.to_string())?;
    log.append(&Definition::Process(Process {
        pid,
        start_time: ampere_ring::process::start_time(pid).unwrap_or(0),
        hostname: "node".to_owned(),
        host: "soak".to_owned(),
        ..Process::default()
    }));
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
    let producer =
        RingProducer::create(&session.directory().join(&ring), RING_RECORDS, 0).map_err(|e| e.to_string())?;
    log.append(&Definition::Location(Location {
        id: LocalLocation(0),
        kind: LocationKind::CpuThread,
        name: "Master thread".to_owned(),
        ring,
        thread: 0,
    }));
    session.join();
    let random = Random::new(seed ^ u64::from(rank + 1));
    Ok(Rank { process, writer: EventWriter::new(producer), random, next: 0 })
}

/// What the collector is told of all this.
fn replay(seconds: u64) -> Replay {
    let process = |rank: u32| ReplayedProcess {
        number: rank,
        size: RANKS,
        rank: Some(rank),
        node: "node".to_owned(),
        group: format!("MPI Rank {rank}"),
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
        }],
    };
    Replay {
        trace: Default::default(),
        ticks_per_second: TICKS_PER_SECOND,
        first: TICKS_PER_SECOND,
        last: TICKS_PER_SECOND * (seconds + 1),
        realtime_ns: None,
        processes: (0..RANKS).map(process).collect(),
        metrics: vec![ReplayedMetric {
            node: "node".to_owned(),
            name: "soak:::energy".to_owned(),
            description: "node: energy, simulated".to_owned(),
            unit: "J".to_owned(),
            binary: false,
            exponent: -9,
            value: ValueType::U64,
            joules_per_unit: Some(1e-9),
            recorder: 0,
            recorded: Default::default(),
            place: Default::default(),
            nature: Default::default(),
        }],
        metric_names: vec!["soak:::energy".to_owned()],
        recorders: Vec::new(),
        events: 0,
        stream_lag_ticks: Some(0),
        longest_lag_ticks: 0,
        notes: Vec::new(),
        odd: Vec::new(),
    }
}

fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_ascii_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) * 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So that it is seen at once when the long one would measure nothing.
    #[test]
    fn a_minute_of_it() {
        let settings = Settings { rounds: 1, seed: 7, day_seconds: 60, day_rate: 20_000 };
        let row = row(&settings).expect("a row");
        assert!(row.good, "{}: {:#}", row.found, row.details);
    }
}
