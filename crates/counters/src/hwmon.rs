//! Sensors in `/sys/class/hwmon` (Documentation/hwmon/sysfs-interface.rst) of the power or energy of a part of the node, where
//! no better source has it. Only chips whose sensors are known to mean that are used:
//!
//! | chip | what it is | file |
//! | --- | --- | --- |
//! | `power_meter` | the node, by ACPI's meter at the supply | `power1_average`, integrated |
//! | `amdgpu` | an AMD GPU, where neither of AMD's libraries serves | `power1_average` or `power1_input`, integrated |
//! | `amdgpu` of an APU | the whole package, cores included, where RAPL does not show it | the same |
//! | `xe`, `i915` | an Intel GPU: the card, or where that does not count its package | `energy1_input` or `energy2_input` |
//! | `i915_gtN` | a tile of an Intel GPU, where `i915` shows neither | `energy1_input` |
//! | `amd_energy` | AMD packages, where RAPL does not show them | `energyN_input` labelled `Esocket` |
//! | `fam15h_power` | an AMD package of 2011 to 2016, likewise | `power1_input`, integrated |
//!
//! Of other chips that count energy a note says that they are left out; of those with a power alone, only what the node does not
//! have says it: batteries and regulators have one, too.
//!
//! A power is integrated here, from reading to reading, as its mean over the two. The power is measured, but what it did
//! between two readings is not known: the result is called `integrated`. Nothing is added for longer than [`GAP`].

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::file::{ValueFile, entries, text_of};
use crate::{Device, Gauge, Kind, LastReading, Quality, ReadError, Reading, Settings, Source, Trouble};

pub(crate) const NAME: &str = "hwmon";

/// A power that was not read for so long may have been anything meanwhile.
const GAP: Duration = Duration::from_secs(2);
/// Such a sensor asks a firmware: to read it more often is of no use and may take long.
const SHORTEST_PERIOD: Duration = Duration::from_millis(10);

/// PCI device of an MI300A.
const MI300A: &str = "0x74a0";

/// What other sources measure already.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Known {
    pub amd_gpus: bool,
    pub packages: bool,
    pub node: bool,
}

pub(crate) struct Hwmon {
    devices: Vec<Device>,
    /// For each of `devices`: what its chip is a part of.
    chips: Vec<Option<PathBuf>>,
    sensors: Vec<Sensor>,
}

enum Sensor {
    /// Microjoules.
    Energy(ValueFile),
    /// Microwatts, and what power that is.
    Power(ValueFile, Integral, Gauge),
}

/// Energy from a power that is read now and then.
#[derive(Default)]
struct Integral {
    /// When it was last read, and microwatts.
    last: Option<(Instant, u64)>,
    /// Twice the energy in femtojoules, which are microwatts times nanoseconds.
    twice_femtojoules: u128,
    /// `last` was read by an earlier collector, which has ended: all the time since then counts, however long it was.
    bridges: bool,
}

impl Integral {
    /// Continues after a process that has ended, at the power that it read last.
    fn go_on(last: LastReading, now: Instant) -> Integral {
        let then = now.checked_sub(last.ago).map(|then| (then, (last.watts.max(0.0) * 1e6) as u64));
        Integral { last: then, twice_femtojoules: u128::from(last.nanojoules) * 2_000_000, bridges: true }
    }

    /// Nanojoules so far.
    fn add(&mut self, now: Instant, microwatts: u64) -> u64 {
        let bridges = std::mem::take(&mut self.bridges);
        if let Some((before, then)) = self.last.replace((now, microwatts)) {
            let passed = now.saturating_duration_since(before);
            if passed <= GAP || bridges {
                self.twice_femtojoules += (u128::from(then) + u128::from(microwatts)) * passed.as_nanos();
            }
        }
        (self.twice_femtojoules / 2_000_000) as u64
    }
}

