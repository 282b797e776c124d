//! An MPI run that is scraped during the run by a real Prometheus and by the test itself.

use ampere_tests::collector::announced;
use ampere_tests::openmetrics::{self, Labels, Sample};
use ampere_tests::process::{Mpi, Running, program, wait_for};
use ampere_tests::prometheus::Prometheus;
use ampere_tests::runs::{json, list, number, relative};
use ampere_tests::{artifact, http, jobs};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const RANKS: u32 = 4;
const RUN_SECONDS: u32 = 36;
/// The relative error of a device's energy that rounding in a few hundred additions may cause.
const TOLERANCE: f64 = 1e-9;
/// The limit on series is lower than the number of functions times ranks, so that some go to "other".
const SERIES_MAX: usize = 40;
/// This long after its start, Prometheus has data for the rates over five seconds, and the run still takes a while.
const QUERIES_AFTER: Duration = Duration::from_secs(8);

/// Metrics that are promised, with their labels; `node` is promised for all of them.
const PROMISED: [(&str, &[&str]); 22] = [
    ("ampere_device_energy_joules_total", &["device"]),
    ("ampere_device_power_watts", &["device"]),
    ("ampere_region_energy_joules_total", &["rank", "device", "region"]),
    ("ampere_kernel_energy_joules_total", &["device", "kernel"]),
    ("ampere_idle_energy_joules_total", &["device", "view"]),
    ("ampere_lost_energy_joules_total", &["device"]),
    ("ampere_region_calls_total", &["rank", "region"]),
    ("ampere_region_time_seconds_total", &["rank", "region"]),
    ("ampere_events_total", &["rank"]),
    ("ampere_coalesced_calls_total", &["rank"]),
    ("ampere_suppressed_calls_total", &["rank"]),
    ("ampere_late_events_total", &["rank"]),
    ("ampere_ring_fill_ratio", &["rank"]),
    ("ampere_lag_seconds", &[]),
    ("ampere_conservation_error_joules", &["device"]),
    ("ampere_build_info", &["version"]),
    ("ampere_run_info", &["run", "scheduler", "job_id", "command", "user", "start"]),
    ("ampere_device_reported_power_watts", &["device", "kind"]),
    ("ampere_device_temperature_celsius", &["device", "sensor"]),
    ("ampere_device_busy_ratio", &["device"]),
    ("ampere_device_memory_used_bytes", &["device"]),
    ("ampere_device_memory_size_bytes", &["device"]),
];
/// This metric exists only if GPU streams are traced.
const KERNELS: &str = "ampere_kernel_energy_joules_total";

#[test]
fn prometheus_and_the_dashboard_follow_a_run() {
    let (Some(mpi), Some(server)) = (Mpi::find(), program("prometheus")) else {
        println!("skipped: no mpirun with mpicc, or no prometheus");
        return;
    };
    let directory = tempfile::tempdir().expect("a directory");
    let directory = directory.path();
    let mut run = start_run(&mpi, directory);
    let collector = wait_for("a collector", Duration::from_secs(60), || announced(&directory.join("out")));
    let (target, node) = (collector.address(), collector.node);
    let start = seconds_now();
    let prometheus = Prometheus::start(&server, target, directory);
    let begun = Instant::now();

    let mut scrapes: Vec<Vec<Sample>> = Vec::new();
    let mut queried = false;
    while let Some(body) = scrape(target, &mut run) {
        let samples = openmetrics::parse(&body).unwrap_or_else(|why| panic!("{why}"));
        energy_is_conserved(&samples);
        if let Some(before) = scrapes.last() {
            counters_only_rise(before, &samples);
        }
        if !queried && begun.elapsed() > QUERIES_AFTER && has_calls(&samples) {
            queried = true;
            promtool_accepts(&body);
            what_is_promised_is_there(&samples, &node);
            prometheus_has_scraped(&prometheus);
            // This run has neither several nodes nor GPU kernels, so these two are missing.
            let (expressions, rules) = prometheus.all_have_data(&["ampere_job_", KERNELS]);
            assert!(expressions > 60 && rules == 25, "{expressions} {rules}");
            it_is_named_to_prometheus(&prometheus, directory, target);
        }
        scrapes.push(samples);
        std::thread::sleep(Duration::from_secs(1));
    }
    assert!(queried && scrapes.len() > 8, "the run ended after {} scrapes", scrapes.len());
    let status = run.wait(Duration::from_secs(60));
    assert!(status.is_some_and(|status| status.success()), "the run: {status:?}");
    devices_have_spent(&scrapes);
    final_figures_are_stored(&prometheus, &directory.join("out"));
    let left = std::fs::read_dir(directory.join("targets")).expect("a directory").count();
    assert_eq!(left, 0, "Prometheus still lists the run after its end");
    stored_energy_is_conserved(&prometheus, start, seconds_now());
}

