//! Tests of whole processes and of the built libraries: what several of them need.
//!
//! ```text
//! runs.rs         runs that go well: a place for each, and their figures
//! jobs.rs         jobs that things happen to: what a command did and said, what it left behind
//! collector.rs    a run's collector      process.rs   programs that do not outlive a test, MPI
//! stand_in_scorep.rs  the plugin's host      http.rs, openmetrics.rs, prometheus.rs, dashboard.rs   who looks at a run
//! ```

pub mod collector;
pub mod dashboard;
pub mod http;
pub mod jobs;
pub mod openmetrics;
pub mod process;
pub mod prometheus;
pub mod runs;
pub mod stand_in_scorep;

use std::path::{Path, PathBuf};

/// The repository.
pub fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// A built program or library. The release build is what users have, so it is preferred to the test's own profile.
///
/// # Panics
/// Where neither is there.
pub fn artifact(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a test has a path");
    // target/<profile>/deps/<test>
    let profile = test.ancestors().nth(2).expect("a test is in target/<profile>/deps");
    let release = profile.with_file_name("release");
    let found = [release.as_path(), profile].map(|directory| directory.join(name));
    let found = found.into_iter().find(|path| path.exists());
    found.unwrap_or_else(|| panic!("{} is not built: run make build first", release.join(name).display()))
}
