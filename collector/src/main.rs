//! `ampere-collector`: one per node, started by `ampere run` or by the plugin. Not for use by hand.

use ampere_collector::cpus;
use ampere_collector::live::{LiveRun, Mode, Options};
use ampere_collector::run_directory::leftover;
use ampere_collector::run_directory::manifest::{Heartbeat, Manifest};
use ampere_collector::run_directory::output::{self, Output};
use ampere_collector::run_directory::room;
use ampere_collector::run_directory::stale;
use ampere_collector::sampling::clock::best_reading;
use ampere_collector::sampling::counters_only;
use ampere_collector::serving::access::Access;
use ampere_collector::serving::http;
use ampere_collector::serving::linger;
use ampere_collector::serving::listen::Listen;
use ampere_collector::serving::metrics::Latest;
use ampere_collector::signals::asked_to_end;
use ampere_collector::supervise::{Restarts, start_patiently};
use ampere_report::clock_text::rfc3339;
use ampere_ring::process::node_name;
use ampere_ring::session::OUT_OF_REACH;
use ampere_ring::{CollectorState, HeldLock, Session};
use ampere_settings::Config;
use ampere_trace::replay::Replay;
use clap::Parser;
use std::ffi::OsString;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::{Duration, Instant};

#[derive(Parser)]
#[command(about = "Collects, attributes and serves; started by ampere run or by the plugin", version)]
struct Arguments {
    /// The session's directory in shared memory.
    #[arg(long)]
    session: PathBuf,
    /// Start the collector proper, wait until it is ready, and return.
    #[arg(long)]
    detach: bool,
    /// Start the collector proper, and another one in its place whenever it is killed.
    #[arg(long)]
    supervise: bool,
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
    /// The command that is measured, for the summary. Its arguments may be any bytes.
    command: Vec<OsString>,
}

/// The loop sleeps at least and at most so long between two rounds.
const SHORTEST_SLEEP: Duration = Duration::from_micros(500);
const LONGEST_SLEEP: Duration = Duration::from_millis(4);
/// Once nothing has happened for so long, it sleeps longer.
const IDLE_AFTER: Duration = Duration::from_secs(1);
const IDLE_SLEEP: Duration = Duration::from_millis(30);
/// How full the fullest ring should be when it is looked at again, and from where on there is no time to sleep. At half its
/// capacity its writer begins to fold.
const COMFORTABLE: f64 = 0.05;
const PRESSED: f64 = 0.25;
/// Who is to be ready, is by then. Shorter than the plugin waits for us, so that it hears of it.
const READY_LIMIT: Duration = Duration::from_secs(8);
/// How long a collector that is just dying keeps its place.
const TAKE_OVER_LIMIT: Duration = Duration::from_secs(2);
/// If no process joins for so long, there is nothing to collect.
const NOBODY_LIMIT: Duration = Duration::from_secs(60);
/// How long processes that outlive the command are waited for.
const STRAGGLER_LIMIT: Duration = Duration::from_secs(10);
/// Asked to end, the collector gives the program so long to do so, too. A scheduler kills what is left after 5 s or more.
const ASKED_LIMIT: Duration = Duration::from_secs(3);

const GO_ON: u8 = 0;
const INPUT_CLOSED: u8 = 1;

