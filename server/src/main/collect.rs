//! Collects a run, from the claim of the output directory to the results.

use crate::Arguments;
use crate::rounds::{self, EndConditions, Input, JOIN_LIMIT};
use ampere_collector::cpus;
use ampere_collector::finish::{find_waits_of_nodes, join_figures};
use ampere_collector::live::{LiveRun, Mode, NodeWatch, Options, stacks};
use ampere_collector::run_directory::leftover;
use ampere_collector::run_directory::manifest::{Heartbeat, Manifest};
use ampere_collector::run_directory::output::{self, ClaimError, Output};
use ampere_collector::run_directory::{nodes, spool_place, stale};
use ampere_collector::sampling::counters_only;
use ampere_collector::serving::latest::Latest;
use ampere_endpoint::access::Access;
use ampere_endpoint::linger;
use ampere_endpoint::listen::{Listen, NETWORK_ADDRESS};
use ampere_endpoint::token::{RUN_TOKEN, Token};
use ampere_ring::process::{distinct_node_name, names_of_this_node, node_name};
use ampere_ring::session::out_of_reach;
use ampere_ring::{CollectorState, Session};
use ampere_server::gather::Gathering;
use ampere_server::http::{self, Wanted};
use ampere_server::otlp::{self, Endpoint, Sending};
use ampere_server::targets::TargetFile;
use ampere_settings::Config;
use ampere_signal_safety::asked_to_end;
use ampere_trace::replay::Replay;
use anyhow::{anyhow, bail};
use crossbeam_channel::Sender;
use std::ffi::OsString;
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// The period of checking whether a collector that serves final figures is to end.
const HOLD_PERIOD: Duration = Duration::from_millis(20);

/// The server of a run that has ended.
pub struct Served {
    server: http::Server,
    /// The file with which Prometheus finds the server.
    _target: Option<TargetFile>,
    sending: Option<Sending>,
    ended: Instant,
    /// The shortest time for which it serves the final figures.
    hold: Duration,
}

impl Served {
    /// Continues to serve for as long as is wanted, and until all scrapers have the final figures.
    pub fn linger(self) -> Option<UnixStream> {
        // The job's file systems may be unmounted in the meantime.
        let _ = std::env::set_current_dir("/");
        self.sending.into_iter().for_each(Sending::wait);
        while self.ended.elapsed() < self.hold && !asked_to_end().load(Ordering::Relaxed) {
            std::thread::sleep(HOLD_PERIOD);
        }
        linger::linger(&self.server.scrapers, &self.server.lingers_as, self.ended, asked_to_end())
    }
}

/// Collects a run, or continues what a killed collector began. Errors are one line.
pub fn collect(session: Session, arguments: Arguments) -> anyhow::Result<Option<Served>> {
    if session.is_given_up() {
        bail!("this collector was started too late");
    }
    session.set_finishing(false);
    session.set_collector(std::process::id(), CollectorState::Starting);
    // Signals to the job's process group are not meant for the collector.
    let _ = rustix::process::setsid();
    if !arguments.until_input_closes {
        cpus::leave_the_ranks_core();
    }
    allow_many_files();
    if let Some(base) = session.directory().parent() {
        stale::remove_stale_sessions(base);
    }
    if arguments.counters_only {
        return sample_only(session, &load_config(&arguments)?.1).map(|()| None);
    }
    if let Some(output) = session.output() {
        let claimed = |node: &String| output::claimed_by(session.directory(), &output, node);
        if let Some((output, manifest)) = names_of_this_node().iter().find_map(claimed) {
            return take_over(&output.held(), manifest, session, &arguments);
        }
        // The previous collector was killed while it cleaned up at the very end, or before it noticed that the directory holds
        // another run's results, which the claim below will find.
        if output::holds_final_results(&output)
            && names_of_this_node().iter().all(|node| output::remove_finished_spool(&output, node))
        {
            end(session, &output);
            return Ok(None);
        }
    }
    begin(session, &arguments)
}

