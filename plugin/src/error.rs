//! Reasons why this process is not measured or a metric is not recorded. The text is the line that the user sees.

use ampere_ring::session::out_of_reach;
use ampere_ring::start::StartError;
use std::path::PathBuf;
use std::time::Duration;
use thiserror::Error;

#[derive(Debug, Error)]
pub enum Error {
    #[error("{0}; energy is not measured")]
    SharedMemory(#[from] ampere_ring::Error),
    /// `ampere run` has made the session on this node, but this process does not find it.
    #[error(
        "this process does not find its run's session {}; energy is not measured: {}; or the run has ended",
        .0.display(),
        out_of_reach()
    )]
    SessionOutOfReach(PathBuf),
    #[error("this process's run has ended")]
    RunHasEnded,
    #[error(transparent)]
    Start(#[from] StartError),
    #[error("cannot find the plugin's own path; set AMPERE_COLLECTOR to the path of ampere-collector")]
    OwnPathUnknown,
    #[error(
        "no ampere-collector in {} or {}; energy is not measured: install it there, or set AMPERE_COLLECTOR to its path",
        .0[0].display(), .0[1].display()
    )]
    NoCollector([PathBuf; 2]),
    #[error("ampere's collector is not running")]
    CollectorIsNotRunning,
    #[error("ampere's collector ended before it had opened a counter")]
    CollectorEnded,
    #[error(
        "ampere's collector has not opened its counters within {} s: exclude the source that hangs with AMPERE_COUNTERS",
        .0.as_secs()
    )]
    CountersNotOpened(Duration),
}

impl Error {
    /// Whether this process alone is affected. Otherwise all processes of the node are, and one of them reports it.
    pub fn is_of_this_process(&self) -> bool {
        match self {
            Error::SharedMemory(error) => error.is_a_limit(),
            Error::SessionOutOfReach(_) | Error::RunHasEnded => true,
            Error::Start(error) => error.is_of_this_process(),
            _ => false,
        }
    }
}
