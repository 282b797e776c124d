//! The single calls of a trace, with the joules of each, collected while the trace is attributed.
//!
//! ```text
//! mod.rs    takes calls from the engine, and hands them over as rows
//! spill.rs  calls that wait for a sample, if there are too many for memory
//! ```

mod spill;

use ampere_attribution::{Call, Engine, LocationIndex, NodeIndex, Policy, ViewIndex};
use ampere_report::call_table::{CallRow, DeviceView, Names, PathNumber, Paths, Place};
use ampere_timeline::attributor::{Attributor, Device, ViewKind};
use ampere_timeline::recorder::Recorder;
use spill::SpillFile;
use std::fs::File;
use std::io;
use std::path::Path;

#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// The engine's timestamp of the trace's start.
    pub begin: u64,
    pub ticks_per_second: u64,
}

/// The time of recording and the length of a trace.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    /// Nanoseconds since 1970, if the trace has a date.
    pub begin: Option<u64>,
    /// The length of the trace, in seconds.
    pub seconds: f64,
}

/// Reads date and length from a trace's definitions.
///
/// # Errors
/// The file is not a trace.
pub fn span_of(trace: &Path) -> anyhow::Result<Span> {
    let clock = otf2::Trace::open(trace)?.definitions().clock.clone();
    let seconds = clock.trace_length as f64 / clock.timer_resolution.max(1) as f64;
    Ok(Span { begin: clock.realtime_timestamp, seconds })
}

impl Clock {
    /// Converts a timestamp to nanoseconds since the trace's start.
    #[inline]
    pub fn nanoseconds(&self, time: u64) -> i64 {
        let ticks = time.saturating_sub(self.begin);
        match self.ticks_per_second {
            1_000_000_000 => i64::try_from(ticks).unwrap_or(i64::MAX),
            per_second => (ticks as f64 * (1e9 / per_second as f64)).round() as i64,
        }
    }
}

/// Makes a file without a name, which the kernel removes when it is closed.
///
/// # Errors
/// The file cannot be made.
pub fn unlinked_file(path: &Path) -> io::Result<File> {
    let file = ampere_ring::files::create_private(path)?;
    std::fs::remove_file(path)?;
    Ok(file)
}

/// Receives calls, in the order in which each location left them.
pub trait CallSink: Send {
    /// Stores or writes a call.
    ///
    /// # Errors
    /// The call cannot be stored.
    fn push(&mut self, row: &CallRow, names: &Names, paths: &Paths) -> io::Result<()>;

    /// Called after the last call.
    ///
    /// # Errors
    /// The calls cannot be stored.
    fn finish(self: Box<Self>, names: Names, paths: Paths) -> io::Result<()>;
}

/// An upper bound on the calls of a view that wait for a sample in memory.
const WAITING_MAX: usize = 1 << 17;

/// Passes calls on with the names of their device, node, process, location and call path.
pub struct CallTable {
    sink: Option<Box<dyn CallSink>>,
    clock: Clock,
    kinds: Vec<ViewKind>,
    /// Makes a file without a name, for waiting calls.
    file: Box<dyn Fn() -> io::Result<File> + Send>,
    names: Names,
    paths: Paths,
    /// The locations that have calls, by the engine's number.
    locations: Vec<Option<Location>>,
    views: Vec<Option<RecordedView>>,
    scratch: Vec<Call>,
}

/// A location's names, and the numbers of its call paths.
pub(crate) struct Location {
    place: Place,
    paths: Vec<Option<PathNumber>>,
}

/// A view whose samples complete calls.
struct RecordedView {
    device: usize,
    kind: ViewKind,
    spill_file: SpillFile,
}

impl CallTable {
    /// Makes a table. `only` selects one view of each device. `file` makes a file that is removed when it is closed.
    pub fn new(
        sink: Box<dyn CallSink>,
        clock: Clock,
        only: Option<ViewKind>,
        file: Box<dyn Fn() -> io::Result<File> + Send>,
    ) -> CallTable {
        let kinds = ViewKind::BOTH.into_iter().filter(|kind| only.is_none_or(|only| only == *kind));
        CallTable {
            sink: Some(sink),
            clock,
            kinds: kinds.collect(),
            file,
            names: Names::default(),
            paths: Paths::default(),
            locations: Vec::new(),
            views: Vec::new(),
            scratch: Vec::new(),
        }
    }

    /// Passes calls on as rows. `view` is the view that has charged them, if they draw from a device.
    fn push_all(
        &mut self,
        attributor: &Attributor,
        (device, view): (DeviceView, Option<ViewIndex>),
        calls: &[Call],
    ) -> io::Result<()> {
        let is_active = view.is_some_and(|view| attributor.engine.report_policy(view) == Policy::Active);
        let CallTable { sink, clock, names, paths, locations, .. } = self;
        let Some(sink) = sink else { return Ok(()) };
        for call in calls {
            let at = call.location.0 as usize;
            if at >= locations.len() {
                locations.resize_with(at + 1, || None);
            }
            let location = locations[at].get_or_insert_with(|| Location::new(attributor, at, names));
            let known = location.paths.get(call.node.0 as usize).copied().flatten();
            let path = known.unwrap_or_else(|| location.number(attributor, call, names, paths));
            let row = CallRow {
                place: location.place,
                device,
                path,
                start: clock.nanoseconds(call.start),
                end: clock.nanoseconds(call.end),
                exclusive_joules: call.exclusive_joules,
                inclusive_joules: call.inclusive_joules(),
                resolved_joules: call.resolved_joules,
                dynamic_joules: is_active.then(|| [call.dynamic_joules, call.inclusive_dynamic_joules()]),
                calls: (call.calls > 0 || !attributor.has_samples(call.location)).then_some(call.calls),
            };
            sink.push(&row, names, paths)?;
        }
        Ok(())
    }

