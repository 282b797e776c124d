//! A table, in the session's directory, of the amounts that the processes of a run have counted: units of work, and ranges.
//!
//! A process adds to a row of its own with one atomic operation, and the sampler reads the sums. Nothing is lost if a process or
//! the collector is killed, however many calls a second there are: the memory outlives both.
//!
//! ```text
//! byte   field                        written by
//!    0   magic "AMPWORK1"             creator
//!    8   rows that were claimed  u64  processes: incremented by each claim that finds a free row
//!   16   calls without units     u64  processes: calls whose units are not counted
//!   24   ranges without a row    u64  processes: ranges that are not counted
//!   64   rows of 128 bytes:
//!        0   units               f64  processes that count with this name
//!        8   kind                u32  the process that claimed the row: the number of a `Counted` once the name is valid
//!       12   bytes of the name   u32  the same process
//!       16   name, UTF-8
//! ```
//!
//! Several rows may have the same kind and name; they are added up. While half of the rows are free, each process claims its
//! own, so that processes do not slow each other down. Further processes share the rows of the others.

use crate::error::Error;
use crate::mapping::{self, Mapping};
use crate::process;
use crate::session::Session;
use ampere_model::Counted;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

const MAGIC: u64 = u64::from_le_bytes(*b"AMPWORK1");
const FILE_NAME: &str = "work";
/// The maximum number of rows, and so of names.
pub const ROWS_MAX: usize = 4096;
/// The number of rows after which a process shares the rows of others.
const OWN_ROWS_MAX: u64 = ROWS_MAX as u64 / 2;
/// The maximum number of bytes of a name. Longer names are cut.
pub const NAME_BYTES_MAX: usize = 112;

#[repr(C, align(64))]
struct Header {
    magic: AtomicU64,
    claimed: AtomicU64,
    left_out: AtomicU64,
    ranges_left_out: AtomicU64,
}

#[repr(C, align(64))]
struct Row {
    units: AtomicU64,
    kind: AtomicU32,
    length: AtomicU32,
    name: [AtomicU8; NAME_BYTES_MAX],
}

const BYTES: u64 = (size_of::<Header>() + ROWS_MAX * size_of::<Row>()) as u64;
const _: () = assert!(size_of::<Header>() == 64 && size_of::<Row>() == 128);

/// A run's table of units of work and ranges, on one node.
pub struct WorkTable {
    map: Mapping,
}

// SAFETY: the table consists of atomics; the mapping belongs to no thread.
unsafe impl Send for WorkTable {}
// SAFETY: as above.
unsafe impl Sync for WorkTable {}

/// The units that have been counted with one name.
pub struct WorkRow<'a>(&'a AtomicU64);

impl<'a> WorkRow<'a> {
    /// Adds units, which must be finite and positive.
    pub fn add(&self, units: f64) {
        let add = |bits: u64| Some((f64::from_bits(bits) + units).to_bits());
        // Relaxed: nothing else depends on the value.
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
    }

    /// Returns the sum as it is stored: the bits of an `f64`.
    pub fn bits(&self) -> &'a AtomicU64 {
        self.0
    }
}

/// Whether this is an amount that can be counted.
pub fn is_amount(units: f64) -> bool {
    units.is_finite() && units > 0.0
}

/// Returns the part of a name that has room in a row.
fn cut(name: &str) -> &str {
    let most = name.len().min(NAME_BYTES_MAX);
    let end = (0..=most).rev().find(|end| name.is_char_boundary(*end));
    &name[..end.unwrap_or(0)]
}

impl WorkTable {
    /// Opens the table of a session, making it if it does not exist.
    pub fn open_or_create(session: &Session) -> Result<WorkTable, Error> {
        let path = session.directory().join(FILE_NAME);
        if !path.exists() {
            // The table is made under another name and then linked, so that others find only complete ones. Several threads of a
            // process may be doing this, each with a name of its own.
            static TRIES: AtomicU32 = AtomicU32::new(0);
            let this = TRIES.fetch_add(1, Ordering::Relaxed);
            let making = session.directory().join(format!("{FILE_NAME}.{}.{this}", process::own_name()));
            let _ = std::fs::remove_file(&making);
            let table = WorkTable { map: mapping::create(&making, BYTES, session.headroom())? };
            table.header().magic.store(MAGIC, Ordering::Relaxed);
            let linked = std::fs::hard_link(&making, &path);
            let _ = std::fs::remove_file(&making);
            match linked {
                Ok(()) => return Ok(table),
                Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(Error::io("create", &path, e)),
            }
        }
        WorkTable::open_file(&path)
    }

