//! Searches for vendors' libraries.

use std::ffi::OsStr;
use std::fmt;
use std::path::{Path, PathBuf};

use super::LoadError;

/// A library that is searched for, and the texts of its notes.
pub(crate) struct Wanted {
    pub source: &'static str,
    /// File names, the best first.
    pub names: &'static [&'static str],
    /// Advice to the user if there is none.
    pub advice: &'static str,
}

/// Returns the possible paths of the library, the best first. Paths in the ROCm that `ROCM_PATH` names come first. Then comes
/// the name alone, for which the loader searches LD_LIBRARY_PATH and the system. Paths in the usual place come last.
fn candidates(names: &[&str], rocm_path: Option<&OsStr>) -> Vec<PathBuf> {
    let within = |folder: PathBuf| {
        let files: Vec<PathBuf> = names.iter().map(|name| folder.join(name)).collect();
        files.into_iter().filter(|file| file.exists())
    };
    let mut all: Vec<PathBuf> = Vec::new();
    if let Some(path) = rocm_path.filter(|path| !path.is_empty()) {
        all.extend(within(Path::new(path).join("lib")));
    }
    all.extend(names.iter().map(PathBuf::from));
    all.extend(within(PathBuf::from("/opt/rocm/lib")));
    all
}

/// The reason why no library was loaded.
#[derive(Debug)]
pub(crate) enum NoLibrary {
    /// The library that the user has named cannot be used.
    Named { source: &'static str, path: PathBuf, error: LoadError },
    /// None of the usual libraries can be used. Contains the advice, and the libraries that were found but are not usable.
    Usual { source: &'static str, advice: &'static str, unusable: Vec<(PathBuf, LoadError)> },
}

impl fmt::Display for NoLibrary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoLibrary::Named { source, path, error } => {
                write!(f, "{source}: {} cannot be used: {error}", path.display())
            }
            NoLibrary::Usual { source, advice, unusable } => {
                write!(f, "{source}: {advice}")?;
                for (number, (path, error)) in unusable.iter().enumerate() {
                    write!(f, "{}{}: {error}", if number == 0 { " (" } else { "; " }, path.display())?;
                }
                f.write_str(if unusable.is_empty() { "" } else { ")" })
            }
        }
    }
}

/// Loads the library that the user has named, or the first of the usual ones that loads and has all required functions.
pub(crate) fn load<T>(
    named: Option<&Path>,
    wanted: &Wanted,
    open: impl Fn(&Path) -> Result<T, LoadError>,
) -> Result<(T, PathBuf), NoLibrary> {
    let source = wanted.source;
    if let Some(path) = named {
        let loaded = open(path).map(|loaded| (loaded, path.to_owned()));
        return loaded.map_err(|error| NoLibrary::Named { source, path: path.to_owned(), error });
    }
    let mut unusable = Vec::new();
    for path in candidates(wanted.names, std::env::var_os("ROCM_PATH").as_deref()) {
        match open(&path) {
            Ok(loaded) => return Ok((loaded, path)),
            // It is normal that the loader does not find one of the names.
            Err(LoadError::Open(text)) if path.is_relative() && text.contains("No such file") => {}
            Err(error) => unusable.push((path, error)),
        }
    }
    Err(NoLibrary::Usual { source, advice: wanted.advice, unusable })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn the_chosen_rocm_comes_before_the_system() {
        let names = ["librocm_smi64.so", "librocm_smi64.so.6"];
        let rocm = tempfile::tempdir().unwrap();
        let file = rocm.path().join("lib/librocm_smi64.so.6");
        fs::create_dir(rocm.path().join("lib")).unwrap();
        fs::write(&file, "").unwrap();
        let all = candidates(&names, Some(rocm.path().as_os_str()));
        assert_eq!(all[..2], [file, PathBuf::from("librocm_smi64.so")]);
        assert_eq!(candidates(&names, None)[0], PathBuf::from("librocm_smi64.so"));
    }
}
