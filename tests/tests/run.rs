//! Whole runs on the embedded host, as users make them.

use ampere_tests::jobs::{self, Place};
use ampere_tests::runs::{
    attribute, compile, figures, has_python_otf2, json, list, may_mount, number, on_path, oracle, parse,
    recorded_trace, relative, stencil, succeed, text,
};
use ampere_tests::{artifact, root, skip_unless};
use serde_json::Value;
use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

/// Checks the fields of summary.json that are promised.
fn check_contract(summary: &Value) {
    assert_eq!(summary["schema"], "ampere-summary/2");
    for key in ["id", "command", "start", "end", "complete", "host", "nodes", "ranks", "energy"] {
        assert!(!summary["run"][key].is_null(), "run.{key}");
    }
    for device in list(summary, "devices") {
        for key in ["node", "name", "metric", "source", "samples", "total_joules"] {
            assert!(!device[key].is_null(), "device.{key}");
        }
        for view in list(device, "views") {
            let sum =
                number(view, "attributed_joules") + number(view, "idle_joules") + number(view, "lost_joules");
            assert!(
                relative(sum, number(device, "total_joules")) < 1e-9,
                "{} is not conserved",
                view["view"]
            );
            assert!(!view["policy"].is_null() && !view["sharing"].is_null());
        }
    }
    let quality = [
        "events",
        "coalesced_calls",
        "suppressed_calls",
        "dropped_records",
        "late_events",
        "counter_resets",
        "conservation_error_joules",
    ];
    quality.iter().for_each(|key| assert!(summary["quality"][*key].is_number(), "quality.{key}"));
    for key in ["collector_cpu_seconds", "collector_peak_rss_bytes"] {
        assert!(number(&summary["overhead"], key) >= 0.0);
    }
}

#[test]
fn the_main_job_from_run_to_trace() {
    skip_unless!(on_path("mpirun"), "no mpirun");
    let place = Place::new();
    let output =
        succeed(&mut place.ampere_run("out", ["mpirun", "--oversubscribe", "-n", "4", &stencil(), "3"]));
    assert!(text(&output.stdout).starts_with("stencil: 4 ranks"), "the command's own output, and no other");
    let messages = text(&output.stderr);
    for words in ["live page at http://", "report.html", "ampere report ", "ESTIMATE: "] {
        assert!(messages.contains(words), "no {words:?} in {messages}");
    }
    assert!(place.path("out/traces.otf2").exists());

    let live = place.summary("out");
    check_contract(&live);
    assert_eq!(live["run"]["complete"], true, "{}", live["run"]);
    assert_eq!((&live["run"]["ranks"], &live["run"]["host"]), (&Value::from(4), &Value::from("embedded")));
    assert_eq!(live["run"]["energy"], "estimated");
    for key in ["suppressed_calls", "dropped_records", "repaired_events", "damaged_records"] {
        assert_eq!(live["quality"][key], 0, "{key}");
    }
    let view = &live["devices"][0]["views"][0];
    let groups: std::collections::BTreeSet<&str> =
        list(view, "callpaths").iter().map(|row| row["location_group"].as_str().unwrap()).collect();
    assert_eq!(
        groups.into_iter().collect::<Vec<_>>(),
        ["MPI Rank 0", "MPI Rank 1", "MPI Rank 2", "MPI Rank 3"]
    );
    let relax = list(view, "callpaths")
        .iter()
        .find(|r| r["path"].as_array().unwrap().last() == Some(&"relax_block".into()));
    let path = relax.expect("a call path to relax_block")["path"].as_array().unwrap();
    assert_eq!(path[..2], ["main", "simulate"]);

    // The same events through the offline reader have the same figures.
    let offline = attribute(&place.path("out/traces.otf2"), &[]);
    check_contract(&offline);
    let (live, offline) = (figures(&live), figures(&offline));
    assert_eq!(live.keys().collect::<Vec<_>>(), offline.keys().collect::<Vec<_>>());
    for (name, value) in &live {
        assert!(relative(*value, offline[name]) < 1e-9, "{name}: {value} live, {} offline", offline[name]);
    }
    let entries = std::fs::read_dir(place.path("out")).unwrap().flatten();
    let mut left: Vec<String> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    left.sort();
    assert_eq!(left, ["report.html", "summary.json", "summary.txt", "traces", "traces.def", "traces.otf2"]);
    place.assert_clean();

    opens_in_other_tools(&place, 4);
    agrees_with_the_oracle(
        &place.path("out/traces.otf2"),
        "estimate:::energy",
        1e-9,
        "node",
        &["Master thread"],
        "ranks",
    );
}

