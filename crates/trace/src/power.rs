//! Collects the attributed power of each rank and GPU stream for the trace of the run.
//!
//! While events are attributed, a recorder adds up the joules that each location is charged. Joules of a sample interval are
//! spread evenly over it and summed over the devices that the location draws from, in bins of [`BIN_SECONDS`]. A device that is
//! contained in another is left out, as in all sums. A value is the mean power since the previous value. Successive equal
//! values are merged into one, so that slow counters and pauses need little space. The values wait in the spool until the trace
//! is written.

use crate::spool::{Spool, SpoolDirectory};
use crate::waited_energy::WaitedEnergy;
use ampere_attribution::{Engine, ViewIndex};
use ampere_model::Timestamp;
use ampere_ring::Record;
use ampere_timeline::attributor::{Attributor, Device, ViewKind};
use ampere_timeline::recorder::Recorder;
use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

/// The metric's name in the trace. No device has this name.
pub const NAME: &str = "attributed power";

/// The shortest time that a value covers, except for the last one.
const BIN_SECONDS: f64 = 0.01;
/// An upper bound on the bins that wait for devices that lag behind the others. Joules that come even later are added to the
/// first waiting bin.
const BINS_MAX: usize = 1 << 12;
/// The number of values that are spooled at once.
const VALUES_AT_ONCE: usize = 256;

/// The values of all locations, by the attributor's numbers.
#[derive(Default)]
pub struct Recorded {
    /// The attributed power.
    pub power: Vec<Option<Spool>>,
    /// The energy that each location used while waiting: see [`crate::waited_energy`].
    pub waited: Vec<Option<Spool>>,
}

/// The recorded values. Empty until the recording has ended.
pub type Values = Arc<Mutex<Recorded>>;

/// A value, as it is stored in the spool.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Value {
    pub time: Timestamp,
    pub watts: f64,
}

impl Value {
    fn to_record(self) -> Record {
        Record::from_words([self.time, self.watts.to_bits()])
    }
}

struct PowerRecorder {
    spool: SpoolDirectory,
    ticks_per_second: f64,
    bin_ticks: u64,
    /// The attributor's times are those of the trace plus this.
    shift: u64,
    /// The sampled views, by the attributor's number.
    views: Vec<Option<View>>,
    /// For each device that was known at the last check, whether it is left out: its joules are contained in another device's, or
    /// do not count.
    is_part: Vec<bool>,
    /// The attributor's `counting_version` at that check.
    counting_version: u64,
    /// The power of each location.
    curves: Vec<Option<Curve>>,
    /// The joules of each location in the current interval; `charged` lists the locations that have some.
    joules: Vec<f64>,
    charged: Vec<usize>,
    waited: WaitedEnergy,
    values: Values,
}

struct View {
    device: usize,
    kind: ViewKind,
    /// The time of the view's last sample.
    reached: Timestamp,
}

/// Makes a recorder that writes to `spool` and stores the result in `values` at the end. The attributor's times are those of the
/// trace plus `shift`.
pub fn recorder(
    spool: &SpoolDirectory,
    ticks_per_second: u64,
    shift: u64,
    values: &Values,
) -> Box<dyn Recorder> {
    Box::new(PowerRecorder {
        spool: spool.clone(),
        shift,
        ticks_per_second: ticks_per_second as f64,
        bin_ticks: ((ticks_per_second as f64 * BIN_SECONDS) as u64).max(1),
        views: Vec::new(),
        is_part: Vec::new(),
        counting_version: 0,
        curves: Vec::new(),
        joules: Vec::new(),
        charged: Vec::new(),
        waited: WaitedEnergy::default(),
        values: values.clone(),
    })
}

impl PowerRecorder {
    /// Sums the joules of the view's last interval by location. Returns the interval's start and end.
    fn sum(&mut self, attributor: &Attributor, view: &View) -> Option<(Timestamp, Timestamp)> {
        let view = attributor.devices[view.device].view(view.kind);
        let interval = attributor.engine.charged_interval(view)?;
        self.charged.clear();
        for charge in interval.charges.iter().filter(|charge| charge.joules != 0.0) {
            let location = charge.location.0 as usize;
            if self.joules.len() <= location {
                self.joules.resize(location + 1, 0.0);
            }
            if self.joules[location] == 0.0 {
                self.charged.push(location);
            }
            self.joules[location] += charge.joules;
        }
        Some((interval.start.saturating_sub(self.shift), interval.end.saturating_sub(self.shift)))
    }

