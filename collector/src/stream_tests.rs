//! What a writer under pressure folds, and what the stream makes of it: calls and times are exact, whatever happens.

use super::*;
use ampere_ring::{EventWriter, Events, RingConsumer, RingProducer, Surroundings};
use proptest::prelude::*;
use std::collections::BTreeMap;

/// 1000 ticks are a millisecond.
const SURROUNDINGS: Surroundings =
    Surroundings { ticks_per_second: |_| 1_000_000, reader_is_alive: || true, reader_rounds: || 0 };

/// By call path: calls, exclusive ticks.
type Profile = BTreeMap<Vec<u32>, (u64, u64)>;

/// What runs on a location, told call by call.
#[derive(Default)]
struct Truth {
    stack: Vec<u32>,
    profile: Profile,
    last: u64,
}

impl Truth {
    fn move_to(&mut self, time: u64) {
        if !self.stack.is_empty() {
            self.profile.entry(self.stack.clone()).or_default().1 += time - self.last;
        }
        self.last = time;
    }

    fn enter(&mut self, time: u64, region: u32, calls: u64) {
        self.move_to(time);
        self.stack.push(region);
        self.profile.entry(self.stack.clone()).or_default().0 += calls;
    }

    fn leave(&mut self, time: u64) -> u32 {
        self.move_to(time);
        self.stack.pop().expect("a frame that is open")
    }
}

/// A writer and its reader, and what should come of them.
struct Run {
    writer: EventWriter,
    reader: RingConsumer,
    stream: Stream,
    truth: Truth,
    seen: Truth,
    events: u64,
    _directory: tempfile::TempDir,
}

impl Run {
    fn new(events: Events) -> Run {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("1.0.ring");
        let ring = RingProducer::create(&path, 4096, 0).unwrap();
        Run {
            writer: EventWriter::with_events(ring, events, SURROUNDINGS),
            reader: RingConsumer::open(&path).unwrap(),
            stream: Stream::default(),
            truth: Truth::default(),
            seen: Truth::default(),
            events: 0,
            _directory: directory,
        }
    }

    fn enter(&mut self, time: u64, region: u32) {
        self.truth.enter(time, region, 1);
        self.writer.enter(time, region);
    }

    fn leave(&mut self, time: u64) {
        let region = self.truth.leave(time);
        self.writer.leave(time, region);
    }

    fn read(&mut self, most: usize) {
        let mut records = Vec::new();
        let count = self.reader.copy_out(&mut records, most).unwrap();
        self.reader.release(count);
        let (seen, events) = (&mut self.seen, &mut self.events);
        for record in records {
            self.stream.take(record, &mut |event| {
                *events += u64::from(!matches!(event, Event::ProgramEnd(_)));
                match event {
                    Event::Enter(time, region) => seen.enter(time, region, 1),
                    Event::EnterFolded(time, region, calls) => seen.enter(time, region, calls.into()),
                    Event::Leave(time, region) => assert_eq!(seen.leave(time), region),
                    Event::ProgramEnd(_) | Event::Sample(..) => {}
                }
            });
        }
    }

    fn end(&mut self, time: u64) {
        while !self.truth.stack.is_empty() {
            self.truth.leave(time);
        }
        self.writer.program_end(time);
        self.read(usize::MAX);
        assert_eq!(self.stream.repairs, Repairs::default());
        assert!(self.seen.stack.is_empty());
    }

    /// Call paths that have neither a call nor time say nothing.
    fn profile(truth: &Truth) -> Profile {
        truth.profile.iter().filter(|(_, told)| **told != (0, 0)).map(|(p, t)| (p.clone(), *t)).collect()
    }

    #[track_caller]
    fn assert_exact(&self) {
        assert_eq!(self.writer.suppressed_calls(), 0);
        assert_eq!(Run::profile(&self.seen), Run::profile(&self.truth));
    }
}

