//! A trace as events of Chrome's format, which Perfetto (ui.perfetto.dev) and chrome://tracing show: what every location was
//! in, below the power of each device. Times are in microseconds since the trace's begin.

use super::Choice;
use crate::attributor::{Attributor, FoundDevice};
use crate::config::Config;
use crate::numbers::NumberTable;
use crate::offline::{self, Classes, Recorders};
use crate::summary::{Device, Summary};
use crate::text::joules;
use ampere_attribution::Increase;
use anyhow::{Context, bail};
use otf2::{
    AttributeRef, Definitions, EventHandler, LocationRef, LocationType, MetricRef, MetricValue, RegionRef,
    Trace,
};
use serde_json::json;
use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::path::Path;

/// What is shown may differ from the summary by this part of it, as with samples that are out of order.
const LIKE: f64 = 1e-3;
/// Of an application's regions there may be as many as it likes: names of more are not remembered.
const MOST_NAMES: usize = 1 << 20;

/// Writes what the trace has of what is in `summary`, and returns what is missing, in a line each. Nothing is kept in
/// memory but names: a trace may have more events than that. `progress` gets the number of events written so far, and the
/// number to expect.
pub fn write(
    trace: &Path,
    summary: &Summary,
    choice: &Choice,
    config: &Config,
    out: &mut dyn Write,
    progress: &mut dyn FnMut(u64, u64),
) -> anyhow::Result<Vec<String>> {
    let mut trace = Trace::open(trace)?;
    let expected = trace.events_expected();
    let definitions = trace.definitions().clone();
    let mut warnings: Vec<String> =
        trace.missing().iter().map(|l| offline::missing_line(&trace, *l)).collect();
    let mut step = |done| progress(done, expected);
    let mut writer = Writer::new(&definitions, summary, config, out, &mut step);
    let run = json!({
        "run": summary.run.id, "command": summary.run.command.join(" "), "start": summary.run.start,
        "energy": summary.run.energy, "complete": summary.run.complete,
    });
    write!(writer.out, "{{\"displayTimeUnit\":\"ms\",\"otherData\":{run},\"traceEvents\":[")
        .context("the report")?;
    writer.name_locations(choice).context("the report")?;
    let report = trace.read_events(&mut writer)?;
    let ended = writer.end_samples();
    let Writer { failure, devices, .. } = writer;
    failure.map_or(ended, Err).context("the report")?;
    out.write_all(b"\n]}\n").and_then(|()| out.flush()).context("the report")?;
    for (location, why) in &report.truncated {
        warnings.push(format!("location {} is shown up to where its events end: {why}", location.0));
    }
    for device in summary.devices.iter().filter(|device| device.unit == "J") {
        let drawn = devices.get(&(device.node.clone(), device.metric.clone())).and_then(Option::as_ref);
        warnings.extend(unlike(device, drawn.map(|power| power.joules)));
    }
    Ok(warnings)
}

/// One line if the power that is drawn is not what the summary's joules are of.
fn unlike(device: &Device, drawn: Option<f64>) -> Option<String> {
    let (name, node) = (&device.name, &device.node);
    let Some(drawn) = drawn else {
        return Some(format!("the trace has no samples of {name} on {node}: its power is not shown"));
    };
    let is_like = (drawn - device.total_joules).abs() <= LIKE * device.total_joules.abs().max(1.0);
    (!is_like).then(|| {
        format!(
            "the power of {name} on {node} that is shown adds up to {} J, the summary has {} J: were the run's settings others (--config), or is the trace cut?",
            joules(drawn),
            joules(device.total_joules)
        )
    })
}

/// The trace that belongs to a summary.
pub fn trace_beside(summary: &Path) -> anyhow::Result<std::path::PathBuf> {
    let directory = if summary.is_dir() { summary } else { summary.parent().unwrap_or(Path::new(".")) };
    let trace = directory.join("traces.otf2");
    if !trace.exists() {
        bail!(
            "there is no trace in {}: this format shows events, which a summary does not have (a run's trace is \
             written when it is over)",
            directory.display()
        );
    }
    Ok(trace)
}

