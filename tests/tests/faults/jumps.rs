//! Threads that leave several frames at once, or end inside of them: `tests/programs/jumps.c`.

use ampere_tests::counting_program::calls;
use ampere_tests::jobs::{Place, run};
use serde_json::Value;

/// Runs the program. Returns its own count of calls, and the summary.
fn play(arguments: &[&str]) -> (u64, Value) {
    let place = Place::new();
    let options = ["-finstrument-functions", "-pthread"];
    let program = place.compile("cc", "jumps", include_str!("../../programs/jumps.c"), &options);
    let mut command = place.ampere_run("out", [&program]);
    let done = run(command.args(arguments).env("AMPERE_LOCATIONS", "all"));
    done.no_panic();
    assert_eq!(done.code, 7, "{done:#?}");
    let own = done.stdout.lines().find_map(|line| line.parse().ok()).expect("it counts its calls");
    let summary = place.summary("out");
    assert_eq!(summary["run"]["complete"], true, "{}", summary["run"]);
    place.assert_clean();
    (own, summary)
}

fn recorded(summary: &Value, region: &str) -> u64 {
    calls(summary, region).values().sum()
}

/// A frame that a jump has left does not stay open, with all later calls inside it.
#[test]
fn frames_that_a_jump_leaves_are_closed() {
    let (own, summary) = play(&["frames", "1500"]);
    let leaves = recorded(&summary, "leaf");
    let lost = summary["quality"]["dropped_records"].as_u64().expect("a number");
    // A call that a jump interrupts may be missing from a count or be counted twice: this affects a few calls per jump.
    assert!(own.abs_diff(leaves) <= own / 50 + lost, "{leaves} of {own} calls, {lost} lost");
    let deepest = summary["devices"][0]["views"][0]["callpaths"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|row| Some(row["path"].as_array()?.len()))
        .max();
    assert!(deepest < Some(12), "{deepest:?} frames in one another: until_left > some > twice > leaf");
}

#[test]
fn a_location_that_a_thread_leaves_is_reused_without_its_frames() {
    let (_, summary) = play(&["reuse", "60"]);
    assert_eq!(recorded(&summary, "later"), 60_000, "{}", summary["quality"]);
}

#[test]
fn destructors_of_thread_keys_are_calls_of_their_thread() {
    let (own, summary) = play(&["keys"]);
    assert_eq!((recorded(&summary, "leaf"), recorded(&summary, "destroy")), (own, 5));
}
