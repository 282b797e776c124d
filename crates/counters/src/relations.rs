//! Determines which devices' joules are also in another device's, and makes names unique on the node. So no report counts a
//! joule twice: devices that are not contained in another may be added up.

use ampere_model::accelerator_of_gpu;
use std::collections::BTreeSet;
use std::path::Path;

use crate::file::text_of;
use crate::{Device, Kind, Settings, Source, cray_pm, custom, estimate, hwmon, nvml, perf, rapl};
use ampere_settings::CustomSource;

/// Makes names unique and fills in [`Device::contains`]. Returns a line for each pair of devices for which it is unknown
/// whether they count the same joules.
pub(crate) fn relate(sources: &mut [Box<dyn Source>], settings: &Settings) -> Vec<String> {
    make_unique(sources);
    relate_known(sources, &settings.sys_root);
    relate_custom(sources, &settings.custom)
}

/// Fills in the relations that follow from what the sources measure. [`relate_custom`] adds those of the user's own sources.
fn relate_known(sources: &mut [Box<dyn Source>], root: &Path) {
    let all: Vec<Device> = sources.iter().flat_map(|source| source.devices().to_vec()).collect();
    let all_gpus_are_apus = all.iter().any(is_apu) && all.iter().filter(|d| is_amd_gpu(d)).all(is_apu);
    let accelerators = all.iter().filter(|d| d.source == cray_pm::NAME && d.kind == Kind::Gpu);
    let accelerators: BTreeSet<u32> = accelerators.filter_map(number).collect();
    let gpus: BTreeSet<u32> = all.iter().filter(|d| is_amd_gpu(d)).filter_map(number).collect();
    let in_apu = |part: &Device, whole: &Device| {
        all_gpus_are_apus && part.name != whole.name && apu_contains(whole, part, &all, root)
    };
    // An accelerator contains a GPU, and everything that the GPU contains.
    let in_accelerator = |part: &Device, whole: &Device| {
        let Some(accelerator) = number(whole).filter(|_| whole.source == cray_pm::NAME) else { return false };
        let is_own = |gpu: &&Device| {
            let own = number(gpu).and_then(|gpu| accelerator_of_gpu(gpu, &gpus, &accelerators));
            is_amd_gpu(gpu) && own == Some(accelerator)
        };
        let is_within = |gpu: &Device| gpu.name == part.name || in_apu(part, gpu);
        whole.kind == Kind::Gpu && all.iter().filter(is_own).any(is_within)
    };
    let within = |part: &Device, whole: &Device| {
        part.name != whole.name
            && (contains(whole, part, &all) || in_apu(part, whole) || in_accelerator(part, whole))
    };
    for whole in sources.iter_mut().flat_map(|source| source.devices_mut()) {
        let parts = all.iter().filter(|part| part.source != custom::NAME && within(part, whole));
        whole.contains = parts.map(|part| part.name.clone()).collect();
    }
}

/// Adds the relations that the settings state for the user's own sources. A meter of the whole node contains all of the user's
/// sources that do not contain it. A device contains what its parts contain.
fn relate_custom(sources: &mut [Box<dyn Source>], settings: &[CustomSource]) -> Vec<String> {
    if !sources.iter().any(|source| source.name() == custom::NAME) {
        return Vec::new();
    }
    let mut all: Vec<&mut Device> = sources.iter_mut().flat_map(|source| source.devices_mut()).collect();
    let names: Vec<String> = all.iter().map(|device| device.name.clone()).collect();
    // The sets are in the order of the devices: `inside[whole]` has the indices of the parts of `all[whole]`.
    let mut inside: Vec<BTreeSet<usize>> = all
        .iter()
        .map(|whole| {
            let own = settings.iter().find(|own| is_of(whole, own));
            let is_part = |part: &&String| {
                **part != whole.name
                    && (whole.contains.contains(part) || own.is_some_and(|own| own.contains(part)))
            };
            names.iter().enumerate().filter(|(_, part)| is_part(part)).map(|(number, _)| number).collect()
        })
        .collect();
    close(&mut inside);
    for whole in 0..all.len() {
        let is_inlet =
            all[whole].kind == Kind::Node && [cray_pm::NAME, hwmon::NAME].contains(&all[whole].source);
        let is_part_of_chip = hwmon::grace_part(&all[whole].name).is_some();
        for part in (0..all.len()).filter(|_| is_inlet && !is_part_of_chip) {
            if all[part].source == custom::NAME && !inside[part].contains(&whole) {
                inside[whole].insert(part);
                close(&mut inside);
            }
        }
    }
    let doubts = relate_overlapping(&all, &mut inside);
    for (device, parts) in all.iter_mut().zip(inside) {
        device.contains = parts.into_iter().map(|part| names[part].clone()).collect();
    }
    doubts
}

