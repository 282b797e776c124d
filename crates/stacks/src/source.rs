//! Finds the bytes of a mapped file, and checks whether a file is the one that was mapped.

use std::fs::Metadata;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use object::LittleEndian as LE;
use object::elf;
use object::pod;

use crate::foreign;

const SECTION_MAX: u64 = 512 << 20;

/// Distinguishes a mapped file from other files with the same path. Programs that differ only in their symbols can have the same
/// build ID.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Content {
    File {
        /// The build ID, which the linker makes from the contents of the file; empty if it is not known.
        build_id: Box<[u8]>,
        /// The device and inode, as in the kernel's records.
        inode: [u64; 2],
        bytes: u64,
        /// The time of the file's last change, in nanoseconds of the time of day.
        changed: i64,
        /// Whether the file at its path was written after it had been mapped.
        is_rewritten: bool,
    },
    Memory,
}

/// The tolerance when times of two clocks are compared.
const SLACK_NS: i64 = 1_000_000;

pub(crate) struct MappedFile<'a> {
    pub(crate) path: &'a Path,
    pub(crate) content: &'a Content,
    pub(crate) process: u32,
    /// An address at which the file is mapped.
    pub(crate) address: u64,
    /// The time of day at which the file was mapped, if it is known. A file that was written later counts as a different file.
    pub(crate) mapped_at: Option<i64>,
}

/// The device, inode, size and last time of writing of a file.
pub(crate) type Identity = [u64; 4];

/// Where a file's bytes are.
pub(crate) enum Source {
    /// A file that is opened again for each use, and not kept open.
    Path(PathBuf, Identity),
    Memory(Vec<u8>),
}

pub(crate) fn open(path: &Path) -> io::Result<(std::fs::File, Identity)> {
    let file = std::fs::File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    let about = file.metadata()?;
    match about.is_file() {
        true => Ok((file, identity(&about))),
        false => Err(io::ErrorKind::InvalidInput.into()),
    }
}

fn identity(about: &Metadata) -> Identity {
    [about.dev(), about.ino(), about.size(), ns(about.mtime(), about.mtime_nsec()) as u64]
}

fn ns(seconds: i64, nanoseconds: i64) -> i64 {
    seconds.saturating_mul(1_000_000_000).saturating_add(nanoseconds)
}

/// Returns a path in the file system of a process.
fn in_process(process: u32, path: &Path) -> PathBuf {
    let mut seen = std::ffi::OsString::from(format!("/proc/{process}/root"));
    seen.push(path);
    seen.into()
}

/// Whether a file can be the one with this device and inode. Inodes are compared only if the devices are the same, because
/// stacked file systems have devices of their own.
fn is_inode(identity: &Identity, [device, number]: [u64; 2]) -> bool {
    of_kernel(identity[0]) != device || identity[1] == number
}

fn of_kernel(device: u64) -> u64 {
    u64::from(libc::major(device)) << 32 | u64::from(libc::minor(device))
}

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct FileStatus {
    inode: [u64; 2],
    bytes: u64,
    changed: i64,
    written: i64,
}

impl FileStatus {
    /// Returns the status of the file at the path of a mapped file. The kernel has recorded the build id of the mapped file, or
    /// else the device and inode. If there is no such file, the size and the times are 0.
    pub(crate) fn of(process: u32, path: &Path, build_id: &[u8], inode: [u64; 2]) -> FileStatus {
        let found = [in_process(process, path), path.to_owned()].into_iter().find_map(|path| {
            let about = std::fs::metadata(path).ok()?;
            (!build_id.is_empty() || is_inode(&identity(&about), inode)).then_some(about)
        });
        found.map_or(FileStatus { inode, ..FileStatus::default() }, |about| FileStatus {
            inode: if build_id.is_empty() { inode } else { [of_kernel(about.dev()), about.ino()] },
            bytes: about.size(),
            changed: ns(about.ctime(), about.ctime_nsec()),
            written: ns(about.mtime(), about.mtime_nsec()),
        })
    }
}

