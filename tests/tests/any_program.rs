//! Programs that are not instrumented: a row for each process, and call paths by samples of their stacks.

use ampere_stacks::{Options, Sampler};
use ampere_tests::jobs::{Done, Place, run};
use ampere_tests::runs::{
    assert_same_figures, attribute, json, list, number, on_path, python_with, relative,
};
use ampere_tests::skip_unless;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// The kernel lets this user sample the stacks of processes. Containers often forbid it.
fn may_sample() -> bool {
    Sampler::begin(std::process::id(), &Options::default()).is_ok()
}

/// Spends three parts of its time in one function, and two in another, below a third.
const WORK: &str = r#"
    #include <math.h>
    #include <stdio.h>
    #include <stdlib.h>
    volatile double sink;
    __attribute__((noinline)) void spin(long rounds) {
        double sum = 0;
        for (long i = 0; i < rounds; i++) sum += sqrt((double)i);
        sink += sum;
    }
    __attribute__((noinline)) void larger(long unit) { spin(3 * unit); sink++; }
    __attribute__((noinline)) void smaller(long unit) { spin(2 * unit); sink++; }
    __attribute__((noinline)) void both(long unit) { larger(unit); smaller(unit); sink++; }
    int main(int argc, char **argv) {
        long rounds = argc > 1 ? atol(argv[1]) : 100;
        for (long i = 0; i < rounds; i++) both(1000000);
        printf("%g\n", sink);
        return 3;
    }
"#;

