//! What a run is charged with if other programs work on the same node, and if other threads than the main one do the work.

use ampere_tests::collector::{announced, events};
use ampere_tests::cpu_time::{stolen, stolen_since};
use ampere_tests::http;
use ampere_tests::jobs::{Done, Place, run, start, until};
use ampere_tests::runs::{attribute, list, parse, succeed};
use serde_json::Value;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const INSTRUMENTED: &[&str] = &["-finstrument-functions", "-pthread"];

/// The program sleeps for the seconds in its first argument, and then until the file that a second argument names exists.
const SLEEPS: &str = "
#include <stdlib.h>
#include <unistd.h>
__attribute__((noinline)) void sleeps(double seconds, const char *file) {
    usleep(seconds * 1e6);
    while (file && access(file, F_OK)) usleep(10000);
}
int main(int count, char **words) { sleeps(atof(words[1]), words[2]); return 0; }
";

/// The main thread waits for eight others, which work until there is a file `go`. With an argument, the main thread works
/// itself while the others sleep.
const THREADS: &str = "
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>
static volatile double sink;
static int main_works;
/* The work is measured by CPU time, so that it does not depend on the load of the machine. */
__attribute__((noinline)) void work(double seconds) {
    struct timespec t;
    do {
        for (int i = 0; i < 100000; i++) sink += i;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    } while (t.tv_sec + t.tv_nsec * 1e-9 < seconds);
}
__attribute__((noinline)) void sleeps(void) { usleep(300000); }
static void works_until_told(void) {
    double seconds = 0.2;
    do work(seconds); while (access(\"go\", F_OK) && (seconds += 0.02));
}
void *worker(void *number) {
    char name[16];
    snprintf(name, 16, \"solver-%ld\", (long)number);
    pthread_setname_np(pthread_self(), name);
    if (main_works) sleeps(); else works_until_told();
    return 0;
}
int main(int count, char **words) {
    pthread_t threads[8];
    main_works = count > 1;
    for (long i = 0; i < 8; i++) pthread_create(&threads[i], 0, worker, (void *)i);
    if (main_works) work(0.3);
    for (int i = 0; i < 8; i++) pthread_join(threads[i], 0);
    return 0;
}
";

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("no number: {value}"))
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}"))
}

fn rows<'a>(view: &'a Value, table: &str) -> &'a [Value] {
    view[table].as_array().expect("a table")
}

fn joules(view: &Value, region: &str) -> f64 {
    let row = rows(view, "regions").iter().find(|row| row["region"] == region);
    row.map_or(0.0, |row| number(&row["exclusive_joules"]))
}

#[track_caller]
fn notes(summary: &Value) -> String {
    summary["run"]["notes"].to_string()
}

/// Occupies all cores with threads of this process while `work` runs.
fn beside_a_neighbour<T>(work: impl FnOnce() -> T) -> T {
    let stop = Arc::new(AtomicBool::new(false));
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let burners: Vec<_> = (0..cores)
        .map(|_| {
            let stop = stop.clone();
            std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            })
        })
        .collect();
    let done = work();
    stop.store(true, Ordering::Relaxed);
    burners.into_iter().for_each(|burner| burner.join().expect("a thread"));
    done
}

fn estimated(place: &Place, output: &str, command: &[&str]) -> Done {
    let mut run_it = place.ampere_run(output, command);
    run(run_it
        .env("AMPERE_COUNTERS", "estimate")
        .env("AMPERE_ESTIMATE_IDLE_WATTS", "10")
        .env("AMPERE_ESTIMATE_WATTS_PER_CORE", "100"))
}

#[test]
fn a_function_that_sleeps_gets_the_idle_watts_alone_while_a_neighbour_burns_all_cores() {
    let place = Place::new();
    let program = place.compile("cc", "sleeps", SLEEPS, INSTRUMENTED);
    let program = program.to_str().expect("a path");
    let other = start(place.ampere_run("other", [program, "0", "go"]).env("AMPERE_COUNTERS", "estimate"));
    until("another run has started", || announced(&place.path("other")).is_some());
    let done = beside_a_neighbour(|| estimated(&place, "out", &[program, "1"]));
    place.write("go", "");
    assert_eq!((done.code, other.wait().code), (0, 0), "{done:#?}");
    let summary = place.summary("out");
    let (device, cpu) = (&summary["devices"][0], &summary["run"]["node_cpu"]);
    let seconds = number(&device["sampled_seconds"]);
    let sleeps = joules(&device["views"][0], "sleeps");
    assert!(sleeps < 20.0 * seconds, "{sleeps} J in {seconds} s, of 10 W idle");
    let own = number(&cpu["own_busy_seconds"]);
    let idle = 10.0 * seconds * number(&cpu["cpus"]) / number(&cpu["node_cpus"]);
    assert!(sleeps <= idle + 100.0 * own + 1e-6, "{sleeps} J of {idle} J idle: {summary:#}");
    // The CPU time of the neighbour is reported separately.
    assert!(number(&cpu["node_busy_seconds"]) > 0.5 * seconds + own, "{cpu}");
    let said = notes(&summary);
    for words in [
        "other runs on this node at the same time",
        "other programs ran on the node",
        "this run's joules do not include them",
        "the idle watts of all CPUs that it may use",
    ] {
        assert_eq!(said.matches(words).count(), 1, "{words}: {said}");
    }
    let table = std::fs::read_to_string(place.path("out/summary.txt")).expect("a table");
    let table = table.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(table.contains("busy CPU time were this run's own"), "{table}");
}

