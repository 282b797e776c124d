//! Real programs, sampled: which functions are found, and what is said of those that are not.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use ampere_stacks::{CutReason, Figures, FunctionId, Options, Sampler, Sink, StacksError};
use tempfile::TempDir;

/// What a sink was told.
#[derive(Default)]
struct Told {
    samples: Vec<(u32, u32, Vec<FunctionId>, bool)>,
    /// Processes in the order in which they began, with the program's name at last.
    started: Vec<(u32, Option<String>)>,
    ended: Vec<(u32, Option<u32>)>,
    times: Vec<u64>,
}

impl Sink for Told {
    fn sample(&mut self, process: u32, thread: u32, time: u64, frames: &[FunctionId], is_cut_off: bool) {
        self.times.push(time);
        self.samples.push((process, thread, frames.to_vec(), is_cut_off));
    }

    fn started(&mut self, process: u32, time: u64, name: Option<&str>) {
        self.times.push(time);
        self.started.push((process, name.map(str::to_owned)));
    }

    fn ended(&mut self, process: u32, thread: Option<u32>, time: u64) {
        self.times.push(time);
        self.ended.push((process, thread));
    }
}

/// A command that was sampled until its end.
struct Run {
    told: Told,
    /// The names on each sample's stack, `a;b;c`, with how many samples; those that were cut off begin with `...;`.
    stacks: BTreeMap<String, usize>,
    /// Source file and line of each function.
    sources: BTreeMap<String, (String, u32)>,
    figures: Figures,
    /// When it began and ended.
    times: [u64; 2],
}

impl Run {
    fn of(told: Told, sampler: &Sampler, began: u64) -> Run {
        let (mut stacks, mut sources) = (BTreeMap::new(), BTreeMap::new());
        for (.., frames, is_cut_off) in &told.samples {
            let functions = frames.iter().map(|id| sampler.function(*id));
            sources.extend(functions.map(|of| (of.name.clone(), (of.file.clone(), of.line))));
            let mut names: Vec<&str> = if *is_cut_off { vec!["..."] } else { vec![] };
            names.extend(frames.iter().map(|id| sampler.function(*id).name.as_str()));
            *stacks.entry(names.join(";")).or_default() += 1;
        }
        let run = Run { told, stacks, sources, figures: sampler.figures(), times: [began, now()] };
        run.check();
        run
    }

    /// How much of the samples' stacks contain this, in percent.
    fn percent(&self, part: &str) -> f64 {
        let with: usize =
            self.stacks.iter().filter(|(stack, _)| stack.contains(part)).map(|(_, count)| count).sum();
        100.0 * with as f64 / self.figures.samples as f64
    }

    fn check(&self) {
        assert!(self.told.times.is_sorted(), "all is told in the order of time");
        let [began, ended] = self.times;
        assert!(
            self.told.times.iter().all(|time| (began..ended).contains(time)),
            "times are those of the clock"
        );
        let cut_off: u64 = self.figures.cut_off.iter().map(|cut| cut.samples).sum();
        assert_eq!(self.figures.complete + cut_off, self.figures.samples);
        assert_eq!(self.told.samples.len() as u64, self.figures.samples);
        assert!(
            self.told.samples.iter().all(|(.., frames, _)| !frames.is_empty()),
            "each sample has a function"
        );
    }

    fn complete_percent(&self) -> f64 {
        100.0 * self.figures.complete as f64 / self.figures.samples as f64
    }
}

fn now() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn sampler_of(launcher: u32, options: &Options) -> Result<Sampler, StacksError> {
    let mut sampler = Sampler::begin(options)?;
    sampler.add_launcher(launcher).map(|()| sampler)
}

