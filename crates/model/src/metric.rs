//! Rules that live runs and existing traces must share: the meaning of a metric's name and unit for its device.

use crate::counted::is_not_consumption;
use std::collections::BTreeSet;

/// Returns a device's name from its metric's name: `rocm_smi:::energy_count:device=0` is `GPU-0`, `rapl:::energy:package-0` is
/// `package-0`, `estimate:::energy` is `node`. Any other metric's name is the name of its device.
pub fn device_name(metric: &str) -> String {
    if let Some((_, name)) = metric.split_once(":::energy:").filter(|(_, name)| !name.is_empty()) {
        return name.to_owned();
    }
    if let Some((device, _)) = cray_device(metric) {
        return device.to_owned();
    }
    if let Some(at) = metric.find("device=") {
        let digits: String = metric[at + 7..].chars().take_while(char::is_ascii_digit).collect();
        if !digits.is_empty() {
            return format!("GPU-{digits}");
        }
    }
    if let Some(gpu) = gpu_of_score_p_plugin(metric) {
        return format!("GPU-{gpu}");
    }
    match metric {
        "estimate:::energy" => "node".to_owned(),
        _ => metric.to_owned(),
    }
}

/// Returns the GPU of a metric of Score-P's plugin for rocm_smi, such as `ID0::energy_count`.
pub fn gpu_of_score_p_plugin(metric: &str) -> Option<u32> {
    let (id, sensor) = metric.split_once("::")?;
    let is_one = ["energy_count", "average_power", "socket_power"].contains(&sensor);
    id.strip_prefix("ID").filter(|_| is_one)?.parse().ok()
}

/// Whether a pattern in Score-P's form, with `*` for any text and `?` for any character, matches a name.
pub fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) = (pattern.chars().collect(), name.chars().collect());
    let (mut at, mut here) = (0, 0);
    // The position of the last star, and the end of what it matches so far.
    let mut star = None;
    while here < name.len() {
        match pattern.get(at) {
            Some('*') => {
                star = Some((at, here));
                at += 1;
            }
            Some(c) if *c == '?' || *c == name[here] => (at, here) = (at + 1, here + 1),
            _ => match star {
                Some((position, reached)) => {
                    star = Some((position, reached + 1));
                    (at, here) = (position + 1, reached + 1);
                }
                None => return false,
            },
        }
    }
    pattern[at..].iter().all(|c| *c == '*')
}

/// A sample's value, of one of OTF2's types.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MetricValue {
    /// A value of OTF2's type UINT64.
    U64(u64),
    /// A value of OTF2's type INT64.
    I64(i64),
    /// A value of OTF2's type DOUBLE.
    F64(f64),
}

/// The quantity that a metric measures, with the joules or watts of one of its units.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Quantity {
    /// Energy, with the joules of one unit.
    Energy(f64),
    /// Power, with the watts of one unit.
    Power(f64),
}

impl Quantity {
    /// Returns the quantity of a unit that is `factor` times as large.
    #[must_use]
    pub fn times(self, factor: f64) -> Quantity {
        match self {
            Quantity::Energy(joules) => Quantity::Energy(joules * factor),
            Quantity::Power(watts) => Quantity::Power(watts * factor),
        }
    }
}

