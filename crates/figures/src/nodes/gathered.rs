//! The nodes of a run and their last figures, which the collector of the first node gathers. Sums never decrease: each figure of
//! a node is the highest that it has reported, and a node that no longer answers keeps its last figures.

use super::job::{Job, NamedJoules, NodeLine, NodeState, RankLine, SCHEMA};
use super::report::{NodeReport, Refused};
use crate::losses::Losses;
use crate::totals::Totals;
use ampere_model::order::largest_first;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The maximum number of distinct names of functions and kernels. Further ones are ignored.
const NAMES_MAX: usize = 20_000;
/// The maximum number of functions, and of kernels, of a node.
const NODE_ROWS_MAX: usize = 256;
/// The minimum time between two sums.
const SUMS_AGE: Duration = Duration::from_millis(400);
/// The shortest time over which the idle part is computed.
const IDLE_WINDOW: Duration = Duration::from_secs(2);
/// The fraction by which a sum may decrease because of rounding.
const ROUNDING: f64 = 1e-9;

/// This node, and the other nodes by the names of their directories.
#[derive(Debug, Default)]
pub struct Nodes {
    nodes: BTreeMap<String, Node>,
    here: Node,
    names: Names,
    sums: Option<(Instant, Arc<Job>)>,
}

/// The known figures of a node.
#[derive(Debug, Default)]
struct Node {
    state: NodeState,
    problem: String,
    energy: String,
    totals: Totals,
    losses: Losses,
    rank_count: usize,
    ranks: BTreeMap<String, f64>,
    functions: BTreeMap<u32, f64>,
    kernels: BTreeMap<u32, f64>,
    idle: IdlePart,
}

/// The part of the joules that was recently idle.
#[derive(Debug, Default)]
struct IdlePart {
    since: Option<(Instant, f64, f64)>,
    ratio: Option<f64>,
}

#[derive(Debug, Default)]
struct Names {
    numbers: HashMap<Arc<str>, u32>,
    all: Vec<Arc<str>>,
}

impl Names {
    /// Returns the number of a name. If `may_add`, a new name gets a number.
    fn number(&mut self, name: &str, may_add: bool) -> Option<u32> {
        if let Some(number) = self.numbers.get(name) {
            return Some(*number);
        }
        let number = self.all.len() as u32;
        (may_add && self.all.len() < NAMES_MAX).then(|| {
            let name: Arc<str> = name.into();
            self.numbers.insert(name.clone(), number);
            self.all.push(name);
            number
        })
    }
}

impl IdlePart {
    fn update(&mut self, now: Instant, totals: &Totals) {
        let (since, joules, idle) = *self.since.get_or_insert((now, totals.joules, totals.idle_joules));
        if now.duration_since(since) >= IDLE_WINDOW && totals.joules > joules {
            self.ratio = Some(((totals.idle_joules - idle) / (totals.joules - joules)).clamp(0.0, 1.0));
            self.since = Some((now, totals.joules, totals.idle_joules));
        }
    }
}

/// Raises a figure to a value that was reported.
fn raise(known: &mut f64, reported: f64) {
    *known = known.max(reported);
}

/// Raises the figure of a key to a value that was reported. At most `limit` keys are kept.
fn raise_in<K: Ord>(all: &mut BTreeMap<K, f64>, of: K, reported: f64, limit: usize) {
    let has_room = all.len() < limit;
    match all.entry(of) {
        Entry::Occupied(mut known) => raise(known.get_mut(), reported),
        Entry::Vacant(new) if has_room => _ = new.insert(reported),
        Entry::Vacant(_) => {}
    }
}

impl Node {
    fn take(&mut self, report: &NodeReport, names: &mut Names, now: Instant) -> Result<(), Refused> {
        if report.totals.joules < self.totals.joules * (1.0 - ROUNDING) {
            return Err(Refused::WentBack);
        }
        self.totals.raise(&report.totals);
        self.losses.raise(&report.losses);
        self.totals.watts = report.totals.watts.filter(|_| !report.is_last);
        self.idle.update(now, &self.totals);
        for (rank, joules) in &report.ranks {
            raise_in(&mut self.ranks, rank.clone(), *joules, 4 * NODE_ROWS_MAX);
        }
        for (known, reported) in
            [(&mut self.functions, &report.functions), (&mut self.kernels, &report.kernels)]
        {
            for (name, joules) in reported {
                let Some(number) = names.number(name, known.len() < NODE_ROWS_MAX) else { continue };
                raise_in(known, number, *joules, NODE_ROWS_MAX);
            }
        }
        self.energy.clone_from(&report.energy);
        self.rank_count = report.rank_count;
        self.problem.clear();
        self.state = if report.is_last { NodeState::Over } else { NodeState::Running };
        Ok(())
    }

