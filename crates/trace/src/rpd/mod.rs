//! Writes a run as an SQLite file with rocmProfileData's tables and views: calls of the ranks' threads as rows of `rocpd_api`,
//! kernels as rows of `rocpd_op`, with joules next to their times. `schema.sql` has the tables and views.
//!
//! ```text
//! mod.rs     writes the database
//! joules.rs  the joules of each call
//! ```

mod joules;

use crate::chrome::Part;
use crate::index;
use crate::merged::Merged;
use crate::offline::{AttributionOptions, Progress, cores};
use crate::places::{Ranks, node_of, process_of};
use ampere_figures::summary::topmost;
use ampere_figures::summary::{Device, Summary};
use ampere_model::text::{self, one_line};
use ampere_report::Choice;
use ampere_settings::Config;
use ampere_timeline::attributor::ViewKind;
use anyhow::Context;
use joules::{CallJoules, Charge, DeviceName};
use otf2::{AttributeRef, Definitions, EventHandler, Flow, LocationRef, LocationType, RegionRef, Trace};
use rusqlite::{Connection, params};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

const SCHEMA: &str = include_str!("schema.sql");
/// rocmProfileData's name for the version of its tables.
const SCHEMA_VERSION: &str = "2";
const KERNEL: &str = "KernelExecution";
/// The distance between the GPU numbers of two nodes: GPU 0 of the second node is 100.
const GPUS_OF_A_NODE: i64 = 100;
/// The number of a GPU that is not known.
const NO_GPU: i64 = -1;
/// The calls' joules may differ from the summary's by this fraction.
const JOULES_TOLERANCE: f64 = 1e-3;
/// The number of the first process that is not a rank.
const FIRST_PROCESS: i64 = 1 << 20;

/// Writes a new database. Returns a line for each part of the traces that is missing. `progress` gets the number of events read
/// so far and the expected number.
///
/// # Errors
/// A trace that cannot be read, or a file that cannot be written.
pub fn write(
    parts: &[Part],
    choice: &Choice,
    config: &Config,
    path: &Path,
    progress: &mut Progress,
) -> anyhow::Result<Vec<String>> {
    let traces = parts.iter().map(|part| Trace::open(&part.trace)).collect::<Result<Vec<_>, _>>()?;
    let expected = traces.iter().map(Trace::events_expected).sum();
    let mut warnings = Vec::new();
    let connection = Connection::open(path)?;
    // The file is private until it is complete, so nothing in it has to survive a crash.
    connection.execute_batch("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; BEGIN")?;
    connection.execute_batch(SCHEMA)?;
    let mut database = Database { connection: &connection, strings: HashMap::new(), done: 0, processes: 0 };
    let mut nodes_before = 0;
    for (part, mut trace) in parts.iter().zip(traces) {
        if nodes_before == 0 {
            database.put_metadata(&part.summary)?;
        }
        warnings.extend(trace.missing().iter().map(|l| index::missing_line(&trace, *l)));
        let definitions = trace.definitions().clone();
        let gpus = Gpus { nodes_before, summary: &part.summary };
        nodes_before += part.summary.run.nodes.len().max(1);
        database.put_summary(&gpus)?;
        let scratch = Scratch(scratch(path));
        let charged = charged(part, choice, config, &scratch, progress);
        let charged = charged.unwrap_or_else(|why| {
            warnings.push(format!("the joules of single calls are left out: {}", one_line(&*why)));
            None
        });
        warnings.extend(charged.iter().flat_map(|charged| unlike(charged, &part.summary)));
        let mut step = |done| progress(done, expected);
        let mut events = Events::new(&mut database, &definitions, choice, charged, &mut step);
        events.put_locations(&gpus)?;
        let missing = trace.missing().to_vec();
        let mut merged = Merged::new(&definitions, &missing, &mut events);
        let report = trace.read_events(&mut merged)?;
        if !report.stopped {
            let _ = merged.finish(); // `events` keeps its failure
        }
        events.failure.take().map_or(Ok(()), Err)?;
        for (location, why) in &report.truncated {
            warnings
                .push(format!("location {} is included only up to the end of its events: {why}", location.0));
        }
    }
    connection.execute_batch("COMMIT")?;
    connection.close().map_err(|(_, why)| why).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(warnings)
}

/// Converts a count to SQLite's integer type.
fn count(calls: u64) -> i64 {
    calls.min(i64::MAX as u64) as i64
}

/// Returns the path of a temporary file next to the database.
pub fn scratch(path: &Path) -> PathBuf {
    path.with_extension("joules")
}

