//! Names and units of other tools, and powers.

use crate::*;

/// A power of 100 W on average, which alternates between 50 W and 150 W. It is read `READINGS` times in a second, while `main`
/// runs.
fn power(trace: &mut Trace, class: MetricClassRef, units_per_watt: f64) {
    let node = trace.node("a");
    let location = trace.rank(0, node);
    let mut writer = trace.writer(location);
    writer.enter(SECOND, trace.main).expect("an event");
    for reading in 0..=READINGS {
        let watts = if reading % 2 == 0 { 50.0 } else { 150.0 };
        let value = MetricValue::U64((watts * units_per_watt).round() as u64);
        writer.metric(SECOND + reading * SECOND / READINGS, class, &[value]).expect("a sample");
    }
    writer.leave(2 * SECOND, trace.main).expect("an event");
    writer.close().expect("a location");
}

#[test]
fn a_power_is_integrated_in_its_own_unit() {
    use MetricBase::{Binary, Decimal};
    for (unit, base, exponent, units_per_watt) in [
        ("W", Decimal, 0, 1.0),
        ("uW", Decimal, 0, 1e6),
        ("mW", Decimal, 0, 1e3),
        ("kW", Decimal, -6, 1e3),
        ("W", Decimal, -3, 1e3),
        ("W", Binary, -4, 16.0),
    ] {
        let made = || {
            let mut trace = Trace::new();
            let class = trace.metric_in("node_power", unit, (base, exponent), MetricMode::AbsolutePoint);
            power(&mut trace, class, units_per_watt);
            trace
        };
        // This is tested without settings, and with a setting that does not give its scale.
        let trace = made();
        let config = trace.place.path("ampere.toml");
        let setting = "[[device]]\nname = \"node\"\nmetric = 'node_power'\nkind = \"instantaneous\"\n";
        std::fs::write(&config, setting).expect("room");
        let configured = trace.attribute(&["--config", config.to_str().expect("text")]);
        for summary in [configured, made().everywhere()] {
            assert_joules_are(&joules(&summary), &[100.0]);
            assert_eq!(summary["run"]["energy"], "integrated", "{unit}");
            assert_eq!(summary["devices"][0]["energy"], "integrated", "{unit}");
        }
    }
}

#[test]
fn a_power_applies_to_the_interval_that_its_mode_names() {
    use MetricMode::{AbsoluteLast, AbsoluteNext, AbsolutePoint, AccumulatedStart};
    // Samples of 50, 150 and 150 W, one second apart: each applies from its time on, or up to it.
    for (mode, expected) in
        [(AbsolutePoint, 200.0), (AbsoluteNext, 200.0), (AccumulatedStart, 200.0), (AbsoluteLast, 300.0)]
    {
        let mut trace = Trace::new();
        let class = trace.metric_in("node_power", "W", (MetricBase::Decimal, 0), mode);
        let node = trace.node("a");
        let location = trace.rank(0, node);
        let mut writer = trace.writer(location);
        writer.enter(SECOND, trace.main).expect("an event");
        for (time, watts) in (1..).zip([50, 150, 150]) {
            writer.metric(time * SECOND, class, &[MetricValue::U64(watts)]).expect("a sample");
        }
        writer.leave(3 * SECOND, trace.main).expect("an event");
        writer.close().expect("a location");
        let summary = trace.everywhere();
        assert_joules_are(&joules(&summary), &[expected]);
        assert_joules_are(&[number(&summary["devices"][0]["views"][0], "attributed_joules")], &[expected]);
    }
}

