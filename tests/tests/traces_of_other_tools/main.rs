//! Traces as other tools write them, with counters that are recorded in unusual ways. In each trace the power is 100 W for a
//! second, read every 50 ms, while `main` runs on each rank: 100 J must be found in every such trace.
//!
//! ```text
//! readings.rs   counters recorded in unusual ways        recorders.rs  who recorded a counter, and who used it
//! powers.rs     names, units and powers                   parts.rs      devices that are parts of others
//! leaves.rs     leaves out of order, any numbers          places.rs     scopes, nodes and ranks
//! activity.rs   who was active, and baselines           simulated.rs  counters that follow what threads do
//! gpus.rs       which kernels use which GPU              contexts.rs   frames that are sampled
//! ```

use ampere_tests::artifact;
use ampere_tests::jobs::Place;
use ampere_tests::runs::{assert_same_figures, attribute, list, number, succeed, text};
use otf2::{
    ArchiveWriter, ClockProperties, Definitions, EventWriter, Location, LocationGroup, LocationGroupRef,
    LocationGroupType, LocationRef, LocationType, MetricBase, MetricClass, MetricClassRef, MetricInstance,
    MetricMember, MetricMode, MetricOccurrence, MetricRef, MetricScope, MetricType, MetricValue,
    MetricValueType, Property, PropertyValue, RecorderKind, Region, RegionRef, SystemTreeDomain,
    SystemTreeNode, SystemTreeNodeRef,
};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

mod activity;
mod contexts;
mod gpus;
mod leaves;
mod parts;
mod places;
mod powers;
mod readings;
mod recorders;
mod simulated;

const SECOND: u64 = 1_000_000;
const WATTS: u64 = 100;
const READINGS: u64 = 20;

struct Trace {
    place: Place,
    archive: ArchiveWriter,
    definitions: Definitions,
    main: RegionRef,
}

impl Trace {
    fn new() -> Trace {
        let place = Place::new();
        let directory = place.path("trace");
        std::fs::create_dir(&directory).expect("a directory");
        let archive = ArchiveWriter::create(&directory).expect("an archive");
        let clock = ClockProperties {
            timer_resolution: SECOND,
            trace_length: 10 * SECOND,
            ..ClockProperties::default()
        };
        let mut definitions = Definitions { clock, ..Definitions::default() };
        let main = definitions.regions.push(Region { name: "main".into(), ..Region::default() });
        Trace { place, archive, definitions, main }
    }

    fn node(&mut self, name: &str) -> SystemTreeNodeRef {
        let class_name = "node".into();
        let node = SystemTreeNode { name: name.into(), class_name, ..SystemTreeNode::default() };
        self.definitions.system_tree_nodes.push(node)
    }

    /// Adds the main thread of a rank.
    fn rank(&mut self, rank: u64, node: SystemTreeNodeRef) -> LocationRef {
        let group = self.definitions.location_groups.push(LocationGroup {
            name: format!("MPI Rank {rank}"),
            kind: LocationGroupType::Process,
            system_tree_parent: Some(node),
            creating_location_group: None,
            properties: Vec::new(),
        });
        let location = Location {
            name: "Master thread".into(),
            kind: LocationType::CpuThread,
            events: 0,
            group: Some(group),
            properties: Vec::new(),
        };
        self.definitions.locations.insert(LocationRef(rank), location);
        LocationRef(rank)
    }

