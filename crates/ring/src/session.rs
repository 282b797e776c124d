//! A session: one job on one node. A directory, and in it one shared page that says who collects and how far it is.
//!
//! ```text
//! byte    field                           written by
//!    0    magic "AMPSESS1"                whoever makes it
//!    8    ABI version          u32        whoever makes it
//!   12    state                u32        whoever makes it: 1 once the rest is valid
//!   16    generation           u64        everybody: +1 after every process or definition that is new
//!   24    collector's pid      u32        the collector, or who started it
//!   28    collector's state    u32        the collector: see CollectorState
//!   32    collector's start    u64        the collector, or who started it
//!   40    heartbeat            u64        the collector: +1 per round
//!   48    processes joined     u32        each process, once
//!   52    processes left       u32        each process, once, in order
//!   56    waited for            u32        the collector: 1 if whoever started it waits for its end
//!   60    samples wanted       u32        a metric plugin: 1 once it wants the series of samples (samples.rs)
//!   64    output directory     u32 length, then up to 4000 bytes of path; set once before the state is `Running`
//! 4072    told time            u64        a replay: the time, in its trace's ticks, before which all is in the rings;
//!                                         never goes back. 0 until it begins, and where time is the machine's own
//! ```

use crate::error::Error;
use crate::mapping;
use crate::process;
use memmap2::MmapRaw;
use rustix::fs::{FlockOperation, Mode, OFlags};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const MAGIC: u64 = u64::from_le_bytes(*b"AMPSESS1");
const ABI_VERSION: u32 = 1;
const PAGE_BYTES: u64 = 8192;
const LONGEST_PATH_BYTES: usize = 4000;

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
    output: [AtomicU8; LONGEST_PATH_BYTES],
    told_time: AtomicU64,
}

const _: () = {
    assert!(std::mem::offset_of!(Page, generation) == 16);
    assert!(std::mem::offset_of!(Page, collector_pid) == 24);
    assert!(std::mem::offset_of!(Page, heartbeat) == 40);
    assert!(std::mem::offset_of!(Page, samples_wanted) == 60);
    assert!(std::mem::offset_of!(Page, output_length) == 64);
    assert!(std::mem::offset_of!(Page, told_time) == 4072);
    assert!(size_of::<Page>() as u64 <= PAGE_BYTES);
};

/// How the name of a session ends that only samples counters, for metric plugins. It is another one than the job's, so that
/// a collector never has to become more than it was started as.
pub const METRICS_ONLY: &str = "-metrics";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum CollectorState {
    /// Nobody has started one.
    None = 0,
    Starting = 1,
    Running = 2,
    /// Trace and summary are written.
    Finished = 3,
    /// It gave up and said why on standard error.
    Failed = 4,
}

/// One session, open.
pub struct Session {
    directory: PathBuf,
    map: MmapRaw,
}

// SAFETY: all of the page is atomics; the mapping belongs to no thread.
unsafe impl Send for Session {}
// SAFETY: as above.
unsafe impl Sync for Session {}

/// Held while one process decides whether a collector must be started. Closing it lets the next one in.
pub struct StartLock {
    _file: OwnedFd,
}

impl Session {
    /// The directory under which all sessions of this user lie: made if absent, refused if somebody else's.
    pub fn base_directory() -> Result<PathBuf, Error> {
        let root = std::env::var_os("AMPERE_SHM").map_or_else(|| PathBuf::from("/dev/shm"), PathBuf::from);
        check_root(&root)?;
        let base = root.join(format!("ampere-{}", rustix::process::geteuid().as_raw()));
        make_private(&base)?;
        Ok(base)
    }

    /// Opens the session of this name, making it if it does not exist.
    pub fn open_or_create(name: &str) -> Result<Session, Error> {
        let directory = Self::base_directory()?.join(name);
        make_private(&directory)?;
        Self::open_page(&directory, true)
    }