/// The data for starting or continuing a run.
struct Start {
    config: Config,
    /// The address on which metrics are served, and the conditions for answering requests.
    serving: anyhow::Result<(Option<Listen>, Access)>,
    manifest: Manifest,
    notes: Vec<String>,
    /// Whether this collector replaces a killed one. Then it gives up only if measuring is impossible.
    takes_over: bool,
}

/// Begins a run in a new claim.
fn begin(session: Session, arguments: &Arguments) -> anyhow::Result<Option<Served>> {
    let (path, config) = load_config(arguments)?;
    let serving = (listen_address(arguments)?, Access::load(&config)?);
    let run_id = leftover::run_id(session.directory());
    let wanted = arguments.output.clone().or_else(|| from_environment("AMPERE_OUTPUT").map(PathBuf::from));
    let wanted = wanted.or_else(|| session.output()).unwrap_or_else(|| output::default_directory(&run_id));
    // A collector that takes over looks in this directory, even if this collector fails before it has claimed the directory.
    session.set_output(&std::path::absolute(&wanted).unwrap_or_else(|_| wanted.clone()));
    let command: Vec<String> =
        arguments.command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let mut manifest = Manifest::new(session.directory(), &run_id, &command, path.as_deref());
    manifest.replay = arguments.replay.is_some();
    if manifest.replay {
        manifest.job = None; // the energy was used in the job that was recorded
    }
    let mut notes = Vec::new();
    output::let_group_write(config.group_writable);
    let output = claim(&wanted, &mut manifest, &mut notes)?;
    if config.trace {
        let of = (run_id.as_str(), manifest.node.as_str());
        manifest.records = spool_place::make(config.spool.as_deref(), &output.spool, of, &mut notes);
        manifest
            .records
            .iter()
            .for_each(|records| spool_place::note_in_session(session.directory(), records));
        notes.extend(manifest.save(&output.spool).err().map(|why| why.to_string()));
    }
    let start = Start { config, serving: Ok(serving), manifest, notes, takes_over: false };
    let result = collect_into(&output, session, arguments, start);
    output.end_announcement();
    if result.is_err() {
        output.give_up();
    }
    result
}

/// Claims the output directory or, if that belongs to another run, the next one (`out-2`), with a note.
fn claim(wanted: &Path, manifest: &mut Manifest, notes: &mut Vec<String>) -> anyhow::Result<Output> {
    let is_taken = |why: &anyhow::Error| why.downcast_ref().is_some_and(ClaimError::is_of_another_run);
    let refused = match claim_exactly(wanted, manifest) {
        Err(why) if is_taken(&why) => why,
        claimed => return claimed,
    };
    if leftover::has_namesake(wanted, manifest) {
        manifest.node = distinct_node_name();
        let (host, node) = (node_name(), &manifest.node);
        notes.push(format!(
            "another node of this run is also called {host}: this one is {node} in the results"
        ));
        match claim_exactly(wanted, manifest) {
            Err(why) if is_taken(&why) => {}
            claimed => return claimed,
        }
    }
    let mut tried = output::next_to(wanted).map(|place| claim_exactly(&place, manifest));
    let Some(claimed) = tried.find(|claimed| !claimed.as_ref().is_err_and(is_taken)) else {
        return Err(refused);
    };
    let output = claimed?;
    notes.push(format!("{refused}: these results are in {}", output.directory.display()));
    Ok(output)
}

/// Claims a directory, unless another collector of this run and node, whose session this process cannot see, has claimed it.
fn claim_exactly(wanted: &Path, manifest: &Manifest) -> anyhow::Result<Output> {
    let collected_elsewhere = || {
        let other = leftover::collected_elsewhere(wanted, manifest)?;
        Some(anyhow!(
            "another collector of this run and node writes to {}, and this process cannot find its session: {}",
            other.display(),
            out_of_reach()
        ))
    };
    if let Some(why) = collected_elsewhere() {
        return Err(why);
    }
    let claimed = output::claim(wanted, &manifest.node, &manifest.text());
    // The other collector may have been faster just now.
    claimed.map_err(|why| collected_elsewhere().unwrap_or_else(|| why.into()))
}

