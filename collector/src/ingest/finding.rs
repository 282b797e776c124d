//! Processes are found by their logs, and what these define becomes known to the attributor.

use super::Ingest;
use crate::ingest::limits;
use crate::ingest::location::LiveLocation;
use crate::ingest::process::Process;
use crate::live_timeline::{LiveTimeline, RANKS};
use crate::node_watch::NodeWatch;
use crate::notes::Notes;
use crate::run_directory::leftover;
use crate::sampling::samples;
use ampere_model::LocationKind;
use ampere_ring::Session;
use ampere_ring::process::name_in_run;
use ampere_timeline::attributor::LocationInfo;
use ampere_trace::replay::Replay;
use ampere_trace::write::SampledFrames;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

impl Ingest {
    /// Reads logs if a process has said that there is something new. `true`: there was.
    pub fn read_logs(
        &mut self,
        session: &Session,
        node: Option<&NodeWatch>,
        replay: Option<&Replay>,
        notes: &mut Notes,
    ) -> bool {
        let generation = session.generation();
        if generation == self.generation {
            return false;
        }
        self.generation = generation;
        self.find_processes(session, node, replay, notes);
        self.find_commands(session, node);
        for process in &mut self.processes {
            process.read_log(&self.spool);
        }
        true
    }

    fn find_processes(
        &mut self,
        session: &Session,
        node: Option<&NodeWatch>,
        replay: Option<&Replay>,
        notes: &mut Notes,
    ) {
        let mut logs = leftover::logs_in(session.directory());
        if self.known_logs.is_empty() {
            self.add_lost_logs(&mut logs, notes);
        }
        for path in logs {
            if self.known_logs.contains(&path) {
                continue;
            }
            if self.known_logs.len() >= limits::MOST_PROCESSES {
                let most = limits::MOST_PROCESSES;
                return notes.add_loss(format!("more than {most} processes: the others are not measured"));
            }
            match Process::open(&path, &self.spool, replay) {
                Ok(Some(mut process)) => {
                    if let Some(node) =
                        name_in_run(&process.info.hostname, &self.node).filter(|_| replay.is_none())
                    {
                        process.info.hostname = node;
                    }
                    self.known_logs.insert(path);
                    if self.processes.len() >= limits::MOST_WITH_DESCRIPTORS {
                        process.release_descriptors();
                    }
                    node.iter().for_each(|node| node.add_process(process.info.pid, process.info.start_time));
                    self.processes.push(process);
                }
                Ok(None) => self.generation = u64::MAX, // look again
                Err(why) => {
                    self.known_logs.insert(path);
                    notes.add_loss(format!("{why}; what that process did is not measured"));
                }
            }
        }
    }

    fn find_commands(&mut self, session: &Session, node: Option<&NodeWatch>) {
        for command in session.commands() {
            if self.commands.len() >= limits::MOST_PROCESSES {
                return;
            }
            if self.commands.iter().any(|(known, _)| known.pid == command.pid) {
                continue;
            }
            let is_of_this_namespace = command.pid_namespace == ampere_ring::process::pid_namespace();
            match ampere_ring::process::start_time(command.pid).filter(|_| is_of_this_namespace) {
                Some(started) => {
                    let waiting = node.filter(|_| command.waits);
                    waiting.iter().for_each(|node| node.add_command(command.pid, started));
                    self.commands.push((command, started));
                }
                None => session.release_command(&command),
            }
        }
    }

    /// Logs that are gone and of which an earlier collector has kept copies: their records are there, too.
    fn add_lost_logs(&self, logs: &mut Vec<PathBuf>, notes: &mut Notes) {
        let is_lost = |name: &str| logs.iter().all(|log| log.file_stem() != Some(name.as_ref()));
        let unpacked = self.spool.store().unpack_logs(&self.spool.directory, is_lost);
        unpacked.err().iter().for_each(|why| notes.add_loss(format!("copies of logs cannot be read: {why}")));
        for copy in leftover::logs_in(&self.spool.directory) {
            if logs.iter().all(|log| log.file_name() != copy.file_name()) {
                notes.add_loss(format!("{}: the log itself was removed; its copy is read", copy.display()));
                logs.push(copy);
            }
        }
    }

    /// Logs of processes that are not among those that are measured.
    pub fn unknown_logs(&self, session: &Session) -> usize {
        let logs = leftover::logs_in(session.directory());
        logs.iter().filter(|log| !self.known_logs.contains(*log)).count()
    }

    /// Makes new regions, locations and ranks known to the attributor.
    pub fn introduce(
        &mut self,
        timeline: &mut LiveTimeline,
        samples: Option<&mut samples::Samples>,
        notes: &mut Notes,
    ) {
        self.find_ranks_of_sampled();
        for (number, process) in self.processes.iter_mut().enumerate() {
            process.define_new_regions(&mut timeline.attributor.regions);
            introduce_locations(process, number, timeline);
            notes.extend(process.losses.complaints.drain(..));
        }
        self.put_samples_on_recorded(timeline);
        if let Some(samples) = samples {
            self.queue_streams(timeline, samples);
        }
    }

