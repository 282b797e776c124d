//! Tests of joins that are interrupted or overtaken by others.

use super::*;
use otf2::{
    EventHandler, Flow, Location, LocationGroup, LocationGroupType, LocationType, Region, RegionRef,
    SystemTreeNode,
};
use std::ops::ControlFlow;

const RANKS: u64 = 2;
const CALLS: u64 = 10;

/// Makes a node's archive. The archive of each node has a region of its own, with all calls.
fn node(directory: &Path, number: u64) -> NodeTrace {
    std::fs::create_dir_all(directory).unwrap();
    let mut d = Definitions::default();
    d.clock.realtime_timestamp = Some(1_700_000_000_000_000_000);
    d.clock.trace_length = CALLS;
    let parent = SystemTreeNode { name: "m".into(), class_name: "machine".into(), ..Default::default() };
    let parent = Some(d.system_tree_nodes.push(parent));
    let (name, class_name) = (format!("n{number}"), "node".to_owned());
    let node = d.system_tree_nodes.push(SystemTreeNode { name, class_name, parent, ..Default::default() });
    let regions = [format!("on {number}"), "main".to_owned()]
        .map(|name| d.regions.push(Region { name, ..Region::default() }));
    let ranks: Vec<LocationRef> = (number * RANKS..(number + 1) * RANKS).map(LocationRef).collect();
    d.add_mpi_world(&ranks);
    let archive = ArchiveWriter::create(directory).unwrap();
    for rank in ranks {
        let (name, kind) = (format!("MPI Rank {rank}"), LocationGroupType::Process);
        let group = LocationGroup { name, kind, system_tree_parent: Some(node), ..Default::default() };
        let group = Some(d.location_groups.push(group));
        let kind = LocationType::CpuThread;
        d.locations.insert(rank, Location { name: "main".into(), kind, group, ..Location::default() });
        let mut events = archive.event_writer(rank).unwrap();
        for time in 0..CALLS {
            events.enter(time, regions[0]).unwrap();
            events.leave(time, regions[0]).unwrap();
        }
        events.close().unwrap();
    }
    archive.finish(&d).unwrap();
    NodeTrace { directory: directory.to_owned(), clock: Vec::new() }
}

fn nodes(place: &Path, count: u64) -> (NodeTrace, Vec<NodeTrace>) {
    let others = (1..count).map(|number| node(&place.join(format!("n{number}")), number));
    (node(place, 0), others.collect())
}

/// Counts the enter events whose region is the one of their location's node.
struct Check {
    names: Vec<String>,
    right: u64,
}

impl EventHandler for Check {
    fn enter(&mut self, location: LocationRef, _: u64, region: RegionRef, _: Option<u64>) -> Flow {
        let expected = format!("on {}", location.0 / RANKS);
        self.right += u64::from(self.names.get(region.0 as usize) == Some(&expected));
        ControlFlow::Continue(())
    }
}

fn assert_whole(place: &Path, count: u64) {
    let mut trace = Trace::open(&place.join(ANCHOR)).unwrap();
    let names = trace.definitions().regions.values().map(|region| region.name.clone()).collect();
    let mut check = Check { names, right: 0 };
    let report = trace.read_events(&mut check).unwrap();
    assert!(report.truncated.is_empty() && trace.missing().is_empty(), "{report:?}");
    assert_eq!(check.right, count * RANKS * CALLS);
    let mut left: Vec<String> = std::fs::read_dir(place)
        .unwrap()
        .flatten()
        .map(|entry| entry.file_name().into_string().unwrap())
        .filter(|name| !entry_is_node(name))
        .collect();
    left.sort();
    assert_eq!(left, [LOCATIONS, DEFINITIONS, ANCHOR]);
    for number in 1..count {
        assert_eq!(std::fs::read_dir(place.join(format!("n{number}"))).unwrap().count(), 0);
    }
}

fn entry_is_node(name: &str) -> bool {
    name.strip_prefix('n').is_some_and(|number| number.parse::<u64>().is_ok())
}

fn begun(first: &NodeTrace, others: &[NodeTrace]) -> PathBuf {
    let begun = first.directory.join(BEGUN);
    write(first, others, &begun).unwrap();
    begun
}

#[test]
fn nodes_are_added_in_any_number_of_steps() {
    let place = tempfile::tempdir().unwrap();
    let (first, others) = nodes(place.path(), 5);
    join(&first, &others[2..3]).unwrap();
    join(&first, &others[..2]).unwrap();
    join(&first, &others[3..]).unwrap();
    assert_whole(place.path(), 5);
}

