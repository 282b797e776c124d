//! `ampere replay`: an existing trace, played through the plugin into a live collector.

use crate::collector::keeper::{Keeper, Results};
use crate::collector::{self, Address, Wanted, address, run_name};
use crate::installation::{self, Installation};
use crate::run;
use crate::terminal::live_table::LiveTable;
use crate::terminal::words::{given, path_parser};
use ampere_collector::signals::asked_to_end;
use ampere_endpoint::access::Access;
use ampere_replay::{Conductor, Speed};
use ampere_ring::Session;
use ampere_settings::Config;
use ampere_trace::replay::{FILE_NAME, Replay};
use clap::Args;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

#[derive(Args)]
pub struct ReplayArguments {
    /// The trace's anchor file, traces.otf2
    trace: PathBuf,
    /// Times as fast as it was; 0 or "max": as fast as can be
    #[arg(long, value_name = "N", default_value = "1")]
    speed: Speed,
    /// Settings, a file such as ampere.toml: above all which metric is which device
    #[arg(long, env = "AMPERE_CONFIG", value_parser = path_parser())]
    config: Option<PathBuf>,
    /// Where /metrics is served: an address, unix:/path, or off [default: 127.0.0.1:9977, or the next free port]
    #[arg(long, env = "AMPERE_LISTEN", value_parser = address)]
    listen: Option<Address>,
    /// Where the results go [default: ./ampere-<date>_<time>_<id>]
    #[arg(short, long, env = "AMPERE_OUTPUT", value_parser = path_parser())]
    output: Option<PathBuf>,
    /// GPU streams report so many seconds late, in batches; "end": at the end
    #[arg(long, value_name = "SECONDS", default_value = "0.5")]
    gpu_lag: Lag,
    /// Go on serving /metrics for so many seconds when the trace has been played
    #[arg(long, value_name = "SECONDS", default_value = "0", value_parser = seconds)]
    hold: Duration,
}

#[derive(Args)]
pub struct RankArguments {
    #[arg(long)]
    session: PathBuf,
    #[arg(long)]
    number: u32,
    #[arg(long)]
    plugin: PathBuf,
}

/// How late GPU streams report. `None`: at the end.
#[derive(Clone, Copy)]
struct Lag(Option<Duration>);

impl std::str::FromStr for Lag {
    type Err = NoSeconds;

    fn from_str(text: &str) -> Result<Lag, NoSeconds> {
        if text == "end" { Ok(Lag(None)) } else { seconds(text).map(|lag| Lag(Some(lag))) }
    }
}

/// A text that is no number of seconds.
#[derive(Debug)]
struct NoSeconds;

impl std::fmt::Display for NoSeconds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("use a number of seconds of 0 or more")
    }
}

impl std::error::Error for NoSeconds {}

fn seconds(text: &str) -> Result<Duration, NoSeconds> {
    let number = text.parse().map_err(|_| NoSeconds)?;
    Duration::try_from_secs_f64(number).map_err(|_| NoSeconds)
}

/// A ring of the replay's hosts, which wait for room: there may be hundreds of them.
const RING_BYTES: &str = "1048576";
const NAP: Duration = Duration::from_millis(20);

pub fn replay(arguments: ReplayArguments) -> anyhow::Result<ExitCode> {
    let installation = installation::find()?;
    let config = Config::load(given(&arguments.config))?;
    Access::load(&config).map_err(anyhow::Error::msg)?;
    let mut replay = Replay::of_trace(&arguments.trace, &config)?;
    let ticks = |lag: Duration| (lag.as_secs_f64() * replay.ticks_per_second as f64) as u64;
    let (lag, step) = (arguments.gpu_lag.0.map(ticks), Conductor::step_ticks(&replay, arguments.speed));
    replay.delay_streams(lag, step);
    for note in &replay.notes {
        say!("ampere: {note}");
    }
    // An interrupted replay has results, too: of what has been played.
    let stop = asked_to_end().map_err(anyhow::Error::msg)?;
    let name = run_name();
    let session = Session::open_or_create(&format!("s-{name}"))?;
    let player = Player {
        arguments: &arguments,
        config: &config,
        installation: &installation,
        name: &name,
        stop: &stop,
    };
    let outcome = player.play(replay, &session);
    if outcome.is_err() {
        session.remove();
    }
    outcome
}

