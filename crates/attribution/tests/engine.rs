//! Checks the engine on timelines that a person can check, against a naive engine on random ones, and its invariants.

use ampere_attribution::{
    CallpathRow, ChargedInterval, Engine, Increase, LocationIndex, Policy, RegionRow, Sharing, Step,
    ViewIndex, ViewReport,
};
use ampere_model::RegionRef;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt::Write;

/// One line of a timeline: `time location enter|leave region` or `time sample value`.
#[derive(Clone, Debug, PartialEq)]
enum Event {
    Enter(u64, usize, u32),
    Leave(u64, usize),
    Sample(u64, u64),
}

fn region(name: &str) -> u32 {
    u32::from(name.bytes().next().unwrap_or(b'?'))
}

fn name(region: RegionRef) -> char {
    char::from(region.0 as u8)
}

fn parse(timeline: &str) -> Vec<Event> {
    timeline
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let time = words[0].parse().unwrap();
            match words[1] {
                "sample" => Event::Sample(time, words[2].parse().unwrap()),
                rank => match words[2] {
                    "enter" => Event::Enter(time, rank[1..].parse().unwrap(), region(words[3])),
                    _ => Event::Leave(time, rank[1..].parse().unwrap()),
                },
            }
        })
        .collect()
}

fn run(events: &[Event], locations: usize, policy: Policy, sharing: Sharing) -> (Engine, ViewIndex) {
    run_grouped(events, &vec![None; locations], policy, sharing)
}

/// Adds one location for each entry of `groups`, in that group or in none; each is a consumer of all views.
fn add_locations(engine: &mut Engine, groups: &[Option<u64>], views: &[ViewIndex]) -> Vec<LocationIndex> {
    let all: Vec<LocationIndex> = groups.iter().map(|_| engine.add_location()).collect();
    for view in views {
        for (location, group) in all.iter().zip(groups) {
            match group {
                Some(group) => engine.bind_member(*view, *location, *group),
                None => engine.bind(*view, *location),
            }
        }
    }
    all
}

/// Returns what a reading of a faultless counter means.
fn increase_to(last: &mut Option<u64>, value: u64) -> Increase {
    match last.replace(value) {
        None => Increase::First,
        Some(before) if value < before => Increase::Reset,
        Some(before) => Increase::Joules((value - before) as f64),
    }
}

/// Runs the engine; `groups` has the group of each location, if it has one.
fn run_grouped(
    events: &[Event],
    groups: &[Option<u64>],
    policy: Policy,
    sharing: Sharing,
) -> (Engine, ViewIndex) {
    let mut engine = Engine::new();
    let view = engine.add_view(policy, sharing);
    let all = add_locations(&mut engine, groups, &[view]);
    let mut last = None;
    for event in events {
        match *event {
            Event::Enter(time, location, region) => engine.enter(all[location], time, RegionRef(region)),
            Event::Leave(time, location) => engine.leave(all[location], time),
            Event::Sample(time, value) => {
                let increase = increase_to(&mut last, value);
                engine.sample(view, time, increase);
            }
        }
    }
    (engine, view)
}

/// Does what `run_grouped` does, but passes the events between two breaks location by location, from the last to the first, all
/// at once, and to two views, which must not affect each other. `queues`: samples are queued if possible, and every other
/// location passes them separately.
fn run_by_location(
    events: &[Event],
    groups: &[Option<u64>],
    policy: Policy,
    sharing: Sharing,
    queues: bool,
) -> (Engine, [ViewIndex; 2]) {
    let mut engine = Engine::new();
    let views = [(); 2].map(|()| engine.add_view(policy, sharing));
    add_locations(&mut engine, groups, &views);
    pass_by_location(&mut engine, &views, events, queues, &mut |_| ());
    (engine, views)
}

/// Passes events location by location. `each` is called after each sample.
fn pass_by_location(
    engine: &mut Engine,
    views: &[ViewIndex],
    events: &[Event],
    queues: bool,
    each: &mut impl FnMut(&Engine),
) {
    let mut last = None;
    let (mut waiting, mut depth) = ([const { Vec::new() }; 4], [0; 4]);
    for event in events {
        let (at, step, is_break) = match *event {
            Event::Enter(time, at, region) => {
                depth[at] += 1;
                (at, Step::enter(time, RegionRef(region), 1), depth[at] == 1)
            }
            Event::Leave(time, at) => {
                depth[at] -= 1;
                (at, Step::leave(time), depth[at] == 0)
            }
            Event::Sample(time, _) => (0, Step::leave(time), true),
        };
        if !is_break {
            waiting[at].push(step);
            continue;
        }
        let mut samples = Vec::new();
        if let Event::Sample(time, value) = *event {
            let increase = increase_to(&mut last, value);
            samples.extend(views.iter().map(|view| (*view, time, increase)));
            samples
                .retain(|(view, time, increase)| !queues || !engine.enqueue_sample(*view, *time, *increase));
            if samples.is_empty() {
                continue;
            }
        }
        pass_all(engine, &mut waiting, each);
        if !matches!(event, Event::Sample(..)) {
            engine.steps(LocationIndex(at as u32), &[step]);
        }
        for (view, time, increase) in samples {
            engine.sample(view, time, increase);
            each(engine);
        }
    }
    pass_all(engine, &mut waiting, each);
}

