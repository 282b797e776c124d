//! Reads the evidence in a trace for which location draws from which device. Ampere's own traces store it as follows, so that the
//! links of a live run are found again in its trace.
//!
//! | what | where |
//! | --- | --- |
//! | a process' variables | properties of its location group, by the variable's name |
//! | the GPUs on which the driver has had queues of a process | the same, by the name [`QUEUES`] |
//! | the running time of a process' main thread and of the others | a property of its location group, [`THREAD_SECONDS`] |
//! | that a location's frames are samples, and the location where calls of the thread are recorded | a property, [`SAMPLES_ON`] |
//! | that a location has only the CPU time of the threads without a location | a property, [`OTHER_THREADS`] |
//! | the process of a GPU stream | the creating location group of its context, as Score-P writes it |
//! | a stream's device | the system tree node that contains its context: number, `PCI Bus ID`, `UUID`, as Score-P writes it |
//! | that a part of the run is missing | a property of the machine, [`INCOMPLETE`] |
//! | the processes of a counter, if several counters have one name | a property of the location that has its samples, [`OWN`] |
//! | what a counter counts | a property of the location that has its samples, [`KIND_OF`] |
//! | the metrics that a counter contains, separated by spaces (by newlines, if a name has spaces) | the same, [`PARTS_OF`] |
//! | where a counter wraps | the same, [`RANGE_OF`] |
//! | the power of a counter's device without the job, in microwatts | the same, [`BASELINE_OF`] |
//! | a counter's GPU | a system tree node of the class [`COUNTER`], with the metric's name and a device's properties as above |

use crate::places::{node_of_tree, process_of};
use crate::series::Series;
use ampere_model::{Device, LOCAL_RANKS, QUEUES, STACK_EVENTS, STACK_PERIOD, VISIBLE_DEVICES};
use ampere_timeline::counter_traits::CounterTraits;
use ampere_timeline::linking::ThreadSeconds;
use ampere_timeline::topology::{
    Accelerator, CONTEXT, CounterEvidence, Evidence, has_cores, metric_number, stream_number,
};
use otf2::{
    Definitions, Location, LocationGroup, LocationGroupRef, LocationRef, MetricScope, Property,
    PropertyValue, Reference, SystemTreeDomain, SystemTreeNode, SystemTreeNodeRef,
};
use std::collections::{BTreeSet, HashMap};

/// The class of system tree nodes that describe a counter's GPU.
const COUNTER: &str = "energy counter";
const METRIC: &str = "metric";
/// The property of a trace of an incomplete run.
const INCOMPLETE: &str = "ampere::incomplete";
/// The prefix of a property's name, before the metric's name. The value lists location groups, one per line.
const OWN: &str = "ampere own of ";
/// The property with the CPU seconds of a process' main thread and of all its other threads.
const THREAD_SECONDS: &str = "ampere::thread_seconds";
/// The property of a location with samples. Its value is the reference of another location, or empty.
const SAMPLES_ON: &str = "ampere::samples_on";
/// The property of a location that has only the CPU time of threads without a location of their own.
const OTHER_THREADS: &str = "ampere::other_threads";
const KIND: &str = "kind";
const KIND_OF: &str = "ampere kind of ";
const PARTS_OF: &str = "ampere parts of ";
const RANGE_OF: &str = "ampere range of ";
const BASELINE_OF: &str = "ampere baseline of ";
const MODEL: &str = "Device name";
const UUID: &str = "UUID";
/// The properties with domain, bus and device, in decimal.
const PCI: [&str; 3] = ["PCI Domain ID", "PCI Bus ID", "PCI Device ID"];
/// The property with the function, which Score-P does not write. Partitions of a GPU have other functions than 0.
const PCI_FUNCTION: &str = "PCI Function ID";

fn text(properties: &[Property], name: &str) -> Option<String> {
    properties.iter().find(|property| property.name == name).map(|property| match &property.value {
        PropertyValue::String(text) => text.clone(),
        PropertyValue::U64(number) => number.to_string(),
        PropertyValue::I64(number) => number.to_string(),
        PropertyValue::F64(number) => number.to_string(),
    })
}