    fn writer(&self, location: LocationRef) -> EventWriter<'_> {
        self.archive.event_writer(location).expect("a location")
    }

    /// Adds a further thread of the rank that a main thread belongs to.
    fn thread(&mut self, main: LocationRef, name: &str) -> LocationRef {
        let group = self.definitions.locations.get(main).and_then(|main| main.group).expect("a group");
        self.location(LocationType::CpuThread, name, group)
    }

    /// Adds ampere's metric of the CPU time that a location has used, in nanoseconds.
    fn cpu_time(&mut self) -> MetricClassRef {
        let nanoseconds = (MetricBase::Decimal, -9);
        self.metric_in("ampere::cpu_time", "s", nanoseconds, MetricMode::AccumulatedStart)
    }

    /// Adds a GPU stream of a rank, with a context of its own.
    fn stream(&mut self, rank: u64, name: &str) -> LocationRef {
        let process = self.definitions.locations.get(LocationRef(rank)).and_then(|l| l.group);
        let node = process.and_then(|p| self.definitions.location_groups.get(p)?.system_tree_parent);
        let group = self.definitions.location_groups.push(LocationGroup {
            name: format!("HIP Context of {rank}"),
            kind: LocationGroupType::Accelerator,
            system_tree_parent: node,
            creating_location_group: process,
            properties: Vec::new(),
        });
        let reference = LocationRef((1 << 32) | rank);
        let location = Location {
            name: name.into(),
            kind: LocationType::AcceleratorStream,
            events: 0,
            group: Some(group),
            properties: Vec::new(),
        };
        self.definitions.locations.insert(reference, location);
        reference
    }

    /// Adds a metric whose unit is 10^exponent joules.
    fn metric(&mut self, name: &str, exponent: i64, mode: MetricMode) -> MetricClassRef {
        self.metric_in(name, "J", (MetricBase::Decimal, exponent), mode)
    }

    fn metric_in(
        &mut self,
        name: &str,
        unit: &str,
        (base, exponent): (MetricBase, i64),
        mode: MetricMode,
    ) -> MetricClassRef {
        let member = self.definitions.metric_members.push(MetricMember {
            name: name.into(),
            description: String::new(),
            kind: MetricType::Other,
            mode,
            value_type: MetricValueType::U64,
            base,
            exponent,
            unit: unit.into(),
        });
        self.definitions.add_metric_class(MetricClass {
            members: vec![member],
            occurrence: MetricOccurrence::Asynchronous,
            recorder_kind: RecorderKind::Abstract,
            recorders: Vec::new(),
        })
    }

    fn part(
        &mut self,
        class: &str,
        name: &str,
        parent: Option<SystemTreeNodeRef>,
        domains: &[SystemTreeDomain],
    ) -> SystemTreeNodeRef {
        self.definitions.system_tree_nodes.push(SystemTreeNode {
            name: name.into(),
            class_name: class.into(),
            parent,
            domains: domains.to_vec(),
            properties: Vec::new(),
        })
    }

    /// Adds a location group, which belongs to a process once it has a thread.
    fn group(&mut self, name: &str, node: SystemTreeNodeRef) -> LocationGroupRef {
        self.definitions.location_groups.push(LocationGroup {
            name: name.into(),
            kind: LocationGroupType::Process,
            system_tree_parent: Some(node),
            ..LocationGroup::default()
        })
    }

    /// Adds a thread of a group, or a location that has only metrics.
    fn location(&mut self, kind: LocationType, name: &str, group: LocationGroupRef) -> LocationRef {
        let number = self.definitions.locations.last().map_or(0, |last| last.0 + 1);
        let location = Location { name: name.into(), kind, group: Some(group), ..Location::default() };
        self.definitions.locations.insert(LocationRef(number), location);
        LocationRef(number)
    }

    fn region(&mut self, name: &str) -> RegionRef {
        let known = self.definitions.regions.iter().find(|(_, region)| region.name == name);
        let known = known.map(|(reference, _)| reference);
        known.unwrap_or_else(|| {
            self.definitions.regions.push(Region { name: name.into(), ..Region::default() })
        })
    }

    /// Adds a class with these metrics in joules or another unit. Their values are floating-point numbers.
    fn class(&mut self, metrics: &[(&str, &str)]) -> MetricClassRef {
        let members = metrics.iter().map(|(name, unit)| {
            let is_power = is_unit_of_power(unit);
            self.definitions.metric_members.push(MetricMember {
                name: (*name).into(),
                mode: if is_power { MetricMode::AbsolutePoint } else { MetricMode::AccumulatedStart },
                value_type: MetricValueType::F64,
                unit: (*unit).into(),
                ..MetricMember::default()
            })
        });
        let members = members.collect();
        self.definitions.add_metric_class(MetricClass { members, ..MetricClass::default() })
    }

    /// Adds an instance of a class, whose values `recorder` records about the scope.
    fn about(
        &mut self,
        class: MetricClassRef,
        recorder: LocationRef,
        scope: MetricScope,
        scope_number: u64,
    ) -> MetricRef {
        let instance = MetricInstance { class, recorder, scope, scope_number };
        MetricRef { class, instance: Some(self.definitions.add_metric_instance(instance)) }
    }

    /// Writes enters (`+main`) and leaves (`-main`) of a location. Times are in tenths of a second.
    fn calls(&mut self, location: LocationRef, calls: &[(u64, &str)]) {
        let calls: Vec<_> =
            calls.iter().map(|(time, name)| (*time, *name, self.region(&name[1..]))).collect();
        let mut writer = self.writer(location);
        for (tenth, name, region) in calls {
            let time = tenth * SECOND / 10;
            let done =
                if name.starts_with('+') { writer.enter(time, region) } else { writer.leave(time, region) };
            done.expect("an event");
        }
        writer.close().expect("a location");
    }

    /// Writes readings every 10 ms from 0 to 4 s. Each metric is given by its value at the start and its increase per second,
    /// which is 0 for a power.
    fn reads(&mut self, location: LocationRef, metrics: &[(MetricRef, &[(f64, f64)])]) {
        let mut writer = self.writer(location);
        for hundredth in 0..=400u64 {
            for (metric, values) in metrics {
                let at =
                    |(begin, rise): &(f64, f64)| MetricValue::F64(begin + rise * hundredth as f64 / 100.0);
                let values: Vec<_> = values.iter().map(at).collect();
                writer.metric(hundredth * SECOND / 100, *metric, &values).expect("a sample");
            }
        }
        writer.close().expect("a location");
    }

    fn counter(&mut self) -> MetricClassRef {
        self.metric("energy", -6, MetricMode::AccumulatedStart)
    }

    fn attribute(self, more: &[&str]) -> Value {
        attribute(&self.finish().1, more)
    }

    fn finish(self) -> (Place, PathBuf) {
        self.archive.finish(&self.definitions).expect("a trace");
        let trace = self.place.path("trace/traces.otf2");
        (self.place, trace)
    }

    /// Returns the results of `ampere attribute` and of `replay`. Their numbers of calls differ if frames continue
    /// without the frames around them.
    fn attribute_and_replay(self) -> [Value; 2] {
        let (place, trace) = self.finish();
        let mut replay = place.command(artifact("ampere"));
        succeed(replay.arg("replay").arg(&trace).args(["--speed", "max", "-o"]).arg(place.path("out")));
        [attribute(&trace, &[]), place.summary("out")]
    }

    /// See [`everywhere`].
    fn everywhere(self) -> Value {
        let (place, trace) = self.finish();
        everywhere(&place, &trace)
    }
}

