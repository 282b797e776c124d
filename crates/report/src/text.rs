//! Writes a summary for people, as `summary.txt` and as the output of `ampere report`: the first lines (`first/`), and then all
//! tables.

use crate::baseline;
use crate::events;
use crate::first::facts::{Facts, WAITING_PART_MIN};
use crate::first::screen::{Column, LABEL, LINES, Line, Names, ROWS, Screen, Style, Table, labelled};
use crate::first::tables::{self, FUNCTIONS_MAX, Known};
use crate::first::{self, names};
use crate::legend::{GROUP_HEAD, Legend, PROCESSES_HEADS, RANKS_HEADS};
use crate::over_devices;
use crate::over_ranks::{self, SHARE_MIN, Spread, Spreads, is_mpi_rank};
use crate::waits;
use ampere_figures::assignment;
use ampere_figures::gauges::OverTheRun;
use ampere_figures::shares::{self, Whole};
use ampere_figures::site::Site;
use ampere_figures::summary::{Baseline, Device, Figures, Region, Summary, View};
use ampere_figures::summary::{Callpath, Run, StacksOverhead, parts, topmost, view};
use ampere_model::digits::{self, MEASURED, column, count, energy, known_column, percent, significant};
use ampere_model::order::largest_first;
use ampere_model::text::{compact, printable, short};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// If a larger part of the run than this has no samples, a line reports it.
const UNSAMPLED_PART: f64 = 0.03;
/// Rows with a smaller part of the whole are summed.
const PART_MIN: f64 = 0.001;
/// The maximum number of functions that a line names.
const NAMED_MAX: usize = 3;
const BAR_CELLS: usize = 24;
/// The maximum number of devices with tables of their own.
const DEVICES_MAX: usize = 8;
/// The maximum number of lines of the device assignment.
const LINKS_MAX: usize = 40;
/// The maximum number of notes, and of characters of each.
const NOTES_MAX: usize = 250;
const NOTE_CHARACTERS_MAX: usize = 2000;
/// The maximum length of names that are in no column.
const NAME_CHARS_MAX: usize = 56;
/// The indentation of tables and of lines below a title.
const INDENT: usize = 2;

/// Returns the first lines of a summary, and all of its tables below them.
pub fn render(summary: &Summary, screen: Screen) -> String {
    // All hints are shown, even on a small terminal, because everything else is below them anyway.
    let first = first::render(summary, Screen { lines: screen.lines.max(LINES), ..screen }, &[]);
    let (whole, legend) = (Whole::of(summary), Legend::of(summary));
    let mut page = Page { summary, screen, whole, legend, first: words_of(&first), lines: Vec::new() };
    page.notes();
    page.topology();
    page.python();
    page.waiting();
    page.events();
    page.all_ranks();
    page.devices();
    page.foot();
    let lines: String = page.lines.iter().map(|line| line.shown(screen) + "\n").collect();
    first + &lines
}

/// Returns the text with single spaces between its words.
fn words_of(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

struct Page<'a> {
    summary: &'a Summary,
    screen: Screen,
    whole: Whole,
    legend: Legend,
    /// The first lines of the report, with single spaces between their words.
    first: String,
    lines: Vec<Line>,
}

/// The figure by which rows are sorted, and the base of their shares.
struct Measure {
    unit: String,
    whole: f64,
    /// The head of the column of shares.
    share: &'static str,
}

impl<'a> Page<'a> {
    fn title(&mut self, text: &str) {
        self.lines.push(Line::empty());
        self.put(text, Style::Title);
    }

    /// Writes text below a title, wrapped to the width of the screen.
    fn put(&mut self, text: &str, style: Style) {
        let indent = if style == Style::Title { 0 } else { INDENT };
        // There is no label in front of these lines.
        let screen = Screen { width: self.screen.width + LABEL - indent, ..self.screen };
        let lines = labelled("", text, style, screen).into_iter();
        self.lines.extend(lines.map(|line| Line {
            text: format!("{:indent$}{}", "", line.text.get(LABEL..).unwrap_or_default()),
            ..line
        }));
    }

    fn table(&mut self, table: Table) {
        self.lines.push(Line::empty());
        let shown = table.fitted(Screen { width: self.screen.width - INDENT, ..self.screen });
        self.legend.add(&shown);
        self.indented(shown.lines);
    }

    fn indented(&mut self, lines: Vec<Line>) {
        let lines = lines.into_iter();
        self.lines.extend(lines.map(|line| Line { text: format!("{:INDENT$}{}", "", line.text), ..line }));
    }

    fn measure(&self, device: &Device, view: &View) -> Measure {
        match device.unit.as_str() {
            "J" => self.of_joules(view.is_active()),
            unit => Measure { unit: unit.to_owned(), whole: view.whole(), share: shares::OF_TIME },
        }
    }

    fn of_joules(&self, is_dynamic: bool) -> Measure {
        let unit = own_unit(is_dynamic, "J");
        Measure { unit, whole: self.whole.joules(is_dynamic), share: shares::head(is_dynamic) }
    }

    /// Returns the maximum number of rows of a table.
    fn rows(&self) -> usize {
        self.screen.rows
    }