/// main calls a loop of f, which calls g twice; each call takes some ticks.
fn tiny_calls(run: &mut Run, calls: u64, read_every: u64) -> u64 {
    run.enter(10, 1);
    let mut time = 20;
    for call in 0..calls {
        run.enter(time, 2);
        for step in [1, 3] {
            run.enter(time + step, 3);
            run.leave(time + step + 1);
        }
        run.leave(time + 5);
        time += 7;
        if call % read_every == 0 {
            run.read(usize::MAX);
        }
    }
    run.end(time);
    time
}

#[test]
fn folded_calls_are_counted_and_timed_exactly() {
    for events in [Events::Auto, Events::Folded] {
        // 700,000 ticks are 700 periods; the reader comes after 143 of them.
        let mut run = Run::new(events);
        tiny_calls(&mut run, 100_000, 20_000);
        run.assert_exact();
        assert!(run.stream.coalesced_calls > 290_000, "{}", run.stream.coalesced_calls);
        assert!(run.events < 20_000, "{} for 600,002", run.events);
    }
}

#[test]
fn without_pressure_nothing_is_folded() {
    let mut run = Run::new(Events::Auto);
    tiny_calls(&mut run, 10_000, 10);
    run.assert_exact();
    assert_eq!((run.stream.coalesced_calls, run.events), (0, 60_002));
}

#[test]
fn all_events_are_waited_for() {
    let mut run = Run::new(Events::All);
    let path = run.reader.path().to_owned();
    // The reader sleeps; then it reads everything, in a thread.
    let reader = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(100));
        let mut reader = RingConsumer::open(&path).unwrap();
        let (mut enters, mut records) = (0, Vec::new());
        while enters < 300_001 {
            records.clear();
            let count = reader.copy_out(&mut records, usize::MAX).unwrap();
            enters += records.iter().filter(|r| r.kind() == Some(Kind::Enter)).count();
            reader.release(count);
        }
        enters
    });
    run.enter(10, 1);
    for time in 0..300_000 {
        run.enter(20 + time, 2);
        run.leave(20 + time);
    }
    assert_eq!(reader.join().unwrap(), 300_001);
    assert_eq!(run.writer.suppressed_calls(), 0);
}

#[test]
fn all_events_are_not_waited_for_when_nobody_reads_any_more() {
    let surroundings = Surroundings { reader_is_alive: || false, ..SURROUNDINGS };
    let directory = tempfile::tempdir().unwrap();
    let ring = RingProducer::create(&directory.path().join("1.0.ring"), 4096, 0).unwrap();
    let mut writer = EventWriter::with_events(ring, Events::All, surroundings);
    let begun = std::time::Instant::now();
    for time in 0..100_000 {
        writer.enter(time, 2);
        writer.leave(time, 2);
    }
    assert!(writer.suppressed_calls() > 90_000);
    let waited = begun.elapsed().as_secs_f64();
    assert!((3.0..20.0).contains(&waited), "one wait, not 100,000: {waited} s");
}

/// Who reads is killed while a program waits for room; another one comes a second later.
#[test]
fn all_events_are_waited_for_until_another_reader_comes() {
    use std::sync::atomic::{AtomicBool, Ordering};
    static ALIVE: AtomicBool = AtomicBool::new(true);
    let surroundings = Surroundings { reader_is_alive: || ALIVE.load(Ordering::Relaxed), ..SURROUNDINGS };
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("1.0.ring");
    let mut writer =
        EventWriter::with_events(RingProducer::create(&path, 4096, 0).unwrap(), Events::All, surroundings);
    let read = |calls: usize| {
        let mut reader = RingConsumer::open(&path).unwrap();
        let (mut enters, mut records) = (0, Vec::new());
        while enters < calls {
            records.clear();
            let count = reader.copy_out(&mut records, usize::MAX).unwrap();
            enters += records.iter().filter(|r| r.kind() == Some(Kind::Enter)).count();
            reader.release(count);
        }
        enters
    };
    std::thread::scope(|scope| {
        let reader = scope.spawn(move || {
            let first = read(10_000);
            ALIVE.store(false, Ordering::Relaxed);
            std::thread::sleep(std::time::Duration::from_secs(1));
            ALIVE.store(true, Ordering::Relaxed);
            first + read(100_000 - first)
        });
        for time in 0..100_000 {
            writer.enter(time, 2);
            writer.leave(time, 2);
        }
        assert_eq!(reader.join().unwrap(), 100_000);
    });
    assert_eq!(writer.suppressed_calls(), 0);
}

