//! Writes "folded stacks", which flamegraph.pl, inferno and speedscope read: a line for each call path with its weight. The
//! frames are the device (with its node, if there are several), the location group, and the call path. The weight is the
//! exclusive energy in whole microjoules. Idle joules, those of other jobs and lost joules have lines of their own, so that a
//! device's lines add up to its total, to within half a microjoule per line. Devices that are parts of others are left out.

use crate::rows::shortened;
use crate::tree::whole_views;
use ampere_figures::summary::Summary;
use std::fmt::Write;

const MICROJOULES: f64 = 1e6;

pub fn render(summary: &Summary) -> String {
    let mut out = String::new();
    let has_several_nodes = summary.devices.iter().any(|device| device.node != summary.devices[0].node);
    for (device, view) in whole_views(summary) {
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
        line("idle", view.unused_joules());
        line("other jobs", view.other_jobs_joules);
        line("lost", view.lost_joules);
    }
    out
}

/// Returns a name as one frame, on one line.
fn frame(name: &str) -> String {
    ampere_model::text::printable(name).replace(';', ":")
}
