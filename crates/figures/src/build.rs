//! Makes a summary of an attributor's figures.

use crate::assignment;
use crate::callpaths::{Callpath, Callpaths, Figures, Numbering, Samples};
use crate::events::{EventSum, EventTable};
use crate::lanes;
use crate::losses::{Losses, ReadingLosses};
use crate::site::Site;
use crate::summary::{
    Baseline, Device, END_SECONDS, Overhead, RUNNING_ROWS_MAX, Range, Region, Run, SCHEMA, Summary,
    UNKNOWN_SHARE_MAX, View, Watts, Work, least_trusted,
};
use crate::waits::{self, Waiting};
use ampere_attribution::{CallpathRow, LocationIndex, Policy, RegionRow, Spent, ViewIndex, ViewTotals};
use ampere_model::{Quality, RegionRef, sum};
use ampere_timeline::agreement::{self, Check};
use ampere_timeline::attributor::{self, Attributor, Unit, ViewKind};
use ampere_timeline::conflicts;
use ampere_timeline::threads::{self, OtherThreads};
use std::collections::{BTreeMap, BTreeSet};

/// A counter of a processor or of a node that does not change for this time is not counting.
const STALL_SECONDS_MIN: f64 = 1.0;
/// With fewer misreadings than this, no note states that the values are not those of an energy counter.
const MISREADINGS_MIN: u64 = 10;

/// If a counter stood still before the first sample, its first change may include joules of up to this many seconds before
/// that sample.
const SECONDS_OF_A_STALL: f64 = 1.0;

/// The name of a region that the program did not define.
const UNDEFINED: &str = "undefined region";

impl Summary {
    /// Makes a summary with all tables of an attributor, of both views or of `only` one.
    pub fn new(attributor: &Attributor, only: Option<ViewKind>, run: Run, quality: Losses) -> Summary {
        summary(attributor, only, usize::MAX, run, quality)
    }

    /// Makes the figures of a running job: totals, and in each table the [`RUNNING_ROWS_MAX`] largest rows.
    pub fn of_running(attributor: &Attributor, run: Run, quality: Losses) -> Summary {
        let run = Run { running: true, ..run };
        let mut summary = summary(attributor, None, RUNNING_ROWS_MAX, run, quality);
        let mut views = summary.devices.iter().flat_map(|device| &device.views);
        if views.any(|view| view.callpaths.len() == RUNNING_ROWS_MAX) {
            summary.run.notes.push(format!(
                "written during the run: each table has only its {RUNNING_ROWS_MAX} largest rows; totals include all rows"
            ));
        }
        summary
    }

    /// Makes the figures of a running job without its call paths, and with only the exclusive joules of each region. This is fast
    /// enough to be done once per second.
    pub fn outline(attributor: &Attributor, run: Run, quality: Losses) -> Summary {
        outline(attributor, run, quality)
    }

    /// Replaces the description of the run. No further events may have been attributed since the tables were made.
    pub fn described_again(mut self, attributor: &Attributor, run: Run, quality: Losses) -> Summary {
        (self.run, self.quality) = described(attributor, run, quality);
        self
    }

    /// Returns the nodes of an attributor's devices and locations, and the number of ranks of each.
    pub fn ranks_of_nodes(attributor: &Attributor) -> BTreeMap<String, u32> {
        let mut nodes: BTreeMap<String, u32> =
            attributor.devices.iter().map(|device| (device.info.node.clone(), 0)).collect();
        for (at, location) in attributor.locations.iter().enumerate() {
            let is_rank = location.main && !attributor.is_sampled(at);
            *nodes.entry(location.node.clone()).or_default() += u32::from(is_rank);
        }
        nodes
    }
}

/// Makes all tables of an attributor, or those of one view, `only`. `limit` is the maximum number of rows of a table; the largest
/// are kept.
fn summary(
    attributor: &Attributor,
    only: Option<ViewKind>,
    limit: usize,
    run: Run,
    quality: Losses,
) -> Summary {
    let all_threads_lead = threads::all_threads_lead(attributor);
    Tables { attributor, only, limit, all_threads_lead, is_outline: false }.summary(run, quality)
}

