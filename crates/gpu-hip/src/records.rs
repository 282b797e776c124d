//! Records of kernels and copies as frames of GPU streams.

use crate::abi::{
    BUFFER_KERNEL_DISPATCH, BUFFER_MEMORY_COPY, CATEGORY_TRACING, COPY_DEVICE_TO_DEVICE, COPY_DEVICE_TO_HOST,
    COPY_HOST_TO_DEVICE, COPY_HOST_TO_HOST, KernelDispatch, KernelSymbol, MemoryCopy, RecordHeader,
};
use crate::calls::{COMMANDS, LAUNCHES};
use crate::devices::Gpu;
use ampere_gpu::{DeviceClock, Frame, Host, Known, Losses, Stream, next_launch};
use rustc_hash::FxHashMap;
use scorep_abi::{paradigm, region_type};
use std::collections::HashMap;
use std::ffi::{CStr, c_int};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Where a command ran: a queue of a GPU, or a GPU's engines for copies.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Place {
    Queue { agent: u64, queue: u64 },
    Copies { agent: u64 },
}

impl Place {
    fn agent(self) -> u64 {
        match self {
            Place::Queue { agent, .. } | Place::Copies { agent } => agent,
        }
    }
}

/// A command that has run, with times of the runtime's clock.
struct Command {
    place: Place,
    start: u64,
    end: u64,
    correlation: u64,
    region: u32,
}

/// A kernel: its name, and its region once it has run.
struct Kernel {
    name: Vec<u8>,
    region: u32,
}

/// The kernels of all loaded code objects, by their numbers.
#[derive(Default)]
pub(crate) struct Kernels(Mutex<FxHashMap<u64, Kernel>>);

/// Locks a mutex, even if another thread has panicked while it held the lock.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Kernels {
    /// Adds a kernel of a code object that was loaded. The runtime appends `.kd` to the names of kernels.
    ///
    /// # Safety
    /// `symbol` is null, or as rocprofiler-sdk makes it.
    pub unsafe fn add(&self, symbol: *const KernelSymbol) {
        // SAFETY: this function's contract: the size is the first field.
        if symbol.is_null() || unsafe { (*symbol).size } < size_of::<KernelSymbol>() as u64 {
            return;
        }
        // SAFETY: as above, and the structure has all fields.
        let KernelSymbol { kernel, name, .. } = unsafe { *symbol };
        if name.is_null() {
            return;
        }
        // SAFETY: as above: a C string.
        let name = unsafe { CStr::from_ptr(name) }.to_bytes();
        let name = name.strip_suffix(b".kd").unwrap_or(name).to_vec();
        lock(&self.0).insert(kernel, Kernel { name, region: 0 });
    }

    fn region(&self, host: &Host, number: u64) -> u32 {
        let mut kernels = lock(&self.0);
        let kernel = kernels.entry(number).or_insert_with(|| Kernel {
            name: format!("kernel {number} of unknown name").into_bytes(),
            region: 0,
        });
        if kernel.region == 0 {
            kernel.region = host.region(&kernel.name, region_type::KERNEL, paradigm::HIP);
        }
        kernel.region
    }
}

/// Returns the region of a copy.
fn copy_region(host: &Host, operation: c_int) -> u32 {
    let name: &[u8] = match operation {
        COPY_HOST_TO_HOST => b"[HIP memcpy HtoH]",
        COPY_HOST_TO_DEVICE => b"[HIP memcpy HtoD]",
        COPY_DEVICE_TO_HOST => b"[HIP memcpy DtoH]",
        COPY_DEVICE_TO_DEVICE => b"[HIP memcpy DtoD]",
        _ => b"[HIP memcpy]",
    };
    host.region(name, region_type::RMA, paradigm::HIP)
}

/// A stream, and when the last of its commands ended, by both clocks.
struct KnownStream {
    stream: Stream,
    last: u64,
    last_ticks: u64,
}

/// The streams that commands have run on.
pub(crate) struct Streams {
    gpus: HashMap<u64, Gpu>,
    streams: FxHashMap<Place, KnownStream>,
    clock: DeviceClock,
    /// The number of commands that records have described.
    seen: u64,
    /// The number of dropped records that the last batch reported.
    dropped: u64,
    known: Known,
}

impl Streams {
    pub fn new(gpus: HashMap<u64, Gpu>, ticks_per_nanosecond: f64) -> Streams {
        let clock = DeviceClock::new(ticks_per_nanosecond);
        Streams { gpus, streams: FxHashMap::default(), clock, seen: 0, dropped: 0, known: Known::default() }
    }

    /// Processes a reading of the clock that all records use, with readings of the run's clock before and after it.
    pub fn read_clock(&mut self, host: &Host, (before, time, after): (u64, u64, u64), losses: &Losses) {
        // While the drift is not known, times are only as exact as this rate.
        self.clock.set_rate(host.ticks_per_nanosecond());
        self.clock.add(before, time, after);
        losses.record_clock(&self.clock);
    }

