//! A directory in shared memory for each thread, for files that readers open. It is removed when the thread ends. The next
//! process removes the directories of a process that crashed.

use std::path::{Path, PathBuf};
use std::sync::Once;
use tempfile::TempDir;

const PREFIX: &str = "ampere-fuzz-";

thread_local! {
    static SCRATCH: TempDir = make();
}

fn make() -> TempDir {
    static REMOVED: Once = Once::new();
    let root = if Path::new("/dev/shm").is_dir() { PathBuf::from("/dev/shm") } else { std::env::temp_dir() };
    REMOVED.call_once(|| remove_leftovers(&root));
    let prefix = format!("{PREFIX}{}-", std::process::id());
    tempfile::Builder::new().prefix(&prefix).tempdir_in(root).expect("a scratch directory")
}

/// Removes the directories of processes that have ended.
fn remove_leftovers(root: &Path) {
    for entry in std::fs::read_dir(root).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let pid = name.strip_prefix(PREFIX).and_then(|rest| rest.split('-').next()?.parse().ok());
        if pid.is_some_and(|pid: u32| ampere_ring::process::start_time(pid).is_none()) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

/// Returns this thread's directory with this name.
pub fn directory(name: &str) -> PathBuf {
    let directory = SCRATCH.with(|scratch| scratch.path().join(name));
    std::fs::create_dir_all(&directory).expect("a directory in the scratch directory");
    directory
}

/// Panics unless a reader's message is one line without control characters.
pub fn assert_is_line(message: &str) {
    assert!(!message.is_empty() && !message.chars().any(char::is_control), "{message:?}");
    assert!(message.len() < 4096, "{} bytes of message", message.len());
}
