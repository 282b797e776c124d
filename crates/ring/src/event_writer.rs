//! Writes the records of events. Most of it is on the event path, the plugin's work at an enter and at a leave, which must
//! stay short.

use crate::coalescing::{Coalescing, Entered, MEASURED_RECORDS};
use crate::communication::{Communication, RECORDS_MAX};
use crate::output::{CORRELATED_RECORDS, Output, RESERVE};
use crate::overload::{OverloadPolicy, SessionProbes};
use crate::record::{Kind, Record};
use crate::ring::RingProducer;
use crate::waiting::Waiting;

/// Writes one location's enter and leave events so that they are always properly nested.
///
/// An enter is admitted only if room remains for its leave and for the leave of every open frame, so that a leave always
/// finds room. What happens to an enter that is not admitted depends on the [`OverloadPolicy`]:
/// - the writer waits for room (`Wait`);
/// - the call is *coalesced* (see [`crate::coalescing`]): calls are counted and timed here, and written in groups;
/// - the call is *suppressed*, together with everything that it calls: its leave writes nothing either, and its time and energy
///   go to the enclosing frame. Suppressed calls are counted when they end. Once there is ample room again, the next enter also
///   writes enters for the suppressed frames that are still open, with its own timestamp: a short shortage of room does not hide
///   a function that runs for hours.
pub struct EventWriter {
    overload: Overload,
    /// Until this time short calls are coalesced without further checks; 0 while no calls are coalesced.
    coalesced_until: u64,
    /// An enter is admitted without further checks while position + open frames is below this.
    limit: u64,
    output: Output,
    mode: Mode,
    /// The correlation id of the next enter; 0 if it has none. An `Option` would be larger, and would move fields that every
    /// event needs to other cache lines.
    next_id: u64,
    /// The limit that applies once the next enter has been recorded, if it has an id.
    limit_after: u64,
    /// The number of suppressed open frames.
    suppressed_depth: usize,
    /// The regions of the outermost suppressed frames.
    suppressed: [u32; SUPPRESSED_REMEMBERED],
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// Each call is recorded: a leave belongs to the innermost frame in the ring.
    Recording,
    Coalescing,
    /// Calls are suppressed. The frames around them are coalesced or in the ring.
    Suppressing {
        in_coalesced: bool,
    },
}

/// The handling of calls when there is no space, with its state. The discriminant is a field of its own: if it shared a byte with
/// a field of `Coalescing`, loading it would wait for the store to the neighbouring field in the previous event.
#[repr(u64)]
enum Overload {
    Suppress,
    Wait(Waiting),
    Coalesce(Coalescing),
}

impl Overload {
    fn wait_for_room(&mut self, output: &mut Output, records: u64) -> bool {
        match self {
            Overload::Wait(waiting) => waiting.wait_for_room(output, records),
            Overload::Suppress | Overload::Coalesce(_) => false,
        }
    }
}

/// With [`OverloadPolicy::Coalesce`], a failed attempt to begin coalescing is repeated after this number of events.
const COALESCING_RETRY: u64 = 64;
/// The maximum number of suppressed frames whose regions are remembered. While more frames are suppressed, none is entered again.
const SUPPRESSED_REMEMBERED: usize = 64;

impl EventWriter {
    /// Makes a writer that suppresses calls for which there is no space.
    pub fn new(ring: RingProducer) -> EventWriter {
        EventWriter {
            output: Output::new(ring),
            limit: 0,
            mode: Mode::Recording,
            next_id: 0,
            limit_after: 0,
            coalesced_until: 0,
            overload: Overload::Suppress,
            suppressed_depth: 0,
            suppressed: [0; SUPPRESSED_REMEMBERED],
        }
    }

