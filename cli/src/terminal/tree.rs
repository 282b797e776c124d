//! Shows call paths as a tree with nodes that can be opened and closed.

use super::table::{Column, Row, Sort, Table, Value, column, sort_rows};
use ampere_figures::summary::REST_NAMES;
use ampere_report::page::{Flame, Page};
use std::collections::HashMap;

const COLUMNS: &[Column] = &[
    column("JOULES", 12, 0),
    column("OF TOTAL", 9, 34),
    column("SELF J", 12, 60),
    column("CALLS", 11, 70),
    column("", 24, 120),
    column("CALL PATH", 0, 0),
];
/// A call path with at least this share of the whole is open at first.
const OPEN_SHARE: f64 = 0.05;
/// The text that is shown if the collector has sent no call paths.
pub const NO_CALL_PATHS: &str = "the collector is too busy to send call paths at the moment";
/// Separates the names in a key. No name contains it.
const SEPARATOR: char = '\u{1f}';

/// For each key, whether its call path is open, and whether the user has chosen that.
pub type Open = HashMap<String, Openness>;

#[derive(Clone, Copy, Default)]
pub struct Openness {
    is_open: bool,
    is_chosen: bool,
}

/// The choices that determine the lines and their order.
pub struct Shown<'a> {
    pub open: &'a mut Open,
    pub sort: Sort,
    /// A text in lower case. A call path is left out if neither it nor any call path below it contains the text.
    pub filter: &'a str,
}

/// The boxes of a flame graph, with the boxes below each.
struct Boxes<'a> {
    flame: &'a Flame,
    names: &'a [String],
    inclusive: Vec<f64>,
    children: Vec<Vec<usize>>,
    /// The joules of the first box, with those that belong to no call path.
    all: f64,
    /// The joules of the run, of which shares are parts.
    whole: f64,
}

/// A box that is to be shown, its caller, and its depth.
struct Next {
    at: usize,
    depth: usize,
    caller: String,
}

