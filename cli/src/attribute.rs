//! `ampere attribute`: the same engine over an existing OTF2 trace.

use crate::terminal::progress::Progress;
use crate::terminal::words::{given, path_parser, print};
use ampere_collector::finish;
use ampere_collector::run_directory::output;
use ampere_report::{json, text};
use ampere_settings::{Config, Policy};
use ampere_timeline::attributor::ViewKind;
use ampere_trace::offline::{self, Attributed, How};
use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use std::io::{BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(Args)]
pub struct AttributeArguments {
    /// The trace's anchor file, traces.otf2
    trace: PathBuf,
    /// Settings, a file such as ampere.toml: above all which metric is which device
    #[arg(long, env = "AMPERE_CONFIG", value_parser = path_parser())]
    config: Option<PathBuf>,
    /// How a sample interval's joules go to the frames in it
    #[arg(long, value_enum)]
    policy: Option<PolicyName>,
    /// Attribute time like a counter as well: a profile of the ranks' time, which needs no energy metric
    #[arg(long)]
    time: bool,
    /// Only one view: ranks, or GPU kernels
    #[arg(long, value_enum)]
    view: Option<ViewName>,
    /// Write a row for each call there, as a Parquet file, with the call paths beside it (FILE.callpaths.parquet)
    #[arg(long, value_name = "FILE.parquet", value_parser = path_parser())]
    calls: Option<PathBuf>,
    /// Also write summary.json, summary.txt and report.html there
    #[arg(short, long)]
    output: Option<PathBuf>,
    /// Print the summary as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum PolicyName {
    #[value(name = "time_sliced")]
    TimeSliced,
    #[value(name = "busy_only")]
    BusyOnly,
}

#[derive(Clone, Copy, ValueEnum)]
enum ViewName {
    Ranks,
    Kernels,
}

pub fn attribute(arguments: AttributeArguments) -> anyhow::Result<ExitCode> {
    if let Some(directory) = &arguments.output {
        let taken = output::RESULTS.iter().map(|name| directory.join(name)).find(|path| path.exists());
        if let Some(path) = taken {
            bail!("{} exists already: choose another directory with -o", path.display());
        }
    }
    let mut config = Config::load(given(&arguments.config))?;
    match arguments.policy {
        Some(PolicyName::TimeSliced) => config.attribution.policy = Policy::TimeSliced,
        Some(PolicyName::BusyOnly) => config.attribution.policy = Policy::BusyOnly,
        None => {}
    }
    config.attribution.time |= arguments.time;
    let view = arguments.view.map(|view| match view {
        ViewName::Ranks => ViewKind::Ranks,
        ViewName::Kernels => ViewKind::Kernels,
    });
    let bar = Progress::default();
    let mut step = bar.step();
    let how = How { config: &config, only: view, recorder: None, progress: &mut step };
    let attributed = match given(&arguments.calls) {
        Some(calls) => with_calls(&arguments.trace, how, calls)?,
        None => offline::attribute_as(&arguments.trace, how)?,
    };
    drop(step);
    bar.end();
    for line in attributed.warnings.iter().chain(&attributed.odd) {
        say!("ampere: {line}");
    }
    let summary = attributed.summary;
    if let Some(directory) = &arguments.output {
        std::fs::create_dir_all(directory)
            .with_context(|| format!("cannot create {}", directory.display()))?;
        finish::write_results(directory, &summary)?;
    }
    print("the summary", |out| match arguments.json {
        true => json::write(&mut BufWriter::with_capacity(1 << 16, out), &summary),
        false => out.write_all(text::render(&summary, std::io::stdout().is_terminal()).as_bytes()),
    })?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(feature = "parquet")]
fn with_calls(trace: &Path, how: How, calls: &Path) -> anyhow::Result<Attributed> {
    crate::calls::attribute(trace, how, calls)
}

#[cfg(not(feature = "parquet"))]
fn with_calls(_: &Path, _: How, _: &Path) -> anyhow::Result<Attributed> {
    Err(ampere_report::ReportError::NoParquet.into())
}
