//! HPE Cray nodes: the power management counters in `/sys/cray/pm_counters`, from the blade's own controller. It updates all
//! files, including `freshness`, ten times a second; a line is like `4721362 J 1700000000123456 us`.
//!
//! The files are read as one set when `freshness` has changed, and again if it changes while they are read. So the figures of
//! node, CPU and accelerators belong to the same moment, and while nothing changes, a read of the set costs one read of a file.
//!
//! `energy` is that of the whole node, including parts that are in no other file. An accelerator's energy is higher than its own
//! counter shows, because it is that of the module with its voltage regulators. Which `accelN` is which GPU is not documented:
//! they are assumed to be in the same order.

use std::time::{Duration, Instant};

use crate::file::{ValueFile, entries, leading_number};
use crate::{Device, Gauge, Kind, OpenErrors, Quality, ReadError, Reading, Settings, Source};

pub(crate) const NAME: &str = "cray_pm";

/// A set that is older than this is read again even if `freshness` has not changed, because `freshness` itself may have stopped.
const SET_AGE_MAX: Duration = Duration::from_secs(1);
/// The maximum number of attempts to read a set without a change of `freshness`.
const ATTEMPTS: u32 = 3;

pub(crate) struct CrayPm {
    devices: Vec<Device>,
    counters: Vec<Counter>,
    freshness: Option<ValueFile>,
    /// The `freshness` of the present set, and when it was read.
    held: Option<(u64, Instant)>,
    /// Changes when a power cap is set.
    generation: Watched,
    /// Changes when the controller restarts.
    startup: Watched,
}

struct Counter {
    file: ValueFile,
    /// The power of the same part, in watts.
    power: Option<ValueFile>,
    value: Result<(u64, Option<u64>), ReadError>,
}

/// A number whose changes are reported.
struct Watched {
    file: Option<ValueFile>,
    value: Option<u64>,
}

impl Watched {
    fn open(path: std::path::PathBuf) -> Watched {
        let mut file = ValueFile::open(path).ok();
        let value = file.as_mut().and_then(|file| file.number().ok());
        Watched { file, value }
    }

    /// Returns the previous and the present value, if they differ.
    fn change(&mut self) -> Option<(u64, u64)> {
        let now = self.file.as_mut()?.number().ok()?;
        let before = self.value.replace(now)?;
        (before != now).then_some((before, now))
    }
}

/// Opens the files of all energy counters. Returns `None`, with notes, if there is none.
pub(crate) fn open(settings: &Settings, errors: &mut OpenErrors) -> Option<CrayPm> {
    let folder = settings.sys_root.join("sys/cray/pm_counters");
    if !folder.exists() {
        errors.absent(format!("{NAME}: no {}", folder.display()));
        return None;
    }
    let (mut devices, mut counters) = (Vec::new(), Vec::new());
    let mut files = entries(&folder);
    files.sort_by_key(|(name, _)| name != "energy"); // the node first
    for (entry, path) in files {
        let Some((name, kind)) = device_of(&entry) else { continue };
        let first = ValueFile::open(path.clone()).map_err(ReadError::Io).and_then(|mut file| {
            let value = file.read(energy)?;
            Ok((file, value))
        });
        let (file, value) = match first {
            Ok(opened) => opened,
            Err(error) => {
                errors.unreadable(format!("{NAME}: {}: {error}; it is not used", path.display()));
                continue;
            }
        };
        // A file for a part that the node does not have shows 0.
        if value.0 == 0 {
            continue;
        }
        devices.push(Device {
            metric: format!("{NAME}:::energy:{name}"),
            name,
            source: NAME,
            quality: Quality::Measured,
            kind,
            contains: Vec::new(),
            resolution_joules: 1.0,
            description: format!("Cray pm_counters, {}", path.display()),
            pci: None,
            wraps_at_nanojoules: None,
            baseline_microwatts: None,
        });
        let power = ValueFile::open(folder.join(entry.replace("energy", "power"))).ok();
        counters.push(Counter { file, power, value: Ok(value) });
    }
    if devices.is_empty() {
        errors.notes.push(format!("{NAME}: no readable energy in {}", folder.display()));
        return None;
    }
    let freshness = ValueFile::open(folder.join("freshness")).ok();
    Some(CrayPm {
        devices,
        counters,
        freshness,
        held: None,
        generation: Watched::open(folder.join("generation")),
        startup: Watched::open(folder.join("startup")),
    })
}

/// Returns the device to which a file belongs, if it is an energy.
fn device_of(file: &str) -> Option<(String, Kind)> {
    if file == "energy" {
        return Some(("node".to_owned(), Kind::Node));
    }
    let name = file.strip_suffix("_energy")?;
    let kind = match name.trim_end_matches(|c: char| c.is_ascii_digit()) {
        "cpu" => Kind::Cpu,
        "memory" => Kind::Memory,
        "accel" => Kind::Gpu,
        _ => return None,
    };
    Some((name.to_owned(), kind))
}

