//! Tests the plugin's side, which writes any events while another process writes any read position. The records must be a stream
//! that nests, and no call may be lost.

use crate::bytes::Bytes;
use crate::nesting::Nesting;
use crate::scratch::directory;
use ampere_ring::communication::{Communication, Message};
use ampere_ring::{EventWriter, OverloadPolicy, RingConsumer, RingProducer, SessionProbes};
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;

const READ: u64 = 256;

const PROBES: SessionProbes =
    SessionProbes { ticks_per_second: |_| 1_000_000, collector_is_alive: || false, collector_rounds: || 0 };

pub fn run(data: &[u8]) {
    let mut from = Bytes::new(data);
    let path = directory("writer").join("1.0.ring");
    let _ = std::fs::remove_file(&path);
    let ring = RingProducer::create(&path, 4096, 0).expect("a ring");
    let file = OpenOptions::new().write(true).open(&path).expect("its file");
    let mut reader = RingConsumer::open(&path).expect("the ring's reader");
    let head = from.u8();
    let policy = [OverloadPolicy::Suppress, OverloadPolicy::CoalesceUnderPressure, OverloadPolicy::Coalesce]
        [usize::from(head) % 3];
    let mut writer = EventWriter::with_policy(ring, policy, PROBES);
    let hostile_reader = head & 0x80 != 0;
    let mut nesting = Nesting::default();
    let (mut time, mut batch) = (0u64, Vec::new());
    for _ in 0..512 {
        if from.is_empty() {
            break;
        }
        let op = from.u8();
        let region = u32::from(op >> 4);
        match op & 15 {
            0..=4 => writer.enter(time, region),
            5..=8 => writer.leave(time, region),
            9 => time = time.wrapping_add(u64::from(from.u16())),
            10 => time = from.edge_u64(),
            11 => {
                // Many events are written at once, so that the ring becomes full.
                for call in 0..16 * u64::from(from.u8()) {
                    writer.enter(time.saturating_add(call), region);
                    if op & 0x10 == 0 {
                        writer.leave(time.saturating_add(call), region);
                    }
                }
            }
            12 if hostile_reader => {
                file.write_all_at(&from.edge_u64().to_le_bytes(), READ).expect("room");
            }
            12 | 13 => {
                batch.clear();
                if let Ok(count) = reader.copy_out(&mut batch, usize::from(from.u16())) {
                    if !hostile_reader {
                        batch.iter().for_each(|record| nesting.take(*record));
                    }
                    reader.release(count);
                }
            }
            14 => writer.flush(),
            _ => match op >> 4 {
                0 => writer.program_begin(time),
                1 => writer.program_end(time),
                2 => writer.sample(time, 0, from.u64()),
                3..=8 => {
                    let peer = from.u32();
                    let communicator = from.u32();
                    let tag = from.u32();
                    let message = Message { peer, communicator, tag, bytes: from.u64() };
                    writer.communication(time, Communication::MpiIsend(message, from.u64()));
                }
                9 => writer.communication(time, Communication::MpiCollectiveBegin),
                10 => writer.correlate_next(from.u64()),
                _ => writer.location_end(time),
            },
        }
    }
    writer.flush_last();
    writer.close();
    if !hostile_reader {
        batch.clear();
        let _ = reader.copy_out(&mut batch, usize::MAX);
        batch.iter().for_each(|record| nesting.take(*record));
        nesting.finish();
    }
}
