//! Tests of counters that the user defines: commands and files, through [`Source`], and which device contains which.

mod common;

use std::path::Path;
use std::time::{Duration, Instant};

use ampere_counters::{Kind, Opened, PollError, Quality, ReadError, Reading, Settings, Source, open_sources};
use ampere_settings::Config;
use common::put;

#[test]
#[ignore = "a process that other tests start"]
fn probe_child() {
    common::child();
}

fn open(root: &Path, names: &'static str, text: &str) -> Opened {
    let sources = Config::parse(text, "ampere.toml").unwrap_or_else(|error| panic!("{error}")).sources;
    let names = (!names.is_empty()).then(|| names.split(',').collect());
    open_sources(&Settings { names, sys_root: root.to_owned(), ..sources })
}

fn source(text: &str) -> Box<dyn Source> {
    let opened = open(Path::new("/nowhere"), "custom", text);
    assert_eq!(opened.notes, Vec::<String>::new());
    opened.sources.into_iter().next().unwrap()
}

/// Waits for the next reading.
fn next(source: &mut dyn Source, device: usize) -> Result<Reading, PollError> {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(60) {
        match source.read(device) {
            Ok(reading) => return Ok(reading),
            Err(ReadError::Poll(error)) => return Err(error),
            Err(ReadError::NotYet) => std::thread::sleep(Duration::from_millis(1)),
            Err(other) => panic!("{other}"),
        }
    }
    panic!("no reading")
}

fn command(command: &str, rest: &str) -> String {
    format!("[[source]]\nname = 'meter'\ncommand = '''{command}'''\nevery = '100ms'\n{rest}\n")
}

#[test]
fn the_watts_of_a_command_are_integrated_and_its_joules_passed_on() {
    let opened = Instant::now();
    let mut source = source(&format!(
        "{}[[source]]\nname = 'card'\nfile = '/proc/sys/kernel/pid_max'\nunit = 'J'\nscale = 1e-3\nevery = '100ms'\n",
        command(
            "echo 7; echo 'Power reading:  350.5 Watts'",
            "unit = 'W'\npattern = 'reading:\\s+([0-9.]+)'"
        )
    ));
    let found = source.devices();
    assert_eq!((found[0].quality, found[1].quality), (Quality::Integrated, Quality::Measured));
    assert_eq!((found[0].metric.as_str(), found[0].kind), ("custom:::energy:meter", Kind::Unknown));
    assert!(found[0].description.starts_with("integrated from power, every 100ms: echo 7"));
    let (begun, first) = (Instant::now(), next(source.as_mut(), 0).unwrap());
    assert_eq!(first.raw, 350_500_000);
    // On a busy machine, the next one may be there by now.
    let is_once = matches!(source.read(0), Err(ReadError::NotYet));
    assert!(is_once || opened.elapsed() >= Duration::from_millis(100), "each reading is passed on once");
    let (mut last, mut rounds) = (first, 0);
    while begun.elapsed() < Duration::from_millis(500) {
        last = next(source.as_mut(), 0).unwrap();
        rounds += 1;
    }
    let joules = (last.nanojoules - first.nanojoules) as f64 * 1e-9;
    let most = 350.5 * opened.elapsed().as_secs_f64(); // the first reading may be before `begun`
    assert!(joules > 0.0 && joules <= most && rounds > 0, "{joules} J of at most {most}");
    let pid_max: f64 = std::fs::read_to_string("/proc/sys/kernel/pid_max").unwrap().trim().parse().unwrap();
    assert_eq!(next(source.as_mut(), 1).unwrap().nanojoules, (pid_max * 1e6) as u64);
}

#[test]
fn the_end_of_a_run_has_a_reading_of_its_own() {
    let mut source = source("[[source]]\nname = 'm'\ncommand = 'echo 5'\nunit = 'W'\nevery = '60s'\n");
    let first = next(source.as_mut(), 0).unwrap();
    std::thread::sleep(Duration::from_millis(20));
    source.finish();
    let last = source.read(0).unwrap();
    assert!(last.nanojoules - first.nanojoules >= 100_000_000, "5 W for 20 ms or more: {last:?}");
}

