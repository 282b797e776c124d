//! One location of a process: its ring, and how far it has been read.

use ampere_attribution::LocationIndex;
use ampere_figures::losses::RecordLosses;
use ampere_model::{Location, Timestamp};
use ampere_ring::decoder::Decoder;
use ampere_ring::{Record, RingConsumer};
use ampere_trace::spool::{Spool, SpoolDirectory};
use ampere_trace::write::SampledFrames;
use std::path::{Path, PathBuf};

pub(crate) struct LiveLocation {
    pub definition: Location,
    pub ring: RingConsumer,
    pub decoder: Decoder,
    pub spool: Option<Spool>,
    /// The location's number in the pipeline, once it has one.
    pub index: Option<LocationIndex>,
    pub events: u64,
    /// Whether the ring is not read any further, because its positions make no sense or its records cannot be followed.
    pub given_up: bool,
    /// Whether the location has ended, with its process.
    pub closed: bool,
    /// What an earlier collector has left of the location.
    pub left: Left,
    /// The number of call paths at the last check.
    pub callpaths: usize,
    /// How full the ring has been since the last snapshot, between 0 and 1.
    pub fullest: f64,
    /// Whether the name contains the one that the program gave to the thread (pthread_setname_np).
    pub is_named: bool,
    /// Whether the frames are samples of a thread's stack.
    pub samples: SampledFrames,
}

/// What an earlier collector, which is dead, has left of a location.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Left {
    /// How far the records that it has read have been decoded again. Until they all have been, what comes out of the ring only
    /// goes to the spool.
    pub catching_up: Option<u64>,
    /// The number of records on disk, if the earlier collector had read more than that.
    pub known_until: Option<u64>,
    /// The time of the location's end, if the earlier collector has seen it.
    pub ended_at: Option<Timestamp>,
    /// Whether the records that the earlier collector has read are not kept anywhere.
    pub beginning_is_lost: bool,
    /// Whether the earlier collector has read the ring to its end, after the process had ended, and removed it.
    was_retired: bool,
}

/// A ring's positions are impossible.
#[derive(Debug, thiserror::Error)]
#[error("{} says it has written {write} records when {read} were read: it is damaged and not read further", ring.display())]
pub(crate) struct Damaged {
    ring: PathBuf,
    write: u64,
    read: u64,
}

