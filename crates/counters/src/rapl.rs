//! CPU packages, their cores and memory: the running average power limit's counters (RAPL) of Intel and AMD, as the kernel
//! shows them in `/sys/class/powercap` (Documentation/power/powercap/powercap.rst).
//!
//! `intel-rapl:0` is a package (or the platform, `psys`), `intel-rapl:0:1` a part of it: core and uncore are in the package's
//! figure, dram is not. `intel-rapl-mmio` shows the same packages in another way and is ignored.
//!
//! AMD has no counter of all cores of a package. What the kernel shows as `core` there is the counter of a single core, and is
//! named accordingly.
//!
//! If only root may open these files, a helper that the administrator has set up passes them (`crates/counter-helper`). If no
//! package can be read there, msr-safe's registers are used (`msr.rs`).
//!
//! A counter has 32 bits, in units of 61 uJ on a server, so it wraps within minutes to hours, at `max_energy_range_uj`. Readings
//! are passed on unchanged. Whether a decrease is a wrap, a reset or a misreading is not decided here.
//!
//! The gauges of a package are its power limit, and what its CPUs show (`cpu_gauges.rs`).

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use ampere_counter_helper::{NoAnswer, ZONE_PREFIX};

use crate::cpu_gauges::CpuGauges;
use crate::file::{ValueFile, entries, text_of};
use crate::msr::{self, Register};
use crate::{Device, Gauge, Kind, OpenErrors, Quality, ReadError, Reading, Settings, Source};

pub(crate) const NAME: &str = "rapl";

/// The name for the counter that AMD shows as `core`.
const ONE_CORE: &str = "one-core";
/// The maximum number of zones, which no node exceeds.
const ZONES_MAX: u32 = 1024;
/// The range of AMD's counters: 32 bits of 2^-16 J. Intel's packages have other ranges.
const AMD_RANGE_UJ: u64 = 65_532_610_987;

#[derive(Default)]
pub(crate) struct Rapl {
    devices: Vec<Device>,
    is_amd: bool,
    counters: Vec<Counter>,
    /// For each device, its gauges.
    gauges: Vec<PackageGauges>,
}

/// The gauges of a package; those of a part of it are empty.
#[derive(Default)]
struct PackageGauges {
    known: Vec<Gauge>,
    cpus: CpuGauges,
    /// The limit on the mean power over about a second, in microwatts. AMD's packages show none.
    power_limit: Option<ValueFile>,
}

impl PackageGauges {
    /// Opens the gauges of a zone such as `package-0` or `package-0-die-1`.
    fn open(root: &Path, zone: &Path, name: &str) -> PackageGauges {
        let package = name.strip_prefix("package-").and_then(|rest| rest.split('-').next()?.parse().ok());
        let Some(package) = package else { return PackageGauges::default() };
        let cpus = CpuGauges::open(root, Some(package));
        let is_long_term = text_of(&zone.join("constraint_0_name")).is_some_and(|name| name == "long_term");
        let is_enabled = text_of(&zone.join("enabled")).is_none_or(|enabled| enabled != "0");
        let power_limit = (is_long_term && is_enabled)
            .then(|| ValueFile::open(zone.join("constraint_0_power_limit_uw")).ok())
            .flatten();
        let mut known = cpus.known().to_vec();
        known.extend(power_limit.is_some().then_some(Gauge::PowerLimit));
        PackageGauges { known, cpus, power_limit }
    }
}

enum Counter {
    /// The file `energy_uj`.
    File(ValueFile),
    /// A register that msr-safe shows.
    Register(Register),
}

/// The files that the node's helper has opened for this process. It is asked when the first of them is needed.
struct Helped {
    root: PathBuf,
    answer: Option<Result<BTreeMap<String, File>, NoAnswer>>,
}

impl Helped {
    fn file(&mut self, zone: &str) -> Option<File> {
        let answer = self.answer.get_or_insert_with(|| ampere_counter_helper::request(&self.root));
        answer.as_mut().ok()?.remove(zone)
    }

    /// Returns the reason why the node's helper has passed no files; empty if the node has none.
    fn why_not(&self) -> String {
        match &self.answer {
            None | Some(Ok(_) | Err(NoAnswer::Absent)) => String::new(),
            Some(Err(why)) => format!(", and the helper of the node passes no counters: {why}"),
        }
    }
}

/// The reason why a domain cannot be used.
enum Unusable {
    /// Only root may read this file.
    Denied(PathBuf),
    /// The text of the note about it.
    LeftOut(String),
}

