//! Which ranks and threads were active, and what a device draws whether or not any are active.

use crate::*;

/// Adds a node's counter, which is read every 10 ms for 4 s. It rises at 100 W, and at 200 W during `busy`, a range in
/// hundredths of a second.
fn node_counter(trace: &mut Trace, node: SystemTreeNodeRef, busy: std::ops::Range<u64>) {
    let (group, class) = (trace.group("sampler", node), trace.class(&[("energy", "J")]));
    let sampler = trace.location(LocationType::Metric, "sampler", group);
    let mut writer = trace.writer(sampler);
    let mut joules = 1000.0;
    for hundredth in 0..=400u64 {
        writer.metric(hundredth * SECOND / 100, class, &[MetricValue::F64(joules)]).expect("a sample");
        joules += if busy.contains(&hundredth) { 2.0 } else { 1.0 };
    }
    writer.close().expect("a location");
}

/// Returns the region's joules: exclusive, static and dynamic.
fn parts(summary: &Value, name: &str) -> [f64; 3] {
    let rows = list(&summary["devices"][0]["views"][0], "regions");
    let row = rows.iter().find(|row| row["region"] == name).unwrap_or_else(|| panic!("no {name}"));
    ["exclusive_joules", "static_joules", "dynamic_joules"].map(|key| number(row, key))
}

/// Two ranks are in a function for 4 s; one of them runs for 2 s, the other one sleeps.
#[test]
fn a_rank_that_sleeps_uses_what_the_node_draws_in_any_case() {
    let mut trace = Trace::new();
    let node = trace.node("a");
    let cpu_time = trace.cpu_time();
    let nanoseconds = SECOND * 1000;
    for (rank, name, ran) in [(0, "solve", 2), (1, "sleep", 0)] {
        let (location, region) = (trace.rank(rank, node), trace.region(name));
        let mut writer = trace.writer(location);
        writer.enter(0, region).expect("an event");
        for (second, value) in [(0, 0), (1, 0), (3, ran * nanoseconds), (4, ran * nanoseconds)] {
            writer.metric(second * SECOND, cpu_time, &[MetricValue::U64(value)]).expect("a point");
        }
        writer.leave(4 * SECOND, region).expect("an event");
        writer.close().expect("a location");
    }
    node_counter(&mut trace, node, 100..300);
    let setting = "[[device]]\nname = 'node'\nmetric = 'energy'\nbaseline_watts = ";
    let (place, trace) = trace.finish();
    let with = |watts: &str| {
        let settings = place.write("ampere.toml", &format!("{setting}{watts}\n"));
        attribute(&trace, &["--config", settings.to_str().expect("UTF-8")])
    };
    let summary = with("100");
    let device = &summary["devices"][0];
    assert_eq!(device["views"][0]["policy"], "active");
    assert_eq!(device["baseline"], serde_json::json!({"watts": 100.0, "kind": "set", "samples": 0}));
    assert_joules_are(&parts(&summary, "solve"), &[400.0, 200.0, 200.0]);
    assert_joules_are(&parts(&summary, "sleep"), &[200.0, 200.0, 0.0]);
    assert_joules_are(&[number(device, "static_joules"), number(device, "dynamic_joules")], &[400.0, 200.0]);
    // With a baseline above the device's power, no joules are dynamic.
    assert_joules_are(&parts(&with("1000"), "solve"), &[300.0, 300.0, 0.0]);
    // Without a setting, the baseline is learnt from the first and the last second, in which no rank ran. The first two
    // intervals after a rank has run are left out.
    let learnt = attribute(&trace, &[]);
    let baseline = &learnt["devices"][0]["baseline"];
    assert_eq!((&baseline["kind"], &baseline["samples"]), (&"idle intervals".into(), &198.into()));
    assert_joules_are(&[number(baseline, "watts")], &[100.0]);
    assert_joules_are(&parts(&learnt, "solve"), &[400.0, 200.0, 200.0]);
    // If joules are divided by time alone, both functions have used the same.
    let by_time = attribute(&trace, &["--policy", "time_sliced"]);
    assert_joules_are(
        &[of_region(&by_time, "ranks", "solve"), of_region(&by_time, "ranks", "sleep")],
        &[300.0, 300.0],
    );
    assert!(by_time["devices"][0]["baseline"].is_null());
}

/// The main thread waits while another thread, which has no frames, works for it.
#[test]
fn threads_without_frames_work_for_the_main_thread() {
    let mut trace = Trace::new();
    let node = trace.node("a");
    let cpu_time = trace.cpu_time();
    let main = trace.rank(0, node);
    let worker = trace.thread(main, "worker");
    let wait = trace.region("wait");
    for (location, ran) in [(main, 0), (worker, 4)] {
        let mut writer = trace.writer(location);
        if location == main {
            writer.enter(0, wait).expect("an event");
        }
        for second in [0, 4] {
            let value = second / 4 * ran * SECOND * 1000;
            writer.metric(second * SECOND, cpu_time, &[MetricValue::U64(value)]).expect("a point");
        }
        if location == main {
            writer.leave(4 * SECOND, wait).expect("an event");
        }
        writer.close().expect("a location");
    }
    node_counter(&mut trace, node, 0..0);
    let summary = trace.attribute(&[]);
    let device = &summary["devices"][0];
    assert_eq!(device["baseline"]["kind"], "none");
    assert_joules_are(&parts(&summary, "wait"), &[400.0, 0.0, 400.0]);
}

/// A worker runs for 2 s before the main thread enters its first function, and then both sleep.
#[test]
fn a_thread_that_works_before_the_first_function_is_not_idle() {
    let mut trace = Trace::new();
    let node = trace.node("a");
    let cpu_time = trace.cpu_time();
    let main = trace.rank(0, node);
    let worker = trace.thread(main, "worker");
    let sleep = trace.region("sleep");
    for (location, ran) in [(main, 0), (worker, 2)] {
        let mut writer = trace.writer(location);
        for (second, value) in [(0, 0), (2, ran * SECOND * 1000), (4, ran * SECOND * 1000)] {
            writer.metric(second * SECOND, cpu_time, &[MetricValue::U64(value)]).expect("a point");
            if location == main && second == 2 {
                writer.enter(2 * SECOND, sleep).expect("an event");
            }
        }
        if location == main {
            writer.leave(4 * SECOND, sleep).expect("an event");
        }
        writer.close().expect("a location");
    }
    node_counter(&mut trace, node, 0..200);
    let summary = trace.attribute(&[]);
    let baseline = &summary["devices"][0]["baseline"];
    assert_eq!(*baseline, serde_json::json!({"watts": 100.0, "kind": "idle intervals", "samples": 198}));
}

#[test]
fn a_negative_baseline_is_refused() {
    let place = Place::new();
    let settings = "[[device]]\nname = 'node'\nmetric = 'energy'\nbaseline_watts = -1\n";
    let settings = place.write("ampere.toml", settings);
    let mut command = place.command(artifact("ampere"));
    let done = ampere_tests::jobs::run(command.args(["attribute", "traces.otf2", "--config"]).arg(settings));
    assert_eq!(done.code, 1, "{done:#?}");
    done.said_once(&["ampere.toml:4", "baseline_watts"]);
}
