//! Call paths in the form of `summary.json`: one tree for the file, and a column for each figure in each view. In memory, each
//! row has all its figures.

use serde::de::{Deserializer, Error};
use serde::ser::{SerializeMap, SerializeSeq, Serializer};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// A name that many rows share.
pub type Name = Arc<str>;

/// The calls, time and joules of a call path, or of all call paths that end in a region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// The number of times that the call path or region was entered.
    pub calls: u64,
    /// The joules while it was the innermost frame.
    pub exclusive_joules: f64,
    /// The joules including those of the frames that it called; a region that is on the stack twice is counted once.
    pub inclusive_joules: f64,
    /// Under the policy *active*: the part of the exclusive joules that the device always draws; the rest is `dynamic_joules`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub static_joules: Option<f64>,
    /// The dynamic part, known when `static_joules` is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dynamic_joules: Option<f64>,
    /// The dynamic part of the inclusive joules. Summaries of older versions do not have this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inclusive_dynamic_joules: Option<f64>,
    /// The least that the exclusive joules can be (under the policy *active*, the dynamic joules).
    pub resolved_joules: f64,
    /// The most that the exclusive joules can be (under the policy *active*, the dynamic joules). Summaries of older versions do
    /// not have this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub possible_joules: Option<f64>,
    /// The part of the exclusive joules that was used while waiting for other ranks in MPI, if that was computed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waited_joules: Option<f64>,
    /// The joules that other ranks used while waiting for this one, if `waited_joules` are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caused_waiting_joules: Option<f64>,
    /// The time in which it was the innermost frame.
    pub exclusive_seconds: f64,
    /// The part of the exclusive time in which the resolved joules were used.
    pub resolved_seconds: f64,
}

impl Figures {
    /// Returns the dynamic joules if they are known, otherwise all exclusive joules.
    pub fn own_joules(&self) -> f64 {
        self.dynamic_joules.unwrap_or(self.exclusive_joules)
    }

    /// Returns the figures of a call path that has only caused waiting.
    pub(crate) fn of_cause(joules: f64) -> Figures {
        Figures {
            possible_joules: Some(0.0),
            waited_joules: Some(0.0),
            caused_waiting_joules: Some(joules),
            ..Figures::default()
        }
    }

    /// Whether the call path has only caused waiting: its location does not draw from the device.
    pub fn is_cause_only(&self) -> bool {
        let is_cause = self.caused_waiting_joules.is_some_and(|joules| joules > 0.0);
        is_cause && self.calls == 0 && self.exclusive_seconds == 0.0 && self.inclusive_joules == 0.0
    }

    fn is_sampled(&self) -> bool {
        self.calls == 0 && self.exclusive_seconds > 0.0
    }
}

/// The number of samples of a view's sampled rows, whose calls are not counted. Samples are taken by CPU time. A row's CPU time
/// is not recorded, but its share of the dynamic joules is in proportion to it.
#[derive(Clone, Copy, Debug)]
pub struct Samples {
    /// The seconds of CPU time between two samples.
    period: f64,
    /// The seconds of CPU time for each dynamic joule. `None` if dynamic joules are not known; then rows count with all of
    /// their time.
    seconds_per_joule: Option<f64>,
    /// The number of samples of all sampled rows.
    count: f64,
}

impl Samples {
    /// Counts the samples of a view from all of its rows. `period`: the seconds of CPU time between two samples;
    /// `active_seconds`: see [`View::active_seconds`](crate::summary::View::active_seconds).
    pub fn of<'a>(
        rows: impl Iterator<Item = &'a Figures> + Clone,
        active_seconds: Option<f64>,
        period: f64,
    ) -> Samples {
        let dynamic: f64 = rows.clone().filter_map(|row| row.dynamic_joules).sum();
        let seconds_per_joule = active_seconds.filter(|_| dynamic > 0.0).map(|seconds| seconds / dynamic);
        let mut samples = Samples { period, seconds_per_joule, count: 0.0 };
        samples.count = rows.filter(|row| row.is_sampled()).map(|row| samples.of_row(row)).sum();
        samples
    }

    fn of_row(&self, row: &Figures) -> f64 {
        let cpu_seconds =
            self.seconds_per_joule.zip(row.dynamic_joules).map(|(seconds, joules)| seconds * joules);
        cpu_seconds.map_or(row.exclusive_seconds, |seconds| seconds.min(row.exclusive_seconds)) / self.period
    }

    /// Returns the standard error of a sampled row's exclusive joules; `None` for another row. It is the error of a binomial
    /// distribution by the estimate of Agresti and Coull, which adds two samples to the row and two to the others. So a row that
    /// has all of a few samples does not look exact.
    pub fn error_joules(&self, row: &Figures) -> Option<f64> {
        let samples = row.is_sampled().then(|| self.of_row(row).max(1.0))?;
        let count = self.count.max(samples);
        let part = (samples + 2.0) / (count + 4.0);
        Some(row.exclusive_joules * (count * part * (1.0 - part)).sqrt() / samples)
    }
}

