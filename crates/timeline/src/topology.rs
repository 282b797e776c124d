//! Finds which location draws from which device, and why, without configuration if the evidence allows that.
//!
//! The evidence is used in this order, the strongest first. For the *kernels* view of a GPU's counter, and a GPU stream:
//!
//! 1. `locations` of its `[[device]]`;
//! 2. PCI address, then UUID, if both the stream's device (in the system tree) and the counter have them. In a trace, the process
//!    and the number of a stream, or else its context, take the place of a UUID if the stream is the counter's scope ([`CONTEXT`]);
//! 3. `ranks` of the `[[device]]`, if the rank of the stream's process is listed for only one GPU;
//! 4. the number in the system tree, if it is not the one in the stream's name;
//! 5. the number in the stream's name (else in the system tree), counted among the GPUs that its process may see
//!    ([`visible`]): `HIP[0:0]` of a process with `ROCR_VISIBLE_DEVICES=3` is on the node's GPU 3.
//!
//! For the *ranks* view, and a process:
//!
//! 1. the counter's `[[device]]`, if there is one: the processes whose ranks it lists, or all processes if it lists none, unless
//!    its `ranks` is `"found"`;
//! 2. its GPU streams: it draws from the same devices, if streams and counter can be compared;
//! 3. the GPUs on which it has had queues, according to the driver ([`QUEUES`]), if one of them has a counter: this is observed,
//!    and addresses need no numbering. If it has not opened AMD's driver, it draws from no GPU that may be AMD's, unless the
//!    counter counts the CPU's cores, too;
//! 4. the GPUs that it may see, if these are not all of them;
//! 5. its local rank, if the settings allow that assumption (`[topology] by_local_rank`): programs are free to use
//!    another GPU, and the order of GPUs is not reliable;
//! 6. else all ranks of the node share it. A wrong link charges one rank with another's joules and looks exact; sharing by all is
//!    coarse, and the reason shows it.
//!
//! A counter that is not a GPU's is shared by all ranks of its node.
//!
//! **Two dies, one counter.** A package of an MI250X appears as two GPUs. The even one's counter counts both; the odd one's fails
//! or stays 0. Streams on the odd one draw from the even one's. An odd one whose own counter rises counts for itself, whatever
//! its model is called: a measurement is more reliable than a name.
//!
//! These are functions without state or IO: the same evidence gives the same links, live and from the run's own trace.

use ampere_model::QUEUES;
use ampere_model::counted::{is_mi250x, without_numbers};
use ampere_settings::{DeviceSetting, Ranks};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::sync::Arc;
use visible::{Entry, Vendor, Visible, variable};

pub mod local;
pub mod visible;

pub use local::{LocalRank, local_ranks};

/// The properties of a location, without its name.
#[derive(Clone, Debug, Default)]
pub struct Evidence {
    /// The process that the location belongs to, or that made it: any number, the same for all locations of a process.
    pub process: Option<u64>,
    /// The name of that process in [`CounterEvidence::own`], if it is not that of its location group.
    pub owner: String,
    /// Variables of that process, in the form `NAME=value`.
    pub environment: Arc<[String]>,
    /// For a GPU stream, the device that contains it in the system tree.
    pub accelerator: Accelerator,
}

/// The prefix of a made-up UUID. In a trace, only the streams on one GPU and the counters with this scope have the same one.
pub const CONTEXT: &str = "context ";

/// A GPU stream's device, as far as it is known.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Accelerator {
    /// The GPU's number among the GPUs that its process may see.
    pub number: Option<u32>,
    /// The PCI address, such as `0000:c1:00.0`.
    pub pci: Option<String>,
    /// The UUID, such as `GPU-a70564cccd47836c`.
    pub uuid: Option<String>,
    /// Text that contains the model's name; empty if it is not known.
    pub model: String,
}

