//! Who recorded a counter, and who used the energy that it counts.

use crate::*;

/// Score-P writes PAPI's counters like this: each process starts at 0, and reads when it has an event.
#[test]
fn a_counter_that_each_rank_records_is_counted_once() {
    let mut trace = Trace::new();
    let node = trace.node("a");
    let class = trace.counter();
    for rank in 0..3 {
        let location = trace.rank(rank, node);
        let mut writer = trace.writer(location);
        a_second(&trace, &mut writer, class, 1_000_000, rank * 20_000);
        writer.close().expect("a location");
    }
    let summary = trace.attribute(&[]);
    assert_joules_are(&joules(&summary), &[100.0]);
    assert_eq!(summary["quality"]["counter_resets"], 0);
    let notes = summary["run"]["notes"].to_string();
    assert!(
        notes.contains("energy on a is recorded by 3 locations that all read one counter: only the samples of one of them are used"),
        "{notes}"
    );
    assert_eq!(summary["run"]["complete"], true);
}

/// Each rank reads at its own enters and leaves, so that there are long times without a reading, in which the counter is updated
/// often.
#[test]
fn a_counter_that_ranks_read_at_their_events_is_counted_once() {
    let mut trace = Trace::new();
    let node = trace.node("a");
    let class = trace.counter();
    let mut seed = 1u64;
    let mut random = move |limit: u64| {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (seed >> 33) % limit
    };
    // 150 times, both work for about 50 ms and wait for each other.
    let works: Vec<[u64; 2]> = (0..150).map(|_| [0, 1].map(|_| 47_500 + random(5_000))).collect();
    for rank in 0..2 {
        let location = trace.rank(rank, node);
        let mut writer = trace.writer(location);
        let mut begin = SECOND;
        // The counter has 100 W, and is updated every millisecond; the values are in microjoules.
        let read = |time: u64| MetricValue::U64(time / 1000 * 1000 * 100);
        for work in &works {
            let ends = [begin, begin + work[rank as usize], begin + work[0].max(work[1]) + 20];
            writer.metric(ends[0], class, &[read(ends[0])]).expect("a sample");
            writer.enter(ends[0], trace.main).expect("an event");
            for end in &ends[1..] {
                for time in [*end, *end + 3] {
                    writer.metric(time, class, &[read(time)]).expect("a sample");
                }
            }
            writer.leave(ends[2] + 3, trace.main).expect("an event");
            begin = ends[2] + 30;
        }
        writer.close().expect("a location");
    }
    let summary = trace.attribute(&[]);
    let notes = summary["run"]["notes"].to_string();
    assert!(notes.contains("recorded by 2 locations that all read one counter"), "{notes}");
    assert_eq!(summary["run"]["complete"], true);
}

#[test]
fn gpus_that_each_rank_sees_as_number_0_are_each_a_device() {
    let mut trace = Trace::new();
    let watts = [100.0, 150.0, 200.0, 250.0, 300.0];
    ranks_with(&mut trace, GPU, &watts);
    for rank in 0..5 {
        let stream = trace.stream(rank, "HIP[0:0]");
        let mut writer = trace.writer(stream);
        writer.enter(SECOND + SECOND / 2, trace.main).expect("an event");
        writer.leave(2 * SECOND, trace.main).expect("an event");
        writer.close().expect("a location");
    }
    let summary = trace.everywhere();
    assert_eq!(names(&summary), [0, 1, 2, 3, 4].map(|rank| format!("GPU-0@rank {rank}")));
    assert_joules_are(&joules(&summary), &watts);
    assert_joules_are(&[number(&summary["run"], "total_joules")], &[1000.0]);
    for (rank, device) in list(&summary, "devices").iter().enumerate() {
        assert_eq!(by_rank(device).len(), 1);
        assert_eq!(by_rank(device)[0].0, format!("MPI Rank {rank}"));
        assert_joules_are(
            &[by_rank(device)[0].1, number(&list(device, "views")[1], "attributed_joules")],
            &[watts[rank], watts[rank] / 2.0],
        );
    }
    let run = &summary["run"];
    assert_eq!(run["complete"], true, "{run}");
    assert!(run["notes"].to_string().contains("is recorded by 5 locations and means 5 devices"), "{run}");
}