    fn digits(&self) -> usize {
        digits::of_energy(&self.summary.run.energy)
    }

    /// Writes the command, the CPU time, the total and the notes, which are in no table.
    fn notes(&mut self) {
        let summary = self.summary;
        let run = &summary.run;
        let mut lines: Vec<(&str, String)> = Vec::new();
        lines.extend((!run.command.is_empty()).then(|| ("command", first::command_line(&run.command))));
        lines.extend(run.node_cpu.as_ref().map(|cpu| ("cpu", cpu.words(run.seconds))));
        lines.extend((summary.devices.len() > 1).then(|| ("total", total(summary))));
        lines.extend(delay_products(run).map(|words| ("edp", words)));
        let site = run.site.iter().flat_map(Site::lines);
        lines.extend(site.map(|(name, words)| ("site", format!("{name} {words}"))));
        let notes = run.notes_in_order().take(NOTES_MAX);
        lines.extend(notes.map(|note| ("note", short(note, NOTE_CHARACTERS_MAX))));
        let more = run.notes.len().saturating_sub(NOTES_MAX);
        lines.extend((more > 0).then(|| ("note", format!("... and {more} more in summary.json"))));
        if !lines.is_empty() {
            self.lines.push(Line::empty());
        }
        for (label, text) in lines {
            self.lines.extend(labelled(label, &text, Style::Plain, self.screen));
        }
    }

    fn topology(&mut self) {
        let mut lines = assignment::lines(&self.summary.topology);
        lines.extend(without_consumer(self.summary));
        if lines.is_empty() {
            return;
        }
        self.title("device assignment");
        for line in lines.iter().take(LINKS_MAX) {
            self.put(line, Style::Plain);
        }
        if lines.len() > LINKS_MAX {
            self.put(&format!("... and {} more in summary.json", lines.len() - LINKS_MAX), Style::Plain);
        }
    }

    /// Writes the table of Python functions if more rows are requested than the first lines can show, and if there are more.
    fn python(&mut self) {
        if self.rows() <= FUNCTIONS_MAX {
            return;
        }
        let facts = Facts::of(self.summary);
        if facts.python.len() > FUNCTIONS_MAX {
            self.title("Python functions");
            let screen = Screen { width: self.screen.width - INDENT, ..self.screen };
            self.indented(tables::python(&facts, self.rows(), screen));
        }
    }

    /// Writes the tables of the energy that ranks used while they waited for each other.
    fn waiting(&mut self) {
        let Some(waiting) = waits::of(self.summary) else { return };
        self.title("waiting in MPI");
        let mut words = waits::words(self.summary);
        words.retain(|words| !self.first.contains(words));
        if !words.is_empty() {
            self.put(&words.join("; "), Style::Plain);
        }
        for table in waits::tables(waiting, self.digits()) {
            self.table(table);
        }
        self.legend.skip();
        let words = format!("of waiting: its share of the {} that were used waiting", energy(waiting.joules));
        self.put(&words, Style::Plain);
    }

    /// Writes the events that were counted with samples, such as instructions, and their rates.
    fn events(&mut self) {
        let words = events::words(&self.summary.run);
        if words.is_empty() {
            return;
        }
        self.title("events in the threads");
        words.iter().for_each(|line| self.put(line, Style::Plain));
        let is_dynamic =
            topmost(self.summary).filter_map(|device| view(device, "ranks")).all(View::is_active);
        let unit = own_unit(is_dynamic, "J");
        if let Some(table) = events::table(self.summary, self.rows(), self.digits(), &unit) {
            self.table(table);
            self.legend.skip();
            self.put(&events::explanation(self.summary), Style::Plain);
        }
    }

    /// Writes the table of ranks over all devices that are not contained in another, if there are several.
    fn all_ranks(&mut self) {
        let views: Vec<(&'a Device, &'a View)> =
            topmost(self.summary).filter_map(|device| Some((device, view(device, "ranks")?))).collect();
        let Some(whole) =
            over_ranks::whole(self.summary, &views).filter(|whole| views.len() > 1 && whole.ranks > 1)
        else {
            return;
        };
        self.title(&format!("all {}, of {} devices", self.ranks_heads()[1], views.len()));
        let is_dynamic = over_ranks::is_dynamic(&views);
        self.whole_ranks(&whole, is_dynamic);
        let spreads = over_ranks::functions(self.summary, &views, self.rows());
        let (shown, others) = shown_spreads(&spreads, whole.joules, self.rows());
        let functions = shown.iter().map(|row| self.summary.name(row.what)).collect();
        let measure = self.of_joules(is_dynamic);
        self.spreads(("function", Names::Functions(functions)), (&shown, others), whole.joules, &measure);
        self.callpaths_over_ranks(&views, whole.joules, &measure);
        self.explain("function", is_dynamic);
    }

    fn whole_ranks(&mut self, whole: &Spread, is_dynamic: bool) {
        let kind = if is_dynamic { " dynamic" } else { "" };
        let far = self.standing_out(whole);
        let words = format!(
            "{} {}: {}{kind} each on average, {} to {}{}{}",
            whole.ranks,
            self.ranks_heads()[1],
            energy(whole.mean()),
            energy(whole.least),
            energy(whole.most),
            if far.is_empty() { far } else { format!("  ! {far}") },
            whole.other_processes()
        );
        self.put(&words, Style::Plain);
    }

