//! Finds which GPUs a process may use, by the environment variables that the vendors' runtimes read.
//!
//! | runtime | what it does |
//! | --- | --- |
//! | ROCr | `ROCR_VISIBLE_DEVICES` chooses among the node's GPUs; if it is empty, none |
//! | HIP | `HIP_VISIBLE_DEVICES`, or, if it is not set or empty, `CUDA_VISIBLE_DEVICES`, chooses among the GPUs that ROCr left |
//! | OpenCL on ROCr | `GPU_DEVICE_ORDINAL` instead; Slurm sets it together with the others, so it counts only if it is alone |
//! | CUDA | `CUDA_VISIBLE_DEVICES` chooses among the node's GPUs; if it is empty, none |
//!
//! An entry is a number or a UUID (`GPU-<hex>`, or `MIG-<hex>` for a part of a GPU). A list ends at the first entry that is
//! neither, such as -1.

use ampere_model::gpu_of_score_p_plugin;

/// The vendor of the GPU that a counter or a stream belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vendor {
    /// AMD: a metric's name contains `rocm_smi`, `amdsmi` or `amd_smi`, or is one of Score-P's plugin for `rocm_smi`; a stream's
    /// name starts with `HIP`.
    Amd,
    /// NVIDIA: a metric's name contains `nvml`; a stream's name starts with `CUDA`.
    Nvidia,
    /// The vendor is not known.
    Unknown,
}

impl Vendor {
    /// Returns the vendor in a metric's name: `rocm_smi:::energy_count:device=0` is AMD's.
    pub fn of_metric(metric: &str) -> Vendor {
        let matches = |words: &[&str]| words.iter().any(|word| metric.contains(word));
        match () {
            () if matches(&["rocm_smi", "amdsmi", "amd_smi"]) => Vendor::Amd,
            () if gpu_of_score_p_plugin(metric).is_some() => Vendor::Amd,
            () if matches(&["nvml"]) => Vendor::Nvidia,
            () => Vendor::Unknown,
        }
    }

    /// Returns the vendor in a stream's name: `HIP[0:0]` is on an AMD GPU.
    pub fn of_stream(name: &str) -> Vendor {
        match () {
            () if name.starts_with("HIP") => Vendor::Amd,
            () if name.starts_with("CUDA") => Vendor::Nvidia,
            () => Vendor::Unknown,
        }
    }

    /// Whether both may be the vendor of the same GPU.
    pub fn may_equal(self, other: Vendor) -> bool {
        self == other || self == Vendor::Unknown || other == Vendor::Unknown
    }
}

/// The form in which a list names a GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// The GPU's number on the node.
    Number(u32),
    /// The identifier of the GPU, or of one of its parts.
    Uuid(String),
}

/// The GPUs that a process sees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Visible {
    /// The GPUs in the order in which the runtime numbers them.
    pub entries: Vec<Entry>,
    /// The variables that determine this, such as `ROCR_VISIBLE_DEVICES=3`.
    pub because: String,
}

/// Returns the GPUs that a process sees; `None` if no variable restricts it to some of the node's GPUs. `environment`:
/// `NAME=value`.
pub fn visible(environment: &[String], vendor: Vendor) -> Option<Visible> {
    // A variable that is set but empty hides all GPUs from ROCr and from CUDA, and none from HIP.
    let variable = |name: &'static str| variable(environment, name).map(|text| (name, text));
    let filled = |name: &'static str| variable(name).filter(|(_, text)| !text.is_empty());
    let (first, second) = match vendor {
        Vendor::Nvidia => (variable("CUDA_VISIBLE_DEVICES"), None),
        Vendor::Amd | Vendor::Unknown => {
            let hip = filled("HIP_VISIBLE_DEVICES").or_else(|| filled("CUDA_VISIBLE_DEVICES"));
            match variable("ROCR_VISIBLE_DEVICES") {
                Some(rocr) => (Some(rocr), hip),
                None => (hip.or_else(|| filled("GPU_DEVICE_ORDINAL")), None),
            }
        }
    };
    let (name, text) = first?;
    let outer = Visible { entries: parse(text), because: assignment_text(name, text) };
    let Some((name, text)) = second else { return Some(outer) };
    let mut entries = Vec::new();
    let inner = parse(text);
    for entry in &inner {
        match entry {
            Entry::Number(number) => match outer.entries.get(*number as usize) {
                Some(chosen) => entries.push(chosen.clone()),
                None => break,
            },
            Entry::Uuid(_) => entries.push(entry.clone()),
        }
    }
    // Both variables have the node's numbers, as some launchers set them. HIP would find no GPU at all, so if the process uses
    // one, it does so through ROCr.
    if entries.is_empty() && !inner.is_empty() {
        return Some(outer);
    }
    Some(Visible { entries, because: format!("{} and {}", outer.because, assignment_text(name, text)) })
}

pub fn variable<'a>(environment: &'a [String], name: &str) -> Option<&'a str> {
    environment.iter().find_map(|entry| entry.strip_prefix(name)?.strip_prefix('=').map(str::trim))
}

fn assignment_text(name: &str, text: &str) -> String {
    if text.is_empty() { format!("{name} is empty") } else { format!("{name}={text}") }
}

