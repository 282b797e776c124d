//! Counter sources: stand-ins for the vendors' libraries, and made-up trees of the kernel's files.

use super::*;
use ampere_tests::jobs::{is_root, other_user_may_run, processes_of};
use ampere_tests::runs::on_path;
use ampere_tests::skip_unless;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// For each source: its name, its stand-in, the variable that names the library, and the variable that has its script.
const STAND_INS: [[&str; 4]; 3] = [
    ["rocm_smi", "libstand_in_rocm_smi64.so", "AMPERE_ROCM_SMI_LIBRARY", "STAND_IN_ROCM_SMI"],
    ["amdsmi", "libstand_in_amd_smi.so", "AMPERE_AMDSMI_LIBRARY", "STAND_IN_AMD_SMI"],
    ["nvml", "libstand_in_nvidia_ml.so", "AMPERE_NVML_LIBRARY", "STAND_IN_NVML"],
];

fn stand_in([_, file, variable, scripted]: [&str; 4], script: &str, mut command: Command) -> Command {
    command.env(variable, artifact(file)).env(scripted, script);
    command
}

#[track_caller]
fn assert_near(value: f64, expected: f64, part: f64) {
    assert!((value / expected - 1.0).abs() < part, "{value}, and {expected} expected");
}

#[test]
fn each_library_shows_its_devices_and_how_they_move() {
    for which in STAND_INS {
        let place = Place::new();
        let found = ask(stand_in(which, "watts=300,150;step_ms=40;freeze=1@0-9", doctor(&place)));
        let [name, file, ..] = which;
        assert_eq!(found.used(), [name]);
        let source = found.source(name);
        assert_eq!(source["why_not"], Value::Null);
        let [first, second] = &list(source, "devices")[..] else { panic!("{source:#}") };
        assert_eq!(
            (&first["name"], &first["kind"], &first["quality"]),
            (&"GPU-0".into(), &"gpu".into(), &"simulated".into())
        );
        assert!(first["metric"].as_str().is_some_and(|metric| metric.starts_with(name)), "{first:#}");
        assert_eq!(number(first, "resolution_joules"), if name == "nvml" { 1e-3 } else { 15.3e-6 });
        // The doctor looks at the counter for a second, and a step of the counter takes 4 % of that.
        assert_near(number(first, "update_seconds"), 0.040, 0.5);
        assert_near(number(first, "watts"), 300.0, 0.2);
        let library = first["library"].as_str().map(Path::new).and_then(Path::file_name);
        assert_eq!(library, Some(file.as_ref()), "{first:#}");
        assert!(first["version"].as_str().is_some_and(|version| version.contains("stand-in")), "{first:#}");
        assert!(first["pci"].is_string());
        // The counter stands still for nine seconds.
        assert_eq!(
            (&second["update_seconds"], &second["watts"], &second["changes"]),
            (&Value::Null, &Value::Null, &0.into())
        );
        found.says("counters", &format!("{name} GPU-1"), "note", &["did not move in 1 s", "under load"]);
        found.says(
            "counters",
            &format!("{name} GPU-0"),
            "ok",
            &["moves every ", " ms", "W now", "simulated"],
        );
        found.says("counters", name, "ok", &["2 devices", "used by a run", file]);
        found.says("counters", "a run reads", "ok", &[name]);
        assert_eq!(found.code, 0);
    }
}

