//! Devices that are parts of others: each joule is counted once.

use crate::*;

/// A Frontier node with the GPUs' own counters and those of Cray.
#[test]
fn crays_counters_are_found_and_no_joule_is_counted_twice() {
    let cray = |name: &str| format!("A2coretemp:::craypm:{name}");
    let all = [
        (cray("energy"), 500),
        (cray("cpu_energy"), 50),
        (cray("memory_energy"), 30),
        (cray("accel0_energy"), 130),
        (cray("accel1_energy"), 240),
        (cray("accel0_energy_timestamp"), 7_000_000),
        ("A2rocm_smi:::energy_count:device=0".to_owned(), 120_000_000),
        ("A2rocm_smi:::energy_count:device=2".to_owned(), 230_000_000),
    ];
    // Without the node's counter, those of the accelerators count, and the GPUs' within them do not.
    for (from, total) in [(0, 500.0), (1, 50.0 + 30.0 + 130.0 + 240.0)] {
        let mut trace = Trace::new();
        let node = trace.node("frontier00001");
        let locations = [0, 1].map(|rank| trace.rank(rank, node));
        for (rank, location) in locations.into_iter().enumerate() {
            let classes = all[from..].iter().map(|(name, units)| {
                let class =
                    trace.metric_in(name, "#", (MetricBase::Decimal, 0), MetricMode::AccumulatedStart);
                (class, *units)
            });
            let classes: Vec<_> = classes.collect();
            let mut writer = trace.writer(location);
            writer.enter(SECOND, trace.main).expect("an event");
            // Both ranks record all of the counters.
            for reading in 0..=READINGS {
                for (class, units) in &classes {
                    let value = MetricValue::U64(1_000 + units * reading / READINGS);
                    let time = SECOND + reading * SECOND / READINGS + rank as u64;
                    writer.metric(time, *class, &[value]).expect("a sample");
                }
            }
            writer.leave(2 * SECOND + 1, trace.main).expect("an event");
            writer.close().expect("a location");
        }
        let summary = trace.everywhere();
        let mut names = names(&summary);
        names.sort_unstable();
        let expected = ["GPU-0", "GPU-2", "accel0", "accel1", "cpu", "memory", "node"];
        assert_eq!(names, expected[..expected.len() - from]);
        assert_joules_are(&[number(&summary["run"], "total_joules")], &[total]);
        let accelerator =
            list(&summary, "devices").iter().find(|d| d["name"] == "accel1").expect("it exists");
        assert_eq!((&accelerator["kind"], &accelerator["contains"][0]), (&"gpu".into(), &"GPU-2".into()));
        assert_eq!(summary["run"]["complete"], true, "{}", summary["run"]);
    }
}

/// Returns the summary of a node whose counters rise by these joules a second.
fn of_watts(watts: &[(&str, f64)]) -> Value {
    let mut trace = Trace::new();
    let node = trace.node("a");
    let group = trace.group("MPI Rank 0", node);
    let thread = trace.location(LocationType::CpuThread, "main", group);
    trace.calls(thread, &[(0, "+work"), (40, "-work")]);
    for (metric, watts) in watts {
        let reader = trace.location(LocationType::Metric, metric, group);
        let class = trace.class(&[(*metric, "J")]);
        trace.reads(reader, &[(class.into(), &[(0.0, *watts)])]);
    }
    trace.everywhere()
}

