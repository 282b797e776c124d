//! What others do to a run: they kill it, stop it, or end it as a scheduler does.

use ampere_tests::counting_program::{
    assert_every_call_recorded, build_mpi, build_serial, check, counted, forget_counts, have_mpi, mpirun,
    ranks, total_calls, until_counted, until_paused, without_ampere,
};
use ampere_tests::jobs::{Place, Running, signal, start, until};
use rustix::process::Signal;
use std::time::Duration;

fn under_way(place: &Place, words: &[std::ffi::OsString], count: u32) -> Running {
    let running = start(&mut place.ampere_run("out", words));
    for rank in 0..count {
        until_counted(place, &rank.to_string(), 500);
    }
    running
}

#[test]
fn killed_ranks_leave_what_they_have_published() {
    if !have_mpi() {
        return;
    }
    let place = Place::new();
    let program = build_mpi(&place);
    let words = mpirun(2, &program, &["none", "1000000"]);
    let running = under_way(&place, &words, 2);
    let pids = ranks(&place, &program);
    assert_eq!(pids.len(), 2, "{:?}", place.processes());
    pids.into_iter().for_each(|pid| signal(pid, Signal::KILL));
    let done = running.wait();
    assert_eq!(done.code, 128 + 9, "{done:#?}");
    done.no_panic();
    let summary = check(&place, "out", false);
    assert_every_call_recorded(&place, &summary, 2);
    place.assert_clean();
}

#[test]
fn a_killed_mpirun_leaves_what_its_ranks_have_published() {
    if !have_mpi() {
        return;
    }
    let place = Place::new();
    let program = build_mpi(&place);
    let words = mpirun(2, &program, &["none", "1000000"]);
    let running = under_way(&place, &words, 2);
    let is_launcher = |(pid, command): &(u32, String)| command.starts_with("mpirun.openmpi").then_some(*pid);
    let mpirun = place.processes().iter().find_map(is_launcher).expect("mpirun");
    signal(mpirun, Signal::KILL);
    let done = running.wait();
    assert_eq!(done.code, 128 + 9, "{done:#?}");
    // The ranks of the killed mpirun end when they notice its end.
    let summary = check(&place, "out", false);
    assert_every_call_recorded(&place, &summary, 2);
    place.no_process_left();
}

/// The job is ended as a batch system does it: with SIGTERM to all of it, and then SIGKILL to the rest.
#[test]
fn a_job_that_is_ended_by_its_scheduler_has_results() {
    if !have_mpi() {
        return;
    }
    for also_the_collector in [false, true] {
        let place = Place::new();
        let program = build_mpi(&place);
        let words = mpirun(2, &program, &["none", "1000000"]);
        let running = under_way(&place, &words, 2);
        let all = place.processes();
        if also_the_collector {
            all.iter().for_each(|(pid, _)| signal(*pid, Signal::TERM));
        } else {
            running.signal_group(Signal::TERM);
        }
        until("the results are written", || {
            place.path("out/summary.json").exists() && place.collectors().is_empty()
        });
        place.processes().iter().for_each(|(pid, _)| signal(*pid, Signal::KILL));
        let done = running.wait();
        assert!(done.code > 128 || done.code == 1, "{done:#?}");
        done.no_panic();
        let summary = check(&place, "out", false);
        if !also_the_collector {
            assert_every_call_recorded(&place, &summary, 2);
        }
        place.assert_clean();
    }
}

#[test]
fn a_stopped_rank_continues_and_nothing_is_lost() {
    if !have_mpi() {
        return;
    }
    let place = Place::new();
    let program = build_mpi(&place);
    let words = mpirun(2, &program, &["none", "6000", "0", "0"]);
    let without = without_ampere(&place, &words);
    let running = start(place.ampere_run("out", &words).arg("500"));
    until_paused(&place);
    let stopped = ranks(&place, &program)[0];
    signal(stopped, Signal::STOP);
    place.write("go", "");
    std::thread::sleep(Duration::from_secs(1));
    signal(stopped, Signal::CONT);
    let done = running.wait();
    done.as_without(&without);
    done.said_nothing();
    let summary = check(&place, "out", true);
    assert_eq!(total_calls(&summary, "step"), 12000);
    place.assert_clean();
}

/// The program neither waits for the stopped collector nor fails, and every call is in the results.
#[test]
fn a_stopped_collector_is_not_waited_for() {
    let place = Place::new();
    let program = build_serial(&place);
    // These are more events than the ring of 8,192 records holds. In a slow run, coalesced calls need more records.
    let words = [program.clone().into(), "none".into(), "20000".into(), "0".into(), "0".into()];
    let without = without_ampere(&place, &words);
    let mut command = place.ampere_run("out", &words);
    let running = start(command.arg("500").env("AMPERE_RING_BYTES", "131072"));
    until_paused(&place);
    let collector = place.collectors()[0];
    signal(collector, Signal::STOP);
    place.write("go", "");
    until("the program is done", || counted(&place, "0") == 20000);
    // The program itself ends without delay: only `ampere run` waits for the results.
    until("the program has ended", || ranks(&place, &program).is_empty());
    std::thread::sleep(Duration::from_millis(2100));
    signal(collector, Signal::CONT);
    let done = running.wait();
    done.as_without(&without);
    done.said_nothing();
    let summary = check(&place, "out", true);
    let notes = summary["run"]["notes"].to_string();
    assert!(notes.contains("no counter was read for ") && notes.contains("was stopped"), "{notes}");
    assert_eq!(total_calls(&summary, "step"), 20000, "{} {}", summary["quality"], summary["run"]);
    assert!(summary["quality"]["coalesced_calls"].as_u64() > Some(1000), "{}", summary["quality"]);
    assert_eq!(summary["quality"]["suppressed_calls"], 0);
    place.assert_clean();
}

/// A program's behaviour does not depend on its collector.
#[test]
fn a_killed_collector_does_not_affect_the_program() {
    if !have_mpi() {
        return;
    }
    let place = Place::new();
    let program = build_mpi(&place);
    for events in ["auto", "all"] {
        let words = mpirun(2, &program, &["none", "6000", "0", "0"]);
        let without = without_ampere(&place, &words);
        let mut command = place.ampere_run(events, &words);
        command.arg("500").env("AMPERE_EVENTS", events).env("AMPERE_RING_BYTES", "65536");
        let running = start(&mut command);
        until_paused(&place);
        place.collectors().into_iter().for_each(|pid| signal(pid, Signal::KILL));
        place.write("go", "");
        let done = running.wait();
        done.as_without(&without);
        done.no_panic();
        assert_eq!(counted(&place, "0") + counted(&place, "1"), 12000);
        place.no_process_left();
        forget_counts(&place);
    }
}
