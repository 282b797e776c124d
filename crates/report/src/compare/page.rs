//! A comparison as one page, which needs no server and no network. The template escapes all names, because they come from
//! applications.

use super::figures::{By, Kind};
use super::ranked::Ranked;
use super::{Comparison, Row, programs, shown, text, verdict};
use ampere_model::regions::is_mpi;
use ampere_model::text::printable;
use maud::{DOCTYPE, Markup, PreEscaped, html};

const STYLE: &str = include_str!("page.css");
/// The maximum number of rows of a table that are not folded.
const ROWS_MAX: usize = 15;
/// The maximum number of rows that are folded. Other formats have the rest.
const FOLDED_MAX: usize = 50;

pub fn render(comparison: &Comparison) -> String {
    let sections = html! {
        @for by in By::ALL {
            @let ranked = comparison.ranked(by);
            @let count = ranked.count();
            // A single device has all joules of its run.
            @if count > 0 && !(by == By::Device && count == 1) {
                (section(comparison, by, &ranked))
            }
        }
    };
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { "ampere: runs compared" }
                style { (PreEscaped(STYLE)) }
            }
            body {
                (head(comparison, &sections.0))
                (sections)
            }
        }
    }
    .into_string()
}

/// Makes the part of the page above the tables. `below` is the markup of the tables.
fn head(comparison: &Comparison, below: &str) -> Markup {
    let notes: Vec<&String> =
        comparison.notes.iter().filter(|note| programs::is_needed(note, below)).collect();
    html! {
        header {
            h1 { "ampere: runs compared" }
            @let verdicts = verdict::verdicts(comparison);
            @for (number, verdict) in (2..).zip(&verdicts) {
                p.verdict { @if verdicts.len() > 1 { (number) ": " } (with_capital(verdict)) "." }
            }
            @for (number, runs) in comparison.groups.iter().enumerate() {
                p {
                    strong { (number + 1) }
                    @for (names, line) in text::described(runs) { " " code { (names.join(", ")) ": " (line) } br; }
                }
            }
            @if !notes.is_empty() {
                div.notes { h2 { "Notes" } ul { @for note in notes { li { (printable(note)) } } } }
            }
            p.small {
                "Changes are relative to 1. "
                @if let Some(words) = comparison.not_compared() { (words) ". " }
                @if comparison.per != super::Per::Run { "Joules, watts, calls and a function's seconds are per " (comparison.per.name()) ". " }
                @if comparison.has_samples() { "± after a mean: the standard deviation of a group's runs. " (with_capital(&text::method(below))) "." }
            }
        }
    }
}

fn with_capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| format!("{}{}", first.to_uppercase(), letters.as_str()))
}

/// Makes a table of the rows that differ. Rows without a clear difference, and those above the maximum number, are folded below it.
fn section(comparison: &Comparison, by: By, ranked: &Ranked) -> Markup {
    let all = [&ranked.differ[..], &ranked.by_chance, &ranked.unclear].concat();
    let chance = match ranked.by_chance.len() {
        0 => String::new(),
        count => format!("{count} that may differ by chance, because many rows are tested, and "),
    };
    // There are only a few figures of the runs themselves, so all are shown.
    let shown_max = if by == By::Run { all.len() } else { ranked.differ.len().min(ROWS_MAX) };
    let (first, rest) = all.split_at(shown_max);
    let is_unclear = shown_max == ranked.differ.len();
    html! {
        section {
            h2 { (heading(by, comparison.kind)) }
            @if first.is_empty() { p.small { "Nothing differs clearly." } }
            @else { (table(comparison, first, by)) }
            @if !rest.is_empty() {
                details {
                    summary {
                        @if is_unclear { (chance) (ranked.unclear.len()) " without a clear difference" }
                        @else { (rest.len()) " more" }
                    }
                    (table(comparison, &rest[..rest.len().min(FOLDED_MAX)], by))
                    @if rest.len() > FOLDED_MAX { p.small { "and " (rest.len() - FOLDED_MAX) " more; -f csv and -f json list all" } }
                }
            }
            @if let Some((count, sum)) = &ranked.small {
                @let cells = comparison.cells(&[sum]).concat();
                @let [from, to] = [0, sum.groups.len() - 1].map(|at| &cells[at].0);
                p.small { (comparison.name_of_small(*count, usize::MAX)) ": " (from) " J in 1, " (to) " J in " (sum.groups.len()) }
            }
        }
    }
}

fn table(comparison: &Comparison, rows: &[&Row], by: By) -> Markup {
    let has_samples = comparison.has_samples();
    let most = (by != By::Run).then(|| scale(rows));
    html! {
        table {
            thead {
                tr {
                    @for at in 0..comparison.groups.len() {
                        th.number { (at + 1) }
                        @if has_samples { th.number { "deviation" } }
                        @if at > 0 { th.number { "change" } @if has_samples { th.number { (text::range_head()) } } @if most.is_some() { th {} } }
                    }
                    th { @if by == By::Run { "figure" } @else { (by.name()) } }
                }
            }
            tbody { @for (row, cells) in rows.iter().zip(comparison.cells(rows)) { (line_of(comparison, row, &cells, most)) } }
        }
    }
}

/// Makes a row. `most` is the scale of its bars, if it has bars.
fn line_of(comparison: &Comparison, row: &Row, cells: &[(String, String)], most: Option<f64>) -> Markup {
    let has_samples = comparison.has_samples();
    let unclear = row.is_significant() == Some(false);
    html! {
        tr.rest[has_samples && unclear] {
            @for (at, (group, (mean, deviation))) in row.groups.iter().zip(cells).enumerate() {
                td.number data-head=(at + 1) { (mean) }
                @if has_samples { td.number.small { "± " @if group.deviation.is_some() { (deviation) } @else { "?" } } }
                @if at > 0 {
                    @let difference = &row.differences[at - 1];
                    td.number data-head="change" { (comparison.change(row, at)) }
                    @if has_samples {
                        td.number { (comparison.range(row, at)) }
                    }
                    @if let Some(most) = most {
                        td.span { @if comparison.is_comparable(row) { (bar(difference.of_means, difference.interval, most, unclear)) } }
                    }
                }
            }
            td { code.mpi[is_mpi(&row.name)] { (printable(&shown(row))) } }
        }
    }
}

/// Returns the largest absolute value among the differences in a table and the ends of their intervals.
fn scale(rows: &[&Row]) -> f64 {
    let ends = rows.iter().flat_map(|row| &row.differences).flat_map(|difference| {
        let (low, high) = difference.interval.unwrap_or_default();
        [difference.of_means, low, high]
    });
    ends.map(f64::abs).fold(0.0, f64::max)
}

/// Draws a difference as a bar from the middle, to the right for an increase and to the left for a decrease, with its interval as
/// a line over it.
fn bar(difference: f64, interval: Option<(f64, f64)>, most: f64, unclear: bool) -> Markup {
    let at = |joules: f64| if most > 0.0 { 50.0 + 50.0 * joules / most } else { 50.0 };
    let between = |from: f64, to: f64| {
        let (left, right) = (at(from.min(to)), at(from.max(to)));
        format!("left:{left:.1}%;width:{:.1}%", right - left)
    };
    html! {
        div {
            i.more[difference > 0.0].unclear[unclear] style=(between(0.0, difference)) {}
            @if let Some((low, high)) = interval { b style=(between(low, high)) {} }
        }
    }
}

fn heading(by: By, kind: Kind) -> String {
    match by {
        By::Run => "The runs".to_owned(),
        by => with_capital(&format!("{} by {}", by.head(kind), by.name())),
    }
}