    /// Opens an existing session.
    pub fn open(directory: &Path) -> Result<Session, Error> {
        Self::open_page(directory, false)
    }

    fn open_page(directory: &Path, may_create: bool) -> Result<Session, Error> {
        let path = directory.join("session");
        if may_create {
            // Made under another name and renamed without replacing, so that whoever finds it finds it whole.
            let making = directory.join(format!("session.{}", std::process::id()));
            let _ = std::fs::remove_file(&making);
            if !path.exists() {
                let map = mapping::create(&making, PAGE_BYTES)?;
                let session = Session { directory: directory.to_owned(), map };
                let page = session.page();
                page.magic.store(MAGIC, Ordering::Relaxed);
                page.abi_version.store(ABI_VERSION, Ordering::Relaxed);
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
        let session = Session { directory: directory.to_owned(), map };
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

    fn page(&self) -> &Page {
        // SAFETY: the mapping is page-aligned, at least PAGE_BYTES long (checked when made or opened), lives as long
        // as self, and every field of Page is an atomic, valid for any bytes.
        unsafe { &*self.map.as_ptr().cast::<Page>() }
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// One process at a time decides whether to start a collector. The others wait, but no longer than `limit`: the one
    /// that holds the lock may have been stopped.
    pub fn lock_start(&self, limit: Duration) -> Result<StartLock, Error> {
        let path = self.directory.join("start.lock");
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = rustix::fs::open(&path, flags, Mode::RUSR | Mode::WUSR)
            .map_err(|e| Error::io("create", &path, e))?;
        let begun = Instant::now();
        loop {
            match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(StartLock { _file: file }),
                Err(rustix::io::Errno::WOULDBLOCK) if begun.elapsed() < limit => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(Error::io("lock", &path, e)),
            }
        }
    }

    /// Says that something new can be read: a process, a definition. Pairs with [`Session::generation`].
    pub fn announce(&self) {
        self.page().generation.fetch_add(1, Ordering::Release);
    }

    pub fn generation(&self) -> u64 {
        self.page().generation.load(Ordering::Acquire)
    }

    pub fn set_collector(&self, pid: u32, state: CollectorState) {
        let page = self.page();
        page.collector_start.store(process::start_time(pid).unwrap_or(0), Ordering::Relaxed);
        page.collector_pid.store(pid, Ordering::Relaxed);
        page.collector_state.store(state as u32, Ordering::Release);
    }

    pub fn collector_state(&self) -> CollectorState {
        match self.page().collector_state.load(Ordering::Acquire) {
            1 => CollectorState::Starting,
            2 => CollectorState::Running,
            3 => CollectorState::Finished,
            4 => CollectorState::Failed,
            _ => CollectorState::None,
        }
    }

    /// Whether a collector has been started and still runs.
    pub fn collector_is_alive(&self) -> bool {
        let page = self.page();
        matches!(self.collector_state(), CollectorState::Starting | CollectorState::Running)
            && process::is_alive(
                page.collector_pid.load(Ordering::Relaxed),
                page.collector_start.load(Ordering::Relaxed),
            )
    }

    /// As [`Session::collector_is_alive`] without a look at who has the pid: one system call and no memory.
    pub fn collector_seems_alive(&self) -> bool {
        let pid = self.page().collector_pid.load(Ordering::Relaxed);
        let running = matches!(self.collector_state(), CollectorState::Starting | CollectorState::Running);
        let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
        running && pid.is_some_and(|pid| rustix::process::test_kill_process(pid).is_ok())
    }

    pub fn beat(&self) {
        self.page().heartbeat.fetch_add(1, Ordering::Relaxed);
    }

    pub fn join(&self) {
        self.page().joined.fetch_add(1, Ordering::AcqRel);
        self.announce();
    }

    /// Says goodbye. Returns how many processes are left by this count (a killed one is never counted off).
    pub fn leave(&self) -> u32 {
        let page = self.page();
        let left = page.left.fetch_add(1, Ordering::AcqRel).wrapping_add(1);
        self.announce();
        page.joined.load(Ordering::Acquire).saturating_sub(left)
    }

    /// Somebody else waits for the collector's end: processes need not.
    pub fn set_waited_for(&self) {
        self.page().waited_for.store(1, Ordering::Release);
    }

    pub fn is_waited_for(&self) -> bool {
        self.page().waited_for.load(Ordering::Acquire) != 0
    }

    /// Asks the sampler to keep what it samples: see [`crate::samples`].
    pub fn want_samples(&self) {
        self.page().samples_wanted.store(1, Ordering::Release);
    }

    pub fn samples_are_wanted(&self) -> bool {
        self.page().samples_wanted.load(Ordering::Acquire) != 0
    }

    pub fn joined(&self) -> u32 {
        self.page().joined.load(Ordering::Acquire)
    }

    /// Where the results go. Set once.
    pub fn set_output(&self, output: &Path) {
        use std::os::unix::ffi::OsStrExt;
        let bytes = output.as_os_str().as_bytes();
        let bytes = &bytes[..bytes.len().min(LONGEST_PATH_BYTES)];
        for (to, from) in self.page().output.iter().zip(bytes) {
            to.store(*from, Ordering::Relaxed);
        }
        self.page().output_length.store(bytes.len() as u32, Ordering::Release);
    }

    pub fn output(&self) -> Option<PathBuf> {
        use std::os::unix::ffi::OsStringExt;
        let length = self.page().output_length.load(Ordering::Acquire) as usize;
        if length == 0 || length > LONGEST_PATH_BYTES {
            return None;
        }
        let bytes = self.page().output[..length].iter().map(|b| b.load(Ordering::Relaxed)).collect();
        Some(PathBuf::from(std::ffi::OsString::from_vec(bytes)))
    }

    /// Says that everything before `time` is in the rings, but for GPU streams, which come late. For a replay.
    pub fn tell_time(&self, time: u64) {
        // Pairs with the acquire in `told_time`: who reads the time finds the events before it.
        self.page().told_time.fetch_max(time, Ordering::Release);
    }

    /// See [`Session::tell_time`].
    pub fn told_time(&self) -> u64 {
        self.page().told_time.load(Ordering::Acquire)
    }

    /// Removes the session's files. Whoever has its page open still sees what is said there.
    pub fn remove(&self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// Makes a directory for this user alone, or checks that an existing one is.
fn make_private(path: &Path) -> Result<(), Error> {
    let refuse = |why| Err(Error::NotOurs { path: path.to_owned(), why });
    match rustix::fs::mkdir(path, Mode::RWXU) {
        Ok(()) => return Ok(()),
        Err(rustix::io::Errno::EXIST) => {}
        Err(e) => return Err(Error::io("create", path, e)),
    }
    let stat = rustix::fs::lstat(path).map_err(|e| Error::io("look at", path, e))?;
    if rustix::fs::FileType::from_raw_mode(stat.st_mode) != rustix::fs::FileType::Directory {
        return refuse("is not a directory");
    }
    if stat.st_uid != rustix::process::geteuid().as_raw() {
        return refuse("belongs to somebody else");
    }
    if stat.st_mode & 0o077 != 0 {
        return refuse("is open to others");
    }
    Ok(())
}

/// Where everybody may write, they must not be able to put another directory in the place of ours.
fn check_root(root: &Path) -> Result<(), Error> {
    // Where there is none, making ours says so.
    let Ok(stat) = rustix::fs::stat(root) else { return Ok(()) };
    let (of_others, sticky) = (stat.st_mode & 0o002 != 0, stat.st_mode & 0o1000 != 0);
    if of_others && !sticky {
        return Err(Error::NotOurs {
            path: root.to_owned(),
            why: "may be written to by everybody, and is not sticky",
        });
    }
    Ok(())
}
