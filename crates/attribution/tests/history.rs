//! Checks that the history reports the joules that the call paths were charged, under every policy.

use ampere_attribution::{Engine, Increase, LocationIndex, NodeIndex, Policy, Sharing};
use ampere_model::RegionRef;
use proptest::prelude::*;
use std::collections::BTreeMap;

const LOCATIONS: usize = 3;

/// The time since the previous event, what happens, the location, the region, and joules or CPU time.
type Event = (u64, u8, usize, u32, u32);

/// Returns the joules of each call path as the history has them, with each stay divided in two, and as the view has them.
fn joules(
    events: &[Event],
    policy: Policy,
    sharing: Sharing,
    has_groups: bool,
) -> [BTreeMap<(u32, u32), f64>; 2] {
    let mut engine = Engine::new();
    let view = engine.add_view(policy, sharing);
    engine.record_prices(view);
    engine.set_baseline(view, 1.5);
    let locations: Vec<LocationIndex> = (0..LOCATIONS).map(|_| engine.add_location()).collect();
    for (at, location) in locations.iter().enumerate() {
        engine.record_moves(*location);
        match has_groups {
            true => engine.bind_member(view, *location, (at / 2) as u64),
            false => engine.bind(view, *location),
        }
    }
    let (mut time, mut used) = (1, 0.0);
    for (wait, what, _, _, number) in events {
        time += wait;
        if *what == 6 {
            used += f64::from(*number).min(*wait as f64);
            engine.add_cpu_time(locations[0], time, used);
        }
    }
    let (mut time, mut depth) = (1, [0; LOCATIONS]);
    for (wait, what, at, region, number) in events {
        time += wait;
        match what {
            0 | 1 => (engine.enter(locations[*at], time, RegionRef(*region)), depth[*at] += 1).0,
            2 | 3 if depth[*at] > 0 => (engine.leave(locations[*at], time), depth[*at] -= 1).0,
            4 => engine.sample(view, time, Increase::Joules(f64::from(*number))),
            5 => engine.sample(view, time, Increase::Lost(f64::from(*number))),
            _ => {}
        }
    }
    let mut of_history: BTreeMap<(u32, u32), f64> = BTreeMap::new();
    for location in &locations {
        let (view, consumer) = engine.priced_views(*location).next().expect("its prices are recorded");
        let mut stays = Vec::new();
        engine.each_stay(*location, 0, time, |stay| stays.push(stay));
        for stay in stays.into_iter().filter(|stay| !stay.node.is_root()) {
            let middle = stay.start + (stay.end - stay.start) / 3;
            let part = |start, end| engine.joules_during(view, consumer, *location, start, end);
            *of_history.entry((location.0, stay.node.0)).or_default() +=
                part(stay.start, middle) + part(middle, stay.end);
        }
    }
    let mut of_view = BTreeMap::new();
    engine.each_node_account(view, |location, NodeIndex(node), spent| {
        of_view.insert((location.0, node), spent.joules);
    });
    [of_history, of_view]
}

proptest! {
    #[test]
    fn prices_add_up_to_what_was_charged(
        events in prop::collection::vec((0u64..6, 0u8..8, 0usize..LOCATIONS, 0u32..3, 0u32..50), 1..120),
        has_groups in any::<bool>(),
    ) {
        for policy in [Policy::TimeSliced, Policy::BusyOnly, Policy::Active] {
            for sharing in [Sharing::Shared, Sharing::Independent] {
                let [of_history, of_view] = joules(&events, policy, sharing, has_groups);
                for (key, joules) in &of_view {
                    let found = of_history.get(key).copied().unwrap_or_default();
                    let error = (found - joules).abs();
                    prop_assert!(error <= 1e-9 * joules.max(1.0), "{policy:?} {sharing:?} {key:?}: {found} is not {joules}");
                }
            }
        }
    }
}
