//! Estimates a counter's delay, levels and noise from its readings and from the times when the load was busy. It uses no clock
//! and no IO, and cannot fail.
//!
//! The model: power is `busy` when the load was busy `delay` earlier, and `idle` otherwise. The energy of a reading is the
//! integral of the power up to its time. So the mean power between two movements of the counter is `idle + (busy - idle) x (the
//! fraction of that time, a delay earlier, in which the load was busy)`. For each delay that is tried, this is a line. The
//! estimated delay is the one whose line has the least error (least squares, weighted by the lengths of the intervals). It is
//! searched for on a grid first, then between the points of the grid by golden section.

use super::wave::{Wave, quantile};

/// The range of delays that are tried, in periods. Delays that differ by a whole period cannot be distinguished.
const DELAY_MIN: f64 = -0.25;
const DELAY_MAX: f64 = 0.75;
const GRID: usize = 400;
/// The maximum number of parts into which the run is split. The spread of their delays shows the uncertainty.
const PARTS: usize = 10;
/// A part's delay is searched in this range around the delay of the whole run, in periods.
const DELAY_RANGE: f64 = 0.25;
/// A counter needs at least this many movements in a period to show its two levels.
const UPDATES_MIN: f64 = 4.0;
/// No device uses more power than this. It is the limit that the attribution has for a whole node
/// (`crates/timeline/src/device.rs`); its limits for single GPUs and processors are lower. A larger step, or a decrease, is a
/// reset.
const WATTS_MAX: f64 = 20_000.0;
/// A response must be more than this fraction of the mean power, however regular it is.
const RESPONSE_MIN: f64 = 1e-3;
/// Intervals that are nearer to an edge than this fraction of a period are not steady yet.
const SETTLING: f64 = 0.1;
/// The level of a phase is the mean of at least this many intervals.
const STEADY_MIN: usize = 10;
/// The number of cells in the plot of a period.
pub const CELLS: usize = 48;

/// A counter's movements (*updates* in the JSON report): the time of the first reading of each new value, in nanoseconds of
/// CLOCK_MONOTONIC, and the value in nanojoules.
pub type Movements = [(u64, u64)];

#[derive(Clone, Debug, PartialEq)]
pub struct Estimate {
    pub verdict: Verdict,
    /// The median and the 10th and 90th percentiles of the time between movements, in seconds.
    pub update: Option<Spread>,
    /// The number of intervals between movements for which the state of the load is known.
    pub updates: usize,
    /// The number of steps that no device can make: resets or wraps.
    pub resets: usize,
    /// The number of intervals without a movement that were too long to be used.
    pub gaps: usize,
    pub mean_watts: Option<f64>,
    /// The response to the load; `None` if the counter does not respond.
    pub response: Option<Response>,
    /// The mean watts in each of the [`CELLS`] parts of the period, which starts with the rise; NaN for a part without
    /// readings.
    pub phase_watts: Vec<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Responds,
    /// The power is the same whether the load is busy or idle.
    NoResponse,
    /// The counter changes so rarely that the two phases cannot be distinguished.
    Aliased,
    /// The counter did not change, changed too rarely, or could not be read during the wave.
    Still,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    pub median: f64,
    /// The 10th percentile.
    pub p10: f64,
    /// The 90th percentile.
    pub p90: f64,
}

/// A counter's response to the load. Powers are in watts, times in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Response {
    /// The estimated delay. It is negative if the counter seems to change before the load does.
    pub delay: f64,
    /// The standard error from the spread of the parts' delays, but at least half of the time between two readings.
    pub delay_error: f64,
    pub idle: f64,
    pub busy: f64,
    /// The standard deviation of the power between movements, if enough intervals were steady.
    pub idle_noise: Option<f64>,
    pub busy_noise: Option<f64>,
}

impl Response {
    /// Returns the delay that is written to the settings.
    pub fn delay_to_set(&self) -> f64 {
        self.delay.max(0.0)
    }
}

/// The interval between two movements, in seconds of the wave.
#[derive(Clone, Copy, Debug)]
struct Interval {
    from: f64,
    to: f64,
    watts: f64,
}

