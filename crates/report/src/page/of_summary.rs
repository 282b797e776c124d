//! The page of a summary: its tables, and call paths as boxes.

use super::flame::{self, NO_BOX};
use super::lanes;
use super::outline::DEVICES_MAX;
use super::ranks::{Groups, heat};
use super::rows::{self, More, Names, rounded};
use super::{Flame, Page, Ranks, Tables, ViewRows, Waits};
use crate::first::hints;
use crate::highlights::Sums;
use crate::over_devices::{self, Sum, largest};
use crate::over_ranks;
use crate::text::{by_location, most_of};
use crate::tree::{self, Tree};
use ampere_figures::nodes::job::Job;
use ampere_figures::shares::Whole;
use ampere_figures::summary::{Device, Region, Summary, View};
use ampere_figures::summary::{topmost, view};
use ampere_model::text::printable;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// The number of boxes that all pictures but the first share. It keeps the page small however many call paths there are. Boxes
/// with the sum of small frames are not counted.
const BOXES_MAX: usize = 6000;
/// The minimum number of boxes of a picture.
const BOXES_MIN: usize = 100;
/// The maximum number of boxes of the first picture.
const WHOLE_BOXES_MAX: usize = 3000;
/// The maximum number of figures by box and group of ranks, not counting boxes with the sum of small frames.
const CELLS_MAX: usize = 150_000;
/// The maximum number of call paths whose ranks are compared.
const PATHS_MAX: usize = 50;

impl Page {
    pub fn of(summary: &Summary) -> Page {
        let mut page =
            Page { tables: Some(Arc::new(tables(summary))), ..Page::outline(summary, hints(summary)) };
        if let Some(job) = Job::of(summary) {
            page.sentences.extend(job.hottest_and_idle());
            page.job = Some(job.for_page());
        }
        page
    }
}

fn tables(summary: &Summary) -> Tables {
    let mut names = Names::default();
    let sums = Sums::of(summary);
    let views = tree::whole_views(summary);
    let (functions, calls) = more(summary, &views);
    let kernel_views: Vec<(&Device, &View)> =
        topmost(summary).filter_map(|device| Some((device, view(device, "kernels")?))).collect();
    let (kernels, _) = more(summary, &kernel_views);
    let (functions, kernels) = rows::of_all(
        &sums,
        |name| functions.get(name).copied(),
        |name| kernels.get(name).copied(),
        &mut names,
    );
    let python = over_devices::by_python(summary, &calls);
    let (_, errors) = over_devices::sampled_errors(summary, &views, &calls);
    let python = rows::of_python(&python, &errors, sums.dynamic.is_some(), &mut names);
    let ranks = RankPlaces::new(summary, &views);
    let mut tables = Tables { functions, python, kernels, dynamic_joules: sums.dynamic, ..Tables::default() };
    tables.heat = heat(by_function(summary, &views, &ranks), &mut names);
    if ranks.groups.of.len() > 1 {
        let spreads = over_ranks::callpaths(summary, &views, PATHS_MAX);
        let whole = over_ranks::whole(summary, &views);
        let joules = whole.as_ref().map_or(0.0, |whole| whole.joules);
        let waits = waits(summary, &views);
        tables.paths = rows::of_paths(summary, &spreads, (joules, &waits), &mut names);
        let is_dynamic = sums.dynamic.is_some();
        let words = whole.map(|whole| rows::whole_words(&whole, is_dynamic, |group| summary.name(group)));
        tables.ranks.words = words.unwrap_or_default();
    }
    tables.waits = crate::waits::of(summary).map(|waiting| Waits::of(&waiting.pairs)).unwrap_or_default();
    tables.flames = flames(summary, (&views, &calls), &ranks, &mut names);
    tables.ranks = Ranks { words: tables.ranks.words, ..ranks.groups.ranks };
    let (shown, _) = largest(summary, DEVICES_MAX);
    for (at, device) in shown.into_iter().enumerate() {
        for view in ["ranks", "kernels"].iter().filter_map(|name| view(device, name)) {
            tables.views.push(view_rows(summary, (at, device), view, &mut names));
        }
    }
    tables.lanes = lanes::of(summary, &mut names);
    names.put_into(&mut tables);
    tables
}

/// Returns the views of a run that is still running. They have no call paths.
pub(super) fn views_of_running(summary: &Summary, names: &mut Names) -> Vec<ViewRows> {
    let (shown, _) = largest(summary, DEVICES_MAX);
    let mut all = Vec::new();
    for (at, device) in shown.into_iter().enumerate() {
        let views = ["ranks", "kernels"].iter().filter_map(|name| view(device, name));
        views.for_each(|view| all.push(view_rows(summary, (at, device), view, names)));
    }
    all
}

