//! The tables of the first lines.

use super::facts::{Facts, Row, WAITING_PART_MIN};
use super::names;
use super::screen::{Column, Line, Names, Screen, Style, Table, labelled};
use crate::sensors;
use ampere_figures::shares;
use ampere_figures::summary::Device;
use ampere_model::digits::{self, ESTIMATED, column, count, known_column, percent};
use ampere_model::text::{compact, printable};

/// The largest number of [`Caps::details`].
pub const DETAILS_MAX: usize = 2;

/// The parts for which there is space, if there are few lines.
pub struct Caps {
    kernels: usize,
    gpus: usize,
    python: usize,
    functions: usize,
    pub notes: usize,
    pub hints: usize,
    /// The number of details in the lines about processors, waiting and ranks, at most [`DETAILS_MAX`].
    pub details: usize,
    pub has_path: bool,
    pub has_gaps: bool,
}

impl Caps {
    /// Returns the parts for which there is space on a large screen.
    pub fn of(facts: &Facts) -> Caps {
        let shown = |rows, limit| large(rows, wholes(facts), limit).0.len();
        Caps {
            kernels: shown(&facts.kernels, 12),
            gpus: facts.gpus.len().min(12),
            python: shown(&facts.python, FUNCTIONS_MAX),
            functions: shown(&facts.functions, FUNCTIONS_MAX),
            notes: 3,
            hints: super::hints::HINTS_MAX,
            details: DETAILS_MAX,
            has_path: true,
            has_gaps: true,
        }
    }

    /// Leaves out the least important part. Returns `false` if there is none.
    pub fn tighten(&mut self) -> bool {
        if self.drop_row(ROWS_WANTED) {
            return true;
        }
        match () {
            () if self.has_path => self.has_path = false,
            () if self.notes > 1 => self.notes -= 1,
            () if self.has_gaps => self.has_gaps = false,
            () if self.details > 0 => self.details -= 1,
            () if self.hints > 1 => self.hints -= 1,
            // A hint that is cut off has no meaning.
            () => return self.drop_row(ROWS_MIN) || std::mem::take(&mut self.hints) > 0,
        }
        true
    }

    /// Leaves out a row of the longest table, unless no table has more than `kept` rows.
    fn drop_row(&mut self, kept: usize) -> bool {
        let most = self.functions.max(self.gpus).max(self.kernels).max(self.python);
        let mut rows = [&mut self.functions, &mut self.gpus, &mut self.kernels, &mut self.python].into_iter();
        let longest = rows.find(|rows| **rows == most && most > kept);
        longest.map(|rows| *rows -= 1).is_some()
    }
}

/// Rows with a smaller part of the whole are summed. The first rows of a table may be smaller.
const PART_MIN: f64 = 0.005;
const FIRST_ROWS: usize = 10;
const FIRST_PART_MIN: f64 = 0.001;
/// The maximum number of functions in the first lines. A reader who requests a table with more rows also gets small rows.
pub const FUNCTIONS_MAX: usize = 20;
/// Rows that each table keeps while something else can be left out, and those that it keeps in any case. Rows that sum others are
/// not counted.
const ROWS_WANTED: usize = 4;
const ROWS_MIN: usize = 2;

pub fn of(facts: &Facts, caps: &Caps, screen: Screen) -> Vec<Line> {
    let mut lines = Vec::new();
    if !facts.kernels.is_empty() {
        lines.extend(kernels(facts, caps, screen));
    }
    if !facts.kernels.is_empty() && !facts.gpus.is_empty() && caps.has_gaps {
        lines.push(Line::empty());
    }
    if !facts.gpus.is_empty() {
        lines.extend(gpus(facts, caps, screen));
    }
    if !facts.kernels.is_empty() && facts.functions.is_empty() {
        lines.extend(meanwhile(facts, screen));
    } else {
        if !facts.python.is_empty() {
            lines.extend(python(facts, caps.python, screen));
            lines.extend(caps.has_gaps.then(Line::empty));
        }
        lines.extend(functions(facts, caps, screen));
    }
    lines
}

