//! Samples real programs. Checks which functions are found, and the reports about those that are not.

mod sampled;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use ampere_stacks::{CutReason, Options, Sampler, StacksError};
use sampled::{Received, Run, now, run_with, sampler_of};
use tempfile::TempDir;

/// Returns options with small copies of stacks, so that the rings have room for the samples of a quarter of a second: no sample
/// is lost if this process gets no CPU for a while.
fn options() -> Options {
    Options { stack_bytes: 8 << 10, ..Options::default() }
}

/// Returns the seconds for which the hypervisor ran something else on this machine's CPUs.
fn stolen() -> f64 {
    let stat = std::fs::read_to_string("/proc/stat").unwrap();
    stat.split_ascii_whitespace().nth(8).unwrap().parse::<f64>().unwrap() / 100.0
}

/// The tests' program, compiled.
struct Programs {
    directory: TempDir,
    path: PathBuf,
}

fn compile(options: &[&str]) -> Programs {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("programs");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs.c");
    let mut command = Command::new("cc");
    command
        .args(["-std=gnu17", "-O2", "-w"])
        .args(options)
        .arg("-o")
        .arg(&path)
        .arg(source)
        .args(["-lm", "-pthread"]);
    assert!(command.status().unwrap().success());
    Programs { directory, path }
}

impl Programs {
    fn run(&self, arguments: &[&str]) -> Option<Run> {
        let mut command = vec![self.path.to_str().unwrap()];
        command.extend(arguments);
        undisturbed(|| run_with(&command, &options()))
    }
}

/// Repeats a run, at most nine times, if samples were lost or much CPU time was stolen.
fn undisturbed(run: impl Fn() -> Option<Run>) -> Option<Run> {
    for _ in 0..9 {
        let stolen_before = stolen();
        let run = run()?;
        if run.figures.lost == 0 && stolen() - stolen_before < 0.02 {
            return Some(run);
        }
    }
    run()
}

const POINTERS: &[&str] = &["-fno-omit-frame-pointer"];
const TABLES: &[&str] = &["-fomit-frame-pointer"];
const POINTERS_ALONE: &[&str] =
    &["-fno-omit-frame-pointer", "-fno-asynchronous-unwind-tables", "-fno-unwind-tables"];

#[test]
fn stacks_are_complete_with_frame_pointers_with_tables_and_with_both() {
    let expected = format!("main;{}work", "deep;".repeat(31));
    for options in [POINTERS, TABLES, POINTERS_ALONE, &["-static"], &["-static-pie"], &["-O0"]] {
        let Some(run) = compile(options).run(&["deep"]) else { return };
        assert!(run.percent(&expected) > 90.0, "{options:?}: {:?}", run.stacks);
        assert!(run.complete_percent() > 99.0, "{options:?}: {:?}", run.figures);
        let outermost = run.stacks.keys().filter(|stack| !stack.starts_with("main;"));
        // These are samples before and after main.
        assert!(outermost.count() < 10, "{options:?}: {:?}", run.stacks);
    }
}

#[test]
fn a_frame_that_is_aligned_more_than_the_stack_is_unwound() {
    let Some(run) = compile(TABLES).run(&["aligned"]) else { return };
    assert!(run.percent("main;aligned;work") > 90.0, "{:?}", run.stacks);
}

#[test]
fn samples_follow_cpu_time() {
    let Some(run) = compile(TABLES).run(&["two"]) else { return };
    // The program uses 400 ms of CPU time, and some to start.
    assert!((300..600).contains(&run.figures.samples), "{:?}", run.figures);
    let ratio = run.percent("main;work") / run.percent("main;other");
    assert!((2.4..3.7).contains(&ratio), "{ratio}: {:?}", run.stacks);
}

#[test]
fn a_stack_that_is_deeper_than_the_copy_is_cut_off_and_counted() {
    let programs = compile(TABLES);
    let command = [programs.path.to_str().unwrap(), "deeper"];
    let Some(run) = run_with(&command, &Options::default()) else { return };
    let cut = &run.figures.cut_off[0];
    assert_eq!((cut.reason, cut.module.ends_with("/programs")), (CutReason::StackTooDeep, true), "{cut:?}");
    assert!(run.percent("...;deep;deep;deep;") > 90.0, "{:?}", run.stacks);
}

