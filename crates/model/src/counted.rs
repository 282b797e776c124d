//! Finds, from a metric's name, the part of the node that its counter counts: a package, its cores, a GPU, or the whole node.
//! This shows whether one counter's joules are contained in another's.

use crate::{cray_device, gpu_of_score_p_plugin};

/// A part of a node, from the largest to the smallest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// The whole node with everything in it.
    Node,
    /// One of the node's power supplies. Together they deliver the energy of everything else.
    Supply,
    /// The node's packages and memory.
    Platform,
    /// A module of NVIDIA Grace Hopper: Grace, its memory, and the GPU. An APU of AMD counts as a module, too.
    Module,
    /// NVIDIA Grace, with its cores, its IO and its memory, or another processor with its board.
    Grace,
    /// A CPU package, or all of them.
    Package,
    /// All cores of a package, or one of them.
    Cores,
    /// The parts of a package that are not cores, such as graphics.
    Uncore,
    /// The memory, which is outside the packages.
    Memory,
    /// A subzone of powercap, whose name is not known: cores of the package, or memory outside it.
    Subzone,
    /// A GPU together with its board.
    GpuBoard,
    /// A GPU without its board.
    Gpu,
    /// A part of a GPU.
    GpuPart,
}

impl Level {
    /// Returns the kind of device, as summaries name it.
    pub fn kind(self) -> &'static str {
        match self {
            Level::Node | Level::Supply | Level::Platform | Level::Module => "node",
            Level::Grace | Level::Package | Level::Cores | Level::Uncore | Level::Subzone => "cpu",
            Level::Memory => "memory",
            Level::GpuBoard | Level::Gpu | Level::GpuPart => "gpu",
        }
    }
}

/// The part of a node that a counter counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Counted {
    /// The level; `None` if it is not known.
    pub level: Option<Level>,
    /// The package that the part is or belongs to.
    pub package: Option<u32>,
    /// The number of the GPU or of the core.
    pub number: Option<u32>,
}

/// Words for what a metric measures. Some tools join them with the name of the part, as in `NodePower` and `pkgenergy`.
const QUANTITIES: [&str; 3] = ["power", "energy", "pwr"];

/// Returns a name's runs of letters, each with the number after it.
fn runs(name: &str) -> Vec<(&str, Option<u32>)> {
    let mut runs: Vec<(&str, Option<u32>)> = Vec::new();
    let mut rest = name;
    while let Some(first) = rest.chars().next() {
        let is_same = |c: char| match first {
            _ if first.is_ascii_digit() => c.is_ascii_digit(),
            _ => c.is_alphabetic() == first.is_alphabetic() && !c.is_ascii_digit(),
        };
        let (run, after) = rest.split_at(rest.find(|c| !is_same(c)).unwrap_or(rest.len()));
        rest = after;
        if first.is_alphabetic() {
            runs.push((run, None));
        } else if first.is_ascii_digit()
            && let Some((_, number)) = runs.last_mut()
        {
            *number = number.or(run.parse().ok());
        }
    }
    runs
}

/// Returns a name's words in lower case, each with the number after it. `PACKAGE0`, `package 0` and `package-0` have the same
/// words, and so have `PackageEnergy0` and `energy package 0`.
fn words(name: &str) -> Vec<(String, Option<u32>)> {
    let mut words = Vec::new();
    for (run, number) in runs(name) {
        let mut own = Vec::new();
        for word in humps(run).iter().map(|word| word.to_lowercase()) {
            let of = |quantity: &&str| {
                let part = word.strip_prefix(*quantity).or_else(|| word.strip_suffix(*quantity));
                // A single letter is a unit or a plural. `powercap` is the name of a library.
                part.filter(|part| part.len() > 1 && word != "powercap")
                    .map(|part| [(*quantity).to_owned(), part.to_owned()])
            };
            match QUANTITIES.iter().find_map(of) {
                Some(both) => own.extend(both),
                None => own.push(word),
            }
        }
        // A number after both words is that of the part.
        own.sort_by_key(|word| !QUANTITIES.contains(&word.as_str()));
        let last = own.pop().map(|word| (word, number));
        words.extend(own.into_iter().map(|word| (word, None)).chain(last));
    }
    words
}

