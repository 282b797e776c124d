//! A ring with a writer of the plugin and a reader, for unit tests.

use crate::location_data::LocationData;
use ampere_model::LocalLocation;
use ampere_ring::decoder::{Decoder, Event};
use ampere_ring::{EventWriter, OverloadPolicy, RingConsumer, RingProducer, SessionProbes};

const PROBES: SessionProbes = SessionProbes {
    ticks_per_second: |_| 1_000_000_000,
    collector_is_alive: || false,
    collector_rounds: || 0,
};

/// A location's data, and the ring into which its events are written.
pub struct TestRing {
    pub data: LocationData,
    reader: RingConsumer,
    decoder: Decoder,
    _directory: tempfile::TempDir,
}

impl TestRing {
    pub fn new() -> TestRing {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("1.0.ring");
        let ring = RingProducer::create(&path, 4096, 0).expect("a ring");
        let data = LocationData::new(
            EventWriter::with_policy(ring, OverloadPolicy::Suppress, PROBES),
            LocalLocation(0),
            0,
        );
        let reader = RingConsumer::open(&path).expect("the ring's reader");
        TestRing { data, reader, decoder: Decoder::default(), _directory: directory }
    }

    /// The enters and leaves since the last call, as `+region` and `-region`.
    pub fn events(&mut self) -> Vec<String> {
        let (mut records, mut events) = (Vec::new(), Vec::new());
        let count = self.reader.copy_out(&mut records, usize::MAX).expect("positions that are possible");
        self.reader.release(count);
        self.decoder.decode_all(&records, &mut |event| match event {
            Event::Enter(_, region) => events.push(format!("+{region}")),
            Event::Leave(_, region) => events.push(format!("-{region}")),
            _ => {}
        });
        events
    }

    /// Returns the number of events that were reported as dropped.
    pub fn dropped(&self) -> u64 {
        self.reader.dropped_records()
    }
}
