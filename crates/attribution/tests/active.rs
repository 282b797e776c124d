//! The policy *active* against its definition, on random timelines.

use ampere_attribution::{Engine, IdleIntervals, Increase, LocationIndex, Policy, Sharing, ViewIndex};
use ampere_model::RegionRef;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// The number of locations. The last one is not a consumer, and works for the first.
const LOCATIONS: usize = 4;
const CONSUMERS: usize = 3;
/// The index of other jobs' CPU time, after the indices of all locations.
const OTHER_JOBS: usize = LOCATIONS;

#[derive(Clone, Debug)]
enum Event {
    Enter(u64, usize, u32),
    Leave(u64, usize),
    /// The counter's increase since the last sample.
    Sample(u64, f64),
}

#[derive(Clone, Debug)]
struct Case {
    events: Vec<Event>,
    /// For each location, and last for the other jobs: times and the CPU time up to them, if it is known.
    cpu_times: Vec<Option<Vec<(u64, f64)>>>,
    /// Joules per tick.
    baseline: f64,
}

/// A time in which one location was in a call path: its start, its end, and the path.
type Run = (u64, u64, Vec<u32>);
type Joules = BTreeMap<(usize, Vec<u32>), f64>;

#[derive(Debug, Default)]
struct Expected {
    fixed: Joules,
    dynamic: Joules,
    resolved: Joules,
    possible: Joules,
    idle: f64,
    other_jobs: f64,
    /// Whether other jobs used exactly the CPU time from which on they count as active in an interval.
    is_borderline: bool,
}

fn any_case() -> impl Strategy<Value = Case> {
    let step = (0u64..6, 0u8..6, 0usize..LOCATIONS, 97u32..100, 0u32..50);
    let cpu_times = prop::collection::vec((1u64..8, 0u32..8), 1..60).prop_map(|steps| {
        let (mut time, mut ticks) = (0, 0.0);
        let next = steps.into_iter().map(|(wait, used)| {
            time += wait;
            ticks += f64::from(used).min(wait as f64);
            (time, ticks)
        });
        next.collect::<Vec<_>>()
    });
    let cpu_times = prop::collection::vec(prop::option::weighted(0.7, cpu_times), LOCATIONS + 1);
    let baseline = prop_oneof![Just(0.0), 0.0f64..20.0];
    (prop::collection::vec(step, 1..150), cpu_times, baseline).prop_map(|(steps, cpu_times, baseline)| {
        let mut time = 1;
        let mut last_sample = 0;
        let mut depth = [0usize; LOCATIONS];
        let mut events = Vec::new();
        for (step, what, location, region, joules) in steps {
            time += step;
            match what {
                0 | 1 if location < CONSUMERS => {
                    depth[location] += 1;
                    events.push(Event::Enter(time, location, region));
                }
                2 | 3 if depth[location] > 0 => {
                    depth[location] -= 1;
                    events.push(Event::Leave(time, location));
                }
                _ => {
                    time = time.max(last_sample + 1);
                    last_sample = time;
                    events.push(Event::Sample(time, f64::from(joules)));
                }
            }
        }
        Case { events, cpu_times, baseline }
    })
}

/// Returns the CPU time up to a time, which rises evenly between the points.
fn cpu_ticks(points: &[(u64, f64)], time: u64) -> f64 {
    let mut points_from: Vec<(u64, f64)> = points.to_vec();
    points_from.insert(0, (0, points[0].1));
    points_from.push((u64::MAX, points[points.len() - 1].1));
    let pair = points_from.windows(2).rfind(|pair| pair[0].0 <= time && time < pair[1].0).unwrap();
    let share = (time - pair[0].0) as f64 / (pair[1].0 - pair[0].0) as f64;
    pair[0].1 + share * (pair[1].1 - pair[0].1)
}

