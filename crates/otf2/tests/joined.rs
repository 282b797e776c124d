//! Joins two archives without writing an event file again.

mod common;

use common::{Event, read};
use otf2::*;
use std::fs;
use std::path::Path;
use std::process::Command;

fn region(name: &str) -> Region {
    Region { name: name.to_owned(), canonical_name: name.to_owned(), ..Region::default() }
}

/// Writes an archive of one rank of a world, with a metric and a program's name. Its regions are numbered in this order.
fn write(directory: &Path, node: &str, rank: u64, regions: [&str; 3], times: std::ops::Range<u64>) {
    let mut d = Definitions::default();
    d.clock = ClockProperties { global_offset: times.start, trace_length: 100, ..d.clock };
    let machine = SystemTreeNode { name: "m".into(), class_name: "machine".into(), ..Default::default() };
    let machine = d.system_tree_nodes.push(machine);
    let node = d.system_tree_nodes.push(SystemTreeNode {
        name: node.to_owned(),
        class_name: "node".into(),
        parent: Some(machine),
        ..Default::default()
    });
    let group = d.location_groups.push(LocationGroup {
        name: format!("MPI Rank {rank}"),
        kind: LocationGroupType::Process,
        system_tree_parent: Some(node),
        ..Default::default()
    });
    let location = LocationRef(rank);
    let kind = LocationType::CpuThread;
    d.locations
        .insert(location, Location { name: "main".into(), kind, group: Some(group), ..Default::default() });
    for name in regions {
        d.regions.push(region(name));
    }
    d.add_mpi_world(&[location]);
    let own = format!("metric {}", regions[0]);
    let members = [own.as_str(), "energy"].map(|name| {
        let member = MetricMember { name: name.into(), unit: "J".into(), ..Default::default() };
        d.metric_members.push(member)
    });
    let classes =
        members.map(|member| d.add_metric_class(MetricClass { members: vec![member], ..Default::default() }));
    d.attributes.push(Attribute { name: format!("attribute {}", regions[0]), description: String::new() });
    let counted = d.attributes.push(Attribute { name: "calls".into(), description: String::new() });
    let name = d.add_string(regions[2]);
    let argument = d.add_string("argument");
    let archive = ArchiveWriter::create(directory).unwrap();
    let mut events = archive.event_writer(location).unwrap();
    events.program_begin(times.start, name, &[argument]).unwrap();
    for (time, number) in times.clone().zip(0..) {
        events.enter_with(time, RegionRef(number % 3), counted, 7).unwrap();
        events.metric_u64(time, classes[1], time).unwrap();
        events.leave(time, RegionRef(number % 3)).unwrap();
    }
    events.close().unwrap();
    archive.finish(&d).unwrap();
}

/// Joins the second archive into the first. `clock_offsets` are times of the second one's clock, each with the offset to the
/// first one's.
fn join(first: &Path, second: &Path, clock_offsets: Vec<(u64, i64)>) {
    let open = |directory: &Path| Trace::open_with_strings(&directory.join("traces.otf2")).unwrap();
    let other = open(second).definitions().clone();
    let mut joined = JoinedDefinitions::new(open(first).definitions().clone());
    let added = joined.add(&other, |location| location, true);
    let making = first.join("making");
    fs::create_dir(&making).unwrap();
    let archive = ArchiveWriter::create(&making).unwrap();
    for (old, new) in &added.locations {
        let local = LocalDefinitions { clock_offsets: clock_offsets.clone(), ..added.local.clone() };
        archive.define(*new, other.locations.get(*old).unwrap().events, local).unwrap();
    }
    archive.finish(joined.whole()).unwrap();
    for (old, new) in &added.locations {
        let event_file = |directory: &Path, location| directory.join(format!("traces/{location}.evt"));
        fs::rename(event_file(second, old), event_file(first, new)).unwrap();
        let own = format!("traces/{new}.def");
        fs::rename(making.join(&own), first.join(&own)).unwrap();
    }
    for file in ["traces.def", "traces.otf2"] {
        fs::rename(making.join(file), first.join(file)).unwrap();
    }
    fs::remove_dir_all(making).unwrap();
}

