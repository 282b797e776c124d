//! A session is the part of a run that is on one node: a directory with a shared page that holds the collector's pid and state.
//!
//! ```text
//! byte    field                           written by
//!    0    magic "AMPSESS1"                creator
//!    8    ABI version          u32        creator
//!   12    state                u32        creator: 1 once the rest is valid
//!   16    generation           u64        all processes: incremented after each new process or definition
//!   24    collector's pid      u32        the collector, or the process that starts it
//!   28    collector's state    u32        the collector: see CollectorState
//!   32    collector's start    u64        the collector, or the process that starts it
//!   40    heartbeat            u64        the collector: incremented in each round
//!   48    processes joined     u32        each process, once
//!   52    processes left       u32        each process, once, in order
//!   56    waiter               u32        the collector: the pid of the process that waits for its end, or 0
//!   60    samples wanted       u32        a metric plugin: 1 to have the series of samples kept (samples.rs)
//!   64    output directory     u32 length, then up to 4000 bytes of path; set before the state is `Running`
//! 4072    replay time          u64        a replay: the time, in its trace's ticks, before which all events are in the
//!                                         rings; never decreases. 0 before the replay and without one
//! 4080    boot                 2 x u64    creator: the boot of the node (process.rs); 0, 0: not known
//! 4096    finishing            u32        the collector: 1 while it writes the results; no process can join then
//! 4104    headroom             u64        creator: half of the free space of the file system. Rings leave at least this
//!                                         number of bytes free, because the program and MPI use shared memory, too
//! 4112    pid namespace        u64        creator: the namespace of all pids here; 0: not known
//! 4120    unmeasured           u32        processes: incremented by each one of the job that is not measured to its end
//! 4128    job headroom         u64        creator: like `headroom`, for the job's memory (cgroup.rs), at most a GiB
//! 4136    stacks sampled       u32        the collector: 1 once it samples the stacks of the job's processes
//! ```
//!
//! **The collector** is the process that holds a lock on the file `collector.lock`, which the kernel releases when the process
//! ends in any way. The others find its pid in the page.

use crate::cgroup;
use crate::error::Error;
use crate::files;
use crate::mapping::{self, Headroom, Mapping};
use crate::process;
use rustix::fs::{FlockOperation, Mode, OFlags};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const MAGIC: u64 = u64::from_le_bytes(*b"AMPSESS1");
const ABI_VERSION: u32 = 1;
const PAGE_BYTES: u64 = 8192;
const PAGE_NAME: &str = "session";
const PATH_BYTES_MAX: usize = 4000;
/// The upper bound on the part of the job's memory that rings leave free.
const JOB_HEADROOM_MAX: u64 = 1 << 30;

#[repr(C)]
struct Page {
    magic: AtomicU64,
    abi_version: AtomicU32,
    state: AtomicU32,
    generation: AtomicU64,
    collector_pid: AtomicU32,
    collector_state: AtomicU32,
    collector_start: AtomicU64,
    heartbeat: AtomicU64,
    joined: AtomicU32,
    left: AtomicU32,
    waited_for: AtomicU32,
    samples_wanted: AtomicU32,
    output_length: AtomicU32,
    output: [AtomicU8; PATH_BYTES_MAX],
    replay_time: AtomicU64,
    boot: [AtomicU64; 2],
    finishing: AtomicU32,
    headroom: AtomicU64,
    pid_namespace: AtomicU64,
    unmeasured: AtomicU32,
    job_headroom: AtomicU64,
    stacks_sampled: AtomicU32,
}

const _: () = {
    assert!(std::mem::offset_of!(Page, generation) == 16);
    assert!(std::mem::offset_of!(Page, collector_pid) == 24);
    assert!(std::mem::offset_of!(Page, heartbeat) == 40);
    assert!(std::mem::offset_of!(Page, samples_wanted) == 60);
    assert!(std::mem::offset_of!(Page, output_length) == 64);
    assert!(std::mem::offset_of!(Page, replay_time) == 4072);
    assert!(std::mem::offset_of!(Page, boot) == 4080);
    assert!(std::mem::offset_of!(Page, finishing) == 4096);
    assert!(std::mem::offset_of!(Page, headroom) == 4104);
    assert!(std::mem::offset_of!(Page, pid_namespace) == 4112);
    assert!(std::mem::offset_of!(Page, unmeasured) == 4120);
    assert!(std::mem::offset_of!(Page, job_headroom) == 4128);
    assert!(std::mem::offset_of!(Page, stacks_sampled) == 4136);
    assert!(size_of::<Page>() as u64 <= PAGE_BYTES);
};

