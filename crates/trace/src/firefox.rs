//! Writes a run as a profile for the Firefox Profiler (its "processed profile format", version 60, which newer profilers
//! convert). A sample is a call path of a thread in an interval between two samples of a counter, and weighs its microjoules. The
//! power of each device is a counter in picowatt-hours. Joules that belong to no location (idle, lost, or used
//! by other jobs) are samples of an extra thread of each node.

use crate::calls::{Clock, Location};
use crate::timeline::Kept;
use ampere_attribution::{ChargedInterval, Engine, ViewIndex};
use ampere_figures::summary::{REST_NAMES, Summary, topmost};
use ampere_model::regions::is_mpi;
use ampere_report::call_table::{Names, PathNumber, Paths};
use ampere_timeline::attributor::{Attributor, Device, ViewKind};
use ampere_timeline::recorder::Recorder;
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};
use std::sync::PoisonError;

const VERSION: u32 = 60;
const MICROJOULES: f64 = 1e6;
const PICOWATT_HOURS: f64 = 1e12 / 3600.0;
/// An upper bound on the intervals of all ranks, because a browser keeps all samples in memory. There are more samples than
/// intervals: one for each thread, device and call path.
const INTERVALS_MAX: f64 = 2e5;
/// Shorter intervals are joined.
const INTERVAL_MS_MIN: f64 = 1.0;
/// The indices of the categories of frames.
const OTHER: u32 = 0;
const MPI: u32 = 1;
const IDLE: u32 = 2;

/// Joules of a call path between two times, in milliseconds after the start of the first trace.
struct Sample {
    start: f64,
    end: f64,
    path: PathNumber,
    joules: f64,
}

struct Thread {
    node: String,
    process: String,
    name: String,
    samples: Vec<Sample>,
}

struct Power {
    node: String,
    name: String,
    /// Ends of intervals, and their joules. A gap ends with 0 J.
    joules: Vec<(f64, f64)>,
}

/// The samples and the powers of one trace.
pub struct Recorded {
    names: Names,
    paths: Paths,
    threads: Vec<Thread>,
    powers: Vec<Power>,
}

/// A device's view, and joules of its last intervals that are not samples yet.
struct RecordedView {
    device: usize,
    kind: ViewKind,
    /// Whether its joules are divided; those of a device that is a part of another one are only shown as power.
    is_divided: bool,
    /// Whether the power and the joules that belong to no thread are taken from this view.
    is_first: bool,
    start: f64,
    end: f64,
    joules: f64,
    charges: Vec<(usize, PathNumber, f64)>,
    /// The index in `charges` of each location's call path.
    indices: HashMap<(usize, PathNumber), usize>,
    /// Idle joules, those of other jobs, and lost joules.
    rest: [f64; 3],
    power: Vec<(f64, f64)>,
}

/// Records samples and powers while a trace is attributed.
pub struct Profiler {
    clock: Clock,
    begin_seconds: f64,
    interval_ms: f64,
    kinds: Vec<ViewKind>,
    /// The devices that are shown, by node and name, and whether their joules are divided.
    shown: HashMap<(String, String), bool>,
    names: Names,
    paths: Paths,
    locations: Vec<Option<Location>>,
    samples: BTreeMap<usize, Vec<Sample>>,
    /// For each node, the joules that belong to no thread.
    rest: BTreeMap<String, Vec<Sample>>,
    views: Vec<Option<RecordedView>>,
    kept: Kept<Vec<Recorded>>,
}

/// Returns the shortest interval of a run that took `seconds`, in milliseconds.
pub fn interval_ms(seconds: f64, ranks: u32) -> f64 {
    (seconds * 1e3 * f64::from(ranks.max(1)) / INTERVALS_MAX).max(INTERVAL_MS_MIN)
}

