//! The interactive part of `ampere top`: the current view, the actions of keys, and the whole picture.

use super::figures::{self, Figures, digits};
use super::keys::Key;
use super::paint::{empty, put};
use super::table::{DrawOptions, Sort, Table, heading, sort_rows};
use super::{header, tree};
use ampere_model::text::{printable, short, wrapped};
use ampere_report::first::WAITING_PART_MIN;
use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_core::style::{Color, Style, Stylize};
use ratatui_core::text::{Line, Span};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    Functions,
    Ranks,
    Kernels,
    Devices,
    Nodes,
    Tree,
    Python,
}

impl View {
    const ALL: [View; 7] =
        [View::Functions, View::Ranks, View::Kernels, View::Devices, View::Nodes, View::Tree, View::Python];

    fn name(self) -> &'static str {
        ["functions", "ranks", "kernels", "devices", "nodes", "tree", "python"][self as usize]
    }

    /// Whether the view shows figures of call paths, which only the page has.
    pub fn is_of_page(self) -> bool {
        matches!(self, View::Tree | View::Python)
    }

    /// Returns the column by which a view is sorted at first: the rank's number in the view of ranks, otherwise the joules.
    fn column(self) -> usize {
        usize::from(self == View::Ranks)
    }
}

/// The minimum width of a screen on which the names of all views are shown.
const ALL_VIEWS: u16 = 76;

/// If call paths are older than the other figures by more than this, their time is shown.
const OTHER_MOMENT_SECONDS: f64 = 0.05;

/// A smaller fraction of the whole is shown as 0.0%. In tables of joules, such rows are combined into one, except those that
/// have a large fraction of all joules, including static ones.
const SHARE_MIN: f64 = 0.0005;

/// The text that is shown instead of rows until a key is pressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Words {
    Help,
    Notes,
    /// The first lines of the result, when the run has ended.
    Result,
}

/// The kind of text that the user is typing into the last line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Prompt {
    Search,
    Filter,
}

/// What a key requests from the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    Nothing,
    /// Request other figures, because the view or the rank has changed.
    Figures,
    /// Stop until the shell continues the program.
    Suspend,
    Quit,
}

pub struct Viewer {
    pub figures: Figures,
    view: View,
    /// Whether a key was pressed. Until then the view follows the run.
    is_used: bool,
    /// The order of rows in each view.
    sorts: [Sort; 7],
    open: tree::Open,
    filter: String,
    search: String,
    prompt: Option<Prompt>,
    words: Option<Words>,
    /// The first lines of the result; empty until the run has ended.
    result: Vec<String>,
    is_paused: bool,
    whole_job: bool,
    /// The rank whose call paths are shown; `None` for all.
    rank: Option<String>,
    /// Why the last key did nothing.
    notice: Option<String>,
    list: List,
}

/// The rows of a view, in the order in which they are shown.
struct List {
    table: Table,
    cursor: usize,
    /// The index of the first visible row, and the number of visible rows.
    first: usize,
    height: usize,
}

impl List {
    /// Replaces the rows. The cursor stays on its row if that still exists, but on the first line if it was there.
    fn replace(&mut self, table: Table) {
        let old = self.table.rows.get(self.cursor).map(|row| row.key.clone());
        self.table = table;
        let again = old
            .filter(|_| self.cursor > 0)
            .and_then(|key| self.table.rows.iter().position(|row| row.key == key));
        self.go_to(again.unwrap_or(self.cursor));
    }

    fn go_to(&mut self, row: usize) {
        self.cursor = row.min(self.table.rows.len().saturating_sub(1));
        let last_first = self.table.rows.len().saturating_sub(self.height);
        self.first =
            self.first.min(self.cursor).min(last_first).max((self.cursor + 1).saturating_sub(self.height));
    }

    fn key(&self) -> Option<&str> {
        self.table.rows.get(self.cursor).map(|row| row.key.as_str())
    }
}

