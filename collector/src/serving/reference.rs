//! The reference of all metrics, `docs/src/metrics.md`: made from [`metrics::all`].

use super::metrics;
use std::fmt::Write;

const HEAD: &str = "\
# Metrics

<!-- Made by `ampere shipped`: edit collector/src/serving/metrics.rs or crates/figures/src/losses.rs instead. -->

`/metrics` is OpenMetrics text with base units and true counters. Summed over regions, plus idle and lost energy, the
energy counters equal the device's at every scrape; what the limit on the number of series leaves out is in
`region=\"other\"`. A metric without any value is absent. Whoever asks for `text/plain` gets Prometheus' classic text format. A label's
value that is longer than 512 bytes is cut, and ends with a number that is its own.

| metric | type | labels | meaning |
| --- | --- | --- | --- |
";

/// The page.
pub fn markdown() -> String {
    let mut page = HEAD.to_owned();
    for metric in metrics::all() {
        let kind = if metric.is_counter() { "counter" } else { "gauge" };
        let node = if metric.names_node() { &[][..] } else { &["node"] };
        let labels = [node, metric.labels].concat().join(", ");
        let _ = writeln!(page, "| `{}` | {kind} | {labels} | {} |", metric.name(), metric.help);
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_in_the_documentation_is_current() {
        let page = markdown();
        let committed = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/src/metrics.md");
        let committed = std::fs::read_to_string(committed).unwrap_or_default();
        assert_eq!(page, committed, "run: ampere shipped DIR, and copy DIR/docs/metrics.md to docs/src");
    }
}