    /// Returns the heads of the columns about ranks, or about processes if there are no ranks.
    fn ranks_heads(&self) -> [&'static str; 2] {
        let has_ranks = self.summary.names.iter().any(|name| over_ranks::is_mpi_rank(name));
        if has_ranks { RANKS_HEADS } else { PROCESSES_HEADS }
    }

    /// Returns the title of a view. In a run without ranks, the view of ranks is one of processes.
    fn title_of(&self, view: &View) -> String {
        let [_, ranks] = self.ranks_heads();
        let title = view.title();
        title.strip_prefix("ranks ").map_or_else(|| title.clone(), |rest| format!("{ranks} {rest}"))
    }

    fn standing_out(&self, spread: &Spread) -> String {
        let named = spread.standing_out.iter().take(NAMED_MAX).map(|((node, group), used)| {
            let group = self.summary.name(*group);
            // A rank's number is unique in the job, but the number of a process is not.
            let node = if group.starts_with("MPI Rank") { String::new() } else { format!(" on {node}") };
            format!("{}{} {}", short(group, NAME_CHARS_MAX), printable(&node), energy(*used))
        });
        let named: Vec<String> = named.collect();
        match spread.standing_out.len().saturating_sub(NAMED_MAX) {
            0 => named.join(", "),
            more => format!("{} and {more} more", named.join(", ")),
        }
    }

    fn callpaths_over_ranks(&mut self, views: &[(&'a Device, &'a View)], total: f64, measure: &Measure) {
        let spreads = over_ranks::callpaths(self.summary, views, self.rows());
        let (shown, others) = shown_spreads(&spreads, total, self.rows());
        let paths = shown.iter().map(|row| (String::new(), self.summary.regions_of(row.what)));
        let names = Names::Paths(paths.collect());
        self.spreads(("call path", names), (&shown, others), total, measure);
        let is_large = |spread: &&&Spread| spread.joules >= SHARE_MIN * total;
        if shown.iter().filter(is_large).any(|spread| !spread.standing_out.is_empty()) {
            let ranks = self.ranks_heads()[1];
            self.put(&format!("!: {ranks} whose joules are far from those of the others"), Style::Plain);
        }
    }

    fn spreads(
        &mut self,
        (head, names): (&str, Names),
        (rows, others): (&[&Spread], (usize, f64)),
        total: f64,
        measure: &Measure,
    ) {
        let digits = self.digits();
        let figures =
            |of: &dyn Fn(&Spread) -> f64| column(&rows.iter().map(|row| of(row)).collect::<Vec<_>>(), digits);
        let of_ranks = |of: &dyn Fn(&Spread) -> f64| {
            let texts = figures(of).into_iter().zip(rows);
            texts.map(|(text, row)| if row.ranks > 0 { text } else { "-".to_owned() }).collect()
        };
        let texts = |of: &dyn Fn(&Spread) -> String| rows.iter().map(|row| of(row)).collect::<Vec<String>>();
        let far = |row: &Spread| {
            if row.joules >= SHARE_MIN * total { self.standing_out(row) } else { String::new() }
        };
        let far = texts(&|row| {
            Some(far(row)).filter(|far| !far.is_empty()).map_or_else(String::new, |far| format!("! {far}"))
        });
        let [least, ranks] = self.ranks_heads();
        // A launcher, for example, is not a rank.
        let count = |row: &Spread| if row.ranks > 0 { row.ranks.to_string() } else { "-".to_owned() };
        let before = vec![
            Column::new(&measure.unit, figures(&|row| row.joules)),
            Column::new(measure.share, texts(&|row| percent(row.joules, measure.whole))),
            Column::new(least, of_ranks(&|row| row.least)).dispensable(2),
            Column::new("mean", of_ranks(&|row| row.mean())).dispensable(3),
            Column::new("most", of_ranks(&|row| row.most)).dispensable(2),
            Column::new(ranks, texts(&count)).dispensable(5),
            Column::new("s", figures(&|row| row.seconds)).dispensable(4),
            Column::new("calls", texts(&|row| calls(row.calls))).dispensable(6),
        ];
        let after = vec![Column { is_left: true, ..Column::new("", far).dispensable(1) }];
        self.table(Table { before, head: head.to_owned(), names, after });
        self.more_than_shown(others, &measure.unit);
    }

    /// Writes the tables of the largest devices.
    fn devices(&mut self) {
        let (shown, others) = over_devices::largest(self.summary, DEVICES_MAX);
        for device in shown {
            self.device(device);
        }
        if !others.is_empty() {
            let rest: f64 = others.iter().map(|device| device.total_joules).sum();
            self.title(&format!(
                "... and {} more devices with less each, {} in all: ampere report --device NAME",
                others.len(),
                energy(rest)
            ));
        }
    }

