//! Records on disk, as they came out of the rings: what the trace is made of at the end, and what a collector that takes over
//! reads again.
//!
//! One file per location. The record at ring position p lies at byte 16 x p, so writing a batch a second time changes
//! nothing, and a collector that takes over knows from the ring alone where to continue. A ring's slots are handed back only
//! after their records are here. They are read through the same open file, so that they survive the directory's removal.
//!
//! Beside them are copies of the definition logs and what else a run is finished with (the collector's `manifest.rs`).

use ampere_ring::{Kind, MOST_RECORDS, Record};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

const RECORD_BYTES: u64 = 16;

/// The directory of a run's spool files, if it is to have a trace at all.
#[derive(Clone, Debug)]
pub struct SpoolDirectory {
    /// Its path.
    pub directory: PathBuf,
    /// Whether records are kept.
    pub wanted: bool,
    /// The rings are lost: all remaining records are here.
    pub rings_are_lost: bool,
}

impl SpoolDirectory {
    /// Keeps no records.
    pub fn unused(directory: &Path) -> SpoolDirectory {
        SpoolDirectory { directory: directory.to_owned(), wanted: false, rings_are_lost: false }
    }

    /// The file for a ring of which so many records have been read: a new one, or the one in which these are. `None` where
    /// no trace is wanted.
    pub fn open(&self, name: &str, position: u64) -> io::Result<Option<Spool>> {
        if !self.wanted {
            return Ok(None);
        }
        let path = self.directory.join(name);
        match Spool::open(&path, position) {
            // The directory was removed.
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                make_private(&self.directory)?;
                Spool::open(&path, position).map(Some)
            }
            other => other.map(Some),
        }
    }

    /// The directory of the files about removed rings: that of their records, or without records the session's.
    pub fn of_retired<'a>(&'a self, session: &'a Path) -> &'a Path {
        if self.wanted { &self.directory } else { session }
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

/// A ring that was read to its end and removed: written before its removal, in a file beside its records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retired {
    /// That were in it.
    pub records: u64,
    /// That its writer left out.
    pub suppressed_calls: u64,
    /// That its writer had no room for.
    pub dropped_records: u64,
}

impl Retired {
    fn path(directory: &Path, stream: &str) -> PathBuf {
        directory.join(format!("{stream}.retired"))
    }

    /// Writes the file.
    pub fn save(&self, directory: &Path, stream: &str) -> io::Result<()> {
        let Retired { records, suppressed_calls, dropped_records } = self;
        let text = format!("{records} {suppressed_calls} {dropped_records}\n");
        ampere_ring::files::replace_private(&Retired::path(directory, stream), &text)
    }

    /// Reads the file; `None` if there is none, or no valid one.
    pub fn load(directory: &Path, stream: &str) -> Option<Retired> {
        let text = ampere_ring::files::read_text(&Retired::path(directory, stream));
        let mut numbers = text.split_whitespace().map(|word| word.parse().ok());
        let mut number = || numbers.next().flatten();
        let retired = Retired { records: number()?, suppressed_calls: number()?, dropped_records: number()? };
        Some(retired).filter(|retired| retired.records <= MOST_RECORDS)
    }
}

const NO_LINK: i32 = rustix::fs::OFlags::NOFOLLOW.bits() as i32;

/// The records of one location.
pub struct Spool {
    file: File,
    path: PathBuf,
    /// Records in the file: appended ones (synthetic ends of locations) follow them.
    end: u64,
    /// Nothing more is written.
    cut: bool,
}

impl Spool {
    /// Opens the file for a ring of which so many records have been read.
    pub fn open(path: &Path, position: u64) -> io::Result<Spool> {
        let mut options = std::fs::OpenOptions::new();
        // At the beginning of a ring, older records are another ring's.
        let file = options
            .create(true)
            .read(true)
            .write(true)
            .truncate(position == 0)
            .mode(0o600)
            .custom_flags(NO_LINK)
            .open(path)?;
        let end = file.metadata()?.len() / RECORD_BYTES;
        // Records that were read are missing here: nothing may follow the gap.
        Ok(Spool { file, path: path.to_owned(), end, cut: end < position })
    }