#[test]
fn a_collector_that_takes_over_estimates_from_the_runs_own_cpu_time_too() {
    let place = Place::new();
    let program = place.compile("cc", "sleeps", SLEEPS, INSTRUMENTED);
    let mut command = place.ampere_run("out", [program.to_str().expect("a path"), "0", "go"]);
    command.env("AMPERE_COUNTERS", "estimate").env("AMPERE_ESTIMATE_IDLE_WATTS", "10");
    let joules_so_far = || {
        let body = http::get(announced(&place.path("out"))?.address(), "/snapshot.json").ok()?.body;
        let snapshot: Value = serde_json::from_str(&body).ok()?;
        snapshot["devices"][0]["joules"].as_f64()
    };
    let done = beside_a_neighbour(|| {
        let running = start(command.env("AMPERE_ESTIMATE_WATTS_PER_CORE", "100"));
        let begun = || announced(&place.path("out"));
        until("it is measured", || begun().is_some() && events(&place.path("out")) > 0);
        let first = begun().expect("a collector");
        first.kill();
        until("another collector continues", || begun().is_some_and(|second| second.pid != first.pid));
        until("it has measured for two seconds and more", || joules_so_far() > Some(40.0));
        place.write("go", "");
        running.wait()
    });
    assert_eq!(done.code, 0, "{done:#?}");
    let summary = place.summary("out");
    let device = &summary["devices"][0];
    let (seconds, joules) = (number(&device["sampled_seconds"]), joules(&device["views"][0], "sleeps"));
    assert!(seconds > 2.0 && joules > 5.0 * seconds, "{joules} J in {seconds} s, of 10 W idle");
    assert!(joules < 20.0 * seconds, "{joules} J in {seconds} s, of 10 W idle");
}

#[test]
fn processes_that_end_at_once_are_counted() {
    let place = Place::new();
    let burst =
        "i=0; while [ $i -lt 60 ]; do i=$((i+1)); head -c 3000000 /dev/zero | cksum > /dev/null; done; times";
    let stolen_before = stolen();
    let done = estimated(&place, "out", &["sh", "-c", burst]);
    let stolen = stolen_since(stolen_before);
    // `times` prints "0m0.010s 0m0.000s" for the shell and for its children.
    let seconds = |word: &str| -> f64 {
        let (minutes, seconds) = word.trim_end_matches('s').split_once('m').expect("minutes and seconds");
        60.0 * minutes.parse::<f64>().expect("minutes") + seconds.parse::<f64>().expect("seconds")
    };
    let used: f64 = done.stdout.split_whitespace().map(seconds).sum();
    let own = number(&place.summary("out")["run"]["node_cpu"]["own_busy_seconds"]);
    // Each figure of `times` is in steps of 10 ms, and without the time that was stolen.
    let (most, more) = (0.05 + 0.1 * used, own - used);
    assert!(
        used > 0.1 && more > -most && more < most + stolen,
        "{own} s counted of {used} s, {stolen} s stolen: {done:#?}"
    );
}

