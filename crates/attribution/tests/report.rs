//! Tests the reports of an engine: rows, sums, and open frames.

use ampere_attribution::{Engine, Increase, LocationIndex, Policy, Sharing, ViewIndex};
use ampere_model::RegionRef;

const MAIN: RegionRef = RegionRef(1);
const WORK: RegionRef = RegionRef(2);
const SEND: RegionRef = RegionRef(3);

fn engine(ranks: usize, policy: Policy, sharing: Sharing) -> (Engine, ViewIndex, Vec<LocationIndex>) {
    let mut engine = Engine::new();
    let view = engine.add_view(policy, sharing);
    let ranks: Vec<_> = (0..ranks).map(|_| engine.add_location()).collect();
    ranks.iter().for_each(|rank| engine.bind(view, *rank));
    (engine, view, ranks)
}

/// Makes two intervals of 10 ticks, 5 and 20 J: `MAIN` in both, `WORK` in the second only.
fn two_intervals(policy: Policy, sharing: Sharing, ranks: usize) -> (Engine, ViewIndex, Vec<LocationIndex>) {
    let (mut engine, view, all) = engine(ranks, policy, sharing);
    engine.sample(view, 0, Increase::First);
    all.iter().for_each(|rank| engine.enter(*rank, 0, MAIN));
    engine.sample(view, 10, Increase::Joules(5.0));
    engine.enter(all[0], 12, WORK);
    engine.leave(all[0], 14);
    engine.leave(all[0], 16);
    engine.sample(view, 20, Increase::Joules(20.0));
    (engine, view, all)
}

#[test]
fn least_and_most_power_are_of_the_intervals_in_which_a_call_path_ran() {
    for (policy, second) in [(Policy::TimeSliced, 2.0), (Policy::BusyOnly, 20.0 / 6.0)] {
        let (engine, view, _) = two_intervals(policy, Sharing::Shared, 1);
        let report = engine.report(view);
        let row = |path: &[RegionRef]| report.callpaths.iter().find(|row| row.path == path).unwrap();
        assert_eq!(row(&[MAIN]).joules_per_tick, Some((0.5, second)), "{policy:?}");
        assert_eq!(row(&[MAIN, WORK]).joules_per_tick, Some((second, second)));
        let regions: Vec<_> = report.regions.iter().map(|r| (r.region, r.joules_per_tick)).collect();
        assert_eq!(regions, [(MAIN, Some((0.5, second))), (WORK, Some((second, second)))]);
    }
}

/// Two ranks share: the power is still the device's.
#[test]
fn power_is_the_devices_however_many_share_it() {
    let (engine, view, _) = two_intervals(Policy::TimeSliced, Sharing::Shared, 2);
    let report = engine.report(view);
    let of =
        |path: &[RegionRef]| report.callpaths.iter().find(|row| row.path == path).unwrap().joules_per_tick;
    assert_eq!(of(&[MAIN]), Some((0.5, 2.0)));
    assert_eq!(of(&[MAIN, WORK]), Some((2.0, 2.0)));
}

#[test]
fn frames_that_never_ran_between_samples_have_no_power() {
    let (mut engine, view, all) = engine(1, Policy::TimeSliced, Sharing::Shared);
    engine.enter(all[0], 0, MAIN);
    engine.leave(all[0], 5);
    engine.sample(view, 10, Increase::First);
    engine.sample(view, 20, Increase::Joules(1.0));
    let report = engine.report(view);
    assert_eq!((report.callpaths[0].joules_per_tick, report.callpaths[0].exclusive_ticks), (None, 5));
    assert_eq!(report.totals.idle_joules, 1.0);
}

