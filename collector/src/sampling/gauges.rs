//! Handles gauges, which are figures other than energy that devices report (`ampere_counters::Gauge`): when the sampler reads
//! them, and what is kept.
//!
//! Gauges are shown in /metrics and in the summary. No function is charged with a temperature, and the trace has no gauges. A
//! reported power is also integrated and compared with the device's counter (`agreement.rs` of the timeline crate).

use crate::sampling::sampler_thread::lock;
use ampere_counters::{Gauge, Quantity, Source};
use ampere_figures::gauges::{GaugeCurve, GaugeReading, OverTheRun, at_limit_ratio};
use ampere_model::Timestamp;
use ampere_timeline::curve::Curve;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Statistics of one gauge of one device. Only the sampler writes them; a reader may see some of them updated and others not
/// yet.
#[derive(Debug)]
pub struct GaugeStatistics {
    pub gauge: Gauge,
    /// The last value, NaN if there was none. This and the three fields below are the bits of an `f64`.
    last: AtomicU64,
    sum: AtomicU64,
    least: AtomicU64,
    most: AtomicU64,
    readings: AtomicU64,
    /// The values over time, for the quantities that have a line next to the power curve.
    steps: Option<Mutex<Steps>>,
}

/// The readings of a gauge, in steps that have the same number of readings. When there are too many steps, pairs of them are
/// merged.
#[derive(Debug)]
struct Steps {
    /// The number of readings in a step.
    length: u32,
    all: Vec<Step>,
}

/// The time of a step's first reading, the sum and number of those that succeeded, and the number of all.
#[derive(Clone, Copy, Debug)]
struct Step {
    time: Timestamp,
    sum: f64,
    succeeded: u32,
    readings: u32,
}

/// The maximum number of steps of a gauge.
const STEPS_MAX: usize = 512;

impl Steps {
    fn new() -> Steps {
        Steps { length: 1, all: Vec::new() }
    }

    fn add(&mut self, time: Timestamp, value: Option<f64>) {
        let (sum, succeeded) = (value.unwrap_or(0.0), u32::from(value.is_some()));
        if let Some(last) = self.all.last_mut().filter(|step| step.readings < self.length) {
            (last.sum, last.succeeded) = (last.sum + sum, last.succeeded + succeeded);
            last.readings += 1;
            return;
        }
        if self.all.len() == STEPS_MAX {
            self.length = self.length.saturating_mul(2);
            let pairs = self.all.chunks(2).map(|pair| Step {
                time: pair[0].time,
                sum: pair.iter().map(|step| step.sum).sum(),
                succeeded: pair.iter().map(|step| step.succeeded).sum(),
                readings: pair.iter().map(|step| step.readings).sum(),
            });
            self.all = pairs.collect();
        }
        self.all.push(Step { time, sum, succeeded, readings: 1 });
    }

    fn means(&self) -> Vec<(Timestamp, Option<f64>)> {
        let mean = |step: &Step| (step.succeeded > 0).then(|| step.sum / f64::from(step.succeeded));
        self.all.iter().map(|step| (step.time, mean(step))).collect()
    }
}

impl GaugeStatistics {
    fn new(gauge: Gauge) -> GaugeStatistics {
        let number = |value: f64| AtomicU64::new(value.to_bits());
        GaugeStatistics {
            gauge,
            last: number(f64::NAN),
            sum: number(0.0),
            least: number(f64::INFINITY),
            most: number(f64::NEG_INFINITY),
            readings: AtomicU64::new(0),
            steps: matches!(gauge.quantity(), Quantity::Clock | Quantity::PowerLimit | Quantity::Throttling)
                .then(|| Mutex::new(Steps::new())),
        }
    }

    pub fn of_device(source: &dyn Source, device: usize) -> Vec<GaugeStatistics> {
        source.gauges(device).iter().copied().map(GaugeStatistics::new).collect()
    }

    fn get(of: &AtomicU64) -> f64 {
        f64::from_bits(of.load(Ordering::Relaxed))
    }

