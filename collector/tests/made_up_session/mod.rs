//! A session, and a process in it, as a test makes them; and the collector's loop over it.

use ampere_collector::live::{LiveRun, Mode, Options};
use ampere_collector::run_directory::manifest::Manifest;
use ampere_collector::serving::metrics::Latest;
use ampere_model::{Definition, LocalLocation, Location, LocationKind, Process, Region, RegionHandle};
use ampere_ring::{LogWriter, RingProducer, Session};
use ampere_settings::Config;
use std::path::Path;
use std::time::{Duration, Instant};

/// In a directory that goes with the test.
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

/// A collector, in the place of another one if there was one.
pub fn run(root: &Path, session: Session, trace: bool) -> LiveRun {
    let output = root.join("out");
    let spool = output.join("spool");
    std::fs::create_dir_all(&spool).expect("a directory");
    let config = Config { trace, ..Config::default() };
    let new = || Manifest::new(session.directory(), "made-up", &[], None);
    let manifest = Manifest::load(&spool).unwrap_or_else(|_| new());
    let options = Options {
        output,
        spool,
        config,
        command: Vec::new(),
        run_id: "made-up".to_owned(),
        replay: None,
        manifest,
        mode: Mode::Collector,
    };
    LiveRun::new(session, options, Latest::default()).expect("a run")
}

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

pub fn ring(directory: &Path, id: u32, records: u64) -> (RingProducer, String) {
    let name = format!("{}.{id}.ring", std::process::id());
    (RingProducer::create(&directory.join(&name), records, id).expect("a ring"), name)
}

pub fn rounds(run: &mut LiveRun, milliseconds: u64) {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(milliseconds) {
        run.round();
        std::thread::sleep(Duration::from_millis(2));
    }
}