/// The properties of a counter, without its name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CounterEvidence {
    /// `gpu`, `node` and so on; empty if only the metric's name shows the kind.
    pub kind: String,
    /// The PCI address, such as `0000:c1:00.0`.
    pub pci: Option<String>,
    /// The UUID, such as `GPU-a70564cccd47836c`.
    pub uuid: Option<String>,
    /// Text that contains the GPU model's name.
    pub model: String,
    /// Whether the counter has always shown 0.
    #[serde(default)]
    pub silent: bool,
    /// In a trace whose processes each record their own GPU under the same name, the location groups of this counter's processes,
    /// or their [`Evidence::owner`]: no other process draws from it. If empty, any process may.
    #[serde(default)]
    pub own: Vec<String>,
    /// Whether the counter's value has risen.
    #[serde(default)]
    pub rises: bool,
    /// The GPU's number according to the metric's name, if another tool has chosen the name.
    #[serde(default)]
    pub number: Option<u32>,
    /// Numbers of other GPUs whose counters repeat this one: partitions or dies of its package.
    #[serde(default)]
    pub counts: Vec<u32>,
}

/// The part of the machine that a counter counts, as far as the assignment depends on it.
#[derive(Clone, Debug)]
pub struct CountedPart {
    /// Whether the part is a GPU, so that not every rank need draw from it.
    gpu: bool,
    number: Option<u32>,
    vendor: Vendor,
    /// The metric's name without the number: counters of one family count different GPUs.
    family: String,
    /// The further properties of the counter.
    pub evidence: CounterEvidence,
}

impl CountedPart {
    /// Finds the part from the metric's name, other evidence, and the counter's `[[device]]`.
    pub fn new(metric: &str, evidence: CounterEvidence, setting: Option<&DeviceSetting>) -> CountedPart {
        let (family, number) = match split_metric(metric) {
            (_, None) if evidence.number.is_some() => (without_numbers(metric), evidence.number),
            (family, number) => (family.to_owned(), number),
        };
        let streams_are_named = setting.is_some_and(|setting| setting.locations.is_some());
        let is_kind_of_gpu = match evidence.kind.as_str() {
            "" => number.is_some(),
            kind => kind.eq_ignore_ascii_case("gpu"),
        };
        CountedPart {
            gpu: streams_are_named || is_kind_of_gpu,
            number,
            vendor: Vendor::of_metric(metric),
            family,
            evidence,
        }
    }

    pub fn is_gpu(&self) -> bool {
        self.gpu
    }

    /// Whether the evidence or the metric's vendor shows that the part is a GPU. A number in the metric's name is not enough.
    pub(crate) fn is_known_gpu(&self) -> bool {
        self.evidence.kind.eq_ignore_ascii_case("gpu") || self.vendor != Vendor::Unknown
    }

    /// Returns the GPU's number in the metric's name.
    pub(crate) fn number(&self) -> Option<u32> {
        self.number
    }

    /// Whether a process, given by its location group or [`Evidence::owner`], may draw from it.
    pub fn is_open_to(&self, process: &str) -> bool {
        self.evidence.own.is_empty() || self.evidence.own.iter().any(|own| own == process)
    }

    /// Whether only the scope or the recorder of the counter shows which GPU it counts.
    pub(crate) fn is_of_context(&self) -> bool {
        self.evidence.uuid.as_ref().is_some_and(|uuid| uuid.starts_with(CONTEXT))
    }

    fn is_own(&self) -> bool {
        !self.evidence.own.is_empty()
    }

    /// Whether this GPU's own counter rises although, by the GPU's model, another GPU's counter includes it.
    pub fn contradicts_its_model(&self) -> bool {
        let is_odd = self.number.is_some_and(|number| !number.is_multiple_of(2));
        self.gpu && self.evidence.rises && is_odd && is_mi250x(&self.evidence.model)
    }
}

/// Returns the GPU's number in a metric's name: 1 in `rocm_smi:::energy_count:device=1` and in
/// `nvml:::A100:device_1:power`.
pub fn metric_number(metric: &str) -> Option<u32> {
    split_metric(metric).1
}

