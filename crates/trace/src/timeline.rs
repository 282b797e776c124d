//! Collects joules over time, or the calls of one region, while a trace is attributed.

use crate::calls::{CallSink, Clock};
use ampere_attribution::{ChargedInterval, Engine, Policy, ViewIndex};
use ampere_figures::summary::REST_NAMES;
use ampere_report::call_table::{CallRow, NameNumber, Names, Paths, Place};
use ampere_report::timeline::{By, RegionCall, RegionCalls, Series};
use ampere_timeline::attributor::{Attributor, Device, ViewKind};
use ampere_timeline::recorder::Recorder;
use ampere_timeline::waiting::Span;
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

/// The result of a recorder, shared with its creator.
pub type Kept<T> = Arc<Mutex<T>>;

/// An upper bound on the number of bins.
pub const BINS_MAX: usize = 1 << 20;

/// Sums each view's joules by name and time.
pub struct Bins {
    clock: Clock,
    /// The length of a bin.
    seconds: f64,
    /// If set, intervals of less power are ignored, and all others are put into the first bin.
    above: Option<f64>,
    /// The trace's start, in seconds after the start of the first trace.
    begin_seconds: f64,
    by: By,
    /// The selected devices; empty for all.
    devices: Vec<String>,
    kinds: Vec<ViewKind>,
    names: Names,
    views: Vec<Option<ViewBins>>,
    kept: Kept<Vec<Series>>,
}

struct ViewBins {
    device: usize,
    kind: ViewKind,
    series: BTreeMap<NameNumber, NameBins>,
    /// The total length of the intervals with more power than the limit.
    seconds: f64,
}

/// The joules of a name by bin, and their static and dynamic parts, if these are known.
#[derive(Default)]
struct NameBins {
    joules: Vec<f64>,
    parts: Option<[Vec<f64>; 2]>,
}

/// The selection and the grouping of joules.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// The selected device names; empty for all.
    pub devices: Vec<String>,
    pub only: Option<ViewKind>,
    /// The kind of name that joules are summed by.
    pub by: By,
    /// The length of a bin.
    pub seconds: f64,
    /// If set, only the time counts in which a device has at least this many watts between two samples. Then there are no bins.
    pub above: Option<f64>,
}

impl Bins {
    /// `begin_seconds` is the trace's start, in seconds after the start of the first trace.
    pub fn new(clock: Clock, begin_seconds: f64, wanted: Wanted, kept: Kept<Vec<Series>>) -> Bins {
        let Wanted { devices, only, by, seconds, above } = wanted;
        let kinds = ViewKind::BOTH.into_iter().filter(|kind| only.is_none_or(|only| only == *kind));
        // Only ranks wait.
        let most = if matches!(by, By::Balance | By::Waiting) { 1 } else { 2 };
        Bins {
            clock,
            seconds,
            above,
            begin_seconds,
            by,
            devices,
            kinds: kinds.take(most).collect(),
            names: Names::default(),
            views: Vec::new(),
            kept,
        }
    }

    /// Returns the position of a time, in bins.
    fn place(&self, time: u64) -> f64 {
        let ticks = time as f64 - self.clock.begin as f64;
        (ticks / self.clock.ticks_per_second as f64 + self.begin_seconds) / self.seconds
    }

    /// Adds the waits that are known now.
    fn add_waits(&mut self, attributor: &mut Attributor) {
        let spans = attributor.waiting.as_mut().map(|waiting| waiting.take_spans()).unwrap_or_default();
        for Span { view, kind, start, end, joules, .. } in spans {
            let (span, name) = ((self.place(start), self.place(end)), self.names.number(kind.as_str()));
            if let Some(Some(bins)) = self.views.get_mut(view.0 as usize) {
                spread(&mut bins.series.entry(name).or_default().joules, span, joules);
            }
        }
    }

