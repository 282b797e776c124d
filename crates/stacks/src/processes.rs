//! Tracks the files that each process has mapped, through forks and execs.

use std::collections::BTreeSet;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::events::cpu_of_process;
use crate::foreign;
use crate::records::Mapped;

/// A file's number in the table of files.
pub(crate) type FileNumber = u32;

/// A range of addresses at which a process can execute a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mapping {
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// The offset of the mapping's first byte in the file.
    pub(crate) offset: u64,
    pub(crate) file: FileNumber,
    /// For anonymous memory: the file that was mapped at this address before, and the offset in it. The code of the file may
    /// have been copied to the memory.
    pub(crate) below: Option<(FileNumber, u64)>,
}

impl Mapping {
    pub(crate) fn new(range: std::ops::Range<u64>, offset: u64, file: FileNumber) -> Mapping {
        Mapping { start: range.start, end: range.end, offset, file, below: None }
    }

    /// Returns the part of the mapping that begins at `start`.
    fn from(&self, start: u64) -> Mapping {
        let into = start - self.start;
        let below = self.below.map(|(file, offset)| (file, offset.wrapping_add(into)));
        Mapping { start, offset: self.offset.wrapping_add(into), below, ..self.clone() }
    }

    /// Returns this range as a mapping of the file that was mapped here before.
    pub(crate) fn of_file_below(&self) -> Option<Mapping> {
        let (file, offset) = self.below?;
        Some(Mapping { offset, file, below: None, ..self.clone() })
    }

    /// Whether the next mapping follows directly and continues this one.
    fn continues_in(&self, next: &Mapping) -> bool {
        let offset = self.offset.wrapping_add(self.end - self.start);
        let is_next = self.end == next.start && self.file == next.file && next.offset == offset;
        is_next && self.below.is_none() && next.below.is_none()
    }
}

/// The maximum number of mappings that are kept for a process. It is the kernel's default limit.
const MAPPINGS_MAX: usize = 1 << 16;
/// The maximum size of the kernel's list of a process' mappings: each line has a path of at most 4 KiB.
const MAPS_BYTES_MAX: u64 = 64 << 20;
/// The maximum number of processes that are tracked at a time.
const PROCESSES_MAX: usize = 1 << 16;

/// The mappings of a process in the order of addresses. Forked processes share them until one of them maps something.
pub(crate) type Mappings = Arc<Vec<Mapping>>;

/// Adds a mapping of a file, which replaces the mappings that it covers.
fn insert(mappings: &mut Vec<Mapping>, new: Mapping) {
    insert_parts(mappings, new.start..new.end, vec![new]);
}

