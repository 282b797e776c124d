//! The metric plugin, called through its C interface by a small host in place of Score-P.

use ampere_tests::jobs::{Place, until};
use ampere_tests::runs::{compile, on_path, text};
use ampere_tests::{artifact, skip_unless};
use std::process::{Command, Output};
use std::time::Duration;

struct Host {
    place: Place,
    program: std::path::PathBuf,
}

/// A metric as the host received it.
#[derive(Debug)]
struct Metric {
    name: String,
    description: String,
    properties: String,
    begin: u64,
    end: u64,
    samples: Vec<(u64, u64)>,
}

impl Host {
    fn new() -> Host {
        let place = Place::new();
        let program = compile(&place, &["cc", "-O1", "-ldl"], "host", include_str!("host.c"));
        Host { place, program }
    }

    fn command(&self, scenario: &str, seconds: &str, clock: &str, patterns: &[&str]) -> Command {
        let mut command = self.place.command(&self.program);
        command.args([scenario, seconds, clock]).args(patterns);
        command.env("LD_LIBRARY_PATH", artifact("libampere_plugin.so").parent().unwrap());
        command.env("SCOREP_METRIC_AMPERE_PLUGIN", patterns.join(","));
        command
    }

    /// Returns a command that reads the counters of the stand-in library.
    fn simulated(
        &self,
        scenario: &str,
        seconds: &str,
        clock: &str,
        patterns: &[&str],
        script: &str,
    ) -> Command {
        let mut command = self.command(scenario, seconds, clock, patterns);
        command.env("AMPERE_COUNTERS", "rocm_smi").env("STAND_IN_ROCM_SMI", script);
        command.env("AMPERE_ROCM_SMI_LIBRARY", artifact("libstand_in_rocm_smi64.so"));
        command
    }
}

#[track_caller]
fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}: {}", output.status, text(&output.stderr));
    output
}

#[track_caller]
fn metrics(command: &mut Command) -> Vec<Metric> {
    let output = run(command);
    assert_eq!(text(&output.stderr), "");
    text(&output.stdout).lines().map(parse).collect()
}

fn parse(line: &str) -> Metric {
    let parts: Vec<&str> = line.split('|').collect();
    let numbers =
        |text: &str| text.split_whitespace().map(|word| word.parse().unwrap()).collect::<Vec<u64>>();
    let span = numbers(parts[3]);
    Metric {
        name: parts[0].to_owned(),
        description: parts[1].to_owned(),
        properties: parts[2].to_owned(),
        begin: span[0],
        end: span[1],
        samples: numbers(parts[4]).chunks(2).map(|pair| (pair[0], pair[1])).collect(),
    }
}

impl Metric {
    /// Checks that times rise and lie within the measurement, and that values never fall. Returns microjoules per tick.
    #[track_caller]
    fn rate(&self) -> f64 {
        assert!(self.samples.len() > 20, "{} has {} samples", self.name, self.samples.len());
        assert!(
            self.samples.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1),
            "{self:?}"
        );
        let (first, last) = (self.samples[0], self.samples[self.samples.len() - 1]);
        let length = self.end - self.begin;
        assert!(first.0 >= self.begin && last.0 <= self.end, "{self:?}");
        let covered = (last.0 - first.0) as f64 / length as f64;
        assert!(covered > 0.5, "{} is there for {covered} of the time", self.name);
        (last.1 - first.1) as f64 / (last.0 - first.0) as f64
    }
}

#[test]
fn a_pattern_gives_every_counter_that_it_matches_with_the_joules_of_the_script() {
    let host = Host::new();
    let script = "watts=300,150,75";
    let all = metrics(&mut host.simulated("usual", "2", "ns", &["rocm_smi:::energy_count:device=*"], script));
    assert_eq!(all.len(), 3);
    for (index, (metric, watts)) in all.iter().zip([300.0, 150.0, 75.0]).enumerate() {
        assert_eq!(metric.name, format!("rocm_smi:::energy_count:device={index}"));
        assert_eq!(metric.description, format!("GPU-{index}: energy, simulated"));
        // The properties mean: accumulated since the start, unsigned, decimal, microjoules.
        assert_eq!(metric.properties, "0 1 1 -6 J");
        let measured = metric.rate() * 1e3; // microjoules per nanosecond are kilowatts
        // The first reading is not repeated if it was interrupted.
        assert!((measured - watts).abs() < 0.1 * watts, "{measured} W, not {watts}");
    }
    host.place.assert_clean();
    assert!(
        !host.place.path("out").exists()
            && std::fs::read_dir(host.place.directory()).unwrap().all(|entry| {
                let name = entry.unwrap().file_name().to_string_lossy().into_owned();
                ["host", "host.c", "shm", "tmp"].contains(&name.as_str())
            })
    );
}