    /// Opens the table in a session's directory. `None` if no process has counted work.
    ///
    /// # Errors
    /// A file that is not such a table, or that cannot be opened.
    pub fn open(directory: &Path) -> Result<Option<WorkTable>, Error> {
        let path = directory.join(FILE_NAME);
        if !path.exists() {
            return Ok(None);
        }
        WorkTable::open_file(&path).map(Some)
    }

    fn open_file(path: &Path) -> Result<WorkTable, Error> {
        let table = WorkTable { map: mapping::open(path, BYTES)? };
        match table.header().magic.load(Ordering::Relaxed) {
            MAGIC => Ok(table),
            _ => Err(Error::malformed(path, "it does not begin with AMPWORK1")),
        }
    }

    fn header(&self) -> &Header {
        // SAFETY: the mapping is page-aligned, at least BYTES long (checked when made or opened), lives as long as self, and
        // every field is an atomic, valid for any bytes.
        unsafe { &*self.map.as_ptr().cast::<Header>() }
    }

    fn rows(&self) -> &[Row] {
        // SAFETY: as above; the rows follow the header, and fit into BYTES.
        unsafe { std::slice::from_raw_parts(self.map.as_ptr().add(size_of::<Header>()).cast(), ROWS_MAX) }
    }

    /// Returns the rows that were claimed.
    fn claimed(&self) -> &[Row] {
        let claimed = self.header().claimed.load(Ordering::Relaxed);
        &self.rows()[..claimed.min(ROWS_MAX as u64) as usize]
    }

    /// Returns a row for a name. If `is_own` is set and less than half of the rows are claimed, it is a new one. Otherwise it is
    /// one that exists, or, if the name has none, a new one; `None` if the table is full.
    pub fn row(&self, kind: Counted, name: &str, is_own: bool) -> Option<WorkRow<'_>> {
        let name = cut(name);
        let has_room = self.header().claimed.load(Ordering::Relaxed) < OWN_ROWS_MAX;
        let known = || self.claimed().iter().find(|row| row.is_of(kind, name));
        let row = if is_own && has_room { None } else { known() };
        row.or_else(|| self.claim(kind, name)).map(|row| WorkRow(&row.units))
    }

    /// Records that the units of a call are not counted: they are not an amount, or there is no row.
    pub fn leave_out(&self) {
        self.header().left_out.fetch_add(1, Ordering::Relaxed);
    }

    /// Records that a range is not counted, because there is no row.
    pub fn leave_out_range(&self) {
        self.header().ranges_left_out.fetch_add(1, Ordering::Relaxed);
    }

    fn claim(&self, kind: Counted, name: &str) -> Option<&Row> {
        let claimed = &self.header().claimed;
        // The number stays in bounds, however often a row of a full table is requested.
        let next = claimed.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |rows| {
            (rows < ROWS_MAX as u64).then(|| rows + 1)
        });
        let row = self.rows().get(next.ok()? as usize)?;
        row.name.iter().zip(name.bytes()).for_each(|(to, byte)| to.store(byte, Ordering::Relaxed));
        row.length.store(name.len() as u32, Ordering::Relaxed);
        // Release: pairs with the Acquire in `metric`.
        row.kind.store(kind as u32, Ordering::Release);
        Some(row)
    }

    /// Returns the units of each name so far, by the name of their metric.
    pub fn totals(&self) -> BTreeMap<String, f64> {
        let mut totals = BTreeMap::new();
        for row in self.claimed() {
            let Some(metric) = row.metric() else { continue };
            let units = f64::from_bits(row.units.load(Ordering::Relaxed));
            if is_amount(units) {
                *totals.entry(metric).or_default() += units;
            }
        }
        totals
    }

    /// Returns the number of calls whose units are not counted.
    pub fn left_out(&self) -> u64 {
        self.header().left_out.load(Ordering::Relaxed)
    }

    /// Returns the number of ranges that are not counted.
    pub fn ranges_left_out(&self) -> u64 {
        self.header().ranges_left_out.load(Ordering::Relaxed)
    }
}

impl Row {
    /// Whether the row has this kind and this name. A row whose kind and name are not valid yet has neither.
    fn is_of(&self, kind: Counted, name: &str) -> bool {
        let bytes = self.name.iter().map(|byte| byte.load(Ordering::Relaxed));
        // Acquire: pairs with the Release in `claim`.
        self.kind.load(Ordering::Acquire) == kind as u32
            && self.length.load(Ordering::Relaxed) as usize == name.len()
            && bytes.zip(name.bytes()).all(|(byte, other)| byte == other)
    }

