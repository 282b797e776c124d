//! The kernel's events and rings: one ring for each CPU, and one event for each CPU and thread that is sampled.
#![allow(unsafe_code)]

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ampere_model::{CountedEvent, EventPart};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Resource, getrlimit};
use rustix::thread::CpuSet;

use crate::counts::{GroupRead, GroupTotals};
use crate::machine;
use crate::options::{Options, StacksError};
use crate::processes::SampledThreads;

/// `perf_event_attr` in its fifth version.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_watermark: u32,
    bp_type: u32,
    config1: u64,
    config2: u64,
    branch_sample_type: u64,
    sample_regs_user: u64,
    sample_stack_user: u32,
    clockid: i32,
    sample_regs_intr: u64,
    aux_watermark: u32,
    sample_max_stack: u16,
    reserved: u16,
}

const SOFTWARE: u32 = 1;
const CPU_CLOCK: u64 = 0;
const TASK_CLOCK: u64 = 1;
const DUMMY: u64 = 9;
const SAMPLE_TID: u64 = 1 << 1;
const SAMPLE_TIME: u64 = 1 << 2;
/// A sample has the values of all events of its group.
const SAMPLE_READ: u64 = 1 << 4;
const SAMPLE_REGS_USER: u64 = 1 << 12;
const SAMPLE_STACK_USER: u64 = 1 << 13;
/// The form of the values of `SAMPLE_READ`: the times for which the group was enabled and counted, and all values with the
/// events' numbers.
const READ_FORMAT: u64 = 1 | 1 << 1 | 1 << 2 | 1 << 3;
const DISABLED: u64 = 1;
const INHERIT: u64 = 1 << 1;
const EXCLUDE_KERNEL: u64 = 1 << 5;
const EXCLUDE_HYPERVISOR: u64 = 1 << 6;
const MAP: u64 = 1 << 8;
const NAME: u64 = 1 << 9;
const ENABLE_ON_EXEC: u64 = 1 << 12;
const TASK: u64 = 1 << 13;
const WATERMARK: u64 = 1 << 14;
const SAMPLE_ID_ALL: u64 = 1 << 18;
const EXCLUDE_CHAIN_KERNEL: u64 = 1 << 21;
const EXCLUDE_CHAIN_USER: u64 = 1 << 22;
const MAP2: u64 = 1 << 23;
const NAME_AT_EXEC: u64 = 1 << 24;
const USE_CLOCK: u64 = 1 << 25;
/// Records of mappings have the files' build ids. Kernels before 5.12 do not support this.
const BUILD_ID: u64 = 1 << 34;
const CONTEXT_SWITCH: u64 = 1 << 26;

const CLOSE_ON_EXEC: libc::c_ulong = 1 << 3;
/// The values of `_IO('$', 0)` and `_IO('$', 5)`.
const ENABLE: libc::Ioctl = 0x2400u32 as libc::Ioctl;
const SET_OUTPUT: libc::Ioctl = 0x2405u32 as libc::Ioctl;
/// The offsets, in the page that is shared with the kernel, of the kernel's position and of the reader's.
const HEAD: usize = 1024;
const TAIL: usize = 1032;
/// The sizes of rings that are tried, the largest first: users may often lock only 8 MB, or 516 kB for each CPU.
const RING_BYTES: [usize; 4] = [2 << 20, 1 << 20, 512 << 10, 256 << 10];
/// The maximum size of all rings together, unless rings of the smallest two sizes need more.
const RINGS_BYTES_MAX: usize = 128 << 20;

fn attributes(options: &Options) -> Attributes {
    let kernel = if options.kernel { 0 } else { EXCLUDE_KERNEL };
    let (sample_read, read_format) =
        if options.events.is_empty() { (0, 0) } else { (SAMPLE_READ, READ_FORMAT) };
    Attributes {
        kind: SOFTWARE,
        size: size_of::<Attributes>() as u32,
        config: CPU_CLOCK,
        sample_period: options.period.as_nanos() as u64,
        sample_type: SAMPLE_TID | SAMPLE_TIME | SAMPLE_REGS_USER | SAMPLE_STACK_USER | sample_read,
        read_format,
        flags: kernel
            | (DISABLED | INHERIT | EXCLUDE_HYPERVISOR | MAP | NAME | TASK | WATERMARK)
            | (SAMPLE_ID_ALL | EXCLUDE_CHAIN_KERNEL | EXCLUDE_CHAIN_USER | MAP2 | NAME_AT_EXEC | USE_CLOCK)
            | CONTEXT_SWITCH
            | BUILD_ID,
        sample_regs_user: machine::mask(),
        sample_stack_user: options.stack_bytes,
        clockid: options.clock,
        ..Attributes::default()
    }
}

