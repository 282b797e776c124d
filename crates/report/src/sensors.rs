//! Compares the counters of devices with their power sensors, for the first lines and the page.

use ampere_figures::summary::{Device, Summary};
use ampere_model::text::{compact, short};
use ampere_timeline::agreement::{Check, POWER_SENSOR};

/// The counter and the power sensor of a correct device differ by at most this fraction.
const DIFFERENCE_MAX: f64 = 0.02;
/// The maximum number of characters of the devices' names.
const NAMES_CHARS_MAX: usize = 24;

/// Returns the difference between the integrated power of a device and its counter as text: "-3.0 % !" if it is large.
pub fn difference(device: &Device) -> Option<String> {
    let (ratio, _) = check(device)?;
    Some(format!("{:+.1} % {}", 100.0 * ratio, if is_conspicuous(device) { "!" } else { " " }))
}

/// Returns a sentence about the devices whose counter and power sensor differ.
pub fn words(summary: &Summary) -> Option<String> {
    let devices: Vec<&Device> = summary.devices.iter().filter(|device| is_conspicuous(device)).collect();
    let first = devices.first()?;
    let names = match devices.iter().all(|device| device.node == first.node) {
        true => compact(&devices.iter().map(|device| device.name.as_str()).collect::<Vec<_>>()),
        false => format!("{} devices", devices.len()),
    };
    let names = short(&names, NAMES_CHARS_MAX);
    let checks = || devices.iter().filter_map(|device| check(device));
    let most = checks().map(|(ratio, _)| ratio.abs()).fold(0.0, f64::max);
    let up_to = if devices.len() > 1 { "up to " } else { "" };
    let unsteadily =
        if checks().any(|(_, check)| check.change.is_some()) { ", and not steadily" } else { "" };
    Some(format!("counter and power sensor of {names} differ by {up_to}{:.1} %{unsteadily}", 100.0 * most))
}

/// Returns the difference between a device's power sensor and its counter, as a fraction of the counter's joules, and the whole
/// comparison.
fn check(device: &Device) -> Option<(f64, &Check)> {
    let check = device.checks.iter().find(|check| check.kind == POWER_SENSOR)?;
    Some((check.difference_ratio?, check))
}

fn is_conspicuous(device: &Device) -> bool {
    check(device).is_some_and(|(ratio, check)| ratio.abs() > DIFFERENCE_MAX || check.change.is_some())
}
