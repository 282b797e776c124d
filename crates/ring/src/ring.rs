//! A ring in shared memory: [`RingProducer`] and [`RingConsumer`], with ringbuf's traits as their face.
//!
//! ringbuf's own `CachingProd` and `CachingCons` are not used on top: the producer must ask "is there room for n?"
//! from its cached copy (see [`crate::EventWriter`]), and the consumer must not trust the producer's position; neither
//! can be said through them. The traits can: whoever knows ringbuf can push and pop here.

use crate::error::Error;
use crate::layout::{
    ABI_VERSION, HEADER_BYTES, Identity, MAGIC, RECORD_BYTES, RingHeader, STATE_CLOSED, STATE_MAKING,
    STATE_OPEN,
};
use crate::mapping::{self, Mapping, ToLeave};
use crate::process;
use crate::protocol::{ConsumerCursor, Hold, ImpossiblePosition, ProducerCursor, take_hold};
use crate::record::Record;
use ringbuf::traits::{Consumer, Observer, Producer, Raw};
use std::mem::MaybeUninit;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::ptr::addr_of;
use std::sync::atomic::{AtomicU64, Ordering};

/// Below this a ring is of no use: 4,096 records, 64 KiB.
pub const SMALLEST_RING_RECORDS: u64 = 4096;

/// More records than a sampler puts into its ring before it publishes them.
const BEING_WRITTEN: u64 = 4;

/// The mapping of one ring file, checked.
struct Shared {
    map: Mapping,
    /// As checked once; the header's own field may change under us and is never read again.
    capacity: u64,
}

// SAFETY: the mapping is plain memory that both sides reach through atomics and through slots handed over by the
// positions' release and acquire; nothing in it belongs to a thread.
unsafe impl Send for Shared {}

impl Shared {
    /// An existing ring, checked.
    fn open(path: &Path) -> Result<Shared, Error> {
        let map = mapping::open(path, HEADER_BYTES as u64)?;
        let identity = map.as_mut_ptr().cast::<Identity>(); // the header's first field
        // SAFETY: the mapping is page-aligned and at least HEADER_BYTES long.
        let state = unsafe { &*addr_of!((*identity).state) };
        if state.load(Ordering::Acquire) == STATE_MAKING {
            return Err(Error::malformed(path, "still in the making"));
        }
        // SAFETY: as above; the identity is plain data, read once by copy, and any bytes are valid for its types.
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
        // SAFETY: the mapping is page-aligned, at least HEADER_BYTES long (checked when made or opened) and lives as
        // long as self. What another process may write is atomic, except the identity, which is read through raw
        // pointers only, once.
        unsafe { &*self.map.as_ptr().cast::<RingHeader>() }
    }

    /// The address of a slot.
    #[inline(always)]
    fn slot(&self, position: u64) -> *mut [AtomicU64; 2] {
        let index = (position & (self.capacity - 1)) as usize;
        // SAFETY: index < capacity, and the mapping holds HEADER_BYTES + capacity * RECORD_BYTES bytes (checked).
        unsafe { self.map.as_mut_ptr().add(HEADER_BYTES + index * RECORD_BYTES).cast() }
    }

    /// Both words of a slot are atomics, so that a hostile other side is a wrong value and not undefined behaviour.
    /// Relaxed: order comes from the positions.
    #[inline(always)]
    fn store(&self, position: u64, record: Record) {
        let [word0, word1] = record.words();
        // SAFETY: slot() is in bounds and 16-byte aligned.
        let slot = unsafe { &*self.slot(position) };
        slot[0].store(word0, Ordering::Relaxed);
        slot[1].store(word1, Ordering::Relaxed);
    }

    #[inline(always)]
    fn load(&self, position: u64) -> Record {
        // SAFETY: slot() is in bounds and 16-byte aligned.
        let slot = unsafe { &*self.slot(position) };
        Record::from_words([slot[0].load(Ordering::Relaxed), slot[1].load(Ordering::Relaxed)])
    }