    fn device_view(&mut self, attributor: &Attributor, device: usize, kind: ViewKind) -> DeviceView {
        let device = self.names.number(&attributor.devices[device].info.name);
        DeviceView { device, view: self.names.number(kind.as_str()) }
    }

    /// Passes on the calls of locations that draw from no recorded view.
    fn push_unlinked(&mut self, attributor: &mut Attributor) -> io::Result<()> {
        let mut calls = std::mem::take(&mut self.scratch);
        attributor.engine.take_unlinked_calls(&mut calls);
        let none = self.names.number("");
        let pushed = self.push_all(attributor, (DeviceView { device: none, view: none }, None), &calls);
        self.scratch = calls;
        pushed
    }

    /// Takes the calls that a view has completed, and passes them on or keeps them.
    fn take(&mut self, attributor: &mut Attributor, view: ViewIndex, when: When) -> io::Result<()> {
        let Some(mut recorded) = self.views.get_mut(view.0 as usize).and_then(Option::take) else {
            return Ok(());
        };
        let taken = self.take_from(attributor, &mut recorded, when);
        self.views[view.0 as usize] = Some(recorded);
        taken
    }

    fn take_from(
        &mut self,
        attributor: &mut Attributor,
        recorded: &mut RecordedView,
        when: When,
    ) -> io::Result<()> {
        let RecordedView { device, kind, spill_file } = recorded;
        let view = attributor.devices[*device].view(*kind);
        if when == When::Meanwhile && attributor.engine.ended_calls(view) < WAITING_MAX {
            return Ok(());
        }
        let of = (self.device_view(attributor, *device, *kind), Some(view));
        let mut calls = std::mem::take(&mut self.scratch);
        if when == When::Ended {
            attributor.engine.end_calls(view, &mut calls);
        }
        if when != When::Meanwhile {
            spill_file.rewind()?;
            while let Some(mut waited) = spill_file.next()? {
                attributor.engine.charge_calls(view, &mut waited);
                self.push_all(attributor, of, &waited)?;
            }
        }
        if when != When::Ended {
            attributor.engine.take_calls(view, &mut calls);
        }
        if when == When::Meanwhile && attributor.engine.has_begun(view) {
            spill_file.put(&calls, &self.file)?;
        } else {
            self.push_all(attributor, of, &calls)?;
        }
        self.scratch = calls;
        Ok(())
    }

    fn take_all(&mut self, attributor: &mut Attributor, when: When) -> io::Result<()> {
        for view in 0..self.views.len() {
            self.take(attributor, ViewIndex(view as u32), when)?;
        }
        self.push_unlinked(attributor)
    }
}

/// The moment at which calls are taken.
#[derive(Clone, Copy, PartialEq, Eq)]
enum When {
    /// A moment between two samples of the view.
    Meanwhile,
    /// The moment after a sample of the view.
    Sampled,
    /// The moment after the last event and sample.
    Ended,
}

impl Location {
    pub(crate) fn new(attributor: &Attributor, at: usize, names: &mut Names) -> Location {
        let info = &attributor.locations[at];
        let place = Place {
            node: names.number(&info.node),
            rank: names.number(attributor.owner_of(at)),
            thread: names.number(&info.name),
        };
        Location { place, paths: Vec::new() }
    }

    fn number(
        &mut self,
        attributor: &Attributor,
        call: &Call,
        names: &mut Names,
        paths: &mut Paths,
    ) -> PathNumber {
        self.number_of(attributor, call.location, call.node, names, paths)
    }

    /// Returns the number of a call path, and gives numbers to it and its callers if they have none.
    pub(crate) fn number_of(
        &mut self,
        attributor: &Attributor,
        location: LocationIndex,
        node: NodeIndex,
        names: &mut Names,
        paths: &mut Paths,
    ) -> PathNumber {
        let mut unknown = Vec::new();
        let (mut at, mut caller) = (node, None);
        while !at.is_root() {
            caller = self.paths.get(at.0 as usize).copied().flatten();
            if caller.is_some() {
                break;
            }
            let (above, region) = attributor.engine.caller_of(location, at);
            unknown.push((at, region));
            at = above;
        }
        for (node, region) in unknown.into_iter().rev() {
            let number = paths.number(caller, names.number(attributor.regions.name(region)));
            let at = node.0 as usize;
            self.paths.resize(self.paths.len().max(at + 1), None);
            self.paths[at] = Some(number);
            caller = Some(number);
        }
        caller.unwrap_or_default()
    }
}

impl Recorder for CallTable {
    fn begin_device(&mut self, engine: &mut Engine, number: usize, device: &Device) {
        for kind in self.kinds.clone() {
            engine.record_calls(device.view(kind));
            let at = device.views.sampled(kind).0 as usize;
            self.views.resize_with(self.views.len().max(at + 1), || None);
            self.views[at] = Some(RecordedView { device: number, kind, spill_file: SpillFile::default() });
        }
    }

    fn take_sample(&mut self, attributor: &mut Attributor, view: ViewIndex) -> io::Result<()> {
        self.take(attributor, view, When::Sampled)
    }

    fn take_events(&mut self, attributor: &mut Attributor) -> io::Result<()> {
        self.take_all(attributor, When::Meanwhile)
    }

    fn end(&mut self, attributor: &mut Attributor) -> io::Result<()> {
        self.take_all(attributor, When::Ended)?;
        let (names, paths) = (std::mem::take(&mut self.names), std::mem::take(&mut self.paths));
        self.sink.take().map_or(Ok(()), |sink| sink.finish(names, paths))
    }
}
