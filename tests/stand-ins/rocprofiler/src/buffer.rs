//! Buffers, and the thread that delivers them.

use crate::abi::{CATEGORY_TRACING, Handle, POLICY_LOSSLESS, RecordHeader, SUCCESS, Status};
use crate::{ERROR, ERROR_FINALIZED, RECORDS, lock, timed, with, word};
use std::ffi::{c_int, c_void};
use std::sync::{Condvar, Mutex};

type Deliver = unsafe extern "C" fn(Handle, Handle, *const *const RecordHeader, usize, *mut c_void, u64);

struct Buffer {
    context: Handle,
    bytes: usize,
    watermark: usize,
    is_lossless: bool,
    deliver: Deliver,
    data: usize,
    /// The kind and the words of each record.
    records: Vec<(c_int, Vec<u64>)>,
    used: usize,
    dropped: u64,
    /// Number of requests to deliver the buffer, and number of these requests that were carried out.
    requested: u64,
    delivered: u64,
}

static BUFFERS: Mutex<Vec<Buffer>> = Mutex::new(Vec::new());
static CHANGED: Condvar = Condvar::new();

/// # Safety
/// `id` may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocprofiler_create_buffer(
    context: Handle,
    bytes: usize,
    watermark: usize,
    policy: c_int,
    deliver: Deliver,
    data: *mut c_void,
    id: *mut Handle,
) -> Status {
    let mut all = lock(&BUFFERS);
    if all.is_empty() {
        std::thread::spawn(run);
    }
    all.push(Buffer {
        context,
        bytes,
        watermark,
        is_lossless: policy == POLICY_LOSSLESS,
        deliver,
        data: data as usize,
        records: Vec::new(),
        used: 0,
        dropped: word("dropped").and_then(|text| text.parse().ok()).unwrap_or(0),
        requested: 0,
        delivered: 0,
    });
    // SAFETY: this function's contract.
    unsafe { *id = Handle(all.len() as u64) };
    SUCCESS
}

/// Waits until everything that is in the buffer now has been delivered.
#[unsafe(no_mangle)]
pub extern "C" fn rocprofiler_flush_buffer(id: Handle) -> Status {
    if with(|state| state.is_finalised) {
        eprintln!("stand-in rocprofiler: flush after the end");
        return ERROR_FINALIZED;
    }
    let at = (id.0 as usize).wrapping_sub(1);
    let mut all = lock(&BUFFERS);
    let Some(buffer) = all.get_mut(at) else { return ERROR };
    buffer.requested += 1;
    let request = buffer.requested;
    CHANGED.notify_all();
    while all[at].delivered < request {
        all = CHANGED.wait(all).unwrap_or_else(|poisoned| poisoned.into_inner());
    }
    SUCCESS
}

/// Puts a record, which begins with its size, into a buffer.
pub(crate) fn put(id: u64, kind: c_int, record: Vec<u64>) {
    let at = id as usize - 1;
    let mut all = lock(&BUFFERS);
    let bytes = record.len() * 8;
    while all[at].used + bytes > all[at].bytes {
        if !all[at].is_lossless {
            all[at].dropped += 1;
            return;
        }
        all[at].requested += 1;
        CHANGED.notify_all();
        all = CHANGED.wait(all).unwrap_or_else(|poisoned| poisoned.into_inner());
    }
    let buffer = &mut all[at];
    buffer.records.push((kind, record));
    buffer.used += bytes;
    if buffer.used >= buffer.watermark {
        buffer.requested += 1;
        CHANGED.notify_all();
    }
}

/// Runs in the thread that delivers buffers.
fn run() {
    let mut all = lock(&BUFFERS);
    loop {
        let Some(at) = all.iter().position(|buffer| buffer.delivered < buffer.requested) else {
            all = CHANGED.wait(all).unwrap_or_else(|poisoned| poisoned.into_inner());
            continue;
        };
        let buffer = &mut all[at];
        let upto = buffer.requested;
        let records = std::mem::take(&mut buffer.records);
        buffer.used = 0;
        let deliver = buffer.deliver;
        let context = buffer.context;
        let data = buffer.data;
        let dropped = buffer.dropped;
        drop(all);
        let headers: Vec<RecordHeader> = records
            .iter()
            .map(|(kind, record)| RecordHeader {
                category: CATEGORY_TRACING as u32,
                kind: *kind as u32,
                payload: record.as_ptr().cast(),
            })
            .collect();
        let mut pointers: Vec<*const RecordHeader> = headers.iter().map(std::ptr::from_ref).collect();
        if word("reversed").is_some() {
            pointers.reverse();
        }
        if !pointers.is_empty() {
            // SAFETY: the tool's callback, with what it expects.
            timed(RECORDS, pointers.len(), || unsafe {
                deliver(
                    context,
                    Handle(at as u64 + 1),
                    pointers.as_ptr(),
                    pointers.len(),
                    data as *mut c_void,
                    dropped,
                );
            });
        }
        all = lock(&BUFFERS);
        all[at].delivered = all[at].delivered.max(upto);
        CHANGED.notify_all();
    }
}