fn start_run(mpi: &Mpi, directory: &Path) -> Running {
    let stencil = mpi.stencil(directory);
    let config = directory.join("ampere.toml");
    std::fs::write(&config, format!("[metrics]\nmost_series = {SERIES_MAX}\n"))
        .expect("settings can be written");
    let log = std::fs::File::create(directory.join("run.log")).expect("a log can be written");
    Running::start(
        Command::new(artifact("ampere"))
            .env("AMPERE_SAMPLE", "off") // otherwise the launcher's functions would replace those of the program
            .args(["run", "--listen", "127.0.0.1:0", "-o"])
            .arg(directory.join("out"))
            .arg("--config")
            .arg(config)
            .arg("--")
            .args(mpi.launch(RANKS))
            .arg(stencil)
            .arg(RUN_SECONDS.to_string())
            .envs(Mpi::ENVIRONMENT)
            .env("AMPERE_SHM", directory)
            .env("AMPERE_TARGETS", directory.join("targets"))
            .env("TMPDIR", directory)
            .env("OMPI_MCA_btl_vader_backing_directory", directory)
            // In addition to the node there is a GPU that has gauges, too.
            .env("LSB_JOBID", "17")
            .env("AMPERE_COUNTERS", "rocm_smi,estimate")
            .env("AMPERE_ROCM_SMI_LIBRARY", artifact("libstand_in_rocm_smi64.so"))
            .env("STAND_IN_ROCM_SMI", "watts=300")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log),
    )
}

fn seconds_now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs_f64()
}

/// Scrapes a collector. Returns `None` once the collector has ended, which it may do only when the run has ended.
fn scrape(target: SocketAddr, run: &mut Running) -> Option<String> {
    match http::get(target, "/metrics") {
        Ok(reply) => {
            assert_eq!(reply.status, 200, "{}", reply.body);
            assert_eq!(reply.content_type, "application/openmetrics-text; version=1.0.0; charset=utf-8");
            Some(reply.body)
        }
        Err(error) => {
            let over = run.wait(Duration::from_secs(60)).is_some();
            assert!(over, "no scrape while the run is running: {error}");
            None
        }
    }
}

fn of<'a>(samples: &'a [Sample], name: &'a str) -> impl Iterator<Item = &'a Sample> {
    samples.iter().filter(move |sample| sample.name == name)
}

/// Checks that functions, idle and lost joules add up to a device's energy in every scrape.
fn energy_is_conserved(samples: &[Sample]) {
    for device in of(samples, "ampere_device_energy_joules_total") {
        let name = device.label("device");
        let sum = |metric: &str| {
            let ours = of(samples, metric).filter(|s| s.label("device") == name);
            ours.filter(|s| s.label("view") != "kernels").map(|s| s.value).sum::<f64>()
        };
        let accounted = sum("ampere_region_energy_joules_total")
            + sum("ampere_idle_energy_joules_total")
            + sum("ampere_lost_energy_joules_total");
        let error = (device.value - accounted).abs();
        let enough = error <= TOLERANCE * device.value;
        assert!(enough, "{name}: {} J, but {accounted} J accounted for", device.value);
    }
}

