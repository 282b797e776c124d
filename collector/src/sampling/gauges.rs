//! What devices say of themselves beside their energy (`ampere_counters::Gauge`): when the sampler asks, and what is kept of it.
//! It is shown in /metrics and in the summary: no function is charged with a temperature, and the trace has none of it. A power
//! is also integrated, to be held against the device's counter (`agreement.rs`).

use ampere_counters::{Gauge, Quantity, Source};
use ampere_model::Timestamp;
use ampere_report::gauges::OverTheRun;
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// One gauge of one device, as it was seen. Written by the sampler alone; a reader may see a reading's parts before the whole.
#[derive(Debug)]
pub struct Seen {
    pub gauge: Gauge,
    /// All of these are the bits of numbers: the last value (NaN where there was none), sum, least and most.
    last: AtomicU64,
    sum: AtomicU64,
    least: AtomicU64,
    most: AtomicU64,
    readings: AtomicU64,
}

impl Seen {
    fn new(gauge: Gauge) -> Seen {
        let number = |value: f64| AtomicU64::new(value.to_bits());
        Seen {
            gauge,
            last: number(f64::NAN),
            sum: number(0.0),
            least: number(f64::INFINITY),
            most: number(f64::NEG_INFINITY),
            readings: AtomicU64::new(0),
        }
    }

    /// All that a device can be asked for.
    pub fn of_device(source: &dyn Source, device: usize) -> Vec<Seen> {
        source.gauges(device).iter().copied().map(Seen::new).collect()
    }

    fn get(of: &AtomicU64) -> f64 {
        f64::from_bits(of.load(Ordering::Relaxed))
    }

    /// A value, or that there is none now: an old one is not shown on.
    pub fn add(&self, value: Option<f64>) {
        let put = |to: &AtomicU64, value: f64| to.store(value.to_bits(), Ordering::Relaxed);
        put(&self.last, value.unwrap_or(f64::NAN));
        let Some(value) = value else { return };
        put(&self.sum, Seen::get(&self.sum) + value);
        put(&self.least, Seen::get(&self.least).min(value));
        put(&self.most, Seen::get(&self.most).max(value));
        self.readings.fetch_add(1, Ordering::Relaxed);
    }

    pub fn now(&self) -> Option<Now> {
        let value = Some(Seen::get(&self.last)).filter(|value| !value.is_nan())?;
        let (quantity, which) = (self.gauge.quantity().as_str().to_owned(), self.gauge.which().to_owned());
        Some(Now { quantity, which, value })
    }

    pub fn over_the_run(&self) -> Option<OverTheRun> {
        let readings = Some(self.readings.load(Ordering::Relaxed)).filter(|readings| *readings > 0)?;
        Some(OverTheRun {
            quantity: self.gauge.quantity().as_str().to_owned(),
            which: self.gauge.which().to_owned(),
            readings,
            min: Seen::get(&self.least),
            mean: Seen::get(&self.sum) / readings as f64,
            max: Seen::get(&self.most),
        })
    }
}

/// A power that was read, at a time by the session's clock.
#[derive(Clone, Copy, Debug)]
pub struct PowerReading {
    /// The sampler's number of the device.
    pub device: usize,
    pub which: &'static str,
    pub time: Timestamp,
    /// `None`: there is none now.
    pub watts: Option<f64>,
}

/// A gauge's value now.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Now {
    /// With its unit: `power_watts`, `temperature_celsius`, `busy_ratio`, `memory_used_bytes`, `memory_size_bytes`.
    pub quantity: String,
    /// Which power (`average`, `current`, `usage`) or sensor (`edge`, `junction`, `memory`, `gpu`); else empty.
    pub which: String,
    pub value: f64,
}

/// Devices that are shown as one: powers and memories are added, of the rest the highest is shown.
pub fn add_all(to: &mut Vec<Now>, more: impl Iterator<Item = Now>) {
    for more in more {
        let same = |known: &&mut Now| known.quantity == more.quantity && known.which == more.which;
        let Some(known) = to.iter_mut().find(same) else {
            to.push(more);
            continue;
        };
        let adds = [Quantity::Power, Quantity::MemoryUsed, Quantity::MemorySize];
        if adds.iter().any(|quantity| quantity.as_str() == more.quantity) {
            known.value += more.value;
        } else {
            known.value = known.value.max(more.value);
        }
    }
}

/// Asking may take so large a part of the time at most: a library that is slow is asked less often.
const LEISURE: u64 = 50;

