//! A ring in shared memory: [`RingProducer`], [`RingConsumer`], and [`RingGauge`] for processes that only observe it.

use crate::error::Error;
use crate::layout::{
    ABI_VERSION, HEADER_BYTES, Identity, MAGIC, RECORD_BYTES, RingHeader, STATE_CLOSED, STATE_MAKING,
    STATE_OPEN,
};
use crate::mapping::{self, Headroom, Mapping};
use crate::process;
use crate::protocol::{ConsumerCursor, Hold, ImpossiblePosition, ProducerCursor, take_hold};
use crate::record::Record;
use std::path::{Path, PathBuf};
use std::ptr::addr_of;
use std::sync::atomic::{AtomicU64, Ordering};

/// The smallest useful ring: 64 KiB.
pub const RING_RECORDS_MIN: u64 = 4096;

/// An upper bound on the records that a sampler writes before it publishes them.
const UNPUBLISHED_MAX: u64 = 4;

/// The mapping of one ring file, checked.
struct Shared {
    map: Mapping,
    /// The capacity that was checked when the ring was opened: the header's field may change and is never read again.
    capacity: u64,
}

// SAFETY: the mapping is plain memory that both sides reach through atomics and through slots handed over by the
// positions' release and acquire; nothing in it belongs to a thread.
unsafe impl Send for Shared {}

impl Shared {
    /// Opens and checks an existing ring.
    fn open(path: &Path) -> Result<Shared, Error> {
        let map = mapping::open(path, HEADER_BYTES as u64)?;
        let identity = map.as_mut_ptr().cast::<Identity>(); // the header's first field
        // SAFETY: the mapping is page-aligned and at least HEADER_BYTES long.
        let state = unsafe { &*addr_of!((*identity).state) };
        if state.load(Ordering::Acquire) == STATE_MAKING {
            return Err(Error::malformed(path, "its creator has not finished it"));
        }
        // SAFETY: see above; the identity is plain data, read once by copy, and any bytes are valid for its types.
        let (magic, version, header_bytes, record_bytes, capacity) = unsafe {
            (
                addr_of!((*identity).magic).read_volatile(),
                addr_of!((*identity).abi_version).read_volatile(),
                addr_of!((*identity).header_bytes).read_volatile(),
                addr_of!((*identity).record_bytes).read_volatile(),
                addr_of!((*identity).capacity).read_volatile(),
            )
        };
        if magic != MAGIC {
            return Err(Error::malformed(path, "it does not begin with AMPRING1"));
        }
        if (version, header_bytes, record_bytes) != (ABI_VERSION, HEADER_BYTES as u32, RECORD_BYTES as u32) {
            return Err(Error::malformed(path, format!("format version {version}, {ABI_VERSION} expected")));
        }
        let room = (map.len() - HEADER_BYTES) as u64 / RECORD_BYTES as u64;
        if !capacity.is_power_of_two() || capacity > room {
            return Err(Error::malformed(
                path,
                format!("a capacity of {capacity} records in room for {room}"),
            ));
        }
        Ok(Shared { map, capacity })
    }

    #[inline(always)]
    fn header(&self) -> &RingHeader {
        // SAFETY: the mapping is page-aligned, at least HEADER_BYTES long (checked when made or opened) and lives as long as
        // self. Fields that another process may write are atomic, except the identity, which is read only once, through raw
        // pointers.
        unsafe { &*self.map.as_ptr().cast::<RingHeader>() }
    }

    /// Returns the slot at a position. Both of its words are atomics, so that a malicious process on the other side can cause
    /// wrong values, but no undefined behaviour.
    #[inline(always)]
    fn slot(&self, position: u64) -> &[AtomicU64; 2] {
        let index = (position & (self.capacity - 1)) as usize;
        // SAFETY: index < capacity, and the mapping holds HEADER_BYTES + capacity * RECORD_BYTES bytes (checked); HEADER_BYTES
        // and RECORD_BYTES are multiples of 16, and the mapping is page-aligned.
        unsafe { &*self.map.as_ptr().add(HEADER_BYTES + index * RECORD_BYTES).cast() }
    }

