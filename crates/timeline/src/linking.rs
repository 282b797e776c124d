//! Keeps track of which location draws from which device, as both become known: the assignments of [`topology`](crate::topology)
//! become consumers of the engine's views.
//!
//! Offline, a device becomes known with its first sample; live, ranks and streams appear while others already run. If a link
//! changes after joules were attributed by it, the figures differ from those of a run in which it was known from the start.
//! [`Links`] records that, and the figures are then computed again from the trace, with everything known.

use crate::device::Device;
use crate::topology::{
    Assignment, Candidate, CountedPart, CounterEvidence, Evidence, LocalRank, Node, local_ranks,
};
use ampere_attribution::{Engine, LocationIndex};
use ampere_model::LocationKind;
use ampere_settings::Locations;
use std::collections::HashMap;
use std::sync::Arc;

#[derive(Clone, Debug)]
pub struct LocationInfo {
    pub node: String,
    /// OTF2's location group: "MPI Rank 0", "HIP Context 0".
    pub group: String,
    /// The location's own name, such as "Master thread".
    pub name: String,
    /// Whether the location is a thread, a GPU stream, a recorder of metrics, or the CPU time of a thread.
    pub kind: LocationKind,
    /// The rank of the process that it belongs to, if it is known.
    pub rank: Option<u32>,
    /// Whether this is the process' main CPU location, whose frames are the rank's.
    pub main: bool,
}

/// The time for which a process' main thread ran, and the sum for all of its other threads.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ThreadSeconds {
    /// The seconds of the main thread.
    pub main: f64,
    /// The sum over the other threads.
    pub others: f64,
}

/// What links act on, borrowed from the [`Attributor`](crate::attributor::Attributor): the locations and devices that they
/// connect, and the engine in which they take effect.
pub(crate) struct Run<'a> {
    pub engine: &'a mut Engine,
    pub locations: &'a [LocationInfo],
    pub devices: &'a mut [Device],
    /// Whether ranks may be assumed to use the node's GPUs in turn.
    pub by_local_rank: bool,
}

/// The evidence about all locations and devices, and the assignment that follows from it.
#[derive(Default)]
pub(crate) struct Links {
    /// One entry for each location.
    evidence: Vec<Evidence>,
    assignments: Vec<Assignment>,
    /// One entry for each device.
    parts: Vec<CountedPart>,
    processes: HashMap<u64, Process>,
    nodes: HashMap<String, NodeMembers>,
    changed_late: bool,
}

#[derive(Default)]
pub(crate) struct Process {
    pub threads: Vec<usize>,
    streams: Vec<usize>,
    /// CPU time as the operating system counts it, if it is known.
    pub cpu: Option<ThreadSeconds>,
}

/// Makes a thread a worker of its process' main thread for a device: its CPU time counts for the frames of the main thread. If
/// `location` is the main thread, all other threads become its workers.
fn add_workers(run: &mut Run, process: &Process, device: usize, location: LocationIndex) {
    let is_main = |thread: usize| run.locations[thread].main;
    let Some(main) = process.threads.iter().copied().find(|thread| is_main(*thread)) else { return };
    let others = process.threads.iter().filter(|thread| !is_main(**thread));
    let views = run.devices[device].views;
    for worker in others.filter(|worker| is_main(location.0 as usize) || **worker == location.0 as usize) {
        for view in [Some(views.ranks), views.threads].into_iter().flatten() {
            run.engine.add_worker(view, LocationIndex(*worker as u32), LocationIndex(main as u32));
        }
    }
}

#[derive(Default)]
struct NodeMembers {
    threads: Vec<usize>,
    streams: Vec<usize>,
    devices: Vec<usize>,
}

impl Links {
    /// Adds the evidence about the location that was added to the run last.
    pub fn add_location(&mut self, run: &mut Run, evidence: Evidence) {
        let location = self.evidence.len();
        let info = &run.locations[location];
        let node = self.nodes.entry(info.node.clone()).or_default();
        let process = evidence.process.map(|process| self.processes.entry(process).or_default());
        match info.kind {
            LocationKind::Gpu => {
                node.streams.push(location);
                process.into_iter().for_each(|process| process.streams.push(location));
            }
            LocationKind::CpuThread => {
                node.threads.push(location);
                process.into_iter().for_each(|process| process.threads.push(location));
            }
            LocationKind::Metric | LocationKind::CpuTime => {}
        }
        run.engine.set_process(LocationIndex(location as u32), evidence.process);
        self.evidence.push(evidence);
        self.assignments.push(Assignment::default());
        self.update_location(run, location);
    }