    fn device(&mut self, device: &'a Device) {
        let summary = self.summary;
        let title = if device.unit == "s" {
            format!("{} on {}: {} s", device.name, device.node, significant(device.total_joules, MEASURED))
        } else {
            let watts = device.mean_watts();
            let watts = watts.map_or_else(String::new, |watts| {
                format!(", {} W on average", significant(watts, self.digits()))
            });
            format!(
                "{} on {}: {}{watts}, {} ({}, {} sample{})",
                device.name,
                device.node,
                energy(device.total_joules),
                device.energy,
                device.metric,
                device.samples,
                if device.samples == 1 { "" } else { "s" }
            )
        };
        self.title(&title);
        self.static_and_dynamic(device);
        let unsampled = summary.run.seconds - device.sampled_seconds;
        if device.samples > 0 && unsampled > UNSAMPLED_PART * summary.run.seconds {
            let words = format!(
                "its samples cover {:.2} s of {:.2} s: the energy of the other {unsampled:.2} s is not known",
                device.sampled_seconds, summary.run.seconds
            );
            self.put(&words, Style::Plain);
        }
        if device.stale {
            let still = device.longest_still_seconds;
            self.put(
                &format!("STALE: the counter had not changed for up to {still:.1} s when last read"),
                Style::Bad,
            );
        }
        if !device.gauges.is_empty() {
            let gauges: Vec<String> = device.gauges.iter().map(OverTheRun::text).collect();
            self.put(&format!("reported by the device: {}", gauges.join(", ")), Style::Plain);
        }
        for check in &device.checks {
            self.put(&check.text(), Style::Plain);
        }
        for view in device.shown() {
            self.view(device, view);
            if let Some(other) = device.not_shown().filter(|_| view.view == "ranks") {
                self.lines.push(Line::empty());
                self.put(&format!("{}: {}", self.title_of(other), most_of(self.whole, other)), Style::Plain);
            }
        }
    }

    /// Writes the static joules of a device, and the part of its dynamic joules that is certain.
    fn static_and_dynamic(&mut self, device: &Device) {
        let Some(words) = baseline::words(&[device]) else { return };
        // The first lines have the joules of the only device.
        if topmost(self.summary).nth(1).is_some() {
            let dynamic = device.dynamic_joules.unwrap_or_default();
            let is_known = device.baseline.as_ref().is_some_and(Baseline::is_known);
            let rest = if is_known { format!("; {} are dynamic", energy(dynamic)) } else { String::new() };
            self.put(&format!("{}{words}{rest}", energy(device.total_joules)), Style::Plain);
        }
        if let Some(words) = baseline::resolved_words(std::iter::once(device)) {
            self.put(&words, Style::Plain);
        }
    }

    fn view(&mut self, device: &'a Device, view: &'a View) {
        if view.callpaths.is_empty() {
            return;
        }
        let figure = |joules: f64| match device.unit.as_str() {
            "J" => energy(joules),
            unit => format!("{} {unit}", significant(joules, MEASURED)),
        };
        let lost = if view.lost_joules > 0.0 {
            format!(", {} lost", figure(view.lost_joules))
        } else {
            String::new()
        };
        let others = match view.other_jobs_joules {
            0.0 => String::new(),
            joules => format!(", {} of other jobs", figure(joules)),
        };
        let what = if view.view == "kernels" { "kernels" } else { "functions" };
        let words = format!(
            "{} ({}, {}): {} in {what}, {} idle{others}{lost}",
            self.title_of(view),
            view.policy,
            view.sharing,
            figure(view.attributed_joules),
            figure(view.unused_joules())
        );
        self.lines.push(Line::empty());
        self.put(&words, Style::Title);
        self.regions(device, view);
        self.groups(device, view);
        self.callpaths(device, view);
        self.explain(what.trim_end_matches('s'), view.is_active());
    }

    fn regions(&mut self, device: &Device, view: &'a View) {
        let what = if view.view == "kernels" { "kernel" } else { "function" };
        let total = device.own_whole(view);
        // A recorded function is also shown if the functions that it calls have many joules.
        let of_row = |row: &Region| {
            let (own, calls) = (row.figures.own_joules(), row.figures.calls);
            (own, if calls > 0 { row.figures.inclusive_joules } else { own })
        };
        // A function that waits has many joules, but hardly any dynamic ones.
        let waits = |row: &Region| row.figures.exclusive_joules >= WAITING_PART_MIN * device.total_joules;
        let (rows, small) = large(view.own_regions(), total, self.rows(), (of_row, waits));
        let has_watts = rows.iter().any(|row| row.watts.typical(&row.figures).is_some());
        let figures: Vec<&Figures> = rows.iter().map(|row| &row.figures).collect();
        let known: Vec<Known> = rows.iter().map(|row| known(device, row)).collect();
        let mut before = self.figure_columns(device, view, &figures, &known);
        let texts = |of: &dyn Fn(&Region) -> String| rows.iter().map(|row| of(row)).collect::<Vec<String>>();
        let inclusive: Vec<f64> = figures.iter().map(|row| row.inclusive_joules).collect();
        let measure = self.measure(device, view);
        let bars = texts(&|row| bar(row.figures.own_joules(), measure.whole));
        before.push(Column { is_left: true, ..Column::new("", bars).dispensable(9) });
        before.push(Column::new("inclusive", column(&inclusive, self.digits())).dispensable(5));
        before.push(Column::new("calls", texts(&|row| calls(row.figures.calls))).dispensable(6));
        let unknown = if has_watts { "below res." } else { "-" };
        let watts: Vec<Option<f64>> = rows.iter().map(|row| row.watts.typical(&row.figures)).collect();
        let watts = known_column(&watts, unknown, self.digits());
        before.push(Column::new(watts_head(view), watts).dispensable(2));
        let names = Names::Functions(rows.iter().map(|row| &*row.region).collect());
        self.table(Table { before, head: what.to_owned(), names, after: Vec::new() });
        self.more_than_shown(small, &measure.unit);
    }