/// Checks that otf2-print and python3-otf2 can read the trace, and find every rank in it.
fn opens_in_other_tools(place: &Place, ranks: usize) {
    if on_path("otf2-print") {
        let printed = text(&succeed(Command::new("otf2-print").arg(place.path("out/traces.otf2"))).stdout);
        for rank in 0..ranks {
            let enters = printed
                .lines()
                .filter(|l| l.starts_with("ENTER") && l.split_whitespace().nth(1) == Some(&rank.to_string()));
            assert!(enters.count() > 100, "rank {rank}");
        }
        let definitions =
            text(&succeed(Command::new("otf2-print").arg("-G").arg(place.path("out/traces.otf2"))).stdout);
        assert!(definitions.contains("stencil.c"), "regions have their source");
        assert!(definitions.contains("\"estimate:::energy\""));
    } else {
        println!("skipped: no otf2-print");
    }
    let script = "import sys, otf2
with otf2.reader.open(sys.argv[1]) as trace:
    kinds = [type(event) for location, event in trace.events]
print(kinds.count(otf2.events.Enter), kinds.count(otf2.events.Leave))";
    skip_unless!(has_python_otf2(), "no python3-otf2");
    let read =
        succeed(Command::new("/usr/bin/python3").arg("-c").arg(script).arg(place.path("out/traces.otf2")));
    let counts = text(&read.stdout);
    let counts: Vec<u64> = counts.split_whitespace().map(|n| n.parse().unwrap()).collect();
    assert_eq!(counts[0], counts[1], "every enter has its leave");
    assert_eq!(counts[0] + counts[1], place.summary("out")["quality"]["events"].as_u64().unwrap());
}

/// Checks that an independent program computes the same figures per call path and region, with both policies.
fn agrees_with_the_oracle(
    trace: &std::path::Path,
    metric: &str,
    scale: f64,
    device: &str,
    consumers: &[&str],
    view: &str,
) {
    skip_unless!(has_python_otf2(), "no python3-otf2");
    let directory = tempfile::tempdir().unwrap();
    let config = directory.path().join("config.json");
    let text = serde_json::json!({"devices": [{"name": device, "metric": metric, "scale": scale, "consumers": consumers}]});
    std::fs::write(&config, text.to_string()).unwrap();
    let output = succeed(Command::new("/usr/bin/python3").arg(oracle()).arg(trace).arg(&config));
    let expected: Value = parse(&output.stdout).unwrap();
    let expected = &expected["devices"][0];
    for policy in ["time_sliced", "busy_only"] {
        let ours = attribute(trace, &["--policy", policy, "--view", view]);
        let ours = list(&ours, "devices").iter().find(|d| d["name"] == device).expect("the device");
        assert!(relative(number(ours, "total_joules"), number(expected, "total")) < 1e-9);
        let (view, expected) = (&ours["views"][0], &expected[policy]);
        assert!(relative(number(view, "idle_joules"), number(expected, "idle")) < 1e-9);
        let mut exclusive: BTreeMap<String, f64> = BTreeMap::new();
        for row in list(view, "callpaths") {
            let path: Vec<&str> =
                row["path"].as_array().unwrap().iter().map(|r| r.as_str().unwrap()).collect();
            *exclusive.entry(path.join(";")).or_default() += number(row, "exclusive_joules");
        }
        let theirs = expected["exclusive"].as_object().unwrap();
        for (path, joules) in theirs {
            let joules = joules.as_f64().unwrap();
            assert!(
                relative(exclusive[path], joules) < 6e-9, // rows have nine digits
                "{policy} {path}: {} and {joules}",
                exclusive[path]
            );
        }
        for (path, joules) in &exclusive {
            assert!(theirs.contains_key(path) || *joules == 0.0, "{policy} {path}: {joules} and nothing");
        }
        for row in list(view, "regions") {
            let theirs = expected["inclusive"][row["region"].as_str().unwrap()].as_f64().unwrap_or(0.0);
            assert!(relative(number(row, "inclusive_joules"), theirs) < 1e-9, "{policy} {}", row["region"]);
        }
    }
}

