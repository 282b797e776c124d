//! Processes that fork, execute other programs, or close descriptors that are not theirs.

use ampere_tests::counting_program::{
    assert_every_call_recorded, build_mpi, build_serial, check, counted, have_mpi, mpirun, total_calls,
    until_paused, without_ampere,
};
use ampere_tests::jobs::{Place, files_below, run, start, until};

#[test]
fn a_forked_child_records_nothing_and_does_not_end_the_run() {
    let place = Place::new();
    let program = build_serial(&place);
    let words = [program.into(), "fork".into(), "2000".into()];
    let without = without_ampere(&place, &words);
    let done = run(&mut place.ampere_run("out", &words));
    done.as_without(&without);
    done.said_nothing();
    let summary = check(&place, "out", true);
    // The child's 2000 calls are not among them.
    assert_eq!(counted(&place, "0"), 2500);
    assert_eq!(counted(&place, "child"), 2000);
    assert_eq!(total_calls(&summary, "step"), 2500);
    assert_eq!(summary["quality"]["damaged_records"], 0, "{}", summary["quality"]);
    place.assert_clean();

    if !have_mpi() {
        return;
    }
    let place = Place::new();
    let words = mpirun(2, &build_mpi(&place), &["fork", "2000", "1"]);
    let without = without_ampere(&place, &words);
    let done = run(&mut place.ampere_run("out", &words));
    done.as_without(&without);
    let summary = check(&place, "out", true);
    assert_every_call_recorded(&place, &summary, 2);
    place.assert_clean();
}

#[test]
fn child_processes_are_measured_as_processes_of_their_own() {
    let place = Place::new();
    let program = build_serial(&place);
    let words = [program.into(), "children".into(), "1000".into()];
    let without = without_ampere(&place, &words);
    let done = run(&mut place.ampere_run("out", &words));
    done.as_without(&without);
    done.said_nothing();
    let summary = check(&place, "out", true);
    assert_eq!(total_calls(&summary, "step"), 1000 + 2 * 200);
    place.assert_clean();
}

/// The process and its pid stay the same, but its rings and its log are not those of the program before.
#[test]
fn a_program_that_becomes_another_is_measured_as_both() {
    let place = Place::new();
    let program = build_serial(&place);
    let words = [program.clone().into(), "exec".into(), "2000".into()];
    let without = without_ampere(&place, &words);
    let done = run(&mut place.ampere_run("out", &words));
    done.as_without(&without);
    done.said_nothing();
    let summary = check(&place, "out", true);
    assert_eq!(summary["run"]["endings"], serde_json::Value::Null);
    assert!(
        !summary["run"]["notes"].to_string().contains("without finishing"),
        "{}",
        summary["run"]["notes"]
    );
    assert_eq!((counted(&place, "0"), counted(&place, "execed")), (1000, 100));
    assert_eq!((total_calls(&summary, "step"), total_calls(&summary, "after_exec")), (1200, 100));
    place.assert_clean();

    // Without ampere run, the last of the node's processes waits for the results: the first program does not count twice.
    let done = run(place.bare("bare", &program).args(["exec", "2000"]));
    done.as_without(&without);
    assert!(done.stderr.contains("energy summary in"), "{done:#?}");
    assert_eq!(total_calls(&place.summary("bare"), "after_exec"), 100);
    assert_eq!(place.summary("bare")["run"]["complete"], true);
}

/// The first program ended when the process executed one that is not measured; it did not die.
#[test]
fn a_program_that_becomes_one_that_is_not_measured_is_finished() {
    let place = Place::new();
    let source = r#"
        #include <unistd.h>
        __attribute__((noinline)) void work(void) { for (volatile int i = 0; i < 5000000; i++); }
        int main(void) {
            for (int i = 0; i < 30; i++) work();
            execlp("sleep", "sleep", "3", (char *)0);
            return 1;
        }
    "#;
    let program = place.compile("cc", "becomes", source, &["-finstrument-functions"]);
    for output in ["out", "bare"] {
        let done = run(&mut match output {
            "out" => place.ampere_run(output, [&program]),
            _ => place.bare(output, &program),
        });
        assert_eq!(done.code, 0, "{done:#?}");
        until("the results are written", || place.path(output).join("summary.txt").exists());
        place.no_process_left();
        let summary = check(&place, output, true);
        assert_eq!(total_calls(&summary, "work"), 30);
        assert_eq!(summary["run"]["endings"], serde_json::Value::Null);
        // The first program ended when it executed the other one, and not when the process ended.
        let rows = summary["devices"][0]["views"][0]["regions"].as_array().expect("regions");
        let main = rows.iter().find(|row| row["region"] == "main").expect("main");
        let seconds = main["exclusive_seconds"].as_f64().expect("a number");
        let took = done.took.as_secs_f64();
        // On a busy machine, the collector notices this late.
        assert!(
            seconds < took - 1.5,
            "{seconds} s of main in {took} s, in which it slept as another program"
        );
        place.assert_clean();
    }
}

