//! Reads a ring whose header, positions and records are changed between the reader's steps, as a hostile producer could do.

use crate::bytes::Bytes;
use crate::nesting::Nesting;
use crate::scratch::{assert_is_line, directory};
use ampere_ring::RingConsumer;
use std::fs::OpenOptions;
use std::os::unix::fs::{FileExt, OpenOptionsExt};

/// Offsets in the file: of the write position, of the read position, and of the first record.
pub const WRITE: u64 = 128;
pub const READ: u64 = 256;
const RECORDS: u64 = 4096;

/// Returns the header of a valid ring.
pub fn header(capacity: u64) -> Vec<u8> {
    let mut header = vec![0; RECORDS as usize];
    header[..8].copy_from_slice(b"AMPRING1");
    header[8..12].copy_from_slice(&ampere_ring::layout::ABI_VERSION.to_le_bytes());
    header[12..16].copy_from_slice(&(RECORDS as u32).to_le_bytes());
    header[16..20].copy_from_slice(&16u32.to_le_bytes());
    header[20..24].copy_from_slice(&1u32.to_le_bytes());
    header[24..32].copy_from_slice(&capacity.to_le_bytes());
    header
}

pub fn run(data: &[u8]) {
    let mut from = Bytes::new(data);
    let capacity = 1u64 << (from.u8() % 8);
    let mut bytes = header(capacity);
    bytes.resize(RECORDS as usize + 16 * capacity as usize, 0);
    for _ in 0..from.u8() % 8 {
        let at = usize::from(from.u16()) % 512;
        bytes[at] = from.u8();
    }
    if from.u8() & 7 == 7 {
        bytes.truncate(usize::from(from.u16()));
    }
    let path = directory("ring").join("1.0.ring");
    let _ = std::fs::remove_file(&path);
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path).expect("a file");
    file.write_all_at(&bytes, 0).expect("room");
    let mut ring = match RingConsumer::open(&path) {
        Ok(ring) => ring,
        Err(error) => return assert_is_line(&error.to_string()),
    };
    let mut nesting = Nesting::default();
    let mut batch = Vec::new();
    let mut taken = 0u64;
    let mut write = 0u64;
    for _ in 0..256 {
        if from.is_empty() {
            break;
        }
        match from.u8() % 8 {
            0 => {
                // An honest producer does this step.
                let count = u64::from(from.u8()) % (capacity + 1);
                for at in 0..count {
                    let slot = write.wrapping_add(at) % capacity;
                    file.write_all_at(from.take(16), RECORDS + 16 * slot).expect("room");
                }
                write = write.wrapping_add(count);
                file.write_all_at(&write.to_le_bytes(), WRITE).expect("room");
            }
            1 => {
                write = from.edge_u64();
                file.write_all_at(&write.to_le_bytes(), WRITE).expect("room");
            }
            2 => file.write_all_at(&from.edge_u64().to_le_bytes(), READ).expect("room"),
            3 => file.write_all_at(&[from.u8()], u64::from(from.u16()) % RECORDS).expect("room"),
            4 => {
                let wanted = usize::from(from.u16());
                batch.clear();
                if let Ok(count) = ring.copy_out(&mut batch, wanted) {
                    assert!(count <= wanted && count as u64 <= capacity && count == batch.len());
                    batch.iter().for_each(|record| nesting.take(*record));
                    ring.release(count);
                    taken += count as u64;
                }
            }
            5 => ring.release(usize::from(from.u16())),
            6 => nesting.advance(from.edge_u64()),
            _ => {
                let fill = ring.fill_ratio();
                assert!((0.0..=1.0).contains(&fill), "{fill}");
                let _ = (ring.is_closed(), ring.suppressed_calls(), ring.dropped_records());
                assert!(
                    ring.available().is_ok_and(|waiting| waiting <= capacity) || ring.available().is_err()
                );
            }
        }
    }
    let events = nesting.finish();
    // A record is one event, or closes frames that other records have opened.
    assert!(events <= 3 * taken, "{events} events of {taken} records");
}
