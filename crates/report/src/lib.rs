//! A summary in the forms that people and other programs read.
//!
//! ```text
//! summary.rs      summary.json                  text.rs     summary.txt
//! highlights.rs   what is said first            assignment.rs  which consumer draws from which device
//! nodes.rs        several nodes' summaries as one            missing.rs  ranks that are in none
//! tree.rs         call paths -> a tree          flame.rs    the tree as a picture (SVG)
//! html.rs         one page with all of it       folded.rs   stacks for other programs' pictures
//! curve.rs        power over time (SVG)         compare.rs  runs beside each other
//! rows.rs         a row for each call path      csv.rs, parquet.rs   as a table
//! gauges.rs       what devices report beside their energy    job.rs      the batch system's job
//! clock_text.rs   wall-clock time as text
//! ```

#![forbid(unsafe_code)]

pub mod assignment;
pub mod clock_text;
pub mod compare;
mod csv;
mod curve;
mod flame;
mod folded;
pub mod gauges;
pub mod highlights;
mod html;
pub mod job;
pub mod missing;
pub mod nodes;
#[cfg(feature = "parquet")]
mod parquet;
mod rows;
pub mod summary;
pub mod text;
mod tree;

use crate::highlights::Sums;
use crate::summary::Summary;
use ampere_model::text::{joules, printable};
pub use html::page_mark;

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// The largest rows, as in summary.txt
    Table,
    /// The summary as it is
    Json,
    /// A row for each call path
    Csv,
    /// One page with pictures, which needs nothing beside itself
    Html,
    /// A stack and its microjoules on each line, for flamegraph.pl, inferno, speedscope
    Folded,
    /// The picture alone (SVG)
    Flamegraph,
    /// The same rows as a Parquet file, for pandas, DuckDB, Spark
    Parquet,
    /// The run's trace with the power of each device, for ui.perfetto.dev or chrome://tracing
    Chrome,
}

/// What of a summary is wanted; empty: all.
#[derive(Clone, Debug, Default)]
pub struct Choice {
    pub devices: Vec<String>,
    /// "ranks" or "kernels".
    pub view: Option<String>,
}

impl Choice {
    /// Takes the rest away. The error is one line: what is wanted and not there, and what is.
    pub fn apply(&self, summary: &mut Summary) -> Result<(), String> {
        if !self.devices.is_empty() {
            let unknown = self.devices.iter().find(|name| summary.devices.iter().all(|d| d.name != **name));
            if let Some(name) = unknown {
                let known: Vec<&str> = summary.devices.iter().map(|device| device.name.as_str()).collect();
                return Err(format!("there is no device {name:?}: there is {}", known.join(", ")));
            }
            summary.devices.retain(|device| self.devices.contains(&device.name));
        }
        if let Some(wanted) = &self.view {
            for device in &mut summary.devices {
                device.views.retain(|view| view.view == *wanted);
            }
        }
        Ok(())
    }
}

/// `colour`: for a terminal, which only the table is.
pub fn render(summary: &Summary, format: Format, colour: bool) -> Result<Vec<u8>, String> {
    Ok(match format {
        Format::Table => crate::text::render(summary, colour).into_bytes(),
        Format::Json => {
            let mut text = serde_json::to_vec_pretty(summary).map_err(|e| e.to_string())?;
            text.push(b'\n');
            text
        }
        Format::Csv => csv::render(summary),
        Format::Html => html::render(summary).into_bytes(),
        Format::Folded => folded::render(summary).into_bytes(),
        Format::Flamegraph => flame::document(&tree::whole(summary), &head(summary)).into_bytes(),
        #[cfg(feature = "parquet")]
        Format::Parquet => parquet::render(summary)?,
        #[cfg(not(feature = "parquet"))]
        Format::Parquet => {
            return Err("this build has no Parquet: build it with `--features parquet`".to_owned());
        }
        Format::Chrome => return Err("a summary has no events: see chrome::write".to_owned()),
    })
}

/// What a picture is of, in a line: the command, how much, and how good the figures are.
fn head(summary: &Summary) -> String {
    let run = &summary.run;
    let of = if run.command.is_empty() { run.id.clone() } else { run.command.join(" ") };
    let joules = joules(Sums::of(summary).joules);
    printable(&format!("ampere: {joules} J, {}{}: {of}", run.energy, run.state_words()))
}

#[cfg(test)]
mod tests;