impl<'a> Boxes<'a> {
    fn of(flame: &'a Flame, names: &'a [String], whole: f64) -> Boxes<'a> {
        let count = flame.caller.len().min(flame.name.len()).min(flame.joules.len());
        let mut inclusive = flame.joules[..count].to_vec();
        let mut children = vec![Vec::new(); count];
        for at in (1..count).rev() {
            // A caller must come before the functions that it calls, even if a collector reports something else.
            let caller = (flame.caller[at] as usize).min(at - 1);
            inclusive[caller] += inclusive[at];
            children[caller].push(at);
        }
        let all = inclusive.first().copied().unwrap_or(0.0) + flame.idle_joules + flame.lost_joules;
        Boxes { flame, names, inclusive, children, all, whole: if whole > 0.0 { whole } else { all } }
    }

    fn name(&self, at: usize) -> &str {
        match at {
            0 => &self.flame.title,
            _ => self.names.get(self.flame.name[at] as usize).map_or("?", String::as_str),
        }
    }

    fn share(&self, joules: f64) -> f64 {
        if self.whole > 0.0 { joules / self.whole } else { 0.0 }
    }

    /// Returns, for each box, whether its name or that of a box inside it contains `filter`.
    fn matching(&self, filter: &str) -> Vec<bool> {
        let mut all: Vec<bool> =
            (0..self.children.len()).map(|at| self.name(at).to_lowercase().contains(filter)).collect();
        for at in (0..all.len()).rev() {
            all[at] |= self.children[at].iter().any(|child| all[*child]);
        }
        all
    }

    fn row(&self, at: usize, key: String, mark: &str, depth: usize) -> Row {
        let inclusive = if at == 0 { self.all } else { self.inclusive[at] };
        let own = self.flame.joules[at];
        let name = format!("{}{mark}{}", "  ".repeat(depth.min(100)), self.name(at));
        let calls = self.flame.calls.get(at).copied().unwrap_or(0);
        row(key, (inclusive, self.share(inclusive), own), calls, name)
    }

    fn add_to(&self, rows: &mut Vec<Row>, shown: &mut Shown) {
        let matching = self.matching(shown.filter);
        let mut stack = vec![Next { at: 0, depth: 0, caller: String::new() }];
        while let Some(Next { at, depth, caller }) = stack.pop() {
            let key = format!("{caller}{SEPARATOR}{}", self.name(at));
            let is_open = self.is_open(at, &key, shown);
            let mark = match (self.children[at].is_empty(), is_open) {
                (true, _) => "  ",
                (false, true) => "- ",
                (false, false) => "+ ",
            };
            rows.push(self.row(at, key.clone(), mark, depth));
            if at == 0 {
                self.add_unattributed(rows, &key);
            }
            if is_open {
                let children = self.children[at].iter().filter(|child| matching[**child]);
                let mut sorted: Vec<Row> = children.map(|at| self.row(*at, at.to_string(), "", 0)).collect();
                sort_rows(&mut sorted, shown.sort);
                let next = sorted.iter().rev().filter_map(|row| row.key.parse().ok());
                stack.extend(next.map(|at| Next { at, depth: depth + 1, caller: key.clone() }));
            }
        }
    }

    fn is_open(&self, at: usize, key: &str, shown: &mut Shown) -> bool {
        if !shown.filter.is_empty() {
            return true;
        }
        let is_large = at == 0 || self.share(self.inclusive[at]) >= OPEN_SHARE;
        // A call path opens when it becomes large, and small ones stay open, so that lines do not come and go.
        let known = shown.open.entry(key.to_owned()).or_default();
        known.is_open |= is_large && !known.is_chosen;
        known.is_open
    }

    fn add_unattributed(&self, rows: &mut Vec<Row>, key: &str) {
        let [idle, _, lost] = REST_NAMES;
        let parts = [(idle, self.flame.idle_joules), (lost, self.flame.lost_joules)];
        for (name, joules) in parts.into_iter().filter(|(_, joules)| *joules > 0.0) {
            let key = format!("{key}{SEPARATOR}{SEPARATOR}{name}");
            rows.push(row(key, (joules, self.share(joules), joules), 0, format!("    {name}")));
        }
    }
}

fn row(key: String, (joules, share, own): (f64, f64, f64), calls: u64, name: String) -> Row {
    let values = vec![
        Value::Joules(joules),
        Value::Share(share),
        Value::Joules(own),
        Value::Calls(calls),
        Value::Bar(share),
        Value::Text(name),
    ];
    Row { key, values, warns: false }
}

/// Returns the table of the page's flame graphs, one below the other: of a live page, that of all devices and that of GPUs with
/// kernels.
pub fn tree(page: Option<&Page>, mut shown: Shown) -> Table {
    let mut rows = Vec::new();
    let tables = page.and_then(|page| page.tables.as_ref());
    for flame in tables.iter().flat_map(|tables| &tables.flames).filter(|flame| !flame.caller.is_empty()) {
        let names = tables.map_or(&[][..], |tables| &tables.names);
        let whole = page.map_or(0.0, |page| page.totals.joules);
        Boxes::of(flame, names, whole).add_to(&mut rows, &mut shown);
    }
    Table { columns: COLUMNS.into(), rows, nothing: NO_CALL_PATHS }
}

/// Opens or closes a call path; with `None`, an open one is closed and a closed one opened.
pub fn toggle(open: &mut Open, key: &str, to: Option<bool>) {
    if let Some(known) = open.get_mut(key) {
        *known = Openness { is_open: to.unwrap_or(!known.is_open), is_chosen: true };
    }
}

/// Opens the first line of each tree, so that the call paths of another rank are not hidden by what was closed before.
pub fn open_all_devices(open: &mut Open) {
    open.retain(|key, _| key.matches(SEPARATOR).count() > 1);
}

