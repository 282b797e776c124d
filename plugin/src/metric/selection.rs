//! The counters that a pattern selects, and their description for Score-P.

use ampere_model::{Device, matches};
use scorep_abi::metric::{MetricProperties, metric_base, metric_mode, metric_value_type};
use std::ffi::{CString, c_char};
use std::ptr::null_mut;

/// The variable with our patterns. Score-P reads it; we only check that it is set.
pub const VARIABLE: &str = "SCOREP_METRIC_AMPERE_PLUGIN";

/// A counter as Score-P's metric.
pub struct Metric {
    /// The name by which Score-P knows the metric.
    pub name: String,
    /// The index of the device that the counter measures.
    pub device: u32,
    description: String,
}

/// The prefix that the aROCm-SMI plugin puts before metric names. A pattern with this prefix selects our counters under that
/// plugin's names, for analyses that use those names.
const ASYNCHRONOUS_PER_HOST: &str = "A2";

/// Values are microjoules, as in PAPI and every other plugin for these counters.
const MICRO: i64 = -6;

/// No counter has a name that matches the pattern. The text is the line that the user sees.
#[derive(Debug, thiserror::Error)]
#[error("{VARIABLE}: no counter is called {pattern:?}{why}: {alternatives}")]
pub struct NoSuchCounter {
    pattern: String,
    why: String,
    alternatives: String,
}

/// Returns the counters of `devices` that match `pattern`, except those that are in `known`. `notes` may explain why a
/// counter is missing.
pub fn select(
    pattern: &str,
    devices: &[Device],
    notes: &[String],
    known: &[Metric],
) -> Result<Vec<Metric>, NoSuchCounter> {
    let prefixed = pattern.strip_prefix(ASYNCHRONOUS_PER_HOST);
    let name_of = |metric: &str| {
        if matches(pattern, metric) {
            return Some(metric.to_owned());
        }
        prefixed
            .is_some_and(|pattern| matches(pattern, metric))
            .then(|| format!("{ASYNCHRONOUS_PER_HOST}{metric}"))
    };
    let found = devices.iter().filter_map(|device| {
        let name = name_of(&device.metric)?;
        // `ampere attribute` recognises an estimate by the word at the end.
        let description = format!("{}: energy, {}", device.name, device.quality.as_str());
        Some(Metric { name, device: device.index, description })
    });
    let found: Vec<Metric> = found.collect();
    if found.is_empty() {
        return Err(no_such_counter(pattern, devices, notes));
    }
    Ok(found.into_iter().filter(|new| known.iter().all(|old| old.name != new.name)).collect())
}

fn no_such_counter(pattern: &str, devices: &[Device], notes: &[String]) -> NoSuchCounter {
    let names: Vec<&str> = devices.iter().map(|device| device.metric.as_str()).collect();
    let alternatives = if names.is_empty() {
        "there is none".to_owned()
    } else {
        format!("use one of {}", names.join(", "))
    };
    // The collector may have noted why the counter is missing.
    let source = pattern.trim_start_matches(ASYNCHRONOUS_PER_HOST).split(':').next().unwrap_or_default();
    let why = notes.iter().find(|note| !source.is_empty() && note.starts_with(source));
    let why = why.map_or_else(String::new, |note| format!(" ({note})"));
    NoSuchCounter { pattern: pattern.to_owned(), why, alternatives }
}

/// Returns an array with an entry for each metric, and a last entry whose name is NULL. Score-P then owns the
/// array and its strings.
pub fn hand_over(metrics: &[Metric]) -> *mut MetricProperties {
    if metrics.is_empty() {
        return none();
    }
    // SAFETY: calloc may be called with any sizes. An all-zero entry is a valid last entry. Score-P frees the array
    // with `free` (`scorep_abi::guarantees`, FREES WITH FREE).
    let array: *mut MetricProperties =
        unsafe { libc::calloc(metrics.len() + 1, size_of::<MetricProperties>()) }.cast();
    if array.is_null() {
        return none();
    }
    for (at, metric) in metrics.iter().enumerate() {
        let properties = MetricProperties {
            name: malloced(&metric.name),
            description: malloced(&metric.description),
            mode: metric_mode::ACCUMULATED_START,
            value_type: metric_value_type::UINT64,
            base: metric_base::DECIMAL,
            exponent: MICRO,
            unit: malloced("J"),
        };
        // SAFETY: the array has one entry more than there are metrics.
        unsafe { array.add(at).write(properties) };
    }
    array
}

