//! Lines and columns on a screen of a certain width.

use super::names;
use ampere_model::text::{printable, short, wrapped};
use std::collections::HashSet;

/// The place where a text is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Screen {
    /// The number of characters in a line.
    pub width: usize,
    pub colour: bool,
    /// The maximum number of the first lines of a result.
    pub lines: usize,
    /// The maximum number of rows of the tables below them.
    pub rows: usize,
}

/// The width without a terminal.
pub const WIDTH: usize = 80;
/// The widths of terminals for which lines are made. Other widths are replaced by the nearest of these.
const WIDTHS: std::ops::RangeInclusive<usize> = 60..=200;
/// The maximum number of the first lines without a terminal.
pub const LINES: usize = 26;
/// The usual maximum number of rows of a table.
pub const ROWS: usize = 15;
/// The number of a terminal's lines that are left to the command and to the next prompt, and the limits for all first lines.
const OTHER_LINES: usize = 4;
const LINES_OF_TERMINALS: std::ops::RangeInclusive<usize> = 16..=50;

impl Screen {
    /// A file, which gets no colours.
    pub const FILE: Screen = Screen { width: WIDTH, colour: false, lines: LINES, rows: ROWS };

    /// Returns a terminal of this width.
    pub fn new(width: usize, colour: bool) -> Screen {
        Screen { width: width.clamp(*WIDTHS.start(), *WIDTHS.end()), colour, lines: LINES, rows: ROWS }
    }

    /// Returns the screen of a terminal with this many rows.
    pub fn with_rows(self, rows: usize) -> Screen {
        self.with_lines(rows.saturating_sub(OTHER_LINES))
    }

    /// Returns the screen with room for this many of the first lines, within limits.
    pub fn with_lines(self, lines: usize) -> Screen {
        Screen { lines: lines.clamp(*LINES_OF_TERMINALS.start(), *LINES_OF_TERMINALS.end()), ..self }
    }
}

/// The style of a line on a screen with colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    Plain,
    Title,
    Hint,
    /// Something failed, or is missing.
    Bad,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    pub style: Style,
    pub text: String,
}

impl Line {
    pub fn plain(text: impl Into<String>) -> Line {
        Line { style: Style::Plain, text: text.into() }
    }

    pub fn empty() -> Line {
        Line::plain("")
    }

    /// Returns the text with terminal codes if the screen has colours.
    pub fn shown(&self, screen: Screen) -> String {
        let text = printable(self.text.trim_end());
        let code = match self.style {
            _ if !screen.colour || text.is_empty() => return text,
            Style::Plain => return text,
            Style::Title => "1",
            Style::Hint => "36",
            Style::Bad => "1;31",
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }
}

/// The width of a label at the start of a line.
pub const LABEL: usize = 8;

/// Returns a text after its label, in as many lines as it needs.
pub fn labelled(label: &str, text: &str, style: Style, screen: Screen) -> Vec<Line> {
    let labels = std::iter::once(label).chain(std::iter::repeat(""));
    let line = |(label, text)| Line { style, text: format!("{label:<LABEL$}{text}") };
    labels.zip(wrapped(text, screen.width - LABEL)).map(line).collect()
}

/// Puts parts into lines with spaces between them; parts that do not fit start another line.
pub fn parts(label: &str, parts: &[String], screen: Screen) -> Vec<Line> {
    const SEPARATOR: &str = "   ";
    let mut lines: Vec<String> = Vec::new();
    for part in parts.iter().filter(|part| !part.is_empty()) {
        let length = |text: &str| text.chars().count();
        let fits = |line: &&mut String| LABEL + length(line) + SEPARATOR.len() + length(part) <= screen.width;
        match lines.last_mut().filter(fits) {
            Some(line) => *line = format!("{line}{SEPARATOR}{part}"),
            None => lines.push(part.clone()),
        }
    }
    let labels = std::iter::once(label).chain(std::iter::repeat(""));
    let long = |(label, text): (&str, String)| labelled(label, &text, Style::Plain, screen);
    let short = |(label, text): (&str, String)| vec![Line::plain(format!("{label:<LABEL$}{text}"))];
    let fits = |text: &str| LABEL + text.chars().count() <= screen.width;
    labels.zip(lines).flat_map(|of| if fits(&of.1) { short(of) } else { long(of) }).collect()
}

/// The text between two columns.
const COLUMN_GAP: &str = "  ";

/// A column of a table, whose cells are as wide as the widest of them.
#[derive(Clone, Debug, Default)]
pub struct Column {
    pub head: String,
    pub cells: Vec<String>,
    /// If names need the space, the column with the largest number is removed first; 0: it is never removed.
    pub dispensable: u8,
    pub is_left: bool,
}

impl Column {
    pub fn new(head: &str, cells: Vec<String>) -> Column {
        Column { head: head.to_owned(), cells, ..Column::default() }
    }

    pub fn dispensable(self, dispensable: u8) -> Column {
        Column { dispensable, ..self }
    }

    pub fn width(&self) -> usize {
        let cells = self.cells.iter().map(|cell| cell.chars().count()).max().unwrap_or(0);
        cells.max(self.head.chars().count())
    }

    /// Whether the column has no value in any row, and is therefore left out.
    fn is_empty(&self) -> bool {
        self.cells.iter().all(|cell| cell.is_empty() || cell == "-")
    }