/// Opens all callers of a call path.
pub fn open_above(open: &mut Open, key: &str) {
    for (end, _) in key.match_indices(SEPARATOR) {
        if let Some(known) = open.get_mut(&key[..end]) {
            known.is_open = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::terminal::paint::{empty, framed};
    use crate::terminal::table::DrawOptions;
    use ampere_report::page::Tables;

    /// In this flame graph, main calls init and solve, and solve calls MPI_Send.
    pub fn flame() -> (Flame, Vec<String>) {
        let names = ["main", "solve", "MPI_Send", "init"].map(str::to_owned).to_vec();
        let flame = Flame {
            title: "all devices".to_owned(),
            idle_joules: 10.0,
            caller: vec![0, 0, 1, 2, 1],
            name: vec![0, 0, 1, 2, 3],
            joules: vec![0.0, 5.0, 50.0, 33.0, 2.0],
            calls: vec![0, 1, 7, 7, 1],
            ..Flame::default()
        };
        (flame, names)
    }

    fn drawn(open: &mut Open, sort: Sort, filter: &str) -> String {
        let (flame, names) = flame();
        let tables = Tables { names, flames: vec![flame], ..Tables::default() };
        let mut rows = Vec::new();
        Boxes::of(&tables.flames[0], &tables.names, 200.0)
            .add_to(&mut rows, &mut Shown { open, sort, filter });
        let table = Table { columns: COLUMNS.into(), rows, nothing: "" };
        let mut picture = empty(80, 8);
        let area = *picture.area();
        table.draw(&mut picture, DrawOptions { area, first: 0, selected: None, sort: Some(sort), digits: 4 });
        framed(&picture)
    }

    #[test]
    fn large_call_paths_are_open_and_all_can_be_opened_closed_sorted_and_filtered() {
        let mut open = Open::new();
        expect_test::expect![[r#"
            |      JOULES▼  OF TOTAL       SELF J       CALLS CALL PATH
            |        100.0     50.0%            0             - all devices
            |         10.0      5.0%        10.00                 (idle)
            |         90.0     45.0%         5.00           1   - main
            |         83.0     41.5%        50.00           7     - solve
            |         33.0     16.5%        33.00           7         MPI_Send
            |          2.0      1.0%         2.00           1       init
            |
        "#]]
        .assert_eq(&drawn(&mut open, Sort::default(), ""));
        let solve = open.keys().find(|key| key.ends_with("solve")).expect("solve").clone();
        toggle(&mut open, &solve, None);
        let closed = drawn(&mut open, Sort { column: 0, reversed: true }, "");
        expect_test::expect![[r#"
            |      JOULES▲  OF TOTAL       SELF J       CALLS CALL PATH
            |        100.0     50.0%            0             - all devices
            |         10.0      5.0%        10.00                 (idle)
            |         90.0     45.0%         5.00           1   - main
            |          2.0      1.0%         2.00           1       init
            |         83.0     41.5%        50.00           7     + solve
            |
            |
        "#]]
        .assert_eq(&closed);
        let filtered = drawn(&mut open, Sort::default(), "mpi_");
        assert!(filtered.contains("MPI_Send") && !filtered.contains("init"), "{filtered}");
        open_above(&mut open, &format!("{solve}{SEPARATOR}MPI_Send"));
        assert!(drawn(&mut open, Sort::default(), "").contains("MPI_Send"));
        // What was small when it was first shown opens when it becomes large.
        open.values_mut().for_each(|known| *known = Openness::default());
        assert!(drawn(&mut open, Sort::default(), "").contains("MPI_Send"));
    }

    #[test]
    fn a_malformed_flame_graph_does_not_cause_a_panic() {
        let flame = Flame {
            caller: vec![9, 9, 9],
            name: vec![7, 7],
            joules: vec![1.0, f64::NAN, 2.0],
            ..Flame::default()
        };
        let (mut rows, mut open) = (Vec::new(), Open::new());
        let shown = &mut Shown { open: &mut open, sort: Sort::default(), filter: "" };
        Boxes::of(&flame, &[], 0.0).add_to(&mut rows, shown);
        assert_eq!(rows.len(), 2);
    }
}
