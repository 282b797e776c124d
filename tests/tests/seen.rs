//! What a run reports as not seen: which processes are sampled and until when, and CPU time without samples.

use ampere_tests::cpu_time::{stolen, stolen_since};
use ampere_tests::jobs::{Place, is_root, run, until_no_record_is_lost};
use ampere_tests::runs::{assert_same_figures, attribute, json, list, may_sample, number, on_path};
use ampere_tests::skip_unless;
use serde_json::Value;
use std::collections::HashSet;

/// A function that uses the number of CPU seconds that is its argument. It is called `spin`, or has the name in `WORK`.
const SPIN: &str = r#"
    #include <stdio.h>
    #include <stdlib.h>
    #include <time.h>
    #ifndef WORK
    #define WORK spin
    #endif
    static double now(clockid_t clock) { struct timespec time; clock_gettime(clock, &time); return time.tv_sec + 1e-9 * time.tv_nsec; }
    __attribute__((noinline)) void WORK(double seconds) {
        volatile double sum = 0;
        for (double end = now(CLOCK_PROCESS_CPUTIME_ID) + seconds; now(CLOCK_PROCESS_CPUTIME_ID) < end;)
            for (int i = 0; i < 10000; i++) sum += i;
    }
"#;
const MAIN: &str = "int main(void) { WORK(0.7); return 0; }";
/// The hooks that `-finstrument-functions` calls.
const HOOKS: &str = r#"
    static long calls;
    __attribute__((no_instrument_function)) void __cyg_profile_func_enter(void *function, void *site) { calls++; }
    __attribute__((no_instrument_function)) void __cyg_profile_func_exit(void *function, void *site) { }
"#;
/// Starts threads or, with an argument, child processes, one after the other. Each uses `EACH` seconds of CPU time.
const SHORT: &str = r#"
    #include <pthread.h>
    #include <sys/wait.h>
    #include <time.h>
    #include <unistd.h>
    static double now(void) { struct timespec time; clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time); return time.tv_sec + 1e-9 * time.tv_nsec; }
    static void *work(void *none) { volatile double sum = 0; for (double end = now() + EACH; now() < end;) for (int i = 0; i < 500; i++) sum += i; return none; }
    static void thread(void) { pthread_t thread; pthread_create(&thread, 0, work, 0); pthread_join(thread, 0); }
    static void child(void) { pid_t child = fork(); if (!child) { work(0); _exit(0); } waitpid(child, 0, 0); }
    int main(int count, char **arguments) { for (int i = 0; i < ROUNDS; i++) { if (count > 1) child(); else thread(); } return 0; }
"#;
/// The largest share of joules that may be idle. The joules follow from CPU time, which other programs do not change.
const IDLE_MAX: f64 = 0.1;

fn run_of(place: &Place, command: &[&str]) -> Value {
    output_of(place, command, "").0
}

/// Runs a command with this sampling period, or with the default if `period` is empty. Returns the summary and what the
/// command printed.
fn output_of(place: &Place, command: &[&str], period: &str) -> (Value, String) {
    let measured = || {
        let mut measured = place.ampere_run("out", command);
        measured.env("AMPERE_COUNTERS", "estimate").env_remove("AMPERE_SAMPLE");
        measured.env("AMPERE_ESTIMATE_IDLE_WATTS", "0").env("AMPERE_ESTIMATE_WATTS_PER_CORE", "10");
        if !period.is_empty() {
            measured.env("AMPERE_SAMPLE", period);
        }
        let done = run(&mut measured);
        assert_eq!(done.code, 0, "{done:#?}");
        (json(&place.path("out/summary.json")), done.stdout)
    };
    until_no_record_is_lost(place, measured)
}

/// Runs a command. Returns the summary and the share of the joules of the ranks view that is idle. All joules are computed from
/// CPU time.
fn measured(place: &Place, command: &[&str]) -> (Value, f64) {
    let summary = run_of(place, command);
    let views: Vec<&Value> = devices(&summary).flat_map(|device| list(device, "views")).collect();
    let ranks = views.iter().filter(|view| view["view"] == "ranks");
    let idle: f64 = ranks.map(|view| number(view, "idle_joules")).sum();
    let total: f64 = devices(&summary).map(|device| number(device, "total_joules")).sum();
    assert_same_figures(&summary, &attribute(&place.path("out/traces.otf2"), &[]));
    (summary, idle / total)
}