/// Score-P writes PAPI's metrics like this: without a unit, and with the mode of an accumulated value.
#[test]
fn power_metrics_with_known_names_are_used_if_there_is_no_energy_metric() {
    let papi = |trace: &mut Trace, name: &str| {
        trace.metric_in(name, "#", (MetricBase::Decimal, 0), MetricMode::AccumulatedStart)
    };
    let gpu_power = "A2rocm_smi:::power_average:device=0:sensor=0";
    let mut trace = Trace::new();
    let class = papi(&mut trace, gpu_power);
    papi(&mut trace, "A2rocm_smi:::current_socket_power:device=0");
    power(&mut trace, class, 1e6);
    let summary = trace.everywhere();
    assert_eq!(names(&summary), ["GPU-0"]);
    assert_joules_are(&joules(&summary), &[100.0]);
    assert_eq!(summary["run"]["energy"], "integrated");
    assert!(summary["run"]["notes"].to_string().contains("current_socket_power:device=0 is left out"));

    // Here the GPU also has an energy counter, and another metric is a power limit.
    let mut trace = Trace::new();
    let class = papi(&mut trace, gpu_power);
    power(&mut trace, class, 1e6);
    let counter = papi(&mut trace, GPU);
    let limit = trace.metric_in("power_cap", "W", (MetricBase::Decimal, 0), MetricMode::AbsolutePoint);
    let location = trace.rank(1, SystemTreeNodeRef(0));
    let mut writer = trace.writer(location);
    for reading in 0..2 {
        let time = (1 + reading) * SECOND;
        writer.metric(time, counter, &[MetricValue::U64(reading * 70_000_000)]).expect("a sample");
        writer.metric(time, limit, &[MetricValue::U64(500)]).expect("a sample");
    }
    writer.close().expect("a location");
    let summary = trace.attribute(&[]);
    assert_joules_are(&joules(&summary), &[70.0]);
    assert_eq!(summary["run"]["energy"], "measured");
}

/// Adds a rank on a node, whose thread works for 4 s, and metrics by name, unit, and increase per second or power.
fn record(trace: &mut Trace, node: SystemTreeNodeRef, rank: usize, metrics: &[(&str, &str, f64)]) {
    let group = trace.group(&format!("MPI Rank {rank}"), node);
    let thread = trace.location(LocationType::CpuThread, "main", group);
    let reader = trace.location(LocationType::Metric, "reader", group);
    trace.calls(thread, &[(0, "+work"), (40, "-work")]);
    let members: Vec<(&str, &str)> = metrics.iter().map(|(name, unit, _)| (*name, *unit)).collect();
    let class = trace.class(&members);
    let is_power = |name: &str, unit: &str| {
        let name = name.to_lowercase();
        is_unit_of_power(unit) || name.contains("power") && !name.contains("energy")
    };
    let values: Vec<(f64, f64)> = metrics
        .iter()
        .map(|(name, unit, value)| if is_power(name, unit) { (*value, 0.0) } else { (0.0, *value) })
        .collect();
    trace.reads(reader, &[(class.into(), &values)]);
}

fn recorded(metrics: &[(&str, &str, f64)]) -> Trace {
    let mut trace = Trace::new();
    let node = trace.node("a");
    record(&mut trace, node, 0, metrics);
    trace
}

/// Each metric amounts to 100 W.
#[test]
fn units_of_energy_and_power_are_known_however_they_are_written() {
    for (unit, value) in [
        ("MJ", 100e-6),
        ("kJ", 0.1),
        ("uJ", 100e6),
        ("nanojoules", 100e9),
        ("JOULES", 100.0),
        ("W*s", 100.0),
        ("mWh", 100.0 / 3.6),
        ("watt-hours", 100.0 / 3600.0),
        ("[J]", 100.0),
        ("0.5 Joules", 200.0),
        ("kW", 0.1),
        ("MilliWatts", 100e3),
        ("mWatt", 100e3),
        ("J/s", 100.0),
    ] {
        let summary = recorded(&[("supply", unit, value)]).everywhere();
        assert_joules_are(&[total(&summary)], &[400.0]);
        assert_eq!(summary["run"]["complete"], true, "{unit}: {}", notes(&summary));
    }
}