fn property(name: &str, value: &str) -> Property {
    Property { name: name.to_owned(), value: PropertyValue::String(value.to_owned()) }
}

/// Returns the properties that the trace gives to the machine.
pub fn machine_properties(complete: bool) -> Vec<Property> {
    if complete { Vec::new() } else { vec![property(INCOMPLETE, "true")] }
}

/// Whether the run that wrote a trace was incomplete.
pub fn is_incomplete(definitions: &Definitions) -> bool {
    definitions.system_tree_nodes.iter().any(|(_, node)| text(&node.properties, INCOMPLETE).is_some())
}

fn pci(properties: &[Property]) -> Option<String> {
    let number = |name| text(properties, name)?.trim().parse::<u32>().ok();
    let domain = number(PCI[0]).unwrap_or(0);
    let bus = number(PCI[1])?;
    let device = number(PCI[2]).unwrap_or(0);
    let function = number(PCI_FUNCTION).unwrap_or(0);
    Some(format!("{domain:04x}:{bus:02x}:{device:02x}.{function:x}"))
}

/// Converts `0000:c1:00.0` to properties.
fn pci_properties(address: &str) -> Option<Vec<Property>> {
    let (rest, function) = address.split_once('.')?;
    let mut parts = rest.split(':').map(|part| u32::from_str_radix(part, 16).ok());
    let numbers = [parts.next()??, parts.next()??, parts.next()??];
    let function = u32::from_str_radix(function, 16).ok().filter(|function| *function > 0);
    let all = PCI.into_iter().zip(numbers).chain(function.map(|function| (PCI_FUNCTION, function)));
    Some(all.map(|(name, number)| property(name, &number.to_string())).collect())
}

/// Returns the evidence about a location of a trace.
pub fn of_location(definitions: &Definitions, location: LocationRef) -> Evidence {
    let groups = &definitions.location_groups;
    let Some(own) = definitions.locations.get(location).and_then(|location| location.group) else {
        return Evidence::default();
    };
    let stream =
        definitions.locations.get(location).is_some_and(|l| l.kind == otf2::LocationType::AcceleratorStream);
    // A stream whose context has no creator may belong to any process, unless it is in a process' own group.
    let is_process = |group| groups.get(group).is_some_and(|g| g.kind == otf2::LocationGroupType::Process);
    let creator = groups.get(own).and_then(|group| group.creating_location_group);
    let process = creator.filter(|_| stream).or(Some(own).filter(|own| !stream || is_process(*own)));
    Evidence {
        process: process.map(|process| u64::from(process.0)),
        owner: String::new(),
        environment: process.map_or_else(Vec::new, |process| of_group(definitions, process)).into(),
        accelerator: of_stream(definitions, location).unwrap_or_default(),
    }
}

/// Returns the device of a GPU stream. If the trace states neither the device's address nor its UUID, the streams of a process
/// whose names have the same device number share a device. Streams whose names have no number share a device if they have the
/// same context.
fn of_stream(definitions: &Definitions, location: LocationRef) -> Option<Accelerator> {
    let stream = definitions.locations.get(location)?;
    let is_stream = stream.kind == otf2::LocationType::AcceleratorStream;
    let at = stream.group.filter(|_| is_stream)?;
    let group = definitions.location_groups.get(at)?;
    let stated = accelerator(definitions, at);
    if stated.pci.is_some() || stated.uuid.is_some() {
        return Some(stated);
    }
    let made_up = match stream_number(&stream.name).zip(process_of(definitions, location)) {
        Some((number, process)) => format!("{CONTEXT}of process {}, device {number}", process.0),
        None if group.kind == otf2::LocationGroupType::Accelerator => {
            format!("{CONTEXT}{} ({})", at.0, group.name)
        }
        // Some tools put streams into the group of their process.
        None => format!("{CONTEXT}of stream {} ({})", location.0, stream.name),
    };
    Some(Accelerator { uuid: Some(made_up), ..stated })
}

