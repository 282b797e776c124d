//! The sources that read files, on made-up trees: RAPL, Cray's counters, hwmon; and which device contains which.

mod common;

use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

use ampere_counters::{Device, Kind, Opened, Quality, ReadError, Settings, Source, open_sources};
use common::put;

#[test]
#[ignore = "a process that other tests start"]
fn probe_child() {
    common::child();
}

fn open(root: &Path, names: &'static str) -> Opened {
    let names = (!names.is_empty()).then(|| names.split(',').collect());
    open_sources(&Settings { names, sys_root: root.to_owned(), ..Settings::default() })
}

fn devices(opened: &Opened) -> Vec<&Device> {
    opened.sources.iter().flat_map(|source| source.devices()).collect()
}

fn names(opened: &Opened) -> Vec<&str> {
    devices(opened).into_iter().map(|device| device.name.as_str()).collect()
}

fn contains<'a>(opened: &'a Opened, name: &str) -> Vec<&'a str> {
    let device = devices(opened).into_iter().find(|device| device.name == name).unwrap();
    device.contains.iter().map(String::as_str).collect()
}

/// Returns the devices that are not contained in another.
fn topmost(opened: &Opened) -> Vec<&str> {
    let contained = |name: &&str| devices(opened).iter().any(|d| d.contains.iter().any(|part| part == name));
    names(opened).into_iter().filter(|name| !contained(name)).collect()
}

fn one(opened: Opened) -> Box<dyn Source> {
    assert_eq!(opened.notes, Vec::<String>::new());
    opened.sources.into_iter().next().unwrap()
}

const RANGE: u64 = 262_143_328_850;

fn zone(root: &Path, zone: &str, name: &str, microjoules: u64) {
    let folder = root.join(format!("sys/class/powercap/intel-rapl:{zone}"));
    put(&folder.join("name"), &format!("{name}\n"));
    put(&folder.join("energy_uj"), &format!("{microjoules}\n"));
    put(&folder.join("max_energy_range_uj"), &format!("{RANGE}\n"));
}

/// Makes two packages with their parts, as on a server, and entries that must be ignored.
fn two_packages(root: &Path) {
    put(&root.join("sys/class/powercap/intel-rapl/enabled"), "1\n");
    put(&root.join("sys/class/powercap/intel-rapl-mmio:0/name"), "package-0\n");
    put(&root.join("sys/class/powercap/intel-rapl-mmio:0/energy_uj"), "5\n");
    for package in 0..2 {
        zone(root, &package.to_string(), &format!("package-{package}"), 1_000_000 + package);
        zone(root, &format!("{package}:0"), "core", 500_000 + package);
        zone(root, &format!("{package}:1"), "dram", 200_000 + package);
    }
}

#[test]
fn rapl_has_packages_and_their_parts() {
    let root = tempfile::tempdir().unwrap();
    two_packages(root.path());
    let opened = open(root.path(), "rapl");
    assert_eq!(
        names(&opened),
        ["package-0", "package-0-core", "package-0-dram", "package-1", "package-1-core", "package-1-dram"]
    );
    let kinds: Vec<Kind> = devices(&opened).iter().map(|device| device.kind).collect();
    assert_eq!(kinds[..3], [Kind::Cpu, Kind::Cpu, Kind::Memory]);
    assert_eq!(contains(&opened, "package-0"), ["package-0-core"]);
    assert_eq!(topmost(&opened), ["package-0", "package-0-dram", "package-1", "package-1-dram"]);
    let mut source = one(opened);
    assert_eq!(source.devices()[0].metric, "rapl:::energy:package-0");
    assert_eq!(source.devices()[0].quality, Quality::Measured);
    let reading = source.read(3).unwrap();
    assert_eq!((reading.nanojoules, reading.raw), (1_000_001_000, 1_000_001));
    assert!(matches!(source.read(6), Err(ReadError::NoSuchDevice)));
}

#[test]
fn the_platform_contains_the_packages() {
    let root = tempfile::tempdir().unwrap();
    two_packages(root.path());
    zone(root.path(), "2", "psys", 9);
    let opened = open(root.path(), "rapl");
    assert_eq!(topmost(&opened), ["psys"]);
    assert_eq!(contains(&opened, "psys").len(), 6);
}

#[test]
fn rapl_is_passed_on_unchanged_with_its_range() {
    let root = tempfile::tempdir().unwrap();
    zone(root.path(), "0", "package-0", RANGE - 1_000);
    let mut source = one(open(root.path(), "rapl"));
    assert_eq!(source.devices()[0].wraps_at_nanojoules, Some(RANGE * 1000));
    assert_eq!(source.read(0).unwrap().nanojoules, (RANGE - 1_000) * 1000);
    zone(root.path(), "0", "package-0", 4_000);
    let after = source.read(0).unwrap();
    assert_eq!((after.nanojoules, after.raw), (4_000_000, 4_000));
}

#[test]
fn an_invalid_range_is_noted() {
    let root = tempfile::tempdir().unwrap();
    zone(root.path(), "0", "package-0", 10);
    put(&root.path().join("sys/class/powercap/intel-rapl:0/max_energy_range_uj"), "many\n");
    let mut opened = open(root.path(), "rapl");
    assert!(opened.notes[0].contains("package-0: no range in "), "{:?}", opened.notes);
    zone(root.path(), "0", "package-0", 4);
    assert_eq!(opened.sources[0].read(0).unwrap().nanojoules, 4_000);
}

#[test]
fn the_note_about_an_unreadable_rapl_has_advice() {
    let root = tempfile::tempdir().unwrap();
    two_packages(root.path());
    // An unprivileged user cannot read a file with mode 000. Root can: see below.
    let path = root.path().join("sys/class/powercap/intel-rapl:0/energy_uj");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o000)).unwrap();
    if std::fs::File::open(&path).is_ok() {
        return run_again_without_root(root.path());
    }
    let opened = open(root.path(), "rapl");
    check_denied(&opened.notes);
}