/// Makes a summary without call paths, and with only the exclusive joules of each region.
fn outline(attributor: &Attributor, run: Run, quality: Losses) -> Summary {
    let run = Run { running: true, ..run };
    let all_threads_lead = threads::all_threads_lead(attributor);
    let tables = Tables { attributor, only: None, limit: 0, all_threads_lead, is_outline: true };
    tables.summary(run, quality)
}

/// Returns the description of a run, without its tables.
fn described(attributor: &Attributor, run: Run, quality: Losses) -> (Run, Losses) {
    let tables = Tables { attributor, only: None, limit: 0, all_threads_lead: false, is_outline: true };
    tables.described(&tables.devices(), run, quality)
}

/// Returns a note if a device's figures cannot be shown, because they are higher than the energy that the device can have used.
fn implausible_note(device: &Device) -> Option<String> {
    let seconds = device.sampled_seconds + SECONDS_OF_A_STALL;
    let most = device.watts_max.filter(|_| device.unit == "J")? * seconds;
    (device.total_joules > most).then(|| {
        format!(
            "{}: {:.0} J in {:.3} s are more than such a device can have spent ({:.0} J): they are not shown. Look at the \
             scale and the unit of {} (a [[device]] in the configuration sets them), or set [counters] watts_max",
            on_node(&device.name, &device.node), device.total_joules, device.sampled_seconds, most, device.metric
        )
    })
}

fn clear_figures(device: &mut Device) {
    device.total_joules = 0.0;
    device.power = None;
    for view in &mut device.views {
        *view = View {
            view: view.view.clone(),
            policy: view.policy.clone(),
            sharing: view.sharing.clone(),
            ..View::default()
        };
    }
}

/// Returns a device's name for people, with the node, because other nodes of a trace have devices with the same name.
fn on_node(name: &str, node: &str) -> String {
    if node.is_empty() { name.to_owned() } else { format!("{name} on {node}") }
}

/// Returns a note about the part of a device's energy that is not known, if there is one.
pub fn uncovered_note(device: &Device) -> Option<String> {
    (device.unit == "J" && device.uncovered_seconds > 0.0).then(|| {
        format!(
            "{}: the energy of {:.3} s is not known, because its counter was reset or its readings could not be true",
            on_node(&device.name, &device.node), device.uncovered_seconds
        )
    })
}

/// Gives each call path and each name of the rows one number. Before that, a row has the number of its location, and the
/// number that its call path has within the location.
fn number(attributor: &Attributor, devices: &mut [Device], events: &mut EventTable) -> Numbering {
    let mut rows: Vec<&mut Callpaths> = Vec::new();
    for device in devices {
        rows.extend(device.views.iter_mut().chain(&mut device.other_ranks).map(|view| &mut view.callpaths));
    }
    let mut is_used: Vec<Vec<bool>> = vec![Vec::new(); attributor.locations.len()];
    for row in rows.iter().flat_map(|rows| rows.all()).chain(events.callpaths()) {
        let nodes = &mut is_used[row.location as usize];
        if nodes.is_empty() {
            *nodes = vec![false; attributor.engine.callpaths_of(LocationIndex(row.location)) + 1];
        }
        nodes[row.path as usize] = true;
    }
    let mut numbering = Numbering::default();
    let locations = number_names(attributor, &mut is_used, &mut numbering);
    let paths = number_paths(attributor, &is_used, &mut numbering);
    let number = |row: &mut Callpath| {
        let location = row.location as usize;
        row.path = paths[location][row.path as usize];
        (row.location_group, row.location) = locations[location];
    };
    events.callpaths_mut().for_each(number);
    events.sort();
    for rows in rows {
        rows.all_mut().for_each(number);
        // Rows with equal joules are sorted by name, so that the order is the same live and from the trace. They are sorted in
        // place, because there may be a million.
        rows.sort_by(by_joules);
    }
    numbering
}

