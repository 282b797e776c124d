//! Records on disk, as they came out of the rings: what the trace is made of at the end.
//!
//! One file per location. The record at ring position p lies at byte 16 x p, so writing a batch a second time changes
//! nothing, and a collector that takes over knows from the ring alone where to go on. A ring's slots are handed back only
//! after their records are here. They are read through the same open file, so that whoever removes the directory takes
//! nothing away.

use ampere_ring::Record;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
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
        if !self.wanted {
            return Ok(None);
        }
        let path = self.directory.join(name);
        match Spool::create(&path) {
            // Somebody has removed the directory.
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                std::fs::create_dir_all(&self.directory)?;
                Spool::create(&path).map(Some)
            }
            other => other.map(Some),
        }
    }
}

pub struct Spool {
    file: File,
    path: PathBuf,
    /// Records that are here: what is appended goes behind them (synthetic ends of locations).
    end: u64,
    /// No more is written.
    cut: bool,
}

impl Spool {
    pub fn create(path: &Path) -> io::Result<Spool> {
        let mut options = std::fs::OpenOptions::new();
        let file = options.create(true).read(true).write(true).truncate(false).mode(0o600).open(path)?;
        let end = file.metadata()?.len() / 16;
        Ok(Spool { file, path: path.to_owned(), end, cut: false })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn bytes(&self) -> u64 {
        self.end * 16
    }

    /// Ends here, whatever comes.
    pub fn cut(&mut self) {
        self.cut = true;
    }

    pub fn is_cut(&self) -> bool {
        self.cut
    }

    /// Writes records whose first one has this position. After an error no more is written, or there would be a gap.
    pub fn write(&mut self, position: u64, records: &[Record]) -> io::Result<()> {
        if self.cut {
            return Ok(());
        }
        if let Err(error) = self.file.write_all_at(Record::bytes_of(records), position * 16) {
            self.cut = true;
            return Err(error);
        }
        self.end = self.end.max(position + records.len() as u64);
        Ok(())
    }

    /// Writes a record that no ring holds.
    pub fn append(&mut self, record: Record) -> io::Result<()> {
        self.write(self.end, &[record])
    }

    /// Hands over all records, in order, many at a time.
    pub fn read(&self, each: impl FnMut(&[Record]) -> anyhow::Result<()>) -> anyhow::Result<()> {
        (&self.file).seek(SeekFrom::Start(0))?;
        read_from((&self.file).take(self.bytes()), each)
    }
}

/// Hands over every record of a spool file, in order. A last one that was written in part is left out.
pub fn read(path: &Path, mut each: impl FnMut(Record) -> anyhow::Result<()>) -> anyhow::Result<()> {
    read_from(File::open(path)?, |records| records.iter().try_for_each(|record| each(*record)))
}

/// Bytes that are read at a time.
const PIECE: usize = 256 << 10;

fn read_from(
    mut from: impl Read,
    mut each: impl FnMut(&[Record]) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let (mut bytes, mut filled) = (vec![0; PIECE], 0);
    let mut records = Vec::with_capacity(PIECE / 16);
    loop {
        let count = match from.read(&mut bytes[filled..]) {
            Ok(0) => return Ok(()),
            Ok(count) => count,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(e.into()),
        };
        filled += count;
        let (whole, rest) = bytes[..filled].as_chunks::<16>();
        records.clear();
        records.extend(whole.iter().map(Record::from_bytes));
        let (start, left) = (whole.len() * 16, rest.len());
        each(&records)?;
        bytes.copy_within(start..start + left, 0);
        filled = left;
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
