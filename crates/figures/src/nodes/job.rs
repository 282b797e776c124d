//! The figures of all nodes of a run, as its first node's collector gathers them, or from a summary of several nodes.

use crate::losses::Losses;
use crate::summary::{Summary, least_trusted, topmost};
use crate::totals::Totals;
use ampere_model::digits::energy;
use ampere_model::order::largest_first;
use ampere_model::text::{printable, short};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The value of [`Job::schema`].
pub const SCHEMA: &str = "ampere-job/1";

/// A run on several nodes. Sums never decrease: they include the last figures of a node that no longer answers.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Job {
    /// Always [`SCHEMA`], so that readers can check it.
    pub schema: String,
    pub run: String,
    /// The node whose collector gathers the figures. The rest of a page is about this node; if empty, about all nodes.
    pub here: String,
    /// Sums over the nodes. The power is that of the nodes that are still running.
    pub totals: Totals,
    /// The losses of all nodes.
    #[serde(default)]
    pub losses: Losses,
    /// The nodes with the most power: at most five, the highest first.
    pub hottest: Vec<String>,
    /// Nodes that were recently idle, as far as is known: at most five, the idlest first.
    pub idle: Vec<String>,
    pub nodes: Vec<NodeLine>,
    /// The sum of the nodes without a line.
    pub other_nodes: Others,
    /// The ranks, sorted by node and then by number.
    pub ranks: Vec<RankLine>,
    /// Exclusive joules of the ranks view, in descending order.
    pub functions: Vec<NamedJoules>,
    /// Exclusive joules by GPU kernel, in descending order.
    pub kernels: Vec<NamedJoules>,
}

/// The stage that a node's figures have reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeState {
    /// The node has not reported anything yet.
    #[default]
    Waiting,
    /// The node's figures still change.
    Running,
    /// The figures are the node's final ones.
    Over,
    /// The node no longer answers, and the figures are its last ones.
    Gone,
}

impl NodeState {
    /// All states, in the order in which they are shown.
    pub const ALL: [NodeState; 4] =
        [NodeState::Waiting, NodeState::Running, NodeState::Over, NodeState::Gone];

    /// Returns the state as it is written in files.
    pub fn as_str(self) -> &'static str {
        match self {
            NodeState::Waiting => "waiting",
            NodeState::Running => "running",
            NodeState::Over => "over",
            NodeState::Gone => "gone",
        }
    }
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct NodeLine {
    pub node: String,
    pub state: NodeState,
    /// The reason if there are no new figures of the node; may be empty.
    pub problem: String,
    /// The quality of the node's joules; empty if they are not known.
    pub energy: String,
    /// The energy of the devices that are not contained in another.
    pub joules: f64,
    /// The present power, `None` if the node has ended; in a summary, the mean over the run.
    pub watts: Option<f64>,
    /// The node's joules that were charged to no frame.
    pub idle_joules: f64,
    /// The node's joules that cannot be attributed.
    pub lost_joules: f64,
    /// The part of the node's joules that was idle during the last seconds; in a summary, over the run.
    pub idle_ratio: Option<f64>,
    pub ranks: usize,
}

/// The exclusive joules of one rank.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct RankLine {
    /// The rank's number, or the name of its location group.
    pub rank: String,
    pub node: String,
    /// The sum of joules over its functions.
    pub joules: f64,
}

/// Joules of a function or kernel.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct NamedJoules {
    /// The name of the function or kernel.
    pub name: String,
    /// The exclusive joules on all nodes.
    pub joules: f64,
}

/// The sum of the rows that are left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Others {
    /// The number of rows that are left out.
    pub count: usize,
    pub joules: f64,
}

/// The maximum number of nodes with a line on a page: half of them have the most power, half the least.
const LINES_MAX: usize = 128;
/// The maximum number of functions that a page shows.
const FUNCTIONS_MAX: usize = 200;
/// The maximum number of nodes that are named as the hottest or as idle.
const NAMES_MAX: usize = 5;
/// A node is called idle if at least this fraction of its joules is idle.
const IDLE_RATIO: f64 = 0.9;

impl Job {
    pub fn of(summary: &Summary) -> Option<Job> {
        if summary.run.nodes.len() < 2 {
            return None;
        }
        let run = summary.run.id.clone();
        let nodes = lines_of(summary);
        let mut job =
            Job { schema: SCHEMA.to_owned(), run, nodes, losses: summary.quality, ..Job::default() };
        for node in &job.nodes {
            job.totals.joules += node.joules;
            job.totals.idle_joules += node.idle_joules;
            job.totals.lost_joules += node.lost_joules;
        }
        job.name_hottest_and_idle();
        Some(job)
    }

