//! Takes over the ring, the log and the device numbers of a sampler whose collector was killed.

use crate::sampling::clock::Timer;
use ampere_counters::{LastReading, OtherJobs, Source};
use ampere_model::{Definition, Device, Quality};
use ampere_ring::samples::{self, Sample};
use ampere_ring::{Kind, LogWriter, Record, RingProducer};
use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

pub use ampere_ring::SAMPLES_RING as RING_NAME;
pub const LOG_NAME: &str = "sampler.defs";

/// A sampler whose collector was killed. It has left its ring and its log.
pub struct Predecessor {
    /// The devices in its log. They keep their numbers; new devices get the next numbers.
    pub devices: Vec<Device>,
    /// The rate of the clock of its samples.
    pub ticks_per_second: u64,
}

impl Predecessor {
    /// Removes estimates of devices that the predecessor has not estimated: if a counter is no longer found, the estimate would
    /// be added to the energy that the predecessor has measured.
    pub(super) fn remove_new_estimates(&self, sources: &mut Vec<Box<dyn Source>>) {
        let is_known = |metric: &str| self.devices.iter().any(|before| before.metric == metric);
        let may_stay = |device: &ampere_counters::Device| {
            device.quality != Quality::Estimated || is_known(&device.metric)
        };
        sources.retain(|source| source.devices().iter().all(may_stay));
    }

    /// Takes over the ring and the log. Devices keep their numbers, and sources that count energy themselves continue from the
    /// value that they had reached.
    pub(super) fn take_over(
        &self,
        directory: &Path,
        timer: Timer,
        (sources, other_jobs): (&mut [Box<dyn Source>], Option<&mut OtherJobs>),
        devices: &mut [Device],
    ) -> Result<RingProducer, ampere_ring::Error> {
        let mut log = LogWriter::reopen(&directory.join(LOG_NAME))?;
        let mut next = self.devices.len() as u32;
        for device in &mut *devices {
            let before = self.devices.iter().find(|before| before.metric == device.metric);
            device.index = before.map_or(next, |before| before.index);
            if before.is_none() {
                next += 1;
                log.append(&Definition::Device(device.clone()));
            }
        }
        let (ring, records) = RingProducer::take_over(&directory.join(RING_NAME))?;
        let last = self.last_readings(directory, timer, &records);
        // The last device is the series of other jobs, if there is one.
        let before = devices.last().and_then(|device| last.get(&device.index));
        other_jobs.zip(before).into_iter().for_each(|(jobs, before)| jobs.resume(before.nanojoules));
        let mut devices = devices.iter();
        for source in sources {
            for at in 0..source.devices().len() {
                let Some(device) = devices.next() else { break };
                if let Some(last) = last.get(&device.index) {
                    source.resume(at, *last);
                }
            }
        }
        Ok(ring)
    }

    /// Returns the last reading of each device, by its number.
    fn last_readings(&self, directory: &Path, timer: Timer, records: &[Record]) -> HashMap<u32, LastReading> {
        let mut last = self.last_in_ring(records, timer.now());
        // The series have the times of the usual timer.
        if timer == Timer::usual() {
            for (device, reading) in self.last_in_series(directory, timer.now()) {
                if last.get(&device).is_none_or(|in_ring| in_ring.ago > reading.ago) {
                    last.insert(device, reading);
                }
            }
        }
        last
    }

    /// Returns the last readings among the records that are still in the ring's memory.
    fn last_in_ring(&self, records: &[Record], now: u64) -> HashMap<u32, LastReading> {
        let mut last: HashMap<u32, (u64, LastReading)> = HashMap::new();
        for pair in records.windows(2) {
            let [head, value] = pair else { continue };
            if (head.kind(), value.kind()) != (Some(Kind::Sample), Some(Kind::Value)) {
                continue;
            }
            let sample = (head.word0, value.word0);
            let reading = self.reading(last.get(&head.argument()), sample, now);
            last.insert(head.argument(), (sample.0, reading));
        }
        last.into_iter().map(|(number, (_, reading))| (number, reading)).collect()
    }

    /// Returns the last readings from the series for a metric plugin: if no collector empties the ring, these have more samples.
    fn last_in_series(&self, directory: &Path, now: u64) -> HashMap<u32, LastReading> {
        let last_of = |device: &Device| {
            let series = samples::read(&samples::path_of(directory, device.index as usize)).ok()?;
            let mut last = None;
            for sample in series.samples.iter().skip(series.samples.len().saturating_sub(2)) {
                last = Some((sample.0, self.reading(last.as_ref(), *sample, now)));
            }
            last.map(|(_, reading)| (device.index, reading))
        };
        self.devices.iter().filter_map(last_of).collect()
    }

    /// Returns a device's reading, with the power since the previous reading. `before`: the time of the previous reading, and the
    /// reading itself.
    fn reading(
        &self,
        before: Option<&(u64, LastReading)>,
        (time, nanojoules): Sample,
        now: u64,
    ) -> LastReading {
        let seconds = |ticks: u64| ticks as f64 / self.ticks_per_second.max(1) as f64;
        let watts = before.map_or(0.0, |(then, reading)| {
            let joules = nanojoules.wrapping_sub(reading.nanojoules) as f64 * 1e-9;
            let passed = seconds(time.saturating_sub(*then));
            if passed > 0.0 { joules / passed } else { reading.watts }
        });
        let ago = Duration::try_from_secs_f64(seconds(now.saturating_sub(time))).unwrap_or_default();
        LastReading { nanojoules, watts, ago }
    }
}