    /// Adds a reading at a time of the session's clock; `None` if the gauge could not be read, so that an old value is not shown
    /// as current.
    pub fn add(&self, time: Timestamp, value: Option<f64>) {
        if let Some(steps) = &self.steps {
            lock(steps).add(time, value);
        }
        let put = |to: &AtomicU64, value: f64| to.store(value.to_bits(), Ordering::Relaxed);
        put(&self.last, value.unwrap_or(f64::NAN));
        let Some(value) = value else { return };
        put(&self.sum, GaugeStatistics::get(&self.sum) + value);
        put(&self.least, GaugeStatistics::get(&self.least).min(value));
        put(&self.most, GaugeStatistics::get(&self.most).max(value));
        self.readings.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the last reading, if it succeeded.
    pub fn now(&self) -> Option<GaugeReading> {
        let value = Some(GaugeStatistics::get(&self.last)).filter(|value| !value.is_nan())?;
        let (quantity, which) = (self.gauge.quantity().as_str().to_owned(), self.gauge.which().to_owned());
        Some(GaugeReading { quantity, which, value })
    }

    /// Returns least, mean and greatest value so far; `None` before the first reading.
    pub fn over_the_run(&self) -> Option<OverTheRun> {
        let readings = Some(self.readings.load(Ordering::Relaxed)).filter(|readings| *readings > 0)?;
        Some(OverTheRun {
            quantity: self.gauge.quantity().as_str().to_owned(),
            which: self.gauge.which().to_owned(),
            readings,
            min: GaugeStatistics::get(&self.least),
            mean: GaugeStatistics::get(&self.sum) / readings as f64,
            max: GaugeStatistics::get(&self.most),
            ..OverTheRun::default()
        })
    }

    /// Returns the same figures, and those that also need the energy of the device over time: the curve and, for a power limit,
    /// the fraction of the time at the limit.
    pub fn over_the_run_of(&self, energy: &Curve) -> Option<OverTheRun> {
        let mut over = self.over_the_run()?;
        if let Some(steps) = &self.steps {
            let means = lock(steps).means();
            over.curve = GaugeCurve::new(&means, energy);
            over.at_limit_ratio = (self.gauge.quantity() == Quantity::PowerLimit)
                .then(|| at_limit_ratio(&means, energy))
                .flatten();
        }
        Some(over)
    }
}

#[derive(Clone, Copy, Debug)]
pub struct PowerReading {
    /// The device, by the sampler's number.
    pub device: usize,
    /// The sensor or kind of power: see [`GaugeReading::which`].
    pub which: &'static str,
    /// The time by the session's clock.
    pub time: Timestamp,
    /// The power; `None` if it could not be read.
    pub watts: Option<f64>,
}

/// Combines the gauges of devices that are shown as one: powers, their limits and memories are added, and for other quantities
/// the greatest value is kept.
pub fn add_all(to: &mut Vec<GaugeReading>, more: impl Iterator<Item = GaugeReading>) {
    const ADDITIVE: [Quantity; 4] =
        [Quantity::Power, Quantity::MemoryUsed, Quantity::MemorySize, Quantity::PowerLimit];
    for reading in more {
        let is_same =
            |known: &&mut GaugeReading| known.quantity == reading.quantity && known.which == reading.which;
        let Some(known) = to.iter_mut().find(is_same) else {
            to.push(reading);
            continue;
        };
        if ADDITIVE.iter().any(|quantity| quantity.as_str() == reading.quantity) {
            known.value += reading.value;
        } else {
            known.value = known.value.max(reading.value);
        }
    }
}

/// Reading gauges may take at most one part in 50 of the time. A slow library is called less often.
const TIME_SHARE: u64 = 50;

/// The position of a gauge among the sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GaugePlace {
    pub source: usize,
    /// The index of its device in the source.
    pub device: usize,
    /// The index of its device among all devices.
    pub number: usize,
    /// The gauge's index among those of the device.
    pub gauge: usize,
}

/// The schedule of reading gauges: one by one, evenly over the period in which each is read once. Reading all at once would delay
/// the readings of counters. Times are ticks of the sampler.
#[derive(Debug, Default)]
pub struct GaugeSchedule {
    all: Vec<GaugePlace>,
    next: usize,
    due: u64,
    /// The number of ticks from one reading to the next.
    step: u64,
    /// The number of gauges that are read at a time. It is more than one only if there are more gauges than ticks in a period.
    at_once: usize,
}

impl GaugeSchedule {
    /// Makes a schedule that reads each gauge once in `ticks`, and none if that is `None`.
    pub fn new(sources: &[Box<dyn Source>], ticks: Option<u64>) -> GaugeSchedule {
        let Some(ticks) = ticks else { return GaugeSchedule::default() };
        let devices = sources.iter().enumerate().flat_map(|(at, source)| {
            (0..source.devices().len()).map(move |device| (at, device, source.gauges(device).len()))
        });
        let gauges = devices.enumerate().flat_map(|(number, (source, device, gauges))| {
            (0..gauges).map(move |gauge| GaugePlace { source, device, number, gauge })
        });
        GaugeSchedule::of(gauges.collect(), ticks.max(1))
    }

    fn of(all: Vec<GaugePlace>, ticks: u64) -> GaugeSchedule {
        let count = all.len() as u64;
        let (step, at_once) = ((ticks / count.max(1)).max(1), count.div_ceil(ticks) as usize);
        GaugeSchedule { all, next: 0, due: 0, step, at_once }
    }

