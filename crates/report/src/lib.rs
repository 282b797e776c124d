//! Writes a summary in the formats that people and other programs read.
//!
//! ```text
//! first/          the first lines of a result        text.rs     summary.txt: these and all tables
//! json.rs         summary.json as text
//! highlights.rs   first sentences of a summary  over_ranks.rs   each function's joules on all ranks
//! baseline.rs     static and dynamic joules in words             other_jobs.rs  what other jobs used
//! tree.rs         call paths as a tree          flame.rs    the tree as a picture (SVG)
//! page/           the figures of a page, and the page itself      folded.rs   stacks for other programs' pictures
//! sensors.rs      counters that differ from power sensors         pprof.rs    a profile for pprof
//! html.rs         report.html, and the live page                  compare/    comparison of runs
//! protobuf.rs     the encoding of pprof's and Perfetto's files
//! rows.rs         a row for each call path      csv.rs, parquet.rs   as a table
//! call_table/     a row for each call           timeline.rs joules over time
//! table.rs        columns as CSV, JSON or Parquet            text_column.rs  a Parquet column of names
//! filter.rs       tiny functions, for the next run
//! green500.rs     what a run fulfils of the methodology for the Green500 list
//! over_devices.rs  the largest devices; calls and seconds of ranks that draw from several devices
//! call_tree.rs     the tree as text
//! waits.rs        energy that ranks used while waiting in MPI, as text and tables       legend.rs  what columns mean
//! work.rs          units of work, and their joules        events.rs  instructions and other events, for each joule
//! ```

#![forbid(unsafe_code)]

mod baseline;
pub mod call_table;
mod call_tree;
pub mod compare;
mod csv;
mod events;
mod filter;
pub mod first;
mod flame;
mod folded;
mod green500;
pub mod highlights;
mod html;
pub mod json;
mod legend;
mod other_jobs;
mod over_devices;
mod over_ranks;
pub mod page;
#[cfg(feature = "parquet")]
mod parquet;
mod pprof;
pub mod protobuf;
mod rows;
mod sensors;
pub mod table;
pub mod text;
#[cfg(feature = "parquet")]
mod text_column;
pub mod timeline;
mod tree;
mod waits;
pub mod work;

use crate::first::screen::Screen;
use crate::highlights::Sums;
use ampere_figures::summary::{Device, Summary, View};
use ampere_model::text::{joules, printable};
pub use call_tree::has_most_joules_in_callees;
pub use html::{live_page, page_mark};
pub use over_ranks::is_mpi_rank;
use std::collections::BTreeSet;

/// The formats of a report, for the option `--format`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// The largest rows, as in summary.txt
    Table,
    /// Each function below its caller, with the joules of everything that it calls
    Tree,
    /// The summary as it is
    Json,
    /// A row for each call path
    Csv,
    /// One page with pictures, which needs no other file
    Html,
    /// A stack and its microjoules on each line, for flamegraph.pl, inferno, speedscope
    Folded,
    /// Only the flame graph, as a picture (SVG)
    Flamegraph,
    /// A profile with the microjoules of each call path, for pprof, speedscope and Pyroscope
    Pprof,
    /// A row for each call path, as a Parquet file for pandas, DuckDB, Spark
    Parquet,
    /// The run's trace with the power of each device, for ui.perfetto.dev or chrome://tracing
    Chrome,
    /// The same in Perfetto's own format, which takes half of the space or less, for ui.perfetto.dev
    Perfetto,
    /// Call paths with their microjoules over time and the power of each device, for profiler.firefox.com
    Firefox,
    /// The run's trace with its joules, in rocmProfileData's tables: an SQLite file, which needs -o
    Sqlite,
    /// Joules and watts by rank, device or region over time, from the run's trace; or the calls of one region
    Timeline,
    /// Functions that are called often and use almost no energy, as a Score-P filter file for the next run
    ScorepFilter,
    /// Which requirements of the power measurement methodology for the Green500 list the run meets, and which it does not
    Green500,
}

