//! Devices and locations of a run, who spends from what, and the engine that does the sums. The live collector and the
//! offline reader fill in the same attributor.

use crate::curve::{Curve, PowerCurve};
use crate::linking::Linking;
use crate::nature::Nature;
use crate::power_sensor::PowerSensor;
use crate::topology::{Counter as TopologyCounter, Evidence, Place};
use ampere_attribution::{
    Counter, CounterFigures, CounterKind, Engine, Increase, Limits, LocationIndex, Sample, ViewIndex,
};
use ampere_model::MetricValue;
use ampere_model::regions::Regions;
use ampere_model::{LocationKind, Quality, Timestamp};
use ampere_settings::{Config, DeviceSetting, Locations};
use serde::{Deserialize, Serialize};

/// No device of its kind gives more. A node of eight GPUs at full power gives half of this.
const NODE_WATTS_MAX: f64 = 20e3;
const GPU_WATTS_MAX: f64 = 2e3;
const PACKAGE_WATTS_MAX: f64 = 1e3;

/// A location as the report names it.
#[derive(Clone, Debug)]
pub struct LocationInfo {
    pub node: String,
    /// OTF2's location group: "MPI Rank 0", "HIP Context 0".
    pub group: String,
    pub name: String,
    pub kind: LocationKind,
    /// Rank of the process that it belongs to, where that is known.
    pub rank: Option<u32>,
    /// Whether it is its process' main CPU location: the one whose frame is the rank's.
    pub main: bool,
}

/// A device as it is found, before the configuration has its say.
#[derive(Clone, Debug)]
pub struct FoundDevice {
    pub node: String,
    pub metric: String,
    pub source: String,
    pub quality: Quality,
    /// Joules per unit of the counter, if the metric's own definition says.
    pub joules_per_unit: Option<f64>,
}

/// What a trace says of a metric, and a counter of our own does not need.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Recorded {
    /// Watts per unit of the value, if the metric's own definition says that it is a power.
    pub watts_per_unit: Option<f64>,
    /// What values of a unit that is not known are to be multiplied by.
    pub factor: f64,
    /// A power is about the time since the sample before, and not from its own sample on.
    pub is_of_time_before: bool,
    /// Who recorded it, where several have recorded different devices by one name.
    pub recorder: String,
}

impl Default for Recorded {
    fn default() -> Recorded {
        Recorded { watts_per_unit: None, factor: 1.0, is_of_time_before: false, recorder: String::new() }
    }
}

#[derive(Clone, Debug)]
pub struct DeviceInfo {
    pub node: String,
    pub name: String,
    pub metric: String,
    pub source: String,
    pub quality: Quality,
    pub nature: Nature,
    pub unit: Unit,
}

/// What a device's figures are in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    Joules,
    /// Time, attributed like a counter.
    Seconds,
}

impl Unit {
    pub fn as_str(self) -> &'static str {
        match self {
            Unit::Joules => "J",
            Unit::Seconds => "s",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ViewKind {
    Ranks,
    Kernels,
}

impl ViewKind {
    pub const BOTH: [ViewKind; 2] = [ViewKind::Ranks, ViewKind::Kernels];

    pub fn as_str(self) -> &'static str {
        match self {
            ViewKind::Ranks => "ranks",
            ViewKind::Kernels => "kernels",
        }
    }
}

pub struct Device {
    pub info: DeviceInfo,
    /// By the ranks' main threads.
    pub ranks: ViewIndex,
    /// By all threads of the ranks, those of a process as one consumer: as soon as some rank of the node has a second thread with
    /// frames. It is the twin of `ranks`, and gets the same samples.
    pub threads: Option<ViewIndex>,
    pub kernels: ViewIndex,
    /// Which of the two the settings call the ranks view.
    locations: Locations,
    counter: Counter,
    watts_max: f64,
    is_power: bool,
    setting: Option<DeviceSetting>,
    /// Whether some reading was not 0; `None` before the first.
    counts: Option<bool>,
    rises: bool,
    curve: Curve,
    /// What else of it was read as a power, beside its counter.
    pub(crate) sensors: Vec<PowerSensor>,
    /// Samples show what was so long ago.
    pub delay_ticks: u64,
}

impl Device {
    /// One that nothing is configured of. Views: ranks, kernels.
    pub(crate) fn new(
        info: DeviceInfo,
        [ranks, kernels]: [ViewIndex; 2],
        locations: Locations,
        counter: Counter,
    ) -> Device {
        let curve = Curve::new(1); // of what is no power, nobody asks
        Device {
            info,
            ranks,
            threads: None,
            kernels,
            locations,
            counter,
            watts_max: f64::INFINITY,
            is_power: false,
            setting: None,
            counts: None,
            rises: false,
            curve,
            sensors: Vec::new(),
            delay_ticks: 0,
        }
    }

