//! Writes the events of all locations from the spool into OTF2's event files.
//!
//! The job has ended by then and its cores are free, so long traces are written by several threads. OTF2 allows one thread for
//! each archive, so every thread but one has an archive of its own, whose event files are moved to the run's at the end.

use super::cpu_time::{LocationCpuTime, Points};
use super::power::{LocationValues, Values};
use super::{CALLS, CORRELATION, Span, communicators};
use crate::scorep_names::{collective_operation, paradigm, root};
use crate::spool::Spool;
use ampere_attribution::LocationIndex;
use ampere_model::numbers::Handles;
use ampere_model::{LocationKind, Timestamp};
use ampere_ring::communication::{Collective, Communication, Message};
use ampere_ring::decoder::{Decoder, Event};
use anyhow::Context;
use otf2::{
    ArchiveWriter, CommRef, EventWriter, LocationRef, MetricClassRef, MetricValue, RegionRef, StringRef,
};
use std::cell::Cell;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A location that is to be written.
pub struct Task<'a> {
    pub reference: LocationRef,
    /// The location's name, for messages.
    pub name: String,
    pub kind: LocationKind,
    /// The location's number in the run's attributor.
    pub number: Option<LocationIndex>,
    pub regions: &'a Handles,
    pub communicators: &'a communicators::Handles,
    /// The program whose start and end are written to one location of its process.
    pub program: Option<ProgramStrings>,
    /// The records; `None` if the spool could not be made, which a note reports. The other locations are still written.
    pub spool: Option<&'a Spool>,
    pub power: LocationValues<'a>,
    pub waited: LocationValues<'a>,
    pub cpu_time: LocationCpuTime<'a>,
    /// The classes of the events that are counted with samples, by the events' numbers.
    pub events: Vec<MetricClassRef>,
}

#[derive(Clone)]
pub struct ProgramStrings {
    pub name: StringRef,
    pub arguments: Vec<StringRef>,
}

/// The result of writing a location's events.
pub struct LocationEvents {
    pub reference: LocationRef,
    pub events: u64,
    /// The number of messages, collectives and other events of communication that were left out, because their communicator,
    /// operation or root is unknown.
    pub left_out: u64,
}

/// The maximum number of threads: with more, the disk becomes the limit.
const THREADS_MAX: usize = 8;
/// The minimum number of bytes for which another thread is started.
const BYTES_MIN: u64 = 8 << 20;

/// Writes all tasks into the archive. Temporary parts are in `spool`, which is private and on the same file system.
pub fn write(
    spool: &Path,
    archive: &ArchiveWriter,
    tasks: &[Task],
    span: &mut Span,
) -> anyhow::Result<Vec<LocationEvents>> {
    let bytes: u64 = tasks.iter().filter_map(|task| task.spool).map(Spool::bytes).sum();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = cores.min(THREADS_MAX).min(tasks.len()).min((bytes / BYTES_MIN) as usize).max(1);
    // The longest tasks come first, so that no thread has a long one left at the end.
    let mut order: Vec<&Task> = tasks.iter().collect();
    order.sort_by_key(|task| std::cmp::Reverse(task.spool.map_or(0, Spool::bytes)));
    let next = AtomicUsize::new(0);
    let take = || order.get(next.fetch_add(1, Ordering::Relaxed)).copied();
    let parts: Vec<Part> = (1..threads).map(|number| Part::make(spool, number)).collect::<Result<_, _>>()?;
    let mut all = Vec::new();
    std::thread::scope(|scope| {
        let helpers: Vec<_> = parts.iter().map(|part| scope.spawn(|| part.write(take))).collect();
        let mut results = vec![write_some(archive, take)];
        for helper in helpers {
            let ended = helper.join();
            results
                .push(ended.unwrap_or_else(|_| Err(anyhow::anyhow!("a thread that writes it has failed"))));
        }
        for (at, result) in results.into_iter().enumerate() {
            let (written, part_span) = result?;
            span.join(part_span);
            if let Some(part) = at.checked_sub(1).and_then(|at| parts.get(at)) {
                part.hand_over(archive, &written)?;
            }
            all.extend(written);
        }
        Ok(all)
    })
}

/// A directory with an archive of its own, which is removed at the end.
struct Part {
    directory: ampere_owned::Directory,
}

impl Part {
    fn make(spool: &Path, number: usize) -> anyhow::Result<Part> {
        let directory = spool.join(format!("part{number}"));
        let _ = ampere_owned::remove_tree(&directory); // the directory of a collector that was killed
        // The spool's directory may have been removed.
        let made = ampere_owned::make_private(&directory);
        Ok(Part { directory: made.with_context(|| format!("cannot make {}", directory.display()))? })
    }

    fn write<'t, 'a: 't>(
        &self,
        take: impl Fn() -> Option<&'t Task<'a>>,
    ) -> anyhow::Result<(Vec<LocationEvents>, Span)> {
        // This archive is never finished: only its event files are needed.
        let archive = ArchiveWriter::create(&self.directory.through_proc())?;
        write_some(&archive, take)
    }

    fn hand_over(&self, archive: &ArchiveWriter, written: &[LocationEvents]) -> anyhow::Result<()> {
        for LocationEvents { reference, events, .. } in written {
            archive.adopt(*reference, *events, &self.directory.through_proc())?;
        }
        Ok(())
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        super::remove_archive(self.directory.path());
    }
}

