//! The first sentences of a summary.

use crate::baseline;
use crate::first::{facts, hints, names};
use crate::{other_jobs, over_ranks, sensors, waits};
use ampere_figures::summary::{Device, Figures, Region, Summary, View, topmost, view};
use ampere_model::digits::{energy, significant};
use ampere_model::order::largest_first;
use ampere_model::regions::{is_mpi, is_python};
use ampere_model::sum;
use ampere_model::text::printable;
use std::collections::{BTreeMap, HashMap};

const NAME_CHARS_MAX: usize = 56;
/// The maximum number of functions that a sentence names.
const NAMES_MAX: usize = 3;
/// Smaller parts of the whole than this are not mentioned.
const MENTIONED_SHARE_MIN: f64 = 0.005;

/// Sums over the devices that are not contained in another, so that no joule is counted twice.
pub struct Sums<'a> {
    /// The energy of the devices.
    pub joules: f64,
    /// The energy that was charged to no frame.
    pub idle: f64,
    /// The part of the idle energy that other jobs used.
    pub other_jobs: f64,
    /// The energy of intervals that cannot be attributed.
    pub lost: f64,
    /// The dynamic energy; `None` unless it is known for all devices.
    pub dynamic: Option<f64>,
    /// The exclusive joules by region, sorted by the dynamic joules if they are known, the largest first. They are those of the
    /// ranks view, or of the kernels view if the ranks view was excluded.
    pub regions: Vec<(&'a str, f64)>,
    /// The dynamic joules of each region, if `dynamic` is known.
    pub dynamic_of: HashMap<&'a str, f64>,
    /// The energy of devices with GPU streams.
    pub gpu_joules: f64,
    /// The exclusive joules of the devices with GPU streams by kernel, sorted like `regions`. Empty if there is no ranks view.
    pub kernels: Vec<(&'a str, f64)>,
    /// The dynamic joules of each kernel, if they and `dynamic` are known.
    pub dynamic_of_kernels: HashMap<&'a str, f64>,
    /// The standard errors of sampled regions.
    pub sampled_errors: HashMap<&'a str, f64>,
}

impl<'a> Sums<'a> {
    /// Computes the sums of the views that tables show.
    pub fn of(summary: &'a Summary) -> Sums<'a> {
        Sums::of_views(summary, |device| device.shown().collect())
    }

    /// Computes the sums of the views that the settings chose, which can be compared between runs.
    pub fn by_settings(summary: &'a Summary) -> Sums<'a> {
        Sums::of_views(summary, |device| device.views.iter().collect())
    }

    fn of_views(summary: &'a Summary, views: impl Fn(&'a Device) -> Vec<&'a View>) -> Sums<'a> {
        let devices: Vec<(&Device, Vec<&View>)> =
            topmost(summary).map(|device| (device, views(device))).collect();
        // The ranks view and the kernels view divide the same joules. The ranks view has all of them, unless it was excluded.
        let has_ranks = devices.iter().any(|(_, views)| views.iter().any(|view| view.view == "ranks"));
        let shown = if has_ranks { "ranks" } else { "kernels" };
        // Views without rows are included, because their joules are a part of the sums.
        let shown_of = |(device, views): &(&'a Device, Vec<&'a View>)| {
            let device = *device;
            views.clone().into_iter().filter(|view| view.view == shown).map(move |view| (device, view))
        };
        let shown_views: Vec<(&Device, &View)> = devices.iter().flat_map(shown_of).collect();
        let ranks = || shown_views.iter().map(|(_, view)| *view);
        let kernels = || devices.iter().filter(|_| has_ranks).flat_map(|(device, _)| view(device, "kernels"));
        let with_rows: Vec<(&Device, &View)> =
            shown_views.iter().copied().filter(|(_, view)| !view.regions.is_empty()).collect();
        let is_active = over_ranks::is_dynamic(&with_rows);
        let dynamic_of = if is_active {
            by_name(ranks(), Figures::own_joules).into_iter().collect()
        } else {
            HashMap::new()
        };
        let largest = |rows: &mut Vec<(&str, f64)>, dynamic_of: &HashMap<&str, f64>| {
            largest_first(rows, |(name, joules)| dynamic_of.get(name).copied().unwrap_or(*joules));
        };
        let mut regions = by_name(ranks(), |row| row.exclusive_joules);
        largest(&mut regions, &dynamic_of);
        let has_active_kernels =
            is_active && kernels().filter(|view| !view.regions.is_empty()).all(View::is_active);
        let dynamic_of_kernels: HashMap<&str, f64> = match has_active_kernels {
            true => by_name(kernels(), Figures::own_joules).into_iter().collect(),
            false => HashMap::new(),
        };
        let mut of_kernels = by_name(kernels(), |row| row.exclusive_joules);
        largest(&mut of_kernels, &dynamic_of_kernels);
        // Devices without rows also have dynamic joules.
        let dynamic = |(device, views): &(&Device, Vec<&View>)| {
            let active = views.iter().find(|view| view.view == shown && view.is_active());
            active.map_or(device.dynamic_joules.unwrap_or_default(), |view| device.own_whole(view))
        };
        Sums {
            dynamic: is_active.then(|| devices.iter().map(dynamic).sum()),
            dynamic_of,
            joules: sum(devices.iter().map(|(device, _)| device.total_joules)),
            idle: sum(ranks().map(|view| view.idle_joules)),
            other_jobs: sum(ranks().map(|view| view.other_jobs_joules)),
            lost: sum(ranks().map(|view| view.lost_joules)),
            regions,
            gpu_joules: sum(
                kernels().map(|view| view.attributed_joules + view.idle_joules + view.lost_joules)
            ),
            kernels: of_kernels,
            dynamic_of_kernels,
            sampled_errors: facts::sampled_errors(devices.iter().flat_map(|(device, views)| {
                let views = views.iter().filter(|view| view.view == shown);
                views.map(|view| (device.node.as_str(), *view))
            })),
        }
    }

    /// Returns the dynamic joules of each region if they are known, else the exclusive joules, the most first.
    pub fn own_regions(&self) -> Vec<(&'a str, f64)> {
        own_rows(&self.regions, &self.dynamic_of)
    }

    /// Iterates over the MPI functions among the regions.
    pub fn mpi(&self) -> impl Iterator<Item = &(&'a str, f64)> {
        self.regions.iter().filter(|(name, _)| is_mpi(name))
    }
}

fn own_rows<'a>(rows: &[(&'a str, f64)], dynamic_of: &HashMap<&str, f64>) -> Vec<(&'a str, f64)> {
    rows.iter().map(|(name, joules)| (*name, dynamic_of.get(name).copied().unwrap_or(*joules))).collect()
}

