//! Removes sessions in shared memory that are no longer needed.
//!
//! A collector removes its own session at its end. Two kinds remain: failures, which the job's later processes must be able to
//! see, and runs whose collector was killed. Failures are removed after a while, and killed runs without events at once. Killed
//! runs with events are kept, because `ampere recover` can finish them; the doctor lists them.

use crate::run_directory::leftover::{Leftover, is_session_name, remove_done};
use crate::run_directory::manifest;
use ampere_ring::{CollectorState, Session, session};
use std::path::Path;
use std::time::Duration;

/// The time after which all processes of a job are expected to have started.
const STALE_AFTER: Duration = Duration::from_secs(600);

/// Removes the useless sessions in `base`.
pub fn remove_stale_sessions(base: &Path) {
    for entry in std::fs::read_dir(base).into_iter().flatten().flatten() {
        let path = entry.path();
        if entry.file_name().to_string_lossy().ends_with(session::METRICS_ONLY) {
            remove_if_old(&path);
        } else if is_session_name(&path) {
            remove_if_useless(&path);
        }
    }
}

/// Removes a session that is neither in use nor recoverable.
fn remove_if_useless(directory: &Path) {
    let Some(left) = Leftover::of_session(directory) else {
        // Such a directory remains after an interrupted removal.
        return remove_if_old(directory);
    };
    if left.in_use.is_some() || left.has_events() {
        return;
    }
    let Ok(session) = Session::open(directory) else { return };
    // A process has joined, so the run had started. Its processes and its collector have all ended.
    let is_dead = left.processes > 0 && session.collector_state() != CollectorState::Failed;
    if left.is_done {
        remove_done(&session);
    } else if is_dead || !session.is_of_this_boot() {
        if let Some(output) = &left.output {
            manifest::remove_spool(&output.spool);
            output.give_up();
        }
        session.remove();
    } else {
        remove_if_old(directory);
    }
}

fn remove_if_old(directory: &Path) {
    let age =
        std::fs::symlink_metadata(directory).and_then(|m| m.modified()).ok().and_then(|t| t.elapsed().ok());
    let alive = Session::open(directory).is_ok_and(|session| session.collector_is_alive());
    if !alive && age.is_some_and(|age| age >= STALE_AFTER) && directory.is_dir() {
        let _ = ampere_owned::remove_tree(directory);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run_directory::manifest::Manifest;
    use crate::run_directory::output;
    use ampere_model::{Definition, Process};
    use ampere_ring::{Kind, LogWriter, Record, RingProducer};
    use std::fs;
    use std::os::unix::fs::FileExt;
    use std::path::PathBuf;
    use std::time::SystemTime;

    const OLD: Duration = Duration::from_secs(1200);

    fn session_of(base: &Path, name: &str) -> PathBuf {
        let directory = base.join(name);
        fs::create_dir(&directory).unwrap();
        // This is a session's page: see ampere_ring::Session.
        let mut page = vec![0u8; 8192];
        page[..8].copy_from_slice(b"AMPSESS1");
        page[8] = 1;
        page[12] = 1;
        fs::write(directory.join("session"), page).unwrap();
        directory
    }

    fn age(directory: &Path) {
        fs::File::open(directory).unwrap().set_modified(SystemTime::now() - OLD).unwrap();
    }

    /// Makes a process that has joined and written this many events.
    fn joined(directory: &Path, pid: u32, start_time: u64, events: u64) {
        let mut log = LogWriter::create(&directory.join(format!("{pid}.defs"))).unwrap();
        log.append(&Definition::Process(Process { pid, start_time, ..Process::default() }));
        let mut ring = RingProducer::create(&directory.join(format!("{pid}.0.ring")), 4096, 0).unwrap();
        (0..events).for_each(|time| ring.push_with_room(Record::new(Kind::Enter, time, 1)));
    }

    #[test]
    fn useless_sessions_are_removed_and_those_with_records_stay() {
        let base = tempfile::tempdir().unwrap();
        let me = std::process::id();
        let started = ampere_ring::process::start_time(me).unwrap();
        let make = |name| session_of(base.path(), name);
        let failed = make("s-failed");
        age(&failed);
        let young = make("s-young");
        let foreign = make("thesis");
        age(&foreign);
        let killed = make("s-killed");
        joined(&killed, me, started + 1, 10); // another process that had this process's pid
        let nothing = make("s-nothing");
        joined(&nothing, me, started + 1, 0);
        let runs = make("s-runs");
        joined(&runs, me, started, 0);
        let before = make("s-another-boot");
        joined(&before, me, started, 0);
        let page = fs::OpenOptions::new().write(true).open(before.join("session")).unwrap();
        page.write_all_at(&[7; 16], 4080).unwrap();
        let metrics = make("s-job-metrics");
        fs::write(metrics.join("17.defs"), b"AMPDEFS1").unwrap();
        age(&metrics);
        let rest = base.path().join("s-half-removed");
        fs::create_dir(&rest).unwrap();
        age(&rest);
        remove_stale_sessions(base.path());
        for gone in [&metrics, &failed, &nothing, &before, &rest] {
            assert!(!gone.exists(), "{}", gone.display());
        }
        for there in [&young, &foreign, &killed, &runs] {
            assert!(there.exists(), "{}", there.display());
        }
    }

    #[test]
    fn the_spool_of_a_session_without_events_is_removed_with_it() {
        let base = tempfile::tempdir().unwrap();
        let directory = session_of(base.path(), "s-nothing");
        joined(&directory, std::process::id(), 1, 0);
        let manifest = Manifest::new(&directory, "nothing", &[], None);
        let wanted = base.path().join("out");
        let output = output::claim(&wanted, &manifest.node, &manifest.text()).unwrap();
        Session::open(&directory).unwrap().set_output(&output.directory);
        remove_stale_sessions(base.path());
        assert!(!directory.exists() && !wanted.exists());
    }
}
