//! Who spends from which device, and why: found out without configuration where something says so.
//!
//! Strongest first. The *kernels* view of a GPU's counter, for a GPU stream:
//!
//! 1. `locations` of its `[[device]]`;
//! 2. PCI address, then UUID, where both the stream's device (in the system tree) and the counter tell theirs;
//! 3. the number in the stream's name (else in the system tree), counted within what its process may see
//!    ([`visible`]): `HIP[0:0]` of a process with `ROCR_VISIBLE_DEVICES=3` is on the node's GPU 3.
//!
//! The *ranks* view, for a process:
//!
//! 1. its `[[device]]`: the `ranks` that it lists, or else all, unless it says `"found"`;
//! 2. its GPU streams: what they spend from, it does;
//! 3. the GPUs that it may see, where that is not all of them;
//! 4. its local rank, if the settings allow that assumption (`[topology] by_local_rank`): programs are free to use
//!    another GPU, and the order of GPUs is not to be trusted;
//! 5. else all ranks of the node share it. A link that is wrong charges somebody with another's joules and looks
//!    exact; sharing by all is coarse, and says so.
//!
//! A counter that is not a GPU's is shared by all ranks of its node.
//!
//! **Two dies, one counter.** A package of an MI250X shows as two GPUs, of which the even one's counter counts both; the
//! odd one's fails or stays 0. Who is on the odd one spends from the even one's. An odd one whose own counter rises counts for
//! itself, whatever its model is called: what is measured is more than a name.
//!
//! Nothing here does IO or keeps a state: the same evidence gives the same links, live and from the run's own trace.

use ampere_settings::{DeviceSetting, Ranks};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::sync::Arc;
use visible::{Entry, Vendor, Visible};

pub mod local;

pub mod visible;

pub use local::{LocalRank, local_ranks};

/// What is known of a location beyond its name.
#[derive(Clone, Debug, Default)]
pub struct Evidence {
    /// The process that it belongs to, or that made it: any number, the same for all locations of a process.
    pub process: Option<u64>,
    /// Variables of that process, in the form `NAME=value`.
    pub environment: Arc<[String]>,
    /// Of a GPU stream: the device that the system tree has above it.
    pub accelerator: Accelerator,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Accelerator {
    pub number: Option<u32>,
    /// `0000:c1:00.0`
    pub pci: Option<String>,
    /// `GPU-a70564cccd47836c`
    pub uuid: Option<String>,
    pub model: String,
}

/// What is known of a counter beyond its name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// `gpu`, `node` and so on; empty where only the metric's name can tell.
    pub kind: String,
    pub pci: Option<String>,
    pub uuid: Option<String>,
    /// The GPU's name, among other words.
    pub model: String,
    /// It has never shown anything but 0.
    #[serde(default)]
    pub silent: bool,
    /// In a trace whose processes see each its own GPU by one name: location groups of those that this one is of. Nobody
    /// else spends from it. Empty: any may.
    #[serde(default)]
    pub own: Vec<String>,
    /// It has risen.
    #[serde(default)]
    pub rises: bool,
}

/// A counter, as far as it matters who spends from it.
#[derive(Clone, Debug)]
pub struct Counter {
    /// Whether it counts a GPU, so that not every rank need spend from it.
    gpu: bool,
    number: Option<u32>,
    vendor: Vendor,
    /// The metric's name without the number: counters of one family count different GPUs.
    family: String,
    pub place: Place,
}

impl Counter {
    pub fn new(metric: &str, place: Place, setting: Option<&DeviceSetting>) -> Counter {
        let (family, number) = split_metric(metric);
        let streams_are_named = setting.is_some_and(|setting| setting.locations.is_some());
        Counter {
            gpu: streams_are_named
                || if place.kind.is_empty() {
                    number.is_some()
                } else {
                    place.kind.eq_ignore_ascii_case("gpu")
                },
            number,
            vendor: Vendor::of_metric(metric),
            family: family.to_owned(),
            place,
        }
    }

    pub fn is_gpu(&self) -> bool {
        self.gpu
    }

    /// Whether a process, by its location group, may spend from it.
    pub fn is_open_to(&self, process: &str) -> bool {
        self.place.own.is_empty() || self.place.own.iter().any(|own| own == process)
    }

    fn is_own(&self) -> bool {
        !self.place.own.is_empty()
    }

    /// By its model another GPU's counter counts it, yet its own rises.
    pub fn contradicts_its_model(&self) -> bool {
        let is_odd = self.number.is_some_and(|number| !number.is_multiple_of(2));
        self.gpu && self.place.rises && is_odd && is_mi250x(&self.place.model)
    }
}

/// The GPU's number in a metric's name: `rocm_smi:::energy_count:device=1` is of GPU 1.
pub fn metric_number(metric: &str) -> Option<u32> {
    split_metric(metric).1
}

