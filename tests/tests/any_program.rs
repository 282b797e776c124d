//! Programs that are not instrumented: a row for each process, and call paths from samples of their stacks.

use ampere_tests::cpu_time::{stolen, stolen_since};
use ampere_tests::jobs::{Place, files_below, is_root, kill, other_user_may_run, run, start, until};
use ampere_tests::runs::{
    assert_same_figures, attribute, json, list, may_sample, number, on_path, python_with, ranges, relative,
};
use ampere_tests::stand_ins::with_rocm_smi;
use ampere_tests::{artifact, root, skip_unless};
use serde_json::{Value, json};
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Spends three fifths of its time in one function and two fifths in another, both called by a third.
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
    __attribute__((noinline)) void before(void) { for (int i = 0; i < 40; i++) compute(); sink++; }
    int main(int argc, char **argv) {
        int rank;
        before();
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

/// A sampling period with which the kernel's rings have room for the samples of most of a second. If the collector gets no CPU
/// for longer, samples are lost, and the run is not complete.
const RARELY: &str = "10ms";

/// Returns a command with default settings, which sample stacks.
fn as_it_is(place: &Place, command: &[&str]) -> Command {
    let mut run = place.ampere_run("out", command);
    run.env("AMPERE_COUNTERS", "estimate").env_remove("AMPERE_SAMPLE");
    run
}

/// Exclusive joules of the rows of the ranks view, by location group and call path.
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

/// Returns the joules of the rows whose path contains `part`.
fn joules(rows: &BTreeMap<(String, String), f64>, part: &str) -> f64 {
    rows.iter().filter(|((_, path), _)| path.contains(part)).map(|(_, joules)| joules).sum()
}

fn notes(summary: &Value) -> Vec<&str> {
    list(&summary["run"], "notes").iter().filter_map(Value::as_str).collect()
}

/// Checks that the figures of the trace equal those of the live run.
fn agrees_with_its_trace(output: &Path, summary: &Value) {
    let again = attribute(&output.join("traces.otf2"), &[]);
    assert_same_figures(summary, &again);
}

#[test]
fn an_unmodified_program_has_call_paths() {
    skip_unless!(may_sample(), "perf_event_open is not allowed here");
    let place = Place::new();
    let program = place.compile("cc", "work", WORK, &["-O2", "-lm"]);
    let plain = run(&mut place.command(&program));
    let stolen_seconds = Cell::new(0.0);
    let measured = || {
        let before = stolen();
        run(&mut as_it_is(&place, &[&program.to_string_lossy()])).as_without(&plain);
        stolen_seconds.set(stolen_since(before));
    };
    let summary = undisturbed(&place, measured, |summary| wrong_shares(summary, stolen_seconds.get()));
    assert_standard_errors(&summary);
    samples_cost_at_most_one_percent(
        &summary,
        &std::fs::read_to_string(place.path("out/summary.txt")).unwrap(),
    );
    assert!(notes(&summary).iter().any(|note| note.contains("are sampled")), "{:#?}", notes(&summary));
    agrees_with_its_trace(&place.path("out"), &summary);
    calls_of_samples_are_not_known(&place, &summary);
    place.assert_clean();
}

/// Repeats a run until its shares are right, and returns its summary. Samples are lost if the collector gets no CPU for a
/// tenth of a second, and stolen time counts for one function. Both disturb some runs, but hardly `RUNS_MAX` in a row.
#[track_caller]
fn undisturbed(
    place: &Place,
    measured: impl Fn(),
    what_is_wrong: impl Fn(&Value) -> Option<String>,
) -> Value {
    const RUNS_MAX: usize = 8;
    let mut wrong = Vec::new();
    loop {
        measured();
        let summary = json(&place.path("out/summary.json"));
        match what_is_wrong(&summary) {
            None => return summary,
            Some(why) => wrong.push(why),
        }
        assert!(wrong.len() < RUNS_MAX, "in each of {RUNS_MAX} runs: {wrong:#?}");
        std::fs::remove_dir_all(place.path("out")).expect("its results");
    }
}

/// Checks the shares of [`WORK`] in joules, samples and CPU time, in a run during which the hypervisor ran something else for
/// `stolen_seconds` at most. Returns what is wrong.
fn wrong_shares(summary: &Value, stolen_seconds: f64) -> Option<String> {
    if summary["overhead"]["stacks"]["sample_seconds"].is_null() {
        return Some("the cost of a sample could not be measured".to_owned());
    }
    let rows = rows(summary);
    let [larger, smaller] =
        ["larger", "smaller"].map(|name| joules(&rows, &format!("work > main > both > {name} > spin")));
    let of_program = rows.iter().filter(|((group, _), _)| group.ends_with(" (work)"));
    let all: f64 = of_program.map(|(_, joules)| joules).sum();
    let stacks = &summary["overhead"]["stacks"];
    let samples = number(stacks, "samples");
    // The program's CPU time is known from its samples, of which the first one and the last part of a period are missing.
    let busy = number(&summary["run"]["node_cpu"], "own_busy_seconds");
    let program = number(stacks, "program_seconds");
    let is_right = [
        // Three fifths of the samples are in the first function, within four standard errors.
        (larger / (larger + smaller) - 0.6).abs() < 4.0 * (0.24 / samples).sqrt(),
        (larger + smaller) / all > 0.95,
        (program - busy).abs() < 0.1 * program.max(busy) + stolen_seconds,
        relative(samples_of_all(summary), samples) < 0.1,
    ];
    let figures = format!(
        "{larger} J and {smaller} J of {all} J, {busy} s, {stolen_seconds} s stolen, {stacks}: {rows:#?}"
    );
    is_right.contains(&false).then(|| format!("{is_right:?}: {figures}"))
}

/// Checks that no output has a number of calls for sampled functions; CSV, Parquet and the page have the standard error instead.
fn calls_of_samples_are_not_known(place: &Place, summary: &Value) {
    const READ: &str = "import csv, json, sqlite3\n\
         rows = [row for row in csv.DictReader(open('rows.csv', newline='')) if row['region'] == 'spin']\n\
         ask = lambda sql: sqlite3.connect('run.rpd').execute(sql).fetchall()\n\
         print(json.dumps([[[row['calls'], float(row['sampled_error_joules'])] for row in rows],\n\
             ask(\"SELECT TotalCalls, TotalDuration > 0 FROM functions WHERE Name = 'spin'\"),\n\
             ask(\"SELECT DISTINCT calls FROM ampere_region WHERE region = 'spin'\"),\n\
             ask('SELECT * FROM top'), ask('SELECT * FROM ktop'), ask('SELECT * FROM busy')]))";
    for (form, file) in [("csv", "rows.csv"), ("sqlite", "run.rpd")] {
        assert_eq!(
            run(place.ampere(["report", "out", "-f", form, "-o", file]).current_dir(place.path(""))).code,
            0
        );
    }
    let read = run(place.command("python3").args(["-c", READ]).current_dir(place.path("")));
    let read: Value = serde_json::from_str(&read.stdout).unwrap_or_else(|_| panic!("{read:#?}"));
    let timeline = run(place
        .ampere(["report", "out", "-f", "timeline", "--region", "spin", "-o", "spin.csv"])
        .current_dir(place.path("")));
    assert!(timeline.stderr.contains("times found by samples (its calls are not known)"), "{timeline:#?}");
    let table = std::fs::read_to_string(place.path("spin.csv")).expect("a table");
    assert!(table.lines().count() > 2 && table.lines().skip(1).all(|row| row.ends_with(',')), "{table}");
    let rows = read[0].as_array().expect("rows");
    let is_right = |row: &Value| row[0] == "" && row[1].as_f64() > Some(0.0);
    assert!(!rows.is_empty() && rows.iter().all(is_right), "{rows:?}");
    assert_eq!(
        read.as_array().expect("answers")[1..],
        [json!([[null, 1]]), json!([[null]]), json!([]), json!([]), json!([])]
    );
    let page = std::fs::read_to_string(place.path("out/report.html")).expect("a page");
    let data = page.split("id=\"data\">").nth(1).and_then(|rest| rest.split("</script>").next());
    let page: Value = serde_json::from_str(data.expect("data")).expect("JSON");
    let functions = &page["tables"]["functions"];
    let is_spin =
        |name: &Value| name.as_u64().is_some_and(|at| page["tables"]["names"][at as usize] == "spin");
    let at = list(functions, "name").iter().position(is_spin).expect("the function");
    let regions = list(&list(&summary["devices"][0], "views")[0], "regions");
    let row = regions.iter().find(|row| row["region"] == "spin").expect("the function");
    let error = list(functions, "sampled_error_joules")[at].as_f64().expect("an error");
    assert!(relative(error, number(row, "sampled_error_joules")) < 1e-6, "{error} J: {row}");
}

/// Checks that the period follows from the cost of a sample, and that both are reported.
fn samples_cost_at_most_one_percent(summary: &Value, text: &str) {
    let stacks = &summary["overhead"]["stacks"];
    let [period, sample, cost, program] =
        ["period_seconds", "sample_seconds", "cost_seconds", "program_seconds"]
            .map(|figure| number(stacks, figure));
    assert!(sample > 0.0 && (sample <= 0.01 * period || period > 0.0098), "{stacks}");
    // In a run of more than two seconds, the period becomes longer.
    if number(&summary["run"], "seconds") < 2.0 {
        assert!((period / 0.0000983).fract().min(1.0 - (period / 0.0000983).fract()) < 1e-6, "{stacks}");
        assert!(period > 0.00098 && (period < 0.00099 || sample > 0.01 * (period - 0.0000984)), "{stacks}");
    }
    let [samples, switches] = ["samples", "switches"].map(|figure| number(stacks, figure));
    assert!(samples > 10.0 && switches > 0.0, "{stacks}");
    assert!(relative(cost, samples * sample + switches * 5e-7) < 1e-6, "{stacks}");
    let line = format!("in the program about {:.1} % of its CPU time, an estimate: ", 100.0 * cost / program);
    assert!(text.contains(&line), "{line}: {text}");
}

/// Checks the standard error of a function with n of N samples: it is √(N p (1 - p)) samples, where p is (n + 2)/(N + 4). The
/// numbers of samples follow from the CPU time by which dynamic joules are divided.
fn assert_standard_errors(summary: &Value) {
    let all = samples_of_all(summary);
    let regions = list(&list(&summary["devices"][0], "views")[0], "regions");
    let row = regions.iter().find(|row| row["region"] == "spin").expect("the function");
    let samples = samples_of(summary, row);
    let part = (samples + 2.0) / (all + 4.0);
    let error = number(row, "exclusive_joules") * (all * part * (1.0 - part)).sqrt() / samples;
    assert!(relative(number(row, "sampled_error_joules"), error) < 1e-6, "{row}: {error} J of {all} samples");
}

/// Returns the number of samples of a function's row.
fn samples_of(summary: &Value, row: &Value) -> f64 {
    let view = &list(&summary["devices"][0], "views")[0];
    let dynamic: f64 = list(view, "regions").iter().map(|row| number(row, "dynamic_joules")).sum();
    let cpu_seconds = number(view, "active_seconds") * number(row, "dynamic_joules") / dynamic;
    cpu_seconds.min(number(row, "exclusive_seconds")) / number(&summary["run"], "stack_period_seconds")
}

fn samples_of_all(summary: &Value) -> f64 {
    let regions = list(&list(&summary["devices"][0], "views")[0], "regions");
    regions.iter().map(|row| samples_of(summary, row)).sum()
}

#[test]
fn each_process_of_a_command_has_its_rows() {
    skip_unless!(may_sample(), "perf_event_open is not allowed here");
    let place = Place::new();
    let program = place.compile("cc", "work", WORK, &["-O2", "-lm", "-static"]);
    let other = place.path("other");
    std::fs::copy(&program, &other).expect("a copy");
    let script = format!("{} 200; {} 20; exit 5", program.display(), other.display());
    let done = run(&mut sampled(&place, &["sh", "-c", &script]));
    assert_eq!(done.code, 5, "{done:#?}");
    let rows = rows(&json(&place.path("out/summary.json")));
    let (first, second) = (joules(&rows, "work > "), joules(&rows, "other > "));
    // The first program has ten times as much to do as the second; the ratio of their times depends on what else runs.
    assert!(first > second && second > 0.0, "{first} J and {second} J: {rows:#?}");
    place.assert_clean();
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
    let rows = check_ranks_have_functions(&place);
    for rank in ["MPI Rank 0", "MPI Rank 1"] {
        let before = rows.get(&(rank.to_owned(), "work > main > before > compute".to_owned()));
        assert!(before.is_some(), "the rank's rows lack what the process did before MPI_Init: {rows:#?}");
    }
    events_are_those_of_the_summary(&place);
    place.assert_clean();
}

const MPI_POLLING: &str = r#"
    #include <mpi.h>
    #include <stdio.h>
    #include <time.h>
    __attribute__((noinline)) long wait_for(MPI_Request *request) {
        long calls = 0;
        for (int done = 0; !done && clock() < CLOCKS_PER_SEC; calls++) MPI_Test(request, &done, MPI_STATUS_IGNORE);
        return calls;
    }
    int main(int argc, char **argv) {
        int sent = 1, received;
        MPI_Request request;
        MPI_Init(&argc, &argv);
        MPI_Irecv(&received, 1, MPI_INT, 0, 7, MPI_COMM_WORLD, &request);
        printf("%ld\n", wait_for(&request));
        MPI_Send(&sent, 1, MPI_INT, 0, 7, MPI_COMM_WORLD);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        return MPI_Finalize();
    }
"#;

/// A program may poll at a rate at which timing its calls would cost too much, so these calls are left to the samples.
#[test]
fn polling_calls_are_sampled_unless_functions_are_recorded() {
    skip_unless!(may_sample(), "perf_event_open is not allowed here");
    skip_unless!(on_path("mpicc"), "no mpicc");
    let ways: [(&[&str], &str, &str); 3] = [
        (&["-O2"], "1ms", "polling > main > wait_for > MPI_Test"),
        (&["-O2"], "off", "polling > MPI_Test"),
        (&["-O2", "-finstrument-functions"], "1ms", "main > wait_for > MPI_Test"),
    ];
    for (options, sample, path) in ways {
        let place = Place::new();
        let program = place.compile("mpicc", "polling", MPI_POLLING, options);
        let done = run(as_it_is(&place, &[&program.to_string_lossy()]).env("AMPERE_SAMPLE", sample));
        assert_eq!(done.code, 0, "{done:#?}");
        let made: u64 = done.stdout.trim().parse().expect("a number of calls");
        let summary = json(&place.path("out/summary.json"));
        let regions = list(&summary["devices"][0]["views"][0], "regions");
        let row = |name| regions.iter().find(|row| row["region"] == name).expect("the function's row");
        assert_eq!(row("MPI_Irecv")["calls"], 1);
        let is_left_to_samples = sample == "1ms" && path.starts_with("polling");
        assert_eq!(row("MPI_Test")["calls"], if is_left_to_samples { 0 } else { made }, "{path}");
        assert_eq!(row("MPI_Test")["sampled_error_joules"].is_number(), is_left_to_samples, "{path}");
        let rows = rows(&summary);
        let asking: Vec<&String> =
            rows.keys().map(|(_, path)| path).filter(|at| at.contains("MPI_Test")).collect();
        assert_eq!(asking, [path], "{rows:#?}");
        agrees_with_its_trace(&place.path("out"), &summary);
        place.assert_clean();
    }
}

/// Checks that formats with single events have the frames of a thread's samples and its recorded calls as one stack.
fn events_are_those_of_the_summary(place: &Place) {
    let report = |arguments: &[&str]| {
        let done = run(place.ampere([&["report", "out"], arguments].concat()).current_dir(place.path("")));
        assert_eq!(done.code, 0, "{done:#?}");
        done.stdout
    };
    assert!(!report(&["-f", "chrome"]).contains("(recorded call)"));
    let calls = report(&["-f", "timeline", "--region", "MPI_Allreduce"]);
    let unknown: Vec<&str> = calls.lines().filter(|line| line.ends_with(',')).collect();
    assert!(calls.lines().count() > 1 && unknown.is_empty(), "pieces of calls: {unknown:#?}");
    let Some(mut python) = python_with(&["sqlite3"]).map(|_| place.command("python3")) else { return };
    report(&["-f", "sqlite", "-o", "out.rpd"]);
    let script = "import json, sqlite3\n\
                  sql = 'SELECT string, sum(exclusive) * 1e-9, sum(joules) FROM rocpd_api '\\\n    \
                  'JOIN rocpd_string ON rocpd_string.id = apiName_id GROUP BY string'\n\
                  print(json.dumps(sqlite3.connect('out.rpd').execute(sql).fetchall()))";
    let done = run(python.args(["-c", script]));
    let rows: Value = serde_json::from_str(&done.stdout).unwrap_or_else(|why| panic!("{why}: {done:#?}"));
    let rows = rows.as_array().expect("rows");
    let summary = json(&place.path("out/summary.json"));
    let regions = list(&summary["devices"][0]["views"][0], "regions");
    assert_eq!(rows.len(), regions.len(), "{rows:#?}");
    for region in regions {
        let row = rows.iter().find(|row| row[0] == region["region"]).expect("the same functions");
        let (seconds, joules) = (row[1].as_f64().expect("seconds"), row[2].as_f64().expect("joules"));
        assert!((seconds - number(region, "exclusive_seconds")).abs() < 1e-3, "{row}: {region}");
        assert!((joules - number(region, "exclusive_joules")).abs() < 1e-6, "{row}: {region}");
    }
}

/// Checks that both ranks of [`MPI_WORK`] have sampled functions and exact MPI calls. Returns all rows.
fn check_ranks_have_functions(place: &Place) -> BTreeMap<(String, String), f64> {
    let summary = json(&place.path("out/summary.json"));
    let rows = rows(&summary);
    for rank in ["MPI Rank 0", "MPI Rank 1"] {
        for path in ["work > main > compute", "work > main > exchange > MPI_Allreduce"] {
            let joules = rows.get(&(rank.to_owned(), path.to_owned()));
            assert!(joules > Some(&0.0), "no {path} of {rank}: {rows:#?}\n{:#?}", notes(&summary));
        }
    }
    assert!(rows.keys().all(|(group, _)| !group.ends_with("(work)")), "{rows:#?}");
    // Calls of MPI are counted as they are without samples.
    let calls: u64 = list(&summary["devices"][0]["views"][0], "regions")
        .iter()
        .filter(|row| row["region"] == "MPI_Allreduce")
        .map(|row| row["calls"].as_u64().expect("calls"))
        .sum();
    assert_eq!(calls, 2 * 1000);
    agrees_with_its_trace(&place.path("out"), &summary);
    rows
}

/// Starts the command that it receives, in the environment that it is given, as a batch system's daemon does.
const DAEMON: &str = r#"
    for number in 1 2 3; do
        read program < ask
        (. ./environment; exec mpirun --oversubscribe -n 2 "$program") > answer
    done
"#;
const ASK: &str = "export -p > environment; echo \"$0\" > ask; cat answer";

#[test]
fn ranks_that_are_started_by_others_have_sampled_functions_around_their_exact_mpi_calls() {
    skip_unless!(may_sample(), "perf_event_open is not allowed here");
    skip_unless!(on_path("mpicc"), "no mpicc");
    let place = Place::new();
    let program = place.compile("mpicc", "work", MPI_WORK, &["-O2", "-lm"]);
    assert_eq!(run(place.command("mkfifo").args(["ask", "answer"])).code, 0);
    let daemon = start(place.command("sh").args(["-c", DAEMON]));
    for sample in [None, Some("2ms"), Some("off")] {
        let mut command = as_it_is(&place, &["sh", "-c", ASK, &program.to_string_lossy()]);
        sample.into_iter().for_each(|period| _ = command.env("AMPERE_SAMPLE", period));
        let done = run(&mut command);
        assert_eq!(done.code, 0, "{done:#?}");
        if sample == Some("off") {
            let rows = rows(&json(&place.path("out/summary.json")));
            assert!(!rows.keys().any(|(_, path)| path.contains("compute")), "{rows:#?}");
        } else {
            check_ranks_have_functions(&place);
        }
        std::fs::remove_dir_all(place.path("out")).expect("its results");
    }
    assert_eq!(daemon.wait().code, 0);
    place.assert_clean();
}

/// `ampere run` behind a launcher, with programs that do not use MPI.
#[test]
fn programs_that_a_launcher_starts_are_one_run_and_sampled_from_their_start() {
    skip_unless!(may_sample(), "perf_event_open is not allowed here");
    let place = Place::new();
    let source = WORK.replace(
        "int main",
        "__attribute__((constructor)) void first(void) { spin(100000000); sink++; }\nint main",
    );
    let program = place.compile("cc", "work", &source, &["-O2", "-lm", "-static"]);
    let rank = |rank: &str| {
        let mut command = as_it_is(&place, &[&program.to_string_lossy(), "20"]);
        command.env("AMPERE_SAMPLE", RARELY);
        let of_srun = ["SLURM_PROCID", "SLURM_LOCALID"].map(|name| (name, rank));
        let of_step = [
            ("SLURM_JOB_ID", "17"),
            ("SLURM_STEP_ID", "0"),
            ("SLURM_STEP_NUM_TASKS", "2"),
            ("SLURM_STEP_TASKS_PER_NODE", "2"),
            ("SLURM_NODEID", "0"),
        ];
        start(command.envs(of_srun).envs(of_step))
    };
    let first = rank("0");
    let done = first.wait();
    assert_eq!((done.code, done.stdout.is_empty()), (3, false), "{done:#?}");
    // The run waits for the other rank.
    assert_eq!(rank("1").wait().code, 3);
    place.no_process_left();
    let summary = json(&place.path("out/summary.json"));
    assert_eq!(summary["run"]["complete"], true, "{}", summary["run"]);
    assert_eq!(summary["run"]["command"], serde_json::json!([program.to_string_lossy(), "20"]));
    let rows = rows(&summary);
    let processes: BTreeSet<&String> = rows.keys().map(|(process, _)| process).collect();
    assert_eq!(processes.len(), 2, "{rows:#?}");
    for process in processes {
        for path in ["work > first > spin", "work > main > both > larger > spin"] {
            assert!(
                rows.get(&(process.clone(), path.to_owned())) > Some(&0.0),
                "no {path} of {process}: {rows:#?}"
            );
        }
    }
    agrees_with_its_trace(&place.path("out"), &summary);
    place.assert_clean();
}

/// A thread gets a location with its third sample. Three other programs use most of the thread's CPU, so that sample comes
/// late. Until then, its CPU time counts as that of the other threads of the process.
#[test]
fn cpu_time_of_a_thread_that_has_no_location_yet_agrees_with_its_trace() {
    skip_unless!(may_sample(), "perf_event_open is not allowed here");
    let place = Place::new();
    let work = place.compile("cc", "work", WORK, &["-O2", "-lm"]).display().to_string();
    let allowed = rustix::thread::sched_getaffinity(None).expect("the CPUs");
    let cpu = (0..).find(|cpu| allowed.is_set(*cpu)).expect("a CPU").to_string();
    let others = [(); 3].map(|()| start(place.command("taskset").args(["-c", &cpu, &work, "1000000"])));
    let mut command = place.ampere(["run", "--sample", RARELY, "-o", "out", "--"]);
    command.args(["taskset", "-c", &cpu, &work, "20"]).env("AMPERE_COUNTERS", "estimate");
    let done = run(&mut command);
    others.iter().for_each(|other| other.signal(rustix::process::Signal::KILL));
    assert_eq!(done.code, 3, "{done:#?}");
    let summary = json(&place.path("out/summary.json"));
    assert!(joules(&rows(&summary), "work > main") > 0.0, "{:#?}", rows(&summary));
    agrees_with_its_trace(&place.path("out"), &summary);
}

#[test]
fn a_collector_that_replaces_a_killed_one_continues_sampling() {
    skip_unless!(may_sample(), "perf_event_open is not allowed here");
    let place = Place::new();
    let program = place.compile("cc", "work", WORK, &["-O2", "-lm"]);
    // The program works until the other collector has sampled it for a while, however late that collector starts.
    let enough = place.path("enough");
    let script = format!(
        "{} 1000000 & until [ -e {} ]; do sleep 0.5; done; kill $!; exit 5",
        program.display(),
        enough.display()
    );
    let running = start(&mut as_it_is(&place, &["sh", "-c", &script]));
    let program = [(&*program.to_string_lossy(), 1)];
    until("the program is sampled", || samples(&place, 1, &program));
    let [collector] = place.collectors()[..] else { panic!("{:?}", place.collectors()) };
    let killed = Instant::now();
    kill(collector);
    until("it is sampled again", || samples(&place, 2, &program));
    std::thread::sleep(Duration::from_secs(1) + 10 * killed.elapsed());
    std::fs::write(&enough, "").unwrap();
    let done = running.wait();
    assert_eq!(done.code, 5, "{done:#?}");
    let summary = json(&place.path("out/summary.json"));
    let rows = rows(&summary);
    let work = joules(&rows, "work > main > both > ");
    assert!(work > 0.8 * rows.values().sum::<f64>(), "{rows:#?}\n{:#?}", notes(&summary));
    agrees_with_its_trace(&place.path("out"), &summary);
    place.assert_clean();
}

/// While no collector runs, the program works. Its CPU time of that period is known from the kernel's count, but its functions
/// are not.
#[test]
fn cpu_time_from_while_no_collector_ran_is_not_idle() {
    skip_unless!(may_sample(), "perf_event_open is not allowed here");
    let place = Place::new();
    let enough = place.path("enough");
    let program = place.compile("cc", "work", WORK_UNTIL, &["-O2", "-lm"]).display().to_string();
    let mut command = as_it_is(&place, &[&program, &enough.to_string_lossy()]);
    command.env("AMPERE_ESTIMATE_IDLE_WATTS", "0").env("AMPERE_ESTIMATE_WATTS_PER_CORE", "10");
    let running = start(&mut command);
    let programs = [(&*program, 1)];
    until("the program is sampled", || samples(&place, 1, &programs));
    let [collector] = place.collectors()[..] else { panic!("{:?}", place.collectors()) };
    std::thread::sleep(Duration::from_millis(300));
    // The collector is not replaced until `ampere run` continues.
    running.signal(rustix::process::Signal::STOP);
    kill(collector);
    std::thread::sleep(Duration::from_millis(700));
    running.signal(rustix::process::Signal::CONT);
    until("it is sampled again", || samples(&place, 2, &programs));
    std::thread::sleep(Duration::from_millis(700));
    std::fs::write(&enough, "").unwrap();
    let done = running.wait();
    assert_eq!(done.code, 0, "{done:#?}");
    let summary = json(&place.path("out/summary.json"));
    let (rows, gap) = (rows(&summary), &summary["run"]["gaps"][0]);
    let not_seen = joules(&rows, "(not seen)");
    assert!(not_seen > 0.8 * number(gap, "joules"), "{not_seen} J of {gap}: {rows:#?}");
    let view = &summary["devices"][0]["views"][0];
    let all = rows.values().sum::<f64>();
    assert!(number(view, "idle_joules") < 0.1 * all, "{view:#}");
    assert!(notes(&summary).iter().any(|note| note.contains("s of CPU time are in rows (not seen)")));
    agrees_with_its_trace(&place.path("out"), &summary);
    place.assert_clean();
}

#[test]
fn a_collector_that_replaces_a_killed_one_puts_samples_on_the_same_ranks() {
    skip_unless!(may_sample(), "perf_event_open is not allowed here");
    skip_unless!(on_path("mpicc"), "no mpicc");
    let place = Place::new();
    let until_told = "for (int on = 1; on; MPI_Bcast(&on, 1, MPI_INT, 0, MPI_COMM_WORLD)) {
        compute(); exchange(rank); mkdir(argv[2], 0700); on = access(argv[1], F_OK); }";
    let source = MPI_WORK.replace("for (int i = 0; i < 100; i++) { compute(); exchange(rank); }", until_told);
    assert!(source.contains(until_told));
    let source = format!("#include <sys/stat.h>\n#include <unistd.h>\n{source}");
    let program = place.compile("mpicc", "work", &source, &["-O2", "-lm"]);
    let [program, enough, begun] =
        [program, place.path("enough"), place.path("begun")].map(|path| path.to_string_lossy().into_owned());
    let command = ["mpirun", "--oversubscribe", "-n", "2", &program, &enough, &begun];
    let running = start(as_it_is(&place, &command).env("AMPERE_SAMPLE", RARELY));
    let ranks = [(&*program, 2)];
    until("ranks are sampled", || samples(&place, 1, &ranks) && Path::new(&begun).exists());
    let [collector] = place.collectors()[..] else { panic!("{:?}", place.collectors()) };
    let killed = Instant::now();
    kill(collector);
    until("they are sampled again", || samples(&place, 2, &ranks));
    std::thread::sleep(Duration::from_secs(1) + 5 * killed.elapsed());
    std::fs::write(&enough, "").unwrap();
    let done = running.wait();
    assert_eq!(done.code, 0, "{done:#?}");
    let summary = json(&place.path("out/summary.json"));
    assert_eq!(summary["run"]["complete"], true, "{}", summary["run"]);
    assert!(
        notes(&summary).iter().any(
            |note| note.contains("stack samples that a killed collector had not yet written are missing")
        )
    );
    let rows = rows(&summary);
    for rank in ["MPI Rank 0", "MPI Rank 1"] {
        for path in ["work > main > compute", "work > main > exchange > MPI_Allreduce"] {
            let joules = rows.get(&(rank.to_owned(), path.to_owned()));
            assert!(joules > Some(&0.0), "no {path} of {rank}: {rows:#?}");
        }
    }
    agrees_with_its_trace(&place.path("out"), &summary);
    place.assert_clean();
}

