//! Finds other runs of ampere on the same node. The node's counters include their energy.

use crate::run_directory::leftover::{is_session_name, run_id};
use ampere_ring::Session;
use ampere_ring::process::parent;
use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Runs that were seen during this one.
pub struct Neighbours {
    /// The session of this run.
    own: PathBuf,
    /// The pid of this run's `ampere run`.
    launcher: Option<u32>,
    seen: BTreeSet<String>,
    /// Whether some of them were started by the process that started this run, with the same command line.
    has_siblings: bool,
}

/// The number of runs that are named; any beyond this are only counted.
const NAMED_MAX: usize = 2;
/// The number of links of a directory without subdirectories.
const LINKS_WITHOUT_SUBDIRECTORIES: u64 = 2;

impl Neighbours {
    /// Makes an empty list of the neighbours of the run with this session.
    pub fn of(session: &Path, launcher: Option<u32>) -> Neighbours {
        Neighbours { own: session.to_owned(), launcher, seen: BTreeSet::new(), has_siblings: false }
    }

    /// Whether one process started the same `ampere run` several times, as an unknown launcher does. Each of these runs then
    /// includes the joules of all of them.
    pub fn has_siblings(&self) -> bool {
        self.has_siblings
    }

    /// Looks for current runs. The runs of this user are known by name. For another user, it is only known whether there are
    /// sessions.
    pub fn look(&mut self) {
        let Some(base) = self.own.parent() else { return };
        for other in entries(base).filter(|path| *path != self.own) {
            let Some((name, collector)) = running(&other) else { continue };
            self.seen.insert(name);
            self.has_siblings |= self.launcher.is_some_and(|own| is_sibling(own, collector));
        }
        for other in base.parent().into_iter().flat_map(entries).filter(|path| path != base) {
            let links = std::fs::symlink_metadata(&other).map_or(0, |data| data.nlink());
            let user = user_of(&other).filter(|_| links > LINKS_WITHOUT_SUBDIRECTORIES);
            self.seen.extend(user.map(|user| format!("a run of user {user}")));
        }
    }

    /// Returns the names of the other runs in one line; `None` if none was seen.
    pub fn words(&self) -> Option<String> {
        // A run that was seen before its output directory was known is seen twice.
        let is_known_better =
            |name: &str| self.seen.iter().any(|other| other.starts_with(&format!("{name} (")));
        let seen: Vec<&str> =
            self.seen.iter().map(String::as_str).filter(|name| !is_known_better(name)).collect();
        (!seen.is_empty()).then(|| ampere_model::text::listed(seen.iter(), NAMED_MAX))
    }
}

fn entries(directory: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    std::fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path())
}

/// Returns the user whose sessions a directory holds, from its name.
fn user_of(base: &Path) -> Option<u32> {
    base.file_name()?.to_str()?.strip_prefix("ampere-")?.parse().ok()
}

/// Returns the name of a session's run and the pid of its collector, if that is alive.
fn running(directory: &Path) -> Option<(String, u32)> {
    let session = Session::open(directory).ok().filter(|_| is_session_name(directory))?;
    let run = run_id(directory);
    let output = session.output().map_or_else(String::new, |output| format!(" (in {})", output.display()));
    // A replay does not run the program whose energy it shows.
    let is_replay = directory.join(ampere_trace::replay::FILE_NAME).exists();
    let is_running = session.is_of_this_boot() && session.collector_is_alive() && !is_replay;
    is_running.then(|| (format!("{run}{output}"), session.collector_pid()))
}

/// Whether the `ampere run` that started a collector has the same parent and the same command line as this run's, `own`.
fn is_sibling(own: u32, collector: u32) -> bool {
    let words =
        |pid: u32| std::fs::read(format!("/proc/{pid}/cmdline")).ok().filter(|words| !words.is_empty());
    let Some(other) = parent(collector).filter(|other| *other > 1 && *other != own) else { return false };
    parent(own).is_some_and(|parent_of_own| parent_of_own > 1 && parent(other) == Some(parent_of_own))
        && words(own).is_some_and(|own| words(other) == Some(own))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_other_runs_are_named_and_the_rest_counted() {
        let seen = |names: &[&str]| {
            let seen = names.iter().map(|name| (*name).to_owned()).collect();
            Neighbours { seen, ..Neighbours::of(Path::new(""), None) }.words()
        };
        assert_eq!(seen(&[]), None);
        assert_eq!(seen(&["a", "b"]).as_deref(), Some("a, b"));
        assert_eq!(seen(&["a", "b", "b (in out)", "c", "d"]).as_deref(), Some("a, b (in out) and 2 more"));
    }
}