/// Continues the run of a killed collector: in its directory, with its settings, and on its port if that is free.
fn take_over(
    output: &Output,
    mut manifest: Manifest,
    session: Session,
    arguments: &Arguments,
) -> anyhow::Result<Option<Served>> {
    output::remove_unfinished_trace(&output.directory, &mut manifest);
    output.release_reserve(); // the disk may be full
    let address = output.announced().map_or_else(|| listen_address(arguments), |address| Ok(Some(address)));
    // The program is still running.
    (manifest.progress.has_ended, manifest.progress.is_drained) = (false, false);
    let manifest = manifest.by_this_process();
    let notes = manifest.save(&output.spool).err().map(|why| why.to_string()).into_iter().collect();
    let config = manifest.config()?;
    output::let_group_write(config.group_writable);
    let serving = address.and_then(|address| Ok((address, Access::load(&config)?)));
    let start = Start { config, serving, manifest, notes, takes_over: true };
    let result = collect_into(output, session, arguments, start);
    output.end_announcement();
    result
}

fn collect_into(
    output: &Output,
    session: Session,
    arguments: &Arguments,
    start: Start,
) -> anyhow::Result<Option<Served>> {
    let Start { config, serving, manifest, mut notes, takes_over } = start;
    let cpus = cpus::count(); // the CPUs of the whole job, not only those that the collector runs on
    let _heartbeat = Heartbeat::start(&output.spool);
    let not_on_cpus = config.cpus.as_ref().and_then(|cpus| cpus::run_on(cpus).err());
    let latest = Latest::default();
    let hold = Duration::try_from_secs_f64(arguments.hold).unwrap_or_default();
    if !hold.is_zero() {
        latest.page.await_clients();
    }
    let (summaries, requests) = crossbeam_channel::bounded(16);
    let of = (output, &manifest);
    // A job is measured even if its metrics cannot be served.
    let served = serve(serving, of, latest.clone(), summaries.clone(), &mut notes);
    let not_served = served.as_ref().err().map(|why| {
        output.end_announcement();
        format!("metrics are not served{}: {why}", if takes_over { " any more" } else { "" })
    });
    notes.extend(not_served);
    let server = served.ok();
    let is_asked = asked_to_end();
    let (launcher, input) = follow_launcher(&session, arguments)?;
    let announced =
        server.as_ref().map_or(Ok(()), |s| output.announce(&s.url, &manifest.node, &manifest.run_id));
    match announced {
        Err(why) if takes_over => notes.push(why.to_string()),
        announced => announced?,
    }
    let target = server.as_ref().and_then(|server| write_target_file(server, &config, &manifest, &mut notes));
    let sending = send_energy(&config, &manifest, (&latest, summaries), &mut notes);
    session.set_output(&output.directory);
    let replay = arguments.replay.as_deref().map(Replay::load).transpose().map_err(anyhow::Error::msg)?;
    let of_run = manifest.clone();
    let options = Options::new(output, config, manifest, replay, Mode::Collector);
    let node = options
        .replay
        .is_none()
        .then(|| NodeWatch::begin(session.directory(), &options.config.sources, cpus, launcher));
    let mut run = LiveRun::new(session, options, node, latest)?;
    let of_server = server.iter().flat_map(|server| server.notes.iter().cloned());
    let of_cpus = not_on_cpus.map(|why| why.to_string());
    notes.into_iter().chain(of_server).chain(of_cpus).for_each(|line| run.add_note(line));
    run.sample_counters();
    stacks::sample(&mut run, launcher, takes_over); // before `ampere run` starts the command
    run.await_counters();
    if run.session().is_given_up() {
        bail!("the collector was ready too late");
    }
    run.session().set_collector(std::process::id(), CollectorState::Running);
    let has_ended = rounds::run(&mut run, &requests, EndConditions::new(input, is_asked));
    let ended = Instant::now();
    finish(run, has_ended, output, &of_run)?;
    let Some(server) = server else {
        sending.into_iter().for_each(Sending::wait);
        return Ok(None);
    };
    Ok(Some(Served { server, _target: target, sending, ended, hold }))
}