/// Passes all steps that wait, and the queued samples.
fn pass_all(engine: &mut Engine, waiting: &mut [Vec<Step>], each: &mut impl FnMut(&Engine)) {
    for (at, steps) in waiting.iter_mut().enumerate().rev() {
        let location = LocationIndex(at as u32);
        engine.steps(location, &std::mem::take(steps));
        if at % 2 == 0 {
            engine.pass_queued_samples(location);
        }
    }
    while engine.take_queued_sample().is_some() {
        each(engine);
    }
}

/// Returns call paths and regions, in an order that does not depend on their joules.
fn rows(engine: &Engine, view: ViewIndex) -> (Vec<CallpathRow>, Vec<RegionRow>) {
    let ViewReport { mut callpaths, mut regions, .. } = engine.report(view);
    callpaths.sort_by(|a, b| (a.location, &a.path).cmp(&(b.location, &b.path)));
    regions.sort_by_key(|row| row.region);
    (callpaths, regions)
}

fn table(engine: &Engine, view: ViewIndex) -> String {
    let report = engine.report(view);
    let mut rows: Vec<String> = report
        .callpaths
        .iter()
        .map(|row| {
            let path: String = row.path.iter().map(|r| name(*r)).collect();
            format!(
                "r{} {path} {} {} {} {}",
                row.location.0,
                row.calls,
                digits(row.exclusive_joules),
                digits(row.inclusive_joules),
                digits(row.resolved_joules)
            )
        })
        .collect();
    rows.sort();
    let mut out = rows.join("\n");
    let totals = report.totals;
    write!(out, "\nidle {} total {}", digits(totals.idle_joules), digits(totals.total_joules)).unwrap();
    out
}

/// Rounds to nine digits after the point. Further digits depend on rounding in the engine.
fn digits(joules: f64) -> f64 {
    (joules * 1e9).round() / 1e9
}

#[track_caller]
fn check(timeline: &str, locations: usize, policy: Policy, sharing: Sharing, expected: &str) {
    check_grouped(timeline, &vec![None; locations], policy, sharing, expected);
}

#[track_caller]
fn check_grouped(timeline: &str, groups: &[Option<u64>], policy: Policy, sharing: Sharing, expected: &str) {
    let (engine, view) = run_grouped(&parse(timeline), groups, policy, sharing);
    let expected: Vec<&str> = expected.lines().map(str::trim).filter(|l| !l.is_empty()).collect();
    assert_eq!(table(&engine, view), expected.join("\n"));
}

const ONE_RANK: &str = "
     0 sample 0
    10 r0 enter m
    20 r0 enter f
    30 r0 leave
    40 r0 leave
    50 sample 100
    60 sample 110
";

#[test]
fn time_sliced_charges_each_instant() {
    // Rows: location, path, calls, exclusive, inclusive, resolved. 2 J a tick in [0,50), 1 J a tick after it.
    check(
        ONE_RANK,
        1,
        Policy::TimeSliced,
        Sharing::Shared,
        "r0 m 1 40 60 0
         r0 mf 1 20 20 0
         idle 50 total 110",
    );
}

#[test]
fn busy_only_charges_the_whole_interval_to_frames_that_ran() {
    check(
        ONE_RANK,
        1,
        Policy::BusyOnly,
        Sharing::Shared,
        "r0 m 1 66.666666667 100 0
         r0 mf 1 33.333333333 33.333333333 0
         idle 10 total 110",
    );
}

const TWO_RANKS: &str = "
     0 sample 0
     0 r0 enter m
    10 r1 enter m
    30 r1 leave
    40 sample 80
    40 r0 leave
    50 sample 90
";

#[test]
fn ranks_share_evenly_while_both_are_active() {
    // 2 J a tick: r0 alone 10 + 10 ticks, both 20 ticks.
    check(
        TWO_RANKS,
        2,
        Policy::TimeSliced,
        Sharing::Shared,
        "r0 m 1 60 60 0
         r1 m 1 20 20 0
         idle 10 total 90",
    );
    check(
        TWO_RANKS,
        2,
        Policy::TimeSliced,
        Sharing::Independent,
        "r0 m 1 80 80 0
         r1 m 1 40 40 0
         idle 10 total 90",
    );
    check(
        TWO_RANKS,
        2,
        Policy::BusyOnly,
        Sharing::Independent,
        "r0 m 1 80 80 0
         r1 m 1 80 80 0
         idle 10 total 90",
    );
}

