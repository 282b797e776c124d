//! Treats the sampler's ring as one more stream: its samples become readings of the devices, and these the engine's samples.

use crate::ingest::ring_reader::RingReader;
use crate::live_timeline::LiveTimeline;
use crate::notes::Notes;
use crate::options::BATCH;
use ampere_model::{Counted, Device, OTHER_JOBS_CPU_TIME, Timestamp};
use ampere_ring::decoder::Event;
use ampere_ring::{Record, RingConsumer};
use ampere_timeline::attributor::{FoundDevice, Recorded};
use ampere_timeline::counter_traits::CounterTraits;
use ampere_timeline::topology::CounterEvidence;
use ampere_trace::evidence::of_device;
use ampere_trace::replay::{Replay, ReplayedMetric, ReplayedWork};
use ampere_trace::spool::SpoolDirectory;
use ampere_trace::write::SampledMetric;

pub(crate) const SAMPLES_SPOOL: &str = "sampler.0";

/// A series of samples that was found: the readings of a counter, the CPU time of other jobs on a node, or the sums of what
/// processes have counted on a node. For a counter, it contains what the trace, the attribution and the summary need to know.
pub(crate) enum FoundSeries {
    Counter(Box<FoundCounter>),
    OtherJobs(String),
    Work(ReplayedWork),
}

pub(crate) struct FoundCounter {
    metric: SampledMetric,
    device: FoundDevice,
    evidence: CounterEvidence,
    recorded: Recorded,
    traits: CounterTraits,
}

/// What the samples with one number measure.
enum Series {
    /// A counter, with the index of its device; `None` if it belongs to no device.
    Counter(Option<usize>),
    /// The CPU time of other jobs on this node.
    OtherJobs(String),
    /// What processes have counted, as the bits of an `f64`.
    Work(ReplayedWork),
}

impl FoundSeries {
    /// Makes a series of this node, which the sampler has opened.
    pub fn sampled(node: &str, device: &Device) -> FoundSeries {
        if device.metric == OTHER_JOBS_CPU_TIME {
            return FoundSeries::OtherJobs(node.to_owned());
        }
        if Counted::of_metric(&device.metric).is_some() {
            return FoundSeries::Work(ReplayedWork { node: node.to_owned(), metric: device.metric.clone() });
        }
        FoundSeries::Counter(Box::new(FoundCounter {
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
        }))
    }

    /// Makes the series of a replayed trace.
    pub fn replayed(replay: &Replay) -> Vec<FoundSeries> {
        let counter = |metric: &ReplayedMetric| {
            FoundSeries::Counter(Box::new(FoundCounter {
                metric: SampledMetric::replayed(metric),
                device: metric.as_found(),
                evidence: metric.evidence.clone(),
                recorded: metric.recorded.clone(),
                traits: metric.traits.clone(),
            }))
        };
        let other_jobs = replay.other_jobs.iter().cloned().map(FoundSeries::OtherJobs);
        let work = replay.work.iter().cloned().map(FoundSeries::Work);
        replay.metrics.iter().map(counter).chain(other_jobs).chain(work).collect()
    }
}

/// The samples of a run, from the sampler's ring.
pub(crate) struct Samples {
    /// The metrics as the trace defines them, by the sampler's numbers.
    pub metrics: Vec<SampledMetric>,
    pub reader: RingReader,
    /// What each of the sampler's numbers stands for.
    series: Vec<Series>,
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
            series: Vec::new(),
            span: None,
            numbers: Vec::new(),
        }
    }

    /// Converts the sampler's number of a device to the attributor's.
    pub fn device(&self, number: usize) -> Option<usize> {
        match self.series.get(number)? {
            Series::Counter(device) => *device,
            Series::OtherJobs(_) | Series::Work(_) => None,
        }
    }

    pub fn add_devices(&mut self, found: Vec<FoundSeries>, timeline: &mut LiveTimeline) {
        let attributor = &mut timeline.pipeline.attributor;
        let mut all_traits = Vec::new();
        for found in found {
            match found {
                FoundSeries::Counter(found) => {
                    let FoundCounter { metric, device, evidence, recorded, traits } = *found;
                    self.metrics.push(metric);
                    let device = attributor.add_recorded(device, evidence, recorded);
                    self.series.push(Series::Counter(device));
                    all_traits.extend(device.map(|device| (device, traits)));
                }
                FoundSeries::OtherJobs(node) => {
                    self.metrics.push(SampledMetric::of_other_jobs(node.clone()));
                    attributor.add_other_jobs(&node);
                    self.series.push(Series::OtherJobs(node));
                }
                FoundSeries::Work(work) => {
                    self.metrics.push(SampledMetric::of_work(&work));
                    self.series.push(Series::Work(work));
                }
            }
        }
        all_traits.into_iter().for_each(|(device, traits)| attributor.set_traits(device, traits));
        timeline.pipeline.place_streams();
    }

    /// Returns the number of records that wait in the ring.
    pub fn waiting(&mut self) -> usize {
        self.reader.ring.available().unwrap_or(0) as usize
    }

    /// Reads this number of new records, in batches as from any other ring.
    pub fn drain(&mut self, mut waiting: usize, batch: &mut Vec<Record>, timeline: &mut LiveTimeline) {
        while waiting > 0 {
            let position = self.reader.ring.position();
            let Ok(count @ 1..) = self.reader.drain(batch, waiting.min(BATCH)) else { return };
            self.take(position, batch, timeline);
            waiting -= count;
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
        let pipeline = &mut timeline.pipeline;
        for (position, record) in (position..).zip(records) {
            self.reader.decoder.decode(*record, &mut |event| {
                let Event::Sample(time, number, bits) = event else { return };
                let device = match self.series.get(number as usize) {
                    Some(Series::Counter(Some(device))) => *device,
                    Some(Series::OtherJobs(node)) => {
                        return pipeline.add_cpu_time_of_other_jobs(node, time, bits as f64 * 1e-9);
                    }
                    Some(Series::Work(ReplayedWork { node, metric })) => {
                        return pipeline.attributor.work.count(metric, node, f64::from_bits(bits));
                    }
                    Some(Series::Counter(None)) | None => return,
                };
                self.span = Some((self.span.map_or(time, |(first, _)| first), time));
                pipeline.attributor.devices[device].read(
                    time,
                    self.metrics[number as usize].reading(bits),
                    position,
                );
            });
        }
        timeline.pipeline.queue_all_samples();
    }
}
