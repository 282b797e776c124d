//! A row for each call path of each view of each device, for formats that are tables of a database.

use crate::summary::{Device, Summary, View};
use serde::Serialize;

/// Rows for the joules of no call path have these in the place of the region.
const REST: [&str; 2] = ["(idle)", "(lost)"];

/// A row; its columns have the fields' names.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Row<'a> {
    pub node: &'a str,
    pub device: &'a str,
    pub energy: &'a str,
    pub unit: &'a str,
    pub view: &'a str,
    pub location_group: &'a str,
    pub location: &'a str,
    /// From the outermost region in, joined by " > ".
    pub path: String,
    pub region: &'a str,
    pub calls: Option<u64>,
    pub exclusive_joules: f64,
    pub inclusive_joules: f64,
    pub resolved_joules: Option<f64>,
    pub possible_joules: Option<f64>,
    pub exclusive_seconds: Option<f64>,
    pub mean_watts: Option<f64>,
}

pub const COLUMNS: [&str; 16] = [
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
    "possible_joules",
    "exclusive_seconds",
    "mean_watts",
];

pub fn rows(summary: &Summary) -> impl Iterator<Item = Row<'_>> {
    let views = summary.devices.iter().flat_map(|device| device.views.iter().map(move |view| (device, view)));
    // Without kernels, their view is left out.
    let views = views.filter(|(_, view)| view.view != "kernels" || !view.callpaths.is_empty());
    views.flat_map(|(device, view)| paths(device, view).chain(rest(device, view)))
}

fn of<'a>(device: &'a Device, view: &'a View) -> Row<'a> {
    Row {
        node: &device.node,
        device: &device.name,
        energy: &device.energy,
        unit: &device.unit,
        view: &view.view,
        ..Row::default()
    }
}

fn paths<'a>(device: &'a Device, view: &'a View) -> impl Iterator<Item = Row<'a>> {
    view.callpaths.iter().map(move |row| {
        let names: Vec<&str> = row.path.iter().map(|name| &**name).collect();
        Row {
            location_group: &row.location_group,
            location: &row.location,
            path: names.join(" > "),
            region: names.last().copied().unwrap_or_default(),
            calls: Some(row.calls),
            exclusive_joules: row.exclusive_joules,
            inclusive_joules: row.inclusive_joules,
            resolved_joules: Some(row.resolved_joules),
            possible_joules: row.possible_joules,
            exclusive_seconds: Some(row.exclusive_seconds),
            mean_watts: row.watts.mean_watts,
            ..of(device, view)
        }
    })
}

fn rest<'a>(device: &'a Device, view: &'a View) -> impl Iterator<Item = Row<'a>> {
    REST.into_iter().zip([view.idle_joules, view.lost_joules]).map(move |(region, joules)| Row {
        region,
        exclusive_joules: joules,
        inclusive_joules: joules,
        ..of(device, view)
    })
}