#[test]
fn ranks_that_share_a_gpu_are_distinguished_from_those_that_do_not() {
    let mut trace = Trace::new();
    ranks_with(&mut trace, GPU, &[100.0, 100.0, 300.0, 300.0]);
    let summary = trace.everywhere();
    assert_eq!(names(&summary), ["GPU-0@rank 0", "GPU-0@rank 2"]);
    assert_joules_are(&joules(&summary), &[100.0, 300.0]);
    let of = |device: usize| by_rank(&list(&summary, "devices")[device]);
    assert_eq!(of(0).iter().map(|(rank, _)| *rank).collect::<Vec<_>>(), ["MPI Rank 0", "MPI Rank 1"]);
    assert_joules_are(&of(1).iter().map(|(_, joules)| *joules).collect::<Vec<_>>(), &[150.0, 150.0]);
    assert_eq!(summary["run"]["complete"], true);
}

/// Two GPUs with the same work are each read by two ranks at times of their own: the counters change every 15 ms, and differ only
/// by the noise of their power.
#[test]
fn ranks_that_share_a_gpu_are_found_by_what_they_read_at_odd_times() {
    const UPDATE: u64 = 15_000;
    let mut seed = 1u64;
    let mut random = move |limit: u64| {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (seed >> 33) % limit
    };
    let mut trace = Trace::new();
    let node = trace.node("a");
    let class = trace.metric_in(GPU, "#", (MetricBase::Decimal, 0), MetricMode::AccumulatedStart);
    // The power is 300 W, and varies by 30 % between updates; the values are in microjoules.
    let gpus: Vec<Vec<u64>> = (0..2)
        .map(|_| {
            let mut risen = 0;
            (0..20 * SECOND / UPDATE)
                .map(|_| {
                    risen += UPDATE * (210 + random(181));
                    risen
                })
                .collect()
        })
        .collect();
    for rank in 0..4 {
        let gpu = &gpus[rank as usize / 2];
        let location = trace.rank(rank, node);
        let mut writer = trace.writer(location);
        writer.enter(SECOND, trace.main).expect("an event");
        let mut time = rank * 1000;
        while let Some(value) = gpu.get((time / UPDATE) as usize) {
            let value = MetricValue::U64(value + rank * 777);
            writer.metric(SECOND + time, class, &[value]).expect("a sample");
            time += 1 + random(100_000);
        }
        writer.leave(21 * SECOND, trace.main).expect("an event");
        writer.close().expect("a location");
    }
    let summary = trace.attribute(&[]);
    assert_eq!(names(&summary), ["GPU-0@rank 0", "GPU-0@rank 2"], "{}", summary["run"]);
    assert_eq!(summary["run"]["complete"], true);
}

