//! Finds which devices of a node are parts of others, in traces that do not state it, from the names and places of the metrics
//! and from their joules. The total counts only devices that are not parts of others. A whole with fewer joules than its parts is
//! wrong and left out.

use crate::evidence::nodes_with_sockets;
use crate::left_out::MeanPower;
use crate::metric_recorders::are_in_doubt;
use crate::metrics::Found;
use crate::series::Series;
use ampere_model::counted::{Counted, Level, is_output_of, path_of, path_of_part, without_numbers};
use ampere_timeline::attributor::{Attributor, Unit};
use otf2::{Definitions, MetricMode};
use std::collections::{BTreeMap, BTreeSet};

/// The joules of parts may exceed those of their whole by this fraction, because different sensors measure them.
const PARTS_EXCESS_MAX: f64 = 0.03;
/// Two measurements of the same part, such as a GPU that two libraries measure, may differ by this fraction.
const SAME_DIFFERENCE_MAX: f64 = 0.25;
/// Parts may also exceed their whole by the energy that they use in this many seconds, but by a tenth at most, because they are
/// read at other times.
const READ_APART_SECONDS: f64 = 0.2;
/// A counter with an unknown name is the sum of others if it differs from their sum by at most this fraction.
const SUM_DIFFERENCE_MAX: f64 = 0.01;
/// In each part of the run, such a sum may differ by this fraction, because the counters are read at other times.
const WINDOW_DIFFERENCE_MAX: f64 = 0.1;
/// The number of these parts of the run.
const WINDOWS: u64 = 8;
/// Two counters may be one if their joules differ by at most this fraction, even if their names do not show that they count the
/// same part.
const EQUAL_DIFFERENCE_MAX: f64 = 0.001;
/// A counter that always changes is stuck if it has not changed for this time, and for this many times the usual time between two
/// changes.
const STALL_SECONDS_MIN: f64 = 1.0;
const STALL_RATIO_MIN: f64 = 5.0;
/// Libraries that have counters of the same parts.
const LIBRARIES: [&str; 11] = [
    "rapl",
    "cray_rapl",
    "powercap",
    "power",
    "x86_energy",
    "hdeem",
    "coretemp",
    "cray_pm",
    "rocm_smi",
    "amd_smi",
    "nvml",
];

/// The findings of [`relate`] about a trace.
#[derive(Default)]
pub(crate) struct Related {
    /// Wholes that have fewer joules than their parts.
    pub disproved: Vec<Series>,
    pub notes: Vec<String>,
    /// Lines that state why the trace's joules are in doubt.
    pub doubts: Vec<String>,
}

struct Device {
    /// The index among the devices that were found.
    at: usize,
    /// The number among the attributor's devices.
    number: usize,
    counted: Counted,
    /// Whether the device's traits already state its parts.
    is_stated: bool,
    joules: f64,
    seconds: f64,
}

pub(crate) fn mean_powers(
    attributor: &Attributor,
    joules: &dyn Fn(&Attributor, usize) -> f64,
) -> Vec<MeanPower> {
    let all = attributor.devices.iter().enumerate();
    let measured = all.filter(|(_, device)| device.info.unit == Unit::Joules);
    measured
        .map(|(at, device)| {
            let seconds = seconds_of(attributor, at);
            MeanPower {
                node: device.info.node.clone(),
                kind: device.info.traits.kind.clone(),
                watts: if seconds > 0.0 { joules(attributor, at) / seconds } else { 0.0 },
            }
        })
        .collect()
}

/// Returns the time from a device's first sample to its last.
fn seconds_of(attributor: &Attributor, device: usize) -> f64 {
    let figures = attributor.devices[device].counter_figures();
    let ticks = figures.first.zip(figures.last).map_or(0, |(first, last)| last.saturating_sub(first));
    ticks as f64 / attributor.ticks_per_second as f64
}