/// Splits letters before each upper-case one that follows at least two lower-case ones. `iGPU`, `uJ` and `Esocket` remain whole.
fn humps(letters: &str) -> Vec<&str> {
    let (mut humps, mut begin, mut lower) = (Vec::new(), 0, 0);
    for (at, c) in letters.char_indices() {
        if c.is_uppercase() && lower > 1 {
            humps.push(&letters[begin..at]);
            begin = at;
        }
        lower = if c.is_lowercase() { lower + 1 } else { 0 };
    }
    humps.push(&letters[begin..]);
    humps
}

/// The words before the number of the socket in the texts of NVIDIA Grace's power meters, such as `CPU Power Socket 0`.
pub const GRACE_SOCKET: &str = " Power Socket ";

/// Libraries that measure processors: their `gpu` is a part of the package. PAPI's `amd_smi` names processors by their socket, as
/// in `energy_socket=0`, and GPUs by their device.
const PROCESSOR_LIBRARIES: [&str; 5] = ["rapl", "x86_energy", "power/energy-", "powercap", "socket="];

/// Words in names of metrics of GPUs.
const GPUS: [&str; 18] = [
    "gpu",
    "gpus",
    "rocm",
    "nvml",
    "amdsmi",
    "smi",
    "accel",
    "acc",
    "accelerator",
    "accelerators",
    "cuda",
    "hip",
    "dcgm",
    "amdgpu",
    // Level Zero's names.
    "xpu",
    "zes",
    "sysman",
    "oneapi",
];
/// Linux' drivers of GPUs.
const GPU_DRIVERS: [&str; 4] = ["amdgpu", "nouveau", "xe", "i915"];
/// Words in names of metrics of CPU packages.
const PACKAGES: [&str; 10] =
    ["package", "packages", "pkg", "pckg", "socket", "esocket", "cpu", "cpus", "zone", "processor"];
/// Words in names of metrics of cores, or of groups of cores.
const CORES: [&str; 5] = ["core", "cores", "ecore", "ccd", "ccx"];
/// Words in names of parts of a GPU: the tiles of a card are subdevices in Level Zero.
const GPU_PARTS: [&str; 5] = ["mig", "tile", "subdevice", "core", "cores"];
/// Words in names of metrics of whole nodes.
const NODES: [&str; 10] =
    ["node", "blade", "system", "server", "chassis", "host", "machine", "board", "wall", "mains"];
/// Words in names of metrics of everything that a library measures.
const TOTALS: [&str; 3] = ["total", "overall", "combined"];
/// The name of a GPU's counter in NVML.
const TOTAL_OF_NVML: &str = "total_energy_consumption";

impl Counted {
    /// Finds the part of the node that a metric counts, from the metric's name.
    pub fn by_name(metric: &str) -> Counted {
        if let Some((device, _)) = cray_device(metric) {
            return Counted::by_words(&words(device), false);
        }
        if let Some(gpu) = gpu_of_score_p_plugin(metric) {
            return Counted { level: Some(Level::Gpu), package: None, number: Some(gpu) };
        }
        if let Some(counted) = Counted::by_chip(metric).or_else(|| Counted::by_zone(metric)) {
            return counted;
        }
        let lower = metric.to_lowercase();
        // `total` in NVML's name of a GPU's counter, and the folder of the kernel's files, do not mean the node.
        let in_sys = metric.trim_start_matches('/').strip_prefix("sys/").filter(|path| path.contains('/'));
        let words = words(&in_sys.unwrap_or(metric).replace(TOTAL_OF_NVML, ""));
        let counted = Counted::by_words(&words, PROCESSOR_LIBRARIES.iter().any(|of| lower.contains(of)));
        // MetricQ has names such as `ariel.s0.package.power`.
        let socket = words.iter().find(|(word, _)| word == "s").and_then(|(_, number)| *number);
        let is_of_package =
            !matches!(counted.level, None | Some(Level::Gpu | Level::GpuBoard | Level::GpuPart));
        Counted { package: counted.package.or(socket.filter(|_| is_of_package)), ..counted }
    }

    /// Finds what a chip of Linux' sensors counts, by a name such as `amdgpu-pci-4300/power1 (PPT)`, as lo2s records it.
    fn by_chip(metric: &str) -> Option<Counted> {
        if metric.starts_with("power_meter-acpi-") {
            // The meters of NVIDIA Grace have labels that state the part.
            let label = metric.split_once(" (").map(|(_, label)| label);
            let of_grace = label.filter(|label| label.contains(GRACE_SOCKET));
            let node = Counted { level: Some(Level::Node), ..Counted::default() };
            return Some(of_grace.map_or(node, |label| Counted::by_words(&words(label), false)));
        }
        let (_, address) = metric.split_once("-pci-").filter(|(chip, _)| GPU_DRIVERS.contains(chip))?;
        let level = if address.contains("(card)") { Level::GpuBoard } else { Level::Gpu };
        // The address distinguishes two cards.
        let number = u32::from_str_radix(address.split('/').next()?, 16).ok();
        Some(Counted { level: Some(level), package: None, number })
    }