    /// Makes a writer that follows `policy` when there is no space.
    pub fn with_policy(ring: RingProducer, policy: OverloadPolicy, probes: SessionProbes) -> EventWriter {
        let overload = match policy {
            OverloadPolicy::Suppress => Overload::Suppress,
            OverloadPolicy::Wait => Overload::Wait(Waiting::new(probes)),
            OverloadPolicy::CoalesceUnderPressure => Overload::Coalesce(Coalescing::new(probes, false)),
            OverloadPolicy::Coalesce => Overload::Coalesce(Coalescing::new(probes, true)),
        };
        EventWriter { overload, ..EventWriter::new(ring) }
    }

    /// Records that a region is entered. `timestamp` is in ticks of the process' event clock.
    #[inline(always)]
    pub fn enter(&mut self, timestamp: u64, region: u32) {
        if !self.enter_at_once(timestamp, region) {
            self.enter_slow(timestamp, region);
        }
    }

    /// Handles the frequent cases of [`EventWriter::enter`]. Returns `false`, with nothing changed, in all other cases.
    #[inline(always)]
    pub fn enter_at_once(&mut self, timestamp: u64, region: u32) -> bool {
        if timestamp < self.coalesced_until
            && let Overload::Coalesce(coalescing) = &mut self.overload
            && coalescing.enter_short(timestamp, region)
        {
            return true;
        }
        let is_admitted = self.output.ring.position() + self.output.open < self.limit;
        if is_admitted {
            self.output.enter(timestamp, region);
        }
        is_admitted
    }

    /// Sets the correlation id of the next enter. A call that launches work has the same id as this work. 0 means no id.
    pub fn correlate_next(&mut self, id: u64) {
        if self.next_id == 0 {
            self.limit_after = self.limit;
        }
        self.next_id = id;
        // With a limit of 0, and without a period in which calls are coalesced, none of the frequent cases applies. So they need
        // not check for an id.
        self.limit = if id == 0 { self.limit_after } else { 0 };
        self.update_coalesced_until();
    }

    /// Records that a region is left.
    #[inline(always)]
    pub fn leave(&mut self, timestamp: u64, region: u32) {
        if !self.leave_at_once(timestamp, region) {
            self.leave_slow(timestamp, region);
        }
    }

    /// Handles the frequent cases of [`EventWriter::leave`]. Returns `false`, with nothing changed, in all other cases.
    #[inline(always)]
    pub fn leave_at_once(&mut self, timestamp: u64, region: u32) -> bool {
        if timestamp < self.coalesced_until
            && let Overload::Coalesce(coalescing) = &mut self.overload
            && coalescing.leave_short(timestamp, region)
        {
            return true;
        }
        let is_innermost = self.mode == Mode::Recording && self.output.open > 0;
        if is_innermost {
            self.output.leave(timestamp, region);
        }
        is_innermost
    }

    /// Must be called after each change that may begin or end coalescing or one of its periods.
    fn update_coalesced_until(&mut self) {
        self.coalesced_until = match &self.overload {
            Overload::Coalesce(coalescing) if self.mode == Mode::Coalescing && self.next_id == 0 => {
                coalescing.period_end
            }
            _ => 0,
        };
    }

    #[inline(never)]
    fn enter_slow(&mut self, timestamp: u64, region: u32) {
        if self.next_id != 0 {
            let id = std::mem::take(&mut self.next_id);
            // `limit_after` was saved while the mode was `Recording`; in any other mode it does not apply.
            self.limit = if self.mode == Mode::Recording { self.limit_after } else { 0 };
            self.enter_correlated(timestamp, region, id);
        } else if self.mode == Mode::Coalescing {
            self.coalesce_enter(timestamp, region);
        } else {
            self.enter_at_the_limit(timestamp, region);
        }
        self.update_coalesced_until();
    }

    #[cold]
    fn enter_at_the_limit(&mut self, timestamp: u64, region: u32) {
        if self.mode != Mode::Recording {
            return self.suppress(timestamp, region);
        }
        let is_admitted = self.renew_limit(timestamp);
        if self.mode == Mode::Coalescing {
            self.coalesce_enter(timestamp, region);
        } else if is_admitted {
            self.output.enter(timestamp, region);
        } else {
            self.suppress(timestamp, region);
        }
    }

