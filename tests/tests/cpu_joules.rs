//! With an estimate without idle watts, the joules of a process are its CPU seconds, as the kernel counts them (getrusage),
//! times the watts of a core.

use ampere_tests::cpu_time::{stolen, stolen_since};
use ampere_tests::jobs::{Place, have, run, until_no_record_is_lost};
use ampere_tests::runs::{json, list, may_sample, number, on_path};
use ampere_tests::skip_unless;
use serde_json::Value;
use std::sync::{Mutex, PoisonError};

const WATTS_PER_CORE: f64 = 10.0;

/// `total COMMAND...` executes a command and prints the CPU seconds of itself and of all its children. `work SECONDS` uses a
/// CPU for this time, `hidden SECONDS` does so after it has cleared PR_SET_DUMPABLE, and `exec SECONDS` does so twice, the
/// second time as another program. `vfork COUNT` starts programs that work for 20 ms each, one after the other. `children
/// COUNT` and `threads COUNT` start children and threads that work for 0.7 ms each.
const PROGRAM: &str = r#"
    #include <pthread.h>
    #include <stdio.h>
    #include <stdlib.h>
    #include <string.h>
    #include <sys/prctl.h>
    #include <sys/resource.h>
    #include <sys/wait.h>
    #include <time.h>
    #include <unistd.h>
    static double cpu(void) {
        struct timespec time;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
        return time.tv_sec + 1e-9 * time.tv_nsec;
    }
    __attribute__((noinline)) void work(double seconds) {
        volatile double sum = 0;
        for (double end = cpu() + seconds; cpu() < end;) for (int i = 0; i < 500; i++) sum += i;
    }
    static void *brief(void *none) { work(0.0007); return none; }
    static double seconds(int who) {
        struct rusage used;
        getrusage(who, &used);
        return used.ru_utime.tv_sec + used.ru_stime.tv_sec + 1e-6 * (used.ru_utime.tv_usec + used.ru_stime.tv_usec);
    }
    int main(int count, char **words) {
        double number = count == 3 ? atof(words[2]) : 0;
        if (!strcmp(words[1], "work")) return work(number), 0;
        if (!strcmp(words[1], "hidden")) return prctl(PR_SET_DUMPABLE, 0), work(number), 0;
        if (!strcmp(words[1], "exec")) return work(number), execl(words[0], words[0], "work", words[2], NULL);
        for (int i = 0; !strcmp(words[1], "vfork") && i < number; i++) {
            if (!vfork()) { execl(words[0], words[0], "work", "0.02", NULL); _exit(9); }
            wait(0);
        }
        for (int i = 0; !strcmp(words[1], "children") && i < number; i++) {
            if (!fork()) { work(0.0007); _exit(0); }
            wait(0);
        }
        for (int i = 0; !strcmp(words[1], "threads") && i < number; i++) {
            pthread_t thread;
            if (pthread_create(&thread, 0, brief, 0)) return 3;
            pthread_join(thread, 0);
        }
        if (strcmp(words[1], "total")) return 0;
        if (!fork()) { execvp(words[2], words + 2); _exit(9); }
        int status;
        wait(&status);
        printf("total %.6f\n", seconds(RUSAGE_SELF) + seconds(RUSAGE_CHILDREN));
        return WEXITSTATUS(status);
    }
"#;

/// `ranks SECONDS MORE STEPS`: each rank works for SECONDS plus MORE times its rank, in STEPS steps. After each step it waits
/// for the others. It prints the CPU seconds that it has used for this.
const RANKS: &str = r#"
    #include <mpi.h>
    #include <stdio.h>
    #include <stdlib.h>
    #include <sys/resource.h>
    #include <time.h>
    void works(double seconds) {
        volatile double sum = 0;
        for (clock_t begin = clock(); clock() - begin < seconds * CLOCKS_PER_SEC;) for (int i = 0; i < 10000; i++) sum += i;
    }
    double cpu(void) {
        struct rusage used;
        getrusage(RUSAGE_SELF, &used);
        return used.ru_utime.tv_sec + used.ru_stime.tv_sec + 1e-6 * (used.ru_utime.tv_usec + used.ru_stime.tv_usec);
    }
    int main(int count, char **arguments) {
        int rank;
        MPI_Init(&count, &arguments);
        MPI_Comm_rank(MPI_COMM_WORLD, &rank);
        double begin = cpu();
        int steps = atoi(arguments[3]);
        for (int step = 0; step < steps; step++) {
            works((atof(arguments[1]) + atof(arguments[2]) * rank) / steps);
            MPI_Barrier(MPI_COMM_WORLD);
        }
        printf("rank %d %.6f\n", rank, cpu() - begin);
        MPI_Finalize();
        return 0;
    }
