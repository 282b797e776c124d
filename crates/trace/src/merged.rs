//! Passes on the events of a trace in the form in which joules are attributed: sampled frames enclose the recorded calls of their
//! threads.

use crate::cpu_times::CpuTimes;
use crate::locations::{LocationState, add_locations, add_regions};
use ampere_attribution::Step;
use ampere_model::RegionRef;
use ampere_model::numbers::NumberTable;
use ampere_settings::Config;
use ampere_timeline::attributor::Attributor;
use ampere_timeline::pipeline::{GpuStreams, Pipeline};
use otf2::{AttributeRef, Definitions, EventHandler, Flow, LocationRef, MetricRef, MetricValue};
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::ops::ControlFlow;

/// After this number of events, those whose CPU time is known by then are passed on.
const BATCH: usize = 1 << 12;
/// The maximum number of events that wait until their CPU time is known.
const HELD_MAX: usize = 1 << 22;

/// Passes events on. An enter event that is sampled, or that continues a call, counts as 0 calls.
pub(crate) struct Merged<'a, H> {
    inner: &'a mut H,
    attributor: Attributor,
    locations: NumberTable<LocationState>,
    /// The attributor's number of each of the trace's regions.
    regions: NumberTable<RegionRef>,
    /// The trace's region for each of the attributor's numbers.
    names: HashMap<RegionRef, otf2::RegionRef>,
    /// For each location, by the attributor's index: its reference in the trace and its open regions.
    open: Vec<(LocationRef, Vec<otf2::RegionRef>)>,
    cpu_times: CpuTimes,
    /// The events that wait until their CPU time is known, because it decides which sampled frames are around recorded calls.
    held: VecDeque<Held>,
    /// The time of the last event.
    last: u64,
}

struct Held {
    location: LocationRef,
    time: u64,
    event: Event,
}

enum Event {
    Enter(otf2::RegionRef, Option<u64>),
    Leave(otf2::RegionRef),
    Metric(MetricRef, Vec<MetricValue>),
    /// The end of a location, with the time at which its open frames end.
    End(u64),
}

