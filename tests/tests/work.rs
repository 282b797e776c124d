//! Units of work: counted by commands of a run, they are in every form of its result, each once.

use ampere_tests::collector::announced;
use ampere_tests::http;
use ampere_tests::jobs::{Place, Running, kill, run, start, until};
use ampere_tests::openmetrics;
use ampere_tests::runs::{attribute, list, may_mount, number, relative, succeed};
use ampere_tests::{artifact, skip_unless};
use serde_json::Value;
use std::collections::BTreeMap;

/// Returns the units of a summary by name, and checks their joules.
fn units(summary: &Value) -> BTreeMap<String, f64> {
    let joules = number(&summary["run"], "total_joules");
    let work = list(&summary["run"], "work");
    for work in work {
        let each = number(work, "joules_per_unit");
        assert!(
            joules > 0.0 && relative(each * number(work, "units"), joules) < 1e-9,
            "{work} of {joules} J"
        );
    }
    work.iter().map(|work| (work["name"].as_str().unwrap().to_owned(), number(work, "units"))).collect()
}

fn expected(all: &[(&str, f64)]) -> BTreeMap<String, f64> {
    all.iter().map(|(name, units)| ((*name).to_owned(), *units)).collect()
}

/// Returns a shell script that counts work, in which `ampere` is the command, and which then waits for the file `go`.
fn counting(place: &Place, lines: &str) -> std::path::PathBuf {
    let ampere = artifact("ampere");
    let text = format!(
        "#!/bin/sh\nampere() {{ '{}' \"$@\"; }}\n{lines}\ntouch counted\nwhile [ ! -e go ]; do sleep 0.01; done\n{}",
        ampere.display(),
        "[ ! -e last ] || ampere work steps 100\n"
    );
    place.script("counting", &text)
}

/// Waits until /metrics has these units of a work.
fn until_metrics_have(place: &Place, output: &str, work: &str, units: f64) {
    until("the units are in the metrics", || {
        let Some(collector) = announced(&place.path(output)) else { return false };
        let Ok(response) = http::get(collector.address(), "/metrics") else { return false };
        let samples = openmetrics::parse(&response.body).unwrap_or_else(|why| panic!("{why}"));
        let is_it = |sample: &openmetrics::Sample| {
            sample.name == "ampere_work_units_total" && sample.label("work") == work && sample.value == units
        };
        samples.iter().any(is_it)
    });
}

fn start_counting(place: &Place, lines: &str) -> Running {
    let running = start(&mut place.ampere_run("out", [counting(place, lines)]));
    until("the script has counted", || place.path("counted").exists());
    running
}

#[test]
fn units_that_a_script_counts_are_in_every_form_of_the_result() {
    let place = Place::new();
    let lines = "ampere work steps 3 && ampere work steps 4.5 && ampere work 'time steps' 1e6";
    let running = start_counting(&place, lines);
    until_metrics_have(&place, "out", "steps", 7.5);
    // Units that are counted last, when the collector is about to end, count as well.
    place.write("last", "");
    place.write("go", "");
    let done = running.wait();
    assert_eq!(done.code, 0, "{done:#?}");
    let all = expected(&[("steps", 107.5), ("time steps", 1e6)]);
    let summary = place.summary("out");
    assert_eq!(units(&summary), all);
    let text = std::fs::read_to_string(place.path("out/summary.txt")).expect("summary.txt");
    for line in ["work    1 000 000 time steps, ~", "work    108 steps, ~"] {
        assert!(text.contains(line), "{line}: {text}");
    }
    assert!(done.stderr.contains("1 000 000 time steps, ~"), "{done:#?}");
    let page = std::fs::read_to_string(place.path("out/report.html")).expect("report.html");
    assert!(page.contains("1 000 000 time steps"));
    let of_trace = attribute(&place.path("out/traces.otf2"), &[]);
    assert_eq!(of_trace["run"]["work"], summary["run"]["work"]);
    let trace = place.path("out/traces.otf2");
    let mut replay = place.ampere(["replay", "--speed", "100", "-o", "replayed"]);
    succeed(replay.arg(&trace));
    assert_eq!(place.summary("replayed")["run"]["work"], summary["run"]["work"]);
    place.assert_clean();
}

