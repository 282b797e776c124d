//! `ampere recover`: finishes runs that were killed together with their collectors.

use crate::run;
use crate::terminal::words::{given, path_parser};
use ampere_collector::finish::join_figures;
use ampere_collector::run_directory::leftover::{self, Leftover};
use ampere_collector::run_directory::nodes;
use ampere_collector::run_directory::recover::{self as finish, Finished, Recovered, Traced};
use ampere_figures::clock_text::rfc3339;
use ampere_model::text::{plural, printable};
use clap::Args;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::UNIX_EPOCH;

#[derive(Args)]
pub struct RecoverArguments {
    /// Output directory of a run that was killed, or its session in shared memory; without it, recoverable runs are listed
    #[arg(value_hint = clap::ValueHint::DirPath, value_parser = path_parser())]
    directory: Option<PathBuf>,
    /// Where to write the results if the run's output directory no longer exists
    #[arg(short, long, requires = "directory", value_parser = path_parser())]
    output: Option<PathBuf>,
    /// Remove the remains of the run instead of finishing it
    #[arg(long, conflicts_with = "output", requires = "directory")]
    discard: bool,
}

pub fn recover(arguments: RecoverArguments) -> anyhow::Result<ExitCode> {
    let Some(directory) = given(&arguments.directory) else { return list() };
    let mut all_is_well = true;
    let (mut found, mut errors) = (Vec::new(), Vec::new());
    for left in finish::find(directory).map_err(anyhow::Error::msg)? {
        match left {
            Ok(left) => found.push(left),
            Err(why) => errors.push(why),
        }
    }
    look_for_writers(&mut found);
    if given(&arguments.output).is_some()
        && let Some(claimed) = found.iter().find_map(|left| left.output.as_ref())
    {
        let shown = claimed.directory.display();
        anyhow::bail!(
            "its records are in {shown}, and its results are written there: omit -o, or move them afterwards"
        );
    }
    // If one node's part cannot be finished, the others still are.
    for left in errors.into_iter().map(Err).chain(found.into_iter().map(Ok)) {
        let done = left.and_then(|left| match arguments.discard {
            true => finish::discard(left),
            false => finish::recover(left, given(&arguments.output)),
        });
        match done {
            Ok(Recovered::Finished(finished)) => all_is_well &= show_finished(&finished),
            Ok(Recovered::Removed(place, why)) => {
                say!("ampere: {place}: {why}: the rest of the run has been removed");
            }
            Err(why) => {
                say!("ampere: {why}");
                all_is_well = false;
            }
        }
    }
    join_nodes(directory);
    Ok(if all_is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Finishes the parts of a run, on all of its nodes, that were interrupted and have no collector any more. Prints a line about
/// each. Returns whether anything was finished.
pub fn finish_if_cut_off(directory: &Path) -> bool {
    if ampere_owned::other_owner(directory).is_some() {
        return false; // `ampere report` prints to whom it belongs
    }
    let found = finish::find(directory).unwrap_or_default();
    let is_cut_off = |left: &Leftover| left.in_use.is_none() && left.has_events();
    let mut found: Vec<Leftover> = found.into_iter().flatten().filter(is_cut_off).collect();
    let run_of = |left: &Leftover| left.manifest.as_ref().map(|manifest| manifest.run_id.clone());
    // This directory may contain directories of other runs.
    let run = nodes::run_in(directory);
    found.retain(|left| run.is_some() && run_of(left) == run);
    look_for_writers(&mut found);
    let mut are_finished = false;
    for left in found.into_iter().filter(|left| left.in_use.is_none()) {
        match finish::recover(left, None) {
            Ok(Recovered::Finished(finished)) => {
                let output = finished.output.display();
                say!(
                    "ampere: {output}: the run was interrupted; its results have now been recovered from its records"
                );
                are_finished = true;
            }
            Ok(Recovered::Removed(place, why)) => say!("ampere: {place}: the run was interrupted, and {why}"),
            Err(why) => say!("ampere: the run was interrupted and cannot be finished: {why}"),
        }
    }
    join_nodes(directory);
    are_finished
}

/// Joins the traces and the figures of those nodes of a run that have ended.
fn join_nodes(directory: &Path) {
    let run = nodes::run_in(directory);
    if let Some(Err(why)) = run.map(|run| nodes::join_traces(directory, &run)) {
        say!("ampere: the traces of the nodes were not joined: {why}");
    }
    if let Some(Err(why)) = nodes::run_in(directory).map(|run| join_figures(directory, &run)) {
        say!("ampere: the figures of the nodes were not joined: {why}");
    }
}

/// Returns why the interrupted parts of a run cannot be finished here, if there is a reason.
pub fn why_unfinished(directory: &Path) -> Option<String> {
    finish::find(directory)
        .unwrap_or_default()
        .into_iter()
        .find_map(|left| left.err().map(|why| why.to_string()))
}

/// Waits to see whether other nodes are still writing. The only sign that they have ended is that their files no longer change.
fn look_for_writers(found: &mut [Leftover]) {
    let doubtful = || found.iter().filter(|left| left.may_be_written);
    if let Some(first) = doubtful().next() {
        let node = first.manifest.as_ref().map_or("another node", |manifest| manifest.node.as_str());
        let others = match doubtful().count() {
            1 => String::new(),
            count => format!(" and {} others", count - 1),
        };
        let (node, seconds) = (printable(node), leftover::SILENCE_MAX.as_secs());
        say!(
            "ampere: files of the run on {node}{others} changed recently: waiting {seconds} s to see whether they still do"
        );
        leftover::watch(found, leftover::SILENCE_MAX);
    }
}

/// Shows the results of a run that was finished. Returns whether it has a trace.
fn show_finished(finished: &Finished) -> bool {
    let output = finished.output.display();
    if !finished.figures_stay {
        run::show(&finished.summary, &finished.output);
    }
    let notes = finished.summary.run.notes.iter().rev();
    let note = |words: &str| {
        let found = notes.clone().find(|note| note.contains(words));
        found.map_or("see the notes in its summary", String::as_str)
    };
    match finished.trace {
        Traced::NotYet => {
            let why = note("no complete trace");
            say!("ampere: {output} has no trace: {why}; correct that and run this command again");
        }
        Traced::Never => say!("ampere: {output} will have no trace: {}", note("there is no trace")),
        Traced::Made if finished.figures_stay => say!(
            "ampere: {output} now has a trace of the remaining records; its summary covers the whole run and is unchanged"
        ),
        Traced::Made => {}
    }
    finished.trace == Traced::Made
}

/// The number of levels below the current directory that are searched. Experiments often have a directory for each job inside
/// another one.
const LEVELS: usize = 3;
/// The maximum number of directories that are searched: a home directory may have millions of files.
const DIRECTORIES_MAX: usize = 4096;

/// Lists sessions in shared memory, and records on disk below the current directory.
fn list() -> anyhow::Result<ExitCode> {
    let mut all = leftover::sessions();
    let known = |all: &[Leftover], spool: &Path| {
        let same = |left: &Leftover| left.output.as_ref().is_some_and(|output| output.spool == spool);
        all.iter().any(same)
    };
    let (here, mut is_elsewhere) = (std::env::current_dir()?, false);
    let (spools, is_all) = leftover::spools_below(&here, LEVELS, DIRECTORIES_MAX);
    for spool in spools {
        match finish::of_spool(&spool) {
            _ if known(&all, &spool) => {}
            Ok(left) => {
                // The session of a spool that was moved may already be in the list; the spool replaces it.
                all.retain(|other| left.session.is_none() || other.session != left.session);
                all.push(left);
            }
            Err(why) if why.is_elsewhere() => {
                say!("ampere: {why}");
                is_elsewhere = true;
            }
            Err(_) => {}
        }
    }
    let recoverable: Vec<Leftover> =
        all.into_iter().filter(|left| left.in_use.is_none() && left.has_events()).collect();
    if recoverable.is_empty() && !is_elsewhere {
        say!("ampere: there is nothing to recover, neither in shared memory nor below {}", here.display());
    }
    if !is_all {
        say!(
            "ampere: {} contains more than {DIRECTORIES_MAX} directories, and the rest were not searched: name a directory further down",
            here.display()
        );
    }
    for left in &recoverable {
        // An error is ignored, because a reader that closes the pipe does not need more.
        let _ = writeln!(std::io::stdout(), "{}", printable(&line(left)));
    }
    Ok(ExitCode::SUCCESS)
}

/// Formats a run on one line: session, start, command, ranks, events, directory.
fn line(left: &Leftover) -> String {
    let manifest = left.manifest.as_ref();
    let session = left.session.as_deref().or(manifest.map(|manifest| manifest.session.as_path()));
    let session = session
        .and_then(Path::file_name)
        .map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    let begun = manifest.map(|manifest| manifest.started().realtime_ns);
    let changed =
        left.changed.and_then(|time| time.duration_since(UNIX_EPOCH).ok()).map(|time| time.as_nanos() as u64);
    let command = manifest.map_or_else(String::new, |manifest| manifest.command.join(" "));
    let directory = left.output.as_ref().map(|output| &output.directory).or(left.session.as_ref());
    [
        session,
        begun.or(changed).map_or_else(String::new, rfc3339),
        if command.is_empty() { "(command not known)".to_owned() } else { command },
        plural(u64::from(left.ranks), "rank"),
        plural(left.events, "event"),
        directory.map_or_else(String::new, |path| path.display().to_string()),
        if left.may_be_written {
            "(files changed recently: it may still be running)".to_owned()
        } else {
            String::new()
        },
    ]
    .map(|word| printable(&word))
    .join("  ")
    .trim_end()
    .to_owned()
}
