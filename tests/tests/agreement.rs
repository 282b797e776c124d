//! Checks of counters against each other: how a run, its own trace and traces of other tools report them.

use ampere_tests::collector::announced;
use ampere_tests::http;
use ampere_tests::jobs::Place;
use ampere_tests::openmetrics;
use ampere_tests::process::{Running, wait_for};
use ampere_tests::runs::{attribute, list, number, on_path, recorded_trace, stencil, text};
use ampere_tests::{artifact, skip_unless};
use otf2::{
    ArchiveWriter, Definitions, Location, LocationGroup, LocationGroupType, LocationRef, LocationType,
    MetricBase, MetricClass, MetricMember, MetricMode, MetricOccurrence, MetricType, MetricValue,
    MetricValueType, RecorderKind, Region, SystemTreeNode,
};
use serde_json::Value;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const RATIO: &str = "ampere_device_counter_agreement_ratio";

#[track_caller]
fn check<'a>(summary: &'a Value, device: &str, kind: &str) -> &'a Value {
    let device = list(summary, "devices").iter().find(|d| d["name"] == device).expect("the device");
    let checks = device["checks"].as_array().map_or(&[][..], Vec::as_slice);
    checks.iter().find(|check| check["kind"] == kind).unwrap_or_else(|| panic!("no {kind}: {checks:?}"))
}

fn notes(summary: &Value) -> String {
    summary["run"]["notes"].to_string()
}

#[track_caller]
fn near(is: f64, should: f64, within: f64) {
    assert!((is - should).abs() <= within, "{is} and not {should}");
}

fn run_on(place: &Place, script: &str, seconds: &str) -> Command {
    let mut command = place.ampere_run("out", [&stencil(), seconds]);
    command
        .env("AMPERE_COUNTERS", "rocm_smi")
        .env("AMPERE_ROCM_SMI_LIBRARY", artifact("libstand_in_rocm_smi64.so"))
        .env("STAND_IN_ROCM_SMI", script)
        .env("AMPERE_GAUGES", "100ms");
    command
}

/// The sensor continues while the counter stands still for three seconds.
#[test]
fn a_counter_that_stalls_disagrees_with_the_power_sensor() {
    skip_unless!(on_path("mpirun"), "no mpirun");
    let place = Place::new();
    let script = "watts=300,200;gauge=1:power:194;freeze=0@4-7";
    let mut run = Running::start(&mut run_on(&place, script, "11"));
    let collector = wait_for("a collector", Duration::from_secs(60), || announced(&place.path("out")));
    let ratio = wait_for("a ratio", Duration::from_secs(60), || {
        let body = http::get(collector.address(), "/metrics").ok()?.body;
        let samples = openmetrics::parse(&body).unwrap_or_else(|why| panic!("{why}"));
        let is_it = |s: &&openmetrics::Sample| s.name == RATIO && s.label("device") == "GPU-1";
        let sample = samples.iter().find(is_it)?;
        assert_eq!((sample.label("against"), sample.label("kind")), ("average power", "power sensor"));
        Some(sample.value)
    });
    near(ratio, 0.97, 0.05);
    assert!(run.wait(Duration::from_secs(60)).is_some_and(|status| status.success()));

    let summary = place.summary("out");
    let good = check(&summary, "GPU-1", "power sensor");
    near(number(good, "difference_ratio"), -0.03, 0.02);
    near(number(good, "joules"), 194.0 * number(good, "seconds"), 1.0);
    // After an interrupted reading of a gauge, its next readings are taken later.
    assert!(number(good, "seconds") > 6.0 && good.get("change").is_none(), "{good}");
    let change = &check(&summary, "GPU-0", "power sensor")["change"];
    let [from, to] = ["from_seconds", "to_seconds"].map(|key| number(change, key));
    assert!((3.0..=8.0).contains(&from) && (from..=9.0).contains(&to), "{change}");
    // The interval of the change lies where the counter stood still, or where it caught up.
    let [counter, sensor] = ["device_joules", "joules"].map(|key| number(change, key));
    assert!((counter - sensor).abs() > 0.5 * sensor, "{change}");
    let notes = notes(&summary);
    assert!(notes.contains("s after its first sample its counter has "), "{notes}");
    assert!(!notes.contains("GPU-1"), "{notes}");
    let printed = std::fs::read_to_string(place.path("out/summary.txt")).expect("a table");
    let page = std::fs::read_to_string(place.path("out/report.html")).expect("a page");
    for shown in [printed, page] {
        let shown = shown.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            shown.contains("its average power, integrated, has ") && shown.contains("% less than the "),
            "{shown}"
        );
    }
}

