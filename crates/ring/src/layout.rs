//! The header of a ring, byte for byte as the crate's page draws it.

use crossbeam_utils::CachePadded;
use std::mem::{offset_of, size_of};
use std::sync::atomic::{AtomicU32, AtomicU64};

/// The first bytes of a ring.
pub const MAGIC: [u8; 8] = *b"AMPRING1";
/// Changes with the format.
pub const ABI_VERSION: u32 = 3;
/// The records begin after so many bytes: a page.
pub const HEADER_BYTES: usize = 4096;
/// The size of a record.
pub const RECORD_BYTES: usize = 16;

/// `state`: the creator is still writing the header.
pub const STATE_MAKING: u32 = 0;
/// `state`: the ring is in use.
pub const STATE_OPEN: u32 = 1;
/// `state`: the producer has written its last record.
pub const STATE_CLOSED: u32 = 2;

#[repr(C)]
/// The beginning of a ring.
pub struct RingHeader {
    /// What the ring is.
    pub identity: CachePadded<Identity>,
    /// The producer's cache line.
    pub producer: CachePadded<ProducerLine>,
    /// The consumer's cache line.
    pub consumer: CachePadded<ConsumerLine>,
    /// The holders of both ends.
    pub holds: CachePadded<Holds>,
}

/// Written once, before `state` is set to open.
#[repr(C)]
pub struct Identity {
    /// [`MAGIC`].
    pub magic: [u8; 8],
    /// [`ABI_VERSION`].
    pub abi_version: u32,
    /// [`HEADER_BYTES`].
    pub header_bytes: u32,
    /// [`RECORD_BYTES`].
    pub record_bytes: u32,
    /// One of the states above. Published last.
    pub state: AtomicU32,
    /// Records, a power of two.
    pub capacity: u64,
    /// The producer's pid when it made the ring.
    pub pid: u32,
    /// The location's number in its process.
    pub location: u32,
    /// The producer's start time.
    pub start_time: u64,
}

/// Written by the producer only.
#[repr(C)]
pub struct ProducerLine {
    /// Records published since the start.
    pub write: AtomicU64,
    /// Calls suppressed since the start.
    pub suppressed_calls: AtomicU64,
    /// Records dropped since the start.
    pub dropped_records: AtomicU64,
}

/// Written by the consumer only.
#[repr(C)]
pub struct ConsumerLine {
    /// Records handed back since the start.
    pub read: AtomicU64,
}

/// The pids of the processes that hold the two ends. A dead holder's end may be taken.
#[repr(C)]
pub struct Holds {
    /// The producer's pid; 0: free.
    pub producer: AtomicU32,
    /// The consumer's pid; 0: free.
    pub consumer: AtomicU32,
    /// The consumer's start time, because pids are used again.
    pub consumer_start: AtomicU64,
}

const _: () = {
    assert!(offset_of!(RingHeader, identity) == 0);
    assert!(offset_of!(Identity, state) == 20);
    assert!(offset_of!(Identity, capacity) == 24);
    assert!(offset_of!(Identity, pid) == 32);
    assert!(offset_of!(Identity, start_time) == 40);
    assert!(offset_of!(RingHeader, producer) == 128);
    assert!(offset_of!(RingHeader, consumer) == 256);
    assert!(offset_of!(RingHeader, holds) == 384);
    assert!(offset_of!(Holds, consumer_start) == 8);
    assert!(size_of::<RingHeader>() <= HEADER_BYTES);
    assert!(size_of::<crate::Record>() == RECORD_BYTES);
};
