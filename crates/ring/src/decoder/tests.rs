//! Tests of the decoder, including those with a writer whose ring is nearly full: calls and times stay exact in every case.

use super::*;
use crate::communication::{Communication, Message, tests::any_communication};
use crate::{EventWriter, OverloadPolicy, RingConsumer, RingProducer, SessionProbes};
use proptest::prelude::*;
use std::collections::BTreeMap;

/// 1000 ticks are a millisecond.
const PROBES: SessionProbes =
    SessionProbes { ticks_per_second: |_| 1_000_000, collector_is_alive: || true, collector_rounds: || 0 };

/// The calls and the exclusive ticks of each call path.
type Profile = BTreeMap<Vec<u32>, (u64, u64)>;

/// A profile made call by call.
#[derive(Default)]
struct Profiler {
    stack: Vec<u32>,
    profile: Profile,
    last: u64,
}

impl Profiler {
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

/// A writer and its decoder, with the profiles of the written and of the decoded calls.
struct Run {
    writer: EventWriter,
    reader: RingConsumer,
    decoder: Decoder,
    expected: Profiler,
    decoded: Profiler,
    events: u64,
    /// Messages with their call paths, as they were written and as they were decoded. Each has a tag of its own.
    sent: Vec<(u64, Communication, Vec<u32>)>,
    received: Vec<(u64, Communication, Vec<u32>)>,
    /// Times and call paths of enters with a correlation id, as they were written, by id; and as they were decoded.
    launched: Vec<(u64, Vec<u32>)>,
    decoded_ids: Vec<(u64, u64, Vec<u32>)>,
    _directory: tempfile::TempDir,
}

impl Run {
    fn new(policy: OverloadPolicy) -> Run {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("1.0.ring");
        let ring = RingProducer::create(&path, 4096, 0).unwrap();
        Run {
            writer: EventWriter::with_policy(ring, policy, PROBES),
            reader: RingConsumer::open(&path).unwrap(),
            decoder: Decoder::default(),
            expected: Profiler::default(),
            decoded: Profiler::default(),
            events: 0,
            sent: Vec::new(),
            received: Vec::new(),
            launched: Vec::new(),
            decoded_ids: Vec::new(),
            _directory: directory,
        }
    }

    fn enter(&mut self, time: u64, region: u32) {
        self.expected.enter(time, region, 1);
        self.writer.enter(time, region);
    }

    /// Enters a region with the next correlation id, from 1 on.
    fn launch(&mut self, time: u64, region: u32) {
        self.writer.correlate_next(self.launched.len() as u64 + 1);
        self.enter(time, region);
        self.launched.push((time, self.expected.stack.clone()));
    }

    fn leave(&mut self, time: u64) {
        let region = self.expected.leave(time);
        self.writer.leave(time, region);
    }

    fn send(&mut self, time: u64) {
        let tag = self.sent.len() as u32;
        let message = Communication::MpiSend(Message { peer: 1, communicator: 2, tag, bytes: 3 });
        self.sent.push((time, message, self.expected.stack.clone()));
        self.writer.communication(time, message);
    }

    fn read(&mut self, limit: usize) {
        let mut records = Vec::new();
        let count = self.reader.copy_out(&mut records, limit).unwrap();
        self.reader.release(count);
        let decoded = &mut self.decoded;
        let events = &mut self.events;
        let received = &mut self.received;
        let ids = &mut self.decoded_ids;
        for record in records {
            self.decoder.decode(record, &mut |event| {
                *events += u64::from(!matches!(event, Event::ProgramBegin(_) | Event::ProgramEnd(_)));
                match event {
                    Event::Enter(time, region) => decoded.enter(time, region, 1),
                    Event::EnterCoalesced(time, region, calls) => decoded.enter(time, region, calls.into()),
                    Event::EnterCorrelated(time, region, id) => {
                        decoded.enter(time, region, 1);
                        ids.push((id, time, decoded.stack.clone()));
                    }
                    Event::Leave(time, region) => assert_eq!(decoded.leave(time), region),
                    Event::Communication(time, event) => received.push((time, event, decoded.stack.clone())),
                    Event::ProgramBegin(_)
                    | Event::ProgramEnd(_)
                    | Event::Sample(..)
                    | Event::CpuTime(..)
                    | Event::Counts(..) => {}
                }
            });
        }
    }

