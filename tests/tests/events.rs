//! A program that calls tiny functions faster than any consumer could read their events: `AMPERE_EVENTS`.

use ampere_tests::jobs::Place;
use ampere_tests::runs::{
    assert_same_figures, attribute, compile, list, number, on_path, relative, succeed, text,
};
use ampere_tests::{artifact, skip_unless};
use serde_json::Value;
use std::collections::BTreeMap;
use std::process::Command;

/// With a million rounds, the program makes 3.4 million calls, most of which take a few nanoseconds.
const PROGRAM: &str = r#"
#include <stdio.h>
#include <stdlib.h>
static volatile unsigned long sum;
__attribute__((noinline)) void leaf(void) { sum++; }
__attribute__((noinline)) void pair(void) { leaf(); leaf(); }
__attribute__((noinline)) int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
int main(int argc, char **argv) {
    long rounds = argc > 1 ? atol(argv[1]) : 1000000;
    for (long i = 0; i < rounds; i++) pair();
    for (int i = 0; i < 20; i++) fib(20);
    printf("%lu\n", sum);
    return 0;
}
"#;

fn program(place: &Place) -> String {
    let compiler = ["cc", "-O1", "-g", "-finstrument-functions"];
    compile(place, &compiler, "tiny", PROGRAM).to_string_lossy().into_owned()
}

/// Number of calls by call path.
fn calls(summary: &Value) -> BTreeMap<String, u64> {
    let view = &summary["devices"][0]["views"][0];
    let path = |row: &Value| -> String {
        row["path"].as_array().unwrap().iter().map(|r| r.as_str().unwrap()).collect::<Vec<_>>().join("/")
    };
    list(view, "callpaths").iter().map(|row| (path(row), number(row, "calls") as u64)).collect()
}

fn run(events: &str, rounds: &str) -> (Place, Value) {
    let place = Place::new();
    let program = program(&place);
    let mut command = place.ampere_run("out", [&program, rounds]);
    let output = succeed(command.env("AMPERE_EVENTS", events));
    assert_eq!(text(&output.stdout).trim(), (2 * rounds.parse::<u64>().unwrap()).to_string());
    let summary = place.summary("out");
    // On a busy machine, some events are late: their joules are computed again at the end.
    for key in ["suppressed_calls", "dropped_records", "repaired_events", "damaged_records"] {
        assert_eq!(summary["quality"][key], 0, "{key}, {events}");
    }
    let device = &summary["devices"][0];
    for view in list(device, "views") {
        let parts = ["attributed_joules", "idle_joules", "lost_joules"].map(|key| number(view, key));
        assert!(relative(parts.iter().sum(), number(device, "total_joules")) < 1e-9, "{events}");
    }
    (place, summary)
}

#[test]
fn coalesced_calls_give_the_figures_of_a_run_with_all_events() {
    skip_unless!(on_path("cc"), "no C compiler");
    let (_place, all) = run("all", "1000000");
    assert_eq!(all["quality"]["coalesced_calls"], 0, "all events are in the trace");
    let expected = calls(&all);
    assert_eq!(expected["main/pair/leaf"], 2_000_000);
    for events in ["folded", "auto"] {
        let (place, folded) = run(events, "1000000");
        assert_eq!(calls(&folded), expected, "{events}");
        let coalesced = number(&folded["quality"], "coalesced_calls");
        assert!(coalesced > 2_000_000.0, "{events}: {coalesced}");
        // The trace has the same figures, as it records how many calls an enter stands for.
        let offline = attribute(&place.path("out/traces.otf2"), &[]);
        assert_eq!(offline["quality"]["coalesced_calls"], folded["quality"]["coalesced_calls"]);
        assert_same_figures(&folded, &offline);
        // A replay cannot represent coalesced calls, which a note explains.
        let again = Place::new();
        let mut replay = again.command(artifact("ampere"));
        replay
            .arg("replay")
            .arg(place.path("out/traces.otf2"))
            .args(["--speed", "max", "-o"])
            .arg(again.path("out"));
        let messages = text(&succeed(&mut replay).stderr);
        assert!(messages.contains(&format!("{coalesced} calls were coalesced")), "{messages}");
        assert!(
            text(again.summary("out")["run"]["notes"].to_string().as_bytes())
                .contains("calls were coalesced")
        );
        if on_path("otf2-print") {
            let printed =
                text(&succeed(Command::new("otf2-print").arg(place.path("out/traces.otf2"))).stdout);
            assert!(printed.contains("ampere::calls"), "other tools see it, too");
        }
    }
}

/// Nested instrumented calls, in a thread whose stack is large enough for them.
const DEEP: &str = r#"
#include <pthread.h>
static volatile int sum;
__attribute__((noinline)) void deep(int n) { if (n > 1) deep(n - 1); sum++; }
static void *thread(void *nothing) { deep(70000); return nothing; }
int main(void) {
    pthread_t id;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 64 << 20);
    pthread_create(&id, &attributes, thread, 0);
    return pthread_join(id, 0);
}
"#;

#[test]
fn calls_deeper_than_the_host_keeps_are_counted_and_make_the_run_incomplete() {
    skip_unless!(on_path("cc"), "no C compiler");
    let place = Place::new();
    let compiler = ["cc", "-O1", "-g", "-finstrument-functions", "-pthread"];
    let program = compile(&place, &compiler, "deep", DEEP).to_string_lossy().into_owned();
    let output = succeed(&mut place.ampere_run("out", [&program]));
    // The count is a note of the run: nothing is written to the program's standard error.
    assert!(!text(&output.stderr).contains("deeper"), "{}", text(&output.stderr));
    let summary = place.summary("out");
    // One more frame is `thread`, the outermost.
    assert_eq!(summary["quality"]["unrecorded_calls"], 70_001 - 65_536, "{}", summary["quality"]);
    assert_eq!(summary["run"]["complete"], false);
    let notes = summary["run"]["notes"].to_string();
    assert!(notes.contains("4465 calls could not be recorded"), "{notes}");
}

#[test]
fn an_unknown_value_of_ampere_events_is_reported_and_the_program_runs() {
    skip_unless!(on_path("cc"), "no C compiler");
    let place = Place::new();
    let program = program(&place);
    let mut command = place.ampere_run("out", [&program, "10"]);
    let output = succeed(command.env("AMPERE_EVENTS", "some"));
    let messages = text(&output.stderr);
    assert!(messages.contains("AMPERE_EVENTS=\"some\": use all, auto or folded"), "{messages}");
}