fn devices(summary: &Value) -> impl Iterator<Item = &Value> {
    list(summary, "devices").iter().filter(|device| device["unit"] != "s")
}

/// Returns a function's share of the joules of the functions in the ranks view.
fn share(summary: &Value, region: &str) -> f64 {
    share_of(summary, region, "exclusive_joules")
}

/// Returns the share of a function, by one of its figures.
fn share_of(summary: &Value, region: &str, figure: &str) -> f64 {
    let views = devices(summary).flat_map(|device| list(device, "views"));
    let regions: Vec<&Value> =
        views.filter(|view| view["view"] == "ranks").flat_map(|view| list(view, "regions")).collect();
    let all: f64 = regions.iter().map(|row| number(row, "exclusive_joules")).sum();
    let of = regions.iter().filter(|row| row["region"] == region);
    of.map(|row| number(row, figure)).sum::<f64>() / all
}

/// Seconds in functions in the ranks view.
fn seconds(summary: &Value) -> f64 {
    let views = devices(summary).flat_map(|device| list(device, "views"));
    let ranks = views.filter(|view| view["view"] == "ranks");
    ranks.flat_map(|view| list(view, "regions")).map(|row| number(row, "exclusive_seconds")).sum()
}

/// Checks that most joules of a program are in this function.
fn assert_most_in(place: &Place, command: &[&str], region: &str) {
    let (summary, idle) = measured(place, command);
    assert!(share(&summary, region) > 0.8, "{} of {region}: {summary:#}", share(&summary, region));
    assert!(idle < IDLE_MAX, "{idle}: {summary:#}");
}

#[test]
fn a_process_that_could_record_its_functions_and_does_not_is_sampled() {
    skip_unless!(may_sample(), "perf_event_open is not allowed here");
    let instrumented = ["-O1", "-finstrument-functions", "-rdynamic"];
    let source = [SPIN, MAIN].concat();
    let place = Place::new();
    let own_hooks = place.compile("cc", "own", &[SPIN, HOOKS, MAIN].concat(), &instrumented);
    assert_most_in(&place, &[&own_hooks.to_string_lossy()], "spin");
    let place = Place::new();
    let program = place.compile("cc", "static", &source, &["-O1", "-finstrument-functions", "-static"]);
    assert_most_in(&place, &[&program.to_string_lossy()], "spin");
    if is_root() && on_path("unshare") {
        let place = Place::new();
        let program = place.compile("cc", "apart", &source, &instrumented);
        // The new file system hides the path of the program.
        let hide = "mount -t tmpfs none /dev/shm && exec /proc/self/fd/3";
        let script = format!("exec 3< {}; {hide}", program.display());
        assert_most_in(&place, &["unshare", "-m", "sh", "-c", &script], "spin");
    }
}

/// The first recorded function runs in a thread that ends, and the main thread records its functions only afterwards.
#[test]
fn a_rank_goes_on_in_its_main_thread_after_the_thread_that_recorded_first_has_ended() {
    let place = Place::new();
    let main = r#"
        #include <pthread.h>
        void first(double);
        __attribute__((no_instrument_function)) static void *start(void *none) { first(1.2); return none; }
        __attribute__((no_instrument_function)) int main(void) {
            pthread_t thread;
            pthread_create(&thread, 0, start, 0);
            pthread_join(thread, 0);
            spin(1.2);
            return 0;
        }
    "#;
    let first = SPIN.replace("WORK", "first");
    let source = [SPIN, &first[first.find("__attribute__").expect("the function")..], main].concat();
    let options = ["-O1", "-finstrument-functions", "-pthread", "-rdynamic"];
    let program = place.compile("cc", "threads", &source, &options);
    let (summary, idle) = measured(&place, &[&program.to_string_lossy()]);
    for region in ["first", "spin"] {
        assert!((0.4..0.6).contains(&share(&summary, region)), "{region}: {summary:#}");
    }
    assert!(idle < IDLE_MAX, "{idle}: {summary:#}");
    assert_eq!(summary["run"]["complete"], true, "{}", summary["run"]);
}

