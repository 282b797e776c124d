//! Sends the energy of devices, ranks and regions to an OpenTelemetry collector, if the setting `AMPERE_OTLP` asks for it: OTLP
//! in JSON over HTTP. A thread of its own sends it and does not delay the run: the collector waits for the thread only after the
//! results are written, for up to 5 s.

use crate::http::Wanted;
use ampere_collector::serving::latest::Latest;
use ampere_figures::snapshot::{DeviceFigures, Snapshot};
use ampere_model::text::printable;
use crossbeam_channel::Sender;
use serde_json::{Value, json};
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const PERIOD: Duration = Duration::from_secs(10);
/// The interval at which the thread checks whether the run has ended.
const POLL_PERIOD: Duration = Duration::from_millis(100);
/// The time limit for each step of sending.
const LIMIT: Duration = Duration::from_secs(2);
/// The longest time for which the collector waits for the last figures to be sent. The user's command has already ended
/// by then.
const LAST_LIMIT: Duration = Duration::from_secs(5);
/// Only the first line of an answer is read.
const ANSWER_BYTES: u64 = 64;
/// OpenTelemetry's variables for the endpoint, and whether [`PATH`] is appended to their values if they do not end with it.
const VARIABLES: [(&str, bool); 2] =
    [("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", false), ("OTEL_EXPORTER_OTLP_ENDPOINT", true)];
const DEFAULT: &str = "http://localhost:4318";
const PATH: &str = "/v1/metrics";
/// OTLP's AGGREGATION_TEMPORALITY_CUMULATIVE: sums since the start.
const CUMULATIVE: u32 = 2;

/// Where figures are sent.
#[derive(Clone, Debug, PartialEq)]
pub struct Endpoint {
    /// Host and port.
    host: String,
    path: String,
}

/// The reason why nothing can be sent, as a message of one line.
#[derive(Debug, thiserror::Error)]
pub enum WrongEndpoint {
    #[error(
        "no energy is sent to {0:?}: use a URL that begins with http://, such as {DEFAULT}, or AMPERE_OTLP=on"
    )]
    NoHttp(String),
    /// The password must not be in the results.
    #[error("no energy is sent: the URL has a user or a password in it (@), and neither can be sent")]
    HasPassword,
}

/// The thread that sends a run's figures.
#[derive(Debug)]
pub struct Sending(Receiver<()>);

impl Sending {
    /// Waits until the last figures of the run are sent or cannot be sent, for up to `LAST_LIMIT`.
    pub fn wait(self) {
        let _ = self.0.recv_timeout(LAST_LIMIT);
    }
}

