//! The lanes below the power curve: what ran on each GPU and rank.

use super::Lane;
use super::ranks::label;
use super::rows::Names;
use ampere_figures::lanes::{Lane as OfSummary, NodeLanes};
use ampere_figures::summary::Summary;
use ampere_model::text::{printable, short};

/// A longer name of a GPU or a process is cut to this number of characters.
const LABEL_MAX: usize = 40;

/// Returns the lanes of all nodes.
pub(super) fn of(summary: &Summary, names: &mut Names) -> Vec<Lane> {
    let mut lanes = Vec::new();
    for NodeLanes { node, names: regions, lanes: of_node } in &summary.lanes {
        let mut numbers: Vec<Option<u32>> = vec![None; regions.len()];
        let mut number = |region: u32| {
            let region = region as usize;
            *numbers[region].get_or_insert_with(|| names.number(&regions[region]))
        };
        lanes.extend(of_node.iter().map(|lane| Lane {
            node: printable(node),
            label: label_of(lane),
            view: printable(&lane.view),
            begin: lane.begin,
            step: lane.step,
            name: lane.region.iter().map(|region| region.map(&mut number)).collect(),
            percent: lane.percent.clone(),
        }));
    }
    lanes
}

fn label_of(lane: &OfSummary) -> String {
    let [first, last] = [&lane.first, &lane.last].map(|name| label(name));
    let is_rank = first != lane.first;
    match (lane.first == lane.last, is_rank) {
        (true, true) => format!("rank {first}"),
        (true, false) => short(&lane.first, LABEL_MAX),
        (false, true) => format!("ranks {first}-{last}"),
        (false, false) => format!("{first} to {last}"),
    }
}