fn parse(text: &str) -> Vec<Entry> {
    let mut entries = Vec::new();
    for entry in text.split(',').map(str::trim) {
        let entry = match entry.parse() {
            Ok(number) => Entry::Number(number),
            Err(_) if entry.starts_with("GPU-") || entry.starts_with("MIG-") => Entry::Uuid(entry.to_owned()),
            Err(_) => break,
        };
        if !entries.contains(&entry) {
            entries.push(entry);
        }
    }
    entries
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the GPUs that a process with this environment can see, as text.
    fn sees(environment: &str, vendor: Vendor) -> String {
        let environment: Vec<String> = environment.split_whitespace().map(str::to_owned).collect();
        let Some(visible) = visible(&environment, vendor) else { return "all".to_owned() };
        let entries = visible.entries.iter().map(|entry| match entry {
            Entry::Number(number) => number.to_string(),
            Entry::Uuid(uuid) => uuid.clone(),
        });
        entries.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn variables_determine_what_is_visible() {
        use Vendor::{Amd, Nvidia, Unknown};
        for (environment, vendor, expected) in [
            ("", Amd, "all"),
            ("PATH=/bin", Amd, "all"),
            ("ROCR_VISIBLE_DEVICES=3", Amd, "3"),
            ("ROCR_VISIBLE_DEVICES=3,1", Amd, "3 1"),
            ("ROCR_VISIBLE_DEVICES=", Amd, ""),
            ("ROCR_VISIBLE_DEVICES=-1", Amd, ""),
            ("ROCR_VISIBLE_DEVICES=2,-1,3", Amd, "2"),
            ("ROCR_VISIBLE_DEVICES=2,2,3", Amd, "2 3"),
            ("ROCR_VISIBLE_DEVICES=0,GPU-a70564cccd47836c", Amd, "0 GPU-a70564cccd47836c"),
            // HIP numbers the GPUs that ROCr left.
            ("ROCR_VISIBLE_DEVICES=4,5 HIP_VISIBLE_DEVICES=1", Amd, "5"),
            ("ROCR_VISIBLE_DEVICES=4,5 HIP_VISIBLE_DEVICES=1,0", Amd, "5 4"),
            ("ROCR_VISIBLE_DEVICES=4,5 HIP_VISIBLE_DEVICES=-1", Amd, ""),
            ("ROCR_VISIBLE_DEVICES=4,5 HIP_VISIBLE_DEVICES=0,7,1", Amd, "4"),
            ("ROCR_VISIBLE_DEVICES=4 CUDA_VISIBLE_DEVICES=0", Amd, "4"),
            // If both have the same number, HIP would find no GPU, so ROCr's variable is used.
            ("ROCR_VISIBLE_DEVICES=4 HIP_VISIBLE_DEVICES=4 GPU_DEVICE_ORDINAL=4", Amd, "4"),
            ("ROCR_VISIBLE_DEVICES=4 GPU_DEVICE_ORDINAL=4", Amd, "4"),
            ("HIP_VISIBLE_DEVICES=2", Amd, "2"),
            ("HIP_VISIBLE_DEVICES=2 CUDA_VISIBLE_DEVICES=1", Amd, "2"),
            ("HIP_VISIBLE_DEVICES= CUDA_VISIBLE_DEVICES=1", Amd, "1"),
            ("HIP_VISIBLE_DEVICES=", Amd, "all"),
            ("GPU_DEVICE_ORDINAL=1", Amd, "1"),
            ("CUDA_VISIBLE_DEVICES=1", Unknown, "1"),
            // Slurm sets AMD's variables on NVIDIA's nodes, too.
            ("CUDA_VISIBLE_DEVICES=2,0 ROCR_VISIBLE_DEVICES=7", Nvidia, "2 0"),
            ("CUDA_VISIBLE_DEVICES=", Nvidia, ""),
            ("CUDA_VISIBLE_DEVICES=MIG-41b2", Nvidia, "MIG-41b2"),
            ("CUDA_VISIBLE_DEVICES=0,none,1", Nvidia, "0"),
            ("ROCR_VISIBLE_DEVICES=7", Nvidia, "all"),
        ] {
            assert_eq!(sees(environment, vendor), expected, "{environment} ({vendor:?})");
        }
    }

    #[test]
    fn the_reason_names_the_variables() {
        let because = |environment: &[&str]| {
            let environment: Vec<String> = environment.iter().map(|entry| (*entry).to_owned()).collect();
            visible(&environment, Vendor::Amd).expect("a restriction").because
        };
        assert_eq!(because(&["ROCR_VISIBLE_DEVICES=3"]), "ROCR_VISIBLE_DEVICES=3");
        assert_eq!(because(&["ROCR_VISIBLE_DEVICES="]), "ROCR_VISIBLE_DEVICES is empty");
        assert_eq!(
            because(&["HIP_VISIBLE_DEVICES=1", "ROCR_VISIBLE_DEVICES=4,5"]),
            "ROCR_VISIBLE_DEVICES=4,5 and HIP_VISIBLE_DEVICES=1"
        );
    }
}
