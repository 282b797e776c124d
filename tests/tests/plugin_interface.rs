//! The plugin's C interface, called by a stand-in for Score-P: calls that come early, late, twice, from several threads or in a
//! forked child, callback tables of other versions, a process that is killed.

use ampere_tests::collector::events;
use ampere_tests::jobs::{Done, Place, is_root, run, start, until};
use ampere_tests::runs::parse;
use ampere_tests::stand_in_scorep::{HostLocation, Plugin, callbacks, work};
use scorep_abi::{Callbacks, location_type};
use std::process::Command;

const SCENARIO: &str = "BAD_HOST_SCENARIO";

#[test]
#[ignore = "a process that other tests start"]
fn child_process() {
    let Ok(scenario) = std::env::var(SCENARIO) else { return };
    let (_, act) = SCENARIOS.iter().find(|(name, _)| *name == scenario).expect("a scenario");
    act();
    std::process::exit(0);
}

fn command(place: &Place, scenario: &str) -> Command {
    let mut command = place.command(std::env::current_exe().expect("this test has a path"));
    command.args(["child_process", "--exact", "--ignored", "--nocapture"]).env(SCENARIO, scenario);
    command.env("AMPERE_OUTPUT", place.path("out"));
    command
}

/// Runs a scenario to its end, which must be a success.
#[track_caller]
fn play(place: &Place, scenario: &str) -> Done {
    let done = run(&mut command(place, scenario));
    assert_eq!(done.code, 0, "{done:#?}");
    done.no_panic();
    done
}

/// Number of calls of a region, over all location groups of the only device.
fn calls(summary: &serde_json::Value, region: &str) -> u64 {
    let regions = summary["devices"][0]["views"][0]["regions"].as_array().expect("regions");
    regions.iter().filter(|r| r["region"] == region).filter_map(|r| r["calls"].as_u64()).sum()
}

const SCENARIOS: &[(&str, fn())] = &[
    ("usual", usual),
    ("odd calls", odd_calls),
    ("threads", threads),
    ("many locations", many_locations),
    ("address used again", address_used_again),
    ("finalize twice", finalize_twice),
    ("without init", without_init),
    ("events first", events_first),
    ("short table", || other_version(|plugin| plugin.set_callbacks(callbacks(), 200))),
    ("empty table", || other_version(|plugin| plugin.set_callbacks(Callbacks::EMPTY, 424))),
    ("no table", || other_version(|plugin| plugin.set_no_callbacks())),
    ("long table", || other_version(|plugin| plugin.set_callbacks(callbacks(), 1000))),
    ("fork", fork),
    ("until killed", until_killed),
];

/// Some events come before init_mpp, and main is never left.
fn usual() {
    let (plugin, main) = Plugin::begin();
    plugin.enter(main, 1);
    plugin.calls(main, 3);
    plugin.init_mpp(3, 4);
    plugin.enter(main, 3);
    work();
    plugin.leave(main, 3);
    plugin.calls(main, 4);
    plugin.enter(main, 3);
    work();
    plugin.end(main);
}

#[test]
fn frames_open_at_the_end_are_closed_and_events_before_init_mpp_get_the_rank() {
    let place = Place::new();
    play(&place, "usual").said_nothing();
    let summary = place.summary("out");
    // The process is rank 3 of 4, and the other ranks are missing.
    assert_eq!(summary["run"]["complete"], false, "{}", summary["run"]);
    assert!(summary["run"]["notes"].to_string().contains("MPI Ranks 0 to 2 of 4"), "{}", summary["run"]);
    assert_eq!(summary["run"]["host"], "score-p");
    for (region, expected) in [("region_1", 1), ("region_2", 7), ("region_3", 2)] {
        assert_eq!(calls(&summary, region), expected, "{region}");
    }
    let paths = summary["devices"][0]["views"][0]["callpaths"].as_array().expect("call paths");
    assert!(paths.iter().all(|path| path["location_group"] == "MPI Rank 3"), "{paths:?}");
    let open = paths.iter().find(|path| path["path"].as_array().is_some_and(|p| p.len() == 1)).expect("main");
    let joules = |path: &serde_json::Value, kind: &str| path[kind].as_f64().expect("a number");
    let all: f64 = paths.iter().map(|path| joules(path, "exclusive_joules")).sum();
    assert!(
        (joules(open, "inclusive_joules") - all).abs() < 1e-6,
        "main was not closed at the end: {paths:?}"
    );

    // The trace has the same figures.
    let trace = place.path("out/traces.otf2");
    let again = run(place.ampere(["attribute", "--json"]).arg(trace));
    assert_eq!(again.code, 0, "{again:#?}");
    again.said_once(&["the run that wrote this trace is incomplete"]);
    let again: serde_json::Value = parse(&again.stdout).expect("JSON");
    assert_eq!(calls(&again, "region_1"), 1);
    assert_eq!(calls(&again, "region_2"), 7);
    place.assert_clean();
}

