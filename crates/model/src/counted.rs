//! Finds, from a metric's name, the part of the node that its counter counts: a package, its cores, a GPU, or the whole node.
//! This shows whether one counter's joules are contained in another's.

use crate::cray_device;

/// A part of a node, from the largest to the smallest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// The whole node with everything in it.
    Node,
    /// The node's packages and memory.
    Platform,
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
            Level::Node | Level::Platform => "node",
            Level::Package | Level::Cores | Level::Uncore | Level::Subzone => "cpu",
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
    /// The package that it is or belongs to.
    pub package: Option<u32>,
    /// The number of the GPU or of the core.
    pub number: Option<u32>,
}

/// Returns a name's words in lower case, each with the number after it. `PACKAGE0`, `package 0` and `package-0` have the same
/// words.
fn words(name: &str) -> Vec<(String, Option<u32>)> {
    let mut words: Vec<(String, Option<u32>)> = Vec::new();
    let mut rest = name;
    while let Some(first) = rest.chars().next() {
        let is_same = |c: char| match first {
            _ if first.is_ascii_digit() => c.is_ascii_digit(),
            _ => c.is_alphabetic() == first.is_alphabetic() && !c.is_ascii_digit(),
        };
        let (token, after) = rest.split_at(rest.find(|c| !is_same(c)).unwrap_or(rest.len()));
        rest = after;
        if first.is_alphabetic() {
            words.push((token.to_lowercase(), None));
        } else if first.is_ascii_digit()
            && let Some((_, number)) = words.last_mut()
        {
            *number = number.or(token.parse().ok());
        }
    }
    words
}

/// Libraries that measure processors: their `gpu` is a part of the package.
const PROCESSOR_LIBRARIES: [&str; 4] = ["rapl", "x86_energy", "power/energy-", "powercap"];

/// Words in names of metrics of GPUs.
const GPUS: [&str; 13] = [
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
];
/// Words in names of metrics of CPU packages.
const PACKAGES: [&str; 9] =
    ["package", "packages", "pkg", "pckg", "socket", "cpu", "cpus", "zone", "processor"];
/// Words in names of metrics of whole nodes.
const NODES: [&str; 11] = [
    "node", "blade", "system", "server", "chassis", "host", "machine", "board", "total", "overall",
    "combined",
];

impl Counted {
    /// Finds the part of the node that a metric counts, from the metric's name.
    pub fn by_name(metric: &str) -> Counted {
        if let Some((device, _)) = cray_device(metric) {
            return Counted::by_words(&words(device), false);
        }
        let lower = metric.to_lowercase();
        let words = words(metric);
        let counted = Counted::by_words(&words, PROCESSOR_LIBRARIES.iter().any(|of| lower.contains(of)));
        // MetricQ has names such as `ariel.s0.package.power`.
        let socket = words.iter().find(|(word, _)| word == "s").and_then(|(_, number)| *number);
        let is_of_package =
            !matches!(counted.level, None | Some(Level::Gpu | Level::GpuBoard | Level::GpuPart));
        Counted { package: counted.package.or(socket.filter(|_| is_of_package)), ..counted }
    }

    /// Finds the part of the machine that a node of OTF2's system tree stands for, from the tree node's class and name, such as
    /// `package` and `0`.
    pub fn by_place(class: &str, name: &str) -> Counted {
        Counted::by_words(&words(&format!("{class} {name}")), false)
    }

