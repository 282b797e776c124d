//! rocm_smi through its real interface, on the stand-in library and on libraries compiled here.

mod common;

use common::{bare_node, compile, probe, probe_under, stand_in};

#[test]
#[ignore = "a process that other tests start"]
fn probe_child() {
    common::child();
}

const NO_NOTES: [&str; 0] = [];

#[test]
fn counters_advance_as_the_power_says() {
    let told = probe("watts=300,150", "read;sleep 300;read", &[]);
    assert_eq!(told.notes, NO_NOTES);
    assert_eq!(
        told.devices,
        [
            "GPU-0|rocm_smi:::energy_count:device=0|rocm_smi|simulated|gpu|0.0000153|0000:c1:00.0|Stand-in GPU, \
             rocm_smi 5.0.0 ampere stand-in",
            "GPU-1|rocm_smi:::energy_count:device=1|rocm_smi|simulated|gpu|0.0000153|0000:c2:00.0|Stand-in GPU, \
             rocm_smi 5.0.0 ampere stand-in",
        ]
    );
    for (device, watts) in [(0, 300.0), (1, 150.0)] {
        let (first, last) = (told.seen(0, device), told.seen(1, device));
        assert_eq!(last.nanojoules, last.raw * 15_300);
        let seconds = (last.timestamp_ns.unwrap() - first.timestamp_ns.unwrap()) as f64 * 1e-9;
        assert!(seconds >= 0.3);
        // A tick at either end, and the rounding of the stand-in's own clock.
        assert!((told.joules(device, 0, 1) - watts * seconds).abs() < 1e-4, "{told:?}");
    }
}

#[test]
fn two_processes_see_the_same_counter() {
    let read = || probe("watts=200", "read", &[]).seen(0, 0);
    let (a, b) = (read(), read());
    let joules = (b.nanojoules - a.nanojoules) as f64 * 1e-9;
    let seconds = (b.timestamp_ns.unwrap() - a.timestamp_ns.unwrap()) as f64 * 1e-9;
    assert!((joules - 200.0 * seconds).abs() < 1e-4, "{joules} J in {seconds} s");
}

#[test]
fn the_librarys_resolution_is_used() {
    let told = probe("watts=200;resolution=61.035", "read", &[]);
    let seen = told.seen(0, 0);
    assert_eq!(seen.nanojoules, seen.raw * 61_035);
}

#[test]
fn the_resolution_can_be_set() {
    let set = |value| probe("watts=200", "read", &[("AMPERE_ROCM_SMI_RESOLUTION_UJ", value)]);
    let told = set("15.2587890625");
    let seen = told.seen(0, 0);
    assert_eq!(seen.nanojoules, (u128::from(seen.raw) * 1_000_000_000 / 65536) as u64);
    assert!(told.devices[0].contains("|0.0000152587890625|"));
    let nonsense = set("-3");
    assert!(nonsense.notes[0].contains("-3: use a number of 0 or more"), "{:?}", nonsense.notes);
    assert_eq!(nonsense.seen(0, 0).nanojoules, nonsense.seen(0, 0).raw * 15_300);
}

#[test]
fn a_resolution_that_makes_no_sense_is_not_used() {
    let told = probe("watts=200;resolution=1e-30", "read", &[]);
    assert!(told.devices.is_empty());
    assert!(told.notes[0].contains("AMPERE_ROCM_SMI_RESOLUTION_UJ"), "{:?}", told.notes);
    let told = probe("watts=200;resolution=1e-30", "read", &[("AMPERE_ROCM_SMI_RESOLUTION_UJ", "15.3")]);
    assert_eq!(told.names(), ["GPU-0"]);
}

#[test]
fn the_second_die_of_a_package_is_not_offered() {
    for script in ["devices=4;zero=odd", "devices=4;error=1:2,3:2"] {
        let told = probe(script, "read", &[]);
        assert_eq!(told.names(), ["GPU-0", "GPU-2"], "{script}");
        let note = |odd: u32, even: u32| {
            format!(
                "rocm_smi: device {odd} shows no energy: the second die of an MI250X package is counted by device \
                 {even}"
            )
        };
        assert_eq!(told.notes, [note(1, 0), note(3, 2)], "{script}");
        // Devices are read by the library's own index: GPU-2's name must not be given to device 1's counter.
        assert!(told.seen(0, 1).raw > 0);
    }
}

#[test]
fn a_counter_at_zero_is_no_second_die_without_a_first() {
    let told = probe("devices=2;zero=0", "read", &[]);
    assert_eq!(told.names(), ["GPU-1"]);
    assert_eq!(told.notes, ["rocm_smi: device 0's energy counter stays at 0; it is left out"]);
    let told = probe("devices=2;zero=0,1", "read", &[]);
    assert!(told.devices.is_empty());
    assert!(told.notes[1].contains("device 1's energy counter stays at 0"), "{:?}", told.notes);
    assert_eq!(told.notes[2], "rocm_smi: none of 2 devices has a usable energy counter");
}

