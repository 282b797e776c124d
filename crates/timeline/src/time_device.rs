//! Time as a metric: a device whose counter is the clock, for a time profile with no counter at all.
//!
//! Each node has one time device, for its ranks. Every active rank gets all of the time (a second is not shared). So the
//! exclusive figures are the times in functions themselves, the inclusive ones are the times in functions and in those that they
//! called, and idle is the time in which no rank of the node had a frame open. The time starts with the first event of the node's
//! ranks, and ends with the last.

use crate::counter_traits::CounterTraits;
use crate::device::{Device, DeviceInfo, Unit, Views};
use ampere_attribution::{Counter, CounterKind, Engine, Limits, Policy, Sharing};
use ampere_model::Quality;
use ampere_settings::Locations;

/// The name of the device and of its metric.
pub const TIME: &str = "time";

/// Makes the device of a node's time, with views in the engine.
pub(crate) fn new(node: &str, engine: &mut Engine, locations: Locations, ticks_per_second: u64) -> Device {
    let info = DeviceInfo {
        node: node.to_owned(),
        name: TIME.to_owned(),
        metric: TIME.to_owned(),
        counter: TIME.to_owned(),
        source: "clock".to_owned(),
        is_by_other_tool: false,
        quality: Quality::Measured,
        traits: CounterTraits::default(),
        unit: Unit::Seconds,
    };
    let [ranks, kernels] = [(); 2].map(|()| engine.add_view(Policy::TimeSliced, Sharing::Independent));
    let views = Views { ranks, threads: None, kernels, locations };
    let per_second = ticks_per_second as f64;
    let kind = CounterKind::Cumulative { joules_per_unit: 1.0 / per_second, wraps_at: None };
    Device::new(info, views, Counter::new(kind, Limits::none(per_second)), ticks_per_second)
}
