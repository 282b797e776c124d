//! Uses a session's page in which arbitrary bytes are changed before and while it is open.

use crate::bytes::Bytes;
use crate::scratch::{assert_is_line, directory};
use ampere_ring::Session;
use std::fs::OpenOptions;
use std::os::unix::fs::{FileExt, OpenOptionsExt};

const PAGE: u64 = 8192;

pub fn run(data: &[u8]) {
    let mut from = Bytes::new(data);
    let directory = directory("page");
    let path = directory.join("session");
    let _ = std::fs::remove_file(&path);
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path).expect("a file");
    let mut page = vec![0; PAGE as usize];
    page[..8].copy_from_slice(b"AMPSESS1");
    page[8..12].copy_from_slice(&1u32.to_le_bytes());
    page[12..16].copy_from_slice(&1u32.to_le_bytes());
    if from.u8() & 7 == 7 {
        page.truncate(usize::from(from.u16()));
    }
    file.write_all_at(&page, 0).expect("room");
    for _ in 0..16 {
        let at = u64::from(from.u16()) % PAGE;
        let part = from.u8() % 16;
        let part = from.take(part.into());
        let part = &part[..part.len().min((PAGE - at) as usize)];
        file.write_all_at(part, at).expect("room");
    }
    let session = match Session::open(&directory) {
        Ok(session) => session,
        Err(error) => return assert_is_line(&error.to_string()),
    };
    loop {
        if let Some(output) = session.output() {
            assert!(output.as_os_str().len() <= 4000);
        }
        let _ = (session.collector_state(), session.collector_seems_alive(), session.collector_is_alive());
        let _ = (session.generation(), session.joined(), session.replay_time(), session.is_waited_for());
        let _ = session.samples_are_wanted();
        match from.u8() % 8 {
            0 => session.join(),
            1 => drop(session.leave()),
            2 => session.beat(),
            3 => session.set_replay_time(from.u64()),
            4 => session.set_output(&std::path::Path::new("/").join(from.text().replace('\0', ""))),
            _ => {
                let at = u64::from(from.u16()) % PAGE;
                let part = from.take(8);
                let part = &part[..part.len().min((PAGE - at) as usize)];
                file.write_all_at(part, at).expect("room");
            }
        }
        if from.is_empty() {
            return;
        }
    }
}
