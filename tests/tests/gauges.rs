//! Gauges of devices other than their energy, from a stand-in's script to /metrics and the summary.

use ampere_tests::collector::announced;
use ampere_tests::http;
use ampere_tests::jobs::Place;
use ampere_tests::openmetrics;
use ampere_tests::process::{Running, wait_for};
use ampere_tests::runs::{list, number, on_path, stencil, succeed};
use ampere_tests::{artifact, skip_unless};
use serde_json::Value;
use std::path::Path;
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
    // After a reading that was interrupted for 200 ms, the next one comes 10 s later.
    let mut run = Running::start(&mut run_on(&place, script, "15"));
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
    // After a reading that was interrupted, the next ones come later, because they may take only a fiftieth of the time.
    assert!((1.0..=seconds + 3.0).contains(&readings), "about once a second for {seconds} s: {readings}");
    // The square wave is read once a second: readings have either level, and the mean is between them.
    let power = gauge(&devices[0], "power_watts", "average").unwrap();
    let min = number(power, "min");
    let mean = number(power, "mean");
    let max = number(power, "max");
    assert!([100.0, 300.0].contains(&min) && [100.0, 300.0].contains(&max), "{power}");
    assert!((min..=max).contains(&mean), "{power}");
    assert!(gauge(&devices[1], "temperature_celsius", "junction").is_none(), "{}", devices[1]["gauges"]);
    let printed = std::fs::read_to_string(place.path("out/summary.txt")).unwrap();
    assert!(printed.contains("\n  reported by the device: average power 150.0 W, edge 71.5 C,"), "{printed}");
    // A gauge that cannot be read does not count as a failed reading of a counter.
    assert_eq!(number(&devices[1]["readings"], "failed_readings"), 0.0);
    assert!(number(&summary["overhead"]["sampler"], "gauges_seconds") > 0.0);
}

/// Makes the kernel's files of GPU-0: it is throttled because of a temperature, and draws as much power as its limit permits.
fn throttled_gpu(root: &Path) {
    let (device, chip) = (root.join("sys/devices/0000:c1:00.0"), root.join("sys/class/hwmon/hwmon0"));
    for folder in [&device, &chip] {
        std::fs::create_dir_all(folder).expect("directories");
    }
    // Version 1.3 of the kernel's metrics; bit 36 is the temperature of the hot spot.
    let mut metrics = [0; 120];
    metrics[..4].copy_from_slice(&[120, 0, 1, 3]);
    metrics[116] = 1 << 4;
    std::fs::write(device.join("gpu_metrics"), metrics).expect("a file");
    for (name, text) in [("name", "amdgpu\n"), ("freq1_input", "1700000000\n"), ("power1_cap", "300000000\n")]
    {
        std::fs::write(chip.join(name), text).expect("a file");
    }
    std::os::unix::fs::symlink(&device, chip.join("device")).expect("a link");
}

#[test]
fn a_throttled_gpu_at_its_power_limit_is_in_the_result_the_metrics_and_the_page() {
    skip_unless!(on_path("mpirun"), "no mpirun");
    let place = Place::new();
    let root = place.path("root");
    throttled_gpu(&root);
    let mut run = Running::start(run_on(&place, "watts=300,150", "15").env("AMPERE_SYS_ROOT", &root));
    let collector = wait_for("a collector", Duration::from_secs(60), || announced(&place.path("out")));
    let metric = |name: &str, samples: &[openmetrics::Sample]| {
        let named = |s: &&openmetrics::Sample| s.name == name && s.label("device") == "GPU-0";
        samples.iter().find(named).map(|sample| sample.value)
    };
    let samples = wait_for("gauges", Duration::from_secs(60), || {
        let body = http::get(collector.address(), "/metrics").ok()?.body;
        let samples = openmetrics::parse(&body).unwrap_or_else(|why| panic!("{why}"));
        metric("ampere_device_throttled_ratio", &samples).is_some().then_some(samples)
    });
    assert_eq!(metric("ampere_device_throttled_ratio", &samples), Some(1.0));
    assert_eq!(metric("ampere_device_clock_hertz", &samples), Some(1.7e9));
    assert_eq!(metric("ampere_device_power_limit_watts", &samples), Some(300.0));
    assert!(run.wait(Duration::from_secs(60)).is_some_and(|status| status.success()));

    let summary = place.summary("out");
    let devices = list(&summary, "devices");
    let [thermal, power] =
        ["thermal", "power"].map(|cause| gauge(&devices[0], "throttled_ratio", cause).expect("the cause"));
    assert_eq!((number(thermal, "mean"), number(power, "mean")), (1.0, 0.0));
    let limit = gauge(&devices[0], "power_limit_watts", "").expect("a limit");
    // If the first reading of the counter was interrupted, the power during some of the time is not exact.
    assert!(number(limit, "at_limit_ratio") > 0.5, "it draws 300 W: {limit}");
    assert_eq!(limit["curve"]["values"], serde_json::json!([300.0]));
    assert!(gauge(&devices[1], "clock_hertz", "").is_none(), "GPU-1 has no such files");
    let printed = std::fs::read_to_string(place.path("out/summary.txt")).expect("a table");
    let printed = printed.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(printed.contains("GPU-0 was throttled for about "), "{printed}");
    assert!(printed.contains("clock 1.70 GHz, power limit 300.0 W, for "), "{printed}");
    let page = std::fs::read_to_string(place.path("out/report.html")).expect("a page");
    assert!(page.contains("\"quantity\":\"clock_hertz\",\"which\":\"\",\"seconds\":["), "the page's data");
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
    // A reading takes longer if the machine runs something else in the meantime.
    let seconds = number(&summary["run"], "seconds");
    assert!(asked < seconds / 50.0 + 0.05 + 2.0 * longest, "{asked} s of {seconds} s: {sampler}");
}