/// Two threads of one process, r0 and r1, next to a process with one, r2.
const THREADS: &str = "
     0 sample 0
     0 r0 enter m
    10 r1 enter w
    20 r2 enter m
    40 sample 80
    40 r1 leave
    40 r0 leave
    50 r2 leave
    60 sample 120
";

#[test]
fn the_threads_of_a_group_share_what_one_consumer_gets() {
    // 2 J a tick: r0 alone 10 ticks; r0 and r1 10 ticks; for 20 ticks r2 has half, r0 and r1 a quarter each.
    let groups = [Some(7), Some(7), Some(9)];
    check_grouped(
        THREADS,
        &groups,
        Policy::TimeSliced,
        Sharing::Shared,
        "r0 m 1 40 40 0
         r1 w 1 20 20 0
         r2 m 1 40 40 0
         idle 20 total 120",
    );
    check_grouped(
        THREADS,
        &groups,
        Policy::TimeSliced,
        Sharing::Independent,
        "r0 m 1 50 50 0
         r1 w 1 30 30 0
         r2 m 1 60 60 0
         idle 20 total 120",
    );
    // Run time of the first interval: r0 10 + 15, r1 15, r2 20, of 60.
    check_grouped(
        THREADS,
        &groups,
        Policy::BusyOnly,
        Sharing::Shared,
        "r0 m 1 33.333333333 33.333333333 0
         r1 w 1 20 20 0
         r2 m 1 66.666666667 66.666666667 0
         idle 0 total 120",
    );
    check_grouped(
        THREADS,
        &groups,
        Policy::BusyOnly,
        Sharing::Independent,
        "r0 m 1 50 50 0
         r1 w 1 30 30 0
         r2 m 1 120 120 0
         idle 0 total 120",
    );
}

#[test]
fn energy_without_time_is_shared_by_groups_too() {
    check_grouped(
        "0 sample 0
         0 r0 enter m
         0 r1 enter w
         0 r2 enter m
         10 sample 0
         10 sample 80",
        &[Some(0), Some(0), None],
        Policy::TimeSliced,
        Sharing::Shared,
        "r0 m 1 20 20 0
         r1 w 1 20 20 0
         r2 m 1 40 40 0
         idle 0 total 80",
    );
}

#[test]
fn a_joule_is_resolved_when_its_interval_belonged_to_one_frame() {
    check(
        "0 r0 enter m
         0 sample 0
         10 sample 10
         15 r0 enter f
         20 sample 20
         30 sample 30
         30 r0 leave
         40 r0 leave",
        1,
        Policy::TimeSliced,
        Sharing::Shared,
        "r0 m 1 15 30 10
         r0 mf 1 15 15 10
         idle 0 total 30",
    );
}

#[test]
fn recursion_counts_once_in_the_inclusive_joules() {
    let timeline = "
        0 sample 0
        0 r0 enter f
        10 r0 enter g
        20 r0 enter f
        30 r0 leave
        30 r0 leave
        30 r0 leave
        30 sample 30";
    let (engine, view) = run(&parse(timeline), 1, Policy::TimeSliced, Sharing::Shared);
    let report = engine.report(view);
    let f = report.regions.iter().find(|r| name(r.region) == 'f').unwrap();
    assert_eq!((f.calls, f.exclusive_joules, f.inclusive_joules), (2, 20.0, 30.0));
}

#[test]
fn frames_that_are_open_are_charged_at_every_sample() {
    let (engine, view) =
        run(&parse("0 r0 enter m\n0 sample 0\n10 sample 5"), 1, Policy::TimeSliced, Sharing::Shared);
    assert_eq!(engine.totals(view).attributed_joules, 5.0);
    assert!(engine.is_open(LocationIndex(0)));
}

#[test]
fn a_reset_is_counted_and_its_interval_unknown() {
    let (engine, view) = run(
        &parse("0 r0 enter m\n0 sample 100\n10 sample 120\n20 sample 5\n30 sample 15"),
        1,
        Policy::TimeSliced,
        Sharing::Shared,
    );
    let totals = engine.totals(view);
    assert_eq!((totals.total_joules, totals.attributed_joules), (30.0, 30.0));
    assert_eq!((totals.counter_resets, totals.unknown_ticks), (1, 10));
    assert_eq!(totals.conservation_error_joules, 0.0);
}

#[test]
fn leaves_without_enters_and_time_that_goes_back_are_counted() {
    let (engine, _) = run(
        &parse("0 sample 0\n5 r0 leave\n10 r0 enter m\n8 r0 leave\n20 sample 20"),
        1,
        Policy::TimeSliced,
        Sharing::Shared,
    );
    let odd = engine.oddities();
    assert_eq!((odd.unmatched_leaves, odd.backward, odd.late), (1, 1, 1));
}

