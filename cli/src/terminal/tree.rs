//! Shows call paths as a tree with nodes that can be opened and closed.

use super::table::{Column, Row, Sort, Table, Value, column, sort_rows};
use ampere_figures::summary::REST_NAMES;
use ampere_report::page::{Flame, Page, Tables};
use std::collections::HashMap;

const COLUMNS: &[Column] = &[
    column("TOTAL J", 12, 0),
    column("OF TOTAL", 9, 34),
    column("SELF J", 12, 60),
    column("CALLS", 11, 70),
    column("", 24, 120),
    column("CALL PATH", 0, 0),
];
/// The columns if the dynamic joules of each call path are known.
const COLUMNS_DYNAMIC: &[Column] = &[
    column("DYNAMIC J", 12, 0),
    column("TOTAL J", 12, 64),
    column("OF DYNAMIC", 11, 34),
    column("SELF DYN J", 12, 90),
    column("CALLS", 11, 102),
    column("", 24, 150),
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
    /// All inclusive joules of each box.
    inclusive: Vec<f64>,
    /// The inclusive dynamic joules of each box; `None` unless the table has them.
    dynamic: Option<Vec<f64>>,
    children: Vec<Vec<usize>>,
    /// The joules of the run, to which shares refer.
    whole: f64,
}

/// The joules of a line.
#[derive(Clone, Copy, Default)]
struct Joules {
    /// The inclusive joules.
    all: f64,
    /// The dynamic part of the inclusive joules; `None` unless lines show dynamic joules.
    dynamic: Option<f64>,
    /// The exclusive joules, or their dynamic part if lines show dynamic joules.
    own: f64,
}

impl Joules {
    /// Returns the joules by which lines are sorted, and from which shares are computed.
    fn compared(self) -> f64 {
        self.dynamic.unwrap_or(self.all)
    }
}

/// A box that is to be shown, its caller, and its depth.
struct Next {
    at: usize,
    depth: usize,
    caller: String,
}

impl<'a> Boxes<'a> {
    /// `dynamic`: the dynamic joules of the run; `None` unless lines show dynamic joules. `total`: all of its joules.
    fn of(flame: &'a Flame, names: &'a [String], dynamic: Option<f64>, total: f64) -> Boxes<'a> {
        let count = flame.caller.len().min(flame.name.len()).min(flame.joules.len());
        let mut inclusive = flame.joules[..count].to_vec();
        let mut of_dynamic = dynamic.map(|_| {
            let known = flame.dynamic_joules.iter().copied();
            known.chain(std::iter::repeat(0.0)).take(count).collect::<Vec<f64>>()
        });
        let mut children = vec![Vec::new(); count];
        for at in (1..count).rev() {
            // A caller must come before the functions that it calls, even if a collector reports something else.
            let caller = (flame.caller[at] as usize).min(at - 1);
            for sums in std::iter::once(&mut inclusive).chain(&mut of_dynamic) {
                sums[caller] += sums[at];
            }
            children[caller].push(at);
        }
        let mut boxes = Boxes { flame, names, inclusive, dynamic: of_dynamic, children, whole: 0.0 };
        let whole = dynamic.unwrap_or(total);
        boxes.whole = if whole > 0.0 || count == 0 { whole } else { boxes.joules(0).compared() };
        boxes
    }

    /// Returns the joules of a box. Those of the first box include the joules that belong to no call path.
    fn joules(&self, at: usize) -> Joules {
        let Flame { idle_joules, idle_dynamic_joules, lost_joules, .. } = self.flame;
        let more = |joules: f64| if at == 0 { joules } else { 0.0 };
        let own = self.dynamic.as_ref().map_or(&self.flame.joules, |_| &self.flame.dynamic_joules);
        Joules {
            all: self.inclusive[at] + more(idle_joules + lost_joules),
            dynamic: self.dynamic.as_ref().map(|sums| sums[at] + more(*idle_dynamic_joules)),
            own: own.get(at).copied().unwrap_or_default(),
        }
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
        let name = format!("{}{mark}{}", "  ".repeat(depth.min(100)), self.name(at));
        let calls = self.flame.calls.get(at).copied().unwrap_or(0);
        self.line(key, self.joules(at), calls, name)
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
        let is_large = at == 0 || self.share(self.joules(at).compared()) >= OPEN_SHARE;
        // A call path opens when it becomes large, and small ones stay open, so that lines do not come and go.
        let known = shown.open.entry(key.to_owned()).or_default();
        known.is_open |= is_large && !known.is_chosen;
        known.is_open
    }

    fn add_unattributed(&self, rows: &mut Vec<Row>, key: &str) {
        let [idle, _, lost] = REST_NAMES;
        let Flame { idle_joules, idle_dynamic_joules, lost_joules, .. } = self.flame;
        let parts = [(idle, *idle_joules, *idle_dynamic_joules), (lost, *lost_joules, 0.0)];
        for (name, all, dynamic) in parts.into_iter().filter(|(_, joules, _)| *joules > 0.0) {
            let key = format!("{key}{SEPARATOR}{SEPARATOR}{name}");
            let dynamic = self.dynamic.as_ref().map(|_| dynamic);
            let joules = Joules { all, dynamic, own: dynamic.unwrap_or(all) };
            rows.push(self.line(key, joules, 0, format!("    {name}")));
        }
    }

    fn line(&self, key: String, joules: Joules, calls: u64, name: String) -> Row {
        let share = self.share(joules.compared());
        let all = joules.dynamic.map(|_| Value::Joules(joules.all));
        let values = std::iter::once(Value::Joules(joules.compared())).chain(all).chain([
            Value::Share(share),
            Value::Joules(joules.own),
            Value::Calls(calls),
            Value::Bar(share),
            Value::Text(name),
        ]);
        Row { key, values: values.collect(), warns: false }
    }
}

