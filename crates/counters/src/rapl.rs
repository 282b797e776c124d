//! CPU packages, their cores and memory: the running average power limit's counters (RAPL) of Intel and AMD, as the kernel
//! shows them in `/sys/class/powercap` (Documentation/power/powercap/powercap.rst).
//!
//! `intel-rapl:0` is a package (or the platform, `psys`), `intel-rapl:0:1` a part of it: core and uncore are in the
//! package's figure, dram is not. `intel-rapl-mmio` shows the same packages by another way and is passed over.
//!
//! A counter has 32 bits, of 61 uJ on a server, and so starts again within minutes to hours, at `max_energy_range_uj`. It
//! is read often enough to see each time and corrected here, so that nanojoules go on rising.

use std::io;
use std::path::Path;
use std::time::Instant;

use crate::file::{ValueFile, entries, text_of};
use crate::{Device, Kind, LastReading, Quality, ReadError, Reading, Settings, Source, Trouble};

pub(crate) const NAME: &str = "rapl";

/// No package gives more, by far. A step back that would need more than this to be the range's end is none: the counter
/// began anew, as after a sleep of the machine.
const WATTS_MAX: f64 = 20e3;

pub(crate) struct Rapl {
    devices: Vec<Device>,
    counters: Vec<Counter>,
}

struct Counter {
    file: ValueFile,
    /// Microjoules at which it starts again from 0; 0 where that is not known.
    range: u64,
    /// Microjoules as last read, and when.
    last: Option<(u64, Instant)>,
    /// What wraps have to be added, in microjoules.
    wrapped: u64,
}

impl Counter {
    fn read(&mut self) -> Result<Reading, ReadError> {
        let raw = self.file.number()?;
        self.take(raw, Instant::now());
        let microjoules = self.wrapped.wrapping_add(raw);
        Ok(Reading { nanojoules: microjoules.wrapping_mul(1000), raw, counter_timestamp_ns: None })
    }

    /// What wraps had been added is a multiple of the range.
    fn go_on(&mut self, last: LastReading, now: Instant) {
        let microjoules = last.nanojoules / 1000;
        let raw = if self.range > 0 { microjoules % self.range } else { microjoules };
        self.wrapped = microjoules - raw;
        self.last = now.checked_sub(last.ago).map(|then| (raw, then));
    }

    fn take(&mut self, raw: u64, now: Instant) {
        if let Some((before, at)) = self.last.filter(|(before, _)| raw < *before) {
            let joules = self.range.saturating_sub(before).saturating_add(raw) as f64 * 1e-6;
            let seconds = now.saturating_duration_since(at).as_secs_f64();
            // A joule more for a counter that is read twice at once.
            if self.range >= before && joules <= WATTS_MAX * seconds + 1.0 {
                self.wrapped = self.wrapped.wrapping_add(self.range);
            } else {
                // A reset: what came before is forgotten, so that the value goes back and is counted as one.
                self.wrapped = 0;
            }
        }
        self.last = Some((raw, now));
    }
}

/// Opens all domains that may be read. `None`, and notes, if there is none.
pub(crate) fn open(settings: &Settings, trouble: &mut Trouble) -> Option<Rapl> {
    let folder = settings.sys_root.join("sys/class/powercap");
    let mut found = Rapl { devices: Vec::new(), counters: Vec::new() };
    let (mut denied, mut seen) = (None, 0);
    for (entry, path) in entries(&folder) {
        let Some(zone) = entry.strip_prefix("intel-rapl:") else { continue };
        seen += 1;
        let Some((name, kind)) = name_of(&folder, zone) else {
            trouble.notes.push(format!("{NAME}: {} has no name; it is left out", path.display()));
            continue;
        };
        let mut file = match ValueFile::open(path.join("energy_uj")) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                denied.get_or_insert(path.join("energy_uj"));
                continue;
            }
            Err(error) => {
                trouble
                    .notes
                    .push(format!("{NAME}: {name}: {}/energy_uj: {error}; it is left out", path.display()));
                continue;
            }
        };
        if let Err(error) = file.number() {
            trouble.notes.push(format!("{NAME}: {name}: {}: {error}; it is left out", file.path().display()));
            continue;
        }
        let range =
            text_of(&path.join("max_energy_range_uj")).and_then(|text| text.parse().ok()).unwrap_or(0);
        if range == 0 {
            trouble.notes.push(format!(
                "{NAME}: {name}: no range in {}/max_energy_range_uj: when the counter starts again, that is taken for a \
                 reset",
                path.display()
            ));
        }
        if found.devices.iter().any(|device| device.name == name) {
            trouble.notes.push(format!("{NAME}: {} is a second {name}; it is left out", path.display()));
            continue;
        }
        found.devices.push(Device {
            metric: format!("{NAME}:::energy:{name}"),
            name,
            source: NAME,
            quality: Quality::Measured,
            kind,
            contains: Vec::new(),
            resolution_joules: 1e-6,
            description: format!("RAPL, {}", path.display()),
            pci: None,
        });
        found.counters.push(Counter { file, range, last: None, wrapped: 0 });
    }
    if let Some(path) = denied {
        trouble.notes.push(format!(
            "{NAME}: {} may not be read: since 2020 (CVE-2020-8694) the kernel lets only root. An administrator can allow \
             it: chmod a+r /sys/class/powercap/intel-rapl*/energy_uj, a udev rule that does so at boot, or setcap \
             cap_dac_read_search+ep for ampere-collector",
            path.display()
        ));
    }
    if seen == 0 {
        trouble.absent(format!("{NAME}: no intel-rapl in {}", folder.display()));
    }
    (!found.devices.is_empty()).then_some(found)
}

