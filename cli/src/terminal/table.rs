//! Rows of figures, as `ampere top` and `ampere run` draw them. The last column has the names of the rows.

use super::paint::put;
use ampere_model::digits;
use ampere_model::order::largest_first;
use ampere_model::text::{joules, printable, short};
use ampere_report::first::names::shortened_each;
use ampere_report::text::bar;
use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_core::style::{Color, Modifier, Style};
use ratatui_core::text::{Line, Span};
use std::borrow::Cow;
use std::ops::Range;

/// The maximum number of characters of a text other than the row's name. The longest name of a process fits.
const WORD_MAX: u16 = 33;
/// A column of texts is widened for longer texts only as far as this number of characters remains for the names of the rows,
/// or fewer if all names are shorter.
const NAME_CHARS_MIN: u16 = 20;
const SELECTED: Style = Style::new().fg(Color::Black).bg(Color::Cyan);
const TITLES: Style = Style::new().fg(Color::Black).bg(Color::Green);

#[derive(Clone)]
pub struct Column {
    pub title: &'static str,
    pub width: u16,
    /// The minimum width of a terminal that shows this column.
    pub terminal_width_min: u16,
}

impl Column {
    /// Whether the column has bars: it has no title, and is not the last column, whose width is 0.
    fn is_bar(&self) -> bool {
        self.title.is_empty() && self.width > 0
    }
}

/// Returns the total width of the columns that are shown, with a blank after each.
fn used(widths: &[u16]) -> u16 {
    widths.iter().filter(|width| **width > 0).map(|width| width + 1).sum()
}

/// Makes a column. `width` is its width unless it has longer texts; the last column gets the remaining width.
pub const fn column(title: &'static str, width: u16, terminal_width_min: u16) -> Column {
    Column { title, width, terminal_width_min }
}

#[derive(Clone, Debug)]
pub enum Value {
    Joules(f64),
    /// Joules with their unit, for a table without titles.
    WithUnit(f64),
    Watts(Option<f64>),
    /// A fraction of the whole.
    Share(f64),
    /// A fraction of the whole, drawn as a bar.
    Bar(f64),
    Seconds(f64),
    Count(u64),
    /// The number of calls. 0 is shown as an empty cell: the calls of sampled functions are not counted.
    Calls(u64),
    Text(String),
}

impl Value {
    fn number(&self) -> f64 {
        match self {
            Value::Joules(number) | Value::WithUnit(number) | Value::Seconds(number) => *number,
            Value::Share(share) | Value::Bar(share) => *share,
            Value::Watts(watts) => watts.unwrap_or(f64::NEG_INFINITY),
            Value::Count(count) | Value::Calls(count) => *count as f64,
            Value::Text(_) => 0.0,
        }
    }

    /// Adds a value of the same column. Texts, joules with a unit, and counts other than calls stay as they are.
    fn add(&mut self, other: &Value) {
        match (self, other) {
            (Value::Joules(sum), Value::Joules(more))
            | (Value::Share(sum), Value::Share(more))
            | (Value::Bar(sum), Value::Bar(more))
            | (Value::Seconds(sum), Value::Seconds(more)) => *sum += more,
            (Value::Watts(sum), Value::Watts(more)) => *sum = sum.and_then(|sum| Some(sum + (*more)?)),
            (Value::Calls(sum), Value::Calls(more)) => *sum = sum.saturating_add(*more),
            _ => {}
        }
    }

    fn shown(&self) -> String {
        match self {
            Value::Joules(number) | Value::WithUnit(number) => joules(*number),
            Value::Watts(watts) => watts_text(*watts),
            Value::Share(share) => format!("{:.1}%", 100.0 * share),
            Value::Bar(share) => bar(*share, 1.0),
            Value::Seconds(seconds) => format!("{seconds:.2}"),
            Value::Calls(0) => String::new(),
            Value::Count(count) | Value::Calls(count) => count.to_string(),
            Value::Text(text) => printable(text),
        }
    }
}

/// Formats a power; `None` if it is not known.
pub fn watts_text(watts: Option<f64>) -> String {
    match watts.map(|watts| watts.max(0.0)) {
        None => "-".to_owned(),
        Some(watts) if watts < 99.95 => format!("{watts:.1}"),
        Some(watts) => format!("{watts:.0}"),
    }
}

pub struct Row {
    /// Identifies the row when the table is updated.
    pub key: String,
    /// One value for each column.
    pub values: Vec<Value>,
    /// Whether the row is shown as a warning.
    pub warns: bool,
}

impl Row {
    /// Returns the text in a column; empty if the column has numbers.
    fn text(&self, column: usize) -> &str {
        match self.values.get(column) {
            Some(Value::Text(text)) => text,
            _ => "",
        }
    }

