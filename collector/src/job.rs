//! What a run is a part of: the batch system's job. And a job's nodes as one: each has a collector and a summary of its own,
//! in a directory of its name below the first one's.

use crate::facts::Facts;
use crate::leftover::spools_below;
use crate::summary::{QualityFigures, Run, Summary, least_trusted};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// As the batch system names it, so that its accounting and our figures can be laid beside each other.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// "Slurm", "Flux", "PBS" or "LSF".
    pub scheduler: String,
    pub id: String,
}

/// A Flux instance may run in a Slurm job: the inner one has started us.
const SCHEDULERS: [(&str, &str); 4] =
    [("Flux", "FLUX_JOB_ID"), ("Slurm", "SLURM_JOB_ID"), ("PBS", "PBS_JOBID"), ("LSF", "LSB_JOBID")];

impl Job {
    pub fn of(variable: impl Fn(&str) -> Option<String>) -> Option<Job> {
        SCHEDULERS.iter().find_map(|(scheduler, name)| {
            let id = variable(name).filter(|id| !id.is_empty())?;
            Some(Job { scheduler: (*scheduler).to_owned(), id })
        })
    }
}

impl std::fmt::Display for Job {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.scheduler, self.id)
    }
}

/// The directories of other nodes' results: those right below that have some, or are of this run and still to have them.
pub fn below(directory: &Path, run_id: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let is_there = |path: &Path, name| path.join(name).symlink_metadata().is_ok();
    let was_killed = |path: &Path| {
        let (spools, _) = spools_below(path, 0, 1);
        spools.iter().any(|spool| Facts::load(spool).is_ok_and(|facts| facts.run_id == run_id))
    };
    let is_node = |path: &PathBuf| {
        is_there(path, "summary.json") || is_there(path, "collector.json") || was_killed(path)
    };
    let mut found: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(is_node).collect();
    found.sort_unstable();
    found
}

/// Sums of all, beside each node's own devices. What is of other runs than the first is left out.
pub fn joined(first: Summary, others: Vec<Summary>) -> Summary {
    let id = first.run.id.clone();
    let mut all = vec![first];
    all.extend(others.into_iter().filter(|summary| summary.run.id == id));
    if all.len() == 1 {
        return all.remove(0);
    }
    let mut whole = Summary {
        run: run_of(&all),
        quality: quality_of(&all),
        schema: all[0].schema.clone(),
        overhead: all[0].overhead.clone(),
        devices: Vec::new(),
        topology: Vec::new(),
    };
    // Of each collector's own thread: there is no sum of it.
    whole.overhead.sampler = None;
    whole.overhead.collector_cpu_seconds = all.iter().map(|node| node.overhead.collector_cpu_seconds).sum();
    whole.overhead.collector_peak_rss_bytes =
        all.iter().map(|node| node.overhead.collector_peak_rss_bytes).max().unwrap_or(0);
    for node in all {
        whole.devices.extend(node.devices);
        whole.topology.extend(node.topology);
    }
    whole
}

fn run_of(all: &[Summary]) -> Run {
    let runs = || all.iter().map(|node| &node.run);
    let dates = |of: fn(&Run) -> &String| runs().map(of).filter(|date| !date.is_empty());
    let mut nodes: Vec<String> = runs().flat_map(|run| run.nodes.iter().cloned()).collect();
    nodes.sort_unstable();
    nodes.dedup();
    let mut endings: Vec<_> = runs().flat_map(|run| run.endings.iter().cloned()).collect();
    endings.sort_by_key(|ending| (ending.time.is_empty(), ending.time.clone()));
    Run {
        start: dates(|run| &run.start).min().cloned().unwrap_or_default(),
        end: dates(|run| &run.end).max().cloned().unwrap_or_default(),
        complete: runs().all(|run| run.complete),
        nodes,
        ranks: runs().map(|run| run.ranks).sum(),
        energy: least_trusted(runs().map(|run| run.energy.as_str())).to_owned(),
        total_joules: runs().map(|run| run.total_joules).sum(),
        seconds: runs().map(|run| run.seconds).fold(0.0, f64::max),
        notes: notes_of(all),
        command_status: runs().find_map(|run| run.command_status),
        endings,
        gaps: runs().flat_map(|run| run.gaps.iter().cloned()).collect(),
        ..all[0].run.clone()
    }
}

