//! Tests that another process continues the files of a dead one.

use ampere_model::Definition;
use ampere_ring::{Kind, LogReader, LogWriter, Record, RingConsumer, RingProducer, Session};
use std::os::unix::fs::FileExt;

fn place() -> (tempfile::TempDir, std::path::PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("1.0.ring");
    (directory, path)
}

/// A consumer is killed with records that it had copied but not handed back: the next one reads them again.
#[test]
fn a_new_consumer_continues_where_a_dead_one_stopped() {
    let (_directory, path) = place();
    let mut producer = RingProducer::create(&path, 4096, 0).unwrap();
    (0..100).for_each(|i| producer.push_with_room(Record::new(Kind::Enter, i, 1)));
    let mut records = Vec::new();
    let mut dead = RingConsumer::open(&path).unwrap();
    dead.copy_out(&mut records, 60).unwrap();
    dead.release(40);
    std::mem::forget(dead);
    // The pid and the start time of the holder are in the header.
    let set = |at: u64, bytes: &[u8]| {
        use std::os::unix::fs::FileExt;
        std::fs::OpenOptions::new().write(true).open(&path).unwrap().write_all_at(bytes, at).unwrap();
    };
    let parent = rustix::process::getppid().unwrap().as_raw_nonzero().get() as u32;
    set(388, &parent.to_le_bytes());
    let started = ampere_ring::process::start_time(parent).unwrap();
    set(392, &started.to_le_bytes());
    assert!(RingConsumer::open(&path).is_err(), "the holder is alive");
    // Now the holder is dead: its pid belongs to another process, which has another start time.
    set(392, &(started + 1).to_le_bytes());
    records.clear();
    let mut new = RingConsumer::open(&path).unwrap();
    assert_eq!((new.position(), new.copy_out(&mut records, 1000).unwrap()), (40, 60));
    assert_eq!(records[0].word0, 40);
}

#[test]
fn a_new_producer_continues_after_the_records_that_a_dead_one_published() {
    let (_directory, path) = place();
    let mut producer = RingProducer::create(&path, 4096, 0).unwrap();
    (0..4000).for_each(|i| producer.push_with_room(Record::new(Kind::Enter, i, 1)));
    producer.put_with_room(0, Record::new(Kind::Leave, 4000, 1)); // written, not published
    producer.close();
    std::mem::forget(producer);
    let mut consumer = RingConsumer::open(&path).unwrap();
    let mut records = Vec::new();
    consumer.copy_out(&mut records, 3000).unwrap();
    consumer.release(3000);
    let (mut producer, kept) = RingProducer::take_over(&path).unwrap();
    assert_eq!((kept.len(), kept[0].word0, kept[3999].word0), (4000, 0, 3999));
    assert!(!consumer.is_closed());
    assert_eq!((producer.position(), producer.free()), (4000, 3096));
    (0..200).for_each(|i| producer.push_with_room(Record::new(Kind::Enter, 4000 + i, 1)));
    records.clear();
    consumer.copy_out(&mut records, 10_000).unwrap();
    assert!(records.iter().map(|record| record.word0).eq(3000..4200));
    // 4096 of 4200 records fit. A dead producer may have begun to overwrite the oldest four, which are therefore not kept.
    let (_, kept) = RingProducer::take_over(&path).unwrap();
    assert_eq!((kept.len(), kept[0].word0), (4092, 108));
}

#[test]
fn a_missing_ring_has_been_read_to_its_end() {
    let mut missing = RingConsumer::of_missing_ring(std::path::Path::new("gone.ring"), 77).unwrap();
    let mut records = Vec::new();
    assert_eq!(
        (missing.position(), missing.available(), missing.copy_out(&mut records, 5)),
        (77, Ok(0), Ok(0))
    );
    assert_eq!(missing.fill_ratio(), 0.0);
}