fn main() -> ExitCode {
    // SAFETY: nothing has been opened and no thread started.
    unsafe { ampere_signal_safety::close_inherited_fds_and_reset_signals() };
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
    if arguments.supervise {
        return supervise(&session);
    }
    // The page is touched by who collects, and by nobody else.
    let _place = match take_place(&session) {
        Ok(Some(place)) => place,
        Ok(None) => return ExitCode::SUCCESS, // another one was faster
        Err(why) => {
            say(&why);
            return ExitCode::FAILURE;
        }
    };
    let directory = session.directory().to_owned();
    match collect(session, arguments) {
        Ok(served) => {
            // The results are there, and nobody waits for this process any more.
            let _asks = served.and_then(Served::linger);
            ExitCode::SUCCESS
        }
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
fn fail(directory: &Path, why: &str) {
    let session = Session::open(directory);
    if session.as_ref().is_ok_and(Session::is_given_up) {
        return; // who gave it up has said why
    }
    let _ = ampere_ring::files::write_private(&directory.join("failure"), why);
    if let Ok(session) = session {
        session.set_collector(std::process::id(), CollectorState::Failed);
    }
}

/// The lock of who collects, which lives as long as this process. `None` if another process has it and keeps it.
fn take_place(session: &Session) -> Result<Option<HeldLock>, String> {
    let begun = Instant::now();
    loop {
        match session.lock_collector() {
            Ok(None) if begun.elapsed() < TAKE_OVER_LIMIT => std::thread::sleep(Duration::from_millis(5)),
            outcome => return outcome.map_err(|e| e.to_string()),
        }
    }
}

/// This program's arguments, but for one.
fn arguments_without(option: &str) -> impl Iterator<Item = OsString> {
    let own = std::env::args_os().skip(1);
    let (options, command): (Vec<_>, Vec<_>) = {
        let all: Vec<OsString> = own.collect();
        let end = all.iter().position(|argument| argument == "--").unwrap_or(all.len());
        (all[..end].to_vec(), all[end..].to_vec())
    };
    let option = option.to_owned();
    options.into_iter().filter(move |argument| *argument != *option).chain(command)
}

/// Waits for the collector proper, and does nothing else: as little as can be killed for its memory.
fn supervise(session: &Session) -> ExitCode {
    let _ = rustix::process::setsid();
    let mut restarts = Restarts::default();
    loop {
        let started = start_patiently(|| {
            let program = std::env::current_exe()?;
            Command::new(program).args(arguments_without("--supervise")).stdin(Stdio::null()).spawn()
        });
        let status = match started.and_then(|mut collector| collector.wait()) {
            Ok(status) => status,
            Err(error) => {
                say(&format!("cannot start the collector: {error}"));
                return ExitCode::FAILURE;
            }
        };
        if !restarts.is_another_due(status, session) {
            return if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
        }
        say(&format!("the collector ended with {status}: another one takes over"));
    }
}

/// The job must get no child that it did not make: this process is that child, and the collector is nobody's.
fn detach(arguments: &Arguments) -> ExitCode {
    let Ok(session) = Session::open(&arguments.session) else { return ExitCode::FAILURE };
    let log = ampere_ring::files::append_private(&arguments.session.join("collector.log"));
    let started = std::env::current_exe().and_then(|program| {
        Command::new(program)
            .arg("--supervise")
            .args(arguments_without("--detach"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log.map_or_else(|_| Stdio::null(), Stdio::from))
            .spawn()
    });
    let Ok(mut child) = started else { return ExitCode::FAILURE };
    let begun = Instant::now();
    while begun.elapsed() < READY_LIMIT {
        match session.collector_state() {
            // What a dead one has left there is not it.
            CollectorState::Running if session.collector_is_alive() => return ExitCode::SUCCESS,
            CollectorState::Finished => return ExitCode::SUCCESS,
            CollectorState::Failed => return ExitCode::FAILURE,
            _ => {}
        }
        if matches!(child.try_wait(), Ok(Some(_))) {
            return ExitCode::FAILURE;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    // One that comes too late would collect for nobody.
    // The page says who it is, and anybody may have written that: nobody but a child of our child is meant.
    let pid = session.collector_pid();
    let is_meant = ampere_ring::process::parent(pid) == Some(child.id());
    let _ = child.kill();
    let collector = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
    if let Some(collector) = collector.filter(|_| is_meant) {
        let _ = rustix::process::kill_process(collector, rustix::process::Signal::KILL);
    }
    ExitCode::FAILURE
}

/// A run's metrics, once it is over.
struct Served {
    server: http::Server,
    ended: Instant,
    is_asked: Arc<AtomicBool>,
}

impl Served {
    fn linger(self) -> Option<UnixStream> {
        // The job's file systems may be unmounted meanwhile.
        let _ = std::env::set_current_dir("/");
        linger::linger(&self.server.scrapers, &self.server.lingers_as, self.ended, &self.is_asked)
    }
}

fn collect(session: Session, arguments: Arguments) -> Result<Option<Served>, String> {
    if session.is_given_up() {
        return Err("it comes too late".to_owned());
    }
    session.set_finishing(false);
    session.set_collector(std::process::id(), CollectorState::Starting);
    // Out of the job's process group, so that its signals are not ours, and off the one core that a launcher may have
    // bound the starting rank to.
    let _ = rustix::process::setsid();
    cpus::leave_the_core();
    allow_many_files();
    let recoverable = session.directory().parent().map_or(0, stale::remove_stale_sessions);
    if arguments.counters_only {
        return sample_only(session, &config_of(&arguments)?.1).map(|()| None);
    }
    if let Some(output) = session.output() {
        if let Some((output, manifest)) = output::claimed_by(session.directory(), &output, &node_name()) {
            return take_over(&output, manifest, session, arguments);
        }
        // The one before was killed when all was done but removing what is not needed any more; or before it had seen that
        // the results are another run's, which claiming the directory tells.
        if output::holds_results(&output) && output::remove_rest(&output, &node_name()) {
            end(session, &output);
            return Ok(None);
        }
    }
    let (path, config) = config_of(&arguments)?;
    let serving = (listen_address(arguments.listen.as_deref())?, Access::load(&config)?);
    let run_id = leftover::run_id(session.directory());
    let wanted = arguments.output.clone().or_else(|| from_environment("AMPERE_OUTPUT").map(PathBuf::from));
    let wanted = wanted.or_else(|| session.output()).unwrap_or_else(|| output::default_directory(&run_id));
    // Whoever takes over looks there, also if this one gets no further than that.
    session.set_output(&std::path::absolute(&wanted).unwrap_or_else(|_| wanted.clone()));
    let command: Vec<String> =
        arguments.command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let mut manifest = Manifest::new(session.directory(), &run_id, &command, path.as_deref());
    manifest.replay = arguments.replay.is_some();
    if manifest.replay {
        manifest.job = None; // it did not spend the energy
    }
    let out_of_reach = || {
        let other = leftover::collected_elsewhere(&wanted, &manifest)?;
        Some(format!(
            "another collector of this run and node writes to {}, and this process does not find its session: {OUT_OF_REACH}",
            other.display()
        ))
    };
    if let Some(why) = out_of_reach() {
        return Err(why);
    }
    // Or it was faster just now.
    let claimed = output::claim(&wanted, &node_name(), &manifest.text());
    let output = claimed.map_err(|why| out_of_reach().unwrap_or(why))?;
    let mut begin = Begin { config, serving: Ok(serving), manifest, notes: Vec::new(), goes_on: false };
    if recoverable > 0 && !arguments.until_input_closes {
        begin.notes.push(stale::told(recoverable)); // ampere run tells it itself
    }
    let result = collect_into(&output, session, arguments, begin);
    output.end_announcement();
    if result.is_err() {
        output.give_up();
    }
    result
}

/// What a run is begun, or gone on, with.
struct Begin {
    config: Config,
    /// Where metrics are served, and to whom. The error is one line.
    serving: Result<(Listen, Access), String>,
    manifest: Manifest,
    notes: Vec<String>,
    /// In a dead one's place: then there is no reason to give up but that nothing can be measured.
    goes_on: bool,
}

/// The settings' file, and the settings.
fn config_of(arguments: &Arguments) -> Result<(Option<PathBuf>, Config), String> {
    let path = arguments.config.clone().or_else(|| from_environment("AMPERE_CONFIG").map(PathBuf::from));
    let config = Config::load(path.as_deref()).map_err(|e| e.to_string())?;
    Ok((path, config))
}

/// Goes on where a collector was killed: in its directory, with its settings, and on its port if that is free.
fn take_over(
    output: &Output,
    mut manifest: Manifest,
    session: Session,
    arguments: Arguments,
) -> Result<Option<Served>, String> {
    output::remove_half_results(&output.directory, &mut manifest);
    room::give_back(&output.spool); // a disk may be full
    let address = output.announced().map_or_else(|| listen_address(arguments.listen.as_deref()), Ok);
    // The program goes on.
    (manifest.has_ended, manifest.is_drained) = (false, false);
    let manifest = manifest.by_this_process();
    let notes = manifest.save(&output.spool).err().into_iter().collect();
    let config = manifest.config()?;
    let serving = address.and_then(|address| Ok((address, Access::load(&config)?)));
    let begin = Begin { config, serving, manifest, notes, goes_on: true };
    let result = collect_into(output, session, arguments, begin);
    output.end_announcement();
    result
}

/// First the files, then the word: who waits for it finds everything done. It has the page open.
fn end(session: Session, output: &Path) {
    let _ = std::fs::remove_file(output.join("collector.json"));
    session.remove();
    session.set_collector(std::process::id(), CollectorState::Finished);
}

/// No output directory and no port: what a metric plugin's user has asked for is in Score-P's trace.
fn sample_only(session: Session, config: &Config) -> Result<(), String> {
    let is_asked = asked_to_end()?;
    counters_only::serve(&session, config, NOBODY_LIMIT, || is_asked.load(Ordering::Relaxed))?;
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
    begin: Begin,
) -> Result<Option<Served>, String> {
    let Begin { config, serving, manifest, mut notes, goes_on } = begin;
    let cpus = cpus::count(); // before it goes where it is told
    let _heartbeat = Heartbeat::start(&output.spool);
    let elsewhere = config.cpus.as_ref().and_then(|cpus| cpus::run_on(cpus).err());
    let latest = Latest::default();
    let (summaries, asked) = crossbeam_channel::bounded(16);
    let server =
        serving.and_then(|(address, access)| http::serve(&address, access, latest.clone(), summaries));
    // A job is worth measuring, looked at or not.
    let server = server.map_err(|why| {
        let any_more = if goes_on { " any more" } else { "" };
        notes.push(format!("metrics are not served{any_more}: {why}"));
        output.end_announcement();
    });
    let server = server.ok();
    let ending = Arc::new(AtomicU8::new(GO_ON));
    let is_asked = asked_to_end()?;
    if arguments.until_input_closes {
        session.set_waited_for(rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get() as u32));
        watch_input(ending.clone())?;
    }
    match server
        .as_ref()
        .map_or(Ok(()), |server| output.announce(&server.url, &node_name(), &manifest.run_id))
    {
        Err(why) if goes_on => notes.push(why),
        announced => announced?,
    }
    session.set_output(&output.directory);
    let replay =
        arguments.replay.as_deref().map(Replay::load).transpose().map_err(|error| error.to_string())?;
    let options = Options {
        output: output.directory.clone(),
        spool: output.spool.clone(),
        config,
        command: manifest.command.clone(),
        run_id: manifest.run_id.clone(),
        replay,
        manifest,
        mode: Mode::Collector,
    };
    let mut run = LiveRun::new(session, options, latest)?;
    let parent = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get() as u32);
    run.watch_node(cpus, parent.filter(|_| arguments.until_input_closes));
    let of_server = server.iter().flat_map(|server| server.notes.iter().cloned());
    notes.into_iter().chain(of_server).chain(elsewhere).for_each(|line| run.add_note(line));
    if run.session().is_given_up() {
        return Err("it was ready too late".to_owned());
    }
    run.session().set_collector(std::process::id(), CollectorState::Running);

    let begun = Instant::now();
    let (mut closed, mut asked_at) = (None, None);
    let (mut sleep, mut busy) = (SHORTEST_SLEEP, begun);
    let complete = loop {
        let round = run.round();
        while let Ok(request) = asked.try_recv() {
            let mut summary = run.summary(false);
            summary.run.running = true;
            let _ = request.send(Box::new(summary));
        }
        let over = run.all_over();
        match ending.load(Ordering::Relaxed) {
            INPUT_CLOSED if over || run.processes_seen() == 0 => break true,
            // The command is over; a process of it that is still there has a little longer.
            INPUT_CLOSED if closed.get_or_insert_with(Instant::now).elapsed() > STRAGGLER_LIMIT => {
                run.add_note("processes of the command still run: they were measured up to its end");
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
        if is_asked.load(Ordering::Relaxed) {
            let (since, at) = *asked_at.get_or_insert_with(|| (Instant::now(), best_reading().realtime_ns));
            if since.elapsed() > ASKED_LIMIT {
                run.add_note(format!(
                    "the collector was asked to end (by a signal) at {}, and the program went on: what it did more than {} s after \
                     that is not in here",
                    rfc3339(at),
                    ASKED_LIMIT.as_secs()
                ));
                break false;
            }
        }
        // Under load the rings must not fill up; an idle job should not be disturbed.
        if round.records > 0 {
            busy = Instant::now();
        }
        run.is_idle = busy.elapsed() > IDLE_AFTER;
        sleep = if round.fullest > PRESSED {
            Duration::ZERO
        } else if run.is_idle {
            IDLE_SLEEP
        } else {
            // As long as leaves the fullest ring as full as it may be, but no more than twice as long as the last time.
            let longer = (COMFORTABLE / round.fullest.max(1e-6)).min(2.0);
            sleep.max(SHORTEST_SLEEP).mul_f64(longer).clamp(SHORTEST_SLEEP, LONGEST_SLEEP)
        };
        if !sleep.is_zero() {
            std::thread::sleep(sleep);
        }
    };
    let ended = Instant::now();
    let (_, session) = run.finish(complete)?;
    output.release();
    end(session, &output.directory);
    Ok(server.map(|server| Served { server, ended, is_asked }))
}

/// A ring, a log or a spool file each: with many ranks and threads more than the usual 1,024.
fn allow_many_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let maximum = getrlimit(Resource::Nofile).maximum;
    // Failing leaves what there is.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

fn watch_input(ending: Arc<AtomicU8>) -> Result<(), String> {
    let watch = move || {
        let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
        let _ = ending.compare_exchange(GO_ON, INPUT_CLOSED, Ordering::Relaxed, Ordering::Relaxed);
    };
    let thread = std::thread::Builder::new().name("ampere-input".to_owned()).spawn(watch);
    thread.map(drop).map_err(|e| format!("cannot start a thread: {e}"))
}
