//! Tests the CPU time of other jobs, with a made-up `/proc/stat`.

use ampere_counters::{OtherJobs, RunCpu, Settings, SharedRunCpu};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Writes that the node's CPUs have been busy for `ticks` in total. The node has 10,000 CPUs, so that even a large increase is
/// possible within milliseconds. The file is overwritten in place, like the kernel's.
fn be_busy(root: &Path, ticks: u64) {
    let cpus: String = (0..10_000).map(|cpu| format!("cpu{cpu} 0\n")).collect();
    let text = format!("cpu  {ticks:<9} 0 0 5000 900 0 0 700 0 0\n{cpus}");
    let file = std::fs::File::options().create(true).truncate(false).write(true).open(root.join("proc/stat"));
    file.expect("a file").write_all_at(text.as_bytes(), 0).expect("a file");
    // The file is read at most every 5 ms, and 10,000 CPUs can be busy for 200 s in the meantime.
    std::thread::sleep(Duration::from_millis(20));
}

fn run_on(root: &Path) -> SharedRunCpu {
    let settings = Settings { sys_root: root.to_owned(), ..Settings::default() };
    Arc::new(Mutex::new(RunCpu::new(&settings, 4)))
}

#[test]
fn only_time_beyond_the_resolution_is_reported_and_never_decreases() {
    let root = tempfile::tempdir().expect("a directory");
    std::fs::create_dir(root.path().join("proc")).expect("a directory");
    be_busy(root.path(), 1000);
    let mut jobs = OtherJobs::new(&run_on(root.path())).expect("CPU times");
    be_busy(root.path(), 1005);
    assert_eq!(jobs.cpu_ns(), 0, "50 ms may be rounding");
    be_busy(root.path(), 1205);
    let ns = jobs.cpu_ns();
    // The CPU time of this process counts as ampere's, and is subtracted.
    assert!((1_500_000_000..=2_000_000_000).contains(&ns), "{ns}");
    be_busy(root.path(), 1100);
    assert_eq!(jobs.cpu_ns(), ns);
    jobs.resume(7_000_000_000);
    assert_eq!(jobs.cpu_ns(), 7_000_000_000 + ns, "a collector that takes over continues");
}

#[test]
fn without_the_nodes_cpu_time_other_jobs_are_unknown() {
    let root = tempfile::tempdir().expect("a directory");
    assert!(OtherJobs::new(&run_on(root.path())).is_none());
}