#[test]
fn functions_that_are_not_instrumented_are_sampled_next_to_those_that_are() {
    skip_unless!(may_sample(), "perf_event_open is not allowed here");
    let place = Place::new();
    let main = "void recorded(double); int main(void) { for (int i = 0; i < 20; i++) { recorded(0.01); spin(0.04); } return 0; }";
    let instrumented = ["-O1", "-finstrument-functions", "-fPIC", "-shared", "-DWORK=recorded"];
    let library = place.compile("cc", "libpart.so", SPIN, &instrumented);
    let program = place.compile("cc", "work", &[SPIN, main].concat(), &["-O1", &library.to_string_lossy()]);
    let (summary, idle) = measured(&place, &[&program.to_string_lossy()]);
    assert!(idle < IDLE_MAX, "{idle}: {summary:#}");
    let (recorded, sampled) = (share(&summary, "recorded"), share(&summary, "spin"));
    let is_right = (0.17..0.23).contains(&recorded) && (0.65..0.85).contains(&sampled);
    assert!(is_right, "{recorded}, {sampled}: {summary:#}");
}

/// The collector learns of the end of a call later than it happens. Functions that run in the meantime must be in their own
/// rows all the same.
#[test]
fn functions_that_follow_a_long_recorded_call_are_sampled_from_their_start() {
    skip_unless!(may_sample(), "perf_event_open is not allowed here");
    let place = Place::new();
    let main = "void recorded(double); int main(void) { recorded(0.9); spin(0.1); return 0; }";
    let instrumented = ["-O1", "-finstrument-functions", "-fPIC", "-shared", "-DWORK=recorded"];
    let library = place.compile("cc", "libpart.so", SPIN, &instrumented);
    let program = place.compile("cc", "work", &[SPIN, main].concat(), &["-O1", &library.to_string_lossy()]);
    let (summary, _) = output_of(&place, &[&program.to_string_lossy()], "1ms");
    let spin = share(&summary, "spin");
    assert!((0.08..0.12).contains(&spin), "{spin}: {summary:#}");
}

/// The collector checks every 100 ms whether a program records its functions. Here the recorded function is called at the same
/// intervals. The time of the start decides whether it is open at all checks or at none.
#[test]
fn a_program_that_is_in_a_recorded_function_at_each_check_is_sampled_between_them() {
    skip_unless!(may_sample(), "perf_event_open is not allowed here");
    let place = Place::new();
    let main = r#"
        #include <unistd.h>
        void recorded(double);
        int main(int count, char **arguments) {
            usleep(1000 * atoi(arguments[1]));
            for (int i = 0; i < 12; i++) { recorded(0.04); spin(0.06); }
            return 0;
        }
    "#;
    let instrumented = ["-O1", "-finstrument-functions", "-fPIC", "-shared", "-DWORK=recorded"];
    let library = place.compile("cc", "libpart.so", SPIN, &instrumented);
    let program = place.compile("cc", "work", &[SPIN, main].concat(), &["-O1", &library.to_string_lossy()]);
    for start_milliseconds in ["0", "33", "67"] {
        let (summary, idle) = measured(&place, &[&program.to_string_lossy(), start_milliseconds]);
        assert!(idle < IDLE_MAX, "{idle}: {summary:#}");
        let (recorded, sampled) = (share(&summary, "recorded"), share(&summary, "spin"));
        let is_right = (0.35..0.45).contains(&recorded) && (0.5..0.65).contains(&sampled);
        assert!(is_right, "{start_milliseconds}: {recorded}, {sampled}: {summary:#}");
    }
}

#[test]
fn a_program_after_one_that_is_instrumented_and_a_child_of_that_one_are_sampled() {
    skip_unless!(may_sample(), "perf_event_open is not allowed here");
    let place = Place::new();
    let plain = place.compile("cc", "plain", &[SPIN, MAIN].concat(), &["-O1", "-DWORK=plain"]);
    let plain = plain.to_string_lossy();
    let main = format!("int main(void) {{ recorded(0.7); return system(\"{plain}\"); }}");
    let instrumented = ["-O1", "-finstrument-functions", "-rdynamic", "-DWORK=recorded"];
    let parent = place.compile("cc", "parent", &[SPIN, &main].concat(), &instrumented);
    let (summary, idle) = measured(&place, &["sh", "-c", &format!("{}; {plain}", parent.display())]);
    assert!(idle < IDLE_MAX, "{idle}: {summary:#}");
    // `plain` uses two thirds of the CPU time.
    assert!((0.55..0.72).contains(&share(&summary, "plain")), "{}: {summary:#}", share(&summary, "plain"));
}

