//! What a page shows of a run: of one that is over or that was written to disk, from its summary; of one that goes on, from the
//! collector's figures once a second. `page.js` draws both, and programs may read it as JSON.
//!
//! Joules, watts and seconds are as they are called; places in lists begin at 0; what is not known is `null` or left out. A table's
//! columns are lists of one length. Names are cut to [`LONGEST_NAME`] characters that can be printed.
//!
//! ```text
//! mod.rs     the data                              of_summary.rs  of a finished run
//! rows.rs    functions, kernels, call paths        outline.rs     all but the tables: run, totals, devices
//! flame.rs   call paths as boxes                   live.rs        call paths and ranks of a run that goes on
//! ranks.rs   groups of ranks, functions x ranks    facts.rs       quality, health of the monitor
//! body.html, page.css, page.js                     what draws it
//! ```

mod facts;
mod flame;
pub mod live;
mod of_summary;
mod outline;
mod ranks;
mod rows;

use crate::summary::least_trusted;
pub use ampere_figures::nodes::job;
use ampere_figures::nodes::job::Others;
pub use ampere_figures::totals::Totals;
use ampere_model::text::printable;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// What [`Page::schema`] is.
pub const SCHEMA: &str = "ampere-page/1";
/// Characters of a name.
pub const LONGEST_NAME: usize = 200;
/// Ranks, or groups of ranks that follow each other, beside each other.
pub const MOST_RANKS: usize = 128;
/// The note of a page without command, job and notes.
const ONLY_FIGURES: &str = "the command, the job and notes are for the run's own user, or with a token";
/// Devices whose power is shown.
pub const MOST_SERIES: usize = 64;
/// The page's parts that are the same for every run.
pub(crate) const BODY: &str = include_str!("body.html");
pub(crate) const STYLE: &str = include_str!("page.css");
pub(crate) const SCRIPT: &str = include_str!("page.js");

/// All of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Page {
    /// [`SCHEMA`].
    pub schema: String,
    /// Whether the figures change yet.
    pub state: State,
    /// What was run.
    pub run: RunWords,
    /// Sums over the devices that no other contains.
    pub totals: Totals,
    /// At most six sentences that say the most important.
    pub sentences: Vec<String>,
    /// What readers should know, one line each.
    pub notes: Vec<String>,
    /// The devices with most joules.
    pub devices: Vec<DeviceLine>,
    /// The others.
    pub other_devices: OtherDevices,
    /// Power over time of the devices that no other contains, at most [`MOST_SERIES`].
    pub power: Vec<PowerSeries>,
    /// Where the ranks are; `None` of a run that is over.
    #[serde(default)]
    pub now: Option<Now>,
    /// How far the numbers can be trusted.
    pub quality: Vec<Fact>,
    /// What measuring costs, and how it keeps up.
    pub monitor: Vec<Fact>,
    /// Which consumer draws from which device, one line each.
    pub assignment: Vec<String>,
    /// All nodes, of a run on several whose first node's collector makes the page, or of a summary of several: then the totals are
    /// theirs.
    #[serde(default)]
    pub job: Option<job::Job>,
    /// `None`: they have not changed since they were sent.
    pub tables: Option<Arc<Tables>>,
}

/// Whether figures change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// It goes on: these are the figures up to now.
    Running,
    /// It is over, and nothing of it is missing.
    Over,
    /// It is over, and the notes say what is missing.
    Incomplete,
}

/// What was run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct RunWords {
    /// Different for every run.
    pub id: String,
    /// Its words; empty of a trace.
    pub command: Vec<String>,
    /// The batch system's job.
    pub job: Option<String>,
    /// Names of the nodes: `node0000-0999`.
    pub nodes: String,
    /// How many ranks.
    pub ranks: u32,
    /// RFC 3339, UTC; may be empty.
    pub start: String,
    /// The same.
    pub end: String,
    /// The time that the joules are of.
    pub seconds: f64,
    /// "measured", "integrated", "simulated" or "estimated".
    pub energy: String,
    /// The run's part of the node's CPU time, in words; empty where that is not known.
    pub cpu: String,
    /// Of a command that failed, its exit status in words: "139, as of SIGSEGV".
    #[serde(default)]
    pub bad_status: Option<String>,
}