/// The frames of a location with the same regions on the stack.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Callpath {
    /// The call path: a row of [`Paths`].
    pub path: u32,
    /// OTF2's location group, such as "MPI Rank 0": an index into the summary's names.
    pub location_group: u32,
    /// The location's name: an index into the summary's names.
    pub location: u32,
    /// The call path's calls, time and joules.
    pub figures: Figures,
}

/// The call paths of a summary as a tree. A caller comes before what it calls.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Paths {
    /// The caller's row, or none.
    pub parent: Vec<Option<u32>>,
    /// The innermost region: an index into the summary's names.
    pub name: Vec<u32>,
}

impl Paths {
    /// Returns the number of call paths.
    pub fn len(&self) -> usize {
        self.name.len()
    }

    /// Whether there are no call paths.
    pub fn is_empty(&self) -> bool {
        self.name.is_empty()
    }

    /// Iterates over the path and its callers, innermost first.
    pub fn up(&self, path: u32) -> impl Iterator<Item = u32> {
        std::iter::successors(Some(path), |path| self.parent[*path as usize])
    }

    /// Returns the reason if this cannot be a tree with that number of names.
    pub(crate) fn flaw(&self, names: usize) -> Option<&'static str> {
        if self.parent.len() != self.name.len() {
            return Some("the columns of its paths differ in length");
        }
        let parents = self.parent.iter().enumerate();
        let is_before = |(at, parent): (usize, &Option<u32>)| parent.is_none_or(|up| (up as usize) < at);
        if !parents.into_iter().all(is_before) {
            return Some("a caller comes after what it calls");
        }
        let is_there = self.name.iter().all(|name| (*name as usize) < names);
        (!is_there).then_some("a path has a name that does not exist")
    }

    /// Returns new numbers for the paths, by their old ones. The new order depends only on names: it is by depth, then by caller
    /// and name.
    fn order(&self) -> Vec<u32> {
        let mut depth: Vec<u32> = Vec::with_capacity(self.len());
        let mut levels: Vec<Vec<u32>> = Vec::new();
        for (path, parent) in self.parent.iter().enumerate() {
            let at = parent.map_or(0, |parent| depth[parent as usize] + 1);
            depth.push(at);
            if levels.len() <= at as usize {
                levels.push(Vec::new());
            }
            levels[at as usize].push(path as u32);
        }
        let (mut new, mut next) = (vec![0; self.len()], 0);
        for mut level in levels {
            let caller = |path: u32| self.parent[path as usize].map_or(0, |parent| new[parent as usize]);
            level.sort_unstable_by_key(|path| (caller(*path), self.name[*path as usize]));
            for path in level {
                new[path as usize] = next;
                next += 1;
            }
        }
        new
    }
}

/// Gives names and call paths their numbers.
#[derive(Clone, Debug, Default)]
pub struct Numbering {
    pub names: Vec<Name>,
    pub paths: Paths,
    by_name: HashMap<Name, u32>,
    by_frame: HashMap<(Option<u32>, u32), u32>,
}

impl Numbering {
    /// Continues the numbering of a summary.
    pub fn of(names: Vec<Name>, paths: Paths) -> Numbering {
        let by_name = names.iter().cloned().zip(0..).collect();
        let by_frame = paths.parent.iter().copied().zip(paths.name.iter().copied()).zip(0..).collect();
        Numbering { names, paths, by_name, by_frame }
    }

    /// Returns the number of a name, if it has one.
    pub fn known(&self, name: &str) -> Option<u32> {
        self.by_name.get(name).copied()
    }

    pub fn name(&mut self, name: &Name) -> u32 {
        if let Some(number) = self.known(name) {
            return number;
        }
        let number = self.names.len() as u32;
        self.names.push(name.clone());
        self.by_name.insert(name.clone(), number);
        number
    }

