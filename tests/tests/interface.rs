//! ampere's own interface: regions, marks and units of work of programs in C, C++, Fortran and Python, and what wrong use does.

use ampere_tests::counting_program::total_calls;
use ampere_tests::jobs::{Place, have, run};
use ampere_tests::runs::{attribute, list, number, on_path, ranges, succeed};
use ampere_tests::{root, skip_unless};
use serde_json::Value;
use std::path::PathBuf;
use std::process::Command;

fn interface() -> String {
    root().join("interface").display().to_string()
}

/// Compiles a C program that uses the interface.
fn compiled(place: &Place, compiler: &str, name: &str, body: &str, options: &[&str]) -> PathBuf {
    let include = format!("-I{}", interface());
    place.compile(
        compiler,
        name,
        &format!("#include <ampere.h>\n{body}"),
        &[&[include.as_str()], options].concat(),
    )
}

/// Runs a program under ampere. Its output and status must be as without ampere. Returns the summary.
fn measured(place: &Place, output: &str, words: &[&str]) -> Value {
    let without = run(place.command(words[0]).args(&words[1..]));
    let done = run(&mut place.ampere_run(output, words));
    assert_eq!((done.code, &done.stdout), (without.code, &without.stdout), "{done:#?}");
    place.summary(output)
}

fn units(summary: &Value, name: &str) -> f64 {
    let work = list(&summary["run"], "work").iter().find(|work| work["name"] == name);
    work.map_or(0.0, |work| number(work, "units"))
}

#[test]
fn the_example_has_its_regions_and_steps_in_each_of_four_languages() {
    skip_unless!(on_path("gfortran"), "no gfortran");
    let place = Place::new();
    let folder = root().join("examples/regions");
    std::fs::create_dir(place.path("build")).expect("a directory");
    let build = place.path("build").display().to_string();
    let mut make = Command::new("make");
    make.arg("-C")
        .arg(&folder)
        .arg(format!("BUILD={build}"))
        .env_remove("MAKEFLAGS")
        .env("TMPDIR", place.path("tmp"));
    succeed(&mut make);
    let script = folder.join("regions.py").display().to_string();
    let python = [
        "env".to_owned(),
        format!("PYTHONPATH={}", interface()),
        "PYTHONDONTWRITEBYTECODE=1".to_owned(),
        "python3".to_owned(),
        script,
    ];
    let programs = ["regions_c", "regions_cpp", "regions_f90"].map(|name| vec![format!("{build}/{name}")]);
    for (at, words) in programs.into_iter().chain([python.to_vec()]).enumerate() {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let summary = measured(&place, &format!("out{at}"), &words);
        let calls = ["assemble", "solve", "start"].map(|region| total_calls(&summary, region));
        assert_eq!(calls, [20, 20, 1], "{words:?}");
        assert_eq!(units(&summary, "steps"), 20.0, "{words:?}");
        assert_eq!(summary["run"]["complete"], true, "{}", summary["run"]);
    }
    place.assert_clean();
}

#[test]
fn regions_contain_the_recorded_functions_that_are_called_in_them() {
    let place = Place::new();
    let example = std::fs::read_to_string(root().join("examples/regions/regions.c")).expect("a program");
    let options = ["-O1", "-finstrument-functions", "-lm", "-ldl"];
    let program = compiled(&place, "cc", "recorded", &example, &options).display().to_string();
    let summary = measured(&place, "out", &[&program]);
    let table = run(&mut place.ampere(["report", "out", "-f", "csv"]));
    for region in ["assemble", "solve"] {
        assert!(table.stdout.contains(&format!(",main > {region} > grow,grow,20,")), "{}", table.stdout);
    }
    assert_eq!(total_calls(&summary, "ampere_region_begin"), 0);
    place.assert_clean();
}

