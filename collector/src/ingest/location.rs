//! One location of a process: its ring, and how far it has been read.

use ampere_attribution::LocationIndex;
use ampere_model::{Location, Timestamp};
use ampere_ring::decoder::Decoder;
use ampere_ring::{Record, RingConsumer};
use ampere_timeline::merger::QueueIndex;
use ampere_trace::spool::{Retired, Spool, SpoolDirectory};
use std::path::{Path, PathBuf};

pub(crate) struct LiveLocation {
    pub definition: Location,
    pub ring: RingConsumer,
    pub decoder: Decoder,
    pub spool: Option<Spool>,
    /// Its number in the attributor, and its merger with its place there. In one only: its stack is one.
    pub index: Option<LocationIndex>,
    pub queue: Option<(usize, QueueIndex)>,
    pub events: u64,
    /// The ring is not read any further: its positions make no sense any more, or what it says cannot be followed.
    pub given_up: bool,
    /// Its process is over and so is it.
    pub closed: bool,
    /// What an earlier collector has left of it.
    pub left: Left,
    /// As last looked at.
    pub callpaths: usize,
    /// How full the ring has been since the last snapshot, between 0 and 1.
    pub fullest: f64,
    /// Its name has the one in it that the program gave to the thread (pthread_setname_np).
    pub is_named: bool,
}

/// What an earlier collector, which is dead, has left of a location.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Left {
    /// How far the records that it has read have been decoded again. Until they all have been, what comes out of the ring only
    /// goes to the spool.
    pub catching_up: Option<u64>,
    /// Of what it has read, only so many records are on disk.
    pub known_until: Option<u64>,
    /// It has seen the location end, then.
    pub ended_at: Option<Timestamp>,
    /// Its records are not kept anywhere.
    pub beginning_is_lost: bool,
    /// The process was over: it has read the ring to the end and removed it.
    was_retired: bool,
}

/// Why a location is not read as it should be.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DrainError {
    #[error("{} says it has written {write} records when {read} were read: it is damaged and not read further", ring.display())]
    Damaged { ring: PathBuf, write: u64, read: u64 },
    #[error("cannot write {}: {error}; the trace ends early", spool.display())]
    Spool { spool: PathBuf, error: std::io::Error },
}

/// What became of opening a location.
pub(crate) struct Opened {
    /// `None`: nothing of it can be read.
    pub location: Option<LiveLocation>,
    /// Some of what was recorded is not read.
    pub is_read_in_part: bool,
}

impl LiveLocation {
    /// Opens the ring in `directory`, and its file in the spool. `stream`: what its files' names begin with.
    pub fn open(
        definition: Location,
        directory: &Path,
        stream: &str,
        spool: &SpoolDirectory,
        complaints: &mut Vec<String>,
    ) -> Opened {
        let name = format!("{stream}.records");
        let path = directory.join(&definition.ring);
        let retired = (!path.exists()).then(|| Retired::load(spool.of_retired(directory), stream)).flatten();
        let on_disk = spool.records(&name);
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
        let spool = match spool.open(&name, ring.position()) {
            Ok(spool) => spool,
            Err(error) => {
                complaints.push(format!("cannot write {name}: {error}; no trace is written"));
                None
            }
        };
        let left = Left::of(&mut ring, spool.as_ref(), retired.is_some());
        let location = LiveLocation {
            definition,
            ring,
            decoder: Decoder::default(),
            spool,
            index: None,
            queue: None,
            events: 0,
            given_up: false,
            closed: false,
            left,
            callpaths: 0,
            fullest: 0.0,
            is_named: false,
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

    /// By the ring's count; of a ring that is gone, its records tell of most.
    pub fn suppressed_calls(&self) -> u64 {
        self.ring.suppressed_calls().max(self.decoder.suppressed_calls)
    }

    /// What is left in the ring may be of a process that lives, whatever an earlier collector has taken it for.
    pub fn may_go_on(&self) -> bool {
        !self.left.was_retired
    }

    pub fn give_up(&mut self) {
        self.given_up = true;
        self.ring.give_up();
    }

    /// Records that wait in the ring.
    pub fn waiting(&mut self) -> usize {
        if self.given_up { 0 } else { self.ring.available().unwrap_or(0) as usize }
    }

    /// Copies what waits in the ring to the spool and to `batch`, and hands the slots back. Returns how many.
    pub fn drain(&mut self, batch: &mut Vec<Record>, most: usize) -> Result<usize, DrainError> {
        batch.clear();
        // What cannot be spooled stays in the ring until its turn has come.
        let must_wait = self.left.catching_up.is_some() && self.spool.as_ref().is_some_and(Spool::is_cut);
        if self.given_up || must_wait {
            return Ok(0);
        }
        let position = self.ring.position();
        let count = self.ring.copy_out(batch, most).map_err(|impossible| {
            self.give_up();
            let (ring, write, read) = (self.ring.path().to_owned(), impossible.write, impossible.read);
            DrainError::Damaged { ring, write, read }
        })?;
        let spooled = match &mut self.spool {
            Some(spool) if count > 0 => spool.write(position, batch),
            _ => Ok(()),
        };
        if self.left.catching_up.is_some() {
            batch.clear();
            if spooled.is_err() {
                return Ok(0); // it stays in the ring until its turn has come
            }
        }
        self.ring.release(count);
        spooled.map(|()| count).map_err(|error| {
            let spool = self.spool.as_ref().map_or_else(PathBuf::new, |spool| spool.path().to_owned());
            DrainError::Spool { spool, error }
        })
    }

    /// The next batch of what an earlier collector has read from the ring. `false`: it cannot be had.
    pub fn read_again(&mut self, batch: &mut Vec<Record>, most: usize) -> bool {
        let (Some(at), Some(spool)) = (self.left.catching_up.take(), &mut self.spool) else { return false };
        let end = self.left.known_until.unwrap_or(self.ring.position());
        let count = spool.read_back(at, end, most, batch);
        let at = at + *count.as_ref().unwrap_or(&0) as u64;
        self.left.catching_up = (count.is_ok() && at < end).then_some(at);
        count.is_ok()
    }
}

impl Left {
    /// What the ring and its file in the spool show.
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
