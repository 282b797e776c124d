//! Prints the results, and writes them as JSON and into the tables of bench/README.md.

use anyhow::Context;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A figure and its yardstick.
pub struct Figure {
    pub what: &'static str,
    pub value: f64,
    pub unit: &'static str,
    pub yardstick: &'static str,
    pub yardstick_value: f64,
}

impl Figure {
    pub fn new(
        what: &'static str,
        value: f64,
        unit: &'static str,
        yardstick: &'static str,
        yardstick_value: f64,
    ) -> Figure {
        Figure { what, value, unit, yardstick, yardstick_value }
    }

    pub fn json(&self) -> Value {
        json!({"figure": self.what, "value": self.value, "unit": self.unit,
               "yardstick": self.yardstick, "yardstick_value": self.yardstick_value})
    }
}

/// The times of a program that was run in one way.
pub struct Run {
    pub program: &'static str,
    pub how: &'static str,
    pub unit: &'static str,
    pub wall: f64,
    pub cpu: f64,
    /// How many calls were not recorded one by one, in a run with ampere.
    pub quality: Option<Quality>,
}

#[derive(Clone, Copy)]
pub struct Quality {
    pub coalesced_percent: f64,
    pub suppressed_calls: f64,
}

impl Run {
    pub fn json(&self) -> Value {
        let mut line = json!({"program": self.program, "run": self.how, "unit": self.unit,
                              "wall": self.wall, "cpu": self.cpu});
        if let Some(quality) = self.quality {
            line["coalesced_percent"] = json!(quality.coalesced_percent);
            line["suppressed_calls"] = json!(quality.suppressed_calls);
        }
        line
    }
}

/// The commit being measured, and the load before the benchmark starts.
pub struct Start {
    commit: String,
    /// The average load of the last minute.
    load: String,
}

impl Start {
    pub fn now() -> Start {
        let commit = output_of("git", &["describe", "--always", "--dirty", "--abbrev=10", "--exclude=*"]);
        let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
        Start { commit, load: text.split_whitespace().next().unwrap_or("unknown").to_owned() }
    }
}

/// Returns all results, with the commit and the machine.
pub fn document(lines: &[Value], start: &Start) -> Value {
    json!({"commit": start.commit, "date": output_of("date", &["-u", "+%Y-%m-%d"]),
           "machine": machine(), "load_at_start": start.load, "lines": lines})
}

fn output_of(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).current_dir(root()).output();
    let text =
        output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default();
    if text.is_empty() { "unknown".to_owned() } else { text }
}

fn machine() -> String {
    let cpus = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpus.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let is_virtual = cpus.lines().any(|line| line.starts_with("flags") && line.contains(" hypervisor"));
    // On x86-64, index2 and index3 are L2 and L3.
    let cache = |index: u32| {
        let path = format!("/sys/devices/system/cpu/cpu0/cache/index{index}/size");
        std::fs::read_to_string(path).map_or("unknown".to_owned(), |text| text.trim().to_owned())
    };
    format!(
        "{cores} cores of {}{} (L2 {}, L3 {}), Linux {}",
        model.map_or(std::env::consts::ARCH, |(_, name)| name),
        if is_virtual { ", virtual" } else { "" },
        cache(2),
        cache(3),
        rustix::system::uname().release().to_string_lossy()
    )
}

pub fn print(line: &Value) {
    let text = |key: &str| line[key].as_str().unwrap_or_default();
    let name = match text("program") {
        "" => text("figure").to_owned(),
        program => format!("{program}: {}", text("run")),
    };
    if !text("skipped").is_empty() {
        println!("{name:<66} skipped: {}", text("skipped"));
    } else if !text("program").is_empty() {
        let (wall, cpu) = (number(&line["wall"]), number(&line["cpu"]));
        println!("{name:<66} {wall:>8} {:<9} {cpu:>8}  CPU{}", text("unit"), quality(line));
    } else {
        let (value, yardstick) = (number(&line["value"]), number(&line["yardstick_value"]));
        println!("{name:<66} {value:>8} {:<9} {yardstick:>8}  {}", text("unit"), text("yardstick"));
    }
}

fn quality(line: &Value) -> String {
    let Some(coalesced) = line["coalesced_percent"].as_f64() else { return String::new() };
    match line["suppressed_calls"].as_f64() {
        Some(calls) if calls > 0.0 => format!(", {coalesced:.1} % coalesced, {calls:.0} calls suppressed"),
        _ => format!(", {coalesced:.1} % coalesced"),
    }
}

/// Formats a number with about three significant digits.
fn number(value: &Value) -> String {
    let value = value.as_f64().unwrap_or(f64::NAN);
    let decimals = match value.abs() {
        0.0 => 0,
        size if size < 1.0 => 3,
        size if size < 10.0 => 2,
        size if size < 100.0 => 1,
        _ => 0,
    };
    format!("{value:.decimals$}")
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

const DOCUMENT: &str = "bench/README.md";
const KEPT: &str = "bench/results.json";
const BEGIN: &str = "<!-- measured: ";
const END: &str = "<!-- end of what was measured -->";

/// Writes these results to bench/results.json, and their tables into bench/README.md.
pub fn keep(results: &Value) -> anyhow::Result<()> {
    std::fs::write(root().join(KEPT), serde_json::to_string_pretty(results)? + "\n")?;
    let path = root().join(DOCUMENT);
    let text = std::fs::read_to_string(&path).context(DOCUMENT)?;
    std::fs::write(&path, with_tables(&text, results).context(DOCUMENT)?)?;
    Ok(())
}

/// Returns the document with new text between each pair of markers.
fn with_tables(text: &str, results: &Value) -> anyhow::Result<String> {
    let mut parts = text.split(BEGIN);
    let mut made = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (name, rest) = part.split_once(" -->").context("a marker without \" -->\"")?;
        let (_, rest) = rest.split_once(END).with_context(|| format!("{name}: no {END}"))?;
        let table = match name {
            "machine" => measured_on(results),
            "figures" => figures(results),
            program => runs(results, program),
        };
        made += &format!("{BEGIN}{name} -->\n{table}{END}{rest}");
    }
    Ok(made)
}