/// The suffix of the name of a session that only samples counters, for metric plugins. It is separate from a run's session, so
/// that a collector never has to change its purpose.
pub const METRICS_ONLY: &str = "-metrics";

/// The name of the ring that has the counters' samples.
pub const SAMPLES_RING: &str = "sampler.0.ring";

/// The collector's progress, as written in the session's page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum CollectorState {
    /// No collector has been started.
    None = 0,
    /// A process is starting the collector.
    Starting = 1,
    /// The collector reads records while the program runs.
    Running = 2,
    /// The trace and the summary have been written.
    Finished = 3,
    /// The collector gave up, and wrote the reason to the file `failure`.
    Failed = 4,
}

/// A session that this process has opened.
pub struct Session {
    directory: PathBuf,
    map: Mapping,
    /// The device and the inode of the page's file.
    page_file: (u64, u64),
}

// SAFETY: the page consists of atomics; the mapping belongs to no thread.
unsafe impl Send for Session {}
// SAFETY: as above.
unsafe impl Sync for Session {}

const START_LOCK: &str = "start.lock";
const COLLECTOR_LOCK: &str = "collector.lock";
const WAITER_LOCK: &str = "waiter.lock";
/// The extensions of the files that announce commands: the first until the collector has seen the file, and then the second.
const COMMAND: &str = ".command";
const SEEN_COMMAND: &str = ".seen";

/// A process that `ampere run` has started and that is about to become the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// The process' [`process::own_name`].
    name: String,
    #[allow(missing_docs)]
    pub pid: u32,
    /// The namespace in which the pid is valid.
    pub pid_namespace: u64,
    /// Whether the process waits for [`Session::release_command`].
    pub waits: bool,
}

/// A lock that is held until this is dropped or its process ends.
pub struct HeldLock {
    _file: OwnedFd,
}

/// Shows which of a session's locks are held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Locks {
    /// Whether a collector is running.
    pub collector: bool,
    /// Whether a collector is being started.
    pub start: bool,
    /// Whether a process waits for the collector's end.
    pub waiter: bool,
}

/// Held while one process decides whether a collector must be started.
pub struct StartLock {
    file: OwnedFd,
}

impl Drop for StartLock {
    /// Closing the file is not enough, because a child that was forked in the meantime has it open, too.
    fn drop(&mut self) {
        let _ = rustix::fs::flock(&self.file, FlockOperation::Unlock);
    }
}

/// The environment variable for the boot id of the node on which `ampere run` created the session.
pub const ENV_SESSION_BOOT: &str = "AMPERE_SESSION_BOOT";
/// The reason why a process cannot see its node's session.
pub const OUT_OF_REACH: &str = "it has a /dev/shm of its own";

/// Returns [`OUT_OF_REACH`] and the remedy for this process' container, as the end of a message.
pub fn out_of_reach() -> String {
    let remedy = match Container::of_this_process() {
        Some(Container::Apptainer) => "in its container: start that with --bind /dev/shm",
        Some(Container::Docker) => "in its container: start that with --ipc=host",
        None => "as containers do: let it use the node's /dev/shm",
    };
    format!(
        "{OUT_OF_REACH}, {remedy}, or set AMPERE_SHM to a directory that all processes of the run on this node share"
    )
}

/// The software that runs this container. Each has its own option for sharing /dev/shm.
enum Container {
    /// Apptainer or Singularity, which share the node's shared memory unless started with `--contain`.
    Apptainer,
    /// Docker or Podman, which never share it by default.
    Docker,
}

