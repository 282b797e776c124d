//! Checks OTF2, the format of traces.

use super::child::{self, ANSWER_TIME_MAX};
use super::findings::{Check, Group};
use super::probe::mapped;
use super::version_in;
use crate::installation;
use std::ffi::OsStr;
use std::process::Command;

pub fn check() -> Vec<Check> {
    let mut group = Group::new("OTF2");
    let built = otf2_sys::VERSION;
    let library = mapped(|name| name.starts_with("libotf2.") || name.starts_with("libopen-trace-format2."));
    let library = library.map_or_else(|| "linked in".to_owned(), |path| path.display().to_string());
    group.ok("library", format!("built with {built}, {library}"));
    match installation::program(OsStr::new("otf2-print")) {
        Ok(path) => {
            let finished = child::run_within(Command::new(&path).arg("--version"), ANSWER_TIME_MAX).ok();
            let version =
                finished.and_then(|finished| version_in(&finished.stdout)).unwrap_or_else(|| "of an unknown version".to_owned());
            group.ok("otf2-print", format!("{version}, {}", path.display()));
        }
        Err(_) => group.note(
            "otf2-print",
            "is not in PATH; traces are written without it",
            Some(
                "to print traces, install Debian's package otf2-tools, or add the bin directory of OTF2 or Score-P to PATH"
                    .to_owned(),
            ),
        ),
    }
    group.checks
}
