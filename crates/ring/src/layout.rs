//! The header of a ring, with the layout that the crate's documentation specifies.

use crossbeam_utils::CachePadded;
use std::mem::{offset_of, size_of};
use std::sync::atomic::{AtomicU32, AtomicU64};

/// The first bytes of a ring.
pub const MAGIC: [u8; 8] = *b"AMPRING1";
/// The version of the format of rings, records and definitions. The version of a spool includes it, because a spool contains
/// records.
pub const ABI_VERSION: u32 = 8;
/// The size of the header, one page: the records begin after it.
pub const HEADER_BYTES: usize = 4096;
pub const RECORD_BYTES: usize = 16;

/// `state`: the creator is still writing the header.
pub const STATE_MAKING: u32 = 0;
/// `state`: the ring is in use.
pub const STATE_OPEN: u32 = 1;
/// `state`: the producer has written its last record.
pub const STATE_CLOSED: u32 = 2;

/// The header of a ring.
#[repr(C)]
pub struct RingHeader {
    pub identity: CachePadded<Identity>,
    pub producer: CachePadded<ProducerLine>,
    pub consumer: CachePadded<ConsumerLine>,
    pub holds: CachePadded<Holds>,
}

/// The format, the size and the producer of the ring. Written once, before `state` is set to open.
#[repr(C)]
pub struct Identity {
    pub magic: [u8; 8],
    pub abi_version: u32,
    pub header_bytes: u32,
    pub record_bytes: u32,
    /// One of the states above. It is published last.
    pub state: AtomicU32,
    /// The number of records, a power of two.
    pub capacity: u64,
    /// The pid of the producer that made the ring.
    pub pid: u32,
    /// The location's number in its process.
    pub location: u32,
    /// The start time of the producer, in clock ticks since boot.
    pub start_time: u64,
}

/// The producer's cache line: only the producer writes to it.
#[repr(C)]
pub struct ProducerLine {
    /// The number of records published since the start.
    pub write: AtomicU64,
    /// The number of calls suppressed since the start.
    pub suppressed_calls: AtomicU64,
    /// The number of records dropped since the start.
    pub dropped_records: AtomicU64,
    /// The time before which all events have been published; 0 if the writer does not know.
    pub quiet_until: AtomicU64,
}

/// The consumer's cache line: only the consumer writes to it.
#[repr(C)]
pub struct ConsumerLine {
    /// The number of records handed back since the start.
    pub read: AtomicU64,
}

/// The pids of the processes that hold the two ends. The end of a dead holder may be taken.
#[repr(C)]
pub struct Holds {
    /// The producer's pid; 0 if the end is free.
    pub producer: AtomicU32,
    /// The consumer's pid; 0 if the end is free.
    pub consumer: AtomicU32,
    /// The consumer's start time, because pids are reused.
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
