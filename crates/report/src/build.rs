//! A summary of an attributor's figures.

use crate::assignment;
use crate::summary::{
    Callpath, Device, LEAST_RESOLVED_SAMPLES, Name, Overhead, QualityFigures, Region, Run, SCHEMA, Summary,
    View, Watts, least_trusted,
};
use ampere_attribution::{CallpathRow, Policy, RegionRow, ViewIndex};
use ampere_model::RegionRef;
use ampere_timeline::agreement::{self, Check};
use ampere_timeline::attributor::{self, Attributor, Unit, ViewKind};
use ampere_timeline::threads;

/// A counter that has stood still may catch up within the first sample interval.
const SECONDS_OF_A_STALL: f64 = 1.0;
/// Of a deeper path the middle is left out: a recursion of a thousand calls has a path for each depth, and all of them in full
/// would be a million names.
const MOST_FRAMES: usize = 256;

/// All tables of an attributor, or of `only` one view. `most`: rows of a table, of which the largest stay.
pub(crate) fn summary(
    attributor: &Attributor,
    only: Option<ViewKind>,
    most: usize,
    mut run: Run,
    mut quality: QualityFigures,
) -> Summary {
    let tables = Tables::new(attributor, only, most);
    let mut checks = agreement::checks(attributor, true);
    // Time comes last: energy is what people look for.
    let is_time = |number: &usize| attributor.devices[*number].info.unit == Unit::Seconds;
    let (time, energy): (Vec<usize>, Vec<usize>) = (0..attributor.devices.len()).partition(is_time);
    let mut devices: Vec<Device> = Vec::new();
    let mut total_joules = 0.0;
    for number in energy.into_iter().chain(time) {
        let device = tables.device(number, std::mem::take(&mut checks[number]));
        add_quality(&mut quality, &attributor.devices[number], attributor, &device);
        if device.unit == Unit::Joules.as_str() && attributor.whole(number).is_none() {
            total_joules += device.total_joules;
        }
        devices.push(device);
    }
    run.notes.extend(devices.iter().filter_map(uncovered_note));
    let implausible: Vec<String> = devices.iter().filter_map(implausible_note).collect();
    run.complete &= implausible.is_empty();
    run.notes.extend(implausible);
    for device in devices.iter_mut().filter(|device| implausible_note(device).is_some()) {
        total_joules -= device.total_joules;
        clear_figures(device);
    }
    let oddities = attributor.engine.oddities();
    quality.late_events = quality.late_events.max(oddities.late);
    quality.repaired_events += oddities.unmatched_leaves + oddities.backward;
    let energies = attributor.devices.iter().filter(|device| device.info.unit == Unit::Joules);
    run.energy = least_trusted(energies.map(|device| device.info.quality.as_str())).to_owned();
    run.total_joules = total_joules;
    run.notes.extend(threads::note(attributor));
    Summary {
        schema: SCHEMA.to_owned(),
        run,
        devices,
        topology: assignment::of_attributor(attributor, only),
        quality,
        overhead: Overhead::default(),
    }
}

fn add_quality(
    quality: &mut QualityFigures,
    device: &attributor::Device,
    attributor: &Attributor,
    shown: &Device,
) {
    let counter = device.counter_figures();
    quality.counter_resets += attributor.engine.totals(device.views.ranks).counter_resets;
    quality.unusable_samples += counter.misreadings;
    quality.counter_wraps += counter.wraps;
    quality.sampling_gaps += counter.gaps;
    quality.stale_counters += u64::from(counter.stale);
    for view in &shown.views {
        quality.conservation_error_joules =
            quality.conservation_error_joules.max(view.conservation_error_joules);
    }
}

