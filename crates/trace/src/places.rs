//! Finds the nodes of a trace's system tree, the ranks of its processes, and what a metric's values are about.

use crate::evidence::samples;
use ampere_model::counted::{Counted, Level};
use ampere_model::text::listed;
use otf2::{
    Definitions, GroupRef, GroupType, LocationGroupRef, LocationGroupType, LocationRef, LocationType,
    MetricInstance, MetricInstanceRef, MetricScope, Reference, SystemTreeDomain, SystemTreeNode,
    SystemTreeNodeRef,
};
use std::collections::{BTreeSet, HashMap, HashSet};

/// In ampere's own traces, the class of the system tree nodes whose only purpose is to distinguish counters with the same name.
pub(crate) const COUNTED_PART: &str = "counted part";
/// Classes of nodes in trees without the domain of shared memory, the most certain first.
const CLASSES: [&[&str]; 3] =
    [&["node"], &["host", "hostname", "computenode", "server", "computer", "blade"], &["machine"]];

pub(crate) fn node_of(definitions: &Definitions, location: LocationRef) -> String {
    node_of_group(definitions, definitions.locations.get(location).and_then(|l| l.group))
}

pub(crate) fn node_of_group(definitions: &Definitions, group: Option<LocationGroupRef>) -> String {
    node_of_tree(definitions, group.and_then(|group| place_of_group(definitions, group)))
}

/// Returns the place of a location group in the tree. An accelerator's context is on the node of its process.
fn place_of_group(definitions: &Definitions, group: LocationGroupRef) -> Option<SystemTreeNodeRef> {
    let place = |group| definitions.location_groups.get(group)?.system_tree_parent;
    let of_process = process_of_group(definitions, group).and_then(place);
    let is_on_node =
        |at: &SystemTreeNodeRef| node_place(definitions, &path_of(definitions, Some(*at))).is_some();
    of_process.filter(is_on_node).or_else(|| place(group))
}

/// Returns the name of the node that contains a place in the tree: the outermost part that shares memory, whatever its class is,
/// or else a part whose class is that of a node.
pub(crate) fn node_of_tree(definitions: &Definitions, at: Option<SystemTreeNodeRef>) -> String {
    let path = path_of(definitions, at);
    node_place(definitions, &path).map_or_else(String::new, |place| node_name(definitions, &path[place..]))
}

/// Returns the name of the node at the start of a path to the root, with its path if another node has the same name, and with a
/// number if another one has the same path.
fn node_name(definitions: &Definitions, path: &[&SystemTreeNode]) -> String {
    let names = |path: &[&SystemTreeNode]| -> Vec<String> {
        path.iter().rev().map(|part| part.name.clone()).collect()
    };
    let (own, own_names) = (path[0], names(path));
    let named = definitions.system_tree_nodes.iter().filter(|(_, node)| node.name == own.name);
    let all = named.map(|(at, _)| path_of(definitions, Some(at)));
    let (mut same, others): (Vec<_>, Vec<_>) = all
        .filter(|path| node_place(definitions, path) == Some(0))
        .partition(|path| names(path) == own_names);
    if same.len() > 1 {
        // The other nodes count only if they contain location groups.
        let groups = definitions.location_groups.iter();
        let used: HashSet<*const SystemTreeNode> = groups
            .flat_map(|(group, _)| path_of(definitions, place_of_group(definitions, group)))
            .map(std::ptr::from_ref)
            .collect();
        same.retain(|path| std::ptr::eq(path[0], own) || used.contains(&std::ptr::from_ref(path[0])));
    }
    let name = if others.is_empty() { own.name.clone() } else { own_names.join("/") };
    match same.iter().position(|path| std::ptr::eq(path[0], own)) {
        Some(before) if same.len() > 1 => format!("{name} ({})", before + 1),
        _ => name,
    }
}

/// Returns the reason if nodes have one name and one path: a writer may have defined one node several times.
pub(crate) fn doubt_of_equal_nodes(definitions: &Definitions) -> Option<String> {
    let nodes = nodes_of(definitions);
    let nodes: Vec<&str> = nodes.iter().filter_map(|node| node.strip_suffix(" (2)")).collect();
    (!nodes.is_empty()).then(|| {
        format!(
            "the system tree has several nodes with the name and path {}: if they are one, its joules are counted several times",
            nodes.join(", ")
        )
    })
}