struct Lane {
    process: usize,
    thread: usize,
    open: u32,
    last: u64,
}

/// Where a device's power is drawn.
struct Power {
    /// Among the attributor's.
    device: usize,
    process: usize,
    /// As JSON.
    name: String,
    last: Option<u64>,
    /// That what is drawn adds up to.
    joules: f64,
}

struct Writer<'a> {
    out: &'a mut dyn Write,
    progress: &'a mut dyn FnMut(u64),
    done: u64,
    failure: Option<io::Error>,
    definitions: &'a Definitions,
    summary: &'a Summary,
    is_first: bool,
    lanes: NumberTable<Lane>,
    /// Nodes and location groups, as Chrome's processes.
    processes: usize,
    nodes: BTreeMap<String, usize>,
    /// As JSON.
    names: HashMap<RegionRef, String>,
    members: Classes,
    attributor: Attributor,
    recorders: Recorders,
    devices: HashMap<(String, String), Option<Power>>,
    calls: Option<AttributeRef>,
}

impl<'a> Writer<'a> {
    fn new(
        definitions: &'a Definitions,
        summary: &'a Summary,
        config: &Config,
        out: &'a mut dyn Write,
        progress: &'a mut dyn FnMut(u64),
    ) -> Writer<'a> {
        Writer {
            out,
            progress,
            done: 0,
            failure: None,
            definitions,
            summary,
            is_first: true,
            lanes: NumberTable::default(),
            processes: 0,
            nodes: BTreeMap::new(),
            names: HashMap::new(),
            members: offline::classes(definitions, config),
            attributor: Attributor::new(config.clone(), definitions.clock.timer_resolution),
            devices: HashMap::new(),
            recorders: Recorders::default(),
            calls: offline::calls_attribute(definitions),
        }
    }

    fn put(&mut self, event: std::fmt::Arguments<'_>) -> io::Result<()> {
        let separator = if std::mem::take(&mut self.is_first) { "\n" } else { ",\n" };
        self.out.write_all(separator.as_bytes())?;
        self.out.write_fmt(event)
    }

    /// The first failure ends it.
    fn go_on(&mut self, written: io::Result<()>) -> ControlFlow<()> {
        self.done += 1;
        if self.done.is_multiple_of(1 << 18) {
            (self.progress)(self.done);
        }
        match written {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                self.failure.get_or_insert(error);
                ControlFlow::Break(())
            }
        }
    }

    fn new_process(&mut self, name: &str, label: &str) -> io::Result<usize> {
        self.processes += 1;
        let process = self.processes;
        let (name, label) = (json!(name), json!(label));
        self.put(format_args!(
            r#"{{"ph":"M","pid":{process},"name":"process_name","args":{{"name":{name}}}}}"#
        ))?;
        self.put(format_args!(
            r#"{{"ph":"M","pid":{process},"name":"process_labels","args":{{"labels":{label}}}}}"#
        ))?;
        self.put(format_args!(
            r#"{{"ph":"M","pid":{process},"name":"process_sort_index","args":{{"sort_index":{process}}}}}"#
        ))?;
        Ok(process)
    }

    /// Nodes first, for what is drawn of their devices, then ranks and contexts of GPUs in the trace's order.
    fn name_locations(&mut self, choice: &Choice) -> io::Result<()> {
        let mut nodes: Vec<String> = self.summary.devices.iter().map(|device| device.node.clone()).collect();
        nodes.sort_unstable();
        nodes.dedup();
        for node in nodes {
            let title = format!("power on {}", if node.is_empty() { "this node" } else { &node });
            let process = self.new_process(&title, "")?;
            self.nodes.insert(node, process);
        }
        let mut groups = HashMap::new();
        let kind = |kind: LocationType| match kind {
            LocationType::CpuThread => Some("ranks"),
            LocationType::AcceleratorStream => Some("kernels"),
            _ => None,
        };
        let definitions = self.definitions;
        for (at, (reference, location)) in definitions.locations.iter().enumerate() {
            let wanted =
                kind(location.kind).filter(|kind| choice.view.as_ref().is_none_or(|view| view == kind));
            if wanted.is_none() {
                continue;
            }
            let process = match groups.get(&location.group) {
                Some(process) => *process,
                None => {
                    let group = location.group.and_then(|group| definitions.location_groups.get(group));
                    let node = offline::node_of(definitions, reference);
                    let process = self.new_process(group.map_or("", |group| &group.name), &node)?;
                    groups.insert(location.group, process);
                    process
                }
            };
            let (thread, name) = (at + 1, json!(location.name));
            self.put(format_args!(
                r#"{{"ph":"M","pid":{process},"tid":{thread},"name":"thread_name","args":{{"name":{name}}}}}"#
            ))?;
            self.put(format_args!(
                r#"{{"ph":"M","pid":{process},"tid":{thread},"name":"thread_sort_index","args":{{"sort_index":{at}}}}}"#
            ))?;
            self.lanes.insert(reference.0, Lane { process, thread, open: 0, last: 0 });
        }
        Ok(())
    }

    /// Microseconds since the trace's begin, to the nanosecond.
    fn time(&self, ticks: u64) -> Microseconds {
        let clock = &self.definitions.clock;
        let since = u128::from(ticks.saturating_sub(clock.global_offset));
        Microseconds(since * 1_000_000_000 / u128::from(clock.timer_resolution.max(1)))
    }

    fn name(&mut self, region: RegionRef) -> String {
        if let Some(name) = self.names.get(&region) {
            return name.clone();
        }
        let known = self.definitions.regions.get(region);
        let name = known.map_or_else(|| format!("region {}", region.0), |region| region.name.clone());
        let name = json!(name).to_string();
        if self.names.len() < MOST_NAMES {
            self.names.insert(region, name.clone());
        }
        name
    }

    fn begin(
        &mut self,
        location: LocationRef,
        time: u64,
        region: RegionRef,
        calls: Option<u64>,
    ) -> io::Result<()> {
        let name = self.name(region);
        let at = self.time(time);
        let Some(lane) = self.lanes.get_mut(location.0) else { return Ok(()) };
        (lane.open, lane.last) = (lane.open + 1, time);
        let (process, thread) = (lane.process, lane.thread);
        match calls {
            None => self.put(format_args!(
                r#"{{"ph":"B","pid":{process},"tid":{thread},"ts":{at},"name":{name}}}"#
            )),
            Some(calls) => self.put(format_args!(
                r#"{{"ph":"B","pid":{process},"tid":{thread},"ts":{at},"name":{name},"args":{{"calls":{calls}}}}}"#
            )),
        }
    }

    fn end_one(&mut self, location: LocationRef, time: u64) -> io::Result<()> {
        let at = self.time(time);
        let Some(lane) = self.lanes.get_mut(location.0).filter(|lane| lane.open > 0) else { return Ok(()) };
        (lane.open, lane.last) = (lane.open - 1, time);
        let (process, thread) = (lane.process, lane.thread);
        self.put(format_args!(r#"{{"ph":"E","pid":{process},"tid":{thread},"ts":{at}}}"#))
    }

    /// A device's power is known between two samples: it is drawn from the first of them on.
    fn sample(
        &mut self,
        key: (String, String),
        joules: Option<f64>,
        time: u64,
        value: &MetricValue,
    ) -> io::Result<()> {
        if !self.devices.contains_key(&key) {
            let power = self.power_of(&key, joules);
            self.devices.insert(key.clone(), power);
        }
        let Some(Some(power)) = self.devices.get_mut(&key) else { return Ok(()) };
        let device = &mut self.attributor.devices[power.device];
        let (time, increase) = offline::read(device, time, value);
        let joules = match increase {
            Increase::Unusable => return Ok(()),
            Increase::Joules(joules) | Increase::Lost(joules) => joules,
            Increase::First | Increase::Reset => 0.0,
        };
        power.joules += joules;
        let (process, name) = (power.process, power.name.clone());
        let Some(from) = power.last.replace(time).filter(|from| *from < time) else { return Ok(()) };
        let seconds = (time - from) as f64 / self.definitions.clock.timer_resolution.max(1) as f64;
        self.put_power(process, &name, from, joules / seconds)
    }

    /// It is not known what came after the last sample.
    fn end_samples(&mut self) -> io::Result<()> {
        let devices = self.devices.values().flatten();
        let last: Vec<_> =
            devices.filter_map(|power| Some((power.process, power.name.clone(), power.last?))).collect();
        last.iter().try_for_each(|(process, name, time)| self.put_power(*process, name, *time, 0.0))
    }

    fn put_power(&mut self, process: usize, name: &str, time: u64, watts: f64) -> io::Result<()> {
        let at = self.time(time);
        self.put(format_args!(
            r#"{{"ph":"C","pid":{process},"ts":{at},"name":{name},"args":{{"W":{watts:.3}}}}}"#
        ))
    }

    fn power_of(&mut self, (node, metric): &(String, String), joules: Option<f64>) -> Option<Power> {
        let shown = |device: &&Device| device.unit == "J" && (&device.node, &device.metric) == (node, metric);
        let shown = self.summary.devices.iter().find(shown)?;
        let device = self.attributor.add_device(FoundDevice {
            node: node.clone(),
            metric: metric.clone(),
            source: shown.source.clone(),
            quality: ampere_model::Quality::Measured, // not asked for here: the summary's is shown
            joules_per_unit: joules,
        })?;
        let quality = if shown.energy == "measured" { String::new() } else { format!(", {}", shown.energy) };
        let name = json!(format!("{} [W{quality}]", shown.name)).to_string();
        Some(Power {
            device,
            process: self.nodes.get(node).copied().unwrap_or(0),
            name,
            last: None,
            joules: 0.0,
        })
    }
}

/// Of nanoseconds.
struct Microseconds(u128);

impl std::fmt::Display for Microseconds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{:03}", self.0 / 1000, self.0 % 1000)
    }
}

