//! Events that were counted with samples, such as instructions: in words, and as a table of functions.

use crate::first::screen::{Column, Names, Table};
use ampere_figures::events::EventSum;
use ampere_figures::summary::{Run, Summary, topmost};
use ampere_model::digits::{column, percent, significant};
use ampere_model::order::largest_first;
use ampere_model::text::short;
use std::collections::BTreeMap;

/// The bytes of a cache line, which a miss fetches.
const LINE_BYTES: f64 = 64.0;
const DIGITS: usize = 3;
const NAME_CHARS_MAX: usize = 32;

/// Returns a sentence for each event: how often it happened, in all and per joule of the run, and how many of its occurrences are
/// in no sample.
pub fn words(run: &Run) -> Vec<String> {
    let about = if run.energy == "estimated" { "~" } else { "" };
    run.events.iter().map(|event| sentence(event, about)).collect()
}

fn sentence(event: &EventSum, about: &str) -> String {
    let EventSum { count, in_call_paths, rest, per_joule, .. } = event;
    let name = short(&event.name, NAME_CHARS_MAX);
    let Some(count) = count else {
        return format!(
            "{name}: {} in samples; how many there were in all is not known",
            prefixed(*in_call_paths as f64)
        );
    };
    let mut line = format!("{name}: {}", prefixed(*count as f64));
    if let Some(rate) = per_joule {
        line += &format!(", {about}{} per joule", prefixed(*rate));
    }
    if let Some(rest) = rest.filter(|rest| *rest > 0) {
        line += &format!(
            "; {} of them ({}) are in no sample",
            prefixed(rest as f64),
            percent(rest as f64, *count as f64)
        );
    }
    line
}

/// Writes a figure with three digits and a prefix: `1.23 G`.
fn prefixed(figure: f64) -> String {
    let prefixes = [(1e15, " P"), (1e12, " T"), (1e9, " G"), (1e6, " M"), (1e3, " k"), (1.0, "")];
    let fitting = prefixes.into_iter().find(|(size, _)| figure >= 0.9995 * size);
    let (size, prefix) = fitting.unwrap_or((1.0, ""));
    let is_count = size == 1.0 && figure.fract() == 0.0;
    let digits = if is_count { format!("{figure}") } else { significant(figure / size, DIGITS) };
    format!("{digits}{prefix}")
}

/// The joules and the events of a function.
struct Row<'a> {
    region: &'a str,
    joules: f64,
    counts: Vec<u64>,
}

/// Returns the table of the functions with the most joules, at most `rows`; `None` if nothing was counted. Functions without a
/// sample are left out.
pub fn table<'a>(summary: &'a Summary, rows: usize, digits: usize, unit: &str) -> Option<Table<'a>> {
    let table = &summary.events;
    let mut by_region: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    for row in &table.rows {
        let region = summary.name(summary.paths.name[row.at.path as usize]);
        let sums = by_region.entry(region).or_insert_with(|| vec![0; table.names.len()]);
        sums.iter_mut().zip(&row.counts).for_each(|(sum, count)| *sum = sum.saturating_add(*count));
    }
    let mut joules: BTreeMap<&str, f64> = BTreeMap::new();
    let views = topmost(summary).flat_map(|device| device.shown()).filter(|view| view.view == "ranks");
    for row in views.flat_map(|view| &view.regions) {
        *joules.entry(&*row.region).or_default() += row.figures.own_joules();
    }
    let row = |(region, counts): (&'a str, Vec<u64>)| Row {
        region,
        joules: joules.get(region).copied().unwrap_or(0.0),
        counts,
    };
    let mut all: Vec<Row> = by_region.into_iter().map(row).collect();
    largest_first(&mut all, |row| row.joules);
    all.truncate(rows);
    let of_joules: Vec<f64> = all.iter().map(|row| row.joules).collect();
    let mut before = vec![Column::new(unit, column(&of_joules, digits))];
    for (at, name) in table.names.iter().enumerate() {
        let counts = all.iter().map(|row| prefixed(row.counts[at] as f64)).collect();
        let shown = short(name, NAME_CHARS_MAX);
        before.push(Column::new(&shown, counts).dispensable(1));
        let factor = if name == "cache_misses" { LINE_BYTES } else { 1.0 };
        let head = if name == "cache_misses" { "~bytes/J".to_owned() } else { format!("{shown}/J") };
        let rate = |row: &Row| match row.joules > 0.0 {
            true => prefixed(factor * row.counts[at] as f64 / row.joules),
            false => String::new(),
        };
        before.push(Column::new(&head, all.iter().map(rate).collect()));
    }
    let place = |name: &str| table.names.iter().position(|known| known == name);
    if let Some((instructions, cycles)) = place("instructions").zip(place("cycles")) {
        let rate = |row: &Row| match row.counts[cycles] {
            0 => String::new(),
            count => significant(row.counts[instructions] as f64 / count as f64, DIGITS),
        };
        before.push(Column::new("per cycle", all.iter().map(rate).collect()).dispensable(2));
    }
    let names = Names::Functions(all.iter().map(|row| row.region).collect());
    (!all.is_empty()).then(|| Table { before, head: "function".to_owned(), names, after: Vec::new() })
}

/// Returns an explanation of the table's columns.
pub fn explanation(summary: &Summary) -> String {
    let bytes = if summary.events.names.iter().any(|name| name == "cache_misses") {
        "; ~bytes/J: an estimate, 64 bytes for each cache miss"
    } else {
        ""
    };
    format!(
        "counted in the threads, and read with each sample: what has happened since the thread's last sample is the function's{bytes}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_told_with_what_is_in_no_sample() {
        let sum = |count, in_call_paths, rest, per_joule| EventSum {
            name: "instructions".to_owned(),
            count,
            in_call_paths,
            rest,
            per_joule,
        };
        let events = vec![
            sum(Some(12_345_678_901), 12_000_000_000, Some(345_678_901), Some(1.5e9)),
            sum(Some(512), 512, Some(0), None),
            sum(None, 4096, None, None),
        ];
        let run = Run { events, energy: "estimated".to_owned(), ..Run::default() };
        let expected = [
            "instructions: 12.3 G, ~1.50 G per joule; 346 M of them (2.8 %) are in no sample",
            "instructions: 512",
            "instructions: 4.10 k in samples; how many there were in all is not known",
        ];
        assert_eq!(words(&run), expected);
    }
}