fn by_name<'a>(
    views: impl Iterator<Item = &'a View>,
    joules: impl Fn(&Figures) -> f64,
) -> Vec<(&'a str, f64)> {
    let mut sums: BTreeMap<&str, f64> = BTreeMap::new();
    let regions: Vec<&Region> = views.flat_map(View::own_regions).collect();
    regions.iter().for_each(|row| *sums.entry(&row.region).or_insert(0.0) += joules(&row.figures));
    let mut sums: Vec<_> = sums.into_iter().collect();
    largest_first(&mut sums, |(_, joules)| *joules);
    sums
}

/// Describes the joules and their parts, in one sentence, or in two if there are static joules.
fn how_much(summary: &Summary, sums: &Sums, share: &dyn Fn(f64, f64) -> String) -> Vec<String> {
    let run = &summary.run;
    let quality =
        if run.energy == "measured" { String::new() } else { format!(", {}", printable(&run.energy)) };
    let words = |(is_bound, watts)| {
        format!(", {}{} W on average", if is_bound { "at least " } else { "" }, significant(watts, 3))
    };
    let watts = facts::watts(summary).map_or_else(String::new, words);
    let idle = share(sums.idle, sums.joules);
    let lost = match sums.lost > 0.0 {
        true => format!(", {} lost", share(sums.lost, sums.joules)),
        false => String::new(),
    };
    let (total, seconds) = (energy(sums.joules), run.seconds);
    match baseline::words(&topmost(summary).collect::<Vec<_>>()) {
        Some(words) => vec![
            format!("{total}{words}"),
            format!("{seconds:.1} s{watts}{quality}; {idle} of the joules in no function{lost}"),
        ],
        None => vec![format!("{total} in {seconds:.1} s{watts}{quality}; {idle} of it in no function{lost}")],
    }
}

/// Returns the rows that a sentence mentions.
fn mentioned<'r, 'a>(
    rows: &'r [(&'a str, f64)],
    whole: f64,
) -> impl Iterator<Item = &'r (&'a str, f64)> + use<'r, 'a> {
    rows.iter().filter(move |row| row.1 >= MENTIONED_SHARE_MIN * whole).take(NAMES_MAX)
}