/// Numbers the names in alphabetical order. Names that are in every row come first, so that their numbers are short. Returns the
/// numbers of each location's names. Marks the callers of used call paths as used.
fn number_names(
    attributor: &Attributor,
    is_used: &mut [Vec<bool>],
    numbering: &mut Numbering,
) -> Vec<(u32, u32)> {
    let (mut groups, mut regions) = (BTreeSet::new(), vec![false; attributor.regions.all().len()]);
    for (location, is_used) in is_used.iter_mut().enumerate().filter(|(_, is_used)| !is_used.is_empty()) {
        let info = &attributor.locations[location];
        groups.extend([info.group.as_str(), info.name.as_str()]);
        let nodes = attributor.engine.nodes(LocationIndex(location as u32));
        for (at, caller, region) in nodes.rev() {
            if is_used[at.0 as usize] {
                is_used[caller.0 as usize] = true;
                regions.get_mut(region.0 as usize).into_iter().for_each(|used| *used = true);
            }
        }
    }
    let regions = attributor.regions.all().iter().zip(regions).filter(|(_, is_used)| *is_used);
    let regions: BTreeSet<&str> = regions.map(|(region, _)| region.name.as_str()).collect();
    for name in groups.into_iter().chain(regions) {
        numbering.name(&name.into());
    }
    let of = |name: &str| numbering.known(name).unwrap_or_default();
    attributor.locations.iter().map(|info| (of(&info.group), of(&info.name))).collect()
}

/// Returns the numbers of the call paths of each location.
fn number_paths(attributor: &Attributor, is_used: &[Vec<bool>], numbering: &mut Numbering) -> Vec<Vec<u32>> {
    let names = attributor.regions.all().iter().map(|region| numbering.known(&region.name));
    let names: Vec<Option<u32>> = names.collect();
    let mut paths: Vec<Vec<u32>> = is_used.iter().map(|is_used| vec![0; is_used.len()]).collect();
    for (location, paths) in paths.iter_mut().enumerate().filter(|(_, paths)| !paths.is_empty()) {
        for (at, caller, region) in attributor.engine.nodes(LocationIndex(location as u32)) {
            if is_used[location][at.0 as usize] {
                let name = names.get(region.0 as usize).copied().flatten();
                let name = name.unwrap_or_else(|| numbering.name(&UNDEFINED.into()));
                let caller = (!caller.is_root()).then(|| paths[caller.0 as usize]);
                paths[at.0 as usize] = numbering.path(caller, name);
            }
        }
    }
    let new = numbering.order_paths();
    for path in paths.iter_mut().flatten() {
        *path = new.get(*path as usize).copied().unwrap_or_default();
    }
    paths
}

/// Makes the tables of a summary.
struct Tables<'a> {
    attributor: &'a Attributor,
    only: Option<ViewKind>,
    /// The maximum number of rows of a table.
    limit: usize,
    all_threads_lead: bool,
    /// Whether only the exclusive joules of regions are computed.
    is_outline: bool,
}