    pub fn view(&self, kind: ViewKind) -> ViewIndex {
        match (kind, self.locations) {
            (ViewKind::Ranks, Locations::Main) => self.ranks,
            (ViewKind::Ranks, Locations::All) => self.threads.unwrap_or(self.ranks),
            (ViewKind::Kernels, _) => self.kernels,
        }
    }

    /// The ranks view by the locations that the settings do not choose, where that is another one.
    pub fn other_ranks(&self) -> Option<(Locations, ViewIndex)> {
        self.threads.map(|threads| match self.locations {
            Locations::Main => (Locations::All, threads),
            Locations::All => (Locations::Main, self.ranks),
        })
    }

    /// What was seen of the counter so far.
    pub fn counter_figures(&self) -> CounterFigures {
        self.counter.figures()
    }

    /// A reading. What it means comes out of [`Device::sample`], as soon as that is known.
    pub fn read(&mut self, time: Timestamp, value: MetricValue, tag: u64) {
        let time = time.saturating_sub(self.delay_ticks);
        let counts = match value {
            MetricValue::U64(value) => value != 0,
            MetricValue::I64(value) => value != 0,
            MetricValue::F64(value) => value != 0.0,
        };
        self.counts = Some(self.counts == Some(true) || counts);
        match value {
            MetricValue::U64(value) => self.counter.read_u64(time, value, tag),
            MetricValue::I64(value) => self.counter.read_i64(time, value, tag),
            MetricValue::F64(value) => self.counter.read_f64(time, value, tag),
        }
    }

    /// The next sample that is known, of its own time: earlier than the readings' by the sensor's delay.
    pub fn sample(&mut self) -> Option<Sample> {
        let sample = self.counter.sample()?;
        self.rises |= matches!(sample.increase, Increase::Joules(joules) if joules > 0.0);
        self.curve.see(sample.time, sample.increase);
        Some(sample)
    }

    pub fn counter(&self) -> &Counter {
        &self.counter
    }

    /// More power than this it cannot have, as far as that is known.
    pub fn watts_max(&self) -> f64 {
        self.watts_max
    }

    pub fn counter_mut(&mut self) -> &mut Counter {
        &mut self.counter
    }

    /// Whether its joules are integrated from a power.
    pub fn is_power(&self) -> bool {
        self.is_power
    }

    /// Its power over the run.
    pub fn curve(&self) -> Option<PowerCurve> {
        self.curve.shown().filter(|_| self.info.unit == Unit::Joules)
    }

    /// The same as it is kept: to be compared with others.
    pub(crate) fn energy_over_time(&self) -> &Curve {
        &self.curve
    }

    /// A power sensor of it shows so many watts, or nothing now.
    pub fn sense(&mut self, which: &str, time: Timestamp, watts: Option<f64>, ticks_per_second: u64) {
        let known = self.sensors.iter().position(|sensor| sensor.which == which);
        let at = known.unwrap_or_else(|| {
            self.sensors.push(PowerSensor::new(which, ticks_per_second));
            self.sensors.len() - 1
        });
        self.sensors[at].read(time, watts);
    }

    pub fn setting(&self) -> Option<&DeviceSetting> {
        self.setting.as_ref()
    }

    /// Its counter is known to have risen.
    pub fn rises(&self) -> bool {
        self.rises
    }

    /// It was read, and never showed anything but 0.
    pub fn is_silent(&self) -> bool {
        self.counts == Some(false)
    }
}

pub struct Attributor {
    pub engine: Engine,
    pub regions: Regions,
    pub locations: Vec<LocationInfo>,
    pub devices: Vec<Device>,
    pub(crate) linking: Linking,
    config: Config,
    pub ticks_per_second: u64,
    /// Devices of time whose first event has not come.
    pub(crate) not_begun: Vec<usize>,
}

impl Attributor {
    pub fn new(config: Config, ticks_per_second: u64) -> Attributor {
        Attributor {
            engine: Engine::new(),
            regions: Regions::default(),
            locations: Vec::new(),
            devices: Vec::new(),
            linking: Linking::default(),
            config,
            ticks_per_second: ticks_per_second.max(1),
            not_begun: Vec::new(),
        }
    }