"#;

/// The program works for about 40 us and then sleeps for 0.1 ms, for two seconds. At the end it prints the CPU seconds that it
/// has used for the work, by its own clock.
const NAPS: &str = r#"
    #include <stdio.h>
    #include <time.h>
    __attribute__((always_inline, no_instrument_function)) static inline double now(clockid_t clock) {
        struct timespec time;
        clock_gettime(clock, &time);
        return time.tv_sec + 1e-9 * time.tv_nsec;
    }
    double worked;
    __attribute__((noinline)) void work(void) {
        volatile double sum = 0;
        double begin = now(CLOCK_THREAD_CPUTIME_ID);
        for (double end = begin + 4e-5; now(CLOCK_THREAD_CPUTIME_ID) < end;) for (int i = 0; i < 100; i++) sum += i;
        worked += now(CLOCK_THREAD_CPUTIME_ID) - begin;
    }
    __attribute__((noinline)) void nap(void) { nanosleep(&(struct timespec){0, 100000}, NULL); }
    int main(void) {
        for (double end = now(CLOCK_MONOTONIC) + 2; now(CLOCK_MONOTONIC) < end;) { work(); nap(); }
        printf("work %.6f\n", worked);
        return 0;
    }
"#;

const OPENMP: &str = r#"
    #include <omp.h>
    int main(void) {
        double sum = 0;
        #pragma omp parallel for reduction(+ : sum) schedule(dynamic)
        for (int i = 0; i < 4000; i++) for (int k = 0; k < 100 * i; k++) sum += 1.0 / (1 + k);
        return sum < 0;
    }
"#;

/// Three quarters of the atoms are on the first of two ranks.
const LAMMPS: &str = "units lj\natom_style atomic\nprocessors 2 1 1\nlattice fcc 0.8442\nregion box block 0 20 0 20 0 20\n\
    region part block 0 13.3 0 20 0 20\ncreate_box 1 box\ncreate_atoms 1 region part\nmass 1 1.0\n\
    velocity all create 1.44 87287 loop geom\npair_style lj/cut 2.5\npair_coeff 1 1 1.0 1.0 2.5\nneighbor 0.3 bin\n\
    neigh_modify delay 0 every 20 check no\nfix 1 all nve\nrun 300\n";

/// Returns the summary of a command whose joules are estimated as 10 W for each busy CPU, its output, and the CPU seconds that
/// the hypervisor took meanwhile.
fn measured(place: &Place, command: &[&str]) -> (Value, String, f64) {
    // Commands that use the same cores at the same time would be measured less exactly.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let measured = || {
        let mut measured = place.ampere_run("out", command);
        measured.env("AMPERE_COUNTERS", "estimate").env("AMPERE_ESTIMATE_IDLE_WATTS", "0");
        measured.env("AMPERE_ESTIMATE_WATTS_PER_CORE", WATTS_PER_CORE.to_string());
        let stolen_before = stolen();
        let done = run(measured.env("AMPERE_SAMPLE", "auto"));
        let stolen = stolen_since(stolen_before);
        assert_eq!(done.code, 0, "{done:#?}");
        (json(&place.path("out/summary.json")), (done.stdout, stolen))
    };
    let (summary, (output, stolen)) = until_no_record_is_lost(place, measured);
    (summary, output, stolen)
}

/// The lines of an output that begin with this word, as numbers.
fn printed(said: &str, word: &str) -> Vec<Vec<f64>> {
    let lines = said.lines().filter_map(|line| line.strip_prefix(word));
    lines
        .map(|line| line.split_whitespace().map(|number| number.parse().expect("a number")).collect())
        .collect()
}

fn ranks_view(summary: &Value) -> &Value {
    let views = list(&list(summary, "devices")[0], "views");
    views.iter().find(|view| view["view"] == "ranks").expect("a view of ranks")
}

