//! Makes a session with a process in it for tests, and runs the collector's loop on it.

use ampere_collector::live::{LiveRun, Mode, Options};
use ampere_collector::run_directory::manifest::Manifest;
use ampere_collector::run_directory::output::Output;
use ampere_collector::serving::latest::Latest;
use ampere_model::{Definition, LocalLocation, Location, LocationKind, Process, Region, RegionHandle};
use ampere_ring::{LogWriter, RingProducer, Session};
use ampere_settings::Config;
use std::path::Path;
use std::time::{Duration, Instant};

/// Returns a session in a directory that is removed with the test.
pub fn session(name: &str) -> (tempfile::TempDir, Session) {
    let root =
        tempfile::Builder::new().prefix("ampere-made-up-").tempdir_in("/dev/shm").expect("a directory");
    let directory = root.path().join(name);
    std::fs::create_dir(&directory).expect("a directory");
    let mut page = vec![0; 8192];
    page[..8].copy_from_slice(b"AMPSESS1");
    (page[8], page[12]) = (1, 1);
    std::fs::write(directory.join("session"), page).expect("room");
    let session = Session::open(&directory).expect("a session");
    (root, session)
}

/// Returns a collector, which takes over if there was another one before.
pub fn run(root: &Path, session: Session, trace: bool) -> LiveRun {
    let spool = root.join("out/spool");
    std::fs::create_dir_all(&spool).expect("a directory");
    let config = Config { trace, ..Config::default() };
    let new = || Manifest::new(session.directory(), "made-up", &[], None);
    let manifest = Manifest::load(&spool).unwrap_or_else(|_| new());
    let options = Options::new(&Output::of_spool(&spool), config, manifest, None, Mode::Collector);
    LiveRun::new(session, options, None, Latest::default()).expect("a run")
}

/// Returns the log of this process, which has joined the session.
pub fn log(directory: &Path) -> LogWriter {
    let (pid, clocks) = (std::process::id(), ampere_ring::clock::read_clocks());
    let mut log = LogWriter::create(&directory.join(format!("{pid}.defs"))).expect("a log");
    let start_time = ampere_ring::process::start_time(pid).unwrap_or(0);
    let process = Process { pid, start_time, host: "embedded".to_owned(), clocks, ..Process::default() };
    log.append(&Definition::Process(process));
    log
}

pub fn region(handle: u32) -> Definition {
    Definition::Region(Region {
        handle: RegionHandle(handle),
        name: format!("f{handle}"),
        canonical_name: String::new(),
        source_file: String::new(),
        begin_line: 0,
        end_line: 0,
        region_type: 0,
        paradigm: 0,
    })
}

pub fn location(id: u32, ring: &str) -> Definition {
    let (name, ring) = (format!("thread {id}"), ring.to_owned());
    Definition::Location(Location {
        id: LocalLocation(id),
        kind: LocationKind::CpuThread,
        name,
        ring,
        thread: 0,
    })
}

/// Returns a ring of this process, and its name.
pub fn ring(directory: &Path, id: u32, records: u64) -> (RingProducer, String) {
    let name = format!("{}.{id}.ring", std::process::id());
    (RingProducer::create(&directory.join(&name), records, id).expect("a ring"), name)
}

/// Runs rounds of the loop until a condition holds.
#[track_caller]
pub fn until(run: &mut LiveRun, what: &str, holds: impl Fn(&mut LiveRun) -> bool) {
    let begun = Instant::now();
    while !holds(run) {
        assert!(begun.elapsed() < Duration::from_secs(300), "{what}: {:#?}", run.notes());
        run.round();
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Whether the run's clock is known, so that rings can be read.
pub fn has_clock(run: &mut LiveRun) -> bool {
    run.publish();
    run.latest().get().seconds > 0.0
}

/// Events of all processes that have been read.
pub fn events(run: &mut LiveRun) -> u64 {
    run.publish();
    run.latest().get().ranks.iter().map(|rank| rank.losses.events).sum()
}
