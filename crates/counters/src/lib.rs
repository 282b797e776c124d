//! Energy counters of a node.
//!
//! [`open_sources`] looks for what the node has and returns [`Source`]s, each with [`Device`]s whose cumulative energy can be
//! read as [`Reading`]s. For each counter that cannot be used there is a line in [`Opened::notes`]. Nothing here panics, prints
//! or ends the process. A read allocates nothing and is fast enough to be made every millisecond.
//!
//! | source | what it reads | quality |
//! | --- | --- | --- |
//! | `rocm_smi` | AMD GPUs' energy accumulators through `librocm_smi64.so` | measured |
//! | `amdsmi` | the same accumulators through `libamd_smi.so`; only one of the two libraries is used | measured |
//! | `nvml` | NVIDIA GPUs' energy counters through `libnvidia-ml.so.1` | measured |
//! | `cray_pm` | an HPE Cray node, its CPU, memory and accelerators, from `/sys/cray/pm_counters` | measured |
//! | `rapl` | CPU packages and memory, Intel's and AMD's, from `/sys/class/powercap` or msr-safe | measured |
//! | `perf` | the same CPU packages and memory, through `perf_event_open`, if RAPL's files may not be read | measured |
//! | `hwmon` | other sensors in `/sys/class/hwmon` | measured, or integrated from power |
//! | `custom` | the user's own commands and files ([`ampere_settings::CustomSource`]) | measured, or integrated from power |
//! | `estimate` | CPU time of a run's own processes ([`RunCpu`]), times the watts of [`Settings`] | estimated |
//!
//! **No joule is counted twice.** A device names the others whose joules are in its own ([`Device::contains`]).
//!
//! **One reader per node**: AMD's libraries are not thread-safe before ROCm 7.2. Within a process all
//! calls of vendors' libraries made here are serialised, whatever the number of sources.
//!
//! **When to stop.** Take the last reading before the process's exit handlers run, or in one that was registered after
//! [`open_sources`]. In a handler that was registered earlier, a library's readings are [`ReadError::Ended`], because the library
//! may have been destroyed by then.
//!
//! **A counter can do anything**: go back (driver reload, GPU reset), stop, fail for a while. Readings are passed on unchanged;
//! the caller judges them. Only two things are done here: a power is integrated, and the estimate never decreases.
//!
//! **Gauges** are figures that some devices report in addition: power, temperatures, how busy they are, memory, clocks,
//! power limits, throttling. They are read
//! one by one ([`Source::gauge`]), because each is a call or a file of its own.
//!
//! **Queues** ([`Queues`]) show which process uses which AMD GPU; NVIDIA's driver lists its own processes
//! ([`Source::processes`]).
//!
//! **Unsafe code** is in `vendor/mod.rs`, in one function of `run_cpu.rs` and of `perf.rs`, in `library.rs` of `rocm_smi`,
//! `amdsmi` and `nvml`, and in `amd/gauges.rs`.
//!
//! ```text
//! rapl.rs, perf.rs, hwmon.rs, cray_pm.rs, rocm_smi/, amdsmi/, nvml/, custom.rs, estimate.rs    the sources
//! select.rs     which sources are opened                relations.rs  which device contains which; names
//! vendor/       loads vendor libraries, locks calls     amd/          common parts of rocm_smi and amdsmi, gauges
//! file.rs       a number in a file that is read often   energy.rs     ticks to nanojoules
//! integral.rs   the energy of a power                   run_cpu.rs    CPU time of the run, for the estimate
//! gauge.rs      gauges                                  cpu_gauges.rs clock and throttling of CPUs
//! msr.rs        RAPL's registers through msr-safe
//! other_jobs.rs CPU time of other jobs on the node      late_time.rs  CPU time of ended processes that is not yet known
//! processes.rs  which GPUs a process uses               cpu_time.rs   CPU time of the node
//! ```
#![deny(unsafe_code)]

use std::fmt;
use std::io;
use std::time::Duration;