/// Returns the reason if it is unknown which parts of the system tree are the nodes, because processes are in several parts whose
/// domains and classes do not state what they are.
pub(crate) fn doubt_of_nodes(definitions: &Definitions) -> Option<String> {
    const OF_ONE_NODE: [&str; 7] = ["numa", "die", "cache", "tile", "chip", "process", "thread"];
    let is_known = |part: &SystemTreeNode| {
        let class = part.class_name.to_lowercase();
        !part.domains.is_empty()
            || counted_at(part).level.is_some()
            || OF_ONE_NODE.iter().any(|word| class.contains(word))
    };
    let (mut places, mut classes) = (BTreeSet::new(), BTreeSet::new());
    for group in definitions.location_groups.values().filter(|g| g.kind == LocationGroupType::Process) {
        let path = path_of(definitions, group.system_tree_parent);
        let node = node_place(definitions, &path);
        if node.is_some_and(|at| shares_memory(path[at]) || !is_class(path[at], "machine")) {
            continue;
        }
        let below = &path[..node.unwrap_or(path.len())];
        if let Some(innermost) = below.iter().position(|part| !is_known(part)) {
            places.insert(below[innermost..].iter().map(|part| part.name.as_str()).collect::<Vec<_>>());
            classes.insert(below[innermost].class_name.as_str());
        }
    }
    let classes: Vec<&str> = classes.into_iter().collect();
    (places.len() > 1).then(|| {
        format!(
            "the system tree does not state whether these are nodes or parts of one, so its counters are treated as those of one node: {}",
            classes.join(", ")
        )
    })
}

/// Returns the reason if ranks ran on nodes without a counter. `counted` has the nodes of all devices.
pub(crate) fn doubt_of_uncounted(definitions: &Definitions, counted: &BTreeSet<String>) -> Option<String> {
    const NAMES_MAX: usize = 4;
    // A device outside of the nodes may count their energy.
    if counted.is_empty() || counted.contains("") {
        return None;
    }
    // The samples of a thread may have a group of their own.
    let is_recorded = |at| samples(definitions, at).flatten().is_none();
    let threads = definitions.locations.iter().filter(|(_, of)| of.kind == LocationType::CpuThread);
    let threads = threads.filter(|(at, _)| is_recorded(*at));
    let processes: BTreeSet<LocationGroupRef> = threads.filter_map(|(_, of)| of.group).collect();
    let nodes = processes.into_iter().map(|process| node_of_group(definitions, Some(process)));
    // The node of each process that runs on a node without a counter.
    let of_each: Vec<String> = nodes.filter(|node| !node.is_empty() && !counted.contains(node)).collect();
    (!of_each.is_empty()).then(|| {
        let (count, nodes) = (of_each.len(), of_each.into_iter().collect::<BTreeSet<String>>());
        let plural = if count == 1 { "" } else { "s" };
        let nodes = listed(nodes.iter(), NAMES_MAX);
        format!("no counter on {nodes}: the joules of {count} rank{plural} are unknown")
    })
}

fn is_class(node: &SystemTreeNode, class: &str) -> bool {
    let letters = node.class_name.chars().filter(|c| c.is_alphanumeric());
    letters.flat_map(char::to_lowercase).eq(class.chars())
}

/// Returns the path from a place in the tree to its root.
fn path_of(definitions: &Definitions, mut at: Option<SystemTreeNodeRef>) -> Vec<&SystemTreeNode> {
    let mut path = Vec::new();
    while let Some(node) = at.and_then(|at| definitions.system_tree_nodes.get(at)) {
        path.push(node);
        at = node.parent.filter(|_| path.len() < definitions.system_tree_nodes.len());
    }
    path
}

