//! Tests the sampler over files in place of the kernel's: when it reads, and what it does if it cannot.

use super::*;
use crate::sampling::predecessor::Predecessor;
use ampere_counters::Settings;
use ampere_ring::{Record, RingConsumer};
use std::path::PathBuf;

const SECOND: u64 = 1_000_000_000;

/// A node with one counter, and a sampler of it.
struct Sampled {
    root: tempfile::TempDir,
    session: tempfile::TempDir,
    sampler: Sampler,
}

/// Replaces the content of a file in one write.
fn put(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    let file = std::fs::File::options().write(true).create(true).truncate(false).open(path).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, text.as_bytes(), 0).unwrap();
}

impl Sampled {
    fn new() -> Sampled {
        Sampled::of("rapl", None)
    }

    fn of(source: &'static str, gauges: Option<Duration>) -> Sampled {
        let (root, session) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let zone = root.path().join("sys/class/powercap/intel-rapl:0");
        put(&zone.join("name"), "package-0\n");
        put(&zone.join("max_energy_range_uj"), "262143328850\n");
        put(&zone.join("energy_uj"), "1000000\n");
        let cray = root.path().join("sys/cray/pm_counters");
        put(&cray.join("energy"), "4721362 J 1700000000123456 us\n");
        put(&cray.join("power"), "812 W 1700000000123456 us\n");
        let settings =
            Settings { names: Some(vec![source]), sys_root: root.path().to_owned(), ..Settings::default() };
        let period = Duration::from_millis(1);
        let options = SamplerOptions { period, gauges, settings, ..SamplerOptions::default() };
        let sampler = Sampler::start(session.path(), Timer::MonotonicRaw, options).unwrap();
        while !session.path().join(RING_NAME).exists() || sampler.figures.devices().is_empty() {
            std::thread::sleep(Duration::from_millis(1));
        }
        Sampled { root, session, sampler }
    }