/// The calls include leaves without enters, metric locations, unknown regions, and locations that were never created.
fn odd_calls() {
    let (plugin, main) = Plugin::begin();
    (0..5).for_each(|_| plugin.leave(main, 2));
    plugin.enter(main, 1);
    let metric = HostLocation::new(7, location_type::METRIC);
    plugin.create_location(metric);
    assert!(!metric.has_data(), "a metric location needs no ring");
    let unknown = HostLocation::new(8, location_type::CPU_THREAD);
    for odd in [metric, unknown] {
        plugin.calls(odd, 10);
    }
    plugin.calls(main, 2);
    plugin.enter(main, 4711);
    work();
    plugin.leave(main, 4711);
    plugin.leave(main, 1);
    plugin.leave(main, 1);
    plugin.init_mpp(0, 1);
    plugin.end(main);
}

#[test]
fn leaves_without_enters_and_unknown_locations_are_counted() {
    let place = Place::new();
    play(&place, "odd calls").said_nothing();
    let summary = place.summary("out");
    assert_eq!((calls(&summary, "region_1"), calls(&summary, "region_2")), (1, 2), "{summary:#}");
    assert_eq!(summary["quality"]["dropped_records"], 6, "six leaves had no enter");
    assert_eq!(summary["quality"]["unrecorded_calls"], 20, "ten on each location without a ring");
    assert_eq!(summary["run"]["complete"], false);
    let notes = summary["run"]["notes"].to_string();
    assert!(notes.contains("20 calls could not be recorded"), "{notes}");
    let all: u64 = summary["devices"][0]["views"][0]["regions"]
        .as_array()
        .expect("regions")
        .iter()
        .filter_map(|region| region["calls"].as_u64())
        .sum();
    assert_eq!(all, 4, "the region that was never defined is there under some name: {summary:#}");
    place.assert_clean();
}

const THREADS: u32 = 8;
const REGIONS_EACH: u32 = 200;

fn threads() {
    let (plugin, main) = Plugin::begin();
    plugin.init_mpp(0, 1);
    plugin.enter(main, 1);
    std::thread::scope(|scope| {
        for thread in 1..=THREADS {
            let plugin = &plugin;
            scope.spawn(move || {
                let location = HostLocation::new(thread, location_type::CPU_THREAD);
                plugin.create_location(location);
                for region in 0..REGIONS_EACH {
                    let handle = 1000 * thread + region;
                    plugin.define_region(handle);
                    plugin.enter(location, handle);
                    plugin.leave(location, handle);
                }
            });
        }
    });
    work();
    plugin.leave(main, 1);
    plugin.end(main);
}

#[test]
fn definitions_from_several_threads_are_all_recorded() {
    let place = Place::new();
    play(&place, "threads").said_nothing();
    let summary = place.summary("out");
    let events = u64::from(2 * THREADS * REGIONS_EACH) + 2;
    assert_eq!(summary["quality"]["events"], events, "{}", summary["quality"]);
    assert_eq!(summary["quality"]["left_out_definitions"], 0);
    assert_eq!(summary["quality"]["damaged_records"], 0);
    // The trace has every region once, with its name.
    let definitions = std::fs::read(place.path("out/traces.def")).expect("definitions");
    for name in ["region_1000", "region_8199", "region_4100"] {
        let found = definitions.windows(name.len()).filter(|w| *w == name.as_bytes()).count();
        assert_eq!(found, 1, "{name}");
    }
    place.assert_clean();
}

const MANY: u32 = 600;

