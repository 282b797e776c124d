//! Compares the joules of single calls with a naive definition, on random timelines.

use ampere_attribution::{
    Call, Engine, Increase, LocationIndex, NodeIndex, Policy, Sharing, Step, ViewIndex,
};
use ampere_model::RegionRef;
use proptest::prelude::*;
use std::collections::BTreeMap;

const LOCATIONS: usize = 3;

#[derive(Clone, Copy, Debug)]
enum Event {
    Enter(u64, usize, u32),
    Leave(u64, usize),
    Sample(u64, Meaning),
}

/// What a sample means for the time since the previous one.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Meaning {
    Joules(f64),
    Lost,
    Reset,
}

/// A call: location, start, end, depth. Calls without time have no joules, and nothing distinguishes them.
type Key = (usize, u64, u64, usize);

#[derive(Clone, Copy, Debug, Default)]
struct Joules {
    exclusive: f64,
    inclusive: f64,
    resolved: f64,
}

/// Calls in order, with samples between them, some at the same time as the previous one. Some frames stay open.
fn any_timeline() -> impl Strategy<Value = Vec<Event>> {
    let step = (0u64..5, 0u8..12, 0usize..LOCATIONS, 0u32..3, 1u64..50);
    prop::collection::vec(step, 1..150).prop_map(|steps| {
        let (mut time, mut depth) = (1, [0usize; LOCATIONS]);
        let mut events = Vec::new();
        for (ticks, what, location, region, joules) in steps {
            time += ticks;
            let meaning = match what {
                0..4 => {
                    depth[location] += 1;
                    events.push(Event::Enter(time, location, region));
                    continue;
                }
                4..8 => {
                    if depth[location] > 0 {
                        depth[location] -= 1;
                        events.push(Event::Leave(time, location));
                    }
                    continue;
                }
                8 => Meaning::Lost,
                9 if joules < 5 => Meaning::Reset,
                _ => Meaning::Joules(joules as f64),
            };
            events.push(Event::Sample(time, meaning));
        }
        events
    })
}

fn any_groups() -> impl Strategy<Value = Vec<Option<u64>>> {
    prop::collection::vec(prop::option::of(0u64..2), LOCATIONS)
}

/// Computes the charges tick by tick. Each call has a number; `stacks[t]` is what runs from t to t + 1.
fn naive(events: &[Event], groups: &[Option<u64>], policy: Policy, sharing: Sharing) -> Vec<(Key, Joules)> {
    let mut calls: Vec<(Key, Joules)> = Vec::new();
    let mut stacks: Vec<Vec<Vec<usize>>> = Vec::new();
    let mut now: Vec<Vec<usize>> = vec![Vec::new(); LOCATIONS];
    let mut last_change = [0; LOCATIONS];
    let time_of = |event: &Event| match *event {
        Event::Enter(time, ..) | Event::Leave(time, _) | Event::Sample(time, _) => time,
    };
    for event in events {
        stacks.resize(time_of(event) as usize, now.clone());
        match *event {
            Event::Enter(time, location, _) => {
                now[location].push(calls.len());
                calls.push(((location, time, time, now[location].len()), Joules::default()));
                last_change[location] = time;
            }
            Event::Leave(time, location) => {
                let call = now[location].pop().expect("an open call");
                calls[call].0.2 = time;
                last_change[location] = time;
            }
            Event::Sample(..) => {}
        }
    }
    for (location, open) in now.iter().enumerate() {
        open.iter().for_each(|call| calls[*call].0.2 = last_change[location]);
    }
    let mut last = None;
    for event in events {
        let Event::Sample(time, meaning) = *event else { continue };
        let from = last.replace(time);
        if let (Some(from), Meaning::Joules(joules)) = (from, meaning) {
            charge(&mut calls, &stacks, (from, time), joules, (groups, policy, sharing));
        }
    }
    calls
}

type Rule<'a> = (&'a [Option<u64>], Policy, Sharing);

