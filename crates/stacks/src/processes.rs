//! Which files a process has mapped where, through forks and execs.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use crate::foreign;
use crate::records::Mapped;

/// A file's number in the table of files.
pub(crate) type FileNumber = u32;

/// Addresses at which a process can execute a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mapping {
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// Where in the file it begins.
    pub(crate) offset: u64,
    pub(crate) file: FileNumber,
}

/// So many mappings of a process are known; later ones are not.
const MAPPINGS_MAX: usize = 1 << 14;
/// Bytes of the kernel's list of a process' mappings that are read: each line has a path of at most 4 KiB.
const MAPS_BYTES_MAX: u64 = 64 << 20;
/// So many processes are known at a time.
const PROCESSES_MAX: usize = 1 << 16;

/// A process' mappings, in the order of addresses. Forked processes share them until one of them maps something.
pub(crate) type Mappings = Arc<Vec<Mapping>>;

/// Maps over what was there.
fn insert(mappings: &mut Vec<Mapping>, new: Mapping) {
    let first = mappings.partition_point(|mapping| mapping.end <= new.start);
    let after = mappings.partition_point(|mapping| mapping.start < new.end).max(first);
    let mut parts = Vec::with_capacity(3);
    if let Some(cut) = mappings[first..after].first().filter(|mapping| mapping.start < new.start) {
        parts.push(Mapping { end: new.start, ..cut.clone() });
    }
    let new_end = new.end;
    parts.push(new);
    if let Some(cut) = mappings[first..after].last().filter(|mapping| mapping.end > new_end) {
        let offset = cut.offset.wrapping_add(new_end - cut.start);
        parts.push(Mapping { start: new_end, offset, ..cut.clone() });
    }
    if mappings.len() + parts.len() <= MAPPINGS_MAX {
        mappings.splice(first..after, parts);
    }
}

/// The mapping that an address is in.
pub(crate) fn at(mappings: &[Mapping], address: u64) -> Option<&Mapping> {
    let mapping = mappings.get(mappings.partition_point(|mapping| mapping.end <= address))?;
    (mapping.start <= address).then_some(mapping)
}

/// A process that is sampled.
#[derive(Default)]
pub(crate) struct Process {
    pub(crate) mappings: Mappings,
    threads: BTreeSet<u32>,
    /// The process that its events were opened for: itself, or an ancestor.
    root: Option<u32>,
    /// Records were lost: what it has mapped has to be read from the kernel.
    is_stale: bool,
}

/// All processes that are sampled.
#[derive(Default)]
pub(crate) struct Processes(HashMap<u32, Process>);

impl Processes {
    fn entry(&mut self, process: u32) -> Option<&mut Process> {
        if self.0.len() >= PROCESSES_MAX && !self.0.contains_key(&process) {
            return None;
        }
        Some(
            self.0
                .entry(process)
                .or_insert_with(|| Process { threads: [process].into(), ..Process::default() }),
        )
    }

    pub(crate) fn has(&self, process: u32) -> bool {
        self.0.contains_key(&process)
    }

    /// Of a process that is known.
    pub(crate) fn has_thread(&self, process: u32, thread: u32) -> bool {
        self.0.get(&process).is_some_and(|entry| entry.threads.contains(&thread))
    }

    /// Whether a process, or one that it has started, is there.
    pub(crate) fn has_any_of(&self, root: u32) -> bool {
        self.0.values().any(|entry| entry.root == Some(root))
    }

    pub(crate) fn all(&self) -> Vec<u32> {
        self.0.keys().copied().collect()
    }

    pub(crate) fn retain(&mut self, is_sampled: impl Fn(u32) -> bool) {
        self.0.retain(|process, _| is_sampled(*process));
    }

    /// Events of these threads of a process are open.
    pub(crate) fn added(&mut self, process: u32, threads: &[u32]) {
        let is_stale = !self.has(process);
        if let Some(entry) = self.entry(process) {
            entry.threads.extend(threads);
            entry.root = Some(process);
            entry.is_stale |= is_stale;
        }
    }

    pub(crate) fn exec(&mut self, process: u32) {
        if let Some(entry) = self.entry(process) {
            *entry = Process { threads: [process].into(), root: entry.root, ..Process::default() };
        }
    }

    /// A process' thread, or a process, has begun. Whether it is a process.
    pub(crate) fn forked(&mut self, process: u32, parent: u32, thread: u32) -> bool {
        if process == parent {
            if let Some(entry) = self.entry(process) {
                entry.threads.insert(thread);
            }
            return false;
        }
        let from = self.0.get(&parent).map(|parent| (parent.mappings.clone(), parent.is_stale, parent.root));
        let (mappings, is_stale, root) = from.unwrap_or((Mappings::default(), true, None));
        if let Some(entry) = self.entry(process) {
            *entry = Process { mappings, threads: [thread].into(), root, is_stale };
        }
        true
    }

    /// A process' thread has ended. Whether it was the last one.
    pub(crate) fn ended(&mut self, process: u32, thread: u32) -> bool {
        let Some(entry) = self.0.get_mut(&process) else { return false };
        entry.threads.remove(&thread);
        let is_last = entry.threads.is_empty();
        if is_last {
            self.0.remove(&process);
        }
        is_last
    }

