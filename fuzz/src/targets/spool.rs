//! Reads the files that a run has left on disk and in shared memory: records, logs and `run.json` with arbitrary bytes. They
//! are read in two ways: as when a trace is written, and by a full `ampere recover`.

use crate::bytes::Bytes;
use crate::nesting::Nesting;
use crate::scratch::{assert_is_line, directory};
use crate::targets::ring::{READ, WRITE, header};
use ampere_collector::run_directory::files::MANIFEST;
use ampere_collector::run_directory::manifest::Manifest;
use ampere_collector::run_directory::recover::{Recovered, Traced, find, recover};
use ampere_collector::sampling::sampler;
use ampere_figures::summary::Summary;
use ampere_report::first::screen::Screen;
use ampere_report::text;
use ampere_ring::Session;
use ampere_ring::process::node_name;
use ampere_trace::spool::{RECORDS, SpoolDirectory, Store};
use serde_json::{Value, json};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, SystemTime};

const PARTS: usize = 12;
const CAPACITY: u64 = 64;

pub fn run(data: &[u8]) {
    let Some((kind, rest)) = data.split_first() else { return };
    match kind % 4 {
        0 => {
            damaged_pieces(rest);
            records(rest);
        }
        // 1: on disk only; 2 and 3: also in shared memory.
        kind => drop(recover_run(&mut Bytes::new(rest), kind > 1)),
    }
}

/// Reads arbitrary bytes as the whole records file, or as the rest of one that begins with a valid piece.
fn damaged_pieces(data: &[u8]) {
    let directory = directory("spool");
    for before in [Vec::new(), piece("1.0", 0, &[0; 32])] {
        std::fs::write(directory.join(RECORDS), [&before, data].concat()).expect("room");
        let spool =
            SpoolDirectory::new(&directory, Store::open(std::slice::from_ref(&directory)), true, true);
        let mut count = 0;
        let read = spool.open("1.0", 1).map(|stream| {
            stream.read(|records| {
                count += records.len() as u64;
                Ok(())
            })
        });
        assert!(matches!(read, Some(Ok(()))) && count == spool.records("1.0"));
        let _ = spool.store().unpack_logs(&directory, |_| true);
    }
}

/// Reads arbitrary bytes as the records of one ring.
fn records(data: &[u8]) {
    let directory = directory("spool");
    std::fs::write(directory.join(RECORDS), piece("1.0", 0, data)).expect("room");
    let spool = SpoolDirectory::new(&directory, Store::open(std::slice::from_ref(&directory)), true, true);
    let (mut nesting, mut count) = (Nesting::default(), 0);
    let read = spool.open("1.0", 1).map(|stream| {
        stream.read(|records| {
            records.iter().for_each(|record| nesting.take(*record));
            count += records.len();
            Ok(())
        })
    });
    assert!(matches!(read, Some(Ok(()))), "arbitrary bytes are records");
    assert_eq!(count, data.len() / 16, "an incomplete last record is left out");
    nesting.finish();
}

/// Returns a piece of the records file, with its header.
fn piece(stream: &str, position: u64, bytes: &[u8]) -> Vec<u8> {
    let mut piece = b"AMPPIECE".to_vec();
    piece.extend_from_slice(&position.to_le_bytes());
    piece.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    piece.extend_from_slice(&[1, stream.len() as u8, 0, 0]);
    piece.extend_from_slice(stream.as_bytes());
    piece.resize(64, 0);
    piece.extend_from_slice(bytes);
    piece
}

/// Returns the summaries that `ampere recover` makes, one for each node.
fn recover_run(from: &mut Bytes, in_shared_memory: bool) -> Vec<Summary> {
    let place = directory("recovered");
    let (output, session) = (place.join("out"), place.join("s-1"));
    let spool = output.join(format!("spool-{}", node_name()));
    for path in [&output, &session] {
        let _ = std::fs::remove_dir_all(path);
    }
    for path in [&output, &spool, &session] {
        std::fs::DirBuilder::new().mode(0o700).create(path).expect("a directory");
    }
    if in_shared_memory {
        Session::open_or_create_in(&session).expect("a session").set_output(&output);
    }
    let text = manifest(from, &session);
    append(&spool.join(MANIFEST), &text);
    for _ in 0..PARTS {
        if from.is_empty() {
            break;
        }
        part(from, &spool, in_shared_memory.then_some(session.as_path()));
    }
    // The files are old enough to be recovered even if they belong to another node.
    let an_hour_ago = SystemTime::now() - Duration::from_secs(3600);
    for entry in std::fs::read_dir(&spool).expect("the spool").flatten() {
        std::fs::File::open(entry.path()).and_then(|file| file.set_modified(an_hour_ago)).expect("our files");
    }
    let all = match find(&output) {
        Ok(all) => all,
        Err(why) => {
            assert_is_line(&why.to_string());
            return Vec::new();
        }
    };
    let mut summaries = Vec::new();
    for left in all {
        match left.and_then(|left| recover(left, None)) {
            Err(why) => assert_is_line(&why.to_string()),
            Ok(Recovered::Removed(..)) => {}
            Ok(Recovered::Finished(done)) => {
                let (run, quality) = (&done.summary.run, &done.summary.quality);
                assert!(quality.conservation_error_joules <= 1e-9 + 1e-6 * run.total_joules);
                let table = text::render(&done.summary, Screen::FILE);
                assert!(!table.chars().any(|c| c.is_control() && c != '\n'), "{table:?}");
                assert!(done.trace != Traced::Made || !spool.exists(), "a finished run leaves no spool");
                summaries.push(done.summary);
            }
        }
    }
    summaries
}