#[test]
fn each_of_two_runs_on_one_node_names_the_other() {
    let place = Place::new();
    let program = place.compile("cc", "sleeps", SLEEPS, INSTRUMENTED);
    let program = program.to_str().expect("a path");
    let begin = |output| {
        let words = [program, "0", "go"];
        let running = start(place.ampere_run(output, words).env("AMPERE_COUNTERS", "estimate"));
        until("the collector runs", || announced(&place.path(output)).is_some());
        running
    };
    let (first, second) = (begin("first"), begin("second"));
    let shown = |output: &str| {
        let address = announced(&place.path(output)).expect("it runs").address();
        http::get(address, "/snapshot.json").expect("an answer").body
    };
    let (path_1, path_2) = (place.path("first"), place.path("second"));
    let is_named = |body: String, other: &std::path::Path| {
        let words = format!("(in {})", other.display());
        body.contains("other runs on this node at the same time") && body.contains(&words)
    };
    until("each names the other while it runs", || {
        is_named(shown("first"), &path_2) && is_named(shown("second"), &path_1)
    });
    place.write("go", "");
    assert_eq!((first.wait().code, second.wait().code), (0, 0));
    for (output, other) in [("first", &path_2), ("second", &path_1)] {
        assert!(is_named(notes(&place.summary(output)), other), "{}", notes(&place.summary(output)));
        let page = std::fs::read_to_string(place.path(output).join("report.html")).expect("a page");
        assert!(is_named(page, other), "the page of {output}");
        let table = std::fs::read_to_string(place.path(output).join("summary.txt")).expect("a table");
        let table = table.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(is_named(table, other), "the table of {output}");
    }
    // If a counter was measured, a note explains what that means.
    let node = place.made_up_node();
    let package = node.join("sys/class/powercap/intel-rapl:0");
    std::fs::create_dir_all(&package).expect("a directory");
    for (name, text) in
        [("name", "package-0\n"), ("energy_uj", "1000000\n"), ("max_energy_range_uj", "262143328850\n")]
    {
        std::fs::write(package.join(name), text).expect("a file");
    }
    std::fs::remove_file(place.path("go")).expect("it exists");
    let other = begin("other");
    let mut measured = place.ampere_run("measured", [program, "0.1"]);
    assert_eq!(run(measured.env("AMPERE_SYS_ROOT", &node).env("AMPERE_COUNTERS", "rapl")).code, 0);
    place.write("go", "");
    assert_eq!(other.wait().code, 0);
    let said = notes(&place.summary("measured"));
    assert!(
        is_named(said.clone(), &place.path("other")) && said.contains("this run's joules include"),
        "{said}"
    );
    let alone = run(place.ampere_run("alone", [program, "0.1"]).env("AMPERE_COUNTERS", "estimate"));
    assert_eq!(alone.code, 0);
    assert!(
        !notes(&place.summary("alone")).contains("other runs on this node"),
        "{}",
        notes(&place.summary("alone"))
    );
}

#[test]
fn threads_that_work_while_the_main_thread_waits_lead() {
    let place = Place::new();
    let program = place.compile("cc", "threads", THREADS, INSTRUMENTED);
    let running = start(place.ampere_run("out", [&program]).env("AMPERE_COUNTERS", "estimate"));
    // The live table has the figures of all threads, too, until the run ends. The threads work long enough that it does not
    // matter if the main thread is alone for a moment at the start or at the end.
    until("the live figures are those of all threads", || {
        let address = announced(&place.path("out")).map(|it| it.address());
        let body = address.and_then(|address| http::get(address, "/snapshot.json").ok());
        let shown: Value = body.and_then(|body| parse(&body.body).ok()).unwrap_or_default();
        let rows = || shown["threads_energy"].as_array().into_iter().flatten();
        let of = |region: &str| -> f64 {
            rows().filter(|row| row["region"] == region).map(|row| number(&row["joules"])).sum()
        };
        of("work") > 250.0 + 4.0 * of("main")
    });
    place.write("go", "");
    let done = running.wait();
    assert_eq!(done.code, 0, "{done:#?}");
    let live = place.summary("out");
    let trace = place.path("out").join("traces.otf2");
    let again = run(&mut place.ampere(["attribute", "--json", trace.to_str().expect("a path")]));
    let again: Value = parse(&again.stdout).expect("JSON");
    for summary in [&live, &again] {
        let device = &summary["devices"][0];
        let (main, all) = (&device["views"][0], &device["other_ranks"]);
        assert_eq!((&main["locations"], &all["locations"]), (&"main".into(), &"all".into()));
        assert_eq!(device["other_ranks_lead"], true);
        assert!(notes(summary).contains("ran more than its main thread"), "{}", notes(summary));
        assert_eq!(joules(main, "work"), 0.0, "the main thread was never in it");
        let (waiting, working) = (joules(all, "main"), joules(all, "work"));
        assert!(working > 3.0 * waiting, "{working} J in work, {waiting} J in main");
        for view in [main, all] {
            let parts = ["attributed_joules", "idle_joules", "lost_joules"].map(|part| number(&view[part]));
            let total = number(&device["total_joules"]);
            assert!((parts.iter().sum::<f64>() - total).abs() < 1e-9 * total, "{parts:?} of {total}");
        }
        let mut threads: Vec<&str> =
            rows(all, "callpaths").iter().map(|row| text(&row["location"])).collect();
        threads.sort_unstable();
        threads.dedup();
        let named = (0..8)
            .filter(|number| threads.iter().any(|name| name.starts_with(&format!("solver-{number} ("))));
        assert_eq!(named.count(), 8, "{threads:?}");
    }
    for region in ["main", "work"] {
        let of = |summary: &Value| joules(&summary["devices"][0]["other_ranks"], region);
        assert!((of(&live) - of(&again)).abs() < 1e-9 * of(&live), "{region}");
    }
    let table = std::fs::read_to_string(place.path("out").join("summary.txt")).expect("a table");
    let at = |words: &str| table.find(words).unwrap_or_else(|| panic!("no {words:?} in {table}"));
    assert!(at("processes view, by all threads (") < at("processes view, by main threads only: main ("));
    let first = table.lines().skip_while(|line| !line.contains("  function ")).nth(1);
    assert!(first.is_some_and(|row| row.contains("  work ") || row.ends_with("  work")), "{table}");
    let page = std::fs::read_to_string(place.path("out").join("report.html")).expect("a page");
    assert!(page.contains("ranks view, by all threads") && page.contains("solver-7 ("), "the page");
}