#[test]
fn a_region_sums_its_call_paths() {
    let (mut engine, view, all) = engine(2, Policy::TimeSliced, Sharing::Independent);
    engine.sample(view, 0, Increase::First);
    // r0: MAIN, WORK, SEND; r1: SEND, MAIN, SEND. 1 J a tick.
    for (time, regions) in [[MAIN, SEND], [WORK, MAIN], [SEND, SEND]].into_iter().enumerate() {
        engine.enter(all[0], 10 * time as u64, regions[0]);
        engine.enter(all[1], 10 * time as u64, regions[1]);
    }
    for rank in &all {
        assert_eq!(engine.current_region(*rank), Some(SEND));
        assert_eq!(engine.close(*rank, 30), 3);
        assert_eq!((engine.current_region(*rank), engine.is_open(*rank)), (None, false));
        assert_eq!(engine.close(*rank, 30), 0);
    }
    engine.sample(view, 30, Increase::Joules(30.0));
    let report = engine.report(view);
    assert_eq!((report.policy, report.sharing), (Policy::TimeSliced, Sharing::Independent));
    let send = report.regions.iter().find(|row| row.region == SEND).unwrap();
    assert_eq!((send.calls, send.exclusive_joules, send.inclusive_joules), (3, 30.0, 40.0));
    assert_eq!(send.exclusive_ticks, 30);
    let exclusive: Vec<_> = report.regions.iter().map(|row| (row.region, row.exclusive_joules)).collect();
    assert_eq!(exclusive, [(SEND, 30.0), (MAIN, 20.0), (WORK, 10.0)]);
    assert_eq!((report.totals.attributed_joules, report.totals.conservation_error_joules), (60.0, 0.0));

    let mut accounts = Vec::new();
    engine.each_account(view, |location, region, spent| accounts.push((location, region, spent.joules)));
    let row = |rank: usize, region, joules| (all[rank], region, joules);
    let expected = [row(0, MAIN, 10.0), row(0, WORK, 10.0), row(0, SEND, 10.0)];
    assert_eq!(accounts[..3], expected);
    assert_eq!(accounts[3..], [row(1, SEND, 10.0), row(1, MAIN, 10.0), row(1, SEND, 10.0)]);

    let mut paths = Vec::new();
    engine.each_callpath(all[1], |region, calls, ticks| paths.push((region, calls, ticks)));
    assert_eq!(paths, [(SEND, 1, 10), (MAIN, 1, 10), (SEND, 1, 10)]);
}

/// The most expensive rows come first, in both tables.
#[test]
fn the_largest_comes_first() {
    let (mut engine, view, all) = engine(1, Policy::BusyOnly, Sharing::Shared);
    engine.sample(view, 0, Increase::First);
    for (region, from, to) in [(MAIN, 0, 1), (WORK, 1, 6), (SEND, 6, 9)] {
        engine.enter(all[0], from, region);
        engine.leave(all[0], to);
    }
    engine.sample(view, 10, Increase::Joules(18.0));
    let report = engine.report(view);
    assert_eq!((report.policy, report.sharing), (Policy::BusyOnly, Sharing::Shared));
    let paths: Vec<_> = report.callpaths.iter().map(|row| (row.path[0], row.exclusive_joules)).collect();
    assert_eq!(paths, [(WORK, 10.0), (SEND, 6.0), (MAIN, 2.0)]);
}

#[test]
fn joules_of_an_interval_of_one_frame_are_resolved() {
    let mut errors = 0.0;
    for policy in [Policy::TimeSliced, Policy::BusyOnly] {
        let (mut engine, view, all) = engine(2, policy, Sharing::Shared);
        engine.sample(view, 0, Increase::First);
        engine.enter(all[0], 0, MAIN);
        engine.sample(view, 10, Increase::Joules(5.0));
        engine.sample(view, 15, Increase::Joules(2.0));
        // The next intervals: one in which the frame runs for a part of the time, a shared one, and one whose joules are unknown.
        engine.leave(all[0], 18);
        engine.sample(view, 20, Increase::Joules(2.0));
        all.iter().for_each(|rank| engine.enter(*rank, 20, MAIN));
        engine.sample(view, 30, Increase::Joules(3.0));
        engine.leave(all[1], 30);
        engine.sample(view, 40, Increase::Lost(7.0));
        engine.sample(view, 50, Increase::Reset);
        let report = engine.report(view);
        let resolved: Vec<_> =
            report.callpaths.iter().map(|r| (r.resolved_joules, r.resolved_ticks)).collect();
        assert_eq!(resolved, [(7.0, 15), (0.0, 0)], "{policy:?}");
        assert_eq!((report.regions[0].resolved_joules, report.regions[0].resolved_ticks), (7.0, 15));
        assert_eq!((report.totals.lost_joules, report.totals.unknown_ticks), (7.0, 10));
        let totals = report.totals;
        let error = totals.total_joules - totals.attributed_joules - totals.idle_joules - totals.lost_joules;
        assert_eq!(totals.conservation_error_joules, error.abs());
        // The error of thirds and fifths is small, but not 0.
        assert!(totals.conservation_error_joules < 1e-12);
        errors += totals.conservation_error_joules;
    }
    assert!(errors > 0.0);
}

