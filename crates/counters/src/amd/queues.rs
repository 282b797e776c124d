//! Finds the processes that have opened the amdgpu driver for computing (KFD), and the GPUs on which they have queues. Everything
//! that HIP, OpenCL or ROCr runs on a GPU uses a queue.

use super::pci_address;
use crate::UsedGpus;
use crate::file::{ValueFile, entries, text_of};
use crate::processes::pids_are_the_kernels;
use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// The maximum number of queues that the driver allows a process.
const QUEUES_MAX: usize = 1024;

/// The driver's lists of processes and their queues.
pub struct Queues {
    processes: PathBuf,
    /// The PCI addresses of the GPUs, by the driver's IDs.
    addresses: HashMap<u64, String>,
}

impl Queues {
    /// Opens the lists. Returns `None` if there are none, or if this process is not in the PID namespace whose pids the driver
    /// uses. `root` is the directory of `proc` and `sys`.
    pub fn open(root: &Path) -> Option<Queues> {
        let driver = root.join("sys/class/kfd/kfd");
        let nodes = entries(&driver.join("topology/nodes"));
        let addresses: HashMap<u64, String> = nodes.iter().filter_map(|(_, node)| gpu(node)).collect();
        let processes = driver.join("proc");
        let is_usable = pids_are_the_kernels(root) && !addresses.is_empty() && processes.is_dir();
        is_usable.then_some(Queues { processes, addresses })
    }

    /// Returns the GPUs that a process uses now. The driver lists a process from the moment when it opens the driver until it
    /// ends or executes another program.
    pub fn of(&self, pid: u32) -> UsedGpus {
        let process = self.processes.join(pid.to_string());
        if matches!(fs::metadata(&process), Err(error) if error.kind() == ErrorKind::NotFound) {
            return UsedGpus::None;
        }
        let queues = fs::read_dir(process.join("queues")).into_iter().flatten();
        let numbers = queues.take(QUEUES_MAX).filter_map(|queue| number(queue.ok()?.path().join("gpuid")));
        let gpus: BTreeSet<String> =
            numbers.filter_map(|number| self.addresses.get(&number)).cloned().collect();
        if gpus.is_empty() { UsedGpus::Unknown } else { UsedGpus::At(gpus) }
    }
}

/// Returns a GPU's number and its PCI address; `None` for a CPU, and for a GPU that this process may not use.
fn gpu(node: &Path) -> Option<(u64, String)> {
    let number = number(node.join("gpu_id")).filter(|number| *number != 0)?;
    let properties = text_of(&node.join("properties"))?;
    let property = |name: &str| {
        let mut values = properties.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        values.next()?.trim().parse::<u32>().ok()
    };
    let domain = property("domain").unwrap_or(0);
    Some((number, pci_address(u64::from(domain) << 32 | u64::from(property("location_id")?))))
}