#[test]
fn a_power_counts_until_the_end_of_a_run_if_its_command_is_slow() {
    let directory = tempfile::tempdir().unwrap();
    let once = directory.path().join("once").display().to_string();
    let begun = Instant::now();
    let mut source = source(&command(&format!("mkdir {once} || sleep 60; echo 5"), "unit = 'W'"));
    let first = next(source.as_mut(), 0).unwrap();
    std::thread::sleep(Duration::from_millis(200));
    source.finish();
    let joules = (source.read(0).unwrap().nanojoules - first.nanojoules) as f64 * 1e-9;
    assert!(joules >= 1.0 && joules <= 5.0 * begun.elapsed().as_secs_f64(), "{joules} J");
}

#[test]
fn what_is_not_a_figure_is_an_error_and_never_0() {
    for (text, rest, expected) in [
        ("echo none", "unit = 'W'", PollError::NoMatch),
        ("echo -- -3", "unit = 'W'", PollError::NoNumber),
        ("echo 1e30", "unit = 'J'", PollError::NoNumber),
        ("echo nan W", "unit = 'W'\npattern = '(\\S+) W'", PollError::NoNumber),
        ("echo 1,234 W", "unit = 'W'", PollError::PartOfNumber),
        ("echo 1,234 W", "unit = 'W'\npattern = '([0-9]+) W'", PollError::PartOfNumber),
        ("echo 0x64", "unit = 'W'", PollError::PartOfNumber),
        ("echo 0,85 kW", "unit = 'W'\nscale = 1000", PollError::PartOfNumber),
        ("echo 1.234,5 W", "unit = 'W'", PollError::PartOfNumber),
        ("echo 1 234 W", "unit = 'W'", PollError::PartOfNumber),
        ("echo PSU1: 85 W", "unit = 'W'", PollError::PartOfNumber),
        ("echo 1.2 KW", "unit = 'W'", PollError::OtherUnit("kW")),
        ("echo 1.2 kilowatts", "unit = 'W'", PollError::OtherUnit("kilowatt")),
        ("echo 1.2 kW", "unit = 'W'", PollError::OtherUnit("kW")),
        ("true", "unit = 'W'", PollError::NoMatch),
        ("echo oh; exit 3", "unit = 'W'", PollError::Exit(3)),
        ("echo '(7) cannot connect'; exit 7", "unit = 'W'", PollError::Exit(7)),
        ("/no/such/command", "unit = 'W'", PollError::Exit(127)),
        ("kill -TERM $$", "unit = 'W'", PollError::Killed(15)),
        ("printf '\\377\\376'", "unit = 'W'", PollError::NoMatch),
    ] {
        let mut source = source(&command(text, rest));
        for _ in 0..2 {
            assert_eq!(next(source.as_mut(), 0).unwrap_err(), expected, "{text}");
        }
    }
    let mut missing = source("[[source]]\nname = 'x'\nfile = '/no/such/file'\nunit = 'J'\n");
    assert_eq!(next(missing.as_mut(), 0).unwrap_err(), PollError::Io(std::io::ErrorKind::NotFound));
}

