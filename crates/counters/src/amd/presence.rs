//! Finds out from the kernel's files whether the node has an AMD GPU.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

/// Returns the reason if the libraries' init would fail, or find nothing, because the kernel shows no AMD GPU. The libraries
/// need both a GPU in the KFD topology and a card in `class/drm`. librocm_smi64 5.2.3 was tried on made-up trees. Without the
/// former it prints to standard error and fails, without the latter it reports 0 devices.
pub(crate) fn no_gpu(root: &Path) -> Option<String> {
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

/// Whether a KFD node is a GPU: only GPUs have an ID other than 0. A node that may not be read counts as a GPU: it
/// belongs to another job, and the library decides.
fn is_gpu(node: &Path) -> bool {
    fs::read_to_string(node.join("gpu_id")).map_or(true, |id| id.trim() != "0")
}

/// Whether an entry is named `card0`, not `card0-DP-1` or `renderD128`.
fn is_card(entry: &Path) -> bool {
    let number = entry.file_name().and_then(OsStr::to_str).and_then(|name| name.strip_prefix("card"));
    number.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let Ok(listing) = fs::read_dir(folder) else { return Vec::new() };
    listing.flatten().map(|entry| entry.path()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

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