/// Samples a command. `None`, with the reason printed: this machine does not allow it.
fn run_with(command: &[&str], options: &Options) -> Option<Run> {
    // A launcher of its own: what other tests start is not sampled.
    let mut launcher = Command::new("sh")
        .args(["-c", "read go; \"$@\"; exit $?", "sh"])
        .args(command)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut go = launcher.stdin.take().unwrap();
    let mut sampler = match sampler_of(launcher.id(), options) {
        Ok(sampler) => sampler,
        Err(error @ (StacksError::Paranoid { .. } | StacksError::Denied | StacksError::Absent)) => {
            println!("skipped: perf_event_open is not allowed here");
            eprintln!("{error}");
            drop(go);
            launcher.wait().unwrap();
            return None;
        }
        Err(error) => panic!("{error}"),
    };
    let began = now();
    go.write_all(b"\n").unwrap();
    let mut told = Told::default();
    // Longer than rings last: that they fill up ends the wait.
    let (never, _end) = std::io::pipe().unwrap();
    while launcher.try_wait().unwrap().is_none() {
        sampler.poll(&mut told);
        sampler.wait(Duration::from_millis(300), never.as_fd());
    }
    sampler.finish(&mut told);
    Some(Run::of(told, &sampler, began))
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
        run_with(&command, &Options::default())
    }
}

const POINTERS: &[&str] = &["-fno-omit-frame-pointer"];
const TABLES: &[&str] = &["-fomit-frame-pointer"];
const POINTERS_ALONE: &[&str] =
    &["-fno-omit-frame-pointer", "-fno-asynchronous-unwind-tables", "-fno-unwind-tables"];

#[test]
fn stacks_are_whole_with_frame_pointers_with_tables_and_with_both() {
    let expected = format!("main;{}work", "deep;".repeat(31));
    for options in [POINTERS, TABLES, POINTERS_ALONE, &["-static"], &["-static-pie"], &["-O0"]] {
        let Some(run) = compile(options).run(&["deep"]) else { return };
        assert!(run.percent(&expected) > 90.0, "{options:?}: {:?}", run.stacks);
        assert!(run.complete_percent() > 99.0, "{options:?}: {:?}", run.figures);
        let outermost = run.stacks.keys().filter(|stack| !stack.starts_with("main;"));
        // Before main and after it.
        assert!(outermost.count() < 10, "{options:?}: {:?}", run.stacks);
    }
}

#[test]
fn a_frame_that_is_aligned_more_than_the_stack_is_passed() {
    let Some(run) = compile(TABLES).run(&["aligned"]) else { return };
    assert!(run.percent("main;aligned;work") > 90.0, "{:?}", run.stacks);
}

#[test]
fn samples_follow_cpu_time() {
    let Some(run) = compile(TABLES).run(&["two"]) else { return };
    // 400 ms of CPU time, and what starting the program takes.
    assert!((300..600).contains(&run.figures.samples), "{:?}", run.figures);
    let ratio = run.percent("main;work") / run.percent("main;other");
    assert!((2.4..3.7).contains(&ratio), "{ratio}: {:?}", run.stacks);
}

#[test]
fn a_stack_that_is_deeper_than_the_copy_is_cut_off_and_counted() {
    let Some(run) = compile(TABLES).run(&["deeper"]) else { return };
    let cut = &run.figures.cut_off[0];
    assert_eq!((cut.reason, cut.module.ends_with("/programs")), (CutReason::StackTooDeep, true), "{cut:?}");
    assert!(run.percent("...;deep;deep;deep;") > 90.0, "{:?}", run.stacks);
}

#[test]
fn each_thread_has_its_own_samples_from_its_start_function_on() {
    let Some(run) = compile(TABLES).run(&["threads"]) else { return };
    let mut of_threads = BTreeMap::<u32, usize>::new();
    for (process, thread, ..) in &run.told.samples {
        *of_threads.entry(*thread).or_default() += usize::from(process != thread);
    }
    let counts: Vec<usize> = of_threads.into_values().filter(|count| *count > 0).collect();
    assert_eq!(counts.len(), 3);
    assert!(counts.iter().all(|count| (150..280).contains(count)), "{counts:?}");
    let started: usize = run.stacks.iter().filter(|(stack, _)| *stack == "thread;work").map(|(_, n)| n).sum();
    assert!(started as f64 / run.figures.samples as f64 > 0.9, "{:?}", run.stacks);
    // Three threads, the main thread, the process.
    assert_eq!(run.told.ended.len(), 5, "{:?}", run.told.ended);
    assert_eq!(run.told.ended.last().unwrap().1, None);
}

