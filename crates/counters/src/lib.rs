//! Energy counters of a node.
//!
//! [`open_sources`] looks for what the node has and returns [`Source`]s, each with [`Device`]s whose cumulative energy
//! can be read as [`Reading`]s. For what cannot be used there is a line in [`Opened::notes`]; nothing here panics,
//! prints or ends the process. A read allocates nothing and is meant to be done every millisecond.
//!
//! | source | what it reads | quality |
//! | --- | --- | --- |
//! | `rocm_smi` | AMD GPUs' energy accumulators through `librocm_smi64.so` | measured |
//! | `amdsmi` | the same through `libamd_smi.so`, where rocm_smi does not serve | measured |
//! | `nvml` | NVIDIA GPUs' energy counters through `libnvidia-ml.so.1` | measured |
//! | `cray_pm` | an HPE Cray node, its CPU, memory and accelerators, from `/sys/cray/pm_counters` | measured |
//! | `rapl` | CPU packages and memory, Intel's and AMD's, from `/sys/class/powercap` | measured |
//! | `hwmon` | other sensors in `/sys/class/hwmon` | measured, or integrated from power |
//! | `estimate` | CPU time of a run's own processes ([`RunCpu`]), times the watts of [`Settings`] | estimated |
//!
//! **No joule twice.** A device says which others' joules are in its own ([`Device::contains`]).
//!
//! **One reader per node**: AMD's libraries are not thread-safe before ROCm 7.2. Within a process all
//! calls of vendors' libraries made here are serialised, whatever the number of sources.
//!
//! **When to stop.** Take the last reading before the process's exit handlers run, or in one that was registered after
//! [`open_sources`]. In an older one, a library's readings are [`ReadError::Ended`]: the library may be gone by then.
//!
//! **A counter can do anything**: go back (driver reload, GPU reset), stand still, fail for a while. Readings are
//! passed on as they are; the caller judges them. Only what follows from a source's definition is done here: a power is
//! integrated, and the estimate never goes back.
//!
//! **Gauges** are what some devices report besides: power, temperatures, how busy they are, memory. They are asked for one by
//! one ([`Source::gauge`]), as each is a call or a file of its own.
//!
//! **Queues** ([`Queues`]) say which process uses which AMD GPU, NVIDIA's driver says it of its own ([`Source::processes`]).
//!
//! **Unsafe code** is in `vendor/mod.rs`, in one function of `run_cpu.rs`, and in `library.rs` and `gauges.rs` of `rocm_smi`,
//! `amdsmi` and `nvml`.
//!
//! ```text
//! rapl.rs, hwmon.rs, cray_pm.rs, rocm_smi/, amdsmi/, nvml/, estimate/      the sources
//! select.rs     which sources are opened                relations.rs  which device contains which, and their names
//! vendor/       loads vendor libraries, locks calls     amd/          what rocm_smi and amdsmi share; queues
//! file.rs       a number in a file that is read often   energy.rs     ticks to nanojoules
//! gauge.rs      gauges                                  run_cpu.rs    CPU time of the run, for the estimate
//! processes.rs  which GPUs a process uses
//! ```
#![deny(unsafe_code)]

use std::fmt;
use std::io;
use std::time::Duration;

mod amd;
mod amdsmi;
mod cray_pm;
mod energy;
mod estimate;
mod file;
mod gauge;
mod hwmon;
mod nvml;
mod processes;
mod rapl;
mod relations;
mod rocm_smi;
mod run_cpu;
mod select;
mod vendor;

pub use amd::queues::Queues;
pub use ampere_model::{COUNTER_SOURCES, Quality};
pub use ampere_settings::SourceSettings as Settings;
pub use gauge::{Gauge, Quantity};
pub use processes::UsedGpus;
pub use run_cpu::{BusyTime, ProcessCpu, RunCpu, SharedRunCpu, Stat};
pub use select::open_sources;
pub use vendor::{LoadError, Status, loads};

/// What a counter counts the energy of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// A GPU package. On an MI300A that is the whole socket, CPU included.
    Gpu,
    /// A CPU package, or a part of one.
    Cpu,
    /// The node's main memory.
    Memory,
    /// The whole node, or as much of it as its board supplies.
    Node,
}