/// Returns the index of the node in a path to the root. Parts that contain the nodes of a trace are not nodes.
fn node_place(definitions: &Definitions, path: &[&SystemTreeNode]) -> Option<usize> {
    let is_one = |node: &SystemTreeNode, of: &[&str]| of.iter().any(|class| is_class(node, class));
    if let Some(place) = path.iter().rposition(|node| shares_memory(node)) {
        return Some(place);
    }
    let (surest, others) = CLASSES.split_first()?;
    if let Some(place) = path.iter().position(|node| is_one(node, surest)) {
        return Some(place);
    }
    let all = || definitions.system_tree_nodes.values();
    if all().any(|node| shares_memory(node) || is_one(node, surest)) {
        return None;
    }
    let class = others.iter().find(|of| all().any(|node| is_one(node, of)))?;
    path.iter().position(|node| is_one(node, class))
}

fn shares_memory(node: &SystemTreeNode) -> bool {
    node.domains.contains(&SystemTreeDomain::SharedMemory)
}

/// The ranks of a trace's processes.
#[derive(Default)]
pub(crate) struct Ranks {
    stated: HashMap<LocationGroupRef, u32>,
    /// The process, if the trace has only one.
    only: Option<LocationGroupRef>,
}

impl Ranks {
    /// Finds the ranks from the communicator of all processes, such as `MPI_COMM_WORLD`. A process that is not in it has the rank
    /// in its name; a single process without either has rank 0.
    pub fn of(definitions: &Definitions) -> Ranks {
        let groups = &definitions.location_groups;
        let processes: Vec<_> = groups.iter().filter(|(_, g)| g.kind == LocationGroupType::Process).collect();
        let mut stated = world(definitions).unwrap_or_default();
        for (reference, group) in groups.iter() {
            if let Some(rank) = rank_by_name(&group.name) {
                stated.entry(reference).or_insert(rank);
            }
        }
        let only = match processes.as_slice() {
            [(only, _)] => Some(*only),
            _ => None,
        };
        Ranks { stated, only }
    }

    pub fn get(&self, group: LocationGroupRef) -> Option<u32> {
        self.stated(group).or((self.only == Some(group)).then_some(0))
    }

    /// Returns the rank that the trace states.
    pub fn stated(&self, group: LocationGroupRef) -> Option<u32> {
        self.stated.get(&group).copied()
    }
}

/// Parses `MPI Rank 3`, `SHMEM PE 3` and `rank 3`.
fn rank_by_name(name: &str) -> Option<u32> {
    let (before, number) = name.rsplit_once([' ', '_', '-', '#', ':'])?;
    let word = before.rsplit(' ').next()?.to_ascii_lowercase();
    number.parse().ok().filter(|_| ["rank", "pe"].contains(&word.as_str()))
}

/// Returns the ranks in the communicator of all processes, or else in the first list of communicating locations. Returns `None`
/// if the trace has neither, or lacks members, like a trace of only some nodes.
fn world(definitions: &Definitions) -> Option<HashMap<LocationGroupRef, u32>> {
    let is_world = |name: &str| ["MPI_COMM_WORLD", "SHMEM_WORLD", "GASPI_GROUP_ALL"].contains(&name);
    let comm = definitions.comms.values().find(|comm| is_world(&comm.name));
    let ranks = match comm {
        Some(comm) => locations_of(definitions, comm.group)?,
        None => {
            definitions.groups.values().find(|group| group.kind == GroupType::CommLocations)?.members.clone()
        }
    };
    let mut all = HashMap::new();
    for (rank, location) in (0..).zip(ranks) {
        let group = definitions.locations.get(LocationRef::of_number(location)?)?.group?;
        if all.insert(group, rank).is_some() {
            return None;
        }
    }
    Some(all)
}