    /// Fills in `hottest` and `idle` from `nodes`.
    pub fn name_hottest_and_idle(&mut self) {
        let mut hottest: Vec<&NodeLine> =
            self.nodes.iter().filter(|node| watts_or_zero(node) > 0.0).collect();
        largest_first(&mut hottest, |node| watts_or_zero(node));
        let idle = |node: &NodeLine| node.idle_ratio.unwrap_or(0.0);
        let mut idlest: Vec<&NodeLine> = self.nodes.iter().filter(|node| idle(node) >= IDLE_RATIO).collect();
        largest_first(&mut idlest, |node| idle(node));
        let names =
            |nodes: Vec<&NodeLine>| nodes.into_iter().take(NAMES_MAX).map(|node| node.node.clone()).collect();
        (self.hottest, self.idle) = (names(hottest), names(idlest));
    }

    /// Returns at most three sentences with the most important facts.
    pub fn sentences(&self) -> Vec<String> {
        let share = |part: f64, whole: f64| format!("{:.1} %", 100.0 * part / whole);
        let whole = self.totals.joules;
        let mut all = Vec::new();
        let largest: Vec<String> = self
            .functions
            .iter()
            .take(3)
            .filter(|row| row.joules > 0.005 * whole)
            .map(|row| format!("{} ({})", short(&row.name, 56), share(row.joules, whole)))
            .collect();
        if !largest.is_empty() {
            all.push(format!(
                "{} on {} nodes: most in {}.",
                energy(whole),
                self.nodes.len(),
                largest.join(", ")
            ));
        }
        all.extend(self.hottest_and_idle());
        let gone = self.nodes.iter().filter(|node| node.state == NodeState::Gone).count();
        if gone > 0 {
            let nodes =
                if gone == 1 { "1 node is gone: its" } else { &format!("{gone} nodes are gone: their") };
            all.push(format!("{nodes} last figures stay in the sums."));
        }
        all
    }

    /// Returns a sentence about the nodes that are the hottest or idle.
    pub fn hottest_and_idle(&self) -> Option<String> {
        let line = |name: &String| self.nodes.iter().find(|node| node.node == *name);
        let hottest = self.hottest.iter().filter_map(line).take(3);
        let hottest: Vec<String> =
            hottest.map(|node| format!("{} ({:.0} W)", printable(&node.node), watts_or_zero(node))).collect();
        let idle: Vec<String> = self.idle.iter().take(3).map(|node| printable(node)).collect();
        match (hottest.as_slice(), idle.as_slice()) {
            ([], _) => None,
            (hottest, []) => Some(format!("Most power: {}.", hottest.join(", "))),
            (hottest, idle) => {
                Some(format!("Most power: {}; idle: {}.", hottest.join(", "), idle.join(", ")))
            }
        }
    }

    /// Returns the part of the job's figures that a page shows.
    pub fn for_page(&self) -> Job {
        let mut shown = Job { ranks: Vec::new(), ..self.clone() };
        shown.functions.truncate(FUNCTIONS_MAX);
        shown.kernels.truncate(FUNCTIONS_MAX);
        if shown.nodes.len() > LINES_MAX {
            largest_first(&mut shown.nodes, watts_or_zero);
            let left_out = shown.nodes.len() - LINES_MAX;
            let others = shown.nodes.drain(LINES_MAX / 2..LINES_MAX / 2 + left_out);
            shown.other_nodes = Others { count: left_out, joules: others.map(|node| node.joules).sum() };
            shown.nodes.sort_by(|a, b| a.node.cmp(&b.node));
        }
        shown
    }
}

fn watts_or_zero(node: &NodeLine) -> f64 {
    node.watts.unwrap_or(0.0)
}

/// Returns the lines of the nodes, sorted by name. A node without devices has a line, too.
fn lines_of(summary: &Summary) -> Vec<NodeLine> {
    let state = if summary.run.running { NodeState::Running } else { NodeState::Over };
    let mut lines: BTreeMap<&str, NodeLine> = BTreeMap::new();
    for node in &summary.run.nodes {
        let ranks = summary.run.node_ranks.get(node).copied().unwrap_or(0) as usize;
        lines.insert(node, NodeLine { node: printable(node), state, ranks, ..NodeLine::default() });
    }
    for device in topmost(summary) {
        let Some(line) = lines.get_mut(device.node.as_str()) else { continue };
        line.joules += device.total_joules;
        if let Some(watts) = device.mean_watts() {
            *line.watts.get_or_insert(0.0) += watts;
        }
        if let Some(view) = device.shown().find(|view| view.view == "ranks") {
            line.idle_joules += view.idle_joules;
            line.lost_joules += view.lost_joules;
        }
        line.energy = least_trusted([line.energy.as_str(), device.energy.as_str()].into_iter()).to_owned();
    }
    let with_ratio = |line: NodeLine| NodeLine {
        idle_ratio: (line.joules > 0.0).then(|| line.idle_joules / line.joules),
        ..line
    };
    lines.into_values().map(with_ratio).collect()
}