    /// Begins to coalesce, if that is due or if there is no room. Otherwise returns whether one more enter is admitted.
    fn renew_limit(&mut self, timestamp: u64) -> bool {
        let position = self.output.ring.position();
        if let Overload::Coalesce(coalescing) = &mut self.overload
            && coalescing.is_due(position, timestamp)
            && self.begin_coalescing(timestamp)
        {
            return false;
        }
        let is_admitted = self.update_limit();
        if !is_admitted {
            self.begin_coalescing(timestamp);
        }
        is_admitted
    }

    /// Records an enter with a correlation id. If there is no room for the id, the enter is recorded without it.
    fn enter_correlated(&mut self, timestamp: u64, region: u32, id: u64) {
        let used = self.output.ring.position() + self.output.open;
        if self.mode == Mode::Recording && used + 1 >= self.limit {
            self.renew_limit(timestamp);
        }
        let has_place = match (self.mode, &mut self.overload) {
            (Mode::Recording, _) => used + 1 < self.limit || self.make_room(CORRELATED_RECORDS),
            (Mode::Coalescing, Overload::Coalesce(coalescing)) => {
                if coalescing.enter_correlated(&mut self.output, timestamp, region, id) {
                    return;
                }
                false
            }
            _ => false,
        };
        match has_place {
            true => self.output.enter_correlated(timestamp, region, id),
            false => self.enter(timestamp, region),
        }
    }

    /// Waits for room for this number of records if that is the policy. Returns whether there is room.
    fn make_room(&mut self, records: u64) -> bool {
        while !self.output.has_room(records) {
            if !self.overload.wait_for_room(&mut self.output, records) {
                return false;
            }
        }
        true
    }

    #[cold]
    fn begin_coalescing(&mut self, timestamp: u64) -> bool {
        let Overload::Coalesce(coalescing) = &mut self.overload else { return false };
        let has_begun = coalescing.begin(timestamp);
        if has_begun {
            (self.mode, self.limit) = (Mode::Coalescing, 0);
        }
        has_begun
    }

    #[inline(always)]
    fn coalesce_enter(&mut self, timestamp: u64, region: u32) {
        let Overload::Coalesce(coalescing) = &mut self.overload else {
            return self.suppress(timestamp, region);
        };
        match coalescing.enter(&mut self.output, timestamp, region) {
            Entered::Done => {}
            Entered::CoalescingEnded => {
                self.resume_recording();
                self.enter_slow(timestamp, region);
            }
            Entered::NoRoom => self.suppress(timestamp, region),
        }
    }

    #[inline(never)]
    fn leave_slow(&mut self, timestamp: u64, region: u32) {
        match (self.mode, &mut self.overload) {
            (Mode::Coalescing, Overload::Coalesce(coalescing)) => {
                if !coalescing.leave(&mut self.output, timestamp, region) {
                    self.resume_recording();
                    self.leave(timestamp, region);
                }
            }
            (Mode::Suppressing { in_coalesced }, _) => {
                self.suppressed_depth -= 1;
                self.output.count_suppressed(1);
                if self.suppressed_depth == 0 {
                    self.mode = if in_coalesced { Mode::Coalescing } else { Mode::Recording };
                }
            }
            // A host that began to measure inside a region reports a leave without an enter.
            _ => self.output.count_dropped(1),
        }
        self.update_coalesced_until();
    }

    /// Returns to recording each call.
    #[cold]
    fn resume_recording(&mut self) {
        (self.mode, self.limit, self.suppressed_depth) = (Mode::Recording, 0, 0);
    }