/// A location that turns out to be another device's consumer keeps its joules, and gets no more until it is bound again.
#[test]
fn a_consumer_is_charged_until_it_is_unbound() {
    for policy in [Policy::TimeSliced, Policy::BusyOnly] {
        let mut engine = Engine::new();
        let view = engine.add_view(policy, Sharing::Shared);
        let [one, other, never] = [(); 3].map(|()| engine.add_location());
        [one, other, never].iter().for_each(|location| engine.bind(view, *location));
        engine.unbind(view, never);
        engine.sample(view, 0, Increase::First);
        [one, other, never].iter().for_each(|location| engine.enter(*location, 0, RegionRef(0)));
        engine.sample(view, 10, Increase::Joules(100.0));
        let joules = |engine: &Engine| {
            let rows = engine.report(view).callpaths;
            [one, other, never]
                .map(|l| rows.iter().find(|row| row.location == l).map(|row| row.exclusive_joules))
        };
        assert_eq!(joules(&engine), [Some(50.0), Some(50.0), None]);
        engine.unbind(view, one);
        engine.unbind(view, one);
        engine.sample(view, 20, Increase::Joules(100.0));
        assert_eq!(joules(&engine), [Some(50.0), Some(150.0), None]);
        engine.bind(view, one);
        engine.sample(view, 30, Increase::Joules(100.0));
        assert_eq!(joules(&engine), [Some(100.0), Some(200.0), None]);
        assert_eq!(engine.report(view).callpaths.len(), 2, "{policy:?}: one row each");
        let totals = engine.totals(view);
        assert_eq!((totals.attributed_joules, totals.idle_joules), (300.0, 0.0));
        assert!(engine.is_bound(view, one) && !engine.is_bound(view, never));
    }
}

/// A sample that is older than an event between two breaks is taken at the time of that event.
#[test]
fn a_late_sample_ends_the_interval_at_the_latest_event() {
    let mut engine = Engine::new();
    let view = engine.add_view(Policy::TimeSliced, Sharing::Shared);
    let location = engine.add_location();
    engine.bind(view, location);
    engine.enter(location, 0, RegionRef(0));
    engine.sample(view, 0, Increase::First);
    engine.enter(location, 100, RegionRef(1));
    for late in [0, 50] {
        engine.sample(view, late, Increase::Joules(10.0));
    }
    engine.leave(location, 60);
    engine.sample(view, 200, Increase::Joules(10.0));
    assert_eq!(engine.oddities().late, 3);
    let totals = engine.totals(view);
    assert_eq!(
        (totals.total_joules, totals.attributed_joules, totals.conservation_error_joules),
        (30.0, 30.0, 0.0)
    );
}

/// A location that is bound, unbound and bound again is the same consumer when it is unbound once more.
#[test]
fn a_consumer_may_be_bound_again() {
    let mut engine = Engine::new();
    let view = engine.add_view(Policy::TimeSliced, Sharing::Shared);
    let location = engine.add_location();
    engine.bind(view, location);
    engine.sample(view, 0, Increase::First);
    engine.unbind(view, location);
    engine.bind(view, location);
    // It has been charged nothing yet, but has a row because it may run.
    engine.enter(location, 10, RegionRef(0));
    assert_eq!(engine.report(view).callpaths.len(), 1);
    engine.unbind(view, location);
    assert_eq!(engine.report(view).callpaths.len(), 0);
}

/// A group that is made after others have run for a while in the interval starts with nothing.
#[test]
fn a_group_that_comes_later_has_no_part_in_earlier_joules() {
    let mut engine = Engine::new();
    let view = engine.add_view(Policy::TimeSliced, Sharing::Shared);
    let [first, late] = [(); 2].map(|()| engine.add_location());
    engine.bind(view, first);
    engine.sample(view, 0, Increase::First);
    engine.enter(first, 0, RegionRef(0));
    engine.enter(first, 60, RegionRef(1));
    engine.enter(late, 60, RegionRef(2));
    engine.bind_member(view, late, 7);
    engine.sample(view, 100, Increase::Joules(100.0));
    let mut joules: Vec<(u32, f64)> =
        engine.report(view).regions.iter().map(|row| (row.region.0, row.exclusive_joules)).collect();
    joules.sort_by_key(|(region, _)| *region);
    assert_eq!(joules, [(0, 60.0), (1, 20.0), (2, 20.0)]);
}