#[test]
fn a_log_is_copied_as_it_is_read_and_continued_after_its_writers_death() {
    let (directory, _) = place();
    let (path, copy) = (directory.path().join("1.defs"), directory.path().join("copy.defs"));
    let mut log = LogWriter::create(&path).unwrap();
    log.append(&Definition::Rank { rank: 3, size: 4 });
    let file = std::fs::OpenOptions::new().create(true).truncate(false).write(true).open(&copy).unwrap();
    let make = || {
        let file = file.try_clone().unwrap();
        Box::new(move |offset, bytes: &[u8]| file.write_all_at(bytes, offset).is_ok())
    };
    let mut reader = LogReader::open(&path).unwrap().unwrap();
    reader.copy_to(make());
    reader.read_new(|_| {}).unwrap();
    log.append(&Definition::Finished { left_out: 1 });
    reader.read_new(|_| {}).unwrap();
    // A second reader copies from the start into the same copy.
    let mut reader = LogReader::open(&path).unwrap().unwrap();
    reader.copy_to(make());
    reader.read_new(|_| {}).unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), std::fs::read(&copy).unwrap());
    // The writer was killed in the middle of an entry.
    let mut whole = std::fs::read(&path).unwrap();
    let length = whole.len();
    whole.extend_from_slice(&[40, 0, 0, 0, 3, 1]);
    std::fs::write(&path, &whole).unwrap();
    drop(log);
    LogWriter::reopen(&path).unwrap().append(&Definition::Rank { rank: 0, size: 1 });
    assert_eq!(std::fs::read(&path).unwrap()[..length], whole[..length]);
    let mut all = Vec::new();
    LogReader::open(&path).unwrap().unwrap().read_new(|definition| all.push(definition)).unwrap();
    assert_eq!(all.len(), 3);
    assert_eq!(all[2], Definition::Rank { rank: 0, size: 1 });
}

#[test]
fn one_process_collects_at_a_time() {
    let (directory, _) = place();
    // SAFETY: no other test of this binary reads or writes AMPERE_SHM.
    unsafe { std::env::set_var("AMPERE_SHM", directory.path()) };
    let session = Session::open_or_create("s-job").unwrap();
    assert!(session.is_of_this_boot());
    let first = session.lock_collector().unwrap();
    assert!(first.is_some());
    let other = Session::open(session.directory()).unwrap();
    assert!(other.lock_collector().unwrap().is_none());
    drop(first);
    assert!(other.lock_collector().unwrap().is_some());
    // A session of another boot.
    use std::os::unix::fs::FileExt;
    let page = std::fs::OpenOptions::new().write(true).open(session.directory().join("session")).unwrap();
    page.write_all_at(&[7; 16], 4080).unwrap();
    assert!(!session.is_of_this_boot());
    // A process that waits for the end counts as long as it lives.
    session.set_waited_for(std::process::id());
    assert!(session.is_waited_for());
    let mut child = std::process::Command::new("true").spawn().unwrap();
    session.set_waited_for(child.id());
    child.wait().unwrap();
    assert!(!session.is_waited_for());
}

/// A program may close descriptors that it did not open, but not mappings.
#[test]
fn a_log_is_held_until_its_writers_program_ends() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("1.defs");
    let writer = LogWriter::create(&path).unwrap();
    let reader = LogReader::open(&path).unwrap().unwrap();
    assert!(reader.is_held());
    let own = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    let of_log = own.filter(|fd| std::fs::read_link(fd.path()).is_ok_and(|file| file == path));
    let numbers: Vec<i32> = of_log.filter_map(|fd| fd.file_name().to_str()?.parse().ok()).collect();
    let of_fd = |fd: i32| std::fs::read_to_string(format!("/proc/self/fdinfo/{fd}")).unwrap();
    let is_written =
        |fd: &i32| of_fd(*fd).lines().any(|line| line.starts_with("flags:") && line.ends_with('2'));
    let writers = numbers.into_iter().find(is_written).unwrap();
    let nothing = std::fs::File::open("/dev/null").unwrap();
    // SAFETY: the descriptors are the test's own; a program may close them at any time.
    assert_eq!(unsafe { libc::dup2(std::os::fd::AsRawFd::as_raw_fd(&nothing), writers) }, writers);
    assert!(reader.is_held(), "it is mapped");
    drop(writer);
    assert!(!reader.is_held());
}