/// What several nodes say is said once, with how many they are.
fn notes_of(all: &[Summary]) -> Vec<String> {
    let mut by_note: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let mut in_order: Vec<&str> = Vec::new();
    for node in all {
        for note in &node.run.notes {
            let nodes = by_note.entry(note).or_default();
            if nodes.is_empty() {
                in_order.push(note);
            }
            nodes.push(node.run.nodes.join(","));
        }
    }
    let line = |note: &str| match by_note[note].as_slice() {
        [only] => format!("{only}: {note}"),
        many if many.len() == all.len() => note.to_owned(),
        many => format!("{} and {} more nodes: {note}", many[0], many.len() - 1),
    };
    in_order.into_iter().map(line).collect()
}

fn quality_of(all: &[Summary]) -> QualityFigures {
    let sum = |of: fn(&QualityFigures) -> u64| {
        all.iter().map(|node| of(&node.quality)).fold(0, u64::saturating_add)
    };
    QualityFigures {
        events: sum(|q| q.events),
        coalesced_calls: sum(|q| q.coalesced_calls),
        suppressed_calls: sum(|q| q.suppressed_calls),
        unrecorded_calls: sum(|q| q.unrecorded_calls),
        dropped_records: sum(|q| q.dropped_records),
        late_events: sum(|q| q.late_events),
        counter_resets: sum(|q| q.counter_resets),
        // Of a device in a view the largest, as of a node's.
        conservation_error_joules: all
            .iter()
            .map(|node| node.quality.conservation_error_joules)
            .fold(0.0, f64::max),
        unusable_samples: sum(|q| q.unusable_samples),
        counter_wraps: sum(|q| q.counter_wraps),
        sampling_gaps: sum(|q| q.sampling_gaps),
        stale_counters: sum(|q| q.stale_counters),
        repaired_events: sum(|q| q.repaired_events),
        damaged_records: sum(|q| q.damaged_records),
        left_out_definitions: sum(|q| q.left_out_definitions),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attributor::Attributor;
    use crate::config::Config;

    fn of(node: &str, joules: f64, energy: &str, id: &str) -> Summary {
        let run = Run {
            id: id.to_owned(),
            nodes: vec![node.to_owned()],
            ranks: 4,
            complete: node != "n2",
            start: format!("2026-01-01T00:00:0{}Z", joules as u32 % 10),
            notes: vec!["the same".to_owned(), format!("of {node}")],
            ..Run::default()
        };
        let attributor = Attributor::new(Config::default(), 1);
        let mut one =
            Summary::new(&attributor, None, run, QualityFigures { events: 7, ..Default::default() });
        (one.run.energy, one.run.total_joules) = (energy.to_owned(), joules);
        one
    }

    #[test]
    fn what_is_of_one_run_is_summed() {
        let others = vec![of("n2", 2.0, "estimated", "job"), of("n3", 100.0, "measured", "another")];
        let whole = joined(of("n1", 3.0, "measured", "job"), others);
        let run = &whole.run;
        assert_eq!((run.nodes.join(","), run.ranks, run.total_joules), ("n1,n2".to_owned(), 8, 5.0));
        assert_eq!((run.energy.as_str(), run.complete, whole.quality.events), ("estimated", false, 14));
        assert_eq!(run.notes, ["the same", "n1: of n1", "n2: of n2"]);
        assert_eq!(run.start, "2026-01-01T00:00:02Z");
    }

    #[test]
    fn a_node_that_was_killed_is_found_by_its_spool() {
        let place = tempfile::tempdir().unwrap();
        for (node, id) in [("n2", "job"), ("n3", "another")] {
            let facts = Facts::new(Path::new("/dev/shm/ampere-1/s-job"), id, &[], None);
            crate::output::claim(&place.path().join(node), node, &facts.text()).unwrap();
        }
        std::fs::create_dir(place.path().join("input")).unwrap();
        assert_eq!(below(place.path(), "job"), [place.path().join("n2")]);
    }

    #[test]
    fn a_job_has_the_name_that_its_scheduler_gave_it() {
        let variables = |names: &'static [(&str, &str)]| {
            move |name: &str| names.iter().find(|(known, _)| *known == name).map(|(_, id)| (*id).to_owned())
        };
        let shown = |names| Job::of(variables(names)).map(|job| job.to_string());
        assert_eq!(shown(&[("SLURM_JOB_ID", "17")]).as_deref(), Some("Slurm 17"));
        assert_eq!(shown(&[("SLURM_JOB_ID", "17"), ("FLUX_JOB_ID", "f2A")]).as_deref(), Some("Flux f2A"));
        assert_eq!(shown(&[("SLURM_JOB_ID", "")]), None);
    }

    #[test]
    fn one_node_stays_as_it_is() {
        let one = joined(of("n1", 3.0, "measured", "job"), Vec::new());
        assert_eq!(one.run.notes, ["the same", "of n1"]);
    }
}
