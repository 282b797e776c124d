//! Delays and baselines as `[[device]]` sections, which the user pastes into a file of settings.

/// The delay and the idle power that were found for a counter.
pub struct Setting {
    pub name: String,
    pub metric: String,
    /// The delay in seconds, 0 or more.
    pub delay: f64,
    /// The power while the load was idle, in watts.
    pub idle_watts: f64,
    /// When and how it was measured, on one line.
    pub how: String,
}

pub fn sections(settings: &[Setting]) -> String {
    settings.iter().map(section).collect::<Vec<_>>().join("\n")
}

fn section(setting: &Setting) -> String {
    let metric = escape_pattern(&setting.metric);
    let is_literal = !metric.contains('\'') && !metric.contains(char::is_control);
    // A literal string of TOML keeps the backslashes of the pattern.
    let metric = if is_literal { format!("'{metric}'") } else { quoted(&metric) };
    format!(
        "[[device]]\nname = {}\nmetric = {metric}\n# ampere calibrate, {}\ndelay = \"{:.1}ms\"\nbaseline_watts = {:.1}\ncalibrated = true\n",
        // In a device's name, `$` starts a reference to a group of the pattern, so it is doubled.
        quoted(&setting.name.replace('$', "$$")),
        setting.how,
        setting.delay * 1e3,
        setting.idle_watts.max(0.0)
    )
}

/// Returns a basic string of TOML. Its escapes are those of JSON, but TOML also requires one for DEL (U+007F).
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string().replace('\u{7f}', "\\u007f")
}

/// Returns a regular expression that matches this text and nothing else.
fn escape_pattern(text: &str) -> String {
    let escaped = text.chars().flat_map(|c| [Some('\\').filter(|_| r"\.+*?()|[]{}^$".contains(c)), Some(c)]);
    escaped.flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ampere_settings::Config;

    fn setting(name: &str, metric: &str, milliseconds: f64) -> Setting {
        let how = "2026-11-20, on n1: an estimate, by 20 periods of 1 s".to_owned();
        Setting {
            name: name.to_owned(),
            metric: metric.to_owned(),
            delay: milliseconds * 1e-3,
            idle_watts: 50.04,
            how,
        }
    }

    #[test]
    fn each_counter_has_a_section() {
        let text = sections(&[
            setting("GPU-0", "rocm_smi:::energy_count:device=0", 119.84),
            setting("package-0", "rapl:::energy:package-0", 0.0),
        ]);
        assert_eq!(
            text,
            r#"[[device]]
name = "GPU-0"
metric = 'rocm_smi:::energy_count:device=0'
# ampere calibrate, 2026-11-20, on n1: an estimate, by 20 periods of 1 s
delay = "119.8ms"
baseline_watts = 50.0
calibrated = true

[[device]]
name = "package-0"
metric = 'rapl:::energy:package-0'
# ampere calibrate, 2026-11-20, on n1: an estimate, by 20 periods of 1 s
delay = "0.0ms"
baseline_watts = 50.0
calibrated = true
"#
        );
    }

    #[test]
    fn a_section_applies_to_its_counter_with_any_name() {
        let settings = [
            setting("GPU $", r"a'b.c\d", 1.0),
            setting("\"x\"\n\u{7f}", "m\u{7f}\t[0]", 2.0),
            setting("other", "axb", 3.0),
        ];
        let config = Config::parse(&sections(&settings), "pasted").unwrap();
        for (device, setting) in config.devices.iter().zip(&settings) {
            assert_eq!(device.name_for("n1", &setting.metric).as_deref(), Some(setting.name.as_str()));
            assert_eq!(device.delay.as_secs_f64(), setting.delay);
        }
        assert_eq!(config.devices[0].name_for("n1", "a'bxc\\d"), None, "another counter");
    }
}
