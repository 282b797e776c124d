//! Compares counters: if a device's energy is measured in two ways, finds how far the two measurements agree.
//!
//! | kind | a device's counter is compared with |
//! | --- | --- |
//! | `power sensor` | the power that the device reports, integrated |
//! | `counter` | another library's counter of the same device: Cray's `accel0` for `GPU-0` |
//! | `sum of parts` | the counters of the devices that it contains, such as a node's GPUs, packages and memory |
//!
//! The two measurements are compared in windows, over the time that both cover. They need not be equal: one may have a factor, or
//! include a part with constant power. But their relation stays the same. If it changes, one of the two stalls, drifts or jumps.
//! A note reports when this happened, and nothing is corrected.

use crate::attributor::{Attributor, Device, Unit};
use crate::curve::Curve;
use crate::device::Disproof;
use ampere_model::counted::{Counted, Level};
use ampere_model::text::{compact, joules};
use ampere_model::{Quality, Timestamp};
use serde::{Deserialize, Serialize};

/// [`Check::kind`] for the power that the device itself reports.
pub const POWER_SENSOR: &str = "power sensor";
/// [`Check::kind`] for another counter of the same device.
pub const COUNTER: &str = "counter";
/// [`Check::kind`] for the devices that this one contains.
pub const SUM_OF_PARTS: &str = "sum of parts";

const WINDOWS_MAX: u64 = 64;
/// A comparison needs at least this many sample intervals.
const INTERVALS_MIN: u64 = 2;
/// A window has at least this many sample intervals, because the first and the last one are only partly in the window.
const WINDOW_INTERVALS: u64 = 8;
/// The usual difference is unknown until there are this many windows.
const WINDOWS_MIN: u64 = 8;
/// Several consecutive windows are unusual if each differs from the usual relation by more than this fraction of its joules.
const UNUSUAL: f64 = 0.1;
/// A single window has to differ by more than this fraction, because a sensor may lag when the load changes.
const UNUSUAL_ALONE: f64 = 0.5;
/// A difference must be this many times as large as the usual change of the difference between two windows.
const BEYOND_NOISE: f64 = 5.0;
/// A difference is not a change if the device uses as many joules within this many seconds. When the load changes, a sensor may
/// show the mean over such a time, or lag by as much.
const LAG_MAX_SECONDS: f64 = 1.0;
/// A change that is less than this fraction of all joules does not matter.
const CHANGE_MIN: f64 = 0.01;
/// The sum of the parts may exceed the joules of the whole by this fraction, because different sensors measure them.
const PARTS_BEYOND_WHOLE: f64 = 0.01;
/// Another counter of the same device may exceed this one by this fraction, because each has its own factor.
const OTHER_BEYOND_WHOLE: f64 = 0.1;
/// In addition, the parts or the other counter may exceed the device's counter by its energy in this many seconds, because the
/// counters are not read at the same times.
const READ_APART_SECONDS: f64 = 0.2;
/// If more than this fraction of a device's joules is in none of its parts, a change is not reported, because those joules may
/// change.
const UNCOUNTED_MAX: f64 = 0.25;

/// The comparison of a device's energy with another measurement of it, over the time that both cover.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Check {
    /// `average power`, the other counter's device, or the names of the parts.
    pub against: String,
    /// The source of the other measurement; empty for a sum.
    pub source: String,
    /// "power sensor", "counter" or "sum of parts".
    pub kind: String,
    /// The time that both cover, in seconds.
    pub seconds: f64,
    pub device_joules: f64,
    /// The joules of the other measurement.
    pub joules: f64,
    /// (`joules` - `device_joules`) / `device_joules`; `null` if the device's counter shows no joules.
    pub difference_ratio: Option<f64>,
    /// The time in which the difference was unusual.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub change: Option<Change>,
}

/// A time in which a difference was unusual, in seconds since the device's first sample.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Change {
    pub from_seconds: f64,
    pub to_seconds: f64,
    /// The joules of the device in this time.
    pub device_joules: f64,
    /// The joules of the other measurement in this time.
    pub joules: f64,
}

impl Check {
    /// Returns the comparison as one line for people.
    pub fn text(&self) -> String {
        let (own, other) = (joules(self.device_joules), joules(self.joules));
        if self.kind == SUM_OF_PARTS {
            let rest = self.device_joules - self.joules;
            let part = if self.device_joules > 0.0 { 100.0 * rest / self.device_joules } else { 0.0 };
            return format!(
                "of its {own} J in {:.2} s, {other} J are in {}, {} J ({part:.1} %) in none of them",
                self.seconds,
                self.against,
                joules(rest)
            );
        }
        let than = match self.difference_ratio {
            Some(ratio) if ratio.abs() < 0.0005 => "as much as".to_owned(),
            Some(ratio) if ratio < 0.0 => format!("{:.1} % less than", -100.0 * ratio),
            Some(ratio) => format!("{:.1} % more than", 100.0 * ratio),
            None => "against".to_owned(),
        };
        format!("{} has {other} J in {:.2} s, {than} the {own} J of its counter", self.other(), self.seconds)
    }