#[test]
fn each_thread_has_its_own_samples_from_its_start_function_on() {
    let Some(run) = compile(TABLES).run(&["threads"]) else { return };
    let mut of_threads = BTreeMap::<u32, usize>::new();
    for (process, thread, ..) in &run.received.samples {
        *of_threads.entry(*thread).or_default() += usize::from(process != thread);
    }
    let counts: Vec<usize> = of_threads.into_values().filter(|count| *count > 0).collect();
    assert_eq!(counts.len(), 3);
    assert!(counts.iter().all(|count| (150..280).contains(count)), "{counts:?}");
    let started: usize = run.stacks.iter().filter(|(stack, _)| *stack == "thread;work").map(|(_, n)| n).sum();
    assert!(started as f64 / run.figures.samples as f64 > 0.9, "{:?}", run.stacks);
    // Three threads, the main thread and the process have ended.
    assert_eq!(run.received.ended.len(), 5, "{:?}", run.received.ended);
    assert_eq!(run.received.ended.last().unwrap().1, None);
}

#[test]
fn forked_and_executed_processes_are_reported_and_sampled() {
    let Some(run) = compile(TABLES).run(&["fork"]) else { return };
    let [first, forked, executed] = &run.received.started[..] else { panic!("{:?}", run.received.started) };
    assert_eq!(
        (first.1.as_deref(), &forked.1, executed.1.as_deref()),
        (Some("programs"), &None, Some("programs"))
    );
    assert_eq!(forked.0, executed.0);
    assert_ne!(first.0, forked.0);
    let ended: Vec<u32> = run
        .received
        .ended
        .iter()
        .filter(|(_, thread)| thread.is_none())
        .map(|(process, _)| *process)
        .collect();
    assert_eq!(ended, [forked.0, first.0]);
    for part in ["main;other", "main;work", "main;deep;deep;deep;deep;work"] {
        assert!((25.0..40.0).contains(&run.percent(part)), "{part}: {:?}", run.stacks);
    }
}

#[test]
fn inlined_functions_are_frames_where_the_file_has_debug_information() {
    let Some(run) = compile(&["-g"]).run(&["inlined"]) else { return };
    assert!(run.percent("main;around;between;innermost") > 80.0, "{:?}", run.stacks);
    let source = include_str!("programs.c").lines().position(|line| line.contains("void around(")).unwrap();
    let (file, line) = &run.sources["around"];
    assert_eq!((file.ends_with("/programs.c"), *line), (true, source as u32 + 1), "{file}:{line}");
    assert!(run.sources["innermost"].0.ends_with("/programs.c"), "{:?}", run.sources);
    let Some(run) = compile(&["-g0"]).run(&["inlined"]) else { return };
    assert!(run.percent("main;around") > 80.0 && run.percent("innermost") == 0.0, "{:?}", run.stacks);
}

#[test]
fn a_program_that_ends_at_once_is_reported() {
    let Some(run) = compile(TABLES).run(&["at_once"]) else { return };
    assert_eq!(run.received.started.len(), 1);
    assert_eq!(run.received.ended.iter().filter(|(_, thread)| thread.is_none()).count(), 1);
}

#[test]
fn a_library_that_is_loaded_later_is_known() {
    let programs = compile(TABLES);
    let (source, library) =
        (programs.directory.path().join("l.c"), programs.directory.path().join("libl.so"));
    std::fs::write(
        &source,
        "void work(double); void loaded(double seconds) { work(seconds); __asm__(\"\"); }",
    )
    .unwrap();
    let status = Command::new("cc")
        .args(["-O1", "-shared", "-fPIC", "-fno-optimize-sibling-calls", "-o"])
        .arg(&library)
        .arg(&source)
        .status();
    assert!(status.unwrap().success());
    let programs = Programs { path: compile_into(&programs, &["-rdynamic"]), ..programs };
    let Some(run) = programs.run(&["loaded", library.to_str().unwrap()]) else { return };
    assert!(run.percent("main;loaded;work") > 70.0, "{:?}", run.stacks);
}

fn compile_into(programs: &Programs, options: &[&str]) -> PathBuf {
    let other = compile(options);
    std::fs::copy(&other.path, &programs.path).unwrap();
    programs.path.clone()
}

#[test]
fn a_signal_handler_is_inside_the_function_that_it_interrupted() {
    let Some(run) = compile(TABLES).run(&["signal"]) else { return };
    let nested = run
        .stacks
        .iter()
        .filter(|(stack, _)| stack.starts_with("main;on_other_stack;") && stack.ends_with("on_signal;other"));
    let nested: usize = nested.map(|(_, count)| count).sum();
    assert!(nested as f64 / run.figures.samples as f64 > 0.5, "{:?}", run.stacks);
}

