//! Records on disk, in the format of the rings. The trace is made from them at the end of the run. A collector that takes over
//! reads them again.
//!
//! Everything that a run keeps is in one file ([`store`]), which is written in large pieces: the records of each location, the
//! definition logs, and the counts of rings that have been removed. A piece contains its position in the ring, so writing it
//! again changes nothing, and a collector that takes over finds out from the ring where to continue. A ring's slots are handed
//! back only after their records are in the file. Pieces are read through the open file, so they survive the removal of the
//! directory.
//!
//! Everything else that is needed to finish a run is in the collector's `manifest.rs`.

mod store;

pub use store::{RECORDS, Store};

use ampere_ring::{Kind, POSITION_MAX, Record};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use store::PieceKind;

const RECORD_BYTES: u64 = 16;

/// Where a run keeps its records.
#[derive(Clone)]
pub struct SpoolDirectory {
    /// The directory `spool-<node>` in the output directory. A collector makes it to claim the output directory for its run.
    pub directory: PathBuf,
    /// Whether the run keeps records.
    pub wanted: bool,
    /// Whether the rings are lost, so that all remaining records are here.
    pub rings_are_lost: bool,
    store: Arc<Mutex<Store>>,
}

impl SpoolDirectory {
    /// Returns the spool directory of a run. `store` has the records so far and takes new ones.
    pub fn new(directory: &Path, store: Store, wanted: bool, rings_are_lost: bool) -> SpoolDirectory {
        let store = Arc::new(Mutex::new(store));
        SpoolDirectory { directory: directory.to_owned(), wanted, rings_are_lost, store }
    }

    /// Returns a spool directory that keeps no records.
    pub fn unused(directory: &Path) -> SpoolDirectory {
        SpoolDirectory::new(directory, Store::default(), false, false)
    }

    pub fn store(&self) -> MutexGuard<'_, Store> {
        locked(&self.store)
    }

    /// Opens the records of a ring whose first `position` records have been read; `None` if no records are kept.
    pub fn open(&self, stream: &str, position: u64) -> Option<Spool> {
        self.wanted.then(|| Spool::open(&self.store, stream, position))
    }

    pub fn records(&self, stream: &str) -> u64 {
        self.store().records(stream)
    }

    /// Returns a function that keeps a copy of a log; `None` if no copy is kept or the log itself is a copy.
    pub fn copy_of(&self, log: &Path) -> Option<ampere_ring::definitions::CopyLog> {
        let name = log.file_stem()?.to_str()?.to_owned();
        if !self.wanted || log.parent() == Some(self.directory.as_path()) {
            return None;
        }
        let store = self.store.clone();
        Some(Box::new(move |offset, bytes| locked(&store).put(PieceKind::Log, &name, offset, bytes).is_ok()))
    }

    /// Saves the counts of a ring that is about to be removed: next to its records, or in the session if no records are kept.
    pub fn retire(&self, session: &Path, stream: &str, retired: &Retired) -> io::Result<()> {
        if !self.wanted {
            return ampere_ring::files::replace_private(&Retired::path(session, stream), &retired.text());
        }
        let mut store = self.store();
        store.put(PieceKind::Retired, stream, 0, retired.text().as_bytes())?;
        store.flush()
    }

    /// Returns the counts that were saved when a ring was removed.
    pub fn retired(&self, session: &Path, stream: &str) -> Option<Retired> {
        match self.wanted {
            true => self.store().retired(stream),
            false => Retired::of(&ampere_ring::files::read_text(&Retired::path(session, stream))),
        }
    }
}

fn locked(store: &Mutex<Store>) -> MutexGuard<'_, Store> {
    store.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// The counts of a ring that was read to its end and removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retired {
    pub records: u64,
    /// The calls that its writer left out because the ring was nearly full.
    pub suppressed_calls: u64,
    /// The records for which the ring had no space.
    pub dropped_records: u64,
}

impl Retired {
    fn path(directory: &Path, stream: &str) -> PathBuf {
        directory.join(format!("{stream}.retired"))
    }

    fn text(&self) -> String {
        let Retired { records, suppressed_calls, dropped_records } = self;
        format!("{records} {suppressed_calls} {dropped_records}\n")
    }

    fn of(text: &str) -> Option<Retired> {
        let mut numbers = text.split_whitespace().map(|word| word.parse().ok());
        let mut number = || numbers.next().flatten();
        let retired = Retired { records: number()?, suppressed_calls: number()?, dropped_records: number()? };
        Some(retired).filter(|retired| retired.records <= POSITION_MAX)
    }
}

/// The records of one location.
pub struct Spool {
    stream: String,
    store: Arc<Mutex<Store>>,
    /// The pieces in the order of positions, without a gap.
    pieces: Vec<Piece>,
    /// Whether nothing more is written.
    cut: bool,
}

/// A contiguous block of one location's records in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    /// The position after the last record. A piece starts at the end of the piece before.
    end: u64,
    /// The position of its first byte in the store.
    at: u64,
}

/// The pieces of a stream in the order in which they were written.
#[derive(Clone, Default)]
struct Pieces(Vec<Piece>);

impl Pieces {
    fn end(&self) -> u64 {
        self.0.last().map_or(0, |piece| piece.end)
    }

    /// Adds a piece. It replaces the records that start at its position or later. A piece that would leave a gap is ignored.
    fn add(&mut self, position: u64, records: u64, at: u64) {
        if position <= self.end() {
            self.forget_from(position);
            self.0.push(Piece { end: position.saturating_add(records), at });
        }
    }