/// A program that works until the file that its argument names exists.
const WORK_UNTIL: &str = r#"
    #include <math.h>
    #include <unistd.h>
    volatile double sink;
    __attribute__((noinline)) void work(void) { for (long i = 0; i < 100000; i++) sink += sqrt((double)i); }
    int main(int argc, char **argv) { while (argc > 1 && access(argv[1], F_OK)) work(); return 0; }
"#;

/// A shell script that starts three programs. In place of a driver, it makes the files that list queues of two of the programs
/// while they run, and none of the third.
const ON_GPUS: &str = r#"
    has_queue() { mkdir -p node/sys/class/kfd/kfd/proc/$1/queues/0; echo $2 > node/sys/class/kfd/kfd/proc/$1/queues/0/gpuid; }
    ./one one-ends & one=$!
    ./other other-ends & other=$!
    ./none other-ends & none=$!
    has_queue $one 4661
    has_queue $other 4660
    wait $one
    rm -r node/sys/class/kfd/kfd/proc/$one
    touch one-has-ended
    wait $other $none
"#;

/// Makes ampere take the test's process IDs for the kernel's, which drivers report: the made-up node shows the PID namespace
/// of the kernel.
fn assert_kernel_pids(node: &Path) {
    std::fs::create_dir_all(node.join("proc/self/ns")).expect("a directory");
    std::os::unix::fs::symlink("pid:[4026531836]", node.join("proc/self/ns/pid")).expect("a link");
}