/// Opens all domains that may be read. Returns `None`, with notes, if there is none.
pub(crate) fn open(settings: &Settings, errors: &mut OpenErrors) -> Option<Rapl> {
    let folder = settings.sys_root.join("sys/class/powercap");
    let mut found = Rapl { is_amd: is_amd(&settings.sys_root, &folder), ..Rapl::default() };
    let mut helped = Helped { root: settings.sys_root.clone(), answer: None };
    let mut denied = None;
    let mut has_zones = false;
    let mut lacks_joules = false;
    for (entry, path) in entries(&folder) {
        let Some(zone) = entry.strip_prefix(ZONE_PREFIX) else { continue };
        has_zones = true;
        match found.add(&folder, zone, &path, &mut helped, errors) {
            Ok(name) => {
                found.gauges.push(PackageGauges::open(&settings.sys_root, &path, &name));
                continue;
            }
            Err(Unusable::Denied(file)) => denied = denied.or(Some(file)),
            Err(Unusable::LeftOut(why)) => errors.notes.push(format!("{NAME}: {why}; it is not used")),
        }
        lacks_joules |= !is_in_others(&folder, zone);
    }
    if !found.devices.iter().any(|device| device.kind == Kind::Cpu) && found.add_registers(&settings.sys_root)
    {
        (denied, lacks_joules) = (None, false);
    }
    if let Some(path) = denied {
        errors.notes.push(format!(
            "{NAME}: {} may not be read: since 2020 (CVE-2020-8694) the kernel lets only root read it{}. An administrator can allow \
             it: systemctl enable --now ampere-counters.socket (for the group energy), chmod a+r \
             /sys/class/powercap/intel-rapl*/energy_uj, a udev rule that does so at boot, or setcap cap_dac_read_search+ep for \
             ampere-collector",
            path.display(),
            helped.why_not()
        ));
    }
    if !has_zones && found.devices.is_empty() {
        errors.absent(format!("{NAME}: no intel-rapl in {}", folder.display()));
    }
    let is_usable = !found.devices.is_empty();
    errors.has_unreadable |= is_usable && lacks_joules;
    is_usable.then_some(found)
}

impl Rapl {
    /// Adds the domain of a zone, whose directory is `path`. Returns the zone's own name.
    fn add(
        &mut self,
        folder: &Path,
        zone: &str,
        path: &Path,
        helped: &mut Helped,
        errors: &mut OpenErrors,
    ) -> Result<String, Unusable> {
        let shown = path.display();
        let Some((name, kind)) = name_of(folder, zone, self.is_amd) else {
            return Err(Unusable::LeftOut(format!("{shown} has no name")));
        };
        if name.starts_with("psys-") {
            let why = "the platform's counter of a further package, and it is unknown what it counts in addition to psys";
            return Err(Unusable::LeftOut(format!("{name}: {shown} is {why}")));
        }
        let counter = path.join("energy_uj");
        let mut through = "";
        let mut file = match ValueFile::open(counter.clone()) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                through = " through the helper of the node";
                let file = helped.file(&format!("{ZONE_PREFIX}{zone}"));
                ValueFile::opened(counter.clone(), file.ok_or(Unusable::Denied(counter))?)
            }
            Err(error) => return Err(Unusable::LeftOut(format!("{name}: {shown}/energy_uj: {error}"))),
        };
        if let Err(error) = file.number() {
            return Err(Unusable::LeftOut(format!("{name}: {}: {error}", file.path().display())));
        }
        let range = text_of(&path.join("max_energy_range_uj")).and_then(|text| text.parse::<u64>().ok());
        let range = range.filter(|range| *range > 0);
        if range.is_none() {
            errors.notes.push(format!(
                "{NAME}: {name}: no range in {shown}/max_energy_range_uj: when the counter starts again from 0, it counts as \
                 reset"
            ));
        }
        if self.devices.iter().any(|device| device.name == name) {
            return Err(Unusable::LeftOut(format!("{shown} is a second {name}")));
        }
        let is_one_core = name.ends_with(ONE_CORE);
        self.devices.push(Device {
            metric: format!("{NAME}:::energy:{name}"),
            name,
            source: NAME,
            quality: Quality::Measured,
            kind,
            contains: Vec::new(),
            resolution_joules: 1e-6,
            description: match is_one_core {
                true => format!(
                    "RAPL{through}, one core of the package (AMD does not count all of them), {shown}"
                ),
                false => format!("RAPL{through}, {shown}"),
            },
            pci: None,
            wraps_at_nanojoules: range.map(|range| range.saturating_mul(1000)),
            baseline_microwatts: None,
        });
        self.counters.push(Counter::File(file));
        Ok(if zone.contains(':') { String::new() } else { own_name(folder, zone).unwrap_or_default() })
    }
}

