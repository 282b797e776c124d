//! Attributes an existing OTF2 trace with the same attributor as a live run: `ampere attribute`.

use crate::calls::Clock;
use crate::cpu_times::CpuTimes;
use crate::devices::TraceDevices;
use crate::index::{self, calls_attribute, correlation_attribute, missing_line};
use crate::left_out::{self, Shown};
use crate::locations::{
    LocationState, add_locations, add_regions, doubt_of_functions, threads_without_frames,
};
use crate::meters::{Freshness, Meter};
use crate::metric_recorders::Recorders;
use crate::metrics::{Found, Metrics, OnNodes, notes_of_silent};
use crate::nesting::Nesting;
use crate::parts::{Related, mean_powers, relate};
use crate::places::{doubt_of_equal_nodes, doubt_of_nodes, node_of};
use crate::power;
use crate::sampled_events::SampledEvents;
use crate::sensors::TraceSensors;
use crate::series::Series;
use crate::share_figures::{Attributed, Part, join};
use crate::shares::{Share, split};
use crate::spool::SpoolDirectory;
use crate::waits;
use crate::work;
use ampere_attribution::CounterFigures;
use ampere_figures::losses::Losses;
use ampere_figures::summary::{Run, Summary};
use ampere_model::numbers::NumberTable;
use ampere_model::{Region, RegionRef, regions};
use ampere_settings::Config;
use ampere_timeline::attributor::{Attributor, Device, Unit, ViewKind};
use ampere_timeline::baseline::Baseline;
use ampere_timeline::conflicts;
use ampere_timeline::pipeline::{GpuStreams, Pipeline};
use ampere_timeline::recorder::Recorder;
use ampere_timeline::threads::OtherThreads;
use anyhow::{Context, bail};
use otf2::{
    AttributeRef, Communication, Definitions, EventHandler, Flow, LocationRef, MetricRef, MetricValue, Trace,
};
use scorep_abi::paradigm;
use std::collections::{BTreeSet, HashMap};
use std::io;
use std::ops::ControlFlow;
use std::panic::resume_unwind;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Feeds a trace's events to a pipeline.
struct Feed<'a> {
    pipeline: &'a mut Pipeline,
    locations: NumberTable<LocationState>,
    /// The attributor's regions, by their numbers in the trace.
    regions: NumberTable<RegionRef>,
    devices: TraceDevices<'a>,
    sensors: TraceSensors,
    cpu_times: CpuTimes,
    /// Locations that are neither threads nor streams and have functions.
    not_threads: BTreeSet<LocationRef>,
    sampled_events: SampledEvents,
    readings: Readings,
    /// The time of the latest sample so far.
    latest_sample: u64,
    /// See [`Known::ends`].
    late_ends: HashMap<u64, (u64, u64)>,
    /// The ticks that are added to all times, so that a delay does not make any of them less than 0.
    shift: u64,
    quality: Losses,
    /// The number of events since the pipeline last advanced.
    waited: u64,
    /// The attribute with the number of calls that an enter stands for, in our own traces.
    calls: Option<AttributeRef>,
    /// The attribute with the correlation id of an enter, in our own traces.
    correlation: Option<AttributeRef>,
    /// The correlation id of the next enter.
    next_id: Option<u64>,
    /// Whether a region is one of MPI, by the attributor's numbers. Empty if waits are not looked for.
    is_mpi: Vec<bool>,
    progress: &'a mut (dyn FnMut(u64) + Send),
}

#[derive(Default)]
struct Readings {
    /// The number of readings of each device so far.
    counts: HashMap<usize, u64>,
    /// See [`Known::wrong`].
    wrong: HashMap<usize, Vec<(u64, u64)>>,
}

impl Readings {
    /// Returns the number of a device's next reading. Before the first, excludes the readings that earlier passes found to be
    /// wrong.
    fn next(&mut self, number: usize, device: &mut Device) -> u64 {
        let count = self.counts.entry(number).or_default();
        if *count == 0 {
            device.counter_mut().exclude(self.wrong.get(&number).cloned().unwrap_or_default());
        }
        *count += 1;
        *count
    }
}

