//! When threads are on a CPU, in a run's trace: the metric `ampere::cpu_time` of each location.

use ampere_tests::cpu_time::{stolen, stolen_since};
use ampere_tests::jobs::{Done, Place, have, run, start, until, until_no_record_is_lost};
use ampere_tests::runs::{has_python_otf2, json, may_sample, succeed, text};
use ampere_tests::skip_unless;
use std::process::Command;

/// Four threads work at once, each for a different time, in pieces. Brief threads and then children follow, one after the other.
/// Prints the CPU seconds of the four threads, then those of the process and of its children.
const PROGRAM: &str = r#"
    #define _GNU_SOURCE
    #include <pthread.h>
    #include <stdio.h>
    #include <stdlib.h>
    #include <sys/resource.h>
    #include <sys/wait.h>
    #include <time.h>
    #include <unistd.h>
    #define HIDDEN __attribute__((no_instrument_function, noinline))
    #ifdef WITH_MPI
    #include <mpi.h>
    #endif
    HIDDEN static double cpu(void) {
        struct timespec time;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
        return time.tv_sec + 1e-9 * time.tv_nsec;
    }
    __attribute__((noinline)) void work(double seconds) {
        volatile double sum = 0;
        for (double end = cpu() + seconds; cpu() < end;) for (int i = 0; i < 500; i++) sum += i;
    }
    static int pieces_done;
    static void *pieces(void *count) {
        for (int i = 0; i < *(int *)count; i++) { work(0.002); usleep(500); }
        printf("thread %.6f\n", cpu());
        if (__atomic_add_fetch(&pieces_done, 1, __ATOMIC_SEQ_CST) == 4) fclose(fopen("done", "w"));
        while (!access("hold", F_OK)) usleep(1000);
        return 0;
    }
    static void *brief(void *none) { work(0.0007); return none; }
    HIDDEN static double seconds(int who) {
        struct rusage used;
        getrusage(who, &used);
        return used.ru_utime.tv_sec + used.ru_stime.tv_sec + 1e-6 * (used.ru_utime.tv_usec + used.ru_stime.tv_usec);
    }
    int main(int count, char **arguments) {
    #ifdef WITH_MPI
        MPI_Init(&count, &arguments);
    #endif
        pthread_t threads[4];
        int counts[4] = {40, 70, 110, 160};
        for (int i = 0; i < 4; i++) pthread_create(&threads[i], 0, pieces, &counts[i]);
        for (int i = 0; i < 4; i++) pthread_join(threads[i], 0);
        for (int i = 0; i < atoi(arguments[1]); i++) {
            pthread_create(&threads[0], 0, brief, 0);
            pthread_join(threads[0], 0);
        }
        for (int i = 0; i < atoi(arguments[2]); i++) {
            if (!fork()) { work(0.005); _exit(0); }
            wait(0);
        }
    #ifdef WITH_MPI
        MPI_Finalize();
    #endif
        printf("self %.6f\nchildren %.6f\n", seconds(RUSAGE_SELF), seconds(RUSAGE_CHILDREN));
        return 0;
    }
"#;

/// Rank 0 works for 0.7 s of CPU time while rank 1 sleeps for a second.
const ONE_SLEEPS: &str = r#"
    #include <mpi.h>
    #include <time.h>
    #include <unistd.h>
    void works(void) { volatile double sum = 0; while (clock() < 0.7 * CLOCKS_PER_SEC) for (int i = 0; i < 10000; i++) sum += i; }
    void sleeps(void) { usleep(1000000); }
    int main(int count, char **arguments) {
        int rank;
        MPI_Init(&count, &arguments);
        MPI_Comm_rank(MPI_COMM_WORLD, &rank);
        if (rank == 0) works(); else sleeps();
        return MPI_Finalize();
    }
"#;