fn open(attributes: &Attributes, thread: u32, cpu: u32) -> io::Result<OwnedFd> {
    open_in(attributes, thread, cpu, -1)
}

/// Opens an event in the group whose first event is `leader`; -1 for an event without a group.
fn open_in(attributes: &Attributes, thread: u32, cpu: u32, leader: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: the attributes have the kernel's layout, include their size, and outlive the call.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            attributes as *const Attributes,
            thread as libc::pid_t,
            cpu as libc::c_int,
            leader as libc::c_int,
            CLOSE_ON_EXEC,
        )
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: this is a new descriptor, which nothing else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

/// The number that means any CPU.
const ANY_CPU: u32 = u32::MAX;

/// Opens an event that counts the CPU time of the programs that a thread, and the processes that it starts, execute from now on.
pub(crate) fn count_commands(thread: u32) -> io::Result<OwnedFd> {
    let attributes = Attributes {
        kind: SOFTWARE,
        size: size_of::<Attributes>() as u32,
        config: TASK_CLOCK,
        flags: DISABLED | INHERIT | EXCLUDE_KERNEL | EXCLUDE_HYPERVISOR | ENABLE_ON_EXEC,
        ..Attributes::default()
    };
    open(&attributes, thread, ANY_CPU)
}

/// Opens an event that samples the calling thread from now on, and its ring.
pub(crate) fn sample_this_thread(options: &Options) -> io::Result<(OwnedFd, Ring)> {
    let attributes = known_attributes(attributes(options));
    // An event that is inherited and not bound to a CPU cannot have a ring.
    let event = open(&Attributes { flags: attributes.flags & !INHERIT, ..attributes }, 0, ANY_CPU)?;
    let ring = Ring::map(&event, RING_BYTES[3])?;
    control(&event, ENABLE, 0)?;
    Ok((event, ring))
}

/// Whether the kernel refuses an event because of permissions.
fn is_refused(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EACCES | libc::EPERM))
}

fn paranoia() -> Option<i32> {
    std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").ok()?.trim().parse().ok()
}

/// When the sampling of a process starts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum SamplingStart {
    /// When the process, or one that it has started, executes the next program.
    AtExec,
    Now,
}

/// An event of a thread on a CPU, and the events that are counted together with it.
pub(crate) struct Group {
    leader: OwnedFd,
    members: Vec<OwnedFd>,
    /// Receives the counts when the events are closed.
    totals: Arc<Mutex<GroupTotals>>,
}

impl Group {
    /// Opens, and closes again, a group of these events for the calling thread, as for samples.
    pub(crate) fn try_out(events: &[CountedEvent], options: &Options) -> io::Result<()> {
        let attributes = known_attributes(attributes(&Options { kernel: false, ..options.clone() }));
        let attributes = Attributes {
            sample_type: attributes.sample_type | SAMPLE_READ,
            read_format: READ_FORMAT,
            ..attributes
        };
        let leader = open(&attributes, 0, ANY_CPU)?;
        let parts = events.iter().flat_map(|event| &event.parts);
        let members: Vec<io::Result<OwnedFd>> =
            parts.map(|part| open_member(part, &attributes, 0, ANY_CPU, &leader)).collect();
        members.into_iter().try_for_each(|member| member.map(drop))
    }

    fn files(&self) -> usize {
        1 + self.members.len()
    }
}

