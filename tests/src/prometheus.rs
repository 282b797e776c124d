//! A real Prometheus, with the configuration that we ship.

use crate::http;
use crate::process::{Running, wait_for};
use serde_json::Value;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

pub struct Prometheus {
    address: SocketAddr,
    _process: Running,
}

/// A result of a query: its labels, and (seconds, value) pairs.
#[derive(Debug)]
pub struct Series {
    pub labels: Value,
    pub points: Vec<(f64, f64)>,
}

impl Prometheus {
    /// Scrapes `target` as `dashboards/prometheus.yml` says; all its files are in `directory`.
    pub fn start(program: &Path, target: SocketAddr, directory: &Path) -> Prometheus {
        let shipped = std::fs::read_to_string(crate::root().join("dashboards/prometheus.yml"));
        let shipped = shipped.expect("dashboards/prometheus.yml");
        let ours = shipped.replace("127.0.0.1:9977", &target.to_string());
        assert_ne!(ours, shipped, "the configuration has the default address");
        // The runs of tests are short.
        let ours = ours.replace("evaluation_interval: 5s", "evaluation_interval: 1s");
        let config = directory.join("prometheus.yml");
        std::fs::write(&config, ours).expect("a configuration can be written");
        for rules in ["rules.yml", "alerts.yml"] {
            let shipped = crate::root().join("dashboards").join(rules);
            std::fs::copy(shipped, directory.join(rules)).expect("rules can be copied");
        }
        let address = http::free_address();
        let log = std::fs::File::create(directory.join("prometheus.log")).expect("a log can be written");
        let process = Running::start(
            Command::new(program)
                .arg(format!("--config.file={}", config.display()))
                .arg(format!("--storage.tsdb.path={}", directory.join("data").display()))
                .arg(format!("--web.listen-address={address}"))
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(log),
        );
        wait_for("Prometheus", Duration::from_secs(20), || {
            http::get(address, "/-/ready").ok().filter(|reply| reply.status == 200)
        });
        Prometheus { address, _process: process }
    }

    /// What the HTTP API answers; a refusal in Prometheus' own words.
    pub fn api(&self, path: &str) -> Result<Value, String> {
        let reply = http::get(self.address, &format!("/api/v1/{path}")).map_err(|e| e.to_string())?;
        let mut json: Value =
            serde_json::from_str(&reply.body).map_err(|e| format!("{e}: {}", reply.body))?;
        if json["status"] == "success" { Ok(json["data"].take()) } else { Err(json["error"].to_string()) }
    }

    /// An instant query, as of now.
    pub fn query(&self, expression: &str) -> Result<Vec<Series>, String> {
        let data = self.api(&format!("query?query={}", http::percent_encoded(expression)))?;
        Ok(series(&data, |result| std::iter::once(&result["value"]).collect()))
    }

    /// A query at every quarter of a second from `start` to `end`.
    pub fn query_range(&self, expression: &str, start: f64, end: f64) -> Result<Vec<Series>, String> {
        let query = http::percent_encoded(expression);
        let data = self.api(&format!("query_range?query={query}&start={start}&end={end}&step=0.25"))?;
        Ok(series(&data, |result| crate::dashboard::items(&result["values"]).collect()))
    }
}

fn series<'a>(data: &'a Value, points: impl Fn(&'a Value) -> Vec<&'a Value>) -> Vec<Series> {
    let point = |pair: &Value| {
        (
            pair[0].as_f64().unwrap_or(f64::NAN),
            pair[1].as_str().and_then(|v| v.parse().ok()).unwrap_or(f64::NAN),
        )
    };
    crate::dashboard::items(&data["result"])
        .map(|result| Series {
            labels: result["metric"].clone(),
            points: points(result).into_iter().map(point).collect(),
        })
        .collect()
}
