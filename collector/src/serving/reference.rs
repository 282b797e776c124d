//! The reference of all metrics, `docs/src/metrics.md`: made from a scrape in which each of them has a series.

use super::metrics::encode;
use super::snapshot::{DeviceFigures, KernelEnergy, RankFigures, RegionEnergy, RegionTime, Snapshot};
use crate::sampling::gauges::Now;
use ampere_timeline::agreement::Check;
use std::fmt::Write;
use std::sync::Arc;

const HEAD: &str = "\
# Metrics

<!-- Made by `ampere shipped`: edit collector/src/serving/metrics.rs instead. -->

`/metrics` is OpenMetrics text with base units and true counters. Summed over regions, plus idle and lost energy, the
energy counters equal the device's at every scrape; what the limit on the number of series leaves out is in
`region=\"other\"`. A metric without any value is absent.

| metric | type | labels | meaning |
| --- | --- | --- | --- |
";

/// The page.
pub fn markdown() -> String {
    let body = encode(Arc::new(example())).unwrap_or_default();
    let mut page = HEAD.to_owned();
    let (mut help, mut kind, mut last) = ("", "", "");
    for line in body.lines() {
        let words = line.split_once(' ').and_then(|(mark, rest)| Some((mark, rest.split_once(' ')?)));
        match words {
            Some(("#", ("HELP", rest))) => help = rest.split_once(' ').map_or("", |(_, help)| help),
            Some(("#", ("TYPE", rest))) => kind = rest.split_once(' ').map_or("", |(_, kind)| kind),
            _ => {
                let Some((name, labels)) = line.split_once('{').filter(|(name, _)| *name != last) else {
                    continue;
                };
                let labels = labels.split("\",").filter_map(|label| label.split_once("=\""));
                let labels: Vec<&str> = labels.map(|(name, _)| name).collect();
                let _ = writeln!(page, "| `{name}` | {kind} | {} | {help} |", labels.join(", "));
                last = name;
            }
        }
    }
    page
}

/// A snapshot without figures in which nothing is absent.
fn example() -> Snapshot {
    let gauge = |quantity: &str| Now { quantity: quantity.to_owned(), which: String::new(), value: 0.0 };
    let gauges =
        ["power_watts", "temperature_celsius", "busy_ratio", "memory_used_bytes", "memory_size_bytes"];
    let device = DeviceFigures {
        watts: Some(0.0),
        gauges: gauges.map(gauge).to_vec(),
        checks: vec![Check { difference_ratio: Some(0.0), ..Check::default() }],
        ..DeviceFigures::default()
    };
    Snapshot {
        devices: vec![device],
        region_energy: vec![RegionEnergy::default()],
        kernel_energy: vec![KernelEnergy::default()],
        region_time: vec![RegionTime::default()],
        ranks: vec![RankFigures::default()],
        node_cpu: Some(Default::default()),
        sampler: Some(Default::default()),
        ..Snapshot::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_in_the_documentation_is_current() {
        let page = markdown();
        let source = include_str!("metrics.rs");
        for name in source.split('"').filter(|text| text.starts_with("ampere_")) {
            assert!(page.contains(&format!("| `{name}")), "{name} is not in the reference");
        }
        let committed = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/src/metrics.md");
        let committed = std::fs::read_to_string(committed).unwrap_or_default();
        assert_eq!(page, committed, "run: ampere shipped DIR, and copy DIR/docs/metrics.md to docs/src");
    }
}
