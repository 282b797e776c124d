//! The positions of a ring: how two processes hand slots to each other. The module owns no memory, so that a model checker
//! can run it on its own atomics.
//!
//! Happens-before, in both directions:
//! - the producer fills a slot, then stores `write` with release; the consumer loads it with acquire, then reads the slot;
//! - the consumer has read a slot, then stores `read` with release; the producer loads it with acquire, then refills it.

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

/// The pid of the process that holds one end; 0 when it is free.
pub trait Hold {
    /// Returns the pid of the present holder.
    fn holder(&self) -> u32;
    /// Replaces `from` with `to`. If the holder is not `from`, `Err` has the holder's pid.
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

/// Takes an end that is free or whose holder is dead. If several processes find a dead holder, one of them gets the end.
/// `Err` has the pid of the holder.
///
/// The exchange acquires the dead holder's writes, so the positions must be read after it.
pub fn take_hold<H: Hold>(hold: &H, me: u32, is_alive: impl Fn(u32) -> bool) -> Result<(), u32> {
    let holder = hold.holder();
    if holder != 0 && holder != me && is_alive(holder) {
        return Err(holder);
    }
    hold.replace(holder, me)
}

/// The producer's side: its own position, and a copy of the consumer's.
#[derive(Debug, Clone)]
pub struct ProducerCursor {
    capacity: u64,
    write: u64,
    read_seen: u64,
}

impl ProducerCursor {
    /// Returns the cursor of a new ring, whose positions are zero.
    pub fn new(capacity: u64) -> ProducerCursor {
        ProducerCursor { capacity, write: 0, read_seen: 0 }
    }

    /// Returns the cursor of a ring whose producer is dead: it continues after the last published record. `None` if the
    /// positions are impossible.
    pub fn resumed(capacity: u64, write: u64, read: u64) -> Option<ProducerCursor> {
        let waiting = write.checked_sub(read)?;
        let cursor = ProducerCursor { capacity, write, read_seen: read };
        (waiting <= capacity).then_some(cursor)
    }

    #[inline(always)]
    pub fn write(&self) -> u64 {
        self.write
    }

    /// Whether at least `slots` are free, by the copy of the consumer's position, or else by the position itself, which is slower
    /// to load.
    #[inline(always)]
    pub fn has_room<P: Position>(&mut self, read: &P, slots: u64) -> bool {
        self.free_by_copy() >= slots || self.free(read) >= slots
    }

    #[inline(always)]
    fn free_by_copy(&self) -> u64 {
        self.capacity - (self.write - self.read_seen)
    }

    /// Returns the number of free slots, by the consumer's actual position.
    #[cold]
    pub fn free<P: Position>(&mut self, read: &P) -> u64 {
        let seen = read.load_acquire(); // pairs with the consumer's release in ConsumerCursor::release
        // A consumer can only go forward, and no further than we have written: anything else is damage.
        if seen >= self.read_seen && seen <= self.write {
            self.read_seen = seen;
        }
        self.free_by_copy()
    }

    /// Publishes `slots` that have been filled.
    #[inline(always)]
    pub fn publish<P: Position>(&mut self, write: &P, slots: u64) {
        self.write += slots;
        write.store_release(self.write); // pairs with the consumer's acquire in ConsumerCursor::available
    }
}

/// The consumer's side: its own position, and a copy of the producer's.
#[derive(Debug, Clone)]
pub struct ConsumerCursor {
    capacity: u64,
    read: u64,
    write_seen: u64,
}

/// The producer's position is impossible: it went back, or is ahead by more than the ring's capacity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImpossiblePosition {
    /// The read position, which is the consumer's own.
    pub read: u64,
    /// The write position in the ring's header.
    pub write: u64,
}

impl ConsumerCursor {
    /// Returns the cursor of a ring from which `read` records have been read.
    pub fn new(capacity: u64, read: u64) -> ConsumerCursor {
        ConsumerCursor { capacity, read, write_seen: read }
    }

    #[inline]
    pub fn read(&self) -> u64 {
        self.read
    }

    /// Returns the number of records that wait. The producer's position is not trusted.
    #[inline]
    pub fn available<P: Position>(&mut self, write: &P) -> Result<u64, ImpossiblePosition> {
        let seen = write.load_acquire(); // pairs with the producer's release in ProducerCursor::publish
        if seen < self.write_seen || seen - self.read > self.capacity {
            return Err(ImpossiblePosition { read: self.read, write: seen });
        }
        self.write_seen = seen;
        Ok(seen - self.read)
    }

    /// Hands back `slots` that have been read, at most as many as `available` returned.
    #[inline]
    pub fn release<P: Position>(&mut self, read: &P, slots: u64) {
        self.read += slots.min(self.write_seen - self.read);
        read.store_release(self.read); // pairs with the producer's acquire in ProducerCursor::free
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    #[test]
    fn an_impossible_write_position_is_refused() {
        let mut consumer = ConsumerCursor::new(8, 100);
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
    fn an_impossible_read_position_means_full() {
        let mut producer = ProducerCursor::new(4);
        producer.publish(&AtomicU64::new(0), 4);
        for hostile in [0, 5, 11, u64::MAX] {
            assert!(!producer.has_room(&AtomicU64::new(hostile), 1), "{hostile}");
        }
        assert!(producer.has_room(&AtomicU64::new(1), 1));
        assert!(!producer.has_room(&AtomicU64::new(1), 2));
        assert!(!producer.has_room(&AtomicU64::new(0), 2), "a consumer does not go back");
    }
}