impl Endpoint {
    /// Reads the setting. `variable` returns the value of a variable.
    ///
    /// # Errors
    /// The setting, or OpenTelemetry's variable that it refers to, is not a URL of plain HTTP, or has a password in it.
    pub fn of_setting(
        setting: &str,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Endpoint, WrongEndpoint> {
        let of_variable = || VARIABLES.iter().find_map(|(name, is_base)| Some((variable(name)?, *is_base)));
        let (url, is_base) = match setting {
            "on" => of_variable().unwrap_or((DEFAULT.to_owned(), true)),
            url => (url.to_owned(), true),
        };
        if url.contains('@') {
            return Err(WrongEndpoint::HasPassword);
        }
        let rest = url.strip_prefix("http://").filter(|rest| !rest.is_empty() && !rest.starts_with('/'));
        let rest = rest.ok_or_else(|| WrongEndpoint::NoHttp(url.clone()))?;
        let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
        let path = format!("/{path}");
        let path = match is_base && !path.ends_with(PATH) {
            true => format!("{}{PATH}", path.trim_end_matches('/')),
            false => path,
        };
        let has_port = host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        let host = if has_port { host.to_owned() } else { format!("{host}:80") };
        Ok(Endpoint { host, path })
    }

    /// Sends a request. A status other than 2xx is an error.
    fn post(&self, body: &[u8]) -> io::Result<()> {
        let refused = |why: String| io::Error::other(why);
        let mut failure = refused("it has no address".to_owned());
        for address in self.host.to_socket_addrs()? {
            let mut stream = match TcpStream::connect_timeout(&address, LIMIT) {
                Ok(stream) => stream,
                Err(why) => {
                    failure = why;
                    continue;
                }
            };
            stream.set_read_timeout(Some(LIMIT))?;
            stream.set_write_timeout(Some(LIMIT))?;
            let head = format!(
                "POST {} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                self.path,
                self.host,
                body.len()
            );
            stream.write_all(head.as_bytes())?;
            stream.write_all(body)?;
            let mut answer = Vec::new();
            let read = stream.take(ANSWER_BYTES).read_to_end(&mut answer);
            if answer.is_empty() {
                read?;
            }
            let answer = String::from_utf8_lossy(&answer);
            let first = printable(answer.lines().next().unwrap_or_default());
            let is_accepted = first.split(' ').nth(1).is_some_and(|status| status.starts_with('2'));
            return if is_accepted { Ok(()) } else { Err(refused(format!("it answers {first:?}"))) };
        }
        Err(failure)
    }
}

/// Starts the thread that sends figures. `started_ns` is the start of the run, since 1970. The first failure is reported as a
/// note of the run.
///
/// # Errors
/// The thread cannot be started.
pub fn start(
    endpoint: Endpoint,
    latest: Latest,
    started_ns: u64,
    notes: Sender<Wanted>,
) -> io::Result<Sending> {
    let (done, sending) = mpsc::sync_channel(1);
    let send = move || {
        let (mut due, mut has_failed) = (Instant::now(), false);
        loop {
            std::thread::sleep(POLL_PERIOD);
            let snapshot = latest.look();
            let is_due = Instant::now() >= due && !snapshot.run.is_empty();
            if !is_due && !snapshot.is_last {
                continue;
            }
            if let Err(why) = endpoint.post(body(&snapshot, started_ns).to_string().as_bytes())
                && !std::mem::replace(&mut has_failed, true)
            {
                let Endpoint { host, path } = &endpoint;
                let line = format!("energy could not always be sent to http://{host}{path}: {why}");
                let _ = notes.try_send(Wanted::Note(line));
            }
            if snapshot.is_last {
                let _ = done.send(());
                return;
            }
            due = Instant::now() + PERIOD;
        }
    };
    std::thread::Builder::new().name("ampere-otlp".to_owned()).spawn(send)?;
    Ok(Sending(sending))
}

/// Makes a request from a snapshot. Devices follow OpenTelemetry's conventions for hardware: the energy of a whole node is in the
/// metric hw.host.energy, and that of any other device in hw.energy, where hw.parent names the device that contains it.
fn body(snapshot: &Snapshot, started_ns: u64) -> Value {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    let times = (started_ns.to_string(), now.to_string());
    let point = |joules: f64, attributes: &[(&str, &str)]| {
        json!({
            "startTimeUnixNano": times.0, "timeUnixNano": times.1, "asDouble": joules,
            "attributes": texts(attributes),
        })
    };
    let device = |of: &DeviceFigures| {
        let kind = if of.kind.is_empty() { "other" } else { &of.kind };
        point(
            of.joules,
            &[
                ("hw.id", &of.device),
                ("hw.type", kind),
                ("hw.parent", &of.within),
                ("ampere.source", &of.source),
                ("ampere.quality", &of.energy),
            ],
        )
    };
    let devices = |is_node: bool| {
        let devices = snapshot.devices.iter().filter(move |of| (of.kind == "node") == is_node);
        devices.map(device).collect()
    };
    let regions = snapshot.region_energy.iter().map(|of| {
        point(of.joules, &[("hw.id", &of.device), ("ampere.rank", &of.rank), ("ampere.region", &of.region)])
    });
    let kernels = snapshot
        .kernel_energy
        .iter()
        .map(|of| point(of.joules, &[("hw.id", &of.device), ("ampere.kernel", &of.kernel)]));
    let metrics: [(&str, &str, Vec<Value>); 4] = [
        ("hw.host.energy", "Energy of the whole node", devices(true)),
        ("hw.energy", "Energy of a component", devices(false)),
        ("ampere.region.energy", "Energy that regions of ranks used themselves", regions.collect()),
        (
            "ampere.kernel.energy",
            "Energy of GPUs by kernel: the same joules divided in another way",
            kernels.collect(),
        ),
    ];
    let metrics = metrics.into_iter().filter(|(.., points)| !points.is_empty());
    json!({ "resourceMetrics": [{
        "resource": { "attributes": resource(snapshot) },
        "scopeMetrics": [{
            "scope": { "name": "ampere", "version": env!("CARGO_PKG_VERSION") },
            "metrics": metrics.map(sum).collect::<Vec<_>>(),
        }],
    }] })
}

/// Describes a metric that is a sum since the start of the run.
fn sum((name, about, points): (&str, &str, Vec<Value>)) -> Value {
    json!({
        "name": name, "description": about, "unit": "J",
        "sum": { "dataPoints": points, "aggregationTemporality": CUMULATIVE, "isMonotonic": true },
    })
}

/// Describes the run.
fn resource(snapshot: &Snapshot) -> Vec<Value> {
    let job = snapshot.job.as_ref().map_or("", |job| &job.id);
    texts(&[
        ("service.name", "ampere"),
        ("service.instance.id", &snapshot.run),
        ("host.name", &snapshot.node),
        ("ampere.command", &snapshot.command),
        ("ampere.user", &snapshot.user),
        ("ampere.job", job),
    ])
}

/// Returns OTLP's form of attributes, without empty ones.
fn texts(attributes: &[(&str, &str)]) -> Vec<Value> {
    let known = attributes.iter().filter(|(_, value)| !value.is_empty());
    known.map(|(key, value)| json!({ "key": key, "value": { "stringValue": value } })).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_setting_names_the_endpoint_or_refers_to_opentelemetrys_variables() {
        let endpoint = |setting: &str, variables: &[(&str, &str)]| {
            let value = |name: &str| {
                variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
            };
            Endpoint::of_setting(setting, value).map(|Endpoint { host, path }| format!("{host}{path}"))
        };
        let variables = [VARIABLES[0], VARIABLES[1]].map(|(name, _)| (name, "http://otel:1/own"));
        assert_eq!(endpoint("on", &[]).unwrap(), "localhost:4318/v1/metrics");
        assert_eq!(endpoint("on", &variables).unwrap(), "otel:1/own");
        assert_eq!(endpoint("on", &variables[1..]).unwrap(), "otel:1/own/v1/metrics");
        assert_eq!(endpoint("http://here", &variables).unwrap(), "here:80/v1/metrics");
        assert_eq!(endpoint("http://[::1]:5/v1/metrics", &[]).unwrap(), "[::1]:5/v1/metrics");
        for wrong in ["", "true", "https://otel", "http://", "http:///path", "localhost:4318"] {
            assert!(endpoint(wrong, &variables).is_err(), "{wrong}");
        }
        for url in ["http://user:secret@otel:1/own", "https://user:secret@otel"] {
            let why = endpoint("on", &[(VARIABLES[0].0, url)]).unwrap_err().to_string();
            assert!(!why.contains("secret"), "{why}");
        }
    }

    #[test]
    fn a_part_names_the_whole_and_a_node_has_a_metric_of_its_own() {
        let device = |name: &str, kind: &str, within: &str| DeviceFigures {
            device: name.to_owned(),
            kind: kind.to_owned(),
            within: within.to_owned(),
            joules: 2.5,
            ..DeviceFigures::default()
        };
        let devices = vec![device("node", "node", ""), device("GPU-0", "gpu", "node")];
        let body = body(&Snapshot { devices, node: "n".to_owned(), ..Snapshot::default() }, 5);
        let metrics = &body["resourceMetrics"][0]["scopeMetrics"][0]["metrics"];
        let names: Vec<_> = metrics.as_array().unwrap().iter().map(|metric| &metric["name"]).collect();
        assert_eq!(names, ["hw.host.energy", "hw.energy"]);
        let point = &metrics[1]["sum"]["dataPoints"][0];
        assert_eq!((&point["asDouble"], &point["startTimeUnixNano"]), (&json!(2.5), &json!("5")));
        let expected = texts(&[("hw.id", "GPU-0"), ("hw.type", "gpu"), ("hw.parent", "node")]);
        assert_eq!(point["attributes"], json!(expected));
    }
}