impl Interval {
    fn length(&self) -> f64 {
        self.to - self.from
    }
}

/// Estimates a counter's response to the wave. `reading_period` is the time between two readings of the counter, in seconds.
pub fn estimate(movements: &Movements, wave: &Wave, reading_period: f64) -> Estimate {
    let mut all = intervals(movements, wave);
    let mut lengths: Vec<f64> = all.iter().map(|interval| interval.length()).collect();
    let update = Spread {
        median: quantile(&mut lengths, 0.5),
        p10: quantile(&mut lengths, 0.1),
        p90: quantile(&mut lengths, 0.9),
    };
    let moved = all.len();
    // A longer time without a movement is a gap: the counter was not read, or stood still.
    let longest = (10.0 * update.median).max(1.5 * wave.period);
    all.retain(|interval| interval.length() <= longest);
    let gaps = moved - all.len();
    let without_gaps = all.len();
    // Any decrease is a reset, however small it is, because a device never returns energy.
    all.retain(|interval| (0.0..=WATTS_MAX).contains(&interval.watts));
    let mut outcome = Estimate {
        verdict: Verdict::Still,
        update: (moved > 0).then_some(update),
        updates: moved,
        resets: without_gaps - all.len(),
        gaps,
        mean_watts: None,
        response: None,
        phase_watts: over_phase(&all, wave),
    };
    let seconds: f64 = all.iter().map(Interval::length).sum();
    if all.len() < 3 || seconds < wave.period {
        return outcome;
    }
    outcome.mean_watts = Some(all.iter().map(|i| i.watts * i.length()).sum::<f64>() / seconds);
    if update.median * UPDATES_MIN > wave.period {
        outcome.verdict = Verdict::Aliased;
        return outcome;
    }
    let delay = best_delay(&all, wave, DELAY_MIN * wave.period, DELAY_MAX * wave.period, GRID);
    if !responds(&all, wave, delay, outcome.mean_watts.unwrap_or(0.0)) {
        outcome.verdict = Verdict::NoResponse;
        return outcome;
    }
    outcome.verdict = Verdict::Responds;
    outcome.response = Some(describe(&all, wave, delay, reading_period));
    outcome
}

/// Returns the usable intervals: those for which the state of the load is known at every delay that is tried for the whole run.
fn intervals(movements: &Movements, wave: &Wave) -> Vec<Interval> {
    // After the last fall, the load is assumed to be idle for half a period.
    let (begin, end) = (DELAY_MAX * wave.period, wave.end() + (0.5 + DELAY_MIN) * wave.period);
    let seconds = |ns: u64| ns.wrapping_sub(wave.origin_ns) as i64 as f64 * 1e-9;
    let pairs = movements.windows(2).filter_map(|pair| {
        let (from, to) = (seconds(pair[0].0), seconds(pair[1].0));
        let joules = pair[1].1.wrapping_sub(pair[0].1) as i64 as f64 * 1e-9;
        (from >= begin && to <= end && to > from).then(|| Interval { from, to, watts: joules / (to - from) })
    });
    pairs.collect()
}

/// Sums for a weighted line through the points (busy fraction, watts).
#[derive(Default)]
struct Line {
    weight: f64,
    x: f64,
    y: f64,
    xx: f64,
    xy: f64,
    yy: f64,
}

impl Line {
    /// `about` is a power near the mean. It is subtracted, because squares of large numbers would hide small differences.
    fn of(intervals: &[Interval], wave: &Wave, delay: f64, about: f64) -> Line {
        let mut line = Line::default();
        let mut cursor = wave.cursor();
        let mut before: Option<(f64, f64)> = None;
        for interval in intervals {
            let (from, weight) = (interval.from - delay, interval.length());
            let busy_from = match before {
                Some((time, busy)) if time == from => busy,
                _ => cursor.busy_until(from),
            };
            let busy_to = cursor.busy_until(interval.to - delay);
            before = Some((interval.to - delay, busy_to));
            let (x, y) = ((busy_to - busy_from) / weight, interval.watts - about);
            line.weight += weight;
            line.x += weight * x;
            line.y += weight * y;
            line.xx += weight * x * x;
            line.xy += weight * x * y;
            line.yy += weight * y * y;
        }
        line
    }

