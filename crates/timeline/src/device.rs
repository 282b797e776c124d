//! A device of a run: its counter as it was found, how its readings are understood, and what they have shown so far.

use crate::baseline::{Baseline, BaselineKind};
use crate::counter_traits::CounterTraits;
use crate::curve::{Curve, PowerCurve};
use crate::power_sensor::PowerSensor;
use crate::sameness::FirstReadings;
use crate::topology::{CountedPart, CounterEvidence, metric_number};
use ampere_attribution::{Counter, CounterFigures, CounterKind, Increase, Limits, Sample, ViewIndex};
use ampere_model::counted::{Counted, Level};
use ampere_model::{MetricValue, Quality, Timestamp, device_name};
use ampere_settings::{Config, DeviceSetting, Locations};
use serde::{Deserialize, Serialize};

/// Returns the highest power of a device of a kind, in watts. A node of eight GPUs at full power draws half of its limit. Cray's
/// `cpu`, without a number, is all processors of its node.
pub fn watts_max_of(kind: &str, metric: &str) -> f64 {
    match kind {
        "gpu" => 2e3,
        "cpu" if device_name(metric) == "cpu" => 20e3,
        "cpu" | "memory" => 1e3,
        _ => 20e3,
    }
}

/// A device as it is found, before the settings are applied to it.
#[derive(Clone, Debug)]
pub struct FoundDevice {
    pub node: String,
    pub metric: String,
    /// The library that reads it, or "trace".
    pub source: String,
    /// Whether the device's joules are measured, integrated or estimated.
    pub quality: Quality,
    /// Joules per unit of the counter, if the metric's own definition has them.
    pub joules_per_unit: Option<f64>,
}

/// The properties of a metric that a trace records, and that ampere's own counters do not need.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Recorded {
    /// Watts per unit of the value, if the metric is a power by its own definition.
    pub watts_per_unit: Option<f64>,
    /// The factor for values whose unit is not known.
    pub factor: f64,
    /// Whether a power is the mean since the previous sample, and not the power from its own sample on.
    pub is_of_time_before: bool,
    /// Distinguishes several devices with the same metric: the part of the node that the values refer to, or the location that
    /// recorded them; otherwise empty.
    pub recorder: String,
    /// Whether another tool has recorded the metric.
    pub is_by_other_tool: bool,
}

impl Recorded {
    /// Returns the counter's name, which no other counter of its node has.
    pub fn counter(&self, metric: &str) -> String {
        counter_name(metric, &self.recorder)
    }
}

/// Returns a counter's name; `which` distinguishes those of one metric.
pub fn counter_name(metric: &str, which: &str) -> String {
    if which.is_empty() { metric.to_owned() } else { format!("{metric}@{which}") }
}

impl Default for Recorded {
    fn default() -> Recorded {
        Recorded {
            watts_per_unit: None,
            factor: 1.0,
            is_of_time_before: false,
            recorder: String::new(),
            is_by_other_tool: false,
        }
    }
}

/// The description of a device that a summary shows before its figures.
#[derive(Clone, Debug)]
pub struct DeviceInfo {
    pub node: String,
    /// The device's own name, from the settings or from its metric.
    pub name: String,
    pub metric: String,
    /// [`Recorded::counter`]: the metric's name, with an addition if several devices have it.
    pub counter: String,
    /// The library that reads it, or "trace".
    pub source: String,
    /// [`Recorded::is_by_other_tool`].
    pub is_by_other_tool: bool,
    /// Whether the device's joules are measured, integrated or estimated.
    pub quality: Quality,
    /// The device's kind, what it contains, and where its counter wraps.
    pub traits: CounterTraits,
    pub unit: Unit,
}

impl DeviceInfo {
    /// Whether the device's joules include those of another device of its node.
    pub fn contains(&self, part: &DeviceInfo) -> bool {
        let is_part = |name: &String| *name == part.metric || *name == part.counter;
        self.counter != part.counter && self.traits.contains.iter().any(is_part)
    }
}

/// The unit of a device's figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Energy; the figures are in joules.
    Joules,
    /// Time, which is attributed like a counter.
    Seconds,
}

impl Unit {
    /// Returns the symbol that summaries have.
    pub fn as_str(self) -> &'static str {
        match self {
            Unit::Joules => "J",
            Unit::Seconds => "s",
        }
    }
}