    pub fn contains(&self, lower_case: &str) -> bool {
        self.values
            .iter()
            .any(|value| matches!(value, Value::Text(text) if text.to_lowercase().contains(lower_case)))
    }
}

/// The order of the rows of a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sort {
    pub column: usize,
    /// Whether the smallest value, or the last name, comes first.
    pub reversed: bool,
}

pub struct Table {
    pub columns: Cow<'static, [Column]>,
    pub rows: Vec<Row>,
    /// The text that is shown if there are no rows.
    pub nothing: &'static str,
}

#[derive(Clone, Copy)]
pub struct DrawOptions {
    pub area: Rect,
    /// The index of the first row that is shown.
    pub first: usize,
    pub selected: Option<usize>,
    /// How titles show the order; `None` leaves the titles out.
    pub sort: Option<Sort>,
    /// The number of digits of joules.
    pub digits: usize,
}

/// Sorts rows by name, or by value with the largest first.
pub fn sort_rows(rows: &mut [Row], sort: Sort) {
    let is_text = |row: &Row| matches!(row.values.get(sort.column), Some(Value::Text(_)));
    if rows.first().is_some_and(is_text) {
        rows.sort_by_cached_key(|row| row.values[sort.column].shown());
    } else {
        largest_first(rows, |row| row.values.get(sort.column).map_or(0.0, Value::number));
    }
    if sort.reversed {
        rows.reverse();
    }
}

impl Table {
    /// Combines into one row all rows whose shares are below `least_share` and whose joules are below `least_joules`.
    pub fn sum_small(&mut self, least_share: f64, least_joules: f64) {
        let is_small = |row: &Row| {
            let is_below = |value: &Value| match value {
                Value::Share(share) => *share < least_share,
                Value::Joules(joules) => *joules < least_joules,
                _ => true,
            };
            row.values.iter().all(is_below)
        };
        let small = self.rows.iter().filter(|row| is_small(row)).count();
        if small < 2 {
            return;
        }
        let (rows, large): (Vec<Row>, _) = std::mem::take(&mut self.rows).into_iter().partition(is_small);
        self.rows = large;
        let mut rows = rows.into_iter();
        let Some(mut sum) = rows.next() else { return };
        rows.for_each(|row| sum.values.iter_mut().zip(&row.values).for_each(|(sum, value)| sum.add(value)));
        sum.key.clear();
        if let Some(name) = sum.values.last_mut() {
            *name = Value::Text(format!("... and {small} more"));
        }
        self.rows.push(sum);
    }

    /// Returns the widths of the columns; 0 for one that is not shown. Bars are left out if names would have to be cut
    /// otherwise.
    fn widths(&self, width: u16) -> Vec<u16> {
        let all = self.widths_with(width, true);
        let has_bars =
            all.iter().zip(self.columns.iter()).any(|(width, column)| *width > 0 && column.is_bar());
        let is_cut = || all.last().is_some_and(|width| self.names(*width).1);
        if has_bars && is_cut() { self.widths_with(width, false) } else { all }
    }

    /// Texts other than the names of the rows get the width that they need, as far as that leaves room for the names. The names
    /// get the rest.
    fn widths_with(&self, width: u16, bars: bool) -> Vec<u16> {
        let last = self.columns.len() - 1;
        let is_shown = |column: &Column| width >= column.terminal_width_min && (bars || !column.is_bar());
        let widths = self.columns.iter().map(|column| if is_shown(column) { column.width } else { 0 });
        let mut widths: Vec<u16> = widths.collect();
        let taken = 1 + used(&widths[..last]);
        let longest_name = self.rows.iter().map(|row| row.text(last).chars().count()).max().unwrap_or(0);
        let mut room = width.saturating_sub(taken + longest_name.min(NAME_CHARS_MIN.into()) as u16);
        for (at, width) in widths.iter_mut().enumerate().take(last).filter(|(_, width)| **width > 0) {
            let text = |row: &Row| row.text(at).chars().count();
            let longest = self.rows.iter().map(text).max().unwrap_or(0).min(WORD_MAX.into()) as u16;
            let more = longest.saturating_sub(*width).min(room);
            (*width, room) = (*width + more, room - more);
        }
        widths[last] = width.saturating_sub(1 + used(&widths[..last]));
        widths
    }

