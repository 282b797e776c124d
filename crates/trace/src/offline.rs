//! An existing OTF2 trace through the same attributor as a live run: `ampere attribute`.

use crate::devices::{Found, Metrics, TraceDevices};
use crate::evidence;
use crate::index::{
    IN_DOUBT, as_model, calls_attribute, metric_names, missing_line, no_energy, node_of, rank_of_group,
    trace_id,
};
use crate::recorders::Recorders;
use crate::sensors::TraceSensors;
use ampere_attribution::{CounterFigures, Sample};
use ampere_model::numbers::NumberTable;
use ampere_model::{LocationKind, RegionRef};
use ampere_report::clock_text;
use ampere_report::summary::{QualityFigures, Run, Summary};
use ampere_settings::Config;
use ampere_timeline::attributor::{Attributor, Device, LocationInfo, Unit, ViewKind};
use ampere_timeline::conflicts;
use ampere_timeline::order::{Lane, QueueIndex};
use anyhow::{Context, bail};
use otf2::{AttributeRef, EventHandler, LocationRef, LocationType, MetricRef, MetricValue, Trace};
use std::collections::HashMap;
use std::ops::ControlFlow;
use std::path::Path;

/// What a trace's locations and metrics are to the attributor.
struct Feed<'a> {
    attributor: &'a mut Attributor,
    locations: NumberTable<Place>,
    /// By the trace's own number: they are dense in any trace that a measurement system wrote.
    regions: Vec<Option<RegionRef>>,
    devices: TraceDevices<'a>,
    sensors: TraceSensors,
    /// The time of the last one so far.
    latest_sample: u64,
    /// See [`Known`]: as it is found out.
    late_ends: HashMap<u64, u64>,
    /// Added to all times: by a delay, none becomes less than 0.
    shift: u64,
    quality: QualityFigures,
    order: InOrder,
    /// By device: how many readings it had so far, and between which of these they are known to be wrong.
    readings: HashMap<usize, u64>,
    wrong: HashMap<usize, Vec<(u64, u64)>>,
    /// Of our own traces: how many calls an enter stands for.
    calls: Option<AttributeRef>,
    progress: &'a mut dyn FnMut(u64),
}

#[derive(Clone, Copy)]
struct Place {
    /// Time of its last enter or leave, how many there were, and open frames.
    last: u64,
    events: u64,
    depth: u64,
    /// After so many of them, what is open ends.
    ends_after: Option<u64>,
    queue: QueueIndex,
}

impl Place {
    /// An event more. What was never left ends here, if it is known to be the location's last one before samples that follow.
    #[inline]
    fn count(&mut self, order: &mut InOrder) {
        self.events += 1;
        if self.ends_after == Some(self.events) {
            order.lane.queue(self.queue).close(self.last);
            self.depth = 0;
        }
    }
}

/// A sample comes later than what happened before it: it waits for the next reading, and a sensor may lag.
#[derive(Default)]
struct InOrder {
    lane: Lane,
    /// Per device: within a queue times must not go back.
    samples: Vec<QueueIndex>,
    /// Events since what is certain was last handed over.
    waited: u64,
}

impl InOrder {
    fn queue_samples(&mut self, number: usize, device: &mut Device) {
        while self.samples.len() <= number {
            self.samples.push(self.lane.add_counter());
        }
        while let Some(Sample { time, increase, .. }) = device.sample() {
            for view in [device.ranks, device.kernels] {
                self.lane.queue(self.samples[number]).sample(time, view, increase);
            }
        }
    }
}

/// Numbers from here on are taken for undefined: a table of them would not fit into memory.
const MOST_REGIONS: u32 = 1 << 24;
/// How many events are collected before they are put in order.
const BATCH: u64 = 4096;
const PASSES_MAX: usize = 4;
/// So many events wait for a counter to confirm a rise, and no more.
const WAITING_MAX: usize = 1 << 22;

pub struct Attributed {
    pub summary: Summary,
    /// One line each: what was not read, and why.
    pub warnings: Vec<String>,
    /// One line each: what is odd about the settings.
    pub odd: Vec<String>,
    /// Who spends from what became known too late.
    moved: bool,
}