/// If a user's own source has parts in common with another device, one of the two contains the other. Returns a line for each
/// pair for which it is unknown which of the two that is.
fn relate_overlapping(all: &[&mut Device], inside: &mut [BTreeSet<usize>]) -> Vec<String> {
    let is_custom = |at: usize| all[at].source == custom::NAME;
    let is_platform =
        |at: usize| [rapl::NAME, perf::NAME].contains(&all[at].source) && all[at].kind == Kind::Node;
    let pairs = (0..all.len()).flat_map(|own| (0..all.len()).map(move |other| (own, other)));
    let mut doubts = Vec::new();
    for (own, other) in pairs.filter(|(own, other)| is_custom(*own) && (!is_custom(*other) || own < other)) {
        if inside[own].contains(&other)
            || inside[other].contains(&own)
            || inside[own].is_disjoint(&inside[other])
        {
            continue;
        }
        let related = match () {
            () if is_platform(other) => Some((own, other)),
            () if inside[own] == inside[other] => None,
            () if inside[own].is_superset(&inside[other]) => Some((own, other)),
            () if inside[other].is_superset(&inside[own]) => Some((other, own)),
            () => None,
        };
        let Some((whole, part)) = related else {
            let [own, other] = [own, other].map(|at| &all[at].name);
            doubts.push(format!(
                "{own} and {other} have parts in common, and their joules are added: if one of them contains the other, its `contains` \
                 has to name it"
            ));
            continue;
        };
        inside[whole].insert(part);
        close(inside);
    }
    doubts
}

/// Whether a device is that of a user's own source, whose name may have got a suffix.
fn is_of(device: &Device, own: &CustomSource) -> bool {
    let suffixed = format!("{}-{}", own.name, custom::NAME);
    device.source == custom::NAME && [&own.name, &suffixed].contains(&&device.name)
}

/// Adds the parts of parts, until nothing is missing.
fn close(inside: &mut [BTreeSet<usize>]) {
    loop {
        let before: usize = inside.iter().map(BTreeSet::len).sum();
        for whole in 0..inside.len() {
            let further: Vec<usize> = inside[whole].iter().flat_map(|part| inside[*part].clone()).collect();
            inside[whole].extend(further.into_iter().filter(|part| *part != whole));
        }
        if inside.iter().map(BTreeSet::len).sum::<usize>() == before {
            return;
        }
    }
}

/// Returns the number in `GPU-3` or `accel3`.
fn number(device: &Device) -> Option<u32> {
    device.name.strip_prefix("GPU-").or(device.name.strip_prefix("accel"))?.parse().ok()
}

/// If two devices have the same name, the later one gets its source as a suffix: `GPU-0-nvml`. Its metric then contains this
/// name, so that the device has the same name when it is read from a trace.
fn make_unique(sources: &mut [Box<dyn Source>]) {
    let mut taken: Vec<String> = Vec::new();
    for device in sources.iter_mut().flat_map(|source| source.devices_mut()) {
        if taken.contains(&device.name) {
            device.name = format!("{}-{}", device.name, device.source);
            device.metric = format!("{}:::energy:{}", device.source, device.name);
        }
        taken.push(device.name.clone());
    }
}

/// Whether the joules of `part` are in those of `whole`, according to what their sources measure.
fn contains(whole: &Device, part: &Device, all: &[Device]) -> bool {
    match (whole.source, whole.kind) {
        // These meters are at the power inlet, so they contain everything. If there are two of them, the blade's own contains the
        // other.
        (cray_pm::NAME, Kind::Node) => true,
        (hwmon::NAME, _) if hwmon::grace_part(&whole.name).is_some() => superchip_contains(whole, part, all),
        (nvml::NAME, _) => superchip_contains(whole, part, all),
        (hwmon::NAME, Kind::Node) => !(part.source == cray_pm::NAME && part.kind == Kind::Node),
        // `accel0` is in `accel`, and `cpu0` in `cpu`. The CPU's regulators supply the parts that RAPL counts.
        (cray_pm::NAME, kind) if part.source == cray_pm::NAME => {
            part.kind == kind && is_numbered(part, whole)
        }
        (cray_pm::NAME, Kind::Cpu) => {
            let number = whole.name.strip_prefix("cpu");
            let package =
                number.filter(|number| !number.is_empty()).map(|number| format!("package-{number}"));
            let is_own = |package: &String| is_package_or_part(part, package);
            part.kind == Kind::Cpu && (whole.name == "cpu" || package.as_ref().is_some_and(is_own))
        }
        (cray_pm::NAME, Kind::Memory) => part.kind == Kind::Memory,
        // The platform contains packages and memory; a graphics card has its own supply.
        (rapl::NAME | perf::NAME, Kind::Node) => {
            let is_of_cray = part.source == cray_pm::NAME && matches!(part.kind, Kind::Cpu | Kind::Memory);
            part.source == whole.source && part.kind != Kind::Node || is_of_cray
        }
        // Core and uncore are parts of the package; dram is not.
        (rapl::NAME | perf::NAME, Kind::Cpu) => {
            part.source == whole.source
                && part.kind == Kind::Cpu
                && part.name.strip_prefix(whole.name.as_str()).is_some_and(|rest| rest.starts_with('-'))
        }
        // The estimate's watts are those of a node without GPUs.
        (estimate::NAME, _) => match part.kind {
            Kind::Cpu | Kind::Memory => true,
            Kind::Node => [rapl::NAME, perf::NAME].contains(&part.source),
            Kind::Gpu | Kind::Unknown => false,
        },
        _ => false,
    }
}

