//! "Folded stacks": a line for each call path and its weight, as flamegraph.pl, inferno and speedscope read them. Frames:
//! device (with its node, where there are several), location group, call path; the weight is exclusive microjoules, a whole
//! number. Idle and lost joules have lines of their own, so that a device's lines sum up to its total, to half a microjoule a
//! line.

use crate::rows::shortened;
use ampere_figures::summary::Summary;
use std::fmt::Write;

const MICROJOULES: f64 = 1e6;

pub fn render(summary: &Summary) -> String {
    let mut out = String::new();
    let has_several_nodes = summary.devices.iter().any(|device| device.node != summary.devices[0].node);
    // The views are two ways to share the same joules: one of them, for each device.
    for device in summary.devices.iter().filter(|device| device.unit == "J") {
        let Some(view) = device.views.first() else { continue };
        let device = match has_several_nodes {
            true => frame(&format!("{}/{}", device.node, device.name)),
            false => frame(&device.name),
        };
        let mut line = |stack: &str, joules: f64| {
            let weight = (joules * MICROJOULES).round();
            if weight >= 1.0 {
                let _ = writeln!(out, "{device};{stack} {weight:.0}");
            }
        };
        for row in view.callpaths.iter() {
            let path = shortened(summary, row.path);
            let names =
                std::iter::once(summary.name(row.location_group)).chain(path.iter().map(|name| &**name));
            let frames: Vec<String> = names.map(frame).collect();
            line(&frames.join(";"), row.figures.exclusive_joules);
        }
        line("idle", view.idle_joules);
        line("lost", view.lost_joules);
    }
    out
}

/// A name that is one frame, on one line.
fn frame(name: &str) -> String {
    ampere_model::text::printable(name).replace(';', ":")
}
