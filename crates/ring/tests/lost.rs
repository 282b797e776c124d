//! Files that are truncated under their mappings, and descriptors that somebody else has closed. In a process of its own: the
//! handler is a process'.

use ampere_model::{Definition, Region, RegionHandle};
use ampere_ring::{Kind, LogReader, LogWriter, Record, RingConsumer, RingProducer, Session, lost};
use std::fs::OpenOptions;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;

/// One at a time: descriptors and the signal are the process'.
static ONE: std::sync::Mutex<()> = std::sync::Mutex::new(());

fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").expect("a directory in shared memory")
}

fn truncate(path: &Path, bytes: u64) {
    OpenOptions::new().write(true).open(path).and_then(|file| file.set_len(bytes)).expect("truncated");
}

#[test]
fn whoever_uses_a_truncated_ring_goes_on_and_finds_out() {
    let _one = ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    lost::survive(None);
    for bytes in [0, 4096, 4096 + 100 * 16] {
        let place = directory();
        let path = place.path().join("1.0.ring");
        let other_path = place.path().join("1.1.ring");
        let mut producer = RingProducer::create(&path, 4096, 0).expect("a ring");
        let mut other = RingProducer::create(&other_path, 4096, 1).expect("a ring");
        let mut consumer = RingConsumer::open(&path).expect("its other end");
        let mut of_other = RingConsumer::open(&other_path).expect("its other end");
        (0..50).for_each(|time| producer.push_with_room(Record::new(Kind::Enter, time, 1)));
        assert_eq!(consumer.copy_out(&mut Vec::new(), 100).ok(), Some(50));
        assert!(!consumer.is_lost());
        truncate(&path, bytes);
        for time in 50..3000 {
            producer.push_with_room(Record::new(Kind::Enter, time, 1));
            other.push_with_room(Record::new(Kind::Enter, time, 1));
        }
        producer.has_room(4096);
        let _ = consumer.copy_out(&mut Vec::new(), usize::MAX);
        consumer.release(50);
        assert!(consumer.is_lost(), "{bytes}");
        // Nobody else's.
        assert_eq!(of_other.copy_out(&mut Vec::new(), usize::MAX).ok(), Some(2950));
        assert!(!of_other.is_lost());
    }
}

#[test]
fn places_in_the_list_are_used_again() {
    let _one = ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    lost::survive(None);
    for _ in 0..50 {
        let place = directory();
        let session = Session::open_or_create_in(place.path()).expect("a session");
        assert!(!session.is_lost(), "what was lost before was another file");
        truncate(&place.path().join("session"), 0);
        session.announce();
        assert!(session.is_lost());
        assert_eq!(session.generation(), 1, "what is said is heard by who says it");
    }
}

fn region(handle: u32) -> Definition {
    Definition::Region(Region {
        handle: RegionHandle(handle),
        name: format!("region {handle}"),
        canonical_name: String::new(),
        source_file: String::new(),
        begin_line: 0,
        end_line: 0,
        region_type: 0,
        paradigm: 0,
    })
}

/// What a program does that closes all that it has not opened, and then opens files of its own.
#[test]
fn a_log_whose_descriptor_is_somebody_elses_now_writes_to_its_own_file() {
    let _one = ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let place = directory();
    let (path, own) = (place.path().join("1.defs"), place.path().join("own"));
    let mut log = LogWriter::create(&path).expect("a log");
    assert!(log.append(&region(1)));
    let is_log =
        |entry: &std::fs::DirEntry| std::fs::read_link(entry.path()).is_ok_and(|target| target == path);
    let descriptors = std::fs::read_dir("/proc/self/fd").expect("/proc").flatten();
    let ours = descriptors.filter(is_log).filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let ours: Vec<i32> = ours.collect();
    assert_eq!(ours.len(), 1);
    // SAFETY: what is tested: the number is closed by who does not own it, and given to another file.
    drop(unsafe { OwnedFd::from_raw_fd(ours[0]) });
    let mine = std::fs::File::create(&own).expect("a file");
    let taken: Vec<_> = (0..100).map_while(|_| mine.try_clone().ok()).collect();
    assert!(taken.iter().chain([&mine]).any(|file| file.as_raw_fd() == ours[0]), "the number is used again");
    assert!(log.append(&region(2)));
    assert_eq!(std::fs::read(&own).expect("the file"), b"", "nothing of ours is in it");
    let mut handles = Vec::new();
    let mut reader = LogReader::open(&path).expect("the log").expect("its beginning");
    let read = reader.read_new(|definition| {
        if let Definition::Region(region) = definition {
            handles.push(region.handle.0);
        }
    });
    read.expect("readable");
    assert_eq!(handles, [1, 2]);
}