    /// Returns a text that names the other measurement.
    fn other(&self) -> String {
        match self.kind.as_str() {
            COUNTER => format!("{} ({})", self.against, self.source),
            POWER_SENSOR => format!("its {}, integrated,", self.against),
            _ => format!("the sum of {}", self.against),
        }
    }

    /// Returns a note if the difference changes, or if the parts exceed the whole.
    fn note(&self, device: &Device) -> Option<String> {
        let name = format!("{} on {}", device.info.name, device.info.node);
        if let Some(change) = &self.change {
            let what = if self.kind == SUM_OF_PARTS {
                "either what is in none of these parts changed, or one of the counters is wrong"
            } else {
                "one of the two is wrong then"
            };
            return Some(format!(
                "{name}: between {:.2} s and {:.2} s after its first sample its counter has {} J and {} {} J; in the other {:.2} s {} J \
                 and {} J: {what}; nothing is corrected",
                change.from_seconds,
                change.to_seconds,
                joules(change.device_joules),
                self.other(),
                joules(change.joules),
                self.seconds - (change.to_seconds - change.from_seconds),
                joules(self.device_joules - change.device_joules),
                joules(self.joules - change.joules)
            ));
        }
        let more = self.joules / self.device_joules - 1.0;
        let is_beyond = more > PARTS_BEYOND_WHOLE + READ_APART_SECONDS / self.seconds;
        (self.kind == SUM_OF_PARTS && is_beyond).then(|| {
            format!(
                "{name} has {} J, less than the {} J of its parts ({}): one of these counters is wrong",
                joules(self.device_joules),
                joules(self.joules),
                self.against
            )
        })
    }
}

/// Returns the comparisons for each device. `with_changes`: each comparison also looks for a time in which the difference was
/// unusual.
pub fn checks(attributor: &Attributor, with_changes: bool) -> Vec<Vec<Check>> {
    let mut all = vec![Vec::new(); attributor.devices.len()];
    let counting = attributor.devices.iter().enumerate().filter(|(at, _)| attributor.counts(*at));
    for (at, device) in counting.filter(|(_, device)| is_measured(device)) {
        // An integrated counter is computed from the same sensor.
        let sensors = device.sensors.iter().filter(|_| device.info.quality != Quality::Integrated);
        for sensor in sensors {
            let against = format!("{} power", sensor.which);
            let other = Other {
                against,
                source: source_of(device),
                kind: POWER_SENSOR,
                energies: vec![&sensor.energy],
            };
            all[at].extend(check(attributor, device, &other, with_changes));
        }
        let parts = parts_of(attributor, at);
        let part = |at: usize| &attributor.devices[at];
        match parts.as_slice() {
            [] => {}
            [only] if is_same(device, part(*only)) => {
                let other = Other {
                    against: device.info.name.clone(),
                    source: source_of(device),
                    kind: COUNTER,
                    energies: vec![device.energy_over_time()],
                };
                all[*only].extend(check(attributor, part(*only), &other, with_changes));
            }
            parts => {
                let mut names: Vec<&str> = parts.iter().map(|at| part(*at).info.name.as_str()).collect();
                names.sort_by_key(|name| (name.len(), *name));
                let other = Other {
                    against: compact(&names),
                    source: String::new(),
                    kind: SUM_OF_PARTS,
                    energies: parts.iter().map(|at| part(*at).energy_over_time()).collect(),
                };
                all[at].extend(check(attributor, device, &other, with_changes));
            }
        }
    }
    all
}

/// Returns one line for each comparison that shows something wrong.
pub fn notes(attributor: &Attributor) -> Vec<String> {
    let checks = checks(attributor, true);
    let of_devices = attributor.devices.iter().zip(&checks);
    of_devices.flat_map(|(device, checks)| checks.iter().filter_map(|check| check.note(device))).collect()
}

