//! Pages in a real Chromium, which playwright-core drives.

use crate::jobs::{Place, built, run};
use crate::runs::on_path;
use serde_json::Value;
use std::process::Command;

/// The reason that a test prints when it is skipped.
pub const WHY: &str = "no Chromium and playwright-core";

/// Returns the folders in which Node.js finds what scripts/need-packages has installed from npm, and what is installed
/// for all users.
pub fn modules() -> String {
    let of_npm = Command::new("npm").args(["root", "-g"]).output();
    let for_all =
        of_npm.map_or_else(|_| String::new(), |done| String::from_utf8_lossy(&done.stdout).into_owned());
    let target = built();
    let own = target.parent().expect("target/release is in target").join("npm/node_modules");
    format!("{}:{}", own.display(), for_all.trim())
}

pub fn is_there() -> bool {
    let has_library = || {
        let mut node = Command::new("node");
        node.args(["-e", "require('playwright-core')"]).env("NODE_PATH", modules());
        node.output().is_ok_and(|done| done.status.success())
    };
    on_path("chromium") && on_path("node") && has_library()
}

/// Returns what a page shows at this width, as tests/programs/shown.js prints it. `node` is the part of a node's name to search
/// for.
pub fn shown(place: &Place, url: &str, width: u32, node: Option<&str>) -> Value {
    shown_after(place, url, width, node, None)
}

/// Like [`shown`], after this number of updates.
pub fn shown_after(
    place: &Place,
    url: &str,
    width: u32,
    node: Option<&str>,
    updates: Option<usize>,
) -> Value {
    let mut command = place.command("node");
    command.envs(updates.map(|count| ("UPDATES", count.to_string())));
    command.arg(crate::root().join("tests/programs/shown.js")).args([url, &width.to_string()]).args(node);
    let done = run(command.env("NODE_PATH", modules()).env("HOME", place.path("")));
    assert_eq!(done.code, 0, "{done:#?}");
    let answer: Value = serde_json::from_str(&done.stdout).expect("JSON");
    assert_eq!(answer["errors"], serde_json::json!([]), "the console is quiet at {width} pixels");
    assert_eq!(answer["overflow"], 0, "nothing is wider than the window of {width} pixels");
    assert_eq!(answer["cut"], serde_json::json!([]), "no column is behind a scroll bar at {width} pixels");
    answer
}

/// Returns the joules of the kernel whose name ends in `end`, as a page shows them.
pub fn kernel_joules(shown: &Value, end: &str) -> Option<f64> {
    let rows = shown["kernels"].as_array()?.iter();
    rows.filter(|row| row[0].as_str().is_some_and(|name| name.ends_with(end))).find_map(|row| row[1].as_f64())
}
