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
        rank: u32,
        size: u32,
    },
    Region(Region),
    Location(Location),
    /// An energy counter (sampler's log only).
    Device(Device),
    /// What this process has not recorded so far: locations that got no ring, and calls that were in none.
    Unrecorded {
        locations: u64,
        calls: u64,
    },
    /// The process ended its measurement in order. `left_out` is the number of definitions that found no room.
    Finished {
        left_out: u64,
    },
}

/// The process that writes a log, and the readings of its clocks as the log began.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Process {
    pub pid: u32,
    /// Start time of the process in clock ticks since boot (`/proc/<pid>/stat`, field 22): with `pid`, an identity.
    pub start_time: u64,
    pub hostname: String,
    pub executable: String,
    /// "score-p", "embedded", "trace" or "sampler".
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
    pub monotonic_ns: u64,
    pub monotonic_raw_ns: u64,
    pub realtime_ns: u64,
}

/// A region of the program. Its texts are owned where it was read, and borrowed where it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region<Text = String> {
    pub handle: RegionHandle,
    pub name: Text,
    /// The mangled or otherwise original name, where it differs.
    pub canonical_name: Text,
    pub source_file: Text,
    /// 0 where unknown.
    pub begin_line: u32,
    pub end_line: u32,
    /// Score-P's `SCOREP_RegionType`.
    pub region_type: u8,
    /// Score-P's `SCOREP_ParadigmType`.
    pub paradigm: u8,
}

/// A thread, a GPU stream, or a recorder of metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    pub id: LocalLocation,
    pub kind: LocationKind,
    pub name: String,
    /// File name of the location's ring, beside the log.
    pub ring: String,
    /// The kernel's number of the thread that made it; 0 where it is not known.
    pub thread: u32,
}

/// OTF2's location type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LocationKind {
    CpuThread,
    Gpu,
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
    pub name: String,
    pub metric: String,
    pub source: String,
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
