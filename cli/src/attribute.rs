//! `ampere attribute`: computes the energy of an existing OTF2 trace, with the engine that also computes a live run's.

use crate::attribute_ranks::LaunchedProcess;
use crate::report::write_summary;
use crate::run::{places_to_look, tree_words};
use crate::terminal::interrupt::remove_when_interrupted;
use crate::terminal::progress::Progress;
use crate::terminal::words::{eprint_warning, given, path_parser, print, print_in_colour, screen_of};
use ampere_collector::finish;
use ampere_collector::run_directory::output;
use ampere_figures::summary::Summary;
use ampere_report::{Choice, Format, NO_KERNELS, first, json};
use ampere_ring::files::unfinished;
use ampere_settings::{Config, Policy};
use ampere_timeline::attributor::ViewKind;
use ampere_trace::chrome::trace_next_to;
use ampere_trace::offline::{self, AttributionOptions};
use ampere_trace::share_figures::Attributed;
use anyhow::{Context, anyhow, bail};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::error::ErrorKind;
use clap::{Args, ValueEnum, ValueHint};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(Args)]
pub struct AttributeArguments {
    /// The trace's anchor file, traces.otf2, or its directory
    #[arg(value_hint = ValueHint::FilePath)]
    trace: PathBuf,
    /// Settings file, such as ampere.toml: mainly which metric belongs to which device
    #[arg(long, env = "AMPERE_CONFIG", value_parser = path_parser())]
    config: Option<PathBuf>,
    /// How the joules of a sample interval are divided among the frames in it [default: active where CPU times or
    /// kernels are known, otherwise time_sliced]
    #[arg(long, value_parser = policy_parser())]
    policy: Option<Policy>,
    /// Attribute time like a counter as well: a profile of the ranks' time, which needs no energy metric
    #[arg(long)]
    time: bool,
    /// Only one view: ranks, or GPU kernels
    #[arg(long, value_enum)]
    view: Option<ViewName>,
    /// Write a row for each call, as CSV (FILE.csv) or else as Parquet, with the call paths next to it (FILE.callpaths.parquet)
    #[arg(long, value_name = "FILE.parquet", value_hint = ValueHint::FilePath, value_parser = path_parser())]
    calls: Option<PathBuf>,
    /// Also write summary.json, summary.txt and report.html to this directory
    #[arg(short, long)]
    output: Option<PathBuf>,
    /// Use at most this many threads; no figure depends on the number [default: one for each core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    format: Format,
    /// The same as -f json
    #[arg(long, conflicts_with = "format")]
    json: bool,
}

fn policy_parser() -> impl TypedValueParser<Value = Policy> {
    let find = |word: String| Policy::WORDS.iter().find(|(name, _)| *name == word).map(|(_, policy)| *policy);
    PossibleValuesParser::new(Policy::WORDS.iter().map(|(word, _)| *word))
        .try_map(move |word| find(word).ok_or("no such policy"))
}

#[derive(Clone, Copy, ValueEnum)]
enum ViewName {
    Ranks,
    Kernels,
}