    /// Records a batch. `dropped` records were dropped since the start.
    ///
    /// # Safety
    /// The headers are as rocprofiler-sdk makes them.
    pub unsafe fn take(
        &mut self,
        host: &Host,
        kernels: &Kernels,
        losses: &Losses,
        headers: &[*const RecordHeader],
        dropped: u64,
    ) {
        // SAFETY: this function's contract.
        let commands = headers.iter().filter_map(|&header| unsafe { command(host, kernels, header) });
        let mut commands: Vec<Command> = commands.collect();
        commands.sort_by_key(|command| command.start);
        self.seen += commands.len() as u64;
        commands.iter().for_each(|command| COMMANDS.recorded(command.correlation));
        let impossible = commands.iter().filter(|command| !self.push(command, losses)).count() as u64;
        // All new streams are opened before any of them has frames, because live figures wait for all streams that are open.
        self.streams.values_mut().for_each(|known| known.stream.open(host));
        let left_out: u64 = self.streams.values_mut().map(|known| known.stream.flush(host)).sum();
        let newly_dropped = if dropped >= self.dropped { dropped - self.dropped } else { dropped };
        self.dropped = dropped;
        self.seen += newly_dropped;
        losses.count(impossible + left_out + newly_dropped);
        losses.record_clock(&self.clock);
    }

    /// Remembers this moment. This is called before a delivery.
    pub fn remember(&mut self, time: u64) {
        self.known.remember(time, next_launch());
    }

    /// Reports the time until which all commands are known. This is called after a delivery.
    pub fn report_known(&mut self, host: &Host) {
        if let Some(time) = self.known.until(|launch| COMMANDS.are_recorded(launch), self.clock.nominal()) {
            self.streams.values().for_each(|known| known.stream.quiet_until(host, time));
        }
    }

    /// Whether fewer commands have been recorded than launched.
    pub fn has_less_than(&self, launched: u64) -> bool {
        self.seen < launched
    }

    /// Returns the number of launched commands whose records have not come. Each is counted once.
    pub fn missing(&mut self, launched: u64) -> u64 {
        let missing = launched.saturating_sub(self.seen);
        self.seen += missing;
        missing
    }

    /// Returns whether the command can be recorded.
    fn push(&mut self, command: &Command, losses: &Losses) -> bool {
        let (Some(mut begin), Some(end)) = (self.clock.ticks(command.start), self.clock.ticks(command.end))
        else {
            return false;
        };
        // No command begins before its launch. If it seems to, the device's clock has at least that error.
        if let Some(launch) = LAUNCHES.at(command.correlation).filter(|launch| begin <= *launch) {
            losses.raise_clock_error_to(((launch - begin) as f64 / self.clock.nominal()) as u64);
            begin = launch + 1;
        }
        let Some(known) = self.stream_of(command.place) else { return false };
        if command.start == 0 || command.start > command.end {
            return false;
        }
        // Better readings of the clock shift later times a little. Commands that did not overlap must still not overlap.
        let begin = if command.start >= known.last { begin.max(known.last_ticks) } else { begin };
        let end = end.max(begin);
        if command.end >= known.last {
            (known.last, known.last_ticks) = (command.end, end);
        }
        known.stream.push(Frame { begin, end, correlation: command.correlation, region: command.region })
    }

    fn stream_of(&mut self, place: Place) -> Option<&mut KnownStream> {
        if !self.streams.contains_key(&place) {
            let number = self.streams.keys().filter(|known| known.agent() == place.agent()).count() as u64;
            let gpu = self.gpus.get(&place.agent())?;
            let stream = Stream::new("HIP", &gpu.name, number, gpu.device.clone());
            self.streams.insert(place, KnownStream { stream, last: 0, last_ticks: 0 });
        }
        self.streams.get_mut(&place)
    }
}

/// Returns the command of a record; `None` if the record is of another kind, or older than the types of this crate.
///
/// # Safety
/// `header` is null, or as rocprofiler-sdk makes it.
unsafe fn command(host: &Host, kernels: &Kernels, header: *const RecordHeader) -> Option<Command> {
    // SAFETY: this function's contract.
    let header = unsafe { header.as_ref() }?;
    if header.category != CATEGORY_TRACING as u32 || header.payload.is_null() {
        return None;
    }
    // SAFETY: as above: every record begins with its size.
    let has = |bytes: usize| unsafe { header.payload.cast::<u64>().read() } >= bytes as u64;
    match header.kind as c_int {
        BUFFER_KERNEL_DISPATCH if has(size_of::<KernelDispatch>() - RESERVED) => {
            // SAFETY: as above, and the record has all fields that are read.
            let record = unsafe { &*header.payload.cast::<KernelDispatch>() };
            Some(Command {
                place: Place::Queue { agent: record.info.agent.0, queue: record.info.queue.0 },
                start: record.start,
                end: record.end,
                correlation: record.correlation.external,
                region: kernels.region(host, record.info.kernel),
            })
        }
        BUFFER_MEMORY_COPY if has(size_of::<MemoryCopy>()) => {
            // SAFETY: as above.
            let record = unsafe { &*header.payload.cast::<MemoryCopy>() };
            // A copy from a GPU to the host belongs to that GPU, and any other copy to the GPU that it goes to.
            let gpu = if record.operation == COPY_DEVICE_TO_HOST { record.from } else { record.to };
            Some(Command {
                place: Place::Copies { agent: gpu.0 },
                start: record.start,
                end: record.end,
                correlation: record.correlation.external,
                region: copy_region(host, record.operation),
            })
        }
        _ => None,
    }
}

/// The number of bytes at the end of a kernel's record that its size may not include.
const RESERVED: usize = 56;