impl Container {
    fn of_this_process() -> Option<Container> {
        let is_set = |name| std::env::var_os(name).is_some();
        let is_there = |path| std::path::Path::new(path).exists();
        if is_set("APPTAINER_CONTAINER") || is_set("SINGULARITY_CONTAINER") || is_there("/.singularity.d") {
            return Some(Container::Apptainer);
        }
        (is_there("/.dockerenv") || is_there("/run/.containerenv")).then_some(Container::Docker)
    }
}

impl Session {
    /// Returns the directory of all sessions of this user, which is made if it does not exist.
    ///
    /// # Errors
    /// [`Error::NotOurs`] if it belongs to another user or is open to others, [`Error::UnsafeRoot`] if others can replace it.
    pub fn base_directory() -> Result<PathBuf, Error> {
        let (root, base) = base_path();
        check_root(&root)?;
        make_private(&base)?;
        Ok(base)
    }

    /// Returns the directory that the session of this name would have; `None` if the session exists.
    pub fn missing(name: &str) -> Option<PathBuf> {
        let directory = base_path().1.join(name);
        (!directory.join(PAGE_NAME).exists()).then_some(directory)
    }

    /// Opens the session of this name, making it if it does not exist.
    pub fn open_or_create(name: &str) -> Result<Session, Error> {
        let directory = Self::base_directory()?.join(name);
        make_private(&directory)?;
        Self::open_page(&directory, true)
    }

    /// Opens the session in this existing directory, making it if necessary. Recovery uses this to finish a run.
    pub fn open_or_create_in(directory: &Path) -> Result<Session, Error> {
        Self::open_page(directory, true)
    }

    /// Opens the existing session of this name.
    pub fn open_named(name: &str) -> Result<Session, Error> {
        Self::open(&base_path().1.join(name))
    }

    pub fn open(directory: &Path) -> Result<Session, Error> {
        Self::open_page(directory, false)
    }

    fn open_page(directory: &Path, may_create: bool) -> Result<Session, Error> {
        let path = directory.join(PAGE_NAME);
        if may_create {
            // The page is made under another name and then linked without replacing another one, so that other processes find
            // only complete pages.
            let making = directory.join(format!("session.{}", process::own_name()));
            let _ = std::fs::remove_file(&making);
            if !path.exists() {
                let map = mapping::create(&making, PAGE_BYTES, Headroom::NONE)?;
                let session = Session::of(directory, &making, map)?;
                let page = session.page();
                page.magic.store(MAGIC, Ordering::Relaxed);
                page.abi_version.store(ABI_VERSION, Ordering::Relaxed);
                for (to, from) in page.boot.iter().zip(process::boot_id()) {
                    to.store(from, Ordering::Relaxed);
                }
                page.headroom.store(mapping::free_bytes(directory) / 2, Ordering::Relaxed);
                let of_job = (cgroup::bytes_left() / 2).min(JOB_HEADROOM_MAX);
                page.job_headroom.store(of_job, Ordering::Relaxed);
                page.pid_namespace.store(process::pid_namespace(), Ordering::Relaxed);
                page.state.store(1, Ordering::Release);
                let linked = std::fs::hard_link(&making, &path);
                let _ = std::fs::remove_file(&making);
                match linked {
                    Ok(()) => return Ok(session),
                    Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
                    Err(e) => return Err(Error::io("create", &path, e)),
                }
            }
        }
        let map = mapping::open(&path, PAGE_BYTES)?;
        let session = Session::of(directory, &path, map)?;
        let page = session.page();
        if page.state.load(Ordering::Acquire) != 1 || page.magic.load(Ordering::Relaxed) != MAGIC {
            return Err(Error::malformed(&path, "it does not begin with AMPSESS1"));
        }
        let version = page.abi_version.load(Ordering::Relaxed);
        if version != ABI_VERSION {
            return Err(Error::malformed(&path, format!("format version {version}, {ABI_VERSION} expected")));
        }
        Ok(session)
    }

    fn of(directory: &Path, page: &Path, map: Mapping) -> Result<Session, Error> {
        let found = rustix::fs::lstat(page).map_err(|e| Error::io("look at", page, e))?;
        Ok(Session { directory: directory.to_owned(), map, page_file: (found.st_dev, found.st_ino) })
    }

