//! CPU packages, their cores and memory: the running average power limit's counters (RAPL) of Intel and AMD, as the kernel
//! shows them in `/sys/class/powercap` (Documentation/power/powercap/powercap.rst).
//!
//! `intel-rapl:0` is a package (or the platform, `psys`), `intel-rapl:0:1` a part of it: core and uncore are in the
//! package's figure, dram is not. `intel-rapl-mmio` shows the same packages by another way and is passed over.
//!
//! A counter has 32 bits, of 61 uJ on a server, and so starts again within minutes to hours, at `max_energy_range_uj`. What
//! is read is handed on as it is: whether a decrease is the range's end, a reset or a misreading is not decided here.

use std::io;
use std::path::Path;

use crate::file::{ValueFile, entries, text_of};
use crate::{Device, Kind, Quality, ReadError, Reading, Settings, Source, Trouble};

pub(crate) const NAME: &str = "rapl";

pub(crate) struct Rapl {
    devices: Vec<Device>,
    counters: Vec<Counter>,
}

struct Counter {
    file: ValueFile,
}

impl Counter {
    fn read(&mut self) -> Result<Reading, ReadError> {
        let raw = self.file.number()?;
        Ok(Reading { nanojoules: raw.wrapping_mul(1000), raw, counter_timestamp_ns: None })
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
            text_of(&path.join("max_energy_range_uj")).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
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
            wraps_at_nanojoules: (range > 0).then(|| range.saturating_mul(1000)),
        });
        found.counters.push(Counter { file });
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readings_are_the_counter_s_own() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("energy_uj");
        std::fs::write(&path, "262143000000\n").unwrap();
        let mut counter = Counter { file: ValueFile::open(path.clone()).unwrap() };
        assert_eq!(counter.read().unwrap().nanojoules, 262_143_000_000_000);
        std::fs::write(&path, "200000\n").unwrap();
        assert_eq!(counter.read().unwrap().nanojoules, 200_000_000);
    }
}