impl Profiler {
    /// `begin_seconds` is the trace's start, in seconds after the start of the first trace; `interval_ms`, the length of the
    /// shortest intervals.
    pub fn new(
        (clock, begin_seconds): (Clock, f64),
        interval_ms: f64,
        only: Option<ViewKind>,
        summary: &Summary,
        kept: Kept<Vec<Recorded>>,
    ) -> Profiler {
        let of = |device: &ampere_figures::summary::Device| (device.node.clone(), device.name.clone());
        let energies = summary.devices.iter().filter(|device| device.unit == "J");
        let mut shown: HashMap<_, _> = energies.map(|device| (of(device), false)).collect();
        shown.extend(topmost(summary).map(|device| (of(device), true)));
        Profiler {
            clock,
            begin_seconds,
            interval_ms,
            kinds: ViewKind::BOTH.into_iter().filter(|kind| only.is_none_or(|only| only == *kind)).collect(),
            shown,
            names: Names::default(),
            paths: Paths::default(),
            locations: Vec::new(),
            samples: BTreeMap::new(),
            rest: BTreeMap::new(),
            views: Vec::new(),
            kept,
        }
    }

    fn milliseconds(&self, time: u64) -> f64 {
        self.clock.nanoseconds(time) as f64 / 1e6 + self.begin_seconds * 1e3
    }

    fn add(&mut self, attributor: &Attributor, recorded: &mut RecordedView) {
        let view = attributor.devices[recorded.device].view(recorded.kind);
        let Some(interval) = attributor.engine.charged_interval(view) else { return };
        let ChargedInterval { charges, joules, idle_joules, other_jobs_joules, lost_joules, .. } = interval;
        let (start, end) = (self.milliseconds(interval.start), self.milliseconds(interval.end));
        if start != recorded.end {
            self.take(attributor, recorded);
            (recorded.start, recorded.end) = (start, start);
            recorded.power.push((start, 0.0));
        }
        recorded.end = end;
        recorded.joules += joules;
        if recorded.is_divided {
            let rest = [idle_joules - other_jobs_joules, *other_jobs_joules, *lost_joules];
            recorded.rest.iter_mut().zip(rest).for_each(|(sum, joules)| *sum += joules);
            for charge in charges {
                let at = charge.location.0 as usize;
                self.locations.resize_with(self.locations.len().max(at + 1), || None);
                let location =
                    self.locations[at].get_or_insert_with(|| Location::new(attributor, at, &mut self.names));
                let (of, node) = (charge.location, charge.node);
                let path = location.number_of(attributor, of, node, &mut self.names, &mut self.paths);
                let index = *recorded.indices.entry((at, path)).or_insert(recorded.charges.len());
                match recorded.charges.get_mut(index) {
                    Some((_, _, sum)) => *sum += charge.joules,
                    None => recorded.charges.push((at, path, charge.joules)),
                }
            }
        }
        if end - recorded.start >= self.interval_ms {
            self.take(attributor, recorded);
        }
    }

    /// Makes samples of the joules since `start`. The call paths of a thread share the interval in proportion to their joules.
    fn take(&mut self, attributor: &Attributor, recorded: &mut RecordedView) {
        let (start, end) = (std::mem::replace(&mut recorded.start, recorded.end), recorded.end);
        let joules = std::mem::take(&mut recorded.joules);
        if recorded.is_first && end > start {
            recorded.power.push((end, joules));
        }
        recorded.indices.clear();
        let mut charges = std::mem::take(&mut recorded.charges);
        charges.sort_by_key(|(location, ..)| *location);
        for of_one in charges.chunk_by(|a, b| a.0 == b.0) {
            let samples = self.samples.entry(of_one[0].0).or_default();
            let parts = of_one.iter().map(|(_, path, joules)| (*path, *joules));
            lay_out(samples, (start, end), parts.collect());
        }
        let rest = std::mem::take(&mut recorded.rest);
        if recorded.is_first && rest != [0.0; 3] {
            let info = &attributor.devices[recorded.device].info;
            let device = self.paths.number(None, self.names.number(&info.name));
            let paths = REST_NAMES.map(|word| self.paths.number(Some(device), self.names.number(word)));
            let samples = self.rest.entry(info.node.clone()).or_default();
            lay_out(samples, (start, end), paths.into_iter().zip(rest).collect());
        }
    }

