//! Checks that the functions of programs and libraries whose files are replaced, removed or oddly named have their own names, or
//! none.

mod sampled;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::Command;

use ampere_stacks::{Options, UnnamedReason};
use sampled::{Run, run_with};
use tempfile::TempDir;

/// Works for some seconds of CPU time in a function of its own.
const WORK: &str = r#"
    #include <stdlib.h>
    #include <time.h>
    volatile double result;
    double cpu(void) {
        struct timespec now;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
        return now.tv_sec + now.tv_nsec * 1e-9;
    }
    __attribute__((noipa)) void NAME(double seconds) {
        double end = cpu() + seconds;
        while (cpu() < end) for (int i = 1; i < 20000; i++) result += i;
    }
    #ifndef LIBRARY
    int main(int argc, char **argv) { NAME(argc > 1 ? atof(argv[1]) : 0.3); return 0; }
    #endif
"#;

/// Loads a library, calls its function, unloads it, has it replaced by another, and does the same again.
const LOADS_TWICE: &str = r#"
    #include <dlfcn.h>
    #include <stdlib.h>
    #include <string.h>
    __attribute__((noipa)) void load(const char *path, const char *name) {
        void *library = dlopen(path, RTLD_NOW);
        ((void (*)(double)) dlsym(library, name))(0.3);
        dlclose(library);
    }
    int main(int argc, char **argv) {
        load(argv[1], "in_a");
        system(argv[2]);
        load(argv[1], "in_b");
        return 0;
    }
"#;

/// Executes a file that has no path.
const FROM_MEMORY: &str = r#"
    #define _GNU_SOURCE
    #include <fcntl.h>
    #include <sys/mman.h>
    #include <sys/sendfile.h>
    #include <unistd.h>
    extern char **environ;
    int main(int argc, char **argv) {
        int from = open(argv[1], O_RDONLY), to = memfd_create("program", MFD_CLOEXEC);
        while (sendfile(to, from, NULL, 1 << 20) > 0);
        return fexecve(to, argv + 1, environ);
    }
"#;

