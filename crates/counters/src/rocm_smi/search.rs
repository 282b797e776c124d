//! Whether to load librocm_smi64 at all, and from where.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use super::library::{LoadError, Loaded};

const NAMES: [&str; 5] = [
    "librocm_smi64.so",
    "librocm_smi64.so.7",
    "librocm_smi64.so.6",
    "librocm_smi64.so.5",
    "librocm_smi64.so.1",
];

/// Why `rsmi_init` would fail, or find nothing: the kernel shows no AMD GPU. The library needs both places (5.2.3 on
/// made-up trees: without the first it prints to standard error and fails, without the second it has 0 devices).
pub(super) fn no_gpu(root: &Path) -> Option<String> {
    let nodes = root.join("sys/class/kfd/kfd/topology/nodes");
    if !entries(&nodes).iter().any(|node| is_gpu(node)) {
        return Some(format!("no AMD GPU in {}", nodes.display()));
    }
    let cards = root.join("sys/class/drm");
    if !entries(&cards).iter().any(|card| is_card(card)) {
        return Some(format!("an AMD GPU without a card in {}", cards.display()));
    }
    None
}

/// A KFD node is a GPU if its id is not 0. One that may not be read is a GPU of another job: the library decides.
fn is_gpu(node: &Path) -> bool {
    fs::read_to_string(node.join("gpu_id")).map_or(true, |id| id.trim() != "0")
}

/// `card0`, not `card0-DP-1` or `renderD128`.
fn is_card(entry: &Path) -> bool {
    let number = entry.file_name().and_then(OsStr::to_str).and_then(|name| name.strip_prefix("card"));
    number.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let Ok(listing) = fs::read_dir(folder) else { return Vec::new() };
    listing.flatten().map(|entry| entry.path()).collect()
}

/// Where the library may be, best first: the ROCm that the user chose, what the loader finds (LD_LIBRARY_PATH, the
/// system), the usual place. Versions newest first, as an old library does not know a new GPU.
fn candidates(rocm_path: Option<&OsStr>) -> Vec<PathBuf> {
    let within =
        |folder: PathBuf| NAMES.map(|name| folder.join(name)).into_iter().filter(|file| file.exists());
    let mut all: Vec<PathBuf> = Vec::new();
    if let Some(path) = rocm_path.filter(|path| !path.is_empty()) {
        all.extend(within(Path::new(path).join("lib")));
    }
    all.extend(NAMES.map(PathBuf::from));
    all.extend(within(PathBuf::from("/opt/rocm/lib")));
    all
}

/// Loads the named library, or the first of the usual ones that loads and has what is needed. The error is a note.
pub(super) fn load(named: Option<&Path>) -> Result<(Loaded, PathBuf), String> {
    if let Some(path) = named {
        return match Loaded::open(path) {
            Ok(loaded) => Ok((loaded, path.to_owned())),
            Err(error) => Err(format!("rocm_smi: {} cannot be used: {error}", path.display())),
        };
    }
    let mut trouble = Vec::new();
    for path in candidates(std::env::var_os("ROCM_PATH").as_deref()) {
        match Loaded::open(&path) {
            Ok(loaded) => return Ok((loaded, path)),
            // That one of the names does not exist is no news.
            Err(LoadError::Open(text)) if path.is_relative() && text.contains("No such file") => {}
            Err(error) => trouble.push(format!("{}: {error}", path.display())),
        }
    }
    let mut note =
        "rocm_smi: there is an AMD GPU but no usable librocm_smi64.so; load a ROCm module, install \
                    rocm-smi-lib, or name the file with AMPERE_ROCM_SMI_LIBRARY"
            .to_owned();
    if !trouble.is_empty() {
        note.push_str(&format!(" ({})", trouble.join("; ")));
    }
    Err(note)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chosen_rocm_comes_before_the_system() {
        let rocm = tempfile::tempdir().unwrap();
        let file = rocm.path().join("lib/librocm_smi64.so.6");
        fs::create_dir(rocm.path().join("lib")).unwrap();
        fs::write(&file, "").unwrap();
        let all = candidates(Some(rocm.path().as_os_str()));
        assert_eq!(all[..2], [file, PathBuf::from("librocm_smi64.so")]);
        assert_eq!(candidates(None)[0], PathBuf::from("librocm_smi64.so"));
    }

    #[test]
    fn a_gpu_needs_a_kfd_node_and_a_card() {
        let root = tempfile::tempdir().unwrap();
        let node = |n: u32, id: &str| {
            let folder = root.path().join(format!("sys/class/kfd/kfd/topology/nodes/{n}"));
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("gpu_id"), id).unwrap();
        };
        assert!(no_gpu(root.path()).unwrap().contains("kfd"));
        node(0, "0\n");
        assert!(no_gpu(root.path()).unwrap().contains("kfd"));
        node(1, "4660\n");
        assert!(no_gpu(root.path()).unwrap().contains("drm"));
        fs::create_dir_all(root.path().join("sys/class/drm/card0-DP-1")).unwrap();
        assert!(no_gpu(root.path()).unwrap().contains("drm"));
        fs::create_dir_all(root.path().join("sys/class/drm/card0")).unwrap();
        assert_eq!(no_gpu(root.path()), None);
    }
}
