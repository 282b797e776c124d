//! The tables of a run that has not ended, taken directly from the engine: with half a million call paths, making a summary takes
//! too long.

use super::ranks::{FUNCTIONS_MAX, Groups, heat, label};
use super::rows::{self, More, Names, rounded};
use super::{Flame, Tables, flame, lanes, of_summary};
use crate::first::names::times;
use crate::highlights::Sums;
use crate::over_devices::{Sum, last_python};
use crate::over_ranks;
use ampere_attribution::{LocationIndex, NodeIndex, ViewIndex};
use ampere_figures::callpaths::Samples;
use ampere_figures::summary::Figures;
use ampere_figures::summary::Summary;
use ampere_figures::summary::{topmost, view};
use ampere_figures::waits;
use ampere_model::RegionRef;
use ampere_timeline::attributor::{Attributor, Unit, ViewKind};
use ampere_timeline::threads;
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

/// The maximum number of boxes of a picture, which is sent once a second.
const BOXES_MAX: usize = 1500;
/// The maximum number of ranks that a page may choose from.
const CHOICES_MAX: usize = 4096;

/// The call paths of all locations as one tree, in which a region that calls itself is one frame. It grows with the engine's
/// trees.
pub struct LiveTables {
    /// The caller of each frame; the first frame stands for the whole.
    caller: Vec<u32>,
    region: Vec<RegionRef>,
    /// The last Python function on the path of each frame.
    python: Vec<Option<RegionRef>>,
    /// The deepest direct recursion merged into this frame.
    times: Vec<u32>,
    known: HashMap<(u32, RegionRef), u32>,
    /// For each location and node of the engine's tree: the frame, and the depth of direct recursion there, which is 1 without
    /// any.
    nodes: Vec<Vec<(u32, u32)>>,
}

impl Default for LiveTables {
    fn default() -> LiveTables {
        LiveTables {
            caller: vec![0],
            region: vec![RegionRef(u32::MAX)],
            python: vec![None],
            times: vec![1],
            known: HashMap::new(),
            nodes: Vec::new(),
        }
    }
}

/// The processes that have threads as locations, in the order of their first locations.
struct Processes<'a> {
    /// The process of each location; `None` for a GPU stream.
    of: Vec<Option<usize>>,
    names: Vec<&'a str>,
}

/// Joules and calls of the call paths.
#[derive(Default)]
struct Charged {
    /// The exclusive joules of each frame, and their dynamic part.
    joules: Vec<f64>,
    dynamic: Vec<f64>,
    calls: Vec<u64>,
    /// The joules that each frame used waiting in MPI, and those that others used waiting for it.
    waits: [Vec<f64>; 2],
    /// The joules of each process, whichever rank is shown.
    by_process: Vec<f64>,
    /// The joules by row of the heat map, and then by group of ranks.
    by_function: Vec<Vec<f64>>,
    /// The calls and exclusive ticks of each region, over all counted locations.
    calls_and_ticks: Vec<(u64, u64)>,
    /// For each region that is a Python function, the joules and seconds on all ranks, including those of the functions in C that
    /// it calls. The second list has the part of sampled call paths alone.
    python: [Vec<Sum>; 2],
    /// Whether calls of a frame are counted, for each frame.
    is_recorded: Vec<bool>,
}

impl Charged {
    /// Returns the sums of the Python function `region` to which a frame's figures are added: the sum of all frames, and, unless
    /// calls of the frame are counted, the sum of sampled frames.
    fn python_at(&mut self, frame: u32, region: Option<RegionRef>) -> impl Iterator<Item = &mut Sum> {
        let kinds = if self.is_recorded[frame as usize] { 1 } else { 2 };
        let sums = self.python.iter_mut().take(kinds);
        sums.filter_map(move |sums| sums.get_mut(region?.0 as usize))
    }
}