pub fn attribute(mut arguments: AttributeArguments) -> anyhow::Result<ExitCode> {
    arguments.trace = trace_in(&arguments.trace)?;
    if arguments.json {
        arguments.format = Format::Json;
    }
    if arguments.format.is_of_events() {
        let format = arguments.format.to_possible_value().map(|value| value.get_name().to_owned());
        let (trace, format) = (arguments.trace.display(), format.unwrap_or_default());
        let only = format!("ampere report makes this format: ampere report {trace} -f {format}");
        crate::usage::wrong("attribute", ErrorKind::ArgumentConflict, &only);
    }
    let results =
        arguments.output.iter().flat_map(|directory| output::RESULTS.map(|name| directory.join(name)));
    let results: Vec<PathBuf> = results.collect();
    // If a launcher started several processes, the one that ends last writes the files, perhaps before another one starts.
    let is_first = LaunchedProcess::by_launcher().is_none_or(|process| process.rank == 0);
    if let Some(path) = results.iter().find(|path| is_first && path.exists()) {
        bail!("{} already exists: choose another directory with -o", path.display());
    }
    remove_when_interrupted(results.iter().map(|path| unfinished(path)).collect())
        .context("cannot wait for signals")?;
    let mut config = Config::load(given(&arguments.config))?;
    config.attribution.policy = arguments.policy.or(config.attribution.policy);
    config.attribution.time |= arguments.time;
    let view = arguments.view.map(|view| match view {
        ViewName::Ranks => ViewKind::Ranks,
        ViewName::Kernels => ViewKind::Kernels,
    });
    let bar = Progress::default();
    let mut step = bar.step();
    let threads = arguments.threads.map_or_else(offline::cores, usize::from);
    let options = AttributionOptions {
        config: &config,
        only: view,
        waits: true,
        recorder: None,
        threads,
        progress: &mut step,
    };
    let attributed = figures(&arguments, options)?;
    drop(step);
    bar.end();
    // If a launcher started several processes, only one of them has the figures.
    let Some(attributed) = attributed else { return Ok(ExitCode::SUCCESS) };
    for line in attributed.warnings.iter().chain(&attributed.odd) {
        eprint_warning(line);
    }
    let summary = attributed.summary;
    let view = (view == Some(ViewKind::Kernels)).then(|| "kernels".to_owned());
    if (Choice { view, ..Choice::default() }).is_of_absent_kernels(&summary, arguments.format) {
        bail!("{NO_KERNELS}");
    }
    if let Some(directory) = &arguments.output {
        ampere_owned::make_all(directory, ampere_owned::DIRECTORY_MODE)
            .with_context(|| format!("cannot create {}", directory.display()))?;
        finish::write_results(directory, &summary)?;
    }
    match arguments.format {
        Format::Json => {
            print("the summary", |out| json::write(&mut BufWriter::with_capacity(1 << 16, out), &summary))?
        }
        Format::Table => {
            let lines = first::render(&summary, screen_of(&std::io::stdout()), &more(&arguments, &summary));
            print_in_colour("the summary", |out| out.write_all(lines.as_bytes()))?;
        }
        other => return write_summary(&summary, other, None, None),
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns lines that say where the remaining tables and the page are.
fn more(arguments: &AttributeArguments, summary: &Summary) -> Vec<String> {
    let Some(directory) = &arguments.output else {
        let all = "for all tables and the page, use -o DIR and then ampere report DIR".to_owned();
        return std::iter::once(all).chain(tree_words(summary)).collect();
    };
    places_to_look(directory, summary)
}

/// Returns the trace in the named directory, or the named file itself.
pub fn trace_in(named: &Path) -> anyhow::Result<PathBuf> {
    if !named.is_dir() {
        return Ok(named.to_owned());
    }
    trace_next_to(named).map_err(|_| anyhow!("{} has no traces.otf2: name a trace", named.display()))
}

/// Returns the figures; `None` if another process has them or will have them.
fn figures(
    arguments: &AttributeArguments,
    options: AttributionOptions,
) -> anyhow::Result<Option<Attributed>> {
    let (trace, calls) = (&arguments.trace, given(&arguments.calls));
    let alone = match (LaunchedProcess::by_launcher(), &arguments.output) {
        (None, _) => None,
        (Some(process), Some(directory)) if calls.is_none() => {
            return process.attribute(trace, options, directory);
        }
        (Some(process), _) => Some(process),
    };
    if let Some(LaunchedProcess { rank, size }) = alone {
        if rank > 0 {
            return Ok(None);
        }
        let why = if calls.is_some() { "with --calls" } else { "without -o" };
        say!("ampere: {why} the first of {size} processes does all the work, and the others do nothing");
    }
    match calls {
        Some(calls) => crate::calls::attribute(trace, options, calls).map(Some),
        None => offline::attribute_as(trace, options).map(Some),
    }
}
