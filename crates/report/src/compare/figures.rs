//! The figures of a run that are compared.

use crate::highlights::Sums;
use crate::over_devices::{self, Sum};
use crate::rows::shortened;
use ampere_figures::summary::topmost;
use ampere_figures::summary::{Device, Summary, View};
use ampere_model::sum;
use std::collections::BTreeMap;

/// The text between the regions of a call path.
pub const SEPARATOR: &str = " > ";

/// The subject of compared figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum By {
    /// The run as a whole.
    Run,
    /// Units of work, by name.
    Work,
    /// Devices of the same name on all nodes.
    Device,
    /// The ranks view, by Python function, each with the functions in C that it calls.
    Python,
    /// The ranks view, by region.
    Function,
    /// The kernels view, by region.
    Kernel,
    /// The ranks view, by call path, of all ranks.
    CallPath,
}

/// The kind of joules that tables show.
#[derive(Clone, Copy, Debug, Default)]
pub struct Kind {
    /// Whether all runs have dynamic joules, which tables then show.
    pub has_dynamic: bool,
    /// Whether the joules of called functions are included in those of their callers.
    pub is_inclusive: bool,
}

/// The number by which the sums of a run are divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Per {
    /// Not divided: the figures are sums
    Run,
    /// The number of ranks
    Rank,
    /// The number of nodes
    Node,
}

/// One value for each figure of [`By::figures`].
pub type Values = [f64; 13];

/// A row's figures in one run.
pub struct Figured {
    /// The subject and the name of the row.
    pub key: (By, String),
    pub values: Values,
    /// The standard error of a sampled row, as a fraction of its joules.
    pub error: Option<f64>,
}

const OF_RUNS: [&str; 13] = [
    "seconds",
    "joules",
    "watts",
    "idle_joules",
    "lost_joules",
    "mpi_joules",
    "kernel_joules",
    "static_joules",
    DYNAMIC,
    DYNAMIC_MPI,
    WAITING,
    EDP,
    ED2P,
];
const OF_WORK: [&str; 2] = [PER_UNIT, "units"];
const OF_DEVICES: [&str; 2] = ["joules", "watts"];
const OF_CALLS: [&str; 6] =
    ["exclusive_joules", INCLUSIVE, "exclusive_seconds", "calls", DYNAMIC, INCLUSIVE_DYNAMIC];
const OF_PYTHON: [&str; 3] = ["joules", "seconds", DYNAMIC];
pub const DYNAMIC: &str = "dynamic_joules";
pub const INCLUSIVE: &str = "inclusive_joules";
pub const INCLUSIVE_DYNAMIC: &str = "inclusive_dynamic_joules";
/// The dynamic joules of MPI functions.
pub const DYNAMIC_MPI: &str = "mpi_dynamic_joules";
const WAITING: &str = "waiting_joules";
/// The joules multiplied by the seconds of the run, and by the square of the seconds. A change that saves energy but takes longer
/// may raise these figures.
const EDP: &str = "edp_joule_seconds";
const ED2P: &str = "ed2p_joule_square_seconds";
/// The joules of the run for each unit of work.
pub const PER_UNIT: &str = "joules_per_unit";

impl By {
    /// The tables of a comparison, in their order.
    pub const ALL: [By; 7] =
        [By::Run, By::Work, By::Device, By::Python, By::Function, By::Kernel, By::CallPath];