/// When the pressure is over, single calls are recorded again.
#[test]
fn folding_ends_with_the_pressure() {
    let mut run = Run::new(Events::Auto);
    run.enter(10, 1);
    let mut time = 20;
    for _ in 0..100_000 {
        run.enter(time, 2);
        run.leave(time + 1);
        time += 2;
    }
    run.read(usize::MAX);
    assert!(run.stream.coalesced_calls > 90_000);
    // One call a millisecond, for two seconds.
    for _ in 0..2000 {
        time += 1000;
        run.enter(time, 2);
        run.leave(time + 1);
        run.read(usize::MAX);
    }
    let (before, folded) = (run.events, run.stream.coalesced_calls);
    for _ in 0..100 {
        time += 1000;
        run.enter(time, 2);
        run.leave(time + 1);
    }
    run.read(usize::MAX);
    assert_eq!((run.events - before, run.stream.coalesced_calls), (200, folded));
    run.end(time + 5);
    run.assert_exact();
}

/// A function that was always short and then is not: its time is where it was, and it is recorded from then on.
#[test]
fn what_turns_out_long_is_recorded_again() {
    let mut run = Run::new(Events::Folded);
    run.enter(10, 1);
    let mut time = 20;
    for _ in 0..1000 {
        run.enter(time, 2);
        run.leave(time + 1);
        time += 2;
    }
    assert!(run.stream.coalesced_calls == 0);
    run.enter(time, 2);
    run.leave(time + 50_000);
    time += 50_010;
    run.read(usize::MAX);
    let before = run.stream.coalesced_calls;
    assert!(before > 900);
    for _ in 0..10 {
        run.enter(time, 2);
        run.leave(time + 1);
        time += 2;
    }
    run.read(usize::MAX);
    assert_eq!(run.stream.coalesced_calls, before, "it has to prove itself again");
    run.end(time);
    run.assert_exact();
}

/// A reader that stops for a minute: nothing is lost, and the counts are right after it.
#[test]
fn a_reader_that_stops_costs_no_call() {
    let mut run = Run::new(Events::Auto);
    run.enter(10, 1);
    let mut time = 20;
    // 60 s of ten calls a millisecond. No read at all: the ring is full after a while.
    for _ in 0..600_000 {
        run.enter(time, 2);
        run.enter(time + 10, 3);
        run.leave(time + 20);
        run.leave(time + 30);
        time += 100;
    }
    run.read(usize::MAX);
    run.end(time);
    run.assert_exact();
}

/// Deep recursion makes more call paths than are kept.
#[test]
fn more_call_paths_than_there_is_room_for() {
    let mut run = Run::new(Events::Folded);
    let mut time = 10;
    for round in 0..50u64 {
        for depth in 0..300 {
            run.enter(time, (depth + round * 7) as u32 % 1000);
            time += 1;
        }
        for _ in 0..300 {
            run.leave(time);
            time += 1;
        }
        run.read(usize::MAX);
    }
    run.end(time);
    run.assert_exact();
}

