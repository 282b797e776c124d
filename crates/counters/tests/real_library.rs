//! Tests the real librocm_smi64, on GPUs of a made-up /sys (which needs root), and on a machine without GPUs. Tests are skipped,
//! with a message, if something is missing.

mod common;

use std::path::{Path, PathBuf};

use common::{Answer, made_up_gpus, probe_under};

#[test]
#[ignore = "a process that other tests start"]
fn probe_child() {
    made_up_gpus::serve(common::child);
}

fn skip(why: &str) -> Option<Answer> {
    println!("skipped: {why}");
    None
}

fn real_library() -> Option<PathBuf> {
    let folders = ["/usr/lib", "/usr/lib64", "/usr/lib/x86_64-linux-gnu", "/opt/rocm/lib"];
    let names = ["librocm_smi64.so", "librocm_smi64.so.1", "librocm_smi64.so.5", "librocm_smi64.so.6"];
    let all = folders.iter().flat_map(|folder| names.iter().map(move |name| Path::new(folder).join(name)));
    all.into_iter().find(|file| file.exists())
}

/// Runs a child on made-up GPUs. The library is found by the usual search, as a user's job would find it.
fn on_made_up_gpus(watts: &str, how: &str, steps: &str) -> Option<Answer> {
    if real_library().is_none() {
        return skip("no librocm_smi64");
    }
    let before = made_up_gpus::command()?;
    let (name, value) = made_up_gpus::wanted(watts, how);
    Some(probe_under(&before, steps, &[(name, &value), ("AMPERE_COUNTERS", "rocm_smi")]))
}

/// Checks that joules are watts times seconds. Seconds are by the driver's time, which a busy machine does not distort.
fn assert_power(watts: &str, how: &str, check: impl Fn(&Answer)) {
    let Some(answer) = on_made_up_gpus(watts, how, "read;sleep 2000;read") else { return };
    check(&answer);
    for (device, watts) in [(0, 300.0), (1, 150.0)] {
        let (first, last) = (answer.seen(0, device), answer.seen(1, device));
        assert_eq!(last.nanojoules, last.raw * 15_300);
        let joules = answer.joules(device, 0, 1);
        let seconds = (last.timestamp_ns.unwrap() - first.timestamp_ns.unwrap()) as f64 * 1e-9;
        println!("device {device}: {joules:.3} J, by the driver's time {seconds:.4} s");
        assert!((joules / (watts * seconds) - 1.0).abs() < 1e-3, "{joules} J in {seconds} s, not {watts} W");
        assert!(first.timestamp_ns.unwrap() < first.at_ns && last.timestamp_ns.unwrap() < last.at_ns);
        assert!(first.at_ns < last.timestamp_ns.unwrap(), "nothing new in 2 s");
    }
}

#[test]
fn joules_are_watts_times_seconds() {
    assert_power("300,150", "", |answer| {
        assert!(answer.notes.is_empty(), "{:?}", answer.notes);
        assert_eq!(answer.names(), ["GPU-0", "GPU-1"]);
        assert!(answer.devices[0].contains("|measured|gpu|0.0000153|0000:03:00.0|"), "{:?}", answer.devices);
    });
}

#[test]
fn second_dies_are_noted() {
    assert_power("300,150", "dual", |answer| {
        assert_eq!(answer.names(), ["GPU-0", "GPU-2"]);
        assert_eq!(answer.notes.len(), 2);
        assert!(answer.notes[1].contains("device 3") && answer.notes[1].contains("counted by device 2"));
    });
}

#[test]
fn a_square_wave_is_seen_in_its_halves() {
    // The power alternates between 400 W and 100 W every 100 ms, and is read every 20 ms.
    const WAVE: &str = "400/100@0.1";
    let steps = "read".to_owned() + &";sleep 20;read".repeat(60);
    let Some(answer) = on_made_up_gpus(WAVE, "", &steps) else { return };
    let power = made_up_gpus::Power::parse(WAVE);
    for reading in 1..=60 {
        let [before, after] = [reading - 1, reading].map(|at| answer.seen(at, 0).timestamp_ns.unwrap());
        let (seen, spent) =
            (answer.joules(0, reading - 1, reading), power.joules(after) - power.joules(before));
        assert!((seen - spent).abs() < 1e-4, "{seen} J between {before} and {after} ns, not {spent} J");
    }
}

#[test]
fn figures_of_the_drivers_files_are_reported() {
    let Some(answer) = on_made_up_gpus("300,150", "", "gauges;gauges") else { return };
    // Version 5.2.3 has no present power, and later ones find none here.
    let without_now = |lines: &[String]| -> Vec<String> {
        lines.iter().filter(|line| !line.contains(" current ")).cloned().collect()
    };
    let of = |gpu: &str| {
        [
            "power_watts average 90",
            "temperature_celsius edge 41",
            "temperature_celsius junction 55.5",
            "temperature_celsius memory 48",
            "busy_ratio  0.37",
            "memory_used_bytes  1073741824",
            "memory_size_bytes  68702699520",
            "throttled_ratio thermal 0",
            "throttled_ratio power 0",
        ]
        .map(|line| format!("{gpu} {line}"))
    };
    let expected = [of("GPU-0"), of("GPU-1")].concat();
    assert_eq!(without_now(&answer.gauges[0]), expected);
    assert_eq!(without_now(&answer.gauges[1]), expected);
}

#[test]
fn a_driver_without_these_files_has_no_gauges_but_still_counts() {
    for how in ["bare", "headless"] {
        let Some(answer) = on_made_up_gpus("300", how, "read;gauges;sleep 20;read;gauges") else {
            return;
        };
        assert_eq!(answer.gauges.len(), 2, "{how}");
        assert!(!answer.gauges[1].is_empty(), "{how}");
        // The file with the energy also contains the reasons for throttling.
        for line in answer.gauges.iter().flatten().filter(|line| !line.contains(" throttled_ratio ")) {
            assert!(line.ends_with(" -"), "{how}: {line}");
        }
        assert!(answer.joules(0, 0, 1) > 0.0, "{how}");
        assert!(answer.stderr.is_empty(), "{how}: {}", answer.stderr);
    }
}

#[test]
fn an_exit_handler_older_than_the_library_does_no_harm() {
    // Without the guard this is a segmentation fault, because the library's devices have been destroyed.
    let Some(answer) = on_made_up_gpus("300", "", "read;exit") else { return };
    assert!(answer.seen(0, 0).raw > 0);
    assert!(answer.stderr.contains("at exit: the process is ending"), "{}", answer.stderr);
    assert!(answer.stderr.contains("at exit: done"), "{}", answer.stderr);
}

#[test]
fn a_machine_without_gpus_is_survived() {
    let Some(library) = real_library() else {
        skip("no librocm_smi64");
        return;
    };
    if Path::new("/sys/class/kfd").exists() {
        skip("this machine has a GPU driver");
        return;
    }
    let node = common::bare_node();
    let root = ("AMPERE_SYS_ROOT", node.path().to_str().unwrap());
    let named = ("AMPERE_ROCM_SMI_LIBRARY", library.to_str().unwrap());
    let answer = probe_under(&[], "read;exit", &[named, root]);
    assert_eq!(answer.names(), ["node"]);
    assert!(answer.notes[0].contains("failed with INIT_ERROR (8)"), "{:?}", answer.notes);
    // The library is not named, so it is not called: it would print to standard error.
    let answer = probe_under(&[], "read;exit", &[root]);
    assert_eq!(answer.names(), ["node"]);
    assert!(!answer.stderr.contains("Exception caught"), "{}", answer.stderr);
}
