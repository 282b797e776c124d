//! Tiny functions: `ampere report -f scorep-filter`, and runs that leave these functions out, with the embedded host and under a
//! real Score-P.

use ampere_tests::jobs::{Done, Place, run};
use ampere_tests::runs::{compile, list, number, on_path, succeed};
use ampere_tests::skip_unless;
use serde_json::Value;
use std::path::Path;

/// Does some work, and makes three million calls of a function of a few instructions, all of them from another function. It
/// prints how long the calls took by its own clock.
const TINY: &str = r#"
#include <stdio.h>
#include <time.h>
__attribute__((noinline)) int tiny(int x) { return x + 1; }
__attribute__((noinline)) int caller(int x) { for (int i = 0; i < 1000; i++) x = tiny(x); return x; }
__attribute__((noinline)) void work(void) { for (volatile int i = 0; i < 20000000; i++); }
int main(void) {
    struct timespec from, to;
    work();
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &from);
    int x = 0;
    for (int i = 0; i < 3000; i++) x = caller(x);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &to);
    printf("%d %.9f\n", x, (to.tv_sec - from.tv_sec) + 1e-9 * (to.tv_nsec - from.tv_nsec));
    return 0;
}
"#;

fn filter_of(place: &Place, output: &str) -> String {
    let done = run(place.ampere(["report", output, "-f", "scorep-filter"]).current_dir(place.path("")));
    assert_eq!(done.code, 0, "{done:#?}");
    done.stdout
}

/// Number of calls of a function; `None` if it has no row.
fn calls(summary: &Value, region: &str) -> Option<f64> {
    let rows = list(&list(summary, "devices")[0]["views"][0], "regions");
    rows.iter().find(|row| row["region"] == region).map(|row| number(row, "calls"))
}

/// Seconds of all calls of `caller`, by the program's own clock.
fn seconds(done: &Done) -> f64 {
    assert_eq!(done.code, 0, "{done:#?}");
    let (result, seconds) = done.stdout.trim().split_once(' ').expect("two numbers");
    assert_eq!(result, "3000000", "the program does what it did");
    seconds.parse().expect("seconds")
}

#[test]
fn the_next_run_of_the_embedded_host_is_without_tiny_functions() {
    let place = Place::new();
    let program = place.compile("cc", "tiny", TINY, &["-finstrument-functions"]);
    let plain = place.compile("cc", "plain", TINY, &[]);
    let whole = seconds(&run(&mut place.ampere_run("whole", [&program])));
    assert_eq!(calls(&place.summary("whole"), "tiny"), Some(3e6));
    let table = std::fs::read_to_string(place.path("whole/summary.txt")).expect("a table");
    let table = table.split_whitespace().collect::<Vec<_>>().join(" ");
    let said = "of the time: ampere report -f scorep-filter";
    assert!(table.contains(said), "{table}");
    let filter = filter_of(&place, "whole");
    let lines: Vec<&str> = filter.lines().filter(|line| !line.trim_start().starts_with('#')).collect();
    assert_eq!(lines, ["SCOREP_REGION_NAMES_BEGIN", "  EXCLUDE tiny", "SCOREP_REGION_NAMES_END"], "{filter}");
    assert!(filter.contains("# With this filter, the next run records 99.9 % fewer calls"), "{filter}");
    place.write("tiny.filter", &filter);
    let run_filtered = |out: &str| {
        let mut command = place.ampere(["run", "-o", out, "--filter", "tiny.filter", "--"]);
        let done = run(command.arg(&program));
        done.said_nothing();
        seconds(&done)
    };
    // This takes the fastest of several runs, because other programs on the core make some of them slower.
    let filtered = run_filtered("filtered");
    let filtered = (0..4).map(|at| run_filtered(&format!("again-{at}"))).fold(filtered, f64::min);
    let summary = place.summary("filtered");
    assert_eq!((calls(&summary, "tiny"), calls(&summary, "caller")), (None, Some(3000.0)), "{summary:#}");
    assert_eq!(summary["run"]["complete"], true, "what is left out on purpose is not missing");
    let notes = summary["run"]["notes"].to_string();
    assert!(notes.contains("tiny.filter excludes are not recorded: their time and joules are in"), "{notes}");
    let table = std::fs::read_to_string(place.path("filtered/summary.txt")).expect("a table");
    assert!(!table.contains("million calls takes"), "{table}");
    let alone = seconds(&run(&mut place.command(&plain)));
    let each = |seconds: f64| 1e9 * seconds / 3e6;
    println!(
        "a call: {:.1} ns plain, {:.1} recorded, {:.1} filtered",
        each(alone),
        each(whole),
        each(filtered)
    );
    assert!(
        filtered - alone < 0.5 * (whole - alone),
        "{alone} s plain, {whole} recorded, {filtered} filtered"
    );
    place.assert_clean();
}

