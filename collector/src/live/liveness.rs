//! Checks which processes are running, learns what can be known only while they run, and handles those that have ended.

use super::LiveRun;
use crate::ingest::location::Place;
use crate::ingest::process::{Process, State};
use crate::ingest::{process_ends, reading_again};
use crate::node_watch::NodeWatch;
use crate::options::{LIVENESS_PERIOD, Mode};
use crate::sampling::sampler::Sampler;
use ampere_counters::UsedGpus;
use std::time::Instant;

/// Checks disks and processes, if that is due.
pub(super) fn check(run: &mut LiveRun) {
    if Instant::now() < run.next_liveness {
        return;
    }
    run.next_liveness = Instant::now() + LIVENESS_PERIOD;
    look_at_disks(run);
    for at in 0..run.ingest.processes.len() {
        if run.ingest.processes[at].life.state == State::Running
            && process_ends::has_ended_silently(&run.ingest, at)
        {
            // The records that it wrote before it ended are in its log and its rings.
            run.ingest.processes[at].read_log(&run.ingest.spool);
            run.add_new_definitions();
            if run.ingest.processes[at].life.state == State::Running {
                process_ends::mark_dead(&mut run.ingest, at);
            }
        }
        if run.ingest.processes[at].life.state != State::Running {
            close_locations(run, at);
            process_ends::check_unmeasured_successor(&mut run.ingest, at);
        } else {
            look_at_threads(run, at);
            run.ingest.processes[at].look_at_unsampled_threads();
            look_at_gpus(run, at);
            let now = run.timeline.as_ref().map(|timeline| timeline.now(&run.session));
            run.ingest.processes[at].life.seen_alive = now;
        }
    }
}

fn look_at_disks(run: &mut LiveRun) {
    let directory = run.options.manifest.records.as_deref();
    run.ingest.leave_full_directory(directory, &mut run.notes);
    if let Some(left) = run.ingest.shortage() {
        run.spool_taken();
        let samples = run.sampling.samples.as_mut().and_then(|samples| samples.reader.spool.as_mut());
        run.ingest.end_trace(samples, &run.options.output, left, &mut run.notes);
        // The notes already report an error of spooling.
        run.timeline.iter_mut().for_each(|timeline| _ = timeline.pipeline.attributor.end_recording());
    }
}

fn look_at_threads(run: &mut LiveRun, process: usize) {
    let of = &mut run.ingest.processes[process];
    of.look_at_threads();
    let (Some(timeline), Some(seconds)) = (&mut run.timeline, of.threads.seconds) else { return };
    timeline.pipeline.attributor.set_cpu_seconds(process as u64, seconds);
    for location in of.locations.iter().filter(|location| !location.is_cpu_time_of_another()) {
        if let Some(index) = location.index {
            let known = &mut timeline.pipeline.attributor.locations[index.0 as usize];
            known.name.clone_from(&location.definition.name);
        }
    }
}

/// Finds out which GPUs a process uses. The driver forgets that when the process ends, so the manifest keeps it for the next
/// collector.
fn look_at_gpus(run: &mut LiveRun, process: usize) {
    let (Some(node), Some(timeline)) = (&run.node, &run.timeline) else { return };
    let process = &mut run.ingest.processes[process];
    if !timeline.pipeline.attributor.distinguishes_gpus() || !process.count_queue_check() {
        return;
    }
    let used = gpus_of(process, node, run.sampling.sampler.as_ref());
    if process.find_gpus(used, &mut run.options.manifest.progress.queues) {
        run.options.save_manifest(&run.ingest.spool, &mut run.notes);
        run.add_new_definitions();
    }
}

/// Ends the open frames on the locations of a process that has ended, or that counts as ended.
pub(crate) fn close_locations(run: &mut LiveRun, process: usize) {
    while run.clock_is_certain() && run.ingest.processes[process].locations.iter().any(|l| !l.closed) {
        // Locations that the attributor does not know are not read.
        run.add_new_definitions();
        let known = run.ingest.processes[process].locations.len();
        (0..known).for_each(|location| drain_to_its_end(run, Place { process, location }));
        run.spool_taken();
        let Some(timeline) = &mut run.timeline else { return };
        let end = process_ends::end_of(&run.ingest, process, timeline, timeline.now(&run.session));
        let keeps_rings = run.options.mode != Mode::Collector;
        for location in 0..known {
            let rings = (run.session.directory(), keeps_rings);
            let at = Place { process, location };
            process_ends::close_location(&mut run.ingest, at, end, timeline, rings);
        }
        // The log may have been read again in the meantime, and have defined another location.
        if run.ingest.processes[process].locations.len() == known {
            return;
        }
    }
}

/// Reads only the records that are in a ring now, because otherwise a process that is still running would keep the run from
/// ending.
fn drain_to_its_end(run: &mut LiveRun, at: Place) {
    let live = &mut run.ingest[at];
    if live.closed {
        return;
    }
    let end = live.reader.ring.position() + live.waiting() as u64;
    loop {
        let before = run.ingest[at].reader.ring.position();
        let Some(timeline) = run.timeline.as_mut().filter(|_| before < end) else { return };
        let now = timeline.now(&run.session);
        run.ingest.drain_location(at, timeline, now, &mut run.notes);
        if run.ingest[at].reader.ring.position() == before {
            return;
        }
        // The drained events wait in the pipeline, and are handed over as far as the other rings have been read: the watermark
        // stays where it is.
        run.advance_to(0);
    }
}

/// Writes all records of processes that ended while there was no collector to disk, where they are read in time order with
/// the others. The open frames of a process that was killed end when it was last known to run.
pub(crate) fn take_over_ended_processes(run: &mut LiveRun) {
    if !run.clock_is_certain() || !reading_again::begins_to_take_over(&mut run.ingest) {
        return;
    }
    for at in 0..run.ingest.processes.len() {
        let process = &run.ingest.processes[at];
        let is_alive = run.options.mode == Mode::Collector && process.is_alive();
        if process.life.state == State::Running && is_alive {
            continue;
        }
        run.ingest.processes[at].read_log(&run.ingest.spool);
        run.add_new_definitions();
        if run.ingest.processes[at].life.state == State::Running {
            process_ends::mark_dead(&mut run.ingest, at);
        }
        reading_again::spool_all(&mut run.ingest, at);
    }
}

/// Returns the GPUs that a process uses now, as their drivers report.
pub(super) fn gpus_of(process: &Process, node: &NodeWatch, sampler: Option<&Sampler>) -> UsedGpus {
    let pid = process.info.pid;
    let of_libraries = sampler.map(|sampler| sampler.gpus_of(pid)).unwrap_or_default();
    node.gpus_of(pid).and(&of_libraries)
}
