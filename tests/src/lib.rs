//! Helpers of the tests of whole processes and of the built libraries.
//!
//! ```text
//! jobs.rs              a place for a test, commands in it, their results and what they left behind
//! runs.rs              figures of a run; what is installed on this machine
//! counting_program.rs  a program that counts its own calls, and what must hold for a run of it
//! cpu_time.rs          what a test of CPU time has to know about this machine
//! random.rs            tests with random numbers that repeat from a seed
//! gpu.rs               kernels in a summary, and who launched them
//! small_trace.rs       a small trace from a few lines of text
//! stand_ins.rs         counters of the stand-ins for vendors' libraries
//! stand_in_scorep.rs   plays Score-P to the plugin, through its C interface
//! collector.rs         a run's collector, as its output directory announces it
//! power.rs             the attributed power in a trace
//! process.rs           programs that do not outlive a test; MPI
//! terminal.rs          a program in a real terminal (tmux)
//! browser.rs           a page in a real Chromium
//! http.rs, openmetrics.rs, prometheus.rs, dashboard.rs    what reads a run's metrics
//! ```

pub mod browser;
pub mod collector;
pub mod counting_program;
pub mod cpu_time;
pub mod dashboard;
pub mod gpu;
pub mod http;
pub mod jobs;
pub mod openmetrics;
pub mod power;
pub mod process;
pub mod prometheus;
pub mod random;
pub mod runs;
pub mod small_trace;
pub mod stand_in_scorep;
pub mod stand_ins;
pub mod terminal;

use std::path::{Path, PathBuf};

/// Returns the root of the repository.
pub fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// Returns the path of a built program or library. The release build is what users have, so it is preferred to the
/// test's own profile.
///
/// # Panics
/// Panics if there is neither.
pub fn artifact(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a test has a path");
    // The path of the test is target/<profile>/deps/<test>.
    let profile = test.ancestors().nth(2).expect("a test is in target/<profile>/deps");
    let release = profile.with_file_name("release");
    let found = [release.as_path(), profile].map(|directory| directory.join(name));
    let found = found.into_iter().find(|path| path.exists());
    found.unwrap_or_else(|| panic!("{} is not built: run make build first", release.join(name).display()))
}