impl Kind {
    /// `gpu`, `cpu`, `memory` or `node`.
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::Gpu => "gpu",
            Kind::Cpu => "cpu",
            Kind::Memory => "memory",
            Kind::Node => "node",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Something with an energy counter.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Device {
    /// `GPU-0`, `package-0`, `node`. Unique on the node. A GPU's number is the library's own index and so may have gaps.
    pub name: String,
    /// Name of the counter: `rocm_smi:::energy_count:device=0`, `rapl:::energy:package-0`, `estimate:::energy`.
    pub metric: String,
    /// One of [`COUNTER_SOURCES`].
    pub source: &'static str,
    /// Whether it is measured, or estimated.
    pub quality: Quality,
    /// What it counts the energy of.
    pub kind: Kind,
    /// Names of all devices whose joules are also in this one's: a node's counter has those of its GPUs. Devices that no other
    /// contains may be added up.
    pub contains: Vec<String>,
    /// Joules per tick of [`Reading::raw`], as the library reports it or as [`Settings`] overrides it.
    pub resolution_joules: f64,
    /// For people: model, library and its version; or the estimate's formula.
    pub description: String,
    /// PCI address, `0000:c1:00.0`, where the library reports it.
    pub pci: Option<String>,
    /// [`Reading::nanojoules`] start again at 0 there.
    pub wraps_at_nanojoules: Option<u64>,
}

/// One look at a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// Cumulative energy in nanojoules since a start that only the counter knows: use differences. The whole of `raw`
    /// times the resolution, so that rounding (to the nanojoule, downwards) never accumulates; of a power, its integral. It is
    /// free-running: beyond 2^64 nJ (1.2 years at 500 W) it starts again from 0.
    pub nanojoules: u64,
    /// The counter as it was read, in ticks of [`Device::resolution_joules`]; of a power, microwatts.
    pub raw: u64,
    /// The time of the value in nanoseconds, by the clock of the part that counted: for AMD's libraries the driver's
    /// (CLOCK_BOOTTIME in amdgpu), for Cray's files the controller's, for the estimate CLOCK_MONOTONIC. `None` where there
    /// is none. A time that stands still means that the value is an old one.
    pub counter_timestamp_ns: Option<u64>,
}

/// The last reading of a device by a process that has ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LastReading {
    /// As [`Reading::nanojoules`].
    pub nanojoules: u64,
    /// Power over the time before it; 0 where that is not known.
    pub watts: f64,
    /// How long before now it was read.
    pub ago: Duration,
}

/// Why a counter could not be read. None is final: the next read may go well, except after [`ReadError::Ended`].
#[derive(Debug)]
#[non_exhaustive]
pub enum ReadError {
    /// `device` is not an index into [`Source::devices`].
    NoSuchDevice,
    /// The library refused.
    Library { function: &'static str, status: Status },
    /// The process is ending and the library's memory may be gone already: nothing is called any more.
    Ended,
    /// A file of the kernel's could not be read.
    Io(io::Error),
    /// A file of the kernel's did not have what was looked for.
    Malformed,
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReadError::NoSuchDevice => f.write_str("no device of that index"),
            ReadError::Library { function, status } => write!(f, "{function} returned {status}"),
            ReadError::Ended => f.write_str("the process is ending, the library may not be called any more"),
            ReadError::Io(error) => write!(f, "its file could not be read: {error}"),
            ReadError::Malformed => f.write_str("its file has no figure in it"),
        }
    }
}

impl std::error::Error for ReadError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            ReadError::Io(error) => Some(error),
            _ => None,
        }
    }
}

/// A way to read counters, with the devices that it has.
pub trait Source: Send {
    /// One of [`COUNTER_SOURCES`].
    fn name(&self) -> &'static str;
    /// The devices, at least one, always the same.
    fn devices(&self) -> &[Device];
    /// To make names unique and fill in relations, which depend on the other sources.
    #[doc(hidden)]
    fn devices_mut(&mut self) -> &mut [Device];
    /// Reads the counter of `devices()[device]` now. Allocates nothing, unless it counts for a run.
    fn read(&mut self, device: usize) -> Result<Reading, ReadError>;
    /// Continues after another process that read this device and has ended. A source that counts by itself goes on from its
    /// last reading; most pass on a counter of the hardware's, and have nothing to do. To be called before the device is read.
    fn go_on(&mut self, _device: usize, _last: LastReading) {}
    /// Counts the CPU time of this run alone from now on, instead of the node's. To be called before anything is read.
    fn count_for(&mut self, _run: &SharedRunCpu) {}
    /// Reading a device more often than this is of no use. Zero where it depends on how often the counter moves.
    fn shortest_period(&self, _device: usize) -> Duration {
        Duration::ZERO
    }
    /// The same while no process of the run does anything.
    fn shortest_calm_period(&self, device: usize) -> Duration {
        self.shortest_period(device)
    }
    /// What `devices()[device]` can be asked for beside its energy: always the same, none of it is certain to be answered.
    fn gauges(&self, _device: usize) -> &[Gauge] {
        &[]
    }
    /// One of [`Source::gauges`] now. `None`: the device does not have it, or not just now; nothing else follows from that.
    /// Allocates nothing.
    fn gauge(&mut self, _device: usize, _gauge: Gauge) -> Option<f64> {
        None
    }
    /// The pids of processes that use `devices()[device]` now. `None` where that is not known from here.
    fn processes(&mut self, _device: usize) -> Option<Vec<u32>> {
        None
    }
    /// One line about something that has changed since it was last asked, apart from the counters. To be asked every
    /// second or so.
    fn news(&mut self) -> Option<String> {
        None
    }
}

/// What a node turned out to have.
#[derive(Default)]
pub struct Opened {
    /// May be empty: energy is then not known at all, and the notes say why.
    pub sources: Vec<Box<dyn Source>>,
    /// One line each: what was not found although it was asked for, or is there and not usable, and what to do.
    pub notes: Vec<String>,
    /// One line each: what the node does not have, and was not asked for.
    pub absent: Vec<String>,
}

/// Why sources cannot be opened.
#[derive(Default)]
struct Trouble {
    notes: Vec<String>,
    absent: Vec<String>,
}

impl Trouble {
    fn absent(&mut self, line: String) {
        self.absent.push(line);
    }
}
