//! Computes the joules of single calls: the trace is attributed once more, and the joules of each call are kept in a separate
//! file until the calls are written.
//!
//! For each of its devices, a location has a stream of calls, in the order in which they were left. If the location started to
//! draw from a device only later, that stream lacks the location's first calls.

use crate::calls::{CallSink, CallTable, unlinked_file};
use crate::offline::{self, AttributionOptions};
use ampere_report::call_table::{CallRow, Names, Paths};
use rusqlite::{Connection, params};
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::io;
use std::path::Path;

/// The number of rows that are read at a time.
const BATCH: i64 = 4096;

/// Node, process and name of a location.
pub type Where = (String, String, String);

/// Node and name of a device.
pub type DeviceName = (String, String);

/// Exclusive and inclusive joules of a call.
pub type Charge = (f64, f64);

pub struct CallJoules {
    connection: Connection,
    streams: Vec<Stream>,
    by_location: HashMap<Where, Vec<usize>>,
    /// The exclusive joules of all calls.
    pub sums: BTreeMap<DeviceName, f64>,
}

/// The calls of a location with the joules of one device.
struct Stream {
    number: i64,
    /// The number of the location's calls before the first one in this stream.
    before: u64,
    next: i64,
    read: VecDeque<Charge>,
}

/// Attributes a trace. `wanted` selects the devices whose joules are added up. `scratch` is a file that the caller removes.
pub fn attribute(
    trace: &Path,
    options: AttributionOptions,
    wanted: &HashSet<DeviceName>,
    scratch: &Path,
) -> anyhow::Result<CallJoules> {
    let AttributionOptions { config, only, threads, progress, .. } = options;
    let begin_pass = |clock| {
        let _ = std::fs::remove_file(scratch); // from the previous pass
        let sink = Sink::create(scratch, wanted.clone()).map_err(io::Error::other)?;
        let spill_file = scratch.with_extension("waiting");
        let file = move || unlinked_file(&spill_file);
        Ok(Box::new(CallTable::new(Box::new(sink), clock, only, Box::new(file))) as _)
    };
    offline::attribute_as(
        trace,
        AttributionOptions {
            config,
            only,
            waits: false,
            recorder: Some(Box::new(begin_pass)),
            threads,
            progress,
        },
    )?;
    Ok(CallJoules::open(scratch)?)
}

/// A stream as it was written to the file.
struct Listed {
    location: Where,
    /// The device's name; empty for calls that drew from no device.
    device: String,
    number: i64,
    is_wanted: bool,
    rows: u64,
    joules: f64,
}

fn streams(connection: &Connection) -> rusqlite::Result<Vec<Listed>> {
    let mut all = connection
        .prepare("SELECT node, process, location, device, number, is_wanted, rows, joules FROM stream")?;
    let rows = all.query_map([], |row| {
        Ok(Listed {
            location: (row.get(0)?, row.get(1)?, row.get(2)?),
            device: row.get(3)?,
            number: row.get(4)?,
            is_wanted: row.get(5)?,
            rows: row.get::<_, i64>(6)? as u64,
            joules: row.get(7)?,
        })
    })?;
    rows.collect()
}

struct Sink {
    connection: Connection,
    wanted: HashSet<DeviceName>,
    /// The streams by the numbers of the names of their node, process, location and device.
    streams: HashMap<[u32; 4], Written>,
}

struct Written {
    number: i64,
    is_wanted: bool,
    rows: i64,
    joules: f64,
}

impl Sink {
    fn create(path: &Path, wanted: HashSet<DeviceName>) -> rusqlite::Result<Sink> {
        let connection = Connection::open(path)?;
        connection.execute_batch(
            "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; BEGIN;
             CREATE TABLE charge (stream INTEGER, row INTEGER, exclusive REAL, inclusive REAL, PRIMARY KEY (stream, row)) WITHOUT ROWID;
             CREATE TABLE stream (
                 number INTEGER PRIMARY KEY, node TEXT, process TEXT, location TEXT, device TEXT, is_wanted INTEGER, rows INTEGER,
                 joules REAL);",
        )?;
        Ok(Sink { connection, wanted, streams: HashMap::new() })
    }