#[test]
fn a_handler_on_its_own_stack_is_cut_off_and_counted() {
    let Some(run) = compile(TABLES).run(&["other_stack"]) else { return };
    let cut = &run.figures.cut_off[0];
    assert_eq!(cut.reason, CutReason::OtherStack, "{:?}", run.figures);
    assert!(run.percent("on_signal;other") > 50.0, "{:?}", run.stacks);
    assert!(run.percent("main;on_other_stack;work") > 20.0, "{:?}", run.stacks);
}

#[test]
fn jumps_out_of_handlers_and_coroutines_leave_no_frames_behind() {
    let programs = compile(TABLES);
    let Some(run) = programs.run(&["jump"]) else { return };
    for part in ["main;work", "main;other"] {
        assert!(run.percent(part) > 40.0, "{part}: {:?}", run.stacks);
    }
    let Some(run) = programs.run(&["coroutine"]) else { return };
    assert!(run.percent("main;work") > 40.0, "{:?}", run.stacks);
    assert!(run.percent("coroutine;other") > 40.0, "{:?}", run.stacks);
    assert_eq!(run.percent("main;coroutine"), 0.0);
}

#[test]
fn a_program_without_symbols_has_functions_by_address() {
    let Some(run) = compile(&["-s"]).run(&["deep"]) else { return };
    assert!(run.complete_percent() > 99.0, "{:?}", run.figures);
    let deepest = run.stacks.iter().max_by_key(|(_, count)| **count).unwrap().0;
    assert_eq!(deepest.split(';').count(), 33, "{deepest}");
    assert!(deepest.split(';').all(|name| name.starts_with("programs+0x")), "{deepest}");
}

/// Samples a program that is running already. `None` if this machine does not allow it.
fn run_already(programs: &Programs, what: &str) -> Option<Run> {
    let mut sampler = match Sampler::begin(&options()) {
        Err(StacksError::Paranoid { .. } | StacksError::Denied | StacksError::Absent) => {
            println!("skipped: perf_event_open is not allowed here");
            return None;
        }
        sampler => sampler.unwrap(),
    };
    let mut program =
        Command::new(&programs.path).arg(what).stdout(Stdio::piped()).stdin(Stdio::piped()).spawn().unwrap();
    program.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    let began = now();
    sampler.add_running(program.id()).unwrap();
    sampler.add_running(program.id()).expect("a second call does nothing");
    drop(program.stdin.take());
    let mut received = Received::default();
    while program.try_wait().unwrap().is_none() {
        sampler.poll(&mut received);
        std::thread::sleep(Duration::from_millis(3));
    }
    sampler.finish(&mut received);
    assert_eq!(received.ended.last(), Some(&(program.id(), None)));
    Some(Run::of(received, &sampler, began))
}

/// Returns the number of samples of each thread except the main one.
fn of_threads(run: &Run) -> Vec<usize> {
    let mut all = BTreeMap::<u32, usize>::new();
    let others = run.received.samples.iter().filter(|(process, thread, ..)| process != thread);
    others.for_each(|(_, thread, ..)| *all.entry(*thread).or_default() += 1);
    all.into_values().collect()
}

#[test]
fn a_running_process_is_sampled_with_all_threads_and_children() {
    let programs = compile(TABLES);
    let Some(run) = undisturbed(|| run_already(&programs, "already")) else { return };
    let counts = of_threads(&run);
    assert_eq!(counts.len(), 4, "three that were there, and one more: {:?}", run.stacks);
    assert!(counts.iter().all(|count| (80..150).contains(count)), "{counts:?}");
    assert!(run.percent("waiting;work") > 40.0, "{:?}", run.stacks);
    assert!(run.stacks.keys().any(|stack| stack.ends_with("main;other")), "its child: {:?}", run.stacks);
    assert!(run.complete_percent() > 99.0, "{:?}", run.figures);
}

#[test]
fn threads_that_start_in_the_meantime_are_sampled_once() {
    let programs = compile(TABLES);
    let Some(run) = undisturbed(|| run_already(&programs, "starting")) else { return };
    let counts = of_threads(&run);
    // There are 40 threads of 50 ms each, four that start them, and 200 that make adding the process slow.
    assert!(counts.iter().all(|count| *count < 75), "{counts:?}");
    // On a busy machine the timer is late, and samples are fetched too late.
    assert!(counts.iter().filter(|count| **count > 5).count() > 36, "{counts:?}");
}

