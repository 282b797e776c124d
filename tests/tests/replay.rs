//! `ampere replay`: a trace that is played live has the same figures as with `ampere attribute`.

mod synthetic_trace;

use ampere_tests::collector::announced;
use ampere_tests::jobs::Place;
use ampere_tests::process::{Running, program, wait_for};
use ampere_tests::prometheus::Prometheus;
use ampere_tests::runs::{
    assert_same_figures, attribute, json, list, number, recorded_trace, relative, succeed, text,
};
use ampere_tests::{artifact, browser, dashboard, http, openmetrics, skip_unless};
use serde_json::Value;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

const CONFIG: &str =
    "[[device]]\nname = \"GPU-$1\"\nmetric = 'A2rocm_smi:::energy_count:device=([0-3])'\nscale = 1e-6\n";

fn replay(place: &Place, trace: &Path, policy: &str, options: &[&str]) -> Command {
    let mut command = place.command(artifact("ampere"));
    command.arg("replay").arg(trace).arg("-o").arg(place.path("out")).args(options);
    command.env("AMPERE_POLICY", policy);
    command
}

/// Returns the figures of a trace with the policy `time_sliced`.
fn by_time(trace: &Path, options: &[&str]) -> Value {
    attribute(trace, &[&["--policy", "time_sliced"], options].concat())
}

/// The kernels view as published by the trace's authors: device, kernel, joules of the kernel, idle joules.
const PUBLISHED: [(&str, &str, f64, f64); 2] = [
    ("GPU-0", "heavy_kernel(float*, float const*)", 1843.223168, 394.157197),
    ("GPU-1", "light_kernel(float*, float const*)", 1119.611771, 754.578246),
];

fn check_published(summary: &Value) {
    for (device, kernel, joules, idle) in PUBLISHED {
        let device = list(summary, "devices").iter().find(|d| d["name"] == device).expect("the device");
        let view = list(device, "views").iter().find(|v| v["view"] == "kernels").expect("the view");
        let row = list(view, "regions").iter().find(|r| r["region"] == kernel).expect("the kernel");
        assert!((number(row, "exclusive_joules") - joules).abs() < 1e-6, "{row}");
        assert!((number(view, "idle_joules") - idle).abs() < 1e-6, "{}", view["idle_joules"]);
    }
}

#[test]
fn the_published_figures_at_any_speed() {
    let recorded = recorded_trace();
    skip_unless!(recorded.is_some(), "no ../shared/traces/mi300a-two-kernels");
    let trace = recorded.expect("checked");
    for policy in ["busy_only", "time_sliced"] {
        let mut expected = None;
        for (speed, lag) in [("50", "0.5"), ("1000", "0.1"), ("1000", "end"), ("max", "0"), ("0", "2")] {
            let place = Place::new();
            let config = place.path("ampere.toml");
            std::fs::write(&config, format!("{CONFIG}[attribution]\npolicy = \"{policy}\"\n")).expect("room");
            let config = config.to_str().expect("a name");
            let options = ["--config", config, "--speed", speed, "--gpu-lag", lag];
            succeed(&mut replay(&place, &trace, policy, &options));
            let live = place.summary("out");
            let offline = expected.get_or_insert_with(|| attribute(&trace, &["--config", config]));
            assert_same_figures(&live, offline);
            if policy == "busy_only" {
                check_published(&live);
            }
            // The trace that the replay has written has the same figures.
            assert_same_figures(&attribute(&place.path("out/traces.otf2"), &["--config", config]), offline);
            let run = &live["run"];
            assert_eq!((&run["host"], &run["energy"]), (&"trace".into(), &"measured".into()));
            assert_eq!((&run["complete"], &run["ranks"]), (&true.into(), &1.into()));
            assert_eq!(run["nodes"], offline["run"]["nodes"]);
            for key in ["late_events", "suppressed_calls", "dropped_records", "repaired_events"] {
                assert_eq!(number(&live["quality"], key), 0.0, "{key}");
            }
            place.assert_clean();
        }
    }
}