    /// Returns the names of the subject's figures.
    pub fn figures(self) -> &'static [&'static str] {
        match self {
            By::Run => &OF_RUNS,
            By::Work => &OF_WORK,
            By::Device => &OF_DEVICES,
            By::Python => &OF_PYTHON,
            By::Function | By::CallPath => &OF_CALLS,
            By::Kernel => &OF_CALLS[..4],
        }
    }

    /// Returns the index of the figure that tables show.
    pub fn shown(self, kind: Kind) -> usize {
        let known = |figure: &&str| kind.has_dynamic || !is_of_activity(figure);
        let wanted: &[&str] =
            if kind.is_inclusive { &[INCLUSIVE_DYNAMIC, INCLUSIVE, DYNAMIC] } else { &[DYNAMIC] };
        let at = |figure: &str| self.figures().iter().position(|known| *known == figure);
        wanted.iter().copied().filter(known).find_map(at).unwrap_or_default()
    }

    /// Returns the kind of joules that tables show, in words.
    pub fn head(self, kind: Kind) -> String {
        self.figures()[self.shown(kind)].trim_start_matches("exclusive_").replace('_', " ")
    }

    /// Returns the name as it is written in files.
    pub fn name(self) -> &'static str {
        match self {
            By::Run => "run",
            By::Work => "unit of work",
            By::Device => "device",
            By::Python => "Python function with C code",
            By::Function => "function",
            By::Kernel => "kernel",
            By::CallPath => "call path",
        }
    }

    /// Returns a run's figure in words for people.
    pub fn words(figure: &'static str) -> &'static str {
        match figure {
            "watts" => "watts on average",
            "idle_joules" => "idle joules",
            "lost_joules" => "lost joules",
            "static_joules" => "static joules",
            DYNAMIC => "dynamic joules",
            "mpi_joules" => "joules in MPI functions",
            DYNAMIC_MPI => "dynamic joules in MPI functions",
            WAITING => "joules waiting in MPI",
            "kernel_joules" => "joules while kernels ran",
            EDP => "energy x delay (J s)",
            ED2P => "energy x delay² (J s²)",
            other => other,
        }
    }
}

impl Per {
    /// Returns the name as it is written in files.
    pub fn name(self) -> &'static str {
        match self {
            Per::Run => "run",
            Per::Rank => "rank",
            Per::Node => "node",
        }
    }
}

/// Whether a run's tables show all threads of its ranks first.
pub fn leads(summary: &Summary) -> bool {
    summary.devices.iter().any(|device| device.other_ranks_lead)
}

/// Whether a figure is known only for runs that record which locations were active.
pub fn is_of_activity(figure: &str) -> bool {
    ["static_joules", DYNAMIC, INCLUSIVE_DYNAMIC, DYNAMIC_MPI].contains(&figure)
}

/// Whether a figure is known only for runs in which waits were looked for.
pub fn is_of_waiting(figure: &str) -> bool {
    figure == WAITING
}

/// Whether a run's dynamic joules are known. If `is_inclusive` is set, the inclusive dynamic joules of each function must be
/// known, too, which summaries of older versions lack.
pub fn has_dynamic(summary: &Summary, all_lead: bool, is_inclusive: bool) -> bool {
    let is_known = |view: &View| {
        let rows = || view.own_regions().map(|row| &row.figures);
        !view.is_active() || rows().all(|row| row.inclusive_dynamic_joules.is_some())
    };
    let mut views = topmost(summary).flat_map(|device| &device.views);
    sums_of(summary, all_lead).dynamic.is_some() && (!is_inclusive || views.all(is_known))
}

fn sums_of(summary: &Summary, all_lead: bool) -> Sums<'_> {
    if all_lead { Sums::of(summary) } else { Sums::by_settings(summary) }
}