/// Sets which devices contain which. `joules` takes the attributor's number of a device.
pub(crate) fn relate(
    definitions: &Definitions,
    found: &mut [Found],
    attributor: &mut Attributor,
    joules: &dyn Fn(&Attributor, usize) -> f64,
) -> Related {
    let mut nodes: BTreeMap<String, Vec<Device>> = BTreeMap::new();
    for (at, found) in found.iter().enumerate() {
        let Some(number) = found.number.filter(|number| !attributor.is_repeated(*number)) else { continue };
        nodes.entry(found.device.node.clone()).or_default().push(Device {
            at,
            number,
            counted: found.counted,
            // A user who configures devices also configures their parts.
            is_stated: found.is_stated || attributor.devices[number].setting().is_some(),
            joules: joules(attributor, number),
            seconds: seconds_of(attributor, number),
        });
    }
    let mut related = Related::default();
    let outside = found.iter().filter(|found| found.place.is_outside && found.number.is_some());
    related.doubts.extend(outside.map(|found| {
        format!(
            "{} belongs to no single node of the system tree: its joules are charged to no frame",
            found.text()
        )
    }));
    let with_sockets = nodes_with_sockets(definitions);
    for (name, devices) in &nodes {
        let node = Node { found, devices, attributor, gpus_are_sockets: with_sockets.contains(name) };
        let parts = node.parts(&mut related.doubts);
        node.check(&parts, &mut related);
        let names = |parts: &Vec<usize>| parts.iter().map(|part| node.counter(*part)).collect();
        let names: Vec<Vec<String>> = parts.iter().map(names).collect();
        for (whole, names) in devices.iter().zip(names).filter(|(whole, _)| !whole.is_stated) {
            found[whole.at].traits.contains = names;
            attributor.set_traits(whole.number, found[whole.at].traits.clone());
        }
    }
    let counting = found.iter().filter(|found| !related.disproved.contains(&found.series));
    let mode = |found: &Found| definitions.metric_members.get(found.series.member).map(|member| member.mode);
    related.doubts.extend(counting.filter_map(|found| doubt_of_readings(found, mode(found), attributor)));
    related
}

/// Returns the fraction of its joules by which a part may exceed its whole because they are read at other times.
fn read_apart(seconds: f64) -> f64 {
    if seconds > 0.0 { (READ_APART_SECONDS / seconds).min(0.1) } else { 0.0 }
}

/// The joules are in doubt if more than this fraction of the readings is left out because they came out of order or, for a power,
/// were misreadings.
const MISREAD_RATIO_MAX: f64 = 0.01;

/// Returns the reason if the readings of another tool's device do not show all of its energy: they came out of order, a power was
/// not a number or could not be true, the counter of a processor or of a node, which always use energy, does not change any more,
/// or the values of a counter may be the energies of single intervals.
fn doubt_of_readings(found: &Found, mode: Option<MetricMode>, attributor: &Attributor) -> Option<String> {
    let number = found.number.filter(|number| !attributor.is_repeated(*number))?;
    let (device, text) = (&attributor.devices[number], found.text());
    if !found.recorded.is_by_other_tool || device.info.unit != Unit::Joules {
        return None;
    }
    let figures = device.counter_figures();
    let all = figures.misreadings + figures.samples;
    let is_much = |of: u64| of as f64 > MISREAD_RATIO_MAX * all as f64 && attributor.whole(number).is_none();
    if is_much(figures.unordered) {
        return Some(format!(
            "{text}: {} of {all} readings come after one with a later time, and are left out: its joules may be wrong",
            figures.unordered
        ));
    }
    if device.is_power() {
        let misread = figures.misreadings;
        // A reading that is left out counts like the one before it.
        return is_much(misread).then(|| {
            format!(
                "{text}: {misread} of {all} readings are negative, not numbers, or too high, and are left out: its joules may be wrong"
            )
        });
    }
    // Single cores and an integrated GPU may sleep.
    let level = found.counted.level;
    let is_one = |of: &Level| {
        matches!(of, Level::Package | Level::Grace | Level::Module | Level::Platform | Level::Node)
    };
    let always_uses = level.as_ref().is_some_and(is_one);
    let [still, longest] = [figures.still_ticks, figures.longest_still_ticks]
        .map(|t| t as f64 / attributor.ticks_per_second as f64);
    // Some counters change every few seconds only.
    let seconds = seconds_of(attributor, number);
    let usual = (seconds - still) / device.rise_count().max(1) as f64;
    let is_stuck = still >= STALL_SECONDS_MIN.max(STALL_RATIO_MIN * usual);
    let may_sleep = matches!(level, Some(Level::Cores | Level::Uncore | Level::Subzone | Level::GpuPart));
    let is_running_sum = !matches!(
        mode,
        Some(MetricMode::AbsolutePoint | MetricMode::AbsoluteLast | MetricMode::AbsoluteNext)
    );
    match () {
        () if attributor.whole(number).is_some() => None,
        () if always_uses && is_stuck => Some(format!(
            "{text}: its counter did not change for the last {still:.2} s, and the energy of that time is missing"
        )),
        () if !is_running_sum && !may_sleep && longest >= STALL_SECONDS_MIN.max(0.5 * seconds) => {
            Some(format!(
                "{text}: its values did not change for {longest:.2} s: if they are the energy since the previous reading, its joules are wrong"
            ))
        }
        () => None,
    }
}

