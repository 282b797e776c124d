//! The plugin's C interface, called by a stand-in for Score-P: calls that come early, late, twice, from several threads or in a
//! forked child, callback tables of other versions, a process that is killed.

use ampere_tests::collector::events;
use ampere_tests::jobs::{Done, Place, is_root, run, start, until};
use ampere_tests::runs::{assert_same_figures, attribute, list, number, parse, relative};
use ampere_tests::stand_in_scorep::{HostLocation, Plugin, callbacks, now, set_names, work};
use ampere_tests::stand_ins::with_rocm_smi;
use scorep_abi::{Callbacks, location_type};
use serde_json::Value;
use std::collections::BTreeMap;
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
    ("launches", launches),
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
        assert_eq!(std::fs::read_dir(place.path("shm")).expect("a directory").count(), 0);
    }
    place.assert_clean();
}

fn other_version(hand_over: fn(&Plugin)) {
    let mut plugin = Plugin::load();
    assert_eq!(plugin.init(), 0, "a plugin that fails here causes a second message");
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

const GPU_NAMES: [&str; 8] =
    ["", "main", "solve", "output", "hipLaunchKernel", "dgemm", "scale", "MPI_Barrier"];
const LAUNCHES: u64 = 60;

/// `solve` launches `dgemm` and `scale`, `output` launches `scale`. What ran on the GPU is reported late and in batches. One
/// kernel has an id that no launch has, and one has none.
fn launches() {
    set_names(&GPU_NAMES.map(|name| name.as_bytes().to_vec()));
    let (plugin, main) = Plugin::begin();
    (4..GPU_NAMES.len() as u32).for_each(|region| plugin.define_region(region));
    plugin.init_mpp(0, 1);
    let stream = HostLocation::named(1, location_type::GPU, "HIP[0:0]");
    plugin.create_location(stream);
    plugin.enter(main, 1);
    let mut ran = Vec::new();
    for id in 1..=LAUNCHES {
        let (function, kernel) = [(2, 5), (2, 6), (3, 6)][id as usize % 3];
        plugin.enter(main, function);
        plugin.correlate(main, id);
        plugin.enter(main, 4);
        plugin.leave(main, 4);
        let begin = now();
        work();
        plugin.leave(main, function);
        ran.push(((begin + 100_000, begin + 4_000_000), kernel, id));
        if id % 20 == 0 {
            ran.drain(..).for_each(|(span, kernel, id)| plugin.ran(stream, span, kernel, id));
        }
    }
    for id in [LAUNCHES + 1, 0] {
        let begin = now();
        work();
        plugin.ran(stream, (begin, begin + 3_000_000), 6, id);
    }
    plugin.leave(main, 1);
    plugin.end(main);
}

/// The rows of the only GPU's kernels view: exclusive and inclusive joules and calls by call path.
fn kernels(summary: &Value) -> BTreeMap<String, (f64, f64, u64)> {
    let devices = list(summary, "devices").iter();
    let gpu = devices.into_iter().find(|device| device["name"] == "GPU-0").expect("a GPU");
    let view = list(gpu, "views").iter().find(|view| view["view"] == "kernels").expect("its kernels");
    let rows = list(view, "callpaths").iter().map(|row| {
        let names = list(row, "path").iter().map(|name| name.as_str().expect("a name"));
        let path = names.collect::<Vec<_>>().join(" > ");
        let figures =
            (number(row, "exclusive_joules"), number(row, "inclusive_joules"), number(row, "calls") as u64);
        (path, figures)
    });
    rows.collect()
}

#[test]
fn a_kernels_joules_are_those_of_the_code_that_launched_it() {
    let place = Place::new();
    let mut command = command(&place, "launches");
    let done = run(with_rocm_smi(&mut command, "watts=300/100@0.05"));
    assert_eq!(done.code, 0, "{done:#?}");
    done.no_panic();
    let summary = place.summary("out");
    assert_eq!(summary["quality"]["kernels_without_launch"], 2, "{}", summary["quality"]);
    assert_eq!(summary["quality"]["damaged_records"], 0);
    let rows = kernels(&summary);
    let each = LAUNCHES / 3;
    for (path, calls) in [
        ("main", 0),
        ("main > output", 0),
        ("main > output > hipLaunchKernel", 0),
        ("main > output > hipLaunchKernel > scale", each),
        ("main > solve", 0),
        ("main > solve > hipLaunchKernel", 0),
        ("main > solve > hipLaunchKernel > dgemm", each),
        ("main > solve > hipLaunchKernel > scale", each),
        ("scale", 2),
    ] {
        assert_eq!(rows.get(path).map(|row| row.2), Some(calls), "{path}: {rows:#?}");
    }
    assert_eq!(rows.len(), 9, "{rows:#?}");
    let below = |path: &str| {
        let kernels = rows.iter().filter(|(of, _)| of.starts_with(path) && of.ends_with(['m', 'e']));
        kernels.map(|(_, row)| row.0).sum::<f64>()
    };
    for path in ["main", "main > solve", "main > output"] {
        let (inclusive, kernels) = (rows[path].1, below(path));
        assert!(inclusive > 1.0 && relative(inclusive, kernels) < 1e-8, "{path}: {inclusive} and {kernels}");
    }

    // Tables of kernels list what ran on the GPU. Outputs with call paths also show what launched it.
    let report = |arguments: &[&str]| {
        let done = run(place.ampere(["report"]).arg(place.path("out")).args(arguments));
        assert_eq!(done.code, 0, "{done:#?}");
        done.stdout
    };
    let folded = report(&["-f", "folded", "--view", "kernels"]);
    assert!(folded.contains("main;solve;hipLaunchKernel;dgemm "), "{folded}");
    let first = std::fs::read_to_string(place.path("out/summary.txt")).expect("a summary");
    let table = first.lines().skip_while(|line| !line.trim_start().starts_with("kernel ")).skip(1);
    let names: Vec<&str> = table.map_while(|line| line.split_whitespace().next()).take(2).collect();
    assert_eq!(names, ["scale", "dgemm"], "{first}");
    let compared = run(place.ampere(["compare", "--json"]).args([place.path("out"), place.path("out")]));
    assert!(!compared.stdout.contains("\"kernel\",\"name\":\"hipLaunchKernel"), "{}", compared.stdout);

    // The trace has the links: attributed and replayed, it gives the same.
    let trace = place.path("out/traces.otf2");
    let again = attribute(&trace, &[]);
    assert_same_figures(&summary, &again);
    assert_eq!(again["quality"]["kernels_without_launch"], 2, "{}", again["quality"]);
    let replayed =
        run(place.ampere(["replay", "--speed", "max", "-o"]).arg(place.path("replayed")).arg(&trace));
    assert_eq!(replayed.code, 0, "{replayed:#?}");
    for replayed in [place.summary("replayed"), attribute(&place.path("replayed/traces.otf2"), &[])] {
        assert_same_figures(&summary, &replayed);
        assert_eq!(replayed["quality"]["kernels_without_launch"], 2, "{}", replayed["quality"]);
    }
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