    fn line(&self, name: &str) -> NodeLine {
        let is_running = self.state == NodeState::Running;
        NodeLine {
            node: name.to_owned(),
            state: self.state,
            problem: self.problem.clone(),
            energy: self.energy.clone(),
            joules: self.totals.joules,
            watts: self.totals.watts.filter(|_| is_running),
            idle_joules: self.totals.idle_joules,
            lost_joules: self.totals.lost_joules,
            idle_ratio: self.idle.ratio.filter(|_| is_running),
            ranks: self.rank_count,
        }
    }
}

impl Nodes {
    /// Whether the run has no other nodes.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Adds a node of the run, even if it never answers.
    pub fn add(&mut self, name: &str) {
        self.nodes.entry(name.to_owned()).or_default();
    }

    pub fn take(&mut self, name: &str, report: &NodeReport, now: Instant) -> Result<(), Refused> {
        match self.nodes.get_mut(name) {
            Some(node) => node.take(report, &mut self.names, now),
            None => Ok(()),
        }
    }

    /// Records that a node does not answer, or that its answer cannot be used. `is_gone`: it has not answered for a long
    /// time.
    pub fn note_problem(&mut self, name: &str, problem: &str, is_gone: bool) {
        let Some(node) = self.nodes.get_mut(name) else { return };
        problem.clone_into(&mut node.problem);
        if is_gone && node.state == NodeState::Running {
            node.state = NodeState::Gone;
        }
    }

    /// Takes the joules of a node from its summary, which is on disk during the run and after its end. `is_final`: the node's
    /// figures are final.
    pub fn take_summary(&mut self, name: &str, joules: f64, is_final: bool) {
        let Some(node) = self.nodes.get_mut(name) else { return };
        if joules.is_finite() {
            raise(&mut node.totals.joules, joules);
        }
        if is_final {
            node.state = NodeState::Over;
            node.problem.clear();
        }
    }

    /// Returns the sums over all nodes; `own` makes the report of this node. They may be up to `SUMS_AGE` old.
    pub fn job(&mut self, own: impl FnOnce() -> NodeReport) -> Arc<Job> {
        if let Some((made, job)) = &self.sums
            && made.elapsed() < SUMS_AGE
        {
            return job.clone();
        }
        let job = Arc::new(self.sum(&own()));
        self.sums = Some((Instant::now(), job.clone()));
        job
    }

    /// Returns the current sums over all nodes. `own` is the report of this node.
    pub fn sum(&mut self, own: &NodeReport) -> Job {
        let now = Instant::now();
        let _ = self.here.take(own, &mut self.names, now);
        let mut job =
            Job { schema: SCHEMA.to_owned(), run: own.run.clone(), here: own.node.clone(), ..Job::default() };
        let mut functions = vec![0.0; self.names.all.len()];
        let mut kernels = functions.clone();
        for (name, node) in std::iter::once((&own.node, &self.here)).chain(&self.nodes) {
            let line = node.line(name);
            job.totals.add(&Totals { watts: line.watts, ..node.totals.clone() });
            job.losses.add(&node.losses);
            job.nodes.push(line);
            job.ranks.extend(node.ranks.iter().map(|(rank, joules)| RankLine {
                rank: rank.clone(),
                node: name.clone(),
                joules: *joules,
            }));
            node.functions.iter().for_each(|(number, joules)| functions[*number as usize] += joules);
            node.kernels.iter().for_each(|(number, joules)| kernels[*number as usize] += joules);
        }
        job.nodes.sort_by(|a, b| a.node.cmp(&b.node));
        job.ranks.sort_by(|a, b| (&a.node, a.rank.len(), &a.rank).cmp(&(&b.node, b.rank.len(), &b.rank)));
        job.functions = self.by_joules(functions);
        job.kernels = self.by_joules(kernels);
        job.name_hottest_and_idle();
        job
    }