/// Returns joules, and the controller's time in nanoseconds, from `4721362 J 1700000000123456 us`.
fn energy(text: &[u8]) -> Option<(u64, Option<u64>)> {
    let (joules, rest) = leading_number(text)?;
    let rest = rest.trim_ascii_start();
    if rest.is_empty() {
        return Some((joules, None));
    }
    let rest = rest.strip_prefix(b"J")?;
    let time = leading_number(rest).filter(|(_, unit)| unit.trim_ascii() == b"us");
    Some((joules, time.and_then(|(microseconds, _)| microseconds.checked_mul(1000))))
}

/// Returns the watts of `800 W 1700000000123456 us`.
fn power(text: &[u8]) -> Option<f64> {
    let (watts, rest) = leading_number(text)?;
    rest.trim_ascii_start().starts_with(b"W").then_some(watts as f64)
}

impl CrayPm {
    /// Reads the set again if it is not current.
    fn refresh(&mut self) {
        for _ in 0..ATTEMPTS {
            let before = self.freshness.as_mut().and_then(|file| file.number().ok());
            let is_current =
                |(freshness, at): (u64, Instant)| Some(freshness) == before && at.elapsed() < SET_AGE_MAX;
            if self.held.is_some_and(is_current) {
                return;
            }
            for counter in &mut self.counters {
                counter.value = counter.file.read(energy);
            }
            let after = self.freshness.as_mut().and_then(|file| file.number().ok());
            self.held = after.map(|freshness| (freshness, Instant::now()));
            if before == after {
                return;
            }
        }
        // If `freshness` changes at every attempt, the figures may belong to different moments, but each of them is right.
    }
}

impl Source for CrayPm {
    fn name(&self) -> &'static str {
        NAME
    }

    fn devices(&self) -> &[Device] {
        &self.devices
    }

    fn devices_mut(&mut self) -> &mut [Device] {
        &mut self.devices
    }

    fn read(&mut self, device: usize) -> Result<Reading, ReadError> {
        if device >= self.counters.len() {
            return Err(ReadError::NoSuchDevice);
        }
        if self.freshness.is_some() {
            self.refresh();
        } else {
            let counter = &mut self.counters[device];
            counter.value = counter.file.read(energy);
        }
        // The reason for a failed read is returned once. Until the file is tried again, with the next set, it counts as
        // malformed.
        match std::mem::replace(&mut self.counters[device].value, Err(ReadError::Malformed)) {
            Ok((joules, time)) => {
                self.counters[device].value = Ok((joules, time));
                Ok(Reading {
                    nanojoules: joules.wrapping_mul(1_000_000_000),
                    raw: joules,
                    counter_timestamp_ns: time,
                })
            }
            Err(error) => Err(error),
        }
    }

    fn gauges(&self, device: usize) -> &[Gauge] {
        match self.counters.get(device) {
            Some(Counter { power: Some(_), .. }) => &[Gauge::CurrentPower],
            _ => &[],
        }
    }

    fn gauge(&mut self, device: usize, gauge: Gauge) -> Option<f64> {
        let file = self.counters.get_mut(device)?.power.as_mut().filter(|_| gauge == Gauge::CurrentPower)?;
        gauge.possible(file.read(power).ok()?)
    }

    fn news(&mut self) -> Option<String> {
        if let Some((before, now)) = self.startup.change() {
            return Some(format!(
                "{NAME}: the node's controller was restarted during the run (startup {before}, now {now}): its \
                 energies before and after do not belong together"
            ));
        }
        let (before, now) = self.generation.change()?;
        Some(format!("{NAME}: a power cap was changed during the run (generation {before}, now {now})"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_joules_and_a_time() {
        assert_eq!(
            energy(b"4721362 J 1700000000123456 us\n"),
            Some((4_721_362, Some(1_700_000_000_123_456_000)))
        );
        assert_eq!(energy(b"12 J\n"), Some((12, None)));
        assert_eq!(energy(b"12\n"), Some((12, None)));
        for bad in [&b""[..], b"\n", b"J 12", b"12 W 17 us\n", b"-3 J\n", b"nan J\n"] {
            assert_eq!(energy(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn a_power_has_its_unit() {
        assert_eq!(power(b"800 W 1700000000123456 us\n"), Some(800.0));
        for bad in [&b"800\n"[..], b"800 J 17 us\n", b"-1 W\n", b""] {
            assert_eq!(power(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn energies_are_distinguished_from_powers_and_caps() {
        assert_eq!(device_of("energy"), Some(("node".to_owned(), Kind::Node)));
        assert_eq!(device_of("accel3_energy"), Some(("accel3".to_owned(), Kind::Gpu)));
        assert_eq!(device_of("cpu_energy"), Some(("cpu".to_owned(), Kind::Cpu)));
        assert_eq!(device_of("memory_energy"), Some(("memory".to_owned(), Kind::Memory)));
        for other in ["power", "cpu_power", "accel0_power_cap", "freshness", "raw_scan_hz"] {
            assert_eq!(device_of(other), None, "{other}");
        }
    }
}