/// `package-0`, `package-0-core`, `psys`, of a zone such as `0` or `0:1`.
fn name_of(folder: &Path, zone: &str) -> Option<(String, Kind)> {
    let own = |zone: &str| text_of(&folder.join(format!("intel-rapl:{zone}")).join("name")).map(clean);
    let name = own(zone)?;
    let kind = match name.as_str() {
        "dram" => Kind::Memory,
        "psys" => Kind::Node,
        _ => Kind::Cpu,
    };
    match zone.rsplit_once(':') {
        Some((parent, _)) => Some((format!("{}-{name}", own(parent)?), kind)),
        None => Some((name, kind)),
    }
}

/// A name becomes part of a metric's: no blanks, no separators.
fn clean(name: String) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '-' || c == '_' { c } else { '-' }).collect()
}

impl Source for Rapl {
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
        self.counters.get_mut(device).ok_or(ReadError::NoSuchDevice)?.read()
    }

    fn go_on(&mut self, device: usize, last: LastReading) {
        if let Some(counter) = self.counters.get_mut(device) {
            counter.go_on(last, Instant::now());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn counter(folder: &Path, range: u64) -> Counter {
        let path = folder.join("energy_uj");
        std::fs::write(&path, "0\n").unwrap();
        Counter { file: ValueFile::open(path).unwrap(), range, last: None, wrapped: 0 }
    }

    #[test]
    fn a_wrap_is_made_good_and_a_reset_goes_back() {
        let folder = tempfile::tempdir().unwrap();
        let mut counter = counter(folder.path(), 262_143_328_850);
        let start = Instant::now();
        let mut at = |raw, ms| {
            counter.take(raw, start + Duration::from_millis(ms));
            counter.wrapped.wrapping_add(raw)
        };
        assert_eq!(at(262_143_000_000, 0), 262_143_000_000);
        // 528,850 uJ in a millisecond: an upper end of the range that was reached.
        assert_eq!(at(200_000, 1), 262_143_528_850);
        assert_eq!(at(300_000, 2), 262_143_628_850);
        // From the middle of the range to its beginning in a millisecond, that would be 131 MW.
        assert_eq!(at(131_000_000_000, 3), 393_143_328_850);
        assert_eq!(at(50, 4), 50);
        assert_eq!(at(1_050, 5), 1_050);
    }

    #[test]
    fn what_a_dead_process_had_added_for_wraps_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let now = Instant::now();
        let after = |microjoules: u64, seconds, raw| {
            let mut counter = counter(folder.path(), 1_000_000_000);
            let ago = Duration::from_secs(seconds);
            counter.go_on(LastReading { nanojoules: microjoules * 1000, watts: 0.0, ago }, now);
            counter.take(raw, now);
            counter.wrapped.wrapping_add(raw)
        };
        assert_eq!(after(2_400_000_000, 1, 500_000_000), 2_500_000_000);
        // It wrapped while nobody looked.
        assert_eq!(after(2_900_000_000, 2, 100_000_000), 3_100_000_000);
        // That would be 950 J in a moment: the machine was reset.
        assert_eq!(after(2_100_000_000, 0, 50_000_000), 50_000_000);
    }

    #[test]
    fn many_wraps_add_up() {
        let folder = tempfile::tempdir().unwrap();
        let mut counter = counter(folder.path(), 1_000_000);
        let start = Instant::now();
        let mut last = 0;
        for step in 0..10_000u64 {
            let true_energy = step * 300_000;
            counter.take(true_energy % 1_000_000, start + Duration::from_millis(step * 1000));
            last = counter.wrapped + true_energy % 1_000_000;
            assert_eq!(last, true_energy);
        }
        assert_eq!(last, 2_999_700_000);
    }
}