/// Copies its own code to memory, and maps the memory in place of the code, like programs that use larger pages.
const REMAPPED: &str = r#"
    #define _GNU_SOURCE
    #include <dlfcn.h>
    #include <stdio.h>
    #include <string.h>
    #include <sys/mman.h>
    int main(int argc, char **argv) {
        void *library = dlopen(argv[1], RTLD_NOW);
        char line[4096];
        FILE *maps = fopen("/proc/self/maps", "r");
        unsigned long start = 0, end = 0;
        while (fgets(line, sizeof line, maps))
            if (strstr(line, argv[1]) && strstr(line, "r-xp")) sscanf(line, "%lx-%lx", &start, &end);
        void *copy = mmap(NULL, end - start, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        memcpy(copy, (void *) start, end - start);
        mmap((void *) start, end - start, PROT_READ | PROT_WRITE | (argc > 2 ? 0 : PROT_EXEC), MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        memcpy((void *) start, copy, end - start);
        mprotect((void *) start, end - start, PROT_READ | PROT_EXEC);
        ((void (*)(double)) dlsym(library, "in_a"))(0.4);
        return 0;
    }
"#;

/// Maps a library's code a second time, in the way given by the second argument, and runs it there. The function uses nothing
/// that is at another address.
const MAPPED_AGAIN: &str = r#"
    #define _GNU_SOURCE
    #include <dlfcn.h>
    #include <fcntl.h>
    #include <stdio.h>
    #include <string.h>
    #include <sys/mman.h>
    #include <unistd.h>
    int main(int argc, char **argv) {
        void *library = dlopen(argv[1], RTLD_NOW);
        char *function = dlsym(library, "alone"), line[4096], *to;
        FILE *maps = fopen("/proc/self/maps", "r");
        unsigned long start = 0, end = 0, offset = 0;
        while (fgets(line, sizeof line, maps))
            if (strstr(line, argv[1]) && strstr(line, "r-xp")) sscanf(line, "%lx-%lx %*s %lx", &start, &end, &offset);
        unsigned long bytes = end - start;
        int file = open(argv[1], O_RDONLY);
        to = (char *) mmap(NULL, bytes + 65536, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) + 8192;
        if (!strcmp(argv[2], "moved")) to = mremap((void *) start, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, to);
        if (!strcmp(argv[2], "mapped")) mmap(to, bytes, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_FIXED, file, offset);
        if (!strcmp(argv[2], "read")) {
            mmap(to, bytes, PROT_READ, MAP_PRIVATE | MAP_FIXED, file, offset);
            mprotect(to, bytes, PROT_READ | PROT_EXEC);
        }
        ((long (*)(long)) (to + (function - (char *) start)))(400000000);
        _exit(0);
    }
"#;
const ALONE: &str =
    "__attribute__((noipa)) long alone(long n) { for (volatile long i = 0; i < n; i++); return n; }";

const WITH_ID: &str = "-Wl,--build-id";
const WITHOUT_ID: &str = "-Wl,--build-id=none";

struct Place(TempDir);

impl Place {
    fn new() -> Place {
        Place(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn compile(&self, name: &str, text: &str, options: &[&str]) -> String {
        let (source, program) = (self.path(&format!("{name}.c")), self.path(name));
        std::fs::write(&source, text).unwrap();
        let mut compile = Command::new("cc");
        compile.args(["-O2", "-w", "-o"]).arg(&program).arg(&source).args(options);
        assert!(compile.status().unwrap().success());
        program.to_str().unwrap().to_owned()
    }

    /// Returns a program, or with `-shared` a library, that works in a function of this name.
    fn work(&self, name: &str, options: &[&str]) -> String {
        let define = format!("-DNAME={name}");
        let mut all = vec![define.as_str()];
        all.extend(options);
        if options.contains(&"-shared") {
            all.extend(["-fPIC", "-DLIBRARY"]);
        }
        self.compile(name, WORK, &all)
    }

    fn script(&self, script: &str) -> Option<Run> {
        let command = format!("cd '{}'; {script}", self.0.path().display());
        run_with(&["sh", "-c", &command], &Options::default())
    }

    /// Repeats a script until its samples are right, at most ten times: on a busy machine, samples of some runs are lost, or are
    /// fetched when a file has been replaced.
    fn until(&self, script: &str, is_right: impl Fn(&Run) -> bool) -> Option<Run> {
        for _ in 0..9 {
            let run = self.script(script)?;
            if is_right(&run) {
                return Some(run);
            }
        }
        self.script(script)
    }
}

fn are_halves(run: &Run) -> bool {
    ["in_a", "in_b"].iter().all(|name| (40.0..60.0).contains(&run.percent(name)))
}

fn is_of_a(run: &Run) -> bool {
    run.percent("main;in_a") > 85.0
}

fn assert_halves(run: &Run, what: &str) {
    assert!(are_halves(run), "{what}: {:?}", run.stacks);
}

#[test]
fn two_programs_that_were_in_one_file_have_their_own_functions() {
    for id in [WITH_ID, WITHOUT_ID] {
        let place = Place::new();
        place.work("in_a", &[id]);
        place.work("in_b", &[id]);
        for script in [
            "cp in_a p; ./p; cp in_b p; ./p",
            // Both files have the same size and time stamp.
            "cp in_a p; touch -d 2020-01-01 p; ./p; cat in_b > p; touch -d 2020-01-01 p; ./p",
            "cp in_a p; ./p; rm p; cp in_b p; ./p",
            "rm p; ln in_a p; ./p; ln -f in_b p; ./p",
        ] {
            let Some(run) = place.until(script, are_halves) else { return };
            assert_halves(&run, script);
        }
    }
}

#[test]
fn functions_of_a_file_that_was_replaced_before_it_was_read_have_no_names() {
    for id in [WITH_ID, WITHOUT_ID] {
        let place = Place::new();
        place.work("in_a", &[id]);
        place.work("in_b", &[id]);
        let gone = |run: &Run| -> u64 {
            let of = run.figures.unnamed.iter().filter(|of| of.reason == UnnamedReason::Gone);
            of.map(|of| of.samples).sum()
        };
        // The samples are fetched after the file was replaced, unless one of the processes was interrupted.
        let is_right = |run: &Run| run.percent("in_b") < 10.0 && run.percent("in_a") == 0.0 && gone(run) > 5;
        let script = "cp in_a p; ./p 0.02; cp in_b p; ./p 0";
        let Some(run) = place.until(script, is_right) else { return };
        assert!(is_right(&run), "{id}: {:?}, {:?}", run.stacks, run.figures);
        assert_eq!(run.figures.unnamed_processes, 1, "{:?}", run.figures);
        // The functions of the file in its place are known.
        let is_half = |run: &Run| (30.0..70.0).contains(&run.percent("main;in_b"));
        let Some(both) = place.until("cp in_a p; ./p 0.02; cp in_b p; ./p 0.02", is_half) else { return };
        assert!(is_half(&both), "{:?}", both.stacks);
    }
}

#[test]
fn two_libraries_that_were_in_one_file_have_their_own_functions() {
    for id in [WITH_ID, WITHOUT_ID] {
        let place = Place::new();
        place.compile("loads", LOADS_TWICE, &[]);
        place.work("in_a", &["-shared", id]);
        place.work("in_b", &["-shared", id]);
        let script = "cp in_a l.so; ./loads ./l.so 'cp in_b l.so'";
        let Some(run) = place.until(script, are_halves) else { return };
        assert_halves(&run, id);
    }
}

#[test]
fn programs_of_one_path_in_two_mount_namespaces_have_their_own_functions() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: needs root, and to be allowed to mount");
        return;
    }
    for id in [WITH_ID, WITHOUT_ID] {
        let place = Place::new();
        place.work("in_a", &[id]);
        place.work("in_b", &[id]);
        let script = "./in_a & unshare -m sh -c 'mount --bind in_b in_a && ./in_a'; wait";
        let Some(run) = place.until(script, are_halves) else { return };
        if run.received.started.len() < 4 {
            println!("skipped: needs root, and to be allowed to mount");
            return;
        }
        assert_halves(&run, id);
    }
}

#[test]
fn programs_without_a_path_have_their_functions() {
    for id in [WITH_ID, WITHOUT_ID] {
        let place = Place::new();
        place.compile("from_memory", FROM_MEMORY, &[]);
        place.work("in_a", &[id]);
        place.work("in_b", &[id]);
        // The shell's child is the program only after its exec.
        let started = "cp in_a p; ./p 0.4 & while [ ! /proc/$!/exe -ef p ]; do :; done";
        for script in [
            "./from_memory ./in_a 0.4".into(),
            format!("{started}; rm p; wait"),
            // Like `make`: another file with that name, or with another inode. It may have the same build id, and is then
            // distinguished only if it was written more than a millisecond later.
            format!("{started}; sleep 0.01; cp in_b q; mv q p; wait"),
            format!("{started}; mkdir -p d; mv p d; wait; rm -r d"),
        ] {
            let Some(run) = place.until(&script, is_of_a) else { return };
            assert!(is_of_a(&run), "{id}, {script}: {:?}", run.stacks);
            assert_eq!(run.percent("in_b"), 0.0, "{script}: {:?}", run.stacks);
        }
    }
}

#[test]
fn a_path_of_any_bytes_is_found() {
    let place = Place::new();
    place.work("in_a", &[]);
    for odd in [&b"pr\xffgram"[..], b"a\nb", b" x y (deleted)"] {
        std::fs::copy(place.path("in_a"), place.0.path().join(OsStr::from_bytes(odd))).unwrap();
    }
    let script = "for p in pr* a?b *x*y*; do \"./$p\" 0.2; done";
    let Some(run) = place.until(script, is_of_a) else { return };
    assert!(is_of_a(&run), "{:?}, {:?}", run.stacks, run.figures);
}

#[test]
fn code_that_was_copied_to_memory_has_the_names_of_its_file() {
    let place = Place::new();
    place.compile("remapped", REMAPPED, &[]);
    let library = place.work("in_a", &["-shared"]);
    for more in ["", " later"] {
        let script = format!("./remapped {library}{more}");
        let Some(run) = place.until(&script, is_of_a) else { return };
        assert!(is_of_a(&run), "{more}: {:?}, {:?}", run.stacks, run.figures);
    }
}

#[test]
fn code_that_is_mapped_again_at_another_address_has_the_names_of_its_file() {
    let place = Place::new();
    place.compile("mapped_again", MAPPED_AGAIN, &[]);
    let library = place.compile("libalone.so", ALONE, &["-shared", "-fPIC"]);
    for way in ["moved", "mapped", "read"] {
        let Some(run) = place.script(&format!("./mapped_again {library} {way}")) else { return };
        assert!(run.percent("main;alone") > 85.0, "{way}: {:?}, {:?}", run.stacks, run.figures);
    }
}

#[test]
fn other_code_in_place_of_a_file_has_none_of_its_names() {
    let place = Place::new();
    // The memory contains other code than the file.
    let other = REMAPPED.replace("memcpy((void *) start, copy, end - start);", OTHER_CODE);
    place.compile("remapped", &other, &[]);
    let library = place.work("in_a", &["-shared"]);
    let Some(run) = place.script(&format!("./remapped {library}")) else { return };
    assert!(run.percent("in_a") < 5.0 && run.percent("[unknown]") > 80.0, "{:?}", run.stacks);
    assert!(run.figures.unnamed.iter().any(|of| of.reason == UnnamedReason::Memory), "{:?}", run.figures);
}

/// Code that runs a loop of limited length, whatever address it is entered at: `nop`s, and then `mov $1000000000,%ecx; dec %ecx;
/// jnz; ret`.
const OTHER_CODE: &str = r#"
    memset((void *) start, 0x90, end - start);
    memcpy((void *) (end - 16), "\xb9\x00\xca\x9a\x3b\xff\xc9\x75\xfc\xc3", 10);
"#;
