//! What the fuzz targets have done. `KEEP=1 make fuzz` adds it up in `fuzz/hours.json`, for each target since it last found
//! something:
//!
//! ```json
//! {"targets": [{"target": "log", "seconds": 3600, "executions": 123456789, "crashes": 0, "peak_megabytes": 300}]}
//! ```

use crate::{Row, Settings};
use serde_json::{Value, json};

const HOURS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../fuzz/hours.json");

pub fn row(settings: &Settings) -> Result<Row, String> {
    let text = std::fs::read(HOURS).map_err(|why| format!("{HOURS}: {why}"))?;
    let kept: Value = serde_json::from_slice(&text).map_err(|why| format!("{HOURS}: {why}"))?;
    let targets = kept["targets"].as_array().filter(|all| !all.is_empty());
    let targets = targets.ok_or_else(|| format!("{HOURS}: no targets; run KEEP=1 make fuzz"))?;
    let hours = |target: &Value| target["seconds"].as_f64().unwrap_or(0.0) / 3600.0;
    let least = targets.iter().map(hours).fold(f64::INFINITY, f64::min);
    let together: f64 = targets.iter().map(hours).sum();
    Ok(Row {
        what: "fuzzing, CPU hours per target since it last crashed, hung or grew without bounds".to_owned(),
        found: format!("{least:.2} at least, {together:.1} of all {} targets, as kept", targets.len()),
        good: least >= settings.fuzz_hours,
        details: json!({ "targets": targets }),
    })
}
