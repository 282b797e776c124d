//! The ring as two threads use it, the event writer under pressure, and damaged files.

use ampere_model::Definition;
use ampere_ring::{
    Error, EventWriter, Kind, LogReader, LogWriter, OverloadPolicy, Record, RingConsumer, RingProducer,
    Session, SessionProbes,
};
use proptest::prelude::*;
use std::collections::VecDeque;

fn ring(records: u64) -> (tempfile::TempDir, RingProducer, RingConsumer) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("1.0.ring");
    let producer = RingProducer::create(&path, records, 0).unwrap();
    let consumer = RingConsumer::open(&path).unwrap();
    (dir, producer, consumer)
}

#[test]
fn two_threads_lose_nothing_and_keep_the_order() {
    const COUNT: u64 = 2_000_000;
    let (_dir, mut producer, mut consumer) = ring(4096);
    let writer = std::thread::spawn(move || {
        for i in 0..COUNT {
            while !producer.has_room(1) {
                std::thread::yield_now();
            }
            producer.push_with_room(Record::new(Kind::Enter, i, i as u32));
        }
        producer.close();
        producer
    });
    let (mut next, mut batch) = (0, Vec::new());
    while next < COUNT {
        batch.clear();
        let count = consumer.copy_out(&mut batch, usize::MAX).unwrap();
        for record in &batch {
            assert_eq!(
                (record.word0, record.argument(), record.kind()),
                (next, next as u32, Some(Kind::Enter))
            );
            next += 1;
        }
        consumer.release(count);
        if count == 0 {
            std::thread::yield_now();
        }
    }
    writer.join().unwrap();
    assert!(consumer.is_closed());
    assert_eq!(consumer.position(), COUNT);
}

#[test]
fn leaves_of_abandoned_events_do_not_overwrite_unread_records() {
    let (_dir, producer, mut consumer) = ring(4096);
    let mut writer = EventWriter::new(producer);
    for time in 0..5000 {
        writer.enter(time, 1);
        writer.leave(time, 1);
    }
    (0..10).for_each(|_| writer.event_was_abandoned());
    (0..10).for_each(|_| writer.leave(5000, 1));
    writer.program_end(5001);
    let mut records = Vec::new();
    consumer.copy_out(&mut records, usize::MAX).unwrap();
    assert_eq!(records[0].word0, 0);
}

#[test]
fn a_new_consumer_continues_where_the_last_one_stopped() {
    let (dir, mut producer, mut consumer) = ring(4096);
    for i in 0..10 {
        producer.push_with_room(Record::new(Kind::Enter, i, 0));
    }
    let mut batch = Vec::new();
    consumer.copy_out(&mut batch, 4).unwrap();
    consumer.release(4);
    drop(consumer);
    let mut consumer = RingConsumer::open(&dir.path().join("1.0.ring")).unwrap();
    assert_eq!(consumer.position(), 4);
    batch.clear();
    assert_eq!(consumer.copy_out(&mut batch, 100).unwrap(), 6);
    assert_eq!(batch[0].word0, 4);
}

#[test]
fn a_file_that_is_no_ring_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.ring");
    std::fs::write(&path, b"short").unwrap();
    assert!(matches!(RingConsumer::open(&path), Err(Error::Malformed { .. })));
    let good = dir.path().join("good.ring");
    drop(RingProducer::create(&good, 4096, 0).unwrap());
    let bytes = std::fs::read(&good).unwrap();
    // Each byte of the identity that the reader relies on, damaged in turn; and a capacity larger than the file.
    for at in [0, 8, 12, 16, 20, 24, 25, 31] {
        let mut damaged = bytes.clone();
        damaged[at] = if at == 20 { 0 } else { damaged[at] ^ 0xff };
        std::fs::write(&path, damaged).unwrap();
        assert!(matches!(RingConsumer::open(&path), Err(Error::Malformed { .. })), "byte {at}");
    }
    let mut larger = bytes.clone();
    larger[24..32].copy_from_slice(&8192u64.to_le_bytes());
    std::fs::write(&path, larger).unwrap();
    assert!(matches!(RingConsumer::open(&path), Err(Error::Malformed { .. })));
}