/// Whether the `nth` collector samples each process of these programs: it has written rings for their first threads.
fn samples(place: &Place, nth: u32, programs: &[(&str, usize)]) -> bool {
    let files = files_below(&place.path("shm"));
    let has_ring = |pid: u32| files.iter().any(|path| path.ends_with(format!("{pid}-s{nth}.0.ring")));
    let processes = place.processes();
    programs.iter().all(|(program, count)| {
        let of_program = processes.iter().filter(|(_, command)| command.split(' ').next() == Some(program));
        of_program.filter(|(pid, _)| has_ring(*pid)).count() == *count
    })
}

/// Returns which program draws from which GPU, and why.
fn gpu_links(summary: &Value) -> BTreeSet<String> {
    let links = list(summary, "topology").iter().map(|link| {
        let consumer = link["consumer"].as_str().expect("a name");
        let program = consumer.split_once('(').map_or(consumer, |(_, program)| program.trim_end_matches(')'));
        format!("{} <- {program}: {}", link["device"].as_str().unwrap_or("no GPU"), link["reason"])
    });
    // The shell that starts them, and its commands, may run for long enough to have rows.
    let is_own = |link: &String| {
        [" <- one: ", " <- other: ", " <- none: "].iter().any(|program| link.contains(program))
            && !link.contains("node ")
    };
    links.filter(is_own).collect()
}

