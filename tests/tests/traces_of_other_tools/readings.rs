//! Counters that are recorded in unusual ways.

use crate::*;

/// A counter has counted for a long time, and some of its readings are wrong. The time without known joules is reported in
/// seconds.
#[test]
fn misreadings_add_no_joules() {
    const BEFORE: u64 = 5_000_000_000;
    let high = BEFORE + 10_000_000_000;
    // Each case is the number and the value of each wrong reading, the joules, the number of misreadings, and the seconds without
    // known joules.
    type Case<'a> = (&'a [(u64, u64)], f64, u64, f64);
    let cases: [Case; 7] = [
        (&[], 100.0, 0, 0.0),
        (&[(9, 0), (10, 0)], 100.0, 2, 0.0),
        (&[(0, 0)], 95.0, 1, 0.05),
        (&[(7, high)], 100.0, 1, 0.0),
        (&[(3, u64::MAX), (4, 0), (5, 17), (6, high)], 100.0, 4, 0.0),
        (&[(20, u64::MAX)], 95.0, 1, 0.05),
        (&[(18, 0), (19, 0), (20, 0)], 85.0, 3, 0.15),
    ];
    for (wrong, expected, misreadings, uncovered) in cases {
        let mut trace = Trace::new();
        let (node, class) = (trace.node("a"), trace.counter());
        let location = trace.rank(0, node);
        let mut writer = trace.writer(location);
        for reading in 0..=READINGS {
            let time = SECOND + reading * SECOND / READINGS;
            if reading == 0 {
                writer.enter(time, trace.main).expect("an event");
            }
            let right = BEFORE + reading * WATTS * 1_000_000 / READINGS;
            let value = wrong.iter().find(|(at, _)| *at == reading).map_or(right, |(_, value)| *value);
            writer.metric(time, class, &[MetricValue::U64(value)]).expect("a sample");
        }
        writer.leave(2 * SECOND, trace.main).expect("an event");
        writer.close().expect("a location");
        let summary = trace.everywhere();
        assert_joules_are(&joules(&summary), &[expected]);
        assert_eq!(summary["quality"]["unusable_samples"], misreadings, "{wrong:?}");
        let found = number(&summary["devices"][0], "uncovered_seconds");
        assert!((found - uncovered).abs() < 1e-9, "{wrong:?}: {found} s");
    }
}

#[test]
fn metrics_of_one_name_have_each_their_own_unit() {
    let mut trace = Trace::new();
    for (rank, (node, exponent)) in [("a", -6), ("b", -3)].into_iter().enumerate() {
        let node = trace.node(node);
        let class = trace.metric("energy", exponent, MetricMode::AccumulatedStart);
        let location = trace.rank(rank as u64, node);
        let mut writer = trace.writer(location);
        a_second(&trace, &mut writer, class, 10u64.pow(-exponent as u32), 0);
        writer.close().expect("a location");
    }
    assert_joules_are(&joules(&trace.attribute(&[])), &[100.0, 100.0]);
}

/// The frame ends with the location's last enter or leave, and not with its last sample.
#[test]
fn a_frame_that_is_never_left_is_not_charged_with_what_follows() {
    let mut trace = Trace::new();
    let (node, class) = (trace.node("a"), trace.counter());
    let inner = trace.definitions.regions.push(Region { name: "inner".into(), ..Region::default() });
    let location = trace.rank(0, node);
    let mut writer = trace.writer(location);
    let sample = |tenth: u64, writer: &mut EventWriter| {
        let value = MetricValue::U64(tenth * WATTS * 1_000_000 / 10);
        writer.metric(SECOND + tenth * SECOND / 10, class, &[value]).expect("a sample");
    };
    sample(0, &mut writer);
    writer.enter(SECOND, trace.main).expect("an event");
    writer.enter(SECOND, inner).expect("an event");
    writer.leave(2 * SECOND, inner).expect("an event");
    (10..=90).for_each(|tenth| sample(tenth, &mut writer));
    writer.close().expect("a location");
    let summary = trace.attribute(&[]);
    assert_joules_are(&joules(&summary), &[900.0]);
    let view = &summary["devices"][0]["views"][0];
    assert_joules_are(&[number(view, "attributed_joules"), number(view, "idle_joules")], &[100.0, 800.0]);
    assert_eq!(summary["quality"]["late_events"], 0);
}

