//! Queues, and the commands that run on them.

use crate::abi::{
    self, Handle, clEnqueueMarkerWithWaitList, clGetEventInfo, clGetEventProfilingInfo, clReleaseEvent,
    clRetainEvent, clSetEventCallback, place,
};
use crate::devices::describe;
use crate::host_times::HostTimes;
use crate::{CL_SUCCESS, Layer, layer};
use ampere_gpu::{Device, DeviceClock, Frame, Host, Losses, Stream, guarded, regularly};
use rustc_hash::FxHashMap;
use scorep_abi::paradigm;
use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once};

const CL_COMPLETE: i32 = 0;
const CL_EVENT_COMMAND_EXECUTION_STATUS: u32 = 0x11D3;
const CL_PROFILING_COMMAND_QUEUED: u32 = 0x1280;
const CL_PROFILING_COMMAND_START: u32 = 0x1282;
const CL_PROFILING_COMMAND_END: u32 = 0x1283;

/// A command that starts this many nanoseconds before it was queued has wrong times. Smaller differences occur, because
/// runtimes may read different clocks for the two times.
const EARLY_MAX: u64 = 10_000_000;

/// The maximum number of frames that wait for others that may have begun before them.
const WAITING_MAX: usize = 64;
/// The maximum time for which frames wait, in nanoseconds. It is checked when a command of the queue completes, and every 100
/// ms.
const WAIT_MAX: f64 = 1e8;
/// [`WAIT_MAX`] in ticks.
static WAIT_TICKS: AtomicU64 = AtomicU64::new(0);

pub static LOSSES: Losses = Losses::new(paradigm::OPENCL);

/// A queue that the program has made.
pub struct Queue {
    /// The properties that the program asked for; `None` if they included profiling, so that this layer changed nothing.
    pub asked: Option<Asked>,
    /// Whether the runtime gives the times of the queue's commands.
    pub has_times: bool,
    /// The number of the queue's device.
    device: usize,
    records: Mutex<Records>,
}

/// The properties with which the program has made a queue.
pub struct Asked {
    /// The bits of CL_QUEUE_PROPERTIES.
    pub bits: u64,
    /// The list that clCreateCommandQueueWithProperties got, with its final 0; empty without a list.
    pub list: Vec<u64>,
}

/// The recorded commands of a queue.
struct Records {
    stream: Stream,
    pending: Vec<*mut Command>,
    /// The start times, in ticks, of calls that are enqueueing a command now.
    calls: Vec<u64>,
}

// SAFETY: the commands are used under the lock of their queue.
unsafe impl Send for Records {}

/// A command that was enqueued and has not completed. OpenCL holds its address until then.
struct Command {
    queue: Arc<Queue>,
    event: Handle,
    /// The command's index among the queue's pending commands.
    place: usize,
    /// Whether [`flush`] has read its times at the end of the measurement.
    is_taken: bool,
    launch: Launch,
}

/// The properties of a command that are known when it is enqueued.
#[derive(Clone, Copy)]
pub struct Launch {
    /// The region of the kernel or copy.
    pub region: u32,
    /// The number of the launch.
    pub correlation: u64,
    /// The times before and after the call that enqueued it, in ticks.
    pub called: (u64, u64),
    /// The times of the system's clocks just before that call, if they were wanted.
    pub host_times: Option<HostTimes>,
}

/// The times of a command, in nanoseconds of the device.
pub struct Times {
    pub queued: u64,
    pub begin: u64,
    pub end: u64,
}

#[derive(Default)]
struct All {
    queues: FxHashMap<usize, Arc<Queue>>,
    /// Regions of kernels, by their handles.
    kernels: FxHashMap<usize, u32>,
    /// Streams of released queues, by device. The next queue on the same device takes one of them.
    free: Vec<(usize, Stream)>,
    /// The handles and descriptions of the devices, by their numbers.
    devices: Vec<(usize, Device)>,
    /// The number of streams so far.
    streams: u64,
}

static ALL: Mutex<Option<All>> = Mutex::new(None);
/// The clocks of devices, by their numbers.
static CLOCKS: Mutex<Vec<DeviceClock>> = Mutex::new(Vec::new());

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

fn with_all<T>(body: impl FnOnce(&mut All) -> T) -> T {
    body(lock(&ALL).get_or_insert_default())
}

