//! The facts for the first lines: kernels, the functions on CPUs, and the total that all shares refer to.

use crate::over_devices;
use crate::over_ranks;
use ampere_figures::shares::Whole;
use ampere_figures::summary::{Device, Figures, Region, Summary, UNKNOWN_SHARE_MAX, View, topmost, view};
use ampere_model::order::largest_first;
use ampere_model::regions::{is_mpi, is_python};
use ampere_model::sum;
use std::collections::{BTreeMap, HashMap, HashSet};

/// A function that waits has joules, but hardly any dynamic ones. It is pointed out if its fraction of all joules, static ones
/// included, is at least this. The same holds for the row that sums the functions that are not shown.
pub const WAITING_PART_MIN: f64 = 0.05;

/// A function or a kernel over all of its devices.
#[derive(Clone, Debug, Default)]
pub struct Row<'a> {
    pub name: &'a str,
    /// The exclusive joules; dynamic ones if those are known for all rows.
    pub joules: f64,
    /// All exclusive joules, with the static ones.
    pub all_joules: f64,
    /// The least and the most that the joules can be; `None` for sampled rows.
    pub bounds: Option<(f64, f64)>,
    /// The standard error of a sampled row, as a fraction of its joules.
    pub error: Option<f64>,
    pub seconds: f64,
    pub calls: u64,
    /// The mean power in watts, and the lowest and the highest of an interval in which it ran. `None` if it cannot be resolved.
    pub watts: Option<(f64, f64, f64)>,
    /// The devices that it ran on.
    pub devices: Vec<&'a Device>,
}

/// The parts of a run that its first lines show.
pub struct Facts<'a> {
    pub summary: &'a Summary,
    /// The GPUs, in descending order of their joules; those that were not used come last.
    pub gpus: Vec<&'a Device>,
    /// The devices whose joules are divided among functions: all except GPUs if kernels are known, otherwise all.
    pub host_devices: Vec<&'a Device>,
    /// The joules of which all shares are parts. If [`Facts::is_time`], these and the joules of all rows are seconds.
    pub whole: f64,
    /// Whether `whole` is in dynamic joules.
    pub is_dynamic: bool,
    pub kernels: Vec<Row<'a>>,
    pub functions: Vec<Row<'a>>,
    /// The functions of Python programs, each including the functions in C that it called.
    pub python: Vec<Row<'a>>,
    /// The joules of the host devices that are charged to no function, and those that cannot be attributed.
    pub outside: f64,
    pub lost: f64,
    used: HashSet<(&'a str, &'a str)>,
}

impl<'a> Facts<'a> {
    pub fn of(summary: &'a Summary) -> Facts<'a> {
        let whole_devices: Vec<&Device> = topmost(summary).collect();
        let with_rows = |device: &&'a Device| {
            ["ranks", "kernels"].iter().find_map(|name| view(device, name)).map(|view| (*device, view))
        };
        let active: Vec<(&Device, &View)> = whole_devices.iter().filter_map(with_rows).collect();
        let is_dynamic = over_ranks::is_dynamic(&active);
        let mut facts = Facts {
            summary,
            gpus: gpus(summary),
            host_devices: whole_devices.clone(),
            whole: 0.0,
            is_dynamic,
            kernels: Vec::new(),
            functions: Vec::new(),
            python: Vec::new(),
            outside: 0.0,
            lost: 0.0,
            used: used(summary),
        };
        facts.whole = Whole::of(summary).joules(is_dynamic);
        facts.kernels = facts.rows(&facts.gpus, "kernels");
        if !facts.kernels.is_empty() {
            facts.host_devices = host_devices(summary, &facts.gpus);
        } else if whole_devices.is_empty() {
            facts.host_devices = summary.devices.iter().filter(|device| device.unit == "s").collect();
            facts.whole =
                facts.views(&facts.host_devices, "ranks").iter().map(|(_, view)| view.whole()).sum();
        }
        facts.functions = facts.rows(&facts.host_devices, "ranks");
        if facts.functions.iter().any(|row| is_python(row.name)) {
            facts.python = facts.python_functions();
        }
        facts.add_rest();
        let Facts { gpus, used, .. } = &mut facts;
        gpus.sort_by_key(|device| {
            let is_used = used.contains(&(device.node.as_str(), device.name.as_str()));
            (!is_used).then_some((device.node.as_str(), device.name.len(), device.name.as_str()))
        });
        facts
    }