#[test]
fn one_of_two_sources_with_the_same_counters_is_used() {
    let place = Place::new();
    let [rocm_smi, amdsmi, nvml] = STAND_INS;
    let all = |command| stand_in(nvml, "watts=7", stand_in(amdsmi, "", stand_in(rocm_smi, "", command)));
    let found = ask(all(doctor(&place)));
    assert_eq!(found.used(), ["rocm_smi", "nvml"]);
    assert_eq!(found.source("amdsmi")["why_not"], "rocm_smi has the same counters");
    assert_eq!(found.source("estimate")["why_not"], "there are counters");
    // Both sources have a GPU-0: each reports its device as used, whatever a run calls it.
    assert_eq!(found.source("nvml")["devices"][0]["used"], true);
    let named = ask(all(doctor(&place)).with(&[("AMPERE_COUNTERS", "amdsmi,estimate")]));
    assert_eq!(named.used(), ["amdsmi", "estimate"]);
    assert_eq!(named.source("nvml")["why_not"], "AMPERE_COUNTERS does not name it");
    assert_eq!(named.code, 0);
    let none = ask(all(doctor(&place)).with(&[("AMPERE_COUNTERS", "none")]));
    assert!(none.used().is_empty());
    none.says("counters", "a run reads", "note", &["AMPERE_COUNTERS=none", "unset"]);
}

#[test]
fn refusals_of_a_library_are_shown() {
    let place = Place::new();
    let [rocm_smi, _, nvml] = STAND_INS;
    let found = ask(stand_in(nvml, "error=0:4", stand_in(rocm_smi, "init=8", doctor(&place))));
    found.says("counters", "rocm_smi", "note", &["rsmi_init", "failed", "video and render"]);
    assert_eq!(found.used(), ["estimate"]);
    assert!(found.source("rocm_smi")["why_not"].as_str().is_some_and(|why| why.contains("rsmi_init")));
    let notes = list(&found.report, "checks").iter().filter(|check| check["name"] == "nvml");
    let notes: Vec<&Value> = notes.collect();
    assert_eq!(notes[0]["advice"], "the job must have been given the GPU", "{notes:#?}");
    // An estimate is not an error.
    found.says("counters", "a run reads", "note", &["estimated", "ipmitool dcmi power reading"]);
    assert_eq!(found.code, 0);
    let missing = ask(doctor(&place).with(&[("AMPERE_NVML_LIBRARY", "/nonexistent.so")]));
    missing.says("counters", "nvml", "note", &["/nonexistent.so cannot be used", "AMPERE_NVML_LIBRARY"]);
}

#[test]
fn a_library_that_crashes_is_named_and_not_used() {
    let [rocm_smi, amdsmi, nvml] = STAND_INS;
    let cases = [
        (rocm_smi, "init", "when it was opened"),
        (rocm_smi, "read", "when it was read"),
        (rocm_smi, "end", "when it was closed"),
        (amdsmi, "init", "when it was opened"),
        (nvml, "init", "when it was opened"),
        (nvml, "read", "when it was read"),
    ];
    for (which, moment, when) in cases {
        let place = Place::new();
        let crashing = || stand_in(which, &format!("crash={moment}"), doctor(&place));
        let found = ask(crashing());
        let check = found.says("counters", which[0], "problem", &["crashed with signal 11 (SIGSEGV)", when]);
        assert_eq!(check["advice"], "exclude it: export AMPERE_COUNTERS=estimate");
        assert_eq!(found.code, 1);
        let core = std::fs::read_dir(place.directory()).expect("a folder").flatten();
        assert!(!core.into_iter().any(|file| file.file_name().to_string_lossy().starts_with("core")));
        // With the advice applied, the run is right, and the error of the library is still reported.
        let without = ask(crashing().with(&[("AMPERE_COUNTERS", "estimate")]));
        without.says("counters", which[0], "note", &["SIGSEGV"]);
        assert_eq!((without.code, without.used()), (0, vec!["estimate"]));
    }
    // If another source works, the advice is to use it.
    let place = Place::new();
    let found = ask(stand_in(rocm_smi, "crash=init", stand_in(nvml, "", doctor(&place))));
    let check = found.says("counters", "rocm_smi", "problem", &[]);
    assert_eq!(check["advice"], "exclude it: export AMPERE_COUNTERS=nvml");
    // A library that a run does not open is not reported as an error.
    let found = ask(stand_in(amdsmi, "crash=init", stand_in(rocm_smi, "", doctor(&place))));
    found.says("counters", "amdsmi", "note", &["SIGSEGV"]);
    assert_eq!((found.code, found.used()), (0, vec!["rocm_smi"]));
}