/// Scrapes until the collector has ended, and returns the last answer.
fn last_scrape(running: &mut Running, output: &Path) -> Vec<openmetrics::Sample> {
    let (mut address, mut last): (Option<SocketAddr>, _) = (None, None);
    while !running.has_ended() {
        address = address.or_else(|| announced(output).map(|collector| collector.address()));
        if let Some(Ok(response)) = address.map(|address| http::get(address, "/metrics")) {
            last = Some(response.body);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    openmetrics::parse(&last.expect("/metrics was served")).expect("metrics")
}

#[test]
fn the_published_figures_are_in_the_last_scrape() {
    let recorded = recorded_trace();
    skip_unless!(recorded.is_some(), "no ../shared/traces/mi300a-two-kernels");
    for speed in ["50", "1000"] {
        let place = Place::new();
        let config = place.path("ampere.toml");
        std::fs::write(&config, CONFIG).expect("room");
        let mut command = replay(&place, recorded.as_ref().expect("checked"), "busy_only", &[]);
        command.arg("--config").arg(&config).args(["--speed", speed, "--hold", "3"]);
        command.args(["--listen", "127.0.0.1:0"]).stdout(Stdio::null()).stderr(Stdio::null());
        let mut running = Running::start(&mut command);
        let samples = last_scrape(&mut running, &place.path("out"));
        let find = |name: &str, labels: &[(&str, &str)]| {
            let matches = |s: &&openmetrics::Sample| {
                s.name == name && labels.iter().all(|(label, value)| s.label(label) == *value)
            };
            samples.iter().find(matches).unwrap_or_else(|| panic!("no {name}{labels:?}")).value
        };
        for (device, kernel, joules, idle) in PUBLISHED {
            let scraped =
                find("ampere_kernel_energy_joules_total", &[("device", device), ("kernel", kernel)]);
            assert!((scraped - joules).abs() < 1e-6, "{device}: {scraped}");
            let scraped = find("ampere_idle_energy_joules_total", &[("device", device), ("view", "kernels")]);
            assert!((scraped - idle).abs() < 1e-6, "{device}: {scraped}");
        }
        assert_eq!(samples[0].label("node"), "faraday.ftpn.ornl.gov");
    }
}

fn interrupt(running: &Running) {
    let pid = rustix::process::Pid::from_raw(running.id() as i32).expect("a process");
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it runs");
}

/// Plays a trace, and checks that its kernels are on the page and in the metrics that the dashboards use.
fn kernels_are_shown(place: &Place, trace: &Path, config: &str, timing: &[&str], kernels: [&str; 2]) {
    let options = ["--config", config, "--gpu-lag", "0.1", "--listen", "127.0.0.1:0", "--hold", "600"];
    let options = [&options, timing].concat();
    let mut command = replay(place, trace, "busy_only", &options);
    let said = place.path("said");
    let to_file = std::fs::File::create(&said).expect("a file");
    let mut running = Running::start(command.stdout(Stdio::null()).stderr(to_file));
    let limit = Duration::from_secs(60);
    let target = wait_for("a collector", limit, || announced(&place.path("out"))).address();
    let prometheus =
        program("prometheus").map(|server| Prometheus::start(&server, target, place.directory()));
    let joules = |kernel: &str| {
        let samples = openmetrics::parse(&http::get(target, "/metrics").ok()?.body).ok()?;
        let of = samples.iter().filter(|sample| sample.name == "ampere_kernel_energy_joules_total");
        let of = of.filter(|sample| sample.label("kernel") == kernel && sample.value > 0.0);
        of.map(|sample| sample.value).reduce(|sum, value| sum + value)
    };
    let before = kernels.map(|kernel| wait_for(kernel, limit, || joules(kernel)));
    if browser::is_there() {
        let shown = browser::shown_after(place, &format!("http://{target}/"), 1600, None, Some(1));
        for (kernel, before) in kernels.into_iter().zip(before) {
            let shown = browser::kernel_joules(&shown, kernel).expect("the kernel has a row");
            assert!(before <= shown + 0.001, "{kernel}: {before} {shown}");
            // The metrics of a busy collector may be older than the page.
            wait_for("metrics with the page's joules", limit, || {
                joules(kernel).filter(|j| shown <= j + 0.001)
            });
        }
        assert!(shown["titles"].to_string().contains("GPU kernels"), "{}", shown["titles"]);
    }
    if let Some(prometheus) = &prometheus {
        let mut checked = 0;
        for (file, dashboard) in dashboard::all() {
            let of_kernels = |query: &dashboard::Query| query.expression.contains("ampere_kernel_energy");
            for query in dashboard::queries(&dashboard).into_iter().filter(of_kernels) {
                wait_for(&format!("{file}: {}", query.of), limit, || {
                    let found =
                        prometheus.query(&dashboard::substituted(&query.expression)).expect("an answer");
                    (!found.is_empty()).then_some(())
                });
                checked += 1;
            }
        }
        let of_rule = || prometheus.query("kernel:ampere_power_watts:rate15s").expect("an answer");
        wait_for("the rule of kernels", limit, || (of_rule().len() >= 2).then_some(()));
        assert!(checked >= 2, "{checked}");
    }
    let words =
        format!("ampere: the page with the final figures is served at http://{target} for 600 s more\n");
    wait_for(&words, limit, || std::fs::read_to_string(&said).ok()?.contains(&words).then_some(()));
    // A busy collector may have no page at the moment.
    wait_for("the page of a run that is over", limit, || {
        http::get(target, "/page.json").ok()?.body.contains(r#""state":"over""#).then_some(())
    });
    let summary = place.summary("out");
    for kernel in kernels {
        let devices = list(&summary, "devices").iter().flat_map(|device| list(device, "views"));
        let rows = devices.flat_map(|view| list(view, "regions")).filter(|row| row["region"] == kernel);
        let of_summary: f64 = rows.map(|row| number(row, "exclusive_joules")).sum();
        let served = joules(kernel).expect("the kernel is still served");
        assert!((served - of_summary).abs() < 1e-6 * of_summary, "{kernel}: {served} {of_summary}");
    }
    interrupt(&running);
    let status = running.wait(limit).and_then(|status| status.code());
    assert_eq!(status, Some(0), "the results were complete before");
    skip_unless!(browser::is_there(), browser::WHY);
    skip_unless!(prometheus.is_some(), "no prometheus");
}

#[test]
fn kernels_of_a_made_up_trace_are_on_page_and_dashboards() {
    let MadeUp { _place: place, trace, config, .. } = MadeUp::new("");
    kernels_are_shown(&place, &trace, &config, &["--speed", "4"], ["kernel a", "kernel b"]);
}

#[test]
fn kernels_of_a_recorded_trace_are_on_page_and_dashboards() {
    let recorded = recorded_trace();
    skip_unless!(recorded.is_some(), "no ../shared/traces/mi300a-two-kernels");
    let place = Place::new();
    let config = place.write("ampere.toml", CONFIG).display().to_string();
    let kernels = PUBLISHED.map(|(_, kernel, ..)| kernel);
    // Each kernel is one long call, which ends when the trace does.
    kernels_are_shown(&place, &recorded.expect("checked"), &config, &[], kernels);
}

/// The generated trace, settings for it with additional lines, and the result of `ampere attribute`.
struct MadeUp {
    _place: Place,
    trace: PathBuf,
    config: String,
    offline: Value,
}

impl MadeUp {
    fn new(settings: &str) -> MadeUp {
        let place = Place::new();
        let directory = place.directory();
        let trace = synthetic_trace::write(&directory.join("made-up"), &synthetic_trace::Shape::default());
        let file = directory.join("ampere.toml");
        std::fs::write(&file, format!("{}{settings}", synthetic_trace::CONFIG)).expect("room");
        let config = file.to_str().expect("a name").to_owned();
        let offline = by_time(&trace, &["--config", &config]);
        MadeUp { _place: place, trace, config, offline }
    }
}

#[test]
fn two_ranks_with_gpu_streams_equal_offline() {
    let MadeUp { trace, config, offline, .. } = &MadeUp::new("");
    // There is one device per node and counter, and each has joules.
    assert_eq!(list(offline, "devices").len(), 8, "{}", offline["devices"]);
    for (speed, lag) in [("max", "0"), ("max", "0.5"), ("max", "70"), ("max", "end"), ("100", "3")] {
        let place = Place::new();
        // With small rings, the replay has to wait for room repeatedly.
        let mut command =
            replay(&place, trace, "time_sliced", &["--config", config, "--speed", speed, "--gpu-lag", lag]);
        succeed(command.env("AMPERE_RING_BYTES", "16384"));
        let live = place.summary("out");
        assert_same_figures(&live, offline);
        assert_same_figures(&by_time(&place.path("out/traces.otf2"), &["--config", config]), offline);
        assert_eq!((&live["run"]["nodes"], &live["run"]["ranks"]), (&offline["run"]["nodes"], &2.into()));
        assert_eq!(live["run"]["start"].as_str().map(|s| &s[..4]), Some("2023"));
        for key in ["late_events", "suppressed_calls", "dropped_records", "repaired_events"] {
            assert_eq!(number(&live["quality"], key), 0.0, "{key} at {speed}, {lag}");
        }
    }
    let place = Place::new();
    succeed(&mut replay(&place, trace, "active", &["--config", config, "--speed", "max", "--gpu-lag", "3"]));
    let by_activity = attribute(trace, &["--policy", "active", "--config", config]);
    assert_same_figures(&place.summary("out"), &by_activity);
    let views = list(&by_activity, "devices").iter().flat_map(|device| list(device, "views"));
    let of_ranks = views.filter(|view| view["view"] == "ranks" && view["policy"] == "active");
    assert!(of_ranks.count() > 2, "{}", by_activity["devices"]);
}

/// No kernel is known before the end, but the joules of GPUs are in functions or idle.
#[test]
fn live_figures_of_gpus_do_not_wait_for_kernels() {
    let MadeUp { _place: made_up, trace, config, .. } = MadeUp::new("");
    let place = Place::new();
    let options = ["--config", &config, "--speed", "10", "--gpu-lag", "end", "--listen", "127.0.0.1:0"];
    let mut command = replay(&place, &trace, "active", &options);
    let mut running = Running::start(command.stdout(Stdio::null()).stderr(Stdio::null()));
    let limit = Duration::from_secs(60);
    let target = wait_for("a collector", limit, || announced(&place.path("out"))).address();
    let answer =
        |path: &str| -> Option<Value> { serde_json::from_str(&http::get(target, path).ok()?.body).ok() };
    let is_gpu = |device: &&Value| device["kind"] == "gpu";
    let snapshot = wait_for("joules of GPUs", limit, || {
        let snapshot = answer("/snapshot.json")?;
        let gpus: Vec<f64> =
            list(&snapshot, "devices").iter().filter(is_gpu).map(|device| number(device, "joules")).collect();
        (gpus.len() > 1 && gpus.iter().all(|joules| *joules > 100.0)).then_some(snapshot)
    });
    let gpus: Vec<&Value> = list(&snapshot, "devices").iter().filter(is_gpu).collect();
    assert!(gpus.is_sorted_by_key(|device| device["device"].as_str()), "{gpus:#?}");
    let mut of_functions = 0.0;
    for device in gpus {
        let rows = list(&snapshot, "region_energy").iter().filter(|row| row["device"] == device["device"]);
        let functions: f64 = rows.map(|row| number(row, "joules")).sum();
        let parts = functions + number(device, "idle_joules_ranks") + number(device, "lost_joules");
        assert!(relative(parts, number(device, "joules")) < 1e-9, "{device}");
        assert_eq!(device["dynamic_joules"], Value::Null, "{device}");
        of_functions += functions;
    }
    assert!(of_functions > 100.0, "{snapshot}");
    let note = "the joules of a GPU are divided among functions of the host by time";
    assert!(snapshot["notes"].to_string().contains(note), "{}", snapshot["notes"]);
    let notes = wait_for("a page", limit, || answer("/page.json"))["notes"].to_string();
    assert!(notes.contains(note), "{notes}");
    assert!(!notes.contains(" of 90"), "the rest of its 90 s has not been played: {notes}");
    assert!(running.wait(limit).is_some_and(|status| status.success()), "it ends well");
    let options = ["--policy", "active", "--config", &config];
    assert_same_figures(&place.summary("out"), &attribute(&trace, &options));
    made_up.assert_clean();
}

/// Makes a trace of two ranks with recorded MPI calls and sampled functions.
fn sampled_trace(place: &Place) -> PathBuf {
    let mut run = place.ampere(["run", "--sample", "1ms", "-o", "sampled", "--"]);
    run.args(place.mpi(&place.mpi_program())).arg("ends well").env("AMPERE_COUNTERS", "estimate");
    succeed(&mut run);
    place.path("sampled/traces.otf2")
}

#[test]
fn recorded_calls_of_a_sampled_trace_have_their_names_while_it_is_played() {
    skip_unless!(ampere_tests::runs::on_path("mpicc"), "no mpicc");
    let place = Place::new();
    let mut command = place.command(artifact("ampere"));
    command.arg("replay").arg(sampled_trace(&place)).arg("-o").arg(place.path("out"));
    command.args(["--speed", "5", "--hold", "3", "--listen", "127.0.0.1:0"]);
    let mut running = Running::start(command.stdout(Stdio::null()).stderr(Stdio::null()));
    let samples = last_scrape(&mut running, &place.path("out"));
    let regions: BTreeSet<&str> = samples.iter().map(|sample| sample.label("region")).collect();
    assert!(regions.iter().any(|region| region.starts_with("MPI_")), "{regions:?}");
    assert!(!regions.contains("(recorded call)"), "{regions:?}");
}

#[test]
fn ranks_and_rows_of_a_sampled_trace_equal_offline() {
    skip_unless!(ampere_tests::runs::on_path("mpicc"), "no mpicc");
    let place = Place::new();
    let trace = sampled_trace(&place);
    let offline = attribute(&trace, &[]);
    for speed in ["max", "5"] {
        let place = Place::new();
        let mut command = place.command(artifact("ampere"));
        command.arg("replay").arg(&trace).arg("-o").arg(place.path("out")).args(["--speed", speed]);
        succeed(&mut command);
        let played = place.summary("out");
        assert_same_figures(&played, &offline);
        let facts = ["ranks", "nodes", "total_joules", "stack_period_seconds", "energy", "complete"];
        for fact in facts {
            assert_eq!(played["run"][fact], offline["run"][fact], "{fact}");
        }
        assert_eq!(played["run"]["ranks"], 2);
        assert_eq!(played["run"]["command"][1], "replay");
        place.assert_clean();
    }
}

/// All threads of a rank share its joules, and time is attributed like a counter.
#[test]
fn threads_and_time_equal_offline() {
    let settings = "[attribution]\nlocations = \"all\"\ntime = true\n";
    let MadeUp { trace, config, offline, .. } = &MadeUp::new(settings);
    let device = |name: &str| list(offline, "devices").iter().find(|d| d["name"] == name).expect("a device");
    let spent = |name: &str, location: &str| -> f64 {
        let rows = list(&device(name)["views"][0], "callpaths").iter();
        rows.filter(|row| row["location"] == location).map(|row| number(row, "exclusive_joules")).sum()
    };
    for name in ["cpu", "time"] {
        let (main, worker) = (spent(name, "Master thread"), spent(name, "OMP thread 1"));
        // The worker runs half of the time, and then gets half of the joules.
        assert!(worker > 0.15 * main && worker < 0.6 * main, "{name}: {main} and {worker}");
    }
    let time = device("time");
    assert_eq!((&time["unit"], &time["source"]), (&"s".into(), &"clock".into()));
    assert!(relative(number(time, "total_joules"), 90.0) < 1e-6, "{}", time["total_joules"]);
    for (speed, lag) in [("max", "0"), ("200", "3")] {
        let place = Place::new();
        let options = ["--config", config, "--speed", speed, "--gpu-lag", lag];
        succeed(&mut replay(&place, trace, "time_sliced", &options));
        assert_same_figures(&place.summary("out"), offline);
        assert_same_figures(&by_time(&place.path("out/traces.otf2"), &["--config", config]), offline);
        assert_eq!(number(&place.summary("out")["quality"], "late_events"), 0.0);
    }
}

/// A stream that is later than the limit is counted, and attributed at its own time in the end.
#[test]
fn streams_later_than_the_limit_are_attributed_at_the_end() {
    let MadeUp { trace, config, offline, .. } = &MadeUp::new("[attribution]\nstream_lag = \"2s\"\n");
    let run = |environment: &str| {
        let place = Place::new();
        let options = ["--config", config, "--speed", "100", "--gpu-lag", "30"];
        let mut command = replay(&place, trace, "time_sliced", &options);
        succeed(command.env("AMPERE_TRACE", environment));
        (place.summary("out"), place)
    };
    let (settled, _place) = run("on");
    assert!(number(&settled["quality"], "late_events") > 0.0);
    assert!(settled["run"]["notes"].to_string().contains("came late"), "{}", settled["run"]["notes"]);
    assert_same_figures(&settled, offline);
    // Without a trace of its own, the replay still has the one that it has played.
    let (unsettled, _place) = run("off");
    assert!(number(&unsettled["quality"], "late_events") > 0.0);
    assert_same_figures(&unsettled, offline);
}

#[test]
fn many_events_are_neither_late_nor_suppressed() {
    let place = Place::new();
    let shape = synthetic_trace::Shape { calls: 200_000, ..synthetic_trace::Shape::default() };
    let trace = synthetic_trace::write(&place.path("made-up"), &shape);
    let offline = by_time(&trace, &[]);
    for (speed, ring) in [("max", "16384"), ("max", "1048576"), ("1e9", "33554432")] {
        let place = Place::new();
        let mut command = replay(&place, &trace, "time_sliced", &["--speed", speed]);
        succeed(command.env("AMPERE_RING_BYTES", ring));
        let live = place.summary("out");
        for key in ["late_events", "suppressed_calls", "dropped_records"] {
            assert_eq!(number(&live["quality"], key), 0.0, "{key} at {speed}, {ring}");
        }
        assert_same_figures(&live, &offline);
        assert!(number(&live["quality"], "events") > 800_000.0);
    }
}

/// Returns the ring of a host's main thread, once it exists.
fn ring_of_a_host(place: &Place) -> Option<PathBuf> {
    let directories = |path: &Path| std::fs::read_dir(path).into_iter().flatten().flatten().map(|e| e.path());
    let sessions = directories(&place.path("shm")).flat_map(|base| directories(&base).collect::<Vec<_>>());
    let mut files = sessions.flat_map(|session| directories(&session).collect::<Vec<_>>());
    files.find(|file| file.to_string_lossy().ends_with(".0.ring") && !file.ends_with("sampler.0.ring"))
}

/// The collector was stopped: when it continues, more events wait in the rings than it takes in one round.
#[test]
fn events_that_wait_in_a_ring_are_not_late() {
    use rustix::process::Signal;
    let made_up = Place::new();
    let shape = synthetic_trace::Shape { calls: 200_000, ..synthetic_trace::Shape::default() };
    let trace = synthetic_trace::write(&made_up.path("made-up"), &shape);
    // The whole trace is played within a moment. If this process gets no CPU just then, it is played again.
    let play = || {
        let place = Place::new();
        let mut command = replay(&place, &trace, "time_sliced", &["--speed", "1e9"]);
        command.env("AMPERE_RING_BYTES", "33554432").stdout(Stdio::null()).stderr(Stdio::null());
        let mut running = Running::start(&mut command);
        while ring_of_a_host(&place).is_none() && !running.has_ended() {
            std::thread::sleep(Duration::from_micros(200));
        }
        let collector = announced(&place.path("out"))?;
        rustix::process::kill_process(collector.pid, Signal::STOP).ok()?;
        std::thread::sleep(Duration::from_secs(1));
        collector.signal(Signal::CONT);
        assert!(running.wait(Duration::from_secs(60)).expect("it ends").success());
        Some(place)
    };
    let place = (0..20).find_map(|_| play()).expect("a collector that was stopped");
    let live = place.summary("out");
    assert_eq!(number(&live["quality"], "late_events"), 0.0);
    assert_same_figures(&live, &by_time(&trace, &[]));
}

/// GPU streams are reported late and in batches, so a replacement has most to restore for them.
#[test]
fn a_killed_collector_changes_no_figure_of_a_gpu_stream() {
    let MadeUp { trace, config, offline, .. } = &MadeUp::new("");
    for kills in [[600], [2200], [3800]].iter().map(Vec::from).chain([vec![400, 800, 1800]]) {
        let place = Place::new();
        // It is played for 15 s, so that no collector has ended when it is killed.
        let options = ["--config", config, "--speed", "6", "--gpu-lag", "10"];
        let mut command = replay(&place, trace, "time_sliced", &options);
        let output = place.path("words");
        let words = std::fs::File::create(&output).expect("a file");
        let mut running = Running::start(command.stdout(Stdio::null()).stderr(words));
        let collector = || announced(&place.path("out"));
        let limit = Duration::from_secs(60);
        let mut known = wait_for("the collector", limit, collector);
        for milliseconds in &kills {
            std::thread::sleep(Duration::from_millis(*milliseconds));
            known.kill();
            let another = || collector().filter(|another| another.pid != known.pid);
            known = wait_for("another collector", limit, another);
        }
        assert!(running.wait(Duration::from_secs(60)).expect("it ends").success(), "{kills:?}");
        let words = std::fs::read_to_string(&output).expect("its words");
        assert_eq!(words.matches("another one takes over").count(), kills.len(), "{words}");
        let live = place.summary("out");
        assert_same_figures(&live, offline);
        assert_same_figures(&by_time(&place.path("out/traces.otf2"), &["--config", config]), offline);
        // The resets of the counter make the run incomplete even if no collector is killed.
        assert_eq!(live["run"]["complete"], offline["run"]["complete"], "{}", live["run"]);
        place.assert_clean();
    }
}

/// Checks that the command is refused with one line with these words and this status, and leaves nothing behind.
#[track_caller]
fn refused(place: &Place, command: &mut Command, status: i32, words: &[&str]) {
    let output = command.output().expect("ampere runs");
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{said}");
    words.iter().for_each(|word| assert!(said.contains(word), "{word:?} is not in {said}"));
    assert!(status == 2 || said.lines().count() == 1, "{said}");
    assert!(!place.path("out").exists());
}

#[test]
fn wrong_input_is_refused() {
    let place = Place::new();
    let trace = synthetic_trace::write(&place.path("made-up"), &synthetic_trace::Shape::default());
    let absent = place.path("absent.otf2");
    refused(&place, &mut replay(&place, &absent, "time_sliced", &[]), 1, &["absent.otf2", "no such file"]);
    for speed in ["fast", "-1", "nan", "inf", ""] {
        let option = format!("--speed={speed}");
        refused(&place, &mut replay(&place, &trace, "time_sliced", &[&option]), 2, &["--speed", "max"]);
    }
    refused(&place, &mut replay(&place, &trace, "time_sliced", &["--gpu-lag", "soon"]), 2, &["--gpu-lag"]);
    let config = place.path("other.toml");
    std::fs::write(&config, "[[device]]\nname = \"x\"\nmetric = 'nvml.*'\n").expect("room");
    let options = ["--config", config.to_str().expect("a name")];
    refused(&place, &mut replay(&place, &trace, "time_sliced", &options), 1, &["[[device]]", "it has"]);
    let shape = synthetic_trace::Shape { samples: 0, ..synthetic_trace::Shape::default() };
    let without = synthetic_trace::write(&place.path("without"), &shape);
    refused(
        &place,
        &mut replay(&place, &without, "time_sliced", &[]),
        1,
        &["no samples of an energy metric"],
    );
}

#[test]
fn the_rest_of_a_truncated_trace_is_played() {
    let place = Place::new();
    let trace = synthetic_trace::write(&place.path("made-up"), &synthetic_trace::Shape::default());
    let events = trace.with_extension("").join(format!("{}.evt", synthetic_trace::MAIN_OF_RANK_1));
    let file = std::fs::OpenOptions::new().write(true).open(&events).expect("its events");
    let length = file.metadata().expect("a length").len();
    file.set_len(length * 6 / 10).expect("cut");
    let output = succeed(&mut replay(&place, &trace, "time_sliced", &["--speed", "max"]));
    let said = text(&output.stderr);
    let number = synthetic_trace::MAIN_OF_RANK_1.to_string();
    assert!(
        said.contains(&format!("location {number} is replayed only up to the end of its events")),
        "{said}"
    );
    let live = place.summary("out");
    assert_eq!(live["run"]["complete"], false);
    assert!(live["run"]["notes"][0].as_str().is_some_and(|note| note.contains(&number)), "{}", live["run"]);
    assert_same_figures(&live, &by_time(&trace, &[]));

    std::fs::remove_file(&events).expect("it was there");
    let other = Place::new();
    let said = text(&succeed(&mut replay(&other, &trace, "time_sliced", &["--speed", "max"])).stderr);
    assert!(
        said.contains(&format!("location {number} (MPI Rank 1/Master thread) has no event file")),
        "{said}"
    );
    assert_same_figures(&other.summary("out"), &by_time(&trace, &[]));
}

#[test]
fn an_interrupt_leaves_what_was_played() {
    let place = Place::new();
    let trace = synthetic_trace::write(&place.path("made-up"), &synthetic_trace::Shape::default());
    let mut command = replay(&place, &trace, "time_sliced", &["--speed", "10"]);
    let mut running = Running::start(command.stdout(Stdio::null()).stderr(Stdio::null()));
    wait_for("joules", Duration::from_secs(60), || {
        let address = announced(&place.path("out"))?.address();
        let samples = openmetrics::parse(&http::get(address, "/metrics").ok()?.body).ok()?;
        let spent = |s: &openmetrics::Sample| s.name == "ampere_device_energy_joules_total" && s.value > 0.0;
        samples.iter().any(spent).then_some(())
    });
    interrupt(&running);
    let status = running.wait(Duration::from_secs(60)).expect("it ends");
    assert_eq!(status.code(), Some(1));
    let summary = json(&place.path("out/summary.json"));
    assert_eq!(summary["run"]["complete"], false);
    let whole = by_time(&trace, &[]);
    let joules = |summary: &Value| number(&list(summary, "devices")[0], "total_joules");
    assert!(joules(&summary) > 0.0 && joules(&summary) < joules(&whole), "{} J", joules(&summary));
    assert!(place.path("out/traces.otf2").exists());
}
