//! `ampere attribute` with several threads and several processes has the same figures as with one.

#[path = "oracle/random.rs"]
#[allow(dead_code)]
mod random_traces;
#[allow(dead_code)]
mod synthetic_trace;

use ampere_tests::jobs::{Done, Place, files_below, have, run, start, until};
use ampere_tests::random::Random;
use ampere_tests::runs::parse;
use rustix::process::Signal;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use synthetic_trace::Shape;

fn attribute(place: &Place, trace: &Path, arguments: &[&str]) -> Command {
    let mut command = place.ampere(["attribute", "--json"]);
    command.arg(trace).args(arguments);
    command
}

#[track_caller]
fn good(command: &mut Command) -> Done {
    let done = run(command);
    assert_eq!(done.code, 0, "{done:#?}");
    done.no_panic();
    done
}

/// Writes a random trace, and returns its path and that of its configuration. Every second trace has two nodes, each with its own
/// devices.
fn random_trace(place: &Place, seed: u64) -> (PathBuf, String) {
    let directory = place.path(format!("trace-{seed}"));
    std::fs::create_dir(&directory).expect("a directory");
    let generated = random_traces::write(&mut Random::new(seed), &directory).expect("a trace");
    let config = directory.join("ampere.toml");
    std::fs::write(&config, &generated.toml).expect("a file");
    (directory.join("traces.otf2"), config.display().to_string())
}

/// A trace of ranks on two nodes, with more events than are decoded ahead.
fn large_trace(place: &Place) -> (PathBuf, String) {
    let trace = synthetic_trace::write(&place.path("large"), &Shape { calls: 30_000, samples: 900 });
    let config = place.write("large.toml", synthetic_trace::CONFIG);
    (trace, config.display().to_string())
}

#[test]
fn the_tree_is_named_where_functions_that_others_call_have_most_joules() {
    let place = Place::new();
    let (trace, config) = large_trace(&place);
    for more in [&[][..], &["-o", "out"]] {
        let mut command = place.ampere(["attribute", "--config", &config]);
        // Narrower screens have no room for these lines.
        let lines = good(command.arg(&trace).args(more).env("COLUMNS", "200")).stdout;
        let look = lines.split("\nlook ").nth(1).unwrap_or_default();
        assert!(look.contains("-f tree: inclusive joules"), "{lines}");
    }
}

#[test]
fn the_number_of_threads_changes_no_digit() {
    let place = Place::new();
    let mut traces: Vec<_> = (0..50).map(|seed| random_trace(&place, seed)).collect();
    traces.push(large_trace(&place));
    let mut nodes = Vec::new();
    for (trace, config) in &traces {
        let config = config.as_str();
        for more in [&["--config", config][..], &[], &["--time", "--config", config]] {
            let with = |threads| run(attribute(&place, trace, more).args(["--threads", threads]));
            let one = with("1");
            for threads in ["2", "4", "5"] {
                assert_eq!(with(threads).stdout, one.stdout, "{} {more:?} {threads}", trace.display());
            }
            if one.code == 0 {
                let summary: Value = parse(&one.stdout).expect("JSON");
                nodes.push(summary["run"]["nodes"].as_array().map_or(0, Vec::len));
            }
        }
    }
    assert!(nodes.iter().filter(|nodes| **nodes > 1).count() > 30, "{nodes:?}");
    let done = run(&mut attribute(&place, &traces[0].0, &["--threads", "0"]));
    assert_eq!(done.code, 2, "{done:#?}");
}

#[test]
fn the_number_of_threads_changes_no_call() {
    let place = Place::new();
    let mut traces: Vec<_> = (0..10).map(|seed| random_trace(&place, seed)).collect();
    traces.push(large_trace(&place));
    for (trace, config) in &traces {
        let config = config.as_str();
        let calls = |threads: &str| {
            let files = ["calls.parquet", "calls.callpaths.parquet"].map(|name| place.path(name));
            let table = files[0].display().to_string();
            let how = ["--config", config, "--threads", threads, "--calls", &table];
            good(&mut attribute(&place, trace, &how));
            files.map(|path| std::fs::read(path).expect("a file"))
        };
        assert!(calls("1") == calls("4"), "{}", trace.display());
    }
}

