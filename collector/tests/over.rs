//! Processes that have ended: their rings are read to the end, whenever they ended, even by a collector that takes over.

mod made_up_session;

use ampere_collector::live::LiveRun;
use ampere_model::Definition;
use ampere_ring::clock::usual;
use ampere_ring::{Kind, LogWriter, Record, RingGauge, RingProducer, Session};
use made_up_session::{events, has_clock, location, log, region, ring, run, session, until};
use std::path::PathBuf;

/// A process with one thread, which is in region 1.
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
        until(&mut run, "the clock", has_clock);
        main.push_with_room(Record::new(Kind::Enter, usual(), 1));
        until(&mut run, "the first event", |run| events(run) == 1);
        (Made { root, session: directory, log, main }, run)
    }

    fn another_thread(&mut self, id: u32) -> RingProducer {
        let (producer, name) = ring(&self.session, id, 4096);
        self.log.append(&location(id, &name));
        producer
    }

    /// The process ends properly.
    fn end(&mut self) {
        self.main.push_with_room(Record::new(Kind::Leave, usual(), 1));
        self.log.append(&Definition::Finished { left_out: 0 });
    }

    fn ring_is_there(&self, id: u32) -> bool {
        self.session.join(format!("{}.{id}.ring", std::process::id())).exists()
    }

    /// Replaces the collector by another one, and waits until that has read this number of events.
    fn taken_over(&self, run: LiveRun, trace: bool, read: u64) -> LiveRun {
        drop(run);
        let mut run = made_up_session::run(self.root.path(), Session::open(&self.session).unwrap(), trace);
        until(&mut run, "the events so far", |run| events(run) == read);
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
fn assert_whole(run: LiveRun, events: u64) {
    let (summary, _) = run.finish(true).expect("results");
    let (run, quality) = (&summary.run, &summary.quality);
    assert_eq!((run.complete, quality.records.events), (true, events), "{:#?}", run.notes);
    assert!(!run.notes.iter().any(|note| note.contains("cannot open")), "{:#?}", run.notes);
}

/// A process defines its last thread and ends during a round: after the logs were read, before the rings are.
#[test]
fn a_thread_that_is_defined_last_is_read() {
    let (mut made, mut run) = Made::begin("s-last", true);
    // The next round checks which processes are alive.
    std::thread::sleep(std::time::Duration::from_millis(150));
    made.log.append(&region(2));
    let mut other = made.another_thread(1);
    call(&mut other, 500);
    made.main.push_with_room(Record::new(Kind::Enter, usual(), 2));
    made.main.push_with_room(Record::new(Kind::Leave, usual(), 2));
    made.end();
    run.round();
    run.session().announce();
    until(&mut run, "the end", LiveRun::have_all_ended);
    assert_whole(run, 1004);
}

#[test]
fn rings_of_ended_processes_are_removed_and_not_missed() {
    for takeover in [false, true] {
        let (mut made, mut run) = Made::begin("s-empty", true);
        let _never_used = made.another_thread(1);
        let mut other = made.another_thread(2);
        call(&mut other, 100);
        run.session().announce();
        until(&mut run, "the calls", |run| events(run) == 201);
        made.end();
        run.session().announce();
        until(&mut run, "no ring is kept", |_| (0..3).all(|id| !made.ring_is_there(id)));
        assert_whole(if takeover { made.taken_over(run, true, 202) } else { run }, 202);
    }
}

#[test]
fn without_records_on_disk_a_takeover_notes_the_lost_beginning_once() {
    let (mut made, mut run) = Made::begin("s-off", false);
    let _never_used = made.another_thread(1);
    made.end();
    run.session().announce();
    until(&mut run, "the end", |run| run.have_all_ended() && !made.ring_is_there(0));
    let (summary, _) = made.taken_over(run, false, 0).finish(true).expect("results");
    let notes = &summary.run.notes;
    assert!(!summary.run.complete);
    assert!(summary.run.missing.iter().any(|note| note.contains("another one took over")), "{notes:#?}");
    assert!(!notes.iter().any(|note| note.contains("cannot open")), "{notes:#?}");
    assert_eq!(notes.iter().filter(|note| note.contains("another one took over")).count(), 1, "{notes:#?}");
}

/// The process is still running, and continues to write to a file that no longer has a name.
#[test]
fn a_ring_that_was_removed_by_hand_is_noted() {
    let (mut made, mut run) = Made::begin("s-removed", true);
    call(&mut made.main, 10);
    until(&mut run, "the first calls", |run| events(run) == 21);
    let ring = made.session.join(format!("{}.0.ring", std::process::id()));
    until(&mut run, "their records on disk", |_| {
        let (written, handed_back) = RingGauge::open(&ring).expect("a ring").positions();
        written == handed_back
    });
    drop(run);
    call(&mut made.main, 500);
    std::fs::remove_file(ring).unwrap();
    let mut run = made_up_session::run(made.root.path(), Session::open(&made.session).unwrap(), true);
    until(&mut run, "the records on disk", |run| events(run) >= 21);
    call(&mut made.main, 500);
    made.end();
    run.session().announce();
    until(&mut run, "the end", LiveRun::have_all_ended);
    let (summary, _) = run.finish(true).expect("results");
    let notes = summary.run.notes.join("\n");
    assert_eq!((summary.run.complete, summary.quality.records.events), (false, 22), "{notes}");
    assert!(notes.contains("in the 21 records on disk are included"), "{notes}");
    let missing = summary.run.missing.join("\n");
    assert!(missing.contains("in the 21 records on disk are included"), "{missing}");
}

#[test]
fn suppressed_calls_and_dropped_records_survive_a_takeover() {
    let (mut made, mut run) = Made::begin("s-counts", true);
    made.main.set_suppressed_calls(1000);
    made.main.set_dropped_records(7);
    made.main.push_with_room(Record::new(Kind::Suppressed, 600, 0)); // the others have no record yet
    made.end();
    run.session().announce();
    until(&mut run, "the end", |run| run.have_all_ended() && !made.ring_is_there(0));
    for takeover in 0..3 {
        if takeover > 0 {
            run = made.taken_over(run, true, 2);
        }
        run.publish();
        let (latest, quality) = (run.latest().get(), run.summary(true).quality);
        let shown = (latest.ranks[0].losses.suppressed_calls, latest.ranks[0].losses.dropped_records);
        assert_eq!(shown, (1000, 7), "takeover {takeover}");
        assert_eq!(
            (quality.records.suppressed_calls, quality.records.dropped_records),
            (1000, 7),
            "takeover {takeover}"
        );
    }
}

#[test]
fn impossible_counts_do_not_overflow() {
    let (mut made, mut run) = Made::begin("s-sum", true);
    let other = made.another_thread(1);
    run.session().announce();
    for producer in [&made.main, &other] {
        producer.set_suppressed_calls(u64::MAX);
        producer.set_dropped_records(u64::MAX);
    }
    let suppressed = |run: &mut LiveRun| {
        run.publish();
        run.latest().get().ranks[0].losses.suppressed_calls
    };
    until(&mut run, "the counts", |run| suppressed(run) == u64::MAX);
    made.end();
    run.session().announce();
    until(&mut run, "the end", LiveRun::have_all_ended);
    assert_eq!(run.finish(true).expect("results").0.quality.records.suppressed_calls, u64::MAX);
}
