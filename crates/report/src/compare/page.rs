//! A comparison as one page, which needs no server and no network. Names come from applications: the template escapes all of
//! them.

use super::figures::By;
use super::{Comparison, Row, change, interval, left_out, line, shown, text};
use ampere_model::regions::is_mpi;
use ampere_model::text::{joules, printable};
use maud::{DOCTYPE, Markup, PreEscaped, html};

const STYLE: &str = include_str!("page.css");
/// Rows of each table: the rest is in other forms.
const ROWS_MAX: usize = 50;

pub fn render(comparison: &Comparison) -> String {
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
                (head(comparison))
                @let rows: Vec<&Row> =
                    comparison.rows.iter().filter(|row| row.by == By::Run && !row.is_nothing()).collect();
                (table(comparison, "The runs", (&rows, 0), "figure"))
                @for by in [By::Device, By::Function, By::Kernel, By::CallPath] {
                    @let (rows, nothing) = comparison.sorted(by);
                    @if rows.len() + nothing > 0 {
                        (table(comparison, &heading(by, comparison.has_dynamic), (&rows, nothing), by.name()))
                    }
                }
            }
        }
    }
    .into_string()
}

fn head(comparison: &Comparison) -> Markup {
    html! {
        header {
            h1 { "ampere: runs compared" }
            @for (number, runs) in comparison.groups.iter().enumerate() {
                p { strong { (number + 1) } @for run in runs { " " code { (line(run)) } br; } }
            }
            @if !comparison.notes.is_empty() {
                div.notes { h2 { "Notes" } ul { @for note in &comparison.notes { li { (printable(note)) } } } }
            }
            p.small {
                "Changes are relative to 1. "
                @if comparison.per != super::Per::Run { "Joules, watts, calls and a function's seconds are per " (comparison.per.name()) ". " }
                @if comparison.has_samples() { "±: the standard deviation of a group's runs. " (sentence(&text::method())) }
            }
        }
    }
}

fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| format!("{}{}.", first.to_uppercase(), letters.as_str()))
}

/// `nothing`: rows that are nothing in any group.
fn table(comparison: &Comparison, title: &str, (rows, nothing): (&[&Row], usize), what: &str) -> Markup {
    let has_samples = comparison.has_samples();
    let is_of_one_unit = rows.iter().all(|row| row.by != By::Run);
    let most = is_of_one_unit.then(|| scale(rows));
    html! {
        section {
            h2 { (title) }
            table {
                thead {
                    tr {
                        @for at in 0..comparison.groups.len() {
                            th.number { (at + 1) }
                            @if has_samples { th.number { "deviation" } }
                            @if at > 0 { th.number { "change" } @if has_samples { th.number { "interval" } } @if most.is_some() { th {} } }
                        }
                        th { (what) }
                    }
                }
                tbody { @for row in rows.iter().take(ROWS_MAX) { (line_of(row, has_samples, most)) } }
            }
            @if let Some(words) = left_out(rows.len().saturating_sub(ROWS_MAX), nothing) { p.small { (words) ": -f csv and -f json have all" } }
        }
    }
}

/// `most`: the scale of its pictures, if it has some.
fn line_of(row: &Row, has_samples: bool, most: Option<f64>) -> Markup {
    let within = row.differences.iter().all(|difference| difference.is_within_noise() == Some(true));
    html! {
        tr.rest[has_samples && within] {
            @for (at, group) in row.groups.iter().enumerate() {
                td.number { (joules(group.mean)) }
                @if has_samples { td.number.small { "± " (group.deviation.map_or_else(|| "?".to_owned(), joules)) } }
                @if at > 0 {
                    @let difference = &row.differences[at - 1];
                    @let within = difference.is_within_noise();
                    td.number { (change(row.groups[0].mean, group.mean)) }
                    @if has_samples {
                        td.number { (interval(&row.groups[0], difference)) @if within == Some(true) { br; "within noise" } }
                    }
                    @if let Some(most) = most {
                        td.span { (bar(difference.of_means, difference.interval, most, within == Some(true))) }
                    }
                }
            }
            td { code.mpi[is_mpi(&row.name)] { (printable(&shown(row))) } }
        }
    }
}

/// The largest difference that a table shows, with its interval.
fn scale(rows: &[&Row]) -> f64 {
    let ends = rows.iter().take(ROWS_MAX).flat_map(|row| &row.differences).flat_map(|difference| {
        let (low, high) = difference.interval.unwrap_or_default();
        [difference.of_means, low, high]
    });
    ends.map(f64::abs).fold(0.0, f64::max)
}

/// The difference from the middle to the right, where it is more, or to the left; its interval as a line over it.
fn bar(difference: f64, interval: Option<(f64, f64)>, most: f64, within: bool) -> Markup {
    let at = |joules: f64| if most > 0.0 { 50.0 + 50.0 * joules / most } else { 50.0 };
    let between = |from: f64, to: f64| {
        let (left, right) = (at(from.min(to)), at(from.max(to)));
        format!("left:{left:.1}%;width:{:.1}%", right - left)
    };
    html! {
        div {
            i.more[difference > 0.0].within[within] style=(between(0.0, difference)) {}
            @if let Some((low, high)) = interval { b style=(between(low, high)) {} }
        }
    }
}

fn heading(by: By, has_dynamic: bool) -> String {
    let what = if by.shown(has_dynamic) > 0 { "Dynamic joules" } else { "Joules" };
    format!("{what} by {}", by.name())
}
