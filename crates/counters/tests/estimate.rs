//! The estimate, on a made-up tree and on this machine.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use ampere_counters::{
    Kind, LastReading, Opened, Quality, ReadError, Reading, RunCpu, Settings, SharedRunCpu, Source,
    open_sources,
};
use std::sync::{Arc, Mutex};

fn open(root: &Path, idle: f64, per_core: f64) -> Opened {
    open_sources(&Settings {
        names: Some(vec!["estimate"]),
        idle_watts: idle,
        watts_per_core: per_core,
        sys_root: root.to_owned(),
        ..Settings::default()
    })
}

fn one(opened: Opened) -> Box<dyn Source> {
    assert_eq!(opened.notes, Vec::<String>::new());
    opened.sources.into_iter().next().unwrap()
}

/// Writes `/proc/stat` with these user, idle and stolen times, in ticks.
fn proc_stat(root: &Path, user: u64, idle: u64, stolen: u64) {
    fs::create_dir_all(root.join("proc")).unwrap();
    let text =
        format!("cpu  {user} 0 0 {idle} 0 0 0 {stolen} 0 0\ncpu0 {user} 0 0 {idle} 0 0 0 {stolen} 0 0\n");
    fs::write(root.join("proc/stat"), text).unwrap();
}

fn cpu_stat(root: &Path, folder: &str, user_us: u64, system_us: u64) {
    fs::create_dir_all(root.join(folder)).unwrap();
    let usage = user_us + system_us + 5_000_000; // stolen
    let text = format!("usage_usec {usage}\nuser_usec {user_us}\nsystem_usec {system_us}\nnice_usec 0\n");
    fs::write(root.join(folder).join("cpu.stat"), text).unwrap();
}

fn wait() {
    std::thread::sleep(Duration::from_millis(6)); // longer than a reading of /proc/stat is kept
}

fn nanoseconds(from: Reading, to: Reading) -> u64 {
    to.counter_timestamp_ns.unwrap() - from.counter_timestamp_ns.unwrap()
}

#[test]
fn busy_time_is_charged_exactly() {
    let root = tempfile::tempdir().unwrap();
    proc_stat(root.path(), 100, 5_000, 700);
    let mut source = one(open(root.path(), 0.0, 4.0));
    let before = source.read(0).unwrap();
    assert_eq!(before.nanojoules, 4_000_000_000); // 1 s of CPU time, 100 ticks
    proc_stat(root.path(), 350, 9_000, 900);
    wait();
    assert_eq!(source.read(0).unwrap().nanojoules, 14_000_000_000);
}

#[test]
fn idle_power_is_charged_for_the_time_that_passed() {
    let root = tempfile::tempdir().unwrap();
    proc_stat(root.path(), 100, 5_000, 0);
    let mut source = one(open(root.path(), 80.0, 0.0));
    let before = source.read(0).unwrap();
    wait();
    let after = source.read(0).unwrap();
    let expected = 80 * nanoseconds(before, after);
    assert!((after.nanojoules - before.nanojoules).abs_diff(expected) <= 1);
    assert_eq!(after.raw, after.nanojoules);
}

#[test]
fn the_root_control_group_is_preferred() {
    for folder in ["sys/fs/cgroup", "sys/fs/cgroup/unified"] {
        let root = tempfile::tempdir().unwrap();
        proc_stat(root.path(), 100, 5_000, 0);
        cpu_stat(root.path(), folder, 1_500_000, 250_001);
        let mut source = one(open(root.path(), 0.0, 4.0));
        assert_eq!(source.read(0).unwrap().nanojoules, 7_000_004_000, "{folder}");
        // It is read again every time.
        cpu_stat(root.path(), folder, 1_500_000, 250_002);
        assert_eq!(source.read(0).unwrap().nanojoules, 7_000_008_000, "{folder}");
        assert!(source.devices()[0].description.contains(folder));
        // A group that is not the root knows only itself.
        fs::write(root.path().join(folder).join("cgroup.type"), "domain\n").unwrap();
        assert_eq!(one(open(root.path(), 0.0, 4.0)).read(0).unwrap().nanojoules, 4_000_000_000, "{folder}");
    }
}

