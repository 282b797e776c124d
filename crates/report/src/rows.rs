//! Makes a row for each call path of each view of each device, for formats that are database tables.

use ampere_figures::callpaths::Samples;
use ampere_figures::summary::{Device, Summary, View};
use ampere_timeline::attributor::Unit;
use serde::{Serialize, Serializer};
use std::borrow::Cow;

/// The middle of a deeper path is left out. A recursion of a thousand calls has a path for each depth, and the full paths would
/// have a million names.
const FRAMES_MAX: usize = 256;

macro_rules! row {
    ($($(#[doc = $doc:literal])? $field:ident: $type:ty,)*) => {
        /// A row. Its columns have the names of the fields.
        #[derive(Clone, Default, Serialize)]
        pub struct Row<'a> {
            $($(#[doc = $doc])? pub $field: $type,)*
        }

        pub const COLUMNS: &[&str] = &[$(stringify!($field)),*];
    };
}

row! {
    node: &'a str,
    device: &'a str,
    energy: &'a str,
    unit: &'a str,
    view: &'a str,
    location_group: &'a str,
    location: &'a str,
    path: PathName<'a>,
    region: &'a str,
    /// `None` for sampled rows, whose calls are not counted.
    calls: Option<u64>,
    exclusive_joules: f64,
    inclusive_joules: f64,
    resolved_joules: Option<f64>,
    possible_joules: Option<f64>,
    exclusive_seconds: Option<f64>,
    mean_watts: Option<f64>,
    sampled_error_joules: Option<f64>,
    /// The parts of the exclusive joules, under the policy *active*.
    static_joules: Option<f64>,
    dynamic_joules: Option<f64>,
    /// The dynamic part of the inclusive joules.
    inclusive_dynamic_joules: Option<f64>,
    /// The part of the exclusive joules that this row used while it waited in MPI.
    waited_joules: Option<f64>,
    /// The joules that other rows used while they waited for this one.
    caused_waiting_joules: Option<f64>,
}

/// The name of a call path: the regions from the outermost to the innermost, joined by " > ". It is made when it is written,
/// because the rows of many ranks have the same one. Without a call path, it is empty.
#[derive(Clone, Copy, Default)]
pub struct PathName<'a>(Option<(&'a Summary, u32)>);

impl PathName<'_> {
    /// Returns the number of the call path.
    #[cfg(feature = "parquet")]
    pub fn number(&self) -> Option<u32> {
        self.0.map(|(_, number)| number)
    }

    pub fn text(&self) -> String {
        self.0.map(|(summary, path)| shortened(summary, path).join(" > ")).unwrap_or_default()
    }
}

impl Serialize for PathName<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text())
    }
}

pub fn rows(summary: &Summary) -> impl Iterator<Item = Row<'_>> {
    let views = summary.devices.iter().flat_map(|device| device.views.iter().map(move |view| (device, view)));
    // Without kernels, the kernels view is left out.
    let views = views.filter(|(_, view)| view.view != "kernels" || !view.callpaths.is_empty());
    views.flat_map(|(device, view)| paths(summary, device, view).chain(rest(device, view)))
}

fn of<'a>(device: &'a Device, view: &'a View) -> Row<'a> {
    Row {
        node: &device.node,
        device: &device.name,
        energy: &device.energy,
        unit: &device.unit,
        view: &view.view,
        ..Row::default()
    }
}

fn paths<'a>(summary: &'a Summary, device: &'a Device, view: &'a View) -> impl Iterator<Item = Row<'a>> {
    let period = summary.run.stack_period_seconds.filter(|_| device.unit != Unit::Seconds.as_str());
    let rows = view.callpaths.iter().map(|row| &row.figures);
    let samples = period.map(|period| Samples::of(rows, view.active_seconds, period));
    view.callpaths.all().map(move |row| {
        let figures = &row.figures;
        Row {
            location_group: summary.name(row.location_group),
            location: summary.name(row.location),
            path: PathName(Some((summary, row.path))),
            region: summary.name(summary.paths.name[row.path as usize]),
            calls: Some(figures.calls).filter(|calls| *calls > 0),
            exclusive_joules: figures.exclusive_joules,
            inclusive_joules: figures.inclusive_joules,
            resolved_joules: Some(figures.resolved_joules),
            possible_joules: figures.possible_joules,
            exclusive_seconds: Some(figures.exclusive_seconds),
            mean_watts: device.watts(view, figures).mean_watts,
            sampled_error_joules: samples.and_then(|samples| samples.error_joules(figures)),
            static_joules: figures.static_joules,
            dynamic_joules: figures.dynamic_joules,
            inclusive_dynamic_joules: figures.inclusive_dynamic_joules,
            waited_joules: figures.waited_joules,
            caused_waiting_joules: figures.caused_waiting_joules,
            ..of(device, view)
        }
    })
}

/// Returns a path in words, without the middle of a very deep one.
pub fn shortened(summary: &Summary, path: u32) -> Vec<Cow<'_, str>> {
    let up: Vec<u32> = summary.paths.up(path).collect();
    without_middle(&up, |path| summary.name(summary.paths.name[path as usize]))
}

/// Returns the names of a path, without the middle of a very deep one. `up` has the innermost call path first.
pub fn without_middle<'a>(up: &[u32], name: impl Fn(u32) -> &'a str) -> Vec<Cow<'a, str>> {
    let named = |part: &[u32]| {
        let names = part.iter().rev().map(|path| name(*path));
        names.map(Cow::Borrowed).collect::<Vec<_>>()
    };
    if up.len() <= FRAMES_MAX {
        return named(up);
    }
    let (head, tail) = (FRAMES_MAX / 2, FRAMES_MAX / 2 - 1);
    let left_out = format!("... {} frames ...", up.len() - head - tail);
    let mut names = named(&up[up.len() - head..]);
    names.push(Cow::Owned(left_out));
    names.extend(named(&up[..tail]));
    names
}

fn rest<'a>(device: &'a Device, view: &'a View) -> impl Iterator<Item = Row<'a>> {
    device.rest(view).map(move |(region, joules, parts)| Row {
        region,
        exclusive_joules: joules,
        inclusive_joules: joules,
        static_joules: parts.map(|(fixed, _)| fixed),
        dynamic_joules: parts.map(|(_, dynamic)| dynamic),
        inclusive_dynamic_joules: parts.map(|(_, dynamic)| dynamic),
        ..of(device, view)
    })
}