/// Stores a queue that the program has made. An earlier queue with the same handle has been released.
pub fn add(queue: Handle, device: Handle, asked: Option<Asked>, has_times: bool) {
    let described = describe(device);
    let new = with_all(|all| {
        let known = all.devices.iter().position(|(known, _)| *known == device.addr());
        let device = known.unwrap_or_else(|| {
            all.devices.push((device.addr(), described));
            all.devices.len() - 1
        });
        let free = all.free.iter().position(|(of, _)| *of == device);
        let mut stream = match free {
            Some(place) => all.free.swap_remove(place).1,
            None => {
                all.streams += 1;
                let context = format!("device {device}");
                Stream::new("OpenCL", &context, all.streams - 1, all.devices[device].1.clone())
            }
        };
        if let Some(layer) = layer() {
            stream.open(&layer.host);
        }
        let records = Mutex::new(Records { stream, pending: Vec::new(), calls: Vec::new() });
        Arc::new(Queue { asked, has_times, device, records })
    });
    let former = with_all(|all| all.queues.insert(queue.addr(), new.clone()));
    drop(former);
    if has_times {
        set_clock(new, queue);
    }
}

/// The process that has started the measurement.
static PROCESS: AtomicU32 = AtomicU32::new(0);
/// Whether the last commands are being recorded.
static IS_ENDING: AtomicBool = AtomicBool::new(false);

/// Starts the measurement. Returns whether events are recorded.
pub fn start(host: &Host) -> bool {
    static ONCE: Once = Once::new();
    let is_started = host.start(flush);
    if is_started {
        ONCE.call_once(|| {
            PROCESS.store(std::process::id(), Ordering::Relaxed);
            regularly("ampere-opencl", report_known);
        });
    }
    is_started
}

/// Reports, for each queue, the time until which all commands are known. Returns whether there can be more commands.
fn report_known() -> bool {
    let Some(host) = layer().map(|layer| layer.host).filter(Host::is_recording) else { return false };
    let now = host.now();
    let queues: Vec<Arc<Queue>> = with_all(|all| {
        all.free.iter().for_each(|(_, stream)| stream.quiet_until(&host, now));
        all.queues.values().cloned().collect()
    });
    for queue in queues {
        lock(&queue.records).report_known(&host, now);
    }
    true
}

impl Queue {
    /// Records the start of a call that enqueues a command. Returns its time in ticks, which is before the command's start.
    pub fn call_begins(&self, host: &Host) -> u64 {
        let mut records = lock(&self.records);
        let now = host.now();
        records.calls.push(now);
        now
    }

    /// Records that the call that began at this time has ended.
    pub fn call_ends(&self, began: u64) {
        let calls = &mut lock(&self.records).calls;
        if let Some(place) = calls.iter().position(|call| *call == began) {
            calls.swap_remove(place);
        }
    }
}

/// Enqueues a marker on a new queue. It completes at once, and shows how the device's clock relates to the run's. The call that
/// enqueues the first kernel would show this less exactly, because it may compile the kernel.
fn set_clock(queue: Arc<Queue>, handle: Handle) {
    let Some(Layer { host, .. }) =
        layer().filter(|layer| !layer.target[place::clEnqueueMarkerWithWaitList].is_null())
    else {
        return;
    };
    HostTimes::want();
    let (host_times, before) = (HostTimes::wanted(host), host.now());
    let mut event: Handle = null_mut();
    // SAFETY: the queue is new; the event is written if the call succeeds.
    let code = unsafe { clEnqueueMarkerWithWaitList(handle, 0, null(), &mut event) };
    if code == CL_SUCCESS {
        let launch = Launch { region: 0, correlation: 0, called: (before, host.now()), host_times };
        follow(queue, event, true, launch);
    }
}

/// Whether this process is a forked child, in which the lock of [`ALL`] may be held by a thread that exists only in the parent.
fn is_forked() -> bool {
    PROCESS.load(Ordering::Relaxed) != std::process::id()
}

/// Forgets a queue when the program releases the last reference. Commands that are still running keep the queue alive.
pub fn forget(queue: Handle) {
    if is_forked() {
        return;
    }
    drop(with_all(|all| all.queues.remove(&queue.addr())));
}

impl Drop for Queue {
    /// Keeps the stream for the next queue on the device.
    fn drop(&mut self) {
        let records = self.records.get_mut().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(layer) = layer() {
            LOSSES.count(records.stream.flush(&layer.host));
        }
        let unused = Stream::new("OpenCL", "", 0, Device::default());
        let stream = std::mem::replace(&mut records.stream, unused);
        with_all(|all| all.free.push((self.device, stream)));
    }
}

/// Returns the queue with this handle, if it was made while events were recorded.
pub fn of(queue: Handle) -> Option<Arc<Queue>> {
    with_all(|all| all.queues.get(&queue.addr()).cloned())
}

