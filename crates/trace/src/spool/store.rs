//! The file with a run's records. It consists of pieces, each with a head that identifies its content.
//!
//! ```text
//! byte     field
//!    0     magic "AMPPIECE"
//!    8     position of its first record in the ring, or of its first byte in the log   u64
//!   16     bytes that follow the head                                                  u32
//!   20     kind: 1 records, 2 a definition log, 3 a removed ring (text)                u8
//!   21     bytes of the name                                                           u8
//!   24     name of the ring or the log, without its extension                          40 bytes
//! ```
//!
//! A later piece replaces the content of earlier ones at the same positions. Pieces are gathered and written together. A piece
//! that was only partly written, because its collector was killed, is at the end and is overwritten by the next one.
//!
//! If the file cannot be made or is full, there is a second one in another directory. Streams use both like one file: offsets are
//! counted continuously.

use super::{Pieces, RECORD_BYTES, Retired};
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

pub const RECORDS: &str = "records";
const MAGIC: &[u8; 8] = b"AMPPIECE";
const HEAD_BYTES: usize = 64;
const NAME_BYTES: usize = 40;
/// The number of bytes that are written at once.
const WRITTEN_AT_ONCE: usize = 1 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PieceKind {
    Records = 1,
    Log = 2,
    Retired = 3,
}

/// The decoded head of one piece.
struct Head {
    kind: PieceKind,
    name: String,
    position: u64,
    bytes: u32,
}

/// One of the files of a store.
struct Part {
    file: Arc<File>,
    path: PathBuf,
    /// The offset of its first byte.
    from: u64,
}

/// The records, logs and removed rings of a run.
#[derive(Default)]
pub struct Store {
    /// Paths at which files may be made, the first choice first.
    paths: Vec<PathBuf>,
    /// The existing files. New pieces are written to the last one.
    parts: Vec<Part>,
    /// The offset after everything that has been written.
    written: u64,
    /// The bytes that are to be written next, at the offset `written`.
    buffer: Vec<u8>,
    /// The number of files that belong to another run and are not changed.
    read_only: usize,
    /// Whether nothing can be written any more.
    has_failed: bool,
    streams: HashMap<String, Pieces>,
    logs: HashMap<String, Vec<(u64, u64, u32)>>,
    retired: HashMap<String, Retired>,
    /// The number of write operations.
    writes: u64,
    notes: Vec<String>,
}

impl Store {
    /// Opens the files in these directories. New pieces are written to the first directory in which a file can be written.
    pub fn open(directories: &[PathBuf]) -> Store {
        let mut store = Store { paths: Vec::new(), ..Store::default() };
        for directory in directories {
            let path = directory.join(RECORDS);
            if store.paths.contains(&path) {
                continue;
            }
            if path.exists() {
                let read = open_file(&path, false).and_then(|file| store.add_part(file, &path));
                if let Err(why) = read {
                    store.notes.push(format!("cannot read {}: {why}", path.display()));
                }
            }
            store.paths.push(path);
        }
        store
    }

    /// Reads the heads of a file's pieces.
    fn add_part(&mut self, file: File, path: &Path) -> io::Result<()> {
        let (from, bytes) = (self.written, file.metadata()?.len());
        let mut at = 0;
        let mut head = [0; HEAD_BYTES];
        while at + HEAD_BYTES as u64 <= bytes {
            file.read_exact_at(&mut head, at)?;
            let Some(head) = Head::of(&head) else { break };
            let begin = at + HEAD_BYTES as u64;
            let end = begin + u64::from(head.bytes);
            if end > bytes {
                break;
            }
            self.learn(&file, head, begin, from)?;
            at = end;
        }
        self.parts.push(Part { file: Arc::new(file), path: path.to_owned(), from });
        self.written = from + at;
        Ok(())
    }

    fn learn(&mut self, file: &File, head: Head, begin: u64, from: u64) -> io::Result<()> {
        let (place, position) = (from + begin, head.position);
        match head.kind {
            PieceKind::Records => {
                let records = u64::from(head.bytes) / RECORD_BYTES;
                self.streams.entry(head.name).or_default().add(position, records, place);
            }
            PieceKind::Log => self.logs.entry(head.name).or_default().push((position, place, head.bytes)),
            PieceKind::Retired => {
                let mut text = vec![0; head.bytes as usize];
                file.read_exact_at(&mut text, begin)?;
                let retired = Retired::of(&String::from_utf8_lossy(&text));
                retired.into_iter().for_each(|retired| _ = self.retired.insert(head.name.clone(), retired));
            }
        }
        Ok(())
    }