/// Returns the device that a counter is about: the device of the streams in its scope or, without a scope, of its recorder.
pub(crate) fn accelerator_of(definitions: &Definitions, series: &Series) -> Option<Accelerator> {
    let instance = series.instance.and_then(|instance| definitions.metric_instances.get(instance));
    match instance.map(|instance| (instance.scope, instance.scope_number)) {
        None => {
            let recorder = definitions.locations.get(series.location)?;
            match recorder.kind {
                otf2::LocationType::Metric => gpu_of_group(definitions, recorder.group?),
                _ => of_stream(definitions, series.location),
            }
        }
        Some((MetricScope::Location, number)) => of_stream(definitions, LocationRef::of_number(number)?),
        Some((MetricScope::LocationGroup, number)) => {
            gpu_of_group(definitions, LocationGroupRef::of_number(number)?)
        }
        Some(_) => None,
    }
}

/// Returns the GPU of all streams of a group, if they have the same one.
fn gpu_of_group(definitions: &Definitions, group: LocationGroupRef) -> Option<Accelerator> {
    let all = definitions.locations.iter().filter(|(_, of)| of.group == Some(group));
    let mut all =
        all.filter(|(_, of)| of.kind != otf2::LocationType::Metric).map(|(at, _)| of_stream(definitions, at));
    let first = all.next()?;
    first.filter(|first| all.all(|other| other.as_ref() == Some(first)))
}

/// Returns a name for each process that has the same name as an earlier one; [`CounterEvidence::own`] has these names.
pub fn owners(definitions: &Definitions) -> HashMap<LocationGroupRef, String> {
    let mut counts: HashMap<&str, u32> = HashMap::new();
    let mut owners = HashMap::new();
    let is_process = |group: &LocationGroup| group.kind == otf2::LocationGroupType::Process;
    for (reference, group) in definitions.location_groups.iter().filter(|(_, group)| is_process(group)) {
        let count = counts.entry(&group.name).or_default();
        *count += 1;
        if *count > 1 {
            owners.insert(reference, format!("{}\t{count}", group.name));
        }
    }
    owners
}

/// Returns the recorded variables of a process as `NAME=value`.
pub fn of_group(definitions: &Definitions, process: LocationGroupRef) -> Vec<String> {
    let Some(group) = definitions.location_groups.get(process) else { return Vec::new() };
    variables().filter_map(|name| Some(format!("{name}={}", text(&group.properties, name)?))).collect()
}

/// Returns the names of the variables that a trace records.
fn variables() -> impl Iterator<Item = &'static str> {
    VISIBLE_DEVICES.into_iter().chain(LOCAL_RANKS).chain([STACK_PERIOD, STACK_EVENTS, QUEUES])
}

/// Returns the device of a context, from the system tree.
fn accelerator(definitions: &Definitions, context: LocationGroupRef) -> Accelerator {
    let above = definitions.location_groups.get(context).and_then(|group| group.system_tree_parent);
    let Some(node) = above.and_then(|above| definitions.system_tree_nodes.get(above)) else {
        return Accelerator::default();
    };
    // If the context's parent is the node, there is no device.
    let is_device = node.class_name.to_lowercase().contains("device");
    if !node.domains.contains(&SystemTreeDomain::AcceleratorDevice) && !is_device {
        return Accelerator::default();
    }
    // The number after a model's name, such as "Instinct MI300A 2", need not be the device's.
    let name = node.name.trim();
    let named = name.rsplit_once(' ').filter(|(kind, _)| {
        let kind = kind.to_lowercase();
        kind.ends_with("device") || kind.ends_with("gpu")
    });
    Accelerator {
        number: named.map_or(name, |(_, number)| number).parse().ok(),
        pci: pci(&node.properties),
        uuid: text(&node.properties, UUID),
        model: text(&node.properties, MODEL).unwrap_or_default(),
    }
}

