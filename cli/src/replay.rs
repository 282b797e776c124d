//! `ampere replay`: plays an existing trace into a live collector.

use crate::attribute::trace_in;
use crate::collector::announced::Announced;
use crate::collector::keeper::{Keeper, Results};
use crate::collector::{self, Address, Wanted, address, run_name};
use crate::installation::{self, Installation};
use crate::run;
use crate::terminal::live_table::LiveTable;
use crate::terminal::words::{given, path_parser};
use ampere_endpoint::access::Access;
use ampere_ring::Session;
use ampere_settings::Config;
use ampere_signal_safety::asked_to_end;
use ampere_trace::replay::{FILE_NAME, Player, Replay, Speed};
use clap::Args;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

#[derive(Args)]
pub struct ReplayArguments {
    /// The trace's anchor file, traces.otf2, or its directory
    #[arg(value_hint = clap::ValueHint::FilePath)]
    trace: PathBuf,
    /// Playback speed relative to the recording; 0 or "max": as fast as possible
    #[arg(long, value_name = "N", default_value = "1")]
    speed: Speed,
    /// Settings file, such as ampere.toml: mainly which metric belongs to which device
    #[arg(long, env = "AMPERE_CONFIG", value_parser = path_parser())]
    config: Option<PathBuf>,
    /// Where /metrics is served: an address, unix:/path, or off [default: 127.0.0.1:9977, or the next free port]
    #[arg(long, env = "AMPERE_LISTEN", value_parser = address)]
    listen: Option<Address>,
    /// Where the results go [default: ./ampere-<date>_<time>_<id>]
    #[arg(short, long, env = "AMPERE_OUTPUT", value_parser = path_parser())]
    output: Option<PathBuf>,
    /// Delay the events of GPU streams by this many seconds, in batches; "end": to the end of the run
    #[arg(long, value_name = "SECONDS", default_value = "0.5")]
    gpu_lag: Lag,
    /// After the end, serve the page with the final figures, and the last /metrics, for this many seconds
    #[arg(long, value_name = "SECONDS", default_value = "0", value_parser = seconds)]
    hold: Duration,
}

/// How late GPU streams report; `None`: not before the end of the run.
#[derive(Clone, Copy)]
struct Lag(Option<Duration>);

impl std::str::FromStr for Lag {
    type Err = NoSeconds;

    fn from_str(text: &str) -> Result<Lag, NoSeconds> {
        if text == "end" { Ok(Lag(None)) } else { seconds(text).map(|lag| Lag(Some(lag))) }
    }
}

/// An error: the text is not a number of seconds.
#[derive(Debug, thiserror::Error)]
#[error("give a number of seconds, 0 or more")]
struct NoSeconds;

fn seconds(text: &str) -> Result<Duration, NoSeconds> {
    let number = text.parse().map_err(|_| NoSeconds)?;
    Duration::try_from_secs_f64(number).map_err(|_| NoSeconds)
}

pub fn replay(mut arguments: ReplayArguments) -> anyhow::Result<ExitCode> {
    arguments.trace = trace_in(&arguments.trace)?;
    let installation = installation::find()?;
    let config = Config::load(given(&arguments.config))?;
    // The token is only checked here, so that a mistake is reported before the trace is read.
    Access::load(&config).map_err(anyhow::Error::msg)?;
    let mut replay = Replay::of_trace(&arguments.trace, &config)?;
    let ticks = |lag: Duration| (lag.as_secs_f64() * replay.ticks_per_second as f64) as u64;
    let (lag, step) = (arguments.gpu_lag.0.map(ticks), arguments.speed.step_ticks(&replay));
    replay.delay_streams(lag, step);
    for note in &replay.notes {
        say!("ampere: {note}");
    }
    // An interrupted replay also has results, for the part that has been played.
    let stop = asked_to_end();
    let session = Session::open_or_create(&format!("s-{}", run_name()))?;
    let replaying = Replaying { arguments: &arguments, config: &config, installation: &installation, stop };
    let outcome = replaying.play(&replay, &session);
    if outcome.is_err() {
        session.remove();
    }
    outcome
}

/// Plays a trace into a collector that it starts.
struct Replaying<'a> {
    arguments: &'a ReplayArguments,
    config: &'a Config,
    installation: &'a Installation,
    stop: &'a AtomicBool,
}

impl Replaying<'_> {
    fn play(&self, replay: &Replay, session: &Session) -> anyhow::Result<ExitCode> {
        let description = session.directory().join(FILE_NAME);
        replay.save(&description).map_err(anyhow::Error::msg)?;
        let player = Player::new(replay, session, self.arguments.speed, self.stop)?;
        let collector = self.start_collector(session, &description)?;
        let output = session.output().unwrap_or_default();
        let access = Access::load(self.config).map_err(anyhow::Error::msg)?;
        let announced = Announced::of(&output);
        let live = LiveTable::start(&output, access.token().cloned());
        let played = player.play();
        live.stop();
        if played.is_ok() && !self.is_interrupted() {
            let delay = self.config.devices.iter().map(|device| device.delay).max().unwrap_or_default();
            replay.announce_end(session, delay);
        }
        let results = collector.finish(false);
        let why_nothing = "the trace has no enter and leave events";
        let expected = run::Expected { why_nothing, score_p: false, quiet: false };
        run::report(session, &output, results, &expected);
        let is_interrupted = self.is_interrupted();
        if is_interrupted {
            say!("ampere: interrupted: the results cover the part that was played");
        }
        played?;
        let is_whole = results == Results::Written && !is_interrupted;
        if let Some(Announced { url, .. }) = announced.filter(|_| is_whole && !self.arguments.hold.is_zero())
        {
            let seconds = self.arguments.hold.as_secs_f64();
            say!("ampere: the page with the final figures is served at {url} for {seconds} s more");
            collector.hold(Instant::now() + self.hold(), self.stop);
        }
        Ok(if is_whole { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    fn start_collector(&self, session: &Session, description: &Path) -> anyhow::Result<Keeper> {
        let command = ["ampere".into(), "replay".into(), OsString::from(&self.arguments.trace)];
        let wanted = Wanted {
            variables: &[],
            output: given(&self.arguments.output),
            config: given(&self.arguments.config),
            listen: self.arguments.listen.as_ref().and_then(|address| address.0.as_ref()),
            command: &command,
            replay: Some(description),
            hold: self.hold(),
        };
        collector::start(self.installation, session, &wanted, || {})
    }

    fn is_interrupted(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Returns the time for which the final figures are served, limited so that adding it to an instant does not overflow.
    fn hold(&self) -> Duration {
        self.arguments.hold.min(Duration::from_secs(1 << 30))
    }
}