#[test]
fn the_share_clock_is_exact_for_very_large_times() {
    let year = 365 * 86_400 * 1_000_000_000u64;
    let start = 1 << 63;
    for gap in [1, year] {
        let events = vec![
            Event::Sample(start, 1),
            Event::Enter(start, 0, 109),
            Event::Leave(start + gap, 0),
            Event::Sample(start + 2 * gap, 5),
        ];
        let (engine, view) = run(&events, 1, Policy::TimeSliced, Sharing::Shared);
        let totals = engine.totals(view);
        assert_eq!((totals.attributed_joules, totals.idle_joules), (2.0, 2.0), "gap {gap}");
    }
}

#[test]
fn depth_and_number_of_call_paths_are_not_limited() {
    let mut engine = Engine::new();
    let view = engine.add_view(Policy::TimeSliced, Sharing::Shared);
    let location = engine.add_location();
    engine.bind(view, location);
    engine.sample(view, 0, Increase::First);
    for time in 0..10_000 {
        engine.enter(location, time, RegionRef(1));
    }
    engine.close(location, 10_000);
    engine.enter(location, 10_000, RegionRef(0));
    for i in 0..100_000u32 {
        engine.enter(location, 10_000 + u64::from(i), RegionRef(2 + i));
        engine.leave(location, 10_001 + u64::from(i));
    }
    engine.close(location, 110_000);
    engine.sample(view, 110_000, Increase::Joules(110_000.0));
    let report = engine.report(view);
    assert_eq!(report.callpaths.len(), 110_001);
    assert!((report.totals.attributed_joules - 110_000.0).abs() < 1e-6);
    let recursive = report.regions.iter().find(|r| r.region == RegionRef(1)).unwrap();
    assert!((recursive.inclusive_joules - 10_000.0).abs() < 1e-6);
}

/// Returns a timeline of up to four ranks with samples, in order, times in steps of 0 to 5.
fn any_timeline() -> impl Strategy<Value = Vec<Event>> {
    prop::collection::vec((0u64..6, 0u8..5, 0usize..4, 97u32..102, 0u64..50), 1..200).prop_map(|steps| {
        let mut time = 1;
        let mut next_sample = 0;
        let mut value = 10;
        let mut depth = [0usize; 4];
        let mut events = Vec::new();
        for (step, what, location, region, joules) in steps {
            time += step;
            match what {
                0 | 1 => {
                    depth[location] += 1;
                    events.push(Event::Enter(time, location, region));
                }
                2 | 3 if depth[location] > 0 => {
                    depth[location] -= 1;
                    events.push(Event::Leave(time, location));
                }
                // No two samples have the same time. Events may have the time of a sample, and come before or after it.
                _ => {
                    time = time.max(next_sample);
                    next_sample = time + 1;
                    value += joules;
                    events.push(Event::Sample(time, value));
                }
            }
        }
        for (location, open) in depth.into_iter().enumerate() {
            for _ in 0..open {
                events.push(Event::Leave(time, location));
            }
        }
        events
    })
}

type Spent = BTreeMap<(usize, Vec<u32>), f64>;

/// Makes four locations, each in one of two groups or in none.
fn any_groups() -> impl Strategy<Value = Vec<Option<u64>>> {
    prop::collection::vec(prop::option::of(0u64..2), 4)
}

/// Computes the joules by the definition, tick by tick, without a share clock.
fn naive(events: &[Event], policy: Policy, groups: &[Option<u64>]) -> (Spent, f64) {
    let samples: Vec<(u64, u64)> = events
        .iter()
        .filter_map(|e| if let Event::Sample(t, v) = e { Some((*t, *v)) } else { None })
        .collect();
    let mut stacks: Vec<Vec<u32>> = vec![Vec::new(); 4];
    let mut spent = Spent::new();
    let mut idle = 0.0;
    let mut next = 0;
    let changes: Vec<&Event> = events.iter().filter(|e| !matches!(e, Event::Sample(..))).collect();
    for pair in samples.windows(2) {
        let ((from, before), (to, after)) = (pair[0], pair[1]);
        let joules = (after - before) as f64;
        let (mut ran, mut total): (Spent, f64) = (Spent::new(), 0.0);
        for tick in from..to {
            while let Some(change) = changes.get(next) {
                match **change {
                    Event::Enter(time, location, region) if time <= tick => stacks[location].push(region),
                    Event::Leave(time, location) if time <= tick => {
                        stacks[location].pop();
                    }
                    _ => break,
                }
                next += 1;
            }
            let active: Vec<_> = stacks.iter().enumerate().filter(|(_, stack)| !stack.is_empty()).collect();
            let slice = joules / (to - from) as f64;
            let sharer = |location: usize| groups[location].ok_or(location);
            let sharers: HashSet<_> = active.iter().map(|(location, _)| sharer(*location)).collect();
            for (location, stack) in &active {
                let members = active.iter().filter(|(other, _)| sharer(*other) == sharer(*location)).count();
                let key = (*location, (*stack).clone());
                match policy {
                    Policy::TimeSliced => {
                        *spent.entry(key).or_default() += slice / sharers.len() as f64 / members as f64;
                    }
                    Policy::BusyOnly => {
                        *ran.entry(key).or_default() += 1.0 / members as f64;
                        total += 1.0 / members as f64;
                    }
                    Policy::Active => unreachable!("active.rs has its definition"),
                }
            }
            if active.is_empty() && policy == Policy::TimeSliced {
                idle += slice;
            }
        }
        if policy == Policy::BusyOnly {
            if total == 0.0 {
                idle += joules;
            }
            for (key, ticks) in ran {
                *spent.entry(key).or_default() += joules * ticks / total;
            }
        }
    }
    (spent, idle)
}