struct Node<'a> {
    found: &'a [Found],
    devices: &'a [Device],
    attributor: &'a Attributor,
    /// Whether the counter of a GPU contains the package with the same number.
    gpus_are_sockets: bool,
}

impl Node<'_> {
    fn of(&self, device: usize) -> &Found {
        &self.found[self.devices[device].at]
    }

    fn metric(&self, device: usize) -> &str {
        &self.of(device).device.metric
    }

    /// Returns a name that no other counter of the node has.
    fn counter(&self, device: usize) -> String {
        self.of(device).recorded.counter(self.metric(device))
    }

    fn library(&self, device: usize) -> Option<&'static str> {
        let metric =
            self.metric(device).trim_start_matches(|c: char| c.is_ascii_uppercase() || c.is_ascii_digit());
        let begins =
            |library: &&&str| metric.strip_prefix(**library).is_some_and(|rest| rest.starts_with([':', '/']));
        LIBRARIES.iter().find(begins).copied()
    }

    fn parts(&self, doubts: &mut Vec<String>) -> Vec<Vec<usize>> {
        let all = 0..self.devices.len();
        let packages: BTreeSet<Option<u32>> = (self.devices.iter())
            .filter(|device| device.counted.level == Some(Level::Package))
            .map(|device| device.counted.package)
            .collect();
        let modules =
            self.devices.iter().filter(|device| device.counted.level == Some(Level::Module)).count();
        let has_one_package = packages.len() == 1 && modules <= 1;
        let mut parts: Vec<Vec<usize>> = vec![Vec::new(); self.devices.len()];
        for whole in all.clone() {
            let of = &self.devices[whole];
            let stated = &self.of(whole).traits.contains;
            parts[whole] = all
                .clone()
                .filter(|part| *part != whole)
                .filter(|part| match of.is_stated {
                    true => {
                        stated.iter().any(|name| *name == self.counter(*part) || name == self.metric(*part))
                    }
                    false => {
                        stated.iter().any(|name| name == self.metric(*part))
                            || self.is_part_by_name(whole, *part, has_one_package)
                            || self.is_part_by_path(whole, *part)
                            || self.is_in_socket(whole, *part)
                            || self.is_same(whole, *part)
                    }
                })
                .collect();
            if !of.is_stated {
                let more = self.numbered(whole).into_iter().chain(self.places(whole));
                let more: BTreeSet<usize> = more.filter(|part| !parts[whole].contains(part)).collect();
                parts[whole].extend(more);
            }
        }
        for (whole, part) in all.clone().flat_map(|whole| all.clone().map(move |part| (whole, part))) {
            let [of, other] = [whole, part].map(|at| self.devices[at].joules);
            if whole != part
                && !self.devices[whole].is_stated
                && self.is_same(whole, part)
                && other < of * (1.0 - SAME_DIFFERENCE_MAX)
            {
                let [one, another] = [whole, part].map(|at| self.of(at).text());
                doubts.push(format!(
                    "{one} and {another} count the same according to their names, but have {of:.3} J and {other:.3} J"
                ));
            }
        }
        self.check_supplies(&mut parts, doubts);
        self.place_cores(&packages, &mut parts, doubts);
        self.judge_unknown(&mut parts, doubts);
        self.doubt_equal(&parts, doubts);
        self.doubt_subzones(doubts);
        parts
    }

    fn is_part_by_name(&self, whole: usize, part: usize, has_one_package: bool) -> bool {
        let (of, other) = (&self.devices[whole], &self.devices[part]);
        // A metric with an unknown name may count something outside of this device.
        let may_be_part =
            other.counted.level.is_some() || other.joules <= of.joules * (1.0 + PARTS_EXCESS_MAX);
        of.counted.contains(other.counted, has_one_package) && may_be_part
    }

    fn is_in_socket(&self, gpu: usize, package: usize) -> bool {
        let [of, other] = [gpu, package].map(|at| self.devices[at].counted);
        let are_both = of.level == Some(Level::Gpu) && other.level == Some(Level::Package);
        self.gpus_are_sockets && are_both && of.number.is_some() && of.number == other.package
    }

    /// Decides by the metrics' names: `elab.ariel.power` contains `elab.ariel.s0.package.power`, `gpu0.energy` contains
    /// `gpu0.1.energy`, `pm/energy` contains `pm/accel_energy`, and the input power of a supply contains its output power.
    fn is_part_by_path(&self, whole: usize, part: usize) -> bool {
        let (of, other) = (self.metric(whole), self.metric(part));
        let above = path_of(of).zip(path_of(other));
        let is_below = |(path, other): (&str, &str)| {
            other.strip_prefix(path).is_some_and(|rest| rest.starts_with(['.', '/']))
        };
        let [counted, others] = [whole, part].map(|at| self.devices[at].counted);
        let may_contain = counted.level.is_none() || counted == others;
        let is_beside = || {
            counted.level.is_none()
                && others.level.is_some()
                && path_of(of).zip(path_of_part(other)).is_some_and(|(path, other)| path == other)
        };
        may_contain && above.is_some_and(is_below) || is_beside() || is_output_of(of, other)
    }

    /// Judges counters with unknown names. A counter with about as many joules as all others together, or as all with known
    /// names, is their sum. It is in doubt if it has about the joules of one counter with a known name, or at least those of all.
    fn judge_unknown(&self, parts: &mut [Vec<usize>], doubts: &mut Vec<String>) {
        let all = 0..self.devices.len();
        let is_part = |parts: &[Vec<usize>], at: usize| parts.iter().any(|parts| parts.contains(&at));
        for whole in all.clone() {
            let of = &self.devices[whole];
            if of.counted.level.is_some()
                || of.is_stated
                || of.joules <= 0.0
                || parts[whole].iter().any(|at| self.devices[*at].counted.level.is_some())
                || is_part(parts, whole)
            {
                continue;
            }
            let is_one = |at: &usize| self.devices[*at].counted.level.is_some() && !is_part(parts, *at);
            let known: Vec<usize> = all.clone().filter(is_one).collect();
            let others: Vec<usize> = all.clone().filter(|at| *at != whole && !is_part(parts, *at)).collect();
            if let Some(own) = [&known, &others].into_iter().find(|own| self.is_sum(whole, own)) {
                let more: Vec<usize> = all
                    .clone()
                    .filter(|at| own.iter().any(|top| top == at || parts[*top].contains(at)))
                    .collect();
                parts[whole].extend(more);
            } else if let Some(same) = known.iter().find(|at| self.may_be_same(whole, **at)) {
                doubts.push(format!(
                    "the name of {} does not show whether it counts the same as {}, whose joules it has: they are added; if a [[device]] \
                     names each counter to use, the others are left out",
                    self.of(whole).text(),
                    self.counter(*same)
                ));
            } else if let Some(doubt) = self.doubt_of_whole(whole, &known, &others) {
                doubts.push(doubt);
            }
        }
    }

    /// Returns a doubt if a counter with an unknown name has at least the joules of all counters with `known` names or, without
    /// any, of at least two others. Counters whose names differ from this one's only in numbers are added to it.
    fn doubt_of_whole(&self, whole: usize, known: &[usize], others: &[usize]) -> Option<String> {
        let name = |at: usize| without_numbers(self.metric(at));
        let is_like = |at: &usize| {
            let of = &self.devices[*at];
            of.counted.level.is_none() && !of.is_stated && of.joules > 0.0 && name(*at) == name(whole)
        };
        let (like, unlike): (Vec<usize>, Vec<usize>) = others.iter().partition(|at| is_like(at));
        let contained = match known {
            [] if unlike.len() > 1 => &unlike,
            known => known,
        };
        let joules = |all: &[usize]| all.iter().map(|at| self.devices[*at].joules).sum::<f64>();
        let (own, sum) = (self.devices[whole].joules + joules(&like), joules(contained));
        // The doubt is stated only once, with the first of these counters.
        let is_first = like.iter().all(|at| *at > whole);
        let is_doubt = is_first && are_in_doubt(sum, own) && own >= sum * (1.0 - PARTS_EXCESS_MAX);
        is_doubt.then(|| {
            let names: Vec<String> = contained.iter().map(|at| self.counter(*at)).collect();
            let more: String = like.iter().map(|at| format!(" and {}", self.of(*at).text())).collect();
            format!(
                "the name of {}{more} does not show whether it contains the joules of {}: they are added; if a [[device]] names each \
                 counter to use, the others are left out",
                self.of(whole).text(),
                names.join(", ")
            )
        })
    }

    /// Whether a counter with an unknown name has the joules of another one in all parts of the run.
    fn may_be_same(&self, unknown: usize, known: usize) -> bool {
        let [joules, others] = [unknown, known].map(|at| self.devices[at].joules);
        (joules - others).abs() <= SUM_DIFFERENCE_MAX * joules && self.is_in_step(unknown, &[known])
    }

    /// Whether a counter has the joules of several others together, in all parts of the run.
    fn is_sum(&self, whole: usize, own: &[usize]) -> bool {
        let joules = |at: &usize| self.devices[*at].joules;
        let sum: f64 = own.iter().map(joules).sum();
        let is_several = own.iter().filter(|at| joules(at) > SUM_DIFFERENCE_MAX * sum).count() > 1;
        // The first of three numbered counters is no sum of the other two.
        let name = without_numbers(self.metric(whole));
        let is_numbered = own.iter().any(|at| without_numbers(self.metric(*at)) == name);
        is_several
            && !is_numbered
            && (joules(&whole) - sum).abs() <= SUM_DIFFERENCE_MAX * sum
            && self.is_in_step(whole, own)
    }

    fn is_in_step(&self, whole: usize, own: &[usize]) -> bool {
        let curve = |at: usize| self.attributor.devices[self.devices[at].number].energy_over_time();
        let spans: Vec<_> = own.iter().chain([&whole]).filter_map(|at| curve(*at).span()).collect();
        let begin = spans.iter().map(|span| span.0).max().unwrap_or(0);
        let end = spans.iter().map(|span| span.1).min().unwrap_or(0);
        let length = end.saturating_sub(begin) / WINDOWS;
        (0..WINDOWS).all(|window| {
            let [from, to] = [window, window + 1].map(|at| begin + at * length);
            let sum: Option<f64> = own.iter().map(|at| curve(*at).between(from, to)).sum();
            curve(whole).between(from, to).zip(sum).is_none_or(|(joules, sum)| {
                (joules - sum).abs()
                    <= WINDOW_DIFFERENCE_MAX * sum + SUM_DIFFERENCE_MAX * self.devices[whole].joules
            })
        })
    }

    /// Adds a doubt for every pair of counters that have the same joules and, according to their names, may be one.
    fn doubt_equal(&self, parts: &[Vec<usize>], doubts: &mut Vec<String>) {
        let is_top =
            |at: usize| !self.devices[at].is_stated && !parts.iter().any(|parts| parts.contains(&at));
        let is_one_thing = |counted: Counted| {
            counted.level == Some(Level::Node) || counted.level.is_some() && counted.is_numbered()
        };
        let most = |counted: Counted| match is_one_thing(counted) {
            true => SAME_DIFFERENCE_MAX,
            false => EQUAL_DIFFERENCE_MAX,
        };
        let tops: Vec<usize> = (0..self.devices.len()).filter(|at| is_top(*at)).collect();
        let total: f64 = tops.iter().map(|at| self.devices[*at].joules).sum();
        for (at, one) in tops.iter().enumerate() {
            for other in &tops[at + 1..] {
                let [(of, name), (others, another)] =
                    [one, other].map(|at| (&self.devices[*at], self.metric(*at)));
                if of.counted == others.counted
                    && without_numbers(name) != without_numbers(another)
                    && (of.joules - others.joules).abs() <= most(of.counted) * of.joules.max(others.joules)
                    && are_in_doubt(of.joules, total)
                    && self.is_in_step(*one, &[*other])
                {
                    doubts.push(format!(
                        "{} and {} have about the same joules, and their names do not show whether they are one counter: they are added; if \
                         a [[device]] names each counter to use, the others are left out",
                        self.of(*one).text(),
                        self.of(*other).text()
                    ));
                }
            }
        }
    }

    /// Whether two counters, of different libraries, count the same part. `whole` must have more joules than `part` or, if both
    /// have the same joules, come first.
    fn is_same(&self, whole: usize, part: usize) -> bool {
        let (of, other) = (&self.devices[whole], &self.devices[part]);
        let (Some(library), Some(others)) = (self.library(whole), self.library(part)) else { return false };
        let is_gpu = matches!(of.counted.level, Some(Level::Gpu | Level::GpuBoard | Level::GpuPart));
        let is_nvidia = |library: &str| library == "nvml";
        // Cray's numbers count accelerators and not dies.
        let is_cray = |library: &str| ["coretemp", "cray_pm"].contains(&library);
        let is_first = (of.joules, part) > (other.joules, whole);
        library != others
            && of.counted == other.counted
            && of.counted.level.is_some()
            && !(is_gpu && (is_nvidia(library) != is_nvidia(others) || is_cray(library) || is_cray(others)))
            && is_first
    }

    /// Returns the numbered counters of the same kind next to a counter without a number, if it may be their sum.
    fn numbered(&self, whole: usize) -> Vec<usize> {
        let of = &self.devices[whole];
        if of.counted.level.is_none() || of.counted.is_numbered() {
            return Vec::new();
        }
        let is_one = |part: &usize| {
            let other = self.devices[*part].counted;
            other.level == of.counted.level && other.is_numbered()
        };
        let all: Vec<usize> = (0..self.devices.len()).filter(is_one).collect();
        let sum: f64 = all.iter().map(|part| self.devices[*part].joules).sum();
        if sum > of.joules * (1.0 + SAME_DIFFERENCE_MAX) { Vec::new() } else { all }
    }

    /// Returns the same metric of the node's parts for a metric of the node, if the trace states that it is about the node or if
    /// it may be their sum.
    fn places(&self, whole: usize) -> Vec<usize> {
        let place = |device: usize| self.of(device).place.part.as_str();
        let is_one = |part: &usize| {
            self.metric(*part) == self.metric(whole) && place(whole).is_empty() && !place(*part).is_empty()
        };
        let all: Vec<usize> = (0..self.devices.len()).filter(is_one).collect();
        let is_within = |part: &usize| {
            all.iter().any(|other| {
                place(*part).strip_prefix(place(*other)).is_some_and(|rest| rest.starts_with('/'))
            })
        };
        let topmost = all.iter().filter(|part| !is_within(part));
        let sum: f64 = topmost.map(|part| self.devices[*part].joules).sum();
        let may_be_parts = sum <= self.devices[whole].joules * (1.0 + PARTS_EXCESS_MAX);
        if may_be_parts || self.of(whole).series.instance.is_some() { all } else { Vec::new() }
    }

    /// If there are several packages, assigns the cores whose names do not state their package: by their numbers if these are the
    /// numbers of the packages, otherwise, with a doubt, to the package with the most joules.
    fn place_cores(
        &self,
        packages: &BTreeSet<Option<u32>>,
        parts: &mut [Vec<usize>],
        doubts: &mut Vec<String>,
    ) {
        let are_unplaced = |device: &Device| {
            matches!(device.counted.level, Some(Level::Cores | Level::Uncore))
                && device.counted.package.is_none()
        };
        let cores: Vec<usize> =
            (0..self.devices.len()).filter(|at| are_unplaced(&self.devices[*at])).collect();
        if packages.len() < 2 || cores.is_empty() {
            return;
        }
        let numbers: BTreeSet<Option<u32>> =
            cores.iter().map(|at| self.devices[*at].counted.number).collect();
        let is_package = |at: usize| self.devices[at].counted.level == Some(Level::Package);
        let is_within_one = |parts: &[Vec<usize>], core: usize| {
            (0..parts.len()).any(|whole| is_package(whole) && parts[whole].contains(&core))
        };
        for core in cores {
            if is_within_one(parts, core) {
                continue;
            }
            let number = self.devices[core].counted.number;
            let is_own_package = |at: &usize| is_package(*at) && self.devices[*at].counted.package == number;
            let own = (0..parts.len()).find(is_own_package).filter(|_| numbers == *packages);
            let any = || {
                (0..parts.len())
                    .filter(|at| is_package(*at))
                    .max_by(|a, b| self.devices[*a].joules.total_cmp(&self.devices[*b].joules))
            };
            if own.is_none() {
                doubts.push(format!(
                    "it is unknown which package contains the cores that {} counts",
                    self.of(core).text()
                ));
            }
            if let Some(whole) = own.or_else(any).filter(|whole| !self.devices[*whole].is_stated) {
                parts[whole].push(core);
            }
        }
    }

    fn doubt_subzones(&self, doubts: &mut Vec<String>) {
        let total: f64 = self.devices.iter().map(|device| device.joules).sum();
        for (at, device) in self.devices.iter().enumerate() {
            if device.counted.level == Some(Level::Subzone) && are_in_doubt(device.joules, total) {
                doubts.push(format!(
                    "{} may be the cores of its package or the memory next to it, which its name does not show: it is treated as a part of the package",
                    self.of(at).text()
                ));
            }
        }
    }

    /// Compares the joules of all power supplies with those of the other devices. If the supplies have fewer, some are not recorded,
    /// or a counter is wrong: then it is unknown what they contain.
    fn check_supplies(&self, parts: &mut [Vec<usize>], doubts: &mut Vec<String>) {
        let is_supply = |at: &usize| self.devices[*at].counted.level == Some(Level::Supply);
        let is_within = |at: &usize, wholes: &[usize]| wholes.iter().any(|whole| parts[*whole].contains(at));
        let all: Vec<usize> =
            (0..self.devices.len()).filter(is_supply).filter(|at| !self.devices[*at].is_stated).collect();
        let supplies: Vec<usize> = all.iter().copied().filter(|at| !is_within(at, &all)).collect();
        let contained: Vec<usize> =
            (0..self.devices.len()).filter(|at| !is_supply(at) && is_within(at, &supplies)).collect();
        let topmost: Vec<usize> = contained.iter().copied().filter(|at| !is_within(at, &contained)).collect();
        let sum = |of: &[usize]| of.iter().map(|at| self.devices[*at].joules).sum::<f64>();
        let seconds = topmost.iter().map(|at| self.devices[*at].seconds).fold(0.0, f64::max);
        let [own, others] = [&supplies, &topmost].map(|of| sum(of));
        if others <= own * (1.0 + PARTS_EXCESS_MAX) + others * read_apart(seconds) {
            return;
        }
        let [names, of_others] = [&supplies, &topmost]
            .map(|of| of.iter().map(|at| self.counter(*at)).collect::<Vec<_>>().join(", "));
        doubts.push(format!(
            "the power supplies ({names}) have {own:.3} J, fewer than the {others:.3} J of {of_others}: all are added; if a [[device]] names \
             each counter to use, the others are left out"
        ));
        for supply in all {
            parts[supply].retain(is_supply);
        }
    }

    /// Finds the wholes with fewer joules than their parts.
    fn check(&self, parts: &[Vec<usize>], related: &mut Related) {
        // Only all power supplies together contain the other devices.
        let is_judged = |of: &Device| !of.is_stated && of.counted.level != Some(Level::Supply);
        for (whole, of) in self.devices.iter().enumerate().filter(|(_, of)| is_judged(of)) {
            let own = &parts[whole];
            let is_within =
                |part: &usize| own.iter().any(|other| other != part && parts[*other].contains(part));
            let known = own.iter().filter(|part| self.devices[**part].counted.level.is_some());
            let once: Vec<usize> = known.filter(|part| !is_within(part)).copied().collect();
            let sum: f64 = once.iter().map(|part| self.devices[*part].joules).sum();
            let is_same = |part: &usize| self.devices[*part].counted.level == of.counted.level;
            let beyond = if once.iter().all(is_same) { SAME_DIFFERENCE_MAX } else { PARTS_EXCESS_MAX };
            let seconds = once.iter().map(|part| self.devices[*part].seconds).fold(of.seconds, f64::max);
            let apart = sum * read_apart(seconds);
            if once.is_empty() || sum <= of.joules * (1.0 + beyond) + apart {
                continue;
            }
            let names: Vec<String> = once.iter().map(|part| self.counter(*part)).collect();
            let doubt = format!(
                "{} is left out: by its name it contains {}, but it has {:.3} J, fewer than their {sum:.3} J; either it or one of them \
                 is wrong",
                self.of(whole).text(),
                names.join(", "),
                of.joules
            );
            related.notes.push(doubt);
            related.disproved.push(self.of(whole).series);
        }
    }
}