impl Tables<'_> {
    fn summary(&self, run: Run, quality: Losses) -> Summary {
        let mut numbered = self.devices();
        let (run, quality) = self.described(&numbered, run, quality);
        for (number, device) in &mut numbered {
            self.add_views(*number, device);
            if implausible_note(device).is_some() {
                clear_figures(device);
            }
        }
        let mut devices: Vec<Device> = numbered.into_iter().map(|(_, device)| device).collect();
        let mut events = EventTable::of_attributor(self.attributor, self.limit);
        let Numbering { names, paths, .. } = self::number(self.attributor, &mut devices, &mut events);
        let topology = assignment::of_attributor(self.attributor, self.only);
        let overhead = Overhead::default();
        let lanes = lanes::of_attributor(self.attributor, self.only);
        Summary {
            schema: SCHEMA.to_owned(),
            run,
            quality,
            overhead,
            topology,
            names,
            paths,
            devices,
            lanes,
            events,
        }
    }

    /// Returns the devices, without their views, each with its number in the attributor.
    fn devices(&self) -> Vec<(usize, Device)> {
        let mut checks = agreement::checks(self.attributor, true);
        // Time comes last, because people look for energy.
        let is_time = |number: &usize| self.attributor.devices[*number].info.unit == Unit::Seconds;
        let counting = (0..self.attributor.devices.len()).filter(|device| self.attributor.counts(*device));
        let (time, energy): (Vec<usize>, Vec<usize>) = counting.partition(is_time);
        let all = energy.into_iter().chain(time);
        all.map(|number| (number, self.device(number, std::mem::take(&mut checks[number])))).collect()
    }

    /// Completes the description of the run with facts about its devices.
    fn described(&self, devices: &[(usize, Device)], mut run: Run, mut quality: Losses) -> (Run, Losses) {
        let attributor = self.attributor;
        for (number, _) in devices {
            self.add_quality(&mut quality, &attributor.devices[*number]);
        }
        // A counter that has always shown 0, like that of a package's second die, does not count anything.
        let is_silent = |number: usize| attributor.counted_part(number).evidence.silent;
        let counting = devices.iter().filter(|(number, _)| !is_silent(*number));
        run.notes.extend(counting.filter_map(|(_, device)| uncovered_note(device)));
        for (note, is_loss) in attributor.notes_of_left_out() {
            if is_loss { run.lacks(note) } else { run.notes.push(note) }
        }
        conflicts::gpu_doubts(attributor).into_iter().for_each(|doubt| run.lacks(doubt));
        let unknown = devices.iter().filter(|(number, _)| !is_silent(*number));
        let unknown = unknown.filter_map(|(number, device)| self.unknown_note(*number, device));
        unknown.for_each(|note| run.lacks(note));
        devices.iter().filter_map(|(number, _)| self.unread_note(*number)).for_each(|note| run.lacks(note));
        let wrong = devices.iter().filter(|(number, _)| !is_silent(*number));
        let wrong =
            wrong.filter_map(|(number, _)| self.misread_note(*number).or_else(|| self.stalled_note(*number)));
        wrong.for_each(|note| run.lacks(note));
        let implausible = devices.iter().filter_map(|(_, device)| implausible_note(device));
        implausible.for_each(|note| run.lacks(note));
        let counted = devices.iter().filter(|(number, device)| {
            let is_topmost = device.unit == Unit::Joules.as_str() && attributor.whole(*number).is_none();
            is_topmost && implausible_note(device).is_none()
        });
        let joules: Vec<f64> = counted.map(|(_, device)| device.total_joules).collect();
        run.total_joules = sum(joules.iter().copied());
        run.ranges = Range::of_run(&attributor.work);
        let known = (!joules.is_empty()).then_some(run.total_joules);
        run.work = Work::of_run(Work::units(&attributor.work), known);
        run.events = EventSum::with_joules(EventSum::of_run(attributor), known);
        run.site = Site::of(&attributor.config().site, run.total_joules);
        let oddities = attributor.engine.oddities();
        quality.records.late_events = quality.records.late_events.max(oddities.late);
        quality.records.repaired_events += oddities.unmatched_leaves + oddities.backward;
        let energies = attributor.devices.iter().filter(|device| device.info.unit == Unit::Joules);
        run.stack_period_seconds = attributor.stack_period.map(|period| period.as_secs_f64());
        run.energy = least_trusted(energies.map(|device| device.info.quality.as_str())).to_owned();
        run.notes.extend(OtherThreads::of(attributor).note());
        run.waiting = Waiting::of(attributor);
        (run, quality)
    }

    /// Returns a note if the run is incomplete because the energy of a device is not known for too much of the time.
    fn unknown_note(&self, number: usize, shown: &Device) -> Option<String> {
        let device = &self.attributor.devices[number];
        let (first, last) = self.attributor.sampled_span(&device.info.node)?;
        let figures = device.counter_figures();
        let own = figures.first.zip(figures.last).filter(|_| device.info.unit == Unit::Joules)?;
        let [own_first, own_last] = [own.0, own.1].map(|time| time.saturating_add(device.delay_ticks));
        let ends = [own_first.saturating_sub(first), last.saturating_sub(own_last)];
        // Other tools may read a counter so rarely that much is missing before the first reading and after the last one.
        let most = if device.info.is_by_other_tool { *END_SECONDS.end() } else { f64::INFINITY };
        let end_seconds = shown.end_seconds().min(most);
        let outside: f64 = ends.iter().map(|ticks| (self.seconds(*ticks) - end_seconds).max(0.0)).sum();
        let whole = self.seconds(last - first);
        let unknown = outside + shown.uncovered_seconds;
        (unknown > UNKNOWN_SHARE_MAX * whole).then(|| {
            let known = (whole - unknown).max(0.0);
            format!(
                "{}: its energy is known for {known:.2} s of {whole:.2} s: what it used in the rest is missing, and its watts are the mean \
                 of the time that is known",
                on_node(&device.info.name, &device.info.node)
            )
        })
    }

    /// Returns a note if the run is incomplete because a counter that the user has defined was never read, or only once.
    fn unread_note(&self, number: usize) -> Option<String> {
        let device = &self.attributor.devices[number];
        let is_unread = device.info.source == "custom" && device.counter_figures().samples < 2;
        (is_unread && self.attributor.whole(number).is_none()).then(|| {
            format!(
                "{}: its energy is not known, because it has fewer than two readings: ampere doctor shows what it prints",
                on_node(&device.info.name, &device.info.node)
            )
        })
    }

    /// Returns a note if the run is incomplete because more than two in five of a device's readings could not be true.
    fn misread_note(&self, number: usize) -> Option<String> {
        let device = &self.attributor.devices[number];
        let figures = device.counter_figures();
        let (misread, used) = (figures.misreadings, figures.samples);
        (device.info.unit == Unit::Joules && 3 * misread > 2 * used && misread >= MISREADINGS_MIN).then(|| {
            format!(
                "{}: {misread} of {} readings could not be true and are left out: its values rise and fall, so either \
                it is not an energy counter, or its joules are wrong",
                on_node(&device.info.name, &device.info.node),
                misread + used
            )
        })
    }

    /// Returns a note if the run is incomplete because a counter of a processor or of a node, which always use energy, did not
    /// change until the end.
    fn stalled_note(&self, number: usize) -> Option<String> {
        let device = &self.attributor.devices[number];
        // A counter that the user has defined may be read rarely, so it changes rarely, too.
        let is_watched = !["trace", "custom"].contains(&device.info.source.as_str());
        let is_counter = device.info.quality == Quality::Measured && is_watched;
        let always_uses = ["cpu", "node"].contains(&device.info.traits.kind.as_str());
        let is_topmost = self.attributor.whole(number).is_none();
        let seconds = self.seconds(device.counter_figures().still_ticks);
        (is_counter && always_uses && is_topmost && seconds >= STALL_SECONDS_MIN).then(|| {
            format!(
                "{}: its counter did not change for the last {seconds:.2} s, and the energy of that time is missing",
                on_node(&device.info.name, &device.info.node)
            )
        })
    }

    fn add_quality(&self, quality: &mut Losses, device: &attributor::Device) {
        let engine = &self.attributor.engine;
        quality.readings.add(&ReadingLosses::of(self.attributor, device));
        quality.stale_counters += u64::from(device.counter_figures().stale);
        let views =
            ViewKind::BOTH.into_iter().filter(|kind| self.is_wanted(*kind)).map(|kind| device.view(kind));
        for view in views.chain(device.other_ranks().map(|(_, view)| view)) {
            let error = engine.totals(view).conservation_error_joules;
            quality.conservation_error_joules = quality.conservation_error_joules.max(error);
        }
    }

    fn is_wanted(&self, kind: ViewKind) -> bool {
        self.only.is_none_or(|only| only == kind)
    }

    fn seconds(&self, ticks: u64) -> f64 {
        ticks as f64 / self.attributor.ticks_per_second as f64
    }

    fn device(&self, number: usize, checks: Vec<Check>) -> Device {
        let device = &self.attributor.devices[number];
        let info = &device.info;
        let totals = self.attributor.engine.totals(device.views.ranks);
        let active = active_totals(self.attributor, device, |kind| self.is_wanted(kind));
        let counter = device.counter_figures();
        // While a program runs, later readings may be known whose joules are not yet charged.
        let charged = self.attributor.engine.last_sample(device.views.ranks).map(|(time, _)| time);
        let sampled = counter.first.zip(charged).map_or(0, |(first, last)| last.saturating_sub(first));
        let sampled_seconds = self.seconds(sampled);
        let sample_seconds = sampled_seconds / counter.samples.saturating_sub(1).max(1) as f64;
        Device {
            node: info.node.clone(),
            name: info.name.clone(),
            metric: info.metric.clone(),
            source: info.source.clone(),
            energy: info.quality.as_str().to_owned(),
            unit: info.unit.as_str().to_owned(),
            kind: info.traits.kind.clone(),
            contains: self.attributor.parts(number),
            hidden: self.attributor.is_hidden(number),
            samples: counter.samples,
            total_joules: totals.total_joules,
            estimate: None,
            baseline: active.map(|_| baseline_of(device)),
            static_joules: active.map(|totals| totals.static_joules),
            dynamic_joules: active.map(|totals| totals.dynamic_joules),
            sampled_seconds,
            uncovered_seconds: self.seconds(totals.unknown_ticks),
            watts_max: Some(device.watts_max()).filter(|watts| watts.is_finite()),
            sample_seconds,
            longest_sample_seconds: self.seconds(counter.longest_interval_ticks),
            longest_still_seconds: self.seconds(counter.longest_still_ticks),
            stale: counter.stale,
            readings: None,
            gauges: Vec::new(),
            checks,
            power: device.power_curve(),
            views: Vec::new(),
            other_ranks_lead: false,
            other_ranks: None,
        }
    }

    fn add_views(&self, number: usize, shown: &mut Device) {
        let device = &self.attributor.devices[number];
        let kinds = ViewKind::BOTH.into_iter().filter(|kind| self.is_wanted(*kind));
        let views = kinds.map(|kind| {
            let has_other = kind == ViewKind::Ranks && device.other_ranks().is_some();
            let locations = if has_other { device.views.locations.as_str() } else { "" };
            self.view(shown, device.view(kind), kind, locations)
        });
        let views = views.collect();
        let other = device.other_ranks().filter(|_| self.is_wanted(ViewKind::Ranks));
        let other =
            other.map(|(locations, view)| self.view(shown, view, ViewKind::Ranks, locations.as_str()));
        shown.other_ranks_lead = self.all_threads_lead && other.is_some();
        (shown.views, shown.other_ranks) = (views, other);
    }

    fn outlined(&self, view: ViewIndex, kind: ViewKind, locations: &str) -> View {
        let engine = &self.attributor.engine;
        let mut sums: Vec<Option<Spent>> = vec![None; self.attributor.regions.all().len()];
        let mut add = |region: RegionRef, spent: Spent| {
            if let Some(sum) = sums.get_mut(region.0 as usize) {
                let sum = sum.get_or_insert_default();
                sum.joules += spent.joules;
                sum.dynamic_joules += spent.dynamic_joules;
            }
        };
        match kind {
            ViewKind::Ranks => engine.each_account(view, |_, region, spent| add(region, spent)),
            ViewKind::Kernels => engine.each_entered_account(view, add),
        }
        let is_active = engine.report_policy(view) == Policy::Active;
        let named = self.attributor.regions.all().iter().zip(sums);
        let mut regions: Vec<Region> = named
            .filter_map(|(region, spent)| {
                let Spent { joules, dynamic_joules } = spent?;
                let figures = Figures { exclusive_joules: joules, ..Figures::default() };
                let figures = with_dynamic(figures, [dynamic_joules, 0.0], is_active);
                let (watts, sampled_error_joules) = Default::default();
                Some(Region { region: region.name.as_str().into(), figures, sampled_error_joules, watts })
            })
            .collect();
        if kind == ViewKind::Ranks {
            waits::add_to_regions(self.attributor, view, &mut regions);
        }
        regions.sort_by(most_joules_first);
        let totals = engine.totals(view);
        View {
            view: kind.as_str().to_owned(),
            locations: locations.to_owned(),
            policy: engine.report_policy(view).as_str().to_owned(),
            sharing: engine.report_sharing(view).as_str().to_owned(),
            attributed_joules: totals.attributed_joules,
            idle_joules: totals.idle_joules,
            other_jobs_joules: totals.other_jobs_joules,
            active_seconds: self.active_seconds(&totals),
            lost_joules: totals.lost_joules,
            conservation_error_joules: totals.conservation_error_joules,
            callpaths: Callpaths::default(),
            regions,
        }
    }

    fn active_seconds(&self, totals: &ViewTotals) -> Option<f64> {
        Some(totals.active_ticks / self.attributor.ticks_per_second as f64).filter(|seconds| *seconds > 0.0)
    }

    fn view(&self, device: &Device, view: ViewIndex, kind: ViewKind, locations: &str) -> View {
        if self.is_outline {
            return self.outlined(view, kind, locations);
        }
        let is_time = device.unit == Unit::Seconds.as_str();
        let mut callpaths = Largest::new(self.limit);
        let policy = self.attributor.engine.report_policy(view);
        let report = self.attributor.engine.report_rows(view, &mut |row| {
            let is_active = policy == Policy::Active;
            if callpaths.takes(if is_active { row.dynamic_joules } else { row.exclusive_joules }) {
                callpaths.push(self.callpath(&row, is_active, is_time));
            }
        });
        let mut shown = View {
            view: kind.as_str().to_owned(),
            locations: locations.to_owned(),
            policy: report.policy.as_str().to_owned(),
            sharing: report.sharing.as_str().to_owned(),
            attributed_joules: report.totals.attributed_joules,
            idle_joules: report.totals.idle_joules,
            other_jobs_joules: report.totals.other_jobs_joules,
            active_seconds: self.active_seconds(&report.totals),
            lost_joules: report.totals.lost_joules,
            conservation_error_joules: report.totals.conservation_error_joules,
            callpaths: callpaths.rows().into(),
            regions: Vec::new(),
        };
        let regions = report.regions.into_iter().map(|row| self.region(row, device, &shown));
        let mut regions: Vec<Region> = regions.collect();
        if kind == ViewKind::Ranks && !is_time {
            waits::add_to_rows(self.attributor, view, &mut shown.callpaths);
            waits::add_to_regions(self.attributor, view, &mut regions);
        }
        if let Some(period) = self.attributor.stack_period.filter(|_| !is_time) {
            set_sampled_errors(&mut regions, shown.active_seconds, period.as_secs_f64());
        }
        regions.sort_by(most_joules_first);
        regions.truncate(self.limit);
        shown.regions = regions;
        shown
    }

    fn callpath(&self, row: &CallpathRow, is_active: bool, is_time: bool) -> Callpath {
        let joules = [row.exclusive_joules, row.inclusive_joules, row.resolved_joules, row.possible_joules];
        let figures = self.figures(row.calls, joules, [row.exclusive_ticks, row.resolved_ticks], is_time);
        let dynamic = [row.dynamic_joules, row.inclusive_dynamic_joules];
        let figures = with_dynamic(figures, dynamic, is_active);
        Callpath { path: row.node.0, location_group: 0, location: row.location.0, figures }
    }

    /// `joules`: exclusive, inclusive, resolved, possible; `ticks`: exclusive, resolved. Times are always resolved.
    fn figures(&self, calls: u64, joules: [f64; 4], ticks: [u64; 2], is_time: bool) -> Figures {
        let [exclusive_joules, inclusive_joules, resolved_joules, possible_joules] = joules;
        let [exclusive_seconds, resolved_seconds] = ticks.map(|ticks| self.seconds(ticks));
        Figures {
            calls,
            exclusive_joules,
            inclusive_joules,
            resolved_joules: if is_time { exclusive_joules } else { resolved_joules },
            possible_joules: Some(if is_time { exclusive_joules } else { possible_joules }),
            static_joules: None,
            dynamic_joules: None,
            inclusive_dynamic_joules: None,
            waited_joules: None,
            caused_waiting_joules: None,
            exclusive_seconds,
            resolved_seconds: if is_time { exclusive_seconds } else { resolved_seconds },
        }
    }

    fn region(&self, row: RegionRow, device: &Device, view: &View) -> Region {
        let is_time = device.unit == Unit::Seconds.as_str();
        let joules = [row.exclusive_joules, row.inclusive_joules, row.resolved_joules, row.possible_joules];
        let figures = self.figures(row.calls, joules, [row.exclusive_ticks, row.resolved_ticks], is_time);
        let dynamic = [row.dynamic_joules, row.inclusive_dynamic_joules];
        let figures = with_dynamic(figures, dynamic, view.policy == Policy::Active.as_str());
        let per_second = self.attributor.ticks_per_second as f64;
        let bounds = row.joules_per_tick.filter(|_| !is_time);
        let watts = Watts {
            min_watts: bounds.map(|(least, _)| least * per_second),
            max_watts: bounds.map(|(_, most)| most * per_second),
            ..device.watts(view, &figures)
        };
        let region = self.attributor.regions.all().get(row.region.0 as usize);
        let region = region.map_or(UNDEFINED, |region| region.name.as_str());
        let watts = watts.up_to(device.most_watts(view));
        Region { region: region.into(), figures, sampled_error_joules: None, watts }
    }
}

