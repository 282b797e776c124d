//! `ampere compare`: shows runs, or groups of runs, side by side.

use crate::percent::{Percent, percent};
use crate::report::{repeats, summary_of};
use crate::terminal::progress::Progress;
use crate::terminal::words::{given, path_parser, print, screen_of};
use crate::write_file::write_to;
use ampere_figures::summary::Run;
use ampere_report::compare::check::{Finding, Wanted};
use ampere_report::compare::{Comparison, Form, Named, Per};
use ampere_report::first::screen::Screen;
use anyhow::ensure;
use clap::error::ErrorKind;
use clap::{Args, ValueHint};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Reading that takes less time than this shows no progress bar.
const SHORT: Duration = Duration::from_secs(1);

/// Stands for `--` among the directories. No argument of a program contains this character.
const GROUP_END: &str = "\0";

/// The exit status if a figure rose by more than `--fail-above` allows.
const EXCEEDED: u8 = 3;

#[derive(Args)]
#[command(override_usage = "ampere compare [OPTIONS] <DIRECTORIES>... [-- <DIRECTORIES>...]")]
pub struct CompareArguments {
    /// Output directories of runs, or of series of runs (ampere run --repeat). Each is a group, and changes are relative to the
    /// first one. With `--`, there are two groups: the directories before it and those after it, whose means are compared
    #[arg(required = true, num_args = 1.., value_hint = ValueHint::DirPath, value_parser = path_parser())]
    directories: Vec<PathBuf>,
    /// Divide each run's sums, to compare runs of different sizes
    #[arg(long, value_enum, default_value_t = Per::Run)]
    per: Per,
    /// Include the joules of called functions in those of their callers
    #[arg(long)]
    inclusive: bool,
    /// Exit with status 3 if the second group's figure is this much above the first one's, beyond the noise
    #[arg(long, value_name = "PERCENT%", value_parser = percent)]
    fail_above: Option<Percent>,
    /// The figure that --fail-above checks; may be given several times: joules, dynamic, seconds, or the name of a unit of work,
    /// whose joules per unit are compared [default: joules]
    #[arg(long, value_name = "joules|dynamic|seconds|WORK")]
    metric: Vec<String>,
    /// Check the figure of this function or kernel, instead of that of the run
    #[arg(long, value_name = "NAME", requires = "fail_above")]
    region: Option<String>,
    #[arg(short, long, value_enum, default_value_t = Form::Table)]
    format: Form,
    /// The same as -f json
    #[arg(long, conflicts_with = "format")]
    json: bool,
    /// Write to this file instead of to standard output
    #[arg(short, long, value_parser = path_parser())]
    output: Option<PathBuf>,
}

/// Replaces each `--` of `ampere compare A -- B --option` with a marker, because clap would end the options there.
pub fn with_marked_groups(words: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut words: Vec<OsString> = words.collect();
    if words.get(1).is_some_and(|command| command == "compare") {
        words.iter_mut().filter(|word| *word == "--").for_each(|word| *word = GROUP_END.into());
    }
    words
}

pub fn compare(arguments: CompareArguments) -> anyhow::Result<ExitCode> {
    let format = if arguments.json { Form::Json } else { arguments.format };
    if !arguments.metric.is_empty() && arguments.fail_above.is_none() {
        let message = "--metric needs --fail-above <PERCENT%>: it names the figure that is checked, joules, dynamic, seconds or a unit of work";
        crate::usage::wrong("compare", ErrorKind::MissingRequiredArgument, message);
    }
    let groups = load(groups_of(&arguments.directories))?;
    if format == Form::Junit && arguments.fail_above.is_none() {
        let message = "-f junit needs --fail-above: it has a test case for each figure that is checked";
        crate::usage::wrong("compare", ErrorKind::MissingRequiredArgument, message);
    }
    let mut comparison = match arguments.inclusive {
        true => Comparison::of_inclusive(groups, arguments.per),
        false => Comparison::of(groups, arguments.per),
    };
    let is_exceeded = check(&arguments, &mut comparison)?;
    let output = given(&arguments.output);
    let shown = match format {
        Form::Table => {
            let screen = if output.is_none() { screen_of(&std::io::stdout()) } else { Screen::FILE };
            comparison.table(screen.width)
        }
        format => comparison.render(format),
    };
    match output {
        Some(path) => write_to(path, |file| file.write_all(&shown))?,
        None => print("the comparison", |out| out.write_all(&shown))?,
    }
    comparison.checks().iter().for_each(|check| say!("ampere: {}", check.words));
    Ok(if is_exceeded { ExitCode::from(EXCEEDED) } else { ExitCode::SUCCESS })
}