/// Returns the rows that are shown, and the others. The first rows are shown, and those that mostly wait and have a large part of
/// `all` joules.
fn large<'f, 'a>(
    rows: &'f [Row<'a>],
    (whole, all): (f64, f64),
    limit: usize,
) -> (Vec<&'f Row<'a>>, Vec<&'f Row<'a>>) {
    let is_shown = |(at, row): &(usize, &Row)| {
        let part_min = match *at {
            _ if limit > FUNCTIONS_MAX => 0.0,
            at if at < FIRST_ROWS => FIRST_PART_MIN,
            _ => PART_MIN,
        };
        let is_large = row.joules >= part_min * whole;
        *at == 0 || (*at < limit && is_large) || (!is_large && row.all_joules >= WAITING_PART_MIN * all)
    };
    let (shown, others): (Vec<_>, Vec<_>) = rows.iter().enumerate().partition(is_shown);
    let rows = |of: Vec<(usize, &'f Row<'a>)>| of.into_iter().map(|(_, row)| row).collect();
    (rows(shown), rows(others))
}

fn sum(rows: &[&Row]) -> f64 {
    rows.iter().map(|row| row.joules).sum()
}

/// Returns the joules of which shares are parts, and all joules of the host devices, static ones included. If joules are not
/// dynamic, the second figure is infinite, so that no row counts as waiting.
fn wholes(facts: &Facts) -> (f64, f64) {
    (facts.whole, if facts.is_dynamic { facts.all_of_host_devices() } else { f64::INFINITY })
}

fn digits(facts: &Facts) -> usize {
    digits::of_energy(&facts.summary.run.energy)
}

pub fn share_head(facts: &Facts) -> &'static str {
    if facts.is_time() { shares::OF_TIME } else { shares::head(facts.is_dynamic) }
}

fn joules_head(facts: &Facts) -> &'static str {
    match (facts.is_time(), facts.is_dynamic) {
        (true, _) => "s",
        (_, true) => "dynamic J",
        _ => "joules",
    }
}

/// Returns the cells of rows, and "-" in the rows below them.
fn cells(rows: &[&Row], below: usize, of: impl Fn(&Row) -> String) -> Vec<String> {
    rows.iter().map(|row| of(row)).chain(std::iter::repeat_n("-".to_owned(), below)).collect()
}

/// How well the joules of a row are known: the range of a recorded row, or the standard error of a sampled one as a fraction of
/// its joules.
#[derive(Clone, Copy, Default)]
pub struct Known {
    pub range: Option<(f64, f64)>,
    pub error: Option<f64>,
}

/// A range from less than the first part to more than the second part of the whole gives no information about a row.
const UNTOLD_PARTS: (f64, f64) = (0.02, 0.75);

/// Whether a range gives information about its row. If it does not, other consumers of the device were always active, too.
fn is_told((least, most): (f64, f64), whole: f64) -> bool {
    least > UNTOLD_PARTS.0 * whole || most < UNTOLD_PARTS.1 * whole
}

/// The heads of columns that [`known`] makes: with sampled rows only, with recorded ones only, and with both.
pub const ERROR_HEAD: &str = "±";
pub const RANGE_HEAD: &str = "(least..most)";
pub const ERROR_OR_RANGE_HEAD: &str = "± or range";

/// Formats a standard error as a fraction of its figure: `12 %`, `0.3 %` or `<0.1 %`. An error as large as its figure is shown as
/// `-`, because it shows only that the figure is tiny.
fn error_text(part: f64) -> String {
    match 100.0 * part {
        small if small < 0.05 => "<0.1 %".to_owned(),
        small if small < 0.95 => format!("{small:.1} %"),
        percent if percent < 100.0 => format!("{percent:.0} %"),
        _ => "-".to_owned(),
    }
}

/// Returns how well the joules of rows are known, with the head of the column. A row has at most `whole` joules.
pub fn known(rows: &[Known], whole: f64, digits: usize) -> (&'static str, Vec<String>) {
    let ends: Vec<f64> =
        rows.iter().filter_map(|row| row.range).flat_map(|(least, most)| [least, most]).collect();
    let mut ends = column(&ends, digits).into_iter();
    let told = |row: &Known| row.range.is_some_and(|range| is_told(range, whole));
    let cell = |row: &Known| {
        let range = row.range.map(|_| (ends.next().unwrap_or_default(), ends.next().unwrap_or_default()));
        match (row.error, range.filter(|_| told(row))) {
            (Some(error), _) => error_text(error),
            (None, Some((least, most))) => format!("({least}..{most})"),
            (None, None) => "-".to_owned(),
        }
    };
    let cells = rows.iter().map(cell).collect();
    let has_errors = rows.iter().any(|row| row.error.is_some());
    let head = match rows.iter().any(told) {
        true if has_errors => ERROR_OR_RANGE_HEAD,
        false if has_errors => ERROR_HEAD,
        _ => RANGE_HEAD,
    };
    (head, cells)
}

