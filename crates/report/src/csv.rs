//! Rows as CSV, with the names of the columns in the first line. Figures are as exact as in `summary.json`.

use super::rows::{COLUMNS, rows};
use ampere_figures::summary::Summary;

pub fn render(summary: &Summary) -> Vec<u8> {
    let mut out = ::csv::WriterBuilder::new().has_headers(false).from_writer(Vec::new());
    // Writing to memory cannot fail.
    let _ = out.write_record(COLUMNS);
    for row in rows(summary) {
        let _ = out.serialize(row);
    }
    out.into_inner().unwrap_or_default()
}