/// The number of events that are collected before they are put in order.
const BATCH: u64 = 4096;
/// An upper bound on the repetitions of a pass whose findings about the counters differ from those of the pass before.
const PASSES_MAX: usize = 4;
/// The maximum number of events that wait. Above it, the pipeline no longer waits for a counter to confirm that a large step is
/// not a misreading, nor for the CPU time of threads that seem to wait. Above twice this number, it waits for the CPU time of no
/// thread.
const WAITING_MAX: usize = 1 << 22;

/// How a trace is attributed.
pub struct AttributionOptions<'a> {
    /// The settings, which name devices.
    pub config: &'a Config,
    /// The only view of each device; `None` for all.
    pub only: Option<ViewKind>,
    /// Whether to compute the energy that ranks used while they waited for each other.
    pub waits: bool,
    /// Makes a recorder for each pass, which records more than the summary has.
    pub recorder: Option<Box<MakeRecorder<'a>>>,
    /// The number of threads. With several, nodes are attributed at the same time, if nothing is recorded, and events are decoded
    /// ahead.
    pub threads: usize,
    /// A function that is given the number of events so far and the expected number.
    pub progress: &'a mut Progress<'a>,
}

/// Makes a recorder for a trace with this clock.
pub type MakeRecorder<'a> = dyn FnMut(Clock) -> io::Result<Box<dyn Recorder>> + 'a;

/// A function that is given the number of events so far and the expected number.
pub type Progress<'a> = dyn FnMut(u64, u64) + Send + 'a;

/// Returns the number of threads that can run at once.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Reads the whole trace in one thread, several times if necessary.
///
/// # Errors
/// The trace cannot be read, or has no device, or a recorder fails.
pub fn attribute(
    path: &Path,
    config: &Config,
    only: Option<ViewKind>,
    progress: &mut Progress,
) -> anyhow::Result<Attributed> {
    attribute_as(path, AttributionOptions { config, only, waits: true, recorder: None, threads: 1, progress })
}

/// Like [`attribute`], but also records the power of the locations, and finds waits only if that is wanted.
///
/// # Errors
/// Those of [`attribute`], and those of spooling the power.
pub fn attribute_with_power(
    path: &Path,
    config: &Config,
    waits: bool,
    spool: &SpoolDirectory,
    values: &power::Values,
) -> anyhow::Result<Attributed> {
    let begin_pass = |clock: Clock| {
        let shift = shift_of(config, clock.ticks_per_second);
        Ok(power::recorder(spool, clock.ticks_per_second, shift, values))
    };
    attribute_as(
        path,
        AttributionOptions {
            config,
            only: None,
            waits,
            recorder: Some(Box::new(begin_pass)),
            threads: 1,
            progress: &mut |_, _| {},
        },
    )
}

/// Like [`attribute`], in several threads and with a recorder. The figures do not depend on the number of threads.
///
/// # Errors
/// Those of [`attribute`], and the recorder's.
pub fn attribute_as(path: &Path, options: AttributionOptions) -> anyhow::Result<Attributed> {
    let config = options.config;
    let shares = {
        let trace = open(path)?;
        // Who waits for whom is known only if all nodes are read together.
        let has_common_waits = options.waits && waits::are_across_nodes(trace.definitions());
        let is_one_share = options.recorder.is_some() || has_common_waits;
        split(trace.definitions(), if is_one_share { 1 } else { options.threads })
    };
    let parts = match shares.as_slice() {
        [share] => vec![attribute_share(path, options, share)?],
        shares => attribute_shares(path, options, shares)?,
    };
    join(path, config, parts)
}

