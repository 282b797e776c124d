//! What is on record of the fuzz targets, which are not run here. `KEEP=1 make fuzz` adds it up in `fuzz/hours.json`, for each target
//! since it last stopped:
//!
//! ```json
//! {"targets": [{"target": "log", "seconds": 3600, "executions": 123456789, "crashes": 0, "peak_megabytes": 300}]}
//! ```

use serde_json::{Value, json};

const HOURS: &str = include_str!("../../fuzz/hours.json");

pub struct Record {
    pub sentence: String,
    pub details: Value,
}

pub fn record() -> Record {
    let kept: Value = serde_json::from_str(HOURS).unwrap_or_default();
    let targets = kept["targets"].as_array().map_or(&[][..], Vec::as_slice);
    let hours = |target: &Value| target["seconds"].as_f64().unwrap_or(0.0) / 3600.0;
    let each = targets.iter().map(|target| {
        format!(
            "{} {:.2} (commit {})",
            target["target"].as_str().unwrap_or_default(),
            hours(target),
            target["last_commit"].as_str().unwrap_or("unknown")
        )
    });
    Record {
        sentence: format!(
            "CPU hours of each fuzz target since it last stopped, by fuzz/hours.json: {}",
            each.collect::<Vec<_>>().join(", ")
        ),
        details: json!({ "fuzz": targets }),
    }
}

#[cfg(test)]
mod tests {
    /// A record is no result of a run: it says what is kept, and of each target how much.
    #[test]
    fn every_target_on_record_is_told() {
        let record = super::record();
        let targets = record.details["fuzz"].as_array().expect("targets");
        assert!(!targets.is_empty());
        for target in targets {
            assert!(
                record.sentence.contains(target["target"].as_str().expect("a name")),
                "{}",
                record.sentence
            );
        }
    }
}
