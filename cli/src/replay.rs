//! `ampere replay`: an existing trace, played through the plugin into a live collector.

use crate::find;
use crate::keeper::Results;
use crate::run::{self, Address, Wanted, address};
use crate::watch::Watch;
use crate::words::{given, path_parser};
use ampere_collector::serving::access::Access;
use ampere_collector::signals::asked_to_end;
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
    /// Settings, above all which metric is which device (see the README)
    #[arg(long, env = "AMPERE_CONFIG", value_parser = path_parser())]
    config: Option<PathBuf>,
    /// Where /metrics is served: an address, or unix:/path [default: 127.0.0.1:9977, or the next free port]
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

/// `None`: at the end.
#[derive(Clone, Copy)]
struct Lag(Option<Duration>);

impl std::str::FromStr for Lag {
    type Err = String;

    fn from_str(text: &str) -> Result<Lag, String> {
        if text == "end" { Ok(Lag(None)) } else { seconds(text).map(|lag| Lag(Some(lag))) }
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let number = text.parse().map_err(|_| "use a number of seconds".to_owned())?;
    Duration::try_from_secs_f64(number).map_err(|_| "use a number of seconds of 0 or more".to_owned())
}

/// A ring of the replay's hosts, which wait for room: there may be hundreds of them.
const RING_BYTES: &str = "1048576";
const NAP: Duration = Duration::from_millis(20);

pub fn replay(arguments: ReplayArguments) -> anyhow::Result<ExitCode> {
    let parts = find::parts()?;
    let config = Config::load(given(&arguments.config))?;
    Access::load(&config).map_err(anyhow::Error::msg)?;
    let mut replay = Replay::of_trace(&arguments.trace, &config)?;
    let ticks = |lag: Duration| (lag.as_secs_f64() * replay.ticks_per_second as f64) as u64;
    let (lag, step) = (arguments.gpu_lag.0.map(ticks), Conductor::step_ticks(&replay, arguments.speed));
    replay.delay_streams(lag, step);
    for note in &replay.notes {
        say!("ampere: {note}");
    }
    // What has been played is in the results.
    let stop = asked_to_end().map_err(anyhow::Error::msg)?;
    let name = run::run_name();
    let session = Session::open_or_create(&format!("s-{name}"))?;
    let outcome = play(&arguments, &config, &parts, replay, &session, &name, &stop);
    if outcome.is_err() {
        session.remove();
    }
    outcome
}

fn play(
    arguments: &ReplayArguments,
    config: &Config,
    parts: &find::Parts,
    replay: Replay,
    session: &Session,
    name: &str,
    stop: &Arc<AtomicBool>,
) -> anyhow::Result<ExitCode> {
    let description = session.directory().join(FILE_NAME);
    replay.save(&description).map_err(anyhow::Error::msg)?;
    let here = || Session::open(session.directory());
    let mut conductor = Conductor::new(replay, here()?, arguments.speed, stop.clone())?;
    let command = ["ampere".into(), "replay".into(), OsString::from(&arguments.trace)];
    let wanted = Wanted {
        output: given(&arguments.output),
        config: given(&arguments.config),
        listen: arguments.listen.as_ref().and_then(|address| address.0.as_ref()),
        command: &command,
        replay: Some(&description),
    };
    let collector = run::start_collector(parts, session, &wanted)?;
    let output = session.output().unwrap_or_default();
    let program = std::env::current_exe()?;
    let started = conductor.start_hosts(|number| {
        let mut host = Command::new(&program);
        host.arg("replay-rank").arg("--session").arg(session.directory());
        host.arg("--number").arg(number.to_string()).arg("--plugin").arg(&parts.plugin);
        host.env("AMPERE_SESSION", name).env_remove("AMPERE_DISABLE").env_remove("AMPERE_OUTPUT");
        host.env("AMPERE_EVENTS", "all"); // a replay can wait
        if std::env::var_os("AMPERE_RING_BYTES").is_none() {
            host.env("AMPERE_RING_BYTES", RING_BYTES);
        }
        // The terminal's interrupt is for us: we tell them.
        host.process_group(0);
        host
    });
    let access = Access::load(config).map_err(anyhow::Error::msg)?;
    let watch = Watch::start(&output, access.token().cloned());
    let played = started.and_then(|()| conductor.play());
    let complaints = match &played {
        Ok(complaints) => complaints.clone(),
        Err(_) => Vec::new(),
    };
    if played.is_ok() && !stop.load(Ordering::Relaxed) {
        let delay = config.devices.iter().map(|device| device.delay).max().unwrap_or_default();
        conductor.announce_end(delay);
        hold(arguments.hold, stop, session);
    }
    watch.stop();
    let results = collector.finish(); // there is no more
    run::report(session, &output, results, "the trace has no enter and leave events");
    complaints.iter().for_each(|line| say!("ampere: {line}"));
    let interrupted = stop.load(Ordering::Relaxed);
    if interrupted {
        say!("ampere: interrupted: the results are of what had been played by then");
    }
    played?;
    let well = results == Results::Written && complaints.is_empty() && !interrupted;
    Ok(if well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Lets the live figures be looked at for a while longer.
fn hold(hold: Duration, stop: &AtomicBool, session: &Session) {
    let until = Instant::now() + hold.min(Duration::from_secs(1 << 30));
    while Instant::now() < until && !stop.load(Ordering::Relaxed) && session.collector_is_alive() {
        std::thread::sleep(NAP.min(until.saturating_duration_since(Instant::now())));
    }
}

pub fn rank(arguments: RankArguments) -> anyhow::Result<ExitCode> {
    let finished = ampere_replay::play(&arguments.session, arguments.number, Path::new(&arguments.plugin))?;
    Ok(if finished { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
