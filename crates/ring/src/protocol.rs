//! The positions of a ring: how two processes hand slots to each other. No memory of its own, so that a model checker
//! can run it on its own atomics.
//!
//! Happens-before, in both directions:
//! - the producer fills a slot, then stores `write` with release; the consumer loads it with acquire, then reads the slot;
//! - the consumer has read a slot, then stores `read` with release; the producer loads it with acquire, then refills it.

use std::cell::Cell;

/// A 64-bit position that two processes share.
pub trait Position {
    /// Pairs with [`Position::store_release`] of the other side.
    fn load_acquire(&self) -> u64;
    /// Pairs with [`Position::load_acquire`] of the other side.
    fn store_release(&self, value: u64);
}

impl Position for std::sync::atomic::AtomicU64 {
    #[inline(always)]
    fn load_acquire(&self) -> u64 {
        self.load(std::sync::atomic::Ordering::Acquire)
    }

    #[inline(always)]
    fn store_release(&self, value: u64) {
        self.store(value, std::sync::atomic::Ordering::Release);
    }
}

/// Who holds one end, by pid; 0 when it is free.
pub trait Hold {
    fn holder(&self) -> u32;
    /// Puts `to` in the place of `from`, or says who is there instead.
    fn replace(&self, from: u32, to: u32) -> Result<(), u32>;
}

impl Hold for std::sync::atomic::AtomicU32 {
    fn holder(&self) -> u32 {
        self.load(std::sync::atomic::Ordering::Acquire)
    }

    fn replace(&self, from: u32, to: u32) -> Result<(), u32> {
        use std::sync::atomic::Ordering::{AcqRel, Acquire};
        self.compare_exchange(from, to, AcqRel, Acquire).map(drop)
    }
}

/// Takes an end that is free, or whose holder is dead. `Err`: who has it. Of several that find a dead one, one has it.
///
/// What the dead one has done before is seen by who takes over: it looks at the positions after this.
pub fn take_hold<H: Hold>(hold: &H, me: u32, is_alive: impl Fn(u32) -> bool) -> Result<(), u32> {
    let holder = hold.holder();
    if holder != 0 && holder != me && is_alive(holder) {
        return Err(holder);
    }
    hold.replace(holder, me)
}

/// The producer's side: its own position, and a copy of the consumer's. Cells, because ringbuf moves positions through
/// shared references; a cursor is of one thread at a time.
#[derive(Debug, Clone)]
pub struct ProducerCursor {
    capacity: u64,
    write: Cell<u64>,
    read_seen: Cell<u64>,
}

impl ProducerCursor {
    /// Of a new ring, whose positions are zero.
    pub fn new(capacity: u64) -> ProducerCursor {
        ProducerCursor { capacity, write: Cell::new(0), read_seen: Cell::new(0) }
    }

    /// Of a ring whose producer is dead: goes on where it had published. `None` for positions that cannot be.
    pub fn resumed(capacity: u64, write: u64, read: u64) -> Option<ProducerCursor> {
        let waiting = write.checked_sub(read)?;
        let cursor = ProducerCursor { capacity, write: Cell::new(write), read_seen: Cell::new(read) };
        (waiting <= capacity).then_some(cursor)
    }

    #[inline(always)]
    pub fn write(&self) -> u64 {
        self.write.get()
    }

    /// Whether at least `slots` are free: first by the copy ("possibly full"), then by the truth ("really full").
    #[inline(always)]
    pub fn has_room<P: Position>(&self, read: &P, slots: u64) -> bool {
        self.free_by_copy() >= slots || self.free(read) >= slots
    }

    #[inline(always)]
    fn free_by_copy(&self) -> u64 {
        self.capacity - (self.write.get() - self.read_seen.get())
    }

    /// Free slots, by the truth.
    #[cold]
    pub fn free<P: Position>(&self, read: &P) -> u64 {
        let seen = read.load_acquire(); // pairs with the consumer's release in ConsumerCursor::release
        // A consumer can only go forward, and no further than we have written: anything else is damage.
        if seen >= self.read_seen.get() && seen <= self.write.get() {
            self.read_seen.set(seen);
        }
        self.free_by_copy()
    }

    /// Publishes `slots` that have been filled.
    #[inline(always)]
    pub fn publish<P: Position>(&self, write: &P, slots: u64) {
        self.write.set(self.write.get() + slots);
        write.store_release(self.write.get()); // pairs with the consumer's acquire in ConsumerCursor::available
    }
}

/// The consumer's side.
#[derive(Debug, Clone)]
pub struct ConsumerCursor {
    capacity: u64,
    read: Cell<u64>,
    write_seen: Cell<u64>,
}

/// The producer's position is impossible: it went back, or is further ahead than the ring is long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImpossiblePosition {
    pub read: u64,
    pub write: u64,
}

impl ConsumerCursor {
    pub fn new(capacity: u64, read: u64) -> ConsumerCursor {
        ConsumerCursor { capacity, read: Cell::new(read), write_seen: Cell::new(read) }
    }

    #[inline]
    pub fn read(&self) -> u64 {
        self.read.get()
    }

    /// How many records wait. The producer's position is not trusted.
    #[inline]
    pub fn available<P: Position>(&self, write: &P) -> Result<u64, ImpossiblePosition> {
        let seen = write.load_acquire(); // pairs with the producer's release in ProducerCursor::publish
        let read = self.read.get();
        if seen < self.write_seen.get() || seen - read > self.capacity {
            return Err(ImpossiblePosition { read, write: seen });
        }
        self.write_seen.set(seen);
        Ok(seen - read)
    }

    /// Hands `slots` back that have been read: no more than `available` said.
    #[inline]
    pub fn release<P: Position>(&self, read: &P, slots: u64) {
        let slots = slots.min(self.write_seen.get() - self.read.get());
        self.read.set(self.read.get() + slots);
        read.store_release(self.read.get()); // pairs with the producer's acquire in ProducerCursor::free
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    #[test]
    fn an_impossible_write_position_is_refused() {
        let consumer = ConsumerCursor::new(8, 100);
        assert_eq!(consumer.available(&AtomicU64::new(104)), Ok(4));
        assert_eq!(
            consumer.available(&AtomicU64::new(103)),
            Err(ImpossiblePosition { read: 100, write: 103 })
        );
        assert_eq!(
            consumer.available(&AtomicU64::new(109)),
            Err(ImpossiblePosition { read: 100, write: 109 })
        );
        assert_eq!(
            consumer.available(&AtomicU64::new(u64::MAX)),
            Err(ImpossiblePosition { read: 100, write: u64::MAX })
        );
    }

    #[test]
    fn an_impossible_read_position_means_full_and_nothing_worse() {
        let producer = ProducerCursor::new(4);
        producer.publish(&AtomicU64::new(0), 4);
        for hostile in [0, 5, 11, u64::MAX] {
            assert!(!producer.has_room(&AtomicU64::new(hostile), 1), "{hostile}");
        }
        assert!(producer.has_room(&AtomicU64::new(1), 1));
        assert!(!producer.has_room(&AtomicU64::new(1), 2));
        assert!(!producer.has_room(&AtomicU64::new(0), 2), "a consumer does not go back");
    }
}
