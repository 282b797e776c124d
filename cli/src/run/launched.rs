//! Lets a launcher start `ampere run` once for each rank: `srun -n 8 ampere run -- ./program`. If these were separate runs,
//! each would count the joules of the whole node. So each `ampere run` becomes its rank. It finds the others by the name that
//! the launcher gave the job, as plugins do without `ampere run`.

use super::command::{become_command, with_words};
use crate::installation::{CannotRun, Installation};
use ampere_model::launcher::launched_rank;
use ampere_ring::Session;
use ampere_ring::session::ENV_SESSION_BOOT;
use ampere_ring::session_name::session_name;
use ampere_ring::start::{Purpose, StartError, ensure_collector};
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// The time after which the command is started even if the collector is not ready to sample it.
const READY_LIMIT: Duration = Duration::from_secs(2);

/// Returns the number of this process among the ranks that a launcher has started; `None` without a launcher.
pub fn rank() -> Option<u32> {
    launched_rank(|name| std::env::var(name).ok()).map(|launched| launched.rank)
}

/// Replaces this process by the command. Returns only if the command cannot be run.
pub fn become_rank(mut command: Command, rank: u32, installation: &Installation) -> CannotRun {
    let announced = announce(&command, installation);
    if rank == 0 {
        match &announced {
            Ok(None) => {} // the plugin reports that it cannot find the session
            Ok(Some(output)) => say!(
                "ampere: ampere run was started once for each rank: a node's ranks are one run, results in {}; for the live table \
                 start it once, before the launcher",
                output.display()
            ),
            Err(why) => say!("ampere: {why}"),
        }
    }
    if announced.is_err_and(|why| !why.is_of_this_process()) {
        command.env("AMPERE_DISABLE", "1"); // the plugin would report the same
    }
    become_command(command)
}

/// Makes sure that the node has a collector which knows this process. Returns the collector's output directory; `None` if this
/// process cannot see the session of the job's `ampere run`.
fn announce(command: &Command, installation: &Installation) -> Result<Option<PathBuf>, StartError> {
    let name = session_name();
    let is_session_of_this_boot =
        std::env::var(ENV_SESSION_BOOT).is_ok_and(|boot| boot == ampere_ring::process::boot_text());
    if is_session_of_this_boot && Session::missing(&name).is_some() {
        return Ok(None);
    }
    let session = Session::open_or_create(&name)?;
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words: Vec<OsString> = words.map(OsString::from).collect();
    let none: [OsString; 0] = [];
    let collector = || Ok(with_words(command, installation.collector.as_os_str(), &none));
    ensure_collector::<StartError>(&session, Purpose::Everything, &words, collector)?;
    session.announce_command(READY_LIMIT)?;
    Ok(session.output())
}
