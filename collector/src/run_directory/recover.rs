//! Finishing a run whose collector is dead, and will not be replaced: `ampere recover`.

use crate::finish::knows_more;
use crate::live::{LiveRun, Mode, Options};
use crate::run_directory::leftover::{Leftover, remove_done, run_id, spools_in};
use crate::run_directory::manifest;
use crate::run_directory::manifest::{Heartbeat, Manifest};
use crate::run_directory::output::{self, Output, is_same};
use crate::serving::metrics::Latest;
use ampere_model::text::printable;
use ampere_report::summary::Summary;
use ampere_ring::Session;
use ampere_ring::process::node_name;
use ampere_trace::replay::{self, Replay};
use std::path::{Path, PathBuf};

/// What came of it.
pub enum Recovered {
    /// There are figures, and a trace if one could be made.
    Finished(Box<Finished>),
    /// There was nothing to finish: what was left of it, in this place, is gone; and why, in a few words.
    Removed(String, &'static str),
}

/// A run that was finished.
pub struct Finished {
    pub output: PathBuf,
    pub summary: Summary,
    /// There were figures that know more than what is left: they are as they were.
    pub figures_stay: bool,
    pub trace: Traced,
}

/// What became of a run's trace. If there is none, a note in the summary says why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traced {
    /// As far as one was wanted.
    Made,
    /// The records stay: it may be made yet.
    NotYet,
    /// Nothing is left to make it of.
    Never,
}

/// What there is to recover in a directory: a session's, a spool, or an output directory, where several nodes may have left
/// something, and one of them what cannot be read. Errors are one line.
pub fn find(directory: &Path) -> Result<Vec<Result<Leftover, String>>, String> {
    let shown = directory.display();
    if !directory.exists() {
        return Err(format!("there is no {shown}: name an output directory of a run that was killed"));
    }
    let directory = std::fs::canonicalize(directory).map_err(|e| format!("cannot find {shown}: {e}"))?;
    let is_spool = directory.join(crate::run_directory::manifest::FILE_NAME).exists();
    if !is_spool && directory.join("session").exists() {
        return match Leftover::of_session(&directory) {
            Some(left) => Ok(vec![Ok(left)]),
            None => Err(format!("{shown} is no session of this ampere")),
        };
    }
    let spools = if is_spool { vec![directory.clone()] } else { spools_in(&directory) };
    if spools.is_empty() {
        return Err(if output::holds_results(&directory) {
            format!("{shown} holds the results of a finished run: there is nothing to recover")
        } else {
            format!("there is nothing to recover in {shown}: no spool-<node> of a run that was killed")
        });
    }
    Ok(spools.iter().map(|spool| of_spool(spool).map_err(|why| printable(&why))).collect())
}

/// With its session, where that is still in shared memory. Not so a copy of a spool that is still in its place: that one has
/// the session.
pub fn of_spool(spool: &Path) -> Result<Leftover, String> {
    let manifest = Manifest::load(spool)?;
    let session = Leftover::of_session(&manifest.session);
    let is_here = manifest.node == node_name() && manifest.is_of_this_boot();
    match session.filter(|_| is_here) {
        Some(left) if left.output.as_ref().is_some_and(|output| is_same(&output.spool, spool)) => Ok(left),
        // It was moved.
        Some(left) if left.output.is_none() => Ok(left.with_output(Output::of_spool(spool), manifest)),
        _ => Leftover::of_spool(spool),
    }
}

/// Makes trace and summary of it, and removes what is left. The error is one line, whatever names are in what was left.
/// `output`: where results go for which no directory is claimed.
pub fn recover(left: Leftover, output: Option<&Path>) -> Result<Recovered, String> {
    finish(left, output, false).map_err(|why| printable(&why))
}

/// Takes it away without making anything of it. The error is one line.
pub fn discard(left: Leftover) -> Result<Recovered, String> {
    finish(left, None, true).map_err(|why| printable(&why))
}