/// Returns the proof that a device is not the sum of its parts, if they have counted more joules than it. During the run, more
/// than one second of figures is needed, because counters move at different times.
pub(crate) fn disproof(attributor: &Attributor, number: usize, has_ended: bool) -> Option<Disproof> {
    let whole = &attributor.devices[number];
    let parts = parts_of(attributor, number);
    let part = |at: &usize| &attributor.devices[*at];
    let curves: Vec<&Curve> = parts.iter().map(|at| part(at).energy_over_time()).collect();
    let total = |device: &Device| attributor.engine.totals(device.views.ranks).total_joules;
    let all: f64 = parts.iter().map(|at| total(part(at))).sum();
    let compared = compare(whole.energy_over_time(), &curves);
    let seconds = compared.map_or(0.0, |compared| compared.ticks as f64 / attributor.ticks_per_second as f64);
    let [own, sum] = match compared {
        // A counter that never rises shows 0 J at all times, so all joules of the parts are compared.
        _ if !whole.rises() => [0.0, all],
        Some(compared) => compared.joules,
        None => return None,
    };
    let is_other = matches!(parts.as_slice(), [only] if is_same(whole, part(only)));
    let beyond = if is_other { OTHER_BEYOND_WHOLE } else { PARTS_BEYOND_WHOLE };
    let is_lagging = whole.info.quality == Quality::Integrated;
    let apart = if is_lagging { LAG_MAX_SECONDS } else { READ_APART_SECONDS };
    let is_less = match whole.rises() {
        true => sum > own * (1.0 + beyond + apart / seconds) && (has_ended || seconds > LAG_MAX_SECONDS),
        false => sum > 0.0 && (has_ended || parts.iter().any(|at| has_shown(attributor, part(at)))),
    };
    let mut names: Vec<&str> = parts.iter().map(|at| part(at).info.name.as_str()).collect();
    names.sort_by_key(|name| (name.len(), *name));
    is_less.then(|| Disproof { joules: own, parts_joules: sum, parts: compact(&names) })
}

/// Whether a counter has been read for longer than other counters may lag.
fn has_shown(attributor: &Attributor, device: &Device) -> bool {
    let span = device.energy_over_time().span();
    span.is_some_and(|(from, to)| to - from > attributor.ticks_of(LAG_MAX_SECONDS))
}

/// Another measurement of a device.
struct Other<'a> {
    against: String,
    source: String,
    kind: &'static str,
    energies: Vec<&'a Curve>,
}

fn check(attributor: &Attributor, device: &Device, other: &Other, with_changes: bool) -> Option<Check> {
    let seconds = |ticks: u64| ticks as f64 / attributor.ticks_per_second as f64;
    let own = device.energy_over_time();
    let compared = compare(own, &other.energies)?;
    let [device_joules, joules] = compared.joules;
    let rest = (device_joules - joules) / device_joules;
    let is_reported = with_changes && (other.kind != SUM_OF_PARTS || rest < UNCOUNTED_MAX);
    let change = || {
        let Deviation { from, to, joules: [device_joules, joules] } =
            deviation(own, &other.energies, attributor.ticks_of(LAG_MAX_SECONDS))?;
        let begin = own.span()?.0;
        Some(Change {
            from_seconds: seconds(from - begin),
            to_seconds: seconds(to - begin),
            device_joules,
            joules,
        })
    };
    Some(Check {
        against: other.against.clone(),
        source: other.source.clone(),
        kind: other.kind.to_owned(),
        seconds: seconds(compared.ticks),
        device_joules,
        joules,
        difference_ratio: (device_joules > 0.0).then(|| (joules - device_joules) / device_joules),
        change: if is_reported { change() } else { None },
    })
}

/// Whether the device's joules come from a counter that has shown any.
fn is_measured(device: &Device) -> bool {
    device.info.unit == Unit::Joules && device.info.quality != Quality::Estimated && !device.is_silent()
}

/// Returns the library in the name of a device's metric. The names of metrics in traces contain it, too.
fn library(device: &Device) -> &str {
    device.info.metric.split_once(":::").map_or("", |(library, _)| library)
}

fn source_of(device: &Device) -> String {
    let of_trace = device.info.source == "trace" && !library(device).is_empty();
    if of_trace { library(device) } else { &device.info.source }.to_owned()
}

/// Whether the two are counters of the same device in two libraries: a device and its only part, which is of the same kind.
fn is_same(whole: &Device, part: &Device) -> bool {
    let kinds = [whole, part].map(|device| device.info.traits.kind.as_str());
    library(whole) != library(part) && kinds[0] == kinds[1] && !kinds[0].is_empty()
}

