//! CUPTI's records of kernels, copies and memsets, as frames of GPU locations.
//!
//! CUPTI asks for buffers and gives them back with records, in a thread of its own or in one that calls it.

use crate::cupti::{self, COPIES, Cupti, SUCCESS, kind};
use crate::{CUPTI, HOST, LOSSES, calls, clock, correlation, devices};
use ampere_gpu::{Frame, Host, Known, Stream, guarded};
use rustc_hash::FxHashMap;
use scorep_abi::{paradigm, region_type};
use std::ffi::{CStr, CString, c_char, c_void};
use std::sync::{Mutex, PoisonError};

/// Empty buffers for CUPTI, and the number of records that each is to hold.
///
/// CUPTI gives a buffer back when it is full and all work in it is done. Therefore a large buffer comes seconds late if a GPU
/// is always busy. The number of records in a buffer is adapted to the rate of records, so that about [`BUFFERS_WANTED`]
/// buffers are filled in each [`PERIOD`].
struct Buffers {
    empty: Vec<*mut u8>,
    /// The number of buffers that CUPTI has.
    lent: usize,
    /// The number of records that the next buffer may hold; at most [`RECORDS_MAX`].
    records: usize,
    /// The start of the present period, in ticks, and the requests since then.
    since: u64,
    requests: u32,
}

/// The size of a buffer.
const BUFFER_BYTES: usize = 1 << 16;
/// The largest number of records in a buffer: those of kernels have about 220 bytes.
const RECORDS_MAX: usize = 256;
/// The largest number of buffers that CUPTI has at a time. If CUPTI gets none, it drops records and counts them.
const LENT_MAX: usize = 2048;
/// The number of empty buffers that are kept.
const EMPTY_MAX: usize = 64;
/// The period, in nanoseconds, and the number of buffers that are to be filled in it.
const PERIOD: u64 = 100_000_000;
const BUFFERS_WANTED: u128 = 8;
/// If CUPTI asks for this number of buffers in a period, buffers become larger at once.
const BUFFERS_MAX: u32 = 16;

/// The times, in nanoseconds, after which the record of a kernel, and that of a copy or a graph, is no longer expected. Launches
/// that are captured into a graph and copies of zero bytes have no record.
const KERNEL_RECORD_WAIT: u64 = 60_000_000_000;
const COPY_RECORD_WAIT: u64 = 5_000_000_000;

/// A shorter overlap of work on a stream, in nanoseconds, is an error of the times.
const OVERLAP_MAX: u64 = 1000;

static BUFFERS: Mutex<Buffers> =
    Mutex::new(Buffers { empty: Vec::new(), lent: 0, records: 1, since: 0, requests: 0 });
static RECORDS: Mutex<Option<Records>> = Mutex::new(None);

// SAFETY: an empty buffer belongs to the list that has its address.
unsafe impl Send for Buffers {}

impl Buffers {
    /// Returns an empty buffer for CUPTI; `None` if CUPTI has too many already, or if there is no memory.
    fn lend(&mut self) -> Option<*mut u8> {
        if self.lent == LENT_MAX {
            return None;
        }
        // SAFETY: allocates; the memory is aligned for any record.
        let buffer = self.empty.pop().unwrap_or_else(|| unsafe { libc::malloc(BUFFER_BYTES) }.cast());
        self.lent += usize::from(!buffer.is_null());
        (!buffer.is_null()).then_some(buffer)
    }

    fn take_back(&mut self, buffer: *mut u8) {
        self.lent -= 1;
        if self.empty.len() < EMPTY_MAX {
            self.empty.push(buffer);
        } else {
            // SAFETY: `lend` allocated it.
            unsafe { libc::free(buffer.cast()) };
        }
    }