/// Collects figures that differ by more than 1e-12 of their value, and all other differences.
fn differences(one: &Value, other: &Value, at: &str, found: &mut Vec<String>) {
    match (one, other) {
        (Value::Object(one), Value::Object(other)) if one.len() == other.len() => {
            for (key, value) in one {
                differences(value, &other[key], &format!("{at}.{key}"), found);
            }
        }
        (Value::Array(one), Value::Array(other)) if one.len() == other.len() => {
            for (number, (one, other)) in one.iter().zip(other).enumerate() {
                differences(one, other, &format!("{at}[{number}]"), found);
            }
        }
        (Value::Number(a), Value::Number(b)) => {
            let (a, b) = (a.as_f64().expect("a number"), b.as_f64().expect("a number"));
            if (a - b).abs() > 1e-12 * a.abs().max(b.abs()) {
                found.push(format!("{at}: {a} and {b}"));
            }
        }
        _ if one == other => {}
        _ => found.push(format!("{at}: {one} and {other}")),
    }
}

#[track_caller]
fn assert_same(one: &str, other: &str) {
    let [one, other] = [one, other].map(|text| parse(text).expect("JSON"));
    let mut found = Vec::new();
    differences(&one, &other, "", &mut found);
    assert_eq!(found, [""; 0]);
}

/// Sets the variables with which a launcher starts a rank.
fn member(command: &mut Command, rank: u32, size: u32) -> &mut Command {
    command.env("PMI_RANK", rank.to_string()).env("PMI_SIZE", size.to_string())
}

/// Returns the names of the files in a directory.
fn names(directory: &Path) -> Vec<String> {
    let mut names: Vec<String> = files_below(directory)
        .iter()
        .map(|path| path.file_name().expect("a name").to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

#[test]
fn several_processes_attribute_what_one_does() {
    let place = Place::new();
    let mut traces: Vec<_> = (0..30).map(|seed| random_trace(&place, seed)).collect();
    traces.push(large_trace(&place));
    for (at, (trace, config)) in traces.iter().enumerate() {
        let one = run(&mut attribute(&place, trace, &["--config", config]));
        let output = format!("out-{at}");
        // The processes start in any order.
        let size = 2 + at as u32 % 2;
        let ranks = (0..size).map(|rank| (rank + at as u32) % size);
        let done: Vec<Done> = ranks
            .map(|rank| {
                let mut command = attribute(&place, trace, &["--config", config, "-o", &output]);
                run(member(&mut command, rank, size))
            })
            .collect();
        let printed: Vec<&str> =
            done.iter().map(|done| done.stdout.as_str()).filter(|s| !s.is_empty()).collect();
        assert_eq!(printed.len(), 1, "{done:#?}");
        assert_same(&one.stdout, printed[0]);
        let written = std::fs::read_to_string(place.path(&output).join("summary.json")).expect("a summary");
        assert_same(&one.stdout, &written);
        assert_eq!(names(&place.path(&output)), ["report.html", "summary.json", "summary.txt"]);
        let said = |done: &Done| done.stderr.lines().map(str::to_owned).collect::<Vec<_>>();
        let all: Vec<String> = done.iter().flat_map(said).collect();
        assert_eq!(all, said(&one));
    }
}

#[test]
fn processes_that_open_mpi_starts_make_one_attribution() {
    if !have(&["mpirun.openmpi"]) {
        return;
    }
    let place = Place::new();
    let (trace, config) = large_trace(&place);
    let one = good(&mut attribute(&place, &trace, &["--config", &config]));
    let launched = |arguments: &[&str]| {
        let words = attribute(&place, &trace, &["--config", &config]);
        let mut command = place.command("mpirun.openmpi");
        command.args(["--oversubscribe", "-n", "3"]).arg(words.get_program()).args(words.get_args());
        run(command.args(arguments))
    };
    let done = launched(&["-o", "out"]);
    assert_eq!(done.code, 0, "{done:#?}");
    assert_same(&one.stdout, &done.stdout);
    assert_eq!(names(&place.path("out")), ["report.html", "summary.json", "summary.txt"]);
    // If the processes cannot be joined, one of them does all the work.
    let done = launched(&[]);
    assert_eq!((done.code, &done.stdout), (0, &one.stdout), "{done:#?}");
    done.said_once(&["without -o the first of 3 processes does all the work"]);
    let done = launched(&["--calls", "calls.parquet", "-o", "with-calls"]);
    assert_eq!((done.code, &done.stdout), (0, &one.stdout), "{done:#?}");
    done.said_once(&["with --calls the first of 3 processes does all the work"]);
    assert!(place.path("calls.parquet").exists() && place.path("with-calls/summary.json").exists());
    // A single process is the same as one without a launcher.
    let done = run(member(&mut attribute(&place, &trace, &["--config", &config]), 0, 1));
    assert_eq!((done.code, &done.stdout), (0, &one.stdout), "{done:#?}");
    done.said_nothing();
}

#[test]
fn when_a_process_dies_the_same_command_continues() {
    let place = Place::new();
    let (trace, config) = large_trace(&place);
    let one = good(&mut attribute(&place, &trace, &["--config", &config]));
    let process = |rank| {
        let mut command = attribute(&place, &trace, &["--config", &config, "-o", "out"]);
        member(&mut command, rank, 2);
        command
    };
    let dies = start(&mut process(0));
    dies.signal(Signal::KILL);
    assert_eq!(dies.wait().code, 137);
    let done = good(&mut process(1));
    assert_eq!(done.stdout, "");
    let left = names(&place.path("out"));
    assert!(left.len() == 1 && left[0].starts_with(".ampere-share-"), "{left:?}");
    // Figures with other settings are not joined with these.
    let mut other = attribute(&place, &trace, &["-o", "out", "--config", &config, "--policy", "busy_only"]);
    assert_eq!(good(member(&mut other, 0, 2)).stdout, "");
    let done = good(&mut process(0));
    assert_same(&one.stdout, &done.stdout);
    let left = names(&place.path("out"));
    assert!(left.len() == 4 && left[0].starts_with(".ampere-share-"), "{left:?}");
}

#[test]
fn an_interrupted_attribution_is_reported_and_leaves_nothing() {
    let place = Place::new();
    let (trace, config) = large_trace(&place);
    // The process waits for a settings file that never comes.
    let pipe = place.path("pipe.toml");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &pipe,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        0,
    )
    .expect("a pipe");
    drop(config);
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let pipe = pipe.display().to_string();
        let running = start(&mut attribute(&place, &trace, &["--config", &pipe, "-o", "out"]));
        let catches = |line: &str| {
            let mask =
                line.strip_prefix("SigCgt:").and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
            mask.is_some_and(|mask| mask & (1 << (Signal::TERM.as_raw() - 1)) != 0)
        };
        until("signals are waited for", || {
            let status = std::fs::read_to_string(format!("/proc/{}/status", running.pid().as_raw_nonzero()));
            status.is_ok_and(|status| status.lines().any(catches))
        });
        running.signal(signal);
        let done = running.wait();
        assert_eq!((done.code, done.stdout.as_str()), (code, ""), "{done:#?}");
        done.said_once(&["interrupted: nothing was written"]);
        assert!(!place.path("out").exists());
    }
}

