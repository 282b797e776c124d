//! A process' definitions log: an append-only file, written with `write` and read with `pread`.
//!
//! Definitions are not read or written through a mapping. They are rare, a file can grow, a full tmpfs causes an error and no
//! signal, and the reader never sees memory change. A definition is in the file before any event that uses it is published in a
//! ring, so a reader that finds an unknown handle reads the log again and finds the definition.
//!
//! ```text
//! file      = "AMPDEFS1" entry*
//! entry     = length u32 (of what follows)  kind u8  fields
//! string    = length u32  bytes (UTF-8; invalid sequences are replaced)
//! ```
//!
//! An entry that is shorter than its length was being written when the writer was killed: it is ignored.
//!
//! The writer holds a lock (flock) on its log while its program runs, even if the program closes the descriptor: a mapping of
//! the file keeps the lock until the program ends or calls `exec`. A reader in another pid namespace (a container) can
//! therefore see whether the program is still running.

mod codec;

use crate::error::Error;
use crate::mapping;
use ampere_model::{Definition, Region};
use ampere_signal_safety::without_write_signals;
use memmap2::{MmapOptions, MmapRaw};
use rustix::fs::{FlockOperation, Mode, OFlags};
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd};
use std::path::{Path, PathBuf};

const MAGIC: &[u8; 8] = b"AMPDEFS1";
/// An entry that is longer counts as damaged.
const ENTRY_BYTES_MAX: usize = 1 << 20;
/// The writer's buffer for an entry. A longer entry allocates.
const BUFFER_BYTES: usize = 64 << 10;
/// The size of a read.
const READ_BYTES: usize = 256 << 10;
/// A log that is longer or has more entries counts as damaged, so that reading ends. A program with two million functions needs
/// less.
const LOG_BYTES_MAX: u64 = 256 << 20;
const ENTRIES_MAX: u64 = 1 << 21;

/// Appends definitions to a log.
///
/// The measured program may close descriptors that it did not open, and then open files of its own under the same numbers: before
/// each write the writer checks that the descriptor still belongs to the log. If the program may open only few files, the log is
/// opened for each definition.
pub struct LogWriter {
    /// `None` if the program closed it, or if it is opened for each definition.
    file: Option<OwnedFd>,
    stays_open: bool,
    path: PathBuf,
    /// The file's device and inode.
    identity: (u64, u64),
    buffer: Vec<u8>,
    left_out: u64,
    /// The mapping that keeps the lock.
    _lock: Option<MmapRaw>,
}

impl LogWriter {
    /// Makes the log. It must not exist.
    pub fn create(path: &Path) -> Result<LogWriter, Error> {
        let flags = OFlags::RDWR
            | OFlags::APPEND
            | OFlags::CREATE
            | OFlags::EXCL
            | OFlags::CLOEXEC
            | OFlags::NOFOLLOW;
        let file = rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR)
            .map_err(|e| Error::io("create", path, e))?;
        let lock = lock(&file);
        let file = out_of_the_way(file);
        let identity = identity_of(&file).map_err(|e| Error::io("look at", path, e))?;
        match without_write_signals(|| rustix::io::write(&file, MAGIC)) {
            Ok(8) => Ok(LogWriter {
                stays_open: may_stay_open(&file),
                file: Some(file),
                path: path.to_owned(),
                identity,
                buffer: Vec::with_capacity(BUFFER_BYTES),
                left_out: 0,
                _lock: lock,
            }),
            Ok(_) | Err(rustix::io::Errno::NOSPC) => Err(Error::NoSpace { path: path.to_owned(), bytes: 8 }),
            Err(e) => Err(Error::io("write to", path, e)),
        }
    }

    /// Reopens the log of a dead writer. An incomplete entry is removed.
    pub fn reopen(path: &Path) -> Result<LogWriter, Error> {
        let mut whole = 0;
        if let Some(mut reader) = LogReader::open(path)? {
            reader.read_new(|_| {})?;
            whole = reader.offset;
        }
        if whole < MAGIC.len() as u64 {
            return Err(Error::malformed(path, "it does not begin with AMPDEFS1"));
        }
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = rustix::fs::open(path, flags, Mode::empty()).map_err(|e| Error::io("open", path, e))?;
        rustix::fs::ftruncate(&file, whole).map_err(|e| Error::io("cut", path, e))?;
        let identity = identity_of(&file).map_err(|e| Error::io("look at", path, e))?;
        let buffer = Vec::with_capacity(BUFFER_BYTES);
        Ok(LogWriter {
            stays_open: true,
            file: Some(file),
            path: path.to_owned(),
            identity,
            buffer,
            left_out: 0,
            _lock: None,
        })
    }

    /// Writes one definition. If it is too long or cannot be written, it is counted as left out and the function returns `false`.
    pub fn append(&mut self, definition: &Definition) -> bool {
        self.append_encoded(|buffer| codec::encode(definition, buffer))
    }

    /// Writes a region, whose texts may be arbitrary bytes. Does not allocate, unless they are longer than the buffer: Score-P
    /// defines regions in signal handlers.
    pub fn append_region(&mut self, region: &Region<impl AsRef<[u8]>>) -> bool {
        self.append_encoded(|buffer| codec::encode_region(region, buffer))
    }

    fn append_encoded(&mut self, encode: impl FnOnce(&mut Vec<u8>)) -> bool {
        self.buffer.clear();
        self.buffer.extend_from_slice(&[0; 4]);
        encode(&mut self.buffer);
        let length = self.buffer.len() - 4;
        if length > ENTRY_BYTES_MAX {
            self.left_out += 1;
            return false;
        }
        self.buffer[..4].copy_from_slice(&(length as u32).to_le_bytes());
        self.reopen_if_not_ours();
        let written = self.file.as_ref().is_some_and(|file| write_whole(file, &self.buffer));
        if !self.stays_open {
            self.file = None;
        }
        self.left_out += u64::from(!written);
        written
    }

    fn reopen_if_not_ours(&mut self) {
        if self.file.as_ref().is_some_and(|file| identity_of(file) == Ok(self.identity)) {
            return;
        }
        // The descriptor is closed, or belongs to a file of the program: it must not be closed here.
        if let Some(file) = self.file.take() {
            let _ = file.into_raw_fd();
        }
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let again = rustix::fs::open(&self.path, flags, Mode::empty()).ok();
        self.file = again.map(out_of_the_way).filter(|file| identity_of(file) == Ok(self.identity));
    }

    /// Returns the number of definitions that were left out, because they were too long or could not be written.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }
}

