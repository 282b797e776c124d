//! Every interleaving of a producer and a consumer on a ring of two slots, by the model checker.
//! Run with `LOOM_MAX_PREEMPTIONS=3 RUSTFLAGS="--cfg loom" cargo test -p ampere-ring --test loom --release` (seconds).
#![cfg(loom)]

use ampere_ring::protocol::{ConsumerCursor, Position, ProducerCursor};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};

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
            let cursor = ProducerCursor::new(CAPACITY);
            for i in 0..RECORDS {
                while !cursor.has_room(&shared.read, 1) {
                    loom::thread::yield_now();
                }
                let slot = &shared.slots[(cursor.write() % CAPACITY) as usize];
                // SAFETY: the protocol under test says that this slot is ours; loom checks it.
                slot.with_mut(|p| unsafe { *p = i });
                cursor.publish(&shared.write, 1);
            }
        });
        let cursor = ConsumerCursor::new(CAPACITY, 0);
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
