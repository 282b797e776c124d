//! Which counters a pattern means, and how they are described to Score-P.

use super::VARIABLE;
use super::node::Node;
use ampere_model::matches;
use scorep_abi::metric::{MetricProperties, metric_base, metric_mode, metric_value_type};
use std::ffi::{CString, c_char};
use std::ptr::null_mut;

/// One of Score-P's metrics.
pub struct Metric {
    pub name: String,
    /// The sampler's number of it.
    pub device: u32,
    description: String,
}

/// What the aROCm-SMI plugin puts before the names in its traces: analyses that look for its names find ours when they are
/// asked for with it.
const ASYNCHRONOUS_PER_HOST: &str = "A2";

/// Values are microjoules, as those of PAPI and of every other plugin for this counter: analyses go by the name.
const MICRO: i64 = -6;

/// The counters that `pattern` means, without those in `known`. The error is one line.
pub fn select(pattern: &str, node: &Node, known: &[Metric]) -> Result<Vec<Metric>, String> {
    let prefixed = pattern.strip_prefix(ASYNCHRONOUS_PER_HOST);
    let name_of = |metric: &str| {
        if matches(pattern, metric) {
            return Some(metric.to_owned());
        }
        prefixed
            .is_some_and(|pattern| matches(pattern, metric))
            .then(|| format!("{ASYNCHRONOUS_PER_HOST}{metric}"))
    };
    let found = node.devices.iter().filter_map(|device| {
        let name = name_of(&device.metric)?;
        // The words at the end are what `ampere attribute` knows an estimate by.
        let description = format!("{}: energy, {}", device.name, device.quality.as_str());
        Some(Metric { name, device: device.index, description })
    });
    let found: Vec<Metric> = found.collect();
    if found.is_empty() {
        return Err(nothing_is_called(pattern, node));
    }
    Ok(found.into_iter().filter(|new| known.iter().all(|old| old.name != new.name)).collect())
}

fn nothing_is_called(pattern: &str, node: &Node) -> String {
    let names: Vec<&str> = node.devices.iter().map(|device| device.metric.as_str()).collect();
    let there_are = if names.is_empty() {
        "there is none".to_owned()
    } else {
        format!("use one of {}", names.join(", "))
    };
    // Why the one that was asked for is not there, if the collector knows.
    let source = pattern.trim_start_matches(ASYNCHRONOUS_PER_HOST).split(':').next().unwrap_or_default();
    let why = node.notes.iter().find(|note| !source.is_empty() && note.starts_with(source));
    let why = why.map_or_else(String::new, |note| format!(" ({note})"));
    format!("{VARIABLE}: no counter is called {pattern:?}{why}: {there_are}")
}

/// An array with an entry for each metric and one more, whose name is NULL. It and its strings are Score-P's from now on.
pub fn hand_over(metrics: &[Metric]) -> *mut MetricProperties {
    // SAFETY: calloc may be called with any sizes. All-zero entries are valid, and are ends.
    let array: *mut MetricProperties =
        unsafe { libc::calloc(metrics.len() + 1, size_of::<MetricProperties>()) }.cast();
    if metrics.is_empty() || array.is_null() {
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
        // SAFETY: the array has room for one entry more than there are metrics, and is nobody else's yet.
        unsafe { array.add(at).write(properties) };
    }
    array
}

/// An end and nothing before it. Score-P frees the array of a metric, and here is none.
pub fn none() -> *mut MetricProperties {
    struct End(MetricProperties);
    // SAFETY: nobody writes to it: Score-P writes to entries with a name.
    unsafe impl Sync for End {}
    static END: End = End(MetricProperties {
        name: null_mut(),
        description: null_mut(),
        mode: 0,
        value_type: 0,
        base: 0,
        exponent: 0,
        unit: null_mut(),
    });
    (&raw const END.0).cast_mut()
}

/// A copy that `free` can free; NULL where there is no memory.
fn malloced(text: &str) -> *mut c_char {
    let Ok(text) = CString::new(text.replace('\0', " ")) else { return null_mut() };
    // SAFETY: a NUL-terminated string.
    unsafe { libc::strdup(text.as_ptr()) }
}