/// What playing a trace needs beside the trace.
struct Player<'a> {
    arguments: &'a ReplayArguments,
    config: &'a Config,
    installation: &'a Installation,
    /// The run's.
    name: &'a str,
    stop: &'a Arc<AtomicBool>,
}

impl Player<'_> {
    fn play(&self, replay: Replay, session: &Session) -> anyhow::Result<ExitCode> {
        let description = session.directory().join(FILE_NAME);
        replay.save(&description).map_err(anyhow::Error::msg)?;
        let own = Session::open(session.directory())?;
        let mut conductor = Conductor::new(replay, own, self.arguments.speed, self.stop.clone())?;
        let collector = self.start_collector(session, &description)?;
        let output = session.output().unwrap_or_default();
        let program = std::env::current_exe()?;
        let started = conductor.start_hosts(|number| self.host(&program, session, number));
        let access = Access::load(self.config).map_err(anyhow::Error::msg)?;
        let live = LiveTable::start(&output, access.token().cloned());
        let played = started.and_then(|()| conductor.play());
        if played.is_ok() && !self.is_interrupted() {
            let delay = self.config.devices.iter().map(|device| device.delay).max().unwrap_or_default();
            conductor.announce_end(delay);
            self.hold(session);
        }
        live.stop();
        let results = collector.finish();
        run::report(session, &output, results, "the trace has no enter and leave events");
        let complaints = played.as_ref().map_or(&[][..], Vec::as_slice);
        complaints.iter().for_each(|line| say!("ampere: {line}"));
        if self.is_interrupted() {
            say!("ampere: interrupted: the results are of what had been played by then");
        }
        let well = results == Results::Written && complaints.is_empty() && !self.is_interrupted();
        played?;
        Ok(if well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    fn start_collector(&self, session: &Session, description: &Path) -> anyhow::Result<Keeper> {
        let command = ["ampere".into(), "replay".into(), OsString::from(&self.arguments.trace)];
        let wanted = Wanted {
            sample: None,
            output: given(&self.arguments.output),
            config: given(&self.arguments.config),
            listen: self.arguments.listen.as_ref().and_then(|address| address.0.as_ref()),
            command: &command,
            replay: Some(description),
        };
        collector::start(self.installation, session, &wanted, || {})
    }

    /// The process that plays one of the trace's processes.
    fn host(&self, program: &Path, session: &Session, number: u32) -> Command {
        let mut host = Command::new(program);
        host.arg("replay-rank").arg("--session").arg(session.directory());
        host.arg("--number").arg(number.to_string()).arg("--plugin").arg(&self.installation.plugin);
        host.env("AMPERE_SESSION", self.name).env_remove("AMPERE_DISABLE").env_remove("AMPERE_OUTPUT");
        host.env("AMPERE_EVENTS", "all"); // a replay can wait
        if std::env::var_os("AMPERE_RING_BYTES").is_none() {
            host.env("AMPERE_RING_BYTES", RING_BYTES);
        }
        // The terminal's interrupt comes to this process, which has them end.
        host.process_group(0);
        host
    }

    fn is_interrupted(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Leaves the live figures up for a while.
    fn hold(&self, session: &Session) {
        let until = Instant::now() + self.arguments.hold.min(Duration::from_secs(1 << 30));
        while Instant::now() < until && !self.is_interrupted() && session.collector_is_alive() {
            std::thread::sleep(NAP.min(until.saturating_duration_since(Instant::now())));
        }
    }
}

/// `ampere replay-rank`.
pub fn rank(arguments: RankArguments) -> anyhow::Result<ExitCode> {
    let finished = ampere_replay::play(&arguments.session, arguments.number, Path::new(&arguments.plugin))?;
    Ok(if finished { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
