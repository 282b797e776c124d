//! Tests amdsmi through its real interface, on the stand-in library and on libraries compiled here, and tests that no GPU is
//! counted by two sources.

mod common;

use common::{AMD_SMI, Answer, NVML, ROCM_SMI, bare_node, compile, probe_under, probe_with, put, stand_in};

#[test]
#[ignore = "a process that other tests start"]
fn probe_child() {
    common::child();
}

fn probe(script: &str, steps: &str, more: &[(&str, &str)]) -> Answer {
    probe_with(&AMD_SMI, script, steps, more)
}

const NO_NOTES: [&str; 0] = [];

#[test]
fn counters_advance_by_the_power() {
    let answer = probe("watts=300,150,75", "read;sleep 300;read", &[]);
    assert_eq!(answer.notes, NO_NOTES);
    assert_eq!(
        answer.devices[2],
        "GPU-2|amdsmi:::energy_count:device=2|amdsmi|simulated|gpu|0.0000153|0000:c3:00.0|Stand-in GPU, amdsmi \
         24.7.0.0 stand-in"
    );
    for (device, watts) in [(0, 300.0), (1, 150.0), (2, 75.0)] {
        let (first, last) = (answer.seen(0, device), answer.seen(1, device));
        assert_eq!(last.nanojoules, last.raw * 15_300);
        let seconds = (last.timestamp_ns.unwrap() - first.timestamp_ns.unwrap()) as f64 * 1e-9;
        assert!(seconds >= 0.3);
        assert!((answer.joules(device, 0, 1) - watts * seconds).abs() < 1e-4, "{answer:?}");
    }
}

#[test]
fn the_second_die_of_a_package_is_not_offered() {
    for script in ["devices=4;zero=odd", "devices=4;error=1:2,3:2"] {
        let answer = probe(script, "read", &[("STAND_IN_AMD_SMI_MODEL", "AMD Instinct MI250X")]);
        assert_eq!(answer.names(), ["GPU-0", "GPU-2"], "{script}");
        assert!(
            answer.notes[1].contains("device 3") && answer.notes[1].contains("counted by device 2"),
            "{script}"
        );
    }
}

#[test]
fn a_failing_device_is_noted_and_the_others_are_read() {
    let answer = probe("devices=3;error=0:10,1:30", "read", &[]);
    assert_eq!(answer.names(), ["GPU-2"]);
    assert!(answer.notes[0].contains("device 0 may not be read, NO_PERM (10)"), "{:?}", answer.notes);
    assert!(answer.notes[1].contains("device 1's energy cannot be read, BUSY (30)"), "{:?}", answer.notes);
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
    assert_eq!(answer.rounds[1][3], Err("amdsmi_get_energy_count returned NOT_FOUND (31)".to_owned()));
    assert!(answer.joules(3, 0, 2) > 200.0 * 3.0, "it has come back");
}

#[test]
fn nothing_is_called_after_a_failed_init() {
    // The stand-in aborts the process if anything is called.
    let answer = probe("init=34", "read;drop", &[]);
    assert!(answer.devices.is_empty());
    assert!(answer.notes[0].contains("amdsmi_init of"), "{:?}", answer.notes);
    assert!(answer.notes[0].contains("failed with DRIVER_NOT_LOADED (34)"), "{:?}", answer.notes);
}

#[test]
fn devices_that_cannot_be_listed_are_noted() {
    let answer = probe("count=7", "read;drop", &[]);
    assert!(answer.notes[0].contains("amdsmi_get_socket_handles of"), "{:?}", answer.notes);
    assert!(answer.notes[0].contains("API_FAILED (7)"), "{:?}", answer.notes);
    let answer = probe("devices=0", "read", &[]);
    assert_eq!(answer.notes, ["amdsmi: none of 0 devices has a usable energy counter"]);
}

#[test]
fn nothing_is_called_when_the_process_ends() {
    let answer = probe("watts=200", "read;exit", &[]);
    assert!(answer.stderr.contains("at exit: the process is ending"), "{}", answer.stderr);
}

