//! The definitions that a process writes before its events refer to them.

use crate::{LocalLocation, RegionHandle};
use std::fmt;

/// One entry of a process' definitions log.
#[derive(Clone, Debug, PartialEq)]
pub enum Definition {
    /// The first entry of a log.
    Process(Process),
    /// MPI rank and size, known once MPI is initialised. A program without MPI is rank 0 of 1.
    Rank {
        /// The process' rank in MPI_COMM_WORLD.
        rank: u32,
        /// The number of ranks in MPI_COMM_WORLD.
        size: u32,
    },
    /// A region, before an event refers to it.
    Region(Region),
    /// A location, before its ring is read.
    Location(Location),
    /// An energy counter, or another series (sampler's log only).
    Device(Device),
    /// The numbers of locations that got no ring, and of calls that are in no ring, so far.
    Unrecorded {
        /// The number of locations without a ring.
        locations: u64,
        /// The number of calls in no ring.
        calls: u64,
    },
    /// The device of a GPU stream, before the stream's location.
    StreamDevice(StreamDevice),
    /// Another thread uses a location from now on.
    Thread {
        /// The location, whose thread has ended.
        location: LocalLocation,
        /// The kernel's ID of the new thread.
        thread: u32,
    },
    /// The process' losses and clock errors in GPU records so far.
    GpuRecords(GpuRecords),
    /// A communicator, at any time before the process ends, because only the trace uses it.
    Communicator(Communicator),
    /// The program that is measured.
    Program(Program),
    /// The process has ended its measurement properly.
    Finished {
        /// The number of definitions for which the log had no space.
        left_out: u64,
    },
}

/// The device of a GPU stream, as its runtime names it. Texts are empty if they are not known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamDevice {
    /// The stream's location in its own process.
    pub location: LocalLocation,
    /// The PCI address, such as `0000:c1:00.0`.
    pub pci: String,
    /// The UUID, such as `GPU-a70564cccd47836c`.
    pub uuid: String,
    /// Text that contains the model's name.
    pub model: String,
}

/// The losses and clock errors in a process' GPU records, which the embedded host reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GpuRecords {
    /// The number of kernels, copies and other commands that are not recorded.
    pub not_recorded: u64,
    /// The largest error of a device's clock against the run's, in nanoseconds; 0 if no times were converted.
    pub clock_error: u64,
    /// The largest drift of a device's clock against the run's, in parts of 10^9; 0 if it is not known.
    pub clock_drift: u64,
}

/// A program, as its host names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// The name of the program's file.
    pub name: String,
    /// The arguments with which it was started.
    pub arguments: Vec<String>,
}

/// A communicator, as one of its processes knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Communicator {
    /// The handle in this process.
    pub handle: u32,
    /// The processes of the communicator.
    pub members: Members,
}

/// The processes of a communicator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Members {
    /// All ranks, as in MPI_COMM_WORLD.
    World,
    /// These ranks of MPI_COMM_WORLD, in the order of their ranks in the communicator.
    Ranks(Vec<u32>),
    /// This process, and others with the same `root` and `id`.
    Shared {
        /// The rank in MPI_COMM_WORLD of the communicator's rank 0.
        root: u32,
        /// Together with `root`, this number is the same in all of its processes, and in no other communicator.
        id: u32,
        /// The number of its processes.
        size: u32,
        /// The rank of this process in the communicator.
        rank: u32,
    },
}

/// The process that writes a log, and the readings of its clocks at the start of the log.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Process {
    /// The process' number in its own pid namespace.
    pub pid: u32,
    /// The start time of the process in clock ticks since boot (`/proc/<pid>/stat`, field 22), which together with `pid`
    /// identifies it.
    pub start_time: u64,
    /// The name of the process' node.
    pub hostname: String,
    /// The path of the program.
    pub executable: String,
    /// "score-p", "embedded", "sampler", [`REPLAYED_HOST`] or [`SAMPLED_HOST`].
    pub host: String,
    /// All clocks that a measurement system may use, read one after the other at the start of the log.
    pub clocks: Clocks,
    /// Environment variables that show which devices the process may use, and how it was launched, in the form `NAME=value`.
    pub environment: Vec<String>,
    /// A number for the namespace of `pid`; 0 if it is not known.
    pub pid_namespace: u64,
}