/// A program with each kind of wrong use of the interface.
const WRONG: &str = r#"
    #include <math.h>
    #include <pthread.h>
    #include <stdio.h>
    #include <string.h>
    #include <sys/wait.h>
    #include <unistd.h>
    static void *other_thread(void *unused) {
        ampere_region_end("around_all");
        ampere_region_begin("of_thread");
        ampere_work("of_threads", 1);
        return unused;
    }
    int main(void) {
        char name[64] = "reused_first";
        ampere_region_begin("around_all");
        ampere_region_begin(name);
        strcpy(name, "reused_second");
        ampere_region_begin(name);
        ampere_region_end(name);
        ampere_region_end("reused_first");
        memset(name, 0, sizeof name);
        ampere_region_begin(NULL);
        ampere_region_end(NULL);
        ampere_region_begin("");
        ampere_region_end("");
        ampere_mark(NULL);
        ampere_region_end("never_begun");
        // Interleaved: the end of the outer one ends both.
        ampere_region_begin("outer");
        ampere_region_begin("inner");
        ampere_region_end("outer");
        ampere_region_end("inner");
        ampere_region_begin("after");
        ampere_region_end("after");
        pthread_t thread;
        pthread_create(&thread, NULL, other_thread, NULL);
        pthread_join(thread, NULL);
        const double wrong[] = {0, -1, NAN, INFINITY, -INFINITY};
        for (int at = 0; at < 5; at++) ampere_work("good", wrong[at]);
        ampere_work("good", 2.5);
        ampere_work(NULL, 3);
        if (fork() == 0) {
            ampere_region_begin("in_child");
            ampere_work("good", 0.5);
            ampere_work("of_child", 4);
            ampere_region_end("in_child");
            _exit(0);
        }
        wait(NULL);
        ampere_region_begin("last");
        puts("done");
        return 3;
    }
"#;

#[test]
fn wrong_use_loses_nothing_else_and_is_counted() {
    let place = Place::new();
    let program = compiled(&place, "cc", "wrong", WRONG, &["-pthread"]).display().to_string();
    let done = run(place.ampere_run("out", [&program]).env("AMPERE_LOCATIONS", "all"));
    done.no_panic();
    assert_eq!((done.code, done.stdout.as_str()), (3, "done\n"), "{done:#?}");
    let summary = place.summary("out");
    for region in
        ["around_all", "reused_first", "reused_second", "outer", "inner", "after", "last", "of_thread"]
    {
        assert_eq!(total_calls(&summary, region), 1, "{region}");
    }
    assert_eq!(total_calls(&summary, "(range)"), 3, "names that are null or empty");
    for region in ["never_begun", "in_child"] {
        assert_eq!(total_calls(&summary, region), 0, "{region}");
    }
    let counted = ["good", "of_child", "of_threads", "(work)"].map(|name| units(&summary, name));
    assert_eq!(counted, [3.0, 4.0, 1.0, 3.0]);
    let notes = summary["run"]["notes"].to_string();
    assert!(notes.contains("units of work of 5 calls are not counted"), "{notes}");
    place.assert_clean();
}

/// As in Python's multiprocessing, where a pool ends its processes by a signal.
#[test]
fn children_count_that_are_forked_before_the_first_call() {
    let place = Place::new();
    let script = "import os, signal\nimport ampere\n\
        for number in range(3):\n  if os.fork() == 0:\n    ampere.work('parts', 2)\n    os.kill(os.getpid(), signal.SIGTERM)\n  \
        os.wait()\n";
    let command = ["python3", "-c", script];
    let done = run(place.ampere_run("out", command).env("PYTHONPATH", root().join("interface")));
    done.no_panic();
    assert_eq!(done.code, 0, "{done:#?}");
    assert_eq!(units(&place.summary("out"), "parts"), 6.0);
    place.assert_clean();
}

/// Ranges that overlap, end on another thread, twice, or not at all.
const ACROSS: &str = r#"
    #include <pthread.h>
    #include <stdio.h>
    #include <sys/wait.h>
    #include <unistd.h>
    static unsigned long long first, second, open;
    static void *other_thread(void *unused) {
        ampere_range_end(first);
        ampere_range_end(first);
        return unused;
    }
    int main(void) {
        first = ampere_range_start("transfer");
        second = ampere_range_start("transfer");
        open = ampere_range_start("not ended");
        usleep(20000);
        pthread_t thread;
        pthread_create(&thread, NULL, other_thread, NULL);
        pthread_join(thread, NULL);
        ampere_range_end(second);
        ampere_range_end(0);
        ampere_range_end(open + 1000);
        ampere_range_end(ampere_range_start(NULL));
        for (int at = 0; at < 100000; at++) ampere_range_end(ampere_range_start("many"));
        if (fork() == 0) {
            ampere_range_end(open);
            ampere_range_end(ampere_range_start("transfer"));
            _exit(0);
        }
        wait(NULL);
        puts("done");
        return 0;
    }
"#;