/// Returns further figures of functions, summed over several devices, and the calls of call paths. The calls and times of a
/// rank are counted once, and not once for each device.
fn more<'a>(
    summary: &'a Summary,
    views: &[(&'a Device, &'a View)],
) -> (HashMap<&'a str, More>, BTreeMap<u32, Sum>) {
    let mut all: HashMap<&str, More> = HashMap::new();
    for (_, view) in views {
        for Region { region, figures, .. } in &view.regions {
            let row = all.entry(region).or_insert_with(|| More { most_joules: Some(0.0), ..More::default() });
            row.least_joules += figures.resolved_joules;
            row.most_joules = row.most_joules.zip(figures.possible_joules).map(|(sum, more)| sum + more);
            row.waited_joules += figures.waited_joules.unwrap_or_default();
            row.caused_waiting_joules += figures.caused_waiting_joules.unwrap_or_default();
        }
    }
    let (regions, paths) = over_devices::sums(summary, views);
    for (name, sum) in regions {
        let row = all.entry(name).or_default();
        (row.inclusive_joules, row.seconds, row.calls) = (sum.inclusive, sum.seconds, sum.calls as u64);
    }
    (all, paths)
}

/// Returns the joules that each call path used while waiting, and those that others used while waiting for it.
fn waits(summary: &Summary, views: &[(&Device, &View)]) -> Vec<[f64; 2]> {
    let mut waits = vec![[0.0; 2]; summary.paths.len()];
    for row in views.iter().flat_map(|(_, view)| view.callpaths.all()) {
        let [waited, caused] = &mut waits[row.path as usize];
        *waited += row.figures.waited_joules.unwrap_or_default();
        *caused += row.figures.caused_waiting_joules.unwrap_or_default();
    }
    waits
}

/// The ranks of some views, and the group of each rank.
struct RankPlaces<'a> {
    /// For each node, by the number of a location group's name: the location group's index among the ranks.
    places: HashMap<&'a str, Vec<Option<usize>>>,
    groups: Groups,
}

impl<'a> RankPlaces<'a> {
    fn new(summary: &'a Summary, views: &[(&'a Device, &'a View)]) -> RankPlaces<'a> {
        let (mut places, mut names) = (HashMap::new(), Vec::new());
        for (device, view) in views {
            let of_node =
                places.entry(device.node.as_str()).or_insert_with(|| vec![None; summary.names.len()]);
            for row in view.callpaths.iter() {
                of_node[row.location_group as usize].get_or_insert_with(|| {
                    names.push(summary.name(row.location_group));
                    names.len() - 1
                });
            }
        }
        RankPlaces { places, groups: Groups::new(&names) }
    }

    /// Maps a node's location group, which must occur in these views, to its group of ranks.
    fn groups_of(&self, node: &str) -> impl Fn(u32) -> usize {
        let places = &self.places[node];
        |location_group| {
            let place = places[location_group as usize].expect("a location group of these views");
            self.groups.of[place] as usize
        }
    }
}

/// Returns the joules of each group of ranks, by function.
fn by_function<'a>(
    summary: &'a Summary,
    views: &[(&Device, &View)],
    ranks: &RankPlaces,
) -> Vec<(&'a str, Vec<f64>)> {
    let shown = over_ranks::functions(summary, views, super::ranks::FUNCTIONS_MAX).rows;
    let mut places: Vec<Option<usize>> = vec![None; summary.names.len()];
    shown.iter().enumerate().for_each(|(at, spread)| places[spread.what as usize] = Some(at));
    let joules = over_ranks::joules_of(views);
    let mut all = vec![vec![0.0; ranks.groups.len()]; shown.len()];
    for (device, view) in views {
        let group = ranks.groups_of(&device.node);
        for row in view.callpaths.iter() {
            if let Some(at) = places[summary.paths.name[row.path as usize] as usize] {
                all[at][group(row.location_group)] += joules(&row.figures);
            }
        }
    }
    shown.iter().map(|spread| summary.name(spread.what)).zip(all).collect()
}

