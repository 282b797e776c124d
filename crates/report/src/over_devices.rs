//! Finds the largest devices, and adds up calls and seconds over devices. Each device has the calls of all ranks that draw from
//! it, so a call may occur in several devices.

use crate::over_ranks;
use ampere_figures::callpaths::Samples;
use ampere_figures::summary::{Device, Figures, Summary, View};
use ampere_model::order::largest_first;
use ampere_model::regions::is_python;
use std::collections::{BTreeMap, HashMap, HashSet};

/// The figures of a region or of a call path over several devices. Dynamic joules are 0 if they are not known.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sum {
    /// The exclusive joules.
    pub joules: f64,
    pub inclusive: f64,
    /// The exclusive seconds.
    pub seconds: f64,
    pub calls: f64,
    /// The dynamic part of the exclusive and of the inclusive joules.
    pub dynamic: f64,
    pub inclusive_dynamic: f64,
}

impl Sum {
    fn add_joules(&mut self, figures: &Figures) {
        self.joules += figures.exclusive_joules;
        self.inclusive += figures.inclusive_joules;
        self.dynamic += figures.dynamic_joules.unwrap_or_default();
        self.inclusive_dynamic += figures.inclusive_dynamic_joules.unwrap_or_default();
    }

    /// Returns the exclusive figures.
    pub fn figures(&self, is_dynamic: bool) -> Figures {
        Figures {
            calls: self.calls as u64,
            exclusive_joules: self.joules,
            dynamic_joules: is_dynamic.then_some(self.dynamic),
            exclusive_seconds: self.seconds,
            ..Figures::default()
        }
    }

    /// Adds the exclusive figures of another sum, without its calls.
    pub fn add_exclusive(&mut self, other: &Sum) {
        self.joules += other.joules;
        self.seconds += other.seconds;
        self.dynamic += other.dynamic;
    }
}

/// Returns the figures of a kind of view over all devices, by region and by path. The calls of a rank that draws from several
/// devices are counted once, and so is a region that is on the stack twice.
pub fn sums<'a>(
    summary: &'a Summary,
    views: &[(&'a Device, &'a View)],
) -> (BTreeMap<&'a str, Sum>, BTreeMap<u32, Sum>) {
    let mut paths: Vec<Option<Sum>> = vec![None; summary.paths.len()];
    let mut by_node: BTreeMap<&str, Vec<&View>> = BTreeMap::new();
    for (device, view) in views {
        by_node.entry(&device.node).or_default().push(view);
    }
    for views in by_node.values() {
        add_node(&mut paths, views);
    }
    let mut regions: BTreeMap<&str, Sum> = BTreeMap::new();
    for row in views.iter().flat_map(|(_, view)| view.own_regions()) {
        regions.entry(&row.region).or_default().add_joules(&row.figures);
    }
    // Times and calls of a region are computed from its paths, because its rows may belong to devices that share ranks.
    let mut by_name = vec![None; summary.names.len()];
    for (sum, name) in paths.iter().zip(&summary.paths.name) {
        if let Some(sum) = sum.filter(|sum| sum.seconds + sum.calls > 0.0) {
            let of = by_name[*name as usize].get_or_insert([0.0, 0.0]);
            *of = [of[0] + sum.seconds, of[1] + sum.calls];
        }
    }
    for (name, [seconds, calls]) in (0..).zip(by_name).filter_map(|(name, of)| Some((name, of?))) {
        let sum = regions.entry(summary.name(name)).or_default();
        sum.seconds += seconds;
        sum.calls += calls;
    }
    (regions, (0..).zip(paths).filter_map(|(path, sum)| Some((path, sum?))).collect())
}

/// Adds up the exclusive figures of call paths by the last Python function on each of them. So a Python function includes the
/// functions in C that it calls.
pub fn by_python<'a>(summary: &'a Summary, paths: &BTreeMap<u32, Sum>) -> BTreeMap<&'a str, Sum> {
    let mut last: Vec<Option<u32>> = Vec::with_capacity(summary.paths.len());
    for (caller, name) in summary.paths.parent.iter().zip(&summary.paths.name) {
        let of_caller = caller.and_then(|caller| last[caller as usize]);
        last.push(last_python((*name, summary.name(*name)), of_caller));
    }
    let mut sums: BTreeMap<&str, Sum> = BTreeMap::new();
    for (path, sum) in paths {
        let Some(name) = last[*path as usize] else { continue };
        sums.entry(summary.name(name)).or_default().add_exclusive(sum);
    }
    sums
}

