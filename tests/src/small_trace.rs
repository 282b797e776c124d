//! A small trace of one or several nodes, written from a few lines of text: counters, ranks, GPU streams. It is two seconds long
//! and always the same.
//!
//! ```text
//! counter 0                    rocm_smi's counter of GPU 0. "silent": it stays 0. "model=MI250X", "pci=193": what our own
//!                              traces record about the device
//! metric cpu_energy            any other counter, in microjoules
//! rank node0 ROCR_VISIBLE_DEVICES=1 HIP_VISIBLE_DEVICES=0     on that node, with these variables
//! stream HIP[0:0]              a GPU stream of the rank above. "tree=1", "pci=193", "uuid=GPU-x": its device in the system
//!                              tree. "orphan": the trace does not show which process it belongs to
//! ```

use otf2::{
    ArchiveWriter, Definitions, EventWriter, Location, LocationGroup, LocationGroupRef, LocationGroupType,
    LocationRef, LocationType, MetricBase, MetricClass, MetricClassRef, MetricMember, MetricMode,
    MetricOccurrence, MetricType, MetricValue, MetricValueType, Property, PropertyValue, RecorderKind,
    Region, RegionRef, SystemTreeDomain, SystemTreeNode, SystemTreeNodeRef,
};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const TICKS_PER_SECOND: u64 = 1_000_000;
const START: u64 = 1 << 40;
/// The trace is two seconds long, in steps of a millisecond.
const STEPS: u64 = 2000;

fn at(step: u64) -> u64 {
    START + step * TICKS_PER_SECOND / 1000
}

struct Trace {
    archive: ArchiveWriter,
    definitions: Definitions,
    regions: Vec<RegionRef>,
    next: u64,
    nodes: BTreeMap<String, SystemTreeNodeRef>,
}

/// Writes the trace into a new directory. Returns the path of its anchor file.
pub fn write(directory: &Path, text: &str) -> PathBuf {
    std::fs::create_dir_all(directory).expect("a directory");
    let mut trace = Trace {
        archive: ArchiveWriter::create(directory).expect("an archive"),
        definitions: Definitions::default(),
        regions: Vec::new(),
        next: 0,
        nodes: BTreeMap::new(),
    };
    trace.definitions.clock.timer_resolution = TICKS_PER_SECOND;
    trace.definitions.clock.global_offset = START;
    trace.definitions.clock.trace_length = at(STEPS) - START + 1;
    for name in ["main", "solve", "kernel"] {
        let region = Region { name: name.into(), canonical_name: name.into(), ..Region::default() };
        let region = trace.definitions.regions.push(region);
        trace.regions.push(region);
    }
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    let (mut counters, mut described) = (Vec::new(), Vec::new());
    let (mut rank, mut process) = (0, None);
    for words in lines.iter().filter(|words| !words.is_empty()) {
        match words[..] {
            ["counter", number, ref more @ ..] => {
                let metric = format!("rocm_smi:::energy_count:device={number}");
                described.push((metric.clone(), more.to_vec()));
                counters.push((trace.metric(metric, "#"), !more.contains(&"silent")));
            }
            ["metric", name] => counters.push((trace.metric(name.to_owned(), "uJ"), true)),
            ["rank", node, ref variables @ ..] => {
                process = Some(trace.rank(node, rank, variables));
                rank += 1;
            }
            ["stream", name, ref more @ ..] => {
                let (group, node) = process.expect("a rank before its streams");
                trace.stream(name, more, group, node, rank);
            }
            _ => panic!("{words:?}"),
        }
    }
    let nodes = trace.nodes.clone();
    for (name, node) in nodes {
        trace.samples(&name, node, &counters);
        described.iter().for_each(|(metric, more)| trace.describe_counter(metric, more, node));
    }
    trace.archive.finish(&trace.definitions).expect("a trace");
    directory.join("traces.otf2")
}

fn properties(of: &[(&str, &str)]) -> Vec<Property> {
    let value = |text: &str| PropertyValue::String(text.to_owned());
    of.iter().map(|(name, text)| Property { name: (*name).to_owned(), value: value(text) }).collect()
}

impl Trace {
    fn node(&mut self, name: &str) -> SystemTreeNodeRef {
        let definitions = &mut self.definitions;
        *self.nodes.entry(name.to_owned()).or_insert_with(|| {
            let (name, class_name) = (name.to_owned(), "node".to_owned());
            definitions.system_tree_nodes.push(SystemTreeNode { name, class_name, ..Default::default() })
        })
    }

    fn location(
        &mut self,
        group: LocationGroupRef,
        name: &str,
        kind: LocationType,
        events: impl FnOnce(&mut EventWriter, &[RegionRef]),
    ) {
        let reference = LocationRef(self.next);
        self.next += 1;
        let mut writer = self.archive.event_writer(reference).expect("a location");
        events(&mut writer, &self.regions);
        let events = writer.close().expect("a location");
        let location =
            Location { name: name.to_owned(), kind, events, group: Some(group), ..Default::default() };
        self.definitions.locations.insert(reference, location);
    }

