//! A directory in shared memory, for files that readers open. A process may end at any moment here: the next one removes
//! what is left of those that have ended.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

const PREFIX: &str = "ampere-fuzz-";

static PLACE: OnceLock<PathBuf> = OnceLock::new();

fn make_place() -> PathBuf {
    let root = if Path::new("/dev/shm").is_dir() { PathBuf::from("/dev/shm") } else { std::env::temp_dir() };
    for entry in std::fs::read_dir(&root).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let pid = name.strip_prefix(PREFIX).and_then(|pid| pid.parse().ok());
        if pid.is_some_and(|pid: u32| ampere_ring::process::start_time(pid).is_none()) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
    let place = root.join(format!("{PREFIX}{}", std::process::id()));
    std::fs::create_dir_all(&place).expect("a directory");
    place
}

/// One for each thread: tests run side by side.
pub fn directory(name: &str) -> PathBuf {
    let thread = format!("{:?}", std::thread::current().id());
    let thread: String = thread.chars().filter(char::is_ascii_digit).collect();
    let directory = PLACE.get_or_init(make_place).join(format!("{name}-{thread}"));
    std::fs::create_dir_all(&directory).expect("a directory in the scratch directory");
    directory
}

/// What a reader says about a file is one line, and nothing in it moves a terminal's cursor.
pub fn assert_is_line(message: &str) {
    assert!(!message.is_empty() && !message.chars().any(char::is_control), "{message:?}");
    assert!(message.len() < 4096, "{} bytes of message", message.len());
}
