//! A run's collector, as its output directory announces it while it runs.

use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use std::net::SocketAddr;
use std::path::Path;

pub struct Announced {
    pub pid: Pid,
    pub url: String,
    pub node: String,
}

/// Returns the announcement; `None` while there is no collector.
pub fn announced(output: &Path) -> Option<Announced> {
    let text = std::fs::read(output.join("collector.json")).ok()?;
    let json: serde_json::Value =
        serde_json::from_slice(&text).expect("collector.json is never half-written");
    let word = |key: &str| json[key].as_str().expect("a word").to_owned();
    let pid = json["pid"].as_i64().and_then(|pid| Pid::from_raw(pid as i32));
    Some(Announced { pid: pid.expect("a pid"), url: word("url"), node: word("node") })
}

/// Returns the number of events that the collector of a run has read; 0 while there is no collector.
pub fn events(output: &Path) -> u64 {
    let body =
        announced(output).and_then(|collector| crate::http::get(collector.address(), "/snapshot.json").ok());
    let json = body.and_then(|answer| serde_json::from_str::<serde_json::Value>(&answer.body).ok());
    let json = json.unwrap_or_default();
    let ranks = json["ranks"].as_array().map_or(&[][..], Vec::as_slice);
    ranks.iter().filter_map(|rank| rank["events"].as_u64()).sum()
}

impl Announced {
    pub fn address(&self) -> SocketAddr {
        self.url.strip_prefix("http://").and_then(|rest| rest.parse().ok()).expect("an address")
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(self.pid, signal).expect("it runs");
    }

    /// Kills it, if it has not ended already together with its supervisor.
    pub fn kill(&self) {
        let killed = kill_process(self.pid, Signal::KILL);
        assert!(matches!(killed, Ok(()) | Err(Errno::SRCH)), "{killed:?}");
    }
}