    /// Finds what a zone of the kernel's powercap counts: `intel-rapl:0` is a package, and `intel-rapl:0:1` a subzone of it, unless a
    /// name after it shows more.
    fn by_zone(metric: &str) -> Option<Counted> {
        let (_, zone) = metric.rsplit_once("intel-rapl")?;
        let zone = zone.strip_prefix("-mmio").unwrap_or(zone).strip_prefix(':')?;
        let end = zone.find(|c: char| !c.is_ascii_digit() && c != ':').unwrap_or(zone.len());
        let (numbers, name) = zone.split_at(end);
        let mut numbers = numbers.split(':').map_while(|number| number.parse().ok());
        let package = Some(numbers.next()?);
        let level = if numbers.next().is_some() { Level::Subzone } else { Level::Package };
        let named = Counted::by_words(&words(name), true);
        let level = named.level.unwrap_or(level);
        Some(Counted { level: Some(level), package: package.filter(|_| level != Level::Platform), ..named })
    }

    /// Finds the part of the machine that a node of OTF2's system tree stands for, from the tree node's class and name, such as
    /// `package` and `0`.
    pub fn by_place(class: &str, name: &str) -> Counted {
        Counted::by_words(&words(&format!("{class} {name}")), false)
    }

    /// Whether this is one of several parts of its kind, because its package or its own number is known.
    pub fn is_numbered(self) -> bool {
        self.package.is_some() || self.number.is_some()
    }

    /// Combines the result for the metric's name with the place where the metric is recorded.
    #[must_use]
    pub fn at(self, place: Counted) -> Counted {
        let level = match (self.level, place.level) {
            (None | Some(Level::Node), Some(level)) => Some(level),
            // The energy of a GPU that is recorded for one of its tiles is that of the tile.
            (Some(Level::Gpu | Level::GpuBoard), Some(Level::GpuPart)) => Some(Level::GpuPart),
            (level, _) => level,
        };
        Counted { level, package: place.package.or(self.package), number: place.number.or(self.number) }
    }

