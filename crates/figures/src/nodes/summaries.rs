//! Joins the summaries of a run's nodes.

use crate::assignment;
use crate::clock_text::seconds;
use crate::events::EventSum;
use crate::lanes;
use crate::losses::Losses;
use crate::missing;
use crate::summary::{MpiRanks, NodeCpu, Range, Run, Summary, Work, least_trusted, topmost};
use crate::waits::Waiting;
use ampere_model::sum;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The start of the text of [`note`]. Notes that start with it are left out when summaries are joined.
const ALONE: &str = "this is the part of node ";
/// The difference between two nodes' times, in seconds, above which their clocks are said to differ.
const CLOCKS_APART: f64 = 30.0;

/// Returns the note for the summary of a single node of several. It names the command that shows all nodes.
pub fn note(node: &str, first: &Path) -> String {
    format!("{ALONE}{node}: ampere report {} shows all nodes of the run together", first.display())
}

/// Makes one summary of several, with sums, and with the devices of each node.
pub fn joined(first: Summary, others: Vec<Summary>) -> Summary {
    if others.is_empty() {
        return first;
    }
    let mut all = vec![first];
    all.extend(others);
    let (run, quality) = (run_of(&all), quality_of(&all));
    let cpu_seconds = all.iter().map(|node| node.overhead.collector_cpu_seconds).sum();
    let peak_bytes = all.iter().map(|node| node.overhead.collector_peak_rss_bytes).max().unwrap_or(0);
    let mut whole = all.remove(0);
    (whole.run, whole.quality) = (run, quality);
    (whole.overhead.collector_cpu_seconds, whole.overhead.collector_peak_rss_bytes) =
        (cpu_seconds, peak_bytes);
    // These figures are about the thread of one collector, so a sum makes no sense.
    whole.overhead.sampler = None;
    let more = all.iter().filter_map(|node| node.overhead.stacks.as_ref());
    whole.overhead.stacks =
        whole.overhead.stacks.iter().chain(more).cloned().reduce(|sum, more| sum.with(&more));
    whole.topology.extend(all.iter_mut().flat_map(|node| std::mem::take(&mut node.topology)));
    join_lanes(&mut whole, &mut all);
    let (others, events) = whole.renumbered(all);
    whole.devices.extend(others);
    whole.events.append(events);
    whole
}

fn join_lanes(whole: &mut Summary, others: &mut [Summary]) {
    let others = others.iter_mut().flat_map(|node| std::mem::take(&mut node.lanes));
    whole.lanes = lanes::joined(std::mem::take(&mut whole.lanes).into_iter().chain(others));
}