/// One reading of every clock that event timestamps may come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Clocks {
    /// The time stamp counter (x86-64) or virtual counter (AArch64); 0 if there is none.
    pub tsc: u64,
    /// The time of CLOCK_MONOTONIC, in nanoseconds.
    pub monotonic_ns: u64,
    /// The time of CLOCK_MONOTONIC_RAW, in nanoseconds.
    pub monotonic_raw_ns: u64,
    /// The time of CLOCK_REALTIME, in nanoseconds.
    pub realtime_ns: u64,
}

/// A region of the program. Its texts are owned when read, and borrowed when written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region<Text = String> {
    /// The region's number in its own process.
    pub handle: RegionHandle,
    /// The demangled name.
    pub name: Text,
    /// The mangled or otherwise original name, if it differs.
    pub canonical_name: Text,
    /// The source file; empty if it is not known.
    pub source_file: Text,
    /// The first line; 0 if it is not known.
    pub begin_line: u32,
    /// The last line; 0 if it is not known.
    pub end_line: u32,
    /// A value of Score-P's `SCOREP_RegionType`.
    pub region_type: u8,
    /// A value of Score-P's `SCOREP_ParadigmType`.
    pub paradigm: u8,
}

/// [`Process::host`] of a process whose stacks are sampled from outside.
pub const SAMPLED_HOST: &str = "sampled";

/// [`Process::host`] of a process of a trace that is replayed. Its pid is a number that identifies it in the replay.
pub const REPLAYED_HOST: &str = "trace";

/// A thread, a GPU stream, or a recorder of metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// The location's number in its own process.
    pub id: LocalLocation,
    /// Whether the location is a thread, a GPU stream or a recorder, or contains the CPU time of another location.
    pub kind: LocationKind,
    /// The name that the measurement system gives it.
    pub name: String,
    /// The file name of the location's ring, in the log's directory.
    pub ring: String,
    /// The kernel's ID of the thread that made it; 0 if it is not known.
    pub thread: u32,
}

/// The type of a location.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LocationKind {
    /// A thread of the process.
    CpuThread,
    /// A stream of an accelerator.
    Gpu,
    /// A recorder of metrics.
    Metric,
    /// The CPU time of the location with the same `thread`. If `thread` is 0: the CPU time of all threads of the process that
    /// have no location. In a trace this is not a separate location.
    CpuTime,
}

/// The origin of a device's joules, which shows how far they can be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Quality {
    /// The joules come from a hardware counter.
    Measured,
    /// The joules are integrated from a power that was measured at intervals.
    Integrated,
    /// The joules come from a model.
    Estimated,
    /// The joules come from a stand-in library, in tests.
    Simulated,
}

impl Quality {
    /// Returns the name that users see: `measured`, `integrated`, `estimated` or `simulated`.
    pub fn as_str(self) -> &'static str {
        match self {
            Quality::Measured => "measured",
            Quality::Integrated => "integrated",
            Quality::Estimated => "estimated",
            Quality::Simulated => "simulated",
        }
    }
}

impl fmt::Display for Quality {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// An energy counter, or another series in the sampler's log: counted work, ranges or events, or other jobs' CPU time.
#[derive(Clone, Debug, PartialEq)]
pub struct Device {
    /// The device's number in the sampler's records.
    pub index: u32,
    /// The name, such as `GPU-0` or `package-0`, which is unique on the node.
    pub name: String,
    /// The counter's name, as in traces.
    pub metric: String,
    /// The counter source that reads it.
    pub source: String,
    /// The origin of its joules, which shows how far they can be trusted.
    pub quality: Quality,
    /// The joules of one raw tick of the counter.
    pub resolution_joules: f64,
    /// The part of the node that it counts: "gpu", "cpu", "memory" or "node".
    pub kind: String,
    /// The PCI address, such as `0000:c1:00.0`; empty if it is not known.
    pub pci: String,
    /// A text for people that contains the model.
    pub description: String,
    /// Metrics of the devices whose joules are also in this one's.
    pub contains: Vec<String>,
    /// The value at which the counter wraps to 0.
    pub wraps_at: Option<u64>,
    /// The power that it draws without the job, in microwatts, if its source knows it.
    pub baseline_microwatts: Option<u64>,
}