/// Panics unless these are the joules of `seconds` of CPU time, within 1 % and the joules of 5 ms and of the `stolen` seconds.
#[track_caller]
fn assert_near(what: &str, joules: f64, seconds: f64, stolen: f64) {
    let expected = WATTS_PER_CORE * seconds;
    // A process still uses CPU time after it has printed its seconds.
    let most = 0.01 * expected + WATTS_PER_CORE * (0.005 + stolen);
    assert!((joules - expected).abs() <= most, "{what}: {joules} J, {seconds} s, {stolen} s stolen");
}

/// Checks that the joules of all rows are those of the CPU time of everything that the command starts.
#[track_caller]
fn check_all(place: &Place, what: &str, command: &[&str]) {
    let program = place.path("program");
    let (summary, said, stolen) = measured(place, &[&[program.to_str().unwrap(), "total"], command].concat());
    let seconds = printed(&said, "total")[0][0];
    let view = ranks_view(&summary);
    let idle = number(view, "idle_joules");
    assert_near(what, number(view, "attributed_joules") + idle, seconds, stolen);
    // Processes that have just started are in no function yet.
    let most = WATTS_PER_CORE * (0.05 * seconds + 0.005 + stolen);
    assert!(idle <= most, "{what}: {idle} J idle, {seconds} s, {stolen} s stolen");
}

fn program() -> (Place, String) {
    let place = Place::new();
    let program = place.compile("cc", "program", PROGRAM, &["-O1", "-g", "-pthread"]);
    (place, program.display().to_string())
}

#[test]
fn a_shell_pipeline_and_make_have_the_joules_of_all_their_processes() {
    skip_unless!(may_sample(), "perf_event_open is not allowed here");
    let (place, program) = program();
    let pipeline = format!("{program} work 0.5 | {program} work 0.3 | cat");
    check_all(&place, "a pipeline", &["sh", "-c", &pipeline]);
    skip_unless!(have(&["make"]), "no make");
    let targets: Vec<String> = (0..8).map(|target| format!("target{target}")).collect();
    let rules = targets.iter().map(|target| format!("{target}:\n\t@{program} work 0.15\n"));
    place.write("Makefile", &format!("all: {}\n{}", targets.join(" "), rules.collect::<String>()));
    let directory = place.directory().display().to_string();
    check_all(&place, "make", &["make", "-s", "-j2", "-C", &directory]);
}

#[test]
fn threads_and_children_of_less_than_a_millisecond_have_their_joules() {
    skip_unless!(may_sample(), "perf_event_open is not allowed here");
    let (place, program) = program();
    check_all(&place, "1,500 threads", &[&program, "threads", "1500"]);
    check_all(&place, "1,500 children", &[&program, "children", "1500"]);
}

#[test]
fn programs_that_execute_others_or_forbid_inspection_have_their_joules() {
    skip_unless!(may_sample(), "perf_event_open is not allowed here");
    let (place, program) = program();
    check_all(&place, "exec", &[&program, "exec", "0.4"]);
    check_all(&place, "vfork", &[&program, "vfork", "40"]);
    check_all(&place, "PR_SET_DUMPABLE", &[&program, "hidden", "0.8"]);
}

#[test]
fn a_function_between_short_sleeps_has_its_joules() {
    skip_unless!(may_sample(), "perf_event_open is not allowed here");
    let place = Place::new();
    let program = place.compile("cc", "naps", NAPS, &["-O1", "-finstrument-functions", "-rdynamic"]);
    let (summary, said, _) = measured(&place, &[program.to_str().unwrap()]);
    let rows = list(ranks_view(&summary), "regions");
    let row = rows.iter().find(|row| row["region"] == "work").expect("a row of work");
    let (joules, expected) = (number(row, "dynamic_joules"), WATTS_PER_CORE * printed(&said, "work")[0][0]);
    assert!((joules - expected).abs() < 0.15 * expected, "{joules} J, {expected} J by its own clock");
}

#[test]
fn openmp_threads_and_a_pool_of_python_have_their_joules() {
    skip_unless!(may_sample(), "perf_event_open is not allowed here");
    let (place, _) = program();
    let openmp = place.compile("cc", "openmp", OPENMP, &["-O1", "-g", "-fopenmp"]);
    check_all(&place, "OpenMP", &[openmp.to_str().unwrap()]);
    skip_unless!(have(&["python3"]), "no python3");
    let pool = "import multiprocessing\ndef f(n): return sum(i * i for i in range(n))\n\
                if __name__ == '__main__':\n    with multiprocessing.Pool(3) as pool: pool.map(f, [300000 * n for n in range(8)])\n";
    place.write("pool.py", pool);
    check_all(&place, "a pool", &["python3", place.path("pool.py").to_str().unwrap()]);
}

