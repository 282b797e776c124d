//! The sampler over made-up files: when it reads, and what it does when it cannot.

use super::*;
use ampere_ring::{Record, RingConsumer};
use std::path::PathBuf;

const SECOND: u64 = 1_000_000_000;

/// A node with one counter, and a sampler of it.
struct Sampled {
    root: tempfile::TempDir,
    session: tempfile::TempDir,
    sampler: Sampler,
}

/// Writes a figure over the one that is there, in one go.
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
        let sampler =
            Sampler::start(session.path(), Timer::MonotonicRaw, (period, gauges), settings, None, None)
                .unwrap();
        while !session.path().join(RING_NAME).exists() || sampler.figures.devices().is_empty() {
            std::thread::sleep(Duration::from_millis(1));
        }
        Sampled { root, session, sampler }
    }

    fn counter(&self) -> PathBuf {
        self.root.path().join("sys/class/powercap/intel-rapl:0/energy_uj")
    }

    /// Ends the sampler. Its samples: (time, nanojoules).
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
fn a_counter_that_goes_is_said_once_and_its_samples_go_on() {
    let mut sampled = Sampled::new();
    std::thread::sleep(Duration::from_millis(30));
    put(&sampled.counter(), "");
    std::fs::write(sampled.counter(), "").unwrap();
    std::fs::remove_file(sampled.counter()).unwrap();
    std::thread::sleep(Duration::from_millis(400));
    put(&sampled.counter(), "2000000\n");
    std::thread::sleep(Duration::from_millis(300));
    let samples = sampled.samples();
    let values: Vec<u64> = samples.iter().map(|(_, value)| *value).collect();
    assert_eq!(values[0], SECOND);
    assert!(values[1..].iter().all(|value| *value == 2 * SECOND), "{values:?}");
    let news = sampled.sampler.news().unwrap();
    assert!(news.starts_with("package-0 cannot be read: its file "), "{news}");
    assert_eq!(sampled.sampler.news(), None);
    let figures = &sampled.sampler.figures.devices()[0];
    let failed = figures.failed_readings.load(Ordering::Relaxed);
    assert!((3..30).contains(&failed), "tried now and then, not every millisecond: {failed}");
}

#[test]
fn a_slow_counter_is_read_around_its_changes() {
    let mut sampled = Sampled::new();
    let start = Instant::now();
    let clock = || Timer::MonotonicRaw.now();
    let mut moved = Vec::new();
    for step in 1..=30u32 {
        let at = Duration::from_millis(100) * step;
        std::thread::sleep(at.saturating_sub(start.elapsed()));
        moved.push(clock());
        put(&sampled.counter(), &format!("{}\n", 1_000_000 + 1_000_000 * step));
    }
    std::thread::sleep(Duration::from_millis(20));
    let samples = sampled.samples();
    let figures = &sampled.sampler.figures;
    let readings = figures.devices()[0].readings.load(Ordering::Relaxed);
    let update = figures.devices()[0].update_ns.load(Ordering::Relaxed);
    // How late each change after the first second was seen, half of them at most.
    let mut late: Vec<u64> = (10..30)
        .map(|step| {
            let value = SECOND * (step as u64 + 2);
            let seen = samples.iter().find(|(_, v)| *v == value);
            seen.map_or(u64::MAX, |(time, _)| time.saturating_sub(moved[step]))
        })
        .collect();
    late.sort_unstable();
    println!(
        "{readings} readings, every {update} ns, half within {} ns, all within {} ns",
        late[10], late[19]
    );
    // A loaded machine is late itself: half of the changes, and not all.
    assert!(late[10] < 2_000_000, "{late:?}");
    assert!(late[19] < SECOND, "none is lost: {late:?}");
    if figures.missed_deadlines.load(Ordering::Relaxed) == 0 {
        assert!(readings < 2_000, "{readings} readings in 3 s");
        assert!((90_000_000..=110_000_000).contains(&update), "{update}");
    }
}

#[test]
fn it_ends_at_once() {
    let mut sampled = Sampled::new();
    std::thread::sleep(Duration::from_millis(50));
    let begun = Instant::now();
    let samples = sampled.samples();
    assert!(begun.elapsed() < Duration::from_millis(500));
    // The first, and the last one although nothing has moved.
    assert_eq!(samples.len(), 2);
    let figures = ampere_report::summary::SamplerOverhead::from(&*sampled.sampler.figures);
    assert!(figures.deadlines > 0 && figures.cpu_seconds > 0.0 && figures.cpu_share < 1.0, "{figures:?}");
}

#[test]
fn what_devices_say_besides_is_asked_about_as_often_as_wanted() {
    let mut sampled = Sampled::of("cray_pm", Some(Duration::from_millis(100)));
    let power = sampled.root.path().join("sys/cray/pm_counters/power");
    std::thread::sleep(Duration::from_millis(450));
    put(&power, "912 W");
    std::thread::sleep(Duration::from_millis(350));
    std::fs::write(&power, "").unwrap();
    std::thread::sleep(Duration::from_millis(300));
    assert!(sampled.sampler.stop());
    let seen = &sampled.sampler.figures.devices()[0].gauges[0];
    assert_eq!(seen.now(), None, "it cannot be read any more");
    let over = seen.over_the_run().unwrap();
    assert_eq!((over.min, over.max), (812.0, 912.0));
    // 8 to 9 times in 800 ms; a loaded machine asks less often, none more often.
    assert!((3..=10).contains(&over.readings), "{over:?}");
    let figures = ampere_report::summary::SamplerOverhead::from(&*sampled.sampler.figures);
    assert!(figures.gauges_seconds > 0.0 && figures.longest_gauge_seconds <= figures.gauges_seconds);
    // Off is off.
    let mut silent = Sampled::of("cray_pm", None);
    std::thread::sleep(Duration::from_millis(50));
    assert!(silent.sampler.stop());
    assert_eq!(silent.sampler.figures.devices()[0].gauges[0].over_the_run(), None);
}

/// A sampler is killed and another one goes on: in one ring, with the same numbers, and with values as they are read.
#[test]
fn another_sampler_goes_on_with_ring_and_numbers() {
    let mut sampled = Sampled::new();
    std::thread::sleep(Duration::from_millis(30));
    put(&sampled.counter(), "262143000000\n");
    std::thread::sleep(Duration::from_millis(30));
    // Stopped in order, its ring is like that of one that was killed, but for its state.
    assert!(sampled.sampler.stop());
    let devices = crate::sampling::devices_in(&sampled.session.path().join(LOG_NAME));
    assert_eq!(devices.len(), 1);
    // The counter has wrapped meanwhile, and there is another device before it.
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
    let go_on = GoOn { devices, ticks_per_second: SECOND };
    let periods = (Duration::from_millis(1), None);
    let sampler =
        Sampler::start(sampled.session.path(), Timer::MonotonicRaw, periods, settings, Some(go_on), None)
            .unwrap();
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
    std::thread::sleep(Duration::from_millis(30));
    sampled.sampler = sampler;
    let all = sampled.samples();
    // Both samplers' samples, in one ring.
    let values: Vec<u64> = all.iter().map(|(_, value)| *value).collect();
    for expected in [1_000_000_000, 262_143_000_000_000, 200_000_000, 5000] {
        assert!(values.contains(&expected), "{expected} in {values:?}");
    }
    assert!(all.windows(2).all(|pair| pair[0].0 <= pair[1].0));
}