/// Returns the properties from which [`of_location`] finds a stream's device again. The device's number is the node's name.
pub fn accelerator_properties(accelerator: &Accelerator) -> Vec<Property> {
    let mut all = accelerator.pci.as_deref().and_then(pci_properties).unwrap_or_default();
    all.extend(accelerator.uuid.iter().map(|uuid| property(UUID, uuid)));
    all.extend((!accelerator.model.is_empty()).then(|| property(MODEL, &accelerator.model)));
    all
}

/// Returns the properties of a location whose frames are samples. `on` is the location with the recorded calls of the same
/// thread.
pub fn samples_properties(on: Option<LocationRef>) -> Vec<Property> {
    vec![property(SAMPLES_ON, &on.map_or_else(String::new, |on| on.0.to_string()))]
}

/// Returns the location with the recorded calls of the thread whose samples a location has: `None` if its frames are not samples,
/// `Some(None)` if no calls of the thread are recorded.
pub fn samples(definitions: &Definitions, location: LocationRef) -> Option<Option<LocationRef>> {
    let on = text(&definitions.locations.get(location)?.properties, SAMPLES_ON)?;
    Some(on.parse().ok().map(LocationRef))
}

/// Returns the properties of a location that has only the CPU time of threads without a location of their own.
pub fn other_threads_properties() -> Vec<Property> {
    vec![property(OTHER_THREADS, "true")]
}

/// Whether a location has only the CPU time of threads without a location of their own.
pub fn is_of_other_threads(location: &Location) -> bool {
    text(&location.properties, OTHER_THREADS).is_some()
}

/// Returns the running time of the threads of a process, if the trace has it.
pub fn thread_seconds(definitions: &Definitions, process: LocationGroupRef) -> Option<ThreadSeconds> {
    let text = text(&definitions.location_groups.get(process)?.properties, THREAD_SECONDS)?;
    let (main, others) = text.split_once(' ')?;
    Some(ThreadSeconds { main: main.parse().ok()?, others: others.parse().ok()? })
}

/// Returns a process' properties: the variables that links depend on, and the running time of its threads.
pub fn process_properties(environment: &[String], threads: Option<ThreadSeconds>) -> Vec<Property> {
    let split = environment.iter().filter_map(|entry| entry.split_once('='));
    let known = split.filter(|(name, _)| variables().any(|known| known == *name));
    let known = known.map(|(name, value)| property(name, value));
    let threads = threads.map(|seconds| format!("{} {}", seconds.main, seconds.others));
    known.chain(threads.map(|seconds| property(THREAD_SECONDS, &seconds))).collect()
}

/// Returns the evidence of a live run about a counter.
pub fn of_device(device: &Device) -> CounterEvidence {
    CounterEvidence {
        kind: device.kind.clone(),
        pci: (!device.pci.is_empty()).then(|| device.pci.clone()),
        uuid: None,
        model: device.description.clone(),
        ..CounterEvidence::default()
    }
}

/// Makes the property that [`own`] reads.
pub fn own_property(counter: &str, own: &[String]) -> Option<Property> {
    (!own.is_empty()).then(|| property(&format!("{OWN}{counter}"), &own.join("\n")))
}

/// Returns the location groups of the processes that use a counter. `location` has the counter's samples.
pub fn own(definitions: &Definitions, location: LocationRef, counter: &str) -> Option<Vec<String>> {
    let properties = &definitions.locations.get(location)?.properties;
    Some(text(properties, &format!("{OWN}{counter}"))?.lines().map(str::to_owned).collect())
}

/// Makes a system tree node for a counter about which more is known than its metric's name; `None` if the name is enough.
pub fn counter_node(
    metric: &str,
    counter: &CounterEvidence,
    above: SystemTreeNodeRef,
) -> Option<SystemTreeNode> {
    let gpu = counter.kind.eq_ignore_ascii_case("gpu") || metric_number(metric).is_some();
    if !gpu || (CounterEvidence { own: Vec::new(), ..counter.clone() }) == CounterEvidence::default() {
        return None;
    }
    let mut properties = vec![property(METRIC, metric)];
    properties.extend((!counter.kind.is_empty()).then(|| property(KIND, &counter.kind)));
    properties.extend((!counter.model.is_empty()).then(|| property(MODEL, &counter.model)));
    properties.extend(counter.pci.as_deref().and_then(pci_properties).unwrap_or_default());
    properties.extend(counter.uuid.iter().map(|uuid| property(UUID, uuid)));
    Some(SystemTreeNode {
        name: ampere_model::device_name(metric),
        class_name: COUNTER.to_owned(),
        parent: Some(above),
        domains: Vec::new(),
        properties,
    })
}

