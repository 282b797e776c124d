//! What values are about: scopes of metric instances, nodes, and ranks.

use crate::*;
use otf2::{Comm, Group, GroupType, ParadigmType};

/// Returns a node with two packages, and a process with a thread that runs `work` for 4 s and a location for metrics.
fn with_packages() -> (Trace, [SystemTreeNodeRef; 2], LocationRef) {
    let mut trace = Trace::new();
    let node = trace.node("a");
    let packages = ["0", "1"].map(|name| trace.part("package", name, Some(node), &[]));
    let group = trace.group("MPI Rank 0", node);
    let thread = trace.location(LocationType::CpuThread, "main", group);
    let reader = trace.location(LocationType::Metric, "reader", group);
    trace.calls(thread, &[(0, "+work"), (40, "-work")]);
    (trace, packages, reader)
}

#[test]
fn instances_about_two_packages_are_two_devices() {
    // The readings are the same, or far apart, or differ by one update.
    for rises in [[(0.0, 50.0), (0.0, 50.0)], [(1e6, 50.0), (5.0, 80.0)], [(0.0, 50.0), (0.1, 50.0)]] {
        let (mut trace, packages, reader) = with_packages();
        let class = trace.class(&[("energy", "J")]);
        let [first, second] =
            packages.map(|package| trace.about(class, reader, MetricScope::SystemTreeNode, package.0.into()));
        trace.reads(reader, &[(first, &rises[..1]), (second, &rises[1..])]);
        let summary = trace.everywhere();
        assert_eq!(names(&summary), ["energy@package 0", "energy@package 1"]);
        let expected: f64 = rises.iter().map(|(_, watts)| 4.0 * watts).sum();
        assert_joules_are(&[total(&summary), of_region(&summary, "ranks", "work")], &[expected, expected]);
        assert_eq!(summary["run"]["complete"], true, "{}", notes(&summary));
    }
}

/// A class with two energies has an instance for each package; an instance of another class is about the node.
#[test]
fn members_of_a_class_are_each_a_device_of_their_part() {
    let (mut trace, packages, reader) = with_packages();
    let class = trace.class(&[("package energy", "J"), ("core energy", "J"), ("instructions", "#")]);
    let [first, second] =
        packages.map(|package| trace.about(class, reader, MetricScope::SystemTreeNode, package.0.into()));
    let memory = trace.class(&[("memory energy", "J")]);
    let memory = trace.about(memory, reader, MetricScope::SystemTreeNode, 0);
    trace.reads(
        reader,
        &[
            (first, &[(0.0, 50.0), (0.0, 30.0), (0.0, 1e9)]),
            (second, &[(7.0, 60.0), (0.0, 20.0), (0.0, 1e9)]),
            (memory, &[(0.0, 10.0)]),
        ],
    );
    let summary = trace.everywhere();
    let named = |name: &str| {
        list(&summary, "devices").iter().find(|of| of["name"] == name).expect("it exists").clone()
    };
    assert_eq!(named("package energy@package 1")["contains"], serde_json::json!(["core energy@package 1"]));
    assert_eq!(named("memory energy")["kind"], "memory");
    assert_joules_are(&[total(&summary)], &[4.0 * (50.0 + 60.0 + 10.0)]);
}

/// The metric of a node includes the same metric of its packages, unless the values disprove it.
#[test]
fn the_metric_of_a_node_contains_those_of_its_parts() {
    for (of_node, expected) in [(150.0, 150.0), (60.0, 50.0 + 60.0)] {
        let (mut trace, packages, reader) = with_packages();
        let class = trace.class(&[("energy", "J")]);
        let node = trace.about(class, reader, MetricScope::SystemTreeNode, 0);
        let [first, second] =
            packages.map(|package| trace.about(class, reader, MetricScope::SystemTreeNode, package.0.into()));
        let at = |watts: f64| [(0.0, watts)];
        trace.reads(reader, &[(node, &at(of_node)), (first, &at(50.0)), (second, &at(60.0))]);
        let summary = trace.everywhere();
        assert_joules_are(&[total(&summary)], &[4.0 * expected]);
        let is_whole = of_node > 110.0;
        assert_eq!(names(&summary).contains(&"energy"), is_whole);
        assert_eq!(summary["run"]["complete"], is_whole, "{}", notes(&summary));
    }
}