/// Opens all sensors that are of use. `None`, and notes, if there is none.
pub(crate) fn open(settings: &Settings, known: Known, trouble: &mut Trouble) -> Option<Hwmon> {
    let folder = settings.sys_root.join("sys/class/hwmon");
    let mut found = Hwmon { devices: Vec::new(), chips: Vec::new(), sensors: Vec::new() };
    let (mut meters, mut tiles) = (Vec::new(), Vec::new());
    for (_, path) in entries(&folder) {
        let Some(chip) = text_of(&path.join("name")) else { continue };
        match chip.as_str() {
            "power_meter" if !known.node => meters.push(path),
            "amdgpu" if known.amd_gpus => {}
            "amdgpu" if is_apu(&path) && known.packages => {}
            "amdgpu" if is_apu(&path) => found.add_power(&path, "apu", Kind::Cpu, trouble),
            "amdgpu" => found.add_power(&path, "amdgpu", Kind::Gpu, trouble),
            "xe" | "i915" => found.add_intel_gpu(&path, &chip, trouble),
            tile if tile.starts_with("i915_gt") => tiles.push((path, chip)),
            "amd_energy" if !known.packages => found.add_sockets(&path, trouble),
            "fam15h_power" if !known.packages => found.add_power(&path, "package", Kind::Cpu, trouble),
            "power_meter" | "amd_energy" | "fam15h_power" => {}
            other => leave_out(&path, other, trouble),
        }
    }
    // The GPU's own counter has all of its tiles in it.
    for (path, chip) in tiles {
        if !found.has_gpu_at(&path) {
            found.add_intel_gpu(&path, &chip, trouble);
        }
    }
    match &meters[..] {
        [] => {}
        [one] => found.add_power(one, "power-meter", Kind::Node, trouble),
        // One for each supply, or for each part of the board: ACPI does not say, and a sum may count twice.
        many => trouble.notes.push(format!(
            "{NAME}: {} ACPI power meters, and which of them is the node's is not known: they are left out",
            many.len()
        )),
    }
    if found.devices.is_empty() {
        trouble.absent(format!("{NAME}: no sensor of use in {}", folder.display()));
        return None;
    }
    Some(found)
}

impl Hwmon {
    fn add_power(&mut self, chip: &Path, name: &str, kind: Kind, trouble: &mut Trouble) {
        let files = ["power1_average", "power1_input"].map(|file| chip.join(file));
        let Some(path) = files.into_iter().find(|path| path.exists()) else { return };
        let Some(file) = first_read(&path, trouble) else { return };
        self.add(chip, name, kind, Quality::Integrated, &path);
        let average = path.ends_with("power1_average");
        let gauge = if average { Gauge::AveragePower } else { Gauge::CurrentPower };
        self.sensors.push(Sensor::Power(file, Integral::default(), gauge));
    }

    fn add_energy(&mut self, path: &Path, chip: &Path, name: &str, kind: Kind, trouble: &mut Trouble) {
        if !path.exists() {
            return;
        }
        let Some(file) = first_read(path, trouble) else { return };
        self.add(chip, name, kind, Quality::Measured, path);
        self.sensors.push(Sensor::Energy(file));
    }

    /// The card's counter, else its package's: cards differ in which of the two they have, or show one that stays 0.
    fn add_intel_gpu(&mut self, chip: &Path, name: &str, trouble: &mut Trouble) {
        let [card, package] = ["energy1_input", "energy2_input"].map(|file| chip.join(file));
        let counts = |path: &Path| {
            ValueFile::open(path.to_owned())
                .is_ok_and(|mut file| file.number().is_ok_and(|number| number > 0))
        };
        if !card.exists() && !package.exists() {
            return leave_out(chip, name, trouble);
        }
        if counts(&card) || !counts(&package) && card.exists() {
            return self.add_energy(&card, chip, name, Kind::Gpu, trouble);
        }
        self.add_energy(&package, chip, name, Kind::Gpu, trouble);
        let names = self.devices.last().map_or(name, |device| device.name.as_str());
        trouble.notes.push(format!(
            "{NAME}: {names} is the GPU's package alone: its card has no counter in {}",
            chip.display()
        ));
    }