/// One of the programs ends before the collector is killed, so only the killed collector knows which GPU it used.
#[test]
fn each_process_draws_from_the_gpus_on_which_it_has_queues() {
    skip_unless!(may_sample(), "perf_event_open is not allowed here");
    let place = Place::new();
    for name in ["one", "other", "none"] {
        place.compile("cc", name, WORK_UNTIL, &["-O2", "-lm"]);
    }
    let node = place.made_up_node();
    let topology = node.join("sys/class/kfd/kfd/topology/nodes");
    for gpu in [0, 1] {
        let folder = topology.join((gpu + 1).to_string());
        std::fs::create_dir_all(&folder).expect("a directory");
        std::fs::write(folder.join("gpu_id"), format!("{}\n", 4660 + gpu)).expect("a file");
        let properties = format!("location_id {}\ndomain 0\n", (0xc1 + gpu) << 8);
        std::fs::write(folder.join("properties"), properties).expect("a file");
    }
    std::fs::create_dir_all(node.join("sys/class/kfd/kfd/proc")).expect("a directory");
    assert_kernel_pids(&node);
    let mut command = as_it_is(&place, &["sh", "-c", ON_GPUS]);
    with_rocm_smi(&mut command, "watts=300,100").env("AMPERE_SYS_ROOT", &node);
    let running = start(command.current_dir(place.path("")));
    let manifests = || {
        let paths = files_below(&place.path("out")).into_iter().filter(|path| path.ends_with("run.json"));
        paths.filter_map(|path| serde_json::from_slice::<Value>(&std::fs::read(path).ok()?).ok())
    };
    let knows = |program: &str, gpus: &[&str]| {
        let of_program = |pid: &str| {
            let processes = place.processes();
            processes.iter().any(|(of, command)| of.to_string() == pid && command.starts_with(program))
        };
        manifests().any(|manifest| {
            let mut queues = manifest["queues"].as_object().into_iter().flatten();
            queues.any(|(process, known)| {
                *known == json!(gpus) && of_program(process.split(' ').next().unwrap_or_default())
            })
        })
    };
    until("the GPUs of all three are known", || {
        knows("./one", &["0000:c2:00.0"]) && knows("./other", &["0000:c1:00.0"]) && knows("./none", &[])
    });
    let others = [("./other", 1), ("./none", 1)];
    until("both others are sampled", || samples(&place, 1, &others));
    place.write("one-ends", "");
    until("one has ended", || place.path("one-has-ended").exists());
    let collectors = place.collectors();
    collectors.iter().for_each(|collector| kill(*collector));
    until("both others are sampled again", || samples(&place, 2, &others));
    place.write("other-ends", "");
    assert_eq!(running.wait().code, 0);
    let summary = json(&place.path("out/summary.json"));
    let expected = [
        "no GPU <- none: \"it has not opened AMD's driver\"",
        "GPU-0 <- other: \"the driver reported its queues at PCI address 0000:c1:00.0\"",
        "GPU-1 <- one: \"the driver reported its queues at PCI address 0000:c2:00.0\"",
    ];
    assert_eq!(gpu_links(&summary), expected.map(str::to_owned).into(), "{:#?}", summary["topology"]);
    agrees_with_its_trace(&place.path("out"), &summary);
    let again = attribute(&place.path("out/traces.otf2"), &[]);
    assert_eq!(again["topology"], summary["topology"]);
    place.assert_clean();
}

/// A shell script that starts two programs, and makes the list of a driver that names one of them and other processes.
const ON_NVIDIA_GPUS: &str = r#"
    ./one end & one=$!
    ./none end & none=$!
    { seq 100000 100099; echo $one; } > lists/next
    mv lists/next lists/1
    wait $one $none
"#;

#[test]
fn each_process_draws_from_the_gpus_where_nvidias_driver_lists_it() {
    skip_unless!(may_sample(), "perf_event_open is not allowed here");
    let place = Place::new();
    ["one", "none"].into_iter().for_each(|name| _ = place.compile("cc", name, WORK_UNTIL, &["-O2", "-lm"]));
    let node = place.made_up_node();
    assert_kernel_pids(&node);
    std::fs::create_dir(place.path("lists")).expect("a directory");
    let mut command = as_it_is(&place, &["sh", "-c", ON_NVIDIA_GPUS]);
    command
        .env("AMPERE_COUNTERS", "nvml")
        .env("AMPERE_NVML_LIBRARY", artifact("libstand_in_nvidia_ml.so"))
        .env("STAND_IN_NVML", "watts=300,100")
        .env("STAND_IN_NVML_PROCESSES", place.path("lists"))
        .env("AMPERE_SYS_ROOT", &node);
    let running = start(command.current_dir(place.path("")));
    let manifests = || files_below(&place.path("out")).into_iter().filter(|path| path.ends_with("run.json"));
    let is_known = || {
        manifests().any(|path| std::fs::read_to_string(path).is_ok_and(|text| text.contains("0000:c2:00.0")))
    };
    until("it is known, and both are sampled", || {
        is_known() && samples(&place, 1, &[("./one", 1), ("./none", 1)])
    });
    place.write("end", "");
    assert_eq!(running.wait().code, 0);
    let summary = json(&place.path("out/summary.json"));
    let shared = "\"the ranks' GPUs are not known: shared by all processes of the node\"";
    let expected = [
        "GPU-1 <- one: \"NVIDIA's driver reported it at PCI address 0000:c2:00.0\"".to_owned(),
        format!("GPU-0 <- none: {shared}"),
        format!("GPU-1 <- none: {shared}"),
    ];
    assert_eq!(gpu_links(&summary), expected.into(), "{:#?}", summary["topology"]);
    agrees_with_its_trace(&place.path("out"), &summary);
    place.assert_clean();
}

#[test]
fn an_invalid_period_is_an_error() {
    let place = Place::new();
    let done = run(&mut place.ampere(["run", "--sample", "sometimes", "--", "true"]));
    assert_ne!(done.code, 0, "{done:#?}");
    assert!(done.stderr.contains("sometimes"), "{done:#?}");
}

#[test]
fn doctor_reports_whether_stacks_can_be_sampled() {
    let place = Place::new();
    let done = run(&mut place.ampere(["doctor", "--json"]));
    let report: Value = serde_json::from_str(&done.stdout).expect("JSON");
    let check = list(&report, "checks").iter().find(|check| check["name"] == "stacks").expect("a line");
    assert_eq!(check["status"], if may_sample() { "ok" } else { "note" }, "{check}");
}

/// A program that works before its first recorded function. It spends most of its time in a function that is not recorded.
const RECORDED: &str = r#"
    #include <time.h>
    #include <unistd.h>
    __attribute__((noinline)) void setup(void) { __asm__ volatile(""); }
    __attribute__((noinline, no_instrument_function)) void plain(double seconds) {
        struct timespec begin, now;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
        do {
            for (volatile int i = 0; i < 20000; i++);
            clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
        } while (now.tv_sec - begin.tv_sec + 1e-9 * (now.tv_nsec - begin.tv_nsec) < seconds);
    }
    __attribute__((constructor, no_instrument_function)) void before(void) { plain(0.05); }
    int main(void) { setup(); usleep(300000); plain(1.5); return 0; }
"#;

#[test]
fn a_program_that_records_its_functions_leaves_the_samples_of_others_as_they_are() {
    skip_unless!(may_sample(), "perf_event_open is not allowed here");
    let place = Place::new();
    let program = place.compile("cc", "work", RECORDED, &["-O1", "-finstrument-functions", "-rdynamic"]);
    let other = place.compile("cc", "other", WORK, &["-O2", "-lm"]);
    let script = format!("{} & {} 400 & wait %1 && wait %2", program.display(), other.display());
    let done = run(&mut as_it_is(&place, &["bash", "-c", &script]));
    assert_eq!(done.code, 3, "{done:#?}");
    let summary = json(&place.path("out/summary.json"));
    let rows = rows(&summary);
    let of_process = |name: &str| {
        let paths = rows.iter().filter(|((group, _), _)| group.contains(name));
        paths.map(|(_, joules)| joules).sum::<f64>()
    };
    // The work before its first recorded function is sampled.
    let of_main = rows.get(&("Process".to_owned(), "main".to_owned())).copied().unwrap_or_default();
    assert!(joules(&rows, "work > ") < 0.3 * of_main, "{rows:#?}");
    // The other program has about as much work to do.
    assert!(of_process("(other)") > 0.6 * of_main, "{rows:#?}");
    agrees_with_its_trace(&place.path("out"), &summary);
}

#[test]
fn a_program_whose_functions_are_recorded_needs_no_samples() {
    skip_unless!(may_sample(), "perf_event_open is not allowed here");
    // A program can also be an argument of its loader.
    let loader = Some("/lib64/ld-linux-x86-64.so.2").filter(|loader| Path::new(loader).exists());
    for loader in BTreeSet::from([None, loader]) {
        let place = Place::new();
        let program = place.compile("cc", "work", RECORDED, &["-O1", "-finstrument-functions"]);
        let command: Vec<&str> = loader.into_iter().chain(program.to_str()).collect();
        let done = run(&mut sampled(&place, &command));
        assert_eq!(done.code, 0, "{done:#?}");
        let summary = json(&place.path("out/summary.json"));
        let rows = rows(&summary);
        let of_main = rows.get(&("Process".to_owned(), "main".to_owned())).copied().unwrap_or_default();
        assert!(of_main > 0.8 * rows.values().sum::<f64>(), "{rows:#?}");
        agrees_with_its_trace(&place.path("out"), &summary);
    }
}

