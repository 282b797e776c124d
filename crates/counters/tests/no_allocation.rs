//! Reading a counter or a gauge allocates nothing.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::path::{Path, PathBuf};

use ampere_counters::{Gauge, ReadError, Settings, open_sources};

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: all calls are passed on to the system's allocator; the count is in a thread's own cell, which has no destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller keeps this function's contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps this function's contract.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

fn put(path: PathBuf, text: &str) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

/// Makes a node with every kind of file.
fn tree(root: &Path) {
    put(root.join("proc/stat"), "cpu  100 0 0 5000 0 0 0 0 0 0\n");
    let zone = root.join("sys/class/powercap/intel-rapl:0");
    put(zone.join("name"), "package-0\n");
    put(zone.join("energy_uj"), "123456\n");
    put(zone.join("max_energy_range_uj"), "262143328850\n");
    put(zone.join("constraint_0_name"), "long_term\n");
    put(zone.join("constraint_0_power_limit_uw"), "225000000\n");
    let cpu = root.join("sys/devices/system/cpu/cpu0");
    put(cpu.join("topology/physical_package_id"), "0\n");
    put(cpu.join("cpufreq/scaling_cur_freq"), "2100000\n");
    put(cpu.join("thermal_throttle/package_throttle_total_time_ms"), "17\n");
    let cray = root.join("sys/cray/pm_counters");
    put(cray.join("energy"), "4721362 J 1700000000123456 us\n");
    put(cray.join("cpu_energy"), "721362 J 1700000000123456 us\n");
    put(cray.join("power"), "812 W 1700000000123456 us\n");
    put(cray.join("freshness"), "17\n");
    let chip = root.join("sys/class/hwmon/hwmon0");
    put(chip.join("name"), "amdgpu\n");
    put(chip.join("power1_average"), "90000000\n");
    let chip = root.join("sys/class/hwmon/hwmon1");
    put(chip.join("name"), "xe\n");
    put(chip.join("energy1_input"), "90000000\n");
}

#[test]
fn a_read_allocates_nothing() {
    let root = tempfile::tempdir().unwrap();
    tree(root.path());
    let folder = std::env::current_exe().unwrap().parent().unwrap().to_owned();
    let open = |names: &[&'static str]| {
        open_sources(&Settings {
            names: Some(names.to_vec()),
            rocm_smi_library: Some(folder.join("libstand_in_rocm_smi64.so")),
            amdsmi_library: Some(folder.join("libstand_in_amd_smi.so")),
            nvml_library: Some(folder.join("libstand_in_nvidia_ml.so")),
            sys_root: root.path().to_owned(),
            ..Settings::default()
        })
    };
    // These sets together cover all sources: hwmon's AMD GPU is used only without AMD's libraries.
    let mut sets = [open(&["hwmon", "rocm_smi", "nvml", "cray_pm", "rapl", "estimate"]), open(&["amdsmi"])];
    assert_eq!((sets[0].sources.len(), sets[1].sources.len()), (6, 1), "{:?}", sets[0].notes);
    let mut read_all = |good: bool| {
        let mut calls = 0;
        let before = ALLOCATIONS.get();
        for source in sets.iter_mut().flat_map(|set| &mut set.sources) {
            for _ in 0..100 {
                for device in 0..source.devices().len() {
                    let reading = source.read(device);
                    if good {
                        reading.unwrap();
                    }
                    for at in 0..source.gauges(device).len() {
                        let gauge = source.gauges(device)[at];
                        calls += 1;
                        let value = source.gauge(device, gauge);
                        assert!(value.is_some() || !good, "{} {gauge:?}", source.name());
                    }
                }
                assert_eq!(source.gauge(99, Gauge::Busy), None);
                assert!(matches!(source.read(99), Err(ReadError::NoSuchDevice)));
                assert_eq!(source.news(), None);
            }
        }
        assert_eq!(ALLOCATIONS.get(), before);
        assert!(calls >= 100 * (8 + 9 + 1 + 1 + 8 + 3 + 2), "{calls}");
    };
    read_all(true);
    // When all files are gone, errors are returned a thousand times a second. They must not allocate either.
    for file in [
        "sys/cray/pm_counters/power",
        "sys/class/powercap/intel-rapl:0/energy_uj",
        "sys/class/hwmon/hwmon1/energy1_input",
    ] {
        std::fs::write(root.path().join(file), "").unwrap();
        std::fs::remove_file(root.path().join(file)).unwrap();
    }
    read_all(false);
}
