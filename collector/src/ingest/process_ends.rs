//! Handles processes that have ended or were killed: finds the time of the end ([`end_of`]), and ends their open frames after
//! their rings have been read to the end.

use super::{Ingest, finding};
use crate::ingest::location::{LiveLocation, Place};
use crate::ingest::process::{Process, State};
use crate::live_timeline::LiveTimeline;
use crate::notes::Notes;
use ampere_model::Timestamp;
use ampere_ring::Session;
use ampere_trace::spool::{Retired, Spool};
use std::path::Path;

/// Marks a process that has not ended its measurement as killed, or as replaced by another program (exec).
pub fn mark_dead(ingest: &mut Ingest, process: usize) {
    let is_replaced = is_replaced(ingest, process) || ingest.processes[process].is_another_program();
    ingest.processes[process].life.state = if is_replaced { State::Replaced } else { State::Died };
}

/// Whether the process became another program, which is measured, too.
pub fn is_replaced(ingest: &Ingest, process: usize) -> bool {
    ingest.processes.iter().any(|other| ingest.processes[process].is_before(other))
}

/// Whether a process that has not recorded its end in its log has ended, or has become another program.
pub fn has_ended_silently(ingest: &Ingest, process: usize) -> bool {
    let of = &ingest.processes[process];
    !of.is_alive() || of.is_another_program() || is_replaced(ingest, process)
}

/// Records whether a replaced process now runs a program that is not measured, and that may later execute one that is. If it does
/// not, closes the process' files.
pub fn check_unmeasured_successor(ingest: &mut Ingest, process: usize) {
    let of = &ingest.processes[process];
    let runs_unmeasured = of.life.state == State::Replaced && !is_replaced(ingest, process) && of.is_alive();
    ingest.processes[process].life.runs_unmeasured = runs_unmeasured;
    if !runs_unmeasured {
        ingest.processes[process].close_files();
    }
}

/// Returns the time of a process' end, as the process has recorded it. If it was killed or replaced, returns the last time at
/// which it was known to run, but not a time before those that the engine has already been given. Otherwise returns `now`.
pub fn end_of(ingest: &Ingest, process: usize, timeline: &LiveTimeline, now: Timestamp) -> Timestamp {
    let process = &ingest.processes[process];
    let last_event = process.locations.iter().map(|location| location.reader.decoder.last_time()).max();
    match (process.life.program_end, process.life.state) {
        (Some(end), _) => end,
        (None, State::Died | State::Replaced) => {
            // A process that became another program had ended by the time at which that program joined.
            let next = ingest.processes.iter().filter(|other| process.is_before(other));
            let next = next.map(|other| timeline.clock.at(&other.info.clocks)).min();
            let seen = process.life.seen_alive.unwrap_or(0).min(next.unwrap_or(Timestamp::MAX));
            seen.max(last_event.unwrap_or(0)).max(timeline.watermark)
        }
        (None, _) => now,
    }
}

/// Ends the open frames of a location whose ring was read to the end, and removes the ring if the process has ended.
/// `keeps_rings`: another collector may need the ring.
pub fn close_location(
    ingest: &mut Ingest,
    at: Place,
    end: Timestamp,
    timeline: &mut LiveTimeline,
    (session, keeps_rings): (&Path, bool),
) {
    let live = &mut ingest[at];
    if live.closed || (live.index.is_none() && live.waiting() > 0) {
        return;
    }
    ingest.spool_location(at);
    let of = &mut ingest.processes[at.process];
    let live = &mut of.locations[at.location];
    live.closed = true;
    let own = live.index.filter(|_| !live.is_cpu_time_of_another());
    own.into_iter().for_each(|index| timeline.pipeline.end_stream(index));
    live.reader.ring.release_pages();
    // A run may have thousands of processes, one after the other. A ring is kept if its records are not on disk.
    let is_kept = live.reader.spool.as_ref().map_or(ingest.spool.wanted, Spool::is_cut);
    if of.life.state != State::Running && !keeps_rings && !live.given_up && !is_kept {
        let retired = Retired {
            records: live.reader.ring.position(),
            suppressed_calls: live.reader.ring.suppressed_calls(),
            dropped_records: live.reader.ring.dropped_records(),
        };
        let stream = of.stream_of(&of.locations[at.location].definition);
        if ingest.spool.retire(session, &stream, &retired).is_ok() {
            let _ = of.locations[at.location].reader.ring.retire();
        }
    }
    if of.life.state == State::Died {
        let last = of.locations[at.location].reader.decoder.last_time();
        of.life.died_at = of.life.died_at.max(Some(end.max(last)));
    }
    ingest.end_frames(at, end, timeline);
}

/// Adds a note about records in rings that were not read.
pub fn look_for_unread(ingest: &mut Ingest, notes: &mut Notes) {
    let open = ingest.locations_mut().filter(|location| !location.closed);
    let unread = open.map(LiveLocation::waiting).sum::<usize>();
    if unread > 0 {
        notes.add_loss(format!("{unread} records were not read, so the figures do not include them"));
    }
}

/// Adds a note about processes that joined when the results were being written.
pub fn look_for_latecomers(ingest: &Ingest, session: &Session, notes: &mut Notes) {
    let unknown = finding::unknown_logs(ingest, session);
    if unknown > 0 {
        notes.add_loss(format!(
            "{unknown} processes started while the results were being written: they were not measured"
        ));
    }
}

/// Whether all processes have ended properly, and no records of them are lost.
pub fn is_whole(ingest: &Ingest) -> bool {
    ingest.processes.iter().all(Process::is_whole)
}