fn split_metric(metric: &str) -> (&str, Option<u32>) {
    // PAPI's component for NVIDIA has the second form.
    for key in ["device=", "device_"] {
        let Some(at) = metric.find(key) else { continue };
        let (family, rest) = metric.split_at(at + key.len());
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        if let Ok(number) = rest[..end].parse() {
            return (family, Some(number));
        }
    }
    (metric, None)
}

/// Returns the device's number in a GPU stream's name: `HIP[1:0]` is on device 1 of its process.
pub fn stream_number(name: &str) -> Option<u32> {
    let inside = name.split_once('[')?.1;
    inside.split([':', ']']).next()?.parse().ok()
}

/// A device of a node that a location may draw from.
pub struct Candidate<'a> {
    /// The device's number among all devices of the run.
    pub index: usize,
    pub part: &'a CountedPart,
    /// The `[[device]]` that applies to this device.
    pub setting: Option<&'a DeviceSetting>,
}

/// A device that a consumer draws from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// The device's number among all devices of the run.
    pub device: usize,
    /// Why the consumer draws from it.
    pub reason: String,
}

/// The devices that a consumer draws from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Assignment {
    pub links: Vec<Link>,
    /// Why the consumer draws from no GPU, although the node has some with a counter, or although it is a GPU stream.
    pub no_gpu: Option<String>,
    /// For a stream, whether its GPU is known, with or without a counter.
    pub gpu_is_known: bool,
    /// For a stream, the counters of GPUs that it cannot be compared with: Cray's `accel0` shows neither a number nor an address
    /// of its GPU.
    undecided: Vec<usize>,
    /// For a process, the GPUs that its variables hide from it.
    hidden: Vec<usize>,
    /// For a stream, the number that its process has for its GPU, if the links depend on it and nothing else shows the GPU.
    pub by_number_alone: Option<u32>,
}

impl Assignment {
    /// Whether the consumer draws from this device.
    pub fn draws_from(&self, device: usize) -> bool {
        self.links.iter().any(|link| link.device == device)
    }

    /// Whether the consumer is a stream that cannot be compared with this counter and need not draw from its GPU.
    pub fn is_undecided_about(&self, device: usize) -> bool {
        self.undecided.contains(&device)
    }

    /// Whether the consumer is a process that its variables keep from using this GPU, and that does not draw from it.
    pub fn is_kept_from(&self, device: usize) -> bool {
        self.hidden.contains(&device) && !self.draws_from(device)
    }
}

/// The GPU of a stream.
enum Target {
    Number(u32),
    Uuid(String),
}

pub struct Node<'a>(pub Vec<Candidate<'a>>);