/// The filters name a method by its name with blanks, asterisks and brackets, functions by their mangled names, and all
/// functions of a file.
#[test]
fn names_of_cpp_files_and_mangled_names_are_filtered() {
    let place = Place::new();
    let source = r#"
        struct Point { int x; __attribute__((noinline)) int get(int *a, const char *) const { return x + *a; } };
        __attribute__((noinline)) int other(int x) { return x; }
        int main() { Point p{1}; int s = 0; for (int i = 0; i < 2000000; i++) s += p.get(&i, ""); return other(s) == 7; }
    "#;
    place.write("point.cc", source);
    let program = place.path("point");
    let mut compiler = place.command("g++");
    compiler.args(["-O1", "-g", "-finstrument-functions", "point.cc", "-o"]).arg(&program);
    succeed(&mut compiler);
    assert_eq!(run(&mut place.ampere_run("whole", [&program])).code, 0);
    let name = "Point::get(int*, char const*) const";
    assert_eq!(calls(&place.summary("whole"), name), Some(2e6), "{:#}", place.summary("whole"));
    let made = filter_of(&place, "whole");
    let of_a_file = "SCOREP_FILE_NAMES_BEGIN EXCLUDE *point.cc SCOREP_FILE_NAMES_END";
    let mangled = "SCOREP_REGION_NAMES_BEGIN EXCLUDE * MANGLED x INCLUDE MANGLED main _Z5other? SCOREP_REGION_NAMES_END";
    for (filter, left) in [(made.as_str(), 2), (mangled, 2), (of_a_file, 0)] {
        place.write("point.filter", filter);
        let mut command = place.ampere(["run", "-o", "filtered", "--filter", "point.filter", "--"]);
        assert_eq!(run(command.arg(&program)).code, 0);
        let summary = place.summary("filtered");
        let names = ["main", "other(int)", name].map(|name| calls(&summary, name));
        assert_eq!((names[2], names.iter().flatten().count()), (None, left), "{filter}: {names:?}");
        std::fs::remove_dir_all(place.path("filtered")).expect("a directory");
    }
}

/// The compiler's symbol of a module's procedure differs from its name.
#[test]
fn procedures_of_fortran_modules_are_filtered() {
    skip_unless!(on_path("gfortran"), "no gfortran");
    let place = Place::new();
    let source = "module work\ncontains\n  subroutine tiny(x)\n    integer, intent(inout) :: x\n    x = x + 1\n  end subroutine\n\
                  end module\nprogram main\n  use work\n  integer :: i, x = 0\n  do i = 1, 2000000\n    call tiny(x)\n  end do\n\
                  print *, x\nend program\n";
    place.write("work.f90", source);
    let mut compiler = place.command("gfortran");
    succeed(compiler.args(["-O1", "-fno-inline", "-finstrument-functions", "work.f90", "-o", "work"]));
    assert_eq!(run(&mut place.ampere_run("whole", ["./work"])).code, 0);
    assert_eq!(calls(&place.summary("whole"), "work::tiny"), Some(2e6), "{:#}", place.summary("whole"));
    let made = filter_of(&place, "whole");
    let symbols = "  EXCLUDE work::tiny __work_MOD_tiny _QMworkPtiny work_mp_tiny_\n";
    assert!(made.contains(symbols), "{made}");
    place.write("tiny.filter", &made);
    let mut command = place.ampere(["run", "-o", "filtered", "--filter", "tiny.filter", "--", "./work"]);
    assert_eq!(run(&mut command).code, 0);
    assert_eq!(calls(&place.summary("filtered"), "work::tiny"), None);
}

