//! `ampere report`: prints a run's summary in one of its forms.

use crate::collector::announced::Announced;
use crate::recover::{finish_if_cut_off, why_unfinished};
#[cfg(feature = "sqlite")]
use crate::terminal::interrupt::remove_when_interrupted;
use crate::terminal::progress::Progress;
use crate::terminal::words::{
    Output, eprint_warning, given, is_closed_pipe, path_parser, print, print_in_colour, screen_of,
};
use crate::timeline::{self, TimelineArguments};
use crate::write_file::write_to;
use ampere_collector::run_directory::leftover::spools_below;
use ampere_collector::run_directory::nodes::{self, Node};
use ampere_collector::run_directory::output::foreign_run;
use ampere_endpoint::access::Access;
use ampere_figures::summary::{BYTES_MAX, Summary};
use ampere_model::text::{one_line, printable};
use ampere_report::first::screen::Screen;
use ampere_report::{Choice, Format, NO_KERNELS, render};
use ampere_ring::process::is_this_node;
use ampere_settings::Config;
use ampere_trace::chrome::{self, Chrome, EventFormat, Part};
use ampere_trace::offline::{self, AttributionOptions};
use ampere_trace::perfetto::Perfetto;
#[cfg(feature = "sqlite")]
use ampere_trace::rpd;
use anyhow::{Context, bail, ensure};
use clap::error::ErrorKind;
use clap::{Args, ValueEnum, ValueHint};
use flate2::Compression;
use flate2::write::GzEncoder;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// An upper bound on the time in which a collector answers requests.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);
/// A running job rewrites its figures more often than this, so more recent figures may belong to a running job.
const RECENT_AGE_MAX: Duration = Duration::from_secs(30);
const PROGRESS_FROM: Duration = Duration::from_secs(1);

#[derive(Args)]
pub struct ReportArguments {
    /// Output directory of a run, which may still be running; or a summary.json, or any OTF2 trace [default: the last run here]
    #[arg(value_hint = ValueHint::DirPath, value_parser = path_parser())]
    directory: Option<PathBuf>,
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    format: Format,
    /// The same as -f json
    #[arg(long, conflicts_with = "format")]
    json: bool,
    /// Write to this file instead of to standard output
    #[arg(short, long, value_parser = path_parser())]
    output: Option<PathBuf>,
    /// Only this device; may be given several times
    #[arg(long)]
    device: Vec<String>,
    /// Only one view: ranks, or GPU kernels
    #[arg(long, value_parser = ["ranks", "kernels"])]
    view: Option<String>,
    /// At most this many rows in each table; with more than 15, small ones are shown, too
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    rows: Option<u32>,
    /// What `flamegraph`, `folded` and `pprof` show: all joules, or those above what the devices draw anyway
    #[arg(long, value_enum, default_value_t = Metric::Joules)]
    metric: Metric,
    /// The run's settings, for traces, `chrome`, `perfetto`, `firefox` and `timeline`: needed because the trace holds raw readings
    #[arg(long, env = "AMPERE_CONFIG", value_parser = path_parser())]
    config: Option<PathBuf>,
    #[command(flatten)]
    timeline: TimelineArguments,
}

/// The joules that `flamegraph`, `folded` and `pprof` show for each call path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Metric {
    Joules,
    Dynamic,
}

