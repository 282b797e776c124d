//! The parts of a page other than its tables.

use super::{
    DeviceLine, GaugeLine, OtherDevice, OtherDevices, Page, PowerSeries, RunWords, SCHEMA, Segment, State,
    Totals,
};
use super::{SERIES_MAX, facts};
use crate::baseline;
use crate::first::names::nodes_of;
use crate::highlights::{Sums, sentences_with};
use crate::over_devices::largest;
use crate::text::most_of;
use crate::work;
use ampere_figures::assignment;
use ampere_figures::gauges::OverTheRun;
use ampere_figures::shares::Whole;
use ampere_figures::summary::topmost;
use ampere_figures::summary::{Device, Summary};
use ampere_model::order::largest_first;
use ampere_model::sum;
use ampere_model::text::{joules, printable, short};

/// The maximum number of devices with their own tables and pictures, and of devices in the list next to them.
pub(super) const DEVICES_MAX: usize = 16;
const LISTED_DEVICES_MAX: usize = 200;
/// The maximum number of lines of the device assignment.
const LINES_MAX: usize = 50;

impl Page {
    /// Makes the page of a summary without its tables. The power is that of the summary's power curves, and `hints` are those of
    /// the summary with its tables.
    pub fn outline(summary: &Summary, hints: Vec<String>) -> Page {
        let (shown, others) = largest(summary, DEVICES_MAX);
        let run = &summary.run;
        let state = match (run.complete, run.running) {
            (true, _) => State::Over,
            (false, true) => State::Running,
            (false, false) => State::Incomplete,
        };
        let mut assignment = assignment::lines(&summary.topology);
        limit_lines(&mut assignment);
        Page {
            schema: SCHEMA.to_owned(),
            state,
            run: run_words(summary),
            totals: totals(&Sums::of(summary)),
            sentences: [work::sentences(summary), sentences_with(summary, hints)].concat(),
            notes: notes(summary).iter().map(|note| printable(note)).collect(),
            devices: shown.iter().map(|device| device_line(summary, device)).collect(),
            other_devices: other_devices(Whole::of(summary), &others),
            power: power(summary),
            now: None,
            quality: facts::quality(summary),
            monitor: facts::monitor(summary),
            assignment: assignment.iter().map(|line| printable(line)).collect(),
            job: None,
            tables: None,
        }
    }
}

/// Returns the notes, each once. If notes of several nodes or devices differ only in their figures, the first one is returned,
/// with the number of the others.
fn notes(summary: &Summary) -> Vec<String> {
    let is_node = |name: &str| summary.run.nodes.iter().any(|node| node == name);
    let is_device = |name: &str| {
        let mut devices = summary.devices.iter();
        name.split_once(" on ")
            .is_some_and(|(name, node)| devices.any(|of| of.name == name && of.node == node))
    };
    let mut notes: Vec<(String, &str, usize)> = Vec::new();
    for note in summary.run.notes_in_order() {
        let of_one = note.split_once(": ").filter(|(name, _)| is_node(name) || is_device(name));
        let key = match of_one {
            Some((name, what)) => {
                let what: String = what.chars().filter(|c| !c.is_ascii_digit()).collect();
                format!("{}{what}", if is_node(name) { "node: " } else { "device: " })
            }
            None => note.clone(),
        };
        match notes.iter_mut().find(|(known, ..)| *known == key) {
            Some((.., more)) => *more += usize::from(of_one.is_some()),
            None => notes.push((key, note, 0)),
        }
    }
    let words = |(key, note, more): (String, &str, usize)| {
        let what = if key.starts_with("node: ") { "node" } else { "device" };
        match more {
            0 => note.to_owned(),
            1 => format!("{note} (another {what} has such a note)"),
            more => format!("{note} ({more} other {what}s have such a note)"),
        }
    };
    notes.into_iter().map(words).collect()
}

fn limit_lines(lines: &mut Vec<String>) {
    if let Some(more) = lines.len().checked_sub(LINES_MAX).filter(|more| *more > 0) {
        lines.truncate(LINES_MAX);
        lines.push(format!("and {more} more in summary.json"));
    }
}