/// A thread works and then executes the program again, which sleeps and then works. At the end it prints the CPU seconds of
/// the process, before and after the exec together.
const EXEC_IN_THREAD: &str = r#"
    #include <pthread.h>
    #include <stdio.h>
    #include <sys/resource.h>
    #include <time.h>
    #include <unistd.h>
    static void work(double seconds) {
        struct timespec begin, now;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
        do {
            for (volatile int i = 0; i < 20000; i++);
            clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
        } while (now.tv_sec - begin.tv_sec + 1e-9 * (now.tv_nsec - begin.tv_nsec) < seconds);
    }
    static void *thread(void *name) { work(0.2); execl(name, name, "again", NULL); return NULL; }
    int main(int count, char **arguments) {
        pthread_t first;
        if (count == 1) { pthread_create(&first, NULL, thread, arguments[0]); pthread_join(first, NULL); return 1; }
        usleep(1500000);
        work(0.2);
        struct rusage used;
        getrusage(RUSAGE_SELF, &used);
        printf("%f\n", used.ru_utime.tv_sec + used.ru_stime.tv_sec + 1e-6 * (used.ru_utime.tv_usec + used.ru_stime.tv_usec));
        return 0;
    }
"#;

#[test]
fn a_thread_that_executes_another_program_is_not_on_a_cpu_afterwards() {
    skip_unless!(may_sample(), "perf_event_open is not allowed here");
    let place = Place::new();
    let program = place.compile("cc", "again", EXEC_IN_THREAD, &["-O1", "-pthread"]);
    let before = stolen();
    let done = run(&mut as_it_is(&place, &[program.to_str().expect("UTF-8")]));
    assert_eq!(done.code, 0, "{done:#?}");
    // The hypervisor may have run something else between two context switches.
    let stolen_seconds = stolen_since(before);
    let used: f64 = done.stdout.trim().parse().expect("seconds");
    let summary = json(&place.path("out/summary.json"));
    let found = number(&summary["overhead"]["stacks"], "program_seconds");
    let most = used + 0.5 + stolen_seconds;
    assert!(found < most, "{found} s, {used} s used, {stolen_seconds} s stolen");
}

/// Ranges by roctx, whose library the test compiles, and by NVTX: as NVTX's header does, the program loads the library that
/// the environment names.
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
    unsigned long roctxRangeStartA(const char *);
    void roctxRangeStop(unsigned long);
    volatile double sink;
    __attribute__((noinline)) void work(double seconds) {
        struct timespec begin, now;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
        do {
            for (volatile int i = 0; i < 20000; i++);
            clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
        } while (now.tv_sec - begin.tv_sec + 1e-9 * (now.tv_nsec - begin.tv_nsec) < seconds);
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
        unsigned long (*start)(const char *) = (void *)kept[0][5], (*start_wide)(const void *) = (void *)kept[0][6];
        unsigned long (*start_event)(struct event *) = (void *)kept[0][4];
        unsigned long (*start_in)(void *, struct event *) = (void *)kept[1][2];
        void (*end)(unsigned long) = (void *)kept[0][7], (*end_in)(void *, unsigned long) = (void *)kept[1][3];
        unsigned long not_ended = start("not ended");
        for (int round = 0; round < 4; round++) {
            unsigned long copy = start("copy"), later = roctxRangeStartA("later");
            unsigned long ranges[3] = { start_in(own, &event), start_wide(L"gr\u00f6\u00dfer"), start_event(&event) };
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
            end(copy);
            end_in(own, ranges[0]);
            end(ranges[1]);
            end(ranges[2]);
            end(ranges[2]);
            roctxRangeStop(later);
        }
        if (!not_ended) return 3;
        pop(); // one more than there are ranges
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
                 int roctxRangePop(void) { return --depth; }
                 unsigned long roctxRangeStartA(const char *text) { return text[0]; }
                 void roctxRangeStop(unsigned long range) { depth += range != 'l'; }";
    let library = place.compile("cc", "libroctx64.so", roctx, &["-shared", "-fPIC"]);
    let program = place.compile("cc", "marked", RANGES, &[&library.to_string_lossy(), "-ldl"]);
    // There are four samples in each piece of work. The kernel has room for all of them, however late they are read.
    let done = run(as_it_is(&place, &[&program.to_string_lossy()]).env("AMPERE_SAMPLE", "5ms"));
    assert_eq!((done.code, done.stdout.as_str()), (0, &*"00".repeat(4)), "{done:#?}");
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
    assert_eq!(["outer", "registered", "größer", "roc"].map(calls), [Some(4); 4]);
    assert_eq!(calls("(other ranges)"), Some(5000 - (4096 - 5)), "{rows:#?}");
    let expected = [
        ("NVTX", "copy", 4, 0),
        ("NVTX", "größer", 4, 0),
        ("NVTX", "not ended", 0, 1),
        ("NVTX", "registered", 8, 0),
        ("roctx", "later", 4, 0),
    ];
    assert_eq!(
        ranges(&summary),
        expected.map(|(of, name, count, open)| (of.to_owned(), name.to_owned(), count, open))
    );
    let seconds = |name: &str| {
        let range = list(&summary["run"], "ranges").iter().find(|range| range["name"] == name);
        range.map_or(0.0, |range| number(range, "seconds"))
    };
    assert!(
        seconds("copy") > 4.0 * 0.08 && seconds("registered") > 8.0 * 0.08,
        "{}",
        summary["run"]["ranges"]
    );
    agrees_with_its_trace(&place.path("out"), &summary);
    place.assert_clean();
}

/// The programs look for a tool as Kokkos, ITT and OpenMP do. Only `ampere run` sets the variables that name one.
#[test]
fn ampere_run_is_the_tool_of_kokkos_itt_and_openmp() {
    let kokkos: &[_] = &[("Kokkos", "io", 2, 0), ("Kokkos", "net", 1, 0)];
    let itt: &[_] = &[("ITT", "load", 1, 1), ("ITT", "step", 1, 0)];
    for (program, region, expected) in
        [("kokkos", "axpy", kokkos), ("itt", "load", itt), ("ompt", "omp target in main", &[])]
    {
        let place = Place::new();
        let source = root().join(format!("crates/host/tests/programs/{program}.c"));
        let text = std::fs::read_to_string(source).expect("its source");
        let program = place.compile("cc", program, &text, &["-O1", "-w", "-ldl", "-lpthread"]);
        let done = run(&mut as_it_is(&place, &[&program.to_string_lossy()]));
        assert_eq!(done.code, 0, "{done:#?}");
        let summary = json(&place.path("out/summary.json"));
        let regions = list(&list(&summary["devices"][0], "views")[0], "regions");
        assert!(
            regions.iter().any(|row| row["region"] == region && row["calls"].as_u64() > Some(0)),
            "{regions:#?}"
        );
        let expected = expected
            .iter()
            .map(|(of, name, count, open)| ((*of).to_owned(), (*name).to_owned(), *count, *open));
        assert_eq!(ranges(&summary), expected.collect::<Vec<_>>());
    }
}

#[test]
fn pythons_ranges_are_frames() {
    skip_unless!(may_sample(), "perf_event_open is not allowed here");
    let python = python_with(&["nvtx"]);
    skip_unless!(python.is_some(), "no nvtx");
    let place = Place::new();
    let script = "import nvtx\nfor step in range(20):\n  copy = nvtx.start_range('copy', domain='model')\n  with nvtx.annotate('step'):\n    \
        with nvtx.annotate('forward', domain='model'): sum(range(1000000))\n    \
        nvtx.push_range('backward'); sum(range(1000000)); nvtx.pop_range(); nvtx.mark('saved')\n  \
        nvtx.end_range(copy)\n";
    let python = python.expect("one with nvtx");
    let command = [&*python.to_string_lossy(), "-c", script];
    let measured = || {
        let done = run(as_it_is(&place, &command).env("AMPERE_SAMPLE", "1ms"));
        assert_eq!(done.code, 0, "{done:#?}");
    };
    let summary = undisturbed(&place, measured, |summary| {
        let rows = rows(summary);
        let [forward, backward] =
            ["forward", "backward"].map(|range| joules(&rows, &format!("> step > {range} > ")));
        (relative(forward, backward) >= 0.3).then(|| format!("{forward} J and {backward} J: {rows:#?}"))
    });
    let regions = list(&list(&summary["devices"][0], "views")[0], "regions");
    let saved = regions.iter().find(|row| row["region"] == "saved").expect("the mark");
    assert_eq!(saved["calls"], 20, "{saved}");
    assert_eq!(ranges(&summary), [("NVTX".to_owned(), "copy".to_owned(), 20, 0)]);
}

/// With `-X perf`, Python makes a small piece of machine code at run time for each function of the script, and calls the
/// function through it.
#[test]
fn functions_of_python_are_called_as_in_the_script() {
    skip_unless!(may_sample(), "perf_event_open is not allowed here");
    let is_new = |python: &&str| {
        let probe =
            Command::new(python).args(["-c", "import sys; sys.exit(sys.version_info < (3, 12))"]).output();
        probe.is_ok_and(|done| done.status.success())
    };
    let python = ["python3", "python3.12", "python3.13", "python3.14"].into_iter().find(is_new);
    skip_unless!(python.is_some(), "no Python from 3.12 on");
    let place = Place::new();
    std::fs::write(
        place.path("work.py"),
        "def spin(rounds):\n  return sum(i * i for i in range(rounds))\n\
         def larger(unit): return spin(3 * unit)\n\
         def smaller(unit): return spin(2 * unit)\n\
         for _ in range(40): larger(50000), smaller(50000)\n",
    )
    .expect("a script");
    let command = [python.expect("a Python"), "-X", "perf", "work.py"];
    let measured = || {
        let done = run(as_it_is(&place, &command).env("AMPERE_SAMPLE", "1ms"));
        assert_eq!(done.code, 0, "{done:#?}");
    };
    let summary = undisturbed(&place, measured, |summary| {
        let rows = rows(summary);
        let all: f64 = rows.values().sum();
        let [larger, smaller] = ["larger", "smaller"]
            .map(|function| joules(&rows, &format!("> {function} (work.py) > spin (work.py)")));
        let is_right = relative(larger / smaller, 1.5) < 0.2 && (larger + smaller) / all > 0.8;
        (!is_right).then(|| format!("{larger} J and {smaller} J of {all} J: {rows:#?}"))
    });
    agrees_with_its_trace(&place.path("out"), &summary);
}