/// A short call can have spent all joules of its interval, and no more. Lost joules may have been anybody's.
#[test]
fn possible_joules_are_those_of_all_intervals_in_which_a_call_path_ran() {
    for policy in [Policy::TimeSliced, Policy::BusyOnly] {
        let (mut engine, view, all) = engine(2, policy, Sharing::Shared);
        engine.sample(view, 0, Increase::First);
        all.iter().for_each(|rank| engine.enter(*rank, 0, MAIN));
        engine.sample(view, 10, Increase::Joules(5.0));
        engine.enter(all[0], 14, WORK);
        engine.leave(all[0], 15);
        engine.leave(all[1], 16);
        engine.sample(view, 20, Increase::Joules(20.0));
        engine.sample(view, 30, Increase::Lost(7.0));
        engine.sample(view, 40, Increase::Reset);
        // A call without duration has run in no interval.
        engine.enter(all[0], 45, SEND);
        engine.leave(all[0], 45);
        engine.sample(view, 50, Increase::Joules(1.0));
        let report = engine.report(view);
        let of = |rank: usize, path: &[RegionRef]| {
            let mut rows = report.callpaths.iter().filter(|row| row.location == all[rank]);
            rows.find(|row| row.path == path).map(|row| row.possible_joules)
        };
        assert_eq!(of(0, &[MAIN]), Some(5.0 + 20.0 + 7.0 + 1.0), "{policy:?}");
        assert_eq!((of(0, &[MAIN, WORK]), of(0, &[MAIN, SEND])), (Some(20.0), Some(0.0)));
        assert_eq!(of(1, &[MAIN]), Some(5.0 + 20.0));
        let region = |region| report.regions.iter().find(|row| row.region == region).unwrap().possible_joules;
        // With two ranks, an interval is still counted once.
        assert_eq!((region(MAIN), region(WORK), region(SEND)), (33.0, 20.0, 0.0));
    }
}

/// With independent sharing every rank is given all joules, so a region can have spent them once for each rank. A process'
/// threads are given them once.
#[test]
fn an_interval_counts_once_for_each_sharer_that_is_given_all_of_it() {
    let mut engine = Engine::new();
    let view = engine.add_view(Policy::TimeSliced, Sharing::Independent);
    let all: Vec<_> = (0..3).map(|_| engine.add_location()).collect();
    engine.bind(view, all[0]);
    engine.bind_member(view, all[1], 7);
    engine.bind_member(view, all[2], 7);
    engine.sample(view, 0, Increase::First);
    all.iter().for_each(|rank| engine.enter(*rank, 0, MAIN));
    all.iter().for_each(|rank| engine.enter(*rank, 5, WORK));
    engine.sample(view, 10, Increase::Joules(10.0));
    let report = engine.report(view);
    for row in &report.regions {
        assert_eq!((row.exclusive_joules, row.possible_joules), (10.0, 20.0), "{:?}", row.region);
    }
    assert!(report.callpaths.iter().all(|row| row.possible_joules == 10.0));
}