/// A way to divide a device's joules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ViewKind {
    /// The joules are divided among the ranks' frames.
    Ranks,
    /// The joules are divided among the kernels of GPU streams.
    Kernels,
}

impl ViewKind {
    /// Both views, in the order of a summary.
    pub const BOTH: [ViewKind; 2] = [ViewKind::Ranks, ViewKind::Kernels];

    /// Returns the name in summaries and options.
    pub fn as_str(self) -> &'static str {
        match self {
            ViewKind::Ranks => "ranks",
            ViewKind::Kernels => "kernels",
        }
    }
}

/// The engine's views of one device.
#[derive(Clone, Copy, Debug)]
pub struct Views {
    /// The view whose consumers are the ranks' main threads.
    pub ranks: ViewIndex,
    /// The view whose consumers are all threads of the ranks, those of a process as one consumer; it exists as soon as some
    /// rank of the node has a second thread with frames. It is the twin of `ranks`, and gets the same samples.
    pub threads: Option<ViewIndex>,
    /// The view whose consumers are GPU streams.
    pub kernels: ViewIndex,
    /// The view that the settings choose as the ranks view: `ranks` or `threads`.
    pub locations: Locations,
}

impl Views {
    /// Returns the view of this kind that gets samples of its own, and not those of its twin.
    pub fn sampled(&self, kind: ViewKind) -> ViewIndex {
        match kind {
            ViewKind::Ranks => self.ranks,
            ViewKind::Kernels => self.kernels,
        }
    }
}

/// Whether a device's joules are a part of its node's sum.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Standing {
    /// The device's joules are a part of the node's sum.
    #[default]
    Counts,
    /// The counter may be another device's, too. The device is left out until that is known.
    Undecided,
    /// The counter is that of the device with this number.
    Repeats(usize),
    /// The device contains others that have counted more joules.
    Disproved(Disproof),
}

/// The proof that a device's counter does not include all of its parts.
#[derive(Clone, Debug, PartialEq)]
pub struct Disproof {
    /// The joules of the device itself.
    pub joules: f64,
    pub parts_joules: f64,
    /// The names of its parts, joined.
    pub parts: String,
}

/// A counter with its views.
pub struct Device {
    /// The description of the device.
    pub info: DeviceInfo,
    pub views: Views,
    /// Samples show what happened this many ticks earlier.
    pub delay_ticks: u64,
    counter: Counter,
    power_limit: PowerLimit,
    is_power: bool,
    setting: Option<DeviceSetting>,
    /// The device's power in the intervals in which nothing of the run was active, if an earlier pass has determined it.
    pub(crate) learnt_baseline: Option<Baseline>,
    /// Whether some reading was not 0; `None` before the first reading.
    was_nonzero: Option<bool>,
    /// The number of samples in which its counter had risen.
    rises: u64,
    curve: Curve,
    /// Power sensors that were read in addition to its counter.
    pub(crate) sensors: Vec<PowerSensor>,
    /// Whether the device's joules are part of its node's sum.
    pub standing: Standing,
    pub(crate) first_readings: FirstReadings,
}

impl Device {
    pub(crate) fn new(info: DeviceInfo, views: Views, counter: Counter, ticks_per_second: u64) -> Device {
        Device {
            info,
            views,
            delay_ticks: 0,
            counter,
            power_limit: PowerLimit::default(),
            is_power: false,
            setting: None,
            learnt_baseline: None,
            was_nonzero: None,
            rises: 0,
            curve: Curve::new(ticks_per_second),
            sensors: Vec::new(),
            standing: Standing::default(),
            first_readings: FirstReadings::default(),
        }
    }

    /// Returns a device as the settings define it.
    pub(crate) fn interpreted(
        info: DeviceInfo,
        views: Views,
        interpretation: Interpretation,
        ticks_per_second: u64,
    ) -> Device {
        let Interpretation { setting, kind, limits, power_limit, .. } = interpretation;
        let delay = setting.as_ref().map_or(0.0, |setting| setting.delay.as_secs_f64());
        Device {
            delay_ticks: (delay * ticks_per_second as f64).round() as u64,
            power_limit,
            is_power: matches!(kind, CounterKind::Instantaneous { .. }),
            setting,
            ..Device::new(info, views, Counter::new(kind, limits), ticks_per_second)
        }
    }