/// A device.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct DeviceLine {
    /// Its node's name.
    pub node: String,
    /// Its own name.
    pub name: String,
    /// The name of its counter's metric.
    pub metric: String,
    /// The library that reads it, or "trace".
    pub source: String,
    /// "measured", "integrated", "simulated" or "estimated".
    pub energy: String,
    /// "J", or "s" of time.
    pub unit: String,
    /// The device whose joules contain its own; empty where there is none.
    pub within: String,
    /// Since the run began.
    pub joules: f64,
    /// Its power now; `None` where it is not known, and of a run that is over.
    pub watts: Option<f64>,
    /// Over the run.
    pub mean_watts: Option<f64>,
    /// How many.
    pub samples: u64,
    /// Its counter stood still when last seen.
    pub stale: bool,
    /// What it reports besides, and comparisons with other measurements.
    pub remarks: Vec<String>,
}

/// Devices with less than those that are shown.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct OtherDevices {
    /// Most joules first.
    pub rows: Vec<OtherDevice>,
    /// How many more there are.
    pub left_out: usize,
}

/// One of them.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct OtherDevice {
    /// Its name.
    pub name: String,
    /// Its node's.
    pub node: String,
    /// Its total.
    pub joules: f64,
    /// Of the total.
    pub unit: String,
    /// The functions with most of them.
    pub most_in: String,
}

/// A device's power over time.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct PowerSeries {
    /// The device's node.
    pub node: String,
    /// The device's name.
    pub name: String,
    /// The quality of its energy.
    pub energy: String,
    /// Now.
    pub watts: Option<f64>,
    /// Over the run.
    pub mean_watts: Option<f64>,
    /// In the order of time, the older the coarser. Empty where only `watts` is new.
    pub segments: Vec<Segment>,
}

/// Steps of one length.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Segment {
    /// Seconds since the device's first sample.
    pub begin: f64,
    /// Seconds of a step.
    pub step: f64,
    /// The mean of each step.
    pub watts: Vec<Option<f64>>,
}

/// Where the ranks are.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Now {
    /// The functions that most ranks are in, most ranks first.
    pub functions: Vec<NowFunction>,
    /// Ranks, or groups of them.
    pub cells: Vec<NowCell>,
    /// Where processes are that have no rank, in words; empty if there are none, or no ranks either.
    #[serde(default)]
    pub others: String,
}

/// A function that ranks are in.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NowFunction {
    /// Its name; empty: in no function.
    pub name: String,
    /// How many ranks.
    pub ranks: usize,
}

/// A rank, or a group of them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NowCell {
    /// "3", or "16-31".
    pub label: String,
    /// The place among the functions of the one that most of them are in; `None`: it is not among them.
    pub function: Option<u32>,
}

/// A figure with its name.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Fact {
    /// Its name.
    pub label: String,
    /// Its value.
    pub value: f64,
    /// Of the value: "J", "s", "B", "ratio" or nothing.
    pub unit: String,
    /// In the place of the value, where it is no number.
    pub text: String,
    /// A reader should look at it.
    pub warns: bool,
    /// What it means.
    pub help: String,
}

/// What changes with the call paths.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Tables {
    /// Which all numbers called `name` are places in.
    pub names: Vec<String>,
    /// Those of them that are MPI's.
    pub mpi: Vec<u32>,
    /// Exclusive joules of all devices that no other contains, by function.
    pub functions: Rows,
    /// The same of GPUs, by kernel.
    pub kernels: Rows,
    /// Ranks, or groups of them.
    pub ranks: Ranks,
    /// Functions x ranks.
    pub heat: Heat,
    /// The largest call paths, over all ranks; empty while a run goes on.
    pub paths: Paths,
    /// Pictures of call paths; the first is of all devices.
    pub flames: Vec<Flame>,
    /// How each shown device's joules are divided.
    pub views: Vec<ViewRows>,
}

/// A table by function or kernel, most joules first. A column that is not known is empty.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Rows {
    /// Of the function.
    pub name: Vec<u32>,
    /// Exclusive.
    pub joules: Vec<f64>,
    /// The least that they can be.
    pub least_joules: Vec<f64>,
    /// The most that they can be.
    pub most_joules: Vec<Option<f64>>,
    /// With what it called.
    pub inclusive_joules: Vec<f64>,
    /// Exclusive.
    pub seconds: Vec<f64>,
    /// How often it was called; 0: it was sampled.
    pub calls: Vec<u64>,
    /// The standard error of a sampled function's joules.
    #[serde(default)]
    pub sampled_error_joules: Vec<Option<f64>>,
    /// The device's power while nothing else ran; `None`: below resolution.
    pub watts: Vec<Option<f64>>,
    /// What has no row.
    pub others: Others,
}