impl Drop for Group {
    /// Adds the counts of all threads that have inherited the events, including those that have ended.
    fn drop(&mut self) {
        let mut bytes = vec![0; 24 + 16 * self.files()];
        if self.members.is_empty() || rustix::io::read(&self.leader, &mut bytes) != Ok(bytes.len()) {
            return;
        }
        if let (Ok(mut totals), Some(read)) = (self.totals.lock(), GroupRead::parse(&bytes)) {
            totals.add(&read);
        }
    }
}

/// Opens a further event of a group.
fn open_member(
    part: &EventPart,
    leader: &Attributes,
    thread: u32,
    cpu: u32,
    group: &OwnedFd,
) -> io::Result<OwnedFd> {
    let attributes = Attributes {
        kind: part.kind,
        size: size_of::<Attributes>() as u32,
        config: part.config,
        sample_type: SAMPLE_TID | SAMPLE_READ,
        read_format: READ_FORMAT,
        flags: leader.flags & (INHERIT | EXCLUDE_KERNEL | EXCLUDE_HYPERVISOR | USE_CLOCK),
        clockid: leader.clockid,
        ..Attributes::default()
    };
    open_in(&attributes, thread, cpu, group.as_raw_fd())
}

/// The events of a process. Processes that it starts inherit them, and lose them when they are closed.
pub(crate) struct Opened {
    begin: SamplingStart,
    files: Vec<Group>,
}

/// The rings, and the events that write to them.
pub(crate) struct Events {
    /// For each CPU, an event of this process that counts nothing. The ring belongs to this event, so that the ring exists
    /// independently of the sampled processes.
    of_cpus: Vec<(u32, OwnedFd)>,
    pub(crate) rings: Vec<Ring>,
    attributes: Attributes,
    /// The events of each process.
    sampled: HashMap<u32, Opened>,
    /// The number of files that were open before the sampler.
    other_files: usize,
    /// The perf events that are counted together with samples.
    parts: Vec<EventPart>,
    pub(crate) totals: Arc<Mutex<GroupTotals>>,
}

impl Events {
    /// Makes a ring for each of these CPUs.
    pub(crate) fn open(options: &Options, cpus: &[u32]) -> Result<Events, StacksError> {
        let mut attributes = known_attributes(attributes(options));
        if !options.samples {
            attributes.config = DUMMY;
            attributes.flags &= !(MAP | MAP2 | BUILD_ID);
        }
        let other_files = std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
        let parts: Vec<EventPart> = options.events.iter().flat_map(|event| event.parts.clone()).collect();
        let totals = Arc::new(Mutex::new(GroupTotals::new(parts.len())));
        let mut events = Events {
            of_cpus: Vec::new(),
            rings: Vec::new(),
            attributes,
            sampled: HashMap::new(),
            other_files,
            parts,
            totals,
        };
        if cpus.len() > events.files_max() / 2 {
            return Err(StacksError::CpuFiles { needed: cpus.len() });
        }
        for cpu in cpus {
            if let Some(file) = events.open_cpu(*cpu)? {
                events.of_cpus.push((*cpu, file));
            }
        }
        events.rings = map_rings(&events.of_cpus).map_err(why_no_ring)?;
        Ok(events)
    }