    pub(crate) fn mapped(&mut self, process: u32, mapped: &Mapped, file: FileNumber) {
        let Some(end) = mapped.start.checked_add(mapped.length).filter(|end| *end > mapped.start) else {
            return;
        };
        if let Some(entry) = self.entry(process) {
            let new = Mapping { start: mapped.start, end, offset: mapped.offset, file };
            insert(Arc::make_mut(&mut entry.mappings), new);
        }
    }

    /// Records were lost. Those of these processes that have ended are forgotten, and returned.
    pub(crate) fn lost(&mut self) -> Vec<u32> {
        let is_there = |process: &u32| std::path::Path::new(&format!("/proc/{process}")).exists();
        let ended: Vec<u32> = self.0.keys().filter(|process| !is_there(process)).copied().collect();
        for process in &ended {
            self.0.remove(process);
        }
        for process in self.0.values_mut() {
            process.is_stale = true;
        }
        ended
    }

    /// What a process has mapped. Asks the kernel if records may be missing.
    pub(crate) fn mappings(&mut self, process: u32, file: impl FnMut(&Mapped) -> FileNumber) -> Mappings {
        let is_known = self.0.contains_key(&process);
        let Some(entry) = self.entry(process) else { return Mappings::default() };
        if entry.is_stale || !is_known {
            entry.is_stale = false;
            if let Ok(text) = foreign::read(format!("/proc/{process}/maps"), MAPS_BYTES_MAX) {
                entry.mappings = Arc::new(parse_maps(&text, file));
            }
        }
        entry.mappings.clone()
    }
}

/// What can be executed, of `/proc/PID/maps`.
fn parse_maps(text: &[u8], mut file: impl FnMut(&Mapped) -> FileNumber) -> Vec<Mapping> {
    let mut mappings = Vec::new();
    for line in text.split(|byte| *byte == b'\n') {
        let mut rest = line;
        let mut field = || {
            let start = rest.iter().position(|byte| *byte != b' ').unwrap_or(rest.len());
            let field = &rest[start..];
            let end = field.iter().position(|byte| *byte == b' ').unwrap_or(field.len());
            rest = &field[end..];
            std::str::from_utf8(&field[..end]).unwrap_or_default()
        };
        let [addresses, rights, offset, device, number] = [field(), field(), field(), field(), field()];
        let hexadecimal = |text: &str| u64::from_str_radix(text, 16).ok();
        let parse = || {
            let (start, end) = addresses.split_once('-')?;
            let (major, minor) = device.split_once(':')?;
            let device = hexadecimal(major)? << 32 | hexadecimal(minor)?;
            let (start, end) = (hexadecimal(start)?, hexadecimal(end)?);
            let identity = [device, number.parse().ok()?];
            let path = rest.trim_ascii_start();
            let path = if path.is_empty() { b"//anon" } else { path };
            Some(Mapped {
                start,
                length: end.checked_sub(start)?,
                offset: hexadecimal(offset)?,
                identity,
                path,
            })
        };
        if let Some(mapped) = parse().filter(|_| rights.as_bytes().get(2) == Some(&b'x')) {
            let end = mapped.start + mapped.length;
            insert(
                &mut mappings,
                Mapping { start: mapped.start, end, offset: mapped.offset, file: file(&mapped) },
            );
        }
    }
    mappings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(start: u64, end: u64, offset: u64, file: FileNumber) -> Mapping {
        Mapping { start, end, offset, file }
    }

    #[test]
    fn a_new_mapping_replaces_what_it_covers() {
        let mut mappings = Vec::new();
        insert(&mut mappings, mapping(0x1000, 0x9000, 0, 1));
        insert(&mut mappings, mapping(0xa000, 0xb000, 0, 2));
        insert(&mut mappings, mapping(0x3000, 0x5000, 0x10, 3));
        let parts = [
            mapping(0x1000, 0x3000, 0, 1),
            mapping(0x3000, 0x5000, 0x10, 3),
            mapping(0x5000, 0x9000, 0x4000, 1),
            mapping(0xa000, 0xb000, 0, 2),
        ];
        assert_eq!(mappings, parts);
        insert(&mut mappings, mapping(0x2000, 0xb000, 0, 4));
        assert_eq!(mappings, [mapping(0x1000, 0x2000, 0, 1), mapping(0x2000, 0xb000, 0, 4)]);
        assert_eq!(at(&mappings, 0x1fff).map(|mapping| mapping.file), Some(1));
        assert_eq!(at(&mappings, 0x2000).map(|mapping| mapping.file), Some(4));
        assert_eq!(at(&mappings, 0xfff), None);
        assert_eq!(at(&mappings, 0xb000), None);
    }

    #[test]
    fn maps_are_read_from_the_kernel() {
        let text = b"00400000-00401000 r-xp 00002000 fe:01 77 /a file\n\
            00500000-00501000 rw-p 00000000 fe:01 77 /data\nnonsense\n00600000-00601000 r-xp 00000000 00:00 0\n";
        let mut paths = Vec::new();
        let mappings = parse_maps(text, |mapped| {
            paths.push(String::from_utf8_lossy(mapped.path).into_owned());
            paths.len() as u32
        });
        assert_eq!(paths, ["/a file", "//anon"]);
        assert_eq!(mappings, [mapping(0x400000, 0x401000, 0x2000, 1), mapping(0x600000, 0x601000, 0, 2)]);
    }
}