    fn page(&self) -> &Page {
        // SAFETY: the mapping is page-aligned, at least PAGE_BYTES long (checked when made or opened), lives as long
        // as self, and every field of Page is an atomic, valid for any bytes.
        unsafe { &*self.map.as_ptr().cast::<Page>() }
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Takes the lock for deciding whether a collector must be started. Other processes wait for up to `limit`, because the
    /// holder may have been stopped.
    pub fn lock_start(&self, limit: Duration) -> Result<StartLock, Error> {
        let (path, file) = self.lock_file(START_LOCK)?;
        let begun = Instant::now();
        loop {
            match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(StartLock { file }),
                Err(rustix::io::Errno::WOULDBLOCK) if begun.elapsed() < limit => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(Error::io("lock", &path, e)),
            }
        }
    }

    fn lock_file(&self, name: &str) -> Result<(PathBuf, OwnedFd), Error> {
        let path = self.directory.join(name);
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = rustix::fs::open(&path, flags, Mode::RUSR | Mode::WUSR)
            .map_err(|e| Error::io("create", &path, e))?;
        Ok((path, file))
    }

    /// Makes this process the session's collector. `None` if another process is the collector already.
    pub fn lock_collector(&self) -> Result<Option<HeldLock>, Error> {
        self.hold(COLLECTOR_LOCK)
    }

    /// Takes the lock by which processes of other pid namespaces see that this process waits for the collector's end.
    pub fn lock_waiter(&self) -> Result<Option<HeldLock>, Error> {
        self.hold(WAITER_LOCK)
    }

