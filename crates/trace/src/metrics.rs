//! A trace's metrics as devices: which metrics are devices, in what unit, and which location's samples are used. `attribute`,
//! `replay` and `report -f chrome` share these rules.
//!
//! A matching `[[device]]` defines the meaning of a metric's values. Without one, the metric's unit and exponent define it or,
//! because Score-P records PAPI's counters without a unit, its name. OTF2's mode defines the time that a power value belongs to.
//! Without any `[[device]]`, every energy is a device, and so is every power of something that has no energy in the trace.

use crate::evidence;
use crate::index::{quality_of, recorded_metrics};
use crate::left_out::LeftOut;
use crate::places::Place;
use crate::series::{Key, Series, quantity_of, scaled};
use ampere_model::counted::{Counted, is_not_consumption, without_kind_of_reading};
use ampere_model::{Quantity, device_name, quantity_of_name, quantity_of_unit};
use ampere_settings::Config;
use ampere_timeline::attributor::{Attributor, FoundDevice, Recorded};
use ampere_timeline::counter_traits::CounterTraits;
use ampere_timeline::topology::{CounterEvidence, metric_number};
use otf2::{Definitions, MetricClassRef, MetricMember, MetricMemberRef, MetricMode, MetricRef, MetricValue};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// The members of each class, with their positions in it.
type Members = HashMap<MetricClassRef, Vec<(usize, MetricMemberRef)>>;

/// A trace's metrics, sorted by the definitions and the settings.
#[derive(Clone)]
pub(crate) struct Metrics {
    classes: Members,
    /// Members that are not devices and whose joules may be missing from the figures.
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
        values_of(&self.classes, metric, values)
    }

    /// Returns the values of a metric event that belong to no device and whose joules may be missing from the figures.
    pub fn doubtful_values<'a>(
        &'a self,
        metric: MetricRef,
        values: &'a [MetricValue],
    ) -> impl Iterator<Item = (MetricMemberRef, MetricValue)> + 'a {
        values_of(&self.doubtful, metric, values)
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
        let stated = evidence::traits_of(definitions, series.location, &counter);
        let counted = Counted::by_name(&metric.name).at(place.counted);
        let traits = stated.clone().unwrap_or_else(|| CounterTraits::by_name(&metric.name, &self.names));
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
            is_stated: stated.is_some(),
            place,
            counted,
            number: None,
        })
    }
}

fn values_of<'a>(
    members: &'a Members,
    metric: MetricRef,
    values: &'a [MetricValue],
) -> impl Iterator<Item = (MetricMemberRef, MetricValue)> + 'a {
    let members = members.get(&metric.class).map_or(&[][..], Vec::as_slice);
    members.iter().filter_map(|(position, member)| Some((*member, *values.get(*position)?)))
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
            Some(_) | None if is_not_consumption(&member.name) => {
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
            // The average and the current power of a device are two readings of one thing.
            let of = without_kind_of_reading(&name);
            let first = taken.entry(of).or_insert_with(|| member.name.clone());
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

/// A device that was found in a trace.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    /// The series whose samples are used.
    pub series: Series,
    pub device: FoundDevice,
    pub evidence: CounterEvidence,
    pub recorded: Recorded,
    pub traits: CounterTraits,
    /// Whether the trace states what the device contains, as ampere's own traces do.
    pub is_stated: bool,
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
