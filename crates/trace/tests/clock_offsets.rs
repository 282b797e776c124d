//! `attribute` reads a trace in which one location's time goes back, by its own clock offsets.

use ampere_settings::Config;
use ampere_trace::share_figures::Attributed;
use otf2::*;
use std::path::Path;

fn ranks(definitions: &mut Definitions) -> Vec<LocationRef> {
    let node = SystemTreeNode { name: "n".into(), class_name: "node".into(), ..Default::default() };
    let node = definitions.system_tree_nodes.push(node);
    (0..3)
        .map(|number| {
            let group = definitions.location_groups.push(LocationGroup {
                name: format!("MPI Rank {number}"),
                kind: LocationGroupType::Process,
                system_tree_parent: Some(node),
                ..Default::default()
            });
            let location = Location {
                name: "Master thread".into(),
                kind: LocationType::CpuThread,
                group: Some(group),
                ..Default::default()
            };
            definitions.locations.insert(LocationRef(number), location);
            LocationRef(number)
        })
        .collect()
}

/// The writer puts no offsets into an archive with events, so they are written to a second archive and its file is moved here.
fn put_offsets(
    place: &Path,
    definitions: &Definitions,
    (location, events): (LocationRef, u64),
    offsets: LocalDefinitions,
) {
    let other = place.join("other");
    std::fs::create_dir(&other).unwrap();
    let archive = ArchiveWriter::create(&other).unwrap();
    archive.define(location, events, offsets).unwrap();
    archive.finish(definitions).unwrap();
    let file = format!("traces/{location}.def");
    std::fs::rename(other.join(&file), place.join(&file)).unwrap();
}

fn attribute(place: &Path) -> Attributed {
    let trace = place.join("traces.otf2");
    ampere_trace::offline::attribute(&trace, &Config::default(), None, &mut |_, _| {}).unwrap()
}

#[test]
fn a_time_that_offsets_move_before_the_start_is_the_start() {
    let mut definitions = Definitions::default();
    definitions.clock = ClockProperties { timer_resolution: 1000, ..definitions.clock };
    let ranks = ranks(&mut definitions);
    let energy = definitions.metric_members.push(MetricMember {
        name: "node energy".into(),
        unit: "J".into(),
        value_type: MetricValueType::U64,
        ..Default::default()
    });
    let energy = definitions.add_metric_class(MetricClass { members: vec![energy], ..Default::default() });
    let program = definitions.regions.push(Region { name: "a.out".into(), ..Region::default() });
    let place = tempfile::tempdir().unwrap();
    let archive = ArchiveWriter::create(place.path()).unwrap();
    for rank in &ranks {
        let mut events = archive.event_writer(*rank).unwrap();
        events.enter(0, program).unwrap();
        if rank.0 == 0 {
            (0..11).for_each(|second| events.metric_u64(1000 * second, energy, 100 * second).unwrap());
        }
        events.leave(10_003, program).unwrap();
        events.close().unwrap();
    }
    archive.finish(&definitions).unwrap();
    let offsets = LocalDefinitions { clock_offsets: vec![(0, -3), (20_000, -3)], ..Default::default() };
    put_offsets(place.path(), &definitions, (ranks[2], 2), offsets);
    let attributed = attribute(place.path());
    let view = &attributed.summary.devices[0].views[0];
    assert!((view.attributed_joules - 1000.0).abs() < 1e-9, "{view:?}");
    assert_eq!(attributed.summary.run.missing, [""; 0]);
}

#[test]
fn no_joule_is_charged_twice_if_time_decreases() {
    let mut definitions = Definitions::default();
    definitions.clock = ClockProperties { timer_resolution: 1000, ..definitions.clock };
    let ranks = ranks(&mut definitions);
    let energy = definitions.metric_members.push(MetricMember {
        name: "rocm_smi:::energy_count:device=0".into(),
        unit: "J".into(),
        value_type: MetricValueType::U64,
        ..Default::default()
    });
    let energy = definitions.add_metric_class(MetricClass { members: vec![energy], ..Default::default() });
    let region = |name: &str| Region { name: name.into(), canonical_name: name.into(), ..Region::default() };
    let [program, solve] = ["a.out", "solve"].map(|name| definitions.regions.push(region(name)));
    let place = tempfile::tempdir().unwrap();
    let archive = ArchiveWriter::create(place.path()).unwrap();
    let write = |rank: usize, enters: &[(u64, RegionRef)], leaves: &[(u64, RegionRef)]| {
        let mut events = archive.event_writer(ranks[rank]).unwrap();
        enters.iter().for_each(|(time, region)| events.enter(*time, *region).unwrap());
        if rank == 0 {
            (0..10).for_each(|second| events.metric_u64(10 * second + 5, energy, second).unwrap());
        }
        leaves.iter().for_each(|(time, region)| events.leave(*time, *region).unwrap());
        events.close().unwrap();
    };
    write(0, &[(0, program)], &[(100, program)]);
    write(1, &[(8, program)], &[(99, program)]);
    // By the offsets of the location, these events are at 0, 80, 6, 7, 85 and 97.
    let leaves = [(1007, solve), (1085, solve), (1097, program)];
    write(2, &[(0, program), (80, solve), (1006, solve)], &leaves);
    let offsets = LocalDefinitions {
        clock_offsets: vec![(0, 0), (500, 0), (501, -1000), (2000, -1000)],
        ..Default::default()
    };
    archive.finish(&definitions).unwrap();
    put_offsets(place.path(), &definitions, (ranks[2], 6), offsets);
    let attributed = attribute(place.path());
    let view = &attributed.summary.devices[0].views[0];
    assert!((view.attributed_joules - 9.0).abs() < 1e-9, "{view:?}");
    assert!(attributed.summary.quality.conservation_error_joules < 1e-9);
    assert_eq!(attributed.summary.quality.records.repaired_events, 2);
}
