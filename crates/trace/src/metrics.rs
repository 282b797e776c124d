//! A trace's metrics as devices: which metrics are devices, in what unit, and which location's samples are used. `attribute`,
//! `replay` and `report -f chrome` share these rules.
//!
//! A matching `[[device]]` defines the meaning of a metric's values. Without one, the metric's unit and exponent define it or,
//! because Score-P records PAPI's counters without a unit, its name. OTF2's mode defines the time that a power value belongs to.
//! Without any `[[device]]`, every energy is a device, and so is every power of a part that has no energy in the trace.

use crate::evidence;
use crate::index::{quality_of, recorded_metrics};
use crate::left_out::LeftOut;
use crate::places::{Place, host_of, nodes_of};
use crate::series::{Key, Series, quantity_of, scaled};
use ampere_model::counted::{
    Counted, GRACE_SOCKET, Level, is_not_consumption, without_kind_of_reading, without_numbers,
};
use ampere_model::{Quality, Quantity, device_name, quantity_of_name, quantity_of_unit};
use ampere_settings::Config;
use ampere_timeline::attributor::{Attributor, FoundDevice, Recorded, counter_name};
use ampere_timeline::counter_traits::CounterTraits;
use ampere_timeline::topology::{CounterEvidence, metric_number};
use otf2::{Definitions, MetricClassRef, MetricMember, MetricMemberRef, MetricMode, MetricRef, MetricValue};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// Some members of each class, with their positions in it.
type Members = HashMap<MetricClassRef, Vec<(usize, MetricMemberRef)>>;

/// Metrics of some nodes: the node and the metric's name.
pub(crate) type OnNodes = HashSet<(String, String)>;

/// A trace's metrics, sorted by the definitions and the settings.
#[derive(Clone)]
pub(crate) struct Metrics {
    /// Members that are devices, perhaps only on some nodes.
    classes: Members,
    /// Members that are not devices and whose joules may be missing from the figures.
    doubtful: Members,
    /// Names of the metrics that are devices.
    names: BTreeSet<String>,
    parts: PartNames,
    /// Metrics that look like energy or power but are not devices.
    pub left_out: LeftOut,
    /// Powers that are devices on some nodes only: the trace has an energy of the same part, but on these nodes it is absent or
    /// never rises. These energies are exceptions, too, because they are not devices there.
    exceptions: OnNodes,
    /// Whether some metric is an energy or a power by its definition, or the settings make one a device.
    pub energy_is_known: bool,
}

impl Metrics {
    pub fn new(definitions: &Definitions, config: &Config) -> Metrics {
        let members: Vec<&MetricMember> = recorded_metrics(definitions).collect();
        let nodes = nodes_of(definitions);
        let hosts: Vec<String> = nodes.iter().map(|node| host_of(node).to_owned()).collect();
        let parts = PartNames::new(&members, nodes.into_iter().chain(hosts).collect());
        let (mut names, mut left_out) = match config.devices.is_empty() {
            true => wanted(&members, &parts),
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
        let classes = of(&|member| names.contains(&member.name) || left_out.measured.contains(&member.name));
        let doubtful = of(&|member| left_out.is_doubtful(&member.name));
        let energy_is_known =
            !classes.is_empty() || members.iter().any(|member| quantity_of(member).is_some());
        Metrics { classes, doubtful, names, parts, left_out, exceptions: OnNodes::new(), energy_is_known }
    }

    /// Uses powers instead of energies on nodes where the energies of the same parts are absent or never rise.
    pub fn with(self, exceptions: OnNodes) -> Metrics {
        Metrics { exceptions, ..self }
    }

    /// Returns the values of a metric event that belong to devices on some node.
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

    /// Returns the power metrics on nodes where no energy of the same part rises, and the energies that they replace. `left_out`
    /// are series that are not devices.
    pub fn find_exceptions<'a>(
        &self,
        definitions: &Definitions,
        (rising, silent): (&[&Found], &[&Found]),
        left_out: impl Iterator<Item = &'a Series>,
    ) -> OnNodes {
        let mut taken: BTreeMap<(String, String), String> = BTreeMap::new();
        for series in left_out {
            let Some(metric) = definitions.metric_members.get(series.member) else { continue };
            let name = metric.name.as_str();
            if !self.left_out.measured.contains(name) {
                continue;
            }
            let node = Place::new(definitions, series.location, series.instance, name).node;
            if node.is_empty() {
                continue; // its energy may be that of other nodes
            }
            let is_measured = |energy: &&Found| {
                energy.device.node == node && self.parts.is_measured_by(name, &energy.device.metric)
            };
            if !rising.iter().any(is_measured) {
                let of = without_kind_of_reading(&device_name(name));
                let first = taken.entry((node, of)).or_insert_with(|| name.to_owned());
                if name < first.as_str() {
                    *first = name.to_owned();
                }
            }
        }
        let powers: Vec<(String, String)> = taken.into_iter().map(|((node, _), name)| (node, name)).collect();
        let is_replaced = |energy: &&&Found| {
            let device = &energy.device;
            powers
                .iter()
                .any(|(node, power)| *node == device.node && self.parts.is_measured_by(power, &device.metric))
        };
        let energies = silent.iter().filter(is_replaced);
        let energies = energies.map(|energy| (energy.device.node.clone(), energy.device.metric.clone()));
        energies.collect::<Vec<_>>().into_iter().chain(powers.iter().cloned()).collect()
    }