    /// Adds the waits that were settled since the last time.
    fn add_waits(&mut self, attributor: &mut Attributor) -> io::Result<()> {
        let mut spans = attributor.waiting.as_mut().map(|waiting| waiting.take_spans()).unwrap_or_default();
        let is_part = |view: ViewIndex| {
            let device = attributor.devices.iter().position(|device| device.views.ranks == view);
            device.is_none_or(|device| attributor.whole(device).is_some() || !attributor.counts(device))
        };
        spans.retain(|span| !is_part(span.view));
        self.waited.add(spans, &self.spool, self.shift, self.ticks_per_second)
    }

    fn add(&mut self, view: usize, span: (Timestamp, Timestamp)) -> io::Result<()> {
        for location in std::mem::take(&mut self.charged) {
            let joules = std::mem::take(&mut self.joules[location]);
            if self.curves.len() <= location {
                self.curves.resize_with(location + 1, || None);
            }
            if self.curves[location].is_none() {
                let spool = self.spool.open(&format!("sampler.power.{location}"), 0);
                self.curves[location] =
                    spool.map(|spool| Curve::new(span, self.bin_ticks, self.ticks_per_second, spool));
            }
            let Some(curve) = &mut self.curves[location] else { continue };
            if !curve.views.contains(&view) {
                curve.views.push(view);
            }
            curve.bins.add(span, joules, &mut curve.values);
            let reached = |view: &usize| self.views[*view].as_ref().map_or(0, |view| view.reached);
            let until = curve.views.iter().map(reached).min().unwrap_or(0);
            curve.bins.take_before(until, &mut curve.values);
            curve.spool_values(VALUES_AT_ONCE)?;
        }
        Ok(())
    }
}

impl Recorder for PowerRecorder {
    fn begin_device(&mut self, engine: &mut Engine, number: usize, device: &Device) {
        for kind in ViewKind::BOTH {
            engine.record_intervals(device.view(kind));
            let at = device.views.sampled(kind).0 as usize;
            self.views.resize_with(self.views.len().max(at + 1), || None);
            self.views[at] = Some(View { device: number, kind, reached: 0 });
        }
    }

    fn wants_waits(&self) -> bool {
        true
    }

    fn take_sample(&mut self, attributor: &mut Attributor, view: ViewIndex) -> io::Result<()> {
        self.add_waits(attributor)?;
        let at = view.0 as usize;
        let Some(mut view) = self.views.get_mut(at).and_then(Option::take) else { return Ok(()) };
        if self.is_part.len() != attributor.devices.len()
            || self.counting_version != attributor.counting_version()
        {
            let is_part = |device| attributor.whole(device).is_some() || !attributor.counts(device);
            self.is_part = (0..attributor.devices.len()).map(is_part).collect();
            self.counting_version = attributor.counting_version();
        }
        let span = if self.is_part[view.device] { None } else { self.sum(attributor, &view) };
        view.reached = span.map_or(view.reached, |(_, end)| end);
        self.views[at] = Some(view);
        span.map_or(Ok(()), |span| self.add(at, span))
    }

    fn take_events(&mut self, _: &mut Attributor) -> io::Result<()> {
        Ok(())
    }

    fn end(&mut self, attributor: &mut Attributor) -> io::Result<()> {
        self.add_waits(attributor)?;
        // Waits of which only a part is known are forgotten.
        let waited = if attributor.waiting.is_some() { self.waited.end()? } else { Vec::new() };
        let mut all = Vec::new();
        for curve in self.curves.drain(..) {
            let Some(mut curve) = curve else {
                all.push(None);
                continue;
            };
            curve.bins.take_all(&mut curve.values);
            curve.spool_values(1)?;
            all.push(Some(curve.spool));
        }
        *self.values.lock().unwrap_or_else(PoisonError::into_inner) = Recorded { power: all, waited };
        Ok(())
    }
}

/// The power of one location.
struct Curve {
    /// The views in which the location was charged.
    views: Vec<usize>,
    bins: Bins,
    /// The values that are not yet in the spool.
    values: Vec<Value>,
    spool: Spool,
}

impl Curve {
    fn new(span: (Timestamp, Timestamp), bin_ticks: u64, ticks_per_second: f64, spool: Spool) -> Curve {
        let bins = Bins::new(span, bin_ticks, ticks_per_second);
        let values = vec![Value { time: bins.origin, watts: 0.0 }];
        Curve { views: Vec::new(), bins, values, spool }
    }