/// Returns how well the joules of rows are known, and "-" in the rows below them.
fn known_of(facts: &Facts, rows: &[&Row], below: usize) -> (&'static str, Vec<String>) {
    let of = |row: &&Row| Known { range: row.bounds, error: row.error };
    let all: Vec<Known> = rows.iter().map(of).chain(std::iter::repeat_n(Known::default(), below)).collect();
    known(&all, facts.whole, digits(facts))
}

/// Explains why some rows have no range, unless all have one.
fn untold(facts: &Facts, rows: &[&Row], screen: Screen) -> Vec<Line> {
    let mut ranges = rows.iter().filter_map(|row| row.bounds);
    if facts.is_time() || ranges.all(|range| is_told(range, facts.whole)) {
        return Vec::new();
    }
    let who = if facts.summary.run.ranks > 1 { "ranks" } else { "threads" };
    let by = if facts.is_dynamic { "CPU time" } else { "time" };
    let words = format!("several {who} were always active: their joules are divided by {by}");
    labelled("", &words, Style::Plain, screen)
}

fn functions(facts: &Facts, caps: &Caps, screen: Screen) -> Vec<Line> {
    if facts.functions.is_empty() {
        let is_known = facts.whole > 0.0 && facts.kernels.is_empty();
        let words = "all of it in no function: nothing was recorded or sampled";
        return if is_known { labelled("", words, Style::Plain, screen) } else { Vec::new() };
    }
    let (rows, others) = large(&facts.functions, wholes(facts), caps.functions);
    let hidden: f64 = others.iter().map(|row| row.all_joules).sum();
    let (more, others) = (others.len(), sum(&others));
    // Functions that wait have joules, but hardly any dynamic ones.
    let all = facts.all_of_host_devices();
    let waits =
        facts.is_dynamic && hidden >= WAITING_PART_MIN * all && hidden * facts.whole > 2.0 * others * all;
    let hidden = if waits { format!(" ({} of all joules)", percent(hidden, all)) } else { String::new() };
    let more =
        if more > 0 { vec![(format!("{} more{hidden}", count(more as u64)), others)] } else { Vec::new() };
    let outside = match facts.is_outside_mostly_the_collectors() {
        true => "ampere's collector",
        false => "idle: in no function",
    };
    let rest = [(outside, facts.outside), ("not attributed: no readings", facts.lost)];
    let rest = rest.into_iter().filter(|(_, joules)| *joules >= PART_MIN * facts.whole);
    let below: Vec<(String, f64)> =
        more.into_iter().chain(rest.map(|(name, joules)| (name.to_owned(), joules))).collect();
    let joules: Vec<f64> = rows.iter().map(|row| row.joules).chain(below.iter().map(|row| row.1)).collect();
    let shares = joules.iter().map(|joules| percent(*joules, facts.whole)).collect();
    let seconds: Vec<f64> = rows.iter().map(|row| row.seconds).collect();
    let mut seconds = column(&seconds, 3);
    seconds.resize(joules.len(), "-".to_owned());
    let is_sampled = rows.iter().any(|row| row.error.is_some());
    let calls = |row: &Row| if row.calls > 0 { count(row.calls) } else { "sampled".to_owned() };
    let dispensable = |head: &str, cells: Vec<String>, number| Column::new(head, cells).dispensable(number);
    let mut before = vec![
        Column::new(share_head(facts), shares),
        Column::new(joules_head(facts), column(&joules, digits(facts))),
    ];
    if is_sampled || !facts.is_time() {
        let (head, cells) = known_of(facts, &rows, below.len());
        before.push(dispensable(head, cells, if is_sampled { 1 } else { 2 }));
    }
    if !facts.is_time() {
        before.push(dispensable("s", seconds, 1));
    }
    let has_calls = rows.iter().any(|row| row.calls > 0);
    let calls = cells(&rows, 0, |row| if has_calls { calls(row) } else { String::new() });
    let what = if facts.python.is_empty() { "function" } else { "function itself" };
    let head = if is_sampled && !has_calls { format!("{what} (sampled)") } else { what.to_owned() };
    let mut all: Vec<&str> = rows.iter().map(|row| row.name).collect();
    all.extend(below.iter().map(|(name, _)| name.as_str()));
    let after = vec![dispensable("calls", calls, 3)];
    let table = Table { before, head, names: Names::Functions(all), after }.lines(screen);
    [table, untold(facts, &rows, screen)].concat()
}

