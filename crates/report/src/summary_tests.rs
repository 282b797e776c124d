//! Tests of a summary's watts, and of its notes about defective counters.

use ampere_figures::losses::Losses;
use ampere_figures::summary::*;
use ampere_model::{LocationKind, Quality, RegionHandle};
use ampere_settings::Config;
use ampere_timeline::attributor::{Attributor, FoundDevice, LocationInfo, ViewKind};
use ampere_timeline::counter_traits::CounterTraits;

const TICKS_PER_SECOND: u64 = 1000;

/// Makes a summary of one rank that is in `main` from 0 on. `readings` are milliseconds and values of an energy counter in
/// joules.
fn summary(config: &str, readings: &[(u64, u64)]) -> Summary {
    summary_of(config, Some(1.0), readings)
}

fn add_energy(attributor: &mut Attributor) -> usize {
    let found = FoundDevice {
        node: "n".to_owned(),
        metric: "energy".to_owned(),
        source: "trace".to_owned(),
        quality: Quality::Measured,
        joules_per_unit: Some(1.0),
    };
    attributor.add_device(found).expect("an energy")
}

fn summary_of(config: &str, joules_per_unit: Option<f64>, readings: &[(u64, u64)]) -> Summary {
    let config = Config::parse(config, "test").expect("a configuration");
    let mut attributor = Attributor::new(config, TICKS_PER_SECOND);
    let found = FoundDevice {
        node: "n".to_owned(),
        metric: if joules_per_unit.is_some() { "energy" } else { "count:device=0" }.to_owned(),
        source: "trace".to_owned(),
        quality: Quality::Measured,
        joules_per_unit,
    };
    let device = attributor.add_device(found).expect("an energy");
    let rank = attributor.add_location(LocationInfo {
        node: "n".to_owned(),
        group: "MPI Rank 0".to_owned(),
        name: "Master thread".to_owned(),
        kind: LocationKind::CpuThread,
        rank: Some(0),
        main: true,
    });
    let main = attributor.regions.add(&ampere_model::Region {
        handle: RegionHandle(0),
        name: "main".to_owned(),
        canonical_name: "main".to_owned(),
        source_file: String::new(),
        begin_line: 0,
        end_line: 0,
        region_type: 0,
        paradigm: 0,
    });
    attributor.engine.enter(rank, 0, main);
    for (time, value) in readings {
        attributor.devices[device].read(*time, ampere_model::MetricValue::U64(*value), 0);
    }
    attributor.end_readings(device);
    attributor.engine.leave(rank, readings.last().map_or(0, |(time, _)| *time));
    Summary::new(&attributor, Some(ViewKind::Ranks), Run::default(), Losses::default())
}

/// Makes a summary of a rank whose main thread is in `main` from 0 to 100 ms while, from 40 ms on, four threads are in `work`.
/// The device uses 1 J per 10 ms.
fn threads(config: &str, with_threads: bool) -> Summary {
    let mut attributor =
        Attributor::new(Config::parse(config, "test").expect("a configuration"), TICKS_PER_SECOND);
    let add_location = |attributor: &mut Attributor, number: u32| {
        let info = LocationInfo {
            node: "n".to_owned(),
            group: "MPI Rank 0".to_owned(),
            name: format!("thread {number}"),
            kind: LocationKind::CpuThread,
            rank: Some(0),
            main: number == 0,
        };
        let evidence = ampere_timeline::topology::Evidence { process: Some(7), ..Default::default() };
        attributor.add_location_with(info, evidence)
    };
    let device = add_energy(&mut attributor);
    let rank = add_location(&mut attributor, 0);
    let [main, work] = [0, 1].map(|region| attributor.regions.add_unknown(region));
    attributor.enter(rank, 0, main);
    let mut running = vec![rank];
    for time in (0..=100).step_by(10) {
        if time == 50 && with_threads {
            // As in a live run, the threads become known when earlier samples have been charged already.
            for number in 1..5 {
                let thread = add_location(&mut attributor, number);
                attributor.enter(thread, 43, work);
                running.push(thread);
            }
        }
        attributor.read_now(device, time, 50 + time / 10);
    }
    running.into_iter().for_each(|location| attributor.leave(location, 100));
    Summary::new(&attributor, None, Run::default(), Losses::default())
}