    /// Returns its power without the job, if it is known.
    pub fn baseline(&self) -> Option<Baseline> {
        let set = self.setting.as_ref().and_then(|setting| {
            let kind = if setting.calibrated { BaselineKind::Calibrated } else { BaselineKind::Set };
            Some(Baseline::known(setting.baseline_watts?, kind))
        });
        let of_source = self.info.traits.baseline_microwatts.map(|microwatts| microwatts as f64 * 1e-6);
        let of_source = of_source.map(|watts| Baseline::known(watts, BaselineKind::Estimate));
        set.or(of_source).or(self.learnt_baseline)
    }

    /// Returns the view that the settings choose for this kind.
    pub fn view(&self, kind: ViewKind) -> ViewIndex {
        match (kind, self.views.locations) {
            (ViewKind::Ranks, Locations::Main) => self.views.ranks,
            (ViewKind::Ranks, Locations::All) => self.views.threads.unwrap_or(self.views.ranks),
            (ViewKind::Kernels, _) => self.views.kernels,
        }
    }

    /// Returns the ranks view for the locations that the settings do not choose, if there is one.
    pub fn other_ranks(&self) -> Option<(Locations, ViewIndex)> {
        self.views.threads.map(|threads| match self.views.locations {
            Locations::Main => (Locations::All, threads),
            Locations::All => (Locations::Main, self.views.ranks),
        })
    }

    pub fn counter_figures(&self) -> CounterFigures {
        self.counter.figures()
    }

    /// Processes a reading. [`Device::sample`] returns its meaning as soon as that is certain. `tag` is any number; the counter
    /// uses it to name readings that it takes back.
    pub fn read(&mut self, time: Timestamp, value: MetricValue, tag: u64) {
        let time = time.saturating_sub(self.delay_ticks);
        let is_nonzero = match value {
            MetricValue::U64(value) => value != 0,
            MetricValue::I64(value) => value != 0,
            MetricValue::F64(value) => value != 0.0,
        };
        self.first_readings.add(time, value);
        self.was_nonzero = Some(self.was_nonzero == Some(true) || is_nonzero);
        match value {
            MetricValue::U64(value) => self.counter.read_u64(time, value, tag),
            MetricValue::I64(value) => self.counter.read_i64(time, value, tag),
            MetricValue::F64(value) => self.counter.read_f64(time, value, tag),
        }
    }

    /// Returns the next sample that is certain, with its own time: earlier than the reading's by the sensor's delay.
    pub fn sample(&mut self) -> Option<Sample> {
        let sample = self.counter.sample()?;
        self.rises += u64::from(matches!(sample.increase, Increase::Joules(joules) if joules > 0.0));
        self.curve.add_sample(sample.time, sample.increase);
        Some(sample)
    }

    /// Returns the counter that interprets its readings.
    pub fn counter(&self) -> &Counter {
        &self.counter
    }

    /// Returns the counter that interprets its readings, to change it.
    pub fn counter_mut(&mut self) -> &mut Counter {
        &mut self.counter
    }

    /// Returns the highest power that the device can draw, in watts; infinite if it is not known.
    pub fn watts_max(&self) -> f64 {
        self.power_limit.shown()
    }

    /// Whether the device's joules are integrated from a power.
    pub fn is_power(&self) -> bool {
        self.is_power
    }

    /// Returns the device's power over the run; `None` without two samples, and for time.
    pub fn power_curve(&self) -> Option<PowerCurve> {
        self.curve.power().filter(|_| self.info.unit == Unit::Joules)
    }

    /// Returns the device's energy over the run, to be compared with other measurements.
    pub fn energy_over_time(&self) -> &Curve {
        &self.curve
    }

    /// Processes a reading of one of its power sensors: watts, or `None` if it failed.
    pub fn read_power_sensor(
        &mut self,
        which: &str,
        time: Timestamp,
        watts: Option<f64>,
        ticks_per_second: u64,
    ) {
        let known = self.sensors.iter().position(|sensor| sensor.which == which);
        let at = known.unwrap_or_else(|| {
            self.sensors.push(PowerSensor::new(which, ticks_per_second));
            self.sensors.len() - 1
        });
        self.sensors[at].read(time, watts);
    }