/// V8 has frame pointers, and writes a list of its functions' addresses.
#[test]
fn functions_that_node_compiles_have_names() {
    skip_unless!(may_sample(), "perf_event_open is not allowed here");
    skip_unless!(on_path("node"), "no node");
    let place = Place::new();
    let script = "function spin(rounds) { let sum = 0; for (let i = 0; i < rounds; i++) sum += Math.sqrt(i); return sum; }\n\
         let all = 0; for (let i = 0; i < 1500; i++) all += spin(1e6); console.log(all);\n";
    std::fs::write(place.path("work.js"), script).expect("a script");
    let command = ["node", "--perf-basic-prof", "work.js"];
    let done = run(as_it_is(&place, &command).current_dir(place.path("")));
    assert_eq!(done.code, 0, "{done:#?}");
    let rows = rows(&json(&place.path("out/summary.json")));
    let (spin, all) = (joules(&rows, "spin"), rows.values().sum::<f64>());
    assert!(spin / all > 0.4, "{spin} J of {all} J: {rows:#?}");
}

/// The number of voluntary context switches of each thread, by its name.
fn waits(pid: u32) -> BTreeMap<String, u64> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).expect("threads").flatten();
    let of = |thread: std::fs::DirEntry| {
        let status = std::fs::read_to_string(thread.path().join("status")).ok()?;
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        Some((field("Name:")?.to_owned(), field("voluntary_ctxt_switches:")?.parse().ok()?))
    };
    threads.filter_map(of).collect()
}

#[test]
fn a_job_that_does_nothing_is_seldom_checked() {
    skip_unless!(may_sample(), "perf_event_open is not allowed here");
    let place = Place::new();
    assert_eq!(run(place.command("mkfifo").arg("pipe")).code, 0);
    // `cat` waits until the pipe is opened for writing.
    let running = start(&mut as_it_is(&place, &["cat", "pipe"]));
    until("the collector runs", || place.collectors().len() == 1);
    let processes = [place.collectors()[0], running.pid().as_raw_nonzero().get() as u32];
    // The sampler finds after a second that nothing happens.
    until("its threads hardly run", || {
        let (begun, before) = (Instant::now(), processes.map(waits));
        std::thread::sleep(Duration::from_secs(2));
        let (after, seconds) = (processes.map(waits), begun.elapsed().as_secs_f64());
        let most = [
            ("ampere-collecto", 25.0),
            ("ampere-stacks", 20.0),
            ("ampere-sampler", 10.0),
            ("ampere-keeper", 2.0),
        ];
        most.iter().all(|(thread, most)| {
            let of =
                |all: &[BTreeMap<String, u64>; 2]| all.iter().find_map(|waits| waits.get(*thread)).copied();
            let waits = of(&after).expect("the thread") - of(&before).expect("the thread");
            println!("{thread}: {waits} waits in {seconds} s");
            waits as f64 <= most * seconds
        })
    });
    drop(std::fs::OpenOptions::new().write(true).open(place.path("pipe")).expect("the pipe"));
    assert_eq!(running.wait().code, 0);
}

/// Functions that each take long compared with the hooks at their start and end. The functions of the C++ library are not
/// instrumented.
const LARGE_FUNCTIONS: &str = r#"
    #include <algorithm>
    #include <cmath>
    #include <cstdio>
    #include <string>
    #include <unordered_map>
    #include <vector>
    using Values = std::vector<double>;
    const int SIZE = 160;
    [[gnu::noinline]] void fill(Values &of, double seed) {
        for (size_t at = 0; at < of.size(); at++) of[at] = std::sin(seed + at);
    }
    [[gnu::noinline]] void multiply(const Values &a, const Values &b, Values &to) {
        for (int i = 0; i < SIZE; i++)
            for (int j = 0; j < SIZE; j++) {
                double sum = 0;
                for (int k = 0; k < SIZE; k++) sum += a[i * SIZE + k] * b[k * SIZE + j];
                to[i * SIZE + j] = sum;
            }
    }
    template <typename T> [[gnu::noinline]] void order(std::vector<T> &values) {
        std::sort(values.begin(), values.end());
    }
    [[gnu::noinline]] size_t tally(const Values &values) {
        std::unordered_map<std::string, size_t> all;
        for (double value : values) all[std::to_string(int(value * 100))]++;
        return all.size();
    }
    int main() {
        Values a(SIZE * SIZE), b(SIZE * SIZE), c(SIZE * SIZE);
        size_t sum = 0;
        for (int round = 0; round < 120; round++) {
            fill(a, round);
            fill(b, round + 1);
            multiply(a, b, c);
            std::vector<float> narrow(a.begin(), a.end());
            order(c);
            order(narrow);
            sum += tally(c);
        }
        std::printf("%zu\n", sum);
    }
"#;

fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    (values[middle] + values[(values.len() - 1) / 2]) / 2.0
}

/// For each function, the joules of the rows whose path contains it, in percent of those of all these functions together.
fn shares(output: &Path, functions: &[&str]) -> Vec<f64> {
    let summary = json(&output.join("summary.json"));
    let rows = rows(&summary);
    let each: Vec<f64> = functions.iter().map(|function| joules(&rows, function)).collect();
    let all: f64 = each.iter().sum();
    assert!(each.iter().all(|joules| *joules > 0.0), "{each:?} of {rows:#?}, {:#?}", summary["run"]);
    each.iter().map(|joules| 100.0 * joules / all).collect()
}

#[test]
fn sampled_functions_have_the_joules_that_they_have_when_they_are_instrumented() {
    skip_unless!(may_sample(), "perf_event_open is not allowed here");
    let place = Place::new();
    let stencil = std::fs::read_to_string(root().join("examples/mpi/stencil.c")).expect("the example");
    let of_stencil = ["relax_block", "sum_block"];
    let of_large = ["fill(", "multiply(", "order<double>", "order<float>", "tally("];
    let hooks = "-finstrument-functions-exclude-file-list=/usr/";
    // In samples, inlined code is a part of its caller; for the hooks, it is a call.
    let mut cases =
        vec![("c++", LARGE_FUNCTIONS, vec!["-xc++", "-O2", hooks], vec![], vec![], &of_large[..])];
    if on_path("mpicc") {
        let launcher = vec!["mpirun", "--oversubscribe", "-n", "2"];
        cases.push(("mpicc", &stencil, vec!["-O2", "-fno-inline", "-lm"], launcher, vec!["1"], &of_stencil));
    }
    for (compiler, source, options, launcher, arguments, functions) in cases {
        let build =
            |name: &str, more: &[&str]| place.compile(compiler, name, source, &[&options[..], more].concat());
        let hooks = ["-finstrument-functions", "-rdynamic"];
        let ways = [(build("plain", &[]), "250us"), (build("exact", &hooks), "off")];
        let mut all = [vec![Vec::new(); functions.len()], vec![Vec::new(); functions.len()]];
        let mut differences = Vec::new();
        // The cases alternate, because the load of the machine changes. Other load disturbs only some of the rounds, so the
        // medians are compared.
        for round in 0..12 {
            for (at, (program, sample)) in ways.iter().enumerate() {
                let output = format!("{compiler}-{sample}-{round}");
                let mut run_it = place.ampere(["run", "--sample", sample, "-o", &output, "--"]);
                run_it.args(&launcher).arg(program).args(&arguments).env("AMPERE_COUNTERS", "estimate");
                let done = run(&mut run_it);
                assert_eq!(done.code, 0, "{done:#?}");
                let shares = shares(&place.path(output), functions);
                all[at].iter_mut().zip(shares).for_each(|(all, share)| all.push(share));
            }
            let [sampled, exact] = all.each_ref().map(|of_way| of_way.iter().map(|all| median(all)));
            differences = sampled.zip(exact).map(|(sampled, exact)| sampled - exact).collect();
            if round >= 3 && differences.iter().all(|points| points.abs() < 2.0) {
                break;
            }
        }
        println!("{functions:?}: sampled minus instrumented {differences:.1?} points");
        assert!(differences.iter().all(|points| points.abs() < 2.0), "{functions:?}: {differences:?} points");
    }
}