/// What became of opening a location.
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
                complaints.push(format!("{error}; its calls are not among those below"));
                return Err(error);
            }
            complaints.push(format!(
                "{error}; of its calls only those in {on_disk} records on disk are among those below"
            ));
            RingConsumer::of_missing_ring(&path, on_disk)
        });
        let Ok(mut ring) = opened else { return Opened { location: None, is_read_in_part } };
        if let Some(retired) = retired {
            ring.set_counts(retired.suppressed_calls, retired.dropped_records);
        }
        let spool = spool.open(stream, ring.position());
        let left = Left::of(&mut ring, spool.as_ref(), retired.is_some());
        let location = LiveLocation {
            definition,
            ring,
            decoder: Decoder::default(),
            spool,
            index: None,
            events: 0,
            given_up: false,
            closed: false,
            left,
            callpaths: 0,
            fullest: 0.0,
            is_named: false,
            samples: SampledFrames::None,
        };
        Opened { location: Some(location), is_read_in_part }
    }

    /// Discards the end that an earlier collector has recorded.
    pub fn reopen(&mut self) {
        self.left.ended_at = None;
        let position = self.ring.position();
        if let Some(spool) = &mut self.spool {
            spool.forget_from(position);
        }
    }

    /// Returns what is missing of the location's events. If the ring is gone, the suppressed calls are those in its records.
    pub fn losses(&self) -> RecordLosses {
        let repairs = self.decoder.repairs;
        RecordLosses {
            events: self.events,
            coalesced_calls: self.decoder.coalesced_calls,
            suppressed_calls: self.ring.suppressed_calls().max(self.decoder.suppressed_calls),
            dropped_records: self.ring.dropped_records(),
            repaired_events: repairs.unmatched_leaves + repairs.missing_leaves + repairs.backward,
            damaged_records: repairs.damaged,
            ..RecordLosses::default()
        }
    }

    /// Whether the process may still be alive and write, even if an earlier collector has recorded its end.
    pub fn may_go_on(&self) -> bool {
        !self.left.was_retired
    }

    pub fn give_up(&mut self) {
        self.given_up = true;
        self.ring.give_up();
    }

    /// Returns the number of records that wait in the ring.
    pub fn waiting(&mut self) -> usize {
        if self.given_up { 0 } else { self.ring.available().unwrap_or(0) as usize }
    }

    /// Whether records from the ring only go to disk, because earlier ones are still being decoded again.
    fn is_catching_up(&self) -> bool {
        self.left.catching_up.is_some()
    }

    /// Copies the records that wait in the ring to `batch` and returns their number. Their slots are handed back once they are on
    /// disk ([`LiveLocation::hand_back`]).
    pub fn drain(&mut self, batch: &mut Vec<Record>, most: usize) -> Result<usize, Damaged> {
        batch.clear();
        // What cannot be spooled stays in the ring until it can be decoded.
        let must_wait = self.is_catching_up() && self.spool.as_ref().is_some_and(Spool::is_cut);
        if self.given_up || must_wait {
            return Ok(0);
        }
        let count = self.ring.copy_out(batch, most).map_err(|impossible| {
            self.give_up();
            let (ring, write, read) = (self.ring.path().to_owned(), impossible.write, impossible.read);
            Damaged { ring, write, read }
        })?;
        self.ring.take(count);
        if self.is_catching_up() {
            batch.clear();
        }
        if self.spool.as_ref().is_none_or(Spool::is_cut) {
            self.ring.release_taken();
        }
        Ok(count)
    }

    /// Adds to the spool the records that were taken out of the ring and are not in the spool yet.
    pub fn spool_taken(&mut self, batch: &mut Vec<Record>) -> std::io::Result<()> {
        let Some(spool) = self.spool.as_mut().filter(|_| self.ring.released() < self.ring.position()) else {
            return Ok(());
        };
        batch.clear();
        self.ring.copy_taken(batch);
        spool.write(self.ring.released(), batch)
    }

    /// Hands back the slots of records that are on disk, or that cannot be written there: then the trace ends early.
    pub fn hand_back(&mut self, is_on_disk: bool) {
        if let Some(spool) = self.spool.as_mut().filter(|_| !is_on_disk) {
            spool.settle();
            if self.left.catching_up.is_some() {
                return self.ring.put_back(); // until it can be decoded
            }
        }
        self.ring.release_taken();
    }

    /// Reads the next batch of what an earlier collector has read from the ring. Returns `false` if it cannot be read.
    pub fn read_again(&mut self, batch: &mut Vec<Record>, most: usize) -> bool {
        let (Some(at), Some(spool)) = (self.left.catching_up.take(), &mut self.spool) else { return false };
        let end = self.left.known_until.unwrap_or(self.ring.released());
        let count = spool.read_back(at, end, most, batch);
        let at = at + *count.as_ref().unwrap_or(&0) as u64;
        let is_more = at < end || self.ring.released() < self.ring.position();
        self.left.catching_up = (count.is_ok() && is_more).then_some(at);
        count.is_ok()
    }
}

impl Left {
    fn of(ring: &mut RingConsumer, spool: Option<&Spool>, was_retired: bool) -> Left {
        let position = ring.position();
        let is_read = ring.available() == Ok(0);
        let catching_up = spool.filter(|_| position > 0).map(|_| 0);
        let known_until = spool.map(|spool| spool.records_of(position));
        let end = spool.filter(|_| position > 0 && is_read).and_then(|spool| spool.end_after(position));
        Left {
            catching_up,
            known_until: known_until.filter(|records| *records < position),
            ended_at: end.map(|record| record.word0),
            beginning_is_lost: position > 0 && catching_up.is_none(),
            was_retired,
        }
    }
}
