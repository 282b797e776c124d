//! A trace's metrics as devices: which of them are, in what unit, and which location's samples are taken. `attribute`, `replay`
//! and `report -f chrome` all go by this.
//!
//! Its `[[device]]` defines what a metric's values are, then its unit and exponent or, where Score-P records PAPI's
//! counters without a unit, its name; OTF2's mode defines which time a power is of. Without any `[[device]]`, every energy
//! is a device, and every power of something that has no energy in the trace.

use crate::evidence;
use crate::index::{node_of, quality_of, recorded_metrics};
use crate::metric_recorders::{ReadBy, Recorders};
use ampere_model::{Quantity, device_name, quantity_of_name, quantity_of_unit};
use ampere_settings::Config;
use ampere_timeline::attributor::{Attributor, FoundDevice, Recorded};
use ampere_timeline::counter_traits::CounterTraits;
use ampere_timeline::topology::{CounterEvidence, metric_number};
use otf2::{
    Definitions, LocationRef, MetricBase, MetricClassRef, MetricMember, MetricMemberRef, MetricMode,
    MetricRef, MetricValue,
};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Words in the names of metrics that are in watts but no consumption.
const NO_CONSUMPTION: [&str; 8] = ["cap", "limit", "max", "min", "default", "spec", "target", "budget"];

/// A trace's metrics, by their definitions and the settings.
#[derive(Clone)]
pub(crate) struct Metrics {
    /// Members that are devices, with their positions.
    classes: HashMap<MetricClassRef, Vec<(usize, MetricMemberRef)>>,
    /// Names of these.
    names: BTreeSet<String>,
    /// A line for each metric that is left out, and why.
    pub left_out: Vec<String>,
    /// Whether some metric is an energy or a power by its definition.
    pub energy_is_known: bool,
}

impl Metrics {
    pub fn new(definitions: &Definitions, config: &Config) -> Metrics {
        let members: Vec<&MetricMember> = recorded_metrics(definitions).collect();
        let (names, mut left_out) = wanted(&members, config);
        let is_taken = |member: &MetricMember| names.contains(&member.name) && !is_relative(member);
        let relative: BTreeSet<&str> = members
            .iter()
            .filter(|member| names.contains(&member.name) && is_relative(member))
            .map(|member| member.name.as_str())
            .collect();
        left_out.extend(relative.into_iter().map(|name| {
            format!("metric {name} is recorded as differences, which are not supported: it is left out")
        }));
        let mut classes = HashMap::new();
        for (reference, class) in definitions.metric_classes.iter() {
            let taken =
                |member: &MetricMemberRef| definitions.metric_members.get(*member).is_some_and(is_taken);
            let all = class.members.iter().copied().enumerate();
            let members: Vec<_> = all.filter(|(_, member)| taken(member)).collect();
            if !members.is_empty() {
                classes.insert(reference, members);
            }
        }
        let energy_is_known =
            !classes.is_empty() || members.iter().any(|member| quantity_of(member).is_some());
        Metrics { classes, names, left_out, energy_is_known }
    }

    /// The values of a metric event that are a device's.
    pub fn values<'a>(
        &'a self,
        metric: MetricRef,
        values: &'a [MetricValue],
    ) -> impl Iterator<Item = (MetricMemberRef, MetricValue)> + 'a {
        let members = self.classes.get(&metric.class).map_or(&[][..], Vec::as_slice);
        members.iter().filter_map(|(position, member)| Some((*member, *values.get(*position)?)))
    }

    /// The device that a metric of a location is, without the evidence about its part of the machine.
    pub fn describe(
        &self,
        definitions: &Definitions,
        location: LocationRef,
        member: MetricMemberRef,
    ) -> Option<Found> {
        let metric = definitions.metric_members.get(member)?;
        let quantity = quantity_of(metric);
        let device = FoundDevice {
            node: node_of(definitions, location),
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
            recorder: String::new(),
        };
        let traits = evidence::traits_of(definitions, location, &metric.name, &self.names);
        Some(Found {
            location,
            member,
            device,
            evidence: CounterEvidence::default(),
            recorded,
            traits,
            is_device: false,
        })
    }
}

