//! The measured command: its environment, start and end.

use super::{Recorder, RunArguments};
use crate::installation::{self, CannotRun, Installation, Runtime};
use crate::run::signals::{Listener, Witness};
use crate::terminal::live_table::LiveTable;
use crate::terminal::words::given;
use ampere_inherited::inheriting;
use ampere_model::ENV_CUDA_INJECTION;
use ampere_model::filter::ENV_FILTER;
use anyhow::Context;
use rustix::io::Errno;
use rustix::io::retry_on_intr;
use rustix::process::{DumpableBehavior, Pid, Signal, WaitOptions, getpgid, set_dumpable_behavior, waitpid};
use rustix::termios::tcgetpgrp;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::time::Duration;

/// Makes the command as it was given.
pub fn unchanged(arguments: &RunArguments) -> Command {
    let mut command = Command::new(&arguments.command[0]);
    command.args(&arguments.command[1..]);
    command
}

/// The variable that names the library which NVTX loads in a program that marks ranges.
pub const NVTX_LIBRARY: &str = "NVTX_INJECTION64_PATH";

/// The variable that names the library which ampere.h looks for.
const ENV_INTERFACE: &str = "AMPERE_INTERFACE";

/// Makes the command with the environment that lets its processes find the plugin and the settings.
pub fn measured(arguments: &RunArguments, installation: &Installation) -> Command {
    let mut command = unchanged(arguments);
    if let Some(path) = given(&arguments.config).and_then(|path| std::fs::canonicalize(path).ok()) {
        command.env("AMPERE_CONFIG", path);
    }
    if let Some(path) = given(&arguments.filter).and_then(|path| std::fs::canonicalize(path).ok()) {
        command.env(ENV_FILTER, path); // Score-P reads it, and so does the embedded host
    }
    command.envs(arguments.variables.iter().map(|(variable, value)| (variable, value)));
    // Under Score-P, this library records no regions, but counts units of work.
    command.env(ENV_INTERFACE, &installation.host);
    command.env("LD_LIBRARY_PATH", prepend(&installation.library_directory, "LD_LIBRARY_PATH", ':'));
    if arguments.recorder != Recorder::Embedded {
        for_score_p(&mut command);
    }
    if arguments.recorder != Recorder::Scorep && installation.is_preloadable() {
        // The embedded host does nothing if it finds Score-P in the process.
        command.env("LD_PRELOAD", prepend(&installation.preloaded, "LD_PRELOAD", ':'));
        // A tool that already records NVTX ranges is left in place.
        if std::env::var_os(NVTX_LIBRARY).is_none_or(|other| other.is_empty()) {
            command.env(NVTX_LIBRARY, &installation.host);
        }
        let value_of = |variable: &str| std::env::var_os(variable);
        let gpus = gpu_variables(installation, value_of);
        for (variable, value) in gpus.into_iter().chain(tool_variables(installation, value_of)) {
            command.env(variable, value);
        }
    }
    command
}

/// The variables through which GPU runtimes load the libraries of tools.
pub const GPU_LIBRARIES: [&str; 3] = [ENV_CUDA_INJECTION, "ROCP_TOOL_LIBRARIES", "OPENCL_LAYERS"];

/// Returns the variables, with their values, that make GPU runtimes load ampere's installed libraries. Entries that the user
/// has set in a list are kept. CUDA loads one library only, and the user's takes precedence.
fn gpu_variables(
    installation: &Installation,
    value_of: impl Fn(&str) -> Option<OsString>,
) -> Vec<(&'static str, OsString)> {
    let [cuda, hip, opencl] = GPU_LIBRARIES;
    let mut variables = Vec::new();
    for (variable, runtime) in [(cuda, Runtime::Cuda), (hip, Runtime::Hip), (opencl, Runtime::OpenCl)] {
        let Some(library) = installation.gpu_library(runtime) else { continue };
        let before = value_of(variable).filter(|before| !before.is_empty());
        let value = match (runtime, before) {
            (_, None) => library.into_os_string(),
            (Runtime::Cuda, Some(_)) => continue,
            (_, Some(list)) if has_entry(&list, &library) => continue,
            (Runtime::Hip, Some(list)) => {
                // rocprofiler-sdk 1.0 ignores the last entry of a list with several, so an empty one is appended.
                let separator = if list.as_bytes().ends_with(b":") { "" } else { ":" };
                [list.as_os_str(), separator.as_ref(), library.as_os_str(), ":".as_ref()].join(OsStr::new(""))
            }
            (Runtime::OpenCl, Some(list)) => [list.as_os_str(), library.as_os_str()].join(OsStr::new(":")),
        };
        variables.push((variable, value));
    }
    variables
}

