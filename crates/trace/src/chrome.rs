//! Writes a trace as single events: the frames of every location, below the power of each device. The format is Chrome's, which
//! Perfetto (ui.perfetto.dev) and chrome://tracing show, or another one ([`EventFormat`]).

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
use serde_json::{Value, json};
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

/// The shown joules may differ from the summary's by this fraction, for example because samples are out of order.
const JOULES_TOLERANCE: f64 = 1e-3;

/// A format of events. Processes, which are nodes and location groups, have numbers, and so have threads. Times are in
/// nanoseconds.
pub trait EventFormat {
    /// Begins the output. `run` describes the run.
    fn begin(&mut self, run: &Value, out: &mut dyn Write) -> io::Result<()>;
    /// Names a process, and the node that it runs on.
    fn process(&mut self, process: usize, name: &str, node: &str, out: &mut dyn Write) -> io::Result<()>;
    /// Names a thread.
    fn thread(&mut self, on: ThreadNumber, name: &str, out: &mut dyn Write) -> io::Result<()>;
    /// Begins a frame, with its name and, if it stands for several calls, their number.
    fn enter(
        &mut self,
        on: ThreadNumber,
        time: u64,
        frame: (&str, Option<u64>),
        out: &mut dyn Write,
    ) -> io::Result<()>;
    /// Ends the innermost frame.
    fn leave(&mut self, on: ThreadNumber, time: u64, name: &str, out: &mut dyn Write) -> io::Result<()>;
    /// Shows a power from this time on: its watts, or their static and their dynamic part.
    fn power(&mut self, curve: &Curve, time: u64, watts: Watts, out: &mut dyn Write) -> io::Result<()>;
    /// Ends the output.
    fn end(&mut self, out: &mut dyn Write) -> io::Result<()>;
}

/// The numbers of a process and of one of its threads.
#[derive(Clone, Copy, Debug)]
pub struct ThreadNumber {
    /// The number of the process.
    pub process: usize,
    /// The number of the thread, which is unique among all processes.
    pub thread: usize,
}

/// The curve of a device's power.
#[derive(Clone, Debug)]
pub struct Curve {
    /// The number of the process that stands for the device's node.
    pub process: usize,
    /// The name of the device, with its unit and quality.
    pub name: String,
}

/// A power, as one figure or in two parts.
#[derive(Clone, Copy, Debug)]
pub enum Watts {
    /// The whole power; which part is static is not known.
    All(f64),
    /// The power that the device draws without the job, and the power above it.
    Parts([f64; 2]),
}

/// Chrome's format: an object with a list of events, whose times are in microseconds.
#[derive(Default)]
pub struct Chrome {
    has_event: bool,
}

impl Chrome {
    fn put(&mut self, out: &mut dyn Write, event: std::fmt::Arguments<'_>) -> io::Result<()> {
        let separator = if std::mem::replace(&mut self.has_event, true) { ",\n" } else { "\n" };
        out.write_all(separator.as_bytes())?;
        out.write_fmt(event)
    }
}

impl EventFormat for Chrome {
    fn begin(&mut self, run: &Value, out: &mut dyn Write) -> io::Result<()> {
        write!(out, "{{\"displayTimeUnit\":\"ms\",\"otherData\":{run},\"traceEvents\":[")
    }