    /// Whether the GPU that a tile belongs to is counted: any, where it is not known which one that is.
    fn has_gpu_at(&self, tile: &Path) -> bool {
        let own = std::fs::canonicalize(tile.join("device")).ok();
        let gpus =
            self.chips.iter().zip(&self.devices).filter(|(_, device)| device.name.starts_with("i915-"));
        gpus.map(|(of, _)| of).any(|of| own.is_none() || of.is_none() || *of == own)
    }

    fn add_sockets(&mut self, chip: &Path, trouble: &mut Trouble) {
        for (entry, path) in entries(chip) {
            let number = entry.strip_prefix("energy").and_then(|rest| rest.strip_suffix("_label"));
            let (Some(number), Some(label)) = (number, text_of(&path)) else { continue };
            if label.starts_with("Esocket") {
                let file = chip.join(format!("energy{number}_input"));
                self.add_energy(&file, chip, "package", Kind::Cpu, trouble);
            }
        }
    }

    /// Names are numbered, as nothing better is known: `amdgpu-0`, `package-0`; there is one `power-meter`.
    fn add(&mut self, chip: &Path, name: &str, kind: Kind, quality: Quality, path: &Path) {
        let name = if kind == Kind::Node {
            name.to_owned()
        } else {
            let before = self.devices.iter().filter(|device| {
                let number = device.name.strip_prefix(name).and_then(|rest| rest.strip_prefix('-'));
                number.is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()))
            });
            format!("{name}-{}", before.count())
        };
        let how = if quality == Quality::Integrated { "integrated from power, " } else { "" };
        self.chips.push(std::fs::canonicalize(chip.join("device")).ok());
        self.devices.push(Device {
            metric: format!("{NAME}:::energy:{name}"),
            name,
            source: NAME,
            quality,
            kind,
            contains: Vec::new(),
            wraps_at_nanojoules: None,
            resolution_joules: if quality == Quality::Integrated { 1e-9 } else { 1e-6 },
            description: format!("{how}{}", path.display()),
            pci: (kind == Kind::Gpu).then(|| pci_of(chip)).flatten(),
        });
    }
}

/// Names a chip that is not used, and whose files look as if they might be of use.
fn leave_out(chip: &Path, name: &str, trouble: &mut Trouble) {
    let files: Vec<String> = entries(chip).into_iter().map(|(file, _)| file).collect();
    let is = |file: &str, quantity: &str, kinds: &[&str]| {
        let rest =
            file.strip_prefix(quantity).map(|rest| rest.trim_start_matches(|c: char| c.is_ascii_digit()));
        rest.is_some_and(|rest| kinds.contains(&rest))
    };
    let energies: Vec<&str> =
        files.iter().map(String::as_str).filter(|file| is(file, "energy", &["_input"])).collect();
    let says = |files: &str| {
        let shown = chip.display();
        format!("{NAME}: {name}: what {files} in {shown} measures is not known: it is left out")
    };
    if !energies.is_empty() {
        trouble.notes.push(says(&energies.join(", ")));
    } else if files.iter().any(|file| is(file, "power", &["_input", "_average"])) {
        trouble.absent(says("the power"));
    }
}

/// Whether the power of an `amdgpu` is that of a package with cores: only APUs have a voltage of the north bridge; an
/// MI300A shows none and is known by its number.
fn is_apu(chip: &Path) -> bool {
    let says = |file: &str, text: &str| text_of(&chip.join(file)).is_some_and(|found| found == text);
    says("in1_label", "vddnb") || says("device/device", MI300A)
}

/// Opens a sensor and reads it once.
fn first_read(path: &Path, trouble: &mut Trouble) -> Option<ValueFile> {
    let opened = ValueFile::open(path.to_owned()).map_err(ReadError::Io).and_then(|mut file| {
        file.number()?;
        Ok(file)
    });
    opened
        .map_err(|error| trouble.notes.push(format!("{NAME}: {}: {error}; it is left out", path.display())))
        .ok()
}