    /// Makes the columns of joules, their parts, and shares.
    fn joules_columns(&self, device: &Device, view: &View, rows: &[&Figures]) -> Vec<Column> {
        let (measure, digits) = (self.measure(device, view), self.digits());
        let figures = |of: &dyn Fn(&Figures) -> f64| {
            column(&rows.iter().map(|row| of(row)).collect::<Vec<_>>(), digits)
        };
        let shares = rows.iter().map(|row| percent(row.own_joules(), measure.whole)).collect();
        let mut columns = vec![Column::new(&device.unit, figures(&|row| row.exclusive_joules))];
        if view.is_active() {
            let part = |of: fn(&Figures) -> Option<f64>| {
                known_column(&rows.iter().map(|row| of(row)).collect::<Vec<_>>(), "-", digits)
            };
            columns.push(Column::new("static J", part(|row| row.static_joules)).dispensable(8));
            columns.push(Column::new(&measure.unit, part(|row| row.dynamic_joules)));
        }
        columns.push(Column::new(measure.share, shares));
        columns
    }

    /// Makes the columns of joules, how well they are known, and seconds.
    fn figure_columns(
        &self,
        device: &Device,
        view: &View,
        rows: &[&Figures],
        known: &[Known],
    ) -> Vec<Column> {
        let mut columns = self.joules_columns(device, view, rows);
        if device.unit != "s" {
            let seconds: Vec<f64> = rows.iter().map(|row| row.exclusive_seconds).collect();
            let whole = self.measure(device, view).whole;
            let (head, cells) = tables::known(known, whole, self.digits());
            columns.push(Column::new(head, cells).dispensable(3));
            columns.push(Column::new("s", column(&seconds, self.digits())).dispensable(4));
        }
        columns
    }

    fn groups(&mut self, device: &'a Device, view: &'a View) {
        let measure = self.measure(device, view);
        let sums = by_location(self.summary, view);
        if let Some(whole) =
            over_ranks::whole(self.summary, &[(device, view)]).filter(|_| sums.len() > self.rows())
        {
            self.lines.push(Line::empty());
            return self.whole_ranks(&whole, view.is_active());
        }
        let rows: Vec<&Figures> = sums.iter().take(self.rows()).map(|(_, figures)| figures).collect();
        let mut before = self.joules_columns(device, view, &rows);
        let bars = rows.iter().map(|row| bar(row.own_joules(), measure.whole)).collect();
        before.push(Column { is_left: true, ..Column::new("", bars).dispensable(9) });
        let names = Names::Texts(sums.iter().take(self.rows()).map(|(group, _)| group.clone()).collect());
        self.table(Table { before, head: GROUP_HEAD.to_owned(), names, after: Vec::new() });
        let rest = left_out(sums.iter().map(|(_, figures)| figures.own_joules()), self.rows());
        self.more_than_shown(rest, &measure.unit);
    }

    fn callpaths(&mut self, device: &'a Device, view: &'a View) {
        let (total, rows) = (device.own_whole(view), &view.callpaths);
        let sums = sums_by_location(view);
        let several = groups_of_several(self.summary, &sums);
        let groups: BTreeSet<u32> = rows.iter().map(|row| row.location_group).collect();
        let measure = self.measure(device, view);
        if view.view == "ranks" && groups.len() > 1 {
            return self.callpaths_over_ranks(&[(device, view)], total, &measure);
        }
        let rows = over_locations(rows.iter().filter(|row| view.has_run(&row.figures)).copied());
        let of_row = |(row, _): &(Callpath, usize)| (row.figures.own_joules(), row.figures.own_joules());
        let (shown, small) = large(rows.iter(), total, self.rows(), (of_row, |_| false));
        let figures: Vec<&Figures> = shown.iter().map(|(row, _)| &row.figures).collect();
        // The bounds of several threads together are not the sums of each one's bounds.
        let range =
            |(row, locations): &&(Callpath, usize)| range(device, &row.figures).filter(|_| *locations == 1);
        let known: Vec<Known> = shown.iter().map(|row| Known { range: range(row), error: None }).collect();
        let mut before = self.figure_columns(device, view, &figures, &known);
        before
            .push(Column::new("calls", figures.iter().map(|row| calls(row.calls)).collect()).dispensable(7));
        let what = if view.view == "kernels" { "streams" } else { "threads" };
        let path = |(row, locations): &&(Callpath, usize)| {
            let of = match (*locations, groups.len() == 1) {
                (1, true) if several.contains(&row.location_group) => {
                    self.summary.name(row.location).to_owned()
                }
                (1, true) => return (String::new(), self.summary.regions_of(row.path)),
                (1, false) => name_of(self.summary, (row.location_group, row.location), &several),
                (many, true) => format!("{many} {what}"),
                (many, false) => format!("{}, {many} {what}", self.summary.name(row.location_group)),
            };
            (format!("{of}: "), self.summary.regions_of(row.path))
        };
        let names = Names::Paths(shown.iter().map(path).collect());
        self.table(Table { before, head: "top call paths".to_owned(), names, after: Vec::new() });
        self.more_than_shown(small, &measure.unit);
    }