    fn recorded(&mut self, attributor: &Attributor) -> Recorded {
        let mut views: Vec<RecordedView> = self.views.drain(..).flatten().collect();
        views.iter_mut().for_each(|recorded| self.take(attributor, recorded));
        let powers = views.into_iter().filter(|recorded| recorded.is_first).map(|recorded| {
            let info = &attributor.devices[recorded.device].info;
            Power { node: info.node.clone(), name: info.name.clone(), joules: recorded.power }
        });
        let rest = std::mem::take(&mut self.rest).into_iter().map(|(node, samples)| Thread {
            node,
            process: "power".to_owned(),
            name: "not of a rank".to_owned(),
            samples,
        });
        let of_locations = std::mem::take(&mut self.samples).into_iter().map(|(at, samples)| {
            let info = &attributor.locations[at];
            Thread { node: info.node.clone(), process: info.group.clone(), name: info.name.clone(), samples }
        });
        Recorded {
            powers: powers.collect(),
            threads: rest.chain(of_locations).collect(),
            names: std::mem::take(&mut self.names),
            paths: std::mem::take(&mut self.paths),
        }
    }
}

/// Adds a sample for each call path that has joules. Together they fill the interval.
fn lay_out(samples: &mut Vec<Sample>, (start, end): (f64, f64), parts: Vec<(PathNumber, f64)>) {
    let sum: f64 = parts.iter().map(|(_, joules)| joules).sum();
    let mut at = start;
    for (path, joules) in parts.into_iter().filter(|(_, joules)| *joules > 0.0) {
        let until = (at + (end - start) * joules / sum).min(end);
        samples.push(Sample { start: at, end: until, path, joules });
        at = until;
    }
}

impl Recorder for Profiler {
    fn begin_device(&mut self, engine: &mut Engine, number: usize, device: &Device) {
        let of = (device.info.node.clone(), device.info.name.clone());
        let Some(is_divided) = self.shown.get(&of).copied() else { return };
        let kinds = if is_divided { self.kinds.len() } else { 1 };
        for (index, kind) in self.kinds[..kinds].iter().copied().enumerate() {
            engine.record_intervals(device.view(kind));
            let at = device.views.sampled(kind).0 as usize;
            self.views.resize_with(self.views.len().max(at + 1), || None);
            self.views[at] = Some(RecordedView {
                device: number,
                kind,
                is_divided,
                is_first: index == 0,
                start: 0.0,
                end: f64::NEG_INFINITY,
                joules: 0.0,
                charges: Vec::new(),
                indices: HashMap::new(),
                rest: [0.0; 3],
                power: Vec::new(),
            });
        }
    }

    fn take_sample(&mut self, attributor: &mut Attributor, view: ViewIndex) -> io::Result<()> {
        let at = view.0 as usize;
        if let Some(mut recorded) = self.views.get_mut(at).and_then(Option::take) {
            self.add(attributor, &mut recorded);
            self.views[at] = Some(recorded);
        }
        Ok(())
    }

    fn take_events(&mut self, _: &mut Attributor) -> io::Result<()> {
        Ok(())
    }

    fn end(&mut self, attributor: &mut Attributor) -> io::Result<()> {
        let recorded = self.recorded(attributor);
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).push(recorded);
        Ok(())
    }
}

/// A thread's samples, as columns. A sample without a stack ends the one before.
#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Columns {
    weight_type: &'static str,
    stack: Vec<Option<u32>>,
    time: Vec<f64>,
    weight: Vec<u64>,
    length: usize,
}

#[derive(Serialize)]
struct ThreadColumns {
    #[serde(flatten)]
    about: Value,
    samples: Columns,
}