fn write_whole(file: &OwnedFd, bytes: &[u8]) -> bool {
    let start = rustix::fs::seek(file, rustix::fs::SeekFrom::End(0));
    if matches!(without_write_signals(|| rustix::io::write(file, bytes)), Ok(n) if n == bytes.len()) {
        return true;
    }
    // Remove the incomplete entry, so that the log stays readable.
    if let Ok(start) = start {
        let _ = rustix::fs::ftruncate(file, start);
    }
    false
}

/// Locks the log and maps it, which keeps the lock. Returns `None` if the file system has no locks: then only the pid shows
/// whether the process still runs.
fn lock(file: &OwnedFd) -> Option<MmapRaw> {
    rustix::io::retry_on_intr(|| rustix::fs::flock(file, FlockOperation::LockExclusive)).ok()?;
    MmapOptions::new().len(1).map_raw_read_only(file).ok()
}

/// Moves a descriptor to a number that the program does not expect to get. Programs expect the lowest free number, and those of
/// standard streams that they have closed.
fn out_of_the_way(file: OwnedFd) -> OwnedFd {
    const NUMBERS: [i32; 2] = [64, 3];
    if file.as_raw_fd() >= NUMBERS[0] {
        return file;
    }
    let moved = NUMBERS.iter().find_map(|least| rustix::io::fcntl_dupfd_cloexec(&file, *least).ok());
    moved.unwrap_or(file)
}

/// Whether the program has enough descriptors left.
fn may_stay_open(file: &OwnedFd) -> bool {
    const LEFT_TO_THE_PROGRAM: u64 = 128;
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    limit.is_none_or(|limit| file.as_raw_fd() as u64 + LEFT_TO_THE_PROGRAM < limit)
}

fn identity_of(file: &OwnedFd) -> Result<(u64, u64), rustix::io::Errno> {
    rustix::fs::fstat(file).map(|stat| (stat.st_dev, stat.st_ino))
}

/// Receives bytes of a log with their offset; some bytes may be passed twice. It returns `false` if they cannot be kept.
pub type CopyLog = Box<dyn FnMut(u64, &[u8]) -> bool + Send>;

/// The file of a [`LogReader`].
enum ReadFile {
    Open(OwnedFd),
    /// The file is opened for each read, so that no descriptor is held in between.
    ReopenedForReads,
    Closed,
}

/// Reads a log as it grows.
pub struct LogReader {
    file: ReadFile,
    path: PathBuf,
    /// The end of the last complete entry. Bytes after it are read again, because their writer may remove them.
    offset: u64,
    pending: Vec<u8>,
    entries: u64,
    /// Whether an entry was damaged: nothing after it can be read.
    damaged: bool,
    chunk: Vec<u8>,
    /// A byte-for-byte copy of the bytes that have been read.
    copy: Option<CopyLog>,
    /// The number of entries that this version does not know.
    pub unknown_entries: u64,
}

