//! A row for each call path of each view of each device, with the columns' names first. Figures are as exact as in
//! `summary.json`.

use crate::summary::Summary;

const COLUMNS: [&str; 15] = [
    "node",
    "device",
    "energy",
    "unit",
    "view",
    "location_group",
    "location",
    "path",
    "region",
    "calls",
    "exclusive_joules",
    "inclusive_joules",
    "resolved_joules",
    "exclusive_seconds",
    "mean_watts",
];

/// What is in no call path: a row with this in the place of the region.
const REST: [&str; 2] = ["(idle)", "(lost)"];

pub fn render(summary: &Summary) -> Vec<u8> {
    let mut out = ::csv::Writer::from_writer(Vec::new());
    // Writing to memory cannot fail.
    let _ = out.write_record(COLUMNS);
    for device in &summary.devices {
        for view in &device.views {
            let common = [&device.node, &device.name, &device.energy, &device.unit, &view.view];
            let row = |names: [&str; 4], calls: String, figures: [Option<f64>; 5]| {
                let figures =
                    figures.map(|figure| figure.map_or_else(String::new, |figure| figure.to_string()));
                let names = names.iter().map(|name| (*name).to_owned());
                let common = common.iter().map(|name| (*name).clone());
                common.chain(names).chain([calls]).chain(figures).collect::<Vec<String>>()
            };
            for path in &view.callpaths {
                let names: Vec<&str> = path.path.iter().map(|name| &**name).collect();
                let region = names.last().copied().unwrap_or_default();
                let _ = out.write_record(row(
                    [&path.location_group, &path.location, &names.join(" > "), region],
                    path.calls.to_string(),
                    [
                        Some(path.exclusive_joules),
                        Some(path.inclusive_joules),
                        Some(path.resolved_joules),
                        Some(path.exclusive_seconds),
                        path.watts.mean_watts,
                    ],
                ));
            }
            for (name, joules) in REST.iter().zip([view.idle_joules, view.lost_joules]) {
                let _ = out.write_record(row(
                    ["", "", "", name],
                    String::new(),
                    [Some(joules), Some(joules), None, None, None],
                ));
            }
        }
    }
    out.into_inner().unwrap_or_default()
}
