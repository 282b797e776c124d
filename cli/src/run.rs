//! `ampere run`: a collector, the command, and what came of it.

use crate::find::{self, Parts};
use crate::keeper::{Keeper, Results, Start};
use crate::launched;
use crate::signals::{self, Witness};
use crate::watch::Watch;
use crate::words::{given, path_parser};
use ampere_collector::run_directory::command_end::CommandEnd;
use ampere_collector::run_directory::nodes;
use ampere_collector::run_directory::output::{PAGE, RESULTS, holds_foreign_page};
use ampere_collector::run_directory::stale;
use ampere_collector::serving::access::Access;
use ampere_collector::serving::listen::Listen;
use ampere_model::text::{joules as joules_text, one_line};
use ampere_report::summary::{Run, Summary};
use ampere_ring::process::node_name;
use ampere_ring::session::{ENV_SESSION_BOOT, is_switched_off};
use ampere_ring::{Session, files};
use ampere_settings::Config;
use anyhow::Context;
use clap::{Args, ValueEnum};
use rustix::io::Errno;
use rustix::process::Pid;
use std::ffi::{OsStr, OsString};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus};

#[derive(Args)]
pub struct RunArguments {
    /// Where the results go [default: ./ampere-<date>_<time>_<id>]
    #[arg(short, long, env = "AMPERE_OUTPUT", value_parser = path_parser())]
    output: Option<PathBuf>,
    /// Settings (see the README)
    #[arg(long, env = "AMPERE_CONFIG", value_parser = path_parser())]
    config: Option<PathBuf>,
    /// Where /metrics is served: an address, or unix:/path [default: 127.0.0.1:9977, or the next free port]
    #[arg(long, env = "AMPERE_LISTEN", value_parser = address)]
    listen: Option<Address>,
    /// Who measures: Score-P in the program, or ampere's own host preloaded into it
    #[arg(long, value_enum, default_value = "auto")]
    host: Host,
    /// The command, after --
    #[arg(required = true, last = true)]
    command: Vec<OsString>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Host {
    /// Score-P where the program was built with it, else the embedded host
    Auto,
    Scorep,
    Embedded,
}

impl Host {
    /// What is the case if a command had no event.
    fn why_nothing(self) -> &'static str {
        match self {
            Host::Auto => {
                "no process of the command that can see this run called MPI, or a function compiled with \
                 -finstrument-functions or by Score-P"
            }
            Host::Scorep => {
                "no process of the command that can see this run was built with Score-P; without --host scorep, MPI's functions are measured all the same"
            }
            Host::Embedded => {
                "no process of the command that can see this run called MPI, or a function compiled with -finstrument-functions"
            }
        }
    }
}

/// None where the text is empty, as from `AMPERE_LISTEN=$UNSET`.
#[derive(Clone)]
pub struct Address(pub Option<Listen>);

pub fn address(text: &str) -> Result<Address, String> {
    if text.is_empty() { Ok(Address(None)) } else { text.parse().map(|address| Address(Some(address))) }
}