#[test]
fn an_invalid_filter_is_refused_before_anything_starts() {
    let place = Place::new();
    let program = place.instrumented();
    place.write("wrong", "SCOREP_REGION_NAMES_BEGIN\n  EXCLUDE work\n");
    place.write("words", "work\n");
    for (file, words) in [
        ("absent", "cannot read absent: No such file"),
        ("wrong", "wrong is not a Score-P filter file: line 2: there is no SCOREP_REGION_NAMES_END"),
        (
            "words",
            "line 1: \"work\": SCOREP_FILE_NAMES_BEGIN or SCOREP_REGION_NAMES_BEGIN must start a block",
        ),
    ] {
        let done = run(place.ampere(["run", "-o", "out", "--filter", file, "--"]).arg(&program));
        assert_eq!((done.code, done.stdout.as_str()), (1, ""), "{done:#?}");
        done.said_once(&[words]);
        assert!(!place.path("out").exists(), "{file}");
    }
    // Without `ampere run`, the program is already running when the filter is read: it is measured as a whole.
    let done = run(place.bare("bare", &program).env("SCOREP_FILTERING_FILE", place.path("words")));
    done.as_without(&run(&mut place.command(&program)));
    done.said_once(&["all functions are recorded", "words: line 1"]);
    assert_eq!(calls(&place.summary("bare"), "work"), Some(3.0));
    place.assert_clean();
}

/// Score-P itself reads the file.
#[test]
fn the_next_run_under_score_p_is_without_tiny_functions() {
    skip_unless!(on_path("scorep"), "no scorep on the PATH");
    let place = Place::new();
    let program = compile(&place, &["scorep", "gcc", "-O1"], "tiny", TINY);
    let under_score_p = |output: &str, filter: Option<&Path>| {
        let mut command = place.ampere(["run", "-o", output]);
        command.env("SCOREP_ENABLE_PROFILING", "false").env("SCOREP_ENABLE_TRACING", "false");
        command.args(filter.iter().flat_map(|filter| [Path::new("--filter"), filter]));
        let done = run(command.arg("--").arg(&program));
        assert_eq!(place.summary(output)["run"]["host"], "score-p", "{done:#?}");
        seconds(&done)
    };
    let whole = under_score_p("whole", None);
    assert_eq!(calls(&place.summary("whole"), "tiny"), Some(3e6));
    let filter = filter_of(&place, "whole");
    assert!(filter.contains("  EXCLUDE tiny\n") && filter.contains("at 75 ns per call"), "{filter}");
    let file = place.write("tiny.filter", &filter);
    let filtered = under_score_p("filtered", Some(&file));
    let summary = place.summary("filtered");
    assert_eq!((calls(&summary, "tiny"), calls(&summary, "caller")), (None, Some(3000.0)), "{summary:#}");
    println!("a call: {:.1} ns recorded, {:.1} filtered", 1e9 * whole / 3e6, 1e9 * filtered / 3e6);
    assert!(filtered < 0.5 * whole, "{whole} s, {filtered} s");
    // A method's name has blanks and brackets, and Score-P must read it as one word.
    let source = "struct Point { int x; __attribute__((noinline)) int get(int *a, const char *) const { return x + *a; } };\n\
                  int main() { Point p{1}; int s = 0; for (int i = 0; i < 2000000; i++) s += p.get(&i, \"\"); return s == 7; }\n";
    place.write("point.cc", source);
    let mut compiler = place.command("scorep");
    succeed(compiler.args(["g++", "-O1", "-g", "point.cc", "-o", "point"]));
    let summary_of = |output: &str, more: &[&str]| {
        let mut command = place.ampere(["run", "-o", output]);
        command.args(more).args(["--", "./point"]).env("SCOREP_ENABLE_PROFILING", "false");
        assert_eq!(run(&mut command).code, 0);
        place.summary(output)
    };
    let whole = summary_of("point-whole", &[]);
    let regions = list(&list(&whole, "devices")[0]["views"][0], "regions");
    let name = regions.iter().find(|row| number(row, "calls") == 2e6).expect("a method");
    let name = name["region"].as_str().expect("a name").to_owned();
    assert!(name.contains(' '), "{name}");
    place.write("point.filter", &filter_of(&place, "point-whole"));
    let without = summary_of("point-filtered", &["--filter", "point.filter"]);
    assert_eq!((calls(&without, &name), calls(&without, "main")), (None, Some(1.0)), "{name}");
    place.assert_clean();
}