    /// Spools the values if there are at least `least` of them.
    fn spool_values(&mut self, least: usize) -> io::Result<()> {
        // Until the end, where `least` is 1, the last value may still be extended.
        let count = if least > 1 { self.values.len() - 1 } else { self.values.len() };
        if count < least {
            return Ok(());
        }
        let records: Vec<Record> = self.values.drain(..count).map(Value::to_record).collect();
        self.spool.write(self.spool.end(), &records)
    }
}

/// Joules by time, in bins of equal length.
struct Bins {
    /// The start of the first bin.
    origin: Timestamp,
    bin_ticks: u64,
    ticks_per_second: f64,
    /// The number of the first bin that is still kept.
    first: u64,
    joules: VecDeque<f64>,
    /// The end of the latest interval with joules.
    end: Timestamp,
}

impl Bins {
    fn new((start, end): (Timestamp, Timestamp), bin_ticks: u64, ticks_per_second: f64) -> Bins {
        // Joules of an interval without length belong to the instant before it.
        let origin = start.min(end.saturating_sub(1));
        Bins { origin, bin_ticks, ticks_per_second, first: 0, joules: VecDeque::new(), end: origin }
    }

    fn begin_of(&self, bin: u64) -> Timestamp {
        self.origin.saturating_add(bin.saturating_mul(self.bin_ticks))
    }

    /// Returns the bin of the instant before a time, among the bins that are still kept.
    fn bin_before(&self, time: Timestamp) -> u64 {
        (time.saturating_sub(self.origin + 1) / self.bin_ticks).max(self.first)
    }

    /// Spreads joules evenly over an interval. Moves bins to `values` if there are too many to keep.
    fn add(&mut self, (start, end): (Timestamp, Timestamp), joules: f64, values: &mut Vec<Value>) {
        let pause = self.bin_before(start);
        if pause > self.first + BINS_MAX as u64 {
            self.skip_to(pause, values);
        }
        self.end = self.end.max(end);
        let start = start.max(self.begin_of(self.first));
        let last = self.bin_before(end);
        let ticks = end.saturating_sub(start);
        if ticks == 0 {
            return *self.bin(last) += joules;
        }
        let first = ((start - self.origin) / self.bin_ticks).max(self.first);
        if first == last {
            return *self.bin(last) += joules;
        }
        let per_tick = joules / ticks as f64;
        let mut bin = first;
        while bin <= last {
            if bin > first {
                bin = self.skip_alike(bin, last, per_tick, values);
            }
            let (begin, next) = (self.begin_of(bin).max(start), self.begin_of(bin + 1).min(end));
            *self.bin(bin) += per_tick * (next - begin) as f64;
            if self.joules.len() > BINS_MAX {
                self.take_first(values);
            }
            bin += 1;
        }
    }

    /// Skips bins in the middle of a long interval that ends in the bin `last`. If the interval covers more bins than can be
    /// kept, the bins from `bin` on that hold only this interval's joules are merged into one value. Returns the next bin.
    fn skip_alike(&mut self, bin: u64, last: u64, joules_per_tick: f64, values: &mut Vec<Value>) -> u64 {
        let kept = last.saturating_sub(BINS_MAX as u64);
        if bin < self.first + self.joules.len() as u64 || bin >= kept {
            return bin;
        }
        self.take_all(values);
        self.first = kept;
        // The computation is that of `take_first`, so that equal powers have equal values and are merged.
        let ticks = self.bin_ticks as f64;
        let watts = joules_per_tick * ticks * (self.ticks_per_second / ticks);
        self.put(Value { time: self.begin_of(kept), watts }, values);
        kept
    }

    fn bin(&mut self, number: u64) -> &mut f64 {
        let at = (number - self.first) as usize;
        if self.joules.len() <= at {
            self.joules.resize(at + 1, 0.0);
        }
        &mut self.joules[at]
    }

    /// Moves the bins before a time to `values`. No further joules may come before that time.
    fn take_before(&mut self, time: Timestamp, values: &mut Vec<Value>) {
        // A zero-length interval exactly at `time` may still arrive, so the bin that contains `time` is kept.
        while !self.joules.is_empty() && self.begin_of(self.first + 1) < time {
            self.take_first(values);
        }
    }

    fn take_all(&mut self, values: &mut Vec<Value>) {
        while !self.joules.is_empty() {
            self.take_first(values);
        }
    }

