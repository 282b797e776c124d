//! A run on several nodes: each node has its own collector and summary. The first node's are in the run's output directory,
//! the others' in subdirectories with the nodes' names.

use crate::run_directory::leftover::spools_below;
use crate::run_directory::manifest::Manifest;
use crate::run_directory::output::{CLAIM, file_name};
use ampere_model::text::one_line;
use ampere_report::summary::{Head, Run, Summary};
use ampere_trace::chrome::{Part, trace_beside};
use std::fs::DirEntry;
use std::path::{Path, PathBuf};

/// Another node's part of a run.
pub struct Node {
    /// Its output directory.
    pub directory: PathBuf,
    /// The head of its summary; `None` until that is written.
    pub run: Option<Run>,
}

/// The run whose directory it is: whose results it holds, or which has claimed it.
pub fn run_in(directory: &Path) -> Option<String> {
    let of_claim = || Some(Manifest::load(spools_below(directory, 0, 1).0.first()?).ok()?.run_id);
    head(&directory.join("summary.json")).map(|run| run.id).or_else(of_claim)
}

/// The directories of a run's other nodes: those with the name of the node whose results they hold, or have a claim for.
/// Anything else there (other runs, copies, links) is ignored.
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

/// The directory whose report shows all nodes, if the run has several.
pub fn first_of(directory: &Path, manifest: &Manifest) -> Option<PathBuf> {
    if !below(directory, &manifest.run_id).is_empty() {
        return Some(directory.to_owned());
    }
    let above = directory
        .parent()
        .filter(|_| directory.file_name().is_some_and(|n| n == &*file_name(&manifest.node)))?;
    let summary = head(&above.join("summary.json")).is_some_and(|run| run.id == manifest.run_id);
    let is_unfinished = || {
        let spools = spools_below(above, 0, 1).0;
        spools.iter().any(|spool| Manifest::load(spool).is_ok_and(|first| first.run_id == manifest.run_id))
    };
    (summary || is_unfinished()).then(|| above.to_owned())
}

/// The `run` of a summary, read without its tables, which may be large.
pub fn head(path: &Path) -> Option<Run> {
    Head::of(path).map(|head| head.run)
}

/// Trace and summary of each other node of a run, and a line for each node without them. `directory`: the first node's.
pub fn other_parts(
    directory: &Path,
    run_id: &str,
    summary_of: impl Fn(&Path) -> anyhow::Result<Summary>,
) -> (Vec<Part>, Vec<String>) {
    let (mut parts, mut missing) = (Vec::new(), Vec::new());
    for node in below(directory, run_id) {
        let part = trace_beside(&node.directory).and_then(|trace| {
            let summary = summary_of(&node.directory)?;
            Ok(Part { trace, summary })
        });
        match part {
            Ok(part) => parts.push(part),
            Err(why) => {
                missing.push(format!("{} is left out: {}", node.directory.display(), one_line(&*why)))
            }
        }
    }
    (parts, missing)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ampere_report::summary::SCHEMA;

    fn of(node: &str, id: &str) -> String {
        let run =
            Run { id: id.to_owned(), nodes: vec![node.to_owned()], total_joules: 2.0, ..Run::default() };
        format!(r#"{{"schema": "{SCHEMA}", "run": {}}}"#, serde_json::to_string(&run).unwrap())
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
