//! Writes a trace as events of Chrome's format, which Perfetto (ui.perfetto.dev) and chrome://tracing show: the frames of every
//! location, below the power of each device. Times are in microseconds since the trace's start.

use crate::devices::TraceDevices;
use crate::index;
use crate::merged::Merged;
use crate::metric_recorders::Recorders;
use crate::metrics::Metrics;
use crate::places::node_of;
use ampere_attribution::{Increase, Sample};
use ampere_figures::summary::{Device, Summary};
use ampere_model::numbers::NumberTable;
use ampere_model::text::joules;
use ampere_report::Choice;
use ampere_settings::Config;
use ampere_timeline::attributor::Attributor;
use anyhow::{Context, bail};
use otf2::{
    AttributeRef, Definitions, EventHandler, Flow, LocationRef, LocationType, MetricRef, MetricValue,
    RegionRef, Trace,
};
use serde_json::json;
use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

/// The fraction by which the shown joules may differ from the summary's, for example because samples are out of order.
const JOULES_TOLERANCE: f64 = 1e-3;
/// An upper bound on the region names that are kept in memory: an application may have any number of regions.
const NAMES_MAX: usize = 1 << 20;

/// One node's part of a run: its trace and its summary.
pub struct Part {
    /// The path of the trace's anchor file.
    pub trace: PathBuf,
    pub summary: Summary,
}

/// Writes the events of traces and the power of their summaries' devices. Returns a line for each part that is missing. Only
/// names are kept in memory, so a trace may be larger than memory. `progress` gets the number of events written so far and the
/// expected number.
///
/// # Errors
/// A trace that cannot be read, or an output that cannot be written.
pub fn write(
    parts: &[Part],
    choice: &Choice,
    config: &Config,
    out: &mut dyn Write,
    progress: &mut dyn FnMut(u64, u64),
) -> anyhow::Result<Vec<String>> {
    let traces = parts.iter().map(|part| Trace::open(&part.trace)).collect::<Result<Vec<_>, _>>()?;
    let expected = traces.iter().map(Trace::events_expected).sum();
    let begins: Vec<Option<u64>> =
        traces.iter().map(|trace| trace.definitions().clock.realtime_timestamp).collect();
    let first_begin = begins.iter().flatten().min().copied();
    let mut warnings = Vec::new();
    let (mut written, mut processes) = (Output { out, is_first: true, done: 0, failure: None }, 0);
    for (at, ((part, mut trace), begin)) in parts.iter().zip(traces).zip(&begins).enumerate() {
        let Part { trace: path, summary } = part;
        let definitions = trace.definitions().clone();
        warnings.extend(trace.missing().iter().map(|l| index::missing_line(&trace, *l)));
        if begin.is_none() && parts.len() > 1 {
            warnings.push(format!("{} has no date: it is shown as starting at 0", path.display()));
        }
        if at == 0 {
            let run = json!({
                "run": summary.run.id, "command": summary.run.command.join(" "), "start": summary.run.start,
                "energy": summary.run.energy, "complete": parts.iter().all(|part| part.summary.run.complete),
            });
            write!(written.out, "{{\"displayTimeUnit\":\"ms\",\"otherData\":{run},\"traceEvents\":[")
                .context("the report")?;
        }
        let mut step = |done| progress(done, expected);
        let recorders = Some(Recorders::survey(path, config, None)?);
        let begin_ns = begin.zip(first_begin).map_or(0, |(begin, first)| begin - first);
        let mut writer =
            Writer::new(&definitions, (summary, begin_ns), config, recorders, written, &mut step);
        writer.processes = processes;
        writer.name_locations(choice).context("the report")?;
        let missing = trace.missing().to_vec();
        let mut merged = Merged::new(&definitions, &missing, &mut writer);
        let report = trace.read_events(&mut merged)?;
        if !report.stopped {
            let _ = merged.finish(); // the writer keeps its failure
        }
        let ended = writer.end_samples();
        let Writer { devices, written: until_now, processes: named, .. } = writer;
        (written, processes) = (until_now, named);
        written.failure.take().map_or(ended, Err).context("the report")?;
        for (location, why) in &report.truncated {
            warnings
                .push(format!("location {} is shown only up to the end of its events: {why}", location.0));
        }
        for device in summary.devices.iter().filter(|device| device.unit == "J") {
            let drawn = devices.values().flatten().find(|drawn| drawn.is_of(device));
            warnings.extend(unlike(device, drawn.map(|power| power.joules)));
        }
    }
    written.out.write_all(b"\n]}\n").and_then(|()| written.out.flush()).context("the report")?;
    Ok(warnings)
}

