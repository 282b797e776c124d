//! Checks which names of a program's map for perf are used for the code that it makes while it runs.

mod sampled;

use std::process::Command;

use ampere_stacks::Options;
use sampled::{Run, run_with};

/// `make WORD..` does these things in order, with code at a fixed address. `map NAME` appends a name for the code to the map;
/// `anew NAME` writes a new map; `run` spends CPU time in the code; `fork` does the rest in a child, `exec` in another program.
const MAKE: &str = r#"
    #define _GNU_SOURCE
    #include <stdio.h>
    #include <string.h>
    #include <sys/mman.h>
    #include <sys/wait.h>
    #include <time.h>
    #include <unistd.h>
    #define CODE ((void *) 0x200000000000)
    static double cpu(void) {
        struct timespec now;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
        return now.tv_sec + now.tv_nsec * 1e-9;
    }
    int main(int argc, char **argv) {
        mmap(CODE, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        /* push %rbp; mov %rsp,%rbp; dec %rdi; jnz; pop %rbp; ret */
        memcpy(CODE, "\x55\x48\x89\xe5\x48\xff\xcf\x75\xfb\x5d\xc3", 11);
        char path[64];
        for (char **word = argv + 1; *word; word++) {
            snprintf(path, sizeof path, "/tmp/perf-%d.map", getpid());
            if (!strcmp(*word, "map") || !strcmp(*word, "anew")) {
                FILE *map = fopen(path, **word == 'm' ? "a" : "w");
                fprintf(map, "%lx 40 %s\n", (long) CODE, *++word);
                fclose(map);
            } else if (!strcmp(*word, "run")) {
                double end = cpu() + 0.25;
                while (cpu() < end) ((void (*)(long)) CODE)(1000000);
            } else if (!strcmp(*word, "fork")) {
                if (fork()) { wait(NULL); return 0; }
            } else if (!strcmp(*word, "exec")) {
                *word = argv[0];
                return execv("/proc/self/exe", word);
            }
        }
        unlink(path);
        return 0;
    }
"#;

fn make(words: &str) -> Option<Run> {
    let directory = tempfile::tempdir().unwrap();
    let [source, program] = ["make.c", "make"].map(|name| directory.path().join(name));
    std::fs::write(&source, MAKE).unwrap();
    assert!(
        Command::new("cc").args(["-O2", "-w", "-o"]).arg(&program).arg(source).status().unwrap().success()
    );
    let mut command = vec![program.to_str().unwrap()];
    command.extend(words.split(' '));
    run_with(&command, &Options::default())
}

/// Checks the shares of samples in code with these names, and in code without a name.
fn check_shares(words: &str, expected: &[(&str, std::ops::Range<f64>)]) {
    let mut wrong = Vec::new();
    // On a busy machine, samples of some runs are lost or fetched late.
    while wrong.len() < 10 {
        let Some(run) = make(words) else { return };
        if expected.iter().all(|(name, percent)| percent.contains(&run.percent(name))) {
            return;
        }
        wrong.push(run.stacks);
    }
    panic!("{words}: {expected:?}: {wrong:?}");
}

const ALL: std::ops::Range<f64> = 90.0..101.0;
const NONE: std::ops::Range<f64> = 0.0..1.0;
/// Samples that were fetched too late have the later name.
const HALF: std::ops::Range<f64> = 30.0..70.0;

#[test]
fn the_name_that_was_written_last_is_used() {
    check_shares("map first run", &[("first", ALL)]);
    check_shares("map first run map second run", &[("first", HALF), ("second", HALF)]);
    check_shares("map a_long_name_of_the_first run anew b run", &[("a_long", HALF), (";b", HALF)]);
}

#[test]
fn a_program_has_no_names_of_the_one_that_it_replaced() {
    check_shares("map before run exec run", &[("before", HALF), ("[unknown]", HALF)]);
    check_shares("map before run exec map after run", &[("before", HALF), (";after", HALF)]);
    check_shares("map before run exec anew after run", &[("before", HALF), (";after", HALF)]);
}

#[test]
fn a_child_has_the_names_of_its_parents_code_and_its_own() {
    check_shares("map parents fork run", &[("parents", ALL)]);
    check_shares("map parents run fork run", &[("parents", ALL)]);
    check_shares("map parents fork fork run", &[("parents", ALL)]);
    check_shares("map parents fork map own run", &[("own", ALL), ("parents", NONE)]);
    check_shares("map parents fork exec run", &[("parents", NONE), ("[unknown]", ALL)]);
}

#[test]
fn a_map_of_an_earlier_process_with_this_pid_is_not_used() {
    // The pid is known before the process starts.
    let script = "echo '200000000000 40 earlier' > /tmp/perf-$$.map; touch -d 2020-01-01 /tmp/perf-$$.map; exec \"$0\" run";
    let directory = tempfile::tempdir().unwrap();
    let [source, program] = ["make.c", "make"].map(|name| directory.path().join(name));
    std::fs::write(&source, MAKE).unwrap();
    assert!(
        Command::new("cc").args(["-O2", "-w", "-o"]).arg(&program).arg(source).status().unwrap().success()
    );
    let command = ["sh", "-c", script, program.to_str().unwrap()];
    let Some(run) = run_with(&command, &Options::default()) else { return };
    assert!(run.percent("earlier") == 0.0 && run.percent("[unknown]") > 85.0, "{:?}", run.stacks);
}