    pub(super) fn pieces(&self, stream: &str) -> Pieces {
        self.streams.get(stream).cloned().unwrap_or_default()
    }

    pub(super) fn records(&self, stream: &str) -> u64 {
        self.streams.get(stream).map_or(0, Pieces::end)
    }

    pub(super) fn retired(&self, stream: &str) -> Option<Retired> {
        self.retired.get(stream).copied()
    }

    /// Returns the number of records of all streams whose names `is_wanted` accepts.
    pub fn records_of_all(&self, is_wanted: impl Fn(&str) -> bool) -> u64 {
        self.streams.iter().filter(|(name, _)| is_wanted(name)).map(|(_, pieces)| pieces.end()).sum()
    }

    /// Returns the offset after everything that is on disk.
    pub(super) fn written(&self) -> u64 {
        self.written
    }

    /// Returns the size in bytes of the file that is being written.
    pub fn bytes_of_part(&self) -> u64 {
        self.parts.last().map_or(0, |part| self.written - part.from)
    }

    /// Returns the path of the file that is being written or will be.
    pub fn path(&self) -> Option<&Path> {
        self.parts.last().map(|part| part.path.as_path()).or(self.paths.first().map(PathBuf::as_path))
    }

    /// Returns the number of write operations.
    pub fn writes(&self) -> u64 {
        self.writes
    }

    /// Returns and removes the notes about problems, one line each.
    pub fn take_notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }

    /// Adds a piece. Returns the offset of its first byte.
    pub(super) fn put(
        &mut self,
        kind: PieceKind,
        name: &str,
        position: u64,
        bytes: &[u8],
    ) -> io::Result<u64> {
        if self.has_failed || name.len() > NAME_BYTES {
            return Err(io::ErrorKind::WriteZero.into());
        }
        if self.buffer.len() >= WRITTEN_AT_ONCE {
            self.flush()?;
        }
        let head = Head { kind, name: name.to_owned(), position, bytes: bytes.len() as u32 };
        self.buffer.extend_from_slice(&head.to_bytes());
        let at = self.written + self.buffer.len() as u64;
        self.buffer.extend_from_slice(bytes);
        Ok(at)
    }

    /// Writes to disk everything that was added. After an error nothing more can be written.
    pub fn flush(&mut self) -> io::Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let result = self.write_buffer();
        self.writes += 1;
        match &result {
            Ok(()) => self.written += self.buffer.len() as u64,
            Err(_) => self.has_failed = true,
        }
        self.buffer.clear();
        result
    }

    /// Opens the file for new pieces. Otherwise it is opened when the first pieces are written, when the process may have no
    /// descriptor left.
    pub fn begin(&mut self) -> io::Result<()> {
        self.write_buffer()
    }

    fn write_buffer(&mut self) -> io::Result<()> {
        let result = match self.parts.last().filter(|_| self.parts.len() > self.read_only) {
            Some(part) => {
                let written = part.file.write_all_at(&self.buffer, self.written - part.from);
                written.map_err(|why| (part.path.clone(), why))
            }
            None => Err((PathBuf::new(), io::ErrorKind::NotFound.into())),
        };
        result.or_else(|failed| self.write_elsewhere(failed))
    }

    /// Leaves the existing files unchanged. New pieces are written to the next file.
    pub fn only_read(&mut self) {
        self.read_only = self.parts.len();
    }

    /// Continues in the next file. Returns `false` if there is none.
    pub fn leave_part(&mut self) -> bool {
        let next = self.next_paths();
        next.into_iter().any(|path| self.begin_part(&path).is_ok())
    }

    fn next_paths(&self) -> Vec<PathBuf> {
        let now = self.parts.last().and_then(|part| self.paths.iter().position(|path| *path == part.path));
        self.paths[now.map_or(0, |now| now + 1)..].to_vec()
    }

    fn begin_part(&mut self, path: &Path) -> io::Result<()> {
        let file = open_file(path, true).or_else(|error| {
            let directory = path.parent().filter(|_| error.kind() == io::ErrorKind::NotFound).ok_or(error)?;
            ampere_owned::make_private(directory)?; // the directory is missing
            open_file(path, true)
        })?;
        self.parts.push(Part { file: Arc::new(file), path: path.to_owned(), from: self.written });
        Ok(())
    }

    fn write_elsewhere(&mut self, failed: (PathBuf, io::Error)) -> io::Result<()> {
        let (mut at, mut why) = failed;
        for path in self.next_paths() {
            let written = self.begin_part(&path).and_then(|()| {
                let file = &self.parts.last().ok_or(io::ErrorKind::NotFound)?.file;
                file.write_all_at(&self.buffer, 0)
            });
            match written {
                Ok(()) if at == PathBuf::new() => return Ok(()),
                Ok(()) => {
                    let (at, path) = (at.display(), path.display());
                    self.notes
                        .push(format!("cannot write {at}: {why}; further records are written to {path}"));
                    return Ok(());
                }
                Err(error) => (at, why) = (path, error),
            }
        }
        Err(io::Error::new(why.kind(), format!("cannot write {}: {why}", at.display())))
    }

    /// Writes the logs whose names `is_wanted` accepts into a directory, in their original form. Returns their paths.
    pub fn unpack_logs(
        &self,
        directory: &Path,
        is_wanted: impl Fn(&str) -> bool,
    ) -> io::Result<Vec<PathBuf>> {
        let mut paths = Vec::new();
        for (name, pieces) in self.logs.iter().filter(|(name, _)| is_wanted(name)) {
            let path = directory.join(format!("{name}.defs"));
            let file = open_file(&path, true)?;
            for (position, at, bytes) in pieces {
                let mut content = vec![0; *bytes as usize];
                let Some((part, offset)) = self.place(*at) else { continue };
                part.file.read_exact_at(&mut content, offset)?;
                file.write_all_at(&content, *position)?;
            }
            paths.push(path);
        }
        Ok(paths)
    }

    fn place(&self, at: u64) -> Option<(&Part, u64)> {
        let part = self.parts.iter().rev().find(|part| part.from <= at)?;
        Some((part, at - part.from))
    }
}

