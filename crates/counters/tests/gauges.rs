//! Tests of the figures other than energy that devices report, through each library's interface and in files.

mod common;

use std::path::Path;

use ampere_counters::{Gauge, Settings, Source, open_sources};
use common::{AMD_SMI, NVML, ROCM_SMI, compile, probe_with, put};

#[test]
#[ignore = "a process that other tests start"]
fn probe_child() {
    common::child();
}

const SCRIPT: &str =
    "watts=300,150;gauge=0:edge:41.5,0:junction:-7,0:gpu:71,0:busy:100,1:socket:155,1:used:123";

#[test]
fn rocm_smi_reports_gauges_in_base_units() {
    let answer = probe_with(&ROCM_SMI, SCRIPT, "gauges", &[]);
    let expected = [
        "GPU-0 power_watts average 300",
        "GPU-0 power_watts current 300",
        "GPU-0 temperature_celsius edge 41.5",
        "GPU-0 temperature_celsius junction -7",
        "GPU-0 temperature_celsius memory 48",
        "GPU-0 busy_ratio  1",
        "GPU-0 memory_used_bytes  1000000000",
        "GPU-0 memory_size_bytes  64000000000",
        "GPU-1 power_watts average 150",
        "GPU-1 power_watts current 155",
        "GPU-1 temperature_celsius edge 41",
        "GPU-1 temperature_celsius junction 55",
        "GPU-1 temperature_celsius memory 48",
        "GPU-1 busy_ratio  0.37",
        "GPU-1 memory_used_bytes  123",
        "GPU-1 memory_size_bytes  64000000000",
    ];
    assert_eq!(answer.gauges, [expected]);
}

/// The structures are those of ROCm 6 and of ROCm 7.
#[test]
fn amdsmi_reports_the_same_in_both_layouts() {
    for release in ["6", "7"] {
        let more = [("STAND_IN_AMD_SMI_ROCM", release)];
        let answer = probe_with(&AMD_SMI, SCRIPT, "gauges", &more);
        let lines = &answer.gauges[0];
        assert_eq!(lines.len(), 16, "{lines:?}");
        for expected in [
            "GPU-0 power_watts average 300",
            "GPU-0 temperature_celsius edge 41",
            "GPU-0 temperature_celsius junction -7",
            "GPU-0 busy_ratio  1",
            "GPU-1 power_watts average 150",
            "GPU-1 power_watts current 155",
            "GPU-1 memory_used_bytes  123",
            "GPU-1 memory_size_bytes  64000000000",
        ] {
            assert!(lines.iter().any(|line| line == expected), "ROCm {release}: {expected}: {lines:?}");
        }
        // An MI300 has no average, an MI200 no present power.
        let answer = probe_with(&AMD_SMI, "watts=94;gauge_error=0:socket:2", "gauges", &more);
        assert_eq!(answer.gauges[0][..2], ["GPU-0 power_watts average 94", "GPU-0 power_watts current -"]);
        let answer = probe_with(&AMD_SMI, "watts=717;gauge_error=0:power:2", "gauges", &more);
        assert_eq!(answer.gauges[0][..2], ["GPU-0 power_watts average -", "GPU-0 power_watts current 717"]);
    }
}

#[test]
fn nvml_reports_gauges_in_base_units() {
    let answer = probe_with(&NVML, SCRIPT, "gauges", &[]);
    let expected = [
        "GPU-0 power_watts usage 300",
        "GPU-0 temperature_celsius gpu 71",
        "GPU-0 busy_ratio  1",
        "GPU-0 memory_used_bytes  1000000000",
        "GPU-0 memory_size_bytes  64000000000",
        "GPU-0 clock_hertz  1500000000",
        "GPU-0 power_limit_watts  700",
        "GPU-0 throttled_ratio thermal 0",
        "GPU-0 throttled_ratio power 0",
    ];
    assert_eq!(answer.gauges[0][..9], expected);
    // 0x04: the limit of the software; 0x40: a temperature, by the hardware; 0x01: the GPU is idle, which is not throttling.
    for (reasons, thermal, power) in [(0x04, 0, 1), (0x41, 1, 0), (0x01, 0, 0), (0xe4, 1, 1)] {
        let answer = probe_with(&NVML, &format!("watts=300;gauge=0:reasons:{reasons}"), "gauges", &[]);
        let expected = [
            format!("GPU-0 throttled_ratio thermal {thermal}"),
            format!("GPU-0 throttled_ratio power {power}"),
        ];
        assert_eq!(answer.gauges[0][7..], expected, "{reasons:#x}");
    }
}

