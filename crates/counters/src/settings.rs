//! What can be set, and the environment variables that set it.

use std::ffi::OsString;
use std::path::PathBuf;

use crate::NAMES;
use crate::select::unknown;

/// Comma-separated names of the sources to open, of [`crate::NAMES`]; `none` for none, `auto` for the default.
pub const ENV_COUNTERS: &str = "AMPERE_COUNTERS";
/// File name of librocm_smi64; one without a slash is looked for as `dlopen` does.
pub const ENV_ROCM_SMI_LIBRARY: &str = "AMPERE_ROCM_SMI_LIBRARY";
/// File name of libamd_smi, likewise.
pub const ENV_AMDSMI_LIBRARY: &str = "AMPERE_AMDSMI_LIBRARY";
/// File name of libnvidia-ml, likewise.
pub const ENV_NVML_LIBRARY: &str = "AMPERE_NVML_LIBRARY";
/// Microjoules per tick of AMD GPUs' energy counters, instead of what the library says.
pub const ENV_ROCM_SMI_RESOLUTION: &str = "AMPERE_ROCM_SMI_RESOLUTION_UJ";
/// Watts of the node when nothing runs.
pub const ENV_IDLE_WATTS: &str = "AMPERE_ESTIMATE_IDLE_WATTS";
/// Watts of a busy core on top of that.
pub const ENV_WATTS_PER_CORE: &str = "AMPERE_ESTIMATE_WATTS_PER_CORE";
/// Where `/proc`, `/sys` and `/dev` are looked for, `/` by default. For tests.
pub const ENV_SYS_ROOT: &str = "AMPERE_SYS_ROOT";

/// Watts of an idle node: a one-socket server with its memory, board, fans and supply, without GPUs, takes 80 to 150.
pub const DEFAULT_IDLE_WATTS: f64 = 100.0;
/// Watts of one busy core: 64-core server CPUs are rated 280 W and take a tenth of that idle, so 4 W a core; a
/// desktop's few fast cores take two to three times as much. "Core" is what Linux calls a CPU: with hyper-threads on
/// and in use, halve it.
pub const DEFAULT_WATTS_PER_CORE: f64 = 4.0;

/// What to open and how. Start from `Settings::default()`, then a configuration file's values, then
/// [`Settings::apply_environment`].
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Names of sources; `None` is automatic: all that have a usable device, else the estimate.
    pub which: Option<Vec<String>>,
    /// Watts of the node when nothing runs; the default is [`DEFAULT_IDLE_WATTS`].
    pub estimate_idle_watts: f64,
    /// Watts per busy core on top of that; the default is [`DEFAULT_WATTS_PER_CORE`].
    pub estimate_watts_per_core: f64,
    /// librocm_smi64's file; `None` searches. A library that is named here is called even where no GPU is in sight.
    pub rocm_smi_library: Option<PathBuf>,
    /// libamd_smi's file, likewise.
    pub amdsmi_library: Option<PathBuf>,
    /// libnvidia-ml's file, likewise.
    pub nvml_library: Option<PathBuf>,
    /// Microjoules per tick instead of what the library says; the kernel's headers say 2^-16 J = 15.2587890625.
    pub rocm_smi_resolution_microjoules: Option<f64>,
    /// Where `proc`, `sys` and `dev` are. Not seen by vendors' libraries, which always look at `/sys`.
    pub sys_root: PathBuf,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            which: None,
            estimate_idle_watts: DEFAULT_IDLE_WATTS,
            estimate_watts_per_core: DEFAULT_WATTS_PER_CORE,
            rocm_smi_library: None,
            amdsmi_library: None,
            nvml_library: None,
            rocm_smi_resolution_microjoules: None,
            sys_root: PathBuf::from("/"),
        }
    }
}

impl Settings {
    /// Overrides with the process's environment. Values that make no sense are left out, with why in `wrong`, a line each.
    pub fn apply_environment(&mut self, wrong: &mut Vec<String>) {
        self.apply_variables(|name| std::env::var_os(name), wrong);
    }