/// Returns one location for each rank of a communicator's group. Its members are indices into the list of all communicating
/// locations, even with OTF2's flag `GLOBAL_MEMBERS`, which is about the ranks in events. Some writers take the flag to mean that
/// the members themselves are locations, which shows if the list does not have them.
pub(crate) fn locations_of(definitions: &Definitions, group: GroupRef) -> Option<Vec<u64>> {
    const GLOBAL_MEMBERS: u32 = 1;
    let group = definitions.groups.get(group)?;
    if group.kind != GroupType::CommGroup {
        return Some(group.members.clone());
    }
    let mut all = definitions.groups.values().filter(|other| other.kind == GroupType::CommLocations);
    let own = all.clone().find(|other| other.paradigm == group.paradigm).or_else(|| all.next());
    let Some(own) = own else { return Some(group.members.clone()) };
    let location = |at: &u64| own.members.get(usize::try_from(*at).ok()?).copied();
    let of_list: Option<Vec<u64>> = group.members.iter().map(location).collect();
    let are_locations = group.flags & GLOBAL_MEMBERS != 0;
    of_list.or_else(|| are_locations.then(|| group.members.clone()))
}

/// Returns the process that a location belongs to. An accelerator's context belongs to the process that created it.
pub(crate) fn process_of(definitions: &Definitions, location: LocationRef) -> Option<LocationGroupRef> {
    process_of_group(definitions, definitions.locations.get(location)?.group?)
}

fn process_of_group(definitions: &Definitions, own: LocationGroupRef) -> Option<LocationGroupRef> {
    let group = definitions.location_groups.get(own)?;
    let creator = group.creating_location_group.filter(|_| group.kind != LocationGroupType::Process);
    Some(creator.unwrap_or(own))
}

/// Whether a process has locations of threads. A group that has only locations of metrics records for other processes.
pub(crate) fn has_threads(definitions: &Definitions, process: LocationGroupRef) -> bool {
    definitions.locations.values().any(|of| of.group == Some(process) && of.kind == LocationType::CpuThread)
}

/// Returns the part of the node that the scope of a metric instance names and that has a counter of its own: the GPU of a
/// context or stream or, for cores, a thread.
pub(crate) fn own_part(
    definitions: &Definitions,
    instance: Option<MetricInstanceRef>,
    is_core: bool,
) -> Option<String> {
    let instance = definitions.metric_instances.get(instance?)?;
    let number = instance.scope_number;
    let location = LocationRef::of_number(number).filter(|_| instance.scope == MetricScope::Location);
    let location = location.and_then(|location| definitions.locations.get(location));
    if is_core {
        let thread = location.filter(|location| location.kind == LocationType::CpuThread);
        return thread.map(|_| number.to_string());
    }
    let group = match instance.scope {
        MetricScope::LocationGroup => LocationGroupRef::of_number(number),
        _ => location?.group,
    };
    let group = definitions.location_groups.get(group?)?;
    let is_context = group.kind == LocationGroupType::Accelerator;
    let part = Place::of_tree(definitions, group.system_tree_parent.filter(|_| is_context)?).part;
    (!part.is_empty()).then_some(part)
}

/// The part of the system that a metric's values are about.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Place {
    pub node: String,
    /// The part of the node as a path, such as `package 1/core 3`; empty for the node itself or an unknown part.
    pub part: String,
    pub counted: Counted,
    /// The processes that the values are about, according to the trace.
    pub users: Vec<LocationGroupRef>,
    /// Whether any of these processes is not the one that records the values.
    pub are_others: bool,
    /// Whether the trace has several nodes and the values are about none of them, or about several.
    pub is_outside: bool,
}

impl Place {
    /// Finds what a location's samples of a metric are about, by the scope of the metric instance. Without an instance, the
    /// samples are about the node that the metric's name states, or else the one that the location is on.
    pub fn new(
        definitions: &Definitions,
        location: LocationRef,
        instance: Option<MetricInstanceRef>,
        metric: &str,
    ) -> Place {
        let instance = instance.and_then(|instance| definitions.metric_instances.get(instance));
        let mut place = match instance {
            Some(instance) => Place::of_scope(definitions, instance),
            None => Place::default(),
        };
        if place.node.is_empty()
            && let Some(node) = stated_node(definitions, metric)
        {
            return Place { node, ..Place::default() };
        }
        if instance.is_none()
            && let Some(sensor) = Place::of_sensor(definitions, location, metric)
        {
            return sensor;
        }
        if place.is_outside {
            return place;
        }
        if place.node.is_empty() {
            place.node = node_of(definitions, location);
        }
        if place.node.is_empty() {
            let nodes = nodes_of(definitions);
            place.is_outside = nodes.len() > 1;
            place.node = nodes.into_iter().next().filter(|_| !place.is_outside).unwrap_or_default();
        }
        let recorder = process_of(definitions, location);
        place.are_others = place.users.iter().any(|user| Some(*user) != recorder);
        place
    }