#[test]
fn a_launcher_that_has_ended_and_invalid_settings_are_errors() {
    let mut ended = Command::new("true").spawn().unwrap();
    ended.wait().unwrap();
    let error = sampler_of(ended.id(), &Options::default()).err().unwrap();
    assert_eq!(
        error.to_string(),
        format!("process {} does not exist: start sampling before it ends", ended.id())
    );
    let options = Options { stack_bytes: 70000, ..Options::default() };
    let error = Sampler::begin(&options).err().unwrap();
    assert_eq!(
        error.to_string(),
        "samples cannot be taken with 70000 bytes of a stack: use a multiple of 8, at most 64000"
    );
}

#[test]
fn times_on_a_cpu_are_recorded_with_and_without_samples() {
    let programs = compile(TABLES);
    let mut program = Command::new(&programs.path)
        .arg("switched")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(program.stdout.take().unwrap());
    let mut words = program.stdin.take().unwrap();
    said.read_exact(&mut [0]).unwrap();
    let process = program.id();
    let (step, done) = std::sync::mpsc::channel();
    let reader = std::thread::spawn(move || {
        let mut line = String::new();
        while said.read_line(&mut line).is_ok_and(|bytes| bytes > 1) {
            step.send(line.trim_matches(['.', '\n']).parse::<f64>().unwrap()).unwrap();
            line.clear();
        }
    });
    for (name, samples) in [("no samples", false), ("samples", true)] {
        // With these small copies of stacks, the rings have room for all records, even if they are read late.
        let options = Options { stack_bytes: 1 << 10, samples, ..Options::default() };
        let Ok(mut sampler) = Sampler::begin(&options) else {
            println!("skipped: perf_event_open is not allowed here");
            program.kill().unwrap();
            program.wait().unwrap();
            return;
        };
        let mut received = Received::default();
        let stolen_before = stolen();
        sampler.add_running(process).unwrap();
        sampler.poll(&mut Received::default());
        words.write_all(b"\n").unwrap();
        let used = loop {
            sampler.poll(&mut received);
            match done.recv_timeout(Duration::from_millis(20)) {
                Ok(used) => break used,
                Err(std::sync::mpsc::RecvTimeoutError::Timeout) => {}
                Err(why) => panic!("{name}: {why}"),
            }
        };
        std::thread::sleep(Duration::from_millis(5));
        sampler.poll(&mut received);
        let of_process: Vec<_> = received.on_cpu.iter().filter(|(of, ..)| *of == process).collect();
        let mut threads = BTreeMap::<u32, Vec<(u64, u64)>>::new();
        of_process.iter().for_each(|(_, thread, from, until)| {
            threads.entry(*thread).or_default().push((*from, *until));
        });
        assert!(threads.len() >= 55, "{name}: {} threads", threads.len());
        let is_in_order = |of: &Vec<(u64, u64)>| of.windows(2).all(|pair| pair[0].1 <= pair[1].0);
        assert!(threads.values().all(is_in_order), "{name}: no time counts twice");
        let sum = 1e-9 * of_process.iter().map(|(.., from, until)| until - from).sum::<u64>() as f64;
        // A switch takes some microseconds, which count for different threads in the two figures. The kernel leaves stolen time
        // out of its count, which is in hundredths of a second.
        let stolen = stolen() - stolen_before;
        let stolen = if stolen > 0.0 { stolen + 0.01 } else { 0.0 };
        // Some kernels leave interrupts out of their count, too: those of samples are up to a hundredth of the time.
        let most = 0.03 * used + 5e-6 * of_process.len() as f64 + stolen;
        assert!((sum - used).abs() < most, "{name}: {sum} s by switches, {used} s by the kernel");
        assert_eq!(received.samples.len() > 50, samples, "{name}: {}", received.samples.len());
        assert_eq!(sampler.figures().lost, 0);
    }
    drop(words);
    program.wait().unwrap();
    reader.join().unwrap();
}