    /// Returns the `[[device]]` that applies to it.
    pub fn setting(&self) -> Option<&DeviceSetting> {
        self.setting.as_ref()
    }

    /// Whether the device's counter has risen.
    pub fn rises(&self) -> bool {
        self.rises > 0
    }

    /// Returns the number of samples at which the device's counter had risen.
    pub fn rise_count(&self) -> u64 {
        self.rises
    }

    /// Whether the counter was read, and always showed 0.
    pub fn is_silent(&self) -> bool {
        self.was_nonzero == Some(false)
    }

    /// Sets the device's kind, and with it the highest power that it can draw, the devices that it contains, and the value at
    /// which its counter wraps, unless a setting declares that value for a trace's counter.
    pub(crate) fn set_traits(&mut self, traits: CounterTraits) {
        self.power_limit.set_kind(&traits.kind, &self.info.metric);
        self.counter.set_watts_max(self.power_limit.believed());
        let is_set = self.setting.as_ref().is_some_and(|setting| setting.wraps_at.is_some());
        if let Some(wraps_at) = traits.wraps_at.filter(|_| !is_set || self.info.source != "trace") {
            self.counter.set_wraps_at(wraps_at);
        }
        self.info.traits = traits;
    }
}

/// The interpretation of a counter's readings, from its `[[device]]` and its own definition.
pub(crate) struct Interpretation {
    pub name: String,
    pub part: CountedPart,
    pub setting: Option<DeviceSetting>,
    kind: CounterKind,
    limits: Limits,
    power_limit: PowerLimit,
}

/// The most power that a device can draw: a setting, or a property of its kind.
#[derive(Clone, Copy, Debug, Default)]
struct PowerLimit {
    set: Option<f64>,
    of_kind: f64,
    /// Whether the metric is an energy or a power by its definition. Others may count anything, instructions for example.
    is_energy: bool,
    is_gpu: bool,
    /// Whether the metric's name has a GPU's number. Then the device is a GPU, whatever unit its counter has.
    has_gpu_number: bool,
}

impl PowerLimit {
    fn set_kind(&mut self, kind: &str, metric: &str) {
        let counted = Counted::by_name(metric);
        // A counter without a number may be that of all GPUs or packages of the node.
        let has_number =
            counted.is_numbered() || self.has_gpu_number || metric.ends_with(|c: char| c.is_ascii_digit());
        let may_be_several = matches!(counted.level, Some(Level::Package | Level::Gpu | Level::GpuBoard));
        let is_one = has_number || !may_be_several;
        let kind = if self.is_gpu { "gpu" } else { kind };
        self.of_kind = watts_max_of(if is_one { kind } else { "node" }, metric);
    }

    /// Returns the power above which no reading is believed.
    fn believed(self) -> f64 {
        self.set.or(self.is_energy.then_some(self.of_kind)).unwrap_or(f64::INFINITY)
    }

    /// Returns the highest power that can be shown of the device.
    fn shown(self) -> f64 {
        let has_kind = self.is_energy || self.has_gpu_number;
        self.set.or(has_kind.then_some(self.of_kind)).unwrap_or(f64::INFINITY)
    }
}