    /// Returns the path `parent` + `name`, and makes it if it is new.
    pub fn path(&mut self, parent: Option<u32>, name: u32) -> u32 {
        let next = self.paths.len() as u32;
        let number = *self.by_frame.entry((parent, name)).or_insert(next);
        if number == next {
            self.paths.parent.push(parent);
            self.paths.name.push(name);
        }
        number
    }

    /// Changes the numbers of names and paths in rows from those of `old` to those of this numbering.
    pub fn renumber<'a>(&mut self, old: (&[Name], &Paths), rows: impl Iterator<Item = &'a mut Callpath>) {
        let names: Vec<u32> = old.0.iter().map(|name| self.name(name)).collect();
        let mut paths: Vec<u32> = Vec::with_capacity(old.1.len());
        for (parent, name) in old.1.parent.iter().zip(&old.1.name) {
            let parent = parent.map(|parent| paths[parent as usize]);
            paths.push(self.path(parent, names[*name as usize]));
        }
        for row in rows {
            row.path = paths[row.path as usize];
            row.location_group = names[row.location_group as usize];
            row.location = names[row.location as usize];
        }
    }

    /// Makes the order of the paths depend only on names. Returns the new number of each path, by its old one.
    pub fn order_paths(&mut self) -> Vec<u32> {
        let new = self.paths.order();
        let mut ordered = Paths { parent: vec![None; new.len()], name: vec![0; new.len()] };
        for (old, at) in new.iter().enumerate() {
            ordered.parent[*at as usize] = self.paths.parent[old].map(|parent| new[parent as usize]);
            ordered.name[*at as usize] = self.paths.name[old];
        }
        (self.paths, self.by_frame) = (ordered, HashMap::new());
        new
    }
}

/// The call paths of a view, in descending order of their joules. In the file, they are followed by the call paths of ranks
/// that do not draw from the device, but have made ranks of the view wait.
#[derive(Clone, Debug, Default)]
pub struct Callpaths {
    own: Vec<Callpath>,
    causes_elsewhere: Vec<Callpath>,
}

impl From<Vec<Callpath>> for Callpaths {
    fn from(rows: Vec<Callpath>) -> Callpaths {
        Callpaths { own: rows, causes_elsewhere: Vec::new() }
    }
}

impl Callpaths {
    /// Returns the call paths of ranks that do not draw from the device, and that have made its ranks wait.
    pub fn causes_elsewhere(&self) -> &[Callpath] {
        &self.causes_elsewhere
    }

    pub(crate) fn set_causes_elsewhere(&mut self, rows: Vec<Callpath>) {
        self.causes_elsewhere = rows;
    }

    /// Iterates over all rows of the file.
    pub fn all(&self) -> impl Iterator<Item = &Callpath> {
        self.own.iter().chain(&self.causes_elsewhere)
    }

    pub(crate) fn all_mut(&mut self) -> impl Iterator<Item = &mut Callpath> {
        self.own.iter_mut().chain(&mut self.causes_elsewhere)
    }

    /// Sorts the rows.
    pub(crate) fn sort_by(&mut self, order: impl Fn(&Callpath, &Callpath) -> std::cmp::Ordering) {
        self.own.sort_unstable_by(&order);
        self.causes_elsewhere.sort_unstable_by(&order);
    }
}

impl Deref for Callpaths {
    type Target = Vec<Callpath>;

    fn deref(&self) -> &Vec<Callpath> {
        &self.own
    }
}

impl DerefMut for Callpaths {
    fn deref_mut(&mut self) -> &mut Vec<Callpath> {
        &mut self.own
    }
}

/// The number of significant digits of a figure in a row.
const DIGITS: i32 = 9;
/// The number of decimal places up to which powers of ten are exact.
const EXACT_PLACES: i32 = 22;
/// The number of decimal places of seconds. A tenth of a nanosecond is less than a tick of the fastest clock.
const PLACES_OF_SECONDS: i32 = 10;

/// Returns the nearest figure with nine significant digits and at most `most_places` decimal places.
pub(crate) fn rounded(figure: f64, most_places: i32) -> f64 {
    if figure == 0.0 || !figure.is_finite() {
        return figure;
    }
    let places = (DIGITS - 1 - figure.abs().log10().floor() as i32).min(most_places);
    if places > EXACT_PLACES {
        return format!("{figure:.8e}").parse().unwrap_or(figure);
    }
    let scale = 10f64.powi(places.abs());
    if places >= 0 { (figure * scale).round() / scale } else { (figure / scale).round() * scale }
}