/// Reads bytes at an offset to fill `into`, from disk or from the buffer. The store is not locked while the disk is read.
pub(super) fn read_at(store: &Mutex<Store>, at: u64, into: &mut [u8]) -> io::Result<()> {
    let (file, offset) = {
        let store = super::locked(store);
        if at >= store.written {
            let begin = (at - store.written) as usize;
            let found = store.buffer.get(begin..begin + into.len());
            into.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
            return Ok(());
        }
        let (part, offset) = store.place(at).ok_or(io::ErrorKind::UnexpectedEof)?;
        (part.file.clone(), offset)
    };
    file.read_exact_at(into, offset)
}

fn open_file(path: &Path, is_new: bool) -> io::Result<File> {
    match is_new {
        true => ampere_owned::open_or_create(path, 0o600),
        false => ampere_owned::open_own(path),
    }
}

impl Head {
    fn to_bytes(&self) -> [u8; HEAD_BYTES] {
        let mut bytes = [0; HEAD_BYTES];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..16].copy_from_slice(&self.position.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.bytes.to_le_bytes());
        (bytes[20], bytes[21]) = (self.kind as u8, self.name.len() as u8);
        bytes[24..24 + self.name.len()].copy_from_slice(self.name.as_bytes());
        bytes
    }

    fn of(bytes: &[u8; HEAD_BYTES]) -> Option<Head> {
        let kind = match bytes[20] {
            1 => PieceKind::Records,
            2 => PieceKind::Log,
            3 => PieceKind::Retired,
            _ => return None,
        };
        let name = bytes.get(24..24 + usize::from(bytes[21]))?;
        let name = str::from_utf8(name).ok().filter(|name| !name.contains('/'))?;
        (&bytes[..8] == MAGIC).then_some(Head {
            kind,
            name: name.to_owned(),
            position: u64::from_le_bytes(*bytes[8..].first_chunk()?),
            bytes: u32::from_le_bytes(*bytes[16..].first_chunk()?),
        })
    }
}
