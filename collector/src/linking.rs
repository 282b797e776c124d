//! Who spends from what, kept up to date as locations and devices become known: what [`topology`](crate::topology) says
//! becomes consumers of the engine's views.
//!
//! Offline, a device becomes known with its first sample; live, ranks and streams appear while others already run. A link
//! that changes after joules were handed out by it makes the figures differ from what they would be had it been known
//! from the start. That is remembered ([`Attributor::links_moved`]), and the figures are then computed again from the trace, with
//! everything known.

use crate::attributor::{Attributor, Device, LocationInfo, ViewKind};
use crate::config::Locations;
use crate::topology::{Candidate, Counter, Evidence, LocalRank, Node, Place, Spends, local_ranks};
use ampere_attribution::LocationIndex;
use ampere_model::LocationKind;
use std::collections::HashMap;

#[derive(Default)]
pub struct Linking {
    /// By location.
    evidence: Vec<Evidence>,
    spends: Vec<Spends>,
    /// By device.
    counters: Vec<Counter>,
    by_process: HashMap<u64, Process>,
    by_node: HashMap<String, OfNode>,
    moved: bool,
}

#[derive(Default)]
struct Process {
    /// Threads that are consumers of the ranks view.
    threads: Vec<usize>,
    streams: Vec<usize>,
}

#[derive(Default)]
struct OfNode {
    threads: Vec<usize>,
    streams: Vec<usize>,
    devices: Vec<usize>,
}

impl Attributor {
    pub fn add_location_with(&mut self, info: LocationInfo, evidence: Evidence) -> LocationIndex {
        let rank = self.is_rank(&info);
        if rank {
            self.add_time(&info.node);
        }
        let index = self.engine.add_location();
        let at = index.0 as usize;
        let gpu = info.kind == LocationKind::Gpu;
        if gpu || rank {
            let node = self.linking.by_node.entry(info.node.clone()).or_default();
            let of_node = if gpu { &mut node.streams } else { &mut node.threads };
            of_node.push(at);
            if let Some(process) = evidence.process {
                let process = self.linking.by_process.entry(process).or_default();
                let of_process = if gpu { &mut process.streams } else { &mut process.threads };
                of_process.push(at);
            }
        }
        self.locations.push(info);
        self.linking.evidence.push(evidence);
        self.linking.spends.push(Spends::default());
        self.link(at);
        index
    }

    /// A device was added.
    pub(crate) fn link_device(&mut self, counter: Counter) {
        let device = self.devices.len() - 1;
        self.linking.counters.push(counter);
        let node = self.devices[device].info.node.clone();
        self.linking.by_node.entry(node.clone()).or_default().devices.push(device);
        self.link_node(&node);
    }

    /// Counters that have never shown anything but 0 are now known for it: it may be that another one counts their GPU.
    pub fn learn_silence(&mut self) {
        self.learn(|device, place| device.is_silent() && !std::mem::replace(&mut place.silent, true));
    }

    /// Counters that have risen are now known for it: they count their GPU themselves.
    pub fn learn_rises(&mut self) {
        self.learn(|device, place| device.rises() && !std::mem::replace(&mut place.rises, true));
    }

    /// Links are found anew where something new is known of a GPU's counter.
    fn learn(&mut self, is_news: impl Fn(&Device, &mut Place) -> bool) {
        let mut nodes = Vec::new();
        for (device, counter) in self.devices.iter().zip(&mut self.linking.counters) {
            if counter.is_gpu() && is_news(device, &mut counter.place) {
                nodes.push(device.info.node.clone());
            }
        }
        nodes.dedup();
        nodes.iter().for_each(|node| self.link_node(node));
    }

    fn link_node(&mut self, node: &str) {
        let Some(of_node) = self.linking.by_node.get(node) else { return };
        // Streams first: their processes go by them.
        let all: Vec<usize> = of_node.streams.iter().chain(&of_node.threads).copied().collect();
        for location in all {
            self.link_one(location);
        }
    }

    /// A location is new, or its rank is.
    pub(crate) fn link(&mut self, location: usize) {
        match self.locations[location].kind {
            LocationKind::Gpu => {
                self.link_one(location);
                let process = self.linking.evidence[location].process;
                let threads = process.map(|process| self.linking.by_process[&process].threads.clone());
                threads.into_iter().flatten().for_each(|thread| self.link_one(thread));
            }
            _ if self.is_rank(&self.locations[location]) => {
                if self.config().by_local_rank {
                    // How many there are matters to the others, too.
                    let node = self.locations[location].node.clone();
                    self.link_node(&node);
                } else {
                    self.link_one(location);
                }
            }
            _ => {}
        }
    }