/// Returns the standard errors of sampled call paths, and of Python functions as far as they and the functions in C that they
/// call are sampled. These errors follow from the number of samples, like the errors of functions.
pub fn sampled_errors<'a>(
    summary: &'a Summary,
    views: &[(&Device, &View)],
    paths: &BTreeMap<u32, Sum>,
) -> (BTreeMap<u32, f64>, HashMap<&'a str, f64>) {
    let is_energy = views.iter().all(|(device, _)| device.unit == "J");
    let Some(period) = summary.run.stack_period_seconds.filter(|_| is_energy) else {
        return Default::default();
    };
    // The devices of a node divide their joules by the same CPU time.
    let mut of_nodes: BTreeMap<&str, f64> = BTreeMap::new();
    for (device, view) in views {
        let seconds = of_nodes.entry(&device.node).or_default();
        *seconds = seconds.max(view.active_seconds.unwrap_or_default());
    }
    let active_seconds = Some(of_nodes.into_values().sum()).filter(|seconds| *seconds > 0.0);
    let is_dynamic = over_ranks::is_dynamic(views);
    let all: Vec<Figures> = paths.values().map(|sum| sum.figures(is_dynamic)).collect();
    let samples = Samples::of(all.iter(), active_seconds, period);
    let error = |sum: &Sum| samples.error_joules(&sum.figures(is_dynamic));
    let sampled = paths.iter().filter(|(_, sum)| sum.calls == 0.0).map(|(path, sum)| (*path, *sum)).collect();
    let python = by_python(summary, &sampled).into_iter();
    (
        sampled.iter().filter_map(|(path, sum)| Some((*path, error(sum)?))).collect(),
        python.filter_map(|(name, sum)| Some((name, error(&sum)?))).collect(),
    )
}

/// Returns the last Python function on the path of a frame: the frame itself, or that of its caller.
pub fn last_python<T>((frame, name): (T, &str), of_caller: Option<T>) -> Option<T> {
    if is_python(name) { Some(frame) } else { of_caller }
}

fn add_node(paths: &mut [Option<Sum>], views: &[&View]) {
    let shared = locations_of_several(views);
    let mut once: HashMap<((u32, u32), u32), (f64, u64)> = HashMap::new();
    for row in views.iter().flat_map(|view| view.callpaths.iter()) {
        let sum = paths[row.path as usize].get_or_insert_default();
        sum.add_joules(&row.figures);
        let location = (row.location_group, row.location);
        if shared.contains(&location) {
            let (seconds, calls) = once.entry((location, row.path)).or_default();
            *seconds = seconds.max(row.figures.exclusive_seconds);
            *calls = (*calls).max(row.figures.calls);
        } else {
            sum.seconds += row.figures.exclusive_seconds;
            sum.calls += row.figures.calls as f64;
        }
    }
    for ((_, path), (seconds, calls)) in once {
        let sum = paths[path as usize].get_or_insert_default();
        sum.seconds += seconds;
        sum.calls += calls as f64;
    }
}

/// Returns the location group and the location of each consumer that draws from several of a node's devices.
fn locations_of_several(views: &[&View]) -> HashSet<(u32, u32)> {
    let (mut seen, mut several) = (HashSet::new(), HashSet::new());
    if views.len() < 2 {
        return several;
    }
    for view in views {
        let of_view: HashSet<(u32, u32)> =
            view.callpaths.iter().map(|row| (row.location_group, row.location)).collect();
        several.extend(of_view.intersection(&seen));
        seen.extend(of_view);
    }
    several
}

/// Returns the largest devices, and all others in descending order of their joules. The largest ones are in the order of the
/// summary, but devices of the same kind in the order of their numbers.
pub fn largest(summary: &Summary, limit: usize) -> (Vec<&Device>, Vec<&Device>) {
    let mut by_joules: Vec<(usize, &Device)> = summary.devices.iter().enumerate().collect();
    largest_first(&mut by_joules, |(_, device)| device.total_joules);
    let others = by_joules.split_off(limit.min(by_joules.len()));
    // A device has the position of the first device of its kind on its node.
    fn kind(device: &Device) -> (&str, &str) {
        (&device.node, device.name.trim_end_matches(|c: char| c.is_ascii_digit()))
    }
    let mut first = HashMap::new();
    for (at, device) in summary.devices.iter().enumerate() {
        first.entry(kind(device)).or_insert(at);
    }
    by_joules.sort_by_key(|(at, device)| (first[&kind(device)], device.name.len(), &device.name, *at));
    let devices = |all: Vec<(usize, _)>| all.into_iter().map(|(_, device)| device).collect();
    (devices(by_joules), devices(others))
}