fn number(file: PathBuf) -> Option<u64> {
    ValueFile::open(file).ok()?.number().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    struct Made(tempfile::TempDir);

    impl Made {
        /// Makes two GPUs and a CPU.
        fn new(namespace: &str) -> Made {
            let made = Made(tempfile::tempdir().unwrap());
            made.put("proc/self/ns/x", "");
            fs::create_dir_all(made.0.path().join("sys/class/kfd/kfd/proc")).unwrap();
            symlink(namespace, made.0.path().join("proc/self/ns/pid")).unwrap();
            made.node(0, "0\n", "cpu_cores_count 64\nlocation_id 0\n");
            made.node(1, "51974\n", "simd_count 440\nlocation_id 49408\ndomain 0\n");
            // This is a partition of a GPU, whose number is in the upper bits.
            made.node(2, "1234\n", "location_id 268493056\ndomain 2\n");
            made
        }

        fn put(&self, file: &str, text: &str) {
            let path = self.0.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }

        fn node(&self, number: u32, id: &str, properties: &str) {
            let node = format!("sys/class/kfd/kfd/topology/nodes/{number}");
            self.put(&format!("{node}/gpu_id"), id);
            self.put(&format!("{node}/properties"), properties);
        }

        fn queue(&self, pid: u32, queue: &str, gpu: &str) {
            self.put(&format!("sys/class/kfd/kfd/proc/{pid}/queues/{queue}/gpuid"), gpu);
        }

        fn queues(&self) -> Option<Queues> {
            Queues::open(self.0.path())
        }
    }

    const FIRST_NAMESPACE: &str = "pid:[4026531836]";

    fn at<'a>(gpus: impl IntoIterator<Item = &'a str>) -> UsedGpus {
        UsedGpus::At(gpus.into_iter().map(str::to_owned).collect())
    }

    #[test]
    fn the_gpus_of_a_process_are_those_of_its_queues() {
        let made = Made::new(FIRST_NAMESPACE);
        made.queue(17, "0", "51974");
        made.queue(17, "3", "51974\n");
        made.queue(18, "0", "51974\n");
        made.queue(18, "1", "1234\n");
        let queues = made.queues().unwrap();
        assert_eq!(queues.of(17), at(["0000:c1:00.0"]));
        assert_eq!(queues.of(18), at(["0000:c1:00.0", "0002:e1:00.0"]));
        assert_eq!(queues.of(1), UsedGpus::None);
        fs::create_dir_all(made.0.path().join("sys/class/kfd/kfd/proc/1/queues")).unwrap();
        assert_eq!(queues.of(1), UsedGpus::Unknown);
    }

    #[test]
    fn pids_of_another_namespace_are_not_used() {
        assert!(Made::new("pid:[4026532871]").queues().is_none());
        let made = Made::new(FIRST_NAMESPACE);
        fs::remove_file(made.0.path().join("proc/self/ns/pid")).unwrap();
        assert!(made.queues().is_none());
        let made = Made::new(FIRST_NAMESPACE);
        fs::remove_dir(made.0.path().join("sys/class/kfd/kfd/proc")).unwrap();
        assert!(made.queues().is_none());
    }

    #[test]
    fn other_entries_than_queues_of_known_gpus_are_ignored() {
        let made = Made::new(FIRST_NAMESPACE);
        for (queue, gpu) in [
            ("0", ""),
            ("1", "-51974\n"),
            ("2", "99999999999999999999999999\n"),
            ("3", "0\n"),
            ("4", "77\n"),
            ("5", "0xcb06\n"),
            ("6", "5197\u{0}4\n"),
            ("7", &"5".repeat(1 << 20)),
            ("a queue", "1234\n"),
        ] {
            made.queue(17, queue, gpu);
        }
        let folder = made.0.path().join("sys/class/kfd/kfd/proc/17/queues");
        symlink("8", folder.join("8")).unwrap();
        symlink("/dev", folder.join("9")).unwrap();
        fs::create_dir_all(folder.join("10/gpuid")).unwrap();
        fs::write(folder.join("11"), "51974\n").unwrap();
        made.put("sys/class/kfd/kfd/proc/18/queues", "51974\n");
        let queues = made.queues().unwrap();
        assert_eq!(queues.of(17), at(["0002:e1:00.0"]));
        assert_eq!(queues.of(18), UsedGpus::Unknown);
        // No more queues are read than the driver allows.
        (0..2 * QUEUES_MAX).for_each(|queue| made.queue(19, &queue.to_string(), "77\n"));
        assert_eq!(queues.of(19), UsedGpus::Unknown);
    }

    #[test]
    fn gpus_that_cannot_be_read_are_not_known() {
        let made = Made::new(FIRST_NAMESPACE);
        made.node(3, "5\n", "domain 0\nlocation_id 99999999999\n");
        made.node(4, "6\n", "domain 0\n");
        made.put("sys/class/kfd/kfd/topology/nodes/5/gpu_id", "7\n");
        ["5", "6", "7", "1234"].iter().for_each(|gpu| made.queue(17, gpu, gpu));
        assert_eq!(made.queues().unwrap().of(17), at(["0002:e1:00.0"]));
        fs::remove_dir_all(made.0.path().join("sys/class/kfd/kfd/topology")).unwrap();
        assert!(made.queues().is_none());
    }
}