#[test]
fn parts_are_not_added_to_their_whole() {
    type Case<'a> = (&'a [(&'a str, f64)], f64);
    let cases: [Case; 22] = [
        (&[("package/energy", 100.0), ("core/energy", 70.0), ("system/energy", 200.0)], 200.0),
        (&[("package/energy", 100.0), ("core/energy", 70.0), ("dram/energy", 20.0)], 120.0),
        (
            &[
                ("hdeem/BLADE/E", 300.0),
                ("hdeem/CPU0/E", 80.0),
                ("hdeem/CPU1/E", 90.0),
                ("hdeem/DDR_AB/E", 9.0),
            ],
            300.0,
        ),
        (
            &[
                ("x86_energy/PACKAGE0/E", 80.0),
                ("x86_energy/PACKAGE1/E", 90.0),
                ("x86_energy/CORE0/E", 40.0),
                ("x86_energy/CORE1/E", 60.0),
            ],
            170.0,
        ),
        (&[("power/energy-psys/", 150.0), ("power/energy-pkg/", 100.0), ("power/energy-gpu/", 30.0)], 150.0),
        // A platform's counter does not include graphics cards.
        (&[("power/energy-psys/", 150.0), ("rocm_smi:::energy_count:device=0", 200.0)], 350.0),
        (
            &[
                ("gpu0 board energy", 300.0),
                ("gpu0 energy", 250.0),
                ("gpu0 memory energy", 40.0),
                ("gpu1 energy", 10.0),
            ],
            310.0,
        ),
        // There is a counter of all packages, and one of each.
        (&[("cpu energy", 170.0), ("cpu0 energy", 80.0), ("cpu1 energy", 90.0)], 170.0),
        // Two libraries record the same package.
        (&[("rapl:::PACKAGE_ENERGY:PACKAGE0", 100.0), ("powercap:::ENERGY_UJ:ZONE0", 99.5)], 100.0),
        (&[("total energy", 300.0), ("gpu 0 energy", 100.0), ("gpu 1 energy", 110.0)], 300.0),
        (&[("all gpus energy", 210.0), ("gpu 0 energy", 100.0), ("gpu 1 energy", 110.0)], 210.0),
        (
            &[
                ("package 0 energy", 200.0),
                ("ccd0 energy", 50.0),
                ("ccd1 energy", 60.0),
                ("iod energy", 40.0),
            ],
            200.0,
        ),
        // The names of parts begin with the path of the whole; in the next case, a power supply has an input and an output.
        (
            &[("lab.a.energy", 300.0), ("lab.a.s0.package.energy", 100.0), ("lab.a.s1.package.energy", 90.0)],
            300.0,
        ),
        (&[("PSU1_ENERGY_IN", 150.0), ("PSU1_ENERGY_OUT", 140.0), ("PSU2_ENERGY_IN", 30.0)], 180.0),
        // All supplies together contain everything else.
        (
            &[
                ("PSU1 energy", 90.0),
                ("PSU2 energy", 100.0),
                ("package0 energy", 95.0),
                ("gpu0 energy", 50.0),
            ],
            190.0,
        ),
        (&[("PS1 Input energy", 90.0), ("PS2 Input energy", 1.0), ("package0 energy", 80.0)], 91.0),
        (
            &[("system energy", 188.0), ("PSU1 energy", 90.0), ("PSU2 energy", 100.0), ("cpu energy", 95.0)],
            188.0,
        ),
        // The name shows no device, and the metric has exactly the joules of all others.
        (&[("consumed energy", 170.0), ("package0 energy", 80.0), ("package1 energy", 90.0)], 170.0),
        // A total may be a little below its parts.
        (&[("gpu 0 energy", 100.0), ("gpu 1 energy", 110.0), ("gpu energy", 200.0)], 200.0),
        // Linux' sensors, as lo2s records them.
        (&[("power_meter-acpi-0/energy1", 500.0), ("amdgpu-pci-4300/energy1", 150.0)], 500.0),
        // No name shows a device.
        (&[("outlet1 energy", 100.0), ("outlet2 energy", 101.0), ("pdu energy", 201.0)], 201.0),
        // The sum of two outlets has the name of an outlet.
        (&[("outlet1 energy", 100.0), ("outlet2 energy", 101.0), ("outlet3 energy", 201.0)], 402.0),
    ];
    for (watts, expected) in cases {
        let summary = of_watts(watts);
        assert_joules_are(&[total(&summary)], &[4.0 * expected]);
        assert_eq!(names(&summary).len(), watts.len(), "all are shown");
        assert_eq!(summary["run"]["complete"], true, "{}", notes(&summary));
    }
}

/// Score-P defines the node's GPUs. An MI300A's counter is that of its socket, an MI300X's is not.
#[test]
fn the_counter_of_an_mi300a_contains_the_package_with_its_number() {
    let metrics = [
        ("A2rocm_smi:::energy_count:device=0", 300.0),
        ("A2rocm_smi:::energy_count:device=1", 250.0),
        ("A2rapl:::PACKAGE_ENERGY:PACKAGE0", 90.0),
        ("A2rapl:::PACKAGE_ENERGY:PACKAGE1", 80.0),
    ];
    for (model, expected) in [("AMD Instinct MI300A", 550.0), ("AMD Instinct MI300X", 720.0)] {
        let mut trace = Trace::new();
        let node = trace.node("a");
        let gpu = trace.part("ROCm Device", "0", Some(node), &[SystemTreeDomain::AcceleratorDevice]);
        let name = Property { name: "Device name".into(), value: PropertyValue::String(model.into()) };
        trace.definitions.system_tree_nodes.get_mut(gpu).expect("a GPU").properties.push(name);
        let group = trace.group("MPI Rank 0", node);
        let thread = trace.location(LocationType::CpuThread, "main", group);
        trace.calls(thread, &[(0, "+work"), (40, "-work")]);
        for (metric, watts) in metrics {
            let reader = trace.location(LocationType::Metric, metric, group);
            let class = trace.class(&[(metric, "J")]);
            trace.reads(reader, &[(class.into(), &[(0.0, watts)])]);
        }
        let summary = trace.everywhere();
        assert_joules_are(&[total(&summary)], &[4.0 * expected]);
        assert_eq!(summary["run"]["complete"], true, "{}", notes(&summary));
    }
}

#[test]
fn a_whole_that_its_parts_disprove_does_not_count() {
    for (whole, watts) in
        [("rapl:::PSYS_ENERGY:PACKAGE0", 10.0), ("system/energy", 0.0), ("hdeem/BLADE/E", 90.0)]
    {
        let summary = of_watts(&[(whole, watts), ("package0 energy", 40.0), ("package1 energy", 60.0)]);
        assert_joules_are(&[total(&summary)], &[400.0]);
        assert_eq!(names(&summary), ["package0 energy", "package1 energy"]);
        assert_eq!(summary["run"]["complete"], false);
        assert!(notes(&summary).contains(&format!("{whole} on a is left out")), "{}", notes(&summary));
    }
    // In a chain of three devices, the wrong counter is that of the package, in the middle.
    let summary = of_watts(&[("system/energy", 200.0), ("package/energy", 30.0), ("core/energy", 70.0)]);
    assert_joules_are(&[total(&summary)], &[800.0]);
    assert_eq!((names(&summary).len(), &summary["run"]["complete"]), (2, &false.into()));
}

/// If it is unknown which device is a part of which, no joule is counted twice, and a note reports it.
#[test]
fn parts_of_an_unknown_whole_make_a_run_incomplete() {
    for (watts, expected) in [
        (&[("powercap:::ENERGY_UJ:ZONE0", 100.0), ("powercap:::ENERGY_UJ:ZONE0_SUBZONE0", 30.0)][..], 100.0),
        (&[("package0 energy", 100.0), ("package1 energy", 90.0), ("core7 energy", 5.0)][..], 190.0),
        (&[("rapl:::PACKAGE_ENERGY:PACKAGE0", 100.0), ("powercap:::ENERGY_UJ:ZONE0", 50.0)][..], 100.0),
        (&[("PSU1 energy", 55.0), ("package0 energy", 40.0), ("package1 energy", 60.0)][..], 155.0),
        // The other metrics may or may not be parts of the first one.
        (&[("supply energy", 100.0), ("VDD_CPU energy", 30.0), ("VDD_GPU energy", 40.0)][..], 170.0),
        (&[("Energy", 100.0), ("Energy PP0", 60.0)][..], 160.0),
        // One counter under two names, or two that have the same joules by chance.
        (&[("energy", 100.0), ("energy_of_job", 100.0)][..], 200.0),
        (&[("package energy", 100.0), ("package energy (scaled)", 100.0), ("dram energy", 20.0)][..], 220.0),
        // Two measurements of one device differ a little.
        (&[("node energy", 100.0), ("system energy", 104.0)][..], 204.0),
        (&[("rapl:::PACKAGE_ENERGY:PACKAGE0", 100.0), ("Intel RAPL PCKG[0]", 101.0)][..], 201.0),
        // One of two names says what is counted.
        (&[("gpu 0 energy", 100.0), ("gpu 1 energy", 150.0), ("hwmon2 energy", 100.5)][..], 350.5),
    ] {
        let summary = of_watts(watts);
        assert_joules_are(&[total(&summary)], &[4.0 * expected]);
        assert_eq!(summary["run"]["complete"], false, "{}", notes(&summary));
    }
}

/// The value of a counter at a step.
type At = fn(u64) -> u64;

/// Writes counters, given by their millijoules in each hundredth of a second, and a kernel on the second GPU. Returns the
/// summary.
fn of_values(counters: &[(&str, At)]) -> Value {
    let mut trace = Trace::new();
    let node = trace.node("a");
    let rank = trace.rank(0, node);
    trace.calls(rank, &[(0, "+main"), (40, "-main")]);
    let stream = trace.stream(0, "HIP[1:0]");
    trace.calls(stream, &[(10, "+kernel"), (30, "-kernel")]);
    let classes = counters.iter().map(|(name, _)| trace.metric(name, -3, MetricMode::AccumulatedStart));
    let classes: Vec<_> = classes.collect();
    let group = trace.group("sampler", node);
    let sampler = trace.location(LocationType::Metric, "sampler", group);
    let mut writer = trace.writer(sampler);
    for hundredth in 0..=400 {
        for (class, (_, millijoules)) in classes.iter().zip(counters) {
            let value = MetricValue::U64(millijoules(hundredth));
            writer.metric(hundredth * SECOND / 100, *class, &[value]).expect("a sample");
        }
    }
    writer.close().expect("a location");
    trace.everywhere()
}

/// Each partition of a GPU may show the counter of the whole.
#[test]
fn a_counter_under_several_numbers_counts_once_if_its_power_varies() {
    let varying: fn(u64) -> u64 = |at| 1000 * at + at * at * 97 % 211;
    let gpus = [0, 1].map(|gpu| format!("rocm_smi:::energy_count:device={gpu}"));
    let gpus = gpus.each_ref().map(String::as_str);
    for names in [gpus, ["rapl:::PACKAGE_ENERGY:PACKAGE0", "rapl:::PACKAGE_ENERGY:PACKAGE1"]] {
        let summary = of_values(&names.map(|name| (name, varying)));
        let joules = (varying(400) - varying(0)) as f64 / 1000.0;
        assert_joules_are(&[total(&summary)], &[joules]);
        assert_eq!(
            (crate::names(&summary).len(), &summary["run"]["complete"]),
            (1, &true.into()),
            "{}",
            notes(&summary)
        );
        assert!(notes(&summary).contains("both rise in step, to the last tick"), "{}", notes(&summary));
    }
    let kernel = of_region(&of_values(&gpus.map(|gpu| (gpu, varying))), "kernels", "kernel");
    assert!((kernel - 200.0).abs() < 1.0, "a kernel of the second partition has {kernel} J of the package");
    let constant: fn(u64) -> u64 = |at| 1000 * at;
    assert_joules_are(&[total(&of_values(&gpus.map(|gpu| (gpu, constant))))], &[800.0]);
}

#[test]
fn a_counter_that_has_the_joules_of_others_at_other_times_is_not_their_sum() {
    let [all, half]: [fn(u64) -> u64; 2] = [|at| 2100 * at, |at| 4200 * at.saturating_sub(200)];
    let parts: [(&str, At); 2] = [("alpha energy", |at| 1000 * at), ("beta energy", |at| 1100 * at)];
    for (other, expected) in [(all, 840.0), (half, 1680.0)] {
        let summary = of_values(&[parts[0], parts[1], ("other energy", other)]);
        assert_joules_are(&[total(&summary)], &[expected]);
    }
}

#[test]
fn counters_of_one_name_in_two_libraries_have_names_of_their_own() {
    let mut trace = Trace::new();
    let node = trace.node("a");
    let group = trace.group("MPI Rank 0", node);
    let thread = trace.location(LocationType::CpuThread, "main", group);
    let reader = trace.location(LocationType::Metric, "reader", group);
    trace.calls(thread, &[(0, "+main"), (40, "-main")]);
    let class =
        trace.class(&[("rocm_smi:::energy_count:device=0", "J"), ("amd_smi:::energy_count:device=0", "J")]);
    trace.reads(reader, &[(class.into(), &[(5.0, 100.0), (9.0, 100.0)])]);
    let summary = trace.everywhere();
    assert_eq!(names(&summary), ["GPU-0", "GPU-0-amd_smi"]);
    let contained: Vec<&Value> = list(&summary, "devices").iter().map(|device| &device["contains"]).collect();
    assert_eq!(contained, [&serde_json::json!(["GPU-0-amd_smi"]), &serde_json::json!([])]);
    assert_eq!(total(&summary), 400.0);
}