#[test]
fn what_an_instrumented_program_starts_is_sampled_from_its_first_instruction_on() {
    skip_unless!(may_sample(), "perf_event_open is not allowed here");
    let place = Place::new();
    let short = "int main(void) { WORK(0.05); return 0; }";
    place.compile("cc", "plain", &[SPIN, short].concat(), &["-O1", "-DWORK=plain"]);
    let main = r#"
        #include <sys/wait.h>
        #include <unistd.h>
        __attribute__((noinline)) void copy(void) { spin(0.05); __asm__ volatile(""); }
        static void child(char *program) {
            pid_t child = fork();
            if (!child && !program) { copy(); _exit(0); }
            if (!child) { execl(program, program, (char *)0); _exit(1); }
            waitpid(child, 0, 0);
        }
        int main(int count, char **arguments) {
            spin(1.2);
            for (int i = 0; i < 12; i++) child(arguments[1]);
            for (int i = 0; i < 12; i++) child(0);
            return 0;
        }
    "#;
    let instrumented = ["-O1", "-finstrument-functions", "-rdynamic"];
    let parent = place.compile("cc", "parent", &[SPIN, main].concat(), &instrumented);
    let plain = place.path("plain");
    let (summary, _) = output_of(&place, &[&parent.to_string_lossy(), &plain.to_string_lossy()], "1ms");
    // `plain` and `copy` each use a quarter of the CPU time.
    let plain = share(&summary, "plain");
    let copy = share_of(&summary, "copy", "inclusive_joules");
    assert!((0.2..0.3).contains(&plain) && (0.2..0.3).contains(&copy), "{plain}, {copy}: {summary:#}");
    let paths = devices(&summary).flat_map(|device| list(&list(device, "views")[0], "callpaths"));
    let is_copy = |name: &Value| name == "copy";
    let of_copies = paths.filter(|row| row["path"].as_array().is_some_and(|path| path.iter().any(is_copy)));
    let copies: HashSet<String> = of_copies.map(|row| row["location_group"].to_string()).collect();
    assert_eq!(copies.len(), 12, "the first one, too, has a row: {copies:?}");
}

#[test]
fn a_program_that_an_instrumented_program_becomes_is_sampled_from_its_first_instruction_on() {
    skip_unless!(may_sample(), "perf_event_open is not allowed here");
    let place = Place::new();
    let short = "int main(void) { WORK(0.1); return 0; }";
    let plain = place.compile("cc", "plain", &[SPIN, short].concat(), &["-O1", "-DWORK=plain"]);
    let plain = plain.to_string_lossy();
    let main = format!(
        "#include <unistd.h>\nint main(void) {{ recorded(0.8); return execl(\"{plain}\", \"{plain}\", (char *)0); }}"
    );
    let instrumented = ["-O1", "-finstrument-functions", "-rdynamic", "-DWORK=recorded"];
    let before = place.compile("cc", "before", &[SPIN, &main].concat(), &instrumented);
    let (summary, _) = output_of(&place, &[&before.to_string_lossy()], "1ms");
    // `plain` uses a ninth of the CPU time.
    let plain = share(&summary, "plain");
    assert!((0.09..0.13).contains(&plain), "{plain}: {summary:#}");
}

#[test]
fn a_child_of_fork_without_exec_is_sampled_and_its_calls_are_not_recorded() {
    skip_unless!(may_sample(), "perf_event_open is not allowed here");
    let place = Place::new();
    let main = r#"
        #include <sys/wait.h>
        #include <unistd.h>
        int main(void) {
            pid_t child = fork();
            if (!child) { spin(0.7); _exit(0); }
            return waitpid(child, 0, 0) != child;
        }
    "#;
    let instrumented = ["-O1", "-finstrument-functions", "-rdynamic"];
    let program = place.compile("cc", "forks", &[SPIN, main].concat(), &instrumented);
    let (summary, _) = measured(&place, &[&program.to_string_lossy()]);
    // The parent waits in a recorded function, and shares the joules under some policies.
    assert!(share(&summary, "spin") > 0.3, "{}: {summary:#}", share(&summary, "spin"));
    let regions = devices(&summary).flat_map(|device| list(&list(device, "views")[0], "regions"));
    let calls: Vec<u64> =
        regions.filter(|row| row["region"] == "spin").map(|row| row["calls"].as_u64().unwrap_or(0)).collect();
    assert_eq!(calls, [0], "{summary:#}");
}