/// Returns the parts of a device whose counters are added up for the comparison, so that each joule is counted once.
fn parts_of(attributor: &Attributor, number: usize) -> Vec<usize> {
    let whole = &attributor.devices[number];
    // A power supply is compared only with its output, because all supplies together contain the rest of the node.
    let is_supply = |device: &Device| {
        device.info.is_by_other_tool && Counted::by_name(&device.info.metric).level == Some(Level::Supply)
    };
    let is_of_one = |part: &Device| !is_supply(whole) || is_supply(part);
    let contains = |whole: &Device, part: &Device| whole.info.contains(&part.info);
    let all: Vec<(usize, &Device)> = attributor
        .devices
        .iter()
        .enumerate()
        .filter(|(at, part)| attributor.counts(*at) && part.info.node == whole.info.node)
        .filter(|(_, part)| is_measured(part) && is_of_one(part) && contains(whole, part))
        .collect();
    let is_topmost = |part: &Device| !all.iter().any(|(_, other)| contains(other, part));
    // If the library of the whole has parts of a kind itself, such as GPUs, another library's counters of this kind count them
    // again.
    let is_own = |part: &Device| library(part) == library(whole);
    let is_counted_twice = |part: &Device| {
        let kind = &part.info.traits.kind;
        !is_own(part) && all.iter().any(|(_, other)| is_own(other) && other.info.traits.kind == *kind)
    };
    let once = all.iter().filter(|(_, part)| is_topmost(part) && !is_counted_twice(part));
    once.map(|(at, _)| *at).collect()
}

/// The ticks that both curves cover, and the joules of each.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Compared {
    ticks: u64,
    joules: [f64; 2],
}

/// Compares one curve of energy with the sum of others.
fn compare(one: &Curve, others: &[&Curve]) -> Option<Compared> {
    let ((from, to), interval) = common(one, others)?;
    if to - from < INTERVALS_MIN * interval {
        return None;
    }
    let mut sum = Compared { ticks: 0, joules: [0.0; 2] };
    for window in windows(one, others, (from, to), WINDOWS_MAX) {
        let Some(joules) = window.joules else { continue };
        sum.ticks += window.to - window.from;
        (0..2).for_each(|at| sum.joules[at] += joules[at]);
    }
    (sum.ticks > 0).then_some(sum)
}

/// Returns the time that all curves cover, and the longest of their mean sample intervals.
fn common(one: &Curve, others: &[&Curve]) -> Option<((Timestamp, Timestamp), u64)> {
    let (mut span, mut interval) = (one.span()?, one.interval()?);
    for other in others {
        let (from, to) = other.span()?;
        span = (span.0.max(from), span.1.min(to));
        interval = interval.max(other.interval()?);
    }
    (span.0 < span.1).then_some((span, interval))
}

#[derive(Clone, Copy, Debug)]
struct Window {
    from: Timestamp,
    to: Timestamp,
    /// The joules of the one curve, and of the others together; `None` if they are not known completely.
    joules: Option<[f64; 2]>,
}

fn windows(one: &Curve, others: &[&Curve], (from, to): (Timestamp, Timestamp), count: u64) -> Vec<Window> {
    let edge = |at: u64| from + (u128::from(to - from) * u128::from(at) / u128::from(count)) as u64;
    let window = |at: u64| {
        let (from, to) = (edge(at), edge(at + 1));
        let sum: Option<f64> = others.iter().map(|other| other.between(from, to)).sum();
        Window { from, to, joules: one.between(from, to).zip(sum).map(|(one, sum)| [one, sum]) }
    };
    (0..count).map(window).collect()
}

/// A time in which the difference of two energies is unusual.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Deviation {
    from: Timestamp,
    to: Timestamp,
    joules: [f64; 2],
}

