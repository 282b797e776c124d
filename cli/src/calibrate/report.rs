//! Prints the results for people and as JSON.

use super::estimate::{CELLS, Estimate, Response, Verdict};
use super::sample::Counter;
use super::settings::{self, Setting};
use super::wave::Wave;
use serde_json::{Value, json};
use std::fmt::Write;

const HEADS: [&str; 10] = [
    "device",
    "source",
    "moves every",
    "10 to 90 %",
    "delay",
    "mean",
    "idle",
    "busy",
    "noise idle",
    "noise busy",
];

/// One counter with its estimate.
pub struct Found {
    pub counter: Counter,
    pub estimate: Estimate,
}

/// The load that made the wave.
pub struct Load {
    /// The number of threads of the built-in load.
    pub threads: usize,
    /// The command; empty for the built-in load.
    pub command: Vec<String>,
}

pub struct Report<'a> {
    pub node: &'a str,
    /// The date of the calibration (RFC 3339).
    pub date: &'a str,
    pub load: &'a Load,
    pub wave: &'a Wave,
    pub found: &'a [Found],
}

impl Report<'_> {
    pub fn text(&self) -> String {
        let mut out = String::new();
        let _ = self.write(&mut out); // writing to a String cannot fail
        out
    }

    fn load_in_words(&self) -> String {
        match (self.load.command.as_slice(), self.load.threads) {
            ([], 1) => "1 thread spinning".to_owned(),
            ([], threads) => format!("{threads} threads spinning"),
            (command, _) => command.join(" "),
        }
    }

    fn write(&self, out: &mut String) -> std::fmt::Result {
        let (period, periods) = (time(self.wave.period), self.wave.periods());
        writeln!(
            out,
            "square wave on {}: {periods} periods of {period}, {}\n",
            self.node,
            self.load_in_words()
        )?;
        let mut rows = vec![HEADS.map(str::to_owned)];
        rows.extend(self.found.iter().map(row));
        for line in table(&rows) {
            writeln!(out, "{line}")?;
        }
        writeln!(
            out,
            "\n10 to 90 %: the middle 80 % of the times between two movements; delay is an estimate, +- its standard error;\n\
             noise is the standard deviation of the power from movement to movement"
        )?;
        let remarks: Vec<String> = self.found.iter().flat_map(|found| self.remarks(found)).collect();
        if !remarks.is_empty() {
            writeln!(out)?;
        }
        for line in remarks {
            writeln!(out, "{line}")?;
        }
        writeln!(out, "\nmean power over one period, starting when the load rises")?;
        let width =
            self.found.iter().map(|f| f.counter.device.name.chars().count()).max().unwrap_or(0).max(4);
        let busy = (self.wave.duty() * CELLS as f64).round() as usize;
        writeln!(out, "  {:width$}  {}{}", "load", "█".repeat(busy), "▁".repeat(CELLS.saturating_sub(busy)))?;
        for Found { counter, estimate } in self.found {
            let name = &counter.device.name;
            match range(&estimate.phase_watts) {
                Some((low, high)) => {
                    // The noise of a counter that does not respond must not look like a wave.
                    let bottom = if estimate.verdict == Verdict::Responds { low } else { low.min(0.0) };
                    let line = plot(&estimate.phase_watts, bottom, high);
                    writeln!(out, "  {name:width$}  {line}  {low:.1} to {high:.1} W")?;
                }
                None => writeln!(out, "  {name:width$}  no readings")?,
            }
        }
        Ok(())
    }

    /// Returns remarks about a counter, one line each.
    fn remarks(&self, found: &Found) -> Vec<String> {
        let Found { counter, estimate } = found;
        let period = time(self.wave.period);
        let mut lines = Vec::new();
        match estimate.verdict {
            Verdict::Responds => {}
            Verdict::NoResponse => lines.push(format!(
                "no response: this counter does not see the load, or something else kept the machine busy, or it averages over \
                 {period} or more (then try a longer period)"
            )),
            Verdict::Aliased => {
                let longer = estimate.update.map_or(0.0, |update| 10.0 * update.median);
                lines.push(format!(
                    "aliased: the counter changes too rarely for a period of {period}; {} would be enough",
                    time(longer)
                ));
            }
            Verdict::Still if counter.readings == 0 && counter.failed > 0 => {
                lines.push(format!("cannot be read: {}", counter.error.as_deref().unwrap_or("no reason was given")))
            }
            Verdict::Still => lines.push("did not move, or too rarely, while the load was on".to_owned()),
        }
        if let Some(response) = &estimate.response {
            if response.delay < -2.0 * response.delay_error {
                lines.push(
                    "its power changes before the load does: the delay is set to 0; check the times of the load's edges".to_owned(),
                );
            }
            if response.delay > 0.5 * self.wave.period {
                lines.push(format!(
                    "it lags by more than half a period: try a period of {} to be sure",
                    time(4.0 * self.wave.period)
                ));
            }
        }
        let mut count = |number: u64, one: &str, many: &str| match number {
            0 => {}
            1 => lines.push(format!("1 {one}")),
            _ => lines.push(format!("{number} {many}")),
        };
        count(estimate.resets as u64, "reset was left out", "resets were left out");
        count(
            estimate.gaps as u64,
            "long gap without movement was left out",
            "long gaps without movement were left out",
        );
        if counter.readings > 0 {
            let why = counter.error.as_deref().unwrap_or_default();
            count(
                counter.failed,
                &format!("reading failed: {why}"),
                &format!("readings failed; the last error: {why}"),
            );
        }
        lines.into_iter().map(|line| format!("{}: {line}", counter.device.name)).collect()
    }

    pub fn json(&self, settings: &[Setting]) -> Value {
        let devices: Vec<Value> = self.found.iter().map(|found| self.device(found)).collect();
        json!({
            "schema": "ampere-calibration/1",
            "date": self.date,
            "node": self.node,
            "load": {
                "kind": if self.load.command.is_empty() { "cpu" } else { "command" },
                "threads": self.load.threads,
                "command": self.load.command,
                "period_seconds": self.wave.period,
                "periods": self.wave.periods(),
                "duty": self.wave.duty(),
            },
            "devices": devices,
            "settings": settings::sections(settings),
        })
    }

    fn device(&self, found: &Found) -> Value {
        let Found { counter, estimate } = found;
        let device = &counter.device;
        // JSON has no NaN: a part of the period without readings is null.
        let phase: Vec<Option<f64>> =
            estimate.phase_watts.iter().map(|watts| Some(*watts).filter(|watts| watts.is_finite())).collect();
        let of = |figure: fn(&Response) -> f64| estimate.response.as_ref().map(figure);
        json!({
            "name": device.name,
            "metric": device.metric,
            "source": device.source,
            "energy": device.quality.as_str(),
            "verdict": verdict(estimate.verdict),
            "remarks": self.remarks(found),
            "reading_period_seconds": counter.period.as_secs_f64(),
            "readings": counter.readings,
            "failed_readings": counter.failed,
            "updates": estimate.updates,
            "resets": estimate.resets,
            "gaps": estimate.gaps,
            "update_seconds": estimate.update.map(|update| json!({
                "median": update.median,
                "tenth": update.p10,
                "ninth_tenth": update.p90,
            })),
            "mean_watts": estimate.mean_watts,
            "delay_estimate_seconds": of(|response| response.delay),
            "delay_error_seconds": of(|response| response.delay_error),
            "delay_to_set_seconds": of(Response::delay_to_set),
            "idle_watts": of(|response| response.idle),
            "busy_watts": of(|response| response.busy),
            "idle_noise_watts": estimate.response.and_then(|response| response.idle_noise),
            "busy_noise_watts": estimate.response.and_then(|response| response.busy_noise),
            "phase_watts": phase,
        })
    }
}