/// Prints the CPU seconds of each location; fails if the metric's definition or its values are not as documented.
const SECONDS: &str = r#"
import sys, otf2
points = {}
with otf2.reader.open(sys.argv[1]) as trace:
    hz = trace.timer_resolution
    for location, event in trace.events(list(trace.definitions.locations)):
        if not isinstance(event, otf2.events.Metric) or event.metric.members[0].name != "ampere::cpu_time":
            continue
        member = event.metric.members[0]
        assert (member.unit, member.exponent, member.base) == ("s", -9, otf2.Base.DECIMAL), member
        assert member.metric_mode == otf2.MetricMode.ACCUMULATED_START, member
        points.setdefault(location, []).append((event.time, event.value))
for location, of in points.items():
    assert of[0][1] == 0, (location, of[0])
    is_one = len(sys.argv) < 3 and not any(word in location.name for word in ("other threads", "without a sample"))
    for (begin, before), (end, after) in zip(of, of[1:]):
        assert begin <= end and before <= after, (location, begin, end)
        # A thread uses no more than one CPU. Times are rounded to ticks, and converted between clocks that are compared repeatedly.
        # The next thread on a location may begin before the kernel has ended the one before.
        assert not is_one or (after - before) <= 1.01e9 * (end - begin) / hz + 2000, (location.name, begin, end, after - before)
    print(of[-1][1] * 1e-9, location.name, sep="\t")
"#;

/// The CPU seconds by location, and the seconds that the program has printed after each word, the largest first.
struct Seconds {
    locations: Vec<(f64, String)>,
    threads: Vec<f64>,
    of_process: f64,
    of_children: f64,
    stolen: f64,
}

impl Seconds {
    /// `stolen_before` is the [`stolen`] time at the start of the run.
    fn of(place: &Place, done: &Done, stolen_before: f64) -> Seconds {
        let mut python = Command::new("/usr/bin/python3");
        let said = text(&succeed(python.args(["-c", SECONDS]).arg(place.path("out/traces.otf2"))).stdout);
        let location = |line: &str| {
            let (seconds, name) = line.split_once('\t').unwrap();
            (seconds.parse().unwrap(), name.to_owned())
        };
        let mut locations: Vec<(f64, String)> = said.lines().map(location).collect();
        locations.sort_by(|a, b| b.0.total_cmp(&a.0));
        let printed = |word: &str| {
            let lines = done.stdout.lines().filter_map(|line| line.strip_prefix(word)?.trim().parse().ok());
            let mut seconds: Vec<f64> = lines.collect();
            seconds.sort_by(|a, b| b.total_cmp(a));
            seconds
        };
        let sum = |word| printed(word).iter().sum();
        Seconds {
            locations,
            threads: printed("thread"),
            of_process: sum("self"),
            of_children: sum("children"),
            stolen: stolen_since(stolen_before),
        }
    }

    /// Panics unless each thread that worked for long has a location with its CPU time, and all locations together have that
    /// of all threads. `all` is the CPU seconds of the threads that the run knows. Times between context switches include
    /// stolen time, which the kernel leaves out of its count of CPU time.
    #[track_caller]
    fn check(&self, all: f64) {
        let of_threads = self.locations.iter().filter(|(_, name)| !name.contains("other threads"));
        let of_threads: Vec<f64> = of_threads.map(|(seconds, _)| *seconds).collect();
        for seconds in &self.threads {
            let is_near = |found: &f64| {
                let difference = found - seconds;
                let most = 0.01 * seconds + 0.003;
                difference >= -most && difference <= most + self.stolen
            };
            assert!(of_threads.iter().any(is_near), "{seconds} s of {:?}", self.locations);
        }
        let sum: f64 = self.locations.iter().map(|(seconds, _)| seconds).sum();
        let most = 0.02 * all + 0.01;
        let difference = sum - all;
        assert!(
            difference >= -most && difference <= most + self.stolen,
            "{sum} s of {all} s: {:?}",
            self.locations
        );
    }
}

/// Executes its arguments, where the kernel denies perf_event_open as in many containers.
const WITHOUT_PERF: &str = r#"
    #include <errno.h>
    #include <linux/filter.h>
    #include <linux/seccomp.h>
    #include <stddef.h>
    #include <sys/prctl.h>
    #include <sys/syscall.h>
    #include <unistd.h>
    int main(int count, char **arguments) {
        struct sock_filter filter[] = {
            BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
            BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_perf_event_open, 0, 1),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        };
        struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) return 99;
        execv(arguments[1], arguments + 1);
        return 98;
    }
