//! Formats of viewers, read by the viewers' own parsers: the Firefox Profiler's command line from npm, and the descriptors of
//! Perfetto and of OpenTelemetry from PyPI.

use ampere_tests::browser::modules;
use ampere_tests::jobs::{Done, Place, run, until};
use ampere_tests::runs::{number, on_path, relative};
use ampere_tests::skip_unless;
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex};

const PICOWATT_HOURS: f64 = 1e12 / 3600.0;

fn report(place: &Place, arguments: &[&str]) -> Done {
    let mut command = place.ampere(["report"]);
    let done = run(command.args(arguments).current_dir(place.path("")));
    assert_eq!(done.code, 0, "{done:#?}");
    done
}

/// Makes an environment with a package of PyPI, and returns its Python; `None` if that is not possible.
fn python_with_new(place: &Place, package: &str) -> Option<PathBuf> {
    let is_done = |command: &mut Command| command.output().is_ok_and(|done| done.status.success());
    let python = place.path("venv/bin/python");
    let made = is_done(Command::new("python3").args(["-m", "venv"]).arg(place.path("venv")));
    let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", package];
    (made && is_done(Command::new(&python).args(pip))).then_some(python)
}

/// Runs a script that prints JSON.
fn printed(place: &Place, python: &PathBuf, script: &str, arguments: &[&str]) -> Value {
    let done = run(place.command(python).args(["-c", script]).args(arguments).current_dir(place.path("")));
    assert_eq!(done.code, 0, "{done:#?}");
    serde_json::from_str(&done.stdout).expect("JSON")
}

/// The Firefox Profiler with one profile, in a separate process that ends when this value is dropped.
struct FirefoxProfiler<'a> {
    place: &'a Place,
    program: PathBuf,
}

impl<'a> FirefoxProfiler<'a> {
    fn program() -> Option<PathBuf> {
        let of = |directory: &str| {
            PathBuf::from(directory).join("@firefox-devtools/profiler-cli/dist/profiler-cli.js")
        };
        modules().split(':').map(of).find(|path| on_path("node") && path.exists())
    }

    fn open(place: &'a Place, program: PathBuf, profile: &str) -> FirefoxProfiler<'a> {
        let profiler = FirefoxProfiler { place, program };
        // On a busy machine, `load` gives up before the profiler's process is ready.
        profiler.run(&["load", profile]);
        until("the profile is loaded", || profiler.run(&["profile", "info"]).code == 0);
        profiler
    }

    fn run(&self, arguments: &[&str]) -> Done {
        let mut node = self.place.command("node");
        node.arg(&self.program).args(arguments).env("HOME", self.place.path(""));
        run(node.current_dir(self.place.path("")))
    }

    fn answer(&self, arguments: &[&str]) -> Value {
        let done = self.run(&[arguments, &["--json"]].concat());
        assert_eq!(done.code, 0, "{done:#?}");
        serde_json::from_str(&done.stdout).expect("JSON")
    }

    /// Returns the name of each thread's process with the thread's call tree.
    fn trees(&self) -> Vec<(String, Value)> {
        let threads = self.answer(&["thread", "list"]);
        let threads = threads["threads"].as_array().expect("threads").iter().map(|thread| {
            let handle = thread["threadHandle"].as_str().expect("a handle");
            let tree = self.answer(&["thread", "samples-top-down", "--include-idle", "--thread", handle]);
            (thread["processName"].as_str().expect("a name").to_owned(), tree["regularCallTree"].clone())
        });
        threads.collect()
    }
}

impl Drop for FirefoxProfiler<'_> {
    fn drop(&mut self) {
        self.run(&["stop", "--all"]);
    }
}

/// Adds values, and converts the sum to joules.
fn summed(values: impl Iterator<Item = f64>, in_joule: f64) -> f64 {
    values.sum::<f64>() / in_joule
}

#[test]
fn the_firefox_profiler_has_the_joules_of_threads_and_devices() {
    let program = FirefoxProfiler::program();
    skip_unless!(program.is_some(), "no @firefox-devtools/profiler-cli");
    let program = program.expect("checked");
    let place = Place::new();
    place.gpu_run("gpu");
    let total = number(&place.summary("gpu")["run"], "total_joules");
    report(&place, &["gpu", "-f", "firefox", "--view", "ranks", "-o", "ranks.json.gz"]);
    {
        let profiler = FirefoxProfiler::open(&place, program.clone(), "ranks.json.gz");
        let trees = profiler.trees();
        let samples = summed(trees.iter().map(|(_, tree)| number(tree, "totalSamples")), 1e6);
        assert!(relative(samples, total) < 1e-5, "{samples} {total}: {trees:#?}");
        let of_rank = |(process, tree): &&(String, Value)| {
            process.starts_with("MPI Rank 0") && tree["children"][0]["name"] == "main"
        };
        assert_eq!(trees.iter().filter(of_rank).count(), 1, "{trees:#?}");
        let counters = profiler.answer(&["counter", "list"]);
        let counters = counters["counters"].as_array().expect("counters");
        assert!(counters.iter().all(|of| of["category"] == "power" && of["unit"] == "pWh"), "{counters:#?}");
        let powers = summed(counters.iter().map(|of| number(&of["stats"][0], "value")), PICOWATT_HOURS);
        assert!(relative(powers, total) < 1e-5, "{powers} {total}: {counters:#?}");
    }
    // Kernels have threads of their own.
    report(&place, &["gpu", "-f", "firefox", "-o", "all.json"]);
    let profiler = FirefoxProfiler::open(&place, program, "all.json");
    let trees = profiler.trees();
    let of_kernel = |(process, tree): &(String, Value)| {
        process.starts_with("Context of HIP[0:0]") && tree["children"][0]["name"] == "kernel"
    };
    assert!(trees.iter().any(of_kernel), "{trees:#?}");
}

