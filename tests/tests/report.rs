//! `ampere report` on runs that have ended, that are running, and that were killed.

use ampere_tests::collector::announced;
use ampere_tests::http;
use ampere_tests::jobs::{Done, Place, run, start, until};
use ampere_tests::runs::{may_mount, parse};
use ampere_tests::{artifact, root, skip_unless};
use std::path::Path;

const WAITS: &str = r#"
    #include <unistd.h>
    static void step(void) { usleep(1000); }
    int main(void) {
        while (access("go", F_OK)) step();
        return 0;
    }
"#;

fn report(place: &Place, arguments: &[&str]) -> Done {
    let mut command = place.ampere(["report"]);
    run(command.args(arguments).current_dir(place.path("")))
}

#[test]
fn each_format_of_a_running_and_of_an_ended_run() {
    let place = Place::new();
    let program = place.compile("cc", "waits", WAITS, &["-finstrument-functions"]);
    let running = start(place.ampere_run("out", [&program]).env("AMPERE_COUNTERS", "estimate"));
    until("it is announced", || announced(&place.path("out")).is_some());
    let as_of_now = || report(&place, &["out", "-f", "json"]);
    let has_events = |done: &Done| {
        let summary: serde_json::Value = parse(&done.stdout).expect("a summary");
        done.code == 0 && summary["quality"]["events"].as_u64() > Some(0)
    };
    until("the collector reports events", || has_events(&as_of_now()));
    until("figures are on disk", || place.path("out/summary.json").exists());
    let on_disk = place.summary("out");
    assert_eq!((&on_disk["run"]["running"], &on_disk["run"]["complete"]), (&true.into(), &false.into()));
    assert!(report(&place, &["out"]).stdout.contains("    RUNNING\n"));
    // This directory is that of a killed run. Another collector now uses the address that it announces.
    let mut announcement: serde_json::Value =
        serde_json::from_slice(&std::fs::read(place.path("out/collector.json")).expect("it is announced"))
            .expect("JSON");
    announcement["run"] = "another".into();
    std::fs::create_dir(place.path("dead")).expect("a directory");
    place.write("dead/collector.json", &announcement.to_string());
    for command in ["report", "top"] {
        let done = run(place.ampere([command, "dead"]).current_dir(place.path("")));
        assert_eq!((done.code, done.stdout.as_str()), (1, ""), "{done:#?}");
        done.said_once(&["belongs to another run", "ampere recover dead"]);
    }
    // `ampere top` finds the same run and shows it until it ends.
    let script = format!("{} top > shown", artifact("ampere").display());
    let watching = start(place.command("sh").args(["-c", &script]));
    let shown = || std::fs::read_to_string(place.path("shown")).unwrap_or_default();
    until("it is shown", || shown().contains("top: "));
    place.write("go", "");
    assert_eq!(running.wait().code, 0);
    let watched = watching.wait();
    assert_eq!(watched.code, 0, "{watched:#?}");
    assert!(watched.stderr.contains("the run has ended"), "{watched:#?}");

    let formats = [
        ("table", "ampere  "),
        ("json", "{\n  \"schema\": \"ampere-summary/2\""),
        ("csv", "node,device,"),
        ("html", "<!DOCTYPE html>"),
        ("folded", "node;Process;"),
        ("flamegraph", "<?xml"),
        ("chrome", "{\"displayTimeUnit\":\"ms\""),
        ("firefox", "{\"meta\":{"),
    ];
    for (format, begins) in formats {
        let shown = report(&place, &["out", "--format", format]);
        assert_eq!(shown.code, 0, "{shown:#?}");
        shown.said_nothing();
        assert!(shown.stdout.starts_with(begins), "{}", shown.stdout);
        let written = report(&place, &["out/summary.json", "-f", format, "-o", "report"]);
        assert_eq!((written.code, written.stdout.as_str()), (0, ""), "{written:#?}");
        assert_eq!(std::fs::read_to_string(place.path("report")).expect("a file"), shown.stdout);
    }
    let page = std::fs::read_to_string(place.path("out/report.html")).expect("a page");
    assert_eq!(report(&place, &["out", "-f", "html"]).stdout, page, "the same as in the directory");
    let parquet = report(&place, &["out", "-f", "parquet", "-o", "report.parquet"]);
    assert_eq!(parquet.code, 0, "{parquet:#?}");
    assert!(std::fs::read(place.path("report.parquet")).expect("a file").ends_with(b"PAR1"));
    let table = std::fs::read_to_string(place.path("out/summary.txt")).expect("a table");
    assert_eq!(report(&place, &["out"]).stdout, table, "the same as in the directory");
    assert!(
        table.contains("ESTIMATE: chosen by --counters, shares only") && table.contains("estimated"),
        "{table}"
    );
    let compared = run(place.ampere(["compare", "out", "out/summary.json"]).current_dir(place.path("")));
    assert_eq!(compared.code, 0, "{compared:#?}");
    assert!(compared.stdout.lines().any(|row| row.ends_with("=  step")), "{}", compared.stdout);
    assert!(
        compared.stdout.starts_with("1 and 2 are the same run: it is compared with itself\n"),
        "{compared:#?}"
    );
    // A link is not replaced, and what a descriptor has already written is kept.
    let csv = report(&place, &["out", "-f", "csv"]).stdout;
    let link = |to: &str, name: &str| std::os::unix::fs::symlink(to, place.path(name)).expect("a link");
    link("real.csv", "link.csv");
    for _ in 0..2 {
        assert_eq!(report(&place, &["out", "-f", "csv", "-o", "link.csv"]).code, 0);
        assert!(place.path("link.csv").is_symlink());
        assert_eq!(std::fs::read_to_string(place.path("real.csv")).expect("a file"), csv);
    }
    link("/proc/self/fd/1", "descriptor");
    let ampere = artifact("ampere");
    let script = format!("echo earlier; {} report out -f csv -o descriptor", ampere.display());
    let appended = run(place.command(Path::new("sh")).args(["-c", &script]).current_dir(place.path("")));
    assert_eq!(appended.stdout, format!("earlier\n{csv}"), "{appended:#?}");
    let script = format!("({script}) >> log; cat log");
    let appended = run(place.command(Path::new("sh")).args(["-c", &script]).current_dir(place.path("")));
    assert_eq!(appended.stdout, format!("earlier\n{csv}"), "{appended:#?}");
    let kernels = report(&place, &["out", "-f", "csv", "--view", "kernels"]);
    assert!(!kernels.stdout.contains(",ranks,"), "{}", kernels.stdout);
    let table = report(&place, &["out", "--view", "kernels"]);
    assert_eq!((table.code, table.stdout.as_str()), (1, ""), "{table:#?}");
    table.said_once(&["this run has no GPU kernels"]);
    let kernels = ["attribute", "out", "--view", "kernels"];
    let attributed = run(place.ampere(kernels).current_dir(place.path("")));
    assert_eq!((attributed.code, attributed.stdout.as_str()), (1, ""), "{attributed:#?}");
    attributed.said_once(&["this run has no GPU kernels"]);
    let json = [&kernels[..], &["--json"]].concat();
    assert_eq!(run(place.ampere(json).current_dir(place.path(""))).code, 0);
}

