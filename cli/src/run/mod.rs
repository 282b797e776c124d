//! `ampere run`: a collector, the command, and its results.
//!
//! ```text
//! command.rs   the command: environment, start, end
//! signals.rs   signals for the command
//! launched.rs  `ampere run` that a launcher starts for each rank
//! outcome.rs   shows the results
//! launcher.rs  options for a launcher
//! repeat.rs    a series of runs
//! work_from.rs units of work in the command's output
//! ```

mod command;
mod launched;
mod launcher;
mod outcome;
mod repeat;
mod signals;
mod work_from;

pub use outcome::{Expected, places_to_look, report, show, tree_words};
pub use signals::witness;

use crate::collector::keeper::Keeper;
use crate::collector::{self, Address, SAMPLE, Wanted, address, run_name};
use crate::installation::{self, CannotRun, Installation};
use crate::percent::{Percent, percent};
use crate::terminal::live_table::LiveTable;
use crate::terminal::words::{given, path_parser};
use ampere_collector::run_directory::command_end::CommandEnd;
use ampere_collector::run_directory::output::{PAGE, RESULTS, holds_foreign_page, holds_results, is_same};
use ampere_collector::run_directory::stale;
use ampere_endpoint::access::Access;
use ampere_model::filter::Filter;
use ampere_model::is_switched_off;
use ampere_model::text::{one_line, printable};
use ampere_ring::Session;
use ampere_ring::process::{names_of_this_node, node_name};
use ampere_ring::session::ENV_SESSION_BOOT;
use ampere_settings::{Config, ENV_RECORDER, WrongValue, setting};
use anyhow::{Context, bail, ensure};
use clap::{Args, ValueEnum, ValueHint};
use signals::{Listener, Witness};
use std::ffi::OsString;
use std::fmt::Display;
use std::io::IsTerminal;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;
use work_from::{Copying, WorkFrom};