impl Format {
    /// Whether the format shows events, which are in a trace but not in a summary.
    pub fn is_of_events(self) -> bool {
        matches!(
            self,
            Format::Chrome | Format::Perfetto | Format::Firefox | Format::Sqlite | Format::Timeline
        )
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// A device that was chosen is not in the summary.
    #[error("there is no device {name:?}: there is {}", known.join(", "))]
    UnknownDevice {
        /// The name that was asked for.
        name: String,
        known: Vec<String>,
    },
    /// A view that was chosen is not in the summary.
    #[error("there is no view {name:?}: there is {}", known.join(", "))]
    UnknownView {
        /// The name that was asked for.
        name: String,
        known: Vec<String>,
    },
    /// The rows cannot be written as Parquet.
    #[cfg(feature = "parquet")]
    #[error(transparent)]
    Parquet(#[from] ::parquet::errors::ParquetError),
    /// The Parquet library was left out.
    #[cfg(not(feature = "parquet"))]
    #[error("this build lacks Parquet: `make build` includes it")]
    NoParquet,
    /// No device has dynamic joules.
    #[error(
        "it is not known which joules are dynamic: that needs the policy active, as in ampere attribute --policy active"
    )]
    NoDynamic,
    /// The format shows events, which are in the trace.
    #[error("a summary has no events: this format needs the trace")]
    NoEvents,
}

/// The part of a summary that is wanted; if nothing is chosen, all of it.
#[derive(Clone, Debug, Default)]
pub struct Choice {
    /// The names of the chosen devices.
    pub devices: Vec<String>,
    /// The chosen view: "ranks" or "kernels".
    pub view: Option<String>,
    /// Whether only dynamic joules are wanted, for pictures and stacks. The other columns of rows are not changed.
    pub dynamic_only: bool,
}

/// The error if kernels were chosen, but none ran.
pub const NO_KERNELS: &str = "this run has no GPU kernels";

impl Choice {
    /// Whether kernels were chosen, but none ran. This is not an error for formats that are tables for programs.
    pub fn is_of_absent_kernels(&self, summary: &Summary, format: Format) -> bool {
        let is_for_people = !matches!(format, Format::Json | Format::Csv | Format::Parquet);
        let mut views = summary.devices.iter().flat_map(|device| &device.views);
        is_for_people
            && self.view.as_deref() == Some("kernels")
            && !views.any(|view| view.view == "kernels" && !view.regions.is_empty())
    }

    /// Removes everything that is not chosen.
    ///
    /// # Errors
    /// The summary does not have a chosen device, the chosen view, or dynamic joules.
    pub fn apply(&self, summary: &mut Summary) -> Result<(), ReportError> {
        if !self.devices.is_empty() {
            let unknown = self.devices.iter().find(|name| summary.devices.iter().all(|d| d.name != **name));
            if let Some(name) = unknown {
                let known = summary.devices.iter().map(|device| device.name.clone()).collect();
                return Err(ReportError::UnknownDevice { name: name.clone(), known });
            }
            summary.devices.retain(|device| self.devices.contains(&device.name));
        }
        if let Some(wanted) = &self.view {
            let views = || summary.devices.iter().flat_map(|device| &device.views);
            if views().next().is_some() && views().all(|view| view.view != *wanted) {
                let known: BTreeSet<String> = views().map(|view| view.view.clone()).collect();
                return Err(ReportError::UnknownView {
                    name: wanted.clone(),
                    known: known.into_iter().collect(),
                });
            }
            for device in &mut summary.devices {
                device.views.retain(|view| view.view == *wanted);
            }
        }
        if self.dynamic_only { keep_dynamic(summary) } else { Ok(()) }
    }
}

