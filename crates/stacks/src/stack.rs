//! The copied stack of a thread, and its registers.

use std::cell::OnceCell;
use std::collections::HashMap;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Duration;

use crate::figures::CutReason;
use crate::machine::{self, RECORDED, Register};

/// The number of cache lines that contain the frames of most stacks.
const PREFETCHED_LINES: usize = 64;

/// The part of a stack that the kernel copied.
pub(crate) struct Stack<'a> {
    base: u64,
    bytes: &'a [u8],
    /// Whether all requested bytes were copied, so that the stack may extend further.
    is_full: bool,
    /// A part beyond the copied one, with its address. It was read later from the process' memory.
    pub(crate) later: OnceCell<(u64, Part)>,
}

/// The number of bytes that are read later if a frame extends beyond the copied part of the stack.
const LATER_BYTES: usize = 8 << 10;
/// The maximum number of such parts that are kept.
const LATER_MAX: usize = 256;

type Part = Arc<[u8]>;

/// The maximum number of parts that are read again for the samples of one fetch, and the wait before each reading.
const REREADS_MAX: u32 = 6;
const REREAD_AFTER: Duration = Duration::from_micros(300);

/// Parts of stacks that were read after the samples were taken. Each is read once for all samples that are fetched together.
#[derive(Default)]
pub(crate) struct LaterParts {
    fetched: u64,
    /// The number of parts that were read again for the samples of this fetch.
    reread: u32,
    /// The parts, by process and address.
    parts: HashMap<(u32, u64), KnownPart>,
}

struct KnownPart {
    /// The number of the last fetch that used it.
    fetched: u64,
    /// The last part that completed a stack, or else the last one that was read.
    part: Part,
    /// Whether `part` has completed a stack.
    is_whole: bool,
}

impl LaterParts {
    /// Starts a new fetch. Must be called before its samples are processed.
    pub(crate) fn fetch(&mut self) {
        self.fetched += 1;
        self.reread = 0;
    }

    fn read(&self, process: u32, address: u64) -> Part {
        match self.parts.get(&(process, address)) {
            Some(known) if known.fetched == self.fetched => known.part.clone(),
            _ => read_memory(process, address),
        }
    }

    /// Keeps a part if it completed the stack. Otherwise returns another part to try: an earlier one, or else the memory read
    /// again after a short wait, because the thread may just have been calling a function.
    pub(crate) fn keep_or_replace(
        &mut self,
        process: u32,
        address: u64,
        part: Part,
        is_whole: bool,
    ) -> Option<Part> {
        if self.parts.len() >= LATER_MAX {
            self.parts.clear();
        }
        let fetched = self.fetched;
        let known = self.parts.entry((process, address));
        let known = known.or_insert_with(|| KnownPart { fetched, part: part.clone(), is_whole });
        known.fetched = fetched;
        if is_whole {
            (known.part, known.is_whole) = (part, true);
            return None;
        }
        if !Arc::ptr_eq(&known.part, &part) {
            return Some(known.part.clone());
        }
        let has_ended = part.is_empty();
        if known.is_whole || has_ended || self.reread >= REREADS_MAX {
            return None;
        }
        self.reread += 1;
        std::thread::sleep(REREAD_AFTER);
        known.part = read_memory(process, address);
        Some(known.part.clone())
    }
}

fn read_memory(process: u32, address: u64) -> Part {
    let mut bytes = vec![0; LATER_BYTES];
    let memory = std::fs::File::open(format!("/proc/{process}/mem"));
    let read = memory.and_then(|memory| memory.read_at(&mut bytes, address)).unwrap_or(0);
    bytes[..read].into()
}

