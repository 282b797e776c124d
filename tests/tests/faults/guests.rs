//! How a program could notice that a library inside its process misbehaves, and what one process must not do to the figures of
//! others.

use ampere_tests::collector::announced;
use ampere_tests::counting_program::{calls, check};
use ampere_tests::jobs::{Done, Place, Tiny, built, files_below, is_root, run, start, until};
use ampere_tests::runs::may_mount;
use ampere_tests::skip_unless;
use serde_json::Value;
use std::path::PathBuf;
use std::time::{Duration, Instant};

fn guest(place: &Place) -> PathBuf {
    let options = ["-finstrument-functions", "-pthread"];
    place.compile("cc", "guest", include_str!("../../programs/guest.c"), &options)
}

fn worked(summary: &Value) -> u64 {
    calls(summary, "work").values().sum()
}

/// Number of calls of `work` in a run that must be complete. The run may have been too short to use any energy.
#[track_caller]
fn whole(place: &Place, output: &str) -> u64 {
    let summary = place.summary(output);
    assert_eq!(summary["run"]["complete"], true, "{}", summary["run"]);
    worked(&summary)
}

#[track_caller]
fn as_ever(done: &Done, words: &str) {
    done.no_panic();
    assert_eq!((done.code, done.stdout.as_str()), (7, words), "{done:#?}");
}

#[test]
fn a_collector_holds_no_file_of_the_program_open() {
    let place = Place::new();
    let program = guest(&place);
    let done = run(place.bare("out", &program).arg("pipe"));
    as_ever(&done, "read 0\ndone\n");
    assert_eq!(whole(&place, "out"), 2);
    place.assert_clean();
}

#[test]
fn a_collector_of_a_program_that_ignores_its_children_is_replaced() {
    let place = Place::new();
    let program = guest(&place);
    let running = start(place.bare("out", &program).arg("ignore"));
    until("the program waits", || place.path("ready").exists());
    let first = place.collectors();
    assert_eq!(first.len(), 1, "{first:?}");
    // This kills the collector, and not its supervisor.
    until("it is announced", || announced(&place.path("out")).is_some());
    let collecting = announced(&place.path("out")).expect("it is announced");
    collecting.kill();
    let another = || announced(&place.path("out")).is_some_and(|now| now.pid != collecting.pid);
    until("another collector", another);
    place.write("go", "");
    as_ever(&running.wait(), "done\n");
    assert_eq!(whole(&place, "out"), 2);
    place.assert_clean();
}

#[test]
fn a_program_that_changes_its_root_leaves_the_others_their_collector() {
    skip_unless!(is_root(), "needs root");
    let place = Place::new();
    let program = guest(&place);
    std::fs::create_dir(place.path("empty")).expect("a directory");
    let done = run(place.bare("out", &program).args(["chroot", "empty"]));
    as_ever(&done, "done\n");
    until("the collector has ended", || place.collectors().is_empty());
    assert_eq!(whole(&place, "out"), 2);
    // Now another program follows it.
    let script = format!("'{0}' chroot empty; '{0}'", program.display());
    let done = run(&mut place.ampere_run("both", ["sh", "-c", &script]));
    as_ever(&done, "done\ndone\n");
    assert_eq!(whole(&place, "both"), 4);
    place.assert_clean();
}

#[test]
fn a_program_in_another_pid_namespace_leaves_the_others_their_collector() {
    let place = Place::new();
    let program = guest(&place);
    let alone = ["unshare", "--pid", "--fork", "--mount-proc"];
    skip_unless!(may_mount(), "needs root, and to be allowed to mount");
    let script = format!("{1} '{0}'; '{0}'", program.display(), alone.join(" "));
    let done = run(&mut place.ampere_run("out", ["sh", "-c", &script]));
    as_ever(&done, "done\ndone\n");
    let summary = place.summary("out");
    assert!(worked(&summary) >= 2, "the second one is measured: {}", summary["run"]);
    place.assert_clean();
}

#[test]
fn half_of_the_free_shared_memory_is_left_to_the_program() {
    let place = Place::new();
    let program = guest(&place);
    let Some(tiny) = Tiny::mount(place.path("tiny"), "48m") else { return };
    let at = tiny.at.display().to_string();
    let mut command = place.ampere_run("out", [program.to_str().expect("UTF-8"), "threads", "50", &at]);
    let done = run(command.env("AMPERE_SHM", &tiny.at));
    as_ever(&done, "done\n");
    let free = done.stderr.lines().find_map(|line| line.strip_prefix("free ")?.parse::<u32>().ok());
    assert!((49..60).contains(&free.expect("a percentage")), "{free:?} %");
    // The threads without room are known: of 53 calls, one in each thread, some are not recorded.
    let summary = check(&place, "out", false);
    let notes = summary["run"]["notes"].to_string();
    assert!(notes.contains("locations could not be recorded"), "{notes}");
    let number = |key: &str| summary["quality"][key].as_u64().expect("a number");
    assert_eq!(number("events") / 2 + number("unrecorded_calls"), 53, "{}", summary["quality"]);
    assert!((10..48).contains(&number("unrecorded_calls")), "{}", summary["quality"]);
    assert!(files_below(&tiny.at).is_empty());
}

/// A run may have a very large number of processes.
#[test]
fn programs_one_after_the_other_keep_no_shared_memory() {
    let place = Place::new();
    let program = guest(&place);
    let shared = place.path("shm");
    // The collector removes rings of processes that have ended some time later.
    let script = format!(
        "rings() {{ ls '{}'/*/s-run*/*.0.ring | wc -l; }}\n\
         for i in $(seq 40); do '{}'; [ $i != 20 ] || touch half; [ $i != 25 ] || until [ -e go ]; do sleep 0.01; done; done\n\
         for i in $(seq 600); do [ $(rings) -gt 4 ] || break; sleep 0.1; done\n\
         rings",
        shared.display(),
        program.display()
    );
    let running = start(&mut place.ampere_run("out", ["sh", "-c", &script]));
    until("half of them have ended", || place.path("half").exists());
    // The collector that takes over finds the records of the processes that have ended.
    announced(&place.path("out")).expect("it is announced").kill();
    place.write("go", "");
    let done = running.wait();
    assert_eq!(done.code, 0, "{done:#?}");
    let rings: u32 = done.stdout.lines().last().and_then(|line| line.trim().parse().ok()).expect("a number");
    assert!(rings <= 4, "{rings} rings at the end, the sampler's among them");
    let summary = check(&place, "out", true);
    assert_eq!((worked(&summary), &summary["run"]["ranks"]), (80, &40.into()));
    place.assert_clean();
}

#[test]
fn a_library_that_hangs_does_not_delay_the_results() {
    let place = Place::new();
    let program = guest(&place);
    // The tenth read hangs, so the command must not end before it.
    let script = format!("'{}'; status=$?; sleep 3; exit $status", program.display());
    let mut command = place.ampere_run("out", ["sh", "-c", &script]);
    command.env("AMPERE_COUNTERS", "rocm_smi").env("STAND_IN_ROCM_SMI", "watts=300;hang=read");
    let begun = Instant::now();
    let done = run(command.env("AMPERE_ROCM_SMI_LIBRARY", built().join("libstand_in_rocm_smi64.so")));
    as_ever(&done, "done\n");
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
    let summary = place.summary("out");
    assert_eq!((&summary["run"]["complete"], worked(&summary)), (&false.into(), 2));
    assert!(summary["run"]["notes"].to_string().contains("no longer answers"), "{}", summary["run"]);
    place.assert_clean();
}