/// The trace does not show whether it is one GPU or two.
#[test]
fn two_idle_gpus_of_one_name_stay_two_with_a_note() {
    let said = "whether rank 0 and rank 1 read one counter cannot be determined";
    let mut trace = Trace::new();
    ranks_with(&mut trace, GPU, &[1e-3, 1e-3]);
    let class = trace.counter();
    let location = trace.rank(2, SystemTreeNodeRef(0));
    let mut writer = trace.writer(location);
    a_second(&trace, &mut writer, class, 1_000_000, 0);
    writer.close().expect("a location");
    // Each rank has two readings, with at most one update of the counter between them.
    let few = |trace: &mut Trace| {
        let node = trace.node("b");
        let class = trace.metric_in(GPU, "#", (MetricBase::Decimal, 0), MetricMode::AccumulatedStart);
        for rank in 3..5 {
            let location = trace.rank(rank, node);
            let mut writer = trace.writer(location);
            for reading in 0..2 {
                let value = MetricValue::U64(17 * rank + reading * 300_000);
                writer.metric(SECOND + reading * 10_000, class, &[value]).expect("a sample");
            }
            writer.close().expect("a location");
        }
    };
    few(&mut trace);
    let summary = trace.everywhere();
    let run = &summary["run"];
    assert!(names(&summary).ends_with(&["GPU-0@rank 3", "GPU-0@rank 4"]), "{:?}", names(&summary));
    assert!(
        run["notes"].to_string().contains("whether rank 3 and rank 4 read one counter cannot be determined"),
        "{run}"
    );
    assert_eq!(run["complete"], true, "0.3 J of 100 J do not matter: {run}");

    let mut trace = Trace::new();
    ranks_with(&mut trace, GPU, &[0.0, 0.0]);
    let summary = trace.attribute(&[]);
    assert_eq!(names(&summary), ["GPU-0@rank 0", "GPU-0@rank 1"]);
    assert!(summary["run"]["notes"].to_string().contains(said), "{}", summary["run"]);
    assert_eq!(summary["run"]["complete"], true);

    let mut trace = Trace::new();
    few(&mut trace);
    let run = &trace.everywhere()["run"];
    assert_eq!(run["complete"], false, "it is all there is: {run}");
}

#[test]
fn a_die_whose_counter_stays_0_is_no_device() {
    let mut trace = Trace::new();
    ranks_with(&mut trace, GPU, &[100.0, 0.0]);
    let summary = trace.everywhere();
    assert_eq!(names(&summary), ["GPU-0"]);
    assert_joules_are(&joules(&summary), &[100.0]);
    let notes = summary["run"]["notes"].to_string();
    assert!(notes.contains("rank 1 recorded only zeros and is not treated as a device"), "{notes}");
}

/// A part of a trace may have counters and no thread.
#[test]
fn a_node_is_known_by_its_counters() {
    let mut trace = Trace::new();
    let (node, class) = (trace.node("frontier00001"), trace.counter());
    let location = trace.rank(0, node);
    let mut writer = trace.writer(location);
    a_second(&trace, &mut writer, class, 1_000_000, 0);
    writer.close().expect("a location");
    trace.definitions.locations.get_mut(location).expect("it exists").kind = LocationType::Metric;
    let summary = trace.attribute(&[]);
    assert_eq!(summary["run"]["nodes"][0], "frontier00001");
}

/// lo2s writes counters in a group of their own: processes must not be taken for recorders, nor recorders for consumers.
#[test]
fn what_others_recorded_is_used_by_all() {
    // Each case is the group that records, and whether it is a rank with a thread.
    for (recorder, has_thread) in [("Metric Location Group", false), ("MPI Rank 0", true)] {
        for metric in ["package/energy", "energy"] {
            let mut trace = Trace::new();
            let node = trace.node("a");
            let recorder = trace.group(recorder, node);
            let user = trace.group("process 42", node);
            if has_thread {
                trace.location(LocationType::CpuThread, "idle", recorder);
            }
            let thread = trace.location(LocationType::CpuThread, "thread 42", user);
            let class = trace.class(&[(metric, "J")]);
            for (name, begin, watts) in [("0", 0.0, 50.0), ("16", 5.0, 80.0)] {
                let reader = trace.location(LocationType::Metric, name, recorder);
                trace.reads(reader, &[(class.into(), &[(begin, watts)])]);
            }
            trace.calls(thread, &[(0, "+work"), (40, "-work")]);
            let summary = trace.everywhere();
            assert_joules_are(&[total(&summary), of_region(&summary, "ranks", "work")], &[520.0, 520.0]);
        }
    }
}