pub fn report(mut arguments: ReportArguments) -> anyhow::Result<ExitCode> {
    if arguments.json {
        arguments.format = Format::Json;
    }
    let dynamic_only = arguments.metric == Metric::Dynamic;
    if dynamic_only && !matches!(arguments.format, Format::Flamegraph | Format::Folded | Format::Pprof) {
        let only =
            "--metric dynamic is only for -f flamegraph, folded and pprof: the other formats show both";
        crate::usage::wrong("report", ErrorKind::ArgumentConflict, only);
    }
    if arguments.rows.is_some() && arguments.format != Format::Table {
        crate::usage::wrong("report", ErrorKind::ArgumentConflict, "--rows is only for -f table");
    }
    let choice = Choice { devices: arguments.device, view: arguments.view, dynamic_only };
    let output = given(&arguments.output);
    if let Some(option) = arguments.timeline.given().filter(|_| arguments.format != Format::Timeline) {
        crate::usage::wrong(
            "report",
            ErrorKind::ArgumentConflict,
            &format!("{option} is only for -f timeline"),
        );
    }
    let named = given(&arguments.directory).map_or_else(last_run, |directory| Ok(directory.to_owned()))?;
    let named = output_of(&named);
    let runs = repeats(&named);
    if let [first, .., last] = &*runs {
        bail!(
            "{0} is a series of {1} runs: {2} ... {3}; ampere compare {0} OTHER compares its mean with that of other runs",
            named.display(),
            runs.len(),
            first.display(),
            last.display()
        );
    }
    let trace = foreign_trace(&named);
    let config = || Config::load(given(&arguments.config));
    if arguments.format.is_of_events() {
        refuse_terminal(arguments.format, output)?;
        let config = config()?;
        let parts = match trace {
            Some(trace) => vec![Part { summary: attributed(&trace, &config, &choice)?, trace }],
            None => parts_of(&named, &choice)?,
        };
        let run = timeline::Run { parts: &parts, choice: &choice, config: &config };
        let write_as = |format: &mut dyn EventFormat| {
            write_events(output, |out, step| chrome::write(&parts, &choice, &config, (format, out), step))
        };
        return match arguments.format {
            Format::Timeline => timeline::report(&run, &arguments.timeline, output),
            Format::Sqlite => write_database(&parts, &choice, &config, output),
            Format::Firefox => write_events(output, |out, _| run.write_profile(out).map(|()| Vec::new())),
            Format::Perfetto => write_as(&mut Perfetto::default()),
            _ => write_as(&mut Chrome::default()),
        };
    }
    let summary = match trace {
        Some(trace) => attributed(&trace, &config()?, &choice)?,
        None => {
            let bar = Progress::of("nodes");
            let summary = summary_of(&named, &mut bar.step());
            bar.end();
            let mut summary = summary?;
            choice.apply(&mut summary)?;
            summary
        }
    };
    if choice.is_of_absent_kernels(&summary, arguments.format) {
        bail!("{NO_KERNELS}");
    }
    write_summary(&summary, arguments.format, output, arguments.rows)
}