#[test]
fn a_process_is_sampled_after_its_recording_has_ended() {
    skip_unless!(may_sample(), "perf_event_open is not allowed here");
    skip_unless!(on_path("mpicc") && on_path("mpirun"), "mpicc is not installed");
    let place = Place::new();
    let main = r#"
        #include <mpi.h>
        __attribute__((noinline)) void before(void) { spin(0.8); }
        __attribute__((noinline)) void after(void) { spin(1.6); __asm__ volatile(""); }
        int main(int count, char **arguments) { MPI_Init(&count, &arguments); before(); MPI_Finalize(); after(); return 0; }
    "#;
    let instrumented = ["-O1", "-finstrument-functions", "-rdynamic"];
    let program = place.compile("mpicc", "work", &[SPIN, main].concat(), &instrumented);
    let (summary, idle) = measured(&place, &["mpirun", "-n", "1", &program.to_string_lossy()]);
    assert!(idle < IDLE_MAX, "{idle}: {summary:#}");
    // How much the launcher and MPI_Init use depends on the machine.
    assert!(share(&summary, "spin") > 0.5, "{}: {summary:#}", share(&summary, "spin"));
}

#[test]
fn a_sampled_thread_that_makes_calls_is_counted_once() {
    skip_unless!(may_sample(), "perf_event_open is not allowed here");
    skip_unless!(on_path("mpicc") && on_path("mpirun"), "mpicc is not installed");
    let place = Place::new();
    let main = r#"
        #include <mpi.h>
        #include <pthread.h>
        static void *start(void *none) {
            spin(0.4);
            for (int i = 0; i < 3; i++) {
                MPI_Comm copy;
                MPI_Comm_dup(MPI_COMM_SELF, &copy);
                MPI_Comm_free(&copy);
                spin(0.1);
            }
            return 0;
        }
        int main(int count, char **arguments) {
            int provided;
            MPI_Init_thread(&count, &arguments, MPI_THREAD_MULTIPLE, &provided);
            pthread_t thread;
            pthread_create(&thread, 0, start, 0);
            pthread_join(thread, 0);
            MPI_Finalize();
            return 0;
        }
    "#;
    // The function measures the CPU time of its thread, and not of the process.
    let spin = SPIN.replace("CLOCK_PROCESS_CPUTIME_ID", "CLOCK_THREAD_CPUTIME_ID");
    let program = place.compile("mpicc", "calls", &[&spin, main].concat(), &["-O1", "-pthread"]);
    let stolen_before = stolen();
    let (summary, idle) = measured(&place, &["mpirun", "-n", "1", &program.to_string_lossy()]);
    let stolen = stolen_since(stolen_before);
    assert!(idle < IDLE_MAX, "{idle}: {summary:#}");
    assert!(share(&summary, "calls") < 0.1, "{}: {summary:#}", share(&summary, "calls"));
    // The thread uses 0.7 s of CPU time. How much the launcher and MPI use depends on the machine.
    let total: f64 = devices(&summary).map(|device| number(device, "total_joules")).sum();
    let spin = share(&summary, "spin") * total * (1.0 - idle);
    assert!((6.0..7.5 + 10.0 * stolen).contains(&spin), "{spin} J, {stolen} s stolen: {summary:#}");
}