/// Either the first of two ranks records a counter of all processors, or each rank records the counter of one processor.
#[test]
fn who_recorded_a_processor_need_not_have_used_it() {
    for watts in [&[100.0][..], &[40.0, 60.0][..]] {
        let mut trace = Trace::new();
        let node = trace.node("a");
        let class = trace.class(&[("package/energy", "J")]);
        for (rank, name) in ["+first", "+second"].into_iter().enumerate() {
            let group = trace.group(&format!("MPI Rank {rank}"), node);
            let thread = trace.location(LocationType::CpuThread, "main", group);
            let left = name.replace('+', "-");
            trace.calls(thread, &[(0, name), (40, &left)]);
            if let Some(watts) = watts.get(rank) {
                let reader = trace.location(LocationType::Metric, "reader", group);
                trace.reads(reader, &[(class.into(), &[(0.0, *watts)])]);
            }
        }
        let summary = trace.everywhere();
        let of = |region| of_region(&summary, "ranks", region);
        assert_joules_are(&[total(&summary), of("first"), of("second")], &[400.0, 200.0, 200.0]);
    }
}

/// The group of each process has the same name, or those of ranks that were started later have the names of the first.
#[test]
fn processes_with_the_same_name_have_gpus_of_their_own() {
    for groups in [&["python", "python"][..], &["MPI Rank 0", "MPI Rank 1", "MPI Rank 0", "MPI Rank 1"]] {
        for has_scope in [false, true] {
            let mut trace = Trace::new();
            let node = trace.node("a");
            let groups: Vec<_> = groups.iter().map(|name| trace.group(name, node)).collect();
            let class = trace.class(&[(GPU, "J")]);
            let mut metrics = Vec::new();
            for (at, group) in groups.iter().enumerate() {
                let thread = trace.location(LocationType::CpuThread, "main", *group);
                trace.calls(thread, &[(0, &format!("+work {at}")), (40, &format!("-work {at}"))]);
            }
            for (at, group) in groups.iter().enumerate() {
                let recorder = if has_scope { groups[0] } else { *group };
                let reader = trace.location(LocationType::Metric, "reader", recorder);
                let scope = (MetricScope::LocationGroup, u64::from(group.0));
                let metric = match has_scope {
                    true => trace.about(class, reader, scope.0, scope.1),
                    false => class.into(),
                };
                metrics.push((reader, metric, [(0.0, 100.0 * (at + 1) as f64)]));
            }
            for (reader, metric, values) in &metrics {
                trace.reads(*reader, &[(*metric, values)]);
            }
            let summary = trace.everywhere();
            let regions = (0..groups.len()).map(|at| of_region(&summary, "ranks", &format!("work {at}")));
            let expected: Vec<f64> = (0..groups.len()).map(|at| 400.0 * (at + 1) as f64).collect();
            assert_joules_are(&regions.collect::<Vec<_>>(), &expected);
            assert_eq!(summary["run"]["complete"], true, "{}", notes(&summary));
        }
    }
}

/// The load of the ranks is balanced: for 4 s, their GPUs differ by less than a reading.
#[test]
fn gpus_of_ranks_with_balanced_load_are_each_counted() {
    // Either the counters are absolute, so that one cannot show both values, or they start at 0.
    for (starts, is_complete) in [([9.1e11, 3.3e11], true), ([0.0, 0.0], false)] {
        let mut trace = Trace::new();
        let node = trace.node("a");
        let class = trace.metric_in(GPU, "#", (MetricBase::Decimal, 0), MetricMode::AccumulatedStart);
        for (rank, start) in (0..).zip(starts) {
            let location = trace.rank(rank, node);
            let mut writer = trace.writer(location);
            writer.enter(0, trace.main).expect("an event");
            for reading in 0..=40 {
                let microjoules = start + (500.0 + 3.0 * rank as f64) * 1e5 * reading as f64;
                let value = MetricValue::U64(microjoules as u64);
                writer.metric(reading * SECOND / 10, class, &[value]).expect("a sample");
            }
            writer.leave(4 * SECOND, trace.main).expect("an event");
            writer.close().expect("a location");
        }
        let summary = trace.everywhere();
        assert_joules_are(&joules(&summary), &[2000.0, 2012.0]);
        assert_eq!(summary["run"]["complete"], is_complete, "{}", notes(&summary));
    }
}