/// Waits until no process has this text in its command line: a process ends some time after it was killed.
fn await_end_of(text: &str) {
    let begun = Instant::now();
    while runs(text) {
        assert!(begun.elapsed() < Duration::from_secs(30), "{text} is still running");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn runs(text: &str) -> bool {
    std::fs::read_dir("/proc").unwrap().flatten().any(|entry| {
        std::fs::read(entry.path().join("cmdline"))
            .is_ok_and(|line| String::from_utf8_lossy(&line).replace('\0', " ").contains(text))
    })
}

#[test]
fn a_command_that_hangs_is_killed_with_all_that_it_started() {
    let mut source = source(&command("sleep 7125 & sleep 7125; echo 5", "unit = 'W'"));
    assert_eq!(next(source.as_mut(), 0).unwrap_err(), PollError::TimedOut(Duration::from_secs(2)));
    // Closing ends the command that runs now.
    drop(source);
    await_end_of("sleep 7125");
}

#[test]
fn an_endless_output_is_cut_and_input_is_empty() {
    let mut endless = source(&command("echo 5 W; yes", "unit = 'W'"));
    assert_eq!(next(endless.as_mut(), 0).unwrap().raw, 5_000_000);
    let mut late = source(&command("head -c 70000 /dev/zero; echo 5 W", "unit = 'W'"));
    assert_eq!(next(late.as_mut(), 0).unwrap_err(), PollError::NoMatch, "only the first 64 KiB are read");
    let mut left_behind = source(&command("sleep 7150 & echo 7", "unit = 'W'"));
    assert_eq!(next(left_behind.as_mut(), 0).unwrap().raw, 7_000_000);
    drop(left_behind);
    await_end_of("sleep 7150");
    let mut reader = source(&command("cat; echo 6", "unit = 'W'"));
    assert_eq!(next(reader.as_mut(), 0).unwrap().raw, 6_000_000);
}

#[test]
fn a_power_after_a_gap_starts_again_so_that_the_gap_is_not_counted_as_0() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("power");
    put(&file, "100\n");
    let text = format!("[[source]]\nname = 'm'\nfile = '{}'\nunit = 'W'\nevery = '100ms'\n", file.display());
    let mut source = source(&text);
    let first = next(source.as_mut(), 0).unwrap();
    let mut before = first;
    while before.nanojoules - first.nanojoules < 20_000_000_000 {
        before = next(source.as_mut(), 0).unwrap();
    }
    put(&file, "garbage\n");
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(2200) {
        let _ = next(source.as_mut(), 0);
    }
    put(&file, "100\n");
    let after = loop {
        if let Ok(reading) = next(source.as_mut(), 0) {
            break reading;
        }
    };
    assert!(after.nanojoules < before.nanojoules, "{after:?} after {before:?}");
}

const METER: &str =
    "[[source]]\nname = 'meter'\nfile = '/a'\nunit = 'W'\ncontains = ['rack', 'package.*', 'node']\n";
const RACK: &str = "[[source]]\nname = 'rack'\nfile = '/a'\nunit = 'W'\ncontains = ['fpga']\n";
const FPGA: &str = "[[source]]\nname = 'fpga'\nfile = '/a'\nunit = 'W'\n";

#[test]
fn no_joule_of_an_own_counter_is_added_twice() {
    let root = tempfile::tempdir().unwrap();
    let zone = root.path().join("sys/class/powercap/intel-rapl:0");
    put(&zone.join("name"), "package-0\n");
    put(&zone.join("energy_uj"), "5\n");
    put(&zone.join("max_energy_range_uj"), "65532610987\n");
    let topmost = |text: &str| {
        let opened = open(root.path(), "", text);
        let devices: Vec<_> = opened.sources.iter().flat_map(|source| source.devices().to_vec()).collect();
        let is_part = |name: &String| devices.iter().any(|device| device.contains.contains(name));
        let top: Vec<String> = devices.iter().map(|d| d.name.clone()).filter(|name| !is_part(name)).collect();
        top.join(" ")
    };
    assert_eq!(topmost(FPGA), "package-0 fpga");
    assert_eq!(topmost(&[METER, RACK, FPGA].concat()), "meter");
    // The platform is a part of a meter of the node.
    let psys = root.path().join("sys/class/powercap/intel-rapl:1");
    put(&psys.join("name"), "psys\n");
    put(&psys.join("energy_uj"), "5\n");
    let node = METER.replace("'rack', 'package.*', 'node'", "'package.*'");
    assert_eq!(topmost(&node), "meter");
    std::fs::remove_dir_all(psys).unwrap();
    // It is not known which one of two meters contains the other.
    let two = [&node, &node.replace("'meter'", "'inlet'")].map(String::as_str).concat();
    let opened = open(root.path(), "", &two);
    assert!(opened.is_incomplete, "{:?}", opened.notes);
    assert!(opened.notes[0].starts_with("meter and inlet have parts in common"), "{:?}", opened.notes);
    // A meter of the whole node contains all of the user's sources that do not contain it.
    put(&root.path().join("sys/cray/pm_counters/energy"), "1000 J 5 us\n");
    assert_eq!(topmost(FPGA), "node");
    assert_eq!(topmost(&[RACK, FPGA].concat()), "node");
    assert_eq!(topmost(&[METER, RACK, FPGA].concat()), "meter");
    let meter = open(root.path(), "", &[METER, RACK, FPGA].concat());
    let of_meter =
        meter.sources.iter().flat_map(|source| source.devices()).find(|d| d.name == "meter").unwrap();
    assert_eq!(of_meter.contains, ["node", "package-0", "rack", "fpga"], "parts of parts are parts");
    assert_eq!(of_meter.kind, Kind::Node);
}