/// Returns the region of a kernel. `define` finds it if it is not known yet.
pub fn kernel(kernel: Handle, define: impl FnOnce() -> u32) -> u32 {
    if let Some(region) = with_all(|all| all.kernels.get(&kernel.addr()).copied()) {
        return region;
    }
    let region = define();
    with_all(|all| all.kernels.insert(kernel.addr(), region));
    region
}

/// Forgets a kernel when the program releases it, because another kernel may get the same handle.
pub fn forget_kernel(kernel: Handle) {
    if is_forked() {
        return;
    }
    with_all(|all| all.kernels.remove(&kernel.addr()));
}

/// Records a command when it completes. `is_ours`: only this layer has the event.
pub fn follow(queue: Arc<Queue>, event: Handle, is_ours: bool, launch: Launch) {
    // SAFETY: the event is valid, because the call that made it has just succeeded. Only another thread of the program could
    // release it in the meantime, which would be an error without this layer as well.
    if !queue.has_times || !is_ours && unsafe { clRetainEvent(event) } != CL_SUCCESS {
        LOSSES.count(1);
        return;
    }
    let new = Command { queue: queue.clone(), event, place: 0, is_taken: false, launch };
    let command = Box::into_raw(Box::new(new));
    {
        let mut records = lock(&queue.records);
        // SAFETY: nobody else has the command yet.
        unsafe { (*command).place = records.pending.len() };
        records.pending.push(command);
    }
    // SAFETY: the event is ours until `completed`, which gets the command.
    if unsafe { clSetEventCallback(event, CL_COMPLETE, completed, command.cast()) } != CL_SUCCESS {
        LOSSES.count(1);
        finish(command);
    }
}

/// OpenCL calls this when a command has completed or failed.
extern "C" fn completed(_event: Handle, status: i32, command: *mut c_void) {
    guarded((), || {
        let command: *mut Command = command.cast();
        let Some(host) = layer().map(|layer| layer.host).filter(Host::is_recording) else {
            return finish(command);
        };
        // SAFETY: the command lives until `finish`; these fields do not change.
        let (queue, event, launch) =
            unsafe { ((*command).queue.clone(), (*command).event, (*command).launch) };
        let times = (status == CL_COMPLETE).then(|| times(event)).flatten();
        let frame = times.and_then(|times| frame(&host, queue.device, &times, &launch));
        {
            let mut records = lock(&queue.records);
            // SAFETY: the field is used under the lock.
            if !unsafe { (*command).is_taken } && launch.region != 0 {
                records.take(&host, frame);
            }
        }
        finish(command);
        let mut records = lock(&queue.records);
        if records.is_due(&host) {
            LOSSES.count(records.stream.flush(&host));
        }
    });
}

/// Removes a command from the list of its queue, and releases its event, unless [`flush`] has taken the command.
fn finish(command: *mut Command) {
    // SAFETY: the command lives until the end of this function.
    let queue = unsafe { (*command).queue.clone() };
    let mut records = lock(&queue.records);
    // SAFETY: these fields are used under the lock.
    let (is_taken, place, event) = unsafe { ((*command).is_taken, (*command).place, (*command).event) };
    if is_taken {
        return;
    }
    records.pending.swap_remove(place);
    if let Some(moved) = records.pending.get(place) {
        // SAFETY: commands on the list live.
        unsafe { (**moved).place = place };
    }
    drop(records);
    // SAFETY: the command came from Box::into_raw and is on no list any more; the event is ours.
    unsafe {
        drop(Box::from_raw(command));
        clReleaseEvent(event);
    }
}

impl Records {
    fn take(&mut self, host: &Host, frame: Option<Frame>) {
        if !frame.is_some_and(|frame| self.stream.push(frame)) {
            LOSSES.count(1);
            LOSSES.report(host);
        }
    }

    /// Reports the time until which all commands are known. No command that is being enqueued or is running, and none whose
    /// frame waits, begins before it.
    fn report_known(&mut self, host: &Host, now: u64) {
        if IS_ENDING.load(Ordering::Relaxed) {
            return;
        }
        if self.stream.waiting() > 0 && self.is_due(host) {
            LOSSES.count(self.stream.flush(host));
        }
        // SAFETY: commands on the list live; their launch does not change.
        let running = self.pending.iter().map(|command| unsafe { (**command).launch.called.0 });
        let first = running.chain(self.calls.iter().copied()).chain(self.stream.oldest()).min();
        self.stream.quiet_until(host, first.map_or(now, |first| first.min(now)));
    }