/// Each rank computes in two functions and then waits in MPI for the slower rank, some hundred times a second. It prints the CPU
/// seconds that the two functions have used.
const WAITS: &str = r#"
    #include <mpi.h>
    #include <stdio.h>
    #include <time.h>
    static double now(void) { struct timespec time; clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time); return time.tv_sec + 1e-9 * time.tv_nsec; }
    static volatile double sum;
    __attribute__((noinline)) static void first(int count) { for (int i = 0; i < count; i++) sum += i; }
    __attribute__((noinline)) static void second(int count) { for (int i = 0; i < count; i++) sum -= i; }
    int main(int count, char **arguments) {
        int rank, unit = 1000;
        double used[2] = {0, 0}, times[3];
        MPI_Init(&count, &arguments);
        MPI_Comm_rank(MPI_COMM_WORLD, &rank);
        for (double took = 0; took < 0.01; took = now() - times[0]) { unit *= 2; times[0] = now(); first(unit); }
        MPI_Allreduce(MPI_IN_PLACE, &unit, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
        for (int i = 0; i < 600; i++) {
            times[0] = now();
            first(unit / (rank ? 8 : 4));
            times[1] = now();
            second(unit / 8);
            times[2] = now();
            for (int at = 0; at < 2; at++) used[at] += times[at + 1] - times[at];
            MPI_Barrier(MPI_COMM_WORLD);
        }
        printf("%d %f %f\n", rank, used[0], used[1]);
        MPI_Finalize();
        return 0;
    }
"#;

#[test]
fn functions_of_ranks_that_wait_in_mpi_have_their_cpu_time() {
    skip_unless!(may_sample(), "perf_event_open is not allowed here");
    skip_unless!(on_path("mpicc") && on_path("mpirun"), "mpicc is not installed");
    let place = Place::new();
    let program = place.compile("mpicc", "waits", WAITS, &["-O1"]);
    for period in ["1ms", "3ms"] {
        let (summary, printed) =
            output_of(&place, &["mpirun", "--oversubscribe", "-n", "2", &program.to_string_lossy()], period);
        let joules = |rank: &str, function: &str| -> f64 {
            let views = devices(&summary).flat_map(|device| list(device, "views"));
            let rows = views.filter(|view| view["view"] == "ranks").flat_map(|view| list(view, "callpaths"));
            let of = rows.filter(|row| {
                row["location_group"] == format!("MPI Rank {rank}")
                    && row["path"]
                        .as_array()
                        .and_then(|path| path.last())
                        .is_some_and(|last| last == function)
            });
            of.map(|row| number(row, "exclusive_joules")).sum()
        };
        assert_eq!(printed.lines().count(), 2, "{printed}");
        for line in printed.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            for (function, seconds) in [("first", words[1]), ("second", words[2])] {
                let (is, expected) =
                    (joules(words[0], function), 10.0 * seconds.parse::<f64>().expect("a number"));
                // The samples have a standard error of some percent. An error of half a sampling period for each call would be
                // a quarter of the joules.
                let what =
                    format!("{period}: {function} of rank {} has {is} J and not {expected} J", words[0]);
                assert!((is / expected - 1.0).abs() < 0.15, "{what}: {summary:#}");
            }
            let main = joules(words[0], "main");
            assert!(main < 0.3, "{period}: main of rank {} has {main} J: {summary:#}", words[0]);
        }
    }
}

/// For three seconds, uses a CPU for `BURST` milliseconds and then sleeps for `SLEEP` milliseconds.
const SLEEPS: &str = r#"
    #include <time.h>
    #include <unistd.h>
    static double now(clockid_t clock) { struct timespec time; clock_gettime(clock, &time); return time.tv_sec + 1e-9 * time.tv_nsec; }
    static volatile double sum;
    __attribute__((noinline)) static void burst(double seconds) {
        for (double end = now(CLOCK_THREAD_CPUTIME_ID) + seconds; now(CLOCK_THREAD_CPUTIME_ID) < end;)
            for (int i = 0; i < 5000; i++) sum += i;
    }
    int main(void) {
        for (double end = now(CLOCK_MONOTONIC) + 3; now(CLOCK_MONOTONIC) < end; usleep(1000 * SLEEP)) burst(1e-3 * BURST);
        return 0;
    }
"#;

#[test]
fn a_thread_that_sleeps_most_of_the_time_has_its_cpu_time_in_functions() {
    skip_unless!(may_sample(), "perf_event_open is not allowed here");
    let place = Place::new();
    // Most of the intervals that a thread is on a CPU have no sample. The functions of the second program end each time that
    // it sleeps.
    for (name, burst, sleep, period) in [("often", "3", "12", "16ms"), ("rarely", "2", "40", "5ms")] {
        let times = [format!("-DBURST={burst}"), format!("-DSLEEP={sleep}")];
        let program = place.compile("cc", name, SLEEPS, &["-O1", &times[0], &times[1]]);
        let (summary, _) = output_of(&place, &[&program.to_string_lossy()], period);
        let ranks =
            devices(&summary).flat_map(|device| list(device, "views")).filter(|view| view["view"] == "ranks");
        let idle: f64 = ranks.map(|view| number(view, "idle_joules")).sum();
        let total: f64 = devices(&summary).map(|device| number(device, "total_joules")).sum();
        assert!(idle < IDLE_MAX * total, "{name}: {idle} J of {total} J are idle: {summary:#}");
    }
}