#[test]
fn both_divisions_are_there_and_the_threads_lead_where_they_ran_more() {
    let (main, all) = (threads("", true), threads("[attribution]\nlocations = \"all\"", true));
    let (by_main, by_all) = (&main.devices[0], &all.devices[0]);
    let text = |view: &View| serde_json::to_string(view).expect("JSON");
    let other = |device: &Device| text(device.other_ranks.as_ref().expect("the other division"));
    // Both divisions are equal to the last bit, whichever of them the settings choose.
    assert_eq!(text(&by_main.views[0]), other(by_all));
    assert_eq!(text(&by_all.views[0]), other(by_main));
    assert_eq!((by_main.views[0].locations.as_str(), by_all.views[0].locations.as_str()), ("main", "all"));
    let alone = threads("", false);
    assert!(alone.devices[0].other_ranks.is_none() && alone.run.notes.is_empty());
    assert_eq!(by_main.views[0].regions[0].figures.exclusive_joules, 10.0);
    let joules =
        |view: &View| view.regions.iter().map(|row| row.figures.exclusive_joules).collect::<Vec<_>>();
    // `main` runs alone for 43 ms, and is then one of five frames.
    let [main_alone, shared] = [4.3, 5.7];
    let expected = [main_alone + shared / 5.0, 4.0 * shared / 5.0];
    for (found, expected) in joules(&by_all.views[0]).iter().zip(expected) {
        assert!((found - expected).abs() < 1e-9, "{found} {expected}");
    }
    // The frames of the threads last 4 x 57 ms, and that of the main thread 100 ms.
    assert!(by_main.other_ranks_lead && !by_all.other_ranks_lead);
    assert!(main.run.notes[0].starts_with("other threads of MPI Rank 0 ran more"), "{:?}", main.run.notes);
    let shown: Vec<&str> = by_main.shown().map(|view| view.locations.as_str()).collect();
    assert_eq!(shown, ["all", ""]);
    let page = crate::text::render(&main, crate::first::screen::Screen::FILE);
    let rows: Vec<&str> =
        page.lines().filter(|line| line.contains(" thread ") && line.contains('%')).collect();
    assert_eq!(rows.len(), 6, "a location for each thread, and the call path of the main thread: {page}");
    assert!(page.contains(" -  0.228  4 threads: undefined region 1\n"), "one row, without bounds: {page}");
    assert!(page.contains("by main threads only: undefined region 0 (100.0 %)"), "{page}");
}

/// Returns readings every 100 ms, each 1 J higher.
fn steady(count: u64) -> Vec<(u64, u64)> {
    (0..count).map(|i| (i * 100, 50 + i)).collect()
}

#[test]
fn watts_need_ten_resolved_samples() {
    let row = &summary("", &steady(11)).devices[0].views[0].regions[0];
    let ten = Some(10.0);
    assert_eq!(row.watts, Watts { mean_watts: ten, resolved_watts: ten, min_watts: ten, max_watts: ten });
    let seen = summary("", &steady(10));
    let (device, view) = (&seen.devices[0], &seen.devices[0].views[0]);
    assert_eq!(device.watts(view, &view.callpaths[0].figures), Watts::default());
    let row = &view.regions[0];
    assert_eq!(row.watts, Watts { mean_watts: None, resolved_watts: None, min_watts: ten, max_watts: ten });
    let json = serde_json::to_value(row).expect("JSON");
    assert!(json["mean_watts"].is_null() && json["max_watts"] == 10.0, "{json}");
}

