//! Gauges of the CPUs of a package, or of all CPUs of the node, in files of the kernel: their clock, and whether the package is
//! throttled because of its temperature (Intel's processors only).

use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::Gauge;
use crate::file::{ValueFile, entries, number_in, text_of};

/// The number of CPUs whose clocks are read at a time. Before Linux 5.18 the clock of an idle CPU takes 10 ms to read.
const CLOCKS_AT_ONCE: usize = 4;

#[derive(Default)]
pub(crate) struct CpuGauges {
    known: Vec<Gauge>,
    /// The file with the clock of each CPU. Every reading uses the next [`CLOCKS_AT_ONCE`] of them, in turn.
    clocks: Vec<PathBuf>,
    next_clock: usize,
    throttled: Vec<ThrottledTime>,
    /// When throttling was last read.
    read: Option<Instant>,
}

/// The time in which a package was throttled.
struct ThrottledTime {
    milliseconds: ValueFile,
    last: u64,
    /// The throttled milliseconds that are not yet reported. The kernel counts a throttled period only when it ends, so the
    /// period may be longer than the interval between two readings.
    left: f64,
}

impl CpuGauges {
    /// Opens the files of a package's CPUs, or of all CPUs if `package` is `None`.
    pub fn open(root: &Path, package: Option<u32>) -> CpuGauges {
        let mut found = CpuGauges { read: Some(Instant::now()), ..CpuGauges::default() };
        let mut packages = Vec::new();
        for (name, path) in entries(&root.join("sys/devices/system/cpu")) {
            let is_cpu = name.strip_prefix("cpu").is_some_and(|number| number.parse::<u32>().is_ok());
            let own = text_of(&path.join("topology/physical_package_id")).and_then(|id| id.parse().ok());
            if !is_cpu || package.is_some() && own != package {
                continue;
            }
            let clock = path.join("cpufreq/scaling_cur_freq");
            if number_in(&clock).is_ok() {
                found.clocks.push(clock);
            }
            // All CPUs of a package show the package's time.
            if !packages.contains(&own) {
                packages.push(own);
                found.throttled.extend(ThrottledTime::open(&path));
            }
        }
        found.known.extend((!found.clocks.is_empty()).then_some(Gauge::Clock));
        found.known.extend((!found.throttled.is_empty()).then_some(Gauge::ThermalThrottling));
        found
    }

    pub fn known(&self) -> &[Gauge] {
        &self.known
    }

    /// Reads a gauge in base units; `None` also for one that is not in [`CpuGauges::known`].
    pub fn read(&mut self, gauge: Gauge) -> Option<f64> {
        match gauge {
            Gauge::Clock => self.clock(),
            Gauge::ThermalThrottling => self.throttled(),
            _ => None,
        }
    }

    /// Returns the mean clock of the CPUs whose turn it is.
    fn clock(&mut self) -> Option<f64> {
        let (mut sum, mut count) = (0, 0);
        for _ in 0..CLOCKS_AT_ONCE.min(self.clocks.len()) {
            if let Ok(kilohertz) = number_in(&self.clocks[self.next_clock]) {
                (sum, count) = (sum + kilohertz, count + 1);
            }
            self.next_clock = (self.next_clock + 1) % self.clocks.len();
        }
        (count > 0).then(|| sum as f64 * 1e3 / f64::from(count))
    }

    /// Returns the throttled fraction of the time since the last reading: that of the package that was throttled most.
    fn throttled(&mut self) -> Option<f64> {
        let now = Instant::now();
        let passed = now.duration_since(self.read.replace(now)?).as_secs_f64() * 1e3;
        self.throttled.iter_mut().filter_map(|time| time.part_of(passed)).reduce(f64::max)
    }
}

impl ThrottledTime {
    fn open(cpu: &Path) -> Option<ThrottledTime> {
        let path = cpu.join("thermal_throttle/package_throttle_total_time_ms");
        let mut milliseconds = ValueFile::open(path).ok()?;
        let last = milliseconds.number().ok()?;
        Some(ThrottledTime { milliseconds, last, left: 0.0 })
    }

    /// Returns the throttled fraction of the `passed` milliseconds. Throttled time beyond them is kept for the next call.
    fn part_of(&mut self, passed: f64) -> Option<f64> {
        let now = self.milliseconds.number().ok()?;
        self.left += now.saturating_sub(std::mem::replace(&mut self.last, now)) as f64;
        let part = self.left.min(passed);
        self.left -= part;
        (passed > 0.0).then(|| part / passed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn put(path: PathBuf, text: &str) {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    /// Makes two packages of six CPUs: the first at 1 to 6 GHz, the second at 10 GHz.
    fn node(root: &Path) {
        for cpu in 0..12u32 {
            let at = root.join(format!("sys/devices/system/cpu/cpu{cpu}"));
            put(at.join("topology/physical_package_id"), &format!("{}\n", cpu / 6));
            let megahertz = if cpu < 6 { 1000 * (cpu + 1) } else { 10_000 };
            put(at.join("cpufreq/scaling_cur_freq"), &format!("{}\n", 1000 * megahertz));
            put(at.join("thermal_throttle/package_throttle_total_time_ms"), "500\n");
        }
        put(root.join("sys/devices/system/cpu/cpufreq/policy0/scaling_cur_freq"), "1\n");
    }

    #[test]
    fn the_clock_is_the_mean_of_a_packages_cpus_which_take_turns() {
        let root = tempfile::tempdir().unwrap();
        node(root.path());
        let mut first = CpuGauges::open(root.path(), Some(0));
        assert_eq!(first.known(), [Gauge::Clock, Gauge::ThermalThrottling]);
        assert_eq!(first.read(Gauge::Clock), Some(2.5e9));
        assert_eq!(first.read(Gauge::Clock), Some((5.0 + 6.0 + 1.0 + 2.0) / 4.0 * 1e9));
        assert_eq!(CpuGauges::open(root.path(), Some(1)).read(Gauge::Clock), Some(10e9));
        assert_eq!(CpuGauges::open(root.path(), None).clocks.len(), 12);
        // A node that shows nothing has no gauges, not gauges of 0.
        let none = tempfile::tempdir().unwrap();
        assert_eq!(CpuGauges::open(none.path(), None).known(), []);
    }

    #[test]
    fn a_throttled_time_longer_than_the_last_interval_belongs_to_several() {
        let root = tempfile::tempdir().unwrap();
        node(root.path());
        let cpu = root.path().join("sys/devices/system/cpu/cpu0");
        let mut time = ThrottledTime::open(&cpu).unwrap();
        assert_eq!(time.part_of(1000.0), Some(0.0), "time counted before does not belong to the run");
        put(cpu.join("thermal_throttle/package_throttle_total_time_ms"), "3000\n");
        let parts = [(); 4].map(|()| time.part_of(1000.0));
        assert_eq!(parts, [Some(1.0), Some(1.0), Some(0.5), Some(0.0)]);
        // The most throttled package decides.
        let mut all = CpuGauges::open(root.path(), None);
        put(
            root.path().join("sys/devices/system/cpu/cpu6/thermal_throttle/package_throttle_total_time_ms"),
            "999999\n",
        );
        all.read = Instant::now().checked_sub(Duration::from_secs(1));
        assert_eq!(all.read(Gauge::ThermalThrottling), Some(1.0));
    }
}