    /// ringbuf counts modulo twice the capacity.
    fn modular(&self, position: u64) -> usize {
        (position & (2 * self.capacity - 1)) as usize
    }

    /// The slots between two of ringbuf's indices, as (address, length) pairs.
    fn runs(&self, start: usize, end: usize) -> [(*mut MaybeUninit<Record>, usize); 2] {
        let capacity = self.capacity as usize;
        // The other side's index may be anything: never more than there is.
        let length = (end.wrapping_sub(start) & (2 * capacity - 1)).min(capacity);
        let first = start & (capacity - 1);
        let head = length.min(capacity - first);
        [(self.slot(first as u64).cast(), head), (self.slot(0).cast(), length - head)]
    }
}

/// The producer's end. One per ring, in the process that made it.
pub struct RingProducer {
    shared: Shared,
    cursor: ProducerCursor,
    path: PathBuf,
}

impl RingProducer {
    /// Makes the ring. `capacity` is rounded up to a power of two.
    pub fn create(path: &Path, capacity: u64, location: u32) -> Result<RingProducer, Error> {
        Self::create_leaving(path, capacity, location, ToLeave::NOTHING)
    }

    /// As [`RingProducer::create`]; there is no room for it unless so much stays free.
    pub fn create_leaving(
        path: &Path,
        capacity: u64,
        location: u32,
        to_leave: ToLeave,
    ) -> Result<RingProducer, Error> {
        let capacity = capacity.clamp(SMALLEST_RING_RECORDS, 1 << 32).next_power_of_two();
        let map = mapping::create(path, HEADER_BYTES as u64 + capacity * RECORD_BYTES as u64, to_leave)?;
        let shared = Shared { map, capacity };
        let identity = shared.map.as_mut_ptr().cast::<Identity>(); // the header's first field
        let pid = std::process::id();
        // SAFETY: a new mapping, page-aligned, long enough, and nobody reads the identity before `state` says so.
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

    /// Goes on with the ring of a producer that is dead. Also hands over what is still in its memory of the records that
    /// were published, read or not, the oldest first. The caller makes sure that nobody else does the same.
    pub fn take_over(path: &Path) -> Result<(RingProducer, Vec<Record>), Error> {
        let shared = Shared::open(path)?;
        let header = shared.header();
        let write = header.producer.write.load(Ordering::Acquire);
        let read = header.consumer.read.load(Ordering::Acquire);
        let Some(cursor) = ProducerCursor::resumed(shared.capacity, write, read) else {
            return Err(Error::malformed(path, format!("{read} records read of {write}")));
        };
        // The dead one may have been writing beyond what it had published: over the oldest.
        let oldest = write.saturating_add(BEING_WRITTEN).saturating_sub(shared.capacity).min(write);
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

    #[inline(always)]
    pub fn has_room(&mut self, slots: u64) -> bool {
        self.cursor.has_room(&self.shared.header().consumer.read, slots)
    }

    /// Free slots as of now.
    pub fn free(&mut self) -> u64 {
        self.cursor.free(&self.shared.header().consumer.read)
    }

    /// Writes and publishes one record. The caller has asked `has_room`; without room the oldest record is overwritten.
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

    /// Records written since the start.
    #[inline(always)]
    pub fn position(&self) -> u64 {
        self.cursor.write()
    }

    /// Writes a record that [`RingProducer::publish`] publishes with others; `at` is its place among them.
    #[inline]
    pub fn put_with_room(&mut self, at: u64, record: Record) {
        self.shared.store(self.cursor.write() + at, record);
    }

    #[inline]
    pub fn publish(&mut self, count: u64) {
        self.cursor.publish(&self.shared.header().producer.write, count);
    }

    /// Who reads it, as far as can be seen here.
    pub(crate) fn reader(&self) -> Reader {
        match self.shared.header().holds.consumer.load(Ordering::Relaxed) {
            0 => Reader::NotYet,
            GIVEN_UP => Reader::GivenUp,
            _ => Reader::There,
        }
    }

    pub fn set_suppressed_calls(&self, calls: u64) {
        self.shared.header().producer.suppressed_calls.store(calls, Ordering::Relaxed);
    }

    pub fn set_dropped_records(&self, records: u64) {
        self.shared.header().producer.dropped_records.store(records, Ordering::Relaxed);
    }

    /// No record will follow.
    pub fn close(&self) {
        // Pairs with the acquire in RingConsumer::is_closed: the last write position is visible before "closed".
        self.shared.header().identity.state.store(STATE_CLOSED, Ordering::Release);
    }
}

/// See [`RingProducer::reader`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reader {
    NotYet,
    There,
    /// It does not read any further, whatever comes.
    GivenUp,
}

/// In place of the consumer's pid: no process has it.
const GIVEN_UP: u32 = u32::MAX;

/// The consumer's end.
pub struct RingConsumer {
    shared: Shared,
    cursor: ConsumerCursor,
    path: PathBuf,
    /// Records that were handed back since pages were last let go.
    passed: usize,
}

/// More records than any ring has had in its life: a thousand years of a thread that does nothing else.
pub const MOST_RECORDS: u64 = 1 << 60;

/// So much of a ring a consumer has in its memory, and no more: it may have hundreds.
const RESIDENT_BYTES: usize = 64 << 10;

impl RingConsumer {
    /// Opens a ring and takes the consumer's end, from a dead consumer if need be: reading goes on where it stopped.
    pub fn open(path: &Path) -> Result<RingConsumer, Error> {
        let shared = Shared::open(path)?;
        let read = shared.header().consumer.read.load(Ordering::Acquire);
        // So that nobody who counts on from here can overflow.
        if read > MOST_RECORDS {
            return Err(Error::malformed(path, format!("it says that {read} records were read")));
        }
        let hold = &shared.header().holds.consumer;
        let (started, me) = (&shared.header().holds.consumer_start, std::process::id());
        let lives = |holder| match started.load(Ordering::Acquire) {
            0 => process::start_time(holder).is_some(),
            started => process::is_alive(holder, started),
        };
        let lives = |holder| holder != GIVEN_UP && lives(holder);
        take_hold(hold, me, lives).map_err(|by_pid| Error::Held { path: path.to_owned(), by_pid })?;
        started.store(process::start_time(me).unwrap_or(0), Ordering::Release);
        // Where a consumer before this one has stopped meanwhile; what is beyond all sense is not looked at a second time.
        let read = shared.header().consumer.read.load(Ordering::Acquire).min(MOST_RECORDS);
        let cursor = ConsumerCursor::new(shared.capacity, read);
        Ok(RingConsumer { cursor, shared, path: path.to_owned(), passed: 0 })
    }