    /// Returns the number of records for the next buffer, which is asked for at this time in ticks.
    fn pace(&mut self, now: u64, period: u64) -> usize {
        let elapsed = now.saturating_sub(self.since);
        let in_period = match (elapsed >= period, self.requests) {
            (true, requests) => {
                (self.records * requests as usize) as u128 * u128::from(period) / u128::from(elapsed.max(1))
            }
            (false, BUFFERS_MAX..) => 2 * BUFFERS_WANTED * self.records as u128,
            (false, _) => 0,
        };
        if elapsed >= period || in_period > 0 {
            self.records = (in_period / BUFFERS_WANTED).clamp(1, RECORDS_MAX as u128) as usize;
            (self.since, self.requests) = (now, 0);
        }
        self.requests += 1;
        self.records
    }
}

/// CUPTI asks for a buffer.
///
/// # Safety
/// CUPTI is the caller.
pub unsafe extern "C" fn on_request(buffer: *mut *mut u8, bytes: *mut usize, records_max: *mut usize) {
    let lent = guarded(None, || {
        let mut buffers = BUFFERS.lock().ok()?;
        let records = buffers.pace(HOST.get()?.now(), clock::ticks_in(PERIOD));
        Some((buffers.lend()?, records))
    });
    let (new, records) = lent.unwrap_or((std::ptr::null_mut(), 0));
    // SAFETY: CUPTI's places for the answer.
    unsafe {
        *buffer = new;
        *bytes = if new.is_null() { 0 } else { BUFFER_BYTES };
        *records_max = records;
    }
}

/// CUPTI gives back a buffer.
///
/// # Safety
/// CUPTI is the caller.
pub unsafe extern "C" fn on_complete(
    context: *mut c_void,
    stream: u32,
    buffer: *mut u8,
    _: usize,
    valid: usize,
) {
    guarded((), || {
        if let (Some(cupti), Some(host), Ok(mut records)) = (CUPTI.get(), HOST.get(), RECORDS.lock()) {
            let records = records.get_or_insert_with(Records::default);
            // SAFETY: CUPTI's buffer, which has `valid` bytes of records.
            unsafe { records.take(cupti, host, buffer, valid) };
            records.deliver(host);
            let mut dropped = 0;
            // SAFETY: the call writes one number.
            unsafe { (cupti.get_dropped)(context, stream, &mut dropped) };
            LOSSES.count(dropped as u64);
            LOSSES.report(host);
        }
        if !buffer.is_null()
            && let Ok(mut buffers) = BUFFERS.lock()
        {
            buffers.take_back(buffer);
        }
    });
}

/// Reports the time until which all work is known, if it has changed. Returns whether there can be more work.
pub fn report_known() -> bool {
    let Some(host) = HOST.get().filter(|host| host.is_recording()) else { return false };
    let mut records = RECORDS.lock().unwrap_or_else(PoisonError::into_inner);
    let Records { known, streams, .. } = records.get_or_insert_with(Records::default);
    let now = host.now();
    known.remember(now, calls::next_number());
    let before = |age| known.launch_before(now.saturating_sub(clock::ticks_in(age)));
    let (kernels, others) = (before(KERNEL_RECORD_WAIT), before(COPY_RECORD_WAIT));
    let are_recorded = |launch| calls::PENDING.are_recorded(launch, kernels, others);
    if let Some(time) = known.until(are_recorded, host.ticks_per_nanosecond()) {
        streams.values().for_each(|known| known.stream.quiet_until(host, time));
    }
    true
}

/// Work on a device, as a record describes it.
struct Work {
    start: u64,
    end: u64,
    place: Place,
    correlation: u32,
    region: u32,
}

/// A stream of a context on a device, by CUPTI's IDs.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Place {
    device: u32,
    context: u32,
    stream: u32,
}

/// A stream, and the end and the number of the last work that was recorded on it.
struct KnownStream {
    stream: Stream,
    end: u64,
    correlation: u32,
}