/// Writes a summary in the chosen format, to a file or to standard output. `rows`: the maximum number of rows of a table.
pub fn write_summary(
    summary: &Summary,
    format: Format,
    output: Option<&Path>,
    rows: Option<u32>,
) -> anyhow::Result<ExitCode> {
    let mut screen = if output.is_none() { screen_of(&io::stdout()) } else { Screen::FILE };
    screen.rows = rows.map_or(screen.rows, |rows| rows as usize);
    refuse_terminal(format, output)?;
    let report = render(summary, format, screen)?;
    if let Some(path) = output {
        write_to(path, |file| file.write_all(&report))?;
        return Ok(ExitCode::SUCCESS);
    }
    match format {
        Format::Table | Format::Tree => print_in_colour("the report", |out| out.write_all(&report))?,
        _ => print("the report", |out| out.write_all(&report))?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Refuses to write a binary format to a terminal.
fn refuse_terminal(format: Format, output: Option<&Path>) -> anyhow::Result<()> {
    let is_binary = matches!(format, Format::Parquet | Format::Pprof | Format::Perfetto);
    ensure!(
        output.is_some() || !is_binary || !io::stdout().is_terminal(),
        "this format cannot be written to a terminal: name a file with -o"
    );
    Ok(())
}

/// Returns the newest run in the working directory, and prints its name.
fn last_run() -> anyhow::Result<PathBuf> {
    let here = Path::new(".");
    if is_output(here) {
        return Ok(here.to_owned());
    }
    let time = |path: &PathBuf| {
        let times = OUTPUT_FILES.iter().filter_map(|file| path.join(file).metadata().ok()?.modified().ok());
        times.max()
    };
    let wanted = std::env::var_os("AMPERE_OUTPUT").map(PathBuf::from).filter(|path| is_output(path));
    let below = std::fs::read_dir(here).into_iter().flatten().flatten().map(|entry| entry.path());
    let of_series = below.flat_map(|path| repeats(&path));
    let Some(last) = all_outputs_below(here).into_iter().chain(of_series).chain(wanted).max_by_key(time)
    else {
        crate::usage::wrong(
            "report",
            ErrorKind::MissingRequiredArgument,
            "there is no run here: name its output directory",
        );
    };
    let last = last.strip_prefix(here).map(Path::to_owned).unwrap_or(last);
    say!("ampere: the last run here is {}", last.display());
    Ok(last)
}

/// Returns the output directory to which a trace belongs; any other path is returned unchanged.
fn output_of(named: &Path) -> PathBuf {
    let directory = named.parent().filter(|path| !path.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if is_trace(named) && is_output(directory) { directory.to_owned() } else { named.to_owned() }
}

fn is_trace(named: &Path) -> bool {
    named.extension().is_some_and(|of| of == "otf2") && named.is_file()
}

/// Returns the trace if there is no summary for it, so that it must be attributed.
fn foreign_trace(named: &Path) -> Option<PathBuf> {
    if is_trace(named) {
        return Some(named.to_owned());
    }
    let is_of_run = !named.is_dir() || is_output(named) || !spools_below(named, 0, usize::MAX).0.is_empty();
    if is_of_run { None } else { chrome::trace_next_to(named).ok() }
}

/// Attributes a trace without a summary, for the chosen devices and views.
fn attributed(trace: &Path, config: &Config, choice: &Choice) -> anyhow::Result<Summary> {
    let bar = Progress::default();
    let mut step = bar.step();
    let options = AttributionOptions {
        config,
        only: None,
        waits: true,
        recorder: None,
        threads: offline::cores(),
        progress: &mut step,
    };
    let done = offline::attribute_as(trace, options);
    drop(step);
    bar.end();
    let done = done?;
    done.warnings.iter().chain(&done.odd).for_each(|line| eprint_warning(line));
    let mut summary = done.summary;
    choice.apply(&mut summary)?;
    Ok(summary)
}

/// Returns the run's trace, and the traces of nodes that are not in that trace.
fn parts_of(directory: &Path, choice: &Choice) -> anyhow::Result<Vec<Part>> {
    finish_if_cut_off(directory);
    let first = summary_of_node(directory)?;
    let trace = chrome::trace_next_to(directory)?;
    let others = nodes::other_parts(directory, &first.run, summary_of_node)?;
    let mut parts =
        vec![Part { trace, summary: ampere_figures::nodes::summaries::joined(first, others.joined) }];
    parts.extend(others.parts);
    others.missing.iter().for_each(|line| say!("ampere: {line}"));
    let mut unknown = None;
    for part in &mut parts {
        // The chosen device may be on another node.
        if let Err(why) = choice.apply(&mut part.summary) {
            part.summary.devices.clear();
            unknown.get_or_insert(why);
        }
    }
    if let Some(why) = unknown.filter(|_| parts.iter().all(|part| part.summary.devices.is_empty())) {
        bail!("{why}");
    }
    Ok(parts)
}

/// Writes a database under another name, and renames it when it is complete.
#[cfg(feature = "sqlite")]
fn write_database(
    parts: &[Part],
    choice: &Choice,
    config: &Config,
    output: Option<&Path>,
) -> anyhow::Result<ExitCode> {
    let path = output.context("a database cannot go to standard output: name its file with -o")?;
    ensure!(
        path.symlink_metadata().map_or(true, |there| there.is_file()),
        "cannot write {}: it is not a regular file",
        path.display()
    );
    let warnings = write_database_next_to(parts, choice, config, path)
        .with_context(|| format!("cannot write {}", path.display()))?;
    warnings.iter().for_each(|line| eprint_warning(line));
    Ok(ExitCode::SUCCESS)
}

/// SQLite opens files by path and follows links, so it writes in a directory that only this user can access.
#[cfg(feature = "sqlite")]
fn write_database_next_to(
    parts: &[Part],
    choice: &Choice,
    config: &Config,
    path: &Path,
) -> anyhow::Result<Vec<String>> {
    let own = format!("{}.{}", ampere_ring::files::unfinished(path).display(), std::process::id());
    ampere_owned::make(Path::new(&own), ampere_owned::PRIVATE_MODE)?;
    let (own, _held) = ampere_owned::hold(Path::new(&own))?;
    let database = own.join("database");
    remove_when_interrupted(vec![database.clone(), rpd::scratch(&database), own.clone()])
        .context("cannot wait for signals")?;
    let bar = Progress::default();
    let written = rpd::write(parts, choice, config, &database, &mut bar.step());
    bar.end();
    let whole = written.and_then(|warnings| Ok(ampere_owned::put(&database, path).map(|()| warnings)?));
    let _ = ampere_owned::remove_tree(&own);
    whole
}

#[cfg(not(feature = "sqlite"))]
fn write_database(_: &[Part], _: &Choice, _: &Config, _: Option<&Path>) -> anyhow::Result<ExitCode> {
    bail!("this build lacks SQLite: `make build` includes it")
}

/// Writes events while they are read, because a trace may not fit into memory. A file whose name ends in `.gz` is compressed.
fn write_events(
    output: Option<&Path>,
    write: impl FnOnce(&mut dyn Write, &mut offline::Progress) -> anyhow::Result<Vec<String>>,
) -> anyhow::Result<ExitCode> {
    let bar = Progress::default();
    let mut step = bar.step();
    let written = match output {
        Some(path) => {
            let is_compressed = path.extension().is_some_and(|of| of == "gz");
            let mut warnings = Ok(Vec::new());
            let whole = write_to(path, |file| {
                warnings = if is_compressed {
                    let mut file = GzEncoder::new(file, Compression::default());
                    write(&mut file, &mut step)
                        .and_then(|lines| file.finish().map(|_| lines).context("the report"))
                } else {
                    write(file, &mut step)
                };
                if warnings.is_ok() { Ok(()) } else { Err(io::Error::other("no report")) }
            });
            let warnings = warnings.with_context(|| format!("cannot write {}", path.display()));
            warnings.and_then(|warnings| whole.map(|()| warnings))
        }
        None => {
            let mut out = Output::standard();
            write(&mut out, &mut step).and_then(|warnings| out.flush().map(|()| warnings).map_err(Into::into))
        }
    };
    drop(step);
    bar.end();
    match written {
        Ok(warnings) => {
            warnings.iter().for_each(|line| eprint_warning(line));
            Ok(ExitCode::SUCCESS)
        }
        Err(error) if error.downcast_ref().is_some_and(is_closed_pipe) => Ok(ExitCode::SUCCESS),
        Err(error) => Err(error),
    }
}

/// Finishes the interrupted parts of a run, and returns its summary over all nodes. `directory` is the first node's. If this
/// takes longer than a second, `progress` gets the number of nodes that have been read and the number of all nodes.
pub fn summary_of(directory: &Path, progress: &mut dyn FnMut(u64, u64)) -> anyhow::Result<Summary> {
    let begun = Instant::now();
    let directory = &*output_of(directory);
    finish_if_cut_off(directory);
    let first = summary_of_node(directory)?;
    let (mut others, mut missing) = (Vec::new(), Vec::new());
    let nodes = nodes::below(directory, &first.run.id);
    let nodes: Vec<&Node> = nodes::missing_in(&first.run, &nodes).collect();
    for (done, node) in nodes.iter().enumerate() {
        if begun.elapsed() > PROGRESS_FROM {
            progress(done as u64, nodes.len() as u64);
        }
        let answer = summary_of_node(&node.directory).and_then(|summary| {
            // The node's collector may have ended, and the collector of another run may answer at its address.
            let is_same = summary.run.id == first.run.id && summary.run.nodes != first.run.nodes;
            is_same.then_some(summary).context("the collector at its address belongs to another run")
        });
        match answer {
            Ok(summary) => others.push(summary),
            Err(why) => {
                missing.push(format!("{} is not included: {}", node.directory.display(), one_line(&*why)))
            }
        }
    }
    let mut whole = ampere_figures::nodes::summaries::joined(first, others);
    missing.into_iter().for_each(|reason| whole.run.lacks(reason));
    Ok(whole)
}

/// Returns one node's summary: from its file, or from its collector while the run continues. If neither its collector nor its
/// records can be reached, returns the figures that were written last.
fn summary_of_node(directory: &Path) -> anyhow::Result<Summary> {
    let shown = directory.display();
    let file = if directory.is_file() { directory.to_owned() } else { directory.join("summary.json") };
    let is_announced = directory.join("collector.json").exists();
    let text = match ampere_owned::read(&file, BYTES_MAX) {
        Ok(text) => text,
        Err(_) if is_announced => return ask_collector(directory),
        Err(_) if !spools_below(directory, 0, usize::MAX).0.is_empty() => {
            if let Some(owner) = ampere_owned::other_owner(directory) {
                bail!("{} (it has no figures yet)", printable(&foreign_run(directory, owner)));
            }
            bail!(
                "{shown} belongs to a run that was killed: ampere recover {shown} reports why there are no results yet"
            )
        }
        Err(error) => {
            let below = outputs_below(directory);
            let which = if below.is_empty() { String::new() } else { format!(": {}", below.join(", ")) };
            bail!("cannot read {}: {error}: name an output directory of ampere run{which}", file.display())
        }
    };
    let is_json = text.trim_ascii_start().starts_with(b"{");
    ensure!(is_json, "{} is no summary.json: name an output directory of ampere run", file.display());
    let summary = Summary::of_json(&text).map_err(|error| match error.is_eof() {
        true => anyhow::anyhow!("{} is damaged: it ends early", file.display()),
        false => anyhow::anyhow!("{} was not written by a compatible ampere: {error}", file.display()),
    })?;
    if !summary.run.running {
        return Ok(summary);
    }
    let unanswered = match is_announced.then(|| ask_collector(directory)) {
        Some(Ok(now)) => return Ok(now),
        Some(Err(why)) => Some(one_line(&*why)),
        None => None,
    };
    let end = &summary.run.end;
    let age = std::fs::metadata(&file).and_then(|data| data.modified()).map(|time| time.elapsed());
    // The clocks of nodes differ, so a time in the future counts as recent.
    let is_recent = age.is_ok_and(|age| age.map_or(true, |age| age < RECENT_AGE_MAX));
    if is_recent && !summary.run.nodes.iter().any(|node| is_this_node(node)) {
        let node = printable(&summary.run.nodes.join(", "));
        say!(
            "ampere: {shown}: the run is still running on {node} (or was killed within the last seconds): figures as of {end}"
        );
        return Ok(summary);
    }
    if let Some(owner) = ampere_owned::other_owner(directory) {
        let whose = printable(&foreign_run(directory, owner));
        say!("ampere: {whose}: these are the last figures, written at {end}");
        return Ok(summary);
    }
    let why = why_unfinished(directory)
        .or(unanswered)
        .unwrap_or_else(|| "its records are not on this node".to_owned());
    say!("ampere: {shown}: these figures were written at {end}: {why}");
    Ok(summary)
}

/// Every output directory contains at least one of these files.
const OUTPUT_FILES: [&str; 2] = ["summary.json", "collector.json"];

fn is_output(directory: &Path) -> bool {
    OUTPUT_FILES.iter().any(|file| directory.join(file).exists())
}

fn all_outputs_below(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path());
    entries.filter(|path| is_output(path)).collect()
}

/// Returns the output directories of `ampere run --repeat`: those with numbers as names, in a directory that is not an output
/// directory.
pub fn repeats(directory: &Path) -> Vec<PathBuf> {
    if is_output(directory) {
        return Vec::new();
    }
    let number = |path: &Path| path.file_name()?.to_str()?.parse::<u32>().ok();
    let numbered = |path: PathBuf| Some((number(&path)?, path));
    let mut runs: Vec<(u32, PathBuf)> =
        all_outputs_below(directory).into_iter().filter_map(numbered).collect();
    runs.sort_unstable();
    runs.into_iter().map(|(_, path)| path).collect()
}

/// Whether a directory has the results of a run, or of a series.
pub fn holds_runs(directory: &Path) -> bool {
    is_output(directory) || !repeats(directory).is_empty()
}

/// Returns some of the output directories in a directory that is not an output directory.
fn outputs_below(directory: &Path) -> Vec<String> {
    let all = all_outputs_below(directory);
    let mut found: Vec<String> = all.iter().map(|path| printable(&path.to_string_lossy())).collect();
    found.sort();
    found.truncate(3);
    found
}

/// Asks the collector of a run that is still running for the current summary.
fn ask_collector(directory: &Path) -> anyhow::Result<Summary> {
    let Some(announced) = Announced::of(directory) else {
        bail!("{} has no address", directory.join("collector.json").display());
    };
    let access = Access::load(&Config::load(None)?).map_err(anyhow::Error::msg)?;
    announced.get("/summary.json", access.token(), ANSWER_LIMIT, |summary: &Summary| &summary.run.id)
}