#[test]
fn an_impossible_write_position_is_refused() {
    let (dir, mut producer, mut consumer) = ring(4096);
    producer.push_with_room(Record::new(Kind::Enter, 1, 0));
    use std::os::unix::fs::FileExt;
    let file = std::fs::OpenOptions::new().write(true).open(dir.path().join("1.0.ring")).unwrap();
    file.write_at(&5000u64.to_le_bytes(), 128).unwrap();
    assert!(consumer.copy_out(&mut Vec::new(), 10).is_err());
}

/// Checks that the records nest. Returns how many frames are open at the end.
fn check_nesting(records: &[Record]) -> Result<u64, String> {
    let mut stack = Vec::new();
    for record in records {
        match record.kind() {
            Some(Kind::Enter) => stack.push(record.argument()),
            Some(Kind::Leave) => {
                let open = stack.pop().ok_or("a leave without an enter")?;
                if open != record.argument() {
                    return Err(format!("leave of {} inside {open}", record.argument()));
                }
            }
            _ => {}
        }
    }
    Ok(stack.len() as u64)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// For all calls of the program and all speeds of the consumer, every call is either in the stream or counted as suppressed.
    #[test]
    fn an_admitted_stream_always_nests(
        script in prop::collection::vec((any::<bool>(), 1usize..3000, 0usize..2000), 1..60)
    ) {
        let (_dir, producer, mut consumer) = ring(4096);
        let mut writer = EventWriter::new(producer);
        let mut stack = Vec::new();
        let mut calls = 0u64;
        let mut clock = 0u64;
        let mut seen = Vec::new();
        for (deeper, count, read) in script {
            for _ in 0..count {
                clock += 1;
                if deeper || stack.is_empty() {
                    let region = (clock % 17) as u32;
                    stack.push(region);
                    calls += 1;
                    writer.enter(clock, region);
                } else {
                    writer.leave(clock, stack.pop().unwrap());
                }
            }
            let copied = consumer.copy_out(&mut seen, read).unwrap();
            consumer.release(copied);
        }
        while let Some(region) = stack.pop() {
            clock += 1;
            writer.leave(clock, region);
        }
        writer.program_end(clock);
        let copied = consumer.copy_out(&mut seen, usize::MAX).unwrap();
        consumer.release(copied);
        prop_assert_eq!(check_nesting(&seen), Ok(0));
        let entered = seen.iter().filter(|r| r.kind() == Some(Kind::Enter)).count() as u64;
        prop_assert_eq!(entered + writer.suppressed_calls(), calls);
        prop_assert_eq!(consumer.suppressed_calls(), writer.suppressed_calls());
        prop_assert_eq!(seen.last().and_then(Record::kind), Some(Kind::ProgramEnd));
    }

    /// Reading a log in pieces returns all definitions, and reading a log that was cut short returns the first ones.
    #[test]
    fn a_log_that_is_cut_short_gives_its_first_definitions(count in 1u32..40, cut in 8usize..2000) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("1.defs");
        let mut writer = LogWriter::create(&path).unwrap();
        for rank in 0..count {
            let appended = writer.append(&Definition::Rank { rank, size: count });
            prop_assert!(appended);
        }
        let whole = std::fs::read(&path).unwrap();
        std::fs::write(&path, &whole[..cut.min(whole.len())]).unwrap();
        let mut reader = LogReader::open(&path).unwrap().unwrap();
        let mut ranks = VecDeque::new();
        reader.read_new(|d| ranks.push_back(d)).unwrap();
        let complete = (cut.min(whole.len()) - 8) / 13;
        prop_assert_eq!(ranks.len(), complete);
        std::fs::write(&path, &whole).unwrap();
        reader.read_new(|d| ranks.push_back(d)).unwrap();
        let expected: VecDeque<_> = (0..count).map(|rank| Definition::Rank { rank, size: count }).collect();
        prop_assert_eq!(ranks, expected);
    }
}

