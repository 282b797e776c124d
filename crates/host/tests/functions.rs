//! Programs with `-finstrument-functions` and without MPI, and programs with neither.

mod common;

use common::{Bench, Log, MPICH, have, ok, program};
use std::process::Command;

const OPTIONS: &[&str] = &["-O1", "-g", "-finstrument-functions", "-lpthread"];

fn run(what: &str) -> (Bench, Vec<Log>) {
    let bench = Bench::new();
    let subject = bench.compile("cc", OPTIONS, "functions.c");
    let (out, err) = ok(bench.command(&subject).arg(what));
    let expected = if matches!(what, "exit" | "exit_in_handler" | "pthread_exit" | "late") {
        String::new()
    } else {
        format!("done {what}\n")
    };
    let out = if what == "exec" { out.replacen("done \n", "", 1) } else { out };
    assert_eq!(out, expected);
    if !matches!(what, "signal" | "exit_in_handler" | "deep") {
        assert_eq!(err, "");
    }
    let logs = bench.logs();
    for log in &logs {
        if !matches!(what, "running" | "exit_in_handler") {
            log.check();
        }
    }
    (bench, logs)
}

#[test]
fn functions_have_names_and_lines_and_nest() {
    let (_bench, logs) = run("");
    assert_eq!(logs.len(), 1);
    let log = &logs[0];
    let file = program("functions.c");
    let text = std::fs::read_to_string(&file).unwrap();
    for name in ["leaf", "middle", "main"] {
        let line =
            text.lines().position(|line| line.contains(&format!(" {name}(")) && line.ends_with('{')).unwrap()
                + 1;
        let region = log.region(name);
        assert!(
            region.contains(&format!("file='{}' line={line} type=1 paradigm=2", file.display())),
            "{region}"
        );
    }
    // The constructor comes first and starts the measurement; the destructor comes after its end.
    let mut expected = vec!["+before_main", "+leaf", "-leaf", "-before_main", "+main", "+middle"];
    expected.extend(["+leaf", "-leaf"].repeat(3));
    expected.extend(["-middle", "-main"]);
    assert_eq!(log.events(0), expected);
    assert!(log.position("program_begin") < log.position("init_mpp 0/1"));
    assert_eq!(log.enters("after_main"), 0);
    assert_eq!(log.lines.last().unwrap(), "finalize");
}

#[test]
fn main_is_open_when_the_program_calls_exit() {
    let (_bench, logs) = run("exit");
    assert_eq!(logs[0].events(0).last().unwrap(), "-middle");
    assert_eq!(logs[0].lines.last().unwrap(), "finalize");
}

/// The interrupted code may hold any lock, so the plugin's finalize, which takes locks, is not called.
#[test]
fn exit_in_a_signal_handler_ends_without_locks() {
    let (_bench, logs) = run("exit_in_handler");
    assert!(logs[0].lines.last().unwrap().starts_with("program_end 0"), "{}", logs[0]);
}

#[test]
fn each_thread_has_a_location() {
    let (_bench, logs) = run("threads");
    let log = &logs[0];
    assert!(log.find("create_location 1 'Pthread thread 1' parent=Master thread").is_some());
    for id in 0..3 {
        let last = log.lines.iter().rposition(|line| line.starts_with(&format!("deactivate {id}")));
        assert!(last.is_none_or(|last| (id == 0) == (last > log.position("program_end"))), "{log}");
    }
    // Each of the three threads is on a location of its own, or on that of a thread that has ended.
    let events = [log.events(1), log.events(2)].concat();
    let last = ["+leaves_frames_open", "+leaf", "-leaf", "-leaves_frames_open"];
    assert_eq!(events.len(), 2 * (2 + 2) + 2 * (1 + 2) + last.len(), "{log}");
    assert!(events.windows(4).any(|four| four == last), "{log}");
}

#[test]
fn threads_are_recorded_after_the_main_thread_has_ended() {
    let (_bench, logs) = run("pthread_exit");
    let log = &logs[0];
    assert!(log.events(1).contains(&"+middle".into()), "{log}");
    assert!(log.position("deactivate 1") < log.position("program_end 0"));
}

#[test]
fn functions_have_names_after_the_main_thread_has_ended() {
    let (_bench, logs) = run("late");
    assert_eq!(logs[0].events(1), ["+only_in_the_handler", "-only_in_the_handler"], "{}", logs[0]);
}