    /// Returns the part of the tree that contains a location's group, if the group only records and the metric's name does not
    /// state what is counted: `power draw` of a group in `GPU 0` is that of the GPU.
    fn of_sensor(definitions: &Definitions, location: LocationRef, metric: &str) -> Option<Place> {
        let reference = definitions.locations.get(location)?.group?;
        let group = definitions.location_groups.get(reference)?;
        if Counted::by_name(metric).level.is_some() {
            return None;
        }
        let place = Place::of_tree(definitions, group.system_tree_parent?);
        Some(place).filter(|place| place.counted.level.is_some() && !has_threads(definitions, reference))
    }

    fn of_scope(definitions: &Definitions, instance: &MetricInstance) -> Place {
        let number = instance.scope_number;
        let of_processes = |users: BTreeSet<LocationGroupRef>| {
            let nodes = users.iter().map(|user| node_of_group(definitions, Some(*user)));
            let place = Place::of_nodes(nodes.collect());
            let users = if place.is_outside { Vec::new() } else { users.into_iter().collect() };
            Place { users, ..place }
        };
        let process = |number: u64| process_of(definitions, LocationRef::of_number(number)?);
        match instance.scope {
            MetricScope::Location => of_processes(process(number).into_iter().collect()),
            MetricScope::LocationGroup => {
                let group = LocationGroupRef::of_number(number);
                of_processes(
                    group.and_then(|group| process_of_group(definitions, group)).into_iter().collect(),
                )
            }
            MetricScope::SystemTreeNode => SystemTreeNodeRef::of_number(number)
                .map_or_else(Place::default, |node| Place::of_tree(definitions, node)),
            MetricScope::Group => {
                let group = GroupRef::of_number(number).and_then(|group| definitions.groups.get(group));
                let members = group.filter(|group| group.kind == GroupType::Locations);
                let members = members.map_or(&[][..], |group| &group.members);
                of_processes(members.iter().filter_map(|member| process(*member)).collect())
            }
            MetricScope::Unrecognized(_) => Place::default(),
        }
    }

    fn of_nodes(nodes: BTreeSet<String>) -> Place {
        let mut nodes = nodes.into_iter().filter(|node| !node.is_empty());
        let (first, is_outside) = (nodes.next().unwrap_or_default(), nodes.next().is_some());
        Place { node: if is_outside { String::new() } else { first }, is_outside, ..Place::default() }
    }

    fn of_tree(definitions: &Definitions, at: SystemTreeNodeRef) -> Place {
        let path = path_of(definitions, Some(at));
        let Some(node) = node_place(definitions, &path) else {
            // The place is not on a node, but nodes may be in it.
            let is_inside = |of: &SystemTreeNode| path.first().is_some_and(|part| std::ptr::eq(of, *part));
            let groups = definitions.location_groups.iter();
            let inside = groups.filter(|(_, group)| {
                path_of(definitions, group.system_tree_parent).into_iter().any(is_inside)
            });
            return Place::of_nodes(
                inside.map(|(group, _)| node_of_group(definitions, Some(group))).collect(),
            );
        };
        // The hardware threads of a core have no counters of their own: what is recorded for each of them is the core's.
        let core = path[..node].iter().position(|part| is_core(part)).unwrap_or(0);
        let within = &path[core..node];
        let parts: Vec<String> = within.iter().rev().map(|part| label(part)).collect();
        let counted =
            within.iter().rev().fold(Counted::default(), |counted, part| counted.at(counted_at(part)));
        // A part of a GPU, such as a tile, need not be of a known class.
        let is_in_gpu = within.iter().skip(1).any(|part| counted_at(part).level.is_some_and(is_gpu));
        let own = within.first().and_then(|innermost| counted_at(innermost).level);
        let level = if is_in_gpu && !own.is_some_and(is_gpu) { Some(Level::GpuPart) } else { own };
        let counted = Counted { level, ..counted };
        Place {
            node: node_name(definitions, &path[node..]),
            part: parts.join("/"),
            counted,
            ..Place::default()
        }
    }
}