/// One event file of the trace is cut short, and another one is missing.
#[test]
fn damaged_traces_have_the_same_figures_with_any_number_of_threads() {
    let place = Place::new();
    let (trace, config) = large_trace(&place);
    let events = |number: u64| trace.with_extension("").join(format!("{number}.evt"));
    let cut = std::fs::OpenOptions::new().write(true).open(events(0)).expect("a file");
    let length = cut.metadata().expect("a length").len();
    cut.set_len(length * 3 / 5).expect("cut");
    std::fs::remove_file(events(synthetic_trace::MAIN_OF_RANK_1)).expect("it was there");
    let with = |threads| good(&mut attribute(&place, &trace, &["--config", &config, "--threads", threads]));
    let (one, four) = (with("1"), with("4"));
    assert_eq!(one.stdout.lines().count(), four.stdout.lines().count());
    let [one, four]: [Value; 2] = [&one, &four].map(|done| parse(&done.stdout).expect("JSON"));
    assert_eq!((&one["devices"], &one["quality"]), (&four["devices"], &four["quality"]));
    let notes = |summary: &Value| {
        let notes = summary["run"]["notes"].as_array().expect("notes").clone();
        let mut notes: Vec<String> = notes.iter().map(Value::to_string).collect();
        notes.sort();
        notes
    };
    assert_eq!(notes(&one), notes(&four));
    assert!(notes(&one).iter().any(|note| note.contains("no event file")), "{one}");
    assert!(notes(&one).iter().any(|note| note.contains("up to the end of its events")), "{one}");
}