#[test]
fn a_gap_is_lost_where_it_is_configured() {
    let mut readings = steady(11);
    readings.extend([(4000, 100), (4100, 101)]);
    let seen = summary("[counters]\ngap = 10", &readings);
    let device = &seen.devices[0];
    assert_eq!((device.total_joules, device.views[0].lost_joules), (51.0, 40.0));
    assert_eq!((device.views[0].attributed_joules, device.views[0].conservation_error_joules), (11.0, 0.0));
    assert_eq!((seen.quality.readings.sampling_gaps, device.longest_sample_seconds), (1, 3.0));
    assert_eq!(device.sampled_seconds, 4.1);
    let without = summary("", &readings);
    assert_eq!((without.quality.readings.sampling_gaps, without.devices[0].views[0].lost_joules), (0, 0.0));
}

#[test]
fn misreadings_resets_and_gaps_are_counted() {
    // The counter does not change for 11 seconds.
    let mut readings = steady(3);
    readings.extend([(5000, 52), (11_200, 52)]);
    let still = summary("", &readings);
    assert_eq!((still.quality.stale_counters, still.devices[0].stale), (1, true));
    assert_eq!(still.devices[0].longest_still_seconds, 11.0);
    assert!(!summary("[counters]\nstale = \"12s\"", &readings).devices[0].stale);

    let rapl = "[[device]]\nname = \"socket\"\nmetric = \"energy\"\nwraps_at = 100000";
    let wrapped = summary(rapl, &[(0, 99_990), (100, 5)]);
    assert_eq!((wrapped.quality.readings.counter_wraps, wrapped.devices[0].total_joules), (1, 15.0));
    assert_eq!(wrapped.quality.readings.counter_resets, 0);

    // There are a misreading and a reset.
    let absurd = [(0, 110), (100, 1_000_000), (200, 112), (250, 113), (300, 3), (400, 4)];
    let seen = summary("", &absurd);
    assert_eq!((seen.quality.readings.unusable_samples, seen.quality.readings.counter_resets), (1, 1));
    assert_eq!((seen.devices[0].total_joules, seen.devices[0].uncovered_seconds), (4.0, 0.05));
    assert!(
        seen.run.notes.iter().any(|note| note.contains("the energy of 0.050 s is not known")),
        "{:?}",
        seen.run.notes
    );
    // The first reading of 0 is a misreading.
    assert_eq!(summary("", &[(0, 0), (100, 1_000_000), (200, 1_000_001)]).devices[0].total_joules, 1.0);
}

#[test]
fn figures_that_a_device_cannot_have_are_not_shown() {
    let config = "[[device]]\nname = \"GPU-0\"\nmetric = \".*\"\nscale = 1000";
    let seen = summary_of(config, None, &steady(11));
    assert_eq!((seen.devices[0].total_joules, seen.run.total_joules, seen.run.complete), (0.0, 0.0, false));
    assert!(seen.devices[0].views[0].callpaths.is_empty());
    let note = seen.run.notes.iter().find(|note| note.contains("10000 J in 1.000 s"));
    assert!(note.is_some(), "{:?}", seen.run.notes);
    let allowed = summary_of(&format!("{config}\n[counters]\nwatts_max = 20000"), None, &steady(11));
    assert_eq!(allowed.devices[0].total_joules, 10_000.0);
}

#[test]
fn a_total_contains_each_joule_once() {
    let mut attributor = Attributor::new(Config::default(), TICKS_PER_SECOND);
    // Two nodes have the same counters. Containment is decided for each node.
    for (node, joules) in [("a", 1000), ("b", 10)] {
        for (metric, parts, part) in [
            ("x:::energy:node", vec!["x:::energy:cpu"], 1),
            ("x:::energy:cpu", vec![], 2),
            ("x:::energy:gpu", vec![], 5),
        ] {
            let device = attributor.add_device(FoundDevice {
                node: node.to_owned(),
                metric: metric.to_owned(),
                source: "x".to_owned(),
                quality: Quality::Measured,
                joules_per_unit: Some(1.0),
            });
            let device = device.expect("an energy");
            let contains = parts.into_iter().map(str::to_owned).collect();
            attributor.set_traits(device, CounterTraits { contains, ..CounterTraits::default() });
            for (time, value) in [(0, 1), (1000, 1 + joules / part)] {
                attributor.read_now(device, time, value);
            }
        }
    }
    let summary = Summary::new(&attributor, None, Run::default(), Losses::default());
    assert_eq!(summary.run.total_joules, 1000.0 + 200.0 + 10.0 + 2.0);
    let contains: Vec<&[String]> = summary.devices.iter().map(|device| device.contains.as_slice()).collect();
    assert_eq!(contains, [&["cpu".to_owned()][..], &[], &[], &["cpu".to_owned()], &[], &[]]);
    let text = crate::text::render(&summary, crate::first::screen::Screen::FILE);
    assert!(text.contains("1.21 kJ in 4 devices on 2 nodes, which include 2 devices on 2 nodes"), "{text}");
}

