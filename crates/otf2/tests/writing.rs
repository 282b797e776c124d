//! Failures while writing, and the memory that writing needs.

mod common;

use common::*;
use otf2::*;
use std::fs;
use std::path::Path;
use std::process::Command;

#[test]
fn an_archive_is_not_overwritten() {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), 10);
    let before = fs::read(directory.path().join("traces.otf2")).unwrap();
    assert!(matches!(ArchiveWriter::create(directory.path()), Err(Error::Exists(_))));
    assert_eq!(fs::read(directory.path().join("traces.otf2")).unwrap(), before);
    for part in ["traces.otf2", "traces.def"] {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join(part), b"mine").unwrap();
        let error = ArchiveWriter::create(directory.path()).err().unwrap().to_string();
        assert!(error.contains(part) && error.contains("already exists"), "{error}");
        assert_eq!(fs::read(directory.path().join(part)).unwrap(), b"mine");
    }
    let directory = tempfile::tempdir().unwrap();
    fs::create_dir(directory.path().join("traces")).unwrap();
    assert!(matches!(ArchiveWriter::create(directory.path()), Err(Error::Exists(_))));
    assert!(matches!(ArchiveWriter::create(&directory.path().join("absent")), Err(Error::NotFound(_))));
}

#[test]
fn without_finish_there_is_no_anchor_file() {
    let directory = tempfile::tempdir().unwrap();
    let archive = ArchiveWriter::create(directory.path()).unwrap();
    let mut writer = archive.event_writer(LocationRef(0)).unwrap();
    writer.enter(1, RegionRef(0)).unwrap();
    drop(writer);
    drop(archive);
    assert!(directory.path().join("traces/0.evt").exists());
    assert!(!directory.path().join("traces.otf2").exists());
}

#[test]
fn a_location_is_written_once() {
    let directory = tempfile::tempdir().unwrap();
    let archive = ArchiveWriter::create(directory.path()).unwrap();
    let writer = archive.event_writer(LocationRef(0)).unwrap();
    assert!(matches!(archive.event_writer(LocationRef(0)), Err(Error::LocationTaken(LocationRef(0)))));
    writer.close().unwrap();
    assert!(matches!(archive.event_writer(LocationRef(0)), Err(Error::LocationTaken(LocationRef(0)))));
    assert!(matches!(archive.event_writer(LocationRef(u64::MAX)), Err(Error::LocationTaken(_))));
}

#[test]
fn a_time_before_the_last_one_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let archive = ArchiveWriter::create(directory.path()).unwrap();
    let mut writer = archive.event_writer(LocationRef(0)).unwrap();
    writer.enter(10, RegionRef(0)).unwrap();
    let error = writer.leave(9, RegionRef(0)).unwrap_err();
    assert!(matches!(&error, Error::Otf2 { source, .. } if source.name() == "INVALID_ARGUMENT"), "{error}");
    // The refusal changed nothing.
    writer.leave(11, RegionRef(0)).unwrap();
    assert_eq!(writer.close().unwrap(), 2);
    archive.finish(&definitions()).unwrap();
    let (_, events, _) = read(directory.path());
    assert_eq!(
        events.of(LocationRef(0)),
        [(10, Event::Enter(RegionRef(0))), (11, Event::Leave(RegionRef(0)))]
    );
}