impl Node<'_> {
    fn gpus(&self) -> impl Iterator<Item = &Candidate<'_>> {
        self.0.iter().filter(|device| device.part.gpu)
    }

    fn family<'b>(&'b self, of: &'b CountedPart) -> impl Iterator<Item = &'b CountedPart> {
        self.gpus().map(|device| device.part).filter(|counter| counter.family == of.family)
    }

    /// Returns the devices that a GPU stream draws from. `rank`: that of its process, if it is known.
    pub fn of_stream(&self, name: &str, rank: Option<u32>, evidence: &Evidence) -> Assignment {
        let accelerator = &evidence.accelerator;
        let vendor = self.vendor_of(name);
        let target = target_of_stream(name, evidence, vendor);
        let only = self.only_listed(rank, vendor);
        let mut assignment = Assignment::default();
        for device in self.gpus() {
            let reason = match device.setting.and_then(|setting| setting.locations.as_ref()) {
                Some(patterns) => {
                    let ours = patterns.iter().any(|pattern| pattern.is_match(name));
                    ours.then(|| "configured: locations".to_owned())
                }
                None if !vendor.may_equal(device.part.vendor) => None,
                None if device.part.is_own() => {
                    let number = stream_number(name).or(accelerator.number);
                    let is_own = number.is_none() || device.part.number.is_none_or(|own| Some(own) == number);
                    is_own.then(|| "the trace has this counter as its process' own".to_owned())
                }
                None => self.reason_by_address(device.part, accelerator).unwrap_or_else(|| match &only {
                    Some((listed, ranks)) => {
                        (*listed == device.index).then(|| format!("configured: ranks = {ranks:?}"))
                    }
                    None => {
                        let reason = self.reason_by_target(device.part, &target);
                        if reason.is_some() {
                            assignment.by_number_alone = number_alone(name, evidence, vendor);
                        }
                        reason
                    }
                }),
            };
            let is_undecided = reason.is_none() && !self.can_be_compared(device, accelerator, &target);
            assignment.undecided.extend(is_undecided.then_some(device.index));
            assignment.links.extend(reason.map(|reason| Link { device: device.index, reason }));
        }
        assignment.gpu_is_known = !assignment.links.is_empty() || accelerator.pci.is_some() || target.is_ok();
        if assignment.links.is_empty() {
            assignment.no_gpu = Some(match (&target, &accelerator.pci) {
                _ if self.gpus().next().is_none() => "the node has no GPU counter".to_owned(),
                (_, Some(pci)) => format!("no counter of the GPU at PCI address {pci}"),
                (Ok((Target::Number(number), why)), None) => format!("no counter of GPU {number}: {why}"),
                (Ok((Target::Uuid(uuid), why)), None) => format!("no counter has the UUID {uuid}: {why}"),
                (Err(UnknownTarget(why)), None) => why.clone(),
            });
        }
        assignment
    }

    /// Returns the only GPU whose `[[device]]` lists this rank, with the list; `None` if there are several or none.
    fn only_listed(&self, rank: Option<u32>, vendor: Vendor) -> Option<(usize, Vec<u32>)> {
        let rank = rank?;
        let mut listed =
            self.gpus().filter(|device| vendor.may_equal(device.part.vendor)).filter_map(|device| {
                let setting = device.setting.filter(|setting| setting.locations.is_none())?;
                let ranks = setting.listed_ranks().filter(|ranks| ranks.contains(&rank))?;
                Some((device.index, ranks.clone()))
            });
        listed.next().filter(|_| listed.next().is_none())
    }

    /// Returns why a stream draws from a counter by PCI address or UUID: `None` if they do not both have one, `Some(None)` if the
    /// stream does not draw from the counter.
    fn reason_by_address(&self, counter: &CountedPart, accelerator: &Accelerator) -> Option<Option<String>> {
        if let (Some(on), Some(own)) = (&accelerator.pci, &counter.evidence.pci) {
            return Some(self.reason_by_pci(counter, on, own, &accelerator.model));
        }
        let (on, own) = accelerator.uuid.as_ref().zip(counter.evidence.uuid.as_ref())?;
        match [on, own].map(|uuid| uuid.starts_with(CONTEXT)) {
            [true, true] if on == own => Some(Some(format!("the scope of the counter is {on}"))),
            // Several contexts and streams may be on one GPU. So another context is known to be on another GPU only if there is
            // a counter with that context, too.
            [true, true] => {
                let has_own = self.gpus().any(|other| other.part.evidence.uuid.as_ref() == Some(on));
                has_own.then_some(None)
            }
            [false, false] => Some((on == own).then(|| format!("UUID {on}"))),
            _ => None,
        }
    }

    /// Whether a stream and a counter identify their GPUs in the same way.
    fn can_be_compared(
        &self,
        device: &Candidate,
        on: &Accelerator,
        target: &Result<(Target, String), UnknownTarget>,
    ) -> bool {
        device.setting.is_some_and(|setting| setting.locations.is_some())
            || self.reason_by_address(device.part, on).is_some()
            || match target {
                Ok((Target::Number(_), _)) => device.part.number.is_some(),
                Ok((Target::Uuid(_), _)) => {
                    device.part.evidence.uuid.is_some() && !device.part.is_of_context()
                }
                Err(_) => false,
            }
    }

    fn reason_by_target(
        &self,
        counter: &CountedPart,
        target: &Result<(Target, String), UnknownTarget>,
    ) -> Option<String> {
        match target {
            Ok((Target::Number(number), why)) => {
                let (counted_by, more) = self.counted_by(counter, *number);
                (counter.number == Some(counted_by)).then(|| format!("{why}{more}"))
            }
            Ok((Target::Uuid(uuid), why)) => same_uuid(counter, uuid).then(|| why.clone()),
            Err(_) => None,
        }
    }

    /// Finds the reason by PCI address. Addresses in the same format sort in bus order. The first die of a package comes before
    /// the second.
    fn reason_by_pci(&self, counter: &CountedPart, on: &str, own: &str, model: &str) -> Option<String> {
        if on == own {
            return Some(format!("PCI address {on}"));
        }
        let addresses: BTreeSet<&str> =
            self.family(counter).filter_map(|counter| counter.evidence.pci.as_deref()).collect();
        let package = |pci: &str| pci.rsplit_once('.').map(|(package, _)| package.to_owned());
        if !counter.evidence.counts.is_empty() && package(on) == package(own) {
            return Some(format!("PCI address {on}, a partition of the package that is counted at {own}"));
        }
        let two_dies = is_mi250x(&counter.evidence.model) || is_mi250x(model);
        let first = addresses.range(..on).next_back();
        (two_dies && !addresses.contains(on) && first == Some(&own))
            .then(|| format!("PCI address {on}, the second die of the package that is counted at {own}"))
    }

    /// Returns the number of the GPU (of the counter's family) whose counter includes this GPU, and, if that is a
    /// different GPU, text to append to the reason.
    fn counted_by(&self, of: &CountedPart, number: u32) -> (u32, String) {
        let package = self.family(of).find(|counter| counter.evidence.counts.contains(&number));
        if let Some(first) = package.and_then(|counter| counter.number) {
            return (first, format!("; GPU {first}'s counter counts it, too"));
        }
        let first = number & !1;
        let Some(even) = self.family(of).find(|counter| counter.number == Some(first)) else {
            return (number, String::new());
        };
        match self.two_dies(even) {
            Some(sure) if number != first => {
                let assumed = if sure { "" } else { ", assumed because no odd GPU has a counter" };
                (first, format!("; second die of the package that GPU {first} counts{assumed}"))
            }
            _ => (number, String::new()),
        }
    }

    /// Whether a counter with an even number counts two dies. `Some(true)` if the GPU's name shows it.
    fn two_dies(&self, even: &CountedPart) -> Option<bool> {
        let first = even.number.filter(|number| number.is_multiple_of(2))?;
        if self.family(even).any(|c| c.number == Some(first + 1) && c.evidence.rises) {
            return None;
        }
        if is_mi250x(&even.evidence.model) {
            return Some(true);
        }
        // This is another AMD GPU, so its counters are missing for another reason.
        if ["MI1", "MI2", "MI3", "Radeon"].iter().any(|other| even.evidence.model.contains(other)) {
            return None;
        }
        let counting: Vec<u32> =
            self.family(even).filter(|c| !c.evidence.silent).filter_map(|c| c.number).collect();
        let odd_is_silent = self.family(even).any(|c| c.number == Some(first + 1) && c.evidence.silent);
        let all_even = counting.iter().all(|number| number.is_multiple_of(2));
        let amd = even.vendor == Vendor::Amd && !even.evidence.silent;
        (amd && all_even && (counting.len() > 1 || odd_is_silent)).then_some(false)
    }

    /// Returns the vendor of a stream, or else that of the node's GPUs.
    fn vendor_of(&self, stream: &str) -> Vendor {
        let vendor = Vendor::of_stream(stream);
        let mut known = self.gpus().map(|device| device.part.vendor);
        match known.next() {
            Some(only) if vendor == Vendor::Unknown && known.all(|other| other == only) => only,
            _ => vendor,
        }
    }

    /// Returns the devices that a process draws from. `streams`: its GPU streams, by name; `local`: its number among the ranks
    /// of the node, if that may be used.
    pub fn of_rank(
        &self,
        rank: Option<u32>,
        evidence: &Evidence,
        streams: &[(&str, &Assignment)],
        local: Option<&LocalRank>,
    ) -> Assignment {
        let mut assignment = Assignment::default();
        let mut no_gpu = None;
        for device in &self.0 {
            let is_hidden = device.part.gpu && self.hides(device.part, &evidence.environment);
            assignment.hidden.extend(is_hidden.then_some(device.index));
            let finding = match device.setting.map(|setting| &setting.ranks) {
                Some(Ranks::Listed(ranks)) if rank.is_some_and(|rank| ranks.contains(&rank)) => {
                    Finding::Draws(format!("configured: ranks = {ranks:?}"))
                }
                Some(Ranks::Listed(_)) => {
                    Finding::DrawsNot("no [[device]] lists it in ranks = [...]".to_owned())
                }
                _ if device.part.is_own() => {
                    Finding::Draws("the trace has this counter as its own".to_owned())
                }
                _ if !device.part.gpu => shared_by_all("not a GPU counter"),
                Some(Ranks::All) => shared_by_all("its [[device]] lists no ranks"),
                Some(Ranks::Found) | None => self.find_for_rank(device, evidence, streams, local),
            };
            match finding {
                Finding::Draws(reason) => assignment.links.push(Link { device: device.index, reason }),
                Finding::DrawsNot(why) if device.part.gpu => no_gpu = no_gpu.or(Some(why)),
                Finding::DrawsNot(_) => {}
            }
        }
        let from_a_gpu = self.gpus().any(|device| assignment.draws_from(device.index));
        assignment.no_gpu = no_gpu.filter(|_| !from_a_gpu);
        assignment
    }

    /// Whether a process draws from a GPU, by evidence alone.
    fn find_for_rank(
        &self,
        device: &Candidate,
        evidence: &Evidence,
        streams: &[(&str, &Assignment)],
        local: Option<&LocalRank>,
    ) -> Finding {
        let shows = |stream: &Assignment| stream.gpu_is_known && !stream.undecided.contains(&device.index);
        if streams.iter().any(|(_, stream)| shows(stream)) {
            return by_streams(device.index, streams);
        }
        let counter = device.part;
        if let Some(finding) = self.by_queues(counter, &evidence.environment) {
            return finding;
        }
        let Some(number) = counter.number else {
            return shared_by_all("its metric's name has no GPU number");
        };
        // The reason starts with the evidence that was not enough to decide.
        let mut undecided = String::new();
        if let Some(visible) = visible::visible(&evidence.environment, counter.vendor) {
            match self.by_variables(counter, number, &visible) {
                Ok(finding) => return finding,
                Err(Undecided(why)) => undecided = format!("{why}, and "),
            }
        }
        if let Some(local) = local {
            let dies = self.dies(counter);
            let assumed = |die| format!("assumed: {local}, {} GPUs, GPU {die}", dies.len());
            match local.uses(&dies) {
                Some(die) if self.counted_by(counter, die).0 == number => {
                    return Finding::Draws(assumed(die));
                }
                Some(die) => return Finding::DrawsNot(assumed(die)),
                None => {
                    undecided.push_str(&format!("{} ranks do not fit {} GPUs, and ", local.of, dies.len()));
                }
            }
        }
        shared_by_all(&match self.family(counter).count() {
            1 => format!("{undecided}it is the node's only GPU with a counter"),
            _ => format!("{undecided}the ranks' GPUs are not known"),
        })
    }

    /// Whether a process draws from a GPU, by the driver's list of its queues. If none of the counters belongs to a GPU in the
    /// list, the list is about other GPUs.
    fn by_queues(&self, counter: &CountedPart, environment: &[String]) -> Option<Finding> {
        let list = variable(environment, QUEUES)?;
        if list.is_empty() {
            let is_amd = counter.vendor.may_equal(Vendor::Amd);
            let is_gpu_alone = is_amd && !has_cores(&counter.evidence.model);
            return is_gpu_alone.then(|| Finding::DrawsNot("it has not opened AMD's driver".to_owned()));
        }
        let reason = |counter: &CountedPart| {
            let own = counter.evidence.pci.as_deref()?;
            list.split(',').find_map(|on| self.reason_by_pci(counter, on, own, ""))
        };
        let evidence = match counter.vendor {
            Vendor::Nvidia => "NVIDIA's driver reported it at ",
            Vendor::Amd | Vendor::Unknown => "the driver reported its queues at ",
        };
        let is_listed =
            |other: &CountedPart| counter.vendor.may_equal(other.vendor) && reason(other).is_some();
        match reason(counter) {
            Some(reason) => Some(Finding::Draws(format!("{evidence}{reason}"))),
            None if counter.evidence.pci.is_some() && self.gpus().any(|other| is_listed(other.part)) => {
                Some(Finding::DrawsNot(format!("{evidence}{list}")))
            }
            None => None,
        }
    }

    /// Whether a process draws from a GPU, by the variables that restrict what it may see.
    fn by_variables(
        &self,
        counter: &CountedPart,
        number: u32,
        Visible { entries, because }: &Visible,
    ) -> Result<Finding, Undecided> {
        let chosen = self.chosen(counter, entries).map_err(|UnknownUuid(uuid)| {
            Undecided(format!("{because}, but no counter has the UUID {uuid}"))
        })?;
        if self.family(counter).all(|c| c.number.is_some_and(|n| chosen.contains(&n))) {
            return match self.family(counter).count() {
                1 => Ok(Finding::Draws(because.clone())),
                _ => Err(Undecided(format!("{because} leaves it every GPU with a counter"))),
            };
        }
        if !chosen.contains(&number) {
            return Ok(Finding::DrawsNot(because.clone()));
        }
        let dies = entries.iter().filter_map(|entry| match entry {
            Entry::Number(die) => Some(self.counted_by(counter, *die)),
            Entry::Uuid(_) => None,
        });
        // If both dies are visible, the one that needs no explanation is preferred (the empty text sorts first).
        let more = dies.filter(|(counted_by, _)| *counted_by == number).map(|(_, more)| more).min();
        Ok(Finding::Draws(format!("{because}{}", more.unwrap_or_default())))
    }

    /// Whether the variables of a process hide a GPU from it.
    fn hides(&self, counter: &CountedPart, environment: &[String]) -> bool {
        let visible = visible::visible(environment, counter.vendor);
        let chosen = visible.and_then(|visible| self.chosen(counter, &visible.entries).ok());
        counter.number.zip(chosen).is_some_and(|(number, chosen)| !chosen.contains(&number))
    }

    /// Returns the numbers of the counters that count the GPUs that a process may see. The error is a UUID that no counter has.
    fn chosen(&self, of: &CountedPart, entries: &[Entry]) -> Result<BTreeSet<u32>, UnknownUuid> {
        let mut chosen = BTreeSet::new();
        for entry in entries {
            chosen.insert(match entry {
                Entry::Number(number) => self.counted_by(of, *number).0,
                Entry::Uuid(uuid) => {
                    let counter = self.family(of).find(|counter| same_uuid(counter, uuid));
                    counter.and_then(|counter| counter.number).ok_or_else(|| UnknownUuid(uuid.clone()))?
                }
            });
        }
        Ok(chosen)
    }

    /// Returns all GPUs that the counters of a family count, in order.
    fn dies(&self, of: &CountedPart) -> Vec<u32> {
        let mut dies = BTreeSet::new();
        for counter in self.family(of) {
            let Some(number) = counter.number else { continue };
            dies.insert(number);
            if self.two_dies(counter).is_some() {
                dies.insert(number + 1);
            }
        }
        dies.into_iter().collect()
    }
}