#[test]
fn threads_and_processes_that_are_too_short_for_a_sample_are_counted_for_their_program() {
    skip_unless!(may_sample(), "perf_event_open is not allowed here");
    for (arguments, name, rounds, each) in [
        (&[][..], "threads", 1000, "0.6e-3"),
        (&["children"][..], "children", 1000, "0.6e-3"),
        (&["children"][..], "children with one sample or two", 60, "12e-3"),
    ] {
        let place = Place::new();
        let options = [format!("-DROUNDS={rounds}"), format!("-DEACH={each}")];
        let options = ["-O1", "-lpthread", &options[0], &options[1]];
        let program = place.compile("cc", "short", SHORT, &options);
        let program = program.to_string_lossy();
        let command = [&[&*program], arguments].concat();
        let (summary, idle) = measured(&place, &command);
        assert!(idle < IDLE_MAX, "{name}: {idle}: {summary:#}");
        // A child with three samples has rows of its own, which also begin with the program.
        assert!(share_of(&summary, "short", "inclusive_joules") > 0.5, "{name}: {summary:#}");
        assert_eq!(summary["run"]["complete"], true, "{name}: {summary:#}");
        assert!(seconds(&summary) > 0.5, "{name}: {} s: {summary:#}", seconds(&summary));
    }
    let place = Place::new();
    let (summary, idle) =
        measured(&place, &["sh", "-c", "i=0; while [ $i -lt 400 ]; do /bin/true; i=$((i+1)); done"]);
    assert!(idle < IDLE_MAX, "a shell's loop: {idle}: {summary:#}");
}

/// The user has turned sampling off: the work that is therefore not seen must not be taken for idle time.
#[test]
fn a_run_that_is_not_complete_because_sampling_is_off_is_reported() {
    let place = Place::new();
    let program = place.compile("cc", "work", &[SPIN, MAIN].concat(), &["-O1"]);
    let done = run(&mut place.ampere_run("out", [program.as_os_str()]));
    assert_eq!(done.code, 0, "{done:#?}");
    let run = &place.summary("out")["run"];
    let notes = run["notes"].to_string();
    assert!(
        notes.contains("are in no row") && notes.contains("(work)") && notes.contains("--sample off"),
        "{notes}"
    );
    assert_eq!(run["complete"], false, "{notes}");
}

#[test]
fn threads_that_record_nothing_next_to_one_that_does_are_sampled() {
    skip_unless!(may_sample(), "perf_event_open is not allowed here");
    let place = Place::new();
    let main = r#"
        #include <pthread.h>
        static void *start(void *none) { spin(0.8); return none; }
        void recorded(double);
        int main(void) {
            pthread_t threads[2];
            for (int i = 0; i < 2; i++) pthread_create(&threads[i], 0, start, 0);
            recorded(0.8);
            for (int i = 0; i < 2; i++) pthread_join(threads[i], 0);
            return 0;
        }
    "#;
    // The function measures the CPU time of its thread, and not of the process.
    let spin = SPIN.replace("CLOCK_PROCESS_CPUTIME_ID", "CLOCK_THREAD_CPUTIME_ID");
    let instrumented = ["-O1", "-finstrument-functions", "-fPIC", "-shared", "-DWORK=recorded"];
    let library = place.compile("cc", "libpart.so", &spin, &instrumented);
    let program = place.compile(
        "cc",
        "work",
        &[&spin, main].concat(),
        &["-O1", "-pthread", &library.to_string_lossy()],
    );
    let (summary, idle) = measured(&place, &[&program.to_string_lossy()]);
    let spin = share(&summary, "spin");
    assert!((0.6..0.72).contains(&spin) && idle < IDLE_MAX, "{spin}, {idle}: {summary:#}");
    assert_eq!(summary["run"]["complete"], true, "{}", summary["run"]);
}