impl Default for Viewer {
    fn default() -> Viewer {
        let table = figures::functions(&Figures::default(), true);
        Viewer {
            figures: Figures::default(),
            view: View::Functions,
            is_used: false,
            sorts: View::ALL.map(|view| Sort { column: view.column(), reversed: false }),
            open: tree::Open::new(),
            filter: String::new(),
            search: String::new(),
            prompt: None,
            words: None,
            result: Vec::new(),
            is_paused: false,
            whole_job: true,
            rank: None,
            notice: None,
            list: List { table, cursor: 0, first: 0, height: 1 },
        }
    }
}

impl Viewer {
    pub fn view(&self) -> View {
        self.view
    }

    /// Returns the index of the rank whose call paths are shown, among the ranks that the collector knows.
    pub fn rank(&self) -> Option<usize> {
        let rank = self.rank.as_ref()?;
        self.figures.rank_choices().iter().position(|known| known == rank)
    }

    /// Whether figures of the page are shown, in addition to those of the snapshot.
    pub fn needs_page(&self) -> bool {
        self.view.is_of_page() || self.words == Some(Words::Notes)
    }

    /// Shows the first lines of the result of a run that has ended. If they replace earlier ones, the view does not change.
    pub fn show_result(&mut self, lines: Vec<String>) {
        if !self.has_result() {
            self.words = Some(Words::Result);
        }
        self.result = lines;
    }

    pub fn has_result(&self) -> bool {
        !self.result.is_empty()
    }

    pub fn is_paused(&self) -> bool {
        self.is_paused
    }

    /// Makes the rows again after new figures have arrived or another view was chosen.
    pub fn refresh(&mut self) {
        // As in the live table and on the page, kernels come before the functions that wait for them.
        if !self.is_used && self.figures.has_kernels() {
            self.view = View::Kernels;
        }
        let (sort, filter) = (self.sorts[self.view as usize], self.filter.to_lowercase());
        let mut table = match self.view {
            View::Functions => figures::functions(&self.figures, self.whole_job),
            View::Ranks => figures::ranks(&self.figures, self.whole_job),
            View::Kernels => figures::kernels(&self.figures, self.whole_job),
            View::Devices => figures::devices(&self.figures),
            View::Nodes => figures::nodes(&self.figures),
            View::Tree => {
                // A page that was made before the rank was known has no call paths of that rank.
                let is_of_others = self.rank.is_some() && self.rank().is_none();
                let page = self.figures.page.as_ref().filter(|_| !is_of_others);
                let shown = tree::Shown { open: &mut self.open, sort, filter: &filter };
                let nothing =
                    if is_of_others { "no call paths of this rank yet" } else { tree::NO_CALL_PATHS };
                Table { nothing, ..tree::tree(page, shown) }
            }
            View::Python => figures::python(&self.figures),
        };
        if self.view != View::Tree {
            if !filter.is_empty() {
                table.rows.retain(|row| row.contains(&filter));
                table.nothing = "no row contains this text: Escape shows all";
            }
            sort_rows(&mut table.rows, sort);
            let is_all = filter.is_empty() && self.search.is_empty();
            let sums_small = matches!(self.view, View::Functions | View::Kernels | View::Python);
            if is_all && sums_small && sort == Sort::default() {
                table.sum_small(SHARE_MIN, WAITING_PART_MIN * self.figures.joules());
            }
        }
        self.list.replace(table);
    }

    pub fn press(&mut self, key: Key) -> Asked {
        (self.is_used, self.notice) = (true, None);
        if key == Key::Interrupt {
            return Asked::Quit;
        }
        if key == Key::Suspend {
            return Asked::Suspend;
        }
        if let Some(prompt) = self.prompt {
            self.type_into(prompt, key);
            return Asked::Nothing;
        }
        match self.words.take() {
            // While the result is shown, keys that quit or choose a view take effect at once. Over other texts, a key only
            // closes the text.
            None | Some(Words::Result) => {}
            Some(_) => return Asked::Nothing,
        }
        if !self.moves(key) {
            return self.command(key);
        }
        Asked::Nothing
    }

