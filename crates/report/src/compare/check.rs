//! Checks whether a figure of the second group is more than a limit above that of the first group. More is worse for all figures
//! that can be checked.

use super::figures::{By, DYNAMIC, INCLUSIVE, INCLUSIVE_DYNAMIC, PER_UNIT};
use super::statistics::ratio;
use super::text::range_head;
use super::{Comparison, Per, Row, WHY_UNBOUNDED, is_multiple, range};
use ampere_model::digits::significant;
use ampere_model::signature::is_function;
use ampere_model::text::{listed, printable, short};
use std::collections::BTreeSet;

/// The maximum length of a name in a sentence, and the maximum number of names.
const NAME_CHARS_MAX: usize = 80;
const NAMED_MAX: usize = 5;

/// A figure that is to be checked.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// `joules`, `dynamic`, `seconds`, or the name of a unit of work.
    pub metric: &'a str,
    /// The region whose figure it is; `None` for the run as a whole.
    pub region: Option<&'a str>,
    /// The rise that is allowed, in percent of the first group's mean.
    pub allowed_percent: f64,
}

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finding {
    /// The figure did not rise by more than the limit.
    Allowed,
    /// The interval of the change contains the limit.
    Unknown,
    /// The whole interval of the change is above the limit; without an interval, the change itself is above it.
    Exceeded,
}

impl Finding {
    /// Returns the name as it is written in files.
    pub fn name(self) -> &'static str {
        match self {
            Finding::Allowed => "allowed",
            Finding::Unknown => "unknown",
            Finding::Exceeded => "exceeded",
        }
    }
}

/// A figure that was checked.
pub struct Checked {
    /// The name of the figure, which is printable.
    pub figure: String,
    pub allowed_percent: f64,
    pub finding: Finding,
    /// The finding with its numbers, in one printable sentence.
    pub words: String,
}

#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    #[error("joules cannot be compared: {0}; --metric seconds can")]
    Incomparable(String),
    #[error("not all of these runs have {0}: name another --metric")]
    Absent(String),
    #[error("not all of these runs count {wanted:?} as work: {known}")]
    UnknownWork { wanted: String, known: String },
    #[error("none of these runs has a region {0:?}: ampere compare -f csv lists all")]
    UnknownRegion(String),
    #[error("{count} regions are named {wanted:?}: name one of {names}")]
    AmbiguousRegion { count: usize, wanted: String, names: String },
    #[error("work is counted for the run as a whole, so {0:?} has no figure of a region")]
    WorkOfRegion(String),
}

impl Comparison {
    /// Checks a figure of the second group, and keeps the result for the formats that show checks.
    ///
    /// # Errors
    /// The runs do not have the figure, or it cannot be compared.
    pub fn check(&mut self, wanted: &Wanted) -> Result<&Checked, CheckError> {
        let (row, figure) = match wanted.region {
            None => self.row_of_run(wanted.metric)?,
            Some(region) => self.row_of_region(wanted.metric, region)?,
        };
        if let Some(why) = self.incomparable.as_ref().filter(|_| !self.is_comparable(row)) {
            return Err(CheckError::Incomparable(why.clone()));
        }
        let figure = if self.is_divided(row) { format!("{figure} per {}", self.per.name()) } else { figure };
        let (finding, words) = found(row, &figure, wanted.allowed_percent);
        self.checks.push(Checked { figure, allowed_percent: wanted.allowed_percent, finding, words });
        Ok(&self.checks[self.checks.len() - 1])
    }

    fn is_divided(&self, row: &Row) -> bool {
        self.per != Per::Run && row.by != By::Work && row.figure() != "seconds"
    }

    fn row_of_run(&self, metric: &str) -> Result<(&Row, String), CheckError> {
        let (figure, words) = match metric {
            "joules" => ("joules", "joules"),
            "dynamic" => (DYNAMIC, "dynamic joules"),
            "seconds" => ("seconds", "seconds"),
            work => return self.row_of_work(work),
        };
        let row = self.of_run(figure).filter(|row| !row.is_zero());
        row.map(|row| (row, words.to_owned())).ok_or_else(|| CheckError::Absent(words.to_owned()))
    }

    fn row_of_work(&self, wanted: &str) -> Result<(&Row, String), CheckError> {
        let rows = || self.rows.iter().filter(|row| row.by == By::Work && row.figure() == PER_UNIT);
        let row = rows().find(|row| row.name == wanted);
        row.map(|row| (row, format!("joules per {}", named(wanted)))).ok_or_else(|| {
            let names =
                rows().map(|row| named(&row.name)).chain(["joules", "dynamic", "seconds"].map(str::to_owned));
            let names = Vec::from_iter(names);
            let known = format!("--metric is {}", names.join(", "));
            CheckError::UnknownWork { wanted: wanted.to_owned(), known }
        })
    }

