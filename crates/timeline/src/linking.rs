//! Who spends from what, kept up to date as locations and devices become known: what [`topology`](crate::topology) says
//! becomes consumers of the engine's views.
//!
//! Offline, a device becomes known with its first sample; live, ranks and streams appear while others already run. A link
//! that changes after joules were handed out by it makes the figures differ from what they would be had it been known
//! from the start. That is remembered ([`Attributor::links_moved`]), and the figures are then computed again from the trace, with
//! everything known.

use crate::attributor::{Attributor, Device, LocationInfo};
use crate::topology::{Candidate, Counter, Evidence, LocalRank, Node, Place, Spends, local_ranks};
use ampere_attribution::LocationIndex;
use ampere_model::LocationKind;
use ampere_settings::Locations;
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
    threads: Vec<usize>,
    streams: Vec<usize>,
    cpu: Option<ThreadSeconds>,
}

/// How long a process' main thread ran, and all of its other threads together.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ThreadSeconds {
    pub main: f64,
    pub others: f64,
}

/// Processes whose other threads ran more than their main thread.
pub struct BusyThreads<'a> {
    /// The first of them.
    pub group: &'a str,
    pub seconds: ThreadSeconds,
    /// By the system's count; else by the time in which they had frames open.
    pub is_cpu_time: bool,
    pub processes: usize,
}

#[derive(Default)]
struct OfNode {
    threads: Vec<usize>,
    streams: Vec<usize>,
    devices: Vec<usize>,
}

impl Attributor {
    pub fn add_location_with(&mut self, info: LocationInfo, evidence: Evidence) -> LocationIndex {
        let thread = info.kind == LocationKind::CpuThread;
        if thread {
            self.add_time(&info.node);
        }
        let index = self.engine.add_location();
        let at = index.0 as usize;
        let gpu = info.kind == LocationKind::Gpu;
        if gpu || thread {
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
            LocationKind::CpuThread => {
                if self.config().by_local_rank && self.locations[location].main {
                    // How many there are matters to the others, too.
                    let node = self.locations[location].node.clone();
                    self.link_node(&node);
                } else {
                    self.link_one(location);
                }
            }
            LocationKind::Metric => {}
        }
    }