    fn add(&mut self, attributor: &Attributor, bins: &mut ViewBins) {
        let view = attributor.devices[bins.device].view(bins.kind);
        let Some(interval) = attributor.engine.charged_interval(view) else { return };
        let mut span = (self.place(interval.start), self.place(interval.end));
        if let Some(above) = self.above {
            let ticks = interval.end.saturating_sub(interval.start);
            let seconds = ticks as f64 / self.clock.ticks_per_second as f64;
            // Joules without time are above any limit. A power that equals the limit except for rounding counts as above it.
            if ticks > 0 && interval.joules < above * seconds * (1.0 - 1e-9) {
                return;
            }
            bins.seconds += seconds;
            span = (0.0, 0.0);
        }
        let ChargedInterval { charges, idle_joules, other_jobs_joules, lost_joules, joules, .. } = interval;
        let is_active = attributor.engine.report_policy(view) == Policy::Active;
        let names = &mut self.names;
        // The parts are those of `known` joules; lost joules have none.
        let mut put = |name: &str, joules: f64, known: f64, dynamic: f64| {
            if joules == 0.0 {
                return;
            }
            let of = bins.series.entry(names.number(name)).or_default();
            spread(&mut of.joules, span, joules);
            if is_active {
                let parts = of.parts.get_or_insert_default();
                parts
                    .iter_mut()
                    .zip([(known - dynamic).max(0.0), dynamic])
                    .for_each(|(bins, part)| spread(bins, span, part));
            }
        };
        match self.by {
            By::Device => return put("", *joules, *joules - *lost_joules, interval.dynamic_joules),
            By::Waiting => return,
            By::Rank | By::Balance => charges.iter().for_each(|c| {
                put(attributor.owner_of(c.location.0 as usize), c.joules, c.joules, c.dynamic_joules)
            }),
            By::Region => charges.iter().for_each(|charge| {
                let (_, region) = attributor.engine.caller_of(charge.location, charge.node);
                put(attributor.regions.name(region), charge.joules, charge.joules, charge.dynamic_joules);
            }),
        }
        let unused = *idle_joules - *other_jobs_joules;
        let [idle, other_jobs, lost] = REST_NAMES;
        put(idle, unused, unused, interval.idle_dynamic_joules());
        put(other_jobs, *other_jobs_joules, *other_jobs_joules, *other_jobs_joules);
        put(lost, *lost_joules, 0.0, 0.0);
    }
}

/// Spreads joules evenly over a span of bins. `span` is its start and end, in bins.
fn spread(bins: &mut Vec<f64>, (from, to): (f64, f64), joules: f64) {
    let bin_at = |place: f64| place.clamp(0.0, (BINS_MAX - 1) as f64).floor() as usize;
    let from = from.max(0.0);
    // An end that equals a bin's start, except for rounding, is in the bin before.
    let (first, last) = (bin_at(from), bin_at(to - 1e-9).max(bin_at(from)));
    if bins.len() <= last {
        bins.resize(last + 1, 0.0);
    }
    let mut left = joules;
    for (bin, sum) in bins.iter_mut().enumerate().take(last).skip(first) {
        let part = joules * ((bin + 1) as f64 - from.max(bin as f64)) / (to - from);
        *sum += part;
        left -= part;
    }
    bins[last] += left;
}

impl Recorder for Bins {
    fn begin_device(&mut self, engine: &mut Engine, number: usize, device: &Device) {
        if !self.devices.is_empty() && !self.devices.contains(&device.info.name) {
            return;
        }
        let mut kinds = self.kinds.clone();
        if self.by == By::Device {
            // Undivided joules are the same in both views, but their dynamic part may be known in only one of them.
            let is_active = |kind: &ViewKind| engine.report_policy(device.view(*kind)) == Policy::Active;
            kinds = kinds.iter().copied().find(is_active).or(kinds.first().copied()).into_iter().collect();
        }
        for kind in kinds {
            let at = if self.by == By::Waiting {
                device.views.ranks.0 as usize
            } else {
                engine.record_intervals(device.view(kind));
                device.views.sampled(kind).0 as usize
            };
            self.views.resize_with(self.views.len().max(at + 1), || None);
            self.views[at] = Some(ViewBins { device: number, kind, series: BTreeMap::new(), seconds: 0.0 });
        }
    }