/// A file that is removed when this is dropped.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Returns the joules that the calls of a part were charged from devices that are not contained in another; `None` if there is
/// no device.
fn charged(
    part: &Part,
    choice: &Choice,
    config: &Config,
    scratch: &Scratch,
    progress: &mut Progress,
) -> anyhow::Result<Option<CallJoules>> {
    let wanted: HashSet<DeviceName> =
        topmost(&part.summary).map(|device| (device.node.clone(), device.name.clone())).collect();
    if wanted.is_empty() {
        return Ok(None);
    }
    let kinds = ViewKind::BOTH.into_iter();
    let only = choice.view.as_ref().and_then(|view| kinds.clone().find(|kind| kind.as_str() == view));
    let options =
        AttributionOptions { config, only, waits: true, recorder: None, threads: cores(), progress };
    joules::attribute(&part.trace, options, &wanted, &scratch.0).map(Some)
}

/// Returns lines for devices whose calls' joules differ from the summary's.
fn unlike(charged: &CallJoules, summary: &Summary) -> Vec<String> {
    let line = |device: &Device| {
        let sum = charged.sums.get(&(device.node.clone(), device.name.clone())).copied().unwrap_or(0.0);
        let attributed: f64 = device.views.iter().map(|view| view.attributed_joules).sum();
        ((sum - attributed).abs() > JOULES_TOLERANCE * attributed.max(1.0)).then(|| {
            format!(
                "the calls' joules of {} on {} add up to {}, but those of the summary to {}: the run had other settings (--config), or the trace is incomplete",
                device.name,
                device.node,
                text::joules(sum),
                text::joules(attributed)
            )
        })
    };
    topmost(summary).filter_map(line).collect()
}

struct Database<'a> {
    connection: &'a Connection,
    strings: HashMap<String, i64>,
    /// The number of events of all traces so far.
    done: u64,
    /// The number of processes that are not ranks so far.
    processes: i64,
}

impl Database<'_> {
    fn string(&mut self, text: &str) -> rusqlite::Result<i64> {
        if let Some(number) = self.strings.get(text) {
            return Ok(*number);
        }
        let number = self.strings.len() as i64 + 1;
        let mut put =
            self.connection.prepare_cached("INSERT INTO rocpd_string (id, string) VALUES (?, ?)")?;
        put.execute(params![number, text])?;
        self.strings.insert(text.to_owned(), number);
        Ok(number)
    }

    fn put_metadata(&self, summary: &Summary) -> rusqlite::Result<()> {
        let run = &summary.run;
        let command = run.command.join(" ");
        let rows = [
            ("schema_version", SCHEMA_VERSION),
            ("ampere.run", &run.id),
            ("ampere.command", &command),
            ("ampere.start", &run.start),
            ("ampere.energy", &run.energy),
            ("ampere.complete", if run.complete { "true" } else { "false" }),
        ];
        let mut put = self.connection.prepare("INSERT INTO rocpd_metadata (tag, value) VALUES (?, ?)")?;
        rows.iter().try_for_each(|(tag, value)| put.execute([tag, value]).map(drop))
    }

    /// Writes the devices and the joules of regions.
    fn put_summary(&self, gpus: &Gpus) -> rusqlite::Result<()> {
        let summary = gpus.summary;
        let mut put_device = self
            .connection
            .prepare("INSERT INTO ampere_device VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)")?;
        let mut put_region = self
            .connection
            .prepare("INSERT INTO ampere_region VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)")?;
        // If streams draw from a GPU's device, another device with its number, such as a Cray node's accelerator, is not that GPU.
        let drawn = summary.devices.iter().filter(|device| gpus.are_on(device));
        let drawn: BTreeSet<i64> = drawn.map(|device| gpus.number(&device.node, &device.name)).collect();
        for device in &summary.devices {
            let is_part = !topmost(summary).any(|top| (&top.node, &top.name) == (&device.node, &device.name));
            let gpu = Some(gpus.number(&device.node, &device.name));
            let is_free = |number: &i64| device.kind == "gpu" && !drawn.contains(number);
            let gpu = gpu.filter(|number| gpus.are_on(device) || is_free(number));
            put_device.execute(params![
                device.node,
                device.name,
                gpu,
                device.energy,
                device.unit,
                is_part && device.unit == "J",
                device.total_joules,
                device.sampled_seconds,
                device.static_joules,
                device.dynamic_joules,
                device.baseline.as_ref().filter(|of| of.is_known()).map(|of| of.watts),
                device.baseline.as_ref().map(|of| &of.kind)
            ])?;
            for view in &device.views {
                let of = (&device.node, &device.name, &view.view);
                for row in &view.regions {
                    let figures = &row.figures;
                    put_region.execute(params![
                        of.0,
                        of.1,
                        of.2,
                        &*row.region,
                        Some(figures.calls).filter(|calls| *calls > 0).map(count),
                        figures.exclusive_joules,
                        figures.inclusive_joules,
                        figures.resolved_joules,
                        figures.exclusive_seconds,
                        figures.static_joules,
                        figures.dynamic_joules,
                        figures.waited_joules,
                        figures.caused_waiting_joules
                    ])?;
                }
                for (region, joules, parts) in device.rest(view) {
                    let (fixed, dynamic) = parts.unzip();
                    let none = rusqlite::types::Null;
                    put_region.execute(params![
                        of.0, of.1, of.2, region, none, joules, joules, none, none, fixed, dynamic, none,
                        none
                    ])?;
                }
            }
        }
        Ok(())
    }
}