    /// In place of a ring that is lost, of which so many records are known from elsewhere: nothing waits in it.
    pub fn lost(path: &Path, position: u64) -> Result<RingConsumer, Error> {
        let map = mapping::nowhere(path, (HEADER_BYTES + RECORD_BYTES) as u64)?;
        let shared = Shared { map, capacity: 1 };
        shared.header().producer.write.store(position, Ordering::Relaxed);
        shared.header().consumer.read.store(position, Ordering::Relaxed);
        let cursor = ConsumerCursor::new(1, position);
        Ok(RingConsumer { cursor, shared, path: path.to_owned(), passed: 0 })
    }

    /// What the producer of a ring that is lost had counted, as far as that is known from elsewhere.
    pub fn set_counted(&self, suppressed_calls: u64, dropped_records: u64) {
        let producer = &self.shared.header().producer;
        producer.suppressed_calls.store(suppressed_calls, Ordering::Relaxed);
        producer.dropped_records.store(dropped_records, Ordering::Relaxed);
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Records consumed since the start.
    pub fn position(&self) -> u64 {
        self.cursor.read()
    }

    /// Records that wait.
    pub fn available(&mut self) -> Result<u64, ImpossiblePosition> {
        self.cursor.available(&self.shared.header().producer.write)
    }

    /// Copies up to `most` waiting records to the end of `into`, without handing their slots back:
    /// [`RingConsumer::release`] does. Returns how many.
    pub fn copy_out(&mut self, into: &mut Vec<Record>, most: usize) -> Result<usize, ImpossiblePosition> {
        let available = self.cursor.available(&self.shared.header().producer.write)?;
        let count = available.min(most as u64);
        let from = self.cursor.read();
        into.extend((from..from + count).map(|position| self.shared.load(position)));
        Ok(count as usize)
    }

    /// Hands back slots that were copied out.
    pub fn release(&mut self, slots: usize) {
        self.cursor.release(&self.shared.header().consumer.read, slots as u64);
        self.passed += slots;
        if self.passed * RECORD_BYTES >= RESIDENT_BYTES {
            self.rest();
        }
    }

    /// Its producer is over and all of it has been read: the file goes, and with it the memory. What it counted is still known here.
    pub fn retire(&mut self) -> Result<(), Error> {
        let gone = RingConsumer::lost(&self.path, self.position())?;
        gone.set_counted(self.suppressed_calls(), self.dropped_records());
        let path = self.path.clone();
        *self = gone;
        rustix::fs::unlink(&path).map_err(|e| Error::io("remove", &path, e))
    }

    /// Nothing is read from now on, and whoever waits for room need not any longer.
    pub fn give_up(&self) {
        self.shared.header().holds.consumer.store(GIVEN_UP, Ordering::Release);
    }

    /// Gives back the memory that its records are seen through. Reading takes it again.
    pub fn rest(&mut self) {
        self.passed = 0;
        self.shared.map.let_go(HEADER_BYTES);
    }

    /// Whether the producer has said that no record follows. Look before the last `copy_out`, not after.
    pub fn is_closed(&self) -> bool {
        // Pairs with the release in RingProducer::close.
        self.shared.header().identity.state.load(Ordering::Acquire) == STATE_CLOSED
    }

    /// Somebody has truncated the file: what was not read before is not there, or is not what was written.
    pub fn is_lost(&self) -> bool {
        self.shared.map.is_lost()
    }

    pub fn suppressed_calls(&self) -> u64 {
        self.shared.header().producer.suppressed_calls.load(Ordering::Relaxed)
    }

    pub fn dropped_records(&self) -> u64 {
        self.shared.header().producer.dropped_records.load(Ordering::Relaxed)
    }

    /// Between 0 and 1.
    pub fn fill_ratio(&self) -> f64 {
        let waiting =
            self.shared.header().producer.write.load(Ordering::Relaxed).saturating_sub(self.cursor.read());
        (waiting as f64 / self.shared.capacity as f64).min(1.0)
    }
}

/// Looks at how full a ring is that others write and read, for a producer's host that would rather wait than have calls
/// suppressed.
pub struct RingGauge {
    shared: Shared,
}

impl RingGauge {
    pub fn open(path: &Path) -> Result<RingGauge, Error> {
        Ok(RingGauge { shared: Shared::open(path)? })
    }