/// Whether the kernel shows sensors of the AMD GPU with a PCI address.
pub(crate) fn has_sensors(root: &Path, pci: &str) -> bool {
    entries(&root.join("sys/class/hwmon")).iter().any(|(_, chip)| {
        text_of(&chip.join("name")).is_some_and(|name| name == "amdgpu")
            && pci_of(chip).is_some_and(|address| address == pci)
    })
}

/// The PCI address of a chip's device, by the name of the folder that `device` links to.
fn pci_of(chip: &Path) -> Option<String> {
    let device: PathBuf = std::fs::canonicalize(chip.join("device")).ok()?;
    let name = device.file_name()?.to_str()?;
    (name.len() >= 12 && name.matches(':').count() == 2 && name.contains('.')).then(|| name.to_owned())
}

impl Source for Hwmon {
    fn name(&self) -> &'static str {
        NAME
    }

    fn devices(&self) -> &[Device] {
        &self.devices
    }

    fn devices_mut(&mut self) -> &mut [Device] {
        &mut self.devices
    }

    fn shortest_period(&self, device: usize) -> Duration {
        match self.sensors.get(device) {
            Some(Sensor::Power(..)) => SHORTEST_PERIOD,
            _ => Duration::ZERO,
        }
    }

    fn read(&mut self, device: usize) -> Result<Reading, ReadError> {
        match self.sensors.get_mut(device).ok_or(ReadError::NoSuchDevice)? {
            Sensor::Energy(file) => {
                let raw = file.number()?;
                Ok(Reading { nanojoules: raw.wrapping_mul(1000), raw, counter_timestamp_ns: None })
            }
            Sensor::Power(file, integral, _) => {
                let raw = file.number()?; // refuses a sign, which some drivers write
                let nanojoules = integral.add(Instant::now(), raw);
                Ok(Reading { nanojoules, raw, counter_timestamp_ns: None })
            }
        }
    }

    fn go_on(&mut self, device: usize, last: LastReading) {
        if let Some(Sensor::Power(_, integral, _)) = self.sensors.get_mut(device) {
            *integral = Integral::go_on(last, Instant::now());
        }
    }

    fn gauges(&self, device: usize) -> &[Gauge] {
        match self.sensors.get(device) {
            Some(Sensor::Power(_, _, gauge)) => std::slice::from_ref(gauge),
            _ => &[],
        }
    }

    /// The power as it was read for the energy: to read it again would cost as much.
    fn gauge(&mut self, device: usize, gauge: Gauge) -> Option<f64> {
        let Some(Sensor::Power(_, integral, own)) = self.sensors.get(device) else { return None };
        let (_, microwatts) = integral.last.filter(|(at, _)| *own == gauge && at.elapsed() <= GAP)?;
        gauge.possible(microwatts as f64 * 1e-6)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dead_process_integral_goes_on_over_the_gap() {
        let now = Instant::now();
        let last = LastReading { nanojoules: 7_000_000_000, watts: 100.0, ago: Duration::from_secs(10) };
        let mut integral = Integral::go_on(last, now);
        // 10 s at (100 W + 200 W) / 2.
        assert_eq!(integral.add(now, 200_000_000), 1_507_000_000_000);
        // Once: what comes then is a gap like any other.
        assert_eq!(integral.add(now + Duration::from_secs(10), 200_000_000), 1_507_000_000_000);
        let mut integral = Integral::go_on(LastReading { ago: Duration::ZERO, ..last }, now);
        assert_eq!(integral.add(now, 200_000_000), 7_000_000_000);
        assert_eq!(integral.add(now + Duration::from_secs(10), 200_000_000), 7_000_000_000);
    }

    #[test]
    fn energy_is_the_mean_power_times_the_time() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut integral = Integral::default();
        assert_eq!(integral.add(at(0), 100_000_000), 0);
        assert_eq!(integral.add(at(10), 100_000_000), 1_000_000_000);
        assert_eq!(integral.add(at(20), 300_000_000), 3_000_000_000);
        // What was in a long pause is not made up.
        assert_eq!(integral.add(at(60_000), 300_000_000), 3_000_000_000);
        assert_eq!(integral.add(at(60_010), 300_000_000), 6_000_000_000);
    }
}
