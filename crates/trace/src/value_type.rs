//! Converts between a metric's value and 64 bits with their type. Rings, the spool and `replay.json` store values in that form.

use otf2::{MetricValue, MetricValueType};
use serde::{Deserialize, Deserializer, Serializer, de::Error};

pub(crate) fn of(value: &MetricValue) -> MetricValueType {
    match value {
        MetricValue::U64(_) => MetricValueType::U64,
        MetricValue::I64(_) => MetricValueType::I64,
        MetricValue::F64(_) => MetricValueType::F64,
    }
}

/// Converts a value to the 64 bits of a type.
pub fn to_bits(value: &MetricValue, of: MetricValueType) -> u64 {
    use MetricValueType::{F64, I64};
    match (of, value) {
        (F64, MetricValue::U64(value)) => (*value as f64).to_bits(),
        (F64, MetricValue::I64(value)) => (*value as f64).to_bits(),
        (F64, MetricValue::F64(value)) => value.to_bits(),
        (_, MetricValue::U64(value)) => *value,
        (_, MetricValue::I64(value)) => *value as u64,
        (I64, MetricValue::F64(value)) => *value as i64 as u64,
        (_, MetricValue::F64(value)) => *value as u64,
    }
}

/// Converts 64 bits of a type to a value.
pub fn from_bits(bits: u64, of: MetricValueType) -> MetricValue {
    match of {
        MetricValueType::I64 => MetricValue::I64(bits as i64),
        MetricValueType::F64 => MetricValue::F64(f64::from_bits(bits)),
        _ => MetricValue::U64(bits),
    }
}

pub(crate) fn serialize<S: Serializer>(of: &MetricValueType, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{of:?}"))
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<MetricValueType, D::Error> {
    let name = String::deserialize(deserializer)?;
    let known = MetricValueType::ALL.iter().find(|of| format!("{of:?}") == name);
    known.copied().ok_or_else(|| D::Error::unknown_variant(&name, &["U64", "I64", "F64"]))
}