/// Uses features of a process that a sampler could disturb. The first argument selects one. In each case, the program works for
/// a while in `work`.
const ODD_PROGRAMS: &str = r#"
    #define _GNU_SOURCE
    #include <dlfcn.h>
    #include <errno.h>
    #include <math.h>
    #include <poll.h>
    #include <pthread.h>
    #include <semaphore.h>
    #include <setjmp.h>
    #include <signal.h>
    #include <stdio.h>
    #include <stdlib.h>
    #include <string.h>
    #include <sys/epoll.h>
    #include <sys/time.h>
    #include <sys/wait.h>
    #include <time.h>
    #include <ucontext.h>
    #include <unistd.h>
    volatile double sum;
    static double seconds(clockid_t clock) {
        struct timespec now;
        clock_gettime(clock, &now);
        return now.tv_sec + 1e-9 * now.tv_nsec;
    }
    __attribute__((noipa)) void work(double until) {
        for (double end = seconds(CLOCK_THREAD_CPUTIME_ID) + until; seconds(CLOCK_THREAD_CPUTIME_ID) < end;)
            for (int i = 0; i < 2000; i++) sum += sqrt(i);
    }
    static void *working(void *none) { work(0.3); return none; }
    static void *allocating(void *none) {
        for (int i = 0; i < 20000; i++) { char *p = malloc(i % 5000 + 1); memset(p, 1, 1); free(p); if (i % 1000 == 0) work(0.005); }
        return none;
    }
    static jmp_buf back;
    static void deep(int depth) { if (depth) deep(depth - 1); else { work(0.01); longjmp(back, 1); } sum++; }
    static sigjmp_buf out;
    static volatile int handled;
    static void leave(int number) { handled++; siglongjmp(out, number); }
    static void count(int number) { handled += number == SIGPROF; }
    static ucontext_t caller, other;
    static void coroutine(void) { for (;;) { work(0.02); swapcontext(&other, &caller); } }
    static void say(const char *what, int result) { printf("%s %d %d\n", what, result, result < 0 ? errno : 0); }
    int main(int argc, char **argv) {
        const char *what = argc > 1 ? argv[1] : "";
        pthread_t thread;
        if (!strcmp(what, "malloc")) {
            pthread_t threads[4];
            for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, allocating, NULL);
            for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
        } else if (!strcmp(what, "dlopen")) {
            pthread_create(&thread, NULL, working, NULL);
            for (int i = 0; i < 300; i++) { void *library = dlopen("libresolv.so.2", RTLD_NOW); dlclose(library); }
            pthread_join(thread, NULL);
        } else if (!strcmp(what, "fork")) {
            int status;
            for (int i = 0; i < 20; i++) {
                pid_t child = fork();
                if (!child) { work(0.02); _exit(i); }
                waitpid(child, &status, 0);
                printf("%d ", WEXITSTATUS(status));
            }
        } else if (!strcmp(what, "longjmp")) {
            volatile int left = 30;
            if (setjmp(back)) left--;
            if (left) deep(50);
        } else if (!strcmp(what, "handlers")) {
            stack_t stack = { .ss_sp = malloc(SIGSTKSZ), .ss_size = SIGSTKSZ };
            sigaltstack(&stack, NULL);
            struct sigaction action = { .sa_handler = leave, .sa_flags = SA_ONSTACK };
            sigaction(SIGUSR1, &action, NULL);
            for (volatile int i = 0; i < 100; i++) if (!sigsetjmp(out, 1)) { work(0.003); raise(SIGUSR1); }
            action.sa_handler = count;
            sigaction(SIGPROF, &action, NULL);
            struct itimerval often = { { 0, 1000 }, { 0, 1000 } }, none = { { 0, 0 }, { 0, 0 } };
            int before = handled;
            setitimer(ITIMER_PROF, &often, NULL);
            work(0.3);
            setitimer(ITIMER_PROF, &none, NULL);
            printf("%d %d\n", before, handled > before + 20);
        } else if (!strcmp(what, "coroutines")) {
            getcontext(&other);
            other.uc_stack.ss_sp = malloc(65536);
            other.uc_stack.ss_size = 65536;
            makecontext(&other, coroutine, 0);
            for (int i = 0; i < 20; i++) swapcontext(&caller, &other);
        } else if (!strcmp(what, "waits")) {
            pthread_create(&thread, NULL, working, NULL);
            struct timespec moment = { 0, 60000000 }, late;
            double begin = seconds(CLOCK_MONOTONIC);
            say("nanosleep", nanosleep(&moment, NULL));
            say("epoll_wait", epoll_wait(epoll_create1(0), &(struct epoll_event){ 0 }, 1, 60));
            say("poll", poll(NULL, 0, 60));
            say("usleep", usleep(60000));
            sem_t never;
            sem_init(&never, 0, 0);
            clock_gettime(CLOCK_REALTIME, &late);
            late.tv_sec++;
            say("sem_timedwait", sem_timedwait(&never, &late));
            printf("%d\n", seconds(CLOCK_MONOTONIC) - begin >= 1.24);
            pthread_join(thread, NULL);
        } else if (!strcmp(what, "errno")) {
            errno = 77;
            work(0.3);
            printf("%d\n", errno);
        } else if (!strcmp(what, "state")) {
            work(0.3);
            char line[256];
            FILE *status = fopen("/proc/self/status", "r");
            unsigned long long ignored;
            while (fgets(line, sizeof line, status))
                // The C library's own signals are left out: it ignores them in some ways of starting a program.
                if (sscanf(line, "SigIgn: %llx", &ignored) == 1) printf("SigIgn %llx\n", ignored & 0x7fffffff);
                else if (!strncmp(line, "Sig", 3) && line[3] != 'Q' || !strncmp(line, "Thr", 3)) fputs(line, stdout);
            struct itimerval timer;
            for (int which = 0; which < 3; which++) { getitimer(which, &timer); printf("%ld ", timer.it_interval.tv_usec); }
            stack_t stack;
            sigaltstack(NULL, &stack);
            printf("%d\n", stack.ss_flags);
        } else if (!strcmp(what, "killed")) {
            work(0.3);
            fflush(stdout);
            raise(SIGTERM);
        }
        work(0.1);
        printf("done %s\n", what);
        return 23;
    }
"#;

#[test]
fn programs_do_the_same_as_without_samples() {
    skip_unless!(may_sample(), "perf_event_open is not allowed here");
    let place = Place::new();
    let program = place.compile("cc", "odd", ODD_PROGRAMS, &["-O1", "-pthread", "-lm", "-ldl", "-w"]);
    let program = program.to_string_lossy().into_owned();
    let cases = [
        "malloc",
        "dlopen",
        "fork",
        "longjmp",
        "handlers",
        "coroutines",
        "waits",
        "errno",
        "state",
        "killed",
    ];
    for case in cases {
        let plain = run(place.command(&program).arg(case));
        let mut command = place.ampere(["run", "--sample", "1ms", "-o", case, "--", &program, case]);
        let done = run(command.env("AMPERE_COUNTERS", "estimate"));
        done.as_without(&plain);
        done.no_panic();
        let rows = rows(&json(&place.path(case).join("summary.json")));
        assert!(joules(&rows, "work") > 0.0, "{case}: {rows:#?}");
    }
    place.assert_clean();
}

const GO_WORK: &str = r#"
    package main
    import ("fmt"; "math"; "os"; "sync"; "time")
    //go:noinline
    func spin(rounds int) float64 {
        var sums [64]float64 // a function without a frame would hide the one that calls it
        for i := 0; i < rounds; i++ { sums[i%64] += math.Sqrt(float64(i)) }
        return sums[0]
    }
    //go:noinline
    func larger(unit int) float64 { return spin(3 * unit) + 1 }
    //go:noinline
    func smaller(unit int) float64 { return spin(2 * unit) + 1 }
    func main() {
        var all sync.WaitGroup
        sums := make([]float64, 20)
        for at := range sums {
            all.Add(1)
            go func(at int) {
                defer all.Done()
                for i := 0; i < 8; i++ { sums[at] += larger(1000000) + smaller(1000000); time.Sleep(time.Millisecond) }
            }(at)
        }
        all.Wait()
        fmt.Println(sums[0] == sums[19])
        os.Exit(23)
    }
"#;

#[test]
fn goroutines_have_their_functions() {
    skip_unless!(may_sample(), "perf_event_open is not allowed here");
    skip_unless!(on_path("go"), "no Go");
    let place = Place::new();
    place.write("work.go", &GO_WORK.replace("\n    ", "\n"));
    let mut build = place.command("go");
    build.args(["build", "-o", "work", "work.go"]).current_dir(place.path(""));
    let built = run(build.env("GOCACHE", place.path("cache")).env("GO111MODULE", "off"));
    assert_eq!(built.code, 0, "{built:#?}");
    let program = place.path("work").display().to_string();
    let plain = run(&mut place.command(&program));
    let measured = || {
        let done = run(as_it_is(&place, &[&program]).env("AMPERE_SAMPLE", "1ms"));
        done.as_without(&plain);
        done.no_panic();
    };
    undisturbed(&place, measured, |summary| {
        let rows = rows(summary);
        let [larger, smaller] =
            ["larger", "smaller"].map(|f| joules(&rows, &format!("main.{f} > main.spin")));
        let is_right = relative(larger / smaller, 1.5) < 0.2;
        (!is_right).then(|| format!("{larger} J and {smaller} J of {rows:#?}"))
    });
}

#[test]
fn a_java_program_does_the_same_as_without_samples() {
    skip_unless!(may_sample(), "perf_event_open is not allowed here");
    skip_unless!(on_path("javac"), "no javac");
    let place = Place::new();
    let source =
        "public class Work { public static void main(String[] arguments) throws Exception { double sum = 0;
        for (int i = 0; i < 300000000; i++) { sum += Math.sqrt(i); } Object[] kept = new Object[100000];
        for (int i = 0; i < 5000000; i++) { kept[i % kept.length] = new int[i % 50]; }
        System.out.println(sum); System.exit(23); } }";
    place.write("Work.java", source);
    let built = run(place.command("javac").arg("Work.java").current_dir(place.path("")));
    assert_eq!(built.code, 0, "{built:#?}");
    let plain = run(place.command("java").arg("Work").current_dir(place.path("")));
    let done = run(as_it_is(&place, &["java", "Work"]).current_dir(place.path("")));
    done.as_without(&plain);
    done.no_panic();
    let rows = rows(&json(&place.path("out/summary.json")));
    let of_java =
        |((group, _), joules): (&(String, String), &f64)| group.ends_with("(java)").then_some(*joules);
    assert!(rows.iter().filter_map(of_java).sum::<f64>() > 0.0, "{rows:#?}");
}

/// Two threads that call instrumented functions and MPI.
const THREADS_OF_MPI: &str = r#"
    #include <mpi.h>
    #include <pthread.h>
    __attribute__((noinline)) static int calls(int n) { return n < 2 ? n : calls(n - 1) + calls(n - 2); }
    static void *work(void *unused) {
        int flag;
        for (int i = 0; i < 50; i++) { calls(8); MPI_Initialized(&flag); }
        return NULL;
    }
    int main(int argc, char **argv) {
        int given;
        pthread_t thread;
        MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &given);
        pthread_create(&thread, NULL, work, NULL);
        work(NULL);
        pthread_join(thread, NULL);
        MPI_Finalize();
        return 23;
    }
"#;

#[test]
fn programs_with_sanitizers_do_the_same_as_without_samples() {
    skip_unless!(may_sample(), "perf_event_open is not allowed here");
    skip_unless!(on_path("gcc"), "no gcc");
    let place = Place::new();
    for (sanitizer, library) in
        [("address", "libasan.so"), ("undefined", "libubsan.so"), ("thread", "libtsan.so")]
    {
        let library = run(place.command("gcc").arg(format!("-print-file-name={library}")));
        skip_unless!(library.stdout.starts_with('/'), "no gcc with sanitizers");
        let option = format!("-fsanitize={sanitizer}");
        let options = ["-O1", "-pthread", "-lm", "-ldl", "-w", &option];
        let program = place.compile("gcc", sanitizer, ODD_PROGRAMS, &options).display().to_string();
        for case in ["malloc", "fork", "errno"] {
            let plain = run(place.command(&program).arg(case));
            let output = format!("{sanitizer}-{case}");
            let mut command = place.ampere(["run", "--sample", "1ms", "-o", &output, "--", &program, case]);
            let done = run(command.env("AMPERE_COUNTERS", "estimate"));
            done.as_without(&plain);
            done.no_panic();
            // ThreadSanitizer ends immediately where the kernel randomises the addresses of programs.
            if plain.code == 23 {
                let summary = json(&place.path(output).join("summary.json"));
                let rows = rows(&summary);
                let all = summary.to_string();
                assert!(joules(&rows, "work") > 0.0, "{case} with {sanitizer}: {rows:#?} {all}");
            }
        }
    }
    skip_unless!(on_path("mpicc.openmpi"), "no mpicc.openmpi");
    let options = ["-O1", "-pthread", "-fsanitize=thread", "-finstrument-functions"];
    let program = place.compile("mpicc.openmpi", "mpi", THREADS_OF_MPI, &options).display().to_string();
    run(&mut as_it_is(&place, &[&program])).as_without(&run(&mut place.command(&program)));
}

