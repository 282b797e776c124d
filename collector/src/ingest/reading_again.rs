//! Lets a collector take over from one that was killed.
//!
//! A run's figures depend only on its records, and none of them is lost. The records that the killed collector had taken out of
//! the rings are in the spool, and the others are still in the rings. A collector that takes over reads the spool again, through
//! the same decoders and the same pipeline into the same engine, and continues with the rings where they were left.
//!
//! The program does not wait for that. From the first round on, new records are spooled as usual and decoded after the old ones.
//! Until all are decoded, nothing is published, so that no counter in /metrics ever decreases.

use super::{Ingest, process_ends};
use crate::ingest::location::{LiveLocation, Place};
use crate::ingest::process::{Process, State};
use crate::live_timeline::LiveTimeline;
use crate::notes::Notes;
use crate::options::{BATCH, Mode};
use crate::sampling::samples::Samples;
use ampere_model::{LocationKind, Timestamp};
use ampere_ring::decoder::Decoder;
use ampere_ring::{Kind, Record};
use ampere_trace::write::CpuTimeOf;
use std::path::Path;
use std::time::Duration;

/// A killed collector has written all CPU times that were older than this when it was killed, even if it was slow.
const UNWRITTEN_MAX: Duration = Duration::from_millis(500);
/// If the last CPU time of a thread is older than that of other threads by at least this time, the thread was on no CPU when the
/// CPU times were last written.
const PAUSED_MIN: Duration = Duration::from_millis(2);

/// A stream of records that is read again.
#[derive(Clone, Copy)]
pub(crate) enum Reread {
    Location(Place),
    Samples,
}

/// Returns `true` at the first call, because processes may have ended while there was no collector.
pub fn begins_to_take_over(ingest: &mut Ingest) -> bool {
    !std::mem::replace(&mut ingest.has_taken_over, true)
}

/// Writes all records of a process that has ended to disk, to be read from there in time order with the others.
pub fn spool_all(ingest: &mut Ingest, process: usize) {
    for location in &mut ingest.processes[process].locations {
        if location.reader.spool.is_some() {
            location.reader.catching_up.get_or_insert(0);
            while location.drain(&mut ingest.batch, BATCH).unwrap_or(0) > 0 {}
        }
    }
}

/// Returns the streams that are to be read again, with the times up to which they have been read.
fn again(ingest: &Ingest, samples: Option<&Samples>) -> impl Iterator<Item = (Reread, Timestamp)> {
    let locations = ingest.processes.iter().enumerate().flat_map(|(process, of)| {
        let again = move |(at, location): (usize, &LiveLocation)| {
            location.index?; // the attributor must know the location first
            let reached = location.reader.decoder.last_time();
            location.reader.catching_up.map(|_| (Reread::Location(Place { process, location: at }), reached))
        };
        of.locations.iter().enumerate().filter_map(again)
    });
    let samples = samples.filter(|samples| samples.reader.catching_up.is_some());
    locations.chain(samples.map(|samples| (Reread::Samples, samples.reader.decoder.last_time())))
}

/// Returns the stream that is furthest behind, so that few events wait in the pipeline.
pub fn furthest_behind(ingest: &Ingest, samples: Option<&Samples>) -> Option<(Reread, Timestamp)> {
    again(ingest, samples).min_by_key(|(_, reached)| *reached)
}

/// Decodes the next batch of a location's records that an earlier collector has read.
pub fn read_again(
    ingest: &mut Ingest,
    at: Place,
    (mode, session): (Mode, &Path),
    predecessors_last: Timestamp,
    timeline: &mut LiveTimeline,
    notes: &mut Notes,
) {
    let mut batch = std::mem::take(&mut ingest.batch);
    if ingest[at].read_again(&mut batch, BATCH) {
        ingest.decode(at, &batch, timeline);
        skip_unspooled_records(ingest, at, timeline, notes);
    } else {
        let (group, name) = (ingest.processes[at.process].group(), &ingest[at].definition.name);
        notes.add_loss(format!(
            "the records of {group}, {name}, on disk cannot be read: its figures are incomplete"
        ));
    }
    ingest.batch = batch;
    end_if_over(ingest, at, (mode, session), predecessors_last, timeline);
}

/// Skips the records that an earlier collector has read when the disk was full. The open frames end with the records before them,
/// and the next records come from the ring.
fn skip_unspooled_records(ingest: &mut Ingest, at: Place, timeline: &mut LiveTimeline, notes: &mut Notes) {
    let live = &mut ingest[at];
    if live.reader.catching_up.is_some() {
        return;
    }
    let (Some(known), read) = (live.left.known_until.take(), live.reader.ring.position()) else { return };
    let (name, end) = (live.definition.name.clone(), live.reader.decoder.last_time());
    let group = ingest.processes[at.process].group();
    ingest.end_frames(at, end, timeline);
    notes.add_loss(format!(
        "{group}, {name}: {} of {read} records are not on disk: they are lost",
        read - known
    ));
}

