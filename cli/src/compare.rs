//! `ampere compare`: shows runs, or groups of runs, side by side.

use crate::report::summary_of;
use crate::terminal::progress::Progress;
use crate::terminal::words::{given, path_parser, print, screen_of};
use crate::write_file::write_to;
use ampere_report::compare::{Comparison, Form, Named, Per};
use ampere_report::first::screen::Screen;
use anyhow::ensure;
use clap::error::ErrorKind;
use clap::{Args, ValueHint};
use std::collections::BTreeSet;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Reading that takes less time than this shows no progress bar.
const SHORT: Duration = Duration::from_secs(1);

#[derive(Args)]
pub struct CompareArguments {
    /// Output directories of runs; changes are relative to the first. If more directories follow after `--`, the ones before it are the first group
    #[arg(required = true, num_args = 1.., value_hint = ValueHint::DirPath, value_parser = path_parser())]
    directories: Vec<PathBuf>,
    /// After `--`: a second group, whose mean is compared with the first group's
    #[arg(last = true, value_hint = ValueHint::DirPath, value_parser = path_parser())]
    others: Vec<PathBuf>,
    /// Divide each run's sums, to compare runs of different sizes
    #[arg(long, value_enum, default_value_t = Per::Run)]
    per: Per,
    /// Functions and call paths have the joules of the functions that they call, too
    #[arg(long)]
    inclusive: bool,
    #[arg(short, long, value_enum, default_value_t = Form::Table)]
    format: Form,
    /// The same as -f json
    #[arg(long, conflicts_with = "format")]
    json: bool,
    /// Write to this file instead of to standard output
    #[arg(short, long, value_parser = path_parser())]
    output: Option<PathBuf>,
}

pub fn compare(arguments: CompareArguments) -> anyhow::Result<ExitCode> {
    let CompareArguments { directories, others, per, inclusive, format, json, output } = arguments;
    let format = if json { Form::Json } else { format };
    refuse_options_among(&directories, &others);
    if others.is_empty() && directories.len() < 2 {
        let words = "there is only one run: name another one to compare it with";
        crate::usage::wrong("compare", ErrorKind::TooFewValues, words);
    }
    let bar = Progress::of("runs");
    let (begun, expected, mut done) = (Instant::now(), (directories.len() + others.len()) as u64, 0);
    let mut named = |directory: PathBuf| -> anyhow::Result<Named> {
        let summary = summary_of(&directory, &mut |_, _| {})?;
        done += 1;
        if begun.elapsed() > SHORT {
            bar.step()(done, expected);
        }
        Ok(Named { name: directory.display().to_string(), summary })
    };
    let mut load =
        |group: Vec<PathBuf>| group.into_iter().map(&mut named).collect::<anyhow::Result<Vec<Named>>>();
    let groups = if others.is_empty() {
        load(directories)?.into_iter().map(|run| vec![run]).collect()
    } else {
        let groups = vec![load(directories)?, load(others)?];
        let mut seen = BTreeSet::new();
        for run in groups.iter().flatten() {
            let is_new = run.summary.run.id.is_empty()
                || seen.insert((run.summary.run.id.clone(), run.summary.run.start.clone()));
            ensure!(
                is_new,
                "{} was named twice: the variation within a group needs different runs",
                run.name
            );
        }
        groups
    };
    bar.end();
    let comparison =
        if inclusive { Comparison::of_inclusive(groups, per) } else { Comparison::of(groups, per) };
    let screen = || if given(&output).is_none() { screen_of(&std::io::stdout()) } else { Screen::FILE };
    let comparison = match format {
        Form::Table => comparison.table(screen().width),
        format => comparison.render(format),
    };
    match given(&output) {
        Some(path) => write_to(path, |file| file.write_all(&comparison))?,
        None => print("the comparison", |out| out.write_all(&comparison))?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Ends with a message if options, or another `--`, follow the directories of the second group, where every word is a directory.
fn refuse_options_among(directories: &[PathBuf], others: &[PathBuf]) {
    let is_option = |path: &PathBuf| path.as_os_str().as_encoded_bytes().starts_with(b"-") && !path.exists();
    let Some(at) = others.iter().position(is_option) else { return };
    let words =
        |paths: &[PathBuf]| paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(" ");
    let (others, options) = others.split_at(at);
    if options[0].as_os_str() == "--" {
        let words = "there are only two groups: one before -- and one after it";
        crate::usage::wrong("compare", ErrorKind::TooManyValues, words);
    }
    let words = format!(
        "options go before the directories: ampere compare {} {} -- {}",
        words(options),
        words(directories),
        words(others)
    );
    crate::usage::wrong("compare", ErrorKind::UnknownArgument, &words);
}
