//! Damaged traces: every error names the file and the fault, and everything readable is read.

mod common;

use common::*;
use otf2::*;
use std::fs;
use std::path::Path;

fn cut(path: &Path, bytes: u64) {
    fs::OpenOptions::new().write(true).open(path).unwrap().set_len(bytes).unwrap();
}

fn open(directory: &Path) -> Result<Trace, Error> {
    Trace::open(&directory.join("traces.otf2"))
}

/// Returns the message of an error, which must be one line and name the file.
fn message(result: Result<Trace, Error>, path: &Path) -> String {
    let message = result.err().expect("fails").to_string();
    assert!(!message.contains('\n'), "{message}");
    assert!(message.starts_with(path.to_str().unwrap()), "{message}");
    message
}

#[test]
fn a_missing_anchor_file_is_an_error() {
    let path = Path::new("/nowhere/traces.otf2");
    assert!(matches!(Trace::open(path), Err(Error::NotFound(_))));
    assert!(message(Trace::open(path), path).contains("no such file"));
}

#[test]
fn a_file_that_is_not_an_anchor_file_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("traces.otf2");
    for content in [&b""[..], b"hello", b"OTF2", &[0; 4000], &[0xff; 4000]] {
        fs::write(&path, content).unwrap();
        assert!(matches!(Trace::open(&path), Err(Error::NotOtf2 { .. })), "{content:?}");
        message(Trace::open(&path), &path);
    }
    let other = directory.path().join("profile.cubex");
    fs::write(&other, b"PK").unwrap();
    assert!(message(Trace::open(&other), &other).contains(".otf2"));
    assert!(message(Trace::open(directory.path()), directory.path()).contains("directory"));
}

#[test]
fn an_anchor_file_that_is_cut_at_any_byte_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), 2);
    let anchor = directory.path().join("traces.otf2");
    let whole = fs::read(&anchor).unwrap();
    // The last two bytes are OTF2's second and third end mark, which are not needed.
    for length in 0..whole.len() - 2 {
        cut(&anchor, length as u64);
        assert!(matches!(open(directory.path()), Err(Error::NotOtf2 { .. })), "{length} of {}", whole.len());
        fs::write(&anchor, &whole).unwrap();
    }
    assert!(open(directory.path()).is_ok());
}

#[test]
fn missing_definitions_are_an_error() {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), 2);
    let path = directory.path().join("traces.def");
    fs::remove_file(&path).unwrap();
    assert!(matches!(open(directory.path()), Err(Error::Damaged { .. })));
    assert!(message(open(directory.path()), &path).contains("missing"));
}

#[test]
fn a_link_to_an_anchor_file_is_followed() {
    let directory = tempfile::tempdir().unwrap();
    let run = directory.path().join("run");
    fs::create_dir(&run).unwrap();
    write(&run, 2);
    let link = directory.path().join("other.otf2");
    std::os::unix::fs::symlink("run/traces.otf2", &link).unwrap();
    let mut trace = Trace::open(&link).unwrap();
    let report = trace.read_events(&mut Collect::default()).unwrap();
    assert_eq!((trace.missing(), report.truncated.len()), (&[][..], 0));
    assert!(report.delivered > 0);
    // With definitions of its own, the link is the trace's anchor file.
    for name in ["traces", "traces.def"] {
        let other = name.replace("traces", "other");
        fs::rename(run.join(name), directory.path().join(other)).unwrap();
    }
    assert!(Trace::open(&link).is_ok());
}

#[test]
fn definitions_that_are_cut_at_any_byte_are_an_error() {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), 2);
    let path = directory.path().join("traces.def");
    let whole = fs::read(&path).unwrap();
    // The last byte is the second of two end marks.
    for length in 0..whole.len() - 1 {
        cut(&path, length as u64);
        assert!(matches!(open(directory.path()), Err(Error::Damaged { .. })), "{length} of {}", whole.len());
        message(open(directory.path()), &path);
        fs::write(&path, &whole).unwrap();
    }
    assert!(open(directory.path()).is_ok());
}

#[test]
fn events_of_other_locations_are_read_if_an_event_file_is_missing() {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), 100);
    fs::remove_file(directory.path().join("traces/1.evt")).unwrap();
    let (trace, events, report) = read(directory.path());
    assert_eq!(trace.missing(), [LocationRef(1)]);
    assert_eq!(trace.events_expected(), 300);
    assert_eq!(report.truncated, []);
    assert_eq!(report.delivered, 300);
    assert_eq!(events.counts().into_iter().collect::<Vec<_>>(), [(LocationRef(0), 200), (STREAM, 100)]);
}

#[test]
fn local_definitions_may_be_missing_but_not_cut() {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), 100);
    fs::remove_file(directory.path().join("traces/1.def")).unwrap();
    let (_, _, report) = read(directory.path());
    assert_eq!((report.delivered, report.truncated.len()), (500, 0));
    // The meaning of the numbers in the events is then unknown, so none is read.
    let path = directory.path().join("traces/0.def");
    for length in (0..path.metadata().unwrap().len() - 1).rev() {
        cut(&path, length);
        let (_, events, report) = read(directory.path());
        assert_eq!(report.delivered, 300);
        assert_eq!(report.truncated.len(), 1);
        assert_eq!(report.truncated[0].0, LocationRef(0));
        assert!(report.truncated[0].1.contains("0.def"), "{}", report.truncated[0].1);
        assert_eq!(events.of(LocationRef(0)), []);
    }
}

