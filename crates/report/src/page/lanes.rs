//! The lanes below the power curve: what ran on each GPU and rank.

use super::Lane;
use super::ranks::label;
use super::rows::Names;
use crate::over_ranks::is_mpi_rank;
use ampere_figures::lanes::{Lane as OfSummary, NodeLanes};
use ampere_figures::summary::Summary;
use ampere_model::text::{printable, short};

/// The label of a lane of one GPU or process is cut to this number of characters.
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

/// Returns the label of a lane. A process without a rank keeps the word before its number: `process 12 python3`.
fn label_of(lane: &OfSummary) -> String {
    let [first, last] = [&lane.first, &lane.last].map(|name| label(name));
    let (one, many) =
        match (is_mpi_rank(&lane.first), lane.first.starts_with("Process ") && lane.first.ends_with(')')) {
            (true, _) => ("rank ", "ranks "),
            (false, true) => ("process ", "processes "),
            (false, false) => ("", ""),
        };
    match lane.first == lane.last {
        true => short(&format!("{one}{first}"), LABEL_MAX),
        false if many == "ranks " => format!("{many}{first}-{last}"),
        false => format!("{many}{first} to {last}"),
    }
}

#[test]
fn only_an_mpi_rank_is_called_a_rank() {
    let lane = |first: &str, last: &str| {
        label_of(&OfSummary { first: first.to_owned(), last: last.to_owned(), ..OfSummary::default() })
    };
    let [one, two] = ["Process 12 (python3)", "Process 13 (python3)"];
    assert_eq!(
        [lane(one, one), lane(one, two)],
        ["process 12 python3", "processes 12 python3 to 13 python3"]
    );
    assert_eq!([lane("MPI Rank 0", "MPI Rank 0"), lane("MPI Rank 0", "MPI Rank 3")], ["rank 0", "ranks 0-3"]);
    assert_eq!([lane("GPU-0", "GPU-0"), lane("GPU-0", "GPU-1")], ["GPU-0", "GPU-0 to GPU-1"]);
}