    fn moves(&mut self, key: Key) -> bool {
        let list = &mut self.list;
        let page = list.height.max(1);
        let to = match key {
            Key::Up | Key::Char('k') => list.cursor.saturating_sub(1),
            Key::Down | Key::Char('j') => list.cursor + 1,
            Key::PageUp => list.cursor.saturating_sub(page),
            Key::PageDown => list.cursor + page,
            Key::Home | Key::Char('g') => 0,
            Key::End | Key::Char('G') => usize::MAX,
            _ => return false,
        };
        list.go_to(to);
        true
    }

    fn command(&mut self, key: Key) -> Asked {
        match key {
            Key::Char('q') | Key::Function(10) => return Asked::Quit,
            Key::Char('h' | '?') | Key::Function(1) => self.words = Some(Words::Help),
            Key::Char('N') => {
                self.words = Some(Words::Notes);
                return Asked::Figures;
            }
            Key::Char('e') if self.has_result() => self.words = Some(Words::Result),
            Key::Char('/') | Key::Function(3) => self.begin_search(),
            Key::Char('\\') | Key::Function(4) => self.prompt = Some(Prompt::Filter),
            Key::Char('n') => self.find(1),
            Key::Char('t') | Key::Function(5) => {
                return self.show(if self.view == View::Tree { View::Functions } else { View::Tree });
            }
            Key::Char('>' | '.') | Key::Function(6) => self.sort_by_next(1),
            Key::Char('<' | ',') => self.sort_by_next(self.list.table.columns.len() - 1),
            Key::Char('I') => {
                let sort = &mut self.sorts[self.view as usize];
                sort.reversed = !sort.reversed;
            }
            Key::Char('a') => self.whole_job = !self.whole_job,
            Key::Char(' ') => self.is_paused = !self.is_paused,
            Key::Char('+') => self.toggle(Some(true)),
            Key::Char('-') => self.toggle(Some(false)),
            Key::Char('r') if self.view == View::Tree => return self.next_rank(1),
            Key::Char('R') if self.view == View::Tree => return self.next_rank(-1),
            Key::Enter if self.view == View::Ranks => return self.show_tree_of_rank(),
            Key::Enter => self.toggle(None),
            Key::Escape => {
                self.filter.clear();
                self.search.clear();
            }
            Key::Tab => return self.show_next(1),
            Key::BackTab => return self.show_next(-1),
            Key::Char(digit @ '1'..='7') => {
                let view = View::ALL[digit as usize - '1' as usize];
                if self.views().contains(&view) {
                    return self.show(view);
                }
            }
            _ => {}
        }
        self.refresh();
        Asked::Nothing
    }

    fn show(&mut self, view: View) -> Asked {
        self.view = view;
        (self.list.cursor, self.list.first) = (0, 0);
        self.refresh();
        Asked::Figures
    }

    /// Returns the views of the run. Only Python programs have the view of Python functions, and only runs with GPUs that of kernels.
    fn views(&self) -> Vec<View> {
        let has_rows = |view: &View| match view {
            View::Python => self.figures.has_python(),
            View::Kernels => self.figures.has_gpus(),
            _ => true,
        };
        View::ALL.into_iter().filter(|view| *view == self.view || has_rows(view)).collect()
    }

    fn show_next(&mut self, step: isize) -> Asked {
        let views = self.views();
        let at = views.iter().position(|view| *view == self.view).unwrap_or_default() as isize;
        self.show(views[(at + step).rem_euclid(views.len() as isize) as usize])
    }

    /// Selects the next or previous entry: all ranks together, then each rank in numerical order.
    fn next_rank(&mut self, step: isize) -> Asked {
        let mut ranks: Vec<&String> = self.figures.rank_choices().iter().collect();
        ranks.sort_by_key(|rank| (rank.len(), *rank));
        let at = ranks.iter().position(|rank| Some(*rank) == self.rank.as_ref()).map_or(0, |at| at + 1);
        let next = (at as isize + step).rem_euclid(ranks.len() as isize + 1) as usize;
        self.rank = next.checked_sub(1).map(|at| ranks[at].clone());
        tree::open_all_devices(&mut self.open);
        self.refresh();
        Asked::Figures
    }