    fn by_words(words: &[(String, Option<u32>)], is_of_processors: bool) -> Counted {
        let has = |all: &[&str]| words.iter().any(|(word, _)| all.contains(&word.as_str()));
        let number_of = |all: &[&str]| {
            words
                .iter()
                .rev()
                .filter(|(word, _)| all.contains(&word.as_str()))
                .find_map(|(_, number)| *number)
        };
        let pp = words.iter().find(|(word, _)| word == "pp").and_then(|(_, number)| *number);
        let is_memory = has(&["dram", "ram", "mem", "memory", "ddr", "dimm", "hbm", "vram"]);
        let package = number_of(&PACKAGES);
        // Grace's CPU and its IO have meters of their own, so that the first one is that of the cores alone.
        let is_grace_cpu = matches!(words, [.., cpu, power, socket]
            if [cpu, power, socket].map(|(word, _)| word.as_str()) == ["cpu", "power", "socket"]);
        let is_sys_io = has(&["sys"]) && has(&["io"]);
        // The system agent is the part of Intel's packages that connects the cores.
        let is_agent = has(&["system"]) && has(&["agent"]);
        let is_cache =
            words.contains(&("l".to_owned(), Some(3))) && has(&["package", "pkg", "cpu", "socket"]);
        let is_board = words.windows(2).any(|pair| pair[0].0 == "cpu" && pair[1].0 == "board");
        // The rails of NVIDIA Jetson have names such as `VDD_IN`, `VDD_SYS_SOC` and `SYS5V`.
        let is_rail = has(&["vdd", "vin", "pom", "v"]);
        let core = number_of(&CORES);
        let supply = number_of(&["psu", "psus", "supply", "supplies", "ps"]);
        let level = match () {
            () if has(&["psu", "psus"]) || supply.is_some() => {
                return Counted { level: Some(Level::Supply), package: None, number: supply };
            }
            () if is_rail && has(&["cpu"]) && has(&["gpu"]) => return Counted::default(),
            // The metric covers both, as in `CPU + GPU`.
            () if !is_of_processors && has(&["cpu"]) && has(&["gpu"]) => Level::Node,
            () if !is_of_processors && (has(&GPUS) || number_of(&["card"]).is_some()) => {
                let number = number_of(&[
                    "device",
                    "gpu",
                    "xpu",
                    "cuda",
                    "hip",
                    "accel",
                    "acc",
                    "accelerator",
                    "card",
                ]);
                let is_module = has(&["nvml", "dcgm", "nvidia"]) && has(&["module"])
                    || words.contains(&("gh".to_owned(), Some(200)));
                let level = match () {
                    () if is_memory || has(&GPU_PARTS) => Level::GpuPart,
                    () if is_module => Level::Module,
                    () if has(&["board", "card", "module"]) => Level::GpuBoard,
                    () => Level::Gpu,
                };
                return Counted { level: Some(level), package: None, number };
            }
            () if has(&["grace"]) && has(&["socket"]) && !has(&NODES) && !has(&TOTALS) => Level::Grace,
            () if is_memory => Level::Memory,
            () if has(&["subzone"]) => Level::Subzone,
            () if pp == Some(0) || is_grace_cpu || has(&CORES) => Level::Cores,
            () if pp == Some(1)
                || has(&["uncore", "gpu", "igpu", "iod"])
                || is_sys_io
                || is_agent
                || is_cache =>
            {
                Level::Uncore
            }
            () if is_board => Level::Grace,
            () if has(&["module"]) && package.is_some() => Level::Module,
            () if has(&["apu"]) => {
                return Counted { level: Some(Level::Module), package: number_of(&["apu"]), number: None };
            }
            () if has(&["psys", "platform"]) => Level::Platform,
            () if has(&PACKAGES) => Level::Package,
            () if has(&NODES) || has(&["sys"]) && !is_rail && !has(&["fan", "fans"]) => Level::Node,
            () if has(&["vdd", "pom"]) && has(&["in"]) => Level::Node,
            () if has(&TOTALS) && is_of_processors => Level::Platform,
            () if has(&TOTALS) => Level::Node,
            () => return Counted::default(),
        };
        Counted { level: Some(level), package, number: core.filter(|_| level == Level::Cores) }
    }

    /// Whether this part contains the joules of another. `has_one_package` states that the node has only one package, and at most
    /// one module.
    pub fn contains(self, part: Counted, has_one_package: bool) -> bool {
        let (Some(whole), Some(of)) = (self.level, part.level) else {
            return matches!(self.level, Some(Level::Node | Level::Supply)) && part.level.is_none();
        };
        let is_same_package = self.package == part.package
            || self.package.is_none()
            || has_one_package && part.package.is_none();
        match whole {
            Level::Node | Level::Supply => of > whole,
            // A graphics card has its own supply.
            Level::Platform => of > Level::Platform && of < Level::GpuBoard,
            // NVML's counter of a Grace Hopper also counts the whole module.
            Level::Module => {
                let own = self.package.or(self.number);
                let is_here = |number: Option<u32>| number == own || number.is_none() && has_one_package;
                match of.kind() {
                    _ if of == Level::Module => self.package.is_some() && self.package == part.number,
                    "gpu" => is_here(part.number),
                    _ => of > Level::Module && is_here(part.package),
                }
            }
            Level::Grace => of > Level::Grace && of < Level::GpuBoard && is_same_package,
            Level::Package => matches!(of, Level::Cores | Level::Uncore | Level::Subzone) && is_same_package,
            Level::GpuBoard => of > Level::GpuBoard && self.number == part.number,
            Level::Gpu => of == Level::GpuPart && self.number == part.number,
            Level::Cores | Level::Uncore | Level::Memory | Level::Subzone | Level::GpuPart => false,
        }
    }
}

/// Words in the names of metrics that are in watts or joules but do not measure consumption.
const NOT_CONSUMPTION: [&str; 39] = [
    "cap",
    "limit",
    "limits",
    "max",
    "maximum",
    "min",
    "minimum",
    "default",
    "spec",
    "target",
    "budget",
    "range",
    "threshold",
    "timestamp",
    "freshness",
    "units",
    "tdp",
    "design",
    "rated",
    "nominal",
    "peak",
    "highest",
    "lowest",
    "crit",
    "alarm",
    "accuracy",
    "saved",
    "factor",
    "efficiency",
    "capacity",
    "allocated",
    "available",
    "requested",
    "setpoint",
    "headroom",
    "state",
    "uncertainty",
    "resolution",
    // A delta is the consumption since the previous reading; another metric has the running sum.
    "delta",
];