    /// Writes a record into its slot. Relaxed stores are enough, because the positions give the order.
    #[inline(always)]
    fn store(&self, position: u64, record: Record) {
        let [word0, word1] = record.words();
        let slot = self.slot(position);
        slot[0].store(word0, Ordering::Relaxed);
        slot[1].store(word1, Ordering::Relaxed);
    }

    #[inline(always)]
    fn load(&self, position: u64) -> Record {
        let slot = self.slot(position);
        Record::from_words([slot[0].load(Ordering::Relaxed), slot[1].load(Ordering::Relaxed)])
    }
}

/// The producer's end. A ring has one producer, in the process that made the ring.
pub struct RingProducer {
    shared: Shared,
    cursor: ProducerCursor,
    path: PathBuf,
}

impl RingProducer {
    /// Makes the ring. `capacity` in records is rounded up to a power of two, at least [`RING_RECORDS_MIN`] and at most 2^32.
    pub fn create(path: &Path, capacity: u64, location: u32) -> Result<RingProducer, Error> {
        Self::create_with_headroom(path, capacity, location, Headroom::NONE)
    }

    /// Like [`RingProducer::create`], but fails with [`Error::NoSpace`] unless `headroom` stays free.
    pub fn create_with_headroom(
        path: &Path,
        capacity: u64,
        location: u32,
        headroom: Headroom,
    ) -> Result<RingProducer, Error> {
        let capacity = capacity.clamp(RING_RECORDS_MIN, 1 << 32).next_power_of_two();
        let map = mapping::create(path, HEADER_BYTES as u64 + capacity * RECORD_BYTES as u64, headroom)?;
        let shared = Shared { map, capacity };
        let identity = shared.map.as_mut_ptr().cast::<Identity>(); // the header's first field
        let pid = std::process::id();
        // SAFETY: a new mapping, page-aligned and long enough, and no process reads the identity before `state` is set.
        unsafe {
            (*identity).magic = MAGIC;
            (*identity).abi_version = ABI_VERSION;
            (*identity).header_bytes = HEADER_BYTES as u32;
            (*identity).record_bytes = RECORD_BYTES as u32;
            (*identity).capacity = capacity;
            (*identity).pid = pid;
            (*identity).location = location;
            (*identity).start_time = process::start_time(pid).unwrap_or(0);
        }
        shared.header().holds.producer.store(pid, Ordering::Relaxed);
        // Published last; pairs with the acquire in RingConsumer::open.
        shared.header().identity.state.store(STATE_OPEN, Ordering::Release);
        Ok(RingProducer { shared, cursor: ProducerCursor::new(capacity), path: path.to_owned() })
    }

