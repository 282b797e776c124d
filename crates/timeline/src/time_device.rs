//! Time as a metric: a device whose counter is the clock, for a time profile with no counter at all.
//!
//! One per node, of its ranks. Every active rank gets all of the time (a second is not shared), so its exclusive figures
//! are the ranks' run times, its inclusive ones the time in a function and below, and idle is the time in which no rank
//! of the node had a frame open. It begins with the node's first event and ends with its last.

use crate::attributor::{Attributor, Device, DeviceInfo, Unit};
use crate::nature::Nature;
use crate::topology;
use ampere_attribution::{Counter, CounterKind, Limits, LocationIndex, Policy, Sharing, Step};
use ampere_model::{Quality, RegionRef, Timestamp};

/// The name of device and metric.
pub const TIME: &str = "time";

impl Attributor {
    #[inline]
    pub fn enter(&mut self, location: LocationIndex, time: Timestamp, region: RegionRef) {
        self.enter_folded(location, time, region, 1);
    }

    /// One that stands for so many calls.
    #[inline]
    pub fn enter_folded(&mut self, location: LocationIndex, time: Timestamp, region: RegionRef, calls: u64) {
        if !self.not_begun.is_empty() {
            self.begin_time(location, time);
        }
        self.engine.enter_calls(location, time, region, calls);
    }

    pub fn step(&mut self, location: LocationIndex, step: Step) {
        if !self.not_begun.is_empty() && step.is_enter() {
            self.begin_time(location, step.time);
        }
        self.engine.steps(location, &[step]);
    }

    pub fn leave(&mut self, location: LocationIndex, time: Timestamp) {
        self.engine.leave(location, time);
    }

    /// Leaves every open frame.
    pub fn close(&mut self, location: LocationIndex, time: Timestamp) {
        self.engine.close(location, time);
    }

    /// A node's time, if it is wanted and not there yet. To be called before the node's ranks are added.
    pub(crate) fn add_time(&mut self, node: &str) {
        let there = |device: &Device| device.info.unit == Unit::Seconds && device.info.node == node;
        if !self.config().attribution.time || self.devices.iter().any(there) {
            return;
        }
        let ticks_per_second = self.ticks_per_second as f64;
        let kind = CounterKind::Cumulative { joules_per_unit: 1.0 / ticks_per_second, wraps_at: None };
        let info = DeviceInfo {
            node: node.to_owned(),
            name: TIME.to_owned(),
            metric: TIME.to_owned(),
            source: "clock".to_owned(),
            quality: Quality::Measured,
            nature: Nature::default(),
            unit: Unit::Seconds,
        };
        let views = [(); 2].map(|()| self.engine.add_view(Policy::TimeSliced, Sharing::Independent));
        self.not_begun.push(self.devices.len());
        let (locations, counter) =
            (self.config().attribution.locations, Counter::new(kind, Limits::none(ticks_per_second)));
        self.devices.push(Device::new(info, views, locations, counter));
        self.link_device(topology::Counter::new(TIME, topology::Place::default(), None));
    }

    fn begin_time(&mut self, location: LocationIndex, time: Timestamp) {
        let info = &self.locations[location.0 as usize];
        if !self.is_rank(info) {
            return;
        }
        let node = info.node.clone();
        let here = |device: &usize| self.devices[*device].info.node == node;
        let Some(at) = self.not_begun.iter().position(here) else { return };
        let device = self.not_begun.swap_remove(at);
        self.read_time(device, time);
    }

    /// The run is over: time is handed out up to each node's last event.
    pub fn end_time(&mut self) {
        for device in 0..self.devices.len() {
            let info = &self.devices[device].info;
            if info.unit != Unit::Seconds || self.not_begun.contains(&device) {
                continue;
            }
            let here = |at: &usize| {
                let location = &self.locations[*at];
                location.node == info.node && self.is_rank(location)
            };
            let ends = (0..self.locations.len()).filter(here);
            let last = ends.map(|at| self.engine.last_change(LocationIndex(at as u32))).max();
            if let Some(last) = last {
                self.read_time(device, last);
            }
        }
    }

    fn read_time(&mut self, device: usize, time: Timestamp) {
        self.read_now(device, time, time);
    }
}
