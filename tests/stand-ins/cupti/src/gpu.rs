//! The GPU: when work on it begins and ends, and the records of it in CUPTI's buffers.

use crate::{cupti, entry, now};
use std::collections::HashMap;
use std::ffi::{CString, c_char};
use std::sync::{Mutex, MutexGuard, OnceLock};

/// The time from a launch until its kernel begins.
const LATENCY: u64 = 2_000;
/// The number of the default stream.
pub const DEFAULT_STREAM: u32 = 7;
/// The number of the first stream that a program makes.
pub const FIRST_STREAM: u32 = 13;

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Kernel,
    Copy(u8),
    Memset,
}

/// Work on the GPU, in time of CLOCK_MONOTONIC_RAW.
#[derive(Clone, Copy)]
pub struct Work {
    pub kind: Kind,
    pub name: *const c_char,
    pub start: u64,
    pub end: u64,
    pub device: u32,
    pub context: u32,
    pub stream: u32,
    pub correlation: u32,
}

// SAFETY: names are never freed.
unsafe impl Send for Work {}

/// A buffer that the tool has provided, with the work whose records will be written to it.
pub struct Buffer {
    pub memory: *mut u8,
    pub bytes: usize,
    pub records_max: usize,
    pub work: Vec<Work>,
}

// SAFETY: the memory is the tool's.
unsafe impl Send for Buffer {}

impl Buffer {
    pub fn is_full(&self) -> bool {
        self.records_max > 0 && self.work.len() >= self.records_max
            || (self.work.len() + 1) * cupti::RECORD_BYTES > self.bytes
    }

    pub fn is_complete(&self, now: u64) -> bool {
        self.work.iter().all(|work| work.end <= now)
    }
}

#[derive(Default)]
pub struct Gpu {
    /// The time from which each stream is free.
    streams: HashMap<u32, u64>,
    pub context: u32,
    pub streams_made: u32,
    pub buffers: Vec<Buffer>,
    pub dropped: usize,
    records: u64,
    names: HashMap<Vec<u8>, CString>,
}

/// The number of devices.
pub fn gpus() -> u32 {
    static COUNT: OnceLock<u32> = OnceLock::new();
    *COUNT.get_or_init(|| (entry("gpus") as u32).max(1))
}

pub fn gpu() -> MutexGuard<'static, Gpu> {
    static GPU: OnceLock<Mutex<Gpu>> = OnceLock::new();
    GPU.get_or_init(Mutex::default).lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

impl Gpu {
    /// Puts work that takes this time on a stream. Returns the times of its start and end.
    pub fn enqueue(&mut self, stream: u32, nanoseconds: u64) -> (u64, u64) {
        let free = self.streams.entry(stream).or_default();
        let start = (*free).max(now() + LATENCY);
        *free = start + nanoseconds;
        (start, *free)
    }

    /// Returns the time from which a stream, or every stream, is free.
    pub fn free_at(&self, stream: Option<u32>) -> u64 {
        match stream {
            Some(stream) => self.streams.get(&stream).copied().unwrap_or(0),
            None => self.streams.values().copied().max().unwrap_or(0),
        }
    }

    /// Resets the device, which removes its streams and contexts.
    pub fn reset(&mut self) {
        self.streams.clear();
        self.context += 1;
    }

    /// Returns a copy of a name, which is never freed. Equal names share one copy.
    pub fn name(&mut self, text: &[u8]) -> *const c_char {
        let new = || CString::new(text).unwrap_or_default();
        self.names.entry(text.to_owned()).or_insert_with(new).as_ptr()
    }

    /// Whether the script's entry `key=n` applies to this record. It applies to every n-th record.
    fn is_nth(&self, key: &str) -> bool {
        let n = entry(key);
        n > 0 && self.records.is_multiple_of(n)
    }

    /// Puts work into the last buffer, as the script says. Returns `false` if there is no buffer with room.
    pub fn record(&mut self, mut work: Work) -> bool {
        static FAULTS: OnceLock<bool> = OnceLock::new();
        if self.buffers.last().is_none_or(Buffer::is_full) {
            return false;
        }
        self.records += 1;
        if *FAULTS.get_or_init(|| ["drop", "untimed", "negative"].iter().any(|key| entry(key) > 0)) {
            if self.is_nth("drop") {
                self.dropped += 1;
                return true;
            }
            if self.is_nth("untimed") {
                (work.start, work.end) = (0, 0);
            }
            if self.is_nth("negative") {
                (work.start, work.end) = (work.end, work.start);
            }
        }
        if let Some(buffer) = self.buffers.last_mut() {
            buffer.work.push(work);
        }
        true
    }
}