#[test]
fn a_thread_that_works_while_the_process_ends_is_harmless() {
    let (_bench, logs) = run("running");
    let log = &logs[0];
    let end = log.position("program_end");
    let late =
        log.lines[end..].iter().filter(|line| line.starts_with("enter") || line.starts_with("exit")).count();
    assert_eq!(late, 0);
    assert_eq!(log.lines.last().unwrap(), "finalize");
}

#[test]
fn threads_take_the_locations_of_ended_threads() {
    let (_bench, logs) = run("crowd");
    let log = &logs[0];
    // Ten threads run at a time: those of a round take the locations of the round before.
    let count = |word: &str| log.lines.iter().filter(|line| line.starts_with(word)).count();
    assert!(count("create_location") <= 1 + 10, "{log}");
    assert_eq!(count("activate"), 1 + 300);
    assert_eq!(log.enters("leaf"), 1 + 3 + 30 * 5 * (2 + 1));
    assert_eq!(log.lines.last().unwrap(), "finalize");
}

#[test]
fn threads_may_end_while_the_process_ends() {
    let bench = Bench::new();
    let subject = bench.compile("cc", OPTIONS, "functions.c");
    for _ in 0..20 {
        ok(bench.command(&subject).arg("ending").env("LOGGER_QUIET", "1"));
    }
    for log in bench.logs() {
        log.check();
        assert_eq!(log.lines.last().unwrap(), "finalize");
    }
}

#[test]
fn frames_that_a_longjmp_leaves_are_closed() {
    let (_bench, logs) = run("jump");
    let events = logs[0].events(0);
    let at = events.iter().position(|event| event == "+jumps").unwrap();
    // The frame that the jump left is closed when its caller is.
    assert_eq!(events[at..], ["+jumps", "+leaf", "-leaf", "+leaf", "-leaf", "-jumps", "-main"]);
}

#[test]
fn frames_that_are_too_deep_are_counted() {
    let (_bench, logs) = run("deep");
    let deep = logs[0].enters("deep");
    assert!((65_000..70_000).contains(&deep), "{deep}");
    assert!(logs[0].find(&format!("missed - {}", 70_001 - deep)).is_some(), "{deep}");
    assert!(logs[0].events(0).ends_with(&["+leaf".into(), "-leaf".into(), "-main".into()]));
}

#[test]
fn a_forked_child_is_not_measured() {
    let (_bench, logs) = run("fork");
    assert_eq!(logs.len(), 1);
    assert_eq!(logs[0].enters("middle"), 1);
    assert_eq!(logs[0].lines.iter().filter(|line| *line == "finalize").count(), 1);
}

#[test]
fn a_program_after_exec_is_measured_anew() {
    let (_bench, logs) = run("exec");
    assert_eq!(logs.len(), 2);
    assert!(logs.iter().all(|log| log.enters("middle") == 1 && log.lines.last().unwrap() == "finalize"));
}

#[test]
fn first_use_in_a_signal_handler_is_skipped() {
    let (_bench, logs) = run("signal");
    let log = &logs[0];
    assert_eq!(log.enters("only_in_the_handler") + log.enters("handler"), 0, "{log}");
    // A function that has been used before is recorded in a handler as well. The others are counted.
    assert_eq!(log.enters("leaf"), 1 + 3 + 1 + 1);
    assert!(log.position("missed 0 2") < log.position("program_end"));
}

#[test]
fn cpp_names_are_demangled() {
    if !have(&["g++"]) {
        return;
    }
    let bench = Bench::new();
    let subject = bench.compile("g++", OPTIONS, "shapes.cc");
    assert_eq!(ok(&mut bench.command(&subject)).0, "18\n");
    let log = &bench.logs()[0];
    log.check();
    assert!(log.region("shapes::Square::area() const").contains("canonical='_ZNK6shapes6Square4areaEv'"));
    assert_eq!(log.enters("double shapes::twice<double>(double)"), 1, "{log}");
    assert_eq!(log.enters("shapes::Square::Square(double)"), 1, "{log}");
}