/// Writes the results. The last node that ends joins the nodes' traces and figures.
fn finish(run: LiveRun, has_ended: bool, output: &Output, manifest: &Manifest) -> anyhow::Result<()> {
    let (_, session) = run.finish(has_ended)?;
    output.release();
    if let Some(first) = nodes::of_the_last_to_end(&output.directory, manifest) {
        if let Err(why) = nodes::join_traces(&first, &manifest.run_id) {
            eprintln!("ampere-collector: the nodes' traces were not joined: {why}: ampere report joins them");
        }
        if let Err(why) = join_figures(&first, &manifest.run_id) {
            eprintln!(
                "ampere-collector: the nodes' figures were not joined: {why}: ampere report joins them"
            );
        }
        if let Err(why) = find_waits_of_nodes(&first, &manifest.run_id, &manifest.config()?) {
            eprintln!(
                "ampere-collector: the figures lack the energy that ranks used while waiting: {why}: ampere attribute computes it"
            );
        }
    }
    end(session, &output.directory);
    Ok(())
}

/// Returns the pid of `ampere run` and the messages from it, if it has started this collector.
fn follow_launcher(session: &Session, arguments: &Arguments) -> anyhow::Result<(Option<u32>, Option<Input>)> {
    if !arguments.until_input_closes {
        return Ok((None, None));
    }
    let launcher = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get() as u32);
    session.set_waited_for(launcher.unwrap_or(0));
    Ok((launcher, Some(watch_input().map_err(cannot_start_a_thread)?)))
}

/// Writes the file with which Prometheus finds this collector, if that is wanted.
fn write_target_file(
    server: &http::Server,
    config: &Config,
    manifest: &Manifest,
    notes: &mut Vec<String>,
) -> Option<TargetFile> {
    let directory = config.metrics.targets.as_deref()?;
    let written = TargetFile::write(directory, &server.url, &manifest.node, &manifest.run_id);
    written.map_err(|why| notes.push(why.to_string())).ok()
}

/// Starts to send the energy to an OpenTelemetry collector, if that is wanted.
fn send_energy(
    config: &Config,
    manifest: &Manifest,
    (latest, to_loop): (&Latest, Sender<Wanted>),
    notes: &mut Vec<String>,
) -> Option<Sending> {
    let setting = config.metrics.otlp.as_deref().filter(|setting| !["", "off"].contains(setting))?;
    let variable = |name: &str| from_environment(name)?.into_string().ok();
    let endpoint = Endpoint::of_setting(setting, variable).map_err(anyhow::Error::new);
    let started_ns = manifest.started().realtime_ns;
    let sending = endpoint.and_then(|endpoint| {
        otlp::start(endpoint, latest.clone(), started_ns, to_loop).map_err(cannot_start_a_thread)
    });
    sending.map_err(|why| notes.push(why.to_string())).ok()
}

