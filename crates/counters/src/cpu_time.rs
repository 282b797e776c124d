//! The node's busy CPU time: user, nice, system, interrupt and soft interrupt, of all CPUs since boot.
//!
//! The time of guests is included, because the kernel counts it as user time. Waiting for IO is not, because the CPU is idle
//! then. Stolen time is not either, because the CPU worked for another virtual machine.
//!
//! Two files contain it, and the one with the finer resolution is used:
//! - `cpu.stat` of the root control group (version 2, even if it is mounted in addition to version 1): sums of the kernel's
//!   ticks, with steps of 1 to 4 ms for each CPU. A read takes 1 us (Linux 6.18, 2 CPUs).
//! - the first line of `/proc/stat`: the same sums rounded to 10 ms. A read takes 7 us there, and hundreds on a large node,
//!   because the kernel always writes the whole file with a line per CPU and a figure per interrupt. So it is read at most every
//!   [`PROC_STAT_INTERVAL_NS`], which is half of its step.
//!
//! Two others are not used. `/proc/schedstat`'s run time is in nanoseconds, but the kernel adds to it only when a task leaves its
//! CPU; for a rank that computes alone on its core that may be seconds late. It also needs CONFIG_SCHEDSTATS. `cpuacct.usage`
//! (control groups version 1) has the same steps as `cpu.stat` and leaves interrupts out.

use rustix::time::{ClockId, clock_gettime};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::ReadError;

const PROC_STAT_INTERVAL_NS: u64 = 5_000_000;

/// The number of bytes that are read. The needed lines of both files are at their start and shorter than this.
const READ_BYTES: usize = 512;

/// Returns the CPU time of the calling thread. It measures work that is limited to a share of the time, such as a hundredth:
/// time in which the thread was interrupted does not count as work.
pub fn thread_cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

pub(crate) struct CpuTime {
    file: File,
    format: Format,
    /// Time (monotonic) and value of the last read, in nanoseconds.
    last: Option<(u64, u64)>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Format {
    CgroupCpuStat,
    ProcStat { tick_ns: u64 },
}

/// An error: the node's CPU time cannot be read. Contains the last file that was tried, and its error.
#[derive(Debug, thiserror::Error)]
#[error("{}: {}", .0.display(), .1)]
pub(crate) struct NoCpuTime(PathBuf, ReadError);

impl CpuTime {
    /// Opens the first file that has the time, and returns its path as well.
    pub fn open(root: &Path) -> Result<(CpuTime, PathBuf), NoCpuTime> {
        let mut failed = NoCpuTime(root.to_owned(), ReadError::Malformed);
        for (relative, format) in formats() {
            let path = root.join(relative);
            // Only a group that is not the root has a type; a container's own group does not contain the node's time.
            if format == Format::CgroupCpuStat && path.with_file_name("cgroup.type").exists() {
                continue;
            }
            let opened = File::open(&path).map_err(ReadError::Io).and_then(|file| {
                let time = CpuTime { file, format, last: None };
                time.read_file().map(|_| time)
            });
            match opened {
                Ok(time) => return Ok((time, path)),
                Err(error) => failed = NoCpuTime(path, error),
            }
        }
        Err(failed)
    }

    /// Returns the busy nanoseconds of all CPUs; `now_ns` is CLOCK_MONOTONIC. Allocates nothing.
    pub fn busy_ns(&mut self, now_ns: u64) -> Result<u64, ReadError> {
        if let (Format::ProcStat { .. }, Some((when, value))) = (self.format, self.last)
            && now_ns.saturating_sub(when) < PROC_STAT_INTERVAL_NS
        {
            return Ok(value);
        }
        let value = self.read_file()?;
        self.last = Some((now_ns, value));
        Ok(value)
    }

    fn read_file(&self) -> Result<u64, ReadError> {
        let mut bytes = [0; READ_BYTES];
        // For a read at offset 0, the kernel generates the text of such a file again.
        let length = self.file.read_at(&mut bytes, 0).map_err(ReadError::Io)?;
        let text = &bytes[..length];
        match self.format {
            Format::CgroupCpuStat => parse_cpu_stat(text),
            Format::ProcStat { tick_ns } => {
                parse_proc_stat(text).and_then(|ticks| ticks.checked_mul(tick_ns))
            }
        }
        .ok_or(ReadError::Malformed)
    }
}

/// Returns the time of CLOCK_MONOTONIC in nanoseconds.
pub(crate) fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

fn formats() -> [(&'static str, Format); 3] {
    let tick_ns = 1_000_000_000 / rustix::param::clock_ticks_per_second().max(1);
    [
        ("sys/fs/cgroup/cpu.stat", Format::CgroupCpuStat),
        ("sys/fs/cgroup/unified/cpu.stat", Format::CgroupCpuStat),
        ("proc/stat", Format::ProcStat { tick_ns }),
    ]
}

/// Returns `user_usec` (which includes nice) plus `system_usec` (which includes interrupts), in nanoseconds. `usage_usec`
/// includes stolen time.
fn parse_cpu_stat(text: &[u8]) -> Option<u64> {
    let find = |key: &[u8]| {
        let mut lines = text.split_inclusive(|byte| *byte == b'\n');
        lines.find_map(|line| number(line.strip_suffix(b"\n")?.strip_prefix(key)?))
    };
    find(b"user_usec ")?.checked_add(find(b"system_usec ")?)?.checked_mul(1000)
}

/// Returns user + nice + system + irq + softirq of the line `cpu  user nice system idle iowait irq softirq ...`, in ticks.
fn parse_proc_stat(text: &[u8]) -> Option<u64> {
    let end = text.iter().position(|byte| *byte == b'\n')?;
    let rest = text[..end].strip_prefix(b"cpu ")?;
    let mut fields = rest.split(|byte| *byte == b' ').filter(|field| !field.is_empty());
    let mut sum: u64 = 0;
    for column in 0..7 {
        let value = number(fields.next()?)?;
        let idle_or_iowait = column == 3 || column == 4;
        if !idle_or_iowait {
            sum = sum.checked_add(value)?;
        }
    }
    Some(sum)
}

fn number(digits: &[u8]) -> Option<u64> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proc_stat_counts_what_ran() {
        let text = b"cpu  1 20 300 4000 50000 600000 7000000 80000000 900000000 0\ncpu0 1 1 1\n";
        assert_eq!(parse_proc_stat(text), Some(7_600_321));
        assert_eq!(parse_proc_stat(b"cpu  1 20 300 4000 50000 600000 7000000\n"), Some(7_600_321));
    }

    #[test]
    fn cpu_stat_leaves_stolen_time_out() {
        let text = b"usage_usec 999\nuser_usec 700\nsystem_usec 41\nnice_usec 3\nnr_periods 0\n";
        assert_eq!(parse_cpu_stat(text), Some(741_000));
    }

    #[test]
    fn incomplete_or_malformed_text_is_refused() {
        let texts: [&[u8]; 5] =
            [b"", b"cpu  1 2 3", b"cpu  1 2 3\n", b"cpu0 1 2 3 4 5 6 7\n", b"cpu  a 2 3 4 5 6 7\n"];
        for text in texts {
            assert_eq!(parse_proc_stat(text), None, "{text:?}");
        }
        let texts: [&[u8]; 4] = [
            b"",
            b"user_usec 1\n",
            b"user_usec 1\nsystem_usec 2",
            b"user_usec 1\nsystem_usec 99999999999999999999\n",
        ];
        for text in texts {
            assert_eq!(parse_cpu_stat(text), None, "{text:?}");
        }
    }
}