    fn link_one(&mut self, location: usize) {
        let info = &self.locations[location];
        let linking = &self.linking;
        let Some(of_node) = linking.by_node.get(&info.node) else { return };
        let process = self.owner_of(location);
        let open = of_node.devices.iter().filter(|device| linking.counters[**device].is_open_to(process));
        let devices = open.map(|device| Candidate {
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
        let index = LocationIndex(location as u32);
        let changed = |from: &Spends, to: &Spends| -> Vec<usize> {
            from.links.iter().map(|link| link.device).filter(|device| !to.is_from(*device)).collect()
        };
        let (gone, new) = (changed(&before, after), changed(after, &before));
        let is_gpu = self.locations[location].kind == LocationKind::Gpu;
        let has_begun = |device: &usize| {
            let device = &self.devices[*device];
            self.engine.has_begun(if is_gpu { device.kernels } else { device.ranks })
        };
        self.linking.moved |= gone.iter().chain(&new).any(has_begun) && self.engine.has_run(index);
        for device in gone {
            let device = &self.devices[device];
            for view in [Some(device.ranks), device.threads, Some(device.kernels)].into_iter().flatten() {
                self.engine.unbind(view, index);
            }
        }
        for device in new {
            self.bind(device, index);
        }
    }

    fn bind(&mut self, device: usize, location: LocationIndex) {
        let (device, engine) = (&mut self.devices[device], &mut self.engine);
        let info = &self.locations[location.0 as usize];
        if info.kind == LocationKind::Gpu {
            return engine.bind(device.kernels, location);
        }
        let evidence = &self.linking.evidence;
        let process = |location: LocationIndex| evidence[location.0 as usize].process;
        if info.main {
            engine.bind(device.ranks, location);
        } else if device.threads.is_none() {
            device.threads = Some(engine.fork(device.ranks, process));
        }
        // The threads of a process share what it gets.
        match (device.threads, process(location)) {
            (Some(threads), Some(process)) => engine.bind_member(threads, location, process),
            (Some(threads), None) => engine.bind(threads, location),
            (None, _) => {}
        }
    }

    /// How much CPU time the threads of a process have used.
    pub fn set_cpu_seconds(&mut self, process: u64, seconds: ThreadSeconds) {
        if let Some(process) = self.linking.by_process.get_mut(&process) {
            process.cpu = Some(seconds);
        }
    }

    /// Where main threads only wait while others work, a rank's joules tell nothing as long as they go to what its main thread
    /// is in.
    pub fn busy_threads(&self) -> Option<BusyThreads<'_>> {
        let mut first = None;
        let mut processes = 0;
        for process in self.linking.by_process.values() {
            let runs = |at: &&usize| self.engine.has_run(LocationIndex(**at as u32));
            let is_main = |at: &&usize| self.locations[**at].main;
            let Some(least) = process.threads.iter().filter(runs).find(|at| !is_main(at)) else { continue };
            let seconds = process.cpu.unwrap_or_else(|| {
                let sum = |main: bool| {
                    process
                        .threads
                        .iter()
                        .filter(|at| is_main(at) == main)
                        .map(|at| self.frame_seconds(*at))
                        .sum()
                };
                ThreadSeconds { main: sum(true), others: sum(false) }
            });
            if seconds.others > seconds.main {
                processes += 1;
                if first.is_none_or(|(before, _, _)| least < before) {
                    first = Some((least, seconds, process.cpu.is_some()));
                }
            }
        }
        first.map(|(location, seconds, is_cpu_time)| BusyThreads {
            group: &self.locations[*location].group,
            seconds,
            is_cpu_time,
            processes,
        })
    }

    /// How long a location had a frame open.
    fn frame_seconds(&self, location: usize) -> f64 {
        let mut sum = 0u64;
        let add = |_, _, ticks| sum = sum.saturating_add(ticks);
        self.engine.each_callpath(LocationIndex(location as u32), add);
        sum as f64 / self.ticks_per_second as f64
    }

    /// Whether tables are to begin with the division among all threads, which is not the settings' choice.
    pub fn threads_lead(&self) -> bool {
        self.config().attribution.locations == Locations::Main && self.busy_threads().is_some()
    }

    /// What is to be said of ranks with several threads that have frames.
    pub fn note_of_threads(&self) -> Option<String> {
        if self.config().attribution.locations == Locations::All
            || self.devices.iter().all(|d| d.threads.is_none())
        {
            return None;
        }
        let Some(busy) = self.busy_threads() else {
            let has_run = |at: usize| self.engine.has_run(LocationIndex(at as u32));
            let is_thread = |info: &LocationInfo| info.kind == LocationKind::CpuThread && !info.main;
            let threads =
                self.locations.iter().enumerate().filter(|(at, info)| is_thread(info) && has_run(*at));
            return (threads.count() > 0).then(|| {
                "joules of a rank go to what its main thread is in; shared among all of its threads they are in other_ranks of \
                 summary.json (AMPERE_LOCATIONS=all shows these)"
                    .to_owned()
            });
        };
        let more = match busy.processes {
            1 => String::new(),
            many => format!(", and so did those of {} more", many - 1),
        };
        Some(format!(
            "other threads of {} ran more than its main thread ({:.2} s and {:.2} s {}){more}: tables begin with joules that \
             all threads of a rank share; by main threads alone they are in views of summary.json and in /metrics, as the \
             settings say (locations)",
            busy.group,
            busy.seconds.others,
            busy.seconds.main,
            if busy.is_cpu_time { "of CPU time" } else { "in frames" },
        ))
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
