//! Treats the sampler's ring as one more stream: its samples become readings of the devices, and these the engine's samples.

use crate::ingest::ring_reader::RingReader;
use crate::live_timeline::LiveTimeline;
use crate::notes::Notes;
use crate::options::BATCH;
use ampere_model::{Device, Timestamp};
use ampere_ring::decoder::Event;
use ampere_ring::{Record, RingConsumer};
use ampere_timeline::attributor::{FoundDevice, Recorded};
use ampere_timeline::counter_traits::CounterTraits;
use ampere_timeline::topology::CounterEvidence;
use ampere_trace::evidence::of_device;
use ampere_trace::replay::ReplayedMetric;
use ampere_trace::spool::SpoolDirectory;
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
    pub reader: RingReader,
    /// The attributor's numbers of devices, by the sampler's numbers.
    pub devices: Vec<Option<usize>>,
    /// Times of the first and the last sample.
    pub span: Option<(Timestamp, Timestamp)>,
    /// The numbers of the devices that the sampler reads now.
    pub numbers: Vec<usize>,
}

impl Samples {
    pub fn new(ring: RingConsumer, spool: &SpoolDirectory) -> Samples {
        let spool = spool.open(SAMPLES_SPOOL, ring.position());
        Samples {
            metrics: Vec::new(),
            reader: RingReader::new(ring, spool),
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
        let waiting = self.reader.ring.available().unwrap_or(0);
        for _ in 0..waiting.div_ceil(BATCH as u64).max(1) {
            let position = self.reader.ring.position();
            if self.reader.drain(batch, BATCH).is_ok() {
                self.take(position, batch, timeline);
            }
        }
    }

    /// Decodes the next batch of the records that an earlier collector has read.
    pub fn read_again(&mut self, batch: &mut Vec<Record>, timeline: &mut LiveTimeline, notes: &mut Notes) {
        let Some(at) = self.reader.catching_up else { return };
        let end = self.reader.ring.released();
        if !self.reader.read_again(batch, BATCH, end) {
            notes.add_loss(format!("{} samples on disk cannot be read again", end.saturating_sub(at) / 2));
        }
        self.take(at, batch, timeline);
    }

    /// Decodes records of the sampler, the first of which has this position.
    fn take(&mut self, position: u64, records: &[Record], timeline: &mut LiveTimeline) {
        let devices = &mut timeline.pipeline.attributor.devices;
        for (position, record) in (position..).zip(records) {
            self.reader.decoder.decode(*record, &mut |event| {
                let Event::Sample(time, number, bits) = event else { return };
                let Some(device) = self.devices.get(number as usize).copied().flatten() else { return };
                self.span = Some((self.span.map_or(time, |(first, _)| first), time));
                devices[device].read(time, self.metrics[number as usize].reading(bits), position);
            });
        }
        timeline.pipeline.queue_all_samples();
    }
}