#[test]
fn names_are_as_they_were_asked_for_and_none_comes_twice() {
    let host = Host::new();
    let patterns =
        ["A2rocm_smi:::energy_count:device=1", "*device=1", "rocm_smi:::energy_count:device=?", "*"];
    let all = metrics(&mut host.simulated("usual", "0.2", "ns", &patterns, "watts=300,150"));
    let names: Vec<&str> = all.iter().map(|metric| metric.name.as_str()).collect();
    assert_eq!(
        names,
        [
            "A2rocm_smi:::energy_count:device=1",
            "rocm_smi:::energy_count:device=1",
            "rocm_smi:::energy_count:device=0"
        ]
    );
    assert_eq!(all[0].samples, all[1].samples);
}

#[test]
fn times_are_of_the_hosts_clock_whichever_it_is() {
    let host = Host::new();
    for clock in ["tsc", "ns", "us"] {
        let all = metrics(&mut host.command("usual", "2", clock, &["estimate:::energy"]));
        assert_eq!(all.len(), 1);
        assert_eq!(all[0].description, "node: energy, estimated");
        assert!(all[0].rate() > 0.0);
    }
}

#[test]
fn odd_calls_of_the_host_do_no_harm() {
    let host = Host::new();
    run(&mut host.command("odd", "0.05", "ns", &["*"]));
    let all = metrics(&mut host.command("fork", "2", "ns", &["*"]));
    assert!(all[0].rate() > 0.0);
    host.place.assert_clean();
}

/// Memory is passed, used and freed by the rules of C, and a program under valgrind does not crash.
#[test]
fn valgrind_reports_no_error() {
    skip_unless!(on_path("valgrind"), "no valgrind");
    let host = Host::new();
    let plain = host.simulated("usual", "0.3", "ns", &["*", "A2*"], "watts=300,150");
    let mut command = host.place.command("valgrind");
    command.args(["-q", "--error-exitcode=9", "--leak-check=full", "--errors-for-leak-kinds=definite"]);
    command.arg(plain.get_program()).args(plain.get_args());
    for (name, value) in plain.get_envs() {
        command.env(name, value.unwrap_or_default());
    }
    assert_eq!(metrics(&mut command).len(), 4);
}

/// Checks that the host continues without metrics, and that one line explains what to do.
#[track_caller]
fn refused(host: &Host, command: &mut Command, expected: &[&str]) {
    let output = run(command);
    let said = text(&output.stderr);
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(expected.iter().all(|part| said.contains(part)), "{said}");
    assert!(text(&output.stdout).lines().all(|line| parse(line).samples.is_empty()));
    host.place.assert_clean();
}

#[test]
fn metrics_that_cannot_be_recorded_are_named_in_one_line() {
    let host = Host::new();
    let nothing = "no counter is called \"rocm_smj:*\"";
    refused(
        &host,
        &mut host.simulated("usual", "0", "ns", &["rocm_smj:*"], "watts=300"),
        &[nothing, "use one of rocm_smi:::energy_count:device=0"],
    );
    let mut no_gpu = host.command("usual", "0", "ns", &["rocm_smi:::energy_count:device=0"]);
    let root = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink("/proc", root.path().join("proc")).unwrap();
    no_gpu.env("AMPERE_SYS_ROOT", root.path()).env("AMPERE_COUNTERS", "auto");
    refused(&host, &mut no_gpu, &["(rocm_smi: no AMD GPU in", "use one of estimate:::energy"]);
    let mut none = host.command("usual", "0", "ns", &["*"]);
    refused(&host, none.env("AMPERE_COUNTERS", "none"), &["\"*\"", "there is none"]);
    refused(&host, &mut host.command("usual", "0", "ns", &[]), &["SCOREP_METRIC_AMPERE_PLUGIN names none"]);
    let mut config = host.command("usual", "0", "ns", &["*"]);
    refused(
        &host,
        config.env("AMPERE_CONFIG", "/nowhere.toml"),
        &["cannot read the configuration /nowhere.toml"],
    );
    let mut collector = host.command("usual", "0", "ns", &["*"]);
    refused(&host, collector.env("AMPERE_COLLECTOR", "/nowhere"), &["cannot start /nowhere"]);
    let mut memory = host.command("usual", "0", "ns", &["*"]);
    refused(&host, memory.env("AMPERE_SHM", "/nowhere"), &["cannot create /nowhere"]);
    // Score-P's profile leaves such metrics out.
    refused(&host, &mut host.command("no-calls", "0", "ns", &["*"]), &["SCOREP_ENABLE_PROFILING=false"]);
    let mut watts = host.command("usual", "0", "ns", &["*"]);
    refused(
        &host,
        watts.env("AMPERE_ESTIMATE_IDLE_WATTS", "many"),
        &["AMPERE_ESTIMATE_IDLE_WATTS", "is not a number"],
    );
    let mut disabled = host.command("usual", "0", "ns", &["*"]);
    assert_eq!(text(&run(disabled.env("AMPERE_DISABLE", "1")).stderr), "");
}