    fn more_than_shown(&mut self, (count, sum): (usize, f64), unit: &str) {
        if count > 0 {
            let sum = significant(sum, self.digits());
            self.put(&format!("... and {count} more (see --rows): {sum} {unit} in all"), Style::Plain);
        }
    }

    /// Writes the losses, and the cost of measuring.
    fn foot(&mut self) {
        let (quality, cost) = (&self.summary.quality, &self.summary.overhead);
        let late = cost.sampler.as_ref().map(|sampler| {
            let [late, all] = [sampler.missed_deadlines, sampler.deadlines].map(count);
            format!("; {late} of {all} counter reads were more than 1 ms late")
        });
        let mut lines = vec![("quality", quality.text() + &late.unwrap_or_default())];
        let stacks = cost.stacks.as_ref().and_then(|stacks| Some((stacks, stacks.share()?)));
        let mut costs: Vec<String> =
            stacks.iter().map(|(stacks, share)| stacks_cost(stacks, *share)).collect();
        if cost.collector_peak_rss_bytes > 0 {
            let (seconds, bytes) = (cost.collector_cpu_seconds, cost.collector_peak_rss_bytes as f64);
            let part = stacks.map_or_else(String::new, |(stacks, _)| {
                format!(" ({} of the program's)", percent(seconds, stacks.program_seconds))
            });
            costs.push(format!(
                "the collector {seconds:.2} s of CPU time{part}, {:.1} MB at most",
                bytes / 1e6
            ));
        }
        lines.extend((!costs.is_empty()).then(|| ("cost", costs.join("; "))));
        self.lines.push(Line::empty());
        for (label, text) in lines {
            self.lines.extend(labelled(label, &text, Style::Plain, self.screen));
        }
    }

    /// Explains the columns of the tables since the last explanation.
    fn explain(&mut self, what: &str, is_active: bool) {
        for line in self.legend.take(what, is_active) {
            self.put(&line, Style::Plain);
        }
    }
}

fn watts_head(view: &View) -> &'static str {
    if view.is_active() { "dynamic W" } else { "W" }
}

/// Returns the rows of a table, and the number and the joules of the others.
fn shown_spreads<'s, 'a>(
    spreads: &'s Spreads<'a>,
    total: f64,
    rows: usize,
) -> (Vec<&'s Spread<'a>>, (usize, f64)) {
    let of_row = |row: &Spread| (row.joules, row.joules);
    let (shown, small) = large(spreads.rows.iter(), total, rows, (of_row, |_| false));
    let others = spreads.others;
    (shown, (others.0 + small.0, others.1 + small.1))
}

/// Describes the cost of stack samples and records of switches for the program.
fn stacks_cost(stacks: &StacksOverhead, share: f64) -> String {
    let samples = stacks.period_seconds.map_or_else(String::new, |period| {
        let each = match stacks.sample_seconds {
            Some(cost) => format!("{:.1} us each", 1e6 * cost),
            None => "of unknown cost".to_owned(),
        };
        format!("{} samples, one in {:.3} ms, {each}, and ", stacks.samples, 1e3 * period)
    });
    format!(
        "in the program about {:.1} % of its CPU time, an estimate: {samples}{} records of switches",
        100.0 * share,
        stacks.switches
    )
}

/// Returns a line for the devices without a consumer.
fn without_consumer(summary: &Summary) -> Option<String> {
    let linked: HashSet<(&str, &str)> = summary
        .topology
        .iter()
        .filter_map(|link| Some((link.node.as_str(), link.device.as_deref()?)))
        .collect();
    let is_linked = |device: &Device| linked.contains(&(device.node.as_str(), device.name.as_str()));
    let alone = summary.devices.iter().filter(|device| !is_linked(device));
    let mut names: Vec<&str> = alone.map(|device| device.name.as_str()).collect();
    names.sort_by_key(|name| (name.len(), *name));
    (!names.is_empty()).then(|| format!("{} <- no consumer: all idle", compact(&names)))
}

/// Returns the energy-delay products of the run, which weigh its energy against its time.
fn delay_products(run: &Run) -> Option<String> {
    let (joules, seconds) = (run.total_joules, run.seconds);
    let (edp, ed2p) = (energy(joules * seconds), energy(joules * seconds * seconds));
    (joules > 0.0 && seconds > 0.0).then(|| format!("{edp} s (energy x delay), {ed2p} s² (energy x delay²)"))
}