#[test]
fn a_suppressed_frame_is_entered_once_there_is_room() {
    let (_dir, producer, mut consumer) = ring(4096);
    let mut writer = EventWriter::new(producer);
    for clock in 0..3000 {
        writer.enter(clock, 1);
        writer.leave(clock, 1);
    }
    writer.enter(10_000, 2);
    let mut seen = Vec::new();
    let copied = consumer.copy_out(&mut seen, usize::MAX).unwrap();
    consumer.release(copied);
    assert!(!seen.iter().any(|r| r.argument() == 2), "there was no room for it");
    writer.enter(20_000, 3);
    writer.leave(30_000, 3);
    writer.program_end(40_000);
    seen.clear();
    consumer.copy_out(&mut seen, usize::MAX).unwrap();
    let first: Vec<_> = seen.iter().take(3).map(|r| (r.kind(), r.word0, r.argument())).collect();
    let enter = |region| (Some(Kind::Enter), 20_000, region);
    assert_eq!(first[..2], [enter(2), enter(3)]);
    assert_eq!(first[2], (Some(Kind::Leave), 30_000, 3));
    // The calls of region 1 that found no room have ended and are counted; those of 2 and 3 are in the stream.
    assert_eq!(writer.suppressed_calls(), 3000 - (4096 - 4) / 2);
}

/// The policy is to wait and the reader is alive, but it has given up this ring.
#[test]
fn a_writer_does_not_wait_for_a_consumer_that_gave_up() {
    let (_dir, producer, consumer) = ring(4096);
    let probes = SessionProbes {
        ticks_per_second: |_| 1_000_000_000,
        collector_is_alive: || true,
        collector_rounds: || 0,
    };
    let mut writer = EventWriter::with_policy(producer, OverloadPolicy::Wait, probes);
    consumer.give_up();
    let begun = std::time::Instant::now();
    for clock in 0..10_000 {
        writer.enter(clock, 1);
        writer.leave(clock, 1);
    }
    assert!(begun.elapsed() < std::time::Duration::from_secs(30), "{:?}", begun.elapsed());
    assert!(writer.suppressed_calls() > 7000);
}

#[test]
fn frames_that_are_suppressed_when_the_program_ends_are_counted() {
    let (_dir, producer, _consumer) = ring(4096);
    let mut writer = EventWriter::new(producer);
    (0..4096).for_each(|clock| writer.enter(clock, 1));
    let admitted = writer.open_frames();
    assert_eq!(writer.suppressed_calls(), 0, "no suppressed call has ended yet");
    writer.program_end(5000);
    assert_eq!(writer.suppressed_calls(), 4096 - admitted);
}

#[test]
fn a_session_directory_of_another_user_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let uid = rustix::process::geteuid().as_raw();
    let base = dir.path().join(format!("ampere-{uid}"));
    // The only test of this file that touches the environment.
    // SAFETY: no other thread of this test binary reads or writes AMPERE_SHM.
    unsafe { std::env::set_var("AMPERE_SHM", dir.path()) };
    use std::os::unix::fs::PermissionsExt;
    let set_mode = |path, mode| std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    set_mode(dir.path(), 0o777);
    let of_root =
        Session::open_or_create("s").err().expect("others can replace what is in the root").to_string();
    assert!(of_root.ends_with("is not sticky: set AMPERE_SHM to a directory of your own"), "{of_root}");
    set_mode(dir.path(), 0o700);
    let target = dir.path().join("elsewhere");
    std::fs::create_dir(&target).unwrap();
    std::os::unix::fs::symlink(&target, &base).unwrap();
    assert!(matches!(Session::open_or_create("s"), Err(Error::NotOurs { .. })), "a symbolic link");
    std::fs::remove_file(&base).unwrap();
    std::fs::create_dir(&base).unwrap();
    set_mode(&base, 0o777);
    assert!(matches!(Session::open_or_create("s"), Err(Error::NotOurs { .. })), "open to others");
    std::fs::remove_dir(&base).unwrap();
    let session = Session::open_or_create("s").unwrap();
    let again = Session::open_or_create("s").unwrap();
    session.set_output(std::path::Path::new("/tmp/out"));
    session.join();
    assert_eq!(again.output().as_deref(), Some(std::path::Path::new("/tmp/out")));
    assert_eq!((again.joined(), again.generation()), (1, 1));
    for file in std::fs::read_dir(session.directory()).unwrap() {
        let mode = file.unwrap().metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
    if uid == 0 {
        session.remove();
        std::os::unix::fs::chown(&base, Some(12345), None).unwrap();
        assert!(matches!(Session::open_or_create("s"), Err(Error::NotOurs { .. })), "another user's");
    }
}