    fn wants_waits(&self) -> bool {
        self.by == By::Waiting
    }

    fn take_sample(&mut self, attributor: &mut Attributor, view: ViewIndex) -> io::Result<()> {
        if self.by == By::Waiting {
            self.add_waits(attributor);
            return Ok(());
        }
        let at = view.0 as usize;
        if let Some(mut bins) = self.views.get_mut(at).and_then(Option::take) {
            self.add(attributor, &mut bins);
            self.views[at] = Some(bins);
        }
        Ok(())
    }

    fn take_events(&mut self, _: &mut Attributor) -> io::Result<()> {
        Ok(())
    }

    fn end(&mut self, attributor: &mut Attributor) -> io::Result<()> {
        self.add_waits(attributor);
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        for bins in self.views.drain(..).flatten() {
            let info = &attributor.devices[bins.device].info;
            // Without kernels, their view is left out, as in other tables.
            let is_rest = |name: &u32| REST_NAMES.contains(&&*self.names.all()[*name as usize]);
            let idle = bins.series.keys().all(is_rest);
            if idle && bins.kind == ViewKind::Kernels && self.kinds.len() > 1 {
                continue;
            }
            kept.extend(bins.series.into_iter().map(|(name, NameBins { joules, parts })| Series {
                node: info.node.clone(),
                device: info.name.clone(),
                view: if self.by == By::Device { "" } else { bins.kind.as_str() },
                name: self.names.all()[name as usize].clone(),
                joules,
                parts,
                seconds: bins.seconds,
            }));
        }
        Ok(())
    }
}

pub struct RegionSink {
    region: String,
    begin_seconds: f64,
    /// The selected devices; empty for all.
    devices: Vec<String>,
    calls: Vec<CallRow>,
    /// The index of the last call for each location and view of a device.
    last: HashMap<[NameNumber; 5], usize>,
    kept: Kept<RegionCalls>,
}

/// An upper bound on the calls of a region, because all of them are kept in memory.
pub const CALLS_MAX: usize = 1 << 22;

impl RegionSink {
    /// `begin_seconds` is the trace's start, in seconds after the start of the first trace. `devices` selects devices; empty for
    /// all.
    pub fn new(
        region: &str,
        begin_seconds: f64,
        devices: Vec<String>,
        kept: Kept<RegionCalls>,
    ) -> RegionSink {
        let region = region.to_owned();
        RegionSink { region, begin_seconds, devices, calls: Vec::new(), last: HashMap::new(), kept }
    }
}

impl CallSink for RegionSink {
    fn push(&mut self, row: &CallRow, names: &Names, paths: &Paths) -> io::Result<()> {
        let region = paths.all()[row.path as usize].region;
        let device = &names.all()[row.device.device as usize];
        if names.all()[region as usize] != self.region
            || device.is_empty()
            || !(self.devices.is_empty() || self.devices.contains(device))
        {
            return Ok(());
        }
        if self.calls.len() == CALLS_MAX {
            return Err(io::Error::other(format!(
                "{} has more than {CALLS_MAX} calls: use ampere attribute --calls, which writes all of them to a file",
                self.region
            )));
        }
        let Place { node, rank, thread, .. } = row.place;
        let of = [node, rank, thread, row.device.device, row.device.view];
        let last = self.last.entry(of).or_insert(self.calls.len());
        match self.calls.get_mut(*last) {
            // This continues the previous call, for example because samples have moved it.
            Some(call) if row.calls.is_none() && call.calls.is_some() && call.end == row.start => {
                call.end = row.end;
                call.exclusive_joules += row.exclusive_joules;
                call.inclusive_joules += row.inclusive_joules;
                call.resolved_joules += row.resolved_joules;
                let more = row.dynamic_joules.unwrap_or_default();
                call.dynamic_joules.iter_mut().flatten().zip(more).for_each(|(sum, more)| *sum += more);
            }
            _ => {
                *last = self.calls.len();
                self.calls.push(*row);
            }
        }
        Ok(())
    }