/// Rank 0 records what each rank has used, or only what rank 1 has used, in all ways in which a trace can express it.
#[test]
fn joules_belong_to_the_ranks_that_the_values_are_about() {
    for kind in [MetricScope::Location, MetricScope::LocationGroup, MetricScope::Group] {
        for (about, watts) in [(&[0, 1][..], [30.0, 50.0]), (&[1][..], [0.0, 50.0])] {
            let mut trace = Trace::new();
            let node = trace.node("a");
            let groups = ["MPI Rank 0", "MPI Rank 1"].map(|name| trace.group(name, node));
            let threads = groups.map(|group| trace.location(LocationType::CpuThread, "main", group));
            let reader = trace.location(LocationType::Metric, "reader", groups[0]);
            trace.calls(threads[0], &[(0, "+first"), (40, "-first")]);
            trace.calls(threads[1], &[(0, "+second"), (40, "-second")]);
            let class = trace.class(&[("energy", "J")]);
            let metrics: Vec<(MetricRef, [(f64, f64); 1])> = about
                .iter()
                .map(|rank: &usize| {
                    let number = match kind {
                        MetricScope::Location => threads[*rank].0,
                        MetricScope::LocationGroup => groups[*rank].0.into(),
                        _ => {
                            let (kind, members) = (GroupType::Locations, vec![threads[*rank].0]);
                            let group = Group { kind, members, ..Group::default() };
                            trace.definitions.groups.push(group).0.into()
                        }
                    };
                    (trace.about(class, reader, kind, number), [(0.0, watts[*rank])])
                })
                .collect();
            let metrics: Vec<(MetricRef, &[(f64, f64)])> =
                metrics.iter().map(|(metric, values)| (*metric, &values[..])).collect();
            trace.reads(reader, &metrics);
            let summary = trace.everywhere();
            let of = |region| of_region(&summary, "ranks", region);
            assert_joules_are(&[of("first"), of("second")], &watts.map(|watts| 4.0 * watts));
        }
    }
}

#[test]
fn what_shares_memory_is_a_node() {
    use SystemTreeDomain::SharedMemory;
    type Tree<'a> = &'a dyn Fn(&mut Trace, &str) -> SystemTreeNodeRef;
    let trees: [Tree; 4] = [
        &|trace, name| {
            let cluster = trace.part("machine", "cluster", None, &[]);
            trace.part("host", name, Some(cluster), &[SharedMemory])
        },
        // Here a NUMA domain of a machine with shared memory is called a node.
        &|trace, name| {
            let machine = trace.part("machine", name, None, &[SharedMemory]);
            trace.part("node", "numa 0", Some(machine), &[SystemTreeDomain::Numa])
        },
        &|trace, name| {
            let blade = trace.part("blade", name, None, &[SharedMemory]);
            trace.part("socket", "0", Some(blade), &[SystemTreeDomain::Socket])
        },
        &|trace, name| trace.part("machine", name, None, &[]),
    ];
    for tree in trees {
        let mut trace = Trace::new();
        let class = trace.class(&[("node power", "W")]);
        for (rank, name) in ["n1", "n2"].into_iter().enumerate() {
            let parent = tree(&mut trace, name);
            let group = trace.group(&format!("MPI Rank {rank}"), parent);
            let thread = trace.location(LocationType::CpuThread, "main", group);
            let reader = trace.location(LocationType::Metric, "reader", group);
            trace.calls(thread, &[(0, "+work"), (40, "-work")]);
            trace.reads(reader, &[(class.into(), &[(100.0, 0.0)])]);
        }
        let summary = trace.everywhere();
        assert_joules_are(&joules(&summary), &[400.0, 400.0]);
        assert_eq!(summary["run"]["nodes"], serde_json::json!(["n1", "n2"]));
    }
}

