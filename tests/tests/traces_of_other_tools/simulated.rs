//! Counters that are computed from what threads did, so that the truth is known: a baseline, and watts for each thread that is on
//! a CPU, by the function that it is in.

use crate::*;
use ampere_tests::random::{Random, rounds};
use std::collections::BTreeMap;

const BASELINE_WATTS: u64 = 40;
/// The threads of each rank.
const THREADS: [usize; 4] = [1, 3, 2, 1];
/// In each phase, threads are in functions of this phase. Nothing is active between two phases, for longer than any counter
/// needs to move.
const PHASES: u64 = 3;
const PHASE: u64 = 2 * SECOND;
const PAUSE: u64 = SECOND / 2;
const END: u64 = PHASES * (PAUSE + PHASE) + PAUSE;
const FUNCTIONS_PER_PHASE: u64 = 4;

/// A time in which a thread is on a CPU. Times are in microseconds.
struct Burst {
    thread: (usize, usize),
    function: usize,
    from: u64,
    until: u64,
}

/// The watts of a thread in each function.
struct Watts(Vec<u64>);

impl Watts {
    /// All functions of a phase draw the same power.
    fn by_phase(random: &mut Random) -> Watts {
        let phases: Vec<u64> = (0..PHASES).map(|_| 2 + random.below(30)).collect();
        Watts((0..PHASES * FUNCTIONS_PER_PHASE).map(|f| phases[(f / FUNCTIONS_PER_PHASE) as usize]).collect())
    }

    fn by_function(random: &mut Random) -> Watts {
        Watts((0..PHASES * FUNCTIONS_PER_PHASE).map(|_| 2 + random.below(30)).collect())
    }

    fn microjoules(&self, burst: &Burst, until: u64) -> u64 {
        self.0[burst.function] * until.min(burst.until).saturating_sub(burst.from)
    }
}

/// Writes what a thread does in all phases. Threads with a higher number sleep more.
fn thread(
    trace: &mut Trace,
    random: &mut Random,
    (rank, thread): (usize, usize),
    location: LocationRef,
    cpu_time: MetricClassRef,
) -> Vec<Burst> {
    let regions: Vec<RegionRef> =
        (0..PHASES * FUNCTIONS_PER_PHASE).map(|f| trace.region(&format!("f{f}"))).collect();
    let mut writer = trace.writer(location);
    let point = |writer: &mut EventWriter, time: u64, used: u64| {
        writer.metric(time, cpu_time, &[MetricValue::U64(used * 1000)]).expect("a point");
    };
    let (mut bursts, mut used) = (Vec::new(), 0);
    point(&mut writer, 0, 0);
    for phase in 0..PHASES {
        let begin = PAUSE + phase * (PAUSE + PHASE);
        let mut time = begin + random.below(20_000);
        while time < begin + PHASE {
            let function = (phase * FUNCTIONS_PER_PHASE + random.below(FUNCTIONS_PER_PHASE)) as usize;
            let leave = (time + 5_000 + random.below(400_000)).min(begin + PHASE);
            writer.enter(time, regions[function]).expect("an event");
            while time < leave {
                let from = (time + random.below(2_000 << (2 * thread))).min(leave);
                let until = (from + 200 + random.below(30_000)).min(leave);
                point(&mut writer, from, used);
                used += until - from;
                point(&mut writer, until, used);
                bursts.push(Burst { thread: (rank, thread), function, from, until });
                time = until;
            }
            writer.leave(leave, regions[function]).expect("an event");
        }
    }
    point(&mut writer, END, used);
    writer.close().expect("a location");
    bursts
}

/// Writes the counter, which moves at multiples of `step`, and is read up to `delay_max` later.
fn counter(
    trace: &mut Trace,
    random: &mut Random,
    node: SystemTreeNodeRef,
    (bursts, watts): (&[Burst], &Watts),
    (step, delay_max): (u64, u64),
) {
    let (group, class) = (trace.group("sampler", node), trace.counter());
    let sampler = trace.location(LocationType::Metric, "sampler", group);
    let mut writer = trace.writer(sampler);
    for time in (0..=END).step_by(step as usize) {
        let dynamic: u64 = bursts.iter().map(|burst| watts.microjoules(burst, time)).sum();
        let value = 7_000_000 + BASELINE_WATTS * time + dynamic;
        let read_at = time + random.below(delay_max + 1);
        writer.metric(read_at, class, &[MetricValue::U64(value)]).expect("a sample");
    }
    writer.close().expect("a location");
}

/// The true dynamic joules, by rank, thread and function.
type Truth = BTreeMap<(usize, usize, usize), f64>;

