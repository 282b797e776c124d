//! Passes on the events of a trace in the form in which joules are attributed: sampled frames enclose the recorded calls of their
//! threads.

use crate::locations::{LocationState, add_locations, add_regions};
use ampere_attribution::Step;
use ampere_model::RegionRef;
use ampere_model::numbers::NumberTable;
use ampere_settings::Config;
use ampere_timeline::attributor::Attributor;
use ampere_timeline::pipeline::{GpuStreams, Pipeline};
use otf2::{AttributeRef, Definitions, EventHandler, Flow, LocationRef, MetricRef, MetricValue};
use std::collections::HashMap;
use std::ops::ControlFlow;

/// Passes events on. An enter event that is sampled, or that continues a call, counts as 0 calls.
pub(crate) struct Merged<'a, H> {
    inner: &'a mut H,
    attributor: Attributor,
    locations: NumberTable<LocationState>,
    /// The attributor's number of each of the trace's regions.
    regions: NumberTable<RegionRef>,
    names: HashMap<RegionRef, otf2::RegionRef>,
    /// For each location, by the attributor's index: its reference in the trace and its open regions.
    open: Vec<(LocationRef, Vec<otf2::RegionRef>)>,
}

impl<'a, H: EventHandler> Merged<'a, H> {
    /// Passes events on to `inner`. `missing` lists the locations without events.
    pub fn new(definitions: &Definitions, missing: &[LocationRef], inner: &'a mut H) -> Merged<'a, H> {
        let attributor = Attributor::new(Config::default(), definitions.clock.timer_resolution);
        let mut pipeline = Pipeline::new(attributor, GpuStreams::InTime);
        let mut locations = add_locations(definitions, None, missing, &mut pipeline);
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
        Merged { inner, attributor, locations, regions, names, open }
    }

    /// Returns the state of a location if some or all of its frames are samples.
    fn sampled(&mut self, location: LocationRef) -> Option<&mut LocationState> {
        let state = self.locations.get_mut(location.0)?;
        self.attributor.has_samples(state.index).then_some(state)
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
        let Some(state) = self.sampled(location) else {
            return self.inner.enter(location, time, region, calls);
        };
        (state.last, state.depth) = (time, state.depth + 1);
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

    fn leave(&mut self, location: LocationRef, time: u64, region: otf2::RegionRef) -> Flow {
        let Some(state) = self.sampled(location) else { return self.inner.leave(location, time, region) };
        (state.last, state.depth) = (time, state.depth.saturating_sub(1));
        let state = *state;
        self.step(state, Step::leave(time))
    }

    fn end(&mut self, location: LocationRef) -> Flow {
        if let Some(state) = self.sampled(location).copied() {
            for _ in 0..state.depth {
                self.step(state, Step::leave(state.last))?;
            }
        }
        self.inner.end(location)
    }

    fn metric(
        &mut self,
        location: LocationRef,
        time: u64,
        metric: MetricRef,
        values: &[MetricValue],
    ) -> Flow {
        self.inner.metric(location, time, metric, values)
    }
}
