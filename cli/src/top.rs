//! `ampere top`: the live table of a run that was started elsewhere.

use crate::collector::announced::Announced;
use crate::recover::finish_if_cut_off;
use crate::report::summary_of;
use crate::terminal::live_table::{ANSWER_LIMIT, line, table};
use crate::terminal::words::print;
use ampere_collector::run_directory::leftover;
use ampere_collector::run_directory::nodes::head;
use ampere_collector::serving::access::{Access, Token};
use ampere_collector::serving::client;
use ampere_collector::serving::snapshot::Snapshot;
use ampere_model::text::printable;
use ampere_report::{Format, render};
use ampere_settings::Config;
use anyhow::{Context, bail};
use clap::Args;
use rustix::termios::tcgetwinsize;
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

const TABLE_PERIOD: Duration = Duration::from_secs(1);
const LINE_PERIOD: Duration = Duration::from_secs(5);
/// A collector that has not answered so often is gone; one that was killed is replaced sooner.
const UNANSWERED: u32 = 5;
const RETRY: Duration = Duration::from_millis(500);
/// Beside the functions: two lines above, one below, and the prompt's.
const OTHER_ROWS: u16 = 4;

#[derive(Args)]
pub struct TopArguments {
    /// Output directory of a run, or its collector's address (http://..., unix:/...); without it, your run on this node
    target: Option<String>,
}

/// Which collector is asked.
enum Asked {
    Directory(PathBuf),
    Address(String),
}

impl Asked {
    fn snapshot(&self, token: Option<&Token>) -> anyhow::Result<Snapshot> {
        match self {
            Asked::Directory(directory) => {
                let announced = Announced::of(directory).with_context(|| {
                    format!(
                        "no run goes on in {}: it has no collector.json with an address",
                        directory.display()
                    )
                })?;
                announced.get("/snapshot.json", token, ANSWER_LIMIT, |snapshot: &Snapshot| &snapshot.run)
            }
            Asked::Address(url) => {
                let answer = client::get(url, "/snapshot.json", token, ANSWER_LIMIT)?;
                serde_json::from_slice(&answer)
                    .with_context(|| format!("{url} is no collector of this ampere"))
            }
        }
    }

    /// A run that was cut off is finished, and its results are shown. `false`: it was not.
    fn shows_if_cut_off(&self) -> anyhow::Result<bool> {
        let Asked::Directory(directory) = self else { return Ok(false) };
        if !finish_if_cut_off(directory) {
            return Ok(false);
        }
        let colour = std::io::stdout().is_terminal();
        let table = render(&summary_of(directory, &mut |_, _| {})?, Format::Table, colour)?;
        print("the report", |out| out.write_all(&table))?;
        Ok(true)
    }

    /// The message when no collector answers any more.
    fn end(&self) -> String {
        let summary = match self {
            Asked::Address(url) => return format!("no collector answers at {} any more", printable(url)),
            Asked::Directory(directory) => directory.join("summary.json"),
        };
        match head(&summary).is_some_and(|run| !run.running) {
            true => format!("the run is over: {}", summary.display()),
            false => "its collector does not answer any more".to_owned(),
        }
    }
}

pub fn top(arguments: TopArguments) -> anyhow::Result<ExitCode> {
    let access = Access::load(&Config::load(None)?).map_err(anyhow::Error::msg)?;
    let target = arguments.target.filter(|target| !target.is_empty());
    let is_address = |target: &String| target.starts_with("http://") || target.starts_with("unix:");
    let asked = match target {
        Some(target) if is_address(&target) => Asked::Address(target),
        Some(directory) => Asked::Directory(directory.into()),
        None => Asked::Directory(only_run()?),
    };
    let mut shown = match asked.snapshot(access.token()) {
        Err(_) if asked.shows_if_cut_off()? => return Ok(ExitCode::SUCCESS),
        shown => shown?,
    };
    let is_terminal = std::io::stdout().is_terminal();
    let mut silent = 0;
    loop {
        let text = if is_terminal { page(&shown) } else { line(&shown) + "\n" };
        let mut out = std::io::stdout().lock();
        if out.write_all(text.as_bytes()).and_then(|()| out.flush()).is_err() {
            return Ok(ExitCode::SUCCESS); // the reader has gone
        }
        drop(out);
        let mut pause = if is_terminal { TABLE_PERIOD } else { LINE_PERIOD };
        shown = loop {
            std::thread::sleep(pause);
            match asked.snapshot(access.token()) {
                Ok(snapshot) => break snapshot,
                Err(_) if silent == UNANSWERED && asked.shows_if_cut_off()? => return Ok(ExitCode::SUCCESS),
                Err(_) if silent == UNANSWERED => {
                    say!("ampere: {}", asked.end());
                    return Ok(ExitCode::SUCCESS);
                }
                // Another collector may take its place.
                Err(_) => (silent, pause) = (silent + 1, RETRY),
            }
        };
        silent = 0;
    }
}

fn page(snapshot: &Snapshot) -> String {
    // A terminal that was made without a size says 0.
    let size = tcgetwinsize(std::io::stdout()).ok().filter(|size| size.ws_row > 0 && size.ws_col > 0);
    let lines = size.map_or(24, |size| size.ws_row.max(OTHER_ROWS + 1));
    let rows = table(snapshot, usize::from(lines - OTHER_ROWS));
    let width = size.map_or(80, |size| usize::from(size.ws_col.max(20)));
    let clipped: Vec<String> = rows.iter().map(|row| crate::terminal::screen::clip(row, width)).collect();
    format!("\x1b[H\x1b[2J{}\n", clipped.join("\n"))
}

/// The output directory of this user's run on this node, if there is just one.
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
