//! The settings with which a command is sampled, and the errors.

use std::io;
use std::time::Duration;

use ampere_model::CountedEvent;

/// The settings with which a command is sampled.
#[derive(Debug, Clone)]
pub struct Options {
    /// The CPU time of a thread between two of its samples.
    pub period: Duration,
    /// The number of bytes of a stack that are copied, a multiple of 8, less than 64 kB. Deeper frames are cut off.
    pub stack_bytes: u32,
    /// The clock of all times: CLOCK_MONOTONIC, or another one that `perf_event_open` accepts.
    pub clock: libc::clockid_t,
    /// Whether threads are sampled in the kernel, too, if the machine allows it (for users, perf_event_paranoid must be at most
    /// 1). Such samples are attributed to the function that called the kernel.
    pub kernel: bool,
    /// Whether stacks are sampled.
    pub samples: bool,
    /// Whether the times at which threads are on a CPU are passed on ([`Sink::on_cpu`](crate::Sink::on_cpu)), even for processes
    /// whose stacks are not sampled.
    pub cpu_times: bool,
    /// The events that are counted in each sampled thread: those that [`countable`](crate::countable) returns.
    pub events: Vec<CountedEvent>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            period: Duration::from_millis(1),
            stack_bytes: 24 << 10,
            clock: libc::CLOCK_MONOTONIC,
            kernel: false,
            samples: true,
            cpu_times: true,
            events: Vec::new(),
        }
    }
}

/// Makes sure that the kernel accepts the settings.
pub(crate) fn check(options: &Options) -> Result<(), StacksError> {
    let error = |what: String, advice| Err(StacksError::Option { what, advice });
    // A record of the kernel has at most 64 kB.
    if !options.stack_bytes.is_multiple_of(8) || options.stack_bytes > 64000 {
        return error(format!("{} bytes of a stack", options.stack_bytes), "a multiple of 8, at most 64000");
    }
    if options.period < Duration::from_micros(10) || options.period > Duration::from_secs(3600) {
        return error(format!("a period of {:?}", options.period), "10 us to an hour");
    }
    match options.clock {
        libc::CLOCK_MONOTONIC | libc::CLOCK_MONOTONIC_RAW | libc::CLOCK_REALTIME | libc::CLOCK_BOOTTIME => {
            Ok(())
        }
        clock => error(format!("clock {clock}"), "CLOCK_MONOTONIC, _RAW, CLOCK_REALTIME or CLOCK_BOOTTIME"),
    }
}

/// The reason why a command cannot be sampled, with advice.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StacksError {
    /// A setting of the machine forbids it.
    #[error(
        "the kernel lets no user sample processes (/proc/sys/kernel/perf_event_paranoid is {level}): ask the administrator to set it to 2"
    )]
    #[allow(missing_docs)]
    Paranoid { level: i32 },
    /// A container or a security module forbids it.
    #[error("perf_event_open is denied, as usual in containers (seccomp): allow perf_event_open there")]
    Denied,
    /// The process belongs to another user, or is not dumpable.
    #[error(
        "process {process} must not be sampled: it belongs to another user, or has cleared PR_SET_DUMPABLE"
    )]
    #[allow(missing_docs)]
    OffLimits { process: u32 },
    /// The kernel does not have perf_event_open.
    #[error("this kernel has no perf_event_open: use one that was built with CONFIG_PERF_EVENTS")]
    Absent,
    #[error("process {process} does not exist: start sampling before it ends")]
    #[allow(missing_docs)]
    NoProcess { process: u32 },
    /// The process may not open this many further files: one for each CPU and thread.
    #[error(
        "{needed} more open files are needed for process {process}, one for each CPU and thread: raise the limit (ulimit -n)"
    )]
    #[allow(missing_docs)]
    Files { process: u32, needed: usize },
    /// The limit on open files leaves too few for a ring on each CPU.
    #[error("sampling needs {needed} more open files, one for each CPU: raise the limit (ulimit -n)")]
    #[allow(missing_docs)]
    CpuFiles { needed: usize },
    /// Even the smallest rings are too large.
    #[error(
        "no memory for the kernel's rings: raise the limit of locked memory (ulimit -l) or /proc/sys/kernel/perf_event_mlock_kb"
    )]
    LockedMemory,
    /// The kernel does not accept a setting; `advice` is the range of valid values.
    #[error("samples cannot be taken with {what}: use {advice}")]
    #[allow(missing_docs)]
    Option { what: String, advice: &'static str },
    /// Another failure of a system call.
    #[error("{call} failed: {source}")]
    #[allow(missing_docs)]
    System { call: &'static str, source: io::Error },
}