    fn link_one(&mut self, location: usize) {
        let info = &self.locations[location];
        let linking = &self.linking;
        let Some(of_node) = linking.by_node.get(&info.node) else { return };
        let devices = of_node.devices.iter().map(|device| Candidate {
            index: *device,
            counter: &linking.counters[*device],
            setting: self.devices[*device].setting(),
        });
        let node = Node(devices.collect());
        let evidence = &linking.evidence[location];
        let spends = if info.kind == LocationKind::Gpu {
            node.of_stream(&info.name, evidence)
        } else {
            let streams = evidence.process.map_or(&[][..], |process| &linking.by_process[&process].streams);
            let streams: Vec<(&str, &Spends)> = streams
                .iter()
                .filter(|stream| self.locations[**stream].node == info.node)
                .map(|stream| (self.locations[*stream].name.as_str(), &linking.spends[*stream]))
                .collect();
            let local = self.config().by_local_rank.then(|| self.local_rank(of_node, location)).flatten();
            node.of_rank(info.rank, evidence, &streams, local.as_ref())
        };
        self.apply(location, spends);
    }

    fn local_rank(&self, of_node: &OfNode, location: usize) -> Option<LocalRank> {
        // One of each process.
        let mains = of_node.threads.iter().filter(|thread| self.locations[**thread].main);
        let all: Vec<&Evidence> = mains.map(|main| &self.linking.evidence[*main]).collect();
        let own = self.linking.evidence[location].process?;
        let at = all.iter().position(|evidence| evidence.process == Some(own))?;
        local_ranks(&all).map(|mut ranks| ranks.swap_remove(at))
    }

    fn apply(&mut self, location: usize, spends: Spends) {
        let before = std::mem::replace(&mut self.linking.spends[location], spends);
        let after = &self.linking.spends[location];
        let kind = match self.locations[location].kind {
            LocationKind::Gpu => ViewKind::Kernels,
            _ => ViewKind::Ranks,
        };
        let index = LocationIndex(location as u32);
        let changed = |from: &Spends, to: &Spends| -> Vec<usize> {
            from.links.iter().map(|link| link.device).filter(|device| !to.is_from(*device)).collect()
        };
        let (gone, new) = (changed(&before, after), changed(after, &before));
        for device in gone {
            let view = self.devices[device].view(kind);
            self.linking.moved |= self.engine.has_begun(view) && self.engine.has_run(index);
            self.engine.unbind(view, index);
        }
        for device in new {
            let view = self.devices[device].view(kind);
            self.linking.moved |= self.engine.has_begun(view) && self.engine.has_run(index);
            match self.linking.evidence[location].process {
                // The threads of a process share what it gets.
                Some(process) if kind == ViewKind::Ranks && self.config().locations == Locations::All => {
                    self.engine.bind_member(view, index, process);
                }
                _ => self.engine.bind(view, index),
            }
        }
    }

    /// Some location's links changed when joules had already been handed out by the old ones.
    pub fn links_moved(&self) -> bool {
        self.linking.moved
    }

    /// What has been learnt of a counter.
    pub fn place(&self, node: &str, metric: &str) -> Option<&Place> {
        let mut counters = self.devices.iter().zip(&self.linking.counters);
        let is_it = |device: &Device| device.info.metric == metric && device.info.node == node;
        counters.find(|(device, _)| is_it(device)).map(|(_, counter)| &counter.place)
    }

    pub fn spends(&self, location: usize) -> &Spends {
        &self.linking.spends[location]
    }

    pub fn counter(&self, device: usize) -> &Counter {
        &self.linking.counters[device]
    }

    /// The process that a GPU stream is of, or else its context.
    pub fn owner_of(&self, stream: usize) -> &str {
        let process = self.linking.evidence[stream].process;
        let thread = process.and_then(|process| self.linking.by_process.get(&process)?.threads.first());
        &self.locations[*thread.unwrap_or(&stream)].group
    }

    /// The devices whose kernels view a location spends from.
    pub fn kernel_devices_of(&self, location: LocationIndex) -> Vec<usize> {
        let at = location.0 as usize;
        let gpu = self.locations[at].kind == LocationKind::Gpu;
        let links = self.linking.spends[at].links.iter().filter(|_| gpu);
        links.map(|link| link.device).collect()
    }
}
