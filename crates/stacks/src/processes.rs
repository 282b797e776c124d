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
    /// Of memory: the file that was mapped here before, and where in it. Its code may have been copied to the memory.
    pub(crate) below: Option<(FileNumber, u64)>,
}

impl Mapping {
    pub(crate) fn new(range: std::ops::Range<u64>, offset: u64, file: FileNumber) -> Mapping {
        Mapping { start: range.start, end: range.end, offset, file, below: None }
    }

    /// What begins here, if it is a part.
    fn from(&self, start: u64) -> Mapping {
        let into = start - self.start;
        let below = self.below.map(|(file, offset)| (file, offset.wrapping_add(into)));
        Mapping { start, offset: self.offset.wrapping_add(into), below, ..self.clone() }
    }

    /// The file that was mapped here before.
    pub(crate) fn of_file_below(&self) -> Option<Mapping> {
        let (file, offset) = self.below?;
        Some(Mapping { offset, file, below: None, ..self.clone() })
    }

    /// Whether the other one follows, and is the same in all else.
    fn goes_on_in(&self, next: &Mapping) -> bool {
        let offset = self.offset.wrapping_add(self.end - self.start);
        let is_next = self.end == next.start && self.file == next.file && next.offset == offset;
        is_next && self.below.is_none() && next.below.is_none()
    }
}

/// A process can have no more mappings, unless its machine is set up otherwise; later ones are not known.
const MAPPINGS_MAX: usize = 1 << 16;
/// Bytes of the kernel's list of a process' mappings that are read: each line has a path of at most 4 KiB.
const MAPS_BYTES_MAX: u64 = 64 << 20;
/// So many processes are known at a time.
const PROCESSES_MAX: usize = 1 << 16;

/// A process' mappings, in the order of addresses. Forked processes share them until one of them maps something.
pub(crate) type Mappings = Arc<Vec<Mapping>>;

/// Maps a file over what was there.
fn insert(mappings: &mut Vec<Mapping>, new: Mapping) {
    insert_parts(mappings, new.start..new.end, vec![new]);
}

/// Maps memory over what was there, which is remembered where it was a file. `is_memory`: of a file's number.
fn insert_memory(mappings: &mut Vec<Mapping>, new: Mapping, is_memory: &dyn Fn(FileNumber) -> bool) {
    let range = new.start..new.end;
    let (first, after) = covered(mappings, &range);
    let mut parts: Vec<Mapping> = Vec::with_capacity(1);
    let mut add = |part: Mapping| match parts.last_mut() {
        Some(last) if last.goes_on_in(&part) => last.end = part.end,
        _ => parts.push(part),
    };
    let mut done = range.start;
    for old in &mappings[first..after] {
        let (start, end) = (old.start.max(range.start), old.end.min(range.end));
        if start > done {
            add(Mapping { end: start, ..new.from(done) });
        }
        let old = old.from(start);
        let below = if is_memory(old.file) { old.below } else { Some((old.file, old.offset)) };
        add(Mapping { end, below, ..new.from(start) });
        done = end;
    }
    if done < range.end {
        add(new.from(done));
    }
    // What a runtime maps piece by piece is one.
    let (mut whole, mut range) = (parts, range);
    if let Some(before) = first.checked_sub(1).and_then(|before| mappings.get(before))
        && before.goes_on_in(&whole[0])
    {
        (whole[0].start, whole[0].offset, range.start) = (before.start, before.offset, before.start);
    }
    insert_parts(mappings, range, whole);
}

/// The mappings that have a part in a range.
fn covered(mappings: &[Mapping], range: &std::ops::Range<u64>) -> (usize, usize) {
    let first = mappings.partition_point(|mapping| mapping.end <= range.start);
    (first, mappings.partition_point(|mapping| mapping.start < range.end).max(first))
}