/// The row of functions that no Python function is known to have called: those of a library's own threads, and those whose
/// callers were not found.
const OUTSIDE_PYTHON: &str = "called by no known Python function";

/// Returns the table of at most `limit` Python functions, including the functions in C that they call, which do most of their
/// work.
pub fn python(facts: &Facts, limit: usize, screen: Screen) -> Vec<Line> {
    let (rows, others) = large(&facts.python, wholes(facts), limit);
    let (more, others) = (others.len(), sum(&others));
    let elsewhere = facts.outside_python();
    let below = [
        (format!("{} more", count(more as u64)), others, more > 0),
        (OUTSIDE_PYTHON.to_owned(), elsewhere, elsewhere >= PART_MIN * facts.whole),
    ];
    let below: Vec<(String, f64)> = below
        .into_iter()
        .filter_map(|(words, joules, is_shown)| is_shown.then_some((words, joules)))
        .collect();
    let joules: Vec<f64> = rows.iter().map(|row| row.joules).chain(below.iter().map(|row| row.1)).collect();
    let mut seconds = column(&rows.iter().map(|row| row.seconds).collect::<Vec<_>>(), 3);
    seconds.resize(joules.len(), "-".to_owned());
    let mut before = vec![
        Column::new(share_head(facts), joules.iter().map(|joules| percent(*joules, facts.whole)).collect()),
        Column::new(joules_head(facts), column(&joules, digits(facts))),
    ];
    if rows.iter().any(|row| row.error.is_some()) {
        let (head, cells) = known_of(facts, &rows, below.len());
        before.push(Column::new(head, cells).dispensable(1));
    }
    before.extend((!facts.is_time()).then(|| Column::new("s", seconds).dispensable(1)));
    let mut all: Vec<&str> = rows.iter().map(|row| row.name).collect();
    all.extend(below.iter().map(|(words, _)| words.as_str()));
    let head = "Python function with C code".to_owned();
    Table { before, head, names: Names::Functions(all), after: Vec::new() }.lines(screen)
}

fn kernels(facts: &Facts, caps: &Caps, screen: Screen) -> Vec<Line> {
    let (rows, others) = large(&facts.kernels, wholes(facts), caps.kernels);
    let (more, others) = (others.len(), sum(&others));
    let below = usize::from(more > 0);
    let joules: Vec<f64> = rows.iter().map(|row| row.joules).chain((more > 0).then_some(others)).collect();
    let mut seconds = column(&rows.iter().map(|row| row.seconds).collect::<Vec<_>>(), 3);
    seconds.resize(joules.len(), "-".to_owned());
    let mut watts: Vec<Option<f64>> = rows.iter().map(|row| row.watts.map(|(mean, ..)| mean)).collect();
    watts.resize(joules.len(), None);
    let shares = joules.iter().map(|joules| percent(*joules, facts.whole)).collect();
    let dispensable = |head: &str, cells: Vec<String>, number| Column::new(head, cells).dispensable(number);
    let after = vec![
        dispensable("GPU", cells(&rows, below, |row| which(&row.devices, 8).replace("GPU-", "")), 3),
        Column::new(share_head(facts), shares),
        Column::new(joules_head(facts), column(&joules, digits(facts))),
        dispensable(RANGE_HEAD, known_of(facts, &rows, below).1, 4),
        dispensable("s", seconds, 1),
        // These watts include static ones.
        dispensable(
            if facts.is_dynamic { "total W" } else { "mean W" },
            known_column(&watts, "-", ESTIMATED),
            1,
        ),
        dispensable("calls", cells(&rows, below, |row| count(row.calls)), 2),
    ];
    let others = format!("{} more", count(more as u64));
    let mut all: Vec<&str> = rows.iter().map(|row| row.name).collect();
    all.extend((more > 0).then_some(others.as_str()));
    Table { before: Vec::new(), head: "kernel".to_owned(), names: Names::Functions(all), after }.lines(screen)
}

/// Names devices in few words: "GPU-0..3", or their number if they are on several nodes or the names are too long.
pub fn which(devices: &[&Device], room: usize) -> String {
    let mut names: Vec<&str> = devices.iter().map(|device| device.name.as_str()).collect();
    names.sort_unstable_by_key(|name| (name.len(), *name));
    let is_one_node = devices.windows(2).all(|pair| pair[0].node == pair[1].node);
    let text = printable(&compact(&names));
    if is_one_node && text.chars().count() <= room { text } else { format!("{} GPUs", names.len()) }
}