/// Each node is node 0 of its rack, or a part of the tree whose class may not show that it is a node.
#[test]
fn nodes_with_the_same_name_are_distinguished_and_parts_of_an_unknown_class_make_a_run_incomplete() {
    for (class, names, expected, complete) in [
        ("node", ["node 0", "node 0"], &[400.0, 400.0][..], true),
        ("compute-node", ["h1", "h2"], &[400.0, 400.0], true),
        ("Blade", ["b1", "b2"], &[400.0, 400.0], true),
        ("box", ["h1", "h2"], &[400.0], false),
    ] {
        let mut trace = Trace::new();
        let cluster = trace.part("cluster", "c", None, &[]);
        let counter = trace.class(&[("package energy", "J")]);
        for (rank, name) in names.into_iter().enumerate() {
            let rack = trace.part("rack", &format!("rack {rank}"), Some(cluster), &[]);
            let node = trace.part(class, name, Some(rack), &[]);
            let group = trace.group(&format!("MPI Rank {rank}"), node);
            let thread = trace.location(LocationType::CpuThread, "main", group);
            let reader = trace.location(LocationType::Metric, "reader", group);
            trace.calls(thread, &[(0, "+work"), (40, "-work")]);
            trace.reads(reader, &[(counter.into(), &[(0.0, 100.0)])]);
        }
        let summary = trace.everywhere();
        assert_joules_are(&joules(&summary), expected);
        assert_eq!(summary["run"]["complete"], complete, "{class}: {}", notes(&summary));
        assert_eq!(notes(&summary).contains("whether these are nodes"), !complete, "{}", notes(&summary));
        if class == "node" {
            assert_eq!(summary["run"]["nodes"], serde_json::json!(["c/rack 0/node 0", "c/rack 1/node 0"]));
        }
    }
}

#[test]
fn ranks_are_those_of_their_communicator() {
    // These are names of the groups, and the ranks that the communicator gives them; without a communicator, the names must
    // contain the ranks.
    for (names, world) in [
        (["process 4711", "process 4712"], Some([0, 1])),
        (["process 4711", "process 4712"], Some([1, 0])),
        (["SHMEM PE 0", "SHMEM PE 1"], None),
        (["rank 0", "rank 1"], None),
    ] {
        let mut trace = Trace::new();
        let node = trace.node("a");
        let class = trace.class(&[("energy", "J")]);
        let mut threads = Vec::new();
        for (at, name) in names.into_iter().enumerate() {
            let group = trace.group(name, node);
            let thread = trace.location(LocationType::CpuThread, "main", group);
            threads.push(thread.0);
            trace.calls(
                thread,
                if at == 0 { &[(0, "+first"), (40, "-first")] } else { &[(0, "+second"), (40, "-second")] },
            );
            if at == 0 {
                let reader = trace.location(LocationType::Metric, "reader", group);
                trace.reads(reader, &[(class.into(), &[(0.0, 100.0)])]);
            }
        }
        if let Some(members) = world {
            let mut group = |kind, members: Vec<u64>| {
                let paradigm = ParadigmType::Mpi;
                trace.definitions.groups.push(Group { kind, paradigm, members, ..Group::default() })
            };
            group(GroupType::CommLocations, threads);
            let group = group(GroupType::CommGroup, members.to_vec());
            let name = "MPI_COMM_WORLD".to_owned();
            trace.definitions.comms.push(Comm { name, group, parent: None, flags: 0 });
        }
        let config = trace.place.path("ampere.toml");
        std::fs::write(&config, "[[device]]\nname = \"node\"\nmetric = 'energy'\nranks = [0]\n")
            .expect("room");
        let summary = trace.attribute(&["--config", config.to_str().expect("text")]);
        let first = world.is_none_or(|members| members[0] == 0);
        let of = |region| of_region(&summary, "ranks", region);
        let expected = if first { [400.0, 0.0] } else { [0.0, 400.0] };
        assert_joules_are(&[of("first"), of("second")], &expected);
    }
}

/// Returns a trace of two nodes, `n1` and `n2`, with a rank on each that works for 4 s, and a location for metrics on each.
fn with_nodes() -> (Trace, SystemTreeNodeRef, [LocationRef; 2], [LocationRef; 2]) {
    let mut trace = Trace::new();
    let cluster = trace.part("machine", "cluster", None, &[]);
    let [one, other] = ["n1", "n2"].map(|name| {
        let node = trace.part("node", name, Some(cluster), &[]);
        let group = trace.group(&format!("MPI Rank {}", u8::from(name == "n2")), node);
        let thread = trace.location(LocationType::CpuThread, "main", group);
        trace.calls(thread, &[(0, &format!("+{name}")), (40, &format!("-{name}"))]);
        (thread, trace.location(LocationType::Metric, "reader", group))
    });
    (trace, cluster, [one.0, other.0], [one.1, other.1])
}

fn of_nodes(summary: &Value) -> [f64; 2] {
    ["n1", "n2"].map(|region| of_region(summary, "ranks", region))
}

