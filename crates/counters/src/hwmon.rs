//! Sensors of power or energy in `/sys/class/hwmon` (Documentation/hwmon/sysfs-interface.rst), for parts of the node that no
//! better source measures. A chip is used only if it is known which part its sensors measure:
//!
//! | chip | what it is | file |
//! | --- | --- | --- |
//! | `power_meter` | the node, by ACPI's meter at the supply | `power1_average`, else `power1_input`, integrated |
//! | `power_meter` of NVIDIA Grace | a module, Grace, its cores or its IO, by the text in `power1_oem_info` | the same |
//! | `amdgpu` | an AMD GPU, if neither of AMD's libraries can be used | `power1_average` or `power1_input`, integrated |
//! | `amdgpu` of an APU | the whole package including cores, if RAPL does not show it | the same |
//! | `xe`, `i915` | an Intel GPU: the card, or its package if the card is not counted | `energy1_input` or `energy2_input` |
//! | `i915_gtN` | a tile of an Intel GPU, if `i915` shows neither | `energy1_input` |
//! | `amd_energy` | AMD packages, if RAPL does not show them | `energyN_input` labelled `Esocket` |
//! | `fam15h_power` | an AMD package of 2011 to 2016, likewise | `power1_input`, integrated |
//!
//! A note reports other chips that count energy and are not used. Chips that have only a power are listed among the counters
//! that the node does not have, because batteries and regulators have one, too.
//!
//! A power is integrated here between readings, as the mean of the two. The power is measured, but its values between two
//! readings are not known, so the result is called `integrated`. After an interval longer than [`INTERVAL_MAX`], whose energy is
//! not known, the energy begins again, as after a reset of a counter. For the same reason, a mean over a longer interval is not
//! used: ACPI's meters of some servers show the mean of five minutes.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::file::{ValueFile, entries, text_of};
use crate::integral::Integral;
use crate::{Device, Gauge, Kind, LastReading, OpenErrors, Quality, ReadError, Reading, Settings, Source};

pub(crate) const NAME: &str = "hwmon";

/// A power that was not read for longer than this may have had any value in the meantime.
const INTERVAL_MAX: Duration = Duration::from_secs(2);
/// The shortest period of reading a power. Such a sensor queries a firmware, so reading it more often is useless and may take
/// long.
const PERIOD_MIN: Duration = Duration::from_millis(10);

/// The PCI device of an MI300A.
const MI300A: &str = "0x74a0";

/// The parts of the node that other sources already measure.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Known {
    pub amd_gpus: bool,
    pub packages: bool,
    pub node: bool,
}

pub(crate) struct Hwmon {
    devices: Vec<Device>,
    /// For each of `devices`, the device to which its chip belongs.
    chips: Vec<Option<PathBuf>>,
    sensors: Vec<Sensor>,
}

enum Sensor {
    /// A counter of energy in microjoules.
    Energy(ValueFile),
    /// A power in microwatts, and which power it is.
    Power(ValueFile, Integral, Gauge),
}