/// Runs the lines of code on the book's page about reports.
#[test]
fn a_summary_becomes_a_data_frame_by_the_books_lines() {
    let python = |script: &str, place: &Place| {
        run(place.command(Path::new("/usr/bin/python3")).args(["-c", script]).current_dir(place.path("")))
    };
    let place = Place::new();
    skip_unless!(python("import pandas", &place).code == 0, "no python3-pandas");
    place.write("go", "");
    let program = place.compile("cc", "waits", WAITS, &["-finstrument-functions"]);
    assert_eq!(run(place.ampere_run("first", [&program]).env("AMPERE_COUNTERS", "estimate")).code, 0);
    let page = std::fs::read_to_string(root().join("docs/src/reports.md")).expect("the page");
    let blocks = page.split("```python\n").skip(1).filter_map(|block| block.split("```").next());
    let script = blocks.chain(["print([regions(path) for path in rows.path])"]).collect::<String>();
    let done = python(&script, &place);
    assert_eq!(done.code, 0, "{done:#?}");
    assert!(done.stdout.contains("['main']"), "{done:#?}");
    let rows = place.summary("first");
    let joules = rows["devices"][0]["views"][0]["regions"][0]["exclusive_joules"].as_f64().expect("joules");
    let shown = done.stdout.lines().find_map(|line| line.split_whitespace().last()?.parse::<f64>().ok());
    assert!((shown.expect("a sum") - joules).abs() < 1e-5 + 1e-5 * joules, "{joules}: {done:#?}");
}