#[test]
fn forked_and_executed_processes_are_told_and_sampled() {
    let Some(run) = compile(TABLES).run(&["fork"]) else { return };
    let [first, forked, executed] = &run.told.started[..] else { panic!("{:?}", run.told.started) };
    assert_eq!(
        (first.1.as_deref(), &forked.1, executed.1.as_deref()),
        (Some("programs"), &None, Some("programs"))
    );
    assert_eq!(forked.0, executed.0);
    assert_ne!(first.0, forked.0);
    let ended: Vec<u32> =
        run.told.ended.iter().filter(|(_, thread)| thread.is_none()).map(|(process, _)| *process).collect();
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
fn a_program_that_ends_at_once_is_told() {
    let Some(run) = compile(TABLES).run(&["at_once"]) else { return };
    assert_eq!(run.told.started.len(), 1);
    assert_eq!(run.told.ended.iter().filter(|(_, thread)| thread.is_none()).count(), 1);
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
fn a_signal_handler_is_above_what_it_interrupted() {
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
fn jumps_out_of_handlers_and_coroutines_leave_nothing_behind() {
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

#[test]
fn a_file_that_is_gone_has_unknown_functions() {
    let programs = compile(TABLES);
    let script = format!("cp {0} {0}2; {0}2 two & sleep 0.1; rm {0}2; wait", programs.path.display());
    // The file is read at the first poll, which comes too late.
    let options = Options { period: Duration::from_millis(1), ..Options::default() };
    let mut launcher = Command::new("sh")
        .args(["-c", "read go; sh -c \"$1\"; exit 0", "sh", &script])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut go = launcher.stdin.take().unwrap();
    let begun = sampler_of(launcher.id(), &options);
    go.write_all(b"\n").unwrap();
    let Ok(mut sampler) = begun else {
        println!("skipped: perf_event_open is not allowed here");
        launcher.wait().unwrap();
        return;
    };
    let mut told = Told::default();
    let copy = PathBuf::from(format!("{}2", programs.path.display()));
    for is_there in [true, false] {
        while copy.exists() != is_there && launcher.try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    while launcher.try_wait().unwrap().is_none() {
        sampler.poll(&mut told);
        std::thread::sleep(Duration::from_millis(10));
    }
    sampler.finish(&mut told);
    let name = |(.., frames, _): &(u32, u32, Vec<FunctionId>, bool)| {
        sampler.function(*frames.last().unwrap()).clone()
    };
    let unknown = told
        .samples
        .iter()
        .map(name)
        .filter(|function| function.module.contains("programs2") && function.name == "[unknown]");
    assert!(unknown.count() > 200, "{:?}", sampler.figures());
}

/// A program that runs already, and says when it does. `None`: this machine does not allow it.
fn run_already(programs: &Programs, what: &str) -> Option<Run> {
    let mut sampler = match Sampler::begin(&Options::default()) {
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
    sampler.add_running(program.id()).expect("no second time");
    drop(program.stdin.take());
    let mut told = Told::default();
    while program.try_wait().unwrap().is_none() {
        sampler.poll(&mut told);
        std::thread::sleep(Duration::from_millis(3));
    }
    sampler.finish(&mut told);
    assert_eq!(told.ended.last(), Some(&(program.id(), None)));
    Some(Run::of(told, &sampler, began))
}

/// Samples of each thread, without the main one.
fn of_threads(run: &Run) -> Vec<usize> {
    let mut all = BTreeMap::<u32, usize>::new();
    let others = run.told.samples.iter().filter(|(process, thread, ..)| process != thread);
    others.for_each(|(_, thread, ..)| *all.entry(*thread).or_default() += 1);
    all.into_values().collect()
}

#[test]
fn a_process_that_runs_already_is_sampled_with_all_threads_and_children() {
    let Some(run) = run_already(&compile(TABLES), "already") else { return };
    let counts = of_threads(&run);
    assert_eq!(counts.len(), 4, "three that were there, and one more: {:?}", run.stacks);
    assert!(counts.iter().all(|count| (80..150).contains(count)), "{counts:?}");
    assert!(run.percent("waiting;work") > 40.0, "{:?}", run.stacks);
    assert!(run.stacks.keys().any(|stack| stack.ends_with("main;other")), "its child: {:?}", run.stacks);
    assert!(run.complete_percent() > 99.0, "{:?}", run.figures);
}

#[test]
fn threads_that_start_meanwhile_are_sampled_once() {
    let Some(run) = run_already(&compile(TABLES), "starting") else { return };
    let counts = of_threads(&run);
    // 40 of 50 ms each, the four that start them, and 200 that make it take long to add the process.
    assert!(counts.iter().all(|count| *count < 75), "{counts:?}");
    // On a busy machine the timer comes late, and samples are fetched too late.
    assert!(counts.iter().filter(|count| **count > 5).count() > 36, "{counts:?}");
}

#[test]
fn a_launcher_that_has_ended_and_odd_settings_are_errors() {
    let mut ended = Command::new("true").spawn().unwrap();
    ended.wait().unwrap();
    let error = sampler_of(ended.id(), &Options::default()).err().unwrap();
    assert_eq!(
        error.to_string(),
        format!("process {} is not there: begin sampling before it ends", ended.id())
    );
    let options = Options { stack_bytes: 70000, ..Options::default() };
    let error = Sampler::begin(&options).err().unwrap();
    assert_eq!(
        error.to_string(),
        "70000 bytes of a stack cannot be sampled with: a multiple of 8, at most 64000"
    );
}

/// The share of each function among perf's samples, in percent.
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
fn the_flat_profile_is_perfs() {
    let programs = compile(TABLES);
    let Some(perf) = of_perf(&programs.path, &programs.directory.path().join("data")) else { return };
    let Some(run) = programs.run(&["two"]) else { return };
    let mut top: Vec<_> = perf.iter().filter(|(_, percent)| **percent > 1.0).collect();
    top.sort_by(|a, b| b.1.total_cmp(a.1));
    assert!(top.len() >= 2, "{perf:?}");
    for (name, percent) in top.iter().take(10) {
        let ours: usize = run
            .stacks
            .iter()
            .filter(|(stack, _)| stack.rsplit(';').next() == Some(name.as_str()))
            .map(|(_, n)| n)
            .sum();
        let ours = 100.0 * ours as f64 / run.figures.samples as f64;
        assert!((ours - **percent).abs() < 2.0, "{name}: {ours} % here, {percent} % in perf's profile");
    }
}

#[test]
fn what_is_lost_is_counted() {
    let programs = compile(TABLES);
    let mut launcher = Command::new("sh")
        .args(["-c", "read go; \"$@\"; exit $?", "sh", programs.path.to_str().unwrap(), "two"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut go = launcher.stdin.take().unwrap();
    // The rings, which nobody reads while the program runs, are full after a tenth of a second.
    let options = Options { stack_bytes: 64000, period: Duration::from_micros(250), ..Options::default() };
    let begun = sampler_of(launcher.id(), &options);
    go.write_all(b"\n").unwrap();
    let Ok(mut sampler) = begun else {
        println!("skipped: perf_event_open is not allowed here");
        launcher.wait().unwrap();
        return;
    };
    let mut told = Told::default();
    launcher.wait().unwrap();
    sampler.finish(&mut told);
    let figures = sampler.figures();
    assert!(figures.lost > 100, "{figures:?}");
    // 400 ms, four times in each millisecond: all are there, or counted, but where the timer itself comes late. Switches of threads are
    // among what is lost.
    assert!((800..6000).contains(&(figures.samples + figures.lost)), "{figures:?}");
    assert!(figures.complete as f64 > 0.99 * figures.samples as f64, "{figures:?}");
}