/// Returns the nodes that have GPUs whose counters measure whole sockets.
pub fn nodes_with_sockets(definitions: &Definitions) -> BTreeSet<String> {
    let nodes = definitions.system_tree_nodes.iter();
    nodes
        .filter(|(_, node)| text(&node.properties, MODEL).is_some_and(|model| has_cores(&model)))
        .map(|(reference, _)| node_of_tree(definitions, Some(reference)))
        .collect()
}

/// Returns the evidence about a trace's counters, by node and metric.
pub fn of_counters(definitions: &Definitions) -> HashMap<(String, String), CounterEvidence> {
    let nodes = &definitions.system_tree_nodes;
    let counters = nodes.values().filter(|node| node.class_name == COUNTER);
    counters
        .filter_map(|node| {
            let above = node.parent.and_then(|parent| nodes.get(parent)).map(|parent| parent.name.clone());
            let counter = CounterEvidence {
                kind: text(&node.properties, KIND).unwrap_or_default(),
                pci: pci(&node.properties),
                uuid: text(&node.properties, UUID),
                model: text(&node.properties, MODEL).unwrap_or_default(),
                ..CounterEvidence::default()
            };
            Some(((above.unwrap_or_default(), text(&node.properties, METRIC)?), counter))
        })
        .collect()
}

/// Returns the traits of a counter whose samples a location has, if the trace states them, as ampere's own traces do.
pub fn traits_of(definitions: &Definitions, location: LocationRef, counter: &str) -> Option<CounterTraits> {
    let properties = definitions.locations.get(location).map_or(&[][..], |location| &location.properties);
    let text = |of: &str| {
        let named = |property: &&Property| property.name.strip_prefix(of) == Some(counter);
        match &properties.iter().find(named)?.value {
            PropertyValue::String(text) => Some(text.as_str()),
            _ => None,
        }
    };
    let (kind, parts) = (text(KIND_OF), text(PARTS_OF));
    if kind.is_none() && parts.is_none() {
        return None;
    }
    // Metric names of other tools may contain spaces. Then each is on a line of its own.
    let parts = parts.unwrap_or_default();
    let between = if parts.ends_with('\n') { '\n' } else { ' ' };
    let parts = parts.split(between).filter(|part| !part.is_empty());
    Some(CounterTraits {
        kind: kind.unwrap_or_default().to_owned(),
        contains: parts.map(str::to_owned).collect(),
        wraps_at: text(RANGE_OF).and_then(|range| range.parse().ok()),
        baseline_microwatts: text(BASELINE_OF).and_then(|microwatts| microwatts.parse().ok()),
    })
}