/// Ranks, or groups of ranks that follow each other.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Ranks {
    /// "3", or "16-31".
    pub label: Vec<String>,
    /// How many ranks.
    pub count: Vec<u32>,
    /// The last of these groups is of processes without a rank, such as a launcher.
    #[serde(default)]
    pub has_others: bool,
    /// Each of them alone, where a page may ask for its call paths: by the number to ask with. Only while a run goes on.
    #[serde(default)]
    pub each: Vec<String>,
    /// How they differ, and which stand out, in words.
    pub words: String,
}

/// Functions x ranks.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Heat {
    /// Of the functions with most joules.
    pub name: Vec<u32>,
    /// Exclusive joules: a list for each function, with a sum for each of [`Tables::ranks`].
    pub joules: Vec<Vec<f64>>,
}

/// Call paths over all ranks.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Paths {
    /// Most joules first.
    pub rows: Vec<PathRow>,
    /// What has no row.
    pub others: Others,
}

/// A call path over all ranks, exclusive.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct PathRow {
    /// Outermost first.
    pub path: Vec<u32>,
    /// Of all ranks.
    pub joules: f64,
    /// Of the rank with the least.
    pub least: f64,
    /// Of a rank on average.
    pub mean: f64,
    /// Of the rank with the most.
    pub most: f64,
    /// How many ranks it ran on.
    pub ranks: usize,
    /// Of all ranks.
    pub calls: u64,
    /// Ranks that stand out, in words.
    pub far: String,
}

/// Call paths as boxes; the first box is the whole, and a caller comes before what it calls.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Flame {
    /// "all devices", or a device and view.
    pub title: String,
    /// "ranks" or "kernels".
    pub view: String,
    /// Of no frame.
    pub idle_joules: f64,
    /// That cannot be attributed.
    pub lost_joules: f64,
    /// The place of the box that it is below; 0 of the first.
    pub caller: Vec<u32>,
    /// A region's; of the first box it means nothing.
    pub name: Vec<u32>,
    /// Exclusive.
    pub joules: Vec<f64>,
    /// How often it was called.
    pub calls: Vec<u64>,
    /// Places of boxes that are the sum of smaller ones.
    pub small: Vec<u32>,
    /// Exclusive joules of each of [`Tables::ranks`]: a list by box; empty where that is not known.
    pub by_rank: Vec<Vec<f64>>,
}

/// How a device's joules are divided.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ViewRows {
    /// The device's place in [`Page::devices`].
    pub device: usize,
    /// "ranks view, by all threads".
    pub title: String,
    /// "ranks" or "kernels".
    pub view: String,
    /// "time_sliced" or "busy_only".
    pub policy: String,
    /// "shared" or "independent".
    pub sharing: String,
    /// Joules of frames.
    pub attributed_joules: f64,
    /// Joules of no frame.
    pub idle_joules: f64,
    /// Joules that cannot be attributed.
    pub lost_joules: f64,
    /// By how much these three differ from the device's total.
    pub conservation_error_joules: f64,
    /// By function or kernel.
    pub rows: Rows,
    /// By location group.
    pub groups: Rows,
    /// What readers should know.
    pub remarks: Vec<String>,
}

impl Page {
    /// The page of all nodes.
    pub fn with_job(&self, job: &job::Job) -> Page {
        let mut page = self.clone();
        page.totals = job.totals.clone();
        let names: Vec<String> = job.nodes.iter().map(|node| node.node.clone()).collect();
        page.run.nodes = printable(&crate::text::nodes_of(&names));
        page.run.ranks = job.nodes.iter().map(|node| node.ranks as u32).sum();
        page.run.energy = least_trusted(job.nodes.iter().map(|node| node.energy.as_str())).to_owned();
        page.sentences = job.sentences();
        page.job = Some(job.for_page());
        page
    }

    /// What every user of the node may see of a run that goes on: names, devices and figures.
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

    /// What has changed since a page had `seen` these tables: power of now alone, and tables only if they are others.
    pub fn update(&self, seen: Option<&Arc<Tables>>) -> Page {
        let mut update = self.clone();
        update.power.iter_mut().for_each(|series| series.segments.clear());
        if let (Some(new), Some(seen)) = (&self.tables, seen)
            && Arc::ptr_eq(new, seen)
        {
            update.tables = None;
        }
        update
    }
}

/// The page that shows a live run: it asks the collector for the data. `wants_token`: it asks the reader for a token first.
pub fn shell(wants_token: bool) -> String {
    crate::html::live_page(wants_token)
}

#[cfg(test)]
mod tests;