/// Whether a process draws from a device, and why.
enum Finding {
    Draws(String),
    DrawsNot(String),
}

/// Why evidence is not enough to decide.
struct Undecided(String);

/// A UUID that no counter has.
struct UnknownUuid(String);

/// Why a stream's GPU is not known.
struct UnknownTarget(String);

fn shared_by_all(why: &str) -> Finding {
    Finding::Draws(format!("{why}: shared by all processes of the node"))
}

/// Whether a process draws from a device, by its GPU streams, some of which are on a known GPU.
fn by_streams(device: usize, streams: &[(&str, &Assignment)]) -> Finding {
    let names = |of: &dyn Fn(&Assignment) -> bool| -> Vec<&str> {
        streams.iter().filter(|(_, stream)| of(stream)).map(|(name, _)| *name).collect()
    };
    let here = names(&|stream| stream.draws_from(device));
    if here.is_empty() {
        return Finding::DrawsNot(format!(
            "its {} ran on a GPU without a counter",
            listed(&names(&|_| true))
        ));
    }
    Finding::Draws(format!("its {} ran on it", listed(&here)))
}

/// Whether a counter has this UUID. It may be abbreviated, as CUDA allows.
fn same_uuid(counter: &CountedPart, uuid: &str) -> bool {
    let uuid = uuid.to_ascii_lowercase();
    counter.evidence.uuid.as_ref().is_some_and(|own| own.to_ascii_lowercase().starts_with(&uuid))
}