/// Prints the location, the time and the names of each event.
const PYTHON: &str = r#"
import sys, otf2
with otf2.reader.open(sys.argv[1]) as trace:
    for location, event in trace.events:
        kind = type(event).__name__
        if kind in ("Enter", "Leave"):
            what = event.region.name
            if kind == "Enter":
                what += " " + " ".join(f"{a.name}={v}" for a, v in event.attributes.items())
        elif kind == "Metric":
            what = event.metric.members[0].name
        else:
            what = event.program_name + " " + " ".join(event.program_arguments)
        print(location._ref, location.group.name, location.group.system_tree_parent.name, event.time, kind, what)
    for comm in trace.definitions.comms:
        print(comm.name, [location._ref for location in comm.group.members])
"#;

fn printed(first: &Path) -> Option<String> {
    let anchor = first.join("traces.otf2");
    let done = Command::new("/usr/bin/python3").args(["-c", PYTHON]).arg(anchor).output().unwrap();
    let (text, errors) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    if errors.contains("No module named 'otf2'") {
        eprintln!("skipped: no python3-otf2");
        return None;
    }
    assert!(done.status.success() && errors.is_empty(), "{errors}");
    Some(text.into_owned())
}

/// Rank 5 has another order of regions, and a clock that runs from 1000 to 1100 while that of rank 2 runs from 0 to 50.
#[test]
fn numbers_and_times_are_mapped_to_those_of_the_joined_archive() {
    let places = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let [first, second] = places.each_ref().map(|place| place.path());
    write(first, "n1", 2, ["main", "a", "b"], 0..50);
    write(second, "n2", 5, ["c", "b", "main"], 1000..1101);
    join(first, second, vec![(1000, -1000), (1100, -1050)]);

    let (trace, events, report) = read(first);
    assert!(report.truncated.is_empty() && trace.missing().is_empty(), "{report:?}");
    events.assert_ordered();
    let d = trace.definitions();
    assert_eq!(d.events(), 1 + 3 * 50 + 1 + 3 * 101);
    let names: Vec<&str> = d.regions.values().map(|region| region.name.as_str()).collect();
    assert_eq!(names, ["main", "a", "b", "c"], "each once");
    let members: Vec<&str> = d.metric_members.values().map(|member| member.name.as_str()).collect();
    assert_eq!(members, ["metric main", "energy", "metric c"]);
    assert_eq!(d.system_tree_nodes.len(), 3, "one machine");
    let name_of = |region: RegionRef| d.regions.get(region).unwrap().name.as_str();
    let own = events.of(LocationRef(5));
    for (number, at) in own.chunks(3).enumerate() {
        let (time, name) = (number as u64 / 2, ["c", "b", "main"][number % 3]);
        let [(enter, Event::Enter(entered)), (_, Event::Metric(metric, values)), (leave, Event::Leave(left))] =
            at
        else {
            panic!("{at:?}")
        };
        assert!(enter.abs_diff(time) <= 1 && leave == enter, "{number}: {enter}");
        assert_eq!((name_of(*entered), name_of(*left)), (name, name));
        let member = d.metric_classes.get(metric.class).unwrap().members[0];
        assert_eq!(d.metric_members.get(member).unwrap().name, "energy");
        assert_eq!(values, &[MetricValue::U64(1000 + number as u64)]);
    }
    assert_eq!(own.len(), 3 * 101);

    let Some(printed) = printed(first) else { return };
    for line in [
        "2 MPI Rank 2 n1 0 ProgramBegin b argument",
        "5 MPI Rank 5 n2 0 ProgramBegin main argument",
        "5 MPI Rank 5 n2 0 Enter c calls=7",
        "5 MPI Rank 5 n2 50 Leave b",
        "5 MPI Rank 5 n2 50 Metric energy",
        "2 MPI Rank 2 n1 49 Leave a",
        "MPI_COMM_WORLD [2, 5]",
    ] {
        assert!(printed.lines().any(|printed| printed == line), "{line}: {printed}");
    }
    let times = printed.lines().filter_map(|line| line.split(' ').nth(5)?.parse::<u64>().ok());
    assert!(times.is_sorted());
    let events = printed.lines().filter(|line| line.contains("MPI Rank")).count() as u64;
    assert_eq!(events, d.events());
}