/// Whether a metric of this name does not measure consumption, but is for example a limit.
pub fn is_not_consumption(name: &str) -> bool {
    let words = words(name);
    let is_one = |word: &str| NOT_CONSUMPTION.contains(&word);
    // `PL1` to `PL4` are limits of Intel's processors. A name that ends with `powercap` is a limit, too, but a name that begins
    // with `powercap:::` need not be one.
    let is_intels = |(word, number): &(String, Option<u32>)| word == "pl" && matches!(number, Some(1..=4));
    let of_unit = |(word, _): &&(String, _)| ["w", "mw", "uw", "watt", "watts"].contains(&word.as_str());
    words.iter().any(|(word, _)| is_one(word))
        || words.iter().any(is_intels)
        || words.iter().rev().find(|word| !of_unit(word)).is_some_and(|(word, _)| word == "powercap")
        || name.ends_with("_CNT")
        || name.contains("_CNT:")
        || name.contains("powercap_ppc:::")
}

/// Words that describe how a power was read, and not which power it is.
const KINDS_OF_READING: [&str; 8] =
    ["average", "averaged", "avg", "mean", "current", "instant", "instantaneous", "momentary"];

/// Returns a name's words without those that describe how a power was read. The result is the same for `GPU 0 average power` and
/// `GPU 0 current power`.
pub fn without_kind_of_reading(name: &str) -> String {
    let words = name.split(|c: char| !c.is_alphanumeric()).map(str::to_lowercase);
    words
        .filter(|word| !word.is_empty() && !KINDS_OF_READING.contains(&word.as_str()))
        .collect::<Vec<_>>()
        .join(" ")
}

/// Whether a metric's name is that of an energy or a power.
pub fn looks_like_energy(name: &str) -> bool {
    const SIGNS: [&str; 3] = ["energy", "joule", "watt"];
    const OF_POWER: [&str; 3] = ["powerconsum", "powerusage", "powerdraw"];
    runs(name)
        .iter()
        .map(|(run, _)| run.to_lowercase())
        .any(|word| word.ends_with("power") || SIGNS.iter().chain(&OF_POWER).any(|sign| word.contains(sign)))
}

/// Returns a name without its digits, so that several parts of one kind have the same name.
pub fn without_numbers(name: &str) -> String {
    name.replace(|c: char| c.is_ascii_digit(), "")
}

/// Whether `input` is the name of a power supply's input, and `output` the name of its output.
pub fn is_output_of(input: &str, output: &str) -> bool {
    let of_output = |(word, number): (String, Option<u32>)| match word.as_str() {
        "in" => ("out".to_owned(), number),
        "pin" => ("pout".to_owned(), number),
        "input" => ("output".to_owned(), number),
        "ac" => ("dc".to_owned(), number),
        _ => (word, number),
    };
    let into = words(input);
    let out: Vec<_> = into.iter().cloned().map(of_output).collect();
    out != into && out == words(output)
}

/// Returns the component in a name that consists of parts: `elab.ariel` for `elab.ariel.power`. Returns `None` if the name does
/// not end with the measured quantity.
pub fn path_of(name: &str) -> Option<&str> {
    let (path, last) = name.rsplit_once(['.', '/'])?;
    let is_quantity = ["energy", "power"].contains(&last.to_lowercase().as_str());
    Some(path).filter(|path| is_quantity && !path.is_empty())
}

/// Returns the component in the name of one of its parts: `pm` for `pm/accel_energy`.
pub fn path_of_part(name: &str) -> Option<&str> {
    let (path, last) = name.rsplit_once(['.', '/'])?;
    let (_, quantity) = last.rsplit_once('_')?;
    let is_quantity = ["energy", "power"].contains(&quantity.to_lowercase().as_str());
    Some(path).filter(|path| is_quantity && !path.is_empty())
}

/// Whether a model is the GPU with two dies in a package, which libraries of different ages name differently.
pub fn is_mi250x(model: &str) -> bool {
    let model = model.to_ascii_uppercase();
    ["MI250", "MI200", "0X740C", "0X7408"].iter().any(|name| model.contains(name))
}