#[test]
fn a_control_group_file_without_times_is_ignored() {
    let root = tempfile::tempdir().unwrap();
    proc_stat(root.path(), 100, 5_000, 0);
    fs::create_dir_all(root.path().join("sys/fs/cgroup")).unwrap();
    fs::write(root.path().join("sys/fs/cgroup/cpu.stat"), "nr_periods 0\n").unwrap();
    assert_eq!(one(open(root.path(), 0.0, 4.0)).read(0).unwrap().nanojoules, 4_000_000_000);
}

#[test]
fn it_never_goes_back() {
    let root = tempfile::tempdir().unwrap();
    cpu_stat(root.path(), "sys/fs/cgroup", 2_000_000, 0);
    let mut source = one(open(root.path(), 0.0, 1.0));
    assert_eq!(source.read(0).unwrap().nanojoules, 2_000_000_000);
    cpu_stat(root.path(), "sys/fs/cgroup", 1_900_000, 0);
    assert_eq!(source.read(0).unwrap().nanojoules, 2_000_000_000);
    cpu_stat(root.path(), "sys/fs/cgroup", 2_100_000, 0);
    assert_eq!(source.read(0).unwrap().nanojoules, 2_100_000_000);
}

#[test]
fn proc_stat_is_not_read_more_often_than_it_can_change() {
    let root = tempfile::tempdir().unwrap();
    proc_stat(root.path(), 100, 5_000, 0);
    let mut source = one(open(root.path(), 0.0, 1.0));
    let before = source.read(0).unwrap();
    proc_stat(root.path(), 200, 5_000, 0);
    let after = source.read(0).unwrap();
    // A busy machine may have taken longer than the interval between the two.
    let expected = if nanoseconds(before, after) < 5_000_000 { 1_000_000_000 } else { 2_000_000_000 };
    assert_eq!(after.nanojoules, expected);
}

#[test]
fn two_readers_agree() {
    let mut a = one(open(Path::new("/"), 100.0, 4.0));
    std::thread::sleep(Duration::from_millis(30));
    let mut b = one(open(Path::new("/"), 100.0, 4.0));
    let (x, y) = (a.read(0).unwrap(), b.read(0).unwrap());
    // The difference is at most the idle energy of the time between the two reads, and two steps on every CPU. A step is 10 ms,
    // and 5 ms for which a value is kept. All CPUs of the node count, not only those that this process may use.
    let stat = fs::read_to_string("/proc/stat").unwrap();
    let cpus = stat.lines().filter(|line| line.starts_with("cpu")).count() as u64 - 1;
    let between = nanoseconds(x, y);
    let most = 100 * between + 4 * cpus * (between + 2 * 15_000_000);
    assert!(x.nanojoules.abs_diff(y.nanojoules) <= most, "{x:?} {y:?}");
}

/// Returns the seconds for which the hypervisor ran something else on this machine's CPUs.
fn stolen() -> f64 {
    let stat = fs::read_to_string("/proc/stat").unwrap();
    stat.split_ascii_whitespace().nth(8).unwrap().parse::<f64>().unwrap() / 100.0
}

#[test]
fn a_busy_core_is_seen_on_this_machine() {
    let mut source = one(open(Path::new("/"), 0.0, 1.0)); // joules are CPU seconds
    let stolen_before = stolen();
    let before = source.read(0).unwrap();
    let start = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    let own = |start: rustix::time::Timespec| {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        (now.tv_sec - start.tv_sec) as f64 + (now.tv_nsec - start.tv_nsec) as f64 * 1e-9
    };
    let wall = Instant::now();
    let mut last = before;
    while own(start) < 0.5 && wall.elapsed() < Duration::from_secs(20) {
        let reading = source.read(0).unwrap();
        assert!(reading.nanojoules >= last.nanojoules);
        last = reading;
    }
    wait();
    let cpu_seconds = (source.read(0).unwrap().nanojoules - before.nanojoules) as f64 * 1e-9;
    // It is at least this thread's time, except for the sampling by ticks and the time that a hypervisor took, and at most that
    // of all CPUs.
    let cpus = fs::read_to_string("/proc/stat").unwrap().lines().filter(|l| l.starts_with("cpu")).count() - 1;
    assert!(cpu_seconds + stolen() - stolen_before > 0.8 * own(start), "{cpu_seconds}");
    assert!(cpu_seconds < 1.1 * cpus as f64 * wall.elapsed().as_secs_f64() + 0.1, "{cpu_seconds}");
}

