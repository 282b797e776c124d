//! Joins the definitions of several archives. The numbers of the first archive are kept; those of the others are mapped by
//! tables in their locations' own definitions, so that no event file is written again.

use crate::definitions::{
    Attribute, Comm, Definitions, Group, LocationGroup, MetricClass, MetricInstance, MetricMember, Property,
    Region, SystemTreeNode,
};
use crate::enums::{GroupType, MetricScope};
use crate::local::LocalDefinitions;
use crate::table::{
    AttributeRef, CommRef, GroupRef, LocationGroupRef, LocationRef, MetricClassRef, MetricMemberRef,
    Reference, RegionRef, SystemTreeNodeRef, Table,
};
use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

const WORLD: &str = "MPI_COMM_WORLD";

/// The joined definitions of a first archive and of each one that was added.
pub struct JoinedDefinitions {
    whole: Definitions,
    strings: HashMap<String, u32>,
    regions: HashMap<Region, RegionRef>,
    members: HashMap<MetricMember, MetricMemberRef>,
    attributes: HashMap<Attribute, AttributeRef>,
}

/// The mapping of an archive that was added.
pub struct Added {
    /// The locations' own definitions, without clock offsets so far.
    pub local: LocalDefinitions,
    /// The references of each location: in the archive, and in the whole.
    pub locations: Vec<(LocationRef, LocationRef)>,
}

/// New references by old ones.
type NewReferences<R> = BTreeMap<R, R>;

/// The new references of the parts of an archive.
struct Places {
    nodes: NewReferences<SystemTreeNodeRef>,
    location_groups: NewReferences<LocationGroupRef>,
    locations: NewReferences<LocationRef>,
    members: NewReferences<MetricMemberRef>,
    groups: NewReferences<GroupRef>,
}

impl JoinedDefinitions {
    /// Starts with the definitions of an archive that [`Trace::open_with_strings`](crate::Trace::open_with_strings) opened.
    pub fn new(first: Definitions) -> JoinedDefinitions {
        let numbers = first.strings.iter().cloned().zip(1..);
        JoinedDefinitions {
            strings: [(String::new(), 0)].into_iter().chain(numbers).collect(),
            regions: by_value(&first.regions),
            members: by_value(&first.metric_members),
            attributes: by_value(&first.attributes),
            whole: first,
        }
    }

    /// Adds the definitions of another archive, which [`Trace::open_with_strings`](crate::Trace::open_with_strings) opened, too.
    /// `rename` returns the new reference of each of its locations. `is_one_world` states that its MPI ranks belong to the same
    /// MPI_COMM_WORLD.
    pub fn add(
        &mut self,
        other: &Definitions,
        rename: impl Fn(LocationRef) -> LocationRef,
        is_one_world: bool,
    ) -> Added {
        let strings = other.strings.iter().map(|text| self.string(text));
        let strings = [0].into_iter().chain(strings.collect::<Vec<u32>>()).collect();
        for paradigm in &other.paradigms {
            if !self.whole.paradigms.iter().any(|known| known.paradigm == paradigm.paradigm) {
                self.whole.paradigms.push(paradigm.clone());
            }
        }
        let regions = find_or_add(&mut self.whole.regions, &mut self.regions, &other.regions);
        let attributes = find_or_add(&mut self.whole.attributes, &mut self.attributes, &other.attributes);
        let members = find_or_add(&mut self.whole.metric_members, &mut self.members, &other.metric_members);
        let mut places = Places {
            nodes: NewReferences::new(),
            location_groups: NewReferences::new(),
            locations: other.locations.iter().map(|(own, _)| (own, rename(own))).collect(),
            members,
            groups: NewReferences::new(),
        };
        self.add_places(other, &mut places);
        self.add_groups(other, &mut places, is_one_world);
        let metrics = self.add_metrics(other, &places);
        let comms = self.add_comms(other, &places);
        let local = LocalDefinitions {
            clock_offsets: Vec::new(),
            strings,
            attributes: dense(attributes.iter().map(|(own, new)| (own.0, new.0))),
            regions: dense(regions.iter().map(|(own, new)| (own.0, new.0))),
            metrics: dense(metrics),
            comms: dense(comms),
        };
        Added { local, locations: places.locations.into_iter().collect() }
    }

    /// Returns the definitions of all archives so far.
    pub fn whole(&mut self) -> &mut Definitions {
        self.remove_placeholders();
        &mut self.whole
    }

    fn string(&mut self, text: &str) -> u32 {
        if let Some(known) = self.strings.get(text) {
            return *known;
        }
        self.whole.strings.push(text.to_owned());
        let number = self.whole.strings.len() as u32;
        self.strings.insert(text.to_owned(), number);
        number
    }