fn flames(
    summary: &Summary,
    (views, calls): (&[(&Device, &View)], &BTreeMap<u32, Sum>),
    ranks: &RankPlaces,
    names: &mut Names,
) -> Vec<Flame> {
    let frames = tree::Frames::of(summary);
    let callers = frames.callers();
    let groups = ranks.groups.len();
    let limit = (CELLS_MAX / groups.max(1)).min(WHOLE_BOXES_MAX);
    let mut whole = frames.whole();
    whole.set_calls(calls.iter().map(|(path, sum)| (*path, sum.calls as u64)));
    let (mut whole, box_of) = boxes(&callers, &whole, limit, names);
    if groups > 1 {
        let mut by_rank = vec![vec![0.0; whole.caller.len()]; groups];
        for (device, view) in views {
            let group = ranks.groups_of(&device.node);
            for row in view.callpaths.iter() {
                let at = box_of[frames.of_path(row.path) as usize];
                if at != NO_BOX {
                    by_rank[group(row.location_group)][at as usize] += row.figures.exclusive_joules;
                }
            }
        }
        by_rank.iter_mut().flatten().for_each(|joules| *joules = rounded(*joules));
        whole.by_rank = by_rank;
    }
    let mut all = vec![whole];
    let (shown, _) = largest(summary, DEVICES_MAX);
    let each: Vec<(&Device, &View)> = shown
        .iter()
        .flat_map(|device| {
            ["ranks", "kernels"].iter().filter_map(|name| Some((*device, view(device, name)?)))
        })
        .collect();
    let limit = (BOXES_MAX / (each.len() + 2)).max(BOXES_MIN);
    let kernels = frames.of_kernels();
    if kernels.joules() > 0.0 && views.iter().any(|(_, view)| view.view == "ranks") {
        all.push(boxes(&callers, &kernels, limit, names).0);
    }
    for (device, view) in each.iter().filter(|_| each.len() > 1) {
        let title = format!("{}, {}", printable(&device.name), view.title());
        let tree = frames.of_views(&title, std::iter::once((*device, *view)));
        all.push(boxes(&callers, &tree, limit, names).0);
    }
    all
}

fn boxes(callers: &[u32], tree: &Tree, limit: usize, names: &mut Names) -> (Flame, Vec<u32>) {
    let frames = 0..callers.len() as u32;
    let joules: Vec<f64> = frames.clone().map(|frame| tree.sum(frame).exclusive).collect();
    let dynamic: Vec<f64> = frames.clone().map(|frame| tree.sum(frame).exclusive_dynamic).collect();
    let calls: Vec<u64> = frames.map(|frame| tree.sum(frame).calls).collect();
    let name = |frame| tree.name_of(frame);
    let dynamic = tree.idle_dynamic.map(|_| dynamic.as_slice());
    let of = flame::Frames { caller: callers, joules: &joules, dynamic, calls: &calls, name: &name };
    let (mut flame, box_of) = flame::boxes(&of, limit, names);
    let figures = flame.joules.iter_mut().chain(&mut flame.dynamic_joules);
    figures.for_each(|joules| *joules = rounded(*joules));
    flame::add_waits(&mut flame, (callers, &box_of), |frame| tree.sum(frame as u32).waits);
    flame.title.clone_from(&tree.name);
    flame.view = if tree.is_of_kernels() { "kernels" } else { "ranks" }.to_owned();
    (flame.idle_joules, flame.other_jobs_joules, flame.lost_joules) = (tree.idle, tree.other_jobs, tree.lost);
    flame.idle_dynamic_joules = rounded(tree.idle_dynamic.unwrap_or_default());
    (flame, box_of)
}

fn view_rows(summary: &Summary, (at, device): (usize, &Device), view: &View, names: &mut Names) -> ViewRows {
    let is_time = device.unit == "s";
    let rows = rows::of_view(view, is_time, names);
    let mut remarks = Vec::new();
    if rows.watts.is_empty() && !rows.calls.is_empty() {
        remarks.push("no watts: no function was alone in 10 sample intervals".to_owned());
    }
    if let Some(other) = device.not_shown().filter(|_| view.view == "ranks") {
        remarks.push(printable(&format!("{}: {}", other.title(), most_of(Whole::of(summary), other))));
    }
    let groups = by_location(summary, view);
    let dynamic = groups.iter().filter_map(|(group, of)| Some((group.as_str(), rounded(of.dynamic_joules?))));
    let dynamic: HashMap<&str, f64> = dynamic.collect();
    let groups: Vec<(&str, f64)> = groups
        .iter()
        .map(|(group, figures)| (group.as_str(), rounded(figures.exclusive_joules)))
        .take(rows::DEVICE_ROWS_MAX)
        .collect();
    ViewRows {
        device: at,
        title: printable(&view.title()),
        view: view.view.clone(),
        policy: view.policy.clone(),
        sharing: view.sharing.clone(),
        attributed_joules: view.attributed_joules,
        idle_joules: view.idle_joules,
        other_jobs_joules: view.other_jobs_joules,
        lost_joules: view.lost_joules,
        conservation_error_joules: view.conservation_error_joules,
        dynamic_joules: view.is_active().then(|| device.own_whole(view)),
        rows,
        groups: rows::of_names(&groups, &dynamic, &HashMap::new(), |_| None, names),
        remarks,
    }
}