fn verdict(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Responds => "responds",
        Verdict::NoResponse => "no response",
        Verdict::Aliased => "aliased",
        Verdict::Still => "still",
    }
}

/// Aligns the columns, words to the left and figures to the right.
fn table(rows: &[[String; 10]]) -> Vec<String> {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..10).map(width).collect();
    let line = |row: &[String; 10]| {
        let cells = row.iter().zip(&widths).enumerate().map(|(column, (cell, width))| match column {
            0 | 1 => format!("{cell:width$}"),
            _ => format!("{cell:>width$}"),
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

fn row(found: &Found) -> [String; 10] {
    let Found { counter, estimate } = found;
    let none = || "-".to_owned();
    let watts = |watts: Option<f64>| watts.map_or_else(none, |watts| format!("{watts:.1} W"));
    let update = estimate.update.map_or_else(none, |update| time(update.median));
    let spread =
        estimate.update.map_or_else(none, |update| format!("{} to {}", time(update.p10), time(update.p90)));
    // A counter that is itself an estimate is marked, because its figures are not measured.
    let source = match counter.device.quality {
        ampere_counters::Quality::Estimated => format!("{} (not measured)", counter.device.source),
        _ => counter.device.source.to_owned(),
    };
    let of = |figure: fn(&Response) -> Option<f64>| watts(estimate.response.as_ref().and_then(figure));
    [
        counter.device.name.clone(),
        source,
        update,
        spread,
        estimate.response.as_ref().map_or_else(|| verdict(estimate.verdict).to_owned(), delay),
        watts(estimate.mean_watts),
        of(|response| Some(response.idle)),
        of(|response| Some(response.busy)),
        of(|response| response.idle_noise),
        of(|response| response.busy_noise),
    ]
}

/// Formats a delay as `119.8 +- 0.5 ms`.
pub fn delay(response: &Response) -> String {
    format!("{:.1} +- {:.1} ms", response.delay * 1e3, response.delay_error * 1e3)
}

/// Formats a time with at most three digits: `1.02 ms`, `15 ms`, `1.5 s`.
pub fn time(seconds: f64) -> String {
    let (value, unit) = if seconds < 0.9995 { (seconds * 1e3, "ms") } else { (seconds, "s") };
    let decimals = if value < 9.995 {
        2
    } else if value < 99.95 {
        1
    } else {
        0
    };
    let text = format!("{value:.decimals$}");
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text} {unit}")
}

fn range(watts: &[f64]) -> Option<(f64, f64)> {
    let seen = || watts.iter().copied().filter(|watts| watts.is_finite());
    let (low, high) = (seen().fold(f64::INFINITY, f64::min), seen().fold(f64::NEG_INFINITY, f64::max));
    (low <= high).then_some((low, high))
}

/// Draws a line of blocks, the lowest of which stands for `low`.
fn plot(watts: &[f64], low: f64, high: f64) -> String {
    const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let range = (high - low).max(f64::MIN_POSITIVE);
    let block = |watts: &f64| match watts.is_finite() {
        true => BLOCKS[(((watts - low) / range * 7.0).round() as usize).min(7)],
        false => ' ',
    };
    watts.iter().map(block).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_three_digits() {
        for (seconds, expected) in [
            (0.001, "1 ms"),
            (0.00102, "1.02 ms"),
            (0.0153, "15.3 ms"),
            (0.25, "250 ms"),
            (1.0, "1 s"),
            (12.345, "12.3 s"),
        ] {
            assert_eq!(time(seconds), expected);
        }
        assert_eq!(time(0.9999), "1 s");
    }

    #[test]
    fn a_plot_has_a_character_for_each_value() {
        assert_eq!(plot(&[0.0, 50.0, 100.0, f64::NAN], 0.0, 100.0), "▁▅█ ");
        assert_eq!(plot(&[0.0, 0.0], 0.0, 0.0), "▁▁");
        assert_eq!(range(&[f64::NAN]), None);
    }
}
