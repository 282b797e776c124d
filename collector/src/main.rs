//! `ampere-collector`: one per node, started by `ampere run` or by the plugin. Not for use by hand.

use ampere_collector::access::Access;
use ampere_collector::config::Config;
use ampere_collector::counters_only;
use ampere_collector::http;
use ampere_collector::listen::Listen;
use ampere_collector::live::{LiveRun, Options};
use ampere_collector::metrics::Latest;
use ampere_collector::output::{self, Output};
use ampere_collector::replay::Replay;
use ampere_ring::process::node_name;
use ampere_ring::{CollectorState, Session};
use clap::Parser;
use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

mod stale;

#[derive(Parser)]
#[command(about = "Collects, attributes and serves; started by ampere run or by the plugin", version)]
struct Arguments {
    /// The session's directory in shared memory.
    #[arg(long)]
    session: PathBuf,
    /// Start the collector proper, wait until it is ready, and return.
    #[arg(long)]
    detach: bool,
    /// Where the results go, else AMPERE_OUTPUT.
    #[arg(short, long)]
    output: Option<PathBuf>,
    /// Else AMPERE_CONFIG.
    #[arg(long)]
    config: Option<PathBuf>,
    /// Else AMPERE_LISTEN.
    #[arg(long)]
    listen: Option<String>,
    /// Go on until standard input closes, whatever processes come and go: somebody waits for us.
    #[arg(long)]
    until_input_closes: bool,
    /// The run is a trace's, played by `ampere replay`: what is in it (session's replay.json).
    #[arg(long)]
    replay: Option<PathBuf>,
    /// Sample the counters for a metric plugin, and do nothing else.
    #[arg(long)]
    counters_only: bool,
    /// The command that is measured, for the summary.
    command: Vec<String>,
}

/// The loop sleeps at least and at most so long between two rounds.
const SHORTEST_SLEEP: Duration = Duration::from_micros(500);
const LONGEST_SLEEP: Duration = Duration::from_millis(4);
/// Who is to be ready, is by then. Shorter than the plugin waits for us, so that it hears of it.
const READY_LIMIT: Duration = Duration::from_secs(8);
/// If no process joins for so long, there is nothing to collect.
const NOBODY_LIMIT: Duration = Duration::from_secs(60);
/// How long processes that outlive the command are waited for.
const STRAGGLER_LIMIT: Duration = Duration::from_secs(10);

const GO_ON: u8 = 0;
const INPUT_CLOSED: u8 = 1;
const TERMINATED: u8 = 2;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if arguments.detach {
        return detach(&arguments);
    }
    let session = match Session::open(&arguments.session) {
        Ok(session) => session,
        Err(error) => {
            say(&error.to_string());
            return ExitCode::FAILURE;
        }
    };
    let directory = session.directory().to_owned();
    match collect(session, arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            fail(&directory, &why);
            say(&why);
            ExitCode::FAILURE
        }
    }
}

/// One line in the log, which may be in a shared memory that is full: failing to write it is no failure.
fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "ampere-collector: {line}");
}

