//! Tests rocm_smi through its real interface, on the stand-in library and on libraries compiled here.

mod common;

use common::{bare_node, compile, probe, probe_under, stand_in};

#[test]
#[ignore = "a process that other tests start"]
fn probe_child() {
    common::child();
}

const NO_NOTES: [&str; 0] = [];

#[test]
fn counters_advance_by_the_power() {
    let answer = probe("watts=300,150", "read;sleep 300;read", &[]);
    assert_eq!(answer.notes, NO_NOTES);
    assert_eq!(
        answer.devices,
        [
            "GPU-0|rocm_smi:::energy_count:device=0|rocm_smi|simulated|gpu|0.0000153|0000:c1:00.0|Stand-in GPU, \
             rocm_smi 5.0.0 ampere stand-in",
            "GPU-1|rocm_smi:::energy_count:device=1|rocm_smi|simulated|gpu|0.0000153|0000:c2:00.0|Stand-in GPU, \
             rocm_smi 5.0.0 ampere stand-in",
        ]
    );
    for (device, watts) in [(0, 300.0), (1, 150.0)] {
        let (first, last) = (answer.seen(0, device), answer.seen(1, device));
        assert_eq!(last.nanojoules, last.raw * 15_300);
        let seconds = (last.timestamp_ns.unwrap() - first.timestamp_ns.unwrap()) as f64 * 1e-9;
        assert!(seconds >= 0.3);
        // The tolerance is a tick at either end, and the rounding of the stand-in's own clock.
        assert!((answer.joules(device, 0, 1) - watts * seconds).abs() < 1e-4, "{answer:?}");
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
    let answer = probe("watts=200;resolution=61.035", "read", &[]);
    let seen = answer.seen(0, 0);
    assert_eq!(seen.nanojoules, seen.raw * 61_035);
}

#[test]
fn the_resolution_can_be_set() {
    let set = |value| probe("watts=200", "read", &[("AMPERE_ROCM_SMI_RESOLUTION_UJ", value)]);
    let answer = set("15.2587890625");
    let seen = answer.seen(0, 0);
    assert_eq!(seen.nanojoules, (u128::from(seen.raw) * 1_000_000_000 / 65536) as u64);
    assert!(answer.devices[0].contains("|0.0000152587890625|"));
    let nonsense = set("-3");
    assert!(nonsense.notes[0].contains("-3: use a number of 0 or more"), "{:?}", nonsense.notes);
    assert_eq!(nonsense.seen(0, 0).nanojoules, nonsense.seen(0, 0).raw * 15_300);
}

#[test]
fn a_resolution_that_makes_no_sense_is_not_used() {
    let answer = probe("watts=200;resolution=1e-30", "read", &[]);
    assert!(answer.devices.is_empty());
    assert!(answer.notes[0].contains("AMPERE_ROCM_SMI_RESOLUTION_UJ"), "{:?}", answer.notes);
    let answer = probe("watts=200;resolution=1e-30", "read", &[("AMPERE_ROCM_SMI_RESOLUTION_UJ", "15.3")]);
    assert_eq!(answer.names(), ["GPU-0"]);
}

#[test]
fn the_second_die_of_a_package_is_not_offered() {
    for script in ["devices=4;zero=odd", "devices=4;error=1:2,3:2"] {
        let answer = probe(script, "read", &[("STAND_IN_ROCM_SMI_MODEL", "AMD Instinct MI250X")]);
        assert_eq!(answer.names(), ["GPU-0", "GPU-2"], "{script}");
        let note = |odd: u32, even: u32| {
            format!(
                "rocm_smi: device {odd} shows no energy: the second die of an MI250X package is counted by device \
                 {even}"
            )
        };
        assert_eq!(answer.notes, [note(1, 0), note(3, 2)], "{script}");
        // Devices are read by the library's own index: GPU-2's name must not be given to device 1's counter.
        assert!(answer.seen(0, 1).raw > 0);
    }
}

#[test]
fn a_counter_at_zero_is_a_second_die_only_of_a_model_that_has_two() {
    let answer = probe("devices=2;zero=1", "read", &[("STAND_IN_ROCM_SMI_MODEL", "AMD Instinct MI210")]);
    assert_eq!(answer.names(), ["GPU-0"]);
    assert_eq!(answer.notes, ["rocm_smi: device 1's energy counter stays at 0; it is not used"]);
}

#[test]
fn a_counter_at_zero_is_not_a_second_die_without_a_first_one() {
    let answer = probe("devices=2;zero=0", "read", &[]);
    assert_eq!(answer.names(), ["GPU-1"]);
    assert_eq!(answer.notes, ["rocm_smi: device 0's energy counter stays at 0; it is not used"]);
    let answer = probe("devices=2;zero=0,1", "read", &[]);
    assert!(answer.devices.is_empty());
    assert!(answer.notes[1].contains("device 1's energy counter stays at 0"), "{:?}", answer.notes);
    assert_eq!(answer.notes[2], "rocm_smi: none of 2 devices has a usable energy counter");
}

#[test]
fn a_counter_that_starts_at_zero_is_offered() {
    let answer = probe("devices=2;first_zero=1", "read", &[]);
    assert_eq!(answer.names(), ["GPU-0", "GPU-1"]);
    assert_eq!(answer.notes, NO_NOTES);
}

#[test]
fn a_failing_device_is_noted_and_the_others_are_read() {
    let answer = probe("devices=3;error=0:4,1:16", "read", &[]);
    assert_eq!(answer.names(), ["GPU-2"]);
    assert!(answer.notes[0].contains("device 0 may not be read, PERMISSION (4)"), "{:?}", answer.notes);
    assert!(answer.notes[0].contains("video and render"), "{:?}", answer.notes);
    assert!(answer.notes[1].contains("device 1's energy cannot be read, BUSY (16)"), "{:?}", answer.notes);
    assert!(answer.seen(0, 0).raw > 0);
}

#[test]
fn a_reset_is_passed_on() {
    let answer = probe("watts=200;reset=0@1", "read;sleep 1050;read", &[]);
    let (before, after) = (answer.seen(0, 0), answer.seen(1, 0));
    assert!(after.raw < before.raw);
    assert!(after.nanojoules > 0 && after.nanojoules == after.raw * 15_300);
}

#[test]
fn a_frozen_counter_shows_its_old_time() {
    let answer = probe("watts=200;freeze=0@0-2", "read;sleep 50;read;sleep 2000;read", &[]);
    let first = answer.seen(0, 0);
    let second = answer.seen(1, 0);
    let third = answer.seen(2, 0);
    assert_eq!((first.raw, first.timestamp_ns), (second.raw, second.timestamp_ns));
    assert!(second.at_ns > first.at_ns + 50_000_000);
    assert!(answer.joules(0, 0, 2) > 200.0 * 2.0);
    assert!(third.timestamp_ns > second.timestamp_ns);
}

#[test]
fn a_removed_device_is_an_error_and_the_others_are_read() {
    let answer = probe("devices=2;gone=0@1", "read;sleep 1050;read", &[]);
    assert!(answer.rounds[0][0].is_ok());
    assert_eq!(answer.rounds[1][0], Err("rsmi_dev_energy_count_get returned NOT_FOUND (10)".to_owned()));
    assert!(answer.seen(1, 1).raw > answer.seen(0, 1).raw);
}

#[test]
fn a_time_that_the_driver_lacks_is_not_reported() {
    let answer = probe("devices=2;no_timestamp=0", "read", &[]);
    assert_eq!(answer.seen(0, 0).timestamp_ns, None);
    assert!(answer.seen(0, 1).timestamp_ns.is_some());
}

#[test]
fn a_slow_read_still_gives_the_value() {
    let answer = probe("watts=200;slow_us=20000", "read;read", &[]);
    let (first, second) = (answer.seen(0, 0), answer.seen(1, 0));
    assert!(second.at_ns - first.at_ns >= 20_000_000);
    // The value belongs to its own time and not to the time of the answer.
    assert!(second.timestamp_ns.unwrap() + 20_000_000 <= second.at_ns);
}

#[test]
fn nothing_is_called_after_a_failed_init() {
    // The stand-in aborts the process if anything is called.
    let answer = probe("init=8", "read;drop", &[]);
    assert!(answer.devices.is_empty());
    assert!(answer.notes[0].contains("failed with INIT_ERROR (8)"), "{:?}", answer.notes);
}

#[test]
fn devices_that_cannot_be_counted_are_noted() {
    let answer = probe("count=2", "read;drop", &[]);
    assert_eq!(answer.notes, ["rocm_smi: the devices cannot be counted: NOT_SUPPORTED (2)"]);
    let answer = probe("devices=0", "read", &[]);
    assert_eq!(answer.notes, ["rocm_smi: none of 0 devices has a usable energy counter"]);
}

#[test]
fn nothing_is_called_when_the_process_ends() {
    let answer = probe("watts=200", "read;exit", &[]);
    assert!(answer.stderr.contains("at exit: the process is ending"), "{}", answer.stderr);
    assert!(answer.stderr.contains("at exit: done"), "{}", answer.stderr);
}

#[test]
fn automatic_takes_the_gpus_or_else_the_estimate() {
    let node = bare_node();
    let automatic = [("AMPERE_COUNTERS", ""), ("AMPERE_SYS_ROOT", node.path().to_str().unwrap())];
    assert_eq!(probe("devices=2", "", &automatic).names(), ["GPU-0", "GPU-1"]);
    let answer = probe("init=8", "read", &automatic);
    assert_eq!(answer.names(), ["node"]);
    assert_eq!(answer.notes[1], "no energy counter was found: energy is estimated from CPU time");
    assert!(answer.seen(0, 0).nanojoules > 0);
}

#[test]
fn the_sources_asked_for_are_the_ones_opened() {
    let names = |which| probe("devices=1", "read", &[("AMPERE_COUNTERS", which)]);
    assert_eq!(names("rocm_smi,estimate").names(), ["GPU-0", "node"]);
    assert_eq!(names("estimate,rocm_smi,estimate").names(), ["node", "GPU-0"]);
    assert!(names("none").devices.is_empty());
    let answer = names("rappel,estimate");
    assert_eq!(answer.names(), ["node"]);
    assert!(
        answer.notes[0].starts_with("AMPERE_COUNTERS: \"rappel\" is not known; there are rocm_smi, "),
        "{:?}",
        answer.notes
    );
    // If all names are mistakes, the result is as if nothing had been named.
    let node = bare_node();
    let root = ("AMPERE_SYS_ROOT", node.path().to_str().unwrap());
    let answer = probe("devices=1", "read", &[("AMPERE_COUNTERS", "rappel"), root]);
    assert_eq!(answer.names(), ["GPU-0"]);
    // If a source is requested by name and absent, no estimate replaces it.
    assert!(probe("init=8", "", &[]).devices.is_empty());
}

#[test]
fn a_library_that_is_not_there_is_noted() {
    let answer = probe("", "read", &[("AMPERE_ROCM_SMI_LIBRARY", "/nowhere/librocm_smi64.so")]);
    assert!(answer.devices.is_empty());
    let note = &answer.notes[0];
    assert!(note.contains("/nowhere/librocm_smi64.so") && note.contains("No such file"), "{note}");
}

#[test]
fn the_library_is_found_by_its_name() {
    // The tree has a GPU, so that the search is made; the loader then finds the stand-in at the given place.
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
    let answer = probe_under(&[], "read", &variables);
    assert_eq!(answer.names(), ["GPU-0"], "{answer:?}");
    assert!(answer.devices[0].contains("stand-in"));
    // Without a sign of a GPU the library is not even loaded.
    std::fs::write(node.join("gpu_id"), "0\n").unwrap();
    let answer = probe_under(&[], "read", &variables);
    assert!(answer.devices.is_empty() && answer.notes[0].contains("no AMD GPU in"), "{answer:?}");
}

/// A library of one device with only the required functions. It reports when it is started and stopped, and ends the process when
/// two calls overlap.
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
    let answer = probe("", "read;drop", &[("AMPERE_ROCM_SMI_LIBRARY", library.to_str().unwrap())]);
    assert_eq!(
        answer.devices,
        ["GPU-0|rocm_smi:::energy_count:device=0|rocm_smi|measured|gpu|0.000002|-|AMD GPU, rocm_smi"]
    );
    assert_eq!(answer.seen(0, 0).nanojoules, 4_000);
    assert_eq!(answer.stderr.matches("started").count(), 1);
    assert_eq!(answer.stderr.matches("stopped").count(), 1);
}

#[test]
fn a_function_that_is_absent_is_named_before_anything_is_called() {
    let folder = tempfile::tempdir().unwrap();
    let source = format!("#define WITHOUT_ENERGY\n{BARE}");
    let Some(library) = compile(folder.path(), &source) else { return };
    let answer = probe("", "read", &[("AMPERE_ROCM_SMI_LIBRARY", library.to_str().unwrap())]);
    assert!(answer.devices.is_empty());
    assert!(answer.notes[0].ends_with("it has no function rsmi_dev_energy_count_get"), "{:?}", answer.notes);
    assert!(!answer.stderr.contains("started"));
}

#[test]
fn calls_never_overlap() {
    let folder = tempfile::tempdir().unwrap();
    let Some(library) = compile(folder.path(), BARE) else { return };
    let answer = probe("", "threads;drop", &[("AMPERE_ROCM_SMI_LIBRARY", library.to_str().unwrap())]);
    assert_eq!(answer.stderr.matches("stopped").count(), 2);
}
