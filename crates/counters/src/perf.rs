//! CPU packages and memory through the kernel's performance events: the PMU `power`, which `perf stat -e power/energy-pkg/` reads
//! (`/sys/bus/event_source/devices/power`). They are RAPL's counters, for users who may not read the files in
//! `/sys/class/powercap`: since Linux 5.8 the capability CAP_PERFMON allows it, or `kernel.perf_event_paranoid` of 0 or less.
//!
//! The kernel extends the hardware's 32 bits to 64, in units of 2^-32 J, and counts from the moment at which the event is opened.
//! So the counter does not wrap. If a collector takes over from a killed one, its counter starts again, as after a reset.
#![allow(unsafe_code)]

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::FromRawFd;
use std::path::Path;

use crate::energy::Resolution;
use crate::file::text_of;
use crate::integral::FIRST_NANOJOULES;
use crate::{Device, Kind, OpenErrors, Quality, ReadError, Reading, Settings, Source};

pub(crate) const NAME: &str = "perf";

/// The kernel's events, the suffixes of their devices' names, and the kinds. The platform's event is opened once, and not for
/// each package.
const EVENTS: [(&str, &str, Kind); 5] = [
    (PACKAGE, "", Kind::Cpu),
    ("energy-cores", "-core", Kind::Cpu),
    ("energy-gpu", "-uncore", Kind::Cpu),
    ("energy-ram", "-dram", Kind::Memory),
    (PLATFORM, "", Kind::Node),
];
const PACKAGE: &str = "energy-pkg";
const PLATFORM: &str = "energy-psys";
/// The size of the first published version of `struct perf_event_attr`, whose later fields are not needed.
const ATTR_BYTES: u64 = 64;
/// The descriptor is closed in programs that this process executes (linux/perf_event.h).
const PERF_FLAG_FD_CLOEXEC: libc::c_ulong = 8;

pub(crate) struct Perf {
    devices: Vec<Device>,
    counters: Vec<(File, Resolution)>,
}

/// Opens all events that the user may open. Returns `None`, with notes, if there is none.
pub(crate) fn open(settings: &Settings, errors: &mut OpenErrors) -> Option<Perf> {
    let folder = settings.sys_root.join("sys/bus/event_source/devices/power");
    let number = |file: &str| text_of(&folder.join(file))?.parse::<u32>().ok();
    let Some(pmu) = number("type") else {
        errors.absent(format!("{NAME}: no {}", folder.display()));
        return None;
    };
    // Since Sapphire Rapids, the kernel shows the platform's event without checking that it counts.
    if event_of(&folder, PACKAGE).is_none() {
        errors.absent(format!("{NAME}: {} has no {PACKAGE}, as in many virtual machines", folder.display()));
        return None;
    }
    let mut found = Perf { devices: Vec::new(), counters: Vec::new() };
    let packages = packages(&settings.sys_root, &text_of(&folder.join("cpumask")).unwrap_or_default());
    let mut denied = None;
    for (event, suffix, kind) in EVENTS {
        let Some((config, resolution)) = event_of(&folder, event) else { continue };
        for (cpu, package) in packages.iter().take(if event == PLATFORM { 1 } else { usize::MAX }) {
            let name = if event == PLATFORM { "psys".to_owned() } else { format!("{package}{suffix}") };
            match open_event(pmu, config, *cpu) {
                Ok(file) => {
                    found.devices.push(device(name, kind, resolution.1, &folder.join("events").join(event)));
                    found.counters.push((file, resolution.0));
                }
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => denied = Some(error),
                Err(error) => errors.unreadable(format!("{NAME}: {name}: {error}; it is not used")),
            }
        }
    }
    if denied.is_some() {
        let level = text_of(&settings.sys_root.join("proc/sys/kernel/perf_event_paranoid"));
        errors.notes.push(format!(
            "{NAME}: the events of {} may not be opened: kernel.perf_event_paranoid is {}. An administrator can allow it: setcap \
             cap_perfmon+ep for ampere-collector, or sysctl kernel.perf_event_paranoid=0",
            folder.display(),
            level.as_deref().unwrap_or("not known"),
        ));
    }
    (!found.devices.is_empty()).then_some(found)
}

