//! A real Chromium, which playwright-core drives.

use crate::jobs::built;
use crate::runs::on_path;
use std::process::Command;

/// Why a test is skipped.
pub const WHY: &str = "no Chromium and playwright-core";

/// Where Node.js finds what scripts/need-packages has got from npm, and what is installed for all.
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
