//! What a process defines before its events refer to it.

use crate::{LocalLocation, RegionHandle};
use std::fmt;

/// One entry of a process' definitions log.
#[derive(Clone, Debug, PartialEq)]
pub enum Definition {
    /// First entry of a log.
    Process(Process),
    /// MPI rank and size, known once MPI is initialised. A program without MPI is rank 0 of 1.
    Rank {
        /// In MPI_COMM_WORLD.
        rank: u32,
        /// Of MPI_COMM_WORLD.
        size: u32,
    },
    /// A region, before an event refers to it.
    Region(Region),
    /// A location, before its ring is read.
    Location(Location),
    /// An energy counter (sampler's log only).
    Device(Device),
    /// What this process has not recorded so far: locations that got no ring, and calls that were in none.
    Unrecorded {
        /// Locations without a ring.
        locations: u64,
        /// Calls in no ring.
        calls: u64,
    },
    /// A communicator, before the process ends that uses it.
    Communicator(Communicator),
    /// The program that is measured.
    Program(Program),
    /// The process ended its measurement in order.
    Finished {
        /// Definitions for which the log had no room.
        left_out: u64,
    },
}

/// A program, as its host calls it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// Its file.
    pub name: String,
    /// What it was started with.
    pub arguments: Vec<String>,
}

/// A communicator, as one of its processes knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Communicator {
    /// The process' handle.
    pub handle: u32,
    /// Who is in it.
    pub members: Members,
}

/// The processes of a communicator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Members {
    /// All ranks, as in MPI_COMM_WORLD.
    World,
    /// These ranks of MPI_COMM_WORLD, in the order of their ranks in the communicator.
    Ranks(Vec<u32>),
    /// This process, and others that say the same of the communicator.
    Shared {
        /// The rank in MPI_COMM_WORLD of its rank 0.
        root: u32,
        /// Together with `root`, the same in all of its processes, and no other's.
        id: u32,
        /// The number of its processes.
        size: u32,
        /// This process' rank in it.
        rank: u32,
    },
}

/// The process that writes a log, and the readings of its clocks as the log began.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Process {
    /// Its number in its own namespace.
    pub pid: u32,
    /// Start time of the process in clock ticks since boot (`/proc/<pid>/stat`, field 22): with `pid`, an identity.
    pub start_time: u64,
    /// The node's name.
    pub hostname: String,
    /// Path of the program.
    pub executable: String,
    /// "score-p", "embedded", "trace", "sampler" or [`SAMPLED_HOST`].
    pub host: String,
    /// All clocks that a measurement system may use, read one after the other as the log began.
    pub clocks: Clocks,
    /// Environment variables that say which devices the process may use, and how it was launched, in the form `NAME=value`.
    pub environment: Vec<String>,
    /// A number for the namespace that `pid` is of; 0 where it is not known.
    pub pid_namespace: u64,
}

/// One reading of every clock that event timestamps may come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Clocks {
    /// Time stamp counter (x86-64) or virtual counter (AArch64); 0 where there is none.
    pub tsc: u64,
    /// CLOCK_MONOTONIC.
    pub monotonic_ns: u64,
    /// CLOCK_MONOTONIC_RAW.
    pub monotonic_raw_ns: u64,
    /// CLOCK_REALTIME.
    pub realtime_ns: u64,
}

/// A region of the program. Its texts are owned where it was read, and borrowed where it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region<Text = String> {
    /// Its number in its own process.
    pub handle: RegionHandle,
    /// The name that people read.
    pub name: Text,
    /// The mangled or otherwise original name, where it differs.
    pub canonical_name: Text,
    /// Empty where unknown.
    pub source_file: Text,
    /// 0 where unknown.
    pub begin_line: u32,
    /// 0 where unknown.
    pub end_line: u32,
    /// Score-P's `SCOREP_RegionType`.
    pub region_type: u8,
    /// Score-P's `SCOREP_ParadigmType`.
    pub paradigm: u8,
}

/// [`Process::host`] of a process whose stacks are sampled from outside.
pub const SAMPLED_HOST: &str = "sampled";

/// A thread, a GPU stream, or a recorder of metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// Its number in its own process.
    pub id: LocalLocation,
    /// What it is.
    pub kind: LocationKind,
    /// As the measurement system names it.
    pub name: String,
    /// File name of the location's ring, beside the log.
    pub ring: String,
    /// The kernel's number of the thread that made it; 0 where it is not known.
    pub thread: u32,
}

/// OTF2's location type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LocationKind {
    /// A thread of the process.
    CpuThread,
    /// A stream of an accelerator.
    Gpu,
    /// A recorder of metrics.
    Metric,
}

/// Where a device's joules come from, and so how far they can be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Quality {
    /// From a hardware counter.
    Measured,
    /// From a power that was measured now and then.
    Integrated,
    /// From a model.
    Estimated,
    /// From a stand-in library, in tests.
    Simulated,
}

impl Quality {
    /// `measured`, `integrated`, `estimated` or `simulated`, as it appears in what users see.
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

/// Something with an energy counter.
#[derive(Clone, Debug, PartialEq)]
pub struct Device {
    /// Position in the sampler's records.
    pub index: u32,
    /// `GPU-0`, `package-0`: unique on the node.
    pub name: String,
    /// The counter's name, as in traces.
    pub metric: String,
    /// The counter source that reads it.
    pub source: String,
    /// How far its joules can be trusted.
    pub quality: Quality,
    /// Joules that one raw tick of the counter stands for.
    pub resolution_joules: f64,
    /// What it counts the energy of: "gpu", "cpu", "memory", "node".
    pub kind: String,
    /// PCI address, `0000:c1:00.0`; empty where it is not known.
    pub pci: String,
    /// For people: the model, among other words.
    pub description: String,
    /// Metrics of the devices whose joules are also in this one's.
    pub contains: Vec<String>,
    /// Its samples' values start again at 0 there.
    pub wraps_at: Option<u64>,
}