/// Reads the whole trace. `progress` gets the number of events read so far, and is told the number to expect first.
pub fn attribute(
    path: &Path,
    config: &Config,
    only: Option<ViewKind>,
    progress: &mut dyn FnMut(u64, u64),
) -> anyhow::Result<Attributed> {
    let (mut attributed, mut known) = attribute_once(path, config, only, progress, Known::default())?;
    if known.is_undecided {
        let recorders = Some(Recorders::survey(path, config)?);
        (attributed, known) =
            attribute_once(path, config, only, progress, Known { recorders, ..Known::default() })?;
    }
    match attributed {
        Some(attributed) if !attributed.moved && known.ends.is_empty() && !known.is_revised => {
            return Ok(attributed);
        }
        _ => {}
    }
    // A counter that came later than others, or that never moved, changed who spends from those; a frame that is never left
    // ended before samples that came first; or readings turned out to be wrong later: again, with all that known before the
    // first event. Without some readings, others may be found to be wrong.
    for _ in 0..PASSES_MAX {
        let ends = known.ends.clone();
        (attributed, known) = attribute_once(path, config, only, progress, known)?;
        known.ends.extend(ends);
        if !known.is_revised {
            break;
        }
    }
    attributed.with_context(|| format!("{} changed while it was read", path.display()))
}

/// What the first look at a trace has found out.
#[derive(Default)]
struct Known {
    devices: Vec<Found>,
    recorders: Option<Recorders>,
    /// Several locations record a metric of one name: without `recorders` it is not known what that means.
    is_undecided: bool,
    /// Enters and leaves of the locations whose open frames are to end before later samples of theirs.
    ends: HashMap<u64, u64>,
    /// By device, between which of its readings they are wrong, and whether that was not known before.
    wrong: HashMap<usize, Vec<(u64, u64)>>,
    is_revised: bool,
}

/// What was found out is returned, and may be known before. No figures, if it is undecided.
fn attribute_once(
    path: &Path,
    config: &Config,
    only: Option<ViewKind>,
    progress: &mut dyn FnMut(u64, u64),
    known: Known,
) -> anyhow::Result<(Option<Attributed>, Known)> {
    let mut trace = Trace::open(path)?;
    let definitions = trace.definitions();
    let locations = definitions.locations.iter().count();
    if locations > 0 && trace.missing().len() == locations {
        bail!(
            "{}: none of its {locations} locations has an event file; they are expected in {}",
            path.display(),
            path.with_extension("").display()
        );
    }
    let mut attributor = Attributor::new(config.clone(), definitions.clock.timer_resolution);
    let mut warnings: Vec<String> = trace.missing().iter().map(|l| missing_line(&trace, *l)).collect();
    let names = metric_names(definitions);
    let mut order = InOrder::default();
    let mut locations = add_locations(definitions, trace.missing(), &mut attributor, &mut order.lane);
    let Known { devices: known, recorders, ends, wrong, .. } = known;
    for (location, events) in ends {
        locations.get_mut(location).into_iter().for_each(|place| place.ends_after = Some(events));
    }
    let metrics = Metrics::new(definitions, config);
    let (left_out, energy_known) = (metrics.left_out.clone(), metrics.energy_is_known);
    let all_definitions = definitions.clone();
    let mut devices = TraceDevices::new(&all_definitions, metrics, recorders.clone());
    devices.know(known, &mut attributor);
    let delays = config.devices.iter().map(|device| device.delay.as_secs_f64());
    let longest_delay = attributor.ticks_of(delays.fold(0.0, f64::max));
    let mut regions = Vec::new();
    for (reference, region) in definitions.regions.iter().filter(|(reference, _)| reference.0 < MOST_REGIONS)
    {
        let at = reference.0 as usize;
        regions.resize(regions.len().max(at + 1), None);
        let reference = attributor.regions.add(&as_model(region));
        regions[at] = Some(attributor.regions.of_name(reference));
    }
    let calls = calls_attribute(definitions);
    let clock = definitions.clock.clone();
    let expected = trace.events_expected();
    progress(0, expected);
    let sensors = TraceSensors::new(&all_definitions);
    let mut step = |done| progress(done, expected);
    let mut feed = Feed {
        attributor: &mut attributor,
        locations,
        regions,
        sensors,
        devices,
        latest_sample: 0,
        late_ends: HashMap::new(),
        shift: longest_delay,
        quality: QualityFigures::default(),
        order,
        readings: HashMap::new(),
        wrong,
        calls,
        progress: &mut step,
    };
    let report = trace.read_events(&mut feed).with_context(|| format!("cannot read {}", path.display()))?;
    feed.end_order();
    let Feed { quality, devices, late_ends, mut wrong, .. } = feed;
    let (is_undecided, found) = (devices.is_undecided, devices.found);
    let mut is_revised = false;
    for (number, device) in attributor.devices.iter().enumerate() {
        let taken_back = device.counter().taken_back();
        is_revised |= !taken_back.is_empty();
        wrong.entry(number).or_default().extend(taken_back);
    }
    let mut known = Known { ends: late_ends, is_undecided, devices: found, recorders, wrong, is_revised };
    if known.is_undecided {
        return Ok((None, known));
    }
    attributor.end_time();
    attributor.learn_silence();
    attributor.learn_rises();
    for found in &mut known.devices {
        if let Some(learnt) = attributor.place(&found.device.node, &found.device.metric) {
            found.place.clone_from(learnt);
        }
    }
    for (location, why) in &report.truncated {
        warnings.push(format!("location {} is attributed up to where its events end: {why}", location.0));
    }
    if attributor.devices.is_empty() {
        // Where events are missing, the samples may have been among them.
        let first = warnings.first().map_or_else(String::new, |first| format!(" ({first})"));
        bail!("{}{first}", no_energy(path, &trace, energy_known, config));
    }
    let (nodes, ranks) = Summary::nodes_and_ranks(&attributor);
    let seconds = |ticks: u64| ticks as f64 / clock.timer_resolution.max(1) as f64;
    let length = seconds(clock.trace_length);
    // As of a run that is measured: the time that the joules are about.
    let counters = attributor.devices.iter().filter(|device| device.info.unit == Unit::Joules);
    let of_samples = |device: &Device| {
        let CounterFigures { first, last, .. } = device.counter_figures();
        let came = |time: u64| time.saturating_add(device.delay_ticks);
        (first.map(came), last.map(came))
    };
    let counters: Vec<_> = counters.map(of_samples).collect();
    let first = counters.iter().filter_map(|(first, _)| *first).min();
    let last = counters.iter().filter_map(|(_, last)| *last).max();
    let sampled = first.zip(last).map(|(first, last)| seconds(last.saturating_sub(first)));
    let mut odd = conflicts::notes(&attributor, &names);
    odd.extend(left_out);
    odd.extend(known.recorders.iter().flat_map(Recorders::notes).cloned());
    let incomplete = evidence::is_incomplete(trace.definitions());
    if incomplete {
        odd.push(
            "the run that wrote this trace is incomplete: its own summary says what is missing".to_owned(),
        );
    }
    let run = Run {
        id: trace_id(path),
        command: Vec::new(),
        start: clock.realtime_timestamp.map_or_else(String::new, clock_text::rfc3339),
        end: clock.realtime_timestamp.map_or_else(String::new, |start| {
            clock_text::rfc3339(start.saturating_add((length * 1e9) as u64))
        }),
        complete: warnings.is_empty() && !incomplete,
        host: "trace".to_owned(),
        nodes,
        ranks,
        energy: String::new(),
        total_joules: 0.0,
        seconds: sampled.filter(|seconds| *seconds > 0.0).unwrap_or(length),
        timer: "trace".to_owned(),
        ticks_per_second: clock.timer_resolution,
        notes: warnings.iter().chain(&odd).cloned().collect(),
        ..Run::default()
    };
    let moved = attributor.links_moved();
    let mut summary = Summary::new(&attributor, only, run, quality);
    let in_doubt = known.recorders.as_ref().is_some_and(|r| r.are_in_doubt(summary.run.total_joules));
    if in_doubt {
        odd.push(IN_DOUBT.to_owned());
        summary.run.notes.push(IN_DOUBT.to_owned());
        summary.run.complete = false;
    }
    Ok((Some(Attributed { summary, warnings, odd, moved }), known))
}