/// Makes the summary of a trace whose nodes were attributed separately, equal to that of all nodes attributed together. In
/// its `run`, only those fields are set that depend on the nodes.
pub fn of_one_trace(first: Summary, others: Vec<Summary>) -> Summary {
    let mut all = vec![first];
    all.extend(others);
    let quality = quality_of(&all);
    let runs = || all.iter().map(|part| &part.run);
    let nodes: BTreeSet<String> = runs().flat_map(|run| run.nodes.iter().cloned()).collect();
    // The notes are sorted, so that their order does not depend on which nodes were attributed together.
    let notes: BTreeSet<String> = runs().flat_map(|run| run.notes.iter().cloned()).collect();
    let missing: BTreeSet<String> = runs().flat_map(|run| run.missing.iter().cloned()).collect();
    let run = Run {
        complete: runs().all(|run| run.complete),
        nodes: nodes.into_iter().collect(),
        ranks: runs().map(|run| run.ranks).sum(),
        node_ranks: runs().flat_map(Run::ranks_of_nodes).collect(),
        energy: least_trusted(runs().map(|run| run.energy.as_str())).to_owned(),
        waiting: waiting_of(&all),
        notes: notes.into_iter().collect(),
        missing: missing.into_iter().collect(),
        work: Work::joined(runs(), None),
        ranges: Range::joined(runs()),
        events: EventSum::joined(runs()),
        ..Run::default()
    };
    let mut whole = all.remove(0);
    if !all.is_empty() {
        whole.topology.extend(all.iter_mut().flat_map(|part| std::mem::take(&mut part.topology)));
        assignment::sort(&mut whole.topology);
        join_lanes(&mut whole, &mut all);
        let (others, events) = whole.renumbered(all);
        whole.devices.extend(others);
        whole.events.append(events);
        whole.order_names();
    }
    let all_threads_lead = whole.devices.iter().any(|device| device.other_ranks_lead);
    for device in &mut whole.devices {
        device.other_ranks_lead = all_threads_lead && device.other_ranks.is_some();
    }
    whole.devices.sort_by(|a, b| (a.unit != "J", &a.node).cmp(&(b.unit != "J", &b.node)));
    let site = whole.run.site.take();
    (whole.run, whole.quality) = (run, quality);
    let joules: Vec<f64> = topmost(&whole).map(|device| device.total_joules).collect();
    whole.run.total_joules = sum(joules.iter().copied());
    let known = (!joules.is_empty()).then_some(whole.run.total_joules);
    whole.run.work = Work::joined(std::iter::once(&whole.run), known);
    whole.run.events = EventSum::with_joules(std::mem::take(&mut whole.run.events), known);
    whole.run.site = site.map(|site| site.with_joules(whole.run.total_joules));
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
    let mpi: Vec<&MpiRanks> = runs().filter_map(|run| run.mpi.as_ref()).collect();
    let mpi = MpiRanks::of(mpi.iter().flat_map(|of| of.ranks.iter().map(|rank| (*rank, of.size))));
    let missing = mpi.as_ref().map(MpiRanks::missing).unwrap_or_default();
    let mut notes = notes_of(all, |run| &run.notes);
    notes.extend(note_of_clocks(all));
    let mut notes_of_missing = notes_of(all, |run| &run.missing);
    if let Some(mpi) = mpi.as_ref().filter(|_| !missing.is_empty()) {
        let note = missing::note_of_all_nodes(&missing, mpi.size);
        notes_of_missing.insert(0, note.clone());
        notes.push(note);
    }
    let total_joules = runs().map(|run| run.total_joules).sum();
    let is_measured = all.iter().any(|node| topmost(node).next().is_some());
    Run {
        start: dates(|run| &run.start).min().cloned().unwrap_or_default(),
        end: dates(|run| &run.end).max().cloned().unwrap_or_default(),
        complete: runs().all(|run| run.complete) && missing.is_empty(),
        running: runs().any(|run| run.running),
        nodes,
        ranks: runs().map(|run| run.ranks).sum(),
        node_ranks: runs().flat_map(Run::ranks_of_nodes).collect(),
        energy: least_trusted(runs().map(|run| run.energy.as_str())).to_owned(),
        total_joules,
        work: Work::joined(runs(), is_measured.then_some(total_joules)),
        events: EventSum::with_joules(EventSum::joined(runs()), is_measured.then_some(total_joules)),
        ranges: Range::joined(runs()),
        site: runs().find_map(|run| run.site.clone()).map(|site| site.with_joules(total_joules)),
        seconds: runs().map(|run| run.seconds).fold(0.0, f64::max),
        notes,
        missing: notes_of_missing,
        node_cpu: runs().filter_map(|run| run.node_cpu).reduce(NodeCpu::with),
        command_status: runs().find_map(|run| run.command_status),
        endings,
        gaps: runs().flat_map(|run| run.gaps.iter().cloned()).collect(),
        clock: Vec::new(),
        waiting: waiting_of(all),
        mpi,
        ..all[0].run.clone()
    }
}

/// Returns a note if nodes have different times of day. The processes of a run start and end together on all nodes, so if both
/// times are much later on one node, or both much earlier, its clock is wrong.
fn note_of_clocks(all: &[Summary]) -> Option<String> {
    let times = |run: &Run| Some((seconds(&run.start)?, seconds(&run.end)?));
    let (first, rest) = all.split_first()?;
    let (start, end) = times(&first.run)?;
    let shifts = rest.iter().filter_map(|node| {
        let (other_start, other_end) = times(&node.run)?;
        let (at_start, at_end) = (other_start - start, other_end - end);
        let is_shifted =
            at_start.signum() == at_end.signum() && at_start.abs().min(at_end.abs()) > CLOCKS_APART;
        is_shifted.then(|| ((at_start + at_end) / 2.0, node.run.nodes.join(",")))
    });
    let (seconds, node) = shifts.max_by(|a, b| a.0.abs().total_cmp(&b.0.abs()))?;
    Some(format!(
        "the clocks of {} and {node} differ by {:.0} s: joules are right, but times of different nodes cannot be compared",
        first.run.nodes.join(","),
        seconds.abs()
    ))
}

