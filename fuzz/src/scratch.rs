//! A directory in shared memory, for files that readers open. It goes with the process.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

static PLACE: OnceLock<tempfile::TempDir> = OnceLock::new();

/// One for each thread: tests run side by side.
pub fn directory(name: &str) -> PathBuf {
    let place = PLACE.get_or_init(|| {
        let root =
            if Path::new("/dev/shm").is_dir() { PathBuf::from("/dev/shm") } else { std::env::temp_dir() };
        tempfile::Builder::new().prefix("ampere-fuzz-").tempdir_in(root).expect("a directory")
    });
    let thread = format!("{:?}", std::thread::current().id());
    let thread: String = thread.chars().filter(char::is_ascii_digit).collect();
    let directory = place.path().join(format!("{name}-{thread}"));
    std::fs::create_dir_all(&directory).expect("a directory in the scratch directory");
    directory
}

/// What a reader says about a file is one line, and nothing in it moves a terminal's cursor.
pub fn assert_is_line(message: &str) {
    assert!(!message.is_empty() && !message.chars().any(char::is_control), "{message:?}");
    assert!(message.len() < 4096, "{} bytes of message", message.len());
}