    /// Waits until the sampler's figures about the device fulfil a condition.
    fn until(&self, holds: impl Fn(&DeviceFigures) -> bool) {
        let begun = Instant::now();
        while !holds(&self.sampler.figures.devices()[0]) {
            assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", self.sampler.figures);
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn counter(&self) -> PathBuf {
        self.root.path().join("sys/class/powercap/intel-rapl:0/energy_uj")
    }

    /// Ends the sampler. Returns its samples as times and nanojoules.
    fn samples(&mut self) -> Vec<(u64, u64)> {
        let mut ring = RingConsumer::open(&self.session.path().join(RING_NAME)).unwrap();
        assert!(self.sampler.stop());
        let mut records: Vec<Record> = Vec::new();
        let count = ring.copy_out(&mut records, usize::MAX).unwrap();
        ring.release(count);
        let mut stream = ampere_ring::decoder::Decoder::default();
        let mut samples = Vec::new();
        for record in records {
            stream.decode(record, &mut |event| {
                if let ampere_ring::decoder::Event::Sample(time, _, value) = event {
                    samples.push((time, value));
                }
            });
        }
        samples
    }
}

#[test]
fn a_counter_that_fails_is_reported_once_and_sampled_again_when_it_returns() {
    let mut sampled = Sampled::new();
    sampled.until(|figures| figures.readings.load(Ordering::Relaxed) > 0);
    let removed = Instant::now();
    std::fs::write(sampled.counter(), "").unwrap(); // the sampler has the file open
    std::fs::remove_file(sampled.counter()).unwrap();
    // The third failed reading in a row is reported, and the counter is then tried every 100 ms.
    sampled.until(|figures| figures.failed_readings.load(Ordering::Relaxed) >= 6);
    let (failed, gone) = (sampled.sampler.figures.failed_readings(), removed.elapsed());
    put(&sampled.counter(), "2000000\n");
    let before = sampled.sampler.figures.devices()[0].readings.load(Ordering::Relaxed);
    sampled.until(|figures| figures.readings.load(Ordering::Relaxed) > before);
    let samples = sampled.samples();
    let values: Vec<u64> = samples.iter().map(|(_, value)| *value).collect();
    assert_eq!(values[0], SECOND);
    // A value that stands still for a second is sampled again.
    assert!(
        values.is_sorted() && values.iter().all(|value| [SECOND, 2 * SECOND].contains(value)),
        "{values:?}"
    );
    assert_eq!(values.last(), Some(&(2 * SECOND)));
    let news = sampled.sampler.news().unwrap();
    assert!(news.starts_with("package-0 cannot be read: its file "), "{news}");
    assert_eq!(sampled.sampler.news(), None);
    let most = 3 + gone.as_millis() as u64 / 100 + 1;
    assert!(failed <= most, "tried from time to time, not every millisecond: {failed} times in {gone:?}");
}

/// The schedule itself has tests with its own ticks (`read_schedule.rs`); this one tests it in the sampler.
#[test]
fn a_slow_counter_is_read_around_its_changes() {
    let mut sampled = Sampled::new();
    let start = Instant::now();
    let mut changed = Vec::new();
    for step in 1..=30u32 {
        let at = Duration::from_millis(100) * step;
        std::thread::sleep(at.saturating_sub(start.elapsed()));
        put(&sampled.counter(), &format!("{}\n", 1_000_000 + 1_000_000 * step));
        changed.push(Timer::MonotonicRaw.now());
    }
    sampled.until(|figures| figures.readings.load(Ordering::Relaxed) > 30);
    std::thread::sleep(Duration::from_millis(20));
    let samples = sampled.samples();
    let is_seen = |(step, changed): (usize, &u64)| {
        let seen = samples.iter().find(|(_, value)| *value == SECOND * (step as u64 + 2));
        seen.is_some_and(|(time, _)| time.saturating_sub(*changed) < SECOND)
    };
    // If this thread or the sampler gets no CPU for a while, some values are replaced before they can be read.
    let seen = changed.iter().enumerate().filter(|change| is_seen(*change)).count();
    assert!(seen >= 20, "{seen} of 30 changes at {changed:?}: {samples:?}");
    let figures = &sampled.sampler.figures;
    let readings = figures.devices()[0].readings.load(Ordering::Relaxed);
    let update = figures.devices()[0].update_ns.load(Ordering::Relaxed);
    // The changes are only regular, and the readings only punctual, if this process and the sampler were scheduled in time.
    let distances = changed.windows(2).map(|pair| pair[1] - pair[0]);
    let is_regular = distances.into_iter().all(|distance| distance.abs_diff(SECOND / 10) < 3_000_000);
    if is_regular && figures.missed_deadlines.load(Ordering::Relaxed) == 0 {
        let late = |step: usize| {
            let seen = samples.iter().find(|(_, value)| *value == SECOND * (step as u64 + 2));
            seen.map_or(u64::MAX, |(time, _)| time.saturating_sub(changed[step]))
        };
        // The interval is learned in the first second.
        let late: Vec<u64> = (10..30).map(late).collect();
        assert!(late.iter().filter(|late| **late < 2_000_000).count() >= 10, "{late:?}");
        assert!(readings < 2_000, "{readings} readings in 3 s");
        assert!((90_000_000..=110_000_000).contains(&update), "{update}");
    }
}

#[test]
fn a_stopped_sampler_takes_a_last_sample() {
    let mut sampled = Sampled::new();
    sampled.until(|figures| figures.readings.load(Ordering::Relaxed) > 1);
    // Opening the counters takes milliseconds of CPU time, which is all of the time of a sampler that is stopped at once.
    std::thread::sleep(Duration::from_millis(100));
    let samples = sampled.samples();
    // There are a first and a last sample, although the counter has not changed, and about one in a second.
    let lasted = samples.last().unwrap().0 - samples[0].0;
    assert!(samples.len() >= 2 && samples.len() as u64 <= 2 + lasted / SECOND, "{samples:?}");
    let figures = ampere_figures::summary::SamplerOverhead::from(&*sampled.sampler.figures);
    assert!(figures.deadlines > 0 && figures.cpu_seconds > 0.0 && figures.cpu_share < 1.0, "{figures:?}");
}

#[test]
fn gauges_are_read_at_the_period_of_the_settings() {
    let started = Instant::now();
    let mut sampled = Sampled::of("cray_pm", Some(Duration::from_millis(100)));
    let power = sampled.root.path().join("sys/cray/pm_counters/power");
    let readings = |figures: &DeviceFigures| figures.gauges[0].over_the_run().map_or(0, |over| over.readings);
    sampled.until(|figures| readings(figures) >= 3);
    put(&power, "912 W");
    sampled.until(|figures| figures.gauges[0].over_the_run().is_some_and(|over| over.max == 912.0));
    std::fs::write(&power, "").unwrap();
    sampled.until(|figures| figures.gauges[0].now().is_none());
    let elapsed = started.elapsed();
    assert!(sampled.sampler.stop());
    let over = sampled.sampler.figures.devices()[0].gauges[0].over_the_run().unwrap();
    assert_eq!((over.min, over.max), (812.0, 912.0));
    let most = elapsed.as_millis() as u64 / 100 + 2;
    assert!(over.readings <= most, "{over:?} in {elapsed:?}");
    let figures = ampere_figures::summary::SamplerOverhead::from(&*sampled.sampler.figures);
    assert!(figures.gauges_seconds > 0.0 && figures.longest_gauge_seconds <= figures.gauges_seconds);
}

#[test]
fn gauges_that_are_switched_off_are_not_read() {
    let mut sampled = Sampled::of("cray_pm", None);
    sampled.until(|figures| figures.readings.load(Ordering::Relaxed) > 1);
    assert!(sampled.sampler.stop());
    assert_eq!(sampled.sampler.figures.devices()[0].gauges[0].over_the_run(), None);
}

#[test]
fn another_sampler_takes_over_ring_and_device_numbers() {
    let mut sampled = Sampled::new();
    sampled.until(|figures| figures.readings.load(Ordering::Relaxed) > 0);
    put(&sampled.counter(), "262143000000\n");
    // The sampler is stopped properly, so its ring differs from that of a killed one only in its state.
    assert!(sampled.sampler.stop());
    let devices = crate::sampling::devices_in(&sampled.session.path().join(LOG_NAME));
    assert_eq!(devices.len(), 1);
    // Meanwhile the counter wraps, and another device appears before it.
    put(&sampled.counter(), "200000      \n");
    let cores = sampled.root.path().join("sys/class/powercap/intel-rapl:00");
    put(&cores.join("name"), "another\n");
    put(&cores.join("max_energy_range_uj"), "262143328850\n");
    put(&cores.join("energy_uj"), "5\n");
    let settings = Settings {
        names: Some(vec!["rapl"]),
        sys_root: sampled.root.path().to_owned(),
        ..Settings::default()
    };
    let options = SamplerOptions {
        period: Duration::from_millis(1),
        settings,
        predecessor: Some(Predecessor { devices, ticks_per_second: SECOND }),
        ..SamplerOptions::default()
    };
    let sampler = Sampler::start(sampled.session.path(), Timer::MonotonicRaw, options).unwrap();
    let found = loop {
        match sampler.found() {
            Some(found) => break found.unwrap(),
            None => std::thread::sleep(Duration::from_millis(1)),
        }
    };
    let numbers: Vec<_> = found.devices.iter().map(|device| (device.metric.as_str(), device.index)).collect();
    assert!(numbers.contains(&("rapl:::energy:package-0", 0)), "{numbers:?}");
    assert!(numbers.contains(&("rapl:::energy:another", 1)), "{numbers:?}");
    assert_eq!(crate::sampling::devices_in(&sampled.session.path().join(LOG_NAME)).len(), 2);
    sampled.sampler = sampler;
    sampled.until(|figures| figures.readings.load(Ordering::Relaxed) > 0);
    let all = sampled.samples();
    // The ring has the samples of both samplers.
    let values: Vec<u64> = all.iter().map(|(_, value)| *value).collect();
    for expected in [1_000_000_000, 262_143_000_000_000, 200_000_000, 5000] {
        assert!(values.contains(&expected), "{expected} in {values:?}");
    }
    assert!(all.windows(2).all(|pair| pair[0].0 <= pair[1].0));
}
