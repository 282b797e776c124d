//! Opens counters in a child process, which reports its readings.
//!
//! A library keeps state for a whole process and the stand-in takes its script from the environment, so each case needs its own
//! process. The child runs this test executable with only the test `probe_child`. It uses the variables of the counters. Its
//! steps are in the variable `AMPERE_PROBE`, separated by `;`: `read` (every device), `gauges` (of every device), `sleep MS`,
//! `drop` (all sources), `threads` (a second set of sources, read by a second thread at the same time), `exit` (read once more
//! in an exit handler that was registered first).
#![allow(dead_code)] // not every test file uses everything

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::Duration;

pub mod made_up_gpus;

use ampere_counters::{Opened, Source, open_sources};
use ampere_settings::Config;

/// A reading that the child reported.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Seen {
    pub nanojoules: u64,
    pub raw: u64,
    pub timestamp_ns: Option<u64>,
    /// CLOCK_MONOTONIC after the read.
    pub at_ns: u64,
}

/// Everything that a child reported.
#[derive(Debug, Default)]
pub struct Answer {
    pub notes: Vec<String>,
    /// One line per device: name, metric, source, quality, kind, resolution, pci, description, separated by `|`.
    pub devices: Vec<String>,
    /// For each device, the names of those that it contains.
    pub contains: Vec<Vec<String>>,
    /// The readings, by round of `read` and then by device.
    pub rounds: Vec<Vec<Result<Seen, String>>>,
    /// By round of `gauges`, one line such as `GPU-0 temperature_celsius edge 41` for each gauge that was read; `-` for no value.
    pub gauges: Vec<Vec<String>>,
    pub stderr: String,
}

impl Answer {
    pub fn seen(&self, round: usize, device: usize) -> Seen {
        match &self.rounds[round][device] {
            Ok(seen) => *seen,
            Err(error) => panic!("round {round}, device {device}: {error}"),
        }
    }

    pub fn names(&self) -> Vec<&str> {
        self.devices.iter().map(|line| line.split('|').next().unwrap()).collect()
    }

    /// Returns the devices that are not contained in another.
    pub fn topmost(&self) -> Vec<&str> {
        let mut names = self.names();
        names.retain(|name| !self.contains.iter().flatten().any(|part| part == name));
        names
    }

    /// Returns the joules of a device between two rounds.
    pub fn joules(&self, device: usize, from: usize, to: usize) -> f64 {
        (self.seen(to, device).nanojoules - self.seen(from, device).nanojoules) as f64 * 1e-9
    }
}

/// Returns the file of a stand-in library, which cargo puts into this executable's directory.
pub fn stand_in(name: &str) -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let file = own.parent().unwrap().join(name);
    assert!(file.exists(), "{} is missing", file.display());
    file
}

/// Runs a child with only these variables set for the counters; `before` is a command under which it runs.
pub fn probe_under(before: &[&str], steps: &str, variables: &[(&str, &str)]) -> Answer {
    let own = std::env::current_exe().unwrap();
    let mut command = match before {
        [] => Command::new(&own),
        [first, rest @ ..] => {
            let mut command = Command::new(first);
            command.args(rest).arg(&own);
            command
        }
    };
    command.args(["--exact", "probe_child", "--ignored", "--nocapture", "--test-threads=1"]);
    // cargo's LD_LIBRARY_PATH has the stand-in under the real library's name.
    for name in ["LD_LIBRARY_PATH", "ROCM_PATH", "STAND_IN_ROCM_SMI", "STAND_IN_AMD_SMI", "STAND_IN_NVML"] {
        command.env_remove(name);
    }
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("AMPERE_")) {
        command.env_remove(name);
    }
    let output = command.envs(variables.iter().copied()).env("AMPERE_PROBE", steps).output().unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    let mut answer =
        Answer { stderr: String::from_utf8_lossy(&output.stderr).into_owned(), ..Answer::default() };
    assert!(output.status.success(), "child ended with {}:\n{stdout}\n{}", output.status, answer.stderr);
    for line in stdout.lines() {
        let Some((word, rest)) = line.strip_prefix('@').and_then(|line| line.split_once(' ')) else {
            continue;
        };
        match word {
            "note" => answer.notes.push(rest.to_owned()),
            "device" => answer.devices.push(rest.to_owned()),
            "contains" => {
                let names = rest.split(' ').filter(|name| !name.is_empty());
                answer.contains.push(names.map(str::to_owned).collect());
            }
            "gauges" => answer.gauges.push(Vec::new()),
            "gauge" => answer.gauges.last_mut().unwrap().push(rest.to_owned()),
            "round" => answer.rounds.push(Vec::new()),
            "error" => answer.rounds.last_mut().unwrap().push(Err(rest.to_owned())),
            "reading" => answer.rounds.last_mut().unwrap().push(Ok(parse_reading(rest))),
            other => panic!("{other:?}"),
        }
    }
    answer
}

/// A stand-in: its file, the variables of its script and its path, and its source's name.
pub struct StandIn(pub &'static str, &'static str, &'static str, &'static str);

pub const ROCM_SMI: StandIn =
    StandIn("libstand_in_rocm_smi64.so", "STAND_IN_ROCM_SMI", "AMPERE_ROCM_SMI_LIBRARY", "rocm_smi");
pub const AMD_SMI: StandIn =
    StandIn("libstand_in_amd_smi.so", "STAND_IN_AMD_SMI", "AMPERE_AMDSMI_LIBRARY", "amdsmi");
