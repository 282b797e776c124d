//! The reference of all metrics, `docs/src/metrics.md`, made from [`metrics::all`].

use super::metrics;
use std::fmt::Write;

const HEAD: &str = "\
# Metrics

<!-- Made from server/src/metrics.rs and crates/figures/src/losses.rs: edit these, and run\nUPDATE_EXPECT=1 cargo test -p ampere-server reference -->

`/metrics` is OpenMetrics text with base units and true counters. At every scrape, the sum of an energy counter over regions,
plus idle and lost energy, is the energy of the device. Series beyond the limit are summed in `region=\"other\"`. A metric
without any value is absent. Requests for `text/plain` get the classic text format of Prometheus. The value of a label is cut
if it is longer than 512 bytes; it then ends with a unique number.

| metric | type | labels | meaning |
| --- | --- | --- | --- |
";

/// Returns the page of the documentation.
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
    #[test]
    fn the_page_in_the_documentation_is_current() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/src/metrics.md");
        expect_test::expect_file![page].assert_eq(&super::markdown());
    }
}