#[test]
fn hpcc_and_lammps_with_uneven_ranks_have_their_joules() {
    skip_unless!(may_sample(), "perf_event_open is not allowed here");
    skip_unless!(on_path("mpirun.openmpi") && on_path("hpcc"), "no mpirun or no hpcc");
    let example = std::fs::read_to_string("/usr/share/doc/hpcc/examples/_hpccinf.txt");
    let Ok(input) = example else { return println!("skipped: no /usr/share/doc/hpcc") };
    let (place, _) = program();
    place.write(
        "hpccinf.txt",
        &input
            .replace("1000         Ns", "200          Ns")
            .replace("\n2            Ps", "\n1            Ps"),
    );
    let launcher = ["mpirun.openmpi", "--oversubscribe", "-n", "2"];
    check_all(&place, "hpcc", &[&launcher[..], &["hpcc"]].concat());
    skip_unless!(on_path("lmp"), "no LAMMPS");
    place.write("in.lj", LAMMPS);
    check_all(&place, "LAMMPS", &[&launcher[..], &["lmp", "-in", "in.lj", "-log", "none"]].concat());
}

const SIMILAR_WORK: [&str; 3] = ["0.8", "0.1", "1"];

/// Compares the joules of each rank with the CPU seconds that it has printed. `work` are the program's arguments.
#[track_caller]
fn check_ranks(compiler: &str, launcher: &[&str], count: usize, work: [&str; 3]) {
    let place = Place::new();
    let program = place.compile(compiler, "ranks", RANKS, &["-O1", "-g"]);
    let (summary, said, stolen) = measured(&place, &[launcher, &[program.to_str().unwrap()], &work].concat());
    let ranks = printed(&said, "rank");
    assert_eq!(ranks.len(), count, "{said}");
    let rows = list(ranks_view(&summary), "callpaths");
    // Until a rank is sampled outside of MPI, the time between its calls is in the row of the program itself, which is
    // counted, too.
    let is_counted = |row: &&Value| {
        list(row, "path").iter().all(|region| region != "MPI_Init" && region != "MPI_Finalize")
    };
    let joules = |rank: &Vec<f64>| -> f64 {
        let group = format!("MPI Rank {}", rank[0]);
        let own = rows.iter().filter(|row| row["location_group"] == group.as_str()).filter(is_counted);
        own.map(|row| number(row, "exclusive_joules")).sum()
    };
    // On a machine with other load, a rank's time can be off by this number of seconds, because its work begins and ends
    // within sampling intervals of other programs.
    let shared = 0.005;
    let all: Vec<String> = ranks.iter().map(|rank| format!("{rank:?}: {:.3} J", joules(rank))).collect();
    for rank in &ranks {
        assert_near(&format!("rank {} of {all:?}", rank[0]), joules(rank), rank[1], stolen + shared);
    }
}

#[test]
fn eight_ranks_on_two_cores_that_yield_while_they_wait_have_their_joules() {
    skip_unless!(may_sample(), "perf_event_open is not allowed here");
    skip_unless!(have(&["mpirun.openmpi", "mpicc.openmpi"]), "no Open MPI");
    let launcher = ["mpirun.openmpi", "--oversubscribe", "--mca", "mpi_yield_when_idle", "1", "-n", "8"];
    check_ranks("mpicc.openmpi", &launcher, 8, SIMILAR_WORK);
}

#[test]
fn ranks_with_uneven_work_have_their_joules_whether_or_not_they_yield_while_they_wait() {
    skip_unless!(may_sample(), "perf_event_open is not allowed here");
    skip_unless!(have(&["mpirun.openmpi", "mpicc.openmpi"]), "no Open MPI");
    for yields in ["0", "1"] {
        let launcher =
            ["mpirun.openmpi", "--oversubscribe", "--mca", "mpi_yield_when_idle", yields, "-n", "2"];
        check_ranks("mpicc.openmpi", &launcher, 2, ["0.2", "1.2", "100"]);
    }
}

#[test]
fn ranks_of_mpich_have_their_joules() {
    skip_unless!(may_sample(), "perf_event_open is not allowed here");
    skip_unless!(have(&["mpirun.mpich", "mpicc.mpich"]), "no MPICH");
    check_ranks("mpicc.mpich", &["mpirun.mpich", "-n", "3"], 3, SIMILAR_WORK);
}