#[test]
fn a_collector_that_takes_over_counts_each_unit_once() {
    let place = Place::new();
    let running = start_counting(&place, "ampere work steps 5; ampere work steps 6");
    until_metrics_have(&place, "out", "steps", 11.0);
    let [first] = place.collectors()[..] else { panic!("{:?}", place.collectors()) };
    kill(first);
    until("another collector runs", || place.collectors().iter().any(|pid| *pid != first));
    place.write("last", "");
    place.write("go", "");
    let done = running.wait();
    assert_eq!(done.code, 0, "{done:#?}");
    let summary = place.summary("out");
    assert_eq!(units(&summary), expected(&[("steps", 111.0)]));
    assert_eq!(attribute(&place.path("out/traces.otf2"), &[])["run"]["work"], summary["run"]["work"]);
}

#[test]
fn units_of_a_run_that_was_killed_as_a_whole_are_recovered() {
    let place = Place::new();
    // Without a process that has joined, nothing would be recovered.
    let waits = place.compile("cc", "waits", WAITS, &["-finstrument-functions"]);
    let lines = format!("'{}' &\nwhile [ ! -e joined ]; do sleep 0.01; done", waits.display());
    let running = start_counting(&place, &format!("{lines}\nampere work steps 5; ampere work cells 6"));
    until_metrics_have(&place, "out", "steps", 5.0);
    until_metrics_have(&place, "out", "cells", 6.0);
    // The order is: the process that would restart the collector, the collector, the script.
    running.signal(rustix::process::Signal::KILL);
    place.collectors().into_iter().for_each(kill);
    until("all processes have ended", || {
        place.processes().into_iter().for_each(|(pid, _)| kill(pid));
        place.processes().is_empty()
    });
    running.wait();
    let done = run(place.ampere(["recover", "out"]).current_dir(place.path("")));
    assert_eq!(done.code, 0, "{done:#?}");
    assert!(place.path("out/summary.json").exists(), "{done:#?}");
    assert_eq!(units(&place.summary("out")), expected(&[("cells", 6.0), ("steps", 5.0)]));
    place.assert_clean();
}

#[test]
fn the_units_of_several_nodes_are_added() {
    skip_unless!(may_mount(), "needs root, and to be allowed to mount");
    let place = Place::new();
    let ampere = artifact("ampere");
    let program = place.instrumented();
    let script =
        |name: &str, lines: &str| place.script(name, &format!("#!/bin/sh\n{lines}\n")).display().to_string();
    // On the other node, the program's plugin starts the collector, and the script counts while that runs.
    let count = |steps: u32| format!("'{}' work steps {steps}", ampere.display());
    let waits = place.compile("cc", "waits", WAITS, &["-finstrument-functions"]);
    let there = script(
        "there",
        &format!(
            "'{}' & while [ ! -e joined ]; do sleep 0.01; done\n{} || exit 9\ntouch go\nwait",
            waits.display(),
            count(20)
        ),
    );
    let there = place.on_another_node("node-b", &there);
    let here = script("here", &format!("'{}'\n{} || exit 9\n{there}", program.display(), count(3)));
    let done = run(&mut place.ampere_run("out", [here]));
    assert_eq!(done.code, 0, "{done:#?}");
    place.no_process_left();
    let report = run(&mut place.ampere(["report", "out", "-f", "json"]));
    let whole: Value = serde_json::from_str(&report.stdout).expect("JSON");
    assert_eq!(list(&whole["run"], "nodes").len(), 2, "{}", whole["run"]);
    assert_eq!(units(&whole), expected(&[("steps", 23.0)]));
    assert_eq!(attribute(&place.path("out/traces.otf2"), &[])["run"]["work"], whole["run"]["work"]);
}

/// Joins the run, and waits for the file `go`.
const WAITS: &str = r#"
    #include <fcntl.h>
    #include <unistd.h>
    int main(void) {
        close(open("joined", O_CREAT | O_WRONLY, 0600));
        while (access("go", F_OK)) usleep(1000);
        return 0;
    }
"#;

#[test]
fn without_a_run_and_with_a_wrong_number_nothing_is_counted() {
    let place = Place::new();
    let done = run(&mut place.ampere(["work", "steps", "3"]));
    assert_eq!((done.code, done.stderr.lines().count()), (1, 1), "{done:#?}");
    done.said_once(&["ampere work", "there is none here", "ampere run"]);
    // A run that has ended is not found either.
    succeed(&mut place.ampere_run("out", ["sh", "-c", "echo $AMPERE_SESSION > session"]));
    let session = std::fs::read_to_string(place.path("session")).expect("the session's name");
    let done = run(place.ampere(["work", "steps", "3"]).env("AMPERE_SESSION", session.trim()));
    assert_eq!((done.code, done.stderr.lines().count()), (1, 1), "{done:#?}");
    for number in ["0", "-1", "nan", "inf", "1,200", "three", ""] {
        let done = run(&mut place.ampere(["work", "steps", number]));
        assert_eq!(done.code, 2, "{number}: {done:#?}");
    }
    for wrong in [&["work"][..], &["work", "steps"], &["work", " ", "3"]] {
        assert_eq!(run(&mut place.ampere(wrong)).code, 2, "{wrong:?}");
    }
    // A script behaves the same if its user has switched ampere off.
    let done = run(place.ampere(["work", "steps", "3"]).env("AMPERE_DISABLE", "1"));
    assert_eq!(done.code, 0, "{done:#?}");
    done.said_nothing();
    place.assert_clean();
}