/// Reads a trace as Perfetto does, and prints its frames, and the joules of its powers.
const PERFETTO: &str = r#"
import json, sys
from google.protobuf.unknown_fields import UnknownFieldSet
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as perfetto

def check(message):
    assert len(UnknownFieldSet(message)) == 0, message
    for field, value in message.ListFields():
        if field.message_type:
            for part in [value] if hasattr(value, "ListFields") else value:
                check(part)

trace = perfetto.Trace()
trace.ParseFromString(open(sys.argv[1], "rb").read())
names, tracks, frames, open_frames, joules, last = {}, {}, {}, {}, {}, {}
for number, packet in enumerate(trace.packet):
    check(packet)
    assert packet.trusted_packet_sequence_id == 1 and packet.sequence_flags == (2 if number else 1)
    names.update({name.iid: name.name for name in packet.interned_data.event_names})
    if packet.HasField("track_descriptor"):
        track = packet.track_descriptor
        assert track.uuid not in tracks and (track.parent_uuid == 0 or track.parent_uuid in tracks), track
        tracks[track.uuid] = track
    if packet.HasField("track_event"):
        event = packet.track_event
        track = tracks[event.track_uuid]
        stack = open_frames.setdefault(event.track_uuid, [])
        if event.type == event.TYPE_SLICE_BEGIN:
            stack.append(names[event.name_iid])
            frames[stack[-1]] = frames.get(stack[-1], 0) + 1
        elif event.type == event.TYPE_SLICE_END:
            stack.pop()
        else:
            assert event.type == event.TYPE_COUNTER and track.counter.unit_name == "W"
            time, watts = last.get(event.track_uuid, (packet.timestamp, 0))
            joules[track.name] = joules.get(track.name, 0) + watts * (packet.timestamp - time) / 1e9
            last[event.track_uuid] = (packet.timestamp, event.double_counter_value)
assert not any(open_frames.values())
processes = [track.process.process_name for track in tracks.values() if track.HasField("process")]
print(json.dumps({"frames": frames, "joules": joules, "processes": processes}))
"#;

#[test]
fn perfettos_descriptors_read_frames_and_powers() {
    let place = Place::new();
    let python = python_with_new(&place, "perfetto");
    skip_unless!(python.is_some(), "perfetto is not available from PyPI");
    let python = python.expect("checked");
    place.gpu_run("gpu");
    report(&place, &["gpu", "-f", "perfetto", "-o", "gpu.pftrace"]);
    let read = printed(&place, &python, PERFETTO, &["gpu.pftrace"]);
    // The frames are those of Chrome's format.
    let chrome: Value = serde_json::from_str(&report(&place, &["gpu", "-f", "chrome"]).stdout).expect("JSON");
    let mut frames = serde_json::Map::new();
    for event in chrome["traceEvents"].as_array().expect("events").iter().filter(|of| of["ph"] == "B") {
        let count = frames.entry(event["name"].as_str().expect("a name")).or_insert(0.into());
        *count = (count.as_u64().expect("a count") + 1).into();
    }
    assert_eq!(read["frames"], Value::Object(frames), "{read}");
    for device in place.summary("gpu")["devices"].as_array().expect("devices") {
        let name = device["name"].as_str().expect("a name");
        let powers = read["joules"].as_object().expect("powers").iter();
        let of = |power: &&String| power.starts_with(&format!("{name} [W")) && !power.ends_with("dynamic");
        let power = powers.filter(|(power, _)| of(power)).filter_map(|(_, joules)| joules.as_f64());
        let (shown, joules) = (power.sum::<f64>(), number(device, "total_joules"));
        assert!(relative(shown, joules) < 1e-6, "{name}: {joules}: {read}");
    }
    let processes = read["processes"].to_string();
    assert!(processes.contains("power on node0") && processes.contains("MPI Rank 1"), "{read}");
}

/// Reads requests as an OpenTelemetry collector does, and prints the joules of the last one by metric.
const OTLP: &str = r#"
import json, sys
from google.protobuf import json_format
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