impl EventHandler for Feed<'_> {
    fn enter(&mut self, location: LocationRef, time: u64, region: otf2::RegionRef) -> ControlFlow<()> {
        self.entered(location, time, region, None)
    }

    fn attribute(&self) -> Option<AttributeRef> {
        self.calls
    }

    fn enter_with(
        &mut self,
        location: LocationRef,
        time: u64,
        region: otf2::RegionRef,
        calls: u64,
    ) -> ControlFlow<()> {
        self.quality.coalesced_calls = self.quality.coalesced_calls.saturating_add(calls);
        self.entered(location, time, region, Some(calls.min(u32::MAX.into()) as u32))
    }

    fn leave(&mut self, location: LocationRef, time: u64, _region: otf2::RegionRef) -> ControlFlow<()> {
        let time = time.saturating_add(self.shift);
        self.count(time);
        if let Some(place) = self.locations.get_mut(location.0) {
            (place.last, place.depth) = (time, place.depth.saturating_sub(1));
            self.order.lane.queue(place.queue).leave(time);
            place.count(&mut self.order);
        }
        ControlFlow::Continue(())
    }

    /// What was never left ends with the location's last event: nothing is known of it after that.
    fn end(&mut self, location: LocationRef) -> ControlFlow<()> {
        if let Some(place) = self.locations.get_mut(location.0) {
            if place.depth > 0 && place.last < self.latest_sample {
                self.late_ends.insert(location.0, place.events);
            }
            self.order.lane.queue(place.queue).close(place.last);
        }
        ControlFlow::Continue(())
    }

    fn metric(
        &mut self,
        location: LocationRef,
        time: u64,
        metric: MetricRef,
        values: &[MetricValue],
    ) -> ControlFlow<()> {
        let sensed = time.saturating_add(self.shift);
        let definitions = self.devices.definitions();
        self.sensors.see(self.attributor, definitions, location, sensed, (metric, values));
        let time = time.saturating_add(self.shift);
        for at in 0..self.devices.members(metric) {
            let attributor = &mut *self.attributor;
            let Some((position, number)) = self.devices.device(location, metric, at, attributor) else {
                continue;
            };
            let Some(value) = values.get(position) else { continue };
            let device = &mut attributor.devices[number];
            let readings = self.readings.entry(number).or_default();
            if *readings == 0 {
                device.counter_mut().leave_out(self.wrong.get(&number).cloned().unwrap_or_default());
            }
            *readings += 1;
            device.read(time, crate::index::value(*value), *readings);
            self.latest_sample = self.latest_sample.max(time.saturating_sub(device.delay_ticks));
            self.order.queue_samples(number, device);
        }
        if self.devices.is_undecided { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

impl Feed<'_> {
    /// `calls`: how many it stands for, where they were folded.
    #[inline]
    fn entered(
        &mut self,
        location: LocationRef,
        time: u64,
        region: otf2::RegionRef,
        calls: Option<u32>,
    ) -> ControlFlow<()> {
        let time = time.saturating_add(self.shift);
        self.count(time);
        if let Some(place) = self.locations.get_mut(location.0) {
            (place.last, place.depth) = (time, place.depth + 1);
            let attributor = &mut *self.attributor;
            let known = self.regions.get(region.0 as usize).copied().flatten();
            let region = known.unwrap_or_else(|| attributor.regions.add_unknown(region.0));
            let calls = calls.unwrap_or(1);
            self.order.lane.queue(place.queue).enter(time, region, calls);
            place.count(&mut self.order);
        }
        ControlFlow::Continue(())
    }

    fn count(&mut self, time: u64) {
        self.quality.events += 1;
        self.order.waited += 1;
        if self.order.waited >= BATCH {
            self.put_in_order(time);
        }
        if self.quality.events.is_multiple_of(1 << 20) {
            (self.progress)(self.quality.events);
        }
    }

    /// Hands over what no sample can come before any more, when the trace has been read up to `time`.
    fn put_in_order(&mut self, time: u64) {
        self.order.waited = 0;
        let until = time.saturating_sub(self.attributor.longest_delay_ticks());
        if self.order.lane.waiting() > WAITING_MAX {
            self.attributor.devices.iter_mut().for_each(|device| device.counter_mut().decide_before(until));
            self.queue_all_samples();
        }
        self.order.lane.advance(until.min(self.attributor.undecided_since()), self.attributor);
    }

    /// There are no more events.
    fn end_order(&mut self) {
        self.attributor.devices.iter_mut().for_each(|device| device.counter_mut().end());
        self.queue_all_samples();
        self.order.lane.advance(u64::MAX, self.attributor);
    }

    fn queue_all_samples(&mut self) {
        for (number, device) in self.attributor.devices.iter_mut().enumerate() {
            if device.info.unit == Unit::Joules {
                self.order.queue_samples(number, device);
            }
        }
    }
}

fn add_locations(
    definitions: &otf2::Definitions,
    missing: &[LocationRef],
    attributor: &mut Attributor,
    lane: &mut Lane,
) -> NumberTable<Place> {
    let mut all = NumberTable::default();
    let mut mains = std::collections::HashSet::new();
    for (reference, location) in definitions.locations.iter() {
        let kind = match location.kind {
            LocationType::CpuThread => LocationKind::CpuThread,
            LocationType::AcceleratorStream => LocationKind::Gpu,
            _ => continue,
        };
        let group = location.group.and_then(|g| definitions.location_groups.get(g));
        // The first CPU location of a group is the process' main one, also when its events are missing.
        let main = kind == LocationKind::CpuThread && mains.insert(location.group);
        if missing.contains(&reference) {
            continue;
        }
        let node = node_of(definitions, reference);
        let group = group.map_or_else(String::new, |g| g.name.clone());
        let rank = location.group.and_then(|g| rank_of_group(definitions, g));
        let info = LocationInfo { node, rank, group, name: location.name.clone(), kind, main };
        let index = attributor.add_location_with(info, evidence::of_location(definitions, reference));
        if main && let Some(group) = location.group {
            let seconds = evidence::thread_seconds(definitions, group);
            seconds.into_iter().for_each(|seconds| attributor.set_cpu_seconds(group.0.into(), seconds));
        }
        all.insert(
            reference.0,
            Place { last: 0, events: 0, depth: 0, ends_after: None, queue: lane.add_location(index) },
        );
    }
    all
}