fn insert_parts(mappings: &mut Vec<Mapping>, range: std::ops::Range<u64>, mut parts: Vec<Mapping>) {
    let (first, after) = covered(mappings, &range);
    if let Some(cut) = mappings[first..after].first().filter(|mapping| mapping.start < range.start) {
        parts.insert(0, Mapping { end: range.start, ..cut.clone() });
    }
    if let Some(cut) = mappings[first..after].last().filter(|mapping| mapping.end > range.end) {
        parts.push(cut.from(range.end));
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
    /// When it was found to execute what it has not mapped, as far as known.
    looked_again: u64,
}

/// The kernel is asked no more often than this what a process has mapped that executes what it has not mapped.
const LOOK_AGAIN_NS: u64 = 100_000_000;

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
            *entry = Process { mappings, threads: [thread].into(), root, is_stale, looked_again: 0 };
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

    /// Something was mapped. `is_memory`: of a file's number, whether it stands for memory.
    pub(crate) fn mapped(
        &mut self,
        process: u32,
        mapped: &Mapped,
        file: FileNumber,
        is_memory: &dyn Fn(FileNumber) -> bool,
    ) {
        let Some(end) = mapped.start.checked_add(mapped.length).filter(|end| *end > mapped.start) else {
            return;
        };
        if let Some(entry) = self.entry(process) {
            let new = Mapping::new(mapped.start..end, mapped.offset, file);
            let mappings = Arc::make_mut(&mut entry.mappings);
            if is_memory(file) { insert_memory(mappings, new, is_memory) } else { insert(mappings, new) }
        }
    }

    /// A process executes what it has not mapped, as far as known. Whether it is worth to ask for its mappings again.
    pub(crate) fn look_again(&mut self, process: u32, time: u64) -> bool {
        let Some(entry) = self.entry(process) else { return false };
        let is_due = time.saturating_sub(entry.looked_again) >= LOOK_AGAIN_NS;
        if is_due {
            (entry.looked_again, entry.is_stale) = (time, true);
        }
        is_due
    }

    /// The processes that are sampled, each with the one that its events were opened for, and its threads.
    pub(crate) fn with_threads(&self) -> Vec<(u32, u32, Vec<u32>)> {
        let entries = self.0.iter();
        entries
            .filter_map(|(process, of)| Some((*process, of.root?, of.threads.iter().copied().collect())))
            .collect()
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

    /// What a process has mapped. Asks the kernel if records may be missing. `file`: the number of a file, and whether it stands for
    /// memory.
    pub(crate) fn mappings(
        &mut self,
        process: u32,
        file: impl FnMut(&Mapped) -> (FileNumber, bool),
    ) -> Mappings {
        let is_known = self.0.contains_key(&process);
        let Some(entry) = self.entry(process) else { return Mappings::default() };
        if entry.is_stale || !is_known {
            entry.is_stale = false;
            if let Ok(text) = foreign::read(format!("/proc/{process}/maps"), MAPS_BYTES_MAX) {
                entry.mappings = Arc::new(parse_maps(&text, &entry.mappings, file));
            }
        }
        entry.mappings.clone()
    }
}

/// What can be executed, of `/proc/PID/maps`. `before`: what was known of it.
fn parse_maps(
    text: &[u8],
    before: &[Mapping],
    mut file: impl FnMut(&Mapped) -> (FileNumber, bool),
) -> Vec<Mapping> {
    let mut mappings = Vec::new();
    let mut memory = BTreeSet::new();
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
            // As the kernel's records say it, memory begins where it is.
            let is_file = path.starts_with(b"/") && !path.starts_with(b"//");
            let offset = if is_file { hexadecimal(offset)? } else { start };
            Some(Mapped { start, length: end.checked_sub(start)?, offset, identity, build_id: &[], path })
        };
        if let Some(mapped) = parse().filter(|_| rights.as_bytes().get(2) == Some(&b'x')) {
            let (number, is_memory) = file(&mapped);
            if is_memory {
                memory.insert(number);
            }
            insert(
                &mut mappings,
                Mapping::new(mapped.start..mapped.start + mapped.length, mapped.offset, number),
            );
        }
    }
    // Memory stays what the files below it were copied to.
    for at in (0..mappings.len()).rev().filter(|at| memory.contains(&mappings[*at].file)).collect::<Vec<_>>()
    {
        let new = mappings[at].clone();
        let (first, after) = covered(before, &(new.start..new.end));
        let mut old = before[first..after].to_vec();
        if !old.is_empty() {
            insert_memory(&mut old, new.clone(), &|file| memory.contains(&file));
            old.retain(|part| part.start >= new.start && part.end <= new.end);
            mappings.splice(at..=at, old);
        }
    }
    mappings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(start: u64, end: u64, offset: u64, file: FileNumber) -> Mapping {
        Mapping::new(start..end, offset, file)
    }

    #[test]
    fn memory_that_is_mapped_over_a_file_remembers_it() {
        let mut mappings = vec![mapping(0x1000, 0x9000, 0, 1)];
        let is_memory = |file| file == 9;
        insert_memory(&mut mappings, mapping(0x2000, 0x4000, 0x2000, 9), &is_memory);
        insert_memory(&mut mappings, mapping(0x3000, 0xb000, 0x3000, 9), &is_memory);
        insert_memory(&mut mappings, mapping(0xb000, 0xc000, 0xb000, 9), &is_memory);
        let of_files: Vec<_> = mappings
            .iter()
            .map(|of| (of.start, of.end, of.file, of.of_file_below().map(|below| below.offset)))
            .collect();
        let expected = [
            (0x1000, 0x2000, 1, None),
            (0x2000, 0x3000, 9, Some(0x1000)),
            (0x3000, 0x4000, 9, Some(0x2000)),
            (0x4000, 0x9000, 9, Some(0x3000)),
            (0x9000, 0xc000, 9, None),
        ];
        assert_eq!(of_files, expected);
        // The same from the kernel's list, which has forgotten the file.
        let text = b"00001000-00002000 r-xp 00000000 fe:01 77 /a\n00002000-0000c000 r-xp 00000000 00:00 0\n";
        let read =
            parse_maps(text, &mappings, |mapped| if mapped.path == b"/a" { (1, false) } else { (9, true) });
        assert_eq!(read, mappings);
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
        let mappings = parse_maps(text, &[], |mapped| {
            paths.push(String::from_utf8_lossy(mapped.path).into_owned());
            (paths.len() as u32, false)
        });
        assert_eq!(paths, ["/a file", "//anon"]);
        assert_eq!(
            mappings,
            [mapping(0x400000, 0x401000, 0x2000, 1), mapping(0x600000, 0x601000, 0x600000, 2)]
        );
    }
}
