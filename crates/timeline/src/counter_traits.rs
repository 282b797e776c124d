//! The part of the machine that a counter counts, and the other counters that it includes. The sampler knows these traits, the
//! summary shows them, and the trace contains them, so that a run and its trace agree.

use crate::topology::metric_number;
use ampere_model::{Device, accelerator_of_gpu, cray_device};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// The properties of a counter, without its values.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CounterTraits {
    /// "gpu", "cpu", "memory" or "node"; empty if it is not known.
    pub kind: String,
    /// The metrics of the same node whose joules this metric contains.
    pub contains: Vec<String>,
    /// The value at which the metric's raw values start again at 0.
    #[serde(default)]
    pub wraps_at: Option<u64>,
    /// The power of the device without the job, in microwatts, if its source knows it.
    #[serde(default)]
    pub baseline_microwatts: Option<u64>,
}

impl CounterTraits {
    /// Returns the traits of a counter that this collector reads.
    pub fn of_device(device: &Device) -> CounterTraits {
        CounterTraits {
            kind: device.kind.clone(),
            contains: device.contains.clone(),
            wraps_at: device.wraps_at,
            baseline_microwatts: device.baseline_microwatts,
        }
    }

    /// Returns the traits that a metric's name implies, in a trace that another tool wrote. `metrics`: the names of all
    /// metrics that are devices.
    ///
    /// Cray's counter of the node contains everything in it; that of an accelerator contains the joules of the GPU's own
    /// counter.
    pub fn by_name(metric: &str, metrics: &BTreeSet<String>) -> CounterTraits {
        let named = |kind: &str| CounterTraits { kind: kind.to_owned(), ..CounterTraits::default() };
        let Some((device, _)) = cray_device(metric) else {
            return named(if is_amd_gpu(metric) { "gpu" } else { "" });
        };
        let others = metrics.iter().filter(|other| *other != metric);
        let (kind, contains): (_, Vec<String>) = match device.strip_prefix("accel") {
            Some(number) => {
                let own = number.parse::<u32>().ok();
                let is_own = |gpu: &str| own.is_some() && accelerator_of(gpu, metrics) == own;
                let gpus = others.filter(|other| is_amd_gpu(other) && is_own(other));
                ("gpu", gpus.cloned().collect())
            }
            None if device == "node" => ("node", others.cloned().collect()),
            None => (device, Vec::new()),
        };
        CounterTraits { contains, ..named(kind) }
    }
}

fn is_amd_gpu(metric: &str) -> bool {
    metric.contains("rocm_smi:::") && metric_number(metric).is_some()
}

/// Returns the number of the accelerator that a GPU is counted in.
fn accelerator_of(gpu: &str, metrics: &BTreeSet<String>) -> Option<u32> {
    let gpus = metrics.iter().filter(|metric| is_amd_gpu(metric)).filter_map(|metric| metric_number(metric));
    let accelerators = metrics.iter().filter_map(|metric| cray_device(metric)?.0.strip_prefix("accel"));
    let accelerators = accelerators.filter_map(|number| number.parse().ok());
    accelerator_of_gpu(metric_number(gpu)?, &gpus.collect(), &accelerators.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crays_counters_contain_each_joule_once() {
        let cray = |name: &str| format!("A2coretemp:::craypm:{name}");
        let gpu = |number: u32| format!("A2rocm_smi:::energy_count:device={number}");
        let of = |name: &str, all: &[String]| {
            let traits = CounterTraits::by_name(name, &all.iter().cloned().collect());
            (traits.kind, traits.contains)
        };
        let mut all: Vec<String> = [0, 2, 4, 6].map(gpu).to_vec();
        all.extend(
            ["accel0_energy", "accel1_energy", "accel2_energy", "accel3_energy", "cpu_energy"].map(cray),
        );
        assert_eq!(of(&cray("accel1_energy"), &all), ("gpu".to_owned(), vec![gpu(2)]));
        assert_eq!(of(&cray("cpu_energy"), &all), ("cpu".to_owned(), Vec::new()));
        assert_eq!(of(&gpu(2), &all), ("gpu".to_owned(), Vec::new()));
        let parts = all.len();
        all.push(cray("energy"));
        let (kind, contains) = of(&cray("energy"), &all);
        assert_eq!((kind.as_str(), contains.len()), ("node", parts));
        // Each counter counts one die.
        let all = [gpu(0), gpu(1), cray("accel0_energy"), cray("accel1_energy")];
        assert_eq!(of(&cray("accel1_energy"), &all).1, [gpu(1)]);
    }
}