impl<'a> Processes<'a> {
    fn of(attributor: &'a Attributor) -> Processes<'a> {
        let mut numbers: HashMap<&str, usize> = HashMap::new();
        let mut all = Processes { of: Vec::new(), names: Vec::new() };
        for info in &attributor.locations {
            let is_process = info.kind == ampere_model::LocationKind::CpuThread;
            all.of.push(is_process.then(|| {
                *numbers.entry(&info.group).or_insert_with(|| {
                    all.names.push(&info.group);
                    all.names.len() - 1
                })
            }));
        }
        all
    }
}

/// Returns, for each topmost device, the view that the tables are computed from.
fn leading_views(attributor: &Attributor, kind: ViewKind) -> Vec<ViewIndex> {
    let all_threads = kind == ViewKind::Ranks && threads::all_threads_lead(attributor);
    let devices = attributor.devices.iter().enumerate();
    let energies = devices.filter(|(at, device)| device.info.unit == Unit::Joules && attributor.counts(*at));
    let topmost = energies.filter(|(at, _)| attributor.whole(*at).is_none());
    let view = |(_, device): (usize, &ampere_timeline::attributor::Device)| {
        device.views.threads.filter(|_| all_threads).unwrap_or(device.view(kind))
    };
    topmost.map(view).collect()
}

/// Returns the dynamic joules that no box has. With independent sharing, the boxes may have more joules than the devices.
fn unused(dynamic: Option<f64>, of_boxes: &[f64]) -> f64 {
    dynamic.map_or(0.0, |dynamic| rounded((dynamic - of_boxes.iter().sum::<f64>()).max(0.0)))
}

/// Returns sums of Python functions by name, because several regions may have the same name.
fn by_python<'a>(attributor: &'a Attributor, sums: &[Sum]) -> BTreeMap<&'a str, Sum> {
    let mut all: BTreeMap<&str, Sum> = BTreeMap::new();
    let sums = attributor.regions.all().iter().zip(sums);
    for (region, sum) in sums.filter(|(_, sum)| sum.joules > 0.0) {
        all.entry(&region.name).or_default().add_exclusive(sum);
    }
    all
}