/// Returns a line if the shown power does not add up to the summary's joules.
fn unlike(device: &Device, drawn: Option<f64>) -> Option<String> {
    let (name, node) = (&device.name, &device.node);
    let Some(drawn) = drawn else {
        return Some(format!("the trace has no samples of {name} on {node}: its power is not shown"));
    };
    let is_equal =
        (drawn - device.total_joules).abs() <= JOULES_TOLERANCE * device.total_joules.abs().max(1.0);
    (!is_equal).then(|| {
        format!(
            "the shown power of {name} on {node} adds up to {} J, but the summary has {} J: the run had other settings (--config), or the trace is incomplete",
            joules(drawn),
            joules(device.total_joules)
        )
    })
}

/// Finds the trace that belongs to a summary: `traces.otf2` next to it, or the only anchor file there.
///
/// # Errors
/// There is no trace next to the summary, or there are several.
pub fn trace_next_to(summary: &Path) -> anyhow::Result<PathBuf> {
    let directory = if summary.is_dir() { summary } else { summary.parent().unwrap_or(Path::new(".")) };
    let trace = directory.join("traces.otf2");
    if trace.exists() {
        return Ok(trace);
    }
    let there = std::fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut anchors: Vec<PathBuf> =
        there.filter(|path| path.extension().is_some_and(|of| of == "otf2")).collect();
    anchors.sort();
    match anchors.as_slice() {
        [only] => Ok(only.clone()),
        [] => bail!(
            "there is no trace in {}: this format shows events, which a summary does not have: name the trace, traces.otf2 (a \
             run's trace is written when it has ended)",
            directory.display()
        ),
        [first, ..] => bail!(
            "there are {} traces in {}, and none is called traces.otf2: it is unknown which of them the summary belongs to ({}...)",
            anchors.len(),
            directory.display(),
            first.file_name().unwrap_or_default().display()
        ),
    }
}

/// A location's track in Chrome's format, with its open frames and the time of its last event.
struct Track {
    process: usize,
    thread: usize,
    open: u32,
    last: u64,
}

/// The power of a device, as it is shown.
struct Power {
    node: String,
    device: String,
    process: usize,
    /// The device's name as a JSON string.
    name: String,
    /// The power that the device draws without the job, if it is known. Power above it is shown as dynamic.
    baseline: Option<f64>,
    last: Option<u64>,
    joules: f64,
}

/// Where a power is shown, and how.
struct Curve {
    process: usize,
    name: String,
    baseline: Option<f64>,
}

impl Power {
    fn curve(&self) -> Curve {
        Curve { process: self.process, name: self.name.clone(), baseline: self.baseline }
    }

    fn is_of(&self, device: &Device) -> bool {
        (&self.node, &self.device) == (&device.node, &device.name)
    }
}

/// The output file, and the state that all traces share.
struct Output<'a> {
    out: &'a mut dyn Write,
    is_first: bool,
    done: u64,
    failure: Option<io::Error>,
}

struct Writer<'a, 'o> {
    written: Output<'o>,
    progress: &'a mut dyn FnMut(u64),
    definitions: &'a Definitions,
    summary: &'a Summary,
    /// The start of the current trace, in nanoseconds after the start of the first one.
    begin_ns: u64,
    tracks: NumberTable<Track>,
    /// The number of Chrome's processes so far, which are nodes and location groups.
    processes: usize,
    nodes: BTreeMap<String, usize>,
    /// Names of regions as JSON strings.
    names: HashMap<RegionRef, String>,
    attributor: Attributor,
    found: TraceDevices<'a>,
    /// The shown devices by the attributor's number; `None` for a device that is not shown.
    devices: HashMap<usize, Option<Power>>,
    calls: Option<AttributeRef>,
}