pub const NVML: StandIn = StandIn("libstand_in_nvidia_ml.so", "STAND_IN_NVML", "AMPERE_NVML_LIBRARY", "nvml");

/// Runs a child on a stand-in with a script.
pub fn probe_with(stand_in: &StandIn, script: &str, steps: &str, more: &[(&str, &str)]) -> Answer {
    let library = self::stand_in(stand_in.0);
    let mut variables =
        vec![(stand_in.1, script), (stand_in.2, library.to_str().unwrap()), ("AMPERE_COUNTERS", stand_in.3)];
    variables.extend(more);
    probe_under(&[], steps, &variables)
}

/// Runs a child on the stand-in for librocm_smi64.
pub fn probe(script: &str, steps: &str, more: &[(&str, &str)]) -> Answer {
    probe_with(&ROCM_SMI, script, steps, more)
}

/// Makes a node that has CPU time and nothing else.
pub fn bare_node() -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    std::fs::create_dir(root.path().join("proc")).unwrap();
    std::fs::write(root.path().join("proc/stat"), "cpu  100 0 0 5000 0 0 0 0 0 0\n").unwrap();
    root
}

/// Writes a file and makes the directories above it.
pub fn put(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

fn parse_reading(text: &str) -> Seen {
    let fields: Vec<&str> = text.split(' ').collect();
    Seen {
        nanojoules: fields[0].parse().unwrap(),
        raw: fields[1].parse().unwrap(),
        timestamp_ns: fields[2].parse().ok(),
        at_ns: fields[3].parse().unwrap(),
    }
}

pub fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// The counters that the exit handler reads.
static SOURCES: Mutex<Vec<Box<dyn Source>>> = Mutex::new(Vec::new());

extern "C" fn read_at_exit() {
    for source in SOURCES.lock().unwrap().iter_mut() {
        match source.read(0) {
            Ok(reading) => eprintln!("at exit: {reading:?}"),
            Err(error) => eprintln!("at exit: {error}"),
        }
    }
    SOURCES.lock().unwrap().clear();
    eprintln!("at exit: done");
}

/// The child's side, which does nothing in the parent.
pub fn child() {
    let Ok(steps) = std::env::var("AMPERE_PROBE") else { return };
    println!();
    if steps.ends_with("exit") {
        // SAFETY: the handler is a plain function of this executable and does not unwind into C.
        assert_eq!(unsafe { libc::atexit(read_at_exit) }, 0);
    }
    let config = Config::load(None).expect("the environment's settings");
    let (settings, mut notes) = (config.sources, config.left_out);
    let Opened { mut sources, notes: more, .. } = open_sources(&settings);
    notes.extend(more);
    for note in notes {
        println!("@note {note}");
    }
    for d in sources.iter().flat_map(|source| source.devices()) {
        let pci = d.pci.as_deref().unwrap_or("-");
        println!(
            "@device {}|{}|{}|{}|{}|{}|{pci}|{}",
            d.name, d.metric, d.source, d.quality, d.kind, d.resolution_joules, d.description
        );
        println!("@contains {}", d.contains.join(" "));
    }
    for step in steps.split(';') {
        match step.split(' ').collect::<Vec<_>>()[..] {
            ["read"] => {
                println!("@round -");
                sources.iter_mut().for_each(|source| report(source.as_mut()));
            }
            ["gauges"] => {
                println!("@gauges -");
                sources.iter_mut().for_each(|source| report_gauges(source.as_mut()));
            }
            ["sleep", ms] => std::thread::sleep(Duration::from_millis(ms.parse().unwrap())),
            ["drop"] => sources.clear(),
            ["threads"] => {
                let mut others = open_sources(&settings).sources;
                std::thread::scope(|scope| {
                    for set in [&mut sources, &mut others] {
                        scope.spawn(|| (0..200).all(|_| set[0].read(0).is_ok()));
                    }
                });
            }
            ["exit"] => SOURCES.lock().unwrap().append(&mut sources),
            _ => assert_eq!(step, ""),
        }
    }
}

fn report(source: &mut dyn Source) {
    for device in 0..source.devices().len() {
        match source.read(device) {
            Ok(r) => {
                let timestamp = r.counter_timestamp_ns.map_or("-".to_owned(), |t| t.to_string());
                println!("@reading {} {} {timestamp} {}", r.nanojoules, r.raw, monotonic_ns());
            }
            Err(error) => println!("@error {error}"),
        }
    }
}

fn report_gauges(source: &mut dyn Source) {
    for device in 0..source.devices().len() {
        let name = source.devices()[device].name.clone();
        for gauge in source.gauges(device).to_vec() {
            let value = source.gauge(device, gauge).map_or("-".to_owned(), |value| format!("{value:.6}"));
            let value =
                if value.contains('.') { value.trim_end_matches('0').trim_end_matches('.') } else { &value };
            println!("@gauge {name} {} {} {value}", gauge.quantity().as_str(), gauge.which());
        }
    }
}

/// Compiles a library from C; returns `None` if there is no C compiler.
pub fn compile(folder: &Path, source: &str) -> Option<PathBuf> {
    let file = folder.join("made.c");
    let library = folder.join("libmade.so");
    std::fs::write(&file, source).unwrap();
    let ran = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&file).status();
    match ran {
        Ok(status) => {
            assert!(status.success());
            Some(library)
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            println!("skipped: no C compiler");
            None
        }
        Err(error) => panic!("cc: {error}"),
    }
}