/// Adds the static and dynamic parts to figures, if the policy is *active*. `dynamic`: exclusive, inclusive.
fn with_dynamic(figures: Figures, [dynamic, inclusive]: [f64; 2], is_active: bool) -> Figures {
    Figures {
        static_joules: is_active.then(|| (figures.exclusive_joules - dynamic).max(0.0)),
        dynamic_joules: is_active.then_some(dynamic),
        inclusive_dynamic_joules: is_active.then_some(inclusive),
        ..figures
    }
}

/// Returns the totals of the device's first view whose policy is *active*.
pub(crate) fn active_totals(
    attributor: &Attributor,
    device: &attributor::Device,
    is_wanted: impl Fn(ViewKind) -> bool,
) -> Option<ViewTotals> {
    let engine = &attributor.engine;
    let mut views = ViewKind::BOTH.into_iter().filter(|kind| is_wanted(*kind)).map(|kind| device.view(kind));
    views.find(|view| engine.report_policy(*view) == Policy::Active).map(|view| engine.totals(view))
}

pub(crate) fn baseline_of(device: &attributor::Device) -> Baseline {
    let none = Baseline { watts: 0.0, kind: "none".to_owned(), samples: 0 };
    device.baseline().map_or(none, |known| Baseline {
        watts: known.watts,
        kind: known.kind.as_str().to_owned(),
        samples: known.samples,
    })
}