#[test]
fn energies_of_papis_components_and_others_are_found_by_name() {
    type Case<'a> = (&'a [(&'a str, &'a str, f64)], f64);
    let cases: [Case; 10] = [
        (
            &[
                ("rocm_smi:::energy_count:device=0", "#", 100e6),
                ("rapl:::PACKAGE_ENERGY:PACKAGE0", "#", 150e9),
                ("nvml:::NVIDIA_A100:device_0:total_energy_consumption", "#", 200e3),
            ],
            450.0,
        ),
        (
            &[("A2rapl:::PACKAGE_ENERGY:PACKAGE0", "#", 50e9), ("A2rapl:::DRAM_ENERGY:PACKAGE0", "#", 10e9)],
            60.0,
        ),
        (&[("powercap:::ENERGY_UJ:ZONE0", "", 50e6), ("powercap:::ENERGY_UJ:ZONE1", "", 60e6)], 110.0),
        (
            &[
                ("amd_smi:::energy_consumed:device=0", "#", 300e6),
                ("amd_smi:::energy_consumed:device=1", "#", 200e6),
            ],
            500.0,
        ),
        (&[("cray_pm:::PM_ENERGY:NODE", "#", 500.0), ("cray_pm:::PM_ENERGY:MEMORY", "#", 40.0)], 500.0),
        (&[("power/energy-pkg/", "Joules", 70.0), ("power/energy-ram/", "Joules", 7.0)], 77.0),
        (&[("power/energy-pkg/", "#", 70.0 * 4_294_967_296.0)], 70.0),
        // The names are those of GEOPM, LIKWID and CodeCarbon.
        (
            &[
                ("BOARD_ENERGY", "joules", 400.0),
                ("CPU_ENERGY", "joules", 100.0),
                ("GPU_ENERGY", "joules", 200.0),
            ],
            400.0,
        ),
        (
            &[("PWR_PKG_ENERGY", "J", 90.0), ("PWR_PP0_ENERGY", "J", 50.0), ("PWR_DRAM_ENERGY", "J", 10.0)],
            100.0,
        ),
        (
            &[
                ("cpu_energy", "kWh", 100.0 / 3.6e6),
                ("gpu_energy", "kWh", 200.0 / 3.6e6),
                ("energy_consumed", "kWh", 300.0 / 3.6e6),
            ],
            300.0,
        ),
    ];
    for (metrics, watts) in cases {
        let summary = recorded(metrics).everywhere();
        assert_joules_are(&[total(&summary)], &[4.0 * watts]);
        assert_eq!(names(&summary).len(), metrics.len());
        assert_eq!(summary["run"]["complete"], true, "{}", notes(&summary));
    }
}

#[test]
fn papi_power_metrics_are_recognised_by_name() {
    for (name, watts) in [
        ("nvml:::Tesla_K40c:device_0:power", 100e3),
        ("cray_pm:::PM_POWER:NODE", 100.0),
        ("amd_smi:::power_average:device=0", 100.0),
        ("elab.ariel.s0.package.power", 100.0),
    ] {
        let unit = if name.starts_with("elab") { "W" } else { "#" };
        let mut trace = Trace::new();
        let class = trace.metric_in(name, unit, (MetricBase::Decimal, 0), MetricMode::AbsolutePoint);
        power(&mut trace, class, watts / 100.0);
        let summary = trace.everywhere();
        assert_joules_are(&joules(&summary), &[100.0]);
    }
}

/// A power in addition to an energy counts if its name shows that it is the power of another device.
#[test]
fn a_power_is_integrated_if_its_device_has_no_energy_metric() {
    let summary = recorded(&[("rapl:::PACKAGE_ENERGY:PACKAGE0", "#", 50e9), ("package 1 power", "W", 80.0)]);
    let summary = summary.everywhere();
    assert_joules_are(&joules(&summary), &[200.0, 320.0]);
    assert_eq!(summary["run"]["energy"], "integrated", "as its least accurate device");
}

#[test]
fn what_looks_like_energy_and_is_left_out_is_named() {
    // Each case is the metric next to a package's energy, the words of its note, and whether the run is complete.
    for (name, unit, said, complete) in [
        ("power_cap", "W", "not a consumption", true),
        ("rapl:::MAXIMUM_POWER:PACKAGE0", "W", "not a consumption", true),
        ("package 0 power", "W", "powers of devices whose energy is recorded, too", true),
        ("libmsr:::PKG_DELTA_ENERGY:PACKAGE0", "J", "not a consumption", true),
        ("powercap_ppc:::POWERCAP_CURRENT", "W", "not a consumption", true),
        ("package 0 TDP", "W", "not a consumption", true),
        ("board_energy_counter", "#", "its unit, '#', is not known", false),
        ("supply", "dBW (watts)", "its unit, 'dBW (watts)', is not known", false),
        ("nvmlPowerUsage", "units", "its unit, 'units', is not known", false),
        ("supply", "W", "powers next to energies", false),
    ] {
        let summary =
            recorded(&[("rapl:::PACKAGE_ENERGY:PACKAGE0", "#", 50e9), (name, unit, 80.0)]).everywhere();
        let notes = notes(&summary);
        assert_joules_are(&[total(&summary)], &[200.0]);
        assert!(notes.contains(said) && notes.contains(name), "{name}: {notes}");
        assert_eq!(summary["run"]["complete"], complete, "{name}: {notes}");
    }
}