text = open(sys.argv[1]).read()
request = json_format.Parse(text, ExportMetricsServiceRequest())
[of_resource] = request.resource_metrics
resource = {each.key: each.value.string_value for each in of_resource.resource.attributes}
joules, attributes = {}, {}
for metric in of_resource.scope_metrics[0].metrics:
    assert metric.unit == "J" and metric.sum.is_monotonic and metric.sum.aggregation_temporality == 2
    for point in metric.sum.data_points:
        assert 0 < point.start_time_unix_nano < point.time_unix_nano
        joules[metric.name] = joules.get(metric.name, 0) + point.as_double
        attributes.setdefault(metric.name, []).append({each.key: each.value.string_value for each in point.attributes})
print(json.dumps({"joules": joules, "attributes": attributes, "resource": resource}))
"#;

/// The first line and the body of each request.
type Requests = Arc<Mutex<Vec<(String, String)>>>;

/// Answers requests, and keeps them.
fn answer_requests() -> (u16, Requests) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let kept = Arc::new(Mutex::new(Vec::new()));
    let requests = kept.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            requests.lock().expect("no panic").extend(request(stream));
        }
    });
    (port, kept)
}

fn request(mut stream: TcpStream) -> Option<(String, String)> {
    let (mut text, mut chunk) = (Vec::new(), [0; 4096]);
    loop {
        let count = stream.read(&mut chunk).ok().filter(|count| *count > 0)?;
        text.extend_from_slice(&chunk[..count]);
        let whole = String::from_utf8_lossy(&text);
        let Some((head, body)) = whole.split_once("\r\n\r\n") else { continue };
        let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "))?;
        if body.len() >= length.parse().ok()? {
            let kept = (head.lines().next()?.to_owned(), body.to_owned());
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}").ok()?;
            return Some(kept);
        }
    }
}

#[test]
fn an_opentelemetry_collector_gets_the_energy_if_the_user_asks_for_it() {
    let place = Place::new();
    let python = python_with_new(&place, "opentelemetry-proto");
    skip_unless!(python.is_some(), "opentelemetry-proto is not available from PyPI");
    let python = python.expect("checked");
    let program = place.instrumented();
    let (port, requests) = answer_requests();
    let url = format!("http://127.0.0.1:{port}");
    // Nothing is sent before the first figures of a run are known.
    let script = format!("sleep 2; exec {}", program.display());
    let measured = |output: &str, variables: &[(&str, &str)]| {
        let mut command = place.ampere_run(output, ["sh", "-c", &script]);
        let done = run(command.env("AMPERE_COUNTERS", "estimate").envs(variables.iter().copied()));
        assert_eq!(done.code, 7, "{done:#?}");
    };
    // The variables are the application's: alone they have no effect.
    measured("quiet", &[("OTEL_EXPORTER_OTLP_ENDPOINT", &url)]);
    measured("out", &[("OTEL_EXPORTER_OTLP_ENDPOINT", &url), ("AMPERE_OTLP", "on")]);
    let summary = place.summary("out");
    let total = number(&summary["run"], "total_joules");
    let is_last = |(_, body): &(String, String)| {
        let body: Value = serde_json::from_str(body).expect("JSON");
        let metric = &body["resourceMetrics"][0]["scopeMetrics"][0]["metrics"][0];
        let joules = metric["sum"]["dataPoints"][0]["asDouble"].as_f64();
        metric["name"] == "hw.host.energy" && joules.is_some_and(|joules| relative(joules, total) < 1e-6)
    };
    until("the last figures are sent", || requests.lock().expect("no panic").last().is_some_and(is_last));
    let sent = requests.lock().expect("no panic").clone();
    let id = summary["run"]["id"].as_str().expect("an id").to_owned();
    assert!(sent.iter().all(|(_, body)| body.contains(&id)), "{sent:?}");
    let (line, body) = sent.last().expect("checked");
    assert_eq!(line, "POST /v1/metrics HTTP/1.1");
    place.write("request.json", body);
    let read = printed(&place, &python, OTLP, &["request.json"]);
    // The estimate is of the whole node.
    assert!(relative(number(&read["joules"], "hw.host.energy"), total) < 1e-6, "{total}: {read}");
    assert_eq!(read["attributes"]["hw.host.energy"][0]["ampere.quality"], "estimated");
    assert_eq!(read["resource"]["service.instance.id"], summary["run"]["id"]);
    let regions = number(&read["joules"], "ampere.region.energy");
    let attributed = number(&summary["devices"][0]["views"][0], "attributed_joules");
    assert!(relative(regions, attributed) < 1e-6, "{regions} {attributed}: {read}");
    // Where nobody listens, or the setting is wrong, the run is the same.
    measured("down", &[("AMPERE_OTLP", "http://127.0.0.1:1")]);
    let down = place.summary("down");
    assert_eq!(down["run"]["complete"], true);
    let refused = down["run"]["notes"].to_string();
    assert_eq!(
        refused.matches("energy could not always be sent to http://127.0.0.1:1/v1").count(),
        1,
        "{refused}"
    );
    measured("wrong", &[("AMPERE_OTLP", "https://127.0.0.1")]);
    let notes = place.summary("wrong")["run"]["notes"].to_string();
    assert!(notes.contains("no energy is sent to") && notes.contains("http://localhost:4318"), "{notes}");
}