#[test]
fn a_missing_or_invalid_library_is_noted() {
    let answer = probe("", "read", &[("AMPERE_AMDSMI_LIBRARY", "/nowhere/libamd_smi.so")]);
    assert!(answer.devices.is_empty());
    assert!(
        answer.notes[0].starts_with("amdsmi: /nowhere/libamd_smi.so cannot be used: "),
        "{:?}",
        answer.notes
    );
    let text = tempfile::NamedTempFile::new().unwrap();
    let answer = probe("", "read", &[("AMPERE_AMDSMI_LIBRARY", text.path().to_str().unwrap())]);
    assert!(answer.notes[0].contains("file too short"), "{:?}", answer.notes);
    // If there is no sign of a GPU and the library is not named, it is not even loaded.
    let node = bare_node();
    let variables = [("AMPERE_SYS_ROOT", node.path().to_str().unwrap()), ("AMPERE_COUNTERS", "amdsmi")];
    let answer = probe_under(&[], "read", &variables);
    assert!(answer.notes[0].starts_with("amdsmi: no AMD GPU in "), "{:?}", answer.notes);
}

/// A library of two devices with only the required functions. With `PARTITIONS`, they are partitions of one GPU.
const BARE: &str = r#"
#include <stdint.h>
#include <stdio.h>
#include <string.h>
uint32_t amdsmi_init(uint64_t flags) { fprintf(stderr, "started\n"); return 0; }
uint32_t amdsmi_shut_down(void) { fprintf(stderr, "stopped\n"); return 0; }
uint32_t amdsmi_get_socket_handles(uint32_t *n, void **h) { if (h) h[0] = (void *)1; *n = 1; return 0; }
uint32_t amdsmi_get_processor_handles(void *s, uint32_t *n, void **h) {
    if (h) { h[0] = (void *)2; h[1] = (void *)3; }
    *n = 2;
    return 0;
}
#ifndef WITHOUT_ENERGY
uint32_t amdsmi_get_energy_count(void *p, uint64_t *count, float *resolution, uint64_t *time) {
    static uint64_t ticks;
    *count = ++ticks; *resolution = 2.0f; *time = 0;
    return 0;
}
#endif
#ifdef PARTITIONS
uint32_t amdsmi_get_gpu_bdf_id(void *p, uint64_t *id) {
    *id = 0xc100 | ((uint64_t)p - 2) << 28; /* one address, two partitions */
    return 0;
}
/* ROCm 7's: no year, and a larger structure than 6.2's */
uint32_t amdsmi_get_lib_version(uint32_t *v) { v[0] = 26; v[1] = 1; v[2] = 0; *(const char **)(v + 4) = "26.1.0"; return 0; }
uint32_t amdsmi_get_gpu_asic_info(void *p, char *info) { memset(info, 'x', 1024); strcpy(info, "MI300X"); return 0; }
#endif
"#;

#[test]
fn the_optional_functions_may_be_absent() {
    let folder = tempfile::tempdir().unwrap();
    let Some(library) = compile(folder.path(), BARE) else { return };
    let answer = probe("", "read;drop", &[("AMPERE_AMDSMI_LIBRARY", library.to_str().unwrap())]);
    assert_eq!(answer.names(), ["GPU-0", "GPU-1"]);
    assert_eq!(
        answer.devices[0],
        "GPU-0|amdsmi:::energy_count:device=0|amdsmi|measured|gpu|0.000002|-|AMD GPU, amdsmi"
    );
    assert_eq!(answer.seen(0, 0).timestamp_ns, None);
    assert_eq!(answer.stderr.matches("stopped").count(), 1);
}

#[test]
fn partitions_of_a_gpu_are_one_device() {
    let folder = tempfile::tempdir().unwrap();
    let Some(library) = compile(folder.path(), &format!("#define PARTITIONS\n{BARE}")) else { return };
    let answer = probe("", "read", &[("AMPERE_AMDSMI_LIBRARY", library.to_str().unwrap())]);
    assert_eq!(
        answer.devices,
        [
            "GPU-0|amdsmi:::energy_count:device=0|amdsmi|measured|gpu|0.000002|0000:c1:00.0|MI300X, amdsmi 26.1.0"
        ]
    );
    assert_eq!(
        answer.notes,
        ["amdsmi: device 1 is a partition of GPU-0's package, which counts for all of them"]
    );
}

#[test]
fn a_function_that_is_absent_is_named_before_anything_is_called() {
    let folder = tempfile::tempdir().unwrap();
    let Some(library) = compile(folder.path(), &format!("#define WITHOUT_ENERGY\n{BARE}")) else { return };
    let answer = probe("", "read", &[("AMPERE_AMDSMI_LIBRARY", library.to_str().unwrap())]);
    assert!(answer.devices.is_empty());
    assert!(answer.notes[0].ends_with("it has no function amdsmi_get_energy_count"), "{:?}", answer.notes);
    assert!(!answer.stderr.contains("started"));
}