    pub fn config(&self) -> &Config {
        &self.config
    }

    /// One of which nothing more is known than this.
    pub fn add_location(&mut self, info: LocationInfo) -> LocationIndex {
        self.add_location_with(info, Evidence::default())
    }

    /// The rank of a process becomes known, and with it who it shares with.
    pub fn set_rank(&mut self, location: LocationIndex, rank: u32, group: String) {
        let info = &mut self.locations[location.0 as usize];
        info.rank = Some(rank);
        info.group = group;
        self.link(location.0 as usize);
    }

    /// `None` if the metric is no device: no energy by its definition, and not configured.
    pub fn add_device(&mut self, found: FoundDevice) -> Option<usize> {
        self.add_device_at(found, Place::default())
    }

    pub fn add_device_at(&mut self, found: FoundDevice, place: Place) -> Option<usize> {
        self.add_recorded(found, place, Recorded::default())
    }

    pub fn add_recorded(&mut self, found: FoundDevice, place: Place, recorded: Recorded) -> Option<usize> {
        let named = self.config.devices.iter().find_map(|setting| {
            setting.name_for(&found.node, &found.metric).map(|name| (setting.clone(), name))
        });
        let (setting, name) = match named {
            Some((setting, name)) => (Some(setting), name),
            None if !self.config.devices.is_empty() && found.source == "trace" => return None,
            None => (None, ampere_model::device_name(&found.metric)),
        };
        let name = if recorded.recorder.is_empty() { name } else { format!("{name}@{}", recorded.recorder) };
        let by_definition = recorded.watts_per_unit.or(found.joules_per_unit);
        let is_power =
            setting.as_ref().and_then(|s| s.instantaneous).unwrap_or(recorded.watts_per_unit.is_some());
        // Our own counters are in joules already: a scale that was written for a trace's raw values is not for them.
        let own = found.joules_per_unit.filter(|_| found.source != "trace");
        let scale = own.or(setting.as_ref().and_then(|s| s.scale)).or(by_definition);
        // A wrap, too, is of a trace's raw values.
        let wraps_at = setting.as_ref().and_then(|s| s.wraps_at).filter(|_| found.source == "trace");
        let of_topology = TopologyCounter::new(&found.metric, place, setting.as_ref());
        // What is configured without being an energy by its definition may count anything, instructions for example.
        // A GPU is one by whatever unit its counter has.
        let of_kind = watts_max(&found.metric, &of_topology);
        let is_gpu = crate::topology::metric_number(&found.metric).is_some();
        let shown_max = Some(of_kind).filter(|_| by_definition.is_some() || is_gpu);
        let shown_max = self.config.counters.watts_max.or(shown_max).unwrap_or(f64::INFINITY);
        let of_kind = by_definition.map(|_| of_kind);
        let watts_max = self.config.counters.watts_max.or(of_kind).unwrap_or(f64::INFINITY);
        let limits = Limits {
            watts_max,
            gap: self.config.counters.gap,
            stale_seconds: self.config.counters.stale.as_secs_f64(),
            ticks_per_second: self.ticks_per_second as f64,
        };
        let scale = match scale {
            None if setting.is_none() => return None,
            scale => scale.unwrap_or(recorded.factor),
        };
        let kind = if is_power {
            let is_of_time_before = recorded.is_of_time_before;
            CounterKind::Instantaneous { watts_per_unit: scale, is_of_time_before }
        } else {
            CounterKind::Cumulative { joules_per_unit: scale, wraps_at }
        };
        let is_integrated = is_power && found.quality == Quality::Measured;
        let delay = setting.as_ref().map_or(0.0, |s| s.delay.as_secs_f64());
        self.devices.push(Device {
            info: DeviceInfo {
                node: found.node,
                name,
                metric: found.metric,
                source: found.source,
                quality: if is_integrated { Quality::Integrated } else { found.quality },
                unit: Unit::Joules,
                nature: Nature::default(),
            },
            ranks: self.engine.add_view(self.config.attribution.policy, self.config.attribution.sharing),
            threads: None,
            locations: self.config.attribution.locations,
            kernels: self.engine.add_view(self.config.attribution.policy, self.config.attribution.sharing),
            counter: Counter::new(kind, limits),
            watts_max: shown_max,
            is_power,
            setting,
            counts: None,
            rises: false,
            curve: Curve::new(self.ticks_per_second),
            sensors: Vec::new(),
            delay_ticks: self.ticks_of(delay),
        });
        self.link_device(of_topology);
        Some(self.devices.len() - 1)
    }