/// The streams, names and regions that are known from records so far.
#[derive(Default)]
struct Records {
    /// The contexts of each device, in the order of their first record.
    contexts: FxHashMap<u32, Vec<u32>>,
    streams: FxHashMap<Place, KnownStream>,
    known: Known,
    /// Kernels by the addresses of their names. The name is compared, too, because another name may be at the same address
    /// after a module was unloaded.
    kernels: FxHashMap<usize, (CString, u32)>,
    /// The regions of copies, by their kind, and that of memsets; 0 before the first one.
    transfers: [u32; COPIES.len() + 1],
}

impl Records {
    /// # Safety
    /// The buffer has `valid` bytes of CUPTI's records.
    unsafe fn take(&mut self, cupti: &Cupti, host: &Host, buffer: *mut u8, valid: usize) {
        let mut record: *const u32 = std::ptr::null();
        // SAFETY: CUPTI steps through its own records.
        while unsafe { (cupti.next_record)(buffer, valid, &mut record) } == SUCCESS && !record.is_null() {
            // SAFETY: every record begins with its kind.
            let work = match unsafe { *record } {
                // SAFETY: a record of this kind.
                kind::CONCURRENT_KERNEL => unsafe { self.kernel(host, &*record.cast()) },
                // SAFETY: as above.
                kind::MEMCPY => unsafe { self.copy(host, &*record.cast()) },
                // SAFETY: as above.
                kind::MEMCPY2 => unsafe { self.copy_between(host, &*record.cast()) },
                // SAFETY: as above.
                kind::MEMSET => unsafe { self.memset(host, &*record.cast()) },
                _ => continue,
            };
            if !self.push(work) {
                LOSSES.count(1);
            }
        }
    }

    /// Processes the record of work on a device. Returns `false` if its times are impossible; the work is then left out. CUPTI
    /// sets times that it does not know to 0.
    fn push(&mut self, work: Work) -> bool {
        calls::PENDING.recorded(calls::number(work.correlation));
        if work.start == 0 || work.end < work.start {
            return false;
        }
        let (mut begin, mut end) = (clock::ticks(work.start), clock::ticks(work.end));
        // No work begins before its launch. If it seems to, the device's clock has at least that error.
        if let Some(launch) = calls::LAUNCHES.at(work.correlation.into()).filter(|launch| begin <= *launch) {
            LOSSES.raise_clock_error_to(clock::nanoseconds_in(launch - begin));
            begin = launch + 1;
            end = end.max(begin);
        }
        let KnownStream { stream, end: last_end, correlation: last } = self.stream(work.place);
        // Work on one stream overlaps only by errors of the device's times.
        let overlap = last_end.saturating_sub(begin);
        if overlap < clock::ticks_in(OVERLAP_MAX) && *last_end <= end {
            begin += overlap;
        }
        *last_end = end;
        let before = std::mem::replace(last, work.correlation);
        if before != work.correlation {
            // The previous launch on this stream has ended, even if it was a graph.
            calls::PENDING.expect_no_more(calls::number(before));
        }
        let frame = Frame { begin, end, correlation: correlation(work.correlation), region: work.region };
        stream.push(frame)
    }

    fn stream(&mut self, place: Place) -> &mut KnownStream {
        let Records { contexts, streams, .. } = self;
        streams.entry(place).or_insert_with(|| {
            let contexts = contexts.entry(place.device).or_default();
            let number = contexts.iter().position(|one| *one == place.context).unwrap_or_else(|| {
                contexts.push(place.context);
                contexts.len() - 1
            });
            // A device that was reset has a second context.
            let context = match number {
                0 => place.device.to_string(),
                _ => format!("{}.{number}", place.device),
            };
            let stream = Stream::new("CUDA", &context, place.stream.into(), devices::of(place.device));
            KnownStream { stream, end: 0, correlation: 0 }
        })
    }

    /// Passes on the frames that still wait in the streams.
    fn deliver(&mut self, host: &Host) {
        // All new streams are opened before any of them has frames, because live figures wait for all streams that are open.
        self.streams.values_mut().for_each(|known| known.stream.open(host));
        for KnownStream { stream, .. } in self.streams.values_mut() {
            if stream.waiting() > 0 {
                LOSSES.count(stream.flush(host));
            }
        }
    }

