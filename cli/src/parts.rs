//! Finds the other parts of ampere: beside this program (a build), or in the same installation's `lib`; and programs in PATH.

use anyhow::{Context, bail};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Paths of the parts that a run needs.
pub struct Parts {
    pub collector: PathBuf,
    /// Directory of the plugin.
    pub library_directory: PathBuf,
    pub plugin: PathBuf,
    pub host: PathBuf,
}

/// All parts, or which one is missing.
pub fn find() -> anyhow::Result<Parts> {
    let program = std::env::current_exe()
        .and_then(std::fs::canonicalize)
        .context("cannot find out where ampere lies")?;
    let here = program.parent().unwrap_or(Path::new("/"));
    let directories = [here.to_owned(), here.join("../lib"), here.join("../lib64")];
    let library = |name: &str| {
        let found = directories.iter().map(|directory| directory.join(name)).find(|path| path.is_file());
        found.with_context(|| {
            format!("{name} is neither in {} nor in ../lib: build or install all of ampere", here.display())
        })
    };
    let collector = here.join("ampere-collector");
    if !collector.is_file() {
        bail!("no ampere-collector in {}: build or install all of ampere", here.display());
    }
    let plugin = library("libscorep_substrate_ampere.so")?;
    let plugin = std::fs::canonicalize(&plugin).unwrap_or(plugin);
    Ok(Parts {
        collector,
        library_directory: plugin.parent().unwrap_or(Path::new("/")).to_owned(),
        plugin,
        host: std::fs::canonicalize(library("libampere_host.so")?)?,
    })
}

impl Parts {
    /// `LD_PRELOAD` is a list that both blanks and colons separate.
    pub fn is_preloadable(&self) -> bool {
        !self.host.as_os_str().as_bytes().iter().any(|byte| b" \t\n:".contains(byte))
    }
}

/// The program that a command names, as the shell would find it.
pub fn program(command: &OsStr) -> anyhow::Result<PathBuf> {
    let shown = command.to_string_lossy();
    if command.as_bytes().contains(&b'/') {
        let path = PathBuf::from(command);
        if !path.exists() {
            bail!("cannot run {shown}: there is no such file");
        }
        if path.is_dir() {
            bail!("cannot run {shown}: it is a directory");
        }
        if !is_executable(&path) {
            bail!("cannot run {shown}: it is not executable (chmod +x)");
        }
        return Ok(path);
    }
    let directories = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&directories)
        .map(|directory| directory.join(command))
        .find(|path| path.is_file() && is_executable(path));
    found.with_context(|| format!("cannot run {shown}: it is not in PATH"))
}

fn is_executable(path: &Path) -> bool {
    rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok()
}
