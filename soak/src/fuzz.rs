//! What the fuzz targets have done. They are run by `make fuzz`, which leaves in `target/fuzz.json` for each:
//!
//! ```json
//! {"targets": [{"target": "log", "seconds": 3600, "executions": 123456789, "crashes": 0, "peak_megabytes": 300}]}
//! ```

use crate::{Row, Settings, target};
use serde_json::{Value, json};

pub fn rows(settings: &Settings) -> Vec<Row> {
    let what = "fuzzing, hours per target without crash, hang or unbounded memory".to_owned();
    let path = target().join("fuzz.json");
    let found = std::fs::read(&path).ok().and_then(|text| serde_json::from_slice::<Value>(&text).ok());
    let targets = found.as_ref().and_then(|found| found["targets"].as_array()).filter(|all| !all.is_empty());
    let Some(targets) = targets else {
        let why = format!("skipped: no {}; run make fuzz", path.display());
        return vec![Row {
            what,
            found: why,
            good: true,
            details: json!({ "skipped": "make fuzz was not run" }),
        }];
    };
    let hours = |target: &Value| target["seconds"].as_f64().unwrap_or(0.0) / 3600.0;
    let failures: u64 = targets.iter().map(|target| target["crashes"].as_u64().unwrap_or(1)).sum();
    let least = targets.iter().map(hours).fold(f64::INFINITY, f64::min);
    vec![Row {
        what,
        found: format!("{least:.2} of {} targets, {failures} crashes", targets.len()),
        good: failures == 0 && least >= settings.fuzz_hours,
        details: json!({ "targets": targets }),
    }]
}
