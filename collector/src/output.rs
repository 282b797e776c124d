//! The output directory: whose it is, and what may be in it.
//!
//! A collector claims it by making `spool-<node>` there. Collectors of several nodes that are sent to one directory do
//! not mix their results: the first one has it, the others get a directory of their node's name in it.

use crate::clock_text;
use ampere_ring::files::write_private;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

const RESULTS: [&str; 4] = ["traces.otf2", "traces.def", "traces", "summary.json"];
/// What to do about a directory that cannot be used.
pub const ADVICE: &str = "choose another output directory with -o or AMPERE_OUTPUT";
/// What a claim begins with.
pub const CLAIM: &str = "spool-";

/// A claimed directory.
#[derive(Debug, PartialEq)]
pub struct Output {
    pub directory: PathBuf,
    /// Where records lie until the trace is written.
    pub spool: PathBuf,
}

/// The directory that is wanted, or a new one named after now and the run.
pub fn claim(wanted: Option<&Path>, run_id: &str, node: &str) -> Result<Output, String> {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let hash = run_id.bytes().fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3) // FNV-1a
    });
    let default = format!("ampere-{}_{:06x}", clock_text::compact(now.as_nanos() as u64), hash & 0xff_ffff);
    let directory = wanted.map_or_else(|| PathBuf::from(default), Path::to_owned);
    let node = file_name(node);
    if others(&directory, &node).is_empty() {
        let output = claim_here(&directory, &node)?;
        // Two nodes may have looked at the same moment; both see both now, and the one that comes first keeps it.
        if others(&directory, &node).iter().all(|other| *other > node) {
            return Ok(output);
        }
        let _ = std::fs::remove_dir(&output.spool);
    }
    claim_here(&directory.join(&node), &node)
}

/// Whether a run has left its results there: they are not written over.
pub fn holds_results(directory: &Path) -> bool {
    // A link that leads nowhere is there, too: the trace would be written to where it leads.
    RESULTS.iter().any(|name| directory.join(name).symlink_metadata().is_ok())
}

fn claim_here(directory: &Path, node: &str) -> Result<Output, String> {
    let refuse = |what: &str, why: String| format!("cannot {what} {}: {why}; {ADVICE}", directory.display());
    if holds_results(directory) {
        return Err(format!("{} holds the results of another run; {ADVICE}", directory.display()));
    }
    let is_new = std::fs::symlink_metadata(directory).is_err();
    std::fs::create_dir_all(directory).map_err(|e| refuse("create", e.to_string()))?;
    let directory = std::fs::canonicalize(directory).map_err(|e| refuse("find", e.to_string()))?;
    // Who owns a directory can put links in the way of what is written there.
    let of = std::fs::metadata(&directory).map_err(|e| refuse("look at", e.to_string()))?.uid();
    if !is_new && of != rustix::process::geteuid().as_raw() {
        return Err(refuse("use", format!("it belongs to somebody else (user {of})")));
    }
    let spool = directory.join(format!("{CLAIM}{node}"));
    match std::fs::DirBuilder::new().mode(0o700).create(&spool) {
        Ok(()) => Ok(Output { directory, spool }),
        Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => Err(format!(
            "{} is in use by another run, or holds one that was killed ({}); {ADVICE}",
            directory.display(),
            spool.display()
        )),
        Err(e) => Err(refuse("write to", e.to_string())),
    }
}

/// Nodes other than this that have claimed the directory.
fn others(directory: &Path, node: &str) -> Vec<String> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().to_str().map(str::to_owned));
    names
        .filter_map(|name| name.strip_prefix(CLAIM).map(str::to_owned))
        .filter(|other| other != node)
        .collect()
}

fn file_name(node: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '_' };
    let name: String = node.chars().map(plain).collect();
    name.trim_start_matches('.').to_owned()
}

impl Output {
    /// `collector.json`: where we can be found while the job runs.
    pub fn announce(&self, url: &str, node: &str) -> Result<(), String> {
        let text = serde_json::json!({ "pid": std::process::id(), "url": url, "node": node });
        // Whole or not at all, and nobody else's business.
        let (path, making) = (self.directory.join("collector.json"), self.directory.join("collector.part"));
        write_private(&making, &format!("{text}\n"))
            .and_then(|()| std::fs::rename(&making, &path))
            .map_err(|e| format!("cannot write {}: {e}", path.display()))
    }

    pub fn end_announcement(&self) {
        let _ = std::fs::remove_file(self.directory.join("collector.json"));
    }

    /// Gives the directory back if nothing came of it. Only what is empty goes: nothing that is not ours.
    pub fn give_up(&self) {
        self.end_announcement();
        let _ = std::fs::remove_dir(&self.spool);
        let _ = std::fs::remove_dir(&self.directory);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_that_are_sent_to_one_directory_do_not_mix() {
        let place = tempfile::tempdir().unwrap();
        let wanted = place.path().join("out");
        let first = claim(Some(&wanted), "job", "frontier2").unwrap();
        let second = claim(Some(&wanted), "job", "frontier1").unwrap();
        assert_eq!(first.directory, wanted.canonicalize().unwrap());
        assert_eq!(second.directory, first.directory.join("frontier1"));
        assert!(first.spool.is_dir() && second.spool.is_dir());
        second.give_up();
        assert!(!second.directory.exists() && first.spool.is_dir());
    }

    #[test]
    fn a_directory_with_results_or_of_a_running_run_is_refused() {
        let place = tempfile::tempdir().unwrap();
        claim(Some(place.path()), "a", "node").unwrap();
        let refused = claim(Some(place.path()), "b", "node").unwrap_err();
        assert!(refused.contains("in use by another run"), "{refused}");
        for name in RESULTS {
            let place = tempfile::tempdir().unwrap();
            std::fs::create_dir(place.path().join(name)).unwrap();
            let refused = claim(Some(place.path()), "b", "node").unwrap_err();
            assert!(refused.contains("results of another run"), "{refused}");
        }
    }

    #[test]
    fn what_is_the_users_stays() {
        let place = tempfile::tempdir().unwrap();
        std::fs::write(place.path().join("notes.txt"), "mine").unwrap();
        claim(Some(place.path()), "a", "../node").unwrap().give_up();
        assert!(place.path().join("notes.txt").exists());
    }
}