impl<'a> Stack<'a> {
    pub(crate) fn new(base: u64, bytes: &'a [u8], is_full: bool) -> Stack<'a> {
        // Another CPU wrote the stack. Fetching all its cache lines first saves an eighth of the time per sample, compared with
        // reading word by word.
        let fetched = bytes.chunks(64).take(PREFETCHED_LINES).fold(0, |sum, line| sum ^ line[0]);
        std::hint::black_box(fetched);
        Stack { base, bytes, is_full, later: OnceCell::new() }
    }

    pub(crate) fn read(&self, address: u64) -> Option<u64> {
        match word(self.base, self.bytes, address) {
            None => self.later.get().and_then(|(base, bytes)| word(*base, bytes, address)),
            copied => copied,
        }
    }

    /// Reads the memory around a frame's address, beyond the copied part, from the process itself. The memory may have changed
    /// since the sample.
    pub(crate) fn read_later(&self, process: u32, frame: u64, later: &LaterParts) {
        /// How far below a frame's address a function saves registers, in bytes.
        const BELOW: u64 = 256;
        let end = self.base.saturating_add(self.bytes.len() as u64);
        // The copied part may also end at a page that the program has not touched, because the kernel does not copy such pages.
        if frame > end && frame - end <= STACK_MAX && self.later.get().is_none() {
            let from = frame.saturating_sub(BELOW).max(end);
            let _ = self.later.set((from, later.read(process, from)));
        }
    }

    pub(crate) fn was_read_later(&self) -> bool {
        self.later.get().is_some_and(|(_, bytes)| !bytes.is_empty())
    }

    /// Returns the reason why the return address of a frame could not be read.
    pub(crate) fn why_unreadable(&self, cfa: u64) -> CutReason {
        let end = self.base.saturating_add(self.bytes.len() as u64);
        match cfa {
            // The return address is below the frame's address.
            _ if (self.base..=end).contains(&cfa) => CutReason::NoUnwindTables,
            _ if self.is_full && cfa > end && cfa - end < STACK_MAX => CutReason::StackTooDeep,
            _ => CutReason::OtherStack,
        }
    }
}

/// An upper bound on the size of a thread's stack. Larger ones are rare.
const STACK_MAX: u64 = 64 << 20;

fn word(base: u64, bytes: &[u8], address: u64) -> Option<u64> {
    let start = usize::try_from(address.checked_sub(base)?).ok()?;
    let word = bytes.get(start..start.checked_add(8)?)?;
    Some(u64::from_le_bytes(word.try_into().ok()?))
}

/// A register's value, or the address at which it is saved.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Place {
    Is(u64),
    At(u64),
    Lost,
}

impl Place {
    pub(crate) fn value(self, stack: &Stack) -> Option<u64> {
        match self {
            Place::Is(value) => Some(value),
            Place::At(address) => stack.read(address),
            Place::Lost => None,
        }
    }
}

/// The registers of a frame, by their numbers in DWARF.
#[derive(Clone)]
pub(crate) struct Registers([Place; machine::COUNT]);

impl Registers {
    pub(crate) fn new(recorded: &[u64; RECORDED.len()]) -> Registers {
        let mut registers = Registers([Place::Lost; machine::COUNT]);
        for (value, (_, register)) in recorded.iter().zip(RECORDED) {
            registers.set(register, Place::Is(*value));
        }
        registers
    }

    pub(crate) fn get(&self, register: Register, stack: &Stack) -> Option<u64> {
        self.0.get(usize::from(register))?.value(stack)
    }

    pub(crate) fn set(&mut self, register: Register, place: Place) {
        if let Some(slot) = self.0.get_mut(usize::from(register)) {
            *slot = place;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: fn() -> u32 = std::process::id;

    /// Returns the address of bytes of this process, which stand for a stack.
    fn at(bytes: &[u8]) -> u64 {
        bytes.as_ptr() as u64
    }

    #[test]
    fn a_part_that_completes_no_stack_is_read_again_a_few_times() {
        let memory = vec![7; LATER_BYTES];
        let address = at(&memory);
        let other: Part = [1, 2, 3].into();
        let mut parts = LaterParts::default();
        parts.fetch();
        let mut part = other.clone();
        for _ in 0..REREADS_MAX {
            part = parts.keep_or_replace(OWN(), address, part, false).expect("another part");
            assert_eq!(&*part, &memory[..]);
        }
        assert_eq!(parts.keep_or_replace(OWN(), address, part.clone(), false), None);
        // Other samples of the same fetch use the part that was read last.
        assert!(Arc::ptr_eq(&parts.read(OWN(), address), &part));
        parts.fetch();
        assert!(parts.keep_or_replace(OWN(), address, other.clone(), false).is_some());
        // A part that completes a stack is tried for later samples, and is not read again.
        assert_eq!(parts.keep_or_replace(OWN(), address, other.clone(), true), None);
        parts.fetch();
        let bad: Part = [9].into();
        let kept = parts.keep_or_replace(OWN(), address, bad, false).expect("the earlier part");
        assert!(Arc::ptr_eq(&kept, &other));
        assert_eq!(parts.keep_or_replace(OWN(), address, kept, false), None);
    }

    #[test]
    fn memory_of_a_process_that_has_ended_is_not_read_again() {
        let mut parts = LaterParts::default();
        parts.fetch();
        assert_eq!(parts.keep_or_replace(OWN(), 0, [].into(), false), None);
        assert_eq!(parts.reread, 0);
    }
}