/// As many threads as the first argument gives, all at once. Each works for a moment, two at a time: if a thousand threads
/// competed with the collector for the CPUs, samples would be lost.
const MANY_THREADS: &str = r#"
    #include <math.h>
    #include <pthread.h>
    #include <semaphore.h>
    #include <stdio.h>
    #include <stdlib.h>
    #include <time.h>
    volatile double sum;
    static pthread_barrier_t all;
    static sem_t turns;
    static double seconds(void) {
        struct timespec now;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
        return now.tv_sec + 1e-9 * now.tv_nsec;
    }
    __attribute__((noipa)) void work(void) {
        for (double end = seconds() + 0.004; seconds() < end;) for (int i = 0; i < 2000; i++) sum += sqrt(i);
    }
    static void *thread(void *none) {
        pthread_barrier_wait(&all);
        sem_wait(&turns);
        work();
        sem_post(&turns);
        pthread_barrier_wait(&all);
        return none;
    }
    int main(int argc, char **argv) {
        int count = atoi(argv[1]);
        pthread_t *threads = malloc(count * sizeof *threads);
        pthread_attr_t small;
        pthread_attr_init(&small);
        pthread_attr_setstacksize(&small, 65536);
        pthread_barrier_init(&all, NULL, count);
        sem_init(&turns, 0, 2);
        for (int i = 0; i < count; i++) if (pthread_create(&threads[i], &small, thread, NULL)) return 1;
        for (int i = 0; i < count; i++) pthread_join(threads[i], NULL);
        printf("%d threads\n", count);
        return 23;
    }
"#;

#[test]
fn threads_are_not_bounded_by_the_files_that_may_be_open() {
    skip_unless!(may_sample(), "perf_event_open is not allowed here");
    let place = Place::new();
    let program = place.compile("cc", "many", MANY_THREADS, &["-pthread", "-lm"]).display().to_string();
    let measured = || {
        let command = place.ampere(["run", "--sample", "1ms", "-o", "out", "--", &program, "1500"]);
        let mut limited = place.command("prlimit");
        limited.arg("--nofile=64:64").arg(command.get_program()).args(command.get_args());
        let done = run(&mut limited);
        assert_eq!((done.code, done.stdout.as_str()), (23, "1500 threads\n"), "{done:#?}");
        done.no_panic();
    };
    let summary = undisturbed(&place, measured, |summary| {
        let rows = rows(summary);
        let (work, all) = (joules(&rows, " > work"), rows.values().sum::<f64>());
        let is_right = work > 0.7 * all;
        (!is_right).then(|| format!("{work} J of {all} J: {:#?}", notes(summary)))
    });
    // If other tests occupy the CPUs, samples may come late. Charging them at their own time would need the files of all
    // locations of the trace at once, so a note about files and late samples is permitted.
    let is_of_files = |note: &&str| note.contains("files") && !note.contains("came late");
    assert!(!notes(&summary).iter().any(is_of_files), "{:#?}", notes(&summary));
}

/// Starts this many threads, one after the other. Each calls `first` for 3 ms of CPU time, and then `second` for 7 ms.
const SHORT_THREADS: &str = r#"
    #include <pthread.h>
    #include <stdlib.h>
    #include <time.h>
    static void spin(double seconds) {
        struct timespec now;
        double end;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
        end = now.tv_sec + now.tv_nsec * 1e-9 + seconds;
        do clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now); while (now.tv_sec + now.tv_nsec * 1e-9 < end);
    }
    __attribute__((noinline)) void first(void) { spin(0.003); __asm__ volatile(""); }
    __attribute__((noinline)) void second(double seconds) { spin(seconds); __asm__ volatile(""); }
    static void *work(void *unused) { first(); second(0.007); return unused; }
    int main(int words, char **word) {
        int count = words > 1 ? atoi(word[1]) : 0;
        if (count == 0) second(1.0);
        for (int i = 0; i < count; i++) {
            pthread_t thread;
            if (pthread_create(&thread, NULL, work, NULL)) return 1;
            pthread_join(thread, NULL);
        }
        return 0;
    }
"#;

#[test]
fn functions_that_short_threads_call_first_have_too_few_samples_and_a_note_reports_it() {
    skip_unless!(may_sample(), "perf_event_open is not allowed here");
    let place = Place::new();
    let program = place.compile("cc", "brief", SHORT_THREADS, &["-O1", "-pthread"]).display().to_string();
    for (threads, is_noted) in [("200", true), ("0", false)] {
        let output = format!("out-{threads}");
        let done = run(&mut place.ampere(["run", "--sample", "5ms", "-o", &output, "--", &program, threads]));
        assert_eq!(done.code, 0, "{done:#?}");
        let summary = json(&place.path(format!("{output}/summary.json")));
        let is_it = |note: &&str| note.contains("of the samples are the first of their thread");
        assert_eq!(notes(&summary).iter().any(is_it), is_noted, "{threads}: {:#?}", notes(&summary));
    }
}

/// `ampere run` as a user who is not root, and who may lock only the memory that every user may lock for sampling. Each call
/// uses another user ID, because all programs of a user share that memory.
fn as_other_user(place: &Place, output: &str, command: &[&str]) -> Command {
    static CALLS: AtomicU32 = AtomicU32::new(0);
    let user = 10_000 + std::process::id() % 5_000 * 10 + CALLS.fetch_add(1, Ordering::Relaxed) % 10;
    for of in [place.path(""), place.path("shm"), place.path("tmp")] {
        std::os::unix::fs::chown(of, Some(user), Some(user)).expect("root may");
    }
    let run = place.ampere(["run", "--sample", "1ms", "-o", output, "--"]);
    let mut other = place.command("setpriv");
    other.arg(format!("--reuid={user}")).arg(format!("--regid={user}"));
    other.args(["--clear-groups", "prlimit", "--memlock=0:0"]);
    other.arg(run.get_program()).args(run.get_args()).args(command);
    other
}

fn kernel_setting(name: &str) -> String {
    let text = std::fs::read_to_string(format!("/proc/sys/kernel/{name}")).unwrap_or_default();
    text.trim().to_owned()
}

#[test]
fn where_no_memory_is_left_to_sample_a_note_reports_it() {
    skip_unless!(may_sample(), "perf_event_open is not allowed here");
    skip_unless!(is_root(), "needs root");
    skip_unless!(other_user_may_run(), "another user than root may not run what is built here");
    skip_unless!(kernel_setting("perf_event_mlock_kb") == "516", "other limits than usual");
    let place = Place::new();
    // The first program uses all the memory that the user may lock.
    let work = "i=0; while [ $i -lt 1000000 ]; do i=$((i + 1)); done; exit 23";
    let script = &format!("\"$0\" run --sample 1ms -o inner -- sh -c '{work}'");
    let ampere = place.ampere([""; 0]).get_program().to_string_lossy().into_owned();
    let done =
        run(as_other_user(&place, "outer", &["sh", "-c", script, &ampere])
            .env("AMPERE_ESTIMATE_IDLE_WATTS", "0"));
    assert_eq!(done.code, 23, "{done:#?}");
    let summary = json(&place.path("inner/summary.json"));
    let is_it = |note: &&str| {
        note.starts_with(
            "no stacks are sampled: no memory for the kernel's rings: raise the limit of locked memory",
        )
    };
    assert!(notes(&summary).iter().any(is_it), "{:#?}", notes(&summary));
    // CPU time without samples is in the row (not seen), and does not count as idle.
    let rows = rows(&summary);
    let not_seen = joules(&rows, "(not seen)");
    assert!(not_seen > 0.9 * rows.values().sum::<f64>() && not_seen > 0.0, "{rows:#?}");
    let says_why = |note: &&str| note.contains("are in its row (not seen): no memory for the kernel's rings");
    assert!(notes(&summary).iter().any(says_why), "{:#?}", notes(&summary));
    assert_eq!(summary["run"]["complete"], false, "{:#?}", summary["run"]);
}

/// A program that spends most of its time in the kernel. It calls `read` seldom, so that hardly any sample is taken outside the
/// kernel.
const KERNEL_WORK: &str = r#"
    #include <fcntl.h>
    #include <math.h>
    #include <unistd.h>
    volatile double sum;
    static char bytes[32 << 20];
    __attribute__((noinline)) void reads(int file) { for (int i = 0; i < 10; i++) sum += read(file, bytes, sizeof bytes); }
    __attribute__((noinline)) void computes(void) { for (int i = 0; i < 100000000; i++) sum += sqrt(i); }
    int main(void) { reads(open("/dev/urandom", O_RDONLY)); computes(); return 23; }
"#;

#[test]
fn time_in_the_kernel_belongs_to_its_caller_if_it_may_be_sampled() {
    skip_unless!(may_sample(), "perf_event_open is not allowed here");
    skip_unless!(is_root(), "needs root");
    skip_unless!(other_user_may_run(), "another user than root may not run what is built here");
    skip_unless!(kernel_setting("perf_event_paranoid") == "2", "users may sample the kernel, or nothing");
    let place = Place::new();
    let program = place.compile("cc", "work", KERNEL_WORK, &["-O1", "-lm"]).display().to_string();
    let words = "only the program's own code is sampled: time in the kernel, for example for input and output, is not charged";
    let mut as_root = place.ampere(["run", "--sample", RARELY, "-o", "out", "--", &program]);
    let root = run(as_root.env("AMPERE_COUNTERS", "estimate"));
    let other = run(&mut as_other_user(&place, "other", &[&program]));
    assert_eq!((root.code, other.code), (23, 23), "{root:#?} {other:#?}");
    for (output, is_sampled) in [("out", true), ("other", false)] {
        let summary = json(&place.path(output).join("summary.json"));
        assert_eq!(
            !notes(&summary).iter().any(|note| note.contains(words)),
            is_sampled,
            "{:#?}",
            notes(&summary)
        );
        let rows = rows(&summary);
        let [reads, computes] = ["reads", "computes"].map(|function| joules(&rows, function));
        assert!(computes > 0.0, "{rows:#?}");
        assert_eq!(reads > 0.2 * computes, is_sampled, "{output}: {reads} J and {computes} J of {rows:#?}");
    }
}
