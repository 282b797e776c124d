//! `ampere top`: the live table of a run that somebody else has started.

use crate::watch::{fetch, line, table, url};
use ampere_collector::access::Access;
use ampere_collector::config::Config;
use ampere_collector::leftover;
use ampere_collector::text::printable;
use anyhow::{Context, bail};
use clap::Args;
use rustix::termios::tcgetwinsize;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

const TABLE_PERIOD: Duration = Duration::from_secs(1);
const LINE_PERIOD: Duration = Duration::from_secs(5);
/// Who has not answered so often is gone; one that was killed is replaced sooner.
const UNANSWERED: u32 = 5;
const RETRY: Duration = Duration::from_millis(500);
/// Beside the functions: two lines above, one below, and the prompt's.
const OTHER_ROWS: u16 = 4;

#[derive(Args)]
pub struct TopArguments {
    /// Output directory of a run, or its collector's address (http://..., unix:/...); without it, your run on this node
    target: Option<String>,
}

pub fn top(arguments: TopArguments) -> anyhow::Result<ExitCode> {
    let access = Access::load(&Config::load(None)?).map_err(anyhow::Error::msg)?;
    let target = arguments.target.filter(|target| !target.is_empty());
    let is_address = |target: &String| target.starts_with("http://") || target.starts_with("unix:");
    let (directory, mut address) = match target {
        Some(target) if is_address(&target) => (None, target),
        Some(directory) => of_directory(Path::new(&directory))?,
        None => of_directory(&only_run()?)?,
    };
    let mut silent = 0;
    let is_terminal = std::io::stdout().is_terminal();
    loop {
        let Some(snapshot) = fetch(&address, access.token()) else {
            silent += 1;
            if silent == UNANSWERED {
                break;
            }
            std::thread::sleep(RETRY);
            // Another collector may be in its place.
            address = directory.as_deref().and_then(url).unwrap_or(address);
            continue;
        };
        silent = 0;
        let shown = if is_terminal {
            let size = tcgetwinsize(std::io::stdout()).ok();
            let lines = size.map_or(24, |size| size.ws_row.max(OTHER_ROWS + 1));
            let rows = table(&snapshot, usize::from(lines - OTHER_ROWS));
            let width = size.map_or(80, |size| usize::from(size.ws_col.max(20)));
            let clipped: Vec<String> = rows.iter().map(|row| crate::screen::clip(row, width)).collect();
            format!("\x1b[H\x1b[2J{}\n", clipped.join("\n"))
        } else {
            line(&snapshot) + "\n"
        };
        let mut out = std::io::stdout().lock();
        if out.write_all(shown.as_bytes()).and_then(|()| out.flush()).is_err() {
            return Ok(ExitCode::SUCCESS); // nobody looks any more
        }
        drop(out);
        std::thread::sleep(if is_terminal { TABLE_PERIOD } else { LINE_PERIOD });
    }
    match directory.map(|directory| directory.join("summary.json")).filter(|summary| summary.exists()) {
        Some(summary) => say!("ampere: the run is over: {}", summary.display()),
        None => say!("ampere: nobody answers at {} any more", printable(&address)),
    }
    Ok(ExitCode::SUCCESS)
}

fn of_directory(directory: &Path) -> anyhow::Result<(Option<PathBuf>, String)> {
    let shown = directory.display();
    let address = url(directory).with_context(|| {
        format!("no run goes on in {shown}: there is no collector.json that tells where it is")
    })?;
    Ok((Some(directory.to_owned()), address))
}

/// The output directory of this user's run on this node, if there is just one.
fn only_run() -> anyhow::Result<PathBuf> {
    let running = leftover::sessions().into_iter().filter(|session| session.in_use.is_some());
    let mut directories: Vec<PathBuf> =
        running.filter_map(|session| session.output).map(|output| output.directory).collect();
    directories.retain(|directory| url(directory).is_some());
    match directories.as_slice() {
        [one] => Ok(one.clone()),
        [] => {
            bail!("no run of yours goes on on this node: name an output directory or a collector's address")
        }
        several => {
            let names: Vec<String> = several.iter().map(|path| path.display().to_string()).collect();
            bail!("several runs go on on this node: name one of {}", names.join(", "))
        }
    }
}
