//! Checks Score-P, and whether its loader would find the plugins. Another process loads them by name, as Score-P does.

use super::child::{self, ANSWER_TIME_MAX, End, signal_name};
use super::findings::{Check, Group};
use super::probe::{self, Message};
use super::version_in;
use crate::installation::{self, Installation};
use anyhow::bail;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

const TRIED: &str = "8.4";
/// The libraries that Score-P loads for `SCOREP_SUBSTRATE_PLUGINS=ampere` and for `SCOREP_METRIC_PLUGINS=ampere_plugin`.
const PLUGINS: [(&str, &str, &str); 2] = [
    ("plugin", "libscorep_substrate_ampere.so", "SCOREP_SubstratePlugin_ampere_get_info"),
    ("metric plugin", "libampere_plugin.so", "SCOREP_MetricPlugin_ampere_plugin_get_info"),
];

pub fn check(program: &Path, installation: Option<&Installation>) -> Vec<Check> {
    let mut group = Group::new("Score-P");
    look_for_score_p(&mut group);
    for (name, file, function) in PLUGINS {
        let found = load(program, file, function);
        let ours = installation.map(|installation| installation.library_directory.join(file));
        let line = installation.map(|installation| export_line(&installation.library_directory));
        match found {
            Ok(path) if is_same(path.as_deref(), ours.as_deref()) => {
                if path.as_deref().is_some_and(is_found_by_others) {
                    group.ok(name, format!("the loader finds {file}"));
                } else {
                    let line = line.map(|line| format!("to use Score-P without `ampere run`: {line}"));
                    group.note(name, format!("the loader does not find {file} for other programs"), line);
                }
            }
            Ok(path) => {
                let where_ = path.map_or_else(|| "elsewhere".to_owned(), |path| path.display().to_string());
                group.note(
                    name,
                    format!("the loader finds {file} of another installation of ampere: {where_}"),
                    line,
                );
            }
            Err(why) => {
                let line = line.map(|line| format!("to use Score-P without `ampere run`: {line}"));
                group.note(name, format!("the loader does not find {file}: {why}"), line);
            }
        }
    }
    group.checks
}

fn look_for_score_p(group: &mut Group) {
    let programs = ["scorep-config", "scorep"];
    let Some(path) = programs.iter().find_map(|name| installation::program(OsStr::new(name)).ok()) else {
        group.note(
            "Score-P",
            "neither scorep-config nor scorep is in PATH: ampere run measures with its own host",
            Some("load Score-P's module to measure with it".to_owned()),
        );
        return;
    };
    let shown = path.display();
    match child::run_within(Command::new(&path).arg("--version"), ANSWER_TIME_MAX) {
        Ok(finished) if finished.succeeded() => {
            let version =
                version_in(finished.first_line()).unwrap_or_else(|| finished.first_line().to_owned());
            let tried = version == TRIED || version.starts_with(&format!("{TRIED}."));
            let other = if tried { String::new() } else { format!("; ampere was tried with {TRIED}") };
            group.ok("Score-P", format!("{version}, {shown}{other}"));
        }
        Ok(finished) => group.note(
            "Score-P",
            format!("{shown} does not print its version: {}", finished.first_line()),
            None,
        ),
        Err(error) => group.note("Score-P", format!("{shown} cannot be run: {error}"), None),
    }
}

/// Returns the file that the loader finds. Another process loads it, because it may be any library with this name.
pub fn load(program: &Path, file: &str, function: &str) -> anyhow::Result<Option<PathBuf>> {
    let mut command = Command::new(program);
    command.args(["probe", "library", file, function]);
    let finished = child::run_within(&mut command, ANSWER_TIME_MAX)?;
    match probe::messages(&finished.stdout).pop() {
        Some(Message::Loaded(path)) => Ok(path),
        // The loader's message starts with the file's name.
        Some(Message::Failed(why)) => {
            bail!("{}", why.strip_prefix(file).and_then(|rest| rest.strip_prefix(": ")).unwrap_or(&why))
        }
        _ => match finished.end {
            End::Signal(signal) => bail!("loading it crashed with {}", signal_name(signal)),
            End::TimedOut => bail!("loading it took more than {} s", ANSWER_TIME_MAX.as_secs()),
            End::Exit(code) => bail!("loading it ended the process with status {code}"),
        },
    }
}

/// Whether programs find this library without `ampere run`: through LD_LIBRARY_PATH or the loader's cache.
fn is_found_by_others(library: &Path) -> bool {
    let paths = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    // In an installation, `lib` contains a link to the plugin, so links are resolved before the paths are compared.
    let is_here = |directory: PathBuf| {
        library.file_name().is_some_and(|name| is_same(Some(&directory.join(name)), Some(library)))
    };
    std::env::split_paths(&paths).any(is_here) || is_in_cache(library)
}

/// Whether the library is in the loader's cache.
fn is_in_cache(library: &Path) -> bool {
    let known = ["ldconfig", "/sbin/ldconfig", "/usr/sbin/ldconfig"].iter().find_map(|program| {
        child::run_within(Command::new(program).arg("-p"), ANSWER_TIME_MAX)
            .ok()
            .filter(|finished| finished.succeeded())
    });
    let real = std::fs::canonicalize(library).ok();
    known.is_some_and(|finished| {
        finished
            .stdout
            .lines()
            .filter_map(|line| line.split_once("=> "))
            .any(|(_, path)| std::fs::canonicalize(path).ok() == real)
    })
}

/// Whether both paths lead to the same file. The metric plugin is a link to the other plugin.
fn is_same(found: Option<&Path>, ours: Option<&Path>) -> bool {
    let real = |path: Option<&Path>| path.and_then(|path| std::fs::canonicalize(path).ok());
    let found = real(found);
    found.is_some() && found == real(ours)
}

fn export_line(directory: &Path) -> String {
    format!("export LD_LIBRARY_PATH={}${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}", quoted(directory))
}

/// Quotes the path for a shell.
fn quoted(path: &Path) -> String {
    let text = path.to_string_lossy();
    let plain = text.chars().all(|c| c.is_ascii_alphanumeric() || "/._-+".contains(c));
    if plain { text.into_owned() } else { format!("'{}'", text.replace('\'', "'\\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_export_line_is_quoted_for_the_shell() {
        let line = |path: &str| export_line(Path::new(path));
        assert_eq!(
            line("/opt/a-1/lib"),
            "export LD_LIBRARY_PATH=/opt/a-1/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
        );
        assert!(line("/my dir").starts_with("export LD_LIBRARY_PATH='/my dir'$"));
    }
}
