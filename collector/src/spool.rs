//! Records on disk, as they came out of the rings: what the trace is made of at the end.
//!
//! One file per location. The record at ring position p lies at byte 16 x p, so writing a batch a second time changes
//! nothing, and a collector that takes over knows from the ring alone where to go on. A ring's slots are handed back only
//! after their records are here.

use ampere_ring::Record;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Where a run's spool files are made, if it is to have a trace at all.
#[derive(Clone, Debug)]
pub struct Place {
    pub directory: PathBuf,
    pub wanted: bool,
}

impl Place {
    /// A new file there; `None` where no trace is wanted.
    pub fn create(&self, name: &str) -> io::Result<Option<Spool>> {
        self.wanted.then(|| Spool::create(&self.directory.join(name))).transpose()
    }
}

const NO_LINK: i32 = rustix::fs::OFlags::NOFOLLOW.bits() as i32;

pub struct Spool {
    file: File,
    path: PathBuf,
    bytes: Vec<u8>,
    /// Records after the last one that came from the ring (synthetic ends of locations).
    end: u64,
}

impl Spool {
    pub fn create(path: &Path) -> io::Result<Spool> {
        let file = std::fs::OpenOptions::new()
            .create(true)
            .write(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(NO_LINK)
            .open(path)?;
        Ok(Spool { file, path: path.to_owned(), bytes: Vec::new(), end: 0 })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes records whose first one has this position.
    pub fn write(&mut self, position: u64, records: &[Record]) -> io::Result<()> {
        self.bytes.clear();
        records.iter().for_each(|record| self.bytes.extend_from_slice(&record.to_bytes()));
        self.file.write_all_at(&self.bytes, position * 16)?;
        self.end = self.end.max(position + records.len() as u64);
        Ok(())
    }

    /// Writes a record that no ring holds.
    pub fn append(&mut self, record: Record) -> io::Result<()> {
        self.write(self.end, &[record])
    }
}

/// Hands over every record of a spool file, in order. A last one that was written in part is left out.
pub fn read(path: &Path, mut each: impl FnMut(Record) -> anyhow::Result<()>) -> anyhow::Result<()> {
    let mut from = BufReader::with_capacity(1 << 20, File::open(path)?);
    let mut bytes = [0; 16];
    loop {
        match from.read_exact(&mut bytes) {
            Ok(()) => each(Record::from_bytes(&bytes))?,
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(e) => return Err(e.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ampere_ring::Kind;

    #[test]
    fn writing_twice_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("1.0.records");
        let all: Vec<Record> = (0..100).map(|i| Record::new(Kind::Enter, i, 1)).collect();
        let mut spool = Spool::create(&path).unwrap();
        spool.write(0, &all[..60]).unwrap();
        let mut spool = Spool::create(&path).unwrap();
        spool.write(40, &all[40..]).unwrap();
        spool.append(Record::new(Kind::LocationEnd, 100, 0)).unwrap();
        let mut seen = Vec::new();
        read(&path, |record| {
            seen.push(record);
            Ok(())
        })
        .unwrap();
        assert_eq!(seen[..100], all);
        assert_eq!(seen[100].kind(), Some(Kind::LocationEnd));
    }
}