    /// Shows the call paths of the rank under the cursor, if the rank is on the node of the collector that answers. They may
    /// come later, because the collector may be busy, or may have sent its list of ranks before this rank started.
    fn show_tree_of_rank(&mut self) -> Asked {
        let Some(row) = self.list.key().map(str::to_owned) else { return Asked::Nothing };
        let node = &self.figures.snapshot.node;
        let rank = match self.figures.job().filter(|_| self.whole_job) {
            None => Some(row.as_str()),
            Some(_) => row.strip_prefix(node.as_str()).and_then(|rank| rank.strip_prefix(' ')),
        };
        let Some(rank) = rank else {
            self.notice = Some(format!(" Only call paths of ranks on {} are here.", short(node, 24)));
            return Asked::Nothing;
        };
        self.rank = Some(rank.to_owned());
        tree::open_all_devices(&mut self.open);
        self.show(View::Tree)
    }

    /// Sorts by the next visible column.
    fn sort_by_next(&mut self, step: usize) {
        let columns = &self.list.table.columns;
        let sort = &mut self.sorts[self.view as usize];
        let mut next = |_: &usize| {
            sort.column = (sort.column + step) % columns.len();
            !columns[sort.column].title.is_empty()
        };
        let _ = (0..columns.len()).find(|at| next(at));
        sort.reversed = false;
    }

    fn toggle(&mut self, to: Option<bool>) {
        if self.view == View::Tree
            && let Some(key) = self.list.key()
        {
            let key = key.to_owned();
            tree::toggle(&mut self.open, &key, to);
        }
    }

    fn begin_search(&mut self) {
        self.search.clear();
        self.prompt = Some(Prompt::Search);
    }

    fn type_into(&mut self, prompt: Prompt, key: Key) {
        let words = if prompt == Prompt::Search { &mut self.search } else { &mut self.filter };
        match key {
            Key::Char(c) => words.push(c),
            Key::Backspace => drop(words.pop()),
            Key::Function(3) if prompt == Prompt::Search => return self.find(1),
            Key::Enter => self.prompt = None,
            Key::Escape => {
                words.clear();
                self.prompt = None;
            }
            // An arrow ends the input, and moves the cursor.
            _ => {
                self.prompt = None;
                self.moves(key);
            }
        }
        self.refresh();
        if prompt == Prompt::Search && matches!(key, Key::Char(_)) {
            self.find(0);
        }
    }

    /// Moves to the next row that contains the text, starting `from` rows below the cursor.
    fn find(&mut self, from: usize) {
        let words = self.search.to_lowercase();
        if words.is_empty() {
            return;
        }
        // In a tree, rows below closed call paths are found as well, and opened.
        if self.view == View::Tree {
            let mut all = tree::Open::new();
            let sort = self.sorts[View::Tree as usize];
            let shown = tree::Shown { open: &mut all, sort, filter: &words };
            let found = tree::tree(self.figures.page.as_ref(), shown);
            let has_words = |row: &&super::table::Row| row.contains(&words);
            found.rows.iter().filter(has_words).for_each(|row| tree::open_above(&mut self.open, &row.key));
            self.refresh();
        }
        let (rows, cursor) = (&self.list.table.rows, self.list.cursor);
        let places = (0..rows.len()).map(|step| (cursor + from + step) % rows.len());
        if let Some(found) = places.into_iter().find(|at| rows[*at].contains(&words)) {
            self.list.go_to(found);
        }
    }

