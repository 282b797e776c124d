//! Shared memory between the application and the collector. This page is the specification of the format.
//!
//! # Where
//!
//! ```text
//! /dev/shm/ampere-<uid>/               0700, owned by the user              $AMPERE_SHM replaces /dev/shm
//!   <session>/                         0700, one per job and node
//!     session                          one page: the collector and its state           (session.rs)
//!     collector.lock                   locked by the collector while it runs           (session.rs)
//!     waiter.lock                      locked by the `ampere run` that waits for the results
//!     command.end                      how the command ended, written by `ampere run`
//!     <pid>.<namespace>.command        a process that is about to become the program; `.seen` once the collector knows it
//!     <pid>.defs                       a process' definitions log, append-only         (definitions.rs)
//!     <pid>.<location>.ring            one ring per location of that process           (layout.rs, this page)
//!     sampler.defs, sampler.0.ring     the sampler's devices and samples
//!     sampler.notes                    the sampler's notes, one line each, for messages
//!     settings.notes                   notes about settings, for a session without a summary
//!     sampler.<device>.samples         the series of samples, if a metric plugin wants it (samples.rs)
//!     work                             the units of work that processes have counted      (work.rs)
//!     replay.json                      the processes, locations and metrics of a replayed trace
//! ```
//!
//! All files have mode 0600. Numbers are little-endian and of fixed width. Space is allocated (`fallocate`) before a ring is
//! used, so that a full /dev/shm is an error at the start and no SIGBUS later. The files outlive both processes: published
//! records survive the death of the application and of the collector.
//!
//! # A ring
//!
//! A ring has one producer, one consumer and records of 16 bytes; its capacity is a power of two.
//!
//! ```text
//! byte     field                        written by
//!    0     magic "AMPRING1"             producer, once
//!    8     ABI version            u32   producer, once
//!   12     bytes of this header   u32   producer, once   (4096: the records begin on a page)
//!   16     bytes of a record      u32   producer, once   (16)
//!   20     state                  u32   producer: 0 being made, 1 open, 2 closed. Published last
//!   24     capacity in records    u64   producer, once
//!   32     pid                    u32   producer, once
//!   36     location               u32   producer, once
//!   40     producer's start time  u64   producer, once   (identifies it, with pid)
//!  128     write position         u64   producer         cache line of its own
//!  136     suppressed calls       u64   producer
//!  144     dropped records        u64   producer
//!  152     quiet until            u64   producer: no event before this time follows; 0: not known
//!  256     read position          u64   consumer         cache line of its own
//!  384     producer's hold        u32   producer: its pid, 0 when free
//!  388     consumer's hold        u32   consumer: its pid, 0 when free, 2^32 - 1 when it has given up reading
//!  392     consumer's start time  u64   consumer (identifies it, with its pid; 0: not known)
//! 4096     records
//! ```
//!
//! Positions count records since the start and never wrap (2^64 records take 5,800 years at 10^8 per second); the slot is
//! `position mod capacity`. The producer writes the record, then publishes it by storing the write position with
//! release order; the consumer loads it with acquire order, copies the records out, then stores the read position with
//! release order, which hands the slots back. Each side keeps a copy of the other's position and reads the position again
//! only when, by that copy, the ring may be full or empty ([`protocol`]).
//!
//! # A record
//!
//! ```text
//! word 0   timestamp, ticks of the process' event clock
//! word 1   bits 0..32 argument (region handle, device index)   bits 32..40 kind   bits 40..64 zero, or as the kind defines
//! ```
//!
//! A sample takes two slots, published together: `Sample{timestamp, device}` and `Value{nanojoules}` (in word 0). CPU time does,
//! too: `CpuTime{timestamp, ticks}` and `Value{nanoseconds}`. An enter with a correlation id is `Correlation{id}` and `Enter`,
//! published together. A group of coalesced calls is one `Group{begin, n}` and n records `CoalescedCalls`, published together
//! (record.rs, coalescing.rs). A message or a similar event is one `Communication` and up to three `Payload`, published together
//! ([`communication`]). The kinds are in [`record::Kind`]. A stream is well nested by construction: an enter is written only if
//! room remains for its leave and for the leave of every open frame ([`EventWriter`]). Calls that find no room are coalesced, or
//! left out with their whole subtree and counted (*suppressed*). The collector decodes the records with [`decoder`].
//!
//! # After a death
//!
//! The ring of a dead producer is read to its write position. If the hold names a dead consumer, another one takes over and
//! continues at the read position. The producer of the sampler's ring dies together with the consumer. The ring gets a new
//! producer, too, which continues at the write position ([`RingProducer::take_over`]): records that were not published are
//! ignored.
//!
//! # Trust
//!
//! **The reader trusts no byte.** It reads the capacity once and checks it against the file's size, and checks that the
//! write position has not decreased and is at most one capacity ahead. It copies a record before it examines it, and counts
//! unknown kinds and handles instead of panicking.
//!
//! # Files
//!
//! ```text
//! session.rs      a session and its collector          process.rs    pid and start time
//! layout.rs, mapping.rs, files.rs   headers, mapped files, small files
//! ring.rs, protocol.rs, record.rs   a ring, its positions, a record
//! event_writer.rs       the event path of the writer         decoder.rs    records to events
//! output.rs       room in the ring, and counts         overload.rs   the handling of calls when the collector cannot follow
//! coalescing.rs, calltree.rs        coalesces calls that come too fast
//! communication.rs      messages, collectives and similar events as records
//! work.rs         units of work that processes count
//! waiting.rs      waits for room, if so configured     cgroup.rs     memory that the job may still use
//! cpu_time.rs     the CPU time of a location, from all records about it
//! definitions.rs  the definitions log                  samples.rs    the samples for the metric plugin
//! clock.rs        the processor's and the system's clocks   error.rs  errors of shared memory
//! start.rs        starts the node's collector                session_name.rs   the name of a process' session
//! ```

mod calltree;
mod cgroup;
pub mod clock;
mod coalescing;
pub mod communication;
pub mod cpu_time;
pub mod decoder;
pub mod definitions;
mod error;
mod event_writer;
pub mod files;
pub mod layout;
mod mapping;
mod output;
mod overload;
pub mod process;
pub mod protocol;
pub mod record;
mod ring;
pub mod samples;
pub mod session;
pub mod session_name;
pub mod start;
mod waiting;
pub mod work;

pub use coalescing::RECORDS_PER_SECOND;
pub use definitions::{LogReader, LogWriter};
pub use error::Error;
pub use event_writer::EventWriter;
pub use layout::RECORD_BYTES;
pub use mapping::Headroom;
pub use overload::{OverloadPolicy, SessionProbes};
pub use protocol::ImpossiblePosition;
pub use record::{CoalescedCalls, Kind, Record};
pub use ring::{POSITION_MAX, RING_RECORDS_MIN, RingConsumer, RingGauge, RingProducer};
pub use session::{CollectorState, HeldLock, Locks, SAMPLES_RING, Session};