impl Interpretation {
    /// Returns `None` if the metric does not count a device's energy: no `[[device]]` matches it, and either its definition is
    /// that of another quantity, or, in a trace, other metrics have a `[[device]]`.
    pub fn new(
        config: &Config,
        found: &FoundDevice,
        evidence: CounterEvidence,
        recorded: &Recorded,
        ticks_per_second: u64,
    ) -> Option<Interpretation> {
        let name_by = |setting: &DeviceSetting| setting.name_for(&found.node, &found.metric);
        let named = config.devices.iter().find_map(|setting| Some((name_by(setting)?, setting.clone())));
        let is_of_trace = found.source == "trace";
        let (name, setting) = match named {
            Some((name, setting)) => (name, Some(setting)),
            None if !config.devices.is_empty() && is_of_trace => return None,
            None => (device_name(&found.metric), None),
        };
        let name = if recorded.recorder.is_empty() { name } else { format!("{name}@{}", recorded.recorder) };
        let by_definition = recorded.watts_per_unit.or(found.joules_per_unit);
        // Our own counters are in joules already: a scale that was written for a trace's raw values does not apply to them.
        let own = found.joules_per_unit.filter(|_| !is_of_trace);
        let scale = match own.or(setting.as_ref().and_then(|s| s.scale)).or(by_definition) {
            None if setting.is_none() => return None,
            scale => scale.unwrap_or(recorded.factor),
        };
        let is_power =
            setting.as_ref().and_then(|s| s.instantaneous).unwrap_or(recorded.watts_per_unit.is_some());
        let kind = if is_power {
            let is_of_time_before = recorded.is_of_time_before;
            CounterKind::Instantaneous { watts_per_unit: scale, is_of_time_before }
        } else {
            // A setting of the wrap, too, applies only to a trace's raw values.
            let wraps_at = setting.as_ref().and_then(|s| s.wraps_at).filter(|_| is_of_trace);
            CounterKind::Cumulative { joules_per_unit: scale, wraps_at }
        };
        let part = CountedPart::new(&found.metric, evidence, setting.as_ref());
        let mut power_limit = PowerLimit {
            set: config.counters.watts_max,
            of_kind: f64::INFINITY,
            is_energy: by_definition.is_some(),
            is_gpu: part.is_gpu(),
            has_gpu_number: metric_number(&found.metric).is_some(),
        };
        power_limit.set_kind(&part.evidence.kind, &found.metric);
        let limits = Limits {
            watts_max: power_limit.believed(),
            gap: config.counters.gap,
            stale_seconds: config.counters.stale.as_secs_f64(),
            ticks_per_second: ticks_per_second as f64,
        };
        Some(Interpretation { name, part, setting, kind, limits, power_limit })
    }

    /// Returns the quality of joules with this interpretation.
    pub fn quality(&self, found: Quality) -> Quality {
        let is_power = matches!(self.kind, CounterKind::Instantaneous { .. });
        if is_power && found == Quality::Measured { Quality::Integrated } else { found }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attributor::Attributor;

    #[test]
    fn a_power_limit_follows_from_the_kind_and_only_that_of_all_processors_from_the_name() {
        let mut attributor = Attributor::new(Config::default(), 1000);
        // The name has "core" in it.
        let node = FoundDevice {
            node: "n".to_owned(),
            metric: "A2coretemp:::craypm:energy".to_owned(),
            source: "trace".to_owned(),
            quality: Quality::Measured,
            joules_per_unit: Some(1.0),
        };
        let device = attributor.add_device(node.clone()).expect("an energy");
        for (kind, watts) in [("node", 20e3), ("cpu", 1e3), ("memory", 1e3), ("gpu", 2e3), ("", 20e3)] {
            attributor
                .set_traits(device, CounterTraits { kind: kind.to_owned(), ..CounterTraits::default() });
            assert_eq!(attributor.devices[device].watts_max(), watts, "{kind}");
        }
        for (metric, watts) in [
            ("cray_pm:::energy:cpu", 20e3),
            ("coretemp:::craypm:cpu_energy", 20e3),
            ("cray_pm:::energy:cpu0", 1e3),
            ("hwmon:::energy:cpu-0", 1e3),
        ] {
            let cpu = FoundDevice { metric: metric.to_owned(), ..node.clone() };
            let cpu = attributor.add_device(cpu).expect("an energy");
            attributor.set_traits(cpu, CounterTraits { kind: "cpu".to_owned(), ..CounterTraits::default() });
            assert_eq!(attributor.devices[cpu].watts_max(), watts, "{metric}");
        }
        let gpu = FoundDevice { metric: "rocm_smi:::energy_count:device=1".to_owned(), ..node.clone() };
        let gpu = attributor.add_device(gpu).expect("an energy");
        assert_eq!(attributor.devices[gpu].watts_max(), 2e3);
        let mut config = Config::default();
        config.counters.watts_max = Some(5.0);
        let mut attributor = Attributor::new(config, 1000);
        let device = attributor.add_device(node).expect("an energy");
        attributor.set_traits(device, CounterTraits { kind: "node".to_owned(), ..CounterTraits::default() });
        assert_eq!(attributor.devices[device].watts_max(), 5.0);
    }
}