/// Returns sentences about the energy, the static energy, the kernels, the functions, other jobs, the part that is certain, MPI
/// functions, waiting in MPI, and counters that differ from sensors, followed by the hints. There are none without joules.
pub fn sentences(summary: &Summary) -> Vec<String> {
    sentences_with(summary, hints(summary))
}

/// Returns the sentences with hints of another summary of the same run.
pub fn sentences_with(summary: &Summary, hints: Vec<String>) -> Vec<String> {
    let sums = Sums::of(summary);
    if sums.joules <= 0.0 {
        return Vec::new();
    }
    let share = |part: f64, whole: f64| format!("{:.1} %", 100.0 * part / whole);
    let named = |rows: &[(&str, f64)], whole: f64| {
        let names = mentioned(rows, whole).map(|(name, part)| {
            format!("{} ({})", names::shorten(name, NAME_CHARS_MAX), share(*part, whole))
        });
        names.collect::<Vec<_>>().join(", ")
    };
    let mut all = how_much(summary, &sums, &share);
    let own = sums.own_regions();
    let (whole, words) = sums.dynamic.map_or((sums.joules, ""), |dynamic| (dynamic, " dynamic"));
    let kernels = own_rows(&sums.kernels, &sums.dynamic_of_kernels);
    let of_kernels: f64 = kernels.iter().map(|row| row.1).sum();
    let has_kernels = of_kernels > 0.0 && sums.gpu_joules > 0.0;
    if has_kernels {
        let dynamic = sums.dynamic.filter(|_| !sums.dynamic_of_kernels.is_empty());
        let (whole, what) = dynamic.map_or((sums.joules, "total"), |dynamic| (dynamic, "dynamic joules"));
        all.push(format!(
            "{} of the {what} while GPU kernels ran: {}",
            share(of_kernels, whole),
            named(&kernels, whole)
        ));
    }
    let facts = own.iter().any(|(name, _)| is_python(name)).then(|| facts::Facts::of(summary));
    let of_python = facts.iter().flat_map(|facts| facts.python.iter().map(|row| (row.name, row.joules)));
    let of_python: Vec<(&str, f64)> = of_python.collect();
    let (rows, calls) = match of_python.is_empty() {
        true => (&own, String::new()),
        false => {
            let elsewhere = facts.as_ref().map_or(0.0, facts::Facts::outside_python);
            let words = match elsewhere >= MENTIONED_SHARE_MIN * whole {
                true => format!("; {} called by no known Python function", share(elsewhere, whole)),
                false => String::new(),
            };
            (&of_python, format!(", each with the functions in C that it calls{words}"))
        }
    };
    let most = named(rows, whole);
    if !most.is_empty() {
        let when = if has_kernels { "on the host, also while kernels ran: " } else { "" };
        let what = if sums.dynamic.is_some() { "the dynamic joules" } else { "the total" };
        let parts: Vec<f64> = mentioned(rows, whole).map(|row| row.1).collect();
        let most_of = match parts.len() {
            _ if 2.0 * parts.iter().sum::<f64>() > whole => "most of",
            1 => "the largest part of",
            _ => "the largest parts of",
        };
        all.push(format!("{when}{most_of} {what} in {most}{calls}"));
    }
    all.extend(other_jobs::words(summary));
    all.extend(baseline::resolved_words(topmost(summary)));
    let mpi = || own.iter().filter(|(name, _)| is_mpi(name));
    let of_mpi: f64 = mpi().map(|row| row.1).sum();
    if let Some((name, part)) = mpi().next().filter(|_| of_mpi > 0.0 && of_mpi >= MENTIONED_SHARE_MIN * whole)
    {
        all.push(format!(
            "{}{words} ({}) in MPI functions, where ranks exchange data and wait: most in {} ({})",
            energy(of_mpi),
            share(of_mpi, whole),
            names::shorten(name, NAME_CHARS_MAX),
            energy(*part)
        ));
    }
    let waits = waits::words(summary);
    all.extend((!waits.is_empty()).then(|| waits.join("; ")));
    all.extend(sensors::words(summary));
    all.extend(hints);
    all
}

#[cfg(test)]
#[path = "highlights_tests.rs"]
mod tests;