/// Returns a `run.json` of arbitrary bytes, or one of a run with arbitrary numbers.
fn manifest(from: &mut Bytes, session: &Path) -> Vec<u8> {
    let how = from.u8();
    if how == 255 {
        let length = from.u16() % 1024;
        return from.take(length.into()).to_vec();
    }
    let mut manifest: Value =
        serde_json::from_str(&Manifest::new(session, "fuzz", &[], None).text()).expect("JSON");
    manifest["collector"] = json!([0, 0]);
    manifest["environment"] = json!({});
    let mut clock = json!({
        "timer": "clock_gettime (monotonic)", "ticks_per_second": 1_000_000_000u64, "epoch": [0, 1000, 1000, 1_700_000_000_000_000_000u64],
        "dated": true, "certain": true,
    });
    if how & 1 == 1 {
        let timers = [
            "tsc",
            "clock_gettime (monotonic)",
            "clock_gettime (monotonic raw)",
            "clock_gettime (realtime)",
            "gettimeofday",
            "trace",
            "",
        ];
        clock["timer"] = json!(timers[usize::from(from.u8()) % timers.len()]);
        clock["ticks_per_second"] = json!(from.edge_u64());
        clock["epoch"] = json!([from.edge_u64(), from.edge_u64(), from.edge_u64(), from.edge_u64()]);
        clock["certain"] = json!(how & 2 == 0);
    }
    manifest["clock"] = clock;
    if how & 4 == 4 {
        manifest["breaks"] = json!([from.edge_u64(), from.edge_u64()]);
        manifest["losses"] = json!({
            "suppressed_calls": from.edge_u64(), "dropped_records": from.edge_u64(), "notes": [from.text()],
            "missing": [from.text()],
        });
    }
    if how & 8 == 8 {
        manifest["command"] = json!([from.text()]);
        manifest["settings"] = json!([from.text(), "ampere.toml"]);
        manifest["node"] = json!(from.text());
    }
    serde_json::to_vec(&manifest).expect("JSON")
}

/// Appends a part to a log, or a piece to the records on disk, or writes a ring.
fn part(from: &mut Bytes, spool: &Path, session: Option<&Path>) {
    let logs = ["10001.defs", "10002.defs", sampler::LOG_NAME];
    let streams = ["10001.0", "10001.1", "10002.0", "sampler.0"];
    let which = usize::from(from.u8()) % 8;
    if let Some(name) = logs.get(which) {
        let length = from.u16() % 2048;
        let bytes = from.take(length.into());
        for directory in [Some(spool), session].into_iter().flatten() {
            let path = directory.join(name);
            let magic: &[u8] = if path.exists() { b"" } else { b"AMPDEFS1" };
            append(&path, &[magic, bytes].concat());
        }
        return;
    }
    let stream = streams[which % 4];
    match session.filter(|_| which < 6) {
        None => {
            let length = from.u16() % 1024;
            let position = Store::open(&[spool.to_owned()]).records_of_all(|name| name == stream);
            append(&spool.join(RECORDS), &piece(stream, position, from.take(length.into())));
        }
        // The positions of the ring's reader and writer are arbitrary.
        Some(session) => {
            let (written, read) = (from.edge_u64(), from.edge_u64());
            let mut bytes = header(CAPACITY);
            for (at, position) in [(WRITE as usize, written), (READ as usize, read)] {
                bytes[at..at + 8].copy_from_slice(&position.to_le_bytes());
            }
            let count = usize::from(from.u8()) % CAPACITY as usize;
            bytes.extend_from_slice(from.take(16 * count));
            bytes.resize((4096 + 16 * CAPACITY) as usize, 0);
            let path = session.join(format!("{stream}.ring"));
            let _ = std::fs::remove_file(&path);
            append(&path, &bytes);
        }
    }
}

fn append(path: &Path, bytes: &[u8]) {
    let file = std::fs::OpenOptions::new().create(true).append(true).mode(0o600).open(path);
    file.and_then(|mut file| file.write_all(bytes)).expect("room");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seeds_play_whole_runs() {
        for (in_shared_memory, seed) in [
            (false, &include_bytes!("../../seeds/spool/disk-0")[..]),
            (true, include_bytes!("../../seeds/spool/shared-0")),
        ] {
            let summaries = recover_run(&mut Bytes::new(&seed[1..]), in_shared_memory);
            assert_eq!(summaries.len(), 1);
            let (run, quality) = (&summaries[0].run, &summaries[0].quality);
            assert!(quality.records.events > 20 && run.total_joules > 0.0, "{quality:?} {run:?}");
        }
    }
}