fn attribute_shares(path: &Path, options: AttributionOptions, shares: &[Share]) -> anyhow::Result<Vec<Part>> {
    let AttributionOptions { config, only, waits, threads, progress, .. } = options;
    let (threads, progress) = (threads / shares.len(), Mutex::new(progress));
    let counts: Vec<[AtomicU64; 2]> = shares.iter().map(|_| Default::default()).collect();
    let sum = |at: usize| counts.iter().map(|of| of[at].load(Ordering::Relaxed)).sum();
    let attribute = |share: &Share, [done, expected]: &[AtomicU64; 2]| {
        let mut step = |now_done, now_expected| {
            done.store(now_done, Ordering::Relaxed);
            expected.store(now_expected, Ordering::Relaxed);
            let mut progress = progress.lock().unwrap_or_else(PoisonError::into_inner);
            progress(sum(0), sum(1));
        };
        let options =
            AttributionOptions { config, only, waits, recorder: None, threads, progress: &mut step };
        attribute_share(path, options, share)
    };
    std::thread::scope(|scope| {
        let attribute = &attribute;
        let each = shares.iter().zip(&counts).map(|(share, counts)| {
            let named = std::thread::Builder::new().name("ampere-share".to_owned());
            named.spawn_scoped(scope, move || attribute(share, counts))
        });
        let running: Vec<_> = each.collect::<io::Result<_>>().context("cannot start threads")?;
        running.into_iter().map(|one| one.join().unwrap_or_else(|panic| resume_unwind(panic))).collect()
    })
}

/// Returns the figures of some nodes.
///
/// # Errors
/// Those of [`attribute_as`].
pub fn attribute_share(path: &Path, mut options: AttributionOptions, share: &Share) -> anyhow::Result<Part> {
    let (mut part, mut known) = attribute_afresh(path, &mut options, share, OnNodes::new())?;
    if !known.new_exceptions.is_empty() {
        (part, known) = attribute_afresh(path, &mut options, share, known.new_exceptions)?;
    }
    if let Some(part) = part.take_if(|_| !known.is_to_be_repeated()) {
        return Ok(part);
    }
    // The trace is read again if the pass has found something that should have been known before the first event
    // ([`Known::is_to_be_repeated`]):
    // - A counter that came later than others, or never moved, changed the devices that locations draw from.
    // - A location's events ended with frames still open, before samples that had been read already, so that these frames took
    //   part in those samples.
    // - Readings turned out to be wrong; without them, others may be found to be wrong.
    // - A device turned out to have fewer joules than its parts; without it, the same may be found of another.
    // - The power of a device while nothing of the run was active turned out to be different.
    // - The first thread of a process had no frames, and another one had, which is the main thread then.
    // The first two cases and the last one need only one repetition, as it begins with the devices, the ends and the threads that
    // this pass found.
    for _ in 0..PASSES_MAX {
        let ends = known.ends.clone();
        (part, known) = attribute_once(path, &mut options, share, known)?;
        known.ends.extend(ends);
        if !known.is_revised && !known.is_disproved_late && !known.has_new_baselines {
            break;
        }
    }
    let mut part = part.with_context(|| format!("{} changed while it was read", path.display()))?;
    if known.is_revised || known.is_disproved_late {
        part.doubts.push(format!(
            "{} was read {PASSES_MAX} times, and each time other readings of its counters were found to be wrong; others may be wrong",
            path.display()
        ));
    }
    Ok(part)
}

/// Reads the trace without findings of earlier passes: once, or twice if its recorders must be compared first.
fn attribute_afresh(
    path: &Path,
    options: &mut AttributionOptions,
    share: &Share,
    exceptions: OnNodes,
) -> anyhow::Result<(Option<Part>, Known)> {
    let known = Known { exceptions, ..Known::default() };
    let (part, mut known) = attribute_once(path, options, share, known)?;
    if !known.is_undecided {
        return Ok((part, known));
    }
    let exceptions = std::mem::take(&mut known.exceptions);
    let recorders = Some(Recorders::survey(path, options.config, Some(share), &exceptions)?);
    attribute_once(path, options, share, Known { recorders, exceptions, ..Known::default() })
}