/// What a sample means. The joules of its interval are those of the timeline's values.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Meaning {
    Joules,
    Lost,
    /// The joules, and [`MORE_JOULES`] at the same time.
    Twice,
}

const MORE_JOULES: f64 = 7.0;

/// Runs the engine with these meanings, one for each sample and repeated from the first.
fn run_with_meanings(
    events: &[Event],
    meanings: &[Meaning],
    groups: &[Option<u64>],
    policy: Policy,
    sharing: Sharing,
) -> (Engine, ViewIndex) {
    let mut engine = Engine::new();
    let view = engine.add_view(policy, sharing);
    let all = add_locations(&mut engine, groups, &[view]);
    let (mut meanings, mut last) = (meanings.iter().cycle(), None);
    for event in events {
        match *event {
            Event::Enter(time, location, region) => engine.enter(all[location], time, RegionRef(region)),
            Event::Leave(time, location) => engine.leave(all[location], time),
            Event::Sample(time, value) => {
                let increase = last.replace(value).map(|last| (value - last) as f64);
                let meaning = meanings.next().expect("endless");
                let lost = *meaning == Meaning::Lost;
                let of = |joules| if lost { Increase::Lost(joules) } else { Increase::Joules(joules) };
                engine.sample(view, time, increase.map_or(Increase::First, of));
                if *meaning == Meaning::Twice {
                    engine.sample(view, time, Increase::Joules(MORE_JOULES));
                }
            }
        }
    }
    (engine, view)
}

/// Joules by location and call path, and by region.
#[derive(Default)]
struct Bounds {
    least: Spent,
    most: Spent,
    most_of_regions: BTreeMap<u32, f64>,
}

/// Computes the least and the most joules by their definition, interval by interval, tick by tick.
fn naive_bounds(events: &[Event], meanings: &[Meaning], groups: &[Option<u64>], sharing: Sharing) -> Bounds {
    // The call paths that run in each tick.
    let mut ticks: Vec<BTreeSet<(usize, Vec<u32>)>> = Vec::new();
    let mut stacks: Vec<Vec<u32>> = vec![Vec::new(); 4];
    let mut intervals = Vec::new();
    let (mut meanings, mut last): (_, Option<(u64, u64)>) = (meanings.iter().cycle(), None);
    for event in events {
        let (Event::Enter(time, ..) | Event::Leave(time, _) | Event::Sample(time, _)) = *event;
        let running = stacks.iter().cloned().enumerate().filter(|(_, stack)| !stack.is_empty()).collect();
        ticks.resize(time as usize, running);
        match *event {
            Event::Enter(_, location, region) => stacks[location].push(region),
            Event::Leave(_, location) => drop(stacks[location].pop()),
            Event::Sample(_, value) => {
                let meaning = *meanings.next().expect("endless");
                if let Some((before, known)) = last.replace((time, value)) {
                    intervals.push((before..time, (value - known) as f64, meaning == Meaning::Lost));
                }
                if meaning == Meaning::Twice {
                    intervals.push((time..time, MORE_JOULES, false));
                }
            }
        }
    }
    let mut bounds = Bounds::default();
    for (interval, joules, is_lost) in intervals {
        // An interval without time belongs to the frames that ran just before it.
        let seen = if interval.is_empty() { interval.start - 1..interval.end } else { interval.clone() };
        let mut ran: BTreeMap<&(usize, Vec<u32>), u64> = BTreeMap::new();
        for tick in seen {
            ticks[tick as usize].iter().for_each(|key| *ran.entry(key).or_default() += 1);
        }
        let mut regions = BTreeSet::new();
        for (location, path) in ran.keys() {
            *bounds.most.entry((*location, path.clone())).or_default() += joules;
            let sharer = (sharing == Sharing::Independent).then(|| groups[*location].ok_or(*location));
            regions.insert((path[path.len() - 1], sharer));
        }
        for (region, _) in regions {
            *bounds.most_of_regions.entry(region).or_default() += joules;
        }
        if let (Some((key, length)), 1, false) = (ran.first_key_value(), ran.len(), is_lost)
            && *length == interval.end - interval.start
        {
            *bounds.least.entry((*key).clone()).or_default() += joules;
        }
    }
    bounds
}

