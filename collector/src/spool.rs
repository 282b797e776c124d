//! Records on disk, as they came out of the rings: what the trace is made of at the end, and what a collector that takes over
//! reads again.
//!
//! One file per location. The record at ring position p lies at byte 16 x p, so writing a batch a second time changes
//! nothing, and a collector that takes over knows from the ring alone where to go on. A ring's slots are handed back only
//! after their records are here.
//!
//! Beside them are copies of the definition logs and what else a run is finished with ([`crate::facts`]).

use crate::facts;
use ampere_ring::{Kind, Record};
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

const RECORD_BYTES: u64 = 16;

/// Where a run's spool files are made, if it is to have a trace at all.
#[derive(Clone, Debug)]
pub struct Place {
    pub directory: PathBuf,
    pub wanted: bool,
    /// The rings are lost: what there is, is here.
    pub rings_are_lost: bool,
}

impl Place {
    /// Records are not kept anywhere.
    pub fn nowhere(directory: &Path) -> Place {
        Place { directory: directory.to_owned(), wanted: false, rings_are_lost: false }
    }

    /// The file for a ring of which so many records have been read: a new one, or the one in which these are. `None` where
    /// no trace is wanted.
    pub fn open(&self, name: &str, position: u64) -> io::Result<Option<Spool>> {
        self.wanted.then(|| Spool::open(&self.directory.join(name), position)).transpose()
    }

    /// How many records a file has.
    pub fn records(&self, name: &str) -> u64 {
        std::fs::metadata(self.directory.join(name)).map_or(0, |data| data.len() / RECORD_BYTES)
    }

    /// A file for the copy of a log; `None` where the log itself is here.
    pub fn copy_of(&self, log: &Path) -> Option<File> {
        let path = self.directory.join(log.file_name()?);
        if log.parent() == Some(self.directory.as_path()) {
            return None;
        }
        std::fs::OpenOptions::new().create(true).write(true).truncate(false).mode(0o600).open(path).ok()
    }
}

pub struct Spool {
    file: File,
    path: PathBuf,
    bytes: Vec<u8>,
    /// Records after the last one that came from the ring (synthetic ends of locations).
    end: u64,
}

impl Spool {
    pub fn open(path: &Path, position: u64) -> io::Result<Spool> {
        let mut options = std::fs::OpenOptions::new();
        // At the beginning of a ring, what may be in the file is of another one.
        let file =
            options.create(true).read(true).write(true).truncate(position == 0).mode(0o600).open(path)?;
        let records = file.metadata()?.len() / RECORD_BYTES;
        if records < position {
            return Err(io::Error::other(format!(
                "{records} records are there of {position} that were read"
            )));
        }
        Ok(Spool { file, path: path.to_owned(), bytes: Vec::new(), end: position })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes records whose first one has this position.
    pub fn write(&mut self, position: u64, records: &[Record]) -> io::Result<()> {
        self.bytes.clear();
        records.iter().for_each(|record| self.bytes.extend_from_slice(&record.to_bytes()));
        self.file.write_all_at(&self.bytes, position * RECORD_BYTES)?;
        self.end = self.end.max(position + records.len() as u64);
        Ok(())
    }

    /// Writes a record that no ring holds.
    pub fn append(&mut self, record: Record) -> io::Result<()> {
        self.write(self.end, &[record])
    }

    /// The end that an earlier collector has written after the ring's last record.
    pub fn end_after(&self, position: u64) -> Option<Record> {
        let mut bytes = [0; RECORD_BYTES as usize];
        self.file.read_exact_at(&mut bytes, position * RECORD_BYTES).ok()?;
        Some(Record::from_bytes(&bytes)).filter(|record| record.kind() == Some(Kind::LocationEnd))
    }

    /// Copies records from a position to `into`: up to `most`, and none from `end` on. Returns how many.
    pub fn read_back(
        &mut self,
        position: u64,
        end: u64,
        most: usize,
        into: &mut Vec<Record>,
    ) -> io::Result<usize> {
        let count = end.saturating_sub(position).min(most as u64) as usize;
        self.bytes.resize(count * RECORD_BYTES as usize, 0);
        self.file.read_exact_at(&mut self.bytes, position * RECORD_BYTES)?;
        let (records, _) = self.bytes.as_chunks();
        into.extend(records.iter().map(Record::from_bytes));
        Ok(count)
    }
}

/// Hands over every record of a spool file, in order. A last one that was written in part is left out.
pub fn read(path: &Path, mut each: impl FnMut(Record) -> anyhow::Result<()>) -> anyhow::Result<()> {
    let mut from = BufReader::with_capacity(1 << 20, File::open(path)?);
    let mut bytes = [0; RECORD_BYTES as usize];
    loop {
        match from.read_exact(&mut bytes) {
            Ok(()) => each(Record::from_bytes(&bytes))?,
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(e) => return Err(e.into()),
        }
    }
}

/// Takes a spool away. What says that it is one goes first: half a spool is never taken for a whole one.
pub fn remove(directory: &Path) {
    let _ = std::fs::remove_file(directory.join(facts::FILE_NAME));
    let _ = std::fs::remove_dir_all(directory);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writing_twice_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("1.0.records");
        let all: Vec<Record> = (0..100).map(|i| Record::new(Kind::Enter, i, 1)).collect();
        let mut spool = Spool::open(&path, 0).unwrap();
        spool.write(0, &all[..60]).unwrap();
        // Killed before it had handed all of them back.
        let mut spool = Spool::open(&path, 40).unwrap();
        assert_eq!(spool.end_after(40), None);
        spool.write(40, &all[40..]).unwrap();
        let mut again = Vec::new();
        assert_eq!(spool.read_back(10, 90, 1000, &mut again).unwrap(), 80);
        assert_eq!(again, all[10..90]);
        spool.append(Record::new(Kind::LocationEnd, 100, 0)).unwrap();
        assert_eq!(spool.end_after(100).map(|end| end.word0), Some(100));
        let mut seen = Vec::new();
        read(&path, |record| {
            seen.push(record);
            Ok(())
        })
        .unwrap();
        assert_eq!(seen[..100], all);
        assert_eq!(seen[100].kind(), Some(Kind::LocationEnd));
    }

    #[test]
    fn a_file_that_is_too_short_is_not_gone_on_with() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("1.0.records");
        Spool::open(&path, 0).unwrap().write(0, &[Record::new(Kind::Enter, 1, 1)]).unwrap();
        assert!(Spool::open(&path, 1).is_ok());
        assert!(Spool::open(&path, 2).is_err());
        Spool::open(&path, 0).unwrap();
        assert!(Spool::open(&path, 1).is_err(), "a new ring has nothing of an old one's");
    }
}