    pub fn capacity_records(&self) -> u64 {
        self.shared.capacity
    }

    /// Records written since the start, and how many of them have been read.
    pub fn positions(&self) -> (u64, u64) {
        let read = self.shared.header().consumer.read.load(Ordering::Acquire);
        (self.shared.header().producer.write.load(Ordering::Acquire), read)
    }

    /// Free slots as of now.
    pub fn free(&self) -> u64 {
        // Read first: it only grows, so that what is free is never overstated.
        let read = self.shared.header().consumer.read.load(Ordering::Acquire);
        let write = self.shared.header().producer.write.load(Ordering::Acquire);
        self.shared.capacity.saturating_sub(write.saturating_sub(read))
    }
}

impl Drop for RingConsumer {
    fn drop(&mut self) {
        // Unless somebody else has it by now.
        let _ = self.shared.header().holds.consumer.replace(std::process::id(), 0);
    }
}

impl Drop for RingProducer {
    fn drop(&mut self) {
        self.shared.header().holds.producer.store(0, Ordering::Release);
    }
}

/// ringbuf's face, the same for both ends but for whose position is the cached one.
macro_rules! ringbuf_face {
    ($end:ty) => {
        impl Observer for $end {
            type Item = Record;

            fn capacity(&self) -> NonZeroUsize {
                NonZeroUsize::new(self.shared.capacity as usize).unwrap_or(NonZeroUsize::MIN)
            }
            fn read_index(&self) -> usize {
                self.shared.modular(self.shared.header().consumer.read.load(Ordering::Acquire))
            }
            fn write_index(&self) -> usize {
                self.shared.modular(self.shared.header().producer.write.load(Ordering::Acquire))
            }
            fn read_is_held(&self) -> bool {
                self.shared.header().holds.consumer.load(Ordering::Acquire) != 0
            }
            fn write_is_held(&self) -> bool {
                self.shared.header().holds.producer.load(Ordering::Acquire) != 0
            }
        }

        // SAFETY: capacity is constant; indices are the positions modulo twice the capacity; slices cover exactly the
        // asked range of the mapping; each end has one owner (the hold words), and cursors publish what they advance.
        unsafe impl Raw for $end {
            unsafe fn unsafe_slices(
                &self,
                start: usize,
                end: usize,
            ) -> (&[MaybeUninit<Record>], &[MaybeUninit<Record>]) {
                let [a, b] = self.shared.runs(start, end);
                // SAFETY: runs() stays inside the mapping; the caller owns these slots.
                unsafe { (std::slice::from_raw_parts(a.0, a.1), std::slice::from_raw_parts(b.0, b.1)) }
            }
            unsafe fn unsafe_slices_mut(
                &self,
                start: usize,
                end: usize,
            ) -> (&mut [MaybeUninit<Record>], &mut [MaybeUninit<Record>]) {
                let [a, b] = self.shared.runs(start, end);
                // SAFETY: runs() stays inside the mapping, the two do not overlap, the caller owns these slots.
                unsafe {
                    (std::slice::from_raw_parts_mut(a.0, a.1), std::slice::from_raw_parts_mut(b.0, b.1))
                }
            }
            unsafe fn set_read_index(&self, value: usize) {
                self.move_read(value);
            }
            unsafe fn set_write_index(&self, value: usize) {
                self.move_write(value);
            }
            unsafe fn hold_read(&self, flag: bool) -> bool {
                let me = if flag { std::process::id() } else { 0 };
                self.shared.header().holds.consumer.swap(me, Ordering::AcqRel) != 0
            }
            unsafe fn hold_write(&self, flag: bool) -> bool {
                let me = if flag { std::process::id() } else { 0 };
                self.shared.header().holds.producer.swap(me, Ordering::AcqRel) != 0
            }
        }
    };
}

ringbuf_face!(RingProducer);
ringbuf_face!(RingConsumer);

/// Slots from a position to ringbuf's index after it.
fn step(position: u64, index: usize, capacity: u64) -> u64 {
    (index as u64).wrapping_sub(position) & (2 * capacity - 1)
}

impl RingProducer {
    fn move_write(&self, index: usize) {
        let slots = step(self.cursor.write(), index, self.shared.capacity);
        self.cursor.publish(&self.shared.header().producer.write, slots);
    }

    /// The consumer's position is the consumer's.
    fn move_read(&self, _index: usize) {}
}

impl RingConsumer {
    fn move_read(&self, index: usize) {
        let slots = step(self.cursor.read(), index, self.shared.capacity);
        self.cursor.release(&self.shared.header().consumer.read, slots);
    }

    /// The producer's position is the producer's.
    fn move_write(&self, _index: usize) {}
}

impl Producer for RingProducer {
    fn try_push(&mut self, record: Record) -> Result<(), Record> {
        if !self.has_room(1) {
            return Err(record);
        }
        self.push_with_room(record);
        Ok(())
    }
}

impl Consumer for RingConsumer {
    fn try_pop(&mut self) -> Option<Record> {
        match self.cursor.available(&self.shared.header().producer.write) {
            Ok(0) | Err(_) => None,
            Ok(_) => {
                let record = self.shared.load(self.cursor.read());
                self.release(1);
                Some(record)
            }
        }
    }
}
