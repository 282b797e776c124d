//! A trace's metrics as devices: which metrics are devices, in what unit, and which location's samples are taken. `attribute`,
//! `replay` and `report -f chrome` share these rules.
//!
//! A matching `[[device]]` defines what a metric's values are; without one, its unit and exponent do or, where Score-P records
//! PAPI's counters without a unit, its name. OTF2's mode defines the time that a power value belongs to. Without any
//! `[[device]]`, every energy is a device, and so is every power of something that has no energy in the trace.

use crate::evidence;
use crate::index::{quality_of, recorded_metrics};
use crate::left_out::{LeftOut, Shown};
use crate::metric_recorders::{ReadBy, Recorders};
use crate::places::Place;
use ampere_model::counted::{Counted, is_no_consumption};
use ampere_model::{Quantity, device_name, quantity_of_name, quantity_of_unit};
use ampere_settings::Config;
use ampere_timeline::attributor::{Attributor, FoundDevice, Recorded};
use ampere_timeline::counter_traits::CounterTraits;
use ampere_timeline::topology::{CounterEvidence, metric_number};
use otf2::{
    Definitions, LocationRef, MetricBase, MetricClassRef, MetricInstanceRef, MetricMember, MetricMemberRef,
    MetricMode, MetricRef, MetricValue,
};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// The samples of one counter: where they are recorded, which member of a class they are, and through which instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Series {
    pub location: LocationRef,
    pub member: MetricMemberRef,
    pub instance: Option<MetricInstanceRef>,
}

impl Series {
    pub fn as_numbers(self) -> (u64, u32, Option<u32>) {
        (self.location.0, self.member.0, self.instance.map(|instance| instance.0))
    }

    pub fn of_numbers((location, member, instance): (u64, u32, Option<u32>)) -> Series {
        let (member, instance) = (MetricMemberRef(member), instance.map(MetricInstanceRef));
        Series { location: LocationRef(location), member, instance }
    }
}

/// What is counted: a metric of a node or of a part of it. Several series with one key may be of one counter.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key {
    pub node: String,
    pub metric: String,
    pub part: String,
}

/// The members of each class, with their positions in it.
type Members = HashMap<MetricClassRef, Vec<(usize, MetricMemberRef)>>;

/// A trace's metrics, sorted by the definitions and the settings.
#[derive(Clone)]
pub(crate) struct Metrics {
    /// Members that are devices.
    classes: Members,
    /// Members that are no devices and whose joules may be missing from the figures.
    doubtful: Members,
    /// Names of the metrics that are devices.
    names: BTreeSet<String>,
    /// Metrics that look like energy or power but are not devices.
    pub left_out: LeftOut,
    /// Whether some metric is an energy or a power by its definition.
    pub energy_is_known: bool,
}

impl Metrics {
    pub fn new(definitions: &Definitions, config: &Config) -> Metrics {
        let members: Vec<&MetricMember> = recorded_metrics(definitions).collect();
        let (mut names, mut left_out) = match config.devices.is_empty() {
            true => wanted(&members),
            false => configured(&members, config),
        };
        let relative = members.iter().filter(|member| names.contains(&member.name) && is_relative(member));
        let relative: BTreeSet<String> = relative.map(|member| member.name.clone()).collect();
        for name in relative {
            names.remove(&name);
            left_out.relative.insert(name);
        }
        let of = |is_wanted: &dyn Fn(&MetricMember) -> bool| {
            let mut classes = Members::new();
            for (reference, class) in definitions.metric_classes.iter() {
                let is_one =
                    |member: &MetricMemberRef| definitions.metric_members.get(*member).is_some_and(is_wanted);
                let all = class.members.iter().copied().enumerate();
                let members: Vec<_> = all.filter(|(_, member)| is_one(member)).collect();
                if !members.is_empty() {
                    classes.insert(reference, members);
                }
            }
            classes
        };
        let classes = of(&|member| names.contains(&member.name));
        let doubtful = of(&|member| left_out.is_doubtful(&member.name));
        let energy_is_known =
            !classes.is_empty() || members.iter().any(|member| quantity_of(member).is_some());
        Metrics { classes, doubtful, names, left_out, energy_is_known }
    }