/// The joules do not belong to frames that start at the time of the samples.
#[test]
fn joules_between_two_samples_at_one_time_belong_to_the_frames_before_it() {
    let at_once = |policy, sharing| {
        let (mut engine, view, all) = engine(3, policy, sharing);
        engine.sample(view, 0, Increase::First);
        engine.enter(all[0], 0, MAIN);
        engine.enter(all[1], 5, MAIN);
        engine.sample(view, 10, Increase::Joules(0.0));
        // At time 10, r0 changes its frame twice, r1 ends and r2 starts.
        engine.enter(all[0], 10, WORK);
        engine.leave(all[0], 10);
        engine.leave(all[1], 10);
        engine.enter(all[2], 10, SEND);
        engine.sample(view, 10, Increase::Joules(6.0));
        let report = engine.report(view);
        let of = |rank: usize| {
            let mut rows = report.callpaths.iter().filter(|row| row.location == all[rank]);
            rows.find(|row| row.path.len() == 1).map(|row| row.exclusive_joules).unwrap()
        };
        assert_eq!(report.totals.conservation_error_joules, 0.0);
        let possible = report.regions.iter().find(|row| row.region == MAIN).map(|row| row.possible_joules);
        assert_eq!(possible, Some(if sharing == Sharing::Shared { 6.0 } else { 12.0 }), "{policy:?}");
        ([of(0), of(1), of(2)], report.totals.idle_joules)
    };
    assert_eq!(at_once(Policy::TimeSliced, Sharing::Shared), ([3.0, 3.0, 0.0], 0.0));
    assert_eq!(at_once(Policy::TimeSliced, Sharing::Independent), ([6.0, 6.0, 0.0], 0.0));
    assert_eq!(at_once(Policy::BusyOnly, Sharing::Shared), ([0.0, 0.0, 0.0], 6.0));
}

#[test]
fn energy_without_time_is_idle_if_nothing_ran() {
    for sharing in [Sharing::Shared, Sharing::Independent] {
        let (mut engine, view, all) = engine(1, Policy::TimeSliced, sharing);
        engine.sample(view, 10, Increase::First);
        engine.enter(all[0], 10, MAIN);
        engine.sample(view, 10, Increase::Joules(6.0));
        assert_eq!((engine.totals(view).idle_joules, engine.totals(view).attributed_joules), (6.0, 0.0));
        // It still runs at the next sample.
        engine.sample(view, 20, Increase::Joules(1.0));
        engine.sample(view, 20, Increase::Joules(2.0));
        let totals = engine.totals(view);
        assert_eq!((totals.idle_joules, totals.attributed_joules), (6.0, 3.0));
        assert_eq!(totals.conservation_error_joules, 0.0);
    }
}

/// A counter starts a second time; its joules before that are not known.
#[test]
fn a_counter_that_starts_again_loses_the_interval() {
    let (mut engine, view, all) = engine(1, Policy::TimeSliced, Sharing::Shared);
    engine.enter(all[0], 0, MAIN);
    engine.sample(view, 5, Increase::First);
    engine.sample(view, 15, Increase::First);
    engine.sample(view, 20, Increase::Joules(1.0));
    let totals = engine.totals(view);
    assert_eq!((totals.unknown_ticks, totals.attributed_joules, totals.samples), (10, 1.0, 3));
}

/// A location that becomes a consumer in the middle of an interval is charged from then on, with its open frame.
#[test]
fn a_consumer_may_come_late() {
    let (mut engine, view, all) = engine(1, Policy::TimeSliced, Sharing::Shared);
    engine.sample(view, 0, Increase::First);
    engine.enter(all[0], 0, MAIN);
    let late = engine.add_location();
    engine.enter(late, 0, WORK);
    engine.enter(all[0], 4, SEND);
    engine.bind(view, late);
    engine.sample(view, 10, Increase::Joules(10.0));
    let report = engine.report(view);
    let rows: Vec<_> = report.callpaths.iter().map(|row| (row.path.len(), row.exclusive_joules)).collect();
    assert_eq!(rows, [(1, 4.0), (2, 3.0), (1, 3.0)]);
}

#[test]
fn names_are_those_of_the_settings() {
    assert_eq!((Policy::TimeSliced.as_str(), Policy::BusyOnly.as_str()), ("time_sliced", "busy_only"));
    assert_eq!((Sharing::Shared.as_str(), Sharing::Independent.as_str()), ("shared", "independent"));
}
