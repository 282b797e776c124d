//! The kernel's events and rings: one ring for each CPU, and one event for each CPU and thread that is sampled.
#![allow(unsafe_code)]

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Resource, getrlimit};

use crate::machine;
use crate::sampler::Options;

/// Why a command cannot be sampled: what, where, and what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StacksError {
    /// A setting of the machine keeps users from it.
    #[error(
        "the kernel lets no user sample processes (/proc/sys/kernel/perf_event_paranoid is {level}): have it set to 2"
    )]
    Paranoid {
        /// What the setting is.
        level: i32,
    },
    /// A container or a security module keeps processes from it.
    #[error("perf_event_open is denied, as containers do by seccomp: allow perf_event_open there")]
    Denied,
    /// It is another user's, or not dumpable.
    #[error(
        "process {process} is not to be looked into: it is another user's, or has given up PR_SET_DUMPABLE"
    )]
    OffLimits {
        /// Which.
        process: u32,
    },
    /// A kernel without it.
    #[error("this kernel has no perf_event_open: use one that was built with CONFIG_PERF_EVENTS")]
    Absent,
    /// It has ended.
    #[error("process {process} is not there: begin sampling before it ends")]
    NoProcess {
        /// Which.
        process: u32,
    },
    /// One for each CPU and thread is needed.
    #[error(
        "{needed} more open files are needed for process {process}, one for each CPU and thread: raise the limit (ulimit -n)"
    )]
    Files {
        /// Which.
        process: u32,
        /// So many.
        needed: usize,
    },
    /// Even the smallest rings are too much.
    #[error(
        "no memory for the kernel's rings: raise the limit of locked memory (ulimit -l) or /proc/sys/kernel/perf_event_mlock_kb"
    )]
    LockedMemory,
    /// A setting that the kernel does not take.
    #[error("{what} cannot be sampled with: {advice}")]
    Option {
        /// Which, and what it is.
        what: String,
        /// What it can be.
        advice: &'static str,
    },
    /// Another failure of a system call.
    #[error("{call} failed: {source}")]
    System {
        /// Which call.
        call: &'static str,
        /// What the kernel says.
        source: io::Error,
    },
}

/// `perf_event_attr` as in its fifth version.
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
const DUMMY: u64 = 9;
const SAMPLE_TID: u64 = 1 << 1;
const SAMPLE_TIME: u64 = 1 << 2;
const SAMPLE_REGS_USER: u64 = 1 << 12;
const SAMPLE_STACK_USER: u64 = 1 << 13;
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
const CONTEXT_SWITCH: u64 = 1 << 26;

const CLOSE_ON_EXEC: libc::c_ulong = 1 << 3;
/// `_IO('$', 0)` and `_IO('$', 5)`.
const ENABLE: libc::Ioctl = 0x2400u32 as libc::Ioctl;
const SET_OUTPUT: libc::Ioctl = 0x2405u32 as libc::Ioctl;
/// Where the kernel's page has its own position and the reader's.
const HEAD: usize = 1024;
const TAIL: usize = 1032;
/// The sizes of rings that are tried, the largest first: what users may lock is often 8 MB, or 516 kB for each CPU.
const RING_BYTES: [usize; 4] = [2 << 20, 1 << 20, 512 << 10, 256 << 10];
/// All rings together take no more, as far as the smallest two sizes allow.
const RINGS_BYTES_MAX: usize = 128 << 20;

fn attributes(options: &Options) -> Attributes {
    let kernel = if options.kernel { 0 } else { EXCLUDE_KERNEL };
    Attributes {
        kind: SOFTWARE,
        size: size_of::<Attributes>() as u32,
        config: CPU_CLOCK,
        sample_period: options.period.as_nanos() as u64,
        sample_type: SAMPLE_TID | SAMPLE_TIME | SAMPLE_REGS_USER | SAMPLE_STACK_USER,
        flags: kernel
            | (DISABLED | INHERIT | EXCLUDE_HYPERVISOR | MAP | NAME | TASK | WATERMARK)
            | (SAMPLE_ID_ALL | EXCLUDE_CHAIN_KERNEL | EXCLUDE_CHAIN_USER | MAP2 | NAME_AT_EXEC | USE_CLOCK)
            | CONTEXT_SWITCH,
        sample_regs_user: machine::mask(),
        sample_stack_user: options.stack_bytes,
        clockid: options.clock,
        ..Attributes::default()
    }
}

fn open(attributes: &Attributes, thread: u32, cpu: u32) -> io::Result<OwnedFd> {
    // SAFETY: the attributes are as the kernel has them, with their size, and outlive the call.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            attributes as *const Attributes,
            thread as libc::pid_t,
            cpu as libc::c_int,
            -1 as libc::c_int,
            CLOSE_ON_EXEC,
        )
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a new descriptor, which nothing else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

