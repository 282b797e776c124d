//! Joins the figures of a run on several nodes in the run's directory. Each node's own figures are in a directory with its name.

use super::results::{ResultsError, read_summary, write_results_among_others};
use crate::run_directory::files::file_name;
use crate::run_directory::nodes::{self, Node};
use ampere_figures::nodes::summaries::joined;
use ampere_figures::summary::{Run, Summary};
use std::path::Path;
use std::time::Duration;

/// Figures whose files have more bytes than this in total are not joined here, because the collector of the last node would
/// need too much memory. `ampere report` joins them whenever it shows them.
pub(super) const BYTES_MAX: u64 = 1 << 28;

/// If another process is writing the same figures, they are looked at again after this time, at most this number of times.
const BUSY_PAUSE: Duration = Duration::from_millis(200);
const ATTEMPTS_MAX: u32 = 10;

/// Joins the figures of the nodes that have ended, and writes them to the run's directory, which is also the first node's.
/// Nothing happens if the first node has not ended, or if no other node has ended since they were joined.
///
/// # Errors
/// Figures that cannot be read or written.
pub fn join_figures(directory: &Path, run_id: &str) -> Result<(), ResultsError> {
    let mut attempts = 0;
    loop {
        attempts += 1;
        match join(directory, run_id) {
            // Another process joins them at this moment, but may not have seen all nodes.
            Err(ResultsError::Write(why)) if why.is_busy() && attempts < ATTEMPTS_MAX => {
                std::thread::sleep(BUSY_PAUSE);
            }
            outcome => return outcome,
        }
    }
}

fn join(directory: &Path, run_id: &str) -> Result<(), ResultsError> {
    let has_ended = |run: &Run| run.id == run_id && !run.running;
    let Some(there) = nodes::head(&directory.join("summary.json")).filter(has_ended) else { return Ok(()) };
    let mut ended = nodes::below(directory, run_id);
    ended.retain(|node| node.run.as_ref().is_some_and(has_ended));
    if nodes::missing_in(&there, &ended).next().is_none() || bytes(directory, &ended) > BYTES_MAX {
        return Ok(());
    }
    let mut parts = Vec::new();
    if let [own] = there.nodes.as_slice() {
        let first = read_summary(directory)?;
        if first.run.nodes != there.nodes {
            return Ok(()); // another process has joined them in the meantime
        }
        let place = directory.join(&*file_name(own));
        ampere_owned::make_all(&place, ampere_owned::DIRECTORY_MODE)
            .map_err(|why| ResultsError::Read { path: place.clone(), why })?;
        write_results_among_others(&place, &first)?;
        ended.retain(|node| node.directory != place);
        parts.push(first);
    }
    for node in &ended {
        parts.push(read_summary(&node.directory)?);
    }
    // The node whose `ampere run` waited for the command is the first.
    parts.sort_by_key(|part: &Summary| part.run.command_status.is_none());
    let mut parts = parts.into_iter();
    let Some(first) = parts.next() else { return Ok(()) };
    let mut whole = joined(first, parts.collect());
    // Traces of nodes that end later are joined with the first node's clock.
    whole.run.clock = there.clock;
    write_results_among_others(directory, &whole)
}

fn bytes(directory: &Path, ended: &[Node]) -> u64 {
    let directories = ended.iter().map(|node| node.directory.as_path()).chain([directory]);
    let size = |directory: &Path| directory.join("summary.json").metadata().map_or(0, |file| file.len());
    directories.map(size).sum()
}