    /// Draws the whole picture. `problem` is the reason if the figures are old.
    pub fn draw(&mut self, (width, height): (u16, u16), problem: Option<&str>) -> Buffer {
        let mut picture = empty(width, height);
        // There is no header above the final figures, because it is from another moment, nor above the help, which needs the
        // space.
        let mut lines = Vec::new();
        if !matches!(self.words, Some(Words::Result | Words::Help)) {
            lines = header::lines(&self.figures, width, height);
            lines.push(self.tabs(width));
        }
        lines.extend(problem.map(|why| Line::from(format!(" {}", printable(why))).red().bold()));
        for (line, y) in lines.iter().zip(0..) {
            put(&mut picture, 0, y, line);
        }
        let y = (lines.len() as u16).min(height);
        let area = Rect::new(0, y, width, height.saturating_sub(y + 1));
        if let Some(words) = self.words {
            self.draw_words(words, &mut picture, area);
        } else {
            self.list.height = usize::from(area.height.saturating_sub(1));
            self.list.go_to(self.list.cursor);
            let List { table, cursor, first, .. } = &self.list;
            let sort = Some(self.sorts[self.view as usize]);
            let digits = digits(&self.figures.snapshot);
            table.draw(
                &mut picture,
                DrawOptions { area, first: *first, selected: Some(*cursor), sort, digits },
            );
        }
        if y < height {
            put(&mut picture, 0, height - 1, &self.last_line(width));
        }
        picture
    }

    /// Returns the line with the names of the views and the current choices.
    fn tabs(&self, width: u16) -> Line<'static> {
        let mut spans = vec![Span::raw(" ")];
        let shown = |view: View| width >= ALL_VIEWS || view == self.view;
        for view in self.views().into_iter().filter(|view| shown(*view)) {
            let name = match view {
                View::Ranks if self.figures.has_only_processes() => "processes",
                view => view.name(),
            };
            let text = format!("{} {name}", view as usize + 1);
            spans.push(if view == self.view { text.bold().reversed() } else { Span::raw(text) });
            spans.push(Span::raw("  "));
        }
        if self.is_paused {
            spans.push("paused  ".yellow().bold());
        }
        if self.figures.job().is_some() && (!self.whole_job || self.view == View::Python) {
            spans.push(format!("only {}  ", short(&self.figures.snapshot.node, 24)).yellow());
        }
        if let Some(rank) = self.rank.as_ref().filter(|_| self.view == View::Tree) {
            let what = if self.figures.has_only_processes() { "process" } else { "rank" };
            spans.push(format!("{what} {}  ", short(rank, 24)).yellow());
        }
        if !self.filter.is_empty() {
            spans.push(format!("only with “{}”  ", short(&self.filter, 24)).yellow());
        }
        if self.view.is_of_page()
            && let Some(page) = &self.figures.page
            && (page.run.seconds - self.figures.snapshot.seconds).abs() > OTHER_MOMENT_SECONDS
        {
            spans.push(format!("call paths at {:.1} s  ", page.run.seconds).yellow());
        }
        let notes = &self.figures.snapshot.notes;
        if notes.len() > header::NOTES_MAX || notes.iter().any(|note| note.chars().count() >= width.into()) {
            spans.push("N notes in full".yellow());
        }
        Line::from(spans)
    }

    fn draw_words(&self, words: Words, picture: &mut Buffer, area: Rect) {
        let (first, lines) = match words {
            Words::Help => {
                let views: Vec<&str> = self.views().into_iter().map(View::name).collect();
                let views = [("a number, Tab", views.join(", "))];
                let keys = HELP.iter().map(|(key, words)| (*key, (*words).to_owned()));
                let lines = views.into_iter().chain(keys).map(|(key, words)| format!("  {key:<18} {words}"));
                (Some(" Keys, as in htop; any key goes back"), lines.collect())
            }
            Words::Notes => {
                let notes = self.figures.notes();
                let mut lines: Vec<String> =
                    notes.flat_map(|note| item(&printable(note), area.width)).collect();
                if lines.is_empty() {
                    lines.push(" There are none.".to_owned());
                }
                (Some(" Notes; any key goes back"), lines)
            }
            // There is no title, because the result needs the space; the last line has its keys.
            Words::Result => (None, self.result.iter().map(|line| format!(" {line}")).collect()),
        };
        if first.is_some() {
            picture.set_style(Rect { height: area.height.min(1), ..area }, heading());
        }
        for (line, y) in first.map(str::to_owned).into_iter().chain(lines).zip(area.y..area.bottom()) {
            put(picture, 0, y, &line.into());
        }
    }

    fn last_line(&self, width: u16) -> Line<'static> {
        match self.prompt {
            Some(Prompt::Search) => Line::from(format!(" Search: {}_   F3 next  Enter  Escape", self.search)),
            Some(Prompt::Filter) => Line::from(format!(" Filter: {}_   Enter  Escape", self.filter)),
            None if self.words == Some(Words::Result) => Line::from(KEYS_OF_RESULT).style(heading()),
            None => {
                self.notice.as_ref().map_or_else(|| keys_line(width), |why| Line::from(why.clone()).yellow())
            }
        }
    }
}

