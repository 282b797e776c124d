//! Regions that programs mark for tools: they are frames, and the program behaves as without the library.

mod common;

use common::{Bench, Log, must, ok};
use std::path::PathBuf;
use std::process::Command;

impl Bench {
    /// Compiles a file of `programs` to a library.
    fn tool(&self, source: &str) -> PathBuf {
        let out = self.path("libtool.so");
        must(Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&out).arg(common::program(source)));
        out
    }

    /// Runs a program whose library for tools is the preloaded one, as under `ampere run`.
    fn marked(&self, variable: &str, program: &PathBuf) -> Command {
        let mut command = self.command(program);
        command.env(variable, self.preload());
        command
    }

    /// Returns the log of the only process.
    fn only_log(&self) -> Log {
        let mut logs = self.logs();
        assert_eq!(logs.len(), 1);
        let log = logs.remove(0);
        log.check();
        log
    }
}

const KOKKOS: &str = "KOKKOS_TOOLS_LIBS";

fn kokkos() -> (Bench, PathBuf) {
    let bench = Bench::new();
    let program = bench.compile("cc", &["-O1", "-ldl", "-lpthread"], "kokkos.c");
    (bench, program)
}

#[test]
fn what_kokkos_reports_to_a_tool_is_frames_and_kokkos_does_not_wait_for_the_device() {
    let (bench, program) = kokkos();
    let (said, errors) = ok(&mut bench.marked(KOKKOS, &program));
    assert!(said.ends_with("fencing 0\nsections 1\n") && errors.is_empty(), "{said}{errors}");
    let log = bench.only_log();
    let events = log.events(0).join(" ");
    let steps = "+axpy -axpy +dot +dot: fence -dot: fence -dot +sum -sum \
                 +deep_copy(x, x_mirror) -deep_copy(x, x_mirror)";
    assert_eq!(events, format!("+kokkos.c.out +step {steps} -step"), "{log}");
}

#[test]
fn a_tool_of_the_user_gets_the_calls_that_it_gets_without_ampere() {
    let (bench, program) = kokkos();
    let tool = bench.tool("kokkos_tool.c");
    let plain = ok(Command::new(&program).env(KOKKOS, &tool));
    assert!(plain.0.contains("tool: begin axpy 0\ntool: end 41\n"), "{}", plain.0);
    assert!(
        plain.0.contains("tool: create net\ntool: start 71\ntool: start 72\ntool: stop 71\n"),
        "{}",
        plain.0
    );
    assert!(plain.0.contains("begin_fence 0\n") && plain.0.contains("fencing 1\n"), "{}", plain.0);
    assert_eq!(ok(bench.command(&program).env(KOKKOS, &tool)), plain);
    assert_eq!(bench.only_log().events(0).join(" "), "+kokkos.c.out +step +axpy -axpy -step");
}

#[test]
fn bad_marks_change_neither_the_program_nor_other_frames() {
    let (bench, program) = kokkos();
    ok(bench.marked(KOKKOS, &program).arg("bad"));
    let log = bench.only_log();
    let start = "+kokkos.c.out +first -first +outer +crossing -crossing -outer +(range) +(range) -(range) -(range) \
                 +left open -left open +name 0 -name 0";
    assert!(log.events(0).join(" ").starts_with(start), "{}", log.events(0)[..20].join(" "));
    assert_eq!(log.events(1).join(" "), "+in a thread -in a thread");
    // Six names come before: those of the five ranges above, and that of the range in the thread.
    assert_eq!(log.enters("(other ranges)"), 100_000 - (4096 - 6), "names are compared by their text");
    let definitions = log.lines.iter().filter(|line| line.contains("'(other ranges)' canonical")).count();
    assert_eq!(definitions, 1);
    assert_eq!((log.enters("in the child"), log.enters("after the end")), (0, 0));
}

#[test]
fn without_a_measurement_kokkos_finds_no_hook_and_says_nothing() {
    let (bench, program) = kokkos();
    let without = ok(Command::new(&program).env_remove(KOKKOS));
    let preload = bench.preload();
    // The variable is set, but the library is not preloaded, or ampere is switched off.
    assert_eq!(ok(Command::new(&program).env(KOKKOS, &preload)), without);
    assert_eq!(ok(bench.marked(KOKKOS, &program).env("AMPERE_DISABLE", "1")), without);
    assert!(bench.logs().is_empty());
}

const ITT: &str = "INTEL_LIBITTNOTIFY64";