/// Returns a table of the page's flame graphs, one below the other. A live page has one for all devices, and one for GPUs
/// with kernels.
pub fn tree(page: Option<&Page>, shown: Shown) -> Table {
    let tables = page.and_then(|page| page.tables.as_deref());
    of_tables(tables, page.map_or(0.0, |page| page.totals.joules), shown)
}

/// `total`: all joules of the run.
fn of_tables(tables: Option<&Tables>, total: f64, mut shown: Shown) -> Table {
    let mut rows = Vec::new();
    let flames = || tables.iter().flat_map(|tables| &tables.flames).filter(|flame| !flame.caller.is_empty());
    let is_dynamic = flames().all(|flame| !flame.dynamic_joules.is_empty());
    let dynamic = tables.and_then(|tables| tables.dynamic_joules).filter(|_| is_dynamic);
    for flame in flames() {
        let names = tables.map_or(&[][..], |tables| &tables.names);
        Boxes::of(flame, names, dynamic, total).add_to(&mut rows, &mut shown);
    }
    let columns = if dynamic.is_some() { COLUMNS_DYNAMIC } else { COLUMNS };
    Table { columns: columns.into(), rows, nothing: NO_CALL_PATHS }
}

/// Opens or closes a call path; with `None`, an open one is closed and a closed one opened.
pub fn toggle(open: &mut Open, key: &str, to: Option<bool>) {
    if let Some(known) = open.get_mut(key) {
        *known = Openness { is_open: to.unwrap_or(!known.is_open), is_chosen: true };
    }
}

/// Opens the first line of each tree again. Otherwise a line that was closed for one rank would hide the call paths of another.
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
        Boxes::of(&tables.flames[0], &tables.names, None, 200.0)
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
            |     TOTAL J▼  OF TOTAL       SELF J       CALLS CALL PATH
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
            |     TOTAL J▲  OF TOTAL       SELF J       CALLS CALL PATH
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
        // A call path that was small when it was first shown opens when it becomes large.
        open.values_mut().for_each(|known| *known = Openness::default());
        assert!(drawn(&mut open, Sort::default(), "").contains("MPI_Send"));
    }

    /// MPI_Send has the most joules, but it waits: hardly any of them are dynamic.
    #[test]
    fn call_paths_are_sorted_and_opened_by_dynamic_joules_if_these_are_known() {
        let (flame, names) = flame();
        let dynamic_joules = vec![0.0, 1.0, 0.4, 0.1, 8.5];
        let flame = Flame { dynamic_joules, idle_dynamic_joules: 2.0, ..flame };
        let tables = Tables { names, flames: vec![flame], dynamic_joules: Some(12.0), ..Tables::default() };
        let mut open = Open::new();
        let table =
            of_tables(Some(&tables), 200.0, Shown { open: &mut open, sort: Sort::default(), filter: "" });
        let mut picture = empty(110, 7);
        let area = *picture.area();
        table.draw(
            &mut picture,
            DrawOptions { area, first: 0, selected: None, sort: Some(Sort::default()), digits: 4 },
        );
        expect_test::expect![[r#"
            |   DYNAMIC J▼      TOTAL J  OF DYNAMIC   SELF DYN J       CALLS CALL PATH
            |        12.00        100.0      100.0%            0             - all devices
            |         2.00         10.0       16.7%        2.000                 (idle)
            |        10.00         90.0       83.3%        1.000           1   - main
            |         8.50          2.0       70.8%        8.500           1       init
            |         0.50         83.0        4.2%        0.400           7     + solve
            |
        "#]]
        .assert_eq(&framed(&picture));
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
        Boxes::of(&flame, &[], None, 0.0).add_to(&mut rows, shown);
        assert_eq!(rows.len(), 2);
    }
}