#[test]
fn a_join_that_was_cut_off_is_carried_out_by_the_next_one() {
    for cut_after in 0..4 {
        let place = tempfile::tempdir().unwrap();
        let (first, others) = nodes(place.path(), 3);
        let begun = begun(&first, &others);
        let plan: Plan = serde_json::from_slice(&std::fs::read(begun.join(PLAN)).unwrap()).unwrap();
        let moved = match cut_after {
            0 => 0,
            1 => 1,
            _ => plan.nodes.len(),
        };
        for moves in &plan.nodes[..moved] {
            move_locations(place.path(), &begun, moves).unwrap();
        }
        if cut_after == 3 {
            rename(&begun.join(DEFINITIONS), &place.path().join(DEFINITIONS)).unwrap();
        }
        carry_out(place.path()).unwrap();
        assert_whole(place.path(), 3);
        carry_out(place.path()).unwrap();
    }
}

#[test]
fn a_join_that_was_made_from_another_archive_is_dropped() {
    let place = tempfile::tempdir().unwrap();
    let (first, others) = nodes(place.path(), 3);
    // Simulates two processes, one of which is overtaken before it has moved anything.
    let late = place.path().join("late");
    write(&first, &others[..1], &late).unwrap();
    join(&first, &others[1..]).unwrap();
    std::fs::rename(late, place.path().join(BEGUN)).unwrap();
    carry_out(place.path()).unwrap();
    assert!(others[0].directory.join(ANCHOR).exists() && !place.path().join(BEGUN).exists());
    join(&first, &others[..1]).unwrap();
    assert_whole(place.path(), 3);
}

#[test]
fn programs_with_ranks_of_the_same_numbers_stay_apart() {
    let place = tempfile::tempdir().unwrap();
    let first = node(place.path(), 0);
    let other = node(&place.path().join("other"), 0);
    join(&first, &[other]).unwrap();
    let trace = Trace::open(&place.path().join(ANCHOR)).unwrap();
    let d = trace.definitions();
    assert_eq!(d.locations.iter().map(|(location, _)| location.0).collect::<Vec<_>>(), [0, 1, 2, 3]);
    assert_eq!((d.comms.len(), d.system_tree_nodes.len()), (2, 3));
    let members: Vec<_> = d.groups.values().map(|group| group.members.clone()).collect();
    assert_eq!(members, [vec![0, 1, 2, 3], vec![0, 1], vec![2, 3]]);
}

#[test]
fn a_plan_moves_nothing_from_elsewhere() {
    let place = tempfile::tempdir().unwrap();
    let (first, elsewhere) = (place.path().join("first"), place.path().join("elsewhere"));
    let (first, other) = (node(&first, 0), node(&elsewhere, 1));
    let begun = begun(&first, &[other]);
    let plan =
        std::fs::read_to_string(begun.join(PLAN)).unwrap().replace("\"elsewhere\"", "\"../elsewhere\"");
    std::fs::write(begun.join(PLAN), plan).unwrap();
    carry_out(&first.directory).unwrap();
    assert!(elsewhere.join(ANCHOR).exists() && elsewhere.join("traces/2.evt").exists());
    std::fs::create_dir(&begun).unwrap();
    std::fs::write(begun.join(PLAN), "{").unwrap();
    assert!(carry_out(&first.directory).unwrap_err().to_string().starts_with("cannot read "));
}

#[test]
fn archives_that_cannot_be_read_stay_apart() {
    let place = tempfile::tempdir().unwrap();
    let (first, others) = nodes(place.path(), 2);
    let anchor = others[0].directory.join(ANCHOR);
    std::fs::write(&anchor, "nothing of the kind").unwrap();
    assert!(join(&first, &others).unwrap_err().to_string().contains(&*anchor.to_string_lossy()));
    let left = std::fs::read_dir(place.path()).unwrap().count();
    assert_eq!(left, 4, "three of the archive, and the other node's directory");
    assert!(Trace::open(&place.path().join(ANCHOR)).unwrap().missing().is_empty());
}

/// Each node has a process without a rank, which has the number after the last rank.
#[test]
fn only_a_process_without_a_rank_gets_another_number_within_a_world() {
    let node = |ranks: [u64; 2]| {
        let mut definitions = Definitions::default();
        definitions.add_mpi_world(&ranks.map(LocationRef));
        for number in [ranks[0], ranks[1], 4, (7 << 32) | 4] {
            definitions.locations.insert(LocationRef(number), Location::default());
        }
        definitions
    };
    let taken = processes_of(&node([2, 3]));
    let (new, is_one_world) = new_numbers(&node([0, 1]), &taken);
    assert_eq!((is_one_world, &new), (true, &HashMap::from([(4, 5)])));
    assert_eq!(renumbered(LocationRef((7 << 32) | 4), &new), LocationRef((7 << 32) | 5));
    // The ranks of another program have the same numbers.
    let (new, is_one_world) = new_numbers(&node([2, 3]), &taken);
    assert_eq!((is_one_world, new), (false, HashMap::from([(2, 5), (3, 6), (4, 7)])));
}