fn run_words(summary: &Summary) -> RunWords {
    let run = &summary.run;
    RunWords {
        id: printable(&run.id),
        command: run.command.iter().map(|word| printable(word)).collect(),
        job: run.job.as_ref().map(|job| printable(&job.to_string())),
        nodes: printable(&nodes_of(&run.nodes)),
        ranks: run.ranks,
        who: crate::first::who(summary).unwrap_or_default(),
        start: printable(&run.start),
        end: printable(&run.end),
        seconds: run.seconds,
        energy: printable(&run.energy),
        cpu: run.node_cpu.map_or_else(String::new, |cpu| cpu.words(run.seconds)),
        bad_status: run.bad_status(),
    }
}

fn totals(sums: &Sums) -> Totals {
    Totals {
        joules: sums.joules,
        watts: None,
        idle_joules: sums.idle,
        other_jobs_joules: sums.other_jobs,
        lost_joules: sums.lost,
        mpi_joules: sum(sums.mpi().map(|row| row.1)),
        gpu_joules: sums.gpu_joules,
        kernel_joules: sum(sums.kernels.iter().map(|row| row.1)),
    }
}

fn device_line(summary: &Summary, device: &Device) -> DeviceLine {
    let whole = summary
        .devices
        .iter()
        .find(|whole| whole.node == device.node && whole.contains.contains(&device.name));
    let total = format!("{} {}", joules(device.total_joules), device.unit);
    let mut remarks: Vec<String> =
        baseline::words(&[device]).map(|words| total + &words).into_iter().collect();
    if !device.gauges.is_empty() {
        let gauges: Vec<String> = device.gauges.iter().map(OverTheRun::text).collect();
        remarks.push(format!("reported by the device: {}", gauges.join(", ")));
    }
    remarks.extend(device.checks.iter().map(|check| check.text()));
    DeviceLine {
        node: printable(&device.node),
        name: printable(&device.name),
        metric: printable(&device.metric),
        source: printable(&device.source),
        energy: printable(&device.energy),
        unit: printable(&device.unit),
        within: whole.map_or_else(String::new, |whole| printable(&whole.name)),
        joules: device.total_joules,
        watts: None,
        mean_watts: device.mean_watts(),
        baseline_watts: baseline_watts(device),
        samples: device.samples,
        stale: device.stale,
        remarks: remarks.iter().map(|line| printable(line)).collect(),
    }
}

fn baseline_watts(device: &Device) -> Option<f64> {
    device.baseline.as_ref().filter(|baseline| baseline.is_known()).map(|baseline| baseline.watts)
}

fn other_devices(whole: Whole, devices: &[&Device]) -> OtherDevices {
    let row = |device: &&Device| OtherDevice {
        name: printable(&device.name),
        node: printable(&device.node),
        joules: device.total_joules,
        unit: printable(&device.unit),
        most_in: device.shown().next().map_or_else(String::new, |view| most_of(whole, view)),
    };
    OtherDevices {
        rows: devices.iter().take(LISTED_DEVICES_MAX).map(row).collect(),
        left_out: devices.len().saturating_sub(LISTED_DEVICES_MAX),
    }
}

/// Returns the power of the topmost devices with the most joules. "GPU-10" comes after "GPU-9".
fn power(summary: &Summary) -> Vec<PowerSeries> {
    let mut devices: Vec<&Device> = topmost(summary).filter(|device| device.power.is_some()).collect();
    largest_first(&mut devices, |device| device.total_joules);
    devices.truncate(SERIES_MAX);
    devices.sort_by_key(|device| (&device.node, device.name.len(), &device.name));
    let series = devices.into_iter().map(|device| PowerSeries {
        node: printable(&device.node),
        name: short(&device.name, super::NAME_CHARS_MAX),
        energy: printable(&device.energy),
        watts: None,
        mean_watts: device.mean_watts(),
        baseline_watts: baseline_watts(device),
        gauges: GaugeLine::of(device),
        segments: device
            .power
            .iter()
            .map(|curve| Segment {
                begin: 0.0,
                step: curve.step_seconds,
                watts: curve.watts.iter().map(|watts| Some(super::rows::rounded(*watts))).collect(),
            })
            .collect(),
    });
    series.collect()
}