    /// Returns the tick of the next reading; `None` if there are no gauges.
    pub fn due(&self) -> Option<u64> {
        (!self.all.is_empty()).then_some(self.due)
    }

    /// Returns the number of gauges to read at a tick.
    pub fn count_at(&self, tick: u64) -> usize {
        if self.due().is_some_and(|due| due <= tick) { self.at_once } else { 0 }
    }

    pub fn next_gauge(&mut self) -> Option<GaugePlace> {
        let place = *self.all.get(self.next)?;
        self.next = (self.next + 1) % self.all.len();
        Some(place)
    }

    /// Records how long the readings at a tick took.
    pub fn record_duration(&mut self, tick: u64, time: Duration, period: Duration) {
        let pause = (u128::from(TIME_SHARE) * time.as_nanos() / period.as_nanos().max(1)) as u64;
        self.due = tick + self.step.max(pause);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schedule(gauges: usize, ticks: u64) -> GaugeSchedule {
        let place = |gauge| GaugePlace { source: 0, device: 0, number: 0, gauge };
        GaugeSchedule::of((0..gauges).map(place).collect(), ticks)
    }

    /// Returns the ticks within a time at which gauges are read, and the most that are read at once.
    fn asked(schedule: &mut GaugeSchedule, ticks: u64, time: Duration) -> (Vec<u64>, usize) {
        let (mut at, mut most) = (Vec::new(), 0);
        for tick in 0..ticks {
            let now = schedule.count_at(tick);
            if now > 0 {
                assert_eq!((0..now).filter_map(|_| schedule.next_gauge()).count(), now);
                schedule.record_duration(tick, time, Duration::from_millis(1));
                at.push(tick);
                most = most.max(now);
            }
        }
        (at, most)
    }

    #[test]
    fn gauges_are_read_evenly_over_the_period() {
        let (at, most) = asked(&mut schedule(64, 1000), 960, Duration::from_micros(30));
        assert_eq!((at.len(), most), (64, 1));
        assert!(at.windows(2).all(|pair| pair[1] - pair[0] == 15), "{at:?}");
        // There are more gauges than ticks.
        let (at, most) = asked(&mut schedule(64, 10), 10, Duration::from_micros(30));
        assert_eq!((at.len(), most), (10, 7));
        // There are no gauges.
        assert_eq!(GaugeSchedule::default().count_at(1000), 0);
        assert_eq!(GaugeSchedule::default().due(), None);
    }

    #[test]
    fn a_slow_library_is_called_less_often() {
        let (at, _) = asked(&mut schedule(8, 1000), 3000, Duration::from_millis(10));
        assert_eq!(at, [0, 500, 1000, 1500, 2000, 2500], "a fiftieth of the time");
    }

    #[test]
    fn statistics_leave_out_failed_readings() {
        let seen = GaugeStatistics::new(Gauge::EdgeTemperature);
        assert_eq!((seen.now(), seen.over_the_run()), (None, None));
        [Some(40.0), Some(43.0), None, Some(46.0)].into_iter().for_each(|value| seen.add(0, value));
        let over = seen.over_the_run().unwrap();
        assert_eq!((over.readings, over.min, over.mean, over.max), (3, 40.0, 43.0, 46.0));
        assert_eq!(over.text(), "edge 43.0 C (40.0 to 46.0)");
        assert_eq!(seen.now().unwrap().value, 46.0);
        seen.add(0, None);
        assert_eq!(seen.now(), None, "the last reading failed");
    }

    #[test]
    fn a_long_run_has_at_most_512_steps_that_keep_every_reading() {
        let mut steps = Steps::new();
        for time in 0..1200 {
            steps.add(time, (time != 1199).then_some(time as f64));
        }
        let means = steps.means();
        assert_eq!((steps.length, means.len()), (4, 300));
        assert_eq!(means[..2], [(0, Some(1.5)), (4, Some(5.5))]);
        assert_eq!(means[299], (1196, Some(1197.0)), "the last reading failed");
    }

    #[test]
    fn devices_with_one_name_have_the_sum_of_powers_and_the_highest_temperature() {
        let now = |quantity: Quantity, which: &str, value| GaugeReading {
            quantity: quantity.as_str().to_owned(),
            which: which.to_owned(),
            value,
        };
        let mut shown =
            vec![now(Quantity::Power, "average", 100.0), now(Quantity::Temperature, "edge", 41.0)];
        let more = [
            now(Quantity::Power, "average", 50.0),
            now(Quantity::Temperature, "edge", 39.0),
            now(Quantity::Temperature, "memory", 60.0),
        ];
        add_all(&mut shown, more.into_iter());
        let values: Vec<f64> = shown.iter().map(|now| now.value).collect();
        assert_eq!(values, [150.0, 41.0, 60.0]);
    }
}