fn counters_only_rise(before: &[Sample], after: &[Sample]) {
    let key = |sample: &Sample| (sample.name.clone(), sample.labels.clone());
    let after: HashMap<(String, Labels), f64> = after.iter().map(|s| (key(s), s.value)).collect();
    for sample in before.iter().filter(|sample| sample.name.ends_with("_total")) {
        // Before MPI_Init a process has no rank: its series ends when it gets one.
        if sample.label("rank").starts_with("Process") {
            continue;
        }
        let now = after.get(&key(sample));
        assert!(now.is_some_and(|now| *now >= sample.value), "{sample:?} became {now:?}");
    }
}

fn devices_have_spent(scrapes: &[Vec<Sample>]) {
    let mut readings: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for sample in scrapes.iter().flat_map(|samples| of(samples, "ampere_device_energy_joules_total")) {
        readings.entry(sample.label("device").to_owned()).or_default().push(sample.value);
    }
    // A device need not be active in every second, but the one that the ranks use is. A busy collector may repeat figures.
    let rises = |values: &Vec<f64>| values.windows(2).filter(|pair| pair[1] > pair[0]).count();
    let most = readings.values().map(rises).max().unwrap_or(0);
    assert!(4 * most >= scrapes.len(), "energy rose {most} times in {} scrapes: {readings:?}", scrapes.len());
}

/// Checks that the last scrape has the summary's energy, so that what was spent after the scrape before is not missing.
fn final_figures_are_stored(prometheus: &Prometheus, output: &Path) {
    let summary = json(&output.join("summary.json"));
    for device in list(&summary, "devices") {
        let (name, joules) = (device["name"].as_str().expect("a name"), number(device, "total_joules"));
        let expression =
            format!("last_over_time(ampere_device_energy_joules_total{{device=\"{name}\"}}[1m])");
        let found = prometheus.query(&expression).unwrap_or_else(|why| panic!("{why}"));
        let stored = found.first().map(|series| series.points[0].1);
        println!("{name}: {joules} J in the summary, {stored:?} J stored");
        assert!(
            stored.is_some_and(|stored| relative(stored, joules) < 1e-12),
            "{name}: {joules} J, {stored:?} J stored"
        );
    }
}

/// Starts a run of a program that waits for a file, with a counter of constant power.
fn start_waiting(place: &jobs::Place, output: &str, with_ampere_run: bool, listen: &str) -> jobs::Running {
    let source = r#"
        #include <stdio.h>
        #include <unistd.h>
        __attribute__((noinline)) void step(void) { usleep(500); }
        int main(void) { while (access("go", F_OK)) step(); puts("hello"); return 7; }
    "#;
    let program = place.compile("cc", "waits", source, &["-finstrument-functions"]);
    let mut command = match with_ampere_run {
        true => place.ampere_run(output, [&program]),
        false => place.bare(output, &program),
    };
    command
        .env("AMPERE_COUNTERS", "rocm_smi")
        .env("AMPERE_ROCM_SMI_LIBRARY", artifact("libstand_in_rocm_smi64.so"));
    jobs::start(command.env("STAND_IN_ROCM_SMI", "watts=300").env("AMPERE_LISTEN", listen))
}

fn joules_in_snapshot(body: &str) -> f64 {
    let snapshot: serde_json::Value = serde_json::from_str(body).expect("JSON");
    let devices = snapshot["devices"].as_array().into_iter().flatten();
    devices.filter_map(|device| device["joules"].as_f64()).sum()
}

fn scraped_joules(target: SocketAddr) -> f64 {
    let body = http::get(target, "/metrics").expect("an answer").body;
    let samples = openmetrics::parse(&body).unwrap_or_else(|why| panic!("{why}"));
    of(&samples, "ampere_device_energy_joules_total").map(|sample| sample.value).sum()
}

/// Scrapes twice, with this time in between.
fn scraped_twice(place: &jobs::Place, output: &str, apart: Duration) -> SocketAddr {
    let mut found = None;
    jobs::until("it has joules", || {
        found = announced(&place.path(output)).map(|collector| collector.address());
        found.is_some_and(|target| {
            http::get(target, "/snapshot.json").is_ok_and(|it| joules_in_snapshot(&it.body) > 0.0)
        })
    });
    let target = found.expect("an address");
    scraped_joules(target);
    std::thread::sleep(apart);
    assert!(scraped_joules(target) > 0.0);
    target
}

