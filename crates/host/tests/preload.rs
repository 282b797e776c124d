//! The preloaded library: a program behaves as without it, and its calls are recorded however they are made.

mod common;

use common::{Bench, MPICH, have, must, ok};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// Exit status, standard output and standard error.
fn outcome(command: &mut Command) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    (status.code(), text(stdout), text(stderr))
}

/// Returns the same command without the preloaded library.
fn without(command: &Command) -> Command {
    let mut plain = Command::new(command.get_program());
    plain.args(command.get_args()).current_dir(command.get_current_dir().unwrap());
    for (name, value) in command.get_envs().filter(|(name, _)| *name != "LD_PRELOAD") {
        match value {
            Some(value) => plain.env(name, value),
            None => plain.env_remove(name),
        };
    }
    plain
}

/// Runs a command without and with the preloaded library, checks that the outcome is the same, and returns standard output.
fn same(command: &mut Command) -> String {
    let plain = outcome(&mut without(command));
    let measured = outcome(command);
    assert_eq!(measured, plain, "{command:?}");
    measured.1
}

impl Bench {
    fn source(&self, name: &str, text: &str) -> PathBuf {
        std::fs::write(self.path(name), text).unwrap();
        self.path(name)
    }

    /// Compiles a source text to a program with this name.
    fn build(&self, compiler: &str, name: &str, options: &[&str], text: &str) -> PathBuf {
        let (source, out) = (self.source(&format!("{name}.c"), text), self.path(name));
        must(Command::new(compiler).arg(&source).arg("-o").arg(&out).args(options).current_dir(&self.dir));
        out
    }

    /// Compiles a file of `programs` to a library in this directory.
    fn library(&self, name: &str, options: &[&str], source: &str) -> PathBuf {
        let out = self.path(name);
        let mut compile = Command::new("cc");
        compile.args(["-shared", "-fPIC", "-O1", "-w"]).arg(common::program(source)).arg("-o").arg(&out);
        must(compile.args(options).current_dir(&self.dir));
        out
    }

    /// Returns the program that calls the little MPI library, linked with these options.
    fn calls(&self, options: &[&str]) -> PathBuf {
        let rpath = format!("-Wl,-rpath,{}", self.dir.path().display());
        let mut all = vec!["-w", "-L.", "-llittle_mpi", &rpath];
        all.extend(options);
        self.compile("cc", &all, "little_calls.c")
    }

    fn mpi_calls(&self, name: &str) -> usize {
        self.logs().iter().map(|log| log.enters(name)).sum()
    }
}

fn little(options: &[&str]) -> Bench {
    let bench = Bench::new();
    bench.library("liblittle_mpi.so", options, "little_mpi.c");
    bench
}

/// Returns the path of the preloaded library for 64-bit programs.
fn built() -> PathBuf {
    Path::new(ampere_preload::BUILT).join(ampere_preload::NATIVE).join(ampere_preload::FILE)
}

#[test]
fn the_preloaded_library_needs_no_library_and_exports_two_names() {
    let (of, _) = ok(Command::new("readelf").arg("-dW").arg(built()));
    assert!(!of.contains("NEEDED") && !of.contains("VERNEED") && !of.contains("VERDEF"), "{of}");
    let (names, _) = ok(Command::new("nm").args(["-D", "--defined-only", "-j"]).arg(built()));
    assert_eq!(names.trim(), "__asan_default_options\nrocprofiler_set_api_table");
    let (needed, _) = ok(Command::new("nm").args(["-D", "--undefined-only"]).arg(built()));
    assert!(needed.lines().all(|line| line.trim_start().starts_with("w ")), "{needed}");
}

/// The number of pages comes from the kernel. One program is an ordinary one, the other an interpreter.
#[test]
fn a_process_with_nothing_to_measure_maps_few_more_pages() {
    let bench = Bench::new();
    let pages = |command: &mut Command| -> i64 {
        let (out, _) = ok(command);
        out.split_whitespace().next().unwrap().parse().unwrap()
    };
    let python = "import ctypes, json; print(open('/proc/self/statm').read())";
    for words in [vec!["cat", "/proc/self/statm"], vec!["python3", "-c", python]] {
        if !have(&words[..1]) {
            continue;
        }
        let mut command = bench.command(words[0]);
        command.args(&words[1..]);
        let (plain, measured) = (pages(&mut without(&command)), pages(&mut command));
        // On AArch64, the two segments are 64 KiB apart, the size of the largest page.
        let most = if cfg!(target_arch = "aarch64") { 40 } else { 16 };
        assert!(measured - plain <= most, "{words:?}: {plain} and {measured} pages");
    }
}