/// The readings of a sensor with an unknown name show whether it repeats a known device, is negligible, or may be missing from
/// the total.
#[test]
fn the_watts_of_a_power_that_is_left_out_decide_whether_the_run_is_complete() {
    for (watts, complete) in [(48.0, true), (0.2, true), (80.0, false)] {
        let sensor = ("A2coretemp:::hwmon2:power1_input", "#", watts * 1e6);
        let summary = recorded(&[("rapl:::PACKAGE_ENERGY:PACKAGE0", "#", 50e9), sensor]).everywhere();
        assert_joules_are(&[total(&summary)], &[200.0]);
        assert!(notes(&summary).contains(sensor.0), "{}", notes(&summary));
        assert_eq!(summary["run"]["complete"], complete, "{watts} W: {}", notes(&summary));
    }
}

/// The power of all GPUs is not the energy of one of them.
#[test]
fn the_power_of_all_parts_next_to_the_energy_of_one_makes_a_run_incomplete() {
    for (watts, complete) in [(110.0, true), (400.0, false)] {
        for (energy, power) in [("GPU 0 energy", "GPU power"), ("package 0 energy", "cpu power")] {
            let summary = recorded(&[(energy, "J", 100.0), (power, "W", watts)]).everywhere();
            assert_joules_are(&[total(&summary)], &[400.0]);
            assert_eq!(summary["run"]["complete"], complete, "{watts} W: {}", notes(&summary));
        }
    }
}

/// One counter of all GPUs or processors of a node may show more than a single one can draw.
#[test]
fn a_counter_without_a_number_may_be_that_of_several_devices() {
    for (name, unit, watts) in
        [("GPU energy", "J", 5600.0), ("GPU power", "W", 5600.0), ("cpu energy", "J", 1500.0)]
    {
        let summary = recorded(&[(name, unit, watts)]).everywhere();
        assert_joules_are(&[total(&summary)], &[4.0 * watts]);
        assert_eq!(summary["run"]["complete"], true, "{name}: {}", notes(&summary));
    }
}

/// Each node has its own sensors, which measure a device whose energy is known, or not.
#[test]
fn what_may_be_missing_on_two_nodes_is_one_line_with_any_number_of_threads() {
    let mut trace = Trace::new();
    for (rank, name) in ["a", "b"].into_iter().enumerate() {
        let node = trace.node(name);
        let sensor = format!("supply of {name}");
        record(
            &mut trace,
            node,
            rank,
            &[("rapl:::PACKAGE_ENERGY:PACKAGE0", "#", 50e9), (&sensor, "W", 80.0)],
        );
    }
    let (_place, trace) = trace.finish();
    let [one, two] = ["1", "2"].map(|threads| attribute(&trace, &["--threads", threads]));
    assert!(
        notes(&one).contains(
            "metrics with samples are left out: supply of a, supply of b; see the notes about them"
        ),
        "{one}"
    );
    assert_eq!(one, two);
}

#[test]
fn the_average_and_the_current_power_of_a_device_are_counted_once() {
    for names in [
        ["GPU 0 average power", "GPU 0 current power"],
        ["GPU 0 power", "GPU 0 average power"],
        ["average_socket_power:3", "current_socket_power:3"],
        ["PSU 1 mean power", "PSU 1 instantaneous power"],
    ] {
        let summary = recorded(&names.map(|name| (name, "W", 100.0))).everywhere();
        assert_eq!((total(&summary) / 4.0).round(), 100.0, "{names:?}: {summary:#}");
        let said = format!("metric {} is left out: {} measures the same device", names[1], names[0]);
        assert!(notes(&summary).contains(&said), "{}", notes(&summary));
    }
    let apart = ["GPU 0 average power", "GPU 1 current power"];
    assert_eq!((total(&recorded(&apart.map(|name| (name, "W", 100.0))).everywhere()) / 4.0).round(), 200.0);
}