/// One by one, evenly over the time that a round may take: asking for everything at once would keep the counters waiting.
#[derive(Debug, Default)]
pub struct Turns {
    /// Source, its device, the sampler's number of that, the device's gauge.
    all: Vec<[usize; 4]>,
    next: usize,
    due: u64,
    /// Ticks from one turn to the next, and how many are asked at each: more than one only if there are more than ticks.
    every: u64,
    at_once: usize,
}

impl Turns {
    /// `ticks`: of a round. `None`: nothing is asked.
    pub fn new(sources: &[Box<dyn Source>], ticks: Option<u64>) -> Turns {
        let Some(ticks) = ticks.map(|ticks| ticks.max(1)) else { return Turns::default() };
        let devices = sources.iter().enumerate().flat_map(|(at, source)| {
            (0..source.devices().len()).map(move |device| (at, device, source.gauges(device).len()))
        });
        let gauges = devices.enumerate().flat_map(|(number, (source, device, gauges))| {
            (0..gauges).map(move |gauge| [source, device, number, gauge])
        });
        let all: Vec<_> = gauges.collect();
        let count = all.len() as u64;
        Turns {
            every: (ticks / count.max(1)).max(1),
            at_once: count.div_ceil(ticks) as usize,
            all,
            next: 0,
            due: 0,
        }
    }

    /// The tick of the next turn.
    pub fn due(&self) -> Option<u64> {
        (!self.all.is_empty()).then_some(self.due)
    }

    /// How many are asked at a tick.
    pub fn at(&self, tick: u64) -> usize {
        if self.due().is_some_and(|due| due <= tick) { self.at_once } else { 0 }
    }

    /// Whose turn it is, where there is anybody.
    pub fn turn(&mut self) -> Option<[usize; 4]> {
        let turn = *self.all.get(self.next)?;
        self.next = (self.next + 1) % self.all.len();
        Some(turn)
    }

    /// A turn that began at a tick took so long.
    pub fn took(&mut self, tick: u64, time: Duration, period: Duration) {
        let pause = LEISURE * (time.as_nanos() / period.as_nanos().max(1)) as u64;
        self.due = tick + self.every.max(pause);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turns(gauges: usize, ticks: u64) -> Turns {
        let all: Vec<_> = (0..gauges).map(|gauge| [0, 0, 0, gauge]).collect();
        let count = gauges as u64;
        Turns {
            every: (ticks / count).max(1),
            at_once: count.div_ceil(ticks) as usize,
            all,
            ..Turns::default()
        }
    }

    /// Ticks at which something is asked within a time, and how many are asked at once at most.
    fn asked(turns: &mut Turns, ticks: u64, time: Duration) -> (Vec<u64>, usize) {
        let (mut at, mut most) = (Vec::new(), 0);
        for tick in 0..ticks {
            let now = turns.at(tick);
            if now > 0 {
                assert_eq!((0..now).filter_map(|_| turns.turn()).count(), now);
                turns.took(tick, time, Duration::from_millis(1));
                at.push(tick);
                most = most.max(now);
            }
        }
        (at, most)
    }

    #[test]
    fn a_round_is_spread_over_its_time() {
        let (at, most) = asked(&mut turns(64, 1000), 960, Duration::from_micros(30));
        assert_eq!((at.len(), most), (64, 1));
        assert!(at.windows(2).all(|pair| pair[1] - pair[0] == 15), "{at:?}");
        // More than there are ticks.
        let (at, most) = asked(&mut turns(64, 10), 10, Duration::from_micros(30));
        assert_eq!((at.len(), most), (10, 7));
        // Nothing to ask.
        assert_eq!(Turns::default().at(1000), 0);
        assert_eq!(Turns::default().due(), None);
    }

    #[test]
    fn a_slow_library_is_asked_less_often() {
        let (at, _) = asked(&mut turns(8, 1000), 3000, Duration::from_millis(10));
        assert_eq!(at, [0, 500, 1000, 1500, 2000, 2500], "a fiftieth of the time");
    }

    #[test]
    fn a_figure_is_kept_as_it_was_seen() {
        let seen = Seen::new(Gauge::EdgeTemperature);
        assert_eq!((seen.now(), seen.over_the_run()), (None, None));
        [Some(40.0), Some(43.0), None, Some(46.0)].into_iter().for_each(|value| seen.add(value));
        let over = seen.over_the_run().unwrap();
        assert_eq!((over.readings, over.min, over.mean, over.max), (3, 40.0, 43.0, 46.0));
        assert_eq!(over.text(), "edge 43.0 C (40.0 to 46.0)");
        assert_eq!(seen.now().unwrap().value, 46.0);
        seen.add(None);
        assert_eq!(seen.now(), None, "what cannot be read now is not shown");
    }

    #[test]
    fn devices_of_one_name_are_one() {
        let now = |quantity: Quantity, which: &str, value| Now {
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