    /// Keeps the pieces that end at or before a position, and the piece that contains it, which it shortens.
    fn forget_from(&mut self, position: u64) {
        self.0.truncate(self.0.partition_point(|piece| piece.end <= position) + 1);
        let before = self.0.len().checked_sub(2).map_or(0, |at| self.0[at].end);
        if before >= position {
            self.0.pop();
        } else if let Some(last) = self.0.last_mut() {
            last.end = last.end.min(position);
        }
    }
}

impl Spool {
    /// Opens a stream's records in a store, for a ring whose first `position` records have been read.
    fn open(store: &Arc<Mutex<Store>>, stream: &str, position: u64) -> Spool {
        let mut pieces = locked(store).pieces(stream);
        if position == 0 {
            pieces = Pieces::default(); // the ring is new, so older records belong to another ring
        }
        // If records that were read are missing here, nothing may be written after the gap.
        let cut = pieces.end() < position;
        Spool { stream: stream.to_owned(), store: store.clone(), pieces: pieces.0, cut }
    }

    /// Returns the position after the last record. Appended records (artificial ends of locations) follow those of the ring.
    pub fn end(&self) -> u64 {
        self.pieces.last().map_or(0, |piece| piece.end)
    }

    /// Returns how many of the first `position` records are here.
    pub fn records_of(&self, position: u64) -> u64 {
        self.end().min(position)
    }

    /// Returns the size of the records in bytes.
    pub fn bytes(&self) -> u64 {
        self.end() * RECORD_BYTES
    }

    /// Prevents any further writing.
    pub fn cut(&mut self) {
        self.cut = true;
    }

    /// Whether nothing more is written.
    pub fn is_cut(&self) -> bool {
        self.cut
    }

    /// Adds records, of which the first has this position. They are on disk after [`Store::flush`].
    pub fn write(&mut self, position: u64, records: &[Record]) -> io::Result<()> {
        if self.cut || records.is_empty() {
            return Ok(());
        }
        let put =
            locked(&self.store).put(PieceKind::Records, &self.stream, position, Record::bytes_of(records));
        let at = put.inspect_err(|_| self.cut_unwritten())?;
        let mut pieces = Pieces(std::mem::take(&mut self.pieces));
        pieces.add(position, records.len() as u64, at);
        self.pieces = pieces.0;
        Ok(())
    }

    /// Removes the records that are not on disk yet, after an error. Nothing more is written, because there would be a gap.
    pub fn cut_unwritten(&mut self) {
        let written = locked(&self.store).written();
        self.pieces.truncate(self.pieces.partition_point(|piece| piece.at < written));
        self.cut = true;
    }

    /// Discards the records from this position on, which are not from the ring and will be overwritten.
    pub fn forget_from(&mut self, position: u64) {
        let mut pieces = Pieces(std::mem::take(&mut self.pieces));
        pieces.forget_from(position);
        self.pieces = pieces.0;
    }

    /// Writes a record that is not from the ring, after all others.
    pub fn append(&mut self, record: Record) -> io::Result<()> {
        self.write(self.end(), &[record])
    }

    /// Passes all records to `each`, in order, in batches.
    pub fn read(&self, mut each: impl FnMut(&[Record]) -> anyhow::Result<()>) -> anyhow::Result<()> {
        let mut position = 0;
        let mut records = Vec::with_capacity(RECORDS_AT_ONCE);
        let mut bytes = Vec::new();
        while position < self.end() {
            records.clear();
            self.read_by(&mut bytes, position, self.end(), RECORDS_AT_ONCE, &mut records)?;
            position += records.len() as u64;
            each(&records)?;
        }
        Ok(())
    }

    /// Returns the end of the location that an earlier collector appended at this position, after the ring's last record.
    pub fn end_after(&self, position: u64) -> Option<Record> {
        let mut record = Vec::new();
        self.read_back(position, position.saturating_add(1), 1, &mut record).ok()?;
        record.pop().filter(|record| record.kind() == Some(Kind::LocationEnd))
    }

    /// Copies records from `position` up to `end`, and at most `limit`, to `into`. Returns the number of copied records.
    pub fn read_back(
        &self,
        position: u64,
        end: u64,
        limit: usize,
        into: &mut Vec<Record>,
    ) -> io::Result<usize> {
        self.read_by(&mut Vec::new(), position, end, limit, into)
    }

    fn read_by(
        &self,
        bytes: &mut Vec<u8>,
        position: u64,
        end: u64,
        limit: usize,
        into: &mut Vec<Record>,
    ) -> io::Result<usize> {
        let (mut at, end) = (position, end.min(self.end()).min(position.saturating_add(limit as u64)));
        let first = self.pieces.partition_point(|piece| piece.end <= position);
        for number in first..self.pieces.len() {
            let begin = number.checked_sub(1).map_or(0, |before| self.pieces[before].end);
            let piece = self.pieces[number];
            let count = piece.end.min(end).saturating_sub(at);
            if count == 0 {
                break;
            }
            bytes.resize((count * RECORD_BYTES) as usize, 0);
            store::read_at(&self.store, piece.at + (at - begin) * RECORD_BYTES, bytes)?;
            into.extend(bytes.as_chunks().0.iter().map(Record::from_bytes));
            at += count;
        }
        Ok(at.saturating_sub(position) as usize)
    }
}

/// The number of records that are read at a time. They fit into the second-level cache.
const RECORDS_AT_ONCE: usize = 4 << 10;

#[cfg(test)]
mod tests;