/// Describes all joules, and the devices that are not contained in another.
fn total(summary: &Summary) -> String {
    let parts = parts(summary);
    let (devices, _) = over_devices::largest(summary, usize::MAX);
    let energies = devices.into_iter().filter(|device| device.unit == "J");
    let is_part = |device: &&Device| parts.contains(&(device.node.as_str(), device.name.as_str()));
    let (parts, whole): (Vec<&Device>, Vec<&Device>) = energies.partition(is_part);
    let nodes = |devices: &[&Device]| {
        devices.iter().map(|d| &d.node).collect::<std::collections::BTreeSet<_>>().len()
    };
    let has_several = nodes(&summary.devices.iter().collect::<Vec<_>>()) > 1;
    let counted = |count: usize, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
    let names = |devices: &[&Device]| match has_several {
        false => compact(&devices.iter().map(|d| d.name.as_str()).collect::<Vec<_>>()),
        true => format!("{} on {}", counted(devices.len(), "device"), counted(nodes(devices), "node")),
    };
    let mut line = format!("{} in {}", energy(summary.run.total_joules), names(&whole));
    if !parts.is_empty() {
        line.push_str(&format!(", which include {}", names(&parts)));
    }
    line
}

/// Returns the unit of the joules by which rows are sorted.
pub fn own_unit(is_dynamic: bool, unit: &str) -> String {
    if is_dynamic { format!("dynamic {unit}") } else { unit.to_owned() }
}

/// Joules by location group and location.
type SumsByLocation = BTreeMap<(u32, u32), Figures>;

fn sums_by_location(view: &View) -> SumsByLocation {
    let mut sums: SumsByLocation = BTreeMap::new();
    for row in view.callpaths.iter() {
        add(sums.entry((row.location_group, row.location)).or_default(), &row.figures);
    }
    sums
}

/// Sums the rows of each call path over the threads of each process. Returns the sums with the numbers of threads, in descending
/// order of their joules.
fn over_locations(rows: impl Iterator<Item = Callpath>) -> Vec<(Callpath, usize)> {
    let mut sums: BTreeMap<(u32, u32), (Callpath, usize)> = BTreeMap::new();
    for row in rows {
        match sums.entry((row.location_group, row.path)) {
            Entry::Vacant(new) => {
                new.insert((row, 1));
            }
            Entry::Occupied(known) => {
                let (sum, locations) = known.into_mut();
                add(&mut sum.figures, &row.figures);
                *locations += 1;
            }
        }
    }
    let mut sums: Vec<(Callpath, usize)> = sums.into_values().collect();
    largest_first(&mut sums, |(row, _)| row.figures.own_joules());
    sums
}

/// Adds exclusive joules, their parts, seconds and calls.
fn add(sum: &mut Figures, row: &Figures) {
    let part = |sum: Option<f64>, more: Option<f64>| more.map(|more| sum.unwrap_or_default() + more);
    sum.exclusive_joules += row.exclusive_joules;
    sum.static_joules = part(sum.static_joules, row.static_joules);
    sum.dynamic_joules = part(sum.dynamic_joules, row.dynamic_joules);
    sum.exclusive_seconds += row.exclusive_seconds;
    sum.calls = sum.calls.saturating_add(row.calls);
}

/// Returns the location groups whose locations are listed separately: those with joules in several locations, and all ranks if
/// one of them has threads.
fn groups_of_several(summary: &Summary, sums: &SumsByLocation) -> BTreeSet<u32> {
    let groups: Vec<u32> =
        sums.iter().filter(|(_, sum)| sum.exclusive_joules > 0.0).map(|((group, _), _)| *group).collect();
    let several = groups.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| pair[0]);
    let mut several: BTreeSet<u32> = several.collect();
    let is_rank = |group: &u32| is_mpi_rank(summary.name(*group));
    if several.iter().any(is_rank) {
        several.extend(groups.into_iter().filter(is_rank));
    }
    several
}

/// Returns a row's location group, and its thread if there are several.
fn name_of(summary: &Summary, (group, location): (u32, u32), several: &BTreeSet<u32>) -> String {
    match several.contains(&group) {
        true => format!("{}, {}", summary.name(group), summary.name(location)),
        false => summary.name(group).to_owned(),
    }
}

/// Returns joules by location group, and by thread if a group has several. "MPI Rank 10" comes after "MPI Rank 9".
pub fn by_location(summary: &Summary, view: &View) -> Vec<(String, Figures)> {
    let sums = sums_by_location(view);
    let several = groups_of_several(summary, &sums);
    let mut shown: BTreeMap<(usize, &str, usize, &str), (String, Figures)> = BTreeMap::new();
    for (of, sum) in sums {
        let location = if several.contains(&of.0) { summary.name(of.1) } else { "" };
        let group = summary.name(of.0);
        let key = (group.len(), group, location.len(), location);
        let row = shown.entry(key).or_insert_with(|| (name_of(summary, of, &several), Figures::default()));
        add(&mut row.1, &sum);
    }
    shown.into_values().collect()
}