fn set_sampled_errors(regions: &mut [Region], active_seconds: Option<f64>, period: f64) {
    let samples = Samples::of(regions.iter().map(|row| &row.figures), active_seconds, period);
    for row in regions {
        row.sampled_error_joules = samples.error_joules(&row.figures);
    }
}

fn most_joules_first(a: &Region, b: &Region) -> std::cmp::Ordering {
    by_own_joules(&a.figures, &b.figures).then_with(|| a.region.cmp(&b.region))
}

/// Orders call paths by descending joules.
fn by_joules(a: &Callpath, b: &Callpath) -> std::cmp::Ordering {
    let numbers = |row: &Callpath| (row.location_group, row.location, row.path);
    by_own_joules(&a.figures, &b.figures).then_with(|| numbers(a).cmp(&numbers(b)))
}

/// Sorts figures by dynamic joules, the most first, and equal ones by static joules.
fn by_own_joules(a: &Figures, b: &Figures) -> std::cmp::Ordering {
    let by_own = b.own_joules().total_cmp(&a.own_joules());
    by_own.then_with(|| b.exclusive_joules.total_cmp(&a.exclusive_joules))
}

/// The call paths with the most joules, at most `limit`.
struct Largest {
    limit: usize,
    rows: Vec<Callpath>,
    /// At least `limit` call paths have this many joules, so that a call path with fewer is not among the largest.
    least_joules: f64,
}

impl Largest {
    fn new(limit: usize) -> Largest {
        Largest { limit, rows: Vec::new(), least_joules: f64::NEG_INFINITY }
    }

    fn takes(&self, joules: f64) -> bool {
        joules >= self.least_joules
    }

    fn push(&mut self, row: Callpath) {
        self.rows.push(row);
        if self.rows.len() >= self.limit.saturating_mul(2) {
            let (_, last, _) = self.rows.select_nth_unstable_by(self.limit - 1, by_joules);
            self.least_joules = last.figures.own_joules();
            self.rows.truncate(self.limit);
        }
    }

    fn rows(mut self) -> Vec<Callpath> {
        if self.rows.len() > self.limit {
            self.rows.sort_unstable_by(by_joules);
            self.rows.truncate(self.limit);
        }
        self.rows
    }
}