#[test]
fn a_node_whose_ranks_have_no_counter_makes_a_run_incomplete() {
    let (mut trace, _, _, readers) = with_nodes();
    let class = trace.class(&[("node energy", "J")]);
    trace.reads(readers[0], &[(class.into(), &[(0.0, 100.0)])]);
    let summary = trace.everywhere();
    assert_joules_are(&of_nodes(&summary), &[400.0, 0.0]);
    assert_eq!(summary["run"]["complete"], false);
    let said = "no counter on n2: the joules of 1 rank are unknown";
    assert!(notes(&summary).contains(said), "{}", notes(&summary));
}

/// Only the first node has the energy, and it has the power, too.
#[test]
fn a_power_counts_on_nodes_without_the_energy_of_the_same_device() {
    for (energy, power) in [("node energy", "node power"), ("gpu 0 energy", "gpu 0 power")] {
        let (mut trace, _, _, readers) = with_nodes();
        let both = trace.class(&[(energy, "J"), (power, "W")]);
        let alone = trace.class(&[(power, "W")]);
        trace.reads(readers[0], &[(both.into(), &[(0.0, 100.0), (100.0, 0.0)])]);
        trace.reads(readers[1], &[(alone.into(), &[(50.0, 0.0)])]);
        let summary = trace.everywhere();
        assert_joules_are(&joules(&summary), &[400.0, 200.0]);
        assert_joules_are(&of_nodes(&summary), &[400.0, 200.0]);
        assert_eq!(summary["run"]["complete"], true, "{}", notes(&summary));
        assert!(!notes(&summary).contains("left out"), "{}", notes(&summary));
    }
}

/// The energy of the second node's GPU stands still. Its value is 0 or that of an earlier time.
#[test]
fn a_power_counts_where_the_energy_of_the_same_device_never_rises() {
    for stands_at in [0.0, 5000.0] {
        let (mut trace, _, _, readers) = with_nodes();
        let both = trace.class(&[("gpu 0 energy", "J"), ("gpu 0 power", "W")]);
        trace.reads(readers[0], &[(both.into(), &[(0.0, 100.0), (90.0, 0.0)])]);
        trace.reads(readers[1], &[(both.into(), &[(stands_at, 0.0), (50.0, 0.0)])]);
        let summary = trace.everywhere();
        assert_joules_are(&[total(&summary)], &[600.0]);
        assert_joules_are(&of_nodes(&summary), &[400.0, 200.0]);
        assert_eq!(summary["run"]["complete"], true, "{}", notes(&summary));
    }
}

/// The scope is the root of the tree, or a group of threads of both nodes.
#[test]
fn values_about_several_nodes_are_charged_to_none() {
    for is_tree in [true, false] {
        let (mut trace, cluster, threads, readers) = with_nodes();
        let class = trace.class(&[("rack energy", "J")]);
        let (scope, number) = match is_tree {
            true => (MetricScope::SystemTreeNode, cluster.0.into()),
            false => {
                let members = threads.iter().map(|thread| thread.0).collect();
                let group = Group { kind: GroupType::Locations, members, ..Group::default() };
                (MetricScope::Group, trace.definitions.groups.push(group).0.into())
            }
        };
        let metric = trace.about(class, readers[0], scope, number);
        trace.reads(readers[0], &[(metric, &[(0.0, 400.0)])]);
        for summary in trace.attribute_and_replay() {
            assert_joules_are(&[total(&summary)], &[1600.0]);
            assert_joules_are(&of_nodes(&summary), &[0.0, 0.0]);
            assert_eq!(summary["run"]["complete"], false);
            let said = "rack energy belongs to no single node of the system tree";
            assert!(notes(&summary).contains(said), "{}", notes(&summary));
        }
    }
}

/// Rank 0 records the power of both nodes, as MetricQ's plugin does.
#[test]
fn a_metric_whose_name_states_a_node_is_of_that_node() {
    let (mut trace, _, _, readers) = with_nodes();
    let class = trace.class(&[("lab.n1.power", "W"), ("lab.n2.power", "W")]);
    trace.reads(readers[0], &[(class.into(), &[(100.0, 0.0), (200.0, 0.0)])]);
    trace.reads(readers[1], &[]);
    let summary = trace.everywhere();
    assert_joules_are(&of_nodes(&summary), &[400.0, 800.0]);
    assert_eq!(summary["run"]["complete"], true, "{}", notes(&summary));
}
