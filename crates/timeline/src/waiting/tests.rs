use super::*;
use ampere_attribution::{Increase, Policy, Sharing};
use ampere_model::Region;
use ampere_model::regions::Regions;

/// One device that draws one joule per tick and rank, and ranks of one thread each, in one communicator (0).
struct Run {
    engine: Engine,
    view: ViewIndex,
    waiting: Waiting,
    locations: Vec<LocationIndex>,
    regions: Regions,
    last_sample: Timestamp,
}

/// Call paths with the kind of their waits and the joules.
type Waited = Vec<(String, &'static str, f64)>;
/// Call paths with the joules that others used waiting for them.
type Caused = Vec<(String, f64)>;

enum Do<'a> {
    Enter(&'a str),
    Leave,
    Send(u32),
    Receive(u32),
    /// Starts a receive with this request.
    Start(u64),
    /// Completes it with a message of this rank.
    Complete(u64, u32),
    Collective(CollectiveKind, Option<u32>),
    /// Takes part in a collective operation whose root is in the same group of an inter-communicator.
    Idle(CollectiveKind),
}
use Do::{Collective, Complete, Enter, Idle, Leave, Receive, Send, Start};

impl Run {
    fn of(nodes: &[u32], clock_error: Timestamp) -> Run {
        Run::by(Policy::TimeSliced, nodes, clock_error)
    }

    fn by(policy: Policy, nodes: &[u32], clock_error: Timestamp) -> Run {
        let mut engine = Engine::new();
        let view = engine.add_view(policy, Sharing::Independent);
        engine.record_prices(view);
        let locations: Vec<LocationIndex> = nodes.iter().map(|_| engine.add_location()).collect();
        locations.iter().for_each(|location| engine.bind(view, *location));
        let rank = |(location, node): (&LocationIndex, &u32)| Rank {
            main: Some(*location),
            locations: vec![*location],
            has_samples: false,
            number: Some(location.0),
            node: *node,
        };
        let all = locations.iter().zip(nodes).map(rank).collect();
        let world = Comm::Members((0..nodes.len() as u32).collect());
        let ranks = Ranks::new(all, [(0, world), (1, Comm::Own)].into_iter(), clock_error, 1000);
        let waiting = Waiting::new(ranks, &mut engine);
        let regions = Regions::default();
        let mut run = Run { engine, view, waiting, locations, regions, last_sample: 0 };
        run.engine.sample(view, 0, Increase::First);
        run
    }

    fn act(&mut self, rank: usize, time: Timestamp, action: &Do) {
        let location = self.locations[rank];
        let message = |peer, request| Message { peer, comm: 0, tag: 7, request };
        let collective =
            |kind, root| Operation::Collective { comm: 0, operation: kind as u8, kind, root, request: None };
        let operation = match *action {
            Enter(name) => {
                let region = self.regions.add(&Region { name: name.to_owned(), ..region() });
                self.engine.enter(location, time, region);
                self.waiting.add_region(region, name);
                return self.waiting.enter(location, time, region, name.starts_with("MPI_"));
            }
            Leave => {
                self.engine.leave(location, time);
                return self.waiting.leave(location, time);
            }
            Send(to) => Operation::Send(message(to, None)),
            Receive(from) => Operation::Receive(message(from, None)),
            Start(request) => Operation::ReceiveRequest(request),
            Complete(request, from) => Operation::Receive(message(from, Some(request))),
            Collective(kind, root) => collective(kind, root.map_or(Root::None, Root::Rank)),
            Idle(kind) => collective(kind, Root::ThisGroup),
        };
        self.waiting.communicate(location, time, operation);
    }

    /// Processes a sample of a device that draws one joule per tick, which each rank is charged.
    fn sample(&mut self, time: Timestamp) {
        let joules = (time - self.last_sample) as f64;
        self.engine.sample(self.view, time, Increase::Joules(joules));
        self.last_sample = time;
    }

    fn path(&self, (location, node): (LocationIndex, NodeIndex)) -> String {
        let (_, region) = self.engine.caller_of(location, node);
        format!("{} on {}", self.regions.name(region), location.0)
    }

    /// Returns `(call path, kind, joules)` of the waits, and `(call path, joules)` of the causes.
    fn end(&mut self) -> (Waited, Caused) {
        self.sample(1000);
        self.waiting.end(&mut self.engine);
        let waits = self.waiting.of_view(self.view).cloned().unwrap_or_default();
        let kinds = |(key, joules): (_, &ByKind)| {
            let (key, joules) = (self.path(key), *joules);
            let known = Kind::ALL.into_iter().filter(move |kind| joules.get(*kind) > 0.0);
            known.map(move |kind| (key.clone(), kind.as_str(), joules.get(kind))).collect::<Vec<_>>()
        };
        let mut waited: Vec<_> = waits.waited.iter().flat_map(kinds).collect();
        let mut caused: Vec<_> =
            waits.caused.iter().map(|(key, joules)| (self.path(key), joules.sum())).collect();
        waited.sort_by(|a, b| a.partial_cmp(b).expect("numbers"));
        caused.sort_by(|a, b| a.partial_cmp(b).expect("numbers"));
        let (a, b): (f64, f64) = (waited.iter().map(|row| row.2).sum(), caused.iter().map(|row| row.1).sum());
        assert!((a - b).abs() <= 1e-9 * a.max(1.0), "{a} J were used waiting, {b} J were caused");
        (waited, caused)
    }
}

fn region() -> Region {
    Region {
        handle: ampere_model::RegionHandle(0),
        name: String::new(),
        canonical_name: String::new(),
        source_file: String::new(),
        begin_line: 0,
        end_line: 0,
        region_type: 0,
        paradigm: 0,
    }
}

/// The events of ranks of one node, as `(time, rank, action)` in time order.
fn run(ranks: usize, events: &[(Timestamp, usize, Do)]) -> Run {
    let mut run = Run::of(&vec![0; ranks], 0);
    events.iter().for_each(|(time, rank, action)| run.act(*rank, *time, action));
    run
}

fn waits(ranks: usize, events: &[(Timestamp, usize, Do)]) -> (Waited, Caused) {
    run(ranks, events).end()
}

fn row(path: &str, joules: f64) -> (String, f64) {
    (path.to_owned(), joules)
}

/// Rank 1 receives from 20 to 110, and rank 0 computes until it sends at 100.
fn late_send() -> Vec<(Timestamp, usize, Do<'static>)> {
    vec![
        (0, 0, Enter("main")),
        (0, 1, Enter("main")),
        (10, 0, Enter("compute")),
        (20, 1, Enter("MPI_Recv")),
        (90, 0, Leave),
        (100, 0, Enter("MPI_Send")),
        (101, 0, Send(1)),
        (102, 0, Leave),
        (109, 1, Receive(0)),
        (110, 1, Leave),
        (200, 0, Leave),
        (200, 1, Leave),
    ]
}

#[test]
fn a_receive_waits_for_the_start_of_the_send() {
    let (waited, caused) = waits(2, &late_send());
    assert_eq!(waited, [("MPI_Recv on 1".to_owned(), "late sender", 80.0)]);
    assert_eq!(caused, [row("compute on 0", 70.0), row("main on 0", 10.0)]);
}

/// Rank 0 is on a CPU for half of the time in which rank 1 waits for it. Rank 1 is on no CPU in that time, but rank 2, which
/// waits for rank 1, thereby waits for rank 0.
#[test]
fn the_part_of_the_waiting_for_a_rank_that_was_not_on_a_cpu_is_known() {
    let mut events = late_send();
    events.extend([
        (0, 2, Enter("main")),
        (20, 2, Enter("MPI_Recv")),
        (120, 1, Enter("MPI_Send")),
        (121, 1, Send(2)),
        (122, 1, Leave),
        (125, 2, Receive(1)),
        (126, 2, Leave),
        (200, 2, Leave),
    ]);
    events.sort_by_key(|(time, ..)| *time);
    let mut with_cpu_times = run(3, &events);
    for (rank, points) in [
        (0, [(0, 0.0), (20, 20.0), (60, 20.0), (100, 60.0)]),
        (1, [(0, 0.0), (20, 20.0), (100, 20.0), (200, 120.0)]),
    ] {
        for (time, ticks) in points {
            with_cpu_times.engine.add_cpu_time(LocationIndex(rank), time, ticks);
        }
    }
    for (mut run, not_on_cpu) in [(with_cpu_times, 40.0 + 40.0), (run(3, &events), 0.0)] {
        let (waited, _) = run.end();
        assert_eq!(waited.iter().map(|row| row.2).sum::<f64>(), 80.0 + 100.0);
        assert_eq!(run.waiting.of_view(run.view).map(|waits| waits.not_on_cpu), Some(not_on_cpu));
    }
}

/// With 300 ranks, three consecutive ranks are a group.
#[test]
fn pairs_are_of_groups_if_there_are_many_ranks() {
    let ranks = |from: usize, to: usize| move |(time, rank, action)| (time, [from, to][rank], action);
    let far = late_send().into_iter().map(ranks(0, 299)).map(|(time, rank, action)| match action {
        Send(_) => (time, rank, Send(299)),
        action => (time, rank, action),
    });
    let mut far = run(300, &far.collect::<Vec<_>>());
    far.end();
    let pairs = &far.waiting.of_view(far.view).expect("waits").pairs;
    assert_eq!((far.waiting.groups().count(), pairs.len()), (100, 100));
    assert_eq!(pairs[99], [80.0]);
    assert!(pairs[..99].iter().all(Vec::is_empty));
}

#[test]
fn a_blocking_send_waits_for_the_start_of_the_receive() {
    let (waited, caused) = waits(
        2,
        &[
            (0, 0, Enter("main")),
            (0, 1, Enter("main")),
            (20, 0, Enter("MPI_Send")),
            (21, 0, Send(1)),
            (100, 1, Enter("MPI_Irecv")),
            (101, 1, Start(5)),
            (102, 1, Leave),
            (110, 0, Leave),
            (120, 1, Enter("MPI_Wait")),
            (121, 1, Complete(5, 0)),
            (122, 1, Leave),
            (150, 0, Leave),
            (150, 1, Leave),
        ],
    );
    assert_eq!(waited, [("MPI_Send on 0".to_owned(), "late receiver", 80.0)]);
    assert_eq!(caused, [row("main on 1", 80.0)]);
}

/// Rank 1 probes for a message from 20 to 101, which rank 0 sends at 100, and receives it from 105 on.
fn late_send_to_a_probe() -> Vec<(Timestamp, usize, Do<'static>)> {
    vec![
        (0, 0, Enter("main")),
        (0, 1, Enter("main")),
        (20, 1, Enter("MPI_Probe")),
        (100, 0, Enter("MPI_Send")),
        (101, 0, Send(1)),
        (101, 1, Leave),
        (102, 0, Leave),
        (105, 1, Enter("MPI_Recv")),
        (109, 1, Receive(0)),
        (110, 1, Leave),
        (200, 0, Leave),
        (200, 1, Leave),
    ]
}

#[test]
fn the_call_that_looks_for_a_message_waits_for_it_instead_of_the_receive() {
    let of_probe =
        || (vec![("MPI_Probe on 1".to_owned(), "late sender", 80.0)], vec![row("main on 0", 80.0)]);
    assert_eq!(waits(2, &late_send_to_a_probe()), of_probe());
    for name in ["MPI_Mprobe", "mpi_probe_", "mpi_mprobe__", "MPI_PROBE"] {
        let mut events = late_send_to_a_probe();
        events[2].2 = Enter(name);
        assert_eq!(waits(2, &events).0, [(format!("{name} on 1"), "late sender", 80.0)]);
    }
    let mut events = late_send_to_a_probe();
    events[2].2 = Enter("MPI_Iprobe");
    assert_eq!(waits(2, &events), (vec![], vec![]), "it does not wait");
    // Another call between them, and a receive that completes later.
    let mut events = late_send_to_a_probe();
    let calls = [
        (102, 1, Enter("MPI_Get_count")),
        (103, 1, Leave),
        (105, 1, Enter("MPI_Irecv")),
        (105, 1, Start(3)),
        (106, 1, Leave),
        (107, 1, Enter("MPI_Wait")),
        (109, 1, Complete(3, 0)),
    ];
    events.splice(7..9, calls);
    assert_eq!(waits(2, &events), of_probe());
}

#[test]
fn a_call_does_not_wait_for_a_message_that_it_did_not_look_for() {
    // The receive itself waits.
    let mut events = late_send_to_a_probe();
    (events[5].0, events[7].0) = (31, 35);
    events.sort_by_key(|event| event.0);
    assert_eq!(waits(2, &events).0, [("MPI_Recv on 1".to_owned(), "late sender", 65.0)]);
    // The receive was started before.
    let mut events = late_send_to_a_probe();
    let before = [(10, 1, Enter("MPI_Irecv")), (11, 1, Start(4)), (12, 1, Leave)];
    events.splice(2..2, before);
    (events[10].2, events[11].2) = (Enter("MPI_Wait"), Complete(4, 0));
    assert_eq!(waits(2, &events), (vec![], vec![]));
    // A later call that looks for a message is the one that finds it.
    let mut events = late_send_to_a_probe();
    events.splice(7..7, [(103, 1, Enter("MPI_Probe")), (104, 1, Leave)]);
    assert_eq!(waits(2, &events), (vec![], vec![]));
}

/// Rank 2 waits for rank 1 from 30 to 120. From 10 to 100, rank 1 itself waits for rank 0.
#[test]
fn the_cause_is_passed_on_to_the_rank_that_the_late_one_waited_for() {
    let (waited, caused) = waits(
        3,
        &[
            (0, 0, Enter("slow")),
            (0, 1, Enter("main")),
            (0, 2, Enter("main")),
            (10, 1, Enter("MPI_Recv")),
            (30, 2, Enter("MPI_Recv")),
            (100, 0, Enter("MPI_Send")),
            (101, 0, Send(1)),
            (102, 0, Leave),
            (105, 1, Receive(0)),
            (110, 1, Leave),
            (120, 1, Enter("MPI_Send")),
            (121, 1, Send(2)),
            (122, 1, Leave),
            (130, 2, Receive(1)),
            (131, 2, Leave),
            (140, 0, Leave),
            (140, 1, Leave),
            (140, 2, Leave),
        ],
    );
    assert_eq!(
        waited,
        [
            ("MPI_Recv on 1".to_owned(), "late sender", 90.0),
            ("MPI_Recv on 2".to_owned(), "late sender", 90.0)
        ]
    );
    // From 30 on, rank 0 is slow until 100; then rank 1 receives until 110, and is in main until 120.
    assert_eq!(caused, [row("MPI_Recv on 1", 10.0), row("main on 1", 10.0), row("slow on 0", 90.0 + 70.0)]);
}

fn collective(kind: CollectiveKind, root: Option<u32>) -> (Waited, Caused) {
    collective_of([(); 3].map(|()| Collective(kind, root)))
}

/// Returns the waits of a collective operation that ranks enter at 10, 20 and 50.
fn collective_of(actions: [Do<'static>; 3]) -> (Waited, Caused) {
    let mut events = Vec::new();
    events.extend((0..3).map(|rank| (0, rank, Enter("main"))));
    events.extend([10, 20, 50].iter().enumerate().map(|(rank, at)| (*at, rank, Enter("MPI_X"))));
    events.extend(actions.into_iter().enumerate().map(|(rank, action)| (60, rank, action)));
    events.extend((0..3).map(|rank| (60, rank, Leave)));
    events.extend((0..3).map(|rank| (70, rank, Leave)));
    waits(3, &events)
}

#[test]
fn members_of_a_collective_wait_by_its_kind() {
    let on = |rank: u32| format!("MPI_X on {rank}");
    let (waited, caused) = collective(CollectiveKind::Barrier, None);
    assert_eq!(waited, [(on(0), "barrier", 40.0), (on(1), "barrier", 30.0)]);
    assert_eq!(caused, [row("main on 2", 70.0)]);
    let (waited, _) = collective(CollectiveKind::AllToAll, None);
    assert_eq!(waited, [(on(0), "n-to-n", 40.0), (on(1), "n-to-n", 30.0)]);
    let (waited, caused) = collective(CollectiveKind::OneToAll, Some(1));
    assert_eq!((waited, caused), (vec![(on(0), "1-to-n", 10.0)], vec![row("main on 1", 10.0)]));
    let (waited, caused) = collective(CollectiveKind::AllToOne, Some(0));
    assert_eq!((waited, caused), (vec![(on(0), "n-to-1", 40.0)], vec![row("main on 2", 40.0)]));
    assert_eq!(collective(CollectiveKind::AllToOne, Some(2)), (vec![], vec![]), "the root is last");
    let (waited, caused) = collective(CollectiveKind::Scan, None);
    assert_eq!((waited, caused), (vec![], vec![]), "each rank is later than those before it");
    assert_eq!(collective(CollectiveKind::Other, None), (vec![], vec![]));
}

#[test]
fn members_with_nothing_to_do_neither_wait_nor_are_awaited() {
    let (from_1, to_0) = (CollectiveKind::OneToAll, CollectiveKind::AllToOne);
    let to_one = |kind, root| Collective(kind, Some(root));
    assert_eq!(collective_of([Idle(from_1), to_one(from_1, 1), to_one(from_1, 1)]), (vec![], vec![]));
    let (waited, caused) = collective_of([to_one(to_0, 0), to_one(to_0, 0), Idle(to_0)]);
    let on_root = vec![("MPI_X on 0".to_owned(), "n-to-1", 10.0)];
    assert_eq!((waited, caused), (on_root, vec![row("main on 1", 10.0)]));
    // The members that name a root disagree.
    assert_eq!(collective_of([to_one(to_0, 0), to_one(to_0, 1), Idle(to_0)]), (vec![], vec![]));
}

#[test]
fn nothing_is_invented_for_a_message_without_its_other_side() {
    let mut events = late_send();
    events.retain(|(_, _, action)| !matches!(action, Send(_)));
    let mut alone = run(2, &events);
    assert_eq!(alone.end(), (vec![], vec![]));
    let counts = alone.waiting.counts();
    assert_eq!((counts.matched_messages, counts.unmatched_messages), (0, 1));
}

/// Two receives are started, and the second is completed first.
#[test]
fn receives_that_are_completed_in_another_order_are_counted() {
    for (requests, reordered) in [([1, 2], 0), ([2, 1], 1)] {
        let mut events = vec![(0, 0, Enter("main")), (0, 1, Enter("main"))];
        for (time, request) in [(5, 1), (8, 2)] {
            events.extend([
                (time, 1, Enter("MPI_Irecv")),
                (time + 1, 1, Start(request)),
                (time + 2, 1, Leave),
            ]);
        }
        for (time, request) in [(20, requests[0]), (40, requests[1])] {
            events.extend([
                (time, 1, Enter("MPI_Wait")),
                (time + 10, 0, Enter("MPI_Send")),
                (time + 10, 0, Send(1)),
                (time + 11, 0, Leave),
                (time + 15, 1, Complete(request, 0)),
                (time + 15, 1, Leave),
            ]);
        }
        let mut run = run(2, &events);
        run.end();
        let counts = run.waiting.counts();
        assert_eq!((counts.matched_messages, counts.reordered_receives), (2, reordered));
    }
}

/// Communicators between two groups of ranks are not known here.
#[test]
fn messages_of_an_unknown_communicator_are_counted_and_wait_for_nothing() {
    let mut run = Run::of(&[0; 2], 0);
    for (time, rank, action) in late_send() {
        let message = Message { peer: 0, comm: 9, tag: 7, request: None };
        let operation = match action {
            Send(_) => Operation::Send(message),
            Receive(_) => Operation::Receive(message),
            other => {
                run.act(rank, time, &other);
                continue;
            }
        };
        run.waiting.communicate(run.locations[rank], time, operation);
    }
    assert_eq!(run.end(), (vec![], vec![]));
    let counts = run.waiting.counts();
    assert_eq!((counts.matched_messages, counts.unmatched_messages), (0, 2));
}

/// The receive of an MPI_Isendrecv is not recorded. The next receive is matched with the send of the MPI_Isendrecv, which was
/// earlier, and no wait is invented.
#[test]
fn a_receive_that_was_not_recorded_leaves_a_send_unmatched() {
    let mut events = late_send();
    let before = [(5, 0, Enter("MPI_Isendrecv")), (5, 0, Send(1)), (6, 0, Leave)];
    events.splice(2..2, before);
    let mut run = run(2, &events);
    assert_eq!(run.end(), (vec![], vec![]));
    let counts = run.waiting.counts();
    assert_eq!((counts.matched_messages, counts.unmatched_messages), (1, 1));
}

#[test]
fn a_wait_between_nodes_that_is_shorter_than_twice_the_clock_error_does_not_count() {
    for (error, expected) in [(40, 1), (41, 0)] {
        let mut run = Run::of(&[0, 1], error);
        late_send().iter().for_each(|(time, rank, action)| run.act(*rank, *time, action));
        assert_eq!(run.end().0.len(), expected, "an error of {error}");
    }
    let mut run = Run::of(&[1, 1], 1000);
    late_send().iter().for_each(|(time, rank, action)| run.act(*rank, *time, action));
    assert_eq!(run.end().0.len(), 1, "on one node, the error does not matter");
}

/// Ranks that wait for each other in a circle, as wrong clocks could show it.
#[test]
fn a_circle_of_waits_ends() {
    let (waited, caused) = waits(
        2,
        &[
            (0, 0, Enter("main")),
            (0, 1, Enter("main")),
            (10, 0, Enter("MPI_Recv")),
            (11, 1, Enter("MPI_Recv")),
            (100, 0, Receive(1)),
            (100, 1, Receive(0)),
            (100, 0, Leave),
            (100, 1, Leave),
            (100, 0, Enter("MPI_Send")),
            (100, 0, Send(1)),
            (100, 0, Leave),
            (100, 1, Enter("MPI_Send")),
            (100, 1, Send(0)),
            (100, 1, Leave),
            (120, 0, Leave),
            (120, 1, Leave),
        ],
    );
    assert_eq!(waited.iter().map(|row| row.2).sum::<f64>(), 90.0 + 89.0);
    assert!(!caused.is_empty());
}

/// A ring of messages and barriers, with delays that differ.
fn ring(rounds: u64, mut each: impl FnMut(Timestamp, usize, Do)) {
    for rank in 0..3 {
        each(0, rank, Enter("main"));
    }
    for round in 0..rounds {
        let mut events: Vec<(Timestamp, usize, Do)> = Vec::new();
        for rank in 0..3usize {
            let (before, after) = ((rank + 2) % 3, (rank + 1) % 3);
            let late = 7 * ((round + rank as u64) % 3) + 3;
            let start = 100 * round;
            events.extend([
                (start + 1, rank, Enter("work")),
                (start + late, rank, Leave),
                (start + late, rank, Enter("MPI_Send")),
                (start + late + 1, rank, Send(after as u32)),
                (start + late + 1, rank, Leave),
                (start + late + 2, rank, Enter("MPI_Recv")),
                (start + 30, rank, Receive(before as u32)),
                (start + 30, rank, Leave),
                (start + 30 + late, rank, Enter("MPI_Barrier")),
                (start + 60, rank, Collective(CollectiveKind::Barrier, None)),
                (start + 60, rank, Leave),
            ]);
        }
        events.sort_by_key(|event| event.0);
        events.into_iter().for_each(|(time, rank, action)| each(time, rank, action));
    }
}

/// The same figures come out whenever waits are settled, and the history does not grow.
#[test]
fn waits_are_settled_in_constant_memory() {
    let rounds = 3000;
    let figures = [(usize::MAX, usize::MAX), (0, usize::MAX), (64, 4096)].map(|(least, most)| {
        let mut run = Run::of(&[0; 3], 0);
        (run.waiting.history_min, run.waiting.history_long) = (least, most);
        let (mut kept, mut next) = (0, 10_000);
        ring(rounds, |time, rank, action| {
            if time >= next {
                run.sample(next);
                next += 10_000;
            }
            run.act(rank, time, &action);
            let view = run.view;
            run.waiting.settle(&mut run.engine, [view].into_iter(), time);
            kept = kept.max(run.engine.history_kept());
        });
        run.sample(100 * rounds);
        run.waiting.end(&mut run.engine);
        assert_eq!(run.waiting.counts().cut_calls, 0);
        let waits = run.waiting.of_view(run.view).cloned().unwrap_or_default();
        let sum = |rows: &ByPath| rows.iter().map(|(_, joules)| joules.sum()).sum::<f64>();
        (sum(&waits.waited), sum(&waits.caused), kept)
    });
    let [all, often, bounded] = figures;
    assert!(all.0 > 10_000.0 && (all.0 - all.1).abs() < 1e-6, "{all:?}");
    assert!(
        (often.0 - all.0).abs() < 1e-6 && (bounded.0 - all.0).abs() < 1e-6,
        "{all:?} {often:?} {bounded:?}"
    );
    assert!(all.2 > 60_000 && bounded.2 < 8_000, "{all:?} {bounded:?}");
}

/// While a rank waits, the rank that it waits for makes many calls. Their times are exact in a history of constant length.
#[test]
fn a_long_wait_has_all_of_its_causes() {
    let mut run = Run::of(&[0; 2], 0);
    (run.waiting.history_min, run.waiting.history_long) = (0, 100);
    let view = run.view;
    run.act(0, 0, &Enter("main"));
    run.act(1, 0, &Enter("main"));
    run.act(1, 7, &Enter("MPI_Recv"));
    let mut kept = 0;
    for time in 9..800 {
        run.act(0, time, &if time % 2 == 1 { Enter("f") } else { Leave });
        run.waiting.settle(&mut run.engine, [view].into_iter(), time);
        kept = kept.max(run.engine.history_kept());
    }
    for (time, rank, action) in [
        (800, 0, Enter("MPI_Send")),
        (800, 0, Send(1)),
        (801, 0, Leave),
        (802, 1, Receive(0)),
        (803, 1, Leave),
    ] {
        run.act(rank, time, &action);
    }
    let (waited, caused) = run.end();
    assert_eq!(waited, [("MPI_Recv on 1".to_owned(), "late sender", 793.0)]);
    assert_eq!(caused, [row("f on 0", 396.0), row("main on 0", 397.0)]);
    assert!(run.waiting.counts().cut_calls == 0 && kept < 220, "{kept} moves");
}

/// While a rank waits, there are many readings and CPU times. The sums of its joules are exact in a history of constant length.
#[test]
fn a_long_wait_has_the_joules_of_all_readings() {
    for policy in [Policy::TimeSliced, Policy::BusyOnly, Policy::Active] {
        let [all, short] = [usize::MAX, 100].map(|long| {
            let mut run = Run::by(policy, &[0; 2], 0);
            (run.waiting.history_min, run.waiting.history_long) = (0, long);
            run.act(0, 0, &Enter("main"));
            run.act(1, 0, &Enter("main"));
            run.act(1, 7, &Enter("MPI_Recv"));
            let view = run.view;
            let mut kept = 0;
            let mut cpu_time = 0.0;
            for time in 9..900 {
                cpu_time += (time % 7) as f64 / 7.0;
                run.engine.add_cpu_time(run.locations[1], time, cpu_time);
                run.engine.sample(view, time, Increase::Joules((time % 13) as f64));
                run.waiting.settle(&mut run.engine, [view].into_iter(), time);
                kept = kept.max(run.engine.history_kept());
            }
            run.last_sample = 899;
            for (time, rank, action) in [
                (920, 0, Enter("MPI_Send")),
                (920, 0, Send(1)),
                (921, 0, Leave),
                (922, 1, Receive(0)),
                (923, 1, Leave),
            ] {
                run.act(rank, time, &action);
            }
            (run.end(), kept)
        });
        let joules = |((waited, _), _): &((Waited, Caused), usize)| waited[0].2;
        let (exact, found) = (joules(&all), joules(&short));
        assert!(
            exact > 100.0 && (exact - found).abs() < 1e-9 * exact,
            "{policy:?}: {found} J are not {exact} J"
        );
        assert!(all.1 > 800 && short.1 < 300, "{policy:?}: {} and {} are kept", all.1, short.1);
    }
}

/// Ranks 0 and 1 are here, rank 2 of their communicator is on another node. They become known one after the other.
#[test]
fn ranks_of_a_running_job_wait_for_those_of_their_node() {
    let mut run = Run::of(&[0, 0], 0);
    run.waiting.ranks = Ranks::new(Vec::new(), std::iter::empty(), 0, 1000);
    let rank = |number: u32| {
        let location = LocationIndex(number);
        Rank { main: Some(location), locations: vec![location], number: Some(number), ..Rank::default() }
    };
    for known in [1, 2] {
        run.waiting.set_ranks((0..known).map(rank).collect(), &mut run.engine);
    }
    assert!(!run.waiting.is_part());
    run.waiting.add_comm(0, Comm::Members(vec![0, 1, ELSEWHERE]));
    assert!(run.waiting.is_part() && run.waiting.knows(LocationIndex(1)));
    let barrier = Collective(CollectiveKind::Barrier, None);
    let [from_elsewhere, from_here] = [2, 0].map(|root| Collective(CollectiveKind::OneToAll, Some(root)));
    let events = [
        (0, 0, Enter("late")),
        (0, 0, Enter("MPI_Barrier")),
        (0, 1, Enter("slow")),
        (100, 1, Enter("MPI_Barrier")),
        (300, 0, barrier),
        (300, 0, Leave),
        (300, 1, Collective(CollectiveKind::Barrier, None)),
        (300, 1, Leave),
        (300, 0, Enter("MPI_Recv")),
        (400, 0, Receive(2)),
        (400, 0, Leave),
        (400, 1, Enter("MPI_Bcast")),
        (450, 0, Enter("MPI_Bcast")),
        (500, 0, from_elsewhere),
        (500, 0, Leave),
        (500, 1, Collective(CollectiveKind::OneToAll, Some(2))),
        (500, 1, Leave),
        (500, 1, Enter("MPI_Bcast")),
        (600, 0, Enter("MPI_Bcast")),
        (650, 0, from_here),
        (650, 0, Leave),
        (650, 1, Collective(CollectiveKind::OneToAll, Some(0))),
        (650, 1, Leave),
        (700, 0, Leave),
        (700, 1, Leave),
    ];
    for (time, rank, action) in &events {
        run.act(*rank, *time, action);
    }
    let (waited, _) = run.end();
    let kinds: Vec<(&str, &str)> = waited.iter().map(|(path, kind, _)| (path.as_str(), *kind)).collect();
    assert_eq!(kinds, [("MPI_Barrier on 0", "barrier"), ("MPI_Bcast on 1", "1-to-n")]);
    assert_eq!(run.waiting.counts().unmatched_messages, 1);
}