fn runs_of(events: &[Event]) -> Vec<Vec<Run>> {
    let mut runs = vec![Vec::new(); LOCATIONS];
    let mut stacks: Vec<(u64, Vec<u32>)> = vec![(0, Vec::new()); LOCATIONS];
    let end = (0..CONSUMERS).map(|location| Event::Leave(u64::MAX, location));
    for event in events.iter().cloned().chain(end) {
        let (Event::Enter(time, location, _) | Event::Leave(time, location)) = event else { continue };
        let (since, stack) = &mut stacks[location];
        if !stack.is_empty() {
            runs[location].push((*since, time, stack.clone()));
        }
        *since = time;
        match event {
            Event::Enter(_, _, region) => stack.push(region),
            _ => drop(stack.pop()),
        }
    }
    runs
}

/// Computes the joules by the definition, interval by interval. Static joules are shared at every instant.
fn defined(case: &Case) -> Expected {
    let runs = runs_of(&case.events);
    let mut expected = Expected::default();
    let mut start = None;
    for event in &case.events {
        let Event::Sample(end, joules) = *event else { continue };
        let Some(start) = start.replace(end) else { continue };
        let fixed = joules.min(case.baseline * (end - start) as f64);
        for tick in start..end {
            let is_open = |run: &&Run| run.0 <= tick && tick < run.1;
            let open: Vec<_> = (0..CONSUMERS)
                .filter_map(|at| Some((at, runs[at].iter().find(is_open)?.2.clone())))
                .collect();
            let slice = fixed / (end - start) as f64;
            expected.idle += if open.is_empty() { slice } else { 0.0 };
            for key in &open {
                *expected.fixed.entry(key.clone()).or_default() += slice / open.len() as f64;
            }
        }
        let mut weights = Joules::new();
        for (at, runs) in runs.iter().enumerate().take(CONSUMERS) {
            let pieces: Vec<_> = runs
                .iter()
                .map(|(from, until, path)| (start.max(*from), end.min(*until), path))
                .filter(|(from, until, _)| from < until)
                .collect();
            let open: u64 = pieces.iter().map(|(from, until, _)| until - from).sum();
            let worker = case.cpu_times[CONSUMERS].as_deref().filter(|_| at == 0);
            let worked = worker.map_or(0.0, |points| cpu_ticks(points, end) - cpu_ticks(points, start));
            for (from, until, path) in pieces {
                let own = case.cpu_times[at].as_deref();
                let ticks = (until - from) as f64;
                let own = own.map_or(ticks, |points| cpu_ticks(points, until) - cpu_ticks(points, from));
                *weights.entry((at, path.clone())).or_default() += own + worked * ticks / open as f64;
            }
        }
        weights.retain(|_, weight| *weight > 1e-12);
        let all: f64 = weights.values().sum();
        let others = case.cpu_times[OTHER_JOBS].as_deref();
        let others = others.map_or(0.0, |points| cpu_ticks(points, end) - cpu_ticks(points, start));
        let excess = others - 0.1 * (end - start) as f64;
        expected.is_borderline |= excess.abs() < 1e-9;
        let of_others = match all + others {
            sum if sum > 0.0 && (all > 0.0 || excess > 0.0) => (joules - fixed) * others / sum,
            _ => 0.0,
        };
        let dynamic = joules - fixed - of_others;
        expected.other_jobs += of_others;
        expected.idle += of_others + if weights.is_empty() { dynamic } else { 0.0 };
        for (key, weight) in &weights {
            *expected.dynamic.entry(key.clone()).or_default() += dynamic * weight / all;
            *expected.possible.entry(key.clone()).or_default() += joules - fixed;
            if weights.len() == 1 && excess <= 0.0 {
                *expected.resolved.entry(key.clone()).or_default() += dynamic;
            }
        }
    }
    expected
}

/// Runs the engine. Either all points of CPU time are added before the first event, or each as late as is allowed: before an
/// event, those up to its time and the one after that. In the second case, the worker is added only when the consumer that it
/// works for first has a frame, and CPU times are released as soon as is allowed.
fn run(case: &Case, points_first: bool) -> (Engine, ViewIndex) {
    run_with(case, points_first, |_, _| {})
}