/// Adds a mapping of memory, which keeps the files that it covers. `is_memory` returns whether a file's number stands for
/// memory.
fn insert_memory(mappings: &mut Vec<Mapping>, new: Mapping, is_memory: &dyn Fn(FileNumber) -> bool) {
    let range = new.start..new.end;
    let (first, after) = covered(mappings, &range);
    let mut parts: Vec<Mapping> = Vec::with_capacity(1);
    let mut add = |part: Mapping| match parts.last_mut() {
        Some(last) if last.continues_in(&part) => last.end = part.end,
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
    // Memory that a runtime maps piece by piece becomes one mapping.
    let (mut whole, mut range) = (parts, range);
    if let Some(before) = first.checked_sub(1).and_then(|before| mappings.get(before))
        && before.continues_in(&whole[0])
    {
        (whole[0].start, whole[0].offset, range.start) = (before.start, before.offset, before.start);
    }
    insert_parts(mappings, range, whole);
}

/// Returns the index of the first mapping that overlaps a range, and the index after the last.
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

pub(crate) fn at(mappings: &[Mapping], address: u64) -> Option<&Mapping> {
    let mapping = mappings.get(mappings.partition_point(|mapping| mapping.end <= address))?;
    (mapping.start <= address).then_some(mapping)
}

#[derive(Default)]
pub(crate) struct Process {
    pub(crate) mappings: Mappings,
    threads: BTreeSet<u32>,
    /// The process for which the events of this one were opened: itself or an ancestor.
    root: Option<u32>,
    on_cpu: CpuClock,
    /// Whether the mappings must be read from the kernel, because records were lost.
    is_stale: bool,
    /// The last time at which the mappings were read again, because the process executed code outside of those that are known.
    mappings_checked: u64,
}

/// Compares the recorded intervals of a process on CPUs with the kernel's clock of its CPU time. The kernel's clock includes
/// the time of switching to a thread. But the kernel records a switch only when it is complete, so each recorded interval is a
/// few microseconds too short.
#[derive(Default)]
struct CpuClock {
    /// The total time that was passed on, the part of it that was added for switches, and the number of intervals that have
    /// ended.
    passed: u64,
    added: u64,
    intervals: u64,
    /// The value of the kernel's clock when no time had been passed on.
    began: Option<u64>,
    /// The time and the number of intervals at the last comparison.
    compared: (u64, u64),
    /// By how much the recorded intervals were too short in total, at the last comparison.
    missing: i64,
    /// How much of `missing` has not been added yet, and is to be added to the next intervals; negative if too much was added.
    owed: i64,
}

impl CpuClock {
    /// Returns the corrected start of an interval on a CPU whose recorded start is `time`: earlier by the time of a switch.
    /// Earlier intervals may have been corrected too little or too much. The difference is added here, up to the time of one
    /// more switch, or subtracted. The result is not before `ended`, the end of the thread's last interval.
    fn begins(&mut self, switch_ns: i64, time: u64, ended: u64) -> u64 {
        let wanted = (switch_ns + self.owed).clamp(0, 2 * switch_ns);
        let begins = time.saturating_sub(wanted as u64).max(ended);
        let added = time.saturating_sub(begins);
        self.owed -= added as i64 - switch_ns;
        self.added += added;
        begins
    }

    /// Compares the times. Returns how much more the recorded intervals are too short than at the last comparison. `now_on` is
    /// the time of intervals that have not been passed on yet.
    fn compare(&mut self, kernel: u64, now_on: u64) -> i64 {
        let known = self.passed + now_on;
        let began = *self.began.get_or_insert(kernel.saturating_sub(known));
        self.owed = kernel.saturating_sub(began) as i64 - known as i64;
        let before = std::mem::replace(&mut self.missing, self.owed + self.added as i64);
        self.missing - before
    }
}

/// The time that a switch takes on this machine, from the intervals of all processes.
#[derive(Default)]
struct SwitchTime {
    missing: i64,
    intervals: u64,
}

impl SwitchTime {
    /// After this many intervals, the weight of the earlier ones is halved.
    const INTERVALS_MAX: u64 = 10_000;

    fn learn(&mut self, missing: i64, intervals: u64) {
        self.missing += missing;
        self.intervals += intervals;
        if self.intervals > SwitchTime::INTERVALS_MAX {
            (self.missing, self.intervals) = (self.missing / 2, self.intervals / 2);
        }
    }

    fn ns(&self) -> i64 {
        /// A longer time is not the time of a switch.
        const NS_MAX: i64 = 100_000;
        (self.missing / self.intervals.max(1) as i64).clamp(0, NS_MAX)
    }
}

/// The minimum number of intervals, and the minimum time, between two comparisons with the kernel's clock.
const COMPARED_INTERVALS_MIN: u64 = 50;
const COMPARED_NS_MIN: u64 = 100_000_000;
/// If reading a clock took longer than this, the time of its value is too uncertain.
const READING_NS_MAX: u64 = 200_000;

/// A value of the kernel's clock of a process' CPU time.
struct Reading {
    process: u32,
    time: u64,
    kernel: u64,
}

/// The minimum time between two readings of a process' mappings, if it executes code outside of them.
const MAPS_INTERVAL_NS: u64 = 100_000_000;

pub(crate) struct SampledThreads {
    pub(crate) process: u32,
    /// The process for which the events of this one were opened: itself or an ancestor.
    pub(crate) root: u32,
    pub(crate) threads: Vec<u32>,
}

/// All processes that are sampled.
#[derive(Default)]
pub(crate) struct Processes {
    by_number: FxHashMap<u32, Process>,
    switch_time: SwitchTime,
    /// The values that have not been compared yet, in the order of their times.
    readings: Vec<Reading>,
}

impl Processes {
    fn entry(&mut self, process: u32) -> Option<&mut Process> {
        if self.by_number.len() >= PROCESSES_MAX && !self.by_number.contains_key(&process) {
            return None;
        }
        let new = || Process { threads: [process].into(), ..Process::default() };
        Some(self.by_number.entry(process).or_insert_with(new))
    }

    pub(crate) fn has(&self, process: u32) -> bool {
        self.by_number.contains_key(&process)
    }

    pub(crate) fn has_thread(&self, process: u32, thread: u32) -> bool {
        self.by_number.get(&process).is_some_and(|entry| entry.threads.contains(&thread))
    }

    /// Whether the process `root`, or one of its descendants, exists.
    pub(crate) fn has_any_of(&self, root: u32) -> bool {
        self.by_number.values().any(|entry| entry.root == Some(root))
    }

    pub(crate) fn all(&self) -> Vec<u32> {
        self.by_number.keys().copied().collect()
    }

    /// Must be called when events of these threads of a process have been opened.
    pub(crate) fn added(&mut self, process: u32, threads: &[u32]) {
        let is_new = !self.has(process);
        if let Some(entry) = self.entry(process) {
            entry.threads.extend(threads);
            entry.root = Some(process);
            entry.is_stale |= is_new;
        }
    }

    /// Returns the corrected start of an interval on a CPU whose recorded start is `time`. The thread's last interval ended at
    /// `ended`.
    pub(crate) fn begins_on_cpu(&mut self, process: u32, time: u64, ended: u64) -> u64 {
        let Some(entry) = self.by_number.get_mut(&process) else { return time.max(ended) };
        entry.on_cpu.begins(self.switch_time.ns(), time, ended)
    }

    /// Must be called when a time on a CPU was passed on. `is_end`: the thread has left the CPU.
    pub(crate) fn passed_on_cpu(&mut self, process: u32, ns: u64, is_end: bool) {
        if let Some(entry) = self.by_number.get_mut(&process) {
            entry.on_cpu.passed += ns;
            entry.on_cpu.intervals += u64::from(is_end);
        }
    }

    /// Reads the kernel's clocks of the processes that are due. The values are compared when all earlier switches are known.
    pub(crate) fn read_clocks(&mut self, now: impl Fn() -> u64) {
        if !self.readings.is_empty() {
            return;
        }
        for (process, entry) in &self.by_number {
            let (compared_at, intervals) = entry.on_cpu.compared;
            if entry.on_cpu.intervals - intervals < COMPARED_INTERVALS_MIN {
                continue;
            }
            let time = now();
            if time.saturating_sub(compared_at) < COMPARED_NS_MIN {
                continue;
            }
            let Some(kernel) = cpu_of_process(*process) else { continue };
            if now() - time <= READING_NS_MAX {
                self.readings.push(Reading { process: *process, time, kernel });
            }
        }
    }

    pub(crate) fn has_reading_before(&self, until: u64) -> bool {
        self.readings.first().is_some_and(|reading| reading.time < until)
    }

    /// Compares times with the values of the kernel's clocks from before `until`. The switches before `until` are known, and no
    /// later ones. `on` has the process of each thread that is on a CPU, with the time up to which its interval was passed on.
    /// `uncertain` has the processes with a thread of which it is not known whether it is on a CPU.
    pub(crate) fn compare_clocks(
        &mut self,
        until: u64,
        on: impl Iterator<Item = (u32, u64)> + Clone,
        uncertain: &[u32],
    ) {
        let due = self.readings.partition_point(|reading| reading.time < until);
        for Reading { process, time, kernel } in self.readings.drain(..due) {
            let known = self.by_number.get_mut(&process).filter(|_| !uncertain.contains(&process));
            let Some(clock) = known.map(|entry| &mut entry.on_cpu) else { continue };
            let intervals = clock.intervals - clock.compared.1;
            clock.compared = (time, clock.intervals);
            let on = on.clone().filter(|(of, _)| *of == process);
            let missing = clock.compare(kernel, on.map(|(_, at)| time.saturating_sub(at)).sum());
            self.switch_time.learn(missing, intervals);
        }
    }

    pub(crate) fn exec(&mut self, process: u32) {
        if let Some(entry) = self.entry(process) {
            *entry = Process { threads: [process].into(), root: entry.root, ..Process::default() };
        }
    }

    /// Must be called when a thread or a process has started. Returns whether it is a process.
    pub(crate) fn forked(&mut self, process: u32, parent: u32, thread: u32) -> bool {
        if process == parent {
            if let Some(entry) = self.entry(process) {
                entry.threads.insert(thread);
            }
            return false;
        }
        let unknown = Process { is_stale: true, ..Process::default() };
        let Process { mappings, is_stale, root, .. } = self.by_number.get(&parent).unwrap_or(&unknown);
        let (mappings, threads, root, is_stale) = (mappings.clone(), [thread].into(), *root, *is_stale);
        if let Some(entry) = self.entry(process) {
            *entry = Process { mappings, threads, root, is_stale, ..Process::default() };
        }
        true
    }

    /// Must be called when a thread has ended. Returns whether it was the last one of its process.
    pub(crate) fn ended(&mut self, process: u32, thread: u32) -> bool {
        let Some(entry) = self.by_number.get_mut(&process) else { return false };
        entry.threads.remove(&thread);
        let is_last = entry.threads.is_empty();
        if is_last {
            self.by_number.remove(&process);
        }
        is_last
    }

    /// Must be called when a file was mapped. `is_memory` returns whether a file's number stands for memory.
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

    /// Must be called when a process executes code outside of its known mappings. Returns whether they are to be read again.
    pub(crate) fn request_mappings(&mut self, process: u32, time: u64) -> bool {
        let Some(entry) = self.entry(process) else { return false };
        let is_due = time.saturating_sub(entry.mappings_checked) >= MAPS_INTERVAL_NS;
        if is_due {
            (entry.mappings_checked, entry.is_stale) = (time, true);
        }
        is_due
    }

    /// Returns the processes that are sampled, with their threads.
    pub(crate) fn with_threads(&self) -> Vec<SampledThreads> {
        let threads = |(process, of): (&u32, &Process)| {
            let threads = of.threads.iter().copied().collect();
            Some(SampledThreads { process: *process, root: of.root?, threads })
        };
        self.by_number.iter().filter_map(threads).collect()
    }

    /// Must be called when records were lost. Removes the processes that have ended, and returns them.
    pub(crate) fn remove_ended(&mut self) -> Vec<u32> {
        let is_there = |process: &u32| std::path::Path::new(&format!("/proc/{process}")).exists();
        let ended: Vec<u32> = self.by_number.keys().filter(|process| !is_there(process)).copied().collect();
        for process in &ended {
            self.by_number.remove(process);
        }
        for process in self.by_number.values_mut() {
            process.is_stale = true;
            process.on_cpu = CpuClock::default();
        }
        ended
    }

    /// Returns the mappings of a process. They are read from the kernel if records may be missing. `file` returns the number of
    /// a file, and whether it stands for memory.
    pub(crate) fn mappings(
        &mut self,
        process: u32,
        file: impl FnMut(&Mapped) -> (FileNumber, bool),
    ) -> Mappings {
        let is_known = self.by_number.contains_key(&process);
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

/// Returns the executable mappings in `/proc/PID/maps`. `before` contains the previously known mappings.
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
            // In the kernel's records, the offset of a mapping of memory is its address, except that of the vDSO.
            let is_file = path.starts_with(b"/") && !path.starts_with(b"//") || path == b"[vdso]";
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
    // Memory still keeps the files that it covers, because their code may have been copied to it.
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
        // The kernel's list has the same mappings, but without the file that the memory covers.
        let text = b"00001000-00002000 r-xp 00000000 fe:01 77 /a\n00002000-0000c000 r-xp 00000000 00:00 0\n";
        let read =
            parse_maps(text, &mappings, |mapped| if mapped.path == b"/a" { (1, false) } else { (9, true) });
        assert_eq!(read, mappings);
    }

    #[test]
    fn a_new_mapping_replaces_those_that_it_covers() {
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

    #[test]
    fn intervals_get_the_time_of_switches_whatever_their_number() {
        const SWITCH_NS: u64 = 9000;
        let (mut clock, mut switch_time) = (CpuClock::default(), SwitchTime::default());
        let (mut time, mut kernel) = (0, 0);
        // The numbers of intervals between two comparisons. The kernel's clock shows the time at its last tick.
        for intervals in [60, 50, 120, 1100, 1100, 60, 2000, 50].repeat(20) {
            for _ in 0..intervals {
                let (ended, switched) = (time, time + 50_000);
                time = switched + 100_000;
                clock.passed += time - clock.begins(switch_time.ns(), switched + SWITCH_NS, ended);
                clock.intervals += 1;
                kernel += 100_000;
            }
            let missing = clock.compare(kernel - kernel % 4_000_000, 0);
            switch_time.learn(missing, intervals);
        }
        assert!(clock.passed.abs_diff(kernel) < 5_000_000, "{} of {kernel} ns", clock.passed);
        assert!(switch_time.ns().abs_diff(SWITCH_NS as i64) < 3000, "{} ns", switch_time.ns());
    }
}
