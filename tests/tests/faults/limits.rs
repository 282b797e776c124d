//! A process' limits on descriptors and memory.

use ampere_tests::counting_program::{
    assert_conserved, build_mpi, build_serial, calls, check, have_mpi, mpirun, total_calls, without_ampere,
};
use ampere_tests::jobs::{Place, built, run};

#[test]
fn a_program_without_free_descriptors_continues_and_is_still_measured() {
    let place = Place::new();
    let program = build_serial(&place);
    let words = [program.into(), "few-files".into(), "2000".into()];
    let without = without_ampere(&place, &words);
    let done = run(&mut place.ampere_run("out", &words));
    done.as_without(&without);
    // The threads' rings cannot be made, but that of the main thread exists.
    done.said_once(&["Too many open files", "threads without a ring are not recorded"]);
    let summary = check(&place, "out", false);
    assert!(summary["quality"]["unrecorded_calls"].as_u64() > Some(0), "{}", summary["quality"]);
    assert_eq!(total_calls(&summary, "step"), 2003);
    assert_eq!(total_calls(&summary, "late_3"), 1);
    place.assert_clean();
}

#[test]
fn a_program_that_may_not_open_anything_runs_unmeasured() {
    let place = Place::new();
    let program = build_serial(&place);
    let without = without_ampere(&place, &[program.clone().into(), "none".into(), "500".into()]);
    // The smallest limit is what the loader needs for the files that it opens and closes; the largest is enough for a session, a
    // log and a ring.
    for limit in 4..9 {
        let script = format!("ulimit -n {limit}; exec '{}' none 500", program.display());
        let alone = run(place.command("bash").args(["-c", &script]));
        let done = run(&mut place.ampere_run(&format!("out-{limit}"), ["bash", "-c", &script]));
        assert_eq!((done.code, &done.stdout), (alone.code, &alone.stdout), "{limit}: {done:#?}");
        assert!(limit < 6 || alone.code == without.code);
        done.no_panic();
        place.no_process_left();
    }
}

/// The energy of the second process is charged to the first one. This must be reported.
#[test]
fn a_process_that_cannot_be_measured_makes_the_run_of_others_incomplete() {
    let place = Place::new();
    let program = build_serial(&place);
    let second = "OMPI_COMM_WORLD_LOCAL_RANK=1";
    for (name, limit) in [("ring", "ulimit -S -f 40"), ("descriptors", "ulimit -S -n 5")] {
        let program = program.display();
        let script = format!("'{program}' none 500; ({limit}; export {second}; exec '{program}' none 500)");
        let done = run(&mut place.ampere_run(name, ["bash", "-c", &script]));
        assert_eq!(done.code, 0, "{done:#?}");
        done.no_panic();
        place.no_process_left();
        let summary = place.summary(name);
        assert_conserved(&summary);
        let notes = summary["run"]["notes"].to_string();
        let is_noted = summary["run"]["complete"] == false && notes.contains("could not be");
        // Without a descriptor for the session's page, nothing can be reported there.
        let is_printed = name == "descriptors" && done.stderr.contains("energy is not measured");
        let is_measured = total_calls(&summary, "step") == 1000;
        assert!(is_noted != is_measured || is_printed, "{name}: {notes} {}", done.stderr);
        place.assert_clean();
    }
}

#[test]
fn a_collector_needs_few_descriptors() {
    if !have_mpi() {
        return;
    }
    let place = Place::new();
    let words = mpirun(2, &build_mpi(&place), &["threads", "2000", "1"]);
    let without = without_ampere(&place, &words);
    let collector = built().join("ampere-collector");
    // With samples, the collector also opens a ring for each CPU, and events for each thread and CPU.
    // The kernel has room for the samples of most of a second: a run that loses some is not complete.
    for (limit, sample) in [(30, "off"), (40, "off"), (40, "10ms")] {
        let script = format!("#!/bin/bash\nulimit -n {limit}\nexec '{}' \"$@\"\n", collector.display());
        let few = place.script("few", &script);
        let output = format!("out-{limit}-{sample}");
        let mut command = place.bare(&output, std::path::Path::new(&words[0]));
        command.args(&words[1..]).env("AMPERE_COLLECTOR", few).env("AMPERE_SAMPLE", sample);
        let done = run(&mut command);
        done.as_without(&without);
        done.no_panic();
        place.no_process_left();
        let summary = place.summary(&output);
        assert_conserved(&summary);
        let notes = &summary["run"]["notes"];
        assert_eq!(summary["run"]["complete"], true, "{limit} {sample}: {notes}");
        let steps = calls(&summary, "step");
        assert_eq!(steps.values().sum::<u64>(), 4000, "{limit} {sample}: {steps:?}");
        place.assert_clean();
    }
}

#[test]
fn a_program_with_a_small_address_space_runs_as_without_ampere() {
    let place = Place::new();
    let program = build_serial(&place);
    let without = without_ampere(&place, &[program.clone().into(), "none".into(), "500".into()]);
    // The limits are in kilobytes. They rise in steps from one with which the program alone can start to one with which
    // everything works.
    for limit in [8_000, 12_000, 16_000, 24_000, 48_000] {
        let script = format!("ulimit -v {limit}; exec '{}' none 500", program.display());
        let alone = run(place.command("bash").args(["-c", &script]));
        if alone.code != without.code {
            continue; // the program cannot start without ampere either
        }
        let output = format!("out-{limit}");
        let done = run(&mut place.ampere_run(&output, ["bash", "-c", &script]));
        assert_eq!((done.code, &done.stdout), (without.code, &without.stdout), "{limit} kB: {done:#?}");
        done.no_panic();
        place.no_process_left();
    }
}

/// A process that writes beyond the limit is killed, unless it handles the signal. The plugin must take care of the ring and the
/// log, and the collector of the spool and the trace.
#[test]
fn a_limit_on_the_size_of_files_ends_neither_program_nor_collector() {
    let place = Place::new();
    let program = build_serial(&place);
    // The limits are in kilobytes: room for no ring, for a small one, for a ring but no spool, and for a spool but no trace.
    for limit in [4, 16, 64, 4_000, 9_000] {
        for bare in [false, true] {
            let output = format!("out-{limit}-{bare}");
            let script = format!("ulimit -f {limit}; exec '{}' none 20000", program.display());
            let without = without_ampere(&place, &["bash".into(), "-c".into(), script.clone().into()]);
            assert_eq!(without.code, 0, "what the program writes itself is small");
            let mut command = match bare {
                true => place.bare(&output, std::path::Path::new("bash")),
                false => place.ampere_run(&output, ["bash"]),
            };
            let done = run(command.args(["-c", &script]).env("AMPERE_EVENTS", "all"));
            assert_eq!(
                (done.code, &done.stdout),
                (without.code, &without.stdout),
                "{limit} {bare}: {done:#?}"
            );
            done.no_panic();
            place.no_process_left();
            if limit >= 4_000 && !bare {
                let summary = place.summary(&output);
                assert_conserved(&summary);
                assert_eq!(total_calls(&summary, "step"), 20000, "{limit}");
            }
        }
    }
}
