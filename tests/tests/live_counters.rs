//! Counters of a node that differ from what their names suggest: two names of the same counter, a sum that is less than its
//! parts, a counter that ends early. They are files of a made-up node, which a thread keeps up to date.

use ampere_tests::artifact;
use ampere_tests::jobs::{Place, run};
use ampere_tests::runs::list;
use serde_json::Value;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A program that works for two seconds. It makes a file when it begins.
const PROGRAM: &str = "
#include <fcntl.h>
#include <time.h>
#include <unistd.h>
static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}
__attribute__((noinline)) void works(void) {
    for (double end = now() + 2; now() < end;) usleep(1000);
}
int main(void) { close(creat(\"begun\", 0600)); works(); return 0; }
";

/// The microjoules of a zone after a time in seconds, or `None` for a text that is not a number. The second time is that at
/// which the program began, infinite before.
type Shows = fn(f64, f64) -> Option<u64>;
/// The time between two writes after which files of the made-up node count as late.
const LATE: Duration = Duration::from_millis(50);

#[derive(Clone, Copy)]
struct Zone {
    zone: &'static str,
    name: &'static str,
    shows: Shows,
}

fn zone(zone: &'static str, name: &'static str, shows: Shows) -> Zone {
    Zone { zone, name, shows }
}

/// Returns a counter that was already running before the run.
fn joules(seconds: f64, watts: f64) -> Option<u64> {
    Some(7_000_000 + (seconds * watts * 1e6) as u64)
}

struct Node {
    root: PathBuf,
    stop: Arc<AtomicBool>,
    writer: Option<JoinHandle<Duration>>,
}

impl Node {
    fn new(place: &Place, zones: &[Zone]) -> Node {
        let root = place.path("node");
        std::fs::create_dir_all(root.join("proc")).expect("a directory");
        std::fs::write(root.join("proc/stat"), "cpu  100 0 0 5000 0 0 0 0 0 0\n").expect("a file");
        std::fs::write(root.join("proc/cpuinfo"), "vendor_id\t: GenuineIntel\n").expect("a file");
        for zone in zones {
            let folder = folder(&root, zone);
            std::fs::create_dir_all(&folder).expect("a directory");
            std::fs::write(folder.join("name"), zone.name).expect("a file");
            std::fs::write(folder.join("max_energy_range_uj"), "262143328850").expect("a file");
        }
        write(&root, zones, 0.0, f64::INFINITY);
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let of_writer = root.clone();
        let zones = zones.to_vec();
        let program = place.path("begun");
        let writer = std::thread::spawn(move || {
            let begin = Instant::now();
            let mut from = f64::INFINITY;
            let mut late = Duration::ZERO;
            let mut last = begin;
            while !stopped.load(Ordering::Relaxed) {
                if from.is_infinite() && program.exists() {
                    from = begin.elapsed().as_secs_f64();
                }
                write(&of_writer, &zones, begin.elapsed().as_secs_f64(), from);
                late += last.elapsed().saturating_sub(LATE);
                last = Instant::now();
                std::thread::sleep(Duration::from_millis(10));
            }
            late
        });
        Node { root, stop, writer: Some(writer) }
    }

    /// Ends the node. Returns the seconds by which its files were late, because the machine was busy.
    fn end(mut self) -> f64 {
        self.stop.store(true, Ordering::Relaxed);
        let writer = self.writer.take().expect("it is running");
        writer.join().expect("a thread").as_secs_f64()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.writer.take().map(JoinHandle::join);
    }
}

fn folder(root: &Path, zone: &Zone) -> PathBuf {
    root.join(format!("sys/class/powercap/intel-rapl:{}", zone.zone))
}

/// Overwrites the files in place, like the kernel's, so that a process that has one open reads the new content.
fn write(root: &Path, zones: &[Zone], seconds: f64, from: f64) {
    for zone in zones {
        let text = (zone.shows)(seconds, from)
            .map_or_else(|| format!("{:-<20}\n", ""), |value| format!("{value:<20}\n"));
        let file = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(folder(root, zone).join("energy_uj"));
        file.expect("a file").write_all_at(text.as_bytes(), 0).expect("a file");
    }
}

/// Returns the summary of a run on such a node, with the seconds by which its files were late as `files_late_seconds`, and the
/// standard error of the run.
fn measured(zones: &[Zone]) -> (Value, String) {
    measured_with(zones, "rapl", "")
}

/// Like [`measured`], with these sources of counters, and settings.
fn measured_with(zones: &[Zone], counters: &str, settings: &str) -> (Value, String) {
    let place = Place::new();
    std::fs::write(place.path("ampere.toml"), settings).expect("a file");
    let program = place.compile("cc", "program", PROGRAM, &["-finstrument-functions"]);
    let node = Node::new(&place, zones);
    let mut command = place.ampere_run("out", [program.as_os_str()]);
    command.env("AMPERE_SYS_ROOT", &node.root).env("AMPERE_COUNTERS", counters);
    let done = run(command.env("AMPERE_CONFIG", place.path("ampere.toml")));
    assert_eq!(done.code, 0, "{done:#?}");
    let mut summary = place.summary("out");
    summary["files_late_seconds"] = node.end().into();
    (summary, done.stderr)
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("no number: {value}"))
}

/// Checks the sum of all joules against this power, in the time of the first device.
#[track_caller]
fn assert_watts(summary: &Value, watts: f64) {
    let seconds = number(&summary["devices"][0]["sampled_seconds"]);
    let found = number(&summary["run"]["total_joules"]) / seconds;
    let late = summary["files_late_seconds"].as_f64().unwrap_or(0.0);
    let within = 0.1 + late / seconds;
    assert!(
        (found / watts - 1.0).abs() < within,
        "{found} W, not {watts}, {late} s late: {:#}",
        summary["run"]
    );
}

fn names(summary: &Value) -> Vec<&str> {
    list(summary, "devices")
        .iter()
        .filter_map(|device| device["name"].as_str())
        .filter(|n| *n != "time")
        .collect()
}

fn notes(summary: &Value) -> String {
    summary["run"]["notes"].to_string()
}

#[test]
fn dies_with_one_counter_are_one_device() {
    let (summary, _) = measured(&[
        zone("0", "package-0-die-0", |t, _| joules(t, 50.0)),
        zone("1", "package-0-die-1", |t, _| joules(t, 50.0)),
    ]);
    assert_eq!(names(&summary), ["package-0-die-0"]);
    assert_watts(&summary, 50.0);
    assert!(notes(&summary).contains("package-0-die-1 on "), "{}", notes(&summary));
    assert_eq!(summary["run"]["complete"], true, "{}", notes(&summary));
}

#[test]
fn the_dies_of_two_packages_are_two_devices_with_their_memory() {
    let (summary, _) = measured(&[
        zone("0", "package-0-die-0", |t, _| joules(t, 50.0)),
        zone("0:0", "dram", |t, _| joules(t, 5.0)),
        zone("1", "package-0-die-1", |t, _| joules(t, 50.0)),
        zone("1:0", "dram", |t, _| joules(t, 5.0)),
        zone("2", "package-1-die-0", |t, _| joules(t, 50.0)),
        zone("3", "package-1-die-1", |t, _| joules(t, 50.0)),
    ]);
    assert_eq!(names(&summary), ["package-0-die-0", "package-0-die-0-dram", "package-1-die-0"]);
    assert_watts(&summary, 105.0);
    assert_eq!(summary["run"]["complete"], true, "{}", notes(&summary));
}

#[test]
fn dies_with_a_counter_each_are_two_devices() {
    let (summary, _) = measured(&[
        zone("0", "package-0-die-0", |t, _| joules(t, 50.0)),
        zone("1", "package-0-die-1", |t, _| joules(t, 40.0)),
    ]);
    assert_eq!(names(&summary), ["package-0-die-0", "package-0-die-1"]);
    assert_watts(&summary, 90.0);
    assert_eq!(summary["run"]["complete"], true, "{}", notes(&summary));
}

/// Two drivers can show one package, and some kernels give the dies of a package the same name.
#[test]
fn two_zones_of_one_name_are_one_device_or_two_by_their_values() {
    for (watts, name) in [(50.0, None), (40.0, Some("zone-1-package-0"))] {
        let shows: Shows = if name.is_none() { |t, _| joules(t, 50.0) } else { |t, _| joules(t, 40.0) };
        let (summary, _) =
            measured(&[zone("0", "package-0", |t, _| joules(t, 50.0)), zone("1", "package-0", shows)]);
        assert_eq!(names(&summary), Vec::from_iter(Some("package-0").into_iter().chain(name)));
        assert_watts(&summary, if name.is_none() { 50.0 } else { 50.0 + watts });
        assert_eq!(summary["run"]["complete"], true, "{}", notes(&summary));
    }
}

#[test]
fn a_platform_that_counts_less_than_its_packages_is_not_the_total() {
    let cases: [&[Zone]; 3] = [
        // The platform's counter stands still, is 0, or counts a fifth of the packages' energy.
        &[zone("0", "package-0", |t, _| joules(t, 50.0)), zone("1", "psys", |_, _| joules(0.0, 0.0))],
        &[zone("0", "package-0", |t, _| joules(t, 50.0)), zone("1", "psys", |_, _| Some(0))],
        &[
            zone("0", "package-0", |t, _| joules(t, 25.0)),
            zone("1", "package-1", |t, _| joules(t, 25.0)),
            zone("2", "psys", |t, _| joules(t, 10.0)),
        ],
    ];
    for zones in cases {
        let (summary, _) = measured(zones);
        assert_watts(&summary, 50.0);
        assert!(!names(&summary).contains(&"psys"), "{:?}", names(&summary));
        assert!(notes(&summary).contains("psys on "), "{}", notes(&summary));
        assert_eq!(summary["run"]["complete"], false);
    }
}

#[test]
fn a_platform_that_counts_its_packages_is_the_total() {
    let (summary, _) = measured(&[
        zone("0", "package-0", |t, _| joules(t, 50.0)),
        zone("1", "psys", |t, _| joules(t, 70.0)),
    ]);
    assert_watts(&summary, 70.0);
    assert_eq!(names(&summary), ["package-0", "psys"]);
    assert_eq!(summary["run"]["complete"], true, "{}", notes(&summary));
}

/// The energy that such a counter would have counted since then is unknown.
#[test]
fn a_counter_that_cannot_be_read_any_more_makes_the_run_incomplete() {
    let alone = &[zone("0", "package-0", |t, from| if t < from + 1.0 { joules(t, 40.0) } else { None })];
    let (summary, said) = measured(alone);
    assert_eq!(summary["run"]["complete"], false, "{said}");
    let said = format!(
        "package-0 on {}: its energy is known for ",
        summary["devices"][0]["node"].as_str().expect("a node")
    );
    assert!(notes(&summary).contains(&said), "{}", notes(&summary));
    let (summary, said) = measured(&[
        zone("0", "package-0", |t, _| joules(t, 40.0)),
        zone("1", "package-1", |t, from| if t < from + 1.0 { joules(t, 40.0) } else { None }),
    ]);
    assert_eq!(summary["run"]["complete"], false, "{said}");
    // The power of the counter during the rest of the run is unknown, so there is no sum of both mean powers.
    let joules = number(&summary["run"]["total_joules"]);
    let seconds = number(&summary["devices"][0]["sampled_seconds"]);
    let words = format!("at least {:.1} W\n", joules / seconds);
    assert!(said.contains(&words), "{words}: {said}");
    assert!(!said.contains(", 80.0 W"), "{said}");
}

#[test]
fn a_package_whose_counter_stands_still_makes_the_run_incomplete() {
    let cases: [&[Zone]; 3] = [
        &[zone("0", "package-0", |_, _| joules(0.0, 0.0))],
        &[zone("0", "package-0", |t, _| joules(t, 50.0)), zone("1", "package-1", |_, _| joules(0.0, 0.0))],
        &[zone("0", "package-0", |t, from| joules(t.min(from + 0.3), 50.0))],
    ];
    for zones in cases {
        let (summary, said) = measured(zones);
        assert_eq!(summary["run"]["complete"], false, "{said}");
        assert!(
            notes(&summary).contains(": its counter did not change for the last "),
            "{}",
            notes(&summary)
        );
    }
    // Cores may be switched off while their package counts.
    let (summary, said) = measured(&[
        zone("0", "package-0", |t, _| joules(t, 50.0)),
        zone("0:0", "core", |_, _| joules(0.0, 0.0)),
    ]);
    assert_eq!(summary["run"]["complete"], true, "{said}");
}

#[test]
fn a_counter_that_could_never_be_read_makes_the_run_incomplete() {
    let (summary, said) =
        measured(&[zone("0", "package-0", |t, _| joules(t, 40.0)), zone("1", "package-1", |_, _| None)]);
    assert_watts(&summary, 40.0);
    assert_eq!(summary["run"]["complete"], false, "{said}");
    assert!(notes(&summary).contains("package-1: "), "{}", notes(&summary));
}

#[test]
fn the_watts_of_a_counter_that_jumps_are_not_shown_as_a_mean() {
    let (summary, said) = measured(&[
        zone("0", "package-0", |t, _| joules(t, 50.0)),
        zone("1", "package-1", |t, _| joules(t, 5000.0)),
    ]);
    assert_eq!(summary["run"]["complete"], false, "{said}");
    let watts = said.split(", at least ").nth(1).and_then(|text| text.split(" W\n").next()).expect("watts");
    let watts: f64 = watts.parse().expect("a number");
    assert!(watts < 1000.0, "{said}");
}

/// Each partition of an MI300 has the counter of the whole package.
#[test]
fn the_partitions_of_a_gpu_are_one_device() {
    for how in ["", ";step_ms=15"] {
        let place = Place::new();
        let program = place.compile("cc", "program", PROGRAM, &["-finstrument-functions"]);
        let mut command = place.ampere_run("out", [program.as_os_str()]);
        command.env("AMPERE_COUNTERS", "rocm_smi");
        command.env("AMPERE_ROCM_SMI_LIBRARY", artifact("libstand_in_rocm_smi64.so"));
        command.env("STAND_IN_ROCM_SMI", format!("watts=300;devices=6;partitions=1{how}"));
        // The rank on another partition draws from the package.
        let done = run(command.env("ROCR_VISIBLE_DEVICES", "3"));
        assert_eq!(done.code, 0, "{done:#?}");
        let summary = place.summary("out");
        assert_eq!(names(&summary), ["GPU-0"], "{how}: {}", notes(&summary));
        assert_watts(&summary, 300.0);
        let view = &list(&summary["devices"][0], "views")[0];
        let works = list(view, "regions").iter().find(|row| row["region"] == "works").expect("a row");
        assert!(number(&works["exclusive_joules"]) > 400.0, "{works}");
        // The run's own trace has the same figures.
        let trace = place.path("out/traces.otf2");
        let again = run(place.ampere(["attribute", "--json"]).arg(&trace));
        let again: Value = serde_json::from_str(&again.stdout).expect("JSON");
        assert_eq!(names(&again), ["GPU-0"], "{}", notes(&again));
    }
}

#[test]
fn separate_gpus_are_separate_devices() {
    let place = Place::new();
    let program = place.compile("cc", "program", PROGRAM, &["-finstrument-functions"]);
    let mut command = place.ampere_run("out", [program.as_os_str()]);
    command.env("AMPERE_COUNTERS", "rocm_smi");
    command.env("AMPERE_ROCM_SMI_LIBRARY", artifact("libstand_in_rocm_smi64.so"));
    assert_eq!(run(command.env("STAND_IN_ROCM_SMI", "watts=300;devices=3;step_ms=15")).code, 0);
    assert_eq!(names(&place.summary("out")), ["GPU-0", "GPU-1", "GPU-2"]);
}

#[test]
fn a_meter_of_ones_own_is_integrated_and_its_parts_are_not_added() {
    let settings = "[[source]]\nname = \"meter\"\ncommand = \"echo Power: 250.0 W\"\npattern = 'Power: ([0-9.]+) W'\n\
                    unit = \"W\"\nevery = \"100ms\"\ncontains = [\"package-.*\"]\n";
    let (summary, _) =
        measured_with(&[zone("0", "package-0", |t, _| joules(t, 50.0))], "rapl,custom", settings);
    assert_eq!(names(&summary), ["package-0", "meter"]);
    let meter = &summary["devices"][1];
    assert_eq!((&meter["source"], &meter["energy"]), (&"custom".into(), &"integrated".into()));
    assert_eq!(summary["run"]["total_joules"], meter["total_joules"]);
    let watts = number(&meter["total_joules"])
        / (number(&meter["sampled_seconds"]) - number(&meter["uncovered_seconds"]));
    assert!((watts / 250.0 - 1.0).abs() < 0.1, "{watts} W: {meter:#}");
}

#[test]
fn a_counter_of_ones_own_that_shows_no_figure_is_one_note_and_no_joules() {
    let settings =
        "[[source]]\nname = \"meter\"\ncommand = \"echo no figure\"\nunit = \"W\"\nevery = \"100ms\"\n";
    let (summary, _) =
        measured_with(&[zone("0", "package-0", |t, _| joules(t, 50.0))], "rapl,custom", settings);
    assert_watts(&summary, 50.0);
    let all = notes(&summary);
    assert_eq!(all.matches("meter cannot be read: its pattern does not match the text").count(), 1, "{all}");
    assert!(all.contains(" readings of a counter failed"), "{all}");
    assert_eq!(summary["run"]["complete"], false, "{all}");
    assert!(all.contains(": its energy is not known, because it has fewer than two readings"), "{all}");
}

#[test]
fn time_before_the_first_reading_of_a_slow_counter_makes_the_run_incomplete() {
    let settings =
        "[[source]]\nname = \"meter\"\ncommand = \"sleep 1; echo 100\"\nunit = \"W\"\nevery = \"100ms\"\n";
    let (summary, said) = measured_with(&[], "custom", settings);
    assert_eq!(summary["run"]["complete"], false, "{said}");
    assert!(said.contains("INCOMPLETE: no counter had a reading for "), "{said}");
}