/// Returns the functions with the most joules of a view, in a few words. `whole` has the joules of the run.
pub fn most_of(whole: Whole, view: &View) -> String {
    let rows = view.regions.iter().filter(|row| row.figures.own_joules() > 0.0).take(NAMED_MAX);
    let named: Vec<String> = rows
        .map(|row| {
            let part = percent(row.figures.own_joules(), whole.joules(view.is_active()));
            format!("{} ({part})", names::shorten(&row.region, NAME_CHARS_MAX))
        })
        .collect();
    match named.is_empty() {
        true => String::new(),
        false => format!("{} {}", named.join(", "), shares::head(view.is_active())),
    }
}

/// Returns the first rows that are not small, and the number and the sum of all others. `of_row` returns the figure of a row that
/// is summed, and the one that decides whether the row is small; `is_kept` returns whether it is shown in any case. If all rows
/// are small, or if `limit` is above [`ROWS`], none is left out for that reason.
fn large<'a, T>(
    rows: impl Iterator<Item = &'a T>,
    whole: f64,
    limit: usize,
    (of_row, is_kept): (impl Fn(&T) -> (f64, f64), impl Fn(&T) -> bool),
) -> (Vec<&'a T>, (usize, f64)) {
    let rows: Vec<&T> = rows.collect();
    let is_large = |row: &T| limit > ROWS || of_row(row).1 >= PART_MIN * whole;
    let all_are_small = !rows.iter().take(limit).any(|row| is_large(row));
    let is_shown = |at: usize, row: &T| (at < limit && (all_are_small || is_large(row))) || is_kept(row);
    let (mut shown, mut others) = (Vec::new(), (0, 0.0));
    for (at, row) in rows.into_iter().enumerate() {
        match is_shown(at, row) {
            true => shown.push(row),
            false => others = (others.0 + 1, others.1 + of_row(row).0),
        }
    }
    (shown, others)
}

/// Returns the number and the sum of the rows after the first `shown`.
pub fn left_out(rows: impl Iterator<Item = f64>, shown: usize) -> (usize, f64) {
    rows.skip(shown).fold((0, 0.0), |(count, sum), row| (count + 1, sum + row))
}

/// Returns the least and the most joules of a recorded row. Sampled rows have no range, because the program may have been
/// elsewhere between two samples of a stack.
fn range(device: &Device, row: &Figures) -> Option<(f64, f64)> {
    let most = row.possible_joules.filter(|_| row.calls > 0 && device.unit != "s")?;
    Some((row.resolved_joules, most))
}

fn known(device: &Device, row: &Region) -> Known {
    let error = row.sampled_error_joules.filter(|_| row.figures.exclusive_joules > 0.0);
    Known {
        range: range(device, &row.figures),
        error: error.map(|error| error / row.figures.exclusive_joules),
    }
}

/// Formats a number of calls. Calls of sampled rows are not counted.
fn calls(number: u64) -> String {
    if number == 0 { "sampled".to_owned() } else { count(number) }
}

/// Draws a bar in steps of an eighth of a character.
pub fn bar(part: f64, whole: f64) -> String {
    let eighths = if whole > 0.0 { (part / whole * (BAR_CELLS * 8) as f64).round() as usize } else { 0 };
    let eighths = eighths.min(BAR_CELLS * 8);
    let mut text = "█".repeat(eighths / 8);
    if let Some(rest) = " ▏▎▍▌▋▊▉".chars().nth(eighths % 8).filter(|_| eighths % 8 > 0) {
        text.push(rest);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_proportional() {
        assert_eq!(bar(1.0, 1.0).chars().count(), BAR_CELLS);
        assert_eq!(bar(0.5, 1.0).chars().count(), BAR_CELLS / 2);
        assert_eq!(bar(0.0, 1.0), "");
        assert_eq!(bar(5.0, 1.0).chars().count(), BAR_CELLS, "never beyond its column");
    }

    #[test]
    fn small_rows_are_summed_unless_all_are() {
        let of_row = |joules: &f64| (*joules, *joules);
        let nothing = |_: &f64| false;
        let (shown, others) = large([900.0, 99.0, 0.5, 0.5].iter(), 1000.0, ROWS, (of_row, nothing));
        assert_eq!((shown, others), (vec![&900.0, &99.0], (2, 1.0)));
        let (shown, others) = large([1.0; 2000].iter(), 2000.0, ROWS, (of_row, nothing));
        assert_eq!((shown.len(), others), (ROWS, (1985, 1985.0)));
        assert_eq!(large([0.0].iter(), 0.0, ROWS, (of_row, nothing)).0, [&0.0]);
        let (shown, others) =
            large([900.0, 0.5, 0.4].iter(), 1000.0, ROWS, (of_row, |row: &f64| *row == 0.4));
        assert_eq!((shown, others), (vec![&900.0, &0.4], (1, 0.5)), "a row that is kept in any case");
        let more = large([900.0, 0.5, 0.4].iter(), 1000.0, ROWS + 1, (of_row, nothing)).0;
        assert_eq!(more.len(), 3, "if more rows are wanted, small ones are shown");
    }
}