    /// The same from any set of variables. An empty value counts as not set.
    pub fn apply_variables(&mut self, lookup: impl Fn(&str) -> Option<OsString>, wrong: &mut Vec<String>) {
        let get = |name: &str| lookup(name).filter(|value| !value.is_empty());
        if let Some(names) = get(ENV_COUNTERS) {
            self.which = parse_names(&names.to_string_lossy());
        }
        for (name, library) in [
            (ENV_ROCM_SMI_LIBRARY, &mut self.rocm_smi_library),
            (ENV_AMDSMI_LIBRARY, &mut self.amdsmi_library),
            (ENV_NVML_LIBRARY, &mut self.nvml_library),
        ] {
            if let Some(path) = get(name) {
                *library = Some(path.into());
            }
        }
        if let Some(path) = get(ENV_SYS_ROOT) {
            self.sys_root = path.into();
        }
        let mut number = |name: &str, to: &mut f64| {
            let Some(text) = get(name) else { return };
            match text.to_string_lossy().trim().parse() {
                Ok(value) if f64::is_finite(value) && value >= 0.0 => *to = value,
                _ => wrong.push(format!("{name}: {text:?} is no number of 0 or more")),
            }
        };
        number(ENV_IDLE_WATTS, &mut self.estimate_idle_watts);
        number(ENV_WATTS_PER_CORE, &mut self.estimate_watts_per_core);
        let mut resolution = self.rocm_smi_resolution_microjoules.unwrap_or(f64::NAN);
        number(ENV_ROCM_SMI_RESOLUTION, &mut resolution);
        self.rocm_smi_resolution_microjoules = (!resolution.is_nan()).then_some(resolution);
    }
}

/// Whether a value of [`ENV_COUNTERS`] names sources only. The error is one line.
pub fn check_names(text: &str) -> Result<(), String> {
    let wrong =
        parse_names(text).unwrap_or_default().into_iter().find(|name| !NAMES.contains(&name.as_str()));
    wrong.map_or(Ok(()), |name| Err(format!("{ENV_COUNTERS}: {}", unknown(&name))))
}

fn parse_names(text: &str) -> Option<Vec<String>> {
    let names: Vec<String> = text
        .split(',')
        .map(|name| name.trim().to_ascii_lowercase())
        .filter(|name| !name.is_empty())
        .collect();
    match names.as_slice() {
        [] => None,
        [one] if one == "auto" => None,
        [one] if one == "none" => Some(Vec::new()),
        _ => Some(names),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(variables: &[(&str, &str)]) -> (Settings, Vec<String>) {
        let mut settings = Settings::default();
        let mut notes = Vec::new();
        settings.apply_variables(
            |name| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| value.into()),
            &mut notes,
        );
        (settings, notes)
    }

    #[test]
    fn every_variable_sets_its_field() {
        let (settings, notes) = with(&[
            ("AMPERE_COUNTERS", " rocm_smi, Estimate ,"),
            ("AMPERE_ROCM_SMI_LIBRARY", "/x/librocm_smi64.so"),
            ("AMPERE_AMDSMI_LIBRARY", "/x/libamd_smi.so"),
            ("AMPERE_NVML_LIBRARY", "/x/libnvidia-ml.so.1"),
            ("AMPERE_ROCM_SMI_RESOLUTION_UJ", "15.2587890625"),
            ("AMPERE_ESTIMATE_IDLE_WATTS", "250"),
            ("AMPERE_ESTIMATE_WATTS_PER_CORE", "2.5"),
            ("AMPERE_SYS_ROOT", "/made/up"),
        ]);
        assert_eq!(
            settings,
            Settings {
                which: Some(vec!["rocm_smi".into(), "estimate".into()]),
                estimate_idle_watts: 250.0,
                estimate_watts_per_core: 2.5,
                rocm_smi_library: Some("/x/librocm_smi64.so".into()),
                amdsmi_library: Some("/x/libamd_smi.so".into()),
                nvml_library: Some("/x/libnvidia-ml.so.1".into()),
                rocm_smi_resolution_microjoules: Some(15.2587890625),
                sys_root: "/made/up".into(),
            }
        );
        assert!(notes.is_empty());
    }

    #[test]
    fn none_and_auto_and_empty() {
        assert_eq!(with(&[("AMPERE_COUNTERS", "none")]).0.which, Some(vec![]));
        assert_eq!(with(&[("AMPERE_COUNTERS", "auto")]).0.which, None);
        assert_eq!(with(&[("AMPERE_COUNTERS", "")]).0, Settings::default());
    }

    #[test]
    fn names_are_checked() {
        for good in ["", "auto", "none", "rocm_smi", " RAPL , estimate,", "amdsmi,nvml,cray_pm,hwmon"] {
            assert_eq!(check_names(good), Ok(()), "{good:?}");
        }
        assert_eq!(
            check_names("rapl,foo").unwrap_err(),
            "AMPERE_COUNTERS: \"foo\" is not known; there are rocm_smi, amdsmi, nvml, cray_pm, rapl, hwmon, estimate, none \
             and auto"
        );
        assert!(check_names("auto,rapl").is_err(), "auto is no source beside others");
    }

    #[test]
    fn nonsense_is_left_out_and_said() {
        let (settings, notes) =
            with(&[("AMPERE_ESTIMATE_IDLE_WATTS", "many"), ("AMPERE_ROCM_SMI_RESOLUTION_UJ", "?")]);
        assert_eq!(settings, Settings::default());
        assert_eq!(notes.len(), 2);
        assert!(notes[0].contains("AMPERE_ESTIMATE_IDLE_WATTS"), "{notes:?}");
    }
}
