//! Processes that are over: what they left is read to the end, whatever moment it came at, and known to whoever takes over.

mod made_up_session;

use ampere_collector::live::LiveRun;
use ampere_model::Definition;
use ampere_ring::clock::usual;
use ampere_ring::{Kind, LogWriter, Record, RingProducer, Session};
use made_up_session::{location, log, region, ring, rounds, run, session};
use std::path::PathBuf;

/// A process with one thread, which is in region 1, and a collector.
struct Made {
    root: tempfile::TempDir,
    session: PathBuf,
    log: LogWriter,
    main: RingProducer,
}

impl Made {
    fn begin(name: &str, trace: bool) -> (Made, LiveRun) {
        let (root, session) = session(name);
        let directory = session.directory().to_owned();
        let mut log = log(&directory);
        log.append(&region(1));
        let (mut main, name) = ring(&directory, 0, 4096);
        log.append(&location(0, &name));
        let mut run = run(root.path(), session, trace);
        rounds(&mut run, 100); // the clock is known now
        main.push_with_room(Record::new(Kind::Enter, usual(), 1));
        rounds(&mut run, 100);
        (Made { root, session: directory, log, main }, run)
    }

    fn another_thread(&mut self, id: u32) -> RingProducer {
        let (producer, name) = ring(&self.session, id, 4096);
        self.log.append(&location(id, &name));
        producer
    }

    /// The process says goodbye.
    fn end(&mut self) {
        self.main.push_with_room(Record::new(Kind::Leave, usual(), 1));
        self.log.append(&Definition::Finished { left_out: 0 });
    }

    fn ring_is_there(&self, id: u32) -> bool {
        self.session.join(format!("{}.{id}.ring", std::process::id())).exists()
    }

    /// Another collector, after the death of this one.
    fn taken_over(&self, run: LiveRun, trace: bool) -> LiveRun {
        drop(run);
        let mut run = made_up_session::run(self.root.path(), Session::open(&self.session).unwrap(), trace);
        rounds(&mut run, 300);
        run
    }
}

fn call(producer: &mut RingProducer, times: usize) {
    for _ in 0..times {
        producer.push_with_room(Record::new(Kind::Enter, usual(), 1));
        producer.push_with_room(Record::new(Kind::Leave, usual(), 1));
    }
}

#[track_caller]
fn is_whole(run: LiveRun, events: u64) {
    let (summary, _) = run.finish(true).expect("results");
    let (run, quality) = (&summary.run, &summary.quality);
    assert_eq!((run.complete, quality.events), (true, events), "{:#?}", run.notes);
    assert!(!run.notes.iter().any(|note| note.contains("cannot open")), "{:#?}", run.notes);
}

/// It tells of its last thread, and ends, while a round is under way: after the look at who is new, before that at the rings.
#[test]
fn a_thread_that_was_told_of_last_is_read() {
    let (mut made, mut run) = Made::begin("s-last", true);
    rounds(&mut run, 200);
    std::thread::sleep(std::time::Duration::from_millis(150)); // it is time to look who lives
    made.log.append(&region(2));
    let mut other = made.another_thread(1);
    call(&mut other, 500);
    made.main.push_with_room(Record::new(Kind::Enter, usual(), 2));
    made.main.push_with_room(Record::new(Kind::Leave, usual(), 2));
    made.end();
    run.round();
    run.session().announce();
    rounds(&mut run, 300);
    is_whole(run, 1004);
}

#[test]
fn rings_that_are_gone_are_not_missed() {
    for takeover in [false, true] {
        let (mut made, mut run) = Made::begin("s-empty", true);
        let _never_used = made.another_thread(1);
        let mut other = made.another_thread(2);
        call(&mut other, 100);
        run.session().announce();
        rounds(&mut run, 200);
        made.end();
        run.session().announce();
        rounds(&mut run, 300);
        assert!((0..3).all(|id| !made.ring_is_there(id)), "of what is over no memory is kept");
        is_whole(if takeover { made.taken_over(run, true) } else { run }, 202);
    }
}

#[test]
fn without_records_on_disk_the_beginning_is_lost_once() {
    let (mut made, mut run) = Made::begin("s-off", false);
    let _never_used = made.another_thread(1);
    made.end();
    run.session().announce();
    rounds(&mut run, 300);
    let (summary, _) = made.taken_over(run, false).finish(true).expect("results");
    let notes = &summary.run.notes;
    assert!(!summary.run.complete);
    assert!(!notes.iter().any(|note| note.contains("cannot open")), "{notes:#?}");
    assert_eq!(notes.iter().filter(|note| note.contains("another one went on")).count(), 1, "{notes:#?}");
}

/// The process lives, and goes on writing to a file that nobody finds any more.
#[test]
fn a_ring_that_somebody_has_removed_is_missed() {
    let (mut made, mut run) = Made::begin("s-removed", true);
    call(&mut made.main, 10);
    rounds(&mut run, 200);
    drop(run);
    call(&mut made.main, 500);
    std::fs::remove_file(made.session.join(format!("{}.0.ring", std::process::id()))).unwrap();
    let mut run = made_up_session::run(made.root.path(), Session::open(&made.session).unwrap(), true);
    rounds(&mut run, 200);
    call(&mut made.main, 500);
    made.end();
    run.session().announce();
    rounds(&mut run, 300);
    let (summary, _) = run.finish(true).expect("results");
    let notes = summary.run.notes.join("\n");
    assert_eq!((summary.run.complete, summary.quality.events), (false, 22), "{notes}");
    assert!(notes.contains("only those in 21 records on disk"), "{notes}");
}

#[test]
fn what_was_suppressed_or_dropped_is_known_after_a_takeover() {
    let (mut made, mut run) = Made::begin("s-counts", true);
    made.main.set_suppressed_calls(1000);
    made.main.set_dropped_records(7);
    made.main.push_with_room(Record::new(Kind::Suppressed, 600, 0)); // of the others it has not told
    rounds(&mut run, 200);
    made.end();
    run.session().announce();
    rounds(&mut run, 400);
    for takeover in 0..3 {
        if takeover > 0 {
            run = made.taken_over(run, true);
        }
        run.publish();
        let (latest, quality) = (run.latest().get(), run.summary(true).quality);
        let shown = (latest.ranks[0].suppressed_calls, latest.ranks[0].dropped_records);
        assert_eq!(shown, (1000, 7), "takeover {takeover}");
        assert_eq!((quality.suppressed_calls, quality.dropped_records), (1000, 7), "takeover {takeover}");
    }
}

#[test]
fn counts_that_are_no_counts_do_not_overflow() {
    let (mut made, mut run) = Made::begin("s-sum", true);
    let other = made.another_thread(1);
    run.session().announce();
    for producer in [&made.main, &other] {
        producer.set_suppressed_calls(u64::MAX);
        producer.set_dropped_records(u64::MAX);
    }
    rounds(&mut run, 300);
    run.publish();
    made.end();
    rounds(&mut run, 200);
    assert_eq!(run.finish(true).expect("results").0.quality.suppressed_calls, u64::MAX);
}