    /// Continues the ring of a dead producer. Also returns the published records that are still in the ring, read or not, the
    /// oldest first. The caller makes sure that no other process takes the ring over at the same time.
    pub fn take_over(path: &Path) -> Result<(RingProducer, Vec<Record>), Error> {
        let shared = Shared::open(path)?;
        let header = shared.header();
        let write = header.producer.write.load(Ordering::Acquire);
        let read = header.consumer.read.load(Ordering::Acquire);
        let Some(cursor) = ProducerCursor::resumed(shared.capacity, write, read) else {
            return Err(Error::malformed(path, format!("{read} records read of {write}")));
        };
        // The dead producer may have been writing records that it had not published, over the oldest ones.
        let oldest = write.saturating_add(UNPUBLISHED_MAX).saturating_sub(shared.capacity).min(write);
        let kept = (oldest..write).map(|position| shared.load(position)).collect();
        header.holds.producer.store(std::process::id(), Ordering::Release);
        header.identity.state.store(STATE_OPEN, Ordering::Release);
        Ok((RingProducer { cursor, shared, path: path.to_owned() }, kept))
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn capacity_records(&self) -> u64 {
        self.shared.capacity
    }

    /// Whether at least `slots` slots are free.
    #[inline(always)]
    pub fn has_room(&mut self, slots: u64) -> bool {
        self.cursor.has_room(&self.shared.header().consumer.read, slots)
    }

    /// Returns the number of free slots now.
    pub fn free(&mut self) -> u64 {
        self.cursor.free(&self.shared.header().consumer.read)
    }

    /// Writes and publishes one record. The caller has checked `has_room`; without room the oldest record is overwritten.
    #[inline(always)]
    pub fn push_with_room(&mut self, record: Record) {
        self.shared.store(self.cursor.write(), record);
        self.cursor.publish(&self.shared.header().producer.write, 1);
    }

    /// Writes two records and publishes them together.
    #[inline(always)]
    pub fn push_pair_with_room(&mut self, first: Record, second: Record) {
        self.shared.store(self.cursor.write(), first);
        self.shared.store(self.cursor.write() + 1, second);
        self.cursor.publish(&self.shared.header().producer.write, 2);
    }

    /// Returns the number of records written since the start.
    #[inline(always)]
    pub fn position(&self) -> u64 {
        self.cursor.write()
    }

    /// Writes a record that [`RingProducer::publish`] publishes together with others; `at` is its index among them.
    #[inline]
    pub fn put_with_room(&mut self, at: u64, record: Record) {
        self.shared.store(self.cursor.write() + at, record);
    }

    /// Publishes `count` records that have been put.
    #[inline]
    pub fn publish(&mut self, count: u64) {
        self.cursor.publish(&self.shared.header().producer.write, count);
    }

    /// Whether the ring is read, according to its header.
    pub(crate) fn consumer_state(&self) -> ConsumerState {
        match self.shared.header().holds.consumer.load(Ordering::Relaxed) {
            0 => ConsumerState::NotYet,
            GAVE_UP => ConsumerState::GaveUp,
            _ => ConsumerState::Present,
        }
    }

    /// Publishes the number of calls suppressed so far.
    pub fn set_suppressed_calls(&self, calls: u64) {
        self.shared.header().producer.suppressed_calls.store(calls, Ordering::Relaxed);
    }

    /// Publishes the number of records dropped so far.
    pub fn set_dropped_records(&self, records: u64) {
        self.shared.header().producer.dropped_records.store(records, Ordering::Relaxed);
    }

    /// Publishes that no record of an event before `time` will follow.
    pub fn set_quiet_until(&self, time: u64) {
        // Pairs with the acquire in RingConsumer::quiet_until: the records before it are visible.
        self.shared.header().producer.quiet_until.store(time, Ordering::Release);
    }

    /// Marks the ring as closed: no record will follow.
    pub fn close(&self) {
        // Pairs with the acquire in RingConsumer::is_closed: the last write position is visible before "closed".
        self.shared.header().identity.state.store(STATE_CLOSED, Ordering::Release);
    }
}

/// Whether a ring is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConsumerState {
    /// No consumer has opened the ring.
    NotYet,
    /// A consumer has opened the ring; it may have died since.
    Present,
    /// The consumer does not read any further.
    GaveUp,
}

/// The value that replaces the consumer's pid; no process has this pid.
const GAVE_UP: u32 = u32::MAX;

/// The consumer's end. A ring has at most one live consumer.
pub struct RingConsumer {
    shared: Shared,
    cursor: ConsumerCursor,
    path: PathBuf,
    /// The number of records that were taken, and whose slots have not been handed back.
    taken: u64,
    /// The number of records that were handed back since pages were last released.
    handed_back: usize,
}

/// More records than any thread can write in centuries. A larger position is damage.
pub const POSITION_MAX: u64 = 1 << 60;

/// The part of a ring that stays in the consumer's memory: a collector may read hundreds of rings.
const RESIDENT_BYTES: usize = 64 << 10;