/// Checks the chosen figures. Returns whether one of them rose too much.
fn check(arguments: &CompareArguments, comparison: &mut Comparison) -> anyhow::Result<bool> {
    let Some(Percent(allowed_percent)) = arguments.fail_above else { return Ok(false) };
    if comparison.group_count() != 2 {
        let message = "--fail-above compares two groups of runs: ampere compare A1 A2 -- B1 B2";
        crate::usage::wrong("compare", ErrorKind::TooManyValues, message);
    }
    let metrics = if arguments.metric.is_empty() { &["joules".to_owned()] } else { &*arguments.metric };
    let mut is_exceeded = false;
    for metric in metrics {
        let wanted = Wanted { metric, region: arguments.region.as_deref(), allowed_percent };
        is_exceeded |= comparison.check(&wanted)?.finding == Finding::Exceeded;
    }
    Ok(is_exceeded)
}

/// Returns the directories of the runs of each group. Without `--`, each directory is a group.
fn groups_of(directories: &[PathBuf]) -> Vec<Vec<PathBuf>> {
    let parts: Vec<&[PathBuf]> = directories.split(|directory| directory.as_os_str() == GROUP_END).collect();
    let groups: Vec<Vec<PathBuf>> = match parts[..] {
        [all] => all.iter().map(|directory| runs_of(directory)).collect(),
        [first, other] => {
            let whole = |part: &[PathBuf]| part.iter().flat_map(|directory| runs_of(directory)).collect();
            [first, other].map(whole).into_iter().filter(|group: &Vec<PathBuf>| !group.is_empty()).collect()
        }
        _ => {
            let message = "there are only two groups: one before -- and one after it";
            crate::usage::wrong("compare", ErrorKind::TooManyValues, message);
        }
    };
    if groups.len() < 2 {
        let message = match groups.concat().len() {
            0 | 1 => "there is only one run: name another one to compare it with",
            _ => "there is only one group of runs: name another one to compare it with",
        };
        crate::usage::wrong("compare", ErrorKind::TooFewValues, message);
    }
    groups
}

/// Reads the summaries of all runs. If any group has several runs, a run that was named twice is an error.
fn load(groups: Vec<Vec<PathBuf>>) -> anyhow::Result<Vec<Vec<Named>>> {
    let bar = Progress::of("runs");
    let begun = Instant::now();
    let expected = groups.iter().map(Vec::len).sum::<usize>() as u64;
    let mut done = 0;
    let mut named = |directory: PathBuf| -> anyhow::Result<Named> {
        let summary = summary_of(&directory, &mut |_, _| {})?;
        done += 1;
        if begun.elapsed() > SHORT {
            bar.step()(done, expected);
        }
        Ok(Named { name: directory.display().to_string(), summary })
    };
    let has_groups = groups.iter().any(|group| group.len() > 1);
    let mut load_group =
        |group: Vec<PathBuf>| group.into_iter().map(&mut named).collect::<anyhow::Result<Vec<Named>>>();
    let groups = groups.into_iter().map(&mut load_group).collect::<anyhow::Result<Vec<_>>>()?;
    bar.end();
    let mut seen = BTreeSet::new();
    for run in groups.iter().flatten().filter(|_| has_groups) {
        // The id of a trace's run is the name of its directory, which other traces may share. Only a start time tells them apart.
        let has_doubtful_id = |run: &Run| run.host == "trace" && run.start.is_empty();
        let is_new = run.summary.run.id.is_empty()
            || has_doubtful_id(&run.summary.run)
            || seen.insert((run.summary.run.id.clone(), run.summary.run.start.clone()));
        ensure!(is_new, "{} was named twice: the variation within a group needs different runs", run.name);
    }
    Ok(groups)
}

/// Returns the runs in a directory of `ampere run --repeat`; any other directory is itself a run.
fn runs_of(directory: &Path) -> Vec<PathBuf> {
    let runs = repeats(directory);
    if runs.is_empty() { vec![directory.to_owned()] } else { runs }
}