    fn put(&mut self, row: &CallRow, names: &Names) -> rusqlite::Result<()> {
        let (place, device) = (row.place, row.device.device);
        let next = self.streams.len() as i64;
        let stream =
            self.streams.entry([place.node, place.rank, place.thread, device]).or_insert_with(|| {
                let name = |number: u32| names.all()[number as usize].clone();
                let is_wanted = self.wanted.contains(&(name(place.node), name(device)));
                Written { number: next, is_wanted, rows: 0, joules: 0.0 }
            });
        if stream.is_wanted {
            let mut put = self.connection.prepare_cached("INSERT INTO charge VALUES (?, ?, ?, ?)")?;
            put.execute(params![stream.number, stream.rows, row.exclusive_joules, row.inclusive_joules])?;
        }
        stream.rows += 1;
        stream.joules += row.exclusive_joules;
        Ok(())
    }

    fn end(self, names: &Names) -> rusqlite::Result<()> {
        let mut put = self.connection.prepare_cached("INSERT INTO stream VALUES (?, ?, ?, ?, ?, ?, ?, ?)")?;
        for (names_of, stream) in &self.streams {
            let [node, process, location, device] = names_of.map(|number| &names.all()[number as usize]);
            let Written { number, is_wanted, rows, joules } = stream;
            put.execute(params![number, node, process, location, device, is_wanted, rows, joules])?;
        }
        drop(put);
        self.connection.execute_batch("COMMIT")
    }
}

impl CallSink for Sink {
    fn push(&mut self, row: &CallRow, names: &Names, _: &Paths) -> io::Result<()> {
        self.put(row, names).map_err(io::Error::other)
    }

    fn finish(self: Box<Self>, names: Names, _: Paths) -> io::Result<()> {
        self.end(&names).map_err(io::Error::other)
    }
}

impl CallJoules {
    fn open(path: &Path) -> rusqlite::Result<CallJoules> {
        let connection = Connection::open(path)?;
        let all = streams(&connection)?;
        // For each location, the number of calls that drew from no device, and the largest number of calls that a device has.
        let mut calls: HashMap<Where, (u64, u64)> = HashMap::new();
        for stream in &all {
            let (unlinked, linked) = calls.entry(stream.location.clone()).or_default();
            match stream.device.is_empty() {
                true => *unlinked = stream.rows,
                false => *linked = (*linked).max(stream.rows),
            }
        }
        let (streams, by_location, sums) = Default::default();
        let mut charged = CallJoules { connection, streams, by_location, sums };
        for Listed { location, device, number, is_wanted, rows, joules } in all {
            if is_wanted {
                let (unlinked, linked) = calls[&location];
                let before = unlinked + linked - rows;
                *charged.sums.entry((location.0.clone(), device)).or_default() += joules;
                charged.by_location.entry(location).or_default().push(charged.streams.len());
                charged.streams.push(Stream { number, before, next: 0, read: VecDeque::new() });
            }
        }
        Ok(charged)
    }

    pub fn of(&self, location: &Where) -> Vec<usize> {
        self.by_location.get(location).cloned().unwrap_or_default()
    }

    /// Returns the charge of the next call that a location leaves, summed over its streams; `None` if it draws from no device.
    pub fn next(&mut self, streams: &[usize]) -> rusqlite::Result<Option<Charge>> {
        let mut sum = None;
        for at in streams {
            let stream = &mut self.streams[*at];
            if stream.before > 0 {
                stream.before -= 1;
                continue;
            }
            if stream.read.is_empty() {
                let mut rows = self.connection.prepare_cached(
                    "SELECT exclusive, inclusive FROM charge WHERE stream = ? AND row >= ? ORDER BY row LIMIT ?",
                )?;
                let rows = rows.query_map(params![stream.number, stream.next, BATCH], |row| {
                    Ok((row.get(0)?, row.get(1)?))
                })?;
                stream.read = rows.collect::<rusqlite::Result<_>>()?;
                stream.next += stream.read.len() as i64;
            }
            if let Some((exclusive, inclusive)) = stream.read.pop_front() {
                let (own, whole) = sum.unwrap_or_default();
                sum = Some((own + exclusive, whole + inclusive));
            }
        }
        Ok(sum)
    }
}