fn write_some<'t, 'a: 't>(
    archive: &ArchiveWriter,
    take: impl Fn() -> Option<&'t Task<'a>>,
) -> anyhow::Result<(Vec<LocationEvents>, Span)> {
    let (mut written, mut span) = (Vec::new(), Span::NOTHING);
    while let Some(task) = take() {
        written.push(write_location(archive, task, &mut span).with_context(|| task.name.clone())?);
    }
    Ok((written, span))
}

fn write_location(archive: &ArchiveWriter, task: &Task, span: &mut Span) -> anyhow::Result<LocationEvents> {
    let mut to = Destination {
        writer: archive.event_writer(task.reference)?,
        regions: task.regions.clone(),
        communicators: task.communicators,
        communicator: Cell::new(None),
        program: task.program.as_ref(),
        power: Values::new(task.power)?,
        waited: Values::new(task.waited)?,
        cpu_time: Points::new(&task.cpu_time)?,
        events: &task.events,
        next: 0,
        left_out: 0,
        first: Timestamp::MAX,
        last: 0,
        failure: None,
    };
    let mut stream = Decoder::default();
    if let Some(spool) = task.spool {
        spool.read(|records| {
            stream.decode_all(records, &mut |event| to.put(event));
            to.failure.take().map_or(Ok(()), Err)
        })?;
    }
    // If the records end early, the frames end with them.
    stream.close(stream.last_time(), &mut |event| to.put(event));
    to.put_values_until(Timestamp::MAX);
    if let Some(error) = to.failure {
        return Err(error);
    }
    span.join(Span { first: to.first, last: to.last });
    let left_out = to.left_out;
    Ok(LocationEvents { reference: task.reference, events: to.writer.close()?, left_out })
}

struct Destination<'a> {
    writer: EventWriter<'a>,
    regions: Handles,
    communicators: &'a communicators::Handles,
    /// The most recently requested communicator.
    communicator: Cell<Option<(u32, CommRef)>>,
    program: Option<&'a ProgramStrings>,
    power: Values<'a>,
    waited: Values<'a>,
    cpu_time: Points<'a>,
    events: &'a [MetricClassRef],
    /// The time of the next value of a metric.
    next: Timestamp,
    left_out: u64,
    first: Timestamp,
    last: Timestamp,
    failure: Option<anyhow::Error>,
}