    /// Returns the values of a metric event that belong to devices.
    pub fn values<'a>(
        &'a self,
        metric: MetricRef,
        values: &'a [MetricValue],
    ) -> impl Iterator<Item = (MetricMemberRef, MetricValue)> + 'a {
        let members = self.classes.get(&metric.class).map_or(&[][..], Vec::as_slice);
        members.iter().filter_map(|(position, member)| Some((*member, *values.get(*position)?)))
    }

    /// Describes the device of a series, without the evidence about its part of the machine.
    pub fn describe(&self, definitions: &Definitions, series: Series) -> Option<Found> {
        let metric = definitions.metric_members.get(series.member)?;
        let quantity = quantity_of(metric);
        let place = Place::new(definitions, series.location, series.instance);
        let device = FoundDevice {
            node: place.node.clone(),
            metric: metric.name.clone(),
            source: "trace".to_owned(),
            quality: quality_of(&metric.description),
            joules_per_unit: match quantity {
                Some(Quantity::Energy(joules)) => Some(joules),
                _ => None,
            },
        };
        let is_known_by_name =
            quantity_of_unit(&metric.unit).is_none() && quantity_of_name(&metric.name).is_some();
        let recorded = Recorded {
            watts_per_unit: match quantity {
                Some(Quantity::Power(watts)) => Some(watts),
                _ => None,
            },
            factor: scaled(1.0, metric),
            is_of_time_before: !is_known_by_name
                && matches!(metric.mode, MetricMode::AbsoluteLast | MetricMode::AccumulatedLast),
            recorder: place.part.clone(),
        };
        let counter = recorded.counter(&metric.name);
        let told = evidence::traits_of(definitions, series.location, &counter);
        let counted = Counted::by_name(&metric.name).at(place.counted);
        let traits = told.clone().unwrap_or_else(|| CounterTraits::by_name(&metric.name, &self.names));
        let kind = traits.kind.clone();
        let kind =
            if kind.is_empty() { counted.level.map_or("", |level| level.kind()).to_owned() } else { kind };
        let traits = CounterTraits { kind, ..traits };
        Some(Found {
            series,
            device,
            evidence: CounterEvidence::default(),
            recorded,
            traits,
            is_told: told.is_some(),
            place,
            counted,
            number: None,
        })
    }
}

/// Returns the names of the metrics that the settings make devices.
fn configured(members: &[&MetricMember], config: &Config) -> (BTreeSet<String>, LeftOut) {
    let is_configured =
        |member: &MetricMember| config.devices.iter().any(|setting| setting.metric.is_match(&member.name));
    let (mut names, mut left_out) = (BTreeSet::new(), LeftOut::default());
    for member in members {
        if is_configured(member) {
            names.insert(member.name.clone());
        } else if LeftOut::looks_like_energy(member) {
            left_out.not_configured.insert(member.name.clone());
        }
    }
    (names, left_out)
}

/// Returns the names of the metrics that are devices without any setting.
fn wanted(members: &[&MetricMember]) -> (BTreeSet<String>, LeftOut) {
    let mut left_out = LeftOut::default();
    let (mut energies, mut powers) = (BTreeSet::new(), Vec::new());
    for member in members {
        match quantity_of(member) {
            _ if !LeftOut::looks_like_energy(member) => {}
            Some(_) | None if is_no_consumption(&member.name) => {
                left_out.limits.insert(member.name.clone());
            }
            Some(Quantity::Energy(_)) => {
                energies.insert(member.name.clone());
            }
            Some(Quantity::Power(_)) => powers.push(*member),
            None => {
                left_out.without_unit.insert(member.name.clone(), member.unit.clone());
            }
        }
    }
    let measured: BTreeSet<String> = energies.iter().map(|name| device_name(name)).collect();
    let counted: BTreeSet<Counted> = energies.iter().map(|name| Counted::by_name(name)).collect();
    let mut taken: BTreeMap<String, String> = BTreeMap::new();
    for member in powers {
        let (name, of) = (device_name(&member.name), Counted::by_name(&member.name));
        // A power is left out if an energy counts the same part; a power of an unknown part may already be contained in an
        // energy.
        let is_measured = measured.contains(&name) || (of.level.is_some() && counted.contains(&of));
        let is_another = metric_number(&member.name).is_some() || of.level.is_some();
        if is_measured {
            left_out.measured.insert(member.name.clone());
        } else if !energies.is_empty() && !is_another {
            left_out.of_unknown.insert(member.name.clone());
        } else {
            let first = taken.entry(name).or_insert_with(|| member.name.clone());
            if *first != member.name {
                left_out.same.insert(member.name.clone(), first.clone());
            }
        }
    }
    energies.extend(taken.into_values());
    (energies, left_out)
}

