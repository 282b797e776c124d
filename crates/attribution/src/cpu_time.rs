//! The times at which locations and other jobs used CPU time, as far as they are known.

use crate::hint::Hint;
use crate::steps::LocationIndex;
use ampere_model::Timestamp;

/// Fewer points are not worth the time that it takes to release them from the middle.
const RELEASED_MIN: usize = 32;

/// A CPU time as a function of time. It rises evenly between two points, and not at all before the first and after the
/// last one.
#[derive(Clone, Debug, Default)]
pub(crate) struct CpuTime {
    /// Times, and the CPU time up to them in ticks. Neither decreases.
    points: Vec<(Timestamp, f64)>,
    hint: Hint,
}

impl CpuTime {
    /// Adds a point that is not before the last one.
    fn add(&mut self, time: Timestamp, ticks: f64) {
        let (time, ticks) =
            self.points.last().map_or((time, ticks), |last| (time.max(last.0), ticks.max(last.1)));
        self.points.push((time, ticks));
    }

    /// Returns the CPU time up to a time.
    #[inline]
    pub fn at(&self, time: Timestamp) -> Ticks {
        let next = self.hint.partition_point(&self.points, |point| point.0 <= time);
        match (next.checked_sub(1).and_then(|last| self.points.get(last)), self.points.get(next)) {
            (Some(last), Some(next)) => {
                let (passed, length, used) =
                    ((time - last.0) as f64, (next.0 - last.0) as f64, next.1 - last.1);
                // A thread that runs all the time must use exactly as many ticks as have passed.
                let since = if used == length { passed } else { used * (passed / length) };
                Ticks { at_point: last.1, since }
            }
            (Some(only), None) | (None, Some(only)) => Ticks { at_point: only.1, since: 0.0 },
            (None, None) => Ticks::default(),
        }
    }

    /// Releases the points between `start` and `end`. The CPU time stays known at these two times, and before and after them.
    fn release_between(&mut self, start: Timestamp, end: Timestamp) {
        let end = end.min(self.points.last().map_or(0, |last| last.0));
        let first = self.points.partition_point(|point| point.0 <= start);
        let last = self.points.partition_point(|point| point.0 < end);
        if last < first + RELEASED_MIN {
            return;
        }
        let [from, to] = [start, end].map(|time| (time, self.at(time).since(Ticks::default())));
        self.points.drain(first..last);
        self.points.insert(first, to);
        self.points.insert(first, from);
    }

    /// Releases points that are needed neither for `start` nor for `end` and later times.
    fn release_within(&mut self, start: Timestamp, end: Timestamp) {
        let first = self.points.partition_point(|point| point.0 <= start) + 1;
        let last = self.points.partition_point(|point| point.0 <= end).saturating_sub(1);
        if last >= first + RELEASED_MIN {
            self.points.drain(first..last);
        }
    }

    /// Releases the points that are not needed for this time and later ones.
    fn release_before(&mut self, time: Timestamp) {
        let next = self.points.partition_point(|point| point.0 <= time);
        self.points.drain(..next.saturating_sub(1));
    }
}

/// A CPU time in ticks: that of a point, and the ticks used since then. They are kept apart so that the difference of two times
/// that are close to each other loses no digits, however long the run is.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ticks {
    at_point: f64,
    since: f64,
}

impl Ticks {
    /// Returns the ticks used since an earlier time.
    #[inline]
    pub fn since(self, earlier: Ticks) -> f64 {
        (self.at_point - earlier.at_point) + (self.since - earlier.since)
    }
}

/// A handle for the other jobs of one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OtherJobs(pub(crate) u32);

/// The CPU times of all locations, and those of other jobs.
#[derive(Clone, Debug, Default)]
pub(crate) struct CpuTimes {
    of_threads: Vec<Option<CpuTime>>,
    /// The thread of each location, as an index of `of_threads`.
    threads: Vec<u32>,
    /// Whether several locations are of this thread.
    has_several: Vec<bool>,
    of_other_jobs: Vec<CpuTime>,
}

impl CpuTimes {
    /// Returns the CPU time of a location, if it is known.
    #[inline]
    pub fn of(&self, location: u32) -> Option<&CpuTime> {
        let thread = *self.threads.get(location as usize)?;
        self.of_threads[thread as usize].as_ref()
    }

    pub fn add(&mut self, location: LocationIndex, time: Timestamp, ticks: f64) {
        let thread = self.thread(location);
        self.of_threads[thread].get_or_insert_default().add(time, ticks);
    }

    /// Gives two locations of the same thread the same CPU time: that of `recorded`, if it is known, otherwise that of
    /// `samples`.
    pub fn share(&mut self, samples: LocationIndex, recorded: LocationIndex) {
        let [of_samples, of_recorded] = [samples, recorded].map(|location| self.thread(location));
        let (from, to) = match self.of_threads[of_recorded] {
            Some(_) => (of_samples, of_recorded),
            None => (of_recorded, of_samples),
        };
        let locations = self.threads.iter_mut().filter(|thread| **thread == from as u32);
        locations.for_each(|thread| *thread = to as u32);
        self.has_several[to] = true;
    }

    /// Returns the thread of a location, if other locations are of the same thread.
    pub fn thread_of_several(&self, location: u32) -> Option<u32> {
        let thread = *self.threads.get(location as usize)?;
        self.has_several[thread as usize].then_some(thread)
    }