impl<'a, H: EventHandler> Merged<'a, H> {
    /// Passes events on to `inner`. `missing` lists the locations without the event file that they should have.
    pub fn new(definitions: &Definitions, missing: &[LocationRef], inner: &'a mut H) -> Merged<'a, H> {
        let attributor = Attributor::new(Config::default(), definitions.clock.timer_resolution);
        let mut pipeline = Pipeline::new(attributor, GpuStreams::InTime);
        let mut locations = add_locations(definitions, None, missing, &BTreeSet::new(), &mut pipeline);
        let mut attributor = pipeline.attributor;
        let mut regions = add_regions(definitions, &mut attributor);
        let numbered = definitions
            .regions
            .iter()
            .filter_map(|(reference, _)| Some((*regions.get_mut(reference.0.into())?, reference)));
        let names = numbered.collect();
        let references = definitions.locations.iter().map(|(reference, _)| reference);
        let mut open: Vec<_> = references
            .filter_map(|reference| Some((locations.get_mut(reference.0)?.index, (reference, Vec::new()))))
            .collect();
        open.sort_by_key(|(index, _)| index.0);
        let open = open.into_iter().map(|(_, open)| open).collect();
        let cpu_times = CpuTimes::new(definitions, |location| locations.get_mut(location.0).is_some());
        let held = VecDeque::new();
        Merged { inner, attributor, locations, regions, names, open, cpu_times, held, last: 0 }
    }

    /// Returns the state of a location if some or all of its frames are samples.
    fn sampled(&mut self, location: LocationRef) -> Option<&mut LocationState> {
        let state = self.locations.get_mut(location.0)?;
        self.attributor.has_samples(state.index).then_some(state)
    }

    fn hold(&mut self, location: LocationRef, time: u64, event: Event) -> Flow {
        self.last = time;
        self.held.push_back(Held { location, time, event });
        if self.held.len().is_multiple_of(BATCH) { self.pass_known() } else { ControlFlow::Continue(()) }
    }

    /// Passes on the events that still wait, even if their CPU time is not known: it stays unknown if the events of a location
    /// cannot be read, because such a location has no end.
    pub fn finish(mut self) -> Flow {
        while let Some(held) = self.held.pop_front() {
            self.pass(held)?;
        }
        ControlFlow::Continue(())
    }

    /// Passes on the events whose CPU time is known.
    fn pass_known(&mut self) -> Flow {
        let known_until = self.cpu_times.known_until(0);
        while let Some(held) = self.held.pop_front() {
            if held.time >= known_until && self.held.len() < HELD_MAX {
                self.held.push_front(held);
                break;
            }
            self.pass(held)?;
        }
        let next = self.held.front().map_or(self.last, |held| held.time);
        self.attributor.engine.release_cpu_times(next);
        ControlFlow::Continue(())
    }

    fn pass(&mut self, Held { location, time, event }: Held) -> Flow {
        let sampled = self.sampled(location);
        match (event, sampled) {
            (Event::Metric(metric, values), _) => self.inner.metric(location, time, metric, &values),
            (Event::Enter(region, calls), None) => self.inner.enter(location, time, region, calls),
            (Event::Leave(region), None) => self.inner.leave(location, time, region),
            (Event::End(last), None) => self.inner.end(location, last),
            (Event::Enter(region, calls), Some(state)) => {
                state.depth += 1;
                let calls = calls.map_or(state.calls, |calls| calls.min(u32::MAX.into()) as u32);
                let state = *state;
                let known = self.regions.get_mut(region.0.into()).copied();
                let known = known.unwrap_or_else(|| {
                    let unknown = self.attributor.regions.add_unknown(region.0);
                    self.names.insert(unknown, region);
                    unknown
                });
                self.step(state, Step::enter(time, known, calls))
            }
            (Event::Leave(_), Some(state)) => {
                state.depth = state.depth.saturating_sub(1);
                let state = *state;
                self.step(state, Step::leave(time))
            }
            (Event::End(last), Some(state)) => {
                let state = *state;
                for _ in 0..state.depth {
                    self.step(state, Step::leave(last))?;
                }
                self.inner.end(location, last)
            }
        }
    }

    fn step(&mut self, state: LocationState, step: Step) -> Flow {
        let mut passed = Vec::new();
        self.attributor.pass(state.index, step, &mut |location, step| passed.push((location, step)));
        for (location, step) in passed {
            let (location, open) = &mut self.open[location.0 as usize];
            match step.region().map(|region| self.names[&region]) {
                Some(region) => {
                    open.push(region);
                    let calls = Some(u64::from(step.calls())).filter(|calls| *calls != 1);
                    self.inner.enter(*location, step.time, region, calls)?;
                }
                None => {
                    open.pop().map_or(ControlFlow::Continue(()), |region| {
                        self.inner.leave(*location, step.time, region)
                    })?;
                }
            }
        }
        ControlFlow::Continue(())
    }
}

impl<H: EventHandler> EventHandler for Merged<'_, H> {
    fn attribute(&self) -> Option<AttributeRef> {
        self.inner.attribute()
    }

    fn enter(
        &mut self,
        location: LocationRef,
        time: u64,
        region: otf2::RegionRef,
        calls: Option<u64>,
    ) -> Flow {
        self.hold(location, time, Event::Enter(region, calls))
    }

    fn leave(&mut self, location: LocationRef, time: u64, region: otf2::RegionRef) -> Flow {
        self.hold(location, time, Event::Leave(region))
    }

    fn end(&mut self, location: LocationRef, last: u64) -> Flow {
        self.cpu_times.end(location);
        self.hold(location, self.last, Event::End(last))
    }

    fn metric(
        &mut self,
        location: LocationRef,
        time: u64,
        metric: MetricRef,
        values: &[MetricValue],
    ) -> Flow {
        if let Some(seconds) = self.cpu_times.read(location, time, metric, values)
            && let Some(state) = self.locations.get_mut(location.0)
        {
            let ticks = self.attributor.cpu_ticks_of(seconds);
            self.attributor.engine.add_cpu_time(state.index, time, ticks);
        }
        self.hold(location, time, Event::Metric(metric, values.to_vec()))
    }
}
