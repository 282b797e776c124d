//! The collector that `ampere top` asks.

use crate::collector::announced::Announced;
use crate::recover::finish_if_cut_off;
use crate::report::summary_of;
use crate::run::places_to_look;
use crate::terminal::words::{print_in_colour, screen_of};
use ampere_collector::run_directory::leftover;
use ampere_collector::run_directory::nodes::head;
use ampere_endpoint::client::{self, Secret};
use ampere_endpoint::token::Token;
use ampere_figures::summary::{BYTES_MAX, Summary};
use ampere_model::text::printable;
use ampere_report::first::screen::Screen;
use ampere_report::{Format, first, render};
use anyhow::{Context, bail};
use serde::de::DeserializeOwned;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// The collector that is asked for figures.
#[derive(Clone)]
pub enum Asked {
    Directory(PathBuf),
    Address(String),
}

impl Asked {
    /// Returns the named collector, or that of this user's only run on this node.
    pub fn of(target: Option<String>) -> anyhow::Result<Asked> {
        let is_address = |target: &String| target.starts_with("http://") || target.starts_with("unix:");
        Ok(match target.filter(|target| !target.is_empty()) {
            Some(target) if is_address(&target) => Asked::Address(target),
            Some(directory) => Asked::Directory(directory.into()),
            None => Asked::Directory(only_run()?),
        })
    }

    /// Requests figures. `run_of` returns the run that an answer belongs to.
    pub fn get<T: DeserializeOwned>(
        &self,
        path: &str,
        token: Option<&Token>,
        limit: Duration,
        run_of: impl Fn(&T) -> &str,
    ) -> anyhow::Result<T> {
        match self {
            Asked::Directory(directory) => {
                let announced = Announced::of(directory).with_context(|| {
                    format!(
                        "no run is active in {}: it has no collector.json with an address",
                        directory.display()
                    )
                })?;
                announced.get(path, token, limit, run_of)
            }
            Asked::Address(url) => {
                // The user has named this address, so the request is sent as curl would send it.
                let answer = client::get(url, path, token.map_or(Secret::None, Secret::Sent), limit)?;
                serde_json::from_slice(&answer)
                    .with_context(|| format!("{url} is not a collector of this version of ampere"))
            }
        }
    }

    /// Finishes a run that was interrupted, and shows its results. Returns `false` if it was not interrupted.
    pub fn shows_if_cut_off(&self) -> anyhow::Result<bool> {
        let Asked::Directory(directory) = self else { return Ok(false) };
        if !finish_if_cut_off(directory) {
            return Ok(false);
        }
        show_results(directory).map(|()| true)
    }

    /// Shows the results of a run that has ended. Returns `false` if it has not ended.
    pub fn shows_if_ended(&self) -> anyhow::Result<bool> {
        let Asked::Directory(directory) = self else { return Ok(false) };
        if self.results().is_none() {
            return Ok(false);
        }
        let shown = directory.display();
        say!(
            "ampere: the run has ended, these are its final figures; for other forms: ampere report {shown} -f FORM"
        );
        show_results(directory).map(|()| true)
    }

    /// Returns the path of the summary of a run that has ended; `None` if it has not ended.
    pub fn results(&self) -> Option<PathBuf> {
        let Asked::Directory(directory) = self else { return None };
        let summary = directory.join("summary.json");
        head(&summary).is_some_and(|run| !run.running).then_some(summary)
    }

    /// Returns when the results of a run that has ended were written. They are written again if figures are computed from the
    /// trace or joined with those of other nodes.
    pub fn results_written(&self) -> Option<SystemTime> {
        let Asked::Directory(directory) = self else { return None };
        directory.join("summary.json").metadata().ok()?.modified().ok()
    }

    /// Returns the first lines of the result of a run that has ended: at most `rows`, on a terminal of this width.
    pub fn first_lines(&self, columns: usize, rows: usize) -> Option<Vec<String>> {
        let Asked::Directory(directory) = self else { return None };
        let summary = ampere_owned::read(&directory.join("summary.json"), BYTES_MAX).ok()?;
        let summary = Summary::of_json(&summary).ok()?;
        // Lines start with a blank, and there is a margin of one column.
        let screen = Screen::new(columns.saturating_sub(2), false).with_lines(rows);
        let lines = first::render(&summary, screen, &places_to_look(directory, &summary));
        Some(lines.lines().map(str::to_owned).collect())
    }

    /// Returns the directory of the run, or the address of the collector, as the user named it.
    pub fn name(&self) -> String {
        match self {
            Asked::Directory(directory) => directory.display().to_string(),
            Asked::Address(url) => url.clone(),
        }
    }

    /// Returns the message that no collector answers any more.
    pub fn end(&self) -> String {
        match (self, self.results()) {
            (Asked::Address(url), _) => format!("the collector at {} no longer answers", printable(url)),
            (_, Some(summary)) => format!("the run has ended: {}", summary.display()),
            (_, None) => "its collector no longer answers".to_owned(),
        }
    }
}

fn show_results(directory: &Path) -> anyhow::Result<()> {
    let screen = screen_of(&std::io::stdout());
    let table = render(&summary_of(directory, &mut |_, _| {})?, Format::Table, screen)?;
    print_in_colour("the report", |out| out.write_all(&table))
}

/// Returns the output directory of this user's run on this node, if there is exactly one.
fn only_run() -> anyhow::Result<PathBuf> {
    let running = leftover::sessions().into_iter().filter(|session| session.in_use.is_some());
    let mut directories: Vec<PathBuf> =
        running.filter_map(|session| session.output).map(|output| output.directory).collect();
    directories.retain(|directory| Announced::of(directory).is_some());
    match directories.as_slice() {
        [one] => Ok(one.clone()),
        [] => {
            bail!("you have no run on this node: name an output directory or a collector's address")
        }
        several => {
            let names: Vec<String> = several.iter().map(|path| path.display().to_string()).collect();
            bail!("you have several runs on this node: name one of {}", names.join(", "))
        }
    }
}