/// Names of the metrics that are devices, and a line for each that is left out.
fn wanted(members: &[&MetricMember], config: &Config) -> (BTreeSet<String>, Vec<String>) {
    if !config.devices.is_empty() {
        let is_configured = |member: &&&MetricMember| {
            config.devices.iter().any(|setting| setting.metric.is_match(&member.name))
        };
        return (
            members.iter().filter(is_configured).map(|member| member.name.clone()).collect(),
            Vec::new(),
        );
    }
    let quantity = |member: &MetricMember| quantity_of(member);
    let energies: BTreeSet<String> = members
        .iter()
        .filter(|member| matches!(quantity(member), Some(Quantity::Energy(_))))
        .map(|member| member.name.clone())
        .collect();
    let measured: BTreeSet<String> = energies.iter().map(|name| device_name(name)).collect();
    // A GPU is known by its number; another power may be of what an energy has in it already.
    let is_wanted = |name: &str| {
        energies.is_empty() || (metric_number(name).is_some() && !measured.contains(&device_name(name)))
    };
    let mut powers: BTreeMap<String, String> = BTreeMap::new();
    let mut left_out = BTreeSet::new();
    for member in members {
        let is_power = matches!(quantity(member), Some(Quantity::Power(_))) && is_consumption(&member.name);
        if !is_power || !is_wanted(&member.name) {
            continue;
        }
        let first = powers.entry(device_name(&member.name)).or_insert_with(|| member.name.clone());
        if *first != member.name {
            left_out.insert(format!("metric {} is left out: {first} is of the same device", member.name));
        }
    }
    (energies.into_iter().chain(powers.into_values()).collect(), left_out.into_iter().collect())
}

fn is_consumption(name: &str) -> bool {
    let words = name.split(|c: char| !c.is_ascii_alphabetic());
    !words.map(str::to_ascii_lowercase).any(|word| NO_CONSUMPTION.contains(&word.as_str()))
}

/// Whether its values are differences from one sample to the next.
fn is_relative(member: &MetricMember) -> bool {
    use MetricMode::{RelativeLast, RelativeNext, RelativePoint};
    matches!(member.mode, RelativeLast | RelativeNext | RelativePoint)
}

/// A metric's quantity, with joules or watts in one unit of the raw value.
fn quantity_of(member: &MetricMember) -> Option<Quantity> {
    let by_unit = quantity_of_unit(&member.unit).map(|quantity| match quantity {
        Quantity::Energy(joules) => Quantity::Energy(scaled(joules, member)),
        Quantity::Power(watts) => Quantity::Power(scaled(watts, member)),
    });
    by_unit.or_else(|| quantity_of_name(&member.name))
}

/// A value times the metric's base to the power of its exponent.
pub(crate) fn scaled(value: f64, member: &MetricMember) -> f64 {
    let base: f64 = if member.base == MetricBase::Binary { 2.0 } else { 10.0 };
    // 10^-9 as one division, not nine multiplications.
    let power = base.powi(member.exponent.unsigned_abs().min(1000) as i32);
    if member.exponent < 0 { value / power } else { value * power }
}

/// A device that was found in a trace.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    /// The location whose samples are taken.
    pub location: LocationRef,
    pub member: MetricMemberRef,
    pub device: FoundDevice,
    pub evidence: CounterEvidence,
    pub recorded: Recorded,
    pub traits: CounterTraits,
    /// `false` if a `[[device]]` applies to this metric on other nodes only.
    pub is_device: bool,
}

impl Found {
    /// Adds it to an attributor's devices; `None` if it is none.
    pub fn add_to(&self, attributor: &mut Attributor) -> Option<usize> {
        let device =
            attributor.add_recorded(self.device.clone(), self.evidence.clone(), self.recorded.clone())?;
        attributor.set_traits(device, self.traits.clone());
        Some(device)
    }
}