/// The variables through which libraries find the tool that receives the regions that programs mark.
pub const TOOL_LIBRARIES: [&str; 3] = ["KOKKOS_TOOLS_LIBS", "INTEL_LIBITTNOTIFY64", "OMP_TOOL_LIBRARIES"];

/// Returns the variables, with their values, that make these libraries look for a tool in the preloaded library. A tool that
/// the user has set takes precedence. An empty value means that the user wants no tool, but in OpenMP's list it counts as
/// unset.
fn tool_variables(
    installation: &Installation,
    value_of: impl Fn(&str) -> Option<OsString>,
) -> Vec<(&'static str, OsString)> {
    let [kokkos, itt, openmp] = TOOL_LIBRARIES;
    let library = installation.preloaded.as_os_str();
    let mut variables = Vec::new();
    // Kokkos aborts if its old variable and the new one have different values. Semicolons separate entries.
    let is_kokkos_free = [kokkos, "KOKKOS_PROFILE_LIBRARY"].iter().all(|name| value_of(name).is_none());
    if is_kokkos_free && !library.as_bytes().contains(&b';') {
        variables.push((kokkos, library.to_owned()));
    }
    if value_of(itt).is_none() {
        variables.push((itt, library.to_owned()));
    }
    match value_of(openmp).filter(|list| !list.is_empty()) {
        None => variables.push((openmp, library.to_owned())),
        Some(list) if has_entry(&list, &installation.preloaded) => {}
        // OpenMP uses the first tool in the list that wants to be used.
        Some(list) => variables.push((openmp, [list.as_os_str(), library].join(OsStr::new(":")))),
    }
    variables
}

/// Whether a colon-separated list has this entry.
fn has_entry(list: &OsStr, entry: &Path) -> bool {
    list.as_bytes().split(|byte| *byte == b':').any(|one| one == entry.as_os_str().as_bytes())
}

/// Makes the command of a rank that a launcher has started. Its plugin starts the collector.
pub fn as_rank(arguments: &RunArguments, installation: &Installation) -> Command {
    let mut command = measured(arguments, installation);
    if let Some(path) = given(&arguments.output).and_then(|path| std::path::absolute(path).ok()) {
        command.env("AMPERE_OUTPUT", path);
    }
    if let Some(address) = arguments.listen.as_ref().and_then(|address| address.0.as_ref()) {
        command.env("AMPERE_LISTEN", address.to_string());
    }
    command
}

fn for_score_p(command: &mut Command) {
    let separator = std::env::var("SCOREP_SUBSTRATE_PLUGINS_SEP").ok();
    let separator = separator.and_then(|separator| separator.chars().next()).unwrap_or(',');
    let plugins = std::env::var("SCOREP_SUBSTRATE_PLUGINS").unwrap_or_default();
    if !plugins.split(separator).any(|plugin| plugin == "ampere") {
        let plugins = prepend(Path::new("ampere"), "SCOREP_SUBSTRATE_PLUGINS", separator);
        command.env("SCOREP_SUBSTRATE_PLUGINS", plugins);
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

/// Makes a command with another program and other arguments, and the environment of `command`.
pub fn with_words(command: &Command, program: &OsStr, words: &[impl AsRef<OsStr>]) -> Command {
    let mut other = Command::new(program);
    other.args(words);
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => other.env(name, value),
            None => other.env_remove(name),
        };
    }
    other
}

/// Starts the command as a child process. `redirect` sets its standard streams.
pub fn spawn(command: &Command, redirect: impl Fn(&mut Command)) -> std::io::Result<Child> {
    let start = |command: &Command| {
        let mut command = inheriting(command);
        redirect(&mut command);
        command.spawn()
    };
    start(command).or_else(|error| start(&by_shell(command, error)?))
}

/// Replaces this process by the command. Returns only if the command cannot be run.
pub fn become_command(command: Command) -> CannotRun {
    let error = inheriting(&command).exec();
    let error = by_shell(&command, error).map_or_else(|error| error, |shell| inheriting(&shell).exec());
    CannotRun::refused(command.get_program(), &error)
}

