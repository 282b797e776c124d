//! Where a vendor's library is looked for.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use super::LoadError;

/// What is looked for, and how the notes speak of it.
pub(crate) struct Wanted {
    pub source: &'static str,
    /// File names, best first.
    pub names: &'static [&'static str],
    /// What to do if there is none.
    pub advice: &'static str,
}

/// Where the library may be, best first: the ROCm that the user chose, what the loader finds (LD_LIBRARY_PATH, the
/// system), the usual place.
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

/// Loads the named library, or the first of the usual ones that loads and has what is needed. The error is a note.
pub(crate) fn load<T>(
    named: Option<&Path>,
    wanted: &Wanted,
    open: impl Fn(&Path) -> Result<T, LoadError>,
) -> Result<(T, PathBuf), String> {
    if let Some(path) = named {
        return match open(path) {
            Ok(loaded) => Ok((loaded, path.to_owned())),
            Err(error) => Err(format!("{}: {} cannot be used: {error}", wanted.source, path.display())),
        };
    }
    let mut trouble = Vec::new();
    for path in candidates(wanted.names, std::env::var_os("ROCM_PATH").as_deref()) {
        match open(&path) {
            Ok(loaded) => return Ok((loaded, path)),
            // That one of the names does not exist is no news.
            Err(LoadError::Open(text)) if path.is_relative() && text.contains("No such file") => {}
            Err(error) => trouble.push(format!("{}: {error}", path.display())),
        }
    }
    let mut note = format!("{}: {}", wanted.source, wanted.advice);
    if !trouble.is_empty() {
        note.push_str(&format!(" ({})", trouble.join("; ")));
    }
    Err(note)
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