    /// Adds the system tree, the location groups and the locations. Archives share only the root of the tree.
    fn add_places(&mut self, other: &Definitions, places: &mut Places) {
        for (own, node) in other.system_tree_nodes.iter() {
            let parent = node.parent.map(|parent| renamed(&places.nodes, parent));
            let is_same = |known: &SystemTreeNode| {
                known.parent.is_none() && (&known.name, &known.class_name) == (&node.name, &node.class_name)
            };
            let mut roots = self.whole.system_tree_nodes.iter().filter(|_| parent.is_none());
            let root = roots.find_map(|(root, known)| is_same(known).then_some(root));
            drop(roots);
            let new = match root {
                Some(root) => {
                    let known = self.whole.system_tree_nodes.get_mut(root);
                    known
                        .into_iter()
                        .for_each(|known| add_properties(&mut known.properties, &node.properties));
                    root
                }
                None => self.whole.system_tree_nodes.push(SystemTreeNode { parent, ..node.clone() }),
            };
            places.nodes.insert(own, new);
        }
        let first = self.whole.location_groups.last().map_or(0, |last| last.0 + 1);
        places.location_groups = other
            .location_groups
            .iter()
            .zip(first..)
            .map(|((own, _), new)| (own, LocationGroupRef(new)))
            .collect();
        for group in other.location_groups.values() {
            let creator = group.creating_location_group;
            self.whole.location_groups.push(LocationGroup {
                system_tree_parent: group.system_tree_parent.map(|node| renamed(&places.nodes, node)),
                creating_location_group: creator.map(|group| renamed(&places.location_groups, group)),
                ..group.clone()
            });
        }
        for (own, location) in other.locations.iter() {
            let mut location = location.clone();
            location.group = location.group.map(|group| renamed(&places.location_groups, group));
            self.whole.locations.insert(renamed(&places.locations, own), location);
        }
    }

    /// Adds the groups. The members of a communicator are indices into the list of all communicating locations; an archive has
    /// one such list for each paradigm.
    fn add_groups(&mut self, other: &Definitions, places: &mut Places, is_one_world: bool) {
        for (own, group) in other.groups.iter().filter(|(_, group)| group.kind == GroupType::CommLocations) {
            let added = CommunicatingLocations::of(locations_of(group, places));
            let new = match communicating(&self.whole, group) {
                Some((known, before)) => {
                    let mut all = CommunicatingLocations {
                        locations: before.locations.iter().chain(&added.locations).copied().collect(),
                        has_unknown: before.has_unknown || added.has_unknown,
                    };
                    if is_one_world {
                        all.locations.sort_unstable();
                    }
                    self.move_members(group, &before, &all);
                    set_members(&mut self.whole, known, all.list());
                    known
                }
                None => self.whole.groups.push(Group { members: added.list(), ..group.clone() }),
            };
            places.groups.insert(own, new);
        }
        for (own, group) in other.groups.iter().filter(|(_, group)| group.kind != GroupType::CommLocations) {
            let members = match group.kind {
                GroupType::Locations => locations_of(group, places).collect(),
                GroupType::CommGroup => self.places_of(group, other, places),
                _ => group.members.clone(),
            };
            let known = match group.kind {
                GroupType::CommGroup if is_one_world => self.complete_group(group, &members),
                GroupType::CommSelf => self.same_groups(group).next(),
                _ => None,
            };
            let new = known.unwrap_or_else(|| self.whole.groups.push(Group { members, ..group.clone() }));
            places.groups.insert(own, new);
        }
    }

    fn same_groups<'a>(&'a self, group: &'a Group) -> impl Iterator<Item = GroupRef> + 'a {
        let is_same = |known: &Group| {
            (&known.name, known.kind, known.paradigm) == (&group.name, group.kind, group.paradigm)
        };
        self.whole.groups.iter().filter_map(move |(own, known)| is_same(known).then_some(own))
    }

    /// Finds the known group to which these members belong, and completes its list: the group of MPI_COMM_WORLD, or one that
    /// lacks some of its members.
    fn complete_group(&mut self, group: &Group, members: &[u64]) -> Option<GroupRef> {
        let unknown = communicating(&self.whole, group).and_then(|(_, all)| all.unknown());
        let same: Vec<GroupRef> = self.same_groups(group).collect();
        for known in same {
            let before = self.whole.groups.get(known).map_or(&[][..], |known| &known.members);
            let is_unknown = |member: &u64| Some(*member) == unknown;
            let lacks_some = before.iter().chain(members).any(is_unknown);
            let mut all: Vec<u64> = match lacks_some {
                true if before.len() == members.len() => {
                    let pairs = before.iter().zip(members);
                    pairs.map(|(known, other)| if is_unknown(known) { *other } else { *known }).collect()
                }
                false if group.name == WORLD => before.iter().chain(members).copied().collect(),
                _ => continue,
            };
            if !lacks_some {
                all.sort_unstable();
            }
            set_members(&mut self.whole, known, all);
            return Some(known);
        }
        None
    }