    fn add_rest(&mut self) {
        let views = self.views(&self.host_devices, "ranks");
        let lost = if self.is_dynamic { 0.0 } else { views.iter().map(|(_, view)| view.lost_joules).sum() };
        let of_devices: f64 = match self.is_time() {
            true => self.whole,
            false => self.host_devices.iter().map(|device| self.joules_of(device)).sum(),
        };
        let of_functions: f64 = self.functions.iter().map(|row| row.joules).sum();
        (self.lost, self.outside) = (lost, (of_devices - of_functions - lost).max(0.0));
    }

    /// Whether the run has the time of functions, but no joules.
    pub fn is_time(&self) -> bool {
        self.host_devices.iter().any(|device| device.unit == "s")
    }

    /// Whether most of `outside` is the CPU time of ampere's collector, which the estimate includes.
    pub fn is_outside_mostly_the_collectors(&self) -> bool {
        let Some(cpu) = self.summary.run.node_cpu.filter(|_| self.is_dynamic && self.is_estimated()) else {
            return false;
        };
        let part = cpu.collector_busy_seconds / (cpu.own_busy_seconds + cpu.collector_busy_seconds);
        part * self.whole > 0.5 * self.outside
    }

    /// Returns the part of a device's joules that `whole` includes.
    pub fn joules_of(&self, device: &Device) -> f64 {
        if self.is_dynamic { device.dynamic_joules.unwrap_or_default() } else { device.total_joules }
    }

    fn own(&self, figures: &Figures) -> f64 {
        if self.is_dynamic { figures.own_joules() } else { figures.exclusive_joules }
    }

    /// Returns all joules of the host devices, with the static ones.
    pub fn all_of_host_devices(&self) -> f64 {
        sum(self.host_devices.iter().map(|device| device.total_joules))
    }

    /// Returns the joules of all MPI functions, and the function with the most.
    pub fn mpi(&self) -> (f64, Option<&Row<'a>>) {
        let mpi = || self.functions.iter().filter(|row| is_mpi(row.name));
        (mpi().map(|row| row.joules).sum(), mpi().next())
    }

    /// Whether a process or a GPU stream draws from the device.
    pub fn is_used(&self, device: &Device) -> bool {
        self.used.contains(&(device.node.as_str(), device.name.as_str()))
    }

    /// Returns the cores that other programs on the run's nodes used on average, unless these are few.
    pub fn cores_of_others(&self) -> Option<f64> {
        let run = &self.summary.run;
        run.node_cpu.and_then(|cpu| cpu.cores_of_others(run.nodes.len()))
    }

    /// Returns the cores that other programs used, if these are more than the run itself and its collector used.
    pub fn cores_of_busier_others(&self) -> Option<f64> {
        let cpu = self.summary.run.node_cpu?;
        let own = cpu.own_busy_seconds + cpu.collector_busy_seconds;
        self.cores_of_others().filter(|others| others * cpu.seconds > own)
    }

    pub fn is_estimated(&self) -> bool {
        self.summary.run.energy == "estimated"
    }

    /// Returns the joules of a GPU that kernels used.
    pub fn in_kernels(&self, device: &Device) -> f64 {
        let rows = view(device, "kernels").into_iter().flat_map(|view| &view.regions);
        sum(rows.map(|row| self.own(&row.figures)))
    }

