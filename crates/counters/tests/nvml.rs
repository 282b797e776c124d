//! NVML through its real interface, on the stand-in library.

mod common;

use common::{NVML, Told, bare_node, compile, probe_under, probe_with};

#[test]
#[ignore = "a process that other tests start"]
fn probe_child() {
    common::child();
}

fn probe(script: &str, steps: &str, more: &[(&str, &str)]) -> Told {
    probe_with(&NVML, script, steps, more)
}

const NO_NOTES: [&str; 0] = [];

#[test]
fn counters_advance_as_the_power_says() {
    let told = probe("watts=300,150", "read;sleep 300;read", &[]);
    assert_eq!(told.notes, NO_NOTES);
    assert_eq!(
        told.devices[1],
        "GPU-1|nvml:::total_energy_consumption:device=1|nvml|simulated|gpu|0.001|0000:c2:00.0|Stand-in GPU, driver \
         535.0 stand-in"
    );
    for (device, watts) in [(0, 300.0), (1, 150.0)] {
        let (first, last) = (told.seen(0, device), told.seen(1, device));
        assert_eq!(last.nanojoules, last.raw * 1_000_000);
        let seconds = (last.at_ns - first.at_ns) as f64 * 1e-9;
        let joules = told.joules(device, 0, 1);
        assert!((joules / (watts * seconds) - 1.0).abs() < 0.05, "{joules} J in {seconds} s at {watts} W");
    }
}

#[test]
fn a_gpu_before_volta_is_left_out_with_a_word() {
    let told = probe("devices=2;error=0:3", "read", &[]);
    assert_eq!(told.names(), ["GPU-1"]);
    assert_eq!(
        told.notes,
        [
            "nvml: device 0 (Stand-in GPU) has no energy counter (NOT_SUPPORTED (3)): GPUs before Volta have none; it is \
          left out"
        ]
    );
    let told = probe("devices=1;error=0:3", "read", &[]);
    assert_eq!(told.notes[1], "nvml: none of 1 devices has a usable energy counter");
}

#[test]
fn a_device_that_errs_is_noted_and_the_others_go_on() {
    let told = probe("devices=3;error=0:4,1:77", "read", &[]);
    assert_eq!(told.names(), ["GPU-2"]);
    assert!(told.notes[0].contains("may not be read, NO_PERMISSION (4)"), "{:?}", told.notes);
    assert!(told.notes[1].contains("device 1's energy cannot be read, UNKNOWN (999)"), "{:?}", told.notes);
}

#[test]
fn a_counter_may_go_back_stand_still_jump_and_go_away() {
    let told = probe(
        "watts=200,200,200,200;reset=0@0.3;freeze=1@0-5;jump=2@0.3;gone=3@0.3-0.5",
        "read;sleep 350;read;sleep 300;read",
        &[],
    );
    assert!(told.seen(1, 0).raw < told.seen(0, 0).raw);
    assert_eq!(told.seen(1, 1).raw, told.seen(0, 1).raw);
    assert!(told.joules(2, 0, 1) > 1e9);
    assert_eq!(
        told.rounds[1][3],
        Err("nvmlDeviceGetTotalEnergyConsumption returned GPU_IS_LOST (15)".to_owned())
    );
    assert!(told.joules(3, 0, 2) > 200.0 * 0.6, "it has come back");
}

#[test]
fn a_failed_init_is_noted() {
    let told = probe("init=9", "read;drop", &[]);
    assert!(told.devices.is_empty());
    assert!(told.notes[0].contains("failed with DRIVER_NOT_LOADED (9)"), "{:?}", told.notes);
    let told = probe("init=18", "read", &[]);
    assert!(told.notes[0].contains("LIB_RM_VERSION_MISMATCH (18)"), "{:?}", told.notes);
    let told = probe("count=999", "read;drop", &[]);
    assert_eq!(told.notes, ["nvml: the devices cannot be counted: UNKNOWN (999)"]);
}

#[test]
fn a_library_that_is_not_there_or_lacks_a_function_is_noted() {
    let told = probe("", "read", &[("AMPERE_NVML_LIBRARY", "/nowhere/libnvidia-ml.so.1")]);
    assert!(told.notes[0].contains("/nowhere/libnvidia-ml.so.1 cannot be used: "), "{:?}", told.notes);
    assert!(told.notes[0].contains("No such file"), "{:?}", told.notes);
    let folder = tempfile::tempdir().unwrap();
    let Some(library) = compile(folder.path(), "int nvmlInit(void) { return 0; }") else { return };
    let told = probe("", "read", &[("AMPERE_NVML_LIBRARY", library.to_str().unwrap())]);
    assert!(told.notes[0].contains("nvmlInit_v2"), "{:?}", told.notes);
    // All but the one function that is needed: each GPU is said to lack it.
    let source = r#"
        unsigned nvmlInit_v2(void) { return 0; }
        unsigned nvmlShutdown(void) { return 0; }
        unsigned nvmlDeviceGetCount_v2(unsigned *n) { *n = 1; return 0; }
        unsigned nvmlDeviceGetHandleByIndex_v2(unsigned i, void **h) { *h = (void *)1; return 0; }
    "#;
    let Some(library) = compile(folder.path(), source) else { return };
    let told = probe("", "read", &[("AMPERE_NVML_LIBRARY", library.to_str().unwrap())]);
    assert!(told.devices.is_empty());
    assert!(told.notes[0].contains("nvmlDeviceGetTotalEnergyConsumption"), "{:?}", told.notes);
}

#[test]
fn without_a_driver_it_is_not_loaded() {
    let node = bare_node();
    let variables = [("AMPERE_SYS_ROOT", node.path().to_str().unwrap()), ("AMPERE_COUNTERS", "nvml")];
    let told = probe_under(&[], "read", &variables);
    assert_eq!(told.notes, ["nvml: no NVIDIA driver is loaded"]);
}

#[test]
fn nothing_is_called_when_the_process_ends() {
    let told = probe("watts=200", "read;exit", &[]);
    assert!(told.stderr.contains("at exit: the process is ending"), "{}", told.stderr);
}
