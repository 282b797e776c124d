//! Frames that are sampled, as Score-P and lo2s write them.

use crate::*;
use ampere_tests::runs::{has_python_otf2, oracle, parse};
use ampere_tests::skip_unless;
use std::process::Command;

/// Writes a thread that is sampled every 10 ms: in `init` for a second, then in `solve` until 4 s. A counter of 100 W is read
/// until 5 s. The arguments: the directory, how many lines of `solve` are sampled in turn, the unwind distance of these
/// samples, the seconds at which the thread calls MPI_Finalize (0: never), and who reads the counter.
const WRITE: &str = r#"
import sys, otf2
from otf2.enums import *
directory, (lines, distance, finalize), reader = sys.argv[1], map(int, sys.argv[2:5]), sys.argv[5]
with otf2.writer.open(directory, timer_resolution=1000) as trace:
    define = trace.definitions
    group = define.location_group("MPI Rank 0", system_tree_parent=define.system_tree_node("a", class_name="node"))
    thread = trace.event_writer_from_location(define.location("Master thread", type=LocationType.CPU_THREAD, group=group))
    energy = define.metric_member(name="node energy", metric_type=MetricType.OTHER, metric_mode=MetricMode.ACCUMULATED_START,
                                  value_type=Type.DOUBLE, unit="J")
    energy = define.metric_class((energy,), occurrence=MetricOccurrence.ASYNCHRONOUS, recorder_kind=RecorderKind.ABSTRACT)
    if reader == "thread":
        readings = thread
    else:
        readings = trace.event_writer_from_location(define.location("reader", type=LocationType.METRIC, group=group))
    timer = define.interrupt_generator(name="perf", interrupt_generator_mode=InterruptGeneratorMode.TIME, base=Base.DECIMAL,
                                       exponent=-3, period=10)
    main = define.calling_context(define.region("main"), parent=None)
    context = lambda name, **line: define.calling_context(define.region(name), parent=main, **line)
    init, last, solve = context("init"), context("MPI_Finalize"), define.region("solve")
    line = lambda number: define.source_code_location("solve.c", number)
    solve = [define.calling_context(solve, source_code_location=line(at), parent=main) for at in range(lines)]
    for at in range(0, 501):
        if at < 100:
            thread.calling_context_sample(10 * at, init, 1 if at else 3, timer)
        elif at <= 400:
            thread.calling_context_sample(10 * at, solve[at % lines], distance if at > 100 else 2, timer)
        if finalize and at == 100 * finalize:
            thread.calling_context_enter(10 * at, last, 2)
            thread.calling_context_leave(10 * at, last)
        readings.metric(10 * at, energy, [1.0 * at])
"#;

/// The oracle's settings.
const ORACLE: &str =
    r#"{"devices": [{"name": "e", "metric": "node energy", "consumers": ["Master thread"]}]}"#;

/// The last samples find the same frames as those before, and the thread never leaves them.
#[test]
fn sampled_frames_last_until_the_last_sample() {
    skip_unless!(has_python_otf2(), "no python3-otf2");
    for (lines, distance, finalize, reader) in
        [(1, 1, 0, "other"), (8, 1, 0, "other"), (8, 2, 0, "other"), (8, 1, 4, "other"), (8, 1, 0, "thread")]
    {
        let case = format!("{lines} lines, distance {distance}, finalize {finalize}, {reader}");
        let place = Place::new();
        let mut write = Command::new("/usr/bin/python3");
        write.args(["-c", WRITE]).arg(place.path("trace"));
        succeed(write.args([lines, distance, finalize].map(|number| number.to_string())).arg(reader));
        let trace = place.path("trace/traces.otf2");
        let summary = everywhere(&place, &trace);
        let of = |region| of_region(&summary, "ranks", region);
        assert_joules_are(&[of("init"), of("solve"), idle(&summary, "ranks")], &[100.0, 300.0, 100.0]);
        assert_eq!(summary["run"]["complete"], true, "{case}: {}", summary["run"]);

        let mut by_definition = Command::new("/usr/bin/python3");
        by_definition.arg(oracle()).arg(&trace).arg(place.write("oracle.json", ORACLE));
        let by_definition = parse(succeed(&mut by_definition).stdout).expect("JSON");
        let device = &by_definition["devices"][0]["time_sliced"];
        let paths = ["main;init", "main;solve"].map(|path| number(&device["exclusive"], path));
        assert_joules_are(&[paths[0], paths[1], number(device, "idle")], &[100.0, 300.0, 100.0]);

        // The frames in Chrome's format end at the same time.
        let mut chrome = place.command(artifact("ampere"));
        let shown = succeed(chrome.args(["report", "-f", "chrome"]).arg(&trace));
        let shown: Value = serde_json::from_slice(&shown.stdout).expect("JSON");
        let ends = list(&shown, "traceEvents").iter().filter(|event| event["ph"] == "E");
        let last = ends.map(|event| number(event, "ts")).fold(0.0, f64::max);
        assert_eq!(last, 4e6, "{case}");
        let calls = place.path("calls.csv");
        attribute(&trace, &["--calls", calls.to_str().expect("a name")]);
        let calls = std::fs::read_to_string(calls).expect("a file");
        let mut rows = calls.lines().map(|row| row.split(',').collect::<Vec<_>>());
        let header = rows.next().expect("a header");
        let at = |name| header.iter().position(|column| *column == name).expect(name);
        let joules = rows.filter(|row| row[at("region")] == "solve");
        let joules: f64 =
            joules.map(|row| row[at("exclusive_joules")].parse::<f64>().expect("a number")).sum();
        assert_joules_are(&[joules], &[300.0]);
    }
}
