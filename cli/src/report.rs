//! `ampere report`: a run's summary in the form that one wants.

use crate::watch::url;
use crate::words::{given, path_parser};
use ampere_collector::access::Access;
use ampere_collector::client;
use ampere_collector::config::Config;
use ampere_collector::leftover::spools_below;
use ampere_collector::live::write_whole_bytes;
use ampere_collector::report::{Choice, Format, render};
use ampere_collector::summary::{SCHEMA, Summary};
use anyhow::{Context, bail};
use clap::Args;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// A collector looks at what it is asked at least this often.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);

#[derive(Args)]
pub struct ReportArguments {
    /// Output directory of a run, also of one that goes on; or a summary.json
    #[arg(value_parser = path_parser())]
    directory: PathBuf,
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    format: Format,
    /// Write it there instead of to standard output
    #[arg(short, long, value_parser = path_parser())]
    output: Option<PathBuf>,
    /// Only this device; may be given several times
    #[arg(long)]
    device: Vec<String>,
    /// Only one view: ranks, or GPU kernels
    #[arg(long, value_parser = ["ranks", "kernels"])]
    view: Option<String>,
}

pub fn report(arguments: ReportArguments) -> anyhow::Result<ExitCode> {
    let mut summary = summary_of(&arguments.directory)?;
    let choice = Choice { devices: arguments.device, view: arguments.view };
    choice.apply(&mut summary).map_err(anyhow::Error::msg)?;
    let output = given(&arguments.output);
    let colour = output.is_none() && std::io::stdout().is_terminal();
    let report = render(&summary, arguments.format, colour).map_err(anyhow::Error::msg)?;
    if let Some(path) = output {
        write_whole_bytes(path, &report).map_err(anyhow::Error::msg)?;
        return Ok(ExitCode::SUCCESS);
    }
    print(&report)
}

pub fn print(report: &[u8]) -> anyhow::Result<ExitCode> {
    let mut out = std::io::stdout().lock();
    match out.write_all(report).and_then(|()| out.flush()) {
        // A reader that has seen enough closes the pipe: no error of ours.
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => Err(e).context("cannot print the report"),
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// What the run says, or has said.
pub fn summary_of(directory: &Path) -> anyhow::Result<Summary> {
    let shown = directory.display();
    let file = if directory.is_file() { directory.to_owned() } else { directory.join("summary.json") };
    let text = match std::fs::read(&file) {
        Ok(text) => text,
        Err(_) if directory.join("collector.json").exists() => ask_collector(directory)?,
        Err(_) if !spools_below(directory, 1, usize::MAX).0.is_empty() => {
            bail!("{shown} is of a run that was killed: ampere recover {shown} finishes it")
        }
        Err(error) => {
            bail!("cannot read {}: {error}: name an output directory of ampere run", file.display())
        }
    };
    let summary: Summary = serde_json::from_slice(&text)
        .map_err(|error| anyhow::anyhow!("{} is no summary of this ampere: {error}", file.display()))?;
    if summary.schema != SCHEMA {
        bail!("{}: schema {:?}, {SCHEMA:?} expected", file.display(), summary.schema);
    }
    Ok(summary)
}

/// As of now, while the run goes on.
fn ask_collector(directory: &Path) -> anyhow::Result<Vec<u8>> {
    let url = url(directory).context("its collector.json has no address")?;
    let access = Access::load(&Config::load(None)?).map_err(anyhow::Error::msg)?;
    client::get(&url, "/summary.json", access.token(), ANSWER_LIMIT).map_err(anyhow::Error::msg)
}