/// Makes the properties that [`traits_of`] reads.
pub fn traits_properties(traits: &CounterTraits, counter: &str) -> Vec<Property> {
    let property = |of: &str, text: String| {
        let value = PropertyValue::String(text);
        (!matches!(&value, PropertyValue::String(text) if text.is_empty()))
            .then(|| Property { name: format!("{of}{counter}"), value })
    };
    let number = |number: Option<u64>| number.map_or_else(String::new, |number| number.to_string());
    let (range, baseline) = (number(traits.wraps_at), number(traits.baseline_microwatts));
    let has_spaces = traits.contains.iter().any(|part| part.contains(' '));
    let parts = if has_spaces { traits.contains.join("\n") + "\n" } else { traits.contains.join(" ") };
    let all = [
        property(KIND_OF, traits.kind.clone()),
        property(PARTS_OF, parts),
        property(RANGE_OF, range),
        property(BASELINE_OF, baseline),
    ];
    all.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use otf2::LocationType;

    #[test]
    fn an_address_comes_back() {
        for address in ["0000:c1:00.0", "0001:02:00.0", "0000:41:1f.0"] {
            assert_eq!(pci(&pci_properties(address).unwrap()).as_deref(), Some(address));
        }
        assert_eq!(pci_properties("somewhere"), None);
        assert_eq!(pci(&[property("PCI Domain ID", "0")]), None, "no bus");
    }

    #[test]
    fn the_system_tree_has_the_number_of_a_device() {
        let number = |class: &str, name: &str| {
            let mut definitions = Definitions::default();
            let node =
                SystemTreeNode { name: name.to_owned(), class_name: class.to_owned(), ..Default::default() };
            let system_tree_parent = Some(definitions.system_tree_nodes.push(node));
            let context = otf2::LocationGroup { system_tree_parent, ..Default::default() };
            let context = definitions.location_groups.push(context);
            accelerator(&definitions, context).number
        };
        assert_eq!(number("ROCm Device", "1"), Some(1));
        assert_eq!(number("device", "ROCm Device 1"), Some(1));
        assert_eq!(number("device", "GPU 12"), Some(12));
        assert_eq!(number("device", "NVIDIA A 100"), None, "a model");
        assert_eq!(number("node", "GPU 1"), None);
    }

    #[test]
    fn a_counter_comes_back() {
        let metric = "rocm_smi:::energy_count:device=2";
        let counter = CounterEvidence {
            kind: "gpu".to_owned(),
            pci: Some("0000:c9:00.0".to_owned()),
            uuid: Some("GPU-1".to_owned()),
            model: "AMD Instinct MI250X".to_owned(),
            ..CounterEvidence::default()
        };
        let mut definitions = Definitions::default();
        let node =
            SystemTreeNode { name: "n".to_owned(), class_name: "node".to_owned(), ..Default::default() };
        let node = definitions.system_tree_nodes.push(node);
        definitions.system_tree_nodes.push(counter_node(metric, &counter, node).unwrap());
        assert_eq!(of_counters(&definitions)[&("n".to_owned(), metric.to_owned())], counter);
        assert_eq!(
            counter_node("estimate:::energy", &CounterEvidence { kind: "node".to_owned(), ..counter }, node),
            None
        );
    }

    #[test]
    fn a_trace_is_read_as_it_was_written() {
        let node = CounterTraits {
            kind: "node".to_owned(),
            contains: vec![
                "rapl:::energy:package-0".to_owned(),
                "rocm_smi:::energy_count:device=0".to_owned(),
            ],
            wraps_at: None,
            baseline_microwatts: None,
        };
        let gpu = CounterTraits {
            kind: "gpu".to_owned(),
            contains: Vec::new(),
            wraps_at: Some(1 << 32),
            baseline_microwatts: Some(60_000_000),
        };
        let mut properties = traits_properties(&node, "cray_pm:::energy:node");
        properties.extend(traits_properties(&gpu, "rocm_smi:::energy_count:device=0"));
        properties.extend(traits_properties(&CounterTraits::default(), "other"));
        assert_eq!(properties.len(), 5, "no property where nothing is known");
        let contains = vec!["core 0/energy".to_owned(), "core 1/energy".to_owned()];
        let other = CounterTraits { contains, ..CounterTraits::default() };
        properties.extend(traits_properties(&other, "other@package 0"));
        let mut definitions = Definitions::default();
        let location = Location {
            name: "ampere sampler".to_owned(),
            kind: LocationType::Metric,
            events: 0,
            group: None,
            properties,
        };
        definitions.locations.insert(LocationRef(7), location);
        let of = |counter| traits_of(&definitions, LocationRef(7), counter);
        assert_eq!(of("cray_pm:::energy:node"), Some(node));
        assert_eq!(of("rocm_smi:::energy_count:device=0"), Some(gpu));
        assert_eq!(of("other@package 0"), Some(other));
        assert_eq!(of("other"), None);
        assert_eq!(traits_of(&definitions, LocationRef(8), "other"), None);
    }
}