fn split_metric(metric: &str) -> (&str, Option<u32>) {
    const KEY: &str = "device=";
    let Some(at) = metric.find(KEY) else { return (metric, None) };
    let (family, rest) = metric.split_at(at + KEY.len());
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    (family, rest[..end].parse().ok())
}

/// The device's number in a GPU stream's name: `HIP[1:0]` is on device 1 of its process.
fn stream_number(name: &str) -> Option<u32> {
    let inside = name.split_once('[')?.1;
    inside.split([':', ']']).next()?.parse().ok()
}

/// A device of a node, by its number among all devices of the run.
pub struct Candidate<'a> {
    pub index: usize,
    pub counter: &'a Counter,
    pub setting: Option<&'a DeviceSetting>,
}

/// Why a consumer spends from a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    pub device: usize,
    pub reason: String,
}

/// What a consumer spends from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spends {
    pub links: Vec<Link>,
    /// Why from no GPU, although the node has some with a counter, or although it is a GPU stream.
    pub nothing: Option<String>,
    /// Of a stream: whether it is known which GPU it is on, be there a counter or not.
    pub placed: bool,
}

impl Spends {
    pub fn is_from(&self, device: usize) -> bool {
        self.links.iter().any(|link| link.device == device)
    }
}

/// Which GPU, as something says it.
enum Target {
    Number(u32),
    Uuid(String),
}

/// The devices of one node.
pub struct Node<'a>(pub Vec<Candidate<'a>>);