#[test]
fn a_failing_or_impossible_gauge_is_omitted_and_the_others_are_reported() {
    for (stand_in, busy) in [(&ROCM_SMI, "65535"), (&AMD_SMI, "65535"), (&NVML, "101")] {
        let script = format!("gauge_error=0:used:2,0:power:2;gauge=0:busy:{busy}");
        let answer = probe_with(stand_in, &script, "read;gauges;read", &[]);
        let lines = &answer.gauges[0];
        let none = |what: &str| lines.iter().any(|line| line == &format!("GPU-0 {what} -"));
        assert!(none("memory_used_bytes ") && none("busy_ratio "), "{lines:?}");
        assert!(none("power_watts average") || none("power_watts usage"), "{lines:?}");
        // NVML has one function for used and total memory.
        let reports = |what: &str| lines.iter().any(|line| line.contains(what) && !line.ends_with('-'));
        assert!(reports("temperature_celsius"), "{lines:?}");
        assert!(reports("memory_size_bytes") || stand_in.0 == NVML.0, "{lines:?}");
        assert!(answer.joules(0, 0, 1) >= 0.0);
    }
}

/// A library of one device with the required functions and that of one gauge.
#[test]
fn a_gauge_whose_function_the_library_lacks_is_omitted() {
    let folder = tempfile::tempdir().unwrap();
    let source = r#"
        #include <stdint.h>
        uint32_t rsmi_init(uint64_t flags) { return 0; }
        uint32_t rsmi_shut_down(void) { return 0; }
        uint32_t rsmi_num_monitor_devices(uint32_t *n) { *n = 1; return 0; }
        uint32_t rsmi_dev_energy_count_get(uint32_t i, uint64_t *e, float *r, uint64_t *t) {
            *e = 1000; *r = 15.3f; *t = 5; return 0;
        }
        uint32_t rsmi_dev_busy_percent_get(uint32_t i, uint32_t *percent) { *percent = 50; return 0; }
    "#;
    let Some(library) = compile(folder.path(), source) else { return };
    let named = [("AMPERE_ROCM_SMI_LIBRARY", library.to_str().unwrap())];
    let answer = probe_with(&ROCM_SMI, "", "gauges", &named);
    assert_eq!(answer.gauges, [["GPU-0 busy_ratio  0.5"]]);
    // The library for NVML also has only the required functions and that of one gauge.
    let source = r#"
        unsigned nvmlInit_v2(void) { return 0; }
        unsigned nvmlShutdown(void) { return 0; }
        unsigned nvmlDeviceGetCount_v2(unsigned *n) { *n = 1; return 0; }
        unsigned nvmlDeviceGetHandleByIndex_v2(unsigned i, void **h) { *h = (void *)1; return 0; }
        unsigned nvmlDeviceGetTotalEnergyConsumption(void *h, unsigned long long *mj) { *mj = 7; return 0; }
        unsigned nvmlDeviceGetPowerUsage(void *h, unsigned *mw) { *mw = 70500; return 0; }
    "#;
    let Some(library) = compile(folder.path(), source) else { return };
    let answer = probe_with(&NVML, "", "gauges", &[("AMPERE_NVML_LIBRARY", library.to_str().unwrap())]);
    assert_eq!(answer.gauges, [["GPU-0 power_watts usage 70.5"]]);
}