/// The numbers of the GPUs of a part's nodes.
struct Gpus<'a> {
    nodes_before: usize,
    summary: &'a Summary,
}

impl Gpus<'_> {
    fn number(&self, node: &str, device: &str) -> i64 {
        let name = device.trim_end_matches(|letter: char| letter.is_ascii_digit());
        let place = self.summary.run.nodes.iter().position(|other| other == node).unwrap_or_default();
        let first = (self.nodes_before + place) as i64 * GPUS_OF_A_NODE;
        device[name.len()..].parse::<i64>().map_or(NO_GPU, |number| first + number)
    }

    /// Whether streams draw from this device.
    fn are_on(&self, device: &Device) -> bool {
        self.summary.topology.iter().any(|link| {
            link.view == "kernels" && link.node == device.node && link.device.as_ref() == Some(&device.name)
        })
    }

    /// Returns the GPU that a node's stream with this name draws from.
    fn of_stream(&self, node: &str, stream: &str) -> i64 {
        let links = self.summary.topology.iter().filter(|link| link.node == node);
        let link = links.filter(|link| link.view == "kernels" && link.consumer == stream);
        link.filter_map(|link| link.device.as_ref())
            .map(|device| self.number(node, device))
            .next()
            .unwrap_or(NO_GPU)
    }
}

/// The table and the keys of a location's calls.
#[derive(Clone, Copy)]
enum Row {
    Api { pid: i64, tid: i64 },
    Op { gpu: i64, queue: i64, sequence: i64 },
}

struct Open {
    region: RegionRef,
    time: u64,
    /// The number of calls; `None` for a sampled frame, and for the continuation of a call that already has a row.
    calls: Option<u64>,
    /// Ticks in the calls that it made.
    below: u64,
}

struct Place {
    row: Row,
    /// Indices of streams in [`CallJoules`].
    streams: Vec<usize>,
    open: Vec<Open>,
}

struct Events<'a, 'b> {
    database: &'a mut Database<'b>,
    definitions: &'a Definitions,
    choice: &'a Choice,
    charged: Option<CallJoules>,
    progress: &'a mut dyn FnMut(u64),
    places: HashMap<LocationRef, Place>,
    names: HashMap<RegionRef, i64>,
    calls: Option<AttributeRef>,
    failure: Option<rusqlite::Error>,
}

impl<'a, 'b> Events<'a, 'b> {
    fn new(
        database: &'a mut Database<'b>,
        definitions: &'a Definitions,
        choice: &'a Choice,
        charged: Option<CallJoules>,
        progress: &'a mut dyn FnMut(u64),
    ) -> Events<'a, 'b> {
        let calls = index::calls_attribute(definitions);
        let (places, names) = Default::default();
        Events { database, definitions, choice, charged, progress, places, names, calls, failure: None }
    }

    fn put_locations(&mut self, gpus: &Gpus) -> rusqlite::Result<()> {
        let wants = |view: &str| self.choice.view.as_ref().is_none_or(|wanted| wanted == view);
        let mut processes = BTreeMap::new();
        let mut threads = BTreeMap::new();
        let mut queues = BTreeMap::new();
        let ranks = Ranks::of(self.definitions);
        let mut put = self.database.connection.prepare("INSERT INTO ampere_thread VALUES (?, ?, ?, ?, ?)")?;
        for (reference, location) in self.definitions.locations.iter() {
            let Some(group) = process_of(self.definitions, reference) else { continue };
            let name = self.definitions.location_groups.get(group).map_or("", |group| group.name.as_str());
            let row = match location.kind {
                LocationType::CpuThread if wants("ranks") => {
                    let pid = *processes.entry(group).or_insert_with(|| {
                        ranks.stated(group).map_or_else(
                            || {
                                self.database.processes += 1;
                                FIRST_PROCESS + self.database.processes - 1
                            },
                            i64::from,
                        )
                    });
                    let tid = threads.entry(group).and_modify(|tid| *tid += 1).or_insert(0);
                    let node = node_of(self.definitions, reference);
                    put.execute(params![pid, *tid, node, name, location.name])?;
                    Row::Api { pid, tid: *tid }
                }
                LocationType::AcceleratorStream if wants("kernels") => {
                    let node = node_of(self.definitions, reference);
                    let gpu = gpus.of_stream(&node, &format!("{name}/{}", location.name));
                    let queue = queues.entry(gpu).and_modify(|queue| *queue += 1).or_insert(0);
                    Row::Op { gpu, queue: *queue, sequence: 0 }
                }
                _ => continue,
            };
            let at = (node_of(self.definitions, reference), name.to_owned(), location.name.clone());
            let streams = self.charged.as_ref().map_or_else(Vec::new, |charged| charged.of(&at));
            self.places.insert(reference, Place { row, streams, open: Vec::new() });
        }
        Ok(())
    }