#[test]
fn a_counter_that_begins_at_zero_is_offered() {
    let told = probe("devices=2;first_zero=1", "read", &[]);
    assert_eq!(told.names(), ["GPU-0", "GPU-1"]);
    assert_eq!(told.notes, NO_NOTES);
}

#[test]
fn a_device_that_errs_is_noted_and_the_others_go_on() {
    let told = probe("devices=3;error=0:4,1:16", "read", &[]);
    assert_eq!(told.names(), ["GPU-2"]);
    assert!(told.notes[0].contains("device 0 may not be read, PERMISSION (4)"), "{:?}", told.notes);
    assert!(told.notes[0].contains("video and render"), "{:?}", told.notes);
    assert!(told.notes[1].contains("device 1's energy cannot be read, BUSY (16)"), "{:?}", told.notes);
    assert!(told.seen(0, 0).raw > 0);
}

#[test]
fn a_reset_is_handed_on() {
    let told = probe("watts=200;reset=0@1", "read;sleep 1050;read", &[]);
    let (before, after) = (told.seen(0, 0), told.seen(1, 0));
    assert!(after.raw < before.raw);
    assert!(after.nanojoules > 0 && after.nanojoules == after.raw * 15_300);
}

#[test]
fn a_frozen_counter_shows_its_old_time() {
    let told = probe("watts=200;freeze=0@0-2", "read;sleep 50;read;sleep 2000;read", &[]);
    let (first, second, third) = (told.seen(0, 0), told.seen(1, 0), told.seen(2, 0));
    assert_eq!((first.raw, first.timestamp_ns), (second.raw, second.timestamp_ns));
    assert!(second.at_ns > first.at_ns + 50_000_000);
    assert!(told.joules(0, 0, 2) > 200.0 * 2.0);
    assert!(third.timestamp_ns > second.timestamp_ns);
}

#[test]
fn a_device_that_goes_away_is_an_error_and_the_others_go_on() {
    let told = probe("devices=2;gone=0@1", "read;sleep 1050;read", &[]);
    assert!(told.rounds[0][0].is_ok());
    assert_eq!(told.rounds[1][0], Err("rsmi_dev_energy_count_get returned NOT_FOUND (10)".to_owned()));
    assert!(told.seen(1, 1).raw > told.seen(0, 1).raw);
}

#[test]
fn a_time_that_the_driver_does_not_have_is_none() {
    let told = probe("devices=2;no_timestamp=0", "read", &[]);
    assert_eq!(told.seen(0, 0).timestamp_ns, None);
    assert!(told.seen(0, 1).timestamp_ns.is_some());
}

#[test]
fn a_slow_read_gives_the_value_all_the_same() {
    let told = probe("watts=200;slow_us=20000", "read;read", &[]);
    let (first, second) = (told.seen(0, 0), told.seen(1, 0));
    assert!(second.at_ns - first.at_ns >= 20_000_000);
    // The value is of its own time and not of the time of the answer.
    assert!(second.timestamp_ns.unwrap() + 20_000_000 <= second.at_ns);
}

#[test]
fn nothing_is_called_after_a_failed_init() {
    // The stand-in aborts the process if anything is.
    let told = probe("init=8", "read;drop", &[]);
    assert!(told.devices.is_empty());
    assert!(told.notes[0].contains("failed with INIT_ERROR (8)"), "{:?}", told.notes);
}

#[test]
fn devices_that_cannot_be_counted_are_noted() {
    let told = probe("count=2", "read;drop", &[]);
    assert_eq!(told.notes, ["rocm_smi: the devices cannot be counted: NOT_SUPPORTED (2)"]);
    let told = probe("devices=0", "read", &[]);
    assert_eq!(told.notes, ["rocm_smi: none of 0 devices has a usable energy counter"]);
}

#[test]
fn nothing_is_called_when_the_process_ends() {
    let told = probe("watts=200", "read;exit", &[]);
    assert!(told.stderr.contains("at exit: the process is ending"), "{}", told.stderr);
    assert!(told.stderr.contains("at exit: done"), "{}", told.stderr);
}

#[test]
fn automatic_takes_the_gpus_or_else_the_estimate() {
    let node = bare_node();
    let automatic = [("AMPERE_COUNTERS", ""), ("AMPERE_SYS_ROOT", node.path().to_str().unwrap())];
    assert_eq!(probe("devices=2", "", &automatic).names(), ["GPU-0", "GPU-1"]);
    let told = probe("init=8", "read", &automatic);
    assert_eq!(told.names(), ["node"]);
    assert_eq!(told.notes[1], "no energy counter was found: energy is estimated from CPU time");
    assert!(told.seen(0, 0).nanojoules > 0);
}

