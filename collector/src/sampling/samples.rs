//! Treats the sampler's ring as one more stream: its samples become readings of the devices, and these the engine's samples.

use crate::live_timeline::LiveTimeline;
use crate::notes::Notes;
use crate::options::BATCH;
use ampere_model::{Device, Timestamp};
use ampere_ring::decoder::{Decoder, Event};
use ampere_ring::{Record, RingConsumer};
use ampere_timeline::attributor::{FoundDevice, Recorded};
use ampere_timeline::counter_traits::CounterTraits;
use ampere_timeline::topology::CounterEvidence;
use ampere_trace::evidence::of_device;
use ampere_trace::replay::ReplayedMetric;
use ampere_trace::spool::{Spool, SpoolDirectory};
use ampere_trace::write::SampledMetric;

pub(crate) const SAMPLES_SPOOL: &str = "sampler.0";

/// A counter that was found, with what the trace, the attribution and the summary need about it.
pub(crate) struct FoundCounter {
    metric: SampledMetric,
    device: FoundDevice,
    evidence: CounterEvidence,
    recorded: Recorded,
    traits: CounterTraits,
}

impl FoundCounter {
    /// Makes a counter of this node, which the sampler has opened.
    pub fn sampled(node: &str, device: &Device) -> FoundCounter {
        FoundCounter {
            metric: SampledMetric::sampled(node.to_owned(), device),
            device: FoundDevice {
                node: node.to_owned(),
                metric: device.metric.clone(),
                source: device.source.clone(),
                quality: device.quality,
                joules_per_unit: Some(1e-9),
            },
            evidence: of_device(device),
            recorded: Recorded::default(),
            traits: CounterTraits::of_device(device),
        }
    }

    /// Makes a counter of a replayed trace.
    pub fn replayed(metric: &ReplayedMetric) -> FoundCounter {
        FoundCounter {
            metric: SampledMetric::replayed(metric),
            device: metric.as_found(),
            evidence: metric.evidence.clone(),
            recorded: metric.recorded.clone(),
            traits: metric.traits.clone(),
        }
    }
}

/// The samples of a run, from the sampler's ring.
pub(crate) struct Samples {
    /// The metrics as the trace defines them, by the sampler's numbers.
    pub metrics: Vec<SampledMetric>,
    pub ring: RingConsumer,
    pub decoder: Decoder,
    pub spool: Option<Spool>,
    /// The attributor's numbers of devices, by the sampler's numbers.
    pub devices: Vec<Option<usize>>,
    /// Times of the first and the last sample.
    pub span: Option<(Timestamp, Timestamp)>,
    /// The position up to which the records that an earlier collector has read have been decoded again, as for a location.
    pub catching_up: Option<u64>,
    /// The numbers of the devices that the sampler reads now.
    pub numbers: Vec<usize>,
}

impl Samples {
    pub fn new(ring: RingConsumer, spool: &SpoolDirectory) -> Samples {
        let position = ring.position();
        let spool = spool.open(SAMPLES_SPOOL, position);
        Samples {
            metrics: Vec::new(),
            ring,
            decoder: Decoder::default(),
            catching_up: spool.as_ref().filter(|_| position > 0).map(|_| 0),
            spool,
            devices: Vec::new(),
            span: None,
            numbers: Vec::new(),
        }
    }

    pub fn add_devices(&mut self, found: Vec<FoundCounter>, timeline: &mut LiveTimeline) {
        let attributor = &mut timeline.pipeline.attributor;
        let mut all_traits = Vec::new();
        for FoundCounter { metric, device, evidence, recorded, traits } in found {
            self.metrics.push(metric);
            let device = attributor.add_recorded(device, evidence, recorded);
            self.devices.push(device);
            all_traits.extend(device.map(|device| (device, traits)));
        }
        all_traits.into_iter().for_each(|(device, traits)| attributor.set_traits(device, traits));
        timeline.pipeline.place_streams();
    }

    /// Reads the new records, in batches as from any other ring.
    pub fn drain(&mut self, batch: &mut Vec<Record>, timeline: &mut LiveTimeline) {
        let waiting = self.ring.available().unwrap_or(0);
        for _ in 0..waiting.div_ceil(BATCH as u64).max(1) {
            self.drain_batch(batch, timeline);
        }
    }

    fn drain_batch(&mut self, batch: &mut Vec<Record>, timeline: &mut LiveTimeline) {
        if self.catching_up.is_some() && self.spool.as_ref().is_some_and(Spool::is_cut) {
            return; // the records stay in the ring until they are next
        }
        batch.clear();
        let position = self.ring.position();
        let Ok(count) = self.ring.copy_out(batch, BATCH) else { return };
        self.ring.take(count);
        if self.spool.as_ref().is_none_or(Spool::is_cut) {
            self.ring.release_taken();
        }
        if self.catching_up.is_none() {
            self.take(position, batch, timeline);
        }
    }

    /// Writes the records that were taken out of the ring and are not yet in the spool.
    pub fn spool_taken(&mut self, batch: &mut Vec<Record>) -> std::io::Result<()> {
        batch.clear();
        self.ring.copy_taken(batch);
        let position = self.ring.released();
        self.spool.as_mut().map_or(Ok(()), |spool| spool.write(position, batch))
    }

    /// Hands slots back to the ring, as for a location.
    pub fn hand_back(&mut self, is_on_disk: bool) {
        if let Some(spool) = self.spool.as_mut().filter(|_| !is_on_disk) {
            spool.settle();
            if self.catching_up.is_some() {
                return self.ring.put_back();
            }
        }
        self.ring.release_taken();
    }

    /// Decodes the next batch of the records that an earlier collector has read.
    pub fn read_again(&mut self, batch: &mut Vec<Record>, timeline: &mut LiveTimeline, notes: &mut Notes) {
        let (Some(at), Some(spool)) = (self.catching_up, &mut self.spool) else { return };
        let end = self.ring.released();
        let count = spool.read_back(at, end, BATCH, batch).unwrap_or(0);
        let reached = at + count as u64;
        let is_more = reached < end || end < self.ring.position();
        self.catching_up = (is_more && (count > 0 || reached == end)).then_some(reached);
        if count == 0 && reached < end {
            notes.add_loss(format!("{} samples on disk cannot be read again", (end - reached) / 2));
        }
        self.take(at, batch, timeline);
    }

    /// Decodes records of the sampler, the first of which has this position.
    fn take(&mut self, position: u64, records: &[Record], timeline: &mut LiveTimeline) {
        let devices = &mut timeline.pipeline.attributor.devices;
        for (position, record) in (position..).zip(records) {
            self.decoder.decode(*record, &mut |event| {
                let Event::Sample(time, number, bits) = event else { return };
                let Some(device) = self.devices.get(number as usize).copied().flatten() else { return };
                self.span = Some((self.span.map_or(time, |(first, _)| first), time));
                devices[device].read(time, self.metrics[number as usize].reading(bits), position);
            });
        }
        timeline.pipeline.queue_all_samples();
    }
}
