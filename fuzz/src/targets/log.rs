//! Reads a definitions log that grows while it is read.

use crate::bytes::Bytes;
use crate::scratch::{assert_is_line, directory};
use ampere_ring::LogReader;
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;

pub fn run(data: &[u8]) {
    let mut from = Bytes::new(data);
    let path = directory("log").join("1.defs");
    let _ = std::fs::remove_file(&path);
    let mut file = OpenOptions::new().append(true).create_new(true).mode(0o600).open(&path).expect("a file");
    // The first byte decides in how many parts the log is written.
    let part = data.len() / (1 + usize::from(from.u8() % 8)) + 1;
    file.write_all(from.take(part)).expect("room");
    let mut reader = match LogReader::open(&path) {
        Ok(Some(reader)) => reader,
        Ok(None) => return,
        Err(error) => return assert_is_line(&error.to_string()),
    };
    let mut bytes = 0;
    loop {
        let read = reader.read_new(|definition| bytes += format!("{definition:?}").len());
        if let Err(error) = read {
            assert_is_line(&error.to_string());
        }
        // A definition's debug text is longer than its bytes only by a few words and by escapes of control characters.
        assert!(bytes <= 4096 + 64 * data.len(), "{bytes} bytes of {}", data.len());
        if from.is_empty() {
            return;
        }
        file.write_all(from.take(part)).expect("room");
    }
}