#[test]
fn a_library_that_hangs_is_not_waited_for() {
    let place = Place::new();
    let [rocm_smi, _, nvml] = STAND_INS;
    let begun = Instant::now();
    let found = ask(stand_in(nvml, "hang=read", stand_in(rocm_smi, "hang=init", doctor(&place))));
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
    found.says(
        "counters",
        "rocm_smi",
        "problem",
        &["hung for 11 s when it was opened", "AMPERE_COUNTERS=estimate"],
    );
    found.says("counters", "nvml", "problem", &["hung for 11 s when it was read"]);
    assert_eq!(found.code, 1);
    let left = processes_of(place.directory());
    assert!(left.is_empty(), "a probe is left: {left:?}");
}

#[test]
fn output_of_a_library_does_no_harm() {
    skip_unless!(on_path("cc"), "no C compiler");
    let place = Place::new();
    let source = r#"
        #include <stdio.h>
        int rsmi_init(unsigned long f) { printf("ampere-probe nonsense\nno line end"); fflush(stdout); return 8; }
        int rsmi_shut_down(void) { return 0; }
        int rsmi_num_monitor_devices(unsigned *n) { *n = 0; return 0; }
        int rsmi_dev_energy_count_get(unsigned d, void *a, void *b, void *c) { return 1; }
    "#;
    put(&place.path("loud.c"), source);
    let mut compile = place.command("cc");
    succeed(compile.args(["-shared", "-fPIC", "-o", "libloud.so", "loud.c"]));
    let library = place.path("libloud.so");
    let found = ask(doctor(&place).with(&[("AMPERE_ROCM_SMI_LIBRARY", library.to_str().expect("UTF-8"))]));
    found.says("counters", "rocm_smi", "note", &["rsmi_init", "libloud.so failed"]);
    assert_eq!(found.code, 0);
}

fn zone(root: &Path, zone: &str, name: &str) -> PathBuf {
    let folder = root.join(format!("sys/class/powercap/intel-rapl:{zone}"));
    put(&folder.join("name"), name);
    put(&folder.join("max_energy_range_uj"), "262143328850\n");
    put(&folder.join("energy_uj"), "100000000000\n");
    folder.join("energy_uj")
}

#[test]
fn the_kernels_files_show_their_devices() {
    let place = Place::new();
    let command = doctor(&place);
    let root = place.path("root");
    let moving = zone(&root, "0", "package-0\n");
    zone(&root, "0:1", "dram\n");
    put(&root.join("sys/cray/pm_counters/energy"), "4721362 J 1700000000123456 us\n");
    put(&root.join("sys/cray/pm_counters/freshness"), "17\n");
    let chip = root.join("sys/class/hwmon/hwmon0");
    put(&chip.join("name"), "amdgpu\n");
    put(&chip.join("power1_average"), "50000000\n");
    // The counter increases by 100 J every 50 ms, which is 2 kW.
    let (over, file) =
        (AtomicBool::new(false), std::fs::File::options().write(true).open(&moving).expect("open"));
    let (found, late) = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let begun = Instant::now();
            let mut last = Instant::now();
            let mut late = Duration::ZERO;
            while !over.load(Ordering::Relaxed) {
                // On a busy machine, the counter changes late.
                late += last.elapsed().saturating_sub(Duration::from_millis(10));
                last = Instant::now();
                let steps = begun.elapsed().as_millis() as u64 / 50;
                // It is written in place with a constant length, so that there is always a number in it.
                file.write_at((100_000_000_000 + steps * 100_000_000).to_string().as_bytes(), 0)
                    .expect("write");
                std::thread::sleep(Duration::from_millis(1));
            }
            late.as_secs_f64()
        });
        let found = ask(command);
        over.store(true, Ordering::Relaxed);
        (found, writer.join().expect("a thread"))
    });
    // The doctor looks at the counter for a second.
    let within = 0.15 + 1.5 * late;
    assert_eq!(found.used(), ["cray_pm", "rapl", "hwmon"]);
    let package = &found.source("rapl")["devices"][0];
    assert_eq!((&package["name"], &package["library"]), (&"package-0".into(), &Value::Null));
    assert_near(number(package, "update_seconds"), 0.050, within);
    assert_near(number(package, "watts"), 2000.0, within);
    found.says("counters", "rapl package-0-dram", "note", &["did not move in 1 s", "in steps of 1 uJ"]);
    found.says("counters", "cray_pm node", "note", &["did not move in 1 s", "measured", "in steps of 1 J"]);
    // A power that stays constant is not an error.
    let power = found.says("counters", "hwmon amdgpu-0", "note", &["integrated", "did not move"]);
    assert_eq!(power["advice"], Value::Null);
}