#[test]
fn a_real_run_on_two_mi300a_gives_the_published_figures() {
    let recorded = recorded_trace();
    skip_unless!(recorded.is_some(), "no ../shared/traces/mi300a-two-kernels");
    let trace = recorded.expect("checked");
    let summary = attribute(&trace, &["--policy", "busy_only", "--view", "kernels"]);
    let published = [
        ("GPU-0", "heavy_kernel(float*, float const*)", 1843.223168, 394.157197, 2237.380365),
        ("GPU-1", "light_kernel(float*, float const*)", 1119.611771, 754.578246, 1874.190017),
    ];
    for (name, kernel, joules, idle, total) in published {
        let device = list(&summary, "devices").iter().find(|d| d["name"] == name).unwrap();
        let view = &device["views"][0];
        let row = list(view, "regions").iter().find(|r| r["region"] == kernel).unwrap();
        assert!((number(row, "exclusive_joules") - joules).abs() < 1e-6);
        assert!((number(view, "idle_joules") - idle).abs() < 1e-6);
        assert!((number(device, "total_joules") - total).abs() < 1e-6);
    }
    for (number, device) in [(0, "GPU-0"), (1, "GPU-1")] {
        let metric = format!("A2rocm_smi:::energy_count:device={number}");
        agrees_with_the_oracle(&trace, &metric, 1e-6, device, &[&format!("HIP[{number}:0]")], "kernels");
        agrees_with_the_oracle(&trace, &metric, 1e-6, device, &["Master thread"], "ranks");
    }
}

#[test]
fn the_real_rocm_smi_is_read_at_the_right_watts() {
    skip_unless!(may_mount(), "needs root, and to be allowed to mount");
    skip_unless!(on_path("mpirun"), "no mpirun");
    skip_unless!(std::path::Path::new("/usr/lib/librocm_smi64.so.1").exists(), "no librocm_smi64");
    let place = Place::new();
    let mut command = place.command("unshare");
    command
        .args(["-m", "python3"])
        .arg(root().join("tests/programs/stand_in_amd_gpu.py"))
        .args(["--watts", "300,150", "--late"])
        .arg(place.path("late"))
        .arg("--")
        .env("AMPERE_COUNTERS", "auto");
    command.arg(artifact("ampere")).arg("run").arg("-o").arg(place.path("out"));
    command.args(["--", "mpirun", "--oversubscribe", "-n", "4", &stencil(), "4"]);
    succeed(&mut command);
    let late = std::fs::read_to_string(place.path("late")).expect("seconds");
    let late: f64 = late.trim().parse().expect("seconds");
    let summary = place.summary("out");
    assert_eq!(summary["run"]["energy"], "measured");
    for (device, watts) in list(&summary, "devices").iter().zip([300.0, 150.0]) {
        let seconds = number(device, "sampled_seconds");
        assert!(seconds > 4.0, "{seconds}");
        assert_eq!(
            (&device["source"], &device["energy"]),
            (&Value::from("rocm_smi"), &Value::from("measured"))
        );
        let joules = number(device, "total_joules");
        let expected = watts * seconds;
        // A counter moves when the stand-in writes it, which may be late at the first reading or at the last one.
        assert!(
            (joules - expected).abs() < 0.01 * expected + watts * late,
            "{joules} J, {expected} J expected, {late} s late"
        );
    }
    let (live, offline) = (figures(&summary), figures(&attribute(&place.path("out/traces.otf2"), &[])));
    for (name, value) in &live {
        assert!(relative(*value, offline[name]) < 1e-9, "{name}: {value} live, {} offline", offline[name]);
    }
}