#[test]
fn files_in_the_place_of_a_removed_session_are_not_removed_with_it() {
    use std::os::unix::fs::{DirBuilderExt, symlink};
    let dir = tempfile::tempdir().unwrap();
    let private = |name: &str| {
        let path = dir.path().join(name);
        std::fs::DirBuilder::new().mode(0o700).create(&path).unwrap();
        path
    };
    let (place, precious) = (private("s-run"), private("precious"));
    let session = Session::open_or_create_in(&place).unwrap();
    // The directory has files of the same user, and even the page of another session.
    std::fs::write(precious.join("thesis"), "mine").unwrap();
    Session::open_or_create_in(&precious).unwrap();
    let count = || std::fs::read_dir(&precious).unwrap().count();
    let before = count();
    std::fs::rename(&place, dir.path().join("moved")).unwrap();
    symlink(&precious, &place).unwrap();
    session.remove();
    assert_eq!(count(), before, "through a link");
    std::fs::remove_file(&place).unwrap();
    std::fs::rename(&precious, &place).unwrap();
    session.remove();
    std::fs::rename(&place, &precious).unwrap();
    assert_eq!(count(), before, "another directory");
    std::fs::rename(dir.path().join("moved"), &place).unwrap();
    session.remove();
    assert!(!place.exists(), "its own");
}

#[test]
fn a_full_file_system_is_an_error_and_not_a_signal() {
    let dir = tempfile::tempdir().unwrap();
    let may_mount = std::process::Command::new("unshare").args(["-m", "true"]).output();
    if !may_mount.is_ok_and(|output| output.status.success()) {
        println!("skipped: needs root, and to be allowed to mount");
        return;
    }
    let mut mount = std::process::Command::new("mount");
    let mounted = mount.args(["-t", "tmpfs", "-o", "size=200k", "tmpfs"]).arg(dir.path()).status();
    assert!(mounted.unwrap().success());
    let result = RingProducer::create(&dir.path().join("a.ring"), 1 << 16, 0);
    let left_behind = std::fs::read_dir(dir.path()).unwrap().count();
    let _ = std::process::Command::new("umount").arg(dir.path()).status();
    let error = result.err().expect("1 MiB does not fit into 200 KiB");
    assert!(matches!(error, Error::NoSpace { .. }), "{error}");
    assert_eq!(left_behind, 0, "nothing half-made is left");
}

/// Writing ten times as many call paths takes about ten times as long, not a hundred times.
#[test]
fn writing_a_group_takes_time_proportional_to_its_call_paths() {
    let probes = SessionProbes {
        ticks_per_second: |_| 1_000_000,
        collector_is_alive: || true,
        collector_rounds: || 0,
    };
    let [few, many] = [100, 1000].map(|functions| {
        let (_dir, producer, mut consumer) = ring(65_536);
        let mut writer = EventWriter::with_policy(producer, OverloadPolicy::Coalesce, probes);
        let mut flush_once = || {
            for region in 0..functions {
                writer.enter(2, region);
                writer.leave(2, region);
            }
            let begun = std::time::Instant::now();
            writer.flush();
            let took = begun.elapsed();
            let count = consumer.copy_out(&mut Vec::new(), usize::MAX).unwrap();
            consumer.release(count);
            took
        };
        (0..20).for_each(|_| _ = flush_once()); // until all are known to be short
        (0..20).map(|_| flush_once()).min().unwrap()
    });
    assert!(many < 50 * few, "{few:?} and {many:?}");
}