    /// Adds the device that was added to the run last. `part` is the part of the machine that it counts.
    pub fn add_device(&mut self, run: &mut Run, part: CountedPart) {
        let device = self.parts.len();
        self.parts.push(part);
        let node = run.devices[device].info.node.clone();
        self.nodes.entry(node.clone()).or_default().devices.push(device);
        self.update_node(run, &node);
    }

    /// Applies `update` to the evidence of each GPU's counter, and finds the links again on the nodes where it returns that
    /// something has changed.
    pub fn learn(&mut self, run: &mut Run, update: impl Fn(&Device, &mut CounterEvidence) -> bool) {
        let mut nodes = Vec::new();
        for (device, part) in run.devices.iter().zip(&mut self.parts) {
            if part.is_gpu() && update(device, &mut part.evidence) {
                nodes.push(device.info.node.clone());
            }
        }
        // If a node is still listed twice, its links are found twice, which changes nothing.
        nodes.dedup();
        nodes.iter().for_each(|node| self.update_node(run, node));
    }

    fn update_node(&mut self, run: &mut Run, node: &str) {
        let Some(members) = self.nodes.get(node) else { return };
        // Streams come first, because the links of a process depend on those of its streams.
        let all: Vec<usize> = members.streams.iter().chain(&members.threads).copied().collect();
        all.into_iter().for_each(|location| self.update_one(run, location));
    }

    /// Updates the links of a location that is new, or whose rank or variables have changed, and those of other locations that
    /// depend on it.
    pub fn update_location(&mut self, run: &mut Run, location: usize) {
        let info = &run.locations[location];
        match info.kind {
            LocationKind::Gpu => {
                self.update_one(run, location);
                let process = self.evidence[location].process;
                let threads = process.map(|process| self.processes[&process].threads.clone());
                threads.into_iter().flatten().for_each(|thread| self.update_one(run, thread));
            }
            // The other ranks' links depend on the number of ranks on the node.
            LocationKind::CpuThread if run.by_local_rank && info.main => self.update_node(run, &info.node),
            LocationKind::CpuThread => {
                // If a `[[device]]` lists this thread's rank, it may decide the links of the process' streams. They come first,
                // because the thread's links depend on theirs.
                let process = self.evidence[location].process;
                let streams = process.map(|process| self.processes[&process].streams.clone());
                streams.into_iter().flatten().for_each(|stream| self.update_one(run, stream));
                self.update_one(run, location);
            }
            LocationKind::Metric | LocationKind::CpuTime => {}
        }
    }

    /// Sets the variables of a location's process, because more of them are known now.
    pub fn set_environment(&mut self, run: &mut Run, location: usize, environment: Arc<[String]>) {
        self.evidence[location].environment = environment;
        self.update_location(run, location);
    }

    fn update_one(&mut self, run: &mut Run, location: usize) {
        let info = &run.locations[location];
        let Some(members) = self.nodes.get(&info.node) else { return };
        let owner = match self.evidence[location].owner.as_str() {
            "" => self.owner_of(run.locations, location),
            owner => owner,
        };
        let open = members.devices.iter().filter(|device| self.parts[**device].is_open_to(owner));
        let candidates = open.map(|device| Candidate {
            index: *device,
            part: &self.parts[*device],
            setting: run.devices[*device].setting(),
        });
        let node = Node(candidates.collect());
        let evidence = &self.evidence[location];
        let assignment = if info.kind == LocationKind::Gpu {
            let threads = evidence.process.map_or(&[][..], |process| &self.processes[&process].threads);
            let rank = threads.iter().find_map(|thread| run.locations[*thread].rank);
            node.of_stream(&info.name, rank, evidence)
        } else {
            let streams = evidence.process.map_or(&[][..], |process| &self.processes[&process].streams);
            let streams: Vec<(&str, &Assignment)> = streams
                .iter()
                .filter(|stream| run.locations[**stream].node == info.node)
                .map(|stream| (run.locations[*stream].name.as_str(), &self.assignments[*stream]))
                .collect();
            let local = run.by_local_rank.then(|| self.local_rank(run, members, location)).flatten();
            node.of_rank(info.rank, evidence, &streams, local.as_ref())
        };
        self.apply(run, location, assignment);
    }

    fn local_rank(&self, run: &Run, members: &NodeMembers, location: usize) -> Option<LocalRank> {
        // Each process has one main thread.
        let mains = members.threads.iter().filter(|thread| run.locations[**thread].main);
        let all: Vec<&Evidence> = mains.map(|main| &self.evidence[*main]).collect();
        let own = self.evidence[location].process?;
        let at = all.iter().position(|evidence| evidence.process == Some(own))?;
        let environments: Vec<&[String]> = all.iter().map(|evidence| &*evidence.environment).collect();
        local_ranks(&environments).map(|mut ranks| ranks.swap_remove(at))
    }