/// Returns seconds with the decimal places that they have in a summary.
pub fn rounded_seconds(seconds: f64) -> f64 {
    rounded(seconds, PLACES_OF_SECONDS)
}

/// A column of whole numbers or figures.
struct Column<'a, F>(&'a Callpaths, F);

impl<T: Serialize, F: Fn(&Callpath) -> T> Serialize for Column<'_, F> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let count = self.0.own.len() + self.0.causes_elsewhere.len();
        let mut seq = serializer.serialize_seq(Some(count))?;
        self.0.all().try_for_each(|row| seq.serialize_element(&self.1(row)))?;
        seq.end()
    }
}

/// A figure with a maximum number of decimal places, and without a fraction if it is whole.
struct Short(f64, i32);

impl Serialize for Short {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let figure = rounded(self.0, self.1);
        match figure.fract() == 0.0 && figure.abs() < 1e15 {
            true => serializer.serialize_i64(figure as i64),
            false => serializer.serialize_f64(figure),
        }
    }
}

impl Serialize for Callpaths {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let rows = self;
        let mut map = serializer.serialize_map(None)?;
        let mut whole = |key, of: fn(&Callpath) -> u64| map.serialize_entry(key, &Column(rows, of));
        whole("path", |row| row.path.into())?;
        whole("location_group", |row| row.location_group.into())?;
        whole("location", |row| row.location.into())?;
        whole("calls", |row| row.figures.calls)?;
        let mut column = |key: &str, of: fn(&Figures) -> f64| {
            let places = if key.ends_with("seconds") { PLACES_OF_SECONDS } else { i32::MAX };
            map.serialize_entry(key, &Column(rows, |row: &Callpath| Short(of(&row.figures), places)))
        };
        column("exclusive_joules", |figures| figures.exclusive_joules)?;
        column("inclusive_joules", |figures| figures.inclusive_joules)?;
        column("resolved_joules", |figures| figures.resolved_joules)?;
        if rows.own.iter().all(|row| row.figures.dynamic_joules.is_some()) {
            column("static_joules", |figures| figures.static_joules.unwrap_or_default())?;
            column("dynamic_joules", |figures| figures.dynamic_joules.unwrap_or_default())?;
        }
        if rows.own.iter().all(|row| row.figures.inclusive_dynamic_joules.is_some()) {
            let of = |figures: &Figures| figures.inclusive_dynamic_joules.unwrap_or_default();
            column("inclusive_dynamic_joules", of)?;
        }
        if rows.own.iter().all(|row| row.figures.possible_joules.is_some()) {
            column("possible_joules", |figures| figures.possible_joules.unwrap_or_default())?;
        }
        if rows.own.iter().all(|row| row.figures.waited_joules.is_some()) {
            column("waited_joules", |figures| figures.waited_joules.unwrap_or_default())?;
            column("caused_waiting_joules", |figures| figures.caused_waiting_joules.unwrap_or_default())?;
        }
        column("exclusive_seconds", |figures| figures.exclusive_seconds)?;
        column("resolved_seconds", |figures| figures.resolved_seconds)?;
        map.end()
    }
}

#[derive(Deserialize)]
struct Columns {
    path: Vec<u32>,
    location_group: Vec<u32>,
    location: Vec<u32>,
    calls: Vec<u64>,
    exclusive_joules: Vec<f64>,
    inclusive_joules: Vec<f64>,
    resolved_joules: Vec<f64>,
    #[serde(default)]
    possible_joules: Option<Vec<f64>>,
    #[serde(default)]
    static_joules: Option<Vec<f64>>,
    #[serde(default)]
    dynamic_joules: Option<Vec<f64>>,
    #[serde(default)]
    inclusive_dynamic_joules: Option<Vec<f64>>,
    #[serde(default)]
    waited_joules: Option<Vec<f64>>,
    #[serde(default)]
    caused_waiting_joules: Option<Vec<f64>>,
    exclusive_seconds: Vec<f64>,
    resolved_seconds: Vec<f64>,
}