impl RingConsumer {
    /// Opens a ring and takes the consumer's end, from a dead consumer if need be: reading continues where that one stopped.
    ///
    /// # Errors
    /// [`Error::Held`] while another live process has that end, [`Error::Malformed`] for a file that is not a ring.
    pub fn open(path: &Path) -> Result<RingConsumer, Error> {
        let shared = Shared::open(path)?;
        let read = shared.header().consumer.read.load(Ordering::Acquire);
        // Otherwise sums of positions could overflow.
        if read > POSITION_MAX {
            return Err(Error::malformed(path, format!("its read position is {read}")));
        }
        let hold = &shared.header().holds.consumer;
        let (started, me) = (&shared.header().holds.consumer_start, std::process::id());
        let is_alive = |holder| match started.load(Ordering::Acquire) {
            0 => process::start_time(holder).is_some(),
            started => process::is_alive(holder, started),
        };
        let is_alive = |holder| holder != GAVE_UP && is_alive(holder);
        take_hold(hold, me, is_alive).map_err(|by_pid| Error::Held { path: path.to_owned(), by_pid })?;
        started.store(process::start_time(me).unwrap_or(0), Ordering::Release);
        // The previous consumer may have read further before it died.
        let read = shared.header().consumer.read.load(Ordering::Acquire).min(POSITION_MAX);
        let cursor = ConsumerCursor::new(shared.capacity, read);
        Ok(RingConsumer { cursor, shared, path: path.to_owned(), taken: 0, handed_back: 0 })
    }

    /// Represents a ring that no longer exists and from which `position` records have been read: no record is waiting in it.
    pub fn of_missing_ring(path: &Path, position: u64) -> Result<RingConsumer, Error> {
        let map = mapping::anonymous(path, (HEADER_BYTES + RECORD_BYTES) as u64)?;
        let shared = Shared { map, capacity: 1 };
        shared.header().producer.write.store(position, Ordering::Relaxed);
        shared.header().consumer.read.store(position, Ordering::Relaxed);
        let cursor = ConsumerCursor::new(1, position);
        Ok(RingConsumer { cursor, shared, path: path.to_owned(), taken: 0, handed_back: 0 })
    }

    /// Sets the counts of a missing ring's producer.
    pub fn set_counts(&self, suppressed_calls: u64, dropped_records: u64) {
        let producer = &self.shared.header().producer;
        producer.suppressed_calls.store(suppressed_calls, Ordering::Relaxed);
        producer.dropped_records.store(dropped_records, Ordering::Relaxed);
    }

    /// Returns the path of the ring, which may have been removed.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the number of records taken since the start.
    pub fn position(&self) -> u64 {
        self.cursor.read() + self.taken
    }

    /// Returns the number of records whose slots have been handed back: another consumer would begin after them.
    pub fn released(&self) -> u64 {
        self.cursor.read()
    }

    /// Returns the number of records that wait.
    pub fn available(&mut self) -> Result<u64, ImpossiblePosition> {
        Ok(self.cursor.available(&self.shared.header().producer.write)? - self.taken)
    }

    /// Appends at most `max` waiting records to `into` and returns their number.
    pub fn copy_out(&mut self, into: &mut Vec<Record>, max: usize) -> Result<usize, ImpossiblePosition> {
        let count = self.available()?.min(max as u64);
        let from = self.position();
        into.extend((from..from + count).map(|position| self.shared.load(position)));
        Ok(count as usize)
    }

    /// Marks records that were copied out as taken. [`RingConsumer::release`] hands their slots back.
    pub fn take(&mut self, records: usize) {
        self.taken += records as u64;
    }

    /// Appends the records that were taken and not handed back to `into`.
    pub fn copy_taken(&self, into: &mut Vec<Record>) {
        into.extend((self.released()..self.position()).map(|position| self.shared.load(position)));
    }

    /// Makes the records that were taken and not handed back wait again.
    pub fn put_back(&mut self) {
        self.taken = 0;
    }

    /// Hands back the slots of all taken records.
    pub fn release_taken(&mut self) {
        self.release(self.taken as usize);
    }

