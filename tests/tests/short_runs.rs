//! Runs that end shortly after their start, and commands that leave processes running.

use ampere_tests::counting_program::{have_mpi, total_calls};
use ampere_tests::cpu_time::{stolen, stolen_since};
use ampere_tests::jobs::{Place, run, start, until};
use ampere_tests::runs::{list, number};
use ampere_tests::skip_unless;
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// Works for the number of milliseconds in its first argument. If there is a second one, it then makes the file of this name, and
/// works until it is killed.
const WORK: &str = r#"
    #include <stdio.h>
    #include <stdlib.h>
    #include <string.h>
    #include <time.h>
    #include <unistd.h>
    #ifdef WITH_MPI
    #include <mpi.h>
    #endif
    __attribute__((noinline)) void spin(double seconds) {
        struct timespec begin, now;
        volatile double sum = 0;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
        do {
            for (int i = 0; i < 1000; i++) sum += i;
            clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
        } while ((now.tv_sec - begin.tv_sec) + (now.tv_nsec - begin.tv_nsec) * 1e-9 < seconds);
    }
    int main(int argc, char **argv) {
    #ifdef WITH_MPI
        MPI_Init(&argc, &argv);
        MPI_Barrier(MPI_COMM_WORLD);
    #endif
        if (argc > 1) spin(atof(argv[1]) * 1e-3);
        puts("ok");
        fflush(stdout);
        if (getenv("PRINTS_CPU_SECONDS")) {
            struct timespec used;
            clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
            fprintf(stderr, "used %.6f\n", used.tv_sec + used.tv_nsec * 1e-9);
        }
        if (argc > 2) { fclose(fopen(argv[2], "w")); for (;;) spin(0.01); }
    #ifdef WITH_MPI
        MPI_Finalize();
        // mpirun kills the other ranks, which may still be ending, when one returns anything else.
        return 0;
    #endif
        return 3;
    }
"#;

/// Returns a run whose joules are those of CPU time alone: 10 W for each busy core.
fn measured(place: &Place, output: &str, command: &[&str]) -> Command {
    let mut run = place.ampere_run(output, command);
    run.env_remove("AMPERE_SAMPLE")
        .env("AMPERE_COUNTERS", "estimate")
        .env("AMPERE_ESTIMATE_IDLE_WATTS", "0")
        .env("AMPERE_ESTIMATE_WATTS_PER_CORE", "10");
    run
}