/// Returns the result of `ampere attribute`. `replay`, the trace that it writes, and `report -f chrome` must have the same
/// figures.
fn everywhere(place: &Place, trace: &Path) -> Value {
    let offline = attribute(trace, &[]);
    let mut replay = place.command(artifact("ampere"));
    succeed(replay.arg("replay").arg(trace).args(["--speed", "max", "-o"]).arg(place.path("out")));
    let live = place.summary("out");
    assert_same_figures(&live, &offline);
    assert_same_figures(&attribute(&place.path("out/traces.otf2"), &[]), &offline);
    for key in ["complete", "energy", "nodes"] {
        assert_eq!(live["run"][key], offline["run"][key], "{key}: {}", live["run"]);
    }
    let (said, known) = (live["run"]["notes"].to_string(), list(&offline["run"], "notes"));
    assert!(known.iter().all(|note| said.contains(note.as_str().unwrap_or("?"))), "{known:?} not in {said}");
    let mut report = place.command(artifact("ampere"));
    let report = succeed(report.args(["report", "-f", "chrome"]).arg(place.path("out")));
    assert_eq!(text(&report.stderr), "", "what is drawn is what the summary has");
    let events: Value = serde_json::from_slice(&report.stdout).expect("JSON");
    let names = |list: &[Value], key: &str| -> BTreeSet<String> {
        list.iter().filter_map(|entry| entry[key].as_str()).map(str::to_owned).collect()
    };
    let drawn = list(&events, "traceEvents").iter().filter(|event| event["ph"] == "C").cloned();
    let drawn = names(&drawn.collect::<Vec<_>>(), "name");
    let drawn: BTreeSet<_> =
        drawn.iter().filter_map(|name| name.split(" [").next()).map(str::to_owned).collect();
    assert_eq!(drawn, names(list(&offline, "devices"), "name"));
    offline
}