fn check_denied(notes: &[String]) {
    assert_eq!(notes.len(), 1, "{notes:?}");
    assert!(
        notes[0].contains("intel-rapl:0/energy_uj may not be read: since 2020 (CVE-2020-8694)"),
        "{notes:?}"
    );
    assert!(notes[0].contains("chmod a+r /sys/class/powercap/intel-rapl*/energy_uj"), "{notes:?}");
}

/// Runs the same test in a child process without the rights of root.
fn run_again_without_root(root: &Path) {
    for entry in ["", "sys", "sys/class", "sys/class/powercap"] {
        std::fs::set_permissions(root.join(entry), std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let own = std::env::current_exe().unwrap();
    let under = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all"];
    let may_run =
        std::process::Command::new(under[0]).args(&under[1..]).args(["test", "-x"]).arg(&own).status();
    if !may_run.is_ok_and(|status| status.success()) {
        println!("skipped: another user than root may not run what is built here");
        return;
    }
    let variables = [("AMPERE_SYS_ROOT", root.to_str().unwrap()), ("AMPERE_COUNTERS", "rapl")];
    let answer = common::probe_under(&under, "read", &variables);
    check_denied(&answer.notes);
    // The other files may be read, and are.
    assert_eq!(answer.names().len(), 5);
}

#[test]
fn invalid_figures_are_excluded_and_noted() {
    let root = tempfile::tempdir().unwrap();
    two_packages(root.path());
    let powercap = root.path().join("sys/class/powercap");
    put(&powercap.join("intel-rapl:0/energy_uj"), "");
    put(&powercap.join("intel-rapl:0:0/energy_uj"), "garbage\n");
    std::fs::remove_file(powercap.join("intel-rapl:0:1/energy_uj")).unwrap();
    std::fs::remove_file(powercap.join("intel-rapl:1:0/name")).unwrap();
    let opened = open(root.path(), "rapl");
    assert_eq!(names(&opened), ["package-1", "package-1-dram"]);
    let notes = opened.notes.join("\n");
    for part in ["package-0: ", "package-0-core: ", "package-0-dram: ", "intel-rapl:1:0 has no name"] {
        assert!(notes.contains(part), "{part}: {notes}");
    }
    assert_eq!(opened.notes.len(), 4, "{notes}");
}

/// Two zones can have one name: two drivers show the same package, or a kernel gives two dies the same name. Users can see from
/// the values which of these it is.
#[test]
fn a_second_zone_of_a_name_has_a_name_of_its_own() {
    let root = tempfile::tempdir().unwrap();
    two_packages(root.path());
    zone(root.path(), "2", "package-1", 3);
    zone(root.path(), "2:0", "core", 2);
    zone(root.path(), "2:1", "dram", 1);
    zone(root.path(), "3", "package-1", 9);
    let opened = open(root.path(), "rapl");
    assert_eq!(opened.notes, Vec::<String>::new());
    assert_eq!(
        names(&opened)[6..],
        ["zone-2-package-1", "zone-2-package-1-core", "zone-2-package-1-dram", "zone-3-package-1"]
    );
    assert_eq!(contains(&opened, "package-1"), ["package-1-core"]);
    assert_eq!(contains(&opened, "zone-2-package-1"), ["zone-2-package-1-core"]);
    assert_eq!(devices(&opened)[8].kind, Kind::Memory);
}

#[test]
fn an_unreadable_counter_among_others_makes_the_joules_incomplete() {
    let cases: [(&[&str], bool); 8] = [
        (&[], false),
        (&["1"], true),
        (&["0:1"], true),
        // The package contains its cores.
        (&["0:0"], false),
        // Where nothing can be read, energy is estimated.
        (&["0", "0:0", "0:1", "1", "1:0", "1:1"], false),
        (&["2"], false),
        (&["1", "2"], true),
        (&["0", "0:1"], true),
    ];
    for (broken, is_incomplete) in cases {
        let root = common::bare_node();
        two_packages(root.path());
        if broken.contains(&"2") {
            zone(root.path(), "2", "psys", 9);
        }
        for zone in broken {
            put(&root.path().join(format!("sys/class/powercap/intel-rapl:{zone}/energy_uj")), "");
        }
        let opened = open(root.path(), "");
        assert_eq!(opened.is_incomplete, is_incomplete, "{broken:?}: {:?}", opened.notes);
        assert!(broken.iter().all(|zone| opened.notes.join("\n").contains(&format!("intel-rapl:{zone}/"))));
        // The platform's or the node's counter has the joules of what cannot be read.
        if broken == ["1"] {
            zone(root.path(), "2", "psys", 9);
            assert!(!open(root.path(), "").is_incomplete);
            cray(root.path(), 1, 1_000);
            assert!(!open(root.path(), "").is_incomplete);
        }
    }
    let root = tempfile::tempdir().unwrap();
    hwmon(root.path(), 0, "xe", &[("energy1_input", "70")]);
    hwmon(root.path(), 1, "xe", &[("energy1_input", "")]);
    assert!(open(root.path(), "").is_incomplete);
}

#[test]
fn a_second_psys_zone_is_left_out_with_a_note() {
    let root = tempfile::tempdir().unwrap();
    two_packages(root.path());
    zone(root.path(), "2", "psys", 9);
    zone(root.path(), "3", "psys-1", 9);
    let opened = open(root.path(), "rapl");
    assert_eq!(topmost(&opened), ["psys"]);
    assert!(opened.notes.len() == 1 && opened.notes[0].starts_with("rapl: psys-1: "), "{:?}", opened.notes);
    assert!(!opened.is_incomplete);
}

#[test]
fn a_file_that_goes_is_an_error_until_it_comes_back() {
    let root = tempfile::tempdir().unwrap();
    zone(root.path(), "0", "package-0", 10);
    let mut source = one(open(root.path(), "rapl"));
    source.read(0).unwrap();
    let path = root.path().join("sys/class/powercap/intel-rapl:0/energy_uj");
    put(&path, "");
    assert!(matches!(source.read(0), Err(ReadError::Malformed)));
    std::fs::remove_file(&path).unwrap();
    assert!(matches!(source.read(0), Err(ReadError::Io(_))));
    put(&path, "30\n");
    assert_eq!(source.read(0).unwrap().nanojoules, 30_000);
}

#[test]
fn a_node_without_rapl_is_noted_only_on_request() {
    let root = common::bare_node();
    let opened = open(root.path(), "rapl");
    assert!(opened.sources.is_empty());
    assert!(opened.notes[0].starts_with("rapl: no intel-rapl in "), "{:?}", opened.notes);
    let opened = open(root.path(), "");
    assert_eq!(opened.notes, ["no energy counter was found: energy is estimated from CPU time"]);
    assert_eq!(opened.absent.len(), 8, "{:?}", opened.absent);
}

fn cray_file(root: &Path, file: &str, text: &str) {
    put(&root.join("sys/cray/pm_counters").join(file), &format!("{text}\n"));
}

/// Writes a set of figures for a node with four accelerators.
fn cray(root: &Path, freshness: u64, joules: u64) {
    let time = 1_700_000_000_000_000 + freshness * 100_000;
    let energy = |file: &str, joules: u64| cray_file(root, file, &format!("{joules} J {time} us"));
    energy("energy", 10 * joules);
    energy("cpu_energy", joules);
    energy("memory_energy", joules / 2);
    for accelerator in 0..4 {
        energy(&format!("accel{accelerator}_energy"), joules + accelerator);
    }
    cray_file(root, "power", &format!("800 W {time} us"));
    cray_file(root, "freshness", &freshness.to_string());
    cray_file(root, "generation", "7");
    cray_file(root, "startup", "1699");
    cray_file(root, "raw_scan_hz", "10");
    cray_file(root, "version", "2");
}

#[test]
fn cray_counts_the_node_and_its_parts() {
    let root = tempfile::tempdir().unwrap();
    cray(root.path(), 1, 1_000);
    let opened = open(root.path(), "cray_pm");
    assert_eq!(names(&opened), ["node", "accel0", "accel1", "accel2", "accel3", "cpu", "memory"]);
    assert_eq!(topmost(&opened), ["node"]);
    let kinds: Vec<Kind> = devices(&opened).iter().map(|device| device.kind).collect();
    assert_eq!((kinds[0], kinds[1], kinds[5], kinds[6]), (Kind::Node, Kind::Gpu, Kind::Cpu, Kind::Memory));
    let mut source = one(opened);
    let reading = source.read(0).unwrap();
    assert_eq!((reading.nanojoules, reading.raw), (10_000_000_000_000, 10_000));
    assert_eq!(reading.counter_timestamp_ns, Some(1_700_000_000_100_000_000));
    assert_eq!(source.devices()[2].metric, "cray_pm:::energy:accel1");
}

#[test]
fn an_accelerator_is_the_gpu_at_its_place() {
    for (gpus, accelerators, expected) in [
        // An MI300A is one accelerator.
        (&[0, 1, 2, 3][..], &[0, 1, 2, 3][..], &[(0, Some(0)), (3, Some(3))][..]),
        // An MI250X has two dies: either only the one with the counter is listed as a GPU, or both are.
        (&[0, 2, 4, 6], &[0, 1, 2, 3], &[(0, Some(0)), (2, Some(1)), (6, Some(3))]),
        (&[0, 1, 2, 3, 4, 5, 6, 7], &[0, 1, 2, 3], &[(0, Some(0)), (1, Some(0)), (7, Some(3))]),
        (&[0], &[0, 1, 2, 3], &[(0, Some(0))]),
        (&[0, 1], &[0], &[(0, Some(0)), (1, Some(0))]),
        // There is no such accelerator.
        (&[5], &[], &[(5, None)]),
        (&[0, 1, 2, 3], &[1, 3], &[(0, None), (1, Some(1))]),
    ] {
        let (gpus, accelerators) = (gpus.iter().copied().collect(), accelerators.iter().copied().collect());
        for (gpu, expected) in expected {
            let is = ampere_model::accelerator_of_gpu(*gpu, &gpus, &accelerators);
            assert_eq!(is, *expected, "{gpu} of {gpus:?}, {accelerators:?}");
        }
    }
}

#[test]
fn an_accelerator_contains_its_gpu_and_the_parts_of_the_gpu() {
    let root = tempfile::tempdir().unwrap();
    cray(root.path(), 1, 1_000);
    two_packages(root.path());
    let root = root.path().to_str().unwrap();
    let probe = |model, script| {
        let more = [
            ("STAND_IN_AMD_SMI_MODEL", model),
            ("AMPERE_SYS_ROOT", root),
            ("AMPERE_COUNTERS", "amdsmi,cray_pm,rapl"),
        ];
        common::probe_with(&common::AMD_SMI, script, "read", &more)
    };
    let answer = probe("AMD Instinct MI250X", "devices=8;zero=odd");
    let of = |answer: &common::Answer, name: &str| {
        answer.contains[answer.names().iter().position(|known| *known == name).expect(name)].clone()
    };
    assert_eq!(
        (of(&answer, "accel0"), of(&answer, "accel3")),
        (vec!["GPU-0".to_owned()], vec!["GPU-6".to_owned()])
    );
    assert_eq!(answer.topmost(), ["node"]);
    let answer = probe("AMD Instinct MI300A", "devices=4");
    assert_eq!(of(&answer, "accel1"), ["GPU-1", "package-1", "package-1-core"]);
    assert_eq!(of(&answer, "accel2"), ["GPU-2"]);
}

#[test]
fn cray_is_read_as_one_set_when_it_is_fresh() {
    let root = tempfile::tempdir().unwrap();
    cray(root.path(), 1, 1_000);
    let begun = std::time::Instant::now();
    let mut source = one(open(root.path(), "cray_pm"));
    assert_eq!(source.read(0).unwrap().raw, 10_000);
    // A figure that is renewed before `freshness` belongs to a set that is not complete yet.
    cray_file(root.path(), "energy", "20000 J 1 us");
    let renewed = source.read(0).unwrap().raw;
    assert!(renewed == 10_000 || begun.elapsed() > Duration::from_secs(1), "{renewed}");
    cray(root.path(), 2, 2_000);
    assert_eq!((source.read(0).unwrap().raw, source.read(5).unwrap().raw), (20_000, 2_000));
    // `freshness` itself may have stopped: after a second the figures are read nevertheless.
    cray_file(root.path(), "energy", "30000 J 1 us");
    std::thread::sleep(Duration::from_millis(1_050));
    assert_eq!(source.read(0).unwrap().raw, 30_000);
}

#[test]
fn cray_without_freshness_is_read_each_time() {
    let root = tempfile::tempdir().unwrap();
    cray(root.path(), 1, 1_000);
    std::fs::remove_file(root.path().join("sys/cray/pm_counters/freshness")).unwrap();
    let mut source = one(open(root.path(), "cray_pm"));
    cray_file(root.path(), "energy", "20000 J 1 us");
    assert_eq!(source.read(0).unwrap().raw, 20_000);
    cray_file(root.path(), "energy", "out of order");
    assert!(matches!(source.read(0), Err(ReadError::Malformed)));
    cray_file(root.path(), "energy", "20001 J 1 us");
    assert_eq!(source.read(0).unwrap().raw, 20_001);
}

#[test]
fn cray_files_that_are_no_energy_are_left_out() {
    let root = tempfile::tempdir().unwrap();
    cray(root.path(), 1, 1_000);
    cray_file(root.path(), "accel0_energy", "");
    cray_file(root.path(), "accel1_energy", "12 W 17 us");
    cray_file(root.path(), "accel2_energy", "0 J 17 us"); // there is no such accelerator
    let opened = open(root.path(), "cray_pm");
    assert_eq!(names(&opened), ["node", "accel3", "cpu", "memory"]);
    assert_eq!(opened.notes.len(), 2, "{:?}", opened.notes);
    assert!(opened.notes[0].contains("accel0_energy: its file contains no figure"), "{:?}", opened.notes);
    let empty = tempfile::tempdir().unwrap();
    cray_file(empty.path(), "version", "2");
    let opened = open(empty.path(), "cray_pm");
    assert!(opened.sources.is_empty());
    assert!(opened.notes[0].starts_with("cray_pm: no readable energy in "), "{:?}", opened.notes);
}

#[test]
fn a_power_cap_and_a_restart_are_reported_once() {
    let root = tempfile::tempdir().unwrap();
    cray(root.path(), 1, 1_000);
    let mut source = one(open(root.path(), "cray_pm"));
    assert_eq!(source.news(), None);
    cray_file(root.path(), "generation", "8");
    assert_eq!(
        source.news().unwrap(),
        "cray_pm: a power cap was changed during the run (generation 7, now 8)"
    );
    assert_eq!(source.news(), None);
    cray_file(root.path(), "startup", "1700");
    assert!(source.news().unwrap().contains("restarted during the run (startup 1699, now 1700)"));
}

fn hwmon(root: &Path, number: u32, chip: &str, files: &[(&str, &str)]) {
    let folder = root.join(format!("sys/class/hwmon/hwmon{number}"));
    put(&folder.join("name"), &format!("{chip}\n"));
    for (file, text) in files {
        put(&folder.join(file), &format!("{text}\n"));
    }
}

#[test]
fn only_known_hwmon_sensors_are_used() {
    let root = tempfile::tempdir().unwrap();
    hwmon(root.path(), 0, "power_meter", &[("power1_average", "400000000")]);
    hwmon(root.path(), 1, "coretemp", &[("temp1_input", "41000"), ("power1_input", "5")]);
    hwmon(root.path(), 2, "amdgpu", &[("power1_average", "90000000")]);
    hwmon(root.path(), 10, "amdgpu", &[("power1_input", "80000000")]);
    hwmon(root.path(), 3, "xe", &[("energy1_input", "123456")]);
    let sockets = [
        ("energy1_label", "Ecore000"),
        ("energy1_input", "7"),
        ("energy65_label", "Esocket0"),
        ("energy65_input", "9000"),
    ];
    hwmon(root.path(), 4, "amd_energy", &sockets);
    let device = root.path().join("sys/devices/pci0000:00/0000:03:00.0");
    std::fs::create_dir_all(&device).unwrap();
    std::os::unix::fs::symlink(&device, root.path().join("sys/class/hwmon/hwmon2/device")).unwrap();
    let mut opened = open(root.path(), "hwmon");
    assert_eq!(names(&opened), ["amdgpu-0", "xe-0", "package-0", "amdgpu-1", "power-meter"]);
    assert_eq!(topmost(&opened), ["power-meter"]);
    let found = devices(&opened);
    assert_eq!(found[0].pci.as_deref(), Some("0000:03:00.0"));
    let qualities: Vec<&str> = found.iter().map(|device| device.quality.as_str()).collect();
    assert_eq!(qualities, ["integrated", "measured", "measured", "integrated", "integrated"]);
    assert!(found[0].description.starts_with("integrated from power, "), "{}", found[0].description);
    let source = &mut opened.sources[0];
    assert_eq!(
        [0, 1].map(|device| source.shortest_period(device)),
        [Duration::from_millis(10), Duration::ZERO]
    );
    assert_eq!(source.read(1).unwrap().nanojoules, 123_456_000);
    assert_eq!(source.read(2).unwrap().nanojoules, 9_000_000);
    let (start, first) = (std::time::Instant::now(), source.read(4).unwrap());
    assert_eq!(first.raw, 400_000_000);
    std::thread::sleep(Duration::from_millis(50));
    let joules = (source.read(4).unwrap().nanojoules - first.nanojoules) as f64 * 1e-9;
    let most = 400.0 * start.elapsed().as_secs_f64();
    assert!(joules >= 400.0 * 0.05 && joules <= most, "{joules} J, at most {most}");
}

#[test]
fn an_intel_gpu_is_counted_by_its_card_or_else_by_its_package() {
    let counted = |chip: &str, files: &[(&str, &str)]| {
        let root = tempfile::tempdir().unwrap();
        hwmon(root.path(), 0, chip, files);
        let mut opened = open(root.path(), "hwmon");
        let value = opened.sources.first_mut().map(|source| source.read(0).unwrap().raw);
        (value, names(&opened).join(" "), opened.notes.join(" "))
    };
    let (card, package) = (("energy1_input", "70"), ("energy2_input", "50"));
    for chip in ["xe", "i915"] {
        assert_eq!(counted(chip, &[card, package]), (Some(70), format!("{chip}-0"), String::new()));
        assert_eq!(counted(chip, &[card]), (Some(70), format!("{chip}-0"), String::new()));
        for files in [&[package][..], &[package, ("energy1_input", "0")]] {
            let (value, name, note) = counted(chip, files);
            assert_eq!((value, name), (Some(50), format!("{chip}-0")));
            assert!(note.contains(&format!("{chip}-0 measures only the GPU's package")), "{note}");
        }
        let (value, _, note) = counted(chip, &[("energy3_input", "5")]);
        assert_eq!(value, None);
        assert!(note.contains("what energy3_input in"), "{note}");
    }
}

#[test]
fn tiles_of_an_intel_gpu_are_counted_if_the_gpu_is_not() {
    let root = tempfile::tempdir().unwrap();
    for tile in 0..2 {
        hwmon(root.path(), tile, &format!("i915_gt{tile}"), &[("energy1_input", "70")]);
    }
    assert_eq!(names(&open(root.path(), "hwmon")), ["i915_gt0-0", "i915_gt1-0"]);
    hwmon(root.path(), 7, "i915", &[("energy1_input", "140")]);
    assert_eq!(names(&open(root.path(), "hwmon")), ["i915-0"]);
}

#[test]
fn a_chip_that_counts_energy_and_is_not_known_is_named() {
    for chip in ["ibmaem", "ltc4282", "scmi_sensors"] {
        let root = tempfile::tempdir().unwrap();
        hwmon(
            root.path(),
            0,
            chip,
            &[("energy1_input", "9"), ("energy2_input", "9"), ("energy1_label", "AEM")],
        );
        hwmon(root.path(), 1, "BAT0", &[("power1_input", "9")]);
        let opened = open(root.path(), "");
        let of_chip: Vec<&String> =
            opened.notes.iter().filter(|note| note.contains("it is not used")).collect();
        assert_eq!(of_chip.len(), 1, "{:?}", opened.notes);
        assert!(
            of_chip[0]
                .starts_with(&format!("hwmon: {chip}: it is unknown what energy1_input, energy2_input in ")),
            "{of_chip:?}"
        );
        let battery = opened
            .absent
            .iter()
            .filter(|line| line.starts_with("hwmon: BAT0: it is unknown what the power in "));
        assert_eq!(battery.count(), 1, "{:?}", opened.absent);
    }
}

#[test]
fn the_core_zone_of_amd_is_named_one_core_because_it_counts_only_one() {
    let vendors = [("GenuineIntel", "core"), ("AuthenticAMD", "one-core"), ("HygonGenuine", "one-core")];
    for (vendor, called) in vendors {
        let root = tempfile::tempdir().unwrap();
        zone(root.path(), "0", "package-0", 10);
        zone(root.path(), "0:0", "core", 5);
        put(&root.path().join("proc/cpuinfo"), &format!("processor\t: 0\nvendor_id\t: {vendor}\n"));
        let opened = open(root.path(), "rapl");
        assert_eq!(names(&opened), ["package-0", &format!("package-0-{called}")]);
        assert_eq!(contains(&opened, "package-0"), [format!("package-0-{called}")]);
        let is_one_core = devices(&opened)[1].description.contains("one core of the package");
        assert_eq!(is_one_core, called == "one-core");
    }
    // If the processor is not known, the range shows that the counters are AMD's.
    let root = tempfile::tempdir().unwrap();
    zone(root.path(), "0", "package-0", 10);
    zone(root.path(), "0:0", "core", 5);
    put(&root.path().join("sys/class/powercap/intel-rapl:0/max_energy_range_uj"), "65532610987\n");
    assert_eq!(names(&open(root.path(), "rapl")), ["package-0", "package-0-one-core"]);
}

#[test]
fn the_power_of_an_apu_is_that_of_its_package() {
    let root = tempfile::tempdir().unwrap();
    let laptop = [("power1_input", "15000000"), ("in0_label", "vddgfx"), ("in1_label", "vddnb")];
    hwmon(root.path(), 0, "amdgpu", &laptop);
    hwmon(root.path(), 1, "amdgpu", &[("power1_average", "400000000")]);
    put(&root.path().join("sys/class/hwmon/hwmon1/device/device"), "0x74a0\n");
    let opened = open(root.path(), "hwmon");
    assert_eq!(names(&opened), ["apu-0", "apu-1"]);
    assert!(devices(&opened).iter().all(|device| device.kind == Kind::Cpu));
    // RAPL already counts their joules.
    two_packages(root.path());
    let opened = open(root.path(), "");
    assert!(opened.sources.iter().all(|source| source.name() == "rapl"), "{:?}", names(&opened));
}

#[test]
fn several_power_meters_are_noted_and_not_used() {
    let root = tempfile::tempdir().unwrap();
    for number in 0..2 {
        hwmon(root.path(), number, "power_meter", &[("power1_average", "400000000")]);
    }
    let opened = open(root.path(), "hwmon");
    assert!(opened.sources.is_empty());
    assert!(opened.notes[0].contains("2 ACPI power meters"), "{:?}", opened.notes);
}

#[test]
fn a_power_that_is_a_mean_over_minutes_is_not_used() {
    let opened = |interval: &str, more: &[(&str, &str)]| {
        let root = tempfile::tempdir().unwrap();
        let average = [("power1_average", "132000000"), ("power1_average_interval", interval)];
        hwmon(root.path(), 0, "power_meter", &[&average, more].concat());
        let mut opened = open(root.path(), "hwmon");
        let value = opened.sources.first_mut().map(|source| source.read(0).unwrap().raw);
        (value, opened.notes.join(" "))
    };
    let input = ("power1_input", "400000000");
    for interval in ["1000", "2000", "-1"] {
        assert_eq!(opened(interval, &[input]), (Some(132_000_000), String::new()), "{interval} ms");
    }
    assert_eq!(opened("300000", &[input]), (Some(400_000_000), String::new()));
    let (value, notes) = opened("300000", &[]);
    assert_eq!(value, None);
    assert!(notes.starts_with("hwmon: power-meter: /"), "{notes}");
    assert!(
        notes.contains("power1_average is a mean over 300 s, so most of it may be older than the run"),
        "{notes}"
    );
}

#[test]
fn packages_are_read_through_msr_safe_if_rapls_files_are_not_readable() {
    for (vendor, units, energy) in
        [("GenuineIntel", 0x606, 0x611), ("AuthenticAMD", 0xc001_0299, 0xc001_029b)]
    {
        let root = tempfile::tempdir().unwrap();
        put(&root.path().join("proc/cpuinfo"), &format!("vendor_id\t: {vendor}\n"));
        for (cpu, package) in [(0, 0), (1, 0), (2, 1)] {
            let topology = root.path().join(format!("sys/devices/system/cpu/cpu{cpu}/topology"));
            put(&topology.join("physical_package_id"), &format!("{package}\n"));
            let path = root.path().join(format!("dev/cpu/{cpu}/msr_safe"));
            put(&path, "");
            let file = std::fs::File::options().write(true).open(&path).unwrap();
            // The unit is 2^-14 J. The energy is 3 J for CPU 0, and 16 J more for each further CPU.
            file.write_all_at(&0x000a_0e03_u64.to_le_bytes(), units).unwrap();
            file.write_all_at(
                &(0xffff_0000_0000_0000_u64 + (3 + cpu * 16) * (1 << 14)).to_le_bytes(),
                energy,
            )
            .unwrap();
        }
        let mut opened = open(root.path(), "rapl");
        assert_eq!((names(&opened), opened.notes.len()), (vec!["package-0", "package-1"], 0), "{vendor}");
        let source = &mut opened.sources[0];
        assert_eq!(source.devices()[0].wraps_at_nanojoules, Some(262_144_000_000_000));
        assert_eq!([0, 1].map(|at| source.read(at).unwrap().nanojoules), [3_000_000_000, 35_000_000_000]);
        // The kernel's own files are preferred.
        two_packages(root.path());
        assert_eq!(names(&open(root.path(), "rapl")).len(), 6);
    }
}

fn superchip(root: &Path, sockets: u32) {
    for socket in 0..sockets {
        for (at, part) in ["Module", "Grace", "CPU", "SysIO"].into_iter().enumerate() {
            let text = format!("{part} Power Socket {socket}");
            let watts = ["600000000", "300000000", "200000000", "40000000"][at];
            let files = [("power1_average", watts), ("power1_oem_info", text.as_str())];
            hwmon(root, socket * 4 + at as u32, "power_meter", &files);
        }
    }
}

#[test]
fn the_meters_of_a_grace_superchip_are_told_apart_and_counted_once() {
    let root = tempfile::tempdir().unwrap();
    superchip(root.path(), 2);
    let mut opened = open(root.path(), "hwmon");
    assert_eq!(opened.notes, Vec::<String>::new());
    let of_socket = |socket: u32| ["module", "grace", "cpu", "sysio"].map(|part| format!("{part}-{socket}"));
    assert_eq!(names(&opened), [of_socket(0), of_socket(1)].concat());
    assert_eq!(topmost(&opened), ["module-0", "module-1"]);
    assert_eq!(contains(&opened, "module-1"), ["grace-1", "cpu-1", "sysio-1"]);
    assert_eq!(contains(&opened, "grace-0"), ["cpu-0", "sysio-0"]);
    assert_eq!(contains(&opened, "cpu-0"), Vec::<&str>::new());
    assert_eq!(opened.sources[0].read(2).unwrap().raw, 200_000_000);
    // A Grace CPU superchip has no meter of a module.
    for module in [0, 4] {
        std::fs::remove_dir_all(root.path().join(format!("sys/class/hwmon/hwmon{module}"))).unwrap();
    }
    assert_eq!(topmost(&open(root.path(), "hwmon")), ["grace-0", "grace-1"]);
    // It is still unknown what meters without a known text measure.
    hwmon(
        root.path(),
        0,
        "power_meter",
        &[("power1_average", "1"), ("power1_oem_info", "Fan Power Socket 0")],
    );
    hwmon(root.path(), 4, "power_meter", &[("power1_average", "1")]);
    let opened = open(root.path(), "hwmon");
    assert!(opened.notes[0].contains("2 ACPI power meters"), "{:?}", opened.notes);
    assert_eq!(topmost(&opened), ["grace-0", "grace-1"]);
}

#[test]
fn every_gpu_of_a_grace_superchip_is_in_the_module_of_its_socket() {
    for (model, gpus, modules) in [
        ("NVIDIA GH200 480GB", "devices=2", ["GPU-0", "GPU-1"]),
        // Each Grace has two GPUs.
        ("NVIDIA GB200", "devices=4", ["GPU-0 GPU-1", "GPU-2 GPU-3"]),
        ("NVIDIA GB300", "devices=4", ["GPU-0 GPU-1", "GPU-2 GPU-3"]),
        // One of the GPUs cannot be seen: the others are still in some module, and no joule is counted twice.
        ("NVIDIA GB200", "devices=3", ["GPU-0 GPU-1", "GPU-2"]),
        ("NVIDIA GH200 480GB", "devices=1", ["GPU-0", ""]),
    ] {
        let root = tempfile::tempdir().unwrap();
        superchip(root.path(), 2);
        let more = [
            ("STAND_IN_NVML_MODEL", model),
            ("AMPERE_SYS_ROOT", root.path().to_str().unwrap()),
            ("AMPERE_COUNTERS", "nvml,hwmon"),
        ];
        let answer = common::probe_with(&common::NVML, gpus, "read", &more);
        assert_eq!(answer.topmost(), ["module-0", "module-1"], "{model}, {gpus}");
        let names = answer.names();
        let of = |name: &str| &answer.contains[names.iter().position(|other| *other == name).unwrap()];
        let gpus_of = |module| of(module).iter().filter(|part| part.starts_with("GPU-")).cloned();
        let found = ["module-0", "module-1"].map(|module| gpus_of(module).collect::<Vec<_>>().join(" "));
        assert_eq!(found, modules, "{model}, {gpus}");
        // The counter of a GPU may be that of its module.
        let last = names.iter().rfind(|name| name.starts_with("GPU-")).unwrap();
        let socket = u32::from(found[1].contains(last));
        assert_eq!(*of(last), ["grace", "cpu", "sysio"].map(|part| format!("{part}-{socket}")), "{model}");
    }
}

/// Makes the PMU of perf's `power` events, with these events and their scales. In place of energy, they count the kernel's CPU
/// clock in nanoseconds: with a scale of 1e-9, they show a power of 1 W.
fn power_events(root: &Path, cpumask: &str, events: &[(&str, &str)]) {
    let power = root.join("sys/bus/event_source/devices/power");
    put(&power.join("type"), "1\n");
    put(&power.join("cpumask"), cpumask);
    for (event, scale) in events {
        put(&power.join("events").join(event), "event=0x00\n");
        put(&power.join("events").join(format!("{event}.unit")), "Joules\n");
        put(&power.join("events").join(format!("{event}.scale")), &format!("{scale}\n"));
    }
}

/// The first CPUs of two packages are neighbours, so the kernel writes them as a range.
#[test]
fn perf_counts_each_package_of_a_range_of_cpus() {
    let root = tempfile::tempdir().unwrap();
    power_events(root.path(), "0-1\n", &[("energy-pkg", "1e-9")]);
    for cpu in [0, 1] {
        let topology = root.path().join(format!("sys/devices/system/cpu/cpu{cpu}/topology"));
        put(&topology.join("physical_package_id"), &format!("{cpu}\n"));
    }
    let opened = open(root.path(), "perf");
    let both = std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() >= 2);
    if both && !opened.sources.is_empty() {
        assert_eq!(names(&opened), ["package-0", "package-1"]);
    }
}

#[test]
fn perf_counts_packages_if_the_user_may_open_its_events_and_else_names_the_remedy() {
    let root = tempfile::tempdir().unwrap();
    let events = [("energy-pkg", "1e-9"), ("energy-ram", "5e-10"), ("energy-cores", "x")];
    power_events(root.path(), "0\n", &events);
    put(&root.path().join("proc/sys/kernel/perf_event_paranoid"), "2\n");
    let mut opened = open(root.path(), "perf");
    if opened.sources.is_empty() {
        assert!(
            opened.notes[0]
                .contains("kernel.perf_event_paranoid is 2. An administrator can allow it: setcap")
        );
        return;
    }
    assert_eq!(names(&opened), ["package-0", "package-0-dram"]);
    assert_eq!(topmost(&opened), ["package-0", "package-0-dram"], "memory is not in the package");
    let source = &mut opened.sources[0];
    let first = source.read(0).unwrap();
    let begun = std::time::Instant::now();
    let mut last = first;
    while last.nanojoules - first.nanojoules < 1_000_000 {
        assert!(begun.elapsed() < Duration::from_secs(60), "the counter does not move");
        last = source.read(0).unwrap();
    }
    assert!(first.nanojoules >= 1_000_000_000 && last.raw > first.raw);
    // RAPL's files are preferred, and the two are never both read.
    two_packages(root.path());
    let both = open(root.path(), "perf,rapl");
    assert_eq!((both.sources.len(), both.notes.len()), (1, 1), "{:?}", both.notes);
    assert_eq!(both.notes[0], "rapl: not used: perf has the same counters");
    let opened = open(root.path(), "");
    assert!(opened.sources.iter().all(|source| source.name() == "rapl"), "{:?}", names(&opened));
    let package = |number: u32| root.path().join(format!("sys/class/powercap/intel-rapl:{number}"));
    (0..2).for_each(|number| std::fs::remove_file(package(number).join("energy_uj")).unwrap());
    let of_perf = open(root.path(), "");
    let has_rapl = of_perf.sources.iter().any(|source| source.name() == "rapl");
    assert!(!has_rapl, "RAPL's memory is perf's: {:?}", names(&of_perf));
    (0..2).for_each(|number| std::fs::remove_dir_all(package(number)).unwrap());
    let opened = open(root.path(), "");
    assert!(names(&opened).contains(&"package-0"), "{:?}", names(&opened));
}

/// The kernel shows the platform's event on virtual machines, too, where it counts nothing.
#[test]
fn perfs_counter_of_the_platform_does_not_count_without_packages() {
    let root = tempfile::tempdir().unwrap();
    power_events(root.path(), "0\n", &[("energy-psys", "1e-9")]);
    let opened = open(root.path(), "perf");
    assert!(opened.sources.is_empty() && opened.notes[0].contains("has no energy-pkg"), "{:?}", opened.notes);
    assert!(names(&open(root.path(), "")).is_empty());
}

#[test]
fn sensors_that_cannot_be_read_are_noted() {
    let root = tempfile::tempdir().unwrap();
    hwmon(root.path(), 0, "power_meter", &[("power1_average", "")]);
    hwmon(root.path(), 1, "amdgpu", &[("power1_average", "-3")]);
    hwmon(root.path(), 2, "amdgpu", &[]);
    let opened = open(root.path(), "hwmon");
    assert!(opened.sources.is_empty());
    assert_eq!(opened.notes.len(), 3, "{:?}", opened.notes);
    assert!(opened.notes[2].starts_with("hwmon: no usable sensor in "), "{:?}", opened.notes);
}

#[test]
fn everything_is_opened_at_once_and_nothing_twice() {
    let root = tempfile::tempdir().unwrap();
    cray(root.path(), 1, 1_000);
    two_packages(root.path());
    hwmon(root.path(), 0, "power_meter", &[("power1_average", "400000000")]);
    hwmon(root.path(), 1, "amd_energy", &[("energy1_label", "Esocket0"), ("energy1_input", "9000")]);
    hwmon(root.path(), 2, "xe", &[("energy1_input", "123456")]);
    let opened = open(root.path(), "");
    assert_eq!(opened.notes, Vec::<String>::new());
    let sources: Vec<&str> = opened.sources.iter().map(|source| source.name()).collect();
    assert_eq!(sources, ["cray_pm", "rapl", "hwmon"]);
    assert_eq!(names(&opened).len(), 7 + 6 + 1, "no second package and no second node: {:?}", names(&opened));
    assert_eq!(topmost(&opened), ["node"]);
    assert_eq!(contains(&opened, "node").len(), 13);
    assert_eq!(contains(&opened, "cpu"), ["package-0", "package-0-core", "package-1", "package-1-core"]);
    assert_eq!(contains(&opened, "memory"), ["package-0-dram", "package-1-dram"]);
}

#[test]
fn an_estimate_is_not_added_to_counters() {
    let root = common::bare_node();
    two_packages(root.path());
    cray(root.path(), 1, 1_000);
    let opened = open(root.path(), "estimate,rapl");
    assert_eq!(topmost(&opened), ["node"]);
    let opened = open(root.path(), "cray_pm,estimate");
    assert_eq!(topmost(&opened), ["node"]);
    assert_eq!(names(&opened).last(), Some(&"node-estimate"));
}

#[test]
fn an_apu_contains_its_cores() {
    let root = tempfile::tempdir().unwrap();
    two_packages(root.path());
    // The APUs are in another order than their sockets: the first GPU is on NUMA node 1.
    for (bus, node) in [("c1", 1), ("c2", 0)] {
        put(
            &root.path().join(format!("sys/bus/pci/devices/0000:{bus}:00.0/numa_node")),
            &format!("{node}\n"),
        );
    }
    for (node, first) in [(0, 0), (1, 24)] {
        put(
            &root.path().join(format!("sys/devices/system/node/node{node}/cpulist")),
            &format!("{first}-{}\n", first + 23),
        );
        let cpu = root.path().join(format!("sys/devices/system/cpu/cpu{first}"));
        put(&cpu.join("topology/physical_package_id"), &format!("{node}\n"));
    }
    let path = root.path().to_str().unwrap();
    let probe = |model, root| {
        let more = [
            ("STAND_IN_AMD_SMI_MODEL", model),
            ("AMPERE_SYS_ROOT", root),
            ("AMPERE_COUNTERS", "amdsmi,rapl"),
        ];
        common::probe_with(&common::AMD_SMI, "devices=2", "read", &more)
    };
    let answer = probe("AMD Instinct MI300A", path);
    assert_eq!(answer.contains[0], ["package-1", "package-1-core"]);
    assert_eq!(answer.contains[1], ["package-0", "package-0-core"]);
    assert_eq!(answer.topmost(), ["GPU-0", "GPU-1", "package-0-dram", "package-1-dram"]);
    // Even if the kernel does not show the NUMA nodes of the APUs, each package is in one of the APUs.
    std::fs::remove_dir_all(root.path().join("sys/bus")).unwrap();
    let answer = probe("AMD Instinct MI300A", path);
    assert_eq!(answer.topmost(), ["GPU-0", "GPU-1", "package-0-dram", "package-1-dram"]);
    // A card contains no package.
    let answer = probe("AMD Instinct MI300X", path);
    assert_eq!(answer.topmost().len(), 6);
}