    /// Whether the waiting frames can be recorded now: no command is running that can have begun before them, or too many
    /// frames wait, or they have waited for the maximum time.
    fn is_due(&self, host: &Host) -> bool {
        let waits = |since: u64| host.now().saturating_sub(since) > WAIT_TICKS.load(Ordering::Relaxed);
        self.stream.waiting() >= WAITING_MAX
            || self.pending.is_empty()
            || self.stream.oldest().is_some_and(waits)
    }
}

/// Returns the times of a command that has completed; `None` if the runtime does not have them.
fn times(event: Handle) -> Option<Times> {
    let time = |what| abi::property::<u64>(clGetEventProfilingInfo, event, what);
    Some(Times {
        queued: time(CL_PROFILING_COMMAND_QUEUED)?,
        begin: time(CL_PROFILING_COMMAND_START)?,
        end: time(CL_PROFILING_COMMAND_END)?,
    })
}

/// Converts a command to a frame in ticks of the run's clock. The command was queued during the call that enqueued it, which
/// shows how the device's clock relates to the run's.
fn frame(host: &Host, device: usize, times: &Times, launch: &Launch) -> Option<Frame> {
    let mut clocks = lock(&CLOCKS);
    while clocks.len() <= device {
        clocks.push(DeviceClock::new(host.ticks_per_nanosecond()));
    }
    let clock = &mut clocks[device];
    let begins = clock.add(launch.called.0, times.queued, launch.called.1);
    let reading =
        launch.host_times.and_then(|all| all.reading_of(times.queued, launch.called.1, clock.nominal()));
    if begins {
        HostTimes::want();
    }
    if let Some((before, time, after)) = reading {
        clock.add(before, time, after);
        HostTimes::want_no_more();
    }
    if begins {
        let rate = host.ticks_per_nanosecond();
        WAIT_TICKS.store((WAIT_MAX * rate) as u64, Ordering::Relaxed);
        clock.set_rate(rate);
        LOSSES.record_clock(clock);
        LOSSES.report(host);
    }
    let is_possible = times.begin.saturating_add(EARLY_MAX) >= times.queued && times.begin <= times.end;
    if !is_possible {
        return None;
    }
    let (begin, end) = (clock.ticks(times.begin)?, clock.ticks(times.end)?);
    // Whatever error the device's clock has, a command begins after its launch, and a completed command has ended.
    let begin = begin.max(launch.called.0 + 1);
    Some(Frame {
        begin,
        end: end.min(host.now()).max(begin),
        correlation: launch.correlation,
        region: launch.region,
    })
}

/// Records the completed commands, before the measurement ends. Commands that are still running are counted as lost.
pub extern "C" fn flush() {
    guarded((), || {
        let Some(host) = layer().map(|layer| layer.host) else { return };
        IS_ENDING.store(true, Ordering::Relaxed);
        let queues: Vec<Arc<Queue>> = with_all(|all| all.queues.values().cloned().collect());
        for queue in queues {
            let pending = {
                let mut records = lock(&queue.records);
                let pending = std::mem::take(&mut records.pending);
                for command in &pending {
                    // SAFETY: commands on the list live; the field is used under the lock. From now on the command is never
                    // freed.
                    unsafe { (**command).is_taken = true };
                }
                pending
            };
            // SAFETY: as above; the launch does not change.
            let regions: Vec<u32> =
                pending.iter().map(|command| unsafe { (**command).launch.region }).collect();
            // The lock is released, because OpenCL may call `completed` at the same time.
            let frames: Vec<Option<Frame>> = pending
                .iter()
                .map(|command| {
                    // SAFETY: as above; these fields do not change.
                    let (event, launch) = unsafe { ((**command).event, &(**command).launch) };
                    let status =
                        abi::property::<i32>(clGetEventInfo, event, CL_EVENT_COMMAND_EXECUTION_STATUS);
                    let times = (status == Some(CL_COMPLETE)).then(|| times(event)).flatten();
                    times.and_then(|times| frame(&host, queue.device, &times, launch))
                })
                .collect();
            let mut records = lock(&queue.records);
            // Our own marker has no region.
            let frames = frames.into_iter().zip(&regions).filter(|(_, region)| **region != 0);
            frames.for_each(|(frame, _)| records.take(&host, frame));
            LOSSES.count(records.stream.flush(&host));
        }
        lock(&CLOCKS).iter().for_each(|clock| LOSSES.record_clock(clock));
        LOSSES.report(&host);
    });
}