impl EventHandler for Writer<'_> {
    fn enter(&mut self, location: LocationRef, time: u64, region: RegionRef) -> ControlFlow<()> {
        let written = self.begin(location, time, region, None);
        self.go_on(written)
    }

    fn attribute(&self) -> Option<AttributeRef> {
        self.calls
    }

    fn enter_with(
        &mut self,
        location: LocationRef,
        time: u64,
        region: RegionRef,
        calls: u64,
    ) -> ControlFlow<()> {
        let written = self.begin(location, time, region, Some(calls));
        self.go_on(written)
    }

    fn leave(&mut self, location: LocationRef, time: u64, _region: RegionRef) -> ControlFlow<()> {
        let written = self.end_one(location, time);
        self.go_on(written)
    }

    /// What was never left ends with the location's last event, as it does when it is attributed.
    fn end(&mut self, location: LocationRef) -> ControlFlow<()> {
        let (open, last) = self.lanes.get_mut(location.0).map_or((0, 0), |lane| (lane.open, lane.last));
        let written = (0..open).try_for_each(|_| self.end_one(location, last));
        self.go_on(written)
    }

    fn metric(
        &mut self,
        location: LocationRef,
        time: u64,
        metric: MetricRef,
        values: &[MetricValue],
    ) -> ControlFlow<()> {
        let members = std::mem::take(&mut self.members);
        let mut written = Ok(());
        for member in members.get(&metric.class).into_iter().flatten() {
            let Some(value) = values.get(member.position).filter(|_| written.is_ok()) else { continue };
            let key = (offline::node_of(self.definitions, location), member.name.clone());
            if self.recorders.is_first(&key, location) {
                written = self.sample(key, member.joules_per_unit, time, value);
            }
        }
        self.members = members;
        self.go_on(written)
    }
}