    fn finish(self: Box<Self>, names: Names, _: Paths) -> io::Result<()> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let RegionCalls { names: all, calls } = &mut *kept;
        let numbers: Vec<NameNumber> = names.all().iter().map(|name| all.number(name)).collect();
        let number = |name: NameNumber| numbers[name as usize];
        calls.extend(self.calls.iter().map(|row| RegionCall {
            node: number(row.place.node),
            rank: number(row.place.rank),
            thread: number(row.place.thread),
            device: number(row.device.device),
            view: number(row.device.view),
            start: row.start as f64 / 1e9 + self.begin_seconds,
            seconds: (row.end - row.start) as f64 / 1e9,
            exclusive_joules: row.exclusive_joules,
            inclusive_joules: row.inclusive_joules,
            resolved_joules: row.resolved_joules,
            dynamic_joules: row.dynamic_joules,
            calls: row.calls,
        }));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ampere_report::call_table::{DeviceView, Place};

    #[test]
    fn a_call_that_was_cut_in_two_is_counted_once() {
        let (mut names, mut paths) = (Names::default(), Paths::default());
        let send = paths.number(None, names.number("MPI_Send"));
        let [device, view] = ["GPU-0", "ranks"].map(|name| names.number(name));
        let kept = Kept::<RegionCalls>::default();
        let mut sink = RegionSink::new("MPI_Send", 0.0, Vec::new(), kept.clone());
        let mut put = |rank: &str, (start, end): (i64, i64), calls: Option<u32>| {
            let [node, rank, thread] = ["n", rank, "main"].map(|name| names.number(name));
            let row = CallRow {
                place: Place { node, rank, thread },
                device: DeviceView { device, view },
                path: send,
                start,
                end,
                exclusive_joules: 1.0,
                inclusive_joules: 1.0,
                resolved_joules: 0.0,
                dynamic_joules: Some([0.5, 0.75]),
                calls,
            };
            sink.push(&row, &names, &paths).unwrap();
        };
        put("a", (0, 5), Some(1));
        put("b", (0, 5), None);
        put("a", (5, 7), None);
        put("b", (5, 7), None);
        put("a", (7, 9), None);
        put("a", (10, 11), None);
        Box::new(sink).finish(names, paths).unwrap();
        let calls = &kept.lock().unwrap().calls;
        let rows: Vec<_> = calls.iter().map(|call| (call.calls, call.inclusive_joules)).collect();
        assert_eq!(rows, [(Some(1), 3.0), (None, 1.0), (None, 1.0), (None, 1.0)]);
        assert_eq!(calls[0].dynamic_joules, Some([1.5, 2.25]));
    }

    #[test]
    fn joules_are_spread_evenly_and_none_is_lost() {
        let spread_over = |span| {
            let mut bins = Vec::new();
            spread(&mut bins, span, 12.0);
            bins
        };
        assert_eq!(spread_over((0.5, 3.5)), [2.0, 4.0, 4.0, 2.0]);
        assert_eq!(spread_over((1.0, 2.0)), [0.0, 12.0]);
        assert_eq!(spread_over((1.5, 1.5)), [0.0, 12.0]);
        assert_eq!(spread_over((1.0, 1.0)), [0.0, 12.0]);
        assert_eq!(spread_over((-2.0, 1.0)).iter().sum::<f64>(), 12.0);
        assert_eq!(spread_over((-2.0, -1.0)), [12.0]);
    }
}
