//! Finds the directories of a run on several nodes: each node has its own collector and summary. The first node's results are
//! in the run's output directory, and those of the others in subdirectories with the nodes' names. The nodes' traces and
//! figures are joined when the last node ends: then the first node's own figures are in a subdirectory, too.

use crate::run_directory::files::file_name;
use crate::run_directory::leftover::spools_below;
use crate::run_directory::manifest::Manifest;
use crate::run_directory::output::CLAIM;
use ampere_figures::summary::{Head, Run, Summary};
use ampere_model::text::one_line;
use ampere_trace::chrome::{Part, trace_next_to};
use ampere_trace::join::{self, JoinError, NodeTrace};
use std::fs::DirEntry;
use std::path::{Path, PathBuf};

/// Another node's part of a run.
pub struct Node {
    /// The output directory of the node.
    pub directory: PathBuf,
    /// The head of its summary; `None` until that is written.
    pub run: Option<Run>,
}

/// Returns the id of the run that owns the directory: its results are there, or it has claimed the directory.
pub fn run_in(directory: &Path) -> Option<String> {
    let of_claim = || Some(Manifest::load(spools_below(directory, 0, 1).0.first()?).ok()?.run_id);
    head(&directory.join("summary.json")).map(|run| run.id).or_else(of_claim)
}

/// Returns the directories of a run's other nodes: each has the name of the node whose results or claim it holds. Anything else
/// there (other runs, copies, links) is ignored.
pub fn below(directory: &Path, run_id: &str) -> Vec<Node> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let directories = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    let node_of = |entry: DirEntry| {
        let (directory, name) = (entry.path(), entry.file_name().into_string().ok()?);
        let is_this_node = |run: &Run| run.nodes.iter().any(|node| file_name(node) == name);
        let run = head(&directory.join("summary.json")).filter(|run| run.id == run_id && is_this_node(run));
        let is_claimed = || {
            let manifest = Manifest::load(&directory.join(format!("{CLAIM}{name}")));
            manifest.is_ok_and(|manifest| manifest.run_id == run_id)
        };
        (run.is_some() || is_claimed()).then_some(Node { directory, run })
    };
    let mut found: Vec<Node> = directories.filter_map(node_of).collect();
    found.sort_unstable_by(|a, b| a.directory.cmp(&b.directory));
    found
}

/// Returns the nodes whose figures are not in a summary.
pub fn missing_in<'a>(summary: &'a Run, nodes: &'a [Node]) -> impl Iterator<Item = &'a Node> {
    let is_in = |run: &Run| run.nodes.iter().all(|node| summary.nodes.contains(node));
    nodes.iter().filter(move |node| !node.run.as_ref().is_some_and(is_in))
}

/// Returns the directory whose report shows all nodes, if the run has several.
pub fn first_of(directory: &Path, manifest: &Manifest) -> Option<PathBuf> {
    if !below(directory, &manifest.run_id).is_empty() {
        return Some(directory.to_owned());
    }
    let above = directory
        .parent()
        .filter(|_| directory.file_name().is_some_and(|n| n == &*file_name(&manifest.node)))?;
    let has_summary = head(&above.join("summary.json")).is_some_and(|run| run.id == manifest.run_id);
    let is_unfinished = || {
        let spools = spools_below(above, 0, 1).0;
        spools.iter().any(|spool| Manifest::load(spool).is_ok_and(|first| first.run_id == manifest.run_id))
    };
    (has_summary || is_unfinished()).then(|| above.to_owned())
}

/// Reads the `run` of a summary without its tables, which may be large.
pub fn head(path: &Path) -> Option<Run> {
    Head::of(path).map(|head| head.run)
}

/// Joins the traces of the nodes that have ended to the first node's in this directory. Nothing happens if the first node has not
/// ended or there is no other. A node that was killed can be added after it has been recovered.
///
/// # Errors
/// The reason why the traces could not be joined.
pub fn join_traces(directory: &Path, run_id: &str) -> Result<(), JoinError> {
    join::carry_out(directory)?;
    let of = |directory: &Path, run: Option<&Run>| {
        let run = run.filter(|run| !run.running && run.id == run_id)?;
        // A trace with another name is not joined, and looking for one would list the directory of each of a thousand nodes.
        let is_there = directory.join("traces.otf2").exists() && spools_below(directory, 0, 1).0.is_empty();
        is_there.then(|| NodeTrace { directory: directory.to_owned(), clock: run.clock.clone() })
    };
    let others: Vec<NodeTrace> =
        below(directory, run_id).iter().filter_map(|node| of(&node.directory, node.run.as_ref())).collect();
    let first = of(directory, head(&directory.join("summary.json")).as_ref()).filter(|_| !others.is_empty());
    first.map_or(Ok(()), |first| join::join(&first, &others))
}