/// Returns an array without metrics. Score-P frees an array together with its first metric, and so never this one.
pub fn none() -> *mut MetricProperties {
    struct End(MetricProperties);
    // SAFETY: it is never written: Score-P writes to entries with a name.
    unsafe impl Sync for End {}
    static END: End = End(MetricProperties::EMPTY);
    (&raw const END.0).cast_mut()
}

/// Returns a copy for `free`; NULL if there is no memory.
fn malloced(text: &str) -> *mut c_char {
    let Ok(text) = CString::new(text.replace('\0', " ")) else { return null_mut() };
    // SAFETY: a NUL-terminated string.
    unsafe { libc::strdup(text.as_ptr()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::strings;
    use ampere_model::Quality;

    fn devices() -> Vec<Device> {
        let device = |index, metric: &str| Device {
            index,
            name: format!("GPU-{index}"),
            metric: metric.to_owned(),
            source: "rocm_smi".to_owned(),
            quality: Quality::Measured,
            resolution_joules: 1e-6,
            kind: "gpu".to_owned(),
            pci: String::new(),
            description: String::new(),
            contains: Vec::new(),
            wraps_at: None,
            baseline_microwatts: None,
        };
        vec![device(0, "rocm_smi:::energy_count:device=0"), device(1, "rocm_smi:::energy_count:device=1")]
    }

    fn names(metrics: &[Metric]) -> Vec<&str> {
        metrics.iter().map(|metric| metric.name.as_str()).collect()
    }

    #[test]
    fn a_pattern_selects_each_counter_once_and_under_the_names_that_it_uses() {
        let devices = devices();
        let all = select("*", &devices, &[], &[]).unwrap();
        assert_eq!(names(&all), ["rocm_smi:::energy_count:device=0", "rocm_smi:::energy_count:device=1"]);
        assert_eq!(all[1].device, 1);
        assert!(select("rocm_smi:::energy_count:device=*", &devices, &[], &all).unwrap().is_empty());
        let prefixed = select("A2rocm_smi:::energy_count:device=1", &devices, &[], &all).unwrap();
        assert_eq!(names(&prefixed), ["A2rocm_smi:::energy_count:device=1"]);
    }

    #[test]
    fn a_pattern_without_a_counter_is_refused_with_the_reason_and_the_alternatives() {
        let notes = ["cray_pm: no such directory".to_owned()];
        let refused = select("A2cray_pm:::energy", &devices(), &notes, &[]).err().unwrap().to_string();
        assert!(refused.contains("\"A2cray_pm:::energy\" (cray_pm: no such directory)"), "{refused}");
        assert!(
            refused.ends_with("rocm_smi:::energy_count:device=0, rocm_smi:::energy_count:device=1"),
            "{refused}"
        );
        let refused = select("*", &[], &[], &[]).err().unwrap().to_string();
        assert!(refused.ends_with("there is none"), "{refused}");
    }

    #[test]
    fn the_list_for_score_p_ends_with_an_entry_without_a_name() {
        let metrics = select("*", &devices(), &[], &[]).unwrap();
        let list = hand_over(&metrics);
        // SAFETY: the list has an entry for each metric and one more; Score-P frees the list and its strings in the same way.
        unsafe {
            for (at, metric) in metrics.iter().enumerate() {
                let entry = *list.add(at);
                assert_eq!(strings::owned(entry.name), metric.name);
                assert_eq!((strings::owned(entry.unit), entry.exponent), ("J".to_owned(), MICRO));
                [entry.name, entry.description, entry.unit].iter().for_each(|text| libc::free(text.cast()));
            }
            assert!((*list.add(metrics.len())).name.is_null());
            libc::free(list.cast());
            assert!((*hand_over(&[])).name.is_null());
        }
    }
}