/// The findings of earlier passes over a trace.
#[derive(Default)]
struct Known {
    devices: Vec<Found>,
    recorders: Option<Recorders>,
    /// See [`Metrics::find_exceptions`]: those that the pass was given, and those that it found.
    exceptions: OnNodes,
    new_exceptions: OnNodes,
    /// Whether several locations record a metric of the same name, and `recorders` are not known yet.
    is_undecided: bool,
    /// For each location whose events end, with frames still open, before samples that had been read already: the number of its
    /// enters and leaves, after which these frames end, and the time at which they do.
    ends: HashMap<u64, (u64, u64)>,
    /// The threads that only record metrics: see [`threads_without_frames`].
    without_frames: BTreeSet<LocationRef>,
    /// Whether these threads were not known before the pass.
    has_new_mains: bool,
    /// For each device, the ranges of its readings that are wrong.
    wrong: HashMap<usize, Vec<(u64, u64)>>,
    /// Whether some wrong readings were not known before the pass.
    is_revised: bool,
    /// Whether links changed after joules had been attributed with the old ones.
    links_changed_late: bool,
    /// Devices with fewer joules than their parts, which are therefore wrong, and a line for each.
    disproved: Vec<Series>,
    disproved_notes: Vec<String>,
    /// Whether some of these devices were not known before the pass.
    is_disproved_late: bool,
    /// The power of each device while nothing of the run was active.
    baselines: HashMap<usize, Baseline>,
    /// Whether the baselines before the pass were different.
    has_new_baselines: bool,
    /// The reasons why joules are in doubt, a line each.
    doubts: Vec<String>,
    /// Metrics whose joules may be missing.
    missing: BTreeSet<String>,
    /// The observations of such metrics.
    shown: HashMap<Series, Shown>,
    freshness: Freshness,
    meters: Vec<Meter>,
}

impl Known {
    /// Whether the last pass would have had another result with this knowledge.
    fn is_to_be_repeated(&self) -> bool {
        self.links_changed_late
            || !self.ends.is_empty()
            || self.has_new_mains
            || self.is_revised
            || self.is_disproved_late
            || self.has_new_baselines
    }

    /// Copies the evidence about the counters from the attributor.
    fn learn(&mut self, attributor: &Attributor) {
        for found in &mut self.devices {
            if let Some(number) = found.number {
                found.evidence.clone_from(&attributor.counted_part(number).evidence);
            }
        }
        let baselines = (0..attributor.devices.len())
            .filter_map(|device| Some((device, attributor.idle_baseline(device)?)))
            .collect();
        self.has_new_baselines = self.baselines != baselines;
        self.baselines = baselines;
    }

    /// Finds the devices that are parts of others, now that their joules are known.
    fn relate(&mut self, definitions: &Definitions, attributor: &mut Attributor) {
        let joules = |attributor: &Attributor, device: usize| {
            attributor.engine.totals(attributor.devices[device].views.ranks).total_joules
        };
        let Related { disproved, notes, doubts } =
            relate(definitions, &mut self.devices, attributor, &joules);
        self.is_disproved_late = !disproved.is_empty();
        self.disproved.extend(disproved);
        self.disproved_notes.extend(notes);
        self.doubts.extend(doubts.into_iter().chain(doubt_of_nodes(definitions)));
        self.doubts.extend(doubt_of_equal_nodes(definitions));
        self.doubts.extend(self.freshness.doubts(attributor.ticks_per_second));
        self.missing = left_out::missing(definitions, &self.shown, &mean_powers(attributor, &joules));
    }
}