#[test]
fn thousands_of_functions_are_distinguished() {
    let bench = Bench::new();
    let source = bench.path("many.c");
    let functions: String =
        (0..5000).map(|i| format!("static int f{i}(int x) {{ return x + {i}; }}\n")).collect();
    let calls: String = (0..5000).map(|i| format!("x = f{i}(x);")).collect();
    std::fs::write(&source, format!("{functions}int main(void) {{ int x = 0; for (int i = 0; i < 2; i++) {{ {calls} }} return x == 1; }}")).unwrap();
    let subject = bench.path("many");
    let status =
        Command::new("cc").args(["-g", "-finstrument-functions", "-o"]).arg(&subject).arg(&source).status();
    assert!(status.unwrap().success());
    ok(&mut bench.command(&subject));
    let log = &bench.logs()[0];
    log.check();
    let events = log.events(0);
    assert_eq!(events.len(), 2 + 2 * 2 * 5000);
    for (i, name) in (0..5000).map(|i| format!("+f{i}")).enumerate() {
        assert_eq!((&events[1 + 2 * i], &events[1 + 2 * (i + 5000)]), (&name, &name));
    }
    assert!(log.region("f4999").ends_with("line=5000 type=1 paradigm=2"));
}

#[test]
fn functions_of_a_stripped_program_have_offsets_as_names() {
    let bench = Bench::new();
    let subject = bench.compile("cc", &["-O1", "-finstrument-functions", "-lpthread", "-s"], "functions.c");
    ok(&mut bench.command(&subject));
    let log = &bench.logs()[0];
    log.check();
    assert!(log.find("region").is_some());
    assert!(log.lines.iter().any(|line| line.contains(" 'functions.c.out+0x")), "{log}");
}

#[test]
fn an_instrumented_allocator_does_not_recurse() {
    let bench = Bench::new();
    let subject =
        bench.compile("cc", &["-O1", "-g", "-finstrument-functions", "-fno-builtin"], "allocator.c");
    assert_eq!(ok(bench.command(&subject).env("LOGGER_QUIET", "1")).0, "own allocator\n");
}

/// This holds while the host starts, attaches a thread or defines a function.
#[test]
fn errno_and_cancellation_are_preserved() {
    let bench = Bench::new();
    let subject = bench.compile("cc", OPTIONS, "errno_and_cancellation.c");
    assert_eq!(ok(bench.command(&subject).arg("errno")).0, "errno stays\n");
    for arguments in [&[][..], &["started"]] {
        // The logging plugin calls `write` in an event, which is a cancellation point. Our own plugin's events contain none.
        let mut command = bench.command(&subject);
        let (out, _) = ok(command.args(arguments).env("LOGGER_QUIET", "1"));
        assert_eq!(out, "cancelled, as asked\n", "{arguments:?}");
    }
    for log in bench.logs() {
        log.check();
        assert_eq!(log.lines.last().unwrap(), "finalize");
    }
}

/// The host works on a stack of its own.
#[test]
fn threads_and_handlers_with_small_stacks_are_recorded() {
    if !have(&["g++"]) {
        return;
    }
    let bench = Bench::new();
    let subject = bench.compile("g++", OPTIONS, "stacks.cc");
    // A handler's stack of 4096 bytes is enough in an optimized build; without optimization frames are larger.
    let all = ["", "start", "handler"];
    let tried = if cfg!(debug_assertions) { &all[..2] } else { &all };
    for what in tried {
        let mut command = bench.command(&subject);
        let (out, _) = ok(command.arg(what).env("LOGGER_QUIET", "1"));
        if out == "no such stack\n" {
            println!("skipped: this machine has no stacks of 4096 bytes for handlers");
            continue;
        }
        assert_eq!(out, "done\n", "{what}");
    }
    let logs = bench.logs();
    assert_eq!(logs.len(), tried.len());
    for log in logs {
        log.check();
        let deep = log.lines.iter().any(|line| line.starts_with("region") && line.contains("deeply_named"));
        let threads = log.lines.iter().filter(|line| line.starts_with("activate ")).count();
        assert_eq!(deep, threads > 1, "{log}");
    }
}