/// Returns the standard errors of sampled functions, and of Python functions, computed as in a summary. `python` has the sampled
/// parts of Python functions.
fn sampled_errors<'a>(
    sums: &Sums<'a>,
    more: &HashMap<&str, More>,
    python: &BTreeMap<&'a str, Sum>,
    (active_seconds, period): (Option<f64>, Duration),
) -> [HashMap<&'a str, f64>; 2] {
    let figures = sums.regions.iter().map(|(name, exclusive_joules)| {
        let More { calls, seconds: exclusive_seconds, .. } = more.get(name).copied().unwrap_or_default();
        let dynamic_joules = sums.dynamic_of.get(name).copied();
        Figures {
            calls,
            exclusive_joules: *exclusive_joules,
            dynamic_joules,
            exclusive_seconds,
            ..Figures::default()
        }
    });
    let figures: Vec<Figures> = figures.collect();
    let samples = Samples::of(figures.iter(), active_seconds, period.as_secs_f64());
    let errors = figures.iter().map(|figures| samples.error_joules(figures));
    let functions = sums.regions.iter().zip(errors).filter_map(|((name, _), error)| Some((*name, error?)));
    let is_dynamic = sums.dynamic.is_some();
    let error =
        |(name, sum): (&&'a str, &Sum)| Some((*name, samples.error_joules(&sum.figures(is_dynamic))?));
    [functions.collect(), python.iter().filter_map(error).collect()]
}

/// Completes the flame graph of kernels with its title, and with the idle and lost joules of the devices that have kernels.
fn of_kernels_in(summary: &Summary, mut flame: Flame, is_dynamic: bool) -> Flame {
    (flame.view, flame.title) = ("kernels".to_owned(), "GPUs with kernels".to_owned());
    let of_kernels = |device| Some((device, view(device, "kernels")?));
    let views: Vec<_> = topmost(summary).filter_map(of_kernels).collect();
    let dynamic = views.iter().map(|(device, view)| device.own_whole(view)).sum();
    flame.idle_dynamic_joules = unused(is_dynamic.then_some(dynamic), &flame.dynamic_joules);
    for (_, view) in views {
        flame.idle_joules += view.idle_joules;
        flame.lost_joules += view.lost_joules;
    }
    flame
}

impl LiveTables {
    /// Makes the tables. `summary` is of the same moment, with regions and without call paths. If `rank` is set, only call paths
    /// of this rank are included; it is an index into [`super::Ranks::each`].
    pub fn tables(&mut self, attributor: &Attributor, summary: &Summary, rank: Option<usize>) -> Tables {
        self.follow(attributor);
        let processes = Processes::of(attributor);
        let groups = Groups::new(&processes.names);
        let mut sums = Sums::of(summary);
        let shown: Vec<&str> = sums.regions.iter().take(FUNCTIONS_MAX).map(|row| row.0).collect();
        let ranks = self.of_ranks(attributor, (&processes, &groups), (&shown, sums.dynamic.is_some()), rank);
        let kernels = self.of_kernels(attributor);
        let mut names = Names::default();
        let [of_functions, of_kernels] =
            [&ranks, &kernels].map(|charged| self.more_by_name(attributor, charged));
        let [python, sampled_python] = ranks.python.each_ref().map(|sums| by_python(attributor, sums));
        let mut python_errors = HashMap::new();
        if let Some(period) = attributor.stack_period {
            // The devices of a node divide their joules by the same CPU time.
            let seconds = topmost(summary).filter_map(|device| view(device, "ranks")?.active_seconds);
            let seconds = seconds.reduce(f64::max);
            [sums.sampled_errors, python_errors] =
                sampled_errors(&sums, &of_functions, &sampled_python, (seconds, period));
        }
        let (functions, kernel_rows) = rows::of_all(
            &sums,
            |name| of_functions.get(name).copied(),
            |name| of_kernels.get(name).copied(),
            &mut names,
        );
        let python = rows::of_python(&python, &python_errors, sums.dynamic.is_some(), &mut names);
        let dynamic_joules = sums.dynamic;
        let mut tables =
            Tables { functions, python, kernels: kernel_rows, dynamic_joules, ..Tables::default() };
        let by_function = ranks.by_function.iter().cloned();
        tables.heat = heat(shown.into_iter().zip(by_function).collect(), &mut names);
        let mut whole = self.flame(attributor, &ranks, sums.dynamic.is_some(), &mut names);
        whole.view = "ranks".to_owned();
        match rank.and_then(|rank| processes.names.get(rank)) {
            Some(name) => whole.title = format!("all devices, rank {}", label(name)),
            None => {
                whole.title = "all devices".to_owned();
                (whole.idle_joules, whole.lost_joules) = (sums.idle, sums.lost);
                whole.idle_dynamic_joules = unused(sums.dynamic, &whole.dynamic_joules);
            }
        }
        tables.flames.push(whole);
        if !sums.kernels.is_empty() {
            let is_dynamic = !sums.dynamic_of_kernels.is_empty();
            let flame = self.flame(attributor, &kernels, is_dynamic, &mut names);
            tables.flames.push(of_kernels_in(summary, flame, is_dynamic));
        }
        tables.views = of_summary::views_of_running(summary, &mut names);
        tables.ranks = groups.ranks;
        if processes.names.len() > 1 {
            let by_rank = ranks.by_process.iter().enumerate().map(|(at, joules)| (("", at as u32), *joules));
            let by_rank = by_rank.filter(|(_, joules)| *joules > 0.0).collect();
            let whole = over_ranks::spread_of(by_rank, over_ranks::is_compared(&processes.names));
            let is_dynamic = sums.dynamic.is_some();
            let words =
                whole.map(|whole| rows::whole_words(&whole, is_dynamic, |at| processes.names[at as usize]));
            tables.ranks.words = words.unwrap_or_default();
            tables.ranks.each = processes.names.iter().take(CHOICES_MAX).map(|name| label(name)).collect();
        }
        tables.lanes = lanes::of(summary, &mut names);
        names.put_into(&mut tables);
        tables
    }

    /// Adds the call paths that are new.
    fn follow(&mut self, attributor: &Attributor) {
        self.nodes.resize(attributor.locations.len(), Vec::new());
        for (location, nodes) in self.nodes.iter_mut().enumerate() {
            let location = LocationIndex(location as u32);
            if nodes.is_empty() {
                nodes.push((0, 0));
            }
            let known = nodes.len();
            if known > attributor.engine.callpaths_of(location) {
                continue;
            }
            for (_, caller, region) in attributor.engine.nodes(location).skip(known - 1) {
                let (outer, again) = nodes[caller.0 as usize];
                if outer != 0 && self.region[outer as usize] == region {
                    let times = &mut self.times[outer as usize];
                    *times = (*times).max(again + 1);
                    nodes.push((outer, again + 1));
                    continue;
                }
                let next = self.caller.len() as u32;
                let frame = *self.known.entry((outer, region)).or_insert(next);
                if frame == next {
                    self.caller.push(outer);
                    self.region.push(region);
                    let named = (region, attributor.regions.name(region));
                    self.python.push(last_python(named, self.python[outer as usize]));
                    self.times.push(1);
                }
                nodes.push((frame, 1));
            }
        }
    }

    fn of_ranks(
        &self,
        attributor: &Attributor,
        (processes, groups): (&Processes, &Groups),
        (shown, is_dynamic): (&[&str], bool),
        rank: Option<usize>,
    ) -> Charged {
        let mut charged = self.nothing(attributor);
        charged.by_process = vec![0.0; processes.names.len()];
        charged.by_function = vec![vec![0.0; groups.len()]; shown.len()];
        let regions = attributor.regions.all();
        let row_of: Vec<Option<usize>> =
            regions.iter().map(|region| shown.iter().position(|name| *name == region.name)).collect();
        let is_wanted = |process: usize| rank.is_none_or(|rank| rank == process);
        let is_wanted_location = |location: usize| processes.of[location].is_some_and(is_wanted);
        let is_rank = |location: usize| attributor.is_rank(&attributor.locations[location]);
        self.add_calls(attributor, &mut charged, is_rank, is_wanted_location);
        for view in leading_views(attributor, ViewKind::Ranks) {
            attributor.engine.each_node_account(view, |location, node, spent| {
                let location = location.0 as usize;
                let Some(process) = processes.of[location] else { return };
                let (frame, _) = self.nodes[location][node.0 as usize];
                let own = if is_dynamic { spent.dynamic_joules } else { spent.joules };
                charged.by_process[process] += own;
                if is_wanted(process) {
                    charged.joules[frame as usize] += spent.joules;
                    charged.dynamic[frame as usize] += spent.dynamic_joules;
                }
                for sum in charged.python_at(frame, self.python[frame as usize]) {
                    sum.joules += spent.joules;
                    sum.dynamic += spent.dynamic_joules;
                }
                let region = self.region[frame as usize].0 as usize;
                if let Some(row) = row_of.get(region).copied().flatten() {
                    charged.by_function[row][groups.of[process] as usize] += own;
                }
            });
        }
        for of_device in waits::of_devices(attributor) {
            for (sums, rows) in charged.waits.iter_mut().zip([&of_device.waited, &of_device.caused]) {
                for ((location, node), joules) in
                    rows.iter().filter(|((location, _), _)| is_wanted_location(location.0 as usize))
                {
                    let (frame, _) = self.nodes[location.0 as usize][node.0 as usize];
                    sums[frame as usize] += joules.sum();
                }
            }
        }
        charged
    }

    fn of_kernels(&self, attributor: &Attributor) -> Charged {
        let mut charged = self.nothing(attributor);
        for view in leading_views(attributor, ViewKind::Kernels) {
            attributor.engine.each_node_account(view, |location, node, spent| {
                let (frame, _) = self.nodes[location.0 as usize][node.0 as usize];
                charged.joules[frame as usize] += spent.joules;
                charged.dynamic[frame as usize] += spent.dynamic_joules;
            });
        }
        let is_stream =
            |location: usize| attributor.locations[location].kind == ampere_model::LocationKind::Gpu;
        self.add_calls(attributor, &mut charged, is_stream, |_| true);
        charged
    }

    fn nothing(&self, attributor: &Attributor) -> Charged {
        let (frames, regions) = (self.caller.len(), attributor.regions.all().len());
        let calls_and_ticks = vec![(0, 0); regions];
        let (joules, dynamic) = (vec![0.0; frames], vec![0.0; frames]);
        let waits = [vec![0.0; frames], vec![0.0; frames]];
        let python = [vec![Sum::default(); regions], vec![Sum::default(); regions]];
        Charged {
            joules,
            dynamic,
            calls: vec![0; frames],
            waits,
            calls_and_ticks,
            python,
            is_recorded: vec![false; frames],
            ..Charged::default()
        }
    }

    /// Adds calls and times, which are the same for all devices. `counts` selects the locations to count; `is_wanted` those that
    /// also appear in the flame graph.
    fn add_calls(
        &self,
        attributor: &Attributor,
        charged: &mut Charged,
        counts: impl Fn(usize) -> bool,
        is_wanted: impl Fn(usize) -> bool,
    ) {
        for location in (0..self.nodes.len()).filter(|location| counts(*location)) {
            let (mut node, is_wanted) = (0, is_wanted(location));
            attributor.each_callpath(LocationIndex(location as u32), |region, calls, ticks| {
                node += 1;
                if let Some(sum) = charged.calls_and_ticks.get_mut(region.0 as usize) {
                    *sum = (sum.0.saturating_add(calls), sum.1.saturating_add(ticks));
                }
                let (frame, _) = self.nodes[location][node];
                charged.is_recorded[frame as usize] |= calls > 0;
                for sum in charged.python_at(frame, self.python[frame as usize]) {
                    sum.seconds += ticks as f64 / attributor.ticks_per_second as f64;
                }
                if is_wanted {
                    let sum = &mut charged.calls[frame as usize];
                    *sum = sum.saturating_add(calls);
                }
            });
        }
    }

    /// Returns the calls, times and waits by name, because several regions may have the same name.
    fn more_by_name<'a>(&self, attributor: &'a Attributor, charged: &Charged) -> HashMap<&'a str, More> {
        let mut all: HashMap<&str, More> = HashMap::new();
        for (region, (calls, ticks)) in attributor.regions.all().iter().zip(&charged.calls_and_ticks) {
            let sum = all.entry(&region.name).or_default();
            sum.calls = sum.calls.saturating_add(*calls);
            sum.seconds += *ticks as f64 / attributor.ticks_per_second as f64;
        }
        for of_device in waits::of_devices(attributor) {
            let name = |(location, node): (LocationIndex, NodeIndex)| {
                attributor.regions.name(attributor.engine.caller_of(location, node).1)
            };
            for (path, joules) in of_device.waited.iter() {
                all.entry(name(path)).or_default().waited_joules += joules.sum();
            }
            for (path, joules) in of_device.caused.iter() {
                all.entry(name(path)).or_default().caused_waiting_joules += joules.sum();
            }
        }
        all
    }

    fn flame(
        &self,
        attributor: &Attributor,
        charged: &Charged,
        is_dynamic: bool,
        names: &mut Names,
    ) -> Flame {
        let name = |frame: u32| {
            times(attributor.regions.name(self.region[frame as usize]), self.times[frame as usize])
        };
        let frames = flame::Frames {
            caller: &self.caller,
            joules: &charged.joules,
            dynamic: is_dynamic.then_some(&charged.dynamic),
            calls: &charged.calls,
            name: &name,
        };
        let (mut flame, box_of) = flame::boxes(&frames, BOXES_MAX, names);
        let figures = flame.joules.iter_mut().chain(&mut flame.dynamic_joules);
        figures.for_each(|joules| *joules = rounded(*joules));
        let [waited, caused] = &charged.waits;
        flame::add_waits(&mut flame, (&self.caller, &box_of), |frame| [waited[frame], caused[frame]]);
        flame
    }
}
