//! Rules that live runs and existing traces must agree on: what a metric's name and unit say about its device.

/// A device's name from its metric's: `rocm_smi:::energy_count:device=0` is `GPU-0`, `rapl:::energy:package-0` is
/// `package-0`, `estimate:::energy` is `node`. Any other metric names its device itself.
pub fn device_name(metric: &str) -> String {
    if let Some((_, name)) = metric.split_once(":::energy:").filter(|(_, name)| !name.is_empty()) {
        return name.to_owned();
    }
    if let Some(at) = metric.find("device=") {
        let digits: String = metric[at + 7..].chars().take_while(char::is_ascii_digit).collect();
        if !digits.is_empty() {
            return format!("GPU-{digits}");
        }
    }
    match metric {
        "estimate:::energy" => "node".to_owned(),
        _ => metric.to_owned(),
    }
}

/// Whether a pattern as Score-P's users write it, with `*` for any text and `?` for any character, is a metric's name.
pub fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) = (pattern.chars().collect(), name.chars().collect());
    let (mut at, mut here) = (0, 0);
    // Where the last star was, and up to where it reaches so far.
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

/// Joules in one of a metric's units. `None` for what is no energy.
pub fn joules_per_unit(unit: &str) -> Option<f64> {
    Some(match unit.trim() {
        "J" | "Joule" | "Joules" | "joules" => 1.0,
        "mJ" => 1e-3,
        "uJ" | "µJ" | "\u{3bc}J" | "microjoules" => 1e-6,
        "nJ" => 1e-9,
        "kJ" => 1e3,
        "Wh" => 3600.0,
        "kWh" => 3.6e6,
        _ => return None,
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
        // No exponential search.
        assert!(!matches(&"*a".repeat(40), &"a".repeat(39)));
    }

    #[test]
    fn units_of_energy_are_known() {
        assert_eq!(joules_per_unit("J"), Some(1.0));
        assert_eq!(joules_per_unit("uJ"), Some(1e-6));
        assert_eq!(joules_per_unit("W"), None);
    }
}
