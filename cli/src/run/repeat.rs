//! `ampere run --repeat N --until P%`: a series of runs of one command, each in a numbered directory, until the mean of their
//! joules is known well enough. Each run is an `ampere run` of its own, so it behaves like one that was typed.

use super::RunArguments;
use super::command::{end_as, spawn, wait_for};
use super::signals::{Listener, Witness};
use crate::collector::run_name;
use crate::percent::Percent;
use crate::report::{holds_runs, summary_of};
use crate::terminal::words::given;
use ampere_collector::run_directory::output::default_directory;
use ampere_model::digits::{energy, significant};
use ampere_model::text::one_line;
use ampere_report::compare::statistics::{CONFIDENCE, interval_of_mean};
use anyhow::{Context, ensure};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};

/// A series has at least this many runs before it ends early, because two runs may have the same joules by chance.
const RUNS_MIN: usize = 3;

/// Runs the series. Returns the status of the run that failed, which ends the series, or 0.
pub fn series(arguments: &RunArguments, limit: u32) -> anyhow::Result<ExitCode> {
    let output = given(&arguments.output).map_or_else(|| default_directory(&run_name()), Path::to_owned);
    ensure!(
        !holds_runs(&output),
        "{} holds the results of other runs: name another directory for this series",
        output.display()
    );
    let asked = ampere_signal_safety::asked_to_end();
    let mut joules = Vec::new();
    for number in 1..=limit {
        let directory = output.join(number.to_string());
        let status = run_once(arguments, &directory, asked)?;
        if !status.success() {
            say!("ampere: run {number} of {limit} ended with a bad status: the series stops here");
            return Ok(end_as(status));
        }
        let summary = match summary_of(&directory, &mut |_, _| {}) {
            Ok(summary) => summary,
            Err(why) => {
                say!(
                    "ampere: the series ends with run {number} of {limit}, which has no results: {}",
                    one_line(&*why)
                );
                return Ok(ExitCode::FAILURE);
            }
        };
        joules.push(summary.run.total_joules);
        if !arguments.quiet {
            let (used, seconds) = (energy(summary.run.total_joules), significant(summary.run.seconds, 3));
            say!("ampere: run {number} of {limit}: {used} in {seconds} s; {}", mean_words(&joules));
        }
        if asked.load(Ordering::Relaxed) || is_known(&joules, arguments.until) {
            break;
        }
    }
    if !arguments.quiet {
        say!("ampere: {}", result(&joules, limit, arguments.until, &output));
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs the command once, and passes signals on to it. A signal that asks it to end sets `asked`.
fn run_once(arguments: &RunArguments, directory: &Path, asked: &AtomicBool) -> anyhow::Result<ExitStatus> {
    let witness = Witness::start();
    let listener = Listener::start();
    let run = spawn(&command(arguments, directory)?, |_| ()).context("cannot start a run of the series")?;
    wait_for(run, listener, witness, None, &|_| asked.store(true, Ordering::Relaxed), &|_| {})
}

/// Returns the `ampere run` of one run: with all options of the series as they were typed, but with its own directory.
fn command(arguments: &RunArguments, directory: &Path) -> anyhow::Result<Command> {
    let words: Vec<OsString> = std::env::args_os().skip(2).collect();
    let options = words.strip_suffix(&*arguments.command).unwrap_or_default();
    let options = options.strip_suffix(&[OsString::from("--")]).unwrap_or(options);
    let mut command = Command::new(own_program()?);
    command.arg("run").args(options).arg("--of-series").arg("--output").arg(directory);
    command.arg("--").args(&arguments.command);
    Ok(command)
}

fn own_program() -> anyhow::Result<PathBuf> {
    std::env::current_exe().context("cannot find ampere's own program")
}

/// Whether the mean of the joules is known as exactly as requested.
fn is_known(joules: &[f64], until: Option<Percent>) -> bool {
    let part = half_percent(joules).filter(|_| joules.len() >= RUNS_MIN);
    part.zip(until).is_some_and(|(part, Percent(wanted))| part < wanted)
}

/// Returns half the width of the range in which the mean lies with the probability [`CONFIDENCE`], in percent of the mean.
fn half_percent(joules: &[f64]) -> Option<f64> {
    let (mean, half) = interval_of_mean(joules);
    half.filter(|_| mean > 0.0).map(|half| 100.0 * half / mean)
}

fn mean_words(joules: &[f64]) -> String {
    let (mean, half) = interval_of_mean(joules);
    let Some((half, percent)) = half.zip(half_percent(joules)) else {
        return "one run has no range".to_owned();
    };
    format!(
        "mean {} ({:.0} % range {} to {}, ± {percent:.1} %)",
        energy(mean),
        100.0 * CONFIDENCE,
        energy(mean - half),
        energy(mean + half)
    )
}

fn result(joules: &[f64], limit: u32, until: Option<Percent>, output: &Path) -> String {
    let runs = ampere_model::text::plural(joules.len() as u64, "run");
    let reason = match until {
        Some(Percent(wanted)) if is_known(joules, until) => format!(": the range is below ± {wanted} %"),
        Some(Percent(wanted)) if joules.len() == limit as usize => {
            format!(": the range is not below ± {wanted} %, more runs narrow it")
        }
        _ => String::new(),
    };
    format!("{runs} of at most {limit} in {}: {}{reason}", output.display(), mean_words(joules))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_series_ends_early_if_the_range_of_its_mean_is_small() {
        let until = Some(Percent(2.0));
        assert!(!is_known(&[100.0], until), "one run has no range");
        assert!(!is_known(&[100.0, 100.0], until), "two runs may be equal by chance");
        assert!(is_known(&[100.0, 100.1, 99.9], until));
        assert!(!is_known(&[100.0, 102.0, 98.0], until));
        assert!(!is_known(&[100.0, 100.1, 99.9], None) && !is_known(&[0.0; 3], until));
        let words = result(&[100.0, 102.0, 98.0], 3, until, Path::new("out"));
        // 4.303 is the 97.5 % quantile of Student's t with two degrees of freedom: 4.303 * 2 / sqrt(3) = 4.97.
        let expected = "3 runs of at most 3 in out: mean 100 J (95 % range 95.0 J to 105 J, ± 5.0 %): \
                        the range is not below ± 2 %, more runs narrow it";
        assert_eq!(words, expected);
        let words = result(&[100.0, 100.1, 99.9], 5, until, Path::new("out"));
        assert!(words.starts_with("3 runs of at most 5") && words.ends_with("below ± 2 %"), "{words}");
    }
}
