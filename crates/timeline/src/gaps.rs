//! Finds the times in which nothing was sampled because a collector was killed and another one took over, and the joules of these
//! times.
//!
//! Gaps depend only on the samples and on the ring positions at which another sampler started: a collector that reads the samples
//! again finds the same gaps.

use ampere_attribution::Increase;
use ampere_model::Timestamp;

#[derive(Debug, Default)]
pub struct Gaps {
    /// Positions in the sampler's ring at which another sampler took over, ascending.
    breaks: Vec<u64>,
    /// The time of each device's last sample, and the number of breaks before it.
    last: Vec<Option<(Timestamp, usize)>>,
    gaps: Vec<Gap>,
}

/// The time from the last sample before a break to the first one after it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Gap {
    /// The start in ticks of the session's clock.
    pub begin: Timestamp,
    /// The end in the same ticks; 0 until sampling continued.
    pub end: Timestamp,
    /// Devices and the joules of their counters; those of a counter that was reset are unknown and left out.
    pub joules: Vec<(usize, f64)>,
}

impl Gaps {
    /// Makes gaps at these breaks. No sample has been added yet.
    pub fn new(breaks: Vec<u64>) -> Gaps {
        let gaps = vec![Gap::default(); breaks.len()];
        Gaps { breaks, last: Vec::new(), gaps }
    }

    /// Adds a device's next sample: its position in the ring, its time, and the increase of the counter.
    pub fn add(&mut self, position: u64, device: usize, time: Timestamp, increase: Increase) {
        if self.breaks.is_empty() {
            return;
        }
        let breaks = self.breaks.partition_point(|at| *at <= position);
        if self.last.len() <= device {
            self.last.resize(device + 1, None);
        }
        let before = self.last[device].replace((time, breaks));
        let Some((begin, _)) = before.filter(|(_, earlier)| *earlier < breaks) else { return };
        let gap = &mut self.gaps[breaks - 1];
        gap.begin = gap.begin.max(begin);
        gap.end = if gap.end == 0 { time } else { gap.end.min(time) };
        if let Increase::Joules(joules) | Increase::Lost(joules) = increase {
            gap.joules.push((device, joules));
        }
    }

    /// Returns the gaps after which sampling continued.
    pub fn closed(&self) -> impl Iterator<Item = &Gap> {
        self.gaps.iter().filter(|gap| gap.end > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_is_from_the_last_sample_before_a_break_to_the_first_after_it() {
        let mut gaps = Gaps::new(vec![8, 8, 12]);
        let mut sample = |position, device, time, joules| {
            gaps.add(position, device, time, Increase::Joules(joules));
        };
        sample(0, 0, 10, 1.0);
        sample(2, 1, 11, 1.0);
        sample(4, 0, 20, 1.0);
        sample(6, 0, 30, 1.0);
        sample(8, 0, 100, 70.0);
        sample(10, 1, 101, 90.0);
        sample(12, 1, 200, 5.0);
        sample(14, 1, 210, 5.0);
        // With two breaks at one position, the sampler between them took no sample.
        let expected = [
            Gap { begin: 30, end: 100, joules: vec![(0, 70.0), (1, 90.0)] },
            Gap { begin: 101, end: 200, joules: vec![(1, 5.0)] },
        ];
        assert!(gaps.closed().eq(&expected), "{gaps:?}");
    }

    #[test]
    fn without_a_break_there_is_no_gap() {
        let mut gaps = Gaps::new(Vec::new());
        gaps.add(0, 0, 10, Increase::First);
        gaps.add(2, 0, 1000, Increase::Joules(5.0));
        assert_eq!(gaps.closed().count(), 0);
    }
}