    /// Describes the device of a series, without the evidence about its part of the machine; `None` if it is not a device on its
    /// node.
    pub fn describe(&self, definitions: &Definitions, series: Series) -> Option<Found> {
        let metric = definitions.metric_members.get(series.member)?;
        let quantity = quantity_of(metric);
        let mut place = Place::new(definitions, series.location, series.instance, &metric.name);
        if let Some(text) = text_of_grace(metric)
            && place.part.is_empty()
        {
            // All of a node's meters may have the same name.
            (place.part, place.counted) = (text.to_owned(), Counted::by_name(text));
        }
        let is_exception = self.exceptions.contains(&(place.node.clone(), metric.name.clone()));
        if self.left_out.measured.contains(&metric.name) != is_exception {
            return None;
        }
        let own_quality = quality_of(&metric.description);
        let device = FoundDevice {
            node: place.node.clone(),
            metric: metric.name.clone(),
            source: "trace".to_owned(),
            quality: own_quality.unwrap_or(Quality::Measured),
            joules_per_unit: match quantity {
                Some(Quantity::Energy(joules)) => Some(joules),
                _ => None,
            },
        };
        let is_known_by_name =
            quantity_of_unit(&metric.unit).is_none() && quantity_of_name(&metric.name).is_some();
        let counter = counter_name(&metric.name, &place.part);
        let stated = evidence::traits_of(definitions, series.location, &counter);
        let recorded = Recorded {
            watts_per_unit: match quantity {
                Some(Quantity::Power(watts)) => Some(watts),
                _ => None,
            },
            factor: scaled(1.0, metric),
            is_of_time_before: !is_known_by_name
                && matches!(metric.mode, MetricMode::AbsoluteLast | MetricMode::AccumulatedLast),
            recorder: place.part.clone(),
            is_by_other_tool: own_quality.is_none(),
        };
        let by_name = self.parts.counted(&metric.name);
        let counted = by_name.at(place.counted);
        let gpu = self.parts.gpu_number(&metric.name, by_name).filter(|_| own_quality.is_none());
        let traits = stated.clone().unwrap_or_else(|| CounterTraits::by_name(&metric.name, &self.names));
        let kind = traits.kind.clone();
        let kind =
            if kind.is_empty() { counted.level.map_or("", |level| level.kind()).to_owned() } else { kind };
        let traits = CounterTraits { kind, ..traits };
        Some(Found {
            series,
            device,
            evidence: CounterEvidence { number: gpu, ..CounterEvidence::default() },
            recorded,
            traits,
            is_stated: stated.is_some(),
            place,
            counted,
            number: None,
        })
    }
}

/// Returns notes about energies that never rise and are not used. `is_device` tells whether a metric of a node is a device.
pub(crate) fn notes_of_silent(exceptions: &OnNodes, is_device: impl Fn(&str, &str) -> bool) -> Vec<String> {
    let silent = exceptions.iter().filter(|(node, name)| !is_device(node, name));
    let mut notes: Vec<String> = silent
        .map(|(node, name)| {
            format!("metric {name} on {node} never rises: the power of the same device is used instead")
        })
        .collect();
    notes.sort_unstable();
    notes
}

fn values_of<'a>(
    members: &'a Members,
    metric: MetricRef,
    values: &'a [MetricValue],
) -> impl Iterator<Item = (MetricMemberRef, MetricValue)> + 'a {
    let members = members.get(&metric.class).map_or(&[][..], Vec::as_slice);
    members.iter().filter_map(|(position, member)| Some((*member, *values.get(*position)?)))
}