impl<'a, 'o> Writer<'a, 'o> {
    fn new(
        definitions: &'a Definitions,
        (summary, begin_ns): (&'a Summary, u64),
        config: &Config,
        recorders: Option<Recorders>,
        written: Output<'o>,
        progress: &'a mut dyn FnMut(u64),
    ) -> Writer<'a, 'o> {
        let mut found =
            TraceDevices::new(definitions, Metrics::new(definitions, config), recorders, Vec::new());
        let sources = summary
            .devices
            .iter()
            .map(|device| ((device.node.clone(), device.metric.clone()), device.source.clone()));
        found.sources = sources.collect();
        Writer {
            written,
            progress,
            definitions,
            summary,
            begin_ns,
            tracks: NumberTable::default(),
            processes: 0,
            nodes: BTreeMap::new(),
            names: HashMap::new(),
            attributor: Attributor::new(config.clone(), definitions.clock.timer_resolution),
            found,
            devices: HashMap::new(),
            calls: index::calls_attribute(definitions),
        }
    }

    fn put(&mut self, event: std::fmt::Arguments<'_>) -> io::Result<()> {
        let separator = if std::mem::take(&mut self.written.is_first) { "\n" } else { ",\n" };
        self.written.out.write_all(separator.as_bytes())?;
        self.written.out.write_fmt(event)
    }

    /// Counts an event. The first error ends the report.
    fn count(&mut self, written: io::Result<()>) -> Flow {
        self.written.done += 1;
        if self.written.done.is_multiple_of(1 << 18) {
            (self.progress)(self.written.done);
        }
        match written {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                self.written.failure.get_or_insert(error);
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

    /// Names the nodes first, for the power of their devices, then ranks and GPU contexts in the trace's order.
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
                    let node = node_of(definitions, reference);
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
            self.tracks.insert(reference.0, Track { process, thread, open: 0, last: 0 });
        }
        Ok(())
    }

    /// Converts a timestamp to microseconds since the start of the first trace, with nanoseconds as decimals.
    fn time(&self, ticks: u64) -> Microseconds {
        let clock = &self.definitions.clock;
        let since = u128::from(ticks.saturating_sub(clock.global_offset));
        let since_ns = since * 1_000_000_000 / u128::from(clock.timer_resolution.max(1));
        Microseconds(u128::from(self.begin_ns) + since_ns)
    }

    fn name(&mut self, region: RegionRef) -> String {
        if let Some(name) = self.names.get(&region) {
            return name.clone();
        }
        let known = self.definitions.regions.get(region);
        let name = known.map_or_else(|| format!("region {}", region.0), |region| region.name.clone());
        let name = json!(name).to_string();
        if self.names.len() < NAMES_MAX {
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
        let Some(track) = self.tracks.get_mut(location.0) else { return Ok(()) };
        (track.open, track.last) = (track.open + 1, time);
        let (process, thread) = (track.process, track.thread);
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
        let Some(track) = self.tracks.get_mut(location.0).filter(|track| track.open > 0) else {
            return Ok(());
        };
        (track.open, track.last) = (track.open - 1, time);
        let (process, thread) = (track.process, track.thread);
        self.put(format_args!(r#"{{"ph":"E","pid":{process},"tid":{thread},"ts":{at}}}"#))
    }

    /// Takes a sample. Power is known between two samples, so it is shown from the first one on.
    fn sample(&mut self, device: usize, time: u64, value: MetricValue) -> io::Result<()> {
        if !self.devices.contains_key(&device) {
            let power = self.power_of(device);
            self.devices.insert(device, power);
        }
        self.attributor.devices[device].read(time, index::value(value), 0);
        self.put_samples(device)
    }

    fn put_samples(&mut self, device: usize) -> io::Result<()> {
        while let Some(Sample { time, increase, .. }) = self.attributor.devices[device].sample() {
            let Some(Some(power)) = self.devices.get_mut(&device) else { continue };
            let joules = match increase {
                Increase::Joules(joules) | Increase::Lost(joules) => joules,
                Increase::First | Increase::Reset => 0.0,
            };
            power.joules += joules;
            let curve = power.curve();
            let Some(from) = power.last.replace(time).filter(|from| *from < time) else { continue };
            let seconds = (time - from) as f64 / self.definitions.clock.timer_resolution.max(1) as f64;
            self.put_power(&curve, from, joules / seconds)?;
        }
        Ok(())
    }

    /// Ends the power curves: the power after the last sample is unknown.
    fn end_samples(&mut self) -> io::Result<()> {
        for device in 0..self.attributor.devices.len() {
            self.attributor.devices[device].counter_mut().end();
            self.put_samples(device)?;
        }
        let devices = self.devices.values().flatten();
        let last: Vec<_> = devices.filter_map(|power| Some((power.curve(), power.last?))).collect();
        last.iter().try_for_each(|(curve, time)| self.put_power(curve, *time, 0.0))
    }

    fn put_power(&mut self, curve: &Curve, time: u64, watts: f64) -> io::Result<()> {
        let (at, Curve { process, name, baseline }) = (self.time(time), curve);
        let parts = match baseline.map(|baseline| watts.min(baseline)) {
            None => format!(r#""W":{watts:.3}"#),
            Some(fixed) => format!(r#""static W":{fixed:.3},"dynamic W":{:.3}"#, watts - fixed),
        };
        self.put(format_args!(r#"{{"ph":"C","pid":{process},"ts":{at},"name":{name},"args":{{{parts}}}}}"#))
    }

    fn power_of(&self, device: usize) -> Option<Power> {
        let info = &self.attributor.devices[device].info;
        let shown =
            |device: &&Device| device.unit == "J" && (&device.node, &device.name) == (&info.node, &info.name);
        let shown = self.summary.devices.iter().find(shown)?;
        let quality = if shown.energy == "measured" { String::new() } else { format!(", {}", shown.energy) };
        let name = json!(format!("{} [W{quality}]", shown.name)).to_string();
        Some(Power {
            node: info.node.clone(),
            device: info.name.clone(),
            process: self.nodes.get(&info.node).copied().unwrap_or(0),
            name,
            baseline: shown.baseline.as_ref().filter(|baseline| baseline.is_known()).map(|known| known.watts),
            last: None,
            joules: 0.0,
        })
    }
}

/// A time in nanoseconds that is displayed in microseconds.
struct Microseconds(u128);

impl std::fmt::Display for Microseconds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{:03}", self.0 / 1000, self.0 % 1000)
    }
}

impl EventHandler for Writer<'_, '_> {
    fn attribute(&self) -> Option<AttributeRef> {
        self.calls
    }

    fn enter(&mut self, location: LocationRef, time: u64, region: RegionRef, calls: Option<u64>) -> Flow {
        let written = self.begin(location, time, region, calls.filter(|calls| *calls > 0));
        self.count(written)
    }

    fn leave(&mut self, location: LocationRef, time: u64, _region: RegionRef) -> Flow {
        let written = self.end_one(location, time);
        self.count(written)
    }

    /// Ends the open frames with the location's last event, as the attribution does.
    fn end(&mut self, location: LocationRef) -> Flow {
        let (open, last) = self.tracks.get_mut(location.0).map_or((0, 0), |track| (track.open, track.last));
        let written = (0..open).try_for_each(|_| self.end_one(location, last));
        self.count(written)
    }

    fn metric(
        &mut self,
        location: LocationRef,
        time: u64,
        metric: MetricRef,
        values: &[MetricValue],
    ) -> Flow {
        let samples = self.found.samples(location, metric, values, &mut self.attributor);
        let written = samples.into_iter().try_for_each(|(device, value)| self.sample(device, time, value));
        self.count(written)
    }
}