/// librocm_smi64 5.2.3 crashes if it is asked for a gauge of a GPU for which the kernel shows no sensors.
#[test]
fn without_sensors_a_library_is_not_asked_for_their_gauges() {
    let folder = tempfile::tempdir().unwrap();
    let source = r#"
        #include <stdint.h>
        #include <stdlib.h>
        uint32_t rsmi_init(uint64_t flags) { return 0; }
        uint32_t rsmi_shut_down(void) { return 0; }
        uint32_t rsmi_num_monitor_devices(uint32_t *n) { *n = 1; return 0; }
        uint32_t rsmi_dev_energy_count_get(uint32_t i, uint64_t *e, float *r, uint64_t *t) {
            *e = 1000; *r = 15.3f; *t = 5; return 0;
        }
        uint32_t rsmi_dev_pci_id_get(uint32_t i, uint64_t *id) { *id = 0xc100; return 0; }
        uint32_t rsmi_dev_power_ave_get(uint32_t i, uint32_t s, uint64_t *uw) {
            if (!getenv("SENSORS")) abort();
            *uw = 90000000; return 0;
        }
        uint32_t rsmi_dev_temp_metric_get(uint32_t i, uint32_t s, uint32_t m, int64_t *t) {
            if (!getenv("SENSORS")) abort();
            *t = 41000; return s > 0 ? 2 : 0;
        }
    "#;
    let Some(library) = compile(folder.path(), source) else { return };
    let root = tempfile::tempdir().unwrap();
    let variables = |more: &[(&'static str, &str)]| {
        let mut all = vec![
            ("AMPERE_ROCM_SMI_LIBRARY", library.to_str().unwrap().to_owned()),
            ("AMPERE_SYS_ROOT", root.path().to_str().unwrap().to_owned()),
        ];
        all.extend(more.iter().map(|(name, value)| (*name, (*value).to_owned())));
        all
    };
    let probe = |more: &[(&'static str, &str)]| {
        let all = variables(more);
        let all: Vec<(&str, &str)> = all.iter().map(|(name, value)| (*name, value.as_str())).collect();
        probe_with(&ROCM_SMI, "", "gauges", &all)
    };
    assert_eq!(probe(&[]).gauges, [[""; 0]]);
    // Sensors of another GPU do not count.
    let chip = |number: u32, address: &str| {
        let device = root.path().join("sys/devices").join(address);
        std::fs::create_dir_all(&device).unwrap();
        let chip = root.path().join(format!("sys/class/hwmon/hwmon{number}"));
        put(&chip.join("name"), "amdgpu\n");
        std::os::unix::fs::symlink(device, chip.join("device")).unwrap();
    };
    chip(0, "0000:c3:00.0");
    assert_eq!(probe(&[]).gauges, [[""; 0]]);
    chip(1, "0000:c1:00.0");
    let answer = probe(&[("SENSORS", "1")]);
    assert_eq!(answer.gauges[0].len(), 4);
    assert_eq!(
        answer.gauges[0][..3],
        [
            "GPU-0 power_watts average 90",
            "GPU-0 temperature_celsius edge 41",
            "GPU-0 temperature_celsius junction -"
        ]
    );
}

/// The clock, the limit and the throttling of an AMD GPU are in files of the kernel, for both of AMD's libraries.
#[test]
fn an_amd_gpu_has_the_clock_limit_and_throttling_of_the_kernels_files() {
    let root = tempfile::tempdir().unwrap();
    let device = root.path().join("sys/devices/0000:c1:00.0");
    let chip = root.path().join("sys/class/hwmon/hwmon0");
    put(&chip.join("name"), "amdgpu\n");
    put(&chip.join("freq1_input"), "1700000000\n");
    put(&chip.join("power1_cap"), "560000000\n");
    // Version 1.3, throttled because of the hot spot's temperature (bit 36).
    let mut metrics = [0; 120];
    metrics[..4].copy_from_slice(&[120, 0, 1, 3]);
    metrics[116] = 1 << 4;
    std::fs::create_dir_all(&device).unwrap();
    std::fs::write(device.join("gpu_metrics"), metrics).unwrap();
    std::os::unix::fs::symlink(&device, chip.join("device")).unwrap();
    for stand_in in [&ROCM_SMI, &AMD_SMI] {
        let root = [("AMPERE_SYS_ROOT", root.path().to_str().unwrap())];
        let answer = probe_with(stand_in, "watts=300,150", "gauges", &root);
        let lines: Vec<_> = answer.gauges[0].iter().skip(8).take(4).collect();
        assert_eq!(
            lines,
            [
                "GPU-0 clock_hertz  1700000000",
                "GPU-0 power_limit_watts  560",
                "GPU-0 throttled_ratio thermal 1",
                "GPU-0 throttled_ratio power 0",
            ]
        );
        // The other GPU has no files, and so no such gauges.
        assert_eq!(answer.gauges[0].len(), 8 + 4 + 8);
    }
}

#[test]
fn a_package_has_the_clock_and_throttling_of_its_cpus_and_its_power_limit() {
    let root = tempfile::tempdir().unwrap();
    let at = |path: &str, text: &str| put(&root.path().join(path), text);
    for zone in ["0", "0:0", "1"] {
        let folder = format!("sys/class/powercap/intel-rapl:{zone}");
        let name = if zone == "0:0" { "dram".to_owned() } else { format!("package-{zone}") };
        at(&format!("{folder}/name"), &name);
        at(&format!("{folder}/energy_uj"), "123456\n");
        at(&format!("{folder}/constraint_0_name"), "long_term\n");
        at(&format!("{folder}/constraint_0_power_limit_uw"), "225000000\n");
        at(&format!("{folder}/enabled"), if zone == "1" { "0\n" } else { "1\n" });
    }
    at("sys/devices/system/cpu/cpu0/topology/physical_package_id", "0\n");
    at("sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq", "2100000\n");
    at("sys/devices/system/cpu/cpu0/thermal_throttle/package_throttle_total_time_ms", "17\n");
    let mut source = open(root.path(), "rapl");
    let place = |name: &str| source.devices().iter().position(|device| device.name == name).unwrap();
    let first = place("package-0");
    let memory = place("package-0-dram");
    let second = place("package-1");
    assert_eq!(source.gauges(first), [Gauge::Clock, Gauge::ThermalThrottling, Gauge::PowerLimit]);
    let values = [Gauge::Clock, Gauge::ThermalThrottling, Gauge::PowerLimit, Gauge::Busy]
        .map(|gauge| source.gauge(first, gauge));
    assert_eq!(values, [Some(2.1e9), Some(0.0), Some(225.0), None]);
    // A limit that is switched off is not a gauge, and the only CPU belongs to the first package.
    assert_eq!((source.gauges(memory), source.gauges(second)), (&[][..], &[][..]));
}

fn open(root: &Path, name: &'static str) -> Box<dyn Source> {
    let names = Some(vec![name]);
    let opened = open_sources(&Settings { names, sys_root: root.to_owned(), ..Settings::default() });
    opened.sources.into_iter().next().unwrap()
}

#[test]
fn crays_power_belongs_to_its_energy() {
    let root = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| put(&root.path().join("sys/cray/pm_counters").join(name), text);
    file("energy", "4721362 J 1700000000123456 us\n");
    file("power", "812 W 1700000000123456 us\n");
    file("cpu_energy", "721362 J 1700000000123456 us\n");
    file("cpu_power", "200 W 1700000000123456 us\n");
    file("accel0_energy", "721362 J 1700000000123456 us\n");
    let mut source = open(root.path(), "cray_pm");
    assert_eq!(source.gauges(0), [Gauge::CurrentPower]);
    assert_eq!(source.gauge(0, Gauge::CurrentPower), Some(812.0));
    assert_eq!(source.gauge(0, Gauge::AveragePower), None);
    // accel0 has no such file; cpu has.
    assert_eq!((source.gauges(1).len(), source.gauges(2).len()), (0, 1));
    assert_eq!(source.gauge(1, Gauge::CurrentPower), None);
    assert_eq!(source.gauge(2, Gauge::CurrentPower), Some(200.0));
    file("cpu_power", "out of order\n");
    assert_eq!(source.gauge(2, Gauge::CurrentPower), None);
    file("cpu_power", "201 W 1 us\n");
    assert_eq!(source.gauge(2, Gauge::CurrentPower), Some(201.0));
    assert_eq!((source.gauges(99).len(), source.gauge(99, Gauge::CurrentPower)), (0, None));
}

#[test]
fn hwmon_shows_the_power_that_it_integrates() {
    let root = tempfile::tempdir().unwrap();
    let chip = root.path().join("sys/class/hwmon/hwmon0");
    put(&chip.join("name"), "amdgpu\n");
    put(&chip.join("power1_input"), "90500000\n");
    let other = root.path().join("sys/class/hwmon/hwmon1");
    put(&other.join("name"), "xe\n");
    put(&other.join("energy1_input"), "90000000\n");
    let mut source = open(root.path(), "hwmon");
    assert_eq!(source.gauges(0), [Gauge::CurrentPower]);
    assert_eq!(source.gauge(0, Gauge::CurrentPower), None, "not read yet");
    source.read(0).unwrap();
    assert_eq!(source.gauge(0, Gauge::CurrentPower), Some(90.5));
    assert_eq!(source.gauges(1), []);
    assert_eq!(source.gauge(1, Gauge::CurrentPower), None);
}