    /// Sets the limit from the consumer's actual position. Returns whether one more enter is admitted.
    fn update_limit(&mut self) -> bool {
        loop {
            let free = self.output.ring.free();
            let (kept, checked_again_after) = match &self.overload {
                // Coalescing begins while there is room for its groups. At the start of the program it must be
                // tried again, because the clock is not known yet.
                Overload::Coalesce(coalescing) => {
                    let retry = if coalescing.from_start { COALESCING_RETRY } else { MEASURED_RECORDS };
                    (self.output.ring.capacity_records() / 2, retry)
                }
                Overload::Suppress | Overload::Wait(_) => (0, u64::MAX),
            };
            let used = self.output.ring.position() + self.output.open;
            self.limit = (self.output.ring.position() + free)
                .saturating_sub(kept + 1 + RESERVE)
                .min(used.saturating_add(checked_again_after));
            let admitted = used < self.limit;
            if admitted || !self.overload.wait_for_room(&mut self.output, 1) {
                return admitted;
            }
        }
    }

    #[cold]
    fn suppress(&mut self, timestamp: u64, region: u32) {
        let mut in_coalesced =
            matches!(self.mode, Mode::Coalescing | Mode::Suppressing { in_coalesced: true });
        self.limit = 0;
        if let Some(place) = self.suppressed.get_mut(self.suppressed_depth) {
            *place = region;
        }
        self.suppressed_depth += 1;
        let frames = self.suppressed_depth as u64;
        // If less than half of the ring were free, it would soon be full again.
        let ample = self.output.open + 2 * frames + RESERVE + self.output.ring.capacity_records() / 2;
        if self.suppressed_depth <= SUPPRESSED_REMEMBERED && self.output.ring.free() >= ample {
            in_coalesced = match &mut self.overload {
                Overload::Coalesce(coalescing) if in_coalesced => !coalescing.end(&mut self.output),
                _ => false,
            };
            // The coalesced frames and their group have taken some of the room.
            if !in_coalesced && self.output.has_room(2 * frames) {
                for region in &self.suppressed[..self.suppressed_depth] {
                    self.output.enter(timestamp, *region);
                }
                return self.resume_recording();
            }
        }
        self.mode = Mode::Suppressing { in_coalesced };
    }

    /// Counts events that could not be written because they interrupted the writing of another one.
    pub fn count_dropped_events(&mut self, events: u64) {
        self.output.count_dropped(events);
    }

    /// Must be called when the writing of an event was abandoned in the middle (`longjmp` out of a signal handler). The
    /// event may be an enter that was not counted and whose leave will still come. So room is kept for one more leave, as
    /// long as open frames take less than a quarter of the ring. The decoder ignores a surplus leave.
    #[cold]
    pub fn event_was_abandoned(&mut self) {
        let has_room = self.output.open < self.output.ring.capacity_records() / 4 && self.output.has_room(1);
        self.output.open += u64::from(has_room);
        if let Overload::Coalesce(coalescing) = &mut self.overload
            && matches!(self.mode, Mode::Coalescing | Mode::Suppressing { in_coalesced: true })
        {
            coalescing.repair();
        }
    }

    /// Records a message, a collective, a request or an event of a team of threads. It is written as a whole. Without room for
    /// it, or inside suppressed calls, it is counted as dropped. Enters are written first for the frames around it that are being
    /// coalesced, so that it is inside them at its own time.
    #[inline(never)]
    pub fn communication(&mut self, timestamp: u64, event: Communication) {
        let frames_are_in_ring = match (self.mode, &mut self.overload) {
            (Mode::Recording, _) => true,
            (Mode::Coalescing, Overload::Coalesce(coalescing)) => {
                coalescing.enter_frames(&mut self.output, timestamp)
            }
            _ => false,
        };
        if !frames_are_in_ring {
            return self.output.count_dropped(1);
        }
        let records = event.records(timestamp);
        let count = records.len() as u64;
        if !self.make_room(count) {
            return self.output.count_dropped(1);
        }
        for (place, record) in records.enumerate() {
            self.output.ring.put_with_room(place as u64, record);
        }
        self.output.ring.publish(count);
    }

    /// Records that the program's measurement begins.
    pub fn program_begin(&mut self, timestamp: u64) {
        if self.output.has_room(1) {
            self.output.ring.push_with_room(Record::new(Kind::ProgramBegin, timestamp, 0));
        }
    }