#[test]
fn a_main_thread_that_works_while_others_sleep_leads() {
    let place = Place::new();
    let program = place.compile("cc", "threads", THREADS, INSTRUMENTED);
    let program = program.to_str().expect("a path");
    assert_eq!(estimated(&place, "out", &[program, "main"]).code, 0);
    let summary = place.summary("out");
    let device = &summary["devices"][0];
    assert_eq!(device["other_ranks_lead"], Value::Null);
    assert!(joules(&device["other_ranks"], "sleeps") > 0.0, "both divisions have rows");
    assert!(notes(&summary).contains("other_ranks of summary.json"), "{}", notes(&summary));
    let table = std::fs::read_to_string(place.path("out").join("summary.txt")).expect("a table");
    assert!(table.contains("processes view, by main threads only ("), "{table}");
}

/// The time between two writes after which files of the made-up node count as late.
const LATE: Duration = Duration::from_millis(50);

/// A node of four CPUs whose package draws 60 W. Its files are written anew every few milliseconds, until it is dropped.
struct BusyNode {
    root: PathBuf,
    stop: Arc<AtomicBool>,
    writer: Option<JoinHandle<Duration>>,
}

impl BusyNode {
    /// `busy` is the number of its CPUs that are busy, whoever uses them.
    fn new(place: &Place, busy: f64) -> BusyNode {
        let root = place.made_up_node();
        let package = root.join("sys/class/powercap/intel-rapl:0");
        std::fs::create_dir_all(&package).expect("a directory");
        std::fs::write(package.join("name"), "package-0\n").expect("a file");
        std::fs::write(package.join("max_energy_range_uj"), "262143328850\n").expect("a file");
        let begin = Instant::now();
        let write = move |root: &Path| {
            let seconds = begin.elapsed().as_secs_f64();
            let microjoules = (1e6 * (100.0 + 60.0 * seconds)) as u64;
            put(&root.join("sys/class/powercap/intel-rapl:0/energy_uj"), &format!("{microjoules:<20}\n"));
            let ticks = (100.0 * (1.0 + busy * seconds)) as u64;
            let cpus = "cpu0 0\ncpu1 0\ncpu2 0\ncpu3 0\n";
            put(&root.join("proc/stat"), &format!("cpu  {ticks:<12} 0 0 5000 0 0 0 0 0 0\n{cpus}"));
        };
        write(&root);
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, of_writer) = (stop.clone(), root.clone());
        let writer = std::thread::spawn(move || {
            let mut late = Duration::ZERO;
            let mut last = Instant::now();
            while !stopped.load(Ordering::Relaxed) {
                write(&of_writer);
                late += last.elapsed().saturating_sub(LATE);
                last = Instant::now();
                std::thread::sleep(Duration::from_millis(5));
            }
            late
        });
        BusyNode { root, stop, writer: Some(writer) }
    }

    /// Ends the node. Returns the seconds by which its files were late, because the machine was busy.
    fn end(mut self) -> f64 {
        self.stop.store(true, Ordering::Relaxed);
        let writer = self.writer.take().expect("it is running");
        writer.join().expect("a thread").as_secs_f64()
    }
}

impl Drop for BusyNode {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.writer.take().map(JoinHandle::join);
    }
}

