//! Reads an archive in which some bytes are changed, removed or repeated. A large part of the reader is the OTF2 library, so a
//! finding may be an error of that library.

use crate::bytes::Bytes;
use crate::scratch::directory;
use ampere_report::first::screen::Screen;
use ampere_report::text;
use ampere_settings::Config;
use ampere_trace::offline;
use ampere_trace::replay::Replay;
use std::path::{Path, PathBuf};

/// Returns a small archive of a real run.
pub fn archive() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds/archive")
}

fn files(of: &Path, below: &Path, into: &mut Vec<(PathBuf, Vec<u8>)>) {
    let mut entries: Vec<PathBuf> =
        std::fs::read_dir(of).expect("the seed archive").flatten().map(|entry| entry.path()).collect();
    entries.sort();
    for path in entries {
        let name = below.join(path.file_name().unwrap_or_default());
        if path.is_dir() {
            files(&path, &name, into);
        } else {
            into.push((name, std::fs::read(&path).expect("a file")));
        }
    }
}

pub fn run(data: &[u8]) {
    let mut all = Vec::new();
    files(&archive(), Path::new(""), &mut all);
    let mut from = Bytes::new(data);
    for _ in 0..32 {
        if from.is_empty() {
            break;
        }
        let which = usize::from(from.u8()) % all.len();
        let bytes = &mut all[which].1;
        let at = usize::from(from.u16()) % (bytes.len() + 1);
        match from.u8() % 6 {
            0 => bytes.truncate(at),
            1 if at < bytes.len() => bytes[at] ^= 1 << (from.u8() % 8),
            2 => {
                let part = bytes[at..bytes.len().min(at + usize::from(from.u8()))].to_vec();
                bytes.splice(at..at, part);
            }
            3 => {
                let to = bytes.len().min(at + usize::from(from.u8()));
                bytes.drain(at..to);
            }
            _ => {
                let length = from.u8() % 12;
                let part = from.take(length.into());
                for (to, new) in bytes[at..].iter_mut().zip(part) {
                    *to = *new;
                }
            }
        }
    }
    let place = directory("otf2").join("trace");
    let _ = std::fs::remove_dir_all(&place);
    std::fs::create_dir_all(place.join("traces")).expect("a directory");
    for (name, bytes) in &all {
        std::fs::write(place.join(name), bytes).expect("room");
    }
    let anchor = place.join("traces.otf2");
    match offline::attribute(&anchor, &Config::default(), None, &mut |_, _| {}) {
        Ok(found) => {
            let table = text::render(&found.summary, Screen::FILE);
            assert!(!table.chars().any(|c| c.is_control() && c != '\n'), "{table:?}");
        }
        Err(error) => assert!(!format!("{error:#}").is_empty()),
    }
    let _ = Replay::of_trace(&anchor, &Config::default());
}