"#;

/// Runs a command with this setting for samples of stacks.
fn measured(place: &Place, sample: &str, command: &[&str]) -> Seconds {
    let measured = || {
        let mut measured = place.ampere_run("out", command);
        measured
            .env("AMPERE_COUNTERS", "estimate")
            .env("AMPERE_SAMPLE", sample)
            .env("AMPERE_POLICY", "active");
        let stolen_before = stolen();
        let done = run(&mut measured);
        assert_eq!(done.code, 0, "{done:#?}");
        let summary = json(&place.path("out/summary.json"));
        assert_eq!(summary["run"]["activity"], "switches", "{}", summary["run"]);
        (summary, (done, stolen_before))
    };
    let (_, (done, stolen_before)) = until_no_record_is_lost(place, measured);
    Seconds::of(place, &done, stolen_before)
}

#[test]
fn cpu_times_of_a_sampled_program_are_those_of_its_threads_and_children() {
    skip_unless!(has_python_otf2(), "no python3-otf2");
    skip_unless!(may_sample(), "perf_event_open is not allowed here");
    let place = Place::new();
    let program = place.compile("cc", "program", PROGRAM, &["-O1", "-g", "-pthread"]);
    let seconds = measured(&place, "1ms", &[program.to_str().unwrap(), "1500", "40"]);
    seconds.check(seconds.of_process + seconds.of_children);
}

#[test]
fn cpu_times_of_an_instrumented_program_are_those_of_its_threads() {
    skip_unless!(has_python_otf2(), "no python3-otf2");
    skip_unless!(may_sample(), "perf_event_open is not allowed here");
    for sample in ["off", "1ms"] {
        let place = Place::new();
        let options = ["-O1", "-g", "-pthread", "-finstrument-functions"];
        let program = place.compile("cc", "program", PROGRAM, &options);
        // Brief threads would take the locations of the four.
        let seconds = measured(&place, sample, &[program.to_str().unwrap(), "0", "0"]);
        seconds.check(seconds.of_process);
    }
}

#[test]
fn cpu_times_of_threads_whose_calls_are_recorded_and_whose_functions_are_sampled_are_in_one_location() {
    skip_unless!(has_python_otf2(), "no python3-otf2");
    skip_unless!(may_sample(), "perf_event_open is not allowed here");
    skip_unless!(have(&["mpirun.openmpi", "mpicc.openmpi"]), "no Open MPI");
    let place = Place::new();
    let options = ["-O1", "-g", "-pthread", "-DWITH_MPI"];
    let program = place.compile("mpicc.openmpi", "program", PROGRAM, &options);
    let seconds =
        measured(&place, "1ms", &["mpirun.openmpi", "-n", "1", program.to_str().unwrap(), "100", "0"]);
    let of_program = seconds.locations.iter().filter(|(_, name)| !name.contains("mpirun"));
    let sum: f64 = of_program.map(|(seconds, _)| seconds).sum();
    assert!(
        sum >= 0.98 * seconds.of_process - 0.01,
        "{sum} of {}: {:?}",
        seconds.of_process,
        seconds.locations
    );
    seconds.check(seconds.locations.iter().map(|(seconds, _)| seconds).sum());
}

/// Two threads at a time work for some CPU time each, several times.
const GENERATIONS: &str = r#"
    #include <pthread.h>
    #ifndef GENERATIONS
    #define GENERATIONS 6
    #define SECONDS 0.1
    #endif
    #include <time.h>
    __attribute__((no_instrument_function, noinline)) static double cpu(void) {
        struct timespec time;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
        return time.tv_sec + 1e-9 * time.tv_nsec;
    }
    __attribute__((noinline)) void work(void) { while (cpu() < SECONDS) for (volatile int i = 0; i < 1000; i++); }
    static void *thread(void *none) { work(); return none; }
    int main(void) {
        for (int i = 0; i < GENERATIONS; i++) {
            pthread_t threads[2];
            for (int j = 0; j < 2; j++) pthread_create(&threads[j], 0, thread, 0);
            for (int j = 0; j < 2; j++) pthread_join(threads[j], 0);
        }
        return 0;
    }
