//! When locations used CPU time, as far as it is known.

use crate::steps::LocationIndex;
use ampere_model::Timestamp;
use std::collections::VecDeque;

/// A location's CPU time as a function of time. It rises evenly between two points, and not at all before the first and after the
/// last one.
#[derive(Clone, Debug, Default)]
pub(crate) struct CpuTime {
    /// Times, and the CPU time up to them in ticks. Neither decreases.
    points: VecDeque<(Timestamp, f64)>,
}

impl CpuTime {
    /// Adds a point that is not before the last one.
    fn add(&mut self, time: Timestamp, ticks: f64) {
        let (time, ticks) =
            self.points.back().map_or((time, ticks), |last| (time.max(last.0), ticks.max(last.1)));
        self.points.push_back((time, ticks));
    }

    /// The CPU time up to a time, in ticks.
    #[inline]
    pub fn at(&self, time: Timestamp) -> f64 {
        let next = self.points.partition_point(|point| point.0 <= time);
        match (next.checked_sub(1).and_then(|last| self.points.get(last)), self.points.get(next)) {
            (Some(last), Some(next)) => {
                last.1 + (next.1 - last.1) * ((time - last.0) as f64 / (next.0 - last.0) as f64)
            }
            (Some(only), None) | (None, Some(only)) => only.1,
            (None, None) => 0.0,
        }
    }

    /// Releases what is not needed for this time and later ones.
    fn release_before(&mut self, time: Timestamp) {
        let next = self.points.partition_point(|point| point.0 <= time);
        self.points.drain(..next.saturating_sub(1));
    }
}

/// The CPU times of all locations.
#[derive(Clone, Debug, Default)]
pub(crate) struct CpuTimes(Vec<Option<CpuTime>>);

impl CpuTimes {
    /// The CPU time of a location, if it is known.
    #[inline]
    pub fn of(&self, location: u32) -> Option<&CpuTime> {
        self.0.get(location as usize).and_then(Option::as_ref)
    }

    pub fn add(&mut self, location: LocationIndex, time: Timestamp, ticks: f64) {
        let at = location.0 as usize;
        if at >= self.0.len() {
            self.0.resize(at + 1, None);
        }
        self.0[at].get_or_insert_default().add(time, ticks);
    }

    pub fn release_before(&mut self, time: Timestamp) {
        self.0.iter_mut().flatten().for_each(|cpu_time| cpu_time.release_before(time));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_rises_between_its_points_only() {
        let mut cpu_time = CpuTime::default();
        for (time, ticks) in [(10, 5.0), (20, 15.0), (30, 15.0), (30, 16.0), (25, 20.0)] {
            cpu_time.add(time, ticks);
        }
        let expected = [(0, 5.0), (10, 5.0), (14, 9.0), (20, 15.0), (29, 15.0), (30, 20.0), (99, 20.0)];
        for (time, ticks) in expected {
            assert_eq!(cpu_time.at(time), ticks, "at {time}");
        }
        cpu_time.release_before(14);
        assert_eq!((cpu_time.at(14), cpu_time.points.len()), (9.0, 5));
        cpu_time.release_before(31);
        assert_eq!((cpu_time.at(31), cpu_time.points.len()), (20.0, 1));
    }
}