    /// Combines the result for the metric's name with the place where the metric is recorded.
    #[must_use]
    pub fn at(self, place: Counted) -> Counted {
        let level = match (self.level, place.level) {
            (None | Some(Level::Node), Some(level)) => Some(level),
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
        let is_memory = has(&["dram", "ram", "mem", "memory", "ddr", "dimm"]);
        let package = number_of(&PACKAGES);
        let core = number_of(&["core", "cores", "ccd", "ccx"]);
        let level = match () {
            // The metric covers both, as in `CPU + GPU`.
            () if !is_of_processors && has(&["cpu"]) && has(&["gpu"]) => Level::Node,
            () if !is_of_processors && has(&GPUS) => {
                let number = number_of(&["device", "gpu", "accel", "acc", "accelerator", "card"]);
                let level = match () {
                    () if is_memory => Level::GpuPart,
                    () if has(&["board", "card", "module"]) => Level::GpuBoard,
                    () => Level::Gpu,
                };
                return Counted { level: Some(level), package: None, number };
            }
            () if is_memory => Level::Memory,
            () if has(&["subzone"]) => Level::Subzone,
            () if pp == Some(0) || has(&["core", "cores", "ccd", "ccx"]) => Level::Cores,
            () if pp == Some(1) || has(&["uncore", "gpu", "igpu", "iod"]) => Level::Uncore,
            () if has(&["psys", "platform"]) => Level::Platform,
            () if has(&PACKAGES) => Level::Package,
            () if has(&NODES) => Level::Node,
            () => return Counted::default(),
        };
        Counted { level: Some(level), package, number: core.filter(|_| level == Level::Cores) }
    }

    /// Whether this part contains the joules of another. `has_one_package`: the node has only one package.
    pub fn contains(self, part: Counted, has_one_package: bool) -> bool {
        let (Some(whole), Some(of)) = (self.level, part.level) else {
            return self.level == Some(Level::Node) && part.level.is_none();
        };
        let is_same_package = self.package == part.package
            || self.package.is_none()
            || has_one_package && part.package.is_none();
        match whole {
            Level::Node => of != Level::Node,
            // A graphics card has its own supply.
            Level::Platform => of > Level::Platform && of < Level::GpuBoard,
            Level::Package => matches!(of, Level::Cores | Level::Uncore | Level::Subzone) && is_same_package,
            Level::GpuBoard => of > Level::GpuBoard && self.number == part.number,
            Level::Gpu => of == Level::GpuPart && self.number == part.number,
            Level::Cores | Level::Uncore | Level::Memory | Level::Subzone | Level::GpuPart => false,
        }
    }
}

/// Words in the names of metrics that are in watts or joules but do not measure consumption.
const NOT_CONSUMPTION: [&str; 25] = [
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
    "rated",
    "nominal",
    "peak",
    "factor",
    "efficiency",
    "state",
    "uncertainty",
    // A delta is the consumption since the previous reading; another metric has the running sum.
    "delta",
];

/// Whether a metric of this name does not measure consumption, but is for example a limit.
pub fn is_not_consumption(name: &str) -> bool {
    let is_one = |word: &str| NOT_CONSUMPTION.contains(&word);
    words(name).iter().any(|(word, _)| is_one(word))
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
    words(name).iter().any(|(word, _)| {
        word.ends_with("power") || SIGNS.iter().chain(&OF_POWER).any(|sign| word.contains(sign))
    })
}

/// Whether `input` is the name of a power supply's input, and `output` the name of its output.
pub fn is_output_of(input: &str, output: &str) -> bool {
    let of_output = |(word, number): (String, Option<u32>)| match word.as_str() {
        "in" => ("out".to_owned(), number),
        "input" => ("output".to_owned(), number),
        _ => (word, number),
    };
    let into = words(input);
    let out: Vec<_> = into.iter().cloned().map(of_output).collect();
    out != into && out == words(output)
}

/// Returns the place in a name that consists of parts: `elab.ariel` for `elab.ariel.power`. Returns `None` if the name does not
/// end with the measured quantity.
pub fn path_of(name: &str) -> Option<&str> {
    let (path, last) = name.rsplit_once(['.', '/'])?;
    let is_quantity = ["energy", "power"].contains(&last.to_lowercase().as_str());
    Some(path).filter(|path| is_quantity && !path.is_empty())
}

#[cfg(test)]
mod tests {
    use super::Level::{Cores, Gpu, GpuBoard, GpuPart, Memory, Node, Package, Platform, Subzone, Uncore};
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
            ("all gpus energy", Some(Gpu), None, None),
            ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", Some(Gpu), None, None),
            ("ccd1 energy", Some(Cores), None, Some(1)),
            ("iod energy", Some(Uncore), None, None),
            ("total energy", Some(Node), None, None),
            ("Combined Power (CPU + GPU)", Some(Node), None, None),
            ("energy", None, None, None),
        ] {
            let counted = Counted::by_name(name);
            assert_eq!((counted.level, counted.package, counted.number), (level, package, number), "{name}");
        }
        let package = Counted::by_place("package", "1");
        assert_eq!(Counted::by_name("energy").at(package), package);
        let cores = Counted::by_name("core energy").at(package);
        assert_eq!((cores.level, cores.package), (Some(Cores), Some(1)));
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
        ] {
            assert!(is_not_consumption(name), "{name}");
        }
        for name in ["rapl:::PACKAGE_ENERGY:PACKAGE0", "powercap:::ENERGY_UJ:ZONE0", "node power"] {
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