fn finish(left: Leftover, wanted: Option<&Path>, discard: bool) -> Result<Recovered, String> {
    let of_session = left.session.as_ref().map(|path| path.display().to_string());
    let of_output = left.output.as_ref().map(|output| output.directory.display().to_string());
    let place = of_session.or(of_output).unwrap_or_default();
    if let Some(why) = &left.in_use {
        return Err(format!("{place} is in use: {why}; it is finished when that ends"));
    }
    if left.may_be_written {
        return Err(format!("{place} may be in use, on another node"));
    }
    let (session, mode) = match &left.session {
        Some(directory) => (Session::open(directory), Mode::Recovery),
        None => {
            let spool = left.output.as_ref().map(|output| output.spool.clone()).unwrap_or_default();
            (Session::open_or_create_in(&spool), Mode::RecoveryFromDisk)
        }
    };
    let is_taken = || format!("{place} is being recovered by somebody else, or has just been");
    let is_there = || left.output.as_ref().is_none_or(|output| Manifest::load(&output.spool).is_ok());
    let session = session.map_err(|e| if is_there() { e.to_string() } else { is_taken() })?;
    let lock = session.lock_collector();
    if matches!(lock, Ok(None)) {
        return Err(is_taken());
    }
    // A file system without locks is no reason not to recover. A lock on a file that has been removed since is none: then
    // the lock that is at its place is not held by us.
    if lock.is_ok() && !session.locks().collector {
        return Err(is_taken());
    }
    // What was read before the lock may have been finished by somebody else meanwhile.
    let manifest = left.output.as_ref().map(|output| Manifest::load(&output.spool));
    let manifest = manifest.transpose().map_err(|_| is_taken())?;
    if discard {
        if let (Some(output), Some(manifest)) = (&left.output, manifest) {
            discard_all(output, manifest);
        }
        remove(left.output.as_ref(), &session, mode);
        return Ok(Recovered::Removed(place, "it is not wanted"));
    }
    if left.is_done {
        remove_done(&session);
        return Ok(Recovered::Removed(place, "its results are there"));
    }
    if !left.is_of_use() {
        remove(left.output.as_ref(), &session, mode);
        return Ok(Recovered::Removed(place, "no event was recorded"));
    }
    let (output, mut manifest) = match (left.output, manifest) {
        (Some(output), Some(manifest)) => (output, manifest),
        _ => begin_output(&session, wanted)?,
    };
    if manifest.is_of_this_boot() {
        // So that the next one sees us where there are no locks. Elsewhere nobody would know the process.
        manifest = manifest.by_this_process();
        let _ = manifest.save(&output.spool);
    }
    let _heartbeat = Heartbeat::start(&output.spool);
    if manifest.replay && mode == Mode::RecoveryFromDisk {
        discard_all(&output, manifest);
        remove(Some(&output), &session, mode);
        return Ok(Recovered::Removed(place, "it was a replay of a trace, which can be played again"));
    }
    if mode == Mode::RecoveryFromDisk && manifest.clock().is_none() {
        return Err(format!("{} was killed before anything was measured", output.directory.display()));
    }
    let replay = session.directory().join(replay::FILE_NAME);
    let replay =
        manifest.replay.then(|| Replay::load(&replay)).transpose().map_err(|error| error.to_string())?;
    output::remove_half_results(&output.directory, &mut manifest);
    let config = manifest.config()?;
    let is_traced = config.trace;
    let options = Options {
        output: output.directory.clone(),
        spool: output.spool.clone(),
        config,
        command: manifest.command.clone(),
        run_id: manifest.run_id.clone(),
        replay,
        manifest,
        mode,
    };
    let (summary, session) = LiveRun::new(session, options, Latest::default())?.recover()?;
    output.end_announcement();
    output.release();
    if mode == Mode::Recovery {
        session.remove();
    }
    // Records of which no trace could be made are kept.
    let keeps_records = output.spool.join(crate::run_directory::manifest::FILE_NAME).exists();
    Ok(Recovered::Finished(Box::new(Finished {
        figures_stay: knows_more(&output.directory, &summary),
        trace: match is_traced {
            true if keeps_records => Traced::NotYet,
            true if !output::holds_trace(&output.directory) => Traced::Never,
            _ => Traced::Made,
        },
        output: output.directory,
        summary,
    })))
}

/// What was recorded, and what was begun to be made of it.
fn discard_all(output: &Output, mut manifest: Manifest) {
    output::remove_half_results(&output.directory, &mut manifest);
    manifest::remove_spool(&output.spool);
}

/// Nothing was recorded. It would be in the way of another run in the same directory.
fn remove(output: Option<&Output>, session: &Session, mode: Mode) {
    if let Some(output) = output {
        manifest::remove_spool(&output.spool);
        output.give_up();
    }
    if mode == Mode::Recovery {
        session.remove();
    }
}

/// For a session whose collector was killed before it had an output directory.
fn begin_output(session: &Session, wanted: Option<&Path>) -> Result<(Output, Manifest), String> {
    let run_id = run_id(session.directory());
    let mut manifest = Manifest::new(session.directory(), &run_id, &[], None);
    manifest.job = None; // the one that recovers is another
    let wanted = wanted.map(Path::to_owned).or_else(|| session.output());
    let wanted = wanted.unwrap_or_else(|| output::default_directory(&run_id));
    let output = output::claim(&wanted, &manifest.node, &manifest.text()).map_err(|why| {
        let shown = session.directory().display();
        format!(
            "{why}: ampere recover -o DIR {shown}; or ampere recover --discard {shown} if it is not wanted"
        )
    })?;
    Ok((output, manifest))
}