    /// How many of the records that were read are here.
    pub fn records_of(&self, position: u64) -> u64 {
        self.end.min(position)
    }

    /// The file's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The size of its records.
    pub fn bytes(&self) -> u64 {
        self.end * 16
    }

    /// Writes nothing more from here on.
    pub fn cut(&mut self) {
        self.cut = true;
    }

    /// Whether nothing more is written.
    pub fn is_cut(&self) -> bool {
        self.cut
    }

    /// Writes records whose first one has this position. After an error no more is written, or there would be a gap.
    pub fn write(&mut self, position: u64, records: &[Record]) -> io::Result<()> {
        if self.cut {
            return Ok(());
        }
        let bytes = Record::bytes_of(records);
        if let Err(error) = byte_of(position).and_then(|at| self.file.write_all_at(bytes, at)) {
            self.cut = true;
            return Err(error);
        }
        self.end = self.end.max(position + records.len() as u64);
        Ok(())
    }

    /// Discards the records from that position on: they are not the ring's, and will be overwritten.
    pub fn forget_from(&mut self, position: u64) {
        self.end = self.end.min(position);
    }

    /// Writes a record that is in no ring, after all others.
    pub fn append(&mut self, record: Record) -> io::Result<()> {
        self.write(self.end, &[record])
    }

    /// Hands over all records, in order, many at a time.
    pub fn read(&self, each: impl FnMut(&[Record]) -> anyhow::Result<()>) -> anyhow::Result<()> {
        (&self.file).seek(SeekFrom::Start(0))?;
        read_from((&self.file).take(self.bytes()), each)
    }

    /// The end that an earlier collector appended to the ring's last record.
    pub fn end_after(&self, position: u64) -> Option<Record> {
        let mut bytes = [0; RECORD_BYTES as usize];
        self.file.read_exact_at(&mut bytes, byte_of(position).ok()?).ok()?;
        Some(Record::from_bytes(&bytes)).filter(|record| record.kind() == Some(Kind::LocationEnd))
    }

    /// Copies records from a position to `into`: up to `most`, and none from `end` on. Returns how many.
    pub fn read_back(
        &self,
        position: u64,
        end: u64,
        most: usize,
        into: &mut Vec<Record>,
    ) -> io::Result<usize> {
        let count = end.min(self.end).saturating_sub(position).min(most as u64) as usize;
        let mut bytes = vec![0; count * RECORD_BYTES as usize];
        self.file.read_exact_at(&mut bytes, byte_of(position)?)?;
        let (records, _) = bytes.as_chunks();
        into.extend(records.iter().map(Record::from_bytes));
        Ok(count)
    }
}

/// A record's offset in its file. A damaged ring may claim any position.
fn byte_of(position: u64) -> io::Result<u64> {
    position.checked_mul(RECORD_BYTES).ok_or_else(|| io::ErrorKind::FileTooLarge.into())
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

/// Makes a directory that only this user can read, and those above it.
pub fn make_private(directory: &Path) -> io::Result<()> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)
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
    fn a_file_that_is_too_short_is_read_and_not_added_to() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("1.0.records");
        Spool::open(&path, 0).unwrap().write(0, &[Record::new(Kind::Enter, 1, 1)]).unwrap();
        assert!(!Spool::open(&path, 1).unwrap().is_cut());
        let mut short = Spool::open(&path, 2).unwrap();
        assert!(short.is_cut() && short.records_of(2) == 1);
        short.write(2, &[Record::new(Kind::Leave, 2, 1)]).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().len(), RECORD_BYTES);
        Spool::open(&path, 0).unwrap();
        assert_eq!(Spool::open(&path, 1).unwrap().records_of(1), 0, "a new ring has nothing of an old one's");
    }
}