/// The number of lines that are shown in addition to the result's: one about the end of the run, and one with the keys.
pub const LINES_BESIDE_RESULT: u16 = 2;
const KEYS_OF_RESULT: &str = " The result; q quits, another key shows the last live figures, e this";

/// Returns the last line, with the most important keys first.
fn keys_line(width: u16) -> Line<'static> {
    const KEYS: [(&str, &str); 9] = [
        ("F1", "Help"),
        ("F3", "Search"),
        ("F4", "Filter"),
        ("F5", "Tree"),
        ("F6", "Sort"),
        ("F10", "Quit"),
        ("Tab", "View"),
        ("Space", "Pause"),
        ("+-", "Open"),
    ];
    let mut spans = Vec::new();
    let mut used = 0;
    for (key, word) in KEYS {
        used += key.len() + word.len() + 2;
        if used > usize::from(width) {
            break;
        }
        spans.push(Span::raw(key).bold());
        spans.push(Span::styled(format!("{word:<7}"), Style::new().fg(Color::Black).bg(Color::Cyan)));
        used += 7usize.saturating_sub(word.len() + 2);
    }
    Line::from(spans)
}

const HELP: [(&str, &str); 20] = [
    ("arrows, PgUp PgDn", "move; Home and End: first and last row"),
    ("F3 or /", "search; n or F3: the next one"),
    ("F4 or \\", "show only rows with this text; Escape: all"),
    ("F5 or t", "call paths as a tree, and back"),
    ("Enter + -", "open and close a call path"),
    ("r, R", "call paths of the next rank, or all; also Enter on a rank"),
    ("F6 or >", "sort by the next column; <: by the one before"),
    ("I", "sort the other way round"),
    ("a", "with several nodes: all, or only the first"),
    ("Space", "pause: the figures stand still"),
    ("N", "the notes above, in full"),
    ("q F10 Ctrl-C", "quit; the run continues"),
    ("Ctrl-Z", "return to the shell, until fg"),
    ("OF TOTAL", "part of all joules of the run"),
    ("OF DYNAMIC", "part of its dynamic joules: above what devices draw anyway"),
    ("W NOW, DYN W NOW", "mean power of the last two seconds; its dynamic part"),
    ("WAITED, CAUSED J", "static and dynamic joules of waiting in MPI"),
    ("SELF (DYN) J", "joules of a function without the functions that it calls"),
    ("IDLE, (idle)", "joules in no function; of a node, their part"),
    ("LOST, BAD", "events not recorded; readings not believed"),
];

/// Returns a note as the lines of a list item.
fn item(note: &str, width: u16) -> Vec<String> {
    let lines = wrapped(note, usize::from(width).saturating_sub(3));
    std::iter::once(" -")
        .chain(std::iter::repeat("  "))
        .zip(lines)
        .map(|(begin, line)| format!("{begin} {line}"))
        .collect()
}

#[cfg(test)]
#[path = "viewer_tests.rs"]
mod tests;