fn total_joules(summary: &Value) -> f64 {
    list(summary, "devices").iter().map(|device| number(device, "total_joules")).sum()
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

/// Runs a command of `measured`, which must end with this status and give complete results.
#[track_caller]
fn assert_complete(place: &Place, output: &str, command: &mut Command, code: i32) -> Value {
    let done = run(command);
    assert_eq!(done.code, code, "{done:#?}");
    done.no_panic();
    let summary = place.summary(output);
    assert_eq!(summary["run"]["complete"], true, "{command:?}: {:#}", summary["run"]);
    summary
}

#[test]
fn a_run_is_complete_however_short_it_is() {
    let place = Place::new();
    let plain = place.compile("cc", "plain", WORK, &[]);
    let instrumented = place.compile("cc", "instrumented", WORK, &["-finstrument-functions"]);
    let complete = |output: &str, command: &[&str], code: i32| {
        assert_complete(&place, output, &mut measured(&place, output, command), code)
    };
    complete("true", &["true"], 0);
    for milliseconds in ["0", "1", "5", "20", "50"] {
        complete(&format!("plain-{milliseconds}"), &[text(&plain), milliseconds], 3);
        let output = format!("instrumented-{milliseconds}");
        let summary = complete(&output, &[text(&instrumented), milliseconds], 3);
        assert_eq!(total_calls(&summary, "spin"), 1, "{:#}", summary["devices"]);
    }
    place.assert_clean();
}

#[test]
fn a_short_mpi_run_is_complete() {
    skip_unless!(have_mpi(), "no Open MPI");
    let place = Place::new();
    let ranks = place.compile("mpicc.openmpi", "mpi", WORK, &["-DWITH_MPI", "-finstrument-functions"]);
    // While MPI starts, samples at shorter intervals would be lost if the collector got no CPU for a while.
    let complete = |output: &str, command: &[&str]| {
        let mut command = measured(&place, output, command);
        assert_complete(&place, output, command.env("AMPERE_SAMPLE", "10ms"), 0)
    };
    let summary = complete("ranks", &["mpirun.openmpi", "--oversubscribe", "-n", "2", text(&ranks), "1"]);
    assert_eq!(summary["run"]["ranks"], 2);
    // A single rank needs no launcher, and ends before the time at which a longer run measures its clock.
    complete("alone", &[text(&ranks), "1"]);
    place.assert_clean();
}

/// Executes its arguments, and prints the CPU seconds of itself and of its children.
const TOTAL: &str = r#"
    #include <stdio.h>
    #include <sys/resource.h>
    #include <sys/wait.h>
    #include <unistd.h>
    static double seconds(int who) {
        struct rusage used;
        getrusage(who, &used);
        return used.ru_utime.tv_sec + used.ru_stime.tv_sec + 1e-6 * (used.ru_utime.tv_usec + used.ru_stime.tv_usec);
    }
    int main(int argc, char **argv) {
        int status;
        if (!fork()) { execvp(argv[1], argv + 1); _exit(9); }
        wait(&status);
        fprintf(stderr, "total %.6f\n", seconds(RUSAGE_SELF) + seconds(RUSAGE_CHILDREN));
        return WEXITSTATUS(status);
    }
"#;

/// The kernel shows the time of ended children in steps of 10 ms.
#[test]
fn the_joules_of_a_short_run_are_those_of_its_cpu_time() {
    let place = Place::new();
    let plain = place.compile("cc", "plain", WORK, &[]);
    let total = place.compile("cc", "total", TOTAL, &[]);
    for (output, command) in
        [("one", vec![text(&plain), "6"]), ("many", vec!["sh", "-c", "./plain 2; ./plain 2; ./plain 2"])]
    {
        let stolen_before = stolen();
        let command = [&[text(&total)], &command[..]].concat();
        let done = run(measured(&place, output, &command).env("PRINTS_CPU_SECONDS", "1"));
        assert_eq!(done.code, 3, "{done:#?}");
        let stolen = stolen_since(stolen_before);
        let joules = total_joules(&place.summary(output));
        let printed = |word: &str| -> f64 {
            done.stderr.lines().filter_map(|line| line.strip_prefix(word)?.parse::<f64>().ok()).sum()
        };
        let (used, all) = (printed("used "), printed("total "));
        // The end of the first program uses some CPU time after it has printed.
        assert!(
            used >= 0.006 && (9.9 * used..10.0 * (all + 0.008 + stolen)).contains(&joules),
            "{output}: {joules} J for {used} s of {all} s, of 10 W; {stolen} s stolen"
        );
    }
}

/// A shell returns immediately when a command runs in the background, and so does `ampere run`.
#[test]
fn a_process_that_the_command_leaves_running_does_not_delay_the_end_and_is_named() {
    let place = Place::new();
    let instrumented = place.compile("cc", "left", WORK, &["-finstrument-functions"]);
    let plain = place.compile("cc", "left-plain", WORK, &[]);
    for (program, output) in [(&instrumented, "recorded"), (&plain, "sampled")] {
        let ready = format!("ready-{output}");
        let script = format!(
            "{} 20 {ready} >/dev/null 2>&1 & while [ ! -e {ready} ]; do sleep 0.01; done; sleep 0.1; exit 5",
            program.display()
        );
        let running = start(&mut measured(&place, output, &["sh", "-c", &script]));
        until("the program is under way", || place.path(&ready).exists());
        let done = running.wait();
        assert_eq!(done.code, 5, "{done:#?}");
        let summary = place.summary(output);
        let left = place.processes();
        let (pid, _) =
            left.iter().find(|(_, command)| command.starts_with(text(program))).expect("it is still running");
        let name = program.file_name().expect("a name").to_string_lossy().into_owned();
        let notes = summary["run"]["notes"].to_string();
        assert!(notes.contains("still run") && notes.contains(&format!("{name} (process {pid})")), "{notes}");
        assert!(total_joules(&summary) > 0.1, "{:#}", summary["devices"]);
        ampere_tests::jobs::kill(*pid);
        place.no_process_left();
    }
}

/// A busy collector may look for such processes only once in a while.
#[test]
fn a_process_without_samples_that_still_runs_is_named() {
    let place = Place::new();
    for (output, script) in [
        (
            "sleeps",
            "sleep 170 >/dev/null 2>&1 & until grep -q sleep /proc/$!/comm; do :; done; sleep 2; exit 5",
        ),
        (
            "waits",
            "sh -c 'sleep 170; true' >/dev/null 2>&1 & \
             until { read child < /proc/$!/task/$!/children; grep -qs sleep /proc/$child/comm; }; do :; done; \
             sleep 2; exit 5",
        ),
    ] {
        let done = run(&mut measured(&place, output, &["sh", "-c", script]));
        assert_eq!(done.code, 5, "{done:#?}");
        let notes = place.summary(output)["run"]["notes"].to_string();
        let is_ours = |(_, command): &(u32, String)| command.contains("ampere-collector");
        until("the collector and what watches it have ended", || !place.processes().iter().any(is_ours));
        for (pid, command) in place.processes() {
            let name =
                command.split(['/', ' ']).find(|word| ["sleep", "sh"].contains(word)).expect("it is one");
            assert!(notes.contains(&format!("{name} (process {pid})")), "{command}: {notes}");
            ampere_tests::jobs::kill(pid);
        }
        assert!(notes.contains("sleep (process "), "{notes}");
        place.no_process_left();
    }
}

/// A process that the command leaves running starts a program, which finds no session any more. This is not an error.
#[test]
fn a_program_that_starts_after_the_run_prints_nothing() {
    let place = Place::new();
    let instrumented = place.compile("cc", "later", WORK, &["-finstrument-functions"]);
    let script = format!(
        "(while [ ! -e go ]; do sleep 0.01; done; {} 1 >said 2>&1; touch gone) </dev/null >/dev/null 2>&1 &",
        instrumented.display()
    );
    let done = run(&mut measured(&place, "out", &["sh", "-c", &script]));
    assert_eq!(done.code, 0, "{done:#?}");
    assert_eq!(place.summary("out")["run"]["complete"], true);
    place.write("go", "");
    until("the program has ended", || place.path("gone").exists());
    assert_eq!(std::fs::read_to_string(place.path("said")).expect("a file"), "ok\n");
    place.assert_clean();
}