    /// Ends the program's measurement, and with it every open frame, with a single record.
    pub fn program_end(&mut self, timestamp: u64) {
        self.end(Kind::ProgramEnd, timestamp);
    }

    /// Like [`EventWriter::program_end`], for a location that ends before its program.
    pub fn location_end(&mut self, timestamp: u64) {
        self.end(Kind::LocationEnd, timestamp);
    }

    fn end(&mut self, kind: Kind, timestamp: u64) {
        self.output.count_suppressed(self.suppressed_depth as u64);
        if let Overload::Coalesce(coalescing) = &mut self.overload
            && matches!(self.mode, Mode::Coalescing | Mode::Suppressing { in_coalesced: true })
        {
            coalescing.end_location(&mut self.output, timestamp);
        }
        self.output.end(kind, timestamp);
        self.resume_recording();
        self.update_coalesced_until();
    }

    /// Whether there is room for any event and, if it is an enter, also for its leave.
    pub fn has_room(&mut self) -> bool {
        self.output.has_room(RECORDS_MAX as u64)
    }

    /// Returns the number of records for which there is room now.
    pub fn free_records(&mut self) -> u64 {
        self.output.ring.free()
    }

    /// Whether everything in the ring has been read.
    pub fn is_drained(&mut self) -> bool {
        self.output.ring.free() == self.output.ring.capacity_records()
    }

    /// Writes an energy sample in cumulative nanojoules. If the ring is full, the sample is dropped and counted.
    pub fn sample(&mut self, timestamp: u64, device: u32, nanojoules: u64) {
        let head = Record::new(Kind::Sample, timestamp, device);
        self.put_with_value(head, Record::new(Kind::Value, nanojoules, device));
    }

    /// Writes the total CPU time that the location has used up to this time. It rose during the `rose_ticks` before this time,
    /// or, if that is 0, since the previous record of this kind. If the ring is full, the record is dropped and counted.
    pub fn cpu_time(&mut self, timestamp: u64, rose_ticks: u32, nanoseconds: u64) {
        let head = Record::new(Kind::CpuTime, timestamp, rose_ticks);
        self.put_with_value(head, Record::new(Kind::Value, nanoseconds, 0));
    }

    /// Writes the number of times that an event has happened since the thread's last stack sample. If the ring is full, the
    /// record is dropped and counted.
    pub fn counts(&mut self, timestamp: u64, event: u32, count: u64) {
        let head = Record::new(Kind::Counts, timestamp, event);
        self.put_with_value(head, Record::new(Kind::Value, count, 0));
    }

    /// Writes a record whose value is in the next one. Without room for both, neither is written, and one record is counted.
    #[inline]
    fn put_with_value(&mut self, head: Record, value: Record) {
        if self.output.ring.has_room(2 + RESERVE) {
            self.output.ring.push_pair_with_room(head, value);
        } else {
            self.output.count_dropped(1);
        }
    }

    /// Writes the pending group of coalesced calls if there is room. Called for a thread that pauses.
    pub fn flush(&mut self) {
        if let Overload::Coalesce(coalescing) = &mut self.overload {
            coalescing.write_group(&mut self.output);
        }
    }

    /// Like [`EventWriter::flush`], when no event will follow: without room, the pending calls are counted as suppressed.
    pub fn flush_last(&mut self) {
        if let Overload::Coalesce(coalescing) = &mut self.overload {
            coalescing.write_group_or_suppress(&mut self.output);
        }
    }

    /// Records that all events before `time` have been written.
    pub fn quiet_until(&mut self, time: u64) {
        self.flush();
        self.output.ring.set_quiet_until(time);
    }

    /// Closes the ring: no record will follow.
    pub fn close(&mut self) {
        self.output.ring.close();
    }

    /// Returns the number of frames that are open in the ring.
    pub fn open_frames(&self) -> u64 {
        self.output.open
    }

    /// Returns the number of calls suppressed so far.
    pub fn suppressed_calls(&self) -> u64 {
        self.output.suppressed_calls
    }
}
