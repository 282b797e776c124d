//! Runs the collector's loop on logs, rings and samples of arbitrary bytes, up to metrics, summary and trace. The session's page
//! is valid. The time is set from outside, as in a replay, so that no counter is read and no time passes.

use crate::bytes::Bytes;
use crate::scratch::directory;
use crate::targets::ring::header;
use ampere_collector::live::{LiveRun, Mode, Options};
use ampere_collector::run_directory::manifest::Manifest;
use ampere_collector::sampling::sampler;
use ampere_collector::serving::latest::Latest;
use ampere_figures::summary::Summary;
use ampere_report::text;
use ampere_ring::Session;
use ampere_server::metrics;
use ampere_settings::Config;
use ampere_timeline::attributor::Recorded;
use ampere_timeline::counter_traits::CounterTraits;
use ampere_timeline::topology::{Accelerator, CounterEvidence};
use ampere_trace::replay::{Replay, ReplayedLocation, ReplayedMetric, ReplayedProcess, ReplayedSamples};
use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

const CAPACITY: u64 = 64;
const WRITE: u64 = 128;
const RECORDS: u64 = 4096;

pub fn run(data: &[u8]) {
    play(data);
}

/// Returns the run's summary; `None` if a collector that takes over has refused the files.
fn play(data: &[u8]) -> Option<Summary> {
    let place = directory("session");
    let at = place.join("s-1");
    let output = place.join("out");
    for directory in [&at, &output] {
        let _ = std::fs::remove_dir_all(directory);
        std::fs::create_dir_all(directory).expect("a directory");
        std::fs::set_permissions(directory, std::fs::Permissions::from_mode(0o700)).expect("our files");
    }
    let spool = output.join("spool-n");
    std::fs::create_dir(&spool).expect("a directory");
    let mut page = vec![0; 8192];
    page[..8].copy_from_slice(b"AMPSESS1");
    page[8..12].copy_from_slice(&1u32.to_le_bytes());
    page[12..16].copy_from_slice(&1u32.to_le_bytes());
    write(&at.join("session"), &page);
    new_ring(&at.join(sampler::RING_NAME));
    let time = data.first().is_some_and(|byte| byte & 1 == 1);
    let mut config = Config::default();
    config.attribution.time = time;
    let begin = || {
        let options = Options {
            output: output.clone(),
            spool: spool.clone(),
            config: config.clone(),
            command: Vec::new(),
            run_id: "fuzz".to_owned(),
            replay: Some(replay()),
            manifest: Manifest::load(&spool).unwrap_or_else(|_| Manifest::new(&at, "fuzz", &[], None)),
            left: None,
            mode: Mode::Collector,
        };
        LiveRun::new(Session::open(&at).expect("a page"), options, None, Latest::default())
    };
    let mut run = begin().expect("a run");
    let mut from = Bytes::new(data.get(1..).unwrap_or_default());
    let names =
        ["10001.defs", "10002.defs", "10001.0.ring", "10001.1.ring", "10002.0.ring", sampler::RING_NAME];
    let mut written = [0u64; 6];
    for _ in 0..32 {
        if from.is_empty() {
            break;
        }
        let which = usize::from(from.u8()) % 9;
        match which {
            // A part of a log is appended.
            0 | 1 => {
                let length = from.u16() % 2048;
                let path = at.join(names[which]);
                if !path.exists() {
                    write(&path, b"AMPDEFS1");
                }
                append(&path, from.take(length.into()));
                run.session().announce();
            }
            // Some records are added to a ring, or bytes of its header are changed.
            2..=5 => {
                let path = at.join(names[which]);
                if !path.exists() {
                    new_ring(&path);
                }
                let file = OpenOptions::new().write(true).open(&path).expect("its file");
                let count = from.u8();
                if count == 255 {
                    file.write_all_at(&from.u64().to_le_bytes(), u64::from(from.u16()) % RECORDS)
                        .expect("room");
                } else {
                    for _ in 0..u64::from(count) % CAPACITY {
                        let slot = RECORDS + 16 * (written[which] % CAPACITY);
                        file.write_all_at(from.take(16), slot).expect("room");
                        written[which] += 1;
                    }
                    file.write_all_at(&written[which].to_le_bytes(), WRITE).expect("room");
                }
            }
            6 => run.session().set_replay_time(from.edge_u64()),
            7 => {
                let _ = run.round();
            }
            // Another collector replaces this one.
            _ => {
                drop(run);
                match begin() {
                    Ok(next) => run = next,
                    // A replay needs the ring of samples. Without its header there is no run.
                    Err(why) => {
                        let why = why.to_string();
                        assert!(why.contains(sampler::RING_NAME) && !why.contains('\n'), "{why}");
                        return None;
                    }
                }
            }
        }
    }
    let _ = run.round();
    run.publish();
    metrics::encode(run.latest().get(), None, true).expect("what can be encoded");
    let (summary, _) = run.finish(true).expect("results");
    // The tolerance is relative to the largest device and not to the run's total, because the seconds of the device `time` are in
    // no total.
    let largest = summary.devices.iter().map(|device| device.total_joules).fold(0.0, f64::max);
    assert!(summary.quality.conservation_error_joules <= 1e-9 * (1.0 + largest), "of {largest}");
    let table = text::render(&summary, ampere_report::first::screen::Screen::FILE);
    assert!(!table.chars().any(|c| c.is_control() && c != '\n'), "{table:?}");
    Some(summary)
}