/// The values change with each reading. Either the ranks read one power shortly after each other, or each reads a power of its
/// own.
#[test]
fn powers_are_of_one_device_if_ranks_read_the_same_values() {
    let noise = |of: u64, at: u64| {
        let mixed = (at * 8 + of + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (mixed ^ (mixed >> 31)).wrapping_mul(0xBF58_476D_1CE4_E5B9) >> 50
    };
    let nvml = "nvml:::NVIDIA_A100:device_0:power";
    // The metric, the ranks, the time between readings, whether each rank has its own device, the devices, and completeness.
    for (metric, unit, ranks, tenths, are_own, devices, is_complete) in [
        (nvml, "", 2, 1, true, 2, false),
        (nvml, "", 2, 1, false, 1, true),
        ("node power", "mW", 8, 10, false, 1, true),
        // The metric's name shows that there is one device, the node.
        ("node power", "mW", 8, 1, true, 1, false),
    ] {
        let mut trace = Trace::new();
        let node = trace.node("a");
        let class = trace.metric_in(metric, unit, (MetricBase::Decimal, 0), MetricMode::AbsolutePoint);
        let step = tenths * SECOND / 10;
        for rank in 0..ranks {
            let location = trace.rank(rank, node);
            let mut writer = trace.writer(location);
            writer.enter(SECOND, trace.main).expect("an event");
            for reading in 0..=100 {
                let swing = if metric == nvml { 1 } else { 50 };
                let value = MetricValue::U64(400_000 + swing * noise(u64::from(are_own) * rank, reading));
                writer.metric(SECOND + reading * step + rank * step / 9, class, &[value]).expect("a sample");
            }
            writer.leave(SECOND + 100 * step + rank * step / 9, trace.main).expect("an event");
            writer.close().expect("a location");
        }
        let summary = trace.attribute(&[]);
        assert_eq!(names(&summary).len(), devices, "{metric} {are_own}: {}", notes(&summary));
        assert_eq!(summary["run"]["complete"], is_complete, "{metric} {are_own}: {}", notes(&summary));
    }
}

/// The scopes are contexts on two GPUs, or two threads, each on its core.
#[test]
fn scopes_show_that_counters_of_equal_power_are_two() {
    for metric in ["gpu energy", "core energy"] {
        let mut trace = Trace::new();
        let node = trace.node("a");
        let main = trace.rank(0, node);
        let mut metrics = Vec::new();
        let class = trace.class(&[(metric, "J")]);
        for (at, watts) in [(0, 400.0), (1, 402.0)] {
            let (recorder, scope) = if metric == "gpu energy" {
                let stream = trace.stream(at, "HIP[0:0]");
                let group = trace.definitions.locations.get(stream).and_then(|of| of.group).expect("a group");
                let gpu = trace.part("Device", &format!("GPU {at}"), Some(node), &[]);
                let context = trace.definitions.location_groups.get_mut(group).expect("it exists");
                context.system_tree_parent = Some(gpu);
                context.creating_location_group = Some(LocationGroupRef(0));
                (stream, (MetricScope::LocationGroup, u64::from(group.0)))
            } else {
                let thread = trace.thread(main, "thread");
                (thread, (MetricScope::Location, thread.0))
            };
            metrics.push((
                recorder,
                trace.about(class, recorder, scope.0, scope.1),
                [(1000.0 * at as f64, watts)],
            ));
        }
        trace.calls(main, &[(0, "+work"), (40, "-work")]);
        for (recorder, metric, values) in &metrics {
            trace.reads(*recorder, &[(*metric, values)]);
        }
        let summary = trace.attribute(&[]);
        assert_joules_are(&joules(&summary), &[1600.0, 1608.0]);
        assert_eq!(summary["run"]["complete"], true, "{metric}: {}", notes(&summary));
    }
}