/// No thread waits for the loader's lock while it holds a lock that the holder of the loader's lock may want.
#[test]
fn first_uses_do_not_deadlock_with_the_loader() {
    let bench = Bench::new();
    let module =
        bench.compile("cc", &["-O1", "-g", "-finstrument-functions", "-shared", "-fPIC"], "walks_module.c");
    let subject = bench.compile("cc", OPTIONS, "walks_main.c");
    assert_eq!(ok(bench.command(&subject).arg(&module)).0, "done\n");
    let log = &bench.logs()[0];
    log.check();
    assert_eq!((log.enters("of_the_callback"), log.enters("of_the_library")), (1, 1), "{log}");
}

/// Functions are recorded with their names while there is memory.
#[test]
fn a_program_without_memory_continues() {
    let bench = Bench::new();
    let subject =
        bench.compile("cc", &["-O1", "-g1", "-finstrument-functions", "-lpthread"], "little_memory.c");
    for kibibytes in ["64", "8192", "16384", "20000", "32768", "50000", "-64", "1000000"] {
        let mut command = bench.command(&subject);
        let (out, _) = ok(command.arg(kibibytes).env("LOGGER_QUIET", "1"));
        assert_eq!(out, "3\n", "{kibibytes}");
    }
    // A thread without memory for its frames is not recorded, and its calls are counted.
    assert!(bench.logs().iter().any(|log| log.find("missed - 1000").is_some()));
    assert!(
        bench.logs().iter().any(|log| log.find("finalize").is_some() && log.to_string().contains(" 'after'"))
    );
}

/// This includes handlers on an alternate stack. After a handler has left an event by longjmp, the thread is recorded as before.
#[test]
fn calls_of_handlers_that_interrupt_events_are_recorded_or_counted() {
    for (what, jumps) in [("storm", 0), ("alternate", 0), ("jump", 100)] {
        let bench = Bench::new();
        let subject = bench.compile("cc", OPTIONS, "handlers.c");
        let (out, _) = ok(bench.command(&subject).arg(what).env("LOGGER_QUIET", "1"));
        let log = &bench.logs()[0];
        let last_of = |line: &String| line.split(' ').next_back().unwrap().parse::<i64>().unwrap();
        let sum =
            |word: &str| log.lines.iter().filter(|line| line.starts_with(word)).map(last_of).sum::<i64>();
        let (calls, entered, missed) =
            (out.trim().parse::<i64>().unwrap(), sum("entered "), sum("missed 0 "));
        println!("{what}: {calls} calls, {entered} recorded, {missed} missed");
        // A handler misses at most its one call. The thread itself misses calls only after a jump out of one of its events.
        assert!(missed < calls / 10 && (missed > 0 || jumps > 0), "{what}: {missed} of {calls}");
        // A jump may have come between a call and its event.
        assert!((entered + missed - calls).abs() <= jumps, "{what}: {calls}, {entered} and {missed}");
    }
}

/// The unwinder does not recognise a handler that has no unwind tables. Its alternate stack shows that it is one.
#[test]
fn functions_that_a_handler_on_an_alternate_stack_calls_first_are_not_defined() {
    let bench = Bench::new();
    let options = [OPTIONS, &["-fno-asynchronous-unwind-tables"]].concat();
    let subject = bench.compile("cc", &options, "handlers.c");
    ok(bench.command(&subject).arg("new").env("LOGGER_QUIET", "1"));
    let log = &bench.logs()[0];
    let names = |name: &str| log.lines.iter().any(|line| line.starts_with("region") && line.contains(name));
    assert!(names("counted") && !names("in_the_handler"), "{log}");
}

#[test]
fn calls_of_a_thread_without_a_location_are_counted() {
    let bench = Bench::new();
    let subject = bench.compile("cc", OPTIONS, "handlers.c");
    ok(bench.command(&subject).arg("thread"));
    let log = &bench.logs()[0];
    log.check();
    assert_eq!((log.find("create_location 1"), log.find("missed")), (None, Some("missed - 5")), "{log}");
}

#[test]
fn timestamps_come_from_the_chosen_timer() {
    let bench = Bench::new();
    let subject = bench.compile("cc", OPTIONS, "functions.c");
    for (timer, ticks_per_s) in [("clock_gettime", 1e9), ("gettimeofday", 1e6)] {
        ok(bench.command(&subject).env("SCOREP_TIMER", timer));
        let log = &bench.logs()[0];
        let time: f64 = log.find("program_begin").unwrap().split(' ').nth(2).unwrap().parse().unwrap();
        let now = if timer == "gettimeofday" {
            std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64()
        } else {
            let uptime = std::fs::read_to_string("/proc/uptime").unwrap();
            uptime.split(' ').next().unwrap().parse().unwrap()
        };
        assert!((now - time / ticks_per_s).abs() < 60.0, "{timer}: {time} at {now}");
        for entry in std::fs::read_dir(&bench.dir).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "log") {
                std::fs::remove_file(path).unwrap();
            }
        }
    }
}