const WEAK: &str = "#include <stdio.h>
extern int MPI_Init(int *, char ***) __attribute__((weak));
extern void mpi_init_(int *) __attribute__((weak));
extern int roctxRangePushA(const char *) __attribute__((weak));
int main(int c, char **v) {
    if (mpi_init_ || roctxRangePushA) return 5;
    if (MPI_Init) { puts(\"parallel\"); return MPI_Init(&c, &v) ? 3 : 0; }
    puts(\"serial\");
    return 0;
}";

#[test]
fn a_weak_reference_to_mpi_stays_null_without_mpi() {
    let bench = Bench::new();
    for (name, options) in [("lazy", ["-Wl,-z,lazy"]), ("now", ["-Wl,-z,now"]), ("fixed", ["-no-pie"])] {
        let program = bench.build("cc", name, &options, WEAK);
        assert_eq!(same(&mut bench.command(&program)), "serial\n");
    }
    assert!(bench.logs().is_empty());
}

/// However the program is linked and bound, its output is the same and each call is recorded once.
#[test]
fn calls_are_recorded_however_they_are_bound() {
    let ways: [&[&str]; 9] = [
        &["-Wl,-z,lazy", "-Wl,-z,norelro"],
        &["-Wl,-z,lazy", "-Wl,-z,relro"],
        &["-Wl,-z,now", "-Wl,-z,relro"],
        &["-no-pie", "-fno-pic", "-Wl,-z,lazy"],
        &["-no-pie", "-fno-pic", "-Wl,-z,now"],
        &["-fno-plt", "-Wl,-z,now"],
        &["-fno-plt", "-fPIC", "-Wl,-z,lazy"],
        &["-Wl,--hash-style=sysv"],
        &["-Wl,--hash-style=gnu", "-rdynamic"],
    ];
    for options in ways {
        let bench = little(&[]);
        let program = bench.calls(options);
        let out = same(&mut bench.command(&program));
        assert_eq!(out, "sent 5, count 0 0, same 1, absent 1\n", "{options:?}");
        assert_eq!((bench.mpi_calls("MPI_Barrier"), bench.mpi_calls("MPI_Send")), (5, 1), "{options:?}");
        assert_eq!((bench.mpi_calls("MPI_Init"), bench.mpi_calls("MPI_Finalize")), (1, 1), "{options:?}");
    }
}

/// This includes `LD_BIND_NOW`, `-Bsymbolic`, functions that are chosen when they are bound, and libraries with System V hash
/// tables alone.
#[test]
fn calls_are_recorded_whatever_the_library_is_like() {
    let ways: [&[&str]; 4] =
        [&["-Wl,-Bsymbolic"], &["-DWITH_IFUNC"], &["-Wl,--hash-style=sysv"], &["-Wl,-z,now", "-DWITH_COUNT"]];
    for options in ways {
        for bind in ["", "1"] {
            let bench = little(options);
            let program = bench.calls(&[]);
            let out = same(bench.command(&program).env("LD_BIND_NOW", bind));
            let count = if options.contains(&"-DWITH_COUNT") { "count 1 1099511627776" } else { "count 0 0" };
            assert_eq!(out, format!("sent 5, {count}, same 1, absent 1\n"), "{options:?}");
            assert_eq!(bench.mpi_calls("MPI_Barrier"), 5, "{options:?} {bind}");
            assert_eq!(bench.mpi_calls("MPI_Bcast_c"), usize::from(count.contains("1 ")), "{options:?}");
        }
    }
}

/// MPICH has functions with large counts.
#[test]
fn a_function_of_mpi_4_works_where_the_library_has_it() {
    if !have(&[MPICH.cc, MPICH.run[0]]) {
        return;
    }
    let bench = Bench::new();
    let text = "#include <mpi.h>\n#include <stdio.h>
        extern int MPI_Bcast_c(void *, MPI_Count, MPI_Datatype, int, MPI_Comm) __attribute__((weak));
        int main(int c, char **v) { int r, x; MPI_Init(&c, &v); MPI_Comm_rank(MPI_COMM_WORLD, &r); x = r ? 0 : 7;
        int e = MPI_Bcast_c ? MPI_Bcast_c(&x, 1, MPI_INT, 0, MPI_COMM_WORLD) : -1;
        if (r) printf(\"%d %d\\n\", e, x); return MPI_Finalize(); }";
    let program = bench.build(MPICH.cc, "large", &[], text);
    assert_eq!(same(&mut bench.mpi(&MPICH, 2, &program)), "0 7\n");
    assert_eq!(bench.mpi_calls("MPI_Bcast_c"), 2);
}

/// A library is only asked about a communicator whose handle is known. Otherwise, the rank comes from the launcher's variables.
#[test]
fn the_rank_is_found_with_any_binary_interface() {
    let libraries: [(&[&str], &str); 3] = [
        (&[], "init_mpp 0/1"),
        (&["-DWORLD=0x101", "-DWITH_ABI"], "init_mpp 0/1"),
        (&["-DWORLD=0x7000"], "init_mpp 2/4"),
    ];
    for (options, expected) in libraries {
        let bench = little(options);
        let program = bench.calls(&[]);
        let out = same(bench.command(&program).envs([("PMI_RANK", "2"), ("PMI_SIZE", "4")]));
        assert_eq!(out, "sent 5, count 0 0, same 1, absent 1\n", "{options:?}");
        let logs = bench.logs();
        assert!(logs[0].find(expected).is_some(), "{options:?}: {}", logs[0]);
        assert_eq!(bench.mpi_calls("MPI_Barrier"), 5, "{options:?}");
    }
}

/// Open MPI's library for the standard interface depends on one with Open MPI's own symbols.
#[test]
fn the_library_with_the_standard_interface_is_known_by_its_name() {
    let bench = Bench::new();
    bench.library("libmpi_abi.so", &["-DWORLD=0x101", "-DWITH_WORLD"], "little_mpi.c");
    let rpath = format!("-Wl,-rpath,{}", bench.dir.path().display());
    let program = bench.compile("cc", &["-w", "-L.", "-lmpi_abi", &rpath], "little_calls.c");
    same(&mut bench.command(&program));
    assert_eq!(bench.mpi_calls("MPI_Barrier"), 5);
}

#[test]
fn calls_by_a_handle_are_recorded_and_absent_functions_stay_absent() {
    let bench = little(&[]);
    let program = bench.compile("cc", &["-w", "-lpthread"], "little_open.c");
    let library = bench.path("liblittle_mpi.so");
    let out = same(bench.command(&program).arg("handle").arg(&library));
    assert_eq!(out, "absent 1 said\ndefault 0\n");
    assert_eq!((bench.mpi_calls("MPI_Barrier"), bench.mpi_calls("MPI_Init")), (3, 1));
}

/// A program that has events before it opens MPI is measured as rank 0 of 1 until then.
#[test]
fn ranks_of_an_mpi_that_is_opened_later_are_known() {
    for (options, expected) in
        [(&["-DSIZE=2"][..], &["init_mpp 0/1", "init_mpp 0/2"][..]), (&[], &["init_mpp 0/1"])]
    {
        let bench = little(options);
        let program = bench.compile("cc", &["-w", "-lpthread", "-finstrument-functions"], "little_open.c");
        same(bench.command(&program).arg("handle").arg(bench.path("liblittle_mpi.so")));
        let log = &bench.logs()[0];
        let ranks: Vec<&String> = log.lines.iter().filter(|line| line.starts_with("init_mpp")).collect();
        assert_eq!(ranks, expected, "{log}");
    }
}

/// A program may close standard error before its first event. The next file that it opens gets the same descriptor.
#[test]
fn a_file_in_the_place_of_standard_error_gets_no_message() {
    let text = "#include <fcntl.h>
#include <unistd.h>
int MPI_Init(int *, char ***);
int MPI_Finalize(void);
int main(int c, char **v) {
    if (c > 1) { close(2); if (open(v[1], O_CREAT | O_WRONLY, 0600) != 2) return 9; }
    if (MPI_Init(&c, &v)) return 8;
    write(2, \"own\\n\", 4);
    return MPI_Finalize(); }";
    let bench = little(&[]);
    let rpath = format!("-Wl,-rpath,{}", bench.dir.path().display());
    let program = bench.build("cc", "closes", &["-w", "-L.", "-llittle_mpi", &rpath], text);
    let run = |arguments: &[&str]| {
        ok(bench.command(&program).args(arguments).env("SCOREP_FILTERING_FILE", "/absent")).1
    };
    assert!(run(&[]).starts_with("ampere: all functions are recorded"));
    assert_eq!(run(&["data"]), "");
    assert_eq!(std::fs::read_to_string(bench.path("data")).unwrap(), "own\n");
}

#[test]
fn modules_are_treated_when_they_are_opened() {
    for how in ["module", "deepbind"] {
        let bench = little(&[]);
        let rpath = format!("-Wl,-rpath,{}", bench.dir.path().display());
        let module = bench.library("module.so", &["-L.", "-llittle_mpi", &rpath], "little_module.c");
        let program = bench.compile("cc", &["-w", "-lpthread"], "little_open.c");
        assert_eq!(same(bench.command(&program).arg(how).arg(&module)), "0\n");
        assert_eq!((bench.mpi_calls("MPI_Barrier"), bench.mpi_calls("MPI_Finalize")), (3, 1), "{how}");
    }
}

/// Programs with plugins open and close objects in several threads. No call is lost in the meantime, and the program does not
/// fail.
#[test]
fn objects_may_be_opened_and_closed_by_several_threads() {
    let bench = little(&[]);
    let rpath = format!("-Wl,-rpath,{}", bench.dir.path().display());
    let module = bench.library("module.so", &["-L.", "-llittle_mpi", &rpath], "little_module.c");
    let program = bench.compile("cc", &["-w", "-lpthread"], "little_open.c");
    for _ in 0..5 {
        assert_eq!(same(bench.command(&program).arg("threads").arg(&module)), "failures 0\n");
    }
}

/// A thread may hold the loader's lock while another one forks. The child must be able to look up functions, as it can
/// without ampere; with ampere, one child in fifty used to wait for ever. A child takes milliseconds.
#[test]
fn a_child_of_several_threads_can_look_up_functions() {
    let text = "#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>
static void *handle;
static void *look_up(void *unused) { for (;;) dlsym(handle, \"cos\"); }
int main(void) {
    pthread_t thread;
    handle = dlopen(\"libm.so.6\", RTLD_NOW);
    for (int i = 0; i < 2; i++) pthread_create(&thread, NULL, look_up, NULL);
    for (int i = 0; i < 1000; i++) {
        int status = 0;
        if (!fork()) { alarm(20); _exit(dlsym(handle, \"cos\") ? 0 : 1); }
        wait(&status);
        if (status) { printf(\"child %d: %d\\n\", i, status); return 1; }
    }
    return 0; }";
    let bench = Bench::new();
    let program = bench.build("cc", "forks", &["-w", "-lpthread", "-ldl"], text);
    assert_eq!(same(&mut bench.command(&program)), "");
}

/// Another namespace has its own C library, which is left alone.
#[test]
fn another_namespace_is_left_alone() {
    let bench = little(&[]);
    let rpath = format!("-Wl,-rpath,{}", bench.dir.path().display());
    let module = bench.library("module.so", &["-L.", "-llittle_mpi", &rpath], "little_module.c");
    let program = bench.compile("cc", &["-w", "-lpthread"], "little_open.c");
    assert_eq!(same(bench.command(&program).arg("namespace").arg(&module)), "0\n");
    assert!(bench.logs().is_empty());
}

/// Another tool that wraps MPI still gets its calls, however the program is bound.
#[test]
fn another_preloaded_tool_stays_in_the_chain() {
    for options in [["-Wl,-z,lazy"], ["-Wl,-z,now"]] {
        for comes_first in [true, false] {
            let bench = little(&[]);
            let tool = bench.library("libtool.so", &["-L.", "-llittle_mpi"], "little_tool.c");
            let program = bench.calls(&options);
            let path = bench.dir.path();
            let (tool, own) = (tool.display(), bench.preload());
            let own = own.display();
            let both = if comes_first { format!("{tool}:{own}") } else { format!("{own}:{tool}") };
            let out = ok(bench.command(&program).env("LD_PRELOAD", both).env("LD_LIBRARY_PATH", path)).0;
            // One call uses the profiling interface's name.
            assert_eq!(out, "sent 5, count 0 0, same 1, absent 1\ntool 4\n", "{options:?}");
            assert_eq!(bench.mpi_calls("MPI_Barrier"), 5, "{options:?}");
        }
    }
}

const HOOKS: &str = "#include <stdio.h>
static long n;
__attribute__((no_instrument_function)) void __cyg_profile_func_enter(void *a, void *b) { n++; }
__attribute__((no_instrument_function)) void __cyg_profile_func_exit(void *a, void *b) { n++; }
int work(int n) { return n + 1; }
int main(void) { int x = 0; for (int i = 0; i < 5; i++) x = work(x); printf(\"%ld\\n\", n); return 0; }";

/// The hooks are in the program, or in a library that it is linked with.
#[test]
fn a_program_keeps_hooks_of_its_own() {
    let bench = Bench::new();
    let program = bench.build("cc", "own", &["-w", "-finstrument-functions"], HOOKS);
    assert_eq!(same(&mut bench.command(&program)), "11\n");
    let program = bench.build("cc", "exported", &["-w", "-rdynamic", "-finstrument-functions"], HOOKS);
    assert_eq!(same(&mut bench.command(&program)), "11\n");
    let (_, main) = HOOKS.split_once("int work").unwrap();
    let hooks = HOOKS.split("int work").next().unwrap().replace("static long", "long");
    bench.build("cc", "libhooks.so", &["-w", "-shared", "-fPIC"], &hooks);
    let rpath = format!("-Wl,-rpath,{}", bench.dir.path().display());
    let options = ["-w", "-finstrument-functions", "-L.", "-lhooks", &rpath];
    let program =
        bench.build("cc", "linked", &options, &format!("#include <stdio.h>\nextern long n;\nint work{main}"));
    assert_eq!(same(&mut bench.command(&program)), "11\n");
    assert!(bench.logs().is_empty());
}

const HELLO: &str = "#include <stdio.h>\nint main(void) { puts(\"hello\"); return 7; }";

#[test]
fn programs_of_musl_run() {
    if !have(&["musl-gcc", "python3"]) {
        return;
    }
    let bench = Bench::new();
    for (name, options) in
        [("musl", vec![]), ("static", vec!["-static"]), ("instrumented", vec!["-finstrument-functions"])]
    {
        let text = format!(
            "{HELLO}\n__attribute__((no_instrument_function)) void __cyg_profile_func_enter(void *a, void *b) {{}}\n__attribute__((no_instrument_function)) void __cyg_profile_func_exit(void *a, void *b) {{}}"
        );
        let program = bench.build("musl-gcc", name, &options, &text);
        assert_eq!(same(&mut bench.command(&program)), "hello\n");
        assert_eq!(
            same(bench.command("sh").arg("-c").arg(format!("{}; echo $?", program.display()))),
            "hello\n7\n"
        );
        let run = format!(
            "import subprocess; r = subprocess.run([{:?}], capture_output=True); print(r.returncode, r.stdout)",
            program
        );
        assert_eq!(same(bench.command("python3").arg("-c").arg(run)), "7 b'hello\\n'\n");
    }
    // They also run if the loader of musl is given the library's own path.
    let program = bench.path("musl");
    let own = bench.preload().to_string_lossy().replace(ampere_preload::PLATFORM, ampere_preload::NATIVE);
    assert_eq!(outcome(bench.command(&program).env("LD_PRELOAD", own)).1, "hello\n");
}

#[test]
fn programs_of_32_bits_run_without_a_message() {
    let bench = Bench::new();
    bench.source("probe.c", HELLO);
    if !Command::new("cc")
        .args(["-m32", "-o", "probe", "probe.c"])
        .current_dir(&bench.dir)
        .stderr(Stdio::null())
        .status()
        .unwrap()
        .success()
    {
        println!("skipped: cc -m32 makes no program");
        return;
    }
    assert_eq!(same(&mut bench.command(bench.path("probe"))), "hello\n");
    assert_eq!(same(bench.command("sh").args(["-c", "./probe; ./probe; exit 3"])), "hello\nhello\n");
}

/// This holds for each function that starts programs, after a chroot, and for a user who may not read the library's directory.
#[test]
fn the_loader_prints_nothing_where_the_library_cannot_be_read() {
    // SAFETY: a system call without arguments.
    if unsafe { libc::geteuid() } != 0 {
        println!("skipped: needs root");
        return;
    }
    let text = "#define _GNU_SOURCE
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <grp.h>
#include <fcntl.h>
extern char **environ;
int main(int c, char **v) {
    setgroups(0, 0);
    if (setresgid(65534, 65534, 65534) || setresuid(65534, 65534, 65534)) return 9;
    char *w[] = {\"sh\", \"-c\", \"echo $LD_PRELOAD; exec echo fine\", 0};
    pid_t p; int s = 1;
    switch (v[1][0]) {
    case '0': execve(\"/bin/sh\", w, environ); break;
    case '1': execv(\"/bin/sh\", w); break;
    case '2': execvp(\"sh\", w); break;
    case '3': execvpe(\"sh\", w, environ); break;
    case '4': execl(\"/bin/sh\", w[0], w[1], w[2], (char *)0); break;
    case '5': execlp(\"sh\", w[0], w[1], w[2], (char *)0); break;
    case '6': execle(\"/bin/sh\", w[0], w[1], w[2], (char *)0, environ); break;
    case '7': fexecve(open(\"/bin/sh\", O_RDONLY), w, environ); break;
    case '8': if (!posix_spawn(&p, \"/bin/sh\", 0, 0, w, environ)) waitpid(p, &s, 0); return s;
    case '9': if (!posix_spawnp(&p, \"sh\", 0, 0, w, environ)) waitpid(p, &s, 0); return s;
    }
    return 8;
}";
    let bench = Bench::new();
    let program = bench.build("cc", "other", &["-w"], text);
    let hidden = bench.path(ampere_preload::DIRECTORY);
    must(Command::new("chmod").arg("711").arg(bench.dir.path()));
    must(Command::new("chmod").arg("700").arg(&hidden));
    for how in 0..10 {
        let mut command = bench.command(&program);
        assert_eq!(
            outcome(command.arg(how.to_string())),
            (Some(0), "\nfine\n".into(), String::new()),
            "{how}"
        );
    }
    // Other preloaded libraries are kept.
    let both = format!("/lib/none.so:{}", bench.preload().display());
    let (_, out, _) = outcome(bench.command(&program).arg("0").env("LD_PRELOAD", both));
    assert_eq!(out, "/lib/none.so\nfine\n");
    if have(&["setpriv", "chroot", "bash"]) {
        let user = ["--reuid", "65534", "--regid", "65534", "--clear-groups"];
        assert_eq!(
            same(bench.command("setpriv").args(user).args(["sh", "-c", "echo fine; /bin/true; exit 4"])),
            "fine\n"
        );
        let root = bench.path("root");
        let make = "mkdir -p root/bin && cp /bin/true /bin/bash root/bin && for f in $(ldd /bin/true /bin/bash | grep -o '/[^ :]*' | sort -u); do \
                    mkdir -p root$(dirname $f); cp $f root$f; done";
        must(Command::new("sh").args(["-c", make]).current_dir(&bench.dir));
        assert_eq!(
            same(bench.command("chroot").arg(&root).args(["bash", "-c", "/bin/true && echo fine"])),
            "fine\n"
        );
    }
}

const WORK: &str = "__attribute__((noinline)) double work(int n) { volatile double x = 0; for (int i = 0; i < n; i++) x += i; return x; }";

/// The limits of an instrumented program are 4,500 kB of addresses, 500 kB of data, or 8 MB of locked memory with mlockall before
/// or after the first function. With far higher limits it is measured.
#[test]
fn a_process_with_little_room_is_left_alone() {
    let bench = Bench::new();
    let lock = "#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n#include <sys/mman.h>\n";
    let take =
        "void *p = malloc(1500000); if (!p) return 5; memset(p, 1, 1500000); puts(\"fine\"); return 0;";
    let all = "if (mlockall(MCL_CURRENT | MCL_FUTURE)) return 4;";
    let before = bench.build(
        "cc",
        "before",
        &["-finstrument-functions"],
        &format!("{lock}{WORK}\nint main(void) {{ {all} work(1000); {take} }}"),
    );
    let after = bench.build(
        "cc",
        "after",
        &["-finstrument-functions"],
        &format!("{lock}{WORK}\nint main(void) {{ work(1000); {all} {take} }}"),
    );
    let small = bench.build(
        "cc",
        "small",
        &["-finstrument-functions"],
        &format!("{WORK}\nint main(void) {{ return work(10) != 45; }}"),
    );
    // SAFETY: a system call without arguments.
    let user = unsafe { libc::geteuid() };
    must(Command::new("chmod").arg("755").arg(bench.dir.path()));
    let as_user: &[&str] = if user == 0 && have(&["setpriv"]) {
        &["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]
    } else {
        &["env"]
    };
    for (program, limit) in [
        (&before, "-l 8192"),
        (&after, "-l 8192"),
        (&small, "-v 4500"),
        (&small, "-d 500"),
        (&small, "-v 100000"),
    ] {
        let mut command = bench.command(as_user[0]);
        command.args(&as_user[1..]).args([
            "bash",
            "-c",
            &format!("ulimit {limit}; exec {}", program.display()),
        ]);
        same(&mut command);
        assert!(bench.logs().is_empty(), "{limit}");
    }
    // The name of the session has other characters than the variable.
    let session = bench.path(&format!("ampere-{user}/s-job_7_.{}", "x".repeat(113)));
    std::fs::create_dir_all(&session).unwrap();
    let mut noted = bench.command("bash");
    noted.env("AMPERE_SHM", bench.dir.path()).env("AMPERE_SESSION", format!("job 7é.{}", "x".repeat(200)));
    ok(noted.args(["-c", &format!("ulimit -v 100000; exec {}", small.display())]));
    let note = std::fs::read_dir(&session).unwrap().next().expect("a note").unwrap().file_name();
    assert!(note.to_string_lossy().starts_with("unrecorded-m"), "{note:?}");
    ok(bench.command("bash").args(["-c", &format!("ulimit -v 4000000; exec {}", small.display())]));
    assert_eq!(bench.logs().len(), 1);
}

/// A seccomp filter forbids making pages writable before the loader runs.
#[test]
fn where_pages_cannot_be_made_writable_nothing_is_changed() {
    let text = "#define _GNU_SOURCE
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
int main(int c, char **v) {
    struct sock_filter f[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mprotect, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 3, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | 13),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    struct sock_fprog p = {6, f};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &p)) return 77;
    execv(v[1], v + 1);
    return 78;
}";
    let bench = little(&[]);
    let filter = bench.build("cc", "filter", &["-w"], text);
    for options in [["-Wl,-z,lazy"], ["-Wl,-z,now"]] {
        let program = bench.calls(&options);
        let out = same(bench.command(&filter).arg(&program));
        assert_eq!(out, "sent 5, count 0 0, same 1, absent 1\n");
    }
}

/// Before it opens MPI, the program makes its own table of addresses read-only or moves it to other memory.
#[test]
fn a_program_may_remap_its_own_table() {
    let text = "#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
static int lock(struct dl_phdr_info *i, size_t s, void *how) {
    for (int n = 0; n < i->dlpi_phnum; n++) if (i->dlpi_phdr[n].p_type == PT_DYNAMIC) {
        ElfW(Dyn) *d = (void *)(i->dlpi_addr + i->dlpi_phdr[n].p_vaddr);
        for (; d->d_tag; d++) if (d->d_tag == DT_PLTGOT) {
            char *page = (char *)(d->d_un.d_ptr & -4096L), copy[4096];
            memcpy(copy, page, 4096);
            if (how) { mmap(page, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0); for (int n = 0; n < 4096; n++) ((volatile char *)page)[n] = copy[n]; }
            else mprotect(page, 4096, PROT_READ);
        }
    }
    return 1;
}
int main(int c, char **v) {
    puts(\"begun\");
    dl_iterate_phdr(lock, v[2][0] == 'm' ? v : 0);
    void *m = dlopen(v[1], RTLD_NOW);
    int r = ((int (*)(void))dlsym(m, \"work\"))();
    printf(\"%d\\n\", r);
    fflush(stdout);
    _exit(0);
}";
    let bench = little(&[]);
    let rpath = format!("-Wl,-rpath,{}", bench.dir.path().display());
    let module = bench.library("module.so", &["-L.", "-llittle_mpi", &rpath], "little_module.c");
    let program = bench.build("cc", "remaps", &["-w", "-Wl,-z,norelro", "-Wl,-z,now"], text);
    for how in ["protected", "moved"] {
        assert_eq!(same(bench.command(&program).arg(&module).arg(how)), "begun\n0\n", "{how}");
    }
}

/// Tables in the program's text are not changed.
#[cfg(target_arch = "x86_64")]
#[test]
fn text_relocations_do_no_harm() {
    let bench = little(&[]);
    let text = ".globl work\nwork: push %rbx\nxor %edi, %edi\nxor %esi, %esi\ncall *at(%rip)\npop %rbx\nret\nat: .quad MPI_Init\n.section .note.GNU-stack,\"\",@progbits\n";
    bench.source("text.s", text);
    let rpath = format!("-Wl,-rpath,{}", bench.dir.path().display());
    must(
        Command::new("cc")
            .args(["-shared", "-o", "text.so", "text.s", "-L.", "-llittle_mpi", "-Wl,-z,notext", &rpath])
            .current_dir(&bench.dir),
    );
    let program = bench.compile("cc", &["-w", "-lpthread"], "little_open.c");
    assert_eq!(same(bench.command(&program).arg("module").arg(bench.path("text.so"))), "0\n");
}

#[test]
fn auditors_and_sanitizers_work_with_it() {
    let bench = little(&[]);
    let program = bench.calls(&[]);
    let audit = "unsigned la_version(unsigned v) { return v; }\nunsigned la_objopen(void *m, long l, void *c) { return 3; }
        unsigned long la_symbind64(void *s, unsigned n, void *r, void *d, unsigned *f, const char *name) { return *(unsigned long *)((char *)s + 8); }";
    let audit = bench.build("cc", "libaudit.so", &["-w", "-shared", "-fPIC"], audit);
    let out = same(bench.command(&program).env("LD_AUDIT", audit));
    assert_eq!(out, "sent 5, count 0 0, same 1, absent 1\n");
    assert_eq!(bench.mpi_calls("MPI_Barrier"), 5);
    let bench = little(&[]);
    let program = bench.calls(&["-fsanitize=address"]);
    let out = same(bench.command(&program).env("ASAN_OPTIONS", "detect_leaks=0"));
    assert_eq!(out, "sent 5, count 0 0, same 1, absent 1\n");
    assert_eq!(bench.mpi_calls("MPI_Barrier"), 5);
}

/// We add no variable to the environment of the next program.
#[test]
fn an_emptied_environment_stays_empty() {
    let bench = Bench::new();
    assert_eq!(same(bench.command("env").args(["-i", "/usr/bin/env"])), "");
    assert_eq!(
        same(bench.command("env").args(["-i", "A=1", "/bin/sh", "-c", "/usr/bin/env | grep -c LD_"])),
        "0\n"
    );
}

/// The bundle has a C library and a loader of its own, which may be of another version.
#[test]
fn a_bundle_with_its_own_loader_runs() {
    let bench = Bench::new();
    let program = bench.build(
        "cc",
        "bundled",
        &["-finstrument-functions"],
        &format!("{WORK}\nint main(void) {{ return work(10) == 45 ? 7 : 1; }}"),
    );
    let make = "mkdir bundle; for f in $(ldd bundled | grep -o '/[^ ]*'); do cp $f bundle; done";
    must(Command::new("sh").args(["-c", make]).current_dir(&bench.dir));
    // The host's libgcc is not in the bundle, and is not looked for elsewhere.
    let mut command = bench.command(bench.path("bundle/ld-linux-x86-64.so.2"));
    command.args(["--inhibit-cache", "--library-path"]).arg(bench.path("bundle")).arg(&program);
    same(&mut command);
}