/// Opens all sensors that are useful. Returns `None`, with notes, if there is none.
pub(crate) fn open(settings: &Settings, known: Known, errors: &mut OpenErrors) -> Option<Hwmon> {
    let folder = settings.sys_root.join("sys/class/hwmon");
    let mut found = Hwmon { devices: Vec::new(), chips: Vec::new(), sensors: Vec::new() };
    let (mut meters, mut tiles) = (Vec::new(), Vec::new());
    let parts = grace_meters(&folder);
    for (_, path) in entries(&folder) {
        let Some(chip) = text_of(&path.join("name")) else { continue };
        match chip.as_str() {
            "power_meter" if parts.iter().any(|(of, _)| *of == path) => {}
            "power_meter" if !known.node => meters.push(path),
            "amdgpu" if known.amd_gpus => {}
            "amdgpu" if is_apu(&path) && known.packages => {}
            "amdgpu" if is_apu(&path) => found.add_power(&path, "apu", Kind::Cpu, errors),
            "amdgpu" => found.add_power(&path, "amdgpu", Kind::Gpu, errors),
            "xe" | "i915" => found.add_intel_gpu(&path, &chip, errors),
            tile if tile.starts_with("i915_gt") => tiles.push((path, chip)),
            "amd_energy" if !known.packages => found.add_sockets(&path, errors),
            "fam15h_power" if !known.packages => found.add_power(&path, "package", Kind::Cpu, errors),
            "power_meter" | "amd_energy" | "fam15h_power" => {}
            other => report_unused(&path, other, errors),
        }
    }
    // The GPU's own counter contains all of its tiles.
    for (path, chip) in tiles {
        if !found.has_gpu_at(&path) {
            found.add_intel_gpu(&path, &chip, errors);
        }
    }
    for (path, (name, kind)) in parts {
        found.add_power(&path, &name, kind, errors);
    }
    match &meters[..] {
        [] => {}
        [one] => found.add_power(one, "power-meter", Kind::Node, errors),
        // There may be one for each supply, or for each part of the board. ACPI does not define that, and a sum could count
        // energy twice.
        many => errors.notes.push(format!(
            "{NAME}: there are {} ACPI power meters, and it is unknown which of them measures the node: they are not used",
            many.len()
        )),
    }
    if found.devices.is_empty() {
        errors.absent(format!("{NAME}: no usable sensor in {}", folder.display()));
        return None;
    }
    Some(found)
}

impl Hwmon {
    fn add_power(&mut self, chip: &Path, name: &str, kind: Kind, errors: &mut OpenErrors) {
        let [average, input] = ["power1_average", "power1_input"].map(|file| chip.join(file));
        let slow = averaging_interval(chip).filter(|interval| *interval > INTERVAL_MAX && average.exists());
        let Some(path) = [&average, &input]
            .into_iter()
            .find(|path| path.exists() && (slow.is_none() || **path != average))
        else {
            errors.notes.extend(slow.map(|interval| {
                format!(
                    "{NAME}: {name}: {} is a mean over {} s, so most of it may be older than the run: it is not used",
                    average.display(),
                    interval.as_secs_f64()
                )
            }));
            return;
        };
        let Some(file) = first_read(path, errors) else { return };
        self.add(chip, name, kind, Quality::Integrated, path);
        let gauge = if *path == average { Gauge::AveragePower } else { Gauge::CurrentPower };
        self.sensors.push(Sensor::Power(file, Integral::default(), gauge));
    }

    fn add_energy(&mut self, path: &Path, chip: &Path, name: &str, kind: Kind, errors: &mut OpenErrors) {
        if !path.exists() {
            return;
        }
        let Some(file) = first_read(path, errors) else { return };
        self.add(chip, name, kind, Quality::Measured, path);
        self.sensors.push(Sensor::Energy(file));
    }

    /// Adds the card's counter, or else its package's. Some cards have only one of the two, or have one that stays 0.
    fn add_intel_gpu(&mut self, chip: &Path, name: &str, errors: &mut OpenErrors) {
        let [card, package] = ["energy1_input", "energy2_input"].map(|file| chip.join(file));
        let counts = |path: &Path| {
            ValueFile::open(path.to_owned())
                .is_ok_and(|mut file| file.number().is_ok_and(|number| number > 0))
        };
        if !card.exists() && !package.exists() {
            return report_unused(chip, name, errors);
        }
        if counts(&card) || !counts(&package) && card.exists() {
            return self.add_energy(&card, chip, name, Kind::Gpu, errors);
        }
        self.add_energy(&package, chip, name, Kind::Gpu, errors);
        let names = self.devices.last().map_or(name, |device| device.name.as_str());
        errors.notes.push(format!(
            "{NAME}: {names} measures only the GPU's package: its card has no counter in {}",
            chip.display()
        ));
    }