mod amd;
mod amdsmi;
mod cpu_gauges;
mod cpu_time;
mod cray_pm;
mod custom;
mod energy;
mod estimate;
mod file;
mod gauge;
mod hwmon;
mod integral;
mod late_time;
mod msr;
mod nvml;
mod other_jobs;
mod perf;
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
pub use cpu_time::thread_cpu_time;
pub use custom::PollError;
pub use gauge::{Gauge, Quantity};
pub use late_time::TotalClock;
pub use other_jobs::OtherJobs;
pub use processes::UsedGpus;
pub use run_cpu::{BusyTime, ProcessCpu, RunCpu, SharedRunCpu, Stat};
pub use select::open_sources;
pub use vendor::{LoadError, Status, loads};

/// The part of a node whose energy a counter counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// A GPU package. On an MI300A this is the whole socket, including the CPU.
    Gpu,
    /// A CPU package, or a part of one.
    Cpu,
    /// The main memory of the node.
    Memory,
    /// The whole node, or as much of it as its board supplies.
    Node,
    /// A part of which nothing is known.
    Unknown,
}

impl Kind {
    /// Returns the kind's word: `gpu`, `cpu`, `memory` or `node`; empty if it is not known.
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::Gpu => "gpu",
            Kind::Cpu => "cpu",
            Kind::Memory => "memory",
            Kind::Node => "node",
            Kind::Unknown => "",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A part of a node with an energy counter.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Device {
    /// The name, such as `GPU-0`, `package-0` or `node`, which is unique on the node. A GPU's number is the library's own index
    /// and so may have gaps.
    pub name: String,
    /// The counter's name: `rocm_smi:::energy_count:device=0`, `rapl:::energy:package-0`, `estimate:::energy`.
    pub metric: String,
    /// The name of its source, one of [`COUNTER_SOURCES`].
    pub source: &'static str,
    /// Whether the device's energy is measured, integrated, estimated or simulated.
    pub quality: Quality,
    /// The part of the node whose energy it counts.
    pub kind: Kind,
    /// The names of all devices whose joules this device contains: a node's counter contains those of its GPUs. Devices that
    /// no other device contains may be added up.
    pub contains: Vec<String>,
    /// Joules per tick of [`Reading::raw`], as the library reports them or as [`Settings`] overrides them.
    pub resolution_joules: f64,
    /// A text for people: the model, and the library with its version; or the estimate's formula.
    pub description: String,
    /// The PCI address, such as `0000:c1:00.0`, if the library reports it.
    pub pci: Option<String>,
    /// The value at which [`Reading::nanojoules`] starts again at 0.
    pub wraps_at_nanojoules: Option<u64>,
    /// The power that it draws without the job, if that is known: the estimate's idle power.
    pub baseline_microwatts: Option<u64>,
}

/// The result of one read of a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// Cumulative energy in nanojoules since a start that only the counter knows: use differences. It is the whole of `raw` times
    /// the resolution, so that rounding (to the nanojoule, downwards) never accumulates; for a power, its integral. It wraps:
    /// beyond 2^64 nJ (1.2 years at 500 W) it starts again from 0.
    pub nanojoules: u64,
    /// The counter as it was read, in ticks of [`Device::resolution_joules`]; for a power, microwatts.
    pub raw: u64,
    /// The time of the value in nanoseconds, by the clock of the part that counted: for AMD's libraries the driver's
    /// (CLOCK_BOOTTIME in amdgpu), for Cray's files the controller's, for the estimate CLOCK_MONOTONIC. `None` if there is none.
    /// If the time does not change, the value is old.
    pub counter_timestamp_ns: Option<u64>,
}

/// The last reading of a device by a process that has ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LastReading {
    /// The last value of [`Reading::nanojoules`].
    pub nanojoules: u64,
    /// The power over the time before it; 0 if it is not known.
    pub watts: f64,
    /// The time since the reading.
    pub ago: Duration,
}