    fn kernel(&mut self, host: &Host, record: &cupti::Kernel) -> Work {
        let place = Place { device: record.device, context: record.context, stream: record.stream };
        // SAFETY: CUPTI's text, or null.
        let region = unsafe { self.kernel_region(host, record.name) };
        Work { start: record.start, end: record.end, place, correlation: record.correlation, region }
    }

    /// # Safety
    /// The name is null or a C string.
    unsafe fn kernel_region(&mut self, host: &Host, name: *const c_char) -> u32 {
        // SAFETY: the caller guarantees this.
        let text = if name.is_null() { c"(kernel)" } else { unsafe { CStr::from_ptr(name) } };
        match self.kernels.get(&(name as usize)) {
            Some((known, region)) if known.as_c_str() == text => *region,
            _ => {
                let region = host.region(text.to_bytes(), region_type::KERNEL, paradigm::CUDA);
                self.kernels.insert(name as usize, (text.to_owned(), region));
                region
            }
        }
    }

    fn copy(&mut self, host: &Host, record: &cupti::Memcpy) -> Work {
        let place = Place { device: record.device, context: record.context, stream: record.stream };
        let region = self.transfer(host, record.copy_kind.into());
        Work { start: record.start, end: record.end, place, correlation: record.correlation, region }
    }

    fn copy_between(&mut self, host: &Host, record: &cupti::MemcpyBetween) -> Work {
        let place = Place { device: record.device, context: record.context, stream: record.stream };
        let region = self.transfer(host, record.copy_kind.into());
        Work { start: record.start, end: record.end, place, correlation: record.correlation, region }
    }

    fn memset(&mut self, host: &Host, record: &cupti::Memset) -> Work {
        let place = Place { device: record.device, context: record.context, stream: record.stream };
        let region = self.transfer(host, COPIES.len());
        Work { start: record.start, end: record.end, place, correlation: record.correlation, region }
    }

    /// Returns the region of a copy of this kind, or of memsets.
    fn transfer(&mut self, host: &Host, which: usize) -> u32 {
        let which = if which <= COPIES.len() { which } else { 0 };
        if self.transfers[which] == 0 {
            let name = COPIES.get(which).unwrap_or(&"[CUDA memset]");
            self.transfers[which] = host.region(name.as_bytes(), region_type::RMA, paradigm::CUDA);
        }
        self.transfers[which]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_of_buffers_follows_the_rate_of_records() {
        const PERIOD: u64 = 100_000;
        let mut buffers = Buffers { empty: Vec::new(), lent: 0, records: 1, since: 0, requests: 0 };
        let mut now = 1;
        // Records per period: a new buffer is asked for when the last one is full.
        for rate in [1, 10, 100, 10_000, 1_000, 100_000, 20, 1] {
            let mut lent = Vec::new();
            // After the rate has fallen, the last large buffer is filled slowly.
            let end = now + 20 * PERIOD + RECORDS_MAX as u64 * PERIOD / rate;
            while now < end {
                let records = buffers.pace(now, PERIOD);
                now += (PERIOD * records as u64 / rate).max(1);
                lent.push((now, records));
            }
            let last: Vec<_> = lent.iter().filter(|one| one.0 > end - 5 * PERIOD).collect();
            let records: usize = last.iter().map(|one| one.1).sum();
            let is_full_size = last.iter().all(|one| one.1 == RECORDS_MAX);
            // A buffer is filled in at most half a period, or holds one record.
            let longest = records as u64 / last.len() as u64 * PERIOD / rate;
            assert!(longest <= PERIOD / 2 || records == last.len(), "rate {rate}: {last:?}");
            assert!(last.len() <= 5 * 20 || is_full_size, "rate {rate}: {} buffers", last.len());
        }
    }
}