    fn thread(&mut self, location: LocationIndex) -> usize {
        let at = location.0 as usize;
        for new in self.threads.len()..=at {
            self.threads.push(new as u32);
            self.of_threads.push(None);
            self.has_several.push(false);
        }
        self.threads[at] as usize
    }

    pub fn add_other_jobs(&mut self) -> OtherJobs {
        self.of_other_jobs.push(CpuTime::default());
        OtherJobs((self.of_other_jobs.len() - 1) as u32)
    }

    pub fn add_to_other_jobs(&mut self, OtherJobs(number): OtherJobs, time: Timestamp, ticks: f64) {
        self.of_other_jobs[number as usize].add(time, ticks);
    }

    /// Returns the CPU time of other jobs up to a time.
    pub fn of_other_jobs(&self, OtherJobs(number): OtherJobs, time: Timestamp) -> Ticks {
        self.of_other_jobs[number as usize].at(time)
    }

    /// Returns the number of points.
    pub fn len(&self) -> usize {
        let all = self.of_threads.iter().flatten().chain(&self.of_other_jobs);
        all.map(|cpu_time| cpu_time.points.len()).sum()
    }

    /// Releases the points between two times (see [`CpuTime::release_between`]).
    pub fn release_between(&mut self, start: Timestamp, end: Timestamp) {
        let all = self.of_threads.iter_mut().flatten().chain(&mut self.of_other_jobs);
        all.for_each(|cpu_time| cpu_time.release_between(start, end));
    }

    /// Releases the points before the last of these times, which are in order. The CPU times stay known at all of them, and after
    /// the last one.
    pub fn release_before(&mut self, times: &[Timestamp]) {
        for cpu_time in self.of_threads.iter_mut().flatten().chain(&mut self.of_other_jobs) {
            times.first().into_iter().for_each(|time| cpu_time.release_before(*time));
            if cpu_time.points.len() > RELEASED_MIN {
                times.windows(2).for_each(|pair| cpu_time.release_within(pair[0], pair[1]));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn total(cpu_time: &CpuTime, time: Timestamp) -> f64 {
        cpu_time.at(time).since(Ticks::default())
    }

    #[test]
    fn a_short_time_has_all_its_digits_late_in_a_long_run() {
        let mut cpu_time = CpuTime::default();
        let day = 86_400_000_000_000;
        cpu_time.add(day, day as f64 / 3.0);
        cpu_time.add(day + 1_000_000_007, day as f64 / 3.0 + 1_000_000_007.0);
        let at = |time| cpu_time.at(day + time);
        assert_eq!(at(900_000_101).since(at(900_000_000)), 101.0);
    }

    #[test]
    fn locations_of_one_thread_share_its_cpu_time() {
        let [samples, recorded, later] = [0, 1, 2].map(LocationIndex);
        for known in [samples, recorded] {
            let mut cpu_times = CpuTimes::default();
            cpu_times.add(known, 10, 1.0);
            cpu_times.share(samples, recorded);
            cpu_times.add(recorded, 20, 6.0);
            cpu_times.share(later, recorded);
            for location in [samples, recorded, later] {
                assert_eq!(total(cpu_times.of(location.0).unwrap(), 15), 3.5, "{location:?} of {known:?}");
            }
        }
        let mut cpu_times = CpuTimes::default();
        cpu_times.share(samples, recorded);
        assert!(cpu_times.of(samples.0).is_none());
        cpu_times.add(recorded, 10, 1.0);
        assert!(cpu_times.of(samples.0).is_some());
    }

    #[test]
    fn released_points_change_no_other_time() {
        let mut cpu_time = CpuTime::default();
        (0..100).for_each(|at| cpu_time.add(10 * at, (3 * at * at % 700).max(at) as f64));
        let mut before = cpu_time.clone();
        cpu_time.release_between(205, 781);
        assert_eq!(cpu_time.points.len(), before.points.len() - 58 + 2);
        for time in (0..=205).chain(781..1000) {
            assert!((total(&cpu_time, time) - total(&before, time)).abs() < 1e-9, "at {time}");
        }
        cpu_time.release_between(785, 5000);
        for all in [&mut cpu_time, &mut before] {
            all.add(2000, 5000.0);
        }
        assert!((total(&cpu_time, 1500) - total(&before, 1500)).abs() < 1e-9, "the last point is kept");
    }

    #[test]
    fn cpu_time_rises_only_between_its_points() {
        let mut cpu_time = CpuTime::default();
        for (time, ticks) in [(10, 5.0), (20, 15.0), (30, 15.0), (30, 16.0), (25, 20.0)] {
            cpu_time.add(time, ticks);
        }
        let expected = [(0, 5.0), (10, 5.0), (14, 9.0), (20, 15.0), (29, 15.0), (30, 20.0), (99, 20.0)];
        for (time, ticks) in expected {
            assert_eq!(total(&cpu_time, time), ticks, "at {time}");
        }
        cpu_time.release_before(14);
        assert_eq!((total(&cpu_time, 14), cpu_time.points.len()), (9.0, 5));
        cpu_time.release_before(31);
        assert_eq!((total(&cpu_time, 31), cpu_time.points.len()), (20.0, 1));
    }
}