fn any_meanings() -> impl Strategy<Value = Vec<Meaning>> {
    let meanings =
        prop_oneof![3 => Just(Meaning::Joules), 1 => Just(Meaning::Lost), 1 => Just(Meaning::Twice)];
    prop::collection::vec(meanings, 1..20)
}

fn close_to(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * a.abs().max(b.abs()).max(1e-9)
}

/// Returns the number of cases, or `PROPTEST_CASES`.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(2000)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases()))]

    #[test]
    fn the_engine_agrees_with_the_definition(events in any_timeline(), groups in any_groups(), busy: bool) {
        let policy = if busy { Policy::BusyOnly } else { Policy::TimeSliced };
        let (engine, view) = run_grouped(&events, &groups, policy, Sharing::Shared);
        let (spent, idle) = naive(&events, policy, &groups);
        let report = engine.report(view);
        prop_assert!(close_to(report.totals.idle_joules, idle), "idle {} {}", report.totals.idle_joules, idle);
        for row in &report.callpaths {
            let key = (row.location.0 as usize, row.path.iter().map(|r| r.0).collect::<Vec<_>>());
            let expected = spent.get(&key).copied().unwrap_or(0.0);
            prop_assert!(close_to(row.exclusive_joules, expected), "{key:?} {} {expected}", row.exclusive_joules);
        }
        let all: f64 = spent.values().sum();
        prop_assert!(close_to(all, report.totals.attributed_joules));
    }

    #[test]
    fn least_and_most_joules_agree_with_the_definition_and_enclose_the_attributed(
        events in any_timeline(), meanings in any_meanings(), groups in any_groups(), busy: bool, independent: bool,
    ) {
        let policy = if busy { Policy::BusyOnly } else { Policy::TimeSliced };
        let sharing = if independent { Sharing::Independent } else { Sharing::Shared };
        let (engine, view) = run_with_meanings(&events, &meanings, &groups, policy, sharing);
        let bounds = naive_bounds(&events, &meanings, &groups, sharing);
        let report = engine.report(view);
        let mut rows = Vec::new();
        for row in &report.callpaths {
            let key = (row.location.0 as usize, row.path.iter().map(|r| r.0).collect::<Vec<_>>());
            let expected = |of: &Spent| of.get(&key).copied().unwrap_or(0.0);
            prop_assert!(close_to(row.resolved_joules, expected(&bounds.least)), "{row:?} {}", expected(&bounds.least));
            prop_assert!(close_to(row.possible_joules, expected(&bounds.most)), "{row:?} {}", expected(&bounds.most));
            rows.push((row.resolved_joules, row.exclusive_joules, row.possible_joules));
        }
        for row in &report.regions {
            let expected = bounds.most_of_regions.get(&row.region.0).copied().unwrap_or(0.0);
            prop_assert!(close_to(row.possible_joules, expected), "{row:?} {expected}");
            rows.push((row.resolved_joules, row.exclusive_joules, row.possible_joules));
        }
        for (least, attributed, most) in rows {
            let rounding = 1e-9 * most.max(1e-9);
            prop_assert!(least <= attributed + rounding && attributed <= most + rounding, "{least} {attributed} {most}");
        }
        let of_rows: f64 = report.callpaths.iter().map(|row| row.possible_joules).sum();
        prop_assert!(close_to(of_rows, bounds.most.values().sum()), "a row for everything that ran");
    }

    #[test]
    fn energy_is_conserved(events in any_timeline(), groups in any_groups(), busy: bool, independent: bool) {
        let policy = if busy { Policy::BusyOnly } else { Policy::TimeSliced };
        let sharing = if independent { Sharing::Independent } else { Sharing::Shared };
        let (engine, view) = run_grouped(&events, &groups, policy, sharing);
        let totals = engine.totals(view);
        prop_assert!(totals.conservation_error_joules <= 1e-9 * totals.total_joules.max(1e-9));
        if !independent {
            let sum = totals.attributed_joules + totals.idle_joules + totals.lost_joules;
            prop_assert!(close_to(sum, totals.total_joules));
        }
    }

    #[test]
    fn order_matters_at_breaks_only(
        events in any_timeline(), groups in any_groups(), busy: bool, independent: bool, queues: bool,
    ) {
        let policy = if busy { Policy::BusyOnly } else { Policy::TimeSliced };
        let sharing = if independent { Sharing::Independent } else { Sharing::Shared };
        let (one_by_one, view) = run_grouped(&events, &groups, policy, sharing);
        let (by_location, views) = run_by_location(&events, &groups, policy, sharing, queues);
        for other in views {
            prop_assert_eq!(rows(&one_by_one, view), rows(&by_location, other));
            prop_assert_eq!(one_by_one.totals(view), by_location.totals(other));
        }
        prop_assert_eq!(by_location.oddities(), one_by_one.oddities());
    }

    /// Compares the joules of each interval by location, and a twin in which locations are members of groups.
    #[test]
    fn recorded_intervals_and_twins_do_not_depend_on_queued_samples(
        events in any_timeline(), groups in any_groups(), independent: bool,
    ) {
        let sharing = if independent { Sharing::Independent } else { Sharing::Shared };
        let [queued, one_by_one] = [true, false].map(|queues| {
            let mut engine = Engine::new();
            let view = engine.add_view(Policy::TimeSliced, sharing);
            add_locations(&mut engine, &[None; 4], &[view]);
            engine.record_intervals(view);
            let twin = engine.fork(view, |location| groups[location.0 as usize]);
            let mut intervals = Vec::new();
            pass_by_location(&mut engine, &[view], &events, queues, &mut |engine| {
                let interval = engine.charged_interval(view).expect("it is recorded");
                let mut joules = [0.0; 4];
                interval.charges.iter().for_each(|charge| joules[charge.location.0 as usize] += charge.joules);
                let ChargedInterval { start, end, joules: all, idle_joules, .. } = *interval;
                intervals.push((start, end, all, idle_joules, joules));
            });
            (intervals, [view, twin].map(|view| (rows(&engine, view), engine.totals(view))))
        });
        prop_assert_eq!(queued, one_by_one);
    }

    #[test]
    fn numbering_the_locations_differently_changes_nothing(events in any_timeline(), turn in 1usize..4) {
        let turned: Vec<Event> = events.iter().map(|event| match *event {
            Event::Enter(time, location, region) => Event::Enter(time, (location + turn) % 4, region),
            Event::Leave(time, location) => Event::Leave(time, (location + turn) % 4),
            Event::Sample(time, value) => Event::Sample(time, value),
        }).collect();
        let sums = |events: &[Event]| {
            let (engine, view) = run(events, 4, Policy::TimeSliced, Sharing::Shared);
            let mut by_region = BTreeMap::new();
            for row in engine.report(view).regions {
                by_region.insert(row.region, row.exclusive_joules);
            }
            by_region
        };
        let (a, b) = (sums(&events), sums(&turned));
        prop_assert_eq!(a.len(), b.len());
        for (region, joules) in a {
            prop_assert!(close_to(joules, b[&region]));
        }
    }
}