    /// Returns the name of the row's metric, once kind and name are valid.
    fn metric(&self) -> Option<String> {
        // Acquire: as above.
        let kind = Counted::of_number(self.kind.load(Ordering::Acquire))?;
        let length = (self.length.load(Ordering::Relaxed) as usize).min(NAME_BYTES_MAX);
        let bytes: Vec<u8> = self.name[..length].iter().map(|byte| byte.load(Ordering::Relaxed)).collect();
        Some(kind.metric(&String::from_utf8_lossy(&bytes)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session() -> (tempfile::TempDir, Session) {
        let place = tempfile::tempdir().unwrap();
        let session = Session::open_or_create_in(place.path()).unwrap();
        (place, session)
    }

    fn totals_of(table: &WorkTable) -> Vec<(String, f64)> {
        table.totals().into_iter().collect()
    }

    #[test]
    fn threads_that_make_the_table_at_once_count_in_the_same_one() {
        for _ in 0..50 {
            let (place, session) = session();
            let barrier = std::sync::Barrier::new(4);
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| {
                        barrier.wait();
                        let table = WorkTable::open_or_create(&session).unwrap();
                        table.row(Counted::Work, "steps", true).unwrap().add(1.0);
                    });
                }
            });
            let table = WorkTable::open(place.path()).unwrap().unwrap();
            assert_eq!(totals_of(&table), [(Counted::Work.metric("steps"), 4.0)]);
            assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 2, "the page and the table");
        }
    }

    #[test]
    fn threads_and_processes_add_to_the_same_names_and_no_unit_is_lost() {
        let (place, session) = session();
        assert!(WorkTable::open(place.path()).unwrap().is_none(), "there is no table before the first unit");
        let table = WorkTable::open_or_create(&session).unwrap();
        let other = WorkTable::open_or_create(&session).unwrap();
        std::thread::scope(|scope| {
            for table in [&table, &table, &other] {
                let row = table.row(Counted::Work, "steps", true).unwrap();
                scope.spawn(move || (0..100_000).for_each(|_| row.add(1.0)));
            }
        });
        other.row(Counted::Work, "steps", false).unwrap().add(0.5);
        other.row(Counted::Work, "cells", false).unwrap().add(2.0);
        let read = WorkTable::open(place.path()).unwrap().unwrap();
        other.row(Counted::RangeSeconds, "steps", false).unwrap().add(1.5);
        let expected = [
            ("ampere::range_seconds::steps".to_owned(), 1.5),
            ("ampere::work::cells".to_owned(), 2.0),
            ("ampere::work::steps".to_owned(), 300_000.5),
        ];
        assert_eq!(totals_of(&read), expected, "a name may be one of work and of ranges");
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 2, "the session's page and the table");
    }

    #[test]
    fn a_full_table_keeps_known_names_and_counts_what_is_left_out() {
        let (_place, session) = session();
        let table = WorkTable::open_or_create(&session).unwrap();
        let is_row = |at: usize| table.row(Counted::Work, &format!("name {at}"), true).is_some();
        assert_eq!((0..ROWS_MAX + 10).filter(|at| is_row(*at)).count(), ROWS_MAX);
        table.leave_out();
        table.leave_out_range();
        assert_eq!((table.left_out(), table.ranges_left_out()), (1, 1));
        table.row(Counted::Work, "name 7", true).unwrap().add(1.0);
        assert_eq!(totals_of(&table), [("ampere::work::name 7".to_owned(), 1.0)]);
        let has = |name: &str| table.row(Counted::Work, name, false).is_some();
        assert!(has("name 7") && !has("another"));
    }

    #[test]
    fn a_name_is_cut_between_characters_and_damaged_rows_are_read() {
        let (place, session) = session();
        let table = WorkTable::open_or_create(&session).unwrap();
        let long = format!("{}ü{}", "x".repeat(NAME_BYTES_MAX - 1), "y".repeat(50));
        table.row(Counted::Work, &long, true).unwrap().add(3.0);
        assert_eq!(totals_of(&table), [(Counted::Work.metric(&"x".repeat(NAME_BYTES_MAX - 1)), 3.0)]);
        let row = &table.rows()[0];
        row.length.store(u32::MAX, Ordering::Relaxed);
        row.name[0].store(0xff, Ordering::Relaxed);
        assert!(table.totals().keys().next().unwrap().starts_with("ampere::work::\u{fffd}"));
        for units in [f64::NAN, f64::INFINITY, -1.0] {
            row.units.store(units.to_bits(), Ordering::Relaxed);
            assert!(table.totals().is_empty(), "{units}");
        }
        row.units.store(1.0f64.to_bits(), Ordering::Relaxed);
        row.kind.store(6, Ordering::Relaxed);
        assert!(table.totals().is_empty(), "there is no kind 6");
        table.header().claimed.store(u64::MAX, Ordering::Relaxed);
        assert!(table.totals().is_empty() && table.row(Counted::Work, "z", true).is_none());
        std::fs::write(place.path().join(FILE_NAME), vec![0; BYTES as usize]).unwrap();
        assert!(WorkTable::open(place.path()).is_err());
    }
}
