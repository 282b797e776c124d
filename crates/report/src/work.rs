//! Texts about units of work with their joules, and about ranges that are not frames.

use ampere_figures::summary::{Range, Run, Summary, Work};
use ampere_model::digits::{count, energy, significant};
use ampere_model::text::{plural, short};

/// The maximum number of names that are shown.
const NAMES_MAX: usize = 4;
const NAME_CHARS_MAX: usize = 32;
/// The number of digits of figures that are not counts.
const DIGITS: usize = 3;
/// Larger numbers are not exact in an `f64`.
const EXACT_MAX: f64 = (1u64 << 53) as f64;

/// Returns the parts of a line for each unit of work, the largest number first. `dynamic` is the sum of the run's dynamic
/// joules, if they are known for all devices.
pub fn lines(run: &Run, dynamic: Option<f64>) -> Vec<Vec<String>> {
    let mut all: Vec<&Work> = run.work.iter().collect();
    all.sort_by(|a, b| b.units.total_cmp(&a.units));
    let about = if run.energy == "estimated" { "~" } else { "" };
    let mut lines: Vec<Vec<String>> =
        all.iter().take(NAMES_MAX).map(|work| parts(work, dynamic, about)).collect();
    if all.len() > NAMES_MAX {
        lines.push(vec![format!(
            "{} of work in summary.json",
            plural((all.len() - NAMES_MAX) as u64, "more unit")
        )]);
    }
    lines
}

/// Returns the parts of a line for each name of ranges, the longest total time first.
pub fn range_lines(run: &Run) -> Vec<Vec<String>> {
    let mut all: Vec<&Range> = run.ranges.iter().collect();
    all.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    let mut lines: Vec<Vec<String>> = all.iter().take(NAMES_MAX).map(|range| parts_of_range(range)).collect();
    if all.len() > NAMES_MAX {
        lines.push(vec![format!(
            "{} of ranges in summary.json",
            plural((all.len() - NAMES_MAX) as u64, "more name")
        )]);
    }
    lines
}

/// Returns "12 of step (NVTX), 3.20 s together, 267 ms on average", and how many ranges have not ended.
fn parts_of_range(range: &Range) -> Vec<String> {
    let name = short(&range.name, NAME_CHARS_MAX);
    let mut line =
        vec![format!("{} of {name} ({})", count(range.count), short(&range.interface, NAME_CHARS_MAX))];
    if range.count > 0 {
        line.push(format!("{} together", seconds_text(range.seconds)));
        line.push(format!("{} on average", seconds_text(range.seconds / range.count as f64)));
    }
    if range.open > 0 {
        line.push(format!("{} not ended", count(range.open)));
    }
    line
}

/// Formats seconds, which may be very short: `1.77 ms`.
fn seconds_text(seconds: f64) -> String {
    let units = [(1.0, "s"), (1e-3, "ms"), (1e-6, "µs")];
    let fitting = units.into_iter().find(|(size, _)| seconds >= 0.9995 * size);
    let (size, unit) = fitting.unwrap_or((1e-9, "ns"));
    format!("{} {unit}", compact(seconds / size))
}

/// Returns one line for each unit of work, and for each name of ranges.
pub fn sentences(summary: &Summary) -> Vec<String> {
    let work = lines(&summary.run, None).into_iter().map(|parts| format!("Work: {}.", parts.join(", ")));
    let ranges = range_lines(&summary.run).into_iter().map(|parts| format!("Ranges: {}.", parts.join(", ")));
    work.chain(ranges).collect()
}

/// Returns "1 200 steps, 1.77 J each (0.565 per joule)", and the dynamic joules of each.
fn parts(work: &Work, dynamic: Option<f64>, about: &str) -> Vec<String> {
    let mut line = format!("{} {}", number(work.units), short(&work.name, NAME_CHARS_MAX));
    let Some(joules) = work.joules_per_unit else { return vec![line] };
    line.push_str(&format!(", {about}{} each", joules_text(joules)));
    if joules > 0.0 {
        line.push_str(&format!(" ({} per joule)", compact(1.0 / joules)));
    }
    let dynamic = dynamic.map(|dynamic| format!("{about}{} dynamic", joules_text(dynamic / work.units)));
    std::iter::once(line).chain(dynamic).collect()
}

fn number(units: f64) -> String {
    if units.fract() == 0.0 && units < EXACT_MAX { count(units as u64) } else { compact(units) }
}

/// Formats joules, which may be very few: `1.77 mJ`.
fn joules_text(joules: f64) -> String {
    let units = [(1e-3, "mJ"), (1e-6, "µJ"), (1e-9, "nJ")];
    let fitting = units.into_iter().find(|(size, _)| joules >= 0.9995 * size);
    match fitting.filter(|_| joules < 0.9995) {
        Some((size, unit)) => format!("{} {unit}", significant(joules / size, DIGITS)),
        None if joules < 0.9995 && joules > 0.0 => format!("{joules:.2e} J"),
        None => energy(joules),
    }
}

/// Formats a number that may be very small or very large, in few digits.
fn compact(value: f64) -> String {
    if !(1e-3..EXACT_MAX).contains(&value) {
        return format!("{value:.2e}");
    }
    let text = significant(value, DIGITS);
    text.parse().map_or(text, count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_of_any_size_are_readable() {
        let work =
            |name: &str, units: f64, joules_per_unit| Work { name: name.to_owned(), units, joules_per_unit };
        let work = vec![
            work("steps", 1200.0, Some(1.77)),
            work("cells\x1b[2J", 3.5e9, Some(2.1e-7)),
            work("GB", 0.25, None),
            work("jobs", 3.0, Some(4.2e6)),
            work("tiny", 1e-5, Some(0.0)),
        ];
        let run = Run { work, energy: "estimated".to_owned(), ..Run::default() };
        let expected = [
            "3 500 000 000 cells\u{fffd}[2J, ~210 nJ each (4 760 000 per joule), ~286 nJ dynamic",
            "1 200 steps, ~1.77 J each (0.565 per joule), ~833 mJ dynamic",
            "3 jobs, ~4.20 MJ each (2.38e-7 per joule), ~333 J dynamic",
            "0.250 GB",
            "1 more unit of work in summary.json",
        ];
        let lines: Vec<String> = lines(&run, Some(1000.0)).iter().map(|parts| parts.join(", ")).collect();
        assert_eq!(lines, expected);
    }

    #[test]
    fn ranges_of_any_length_are_readable() {
        let range = |name: &str, count, seconds, open| Range {
            name: name.to_owned(),
            interface: "NVTX".to_owned(),
            count,
            seconds,
            open,
        };
        let ranges = vec![
            range("open\x1b[2J", 0, 0.0, 1),
            range("step", 1200, 3.2, 0),
            range("tiny", 3, 6e-7, 2),
            range("copy", 8, 0.02, 0),
            range("none", 1, 0.0, 0),
        ];
        let mut summary = crate::tests::summary();
        summary.run.ranges = ranges;
        let expected = [
            "Ranges: 1 200 of step (NVTX), 3.20 s together, 2.67 ms on average.",
            "Ranges: 8 of copy (NVTX), 20.0 ms together, 2.50 ms on average.",
            "Ranges: 3 of tiny (NVTX), 600 ns together, 200 ns on average, 2 not ended.",
            "Ranges: 0 of open\u{fffd}[2J (NVTX), 1 not ended.",
            "Ranges: 1 more name of ranges in summary.json.",
        ];
        assert_eq!(sentences(&summary), expected);
    }
}
