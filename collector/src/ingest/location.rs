//! One location of a process: its ring, and how far it has been read.

use crate::ingest::ring_reader::RingReader;
use ampere_attribution::LocationIndex;
use ampere_figures::losses::RecordLosses;
use ampere_model::{Location, Timestamp};
use ampere_ring::cpu_time::CpuOfRing;
use ampere_ring::{Record, RingConsumer};
use ampere_trace::spool::SpoolDirectory;
use ampere_trace::write::{CpuTimeOf, SampledFrames};
use std::path::{Path, PathBuf};

/// The index of a location: the index of its process in the run, and its index in the process.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    pub process: usize,
    pub location: usize,
}

pub(crate) struct LiveLocation {
    pub definition: Location,
    pub reader: RingReader,
    /// The location's number in the pipeline, once it has one.
    pub index: Option<LocationIndex>,
    pub events: u64,
    /// Whether the ring is no longer read, because its positions are impossible or its records cannot be decoded.
    pub given_up: bool,
    /// Whether the location has ended, with its process.
    pub closed: bool,
    /// What an earlier collector has recorded about the location.
    pub left: LeftByPredecessor,
    /// The number of call paths at the last check.
    pub callpaths: usize,
    /// How full the ring has been since the last snapshot, between 0 and 1.
    pub fullest: f64,
    /// Whether the name contains the one that the program gave to the thread (pthread_setname_np).
    pub is_named: bool,
    /// Whether the frames are samples of a thread's stack.
    pub samples: SampledFrames,
    /// The location whose CPU time the records contain, if they are CPU times; `None` until it is known.
    pub cpu_time_of: Option<CpuTimeOf>,
    /// The CPU time in the last record.
    pub cpu_time: CpuOfRing,
}

/// What an earlier collector, which has died, has recorded about a location.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LeftByPredecessor {
    /// The number of records on disk, if the earlier collector had read more than that.
    pub known_until: Option<u64>,
    /// The time of the location's end, if the earlier collector has seen it.
    pub ended_at: Option<Timestamp>,
    /// The time of the last CPU time that the earlier collector has recorded, if assumed CPU time was added after it.
    pub cpu_time_at: Option<Timestamp>,
    /// Whether the records that the earlier collector has read are not kept anywhere.
    pub beginning_is_lost: bool,
    /// Whether the earlier collector has read the ring to its end, after the process had ended, and removed it.
    was_retired: bool,
}

/// An error: a ring's positions are impossible.
#[derive(Debug, thiserror::Error)]
#[error("{} states that {write} records were written, but {read} were read: it is damaged and no longer read", ring.display())]
pub(crate) struct Damaged {
    ring: PathBuf,
    write: u64,
    read: u64,
}

/// The result of opening a location.
pub(crate) struct Opened {
    /// `None` if nothing of the location can be read.
    pub location: Option<LiveLocation>,
    /// Whether some of what was recorded cannot be read.
    pub is_read_in_part: bool,
}

impl LiveLocation {
    /// Opens the ring in `directory`, and its file in the spool. The names of its files start with `stream`.
    pub fn open(
        definition: Location,
        directory: &Path,
        stream: &str,
        spool: &SpoolDirectory,
        complaints: &mut Vec<String>,
    ) -> Opened {
        let path = directory.join(&definition.ring);
        let retired = (!path.exists()).then(|| spool.retired(directory, stream)).flatten();
        let on_disk = spool.records(stream);
        let mut is_read_in_part = false;
        let opened = match retired {
            Some(retired) => RingConsumer::of_missing_ring(&path, retired.records),
            None if spool.rings_are_lost => RingConsumer::of_missing_ring(&path, on_disk),
            None => RingConsumer::open(&path),
        };
        let opened = opened.or_else(|error| {
            is_read_in_part = true;
            if on_disk == 0 {
                complaints.push(format!("{error}; its calls are not included"));
                return Err(error);
            }
            complaints.push(format!("{error}; only its calls in the {on_disk} records on disk are included"));
            RingConsumer::of_missing_ring(&path, on_disk)
        });
        let Ok(ring) = opened else { return Opened { location: None, is_read_in_part } };
        if let Some(retired) = retired {
            ring.set_counts(retired.suppressed_calls, retired.dropped_records);
        }
        let spool = spool.open(stream, ring.position());
        let mut reader = RingReader::new(ring, spool);
        let left = LeftByPredecessor::of(&mut reader, retired.is_some());
        let location = LiveLocation {
            definition,
            reader,
            index: None,
            events: 0,
            given_up: false,
            closed: false,
            left,
            callpaths: 0,
            fullest: 0.0,
            is_named: false,
            samples: SampledFrames::None,
            cpu_time_of: None,
            cpu_time: CpuOfRing::default(),
        };
        Opened { location: Some(location), is_read_in_part }
    }