    fn text(&self, cell: &str) -> String {
        let width = self.width();
        if self.is_left { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
    }
}

/// The names of the rows of a table, by their kind.
#[derive(Clone, Debug)]
pub enum Names<'a> {
    Texts(Vec<String>),
    /// Functions, which have shorter forms.
    Functions(Vec<&'a str>),
    /// Call paths, each after the name of a process, if there are several.
    Paths(Vec<(String, Vec<&'a str>)>),
}

/// A table with a name in each row, which has columns before and after it.
#[derive(Clone, Debug)]
pub struct Table<'a> {
    pub before: Vec<Column>,
    pub head: String,
    pub names: Names<'a>,
    pub after: Vec<Column>,
}

/// A table as it is on the screen.
pub struct Shown {
    /// The head and the rows.
    pub lines: Vec<Line>,
    /// The heads of the columns, and of the names.
    pub heads: Vec<String>,
    pub names: Vec<String>,
}

/// The minimum width of names of functions and call paths, if columns can be removed for it.
const NAME_ROOM_MIN: usize = 16;
const PATH_ROOM_MIN: usize = 24;
/// Columns can be removed until call paths that differ look different, or have this width.
const DIFFERENT_PATHS_ROOM: usize = 56;

impl Names<'_> {
    /// Returns the names in at most `room` characters, and whether they need more room to be readable.
    fn fitted(&self, room: usize) -> (Vec<String>, bool) {
        let is_short = |names: &[String]| names.iter().all(|name| name.chars().count() < room);
        match self {
            Names::Texts(texts) => {
                let is_cut = texts.iter().any(|text| text.chars().count() > room);
                (texts.iter().map(|text| short(text, room)).collect(), is_cut)
            }
            Names::Functions(functions) => {
                let (names, is_cut) = names::shortened(functions, room);
                let is_narrow = is_cut || (room < NAME_ROOM_MIN && !is_short(&names));
                (names, is_narrow)
            }
            Names::Paths(paths) => {
                let all: Vec<&[&str]> = paths.iter().map(|(_, regions)| regions.as_slice()).collect();
                let widest =
                    |groups: &[String]| groups.iter().map(|of| of.chars().count()).max().unwrap_or(0);
                let groups_in = |room| paths.iter().map(|(of, _)| short(of, room)).collect::<Vec<String>>();
                let in_room = |room: usize| -> Vec<String> {
                    let groups = groups_in(room * 2 / 3);
                    let fitting = names::paths(&all, room - widest(&groups));
                    groups.into_iter().zip(fitting).map(|(of, path)| of + &path).collect()
                };
                let names = in_room(room);
                let room_min = PATH_ROOM_MIN + widest(&groups_in(usize::MAX / 2));
                let different = |names: &[String]| names.iter().collect::<HashSet<_>>().len();
                let is_narrow = (room < room_min && names != in_room(room_min))
                    || (room < DIFFERENT_PATHS_ROOM
                        && different(&names) < different(&in_room(DIFFERENT_PATHS_ROOM)));
                (names, is_narrow)
            }
        }
    }
}

impl Table<'_> {
    /// Returns the head and the rows.
    pub fn lines(self, screen: Screen) -> Vec<Line> {
        self.fitted(screen).lines
    }

    /// Lays out the table, without the columns that leave too little room for the names.
    pub fn fitted(mut self, screen: Screen) -> Shown {
        self.before.retain(|column| column.dispensable == 0 || !column.is_empty());
        self.after.retain(|column| column.dispensable == 0 || !column.is_empty());
        loop {
            let room = screen.width.saturating_sub(self.columns_width()).max(4);
            let (names, is_narrow) = self.names.fitted(room);
            if !(is_narrow && self.drop_a_column()) {
                let columns = self.before.iter().chain(&self.after).map(|column| &column.head);
                let heads = columns.chain([&self.head]).cloned().collect();
                return Shown { lines: self.with_names(&names), heads, names };
            }
        }
    }

    fn columns_width(&self) -> usize {
        self.before.iter().chain(&self.after).map(|column| column.width() + COLUMN_GAP.len()).sum()
    }

    fn drop_a_column(&mut self) -> bool {
        let columns = self.before.iter().chain(&self.after);
        let most = columns.map(|column| column.dispensable).max().unwrap_or(0);
        for columns in [&mut self.before, &mut self.after] {
            columns.retain(|column| most == 0 || column.dispensable < most);
        }
        most > 0
    }

    fn with_names(&self, names: &[String]) -> Vec<Line> {
        let row = |name: &str, cell: &dyn Fn(&Column) -> String| {
            let before = self.before.iter().map(|column| column.text(&cell(column)));
            let after = self.after.iter().map(|column| column.text(&cell(column)));
            before.chain([name.to_owned()]).chain(after).collect::<Vec<_>>().join(COLUMN_GAP)
        };
        let widest = names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
        let width = widest.max(self.head.chars().count());
        let head = row(&format!("{:<width$}", self.head), &|column| column.head.clone());
        let rows = names.iter().enumerate().map(|(at, name)| {
            let cell = |column: &Column| column.cells.get(at).cloned().unwrap_or_default();
            Line::plain(row(&format!("{name:<width$}"), &cell))
        });
        std::iter::once(Line { style: Style::Title, text: head }).chain(rows).collect()
    }
}