#[test]
fn a_delay_applies_from_the_first_sample_on() {
    let mut figures = Vec::new();
    for begin in [0, 100 * SECOND] {
        let mut trace = Trace::new();
        let (node, class) = (trace.node("a"), trace.counter());
        let location = trace.rank(0, node);
        let mut writer = trace.writer(location);
        for reading in 0..=4 {
            let value = MetricValue::U64(reading * 2_500_000);
            writer.metric(begin + reading * 25_000, class, &[value]).expect("a sample");
        }
        writer.enter(begin + 100_000, trace.main).expect("an event");
        writer.leave(begin + 200_000, trace.main).expect("an event");
        writer.metric(begin + 275_000, class, &[MetricValue::U64(27_500_000)]).expect("a sample");
        writer.close().expect("a location");
        let config = trace.place.path("ampere.toml");
        std::fs::write(
            &config,
            "[[device]]\nname = \"e\"\nmetric = 'energy'\nscale = 1e-6\ndelay = \"75ms\"\n",
        )
        .expect("room");
        let summary = trace.attribute(&["--config", config.to_str().expect("text")]);
        let view = &summary["devices"][0]["views"][0];
        figures.push([number(view, "attributed_joules"), number(view, "idle_joules")]);
    }
    assert_joules_are(&figures[0], &figures[1]);
    assert_joules_are(&figures[0], &[10.0, 17.5]);
}

/// Two files have static functions of the same name, one of which calls the other.
#[test]
fn functions_with_the_same_name_share_a_row() {
    let mut trace = Trace::new();
    let (node, class) = (trace.node("a"), trace.counter());
    let both = ["a.c", "b.c"].map(|file| {
        let source_file = Some(file.to_owned());
        trace.definitions.regions.push(Region { name: "init".into(), source_file, ..Region::default() })
    });
    let location = trace.rank(0, node);
    let mut writer = trace.writer(location);
    let sample = |writer: &mut EventWriter, time: u64, joules: u64| {
        writer.metric(time, class, &[MetricValue::U64(joules * 1_000_000)]).expect("a sample");
    };
    sample(&mut writer, SECOND, 0);
    both.iter().for_each(|region| writer.enter(SECOND, *region).expect("an event"));
    both.iter().rev().for_each(|region| writer.leave(2 * SECOND, *region).expect("an event"));
    sample(&mut writer, 2 * SECOND, WATTS);
    writer.close().expect("a location");
    let summary = trace.attribute(&[]);
    let view = &summary["devices"][0]["views"][0];
    let rows = list(view, "regions");
    assert_eq!(rows.len(), 1, "{rows:?}");
    let figures = ["calls", "exclusive_joules", "inclusive_joules"].map(|key| number(&rows[0], key));
    assert_joules_are(&figures, &[2.0, 100.0, 100.0]);
    assert_eq!(list(view, "callpaths").len(), 2);
}

#[test]
fn a_metric_of_differences_is_left_out_with_a_note() {
    let mut trace = Trace::new();
    let (node, class) = (trace.node("a"), trace.counter());
    let odd = trace.metric("steps", -6, MetricMode::RelativeLast);
    let location = trace.rank(0, node);
    let mut writer = trace.writer(location);
    a_second(&trace, &mut writer, class, 1_000_000, 0);
    writer.metric(3 * SECOND, odd, &[MetricValue::U64(7)]).expect("a sample");
    writer.close().expect("a location");
    let summary = trace.attribute(&[]);
    assert_joules_are(&joules(&summary), &[100.0]);
    let notes = summary["run"]["notes"].to_string();
    assert!(notes.contains("metric steps is recorded as differences"), "{notes}");
}

#[test]
fn shares_of_time_are_of_the_time_of_all_ranks() {
    let mut trace = Trace::new();
    ranks_with(&mut trace, "energy", &[100.0, 100.0, 100.0]);
    let (place, path) = trace.finish();
    let mut command = std::process::Command::new(artifact("ampere"));
    let output = place.path("out");
    succeed(command.arg("attribute").arg(&path).arg("--time").arg("-o").arg(&output));
    let table = std::fs::read_to_string(output.join("summary.txt")).expect("the tables");
    let (_, time) = table.split_once("\ntime on ").expect("the table of the time");
    let words: Vec<&str> = time.split_whitespace().collect();
    let percents = words.windows(2).filter(|pair| pair[1] == "%");
    let shares: Vec<f64> = percents.map(|pair| pair[0].parse().expect("a number")).collect();
    // There is one function and one call path on three ranks.
    assert_eq!(shares, [100.0, 33.3, 33.3, 33.3, 100.0], "{table}");
}

/// If there is one trace next to the figures, its name does not matter; if there are several, it is not known to which one the
/// figures belong.
#[test]
fn a_trace_of_any_name_is_found_next_to_its_figures() {
    let mut trace = Trace::new();
    let (node, class) = (trace.node("a"), trace.counter());
    let location = trace.rank(0, node);
    let mut writer = trace.writer(location);
    a_second(&trace, &mut writer, class, 1_000_000, 0);
    writer.close().expect("a location");
    let (place, anchor) = trace.finish();
    let directory = anchor.parent().expect("it is in one").to_owned();
    for end in [".otf2", ".def", ""] {
        let [from, to] = ["traces", "app"].map(|name| directory.join(format!("{name}{end}")));
        std::fs::rename(from, to).expect("it exists");
    }
    let mut attribute = place.command(artifact("ampere"));
    succeed(attribute.arg("attribute").arg(directory.join("app.otf2")).arg("-o").arg(&directory));
    for format in ["chrome", "timeline", "sqlite"] {
        let mut report = place.command(artifact("ampere"));
        succeed(report.args(["report", "-f", format, "-o"]).arg(place.path(format)).arg(&directory));
    }
    std::fs::copy(directory.join("app.otf2"), directory.join("other.otf2")).expect("room");
    let mut report = place.command(artifact("ampere"));
    let refused = report.args(["report", "-f", "chrome"]).arg(&directory).output().expect("it starts");
    let said = text(&refused.stderr);
    assert!(!refused.status.success() && said.contains("there are 2 traces in"), "{said}");
}