/// Whether the kernel keeps this user from an event.
fn is_refused(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EACCES | libc::EPERM))
}

fn paranoia() -> Option<i32> {
    std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").ok()?.trim().parse().ok()
}

/// When the samples of a process begin.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Begin {
    /// With the next program that the process, or one that it has started, executes.
    AtExec,
    /// At once.
    Now,
}

/// The rings, and the events that write to them.
pub(crate) struct Events {
    /// Of each CPU, an event of this process' own that counts nothing: its ring is there whoever is sampled.
    of_cpus: Vec<(u32, OwnedFd)>,
    pub(crate) rings: Vec<Ring>,
    attributes: Attributes,
    /// By the process that they were opened for. What it starts inherits them, and loses them when they are closed.
    sampled: HashMap<u32, Vec<OwnedFd>>,
}

impl Events {
    pub(crate) fn open(options: &Options) -> Result<Events, StacksError> {
        let attributes = attributes(options);
        let own =
            Attributes { config: DUMMY, flags: attributes.flags & !(INHERIT | CONTEXT_SWITCH), ..attributes };
        let mut of_cpus = Vec::new();
        for cpu in online_cpus() {
            match open(&own, 0, cpu) {
                Ok(file) => of_cpus.push((cpu, file)),
                Err(error) if error.raw_os_error() == Some(libc::ENODEV) => {} // it went offline
                Err(error) if is_refused(&error) => {
                    let level = paranoia().filter(|level| *level > 2);
                    return Err(level.map_or(StacksError::Denied, |level| StacksError::Paranoid { level }));
                }
                Err(error) if error.raw_os_error() == Some(libc::ENOSYS) => return Err(StacksError::Absent),
                Err(source) => return Err(StacksError::System { call: "perf_event_open", source }),
            }
        }
        let rings = map_rings(&of_cpus).map_err(|source| match source.raw_os_error() {
            Some(libc::EPERM | libc::ENOMEM) => StacksError::LockedMemory,
            _ => StacksError::System { call: "mmap of a ring", source },
        })?;
        Ok(Events { of_cpus, rings, attributes, sampled: HashMap::new() })
    }

    /// Samples these threads of a process, and what they start. Gives those that are still there.
    pub(crate) fn add(
        &mut self,
        process: u32,
        mut threads: Vec<u32>,
        begin: Begin,
    ) -> Result<Vec<u32>, StacksError> {
        let mut files = Vec::new();
        let mut ended = Vec::new();
        let of_threads = self.cpus_of(process, &threads)?;
        for (&thread, cpus) in threads.iter().zip(of_threads) {
            for (cpu, ring) in cpus {
                match self.open_into(ring, thread, *cpu, begin) {
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
                                StacksError::Files { process, needed: self.of_cpus.len() * threads.len() }
                            }
                            _ => StacksError::System { call: "perf_event_open", source },
                        });
                    }
                }
            }
        }
        self.sampled.entry(process).or_default().extend(files);
        threads.retain(|thread| !ended.contains(thread));
        Ok(threads)
    }

    fn open_into(&self, ring: &OwnedFd, thread: u32, cpu: u32, begin: Begin) -> io::Result<OwnedFd> {
        let at_exec = if begin == Begin::AtExec { ENABLE_ON_EXEC } else { 0 };
        let event =
            open(&Attributes { flags: self.attributes.flags | at_exec, ..self.attributes }, thread, cpu)?;
        control(&event, SET_OUTPUT, ring.as_raw_fd())?;
        if begin == Begin::Now {
            control(&event, ENABLE, 0)?;
        }
        Ok(event)
    }

    /// The CPUs on which each of these threads is sampled: all, as what it starts may be bound otherwise than the thread is. When a
    /// quarter of the files that may be open are used, those that it is bound to; and half of them are left alone.
    fn cpus_of(&self, process: u32, threads: &[u32]) -> Result<Vec<Vec<&(u32, OwnedFd)>>, StacksError> {
        let used = self.of_cpus.len() + self.sampled.values().map(Vec::len).sum::<usize>();
        let limit = getrlimit(Resource::Nofile).current.map_or(usize::MAX, |limit| limit as usize);
        if used + threads.len() * self.of_cpus.len() <= limit / 4 {
            return Ok(vec![self.of_cpus.iter().collect(); threads.len()]);
        }
        let of_thread = |thread: &u32| {
            let pid = Pid::from_raw(*thread as i32);
            let bound = rustix::thread::sched_getaffinity(pid).ok();
            let may_run = |cpu: &&(u32, OwnedFd)| bound.as_ref().is_none_or(|set| set.is_set(cpu.0 as usize));
            self.of_cpus.iter().filter(may_run).collect()
        };
        let cpus: Vec<Vec<_>> = threads.iter().map(of_thread).collect();
        let needed = cpus.iter().map(Vec::len).sum();
        if used + needed > limit / 2 { Err(StacksError::Files { process, needed }) } else { Ok(cpus) }
    }

    /// Samples no process any more. Gives the events, whose end it is to drop them.
    pub(crate) fn take(&mut self) -> HashMap<u32, Vec<OwnedFd>> {
        std::mem::take(&mut self.sampled)
    }

    /// Samples processes again that were sampled before [`Events::take`].
    pub(crate) fn put_back(&mut self, events: HashMap<u32, Vec<OwnedFd>>) {
        events
            .into_iter()
            .for_each(|(process, events)| self.sampled.entry(process).or_default().extend(events));
    }

    /// Ends the samples of all processes but those which this is true of, with those that they have started.
    pub(crate) fn retain(&mut self, is_there: impl Fn(u32) -> bool) {
        self.sampled.retain(|process, _| is_there(*process));
    }

    pub(crate) fn wait(&self, longest: Duration, until: BorrowedFd) {
        let rings = self.of_cpus.iter().map(|(_, file)| PollFd::new(file, PollFlags::IN));
        let mut all = Vec::from_iter(rings.chain([PollFd::from_borrowed_fd(until, PollFlags::IN)]));
        let _ = poll(&mut all, Timespec::try_from(longest).ok().as_ref());
    }
}