#[derive(Args)]
pub struct RunArguments {
    /// Where the results go [default: ./ampere-<date>_<time>_<id>]
    #[arg(short, long, overrides_with = "output", env = "AMPERE_OUTPUT", value_parser = path_parser())]
    output: Option<PathBuf>,
    /// Settings file, such as ampere.toml
    #[arg(long, env = "AMPERE_CONFIG", value_parser = path_parser())]
    config: Option<PathBuf>,
    /// Where /metrics is served: an address, unix:/path, or off [default: 127.0.0.1:9977, or the next free port]
    #[arg(long, env = "AMPERE_LISTEN", value_parser = address)]
    listen: Option<Address>,
    /// The recorder of events: Score-P in the program, or ampere's own host, preloaded into it
    #[arg(long, alias = "host", value_enum, default_value = "auto")]
    recorder: Recorder,
    /// Which sources of energy counters are opened, such as rapl,nvml [default: all that have a device, else the estimate]
    #[arg(long, value_name = "NAMES", value_parser = value_of(COUNTERS))]
    counters: Option<String>,
    /// How often a counter that is about to change is read, such as 1ms
    #[arg(long, value_name = "TIME", value_parser = value_of(PERIOD))]
    sample_period: Option<String>,
    /// Whether a trace is written [default: on]
    #[arg(long, value_enum, value_name = "on|off")]
    trace: Option<Switch>,
    /// A Score-P filter file with functions that are not recorded; `ampere report -f scorep-filter` makes one
    #[arg(long, value_name = "FILE", value_parser = path_parser())]
    filter: Option<PathBuf>,
    /// Sample the call paths of programs that are not instrumented: auto (each 1 to 10 ms of CPU time, and less often in long runs;
    /// the default), off, or a time such as 5ms
    #[arg(long, visible_alias = "stacks", value_name = "auto|off|PERIOD", value_parser = value_of(SAMPLE))]
    sample: Option<String>,
    /// Count units of work that the command prints: a regular expression whose first group is a number, of which each match adds
    #[arg(long, value_name = "[NAME=]REGEX", value_parser = work_from::work_from)]
    work_from: Vec<WorkFrom>,
    /// End with an error if the command cannot be measured, instead of running it without being measured
    #[arg(long)]
    require: bool,
    /// Run the command this many times, with the results of each run in DIR/1, DIR/2 and so on. ampere compare DIR takes them as a
    /// group. A run that fails ends the series
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeat: Option<u32>,
    /// End a series earlier, once the 95 % range of the mean joules is within this part of the mean
    #[arg(long, value_name = "PERCENT%", value_parser = percent, requires = "repeat")]
    until: Option<Percent>,
    /// This is one run of a series: ampere run --repeat starts it
    #[arg(long, hide = true)]
    of_series: bool,
    /// Print only errors and warnings: no live table, and no results at the end
    #[arg(short, long)]
    quiet: bool,
    /// The variables that the other options set.
    #[arg(skip)]
    variables: Vec<(&'static str, String)>,
    /// The command. After -- it may begin with a hyphen
    #[arg(required = true, trailing_var_arg = true, value_hint = ValueHint::CommandWithArguments)]
    command: Vec<OsString>,
}

const COUNTERS: &str = "AMPERE_COUNTERS";
const PERIOD: &str = "AMPERE_SAMPLE_PERIOD";
const TRACE: &str = "AMPERE_TRACE";

/// Parses, for clap, an option that takes the same values as this variable.
fn value_of(variable: &'static str) -> impl Fn(&str) -> Result<String, WrongValue> + Clone {
    move |text| setting(variable).map_or(Ok(()), |setting| setting.check(text)).map(|()| text.to_owned())
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Switch {
    On,
    Off,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Recorder {
    /// Score-P if the program was built with it, else the embedded host
    Auto,
    Scorep,
    Embedded,
}

impl Recorder {
    /// Returns the reason why a command may have no events.
    fn why_nothing(self) -> &'static str {
        match self {
            Recorder::Auto => {
                "no process of the command that can see this run called MPI, or a function compiled with \
                 -finstrument-functions or by Score-P, and none used enough CPU time to be sampled"
            }
            Recorder::Scorep => {
                "no process of the command that can see this run was built with Score-P; without --recorder scorep, MPI functions are still measured"
            }
            Recorder::Embedded => {
                "no process of the command that can see this run called MPI, or a function compiled with \
                 -finstrument-functions, and none used enough CPU time to be sampled"
            }
        }
    }
}

impl RunArguments {
    /// Returns the options with which the run's collector is started.
    fn wanted(&self) -> Wanted<'_> {
        Wanted {
            output: given(&self.output),
            config: given(&self.config),
            listen: self.listen.as_ref().and_then(|address| address.0.as_ref()),
            variables: &self.variables,
            command: &self.command,
            replay: None,
            hold: Duration::ZERO,
        }
    }

    /// Loads the settings, and keeps the variables that the options set for the processes of the run.
    fn config(&mut self) -> anyhow::Result<Config> {
        let trace = self.trace.map(|trace| (trace == Switch::On).to_string());
        let options = [
            (SAMPLE, self.sample.clone()),
            (COUNTERS, self.counters.clone()),
            (PERIOD, self.sample_period.clone()),
            (TRACE, trace),
            (ENV_RECORDER, (self.recorder == Recorder::Scorep).then(|| "scorep".to_owned())),
        ];
        self.variables =
            options.into_iter().filter_map(|(variable, value)| Some((variable, value?))).collect();
        let mut config = Config::load(given(&self.config))?;
        let value =
            |name: &str| self.variables.iter().find(|(of, _)| *of == name).map(|(_, value)| value.clone());
        config.apply(&value)?;
        Ok(config)
    }

    /// Reports once, and not for each rank, why the command is not measured. With `--require`, this is an error.
    fn note_unmeasured(&self, rank: Option<u32>, why: &dyn Display) -> anyhow::Result<()> {
        ensure!(!self.require, "{why}; the command is not run, because of --require");
        if rank.unwrap_or(0) == 0 {
            say!("ampere: {why}; the command runs without being measured");
        }
        Ok(())
    }
}

pub fn run(mut arguments: RunArguments) -> anyhow::Result<ExitCode> {
    installation::program(&arguments.command[0])?;
    // A mistake in the settings is reported before the job starts.
    let config = arguments.config()?;
    let access = Access::load(&config).map_err(anyhow::Error::msg)?;
    check_counters(&config)?;
    check_filter(given(&arguments.filter))?;
    if config.sampler.stacks.is_none() {
        // This informs the collectors of all nodes that the run is to be sampled.
        arguments.variables.push((SAMPLE, "auto".to_owned()));
    }
    let rank = launched::rank();
    if is_switched_off() {
        arguments.note_unmeasured(rank, &"AMPERE_DISABLE is set")?;
        return Err(command::become_command(command::unchanged(&arguments)).into());
    }
    let installation = match installation::find() {
        Ok(installation) => installation,
        Err(why) => {
            let why = one_line(&*why);
            arguments.note_unmeasured(rank, &why)?;
            if rank.is_none() && std::io::stderr().is_terminal() {
                return run_unmeasured(&arguments, None, &why);
            }
            return Err(command::become_command(command::unchanged(&arguments)).into());
        }
    };
    if let Some(rank) = rank {
        let for_all = [
            ("--require", arguments.require),
            ("--repeat", arguments.repeat.is_some()),
            ("--work-from", !arguments.work_from.is_empty()),
        ];
        if let Some((option, _)) = for_all.iter().find(|(_, is_given)| *is_given) {
            bail!("{option} cannot be used for each rank: start ampere run once, in front of the launcher");
        }
        let rank_command = command::as_rank(&arguments, &installation);
        return Err(launched::become_rank(rank_command, rank, &installation).into());
    }
    if let Some(limit) = arguments.repeat.filter(|_| !arguments.of_series) {
        return repeat::series(&arguments, limit);
    }
    if let Ok(base) = Session::base_directory() {
        stale::remove_stale_sessions(&base);
    }
    if let Some(job) = launcher::job_elsewhere(|name| std::env::var(name).ok(), &node_name()) {
        say!(
            "ampere: {} does not belong to Slurm job {}, but the run's total includes its joules: start ampere run on a node of the \
             job, in srun --pty bash or as srun ampere run",
            node_name(),
            printable(&job)
        );
    }
    measure(&arguments, &installation, &access)
}

/// Runs the command with a collector, or without one if none can be started.
fn measure(
    arguments: &RunArguments,
    installation: &Installation,
    access: &Access,
) -> anyhow::Result<ExitCode> {
    note_not_preloadable(arguments, installation);
    let existing = existing_directories(given(&arguments.output));
    let name = run_name();
    // The witness is started before the command, so that it gets every signal that the command gets. This thread starts it,
    // because the kernel ends it together with the thread that started it. It is started while the collector gets ready,
    // because the collector samples only processes that start later.
    let mut witness = None;
    let started = start_collector(arguments, installation, &name, || witness = Witness::start());
    let (session, collector) = match started {
        Ok(started) => started,
        Err(why) => {
            let why = one_line(&*why);
            arguments.note_unmeasured(None, &why)?;
            return run_unmeasured(arguments, witness, &why);
        }
    };
    let output = session.output().unwrap_or_default();
    note_other_output(given(&arguments.output), &output);
    let listener = Listener::start();
    let mut copying = copy_output(arguments, &session);
    let child = match start_command(arguments, installation, (&name, &output), copying.as_ref()) {
        Ok(child) => child,
        Err(error) => {
            collector.give_up();
            remove_results(&output, &name, existing.contains(&output));
            session.remove();
            if !command::is_a_limit(&error) {
                return Err(CannotRun::refused(&arguments.command[0], &error).into());
            }
            arguments.note_unmeasured(None, &error)?;
            return run_unmeasured(arguments, None, &error);
        }
    };
    copying.iter_mut().for_each(Copying::release);
    let (copying, end, order) = (Mutex::new(copying), OnceLock::new(), OnceLock::new());
    let live = (!arguments.quiet).then(|| LiveTable::start(&output, access.token().cloned()));
    let at_end = |ended: command::Ended| {
        let first = order.get().copied();
        end.get_or_init(|| end_of(&ended, first, &copying)).save(session.directory());
        collector.close();
    };
    let at_order = |signal: i32| {
        order.get_or_init(|| signal);
        collector.request_write();
    };
    let status = command::wait_for(child, listener, witness, live.as_ref(), &at_order, &at_end)?;
    if let Some(live) = live {
        live.stop();
    }
    signals::stop_waiting_when_asked(&output, status);
    let results = collector.finish(arguments.quiet);
    let recorder = arguments.recorder;
    let expected = Expected {
        why_nothing: recorder.why_nothing(),
        score_p: recorder == Recorder::Scorep,
        quiet: arguments.quiet,
    };
    let is_measured = report(&session, &output, results, &expected);
    let notes = end.get().into_iter().flat_map(|end| &end.notes);
    notes.for_each(|note| say!("ampere: {}", printable(note)));
    let fails = arguments.require && !is_measured && status.success();
    Ok(if fails { ExitCode::FAILURE } else { command::end_as(status) })
}

/// Prints a line if the library that opens the host cannot be preloaded.
fn note_not_preloadable(arguments: &RunArguments, installation: &Installation) {
    if arguments.recorder != Recorder::Scorep && !installation.is_preloadable() {
        say!(
            "ampere: {} cannot be preloaded, because its path contains a blank or a colon: only programs built with Score-P are measured; \
             install ampere elsewhere",
            installation.host.display()
        );
    }
}

/// Copies the rest of the command's output. Returns what the collector needs to know about how the command ended. `order` is the
/// first signal that asked it to end.
fn end_of(ended: &command::Ended, order: Option<i32>, copying: &Mutex<Option<Copying>>) -> CommandEnd {
    let copying = copying.lock().ok().and_then(|mut copying| copying.take());
    CommandEnd {
        pid: ended.pid,
        status: command::shell_status(ended.status),
        signal: ended.status.signal(),
        order,
        cpu_ns: ended.cpu_time.as_nanos() as u64,
        notes: copying.map(Copying::finish).unwrap_or_default(),
    }
}

/// Starts to copy the command's output if units of work are to be found in it. If it cannot be copied, one line gives the
/// reason.
fn copy_output(arguments: &RunArguments, session: &Session) -> Option<Copying> {
    if arguments.work_from.is_empty() {
        return None;
    }
    let copying = Copying::start(&arguments.work_from, session);
    copying.inspect_err(|why| say!("ampere: --work-from: {}", one_line(&**why))).ok()
}

/// Before the job starts, refuses a filter that cannot be used, because Score-P would end the program.
fn check_filter(path: Option<&Path>) -> anyhow::Result<()> {
    let Some(path) = path else { return Ok(()) };
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    Filter::parse(&text).map(drop).with_context(|| format!("{} is not a Score-P filter file", path.display()))
}

fn start_collector(
    arguments: &RunArguments,
    installation: &Installation,
    name: &str,
    meanwhile: impl FnOnce(),
) -> anyhow::Result<(Session, Keeper)> {
    let session = Session::open_or_create(&format!("s-{name}"))?;
    let collector = collector::start(installation, &session, &arguments.wanted(), meanwhile)?;
    Ok((session, collector))
}

fn start_command(
    arguments: &RunArguments,
    installation: &Installation,
    (name, output): (&str, &Path),
    copying: Option<&Copying>,
) -> std::io::Result<Child> {
    let mut command = command::measured(arguments, installation);
    command.env("AMPERE_SESSION", name).env(ENV_SESSION_BOOT, ampere_ring::process::boot_text());
    // The collectors that the plugin starts on other nodes need the output directory.
    command.env("AMPERE_OUTPUT", output);
    let redirect = |command: &mut Command| copying.iter().for_each(|copying| copying.redirect(command));
    command::spawn(&launcher::with_launcher_options(command), redirect)
}

fn run_unmeasured(
    arguments: &RunArguments,
    witness: Option<Witness>,
    why: &dyn Display,
) -> anyhow::Result<ExitCode> {
    let listener = Listener::start();
    let Ok(child) = command::spawn(&command::unchanged(arguments), |_| {}) else {
        // The command itself needs no second process, and no descriptor.
        drop(witness);
        return Err(command::become_command(command::unchanged(arguments)).into());
    };
    let status = command::wait_for(child, listener, witness, None, &|_| {}, &|_| {})?;
    // The line that was printed before the command started may have scrolled out of sight.
    if std::io::stderr().is_terminal() {
        say!("ampere: {why}; the command ran without being measured");
    }
    Ok(command::end_as(status))
}

/// Before the job starts, refuses a mistake in the variables of counter sources. A collector that a job under Score-P starts
/// without `ampere run` ignores such a variable.
pub fn check_counters(config: &Config) -> anyhow::Result<()> {
    config.left_out.first().map_or(Ok(()), |why| Err(anyhow::anyhow!("{why}")))
}

/// Prints a line if the results are not in the directory that the user chose.
fn note_other_output(wanted: Option<&Path>, output: &Path) {
    let Some(wanted) = wanted else { return };
    if !possible_outputs(wanted).iter().any(|possible| is_same(possible, output)) {
        let why = match holds_results(wanted) {
            true => "holds the results of another run",
            false => {
                "is in use by another run, or has the records of a killed one (`ampere recover` finishes it)"
            }
        };
        say!("ampere: {} {why}: these results are written to {}", wanted.display(), output.display());
    }
}

/// Returns which of the directories that the collector may choose for its output exist already.
fn existing_directories(wanted: Option<&Path>) -> Vec<PathBuf> {
    let possible = wanted.into_iter().flat_map(possible_outputs);
    possible.filter_map(|path| std::fs::canonicalize(path).ok()).collect()
}

/// Returns the directories from which the collector chooses its output, if the user wants this one.
fn possible_outputs(wanted: &Path) -> [PathBuf; 3] {
    let [own, distinct] = names_of_this_node().map(|node| wanted.join(node));
    [wanted.to_owned(), own, distinct]
}

/// Removes what the collector has written for a command that never ran. A directory that existed before is kept, with the
/// user's files.
fn remove_results(output: &Path, run_id: &str, existed: bool) {
    // Any trace in the directory was written by the collector, because there was none when it claimed the directory.
    let results = RESULTS.into_iter().filter(|name| *name != PAGE || !holds_foreign_page(output, run_id));
    for name in results.chain(["collector.json", "traces.otf2", "traces.def"]) {
        let _ = ampere_owned::remove_file(&output.join(name));
    }
    let _ = ampere_owned::remove_flat(&output.join("traces"));
    // Directories are removed only if they are empty.
    let entries = std::fs::read_dir(output).into_iter().flatten().flatten();
    for spool in entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("spool-")) {
        let _ = ampere_owned::remove_directory(&spool.path());
    }
    if !existed {
        let _ = ampere_owned::remove_directory(output);
    }
}
