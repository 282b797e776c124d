//! Checks decoded events: they must nest, and their times must not decrease, whatever the records were. Then passes them to the
//! engine.

use ampere_attribution::LocationIndex;
use ampere_model::MetricValue;
use ampere_model::{LocationKind, Quality, RegionRef, Timestamp};
use ampere_ring::Record;
use ampere_ring::decoder::{Decoder, Event};
use ampere_settings::Config;
use ampere_timeline::attributor::{Attributor, FoundDevice, LocationInfo, ViewKind};
use ampere_timeline::pipeline::{GpuStreams, Pipeline};

pub struct Nesting {
    pipeline: Pipeline,
    location: LocationIndex,
    stream: Decoder,
    checked: Checked,
}

/// The state of the stream up to the last event.
#[derive(Default)]
struct Checked {
    stack: Vec<u32>,
    last: Timestamp,
    count: u64,
}

impl Default for Nesting {
    fn default() -> Nesting {
        let mut attributor = Attributor::new(Config::default(), 1_000_000_000);
        attributor.add_device(FoundDevice {
            node: "node".to_owned(),
            metric: "rocm_smi:::energy_count:device=0".to_owned(),
            source: "rocm_smi".to_owned(),
            quality: Quality::Measured,
            joules_per_unit: Some(1e-9),
        });
        let location = attributor.add_location(LocationInfo {
            node: "node".to_owned(),
            group: "MPI Rank 0".to_owned(),
            name: "Master thread".to_owned(),
            kind: LocationKind::CpuThread,
            rank: Some(0),
            main: true,
        });
        let mut pipeline = Pipeline::new(attributor, GpuStreams::InTime);
        pipeline.add_stream(location);
        let (stream, checked) = (Decoder::default(), Checked::default());
        Nesting { pipeline, location, stream, checked }
    }
}

impl Checked {
    fn take(&mut self, event: Event) {
        let time = match event {
            Event::Enter(time, region)
            | Event::EnterCoalesced(time, region, _)
            | Event::EnterCorrelated(time, region, _) => {
                self.stack.push(region);
                time
            }
            Event::Leave(time, region) => {
                assert_eq!(self.stack.pop(), Some(region), "only the innermost region can be left");
                time
            }
            Event::Sample(time, ..)
            | Event::CpuTime(time, ..)
            | Event::Counts(time, ..)
            | Event::ProgramBegin(time)
            | Event::ProgramEnd(time)
            | Event::Communication(time, _) => time,
        };
        assert!(time >= self.last && time < Timestamp::MAX, "{time} after {}", self.last);
        self.last = time;
        self.count += 1;
    }
}

impl Nesting {
    pub fn take(&mut self, record: Record) {
        let Nesting { pipeline, location, stream, checked } = self;
        stream.decode(record, &mut |event| {
            checked.take(event);
            hand_over(event, pipeline, *location);
        });
        assert_eq!(self.stream.is_open(), !self.checked.stack.is_empty());
    }

    /// Hands over all events up to this time.
    pub fn advance(&mut self, until: Timestamp) {
        self.pipeline.advance_ranks(until);
    }

    /// Ends the stream and returns the number of events. No frame stays open, and energy is conserved.
    pub fn finish(mut self) -> u64 {
        let Nesting { pipeline, location, stream, checked } = &mut self;
        stream.close(0, &mut |event| {
            checked.take(event);
            hand_over(event, pipeline, *location);
        });
        self.pipeline.advance_to_the_end();
        assert!(!self.stream.is_open() && !self.pipeline.attributor.engine.is_open(self.location));
        assert_eq!(self.pipeline.waiting(), 0);
        conserves(&self.pipeline.attributor);
        self.checked.count
    }
}

fn hand_over(event: Event, pipeline: &mut Pipeline, location: LocationIndex) {
    let region = |region: u32| RegionRef(region % 1000);
    let Some(stream) = pipeline.stream(location) else { return };
    match event {
        Event::Enter(time, r) => stream.enter(time, region(r), 1),
        Event::EnterCoalesced(time, r, calls) => stream.enter(time, region(r), calls),
        Event::EnterCorrelated(time, r, id) => stream.enter_correlated(time, region(r), 1, id),
        Event::Leave(time, _) => stream.leave(time),
        Event::Sample(time, _, bits) => {
            pipeline.attributor.devices[0].read(time, MetricValue::U64(bits), 0);
            pipeline.queue_samples(0);
        }
        Event::CpuTime(time, _, ns) => pipeline.add_cpu_time(location, time, ns as f64 * 1e-9),
        Event::Counts(_, event, count) => stream.counts(event, count),
        Event::ProgramBegin(_) | Event::ProgramEnd(_) | Event::Communication(..) => {}
    }
}

/// Checks that attributed, idle and lost joules add up to the counter's increase, except for rounding.
pub fn conserves(attributor: &Attributor) {
    for device in &attributor.devices {
        for view in ViewKind::BOTH {
            let totals = attributor.engine.totals(device.view(view));
            let error = totals.conservation_error_joules;
            assert!(error <= 1e-9 + 1e-6 * totals.total_joules, "{error} J of {} J", totals.total_joules);
            assert!(totals.attributed_joules >= 0.0 && totals.idle_joules >= 0.0, "{totals:?}");
        }
    }
}
