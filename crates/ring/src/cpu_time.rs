//! Adds up the CPU time of a location from all records about it. If a collector is killed, the records of the next one start from
//! 0 again.

use ampere_model::Timestamp;

/// The CPU time of one location so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct CpuTotal {
    /// The time and the nanoseconds of the last point; `None` before the first one.
    last: Option<(Timestamp, u64)>,
}

/// The nanoseconds of the last record of a ring.
#[derive(Clone, Copy, Debug, Default)]
pub struct CpuOfRing(u64);

impl CpuOfRing {
    /// Returns these nanoseconds.
    pub fn ns(&self) -> u64 {
        self.0
    }
}

impl CpuTotal {
    /// Whether a record reports CPU time before the last point. Then a record of another ring made that point.
    pub fn is_late(&self, source: &CpuOfRing, (time, _, ns): (Timestamp, u32, u64)) -> bool {
        ns > source.0 && self.last.is_some_and(|(last, _)| last > time)
    }

    /// Adds a record of a ring ([`crate::decoder::Event::CpuTime`]): the CPU time at `time` is `ns`, and it rose in the
    /// `rose_ticks` before that, or since the last point if that is 0. Calls `point` with each new point: a time, and the
    /// nanoseconds of CPU time up to it. Neither ever decreases, and between two points the CPU time rises evenly.
    pub fn add(
        &mut self,
        source: &mut CpuOfRing,
        (time, rose_ticks, ns): (Timestamp, u32, u64),
        mut point: impl FnMut(Timestamp, u64),
    ) {
        let rise = ns.saturating_sub(std::mem::replace(&mut source.0, ns));
        let (last_time, total) = self.last.unwrap_or((0, 0));
        let time = time.max(last_time);
        let begin = if rose_ticks > 0 { time.saturating_sub(rose_ticks.into()) } else { last_time };
        if self.last.is_none() && (rise > 0 || rose_ticks > 0) || begin > last_time {
            point(begin.max(last_time), total);
        }
        let total = total.saturating_add(rise);
        point(time, total);
        self.last = Some((time, total));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points_of(records: &[(usize, Timestamp, u32, u64)]) -> Vec<(Timestamp, u64)> {
        let (mut total, mut sources, mut points) =
            (CpuTotal::default(), [CpuOfRing::default(); 2], Vec::new());
        for (source, time, rose, ns) in records {
            total.add(&mut sources[*source], (*time, *rose, *ns), |time, ns| points.push((time, ns)));
        }
        points
    }

    #[test]
    fn cpu_time_rises_only_while_the_thread_is_on_a_cpu() {
        let apart = [(0, 100, 30, 30), (0, 200, 50, 80)];
        assert_eq!(points_of(&apart), [(70, 0), (100, 30), (150, 30), (200, 80)]);
        let together = [(0, 100, 30, 30), (0, 130, 30, 60), (0, 140, 0, 65)];
        assert_eq!(points_of(&together), [(70, 0), (100, 30), (130, 60), (140, 65)]);
    }

    #[test]
    fn the_records_of_a_collector_that_takes_over_continue_those_of_the_killed_one() {
        let records = [(0, 100, 30, 30), (1, 200, 10, 10), (1, 210, 10, 20)];
        assert_eq!(points_of(&records), [(70, 0), (100, 30), (190, 30), (200, 40), (210, 50)]);
    }

    #[test]
    fn cpu_time_before_a_point_of_another_ring_is_late() {
        let (mut total, mut earlier, mut later) =
            (CpuTotal::default(), CpuOfRing::default(), CpuOfRing::default());
        total.add(&mut later, (100, 10, 10), |_, _| {});
        assert!(total.is_late(&earlier, (90, 10, 10)));
        assert!(!total.is_late(&earlier, (90, 0, 0)), "the CPU time did not rise");
        assert!(!total.is_late(&earlier, (110, 10, 10)));
        total.add(&mut earlier, (110, 10, 10), |_, _| {});
        assert!(!total.is_late(&later, (120, 10, 20)));
    }

    #[test]
    fn points_of_a_trace_stay_as_they_are() {
        assert_eq!(
            points_of(&[(0, 70, 0, 0), (0, 100, 0, 30), (0, 150, 0, 30)]),
            [(70, 0), (100, 30), (150, 30)]
        );
    }

    #[test]
    fn neither_times_nor_cpu_times_decrease() {
        let points =
            points_of(&[(0, 100, 30, 30), (0, 90, 50, 10), (0, 95, 200, u64::MAX), (1, 0, 9, u64::MAX)]);
        assert!(points.windows(2).all(|pair| pair[0] <= pair[1]), "{points:?}");
    }
}