#[test]
fn times_on_a_cpu_are_passed_on_only_if_they_are_asked_for() {
    let programs = compile(TABLES);
    let command = [programs.path.to_str().unwrap(), "two"];
    for cpu_times in [true, false] {
        let Some(run) = run_with(&command, &Options { cpu_times, ..options() }) else { return };
        assert!(run.received.samples.len() > 100, "{}", run.received.samples.len());
        assert_eq!(!run.received.on_cpu.is_empty(), cpu_times);
    }
}

#[test]
fn a_time_on_a_cpu_ends_when_the_process_executes_another_program() {
    let script = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; exec sh -c ':'";
    let Some(run) = run_with(&["sh", "-c", script], &Options { cpu_times: true, ..options() }) else {
        return;
    };
    let Received { started, on_cpu, .. } = &run.received;
    assert!(started.len() >= 2, "{started:?}");
    for (process, _, at) in started {
        let across = on_cpu.iter().find(|(of, _, from, until)| of == process && from < at && at < until);
        assert_eq!(across, None, "{at}");
    }
}

/// Returns the share of each function among perf's samples, in percent.
fn of_perf(program: &Path, data: &Path) -> Option<BTreeMap<String, f64>> {
    let record = Command::new("perf")
        .args(["record", "-q", "-e", "cpu-clock:u", "-c", "1000000", "-o"])
        .arg(data)
        .arg(program)
        .arg("two")
        .output();
    if !record.is_ok_and(|output| output.status.success()) {
        println!("skipped: no perf");
        return None;
    }
    let report = Command::new("perf")
        .args(["report", "--stdio", "-q", "-t", "|", "--no-children", "-s", "symbol", "-i"])
        .arg(data)
        .output()
        .unwrap();
    let parse = |line: &str| {
        let mut fields = line.split('|');
        let (percent, symbol) = (fields.next()?, fields.next()?);
        Some((
            symbol.trim().trim_start_matches("[.] ").to_owned(),
            percent.trim().trim_end_matches('%').parse().ok()?,
        ))
    };
    Some(String::from_utf8(report.stdout).unwrap().lines().filter_map(parse).collect())
}

#[test]
fn the_flat_profile_agrees_with_perfs() {
    let programs = compile(TABLES);
    let mut sums = BTreeMap::<String, f64>::new();
    // The shares in a profile vary with the load of the machine, so that means of several are compared.
    for round in 1..=6 {
        let Some(perf) = of_perf(&programs.path, &programs.directory.path().join("data")) else { return };
        let Some(run) = programs.run(&["two"]) else { return };
        let top: Vec<_> = perf.iter().filter(|(_, percent)| **percent > 1.0).collect();
        assert!(top.len() >= 2, "{perf:?}");
        for (name, percent) in top {
            let is_here = |stack: &str| stack.rsplit(';').next() == Some(name.as_str());
            let ours: usize = run.stacks.iter().filter(|(stack, _)| is_here(stack)).map(|(_, n)| n).sum();
            *sums.entry(name.clone()).or_default() +=
                100.0 * ours as f64 / run.figures.samples as f64 - percent;
        }
        if sums.values().all(|sum| (sum / f64::from(round)).abs() < 2.0) {
            return;
        }
    }
    panic!("the sums of six differences from perf's profile, in percent, are {sums:?}");
}

#[test]
fn lost_records_are_counted() {
    let programs = compile(TABLES);
    let mut launcher = Command::new("sh")
        .args(["-c", "read go; \"$@\"; exit $?", "sh", programs.path.to_str().unwrap(), "moves"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut go = launcher.stdin.take().unwrap();
    // Nobody reads the rings while the program runs, so the first CPU's is full after a tenth of a second. The samples on the
    // second CPU come after the loss, and the program has ended when they are read.
    let options = Options { stack_bytes: 64000, period: Duration::from_micros(250), ..Options::default() };
    let begun = sampler_of(launcher.id(), &options);
    go.write_all(b"\n").unwrap();
    let Ok(mut sampler) = begun else {
        println!("skipped: perf_event_open is not allowed here");
        launcher.wait().unwrap();
        return;
    };
    let mut received = Received::default();
    launcher.wait().unwrap();
    sampler.finish(&mut received);
    let figures = sampler.figures();
    assert!(figures.lost > 100, "{figures:?}");
    // 400 ms with four samples in each millisecond: all are recorded or counted, unless the timer itself is late. Lost records
    // include switches of threads.
    assert!((300..6000).contains(&(figures.samples + figures.lost)), "{figures:?}");
    assert!(figures.complete as f64 > 0.99 * figures.samples as f64, "{figures:?}");
}