#[test]
fn a_plugin_that_the_program_closes_keeps_measuring() {
    let place = Place::new();
    let program = build_serial(&place);
    let words = [program.into(), "dlclose".into(), "2000".into()];
    let without = without_ampere(&place, &words);
    let done = run(&mut place.ampere_run("out", &words));
    done.as_without(&without);
    done.said_nothing();
    let summary = check(&place, "out", true);
    assert_eq!(total_calls(&summary, "step"), 2000);
    assert!(place.path("closed").exists(), "the program has found the plugin");
    place.assert_clean();
}

/// Daemons close all descriptors. Files that get the same descriptors afterwards must not receive anything from ampere.
#[test]
fn nothing_is_written_into_files_of_a_program_that_closes_all_descriptors() {
    let place = Place::new();
    let program = build_serial(&place);
    let words: [std::ffi::OsString; 3] = [program.into(), "close-all".into(), "2000".into()];
    let without = without_ampere(&place, &words);
    let done = run(&mut place.ampere_run("out", &words));
    done.as_without(&without);
    done.said_nothing();
    let own = std::fs::read_to_string(place.path("mine")).expect("the program's file");
    assert_eq!(own, "mine\n".repeat(64));
    let summary = check(&place, "out", true);
    for region in ["late_1", "late_2", "late_3"] {
        assert_eq!(total_calls(&summary, region), 1, "{region} is known by its name");
    }
    assert_eq!(total_calls(&summary, "step"), 2003);
    place.assert_clean();
    // The plugin's own message at the end would go to standard error, which is such a file by then.
    std::fs::remove_file(place.path("mine")).expect("it exists");
    run(place.bare("bare", std::path::Path::new(&words[0])).args(&words[1..])).as_without(&without);
    assert_eq!(std::fs::read_to_string(place.path("mine")).expect("the program's file"), own);
    check(&place, "bare", true);
}

/// A job's next step starts while the results of the one before are being written: it runs, and a message reports it.
#[test]
fn a_program_that_starts_while_results_are_written_runs_unmeasured() {
    let place = Place::new();
    let program = build_serial(&place);
    let one = |steps: &str| {
        let mut command = place.bare("out", &program);
        command.args(["none", steps]).env("AMPERE_SESSION", "both");
        command
    };
    let first = start(one("20000").args(["0", "0", "2000"]));
    until_paused(&place);
    let page = files_below(&place.path("shm")).into_iter().find(|path| path.ends_with("session"));
    let session = page.and_then(|page| ampere_ring::Session::open(page.parent()?).ok()).expect("a session");
    session.set_finishing(true);
    let second = run(one("500").current_dir(place.path("shm")));
    assert_eq!((second.code, second.stdout.as_str()), (0, "done 500\n"));
    second.said_once(&["already writing its results", "energy is not measured"]);
    session.set_finishing(false);
    place.write("go", "");
    assert_eq!(first.wait().code, 0);
    let summary = check(&place, "out", true);
    assert_eq!(total_calls(&summary, "step"), 20000);
}

/// Programs of one job step that do not know each other are one run, even if the second one asks for another output directory.
#[test]
fn joining_a_run_with_another_output_directory_is_reported() {
    let place = Place::new();
    let program = build_serial(&place);
    let one = |output: &str, steps: &str| {
        let mut command = place.bare(output, &program);
        command.args(["none", steps]).env("AMPERE_SESSION", "both");
        command
    };
    let first = start(one("out", "20000").args(["0", "0", "2000"]));
    until_paused(&place);
    let second = run(one("elsewhere", "500").current_dir(place.path("shm")));
    assert_eq!((second.code, second.stdout.as_str()), (0, "done 500\n"));
    second.said_once(&[
        "the results go to",
        "out and not to",
        "joined a run whose output directory is the first one",
    ]);
    place.write("go", "");
    assert_eq!(first.wait().code, 0);
    assert_eq!(total_calls(&check(&place, "out", true), "step"), 20500);
    assert!(!place.path("elsewhere").exists());
}
