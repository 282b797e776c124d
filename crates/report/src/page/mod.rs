//! The content of a run's page: from its summary if it has ended or was written to disk, and from the collector's figures once a
//! second while it continues. `page.js` draws both, and programs may read it as JSON.
//!
//! The names of columns contain their units; indices start at 0; unknown values are `null` or left out. A table's columns are
//! lists of the same length. Names are cut to [`NAME_CHARS_MAX`] characters that can be printed.
//!
//! ```text
//! mod.rs     the data                              of_summary.rs  of a finished run
//! rows.rs    functions, kernels, call paths        outline.rs     all but the tables: run, totals, devices
//! flame.rs   call paths as boxes                   live.rs        call paths and ranks while it runs
//! ranks.rs   groups of ranks, functions x ranks    facts.rs       quality, health of the monitor
//! lanes.rs   what ran under the power curve
//! body.html, page.css, page.js                     what draws it
//! ```

mod facts;
mod flame;
mod lanes;
pub mod live;
mod of_summary;
mod outline;
mod ranks;
mod rows;

use ampere_figures::gauges::GaugeCurve;
use ampere_figures::nodes::job::{Job, Others};
use ampere_figures::summary::{Device, least_trusted};
use ampere_figures::totals::Totals;
use ampere_model::text::printable;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The value of [`Page::schema`].
pub const SCHEMA: &str = "ampere-page/1";
/// Longer names are cut to this number of characters.
pub const NAME_CHARS_MAX: usize = 200;
/// The maximum number of columns: ranks, or groups of consecutive ranks.
pub const RANKS_MAX: usize = 128;
/// The note of a page without command, job and notes.
const ONLY_FIGURES: &str =
    "only the run's own user, or a client with the token, may see the command, the job and notes";
/// The maximum number of devices whose power is shown.
pub const SERIES_MAX: usize = 64;
/// The page's parts that are the same for every run.
pub(crate) const BODY: &str = include_str!("body.html");
pub(crate) const STYLE: &str = include_str!("page.css");
pub(crate) const SCRIPT: &str = include_str!("page.js");

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Page {
    /// Always [`SCHEMA`], so that readers can check it.
    pub schema: String,
    /// Whether the figures still change.
    pub state: State,
    /// The run that the page is about.
    pub run: RunWords,
    /// Sums over the devices that are not part of another device.
    pub totals: Totals,
    /// Sentences with the units of work, the ranges, the most important figures and the hints.
    pub sentences: Vec<String>,
    /// Notes for readers, one line each.
    pub notes: Vec<String>,
    pub devices: Vec<DeviceLine>,
    /// The devices with less energy.
    pub other_devices: OtherDevices,
    /// Power over time of the devices that are not contained in another, at most [`SERIES_MAX`].
    pub power: Vec<PowerSeries>,
    /// The functions in which the ranks are now; `None` if the run has ended.
    #[serde(default)]
    pub now: Option<Now>,
    /// Figures about the quality of the numbers.
    pub quality: Vec<Fact>,
    /// The cost of measuring, and whether the collector keeps up.
    pub monitor: Vec<Fact>,
    /// The consumers of each device, one line for each.
    pub assignment: Vec<String>,
    /// The figures of all nodes, if the page is made by the collector of the first of several nodes, or from a summary of
    /// several. Then the totals are those of all nodes.
    #[serde(default)]
    pub job: Option<Job>,
    /// The tables; `None` if they have not changed since they were sent.
    pub tables: Option<Arc<Tables>>,
}

/// Whether the figures still change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// The run continues: these are the figures up to now.
    Running,
    /// The run has ended, and nothing is missing.
    Over,
    /// The run has ended, and the notes name what is missing.
    Incomplete,
}

