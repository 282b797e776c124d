//! Checks the number of open perf events (descriptors). It is counted for the whole process, so there is only one test in this
//! file.

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ampere_stacks::{FunctionId, Options, Sampler, Sink, StacksError};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

struct Count(usize);

impl Sink for Count {
    fn sample(&mut self, _process: u32, _thread: u32, _time: u64, _frames: &[FunctionId], _is_cut_off: bool) {
        self.0 += 1;
    }

    fn started(&mut self, _process: u32, _time: u64, _name: Option<&str>) {}

    fn ended(&mut self, _process: u32, _thread: Option<u32>, _time: u64) {}
}

const LAUNCHER: &str = "read go; sh -c 'i=0; while [ $i -lt 300000 ]; do i=$((i + 1)); done' & exit 0";

const THREADS: usize = 41;
const MANY: &str = r#"
    #include <pthread.h>
    #include <stdio.h>
    static void *wait_for_end(void *nothing) { getchar(); return nothing; }
    int main(void) {
        pthread_t thread;
        for (int i = 1; i < 41; i++) pthread_create(&thread, NULL, wait_for_end, NULL);
        puts("");
        fflush(stdout);
        getchar();
        return 0;
    }
"#;

fn open() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn the_sampler_opens_no_more_perf_events_than_needed_or_allowed() {
    let others = open();
    let Ok(mut sampler) = Sampler::begin(&Options::default()) else {
        println!("skipped: perf_event_open is not allowed here");
        return;
    };
    check_that_files_are_closed_when_all_processes_have_ended(&mut sampler);
    check_that_half_of_the_files_that_may_be_open_are_left(&mut sampler, others);
}

fn check_that_files_are_closed_when_all_processes_have_ended(sampler: &mut Sampler) {
    /// The commands run for some seconds on a busy machine.
    const LIMIT: Duration = Duration::from_secs(60);
    let before = open();
    for _ in 0..3 {
        let mut parent = Command::new("sh").args(["-c", LAUNCHER]).stdin(Stdio::piped()).spawn().unwrap();
        let go = parent.stdin.take();
        sampler.add_running(parent.id()).unwrap();
        drop(go);
        parent.wait().unwrap();
        let mut of_child = Count(0);
        let start = Instant::now();
        while open() > before {
            assert!(
                start.elapsed() < LIMIT,
                "{} events are still open: {:?}",
                open() - before,
                sampler.figures()
            );
            sampler.poll(&mut of_child);
            std::thread::sleep(Duration::from_millis(3));
        }
        assert!(of_child.0 > 50, "{}", of_child.0);
    }
}

fn check_that_half_of_the_files_that_may_be_open_are_left(sampler: &mut Sampler, others: usize) {
    let cpus = std::thread::available_parallelism().unwrap().get();
    if cpus == 1 {
        println!("skipped: one CPU");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let [source, program] = ["many.c", "many"].map(|name| directory.path().join(name));
    std::fs::write(&source, MANY).unwrap();
    let compiled = Command::new("cc").arg(source).arg("-o").arg(&program).arg("-pthread").status();
    assert!(compiled.unwrap().success());
    let maximum = getrlimit(Resource::Nofile).maximum;
    let limit = (others + 2 * (cpus + THREADS)) as u64;
    setrlimit(Resource::Nofile, Rlimit { current: Some(limit), maximum }).unwrap();

    let mut anywhere = start(Command::new(&program));
    let why = sampler.add_running(anywhere.id()).unwrap_err();
    assert!(matches!(why, StacksError::Files { needed, .. } if needed == cpus * THREADS), "{why}");
    end(&mut anywhere);

    let mut bound = Command::new("taskset");
    bound.args(["-c", "0"]).arg(&program);
    let mut bound = start(bound);
    let before = open();
    sampler.add_running(bound.id()).unwrap();
    assert_eq!(open() - before, THREADS);
    end(&mut bound);
}

/// Starts a program that ends when its input is closed, and waits until it has printed a line.
fn start(mut program: Command) -> Child {
    let mut child = program.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdout.as_mut().map(|output| output.read_exact(&mut [0])).unwrap().unwrap();
    child
}

fn end(child: &mut Child) {
    drop(child.stdin.take());
    child.wait().unwrap();
}