/// Whether a metric's values are differences from one sample to the next.
fn is_relative(member: &MetricMember) -> bool {
    use MetricMode::{RelativeLast, RelativeNext, RelativePoint};
    matches!(member.mode, RelativeLast | RelativeNext | RelativePoint)
}

/// Returns a metric's quantity, with the joules or watts in one unit of the raw value.
pub(crate) fn quantity_of(member: &MetricMember) -> Option<Quantity> {
    let by_unit = quantity_of_unit(&member.unit).map(|quantity| match quantity {
        Quantity::Energy(joules) => Quantity::Energy(scaled(joules, member)),
        Quantity::Power(watts) => Quantity::Power(scaled(watts, member)),
    });
    by_unit.or_else(|| quantity_of_name(&member.name))
}

/// Multiplies a value by the metric's base to the power of its exponent.
pub(crate) fn scaled(value: f64, member: &MetricMember) -> f64 {
    let base: f64 = if member.base == MetricBase::Binary { 2.0 } else { 10.0 };
    // 10^-9 is one division and not nine multiplications.
    let power = base.powi(member.exponent.unsigned_abs().min(1000) as i32);
    if member.exponent < 0 { value / power } else { value * power }
}

/// A device that was found in a trace.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    /// The series whose samples are taken.
    pub series: Series,
    pub device: FoundDevice,
    pub evidence: CounterEvidence,
    pub recorded: Recorded,
    pub traits: CounterTraits,
    /// Whether the trace states what the device contains, as ampere's own traces do.
    pub is_told: bool,
    pub place: Place,
    pub counted: Counted,
    /// The number among the attributor's devices; `None` if a `[[device]]` applies to this metric on other nodes only.
    pub number: Option<usize>,
}

impl Found {
    pub fn key(&self) -> Key {
        Key {
            node: self.device.node.clone(),
            metric: self.device.metric.clone(),
            part: self.place.part.clone(),
        }
    }

    /// Adds it to an attributor's devices; `None` if it is not a device on this node.
    pub fn add_to(&mut self, attributor: &mut Attributor) -> Option<usize> {
        self.number =
            attributor.add_recorded(self.device.clone(), self.evidence.clone(), self.recorded.clone());
        attributor.set_traits(self.number?, self.traits.clone());
        self.number
    }

    /// Returns the text `package-0 on n1`.
    pub fn text(&self) -> String {
        let counter = self.recorded.counter(&self.device.metric);
        let node = &self.device.node;
        if node.is_empty() { counter } else { format!("{counter} on {node}") }
    }
}

/// The devices of a trace, which are found with their first samples.
pub(crate) struct TraceDevices<'a> {
    definitions: &'a Definitions,
    metrics: Metrics,
    /// Evidence by node and metric.
    evidence: HashMap<(String, String), CounterEvidence>,
    recorders: Option<Recorders>,
    /// Series of wholes that have fewer joules than their parts.
    disproved: Vec<Series>,
    /// The attributor's device of each series; `None` if it has none.
    series: HashMap<Series, Option<usize>>,
    /// The first series of each key.
    first: HashMap<Key, Series>,
    /// Sources by node and metric, where they are not "trace".
    pub sources: HashMap<(String, String), String>,
    pub found: Vec<Found>,
    /// Whether several series have one key: their samples must be compared first.
    pub is_undecided: bool,
    /// What the samples show of metrics whose joules may be missing.
    pub missing: HashMap<Series, Shown>,
}