/// A name of joules or watts, in lower case and without separators, and whether it is a symbol. The first name in the
/// list that a unit ends with counts, so a longer name comes before the names with which it ends.
type NamedUnit = (&'static str, bool, Quantity);
const UNITS: [NamedUnit; 17] = {
    use Quantity::{Energy, Power};
    [
        ("watthours", false, Energy(3600.0)),
        ("watthour", false, Energy(3600.0)),
        ("wattseconds", false, Energy(1.0)),
        ("wattsecond", false, Energy(1.0)),
        ("joulespersecond", false, Power(1.0)),
        ("joules/second", false, Power(1.0)),
        ("joules/s", false, Power(1.0)),
        ("joules", false, Energy(1.0)),
        ("joule", false, Energy(1.0)),
        ("watts", false, Power(1.0)),
        ("watt", false, Power(1.0)),
        ("wsec", true, Energy(1.0)),
        ("wh", true, Energy(3600.0)),
        ("ws", true, Energy(1.0)),
        ("j/s", true, Power(1.0)),
        ("j", true, Energy(1.0)),
        ("w", true, Power(1.0)),
    ]
};

/// Returns the factor of an SI prefix. A unit that is a symbol has a symbol as its prefix; a unit that is a word may have either.
fn factor_of_prefix(prefix: &str, is_symbol: bool) -> Option<f64> {
    let word = prefix.to_ascii_lowercase();
    Some(match (prefix, word.as_str()) {
        ("", _) => 1.0,
        ("p", _) => 1e-12,
        ("n", _) => 1e-9,
        // Some tools write units in capitals, as in `UJ`.
        ("u" | "U" | "\u{b5}" | "\u{3bc}", _) => 1e-6,
        ("m", _) => 1e-3,
        ("k" | "K", _) => 1e3,
        ("M", _) => 1e6,
        ("G", _) => 1e9,
        _ if is_symbol => return None,
        (_, "pico") => 1e-12,
        (_, "nano") => 1e-9,
        (_, "micro") => 1e-6,
        (_, "milli") => 1e-3,
        (_, "kilo") => 1e3,
        (_, "mega") => 1e6,
        (_, "giga") => 1e9,
        _ => return None,
    })
}

/// Returns the quantity of a metric's unit: `mJ`, `kilowatts`, `W*s`, or one with a number in front, as in perf. Returns `None`
/// if it is neither energy nor power.
pub fn quantity_of_unit(unit: &str) -> Option<Quantity> {
    let unit = unit.trim().trim_matches(['[', ']', '(', ')']).trim();
    if let Some((number, unit)) = unit.split_once(char::is_whitespace)
        && let Ok(number) = number.parse::<f64>()
    {
        let is_factor = number > 0.0 && number.is_finite();
        return quantity_of_unit(unit).filter(|_| is_factor).map(|quantity| quantity.times(number));
    }
    let is_separator = |c: char| c.is_whitespace() || ['-', '_', '*', '.', '\u{b7}', '\u{22c5}'].contains(&c);
    let compact: String = unit.chars().filter(|c| !is_separator(*c)).collect();
    let lower = compact.to_ascii_lowercase();
    let (name, is_symbol, quantity) = UNITS.iter().find(|(name, ..)| lower.ends_with(name))?;
    let (prefix, written) = compact.split_at(compact.len() - name.len());
    // A symbol in lower case without a prefix, such as `w`, is the unit of something else.
    let is_other = *is_symbol && prefix.is_empty() && !written.starts_with(['J', 'W']);
    factor_of_prefix(prefix, *is_symbol).filter(|_| !is_other).map(|factor| quantity.times(factor))
}

/// Returns the quantity of a metric with a known name, independently of its unit. PAPI's metrics are among them, which Score-P
/// records without a unit and, even if they are powers, as accumulated since the start.
pub fn quantity_of_name(metric: &str) -> Option<Quantity> {
    if is_not_consumption(metric) {
        return None;
    }
    let contains_any = |all: &[&str]| all.iter().any(|part| metric.contains(part));
    match () {
        () if contains_any(&["rocm_smi:::energy_count:device=", "amd_smi:::energy_consumed:device="]) => {
            Some(Quantity::Energy(1e-6))
        }
        // These are processors and, with `_core=` in their names, cores.
        () if contains_any(&["amd_smi:::energy_"]) && contains_any(&["socket="]) => {
            Some(Quantity::Energy(1e-6))
        }
        () if contains_any(&[
            "rocm_smi:::power_average:device=",
            "rocm_smi:::average_socket_power:device=",
            "rocm_smi:::current_socket_power:device=",
        ]) =>
        {
            Some(Quantity::Power(1e-6))
        }
        () if contains_any(&["amd_smi:::power_average:device=", "amd_smi:::power_current:device="]) => {
            Some(Quantity::Power(1.0))
        }
        // The kernel's counters are in 2^-32 J on all processors.
        () if contains_any(&["rapl::RAPL_ENERGY_", "power/energy-"]) => {
            Some(Quantity::Energy(2f64.powi(-32)))
        }
        // The plugin's table of units lacks a comma, so that this metric has no unit.
        () if gpu_of_score_p_plugin(metric).is_some() && metric.ends_with("energy_count") => {
            Some(Quantity::Energy(1.0))
        }
        () if contains_any(&["rapl:::"]) && metric.contains("_ENERGY") => Some(Quantity::Energy(1e-9)),
        () if contains_any(&["powercap:::ENERGY_UJ:"]) => Some(Quantity::Energy(1e-6)),
        () if contains_any(&["cray_pm:::PM_ENERGY"]) => Some(Quantity::Energy(1.0)),
        () if contains_any(&["cray_pm:::PM_POWER:"]) => Some(Quantity::Power(1.0)),
        // These are the kernel's hwmon files.
        () if metric.contains(":hwmon") && is_hwmon_file(metric, "energy", &["input"]) => {
            Some(Quantity::Energy(1e-6))
        }
        () if metric.contains(":hwmon") && is_hwmon_file(metric, "power", &["input", "average"]) => {
            Some(Quantity::Power(1e-6))
        }
        () if contains_any(&["nvml:::"]) && metric.ends_with(":total_energy_consumption") => {
            Some(Quantity::Energy(1e-3))
        }
        () if contains_any(&["nvml:::"]) && metric.ends_with(":power") => Some(Quantity::Power(1e-3)),
        () if contains_any(&["micpower:::"]) && metric.ends_with("tot0") => Some(Quantity::Power(1e-6)),
        () => cray_device(metric).map(|(_, quantity)| quantity).or_else(|| quantity_of_last_word(metric)),
    }
}

/// Whether a metric is a file of hwmon, such as `coretemp:::hwmon2:power1_input`.
fn is_hwmon_file(metric: &str, of: &str, files: &[&str]) -> bool {
    let file = metric.rsplit(':').next().and_then(|file| file.strip_prefix(of));
    let named = file.map(|file| file.trim_start_matches(|c: char| c.is_ascii_digit()));
    named.and_then(|file| file.strip_prefix('_')).is_some_and(|file| files.contains(&file))
}

/// Returns the quantity of a name that ends in its unit, such as `energy_uj`, `power-mW` or LIKWID's `Energy DRAM [J]`.
fn quantity_of_last_word(metric: &str) -> Option<Quantity> {
    let (before, last) = metric.rsplit_once(['_', '-', '/', '.', ' '])?;
    let unit = match last.trim_matches(['(', ')', '[', ']']) {
        "nj" | "nJ" => Quantity::Energy(1e-9),
        "uj" | "uJ" | "UJ" => Quantity::Energy(1e-6),
        "mj" | "mJ" => Quantity::Energy(1e-3),
        "j" | "J" | "joules" | "Joules" => Quantity::Energy(1.0),
        "uw" | "uW" | "UW" => Quantity::Power(1e-6),
        "mw" | "mW" => Quantity::Power(1e-3),
        "w" | "W" | "watts" | "Watts" => Quantity::Power(1.0),
        other => quantity_of_unit(other)?,
    };
    let before = before.to_lowercase();
    let is_consistent = match unit {
        Quantity::Energy(_) => before.contains("energy"),
        Quantity::Power(_) => before.contains("power"),
    };
    is_consistent.then_some(unit)
}

/// Returns the device of one of Cray's counters in PAPI's notation, and its quantity: `coretemp:::craypm:accel0_energy` belongs
/// to `accel0`.
pub fn cray_device(metric: &str) -> Option<(&str, Quantity)> {
    let (_, file) = metric.split_once("coretemp:::craypm:")?;
    let (device, quantity) = match (file.strip_suffix("energy"), file.strip_suffix("power")) {
        (Some(device), _) => (device, Quantity::Energy(1.0)),
        (_, Some(device)) => (device, Quantity::Power(1.0)),
        (None, None) => return None,
    };
    let device = if device.is_empty() { "node" } else { device.strip_suffix('_')? };
    let kind = device.trim_end_matches(|c: char| c.is_ascii_digit());
    ["node", "cpu", "memory", "accel"].contains(&kind).then_some((device, quantity))
}

/// Returns the number of the Cray accelerator (as in `accel3`) that is the GPU with this number in AMD's libraries. Cray's figure
/// is that of the accelerator with its voltage regulators. Each of the two dies of an MI250X has a GPU's number, and both are one
/// accelerator. The numbers of all GPUs and accelerators of the node show whether the GPUs are such dies: there are then more
/// GPUs than accelerators, or only even ones have a counter.
pub fn accelerator_of_gpu(gpu: u32, gpus: &BTreeSet<u32>, accelerators: &BTreeSet<u32>) -> Option<u32> {
    let has_more_gpus = gpus.last() > accelerators.last();
    let has_only_even = gpus.len() > 1 && gpus.iter().all(|gpu| gpu.is_multiple_of(2));
    let accelerator = if has_more_gpus || has_only_even { gpu / 2 } else { gpu };
    accelerators.contains(&accelerator).then_some(accelerator)
}

/// A power that is recorded together with a counter of the same device.
#[derive(Clone, Debug, PartialEq)]
pub struct PowerSensor {
    /// The metric of the counter.
    pub counter: String,
    /// The kind of power: `average` or `current`.
    pub which: &'static str,
    /// The watts of one unit, if the metric's unit is not a power.
    pub watts_per_unit: f64,
}

/// Returns the power sensor of this name in a trace, if the name of its counter is known.
pub fn power_sensor_of_name(metric: &str) -> Option<PowerSensor> {
    const ROCM_SMI: [(&str, &str); 3] = [
        ("rocm_smi:::power_average:", "average"),
        ("rocm_smi:::average_socket_power:", "average"),
        ("rocm_smi:::current_socket_power:", "current"),
    ];
    let rocm_smi = ROCM_SMI.iter().find_map(|(name, which)| {
        let (before, device) = metric.split_once(name)?;
        let device = device.split(':').next()?; // the number of the sensor is left out
        let counter = format!("{before}rocm_smi:::energy_count:{device}");
        Some(PowerSensor { counter, which, watts_per_unit: 1e-6 })
    });
    rocm_smi.or_else(|| {
        let (before, file) = metric.split_once("craypm:")?;
        let device =
            file.strip_suffix("power").filter(|device| device.is_empty() || device.ends_with('_'))?;
        let counter = format!("{before}craypm:{device}energy");
        Some(PowerSensor { counter, which: "current", watts_per_unit: 1.0 })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_named_after_their_metric() {
        assert_eq!(device_name("A2rocm_smi:::energy_count:device=0"), "GPU-0");
        assert_eq!(device_name("rocm_smi:::energy_count:device=12"), "GPU-12");
        assert_eq!(device_name("estimate:::energy"), "node");
        assert_eq!(device_name("rapl:::energy:package-0-dram"), "package-0-dram");
        assert_eq!(device_name("nvml:::energy:GPU-0-nvml"), "GPU-0-nvml");
        assert_eq!(device_name("nvml:::total_energy_consumption:device=1"), "GPU-1");
        assert_eq!(device_name("coretemp:::hwmon2:power1_input"), "coretemp:::hwmon2:power1_input");
    }

    #[test]
    fn power_sensors_belong_to_the_counter_of_the_same_device() {
        for (metric, counter) in [
            ("rocm_smi:::power_average:device=2:sensor=0", Some("rocm_smi:::energy_count:device=2")),
            ("A2rocm_smi:::current_socket_power:device=0", Some("A2rocm_smi:::energy_count:device=0")),
            ("A2coretemp:::craypm:accel3_power", Some("A2coretemp:::craypm:accel3_energy")),
            ("A2coretemp:::craypm:power", Some("A2coretemp:::craypm:energy")),
            ("A2coretemp:::craypm:power_cap", None),
            ("rocm_smi:::power_cap:device=0", None),
        ] {
            let sensor = power_sensor_of_name(metric);
            assert_eq!(sensor.map(|sensor| sensor.counter).as_deref(), counter, "{metric}");
        }
    }

    #[test]
    fn patterns_match_whole_names() {
        let name = "rocm_smi:::energy_count:device=12";
        for pattern in [name, "*", "rocm_smi:::*", "*=12", "*device=??", "?ocm*count*=1?", "**=*2*", "*1*2"] {
            assert!(matches(pattern, name), "{pattern}");
        }
        for pattern in ["", "rocm_smi", "*=1", "*device=?", "*=2", "estimate:::*", "rocm_smi:::*?device=123"]
        {
            assert!(!matches(pattern, name), "{pattern}");
        }
        assert!(matches("", "") && matches("*", "") && !matches("?", ""));
        assert!(matches("µ?", "µJ"));
        // The search must not be exponential.
        assert!(!matches(&"*a".repeat(40), &"a".repeat(39)));
    }

    #[test]
    fn units_of_energy_are_known() {
        use Quantity::{Energy, Power};
        for (unit, quantity) in [
            ("J", Some(Energy(1.0))),
            (" uJ", Some(Energy(1e-6))),
            ("kWh", Some(Energy(3.6e6))),
            ("W", Some(Power(1.0))),
            ("mW", Some(Power(1e-3))),
            ("\u{b5}W", Some(Power(1e-6))),
            ("kW", Some(Power(1e3))),
            ("Ws", Some(Energy(1.0))),
            ("J/s", Some(Power(1.0))),
            ("\u{3bc}J", Some(Energy(1e-6))),
            ("MJ", Some(Energy(1e6))),
            ("mJ/s", Some(Power(1e-3))),
            ("W*s", Some(Energy(1.0))),
            ("W s", Some(Energy(1.0))),
            ("uWh", Some(Energy(3600.0 * 1e-6))),
            ("[J]", Some(Energy(1.0))),
            ("JOULES", Some(Energy(1.0))),
            ("milliJoules", Some(Energy(1e-3))),
            ("mWatts", Some(Power(1e-3))),
            ("Kilowatts", Some(Power(1e3))),
            ("KW", Some(Power(1e3))),
            ("UW", Some(Power(1e-6))),
            ("kilojoules", Some(Energy(1e3))),
            ("mWh", Some(Energy(3.6))),
            ("watt-hours", Some(Energy(3600.0))),
            ("uj", Some(Energy(1e-6))),
            ("0.5 Joules", Some(Energy(0.5))),
            ("-1 J", None),
            ("#", None),
            ("", None),
            ("xW", None),
            ("w", None),
            ("J*s", None),
            ("FLOP/J", None),
            ("W/m2", None),
            ("news", None),
            // Apparent power, which is more than the power that is used.
            ("VA", None),
        ] {
            assert_eq!(quantity_of_unit(unit), quantity, "{unit}");
        }
    }

    #[test]
    fn names_of_papi_and_others_imply_their_unit() {
        use Quantity::{Energy, Power};
        for (name, quantity) in [
            ("A2rapl:::PACKAGE_ENERGY:PACKAGE0", Some(Energy(1e-9))),
            ("cray_rapl:::DRAM_ENERGY:PACKAGE1", Some(Energy(1e-9))),
            ("rapl:::PACKAGE_ENERGY_CNT:PACKAGE0", None),
            ("rapl:::MAXIMUM_POWER:PACKAGE0", None),
            ("rapl::RAPL_ENERGY_PKG:cpu=0", Some(Energy(1.0 / 4_294_967_296.0))),
            ("powercap:::ENERGY_UJ:ZONE0_SUBZONE1", Some(Energy(1e-6))),
            ("powercap:::MAX_ENERGY_RANGE_UJ:ZONE0", None),
            ("power/energy-pkg/", Some(Energy(1.0 / 4_294_967_296.0))),
            ("host_micpower:::tot0", Some(Power(1e-6))),
            ("nvml:::NVIDIA_A100:device_0:total_energy_consumption", Some(Energy(1e-3))),
            ("nvml:::Tesla_K40c:device_0:power", Some(Power(1e-3))),
            ("nvml:::Tesla_K40c:device_0:power_management_limit", None),
            ("amd_smi:::energy_consumed:device=0", Some(Energy(1e-6))),
            ("amd_smi:::power_average:device=0", Some(Power(1.0))),
            ("cray_pm:::PM_ENERGY:NODE", Some(Energy(1.0))),
            ("cray_pm:::PM_POWER:NODE", Some(Power(1.0))),
            ("intel-rapl:0/energy_uj", Some(Energy(1e-6))),
            ("gpu0/power_mW", Some(Power(1e-3))),
            ("A2coretemp:::hwmon2:power1_input", Some(Power(1e-6))),
            ("coretemp:::hwmon2:energy1_input", Some(Energy(1e-6))),
            ("coretemp:::hwmon2:power1_label", None),
            ("amd_smi:::energy_socket=0", Some(Energy(1e-6))),
            ("amd_smi:::energy_socket=0_core=3", Some(Energy(1e-6))),
            ("Energy [J]", Some(Energy(1.0))),
            ("Energy DRAM [J]", Some(Energy(1.0))),
            ("Power PP0 [W]", Some(Power(1.0))),
            ("energy_kWh", Some(Energy(3.6e6))),
            ("power_raw", None),
            ("torque_j", None),
            ("PAPI_TOT_INS", None),
        ] {
            assert_eq!(quantity_of_name(name), quantity, "{name}");
        }
    }

    #[test]
    fn crays_counters_are_known_by_name() {
        for (name, known) in [
            ("A2coretemp:::craypm:energy", Some(("node", Quantity::Energy(1.0)))),
            ("A3coretemp:::craypm:accel0_energy", Some(("accel0", Quantity::Energy(1.0)))),
            ("coretemp:::craypm:cpu_power", Some(("cpu", Quantity::Power(1.0)))),
            ("coretemp:::craypm:accel0_energy_timestamp", None),
            ("coretemp:::craypm:accel0_power_cap", None),
            ("coretemp:::craypm:freshness", None),
        ] {
            assert_eq!(cray_device(name), known, "{name}");
            assert_eq!(quantity_of_name(name), known.map(|(_, quantity)| quantity));
        }
        assert_eq!(device_name("A2coretemp:::craypm:memory_energy"), "memory");
        assert_eq!(cray_device("coretemp:::hwmon2:power1_input"), None, "a sensor of Linux, not of Cray");
    }
}