    fn process(&mut self, process: usize, name: &str, node: &str, out: &mut dyn Write) -> io::Result<()> {
        let (name, node) = (json!(name), json!(node));
        let mut put = |what: &str, of: String| {
            self.put(
                out,
                format_args!(r#"{{"ph":"M","pid":{process},"name":"process_{what}","args":{{{of}}}}}"#),
            )
        };
        put("name", format!(r#""name":{name}"#))?;
        put("labels", format!(r#""labels":{node}"#))?;
        put("sort_index", format!(r#""sort_index":{process}"#))
    }

    fn thread(&mut self, on: ThreadNumber, name: &str, out: &mut dyn Write) -> io::Result<()> {
        let ThreadNumber { process, thread } = on;
        let name = json!(name);
        let mut put = |what: &str, of: String| {
            self.put(
                out,
                format_args!(
                    r#"{{"ph":"M","pid":{process},"tid":{thread},"name":"thread_{what}","args":{{{of}}}}}"#
                ),
            )
        };
        put("name", format!(r#""name":{name}"#))?;
        put("sort_index", format!(r#""sort_index":{thread}"#))
    }

    fn enter(
        &mut self,
        ThreadNumber { process, thread }: ThreadNumber,
        time: u64,
        (name, calls): (&str, Option<u64>),
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let (at, name) = (Microseconds(time), json!(name));
        let calls = calls.map_or_else(String::new, |calls| format!(r#","args":{{"calls":{calls}}}"#));
        self.put(
            out,
            format_args!(r#"{{"ph":"B","pid":{process},"tid":{thread},"ts":{at},"name":{name}{calls}}}"#),
        )
    }

    /// The name is optional, but some programs need it.
    fn leave(
        &mut self,
        ThreadNumber { process, thread }: ThreadNumber,
        time: u64,
        name: &str,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let (at, name) = (Microseconds(time), json!(name));
        self.put(out, format_args!(r#"{{"ph":"E","pid":{process},"tid":{thread},"ts":{at},"name":{name}}}"#))
    }

    fn power(&mut self, curve: &Curve, time: u64, watts: Watts, out: &mut dyn Write) -> io::Result<()> {
        let at = Microseconds(time);
        let process = curve.process;
        let name = json!(curve.name);
        let parts = match watts {
            Watts::All(watts) => format!(r#""W":{watts:.3}"#),
            Watts::Parts([fixed, more]) => format!(r#""static W":{fixed:.3},"dynamic W":{more:.3}"#),
        };
        self.put(
            out,
            format_args!(r#"{{"ph":"C","pid":{process},"ts":{at},"name":{name},"args":{{{parts}}}}}"#),
        )
    }

    fn end(&mut self, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(b"\n]}\n")
    }
}

/// The trace and the summary of one node of a run.
pub struct Part {
    /// The path of the trace's anchor file.
    pub trace: PathBuf,
    pub summary: Summary,
}

/// Writes the events of traces, and the power of the devices in their summaries. Returns a warning for everything that is
/// missing or differs from the summary. Only names are kept in memory, so a trace may be larger than memory. `progress` gets
/// the number of events written so far and the expected number.
///
/// # Errors
/// A trace cannot be read, or the output cannot be written.
pub fn write(
    parts: &[Part],
    choice: &Choice,
    config: &Config,
    (format, out): (&mut dyn EventFormat, &mut dyn Write),
    progress: &mut dyn FnMut(u64, u64),
) -> anyhow::Result<Vec<String>> {
    let traces = parts.iter().map(|part| Trace::open(&part.trace)).collect::<Result<Vec<_>, _>>()?;
    let expected = traces.iter().map(Trace::events_expected).sum();
    let begins: Vec<Option<u64>> =
        traces.iter().map(|trace| trace.definitions().clock.realtime_timestamp).collect();
    let first_begin = begins.iter().flatten().min().copied();
    let mut warnings = Vec::new();
    let mut written = Output { format, out, done: 0, failure: None, processes: 0, threads: 0 };
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
            written.format.begin(&run, written.out).context("the report")?;
        }
        let mut step = |done| progress(done, expected);
        let devices = summary.devices.iter().map(|device| (device.node.clone(), device.metric.clone()));
        let metrics = Metrics::new(&definitions, config);
        let is_power = |(_, metric): &(String, String)| metrics.left_out.measured.contains(metric);
        let exceptions = devices.filter(is_power).collect();
        let recorders = Some(Recorders::survey(path, config, None, &exceptions)?);
        let metrics = metrics.with(exceptions);
        let begin_ns = begin.zip(first_begin).map_or(0, |(begin, first)| begin - first);
        let mut writer =
            Writer::new(&definitions, (summary, begin_ns), (config, metrics), recorders, written, &mut step);
        writer.name_locations(choice).context("the report")?;
        let missing = trace.missing().to_vec();
        let mut merged = Merged::new(&definitions, &missing, &mut writer);
        let report = trace.read_events(&mut merged)?;
        if !report.stopped {
            let _ = merged.finish(); // the writer keeps its failure
        }
        let ended = writer.end_samples();
        let Writer { devices, written: until_now, .. } = writer;
        written = until_now;
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
    written.format.end(written.out).and_then(|()| written.out.flush()).context("the report")?;
    Ok(warnings)
}

/// Returns a warning if the shown power does not add up to the summary's joules, or cannot be shown.
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

/// A location, with its open frames.
struct Track {
    on: ThreadNumber,
    open: Vec<RegionRef>,
}

/// A device whose power is shown.
struct Power {
    node: String,
    device: String,
    curve: Curve,
    /// The power that the device draws without the job, if it is known. Power above it is shown as dynamic.
    baseline: Option<f64>,
    last: Option<u64>,
    joules: f64,
}

impl Power {
    fn watts(&self, watts: f64) -> Watts {
        self.baseline.map_or(Watts::All(watts), |baseline| {
            let fixed = watts.min(baseline);
            Watts::Parts([fixed, watts - fixed])
        })
    }

    fn is_of(&self, device: &Device) -> bool {
        (&self.node, &self.device) == (&device.node, &device.name)
    }
}

/// The output file, and the state that all traces share.
struct Output<'a> {
    format: &'a mut dyn EventFormat,
    out: &'a mut dyn Write,
    done: u64,
    failure: Option<io::Error>,
    /// The number of processes so far, and that of threads.
    processes: usize,
    threads: usize,
}

struct Writer<'a, 'o> {
    written: Output<'o>,
    progress: &'a mut dyn FnMut(u64),
    definitions: &'a Definitions,
    summary: &'a Summary,
    /// The start of the current trace, in nanoseconds after the start of the first one.
    begin_ns: u64,
    tracks: NumberTable<Track>,
    nodes: BTreeMap<String, usize>,
    attributor: Attributor,
    found: TraceDevices<'a>,
    /// The devices by the attributor's number; `None` for a device that is not shown.
    devices: HashMap<usize, Option<Power>>,
    calls: Option<AttributeRef>,
}

impl<'a, 'o> Writer<'a, 'o> {
    fn new(
        definitions: &'a Definitions,
        (summary, begin_ns): (&'a Summary, u64),
        (config, metrics): (&Config, Metrics),
        recorders: Option<Recorders>,
        written: Output<'o>,
        progress: &'a mut dyn FnMut(u64),
    ) -> Writer<'a, 'o> {
        let mut found = TraceDevices::new(definitions, metrics, recorders, Vec::new());
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
            nodes: BTreeMap::new(),
            attributor: Attributor::new(config.clone(), definitions.clock.timer_resolution),
            found,
            devices: HashMap::new(),
            calls: index::calls_attribute(definitions),
        }
    }

    /// Counts an event. Reading ends with the first event that could not be written.
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

    fn new_process(&mut self, name: &str, node: &str) -> io::Result<usize> {
        self.written.processes += 1;
        let process = self.written.processes;
        self.written.format.process(process, name, node, self.written.out)?;
        Ok(process)
    }

    /// Names first the nodes, below which the power of their devices is shown, and then the ranks and GPU contexts, in the
    /// trace's order.
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
        for (reference, location) in definitions.locations.iter() {
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
            self.written.threads += 1;
            let on = ThreadNumber { process, thread: self.written.threads };
            self.written.format.thread(on, &location.name, self.written.out)?;
            self.tracks.insert(reference.0, Track { on, open: Vec::new() });
        }
        Ok(())
    }

    /// Converts a timestamp to nanoseconds since the start of the first trace.
    fn time(&self, ticks: u64) -> u64 {
        let clock = &self.definitions.clock;
        let since = u128::from(ticks.saturating_sub(clock.global_offset));
        let since_ns = since * 1_000_000_000 / u128::from(clock.timer_resolution.max(1));
        self.begin_ns.saturating_add(u64::try_from(since_ns).unwrap_or(u64::MAX))
    }

    fn name(&self, region: RegionRef) -> Cow<'a, str> {
        let known = self.definitions.regions.get(region);
        known.map_or_else(|| format!("region {}", region.0).into(), |region| region.name.as_str().into())
    }

    fn begin(
        &mut self,
        location: LocationRef,
        time: u64,
        region: RegionRef,
        calls: Option<u64>,
    ) -> io::Result<()> {
        let (name, at) = (self.name(region), self.time(time));
        let Some(track) = self.tracks.get_mut(location.0) else { return Ok(()) };
        track.open.push(region);
        self.written.format.enter(track.on, at, (&name, calls), self.written.out)
    }

    fn end_one(&mut self, location: LocationRef, time: u64) -> io::Result<()> {
        let at = self.time(time);
        let Some(track) = self.tracks.get_mut(location.0) else { return Ok(()) };
        let Some(region) = track.open.pop() else { return Ok(()) };
        let (on, name) = (track.on, self.name(region));
        self.written.format.leave(on, at, &name, self.written.out)
    }

    /// Adds a sample. It gives the power since the sample before it, so this power is written with the earlier sample's time.
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
            let Some(from) = power.last.replace(time).filter(|from| *from < time) else { continue };
            let seconds = (time - from) as f64 / self.definitions.clock.timer_resolution.max(1) as f64;
            let (curve, watts) = (power.curve.clone(), power.watts(joules / seconds));
            let at = self.time(from);
            self.written.format.power(&curve, at, watts, self.written.out)?;
        }
        Ok(())
    }

    /// Ends each curve with 0, because the power after the last sample is unknown.
    fn end_samples(&mut self) -> io::Result<()> {
        for device in 0..self.attributor.devices.len() {
            self.attributor.devices[device].counter_mut().end();
            self.put_samples(device)?;
        }
        let devices = self.devices.values().flatten().filter_map(|power| Some((power, power.last?)));
        let last: Vec<(Curve, Watts, u64)> =
            devices.map(|(power, last)| (power.curve.clone(), power.watts(0.0), self.time(last))).collect();
        last.iter().try_for_each(|(curve, watts, at)| {
            self.written.format.power(curve, *at, *watts, self.written.out)
        })
    }

    fn power_of(&self, device: usize) -> Option<Power> {
        let info = &self.attributor.devices[device].info;
        let shown =
            |device: &&Device| device.unit == "J" && (&device.node, &device.name) == (&info.node, &info.name);
        let shown = self.summary.devices.iter().find(shown)?;
        let quality = if shown.energy == "measured" { String::new() } else { format!(", {}", shown.energy) };
        let process = self.nodes.get(&info.node).copied().unwrap_or(0);
        Some(Power {
            node: info.node.clone(),
            device: info.name.clone(),
            curve: Curve { process, name: format!("{} [W{quality}]", shown.name) },
            baseline: shown.baseline.as_ref().filter(|baseline| baseline.is_known()).map(|known| known.watts),
            last: None,
            joules: 0.0,
        })
    }
}

/// A time in nanoseconds that is displayed in microseconds.
struct Microseconds(u64);

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

    /// Ends the open frames at the time of the location's last event, as the attribution does.
    fn end(&mut self, location: LocationRef, last: u64) -> Flow {
        let open = self.tracks.get(location.0).map_or(0, |track| track.open.len());
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
        let samples = self.found.samples(location, time, (metric, values), &mut self.attributor);
        let written = samples.into_iter().try_for_each(|(device, value)| self.sample(device, time, value));
        self.count(written)
    }
}