    fn hold(&self, name: &str) -> Result<Option<HeldLock>, Error> {
        let (path, file) = self.lock_file(name)?;
        loop {
            match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Some(HeldLock { _file: file })),
                Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
                Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(Error::io("lock", &path, e)),
            }
        }
    }

    /// Returns which locks are held. Creates no file.
    pub fn locks(&self) -> Locks {
        let locked = |name| self.is_locked(name);
        Locks { collector: locked(COLLECTOR_LOCK), start: locked(START_LOCK), waiter: locked(WAITER_LOCK) }
    }

    fn is_locked(&self, name: &str) -> bool {
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = rustix::fs::open(self.directory.join(name), flags, Mode::empty());
        let lock = |file: OwnedFd| rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive);
        file.is_ok_and(|file| lock(file) == Err(rustix::io::Errno::WOULDBLOCK))
    }

    /// Whether the session was made since the node was booted. If not, none of its processes is alive, even if others have their
    /// pids.
    pub fn is_of_this_boot(&self) -> bool {
        let boot = [0, 1].map(|at| self.page().boot[at].load(Ordering::Relaxed));
        boot == [0, 0] || boot == process::boot_id()
    }

    /// Returns the collector's pid, or that of the process that starts it.
    pub fn collector_pid(&self) -> u32 {
        self.page().collector_pid.load(Ordering::Relaxed)
    }

    /// Announces that a new process or definition can be read. Pairs with [`Session::generation`].
    pub fn announce(&self) {
        self.page().generation.fetch_add(1, Ordering::Release);
    }

    /// Returns a number that increases with every process and definition.
    pub fn generation(&self) -> u64 {
        self.page().generation.load(Ordering::Acquire)
    }

    /// Sets the collector's process and state.
    pub fn set_collector(&self, pid: u32, state: CollectorState) {
        let page = self.page();
        page.collector_start.store(process::start_time(pid).unwrap_or(0), Ordering::Relaxed);
        page.collector_pid.store(pid, Ordering::Relaxed);
        page.collector_state.store(state as u32, Ordering::Release);
    }

    /// Returns the collector's state, as it was last set.
    pub fn collector_state(&self) -> CollectorState {
        match self.page().collector_state.load(Ordering::Acquire) {
            1 => CollectorState::Starting,
            2 => CollectorState::Running,
            3 => CollectorState::Finished,
            4 => CollectorState::Failed,
            _ => CollectorState::None,
        }
    }

    /// Whether the collector, or the process that started it, gave up.
    pub fn is_given_up(&self) -> bool {
        self.collector_state() == CollectorState::Failed
    }

    /// Whether a collector has been started and is still running, by its pid or, from another pid namespace, by its lock.
    pub fn collector_is_alive(&self) -> bool {
        let (pid, start) = (&self.page().collector_pid, &self.page().collector_start);
        matches!(self.collector_state(), CollectorState::Starting | CollectorState::Running)
            && (process::is_alive(pid.load(Ordering::Relaxed), start.load(Ordering::Relaxed))
                || self.is_locked(COLLECTOR_LOCK))
    }

    /// Like [`Session::collector_is_alive`], but any process with that pid counts. Allocates only in another pid namespace.
    pub fn collector_seems_alive(&self) -> bool {
        // The state is read first: its Acquire makes the pid visible that was set before it.
        let running = matches!(self.collector_state(), CollectorState::Starting | CollectorState::Running);
        let pid = self.page().collector_pid.load(Ordering::Relaxed);
        running
            && (process::seems_alive(pid)
                || self.is_of_another_pid_namespace() && self.is_locked(COLLECTOR_LOCK))
    }

    /// Sets whether the collector is writing the results. While it does, no process can join.
    pub fn set_finishing(&self, finishing: bool) {
        self.page().finishing.store(finishing.into(), Ordering::Release);
    }

    /// Whether the collector writes the results.
    pub fn is_finishing(&self) -> bool {
        self.page().finishing.load(Ordering::Acquire) != 0
    }

    /// Counts a round in which the collector has looked at all rings.
    pub fn beat(&self) {
        self.page().heartbeat.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of rounds in which the collector has looked at all rings.
    pub fn beats(&self) -> u64 {
        self.page().heartbeat.load(Ordering::Relaxed)
    }

    /// Counts this process as one that has joined.
    pub fn join(&self) {
        self.page().joined.fetch_add(1, Ordering::AcqRel);
        self.announce();
    }

    /// Announces that this process is about to become a program that is to be measured from its first instruction. Waits for up
    /// to `limit` until the collector is ready for that.
    pub fn announce_command(&self, limit: Duration) -> Result<(), Error> {
        let path = self.directory.join(process::own_name() + COMMAND);
        files::write_private(&path, "").map_err(|e| Error::io("create", &path, e))?;
        self.announce();
        let begun = Instant::now();
        while path.exists() && self.collector_is_alive() && begun.elapsed() < limit {
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Returns the processes that have announced themselves.
    pub fn commands(&self) -> Vec<Command> {
        let parse = |file: std::fs::DirEntry| {
            let file = file.file_name().into_string().ok()?;
            let waiting = file.strip_suffix(COMMAND);
            let name = waiting.or_else(|| file.strip_suffix(SEEN_COMMAND))?;
            let (pid, namespace) = name.split_once('.')?;
            Some(Command {
                name: name.to_owned(),
                pid: pid.parse().ok()?,
                pid_namespace: namespace.parse().ok()?,
                waits: waiting.is_some(),
            })
        };
        let files = std::fs::read_dir(&self.directory).into_iter().flatten().flatten();
        files.filter_map(parse).collect()
    }

    /// Lets a command that waits become its program.
    pub fn release_command(&self, command: &Command) {
        let [from, to] = [COMMAND, SEEN_COMMAND].map(|end| self.directory.join(command.name.clone() + end));
        let _ = std::fs::rename(from, to);
    }

    /// Returns the number of processes that have joined and not left, including killed ones, and the total bytes of all
    /// rings.
    pub fn others(&self) -> (u64, u64) {
        let page = self.page();
        let left = page.left.load(Ordering::Acquire);
        let running = page.joined.load(Ordering::Acquire).saturating_sub(left);
        let files = std::fs::read_dir(&self.directory).into_iter().flatten().flatten();
        let rings = files.filter(|file| file.path().extension().is_some_and(|end| end == "ring"));
        (u64::from(running), rings.filter_map(|ring| Some(ring.metadata().ok()?.len())).sum())
    }

    /// Counts this process as one that has left. Returns the number of processes that have not left, including killed ones.
    pub fn leave(&self) -> u32 {
        let page = self.page();
        let left = page.left.fetch_add(1, Ordering::AcqRel).wrapping_add(1);
        self.announce();
        page.joined.load(Ordering::Acquire).saturating_sub(left)
    }

    /// Sets the pid of the process that waits for the collector's end, so that measured processes need not wait.
    pub fn set_waited_for(&self, by: u32) {
        self.page().waited_for.store(by, Ordering::Release);
    }

    /// Whether the process that waits for the collector's end is alive, by its pid or, from another pid namespace, by its lock.
    pub fn is_waited_for(&self) -> bool {
        let by = self.page().waited_for.load(Ordering::Acquire);
        let is_known_by_lock = self.is_of_another_pid_namespace();
        by != 0 && (if is_known_by_lock { self.is_locked(WAITER_LOCK) } else { process::seems_alive(by) })
    }

    /// Like [`Session::is_waited_for`], for a process outside the session: by its pid or its lock.
    pub fn has_waiter(&self) -> bool {
        let by = self.page().waited_for.load(Ordering::Acquire);
        let seen = || !self.is_of_another_pid_namespace() && process::seems_alive(by);
        by != 0 && (seen() || self.is_locked(WAITER_LOCK))
    }

    /// Whether the pids in the page are those of another pid namespace, in which this process cannot look them up.
    fn is_of_another_pid_namespace(&self) -> bool {
        let (its, ours) = (self.page().pid_namespace.load(Ordering::Relaxed), process::pid_namespace());
        its != 0 && ours != 0 && its != ours
    }

    /// Asks the sampler to write the series of samples: see [`crate::samples`].
    pub fn want_samples(&self) {
        self.page().samples_wanted.store(1, Ordering::Release);
    }

    /// Whether the series of samples are to be written.
    pub fn samples_are_wanted(&self) -> bool {
        self.page().samples_wanted.load(Ordering::Acquire) != 0
    }

    /// Records that the stacks of the job's processes are sampled.
    pub fn set_stacks_sampled(&self) {
        self.page().stacks_sampled.store(1, Ordering::Release);
    }

    /// Whether the stacks of the job's processes are sampled, including this process, which the collector finds by its pid.
    pub fn stacks_are_sampled(&self) -> bool {
        self.page().stacks_sampled.load(Ordering::Acquire) != 0 && !self.is_of_another_pid_namespace()
    }

    /// Counts this process as one of the job that is not measured to its end.
    pub fn count_unmeasured(&self) {
        self.page().unmeasured.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of processes that are not measured to their end.
    pub fn unmeasured(&self) -> u32 {
        self.page().unmeasured.load(Ordering::Relaxed)
    }

    /// Returns the bytes that rings must leave free.
    pub fn headroom(&self) -> Headroom {
        Headroom {
            file_system: self.page().headroom.load(Ordering::Relaxed),
            job: self.page().job_headroom.load(Ordering::Relaxed),
        }
    }

    /// Returns the number of processes that have joined.
    pub fn joined(&self) -> u32 {
        self.page().joined.load(Ordering::Acquire)
    }

    /// Sets the output directory. Must be called before anything is made there, so that the next collector finds it.
    pub fn set_output(&self, output: &Path) {
        use std::os::unix::ffi::OsStrExt;
        let bytes = output.as_os_str().as_bytes();
        let bytes = &bytes[..bytes.len().min(PATH_BYTES_MAX)];
        for (to, from) in self.page().output.iter().zip(bytes) {
            to.store(*from, Ordering::Relaxed);
        }
        self.page().output_length.store(bytes.len() as u32, Ordering::Release);
    }

    /// Returns the output directory, once it is known.
    pub fn output(&self) -> Option<PathBuf> {
        use std::os::unix::ffi::OsStringExt;
        let length = self.page().output_length.load(Ordering::Acquire) as usize;
        if length == 0 || length > PATH_BYTES_MAX {
            return None;
        }
        let bytes = self.page().output[..length].iter().map(|b| b.load(Ordering::Relaxed)).collect();
        Some(PathBuf::from(std::ffi::OsString::from_vec(bytes)))
    }

    /// Records that a replay's events before `time` are in the rings, except those of GPU streams, which come late.
    pub fn set_replay_time(&self, time: u64) {
        // Pairs with the acquire in `replay_time`: a process that reads the time finds the events before it.
        self.page().replay_time.fetch_max(time, Ordering::Release);
    }

    /// Returns the time before which a replay's events are in the rings.
    pub fn replay_time(&self) -> u64 {
        self.page().replay_time.load(Ordering::Acquire)
    }

    /// Removes the session's files. A process that has mapped the page can still read it. The page is removed last: while it
    /// exists, another process can continue an interrupted removal.
    pub fn remove(&self) {
        // Another directory, or a link to one, may have been put there: files are removed only from the directory with this page.
        let opened = ampere_owned::Directory::own_alone(&self.directory);
        let Ok(directory) = opened.and_then(|directory| self.check_is_in(&directory).map(|()| directory))
        else {
            return;
        };
        for name in directory.names().unwrap_or_default() {
            if name != PAGE_NAME {
                let _ = directory.remove_file(&name);
            }
        }
        let _ = directory.remove_file(PAGE_NAME.as_ref());
        let _ = directory.remove_contents();
        let _ = ampere_owned::remove_directory(&self.directory);
    }

    /// Fails if the page in a directory is not that of this session.
    fn check_is_in(&self, directory: &ampere_owned::Directory) -> std::io::Result<()> {
        let found = directory.look(PAGE_NAME.as_ref())?;
        let is_this = (found.st_dev, found.st_ino) == self.page_file;
        if is_this { Ok(()) } else { Err(std::io::ErrorKind::NotFound.into()) }
    }

    /// Whether the session has been removed. `false` if this process cannot see its directory because it has changed its root.
    pub fn is_removed(&self) -> bool {
        !self.directory.join(PAGE_NAME).exists() && self.directory.parent().is_some_and(Path::exists)
    }
}

/// Returns the root of shared memory, and the directory of this user's sessions in it.
fn base_path() -> (PathBuf, PathBuf) {
    let root = std::env::var_os("AMPERE_SHM").map_or_else(|| PathBuf::from("/dev/shm"), PathBuf::from);
    let base = root.join(format!("ampere-{}", rustix::process::geteuid().as_raw()));
    (root, base)
}

/// Makes a directory for this user alone, or checks that an existing one is private.
fn make_private(path: &Path) -> Result<(), Error> {
    let refuse = |why| Err(Error::NotOurs { path: path.to_owned(), why });
    match rustix::fs::mkdir(path, Mode::RWXU) {
        Ok(()) | Err(rustix::io::Errno::EXIST) => {}
        Err(e) => return Err(Error::io("create", path, e)),
    }
    let stat = rustix::fs::lstat(path).map_err(|e| Error::io("look at", path, e))?;
    if rustix::fs::FileType::from_raw_mode(stat.st_mode) != rustix::fs::FileType::Directory {
        return refuse("is not a directory");
    }
    if stat.st_uid != rustix::process::geteuid().as_raw() {
        return refuse("belongs to another user");
    }
    if stat.st_mode & 0o077 != 0 {
        return refuse("is open to others");
    }
    // With a umask such as 777, every later run would be refused.
    if stat.st_mode & 0o700 != 0o700 {
        rustix::fs::chmod(path, Mode::RWXU).map_err(|e| Error::io("set the mode of", path, e))?;
    }
    Ok(())
}

/// Checks that no other user can replace our directory. The owner of the root could do so, and without the sticky bit
/// everyone who may write to the root.
fn check_root(root: &Path) -> Result<(), Error> {
    // If the root does not exist, making our directory will fail with a message.
    let Ok(stat) = rustix::fs::stat(root) else { return Ok(()) };
    let refuse = |why| Err(Error::UnsafeRoot { path: root.to_owned(), why });
    let is_sticky = stat.st_mode & 0o1000 != 0;
    match stat.st_mode {
        _ if ![0, rustix::process::geteuid().as_raw()].contains(&stat.st_uid) => {
            refuse("belongs to another user, who may replace what is in it")
        }
        mode if mode & 0o002 != 0 && !is_sticky => {
            refuse("may be written to by everybody, and is not sticky")
        }
        mode if mode & 0o020 != 0 && !is_sticky => {
            refuse("may be written to by its group, and is not sticky")
        }
        _ => Ok(()),
    }
}