    /// Hands back the slots of the oldest records that were copied out. Records that were taken are the oldest.
    pub fn release(&mut self, slots: usize) {
        self.taken = self.taken.saturating_sub(slots as u64);
        self.cursor.release(&self.shared.header().consumer.read, slots as u64);
        self.handed_back += slots;
        if self.handed_back * RECORD_BYTES >= RESIDENT_BYTES {
            self.release_pages();
        }
    }

    /// Removes the file and its memory. The producer must have ended, and all records must have been read. The counts
    /// remain available.
    pub fn retire(&mut self) -> Result<(), Error> {
        let gone = RingConsumer::of_missing_ring(&self.path, self.position())?;
        gone.set_counts(self.suppressed_calls(), self.dropped_records());
        let path = self.path.clone();
        *self = gone;
        rustix::fs::unlink(&path).map_err(|e| Error::io("remove", &path, e))
    }

    /// Marks the ring as no longer read, so that the producer does not wait for room.
    pub fn give_up(&self) {
        self.shared.header().holds.consumer.store(GAVE_UP, Ordering::Release);
    }

    /// Takes the records' pages out of this process' memory. Reading brings them back.
    pub fn release_pages(&mut self) {
        self.handed_back = 0;
        self.shared.map.release_pages(HEADER_BYTES);
    }

    /// Whether the producer has closed the ring. Must be called before the last `copy_out`, not after it.
    pub fn is_closed(&self) -> bool {
        // Pairs with the release in RingProducer::close.
        self.shared.header().identity.state.load(Ordering::Acquire) == STATE_CLOSED
    }

    /// Returns the number of calls that the producer has suppressed.
    pub fn suppressed_calls(&self) -> u64 {
        self.shared.header().producer.suppressed_calls.load(Ordering::Relaxed)
    }

    /// Returns the number of records that the producer has dropped.
    pub fn dropped_records(&self) -> u64 {
        self.shared.header().producer.dropped_records.load(Ordering::Relaxed)
    }

    /// Returns the time before which the records of all events are in the ring; 0 if the producer does not know. Must be called
    /// before `copy_out`, not after it.
    pub fn quiet_until(&self) -> u64 {
        // Pairs with the release in RingProducer::set_quiet_until.
        self.shared.header().producer.quiet_until.load(Ordering::Acquire)
    }

    /// Returns the share of slots that are not free, between 0 and 1.
    pub fn fill_ratio(&self) -> f64 {
        self.ratio_since(self.cursor.read())
    }

    /// Returns the number of records that the ring can hold.
    pub fn capacity_records(&self) -> u64 {
        self.shared.capacity
    }

    /// Returns the share of slots with waiting records, between 0 and 1.
    pub fn waiting_ratio(&self) -> f64 {
        self.ratio_since(self.position())
    }

    /// Returns the share of slots with records that were taken and not handed back.
    pub fn taken_ratio(&self) -> f64 {
        self.taken as f64 / self.shared.capacity as f64
    }

    fn ratio_since(&self, position: u64) -> f64 {
        let since = self.shared.header().producer.write.load(Ordering::Relaxed).saturating_sub(position);
        (since as f64 / self.shared.capacity as f64).min(1.0)
    }
}

/// Observes a ring that other processes write and read.
pub struct RingGauge {
    shared: Shared,
}

impl RingGauge {
    pub fn open(path: &Path) -> Result<RingGauge, Error> {
        Ok(RingGauge { shared: Shared::open(path)? })
    }

    /// Returns the number of records written since the start, and the number of records read.
    pub fn positions(&self) -> (u64, u64) {
        let read = self.shared.header().consumer.read.load(Ordering::Acquire);
        (self.shared.header().producer.write.load(Ordering::Acquire), read)
    }
}

impl Drop for RingConsumer {
    fn drop(&mut self) {
        // If another process has taken the consumer's end in the meantime, its hold remains.
        let _ = self.shared.header().holds.consumer.replace(std::process::id(), 0);
    }
}

impl Drop for RingProducer {
    fn drop(&mut self) {
        self.shared.header().holds.producer.store(0, Ordering::Release);
    }
}