/// The run that the page is about.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct RunWords {
    /// The run's id, different for every run.
    pub id: String,
    /// The words of the command; empty for a trace.
    pub command: Vec<String>,
    /// The job of the batch system, as text.
    pub job: Option<String>,
    /// Names of the nodes: `node0000-0999`.
    pub nodes: String,
    pub ranks: u32,
    /// The number of ranks, or of processes if there are no ranks, in words; empty if it is not known.
    #[serde(default)]
    pub who: String,
    /// RFC 3339, UTC; may be empty.
    pub start: String,
    /// The end time, in the same format.
    pub end: String,
    pub seconds: f64,
    /// "measured", "integrated", "simulated" or "estimated".
    pub energy: String,
    /// The run's part of the CPU time of the node, as text; empty if it is not known.
    pub cpu: String,
    /// The exit status of a command that failed, as text: "139, or signal 11 (SIGSEGV)".
    #[serde(default)]
    pub bad_status: Option<String>,
}

/// A device with its total figures.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct DeviceLine {
    pub node: String,
    pub name: String,
    pub metric: String,
    /// The library that reads it, or "trace".
    pub source: String,
    /// "measured", "integrated", "simulated" or "estimated".
    pub energy: String,
    /// "J", or "s" for the device of time.
    pub unit: String,
    /// The device that contains its joules; empty if there is none.
    pub within: String,
    /// The device's energy since the run began.
    pub joules: f64,
    /// The device's power now; `None` if it is unknown or the run has ended.
    pub watts: Option<f64>,
    /// The device's mean power over the run.
    pub mean_watts: Option<f64>,
    /// The power that it always draws; `None` if it is not known.
    #[serde(default)]
    pub baseline_watts: Option<f64>,
    pub samples: u64,
    /// Whether the device's counter stood still when it was last read.
    pub stale: bool,
    /// What the device reports in addition, and comparisons with other measurements.
    pub remarks: Vec<String>,
}

/// The devices with fewer joules than those that are shown.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct OtherDevices {
    /// The devices, in descending order of their joules.
    pub rows: Vec<OtherDevice>,
    /// The number of further devices.
    pub left_out: usize,
}

/// A device of which only the total is shown.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct OtherDevice {
    pub name: String,
    pub node: String,
    /// The device's total, in its unit.
    pub joules: f64,
    /// The unit of its total: "J" or "s".
    pub unit: String,
    /// The functions with the most joules of the device.
    pub most_in: String,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct PowerSeries {
    pub node: String,
    pub name: String,
    /// The quality of its energy.
    pub energy: String,
    /// The device's power now; `None` if unknown.
    pub watts: Option<f64>,
    /// The device's mean power over the run.
    pub mean_watts: Option<f64>,
    /// The power that it always draws; `None` if it is not known.
    #[serde(default)]
    pub baseline_watts: Option<f64>,
    /// The power over time, coarser for older times. Empty if only `watts` is new.
    pub segments: Vec<Segment>,
    /// The device's clock, its power limit and how it was throttled, over time. An update has only the last values.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gauges: Vec<GaugeLine>,
}

/// A gauge of a device over time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GaugeLine {
    /// The quantity, as in [`ampere_figures::gauges::OverTheRun::quantity`].
    pub quantity: String,
    /// The cause of throttling; else empty.
    pub which: String,
    #[serde(flatten)]
    pub curve: GaugeCurve,
}

impl GaugeLine {
    /// The number of a line's last values that every update contains. Between two updates no more values are read.
    const UPDATE_VALUES: usize = 16;

    /// Returns the gauges of a device that are shown over time.
    pub fn of(device: &Device) -> Vec<GaugeLine> {
        let lines = device.gauges.iter().filter_map(|gauge| {
            let (quantity, which) = (printable(&gauge.quantity), printable(&gauge.which));
            Some(GaugeLine { quantity, which, curve: gauge.curve.clone()? })
        });
        lines.collect()
    }