    /// Whether the GPU that a tile belongs to is counted. If that GPU is not known, whether any GPU is counted.
    fn has_gpu_at(&self, tile: &Path) -> bool {
        let own = std::fs::canonicalize(tile.join("device")).ok();
        let gpus =
            self.chips.iter().zip(&self.devices).filter(|(_, device)| device.name.starts_with("i915-"));
        gpus.map(|(of, _)| of).any(|of| own.is_none() || of.is_none() || *of == own)
    }

    fn add_sockets(&mut self, chip: &Path, errors: &mut OpenErrors) {
        for (entry, path) in entries(chip) {
            let number = entry.strip_prefix("energy").and_then(|rest| rest.strip_suffix("_label"));
            let (Some(number), Some(label)) = (number, text_of(&path)) else { continue };
            if label.starts_with("Esocket") {
                let file = chip.join(format!("energy{number}_input"));
                self.add_energy(&file, chip, "package", Kind::Cpu, errors);
            }
        }
    }

    /// Adds a device. Names are numbered, because nothing better is known: `amdgpu-0`, `package-0`; there is one `power-meter`,
    /// and the names of Grace's meters have the number of their socket.
    fn add(&mut self, chip: &Path, name: &str, kind: Kind, quality: Quality, path: &Path) {
        let name = if kind == Kind::Node || grace_part(name).is_some() {
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
            baseline_microwatts: None,
            resolution_joules: if quality == Quality::Integrated { 1e-9 } else { 1e-6 },
            description: format!("{how}{}", path.display()),
            pci: (kind == Kind::Gpu).then(|| pci_of(chip)).flatten(),
        });
    }
}

/// The parts of a socket that NVIDIA Grace's power meters measure, from the outermost on: their number, the words before ` Power
/// Socket 0` in `power1_oem_info`, the part's name, and its kind. The module includes the memory and, on a Grace Hopper, the GPU.
const GRACE_PARTS: [(usize, &str, &str, Kind); 4] = [
    (0, "Module", "module", Kind::Node),
    (GRACE, "Grace", "grace", Kind::Cpu),
    (3, "CPU", "cpu", Kind::Cpu),
    (4, "SysIO", "sysio", Kind::Cpu),
];
/// The numbers of the two parts that are inside the module and contain other parts.
pub(crate) const GRACE_HOPPER_GPU: usize = 1;
pub(crate) const GRACE: usize = 2;

/// Returns Grace's power meters, with their names and kinds. A second meter of the same part is left out.
fn grace_meters(folder: &Path) -> Vec<(PathBuf, (String, Kind))> {
    let mut found: Vec<(PathBuf, (String, Kind))> = Vec::new();
    for (_, path) in entries(folder) {
        let is_meter = text_of(&path.join("name")).is_some_and(|name| name == "power_meter");
        let text = text_of(&path.join("power1_oem_info")).filter(|_| is_meter);
        let part = text.and_then(|text| {
            let (part, socket) = text.split_once(" Power Socket ")?;
            let (.., name, kind) = GRACE_PARTS.iter().find(|(_, word, ..)| *word == part)?;
            Some((format!("{name}-{}", socket.parse::<u32>().ok()?), *kind))
        });
        if let Some(part) = part.filter(|part| found.iter().all(|(_, known)| known != part)) {
            found.push((path, part));
        }
    }
    found.sort_by_key(|(_, (name, _))| grace_part(name));
    found
}

/// Returns the socket of one of Grace's meters, and the number of its part, from the device's name.
pub(crate) fn grace_part(device: &str) -> Option<(u32, usize)> {
    let (part, socket) = device.split_once('-')?;
    let (number, ..) = GRACE_PARTS.iter().find(|(.., name, _)| *name == part)?;
    Some((socket.parse().ok()?, *number))
}