    fn take_first(&mut self, values: &mut Vec<Value>) {
        let joules = self.joules.pop_front().unwrap_or(0.0);
        let (begin, end) = (self.begin_of(self.first), self.begin_of(self.first + 1).min(self.end));
        self.first += 1;
        let watts = joules * (self.ticks_per_second / end.saturating_sub(begin).max(1) as f64);
        self.put(Value { time: end, watts }, values);
    }

    fn put(&self, value: Value, values: &mut Vec<Value>) {
        match values.last_mut() {
            // The first value marks where the second starts.
            Some(last) if last.watts == value.watts && last.time > self.origin => last.time = value.time,
            _ => values.push(value),
        }
    }

    /// After a pause, moves all bins to `values` and continues with this bin.
    fn skip_to(&mut self, bin: u64, values: &mut Vec<Value>) {
        self.take_all(values);
        self.first = bin;
        self.put(Value { time: self.begin_of(bin), watts: 0.0 }, values);
    }
}

#[cfg(test)]
mod tests {
    use super::{BINS_MAX, Bins, Value};

    /// Computes values with bins of ten ticks, where a second has ten bins.
    fn values(intervals: &[(u64, u64, f64)], until: impl Fn(u64) -> u64) -> Vec<(u64, f64)> {
        let mut bins = Bins::new((intervals[0].0, intervals[0].1), 10, 10.0);
        let mut values = vec![Value { time: bins.origin, watts: 0.0 }];
        for (start, end, joules) in intervals {
            bins.add((*start, *end), *joules, &mut values);
            bins.take_before(until(*end), &mut values);
        }
        bins.take_all(&mut values);
        values.iter().map(|value| (value.time, value.watts)).collect()
    }

    fn joules(values: &[(u64, f64)]) -> f64 {
        values.windows(2).map(|pair| pair[1].1 * (pair[1].0 - pair[0].0) as f64 / 10.0).sum()
    }

    #[test]
    fn joules_are_spread_over_their_interval_and_equal_powers_are_one_value() {
        let of = |intervals: &[_]| values(intervals, |end| end);
        assert_eq!(of(&[(5, 105, 20.0)]), [(5, 0.0), (105, 2.0)]);
        assert_eq!(of(&[(0, 20, 4.0), (20, 40, 8.0)]), [(0, 0.0), (20, 2.0), (40, 4.0)]);
        // The bin that two intervals share has the mean.
        assert_eq!(of(&[(0, 15, 3.0), (15, 40, 10.0)]), [(0, 0.0), (10, 2.0), (20, 3.0), (40, 4.0)]);
        // A pause is one value; the last bin may be shorter.
        assert_eq!(of(&[(0, 10, 1.0), (990, 1004, 7.0)]), [(0, 0.0), (10, 1.0), (990, 0.0), (1004, 5.0)]);
        // One interval has no length.
        assert_eq!(of(&[(0, 10, 1.0), (10, 10, 2.0)]), [(0, 0.0), (10, 3.0)]);
        assert_eq!(of(&[(7, 7, 0.5)]), [(6, 0.0), (7, 5.0)]);
    }

    /// A counter that stood still for years, or damaged times, must not be processed bin by bin.
    #[test]
    fn an_interval_of_any_length_takes_no_longer() {
        let end = 1 << 60;
        let all = values(&[(0, 20, 4.0), (25, end, end as f64), (end, end + 10, 5.0)], |_| 0);
        assert_eq!(all[..4], [(0, 0.0), (20, 2.0), (30, 5.0), (end / 10 * 10, 10.0)]);
        assert_eq!(all.len(), 6, "{all:?}");
    }

    #[test]
    fn no_joule_is_lost_by_any_late_event() {
        let mut intervals = vec![(1_000, 1_003, 1.0)];
        let mut random = 42_u64;
        for at in 0..3_000_u64 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let (long, short) = ((random >> 33) % 300, (random >> 50) % 7);
            intervals.push((1_000 + 10 * at, 1_000 + 10 * at + long, 1.0 + short as f64));
            intervals.push((900 + at, 900 + at + short, 0.1));
        }
        intervals.push((40_000, 40_000 + 20 * BINS_MAX as u64, 3.0));
        let all: f64 = intervals.iter().map(|(_, _, joules)| joules).sum();
        for until in [|end: u64| end, |_| 0, |end: u64| end.saturating_sub(50)] {
            let values = values(&intervals, until);
            assert!(values.windows(2).all(|pair| pair[0].0 < pair[1].0), "{values:?}");
            let spread = joules(&values);
            assert!((spread / all - 1.0).abs() < 1e-12, "{spread} of {all}");
        }
    }
}