/// Starts the server. On several nodes, the first node's collector asks the other ones, which therefore listen on the network by
/// default. Requests from other machines are not answered without a token.
fn serve(
    serving: anyhow::Result<(Option<Listen>, Access)>,
    (output, manifest): (&Output, &Manifest),
    latest: Latest,
    summaries: Sender<Wanted>,
    notes: &mut Vec<String>,
) -> anyhow::Result<http::Server> {
    let (address, access) = serving?;
    let first = output.first_nodes_directory(&manifest.node);
    let default = if first.is_some() { Listen::Tcp(NETWORK_ADDRESS) } else { Listen::default() };
    let is_given = address.is_some();
    let mut address = address.unwrap_or(default);
    if address.is_open_to_others() && !access.has_set_token() {
        match Token::of_run(first.as_ref().unwrap_or(&output.directory)) {
            Ok(token) => access.admit_with(token),
            Err(why) => {
                notes.push(format!("metrics are only on loopback: {why}"));
                address = Listen::default();
            }
        }
    }
    let gathers = first.is_none() && !manifest.replay;
    let gathering = gathers.then(|| Gathering {
        output: output.clone(),
        run: manifest.run_id.clone(),
        node: manifest.node.clone(),
        may_open_on: None,
    });
    let mut server = http::serve(&address, access, latest, summaries, gathering)?;
    if first.is_some() && !is_given {
        server.notes.clear(); // each node of every such run listens on the network
    }
    Ok(server)
}

/// Ends the session. The files are removed first, so that a process that waits for the state finds everything done.
fn end(session: Session, output: &Path) {
    for name in ["collector.json", RUN_TOKEN] {
        let _ = ampere_owned::remove_file(&output.join(name));
    }
    // An earlier collector may have been killed when only its records remained to be removed.
    spool_place::remove_if_unclaimed(session.directory());
    session.remove();
    session.set_collector(std::process::id(), CollectorState::Finished);
}

/// Samples for a metric plugin, without an output directory and a port, because the samples are in Score-P's trace.
fn sample_only(session: Session, config: &Config) -> anyhow::Result<()> {
    let is_asked = asked_to_end();
    counters_only::serve(&session, config, JOIN_LIMIT, || is_asked.load(Ordering::Relaxed))?;
    session.remove();
    session.set_collector(std::process::id(), CollectorState::Finished);
    Ok(())
}

/// Returns the value of a variable. An empty one counts as unset.
fn from_environment(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// Returns the path of the settings file, and the settings.
fn load_config(arguments: &Arguments) -> anyhow::Result<(Option<PathBuf>, Config)> {
    let path = arguments.config.clone().or_else(|| from_environment("AMPERE_CONFIG").map(PathBuf::from));
    let config = Config::load(path.as_deref())?;
    Ok((path, config))
}

/// Returns the address to listen on; `None` if neither an option nor the environment sets one.
fn listen_address(arguments: &Arguments) -> anyhow::Result<Option<Listen>> {
    let wanted = arguments.listen.clone().map(OsString::from).or_else(|| from_environment("AMPERE_LISTEN"));
    Ok(wanted.map(|text| text.to_string_lossy().parse()).transpose()?)
}

/// Raises the limit on open files, because each process of the application needs one for its log and one for its handle.
fn allow_many_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let maximum = getrlimit(Resource::Nofile).maximum;
    // If that fails, the limit is not changed.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

/// Starts a thread that reads standard input until it is closed, and that wakes the calling thread when there is something to do.
fn watch_input() -> std::io::Result<Input> {
    let input = Input::default();
    let (followed, collecting) = (input.clone(), std::thread::current());
    let watch = move || {
        let mut stdin = std::io::stdin().lock();
        loop {
            match stdin.read(&mut [0; 64]) {
                Ok(0) => break,
                Err(why) if why.kind() != std::io::ErrorKind::Interrupted => break,
                _ => followed.is_urgent.store(true, Ordering::Relaxed),
            }
            collecting.unpark();
        }
        followed.is_closed.store(true, Ordering::Relaxed);
        collecting.unpark();
    };
    std::thread::Builder::new().name("ampere-input".to_owned()).spawn(watch)?;
    Ok(input)
}

fn cannot_start_a_thread(why: std::io::Error) -> anyhow::Error {
    anyhow!("cannot start a thread: {why}")
}