/// Returns the time over which `power1_average` is a mean, if the chip reports it.
fn averaging_interval(chip: &Path) -> Option<Duration> {
    let milliseconds = text_of(&chip.join("power1_average_interval"))?;
    milliseconds.parse().ok().map(Duration::from_millis)
}

/// Reports a chip that is not used, if its files look useful.
fn report_unused(chip: &Path, name: &str, errors: &mut OpenErrors) {
    let files: Vec<String> = entries(chip).into_iter().map(|(file, _)| file).collect();
    let is = |file: &str, quantity: &str, kinds: &[&str]| {
        let rest =
            file.strip_prefix(quantity).map(|rest| rest.trim_start_matches(|c: char| c.is_ascii_digit()));
        rest.is_some_and(|rest| kinds.contains(&rest))
    };
    let energies: Vec<&str> =
        files.iter().map(String::as_str).filter(|file| is(file, "energy", &["_input"])).collect();
    let note = |files: &str| {
        let shown = chip.display();
        format!("{NAME}: {name}: it is unknown what {files} in {shown} measures: it is not used")
    };
    if !energies.is_empty() {
        errors.notes.push(note(&energies.join(", ")));
    } else if files.iter().any(|file| is(file, "power", &["_input", "_average"])) {
        errors.absent(note("the power"));
    }
}

/// Whether the power of an `amdgpu` is that of a package with cores: only APUs have a voltage of the north bridge. An MI300A
/// has none, and is recognised by its PCI device number.
fn is_apu(chip: &Path) -> bool {
    let has = |file: &str, text: &str| text_of(&chip.join(file)).is_some_and(|found| found == text);
    has("in1_label", "vddnb") || has("device/device", MI300A)
}

fn first_read(path: &Path, errors: &mut OpenErrors) -> Option<ValueFile> {
    let opened = ValueFile::open(path.to_owned()).map_err(ReadError::Io).and_then(|mut file| {
        file.number()?;
        Ok(file)
    });
    opened
        .map_err(|error| errors.unreadable(format!("{NAME}: {}: {error}; it is not used", path.display())))
        .ok()
}

/// Returns the folder of the sensors of the AMD GPU at a PCI address.
pub(crate) fn amd_chip(root: &Path, pci: &str) -> Option<PathBuf> {
    let mut chips = entries(&root.join("sys/class/hwmon")).into_iter().map(|(_, chip)| chip);
    chips.find(|chip| {
        text_of(&chip.join("name")).is_some_and(|name| name == "amdgpu")
            && pci_of(chip).is_some_and(|address| address == pci)
    })
}

/// Returns the PCI address of a chip's device, from the name of the folder to which `device` links.
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
            Some(Sensor::Power(..)) => PERIOD_MIN,
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
                let raw = file.number()?; // this refuses a sign, which some drivers write
                let nanojoules = integral.add(Instant::now(), raw, INTERVAL_MAX);
                Ok(Reading { nanojoules, raw, counter_timestamp_ns: None })
            }
        }
    }

    fn resume(&mut self, device: usize, last: LastReading) {
        if let Some(Sensor::Power(_, integral, _)) = self.sensors.get_mut(device) {
            *integral = Integral::resume(last, Instant::now());
        }
    }

    fn gauges(&self, device: usize) -> &[Gauge] {
        match self.sensors.get(device) {
            Some(Sensor::Power(_, _, gauge)) => std::slice::from_ref(gauge),
            _ => &[],
        }
    }

    /// Returns the power that was read for the energy, because reading it again would cost as much.
    fn gauge(&mut self, device: usize, gauge: Gauge) -> Option<f64> {
        let Some(Sensor::Power(_, integral, own)) = self.sensors.get(device) else { return None };
        let (_, microwatts) =
            integral.last().filter(|(at, _)| *own == gauge && at.elapsed() <= INTERVAL_MAX)?;
        gauge.possible(microwatts as f64 * 1e-6)
    }
}
