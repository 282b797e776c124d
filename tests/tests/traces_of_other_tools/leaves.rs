//! Leaves end the regions that they name, and the definitions of regions may have any reference numbers.

use crate::*;

/// Returns a node with a rank, a GPU stream of it, and a counter of the GPU at 100 W for 4 s.
fn with_stream(rank: &[(u64, &str)], stream: &[(u64, &str)]) -> Trace {
    let mut trace = Trace::new();
    let node = trace.node("a");
    let main = trace.rank(0, node);
    let kernels = trace.stream(0, "HIP[0:0]");
    let process = trace.definitions.locations.get(main).and_then(|location| location.group);
    let reader = trace.location(LocationType::Metric, "reader", process.expect("it has one"));
    let class = trace.class(&[(GPU, "J")]);
    trace.calls(main, rank);
    trace.calls(kernels, stream);
    trace.reads(reader, &[(class.into(), &[(0.0, 100.0)])]);
    trace
}

#[test]
fn kernels_that_overlap_end_when_they_are_left() {
    let rank = [(0, "+main"), (40, "-main")];
    // Start and end of each kernel, the joules of each, and the joules while no kernel ran.
    type Case<'a> = (&'a [(u64, &'a str)], &'a [(&'a str, f64)], f64);
    let cases: [Case; 3] = [
        (&[(0, "+A"), (10, "+B"), (20, "-A"), (30, "-B")], &[("A", 100.0), ("B", 200.0)], 100.0),
        // There are three kernels, of which the first one ends second.
        (
            &[(0, "+A"), (5, "+B"), (10, "+C"), (15, "-B"), (20, "-A"), (30, "-C")],
            &[("A", 50.0), ("B", 50.0), ("C", 200.0)],
            100.0,
        ),
        // The longer kernel continues alone after a shorter one has ended, and another one follows immediately.
        (
            &[(0, "+A"), (10, "+B"), (20, "-A"), (20, "+C"), (30, "-B"), (40, "-C")],
            &[("A", 100.0), ("B", 100.0), ("C", 200.0)],
            0.0,
        ),
    ];
    for (events, expected, rest) in cases {
        for summary in with_stream(&rank, events).attribute_and_replay() {
            for (kernel, joules) in expected {
                assert_joules_are(&[of_region(&summary, "kernels", kernel)], &[*joules]);
            }
            assert_joules_are(&[idle(&summary, "kernels"), total(&summary)], &[rest, 400.0]);
            assert!(notes(&summary).contains("were not the innermost ones"), "{}", notes(&summary));
            assert_eq!(summary["run"]["complete"], true, "{}", notes(&summary));
        }
    }
}

/// A frame that continues is not another call. Each leave of a frame that is not the innermost one is counted.
#[test]
fn a_kernel_that_continues_is_one_call() {
    let events = [(0, "+A"), (10, "+B"), (20, "-A"), (30, "-B")];
    let summary = with_stream(&[], &events).attribute(&[]);
    let rows = list(&list(&summary["devices"][0], "views")[1], "regions");
    assert!(rows.iter().all(|row| row["calls"] == 1), "{rows:?}");
    assert_eq!(summary["quality"]["repaired_events"], 1);
}

#[test]
fn a_call_without_length_takes_nothing_from_its_caller() {
    let cases: [&[(u64, &str)]; 4] = [
        &[(0, "+main"), (10, "-get"), (10, "+get"), (20, "+solve"), (30, "-solve"), (40, "-main")],
        // Two leaves come at the same time, and one at the very end of its caller.
        &[
            (0, "+main"),
            (10, "-get"),
            (10, "-set"),
            (10, "+set"),
            (10, "+get"),
            (20, "+solve"),
            (30, "-solve"),
            (40, "-get"),
            (40, "-main"),
            (40, "+get"),
        ],
        // The leave is that of an outer function.
        &[(0, "+main"), (20, "+solve"), (25, "-main"), (25, "+main"), (30, "-solve"), (40, "-main")],
        // These events are in order: there is no special case.
        &[(0, "+main"), (10, "+get"), (10, "-get"), (20, "+solve"), (30, "-solve"), (40, "-main")],
    ];
    for events in cases {
        let summary = with_stream(events, &[]).everywhere();
        let of = |region| of_region(&summary, "ranks", region);
        assert_joules_are(&[of("main"), of("get"), of("set"), of("solve")], &[300.0, 0.0, 0.0, 100.0]);
        assert_eq!(summary["run"]["complete"], true, "{}", notes(&summary));
    }
}

/// Nothing in the trace shows what is missing.
#[test]
fn enters_and_leaves_that_are_missing_make_a_run_incomplete() {
    for events in [
        &[(0, "+main"), (10, "-lost"), (20, "-other"), (40, "-main")][..],
        &[(0, "+main"), (0, "+lost"), (0, "+kept"), (40, "-main")][..],
    ] {
        for summary in with_stream(events, &[]).attribute_and_replay() {
            assert_eq!(summary["run"]["complete"], false, "{}", notes(&summary));
            assert!(notes(&summary).contains("enters or leaves are missing"), "{}", notes(&summary));
            assert_joules_are(&[total(&summary), idle(&summary, "ranks")], &[400.0, 0.0]);
        }
    }
}

#[test]
fn regions_have_any_numbers() {
    for number in [0, 1 << 16, 1 << 24, 0xdead_beef, u32::MAX - 1] {
        let mut trace = Trace::new();
        let node = trace.node("a");
        let location = trace.rank(0, node);
        let class = trace.counter();
        trace.definitions.regions = Default::default();
        trace.main = RegionRef(number);
        trace.definitions.regions.insert(trace.main, Region { name: "solve".into(), ..Region::default() });
        let mut writer = trace.writer(location);
        a_second(&trace, &mut writer, class, 1_000_000, 0);
        writer.close().expect("a location");
        let summary = trace.everywhere();
        assert_joules_are(&[of_region(&summary, "ranks", "solve")], &[100.0]);
    }
}
