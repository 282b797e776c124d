//! An existing OTF2 trace through the same attributor as a live run: `ampere attribute`.

use crate::attributor::{Attributor, Device, LocationInfo, Unit, ViewKind};
use crate::clock_text;
use crate::config::Config;
use crate::numbers::NumberTable;
use crate::order::{Lane, QueueIndex};
use crate::recorders::Recorders;
use crate::summary::{QualityFigures, Run, Summary};
use crate::trace_devices::{Found, Metrics, TraceDevices};
use crate::trace_index::{
    IN_DOUBT, as_model, calls_attribute, metric_names, missing_line, no_energy, node_of, rank_of_group,
    trace_id,
};
use crate::{conflicts, evidence};
use ampere_attribution::{CounterFigures, LocationIndex};
use ampere_model::{LocationKind, RegionRef};
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
    /// The time of the last one so far.
    latest_sample: u64,
    /// See [`Known`]: as it is found out.
    late_ends: HashMap<u64, u64>,
    /// Added to all times: by a delay, none becomes less than 0.
    shift: u64,
    quality: QualityFigures,
    /// Samples that are shifted by a sensor's delay have to be put in order again.
    delayed: Option<Delayed>,
    /// Of our own traces: how many calls an enter stands for.
    calls: Option<AttributeRef>,
    progress: &'a mut dyn FnMut(u64),
}

#[derive(Clone, Copy)]
struct Place {
    index: LocationIndex,
    /// Time of its last enter or leave, how many there were, and open frames.
    last: u64,
    events: u64,
    depth: u64,
    /// After so many of them, what is open ends.
    ends_after: Option<u64>,
    queue: Option<QueueIndex>,
}

impl Place {
    /// An event more. What was never left ends here, if it is known to be the location's last one before samples that follow.
    #[inline]
    fn count(&mut self, attributor: &mut Attributor) {
        self.events += 1;
        if self.ends_after == Some(self.events) {
            attributor.close(self.index, self.last);
            self.depth = 0;
        }
    }
}

struct Delayed {
    lane: Lane,
    /// Per device: delays differ, and within a queue times must not go back.
    samples: Vec<QueueIndex>,
    waited: u64,
}

/// Numbers from here on are taken for undefined: a table of them would not fit into memory.
const MOST_REGIONS: u32 = 1 << 24;
/// How many events are collected before they are put in order.
const DELAYED_BATCH: u64 = 4096;

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
        Some(attributed) if !attributed.moved && known.ends.is_empty() => return Ok(attributed),
        _ => {}
    }
    // A counter that came later than others, or that never moved, changed who spends from those; or a frame that is never left
    // ended before samples that came first: once more, with all that known before the first event.
    let (attributed, _) = attribute_once(path, config, only, progress, known)?;
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
    let mut locations = add_locations(definitions, trace.missing(), &mut attributor);
    let Known { devices: known, recorders, ends, .. } = known;
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
    let delayed = config.devices.iter().any(|device| !device.delay.is_zero()).then(|| {
        let mut lane = Lane::default();
        locations.values_mut().for_each(|place| place.queue = Some(lane.add_location(place.index)));
        Delayed { samples: Vec::new(), lane, waited: 0 }
    });
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
    let mut step = |done| progress(done, expected);
    let mut feed = Feed {
        attributor: &mut attributor,
        locations,
        regions,
        devices,
        latest_sample: 0,
        late_ends: HashMap::new(),
        shift: longest_delay,
        quality: QualityFigures::default(),
        delayed,
        calls,
        progress: &mut step,
    };
    let report = trace.read_events(&mut feed).with_context(|| format!("cannot read {}", path.display()))?;
    feed.put_in_order(u64::MAX);
    let Feed { quality, devices, late_ends, .. } = feed;
    let mut known =
        Known { ends: late_ends, is_undecided: devices.is_undecided, devices: devices.found, recorders };
    if known.is_undecided {
        return Ok((None, known));
    }
    attributor.end_time();
    attributor.learn_silence();
    for found in &mut known.devices {
        found.place.silent = attributor.is_silent(&found.device.node, &found.device.metric);
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
            match (&mut self.delayed, place.queue) {
                (Some(delayed), Some(queue)) => delayed.lane.queue(queue).leave(time),
                _ => self.attributor.leave(place.index, time),
            }
            place.count(self.attributor);
        }
        ControlFlow::Continue(())
    }

    /// What was never left ends with the location's last event: nothing is known of it after that.
    fn end(&mut self, location: LocationRef) -> ControlFlow<()> {
        if let Some(place) = self.locations.get_mut(location.0) {
            match (&mut self.delayed, place.queue) {
                (Some(delayed), Some(queue)) => delayed.lane.queue(queue).close(place.last),
                _ => {
                    if place.depth > 0 && place.last < self.latest_sample {
                        self.late_ends.insert(location.0, place.events);
                    }
                    self.attributor.close(place.index, place.last);
                }
            }
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
        let time = time.saturating_add(self.shift);
        for at in 0..self.devices.members(metric) {
            let attributor = &mut *self.attributor;
            let Some((position, number)) = self.devices.device(location, metric, at, attributor) else {
                continue;
            };
            let Some(value) = values.get(position) else { continue };
            let device = &mut attributor.devices[number];
            let (time, increase) = device.read_value(time, value);
            self.latest_sample = self.latest_sample.max(time);
            let views = [device.ranks, device.kernels];
            for view in views {
                match &mut self.delayed {
                    Some(delayed) => {
                        while delayed.samples.len() <= number {
                            delayed.samples.push(delayed.lane.add_counter());
                        }
                        delayed.lane.queue(delayed.samples[number]).sample(time, view, increase);
                    }
                    None => attributor.engine.sample(view, time, increase),
                }
            }
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
            match (&mut self.delayed, place.queue) {
                (Some(delayed), Some(queue)) => delayed.lane.queue(queue).enter(time, region, calls),
                _ => attributor.enter_folded(place.index, time, region, calls.into()),
            }
            place.count(attributor);
        }
        ControlFlow::Continue(())
    }

    fn count(&mut self, time: u64) {
        self.quality.events += 1;
        if let Some(delayed) = &mut self.delayed {
            delayed.waited += 1;
            if delayed.waited >= DELAYED_BATCH {
                self.put_in_order(time);
            }
        }
        if self.quality.events.is_multiple_of(1 << 20) {
            (self.progress)(self.quality.events);
        }
    }

    /// Hands over what no sample can come before any more, when the trace has been read up to `time`.
    fn put_in_order(&mut self, time: u64) {
        if let Some(delayed) = &mut self.delayed {
            delayed.waited = 0;
            let longest = self.attributor.longest_delay_ticks();
            // At the end there is nothing to wait for.
            let until = if time == u64::MAX { time } else { time.saturating_sub(longest) };
            delayed.lane.advance(until, self.attributor);
        }
    }
}

fn add_locations(
    definitions: &otf2::Definitions,
    missing: &[LocationRef],
    attributor: &mut Attributor,
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
        all.insert(reference.0, Place { index, last: 0, events: 0, depth: 0, ends_after: None, queue: None });
    }
    all
}