#[test]
fn a_counter_that_only_root_may_read_is_named() {
    let place = Place::new();
    let mut command = doctor(&place);
    let root = place.path("root");
    let file = zone(&root, "0", "package-0\n");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o400)).expect("chmod");
    if is_root() {
        // Root may read any file, so another user runs the command.
        let all = std::fs::Permissions::from_mode(0o1777);
        std::fs::set_permissions(place.directory(), all.clone()).expect("chmod");
        std::fs::set_permissions(place.path("shm"), all).expect("chmod");
        skip_unless!(other_user_may_run(), "another user than root may not run what is built here");
        command = place.command("setpriv");
        command
            .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
            .arg(artifact("ampere"))
            .arg("doctor");
        command.env_remove("AMPERE_COUNTERS").env("AMPERE_SYS_ROOT", &root);
    } else {
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o000)).expect("chmod");
    }
    let found = ask(command);
    let check = found.says("counters", "rapl", "note", &["may not be read", "chmod a+r", "root"]);
    assert!(
        check["advice"].as_str().is_some_and(|advice| advice.starts_with("An administrator can")),
        "{check:#}"
    );
    assert!(found.source("rapl")["why_not"].as_str().is_some_and(|why| why.contains("may not be read")));
    assert_eq!((found.code, found.used()), (0, vec!["estimate"]));
}

#[test]
fn the_estimates_watts_are_shown() {
    let place = Place::new();
    let watts = [("AMPERE_ESTIMATE_IDLE_WATTS", "250"), ("AMPERE_ESTIMATE_WATTS_PER_CORE", "2.5")];
    let found = ask(doctor(&place).with(&watts));
    found.says("counters", "estimate node", "ok", &["250 W and 2.5 W per busy core", "estimated"]);
    let file = place.path("ampere.toml");
    put(&file, "[estimate]\nidle_watts = 77\n");
    let mut command = doctor(&place);
    command.arg("--config").arg(&file);
    ask(command).says("counters", "estimate node", "ok", &["77 W and 4 W per busy core"]);
}

#[test]
fn the_doctor_shows_one_reading_of_each_counter_of_ones_own() {
    let place = Place::new();
    let file = place.path("ampere.toml");
    let source = |name: &str, text: &str| {
        format!("[[source]]\nname = \"{name}\"\ncommand = \"{text}\"\nunit = \"W\"\nevery = \"10s\"\n")
    };
    put(&file, &[source("meter", "echo 350.5 W"), source("bad", "exit 3")].concat());
    let mut command = doctor(&place);
    command.arg("--config").arg(&file);
    let found = ask(command);
    found.says("counters", "custom meter", "ok", &["350.5 W now, integrated, ", "every 10s: echo 350.5 W"]);
    found.says("counters", "custom bad", "problem", &["its command failed with status 3"]);
    assert_eq!(found.used(), ["custom"]);
    assert_eq!(found.source("custom")["devices"][0]["figure"], 350.5);
}