    fn keep_last_values(&mut self) {
        let GaugeCurve { seconds, values } = &mut self.curve;
        seconds.drain(..seconds.len().saturating_sub(GaugeLine::UPDATE_VALUES));
        values.drain(..values.len().saturating_sub(GaugeLine::UPDATE_VALUES));
    }
}

/// Power in steps of equal length.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Segment {
    /// Seconds since the device's first sample.
    pub begin: f64,
    /// The length of a step in seconds.
    pub step: f64,
    /// The mean of each step.
    pub watts: Vec<Option<f64>>,
}

/// The current functions of the ranks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Now {
    /// The functions that the most ranks are executing, in descending order of the number of ranks.
    pub functions: Vec<NowFunction>,
    /// Ranks, or groups of them.
    pub cells: Vec<NowCell>,
    /// The current functions of processes without a rank, as text; empty if there are none, or if there are no ranks.
    #[serde(default)]
    pub others: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NowFunction {
    /// The function's name; empty for ranks that are in no function.
    pub name: String,
    pub ranks: usize,
}

/// A rank, or a group of them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NowCell {
    /// The label of the cell: "3", or "16-31".
    pub label: String,
    /// The index of the function that most ranks of the cell are in; `None` if it is not among [`Now::functions`].
    pub function: Option<u32>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Fact {
    pub label: String,
    pub value: f64,
    /// The unit of the value: "J", "s", "B", "ratio" or nothing.
    pub unit: String,
    /// The text that is shown instead of a value that is not a number.
    pub text: String,
    /// Whether the fact is shown as a warning.
    pub warns: bool,
    /// Explains what the figure means.
    pub help: String,
}

/// The tables, which change with the call paths.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Tables {
    /// The names to which all numbers called `name` refer.
    pub names: Vec<String>,
    /// The shorter form in which a name is shown, in the order of the names; `None` if it is shown as it is.
    #[serde(default)]
    pub short_names: Vec<Option<String>>,
    /// The numbers of the names that are MPI functions.
    pub mpi: Vec<u32>,
    /// Exclusive joules of all devices that are not contained in another, by function.
    pub functions: Rows,
    /// The joules by Python function, each including the functions in C that it calls.
    #[serde(default)]
    pub python: Rows,
    /// Exclusive joules of GPUs, by kernel.
    pub kernels: Rows,
    /// Ranks, or groups of them.
    pub ranks: Ranks,
    /// Joules of the largest functions on each group of ranks.
    pub heat: Heat,
    /// Which ranks have waited for which in MPI; empty while the run continues, and if no rank has waited.
    #[serde(default)]
    pub waits: Waits,
    /// The largest call paths, over all ranks; empty while the run continues.
    pub paths: Paths,
    /// Pictures of call paths; the first is of all devices.
    pub flames: Vec<Flame>,
    /// The division of the joules of each shown device.
    pub views: Vec<ViewRows>,
    /// What ran on GPUs and ranks, over the time of [`Page::power`].
    #[serde(default)]
    pub lanes: Vec<Lane>,
    /// The dynamic joules of all devices, if the joules of ranks, of [`Tables::heat`] and of [`Tables::paths`] are dynamic ones.
    #[serde(default)]
    pub dynamic_joules: Option<f64>,
}

/// A table by function or kernel, in descending order of their joules. A column that is not known is empty.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Rows {
    pub name: Vec<u32>,
    /// Exclusive joules of each function.
    pub joules: Vec<f64>,
    /// The dynamic part of the joules, which is used above what the device draws in any case; empty if it is not known. If it is
    /// known, the rows are sorted by it, and the least and the most refer to it.
    #[serde(default)]
    pub dynamic_joules: Vec<f64>,
    /// The least possible joules.
    pub least_joules: Vec<f64>,
    /// The most possible joules.
    pub most_joules: Vec<Option<f64>>,
    /// Joules of each function, including the functions that it called.
    pub inclusive_joules: Vec<f64>,
    /// Exclusive seconds of each function.
    pub seconds: Vec<f64>,
    /// The number of calls; 0 if it was sampled.
    pub calls: Vec<u64>,
    /// The part of the joules that was used while waiting in MPI; empty, like the next column, if there was no waiting.
    #[serde(default)]
    pub waited_joules: Vec<f64>,
    /// The joules that other ranks used while waiting for this function.
    #[serde(default)]
    pub caused_waiting_joules: Vec<f64>,
    /// The standard error of a sampled function's joules.
    #[serde(default)]
    pub sampled_error_joules: Vec<Option<f64>>,
    /// The device's power while nothing else ran; `None`: below resolution.
    pub watts: Vec<Option<f64>>,
    /// The sum of the functions without a row.
    pub others: Others,
}