/// Whether a part of a Grace superchip contains another: the module contains everything, Grace its cores and its IO. A GPU may
/// count its whole module, so it is never added to Grace.
fn superchip_contains(whole: &Device, part: &Device, all: &[Device]) -> bool {
    let place = |device: &Device| match device.source {
        hwmon::NAME => hwmon::grace_part(&device.name),
        _ => Some((superchip_socket(device, all)?, hwmon::GRACE_HOPPER_GPU)),
    };
    let (Some((socket, own)), Some((of_part, inner))) = (place(whole), place(part)) else { return false };
    let is_leaf = own > hwmon::GRACE;
    socket == of_part && own < inner && !is_leaf
}

/// Returns the socket of a superchip's GPU, if there are meters of sockets. The GPUs are assumed to be in the order of the
/// sockets, and to be equally many in each: one in a GH200, two in a GB200.
fn superchip_socket(gpu: &Device, all: &[Device]) -> Option<u32> {
    let meters = all.iter().filter(|device| device.source == hwmon::NAME);
    let sockets: BTreeSet<u32> =
        meters.filter_map(|device| Some(hwmon::grace_part(&device.name)?.0)).collect();
    let gpus: Vec<&Device> = all.iter().filter(|device| is_superchip(device)).collect();
    let place = gpus.iter().position(|device| device.name == gpu.name)?;
    sockets.iter().nth(place / gpus.len().div_ceil(sockets.len().max(1))).copied()
}

fn is_superchip(gpu: &Device) -> bool {
    gpu.source == nvml::NAME
        && ["GH200", "GB200", "GB300"].iter().any(|model| gpu.description.contains(model))
}

fn is_numbered(part: &Device, whole: &Device) -> bool {
    let number = part.name.strip_prefix(whole.name.as_str());
    number.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}

fn is_amd_gpu(device: &Device) -> bool {
    // hwmon shows GPUs of Intel, too.
    let is_other_in_hwmon = device.source == hwmon::NAME && !device.name.starts_with("amdgpu");
    let is_other = [cray_pm::NAME, nvml::NAME].contains(&device.source) || is_other_in_hwmon;
    device.kind == Kind::Gpu && !is_other
}

/// Whether a GPU is an MI300A, whose counter is that of the whole socket, including the cores.
fn is_apu(device: &Device) -> bool {
    device.kind == Kind::Gpu && device.description.to_ascii_uppercase().contains("MI300A")
}

/// Whether an APU contains a package. It contains the package whose cores are on the APU's NUMA node or, if the kernel does not
/// show that, the package at the same position in the list. Every package is in an APU, so a sum is right in both cases.
fn apu_contains(whole: &Device, part: &Device, all: &[Device], root: &Path) -> bool {
    if !is_apu(whole) || ![rapl::NAME, perf::NAME].contains(&part.source) || part.kind != Kind::Cpu {
        return false;
    }
    let place = all.iter().filter(|device| is_apu(device)).position(|apu| apu.name == whole.name);
    let package = package_of(whole, root).or(place);
    package.is_some_and(|package| is_package_or_part(part, &format!("package-{package}")))
}

fn is_package_or_part(device: &Device, package: &str) -> bool {
    device.name.strip_prefix(package).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
}

fn package_of(device: &Device, root: &Path) -> Option<usize> {
    let pci = device.pci.as_ref()?;
    let number = |path: std::path::PathBuf| text_of(&path)?.parse::<usize>().ok();
    let node = number(root.join(format!("sys/bus/pci/devices/{pci}/numa_node")))?;
    let cpus = text_of(&root.join(format!("sys/devices/system/node/node{node}/cpulist")))?;
    let first: String = cpus.chars().take_while(char::is_ascii_digit).collect();
    number(root.join(format!("sys/devices/system/cpu/cpu{first}/topology/physical_package_id")))
}