fn control(event: &OwnedFd, what: libc::Ioctl, with: RawFd) -> io::Result<()> {
    // SAFETY: these two requests take a number.
    match unsafe { libc::ioctl(event.as_raw_fd(), what, with) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The largest rings that the limits allow: one for each CPU, all alike.
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
    let entries = entries.map_err(|_| StacksError::NoProcess { process })?;
    let mut threads: Vec<u32> =
        entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect();
    threads.sort_unstable();
    Ok(threads)
}

/// The CPUs of `/sys/devices/system/cpu/online`, `0-3,8`; without it, as many as there are.
fn online_cpus() -> Vec<u32> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    let parse = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse::<u32>().ok()?..=last.parse::<u32>().ok()?)
    };
    let cpus: Option<Vec<_>> = text.trim().split(',').map(parse).collect();
    match cpus {
        Some(ranges) => ranges.into_iter().flatten().collect(),
        None => (0..std::thread::available_parallelism().map_or(1, |count| count.get() as u32)).collect(),
    }
}

/// What the kernel writes of one CPU. Bytes between `position` and `head` are the reader's.
pub(crate) struct Ring {
    page: NonNull<u8>,
    page_bytes: usize,
    bytes: usize,
    /// Up to here it has been read.
    position: u64,
    head: u64,
}

// SAFETY: the mapping belongs to this value alone.
unsafe impl Send for Ring {}

impl Ring {
    fn map(event: &OwnedFd, bytes: usize) -> io::Result<Ring> {
        let page_bytes = rustix::param::page_size();
        // SAFETY: a new mapping at an address that the kernel chooses.
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

    /// Sees what the kernel has written meanwhile.
    pub(crate) fn refresh(&mut self) {
        // SAFETY: an aligned word of the kernel's page, which lives as long as this.
        let head = unsafe { self.page.add(HEAD).cast::<AtomicU64>().as_ref() };
        self.head = head.load(Ordering::Acquire);
    }

    pub(crate) fn range(&self) -> std::ops::Range<u64> {
        self.position..self.head
    }

    /// Gives what lies before `position` back to the kernel.
    pub(crate) fn release(&mut self, position: u64) {
        self.position = position.clamp(self.position, self.head);
        // SAFETY: an aligned word of the kernel's page, which lives as long as this.
        let tail = unsafe { self.page.add(TAIL).cast::<AtomicU64>().as_ref() };
        tail.store(self.position, Ordering::Release);
    }

    /// What lies there, as far as the end of the ring's memory.
    fn part(&self, position: u64, length: usize) -> Option<&[u8]> {
        let end = position.checked_add(length as u64)?;
        if position < self.position || end > self.head || self.head - self.position > self.bytes as u64 {
            return None;
        }
        let start = (position % self.bytes as u64) as usize;
        let length = length.min(self.bytes - start);
        // SAFETY: inside the mapping; the kernel does not write between the reader's position and the head, and
        // `release` needs this value alone.
        Some(unsafe { std::slice::from_raw_parts(self.page.add(self.page_bytes + start).as_ptr(), length) })
    }

    /// A word there. Records are aligned: none lies across the end of the ring's memory.
    pub(crate) fn word(&self, position: u64) -> Option<u64> {
        Some(u64::from_ne_bytes(self.part(position, 8)?.try_into().ok()?))
    }

    /// Bytes there, in place, or in `scratch` if they lie across the end of the ring's memory.
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
        // SAFETY: the mapping that `map` made; nothing borrows from it any more.
        unsafe { libc::munmap(self.page.as_ptr().cast(), self.page_bytes + self.bytes) };
    }
}