fn charge(
    calls: &mut [(Key, Joules)],
    stacks: &[Vec<Vec<usize>>],
    (from, to): (u64, u64),
    joules: f64,
    (groups, policy, sharing): Rule,
) {
    if from == to && policy == Policy::BusyOnly {
        return;
    }
    // Joules without time belong to the frames that ran just before.
    let ticks = if from == to { from - 1..to } else { from..to };
    let length = (ticks.end - ticks.start) as f64;
    let sharer = |location: usize| groups[location].ok_or(location);
    // By location and call: ticks, or parts of them if several share.
    let mut due: BTreeMap<(usize, Vec<usize>), f64> = BTreeMap::new();
    for tick in ticks.clone() {
        let active: Vec<usize> = (0..LOCATIONS).filter(|at| !stacks[tick as usize][*at].is_empty()).collect();
        let sharers: std::collections::BTreeSet<_> = active.iter().map(|at| sharer(*at)).collect();
        for at in &active {
            let members = active.iter().filter(|other| sharer(**other) == sharer(*at)).count() as f64;
            let split = policy == Policy::TimeSliced && sharing == Sharing::Shared;
            let part = if split { 1.0 / sharers.len() as f64 } else { 1.0 };
            *due.entry((*at, stacks[tick as usize][*at].clone())).or_default() += part / members;
        }
    }
    let whole: f64 = due.values().sum();
    for ((location, stack), ticks) in &due {
        let price = match (policy, sharing) {
            (Policy::TimeSliced, _) => joules / length,
            (Policy::Active, _) => unreachable!("active.rs has its definition"),
            (Policy::BusyOnly, Sharing::Shared) => joules / whole,
            (Policy::BusyOnly, Sharing::Independent) => {
                let own = due.iter().filter(|((other, _), _)| sharer(*other) == sharer(*location));
                joules / own.map(|(_, ticks)| ticks).sum::<f64>()
            }
        };
        for call in stack {
            calls[*call].1.inclusive += ticks * price;
        }
        let own = &mut calls[*stack.last().expect("a frame")].1;
        own.exclusive += ticks * price;
        if from < to && due.len() == 1 && *ticks == length {
            own.resolved += joules;
        }
    }
}

/// Returns the engine's calls. Between two breaks the events come location by location; calls are taken at every `often`th
/// event.
fn recorded(events: &[Event], rule: Rule, often: usize) -> (Vec<Call>, Engine, ViewIndex) {
    let (groups, policy, sharing) = rule;
    let mut engine = Engine::new();
    let view = engine.add_view(policy, sharing);
    engine.record_calls(view);
    let all: Vec<LocationIndex> = groups.iter().map(|_| engine.add_location()).collect();
    for (location, group) in all.iter().zip(groups) {
        match group {
            Some(group) => engine.bind_member(view, *location, *group),
            None => engine.bind(view, *location),
        }
    }
    let [mut calls, mut earlier, mut taken] = [(); 3].map(|()| Vec::<Call>::new());
    let (mut waiting, mut depth) = (vec![Vec::new(); LOCATIONS], [0; LOCATIONS]);
    for (number, event) in events.iter().enumerate() {
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
        if is_break {
            for (steps, location) in waiting.iter_mut().zip(&all).rev() {
                engine.steps(*location, &std::mem::take(steps));
            }
        } else {
            waiting[at].push(step);
        }
        match *event {
            Event::Sample(time, meaning) => {
                let known = match meaning {
                    Meaning::Joules(joules) => Increase::Joules(joules),
                    Meaning::Lost => Increase::Lost(1.0),
                    Meaning::Reset => Increase::Reset,
                };
                let first = engine.last_sample(view).is_none();
                engine.sample(view, time, if first { Increase::First } else { known });
                engine.charge_calls(view, &mut earlier);
                calls.append(&mut earlier);
                engine.take_calls(view, &mut taken);
                calls.append(&mut taken);
            }
            _ if is_break => engine.steps(all[at], &[step]),
            _ => {}
        }
        if number % often == 0 {
            engine.take_calls(view, &mut taken);
            earlier.extend(taken.drain(..).map(|call| Call::from_words(call.to_words())));
        }
    }
    for (steps, location) in waiting.iter_mut().zip(&all) {
        engine.steps(*location, &std::mem::take(steps));
    }
    calls.append(&mut earlier);
    engine.end_calls(view, &mut taken);
    calls.append(&mut taken);
    assert_eq!(engine.ended_calls(view), 0);
    (calls, engine, view)
}

fn close_to(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * a.abs().max(b.abs()).max(1e-3)
}

fn depth(engine: &Engine, call: &Call) -> usize {
    let mut at = call.node;
    let mut depth = 0;
    while at != NodeIndex::ROOT {
        at = engine.caller_of(call.location, at).0;
        depth += 1;
    }
    depth
}