/// A view of all threads is the same whether it exists from the start or is made when the first thread comes. The view that it is
/// made from is not changed by that.
#[test]
fn a_fork_equals_a_view_with_groups() {
    let counted = |joules| Increase::Joules(joules);
    let drive = |forks: bool| {
        let mut engine = Engine::new();
        let mains = [engine.add_location(), engine.add_location()];
        let process = |location: LocationIndex| Some(u64::from(location.0 % 2));
        let base = engine.add_view(Policy::TimeSliced, Sharing::Shared);
        mains.iter().for_each(|main| engine.bind(base, *main));
        let from_the_start = (!forks).then(|| engine.add_view(Policy::TimeSliced, Sharing::Shared));
        let views = |all: Option<ViewIndex>| std::iter::once(base).chain(all).collect::<Vec<_>>();
        if let Some(all) = from_the_start {
            mains.iter().for_each(|main| engine.bind_member(all, *main, u64::from(main.0 % 2)));
        }
        let sample = |engine: &mut Engine, time, increase| {
            views(from_the_start).into_iter().for_each(|view| engine.sample(view, time, increase));
        };
        sample(&mut engine, 0, Increase::First);
        engine.enter(mains[0], 1, RegionRef(0));
        engine.enter(mains[1], 3, RegionRef(1));
        engine.leave(mains[1], 5);
        sample(&mut engine, 7, counted(0.3));
        engine.enter(mains[1], 9, RegionRef(2));
        engine.leave(mains[1], 11);
        let all = from_the_start.unwrap_or_else(|| engine.fork(base, process));
        let thread = engine.add_location();
        engine.bind_member(all, thread, 0);
        engine.enter(thread, 12, RegionRef(3));
        engine.enter(mains[1], 13, RegionRef(1));
        sample(&mut engine, 17, counted(0.7));
        engine.leave(thread, 20);
        engine.leave(mains[0], 21);
        sample(&mut engine, 23, counted(0.1));
        let rows = |view| engine.report(view).callpaths;
        (rows(base), engine.totals(base), rows(all), engine.totals(all))
    };
    let (forked, whole) = (drive(true), drive(false));
    assert_eq!(forked, whole, "to the last bit");
    let (base, _, all, totals) = forked;
    assert_eq!((base.len(), all.len()), (3, 4));
    assert!(totals.conservation_error_joules < 1e-15);
    assert!((totals.total_joules - 1.1).abs() < 1e-15);
}