/// Replaces all joules by the dynamic joules, and removes the views that have none.
fn keep_dynamic(summary: &mut Summary) -> Result<(), ReportError> {
    for device in &mut summary.devices {
        let idle = |device: &Device, view: &View| {
            device.idle_parts(view).map_or(0.0, |(_, dynamic)| dynamic + view.other_jobs_joules)
        };
        let idle: Vec<f64> = device.views.iter().map(|view| idle(device, view)).collect();
        device
            .views
            .iter_mut()
            .zip(idle)
            .for_each(|(view, idle)| (view.idle_joules, view.lost_joules) = (idle, 0.0));
        device.views.retain(View::is_active);
        device.other_ranks = device.other_ranks.take().filter(View::is_active);
        for view in device.views.iter_mut().chain(&mut device.other_ranks) {
            let regions = view.regions.iter_mut().map(|row| &mut row.figures);
            let rows = view.callpaths.iter_mut().map(|row| &mut row.figures).chain(regions);
            rows.for_each(|figures| {
                figures.exclusive_joules = figures.own_joules();
                figures.inclusive_joules =
                    figures.inclusive_dynamic_joules.unwrap_or(figures.inclusive_joules);
            });
        }
        device.total_joules = device.dynamic_joules.unwrap_or_default();
    }
    summary.devices.retain(|device| !device.views.is_empty());
    if summary.devices.is_empty() { Err(ReportError::NoDynamic) } else { Ok(()) }
}

/// Writes a report of a summary. The screen matters only for the table and the tree.
///
/// # Errors
/// This build does not have the format, or the format cannot be made from a summary.
pub fn render(summary: &Summary, format: Format, screen: Screen) -> Result<Vec<u8>, ReportError> {
    Ok(match format {
        Format::Table => crate::text::render(summary, screen).into_bytes(),
        Format::Tree => call_tree::render(summary, screen).into_bytes(),
        Format::Json => json::text(summary),
        Format::Csv => csv::render(summary),
        Format::Html => page_of(summary).into_bytes(),
        Format::Folded => folded::render(summary).into_bytes(),
        Format::Pprof => pprof::render(summary),
        Format::Flamegraph => {
            let unit = text::own_unit(has_only_dynamic(summary), "J");
            flame::document(&tree::Frames::of(summary).whole(), &head(summary, &unit), &unit).into_bytes()
        }
        #[cfg(feature = "parquet")]
        Format::Parquet => parquet::render(summary)?,
        #[cfg(not(feature = "parquet"))]
        Format::Parquet => return Err(ReportError::NoParquet),
        Format::ScorepFilter => filter::render(summary).into_bytes(),
        Format::Green500 => green500::render(summary).into_bytes(),
        Format::Chrome | Format::Perfetto | Format::Firefox | Format::Sqlite | Format::Timeline => {
            return Err(ReportError::NoEvents);
        }
    })
}

/// Returns the page of a run that has ended. A program that needs only this does not contain the writers of all other formats.
pub fn page_of(summary: &Summary) -> String {
    html::render(summary)
}

/// Whether all joules of the devices are dynamic, as after a choice of dynamic joules.
fn has_only_dynamic(summary: &Summary) -> bool {
    let mut devices = summary.devices.iter();
    !summary.devices.is_empty() && devices.all(|device| device.dynamic_joules == Some(device.total_joules))
}

/// Returns the title of a picture: the command, its joules, and their quality.
fn head(summary: &Summary, unit: &str) -> String {
    let run = &summary.run;
    let of = if run.command.is_empty() { run.id.clone() } else { run.command.join(" ") };
    let sums = Sums::of(summary);
    let dynamic = sums.dynamic.filter(|_| !has_only_dynamic(summary));
    let dynamic = dynamic.map_or_else(String::new, |sum| format!("{} J of them dynamic, ", joules(sum)));
    let joules = joules(sums.joules);
    printable(&format!("ampere: {joules} {unit}, {dynamic}{}{}: {of}", run.energy, run.state_words()))
}

#[cfg(test)]
mod summary_tests;
#[cfg(test)]
mod tests;
