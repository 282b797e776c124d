//! Gauges of devices other than their energy, from a stand-in's script to /metrics and the summary.

use ampere_tests::collector::announced;
use ampere_tests::http;
use ampere_tests::jobs::Place;
use ampere_tests::openmetrics;
use ampere_tests::process::{Running, wait_for};
use ampere_tests::runs::{list, number, on_path, stencil, succeed};
use ampere_tests::{artifact, skip_unless};
use serde_json::Value;
use std::process::Command;
use std::time::Duration;

/// Returns a run of two ranks on GPUs that follow a script.
fn run_on(place: &Place, script: &str, seconds: &str) -> Command {
    let mut command = place.ampere_run("out", ["mpirun", "--oversubscribe", "-n", "2", &stencil(), seconds]);
    command
        .env("AMPERE_COUNTERS", "rocm_smi")
        .env("AMPERE_ROCM_SMI_LIBRARY", artifact("libstand_in_rocm_smi64.so"))
        .env("STAND_IN_ROCM_SMI", script);
    command
}

fn gauge<'a>(device: &'a Value, quantity: &str, which: &str) -> Option<&'a Value> {
    let gauges = device["gauges"].as_array()?;
    gauges.iter().find(|gauge| gauge["quantity"] == quantity && gauge["which"] == which)
}

#[test]
fn gauges_are_in_the_metrics_and_in_the_summary() {
    skip_unless!(on_path("mpirun"), "no mpirun");
    let place = Place::new();
    let script = "watts=300/100@0.5,150;gauge=1:edge:71.5,1:busy:5;gauge_error=1:junction:2,1:socket:2";
    let mut run = Running::start(&mut run_on(&place, script, "5"));
    let collector = wait_for("a collector", Duration::from_secs(60), || announced(&place.path("out")));
    let address = collector.address();
    let samples = wait_for("gauges", Duration::from_secs(60), || {
        let body = http::get(address, "/metrics").ok()?.body;
        let samples = openmetrics::parse(&body).unwrap_or_else(|why| panic!("{why}"));
        let last = |s: &openmetrics::Sample| {
            s.name == "ampere_device_memory_size_bytes" && s.label("device") == "GPU-1"
        };
        samples.iter().any(last).then_some(samples)
    });
    let value = |name: &str, device: &str, label: &str, is: &str| {
        let named = |s: &&openmetrics::Sample| {
            s.name == name && s.label("device") == device && (label.is_empty() || s.label(label) == is)
        };
        samples.iter().find(named).map(|sample| sample.value)
    };
    let celsius = "ampere_device_temperature_celsius";
    assert_eq!(value(celsius, "GPU-0", "sensor", "edge"), Some(41.0));
    assert_eq!(value(celsius, "GPU-1", "sensor", "edge"), Some(71.5));
    assert_eq!(value(celsius, "GPU-1", "sensor", "junction"), None);
    assert_eq!(value("ampere_device_busy_ratio", "GPU-1", "", ""), Some(0.05));
    assert_eq!(value("ampere_device_reported_power_watts", "GPU-1", "kind", "average"), Some(150.0));
    assert_eq!(value("ampere_device_reported_power_watts", "GPU-1", "kind", "current"), None);
    assert_eq!(value("ampere_device_memory_used_bytes", "GPU-0", "", ""), Some(1e9));
    assert!(run.wait(Duration::from_secs(60)).is_some_and(|status| status.success()));

    let summary = place.summary("out");
    let devices = list(&summary, "devices");
    let busy = gauge(&devices[1], "busy_ratio", "").unwrap();
    assert_eq!((number(busy, "min"), number(busy, "max")), (0.05, 0.05));
    assert!((number(busy, "mean") - 0.05).abs() < 1e-12, "a sum is rounded: {busy}");
    let readings = number(busy, "readings");
    let seconds = number(&summary["run"], "seconds");
    assert!((2.0..=seconds + 3.0).contains(&readings), "about once a second for {seconds} s: {readings}");
    // The square wave is read once a second: readings have either level, and the mean is between them.
    let power = gauge(&devices[0], "power_watts", "average").unwrap();
    let (min, mean, max) = (number(power, "min"), number(power, "mean"), number(power, "max"));
    assert!([100.0, 300.0].contains(&min) && [100.0, 300.0].contains(&max), "{power}");
    assert!((min..=max).contains(&mean), "{power}");
    assert!(gauge(&devices[1], "temperature_celsius", "junction").is_none(), "{}", devices[1]["gauges"]);
    let printed = std::fs::read_to_string(place.path("out/summary.txt")).unwrap();
    assert!(printed.contains("\n  reported by the device: average power 150.0 W, edge 71.5 C,"), "{printed}");
    // A gauge that cannot be read does not count as a failed reading of a counter.
    assert_eq!(number(&devices[1]["readings"], "failed_readings"), 0.0);
    assert!(number(&summary["overhead"]["sampler"], "gauges_seconds") > 0.0);
}

#[test]
fn gauges_can_be_switched_off() {
    skip_unless!(on_path("mpirun"), "no mpirun");
    let place = Place::new();
    succeed(run_on(&place, "watts=300", "1").env("AMPERE_GAUGES", "off"));
    let summary = place.summary("out");
    assert!(list(&summary, "devices")[0].get("gauges").is_none(), "{summary}");
    assert_eq!(number(&summary["overhead"]["sampler"], "gauges_seconds"), 0.0);
}

/// Every gauge takes 20 ms to read. Samples still come in time, as gauges take at most a fiftieth of the time.
#[test]
fn a_slow_library_keeps_no_counter_waiting_for_long() {
    skip_unless!(on_path("mpirun"), "no mpirun");
    let place = Place::new();
    succeed(&mut run_on(&place, "watts=300;gauge_us=20000", "3"));
    let summary = place.summary("out");
    let sampler = &summary["overhead"]["sampler"];
    let [asked, longest] = ["gauges_seconds", "longest_gauge_seconds"].map(|key| number(sampler, key));
    assert!(asked >= 0.02 && longest >= 0.02, "{sampler}");
    // A reading takes longer if the machine runs something else meanwhile.
    let seconds = number(&summary["run"], "seconds");
    assert!(asked < seconds / 50.0 + 0.05 + 2.0 * longest, "{asked} s of {seconds} s: {sampler}");
}