/// Why a device's figures cannot be shown, in one line: they are more than the device can have spent.
fn implausible_note(device: &Device) -> Option<String> {
    let seconds = device.sampled_seconds + SECONDS_OF_A_STALL;
    let most = device.watts_max.filter(|_| device.unit == "J")? * seconds;
    (device.total_joules > most).then(|| {
        format!(
            "{}: {:.0} J in {:.3} s are more than such a device can have spent ({:.0} J): they are not shown. Look at the \
             scale and the unit of {} (a [[device]] in the configuration sets them), or set [counters] watts_max",
            device.name, device.total_joules, device.sampled_seconds, most, device.metric
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

fn uncovered_note(device: &Device) -> Option<String> {
    let is_known = device.unit == "J" && device.uncovered_seconds > 0.0 && device.total_joules > 0.0;
    is_known.then(|| {
        format!(
            "{}: the energy of {:.3} s is not known, because its counter was reset or what was read of it could not be true",
            device.name, device.uncovered_seconds
        )
    })
}

/// Makes tables, with each name once.
struct Tables<'a> {
    attributor: &'a Attributor,
    only: Option<ViewKind>,
    /// Rows of a table.
    most: usize,
    all_threads_lead: bool,
    regions: Vec<Name>,
    /// By location: its group's and its own.
    locations: Vec<(Name, Name)>,
}

impl<'a> Tables<'a> {
    fn new(attributor: &'a Attributor, only: Option<ViewKind>, most: usize) -> Tables<'a> {
        let regions = attributor.regions.all().iter().map(|region| region.name.as_str().into());
        let locations = attributor.locations.iter();
        let locations = locations.map(|info| (info.group.as_str().into(), info.name.as_str().into()));
        Tables {
            attributor,
            only,
            most,
            all_threads_lead: threads::all_threads_lead(attributor),
            regions: regions.collect(),
            locations: locations.collect(),
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
        let counter = device.counter_figures();
        let sampled = counter.first.zip(counter.last).map_or(0, |(first, last)| last - first);
        let sampled_seconds = self.seconds(sampled);
        let sample_seconds = sampled_seconds / counter.samples.saturating_sub(1).max(1) as f64;
        let views = ViewKind::BOTH.into_iter().filter(|kind| self.is_wanted(*kind)).map(|kind| {
            let has_other = kind == ViewKind::Ranks && device.other_ranks().is_some();
            let locations = if has_other { device.views.locations.as_str() } else { "" };
            self.view(device, (device.view(kind), kind, locations), sample_seconds)
        });
        let other_ranks = device.other_ranks().filter(|_| self.is_wanted(ViewKind::Ranks));
        let other_ranks = other_ranks.map(|(locations, view)| {
            self.view(device, (view, ViewKind::Ranks, locations.as_str()), sample_seconds)
        });
        Device {
            node: info.node.clone(),
            name: info.name.clone(),
            metric: info.metric.clone(),
            source: info.source.clone(),
            energy: info.quality.as_str().to_owned(),
            unit: info.unit.as_str().to_owned(),
            kind: info.traits.kind.clone(),
            contains: self.attributor.parts(number),
            samples: counter.samples,
            total_joules: totals.total_joules,
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
            views: views.collect(),
            other_ranks_lead: self.all_threads_lead && other_ranks.is_some(),
            other_ranks,
        }
    }

    fn view(
        &self,
        device: &attributor::Device,
        (view, kind, locations): (ViewIndex, ViewKind, &str),
        sample_seconds: f64,
    ) -> View {
        let engine = &self.attributor.engine;
        // Of its interval's joules a row has no more than all, and no more than the device's power.
        let is_time_sliced = engine.report_policy(device.view(kind)) == Policy::TimeSliced;
        let rates = Rates {
            is_time: device.info.unit == Unit::Seconds,
            ticks_per_second: self.attributor.ticks_per_second as f64,
            least_resolved_seconds: LEAST_RESOLVED_SAMPLES * sample_seconds,
            watts_max: if is_time_sliced { device.watts_max() } else { f64::INFINITY },
        };
        let mut callpaths = Largest::new(self.most);
        let mut report = engine.report_rows(view, &mut |row| {
            if callpaths.takes(row.exclusive_joules) {
                callpaths.push(self.callpath(row, &rates));
            }
        });
        let callpaths = callpaths.sorted();
        report.regions.sort_by(|a, b| {
            let by_name = || self.region_name(a.region).cmp(&self.region_name(b.region));
            b.exclusive_joules.total_cmp(&a.exclusive_joules).then_with(by_name)
        });
        View {
            view: kind.as_str().to_owned(),
            locations: locations.to_owned(),
            policy: report.policy.as_str().to_owned(),
            sharing: report.sharing.as_str().to_owned(),
            attributed_joules: report.totals.attributed_joules + 0.0, // a sum of nothing is -0
            idle_joules: report.totals.idle_joules,
            lost_joules: report.totals.lost_joules,
            conservation_error_joules: report.totals.conservation_error_joules,
            callpaths,
            regions: report.regions.into_iter().take(self.most).map(|row| self.region(row, &rates)).collect(),
        }
    }

    fn callpath(&self, row: CallpathRow, rates: &Rates) -> Callpath {
        let exclusive = Amount { joules: row.exclusive_joules, ticks: row.exclusive_ticks };
        let resolved = Amount { joules: row.resolved_joules, ticks: row.resolved_ticks };
        let resolved = rates.resolved(exclusive, resolved);
        let (location_group, location) = self.locations[row.location.0 as usize].clone();
        Callpath {
            location_group,
            location,
            path: shortened(&row.path, |region| self.region_name(region)),
            calls: row.calls,
            exclusive_joules: row.exclusive_joules,
            inclusive_joules: row.inclusive_joules,
            resolved_joules: resolved.joules,
            possible_joules: Some(rates.possible(exclusive, row.possible_joules)),
            exclusive_seconds: self.seconds(row.exclusive_ticks),
            resolved_seconds: self.seconds(resolved.ticks),
            watts: rates.watts(exclusive, resolved, row.joules_per_tick),
        }
    }

    fn region(&self, row: RegionRow, rates: &Rates) -> Region {
        let exclusive = Amount { joules: row.exclusive_joules, ticks: row.exclusive_ticks };
        let resolved = Amount { joules: row.resolved_joules, ticks: row.resolved_ticks };
        let resolved = rates.resolved(exclusive, resolved);
        Region {
            region: self.region_name(row.region),
            calls: row.calls,
            exclusive_joules: row.exclusive_joules,
            inclusive_joules: row.inclusive_joules,
            resolved_joules: resolved.joules,
            possible_joules: Some(rates.possible(exclusive, row.possible_joules)),
            exclusive_seconds: self.seconds(row.exclusive_ticks),
            resolved_seconds: self.seconds(resolved.ticks),
            watts: rates.watts(exclusive, resolved, row.joules_per_tick),
        }
    }

    fn region_name(&self, region: RegionRef) -> Name {
        self.regions.get(region.0 as usize).cloned().unwrap_or_else(|| "undefined region".into())
    }
}

/// The call paths with the most joules, at most so many.
struct Largest {
    most: usize,
    rows: Vec<Callpath>,
    /// So many have as many joules or more: what has less is none of the largest.
    least_joules: f64,
}

impl Largest {
    fn new(most: usize) -> Largest {
        Largest { most, rows: Vec::new(), least_joules: f64::NEG_INFINITY }
    }

    fn takes(&self, joules: f64) -> bool {
        joules >= self.least_joules
    }

    fn push(&mut self, row: Callpath) {
        self.rows.push(row);
        if self.rows.len() >= self.most.saturating_mul(2) {
            let (_, last, _) = self.rows.select_nth_unstable_by(self.most - 1, Callpath::by_joules);
            self.least_joules = last.exclusive_joules;
            self.rows.truncate(self.most);
        }
    }

    fn sorted(mut self) -> Vec<Callpath> {
        // In place: there may be a hundred thousand.
        self.rows.sort_unstable_by(Callpath::by_joules);
        self.rows.truncate(self.most);
        self.rows
    }
}

pub(crate) fn shortened(path: &[RegionRef], name: impl Fn(RegionRef) -> Name) -> Vec<Name> {
    let names = |part: &[RegionRef]| part.iter().map(|region| name(*region)).collect::<Vec<Name>>();
    if path.len() <= MOST_FRAMES {
        return names(path);
    }
    let (head, tail) = (MOST_FRAMES / 2, MOST_FRAMES / 2 - 1);
    let mut short = names(&path[..head]);
    short.push(format!("... {} frames ...", path.len() - head - tail).into());
    short.extend(names(&path[path.len() - tail..]));
    short
}

/// Joules, and the time that they are of.
#[derive(Clone, Copy)]
struct Amount {
    joules: f64,
    ticks: u64,
}

/// What a view's rows need for their power. A clock resolves everything, and seconds in a second are no rate.
struct Rates {
    is_time: bool,
    ticks_per_second: f64,
    least_resolved_seconds: f64,
    watts_max: f64,
}

impl Rates {
    fn resolved(&self, exclusive: Amount, resolved: Amount) -> Amount {
        if self.is_time { exclusive } else { resolved }
    }

    fn possible(&self, exclusive: Amount, possible: f64) -> f64 {
        if self.is_time { exclusive.joules } else { possible }
    }

    /// `joules_per_tick`: the least and the most of the intervals in which the row ran.
    fn watts(&self, exclusive: Amount, resolved: Amount, joules_per_tick: Option<(f64, f64)>) -> Watts {
        if self.is_time {
            return Watts::default();
        }
        let seconds = |ticks: u64| ticks as f64 / self.ticks_per_second;
        let is_resolved = resolved.ticks > 0 && seconds(resolved.ticks) >= self.least_resolved_seconds;
        let rate = |of: Amount| (is_resolved && of.ticks > 0).then(|| of.joules / seconds(of.ticks));
        let watts = Watts {
            mean_watts: rate(exclusive),
            resolved_watts: rate(resolved),
            min_watts: joules_per_tick.map(|(least, _)| least * self.ticks_per_second),
            max_watts: joules_per_tick.map(|(_, most)| most * self.ticks_per_second),
        };
        watts.up_to(self.watts_max)
    }
}