impl Destination<'_> {
    #[inline(always)]
    fn put(&mut self, event: Event) {
        match event {
            Event::Enter(time, handle) => {
                self.put_move(time, handle, |writer, region| writer.enter(time, region))
            }
            Event::Leave(time, handle) => {
                self.put_move(time, handle, |writer, region| writer.leave(time, region))
            }
            Event::EnterCoalesced(time, handle, calls) => self.put_move(time, handle, |writer, region| {
                writer.enter_with(time, region, CALLS, calls.into())
            }),
            Event::EnterCorrelated(time, handle, id) => {
                self.put_move(time, handle, |writer, region| writer.enter_with(time, region, CORRELATION, id))
            }
            Event::Communication(time, event) => self.put_communication(time, event),
            Event::ProgramBegin(time) | Event::ProgramEnd(time) => self.put_program(time, event),
            Event::CpuTime(time, rose_ticks, ns) => {
                self.cpu_time.add_own((time, rose_ticks, ns));
                self.put_values_until(time);
            }
            Event::Counts(time, event, count) => self.put_counts(time, event, count),
            Event::Sample(..) => {}
        }
    }

    #[cold]
    fn put_counts(&mut self, time: Timestamp, event: u32, count: u64) {
        let Some(class) = self.events.get(event as usize).copied() else { return };
        self.put_values_until(time);
        let written = self.writer.metric(time, class, &[MetricValue::U64(count)]);
        self.wrote(time, written);
    }

    /// Writes an enter or a leave event.
    #[inline(always)]
    fn put_move(
        &mut self,
        time: Timestamp,
        handle: u32,
        write: impl FnOnce(&mut EventWriter, RegionRef) -> Result<(), otf2::Error>,
    ) {
        let Some(region) = self.regions.get(handle).map(|region| RegionRef(region.0)) else { return };
        if time >= self.next {
            self.put_values_until(time);
        }
        let written = write(&mut self.writer, region);
        self.wrote(time, written);
    }

    #[inline(always)]
    fn wrote(&mut self, time: Timestamp, written: Result<(), otf2::Error>) {
        // Times of a location never decrease.
        self.first = self.first.min(time);
        self.last = time;
        if let Err(error) = written {
            self.failure.get_or_insert_with(|| error.into());
        }
    }

    /// Writes the values of metrics up to a time. A power describes the time before it, so it comes before events of the same
    /// time.
    #[cold]
    fn put_values_until(&mut self, time: Timestamp) {
        loop {
            let next = [self.power.next, self.waited.next, self.cpu_time.next];
            self.next = next.into_iter().min().unwrap_or(Timestamp::MAX);
            if self.next > time || self.failure.is_some() {
                break;
            }
            let put = match next.map(|next| next == self.next) {
                [true, ..] => self.put_value(false),
                [_, true, _] => self.put_value(true),
                _ => self.put_cpu_time(),
            };
            match put {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => self.failure = Some(error.into()),
            }
        }
    }

    /// Writes the next attributed power, or the next sum of the energy used while waiting (`is_waited`). Returns `false` if there
    /// is none.
    fn put_value(&mut self, is_waited: bool) -> std::io::Result<bool> {
        let values = if is_waited { &mut self.waited } else { &mut self.power };
        let Some((time, value)) = values.take()? else { return Ok(false) };
        let written = self.writer.metric(time, values.class(), &[MetricValue::F64(value)]);
        self.wrote(time, written);
        Ok(true)
    }

    /// Writes a point of the CPU time. Returns `false` if there is none.
    fn put_cpu_time(&mut self) -> std::io::Result<bool> {
        let Some((time, ns)) = self.cpu_time.take()? else { return Ok(false) };
        if let Some(class) = self.cpu_time.class {
            let written = self.writer.metric(time, class, &[MetricValue::U64(ns)]);
            self.wrote(time, written);
        }
        Ok(true)
    }

    #[cold]
    fn put_program(&mut self, time: Timestamp, event: Event) {
        let Some(program) = self.program else { return };
        self.put_values_until(time);
        let written = match event {
            Event::ProgramBegin(_) => self.writer.program_begin(time, program.name, &program.arguments),
            _ => self.writer.program_end(time, None),
        };
        self.wrote(time, written);
    }

    fn put_communication(&mut self, time: Timestamp, event: Communication) {
        if time >= self.next {
            self.put_values_until(time);
        }
        match self.named(event) {
            Some(event) => {
                let written = self.writer.communication(time, event);
                self.wrote(time, written);
            }
            None => self.left_out += 1,
        }
    }

    /// Returns the event with the trace's references; `None` if its communicator, operation or root is unknown.
    fn named(&self, event: Communication) -> Option<otf2::Communication> {
        named(event, |handle| {
            // Most events are in the communicator of the previous one.
            let last = self.communicator.get().filter(|(last, _)| *last == handle);
            let found = last.or_else(|| self.communicators.get(&handle).map(|comm| (handle, *comm)))?;
            self.communicator.set(Some(found));
            Some(found.1)
        })
    }
}

/// Returns an event with other references to communicators: those that `comm` returns for a process' handles. Returns `None` if
/// the event's communicator, operation or root is unknown.
#[inline]
pub(crate) fn named(
    event: Communication,
    comm: impl Fn(u32) -> Option<CommRef>,
) -> Option<otf2::Communication> {
    use otf2::Communication as Named;
    let message = |Message { peer, communicator, tag, bytes }: Message| {
        Some(otf2::Message { peer, comm: comm(communicator)?, tag, bytes })
    };
    let collective = |of: Collective| {
        let Collective { bytes_sent, bytes_received, .. } = of;
        let (operation, root) = (collective_operation(of.operation)?, root(of.root)?);
        let comm = comm(of.communicator)?;
        Some(otf2::Collective { operation, comm, root, bytes_sent, bytes_received })
    };
    let paradigm = |number: u32| paradigm(number.try_into().unwrap_or(u8::MAX));
    Some(match event {
        Communication::MpiSend(m) => Named::MpiSend(message(m)?),
        Communication::MpiRecv(m) => Named::MpiRecv(message(m)?),
        Communication::MpiIsend(m, request) => Named::MpiIsend(message(m)?, request),
        Communication::MpiIsendComplete(request) => Named::MpiIsendComplete(request),
        Communication::MpiIrecvRequest(request) => Named::MpiIrecvRequest(request),
        Communication::MpiIrecv(m, request) => Named::MpiIrecv(message(m)?, request),
        Communication::MpiRequestTest(request) => Named::MpiRequestTest(request),
        Communication::MpiRequestCancelled(request) => Named::MpiRequestCancelled(request),
        Communication::MpiCollectiveBegin => Named::MpiCollectiveBegin,
        Communication::MpiCollectiveEnd(c) => Named::MpiCollectiveEnd(collective(c)?),
        Communication::NonBlockingCollectiveRequest(request) => Named::NonBlockingCollectiveRequest(request),
        Communication::NonBlockingCollectiveComplete(c, request) => {
            Named::NonBlockingCollectiveComplete(collective(c)?, request)
        }
        Communication::CommCreate(handle) => Named::CommCreate(comm(handle)?),
        Communication::CommDestroy(handle) => Named::CommDestroy(comm(handle)?),
        Communication::ThreadFork(of, threads) => Named::ThreadFork(paradigm(of), threads),
        Communication::ThreadJoin(of) => Named::ThreadJoin(paradigm(of)),
        Communication::MeasurementOnOff(is_on) => Named::MeasurementOnOff(is_on),
    })
}