/// There are enough locations that some share a place in the plugin's table of locations. All exist before the first has an
/// event.
fn many_locations() {
    let (plugin, main) = Plugin::begin();
    plugin.init_mpp(0, 1);
    plugin.enter(main, 1);
    let all: Vec<_> = (1..=MANY).map(|id| HostLocation::new(id, location_type::CPU_THREAD)).collect();
    all.iter().for_each(|location| plugin.create_location(location));
    // If two of them shared a ring, their events would not nest.
    all.iter().zip(1000..).for_each(|(location, region)| plugin.enter(location, region));
    all.iter().zip(1000..).for_each(|(location, region)| plugin.leave(location, region));
    plugin.leave(main, 1);
    plugin.end(main);
}

#[test]
fn each_of_many_locations_has_its_own_events() {
    let place = Place::new();
    play(&place, "many locations").said_nothing();
    let summary = place.summary("out");
    assert_eq!(summary["quality"]["events"], 2 + 2 * u64::from(MANY), "{}", summary["quality"]);
    assert_eq!(summary["quality"]["repaired_events"], 0, "no two locations wrote into one ring");
    place.assert_clean();
}

/// A location is deleted with an open frame, and another one gets its address.
fn address_used_again() {
    let (plugin, main) = Plugin::begin();
    plugin.init_mpp(0, 1);
    plugin.enter(main, 1);
    let location = HostLocation::new(1, location_type::CPU_THREAD);
    plugin.create_location(location);
    plugin.enter(location, 1);
    plugin.delete_location(location);
    location.becomes(2);
    plugin.create_location(location);
    plugin.leave(location, 1);
    work();
    plugin.leave(main, 1);
    plugin.end(main);
}

#[test]
fn a_location_at_the_address_of_a_deleted_one_has_its_own_ring() {
    let place = Place::new();
    play(&place, "address used again").said_nothing();
    let summary = place.summary("out");
    assert_eq!(summary["quality"]["dropped_records"], 1, "a leave without an enter: {}", summary["quality"]);
    place.assert_clean();
}

fn finalize_twice() {
    let (plugin, main) = Plugin::begin();
    plugin.init_mpp(0, 1);
    plugin.enter(main, 1);
    work();
    plugin.leave(main, 1);
    plugin.end(main);
    plugin.finalize();
    plugin.calls(main, 3);
    plugin.program_end(main);
}

#[test]
fn finalize_may_be_called_twice_and_events_may_follow() {
    let place = Place::new();
    let done = play(&place, "finalize twice");
    done.said_nothing();
    assert_eq!(done.stderr.matches("energy summary in").count(), 1, "{done:#?}");
    assert_eq!(calls(&place.summary("out"), "region_2"), 0);
    place.assert_clean();
}

fn without_init() {
    let mut plugin = Plugin::load();
    plugin.finalize();
    plugin.get_event_functions();
    plugin.set_callbacks(callbacks(), std::mem::size_of::<Callbacks>());
    plugin.define_region(1);
    plugin.assign_id();
    let main = HostLocation::new(0, location_type::CPU_THREAD);
    plugin.create_location(main);
    plugin.program_begin(main);
    plugin.calls(main, 3);
    plugin.init_mpp(0, 1);
    plugin.end(main);
    assert!(!main.has_data());
}

#[test]
fn without_init_nothing_happens() {
    let place = Place::new();
    play(&place, "without init").said_nothing();
    assert!(!place.path("out").exists());
    place.assert_clean();
}

fn events_first() {
    let mut plugin = Plugin::load();
    plugin.get_event_functions();
    let main = HostLocation::new(0, location_type::CPU_THREAD);
    plugin.calls(main, 3);
    plugin.init();
    plugin.calls(main, 3);
    plugin.define_region(1);
    plugin.create_location(main);
    plugin.set_callbacks(callbacks(), std::mem::size_of::<Callbacks>());
    plugin.assign_id();
    plugin.define_region(1);
    plugin.create_location(main);
    plugin.init_mpp(0, 1);
    plugin.enter(main, 1);
    work();
    plugin.leave(main, 1);
    plugin.end(main);
}

#[test]
fn the_event_functions_may_be_requested_before_init() {
    let place = Place::new();
    play(&place, "events first").said_nothing();
    assert_eq!(calls(&place.summary("out"), "region_1"), 1);
    place.assert_clean();
}

#[test]
fn a_disabled_plugin_does_nothing() {
    let place = Place::new();
    for scenario in ["usual", "threads"] {
        let done = run(command(&place, scenario).env("AMPERE_DISABLE", "1"));
        assert_eq!(done.code, 0, "{done:#?}");
        done.said_nothing();
        assert!(!place.path("out").exists());
        assert!(!place.path("shm/ampere-0").exists() || !is_root());
    }
    place.assert_clean();
}