fn run_with(case: &Case, points_first: bool, start: impl Fn(&mut Engine, ViewIndex)) -> (Engine, ViewIndex) {
    let mut engine = Engine::new();
    let view = engine.add_view(Policy::Active, Sharing::Shared);
    start(&mut engine, view);
    let all: Vec<LocationIndex> = (0..LOCATIONS).map(|_| engine.add_location()).collect();
    all[..CONSUMERS].iter().for_each(|location| engine.bind(view, *location));
    if points_first {
        engine.add_worker(view, all[CONSUMERS], all[0]);
    }
    engine.set_baseline(view, case.baseline);
    let other_jobs = engine.add_other_jobs();
    engine.share_with(view, other_jobs);
    let mut points: Vec<_> = case.cpu_times.iter().map(|points| points.iter().flatten()).collect();
    let mut known_until = [0; LOCATIONS + 1];
    let mut add_until = |engine: &mut Engine, time: u64| {
        for (at, points) in points.iter_mut().enumerate() {
            while known_until[at] < time
                && let Some((time, ticks)) = points.next()
            {
                match all.get(at) {
                    Some(location) => engine.add_cpu_time(*location, *time, *ticks),
                    None => engine.add_cpu_time_of_other_jobs(other_jobs, *time, *ticks),
                }
                known_until[at] = *time;
            }
        }
    };
    if points_first {
        add_until(&mut engine, u64::MAX);
    }
    for event in &case.events {
        let (Event::Enter(time, ..) | Event::Leave(time, ..) | Event::Sample(time, _)) = *event;
        add_until(&mut engine, time);
        match *event {
            Event::Enter(time, location, region) => {
                if location == 0 {
                    engine.add_worker(view, all[CONSUMERS], all[0]);
                }
                engine.enter(all[location], time, RegionRef(region));
            }
            Event::Leave(time, location) => engine.leave(all[location], time),
            Event::Sample(time, joules) => {
                let begun = engine.has_begun(view);
                engine.sample(view, time, if begun { Increase::Joules(joules) } else { Increase::First });
            }
        }
        if !points_first {
            engine.release_cpu_times(time);
        }
    }
    (engine, view)
}

fn close_to(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * a.abs().max(b.abs()).max(1.0)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(
        std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(1000)
    ))]

    #[test]
    fn the_engine_agrees_with_the_definition(case in any_case()) {
        let expected = defined(&case);
        prop_assume!(!expected.is_borderline);
        let (engine, view) = run(&case, true);
        let report = engine.report(view);
        let totals = report.totals;
        prop_assert!(close_to(totals.idle_joules, expected.idle), "idle {} {}", totals.idle_joules, expected.idle);
        prop_assert!(close_to(totals.other_jobs_joules, expected.other_jobs), "others {totals:?} {}", expected.other_jobs);
        prop_assert!(totals.conservation_error_joules <= 1e-9 * totals.total_joules.max(1.0));
        prop_assert!(close_to(totals.static_joules + totals.dynamic_joules, totals.total_joules));
        for row in &report.callpaths {
            let key = (row.location.0 as usize, row.path.iter().map(|region| region.0).collect::<Vec<_>>());
            let of = |joules: &Joules| joules.get(&key).copied().unwrap_or(0.0);
            let (fixed, dynamic) = (of(&expected.fixed), of(&expected.dynamic));
            prop_assert!(close_to(row.exclusive_joules, fixed + dynamic), "{key:?} {row:?} {fixed} {dynamic}");
            prop_assert!(close_to(row.dynamic_joules, dynamic), "{key:?} {row:?} {dynamic}");
            let is_below = |path: &(usize, Vec<u32>)| path.0 == key.0 && path.1.starts_with(&key.1);
            let below = expected.dynamic.iter().filter(|(path, _)| is_below(path)).map(|(_, joules)| joules);
            prop_assert!(close_to(row.inclusive_dynamic_joules, below.sum()), "{row:?}");
            prop_assert!(close_to(row.resolved_joules, of(&expected.resolved)), "{row:?} {}", of(&expected.resolved));
            prop_assert!(close_to(row.possible_joules, of(&expected.possible)), "{row:?} {}", of(&expected.possible));
        }
        let all = expected.fixed.values().chain(expected.dynamic.values()).sum::<f64>();
        prop_assert!(close_to(all, totals.attributed_joules));
    }

    #[test]
    fn calls_have_the_joules_of_their_call_path(case in any_case()) {
        let (mut engine, view) = run_with(&case, true, |engine, view| engine.record_calls(view));
        let (mut sums, mut calls) = (BTreeMap::new(), Vec::new());
        engine.end_calls(view, &mut calls);
        for call in &calls {
            let sum: &mut [f64; 3] = sums.entry((call.location, call.node)).or_default();
            let joules = [call.exclusive_joules, call.dynamic_joules, call.resolved_joules];
            sum.iter_mut().zip(joules).for_each(|(sum, joules)| *sum += joules);
        }
        for row in engine.report(view).callpaths {
            let [exclusive, dynamic, resolved] =
                sums.get(&(row.location, row.node)).copied().unwrap_or_default();
            prop_assert!(close_to(row.exclusive_joules, exclusive), "{row:?} {exclusive}");
            prop_assert!(close_to(row.dynamic_joules, dynamic), "{row:?} {dynamic}");
            prop_assert!(resolved <= row.resolved_joules + 1e-9, "{row:?} {resolved}");
        }
    }

    #[test]
    fn it_does_not_matter_how_early_cpu_times_come(case in any_case()) {
        let (first, view) = run(&case, true);
        let (late, _) = run(&case, false);
        prop_assert_eq!(first.report(view).callpaths, late.report(view).callpaths);
        prop_assert_eq!(first.totals(view), late.totals(view));
    }
}

