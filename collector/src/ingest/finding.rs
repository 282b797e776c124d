//! Finds processes by their logs, and adds the definitions in these to the attributor.

use super::Ingest;
use crate::ingest::limits;
use crate::ingest::location::LiveLocation;
use crate::ingest::process::{Process, State};
use crate::live_timeline::LiveTimeline;
use crate::node_watch::NodeWatch;
use crate::notes::Notes;
use crate::run_directory::leftover;
use crate::stacks::is_log_of_samples;
use ampere_attribution::LocationIndex;
use ampere_model::{Location, LocationKind};
use ampere_ring::Session;
use ampere_ring::process::name_in_run;
use ampere_ring::session::Command;
use ampere_timeline::attributor::LocationInfo;
use ampere_trace::replay::{Replay, ReplayedSamples};
use ampere_trace::write::{CpuTimeOf, SampledFrames};
use std::path::PathBuf;
use std::sync::Arc;

/// Reads the logs if a process has announced new entries. Returns whether the logs were read.
pub fn read_logs(
    ingest: &mut Ingest,
    session: &Session,
    node: Option<&NodeWatch>,
    replay: Option<&Replay>,
    notes: &mut Notes,
) -> bool {
    let generation = session.generation();
    if generation == ingest.generation {
        return false;
    }
    ingest.generation = generation;
    find_processes(ingest, session, node, replay, notes);
    find_commands(ingest, session, node);
    for process in &mut ingest.processes {
        process.read_log(&ingest.spool);
    }
    true
}

fn find_processes(
    ingest: &mut Ingest,
    session: &Session,
    node: Option<&NodeWatch>,
    replay: Option<&Replay>,
    notes: &mut Notes,
) {
    let mut logs = leftover::logs_in(session.directory());
    if ingest.known_logs.is_empty() {
        add_lost_logs(ingest, &mut logs, notes);
    }
    for path in logs {
        if ingest.known_logs.contains(&path) {
            continue;
        }
        if ingest.known_logs.len() >= limits::PROCESSES_MAX {
            let most = limits::PROCESSES_MAX;
            return notes.add_loss(format!("more than {most} processes: the rest are not measured"));
        }
        match Process::open(&path, &ingest.spool, replay) {
            Ok(Some(mut process)) => {
                if let Some(node) =
                    name_in_run(&process.info.hostname, &ingest.node).filter(|_| replay.is_none())
                {
                    process.info.hostname = node;
                }
                ingest.known_logs.insert(path);
                if ingest.processes.len() >= limits::with_descriptors_max() {
                    process.release_descriptors();
                }
                if process.has_pid_here() {
                    node.iter().for_each(|node| node.add_process(process.info.pid, process.info.start_time));
                } else {
                    node.iter().for_each(|node| node.add_foreign(process.info.start_time));
                }
                ingest.add_process(process);
            }
            Ok(None) => ingest.generation = u64::MAX, // look again
            Err(why) if why.is_a_limit() => ingest.generation = u64::MAX,
            Err(why) => {
                ingest.known_logs.insert(path);
                notes.add_loss(format!("{why}; that process is not measured"));
            }
        }
    }
}

fn find_commands(ingest: &mut Ingest, session: &Session, node: Option<&NodeWatch>) {
    for command in session.commands() {
        if ingest.commands.len() >= limits::PROCESSES_MAX {
            return;
        }
        let is_it =
            |known: &Command| (known.pid, known.pid_namespace) == (command.pid, command.pid_namespace);
        if ingest.commands.iter().any(|(known, _)| is_it(known)) {
            continue;
        }
        let is_of_this_namespace = command.pid_namespace == ampere_ring::process::pid_namespace();
        match ampere_ring::process::start_time(command.pid).filter(|_| is_of_this_namespace) {
            Some(started) => {
                let waiting = node.filter(|_| command.waits);
                waiting.iter().for_each(|node| node.add_command(command.pid, started));
                ingest.commands.push((command, started));
            }
            None => session.release_command(&command),
        }
    }
}

/// Adds logs that were removed, but of which an earlier collector has kept copies. It has kept the records that belong to these
/// logs, too.
fn add_lost_logs(ingest: &Ingest, logs: &mut Vec<PathBuf>, notes: &mut Notes) {
    let is_lost = |name: &str| logs.iter().all(|log| log.file_stem() != Some(name.as_ref()));
    let unpacked = ingest.spool.store().unpack_logs(&ingest.spool.directory, is_lost);
    unpacked.err().iter().for_each(|why| notes.add_loss(format!("copies of logs cannot be read: {why}")));
    for copy in leftover::logs_in(&ingest.spool.directory) {
        if logs.iter().all(|log| log.file_name() != copy.file_name()) {
            notes.add_loss(format!("{}: the log itself was removed; its copy is read", copy.display()));
            logs.push(copy);
        }
    }
}