impl Columns {
    /// Makes columns of samples whose call paths begin at this index in the table of stacks.
    fn new(samples: &mut [Sample], first_stack: u32) -> Columns {
        samples.sort_by(|a, b| a.start.total_cmp(&b.start));
        let mut columns = Columns { weight_type: "samples", ..Columns::default() };
        let mut covered = f64::INFINITY;
        for sample in samples {
            if sample.start > covered {
                columns.push(covered, None, 0.0);
            }
            covered = if covered == f64::INFINITY { sample.end } else { covered.max(sample.end) };
            columns.push(sample.start, Some(first_stack + sample.path), sample.joules);
        }
        if covered < f64::INFINITY {
            columns.push(covered, None, 0.0);
        }
        columns
    }

    fn push(&mut self, time: f64, stack: Option<u32>, joules: f64) {
        self.stack.push(stack);
        self.time.push(rounded(time));
        self.weight.push((joules * MICROJOULES).round() as u64);
        self.length += 1;
    }
}

/// Rounds milliseconds to a tenth of a microsecond.
fn rounded(milliseconds: f64) -> f64 {
    (milliseconds * 1e4).round() / 1e4
}

/// The call paths of all parts, with a function for each name.
#[derive(Default)]
struct Stacks {
    functions: Names,
    frame: Vec<u32>,
    prefix: Vec<Option<u32>>,
}

impl Stacks {
    /// Adds the call paths of a part, and returns the index of the first one.
    fn add(&mut self, part: &Recorded) -> u32 {
        let first = self.frame.len() as u32;
        for path in part.paths.all() {
            self.frame.push(self.functions.number(&part.names.all()[path.region as usize]));
            self.prefix.push(path.caller.map(|caller| first + caller));
        }
        first
    }

    fn tables(&self) -> Value {
        let names = self.functions.all();
        let length = names.len();
        let numbers: Vec<usize> = (0..length).collect();
        let category = |name: &String| match &**name {
            name if is_mpi(name) => MPI,
            name if REST_NAMES.contains(&name) => IDLE,
            _ => OTHER,
        };
        let categories: Vec<u32> = names.iter().map(category).collect();
        let (nulls, none) = (vec![Value::Null; length], Vec::<u8>::new());
        json!({
            "stringArray": names,
            "stackTable": { "frame": self.frame, "prefix": self.prefix, "length": self.frame.len() },
            "frameTable": {
                "address": vec![-1; length], "inlineDepth": vec![0; length], "category": categories,
                "subcategory": vec![0; length], "func": numbers, "nativeSymbol": nulls,
                "innerWindowID": vec![0; length], "line": nulls, "column": nulls, "length": length,
            },
            "funcTable": {
                "name": numbers, "isJS": vec![false; length], "relevantForJS": vec![false; length],
                "resource": vec![-1; length], "source": nulls, "lineNumber": nulls, "columnNumber": nulls,
                "length": length,
            },
            "resourceTable": { "lib": none, "name": none, "host": none, "type": none, "length": 0 },
            "nativeSymbols": { "libIndex": none, "address": none, "name": none, "functionSize": none, "length": 0 },
            "sources": { "id": none, "filename": none, "length": 0 },
        })
    }
}

/// Describes the run and the profile.
fn meta(summary: &Summary, begin: Option<u64>, interval_ms: f64) -> Value {
    let run = &summary.run;
    let command = if run.command.is_empty() { run.id.clone() } else { run.command.join(" ") };
    let entry = |label: &str, value: &str| json!({ "label": label, "format": "string", "value": value });
    json!({
        "interval": interval_ms, "startTime": begin.unwrap_or(0) as f64 / 1e6, "product": command,
        "importedFrom": "ampere", "version": 30, "preprocessedProfileVersion": VERSION, "processType": 0,
        "stackwalk": 1, "symbolicated": true, "keepProfileThreadOrder": true, "usesOnlyOneStackType": true,
        "sourceCodeIsNotOnSearchfox": true, "markerSchema": [],
        "categories": [
            { "name": "Other", "color": "yellow", "subcategories": ["Other"] },
            { "name": "MPI", "color": "blue", "subcategories": ["Other"] },
            { "name": "Idle", "color": "transparent", "subcategories": ["Other"] },
        ],
        "extra": [{ "label": "ampere", "entries": [
            entry("One sample is", "1 microjoule"), entry("Joules are", &run.energy), entry("Run", &run.id),
        ] }],
    })
}