fn other_version(hand_over: fn(&Plugin)) {
    let mut plugin = Plugin::load();
    assert_eq!(plugin.init(), 0, "a plugin that fails here costs the user a second message");
    hand_over(&plugin);
    plugin.get_event_functions();
    plugin.define_region(1);
    plugin.define_region(2);
    plugin.assign_id();
    let main = HostLocation::new(0, location_type::CPU_THREAD);
    plugin.create_location(main);
    plugin.program_begin(main);
    plugin.init_mpp(0, 1);
    plugin.enter(main, 1);
    plugin.calls(main, 3);
    plugin.leave(main, 1);
    plugin.end(main);
}

#[test]
fn a_score_p_that_is_too_old_is_named() {
    for (scenario, words) in [
        ("short table", ["200 bytes", "Score-P 7 or later"]),
        ("no table", ["0 bytes", "Score-P 7 or later"]),
        ("empty table", ["lacks callbacks", "Score-P 7 or later"]),
    ] {
        let place = Place::new();
        let done = play(&place, scenario);
        done.said_once(&words);
        assert!(!done.stderr.contains("energy summary in"), "nothing was measured: {done:#?}");
        place.assert_clean();
    }
}

#[test]
fn a_newer_score_p_with_a_longer_table_is_measured() {
    let place = Place::new();
    play(&place, "long table").said_nothing();
    assert_eq!(calls(&place.summary("out"), "region_2"), 3);
    place.assert_clean();
}

fn fork() {
    let (plugin, main) = Plugin::begin();
    plugin.init_mpp(0, 1);
    plugin.enter(main, 1);
    plugin.calls(main, 2);
    // SAFETY: the child only calls the plugin and _exit. The plugin takes no lock there that another thread may hold.
    let child = unsafe { libc::fork() };
    if child == 0 {
        plugin.calls(main, 1000);
        // In this time the collector would find the child's events before the parent overwrites them.
        std::thread::sleep(std::time::Duration::from_millis(300));
        plugin.define_region(9);
        let location = HostLocation::new(1, location_type::CPU_THREAD);
        plugin.create_location(location);
        plugin.calls(location, 10);
        plugin.leave(main, 1);
        plugin.end(main);
        // SAFETY: this ends the process without its exit handlers, which belong to the parent.
        unsafe { libc::_exit(0) };
    }
    let mut status = 0;
    // SAFETY: this waits for the child that was just made.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0, "the child ended well");
    plugin.calls(main, 2);
    plugin.leave(main, 1);
    plugin.end(main);
}

#[test]
fn events_of_a_forked_child_are_not_recorded_as_its_parents() {
    let place = Place::new();
    let done = play(&place, "fork");
    done.said_nothing();
    assert_eq!(done.stderr.matches("energy summary in").count(), 1, "{done:#?}");
    let summary = place.summary("out");
    assert_eq!((calls(&summary, "region_1"), calls(&summary, "region_2")), (1, 4), "{summary:#}");
    assert_eq!(summary["quality"]["events"], 10, "{}", summary["quality"]);
    assert_eq!(summary["run"]["complete"], true);
    place.assert_clean();
}

fn until_killed() {
    let (plugin, main) = Plugin::begin();
    plugin.init_mpp(1, 2);
    plugin.enter(main, 1);
    loop {
        plugin.calls(main, 100);
    }
}

#[test]
fn the_events_of_a_killed_process_are_kept() {
    let place = Place::new();
    let running = start(&mut command(&place, "until killed"));
    until("the collector reads events", || events(&place.path("out")) > 1000);
    running.signal(rustix::process::Signal::KILL);
    assert_eq!(running.wait().code, 128 + 9);
    place.assert_clean(); // the collector has ended
    let summary = place.summary("out");
    assert_eq!(summary["run"]["complete"], false);
    let notes = summary["run"]["notes"].to_string();
    assert!(notes.contains("MPI Rank 1") && notes.contains("ended without finishing"), "{notes}");
    assert!(calls(&summary, "region_2") >= 100, "{summary:#}");
    let again = run(place.ampere(["attribute", "--json"]).arg(place.path("out/traces.otf2")));
    assert_eq!(again.code, 0, "{again:#?}");
    let again: serde_json::Value = parse(&again.stdout).expect("JSON");
    assert_eq!(calls(&again, "region_2"), calls(&summary, "region_2"));
}