/// Returns the node whose name is a part of a metric's name, as in `taurus.taurusi4001.power`. The metric may lack the node's
/// domain.
pub(crate) fn stated_node(definitions: &Definitions, metric: &str) -> Option<String> {
    let has = |name: &str| metric.split(['.', '/', ':', ' ']).any(|part| part == name);
    let named = |name_of: fn(&str) -> &str| {
        let is_name = move |name: &str| name.contains(char::is_alphabetic) && has(name);
        let parts = definitions.system_tree_nodes.iter();
        parts.filter(move |(_, part)| is_name(name_of(&part.name))).filter_map(|(at, part)| {
            let path = path_of(definitions, Some(at));
            let is_node =
                node_place(definitions, &path) == Some(0) && node_name(definitions, &path) == part.name;
            is_node.then(|| part.name.clone())
        })
    };
    named(|name| name).next().or_else(|| {
        // A host without a number may have the name of a part, such as `gpu`.
        let has_digit = |name: &str| name.contains(|c: char| c.is_ascii_digit());
        let mut hosts = named(host_of).filter(|name| has_digit(host_of(name)));
        hosts.next().filter(|_| hosts.next().is_none())
    })
}

/// Returns the name of a node without its domain.
pub(crate) fn host_of(name: &str) -> &str {
    name.split_once('.').map_or(name, |(host, _)| host)
}

/// Returns a label such as `package 1`.
fn label(part: &SystemTreeNode) -> String {
    let (class, name) = (part.class_name.as_str(), part.name.as_str());
    let has_class = name.to_lowercase().contains(&class.to_lowercase());
    if class == COUNTED_PART || has_class { name.to_owned() } else { format!("{class} {name}") }
}

/// Returns what a part of the tree is, by its domain if it has one and else by its class.
fn counted_at(part: &SystemTreeNode) -> Counted {
    let has = |domain| part.domains.contains(&domain);
    let class = match () {
        () if has(SystemTreeDomain::Socket) => "package",
        () if has(SystemTreeDomain::Core) || has(SystemTreeDomain::Pu) => "core",
        () if has(SystemTreeDomain::AcceleratorDevice) => "gpu",
        () if part.class_name == COUNTED_PART => return Counted::default(),
        () => part.class_name.as_str(),
    };
    let number: String = part.name.chars().skip_while(|c| !c.is_ascii_digit()).collect();
    Counted::by_place(class, &number)
}

fn is_core(part: &SystemTreeNode) -> bool {
    part.domains.contains(&SystemTreeDomain::Core) || is_class(part, "core")
}

fn is_gpu(level: Level) -> bool {
    matches!(level, Level::Gpu | Level::GpuBoard)
}