/// Reads the trace once. Returns the findings for the next pass, and the figures unless the recorders are undecided.
fn attribute_once(
    path: &Path,
    options: &mut AttributionOptions,
    share: &Share,
    known: Known,
) -> anyhow::Result<(Option<Part>, Known)> {
    let AttributionOptions { config, only, waits: wants_waits, recorder, threads, progress } = options;
    let mut trace = open(path)?;
    let definitions = trace.definitions().clone();
    trace.restrict(|location| share.has(&definitions, location));
    let exceptions = known.exceptions.clone();
    let metrics = Metrics::new(&definitions, config).with(exceptions.clone());
    let mut attributor = Attributor::new(Config::clone(config), definitions.clock.timer_resolution);
    if let Some(recorder) = recorder {
        let begin =
            definitions.clock.global_offset.saturating_add(shift_of(config, attributor.ticks_per_second));
        attributor.record(recorder(Clock { begin, ticks_per_second: attributor.ticks_per_second })?);
    }
    let expected = trace.events_expected();
    progress(0, expected);
    let mut step = |done| progress(done, expected);
    let (recorders, disproved_notes) = (known.recorders.clone(), known.disproved_notes.clone());
    let (disproved, baselines) = (known.disproved.clone(), known.baselines.clone());
    let mut pipeline = Pipeline::new(attributor, GpuStreams::InTime);
    let without_frames = known.without_frames.clone();
    let mut locations =
        add_locations(&definitions, Some(share), trace.missing(), &without_frames, &mut pipeline);
    let is_whole = definitions.locations.iter().all(|(location, _)| share.has(&definitions, location));
    if *wants_waits && (is_whole || !waits::are_across_nodes(&definitions)) {
        let clock_error = waits::clock_error(&trace, config);
        let ranks = waits::ranks_of(&definitions, &mut locations, &pipeline.attributor, clock_error);
        ranks.into_iter().for_each(|ranks| pipeline.attributor.find_waits(ranks));
    }
    let mut feed = Feed::new(&definitions, locations, metrics, known, &mut pipeline, &mut step);
    let report = match *threads {
        0 | 1 => trace.read_events(&mut feed),
        _ => trace.read_events_ahead(&mut feed),
    };
    let report = report.with_context(|| format!("cannot read {}", path.display()))?;
    feed.pipeline.end_samples();
    feed.pipeline.advance_to_the_end();
    feed.pipeline.attributor.end_waits();
    feed.quality.records.kernels_without_launch = feed.pipeline.all_without_launch();
    let ends = report.unended.iter().filter_map(|location| Some(feed.locations.get_mut(location.0)?.last));
    let ends = ends.collect::<Vec<_>>();
    let (mut known, mut quality) = feed.finish(recorders);
    (known.disproved, known.disproved_notes, known.baselines) = (disproved, disproved_notes, baselines);
    known.exceptions = exceptions;
    if known.is_undecided {
        return Ok((None, known));
    }
    known.has_new_mains = known.without_frames != without_frames;
    let nesting = Nesting::of(&report.nesting, &ends, readings_of(&pipeline.attributor));
    quality.records.repaired_events += nesting.repaired();
    pipeline.attributor.end_recording()?;
    pipeline.conclude();
    let mut attributor = pipeline.attributor;
    known.learn(&attributor);
    known.relate(&definitions, &mut attributor);
    known.links_changed_late = attributor.links_changed_late();
    let mut warnings: Vec<String> = trace.missing().iter().map(|l| missing_line(&trace, *l)).collect();
    warnings.extend(report.truncated.iter().map(|(location, why)| {
        format!("location {} is attributed only up to the end of its events: {why}", location.0)
    }));
    let node_ranks = Summary::ranks_of_nodes(&attributor);
    let (nodes, ranks) = (node_ranks.keys().cloned().collect(), node_ranks.values().sum());
    let run = Run { nodes, ranks, node_ranks, complete: true, ..Run::default() };
    let summary = Summary::new(&attributor, *only, run, quality);
    let part = Part { nesting, ..part_of(&attributor, &known, summary, warnings) };
    Ok((Some(part), known))
}

/// Returns the figures of a pass as a part of those of the whole trace.
fn part_of(attributor: &Attributor, known: &Known, summary: Summary, warnings: Vec<String>) -> Part {
    let mut notes = conflicts::node_notes(attributor);
    notes.extend(known.recorders.iter().flat_map(Recorders::notes).cloned());
    let is_device = |node: &str, name: &str| {
        let mut devices = attributor.devices.iter();
        devices.any(|device| (device.info.node.as_str(), device.info.metric.as_str()) == (node, name))
    };
    notes.extend(notes_of_silent(&known.exceptions, is_device));
    Part {
        readings: readings_of(attributor),
        devices: known.devices.iter().map(|found| found.series.as_numbers()).collect(),
        doubts: known.disproved_notes.iter().chain(&known.doubts).cloned().collect(),
        missing: known.missing.clone(),
        meters: known.meters.clone(),
        nesting: Nesting::default(),
        other_threads: OtherThreads::of(attributor),
        doubtful_joules: known.recorders.as_ref().map_or(0.0, Recorders::doubtful_joules),
        warnings,
        notes,
        summary,
    }
}

fn open(path: &Path) -> anyhow::Result<Trace> {
    let trace = Trace::open(path)?;
    let locations = trace.definitions().locations.iter().count();
    if locations > 0 && !trace.has_event_file() {
        bail!(
            "{}: none of its {locations} locations has an event file; they are expected in {}",
            path.display(),
            path.with_extension("").display()
        );
    }
    Ok(trace)
}