impl Content {
    /// Describes a file by its status. `mapped_at` is the time of day at which the file was mapped, if that is known.
    pub(crate) fn of(about: FileStatus, build_id: &[u8], mapped_at: Option<i64>) -> Content {
        let FileStatus { inode, bytes, changed, written } = about;
        Content::File {
            build_id: build_id.into(),
            inode,
            bytes,
            changed,
            is_rewritten: mapped_at.is_some_and(|at| written > at.saturating_add(SLACK_NS)),
        }
    }

    /// Adds the build id, read from the file, to a description in which the kernel has not recorded one.
    pub(crate) fn with(&self, id: &[u8]) -> Content {
        match self.clone() {
            Content::File { inode, bytes, changed, is_rewritten, .. } => {
                Content::File { build_id: id.into(), inode, bytes, changed, is_rewritten }
            }
            Content::Memory => Content::Memory,
        }
    }

    pub(crate) fn has_build_id(&self) -> bool {
        matches!(self, Content::File { build_id, .. } if !build_id.is_empty())
    }
}

impl MappedFile<'_> {
    /// Whether the mapped file is the one at a path: by its build ID or, if that is not known, by its inode. If the devices
    /// differ, the inodes are compared only if `is_exact` is set: on a stacked file system such as overlayfs, a path and a
    /// mapping of one file can have different devices and inodes.
    fn is(&self, path: &Path, is_exact: bool) -> bool {
        let Content::File { build_id: id, inode, .. } = self.content else { return false };
        let Ok((file, identity)) = open(path) else { return false };
        let is_rewritten = self.mapped_at.is_some_and(|at| identity[3] as i64 > at.saturating_add(SLACK_NS));
        let is_it = match id.is_empty() {
            true => is_inode(&identity, *inode) && (identity[1] == inode[1] || !is_exact),
            false => build_id(&Reader::File(file, identity[2])).is_some_and(|found| found == **id),
        };
        is_it && !is_rewritten
    }
}

impl Source {
    /// Finds the file that a process has mapped. `None` if it is no longer there or was rewritten.
    pub(crate) fn find(mapped_file: &MappedFile) -> Option<Source> {
        let MappedFile { path, process, address, .. } = *mapped_file;
        if *mapped_file.content == Content::Memory {
            return None;
        }
        let seen = in_process(process, path);
        let identity_of = |path: &Path| Some(open(path).ok()?.1);
        // Our own path to the file is preferred if it leads to the same file, because the process' view of the file system
        // vanishes with the process.
        let is_same = match (identity_of(&seen), identity_of(path)) {
            (Some(seen), here) => here == Some(seen),
            (None, _) => true,
        };
        let here = is_same.then(|| path.to_owned());
        let by_path = [here, Some(seen)].into_iter().flatten().find(|path| mapped_file.is(path, false));
        // A file that is at neither path, such as a removed one, may still be found through `/proc`.
        let found = by_path
            .or_else(|| map_file(process, address).filter(|path| mapped_file.is(path, false)))
            .or_else(|| {
                let program = PathBuf::from(format!("/proc/{process}/exe"));
                mapped_file.is(&program, true).then_some(program)
            })?;
        let identity = identity_of(&found)?;
        Some(Source::Path(found, identity))
    }

    /// Runs a step that reads the source, with a timeout, because a file may be on a mount that never answers.
    pub(crate) fn in_time<T: Send + 'static>(
        &self,
        step: impl FnOnce(&Source) -> Option<T> + Send + 'static,
    ) -> Option<T> {
        match self {
            Source::Memory(_) => step(self),
            Source::Path(path, identity) => {
                let source = Source::Path(path.clone(), *identity);
                foreign::in_time(move || step(&source)).flatten()
            }
        }
    }

    pub(crate) fn reader(&self) -> Option<Reader<'_>> {
        match self {
            Source::Memory(bytes) => Some(Reader::Memory(bytes)),
            Source::Path(path, identity) => {
                let (file, found) = open(path).ok()?;
                (found == *identity).then_some(Reader::File(file, found[2]))
            }
        }
    }
}