impl Rapl {
    /// Adds the packages that msr-safe shows, and returns whether there are any.
    fn add_registers(&mut self, root: &Path) -> bool {
        let registers = msr::open(root, self.is_amd);
        let is_any = !registers.is_empty();
        for (package, register) in registers {
            let name = format!("package-{package}");
            self.gauges.push(PackageGauges::open(root, Path::new(""), &name));
            self.devices.push(Device {
                metric: format!("{NAME}:::energy:{name}"),
                name,
                source: NAME,
                quality: Quality::Measured,
                kind: Kind::Cpu,
                contains: Vec::new(),
                resolution_joules: register.resolution_joules,
                description: format!("RAPL through msr-safe, {}", register.path.display()),
                pci: None,
                wraps_at_nanojoules: Some(register.wraps_at_nanojoules()),
                baseline_microwatts: None,
            });
            self.counters.push(Counter::Register(register));
        }
        is_any
    }
}

/// Whether the counters are AMD's. The processor's vendor shows that, or the packages' range if the kernel does not name the
/// vendor.
fn is_amd(root: &Path, folder: &Path) -> bool {
    match std::fs::read_to_string(root.join("proc/cpuinfo")) {
        Ok(text) => text
            .lines()
            .find(|line| line.starts_with("vendor_id"))
            .is_some_and(|line| line.ends_with("AuthenticAMD") || line.ends_with("HygonGenuine")),
        Err(_) => text_of(&folder.join("intel-rapl:0/max_energy_range_uj"))
            .is_some_and(|range| range.parse() == Ok(AMD_RANGE_UJ)),
    }
}

/// Whether a zone's joules are in those of other zones.
fn is_in_others(folder: &Path, zone: &str) -> bool {
    own_name(folder, zone)
        .is_some_and(|name| zone.contains(':') && name != "dram" || name.starts_with("psys"))
}

/// Returns a name such as `package-0`, `package-0-core` or `psys` for a zone such as `0` or `0:1`. If an earlier zone has the
/// name of zone `2`, as when two drivers show a package or a kernel does not number its dies, the name is `zone-2-package-0`.
fn name_of(folder: &Path, zone: &str, is_amd: bool) -> Option<(String, Kind)> {
    let name = own_name(folder, zone)?;
    let kind = match name.as_str() {
        "dram" => Kind::Memory,
        "psys" => Kind::Node,
        _ => Kind::Cpu,
    };
    let name = if is_amd && name == "core" { ONE_CORE.to_owned() } else { name };
    let root = zone.split(':').next()?;
    let name = match zone.rsplit_once(':') {
        Some((parent, _)) => format!("{}-{name}", own_name(folder, parent)?),
        None => name,
    };
    Some((if is_second(folder, root) { format!("zone-{root}-{name}") } else { name }, kind))
}

fn own_name(folder: &Path, zone: &str) -> Option<String> {
    text_of(&folder.join(format!("{ZONE_PREFIX}{zone}")).join("name")).map(clean)
}

/// Whether an earlier zone has this zone's name.
fn is_second(folder: &Path, zone: &str) -> bool {
    let name = own_name(folder, zone);
    let mut earlier = zone.parse::<u32>().map_or(0..0, |number| 0..number.min(ZONES_MAX));
    name.is_some() && earlier.any(|other| own_name(folder, &other.to_string()) == name)
}

/// Removes blanks and separators from a name that becomes part of a metric's name.
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
        let (raw, nanojoules) = match self.counters.get_mut(device).ok_or(ReadError::NoSuchDevice)? {
            Counter::File(file) => file.number().map(|raw| (raw, raw.wrapping_mul(1000)))?,
            Counter::Register(register) => register.read()?,
        };
        Ok(Reading { nanojoules, raw, counter_timestamp_ns: None })
    }

    fn gauges(&self, device: usize) -> &[Gauge] {
        self.gauges.get(device).map_or(&[], |gauges| &gauges.known)
    }

    fn gauge(&mut self, device: usize, gauge: Gauge) -> Option<f64> {
        let gauges = self.gauges.get_mut(device)?;
        let value = match gauge {
            Gauge::PowerLimit => gauges.power_limit.as_mut()?.number().ok().map(|limit| limit as f64 * 1e-6),
            _ => gauges.cpus.read(gauge),
        };
        gauge.possible(value?)
    }
}