/// Returns all figures of a run. If `all_lead` is set, they are from the views that tables show; otherwise from the views that
/// the settings chose, which are the same for all runs.
pub fn of(summary: &Summary, all_lead: bool, per: Per) -> Vec<Figured> {
    let sums = sums_of(summary, all_lead);
    let views = |device| match all_lead {
        true => Device::shown(device).collect(),
        false => device.views.iter().collect::<Vec<&View>>(),
    };
    let divisor = match per {
        Per::Run => 1.0,
        Per::Rank => f64::from(summary.run.ranks.max(1)),
        Per::Node => summary.run.nodes.len().max(1) as f64,
    };
    let exact = |by, name: &str, values| Figured { key: (by, name.to_owned()), values, error: None };
    let mut all = vec![exact(By::Run, "", of_run(summary, &sums, divisor))];
    for work in &summary.run.work {
        if let Some(joules) = work.joules_per_unit {
            all.push(exact(By::Work, &work.name, values([joules, work.units], 1.0)));
        }
    }
    for (name, [joules, watts]) in devices(summary) {
        all.push(exact(By::Device, name, values([joules, watts], divisor)));
    }
    for (by, view) in [(By::Function, "ranks"), (By::Kernel, "kernels")] {
        let of_kind = |device| views(device).into_iter().filter(|of| of.view == view);
        let shown: Vec<(&Device, &View)> =
            topmost(summary).flat_map(|device| of_kind(device).map(move |view| (device, view))).collect();
        let (functions, paths) = over_devices::sums(summary, &shown);
        let of_calls = |sum: &Sum| {
            let Sum { joules, inclusive, seconds, calls, dynamic, inclusive_dynamic } = *sum;
            values([joules, inclusive, seconds, calls, dynamic, inclusive_dynamic], divisor)
        };
        let mut push = |key, values, (error, sum): (Option<&f64>, &Sum)| {
            let error = error.filter(|_| sum.joules > 0.0).map(|error| error / sum.joules);
            all.push(Figured { key, values, error });
        };
        for (name, sum) in functions {
            let error = sums.sampled_errors.get(name).filter(|_| by == By::Function);
            push((by, name.to_owned()), of_calls(&sum), (error, &sum));
        }
        if by == By::Function {
            let (of_paths, of_python) = over_devices::sampled_errors(summary, &shown, &paths);
            for (name, sum) in over_devices::by_python(summary, &paths) {
                let figures = [sum.joules, sum.seconds, sum.dynamic];
                push((By::Python, name.to_owned()), values(figures, divisor), (of_python.get(name), &sum));
            }
            for (path, sum) in paths {
                let name = shortened(summary, path).join(SEPARATOR);
                push((By::CallPath, name), of_calls(&sum), (of_paths.get(&path), &sum));
            }
        }
    }
    all
}

fn values<const N: usize>(figures: [f64; N], divisor: f64) -> Values {
    let mut values = Values::default();
    values.iter_mut().zip(figures).for_each(|(value, figure)| *value = figure / divisor);
    values
}

fn of_run(summary: &Summary, sums: &Sums, divisor: f64) -> Values {
    let seconds = summary.run.seconds;
    let mut figures = values(
        [
            0.0,
            sums.joules,
            if seconds > 0.0 { sums.joules / seconds } else { 0.0 },
            sums.idle,
            sums.lost,
            sum(sums.mpi().map(|row| row.1)),
            sum(sums.kernels.iter().map(|row| row.1)),
            sums.dynamic.map_or(0.0, |_| topmost(summary).filter_map(|device| device.static_joules).sum()),
            sums.dynamic.unwrap_or_default(),
            sum(sums.mpi().filter_map(|(name, _)| sums.dynamic_of.get(name)).copied()),
            summary.run.waiting.as_ref().map_or(0.0, |waiting| waiting.joules),
            sums.joules * seconds,
            sums.joules * seconds * seconds,
        ],
        divisor,
    );
    figures[0] = seconds; // ranks run at the same time
    figures
}

/// Returns the joules and the watts of devices by their names, summed over nodes, because another run may be on other nodes.
fn devices(summary: &Summary) -> BTreeMap<&str, [f64; 2]> {
    let mut sums: BTreeMap<&str, [f64; 2]> = BTreeMap::new();
    for device in summary.devices.iter().filter(|device| device.unit == "J") {
        let sum = sums.entry(&device.name).or_default();
        sum[0] += device.total_joules;
        sum[1] +=
            if device.sampled_seconds > 0.0 { device.total_joules / device.sampled_seconds } else { 0.0 };
    }
    sums
}