#[test]
fn a_group_that_is_cut_short_is_closed_and_counted() {
    let mut stream = Stream::default();
    let mut events = Vec::new();
    let folded = |region, depth| Record::folded(Folded { region, depth, calls: 5, exclusive_ticks: 10 });
    let records = [
        Record::new(Kind::Enter, 1, 7),
        Record::new(Kind::Fold, 100, 3),
        folded(8, 0),
        folded(9, 1),
        Record::new(Kind::Leave, 300, 7),
        folded(9, 0),
        // A depth that leads nowhere is below what is open.
        Record::new(Kind::Fold, 400, 1),
        folded(8, 60_000),
    ];
    for record in records {
        stream.take(record, &mut |event| events.push(event));
    }
    use Event::{Enter, EnterFolded, Leave};
    assert_eq!(
        events,
        [
            Enter(1, 7),
            EnterFolded(100, 8, 5),
            EnterFolded(110, 9, 5),
            Leave(120, 9),
            Leave(120, 8),
            Leave(300, 7),
            EnterFolded(400, 8, 5),
            Leave(410, 8),
        ]
    );
    assert_eq!(stream.repairs, Repairs { damaged: 2, ..Repairs::default() });
}

/// The end has told what was open: there is nothing left to tell, and whoever goes on begins anew.
#[test]
fn nothing_is_told_after_the_end() {
    for last in [EventWriter::settle, EventWriter::settle_last] {
        let mut run = Run::new(Events::Folded);
        run.enter(10, 1);
        for time in 20..100 {
            run.enter(time, 2);
            run.leave(time);
        }
        run.enter(100, 2); // folded, and still open
        run.end(150);
        run.assert_exact();
        let told = run.events;
        last(&mut run.writer);
        run.read(usize::MAX);
        assert_eq!(run.events, told, "no event is after the end");
        // A host that measures again.
        run.enter(100_000, 1);
        for time in 200_000..200_100 {
            run.enter(time, 2);
            run.leave(time);
        }
        run.end(300_000);
        run.assert_exact();
    }
}

/// With more frames open than the ring has slots there is nothing to wait for.
#[test]
fn deeper_than_the_ring_is_not_waited_for() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("1.0.ring");
    let ring = RingProducer::create(&path, 4096, 0).unwrap();
    let mut writer = EventWriter::with_events(ring, Events::All, SURROUNDINGS);
    let (done, is_done) = std::sync::mpsc::channel();
    let reader = std::thread::spawn(move || {
        let mut reader = RingConsumer::open(&path).unwrap();
        loop {
            let over = is_done.try_recv().is_ok();
            let count = reader.copy_out(&mut Vec::new(), usize::MAX).unwrap();
            reader.release(count);
            if over {
                return reader.position();
            }
        }
    });
    let (told, is_told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        (0..5000).for_each(|time| writer.enter(time, 2));
        (5000..10_000).for_each(|time| writer.leave(time, 2));
        told.send(writer.suppressed_calls()).unwrap();
    });
    let suppressed = is_told.recv_timeout(std::time::Duration::from_secs(20)).expect("the program goes on");
    done.send(()).unwrap();
    assert_eq!(reader.join().unwrap(), 2 * (5000 - suppressed));
}

/// Suppressed frames come back together with folded ones: still there is room for all their leaves.
#[test]
fn frames_that_come_back_find_room_for_their_leaves() {
    for (deep, more) in [(300, 60), (528, 40), (560, 60)] {
        let mut run = Run::new(Events::Folded);
        let mut time = 10;
        run.enter(time, 1);
        // Nobody reads: the ring is full of calls that are not short.
        while run.reader.available().unwrap() < 4080 {
            run.enter(time, 2);
            time += 2000;
            run.leave(time);
        }
        // More call paths than are kept; some are open, and some of these suppressed.
        for region in 0..deep {
            run.enter(time, 1000 + region);
        }
        for region in 0..1024 - deep {
            run.enter(time, 3000 + region);
            run.leave(time);
        }
        for region in 0..more {
            run.enter(time, 5000 + region);
        }
        let suppressed = run.writer.suppressed_calls();
        // As much room as is needed to bring them back, and no more.
        while run.writer.open_frames() < 100 {
            run.read(1);
            run.enter(time, 6000);
            run.leave(time);
        }
        assert!(run.writer.suppressed_calls() > suppressed, "they were suppressed");
        while !run.truth.stack.is_empty() {
            time += 1;
            run.leave(time);
            assert!(run.reader.available().is_ok(), "{deep} {more}");
        }
        run.end(time);
    }
}