/// Writes `main` from the first reading to the last, and readings of a counter of this unit, which has a zero of its own.
fn a_second(trace: &Trace, writer: &mut EventWriter, class: MetricClassRef, units_per_joule: u64, late: u64) {
    for reading in 0..=READINGS {
        let time = SECOND + reading * SECOND / READINGS;
        if reading == 0 {
            writer.enter(time, trace.main).expect("an event");
        }
        let joules_by_20 = reading * WATTS;
        let value = joules_by_20 * units_per_joule / READINGS + late;
        writer.metric(time + late, class, &[MetricValue::U64(value)]).expect("a sample");
    }
    writer.leave(2 * SECOND + late, trace.main).expect("an event");
}

fn is_unit_of_power(unit: &str) -> bool {
    let unit = unit.to_lowercase();
    unit.ends_with('w') || unit.ends_with("watt") || unit.ends_with("watts") || unit.ends_with("/s")
}

fn joules(summary: &Value) -> Vec<f64> {
    list(summary, "devices").iter().map(|device| number(device, "total_joules")).collect()
}

/// Joules of all devices that are not parts of others.
fn total(summary: &Value) -> f64 {
    number(&summary["run"], "total_joules")
}

/// Returns a region's own joules on all devices.
fn of_region(summary: &Value, view: &str, name: &str) -> f64 {
    let views = list(summary, "devices").iter().flat_map(|device| list(device, "views"));
    let rows = views.filter(|of| of["view"] == view).flat_map(|of| list(of, "regions"));
    rows.filter(|row| row["region"] == name).map(|row| number(row, "exclusive_joules")).sum()
}

fn idle(summary: &Value, view: &str) -> f64 {
    let views = list(summary, "devices").iter().flat_map(|device| list(device, "views"));
    views.filter(|of| of["view"] == view).map(|of| number(of, "idle_joules")).sum()
}

fn notes(summary: &Value) -> String {
    summary["run"]["notes"].to_string()
}

#[track_caller]
fn assert_joules_are(joules: &[f64], expected: &[f64]) {
    assert_eq!(joules.len(), expected.len(), "{joules:?}");
    let close = joules.iter().zip(expected).all(|(is, should)| (is - should).abs() < 1e-6);
    assert!(close, "{joules:?} and not {expected:?}");
}

const GPU: &str = "A2rocm_smi:::energy_count:device=0";

/// Adds ranks of one node. Each runs `main` for a second, and records a counter of this name at these watts from a zero of its
/// own. Like PAPI's counters, it is in microjoules and has no unit.
fn ranks_with(trace: &mut Trace, name: &str, watts: &[f64]) {
    let node = trace.node("a");
    let class = trace.metric_in(name, "#", (MetricBase::Decimal, 0), MetricMode::AccumulatedStart);
    for (rank, watts) in (0..).zip(watts) {
        let location = trace.rank(rank, node);
        let mut writer = trace.writer(location);
        writer.enter(SECOND, trace.main).expect("an event");
        for reading in 0..=READINGS {
            let microjoules = watts * 1e6 * reading as f64 / READINGS as f64;
            let value = MetricValue::U64(rank * 1_000_000 * u64::from(*watts > 0.0) + microjoules as u64);
            let time = SECOND + reading * SECOND / READINGS;
            writer.metric(time, class, &[value]).expect("a sample");
        }
        writer.leave(2 * SECOND, trace.main).expect("an event");
        writer.close().expect("a location");
    }
}

fn names(summary: &Value) -> Vec<&str> {
    list(summary, "devices").iter().filter_map(|device| device["name"].as_str()).collect()
}

/// Joules of a device in the ranks view by location group.
fn by_rank(device: &Value) -> Vec<(&str, f64)> {
    let rows = list(&list(device, "views")[0], "callpaths").iter();
    rows.map(|row| (row["location_group"].as_str().expect("a name"), number(row, "exclusive_joules")))
        .collect()
}