/// Why a counter could not be read. No error is final: the next read may succeed, except after [`ReadError::Ended`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// `device` is not an index into [`Source::devices`].
    #[error("no device with that index")]
    NoSuchDevice,
    #[error("{function} returned {status}")]
    Library { function: &'static str, status: Status },
    /// The process is ending and the library's memory may have been freed, so nothing is called any more.
    #[error("the process is ending, and the library must not be called any more")]
    Ended,
    /// A file of the kernel could not be read.
    #[error("its file could not be read: {0}")]
    Io(#[source] io::Error),
    /// A file of the kernel did not have the expected figure.
    #[error("its file contains no figure")]
    Malformed,
    /// There has been no reading since the last one that was passed on. This is not a failure.
    #[error("it has not been read since the last time")]
    NotYet,
    /// A reading of a user's own counter has failed. Each such failure is returned once.
    #[error("{0}")]
    Poll(PollError),
}

/// A way to read counters, and the devices for which it can be used.
pub trait Source: Send {
    /// Returns the source's name, one of [`COUNTER_SOURCES`].
    fn name(&self) -> &'static str;
    /// Returns the devices: at least one, and always the same.
    fn devices(&self) -> &[Device];
    /// Returns the devices, to make their names unique and to fill in their relations, which depend on the other sources.
    #[doc(hidden)]
    fn devices_mut(&mut self) -> &mut [Device];
    /// Reads the counter of `devices()[device]` now. Allocates nothing, unless it counts for a run.
    fn read(&mut self, device: usize) -> Result<Reading, ReadError>;
    /// Continues after another process that read this device and has ended. A source that counts energy itself continues from
    /// `last`, the last reading of that process. Most sources pass on a counter of the hardware and have nothing to do. This must
    /// be called before the device is read.
    fn resume(&mut self, _device: usize, _last: LastReading) {}
    /// Makes the source count the CPU time of this run instead of the node's. This must be called before anything is read.
    fn count_for(&mut self, _run: &SharedRunCpu) {}
    /// Returns the period below which reading a device more often is useless; zero if that depends on how often the counter
    /// changes.
    fn shortest_period(&self, _device: usize) -> Duration {
        Duration::ZERO
    }
    /// Like [`Source::shortest_period`], while no process of the run is active.
    fn shortest_calm_period(&self, device: usize) -> Duration {
        self.shortest_period(device)
    }
    /// Returns the gauges of `devices()[device]` that may be read. They are always the same, but none is certain to return a
    /// value.
    fn gauges(&self, _device: usize) -> &[Gauge] {
        &[]
    }
    /// Reads one of [`Source::gauges`] now. `None` means only that the device does not have it, or not at present. Allocates
    /// nothing.
    fn gauge(&mut self, _device: usize, _gauge: Gauge) -> Option<f64> {
        None
    }
    /// Returns the pids of processes that use `devices()[device]` now; `None` if this source does not know them.
    fn processes(&mut self, _device: usize) -> Option<Vec<u32>> {
        None
    }
    /// Whether the source reads at intervals of its own, and passes each reading on once.
    fn is_polled(&self) -> bool {
        false
    }
    /// Prepares for the last read of each device, at the end of the run: a source that reads at intervals of its own reads once
    /// more. This may take a second.
    fn finish(&mut self) {}
    /// Returns one line about a change on the node since the last call, such as a new power cap. This should be called about once
    /// a second.
    fn news(&mut self) -> Option<String> {
        None
    }
}

/// The sources that a node has.
#[derive(Default)]
pub struct Opened {
    /// The opened sources. If there is none, energy is not known at all, and the notes contain the reasons.
    pub sources: Vec<Box<dyn Source>>,
    /// One line for each counter that was requested and not found, or that exists and is not usable, with advice.
    pub notes: Vec<String>,
    /// One line for each counter that the node does not have and that was not requested.
    pub absent: Vec<String>,
    /// Whether one of the notes is about a counter of the node that cannot be read, although others can: the joules that it
    /// counts are missing.
    pub is_incomplete: bool,
}

/// The reasons why sources cannot be opened.
#[derive(Default)]
struct OpenErrors {
    notes: Vec<String>,
    absent: Vec<String>,
    /// Whether a counter that should be readable has failed. Lack of support does not count as a failure; lack of permission
    /// does only if RAPL can read other zones.
    has_unreadable: bool,
}

impl OpenErrors {
    /// Adds a line about a counter of the node that cannot be read and that is not contained in another.
    fn unreadable(&mut self, line: String) {
        self.has_unreadable = true;
        self.notes.push(line);
    }

    fn absent(&mut self, line: String) {
        self.absent.push(line);
    }
}