    /// Returns the additional watts while busy; 0 if the load was busy for the same fraction of each interval.
    fn amplitude(&self) -> f64 {
        let spread = self.xx - self.x * self.x / self.weight;
        if spread > 1e-9 * self.weight { (self.xy - self.x * self.y / self.weight) / spread } else { 0.0 }
    }

    /// Returns the sum of the weighted squared residuals. A load cannot lower the power, so a falling line is replaced by a
    /// flat one.
    fn residual(&self) -> f64 {
        let all = self.yy - self.y * self.y / self.weight;
        all - self.amplitude().max(0.0) * (self.xy - self.x * self.y / self.weight)
    }
}

fn mean(intervals: &[Interval]) -> f64 {
    let seconds: f64 = intervals.iter().map(Interval::length).sum();
    intervals.iter().map(|interval| interval.watts * interval.length()).sum::<f64>() / seconds
}

fn best_delay(intervals: &[Interval], wave: &Wave, from: f64, to: f64, steps: usize) -> f64 {
    let about = mean(intervals);
    let residual = |delay: f64| Line::of(intervals, wave, delay, about).residual();
    let step = (to - from) / steps as f64;
    let grid = (0..=steps).map(|n| from + step * n as f64).map(|delay| (residual(delay), delay));
    let best = grid.min_by(|a, b| a.0.total_cmp(&b.0)).map_or(from, |(_, delay)| delay);
    // The golden section search stops at about a microsecond.
    let (mut low, mut high) = (best - step, best + step);
    let golden = (5f64.sqrt() - 1.0) / 2.0;
    let (mut a, mut b) = (high - golden * (high - low), low + golden * (high - low));
    let (mut residual_a, mut residual_b) = (residual(a), residual(b));
    while high - low > 1e-6_f64.max(1e-6 * wave.period) {
        if residual_a <= residual_b {
            (high, b, residual_b) = (b, a, residual_a);
            a = high - golden * (high - low);
            residual_a = residual(a);
        } else {
            (low, a, residual_a) = (a, b, residual_b);
            b = low + golden * (high - low);
            residual_b = residual(b);
        }
    }
    (low + high) / 2.0
}

/// Divides the intervals, in order, into parts of about the same length.
fn parts(intervals: &[Interval], count: usize) -> Vec<&[Interval]> {
    let (Some(first), Some(last)) = (intervals.first(), intervals.last()) else { return Vec::new() };
    let width = (last.to - first.from) / count as f64;
    let start = |n: usize| intervals.partition_point(|i| i.from < first.from + width * n as f64);
    (0..count)
        .map(|n| &intervals[start(n)..if n + 1 == count { intervals.len() } else { start(n + 1) }])
        .collect()
}

fn whole_periods(intervals: &[Interval], wave: &Wave) -> usize {
    let time =
        intervals.last().map_or(0.0, |last| last.to) - intervals.first().map_or(0.0, |first| first.from);
    ((time / wave.period).round() as usize).max(1)
}

fn mean_and_deviation(values: &[f64]) -> (f64, f64) {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (mean, (squares / (count - 1.0).max(1.0)).sqrt())
}

/// Whether the power differs between busy and idle by more than chance. Each period has its own difference, and the mean of
/// these differences must exceed several of its standard errors. The factor is high, because the delay was chosen for the
/// largest difference, and because the standard error itself is uncertain if there are few periods.
fn responds(intervals: &[Interval], wave: &Wave, delay: f64, mean_watts: f64) -> bool {
    let amplitude_of = |part: &[Interval]| {
        let line = Line::of(part, wave, delay, mean(part));
        line.amplitude()
    };
    let each: Vec<f64> = parts(intervals, whole_periods(intervals, wave))
        .into_iter()
        .filter(|part| part.len() >= 2)
        .map(amplitude_of)
        .collect();
    if each.len() < 2 {
        return false;
    }
    let (amplitude, deviation) = mean_and_deviation(&each);
    let count = each.len() as f64;
    let error = deviation / count.sqrt();
    amplitude > RESPONSE_MIN * mean_watts.abs() && amplitude > (5.0 + 20.0 / count) * error
}

