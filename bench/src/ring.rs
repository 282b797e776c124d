//! Passes records through a ring to a consumer on another core: ampere's ring in shared memory, and ringbuf's ring on the heap.

use crate::ring_size::RingSizes;
use crate::{Figure, in_turn};
use ampere_ring::{Kind, Record, RingConsumer, RingProducer};
use ringbuf::SharedRb;
use ringbuf::storage::Heap;
use ringbuf::traits::{Consumer, Producer, Split};
use std::sync::atomic::{AtomicBool, Ordering};

const RECORDS: u64 = 20_000_000;
/// The consumer polls with a pause, as the collector does, so that it does not compete for every cache line.
const POLL: std::time::Duration = std::time::Duration::from_micros(200);

pub fn figures() -> anyhow::Result<Vec<Figure>> {
    let records = RingSizes::for_ranks(1).next(0, false) / size_of::<Record>() as u64;
    let [ours, theirs] =
        in_turn(7, RECORDS, [&mut || through_ours(records), &mut || through_ringbuf(records)]);
    Ok(vec![Figure {
        what: "ring: a record pushed, consumer on the other core",
        value: ours,
        unit: "ns",
        yardstick: "ringbuf's SharedRb, same records",
        yardstick_value: theirs,
    }])
}

/// Passes the records through ampere's ring. `capacity`, in records, is that of a main thread's ring.
fn through_ours(capacity: u64) {
    let directory = tempfile::tempdir_in("/dev/shm").expect("a directory in /dev/shm");
    let path = directory.path().join("b.ring");
    let mut producer = RingProducer::create(&path, capacity, 0).expect("a ring");
    let mut consumer = RingConsumer::open(&path).expect("the same ring");
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut batch = Vec::with_capacity(capacity as usize);
            while !stop.load(Ordering::Relaxed) {
                batch.clear();
                let count = consumer.copy_out(&mut batch, usize::MAX).expect("an honest producer");
                consumer.release(count);
                std::hint::black_box(&batch);
                std::thread::sleep(POLL);
            }
        });
        for i in 0..RECORDS {
            while !producer.has_room(1) {
                std::hint::spin_loop();
            }
            producer.push_with_room(Record::new(Kind::Enter, i, 7));
        }
        stop.store(true, Ordering::Relaxed);
    });
}

/// Passes the records through ringbuf's ring of the same capacity.
fn through_ringbuf(capacity: u64) {
    let ring = SharedRb::<Heap<Record>>::new(capacity as usize);
    let (mut producer, mut consumer) = ring.split();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let stop = &stop;
        scope.spawn(move || {
            let mut batch = vec![Record::default(); capacity as usize];
            while !stop.load(Ordering::Relaxed) {
                let count = consumer.pop_slice(&mut batch);
                std::hint::black_box(&batch[..count]);
                std::thread::sleep(POLL);
            }
        });
        for i in 0..RECORDS {
            while producer.try_push(Record::new(Kind::Enter, i, 7)).is_err() {
                std::hint::spin_loop();
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
}