/// Ends a location whose records have all been read again, if no more are expected. The locations of a process that has ended
/// are ended together, because only one of them contains the time of the process' end.
fn end_if_over(
    ingest: &mut Ingest,
    at: Place,
    (mode, session): (Mode, &Path),
    predecessors_last: Timestamp,
    timeline: &mut LiveTimeline,
) {
    let Place { process, location } = at;
    let of = &mut ingest.processes[process];
    let is_running = of.life.state == State::Running;
    let awaited = if is_running { location..location + 1 } else { 0..of.locations.len() };
    // A process that has just ended properly may have written records that are not on disk.
    let is_more = |live: &mut LiveLocation| live.reader.catching_up.is_some() || live.waiting() > 0;
    if of.locations[awaited.clone()].iter_mut().any(is_more) {
        return;
    }
    if is_running && of.locations[location].may_still_write() && mode == Mode::Collector && of.is_alive() {
        // A collector that was about to end the run has closed the location, but the process is still running.
        of.locations[location].reopen();
        return;
    }
    let end_of_process =
        (!is_running).then(|| of.life.program_end.unwrap_or_else(|| last_known(of, mode, predecessors_last)));
    if let Some(end) = end_of_process.filter(|_| mode != Mode::Collector) {
        assume_running(ingest, process, end, timeline);
    }
    for location in awaited {
        let at = Place { process, location };
        let end = ingest[at].left.ended_at.or(end_of_process);
        if let Some(end) = end {
            process_ends::close_location(ingest, at, end, timeline, (session, mode != Mode::Collector));
        }
    }
}

/// Adds the CPU time that a killed collector has not written, if no other one has replaced it. Threads that were in functions,
/// and on a CPU when CPU times were last written, are assumed to have run until the end.
fn assume_running(ingest: &mut Ingest, process: usize, end: Timestamp, timeline: &mut LiveTimeline) {
    if !ingest.processes[process].lost_its_sampler() {
        return;
    }
    let all = ingest.processes.iter().flat_map(|process| &process.locations);
    let cpu_times = all.filter(|location| location.definition.kind == LocationKind::CpuTime);
    let recorded = |of: &LiveLocation| of.left.cpu_time_at.unwrap_or(of.reader.decoder.last_time());
    let written = cpu_times.map(recorded).max().unwrap_or(0);
    for location in 0..ingest.processes[process].locations.len() {
        let at = Place { process, location };
        let Some(CpuTimeOf::Location(of, id)) = ingest[at].cpu_time_of else { continue };
        // If the process has already been ended, its open functions have been ended, too.
        let is_in_function = |decoder: &Decoder| decoder.is_open() || decoder.last_time() >= end;
        let mut locations = ingest.processes[of].locations.iter();
        let is_in_function = locations.any(|of| of.definition.id == id && is_in_function(&of.reader.decoder));
        let live = &mut ingest[at];
        let last = live.reader.decoder.last_time();
        let (missing, paused) = (end.saturating_sub(last), written.saturating_sub(last));
        let is_running = timeline.clock.seconds(missing) < UNWRITTEN_MAX.as_secs_f64()
            && timeline.clock.seconds(paused) < PAUSED_MIN.as_secs_f64();
        if !is_in_function || !is_running || missing == 0 || live.left.ended_at.is_some() {
            continue;
        }
        live.left.cpu_time_at = Some(last);
        // This comes after all records of the ring.
        ingest.spool_location(at);
        let live = &mut ingest[at];
        let used = live.cpu_time.ns() + (timeline.clock.seconds(missing) * 1e9) as u64;
        let records = [Record::new(Kind::CpuTime, end, 0), Record::new(Kind::Value, used, 0)];
        if let Some(spool) = &mut live.reader.spool {
            let _ = records.iter().try_for_each(|record| spool.append(*record));
        }
        ingest.decode(at, &records, timeline);
    }
}

/// Returns the time up to which a killed collector has recorded what a process did. If it has recorded the CPU time of sampled
/// threads, this collector records the CPU time since then, in unknown functions.
fn last_known(process: &Process, mode: Mode, predecessors_last: Timestamp) -> Timestamp {
    let is_continued = process.lost_its_sampler() && mode == Mode::Collector;
    let cpu_times =
        process.locations.iter().filter(|location| location.definition.kind == LocationKind::CpuTime);
    let last = cpu_times.map(|location| location.reader.decoder.last_time()).max();
    last.filter(|_| is_continued).unwrap_or(predecessors_last)
}

/// Whether an earlier collector has read records that were not kept. Only the first call returns `true`.
pub fn take_lost_beginnings(ingest: &mut Ingest) -> bool {
    let mut is_lost = false;
    for location in ingest.locations_mut() {
        is_lost |= std::mem::take(&mut location.left.beginning_is_lost);
    }
    is_lost
}