const MPI_WORK: &str = r#"
    #include <math.h>
    #include <mpi.h>
    volatile double sink;
    __attribute__((noinline)) void compute(void) {
        double sum = 0;
        for (long i = 0; i < 3000000; i++) sum += sqrt((double)i);
        sink += sum;
    }
    __attribute__((noinline)) void exchange(int rank) {
        double mine = rank, all;
        for (int i = 0; i < 10; i++) MPI_Allreduce(&mine, &all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        sink += all;
    }
    int main(int argc, char **argv) {
        int rank;
        MPI_Init(&argc, &argv);
        MPI_Comm_rank(MPI_COMM_WORLD, &rank);
        for (int i = 0; i < 100; i++) { compute(); exchange(rank); }
        return MPI_Finalize();
    }
"#;

fn sampled(place: &Place, command: &[&str]) -> Command {
    let mut run = place.ampere(["run", "--sample", "1ms", "-o", "out", "--"]);
    run.args(command).env("AMPERE_COUNTERS", "estimate");
    run
}

/// As people run it: samples are where nothing is said.
fn as_it_is(place: &Place, command: &[&str]) -> Command {
    let mut run = place.ampere_run("out", command);
    run.env("AMPERE_COUNTERS", "estimate").env_remove("AMPERE_SAMPLE");
    run
}

/// Exclusive joules of the rows of the ranks view, by group and path.
fn rows(summary: &Value) -> BTreeMap<(String, String), f64> {
    let mut all = BTreeMap::new();
    for device in list(summary, "devices").iter().filter(|device| device["unit"] != "s") {
        for view in list(device, "views").iter().filter(|view| view["view"] == "ranks") {
            for row in list(view, "callpaths") {
                let frames = row["path"].as_array().expect("a path").iter();
                let path: Vec<&str> = frames.map(|frame| frame.as_str().expect("a name")).collect();
                let group = row["location_group"].as_str().expect("a name").to_owned();
                *all.entry((group, path.join(" > "))).or_default() += number(row, "exclusive_joules");
            }
        }
    }
    all
}

/// Of the rows whose path has this in it.
fn joules(rows: &BTreeMap<(String, String), f64>, part: &str) -> f64 {
    rows.iter().filter(|((_, path), _)| path.contains(part)).map(|(_, joules)| joules).sum()
}

fn notes(summary: &Value) -> Vec<&str> {
    list(&summary["run"], "notes").iter().filter_map(Value::as_str).collect()
}

/// Live and from the trace, the figures are the same.
fn agrees_with_its_trace(output: &Path, summary: &Value) {
    let again = attribute(&output.join("traces.otf2"), &[]);
    assert_same_figures(summary, &again);
}

#[test]
fn a_program_as_it_is_has_its_call_paths() {
    skip_unless!(may_sample(), "perf_event_open is not allowed here");
    let place = Place::new();
    let program = place.compile("cc", "work", WORK, &["-O2", "-lm"]);
    let plain = run(&mut place.command(&program));
    let done: Done = run(&mut as_it_is(&place, &[&program.to_string_lossy()]));
    done.as_without(&plain);
    let summary = json(&place.path("out/summary.json"));
    has_standard_errors(&summary);
    let rows = rows(&summary);
    let (larger, smaller) = (
        joules(&rows, "work > main > both > larger > spin"),
        joules(&rows, "work > main > both > smaller > spin"),
    );
    assert!(relative(larger / smaller, 1.5) < 0.1, "{larger} J and {smaller} J of {rows:#?}");
    let all: f64 =
        rows.iter().filter(|((group, _), _)| group.ends_with(" (work)")).map(|(_, joules)| joules).sum();
    assert!((larger + smaller) / all > 0.95, "{larger} and {smaller} J of {rows:#?}");
    assert!(notes(&summary).iter().any(|note| note.contains("are sampled")), "{:#?}", notes(&summary));
    agrees_with_its_trace(&place.path("out"), &summary);
    place.is_clean();
}

/// Of n of N samples, one in each millisecond: √(n (1 - n/N)) samples.
fn has_standard_errors(summary: &Value) {
    assert_eq!(summary["run"]["stack_period_seconds"], 0.001);
    let regions = list(&list(&summary["devices"][0], "views")[0], "regions");
    let all: f64 = regions.iter().map(|row| number(row, "exclusive_seconds")).sum();
    let row = regions.iter().find(|row| row["region"] == "spin").expect("the function");
    let [joules, seconds] = ["exclusive_joules", "exclusive_seconds"].map(|figure| number(row, figure));
    let error = joules * ((1.0 - seconds / all) / (1000.0 * seconds)).sqrt();
    assert!(relative(number(row, "sampled_error_joules"), error) < 1e-6, "{row}: {error} J of {all} s");
}

#[test]
fn each_process_of_a_command_has_its_rows() {
    skip_unless!(may_sample(), "perf_event_open is not allowed here");
    let place = Place::new();
    let program = place.compile("cc", "work", WORK, &["-O2", "-lm", "-static"]);
    let other = place.path("other");
    std::fs::copy(&program, &other).expect("a copy");
    let script = format!("{} 60; {} 30; exit 5", program.display(), other.display());
    let done = run(&mut sampled(&place, &["sh", "-c", &script]));
    assert_eq!(done.code, 5, "{done:#?}");
    let rows = rows(&json(&place.path("out/summary.json")));
    let (first, second) = (joules(&rows, "work > "), joules(&rows, "other > "));
    // The one has twice as much to do; how long that takes depends on what else runs.
    assert!(first > second && second > 0.0, "{first} J and {second} J: {rows:#?}");
    place.is_clean();
}

#[test]
fn ranks_have_sampled_functions_around_their_exact_mpi_calls() {
    skip_unless!(may_sample(), "perf_event_open is not allowed here");
    skip_unless!(on_path("mpicc"), "no mpicc");
    let place = Place::new();
    let program = place.compile("mpicc", "work", MPI_WORK, &["-O2", "-lm"]);
    let program = program.to_string_lossy();
    let done = run(&mut sampled(&place, &["mpirun", "--oversubscribe", "-n", "2", &program]));
    assert_eq!(done.code, 0, "{done:#?}");
    let summary = json(&place.path("out/summary.json"));
    let rows = rows(&summary);
    let of_rank = |rank: u32, path: &str| rows.get(&(format!("MPI Rank {rank}"), path.to_owned())).copied();
    for rank in 0..2 {
        let compute =
            of_rank(rank, "work > main > compute").unwrap_or_else(|| panic!("no compute: {rows:#?}"));
        let reduce = of_rank(rank, "work > main > exchange > MPI_Allreduce");
        assert!(reduce.is_some(), "no MPI_Allreduce below exchange: {rows:#?}");
        assert!(compute > 0.0, "{rows:#?}");
    }
    // MPI's calls are counted as without samples.
    let calls: u64 = list(&summary["devices"][0]["views"][0], "regions")
        .iter()
        .filter(|row| row["region"] == "MPI_Allreduce")
        .map(|row| row["calls"].as_u64().expect("calls"))
        .sum();
    assert_eq!(calls, 2 * 1000);
    agrees_with_its_trace(&place.path("out"), &summary);
    place.is_clean();
}

#[test]
fn a_period_that_is_none_is_an_error() {
    let place = Place::new();
    let done = run(&mut place.ampere(["run", "--sample", "sometimes", "--", "true"]));
    assert_ne!(done.code, 0, "{done:#?}");
    assert!(done.stderr.contains("sometimes"), "{done:#?}");
}

#[test]
fn doctor_says_whether_stacks_can_be_sampled() {
    let place = Place::new();
    let done = run(&mut place.ampere(["doctor", "--json"]));
    let report: Value = serde_json::from_str(&done.stdout).expect("JSON");
    let check = list(&report, "checks").iter().find(|check| check["name"] == "stacks").expect("a line");
    assert_eq!(check["status"], if may_sample() { "ok" } else { "note" }, "{check}");
}

/// It works before its first recorded function; most of its time it spends in one that is not recorded.
const RECORDED: &str = r#"
    #include <time.h>
    #include <unistd.h>
    __attribute__((noinline)) void setup(void) { __asm__ volatile(""); }
    __attribute__((noinline, no_instrument_function)) void plain(double seconds) {
        struct timespec begin, now;
        clock_gettime(CLOCK_MONOTONIC, &begin);
        do clock_gettime(CLOCK_MONOTONIC, &now);
        while (now.tv_sec - begin.tv_sec + 1e-9 * (now.tv_nsec - begin.tv_nsec) < seconds);
    }
    __attribute__((constructor, no_instrument_function)) void before(void) { plain(0.05); }
    int main(void) { setup(); usleep(300000); plain(0.7); return 0; }
"#;

#[test]
fn a_program_that_records_its_functions_has_no_samples_and_ends_those_of_others() {
    skip_unless!(may_sample(), "perf_event_open is not allowed here");
    let place = Place::new();
    let program = place.compile("cc", "work", RECORDED, &["-O1", "-finstrument-functions", "-rdynamic"]);
    let other = place.compile("cc", "other", WORK, &["-O2", "-lm"]);
    let script = format!("{} & {} 1000 & wait %1; kill %2", program.display(), other.display());
    let done = run(&mut as_it_is(&place, &["bash", "-c", &script]));
    assert_eq!(done.code, 0, "{done:#?}");
    let summary = json(&place.path("out/summary.json"));
    let rows = rows(&summary);
    let of_process = |name: &str| {
        let paths = rows.iter().filter(|((group, _), _)| group.contains(name));
        paths.map(|(_, joules)| joules).sum::<f64>()
    };
    assert_eq!(of_process("(work)"), 0.0, "{rows:#?}");
    // It ran for as long.
    assert!(of_process("(other)") < 0.5 * joules(&rows, "main"), "{rows:#?}");
    let ended =
        notes(&summary).iter().any(|note| note.contains("until a process recorded its own functions"));
    assert!(ended, "{:#?}", notes(&summary));
    agrees_with_its_trace(&place.path("out"), &summary);
}

#[test]
fn a_program_whose_functions_are_recorded_needs_no_samples() {
    skip_unless!(may_sample(), "perf_event_open is not allowed here");
    let place = Place::new();
    let program = place.compile("cc", "work", RECORDED, &["-O1", "-finstrument-functions", "-rdynamic"]);
    let done = run(&mut sampled(&place, &[&program.to_string_lossy()]));
    assert_eq!(done.code, 0, "{done:#?}");
    let summary = json(&place.path("out/summary.json"));
    let rows = rows(&summary);
    let of_main = rows.get(&("Process".to_owned(), "main".to_owned())).copied().unwrap_or_default();
    assert!(of_main > 0.9 * rows.values().sum::<f64>(), "{rows:#?}");
    agrees_with_its_trace(&place.path("out"), &summary);
}

/// Ranges by roctx, which is a library here, and by NVTX, whose header does this where it is first used.
const RANGES: &str = r#"
    #include <dlfcn.h>
    #include <stdint.h>
    #include <stdio.h>
    #include <stdlib.h>
    #include <time.h>
    typedef void (*any)(void);
    static any none;
    static any *slots[2][16];
    static int functions_of(int module, any ***table, unsigned *size) {
        *table = slots[module == 5];
        *size = 16;
        return module == 1 || module == 5;
    }
    static struct { size_t size; int (*functions_of)(int, any ***, unsigned *); } callbacks = { 16, functions_of };
    static const void *export(uint32_t table) { return table == 1 ? &callbacks : NULL; }
    struct event {
        uint16_t version, size; uint32_t category; int32_t colour_type; uint32_t colour;
        int32_t payload_type, reserved; uint64_t payload; int32_t message_type; const void *message;
    };
    int roctxRangePushA(const char *), roctxRangePop(void);
    volatile double sink;
    __attribute__((noinline)) void work(double seconds) {
        struct timespec begin, now;
        clock_gettime(CLOCK_MONOTONIC, &begin);
        do clock_gettime(CLOCK_MONOTONIC, &now);
        while (now.tv_sec - begin.tv_sec + 1e-9 * (now.tv_nsec - begin.tv_nsec) < seconds);
        sink++;
    }
    int main(void) {
        static any kept[2][16];
        for (int at = 0; at < 32; at++) slots[at / 16][at % 16] = &kept[at / 16][at % 16];
        void *library = dlopen(getenv("NVTX_INJECTION64_PATH"), RTLD_LAZY);
        int (*begin)(const void *(*)(uint32_t)) = dlsym(library, "InitializeInjectionNvtx2");
        if (!begin || begin(export) != 1) return 1;
        int (*push)(const char *) = (void *)kept[0][9], (*pop)(void) = (void *)kept[0][11];
        int (*wide)(const void *) = (void *)kept[0][10];
        void *(*domain)(const char *) = (void *)kept[1][12];
        const void *(*string)(void *, const char *) = (void *)kept[1][10];
        int (*push_in)(void *, struct event *) = (void *)kept[1][4], (*pop_in)(void *) = (void *)kept[1][5];
        void *own = domain("own");
        struct event event = { 2, sizeof event, 0, 0, 0, 0, 0, 0, 3, string(own, "registered") };
        if (event.message != string(own, "registered")) return 2;
        for (int round = 0; round < 10; round++) {
            push("outer");
            work(0.02);
            push_in(own, &event);
            work(0.02);
            // Ranges of different domains need not nest.
            pop();
            pop_in(own);
            wide(L"gr\u00f6\u00dfer");
            work(0.02);
            pop();
            printf("%d", roctxRangePushA("roc"));
            work(0.02);
            printf("%d", roctxRangePop());
        }
        pop(); // one too many
        push(NULL);
        work(0.02);
        pop();
        for (int name = 0; name < 5000; name++) {
            char text[16];
            snprintf(text, sizeof text, "%d", name);
            push(text);
            pop();
        }
        return 0;
    }
"#;

#[test]
fn ranges_that_a_program_marks_are_around_what_is_sampled() {
    skip_unless!(may_sample(), "perf_event_open is not allowed here");
    let place = Place::new();
    let roctx = "static int depth; int roctxRangePushA(const char *text) { (void)text; return depth++; }
                 int roctxRangePop(void) { return --depth; }";
    let library = place.compile("cc", "libroctx64.so", roctx, &["-shared", "-fPIC"]);
    let program = place.compile("cc", "marked", RANGES, &[&library.to_string_lossy(), "-ldl"]);
    let done = run(&mut as_it_is(&place, &[&program.to_string_lossy()]));
    assert_eq!((done.code, done.stdout.as_str()), (0, &*"00".repeat(10)), "{done:#?}");
    let summary = json(&place.path("out/summary.json"));
    let rows = rows(&summary);
    for path in ["outer", "outer > registered", "größer", "roc", "(range)"] {
        let of_path = joules(&rows, &format!("marked > {path} > main > work"));
        assert!(of_path > 0.0, "no work in {path}: {rows:#?}");
    }
    let calls = |region: &str| {
        let regions = list(&list(&summary["devices"][0], "views")[0], "regions");
        regions.iter().find(|row| row["region"] == region).map(|row| row["calls"].as_u64().expect("calls"))
    };
    assert_eq!(["outer", "registered", "größer", "roc"].map(calls), [Some(10); 4]);
    assert_eq!(calls("(other ranges)"), Some(5000 - (4096 - 5)), "{rows:#?}");
    agrees_with_its_trace(&place.path("out"), &summary);
    place.is_clean();
}

#[test]
fn pythons_ranges_are_frames() {
    skip_unless!(may_sample(), "perf_event_open is not allowed here");
    let python = python_with(&["nvtx"]);
    skip_unless!(python.is_some(), "no nvtx");
    let place = Place::new();
    let script = "import nvtx\nfor step in range(20):\n  with nvtx.annotate('step'):\n    \
        with nvtx.annotate('forward', domain='model'): sum(range(1000000))\n    \
        nvtx.push_range('backward'); sum(range(1000000)); nvtx.pop_range()\n";
    let python = python.expect("one with nvtx");
    let done = run(&mut as_it_is(&place, &[&python.to_string_lossy(), "-c", script]));
    assert_eq!(done.code, 0, "{done:#?}");
    let rows = rows(&json(&place.path("out/summary.json")));
    let [forward, backward] =
        ["forward", "backward"].map(|range| joules(&rows, &format!("> step > {range} > ")));
    assert!(relative(forward, backward) < 0.3, "{forward} J and {backward} J: {rows:#?}");
}
