//! A process' definitions log: an append-only file, written with `write` and read with `pread`.
//!
//! Not mapped: a definition is rare, a file grows without being made anew, a full tmpfs is an error code, and the
//! reader never sees memory change under it. A definition is in the file before any event that uses it is published
//! in a ring, so a reader that meets an unknown handle reads the log again and finds it.
//!
//! ```text
//! file      = "AMPDEFS1" entry*
//! entry     = length u32 (of what follows)  kind u8  fields
//! string    = length u32  bytes (UTF-8; what is not is replaced)
//! ```
//!
//! An entry that the writer was killed in is shorter than its length says: it is not there.
//!
//! The writer holds a lock (flock) on its log as long as its program runs, whatever becomes of its descriptors: the kernel keeps
//! the lock while the mapped file is open, and a program that ends or becomes another one (`exec`) has it mapped no more. So a reader
//! sees whether the program still runs also where the process has no pid that the reader could look for (a container).

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
/// No entry is longer: what is, is damage.
const LONGEST_ENTRY_BYTES: usize = 1 << 20;
/// What the writer keeps for an entry. A longer one takes memory.
const BUFFER_BYTES: usize = 64 << 10;
/// How much of a log is read at a time.
const READ_BYTES: usize = 256 << 10;
/// What is longer, or has more entries, is damage, too: a program of two million functions has less, and whoever reads it
/// must come to an end.
const MOST_LOG_BYTES: u64 = 256 << 20;
const MOST_ENTRIES: u64 = 1 << 21;

/// Appends definitions. Calls must not overlap (the plugin holds a lock that no event path takes).
///
/// The writer lives in somebody's program, which may close every file descriptor that it did not open, and then open files
/// of its own under the same numbers: before anything is written it is seen whether the file is still ours. One that may have
/// few descriptors has them all: the file is then opened for each definition.
pub struct LogWriter {
    /// `None` until it is opened again: it was closed by somebody else, or is not to stay open.
    file: Option<OwnedFd>,
    stays_open: bool,
    path: PathBuf,
    /// Device and inode.
    identity: (u64, u64),
    buffer: Vec<u8>,
    left_out: u64,
    /// Keeps the lock; never read.
    _held: Option<MmapRaw>,
}

impl LogWriter {
    /// Makes the log; it must not exist.
    pub fn create(path: &Path) -> Result<LogWriter, Error> {
        let flags = OFlags::RDWR
            | OFlags::APPEND
            | OFlags::CREATE
            | OFlags::EXCL
            | OFlags::CLOEXEC
            | OFlags::NOFOLLOW;
        let file = rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR)
            .map_err(|e| Error::io("create", path, e))?;
        let held = hold(&file);
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
                _held: held,
            }),
            Ok(_) | Err(rustix::io::Errno::NOSPC) => Err(Error::NoSpace { path: path.to_owned(), bytes: 8 }),
            Err(e) => Err(Error::io("write to", path, e)),
        }
    }

    /// Goes on with the log of a writer that is dead. An entry that it was killed in is taken away.
    pub fn go_on(path: &Path) -> Result<LogWriter, Error> {
        let mut whole = 0;
        if let Some(mut reader) = LogReader::open(path)? {
            reader.read_new(|_| {})?;
            whole = reader.offset;
        }
        if whole < MAGIC.len() as u64 {
            return Err(Error::malformed(path, "it has no beginning"));
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
            _held: None,
        })
    }

    /// Writes one definition. `false` if it found no room; it is counted then.
    pub fn append(&mut self, definition: &Definition) -> bool {
        self.append_encoded(|buffer| codec::encode(definition, buffer))
    }

    /// The same for a region, whose texts may be any bytes. It takes no memory: Score-P defines regions in signal handlers.
    pub fn append_region(&mut self, region: &Region<impl AsRef<[u8]>>) -> bool {
        self.append_encoded(|buffer| codec::encode_region(region, buffer))
    }

    fn append_encoded(&mut self, encode: impl FnOnce(&mut Vec<u8>)) -> bool {
        self.buffer.clear();
        self.buffer.extend_from_slice(&[0; 4]);
        encode(&mut self.buffer);
        let length = self.buffer.len() - 4;
        if length > LONGEST_ENTRY_BYTES {
            self.left_out += 1;
            return false;
        }
        self.buffer[..4].copy_from_slice(&(length as u32).to_le_bytes());
        self.see_that_it_is_ours();
        let written = self.file.as_ref().is_some_and(|file| write_whole(file, &self.buffer));
        if !self.stays_open {
            self.file = None;
        }
        self.left_out += u64::from(!written);
        written
    }

    fn see_that_it_is_ours(&mut self) {
        if self.file.as_ref().is_some_and(|file| identity_of(file) == Ok(self.identity)) {
            return;
        }
        // The number is somebody else's now, or nobody's: not ours to close.
        if let Some(file) = self.file.take() {
            let _ = file.into_raw_fd();
        }
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let again = rustix::fs::open(&self.path, flags, Mode::empty()).ok();
        self.file = again.map(out_of_the_way).filter(|file| identity_of(file) == Ok(self.identity));
    }

    /// Definitions that found no room.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }
}