/// Ranks, or groups of consecutive ranks.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Ranks {
    /// The label of each group: "3", or "16-31".
    pub label: Vec<String>,
    /// The number of ranks in each group.
    pub count: Vec<u32>,
    /// Whether the last of these groups is of processes without a rank, such as a launcher.
    #[serde(default)]
    pub has_others: bool,
    /// The labels of the ranks whose call paths a page may request by their index here; empty unless the run continues.
    #[serde(default)]
    pub each: Vec<String>,
    /// The differences between ranks, and the ranks that stand out, as text.
    pub words: String,
}

/// Joules of functions on groups of ranks.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Heat {
    /// The names of the functions with the most joules.
    pub name: Vec<u32>,
    /// Exclusive joules: a list for each function, with a sum for each of [`Tables::ranks`].
    pub joules: Vec<Vec<f64>>,
}

/// The joules that ranks used while they waited in MPI, as a table of pairs of ranks, or of groups of consecutive ranks.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Waits {
    /// The label of each group: "3", or "16-31".
    pub label: Vec<String>,
    /// The index of the group that has waited.
    pub waiting: Vec<u32>,
    /// The index of the group that caused it.
    pub cause: Vec<u32>,
    pub joules: Vec<f64>,
}

/// Call paths over all ranks.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Paths {
    /// The call paths, in descending order of their joules.
    pub rows: Vec<PathRow>,
    /// The sum of the call paths without a row.
    pub others: Others,
}

/// The exclusive figures of a call path over all ranks.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct PathRow {
    /// The names on the path, outermost first.
    pub path: Vec<u32>,
    /// The sum of joules over all ranks.
    pub joules: f64,
    /// The joules of the rank with the least.
    pub least: f64,
    pub mean: f64,
    /// The joules of the rank with the most.
    pub most: f64,
    /// The number of ranks that it ran on.
    pub ranks: usize,
    /// The sum of calls over all ranks.
    pub calls: u64,
    /// The sum of joules that all ranks used while waiting in MPI.
    #[serde(default)]
    pub waited_joules: f64,
    /// The sum of joules that other ranks used while waiting for it.
    #[serde(default)]
    pub caused_waiting_joules: f64,
    /// Ranks that stand out, as text.
    pub far: String,
}

/// Call paths as boxes; the first box is the whole, and a caller comes before what it calls.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Flame {
    /// "all devices", or a device and view.
    pub title: String,
    /// The view: "ranks" or "kernels".
    pub view: String,
    /// Joules that were charged to no frame.
    pub idle_joules: f64,
    /// The dynamic part of the idle joules.
    #[serde(default)]
    pub idle_dynamic_joules: f64,
    /// Joules of intervals that cannot be attributed.
    pub lost_joules: f64,
    /// The index of the box above it; 0 for the first box.
    pub caller: Vec<u32>,
    /// The name of the region; it has no meaning for the first box.
    pub name: Vec<u32>,
    /// Exclusive joules of each box.
    pub joules: Vec<f64>,
    /// The dynamic part of the exclusive joules; empty if it is not known.
    #[serde(default)]
    pub dynamic_joules: Vec<f64>,
    pub calls: Vec<u64>,
    /// The joules that each box itself used while waiting in MPI; empty, like the next column, if there was no waiting.
    #[serde(default)]
    pub waited_joules: Vec<f64>,
    /// The joules that other ranks used while waiting for each box itself.
    #[serde(default)]
    pub caused_waiting_joules: Vec<f64>,
    /// Indices of boxes that are the sum of smaller ones.
    pub small: Vec<u32>,
    /// For each group of [`Tables::ranks`], the exclusive joules of each box; empty if they are not known.
    pub by_rank: Vec<Vec<f64>>,
}