/// Returns the notes of all nodes. A note that several nodes have is returned once, with their number.
fn notes_of(all: &[Summary], of: fn(&Run) -> &Vec<String>) -> Vec<String> {
    let mut by_note: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let mut in_order: Vec<&str> = Vec::new();
    for node in all {
        for note in of(&node.run).iter().filter(|note| !note.starts_with(ALONE)) {
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

/// Returns the sum of the waiting on all nodes.
fn waiting_of(all: &[Summary]) -> Option<Waiting> {
    let mut parts = all.iter().filter_map(|node| node.run.waiting.as_ref());
    let first = parts.next()?.clone();
    Some(parts.fold(first, Waiting::with))
}

fn quality_of(all: &[Summary]) -> Losses {
    let mut sum = Losses::default();
    all.iter().for_each(|node| sum.add(&node.quality));
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use ampere_settings::Config;
    use ampere_timeline::attributor::Attributor;

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
        let mut one = Summary::new(&attributor, None, run, Losses::default());
        one.quality.records.events = 7;
        (one.run.energy, one.run.total_joules) = (energy.to_owned(), joules);
        one
    }

    #[test]
    fn nodes_of_one_run_are_summed() {
        let whole = joined(of("n1", 3.0, "measured", "job"), vec![of("n2", 2.0, "estimated", "job")]);
        let run = &whole.run;
        assert_eq!((run.nodes.join(","), run.ranks, run.total_joules), ("n1,n2".to_owned(), 8, 5.0));
        assert_eq!(
            (run.energy.as_str(), run.complete, whole.quality.records.events),
            ("estimated", false, 14)
        );
        assert_eq!(run.notes, ["the same", "n1: of n1", "n2: of n2"]);
        assert_eq!(run.start, "2026-01-01T00:00:02Z");
        assert_eq!(
            run.node_ranks.iter().map(|(node, ranks)| (node.as_str(), *ranks)).collect::<Vec<_>>(),
            [("n1", 4), ("n2", 4)]
        );
    }

    #[test]
    fn clocks_that_differ_are_noted() {
        let of_times = |node: &str, start: &str, end: &str| {
            let mut one = of(node, 1.0, "measured", "job");
            (one.run.start, one.run.end) = (format!("2026-01-01T{start}Z"), format!("2026-01-01T{end}Z"));
            one
        };
        let clocks = |start: &str, end: &str| {
            let first = of_times("n1", "10:00:00", "10:20:00");
            let notes = joined(first, vec![of_times("n2", start, end)]).run.notes;
            notes.into_iter().find(|note| note.contains("clocks"))
        };
        let said = "the clocks of n1 and n2 differ by 240 s: joules are right, but times of different nodes cannot be compared";
        assert_eq!(clocks("10:04:00", "10:24:00").as_deref(), Some(said));
        assert_eq!(clocks("09:56:01", "10:15:59").as_deref(), Some(said));
        // On the other node, the run started later, or ended earlier.
        assert_eq!(clocks("10:05:00", "10:20:01"), None);
        assert_eq!(clocks("10:05:00", "10:10:00"), None);
        assert_eq!(clocks("10:00:02", "10:20:03"), None);
    }

    #[test]
    fn ranks_that_are_on_no_node_are_missing() {
        let with = |node: &str, ranks: &[u32]| {
            let mut one = of(node, 1.0, "measured", "job");
            one.run.mpi = MpiRanks::of(ranks.iter().map(|rank| (*rank, 4)));
            one
        };
        let whole = joined(with("n1", &[0, 2]), vec![with("n3", &[1, 3])]);
        assert!(whole.run.complete && whole.run.mpi.is_some(), "{:?}", whole.run);
        let whole = joined(with("n1", &[0, 2]), vec![with("n3", &[3])]);
        assert!(!whole.run.complete);
        assert!(whole.run.notes.iter().any(|note| note.contains("MPI Rank 1 of 4")), "{:?}", whole.run.notes);
        // Two jobs, one after the other, have ranks with the same numbers.
        let whole = joined(with("n1", &[0, 2]), vec![with("n3", &[0, 1])]);
        assert!(whole.run.complete && whole.run.mpi.is_none());
    }

    #[test]
    fn ranks_that_were_started_later_belong_to_the_job() {
        let ranks = |processes: &[(u32, u32)]| MpiRanks::of(processes.iter().copied());
        let spawned = ranks(&[(3, 5), (0, 3), (4, 5), (1, 3), (2, 3)]).expect("one job");
        assert_eq!((spawned.size, spawned.ranks), (5, vec![0, 1, 2, 3, 4]));
        let of_one = ranks(&[(1, 3), (2, 3), (0, 1)]).expect("one job");
        assert_eq!((of_one.size, of_one.ranks), (3, vec![0, 1, 2]));
        // Two jobs of two and of four ranks, of which two were not measured.
        assert_eq!(ranks(&[(0, 4), (1, 4), (2, 2), (3, 2)]), None);
        assert_eq!(ranks(&[(0, 2), (1, 4), (2, 4), (3, 4)]), None);
    }

    #[test]
    fn one_node_stays_as_it_is() {
        let one = joined(of("n1", 3.0, "measured", "job"), Vec::new());
        assert_eq!(one.run.notes, ["the same", "of n1"]);
    }
}