/// Returns the nodes that have processes or counters.
pub(crate) fn nodes_of(definitions: &Definitions) -> BTreeSet<String> {
    let groups = definitions.location_groups.iter();
    let nodes = groups.map(|(group, _)| node_of_group(definitions, Some(group)));
    nodes.filter(|node| !node.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use otf2::{Comm, Group, Location, LocationGroup, MetricClassRef, ParadigmType};

    fn tree(nodes: &[(&str, &str, &[SystemTreeDomain])]) -> Definitions {
        let mut definitions = Definitions::default();
        let mut parent = None;
        for (class, name, domains) in nodes {
            parent = Some(definitions.system_tree_nodes.push(SystemTreeNode {
                name: (*name).to_owned(),
                class_name: (*class).to_owned(),
                parent,
                domains: domains.to_vec(),
                ..SystemTreeNode::default()
            }));
        }
        definitions
    }

    #[test]
    fn a_node_is_what_shares_memory() {
        use SystemTreeDomain::{Machine, SharedMemory, Socket};
        type Nodes<'a> = &'a [(&'a str, &'a str, &'a [SystemTreeDomain])];
        let cases: [(Nodes, &str); 10] = [
            (&[("machine", "cluster", &[Machine]), ("node", "n1", &[SharedMemory])], "n1"),
            (&[("machine", "cluster", &[]), ("blade", "b1", &[SharedMemory]), ("numa", "0", &[])], "b1"),
            // lo2s writes it in this form.
            (&[("machine", "n1", &[SharedMemory]), ("package", "0", &[Socket])], "n1"),
            (&[("host", "n1", &[SharedMemory]), ("node", "numa 0", &[SharedMemory])], "n1"),
            (&[("machine", "cluster", &[]), ("node", "n1", &[]), ("package", "0", &[])], "n1"),
            (&[("machine", "cluster", &[]), ("Host", "n1", &[])], "n1"),
            (&[("cluster", "c", &[]), ("compute-node", "n1", &[])], "n1"),
            (&[("machine", "cluster", &[]), ("Blade", "b1", &[])], "b1"),
            (&[("machine", "n1", &[])], "n1"),
            (&[("thing", "a", &[]), ("part", "b", &[])], ""),
        ];
        for (nodes, expected) in cases {
            let innermost = SystemTreeNodeRef(nodes.len() as u32 - 1);
            assert_eq!(node_of_tree(&tree(nodes), Some(innermost)), expected, "{nodes:?}");
        }
    }

    #[test]
    fn parts_of_an_unknown_class_are_not_nodes_and_a_doubt_reports_it() {
        let definitions = |class: &str, domains: &[SystemTreeDomain]| {
            let mut definitions = tree(&[("machine", "cluster", &[])]);
            for name in ["h1", "h2"] {
                let node = definitions.system_tree_nodes.push(SystemTreeNode {
                    name: name.to_owned(),
                    class_name: class.to_owned(),
                    parent: Some(SystemTreeNodeRef(0)),
                    domains: domains.to_vec(),
                    ..SystemTreeNode::default()
                });
                let kind = LocationGroupType::Process;
                let group =
                    LocationGroup { kind, system_tree_parent: Some(node), ..LocationGroup::default() };
                definitions.location_groups.push(group);
            }
            definitions
        };
        assert!(doubt_of_nodes(&definitions("box", &[])).is_some_and(|doubt| doubt.ends_with(": box")));
        for (class, domains) in [
            ("server", &[][..]),
            ("package", &[]),
            ("NUMA domain", &[]),
            ("box", &[SystemTreeDomain::SharedMemory]),
            ("box", &[SystemTreeDomain::Socket]),
        ] {
            assert_eq!(doubt_of_nodes(&definitions(class, domains)), None, "{class}");
        }
    }

    /// Makes processes with these names. Each has a thread whose number is its index.
    fn processes(names: &[&str]) -> Definitions {
        let mut definitions = tree(&[("node", "n1", &[])]);
        for (number, name) in (0..).zip(names) {
            let group = definitions.location_groups.push(LocationGroup {
                name: (*name).to_owned(),
                kind: LocationGroupType::Process,
                system_tree_parent: Some(SystemTreeNodeRef(0)),
                ..LocationGroup::default()
            });
            let kind = LocationType::CpuThread;
            definitions
                .locations
                .insert(LocationRef(number), Location { kind, group: Some(group), ..Location::default() });
        }
        definitions
    }

    fn ranks(definitions: &Definitions) -> Vec<Option<u32>> {
        let ranks = Ranks::of(definitions);
        definitions.location_groups.iter().map(|(group, _)| ranks.get(group)).collect()
    }

    fn with_world(names: &[&str], locations: &[u64], members: &[u64], flags: u32) -> Definitions {
        let mut definitions = processes(names);
        let mut group = |kind, members: &[u64], flags| {
            definitions.groups.push(Group {
                name: String::new(),
                kind,
                paradigm: ParadigmType::Mpi,
                flags,
                members: members.to_vec(),
            })
        };
        group(GroupType::CommLocations, locations, 0);
        let group = group(GroupType::CommGroup, members, flags);
        definitions.comms.push(Comm { name: "MPI_COMM_WORLD".to_owned(), group, parent: None, flags: 0 });
        definitions
    }

    #[test]
    fn ranks_are_places_in_the_world() {
        assert_eq!(
            ranks(&processes(&["MPI Rank 3", "SHMEM PE 1", "process 4711", "rank 2"])),
            [Some(3), Some(1), None, Some(2)]
        );
        assert_eq!(ranks(&processes(&["process 4711"])), [Some(0)]);
        assert_eq!(
            ranks(&with_world(&["process 11", "process 12"], &[0, 1], &[0, 1], 0)),
            [Some(0), Some(1)]
        );
        assert_eq!(
            ranks(&with_world(&["process 11", "process 12"], &[0, 1], &[1, 0], 0)),
            [Some(1), Some(0)]
        );
        assert_eq!(ranks(&with_world(&["process 11", "process 12"], &[], &[1, 0], 1)), [Some(1), Some(0)]);
        let global = with_world(&["process 11", "process 12"], &[1, 0], &[0, 1], 1);
        assert_eq!(ranks(&global), [Some(1), Some(0)], "members are indices with the flag, too");
        // A part of one of ampere's own traces: ranks 2 and 3 of four.
        let part = with_world(&["MPI Rank 2", "MPI Rank 3"], &[0, 1, 0], &[2, 2, 0, 1], 0);
        assert_eq!(ranks(&part), [Some(2), Some(3)]);
        let mut shmem = processes(&["process 11", "process 12"]);
        let kind = GroupType::CommLocations;
        shmem.groups.push(Group { kind, members: vec![1, 0], ..Group::default() });
        assert_eq!(ranks(&shmem), [Some(1), Some(0)]);
    }

    fn place(definitions: &Definitions, scope: MetricScope, scope_number: u64) -> Place {
        let mut definitions = definitions.clone();
        let instance =
            MetricInstance { class: MetricClassRef(0), recorder: LocationRef(0), scope, scope_number };
        let instance = definitions.add_metric_instance(instance);
        Place::new(&definitions, LocationRef(0), Some(instance), "")
    }

    #[test]
    fn values_are_about_the_scope_of_their_instance() {
        let mut definitions = processes(&["MPI Rank 0", "MPI Rank 1"]);
        let mut part = |class: &str, name: &str, parent| {
            definitions.system_tree_nodes.push(SystemTreeNode {
                name: name.to_owned(),
                class_name: class.to_owned(),
                parent: Some(parent),
                ..SystemTreeNode::default()
            })
        };
        let package = part("package", "1", SystemTreeNodeRef(0));
        let core = part("core", "core 3", package);
        let members = vec![1];
        let group =
            definitions.groups.push(Group { kind: GroupType::Locations, members, ..Group::default() });
        let of = |scope, number| place(&definitions, scope, number);
        let at = of(MetricScope::SystemTreeNode, package.0.into());
        assert_eq!((at.node.as_str(), at.part.as_str()), ("n1", "package 1"));
        assert_eq!((at.counted, at.users.as_slice()), (Counted::by_place("package", "1"), &[][..]));
        let at = of(MetricScope::SystemTreeNode, core.0.into());
        assert_eq!(
            (at.part.as_str(), at.counted.package, at.counted.number),
            ("package 1/core 3", Some(1), Some(3))
        );
        assert_eq!(of(MetricScope::SystemTreeNode, 0), Place { node: "n1".to_owned(), ..Place::default() });
        for (scope, number, others) in [
            (MetricScope::Location, 1, true),
            (MetricScope::LocationGroup, 1, true),
            (MetricScope::Group, group.0.into(), true),
            (MetricScope::Location, 0, false),
        ] {
            let at = of(scope, number);
            let users = [LocationGroupRef(u32::from(others))];
            assert_eq!(
                (at.part.as_str(), at.users.as_slice(), at.are_others),
                ("", &users[..], others),
                "{scope:?}"
            );
        }
        assert!(
            has_threads(&definitions, LocationGroupRef(0)) && !has_threads(&definitions, LocationGroupRef(7))
        );
    }
}