impl Node<'_> {
    fn gpus(&self) -> impl Iterator<Item = &Candidate<'_>> {
        self.0.iter().filter(|device| device.counter.gpu)
    }

    fn family<'b>(&'b self, of: &'b Counter) -> impl Iterator<Item = &'b Counter> {
        self.gpus().map(|device| device.counter).filter(|counter| counter.family == of.family)
    }

    /// What a GPU stream spends from.
    pub fn of_stream(&self, name: &str, evidence: &Evidence) -> Spends {
        let accelerator = &evidence.accelerator;
        let vendor = self.vendor_of(name);
        let target = target_of_stream(name, evidence, vendor);
        let mut spends = Spends::default();
        for device in self.gpus() {
            let reason = match device.setting.and_then(|setting| setting.locations.as_ref()) {
                Some(patterns) => {
                    let ours = patterns.iter().any(|pattern| pattern.is_match(name));
                    ours.then(|| "configured: locations".to_owned())
                }
                None if !vendor.goes_with(device.counter.vendor) => None,
                None if device.counter.is_own() => {
                    let number = stream_number(name).or(accelerator.number);
                    let is_it =
                        number.is_none() || device.counter.number.is_none_or(|own| Some(own) == number);
                    is_it.then(|| "its process recorded this counter as its own".to_owned())
                }
                None => self.reason_of_stream(device.counter, accelerator, &target),
            };
            spends.links.extend(reason.map(|reason| Link { device: device.index, reason }));
        }
        spends.placed = !spends.links.is_empty() || accelerator.pci.is_some() || target.is_ok();
        if spends.links.is_empty() {
            spends.nothing = Some(match (&target, &accelerator.pci) {
                _ if self.gpus().next().is_none() => "the node has no GPU counter".to_owned(),
                (_, Some(pci)) => format!("no counter of the GPU at PCI address {pci}"),
                (Ok((Target::Number(number), why)), None) => format!("no counter of GPU {number}: {why}"),
                (Ok((Target::Uuid(uuid), why)), None) => format!("no counter tells the UUID {uuid}: {why}"),
                (Err(why), None) => why.clone(),
            });
        }
        spends
    }

    fn reason_of_stream(
        &self,
        counter: &Counter,
        accelerator: &Accelerator,
        target: &Result<(Target, String), String>,
    ) -> Option<String> {
        if let (Some(on), Some(own)) = (&accelerator.pci, &counter.place.pci) {
            return self.reason_by_pci(counter, on, own, &accelerator.model);
        }
        if let (Some(on), Some(own)) = (&accelerator.uuid, &counter.place.uuid) {
            return (on == own).then(|| format!("UUID {on}"));
        }
        match target {
            Ok((Target::Number(number), why)) => {
                let (counted_by, more) = self.counted_by(counter, *number);
                (counter.number == Some(counted_by)).then(|| format!("{why}{more}"))
            }
            Ok((Target::Uuid(uuid), why)) => same_uuid(counter, uuid).then(|| why.clone()),
            Err(_) => None,
        }
    }

    /// Addresses of one form are in the order of the buses. The first die of a package comes before the second.
    fn reason_by_pci(&self, counter: &Counter, on: &str, own: &str, model: &str) -> Option<String> {
        if on == own {
            return Some(format!("PCI address {on}"));
        }
        let addresses: BTreeSet<&str> =
            self.family(counter).filter_map(|counter| counter.place.pci.as_deref()).collect();
        let two_dies = is_mi250x(&counter.place.model) || is_mi250x(model);
        let first = addresses.range(..on).next_back();
        (two_dies && !addresses.contains(on) && first == Some(&own))
            .then(|| format!("PCI address {on}, the second die of the package that is counted at {own}"))
    }

    /// The GPU whose counter counts this one, among the family of a counter; what is to be said if it is another.
    fn counted_by(&self, of: &Counter, number: u32) -> (u32, String) {
        let first = number & !1;
        let Some(even) = self.family(of).find(|counter| counter.number == Some(first)) else {
            return (number, String::new());
        };
        match self.two_dies(even) {
            Some(sure) if number != first => {
                let assumed = if sure { "" } else { ", as it seems: no odd GPU has a counter" };
                (first, format!("; second die of the package that GPU {first} counts{assumed}"))
            }
            _ => (number, String::new()),
        }
    }

    /// Whether a counter with an even number counts two dies. `Some(true)` if the GPU's name says so.
    fn two_dies(&self, even: &Counter) -> Option<bool> {
        let first = even.number.filter(|number| number.is_multiple_of(2))?;
        if self.family(even).any(|c| c.number == Some(first + 1) && c.place.rises) {
            return None;
        }
        if is_mi250x(&even.place.model) {
            return Some(true);
        }
        // Another GPU of AMD's by name: what is missing there is missing for another reason.
        if ["MI1", "MI2", "MI3", "Radeon"].iter().any(|other| even.place.model.contains(other)) {
            return None;
        }
        let counting: Vec<u32> =
            self.family(even).filter(|c| !c.place.silent).filter_map(|c| c.number).collect();
        let odd_is_silent = self.family(even).any(|c| c.number == Some(first + 1) && c.place.silent);
        let all_even = counting.iter().all(|number| number.is_multiple_of(2));
        let amd = even.vendor == Vendor::Amd && !even.place.silent;
        (amd && all_even && (counting.len() > 1 || odd_is_silent)).then_some(false)
    }

    /// A stream's vendor, else that of the node's GPUs.
    fn vendor_of(&self, stream: &str) -> Vendor {
        let vendor = Vendor::of_stream(stream);
        let mut known = self.gpus().map(|device| device.counter.vendor);
        match known.next() {
            Some(only) if vendor == Vendor::Unknown && known.all(|other| other == only) => only,
            _ => vendor,
        }
    }

    /// What a process spends from. `streams`: its GPU streams, by name; `local`: its place among the ranks of the node,
    /// where that may be used.
    pub fn of_rank(
        &self,
        rank: Option<u32>,
        evidence: &Evidence,
        streams: &[(&str, &Spends)],
        local: Option<&LocalRank>,
    ) -> Spends {
        let mut spends = Spends::default();
        let mut nothing = None;
        for device in &self.0 {
            let reason = match device.setting.map(|setting| &setting.ranks) {
                Some(Ranks::Listed(ranks)) if rank.is_some_and(|rank| ranks.contains(&rank)) => {
                    Ok(format!("configured: ranks = {ranks:?}"))
                }
                Some(Ranks::Listed(_)) => Err("it is in no ranks = [...] of a [[device]]".to_owned()),
                _ if device.counter.is_own() => Ok("it recorded this counter as its own".to_owned()),
                _ if !device.counter.gpu => Ok("not one GPU's: all ranks of the node".to_owned()),
                Some(Ranks::All) => Ok("its [[device]] names no ranks: all of the node".to_owned()),
                Some(Ranks::Found) | None => self.reason_of_rank(device, evidence, streams, local),
            };
            match reason {
                Ok(reason) => spends.links.push(Link { device: device.index, reason }),
                Err(why) if device.counter.gpu => nothing = nothing.or(Some(why)),
                Err(_) => {}
            }
        }
        let from_a_gpu = self.gpus().any(|device| spends.is_from(device.index));
        spends.nothing = nothing.filter(|_| !from_a_gpu);
        spends
    }

    /// The error says why not.
    fn reason_of_rank(
        &self,
        device: &Candidate,
        evidence: &Evidence,
        streams: &[(&str, &Spends)],
        local: Option<&LocalRank>,
    ) -> Result<String, String> {
        if streams.iter().any(|(_, spends)| spends.placed) {
            let on = |wanted: Option<usize>| {
                let on = |spends: &Spends| wanted.is_none_or(|device| spends.is_from(device));
                streams.iter().filter(|(_, s)| on(s)).map(|(name, _)| *name).collect::<Vec<&str>>()
            };
            let here = on(Some(device.index));
            return if here.is_empty() {
                Err(format!("its {} ran on a GPU without a counter", listed(&on(None))))
            } else {
                Ok(format!("its {} ran on it", listed(&here)))
            };
        }
        let counter = device.counter;
        let Some(number) = counter.number else {
            return Ok("its metric's name has no GPU's number: all ranks of the node".to_owned());
        };
        let seen = visible::visible(&evidence.environment, counter.vendor);
        let mut before = String::new();
        if let Some(Visible { entries, because }) = &seen {
            match self.chosen(counter, entries) {
                Ok(chosen) if self.family(counter).all(|c| c.number.is_some_and(|n| chosen.contains(&n))) => {
                    if self.family(counter).count() == 1 {
                        return Ok(because.clone());
                    }
                    before = format!("{because} leaves it every GPU with a counter, and ");
                }
                Ok(chosen) if chosen.contains(&number) => {
                    let dies = entries.iter().filter_map(|entry| match entry {
                        Entry::Number(die) => Some(self.counted_by(counter, *die)),
                        Entry::Uuid(_) => None,
                    });
                    // One die may be the counter's own.
                    let more =
                        dies.filter(|(counted_by, _)| *counted_by == number).map(|(_, more)| more).min();
                    return Ok(format!("{because}{}", more.unwrap_or_default()));
                }
                Ok(_) => return Err(because.clone()),
                Err(uuid) => before = format!("{because}, but no counter tells the UUID {uuid}, and "),
            }
        }
        if let Some(local) = local {
            let dies = self.dies(counter);
            match local.uses(&dies) {
                Some(die) if self.counted_by(counter, die).0 == number => {
                    return Ok(format!("assumed: {local}, {} GPUs, GPU {die}", dies.len()));
                }
                Some(die) => return Err(format!("assumed: {local}, {} GPUs, GPU {die}", dies.len())),
                None => before.push_str(&format!("{} ranks do not fit {} GPUs, and ", local.of, dies.len())),
            }
        }
        if self.family(counter).count() == 1 {
            return Ok(format!("{before}it is the node's only GPU with a counter: all ranks of the node"));
        }
        Ok(format!("{before}nothing says which GPU is whose: all ranks of the node"))
    }

    /// Numbers of the counters that count what a process may see. The error is a UUID that no counter tells.
    fn chosen(&self, of: &Counter, entries: &[Entry]) -> Result<BTreeSet<u32>, String> {
        let mut chosen = BTreeSet::new();
        for entry in entries {
            chosen.insert(match entry {
                Entry::Number(number) => self.counted_by(of, *number).0,
                Entry::Uuid(uuid) => {
                    let tells = self.family(of).find(|counter| same_uuid(counter, uuid));
                    tells.and_then(|counter| counter.number).ok_or_else(|| uuid.clone())?
                }
            });
        }
        Ok(chosen)
    }

    /// All GPUs that the counters of a family count, in order.
    fn dies(&self, of: &Counter) -> Vec<u32> {
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

/// A UUID may be cut short: CUDA allows it.
fn same_uuid(counter: &Counter, uuid: &str) -> bool {
    let uuid = uuid.to_ascii_lowercase();
    counter.place.uuid.as_ref().is_some_and(|own| own.to_ascii_lowercase().starts_with(&uuid))
}

/// The names that libraries of several ages have for the GPU with two dies in a package.
fn is_mi250x(model: &str) -> bool {
    let model = model.to_ascii_uppercase();
    ["MI250", "MI200", "0X740C", "0X7408"].iter().any(|name| model.contains(name))
}

/// Which GPU a stream is on, by its number within what its process may see. The error says why that is not known.
fn target_of_stream(name: &str, evidence: &Evidence, vendor: Vendor) -> Result<(Target, String), String> {
    let (number, source) = match (stream_number(name), evidence.accelerator.number) {
        (Some(number), _) => (number, "its name"),
        (None, Some(number)) => (number, "the system tree"),
        (None, None) => return Err("nothing says which device it is on".to_owned()),
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
        // Not every tool counts within what is visible.
        None if entries.contains(&Entry::Number(number)) => {
            Ok((Target::Number(number), format!("device {number} in {source}, one of {because}")))
        }
        None => Err(format!("device {number} in {source} is none of {because}")),
    }
}

/// "GPU streams HIP[0:0], HIP[0:1] and 3 more"
fn listed(names: &[&str]) -> String {
    const MOST: usize = 3;
    match names {
        [only] => format!("GPU stream {only}"),
        few if few.len() <= MOST => format!("GPU streams {}", few.join(", ")),
        many => format!("GPU streams {} and {} more", many[..MOST].join(", "), many.len() - MOST),
    }
}