/// Opens the stand-ins of both of AMD's libraries, and of NVIDIA's if `nvml` is not empty, on a node without other counters.
fn with_all(which: &str, rocm_smi: &str, amd_smi: &str, nvml: &str) -> Answer {
    let node = bare_node();
    let libraries = [ROCM_SMI, AMD_SMI, NVML].map(|library| stand_in(library.0));
    let [r, a, n] = libraries.each_ref().map(|path| path.to_str().unwrap());
    let mut variables = vec![
        ("AMPERE_COUNTERS", which),
        ("AMPERE_SYS_ROOT", node.path().to_str().unwrap()),
        ("STAND_IN_ROCM_SMI", rocm_smi),
        ("STAND_IN_AMD_SMI", amd_smi),
        ("STAND_IN_NVML", nvml),
        ("AMPERE_ROCM_SMI_LIBRARY", r),
        ("AMPERE_AMDSMI_LIBRARY", a),
    ];
    if !nvml.is_empty() {
        variables.push(("AMPERE_NVML_LIBRARY", n));
    }
    probe_under(&[], "read", &variables)
}

#[test]
fn the_same_gpus_are_not_counted_twice() {
    let answer = with_all("", "devices=2", "devices=2", "");
    assert_eq!(answer.names(), ["GPU-0", "GPU-1"]);
    assert!(answer.devices.iter().all(|line| line.contains("rocm_smi:::")), "{:?}", answer.devices);
    // If the first library cannot be used, the second one is.
    let answer = with_all("", "init=8", "devices=2", "");
    assert_eq!(answer.names(), ["GPU-0", "GPU-1"]);
    assert!(answer.devices.iter().all(|line| line.contains("amdsmi:::")), "{:?}", answer.devices);
    assert!(answer.notes[0].contains("INIT_ERROR"), "{:?}", answer.notes);
    // The result is the same if both are named.
    let answer = with_all("amdsmi,rocm_smi", "devices=2", "devices=2", "");
    assert_eq!(answer.names(), ["GPU-0", "GPU-1"]);
    assert_eq!(answer.notes, ["rocm_smi: not used: amdsmi has the same counters"]);
}

/// Makes a node with an AMD GPU, and a ROCm with these files, which are the stand-ins. Returns what is opened.
fn with_rocm(files: &[&str]) -> Answer {
    let node = bare_node();
    put(&node.path().join("sys/class/kfd/kfd/topology/nodes/1/gpu_id"), "7\n");
    put(&node.path().join("sys/class/drm/card0/dev"), "226:0\n");
    for file in files {
        let library = if file.starts_with("libamd") { AMD_SMI } else { ROCM_SMI };
        put(&node.path().join("lib/empty"), "");
        std::os::unix::fs::symlink(stand_in(library.0), node.path().join("lib").join(file)).unwrap();
    }
    let root = node.path().to_str().unwrap();
    let variables = [
        ("AMPERE_SYS_ROOT", root),
        ("ROCM_PATH", root),
        ("STAND_IN_ROCM_SMI", "devices=2"),
        ("STAND_IN_AMD_SMI", "devices=2"),
    ];
    probe_under(&[], "read", &variables)
}

#[test]
fn since_rocm_7_the_newest_amdsmi_is_preferred_to_rocm_smi() {
    for (files, source) in [
        (&["librocm_smi64.so.7", "libamd_smi.so", "libamd_smi.so.25"][..], "|rocm_smi:::"),
        (&["librocm_smi64.so.7", "libamd_smi.so", "libamd_smi.so.26"], "|amdsmi:::"),
        (&["libamd_smi.so.27"], "|amdsmi:::"),
        (&["libamd_smi.so.28", "librocm_smi64.so.7"], "|amdsmi:::"),
        (&["libamd_smi.so.24"], "|amdsmi:::"),
    ] {
        let answer = with_rocm(files);
        assert_eq!(answer.names(), ["GPU-0", "GPU-1"], "{files:?}: {:?}", answer.notes);
        assert!(answer.devices.iter().all(|line| line.contains(source)), "{files:?}: {:?}", answer.devices);
    }
}

#[test]
fn gpus_of_two_vendors_have_names_of_their_own() {
    let answer = with_all("", "devices=1", "", "devices=2");
    assert_eq!(answer.names(), ["GPU-0", "GPU-0-nvml", "GPU-1"]);
    assert!(answer.devices[1].contains("|nvml:::energy:GPU-0-nvml|nvml|"), "{:?}", answer.devices);
}