/// Returns a command that runs the file as a shell script, as shells do, if the kernel does not recognise it as a program.
fn by_shell(command: &Command, error: std::io::Error) -> std::io::Result<Command> {
    if error.raw_os_error() != Some(Errno::NOEXEC.raw_os_error()) {
        return Err(error);
    }
    let Ok(script) = installation::program(command.get_program()) else { return Err(error) };
    let words: Vec<_> = std::iter::once(script.as_os_str()).chain(command.get_args()).collect();
    Ok(with_words(command, OsStr::new("/bin/sh"), &words))
}

/// Whether a limit on processes, memory or files was reached, or system calls are forbidden (seccomp). The command may still run
/// without ampere's own processes.
pub fn is_a_limit(error: &std::io::Error) -> bool {
    let limits = [Errno::AGAIN, Errno::NOMEM, Errno::MFILE, Errno::PERM].map(Errno::raw_os_error);
    error.raw_os_error().is_some_and(|code| limits.contains(&code))
}

/// A command that has ended, with its use of resources.
pub struct Ended {
    pub pid: u32,
    pub status: ExitStatus,
    /// The CPU time of the command and of the children that it waited for.
    pub cpu_time: Duration,
}

/// Waits for the command. Signals that are meant for it are passed on, and do not end this process. Without a listener, or if
/// no thread can be started, this only waits. `live` is hidden while the command is stopped. `at_end_request` is called with a
/// signal that asks the command to end, and `at_end` as soon as it has ended.
pub fn wait_for(
    child: Child,
    listener: Option<Listener>,
    mut witness: Option<Witness>,
    live: Option<&LiveTable>,
    at_end_request: &dyn Fn(i32),
    at_end: &(dyn Fn(Ended) + Sync),
) -> anyhow::Result<ExitStatus> {
    let pid = Pid::from_child(&child);
    let before = ampere_signal_safety::cpu_time_of_ended_children();
    let stop = || {
        let _hidden = live.map(LiveTable::hide);
        ampere_inherited::take_default_action(Signal::TSTP.as_raw());
    };
    let wait = |at_stop: &dyn Fn()| {
        let status = wait_for_end(pid, at_stop);
        if let Ok(status) = status {
            let cpu_time = ampere_signal_safety::cpu_time_of_ended_children().saturating_sub(before);
            at_end(Ended { pid: child.id(), status, cpu_time });
        }
        status
    };
    let status = listener.and_then(|listener| {
        let (done, over) = tokio::sync::oneshot::channel();
        let report_stop = listener.report_stop();
        std::thread::scope(|scope| {
            let wait = || {
                let status = wait(&report_stop);
                let _ = done.send(());
                status
            };
            let waiter = std::thread::Builder::new().spawn_scoped(scope, wait).ok()?;
            listener.pass_on(pid, witness.as_mut(), at_end_request, &stop, over);
            waiter.join().ok()
        })
    });
    status.unwrap_or_else(|| wait(&stop)).context("cannot wait for the command")
}

/// Waits for the command's end. A shell sees only this process, so this process stops whenever the command does. But tools
/// send SIGSTOP, and later SIGCONT, to the command alone. So this process follows a SIGSTOP only if a shell waits for the
/// terminal.
fn wait_for_end(pid: Pid, at_stop: &dyn Fn()) -> std::io::Result<ExitStatus> {
    loop {
        let waited = retry_on_intr(|| waitpid(Some(pid), WaitOptions::UNTRACED))?;
        let Some((_, status)) = waited else { continue };
        match status.stopping_signal() {
            None => return Ok(ExitStatus::from_raw(status.as_raw())),
            Some(signal) if signal == Signal::STOP.as_raw() && !has_terminal(pid) => {}
            Some(_) => at_stop(),
        }
    }
}

/// Whether this process or the command has the terminal, so that a shell waits for it.
fn has_terminal(command: Pid) -> bool {
    let group = File::open("/dev/tty").ok().and_then(|terminal| tcgetpgrp(terminal).ok());
    group.is_some_and(|group| [getpgid(None), getpgid(Some(command))].contains(&Ok(group)))
}

/// Returns the command's own exit status, or 128 + n for signal n, as in shells.
pub fn shell_status(status: ExitStatus) -> i32 {
    status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1)
}

