//! The memory that the job may still use. Batch systems limit it with control groups (Slurm's `--mem`). Shared memory counts
//! towards the limit of the job that made it, and a job that exceeds its limit is killed.

use std::path::Path;

/// Returns the smallest number of bytes left in any control group of this process; `u64::MAX` if none has a limit.
pub(crate) fn bytes_left() -> u64 {
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    left_in(Path::new("/sys/fs/cgroup"), &groups)
}

fn left_in(root: &Path, groups: &str) -> u64 {
    let mut least = u64::MAX;
    for line in groups.lines() {
        // "number:controllers:path"; the second version has number 0 and no controllers.
        let mut words = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (words.next(), words.next()) else { continue };
        let (root, files) = match controllers {
            "" => (root.to_owned(), &VERSION_2),
            _ if controllers.split(',').any(|name| name == "memory") => (root.join("memory"), &VERSION_1),
            _ => continue,
        };
        let group = root.join(path.trim_start_matches('/'));
        // The limit of a group also holds for the groups below it.
        for group in group.ancestors().take_while(|group| group.starts_with(&root)) {
            least = least.min(left_of(group, files).unwrap_or(u64::MAX));
        }
    }
    least
}

struct Files {
    limit: &'static str,
    used: &'static str,
    /// Lines of `memory.stat`: pages of files on disk, which the kernel reclaims when memory is needed.
    reclaimable: [&'static str; 2],
}

const VERSION_2: Files =
    Files { limit: "memory.max", used: "memory.current", reclaimable: ["inactive_file", "active_file"] };
const VERSION_1: Files = Files {
    limit: "memory.limit_in_bytes",
    used: "memory.usage_in_bytes",
    reclaimable: ["total_inactive_file", "total_active_file"],
};

/// Returns the bytes left in one group; `None` if it has no limit.
fn left_of(group: &Path, files: &Files) -> Option<u64> {
    let number = |name: &str| std::fs::read_to_string(group.join(name)).ok()?.trim().parse::<u64>().ok();
    let (limit, used) = (number(files.limit)?, number(files.used)?);
    let statistics = std::fs::read_to_string(group.join("memory.stat")).unwrap_or_default();
    let reclaimable: u64 = statistics
        .lines()
        .filter_map(|line| line.split_once(' '))
        .filter(|(name, _)| files.reclaimable.contains(name))
        .filter_map(|(_, bytes)| bytes.trim().parse::<u64>().ok())
        .sum();
    Some(limit.saturating_sub(used.saturating_sub(reclaimable)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(group: &Path, files: &[(&str, &str)]) {
        std::fs::create_dir_all(group).unwrap();
        for (name, text) in files {
            std::fs::write(group.join(name), text).unwrap();
        }
    }

    #[test]
    fn the_smallest_limit_of_a_group_and_its_ancestors_counts() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        write(&root.join("job/step"), &[("memory.max", "max\n"), ("memory.current", "70\n")]);
        let statistics = "anon 500\ninactive_file 30\nactive_file 20\nshmem 400\n";
        write(
            &root.join("job"),
            &[("memory.max", "1000\n"), ("memory.current", "900\n"), ("memory.stat", statistics)],
        );
        assert_eq!(left_in(root, "0::/job/step\n"), 150);
        assert_eq!(left_in(root, "0::/elsewhere\n"), u64::MAX);
        write(&root.join("job/step"), &[("memory.max", "80\n")]);
        assert_eq!(left_in(root, "0::/job/step\n"), 10);
        write(&root.join("job/step"), &[("memory.max", "60\n")]);
        assert_eq!(left_in(root, "0::/job/step\n"), 0, "beyond the limit");
    }

    #[test]
    fn version_1_is_read_as_well() {
        let root = tempfile::tempdir().unwrap();
        let group = root.path().join("memory/slurm/uid_0");
        let statistics = "inactive_file 1\ntotal_inactive_file 10\ntotal_active_file 10\n";
        let files =
            [("memory.limit_in_bytes", "100"), ("memory.usage_in_bytes", "90"), ("memory.stat", statistics)];
        write(&group, &files);
        assert_eq!(left_in(root.path(), "5:cpu,cpuacct:/x\n3:memory:/slurm/uid_0\n"), 30);
        assert_eq!(left_in(root.path(), ""), u64::MAX);
    }
}
