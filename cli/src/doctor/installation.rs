//! Checks that all parts of ampere are there, and that the collector starts and has this version.

use super::child::{self, ANSWER_TIME_MAX};
use super::findings::{Check, Group};
use crate::installation::{self, Installation};
use ampere_model::text::one_line;
use std::process::Command;

pub fn check() -> (Vec<Check>, Option<Installation>) {
    let mut group = Group::new("ampere");
    let version = env!("CARGO_PKG_VERSION");
    let installation = match installation::find() {
        Ok(installation) => installation,
        Err(why) => {
            group.problem("parts", one_line(&*why), "install all of ampere: make install PREFIX=...");
            return (group.checks, None);
        }
    };
    group.ok("plugin", installation.plugin.display().to_string());
    group.ok("host", installation.host.display().to_string());
    let collector = installation.collector.display();
    match child::run_within(Command::new(&installation.collector).arg("--version"), ANSWER_TIME_MAX) {
        Ok(finished)
            if finished.succeeded() && finished.first_line().split_whitespace().last() == Some(version) =>
        {
            group.ok("collector", format!("{version}, {collector}"));
        }
        Ok(finished) if finished.succeeded() => group.problem(
            "collector",
            format!("{collector} reports {:?}, but this is ampere {version}", finished.first_line()),
            "install all of ampere again",
        ),
        Ok(finished) => group.problem(
            "collector",
            format!("{collector} does not start: {}", finished.first_line()),
            "install all of ampere again, and the OTF2 library that it was built with",
        ),
        Err(error) => group.problem(
            "collector",
            format!("{collector} does not start: {error}"),
            "install all of ampere again",
        ),
    }
    (group.checks, Some(installation))
}