#[test]
fn programs_without_hooks_and_mpi_are_left_alone() {
    let bench = Bench::new();
    let (out, err) = ok(bench.command("bash").args(["-c", "echo hello; exec true"]));
    assert_eq!((out.as_str(), err.as_str()), ("hello\n", ""));
    // There is not even a message about a plugin that does not exist.
    let (_, err) = ok(bench.command("bash").args(["-c", ":"]).env("AMPERE_HOST_PLUGIN", "/nowhere.so"));
    assert_eq!(err, "");
    assert!(bench.logs().is_empty());
}

#[test]
fn without_a_plugin_there_is_one_line_and_the_same_result() {
    let bench = Bench::new();
    let subject = bench.compile("cc", OPTIONS, "functions.c");
    let empty = bench.path("empty.so");
    std::fs::write(&empty, "no library").unwrap();
    let cases: [(&str, &str); 3] = [
        ("/nowhere.so", "cannot load the plugin"),
        (empty.to_str().unwrap(), "cannot load"),
        ("", "libscorep_substrate_ampere.so is neither in"),
    ];
    // In the last case, there is no plugin next to the host.
    for (plugin, why) in cases {
        let (out, err) = ok(bench.command(&subject).env("AMPERE_HOST_PLUGIN", plugin));
        assert_eq!(out, "done \n");
        assert_eq!(
            (err.matches('\n').count(), err.starts_with("ampere: not measuring: "), err.contains(why)),
            (1, true, true),
            "{err}"
        );
    }
    let (out, err) = ok(bench.command(&subject).env("LOGGER_FAIL", "1"));
    assert_eq!(out, "done \n");
    assert!(err.contains("could not start (code 7)") && err.matches('\n').count() == 1, "{err}");
    // Only the first process of a node prints the message.
    let (_, err) = ok(bench
        .command(&subject)
        .env("AMPERE_HOST_PLUGIN", "/nowhere.so")
        .env("OMPI_COMM_WORLD_LOCAL_RANK", "1"));
    assert_eq!(err, "");
    if have(&[MPICH.cc, MPICH.run[0]]) {
        let subject = bench.compile(MPICH.cc, &["-O2"], "arguments.c");
        let (out, err) = ok(bench.mpi(&MPICH, 3, &subject).env("AMPERE_HOST_PLUGIN", "/nowhere.so"));
        assert_eq!(out, "errors 0 of 3 ranks\n");
        assert_eq!(err.matches("ampere: ").count(), 1, "{err}");
    }
    assert!(bench.logs().is_empty());
}

/// The real Score-P is recognized by its symbols.
#[test]
fn a_real_score_p_gets_all_calls() {
    let bench = Bench::new();
    let source = bench.path("scorep.c");
    std::fs::write(
        &source,
        "#include <stdio.h>\nstatic int n, m;\nvoid SCOREP_InitMeasurement(void) {}\n\
         void __cyg_profile_func_enter(void *f, void *s) { (void)f, (void)s; n++; }\n\
         void __cyg_profile_func_exit(void *f, void *s) { (void)f, (void)s; m++; }\n\
         __attribute__((destructor)) static void end(void) { printf(\"%d %d\\n\", n > 5, m > 5); }\n",
    )
    .unwrap();
    let library = bench.path("libscorep_measurement.so");
    let status =
        Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).status().unwrap();
    assert!(status.success());
    let mut options = OPTIONS.to_vec();
    let link = library.to_str().unwrap().to_string();
    let keep = format!("-Wl,--no-as-needed,{link}");
    options.push(&keep);
    let subject = bench.compile("cc", &options, "functions.c");
    let (out, err) = ok(&mut bench.command(&subject));
    assert_eq!((out.as_str(), err.as_str()), ("done \n1 1\n", ""));
    assert!(bench.logs().is_empty());
}