/// Perfetto needs this to draw events: on each thread, every start has its end, in time order.
#[test]
fn events_for_perfetto_nest_and_come_with_the_power() {
    let place = Place::new();
    place.write("go", "");
    let program = place.compile("cc", "waits", WAITS, &["-finstrument-functions"]);
    assert_eq!(run(place.ampere_run("out", [&program]).env("AMPERE_COUNTERS", "estimate")).code, 0);
    let shown = report(&place, &["out", "-f", "chrome"]);
    let json: serde_json::Value = serde_json::from_str(&shown.stdout).expect("JSON");
    let events = json["traceEvents"].as_array().expect("events");
    let of = |kind: &'static str| events.iter().filter(move |event| event["ph"] == kind);
    let (mut open, mut last) = (Vec::new(), 0.0);
    for event in events.iter().filter(|event| event["ph"] == "B" || event["ph"] == "E") {
        let time = event["ts"].as_f64().expect("a time");
        assert!(time >= last, "{event}");
        last = time;
        if event["ph"] == "B" {
            open.push(event["name"].as_str().expect("a name"));
        } else {
            assert!(open.pop().is_some(), "{event}");
        }
    }
    assert!(open.is_empty() && of("B").any(|event| event["name"] == "main"), "{open:?}");
    assert!(of("C").all(|event| event["name"].as_str().is_some_and(|name| name.contains("W, estimated"))));
    // The node's idle power is that of the estimate; the rest is the program's.
    let parts: Vec<[f64; 2]> = of("C")
        .map(|event| {
            ["static W", "dynamic W"].map(|part| event["args"][part].as_f64().expect("a part of the power"))
        })
        .collect();
    let idle = parts.iter().map(|[fixed, _]| *fixed).fold(0.0, f64::max);
    assert!(idle > 0.0 && parts.iter().all(|[fixed, more]| *more == 0.0 || *fixed == idle), "{parts:?}");
    assert!(parts.iter().any(|[_, more]| *more > 0.0), "{parts:?}");
    assert!(of("C").count() > 0 && of("M").any(|event| event["args"]["name"] == "Process"), "{json}");
    let ranks = report(&place, &["out", "-f", "chrome", "--view", "kernels"]);
    assert!(!ranks.stdout.contains(r#""ph":"B""#), "{}", ranks.stdout);
    std::fs::remove_file(place.path("out/traces.otf2")).expect("a trace");
    let without = report(&place, &["out", "-f", "chrome", "-o", "absent.json"]);
    assert_eq!((without.code, place.path("absent.json").exists()), (1, false));
    without.said_once(&["there is no trace in out"]);
}

#[test]
fn nodes_of_a_job_are_shown_as_one() {
    skip_unless!(may_mount(), "needs root, and to be allowed to mount");
    let place = Place::new();
    let program = place.compile("cc", "waits", WAITS, &["-finstrument-functions"]);
    let program = program.display().to_string();
    let script = format!("{} & {program}; wait", place.on_another_node("node-b", &program));
    let running = start(
        place
            .ampere_run("out", ["sh", "-c", &script])
            .env("AMPERE_OUTPUT", place.path("out"))
            .env("AMPERE_COUNTERS", "estimate")
            .env("SLURM_JOB_ID", "17"),
    );
    let summary = |of: &str| -> serde_json::Value {
        let shown = report(&place, &[of, "-f", "json"]);
        parse(&shown.stdout).unwrap_or_else(|_| panic!("no summary: {shown:#?}"))
    };
    let facts = place.path("out/node-b/spool-node-b/run.json");
    until("the other node is measured", || announced(&place.path("out/node-b")).is_some());
    until("this one is", || announced(&place.path("out")).is_some());
    let facts = std::fs::read(facts).expect("what the run is finished with");
    let notes = summary("out")["run"]["notes"].to_string();
    assert!(notes.contains("can be reached only on node-b"), "its address is its own: {notes}");
    let address = announced(&place.path("out")).expect("it runs").address();
    until("this one knows of both", || {
        http::get(address, "/nodes").is_ok_and(|nodes| nodes.body.contains("node-b"))
    });
    let top = format!("exec '{}' top out > lines", artifact("ampere").display());
    let top = start(place.command("sh").args(["-c", &top]).current_dir(place.path("")));
    let own = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let lines = || std::fs::read_to_string(place.path("lines")).unwrap_or_default();
    until("a line has the sum", || {
        lines().contains("  2 nodes: ") && lines().contains(&format!("  on {own}: "))
    });
    place.write("go", "");
    let done = running.wait();
    assert_eq!((done.code, top.wait().code), (0, 0), "{done:#?}");
    assert!(done.stderr.contains(" on 2 nodes ("), "{done:#?}");

    let whole = summary("out");
    let a = summary(&format!("out/{own}"));
    let b = summary("out/node-b");
    assert_eq!(whole, summary("out/summary.json"), "the file is of both nodes");
    assert_eq!((a["run"]["id"] == b["run"]["id"], b["run"]["nodes"][0] == "node-b"), (true, true), "{b}");
    assert_eq!(whole["run"]["nodes"].as_array().map(Vec::len), Some(2), "{whole}");
    assert_eq!(b["run"]["job"], serde_json::json!({ "scheduler": "Slurm", "id": "17" }));
    assert!(report(&place, &["out"]).stdout.contains("   Slurm 17\n"));
    let number =
        |of: &serde_json::Value, group: &str, name: &str| of[group][name].as_f64().expect("a number");
    for (group, name) in [("run", "total_joules"), ("quality", "events"), ("run", "ranks")] {
        let sum = number(&a, group, name) + number(&b, group, name);
        assert!((number(&whole, group, name) - sum).abs() < 1e-9 * sum && sum > 0.0, "{name}: {whole}");
    }
    let folded = report(&place, &["out", "-f", "folded"]).stdout;
    assert!(folded.lines().any(|line| line.starts_with("node-b/node;")), "{folded}");

    let shown = report(&place, &["out", "-f", "chrome"]);
    shown.said_nothing();
    let events: serde_json::Value = serde_json::from_str(&shown.stdout).expect("JSON");
    let events = events["traceEvents"].as_array().expect("events");
    let powers: Vec<&str> = events
        .iter()
        .filter_map(|event| event["args"]["name"].as_str())
        .filter(|name| name.starts_with("power on "))
        .collect();
    assert!(powers.len() == 2 && powers.contains(&"power on node-b"), "{powers:?}");
    let mains: Vec<_> = events.iter().filter(|event| event["name"] == "main" && event["ph"] == "B").collect();
    assert!(mains.len() == 2 && mains[0]["pid"] != mains[1]["pid"], "{mains:?}");

    report(&place, &["out", "-f", "sqlite", "-o", "out.rpd"]).said_nothing();
    let sql = "SELECT count(*), count(DISTINCT pid) FROM api WHERE apiName = 'main'; ";
    let script = format!("import sqlite3; print(*sqlite3.connect('out.rpd').execute(\"{sql}\").fetchone())");
    let counted = run(place.command("python3").args(["-c", &script]));
    assert_eq!(counted.stdout, "2 2\n", "{counted:#?}");

    let timeline = report(&place, &["out", "-f", "timeline", "--by", "device", "--every", "50ms"]);
    timeline.said_nothing();
    for of in [&a, &b] {
        let node = of["run"]["nodes"][0].as_str().expect("a name");
        let rows = timeline.stdout.lines().filter(|row| row.split(',').next() == Some(node));
        let joules = rows.map(|row| row.split(',').nth(4).expect("joules").parse::<f64>().expect("a number"));
        let (sum, expected) = (joules.sum::<f64>(), number(of, "run", "total_joules"));
        assert!((sum - expected).abs() < 1e-9 * expected, "{sum} {expected}: {timeline:#?}");
    }

    // A directory of the user is not a node; a node whose run was killed is reported as missing.
    std::fs::create_dir(place.path("out/coverage")).expect("a directory");
    place.write("out/coverage/summary.json", "{}");
    assert_eq!(summary("out")["run"]["complete"], true);
    std::fs::create_dir_all(place.path("out/node-c/spool-node-c")).expect("a directory");
    std::fs::write(place.path("out/node-c/spool-node-c/run.json"), facts).expect("a file");
    let whole = summary("out");
    assert_eq!(whole["run"]["complete"], false, "{whole}");
    assert!(whole["run"]["notes"].to_string().contains("node-c is not included"), "{whole}");
    report(&place, &["out", "-f", "chrome"]).said_once(&["node-c is not included"]);
}

#[test]
fn every_command_has_a_manual_page_and_completions() {
    let place = Place::new();
    let made = run(place.ampere(["shipped", "."]).current_dir(place.path("")));
    assert_eq!(made.code, 0, "{made:#?}");
    let help = run(&mut place.ampere(["--help"])).stdout;
    let commands = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let commands: Vec<&str> = commands.map_while(|line| line.split_whitespace().next()).collect();
    assert!(commands.contains(&"recover") && commands.len() > 8, "{help}");
    let completion = std::fs::read_to_string(place.path("completions/ampere.bash")).expect("a completion");
    for command in commands {
        let page = std::fs::read_to_string(place.path(format!("man/man1/ampere-{command}.1")));
        assert!(page.is_ok_and(|page| page.contains(".TH")) || command == "help", "no page of {command}");
        assert!(
            completion.contains(&format!("ampere,{command})")) || command == "help",
            "{command} is not completed"
        );
    }
    assert!(!completion.contains("witness") && !place.path("man/man1/ampere-witness.1").exists());
    let whole = std::fs::read_to_string(place.path("man/man1/ampere.1")).expect("a page");
    assert!(whole.contains("EXIT STATUS") && whole.contains("AMPERE_OUTPUT"), "{whole}");
}

#[test]
fn a_directory_without_a_run_is_refused_in_one_line() {
    let place = Place::new();
    let refuse = |arguments: &[&str], words: &[&str]| {
        let done = report(&place, arguments);
        assert_eq!((done.code, done.stdout.as_str()), (1, ""), "{done:#?}");
        done.said_once(words);
    };
    refuse(&["absent"], &["absent/summary.json", "No such file", "name an output directory"]);
    place.write("summary.json", "{\"schema\": 1}");
    refuse(&["."], &["summary.json was not written by a compatible ampere"]);
    place.write("summary.json", "{\"schema\": \"ampere-su");
    refuse(&["."], &["summary.json is damaged: it ends early"]);
    place.write("report.html", "<!DOCTYPE html>");
    refuse(&["report.html"], &["report.html is no summary.json: name an output directory"]);
    std::fs::create_dir_all(place.path("killed/spool-here")).expect("a directory");
    std::fs::write(place.path("killed/spool-here/run.json"), "{}").expect("a file");
    refuse(&["killed"], &["was killed", "ampere recover killed"]);
    let program = place.instrumented();
    run(&mut place.ampere_run("out", [&program]));
    refuse(&["out", "--device", "GPU-7"], &["no device \"GPU-7\"", "node"]);
    refuse(&["out", "-o", "absent/file"], &["cannot write absent/file"]);
    assert_eq!(report(&place, &["out", "-f", "poem"]).code, 2);
    let without = run(&mut place.ampere(["top"]));
    assert_eq!(without.code, 1);
    without.said_once(&["you have no run on this node"]);
    let unanswered = run(&mut place.ampere(["top", "http://127.0.0.1:1"]));
    assert_eq!(unanswered.code, 1);
    unanswered.said_once(&["cannot reach http://127.0.0.1:1"]);
    // For a run that has ended, `ampere top` shows the results.
    let over = run(place.ampere(["top", "out"]).current_dir(place.path("")));
    over.said_once(&["the run has ended", "final figures", "ampere report out -f FORM"]);
    assert_eq!((over.code, over.stdout), (0, report(&place, &["out"]).stdout));
    assert_eq!(run(&mut place.ampere(["compare", "out"])).code, 2);
}