/// Returns the summary of a trace in which `main` runs from 1 s to 3 s, and a counter of 100 W is read between these
/// hundredths of a second.
fn read_between(from: u64, until: u64, every: u64) -> Value {
    let mut trace = Trace::new();
    let node = trace.node("a");
    let group = trace.group("MPI Rank 0", node);
    let thread = trace.location(LocationType::CpuThread, "main", group);
    let reader = trace.location(LocationType::Metric, "reader", group);
    let class = trace.counter();
    trace.calls(thread, &[(10, "+main"), (30, "-main")]);
    let mut writer = trace.writer(reader);
    for hundredth in (from..=until).step_by(every as usize) {
        let value = MetricValue::U64(7_000_000 + hundredth * 1_000_000);
        writer.metric(hundredth * SECOND / 100, class, &[value]).expect("a sample");
    }
    writer.close().expect("a location");
    trace.everywhere()
}

#[test]
fn a_counter_that_is_not_read_while_functions_run_makes_a_run_incomplete() {
    for (from, until, every, is_complete) in [
        (100, 300, 1, true),
        (0, 500, 1, true),
        // The readings begin a moment after `main`, and end a moment before it.
        (104, 296, 1, true),
        (100, 300, 20, true),
        (80, 280, 100, false),
        (130, 300, 1, false),
        (100, 200, 1, false),
        (0, 200, 1, false),
        (150, 250, 1, false),
        (200, 500, 50, false),
    ] {
        let summary = read_between(from, until, every);
        assert_joules_are(&joules(&summary), &[(until - from) as f64]);
        assert_eq!(summary["run"]["complete"], is_complete, "{from} to {until}: {}", notes(&summary));
        assert_eq!(notes(&summary).contains("energy on a: its energy is known for"), !is_complete);
    }
}

/// Joules since the previous reading may also stay the same.
#[test]
fn an_absolute_counter_whose_values_stay_the_same_makes_a_run_incomplete() {
    for (mode, is_complete) in [(MetricMode::AbsoluteLast, false), (MetricMode::AccumulatedStart, true)] {
        let mut trace = Trace::new();
        let node = trace.node("a");
        let location = trace.rank(0, node);
        let class = trace.metric("gpu 0 energy", 0, mode);
        let mut writer = trace.writer(location);
        writer.enter(0, trace.main).expect("an event");
        for tenth in 0..=40 {
            let value = MetricValue::F64(if tenth < 10 { 30.0 } else { 50.0 });
            writer.metric(tenth * SECOND / 10, class, &[value]).expect("a sample");
        }
        writer.leave(4 * SECOND, trace.main).expect("an event");
        writer.close().expect("a location");
        for summary in trace.attribute_and_replay() {
            assert_eq!(summary["run"]["complete"], is_complete, "{}", notes(&summary));
            assert_eq!(
                notes(&summary).contains("did not change for 3.00 s"),
                !is_complete,
                "{}",
                notes(&summary)
            );
        }
    }
}

/// A metric whose values are the joules since the previous reading is not a counter.
#[test]
fn values_that_rise_and_fall_make_a_run_incomplete() {
    for values in [&[1.0, 1.2, 0.9, 1.1, 0.8, 1.3, 0.7][..], &[5.0, 1.0], &[300.0, 0.0, 0.5, 250.0, 0.1]] {
        let mut trace = Trace::new();
        let node = trace.node("a");
        let location = trace.rank(0, node);
        let class = trace.class(&[("energy", "J")]);
        let mut writer = trace.writer(location);
        writer.enter(0, trace.main).expect("an event");
        for hundredth in 0..=400 {
            let value = MetricValue::F64(values[hundredth % values.len()]);
            writer.metric(hundredth as u64 * SECOND / 100, class, &[value]).expect("a sample");
        }
        writer.leave(4 * SECOND, trace.main).expect("an event");
        writer.close().expect("a location");
        for summary in trace.attribute_and_replay() {
            assert_eq!(summary["run"]["complete"], false, "{values:?}: {}", notes(&summary));
            assert!(notes(&summary).contains("its values rise and fall"), "{values:?}: {}", notes(&summary));
        }
    }
}