pub fn run(arguments: RunArguments) -> anyhow::Result<ExitCode> {
    let parts = find::parts()?;
    find::program(&arguments.command[0])?;
    // A mistake in the settings is told before the job starts.
    let config = Config::load(given(&arguments.config))?;
    let access = Access::load(&config).map_err(anyhow::Error::msg)?;
    check_counters()?;
    if let Some(rank) = launched::rank() {
        return launched::become_rank(for_a_rank(&arguments, &parts), rank, given(&arguments.output));
    }
    tell_of_leftovers();
    let name = run_name();
    let there_before = directories_there(given(&arguments.output));
    let wanted = Wanted {
        output: given(&arguments.output),
        config: given(&arguments.config),
        listen: arguments.listen.as_ref().and_then(|address| address.0.as_ref()),
        command: &arguments.command,
        replay: None,
    };
    if arguments.host != Host::Scorep && !parts.is_preloadable() {
        say!(
            "ampere: no program can be told to preload {}, for a blank or a colon in its path: only what is built with Score-P \
             is measured; install ampere elsewhere",
            parts.host.display()
        );
    }
    let collector =
        Session::open_or_create(&format!("s-{name}")).map_err(anyhow::Error::from).and_then(|session| {
            let collector = start_collector(&parts, &session, &wanted)?;
            Ok((session, collector))
        });
    // Before the command, as what comes to that comes to the witness then.
    let witness = Witness::start();
    let mut command = command_of(&arguments);
    let (session, collector) = match collector {
        Ok(started) => started,
        Err(why) => {
            say!("ampere: {}; the command runs without being measured", one_line(&*why));
            return unmeasured(&arguments, witness);
        }
    };
    let output = session.output().unwrap_or_default();
    prepare(&mut command, &parts, &arguments);
    command.env("AMPERE_SESSION", &name).env(ENV_SESSION_BOOT, ampere_ring::process::boot_text());
    // For collectors on other nodes, which the plugin starts there.
    command.env("AMPERE_OUTPUT", &output);
    let child = match spawn(command) {
        Ok(child) => child,
        Err(error) => {
            collector.give_up();
            remove_results(&output, &name, there_before.contains(&output));
            session.remove();
            if !is_a_limit(&error) {
                return Err(error).with_context(|| cannot_run(&arguments.command[0]));
            }
            say!("ampere: {error}: the command runs without being measured");
            return unmeasured(&arguments, None);
        }
    };
    let watch = Watch::start(&output, access.token().cloned());
    let pid = child.id();
    let status = wait_for(child, witness)?;
    watch.stop();
    CommandEnd { pid, status: shell_status(status), signal: status.signal() }.save(session.directory());
    signals::stop_waiting_when_asked(&output, shell_status(status));
    let results = collector.finish();
    let why_nothing = if is_switched_off() { "AMPERE_DISABLE is set" } else { arguments.host.why_nothing() };
    report(&session, &output, results, why_nothing);
    Ok(code_of(status))
}

/// A counter source that does not exist is a mistake in the settings, too. Where nobody reads this before the job starts,
/// as under Score-P alone, the collector notes it and goes on with what there is.
pub fn check_counters() -> anyhow::Result<()> {
    let names = std::env::var(ampere_counters::ENV_COUNTERS).unwrap_or_default();
    ampere_counters::check_names(&names).map_err(anyhow::Error::msg)?;
    let mut wrong = Vec::new();
    ampere_counters::Settings::default().apply_environment(&mut wrong);
    wrong.pop().map_or(Ok(()), |why| Err(anyhow::Error::msg(why)))
}

/// Those of which the collector may make one its output directory, if they are there already.
fn directories_there(wanted: Option<&Path>) -> Vec<PathBuf> {
    let possible = wanted.into_iter().flat_map(|wanted| [wanted.to_owned(), wanted.join(node_name())]);
    possible.filter_map(|path| std::fs::canonicalize(path).ok()).collect()
}

/// Takes back what the collector has written of a command that never ran. The directory may have been there before, with
/// things of the user's in it, or with nothing: it stays then.
fn remove_results(output: &Path, run_id: &str, was_there: bool) {
    // A trace is the collector's: there was none when it claimed the directory.
    let results = RESULTS.into_iter().filter(|name| *name != PAGE || !holds_foreign_page(output, run_id));
    for name in results.chain(["collector.json", "traces.otf2", "traces.def"]) {
        let _ = std::fs::remove_file(output.join(name));
    }
    let _ = std::fs::remove_dir_all(output.join("traces"));
    // Directories go only if they are empty.
    let entries = std::fs::read_dir(output).into_iter().flatten().flatten();
    for spool in entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("spool-")) {
        let _ = std::fs::remove_dir(spool.path());
    }
    if !was_there {
        let _ = std::fs::remove_dir(output);
    }
}

pub fn cannot_run(program: &OsStr) -> String {
    format!("cannot run {}", program.to_string_lossy())
}

/// What a collector is started with.
pub struct Wanted<'a> {
    pub output: Option<&'a Path>,
    pub config: Option<&'a Path>,
    pub listen: Option<&'a Listen>,
    /// For the summary.
    pub command: &'a [OsString],
    /// What is replayed.
    pub replay: Option<&'a Path>,
}

pub fn run_name() -> String {
    let pid = std::process::id();
    let nanoseconds =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default().as_nanos();
    format!("run-{pid}-{:x}", nanoseconds & 0xffff_ffff_ffff)
}

