//! Sessions that nobody will come back to.
//!
//! A collector removes its own session when it ends. What stays is what others may want: a failure that the job's later
//! processes are to be told of, or the records of a collector that was killed. The first kind goes here, after a while;
//! the second is kept, because its energy can still be recovered.

use ampere_ring::{Session, session};
use std::path::Path;
use std::time::Duration;

/// A job's processes have all started by then.
const STALE_AFTER: Duration = Duration::from_secs(600);

/// Removes the old sessions below `base` that no process has written anything in.
pub fn remove_stale_sessions(base: &Path) {
    let Ok(entries) = std::fs::read_dir(base) else { return };
    for entry in entries.flatten() {
        // Only what is named as we name ours: AMPERE_SHM may point to a directory with other things in it.
        if entry.file_name().to_string_lossy().starts_with("s-") && is_stale(&entry.path()) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

fn is_stale(directory: &Path) -> bool {
    let age =
        std::fs::symlink_metadata(directory).and_then(|m| m.modified()).ok().and_then(|t| t.elapsed().ok());
    if age.is_none_or(|age| age < STALE_AFTER) {
        return false;
    }
    let Ok(files) = std::fs::read_dir(directory) else { return false };
    // In a metric plugin's own session there are no records, whatever logs there are.
    let may_have_records = !directory.to_string_lossy().ends_with(session::METRICS_ONLY);
    let mut files = files.flatten();
    let has_log = may_have_records && files.any(|file| file.path().extension().is_some_and(|e| e == "defs"));
    !has_log && Session::open(directory).is_ok_and(|session| !session.collector_is_alive())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::time::SystemTime;

    fn session_of(base: &Path, name: &str, age: Duration) -> std::path::PathBuf {
        let directory = base.join(name);
        fs::create_dir(&directory).unwrap();
        // A session's page: see ampere_ring::Session.
        let mut page = vec![0u8; 8192];
        page[..8].copy_from_slice(b"AMPSESS1");
        page[8] = 1;
        page[12] = 1;
        fs::write(directory.join("session"), page).unwrap();
        let file = fs::File::open(&directory).unwrap();
        file.set_modified(SystemTime::now() - age).unwrap();
        directory
    }

    #[test]
    fn only_old_sessions_without_records_go() {
        let base = tempfile::tempdir().unwrap();
        let old = STALE_AFTER * 2;
        let failed = session_of(base.path(), "s-failed", old);
        let young = session_of(base.path(), "s-young", Duration::ZERO);
        let foreign = session_of(base.path(), "thesis", old);
        let killed = session_of(base.path(), "s-killed", Duration::ZERO);
        fs::write(killed.join("17.defs"), b"AMPDEFS1").unwrap();
        fs::File::open(&killed).unwrap().set_modified(SystemTime::now() - old).unwrap();
        let metrics = session_of(base.path(), "s-job-metrics", Duration::ZERO);
        fs::write(metrics.join("17.defs"), b"AMPDEFS1").unwrap();
        fs::File::open(&metrics).unwrap().set_modified(SystemTime::now() - old).unwrap();
        remove_stale_sessions(base.path());
        assert!(!metrics.exists());
        assert!(!failed.exists());
        assert!(young.exists() && foreign.exists() && killed.exists());
    }
}