    fn row_of_region(&self, metric: &str, region: &str) -> Result<(&Row, String), CheckError> {
        let (figure, words) = match (metric, self.kind.is_inclusive) {
            ("joules", false) => ("exclusive_joules", "joules"),
            ("joules", true) => (INCLUSIVE, "inclusive joules"),
            ("dynamic", false) => (DYNAMIC, "dynamic joules"),
            ("dynamic", true) => (INCLUSIVE_DYNAMIC, "inclusive dynamic joules"),
            ("seconds", _) => ("exclusive_seconds", "seconds"),
            (work, _) => return Err(CheckError::WorkOfRegion(work.to_owned())),
        };
        let (by, name) = self.region(region)?;
        let row = self.rows.iter().find(|row| row.by == by && row.name == name && row.figure() == figure);
        let words = format!("{words} of {}", named(name));
        row.map(|row| (row, words.clone())).ok_or(CheckError::Absent(words))
    }

    /// Finds a region by its whole name, or by the name of its function alone: functions of ranks first, then kernels.
    fn region(&self, wanted: &str) -> Result<(By, &str), CheckError> {
        let names = |by: By| -> BTreeSet<&str> {
            self.rows.iter().filter(|row| row.by == by).map(|row| row.name.as_str()).collect()
        };
        let of_kinds = [By::Function, By::Kernel].map(|by| (by, names(by)));
        if let Some((by, name)) = of_kinds.iter().find_map(|(by, names)| Some((*by, *names.get(wanted)?))) {
            return Ok((by, name));
        }
        let functions = of_kinds.iter().flat_map(|(by, names)| names.iter().map(|name| (*by, *name)));
        let functions: Vec<(By, &str)> = functions.filter(|(_, name)| is_function(name, wanted)).collect();
        match functions[..] {
            [one] => Ok(one),
            [] => Err(CheckError::UnknownRegion(wanted.to_owned())),
            _ => Err(CheckError::AmbiguousRegion {
                count: functions.len(),
                wanted: wanted.to_owned(),
                names: listed(functions.iter().map(|(_, name)| name), NAMED_MAX),
            }),
        }
    }
}

fn named(name: &str) -> String {
    printable(&short(name, NAME_CHARS_MAX))
}

/// Compares the change of a row with the limit, in a sentence about `figure`.
fn found(row: &Row, figure: &str, allowed_percent: f64) -> (Finding, String) {
    let (first, other, difference) = (&row.groups[0], &row.groups[1], &row.differences[0]);
    // A change that has an interval is in percent of the first mean; if that mean is 0, every rise is above the limit. Without
    // an interval, the change and its limit are in the unit of the figure.
    let percent = |(low, high): (f64, f64)| (100.0 * (low - 1.0), 100.0 * (high - 1.0));
    let (allowed, (low, high)) = match (ratio(first, other), difference.interval) {
        (Some(range), _) => (allowed_percent, percent(range)),
        (None, Some(interval)) => (0.0, interval),
        (None, None) => (first.mean * allowed_percent / 100.0, (difference.of_means, difference.of_means)),
    };
    let finding = match () {
        () if low > allowed => Finding::Exceeded,
        () if high > allowed => Finding::Unknown,
        () => Finding::Allowed,
    };
    let limit = format!("the {allowed_percent} % allowed");
    let change = change(row);
    let words = match finding {
        Finding::Exceeded => format!("{figure} {change}, more than {limit}"),
        Finding::Unknown => {
            format!(
                "cannot tell whether {figure} rose by more than {limit}: {figure} {change}; more runs narrow the range"
            )
        }
        Finding::Allowed => format!("{figure} {change}, not more than {limit}"),
    };
    (finding, words)
}

/// Describes the change between the groups, with its range: `rose by 7.2 % (95 % range +6.1 to +8.3 %)`.
fn change(row: &Row) -> String {
    let (first, other, difference) = (&row.groups[0], &row.groups[1], &row.differences[0]);
    // A change that is rounded to 0 has no sign.
    let percent = |of: f64| (1000.0 * of / first.mean).round() / 10.0 + 0.0;
    let verb = match difference.of_means {
        0.0 => "stayed the same".to_owned(),
        _ if first.mean <= 0.0 => {
            format!("rose from {} to {}", significant(first.mean, 3), significant(other.mean, 3))
        }
        _ if is_multiple(first.mean, other.mean) => {
            format!("rose to {:.0} times as much", other.mean / first.mean)
        }
        rise if rise > 0.0 => format!("rose by {:.1} %", percent(rise)),
        fall => format!("fell by {:.1} %", percent(-fall)),
    };
    let range = match (difference.interval, ratio(first, other)) {
        (None, _) => "a single run shows no noise, so there is no range".to_owned(),
        (_, Some((_, high))) if high.is_infinite() => {
            format!("{} {}: {WHY_UNBOUNDED}", range_head(), range(row, 1))
        }
        _ => format!("{} {}", range_head(), range(row, 1)),
    };
    format!("{verb} ({range})")
}