/// A collector that is ready, and is replaced when it is killed. If it cannot start, the session is removed.
pub fn start_collector(parts: &Parts, session: &Session, wanted: &Wanted) -> anyhow::Result<Keeper> {
    // In one word each: a path may begin with a hyphen.
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
    arguments.push("--".into());
    arguments.extend(wanted.command.iter().cloned());
    Keeper::start(session, Start { program: parts.collector.clone(), arguments })
}

/// The command as it is.
fn unmeasured(arguments: &RunArguments, witness: Option<Witness>) -> anyhow::Result<ExitCode> {
    let child = spawn(command_of(arguments)).with_context(|| cannot_run(&arguments.command[0]))?;
    Ok(code_of(wait_for(child, witness)?))
}

/// No process more, or no memory: what we have of both may be what the command lacks.
fn is_a_limit(error: &std::io::Error) -> bool {
    let limits = [Errno::AGAIN, Errno::NOMEM].map(Errno::raw_os_error);
    error.raw_os_error().is_some_and(|code| limits.contains(&code))
}

/// What the kernel does not know as a program is a script for the shell, as it is where a shell starts it.
fn spawn(mut command: Command) -> std::io::Result<Child> {
    match command.spawn() {
        Err(error) if error.raw_os_error() == Some(Errno::NOEXEC.raw_os_error()) => {
            let Ok(script) = find::program(command.get_program()) else { return Err(error) };
            let mut shell = Command::new("/bin/sh");
            shell.arg(script).args(command.get_args());
            for (name, value) in command.get_envs() {
                match value {
                    Some(value) => shell.env(name, value),
                    None => shell.env_remove(name),
                };
            }
            ampere_signal_safety::restore_sigchld_in(&mut shell);
            shell.spawn()
        }
        spawned => spawned,
    }
}

fn command_of(arguments: &RunArguments) -> Command {
    let mut command = Command::new(&arguments.command[0]);
    command.args(&arguments.command[1..]);
    ampere_signal_safety::restore_sigchld_in(&mut command);
    command
}

/// The command, for one of the ranks that a launcher has started: its plugin starts the collector.
fn for_a_rank(arguments: &RunArguments, parts: &Parts) -> Command {
    let mut command = command_of(arguments);
    prepare(&mut command, parts, arguments);
    if let Some(path) = given(&arguments.output).and_then(|path| std::path::absolute(path).ok()) {
        command.env("AMPERE_OUTPUT", path);
    }
    if let Some(address) = arguments.listen.as_ref().and_then(|address| address.0.as_ref()) {
        command.env("AMPERE_LISTEN", address.to_string());
    }
    command
}

/// The environment that lets the command's processes find the plugin and the settings.
fn prepare(command: &mut Command, parts: &Parts, arguments: &RunArguments) {
    let host = arguments.host;
    if let Some(path) = given(&arguments.config).and_then(|path| std::fs::canonicalize(path).ok()) {
        command.env("AMPERE_CONFIG", path);
    }
    command.env("LD_LIBRARY_PATH", prepend(&parts.library_directory, "LD_LIBRARY_PATH", ':'));
    if host != Host::Embedded {
        let separator =
            std::env::var("SCOREP_SUBSTRATE_PLUGINS_SEP").ok().and_then(|s| s.chars().next()).unwrap_or(',');
        let plugins = std::env::var("SCOREP_SUBSTRATE_PLUGINS").unwrap_or_default();
        if !plugins.split(separator).any(|plugin| plugin == "ampere") {
            command.env(
                "SCOREP_SUBSTRATE_PLUGINS",
                prepend(Path::new("ampere"), "SCOREP_SUBSTRATE_PLUGINS", separator),
            );
        }
    }
    if host != Host::Scorep && parts.is_preloadable() {
        // It stands back by itself where it finds a Score-P in the process.
        command.env("LD_PRELOAD", prepend(&parts.host, "LD_PRELOAD", ':'));
        // A program with the AddressSanitizer's library does not start behind another one unless it is told that it may.
        command.env("ASAN_OPTIONS", prepend(Path::new("verify_asan_link_order=0"), "ASAN_OPTIONS", ':'));
    }
}