/// Words for parts in LIKWID's names, such as `Energy DRAM [J]`.
const LIKWID_PARTS: [&str; 7] = ["PP0", "PP1", "DRAM", "Core", "L3", "PKG", "PLATFORM"];

/// Finds the part of the node that a metric counts, by its name and those of the other metrics.
#[derive(Clone, Default)]
struct PartNames {
    /// The names of the nodes, with and without their domains.
    nodes: BTreeSet<String>,
    /// Metrics of NVIDIA Grace's meters whose descriptions state what is counted.
    of_grace: BTreeSet<String>,
    /// Metrics, without their numbers, that number packages or GPUs from 1 on, while others number the same ones from 0 on.
    from_one: BTreeSet<String>,
    /// Metrics of GPUs, without their numbers, of which one has the number 0. Others may count from 1 on.
    of_gpu_0: BTreeSet<String>,
    /// Whether metrics have LIKWID's names, in which a package is not named.
    are_of_likwid: bool,
}

/// Returns the description of one of NVIDIA Grace's meters, such as `CPU Power Socket 0`, if the metric's name does not state what
/// is counted.
fn text_of_grace(member: &MetricMember) -> Option<&str> {
    let text = Some(member.description.trim()).filter(|text| text.contains(GRACE_SOCKET));
    text.filter(|_| Counted::by_name(&member.name).level.is_none())
}

impl PartNames {
    fn new(members: &[&MetricMember], nodes: BTreeSet<String>) -> PartNames {
        let of_grace = members.iter().filter(|member| text_of_grace(member).is_some());
        let of_grace = of_grace.map(|member| member.name.clone()).collect();
        let is_of_likwid = |member: &&MetricMember| {
            let words: Vec<&str> = member.name.split(' ').collect();
            match words[..] {
                ["Energy", part, "[J]"] | ["Power", part, "[W]"] => LIKWID_PARTS.contains(&part),
                _ => false,
            }
        };
        let are_of_likwid = members.iter().any(is_of_likwid);
        let mut names = PartNames { nodes, of_grace, are_of_likwid, ..PartNames::default() };
        let mut numbers: BTreeMap<(Option<Level>, String), BTreeSet<u32>> = BTreeMap::new();
        for member in members.iter().filter(|member| LeftOut::looks_like_energy(member)) {
            let counted = names.counted(&member.name);
            let number = if counted.level == Some(Level::Gpu) { counted.number } else { counted.package };
            let is_part = matches!(counted.level, Some(Level::Gpu | Level::Package));
            if let Some(number) = number.filter(|_| is_part) {
                numbers.entry((counted.level, without_numbers(&member.name))).or_default().insert(number);
            }
        }
        let is_from = |first: u32, of: &BTreeSet<u32>| of.iter().copied().eq(first..first + of.len() as u32);
        for ((level, name), own) in numbers.iter().filter(|(_, own)| own.len() > 1 && is_from(1, own)) {
            let is_same = |((other, _), of): (&(Option<Level>, String), &BTreeSet<u32>)| {
                other == level && of.len() == own.len() && is_from(0, of)
            };
            if numbers.iter().any(is_same) {
                names.from_one.insert(name.clone());
            }
        }
        let have_0 = numbers.into_iter().filter(|(_, own)| own.contains(&0));
        let of_gpu_0 = have_0.filter(|((level, _), _)| *level == Some(Level::Gpu)).map(|((_, name), _)| name);
        names.of_gpu_0 = of_gpu_0.collect();
        names
    }

    /// Returns the part of the node that a metric counts. The name of a node in it, such as `gpu02` in `lab.gpu02.power`, says
    /// nothing about the part.
    fn counted(&self, metric: &str) -> Counted {
        let of_likwid = match metric {
            "Energy [J]" | "Power [W]" => Some(Level::Package),
            "Energy L3 [J]" | "Power L3 [W]" => Some(Level::Uncore),
            _ => None,
        };
        if of_likwid.is_some() && self.are_of_likwid {
            return Counted { level: of_likwid, ..Counted::default() };
        }
        let is_node = |part: &str| {
            let name = part.trim_end_matches(['.', '/', ':', ' ']);
            name.contains(|c: char| c.is_ascii_digit()) && self.nodes.contains(name)
        };
        let parts = metric.split_inclusive(['.', '/', ':', ' ']).filter(|part| !is_node(part));
        let counted = Counted::by_name(&parts.collect::<String>());
        if self.from_one.is_empty() || !self.from_one.contains(&without_numbers(metric)) {
            return counted;
        }
        let before = |number: Option<u32>| number.map(|number| number.saturating_sub(1));
        match counted.level {
            Some(Level::Gpu) => Counted { number: before(counted.number), ..counted },
            _ => Counted { package: before(counted.package), ..counted },
        }
    }