/// Returns the number of cases, or `PROPTEST_CASES`.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(2000)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases()))]

    #[test]
    fn calls_are_charged_as_defined(
        events in any_timeline(), groups in any_groups(), busy: bool, independent: bool, often in 1usize..20,
    ) {
        let policy = if busy { Policy::BusyOnly } else { Policy::TimeSliced };
        let sharing = if independent { Sharing::Independent } else { Sharing::Shared };
        let (calls, engine, view) = recorded(&events, (&groups, policy, sharing), often);
        let mut expected = naive(&events, &groups, policy, sharing);
        prop_assert_eq!(calls.len(), expected.len());
        let mut found: Vec<(Key, Joules)> = calls
            .iter()
            .map(|call| {
                let key = (call.location.0 as usize, call.start, call.end, depth(&engine, call));
                let (exclusive, inclusive) = (call.exclusive_joules, call.inclusive_joules());
                (key, Joules { exclusive, inclusive, resolved: call.resolved_joules })
            })
            .collect();
        found.sort_by_key(|(key, _)| *key);
        expected.sort_by_key(|(key, _)| *key);
        for ((key, ours), (other, theirs)) in found.iter().zip(&expected) {
            prop_assert_eq!(key, other);
            prop_assert!(close_to(ours.exclusive, theirs.exclusive), "{:?} {:?} {:?}", key, ours, theirs);
            prop_assert!(close_to(ours.inclusive, theirs.inclusive), "{:?} {:?} {:?}", key, ours, theirs);
            prop_assert!(close_to(ours.resolved, theirs.resolved), "{:?} {:?} {:?}", key, ours, theirs);
        }
        let sum: f64 = calls.iter().map(|call| call.exclusive_joules).sum();
        prop_assert!(close_to(sum, engine.totals(view).attributed_joules));
        // Compares each call path, and the number of its calls.
        let mut by_path: BTreeMap<_, (u64, f64)> = BTreeMap::new();
        for call in &calls {
            let of = by_path.entry((call.location, call.node)).or_default();
            *of = (of.0 + u64::from(call.calls), of.1 + call.exclusive_joules);
        }
        for row in engine.report(view).callpaths {
            let (calls, joules) = by_path[&(row.location, row.node)];
            prop_assert!(calls == row.calls && close_to(joules, row.exclusive_joules), "{:?}", row);
        }
    }
}

/// If a device becomes known while calls are open, these calls have their own start. What a location does before it is bound to
/// any view is recorded, too, and a location that is unbound keeps what it is due.
#[test]
fn calls_are_recorded_before_between_and_after_bindings() {
    let mut engine = Engine::new();
    let view = engine.add_view(Policy::TimeSliced, Sharing::Shared);
    engine.record_calls(view);
    let location = engine.add_location();
    engine.enter(location, 1, RegionRef(0));
    engine.enter_calls(location, 2, RegionRef(1), 7);
    engine.leave(location, 3);
    engine.bind(view, location);
    engine.sample(view, 10, Increase::First);
    engine.sample(view, 20, Increase::Joules(5.0));
    engine.unbind(view, location);
    engine.leave(location, 30);
    engine.sample(view, 40, Increase::Joules(5.0));
    let shown = |calls: &[Call]| -> Vec<_> {
        calls.iter().map(|call| (call.start, call.end, call.calls, call.exclusive_joules)).collect()
    };
    let mut calls = Vec::new();
    engine.take_unlinked_calls(&mut calls);
    assert_eq!(shown(&calls), [(2, 3, 7, 0.0), (1, 30, 1, 0.0)]);
    engine.end_calls(view, &mut calls);
    assert_eq!(shown(&calls), [(1, 20, 1, 5.0)]);
}

#[test]
fn intervals_record_where_their_joules_went() {
    let mut engine = Engine::new();
    let view = engine.add_view(Policy::TimeSliced, Sharing::Shared);
    engine.record_intervals(view);
    let location = engine.add_location();
    engine.bind(view, location);
    engine.sample(view, 0, Increase::First);
    engine.enter(location, 5, RegionRef(0));
    engine.sample(view, 10, Increase::Joules(10.0));
    let charged = engine.charged_interval(view).expect("it is recorded");
    assert_eq!((charged.start, charged.end, charged.idle_joules, charged.lost_joules), (0, 10, 5.0, 0.0));
    assert_eq!(charged.charges.iter().map(|charge| charge.joules).collect::<Vec<_>>(), [5.0]);
    engine.sample(view, 30, Increase::Lost(4.0));
    let charged = engine.charged_interval(view).expect("it is recorded");
    assert_eq!(charged.joules, 4.0);
    assert_eq!((charged.start, charged.end, charged.idle_joules, charged.lost_joules), (10, 30, 0.0, 4.0));
    assert!(charged.charges.is_empty());
}

#[test]
fn intervals_record_which_of_their_joules_are_dynamic() {
    let mut engine = Engine::new();
    let view = engine.add_view(Policy::Active, Sharing::Shared);
    engine.set_baseline(view, 0.5);
    engine.record_intervals(view);
    let location = engine.add_location();
    engine.bind(view, location);
    engine.sample(view, 0, Increase::First);
    engine.enter(location, 5, RegionRef(0));
    engine.sample(view, 10, Increase::Joules(20.0));
    let charged = engine.charged_interval(view).expect("it is recorded");
    let charges: Vec<_> =
        charged.charges.iter().map(|charge| (charge.joules, charge.dynamic_joules)).collect();
    assert_eq!((charges, charged.dynamic_joules), (vec![(17.5, 15.0)], 15.0));
    assert_eq!((charged.idle_joules, charged.idle_dynamic_joules()), (2.5, 0.0));
    engine.leave(location, 10);
    engine.sample(view, 20, Increase::Joules(8.0));
    let charged = engine.charged_interval(view).expect("it is recorded");
    assert_eq!((charged.idle_joules, charged.idle_dynamic_joules()), (8.0, 3.0));
}