/// Overwrites a file in place, like the kernel's, so that a process that has it open reads the new content.
fn put(path: &Path, text: &str) {
    let file = File::options().create(true).truncate(false).write(true).open(path).expect("a file");
    file.write_all_at(text.as_bytes(), 0).expect("a file");
}

const WORKS: &str = "
#include <time.h>
__attribute__((noinline)) void works(void) {
    volatile double sum = 0;
    while (clock() < 2.0 * CLOCKS_PER_SEC) for (int i = 0; i < 10000; i++) sum += i;
}
int main(void) { works(); return 0; }
";

fn ranks_view(summary: &Value) -> (&Value, &Value) {
    let device = &list(summary, "devices")[0];
    let view = list(device, "views").iter().find(|view| view["view"] == "ranks").expect("a ranks view");
    (device, view)
}

/// Returns the joules of other jobs, and their part of the node's busy CPU time without the collector's.
fn of_other_jobs(summary: &Value) -> (f64, f64) {
    let (device, view) = ranks_view(summary);
    let cpu = &summary["run"]["node_cpu"];
    let all = number(&cpu["node_busy_seconds"]) - number(&cpu["collector_busy_seconds"]);
    let part = 1.0 - number(&cpu["own_busy_seconds"]) / all;
    let sum =
        number(&view["attributed_joules"]) + number(&view["idle_joules"]) + number(&view["lost_joules"]);
    assert!((sum - number(&device["total_joules"])).abs() < 1e-6, "{view:#}");
    (view["other_jobs_joules"].as_f64().unwrap_or(0.0), part)
}

/// The node's CPU time is made up, so that the load of the machine does not matter.
#[test]
fn other_jobs_have_their_part_of_dynamic_joules() {
    let place = Place::new();
    let program = place.compile("cc", "works", WORKS, INSTRUMENTED);
    let node = BusyNode::new(&place, 3.0);
    let mut command = place.ampere_run("out", [&program]);
    let done = run(command.env("AMPERE_SYS_ROOT", &node.root).env("AMPERE_COUNTERS", "rapl"));
    assert_eq!(done.code, 0, "{done:#?}");
    let late = node.end();
    let summary = place.summary("out");
    let (device, _) = ranks_view(&summary);
    // Others were active all the time, so nothing is known of a baseline.
    assert_eq!(device["baseline"]["kind"], "none", "{}", device["baseline"]);
    let (joules, part) = of_other_jobs(&summary);
    let expected = part * number(&device["dynamic_joules"]);
    let within = 0.05 + late / number(&device["sampled_seconds"]);
    assert!((joules / expected - 1.0).abs() < within, "{joules} J of {expected} J, files {late} s late");
    assert!(done.stderr.contains("other jobs used "), "{}", done.stderr);
    let notes = summary["run"]["notes"].to_string();
    assert!(!notes.contains("include their energy"), "{notes}");
    let table = std::fs::read_to_string(place.path("out/summary.txt")).expect("a table");
    let table = table.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(table.contains(" J of other jobs"), "{table}");
    let rows = succeed(place.ampere(["report", "-f", "csv"]).arg(place.path("out"))).stdout;
    assert!(String::from_utf8_lossy(&rows).contains("(other jobs)"));
    // `ampere attribute` and a replay give the same figures from the trace.
    let trace = place.path("out/traces.otf2");
    let mut replay = place.ampere(["replay", "--speed", "max", "-o"]);
    succeed(replay.arg(place.path("played")).arg(&trace));
    for again in [attribute(&trace, &[]), place.summary("played")] {
        let ((_, view), (_, first)) = (ranks_view(&again), ranks_view(&summary));
        for key in ["attributed_joules", "idle_joules", "other_jobs_joules"] {
            assert_eq!(view[key], first[key], "{key}");
        }
    }
}

#[test]
fn joules_are_not_divided_without_other_jobs_or_if_that_is_not_wanted() {
    let place = Place::new();
    let program = place.compile("cc", "works", WORKS, INSTRUMENTED);
    for (output, busy, wanted) in [("alone", 0.0, "true"), ("unwanted", 3.0, "false")] {
        let node = BusyNode::new(&place, busy);
        let mut command = place.ampere_run(output, [&program]);
        command.env("AMPERE_SYS_ROOT", &node.root).env("AMPERE_COUNTERS", "rapl");
        let done = run(command.env("AMPERE_OTHER_JOBS", wanted));
        assert_eq!(done.code, 0, "{done:#?}");
        assert_eq!(of_other_jobs(&place.summary(output)).0, 0.0, "{output}");
        assert!(!done.stderr.contains("other jobs used "), "{}", done.stderr);
    }
}