    /// What is sampled of a rank, before it was one or in threads that record nothing, is the rank's.
    fn find_ranks_of_sampled(&mut self) {
        if self.recorded_processes().all(|process| process.rank.is_none()) {
            return;
        }
        for at in 0..self.processes.len() {
            if self.processes[at].is_sampled()
                && self.processes[at].sampled_rank.is_none()
                && let Some((_, recorded)) = self.recorded_process(at)
                && let Some(rank) = recorded.rank_number()
            {
                self.processes[at].sampled_rank = Some((rank, recorded.group()));
            }
        }
    }

    /// Where calls of a thread are recorded whose stack is sampled, the frames of the samples are put.
    fn put_samples_on_recorded(&mut self, timeline: &mut LiveTimeline) {
        if self.recorded_processes().next().is_none() {
            return;
        }
        for process in 0..self.processes.len() {
            for at in 0..self.processes[process].locations.len() {
                let location = &self.processes[process].locations[at];
                if !matches!(location.samples, SampledFrames::Alone) {
                    continue;
                }
                let Some((number, recorded)) = self.recorded(process, location.definition.thread) else {
                    continue;
                };
                let place = |of: &LiveLocation| Some((of.index?, of.queue?.1));
                let (Some(of_samples), Some(on)) = (place(location), place(recorded)) else { continue };
                timeline.mergers[RANKS].put_samples_on(of_samples, on, &mut timeline.attributor);
                let samples = SampledFrames::On(number, recorded.definition.id);
                self.processes[process].locations[at].samples = samples;
            }
        }
    }

    /// Where the calls of a sampled process are recorded: the last program that it was.
    fn recorded_process(&self, sampled: usize) -> Option<(usize, &Process)> {
        let of = &self.processes[sampled];
        let is_it = |(_, other): &(usize, &Process)| !other.is_sampled() && of.is_same_process(other);
        self.processes.iter().enumerate().rfind(is_it)
    }

    /// The location where calls of a thread of a sampled process are recorded.
    fn recorded(&self, sampled: usize, thread: u32) -> Option<(usize, &LiveLocation)> {
        let (number, process) = self.recorded_process(sampled)?;
        let is_its = |location: &&LiveLocation| {
            location.definition.kind == LocationKind::CpuThread && location.definition.thread == thread
        };
        Some((number, process.locations.iter().find(is_its)?))
    }

    /// A GPU stream gets a place in the merger of the device that it draws from. If these are several, their mergers become one: the
    /// stream's events can be handed over only once.
    pub fn queue_streams(&mut self, timeline: &mut LiveTimeline, samples: &mut samples::Samples) {
        for process in 0..self.processes.len() {
            for at in 0..self.processes[process].locations.len() {
                let location = &self.processes[process].locations[at];
                let is_new = location.queue.is_none() && location.definition.kind == LocationKind::Gpu;
                let Some(index) = location.index.filter(|_| is_new) else { continue };
                let devices = timeline.attributor.kernel_devices_of(index);
                let merger_of = |device: &usize| samples.kernel_queues[*device].map(|(merger, _)| merger);
                let mergers: BTreeSet<usize> = devices.iter().filter_map(merger_of).collect();
                let Some(first) = mergers.first().copied() else { continue };
                for other in mergers.into_iter().skip(1) {
                    let queues = self.locations_mut().map(|location| &mut location.queue);
                    let queues = queues.chain(&mut samples.kernel_queues).flatten();
                    timeline.join_mergers(first, other, queues);
                }
                let queue = timeline.mergers[first].add_location(index);
                self.processes[process].locations[at].queue = Some((first, queue));
            }
        }
    }
}

fn introduce_locations(process: &mut Process, number: usize, timeline: &mut LiveTimeline) {
    let attributor = &mut timeline.attributor;
    if process.take_new_queues() {
        let environment: Arc<[String]> = process.environment().into();
        let known = process.locations.iter().filter_map(|location| location.index);
        known.for_each(|index| attributor.set_environment(index, environment.clone()));
    }
    for at in 0..process.locations.len() {
        let definition = &process.locations[at].definition;
        let (group, node, rank) =
            (process.group_of(definition), process.node_of(definition), process.rank_number());
        let kind = definition.kind;
        let Some(index) = process.locations[at].index else {
            let is_sampled = process.is_sampled();
            let main = kind == LocationKind::CpuThread && (definition.id.0 == 0 || is_sampled);
            let name = definition.name.clone();
            let evidence = process.evidence(at, number as u64);
            let info = LocationInfo { node, group, name, kind, rank, main };
            let index = match is_sampled {
                true => attributor.add_samples(info, evidence),
                false => attributor.add_location_with(info, evidence),
            };
            let location = &mut process.locations[at];
            location.samples = if is_sampled { SampledFrames::Alone } else { SampledFrames::None };
            location.index = Some(index);
            if kind == LocationKind::CpuThread {
                location.queue = Some((RANKS, timeline.mergers[RANKS].add_location(index)));
            }
            continue;
        };
        let known = &attributor.locations[index.0 as usize];
        if let Some(rank) = rank.filter(|_| known.rank != rank || known.group != group) {
            attributor.set_rank(index, rank, group);
        }
    }
}