/// Returns the run's directory if this node is the last of several to end. `ended` is the directory of the node that has just
/// ended.
pub fn of_the_last_to_end(ended: &Path, manifest: &Manifest) -> Option<PathBuf> {
    let first = first_of(ended, manifest)?;
    let entries = std::fs::read_dir(&first).into_iter().flatten().flatten();
    let continues = |entry: DirEntry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        entry.path().join(format!("{CLAIM}{name}")).exists() || name.starts_with(CLAIM)
    };
    // In a run with many nodes, all but the last few soon find one that is still running.
    (!entries.into_iter().any(continues)).then_some(first)
}

/// The other nodes of a run, grouped by the place of their traces.
#[derive(Default)]
pub struct Others {
    /// Figures of the nodes that are in the first node's trace.
    pub joined: Vec<Summary>,
    /// The nodes that have a trace of their own.
    pub parts: Vec<Part>,
    /// A line for each node that is left out.
    pub missing: Vec<String>,
}

/// Returns the trace and the summary of each node that the first node's summary does not include. `directory` is the first
/// node's output directory, which holds its trace.
///
/// # Errors
/// The first node's trace cannot be read.
pub fn other_parts(
    directory: &Path,
    first: &Run,
    summary_of: impl Fn(&Path) -> anyhow::Result<Summary>,
) -> anyhow::Result<Others> {
    let (mut others, nodes) = (Others::default(), below(directory, &first.id));
    let nodes: Vec<&Node> = missing_in(first, &nodes).collect();
    if nodes.is_empty() {
        return Ok(others);
    }
    let in_trace = join::nodes_of(&trace_next_to(directory)?)?;
    for node in nodes {
        let is_joined =
            node.run.as_ref().is_some_and(|run| run.nodes.iter().all(|name| in_trace.contains(name)));
        let put = summary_of(&node.directory).and_then(|summary| {
            match is_joined {
                true => others.joined.push(summary),
                false => others.parts.push(Part { trace: trace_next_to(&node.directory)?, summary }),
            }
            Ok(())
        });
        if let Err(why) = put {
            let line = format!("{} is not included: {}", node.directory.display(), one_line(&*why));
            others.missing.push(line);
        }
    }
    Ok(others)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ampere_figures::losses::Losses;
    use ampere_figures::summary::SCHEMA;

    fn of(node: &str, id: &str) -> String {
        let run =
            Run { id: id.to_owned(), nodes: vec![node.to_owned()], total_joules: 2.0, ..Run::default() };
        let (run, quality) =
            (serde_json::to_string(&run).unwrap(), serde_json::to_string(&Losses::default()).unwrap());
        format!(r#"{{"schema": "{SCHEMA}", "run": {run}, "quality": {quality}}}"#)
    }

    #[test]
    fn only_directories_of_this_runs_nodes_are_found() {
        let place = tempfile::tempdir().unwrap();
        let claim = |name: &str, node: &str, id: &str| {
            let manifest = Manifest::new(Path::new("/dev/shm/ampere-1/s-job"), id, &[], None);
            crate::run_directory::output::claim(&place.path().join(name), node, &manifest.text()).unwrap();
        };
        let results = |name: &str, summary: &str| {
            std::fs::create_dir(place.path().join(name)).unwrap();
            std::fs::write(place.path().join(name).join("summary.json"), summary).unwrap();
        };
        claim("killed", "killed", "job");
        claim("other", "other", "another");
        results("n2", &of("n2", "job"));
        results("n3", &of("n3", "another"));
        results("n2.copy", &of("n2", "job"));
        results("coverage", r#"{"total": {"lines": 5}}"#);
        results("cut", r#"{"schema": "ampere-summary/2", "run": {"id": "job", "#);
        std::os::unix::fs::symlink(place.path().join("n2"), place.path().join("n4")).unwrap();
        let found = below(place.path(), "job");
        let names: Vec<_> = found.iter().filter_map(|node| node.directory.file_name()).collect();
        assert_eq!(names, ["killed", "n2"]);
        assert_eq!(found[1].run.as_ref().map(|run| run.total_joules), Some(2.0));
    }
}