    /// Returns the GPU's number in the name of another tool's metric, if that tool counts from 0 on. Cray's numbers are
    /// those of accelerators, and those of Linux' chips are addresses.
    fn gpu_number(&self, metric: &str, counted: Counted) -> Option<u32> {
        let family = without_numbers(metric);
        let is_number = counted.level == Some(Level::Gpu)
            && (self.of_gpu_0.contains(&family) || self.from_one.contains(&family))
            && !metric.contains("-pci-")
            && !metric.to_lowercase().contains("cray");
        counted.number.filter(|_| is_number)
    }

    /// Whether an energy measures the same part as a power, according to their names. A power without a number is that of all
    /// parts of its kind.
    fn is_measured_by(&self, power: &str, energy: &str) -> bool {
        let (of, other) = (self.counted(power), self.counted(energy));
        let is_of_all = !of.is_numbered() && of.level == other.level;
        device_name(power) == device_name(energy) || of.level.is_some() && (of == other || is_of_all)
    }
}

/// Returns the names of the metrics that the settings make devices, and those that look like energy but are left out.
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

/// Returns the names of the metrics that are devices without any setting, and those that are left out, by the reason.
fn wanted(members: &[&MetricMember], parts: &PartNames) -> (BTreeSet<String>, LeftOut) {
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
    let mut taken: BTreeMap<String, String> = BTreeMap::new();
    for member in powers {
        let (name, of) = (device_name(&member.name), parts.counted(&member.name));
        // A power is left out if an energy counts the same part; a power of an unknown part may already be contained in an
        // energy.
        let is_measured = energies.iter().any(|energy| parts.is_measured_by(&member.name, energy));
        let has_known_part = metric_number(&member.name).is_some()
            || of.level.is_some()
            || parts.of_grace.contains(&member.name);
        if is_measured {
            left_out.measured.insert(member.name.clone());
            let is_own = |energy: &String| {
                device_name(energy) == name
                    || parts.counted(energy) == of
                    || !parts.counted(energy).is_numbered()
            };
            if !of.is_numbered() && !energies.iter().any(is_own) {
                left_out.of_all.insert(member.name.clone());
            }
        } else if !energies.is_empty() && !has_known_part {
            left_out.of_unknown.insert(member.name.clone());
        } else {
            // The average and the current power of a device are two readings of the same power.
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

    /// Adds the device to an attributor. Returns its number there; `None` if it is not a device on this node.
    pub fn add_to(&mut self, attributor: &mut Attributor) -> Option<usize> {
        self.number =
            attributor.add_recorded(self.device.clone(), self.evidence.clone(), self.recorded.clone());
        attributor.set_traits(self.number?, self.traits.clone());
        self.number
    }

    /// Returns a text such as `package-0 on n1`.
    pub fn text(&self) -> String {
        let counter = self.recorded.counter(&self.device.metric);
        let node = &self.device.node;
        if node.is_empty() { counter } else { format!("{counter} on {node}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_node_says_nothing_about_what_is_counted() {
        let nodes: BTreeSet<String> = ["gpu02", "node", "mem1"].map(str::to_owned).into();
        let parts = PartNames { nodes, ..PartNames::default() };
        for (metric, level) in [
            ("lab.gpu02.power", None),
            ("lab.gpu02.s0.package.power", Some(Level::Package)),
            ("mem1/energy", None),
            ("lab.gpu03.power", Some(Level::Gpu)),
            ("node.power", Some(Level::Node)),
        ] {
            assert_eq!(parts.counted(metric).level, level, "{metric}");
        }
    }

    #[test]
    fn a_power_is_measured_by_an_energy_of_the_same_part_or_of_one_of_its_kind() {
        let parts = PartNames::default();
        for (power, energy, is_measured) in [
            ("cpu power", "rapl:::PACKAGE_ENERGY:PACKAGE1", true),
            ("cpu 0 power", "rapl:::PACKAGE_ENERGY:PACKAGE1", false),
            ("ID1::socket_power", "ID1::energy_count", true),
            ("ID1::socket_power", "ID0::energy_count", false),
            ("power", "node energy", false),
        ] {
            assert_eq!(parts.is_measured_by(power, energy), is_measured, "{power}, {energy}");
        }
    }
}
