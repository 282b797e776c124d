//! Joins the figures of a run on several nodes in the run's directory. Each node's own figures are in a directory with its name.

use super::results::{ResultsError, read_summary, write_results_among_others};
use crate::run_directory::files::file_name;
use crate::run_directory::nodes::{self, Node};
use ampere_figures::nodes::summaries::joined;
use ampere_figures::summary::{Run, Summary};
use ampere_model::text::printable;
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
    let nodes = nodes::below(directory, run_id);
    let (ended, unfinished): (Vec<Node>, Vec<Node>) =
        nodes.into_iter().partition(|node| node.run.as_ref().is_some_and(has_ended));
    let unfinished: Vec<String> = unfinished.iter().map(unfinished_words).collect();
    let is_known = |reason: &String| there.missing.contains(reason);
    let is_up_to_date = nodes::missing_in(&there, &ended).next().is_none() && unfinished.iter().all(is_known);
    if is_up_to_date || bytes(directory, &ended) > BYTES_MAX {
        return Ok(());
    }
    let mut parts = Vec::new();
    if let [own] = there.nodes.as_slice()
        && let place = directory.join(&*file_name(own))
        && ended.iter().all(|node| node.directory != place)
    {
        let first = read_summary(directory)?;
        if first.run.nodes != there.nodes {
            return Ok(()); // another process has joined them in the meantime
        }
        ampere_owned::make_all(&place, ampere_owned::DIRECTORY_MODE)
            .map_err(|why| ResultsError::Read { path: place.clone(), why })?;
        write_results_among_others(&place, &first)?;
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
    unfinished.into_iter().for_each(|reason| whole.run.lacks(reason));
    // Traces of nodes that end later are joined with the first node's clock.
    whole.run.clock = there.clock;
    write_results_among_others(directory, &whole)
}

/// Returns the text that a node's part is missing. A later summary contains the part, if the node ends or is recovered.
fn unfinished_words(node: &Node) -> String {
    let name = node.directory.file_name().unwrap_or_default().to_string_lossy();
    format!("node {} has not ended, or was killed: its part is missing", printable(&name))
}

fn bytes(directory: &Path, ended: &[Node]) -> u64 {
    let directories = ended.iter().map(|node| node.directory.as_path()).chain([directory]);
    let size = |directory: &Path| directory.join("summary.json").metadata().map_or(0, |file| file.len());
    directories.map(size).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ampere_figures::losses::Losses;
    use ampere_settings::Config;
    use ampere_timeline::attributor::Attributor;

    #[test]
    fn a_run_lacks_the_part_of_a_node_that_has_not_ended() {
        let run = tempfile::tempdir().expect("a directory");
        let write = |directory: &str, node: &str, running: bool| {
            let (id, nodes) = ("4711".to_owned(), vec![node.to_owned()]);
            let of_node = Run { id, nodes, running, complete: true, ..Run::default() };
            let attributor = Attributor::new(Config::default(), 1);
            let summary = Summary::new(&attributor, None, of_node, Losses::default());
            let directory = run.path().join(directory);
            std::fs::create_dir_all(&directory).expect("a directory");
            let text = serde_json::to_vec(&summary).expect("JSON");
            std::fs::write(directory.join("summary.json"), text).expect("a file");
        };
        let join = || {
            join_figures(run.path(), "4711").expect("joined");
            read_summary(run.path()).expect("a summary").run
        };
        write("", "a", false);
        write("b", "b", true);
        for _ in 0..2 {
            let whole = join();
            assert_eq!((whole.nodes.as_slice(), whole.complete), (&["a".to_owned()][..], false));
            assert!(matches!(&*whole.missing, [reason] if reason.starts_with("node b has not ended")));
        }
        write("b", "b", false);
        assert_eq!(join().nodes.len(), 2);
        write("c", "c", true);
        for _ in 0..2 {
            let whole = join();
            assert_eq!((whole.nodes.as_slice(), whole.complete), (&["a", "b"].map(String::from)[..], false));
            assert!(matches!(&*whole.missing, [reason] if reason.starts_with("node c has not ended")));
        }
        write("c", "c", false);
        let whole = join();
        assert_eq!((whole.nodes.len(), whole.complete, whole.missing.len()), (3, true, 0));
    }
}
