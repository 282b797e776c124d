//! The ways in which a program can end.

use ampere_tests::counting_program::{
    assert_every_call_recorded, build_mpi, build_serial, check, counted, have_mpi, mpirun, total_calls,
    without_ampere,
};
use ampere_tests::jobs::{Place, run};

/// One of two ranks ends in the middle of its work: mpirun ends the other one, or the other one waits and is ended then.
#[test]
fn however_a_rank_ends_its_calls_are_in_the_results() {
    if !have_mpi() {
        return;
    }
    for fault in ["kill", "abort", "segv", "_exit", "exit", "mpi-abort", "bus"] {
        let place = Place::new();
        let program = build_mpi(&place);
        let words = mpirun(2, &program, &[fault, "4000", "1", "3000"]);
        let without = without_ampere(&place, &words);
        let done = run(&mut place.ampere_run("out", &words));
        done.as_without(&without);
        done.no_panic();
        assert_ne!(done.code, 0, "{fault}: {done:#?}");
        // Open MPI's own handlers print where the program crashed, as they do without ampere.
        let crashes = |text: &str| text.matches("Process received signal").count();
        assert_eq!(crashes(&done.stderr), crashes(&without.stderr), "{fault}: {done:#?} {without:#?}");
        let summary = check(&place, "out", false);
        assert_every_call_recorded(&place, &summary, 2);
        assert_eq!(counted(&place, "1"), 3000, "{fault}");
        place.assert_clean();
    }
}

#[test]
fn however_a_program_without_mpi_ends_its_calls_are_in_the_results() {
    let place = Place::new();
    let program = build_serial(&place);
    for fault in ["abort", "segv", "_exit", "exit", "bus", "bus-handled", "bus-sent", "no-memory", "raw-exit"]
    {
        let words = [program.clone().into(), fault.into(), "2000".into()];
        let without = without_ampere(&place, &words);
        let done = run(&mut place.ampere_run(fault, &words));
        done.as_without(&without);
        done.no_panic();
        let ended_in_order = ["exit", "no-memory", "raw-exit"].contains(&fault);
        let summary = check(&place, fault, ended_in_order);
        let did = counted(&place, "0");
        let recorded = total_calls(&summary, "step");
        assert!((did..=did + 4).contains(&recorded), "{fault}: {did} calls, {recorded} in the summary");
        place.assert_clean();
    }
}

/// The main thread ends while others continue: the process runs for as long as they do.
#[test]
fn threads_that_outlive_main_are_measured_to_their_end() {
    let place = Place::new();
    let program = build_serial(&place);
    for fault in ["outlive", "running-threads"] {
        let words = [program.clone().into(), fault.into(), "2000".into()];
        let without = without_ampere(&place, &words);
        let mut command = place.ampere_run(fault, &words);
        let done = run(command.env("AMPERE_LOCATIONS", "all"));
        done.as_without(&without);
        done.said_nothing();
        let summary = check(&place, fault, true);
        let recorded = total_calls(&summary, "in_thread");
        // The thread ends after 200 calls, or the program ends when the thread has made 50.
        let least = if fault == "outlive" { 200 } else { 50 };
        assert!(recorded >= least, "{fault}: {recorded} calls in the thread");
        place.assert_clean();
    }
}

/// Standard error has no reader any more when ampere prints its last line, and standard output is not yet flushed.
#[test]
fn a_program_with_a_closed_standard_error_is_measured() {
    let place = Place::new();
    let program = build_serial(&place);
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let mut command = place.bare("out", &program);
    command.args(["none", "1000"]).stderr(writer).stdin(std::process::Stdio::null());
    let done = command.output().expect("it can be started");
    assert_eq!((done.status.code(), &*done.stdout), (Some(0), &b"done 1000\n"[..]), "{done:?}");
    place.no_process_left();
    let summary = check(&place, "out", true);
    assert_eq!(total_calls(&summary, "step"), 1000);
    place.assert_clean();
}