/// Returns the kernel's own link to the file that is mapped at an address of a process, which only root may follow.
fn map_file(process: u32, address: u64) -> Option<PathBuf> {
    let maps = std::fs::read(format!("/proc/{process}/maps")).ok()?;
    let range = maps.split(|byte| *byte == b'\n').find_map(|line| {
        let addresses = std::str::from_utf8(line.split(|byte| *byte == b' ').next()?).ok()?;
        let (start, end) = addresses.split_once('-')?;
        let [start, end] = [start, end].map(|text| u64::from_str_radix(text, 16).ok());
        Some(start?..end?).filter(|range| range.contains(&address))
    })?;
    let path = PathBuf::from(format!("/proc/{process}/map_files/{:x}-{:x}", range.start, range.end));
    open(&path).is_ok().then_some(path)
}

/// Returns the build id of a 64-bit ELF file.
pub(crate) fn build_id(reader: &Reader) -> Option<Vec<u8>> {
    const NOTES_MAX: u64 = 64 << 10;
    let header: elf::FileHeader64<LE> = reader.table(0, 1)?.pop()?;
    if header.e_ident.magic != elf::ELFMAG || header.e_ident.class != elf::ELFCLASS64 {
        return None;
    }
    let segments: Vec<elf::ProgramHeader64<LE>> =
        reader.table(header.e_phoff.get(LE), header.e_phnum.get(LE).into())?;
    segments.iter().filter(|segment| segment.p_type.get(LE) == elf::PT_NOTE).find_map(|segment| {
        let notes = reader.read(segment.p_offset.get(LE), segment.p_filesz.get(LE).min(NOTES_MAX))?;
        build_id_of_notes(&notes)
    })
}

fn build_id_of_notes(mut notes: &[u8]) -> Option<Vec<u8>> {
    const BUILD_ID: u32 = 3;
    loop {
        let word = |at: usize| Some(u32::from_le_bytes(notes.get(at..at + 4)?.try_into().ok()?));
        let [name, length, kind] = [word(0)?, word(4)?, word(8)?];
        let id_at = 12 + (name as usize).next_multiple_of(4);
        let end = id_at.checked_add(length as usize)?;
        if kind == BUILD_ID && notes.get(12..)?.starts_with(b"GNU\0") {
            return notes.get(id_at..end).filter(|id| !id.is_empty()).map(<[u8]>::to_vec);
        }
        notes = notes.get(end.next_multiple_of(4)..)?;
    }
}

/// Reads parts of a file.
pub(crate) enum Reader<'a> {
    Memory(&'a [u8]),
    File(std::fs::File, u64),
}

impl Reader<'_> {
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Reader::Memory(bytes) => bytes.len() as u64,
            Reader::File(_, bytes) => *bytes,
        }
    }

    /// Reads a part of the file. `None` if the file is shorter, or if the part is too large.
    pub(crate) fn read(&self, offset: u64, length: u64) -> Option<Vec<u8>> {
        let end = offset.checked_add(length)?;
        if end > self.bytes() || length > SECTION_MAX {
            return None;
        }
        match self {
            Reader::Memory(bytes) => Some(bytes[offset as usize..end as usize].to_vec()),
            Reader::File(file, _) => {
                let mut bytes = vec![0; length as usize];
                file.read_exact_at(&mut bytes, offset).ok()?;
                Some(bytes)
            }
        }
    }

    /// Reads a table of entries of one type.
    pub(crate) fn table<T: pod::Pod + Clone>(&self, offset: u64, count: u64) -> Option<Vec<T>> {
        let bytes = self.read(offset, count.checked_mul(size_of::<T>() as u64)?)?;
        let (entries, _) = pod::slice_from_bytes::<T>(&bytes, count as usize).ok()?;
        Some(entries.to_vec())
    }
}

/// Returns the vDSO, which the kernel maps into all processes.
pub(crate) fn own_vdso() -> Option<Vec<u8>> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let line = maps.lines().find(|line| line.ends_with("[vdso]"))?;
    let (start, end) = line.split_whitespace().next()?.split_once('-')?;
    let (start, end) = (u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?);
    let mut bytes = vec![0; usize::try_from(end.checked_sub(start)?).ok()?];
    std::fs::File::open("/proc/self/mem").ok()?.read_exact_at(&mut bytes, start).ok()?;
    Some(bytes)
}