fn write_whole(file: &OwnedFd, bytes: &[u8]) -> bool {
    let start = rustix::fs::seek(file, rustix::fs::SeekFrom::End(0));
    if matches!(without_write_signals(|| rustix::io::write(file, bytes)), Ok(n) if n == bytes.len()) {
        return true;
    }
    // Take back what was half-written, so that what follows stays readable.
    if let Ok(start) = start {
        let _ = rustix::fs::ftruncate(file, start);
    }
    false
}

/// `None` where the file system has no locks: then a process is known by its pid alone.
fn hold(file: &OwnedFd) -> Option<MmapRaw> {
    rustix::io::retry_on_intr(|| rustix::fs::flock(file, FlockOperation::LockExclusive)).ok()?;
    MmapOptions::new().len(1).map_raw_read_only(file).ok()
}

/// With a number that the program will not expect: not those of its standard files, if it has closed them, nor the lowest
/// that is free.
fn out_of_the_way(file: OwnedFd) -> OwnedFd {
    const NUMBERS: [i32; 2] = [64, 3];
    if file.as_raw_fd() >= NUMBERS[0] {
        return file;
    }
    let moved = NUMBERS.iter().find_map(|least| rustix::io::fcntl_dupfd_cloexec(&file, *least).ok());
    moved.unwrap_or(file)
}

/// Whether the program will not miss the descriptor.
fn may_stay_open(file: &OwnedFd) -> bool {
    const LEFT_TO_THE_PROGRAM: u64 = 128;
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    limit.is_none_or(|limit| file.as_raw_fd() as u64 + LEFT_TO_THE_PROGRAM < limit)
}

fn identity_of(file: &OwnedFd) -> Result<(u64, u64), rustix::io::Errno> {
    rustix::fs::fstat(file).map(|stat| (stat.st_dev, stat.st_ino))
}

/// Reads a log as it grows.
pub struct LogReader {
    /// `None`: no more is read.
    file: Option<OwnedFd>,
    path: PathBuf,
    /// After the last whole entry. What was read of the next is read again: its writer may take it back.
    offset: u64,
    pending: Vec<u8>,
    entries: u64,
    /// An entry made no sense: nothing after it can be read.
    damaged: bool,
    chunk: Vec<u8>,
    /// Where a copy is kept, byte for byte, as far as it has been read.
    copy: Option<std::fs::File>,
    /// Entries of a kind, or with fields, that this version does not know.
    pub unknown_entries: u64,
}

impl LogReader {
    /// `None` while its writer has just made it and not yet written its first bytes.
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
            file: Some(file),
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

    /// Whether the program that writes the log still runs, by its lock.
    pub fn is_held(&self) -> bool {
        self.file.as_ref().is_some_and(|file| {
            let held = rustix::fs::flock(file, FlockOperation::NonBlockingLockShared)
                == Err(rustix::io::Errno::WOULDBLOCK);
            if !held {
                let _ = rustix::fs::flock(file, FlockOperation::Unlock);
            }
            held
        })
    }

    /// Keeps a copy of what is read from now on; to be said before anything is read. Bytes go where they are in the log, so
    /// a second reader of the same log changes nothing. A copy that cannot be written any more is given up.
    pub fn copy_to(&mut self, copy: std::fs::File) {
        use std::os::unix::fs::FileExt;
        self.copy = copy.write_all_at(MAGIC, 0).is_ok().then_some(copy);
    }

    /// No more is read: its descriptors and its memory are given back.
    pub fn close(&mut self) {
        (self.file, self.copy) = (None, None);
        (self.pending, self.chunk) = (Vec::new(), Vec::new());
    }

    /// Hands over every definition that has been written since the last call.
    pub fn read_new(&mut self, mut each: impl FnMut(Definition)) -> Result<(), Error> {
        self.pending.clear();
        let mut end = self.offset;
        while !self.damaged
            && let Some(file) = &self.file
        {
            let count = match rustix::io::pread(file, &mut self.chunk, end) {
                Err(rustix::io::Errno::INTR) => continue,
                read => read.map_err(|e| Error::io("read", &self.path, e))?,
            };
            if count == 0 {
                break;
            }
            if let Some(copy) = &self.copy {
                use std::os::unix::fs::FileExt;
                if copy.write_all_at(&self.chunk[..count], end).is_err() {
                    self.copy = None;
                }
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
            if length == 0 || length > LONGEST_ENTRY_BYTES {
                return self.damage(format!("an entry of {length} bytes"));
            }
            let Some(body) = self.pending.get(at + 4..at + 4 + length) else { break };
            self.entries += 1;
            if self.entries > MOST_ENTRIES || self.offset + at as u64 > MOST_LOG_BYTES {
                return self.damage(format!("more than {MOST_ENTRIES} entries or {MOST_LOG_BYTES} bytes"));
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