/// The collector is killed in the middle: another one takes its place, and no joule is missing.
#[test]
fn a_killed_collector_is_replaced_and_its_series_continues() {
    let host = Host::new();
    for (pattern, watts) in [("rocm_smi:::energy_count:device=1", 150.0), ("estimate:::energy", 100.0)] {
        let mut command = host.simulated("usual", "8", "ns", &[pattern], "watts=300,150");
        command.env("AMPERE_COUNTERS", pattern.split(':').next().unwrap());
        command.env("AMPERE_ESTIMATE_WATTS_PER_CORE", "0");
        let child = start(&mut command);
        until_it_samples(&host);
        kill_collectors(&host, |arguments| !arguments.contains("--supervise"));
        let output = child.wait_with_output().unwrap();
        assert_eq!((output.status.success(), text(&output.stderr).as_str()), (true, ""));
        let metric = parse(text(&output.stdout).lines().next().unwrap());
        let measured = metric.rate() * 1e3;
        assert!((measured - watts).abs() < 0.02 * watts, "{measured} W, not {watts}");
        // The gap was short, and its energy is in the sample after it.
        let longest = metric.samples.windows(2).map(|pair| pair[1].0 - pair[0].0).max().unwrap();
        assert!((40_000_000..3_000_000_000).contains(&longest), "{longest} ns");
        host.place.assert_clean();
    }
}

/// Waits until the collector has sampled for a while.
fn until_it_samples(host: &Host) {
    until("a collector runs", || !host.place.collectors().is_empty());
    std::thread::sleep(Duration::from_millis(1200));
}

fn start(command: &mut Command) -> std::process::Child {
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn().unwrap()
}

/// The supervisor is killed as well: the earlier samples are present, and a note reports that the rest is missing.
#[test]
fn without_a_replacement_a_killed_collectors_series_ends_early() {
    let host = Host::new();
    let mut child = start(&mut host.command("usual", "8", "ns", &["*"]));
    until_it_samples(&host);
    assert!(child.try_wait().unwrap().is_none());
    kill_collectors(&host, |arguments| arguments.contains("--supervise"));
    kill_collectors(&host, |_| true);
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    let said = text(&output.stderr);
    assert!(
        said.contains("estimate:::energy ends early in Score-P's trace") && said.lines().count() == 1,
        "{said}"
    );
    let metric = parse(text(&output.stdout).lines().next().unwrap());
    let last = metric.samples.last().unwrap().0;
    assert!(metric.samples.len() > 20 && last < metric.end - (metric.end - metric.begin) / 4);
}

/// Kills the collectors of this place, which have the session's directory among their arguments.
fn kill_collectors(host: &Host, which: impl Fn(&str) -> bool) {
    let place = host.place.directory().display().to_string();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse::<i32>() else { continue };
        let arguments =
            std::fs::read(entry.path().join("cmdline")).map_or_else(|_| String::new(), |b| text(&b));
        if arguments.contains("ampere-collector") && arguments.contains(&place) && which(&arguments) {
            // SAFETY: kill has no preconditions.
            unsafe { libc::kill(pid, libc::SIGKILL) };
        }
    }
}