#[test]
fn a_location_that_sleeps_in_a_frame_uses_static_joules_only() {
    let mut engine = Engine::new();
    let view = engine.add_view(Policy::Active, Sharing::Shared);
    let [works, sleeps] = [(); 2].map(|()| engine.add_location());
    for location in [works, sleeps] {
        engine.bind(view, location);
        engine.enter(location, 0, RegionRef(location.0));
    }
    engine.set_baseline(view, 2.0);
    engine.add_cpu_time(sleeps, 0, 3.0);
    engine.add_cpu_time(sleeps, 10, 3.0);
    engine.sample(view, 0, Increase::First);
    engine.sample(view, 10, Increase::Joules(50.0));
    let joules: Vec<_> = engine
        .report(view)
        .callpaths
        .iter()
        .map(|row| (row.location, row.exclusive_joules, row.dynamic_joules, row.resolved_joules))
        .collect();
    assert_eq!(joules, [(works, 40.0, 30.0, 30.0), (sleeps, 10.0, 0.0, 0.0)]);
}

/// A thread whose samples have a row of their own, until its first call is recorded on a further location.
#[test]
fn a_thread_works_either_in_its_samples_or_for_the_main_thread() {
    let mut engine = Engine::new();
    let view = engine.add_view(Policy::Active, Sharing::Shared);
    let [main, samples, recorded] = [(); 3].map(|()| engine.add_location());
    engine.bind(view, main);
    engine.bind(view, samples);
    engine.add_worker(view, recorded, main);
    engine.share_cpu_time(samples, recorded);
    engine.add_cpu_time(main, 0, 0.0);
    engine.add_cpu_time(recorded, 0, 0.0);
    engine.add_cpu_time(recorded, 30, 30.0);
    engine.enter(main, 0, RegionRef(0));
    engine.sample(view, 0, Increase::First);
    engine.enter(samples, 2, RegionRef(1)); // it has used the first ticks before its first sample
    engine.sample(view, 10, Increase::Joules(10.0));
    engine.leave(samples, 14);
    engine.enter(recorded, 14, RegionRef(2));
    engine.sample(view, 20, Increase::Joules(10.0));
    engine.sample(view, 30, Increase::Joules(10.0));
    let rows = engine.report(view).callpaths;
    let joules: Vec<_> = rows.iter().map(|row| (row.location, row.exclusive_joules)).collect();
    assert_eq!(joules, [(main, 16.0), (samples, 14.0)]);
}