    /// Opens the event that has the ring of a CPU, to which the CPU's other events write. `None` if there is no such CPU.
    fn open_cpu(&self, cpu: u32) -> Result<Option<OwnedFd>, StacksError> {
        let own = Attributes {
            config: DUMMY,
            flags: self.attributes.flags & !(INHERIT | CONTEXT_SWITCH),
            ..self.attributes
        };
        match open(&own, 0, cpu) {
            Ok(file) => Ok(Some(file)),
            // The CPU went offline, or a container numbers its CPUs differently.
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(None),
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) && cpu > 0 => Ok(None),
            Err(error) if is_refused(&error) => {
                let level = paranoia().filter(|level| *level > 2);
                Err(level.map_or(StacksError::Denied, |level| StacksError::Paranoid { level }))
            }
            Err(error) if error.raw_os_error() == Some(libc::ENOSYS) => Err(StacksError::Absent),
            Err(source) => Err(StacksError::System { call: "perf_event_open", source }),
        }
    }

    pub(crate) fn has_cpu(&self, cpu: u32) -> bool {
        self.of_cpus.iter().any(|(known, _)| *known == cpu)
    }

    /// Extends sampling to a CPU that did not exist before. Returns whether the CPU exists. `processes` are those that are
    /// sampled.
    pub(crate) fn add_cpu(&mut self, cpu: u32, processes: &[SampledThreads]) -> Result<bool, StacksError> {
        let Some(file) = self.open_cpu(cpu)? else { return Ok(false) };
        let bytes = self.rings.iter().map(Ring::bytes).min().unwrap_or(RING_BYTES[0]);
        let ring = Ring::map(&file, bytes).map_err(why_no_ring)?;
        let place = self.of_cpus.len();
        self.of_cpus.push((cpu, file));
        self.rings.push(ring);
        for SampledThreads { process, root, threads } in processes {
            let Some(begin) = self.sampled.get(root).map(|opened| opened.begin) else { continue };
            let begin = if process == root { begin } else { SamplingStart::Now };
            let needed = threads.len() * self.files_each();
            if self.used() + needed > self.files_max() / 2 {
                return Err(StacksError::Files { process: *process, needed });
            }
            // Threads that have ended in the meantime need no event.
            let files: Vec<Group> = (threads.iter())
                .filter_map(|thread| {
                    let (cpu, ring) = &self.of_cpus[place];
                    self.open_into((*cpu, ring), *thread, begin).ok()
                })
                .collect();
            self.sampled.entry(*root).and_modify(|opened| opened.files.extend(files));
        }
        Ok(true)
    }

    /// Returns the number of files that may be open at a time, without those that were open before the sampler.
    fn files_max(&self) -> usize {
        files_max().saturating_sub(self.other_files)
    }

    /// Returns the number of open files of events.
    fn used(&self) -> usize {
        let groups = self.sampled.values().flat_map(|opened| &opened.files);
        self.of_cpus.len() + groups.map(Group::files).sum::<usize>()
    }

    /// Returns the number of files for each thread and CPU.
    fn files_each(&self) -> usize {
        1 + self.parts.len()
    }

    /// Opens events of these threads of a process, and of everything that they start. Returns the threads that still exist.
    pub(crate) fn add(
        &mut self,
        process: u32,
        mut threads: Vec<u32>,
        begin: SamplingStart,
    ) -> Result<Vec<u32>, StacksError> {
        let mut files = Vec::new();
        let mut ended = Vec::new();
        let of_threads = self.cpus_of(process, &threads)?;
        for (&thread, cpus) in threads.iter().zip(of_threads) {
            for (cpu, ring) in cpus {
                match self.open_into((*cpu, ring), thread, begin) {
                    Ok(file) => files.push(file),
                    Err(error) if error.raw_os_error() == Some(libc::ESRCH) && thread != process => {
                        ended.push(thread);
                    }
                    Err(error) if error.raw_os_error() == Some(libc::ENODEV) => {} // the CPU went offline
                    Err(error) if is_refused(&error) => return Err(StacksError::OffLimits { process }),
                    Err(source) => {
                        return Err(match source.raw_os_error() {
                            Some(libc::ESRCH) => StacksError::NoProcess { process },
                            Some(libc::EMFILE | libc::ENFILE) => {
                                let needed = self.of_cpus.len() * threads.len() * self.files_each();
                                StacksError::Files { process, needed }
                            }
                            _ => StacksError::System { call: "perf_event_open", source },
                        });
                    }
                }
            }
        }
        let opened = self.sampled.entry(process).or_insert(Opened { begin, files: Vec::new() });
        opened.files.extend(files);
        threads.retain(|thread| !ended.contains(thread));
        Ok(threads)
    }

    fn open_into(
        &self,
        (cpu, ring): (u32, &OwnedFd),
        thread: u32,
        begin: SamplingStart,
    ) -> io::Result<Group> {
        let at_exec = if begin == SamplingStart::AtExec { ENABLE_ON_EXEC } else { 0 };
        let attributes = Attributes { flags: self.attributes.flags | at_exec, ..self.attributes };
        let leader = open(&attributes, thread, cpu)?;
        let members = self.open_members(&attributes, thread, cpu, &leader)?;
        let group = Group { leader, members, totals: self.totals.clone() };
        control(&group.leader, SET_OUTPUT, ring.as_raw_fd())?;
        if begin == SamplingStart::Now {
            control(&group.leader, ENABLE, 0)?;
        }
        Ok(group)
    }

    /// Opens the events that are counted together with samples. A CPU that cannot count all of them counts none.
    fn open_members(
        &self,
        attributes: &Attributes,
        thread: u32,
        cpu: u32,
        leader: &OwnedFd,
    ) -> io::Result<Vec<OwnedFd>> {
        let open = |part: &EventPart| open_member(part, attributes, thread, cpu, leader);
        let members: io::Result<Vec<OwnedFd>> = self.parts.iter().map(open).collect();
        let is_final = |error: &io::Error| {
            matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ESRCH | libc::ENODEV))
        };
        match members {
            Err(error) if !is_final(&error) => {
                if let Ok(mut totals) = self.totals.lock() {
                    totals.failed_openings += 1;
                }
                Ok(Vec::new())
            }
            members => members,
        }
    }

    /// Returns the CPUs on which each of these threads is sampled. Normally these are all CPUs, because processes that a thread
    /// starts may be bound to CPUs other than those of the thread itself. When a quarter of the allowed files is in use, they are
    /// only those that the thread is bound to. At most half of the allowed files are used.
    fn cpus_of(&self, process: u32, threads: &[u32]) -> Result<Vec<Vec<&(u32, OwnedFd)>>, StacksError> {
        let (used, limit) = (self.used(), self.files_max());
        let each = self.files_each();
        if used + threads.len() * self.of_cpus.len() * each <= limit / 4 {
            return Ok(vec![self.of_cpus.iter().collect(); threads.len()]);
        }
        let of_thread = |thread: &u32| {
            let pid = Pid::from_raw(*thread as i32);
            let bound = rustix::thread::sched_getaffinity(pid).ok();
            let may_run = |cpu: &&(u32, OwnedFd)| bound.as_ref().is_none_or(|set| set.is_set(cpu.0 as usize));
            self.of_cpus.iter().filter(may_run).collect()
        };
        let cpus: Vec<Vec<_>> = threads.iter().map(of_thread).collect();
        let needed = cpus.iter().map(Vec::len).sum::<usize>() * each;
        if used + needed > limit / 2 { Err(StacksError::Files { process, needed }) } else { Ok(cpus) }
    }

    /// Must be called when a process has executed a program. A process that was added as a launcher is itself sampled from
    /// then on.
    pub(crate) fn executed(&mut self, process: u32) {
        self.sampled.entry(process).and_modify(|opened| opened.begin = SamplingStart::Now);
    }

    /// Returns the start for the events of a process if they are opened again. A launcher itself is still not sampled.
    pub(crate) fn start_of(&self, process: u32) -> SamplingStart {
        self.sampled.get(&process).map_or(SamplingStart::Now, |opened| opened.begin)
    }

    /// Takes the events of all processes. They are closed when the returned map is dropped.
    pub(crate) fn take(&mut self) -> HashMap<u32, Opened> {
        std::mem::take(&mut self.sampled)
    }

    /// Sets the period of events that are opened from now on.
    pub(crate) fn set_period(&mut self, period: Duration) {
        self.attributes.sample_period = period.as_nanos() as u64;
    }

    /// Replaces the present events by those that [`Events::take`] returned.
    pub(crate) fn put_back(&mut self, events: HashMap<u32, Opened>) {
        self.sampled = events;
    }

    /// Closes the events of all processes, so that their counts are complete.
    pub(crate) fn close(&mut self) {
        self.sampled.clear();
    }

    /// Stops sampling the processes for which `is_there` is false, together with those that they have started.
    pub(crate) fn retain(&mut self, is_there: impl Fn(u32) -> bool) {
        self.sampled.retain(|process, _| is_there(*process));
    }

    pub(crate) fn wait(&self, longest: Duration, until: BorrowedFd) {
        let rings = self.of_cpus.iter().map(|(_, file)| PollFd::new(file, PollFlags::IN));
        let mut all = Vec::from_iter(rings.chain([PollFd::from_borrowed_fd(until, PollFlags::IN)]));
        let _ = poll(&mut all, Timespec::try_from(longest).ok().as_ref());
    }
}