#[cfg(test)]
mod tests {
    use super::Level::{
        Cores, Gpu, GpuBoard, GpuPart, Grace, Memory, Module, Node, Package, Platform, Subzone, Uncore,
    };
    use super::*;

    #[test]
    fn names_of_many_tools_show_what_is_counted() {
        for (name, level, package, number) in [
            ("rapl:::PACKAGE_ENERGY:PACKAGE0", Some(Package), Some(0), None),
            ("rapl:::PP0_ENERGY:PACKAGE1", Some(Cores), Some(1), None),
            ("rapl:::PP1_ENERGY:PACKAGE1", Some(Uncore), Some(1), None),
            ("rapl:::DRAM_ENERGY:PACKAGE1", Some(Memory), Some(1), None),
            ("rapl:::PSYS_ENERGY:PACKAGE0", Some(Platform), Some(0), None),
            ("powercap:::ENERGY_UJ:ZONE1", Some(Package), Some(1), None),
            ("powercap:::ENERGY_UJ:ZONE1_SUBZONE0", Some(Subzone), Some(1), None),
            ("nvml:::NVIDIA_A100:device_3:total_energy_consumption", Some(Gpu), None, Some(3)),
            ("A2rocm_smi:::energy_count:device=0", Some(Gpu), None, Some(0)),
            ("amd_smi:::energy_consumed:device=7", Some(Gpu), None, Some(7)),
            ("cray_pm:::PM_ENERGY:NODE", Some(Node), None, None),
            ("cray_pm:::PM_ENERGY:ACC0", Some(Gpu), None, Some(0)),
            ("A2coretemp:::craypm:energy", Some(Node), None, None),
            ("A2coretemp:::craypm:accel2_energy", Some(Gpu), None, Some(2)),
            ("coretemp:::craypm:memory_power", Some(Memory), None, None),
            ("power/energy-pkg/", Some(Package), None, None),
            ("ID3::energy_count", Some(Gpu), None, Some(3)),
            ("ID0::socket_power", Some(Gpu), None, Some(0)),
            ("power_meter-acpi-0/power1 (power1)", Some(Node), None, None),
            ("amdgpu-pci-4300/power1 (PPT)", Some(Gpu), None, Some(0x4300)),
            ("xe-pci-1800/energy1 (card)", Some(GpuBoard), None, Some(0x1800)),
            ("xe-pci-1800/energy2 (pkg)", Some(Gpu), None, Some(0x1800)),
            ("power/energy-psys/", Some(Platform), None, None),
            ("power/energy-gpu/", Some(Uncore), None, None),
            ("power/energy-ram/", Some(Memory), None, None),
            ("x86_energy/CORE1/E", Some(Cores), None, Some(1)),
            ("x86_energy/BLADE/E", Some(Node), None, None),
            ("hdeem/CPU1/E", Some(Package), Some(1), None),
            ("hdeem/DDR_AB/P", Some(Memory), None, None),
            ("elab.ariel.s1.package.power.100Hz", Some(Package), Some(1), None),
            ("elab.ariel.s1.dram.power", Some(Memory), Some(1), None),
            ("package 1/energy", Some(Package), Some(1), None),
            ("system/energy", Some(Node), None, None),
            ("gpu0 board energy", Some(GpuBoard), None, Some(0)),
            ("gpu0 memory energy", Some(GpuPart), None, Some(0)),
            ("zes:::energy:device=1", Some(Gpu), None, Some(1)),
            ("zes:::energy:device=1:subdevice=0", Some(GpuPart), None, Some(1)),
            ("level_zero card 0 energy", Some(GpuBoard), None, Some(0)),
            ("level_zero card 0 tile 1 energy", Some(GpuPart), None, Some(0)),
            ("GPU_CORE_ENERGY", Some(GpuPart), None, None),
            ("amd_smi:::energy_socket=1", Some(Package), Some(1), None),
            ("amd_smi:::energy_socket=1_core=3", Some(Cores), Some(1), Some(3)),
            ("all gpus energy", Some(Gpu), None, None),
            ("card1 energy", Some(GpuBoard), None, Some(1)),
            ("network card energy", None, None, None),
            ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", Some(Gpu), None, None),
            ("ccd1 energy", Some(Cores), None, Some(1)),
            ("iod energy", Some(Uncore), None, None),
            ("total energy", Some(Node), None, None),
            ("Combined Power (CPU + GPU)", Some(Node), None, None),
            ("Module Power Socket 0", Some(Module), Some(0), None),
            ("Grace Power Socket 1", Some(Grace), Some(1), None),
            ("CPU Power Socket 1", Some(Cores), Some(1), None),
            ("power_meter-acpi-2/power1 (Grace Power Socket 1)", Some(Grace), Some(1), None),
            ("pdu phase L3 power", None, None, None),
            ("SysIO Power Socket 1", Some(Uncore), Some(1), None),
            ("nvml:::NVIDIA_GH200_480GB:device_1:total_energy_consumption", Some(Module), None, Some(1)),
            ("nvml gpu 0 mig 1 energy", Some(GpuPart), None, Some(0)),
            ("amd_energy:Esocket1", Some(Package), Some(1), None),
            ("amd_energy:Ecore012", Some(Cores), None, Some(12)),
            ("energy", None, None, None),
            ("NodePower", Some(Node), None, None),
            ("SystemEnergy", Some(Node), None, None),
            ("CpuPower", Some(Package), None, None),
            ("PackageEnergy1", Some(Package), Some(1), None),
            ("DramEnergy0", Some(Memory), None, None),
            ("CoreEnergy", Some(Cores), None, None),
            ("gpuPower2", Some(Gpu), None, Some(2)),
            ("nvmlDeviceGetPowerUsage", Some(Gpu), None, None),
            ("pkgenergy", Some(Package), None, None),
            ("coreenergy", Some(Cores), None, None),
            ("dramenergy", Some(Memory), None, None),
            ("nodeenergy", Some(Node), None, None),
            ("energypkg1", Some(Package), Some(1), None),
            ("PWRMEM", Some(Memory), None, None),
            ("PWRGPU", Some(Gpu), None, None),
            ("iGPU energy", Some(Uncore), None, None),
            ("PowerConsumedWatts", None, None, None),
            ("intel-rapl:1/energy_uj", Some(Package), Some(1), None),
            (
                "/sys/class/powercap/intel-rapl/intel-rapl:1/intel-rapl:1:0/energy_uj",
                Some(Subzone),
                Some(1),
                None,
            ),
            ("intel-rapl-mmio:0", Some(Package), Some(0), None),
            ("intel-rapl:0:2 dram", Some(Memory), Some(0), None),
            ("intel-rapl:1 psys", Some(Platform), None, None),
            ("intel-rapl:package-0:core", Some(Cores), Some(0), None),
            ("RAPL:TOTAL", Some(Platform), None, None),
            ("NVML:TOTAL", Some(Gpu), None, None),
            ("HDEEM:TOTAL", Some(Node), None, None),
            ("total_energy_consumption:1", None, None, None),
            ("total_energy_consumption on GPU 1", Some(Gpu), None, Some(1)),
            ("Sys_Power", Some(Node), None, None),
            ("PWRSYS", Some(Node), None, None),
            ("Sys Fan Power", None, None, None),
            ("wall power", Some(Node), None, None),
            ("VDD_IN", Some(Node), None, None),
            ("POM_5V_IN", Some(Node), None, None),
            ("VDD_CPU_GPU_CV", None, None, None),
            ("VDD_SYS_SOC", None, None, None),
            ("VIN_SYS_5V0", None, None, None),
            ("SYS5V", None, None, None),
            ("/sys/class/hwmon/hwmon2/power1_input", None, None, None),
            ("sys/cray/pm_counters/power", None, None, None),
            ("sys/power", Some(Node), None, None),
            ("apu 1 energy", Some(Module), Some(1), None),
            ("system agent energy", Some(Uncore), None, None),
            ("package-0 L3 energy", Some(Uncore), Some(0), None),
            ("CPU board energy", Some(Grace), None, None),
            ("outlet powers1", None, None, None),
        ] {
            let counted = Counted::by_name(name);
            assert_eq!((counted.level, counted.package, counted.number), (level, package, number), "{name}");
        }
        let package = Counted::by_place("package", "1");
        assert_eq!(Counted::by_name("energy").at(package), package);
        let cores = Counted::by_name("core energy").at(package);
        assert_eq!((cores.level, cores.package), (Some(Cores), Some(1)));
        let tile = Counted { level: Some(GpuPart), package: None, number: Some(1) };
        assert_eq!(Counted::by_name("gpu energy").at(tile), tile);
    }