impl Columns {
    /// Returns the rows; `None` if the columns differ in length.
    fn rows(self) -> Option<Vec<Callpath>> {
        let count = self.path.len();
        let figures = [
            &self.exclusive_joules,
            &self.inclusive_joules,
            &self.resolved_joules,
            self.possible_joules.as_ref().unwrap_or(&self.exclusive_joules),
            self.static_joules.as_ref().unwrap_or(&self.exclusive_joules),
            self.dynamic_joules.as_ref().unwrap_or(&self.exclusive_joules),
            self.inclusive_dynamic_joules.as_ref().unwrap_or(&self.exclusive_joules),
            self.waited_joules.as_ref().unwrap_or(&self.exclusive_joules),
            self.caused_waiting_joules.as_ref().unwrap_or(&self.exclusive_joules),
            &self.exclusive_seconds,
            &self.resolved_seconds,
        ];
        let are_equal = [self.location_group.len(), self.location.len(), self.calls.len()] == [count; 3]
            && figures.iter().all(|column| column.len() == count);
        let row = |at: usize| Callpath {
            path: self.path[at],
            location_group: self.location_group[at],
            location: self.location[at],
            figures: Figures {
                calls: self.calls[at],
                exclusive_joules: self.exclusive_joules[at],
                inclusive_joules: self.inclusive_joules[at],
                resolved_joules: self.resolved_joules[at],
                possible_joules: self.possible_joules.as_ref().map(|column| column[at]),
                static_joules: self.static_joules.as_ref().map(|column| column[at]),
                dynamic_joules: self.dynamic_joules.as_ref().map(|column| column[at]),
                inclusive_dynamic_joules: self.inclusive_dynamic_joules.as_ref().map(|column| column[at]),
                waited_joules: self.waited_joules.as_ref().map(|column| column[at]),
                caused_waiting_joules: self.caused_waiting_joules.as_ref().map(|column| column[at]),
                exclusive_seconds: self.exclusive_seconds[at],
                resolved_seconds: self.resolved_seconds[at],
            },
        };
        are_equal.then(|| (0..count).map(row).collect())
    }
}

impl<'de> Deserialize<'de> for Callpaths {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Callpaths, D::Error> {
        let rows = Columns::deserialize(deserializer)?.rows();
        let mut own = rows.ok_or_else(|| D::Error::custom("columns differ in length"))?;
        let causes_elsewhere = own.extract_if(.., |row| row.figures.is_cause_only()).collect();
        Ok(Callpaths { own, causes_elsewhere })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_keeps_nine_digits() {
        let text = |figure: f64| serde_json::to_string(&Short(figure, i32::MAX)).expect("JSON");
        assert_eq!(text(0.1 + 0.2), "0.3");
        assert_eq!(text(1234.567890123), "1234.56789");
        assert_eq!(text(123456789012.6), "123456789000");
        assert_eq!(text(1.23456789012e-5), "0.0000123456789");
        assert_eq!([0.0, -0.0, 7.0, -2.5].map(text), ["0", "0", "7", "-2.5"]);
        assert_eq!(text(9.999999999), "10");
        for figure in [1.0 / 3e15, 1e-9, 0.001234567891, 98765.43210987, 1e14 / 3.0, 5e20 / 3.0] {
            assert!((rounded(figure, i32::MAX) / figure - 1.0).abs() < 5e-9, "{figure}");
        }
        assert_eq!(rounded(1.23456789e-6, PLACES_OF_SECONDS), 1.2346e-6);
    }

    #[test]
    fn a_row_that_waited_has_no_more_samples_than_its_cpu_time() {
        let row = |dynamic_joules, exclusive_seconds| Figures {
            exclusive_joules: dynamic_joules,
            dynamic_joules: Some(dynamic_joules),
            exclusive_seconds,
            ..Figures::default()
        };
        let rows = [row(0.4, 10.0), row(3.6, 0.9)];
        // The first row has 0.1 s of the 1 s of CPU time: 100 of 1000 samples.
        let samples = Samples::of(rows.iter(), Some(1.0), 1e-3);
        let part = 102.0 / 1004.0;
        let error = 0.4 * (1000.0_f64 * part * (1.0 - part)).sqrt() / 100.0;
        assert!((samples.error_joules(&rows[0]).expect("a sampled row") / error - 1.0).abs() < 1e-12);
        assert_eq!(samples.error_joules(&Figures { calls: 1, ..rows[0] }), None);
        // Without dynamic joules, all of its time counts.
        let samples = Samples::of(rows.iter(), None, 1e-3);
        assert!(samples.error_joules(&rows[0]).expect("a sampled row") < error / 10.0);
    }
}