"#;

#[test]
fn threads_that_take_the_locations_of_earlier_ones_have_their_cpu_time_there() {
    skip_unless!(may_sample(), "perf_event_open is not allowed here");
    for sample in ["off", "1ms"] {
        let place = Place::new();
        let options = ["-O1", "-pthread", "-finstrument-functions"];
        let program = place.compile("cc", "generations", GENERATIONS, &options);
        let mut command = place.ampere_run("out", [&program]);
        command
            .env("AMPERE_SAMPLE", sample)
            .env("AMPERE_COUNTERS", "estimate")
            .env("AMPERE_LOCATIONS", "all");
        let done =
            run(command.env("AMPERE_ESTIMATE_IDLE_WATTS", "0").env("AMPERE_ESTIMATE_WATTS_PER_CORE", "10"));
        assert_eq!(done.code, 0, "{done:#?}");
        let summary = json(&place.path("out/summary.json"));
        let regions = summary["devices"][0]["views"][0]["regions"].as_array().expect("rows");
        let work = regions.iter().find(|row| row["region"] == "work").expect("a row");
        let joules = work["dynamic_joules"].as_f64().expect("joules");
        assert!((11.0..14.0).contains(&joules), "{joules} J for 1.2 s at 10 W: {summary:#}");
    }
}

/// Runs a program whose threads work for `seconds` in all. Returns the number of locations with CPU time in its trace; `None` if
/// records were lost because the collector got no CPU for a while.
fn locations_of_many(sample: &str, options: &[&str], seconds: f64) -> Option<usize> {
    let place = Place::new();
    let program = place.compile("cc", "many", GENERATIONS, &[options, &["-O1", "-pthread"]].concat());
    let mut command = place.ampere_run("out", [&program]);
    command.env("AMPERE_SAMPLE", sample).env("AMPERE_COUNTERS", "estimate").env("AMPERE_LOCATIONS", "all");
    let done =
        run(command.env("AMPERE_ESTIMATE_IDLE_WATTS", "0").env("AMPERE_ESTIMATE_WATTS_PER_CORE", "10"));
    assert_eq!(done.code, 0, "{done:#?}");
    let summary = json(&place.path("out/summary.json"));
    if summary["run"]["complete"] == false && summary["run"].to_string().contains("were lost") {
        return None;
    }
    assert_eq!(summary["run"]["complete"], true, "{summary:#}");
    let regions = summary["devices"][0]["views"][0]["regions"].as_array().expect("rows");
    let joules: f64 = regions.iter().filter_map(|row| row["dynamic_joules"].as_f64()).sum();
    assert!(joules > 9.0 * seconds, "{joules} J for {seconds} s at 10 W: {summary:#}");
    let mut python = Command::new("/usr/bin/python3");
    python.args(["-c", SECONDS]).arg(place.path("out/traces.otf2")).arg("shared");
    Some(text(&succeed(&mut python).stdout).lines().count())
}

#[test]
fn locations_of_threads_that_have_ended_are_used_for_others() {
    skip_unless!(may_sample(), "perf_event_open is not allowed here");
    skip_unless!(has_python_otf2(), "no python3-otf2");
    let count = |sample: &str, options: &[&str], seconds: f64| {
        (0..10)
            .find_map(|_| locations_of_many(sample, options, seconds))
            .expect("records of ten runs were lost")
    };
    let brief = ["-finstrument-functions", "-DGENERATIONS=8500", "-DSECONDS=0.00005"];
    let recorded = count("off", &brief, 0.85);
    assert!(recorded < 10, "{recorded} locations of 17,000 threads, two at a time");
    let long = ["-finstrument-functions", "-DGENERATIONS=600", "-DSECONDS=0.003"];
    let both = count("1ms", &long, 3.6);
    assert!(both < 10, "{both} locations of 1,200 threads that are recorded and sampled, two at a time");
    let sampled = count("1ms", &long[1..], 3.6);
    assert!((400..700).contains(&sampled), "{sampled} locations of 1,200 threads");
}

