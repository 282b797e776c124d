//! Checks decoded events: they have to nest and their time must not go back, whatever the records were. Then the engine gets
//! them.

use ampere_attribution::LocationIndex;
use ampere_model::MetricValue;
use ampere_model::{LocationKind, Quality, RegionRef, Timestamp};
use ampere_ring::Record;
use ampere_ring::decoder::{Decoder, Event};
use ampere_settings::Config;
use ampere_timeline::attributor::{Attributor, FoundDevice, LocationInfo, ViewKind};
use ampere_timeline::merger::{Merger, QueueIndex};

pub struct Nesting {
    attributor: Attributor,
    location: LocationIndex,
    merger: Merger,
    events: QueueIndex,
    samples: QueueIndex,
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
        let mut merger = Merger::default();
        let (events, samples) = (merger.add_location(location), merger.add_counter());
        let (stream, checked) = (Decoder::default(), Checked::default());
        Nesting { attributor, location, merger, events, samples, stream, checked }
    }
}

impl Checked {
    fn take(&mut self, event: Event) {
        let time = match event {
            Event::Enter(time, region) | Event::EnterCoalesced(time, region, _) => {
                self.stack.push(region);
                time
            }
            Event::Leave(time, region) => {
                assert_eq!(self.stack.pop(), Some(region), "only the innermost region can be left");
                time
            }
            Event::Sample(time, ..)
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
        let Nesting { attributor, merger, events, samples, stream, checked, .. } = self;
        stream.decode(record, &mut |event| {
            checked.take(event);
            hand_over(event, attributor, merger, *events, *samples);
        });
        assert_eq!(self.stream.is_open(), !self.checked.stack.is_empty());
    }

    /// Hands over all events up to this time.
    pub fn advance(&mut self, until: Timestamp) {
        self.merger.advance(until, &mut self.attributor);
    }

    /// Ends the stream and returns the number of events. No frame stays open, and energy is conserved.
    pub fn finish(mut self) -> u64 {
        let Nesting { attributor, merger, events, samples, stream, checked, .. } = &mut self;
        stream.close(0, &mut |event| {
            checked.take(event);
            hand_over(event, attributor, merger, *events, *samples);
        });
        self.merger.advance(Timestamp::MAX, &mut self.attributor);
        assert!(!self.stream.is_open() && !self.attributor.engine.is_open(self.location));
        assert_eq!(self.merger.waiting(), 0);
        conserves(&self.attributor);
        self.checked.count
    }
}

fn hand_over(
    event: Event,
    attributor: &mut Attributor,
    merger: &mut Merger,
    events: QueueIndex,
    samples: QueueIndex,
) {
    let region = |region: u32| RegionRef(region % 1000);
    match event {
        Event::Enter(time, r) => merger.queue(events).enter(time, region(r), 1),
        Event::EnterCoalesced(time, r, calls) => {
            merger.queue(events).enter(time, region(r), calls);
        }
        Event::Leave(time, _) => merger.queue(events).leave(time),
        Event::Sample(time, _, bits) => {
            let device = &mut attributor.devices[0];
            device.read(time, MetricValue::U64(bits), 0);
            while let Some(sample) = device.sample() {
                merger.queue(samples).sample(sample.time, device.views.ranks, sample.increase);
            }
        }
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