#[test]
fn the_endpoint_serves_until_the_final_figures_are_scraped_and_delays_nothing() {
    for with_ampere_run in [true, false] {
        let place = jobs::Place::new();
        let running = start_waiting(&place, "out", with_ampere_run, "127.0.0.1:0");
        let target = scraped_twice(&place, "out", Duration::from_secs(5));
        place.write("go", "");
        let done = running.wait();
        assert_eq!((done.code, done.stdout.as_str()), (7, "hello\n"), "{done:#?}");
        // The program and `ampere run` have ended, and everything is written.
        let left = jobs::files_below(&place.path("shm"));
        assert!(left.is_empty(), "{left:?}");
        let joules: f64 =
            list(&place.summary("out"), "devices").iter().map(|device| number(device, "total_joules")).sum();
        assert_eq!(place.collectors().len(), 1, "it still serves");
        let scraped = scraped_joules(target);
        assert!(relative(scraped, joules) < 1e-12, "{scraped} J scraped, {joules} J in the summary");
        place.no_process_left();
    }
}

#[test]
fn the_endpoint_closes_when_it_is_not_scraped_or_another_run_wants_its_port() {
    let place = jobs::Place::new();
    let running = start_waiting(&place, "out", true, "127.0.0.1:0");
    scraped_twice(&place, "out", Duration::from_secs(1));
    place.write("go", "");
    assert_eq!(running.wait().code, 7);
    place.no_process_left();

    let address = http::free_address();
    let begin = |output: &str| {
        std::fs::remove_file(place.path("go")).expect("it exists");
        start_waiting(&place, output, true, &address.to_string())
    };
    let running = begin("one");
    scraped_twice(&place, "one", Duration::from_secs(8));
    place.write("go", "");
    assert_eq!(running.wait().code, 7);
    assert_eq!(place.collectors().len(), 1, "it still serves");
    let running = begin("two");
    jobs::until("another one serves", || announced(&place.path("two")).is_some());
    let at = announced(&place.path("two")).expect("it serves").address();
    assert_eq!(at, address, "on the port that is wanted");
    place.write("go", "");
    assert_eq!(running.wait().code, 7);
    place.assert_clean();
    assert!(!place.summary("two")["run"]["notes"].to_string().contains("in use"));
}

/// promtool parses the older text format, in which the help of an OpenMetrics counter has another name. It may complain about
/// that, and suggest other names, but nothing else.
fn promtool_accepts(body: &str) {
    let Some(promtool) = program("promtool") else {
        println!("skipped: no promtool");
        return;
    };
    let mut command = Command::new(promtool);
    command.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("promtool starts");
    child.stdin.take().expect("a pipe").write_all(body.as_bytes()).expect("promtool reads");
    let output = child.wait_with_output().expect("promtool ends");
    let said =
        String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
    let stylistic = |line: &str| {
        line.ends_with("_total no help text")
            || line.ends_with("metric name should not include type 'counter'")
    };
    assert!(said.lines().all(stylistic), "promtool: {said}");
}

fn what_is_promised_is_there(samples: &[Sample], node: &str) {
    for sample in samples {
        assert_eq!(sample.label("node"), node, "{sample:?}");
    }
    for (name, labels) in PROMISED {
        assert!(name == KERNELS || of(samples, name).next().is_some(), "no {name}");
        for sample in of(samples, name) {
            let missing = labels.iter().find(|label| sample.label(label).is_empty());
            assert!(missing.is_none(), "{sample:?} has no {missing:?}");
        }
    }
    let energy: Vec<&Sample> = of(samples, "ampere_region_energy_joules_total").collect();
    let ranks: BTreeSet<&str> = energy.iter().map(|sample| sample.label("rank")).collect();
    assert!((0..RANKS).all(|rank| ranks.contains(rank.to_string().as_str())), "{ranks:?}");
    let other = energy.iter().filter(|sample| sample.label("region") == "other").count();
    assert!(
        other > 0 && energy.len() - other <= SERIES_MAX,
        "{} series, of them {other} other",
        energy.len()
    );
}