#[test]
fn a_file_that_breaks_is_an_error_until_it_is_whole_again() {
    let root = tempfile::tempdir().unwrap();
    cpu_stat(root.path(), "sys/fs/cgroup", 2_000_000, 0);
    let mut source = one(open(root.path(), 0.0, 1.0));
    fs::write(root.path().join("sys/fs/cgroup/cpu.stat"), "usage_usec 1\n").unwrap();
    assert!(matches!(source.read(0), Err(ReadError::Malformed)));
    cpu_stat(root.path(), "sys/fs/cgroup", 3_000_000, 0);
    assert_eq!(source.read(0).unwrap().nanojoules, 3_000_000_000);
}

#[test]
fn without_cpu_time_there_is_no_estimate() {
    let root = tempfile::tempdir().unwrap();
    let opened = open(root.path(), 100.0, 4.0);
    assert!(opened.sources.is_empty());
    assert!(
        opened.notes[0].contains("proc/stat") && opened.notes[0].contains("No such file"),
        "{:?}",
        opened.notes
    );
}

#[test]
fn nonsensical_watts_are_replaced_and_noted() {
    let root = tempfile::tempdir().unwrap();
    proc_stat(root.path(), 100, 5_000, 0);
    let opened = open(root.path(), f64::NAN, -4.0);
    assert_eq!(opened.notes.len(), 2);
    let description = &opened.sources[0].devices()[0].description;
    assert!(description.starts_with("100 W and 4 W per busy core"), "{description}");
}

#[test]
fn the_estimate_is_described() {
    let source = one(open(Path::new("/"), 100.0, 4.0));
    let device = &source.devices()[0];
    assert_eq!((device.name.as_str(), device.metric.as_str()), ("node", "estimate:::energy"));
    assert_eq!((device.quality, device.kind, device.source), (Quality::Estimated, Kind::Node, "estimate"));
    assert_eq!(device.resolution_joules, 1e-9);
}

#[test]
fn an_index_that_is_out_of_range_is_an_error() {
    let mut source = one(open(Path::new("/"), 100.0, 4.0));
    assert!(matches!(source.read(1), Err(ReadError::NoSuchDevice)));
}

/// Returns the estimate of a run that has one CPU of a node with four CPUs, all of which are busy.
fn run_on_one_of_four(root: &Path) -> (Box<dyn Source>, SharedRunCpu) {
    fs::create_dir_all(root.join("proc")).unwrap();
    let lines: String = (0..4).map(|cpu| format!("cpu{cpu} 100 0 0 0 0 0 0 0 0 0\n")).collect();
    fs::write(root.join("proc/stat"), format!("cpu  400 0 0 0 0 0 0 0 0 0\n{lines}intr 1\n")).unwrap();
    let settings = Settings { sys_root: root.to_owned(), ..Settings::default() };
    let run = Arc::new(Mutex::new(RunCpu::new(&settings, 1)));
    let mut source = one(open(root, 100.0, 4.0));
    source.count_for(&run);
    (source, run)
}

#[test]
fn a_run_gets_the_idle_watts_of_its_cpus_and_nothing_of_its_neighbours() {
    let root = tempfile::tempdir().unwrap();
    let (mut source, run) = run_on_one_of_four(root.path());
    assert_eq!(run.lock().unwrap().cpus(), (1, 4));
    let before = source.read(0).unwrap();
    wait();
    proc_stat(root.path(), 100_000, 0, 0);
    let after = source.read(0).unwrap();
    assert!((after.nanojoules - before.nanojoules).abs_diff(25 * nanoseconds(before, after)) <= 1);
    let description = &source.devices()[0].description;
    assert!(description.starts_with("100 W for 1 of 4 CPUs and 4 W per core"), "{description}");
}