#[test]
fn the_sources_asked_for_are_the_ones_opened() {
    let names = |which| probe("devices=1", "read", &[("AMPERE_COUNTERS", which)]);
    assert_eq!(names("rocm_smi,estimate").names(), ["GPU-0", "node"]);
    assert_eq!(names("estimate,rocm_smi,estimate").names(), ["node", "GPU-0"]);
    assert!(names("none").devices.is_empty());
    let told = names("rappel,estimate");
    assert_eq!(told.names(), ["node"]);
    assert!(
        told.notes[0].starts_with("AMPERE_COUNTERS: \"rappel\" is not known; there are rocm_smi, "),
        "{:?}",
        told.notes
    );
    // Nothing but mistakes: as if nothing had been named.
    let node = bare_node();
    let root = ("AMPERE_SYS_ROOT", node.path().to_str().unwrap());
    let told = probe("devices=1", "read", &[("AMPERE_COUNTERS", "rappel"), root]);
    assert_eq!(told.names(), ["GPU-0"]);
    // Asked for by name and not there: no estimate in its place.
    assert!(probe("init=8", "", &[]).devices.is_empty());
}

#[test]
fn a_library_that_is_not_there_is_noted() {
    let told = probe("", "read", &[("AMPERE_ROCM_SMI_LIBRARY", "/nowhere/librocm_smi64.so")]);
    assert!(told.devices.is_empty());
    let note = &told.notes[0];
    assert!(note.contains("/nowhere/librocm_smi64.so") && note.contains("No such file"), "{note}");
}

#[test]
fn the_library_is_found_by_its_name() {
    // A tree with a GPU, so that the search is made; the loader then finds the stand-in where we say.
    let root = tempfile::tempdir().unwrap();
    let node = root.path().join("sys/class/kfd/kfd/topology/nodes/1");
    std::fs::create_dir_all(&node).unwrap();
    std::fs::write(node.join("gpu_id"), "4660\n").unwrap();
    std::fs::create_dir_all(root.path().join("sys/class/drm/card0")).unwrap();
    let link = root.path().join("librocm_smi64.so");
    std::os::unix::fs::symlink(stand_in("libstand_in_rocm_smi64.so"), link).unwrap();
    let folder = root.path().to_str().unwrap();
    let tree = root.path().to_str().unwrap();
    let variables = [("LD_LIBRARY_PATH", folder), ("AMPERE_SYS_ROOT", tree), ("AMPERE_COUNTERS", "rocm_smi")];
    let told = probe_under(&[], "read", &variables);
    assert_eq!(told.names(), ["GPU-0"], "{told:?}");
    assert!(told.devices[0].contains("stand-in"));
    // Without a GPU in sight it is not even loaded.
    std::fs::write(node.join("gpu_id"), "0\n").unwrap();
    let told = probe_under(&[], "read", &variables);
    assert!(told.devices.is_empty() && told.notes[0].contains("no AMD GPU in"), "{told:?}");
}

/// A library of 1 device with the functions that are needed and no other. Says when it is started and stopped, and ends
/// the process when two calls overlap.
const BARE: &str = r#"
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
static int inside;
static uint64_t ticks;
uint32_t rsmi_init(uint64_t flags) { fprintf(stderr, "started\n"); return 0; }
uint32_t rsmi_shut_down(void) { fprintf(stderr, "stopped\n"); return 0; }
uint32_t rsmi_num_monitor_devices(uint32_t *n) { *n = 1; return 0; }
#ifndef WITHOUT_ENERGY
uint32_t rsmi_dev_energy_count_get(uint32_t i, uint64_t *count, float *resolution, uint64_t *time) {
    if (__atomic_exchange_n(&inside, 1, __ATOMIC_SEQ_CST)) abort();
    usleep(50);
    *count = ++ticks; *resolution = 2.0f; *time = 7;
    __atomic_store_n(&inside, 0, __ATOMIC_SEQ_CST);
    return 0;
}
#endif
"#;

#[test]
fn the_optional_functions_may_be_absent() {
    let folder = tempfile::tempdir().unwrap();
    let Some(library) = compile(folder.path(), BARE) else { return };
    let told = probe("", "read;drop", &[("AMPERE_ROCM_SMI_LIBRARY", library.to_str().unwrap())]);
    assert_eq!(
        told.devices,
        ["GPU-0|rocm_smi:::energy_count:device=0|rocm_smi|measured|gpu|0.000002|-|AMD GPU, rocm_smi"]
    );
    assert_eq!(told.seen(0, 0).nanojoules, 4_000);
    assert_eq!(told.stderr.matches("started").count(), 1);
    assert_eq!(told.stderr.matches("stopped").count(), 1);
}

#[test]
fn a_function_that_is_absent_is_named_before_anything_is_called() {
    let folder = tempfile::tempdir().unwrap();
    let source = format!("#define WITHOUT_ENERGY\n{BARE}");
    let Some(library) = compile(folder.path(), &source) else { return };
    let told = probe("", "read", &[("AMPERE_ROCM_SMI_LIBRARY", library.to_str().unwrap())]);
    assert!(told.devices.is_empty());
    assert!(told.notes[0].ends_with("it has no function rsmi_dev_energy_count_get"), "{:?}", told.notes);
    assert!(!told.stderr.contains("started"));
}

#[test]
fn calls_never_overlap() {
    let folder = tempfile::tempdir().unwrap();
    let Some(library) = compile(folder.path(), BARE) else { return };
    let told = probe("", "threads;drop", &[("AMPERE_ROCM_SMI_LIBRARY", library.to_str().unwrap())]);
    assert_eq!(told.stderr.matches("stopped").count(), 2);
}
