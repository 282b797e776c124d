//! Keeps each device's power since the start of the run in constant memory: in rings that overwrite their oldest steps. The steps
//! of each ring are four times as long as those of the ring before, so older values are coarser.

use ampere_report::page::Segment;
use ringbuf::LocalRb;
use ringbuf::storage::Heap;
use ringbuf::traits::Observer;

/// The shortest step, and the number of steps of each length: 100 s of the shortest.
const STEP_SECONDS: f64 = 0.25;
const STEPS: usize = 400;
const FACTOR: f64 = 4.0;
/// The number of different lengths. The longest steps reach back 19 days.
const LENGTHS: usize = 8;

/// The power of each device.
#[derive(Default)]
pub struct History {
    devices: Vec<Option<Series>>,
}

struct Series {
    /// The time of the first sample.
    begin: f64,
    /// The last sample: seconds since the first one, and joules.
    last: (f64, f64),
    rings: Vec<Ring>,
}

struct Ring {
    step: f64,
    /// The number of steps so far.
    taken: u64,
    /// The joules at the end of the last step.
    joules: f64,
    watts: LocalRb<Heap<f32>>,
}

impl History {
    /// Forgets the power of all devices.
    pub fn clear(&mut self) {
        self.devices.clear();
    }

    /// Adds a device's last sample: its time in seconds, and the joules until then. The joules between two samples are spread
    /// evenly.
    pub fn add_sample(&mut self, device: usize, seconds: f64, joules: f64) {
        if self.devices.len() <= device {
            self.devices.resize_with(device + 1, || None);
        }
        self.devices[device].get_or_insert_with(|| Series::new(seconds, joules)).add_sample(seconds, joules);
    }

    /// Returns the power of a device in time order; empty if it has no samples.
    pub fn segments(&mut self, device: usize) -> Vec<Segment> {
        self.devices.get_mut(device).and_then(Option::as_mut).map_or_else(Vec::new, Series::segments)
    }
}

impl Series {
    fn new(begin: f64, joules: f64) -> Series {
        let step = |at: usize| STEP_SECONDS * FACTOR.powi(at as i32);
        let ring = |at| Ring { step: step(at), taken: 0, joules, watts: LocalRb::new(STEPS) };
        Series { begin, last: (0.0, joules), rings: (0..LENGTHS).map(ring).collect() }
    }

    fn add_sample(&mut self, seconds: f64, joules: f64) {
        let (from, before) = self.last;
        let to = seconds - self.begin;
        if !(to > from && joules.is_finite()) {
            return;
        }
        let at = |time: f64| before + (joules - before) * (time - from) / (to - from);
        self.rings.iter_mut().for_each(|ring| ring.advance(to, at));
        self.last = (to, joules);
    }

    fn segments(&mut self) -> Vec<Segment> {
        let (mut segments, mut covered) = (Vec::new(), 0.0);
        let begins: Vec<f64> = self.rings.iter().map(|ring| ring.first() as f64 * ring.step).collect();
        for (number, ring) in self.rings.iter_mut().enumerate().rev() {
            let until = number.checked_sub(1).map_or(f64::INFINITY, |finer| begins[finer]);
            let first = ring.first();
            let from = first.max((covered / ring.step).round() as u64);
            let steps = ring.watts.iter().skip((from - first) as usize).zip(from..);
            let watts: Vec<Option<f64>> = steps
                .take_while(|(_, step)| (*step as f64) * ring.step < until)
                .map(|(watts, _)| Some((f64::from(*watts) * 10.0).round() / 10.0))
                .collect();
            if !watts.is_empty() {
                let begin = from as f64 * ring.step;
                covered = begin + watts.len() as f64 * ring.step;
                segments.push(Segment { begin, step: ring.step, watts });
            }
        }
        segments
    }
}

impl Ring {
    /// Returns the number of its oldest step.
    fn first(&self) -> u64 {
        self.taken - self.watts.occupied_len() as u64
    }

    /// Ends the steps that have passed. `joules_at` returns the joules at a time between the previous sample and this one.
    fn advance(&mut self, now: f64, joules_at: impl Fn(f64) -> f64) {
        let over = (now / self.step) as u64;
        if over > self.taken + STEPS as u64 {
            // After a long pause, only the last steps are computed, because all are equal.
            let skipped = over - STEPS as u64;
            self.joules = joules_at(skipped as f64 * self.step);
            self.taken = skipped;
        }
        while self.taken < over {
            self.taken += 1;
            let joules = joules_at(self.taken as f64 * self.step);
            self.watts.push_overwrite(((joules - self.joules) / self.step) as f32);
            self.joules = joules;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn covered(segments: &[Segment]) -> f64 {
        segments.iter().fold(0.0, |end, segment| {
            assert!((segment.begin - end).abs() < 1e-9, "{end} {segment:?}");
            segment.begin + segment.step * segment.watts.len() as f64
        })
    }

    #[test]
    fn a_short_run_is_kept_in_short_steps() {
        let mut history = History::default();
        history.add_sample(0, 100.0, 5.0);
        history.add_sample(0, 101.0, 15.0);
        history.add_sample(0, 101.0, 15.0);
        history.add_sample(0, 101.5, 35.0);
        let segments = history.segments(0);
        let watts = [10.0, 10.0, 10.0, 10.0, 40.0, 40.0].map(Some).to_vec();
        assert_eq!(segments, [Segment { begin: 0.0, step: 0.25, watts }]);
        assert_eq!(history.segments(1), []);
    }

    #[test]
    fn a_long_run_is_kept_as_a_whole_coarser_with_age_in_constant_memory() {
        let mut history = History::default();
        let hours = 30.0;
        let mut seconds = 0.0;
        let joules =
            |seconds: f64| 100.0 * seconds + if seconds > 3600.0 { 50.0 * (seconds - 3600.0) } else { 0.0 };
        while seconds < hours * 3600.0 {
            history.add_sample(0, seconds, joules(seconds));
            seconds += 0.4;
        }
        let segments = history.segments(0);
        assert!(covered(&segments) > seconds - 2.0, "to the end");
        assert!(segments.windows(2).all(|pair| pair[0].step > pair[1].step), "the older the coarser");
        let steps: usize = segments.iter().map(|segment| segment.watts.len()).sum();
        assert!(steps <= LENGTHS * STEPS, "{steps}");
        let sum: f64 = segments
            .iter()
            .flat_map(|segment| segment.watts.iter().map(|watts| watts.unwrap_or(0.0) * segment.step))
            .sum();
        assert!((sum / joules(seconds) - 1.0).abs() < 1e-3, "{sum} {}", joules(seconds));
        assert_eq!((segments[0].watts[0], segments[segments.len() - 1].watts[0]), (Some(100.0), Some(150.0)));
    }

    #[test]
    fn a_pause_costs_no_more_than_the_rings() {
        let mut history = History::default();
        history.add_sample(0, 0.0, 0.0);
        history.add_sample(0, 1e9, 1e9);
        let segments = history.segments(0);
        assert!(segments.iter().flat_map(|segment| &segment.watts).all(|watts| *watts == Some(1.0)));
        assert!(segments.len() <= LENGTHS);
    }
}
