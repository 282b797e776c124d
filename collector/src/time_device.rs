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
        if !self.config().time || self.devices.iter().any(there) {
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
            (self.config().locations, Counter::new(kind, Limits::none(ticks_per_second)));
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

#[cfg(test)]
mod tests {
    use crate::attributor::{Attributor, LocationInfo};
    use crate::config::{Config, Locations};
    use crate::summary::{QualityFigures, Run, Summary};
    use crate::topology::Evidence;
    use ampere_attribution::LocationIndex;
    use ampere_model::{LocationKind, RegionRef};

    fn attributor(locations: Locations) -> (Attributor, [LocationIndex; 3]) {
        let config = Config { time: true, locations, ..Config::default() };
        let mut attributor = Attributor::new(config, 10);
        let location = |process, main| LocationInfo {
            node: "n".to_owned(),
            group: format!("MPI Rank {process}"),
            name: "thread".to_owned(),
            kind: LocationKind::CpuThread,
            rank: Some(process),
            main,
        };
        let evidence = |process| Evidence { process: Some(process), ..Evidence::default() };
        let all = [(0, true), (0, false), (1, true)].map(|(process, main)| {
            attributor.add_location_with(location(process, main), evidence(process.into()))
        });
        (attributor, all)
    }

    /// Rank 0: f [10, 110] with g [20, 50] in it; its second thread h [20, 60]; rank 1: f [0, 10] and [130, 150].
    fn summary(locations: Locations) -> Summary {
        let (mut attributor, [main, thread, other]) = attributor(locations);
        let [f, g, h] = [0, 1, 2].map(RegionRef);
        attributor.enter(other, 0, f);
        attributor.leave(other, 10);
        attributor.enter(main, 10, f);
        attributor.enter(main, 20, g);
        attributor.enter(thread, 20, h);
        attributor.leave(main, 50);
        attributor.leave(thread, 60);
        attributor.leave(main, 110);
        attributor.enter(other, 130, f);
        attributor.leave(other, 150);
        attributor.end_time();
        Summary::new(&attributor, None, Run::default(), QualityFigures::default())
    }

    #[test]
    fn a_time_profile_needs_no_counter() {
        let summary = summary(Locations::Main);
        assert_eq!(summary.run.energy, "none", "seconds are no energy");
        let [time] = &summary.devices[..] else { panic!("one device") };
        assert_eq!((time.name.as_str(), time.unit.as_str(), time.total_joules), ("time", "s", 15.0));
        let ranks = &time.views[0];
        assert_eq!((ranks.attributed_joules, ranks.idle_joules), (13.0, 2.0));
        let rows = |rows: &[crate::summary::Callpath]| -> Vec<(String, usize, f64, f64)> {
            let row = |row: &crate::summary::Callpath| {
                assert_eq!(
                    (row.exclusive_joules, row.resolved_joules),
                    (row.exclusive_seconds, row.exclusive_seconds)
                );
                (row.location_group.to_string(), row.path.len(), row.exclusive_joules, row.inclusive_joules)
            };
            rows.iter().map(row).collect()
        };
        assert_eq!(
            rows(&ranks.callpaths),
            [
                ("MPI Rank 0".to_owned(), 1, 7.0, 10.0),
                ("MPI Rank 0".to_owned(), 2, 3.0, 3.0),
                ("MPI Rank 1".to_owned(), 1, 3.0, 3.0),
            ]
        );
        assert!(time.views[1].callpaths.is_empty());
        assert!(ranks.conservation_error_joules < 1e-12);
    }

    #[test]
    fn threads_share_the_time_of_their_rank() {
        let summary = summary(Locations::All);
        let ranks = &summary.devices[0].views[0];
        let spent = |name: &str, depth: usize| -> f64 {
            let rows =
                ranks.callpaths.iter().filter(|row| &*row.location_group == name && row.path.len() == depth);
            rows.map(|row| row.exclusive_joules).sum()
        };
        // g and h run together for 3 s, then f and h for 1 s: halves.
        assert_eq!((spent("MPI Rank 0", 2), spent("MPI Rank 1", 1)), (1.5, 3.0));
        assert!((spent("MPI Rank 0", 1) - (6.0 + 0.5 + 2.0)).abs() < 1e-12);
    }
}