/// Returns the times of the first and the last reading of an energy.
pub(crate) fn readings_of(attributor: &Attributor) -> Option<(u64, u64)> {
    let counters = attributor.devices.iter().filter(|device| device.info.unit == Unit::Joules);
    let spans: Vec<_> = counters
        .map(|device| {
            let CounterFigures { first, last, .. } = device.counter_figures();
            let read_at = |time: u64| time.saturating_add(device.delay_ticks);
            (first.map(read_at), last.map(read_at))
        })
        .collect();
    let first = spans.iter().filter_map(|(first, _)| *first).min();
    first.zip(spans.iter().filter_map(|(_, last)| *last).max())
}

impl EventHandler for Feed<'_> {
    fn attribute(&self) -> Option<AttributeRef> {
        self.calls
    }

    fn second_attribute(&self) -> Option<AttributeRef> {
        self.correlation
    }

    fn second_value(&mut self, _location: LocationRef, value: u64) -> Flow {
        self.next_id = Some(value);
        ControlFlow::Continue(())
    }

    #[inline]
    fn enter(
        &mut self,
        location: LocationRef,
        time: u64,
        region: otf2::RegionRef,
        calls: Option<u64>,
    ) -> Flow {
        let coalesced = &mut self.quality.records.coalesced_calls;
        *coalesced = coalesced.saturating_add(calls.unwrap_or(0));
        let time = self.time_at(location, time);
        let id = self.next_id.take();
        if let Some(state) = self.locations.get_mut(location.0) {
            state.first = state.first.min(time);
            (state.last, state.depth) = (time, state.depth + 1);
            let attributor = &mut self.pipeline.attributor;
            let known = self.regions.get_mut(region.0.into()).copied();
            let region = known.unwrap_or_else(|| attributor.regions.add_unknown(region.0));
            let calls = calls.map_or(state.calls, |calls| calls.min(u32::MAX.into()) as u32);
            let index = state.index;
            if let Some(stream) = self.pipeline.stream(state.index) {
                match id {
                    Some(id) => stream.enter_correlated(time, region, calls, id),
                    None => stream.enter(time, region, calls),
                }
                state.count(stream);
            }
            if let Some(waiting) = &mut self.pipeline.attributor.waiting {
                let is_mpi = self.is_mpi.get(region.0 as usize).copied().unwrap_or_default();
                waiting.enter(index, time, region, is_mpi);
            }
        } else {
            self.not_threads.insert(location);
        }
        ControlFlow::Continue(())
    }

    fn leave(&mut self, location: LocationRef, time: u64, _region: otf2::RegionRef) -> Flow {
        let time = self.time_at(location, time);
        if let Some(state) = self.locations.get_mut(location.0) {
            (state.last, state.depth) = (time, state.depth.saturating_sub(1));
            if let Some(stream) = self.pipeline.stream(state.index) {
                stream.leave(time);
                state.count(stream);
            }
            if let Some(waiting) = &mut self.pipeline.attributor.waiting {
                waiting.leave(state.index, time);
            }
        }
        ControlFlow::Continue(())
    }

    /// Ends the open frames of a location at the time of its last event, because nothing is known about it after that.
    fn end(&mut self, location: LocationRef, last: u64) -> Flow {
        if let Some(state) = self.locations.get_mut(location.0) {
            state.last = state.last.max(last.saturating_add(self.shift));
            if state.depth > 0 && state.last < self.latest_sample {
                self.late_ends.insert(location.0, (state.events, state.last));
            }
            self.pipeline.stream(state.index).into_iter().for_each(|stream| stream.close(state.last));
            if let Some(waiting) = &mut self.pipeline.attributor.waiting {
                waiting.close(state.index, state.last);
            }
        }
        self.cpu_times.end(location);
        ControlFlow::Continue(())
    }

    fn wants_communication(&self) -> bool {
        self.pipeline.attributor.waiting.is_some()
    }

    fn communication(&mut self, location: LocationRef, time: u64, event: Communication) -> Flow {
        let time = time.saturating_add(self.shift);
        let (state, waiting) = (self.locations.get_mut(location.0), &mut self.pipeline.attributor.waiting);
        if let (Some(state), Some(waiting), Some(operation)) = (state, waiting, waits::operation(event)) {
            waiting.communicate(state.index, time.max(state.last), operation);
        }
        ControlFlow::Continue(())
    }

    fn metric(
        &mut self,
        location: LocationRef,
        time: u64,
        metric: MetricRef,
        values: &[MetricValue],
    ) -> Flow {
        let time = time.saturating_add(self.shift);
        if let Some(seconds) = self.cpu_times.read(location, time, metric, values)
            && let Some(state) = self.locations.get_mut(location.0)
        {
            self.pipeline.add_cpu_time(state.index, time, seconds);
        }
        if let Some((name, count)) = self.sampled_events.read(metric, values)
            && let Some(index) = self.locations.get_mut(location.0).map(|state| state.index)
            && let Some(event) = self.pipeline.attributor.events.number_at(index, name)
            && let Some(stream) = self.pipeline.stream(index)
        {
            stream.counts(event, count);
            return ControlFlow::Continue(());
        }
        let definitions = self.devices.definitions();
        if let Some(seconds) = self.cpu_times.read_other_jobs(metric, values) {
            let node = node_of(definitions, location);
            self.pipeline.attributor.add_other_jobs(&node);
            self.pipeline.add_cpu_time_of_other_jobs(&node, time, seconds);
        }
        work::read(&mut self.pipeline.attributor.work, definitions, location, metric, values);
        self.sensors.read(&mut self.pipeline.attributor, definitions, location, time, (metric, values));
        let attributor = &mut self.pipeline.attributor;
        for (number, value) in self.devices.samples(location, time, (metric, values), attributor) {
            let device = &mut self.pipeline.attributor.devices[number];
            let reading = self.readings.next(number, device);
            device.read(time, index::value(value), reading);
            self.latest_sample = self.latest_sample.max(time.saturating_sub(device.delay_ticks));
            self.pipeline.queue_samples(number);
        }
        let must_stop = self.devices.is_undecided || self.pipeline.attributor.recording_has_failed();
        if must_stop { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

impl<'a> Feed<'a> {
    fn new(
        definitions: &'a Definitions,
        mut locations: NumberTable<LocationState>,
        metrics: Metrics,
        known: Known,
        pipeline: &'a mut Pipeline,
        progress: &'a mut (dyn FnMut(u64) + Send),
    ) -> Feed<'a> {
        for (location, end) in known.ends {
            locations.get_mut(location).into_iter().for_each(|state| state.ends_after = Some(end));
        }
        let mut devices = TraceDevices::new(definitions, metrics, known.recorders, known.disproved);
        let cpu_times = CpuTimes::new(definitions, |location| locations.get_mut(location.0).is_some());
        let attributor = &mut pipeline.attributor;
        attributor.knows_cpu_times = cpu_times.are_known();
        devices.add_found(known.devices, attributor);
        known
            .baselines
            .into_iter()
            .for_each(|(device, baseline)| attributor.learn_baseline(device, baseline));
        let shift = shift_of(attributor.config(), attributor.ticks_per_second);
        let regions = add_regions(definitions, attributor);
        let is_mpi =
            |region: &Region| i32::from(region.paradigm) == paradigm::MPI || regions::is_mpi(&region.name);
        let wants_waits = attributor.waiting.is_some();
        if let Some(waiting) = &mut attributor.waiting {
            for (number, region) in (0..).zip(attributor.regions.all()) {
                waiting.add_region(RegionRef(number), &region.name);
            }
        }
        let is_mpi = attributor.regions.all().iter().map(is_mpi).filter(|_| wants_waits).collect();
        Feed {
            locations,
            regions,
            is_mpi,
            devices,
            sensors: TraceSensors::new(definitions),
            cpu_times,
            not_threads: BTreeSet::new(),
            sampled_events: SampledEvents::new(definitions),
            readings: Readings { counts: HashMap::new(), wrong: known.wrong },
            latest_sample: 0,
            late_ends: HashMap::new(),
            shift,
            quality: Losses::default(),
            waited: 0,
            calls: calls_attribute(definitions),
            correlation: correlation_attribute(definitions),
            next_id: None,
            pipeline,
            progress,
        }
    }

    /// Returns the findings of this pass, and the losses.
    fn finish(mut self, recorders: Option<Recorders>) -> (Known, Losses) {
        self.set_spans();
        let without_frames = self.threads_without_frames();
        let mut wrong = self.readings.wrong;
        let mut is_revised = false;
        for (number, device) in self.pipeline.attributor.devices.iter().enumerate() {
            let taken_back = device.counter().taken_back();
            is_revised |= !taken_back.is_empty();
            wrong.entry(number).or_default().extend(taken_back);
        }
        let of_functions = doubt_of_functions(self.devices.definitions(), self.not_threads);
        let known = Known {
            ends: self.late_ends,
            doubts: of_functions.into_iter().collect(),
            without_frames,
            is_undecided: self.devices.is_undecided,
            new_exceptions: self.devices.exceptions(&self.pipeline.attributor),
            meters: self.devices.meters(),
            shown: self.devices.shown,
            freshness: self.devices.freshness,
            devices: self.devices.found,
            recorders,
            wrong,
            is_revised,
            ..Known::default()
        };
        (known, self.quality)
    }

    fn is_our_own(&self) -> bool {
        self.devices.found.iter().any(|found| found.is_stated)
    }

    /// Returns the threads that only record metrics. In ampere's own traces, the main threads are those of the run.
    fn threads_without_frames(&mut self) -> BTreeSet<LocationRef> {
        if self.is_our_own() {
            return BTreeSet::new();
        }
        let locations = &mut self.locations;
        let has_frames = |of: LocationRef| locations.get_mut(of.0).is_none_or(|state| state.events > 0);
        threads_without_frames(self.devices.definitions(), &self.devices.found, has_frames)
    }

    /// Sets the first and the last time at which functions ran on each node. In ampere's own traces, a run lasts from its first
    /// to its last sample.
    fn set_spans(&mut self) {
        if self.is_our_own() {
            return;
        }
        let definitions = self.devices.definitions();
        for (reference, _) in definitions.locations.iter() {
            let state = self.locations.get_mut(reference.0).filter(|state| state.first <= state.last);
            if let Some(LocationState { first, last, .. }) = state {
                self.pipeline.attributor.extend_run(&node_of(definitions, reference), (*first, *last));
            }
        }
    }

    /// Counts a location's next event and returns its time. If that is before the time of the last event, as with decreasing
    /// clock offsets, no time has passed.
    fn time_at(&mut self, location: LocationRef, time: u64) -> u64 {
        let time = time.saturating_add(self.shift);
        self.count(time);
        let last = self.locations.get_mut(location.0).map_or(0, |state| state.last);
        self.quality.records.repaired_events += u64::from(time < last);
        time.max(last)
    }

    fn count(&mut self, time: u64) {
        self.quality.records.events += 1;
        self.waited += 1;
        if self.waited >= BATCH {
            self.put_in_order(time);
        }
        if self.quality.records.events.is_multiple_of(1 << 20) {
            (self.progress)(self.quality.records.events);
        }
    }

    /// Attributes everything up to the time before which no further sample can come. The trace has been read up to `time`.
    fn put_in_order(&mut self, time: u64) {
        self.waited = 0;
        let until = time.saturating_sub(self.pipeline.attributor.longest_delay_ticks());
        let mut waits_since = 0;
        if self.pipeline.waiting() > WAITING_MAX {
            self.pipeline.decide_before(until);
            // In ampere's own traces, the CPU time of a running thread is recorded several times a second.
            waits_since = until.saturating_sub(self.pipeline.attributor.ticks_per_second);
        }
        let mut known_until = self.cpu_times.known_until(waits_since);
        if self.pipeline.waiting() > 2 * WAITING_MAX {
            known_until = until;
        }
        let until = until.min(known_until).min(self.pipeline.attributor.undecided_since());
        self.pipeline.advance_ranks(until);
        self.pipeline.attributor.settle_waits(until, false);
    }
}

/// Returns the ticks that are added to all times, so that a delay does not make any of them less than 0.
fn shift_of(config: &Config, ticks_per_second: u64) -> u64 {
    let delays = config.devices.iter().map(|device| device.delay.as_secs_f64());
    (delays.fold(0.0, f64::max) * ticks_per_second as f64).round() as u64
}