/// Whether a GPU's model is an MI300A, whose counter is that of its whole socket.
pub fn has_cores(model: &str) -> bool {
    let model = model.to_ascii_uppercase();
    ["MI300A", "0X74A0"].iter().any(|name| model.contains(name))
}

/// Returns a stream's GPU, by its number among those that its process may see. The error is the reason why it is not
/// known.
fn target_of_stream(
    name: &str,
    evidence: &Evidence,
    vendor: Vendor,
) -> Result<(Target, String), UnknownTarget> {
    let (number, source) = match (stream_number(name), evidence.accelerator.number) {
        // The system tree numbers the GPUs differently from the process.
        (Some(number), Some(on)) if number != on => {
            return Ok((Target::Number(on), format!("device {on} in the system tree")));
        }
        (Some(number), _) => (number, "its name"),
        (None, Some(number)) => (number, "the system tree"),
        (None, None) => return Err(UnknownTarget("its device is not known".to_owned())),
    };
    let Some(Visible { entries, because }) = visible::visible(&evidence.environment, vendor) else {
        return Ok((Target::Number(number), format!("device {number} in {source}")));
    };
    match entries.get(number as usize) {
        Some(Entry::Number(on)) => {
            Ok((Target::Number(*on), format!("device {number} in {source}, of {because}")))
        }
        Some(Entry::Uuid(uuid)) => {
            Ok((Target::Uuid(uuid.clone()), format!("device {number} in {source}, of {because}")))
        }
        // Some tools number all GPUs of the node, and not only the visible ones.
        None if entries.contains(&Entry::Number(number)) => {
            Ok((Target::Number(number), format!("device {number} in {source}, one of {because}")))
        }
        None => Err(UnknownTarget(format!("device {number} in {source} is none of {because}"))),
    }
}

/// Returns the number in a stream's name, if neither the system tree nor a variable shows which GPU its process calls so.
fn number_alone(name: &str, evidence: &Evidence, vendor: Vendor) -> Option<u32> {
    let number = stream_number(name)?;
    let is_alone = evidence.accelerator.number.is_none_or(|on| on == number)
        && visible::visible(&evidence.environment, vendor).is_none();
    is_alone.then_some(number)
}

/// Lists names, for example as "GPU streams HIP[0:0], HIP[0:1] and 3 more".
fn listed(names: &[&str]) -> String {
    const LISTED_MAX: usize = 3;
    match names {
        [only] => format!("GPU stream {only}"),
        several => format!("GPU streams {}", ampere_model::text::listed(several.iter(), LISTED_MAX)),
    }
}