/// Returns the CPU time of all threads of a process, including those that have ended, in nanoseconds; `None` after the process
/// has ended and its parent has waited for it.
pub fn cpu_of_process(process: u32) -> Option<u64> {
    // The kernel's ID of the clock of a process' scheduled time (`CPUCLOCK_SCHED`).
    let clock = !(process as libc::clockid_t) << 3 | 2;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes to `time`, which outlives the call.
    let outcome = unsafe { libc::clock_gettime(clock, &mut time) };
    (outcome == 0).then_some(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// Returns the number of files that this process may have open.
pub fn files_max() -> usize {
    getrlimit(Resource::Nofile).current.map_or(usize::MAX, |limit| limit as usize)
}

/// Returns the attributes without those that this kernel does not support.
fn known_attributes(attributes: Attributes) -> Attributes {
    let own =
        Attributes { config: DUMMY, flags: attributes.flags & !(INHERIT | CONTEXT_SWITCH), ..attributes };
    match open(&own, 0, 0) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            Attributes { flags: attributes.flags & !BUILD_ID, ..attributes }
        }
        _ => attributes,
    }
}

fn why_no_ring(source: io::Error) -> StacksError {
    match source.raw_os_error() {
        Some(libc::EPERM | libc::ENOMEM) => StacksError::LockedMemory,
        _ => StacksError::System { call: "mmap of a ring", source },
    }
}