/// Recording was off while frames were left: what is above the frame that is left is over, too.
#[test]
fn a_leave_of_an_outer_frame_ends_the_folded_ones_above_it() {
    let of = |events| {
        let mut run = Run::new(events);
        run.writer.enter(10, 1);
        let mut time = 20;
        for _ in 0..100 {
            run.writer.enter(time, 2);
            run.writer.enter(time + 1, 3);
            run.writer.leave(time + 2, 3);
            run.writer.leave(time + 3, 2);
            time += 10;
        }
        run.writer.enter(time, 2);
        run.writer.enter(time + 1, 3);
        run.writer.leave(time + 3, 2); // 3 was left unseen
        run.writer.enter(time + 5, 4);
        run.writer.leave(time + 15, 4);
        run.writer.enter(time + 20, 2);
        run.writer.leave(time + 21, 3); // entered unseen
        run.writer.leave(time + 25, 2);
        run.writer.leave(time + 30, 1);
        run.writer.program_end(time + 40);
        run.read(usize::MAX);
        Run::profile(&run.seen)
    };
    assert_eq!(of(Events::Folded), of(Events::Suppress));
}

/// What is at the end of time would wait in its lane for ever.
#[test]
fn there_is_time_after_every_event() {
    let folded = Folded { region: 8, depth: 0, calls: 1, exclusive_ticks: Folded::MOST_TICKS };
    let ends = [
        vec![Record::new(Kind::Enter, u64::MAX, 7)],
        vec![Record::new(Kind::Fold, u64::MAX - 10, 1), Record::folded(folded)],
        vec![Record::new(Kind::Enter, 1, 7), Record::new(Kind::ProgramEnd, u64::MAX, 0)],
        vec![Record::new(Kind::Sample, u64::MAX, 0), Record::new(Kind::Value, 1, 0)],
    ];
    for records in ends {
        let (mut stream, mut latest) = (Stream::default(), 0);
        let mut take = |event| match event {
            Event::Enter(time, _) | Event::EnterFolded(time, ..) | Event::Leave(time, _) => {
                latest = latest.max(time);
            }
            Event::Sample(time, ..) | Event::ProgramEnd(time) => latest = latest.max(time),
        };
        records.into_iter().for_each(|record| stream.take(record, &mut take));
        stream.close(u64::MAX, &mut take);
        assert_eq!(latest, u64::MAX - 1);
    }
}

#[test]
fn numbers_of_suppressed_calls_may_be_anything() {
    let mut stream = Stream::default();
    for _ in 0..2 {
        stream.take(Record::new(Kind::Suppressed, u64::MAX, 0), &mut |_| {});
    }
    assert_eq!(stream.suppressed_calls, u64::MAX);
}

