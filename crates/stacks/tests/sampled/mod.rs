//! Samples a command and keeps the results.
#![allow(dead_code)] // not all tests use all of it

use std::collections::BTreeMap;
use std::io::Write;
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::time::Duration;

use ampere_stacks::{Figures, FunctionId, Options, Sampler, Sink, StacksError};

#[derive(Default)]
pub struct Received {
    pub samples: Vec<(u32, u32, Vec<FunctionId>, bool)>,
    /// Processes in the order in which they started, with the name of their last program and the time.
    pub started: Vec<(u32, Option<String>, u64)>,
    pub ended: Vec<(u32, Option<u32>)>,
    pub times: Vec<u64>,
    /// The process, the thread, the start and the end of each interval on a CPU.
    pub on_cpu: Vec<(u32, u32, u64, u64)>,
}

impl Sink for Received {
    fn sample(&mut self, process: u32, thread: u32, time: u64, frames: &[FunctionId], is_cut_off: bool) {
        self.times.push(time);
        self.samples.push((process, thread, frames.to_vec(), is_cut_off));
    }

    fn started(&mut self, process: u32, time: u64, name: Option<&str>) {
        self.times.push(time);
        self.started.push((process, name.map(str::to_owned), time));
    }

    fn on_cpu(&mut self, process: u32, thread: u32, from: u64, until: u64) {
        self.on_cpu.push((process, thread, from, until));
    }

    fn ended(&mut self, process: u32, thread: Option<u32>, time: u64) {
        self.times.push(time);
        self.ended.push((process, thread));
    }
}

/// A command that was sampled until its end.
pub struct Run {
    pub received: Received,
    /// The number of samples of each stack, by the names `a;b;c`; stacks that were cut off begin with `...;`.
    pub stacks: BTreeMap<String, usize>,
    /// The source file and line of each function.
    pub sources: BTreeMap<String, (String, u32)>,
    pub figures: Figures,
    /// The times at which it started and ended.
    pub times: [u64; 2],
}

impl Run {
    pub fn of(received: Received, sampler: &Sampler, began: u64) -> Run {
        let (mut stacks, mut sources) = (BTreeMap::new(), BTreeMap::new());
        for (.., frames, is_cut_off) in &received.samples {
            let functions = frames.iter().map(|id| sampler.function(*id));
            sources.extend(functions.map(|of| (of.name.clone(), (of.file.clone(), of.line))));
            let mut names: Vec<&str> = if *is_cut_off { vec!["..."] } else { vec![] };
            names.extend(frames.iter().map(|id| sampler.function(*id).name.as_str()));
            *stacks.entry(names.join(";")).or_default() += 1;
        }
        let run = Run { received, stacks, sources, figures: sampler.figures(), times: [began, now()] };
        run.check();
        run
    }

    /// Returns the share of samples whose stacks contain this, in percent.
    pub fn percent(&self, part: &str) -> f64 {
        let with: usize =
            self.stacks.iter().filter(|(stack, _)| stack.contains(part)).map(|(_, count)| count).sum();
        100.0 * with as f64 / self.figures.samples as f64
    }

    fn check(&self) {
        assert!(self.received.times.is_sorted(), "records are passed on in time order");
        let [began, ended] = self.times;
        assert!(
            self.received.times.iter().all(|time| (began..ended).contains(time)),
            "all times are within those of the run"
        );
        let cut_off: u64 = self.figures.cut_off.iter().map(|cut| cut.samples).sum();
        assert_eq!(self.figures.complete + cut_off, self.figures.samples);
        assert_eq!(self.received.samples.len() as u64, self.figures.samples);
        assert!(
            self.received.samples.iter().all(|(.., frames, _)| !frames.is_empty()),
            "each sample has a function"
        );
    }

    pub fn complete_percent(&self) -> f64 {
        100.0 * self.figures.complete as f64 / self.figures.samples as f64
    }
}

pub fn now() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

pub fn sampler_of(launcher: u32, options: &Options) -> Result<Sampler, StacksError> {
    let mut sampler = Sampler::begin(options)?;
    sampler.add_launcher(launcher).map(|()| sampler)
}

/// Samples a command. `None`, with the reason printed, if this machine does not allow it.
pub fn run_with(command: &[&str], options: &Options) -> Option<Run> {
    // The command has its own launcher, so that commands of other tests are not sampled.
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
    let mut received = Received::default();
    // The wait ends because the rings fill up, long before its time limit.
    let (never, _end) = std::io::pipe().unwrap();
    while launcher.try_wait().unwrap().is_none() {
        sampler.poll(&mut received);
        sampler.wait(Duration::from_millis(300), never.as_fd());
    }
    sampler.finish(&mut received);
    Some(Run::of(received, &sampler, began))
}