/// Prints to both streams, whether they are terminals, and the size of the terminal.
const PRINTS: &str = r#"
    #include <stdio.h>
    #include <string.h>
    #include <sys/ioctl.h>
    #include <unistd.h>
    int main(void) {
        struct winsize size = {0};
        ioctl(1, TIOCGWINSZ, &size);
        printf("%d%d %dx%d\n", isatty(1), isatty(2), size.ws_row, size.ws_col);
        for (int at = 0; at < 1000; at++) {
            printf("done %d steps\n", at % 2);
            fflush(stdout);
            fprintf(stderr, "error %d\r", at);
        }
        fwrite("\0\xff no newline 0.5 GB", 1, 21, stdout);
        return 5;
    }
"#;

#[test]
fn units_that_a_command_prints_are_counted_and_its_output_is_as_without() {
    let place = Place::new();
    let program = place.compile("cc", "prints", PRINTS, &[]).display().to_string();
    let options = [
        "--work-from",
        r"steps=done (\d+) steps",
        "--work-from",
        r"(\S+) GB",
        "--work-from",
        r"none=never(\d)",
    ];
    let run_with = |output: &str| {
        let mut command = place.ampere(["run", "-q", "-o", output]);
        command.args(options).arg("--");
        command
    };
    let mut command = run_with("out");
    let done = run(command.arg(&program));
    let without = run(&mut place.command(&program));
    assert_eq!((done.code, &done.stdout), (5, &without.stdout));
    assert!(done.stderr.starts_with(&without.stderr), "{}", done.stderr);
    let note = r"--work-from: no line of the output matched never(\d)";
    assert!(done.stderr.ends_with(&format!("ampere: {note}\n")), "{}", done.stderr);
    let summary = place.summary("out");
    assert_eq!(units(&summary), expected(&[("steps", 500.0), ("work", 0.5)]));
    assert!(
        summary["run"]["notes"].to_string().contains("no line of the output matched never"),
        "{}",
        summary["run"]
    );
    // Both streams in one file keep their order.
    let joined = |command: &mut std::process::Command, name: &str| {
        let file = std::fs::File::create(place.path(name)).expect("a file");
        let status =
            command.stdout(file.try_clone().expect("a file")).stderr(file).status().expect("a command");
        assert_eq!(status.code(), Some(5));
        std::fs::read(place.path(name)).expect("what was printed")
    };
    let plain = joined(&mut place.command(&program), "plain");
    let measured = joined(run_with("joined").arg(&program), "measured");
    assert!(measured.starts_with(&plain), "{}", String::from_utf8_lossy(&measured));
    // On a terminal, the program finds a terminal of the same size.
    let script = format!(
        "stty rows 33 cols 77; exec '{}' run -q -o terminal --work-from 'done (\\d+) steps' -- '{program}'",
        artifact("ampere").display()
    );
    let on_terminal = run(place.command("script").args(["-qec", &script, "/dev/null"]));
    assert!(on_terminal.stdout.starts_with("11 33x77\r\ndone 0 steps\r\nerror 0\r"), "{on_terminal:#?}");
    assert_eq!(units(&place.summary("terminal")), expected(&[("work", 500.0)]));
    // A command whose reader has ended notices that, as it does without ampere.
    let piped =
        format!("'{}' run -q -o piped --work-from 'y(1)' -- yes | head -n 2", artifact("ampere").display());
    let piped = run(place.command("sh").args(["-c", &piped]));
    assert_eq!((piped.code, piped.stdout.as_str()), (0, "y\ny\n"), "{piped:#?}");
    for wrong in ["steps", "steps=(", ""] {
        assert_eq!(run(&mut place.ampere(["run", "--work-from", wrong, "true"])).code, 2, "{wrong}");
    }
    place.assert_clean();
}
