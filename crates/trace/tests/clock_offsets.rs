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

/// Adds clock offsets to an archive. The writer puts none into an archive with events, so they are written to a second archive
/// and its file is moved here.
fn add_offsets(
    archive: &Path,
    definitions: &Definitions,
    (location, events): (LocationRef, u64),
    offsets: &[(u64, i64)],
) {
    let other = archive.join("other");
    std::fs::create_dir(&other).unwrap();
    let writer = ArchiveWriter::create(&other).unwrap();
    let clock_offsets = offsets.to_vec();
    writer.define(location, events, LocalDefinitions { clock_offsets, ..Default::default() }).unwrap();
    writer.finish(definitions).unwrap();
    let file = format!("traces/{}.def", location.0);
    std::fs::rename(other.join(&file), archive.join(&file)).unwrap();
}

fn attribute(archive: &Path) -> Attributed {
    let trace = archive.join("traces.otf2");
    ampere_trace::offline::attribute(&trace, &Config::default(), None, &mut |_, _| {}).unwrap()
}

/// One reading has a time after the end of the run.
#[test]
fn readings_that_come_after_one_of_a_later_time_make_a_run_incomplete() {
    for (name, unit) in [("node energy", "J"), ("node power", "W")] {
        let mut definitions = Definitions::default();
        definitions.clock = ClockProperties { timer_resolution: 100, ..definitions.clock };
        let ranks = ranks(&mut definitions);
        let member = definitions.metric_members.push(MetricMember {
            name: name.into(),
            unit: unit.into(),
            value_type: MetricValueType::U64,
            ..Default::default()
        });
        let class = definitions.add_metric_class(MetricClass { members: vec![member], ..Default::default() });
        let work = definitions.regions.push(Region { name: "work".into(), ..Region::default() });
        let place = tempfile::tempdir().unwrap();
        let archive = ArchiveWriter::create(place.path()).unwrap();
        let mut events = archive.event_writer(ranks[0]).unwrap();
        events.enter(0, work).unwrap();
        events.leave(400, work).unwrap();
        events.close().unwrap();
        let mut events = archive.event_writer(ranks[1]).unwrap();
        (0..=400).for_each(|at| events.metric_u64(at, class, at).unwrap());
        events.close().unwrap();
        archive.event_writer(ranks[2]).unwrap().close().unwrap();
        archive.finish(&definitions).unwrap();
        let offsets = [(0, 0), (199, 0), (200, 10_000), (201, 0), (400, 0)];
        add_offsets(place.path(), &definitions, (ranks[1], 401), &offsets);
        let run = attribute(place.path()).summary.run;
        let reason = "200 of 401 readings come after one with a later time";
        assert!(run.missing.iter().any(|of| of.contains(reason)), "{:?}", run.missing);
    }
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
    archive.finish(&definitions).unwrap();
    add_offsets(place.path(), &definitions, (ranks[2], 6), &[(0, 0), (500, 0), (501, -1000), (2000, -1000)]);
    let attributed = attribute(place.path());
    let view = &attributed.summary.devices[0].views[0];
    assert!((view.attributed_joules - 9.0).abs() < 1e-9, "{view:?}");
    assert!(attributed.summary.quality.conservation_error_joules < 1e-9);
    assert_eq!(attributed.summary.quality.records.repaired_events, 2);
}
