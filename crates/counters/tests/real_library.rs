//! The real librocm_smi64, on GPUs out of a made-up /sys (the program `fake_amd_gpu.py`, which needs root), and on a
//! machine without GPUs. Skipped, with a word, where something of that is missing.

mod common;

use std::path::{Path, PathBuf};

use common::{Told, probe_under};

#[test]
fn probe_child() {
    common::child();
}

fn skip(why: &str) -> Option<Told> {
    println!("skipped: {why}");
    None
}

fn real_library() -> Option<PathBuf> {
    let folders = ["/usr/lib", "/usr/lib64", "/usr/lib/x86_64-linux-gnu", "/opt/rocm/lib"];
    let names = ["librocm_smi64.so", "librocm_smi64.so.1", "librocm_smi64.so.5", "librocm_smi64.so.6"];
    let all = folders.iter().flat_map(|folder| names.iter().map(move |name| Path::new(folder).join(name)));
    all.into_iter().find(|file| file.exists())
}

fn fake_gpu_program() -> Option<PathBuf> {
    let near = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/programs/fake_amd_gpu.py");
    [near, PathBuf::from("/work/shared/programs/fake_amd_gpu.py")].into_iter().find(|file| file.exists())
}

/// Runs a child on made-up GPUs. The library is found by the usual search, as a user's job would.
fn on_made_up_gpus(arguments: &[&str], steps: &str) -> Option<Told> {
    if real_library().is_none() {
        return skip("librocm_smi64 is not installed");
    }
    let Some(program) = fake_gpu_program() else { return skip("fake_amd_gpu.py is not here") };
    let possible = std::process::Command::new("unshare")
        .args(["-m", "sh", "-c", "mount -t tmpfs tmpfs /sys && python3 -c ''"])
        .output()
        .is_ok_and(|output| output.status.success());
    if !possible {
        return skip("needs root, unshare and python3");
    }
    let mut before = vec!["unshare", "-m", "python3", program.to_str().unwrap()];
    before.extend(arguments);
    before.push("--");
    Some(probe_under(&before, steps, &[]))
}

/// Within 1 % of watts times seconds, by the driver's time and by ours?
fn has_power(told: &Told, device: usize, watts: f64) -> bool {
    let (first, last) = (told.seen(0, device), told.seen(1, device));
    assert_eq!(last.nanojoules, last.raw * 15_300);
    let joules = told.joules(device, 0, 1);
    let wall = (last.at_ns - first.at_ns) as f64 * 1e-9;
    let driver = (last.timestamp_ns.unwrap() - first.timestamp_ns.unwrap()) as f64 * 1e-9;
    println!("device {device}: {joules:.3} J, {wall:.4} s, by the driver's time {driver:.4} s");
    assert!((joules / (watts * driver) - 1.0).abs() < 0.01, "{joules} J in {driver} s, not {watts} W");
    (joules / (watts * wall) - 1.0).abs() < 0.01
}

/// Runs a check of 300 W and 150 W three times at most: on a loaded machine the made-up GPUs' program may get no CPU
/// for a while, and the counters are then old by our time (never by the driver's).
fn assert_power(arguments: &[&str], check: impl Fn(&Told)) {
    for _ in 0..3 {
        let Some(told) = on_made_up_gpus(arguments, "read;sleep 2000;read") else { return };
        check(&told);
        if has_power(&told, 0, 300.0) && has_power(&told, 1, 150.0) {
            return;
        }
    }
    panic!("not within 1 % of the wall time's energy, three times");
}

#[test]
fn joules_are_watts_times_seconds() {
    assert_power(&["--watts", "300,150"], |told| {
        assert!(told.notes.is_empty(), "{:?}", told.notes);
        assert_eq!(told.names(), ["GPU-0", "GPU-1"]);
        assert!(told.devices[0].contains("|measured|gpu|0.0000153|0000:03:00.0|"), "{:?}", told.devices);
    });
}

#[test]
fn second_dies_are_noted() {
    assert_power(&["--watts", "300,150", "--dual-die"], |told| {
        assert_eq!(told.names(), ["GPU-0", "GPU-2"]);
        assert_eq!(told.notes.len(), 2);
        assert!(told.notes[1].contains("device 3") && told.notes[1].contains("counted by device 2"));
    });
}

#[test]
fn an_exit_handler_older_than_the_library_does_no_harm() {
    // Without the guard this is a segmentation fault: the library's devices are destroyed by then.
    let Some(told) = on_made_up_gpus(&["--watts", "300"], "read;exit") else { return };
    assert!(told.seen(0, 0).raw > 0);
    assert!(told.stderr.contains("at exit: the process is ending"), "{}", told.stderr);
    assert!(told.stderr.contains("at exit: done"), "{}", told.stderr);
}

#[test]
fn a_machine_without_gpus_is_survived() {
    let Some(library) = real_library() else {
        skip("librocm_smi64 is not installed");
        return;
    };
    if Path::new("/sys/class/kfd").exists() {
        skip("this machine has a GPU driver");
        return;
    }
    let named = ("AMPERE_ROCM_SMI_LIBRARY", library.to_str().unwrap());
    let told = probe_under(&[], "read;exit", &[named]);
    assert_eq!(told.names(), ["node"]);
    assert!(told.notes[0].contains("failed with INIT_ERROR (8)"), "{:?}", told.notes);
    // Not named: not called, as it would print to standard error.
    let told = probe_under(&[], "read;exit", &[]);
    assert_eq!(told.names(), ["node"]);
    assert!(!told.stderr.contains("Exception caught"), "{}", told.stderr);
}