/// Two ranks of a world of four in each archive; the second rank of the first archive and the first of the second share a group.
#[test]
fn members_of_a_group_may_be_in_several_archives() {
    let of = |own: [u64; 2], members: [u64; 4], pair: [u64; 2]| {
        let mut d = Definitions::default();
        for rank in own {
            d.locations.insert(LocationRef(rank), Location::default());
        }
        d.add_mpi_world_of(&[own[0], own[1], own[0]].map(LocationRef), members.to_vec());
        let group = d.groups.push(Group {
            name: "pair".into(),
            kind: GroupType::CommGroup,
            paradigm: ParadigmType::Mpi,
            flags: 0,
            members: pair.to_vec(),
        });
        d.comms.push(Comm { name: "pair".into(), group, parent: None, flags: 0 });
        d
    };
    let members = |d: &Definitions| d.groups.values().map(|group| group.members.clone()).collect::<Vec<_>>();
    // The first archive has ranks 1 and 2, the second one 0 and 3. In the first archive, index 2 stands for the ranks that it
    // lacks.
    let mut joined = JoinedDefinitions::new(of([1, 2], [2, 0, 1, 2], [0, 2]));
    assert_eq!(members(joined.whole()), [vec![1, 2, 1], vec![2, 0, 1, 2], vec![0, 2]]);
    let added = joined.add(&of([0, 3], [0, 2, 2, 1], [2, 1]), |location| location, true);
    assert_eq!(members(joined.whole()), [vec![0, 1, 2, 3], vec![0, 1, 2, 3], vec![1, 3]]);
    assert_eq!((joined.whole().comms.len(), added.local.comms), (2, vec![0, 1]));

    // A group of another program, whose ranks have the same numbers.
    let moved = |location: LocationRef| LocationRef(location.0 + 10);
    let added = joined.add(&of([0, 3], [0, 2, 2, 1], [2, 1]), moved, false);
    let groups = members(joined.whole());
    assert_eq!(groups[0], [0, 1, 2, 3, 10, 13, 0], "the group still lacks some members");
    assert_eq!(groups[1..], [vec![0, 1, 2, 3], vec![1, 3], vec![4, 6, 6, 5], vec![6, 5]]);
    assert_eq!(added.local.comms, [2, 3]);
}

/// The tables of an archive that is added do not affect those of archives that were added before.
#[test]
fn a_third_archive_is_added_later() {
    let places = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let [first, second, third] = places.each_ref().map(|place| place.path());
    write(first, "n1", 4, ["main", "a", "b"], 0..50);
    write(second, "n2", 5, ["c", "b", "main"], 1000..1051);
    write(third, "n3", 3, ["d", "c", "a"], 500..551);
    join(first, second, vec![(1000, -1000), (1100, -1000)]);
    let before = read(first).1.of(LocationRef(5));
    join(first, third, vec![(500, -500), (600, -500)]);
    let (trace, events, _) = read(first);
    assert_eq!(events.of(LocationRef(5)), before);
    let names: Vec<&str> = trace.definitions().regions.values().map(|region| region.name.as_str()).collect();
    assert_eq!(names, ["main", "a", "b", "c", "d"]);
    assert_eq!(events.of(LocationRef(3))[0], (0, Event::Enter(RegionRef(4))));
    assert_eq!(events.of(LocationRef(3))[3], (1, Event::Enter(RegionRef(3))));
    let Some(printed) = printed(first) else { return };
    assert!(printed.contains("MPI_COMM_WORLD [3, 4, 5]"), "{printed}");
    let info = Command::new("otf2-print").arg("-I").arg(first.join("traces.otf2")).output().unwrap();
    let info = String::from_utf8_lossy(&info.stdout).into_owned();
    assert!(info.lines().any(|line| line.contains("locations") && line.ends_with(" 3")), "{info}");
}