/// `PROPTEST_CASES` for more, or for fewer.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(400)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases()))]

    /// Any program, any reader: what is not suppressed is exact, and the stream nests.
    #[test]
    fn calls_and_times_are_exact_whatever_happens(
        script in prop::collection::vec(
            // How many steps, of how many ticks, with how many regions, how deep; and how much is read then.
            (1u64..3000, 0u64..40, 1u32..40, 1usize..60, 0usize..3000), 1..40
        ),
        folded: bool,
        seed: u64,
    ) {
        let mut run = Run::new(if folded { Events::Folded } else { Events::Auto });
        let (mut time, mut random) = (10, seed | 1);
        for (steps, ticks, regions, deepest, read) in script {
            for _ in 0..steps {
                random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                let (coin, chance) = (random >> 60, (random >> 33) as u32);
                // Now and then a long time.
                time += if chance.is_multiple_of(5000) { 30_000 } else { ticks * u64::from(chance % 3) };
                let depth = run.truth.stack.len();
                if depth == 0 || (depth < deepest && coin < 8) {
                    run.enter(time, chance % regions);
                } else {
                    run.leave(time);
                }
            }
            if random.is_multiple_of(3) {
                run.writer.settle(); // a thread that leaves its location for now
            }
            run.read(read);
        }
        run.read(usize::MAX);
        run.end(time);
        let sum = |truth: &Truth| {
            let told = truth.profile.values();
            told.fold((0, 0), |(calls, ticks), told| (calls + told.0, ticks + told.1))
        };
        let (told, true_sum) = (sum(&run.seen), sum(&run.truth));
        prop_assert_eq!(told.0 + run.writer.suppressed_calls(), true_sum.0);
        if run.writer.suppressed_calls() == 0 {
            prop_assert_eq!(Run::profile(&run.seen), Run::profile(&run.truth));
        }
    }

    /// A host that keeps no rule: any times, leaves that were never entered, ends in the middle. Nothing is broken by it.
    #[test]
    fn nothing_is_broken_by_a_host_that_keeps_no_rule(
        script in prop::collection::vec(
            // How many steps, what times, how many regions, what is done after it, and how much is read then.
            (1u64..2000, 0u8..8, 1u32..2000, 0u8..16, 0usize..3000), 1..40
        ),
        events in prop::sample::select(vec![Events::Folded, Events::Auto, Events::Suppress]),
        ticks_per_second in prop::sample::select(vec![0, 1000, 500_000, 1_000_000, u64::MAX]),
        seed: u64,
    ) {
        let mut run = Run::new(Events::Suppress);
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("1.0.ring");
        let ring = RingProducer::create(&path, 4096, 0).unwrap();
        let ticks_per_second: fn(u64) -> u64 = match ticks_per_second {
            0 => |_| 0,
            1000 => |_| 1000,
            500_000 => |_| 500_000,
            1_000_000 => |_| 1_000_000,
            _ => |_| u64::MAX,
        };
        let surroundings = Surroundings { ticks_per_second, reader_is_alive: || true, reader_rounds: || 0 };
        run.writer = EventWriter::with_events(ring, events, surroundings);
        run.reader = RingConsumer::open(&path).unwrap();
        let (mut time, mut random, mut entered) = (1u64 << 40, seed | 1, 0);
        for (steps, times, regions, then, read) in script {
            for _ in 0..steps {
                random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                let (coin, chance) = (random >> 60, (random >> 33) as u32);
                time = match times {
                    0 => time,
                    1 => time.saturating_add(u64::from(chance % 50)),
                    2 => time.saturating_add(u64::from(chance % 50_000)),
                    3 => time.saturating_sub(u64::from(chance % 50)),
                    4 => time.saturating_add(u64::from(chance % 100)).saturating_sub(50),
                    5 if chance.is_multiple_of(500) => random,
                    6 if chance.is_multiple_of(500) => u64::MAX,
                    7 if chance.is_multiple_of(500) => 0,
                    _ => time.saturating_add(3),
                };
                if coin < 8 {
                    run.writer.enter(time, chance % regions);
                    entered += 1;
                } else {
                    run.writer.leave(time, chance % regions);
                }
            }
            match then {
                0 => run.writer.program_end(time),
                1 => run.writer.location_end(time),
                2..6 => run.writer.settle(),
                _ => {}
            }
            prop_assert!(run.reader.available().is_ok(), "a leave always finds room");
            run.read(read);
        }
        run.read(usize::MAX);
        run.writer.program_end(time);
        run.writer.settle();
        run.writer.settle_last();
        run.read(usize::MAX);
        prop_assert_eq!(run.stream.repairs.damaged, 0);
        prop_assert!(run.seen.stack.is_empty());
        let told = run.seen.profile.values().map(|told| told.0).sum::<u64>();
        prop_assert_eq!(told + run.writer.suppressed_calls(), entered);
    }
}