fn write(path: &Path, bytes: &[u8]) {
    let _ = std::fs::remove_file(path);
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).expect("a file");
    file.write_all_at(bytes, 0).expect("room");
}

fn append(path: &Path, bytes: &[u8]) {
    use std::io::Write;
    OpenOptions::new().append(true).open(path).and_then(|mut file| file.write_all(bytes)).expect("room");
}

fn new_ring(path: &Path) {
    let mut bytes = header(CAPACITY);
    bytes.resize((RECORDS + 16 * CAPACITY) as usize, 0);
    write(path, &bytes);
}

/// Returns a replay of two processes with a GPU stream each, and of two counters.
fn replay() -> Replay {
    let location = |process: u32, id: u32, gpu: bool| ReplayedLocation {
        reference: (u64::from(id) << 32) | u64::from(process),
        id,
        name: if gpu { "HIP[0:0]" } else { "Master thread" }.to_owned(),
        gpu,
        node: "n".to_owned(),
        group: if gpu { "HIP Context 0".to_owned() } else { format!("MPI Rank {process}") },
        is_of_process: true,
        accelerator: Accelerator::default(),
        samples: ReplayedSamples::None,
    };
    let process = |number: u32| ReplayedProcess {
        reference: number,
        number,
        size: 2,
        rank: Some(number),
        node: "n".to_owned(),
        group: format!("MPI Rank {number}"),
        owner: String::new(),
        environment: Vec::new(),
        locations: vec![location(number, 0, false), location(number, 1, true)],
    };
    let metric = |name: &str, value| ReplayedMetric {
        node: "n".to_owned(),
        name: name.to_owned(),
        description: String::new(),
        unit: "J".to_owned(),
        binary: false,
        exponent: -9,
        value,
        joules_per_unit: Some(1e-9),
        series: (0, 0, None),
        recorded: Recorded::default(),
        evidence: CounterEvidence::default(),
        traits: CounterTraits::default(),
    };
    Replay {
        trace: PathBuf::from("/nowhere/traces.otf2"),
        ticks_per_second: 1_000_000_000,
        first: 0,
        last: 1 << 40,
        realtime_ns: Some(1_700_000_000_000_000_000),
        processes: vec![process(0), process(1)],
        metrics: vec![
            metric("A2rocm_smi:::energy_count:device=0", otf2::MetricValueType::U64),
            metric("node_power_energy", otf2::MetricValueType::F64),
        ],
        metric_names: vec!["A2rocm_smi:::energy_count:device=0".to_owned()],
        other_jobs: Vec::new(),
        work: Vec::new(),
        recorders: Vec::new(),
        events: 100,
        stream_lag_ticks: Some(1000),
        longest_lag_ticks: 1000,
        clock_error_ticks: 0,
        has_cpu_times: true,
        functions_ran: BTreeMap::new(),
        notes: Vec::new(),
        odd: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seed_plays_a_whole_run() {
        let Summary { run, quality, .. } = play(include_bytes!("../../seeds/session/real-0")).expect("a run");
        assert!(quality.records.events > 20 && run.total_joules > 0.0, "{quality:?} {run:?}");
    }
}