/// Returns the number of logs of processes that are not measured. Logs of samples are not counted: a killed collector may have
/// left one without any definition, and such a log does not belong to a process.
pub fn unknown_logs(ingest: &Ingest, session: &Session) -> usize {
    let logs = leftover::logs_in(session.directory());
    logs.iter().filter(|log| !ingest.known_logs.contains(*log) && !is_log_of_samples(log)).count()
}

/// Adds new regions, locations and ranks to the attributor.
pub fn add_new_definitions(ingest: &mut Ingest, timeline: &mut LiveTimeline, notes: &mut Notes) {
    find_ranks_of_sampled(ingest);
    for (number, process) in ingest.processes.iter_mut().enumerate() {
        process.define_new_regions(&mut timeline.pipeline.attributor.regions);
        introduce_locations(process, number, timeline);
        let is_loss = process.losses.is_read_in_part;
        let complaints = process.losses.complaints.drain(..);
        complaints.for_each(|line| if is_loss { notes.add_loss(line) } else { notes.add(line) });
    }
    put_samples_on_recorded(ingest, timeline);
    place_cpu_times(ingest, timeline);
    timeline.pipeline.place_streams();
    timeline.waits.look(ingest, &mut timeline.pipeline.attributor);
}

/// Finds the ranks of sampled processes, whose samples precede the rank's own records or come from threads that record nothing.
fn find_ranks_of_sampled(ingest: &mut Ingest) {
    if ingest.recorded_processes().all(|process| process.rank.is_none()) {
        return;
    }
    let mut have_changed = false;
    for process in &mut ingest.processes {
        have_changed |= std::mem::take(&mut process.has_new_rank);
    }
    for at in 0..ingest.processes.len() {
        if ingest.processes[at].is_sampled()
            && (have_changed || ingest.processes[at].sampled_rank.is_none())
            && let Some((_, recorded)) = recorded_process(ingest, at)
            && let Some(rank) = recorded.rank_number()
        {
            ingest.processes[at].sampled_rank = Some((rank, recorded.group()));
        }
    }
}

/// Puts the sampled frames of a thread on the location that records the thread's calls.
fn put_samples_on_recorded(ingest: &mut Ingest, timeline: &mut LiveTimeline) {
    if ingest.recorded_processes().next().is_none() {
        return;
    }
    for process in 0..ingest.processes.len() {
        for at in 0..ingest.processes[process].locations.len() {
            let location = &ingest.processes[process].locations[at];
            if !matches!(location.samples, SampledFrames::Alone) {
                continue;
            }
            let Some((number, recorded)) = recorded_by(ingest, process, &location.definition) else {
                continue;
            };
            let (Some(of_samples), Some(on)) = (location.index, recorded.index) else { continue };
            timeline.pipeline.put_samples_on(of_samples, on);
            let id = recorded.definition.id;
            let of = &mut ingest.processes[process];
            of.locations[at].samples = SampledFrames::On(number, id);
            // Until now, the thread's CPU time was on the location of its samples, because no other location was known.
            let is_cpu_time_of_samples = |location: &&mut LiveLocation| {
                location.definition.kind == LocationKind::CpuTime && location.index == Some(of_samples)
            };
            for cpu_time in of.locations.iter_mut().filter(is_cpu_time_of_samples) {
                (cpu_time.index, cpu_time.cpu_time_of) = (Some(on), Some(CpuTimeOf::Location(number, id)));
            }
            if let Some(total) = ingest.cpu_totals.remove(&of_samples) {
                ingest.cpu_totals.entry(on).or_insert(total);
            }
        }
    }
}

/// Finds out, for each location with CPU times, to which location they belong.
fn place_cpu_times(ingest: &mut Ingest, timeline: &mut LiveTimeline) {
    for process in 0..ingest.processes.len() {
        for at in 0..ingest.processes[process].locations.len() {
            let location = &ingest.processes[process].locations[at];
            let Location { kind, thread, .. } = location.definition;
            match (location.cpu_time_of, location.index) {
                _ if kind != LocationKind::CpuTime => {}
                (Some(CpuTimeOf::OtherThreads(of)), Some(index)) => {
                    set_rank(&ingest.processes[of], index, timeline);
                }
                (Some(_), _) => {}
                (None, _) => {
                    let Some((index, of)) = place_cpu_time(ingest, (process, at), thread, timeline) else {
                        ingest.generation = u64::MAX; // look again
                        continue;
                    };
                    let location = &mut ingest.processes[process].locations[at];
                    (location.index, location.cpu_time_of) = (Some(index), Some(of));
                }
            }
        }
    }
}