    /// Converts a timestamp to nanoseconds since 1970, or since the trace's start if the trace has no date.
    fn time(&self, ticks: u64) -> i64 {
        let clock = &self.definitions.clock;
        let since = u128::from(ticks.saturating_sub(clock.global_offset));
        let since_ns = self.nanoseconds(since);
        since_ns + clock.realtime_timestamp.unwrap_or(0) as i64
    }

    fn nanoseconds(&self, ticks: u128) -> i64 {
        (ticks * 1_000_000_000 / u128::from(self.definitions.clock.timer_resolution.max(1))) as i64
    }

    fn leave_one(&mut self, location: LocationRef, time: u64) -> rusqlite::Result<()> {
        let Some(place) = self.places.get_mut(&location) else { return Ok(()) };
        let Some(open) = place.open.pop() else { return Ok(()) };
        let ticks = time.saturating_sub(open.time);
        if let Some(caller) = place.open.last_mut() {
            caller.below += ticks;
        }
        if let Row::Op { sequence, .. } = &mut place.row {
            *sequence += 1;
        }
        let row = place.row;
        let charge = self.charged.as_mut().map_or(Ok(None), |charged| charged.next(&place.streams))?;
        self.put(row, &open, time, charge)
    }

    fn put(&mut self, row: Row, open: &Open, time: u64, charge: Option<Charge>) -> rusqlite::Result<()> {
        let name = match self.names.get(&open.region) {
            Some(name) => *name,
            None => {
                let region = self.definitions.regions.get(open.region);
                let name = region.map_or_else(|| format!("region {}", open.region.0), |r| r.name.clone());
                let name = self.database.string(&name)?;
                self.names.insert(open.region, name);
                name
            }
        };
        let (joules, inclusive) = charge.unzip();
        let (start, end, calls) =
            (self.time(open.time), self.time(time.max(open.time)), open.calls.map(count));
        match row {
            Row::Api { pid, tid } => {
                let ticks = time.saturating_sub(open.time).saturating_sub(open.below);
                let (args, exclusive) = (self.database.string("")?, self.nanoseconds(ticks.into()));
                let mut put = self.database.connection.prepare_cached(
                    "INSERT INTO rocpd_api (pid, tid, start, end, apiName_id, args_id, calls, exclusive, joules, \
                     inclusive_joules) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                )?;
                put.execute(params![pid, tid, start, end, name, args, calls, exclusive, joules, inclusive])
                    .map(drop)
            }
            Row::Op { gpu, queue, sequence } => {
                let kind = self.database.string(KERNEL)?;
                let mut put = self.database.connection.prepare_cached(
                    "INSERT INTO rocpd_op (gpuId, queueId, sequenceId, start, end, description_id, opType_id, calls, \
                     joules) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                )?;
                put.execute(params![gpu, queue, sequence, start, end, name, kind, calls, joules]).map(drop)
            }
        }
    }

    /// Counts an event. The first error ends the report.
    fn count(&mut self, put: rusqlite::Result<()>) -> Flow {
        self.database.done += 1;
        if self.database.done.is_multiple_of(1 << 18) {
            (self.progress)(self.database.done);
        }
        match put {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                self.failure.get_or_insert(error);
                ControlFlow::Break(())
            }
        }
    }
}

impl EventHandler for Events<'_, '_> {
    fn attribute(&self) -> Option<AttributeRef> {
        self.calls
    }

    fn enter(&mut self, location: LocationRef, time: u64, region: RegionRef, calls: Option<u64>) -> Flow {
        if let Some(place) = self.places.get_mut(&location) {
            let calls = Some(calls.unwrap_or(1)).filter(|calls| *calls > 0);
            place.open.push(Open { region, time, calls, below: 0 });
        }
        self.count(Ok(()))
    }

    fn leave(&mut self, location: LocationRef, time: u64, _region: RegionRef) -> Flow {
        let put = self.leave_one(location, time);
        self.count(put)
    }

    /// Ends the open frames at the time of the location's last event, as the attribution does.
    fn end(&mut self, location: LocationRef, last: u64) -> Flow {
        let open = self.places.get(&location).map_or(0, |place| place.open.len());
        let put = (0..open).try_for_each(|_| self.leave_one(location, last));
        self.count(put)
    }
}