/// Definitions that contradict themselves are refused, and no anchor file is left.
#[test]
fn contradictory_definitions_are_refused() {
    let broken: [fn(&mut Definitions); 8] = [
        |d| d.clock.timer_resolution = 0,
        |d| d.locations.get_mut(LocationRef(0)).unwrap().group = Some(LocationGroupRef(99)),
        |d| d.system_tree_nodes.get_mut(SystemTreeNodeRef(1)).unwrap().parent = Some(SystemTreeNodeRef(99)),
        |d| {
            d.location_groups.get_mut(LocationGroupRef(0)).unwrap().system_tree_parent =
                Some(SystemTreeNodeRef(9))
        },
        |d| d.metric_classes.get_mut(CLASS).unwrap().members.push(MetricMemberRef(99)),
        |d| d.metric_instances.get_mut(MetricInstanceRef(1)).unwrap().class = MetricClassRef(99),
        |d| {
            let instance = d.metric_instances.get(MetricInstanceRef(1)).unwrap().clone();
            d.metric_instances.insert(MetricInstanceRef(0), instance);
        },
        |d| d.comms.get_mut(CommRef(0)).unwrap().group = GroupRef(99),
    ];
    for (number, damage) in broken.into_iter().enumerate() {
        let directory = tempfile::tempdir().unwrap();
        let mut definitions = definitions();
        damage(&mut definitions);
        let result = ArchiveWriter::create(directory.path()).unwrap().finish(&definitions);
        assert!(matches!(result, Err(Error::Definitions(_))), "{number}: {result:?}");
        assert!(!directory.path().join("traces.otf2").exists());
    }
    let directory = tempfile::tempdir().unwrap();
    let archive = ArchiveWriter::create(directory.path()).unwrap();
    archive.event_writer(LocationRef(4711)).unwrap().close().unwrap();
    let error = archive.finish(&definitions()).unwrap_err().to_string();
    assert!(error.contains("4711"), "{error}");
    assert!(!directory.path().join("traces.otf2").exists());
}

#[test]
fn zero_bytes_in_names_are_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let mut definitions = definitions();
    definitions.regions.get_mut(RegionRef(0)).unwrap().name = "a\0b".into();
    let archive = ArchiveWriter::create(directory.path()).unwrap();
    archive.set_creator("c\0d").unwrap();
    archive.finish(&definitions).unwrap();
    let trace = Trace::open(&directory.path().join("traces.otf2")).unwrap();
    assert_eq!(trace.definitions().regions.get(RegionRef(0)).unwrap().name, "a\u{fffd}b");
    assert_eq!(trace.creator(), "c");
}