/// Makes the track of a device's power, below a process and its first thread.
fn counter(power: &Power, (pid, main): (usize, usize)) -> Value {
    let times: Vec<f64> = power.joules.iter().map(|(time, _)| rounded(*time)).collect();
    let energies: Vec<f64> =
        power.joules.iter().map(|(_, joules)| (joules * PICOWATT_HOURS).round()).collect();
    json!({
        "name": power.name, "category": "power", "description": format!("Power of {}", power.name),
        "pid": pid.to_string(), "mainThreadIndex": main,
        "samples": { "time": times, "count": energies, "length": times.len() },
    })
}

/// Writes the profile of a run. `begin` is the start of its first trace in nanoseconds since 1970, if it is known.
///
/// # Errors
/// The output cannot be written.
pub fn write(
    parts: &mut [Recorded],
    summary: &Summary,
    (begin, interval_ms): (Option<u64>, f64),
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut stacks = Stacks::default();
    let first_stacks: Vec<u32> = parts.iter().map(|part| stacks.add(part)).collect();
    let meta = meta(summary, begin, interval_ms);
    write!(out, "{{\"meta\":{meta},\"libs\":[],\"shared\":{},\"threads\":[", stacks.tables())?;
    let mut counters = Vec::new();
    let (mut processes, mut tid) = (HashMap::new(), 0_usize);
    for (part, first_stack) in parts.iter_mut().zip(first_stacks) {
        for thread in &mut part.threads {
            let of = (thread.node.clone(), thread.process.clone());
            let next = processes.len() + 1;
            let (pid, main) = *processes.entry(of).or_insert((next, tid));
            let process = if thread.node.is_empty() {
                thread.process.clone()
            } else {
                format!("{} on {}", thread.process, thread.node)
            };
            let about = json!({
                "name": thread.name, "processName": process, "processType": "default", "pid": pid.to_string(),
                "tid": tid, "isMainThread": main == tid, "processStartupTime": 0, "processShutdownTime": null,
                "registerTime": 0, "unregisterTime": null, "pausedRanges": [],
                "markers": {
                    "data": [], "name": [], "startTime": [], "endTime": [], "phase": [], "category": [], "length": 0,
                },
            });
            let samples = Columns::new(&mut thread.samples, first_stack);
            out.write_all(if tid == 0 { b"\n" } else { b",\n" })?;
            serde_json::to_writer(&mut *out, &ThreadColumns { about, samples })?;
            tid += 1;
        }
        for power in &part.powers {
            // The track is below the node's own process, or else below the first one.
            let of = (power.node.clone(), "power".to_owned());
            let (pid, main) = processes.get(&of).copied().unwrap_or((1, 0));
            counters.push(counter(power, (pid, main)));
        }
    }
    writeln!(out, "\n],\"counters\":{}}}", Value::Array(counters))?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_fill_their_interval_and_a_gap_is_idle() {
        let mut samples = Vec::new();
        lay_out(&mut samples, (10.0, 20.0), vec![(1, 3.0), (2, 0.0), (3, 1.0)]);
        lay_out(&mut samples, (25.0, 30.0), vec![(1, 2.0)]);
        lay_out(&mut samples, (0.0, 10.0), vec![(4, 1.0)]);
        let columns = Columns::new(&mut samples, 100);
        assert_eq!(columns.time, [0.0, 10.0, 17.5, 20.0, 25.0, 30.0]);
        assert_eq!(columns.stack, [Some(104), Some(101), Some(103), None, Some(101), None]);
        assert_eq!(columns.weight, [1_000_000, 3_000_000, 1_000_000, 0, 2_000_000, 0]);
    }

    #[test]
    fn long_and_large_runs_have_longer_intervals() {
        assert_eq!(interval_ms(10.0, 4), INTERVAL_MS_MIN);
        assert_eq!(interval_ms(3600.0, 1000), 18_000.0);
    }
}