    #[test]
    fn a_whole_contains_only_its_parts() {
        let contains = |whole: &str, part: &str, one: bool| {
            Counted::by_name(whole).contains(Counted::by_name(part), one)
        };
        assert!(
            contains("system/energy", "package/energy", true) && contains("system/energy", "energy", false)
        );
        assert!(contains("package/energy", "core/energy", true));
        assert!(contains("rapl:::PACKAGE_ENERGY:PACKAGE1", "rapl:::PP0_ENERGY:PACKAGE1", false));
        assert!(!contains("rapl:::PACKAGE_ENERGY:PACKAGE0", "rapl:::PP0_ENERGY:PACKAGE1", false));
        assert!(
            !contains("rapl:::PACKAGE_ENERGY:PACKAGE0", "rapl:::DRAM_ENERGY:PACKAGE0", true),
            "memory is outside the package"
        );
        assert!(contains("rapl:::PSYS_ENERGY:PACKAGE0", "rapl:::DRAM_ENERGY:PACKAGE1", false));
        assert!(!contains("rapl:::PSYS_ENERGY:PACKAGE0", "rocm_smi:::energy_count:device=0", true));
        assert!(contains("hdeem/BLADE/E", "hdeem/CPU1/E", false) && contains("BLADE", "psys energy", true));
        assert!(
            contains("gpu1 board energy", "gpu1 energy", true)
                && !contains("gpu1 board energy", "gpu0 energy", true)
        );
        assert!(
            contains("CPU board energy", "CPU chip energy", true)
                && contains("apu 1 energy", "gpu 1 energy", false)
        );
        assert!(
            !contains("RAPL:TOTAL", "NVML:TOTAL", true) && contains("RAPL:TOTAL", "RAPL:PACKAGE_0", false)
        );
        let [module, grace] = ["Module Power Socket 0", "Grace Power Socket 0"];
        for part in ["Grace", "CPU", "SysIO"].map(|part| format!("{part} Power Socket 0")) {
            assert!(contains(module, &part, false) && (contains(grace, &part, false) || part == grace));
        }
        let hopper = "nvml:::NVIDIA_GH200_480GB:device_0:power";
        assert!(contains(module, hopper, false) && contains(hopper, grace, false));
        assert!(contains(module, "gpu 0 power", false) && !contains(module, "gpu 1 power", false));
        assert!(
            !contains(module, "CPU Power Socket 1", false)
                && !contains("CPU Power Socket 0", "SysIO Power Socket 0", true)
                && !contains(hopper, "Grace Power Socket 1", false)
                && !contains(grace, "gpu 0 power", false)
        );
        assert!(!contains("core/energy", "package/energy", true) && !contains("energy", "core/energy", true));
    }

