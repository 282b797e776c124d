//! Events that are counted in sampled threads, such as instructions. Page faults stand in for them, because every machine counts
//! these, and the program knows how many it causes.

use ampere_tests::jobs::{Place, have, run};
use ampere_tests::runs::{attribute, list, may_sample, number, relative, succeed, text};
use ampere_tests::skip_unless;
use serde_json::Value;
use std::collections::BTreeMap;

/// The main thread touches 2000 new pages, and a second thread then touches 6000. Prints the page faults of each, and of the
/// process. Each works for a while before and after that: the events between two samples count for the later one, which may be
/// another function's.
const PROGRAM: &str = r#"
    #define _GNU_SOURCE
    #include <pthread.h>
    #include <sched.h>
    #include <stdio.h>
    #include <sys/mman.h>
    #include <sys/resource.h>
    #include <time.h>
    #ifdef WITH_MPI
    #include <mpi.h>
    #endif
    #define PAGE 4096
    static long faults(int who) { struct rusage used; getrusage(who, &used); return used.ru_minflt + used.ru_majflt; }
    static double cpu(void) {
        struct timespec time;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
        return time.tv_sec + 1e-9 * time.tv_nsec;
    }
    static void work(void) { for (double end = cpu() + 0.05; cpu() < end;) {} }
    static void touch(char *memory, int pages, double seconds) {
        double begun = cpu();
        for (int page = 0; page < pages; page++) {
            memory[(long)page * PAGE] = 1;
            while (cpu() < begun + seconds * (page + 1) / pages) {}
        }
    }
    static char *fresh(int pages) {
        char *memory = mmap(0, (long)pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        madvise(memory, (long)pages * PAGE, MADV_NOHUGEPAGE);
        return memory;
    }
    __attribute__((noinline)) void few(char *memory) {
        long before = faults(RUSAGE_THREAD);
        work();
        touch(memory, 2000, 0.4);
        work();
        printf("few %ld\n", faults(RUSAGE_THREAD) - before);
    }
    __attribute__((noinline)) void many(char *memory) {
        long before = faults(RUSAGE_THREAD);
        work();
        touch(memory, 6000, 0.4);
        work();
        printf("many %ld\n", faults(RUSAGE_THREAD) - before);
    }
    static void *second(void *memory) { many(memory); return 0; }
    int main(int count, char **arguments) {
    #ifdef WITH_MPI
        MPI_Init(&count, &arguments);
    #endif
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(sched_getcpu(), &one);
        sched_setaffinity(0, sizeof one, &one);
        few(fresh(2000));
        pthread_t thread;
        pthread_create(&thread, 0, second, fresh(6000));
        pthread_join(thread, 0);
    #ifdef WITH_MPI
        for (int i = 0; i < 50; i++) { touch(fresh(10), 10, 0.002); MPI_Barrier(MPI_COMM_WORLD); }
    #endif
        printf("all %ld\n", faults(RUSAGE_SELF));
        fflush(stdout);
    #ifdef WITH_MPI
        return MPI_Finalize();
    #endif
        return 0;
    }
"#;

/// Returns the events of each function, and the count of all events. Checks that the events of functions and the rest add up
/// to that count.
fn by_function(summary: &Value, event: &str) -> (BTreeMap<String, u64>, u64) {
    let table = &summary["events"];
    let numbers = |value: &Value| -> Vec<usize> {
        value
            .as_array()
            .expect("a column")
            .iter()
            .map(|number| number.as_u64().expect("a number") as usize)
            .collect()
    };
    let (paths, counts) = (numbers(&table["path"]), numbers(&table["counts"][event]));
    let (names, of_path) = (list(summary, "names"), numbers(&summary["paths"]["name"]));
    let mut functions = BTreeMap::new();
    for (path, count) in paths.iter().zip(&counts) {
        let name = names[of_path[*path]].as_str().expect("a name").to_owned();
        *functions.entry(name).or_default() += *count as u64;
    }
    let sum = list(&summary["run"], "events").iter().find(|sum| sum["name"] == event).expect("the event");
    let [count, rest] =
        ["count", "rest"].map(|figure| sum[figure].as_u64().unwrap_or_else(|| panic!("{sum}")));
    assert_eq!(sum["in_call_paths"].as_u64(), Some(functions.values().sum()), "{sum}: {functions:?}");
    assert_eq!(sum["in_call_paths"].as_u64().map(|known| known + rest), Some(count), "{sum}");
    let joules = number(&summary["run"], "total_joules");
    assert!(relative(number(sum, "per_joule") * joules, count as f64) < 1e-9, "{sum}: {joules} J");
    (functions, count)
}

/// Returns the numbers that the program has printed after a word.
fn printed(output: &str, word: &str) -> Vec<u64> {
    let numbers = output.lines().filter_map(|line| line.strip_prefix(word)?.trim().parse().ok());
    numbers.collect()
}

/// A sampling period with which the kernel's rings have room for the samples of most of a second. A run that loses samples is
/// not complete.
const RARELY: &str = "10ms";

fn is_near(found: u64, expected: u64) -> bool {
    // At the start and end of a function, the events of one sampling period may count for its caller, or those of its caller
    // for it.
    found.abs_diff(expected) <= expected / 25 + 20
}

#[test]
fn events_belong_to_the_functions_in_which_they_happened_live_and_from_the_trace() {
    skip_unless!(may_sample(), "perf_event_open is not allowed here");
    let place = Place::new();
    let program = place.compile("cc", "faults", PROGRAM, &["-O1", "-g", "-pthread"]);
    let mut command = place.ampere_run("out", [program]);
    command.env("AMPERE_HARDWARE_COUNTERS", "page_faults=1:2,twice=1:2*2");
    command.env("AMPERE_SAMPLE", RARELY);
    let done = run(&mut command);
    assert_eq!(done.code, 0, "{done:#?}");
    let summary = place.summary("out");
    let notes = list(&summary["run"], "notes");
    skip_unless!(
        !notes
            .iter()
            .any(|note| note.as_str().is_some_and(|note| note.contains("this kernel does not read"))),
        "the kernel does not read counters with samples of what a thread starts"
    );
    let (functions, count) = by_function(&summary, "page_faults");
    let of = |word: &str| printed(&done.stdout, word)[0];
    assert!(of("few") >= 2000 && of("many") >= 6000, "{done:#?}");
    // The functions that they call may have their own rows.
    let (few, many) = below(&summary, "few", "many");
    assert!(is_near(few, of("few")) && is_near(many, of("many")), "{few} {many} {done:#?}");
    let all = of("all");
    // The page faults at the program's start and end are in only one of the two numbers.
    assert!(count.abs_diff(all) < 200, "{count} counted, {all} printed");
    assert_eq!(by_function(&summary, "twice").1, 2 * count);
    let text = std::fs::read_to_string(place.path("out/summary.txt")).expect("summary.txt");
    for words in ["events in the threads", "page_faults: ", " per joule; ", "page_faults/J"] {
        assert!(text.contains(words), "{words}: {text}");
    }
    let trace = place.path("out/traces.otf2");
    let of_trace = attribute(&trace, &[]);
    assert_eq!(of_trace["run"]["events"], summary["run"]["events"]);
    assert_eq!(of_trace["events"], summary["events"]);
    let mut replay = place.ampere(["replay", "--speed", "100", "-o", "replayed"]);
    succeed(replay.arg(&trace));
    let replayed = place.summary("replayed");
    assert_eq!(replayed["run"]["events"], summary["run"]["events"]);
    assert_eq!(by_function(&replayed, "page_faults"), (functions, count));
    place.assert_clean();
}

/// Returns the page faults of the call paths that contain `one`, and of those that contain `other`.
fn below(summary: &Value, one: &str, other: &str) -> (u64, u64) {
    let table = &summary["events"];
    let column = |value: &Value| -> Vec<u64> {
        value.as_array().expect("a column").iter().map(|number| number.as_u64().unwrap_or(u64::MAX)).collect()
    };
    let (paths, counts) = (column(&table["path"]), column(&table["counts"]["page_faults"]));
    let (parents, names) = (column(&summary["paths"]["parent"]), column(&summary["paths"]["name"]));
    let has = |path: u64, function: &str| {
        let up = |path: &u64| parents.get(*path as usize).copied().filter(|parent| *parent != u64::MAX);
        std::iter::successors(Some(path), up)
            .any(|path| list(summary, "names")[names[path as usize] as usize] == function)
    };
    let sum = |function: &str| {
        paths.iter().zip(&counts).filter(|(path, _)| has(**path, function)).map(|(_, count)| count).sum()
    };
    (sum(one), sum(other))
}

#[test]
fn events_of_mpi_ranks_are_as_many_as_in_the_trace() {
    skip_unless!(may_sample(), "perf_event_open is not allowed here");
    skip_unless!(have(&["mpicc", "mpirun"]), "no MPI");
    let place = Place::new();
    let program = place.compile("mpicc", "faults", PROGRAM, &["-O1", "-g", "-pthread", "-DWITH_MPI"]);
    let mut command = place.ampere_run("out", place.mpi(&program));
    let done = run(command.env("AMPERE_HARDWARE_COUNTERS", "page_faults=1:2").env("AMPERE_SAMPLE", RARELY));
    assert_eq!(done.code, 0, "{done:#?}");
    let summary = place.summary("out");
    skip_unless!(
        !list(&summary["run"], "events").is_empty(),
        "the kernel does not read counters with samples"
    );
    let (functions, count) = by_function(&summary, "page_faults");
    let printed_sum: u64 = printed(&done.stdout, "all").iter().sum();
    assert!(count + 200 > printed_sum && printed_sum >= 8000, "{count} counted, {printed_sum} printed");
    let (few, many) = below(&summary, "few", "many");
    let expected = |word: &str| printed(&done.stdout, word).iter().sum::<u64>();
    assert!(
        is_near(few, expected("few")) && is_near(many, expected("many")),
        "{few} {many} {done:#?} {functions:?}"
    );
    let of_trace = attribute(&place.path("out/traces.otf2"), &[]);
    assert_eq!(of_trace["run"]["events"], summary["run"]["events"]);
    assert_eq!(of_trace["events"], summary["events"]);
}

#[test]
fn what_cannot_be_counted_is_absent_with_a_reason_and_nothing_is_counted_without_the_setting() {
    skip_unless!(may_sample(), "perf_event_open is not allowed here");
    let place = Place::new();
    let with = |output: &str, events: &str| {
        let mut command = place.ampere_run(output, ["sh", "-c", "for i in $(seq 100000); do :; done"]);
        let done = run(command.env("AMPERE_HARDWARE_COUNTERS", events).env("AMPERE_SAMPLE", RARELY));
        (done.code, done)
    };
    // No machine has this event.
    let (code, done) = with("none", "nothing=1:99999");
    assert_eq!(code, 0, "{done:#?}");
    let summary = place.summary("none");
    let is_reason =
        |note: &Value| note.as_str().is_some_and(|note| note.starts_with("not counted: nothing ("));
    assert!(list(&summary["run"], "notes").iter().any(is_reason), "{}", summary["run"]);
    assert!(summary["run"]["events"].is_null() && summary["events"].is_null(), "{}", summary["run"]);
    assert_eq!(summary["run"]["complete"], true);
    let (code, done) = with("off", "off");
    assert_eq!(code, 0, "{done:#?}");
    let summary = place.summary("off");
    assert!(summary["run"]["events"].is_null() && summary["events"].is_null(), "{}", summary["run"]);
    let (code, done) = with("wrong", "joules");
    assert!(code != 0 && done.stderr.contains("\"joules\": there is no event with this name"), "{done:#?}");
}

#[test]
fn doctor_reports_which_events_this_machine_counts() {
    skip_unless!(may_sample(), "perf_event_open is not allowed here");
    let place = Place::new();
    let output = place.ampere(["doctor"]).output().expect("doctor starts");
    let text = text(&output.stdout);
    let line = text.lines().find(|line| line.contains("events ")).unwrap_or_else(|| panic!("{text}"));
    // Without hardware, `perf` finds no such event either.
    let has_hardware = std::path::Path::new("/sys/bus/event_source/devices/cpu").exists();
    assert!(line.contains(if has_hardware { "can be counted" } else { "cannot be counted" }), "{line}");
}