fn describe(intervals: &[Interval], wave: &Wave, delay: f64, reading_period: f64) -> Response {
    let around = DELAY_RANGE * wave.period;
    let count = PARTS.min(whole_periods(intervals, wave));
    let each: Vec<f64> = parts(intervals, count)
        .into_iter()
        .filter(|part| part.len() >= 4)
        .map(|part| best_delay(part, wave, delay - around, delay + around, GRID / 4))
        .collect();
    let by_parts = match each.len() {
        0 | 1 => around, // the delay was searched for within this time
        count => mean_and_deviation(&each).1 / (count as f64).sqrt(),
    };
    let line = Line::of(intervals, wave, delay, 0.0);
    let idle = (line.y - line.amplitude() * line.x) / line.weight;
    let (idle_steady, busy_steady) =
        (steady(intervals, wave, delay, false), steady(intervals, wave, delay, true));
    Response {
        delay,
        delay_error: by_parts.max(reading_period / 2.0),
        idle: idle_steady.map_or(idle, |(watts, _)| watts),
        busy: busy_steady.map_or(idle + line.amplitude(), |(watts, _)| watts),
        idle_noise: idle_steady.map(|(_, noise)| noise),
        busy_noise: busy_steady.map(|(_, noise)| noise),
    }
}

/// Returns the power and its deviation in the intervals that lie completely within one phase and away from its edges. If these
/// are too few, intervals near the edges count as well; if there are still too few, the result is `None`.
fn steady(intervals: &[Interval], wave: &Wave, delay: f64, busy: bool) -> Option<(f64, f64)> {
    let mut cursor = wave.cursor();
    let wanted = if busy { 1.0 } else { 0.0 };
    let within: Vec<&Interval> = intervals
        .iter()
        .filter(|i| {
            let busy_from = cursor.busy_until(i.from - delay);
            let part = (cursor.busy_until(i.to - delay) - busy_from) / i.length();
            (part - wanted).abs() < 1e-9
        })
        .collect();
    let settled = |i: &&&Interval| {
        let near = SETTLING * wave.period;
        wave.to_nearest_edge(i.from - delay) >= near && wave.to_nearest_edge(i.to - delay) >= near
    };
    let mut chosen: Vec<&Interval> = within.iter().filter(settled).copied().collect();
    if chosen.len() < STEADY_MIN {
        chosen = within;
    }
    if chosen.len() < STEADY_MIN {
        return None;
    }
    let seconds: f64 = chosen.iter().map(|interval| interval.length()).sum();
    let watts = chosen.iter().map(|interval| interval.watts * interval.length()).sum::<f64>() / seconds;
    let squares: f64 = chosen.iter().map(|i| i.length() * (i.watts - watts).powi(2)).sum();
    Some((watts, (squares / seconds).sqrt()))
}

fn over_phase(intervals: &[Interval], wave: &Wave) -> Vec<f64> {
    let (mut joules, mut seconds) = (vec![0.0; CELLS], vec![0.0; CELLS]);
    let cell = wave.period / CELLS as f64;
    for interval in intervals {
        // Each interval is divided into steps of about half a cell, which is exact enough for a plot.
        let steps = (interval.length() / cell * 2.0).ceil().max(1.0);
        let step = interval.length() / steps;
        for n in 0..steps as usize {
            let middle = interval.from + (n as f64 + 0.5) * step;
            let at = ((wave.phase(middle) * CELLS as f64) as usize).min(CELLS - 1);
            joules[at] += interval.watts * step;
            seconds[at] += step;
        }
    }
    joules.iter().zip(seconds).map(|(joules, seconds)| joules / seconds).collect()
}

#[cfg(test)]
#[path = "estimate_tests.rs"]
mod tests;