#[test]
fn a_node_never_has_more_busy_cpus_than_cpus() {
    let root = tempfile::tempdir().unwrap();
    let (_, run) = run_on_one_of_four(root.path());
    wait();
    proc_stat(root.path(), 100_000, 0, 0);
    let busy = run.lock().unwrap().busy().unwrap();
    assert_eq!((busy.own_ns, busy.node_ns), (0, 4 * busy.counted_ns));
}

#[test]
fn cpu_time_of_the_runs_processes_is_counted_to_their_end() {
    let root = tempfile::tempdir().unwrap();
    let (mut source, run) = run_on_one_of_four(root.path());
    let burst = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done";
    let mut child = std::process::Command::new("sh").args(["-c", burst]).spawn().unwrap();
    let started = ampere_counters::Stat::of(child.id()).unwrap().started;
    run.lock().unwrap().add(child.id(), started + 1);
    let first = source.read(0).unwrap();
    assert_eq!(run.lock().unwrap().own_ns(), 0, "that is another process of the same number");
    run.lock().unwrap().add(child.id(), started);
    let mut last = first;
    while ampere_counters::Stat::of(child.id()).is_some_and(|stat| stat.cpu_ns < 20_000_000) {
        let reading = source.read(0).unwrap();
        assert!(reading.nanojoules >= last.nanojoules);
        last = reading;
    }
    let living = run.lock().unwrap().own_ns();
    assert!(living >= 10_000_000, "{living}");
    child.wait().unwrap();
    // The time of a process is not lost with the process.
    let own = run.lock().unwrap().own_ns();
    assert!(own >= living, "{own} {living}");
    let end = source.read(0).unwrap();
    let idle = 25 * nanoseconds(first, end);
    assert!((end.nanojoules - first.nanojoules).abs_diff(idle + 4 * own) <= 2);
}

#[test]
fn an_estimate_continues_from_the_last_reading_of_an_ended_process() {
    let root = tempfile::tempdir().unwrap();
    let (mut source, _run) = run_on_one_of_four(root.path());
    source.resume(0, LastReading { nanojoules: 5_000_000_000_000, watts: 50.0, ago: Duration::from_secs(2) });
    let reading = source.read(0).unwrap();
    // 100 J for the time without a reading; and 25 W for the time from then to the reading, which may be long on a busy machine.
    assert!((5_100_000_000_000..5_190_000_000_000).contains(&reading.nanojoules), "{reading:?}");
}

/// The CPU time of unseen children becomes known all at once, which must not result in a power that the node cannot draw.
#[test]
fn a_run_draws_no_more_than_with_all_cpus_busy() {
    let root = tempfile::tempdir().unwrap();
    let started = Instant::now(); // the CPU time that is possible counts from the next line on
    let (mut source, run) = run_on_one_of_four(root.path());
    let mut sleep = std::process::Command::new("sleep").arg("60").spawn().unwrap();
    run.lock().unwrap().add_launcher(sleep.id());
    let begun = source.read(0).unwrap();
    let mut before = begun;
    for ended in [false, true] {
        if ended {
            run.lock().unwrap().command_used(1_000_000_000_000);
            run.lock().unwrap().look();
        }
        wait();
        let now = source.read(0).unwrap();
        // 25 W of one idle CPU of four, and 4 W of each busy one.
        let joules = (now.nanojoules - begun.nanojoules) as f64 * 1e-9;
        let seconds = started.elapsed().as_secs_f64();
        assert!(joules <= (25.0 + 4.0 * 4.0) * seconds, "{joules} J in {seconds} s");
        assert!(now.nanojoules >= before.nanojoules);
        before = now;
    }
    let all = (before.nanojoules - begun.nanojoules) as f64 * 1e-9;
    assert!(all >= 35.0 * nanoseconds(begun, before) as f64 * 1e-9, "{all} J: all CPUs were busy");
    sleep.kill().unwrap();
    sleep.wait().unwrap();
}