/// Makes a run of one location that computes all the time, next to other jobs that use this many ticks of every ten.
fn next_to(other_jobs: f64) -> (Engine, ViewIndex) {
    let mut engine = Engine::new();
    let view = engine.add_view(Policy::Active, Sharing::Shared);
    let location = engine.add_location();
    engine.bind(view, location);
    engine.enter(location, 0, RegionRef(7));
    engine.set_baseline(view, 2.0);
    let jobs = engine.add_other_jobs();
    engine.share_with(view, jobs);
    for interval in 0..=2 {
        engine.add_cpu_time_of_other_jobs(jobs, 10 * interval, other_jobs * interval as f64);
        engine.sample(
            view,
            10 * interval,
            if interval == 0 { Increase::First } else { Increase::Joules(50.0) },
        );
    }
    (engine, view)
}

#[test]
fn other_jobs_take_their_part_of_dynamic_joules_only() {
    let figures = |ticks: f64| {
        let (engine, view) = next_to(ticks);
        let (totals, rows) = (engine.totals(view), engine.report(view).callpaths);
        let row = &rows[0];
        assert_eq!(totals.attributed_joules + totals.idle_joules, totals.total_joules);
        (row.exclusive_joules, row.resolved_joules, row.possible_joules, totals.other_jobs_joules)
    };
    assert_eq!(figures(0.0), (100.0, 60.0, 60.0, 0.0), "a run alone on its node");
    assert_eq!(figures(10.0), (70.0, 0.0, 60.0, 30.0), "as much CPU time as the run's");
    assert_eq!(figures(20.0), (60.0, 0.0, 60.0, 40.0), "on two CPUs");
    let (joules, resolved, _, others) = figures(0.5);
    assert!(
        resolved > 57.0 && joules == 40.0 + resolved,
        "the system's own work: {joules} J, {resolved} J resolved"
    );
    assert!((others - 60.0 * 0.5 / 10.5).abs() < 1e-9);
}

/// The counter shows the joules of activity one interval late.
#[test]
fn the_first_intervals_after_activity_are_no_baseline() {
    let mut engine = Engine::new();
    let view = engine.add_view(Policy::Active, Sharing::Shared);
    let location = engine.add_location();
    engine.bind(view, location);
    engine.enter(location, 0, RegionRef(0));
    let mut cpu_ticks = 0.0;
    for interval in 0..=12 {
        let runs = [2, 8].contains(&interval);
        cpu_ticks += if runs { 10.0 } else { 0.0 };
        engine.add_cpu_time(location, 10 * interval, cpu_ticks);
        let joules = if [3, 9].contains(&interval) { 500.0 } else { 50.0 };
        let increase = if interval == 0 { Increase::First } else { Increase::Joules(joules) };
        engine.sample(view, 10 * interval, increase);
    }
    // These are the intervals before the first activity, and those from the third one after each activity on.
    let IdleIntervals { count, joules, ticks } = engine.idle_intervals(view);
    assert_eq!((count, joules, ticks), (1 + 3 + 2, 6.0 * 50.0, 60));
}

#[test]
fn energy_of_other_jobs_while_the_run_sleeps_is_no_baseline() {
    for (ticks, expected) in [(0.0, (2, 0.0)), (0.9, (2, 0.0)), (5.0, (0, 60.0))] {
        let mut engine = Engine::new();
        let view = engine.add_view(Policy::Active, Sharing::Shared);
        engine.set_baseline(view, 2.0);
        let jobs = engine.add_other_jobs();
        engine.share_with(view, jobs);
        for interval in 0..=2 {
            engine.add_cpu_time_of_other_jobs(jobs, 10 * interval, ticks * interval as f64);
            let increase = if interval == 0 { Increase::First } else { Increase::Joules(50.0) };
            engine.sample(view, 10 * interval, increase);
        }
        let totals = engine.totals(view);
        assert_eq!((engine.idle_intervals(view).count, totals.other_jobs_joules), expected, "{ticks}");
        assert_eq!(totals.idle_joules, 100.0);
    }
}