    /// Writes a rank that is in `main` all the time, and in `solve` for a time that depends on the rank's number.
    fn rank(&mut self, node: &str, rank: u64, variables: &[&str]) -> (LocationGroupRef, SystemTreeNodeRef) {
        let node = self.node(node);
        let variables: Vec<(&str, &str)> =
            variables.iter().map(|text| text.split_once('=').expect("NAME=value")).collect();
        let group = self.definitions.location_groups.push(LocationGroup {
            name: format!("MPI Rank {rank}"),
            kind: LocationGroupType::Process,
            system_tree_parent: Some(node),
            creating_location_group: None,
            properties: properties(&variables),
        });
        self.location(group, "Master thread", LocationType::CpuThread, |writer, regions| {
            writer.enter(at(0), regions[0]).expect("an event");
            for call in 0..20 {
                writer.enter(at(call * 100 + 7 * rank + 1), regions[1]).expect("an event");
                writer.leave(at(call * 100 + 7 * rank + 11 + rank), regions[1]).expect("an event");
            }
            writer.leave(at(STEPS), regions[0]).expect("an event");
        });
        (group, node)
    }

    fn describe_counter(&mut self, metric: &str, more: &[&str], node: SystemTreeNodeRef) {
        let value = |key: &str| more.iter().find_map(|word| word.strip_prefix(key)?.strip_prefix('='));
        let mut pairs = vec![("metric", metric)];
        pairs.extend(value("model").map(|model| ("Device name", model)));
        pairs.extend(value("pci").map(|bus| ("PCI Bus ID", bus)));
        if pairs.len() > 1 {
            self.definitions.system_tree_nodes.push(SystemTreeNode {
                name: "a counter".to_owned(),
                class_name: "energy counter".to_owned(),
                parent: Some(node),
                domains: Vec::new(),
                properties: properties(&pairs),
            });
        }
    }

    fn stream(
        &mut self,
        name: &str,
        more: &[&str],
        process: LocationGroupRef,
        node: SystemTreeNodeRef,
        rank: u64,
    ) {
        let value = |key: &str| more.iter().find_map(|word| word.strip_prefix(key)?.strip_prefix('='));
        let mut pairs = Vec::new();
        if let Some(bus) = value("pci") {
            pairs.extend([("PCI Domain ID", "0"), ("PCI Bus ID", bus), ("PCI Device ID", "0")]);
        }
        pairs.extend(value("uuid").map(|uuid| ("UUID", uuid)));
        let device = self.definitions.system_tree_nodes.push(SystemTreeNode {
            name: value("tree").unwrap_or("?").to_owned(),
            class_name: "ROCm Device".to_owned(),
            parent: Some(node),
            domains: vec![SystemTreeDomain::AcceleratorDevice],
            properties: properties(&pairs),
        });
        let context = self.definitions.location_groups.push(LocationGroup {
            name: format!("Context of {name}"),
            kind: LocationGroupType::Accelerator,
            system_tree_parent: Some(device),
            creating_location_group: (!more.contains(&"orphan")).then_some(process),
            properties: Vec::new(),
        });
        self.location(context, name, LocationType::AcceleratorStream, |writer, regions| {
            for kernel in 0..15 {
                writer.enter(at(kernel * 130 + 5 * rank), regions[2]).expect("an event");
                writer.leave(at(kernel * 130 + 60 + 9 * rank), regions[2]).expect("an event");
            }
        });
    }

    fn metric(&mut self, name: String, unit: &str) -> MetricClassRef {
        let member = self.definitions.metric_members.push(MetricMember {
            name,
            kind: MetricType::Other,
            mode: MetricMode::AccumulatedStart,
            value_type: MetricValueType::U64,
            base: MetricBase::Decimal,
            unit: unit.to_owned(),
            ..Default::default()
        });
        self.definitions.add_metric_class(MetricClass {
            members: vec![member],
            occurrence: MetricOccurrence::Asynchronous,
            recorder_kind: RecorderKind::Abstract,
            recorders: Vec::new(),
        })
    }

    /// Writes the samples of counters, each with a power of its own. The counters start one after the other, when some location
    /// is already running.
    fn samples(&mut self, name: &str, node: SystemTreeNodeRef, counters: &[(MetricClassRef, bool)]) {
        let group = self.definitions.location_groups.push(LocationGroup {
            name: format!("samplers of {name}"),
            kind: LocationGroupType::Process,
            system_tree_parent: Some(node),
            ..Default::default()
        });
        self.location(group, "sampler", LocationType::Metric, |writer, _| {
            for step in (10..STEPS).step_by(10) {
                for (which, (class, counts)) in counters.iter().enumerate() {
                    let which = which as u64;
                    if step < 50 * (which + 1) {
                        continue;
                    }
                    let value = if *counts { 1_000_000 + step * 1000 * (100 + 17 * which) } else { 0 };
                    writer.metric(at(step) + which, *class, &[MetricValue::U64(value)]).expect("a sample");
                }
            }
        });
    }
}