fn control(event: &OwnedFd, what: libc::Ioctl, with: RawFd) -> io::Result<()> {
    // SAFETY: the argument of these two requests is a number.
    match unsafe { libc::ioctl(event.as_raw_fd(), what, with) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Maps the largest rings that the limits allow: one for each CPU, all of the same size.
fn map_rings(of_cpus: &[(u32, OwnedFd)]) -> io::Result<Vec<Ring>> {
    let mut result = Err(io::ErrorKind::NotFound.into());
    for bytes in RING_BYTES {
        if bytes > 512 << 10 && bytes * of_cpus.len() > RINGS_BYTES_MAX {
            continue;
        }
        result = of_cpus.iter().map(|(_, file)| Ring::map(file, bytes)).collect();
        match &result {
            Err(error) if matches!(error.raw_os_error(), Some(libc::EPERM | libc::ENOMEM)) => {}
            _ => break,
        }
    }
    result
}

pub(crate) fn threads_of(process: u32) -> Result<Vec<u32>, StacksError> {
    let entries = std::fs::read_dir(format!("/proc/{process}/task"));
    let entries = entries.map_err(|why| match why.raw_os_error() {
        Some(libc::EMFILE | libc::ENFILE) => StacksError::Files { process, needed: 1 },
        _ => StacksError::NoProcess { process },
    })?;
    let mut threads: Vec<u32> =
        entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect();
    threads.sort_unstable();
    Ok(threads)
}

/// Returns the CPUs that are online, from `/sys/devices/system/cpu/online` or, if that is hidden, `/proc/stat`, and all CPUs that
/// this process may use.
pub(crate) fn online_cpus() -> Vec<u32> {
    let listed = std::fs::read_to_string("/sys/devices/system/cpu/online").ok();
    let mut cpus = listed.and_then(|text| cpu_list(&text)).unwrap_or_else(|| {
        let text = std::fs::read_to_string("/proc/stat").unwrap_or_default();
        cpus_of_stat(&text)
    });
    if let Ok(own) = rustix::thread::sched_getaffinity(None) {
        cpus.extend((0..CpuSet::MAX_CPU).filter(|cpu| own.is_set(*cpu)).map(|cpu| cpu as u32));
    }
    cpus.sort_unstable();
    cpus.dedup();
    cpus
}

/// Parses a list such as `0-3,8`.
fn cpu_list(text: &str) -> Option<Vec<u32>> {
    let parse = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse::<u32>().ok()?..=last.parse::<u32>().ok()?)
    };
    let ranges: Option<Vec<_>> = text.trim().split(',').map(parse).collect();
    Some(ranges?.into_iter().flatten().collect())
}