    #[test]
    fn limits_are_recognised_by_a_word() {
        for name in [
            "power_cap",
            "rapl:::THERMAL_SPEC:PACKAGE0",
            "rapl:::PACKAGE_ENERGY_CNT:PACKAGE0",
            "powercap:::MAX_ENERGY_RANGE_UJ:ZONE0",
            "powercap_ppc:::POWERCAP_CURRENT",
            "libmsr:::PKG_DELTA_ENERGY:PACKAGE0",
            "cray_rapl:::UNITS:ENERGY",
            "package TDP",
            "power_factor",
            "PowerCapacityWatts",
            "PowerMetrics.MaxConsumedWatts",
            "nvmlDeviceGetEnforcedPowerLimit",
            "node CapWatts",
            "node PowerPeak",
            "gpu0 powerlimit",
            "gpu0 powercap",
            "gpu0_powercap_w",
            "powerstat_package.thermal_design_power_watts",
            "package 0 PL2 power",
            "hwmon2/power1_crit",
            "hwmon2/power1_average_highest",
            "node energy saved",
        ] {
            assert!(is_not_consumption(name), "{name}");
        }
        for name in [
            "rapl:::PACKAGE_ENERGY:PACKAGE0",
            "powercap:::ENERGY_UJ:ZONE0",
            "/sys/class/powercap/intel-rapl:0/energy_uj",
            "PowerConsumedWatts",
            "PL380 node power",
            "node power",
        ] {
            assert!(!is_not_consumption(name) && looks_like_energy(name), "{name}");
        }
        assert!(
            looks_like_energy("nvmlPowerUsage")
                && looks_like_energy("micpower:::inst")
                && looks_like_energy("WattsUp")
                && !looks_like_energy("powercap:::NAME")
                && !looks_like_energy("PAPI_TOT_INS")
        );
    }
}