#[test]
fn ranges_that_overlap_and_end_on_other_threads_are_counted_and_timed() {
    let place = Place::new();
    let program = compiled(&place, "cc", "across", ACROSS, &["-pthread"]).display().to_string();
    let summary = measured(&place, "out", &[&program]);
    let expected = [("(range)", 1, 0), ("many", 100_000, 0), ("not ended", 0, 1), ("transfer", 3, 0)];
    let own = |(name, count, open): (&str, _, _)| ("ampere.h".to_owned(), name.to_owned(), count, open);
    assert_eq!(ranges(&summary), expected.map(own));
    let transfers = &list(&summary["run"], "ranges")[3];
    assert!((0.04..10.0).contains(&number(transfers, "seconds")), "{transfers}");
    let text = std::fs::read_to_string(place.path("out/summary.txt")).expect("summary.txt");
    for words in ["3 of transfer (ampere.h)   ", "0 of not ended (ampere.h)   1 not ended"] {
        assert!(text.contains(words), "{words}: {text}");
    }
    let page = std::fs::read_to_string(place.path("out/report.html")).expect("report.html");
    assert!(page.contains("Ranges: 3 of transfer (ampere.h), "), "the page has them");
    let trace = place.path("out/traces.otf2");
    assert_eq!(attribute(&trace, &[])["run"]["ranges"], summary["run"]["ranges"]);
    succeed(place.ampere(["replay", "--speed", "100", "-o", "replayed"]).arg(&trace));
    assert_eq!(place.summary("replayed")["run"]["ranges"], summary["run"]["ranges"]);
    place.assert_clean();
}

#[test]
fn ranges_of_python_and_fortran_are_counted() {
    skip_unless!(on_path("gfortran"), "no gfortran");
    let place = Place::new();
    let source = "program main\n  use ampere\n  use, intrinsic :: iso_c_binding\n  integer(c_int64_t) :: one, two\n  \
        one = ampere_range_start('one ')\n  two = ampere_range_start('two')\n  call ampere_range_end(one)\n  \
        call ampere_range_end(two)\nend program\n";
    let (main, program) = (place.write("main.f90", source), place.path("fortran"));
    let mut compile = Command::new("gfortran");
    compile.arg(format!("-J{}", place.path("").display())).arg("-o").arg(&program);
    succeed(compile.arg(root().join("interface/ampere.f90")).arg(main).arg("-ldl"));
    let script = "import ampere, threading\none = ampere.range_start('one')\ntwo = ampere.range_start('two')\n\
        thread = threading.Thread(target=ampere.range_end, args=[one])\nthread.start()\nthread.join()\nampere.range_end(two)\n";
    let path = format!("PYTHONPATH={}", interface());
    let expected = ["one", "two"].map(|name| ("ampere.h".to_owned(), name.to_owned(), 1, 0));
    let program = program.display().to_string();
    let python = ["env", &path, "PYTHONDONTWRITEBYTECODE=1", "python3", "-c", script];
    for (at, words) in [&[program.as_str()][..], &python].into_iter().enumerate() {
        assert_eq!(ranges(&measured(&place, &format!("out{at}"), words)), expected, "{words:?}");
    }
    place.assert_clean();
}

/// The library of an older installation has a shorter table of functions.
#[test]
fn a_library_without_ranges_gets_no_call_of_them() {
    let place = Place::new();
    let library = "static void named(const char *name) { (void)name; }
        static void work(const char *name, double units) { (void)name; (void)units; }
        static void *functions[5] = { named, named, named, work, (void *)1 };
        const void *ampere_interface(unsigned version) { return version == 1 ? functions : 0; }";
    let library = place.compile("cc", "libold.so", library, &["-shared", "-fPIC", "-w"]);
    let body = "#include <stdio.h>\nint main(void) { ampere_range_end(ampere_range_start(\"a\")); ampere_mark(\"b\"); puts(\"done\"); }";
    let program = compiled(&place, "cc", "new", body, &[]);
    let script = "import ampere; ampere.range_end(ampere.range_start('a')); ampere.mark('b'); print('done')";
    let mut python = place.command("python3");
    python.args(["-c", script]).env("PYTHONPATH", interface()).env("PYTHONDONTWRITEBYTECODE", "1");
    for command in [&mut place.command(&program), &mut python] {
        let done = run(command.env("AMPERE_INTERFACE", &library));
        assert_eq!((done.code, done.stdout.as_str()), (0, "done\n"), "{done:#?}");
    }
}

