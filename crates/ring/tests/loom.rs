//! Every interleaving of a producer and a consumer on a ring of two slots, by the model checker.
//! Run with `LOOM_MAX_PREEMPTIONS=3 RUSTFLAGS="--cfg loom" cargo test -p ampere-ring --test loom --release` (seconds).
#![cfg(loom)]

use ampere_ring::protocol::{ConsumerCursor, Hold, Position, ProducerCursor, take_hold};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};

const CAPACITY: u64 = 2;
const RECORDS: u64 = 3;

struct LoomPosition(AtomicU64);

impl Position for LoomPosition {
    fn load_acquire(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
    fn store_release(&self, value: u64) {
        self.0.store(value, Ordering::Release);
    }
}

struct LoomHold(AtomicU32);

impl Hold for LoomHold {
    fn holder(&self) -> u32 {
        self.0.load(Ordering::Acquire)
    }
    fn replace(&self, from: u32, to: u32) -> Result<(), u32> {
        self.0.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).map(drop)
    }
}

struct Ring {
    write: LoomPosition,
    read: LoomPosition,
    /// loom reports any access to a cell that the positions do not order.
    slots: [UnsafeCell<u64>; CAPACITY as usize],
}

#[test]
fn slots_are_handed_over_in_both_directions() {
    loom::model(|| {
        let ring = Arc::new(Ring {
            write: LoomPosition(AtomicU64::new(0)),
            read: LoomPosition(AtomicU64::new(0)),
            slots: [UnsafeCell::new(u64::MAX), UnsafeCell::new(u64::MAX)],
        });
        let shared = ring.clone();
        let producer = loom::thread::spawn(move || {
            let mut cursor = ProducerCursor::new(CAPACITY);
            for i in 0..RECORDS {
                while !cursor.has_room(&shared.read, 1) {
                    loom::thread::yield_now();
                }
                let slot = &shared.slots[(cursor.write() % CAPACITY) as usize];
                // SAFETY: by the protocol under test this slot is ours; loom checks it.
                slot.with_mut(|p| unsafe { *p = i });
                cursor.publish(&shared.write, 1);
            }
        });
        let mut cursor = ConsumerCursor::new(CAPACITY, 0);
        let mut next = 0;
        while next < RECORDS {
            let available = cursor.available(&ring.write).expect("an honest producer");
            for at in 0..available {
                let slot = &ring.slots[((cursor.read() + at) % CAPACITY) as usize];
                // SAFETY: as above.
                let value = slot.with(|p| unsafe { *p });
                assert_eq!(value, next);
                next += 1;
            }
            cursor.release(&ring.read, available);
            if available == 0 {
                loom::thread::yield_now();
            }
        }
        producer.join().unwrap();
    });
}

/// A consumer was killed when it had read a record and not yet handed its slot back. Two others try to take its end while the
/// producer continues. One of the two gets it, and then reads every record from that position on, once and in order.
#[test]
fn one_consumer_takes_over_from_a_dead_one_and_misses_no_record() {
    const DEAD: u32 = 7;
    // Four threads: with three preemptions it takes many minutes.
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(|| {
        let ring = Arc::new(Ring {
            write: LoomPosition(AtomicU64::new(0)),
            read: LoomPosition(AtomicU64::new(0)),
            slots: [UnsafeCell::new(u64::MAX), UnsafeCell::new(u64::MAX)],
        });
        let hold = Arc::new(LoomHold(AtomicU32::new(0)));
        let shared = ring.clone();
        let producer = loom::thread::spawn(move || {
            let mut cursor = ProducerCursor::new(CAPACITY);
            for i in 0..RECORDS {
                while !cursor.has_room(&shared.read, 1) {
                    loom::thread::yield_now();
                }
                // SAFETY: by the protocol under test this slot is ours; loom checks it.
                shared.slots[(cursor.write() % CAPACITY) as usize].with_mut(|p| unsafe { *p = i });
                cursor.publish(&shared.write, 1);
            }
        });
        // The consumer that dies, before or after it has released the record that it has read.
        take_hold(&*hold, DEAD, |_| true).expect("a free end");
        let mut first = ConsumerCursor::new(CAPACITY, 0);
        if first.available(&ring.write).expect("an honest producer") > 0 {
            first.release(&ring.read, 1);
        }
        let others: Vec<_> = [8, 9]
            .map(|me| {
                let (ring, hold) = (ring.clone(), hold.clone());
                let take = move || {
                    if take_hold(&*hold, me, |pid| pid != DEAD).is_err() {
                        return 0;
                    }
                    let mut next = ring.read.load_acquire();
                    let mut cursor = ConsumerCursor::new(CAPACITY, next);
                    while next < RECORDS {
                        let available = cursor.available(&ring.write).expect("an honest producer");
                        for at in 0..available {
                            let slot = &ring.slots[((cursor.read() + at) % CAPACITY) as usize];
                            // SAFETY: as above.
                            assert_eq!(slot.with(|p| unsafe { *p }), next);
                            next += 1;
                        }
                        cursor.release(&ring.read, available);
                        if available == 0 {
                            loom::thread::yield_now();
                        }
                    }
                    1
                };
                // The model checker knows at most four threads, so one of the two runs in this thread.
                if me == 8 { Err(loom::thread::spawn(take)) } else { Ok(take()) }
            })
            .into_iter()
            .map(|taken| taken.unwrap_or_else(|thread| thread.join().unwrap()))
            .collect();
        assert_eq!(others.iter().sum::<i32>(), 1, "one gets it");
        producer.join().unwrap();
    });
}