/// A made-up Cray node, whose counters run for as long as this exists.
struct MovingNode {
    root: tempfile::TempDir,
    /// The milliseconds by which its files were late, beyond the one between two updates, because the machine was busy.
    late: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl MovingNode {
    /// The node draws 1000 W, of which its two packages draw 400 W and 200 W. The node's counter is updated 10 times a second,
    /// and those of the packages 1000 times.
    fn new() -> MovingNode {
        let root = tempfile::tempdir().unwrap();
        let (path, stop) = (root.path().to_owned(), Arc::new(AtomicBool::new(false)));
        // The file is written at once, as the kernel does it: no reader gets a part of a figure.
        let put = move |file: &str, text: String| {
            let path = path.join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            let file = std::fs::File::options().write(true).create(true).truncate(false).open(path).unwrap();
            std::os::unix::fs::FileExt::write_all_at(&file, format!("{text}\n").as_bytes(), 0).unwrap();
        };
        let start = std::time::Instant::now();
        let write = move || {
            let seconds = start.elapsed().as_secs_f64();
            let tenths = (seconds * 10.0) as u64;
            put(
                "sys/cray/pm_counters/energy",
                format!("{} J {} us", 500_000 + 100 * tenths, 100_000 * tenths),
            );
            put("sys/cray/pm_counters/freshness", format!("{}", 1000 + tenths));
            for (package, watts) in [(0, 400.0), (1, 200.0)] {
                let zone = format!("sys/class/powercap/intel-rapl:{package}");
                put(&format!("{zone}/name"), format!("package-{package}"));
                put(&format!("{zone}/max_energy_range_uj"), "262143328850".to_owned());
                put(&format!("{zone}/energy_uj"), format!("{}", (1e9 + watts * 1e6 * seconds) as u64));
            }
        };
        write();
        let (stopped, late) = (stop.clone(), Arc::new(AtomicU64::new(0)));
        let of_writer = late.clone();
        let thread = std::thread::spawn(move || {
            let mut last = std::time::Instant::now();
            while !stopped.load(Ordering::Relaxed) {
                std::thread::sleep(std::time::Duration::from_millis(1));
                write();
                of_writer.fetch_add((last.elapsed().as_millis() as u64).saturating_sub(1), Ordering::Relaxed);
                last = std::time::Instant::now();
            }
        });
        MovingNode { root, late, stop, thread: Some(thread) }
    }
}

impl Drop for MovingNode {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// No joule is counted twice in the total, in the output, or in the figures from the trace.
#[test]
fn devices_within_a_node_are_not_added_to_it() {
    skip_unless!(on_path("mpirun"), "no mpirun");
    let (place, node) = (Place::new(), MovingNode::new());
    let mut command = place.ampere_run("out", ["mpirun", "--oversubscribe", "-n", "2", &stencil(), "3"]);
    succeed(command.env("AMPERE_COUNTERS", "auto").env("AMPERE_SYS_ROOT", node.root.path()));
    let late = node.late.load(Ordering::Relaxed) as f64 * 1e-3;
    let summary = place.summary("out");
    assert_eq!(summary["run"]["energy"], "measured");
    let notes = summary["run"]["notes"].to_string();
    assert!(!["cray_pm", "rapl", "hwmon"].iter().any(|source| notes.contains(source)), "{notes}");
    let sampler = &summary["overhead"]["sampler"];
    assert!(number(sampler, "deadlines") > 0.0 && number(sampler, "cpu_seconds") > 0.0, "{sampler}");
    let seconds = number(&summary["run"], "seconds");
    let devices = list(&summary, "devices");
    let named = |name: &str| devices.iter().find(|device| device["name"] == name).unwrap();
    assert_eq!(devices.len(), 3);
    for (name, kind, watts, parts) in
        [("node", "node", 1000.0, 2), ("package-0", "cpu", 400.0, 0), ("package-1", "cpu", 200.0, 0)]
    {
        let device = named(name);
        assert_eq!((&device["kind"], list(device, "contains").len()), (&Value::from(kind), parts), "{name}");
        assert!(number(&device["readings"], "readings") > 10.0, "{}", device["readings"]);
        let joules = number(device, "total_joules");
        // The tolerance is a tenth of a second at either end, because the counter changes ten times a second.
        assert!(
            (joules - watts * seconds).abs() < watts * (0.25 + late),
            "{name}: {joules} J in {seconds} s"
        );
    }
    // The program sleeps from time to time, so each counter shows the static power of its device.
    for (name, watts) in [("package-0", 400.0), ("package-1", 200.0)] {
        let baseline = &named(name)["baseline"];
        assert_eq!(baseline["kind"], "idle intervals", "{baseline}");
        let within = 0.05 + late / seconds;
        assert!(
            (number(baseline, "watts") - watts).abs() < within * watts,
            "{baseline}, files {late} s late"
        );
    }
    let notes = |output: &str| place.summary(output)["run"]["notes"].to_string();
    let learned = "the static power of a device became known only during the run";
    assert!(
        notes("out").contains(&format!("{learned}: the figures below were computed again")),
        "{notes:?}",
        notes = notes("out")
    );
    let mut untraced =
        place.ampere_run("untraced", ["mpirun", "--oversubscribe", "-n", "2", &stencil(), "3"]);
    untraced.env("AMPERE_COUNTERS", "auto").env("AMPERE_SYS_ROOT", node.root.path());
    succeed(untraced.env("AMPERE_TRACE", "off"));
    assert!(
        notes("untraced").contains(&format!("{learned}, and all earlier joules count as dynamic")),
        "{notes:?}",
        notes = notes("untraced")
    );
    assert_eq!(named("node")["contains"], serde_json::json!(["package-0", "package-1"]));
    assert_eq!(number(&summary["run"], "total_joules"), number(named("node"), "total_joules"));
    let printed = std::fs::read_to_string(place.path("out/summary.txt")).unwrap();
    assert!(printed.contains("J in node, which include package-0..1\n"), "{printed}");
    // The trace has the same figures.
    let offline = attribute(&place.path("out/traces.otf2"), &[]);
    assert_eq!(offline["run"]["total_joules"], summary["run"]["total_joules"]);
    for device in list(&offline, "devices") {
        let live = named(device["name"].as_str().unwrap());
        assert_eq!((&device["kind"], &device["contains"]), (&live["kind"], &live["contains"]));
    }
    let (live, offline) = (figures(&summary), figures(&offline));
    for (name, value) in &live {
        assert!(relative(*value, offline[name]) < 1e-9, "{name}: {value} live, {} offline", offline[name]);
    }
}

/// If a GPU's counter reads 0 for a while, a live run loses only the samples of that time.
#[test]
fn a_gpu_that_sleeps_adds_no_joules() {
    skip_unless!(on_path("mpirun"), "no mpirun");
    let place = Place::new();
    let mut command = place.ampere_run("out", ["mpirun", "--oversubscribe", "-n", "2", &stencil(), "4"]);
    command
        .env("AMPERE_COUNTERS", "rocm_smi")
        .env("AMPERE_ROCM_SMI_LIBRARY", artifact("libstand_in_rocm_smi64.so"))
        .env("STAND_IN_ROCM_SMI", "watts=300;asleep=0@1-2.5");
    succeed(&mut command);
    let summary = place.summary("out");
    let device = &list(&summary, "devices")[0];
    let expected = 300.0 * number(device, "sampled_seconds");
    let joules = number(device, "total_joules");
    assert!((joules - expected).abs() < 0.02 * expected, "{joules} J and not {expected} J");
    assert!(number(&summary["quality"], "unusable_samples") > 0.0, "{}", summary["quality"]);
    assert_eq!(
        (number(device, "uncovered_seconds"), summary["quality"]["counter_resets"].as_u64()),
        (0.0, Some(0))
    );
    let offline = attribute(&place.path("out/traces.otf2"), &[]);
    assert_eq!(offline["devices"][0]["total_joules"], device["total_joules"]);
}

#[test]
fn an_unmodified_hpcc_runs_as_without_ampere() {
    skip_unless!(on_path("mpirun") && on_path("hpcc"), "no mpirun or no hpcc");
    let example = std::fs::read_to_string("/usr/share/doc/hpcc/examples/_hpccinf.txt");
    let Ok(input) = example else { return println!("skipped: no /usr/share/doc/hpcc") };
    let input =
        input.replace("1000         Ns", "200          Ns").replace("\n2            Ps", "\n1            Ps");
    let results = |measured: bool| {
        let place = Place::new();
        std::fs::write(place.path("hpccinf.txt"), &input).unwrap();
        let arguments = ["mpirun", "--oversubscribe", "-n", "2", "hpcc"];
        let output = if measured {
            succeed(&mut place.ampere_run("out", arguments))
        } else {
            succeed(place.command(arguments[0]).args(&arguments[1..]))
        };
        let report = std::fs::read_to_string(place.path("hpccoutf.txt")).unwrap();
        // Only names are compared, because the figures are times.
        let names: Vec<String> =
            report.lines().filter_map(|l| l.split_once('=')).map(|(name, _)| name.to_owned()).collect();
        assert!(report.contains("Success=1"), "{report}");
        (text(&output.stdout), names, place)
    };
    let (plain_out, plain_names, _) = results(false);
    let (out, names, place) = results(true);
    assert_eq!((out, names), (plain_out, plain_names));
    let summary = place.summary("out");
    check_contract(&summary);
    for region in ["MPI_Sendrecv", "MPI_Allreduce", "MPI_Bcast", "hpcc"] {
        let row = list(&summary["devices"][0]["views"][0], "regions").iter().find(|r| r["region"] == region);
        assert!(row.is_some_and(|row| number(row, "exclusive_joules") > 0.0), "{region}");
    }
}

fn assert_two_ranks(summary: &Value, place: &Place) {
    check_contract(summary);
    assert_eq!(
        (&summary["run"]["ranks"], &summary["run"]["complete"]),
        (&Value::from(2), &Value::from(true))
    );
    place.assert_clean();
}

/// Without `ampere run`, the plugin starts the collector.
#[test]
fn the_plugin_alone_does_the_same() {
    skip_unless!(on_path("mpirun"), "no mpirun");
    let place = Place::new();
    let mut command = place.command("mpirun");
    command.args(["--oversubscribe", "-n", "2", &stencil(), "1"]);
    command.env("LD_PRELOAD", jobs::preloaded());
    let output = succeed(&mut command);
    assert!(text(&output.stderr).contains("summary.txt"), "{}", text(&output.stderr));
    let entries = std::fs::read_dir(place.directory()).unwrap().flatten().map(|e| e.path());
    let results = entries.filter(|p| p.join("summary.json").exists()).collect::<Vec<_>>();
    assert_eq!(results.len(), 1, "one output directory");
    let summary = json(&results[0].join("summary.json"));
    assert_two_ranks(&summary, &place);
}

/// With srun, `ampere run` is started by the launcher, once for each rank.
#[test]
fn runs_that_the_launcher_starts_for_each_rank_form_one_run() {
    skip_unless!(on_path("mpirun"), "no mpirun");
    let place = Place::new();
    let mut command = place.command("mpirun");
    command.args(["--oversubscribe", "-n", "2"]).arg(artifact("ampere")).args(["run", "-o", "here", "--"]);
    command.args([&stencil(), "1"]);
    let output = succeed(&mut command);
    let printed = text(&output.stderr);
    assert_eq!(printed.matches("once for each rank").count(), 1, "{printed}");
    let summary = json(&place.path("here/summary.json"));
    assert_two_ranks(&summary, &place);
}

#[test]
fn results_that_cannot_be_written_are_not_promised_to_ranks() {
    skip_unless!(on_path("mpirun"), "no mpirun");
    let place = Place::new();
    std::fs::write(place.path("file"), "").expect("a file");
    let mut command = place.command("mpirun");
    command
        .args(["--oversubscribe", "-n", "2"])
        .arg(artifact("ampere"))
        .args(["run", "-o", "file/out", "--"]);
    command.args([&stencil(), "1"]);
    let printed = text(&succeed(&mut command).stderr);
    assert_eq!(
        (printed.matches("results in").count(), printed.matches("cannot create").count()),
        (0, 1),
        "{printed}"
    );
}

/// Each of Score-P's three timers is recognised, and times are in seconds at the end.
#[test]
fn every_timer_gives_the_same_seconds() {
    skip_unless!(on_path("gcc"), "no gcc");
    let place = Place::new();
    // The program prints the least and the most seconds that the call can have taken.
    let source = "#include <stdio.h>
        #include <time.h>
        double least;
        __attribute__((no_instrument_function)) double now(void) {
            struct timespec t;
            clock_gettime(CLOCK_MONOTONIC, &t);
            return t.tv_sec + 1e-9 * t.tv_nsec;
        }
        void half_a_second(void) {
            double begin = now();
            struct timespec t = {0, 500000000};
            nanosleep(&t, 0);
            least = now() - begin;
        }
        int main(void) {
            double begin = now();
            half_a_second();
            double most = now() - begin;
            printf(\"%.9f %.9f\", least, most);
            return 0;
        }";
    let program = compile(&place, &["gcc", "-O0", "-g", "-finstrument-functions"], "nap", source);
    for (timer, ticks) in [("tsc", 0), ("gettimeofday", 1_000_000), ("clock_gettime", 1_000_000_000)] {
        let place = Place::new();
        let done = succeed(place.ampere_run("out", [program.to_str().unwrap()]).env("SCOREP_TIMER", timer));
        let took: Vec<f64> = text(&done.stdout).split(' ').map(|word| word.parse().unwrap()).collect();
        let summary = place.summary("out");
        let known = summary["run"]["ticks_per_second"].as_u64().unwrap();
        assert!(known == ticks || (ticks == 0 && known > 1_000_000), "{timer}: {known}");
        let regions = list(&summary["devices"][0]["views"][0], "regions");
        let nap = regions.iter().find(|r| r["region"] == "half_a_second").unwrap();
        let seconds = number(nap, "exclusive_seconds");
        assert!((0.99 * took[0]..1.01 * took[1]).contains(&seconds), "{timer}: {seconds}, {took:?}");
        let timer_name = summary["run"]["timer"].as_str().unwrap();
        assert!(timer_name.starts_with(timer), "{timer}: {timer_name}");
    }
}

/// There are figures without a trace, and no other files on disk.
#[test]
fn the_trace_can_be_left_out() {
    skip_unless!(on_path("mpirun"), "no mpirun");
    let place = Place::new();
    let mut command = place.ampere_run("out", ["mpirun", "--oversubscribe", "-n", "2", &stencil(), "1"]);
    let output = succeed(command.env("AMPERE_TRACE", "off"));
    let entries = std::fs::read_dir(place.path("out")).unwrap().flatten();
    let mut left: Vec<String> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    left.sort();
    assert_eq!(left, ["report.html", "summary.json", "summary.txt"]);
    assert!(!text(&output.stderr).contains("traces.otf2"));
    let summary = place.summary("out");
    check_contract(&summary);
    assert_eq!(summary["run"]["complete"], true, "{}", summary["run"]);
    assert!(number(&summary["quality"], "events") > 1000.0);
}

/// Keeps all CPUs busy until it is dropped.
struct Busy(Arc<AtomicBool>);

impl Busy {
    fn begin() -> Busy {
        let done = Arc::new(AtomicBool::new(false));
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            let done = done.clone();
            std::thread::spawn(move || while !done.load(Ordering::Relaxed) {});
        }
        Busy(done)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// During the run, late events are charged as well as possible; in the end they are attributed at their own times.
#[test]
fn late_events_are_attributed_correctly_in_the_end() {
    skip_unless!(on_path("mpirun") && on_path("hpcc"), "no mpirun or no hpcc");
    let example = std::fs::read_to_string("/usr/share/doc/hpcc/examples/_hpccinf.txt");
    let Ok(input) = example else { return println!("skipped: no /usr/share/doc/hpcc") };
    let input =
        input.replace("1000         Ns", "200          Ns").replace("\n2            Ps", "\n1            Ps");
    // Whether an event is late depends on nanoseconds, even without any slack: most runs have some late events while something
    // else keeps the CPUs busy, and one is enough. With CPU times, events wait for these and are hardly ever late.
    let run = || {
        let place = Place::new();
        std::fs::write(place.path("hpccinf.txt"), &input).unwrap();
        let mut command = place.ampere_run("out", ["mpirun", "--oversubscribe", "-n", "2", "hpcc"]);
        succeed(command.env("AMPERE_SLACK", "0ms").env("AMPERE_POLICY", "time_sliced"));
        let summary = place.summary("out");
        (number(&summary["quality"], "late_events") > 0.0).then_some((place, summary))
    };
    let busy = Busy::begin();
    let (place, live) = (0..25).find_map(|_| run()).expect("a run with late events");
    drop(busy);
    assert!(live["run"]["notes"].to_string().contains("came late: the figures below were computed again"));
    assert_eq!(
        (&live["devices"][0]["source"], &live["run"]["energy"]),
        (&"estimate".into(), &"estimated".into())
    );
    let (live, offline) = (figures(&live), figures(&attribute(&place.path("out/traces.otf2"), &[])));
    for (name, value) in &live {
        assert!(relative(*value, offline[name]) < 1e-9, "{name}: {value} live, {} offline", offline[name]);
    }
}

/// A sensor's delay shifts the samples relative to the events, in the same way live and from a trace.
#[test]
fn a_delay_is_the_same_live_and_offline() {
    skip_unless!(on_path("mpirun"), "no mpirun");
    let place = Place::new();
    let config = place.path("ampere.toml");
    let text = "[[device]]\nname = \"slow\"\nmetric = 'estimate:::energy'\ndelay = \"20ms\"\n";
    std::fs::write(&config, text).unwrap();
    let config = config.to_str().unwrap();
    let mut command = place.command(artifact("ampere"));
    command.args(["run", "--config", config, "-o"]).arg(place.path("out"));
    command.args(["--", "mpirun", "--oversubscribe", "-n", "2", &stencil(), "1"]);
    succeed(&mut command);
    let (live, offline) =
        (place.summary("out"), attribute(&place.path("out/traces.otf2"), &["--config", config]));
    assert_eq!(live["devices"][0]["name"], "slow");
    // On a busy machine, events of the live run are late. They are attributed again at the end.
    assert_eq!(offline["quality"]["late_events"], 0);
    let (live, offline) = (figures(&live), figures(&offline));
    for (name, value) in &live {
        assert!(relative(*value, offline[name]) < 1e-9, "{name}: {value} live, {} offline", offline[name]);
    }
    let idle = |summary: &Value| number(&summary["devices"][0]["views"][0], "idle_joules");
    assert_ne!(
        idle(&attribute(&place.path("out/traces.otf2"), &[])),
        idle(&place.summary("out")),
        "the delay has an effect"
    );
}

#[test]
fn the_exit_status_is_the_commands_own() {
    let place = Place::new();
    let status = place.ampere_run("out", ["sh", "-c", "exit 7"]).output().unwrap().status;
    assert_eq!(status.code(), Some(7));
    let place = Place::new();
    let status = place.ampere_run("out", ["sh", "-c", "kill -9 $$"]).output().unwrap().status;
    assert_eq!(status.signal(), Some(9), "{status}");
}

/// The shell that `salloc` starts may run on a login node, outside the job.
#[test]
fn a_node_outside_the_slurm_job_is_named() {
    let place = Place::new();
    let mut command = place.ampere_run("out", ["true"]);
    let done = jobs::run(command.env("SLURM_JOB_ID", "17").env("SLURM_JOB_NODELIST", "no-such-node[1-2]"));
    assert_eq!(done.code, 0, "{done:#?}");
    assert!(
        done.stderr.contains("does not belong to Slurm job 17, but the run's total includes its joules"),
        "{done:#?}"
    );
}

/// Daemons start programs with SIGCHLD ignored: the command starts that way, and `ampere run` still waits for it.
#[test]
fn a_run_works_where_sigchld_is_ignored() {
    let place = Place::new();
    let (ampere, output) = (artifact("ampere"), place.path("out"));
    let mut command = place.command("env");
    command.arg("--ignore-signal=CHLD").arg(ampere).arg("run").arg("-o").arg(&output).arg("--");
    command.args(["grep", "-hs", "SigIgn", "/proc/self/status", "/nowhere"]);
    let done = command.output().unwrap();
    assert_eq!(done.status.code(), Some(2), "one of two files: {}", text(&done.stderr));
    assert!(output.join("summary.json").exists(), "{}", text(&done.stderr));
    let ignored = jobs::ignored_signals(&text(&done.stdout));
    assert!(ignored.unwrap() & (1 << 16) != 0, "{}", text(&done.stdout));
}

/// The sanitizer's library refuses to be loaded after a preloaded one, unless an option permits it.
#[test]
fn a_program_with_the_address_sanitizer_is_measured() {
    let place = Place::new();
    let source = place.path("checked.c");
    let code = "__attribute__((noinline)) int next(int i) { return i + 1; }
        int main(void) { int n = 0; for (int i = 0; i < 9; i++) n = next(n); return n; }";
    std::fs::write(&source, code).unwrap();
    let program = place.path("checked");
    let mut compiler = std::process::Command::new("gcc");
    compiler.args(["-fsanitize=address", "-finstrument-functions", "-o"]).arg(&program).arg(&source);
    skip_unless!(on_path("gcc"), "no gcc");
    // If gcc prints a name without a directory, there is no such library.
    let library = text(&succeed(Command::new("gcc").arg("-print-file-name=libasan.so")).stdout);
    skip_unless!(library.starts_with('/'), "no gcc with an AddressSanitizer");
    succeed(&mut compiler);
    let done = place.ampere_run("out", [program.to_str().unwrap()]).output().unwrap();
    assert_eq!(done.status.code(), Some(9), "{}", String::from_utf8_lossy(&done.stderr));
    let summary = place.summary("out");
    let regions = list(&summary["devices"][0]["views"][0], "regions");
    let next = regions.iter().find(|row| row["region"] == "next").expect("it is instrumented");
    assert_eq!(next["calls"], 9);
}

/// The name in the trace is the one that is shown, and its canonical name is the compiler's symbol.
#[test]
fn a_procedure_of_a_fortran_module_is_named_as_in_fortran() {
    skip_unless!(on_path("gfortran") && on_path("otf2-print"), "no gfortran");
    let place = Place::new();
    let code = "module work\ncontains\nsubroutine heavy(s)\nreal(8), intent(inout) :: s\ns = s + 1\nend subroutine\n\
                end module\nprogram p\nuse work\nreal(8) :: s\ns = 0\ncall heavy(s)\ncall heavy(s)\nend program\n";
    let source = place.write("work.f90", code);
    let program = place.path("work");
    let mut compiler = std::process::Command::new("gfortran");
    compiler.args(["-O0", "-finstrument-functions", "-o"]).arg(&program).arg(source);
    succeed(compiler.current_dir(place.directory()));
    succeed(&mut place.ampere_run("out", [&program]));
    let summary = place.summary("out");
    let regions = list(&summary["devices"][0]["views"][0], "regions");
    let heavy = regions.iter().find(|row| row["region"] == "work::heavy").expect("it is instrumented");
    assert_eq!(heavy["calls"], 2);
    let printed =
        text(&succeed(Command::new("otf2-print").arg("-G").arg(place.path("out/traces.otf2"))).stdout);
    assert!(
        printed.lines().any(|line| line.contains("\"work::heavy\"") && line.contains("\"__work_MOD_heavy\"")),
        "{printed}"
    );
}

/// A shell starts such a script, too.
#[test]
fn a_script_without_an_interpreter_line_is_run_by_the_shell() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new();
    let script = place.path("job");
    std::fs::write(&script, "echo $1; exit 4\n").unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o700)).unwrap();
    let done = place.ampere_run("out", ["./job", "a word"]).output().unwrap();
    assert_eq!((done.status.code(), text(&done.stdout).as_str()), (Some(4), "a word\n"));
}