/// What ran on a GPU, a rank, or a group of ranks.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Lane {
    pub node: String,
    /// "GPU-0", "rank 3", "ranks 16-31", or the name of a process.
    pub label: String,
    /// The view: "ranks" or "kernels".
    pub view: String,
    /// The start of the first step, in seconds after the first sample of the node's devices.
    pub begin: f64,
    /// The length of a step in seconds.
    pub step: f64,
    /// The region with the most time in each step; `None` if none ran.
    pub name: Vec<Option<u32>>,
    /// The time of this region in percent of the step.
    pub percent: Vec<u8>,
}

/// How a device's joules are divided.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ViewRows {
    /// The index of the device in [`Page::devices`].
    pub device: usize,
    /// "ranks view, by all threads".
    pub title: String,
    /// The name of the view: "ranks" or "kernels".
    pub view: String,
    /// The policy: "active", "time_sliced" or "busy_only".
    pub policy: String,
    /// The sharing: "shared" or "independent".
    pub sharing: String,
    /// Joules that were charged to frames.
    pub attributed_joules: f64,
    /// Joules that were charged to no frame.
    pub idle_joules: f64,
    /// The part of the idle joules that other jobs used.
    #[serde(default)]
    pub other_jobs_joules: f64,
    /// Joules that cannot be attributed.
    pub lost_joules: f64,
    /// The difference between these three and the total of the device.
    pub conservation_error_joules: f64,
    /// The dynamic joules of the device, if its rows have them.
    #[serde(default)]
    pub dynamic_joules: Option<f64>,
    /// Joules of each function or kernel.
    pub rows: Rows,
    /// Joules of each location group.
    pub groups: Rows,
    /// Notes for readers of the view.
    pub remarks: Vec<String>,
}

impl Page {
    pub fn with_job(&self, job: &Job) -> Page {
        let mut page = self.clone();
        page.totals = job.totals.clone();
        let names: Vec<String> = job.nodes.iter().map(|node| node.node.clone()).collect();
        page.run.nodes = printable(&crate::first::names::nodes_of(&names));
        page.run.ranks = job.nodes.iter().map(|node| node.ranks as u32).sum();
        page.run.energy = least_trusted(job.nodes.iter().map(|node| node.energy.as_str())).to_owned();
        page.sentences = job.sentences();
        page.job = Some(job.for_page());
        page
    }

    /// Returns the part of a live page that every user of the node may see: names, devices and figures.
    pub fn for_everybody(&self) -> Page {
        let mut page = self.clone();
        page.run.command.clear();
        (page.run.job, page.run.bad_status) = (None, None);
        page.notes = vec![ONLY_FIGURES.to_owned()];
        page.quality.clear();
        page.monitor.clear();
        page.assignment.clear();
        page
    }

    /// Returns the page for a reader that already has an earlier one, and has `seen` these tables. It has only the latest power,
    /// and has the tables only if they have changed.
    pub fn update(&self, seen: Option<&Arc<Tables>>) -> Page {
        let mut update = self.clone();
        for series in &mut update.power {
            series.segments.clear();
            series.gauges.iter_mut().for_each(GaugeLine::keep_last_values);
        }
        if let (Some(new), Some(seen)) = (&self.tables, seen)
            && Arc::ptr_eq(new, seen)
        {
            update.tables = None;
        }
        update
    }
}

#[cfg(test)]
mod tests;