fn device(name: String, kind: Kind, resolution_joules: f64, path: &Path) -> Device {
    Device {
        metric: format!("{NAME}:::energy:{name}"),
        name,
        source: NAME,
        quality: Quality::Measured,
        kind,
        contains: Vec::new(),
        resolution_joules,
        description: format!("RAPL through perf, {}", path.display()),
        pci: None,
        wraps_at_nanojoules: None,
        baseline_microwatts: None,
    }
}

/// Returns the number of an event, and its resolution in two forms, the second in joules. Returns `None` if the kernel does not
/// have the event, or counts it in another unit.
fn event_of(folder: &Path, event: &str) -> Option<(u64, (Resolution, f64))> {
    let path = folder.join("events").join(event);
    let code = text_of(&path)?;
    let config = u64::from_str_radix(code.strip_prefix("event=0x")?, 16).ok()?;
    text_of(&path.with_extension("unit")).filter(|unit| unit == "Joules")?;
    let scale: f64 = text_of(&path.with_extension("scale"))?.parse().ok()?;
    Some((config, (Resolution::from_microjoules(scale * 1e6)?, scale)))
}

/// Returns the CPUs on which events are opened, one for each package or die, with the names of the packages. `mask` lists
/// these CPUs, for example `0,24`, or `0-1` if the first two CPUs are in different packages.
fn packages(root: &Path, mask: &str) -> Vec<(u32, String)> {
    let range = |range: &str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some(first.trim().parse::<u32>().ok()?..=last.trim().parse::<u32>().ok()?)
    };
    let cpus = mask.split(',').filter_map(range).flatten();
    let topology = |cpu: u32, file: &str| {
        let path = root.join(format!("sys/devices/system/cpu/cpu{cpu}/topology")).join(file);
        text_of(&path)?.parse::<u32>().ok()
    };
    let cpus: Vec<(u32, u32)> = cpus
        .enumerate()
        .map(|(place, cpu)| (cpu, topology(cpu, "physical_package_id").unwrap_or(place as u32)))
        .collect();
    let mut dies: BTreeMap<u32, u32> = BTreeMap::new();
    cpus.iter().for_each(|(_, package)| *dies.entry(*package).or_default() += 1);
    let name = |(cpu, package): (u32, u32)| {
        let die = topology(cpu, "die_id").filter(|_| dies[&package] > 1);
        let end = die.map_or_else(String::new, |die| format!("-die-{die}"));
        (cpu, format!("package-{package}{end}"))
    };
    cpus.into_iter().map(name).collect()
}

/// Opens an event on a CPU. The event counts from then on.
fn open_event(pmu: u32, config: u64, cpu: u32) -> io::Result<File> {
    // type and size, config; the rest is 0.
    let attr: [u64; ATTR_BYTES as usize / 8] = [u64::from(pmu) | ATTR_BYTES << 32, config, 0, 0, 0, 0, 0, 0];
    let (every_process, no_group) = (-1, -1);
    // SAFETY: the kernel reads ATTR_BYTES of `attr`, which lives until the call returns; the other arguments are numbers.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            attr.as_ptr(),
            every_process as libc::pid_t,
            cpu as libc::c_int,
            no_group as libc::c_int,
            PERF_FLAG_FD_CLOEXEC,
        )
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call returned this descriptor, which nothing else owns.
    Ok(unsafe { File::from_raw_fd(fd as i32) })
}

impl Source for Perf {
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
        let (file, resolution) = self.counters.get_mut(device).ok_or(ReadError::NoSuchDevice)?;
        let mut bytes = [0; 8];
        file.read_exact(&mut bytes).map_err(ReadError::Io)?;
        let raw = u64::from_ne_bytes(bytes);
        let nanojoules = resolution.nanojoules(raw).wrapping_add(FIRST_NANOJOULES);
        Ok(Reading { nanojoules, raw, counter_timestamp_ns: None })
    }
}