    /// Draws the rows that fit into the area.
    pub fn draw(&self, picture: &mut Buffer, options: DrawOptions) {
        let DrawOptions { area, first, selected, sort, digits } = options;
        let mut y = area.y;
        let widths = self.widths(area.width);
        if let Some(sort) = sort {
            picture.set_style(Rect { height: 1, ..area }, TITLES);
            put(picture, area.x, y, &self.line(&widths, |at| title(&self.columns, at, sort)));
            y += 1;
        }
        if self.rows.is_empty() {
            put(picture, area.x + 1, y, &self.nothing.into());
        }
        let height = usize::from(area.bottom().saturating_sub(y));
        let shown = first.min(self.rows.len())..(first + height).min(self.rows.len());
        let name_column = self.columns.len() - 1;
        let mut texts: Vec<Vec<String>> =
            (0..name_column).map(|column| self.texts(column, shown.clone(), digits)).collect();
        texts.push(self.names(widths[name_column]).0.drain(shown.clone()).collect());
        for (at, row) in self.rows.iter().enumerate().take(shown.end).skip(shown.start) {
            let mut line = self.line(&widths, |column| texts[column][at - shown.start].clone());
            if row.warns {
                line.style = Style::new().fg(Color::Yellow);
            }
            let here = Rect { y, height: 1, ..area };
            put(picture, area.x, y, &line);
            if selected == Some(at) {
                picture.set_style(here, SELECTED);
            }
            y += 1;
        }
    }

    /// Returns the names of all rows in at most `width` characters, and whether one had to be cut.
    fn names(&self, width: u16) -> (Vec<String>, bool) {
        let width = usize::from(width);
        let texts = self.rows.iter().map(|row| row.values.last().map_or_else(String::new, Value::shown));
        let texts: Vec<String> = texts.collect();
        let parts: Vec<(usize, &str, &str)> = texts.iter().map(|text| indented(text)).collect();
        let indent = |(blanks, mark, _): &(usize, &str, &str)| {
            format!("{}{mark}", " ".repeat((*blanks).min(width / 2)))
        };
        let indents: Vec<String> = parts.iter().map(indent).collect();
        let names: Vec<&str> = parts.iter().map(|(.., name)| *name).collect();
        let (names, is_cut) = shortened_each(&names, |at| width.saturating_sub(indents[at].len()));
        (indents.iter().zip(names).map(|(indent, name)| format!("{indent}{name}")).collect(), is_cut)
    }

    /// Returns the texts of some rows in a column. Joules have the decimals of the largest figure in the whole column.
    fn texts(&self, column: usize, shown: Range<usize>, digits: usize) -> Vec<String> {
        let joules = self.rows.iter().map(|row| match row.values[column] {
            Value::Joules(joules) | Value::WithUnit(joules) => Some(joules),
            _ => None,
        });
        let values = &self.rows[shown.clone()];
        let Some(joules) = joules.collect::<Option<Vec<f64>>>() else {
            return values.iter().map(|row| row.values[column].shown()).collect();
        };
        let largest = joules.iter().copied().fold(0.0, f64::max);
        let texts = digits::column(&[&joules[shown], &[largest]].concat(), digits).into_iter();
        let has_unit = |row: &Row| matches!(row.values[column], Value::WithUnit(_));
        texts.zip(values).map(|(text, row)| if has_unit(row) { text + " J" } else { text }).collect()
    }

    /// Makes a line of the columns that are shown, with numbers aligned to the right, and texts and bars to the left.
    fn line(&self, widths: &[u16], cell: impl Fn(usize) -> String) -> Line<'static> {
        let mut line = String::from(" ");
        let name = self.columns.len() - 1;
        for at in (0..name).filter(|at| widths[*at] > 0) {
            let (text, width) = (cell(at), usize::from(widths[at]));
            line += &match self.rows.first().is_some_and(|row| is_left(&row.values[at])) {
                true => format!("{:<width$} ", word(&text, width)),
                false => format!("{text:>width$} "),
            };
        }
        line += &cell(name);
        Line::from(Span::raw(line))
    }
}

fn is_left(value: &Value) -> bool {
    matches!(value, Value::Text(_) | Value::Bar(_))
}

