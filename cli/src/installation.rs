//! Finds the other parts of ampere, next to this program (in a build) or in the `lib` of the same installation. Also finds
//! programs in PATH.

use anyhow::{Context, bail};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Paths of the files that a run needs.
pub struct Installation {
    pub collector: PathBuf,
    pub library_directory: PathBuf,
    pub plugin: PathBuf,
    pub host: PathBuf,
    /// The library that is preloaded into programs and loads the host. The loader replaces `$PLATFORM` in this path.
    pub preloaded: PathBuf,
}

/// Finds all files. If one is missing, the error names it.
pub fn find() -> anyhow::Result<Installation> {
    let program = std::env::current_exe()
        .and_then(std::fs::canonicalize)
        .context("cannot determine where ampere is installed")?;
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
    // In an installation, the plugin has a directory of its own, which is added to LD_LIBRARY_PATH. If `lib` were added
    // instead, the command might load other libraries from there in place of its own.
    let plugin = library("ampere-plugin/libscorep_substrate_ampere.so")
        .or_else(|_| library("libscorep_substrate_ampere.so"))?;
    let plugin = std::fs::canonicalize(&plugin).unwrap_or(plugin);
    let host = std::fs::canonicalize(library("libampere_host.so")?)?;
    let preloaded = host.with_file_name(ampere_preload::DIRECTORY);
    // On x86-64, the loader of a 32-bit program replaces $PLATFORM by a name such as i686, where there is an empty library.
    let narrow = cfg!(target_arch = "x86_64").then_some("i686");
    for platform in [ampere_preload::NATIVE].into_iter().chain(narrow) {
        let file = preloaded.join(platform).join(ampere_preload::FILE);
        if !file.is_file() {
            bail!("no {}: build or install all of ampere", file.display());
        }
    }
    Ok(Installation {
        collector,
        library_directory: plugin.parent().unwrap_or(Path::new("/")).to_owned(),
        plugin,
        preloaded: preloaded.join(platform()).join(ampere_preload::FILE),
        host,
    })
}

/// Returns the directory of the preloaded library: `$PLATFORM`, which the loader replaces, or this program's own platform if the
/// kernel names none, which can happen with gVisor. The loader could then not replace `$PLATFORM`, and would report that it
/// cannot open the library.
fn platform() -> &'static str {
    const AT_PLATFORM: [u8; 8] = 15u64.to_ne_bytes();
    let auxiliary = std::fs::read("/proc/self/auxv").unwrap_or_default();
    match auxiliary.chunks_exact(16).any(|entry| entry[..8] == AT_PLATFORM) {
        true => ampere_preload::PLATFORM,
        false => ampere_preload::NATIVE,
    }
}

/// A GPU runtime whose kernels ampere can record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runtime {
    Cuda,
    Hip,
    OpenCl,
}

impl Runtime {
    pub const ALL: [Runtime; 3] = [Runtime::Cuda, Runtime::Hip, Runtime::OpenCl];

    /// The name of the library that records the runtime's kernels.
    pub fn library(self) -> &'static str {
        match self {
            Runtime::Cuda => ampere_model::CUDA_LIBRARY,
            Runtime::Hip => ampere_model::HIP_LIBRARY,
            Runtime::OpenCl => ampere_model::OPENCL_LIBRARY,
        }
    }
}

impl Installation {
    /// The library that records a runtime's kernels; `None` if it is not installed. It must be next to the host: it opens the
    /// host in its own directory, and the preloaded library recognises the host by this path.
    pub fn gpu_library(&self, runtime: Runtime) -> Option<PathBuf> {
        Some(self.host.with_file_name(runtime.library())).filter(|path| path.is_file())
    }

    /// Whether libraries in this installation's directory can be preloaded. Blanks and colons would separate entries of
    /// `LD_PRELOAD`, and the loader expands `$`.
    pub fn is_preloadable(&self) -> bool {
        !self.host.as_os_str().as_bytes().iter().any(|byte| b" \t\n:$".contains(byte))
    }
}

/// Why a command cannot be run.
#[derive(Debug, thiserror::Error)]
#[error("cannot run {command}: {why}")]
pub struct CannotRun {
    command: String,
    why: String,
    /// The exit status, as in shells: 127 if there is no such command, and 126 otherwise.
    pub status: u8,
}

impl CannotRun {
    fn new(command: &OsStr, why: impl ToString, status: u8) -> CannotRun {
        CannotRun { command: command.to_string_lossy().into_owned(), why: why.to_string(), status }
    }

    /// Makes the error for a file that exists but that the kernel refuses to run.
    pub fn refused(command: &OsStr, why: &std::io::Error) -> CannotRun {
        CannotRun::new(command, why, 126)
    }
}

/// Returns the program that a command names, as the shell would find it.
pub fn program(command: &OsStr) -> Result<PathBuf, CannotRun> {
    let cannot = |why, status| Err(CannotRun::new(command, why, status));
    if command.as_bytes().contains(&b'/') {
        let path = PathBuf::from(command);
        return match path {
            path if !path.exists() => cannot("there is no such file", 127),
            path if path.is_dir() => cannot("it is a directory", 126),
            path if !is_executable(&path) => cannot("it is not executable (chmod +x)", 126),
            path => Ok(path),
        };
    }
    // Without the variable, execvp searches these directories.
    let directories = std::env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
    let files = std::env::split_paths(&directories).map(|directory| directory.join(command));
    let (programs, others): (Vec<_>, Vec<_>) =
        files.filter(|path| path.is_file()).partition(|path| is_executable(path));
    match (programs.into_iter().next(), others.first()) {
        (Some(program), _) => Ok(program),
        (None, Some(other)) => cannot(&format!("{} is not executable (chmod +x)", other.display()), 126),
        (None, None) => cannot("it is not in PATH", 127),
    }
}

fn is_executable(path: &Path) -> bool {
    rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok()
}