/// If a signal ended the command, ends this process by the same signal, because a shell ends its script at Ctrl-C only then.
/// Otherwise returns the command's exit status.
pub fn end_as(status: ExitStatus) -> ExitCode {
    if let Some(signal) = status.signal() {
        // Only the command may leave a core file, and not this process in addition.
        let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
        ampere_inherited::take_default_action(signal);
    }
    ExitCode::from(shell_status(status) as u8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    #[test]
    fn a_tool_of_the_user_takes_precedence() {
        let installation = |preloaded: &str| Installation {
            collector: PathBuf::new(),
            library_directory: PathBuf::new(),
            plugin: PathBuf::new(),
            host: PathBuf::new(),
            preloaded: preloaded.into(),
        };
        let set_to = |preloaded: &str, set: &[(&str, &str)]| {
            let value_of =
                |name: &str| set.iter().find(|(set, _)| *set == name).map(|(_, value)| value.into());
            tool_variables(&installation(preloaded), value_of)
                .iter()
                .map(|(name, value)| format!("{name}={}", value.to_string_lossy()))
                .collect::<Vec<_>>()
        };
        let kokkos = "KOKKOS_TOOLS_LIBS=/a/p.so";
        let itt = "INTEL_LIBITTNOTIFY64=/a/p.so";
        let openmp = "OMP_TOOL_LIBRARIES=/a/p.so";
        assert_eq!(set_to("/a/p.so", &[]), [kokkos, itt, openmp]);
        assert_eq!(set_to("/a/p.so", &[("KOKKOS_TOOLS_LIBS", "")]), [itt, openmp], "set to nothing");
        assert_eq!(set_to("/a/p.so", &[("KOKKOS_PROFILE_LIBRARY", "x.so")]), [itt, openmp]);
        assert_eq!(set_to("/a/p.so", &[("INTEL_LIBITTNOTIFY64", "x.so")]), [kokkos, openmp]);
        let both = "OMP_TOOL_LIBRARIES=x.so:/a/p.so";
        assert_eq!(set_to("/a/p.so", &[("OMP_TOOL_LIBRARIES", "x.so")]), [kokkos, itt, both]);
        assert_eq!(set_to("/a/p.so", &[("OMP_TOOL_LIBRARIES", "x.so:/a/p.so")]), [kokkos, itt]);
        assert_eq!(set_to("/a;b/p.so", &[]).len(), 2, "Kokkos separates entries by semicolons");
    }

    #[test]
    fn lists_of_the_user_are_kept_and_a_single_library_of_the_user_takes_precedence() {
        let place = std::env::temp_dir().join(format!("ampere-gpu-variables-{}", std::process::id()));
        std::fs::create_dir_all(&place).unwrap();
        let installation = Installation {
            collector: place.join("ampere-collector"),
            library_directory: place.clone(),
            plugin: place.join("plugin.so"),
            host: place.join("libampere_host.so"),
            preloaded: place.join("preload.so"),
        };
        let variables = |set: Option<&str>| {
            let found = gpu_variables(&installation, |_| set.map(OsString::from));
            let text = |(name, value): (&str, OsString)| {
                let value = value.to_string_lossy().replace(&format!("{}/", place.display()), "");
                format!("{name}={value}")
            };
            found.into_iter().map(text).collect::<Vec<_>>()
        };
        assert!(variables(None).is_empty(), "no variable is set for a library that is not installed");
        for library in ["libampere_cuda.so", "libampere_hip.so", "libampere_opencl.so"] {
            std::fs::write(place.join(library), "").unwrap();
        }
        let ours = [
            "CUDA_INJECTION64_PATH=libampere_cuda.so",
            "ROCP_TOOL_LIBRARIES=libampere_hip.so",
            "OPENCL_LAYERS=libampere_opencl.so",
        ];
        assert_eq!(variables(None), ours);
        assert_eq!(variables(Some("")), ours);
        let kept = ["ROCP_TOOL_LIBRARIES=a.so:libampere_hip.so:", "OPENCL_LAYERS=a.so:libampere_opencl.so"];
        assert_eq!(variables(Some("a.so")), kept);
        let nested = format!("{0}/libampere_hip.so:{0}/libampere_opencl.so", place.display());
        assert!(variables(Some(&nested)).is_empty(), "within another run, nothing is added");
        std::fs::remove_dir_all(&place).unwrap();
    }
}
