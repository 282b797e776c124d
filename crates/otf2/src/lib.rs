//! A safe writer and reader of OTF2 archives, over the C library.
//!
//! An archive is a directory with `traces.otf2` (the anchor file), `traces.def` (the global definitions) and `traces/`
//! (for each location its events, `N.evt`, and its own definitions, `N.def`).
//!
//! - [`ArchiveWriter`] writes one, location by location or several at once, in constant memory, and leaves an anchor file
//!   only when all of it was written.
//! - [`Trace`] reads one: definitions as plain data ([`Definitions`]), events through an [`EventHandler`], in the order of
//!   time. Files that are missing or cut short cost their own events only, and are named.
//! - [`JoinedDefinitions`] makes one archive of several: event files go into it as they are.
//!
//! Names are OTF2's. Times are in ticks of [`ClockProperties::timer_resolution`].
//!
//! **Invariants.** Unsafe code is in the module `call` only. OTF2 prints nothing: its messages become [`Error`]s (the
//! callback for this is registered for the whole process). No user code runs inside of a callback from C, so that no
//! panic can cross it. Nothing that a file holds makes this crate panic. That the C library itself withstands a file made
//! to harm it is not claimed: files cut short are checked before it sees them, forged ones are not.
#![warn(missing_docs)]

#[forbid(unsafe_code)]
mod ahead;
#[allow(unsafe_code)]
mod anchor;
mod call;
#[forbid(unsafe_code)]
mod communication;
#[forbid(unsafe_code)]
mod contexts;
#[forbid(unsafe_code)]
mod definitions;
#[forbid(unsafe_code)]
mod error;
#[forbid(unsafe_code)]
mod extent;
#[forbid(unsafe_code)]
mod joined;
#[forbid(unsafe_code)]
mod local;
#[forbid(unsafe_code)]
mod merge;
#[forbid(unsafe_code)]
mod nesting;
#[forbid(unsafe_code)]
mod read_definitions;
#[forbid(unsafe_code)]
mod reader;
#[forbid(unsafe_code)]
mod table;
#[forbid(unsafe_code)]
mod words;
#[forbid(unsafe_code)]
mod write_definitions;
#[forbid(unsafe_code)]
mod writer;

pub use communication::{Collective, Communication, Message, Root};
pub use definitions::*;
pub use error::{Error, Otf2Error};
pub use joined::{Added, JoinedDefinitions};
pub use local::LocalDefinitions;
pub use nesting::Nesting;
pub use reader::{EventHandler, ReadReport, Trace};
pub use table::{
    AttributeRef, CallingContextRef, CommRef, GroupRef, LocationGroupRef, LocationRef, MetricClassRef,
    MetricInstanceRef, MetricMemberRef, Reference, RegionRef, StringRef, SystemTreeNodeRef, Table,
};
pub use words::*;
pub use writer::{ArchiveWriter, EventWriter};