/// Replaces a file's content in place, like the kernel's files: it is never empty, and its length does not change.
fn overwrite(path: &Path, text: &str) {
    let mut file =
        std::fs::OpenOptions::new().create(true).write(true).truncate(false).open(path).expect("a file");
    file.write_all(text.as_bytes()).expect("room");
}

/// Until `stop` is set, writes ten times a second what a Cray node's controller would have counted.
fn cray_node(root: &Path, stop: &AtomicBool) {
    let folder = root.join("sys/cray/pm_counters");
    let begun = Instant::now();
    let mut freshness = 0;
    while !stop.load(Ordering::Relaxed) {
        let seconds = begun.elapsed().as_secs_f64();
        freshness += 1;
        for (file, watts) in [("energy", 500.0), ("accel0_energy", 315.0), ("cpu_energy", 100.0)] {
            let joules = 1000 + (watts * seconds) as u64;
            overwrite(&folder.join(file), &format!("{joules:012} J {freshness:012} us\n"));
        }
        overwrite(&folder.join("freshness"), &format!("{freshness:012}\n"));
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn a_node_and_its_accelerator_are_compared_with_other_counters() {
    skip_unless!(on_path("mpirun"), "no mpirun");
    let place = Place::new();
    let root = place.path("root");
    std::fs::create_dir_all(root.join("sys/cray/pm_counters")).expect("directories");
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| cray_node(&root, &stop));
        let is_there = || root.join("sys/cray/pm_counters/freshness").exists().then_some(());
        wait_for("the files", Duration::from_secs(60), is_there);
        let mut command = run_on(&place, "watts=300", "4");
        command.env("AMPERE_COUNTERS", "rocm_smi,cray_pm").env("AMPERE_SYS_ROOT", &root);
        let output = command.output().expect("it runs");
        stop.store(true, Ordering::Relaxed);
        assert!(output.status.success(), "{}", text(&output.stderr));
    });
    let summary = place.summary("out");
    for summary in [&summary, &attribute(&place.path("out/traces.otf2"), &[])] {
        let accelerator = check(summary, "GPU-0", "counter");
        assert_eq!(accelerator["against"], "accel0");
        // On a loaded machine the first reading and the files may be late.
        near(number(accelerator, "device_joules"), 300.0 * number(accelerator, "seconds"), 150.0);
        assert!((0.5..1.2).contains(&(1.0 + number(accelerator, "difference_ratio"))), "{accelerator}");
        let parts = check(summary, "node", "sum of parts");
        assert_eq!(parts["against"], "cpu, accel0");
        near(number(parts, "joules") / number(parts, "device_joules"), 0.83, 0.06);
        assert!(!notes(summary).contains("one of "), "{}", notes(summary));
        let node = list(summary, "devices").iter().find(|device| device["name"] == "node").expect("the node");
        assert_eq!(summary["run"]["total_joules"], node["total_joules"], "no joule twice");
    }
    check(&summary, "GPU-0", "power sensor");
}

/// The joules of a GPU's counter as a function of the time in seconds, and the watts of its sensor.
type Gpu = (fn(f64) -> f64, f64);

