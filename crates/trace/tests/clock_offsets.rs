//! `attribute` reads a trace in which one location's time goes back, by its own clock offsets.

use ampere_settings::Config;
use otf2::*;

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
    // The writer puts no offsets into an archive with events, so they are written to a second archive and its file is moved here.
    let other = place.path().join("other");
    std::fs::create_dir(&other).unwrap();
    let archive = ArchiveWriter::create(&other).unwrap();
    archive.define(ranks[2], 6, offsets).unwrap();
    archive.finish(&definitions).unwrap();
    std::fs::rename(other.join("traces/2.def"), place.path().join("traces/2.def")).unwrap();

    let trace = place.path().join("traces.otf2");
    let attributed =
        ampere_trace::offline::attribute(&trace, &Config::default(), None, &mut |_, _| {}).unwrap();
    let view = &attributed.summary.devices[0].views[0];
    assert!((view.attributed_joules - 9.0).abs() < 1e-9, "{view:?}");
    assert!(attributed.summary.quality.conservation_error_joules < 1e-9);
    assert_eq!(attributed.summary.quality.records.repaired_events, 2);
}
