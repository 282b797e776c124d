//! A whole job in one place: the first node's collector gathers the figures of the others.

mod made_up;
mod namespaces;

use ampere_tests::jobs::{Place, until};
use ampere_tests::{collector, http};
use serde_json::Value;
use std::net::SocketAddr;
use std::path::PathBuf;

/// A program that works until the file that its argument names exists.
const WORK: &str = r#"
    #include <time.h>
    #include <unistd.h>
    static void spin(double seconds) {
        struct timespec begin, now;
        clock_gettime(CLOCK_MONOTONIC, &begin);
        do clock_gettime(CLOCK_MONOTONIC, &now);
        while (now.tv_sec - begin.tv_sec + 1e-9 * (now.tv_nsec - begin.tv_nsec) < seconds);
    }
    __attribute__((noinline)) void solve(void) { spin(0.004); }
    __attribute__((noinline)) void wait_a_moment(void) { usleep(20000); }
    int main(int argc, char **argv) { while (access(argv[1], F_OK)) { solve(); wait_a_moment(); } return 0; }
"#;

fn program(place: &Place) -> PathBuf {
    place.compile("cc", "work", WORK, &["-finstrument-functions", "-rdynamic"])
}

/// Returns the content of /nodes.
fn job(address: SocketAddr, token: Option<&str>) -> Option<Value> {
    let answer = http::ask(address, "GET", "/nodes", token).ok().filter(|answer| answer.status == 200)?;
    Some(serde_json::from_str(&answer.body).expect("JSON"))
}

fn node<'a>(job: &'a Value, name: &str) -> &'a Value {
    let nodes = job["nodes"].as_array().expect("nodes");
    nodes.iter().find(|node| node["node"] == name).unwrap_or(&Value::Null)
}

fn joules(of: &Value) -> f64 {
    of["joules"].as_f64().expect("joules")
}

fn state<'a>(job: &'a Value, name: &str) -> &'a str {
    node(job, name)["state"].as_str().unwrap_or_default()
}

/// Waits until a condition holds for the content of /nodes, and returns it.
fn job_when(address: SocketAddr, token: Option<&str>, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
    let mut seen = Value::Null;
    until(what, || {
        seen = job(address, token).unwrap_or_default();
        !seen.is_null() && holds(&seen)
    });
    seen
}

fn address_of_first(place: &Place) -> SocketAddr {
    until("the first node's collector runs", || collector::announced(&place.path("out")).is_some());
    collector::announced(&place.path("out")).expect("a collector").address()
}