/// Returns the results for such a trace, offline and live in a replay, and the true dynamic joules of each thread's functions.
fn attributed(
    random: &mut Random,
    watts: &Watts,
    (step, delay_max): (u64, u64),
    sets_baseline: bool,
) -> ([Value; 2], Truth) {
    let mut trace = Trace::new();
    let node = trace.node("a");
    let cpu_time = trace.cpu_time();
    let mut bursts = Vec::new();
    for (rank, threads) in THREADS.into_iter().enumerate() {
        let main = trace.rank(10 * rank as u64, node);
        for number in 0..threads {
            let location = match number {
                0 => main,
                _ => trace.thread(main, &format!("thread {number}")),
            };
            bursts.extend(thread(&mut trace, random, (rank, number), location, cpu_time));
        }
    }
    counter(&mut trace, random, node, (&bursts, watts), (step, delay_max));
    let mut truth = Truth::new();
    for burst in &bursts {
        let key = (burst.thread.0, burst.thread.1, burst.function);
        *truth.entry(key).or_insert(0.0) += watts.microjoules(burst, END) as f64 * 1e-6;
    }
    let baseline = if sets_baseline { format!("baseline_watts = {BASELINE_WATTS}") } else { String::new() };
    let settings = format!(
        "[attribution]\nlocations = 'all'\n[[device]]\nname = 'node'\nmetric = 'energy'\n{baseline}\n"
    );
    let (place, trace) = trace.finish();
    let settings = place.write("ampere.toml", &settings);
    let mut replay = place.ampere(["replay", "--speed", "max", "-o", "out", "--config"]);
    succeed(replay.arg(&settings).arg(&trace));
    let offline = attribute(&trace, &["--config", settings.to_str().expect("UTF-8")]);
    ([offline, place.summary("out")], truth)
}

/// Returns the least, the attributed and the most dynamic joules of each row that `is_it` accepts.
fn figures_of(summary: &Value, table: &str, is_it: impl Fn(&Value) -> bool) -> [f64; 3] {
    let rows = list(&summary["devices"][0]["views"][0], table).iter().filter(|row| is_it(row));
    let rows: Vec<&Value> = rows.collect();
    ["resolved_joules", "dynamic_joules", "possible_joules"]
        .map(|key| rows.iter().map(|row| number(row, key)).sum())
}

/// The truth of each row with its least, attributed and most joules: threads' functions, then functions of all threads.
fn compared(summary: &Value, truth: &BTreeMap<(usize, usize, usize), f64>) -> Vec<(f64, [f64; 3])> {
    let mut of_functions = BTreeMap::new();
    let mut compared = Vec::new();
    for ((rank, thread, function), joules) in truth {
        *of_functions.entry(*function).or_insert(0.0) += joules;
        let name = format!("f{function}");
        let group = format!("MPI Rank {}", 10 * rank);
        let location = if *thread == 0 { "Master thread".to_owned() } else { format!("thread {thread}") };
        let is_it = |row: &Value| {
            row["location_group"] == group.as_str()
                && row["location"] == location.as_str()
                && row["path"].as_array().is_some_and(|path| path.len() == 1 && path[0] == name.as_str())
        };
        compared.push((*joules, figures_of(summary, "callpaths", is_it)));
    }
    for (function, joules) in of_functions {
        let is_it = |row: &Value| row["region"] == format!("f{function}").as_str();
        compared.push((joules, figures_of(summary, "regions", is_it)));
    }
    compared
}

/// How often a counter moves does not matter if all functions that run at a time draw the same.
#[test]
fn dynamic_joules_are_those_that_each_function_has_used() {
    rounds(2, |random| {
        for step in [1, 10, 100] {
            let watts = Watts::by_phase(random);
            let (summaries, truth) = attributed(random, &watts, (step * 1000, 0), false);
            for summary in summaries {
                let baseline = &summary["devices"][0]["baseline"];
                assert_eq!(baseline["kind"], "idle intervals", "{step} ms: {baseline}");
                assert_joules_are(&[number(baseline, "watts")], &[BASELINE_WATTS as f64]);
                for (joules, [least, found, most]) in compared(&summary, &truth) {
                    assert!((found - joules).abs() <= 1e-6 * joules, "{step} ms: {found} J of {joules} J");
                    assert!(least <= joules * (1.0 + 1e-6) && joules <= most * (1.0 + 1e-6), "{step} ms");
                }
            }
        }
    });
}

/// The counter is read up to a tenth of a millisecond after it has moved.
#[test]
fn a_counter_that_is_read_late_changes_dynamic_joules_by_less_than_a_fiftieth() {
    rounds(1, |random| {
        for step in [1, 10, 100] {
            let watts = Watts::by_phase(random);
            let (summaries, truth) = attributed(random, &watts, (step * 1000, 100), true);
            for (joules, [least, found, most]) in summaries.iter().flat_map(|of| compared(of, &truth)) {
                let error = 0.02 * joules + 0.01;
                let is_near = (found - joules).abs() <= error && least <= joules + error;
                assert!(
                    is_near && joules <= most + error,
                    "{step} ms: {joules} J, found {least} to {found} to {most} J"
                );
            }
        }
    });
}

/// Which of two functions that run at the same time draws more is not known, but the bounds hold.
#[test]
fn each_function_has_used_joules_within_its_bounds() {
    rounds(2, |random| {
        for step in [1, 10, 100] {
            let watts = Watts::by_function(random);
            let (summaries, truth) = attributed(random, &watts, (step * 1000, 0), true);
            let all: f64 = truth.values().sum();
            for summary in summaries {
                let found = number(&summary["devices"][0], "dynamic_joules");
                assert!((found - all).abs() <= 1e-6 * all, "{step} ms: {found} J of {all} J");
                for (joules, [least, found, most]) in compared(&summary, &truth) {
                    let is_within = least <= joules * (1.0 + 1e-6) && joules <= most * (1.0 + 1e-6);
                    assert!(is_within, "{step} ms: {joules} J, found {least} to {found} to {most} J");
                }
            }
        }
    });
}