#[test]
fn tasks_of_itt_are_frames_and_its_other_functions_are_left_alone() {
    let bench = Bench::new();
    let program = bench.compile("cc", &["-O1", "-w", "-ldl"], "itt.c");
    let (said, errors) = ok(&mut bench.marked(ITT, &program));
    assert_eq!((said.as_str(), errors.as_str()), ("1 1 1 1 two load\n", ""));
    let round = "+step +load +(task) -(task) -load -step";
    let events = bench.only_log().events(0).join(" ");
    assert_eq!(events, format!("+itt.c.out {round} {round} +(range) -(range)"));
    // An older static part has another table.
    let old = bench.marked(ITT, &program).arg("20101001").status().unwrap();
    assert_eq!(old.code(), Some(4));
}

/// PyTorch opens its libraries, which mark ranges with AMD's library.
#[test]
fn ranges_of_roctx_in_an_opened_library_are_frames() {
    let bench = Bench::new();
    let [roctx, module] = ["libroctx64.so", "libmodule.so"].map(|name| bench.path(name));
    let source = bench.path("roctx.c");
    let text = "static int depth; int roctxRangePushA(const char *text) { (void)text; return depth++; }\n\
                int roctxRangePop(void) { return --depth; }\n\
                void roctxMarkA(const char *text) { depth += text[0] == 's'; }\n\
                unsigned long long roctxRangeStartA(const char *text) { return 40 + text[0]; }\n\
                void roctxRangeStop(unsigned long long range) { depth += range == 40 + 'a'; }\n";
    std::fs::write(&source, text).unwrap();
    let library = ["-shared", "-fPIC", "-w", "-o"];
    must(Command::new("cc").args(library).arg(&roctx).arg(&source));
    let rpath = format!("-Wl,-rpath,{}", bench.dir.path().display());
    must(
        Command::new("cc")
            .args(library)
            .arg(&module)
            .arg(common::program("roctx_module.c"))
            .arg(&roctx)
            .arg(rpath),
    );
    let open = "import ctypes, sys; print(ctypes.CDLL(sys.argv[1]).work())";
    let (said, _) = ok(bench.command("python3").args(["-c", open]).arg(&module));
    assert_eq!(said, "22\n");
    let log = bench.only_log();
    assert_eq!(log.events(0)[1..].join(" "), "+start -start +forward -forward", "{log}");
}

const OPENMP: &str = "OMP_TOOL_LIBRARIES";

#[test]
fn what_openmp_reports_to_a_tool_is_frames() {
    let bench = Bench::new();
    let program = bench.compile("cc", &["-O1", "-w", "-ldl"], "ompt.c");
    assert_eq!(ok(&mut bench.marked(OPENMP, &program)), ("active 1\n".to_owned(), String::new()));
    let task = "+omp task in main";
    let inner = "+omp task in main -omp task in main";
    let wait = "omp implicit barrier wait";
    let expected = format!(
        "+ompt.c.out +omp parallel in main +{wait} {task} +omp taskwait wait {inner} {inner} \
         -omp taskwait wait -omp task in main -{wait} -omp parallel in main \
         +omp parallel in main +omp barrier wait -omp barrier wait -omp parallel in main \
         +omp target in main -omp target in main"
    );
    assert_eq!(bench.only_log().events(0).join(" "), expected);
    let off = ok(bench.marked(OPENMP, &program).env("AMPERE_DISABLE", "1"));
    assert_eq!(off.0, "no tool\n");
}

const REAL_OPENMP: &str = "#include <omp.h>
volatile double sums[2];
__attribute__((noinline)) void solve(void) {
    #pragma omp parallel num_threads(2)
    {
        for (int i = 0; i < 1000; i++) sums[omp_get_thread_num()] += i;
        #pragma omp barrier
    }
}
int main(void) { for (int i = 0; i < 3; i++) solve(); return 0; }";

#[test]
fn parallel_regions_of_llvms_openmp_are_frames_of_each_thread() {
    let bench = Bench::new();
    let (source, program) = (bench.path("parallel.c"), bench.path("parallel"));
    std::fs::write(&source, REAL_OPENMP).unwrap();
    let compile = Command::new("clang").args(["-fopenmp=libomp", "-o"]).arg(&program).arg(&source).output();
    if !compile.is_ok_and(|done| done.status.success()) {
        println!("skipped: no clang with OpenMP");
        return;
    }
    ok(&mut bench.marked(OPENMP, &program));
    let log = bench.only_log();
    // Three on the first thread, which encounters the region, and three on the other one.
    assert_eq!(log.enters("omp parallel in solve"), 6, "{log}");
    assert_eq!(log.enters("omp barrier wait"), 6, "{log}");
}