    /// Returns the views of this name that have rows.
    pub fn views(&self, devices: &[&'a Device], name: &str) -> Vec<(&'a Device, &'a View)> {
        devices.iter().filter_map(|device| Some((*device, view(device, name)?))).collect()
    }

    /// Returns the functions of processes that draw from GPUs, with their seconds, the longest first.
    pub fn functions_of_gpu_processes(&self) -> Vec<(&'a str, f64)> {
        let (sums, _) = over_devices::sums(self.summary, &self.views(&self.gpus, "ranks"));
        let mut rows: Vec<(&str, f64)> = sums.into_iter().map(|(name, sum)| (name, sum.seconds)).collect();
        largest_first(&mut rows, |(_, seconds)| *seconds);
        rows
    }

    fn rows(&self, devices: &[&'a Device], name: &str) -> Vec<Row<'a>> {
        let views = self.views(devices, name);
        let errors = sampled_errors(views.iter().map(|(device, view)| (device.node.as_str(), *view)));
        let (sums, _) = over_devices::sums(self.summary, &views);
        let mut rows: BTreeMap<&str, Vec<(&'a Device, &'a Region)>> = BTreeMap::new();
        for (device, view) in &views {
            for region in view.own_regions() {
                rows.entry(&region.region).or_default().push((*device, region));
            }
        }
        let row = |(name, regions): (&'a str, Vec<(&'a Device, &'a Region)>)| {
            let sum = sums.get(name).copied().unwrap_or_default();
            self.row(name, &regions, (sum.seconds, sum.calls as u64), &errors)
        };
        let mut rows: Vec<Row> = rows.into_iter().map(row).collect();
        // If some rows have joules, those without remain, so that the number of rows that are not shown includes them.
        if rows.iter().all(|row| row.all_joules <= 0.0) {
            rows.clear();
        }
        largest_first(&mut rows, |row| row.joules);
        rows
    }

    /// Returns the joules of functions that no Python function is known to have called.
    pub fn outside_python(&self) -> f64 {
        let joules = |rows: &[Row]| sum(rows.iter().map(|row| row.joules));
        (joules(&self.functions) - joules(&self.python)).max(0.0)
    }

    fn python_functions(&self) -> Vec<Row<'a>> {
        let views = self.views(&self.host_devices, "ranks");
        let (_, paths) = over_devices::sums(self.summary, &views);
        let (_, errors) = over_devices::sampled_errors(self.summary, &views, &paths);
        let row = |(name, sum): (&'a str, over_devices::Sum)| Row {
            name,
            joules: if self.is_dynamic { sum.dynamic } else { sum.joules },
            all_joules: sum.joules,
            error: errors.get(name).map(|error| error / sum.joules),
            seconds: sum.seconds,
            ..Row::default()
        };
        let sums = over_devices::by_python(self.summary, &paths).into_iter();
        let mut rows: Vec<Row> = sums.map(row).filter(|row| row.joules > 0.0).collect();
        largest_first(&mut rows, |row| row.joules);
        rows
    }

    fn row(
        &self,
        name: &'a str,
        regions: &[(&'a Device, &'a Region)],
        (seconds, calls): (f64, u64),
        errors: &HashMap<&str, f64>,
    ) -> Row<'a> {
        let figures = || regions.iter().map(|(_, row)| &row.figures);
        let sum_of = |of: &dyn Fn(&Figures) -> f64| sum(figures().map(of));
        let exclusive = sum_of(&|row| row.exclusive_joules);
        let most: Option<f64> = figures().map(|row| row.possible_joules).sum();
        let is_recorded = figures().all(|row| row.calls > 0);
        let power = |of: fn(&Region) -> Option<f64>| regions.iter().filter_map(move |(_, row)| of(row));
        let watts = power(|row| row.watts.min_watts).reduce(f64::min);
        let watts = watts.zip(power(|row| row.watts.max_watts).reduce(f64::max));
        let is_resolved = regions.iter().any(|(_, row)| row.watts.resolved_watts.is_some());
        let watts = watts.filter(|_| is_resolved && seconds > 0.0);
        Row {
            name,
            joules: sum_of(&|row| self.own(row)),
            all_joules: exclusive,
            bounds: most.filter(|_| is_recorded).map(|most| (sum_of(&|row| row.resolved_joules), most)),
            error: errors.get(name).filter(|_| exclusive > 0.0).map(|error| error / exclusive),
            seconds,
            calls,
            watts: watts.map(|(least, most)| (exclusive / seconds, least, most)),
            devices: regions.iter().map(|(device, _)| *device).collect(),
        }
    }
}

/// Returns the GPUs, the one with the most joules first. A GPU may contain others, as Cray's accelerators contain the GPUs of
/// other counters. If only the contained GPUs have kernels, the outer ones are left out; otherwise the contained GPUs are.
fn gpus(summary: &Summary) -> Vec<&Device> {
    let has_kernels = |device: &Device| view(device, "kernels").is_some_and(|view| !view.regions.is_empty());
    let is_gpu = |device: &&Device| device.unit == "J" && (device.kind == "gpu" || has_kernels(device));
    let all: Vec<&Device> = summary.devices.iter().filter(is_gpu).collect();
    let is_whole =
        |device: &&Device| !device.contains.is_empty() && all.iter().any(|part| contains(device, part));
    let (wholes, leaves): (Vec<&Device>, Vec<&Device>) = all.iter().copied().partition(is_whole);
    let is_part = |device: &&Device| wholes.iter().any(|whole| contains(whole, device));
    let is_by_parts = leaves.iter().any(|device| has_kernels(device) && is_part(device))
        && !wholes.iter().any(|device| has_kernels(device));
    let mut gpus =
        if is_by_parts { leaves } else { all.iter().copied().filter(|device| !is_part(device)).collect() };
    largest_first(&mut gpus, |device| device.total_joules);
    gpus
}

fn contains(whole: &Device, part: &Device) -> bool {
    whole.node == part.node && whole.contains.contains(&part.name)
}

/// Returns the outermost devices that are not GPUs, contain no GPU and are contained in no GPU.
fn host_devices<'a>(summary: &'a Summary, gpus: &[&Device]) -> Vec<&'a Device> {
    let is_apart = |device: &&Device| {
        let is_gpu = gpus
            .iter()
            .any(|gpu| std::ptr::eq(*gpu, *device) || contains(gpu, device) || contains(device, gpu));
        device.unit == "J" && !is_gpu
    };
    let apart: Vec<&Device> = summary.devices.iter().filter(is_apart).collect();
    apart.iter().filter(|device| !apart.iter().any(|whole| contains(whole, device))).copied().collect()
}