/// Runs one test of this file in a process of its own, in which `variable` is set, and returns what it printed.
fn alone(test: &str, variable: &str, value: &str) -> (bool, String) {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(variable, value)
        .output()
        .unwrap();
    (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
}

fn peak_memory_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

/// 24 million events on one location, and a few thousand on sixteen others that are open at the same time. The test uses a file
/// system in memory if there is one, because only the process' memory is measured.
#[test]
fn memory_is_constant() {
    const EVENTS: u64 = 24_000_000;
    if std::env::var_os("OTF2_TEST_MEMORY").is_none() {
        let (success, stderr) = alone("memory_is_constant", "OTF2_TEST_MEMORY", "1");
        assert!(success, "{stderr}");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let before = peak_memory_bytes();
    let archive = ArchiveWriter::create(directory.path()).unwrap();
    let mut others: Vec<_> = (1..17).map(|i| archive.event_writer(LocationRef(i)).unwrap()).collect();
    let mut writer = archive.event_writer(LocationRef(0)).unwrap();
    for i in 0..EVENTS / 2 {
        writer.enter(2 * i, RegionRef((i % 3) as u32)).unwrap();
        writer.leave(2 * i + 1, RegionRef((i % 3) as u32)).unwrap();
        if i % 1000 == 0 {
            for other in &mut others {
                other.enter(i, RegionRef(0)).unwrap();
            }
        }
    }
    assert_eq!(writer.close().unwrap(), EVENTS);
    drop(others);
    let mut definitions = definitions();
    for i in 1..17 {
        definitions.locations.insert(LocationRef(i), Location::default());
    }
    archive.finish(&definitions).unwrap();
    let grown = peak_memory_bytes() - before;
    assert!(grown < 16 << 20, "{} MiB for writing", grown >> 20);

    struct Count(u64);
    impl EventHandler for Count {
        fn enter(&mut self, _: LocationRef, _: u64, _: RegionRef, _: Option<u64>) -> otf2::Flow {
            self.0 += 1;
            std::ops::ControlFlow::Continue(())
        }
        fn leave(&mut self, _: LocationRef, _: u64, _: RegionRef) -> otf2::Flow {
            self.0 += 1;
            std::ops::ControlFlow::Continue(())
        }
    }
    let mut trace = Trace::open(&directory.path().join("traces.otf2")).unwrap();
    let mut count = Count(0);
    let report = trace.read_events(&mut count).unwrap();
    assert_eq!(count.0, EVENTS + 16 * EVENTS / 2000);
    assert_eq!(report.delivered, trace.events_expected());
    let grown = peak_memory_bytes() - before;
    assert!(grown < 48 << 20, "{} MiB for writing and reading", grown >> 20);
}

/// Writes until that fails. It can fail within the events, when a file is closed, or in the definitions.
fn write_until_full(directory: &Path, events: u64) -> Result<(), Error> {
    let archive = ArchiveWriter::create(directory)?;
    let mut writer = archive.event_writer(LocationRef(0))?;
    for i in 0..events {
        if let Err(error) = writer.enter(i, RegionRef(0)) {
            // After a failure every call returns the same error, quickly.
            let again = writer.leave(i, RegionRef(0)).unwrap_err().to_string();
            assert_eq!(again, error.to_string());
            assert_eq!(writer.close().unwrap_err().to_string(), again);
            assert_eq!(archive.finish(&definitions()).unwrap_err().to_string(), again);
            return Err(error);
        }
    }
    writer.close()?;
    archive.finish(&definitions())
}

fn assert_full(directory: &Path, result: Result<(), Error>, text: &str) {
    let error = result.expect_err("there is no room");
    let message = error.to_string();
    assert!(matches!(&error, Error::Otf2 { .. }), "{error:?}");
    assert!(message.contains(text), "{message}");
    assert!(message.contains(directory.to_str().unwrap()) && !message.contains('\n'), "{message}");
    assert!(!directory.join("traces.otf2").exists());
    assert!(matches!(Trace::open(&directory.join("traces.otf2")), Err(Error::NotFound(_))));
}

fn limit_file_size(bytes: u64) {
    // SAFETY: both calls take plain values; the limit is this process's own.
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
        let limit = libc::rlimit { rlim_cur: bytes, rlim_max: bytes };
        assert_eq!(libc::setrlimit(libc::RLIMIT_FSIZE, &limit), 0);
    }
}

/// A limit on the size of files, without its signal, is like a full disk, and does not need root.
#[test]
fn a_file_that_may_not_grow_is_an_error() {
    let Some(limit) = std::env::var_os("OTF2_TEST_LIMIT") else {
        for limit in ["9000000", "4194304", "2000000", "262144", "4000", "300", "80", "10"] {
            let (success, stderr) = alone("a_file_that_may_not_grow_is_an_error", "OTF2_TEST_LIMIT", limit);
            assert!(success, "{limit}: {stderr}");
            assert_eq!(stderr, "", "{limit}");
        }
        return;
    };
    let limit: u64 = limit.to_str().unwrap().parse().unwrap();
    let directory = tempfile::tempdir().unwrap();
    limit_file_size(limit);
    // With few events, the limit is reached when the event file is closed, in the definitions or in the anchor file.
    for events in [1_000_000, limit / 12 + 8, 10, 1] {
        let directory = directory.path().join(events.to_string());
        fs::create_dir(&directory).unwrap();
        let result = write_until_full(&directory, events);
        if result.is_ok() {
            // Everything fitted, so the archive is complete.
            assert!(limit > 1500 && events < limit / 10, "{limit} {events}");
            assert_eq!(read(&directory).2.delivered, events);
        } else {
            assert_full(&directory, result, "File is too large");
        }
    }
}

/// OTF2 writes these definitions in several pieces, and there is room for none, some or nearly all of them. They are slightly
/// larger than two of its buffers, so that the second is full when the file is closed, where a failure would crash.
#[test]
fn definitions_that_do_not_fit_are_an_error() {
    let Some(limit) = std::env::var_os("OTF2_TEST_DEFINITIONS") else {
        for limit in ["1000000", "4194304", "8000000", "8300000", "9000000", "40000000"] {
            let (success, stderr) =
                alone("definitions_that_do_not_fit_are_an_error", "OTF2_TEST_DEFINITIONS", limit);
            assert!(success, "{limit}: {stderr}");
            assert_eq!(stderr, "", "{limit}");
        }
        return;
    };
    let limit: u64 = limit.to_str().unwrap().parse().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let mut definitions = definitions();
    for i in 0..38_000 {
        definitions.regions.push(Region { name: format!("{i:0200}"), ..Region::default() });
    }
    limit_file_size(limit);
    let result = ArchiveWriter::create(directory.path()).unwrap().finish(&definitions);
    if limit > 30_000_000 {
        result.unwrap();
        assert!(directory.path().join("traces.def").metadata().unwrap().len() > 8_400_000);
        assert!(Trace::open(&directory.path().join("traces.otf2")).unwrap().definitions() == &definitions);
        assert!(!directory.path().join("traces/room.tmp").exists());
    } else {
        let message = result.unwrap_err().to_string();
        assert!(message.contains("traces.def") && message.contains("too large"), "{message}");
        assert!(!directory.path().join("traces.otf2").exists());
    }
}

/// A real full disk: a small file system in memory, in a mount namespace of its own.
#[test]
fn a_full_disk_is_an_error() {
    if let Some(directory) = std::env::var_os("OTF2_TEST_FULL") {
        let directory = Path::new(&directory);
        let result = write_until_full(directory, 1_000_000);
        assert_full(directory, result, "No space left on device");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_str().unwrap();
    let script = format!(
        "mount -t tmpfs -o size=1m none {path} && \
         OTF2_TEST_FULL={path} exec {} --exact a_full_disk_is_an_error --nocapture",
        std::env::current_exe().unwrap().display()
    );
    let may_mount = Command::new("unshare").args(["-m", "true"]).output();
    if !may_mount.is_ok_and(|output| output.status.success()) {
        return eprintln!("skipped: needs root, and to be allowed to mount");
    }
    let output = Command::new("unshare").args(["-m", "sh", "-c", &script]).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    assert_eq!(stderr, "");
    assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"));
}

/// Another writer has written a location into a separate archive.
#[test]
fn event_files_of_several_archives_can_be_joined() {
    let main = tempfile::tempdir().unwrap();
    let side = tempfile::tempdir().unwrap();
    let first = ArchiveWriter::create(main.path()).unwrap();
    let second = ArchiveWriter::create(side.path()).unwrap();
    let mut writer = first.event_writer(LocationRef(0)).unwrap();
    writer.enter(1, RegionRef(0)).unwrap();
    writer.close().unwrap();
    let mut writer = second.event_writer(LocationRef(1)).unwrap();
    writer.enter(2, RegionRef(1)).unwrap();
    let events = writer.close().unwrap();
    drop(second);
    first.adopt(LocationRef(1), events, side.path()).unwrap();
    assert!(matches!(first.adopt(LocationRef(1), events, side.path()), Err(otf2::Error::LocationTaken(_))));
    assert!(matches!(first.adopt(LocationRef(2), 0, side.path()), Err(otf2::Error::Io { .. })));
    let mut definitions = definitions();
    definitions.locations.get_mut(LocationRef(1)).unwrap().events = events;
    first.finish(&definitions).unwrap();
    let (trace, events, report) = read(main.path());
    assert_eq!((trace.missing(), trace.events_expected()), (&[][..], 2)); // the stream has no events
    assert_eq!((report.delivered, report.truncated.len()), (2, 0));
    assert_eq!(events.of(LocationRef(1)), [(2, Event::Enter(RegionRef(1)))]);
}