fn has_calls(samples: &[Sample]) -> bool {
    of(samples, "ampere_region_calls_total").any(|s| s.label("region") == "relax_block" && s.value > 0.0)
}

fn prometheus_has_scraped(prometheus: &Prometheus) {
    let value = |expression: &str| {
        let found = prometheus.query(expression).unwrap_or_else(|why| panic!("{expression}: {why}"));
        assert_eq!(found.len(), 1, "{expression}: {found:?}");
        found[0].points[0].1
    };
    // On a busy machine, a scrape may take longer than Prometheus waits, and the next ones succeed.
    for expression in ["up{job=\"ampere\"}", "min_over_time(up{job=\"ampere\"}[5s])"] {
        wait_for(expression, Duration::from_secs(60), || {
            let found = prometheus.query(expression).unwrap_or_else(|why| panic!("{expression}: {why}"));
            found.first().is_some_and(|series| series.points[0].1 == 1.0).then_some(())
        });
    }
    wait_for("samples", Duration::from_secs(60), || {
        (value("scrape_samples_scraped{job=\"ampere\"}") > 0.0).then_some(())
    });
    for (name, _) in PROMISED.iter().filter(|(name, _)| name.ends_with("_total") && *name != KERNELS) {
        assert_eq!(value(&format!("max(resets({name}[10s]))")), 0.0, "{name} went back");
    }
    let energy = "ampere_device_energy_joules";
    let known = prometheus.api(&format!("metadata?metric={energy}")).unwrap_or_else(|why| panic!("{why}"));
    assert_eq!(known[energy][0]["type"], "counter", "{known}");
    assert_eq!(known[energy][0]["unit"], "joules", "{known}");
}

/// Prometheus finds the run by the file that the run writes and by the configured address: that must be one target.
fn it_is_named_to_prometheus(prometheus: &Prometheus, directory: &Path, target: SocketAddr) {
    let files: Vec<_> = std::fs::read_dir(directory.join("targets")).expect("targets").flatten().collect();
    assert_eq!(files.len(), 1);
    let named = json(&files[0].path());
    assert_eq!(named[0]["targets"], serde_json::json!([target.to_string()]));
    let targets = prometheus.api("targets").unwrap_or_else(|why| panic!("{why}"));
    assert_eq!(list(&targets, "activeTargets").len(), 1, "{targets}");
}

/// Checks that functions, idle and lost joules add up to a device's energy in all data that Prometheus has stored.
fn stored_energy_is_conserved(prometheus: &Prometheus, start: f64, end: f64) {
    let sum = |selector: &str| format!("sum by (node, device) ({selector})");
    let device = sum("ampere_device_energy_joules_total");
    let accounted = [
        "ampere_region_energy_joules_total",
        "ampere_idle_energy_joules_total{view=\"ranks\"}",
        "ampere_lost_energy_joules_total",
    ]
    .map(sum)
    .join(" + ");
    let expression = format!("abs({device} - ({accounted})) / {device}");
    let errors = prometheus.query_range(&expression, start, end).unwrap_or_else(|why| panic!("{why}"));
    assert!(!errors.is_empty(), "nothing is stored for {expression}");
    for series in errors {
        // The error is 0/0 as long as a device has spent nothing.
        let known: Vec<_> = series.points.iter().filter(|(_, error)| !error.is_nan()).collect();
        assert!(known.len() > 20, "{}: only {} points", series.labels, known.len());
        let worst = known.iter().map(|(_, error)| *error).fold(0.0, f64::max);
        println!("{}: energy is conserved to {worst:.1e} at {} points", series.labels, known.len());
        assert!(worst <= TOLERANCE, "{}: {worst} at {:?}", series.labels, series.points);
    }
}