/// A value from the environment; an empty one is none.
fn from_environment(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// Leaves the reason where whoever waits for us finds it.
fn fail(session: &Path, why: &str) {
    let _ = ampere_ring::files::write_private(&session.join("failure"), why);
    if let Ok(session) = Session::open(session) {
        session.set_collector(std::process::id(), CollectorState::Failed);
    }
}

/// The job must get no child that it did not make: this process is that child, and the collector is nobody's.
fn detach(arguments: &Arguments) -> ExitCode {
    let Ok(session) = Session::open(&arguments.session) else { return ExitCode::FAILURE };
    let own_arguments = std::env::args_os().skip(1).filter(|argument| argument != "--detach");
    let log = ampere_ring::files::create_private(&arguments.session.join("collector.log"));
    let started = std::env::current_exe().and_then(|program| {
        Command::new(program)
            .args(own_arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log.map_or_else(|_| Stdio::null(), Stdio::from))
            .spawn()
    });
    let Ok(mut child) = started else { return ExitCode::FAILURE };
    let begun = Instant::now();
    while begun.elapsed() < READY_LIMIT {
        match session.collector_state() {
            CollectorState::Running | CollectorState::Finished => return ExitCode::SUCCESS,
            CollectorState::Failed => return ExitCode::FAILURE,
            _ => {}
        }
        if matches!(child.try_wait(), Ok(Some(_))) {
            return ExitCode::FAILURE;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    // One that comes too late would collect for nobody.
    let _ = child.kill();
    ExitCode::FAILURE
}

fn collect(session: Session, arguments: Arguments) -> Result<(), String> {
    session.set_collector(std::process::id(), CollectorState::Starting);
    // Out of the job's process group, so that its signals are not ours, and off the one core that a launcher may have
    // bound the starting rank to.
    let _ = rustix::process::setsid();
    leave_the_core();
    allow_many_files();
    if let Some(base) = session.directory().parent() {
        stale::remove_stale_sessions(base);
    }
    let config = arguments.config.clone().or_else(|| from_environment("AMPERE_CONFIG").map(PathBuf::from));
    let config = Config::load(config.as_deref()).map_err(|e| e.to_string())?;
    if arguments.counters_only {
        return sample_only(session, &config);
    }
    let address = listen_address(arguments.listen.as_deref())?;
    let access = Access::load(&config)?;
    let run_id = run_id(&session);
    let wanted = arguments.output.clone().or_else(|| from_environment("AMPERE_OUTPUT").map(PathBuf::from));
    let output = output::claim(wanted.as_deref(), &run_id, &node_name())?;
    let result = collect_into(&output, session, arguments, config, (address, access), run_id);
    output.end_announcement();
    if result.is_err() {
        output.give_up();
    }
    result
}

/// No output directory and no port: what a metric plugin's user has asked for is in Score-P's trace.
fn sample_only(session: Session, config: &Config) -> Result<(), String> {
    let ending = Arc::new(AtomicU8::new(GO_ON));
    watch_signals(ending.clone())?;
    counters_only::serve(&session, config, NOBODY_LIMIT, || ending.load(Ordering::Relaxed) != GO_ON)?;
    session.remove();
    session.set_collector(std::process::id(), CollectorState::Finished);
    Ok(())
}

fn listen_address(wanted: Option<&str>) -> Result<Listen, String> {
    let wanted = wanted.map(OsString::from).or_else(|| from_environment("AMPERE_LISTEN"));
    wanted.map_or_else(|| Ok(Listen::default()), |text| text.to_string_lossy().parse())
}

fn collect_into(
    output: &Output,
    session: Session,
    arguments: Arguments,
    config: Config,
    (address, access): (Listen, Access),
    run_id: String,
) -> Result<(), String> {
    let latest = Latest::default();
    let (summaries, asked) = crossbeam_channel::bounded(16);
    let server = http::serve(&address, access, latest.clone(), summaries)?;
    let ending = Arc::new(AtomicU8::new(GO_ON));
    watch_signals(ending.clone())?;
    if arguments.until_input_closes {
        session.set_waited_for();
        watch_input(ending.clone())?;
    }
    output.announce(&server.url, &node_name())?;
    session.set_output(&output.directory);
    let replay = arguments.replay.as_deref().map(Replay::load).transpose()?;
    let options = Options {
        output: output.directory.clone(),
        spool: output.spool.clone(),
        config,
        command: arguments.command,
        run_id,
        replay,
    };
    let mut run = LiveRun::new(session, options, latest)?;
    run.notes.extend(server.notes);
    run.session().set_collector(std::process::id(), CollectorState::Running);

    let begun = Instant::now();
    let mut closed = None;
    let mut sleep = SHORTEST_SLEEP;
    let complete = loop {
        let round = run.round();
        while let Ok(request) = asked.try_recv() {
            let _ = request.send(Box::new(run.summary(false)));
        }
        let over = run.all_over();
        match ending.load(Ordering::Relaxed) {
            TERMINATED => break false,
            INPUT_CLOSED if over || run.processes_seen() == 0 => break true,
            // The command is over; a process of it that is still there has a little longer.
            INPUT_CLOSED if closed.get_or_insert_with(Instant::now).elapsed() > STRAGGLER_LIMIT => {
                run.notes
                    .push("processes of the command still run: they were measured up to its end".to_owned());
                break false;
            }
            GO_ON if !arguments.until_input_closes && over => break true,
            GO_ON
                if run.processes_seen() == 0
                    && begun.elapsed() > NOBODY_LIMIT
                    && !arguments.until_input_closes =>
            {
                break false;
            }
            _ => {}
        }
        // Under load the rings must not fill up; an idle job should not be disturbed.
        sleep = match round.records {
            _ if round.pressed => Duration::ZERO,
            0 => (sleep * 2).clamp(SHORTEST_SLEEP, LONGEST_SLEEP),
            1..2000 => (sleep * 2).clamp(SHORTEST_SLEEP, Duration::from_millis(2)),
            _ => SHORTEST_SLEEP,
        };
        if !sleep.is_zero() {
            std::thread::sleep(sleep);
        }
    };
    let (_, session) = run.finish(complete)?;
    output.end_announcement();
    // First the files, then the word: who waits for it finds everything done. It has the page open.
    session.remove();
    session.set_collector(std::process::id(), CollectorState::Finished);
    Ok(())
}

/// A ring, a log or a spool file each: with many ranks and threads more than the usual 1,024.
fn allow_many_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let maximum = getrlimit(Resource::Nofile).maximum;
    // Failing leaves what there is.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

fn leave_the_core() {
    let mut all = rustix::thread::CpuSet::new();
    (0..rustix::thread::CpuSet::MAX_CPU).for_each(|cpu| all.set(cpu));
    // The kernel takes what the job's cpuset allows. Failing leaves us where we are, which works too.
    let _ = rustix::thread::sched_setaffinity(None, &all);
}

fn run_id(session: &Session) -> String {
    let name = session.directory().file_name().map(|name| name.to_string_lossy().into_owned());
    name.unwrap_or_default().trim_start_matches("s-").to_owned()
}

fn watch_input(ending: Arc<AtomicU8>) -> Result<(), String> {
    let watch = move || {
        let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
        let _ = ending.compare_exchange(GO_ON, INPUT_CLOSED, Ordering::Relaxed, Ordering::Relaxed);
    };
    let thread = std::thread::Builder::new().name("ampere-input".to_owned()).spawn(watch);
    thread.map(drop).map_err(|e| format!("cannot start a thread: {e}"))
}

/// SIGTERM and SIGINT end the run in order: what is there is written.
fn watch_signals(ending: Arc<AtomicU8>) -> Result<(), String> {
    let watch = move || {
        let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else { return };
        runtime.block_on(async {
            use tokio::signal::unix::{SignalKind, signal};
            let (Ok(mut term), Ok(mut int)) =
                (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
            else {
                return;
            };
            tokio::select! { _ = term.recv() => {}, _ = int.recv() => {} }
            ending.store(TERMINATED, Ordering::Relaxed);
            // Later ones are taken and ignored: the results are being written.
            loop {
                tokio::select! { _ = term.recv() => {}, _ = int.recv() => {} }
            }
        });
    };
    let thread = std::thread::Builder::new().name("ampere-signals".to_owned()).spawn(watch);
    thread.map(drop).map_err(|e| format!("cannot start a thread: {e}"))
}
