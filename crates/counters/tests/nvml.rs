//! Tests NVML through its real interface, on the stand-in library and on libraries compiled here.

mod common;

use common::{Answer, NVML, bare_node, compile, probe_under, probe_with};

#[test]
#[ignore = "a process that other tests start"]
fn probe_child() {
    common::child();
}

fn probe(script: &str, steps: &str, more: &[(&str, &str)]) -> Answer {
    probe_with(&NVML, script, steps, more)
}

const NO_NOTES: [&str; 0] = [];

#[test]
fn counters_advance_by_the_power() {
    let answer = probe("watts=300,150", "read;sleep 1000;read", &[]);
    assert_eq!(answer.notes, NO_NOTES);
    assert_eq!(
        answer.devices[1],
        "GPU-1|nvml:::total_energy_consumption:device=1|nvml|simulated|gpu|0.001|0000:c2:00.0|Stand-in GPU, driver \
         535.0 stand-in"
    );
    for (device, watts) in [(0, 300.0), (1, 150.0)] {
        let (first, last) = (answer.seen(0, device), answer.seen(1, device));
        assert_eq!(last.nanojoules, last.raw * 1_000_000);
        let seconds = (last.at_ns - first.at_ns) as f64 * 1e-9;
        let joules = answer.joules(device, 0, 1);
        // The process may be interrupted between a counter and the time of its reading.
        assert!((joules / (watts * seconds) - 1.0).abs() < 0.2, "{joules} J in {seconds} s at {watts} W");
    }
}

#[test]
fn a_gpu_before_volta_is_left_out_with_a_note() {
    let answer = probe("devices=2;error=0:3", "read", &[]);
    assert_eq!(answer.names(), ["GPU-1"]);
    assert_eq!(
        answer.notes,
        [
            "nvml: device 0 (Stand-in GPU) has no energy counter (NOT_SUPPORTED (3)): GPUs before Volta have none; it is \
          not used"
        ]
    );
    let answer = probe("devices=1;error=0:3", "read", &[]);
    assert_eq!(answer.notes[1], "nvml: none of 1 devices has a usable energy counter");
}

#[test]
fn a_failing_device_is_noted_and_the_others_are_read() {
    let answer = probe("devices=3;error=0:4,1:77", "read", &[]);
    assert_eq!(answer.names(), ["GPU-2"]);
    assert!(answer.notes[0].contains("may not be read, NO_PERMISSION (4)"), "{:?}", answer.notes);
    assert!(answer.notes[1].contains("device 1's energy cannot be read, UNKNOWN (77)"), "{:?}", answer.notes);
}

#[test]
fn a_counter_may_go_back_stand_still_jump_and_go_away() {
    // The process may get no CPU for most of a second.
    let answer = probe(
        "watts=200,200,200,200;reset=0@1;freeze=1@0-5;jump=2@1;gone=3@1-3",
        "read;sleep 1100;read;sleep 2200;read",
        &[],
    );
    assert!(answer.seen(1, 0).raw < answer.seen(0, 0).raw);
    assert_eq!(answer.seen(1, 1).raw, answer.seen(0, 1).raw);
    assert!(answer.joules(2, 0, 1) > 1e9);
    assert_eq!(
        answer.rounds[1][3],
        Err("nvmlDeviceGetTotalEnergyConsumption returned GPU_IS_LOST (15)".to_owned())
    );
    assert!(answer.joules(3, 0, 2) > 200.0 * 3.0, "it has come back");
}

#[test]
fn a_failed_init_is_noted() {
    let answer = probe("init=9", "read;drop", &[]);
    assert!(answer.devices.is_empty());
    assert!(answer.notes[0].contains("failed with DRIVER_NOT_LOADED (9)"), "{:?}", answer.notes);
    let answer = probe("init=18", "read", &[]);
    assert!(answer.notes[0].contains("LIB_RM_VERSION_MISMATCH (18)"), "{:?}", answer.notes);
    let answer = probe("count=999", "read;drop", &[]);
    assert_eq!(answer.notes, ["nvml: the devices cannot be counted: UNKNOWN (999)"]);
}

#[test]
fn a_library_that_is_not_there_or_lacks_a_function_is_noted() {
    let answer = probe("", "read", &[("AMPERE_NVML_LIBRARY", "/nowhere/libnvidia-ml.so.1")]);
    assert!(answer.notes[0].contains("/nowhere/libnvidia-ml.so.1 cannot be used: "), "{:?}", answer.notes);
    assert!(answer.notes[0].contains("No such file"), "{:?}", answer.notes);
    let folder = tempfile::tempdir().unwrap();
    let Some(library) = compile(folder.path(), "int nvmlInit(void) { return 0; }") else { return };
    let answer = probe("", "read", &[("AMPERE_NVML_LIBRARY", library.to_str().unwrap())]);
    assert!(answer.notes[0].contains("nvmlInit_v2"), "{:?}", answer.notes);
    // The library lacks only one of the required functions, and the note names it.
    let source = r#"
        unsigned nvmlInit_v2(void) { return 0; }
        unsigned nvmlShutdown(void) { return 0; }
        unsigned nvmlDeviceGetCount_v2(unsigned *n) { *n = 1; return 0; }
        unsigned nvmlDeviceGetHandleByIndex_v2(unsigned i, void **h) { *h = (void *)1; return 0; }
    "#;
    let Some(library) = compile(folder.path(), source) else { return };
    let answer = probe("", "read", &[("AMPERE_NVML_LIBRARY", library.to_str().unwrap())]);
    assert!(answer.devices.is_empty());
    assert!(answer.notes[0].contains("nvmlDeviceGetTotalEnergyConsumption"), "{:?}", answer.notes);
}

#[test]
fn the_library_is_not_loaded_without_a_driver() {
    let node = bare_node();
    let variables = [("AMPERE_SYS_ROOT", node.path().to_str().unwrap()), ("AMPERE_COUNTERS", "nvml")];
    let answer = probe_under(&[], "read", &variables);
    assert_eq!(answer.notes, ["nvml: no NVIDIA driver is loaded"]);
}

#[test]
fn nothing_is_called_when_the_process_ends() {
    let answer = probe("watts=200", "read;exit", &[]);
    assert!(answer.stderr.contains("at exit: the process is ending"), "{}", answer.stderr);
}