/// Finds the time in which the difference of two energies deviates most from its usual value. Returns `None` if that may be
/// chance, or if one of them may just lag behind the other.
fn deviation(one: &Curve, others: &[&Curve], lag: u64) -> Option<Deviation> {
    let (span, interval) = common(one, others)?;
    let longest = others.iter().map(|other| other.longest_interval()).max()?.max(one.longest_interval());
    let shortest = interval.saturating_mul(WINDOW_INTERVALS).max(longest);
    let count = ((span.1 - span.0) / shortest.max(1)).min(WINDOWS_MAX);
    if count < WINDOWS_MIN {
        return None;
    }
    let windows = windows(one, others, span, count);
    let known: Vec<[f64; 2]> = windows.iter().filter_map(|window| window.joules).collect();
    if (known.len() as u64) < WINDOWS_MIN {
        return None;
    }
    let usual = Usual::of(&known);
    let over: Vec<Option<f64>> =
        windows.iter().map(|window| window.joules.map(|[one, other]| one - usual.of_other(other))).collect();
    let noise = noise_of(&over);
    // A difference is compared with the joules in the windows around it: where the load changes, with those of the larger load.
    let around = |at: usize| {
        let near = &windows[at.saturating_sub(1)..(at + 2).min(windows.len())];
        let larger = |[one, other]: [f64; 2]| one.max(usual.of_other(other));
        near.iter().filter_map(|window| window.joules).map(larger).fold(0.0, f64::max)
    };
    let is_beyond = |at: usize, part: f64| {
        over[at].is_some_and(|over| over.abs() > noise.max(part * around(at)) && around(at) > 0.0)
    };
    // The joules that the device uses in the time of a lag, at the largest power that both measurements show near these
    // windows.
    let lags = lag.saturating_mul(count).div_ceil(span.1 - span.0) as usize + 1;
    let in_a_lag = |begin: usize, end: usize| {
        let near = &windows[begin.saturating_sub(lags)..(end + lags).min(windows.len())];
        let smaller = |[one, other]: [f64; 2]| one.min(usual.of_other(other));
        let most = near.iter().filter_map(|window| window.joules).map(smaller).fold(0.0, f64::max);
        most * lag.saturating_mul(count) as f64 / (span.1 - span.0) as f64
    };
    let sums = sum_of(&known);
    let mut worst: Option<(f64, Deviation)> = None;
    let mut begin = 0;
    while begin < windows.len() {
        // A deviation covers all consecutive windows that are unusual in the same direction.
        let sign = over[begin].unwrap_or(0.0).signum();
        let continues = |at: &usize| is_beyond(*at, UNUSUAL) && over[*at].is_some_and(|o| o.signum() == sign);
        let length = (begin..windows.len()).take_while(continues).count();
        let end = begin + length;
        if length > 1 || (length == 1 && is_beyond(begin, UNUSUAL_ALONE)) {
            let sum: f64 = over[begin..end].iter().flatten().sum();
            let joules: Vec<[f64; 2]> =
                windows[begin..end].iter().filter_map(|window| window.joules).collect();
            let (from, to) = (windows[begin].from, windows[end - 1].to);
            let found = Deviation { from, to, joules: sum_of(&joules) };
            // A counter that catches up jumps by as much as it has stalled. The stall, which came first, is reported.
            let is_worse = worst.is_none_or(|(before, _)| sum.abs() > 1.1 * before);
            let least = in_a_lag(begin, end).max(CHANGE_MIN * sums[0].max(sums[1]));
            if is_worse && sum.abs() > least {
                worst = Some((sum.abs(), found));
            }
        }
        begin = end.max(begin + 1);
    }
    worst.map(|(_, deviation)| deviation)
}

/// Returns the difference below which differences may be chance.
fn noise_of(differences: &[Option<f64>]) -> f64 {
    let steps = differences.windows(2).filter_map(|pair| Some((pair[1]? - pair[0]?).abs()));
    BEYOND_NOISE * median(&mut steps.collect::<Vec<f64>>())
}

fn sum_of(windows: &[[f64; 2]]) -> [f64; 2] {
    [0, 1].map(|of| windows.iter().map(|joules| joules[of]).sum())
}

/// The usual relation between two energies: a line on which a few unusual windows have no influence.
#[derive(Clone, Copy, Debug)]
struct Usual {
    offset: f64,
    factor: f64,
}

impl Usual {
    fn of(windows: &[[f64; 2]]) -> Usual {
        let mut ratios: Vec<f64> =
            windows.iter().filter(|[_, other]| *other > 0.0).map(|[one, other]| one / other).collect();
        let ratio = median(&mut ratios);
        let mut by_other = windows.to_vec();
        by_other.sort_by(|a, b| a[1].total_cmp(&b[1]));
        let third = windows.len() / 3;
        let middle =
            |of: &[[f64; 2]]| [0, 1].map(|at| median(&mut of.iter().map(|w| w[at]).collect::<Vec<_>>()));
        let (low, high) = (middle(&by_other[..third]), middle(&by_other[by_other.len() - third..]));
        let slope = (high[0] - low[0]) / (high[1] - low[1]);
        // Under a constant load no line can be found.
        let is_line = high[1] > 1.25 * low[1] && (0.5 * ratio..=2.0 * ratio).contains(&slope);
        if !is_line {
            return Usual { offset: 0.0, factor: ratio };
        }
        let mut offsets: Vec<f64> = windows.iter().map(|[one, other]| one - slope * other).collect();
        Usual { offset: median(&mut offsets), factor: slope }
    }

    fn of_other(self, other: f64) -> f64 {
        (self.offset + self.factor * other).max(0.0)
    }
}

/// Returns the median; 0 if there are no values.
fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

#[cfg(test)]
#[path = "agreement_tests.rs"]
mod tests;