    pub fn ticks_of(&self, seconds: f64) -> u64 {
        (seconds * self.ticks_per_second as f64).round() as u64
    }

    /// Whether a location's frames are a rank's, by the settings.
    pub fn is_rank(&self, info: &LocationInfo) -> bool {
        let all = self.config.attribution.locations == Locations::All;
        info.kind == LocationKind::CpuThread && (info.main || all)
    }

    /// What is known of a device besides its counter.
    pub fn set_nature(&mut self, device: usize, nature: Nature) {
        let device = &mut self.devices[device];
        let is_set = device.setting.as_ref().is_some_and(|setting| setting.wraps_at.is_some());
        if let Some(wraps_at) = nature.wraps_at.filter(|_| !is_set || device.info.source != "trace") {
            device.counter.set_wraps_at(wraps_at);
        }
        device.info.nature = nature;
    }

    /// Names of the other devices of its node whose joules are also in a device's.
    pub fn parts(&self, device: usize) -> Vec<String> {
        let info = &self.devices[device].info;
        let others = self.devices.iter().map(|other| &other.info).filter(|other| other.node == info.node);
        let parts = others.filter(|other| info.nature.contains.contains(&other.metric));
        parts.filter(|other| other.metric != info.metric).map(|other| other.name.clone()).collect()
    }

    /// The device of its node that contains a device, and is contained by no other: what a sum of all counts it in.
    pub fn whole(&self, device: usize) -> Option<&DeviceInfo> {
        let info = &self.devices[device].info;
        let contains = |whole: &DeviceInfo, part: &str| {
            whole.metric != part && whole.nature.contains.iter().any(|m| m == part)
        };
        let others = || self.devices.iter().map(|other| &other.info).filter(|other| other.node == info.node);
        let topmost = |whole: &&DeviceInfo| !others().any(|other| contains(other, &whole.metric));
        others().filter(|other| contains(other, &info.metric)).find(topmost)
    }

    /// A reading that is believed at once, as if no other came after it, and both views' sample of it.
    pub fn read_now(&mut self, device: usize, time: Timestamp, value: u64) {
        self.devices[device].read(time, MetricValue::U64(value), 0);
        self.end_readings(device);
    }

    /// No reading comes after those that there were: both views' samples of them.
    pub fn end_readings(&mut self, device: usize) {
        self.devices[device].counter_mut().end();
        while let Some(sample) = self.devices[device].sample() {
            for view in [self.devices[device].ranks, self.devices[device].kernels] {
                self.engine.sample(view, sample.time, sample.increase);
            }
        }
    }

    /// No sample of any device that is still to come is before this.
    pub fn undecided_since(&self) -> Timestamp {
        let all = self.devices.iter().filter_map(|device| device.counter().undecided_since());
        all.min().unwrap_or(Timestamp::MAX)
    }

    /// Whether samples were handed out that would be others now.
    pub fn samples_are_revised(&self) -> bool {
        self.devices.iter().any(|device| device.counter().is_revised())
    }

    pub fn longest_delay_ticks(&self) -> u64 {
        self.devices.iter().map(|device| device.delay_ticks).max().unwrap_or(0)
    }
}

/// By the metric's name, and what else is known of the counter: the same live and in the run's own trace.
fn watts_max(metric: &str, counter: &TopologyCounter) -> f64 {
    let metric = metric.to_ascii_lowercase();
    let names = |all: &[&str]| all.iter().any(|name| metric.contains(name));
    if counter.is_gpu() || names(&["accel"]) {
        GPU_WATTS_MAX
    } else if names(&["psys", "node"]) || !names(&["rapl", "package", "cpu", "core", "dram", "memory"]) {
        NODE_WATTS_MAX
    } else {
        PACKAGE_WATTS_MAX
    }
}