/// A trace of GPUs with PAPI's counters, as Score-P writes them: a reading every 50 ms for 60 s.
fn trace_of(place: &Place, gpus: &[Gpu]) -> std::path::PathBuf {
    const SECOND: u64 = 1_000_000;
    let directory = place.path("trace");
    std::fs::create_dir(&directory).expect("a directory");
    let archive = ArchiveWriter::create(&directory).expect("an archive");
    let mut definitions = Definitions::default();
    (definitions.clock.timer_resolution, definitions.clock.trace_length) = (SECOND, 61 * SECOND);
    let main = definitions.regions.push(Region { name: "main".into(), ..Region::default() });
    let node = SystemTreeNode { name: "n".into(), class_name: "node".into(), ..SystemTreeNode::default() };
    let node = definitions.system_tree_nodes.push(node);
    let group = definitions.location_groups.push(LocationGroup {
        name: "MPI Rank 0".into(),
        kind: LocationGroupType::Process,
        system_tree_parent: Some(node),
        ..LocationGroup::default()
    });
    let (name, kind) = ("Master thread".into(), LocationType::CpuThread);
    let location = Location { name, kind, events: 0, group: Some(group), properties: Vec::new() };
    definitions.locations.insert(LocationRef(0), location);
    let mut metric = |name: String| {
        let member = definitions.metric_members.push(MetricMember {
            name,
            kind: MetricType::Other,
            mode: MetricMode::AccumulatedStart,
            value_type: MetricValueType::U64,
            base: MetricBase::Decimal,
            unit: "#".into(),
            ..MetricMember::default()
        });
        definitions.add_metric_class(MetricClass {
            members: vec![member],
            occurrence: MetricOccurrence::Asynchronous,
            recorder_kind: RecorderKind::Abstract,
            recorders: Vec::new(),
        })
    };
    let classes: Vec<_> = (0..gpus.len())
        .map(|gpu| {
            ["energy_count", "power_average"].map(|of| metric(format!("rocm_smi:::{of}:device={gpu}")))
        })
        .collect();
    let mut writer = archive.event_writer(LocationRef(0)).expect("a location");
    writer.enter(SECOND, main).expect("an event");
    for reading in 0..=1200u64 {
        let at = SECOND + reading * SECOND / 20;
        for ((joules, watts), [energy, power]) in gpus.iter().zip(&classes) {
            let joules = 1e9 + 1e6 * joules(reading as f64 / 20.0);
            writer.metric(at, *energy, &[MetricValue::U64(joules as u64)]).expect("a sample");
            writer.metric(at, *power, &[MetricValue::U64((watts * 1e6) as u64)]).expect("a sample");
        }
    }
    writer.leave(61 * SECOND, main).expect("an event");
    writer.close().expect("a location");
    archive.finish(&definitions).expect("a trace");
    directory.join("traces.otf2")
}

#[test]
fn a_note_reports_when_a_traces_counter_stalled_and_nothing_is_corrected() {
    let place = Place::new();
    // The counter stands still from 20 s to 30 s, and the energy of that time is lost.
    let stalls = |at: f64| 300.0 * (at.min(20.0) + (at - 30.0).max(0.0));
    let trace = trace_of(&place, &[(stalls, 300.0), (|at| 200.0 * at, 198.0)]);
    let summary = attribute(&trace, &[]);
    let totals: Vec<f64> = list(&summary, "devices").iter().map(|d| number(d, "total_joules")).collect();
    near(totals[0], 15_000.0, 1e-3);
    near(totals[1], 12_000.0, 1e-3);
    let stalled = check(&summary, "GPU-0", "power sensor");
    near(number(stalled, "joules"), 18_000.0, 1.0);
    near(number(stalled, "difference_ratio"), 0.2, 1e-3);
    near(number(&stalled["change"], "from_seconds"), 20.0, 1.0);
    near(number(&stalled["change"], "to_seconds"), 30.0, 1.0);
    let good = check(&summary, "GPU-1", "power sensor");
    near(number(good, "difference_ratio"), -0.01, 1e-3);
    assert!(good.get("change").is_none(), "{good}");
    let notes = notes(&summary);
    assert!(notes.contains("GPU-0 on n: between ") && !notes.contains("GPU-1"), "{notes}");
}

/// Compares the sensors of a real node with its counters.
#[test]
fn recorded_counters_agree_with_their_sensors() {
    let trace = recorded_trace();
    skip_unless!(trace.is_some(), "no ../shared/traces/mi300a-two-kernels");
    let summary = attribute(&trace.expect("checked"), &[]);
    let notes: Vec<String> = list(&summary["run"], "notes")
        .iter()
        .map(|note| note.as_str().unwrap_or_default().to_owned())
        .collect();
    assert!(
        notes.iter().all(|note| note.starts_with("metrics are left out because they are powers")),
        "{notes:?}"
    );
    for device in ["GPU-0", "GPU-1", "GPU-2", "GPU-3"] {
        let check = check(&summary, device, "power sensor");
        println!("{device}: {check}");
        assert!(number(check, "difference_ratio").abs() < 0.1, "{check}");
    }
}
