//! A real Prometheus with the configuration that ampere ships.

use crate::dashboard::{self, Query};
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

/// One result of a query: its labels, and (seconds, value) pairs.
#[derive(Debug)]
pub struct Series {
    pub labels: Value,
    pub points: Vec<(f64, f64)>,
}

impl Prometheus {
    /// Scrapes `target` with `dashboards/prometheus.yml`. All its files are in `directory`.
    pub fn start(program: &Path, target: SocketAddr, directory: &Path) -> Prometheus {
        Prometheus::start_with(program, directory, |shipped| {
            shipped.replace("127.0.0.1:9977", &target.to_string())
        })
    }

    /// Starts Prometheus with a changed `dashboards/prometheus.yml`.
    pub fn start_with(program: &Path, directory: &Path, change: impl Fn(&str) -> String) -> Prometheus {
        let shipped = std::fs::read_to_string(crate::root().join("dashboards/prometheus.yml"));
        let shipped = shipped.expect("dashboards/prometheus.yml");
        let ours = change(&shipped);
        assert_ne!(ours, shipped, "the configuration has what is changed");
        // The runs of tests are short, so rules are evaluated more often.
        let ours = ours.replace("evaluation_interval: 5s", "evaluation_interval: 1s");
        let config = directory.join("prometheus.yml");
        std::fs::write(&config, ours).expect("a configuration can be written");
        for rules in ["rules.yml", "alerts.yml"] {
            let shipped = crate::root().join("dashboards").join(rules);
            std::fs::copy(shipped, directory.join(rules)).expect("rules can be copied");
        }
        let log = directory.join("prometheus.log");
        // It ends at once if another program has taken the port meanwhile.
        for _ in 0..5 {
            let address = http::free_address();
            let log = std::fs::File::create(&log).expect("a log can be written");
            let mut process = Running::start(
                Command::new(program)
                    .arg(format!("--config.file={}", config.display()))
                    .arg(format!("--storage.tsdb.path={}", directory.join("data").display()))
                    .arg(format!("--web.listen-address={address}"))
                    .stdin(Stdio::null())
                    .stdout(Stdio::null())
                    .stderr(log),
            );
            let is_ready = wait_for("Prometheus", Duration::from_secs(60), || {
                let answers = http::get(address, "/-/ready").is_ok_and(|reply| reply.status == 200);
                let has_ended = process.has_ended();
                (answers || has_ended).then_some(!has_ended)
            });
            if is_ready {
                return Prometheus { address, _process: process };
            }
        }
        panic!("Prometheus does not start: {}", std::fs::read_to_string(log).unwrap_or_default());
    }

    /// Returns an answer of the HTTP API, or its error text.
    pub fn api(&self, path: &str) -> Result<Value, String> {
        let reply = http::get(self.address, &format!("/api/v1/{path}")).map_err(|e| e.to_string())?;
        let mut json: Value =
            serde_json::from_str(&reply.body).map_err(|e| format!("{e}: {}", reply.body))?;
        if json["status"] == "success" { Ok(json["data"].take()) } else { Err(json["error"].to_string()) }
    }

    /// Evaluates a query at the present time.
    pub fn query(&self, expression: &str) -> Result<Vec<Series>, String> {
        let data = self.api(&format!("query?query={}", http::percent_encoded(expression)))?;
        Ok(series(&data, |result| std::iter::once(&result["value"]).collect()))
    }

    /// Checks that there are data for every variable and every expression of the dashboards, for the values that the alerts
    /// compare with limits, and for the expressions of the recording rules. Expressions with one of the words in `may_lack` may
    /// have none. Returns the number of expressions and of rules.
    pub fn all_have_data(&self, may_lack: &[&str]) -> (usize, usize) {
        let has_data = |what: &str, expression: &str| {
            if may_lack.iter().any(|word| expression.contains(word)) {
                self.query(expression).unwrap_or_else(|why| panic!("{what}: {expression}: {why}"));
                return;
            }
            // A rate needs two scrapes, and a rule with a rate needs its second evaluation.
            wait_for(&format!("data for {what}: {expression}"), Duration::from_secs(60), || {
                let found = self.query(expression);
                let found = found.unwrap_or_else(|why| panic!("{what}: {expression}: {why}"));
                (!found.is_empty()).then_some(())
            });
        };
        let mut expressions = 0;
        for (file, dashboard) in dashboard::all() {
            for (name, selector, label) in dashboard::variables(&dashboard) {
                let matching = http::percent_encoded(&dashboard::substituted(&selector));
                let values = self.api(&format!("label/{label}/values?match[]={matching}"));
                let some = values.as_ref().is_ok_and(|values| dashboard::items(values).next().is_some());
                assert!(some, "{file}: ${name}: {values:?}");
            }
            for Query { of, expression } in dashboard::queries(&dashboard) {
                has_data(&format!("{file}: {of}"), &dashboard::substituted(&expression));
                expressions += 1;
            }
        }
        let all = self.api("rules").unwrap_or_else(|why| panic!("{why}"));
        let all = dashboard::items(&all["groups"]).flat_map(|group| dashboard::items(&group["rules"]));
        let mut rules = 0;
        for rule in all {
            let [name, text] = ["name", "query"].map(|key| rule[key].as_str().expect("text"));
            assert_ne!(rule["health"], "err", "{rule}");
            // An alert's expression is a comparison, which usually has no result. Its left side is queried instead.
            let side = text.rsplit_once(" > ").or_else(|| text.rsplit_once(" == "));
            has_data(name, if rule["type"] == "alerting" { side.expect("a comparison").0 } else { text });
            rules += 1;
        }
        (expressions, rules)
    }

    /// Evaluates a query every quarter of a second from `start` to `end`.
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