#[test]
fn cpu_time_of_a_part_of_the_run_is_marked_as_such() {
    let cpu = NodeCpu {
        seconds: 5.0,
        own_busy_seconds: 8.0,
        collector_busy_seconds: 0.0,
        node_busy_seconds: 10.0,
        cpus: 2,
        node_cpus: 2,
    };
    let whole =
        "8.00 s of the node's 10.00 s of busy CPU time were this run's own: 1.60 of 2 cores busy on average";
    assert_eq!(cpu.words(5.1), whole);
    assert_eq!(cpu.words(15.3), format!("{whole}, in 5.0 of 15.3 s"));
}

/// A reading that is accepted is charged a little later, when all events before it are known.
#[test]
fn the_mean_power_of_a_running_program_is_that_of_the_time_whose_joules_are_charged() {
    let mut attributor = Attributor::new(Config::default(), TICKS_PER_SECOND);
    let device = add_energy(&mut attributor);
    (0..=20).for_each(|at| attributor.read_now(device, 100 * at, 50 + 10 * at));
    for at in 21..=24 {
        attributor.devices[device].read(100 * at, ampere_model::MetricValue::U64(50 + 10 * at), 0);
    }
    let outline = Summary::outline(&attributor, Run::default(), Losses::default());
    let shown = &outline.devices[0];
    assert!(shown.total_joules > 100.0, "{shown:?}");
    assert_eq!(shown.mean_watts().map(|watts| (1e6 * watts).round() / 1e6), Some(100.0), "{shown:?}");
}

/// Two devices are on one node. The first is read for 2 s, the other only from `from` milliseconds on. `every` is the time
/// between two readings in milliseconds. Returns whether the run is complete.
fn complete_though_late(config: &str, every: u64, from: u64) -> bool {
    let mut attributor = Attributor::new(Config::parse(config, "test").expect("settings"), TICKS_PER_SECOND);
    for (number, from) in [0, from].into_iter().enumerate() {
        let found = FoundDevice {
            node: "n".to_owned(),
            metric: format!("energy{number}"),
            source: "trace".to_owned(),
            quality: Quality::Measured,
            joules_per_unit: Some(1.0),
        };
        let device = attributor.add_device(found).expect("an energy");
        for time in (from..=2000).step_by(every as usize) {
            attributor.devices[device].read(
                5000 + time,
                ampere_model::MetricValue::U64(50 + time / every),
                0,
            );
        }
        attributor.end_readings(device);
    }
    attributor.judge_devices(true);
    let run = Run { complete: true, ..Run::default() };
    let seen = Summary::new(&attributor, Some(ViewKind::Ranks), run, Losses::default());
    let said = crate::highlights::sentences(&seen).join("\n");
    assert_eq!(seen.run.complete, !seen.run.notes.iter().any(|note| note.contains("is known for")));
    assert_eq!(seen.run.complete, !said.contains("at least"), "{said}");
    seen.run.complete
}