fn gpus(facts: &Facts, caps: &Caps, screen: Screen) -> Vec<Line> {
    let (rows, rest) = facts.gpus.split_at(caps.gpus.min(facts.gpus.len()));
    let has_kernels = !facts.kernels.is_empty();
    let mut joules: Vec<f64> = rows.iter().map(|device| device.total_joules).collect();
    joules.extend((!rest.is_empty()).then(|| rest.iter().map(|device| device.total_joules).sum::<f64>()));
    let cells = |of: &dyn Fn(&Device) -> Option<String>| -> Vec<String> {
        rows.iter().map(|device| of(device).unwrap_or_else(|| "-".to_owned())).collect()
    };
    let most = |device: &Device| {
        device.power.as_ref().and_then(|curve| curve.watts.iter().copied().reduce(f64::max))
    };
    let watts = |of: &dyn Fn(&Device) -> Option<f64>| {
        known_column(&rows.iter().map(|device| of(device)).collect::<Vec<_>>(), "-", ESTIMATED)
    };
    let in_kernels =
        |device: &Device| facts.in_kernels(device) / facts.joules_of(device).max(f64::MIN_POSITIVE);
    let outside = |device: &Device| facts.joules_of(device) - facts.in_kernels(device);
    // These joules get as many decimals as those in the column next to them.
    let both: Vec<f64> = joules.iter().copied().chain(rows.iter().map(|device| outside(device))).collect();
    let outside = column(&both, digits(facts)).split_off(joules.len());
    let mut after = vec![
        Column::new("joules", column(&joules, digits(facts))),
        Column::new("mean W", watts(&Device::mean_watts)).dispensable(1),
        Column::new("max W", watts(&most)).dispensable(2),
    ];
    if has_kernels {
        let outside_head = if facts.is_dynamic { "dynamic J outside" } else { "outside" };
        let head = if facts.is_dynamic { "dynamic in kernels" } else { "of it in kernels" };
        let part =
            |device: &Device| (facts.in_kernels(device) > 0.0).then(|| percent(in_kernels(device), 1.0));
        after.push(Column::new(head, cells(&part)));
        after.push(Column::new(outside_head, outside).dispensable(3));
    }
    after.push(Column::new("vs power sensor", cells(&sensors::difference)).dispensable(4));
    let remark = |device: &Device| {
        let word = if device.hidden { "hidden" } else { "unused" };
        (!facts.is_used(device)).then(|| word.to_owned())
    };
    let mut remarks: Vec<String> = rows.iter().map(|device| remark(device).unwrap_or_default()).collect();
    remarks.extend(rest.iter().map(|device| remark(device)).min().flatten());
    after.push(Column { is_left: true, ..Column::new("", remarks).dispensable(1) });
    let is_one_node = facts.gpus.windows(2).all(|pair| pair[0].node == pair[1].node);
    let name = |device: &&Device| {
        if is_one_node { device.name.clone() } else { format!("{} {}", device.node, device.name) }
    };
    let mut all: Vec<String> = rows.iter().map(name).collect();
    all.extend((!rest.is_empty()).then(|| which(rest, 16)));
    let mut lines =
        Table { before: Vec::new(), head: "GPU".to_owned(), names: Names::Texts(all), after }.lines(screen);
    let words = sensors::words(facts.summary).map(|words| format!("! {words}"));
    lines.extend(words.into_iter().flat_map(|words| labelled("", &words, Style::Plain, screen)));
    lines
}

/// Returns the functions of the host while GPUs ran, by their time.
fn meanwhile(facts: &Facts, screen: Screen) -> Vec<Line> {
    let rows = facts.functions_of_gpu_processes();
    let whole: f64 = rows.iter().map(|row| row.1).sum();
    let shown = rows.iter().take_while(|row| row.1 >= 0.01 * whole && row.1 > 0.0).take(3);
    let named: Vec<String> = shown
        .map(|(name, seconds)| format!("{} {:.0} %", names::shorten(name, 40), 100.0 * seconds / whole))
        .collect();
    if named.is_empty() {
        return Vec::new();
    }
    labelled("host", &format!("time in {}", named.join(", ")), Style::Plain, screen)
}