    fn by_joules(&self, sums: Vec<f64>) -> Vec<NamedJoules> {
        let named = sums.into_iter().zip(&self.names.all).filter(|row| row.0 > 0.0);
        let mut rows: Vec<NamedJoules> =
            named.map(|(joules, name)| NamedJoules { name: name.to_string(), joules }).collect();
        largest_first(&mut rows, |row| row.joules);
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(node: &str, joules: f64) -> NodeReport {
        NodeReport {
            node: node.to_owned(),
            totals: Totals { joules, watts: Some(joules), idle_joules: joules / 2.0, ..Totals::default() },
            ranks: vec![("1".to_owned(), joules / 2.0)],
            functions: vec![("step".to_owned(), joules / 2.0)],
            rank_count: 1,
            ..NodeReport::default()
        }
    }

    #[test]
    fn sums_never_decrease_with_any_data_from_a_node() {
        let mut nodes = Nodes::default();
        let now = Instant::now();
        nodes.add("b");
        nodes.take("b", &report("b", 10.0), now).unwrap();
        let job = nodes.sum(&report("a", 1.0));
        assert_eq!((job.totals.joules, job.totals.watts), (11.0, Some(11.0)));
        assert_eq!(job.functions[0].joules, 5.5);
        assert_eq!(nodes.take("b", &report("b", 9.0), now), Err(Refused::WentBack));
        // A function that is no longer among the largest keeps its joules.
        let mut other = report("b", 30.0);
        other.functions = vec![("other_step".to_owned(), 9.0)];
        nodes.take("b", &other, now).unwrap();
        nodes.note_problem("b", "it does not answer", true);
        let job = nodes.sum(&report("a", 1.0));
        assert_eq!((job.totals.joules, job.totals.watts), (31.0, Some(1.0)));
        assert_eq!((job.nodes[1].state, job.nodes[1].joules), (NodeState::Gone, 30.0));
        let functions: Vec<(&str, f64)> =
            job.functions.iter().map(|row| (row.name.as_str(), row.joules)).collect();
        assert_eq!(functions, [("other_step", 9.0), ("step", 5.5)]);
        // Another collector, which has read the same records, continues.
        nodes.take("b", &report("b", 31.0), now).unwrap();
        nodes.take_summary("b", 40.0, true);
        let job = nodes.sum(&report("a", 1.0));
        assert_eq!((job.totals.joules, job.nodes[1].state), (41.0, NodeState::Over));
    }

    #[test]
    fn losses_of_nodes_are_added_and_never_go_back() {
        let mut nodes = Nodes::default();
        nodes.add("b");
        let with = |late_events, joules| {
            let mut report = report("b", joules);
            report.losses.records.late_events = late_events;
            report
        };
        nodes.take("b", &with(5, 1.0), Instant::now()).unwrap();
        nodes.take("b", &with(3, 2.0), Instant::now()).unwrap();
        assert_eq!(nodes.sum(&with(2, 1.0)).losses.records.late_events, 7);
    }

    #[test]
    fn a_node_that_reports_ever_new_names_does_not_fill_the_memory() {
        let mut nodes = Nodes::default();
        nodes.add("b");
        for round in 0..200 {
            let mut report = report("b", f64::from(round));
            let row = |at: u32| (format!("name {round} {at}"), 0.001);
            (report.functions, report.ranks) = ((0..500).map(row).collect(), (0..500).map(row).collect());
            nodes.take("b", &report, Instant::now()).unwrap();
        }
        let node = &nodes.nodes["b"];
        assert_eq!((node.functions.len(), node.ranks.len()), (NODE_ROWS_MAX, 4 * NODE_ROWS_MAX));
        assert_eq!(nodes.names.all.len(), NODE_ROWS_MAX);
    }

    #[test]
    fn a_page_has_the_hottest_and_the_coldest_of_very_many_nodes() {
        let mut nodes = Nodes::default();
        for number in 0..1000 {
            let name = format!("n{number:04}");
            nodes.add(&name);
            nodes.take(&name, &report(&name, f64::from(number)), Instant::now()).unwrap();
        }
        let job = nodes.sum(&report("a", 0.0));
        assert_eq!(job.hottest, ["n0999", "n0998", "n0997", "n0996", "n0995"]);
        let page = job.for_page();
        assert_eq!((page.nodes.len(), page.other_nodes.count), (128, 1001 - 128));
        let shown: f64 = page.nodes.iter().map(|node| node.joules).sum();
        assert!((shown + page.other_nodes.joules - job.totals.joules).abs() < 1e-6);
    }
}