    fn apply(&mut self, run: &mut Run, location: usize, assignment: Assignment) {
        let before = std::mem::replace(&mut self.assignments[location], assignment);
        let after = &self.assignments[location];
        let index = LocationIndex(location as u32);
        let only_in = |one: &Assignment, other: &Assignment| -> Vec<usize> {
            one.links.iter().map(|link| link.device).filter(|device| !other.draws_from(*device)).collect()
        };
        let (gone, new) = (only_in(&before, after), only_in(after, &before));
        let is_gpu = run.locations[location].kind == LocationKind::Gpu;
        let has_begun = |device: &usize| {
            let views = run.devices[*device].views;
            run.engine.has_begun(if is_gpu { views.kernels } else { views.ranks })
        };
        self.changed_late |= gone.iter().chain(&new).any(has_begun) && run.engine.has_run(index);
        for device in gone {
            let views = run.devices[device].views;
            for view in [Some(views.ranks), views.threads, Some(views.kernels)].into_iter().flatten() {
                run.engine.unbind(view, index);
            }
            if is_gpu && !run.engine.has_begun(views.kernels) && !self.has_streams(run, device) {
                run.engine.forget_streams(views.ranks, views.kernels);
            }
        }
        for device in new {
            self.changed_late |= !self.bind(run, device, index);
        }
    }

    /// Makes a location a consumer of a device. Returns `false` if it is too late: the device has had samples, whose joules would
    /// have been divided by kernels if this consumer had been known.
    fn bind(&self, run: &mut Run, device: usize, location: LocationIndex) -> bool {
        let (views, engine) = (&mut run.devices[device].views, &mut *run.engine);
        let info = &run.locations[location.0 as usize];
        let has_kernels = self.has_kernels_on(device, location);
        let mut is_in_time = !has_kernels || engine.know_kernels(views.ranks, views.kernels);
        if info.kind == LocationKind::Gpu {
            is_in_time &= engine.know_streams(views.kernels);
            engine.bind(views.kernels, location);
            return is_in_time;
        }
        if info.main {
            engine.bind(views.ranks, location);
        } else if views.threads.is_none() {
            views.threads = Some(engine.fork(views.ranks, |location| self.process_of(location)));
            if views.locations == Locations::All {
                engine.record_twin_instead(views.ranks);
            }
        }
        // The threads of a process share the joules that the process gets.
        let process = self.process_of(location);
        match (views.threads, process) {
            (Some(threads), Some(process)) => engine.bind_member(threads, location, process),
            (Some(threads), None) => engine.bind(threads, location),
            (None, _) => {}
        }
        if let Some(process) = process.and_then(|process| self.processes.get(&process)) {
            add_workers(run, process, device, location);
        }
        is_in_time
    }

    fn has_streams(&self, run: &Run, device: usize) -> bool {
        let locations = run.locations.iter().zip(&self.assignments);
        locations
            .filter(|(info, _)| info.kind == LocationKind::Gpu)
            .any(|(_, assignment)| assignment.draws_from(device))
    }

    /// Whether a location's process has threads, which makes it a process of the run, and a stream that draws from the device.
    fn has_kernels_on(&self, device: usize, location: LocationIndex) -> bool {
        let process = self.process_of(location).and_then(|process| self.processes.get(&process));
        process.is_some_and(|process| {
            let draws_from = |stream: &usize| self.assignments[*stream].draws_from(device);
            !process.threads.is_empty() && process.streams.iter().any(draws_from)
        })
    }

    pub fn set_cpu_seconds(&mut self, process: u64, seconds: ThreadSeconds) {
        if let Some(process) = self.processes.get_mut(&process) {
            process.cpu = Some(seconds);
        }
    }

    pub fn processes(&self) -> impl Iterator<Item = &Process> {
        self.processes.values()
    }

    /// Returns the process that a location belongs to, if it is known.
    pub fn process_of(&self, location: LocationIndex) -> Option<u64> {
        self.evidence[location.0 as usize].process
    }

    pub fn changed_late(&self) -> bool {
        self.changed_late
    }

    pub fn assignment(&self, location: usize) -> &Assignment {
        &self.assignments[location]
    }

    pub fn counted_part(&self, device: usize) -> &CountedPart {
        &self.parts[device]
    }

    /// Returns the location group of the process that a location belongs to; the location's own if it belongs to none.
    pub fn owner_of<'a>(&self, locations: &'a [LocationInfo], location: usize) -> &'a str {
        let process = self.evidence[location].process;
        let thread = process.and_then(|process| self.processes.get(&process)?.threads.first());
        &locations[*thread.unwrap_or(&location)].group
    }
}
