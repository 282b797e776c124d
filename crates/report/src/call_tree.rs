//! Writes the tree of call paths as text: each function below its caller, with the joules of everything that it calls.

use crate::first::names;
use crate::first::screen::{Column, Names, Screen, Table};
use crate::text::own_unit;
use crate::tree::{Frames, ROOT, Tree, whole_views};
use ampere_figures::shares::{self, Whole};
use ampere_figures::summary::Summary;
use ampere_model::digits::{self, column, percent};
use ampere_model::order::largest_first;

/// Smaller parts of the whole are not shown.
const PART_MIN: f64 = 0.01;
/// The indentation of a function below its caller, in characters.
const STEP: usize = 2;
/// The maximum indentation of a name.
const INDENT_MAX: usize = 40;

/// Functions that others call have most of the joules if they have at least this fraction.
const CALLED_PART_MIN: f64 = 0.5;

/// Whether functions that others call have most of the joules. In this case the tree shows more than the first lines, which have
/// no inclusive joules.
pub fn has_most_joules_in_callees(summary: &Summary) -> bool {
    let (mut all, mut called) = (0.0, 0.0);
    for row in whole_views(summary).iter().flat_map(|(_, view)| view.callpaths.iter()) {
        let joules = row.figures.own_joules();
        all += joules;
        called += if summary.paths.parent[row.path as usize].is_some() { joules } else { 0.0 };
    }
    all > 0.0 && called >= CALLED_PART_MIN * all
}

/// A line of the tree.
struct Shown {
    depth: usize,
    /// The function, preceded by those of its callers that call nothing else.
    names: Vec<String>,
    /// All inclusive joules.
    joules: f64,
    /// The inclusive joules by which functions are compared: the dynamic ones, if they are known.
    compared: f64,
    /// The exclusive joules by which functions are compared.
    own: f64,
}

pub fn render(summary: &Summary, screen: Screen) -> String {
    let frames = Frames::of(summary);
    let trees = [frames.whole(), frames.of_kernels()];
    let has_frames = |tree: &&Tree| tree.called().iter().any(|called| !called.is_empty());
    let trees: Vec<&Tree> = trees.iter().filter(has_frames).collect();
    // With --view kernels, both trees are of kernels.
    let trees = if trees.first().is_some_and(|tree| tree.is_of_kernels()) { &trees[..1] } else { &trees[..] };
    if trees.is_empty() {
        return "no call path has joules\n".to_owned();
    }
    trees.iter().map(|tree| text(summary, tree, screen)).collect::<Vec<_>>().join("\n")
}

fn text(summary: &Summary, tree: &Tree, screen: Screen) -> String {
    let is_dynamic = tree.idle_dynamic.is_some();
    let whole = Whole::of(summary).joules(is_dynamic);
    let lines = lines(tree, is_dynamic, [Whole::of(summary).total, whole]);
    let digits = digits::of_energy(&summary.run.energy);
    let figures = |of: &dyn Fn(&Shown) -> f64| column(&lines.iter().map(of).collect::<Vec<_>>(), digits);
    let unit = own_unit(is_dynamic, "J");
    let mut before = vec![Column::new("J", figures(&|line| line.joules))];
    if is_dynamic {
        before.push(Column::new(&unit, figures(&|line| line.compared)));
    }
    let shares = lines.iter().map(|line| percent(line.compared, whole)).collect();
    before.push(Column::new(shares::head(is_dynamic), shares));
    before.push(Column::new("in itself", figures(&|line| line.own)));
    let widths = before.iter().map(Column::width).map(|width| width + 2).sum::<usize>();
    let name = |line: &Shown| {
        let indent = (STEP * line.depth).min(INDENT_MAX);
        let all: Vec<&str> = line.names.iter().map(String::as_str).collect();
        format!("{:indent$}{}", "", names::path(&all, screen.width.saturating_sub(widths + indent).max(16)))
    };
    let names = Names::Texts(lines.iter().map(name).collect());
    let table = Table { before, head: tree.name.clone(), names, after: Vec::new() };
    table.lines(screen).iter().map(|line| line.shown(screen) + "\n").collect()
}

/// Returns the lines of frames that have a large part of one of `wholes`: all joules, and the joules by which functions are
/// compared.
fn lines(tree: &Tree, is_dynamic: bool, wholes: [f64; 2]) -> Vec<Shown> {
    let measured = |frame: u32| {
        let sum = tree.sum(frame);
        let [inclusive, own] =
            if is_dynamic { [sum.dynamic, sum.exclusive_dynamic] } else { [sum.joules, sum.exclusive] };
        (inclusive, own)
    };
    let is_large = |frame: &u32| {
        let parts = [tree.sum(*frame).joules, measured(*frame).0];
        parts.iter().zip(wholes).any(|(joules, whole)| *joules >= PART_MIN * whole)
    };
    let mut called = tree.called();
    for below in &mut called {
        below.retain(is_large);
        largest_first(below, |frame| measured(*frame).0);
    }
    let mut lines = Vec::new();
    let mut waiting: Vec<(u32, usize)> =
        called[ROOT as usize].iter().rev().map(|frame| (*frame, 0)).collect();
    while let Some((mut frame, depth)) = waiting.pop() {
        let mut names = vec![tree.name_of(frame)];
        while let [only] = called[frame as usize][..]
            && tree.sum(only).joules >= (1.0 - PART_MIN) * tree.sum(frame).joules
        {
            frame = only;
            names.push(tree.name_of(frame));
        }
        let (compared, own) = measured(frame);
        lines.push(Shown { depth, names, joules: tree.sum(frame).joules, compared, own });
        waiting.extend(called[frame as usize].iter().rev().map(|below| (*below, depth + 1)));
    }
    lines
}