    /// Discards the end that an earlier collector has recorded.
    pub fn reopen(&mut self) {
        self.left.ended_at = None;
        let position = self.reader.ring.position();
        if let Some(spool) = &mut self.reader.spool {
            spool.forget_from(position);
        }
    }

    /// Returns the losses of the location's events. If the ring is gone, the suppressed calls are those in its records.
    pub fn losses(&self) -> RecordLosses {
        let RingReader { ring, decoder, .. } = &self.reader;
        let repairs = decoder.repairs;
        RecordLosses {
            events: self.events,
            coalesced_calls: decoder.coalesced_calls,
            suppressed_calls: ring.suppressed_calls().max(decoder.suppressed_calls),
            dropped_records: ring.dropped_records(),
            repaired_events: repairs.unmatched_leaves + repairs.missing_leaves + repairs.backward,
            damaged_records: repairs.damaged,
            ..RecordLosses::default()
        }
    }

    /// Whether the process may still be alive and write, even if an earlier collector has recorded its end.
    pub fn may_still_write(&self) -> bool {
        !self.left.was_retired
    }

    pub fn give_up(&mut self) {
        self.given_up = true;
        self.reader.ring.give_up();
    }

    /// Whether the location's records are the CPU time of another location.
    pub fn is_cpu_time_of_another(&self) -> bool {
        matches!(self.cpu_time_of, Some(CpuTimeOf::Location(..)))
    }

    /// Returns the number of records that wait in the ring.
    pub fn waiting(&mut self) -> usize {
        if self.given_up { 0 } else { self.reader.ring.available().unwrap_or(0) as usize }
    }

    /// Takes records out of the ring: see [`RingReader::drain`].
    pub fn drain(&mut self, batch: &mut Vec<Record>, limit: usize) -> Result<usize, Damaged> {
        if self.given_up {
            batch.clear();
            return Ok(0);
        }
        self.reader.drain(batch, limit).map_err(|impossible| {
            self.give_up();
            Damaged {
                ring: self.reader.ring.path().to_owned(),
                write: impossible.write,
                read: impossible.read,
            }
        })
    }

    /// Reads the next batch of records that an earlier collector has read from the ring. Returns `false` if it cannot be read.
    pub fn read_again(&mut self, batch: &mut Vec<Record>, limit: usize) -> bool {
        let end = self.left.known_until.unwrap_or(self.reader.ring.released());
        self.reader.read_again(batch, limit, end)
    }
}

impl LeftByPredecessor {
    fn of(reader: &mut RingReader, was_retired: bool) -> LeftByPredecessor {
        let position = reader.ring.position();
        let is_read = reader.ring.available() == Ok(0);
        let spool = reader.spool.as_ref();
        let known_until = spool.map(|spool| spool.records_of(position));
        let end = spool.filter(|_| position > 0 && is_read).and_then(|spool| spool.end_after(position));
        LeftByPredecessor {
            known_until: known_until.filter(|records| *records < position),
            ended_at: end.map(|record| record.word0),
            cpu_time_at: None,
            beginning_is_lost: position > 0 && spool.is_none(),
            was_retired,
        }
    }
}
