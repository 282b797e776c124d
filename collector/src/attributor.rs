//! Devices and locations of a run, who spends from what, and the engine that does the sums. The live collector and the
//! offline reader fill in the same attributor.

use crate::config::{Config, DeviceSetting, Locations};
use crate::curve::{Curve, PowerCurve};
use crate::linking::Linking;
use crate::nature::Nature;
use crate::regions::Regions;
use crate::topology::{Counter as TopologyCounter, Evidence, Place};
use ampere_attribution::{
    Counter, CounterFigures, CounterKind, Engine, Increase, Limits, LocationIndex, ViewIndex,
};
use ampere_model::{LocationKind, Quality, Timestamp};

/// No device gives more; a node of eight GPUs at full power gives half.
const WATTS_MAX: f64 = 20e3;

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
    setting: Option<DeviceSetting>,
    /// Whether some reading was not 0; `None` before the first.
    counts: Option<bool>,
    curve: Curve,
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
            setting: None,
            counts: None,
            curve,
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

    /// What a reading means: when, and how much more.
    pub fn read_u64(&mut self, time: Timestamp, value: u64) -> (Timestamp, Increase) {
        self.read(time, value != 0, |counter, time| counter.read_u64(time, value))
    }

    pub fn read_i64(&mut self, time: Timestamp, value: i64) -> (Timestamp, Increase) {
        self.read(time, value != 0, |counter, time| counter.read_i64(time, value))
    }

    pub fn read_f64(&mut self, time: Timestamp, value: f64) -> (Timestamp, Increase) {
        self.read(time, value != 0.0, |counter, time| counter.read_f64(time, value))
    }

    fn read(
        &mut self,
        time: Timestamp,
        counts: bool,
        read: impl FnOnce(&mut Counter, Timestamp) -> Increase,
    ) -> (Timestamp, Increase) {
        let time = time.saturating_sub(self.delay_ticks);
        self.counts = Some(self.counts == Some(true) || counts);
        let increase = read(&mut self.counter, time);
        self.curve.see(time, increase);
        (time, increase)
    }

    /// Its power over the run.
    pub fn curve(&self) -> Option<PowerCurve> {
        self.curve.shown().filter(|_| self.info.unit == Unit::Joules)
    }

    pub fn setting(&self) -> Option<&DeviceSetting> {
        self.setting.as_ref()
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
        let named = self.config.devices.iter().find_map(|setting| {
            setting.name_for(&found.node, &found.metric).map(|name| (setting.clone(), name))
        });
        let (setting, name) = match named {
            Some((setting, name)) => (Some(setting), name),
            None if !self.config.devices.is_empty() && found.source == "trace" => return None,
            None => (None, ampere_model::device_name(&found.metric)),
        };
        // Our own counters are in joules already: a scale that was written for a trace's raw values is not for them.
        let own = found.joules_per_unit.filter(|_| found.source != "trace");
        let scale = own.or(setting.as_ref().and_then(|s| s.scale)).or(found.joules_per_unit);
        // A wrap, too, is of a trace's raw values.
        let wraps_at = setting.as_ref().and_then(|s| s.wraps_at).filter(|_| found.source == "trace");
        // What is configured without being an energy by its definition may count anything, instructions for example.
        let watts_max = self.config.counter_watts_max.or(found.joules_per_unit.map(|_| WATTS_MAX));
        let limits = Limits {
            watts_max: watts_max.unwrap_or(f64::INFINITY),
            gap: self.config.counter_gap,
            stale_seconds: self.config.counter_stale.as_secs_f64(),
            ticks_per_second: self.ticks_per_second as f64,
        };
        let kind = match (&setting, scale) {
            (Some(s), scale) if s.instantaneous => {
                CounterKind::Instantaneous { watts_per_unit: scale.unwrap_or(1.0) }
            }
            (_, Some(joules_per_unit)) => CounterKind::Cumulative { joules_per_unit, wraps_at },
            (Some(_), None) => CounterKind::Cumulative { joules_per_unit: 1.0, wraps_at },
            (None, None) => return None,
        };
        let delay = setting.as_ref().map_or(0.0, |s| s.delay.as_secs_f64());
        let of_topology = TopologyCounter::new(&found.metric, place, setting.as_ref());
        self.devices.push(Device {
            info: DeviceInfo {
                node: found.node,
                name,
                metric: found.metric,
                source: found.source,
                quality: found.quality,
                unit: Unit::Joules,
                nature: Nature::default(),
            },
            ranks: self.engine.add_view(self.config.policy, self.config.sharing),
            threads: None,
            locations: self.config.locations,
            kernels: self.engine.add_view(self.config.policy, self.config.sharing),
            counter: Counter::new(kind, limits),
            setting,
            counts: None,
            curve: Curve::new(self.ticks_per_second),
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
        let all = self.config.locations == Locations::All;
        info.kind == LocationKind::CpuThread && (info.main || all)
    }

    /// What is known of a device besides its counter.
    pub fn set_nature(&mut self, device: usize, nature: Nature) {
        self.devices[device].info.nature = nature;
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

    pub fn longest_delay_ticks(&self) -> u64 {
        self.devices.iter().map(|device| device.delay_ticks).max().unwrap_or(0)
    }
}