impl<'a> TraceDevices<'a> {
    pub fn new(
        definitions: &'a Definitions,
        metrics: Metrics,
        recorders: Option<Recorders>,
        disproved: Vec<Series>,
    ) -> TraceDevices<'a> {
        TraceDevices {
            definitions,
            metrics,
            evidence: evidence::of_counters(definitions),
            recorders,
            disproved,
            series: HashMap::new(),
            first: HashMap::new(),
            sources: HashMap::new(),
            found: Vec::new(),
            is_undecided: false,
            missing: HashMap::new(),
        }
    }

    /// Adds the devices that an earlier pass found.
    pub fn add_found(&mut self, mut found: Vec<Found>, attributor: &mut Attributor) {
        found.retain(|found| !self.disproved.contains(&found.series));
        for found in &mut found {
            let device = found.add_to(attributor);
            self.series.insert(found.series, device);
            self.first.entry(found.key()).or_insert(found.series);
        }
        self.found = found;
    }

    pub fn definitions(&self) -> &'a Definitions {
        self.definitions
    }

    /// Returns the samples in an event: the attributor's number of each device, and its value. Finds devices at their first
    /// sample.
    pub fn samples(
        &mut self,
        location: LocationRef,
        metric: MetricRef,
        values: &[MetricValue],
        attributor: &mut Attributor,
    ) -> Vec<(usize, MetricValue)> {
        for (position, member) in self.metrics.doubtful.get(&metric.class).map_or(&[][..], Vec::as_slice) {
            let Some(value) = values.get(*position) else { continue };
            let series = Series { location, member: *member, instance: metric.instance };
            self.missing.entry(series).or_default().add(number(value));
        }
        let mut samples = Vec::new();
        let values: Vec<_> = self.metrics.values(metric, values).collect();
        for (member, value) in values {
            let series = Series { location, member, instance: metric.instance };
            let device = match self.series.get(&series) {
                Some(known) => *known,
                None => {
                    let device = self.find(series, attributor);
                    self.series.insert(series, device);
                    device
                }
            };
            samples.extend(device.map(|device| (device, value)));
        }
        samples
    }

    /// Finds the device of a series at its first sample.
    fn find(&mut self, series: Series, attributor: &mut Attributor) -> Option<usize> {
        let mut found = self.metrics.describe(self.definitions, series)?;
        let key = found.key();
        let of_node = (key.node.clone(), key.metric.clone());
        found.evidence = self.evidence.get(&of_node).cloned().unwrap_or_default();
        found.device.source = self.sources.get(&of_node).cloned().unwrap_or(found.device.source);
        found.evidence.own = self.own(&found);
        match &self.recorders {
            Some(recorders) => {
                // A key that was not compared has one series.
                let counters = recorders.of(&key).unwrap_or_default();
                let is_first = |counter: &&ReadBy| counter.series.first() == Some(&series);
                let counter = counters.iter().find(is_first);
                if counter.is_none() && !counters.is_empty() {
                    return None;
                }
                if let Some(counter) = counter.filter(|_| counters.len() > 1) {
                    found.recorded.recorder = both(&found.recorded.recorder, &counter.recorder);
                    if found.evidence.own.is_empty() {
                        found.evidence.own.clone_from(&counter.users);
                    }
                }
            }
            None if *self.first.entry(key).or_insert(series) != series => {
                self.is_undecided = true;
                return None;
            }
            None => {}
        }
        if self.disproved.contains(&series) {
            return None;
        }
        let device = found.add_to(attributor);
        self.found.push(found);
        device
    }

    /// Returns the only processes that can draw from a device, where the trace states them: ampere's own traces do so in a
    /// property, others by the scope of the values, unless that is only the recorder.
    fn own(&self, found: &Found) -> Vec<String> {
        let told = evidence::own(
            self.definitions,
            found.series.location,
            &found.recorded.counter(&found.device.metric),
        );
        told.unwrap_or_else(|| {
            let users = found.place.users.iter().filter(|_| found.place.are_others);
            let groups = users.filter_map(|user| self.definitions.location_groups.get(*user));
            groups.map(|group| group.name.clone()).collect()
        })
    }
}

fn number(value: &MetricValue) -> f64 {
    match value {
        MetricValue::U64(value) => *value as f64,
        MetricValue::I64(value) => *value as f64,
        MetricValue::F64(value) => *value,
    }
}

/// Returns the text `package 0, rank 3`.
fn both(part: &str, recorder: &str) -> String {
    if part.is_empty() { recorder.to_owned() } else { format!("{part}, {recorder}") }
}