/// Makes a summary of a node with a counter of 50 W and another one. `other` returns the other counter's millijoules at each
/// millisecond, or `None` if it cannot be read. Both are read for 4 s, every 10 ms.
fn next_to_a_good_counter(other: fn(u64) -> Option<u64>) -> Summary {
    let mut attributor = Attributor::new(Config::default(), TICKS_PER_SECOND);
    let good: fn(u64) -> Option<u64> = |time| Some(7_000 + 50 * time);
    for (number, shows) in [good, other].into_iter().enumerate() {
        let found = FoundDevice {
            node: "n".to_owned(),
            metric: format!("energy{number}"),
            source: "trace".to_owned(),
            quality: Quality::Measured,
            joules_per_unit: Some(1e-3),
        };
        let device = attributor.add_device(found).expect("an energy");
        attributor.set_traits(device, CounterTraits { kind: "cpu".to_owned(), ..CounterTraits::default() });
        for time in (0..=4000).step_by(10) {
            if let Some(value) = shows(time) {
                attributor.devices[device].read(5000 + time, ampere_model::MetricValue::U64(value), 0);
            }
        }
        attributor.end_readings(device);
    }
    attributor.judge_devices(true);
    let run = Run { complete: true, ..Run::default() };
    Summary::new(&attributor, Some(ViewKind::Ranks), run, Losses::default())
}

#[test]
fn a_run_is_complete_if_at_least_99_percent_of_each_counters_time_are_known() {
    fn of_50_watts(time: u64) -> u64 {
        9_000_000 + 50 * time
    }
    type Shows = fn(u64) -> Option<u64>;
    let cases: [(&str, Shows, f64, bool); 11] = [
        ("always read", |time| Some(of_50_watts(time)), 200.0, true),
        ("not read from 2 s on", |time| (time < 2000).then(|| of_50_watts(time)), 99.5, false),
        ("not read until 1 s", |time| (time >= 1000).then(|| of_50_watts(time)), 150.0, false),
        ("read in the middle", |time| (1000..3000).contains(&time).then(|| of_50_watts(time)), 99.5, false),
        // The counter continues to count in the meantime.
        ("not read for 1 s", |time| (!(1000..2000).contains(&time)).then(|| of_50_watts(time)), 200.0, true),
        ("every other reading", |time| (time % 20 == 0).then(|| of_50_watts(time)), 200.0, true),
        // A counter may have shown a step late, so the first step is accepted.
        ("5,000 J/s too many", |time| Some(of_50_watts(time) + 5000 * time), 50.5, false),
        ("a jump", |time| Some(of_50_watts(time) + if time < 2000 { 0 } else { 10_000_000 }), 199.5, true),
        ("a restart", |time| Some(of_50_watts(time) - if time < 2000 { 0 } else { 9_000_000 }), 199.5, true),
        (
            "jumps there and back",
            |time| Some(of_50_watts(time) + time.min(3000) / 100 % 2 * 10_000_000),
            200.0,
            true,
        ),
        ("a jump each 0.2 s", |time| Some(of_50_watts(time) + time / 200 * 10_000_000), 9.5, false),
    ];
    for (case, shows, joules, is_complete) in cases {
        let seen = next_to_a_good_counter(shows);
        let said = crate::highlights::sentences(&seen).join("\n");
        let notes = &seen.run.notes;
        assert!(
            (seen.run.total_joules - 200.0 - joules).abs() < 1.0,
            "{case}: {} {notes:?}",
            seen.run.total_joules
        );
        assert_eq!(seen.run.complete, is_complete, "{case}: {notes:?}");
        let missing = &seen.run.missing;
        assert!(
            missing.is_empty() == is_complete && missing.iter().all(|note| notes.contains(note)),
            "{case}"
        );
        // A mean over the whole run would be too low.
        assert_eq!(said.contains("at least"), !is_complete, "{case}: {said}");
    }
}

#[test]
fn a_counter_that_begins_a_moment_later_is_complete() {
    for (every, from) in [(10, 50), (20, 60), (50, 100), (100, 100), (500, 500)] {
        assert!(complete_though_late("", every, from), "every {every} ms, from {from} ms on");
    }
    for (every, from) in [(10, 250), (100, 250), (500, 1000)] {
        assert!(!complete_though_late("", every, from), "every {every} ms, from {from} ms on");
    }
    // Both counters were read at the same times, although one shows changes later.
    let delayed = "[[device]]\nname = 'first'\nmetric = 'energy0'\ndelay = '1s'\n[[device]]\nname = 'other'\nmetric = 'energy1'\n";
    assert!(complete_though_late(delayed, 10, 0));
}