fn measured_on(results: &Value) -> String {
    let text = |key: &str| results[key].as_str().unwrap_or("unknown");
    format!(
        "Measured on {} at commit {} on {}; load average at the start: {}.\n",
        text("date"),
        text("commit"),
        text("machine"),
        text("load_at_start")
    )
}

fn lines(results: &Value) -> impl Iterator<Item = &Value> {
    results["lines"].as_array().into_iter().flatten()
}

fn figures(results: &Value) -> String {
    let mut table = "| figure | measured | yardstick | |\n| --- | ---: | ---: | --- |\n".to_owned();
    for line in lines(results).filter(|line| line["figure"].is_string()) {
        let text = |key: &str| line[key].as_str().unwrap_or_default();
        table += &match line["skipped"].as_str() {
            Some(why) => format!("| {} | skipped | | {why} |\n", text("figure")),
            None => format!(
                "| {} | {} {unit} | {} {unit} | {} |\n",
                text("figure"),
                number(&line["value"]),
                number(&line["yardstick_value"]),
                text("yardstick"),
                unit = text("unit")
            ),
        };
    }
    table
}

/// Returns a table of all ways to run one program. Each is compared with the first.
fn runs(results: &Value, program: &str) -> String {
    let rows: Vec<&Value> = lines(results).filter(|line| line["program"] == program).collect();
    let of_first = |key: &str| rows.first().and_then(|line| line[key].as_f64()).unwrap_or(f64::NAN);
    let (wall, cpu) = (of_first("wall"), of_first("cpu"));
    // If all ratios of wall time are at most 1.2, ratios have a third decimal.
    let is_large = |line: &&Value| line["wall"].as_f64().is_some_and(|value| value > 1.2 * wall);
    let decimals = if rows.iter().any(is_large) { 2 } else { 3 };
    let mut table =
        format!("| {program} | wall | | CPU | | calls |\n| --- | ---: | ---: | ---: | ---: | --- |\n");
    for line in &rows {
        let text = |key: &str| line[key].as_str().unwrap_or_default();
        let cells = |key: &str, first: f64| {
            let times = line[key].as_f64().unwrap_or(f64::NAN) / first;
            format!("{} {} | {times:.decimals$} x", number(&line[key]), text("unit"))
        };
        table += &match line["skipped"].as_str() {
            Some(why) => format!("| {} | skipped | | | | {why} |\n", text("run")),
            None => {
                let quality = quality(line);
                let quality = quality.trim_start_matches(", ");
                format!("| {} | {} | {} | {quality} |\n", text("run"), cells("wall", wall), cells("cpu", cpu))
            }
        };
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_has_the_tables_of_the_results_that_are_kept() {
        let results = std::fs::read(root().join(KEPT)).unwrap();
        let results: Value = serde_json::from_slice(&results).unwrap();
        let text = std::fs::read_to_string(root().join(DOCUMENT)).unwrap();
        let made = with_tables(&text, &results).unwrap();
        assert!(
            made == text,
            "{DOCUMENT}: its tables do not match {KEPT}: after `make bench`, run target/release/ampere-bench tables"
        );
    }

    #[test]
    fn a_table_has_the_measured_figures_and_the_reasons_for_missing_ones() {
        let run = |how, wall, quality| Run { program: "HPL", how, unit: "s", wall, cpu: 2.0 * wall, quality };
        let quality = Quality { coalesced_percent: 93.04, suppressed_calls: 0.0 };
        let figure =
            Figure { what: "ring", value: 1.234, unit: "ns", yardstick: "ringbuf", yardstick_value: 123.4 };
        let results = json!({"lines": [
            figure.json(), {"figure": "idle", "skipped": "no room"},
            run("plain", 2.0, None).json(), run("ampere", 3.0, Some(quality)).json(),
            {"program": "HPL", "run": "Score-P", "skipped": "no scorep"},
        ]});
        let text = "a\n<!-- measured: figures -->\nold\n<!-- end of what was measured -->\nb\n\
                    <!-- measured: HPL --><!-- end of what was measured -->\n";
        let expected = "a\n<!-- measured: figures -->\n\
            | figure | measured | yardstick | |\n| --- | ---: | ---: | --- |\n\
            | ring | 1.23 ns | 123 ns | ringbuf |\n| idle | skipped | | no room |\n\
            <!-- end of what was measured -->\nb\n<!-- measured: HPL -->\n\
            | HPL | wall | | CPU | | calls |\n| --- | ---: | ---: | ---: | ---: | --- |\n\
            | plain | 2.00 s | 1.00 x | 4.00 s | 1.00 x |  |\n\
            | ampere | 3.00 s | 1.50 x | 6.00 s | 1.50 x | 93.0 % coalesced |\n\
            | Score-P | skipped | | | | no scorep |\n\
            <!-- end of what was measured -->\n";
        assert_eq!(with_tables(text, &results).unwrap(), expected);
        assert!(with_tables("<!-- measured: HPL -->", &results).is_err());
    }
}