/// Finds the location that a location's CPU times belong to. If the thread has no location, a new one is added.
fn place_cpu_time(
    ingest: &Ingest,
    (process, at): (usize, usize),
    thread: u32,
    timeline: &mut LiveTimeline,
) -> Option<(LocationIndex, CpuTimeOf)> {
    let of = &ingest.processes[process];
    let here = of.location_of(thread).map(|location| (process, location));
    let on = recorded(ingest, process, thread).filter(|_| thread != 0);
    if let Some((number, on)) = on.or(here) {
        return Some((on.index?, CpuTimeOf::Location(number, on.definition.id)));
    }
    // The thread's location was defined earlier, in another log, which is about to be read.
    if thread != 0 && of.life.state == State::Running {
        return None;
    }
    let (number, whole) = recorded_process(ingest, process).unwrap_or((process, of));
    let info = LocationInfo {
        node: whole.info.hostname.clone(),
        group: whole.group(),
        name: of.locations[at].definition.name.clone(),
        kind: LocationKind::CpuThread,
        rank: whole.rank_number(),
        main: false,
    };
    let evidence = whole.evidence_of_thread(number as u64);
    let index = timeline.pipeline.attributor.add_location_with(info, evidence);
    timeline.pipeline.add_stream(index);
    Some((index, CpuTimeOf::OtherThreads(number)))
}

fn set_rank(process: &Process, index: LocationIndex, timeline: &mut LiveTimeline) {
    let (group, attributor) = (process.group(), &mut timeline.pipeline.attributor);
    let known = &attributor.locations[index.0 as usize];
    if let Some(rank) = process.rank_number().filter(|rank| known.rank != Some(*rank) || known.group != group)
    {
        attributor.set_rank(index, rank, group);
    }
}

/// Returns the process that records the calls of a sampled process. If the sampled process has executed several programs, the
/// process of the last program is returned.
fn recorded_process(ingest: &Ingest, sampled: usize) -> Option<(usize, &Process)> {
    let number = *ingest.last_programs.get(&ingest.processes[sampled].identity())?;
    Some((number, &ingest.processes[number]))
}

/// Returns the location that records the calls of a thread of a sampled process.
fn recorded(ingest: &Ingest, sampled: usize, thread: u32) -> Option<(usize, &LiveLocation)> {
    let (number, process) = recorded_process(ingest, sampled)?;
    Some((number, process.location_of(thread)?))
}

/// Returns the location that records the calls of a sampled thread. `samples` is the location of the thread's samples. In a
/// replay, the trace names the recording location.
fn recorded_by<'a>(
    ingest: &'a Ingest,
    number: usize,
    samples: &Location,
) -> Option<(usize, &'a LiveLocation)> {
    let process = &ingest.processes[number];
    let Some(played) = process.replayed_location(samples.id) else {
        return recorded(ingest, number, samples.thread);
    };
    let ReplayedSamples::On(on) = played.samples else { return None };
    let plays = |location: &&LiveLocation| {
        process.replayed_location(location.definition.id).is_some_and(|of| of.reference == on)
    };
    Some((number, process.locations.iter().find(plays)?))
}

fn introduce_locations(process: &mut Process, number: usize, timeline: &mut LiveTimeline) {
    if process.take_new_queues() {
        let attributor = &mut timeline.pipeline.attributor;
        let environment: Arc<[String]> = process.environment().into();
        let own = process.locations.iter().filter(|location| !location.is_cpu_time_of_another());
        let known = own.filter_map(|location| location.index);
        known.for_each(|index| attributor.set_environment(index, environment.clone()));
    }
    for at in 0..process.locations.len() {
        let definition = &process.locations[at].definition;
        let (group, node, rank) =
            (process.group_of(definition), process.node_of(definition), process.rank_number());
        let kind = definition.kind;
        if kind == LocationKind::CpuTime {
            continue;
        }
        let Some(index) = process.locations[at].index else {
            let is_sampled = process.has_samples_on(definition.id);
            let main = kind == LocationKind::CpuThread && (definition.id.0 == 0 || is_sampled);
            let name = definition.name.clone();
            let evidence = process.evidence(at, number as u64);
            let info = LocationInfo { node, group, name, kind, rank, main };
            let attributor = &mut timeline.pipeline.attributor;
            let index = match is_sampled {
                true => attributor.add_samples(info, evidence),
                false => attributor.add_location_with(info, evidence),
            };
            let location = &mut process.locations[at];
            location.samples = if is_sampled { SampledFrames::Alone } else { SampledFrames::None };
            location.index = Some(index);
            timeline.pipeline.add_stream(index);
            continue;
        };
        let attributor = &mut timeline.pipeline.attributor;
        let known = &attributor.locations[index.0 as usize];
        if let Some(rank) = rank.filter(|_| known.rank != rank || known.group != group) {
            attributor.set_rank(index, rank, group);
        }
    }
}