impl LogReader {
    /// Opens a log. `None` if its writer has not written its first bytes yet.
    pub fn open(path: &Path) -> Result<Option<LogReader>, Error> {
        let (file, _) = mapping::open_ours(path, OFlags::RDONLY)?;
        let mut magic = [0; 8];
        match rustix::io::pread(&file, &mut magic, 0) {
            Ok(8) if &magic == MAGIC => {}
            Ok(short) if short < 8 => return Ok(None),
            Ok(_) => return Err(Error::malformed(path, "it does not begin with AMPDEFS1")),
            Err(e) => return Err(Error::io("read", path, e)),
        }
        Ok(Some(LogReader {
            file: ReadFile::Open(file),
            path: path.to_owned(),
            offset: 8,
            pending: Vec::new(),
            entries: 0,
            damaged: false,
            chunk: vec![0; READ_BYTES],
            copy: None,
            unknown_entries: 0,
        }))
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the program that writes the log still holds its lock, and so is still running.
    pub fn is_held(&self) -> bool {
        let is_held = |file: &OwnedFd| {
            let held = rustix::fs::flock(file, FlockOperation::NonBlockingLockShared)
                == Err(rustix::io::Errno::WOULDBLOCK);
            if !held {
                let _ = rustix::fs::flock(file, FlockOperation::Unlock);
            }
            held
        };
        match &self.file {
            ReadFile::Open(file) => is_held(file),
            // A log that cannot be opened for lack of descriptors has not been seen to end.
            ReadFile::ReopenedForReads => {
                self.reopened().map_or_else(|why| why.is_a_limit(), |file| is_held(&file))
            }
            ReadFile::Closed => false,
        }
    }

    fn reopened(&self) -> Result<OwnedFd, Error> {
        mapping::open_ours(&self.path, OFlags::RDONLY).map(|(file, _)| file)
    }

    /// Makes the reader hold a descriptor only while it reads, because a run may have thousands of processes.
    pub fn release_descriptor(&mut self) {
        self.file = ReadFile::ReopenedForReads;
        self.chunk = Vec::new();
    }

    /// Copies the bytes that are read. Must be called before the first read. Copying stops when it fails.
    pub fn copy_to(&mut self, mut copy: CopyLog) {
        self.copy = copy(0, MAGIC).then_some(copy);
    }

    /// Releases descriptors and memory. Nothing more is read.
    pub fn close(&mut self) {
        (self.file, self.copy) = (ReadFile::Closed, None);
        (self.pending, self.chunk) = (Vec::new(), Vec::new());
    }

    /// Calls `each` for every definition that was written since the last call.
    ///
    /// # Errors
    /// [`Error::Malformed`], once, for a damaged entry; [`Error::Io`] if the log cannot be read.
    pub fn read_new(&mut self, each: impl FnMut(Definition)) -> Result<(), Error> {
        match std::mem::replace(&mut self.file, ReadFile::Closed) {
            ReadFile::Open(file) => {
                let read = self.read_from(&file, each);
                self.file = ReadFile::Open(file);
                read
            }
            ReadFile::ReopenedForReads => {
                let read = self.reopened().ok().map(|file| self.read_from(&file, each));
                self.release_descriptor();
                read.unwrap_or(Ok(())) // a log that cannot be opened now has nothing new
            }
            ReadFile::Closed => Ok(()),
        }
    }

    fn read_from(&mut self, file: &OwnedFd, mut each: impl FnMut(Definition)) -> Result<(), Error> {
        self.pending.clear();
        self.chunk.resize(READ_BYTES, 0);
        let mut end = self.offset;
        while !self.damaged {
            let count = match rustix::io::pread(file, &mut self.chunk, end) {
                Err(rustix::io::Errno::INTR) => continue,
                read => read.map_err(|e| Error::io("read", &self.path, e))?,
            };
            if count == 0 {
                break;
            }
            if self.copy.as_mut().is_some_and(|copy| !copy(end, &self.chunk[..count])) {
                self.copy = None;
            }
            end += count as u64;
            self.pending.extend_from_slice(&self.chunk[..count]);
            self.take_entries(&mut each)?;
        }
        Ok(())
    }

    fn take_entries(&mut self, each: &mut impl FnMut(Definition)) -> Result<(), Error> {
        let mut at = 0;
        while let Some(head) = self.pending.get(at..at + 4) {
            let length = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
            if length == 0 || length > ENTRY_BYTES_MAX {
                return self.damage(format!("an entry of {length} bytes"));
            }
            let Some(body) = self.pending.get(at + 4..at + 4 + length) else { break };
            self.entries += 1;
            if self.entries > ENTRIES_MAX || self.offset + at as u64 > LOG_BYTES_MAX {
                return self.damage(format!("more than {ENTRIES_MAX} entries or {LOG_BYTES_MAX} bytes"));
            }
            match codec::decode(body) {
                Some(definition) => each(definition),
                None => self.unknown_entries += 1,
            }
            at += 4 + length;
        }
        self.pending.drain(..at);
        self.offset += at as u64;
        Ok(())
    }

    fn damage(&mut self, why: String) -> Result<(), Error> {
        self.damaged = true;
        Err(Error::malformed(&self.path, why))
    }
}