/// Finds the CPUs in the lines `cpu0 ...`, `cpu1 ...`.
fn cpus_of_stat(text: &str) -> Vec<u32> {
    let number = |line: &str| line.strip_prefix("cpu")?.split(' ').next()?.parse().ok();
    text.lines().filter_map(number).collect()
}

/// The ring of one CPU. Bytes between `position` and `head` belong to the reader.
pub(crate) struct Ring {
    page: NonNull<u8>,
    page_bytes: usize,
    bytes: usize,
    /// The position up to which the ring has been read.
    position: u64,
    head: u64,
}

// SAFETY: the mapping belongs only to this value.
unsafe impl Send for Ring {}

impl Ring {
    fn map(event: &OwnedFd, bytes: usize) -> io::Result<Ring> {
        let page_bytes = rustix::param::page_size();
        // SAFETY: this is a new mapping at an address that the kernel chooses.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                page_bytes + bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                event.as_raw_fd(),
                0,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let page = NonNull::new(address.cast()).ok_or(io::ErrorKind::InvalidData)?;
        Ok(Ring { page, page_bytes, bytes, position: 0, head: 0 })
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Reads, from the shared page, the position up to which the kernel has written.
    pub(crate) fn refresh(&mut self) {
        // SAFETY: this is an aligned word of the kernel's page, which lives as long as self.
        let head = unsafe { self.page.add(HEAD).cast::<AtomicU64>().as_ref() };
        self.head = head.load(Ordering::Acquire);
    }

    pub(crate) fn range(&self) -> std::ops::Range<u64> {
        self.position..self.head
    }

    /// Releases the bytes before `position` to the kernel.
    pub(crate) fn release(&mut self, position: u64) {
        self.position = position.clamp(self.position, self.head);
        // SAFETY: this is an aligned word of the kernel's page, which lives as long as self.
        let tail = unsafe { self.page.add(TAIL).cast::<AtomicU64>().as_ref() };
        tail.store(self.position, Ordering::Release);
    }

    /// Returns the bytes at a position, at most up to the end of the ring's memory.
    fn part(&self, position: u64, length: usize) -> Option<&[u8]> {
        let end = position.checked_add(length as u64)?;
        if position < self.position || end > self.head || self.head - self.position > self.bytes as u64 {
            return None;
        }
        let start = (position % self.bytes as u64) as usize;
        let length = length.min(self.bytes - start);
        // SAFETY: the range is inside the mapping; the kernel does not write between the reader's position and the head, and
        // `release` borrows self mutably.
        Some(unsafe { std::slice::from_raw_parts(self.page.add(self.page_bytes + start).as_ptr(), length) })
    }

    /// Returns the word at a position. Records are aligned, so a word does not cross the end of the ring's memory.
    pub(crate) fn word(&self, position: u64) -> Option<u64> {
        Some(u64::from_ne_bytes(self.part(position, 8)?.try_into().ok()?))
    }

    /// Returns the bytes at a position, in place, or copied to `scratch` if they cross the end of the ring's memory.
    pub(crate) fn slice<'a>(
        &'a self,
        position: u64,
        length: usize,
        scratch: &'a mut Vec<u8>,
    ) -> Option<&'a [u8]> {
        let first = self.part(position, length)?;
        if first.len() == length {
            return Some(first);
        }
        scratch.clear();
        scratch.extend_from_slice(first);
        scratch.extend_from_slice(self.part(position + first.len() as u64, length - first.len())?);
        Some(scratch)
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: `map` made this mapping, and nothing borrows from it any more.
        unsafe { libc::munmap(self.page.as_ptr().cast(), self.page_bytes + self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_are_listed_by_sys_and_by_stat() {
        assert_eq!(cpu_list("0-2,8\n"), Some(vec![0, 1, 2, 8]));
        assert_eq!(cpu_list(""), None);
        assert_eq!(cpus_of_stat("cpu  1 2 3\ncpu0 1 2\ncpu3 1 2\nintr 7\n"), [0, 3]);
        assert!(!online_cpus().is_empty());
    }
}
