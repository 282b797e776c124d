//! Writes records from the rings to disk, in large pieces. Records that were taken out of a ring keep their slots until they are
//! on disk, so that nothing is lost if the collector is killed.

use super::Ingest;
use crate::ingest::location::Place;
use crate::notes::Notes;
use crate::sampling::samples::Samples;
use std::time::{Duration, Instant};

/// Records are written when this many are waiting in all rings together.
const MANY_RECORDS: u64 = (4 << 20) / 16;
/// If records that were taken out of a ring still occupy this fraction of it, they are written at once.
const TAKEN_PART_MAX: f64 = 1.0 / 8.0;
/// If a ring is at least this full, its records are written at once.
const FILL_MAX: f64 = 1.0 / 4.0;
/// Records wait for the run's age divided by this, so that a long run does not consist of many small pieces, but
/// at least for `AGE_MIN`, and at most for `AGE_MAX`.
const AGE_OF_RUN: u32 = 64;
const AGE_MIN: Duration = Duration::from_millis(50);
const AGE_MAX: Duration = Duration::from_secs(60);

/// The records that were taken out of the rings and are not on disk.
pub(crate) struct Unspooled {
    began: Instant,
    /// When all records were last written.
    spooled: Instant,
    records: u64,
    /// Whether a ring is so full that its records must be written at once.
    pub is_pressed: bool,
}

impl Unspooled {
    pub fn new() -> Unspooled {
        let now = Instant::now();
        Unspooled { began: now, spooled: now, records: 0, is_pressed: false }
    }

    pub fn begin_round(&mut self) {
        (self.records, self.is_pressed) = (0, false);
    }

    pub fn add(&mut self, ring: &ampere_ring::RingConsumer) {
        let taken = ring.position() - ring.released();
        self.records += taken;
        self.is_pressed |=
            taken > 0 && (ring.taken_ratio() >= TAKEN_PART_MAX || ring.fill_ratio() >= FILL_MAX);
    }

    /// Whether the records must now be written.
    pub fn is_due(&self) -> bool {
        let age = (self.began.elapsed() / AGE_OF_RUN).clamp(AGE_MIN, AGE_MAX);
        self.is_pressed || self.records >= MANY_RECORDS || self.spooled.elapsed() >= age
    }
}

impl Ingest {
    /// Writes the records that were taken out of the rings to disk, and hands their slots back.
    pub fn spool_taken(&mut self, mut samples: Option<&mut Samples>, notes: &mut Notes) {
        self.unspooled.spooled = Instant::now();
        let mut batch = std::mem::take(&mut self.batch);
        let mut result = Ok(());
        for location in self.locations_mut() {
            let added = location.reader.spool_taken(&mut batch);
            result = result.and(added);
        }
        for samples in samples.iter_mut() {
            result = result.and(samples.reader.spool_taken(&mut batch));
        }
        let result = result.and_then(|()| self.spool.store().flush());
        self.locations_mut().for_each(|location| location.reader.hand_back(result.is_ok()));
        samples.iter_mut().for_each(|samples| samples.reader.hand_back(result.is_ok()));
        batch.clear();
        self.batch = batch;
        self.note_spool(result, notes);
    }

    /// Writes the records of one location to disk, and hands their slots back.
    pub fn spool_location(&mut self, at: Place) {
        let reader = &mut self.processes[at.process].locations[at.location].reader;
        if reader.ring.released() == reader.ring.position() {
            return;
        }
        let added = reader.spool_taken(&mut self.batch);
        let result = added.and_then(|()| self.spool.store().flush());
        reader.hand_back(result.is_ok());
    }

    fn note_spool(&mut self, result: std::io::Result<()>, notes: &mut Notes) {
        notes.extend(self.spool.store().take_notes());
        if let Err(why) = result {
            notes.add_loss(format!("{why}; the trace ends early"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ampere_ring::{EventWriter, RingConsumer, RingProducer};
    use ampere_trace::spool::{SpoolDirectory, Store};

    /// In a long run with few events, records may wait for a minute. The sampler's ring does not hold a minute of samples.
    #[test]
    fn samples_reach_the_disk_before_their_ring_is_full() {
        let directory = tempfile::tempdir().unwrap();
        let spool = || {
            let store = Store::open(&[directory.path().to_owned()]);
            SpoolDirectory::new(directory.path(), store, true, false)
        };
        let path = directory.path().join("ring");
        let mut writer = EventWriter::new(RingProducer::create(&path, 4096, 0).unwrap());
        let mut samples = Samples::new(RingConsumer::open(&path).unwrap(), &spool());
        let mut ingest = Ingest::new(spool(), true, String::new());
        ingest.unspooled.began -= Duration::from_secs(3600);
        let take = |samples: &mut Samples| {
            let mut batch = Vec::new();
            let count = samples.reader.ring.copy_out(&mut batch, 4096).unwrap();
            samples.reader.ring.take(count);
        };
        let mut times = 0..;
        for round in 0..100 {
            for time in times.by_ref().take(300) {
                writer.sample(time, 0, time);
            }
            take(&mut samples);
            ingest.unspooled.begin_round();
            if ingest.is_spooling_due(Some(&samples)) {
                ingest.spool_taken(Some(&mut samples), &mut Notes::default());
            }
            assert!(writer.has_room(), "round {round}");
        }
        assert!(
            samples.reader.ring.released() > 50_000,
            "of 60,000 records: {}",
            samples.reader.ring.released()
        );
    }
}