/// Returns the node and the name of each device that a consumer draws from.
fn used(summary: &Summary) -> HashSet<(&str, &str)> {
    let linked =
        summary.topology.iter().filter_map(|link| Some((link.node.as_str(), link.device.as_deref()?)));
    let has_rows = |device: &&Device| device.shown().any(|view| !view.regions.is_empty());
    let with_rows = summary.devices.iter().filter(has_rows);
    linked.chain(with_rows.map(|device| (device.node.as_str(), device.name.as_str()))).collect()
}

/// Returns the standard errors of sampled functions; `views` are views with their nodes. The same samples divide the
/// joules of all devices of a node, so their errors are added up. The errors of several nodes are independent.
pub(crate) fn sampled_errors<'a>(views: impl Iterator<Item = (&'a str, &'a View)>) -> HashMap<&'a str, f64> {
    let mut of_nodes: BTreeMap<(&str, &str), f64> = BTreeMap::new();
    for (node, row) in views.flat_map(|(node, view)| view.regions.iter().map(move |row| (node, row))) {
        let errors = row.sampled_error_joules.iter();
        errors.for_each(|error| *of_nodes.entry((node, &row.region)).or_default() += error);
    }
    let mut all: HashMap<&str, f64> = HashMap::new();
    for ((_, region), error) in of_nodes {
        let sum = all.entry(region).or_default();
        *sum = sum.hypot(error);
    }
    all
}

/// Returns the mean power of all devices. If the energy of one is not known for a part of the time, the power is only
/// a lower bound; then the first value is `true`.
pub(crate) fn watts(summary: &Summary) -> Option<(bool, f64)> {
    // The end of a run that continues is later than its last samples.
    let mut seconds: HashMap<&str, f64> = HashMap::new();
    for device in &summary.devices {
        let of_node = seconds.entry(&device.node).or_default();
        *of_node = of_node.max(device.sampled_seconds);
    }
    let seconds = |device: &Device| seconds.get(device.node.as_str()).copied().unwrap_or_default();
    let is_known = |device: &Device| {
        device.known_seconds() + device.end_seconds() >= (1.0 - UNKNOWN_SHARE_MAX) * seconds(device)
    };
    let known: Option<Vec<f64>> =
        topmost(summary).map(|device| device.mean_watts().filter(|_| is_known(device))).collect();
    let bound = || topmost(summary).filter(|d| seconds(d) > 0.0).map(|d| d.total_joules / seconds(d)).sum();
    let (is_bound, watts) = known.map_or_else(|| (true, bound()), |all| (false, all.iter().sum()));
    (watts > 0.0).then_some((is_bound, watts))
}
