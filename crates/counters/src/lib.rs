//! Energy counters of a node.
//!
//! [`open_sources`] looks for what the node has and returns [`Source`]s, each with [`Device`]s whose cumulative energy
//! can be read as [`Reading`]s. Whatever cannot be used is said in one line of [`Opened::notes`]; nothing here panics,
//! prints or ends the process. A read allocates nothing and is meant to be done every millisecond.
//!
//! | source | what it reads | quality |
//! | --- | --- | --- |
//! | `rocm_smi` | AMD GPUs' energy accumulators through `librocm_smi64.so`, loaded at run time | measured |
//! | `estimate` | the node's busy CPU time, times the watts of [`Settings`] | estimated |
//!
//! **Who may read.** One reader per node: librocm_smi64 is not thread-safe before ROCm 7.2. Within a process all
//! calls made here are serialised, whatever the number of sources.
//!
//! **When to stop.** Take the last reading before the process's exit handlers run, or in one that was registered after
//! [`open_sources`]. In an older one, rocm_smi's readings are [`ReadError::Ended`]: the library may be gone by then.
//!
//! **A counter can do anything**: go back (driver reload, GPU reset), stand still, fail for a while. Readings are
//! handed on as they are; what they mean is for the caller to judge. Only the estimate, which is made here, never
//! goes back.
//!
//! Architecture invariant: `unsafe` is in `rocm_smi/library.rs` and nowhere else.
#![deny(unsafe_code)]

use std::fmt;
use std::io;

mod energy;
mod estimate;
mod rocm_smi;
mod settings;

pub use rocm_smi::Status;
pub use settings::{
    DEFAULT_IDLE_WATTS, DEFAULT_WATTS_PER_CORE, ENV_COUNTERS, ENV_IDLE_WATTS, ENV_ROCM_SMI_LIBRARY,
    ENV_ROCM_SMI_RESOLUTION, ENV_SYS_ROOT, ENV_WATTS_PER_CORE, Settings,
};

/// How far a figure is to be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Quality {
    /// A hardware counter's.
    Measured,
    /// A model's.
    Estimated,
    /// A test's: the stand-in library's.
    Simulated,
}

impl Quality {
    /// `measured`, `estimated` or `simulated`, as it appears in what users see.
    pub fn as_str(self) -> &'static str {
        match self {
            Quality::Measured => "measured",
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

/// What a counter counts the energy of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// A GPU package. On an MI300A that is the whole socket, CPU included.
    Gpu,
    /// The whole node.
    Node,
}

impl Kind {
    /// `gpu` or `node`.
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::Gpu => "gpu",
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
    /// `GPU-0`, `node`. Unique on the node. A GPU's number is the library's own index and so may have gaps.
    pub name: String,
    /// Name of the counter: `rocm_smi:::energy_count:device=0`, `estimate:::energy`.
    pub metric: String,
    /// `rocm_smi` or `estimate`.
    pub source: &'static str,
    pub quality: Quality,
    pub kind: Kind,
    /// Joules per tick of [`Reading::raw`], as the library reports it or as [`Settings`] overrides it.
    pub resolution_joules: f64,
    /// For people: model, library and its version; or the estimate's formula.
    pub description: String,
    /// PCI address, `0000:c1:00.0`, where the library tells it.
    pub pci: Option<String>,
}

/// One look at a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// Cumulative energy in nanojoules since a start that only the counter knows: use differences. Always the whole
    /// of `raw` times the resolution, so that rounding (to the nanojoule, downwards) never accumulates.
    /// It is free-running: beyond 2^64 nJ (1.2 years at 500 W) it starts again from 0.
    pub nanojoules: u64,
    /// The counter as it was read, in ticks of [`Device::resolution_joules`].
    pub raw: u64,
    /// The time of the value in nanoseconds, by the clock of who counted: for rocm_smi the driver's (CLOCK_BOOTTIME in
    /// amdgpu), for the estimate CLOCK_MONOTONIC. `None` where there is none. A time that stands still means that the
    /// value is an old one.
    pub counter_timestamp_ns: Option<u64>,
}

/// Why a counter could not be read. None is final: the next read may go well, except after [`ReadError::Ended`].
#[derive(Debug)]
#[non_exhaustive]
pub enum ReadError {
    /// `device` is not an index into [`Source::devices`].
    NoSuchDevice,
    /// The library said no.
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
            ReadError::Io(error) => write!(f, "the CPU time could not be read: {error}"),
            ReadError::Malformed => f.write_str("the CPU time file has no CPU time in it"),
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
    /// `rocm_smi` or `estimate`.
    fn name(&self) -> &'static str;
    /// The devices, at least one, always the same.
    fn devices(&self) -> &[Device];
    /// Reads the counter of `devices()[device]` now. Allocates nothing.
    fn read(&mut self, device: usize) -> Result<Reading, ReadError>;
}

/// What a node turned out to have.
#[derive(Default)]
pub struct Opened {
    /// May be empty: energy is then not known at all, and the notes say why.
    pub sources: Vec<Box<dyn Source>>,
    /// One line each: what was not found or is not usable, and what to do.
    pub notes: Vec<String>,
}

/// Opens the sources that `settings.which` names, in that order. With `None`: rocm_smi if it has at least one usable
/// device, else the estimate. May take up to 20 ms, see [`Settings::which`] to leave a source out.
pub fn open_sources(settings: &Settings) -> Opened {
    let mut opened = Opened::default();
    let Some(which) = &settings.which else {
        opened.add_rocm_smi(settings);
        if opened.sources.is_empty() {
            opened.notes.push("no GPU energy counter: energy is estimated from CPU time".to_owned());
            opened.add_estimate(settings);
        }
        return opened;
    };
    for (i, name) in which.iter().enumerate() {
        match name.as_str() {
            _ if which[..i].contains(name) => {}
            rocm_smi::NAME => opened.add_rocm_smi(settings),
            estimate::NAME => opened.add_estimate(settings),
            _ => {
                opened.notes.push(format!("counters: {name:?} is not known; there are rocm_smi and estimate"))
            }
        }
    }
    opened
}

impl Opened {
    fn add_rocm_smi(&mut self, settings: &Settings) {
        if let Some(source) = rocm_smi::open(settings, &mut self.notes) {
            self.sources.push(Box::new(source));
        }
    }

    fn add_estimate(&mut self, settings: &Settings) {
        if let Some(source) = estimate::open(settings, &mut self.notes) {
            self.sources.push(Box::new(source));
        }
    }
}