/// Shortens a text that is not the row's name. A process keeps its number, because others may have the same program: "12422
/// python3.13" instead of "Process 12422 (python3.13)".
fn word(text: &str, width: usize) -> String {
    let process = || text.strip_prefix("Process ")?.strip_suffix(')')?.split_once(" (");
    let Some((number, program)) = process().filter(|_| text.chars().count() > width) else {
        return short(text, width);
    };
    let text = format!("{number} {program}");
    if text.chars().count() <= width {
        return text;
    }
    text.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

/// Splits a row's name into the number of blanks before it, the mark that it has in a tree, and the rest.
fn indented(text: &str) -> (usize, &str, &str) {
    let shown = text.trim_start_matches(' ');
    let name = shown.strip_prefix("- ").or_else(|| shown.strip_prefix("+ ")).unwrap_or(shown);
    (text.len() - shown.len(), &shown[..shown.len() - name.len()], name)
}

fn title(columns: &[Column], at: usize, sort: Sort) -> String {
    let mark = match (sort.column == at, sort.reversed) {
        (false, _) => "",
        (true, false) => "▼",
        (true, true) => "▲",
    };
    format!("{}{mark}", columns[at].title)
}

/// Returns the style of titles.
pub const fn heading() -> Style {
    TITLES.add_modifier(Modifier::BOLD)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::terminal::paint::{empty, framed};

    const COLUMNS: &[Column] = &[column("JOULES", 8, 0), column("CALLS", 5, 40), column("FUNCTION", 0, 0)];

    fn table(rows: &[(f64, u64, &str)]) -> Table {
        let rows = rows.iter().map(|(joules, calls, name)| Row {
            key: (*name).to_owned(),
            values: vec![Value::Joules(*joules), Value::Count(*calls), Value::Text((*name).to_owned())],
            warns: false,
        });
        Table { columns: COLUMNS.into(), rows: rows.collect(), nothing: "no function" }
    }

    fn drawn(table: &Table, width: u16, sort: Sort) -> String {
        let mut picture = empty(width, 4);
        let area = *picture.area();
        table.draw(
            &mut picture,
            DrawOptions { area, first: 0, selected: Some(1), sort: Some(sort), digits: digits::MEASURED },
        );
        framed(&picture)
    }

    #[test]
    fn columns_are_left_out_without_space_and_names_are_shortened_in_the_middle() {
        let mut table = table(&[(1.5, 7, "a"), (2000.0, 12, "a_function_with_a_long_name(int, char)")]);
        let sort = Sort::default();
        sort_rows(&mut table.rows, sort);
        expect_test::expect![[r#"
            |  JOULES▼ CALLS FUNCTION
            |     2000    12 a_function_with_a_long_name
            |        2     7 a
            |
        "#]]
        .assert_eq(&drawn(&table, 46, sort));
        expect_test::expect![[r#"
            |  JOULES▼ FUNCTION
            |     2000 a_functio…name
            |        2 a
            |
        "#]]
        .assert_eq(&drawn(&table, 24, sort));
        drawn(&table, 3, sort);
        drawn(&self::table(&[]), 0, sort);
    }

    #[test]
    fn names_follow_one_rule_and_get_the_room_of_the_bars_if_they_need_it() {
        const COLUMNS: &[Column] = &[column("J", 6, 0), column("", 10, 40), column("FUNCTION", 0, 0)];
        let drawn = |names: &[&str]| {
            let rows = names.iter().map(|name| Row {
                key: (*name).to_owned(),
                values: vec![Value::Joules(2.0), Value::Bar(0.2), Value::Text((*name).to_owned())],
                warns: false,
            });
            let table = Table { columns: COLUMNS.into(), rows: rows.collect(), nothing: "" };
            self::drawn(&table, 48, Sort::default())
        };
        let short =
            drawn(&["- LAMMPS_NS::AtomVec::pack_comm(int)", "    LAMMPS_NS::AtomVec::unpack_reverse(int)"]);
        expect_test::expect![[r#"
            |     J▼            FUNCTION
            |  2.000 ████▊      - AtomVec::pack_comm
            |  2.000 ████▊          AtomVec::unpack_reverse
            |
        "#]]
        .assert_eq(&short);
        expect_test::expect![[r#"
            |     J▼ FUNCTION
            |  2.000 NPairHalfBinAtomonlyNewton::build
            |  2.000 AtomVec::pack_comm
            |
        "#]]
        .assert_eq(&drawn(&[
            "LAMMPS_NS::NPairHalfBinAtomonlyNewton::build()",
            "LAMMPS_NS::AtomVec::pack_comm()",
        ]));
    }

    #[test]
    fn the_mark_of_a_deep_call_path_is_kept() {
        let drawn = drawn(&table(&[(2.0, 1, &format!("{}- work", " ".repeat(80)))]), 46, Sort::default());
        assert!(drawn.contains("  - work\n"), "{drawn}");
    }

    #[test]
    fn names_are_sorted_as_names_and_numbers_from_the_largest() {
        let mut rows = table(&[(1.0, 7, "b"), (2.0, 9, "c"), (3.0, 8, "a")]).rows;
        let mut names = |column, reversed| {
            sort_rows(&mut rows, Sort { column, reversed });
            rows.iter().map(|row| row.key.as_str()).collect::<String>()
        };
        assert_eq!(
            [names(0, false), names(1, false), names(1, true), names(2, false)],
            ["acb", "cab", "bac", "abc"]
        );
    }
}