    /// Returns the members of a communicator's group as indices in the joined list.
    fn places_of(&self, group: &Group, other: &Definitions, places: &Places) -> Vec<u64> {
        let of = |definitions| communicating(definitions, group).map(|(_, all)| all).unwrap_or_default();
        let (of_other, of_whole) = (of(other), of(&self.whole));
        let at = of_whole.places();
        let place = |member: &u64| {
            let location = renamed(&places.locations, LocationRef(of_other.at(*member)?));
            at.get(&location.0).copied()
        };
        group.members.iter().map(|member| place(member).or(of_whole.unknown()).unwrap_or(*member)).collect()
    }

    /// Updates the members of all groups after the list of communicating locations has changed.
    fn move_members(&mut self, of: &Group, before: &CommunicatingLocations, now: &CommunicatingLocations) {
        let at = now.places();
        let moved = |member: u64| {
            let place = before.at(member).and_then(|location| at.get(&location).copied());
            place.or(now.unknown()).unwrap_or(member)
        };
        let is_moved = |group: &Group| group.kind == GroupType::CommGroup && group.paradigm == of.paradigm;
        let groups: Vec<GroupRef> =
            (self.whole.groups.iter()).filter_map(|(own, group)| is_moved(group).then_some(own)).collect();
        for group in groups {
            let members = self.whole.groups.get(group).map_or(&[][..], |group| &group.members);
            let members = members.iter().map(|member| moved(*member)).collect();
            set_members(&mut self.whole, group, members);
        }
    }

    /// Removes the placeholder from each list of communicating locations, once all members are known.
    fn remove_placeholders(&mut self) {
        let lists: Vec<GroupRef> = (self.whole.groups.iter())
            .filter_map(|(own, group)| (group.kind == GroupType::CommLocations).then_some(own))
            .collect();
        for list in lists {
            let Some(group) = self.whole.groups.get(list) else { continue };
            let all = CommunicatingLocations::of(group.members.iter().copied());
            let is_needed = |known: &Group| {
                known.kind == GroupType::CommGroup
                    && known.paradigm == group.paradigm
                    && known.members.iter().any(|member| Some(*member) == all.unknown())
            };
            if !self.whole.groups.values().any(is_needed) {
                set_members(&mut self.whole, list, all.locations);
            }
        }
    }

    /// Adds metric classes and instances, which are numbered together.
    fn add_metrics(&mut self, other: &Definitions, places: &Places) -> Vec<(u32, u32)> {
        let mut numbers = Vec::new();
        let mut classes: NewReferences<MetricClassRef> = NewReferences::new();
        for (own, class) in other.metric_classes.iter() {
            let members = class.members.iter().map(|member| renamed(&places.members, *member)).collect();
            let recorders = class.recorders.iter().map(|location| renamed(&places.locations, *location));
            let class = MetricClass { members, recorders: recorders.collect(), ..class.clone() };
            let is_same = |known: &MetricClass| {
                (&known.members, known.occurrence, known.recorder_kind, known.recorders.is_empty())
                    == (&class.members, class.occurrence, class.recorder_kind, class.recorders.is_empty())
            };
            let known = self.whole.metric_classes.iter().find(|(_, known)| is_same(known));
            let new = match known.map(|(known, _)| known) {
                Some(known) => {
                    let known_class = self.whole.metric_classes.get_mut(known);
                    known_class.into_iter().for_each(|known| known.recorders.extend(&class.recorders));
                    known
                }
                None => self.whole.add_metric_class(class),
            };
            classes.insert(own, new);
            numbers.push((own.0, new.0));
        }
        for (own, instance) in other.metric_instances.iter() {
            let number = instance.scope_number;
            let of = |number: Option<u64>| number.unwrap_or(instance.scope_number);
            let scope_number = match instance.scope {
                MetricScope::Location => renamed(&places.locations, LocationRef(number)).0,
                MetricScope::LocationGroup => of(renamed_number(&places.location_groups, number)),
                MetricScope::SystemTreeNode => of(renamed_number(&places.nodes, number)),
                _ => of(renamed_number(&places.groups, number)),
            };
            let new = self.whole.add_metric_instance(MetricInstance {
                class: renamed(&classes, instance.class),
                recorder: renamed(&places.locations, instance.recorder),
                scope: instance.scope,
                scope_number,
            });
            numbers.push((own.0, new.0));
        }
        numbers
    }