fn prepend(first: &Path, variable: &str, separator: char) -> OsString {
    let mut value = first.as_os_str().to_owned();
    if let Some(rest) = std::env::var_os(variable).filter(|rest| !rest.is_empty()) {
        value.push(separator.to_string());
        value.push(rest);
    }
    value
}

/// Waits for the command; signals that are meant for it are passed on, and do not end us before our work is done. Where there
/// is no descriptor and no thread left to listen for them, the command is waited for all the same.
fn wait_for(mut child: Child, mut witness: Option<Witness>) -> anyhow::Result<ExitStatus> {
    let pid = Pid::from_child(&child);
    // Tokio panics where it finds no descriptors for its signals: it is seen before whether there are some.
    let descriptors: std::io::Result<Vec<_>> = (0..4).map(|_| UnixStream::pair()).collect();
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = descriptors.map(drop).and_then(|()| runtime());
    let status = runtime.ok().and_then(|runtime| {
        let (done, over) = tokio::sync::oneshot::channel();
        std::thread::scope(|scope| {
            let wait = || {
                let status = child.wait();
                let _ = done.send(());
                status
            };
            let waiter = std::thread::Builder::new().spawn_scoped(scope, wait).ok()?;
            runtime.block_on(signals::pass_on(pid, witness.as_mut(), over));
            waiter.join().ok()
        })
    });
    status.unwrap_or_else(|| child.wait()).context("cannot wait for the command")
}

/// What came of it, on standard error: standard output is the command's own. `why_nothing`: if there was no event.
pub fn report(session: &Session, output: &Path, results: Results, why_nothing: &str) {
    if results == Results::StillWritten {
        return say!(
            "ampere: the collector still writes the results, and goes on: {} has its summary.txt in the end",
            output.display()
        );
    }
    if results == Results::Missing {
        let why = files::read_text(&session.directory().join("failure"));
        let left = if output.is_dir() { output } else { session.directory() };
        say!(
            "ampere: the collector failed: {}; what is left can be finished: ampere recover {}",
            if why.is_empty() { "it ended before its time" } else { why.trim() },
            left.display()
        );
        return;
    }
    let summary =
        std::fs::read(output.join("summary.json")).ok().and_then(|text| serde_json::from_slice(&text).ok());
    let Some(summary): Option<Summary> = summary else { return };
    if summary.quality.events == 0 && nodes::below(output, &summary.run.id).is_empty() {
        say!("ampere: nothing was measured: {why_nothing}");
    }
    show(&summary, output);
}

/// A run's results.
pub fn show(summary: &Summary, output: &Path) {
    use std::io::IsTerminal;
    say!("\n{}", ampere_report::text::render(summary, std::io::stderr().is_terminal()).trim_end());
    let trace = output.join("traces.otf2");
    if trace.exists() {
        say!("\ntrace:   {}", trace.display());
    }
    say!("summary: {}", output.join("summary.json").display());
    let page = output.join("report.html");
    if page.exists() && !holds_foreign_page(output, &summary.run.id) {
        say!("report:  {}", page.display());
    }
    tell_of_nodes(&summary.run, output);
}

/// The table above is this node's.
fn tell_of_nodes(run: &Run, output: &Path) {
    let others = nodes::below(output, &run.id);
    let ended: Vec<&Run> = others.iter().filter_map(|node| node.run.as_ref()).collect();
    if others.is_empty() {
        return;
    }
    let joules = run.total_joules + ended.iter().map(|run| run.total_joules).sum::<f64>();
    let missing = match others.len() - ended.len() {
        0 => String::new(),
        many => format!(", and {many} more that have not ended"),
    };
    say!(
        "nodes:   {} J on {} nodes{missing}; ampere report {} shows them as one",
        joules_text(joules),
        1 + ended.len(),
        output.display()
    );
}

/// The command's own; 128 + n for signal n, as shells say it.
fn code_of(status: ExitStatus) -> ExitCode {
    ExitCode::from(shell_status(status) as u8)
}

fn shell_status(status: ExitStatus) -> i32 {
    status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1)
}

/// One line about runs whose collectors were killed. What was left without anything in it goes.
fn tell_of_leftovers() {
    let recoverable = Session::base_directory().map_or(0, |base| stale::remove_stale_sessions(&base));
    if recoverable > 0 {
        say!("ampere: {}", stale::told(recoverable));
    }
}
