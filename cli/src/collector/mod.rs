//! The collector of `ampere run` and `ampere replay`: how it is started, restarted and reached.
//!
//! `keeper.rs` replaces a collector that was killed; `announced.rs` finds the address of a running one.

pub mod announced;
pub mod keeper;

use crate::installation::Installation;
use ampere_endpoint::listen::Listen;
use ampere_ring::Session;
use keeper::{Keeper, Start};
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

/// The variable that sets whether and how often stacks are sampled.
pub const SAMPLE: &str = "AMPERE_SAMPLE";

/// The options of a collector that is to be started.
pub struct Wanted<'a> {
    pub output: Option<&'a Path>,
    pub config: Option<&'a Path>,
    pub listen: Option<&'a Listen>,
    /// Settings that are not in the environment, by their variables.
    pub variables: &'a [(&'static str, String)],
    /// The measured command, for the summary.
    pub command: &'a [OsString],
    /// The description of the trace that is replayed.
    pub replay: Option<&'a Path>,
    /// How long the final figures are served, even if somebody has already asked for them.
    pub hold: Duration,
}

/// An address for /metrics; `None` if the text is empty, as with `AMPERE_LISTEN=$UNSET`.
#[derive(Clone)]
pub struct Address(pub Option<Listen>);

/// Parses the option `--listen` for clap.
pub fn address(text: &str) -> Result<Address, <Listen as FromStr>::Err> {
    if text.is_empty() { Ok(Address(None)) } else { text.parse().map(|address| Address(Some(address))) }
}

/// Returns a unique name for a run.
pub fn run_name() -> String {
    let pid = std::process::id();
    let nanoseconds =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default().as_nanos();
    format!("run-{pid}-{:x}", nanoseconds & 0xffff_ffff_ffff)
}

/// Starts a collector and waits until it is ready. If it is killed, it is replaced; if it cannot start, the session is removed.
/// `meanwhile` is called while it gets ready.
pub fn start(
    installation: &Installation,
    session: &Session,
    wanted: &Wanted,
    meanwhile: impl FnOnce(),
) -> anyhow::Result<Keeper> {
    // Each option and its path are one word, because a path may begin with a hyphen.
    let option = |name: &str, value: &OsStr| {
        let mut word = OsString::from(format!("--{name}="));
        word.push(value);
        word
    };
    let mut arguments: Vec<OsString> =
        vec!["--until-input-closes".into(), option("session", session.directory().as_os_str())];
    for (name, value) in [("output", wanted.output), ("config", wanted.config), ("replay", wanted.replay)] {
        arguments.extend(value.map(|path| option(name, path.as_os_str())));
    }
    arguments.extend(wanted.listen.map(|address| option("listen", address.to_string().as_ref())));
    if !wanted.hold.is_zero() {
        arguments.push(format!("--hold={}", wanted.hold.as_secs_f64()).into());
    }
    arguments.push("--".into());
    arguments.extend(wanted.command.iter().cloned());
    let start =
        Start { program: installation.collector.clone(), arguments, variables: wanted.variables.to_vec() };
    Keeper::start(session, start, meanwhile)
}