    /// Adds the communicators. Communicators with the same group, name and flags are added once.
    fn add_comms(&mut self, other: &Definitions, places: &Places) -> Vec<(u32, u32)> {
        let mut numbers: Vec<(u32, u32)> = Vec::new();
        for (own, comm) in other.comms.iter() {
            let group = renamed(&places.groups, comm.group);
            let is_taken = |number: u32| numbers.iter().any(|(_, new)| *new == number);
            let same = |(new, known): (CommRef, &Comm)| {
                let is_same = (&known.name, known.group, known.flags) == (&comm.name, group, comm.flags);
                (is_same && !is_taken(new.0)).then_some(new)
            };
            let known = self.whole.comms.iter().find_map(same);
            let new = match known {
                Some(known) => known,
                None => {
                    let number = |own| numbers.iter().find(|(known, _)| *known == own).map(|(_, new)| *new);
                    let parent = comm.parent.and_then(|parent| number(parent.0)).map(CommRef);
                    self.whole.comms.push(Comm { group, parent, ..comm.clone() })
                }
            };
            numbers.push((own.0, new.0));
        }
        numbers
    }
}

fn by_value<R: Reference, T: Clone + Eq + Hash>(table: &Table<R, T>) -> HashMap<T, R> {
    // The first of several equal values is kept, because it is inserted last.
    table.iter().collect::<Vec<_>>().into_iter().rev().map(|(own, value)| (value.clone(), own)).collect()
}

/// Adds each definition unless the whole already has an equal one. Returns the new references.
fn find_or_add<R: Reference, T: Clone + Eq + Hash>(
    whole: &mut Table<R, T>,
    known: &mut HashMap<T, R>,
    other: &Table<R, T>,
) -> NewReferences<R> {
    let mut all = NewReferences::new();
    for (own, value) in other.iter() {
        let new = *known.entry(value.clone()).or_insert_with(|| whole.push(value.clone()));
        all.insert(own, new);
    }
    all
}

/// Returns the new reference; a reference to something undefined is kept.
fn renamed<R: Reference>(all: &NewReferences<R>, reference: R) -> R {
    all.get(&reference).copied().unwrap_or(reference)
}

fn renamed_number<R: Reference>(all: &NewReferences<R>, number: u64) -> Option<u64> {
    all.get(&R::of_number(number)?).map(|new| new.number())
}

/// Makes a table with the new number of each old one. Numbers that are not used are kept.
fn dense(numbers: impl IntoIterator<Item = (u32, u32)>) -> Vec<u32> {
    let mut all: Vec<u32> = Vec::new();
    for (own, new) in numbers {
        all.extend(all.len() as u32..=own);
        all[own as usize] = new;
    }
    all
}

/// A list of communicating locations. In an archive of only some of the ranks, the first location is repeated at the end: that
/// entry stands for all members that the archive does not have, because readers require a location for each.
#[derive(Default)]
struct CommunicatingLocations {
    locations: Vec<u64>,
    has_unknown: bool,
}

impl CommunicatingLocations {
    fn of(list: impl Iterator<Item = u64>) -> CommunicatingLocations {
        let mut locations: Vec<u64> = list.collect();
        let has_unknown = locations.len() > 1 && locations.first() == locations.last();
        if has_unknown {
            locations.pop();
        }
        CommunicatingLocations { locations, has_unknown }
    }

    fn list(&self) -> Vec<u64> {
        let again = self.locations.first().filter(|_| self.has_unknown);
        self.locations.iter().chain(again).copied().collect()
    }

    /// Returns the index that stands for unknown members.
    fn unknown(&self) -> Option<u64> {
        self.has_unknown.then_some(self.locations.len() as u64)
    }

    fn at(&self, place: u64) -> Option<u64> {
        self.locations.get(usize::try_from(place).ok()?).copied()
    }

    fn places(&self) -> HashMap<u64, u64> {
        self.locations.iter().copied().zip(0..).collect()
    }
}

/// Returns the list of communicating locations with the paradigm of `group`.
fn communicating(definitions: &Definitions, group: &Group) -> Option<(GroupRef, CommunicatingLocations)> {
    let has_paradigm =
        |known: &&Group| known.kind == GroupType::CommLocations && known.paradigm == group.paradigm;
    let (own, known) = definitions.groups.iter().find(|(_, known)| has_paradigm(known))?;
    Some((own, CommunicatingLocations::of(known.members.iter().copied())))
}

fn locations_of(group: &Group, places: &Places) -> impl Iterator<Item = u64> {
    group.members.iter().map(|member| renamed(&places.locations, LocationRef(*member)).0)
}

fn set_members(definitions: &mut Definitions, group: GroupRef, members: Vec<u64>) {
    if let Some(group) = definitions.groups.get_mut(group) {
        group.members = members;
    }
}

fn add_properties(known: &mut Vec<Property>, more: &[Property]) {
    for property in more {
        if !known.iter().any(|known| known.name == property.name) {
            known.push(property.clone());
        }
    }
}