    fn end(&mut self, time: u64) {
        while !self.expected.stack.is_empty() {
            self.expected.leave(time);
        }
        self.writer.program_end(time);
        self.read(usize::MAX);
        assert_eq!(self.decoder.repairs, Repairs::default());
        assert!(self.decoded.stack.is_empty());
    }

    /// Whether each decoded id is at the time and in the call path of its launch.
    fn ids_are_in_place(&self) -> bool {
        let mut ids = self.decoded_ids.iter();
        ids.all(|(id, time, path)| self.launched[*id as usize - 1] == (*time, path.clone()))
    }

    /// The profile without call paths that have neither calls nor time.
    fn profile(of: &Profiler) -> Profile {
        of.profile.iter().filter(|(_, figures)| **figures != (0, 0)).map(|(p, t)| (p.clone(), *t)).collect()
    }

    #[track_caller]
    fn assert_exact(&self) {
        assert_eq!(self.writer.suppressed_calls(), 0);
        assert_eq!((&self.received, self.reader.dropped_records()), (&self.sent, 0));
        assert_eq!(Run::profile(&self.decoded), Run::profile(&self.expected));
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
fn coalesced_calls_are_counted_and_timed_exactly() {
    for policy in [OverloadPolicy::CoalesceUnderPressure, OverloadPolicy::Coalesce] {
        // 700,000 ticks are 700 periods; the reader first reads after 143 of them.
        let mut run = Run::new(policy);
        tiny_calls(&mut run, 100_000, 20_000);
        run.assert_exact();
        assert!(run.decoder.coalesced_calls > 290_000, "{}", run.decoder.coalesced_calls);
        assert!(run.events < 20_000, "{} for 600,002", run.events);
    }
}

/// The calls before and after the message are coalesced.
#[test]
fn a_message_between_coalesced_calls_keeps_its_time_and_call_path() {
    for policy in [OverloadPolicy::CoalesceUnderPressure, OverloadPolicy::Coalesce] {
        let mut run = Run::new(policy);
        run.enter(10, 1);
        let mut time = 20;
        for call in 0..100_000 {
            run.enter(time, 2);
            run.enter(time + 1, 3);
            if call % 1000 == 0 {
                run.send(time + 2);
            }
            run.leave(time + 3);
            run.leave(time + 4);
            time += 7;
            if call % 20_000 == 0 {
                run.read(usize::MAX);
            }
        }
        run.end(time);
        run.assert_exact();
        assert_eq!(run.received[99], (run.sent[99].0, run.sent[99].1, vec![1, 2, 3]));
        assert!(run.decoder.coalesced_calls > 190_000, "{}", run.decoder.coalesced_calls);
    }
}

/// A launch keeps its id, its time and its call path, although the calls around it are coalesced.
#[test]
fn no_launch_is_coalesced() {
    for policy in [OverloadPolicy::Suppress, OverloadPolicy::CoalesceUnderPressure, OverloadPolicy::Coalesce]
    {
        let mut run = Run::new(policy);
        run.enter(10, 1);
        let mut time = 20;
        let calls = if policy == OverloadPolicy::Suppress { 1000 } else { 100_000 };
        for call in 0..calls {
            run.enter(time, 2);
            if call % 100 == 0 {
                run.launch(time + 1, 3);
                run.enter(time + 2, 4);
                run.leave(time + 2);
            } else {
                run.enter(time + 1, 3);
            }
            run.leave(time + 3);
            run.leave(time + 4);
            time += 7;
            if call % 5_000 == 0 {
                run.read(usize::MAX);
            }
        }
        run.end(time);
        run.assert_exact();
        assert_eq!((run.decoded_ids.len(), run.launched.len()), (calls / 100, calls / 100));
        assert!(run.ids_are_in_place());
        assert_eq!(run.decoded_ids[9].2, [1, 2, 3]);
        let coalesced = run.decoder.coalesced_calls;
        assert!(policy == OverloadPolicy::Suppress || coalesced > 150_000, "{coalesced}");
    }
}

/// There is no reader. A launch for whose id there is no room is recorded without the id, as long as calls are recorded at all.
#[test]
fn a_launch_without_room_for_its_id_is_recorded_like_other_calls() {
    for policy in [OverloadPolicy::Suppress, OverloadPolicy::CoalesceUnderPressure] {
        let mut run = Run::new(policy);
        run.enter(10, 1);
        for time in 20..10_000 {
            run.launch(time, 2);
            run.leave(time);
        }
        run.read(usize::MAX);
        run.end(20_000);
        assert!(run.ids_are_in_place() && run.decoded_ids.len() > 600, "{}", run.decoded_ids.len());
        let calls = run.decoded.profile.values().map(|figures| figures.0).sum::<u64>();
        assert_eq!(calls + run.writer.suppressed_calls(), 9981);
    }
}

/// If every event is wanted, the writer waits until there is room for the id, too.
#[test]
fn with_the_policy_wait_a_launch_waits_for_room_for_its_id() {
    let mut run = Run::new(OverloadPolicy::Wait);
    let path = run.reader.path().to_owned();
    let reader = std::thread::spawn(move || {
        let mut reader = RingConsumer::open(&path).unwrap();
        let mut ids = 0;
        let mut leaves = 0;
        let mut records = Vec::new();
        while leaves < 10_000 {
            records.clear();
            let count = reader.copy_out(&mut records, 100).unwrap();
            ids += records.iter().filter(|r| r.kind() == Some(Kind::Correlation)).count();
            leaves += records.iter().filter(|r| r.kind() == Some(Kind::Leave)).count();
            reader.release(count);
        }
        ids
    });
    for time in 0..10_000 {
        run.launch(time, 2);
        run.leave(time);
    }
    assert_eq!((reader.join().unwrap(), run.writer.suppressed_calls()), (10_000, 0));
}

#[test]
fn an_id_belongs_to_the_enter_that_follows_directly() {
    use Event::{Enter, EnterCorrelated, Leave};
    let (events, repairs) = decode(&[
        Record::new(Kind::Correlation, 77, 0),
        Record::new(Kind::Enter, 1, 7),
        Record::new(Kind::Enter, 2, 8),
        Record::new(Kind::Correlation, 78, 0),
        Record::new(Kind::Leave, 3, 8),
        Record::new(Kind::Correlation, 79, 0),
        Record::new(Kind::Correlation, 80, 0),
        Record::new(Kind::Enter, 4, 8),
    ]);
    let expected =
        [EnterCorrelated(1, 7, 77), Enter(2, 8), Leave(3, 8), EnterCorrelated(4, 8, 80), Leave(100, 8)];
    assert_eq!((&events[..5], repairs), (&expected[..], Repairs { damaged: 2, ..Repairs::default() }));
}

/// Without a reader, messages that find no room are counted, none is written in part, and open frames can still be left.
#[test]
fn messages_without_room_are_counted() {
    for policy in [OverloadPolicy::Suppress, OverloadPolicy::CoalesceUnderPressure] {
        let mut run = Run::new(policy);
        run.enter(10, 1);
        for time in 20..10_000 {
            run.send(time);
        }
        run.read(usize::MAX);
        let lost = run.reader.dropped_records() as usize;
        // Two records each, in a ring of 4096.
        assert!((1950..=2048).contains(&run.received.len()), "{}", run.received.len());
        assert_eq!(run.received.len() + lost, run.sent.len());
        assert_eq!(run.received[..], run.sent[..run.received.len()]);
        run.end(20_000);
        assert!(run.decoded.stack.is_empty());
    }
}

/// If every event is wanted, the writer waits until the collector makes room.
#[test]
fn with_the_policy_wait_a_message_waits_for_room() {
    let mut run = Run::new(OverloadPolicy::Wait);
    let path = run.reader.path().to_owned();
    let reader = std::thread::spawn(move || {
        let mut reader = RingConsumer::open(&path).unwrap();
        let (mut messages, mut records) = (0, Vec::new());
        while messages < 10_000 {
            records.clear();
            let count = reader.copy_out(&mut records, 100).unwrap();
            messages += records.iter().filter(|r| r.kind() == Some(Kind::Communication)).count();
            reader.release(count);
        }
    });
    for time in 0..10_000 {
        run.send(time);
    }
    reader.join().unwrap();
    assert_eq!(run.reader.dropped_records(), 0);
}

/// The records end in the middle of a message, as if the next one was damaged.
#[test]
fn a_message_that_is_cut_short_is_left_out_and_counted() {
    for bytes in [4, u64::MAX] {
        let message = Communication::MpiSend(Message { peer: 1, communicator: 2, tag: 3, bytes });
        let records: Vec<Record> = message.records(7).collect();
        for cut in 0..records.len() {
            let (begin, end) = (Record::new(Kind::Enter, 5, 1), Record::new(Kind::ProgramEnd, 9, 0));
            let all: Vec<Record> = [begin].into_iter().chain(records[..cut].to_vec()).chain([end]).collect();
            let (events, repairs) = decode(&all);
            assert_eq!(events, [Event::Enter(5, 1), Event::Leave(9, 1), Event::ProgramEnd(9)]);
            assert_eq!(repairs.damaged, u64::from(cut > 0));
        }
        let (events, repairs) = decode(&records);
        assert_eq!((&events[..], repairs), (&[Event::Communication(7, message)][..], Repairs::default()));
        // These are payloads without the record that they belong to.
        let damaged = records.len() as u64 - 1;
        assert_eq!(decode(&records[1..]), (Vec::new(), Repairs { damaged, ..Repairs::default() }));
    }
}

#[test]
fn without_pressure_no_call_is_coalesced() {
    let mut run = Run::new(OverloadPolicy::CoalesceUnderPressure);
    tiny_calls(&mut run, 10_000, 10);
    run.assert_exact();
    assert_eq!((run.decoder.coalesced_calls, run.events), (0, 60_002));
}

/// Returns how many of 500,000 calls are coalesced at this rate of events, with a reader that follows at once. A tick is a
/// microsecond.
fn coalesced_at(events_per_tick: u64) -> u64 {
    let mut run = Run::new(OverloadPolicy::CoalesceUnderPressure);
    run.enter(10, 1);
    for call in 0..500_000 {
        let time = 20 + 2 * call / events_per_tick;
        run.enter(time, 2);
        run.leave(time);
        if call % 100 == 0 {
            run.read(usize::MAX);
        }
    }
    run.end(2_000_000);
    run.assert_exact();
    run.decoder.coalesced_calls
}

#[test]
fn calls_above_the_maximum_rate_are_coalesced_even_if_there_is_room() {
    assert_eq!((coalesced_at(2), coalesced_at(9)), (0, 0));
    // The rate is known only after the first 65,536 records.
    let coalesced = coalesced_at(11);
    assert!(coalesced > 450_000, "{coalesced} of 500,000");
}

#[test]
fn a_writer_waits_for_room() {
    let mut run = Run::new(OverloadPolicy::Wait);
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
fn a_writer_does_not_wait_for_a_dead_collector() {
    let probes = SessionProbes { collector_is_alive: || false, ..PROBES };
    let directory = tempfile::tempdir().unwrap();
    let ring = RingProducer::create(&directory.path().join("1.0.ring"), 4096, 0).unwrap();
    let mut writer = EventWriter::with_policy(ring, OverloadPolicy::Wait, probes);
    let begun = std::time::Instant::now();
    for time in 0..100_000 {
        writer.enter(time, 2);
        writer.leave(time, 2);
    }
    assert!(writer.suppressed_calls() > 90_000);
    let waited = begun.elapsed().as_secs_f64();
    // On a busy machine each of its thousands of short sleeps takes longer. 100,000 waits would take days.
    assert!((3.0..300.0).contains(&waited), "there is one wait, not 100,000: {waited} s");
}

/// The collector is killed while a program waits for room; another one comes a second later.
#[test]
fn a_writer_waits_until_another_collector_comes() {
    use std::sync::atomic::{AtomicBool, Ordering};
    static ALIVE: AtomicBool = AtomicBool::new(true);
    let probes = SessionProbes { collector_is_alive: || ALIVE.load(Ordering::Relaxed), ..PROBES };
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("1.0.ring");
    let mut writer =
        EventWriter::with_policy(RingProducer::create(&path, 4096, 0).unwrap(), OverloadPolicy::Wait, probes);
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

#[test]
fn single_calls_are_recorded_again_when_the_pressure_ends() {
    let mut run = Run::new(OverloadPolicy::CoalesceUnderPressure);
    run.enter(10, 1);
    let mut time = 20;
    for _ in 0..100_000 {
        run.enter(time, 2);
        run.leave(time + 1);
        time += 2;
    }
    run.read(usize::MAX);
    assert!(run.decoder.coalesced_calls > 90_000);
    // One call a millisecond, for two seconds.
    for _ in 0..2000 {
        time += 1000;
        run.enter(time, 2);
        run.leave(time + 1);
        run.read(usize::MAX);
    }
    let (before, coalesced) = (run.events, run.decoder.coalesced_calls);
    for _ in 0..100 {
        time += 1000;
        run.enter(time, 2);
        run.leave(time + 1);
    }
    run.read(usize::MAX);
    assert_eq!((run.events - before, run.decoder.coalesced_calls), (200, coalesced));
    run.end(time + 5);
    run.assert_exact();
}

/// A function that was always short has a long call.
#[test]
fn a_function_that_becomes_long_is_recorded_again() {
    let mut run = Run::new(OverloadPolicy::Coalesce);
    run.enter(10, 1);
    let mut time = 20;
    for _ in 0..1000 {
        run.enter(time, 2);
        run.leave(time + 1);
        time += 2;
    }
    assert!(run.decoder.coalesced_calls == 0);
    run.enter(time, 2);
    run.leave(time + 50_000);
    time += 50_010;
    run.read(usize::MAX);
    let before = run.decoder.coalesced_calls;
    assert!(before > 900);
    for _ in 0..10 {
        run.enter(time, 2);
        run.leave(time + 1);
        time += 2;
    }
    run.read(usize::MAX);
    assert_eq!(run.decoder.coalesced_calls, before, "the path needs several short calls again");
    run.end(time);
    run.assert_exact();
}

#[test]
fn a_collector_that_stops_for_a_minute_costs_no_call() {
    let mut run = Run::new(OverloadPolicy::CoalesceUnderPressure);
    run.enter(10, 1);
    let mut time = 20;
    // 60 s of ten calls a millisecond. No process reads, so the ring becomes full.
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

/// Deep recursion makes more call paths than a tree holds.
#[test]
fn more_call_paths_than_the_tree_holds_are_exact() {
    let mut run = Run::new(OverloadPolicy::Coalesce);
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
    let mut decoder = Decoder::default();
    let mut events = Vec::new();
    let calls = |region, depth| {
        Record::coalesced_calls(CoalescedCalls { region, depth, calls: 5, exclusive_ticks: 10 })
    };
    let records = [
        Record::new(Kind::Enter, 1, 7),
        Record::new(Kind::Group, 100, 3),
        calls(8, 0),
        calls(9, 1),
        Record::new(Kind::Leave, 300, 7),
        calls(9, 0),
        // A depth beyond the open frames means the innermost.
        Record::new(Kind::Group, 400, 1),
        calls(8, 60_000),
    ];
    for record in records {
        decoder.decode(record, &mut |event| events.push(event));
    }
    use Event::{Enter, EnterCoalesced, Leave};
    assert_eq!(
        events,
        [
            Enter(1, 7),
            EnterCoalesced(100, 8, 5),
            EnterCoalesced(110, 9, 5),
            Leave(120, 9),
            Leave(120, 8),
            Leave(300, 7),
            EnterCoalesced(400, 8, 5),
            Leave(410, 8),
        ]
    );
    assert_eq!(decoder.repairs, Repairs { damaged: 2, ..Repairs::default() });
}

/// The end closes the open frames. A host that then measures again starts anew.
#[test]
fn flushing_after_the_end_writes_nothing() {
    for flush in [EventWriter::flush, EventWriter::flush_last] {
        let mut run = Run::new(OverloadPolicy::Coalesce);
        run.enter(10, 1);
        for time in 20..100 {
            run.enter(time, 2);
            run.leave(time);
        }
        run.enter(100, 2); // coalesced, and still open
        run.end(150);
        run.assert_exact();
        let before = run.events;
        flush(&mut run.writer);
        run.read(usize::MAX);
        assert_eq!(run.events, before, "no event comes after the end");
        // The host measures again.
        run.enter(100_000, 1);
        for time in 200_000..200_100 {
            run.enter(time, 2);
            run.leave(time);
        }
        run.end(300_000);
        run.assert_exact();
    }
}

/// With more open frames than the ring has slots, waiting would never end.
#[test]
fn a_stack_deeper_than_the_ring_is_not_waited_for() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("1.0.ring");
    let ring = RingProducer::create(&path, 4096, 0).unwrap();
    let mut writer = EventWriter::with_policy(ring, OverloadPolicy::Wait, PROBES);
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
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        (0..5000).for_each(|time| writer.enter(time, 2));
        (5000..10_000).for_each(|time| writer.leave(time, 2));
        sender.send(writer.suppressed_calls()).unwrap();
    });
    let suppressed =
        receiver.recv_timeout(std::time::Duration::from_secs(20)).expect("the program continues");
    done.send(()).unwrap();
    assert_eq!(reader.join().unwrap(), 2 * (5000 - suppressed));
}

/// Suppressed frames are entered again together with coalesced ones.
#[test]
fn frames_that_are_entered_again_find_room_for_their_leaves() {
    for (deep, more) in [(300, 60), (528, 40), (560, 60)] {
        let mut run = Run::new(OverloadPolicy::Coalesce);
        let mut time = 10;
        run.enter(time, 1);
        // No process reads, so the ring fills up with calls that are not short.
        while run.reader.available().unwrap() < 4080 {
            run.enter(time, 2);
            time += 2000;
            run.leave(time);
        }
        // More call paths than the tree holds; some are open, and some of these suppressed.
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
        // The room is exactly enough to enter them again.
        while run.writer.open_frames() < 100 {
            run.read(1);
            run.enter(time, 6000);
            run.leave(time);
        }
        assert!(run.writer.suppressed_calls() > suppressed, "they were suppressed");
        while !run.expected.stack.is_empty() {
            time += 1;
            run.leave(time);
            assert!(run.reader.available().is_ok(), "{deep} {more}");
        }
        run.end(time);
    }
}

/// Frames were left while recording was off.
#[test]
fn a_leave_of_an_outer_frame_ends_the_coalesced_ones_above_it() {
    let profile_with = |policy| {
        let mut run = Run::new(policy);
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
        run.writer.leave(time + 3, 2); // the leave of 3 was not recorded
        run.writer.enter(time + 5, 4);
        run.writer.leave(time + 15, 4);
        run.writer.enter(time + 20, 2);
        run.writer.leave(time + 21, 3); // its enter was not recorded
        run.writer.leave(time + 25, 2);
        run.writer.leave(time + 30, 1);
        run.writer.program_end(time + 40);
        run.read(usize::MAX);
        Run::profile(&run.decoded)
    };
    assert_eq!(profile_with(OverloadPolicy::Coalesce), profile_with(OverloadPolicy::Suppress));
}

/// Watermarks are exclusive: an event at `Timestamp::MAX` would wait for ever.
#[test]
fn no_event_has_the_maximum_timestamp() {
    let calls = CoalescedCalls { region: 8, depth: 0, calls: 1, exclusive_ticks: CoalescedCalls::TICKS_MAX };
    let ends = [
        vec![Record::new(Kind::Enter, u64::MAX, 7)],
        vec![Record::new(Kind::Group, u64::MAX - 10, 1), Record::coalesced_calls(calls)],
        vec![Record::new(Kind::Enter, 1, 7), Record::new(Kind::ProgramEnd, u64::MAX, 0)],
        vec![Record::new(Kind::Sample, u64::MAX, 0), Record::new(Kind::Value, 1, 0)],
        vec![Record::new(Kind::CpuTime, u64::MAX, 0), Record::new(Kind::Value, 1, 0)],
        vec![Record::new(Kind::Counts, u64::MAX, 0), Record::new(Kind::Value, 1, 0)],
        Communication::MpiCollectiveBegin.records(u64::MAX).collect(),
    ];
    for records in ends {
        let (mut decoder, mut latest) = (Decoder::default(), 0);
        let mut take = |event| match event {
            Event::Enter(time, _)
            | Event::EnterCoalesced(time, ..)
            | Event::EnterCorrelated(time, ..)
            | Event::Leave(time, _) => {
                latest = latest.max(time);
            }
            Event::Sample(time, ..)
            | Event::CpuTime(time, ..)
            | Event::Counts(time, ..)
            | Event::ProgramBegin(time)
            | Event::ProgramEnd(time)
            | Event::Communication(time, _) => {
                latest = latest.max(time);
            }
        };
        records.into_iter().for_each(|record| decoder.decode(record, &mut take));
        decoder.close(u64::MAX, &mut take);
        assert_eq!(latest, u64::MAX - 1);
    }
}

#[test]
fn any_number_of_suppressed_calls_is_accepted() {
    let mut decoder = Decoder::default();
    for _ in 0..2 {
        decoder.decode(Record::new(Kind::Suppressed, u64::MAX, 0), &mut |_| {});
    }
    assert_eq!(decoder.suppressed_calls, u64::MAX);
}

fn decode(records: &[Record]) -> (Vec<Event>, Repairs) {
    let (mut decoder, mut events) = (Decoder::default(), Vec::new());
    for record in records {
        decoder.decode(*record, &mut |event| events.push(event));
    }
    decoder.close(100, &mut |event| events.push(event));
    let (mut at_once, mut same) = (Decoder::default(), Vec::new());
    at_once.decode_all(records, &mut |event| same.push(event));
    at_once.close(100, &mut |event| same.push(event));
    assert_eq!((&same, at_once.repairs), (&events, decoder.repairs));
    (events, decoder.repairs)
}

#[test]
fn program_end_closes_open_frames() {
    let (events, repairs) = decode(&[
        Record::new(Kind::Enter, 1, 7),
        Record::new(Kind::Enter, 2, 8),
        Record::new(Kind::ProgramEnd, 5, 0),
    ]);
    use Event::{Enter, Leave, ProgramEnd};
    assert_eq!(events, [Enter(1, 7), Enter(2, 8), Leave(5, 8), Leave(5, 7), ProgramEnd(5)]);
    assert_eq!(repairs, Repairs::default());
}

#[test]
fn records_that_do_not_nest_are_repaired_and_counted() {
    let (events, repairs) = decode(&[
        Record::new(Kind::Leave, 1, 9),
        Record::new(Kind::Enter, 2, 7),
        Record::new(Kind::Enter, 3, 8),
        Record::new(Kind::Leave, 4, 7),
        Record::new(Kind::Enter, 3, 6),
        Record::from_words([5, 99 << 32]),
        Record::new(Kind::Value, 6, 0),
    ]);
    use Event::{Enter, Leave};
    assert_eq!(events, [Enter(2, 7), Enter(3, 8), Leave(4, 8), Leave(4, 7), Enter(4, 6), Leave(100, 6)]);
    assert_eq!(repairs, Repairs { unmatched_leaves: 1, missing_leaves: 1, backward: 1, damaged: 2 });
}

#[test]
fn a_sample_is_two_records() {
    let (events, repairs) = decode(&[
        Record::new(Kind::Sample, 5, 1),
        Record::new(Kind::Value, 123, 1),
        Record::new(Kind::Sample, 6, 1),
        Record::new(Kind::Enter, 7, 1),
    ]);
    assert_eq!(events, [Event::Sample(5, 1, 123), Event::Enter(7, 1), Event::Leave(100, 1)]);
    assert_eq!(repairs.damaged, 1);
}

fn tag_of(event: &Communication) -> u32 {
    let Communication::MpiSend(message) = event else { panic!("{event:?}") };
    message.tag
}

/// Returns the number of cases, from `PROPTEST_CASES` if that is set.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(400)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases()))]

    /// Whatever the program and the reader do, calls that are not suppressed are exact, and the stream nests.
    #[test]
    fn calls_and_times_are_exact_for_any_program_and_reader(
        script in prop::collection::vec(
            // The numbers of steps, of ticks per step, of regions, of open frames, and of records that are read afterwards.
            (1u64..3000, 0u64..40, 1u32..40, 1usize..60, 0usize..3000), 1..40
        ),
        always: bool,
        seed: u64,
    ) {
        let mut run = Run::new(if always { OverloadPolicy::Coalesce } else { OverloadPolicy::CoalesceUnderPressure });
        let (mut time, mut random) = (10, seed | 1);
        for (steps, ticks, regions, deepest, read) in script {
            for _ in 0..steps {
                random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                let (coin, chance) = (random >> 60, (random >> 33) as u32);
                // Long pauses are rare.
                time += if chance.is_multiple_of(5000) { 30_000 } else { ticks * u64::from(chance % 3) };
                let depth = run.expected.stack.len();
                if chance.is_multiple_of(97) {
                    run.send(time);
                } else if depth < deepest && chance.is_multiple_of(89) {
                    run.launch(time, chance % regions);
                } else if depth == 0 || (depth < deepest && coin < 8) {
                    run.enter(time, chance % regions);
                } else {
                    run.leave(time);
                }
            }
            if random.is_multiple_of(3) {
                run.writer.flush(); // a thread that pauses
            }
            run.read(read);
        }
        run.read(usize::MAX);
        run.end(time);
        let calls = |of: &Profiler| of.profile.values().map(|figures| figures.0).sum::<u64>();
        prop_assert_eq!(calls(&run.decoded) + run.writer.suppressed_calls(), calls(&run.expected));
        prop_assert_eq!((run.received.len() as u64) + run.reader.dropped_records(), run.sent.len() as u64);
        // A message's tag is its number.
        let was_sent = |received: &(_, _, _)| run.sent[tag_of(&received.1) as usize] == *received;
        prop_assert!(run.received.iter().all(was_sent));
        prop_assert!(run.ids_are_in_place());
        if run.writer.suppressed_calls() == 0 {
            prop_assert_eq!(Run::profile(&run.decoded), Run::profile(&run.expected));
        }
    }

    /// The host passes arbitrary times, leaves of frames that were never entered, and ends in the middle of calls.
    #[test]
    fn invalid_events_of_a_host_do_no_harm(
        script in prop::collection::vec(
            // The number of steps, the kind of times, the number of regions, the action afterwards, and the number of records
            // that are read then.
            (1u64..2000, 0u8..8, 1u32..2000, 0u8..16, 0usize..3000), 1..40
        ),
        policy in prop::sample::select(vec![OverloadPolicy::Coalesce, OverloadPolicy::CoalesceUnderPressure, OverloadPolicy::Suppress]),
        ticks_per_second in prop::sample::select(vec![0, 1000, 500_000, 1_000_000, u64::MAX]),
        communication in any_communication(),
        seed: u64,
    ) {
        let mut run = Run::new(OverloadPolicy::Suppress);
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
        let probes = SessionProbes { ticks_per_second, collector_is_alive: || true, collector_rounds: || 0 };
        run.writer = EventWriter::with_policy(ring, policy, probes);
        run.reader = RingConsumer::open(&path).unwrap();
        let mut time = 1u64 << 40;
        let mut random = seed | 1;
        let mut entered = 0;
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
                if chance.is_multiple_of(97) {
                    run.writer.communication(time, communication);
                } else if chance.is_multiple_of(89) {
                    run.writer.correlate_next(chance.into());
                } else if coin < 8 {
                    run.writer.enter(time, chance % regions);
                    entered += 1;
                } else {
                    run.writer.leave(time, chance % regions);
                }
            }
            match then {
                0 => run.writer.program_end(time),
                1 => run.writer.location_end(time),
                2..6 => run.writer.flush(),
                _ => {}
            }
            prop_assert!(run.reader.available().is_ok(), "a leave always finds room");
            run.read(read);
        }
        run.read(usize::MAX);
        run.writer.program_end(time);
        run.writer.flush();
        run.writer.flush_last();
        run.read(usize::MAX);
        prop_assert_eq!(run.decoder.repairs.damaged, 0);
        prop_assert!(run.decoded.stack.is_empty());
        let calls = run.decoded.profile.values().map(|figures| figures.0).sum::<u64>();
        prop_assert_eq!(calls + run.writer.suppressed_calls(), entered);
    }
}

#[test]
fn cpu_time_is_decoded_and_is_damaged_without_its_value() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("1.0.ring");
    let mut writer = EventWriter::new(RingProducer::create(&path, 64, 0).unwrap());
    writer.cpu_time(100, 30, 7);
    writer.enter(110, 1);
    writer.cpu_time(120, 0, 9);
    writer.counts(120, 2, 5);
    let mut reader = RingConsumer::open(&path).unwrap();
    let mut records = Vec::new();
    reader.copy_out(&mut records, usize::MAX).unwrap();
    let decode = |records: &[Record]| {
        let (mut decoder, mut events) = (Decoder::default(), Vec::new());
        decoder.decode_all(records, &mut |event| events.push(event));
        (events, decoder.repairs.damaged)
    };
    let rest = [Event::Enter(110, 1), Event::CpuTime(120, 0, 9), Event::Counts(120, 2, 5)];
    assert_eq!(decode(&records), ([&[Event::CpuTime(100, 30, 7)], &rest[..]].concat(), 0));
    records.remove(1);
    assert_eq!(decode(&records), (rest.to_vec(), 1));
    records.pop();
    assert_eq!(decode(&records).0, rest[..2]);
}