#[test]
fn a_million_calls_of_several_threads_are_all_counted_even_if_the_program_is_killed() {
    let place = Place::new();
    let body = r#"
        #include <pthread.h>
        #include <signal.h>
        static void *count(void *unused) {
            for (int at = 0; at < 250000; at++) ampere_work(at % 2 ? "odd" : "even", 1);
            return unused;
        }
        int main(void) {
            pthread_t threads[4];
            for (int at = 0; at < 4; at++) pthread_create(&threads[at], 0, count, 0);
            for (int at = 0; at < 4; at++) pthread_join(threads[at], 0);
            raise(SIGKILL);
        }
    "#;
    let program = compiled(&place, "cc", "many", body, &["-pthread"]).display().to_string();
    let summary = measured(&place, "out", &[&program]);
    assert_eq!(["odd", "even"].map(|name| units(&summary, name)), [500_000.0, 500_000.0]);
}

/// The collector finds the counters and the program's work at the same time, after the program has ended.
#[test]
fn a_program_that_ends_at_once_has_its_units() {
    let place = Place::new();
    let body = "int main(void) { ampere_work(\"steps\", 3); return 0; }";
    let program = compiled(&place, "cc", "short", body, &[]).display().to_string();
    for round in 0..5 {
        let summary = measured(&place, &format!("out{round}"), &[&program]);
        assert_eq!(units(&summary, "steps"), 3.0);
    }
}

#[test]
fn a_hundred_thousand_names_are_regions_and_work_as_far_as_there_is_room() {
    let place = Place::new();
    let body = r#"
        #include <stdio.h>
        int main(void) {
            char name[32];
            for (int at = 0; at < 100000; at++) {
                sprintf(name, "name %d", at);
                ampere_region_begin(name);
                ampere_work(name, 1);
                ampere_region_end(name);
            }
            ampere_work("name 0", 1);
            return 0;
        }
    "#;
    let program = compiled(&place, "cc", "names", body, &[]).display().to_string();
    let summary = measured(&place, "out", &[&program]);
    let named = (0..4096).map(|at| total_calls(&summary, &format!("name {at}"))).sum::<u64>();
    assert_eq!(named + total_calls(&summary, "(other ranges)"), 100_000);
    assert_eq!(units(&summary, "name 0"), 2.0);
    let work = list(&summary["run"], "work");
    let total: f64 = work.iter().map(|work| number(work, "units")).sum();
    let left_out = 100_001 - total as u64;
    let notes = summary["run"]["notes"].to_string();
    assert!(
        left_out > 90_000 && notes.contains(&format!("units of work of {left_out} calls are not counted")),
        "{notes}"
    );
}

#[test]
fn calls_before_mpi_starts_and_after_it_has_ended_are_recorded() {
    if !have(&["mpirun", "mpicc"]) {
        return;
    }
    let place = Place::new();
    let body = r#"
        #include <mpi.h>
        int main(int argc, char **argv) {
            ampere_work("early", 1);
            ampere_region_begin("before_init");
            ampere_region_end("before_init");
            MPI_Init(&argc, &argv);
            ampere_region_begin("within");
            MPI_Barrier(MPI_COMM_WORLD);
            ampere_region_end("within");
            MPI_Finalize();
            ampere_region_begin("after_finalize");
            ampere_region_end("after_finalize");
            ampere_work("late", 1);
            return 0;
        }
    "#;
    let program = compiled(&place, "mpicc", "with_mpi", body, &[]).display().to_string();
    let summary = measured(&place, "out", &["mpirun", "--oversubscribe", "-n", "2", &program]);
    assert_eq!(
        ["before_init", "within", "MPI_Barrier"].map(|region| total_calls(&summary, region)),
        [2, 2, 2]
    );
    assert_eq!(["early", "late"].map(|name| units(&summary, name)), [2.0, 2.0]);
    assert_eq!(list(&summary["run"]["mpi"], "ranks").len(), 2);
}

#[test]
fn a_statically_linked_program_runs_as_without() {
    let place = Place::new();
    let body = r#"
        #include <stdio.h>
        int main(void) {
            ampere_region_begin("static");
            ampere_work("static", 1);
            puts("done");
            return 0;
        }
    "#;
    for options in [&["-static"][..], &["-static-pie", "-fPIE"]] {
        let program = compiled(&place, "cc", "static", body, options).display().to_string();
        let done = run(&mut place.ampere_run("out", [&program]));
        assert_eq!((done.code, done.stdout.as_str()), (0, "done\n"), "{done:#?}");
        assert!(place.summary("out")["run"].get("work").is_none());
        std::fs::remove_dir_all(place.path("out")).expect("its results");
    }
}
