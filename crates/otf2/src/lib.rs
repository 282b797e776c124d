//! A safe writer and reader of OTF2 archives, over the C library.
//!
//! An archive is a directory with `traces.otf2` (the anchor file), `traces.def` (the global definitions) and `traces/`
//! (for each location its events, `N.evt`, and its own definitions, `N.def`).
//!
//! - [`ArchiveWriter`] writes an archive in constant memory, one location or several at a time. It writes an anchor file
//!   only when all of it was written.
//! - [`Trace`] reads an archive: definitions as plain data ([`Definitions`]), events through an [`EventHandler`], in time order.
//!   If files are missing or truncated, only the events in them are lost, and the report names the files.
//! - [`JoinedDefinitions`] joins several archives into one, without changing their event files.
//!
//! The names are those of OTF2. Times are in ticks of [`ClockProperties::timer_resolution`].
//!
//! **Invariants.** Unsafe code is in the module `call` only. OTF2 prints nothing: its messages become [`Error`]s (the
//! callback for this is registered for the whole process). No user code runs inside a callback from C, so that no panic can
//! cross it. Reading a file does not panic, whatever its content is. Truncated files are detected before the C library reads
//! them; forged files are not, and the library may not withstand them.
#![warn(missing_docs)]
#![deny(unsafe_code)]

mod anchor;
#[allow(unsafe_code)]
mod call;
mod communication;
mod contexts;
mod definitions;
mod enums;
mod error;
mod extent;
mod handler;
mod joined;
mod local;
mod merge;
mod nesting;
mod read_ahead;
mod read_definitions;
mod reader;
mod table;
mod write_definitions;
mod writer;

pub use communication::{Collective, Communication, Message, Root};
pub use definitions::*;
pub use enums::*;
pub use error::{Error, Otf2Error};
pub use handler::{EventHandler, Flow, Nesting, ReadReport};
pub use joined::{Added, JoinedDefinitions};
pub use local::LocalDefinitions;
pub use reader::Trace;
pub use table::{
    AttributeRef, CallingContextRef, CommRef, GroupRef, LocationGroupRef, LocationRef, MetricClassRef,
    MetricInstanceRef, MetricMemberRef, Reference, RegionRef, StringRef, SystemTreeNodeRef, Table,
};
pub use writer::{ArchiveWriter, EventWriter};