#[test]
fn a_rank_that_sleeps_shares_static_joules_and_has_no_dynamic_ones() {
    skip_unless!(may_sample(), "perf_event_open is not allowed here");
    if !have(&["mpirun.openmpi", "mpicc.openmpi"]) {
        return;
    }
    let place = Place::new();
    let program =
        place.compile("mpicc.openmpi", "one_sleeps", ONE_SLEEPS, &["-O1", "-finstrument-functions"]);
    let mut command = place.ampere_run("out", place.mpi(&program));
    let done = run(command.env("AMPERE_POLICY", "active").env("AMPERE_COUNTERS", "estimate"));
    assert_eq!(done.code, 0, "{done:#?}");
    let summary = json(&place.path("out/summary.json"));
    let regions = summary["devices"][0]["views"][0]["regions"].as_array().expect("rows");
    let of = |name: &str, figure: &str| {
        let row = regions.iter().find(|row| row["region"] == name);
        row.and_then(|row| row[figure].as_f64()).unwrap_or_else(|| panic!("{name}, {figure}: {summary:#}"))
    };
    assert!(of("works", "dynamic_joules") > 20.0 * of("sleeps", "dynamic_joules"), "{summary:#}");
    // The node draws 100 W, of which each of the two gets a half while both are there.
    assert!(of("sleeps", "static_joules") > 30.0, "{summary:#}");
}

/// The number of voluntary context switches of the thread of this name.
fn waits_of_thread(pid: u32, name: &str) -> u64 {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).expect("threads").flatten();
    let of = |thread: std::fs::DirEntry| {
        let status = std::fs::read_to_string(thread.path().join("status")).ok()?;
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        if field("Name:")? == name { field("voluntary_ctxt_switches:")?.parse().ok() } else { None }
    };
    threads.filter_map(of).next().expect("the thread")
}

#[test]
fn where_the_kernel_reports_no_switches_its_counts_are_read() {
    skip_unless!(has_python_otf2(), "no python3-otf2");
    let place = Place::new();
    let options = ["-O1", "-g", "-pthread", "-finstrument-functions"];
    let program = place.compile("cc", "program", PROGRAM, &options);
    let without_perf = place.compile("cc", "without_perf", WITHOUT_PERF, &[]);
    let plain = place.ampere_run("out", [program.to_str().unwrap(), "100", "0"]);
    let mut measured = place.command(&without_perf);
    measured.arg(plain.get_program()).args(plain.get_args());
    measured.env("AMPERE_COUNTERS", "estimate").env("AMPERE_SAMPLE", "off").env("AMPERE_POLICY", "active");
    let stolen_before = stolen();
    // The four threads wait until their times have been read: after three more waits, the reading thread has read them at
    // least once.
    let hold = place.write("hold", "");
    let running = start(&mut measured);
    until("four threads have done their work", || place.path("done").exists());
    let reader = || waits_of_thread(place.collectors()[0], "ampere-stacks");
    let before = reader();
    until("their times have been read", || reader() >= before + 3);
    std::fs::remove_file(hold).expect("it exists");
    let done = running.wait();
    assert_eq!(done.code, 0, "{done:#?}");
    let summary = json(&place.path("out/summary.json"));
    assert_eq!(summary["run"]["activity"], "schedstat", "{}", summary["run"]);
    let notes = summary["run"]["notes"].to_string();
    assert!(notes.contains("when threads are on a CPU is not recorded at each switch"), "{notes}");
    let seconds = Seconds::of(&place, &done, stolen_before);
    // What a process used after the last reading is not known.
    let sum: f64 = seconds.locations.iter().map(|(seconds, _)| seconds).sum();
    assert!(
        sum > 0.75 * seconds.of_process && sum < 1.05 * seconds.of_process + seconds.stolen,
        "{sum}: {:?}",
        seconds.locations
    );
    assert!(seconds.locations.len() >= 4, "{:?}", seconds.locations);
}