/// The devices of a trace, found with their first samples.
pub(crate) struct TraceDevices<'a> {
    definitions: &'a Definitions,
    metrics: Metrics,
    /// By node and metric.
    evidence: HashMap<(String, String), CounterEvidence>,
    recorders: Option<Recorders>,
    /// The attributor's device that a location's samples of a metric are of, or none.
    series: HashMap<(MetricMemberRef, LocationRef), Option<usize>>,
    /// By node and metric, the first location that records it.
    first: HashMap<(String, String), LocationRef>,
    /// By node and metric, where that is not "trace".
    pub sources: HashMap<(String, String), String>,
    pub found: Vec<Found>,
    /// Several locations record a metric of one name: their samples must be compared first.
    pub is_undecided: bool,
}

impl<'a> TraceDevices<'a> {
    pub fn new(
        definitions: &'a Definitions,
        metrics: Metrics,
        recorders: Option<Recorders>,
    ) -> TraceDevices<'a> {
        TraceDevices {
            definitions,
            metrics,
            evidence: evidence::of_counters(definitions),
            recorders,
            series: HashMap::new(),
            first: HashMap::new(),
            sources: HashMap::new(),
            found: Vec::new(),
            is_undecided: false,
        }
    }

    /// Adds devices that an earlier pass found.
    pub fn add_found(&mut self, found: Vec<Found>, attributor: &mut Attributor) {
        for found in &found {
            let device = found.add_to(attributor);
            self.series.insert((found.member, found.location), device);
            let key = (found.device.node.clone(), found.device.metric.clone());
            self.first.entry(key).or_insert(found.location);
        }
        self.found = found;
    }

    pub fn definitions(&self) -> &'a Definitions {
        self.definitions
    }

    /// The samples of an event: the attributor's number of each device, and its value. Devices are found on the way.
    pub fn samples(
        &mut self,
        location: LocationRef,
        metric: MetricRef,
        values: &[MetricValue],
        attributor: &mut Attributor,
    ) -> Vec<(usize, MetricValue)> {
        let mut samples = Vec::new();
        let values: Vec<_> = self.metrics.values(metric, values).collect();
        for (member, value) in values {
            let device = match self.series.get(&(member, location)) {
                Some(known) => *known,
                None => {
                    let device = self.find(location, member, attributor);
                    self.series.insert((member, location), device);
                    device
                }
            };
            samples.extend(device.map(|device| (device, value)));
        }
        samples
    }

    /// The first sample of a series.
    fn find(
        &mut self,
        location: LocationRef,
        member: MetricMemberRef,
        attributor: &mut Attributor,
    ) -> Option<usize> {
        let mut found = self.metrics.describe(self.definitions, location, member)?;
        let key = (found.device.node.clone(), found.device.metric.clone());
        found.evidence = self.evidence.get(&key).cloned().unwrap_or_default();
        found.device.source = self.sources.get(&key).cloned().unwrap_or(found.device.source);
        match &self.recorders {
            Some(recorders) => {
                // Not there: one location records it.
                let counters = recorders.of(&key).unwrap_or_default();
                let is_first = |counter: &&ReadBy| counter.locations.first() == Some(&location);
                let counter = counters.iter().find(is_first);
                if counter.is_none() && !counters.is_empty() {
                    return None;
                }
                if let Some(counter) = counter.filter(|_| counters.len() > 1) {
                    found.recorded.recorder = counter.recorder.clone();
                    let told = evidence::own(self.definitions, location, &key.1);
                    found.evidence.own = told.unwrap_or_else(|| counter.groups.clone());
                }
            }
            None if *self.first.entry(key).or_insert(location) != location => {
                self.is_undecided = true;
                return None;
            }
            None => {}
        }
        let device = found.add_to(attributor);
        found.is_device = device.is_some();
        self.found.push(found);
        device
    }
}