/// Wherever the file is cut, the first events and all events of other locations are read, none of them twice, and the report
/// names the location.
#[test]
fn an_event_file_that_is_cut_at_any_byte_is_read_up_to_there() {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), 12);
    let (_, whole_events, _) = read(directory.path());
    for location in [LocationRef(1), STREAM] {
        let path = directory.path().join(format!("traces/{location}.evt"));
        let whole = fs::read(&path).unwrap();
        let mut seen = 0;
        // The last byte is the second of two end marks.
        for length in 0..whole.len() - 1 {
            cut(&path, length as u64);
            let (_, events, report) = read(directory.path());
            fs::write(&path, &whole).unwrap();
            let expected = whole_events.of(location);
            let found = events.of(location);
            assert_eq!(found, expected[..found.len()], "{length}");
            assert!(found.len() >= seen, "{length}: {} after {seen}", found.len());
            seen = found.len();
            for other in [LocationRef(0), LocationRef(1), STREAM] {
                if other != location {
                    assert_eq!(events.of(other), whole_events.of(other));
                }
            }
            events.assert_ordered();
            assert_eq!(report.delivered, events.events.len() as u64);
            assert_eq!(report.truncated.len(), 1, "{length}");
            assert_eq!(report.truncated[0].0, location);
            let reason = &report.truncated[0].1;
            assert!(reason.contains(path.to_str().unwrap()) && !reason.contains('\n'), "{reason}");
        }
        assert_eq!(seen, whole_events.of(location).len());
    }
}

/// A file of many chunks: OTF2 alone would replay an earlier chunk here.
#[test]
fn a_long_event_file_is_read_up_to_a_cut() {
    let directory = tempfile::tempdir().unwrap();
    let calls = 60_000_u64;
    write(directory.path(), calls);
    let path = directory.path().join("traces/0.evt");
    let bytes = path.metadata().unwrap().len();
    let chunk = 256 * 1024;
    assert!(bytes > 4 * chunk);
    let whole = fs::read(&path).unwrap();
    let mut last = u64::MAX;
    for length in
        [bytes - 100, 4 * chunk + 3, 4 * chunk, 4 * chunk - 1, 3 * chunk + 1000, 3 * chunk, chunk + 18, 17, 0]
    {
        cut(&path, length);
        let (_, events, report) = read(directory.path());
        fs::write(&path, &whole).unwrap();
        let own = events.of(LocationRef(0));
        for (i, (time, event)) in own.iter().enumerate() {
            let i = i as u64;
            let region = RegionRef((i / 2 % 3) as u32);
            let enter = i.is_multiple_of(2);
            assert_eq!(*time, 10 + 100 * (i / 2) + if enter { 0 } else { 50 });
            assert_eq!(*event, if enter { Event::Enter(region) } else { Event::Leave(region) });
        }
        let own = own.len() as u64;
        // An event here takes 11 to 13 bytes.
        assert!(own <= last && own * 13 + 1000 >= length.saturating_sub(2 * chunk / 10), "{own} of {length}");
        assert!(own * 11 <= length, "{own} of {length}");
        last = own;
        assert_eq!(report.delivered, own + 3 * calls);
        assert_eq!(report.truncated.len(), 1, "{length}");
    }
}

#[test]
fn nonsense_in_an_event_file_affects_only_its_location() {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), 30_000);
    let path = directory.path().join("traces/1.evt");
    let whole = fs::read(&path).unwrap();
    for at in [0, 1, 18, 300_000, 300_007, whole.len() - 200] {
        let mut damaged = whole.clone();
        damaged[at..at + 16].fill(0xee);
        fs::write(&path, &damaged).unwrap();
        let (_, events, report) = read(directory.path());
        assert_eq!(events.of(LocationRef(0)).len(), 60_000);
        assert_eq!(report.truncated.len(), 1, "{at}");
        assert_eq!(report.truncated[0].0, LocationRef(1));
    }
}

#[test]
fn a_directory_in_place_of_an_event_file_is_reported() {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), 10);
    let path = directory.path().join("traces/1.evt");
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    let (_, events, report) = read(directory.path());
    assert_eq!(report.truncated.len(), 1);
    assert_eq!(events.events.len(), 30);
}

/// Reading a pipe would wait for a writer.
#[test]
fn a_pipe_in_place_of_a_file_is_an_error() {
    for name in ["traces.def", "traces/1.def", "traces/1.evt"] {
        let directory = tempfile::tempdir().unwrap();
        write(directory.path(), 10);
        let path = directory.path().join(name);
        fs::remove_file(&path).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        assert!(message(open(directory.path()), &path).contains("not a regular file"));
    }
}

/// Runs in a separate process, because OTF2 would print to the stderr of all tests.
#[test]
fn otf2_prints_nothing() {
    if std::env::var_os("OTF2_TEST_QUIET").is_some() {
        let directory = tempfile::tempdir().unwrap();
        write(directory.path(), 10);
        cut(&directory.path().join("traces/0.def"), 2);
        cut(&directory.path().join("traces/1.evt"), 40);
        read(directory.path());
        let anchor = directory.path().join("traces.otf2");
        fs::write(&anchor, b"nonsense").unwrap();
        assert!(Trace::open(&anchor).is_err());
        return;
    }
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "otf2_prints_nothing", "--nocapture"])
        .env("OTF2_TEST_QUIET", "1")
        .output()
        .unwrap();
    assert!(output.status.success());
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}
