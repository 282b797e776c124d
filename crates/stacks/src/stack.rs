//! A copied stack, frame by frame.

use crate::figures::CutReason;
use crate::file::Files;
use crate::functions::{FunctionId, Functions, Role};
use crate::machine::{self, RECORDED, RESTORED, Register};
use crate::processes::{FileNumber, Mapping, at};
use crate::rules::{Rule, UNSAVED};

/// Most stacks' frames are in so many lines of the cache.
const FETCHED_LINES: usize = 64;

/// The part of a stack that the kernel copied.
pub(crate) struct Stack<'a> {
    base: u64,
    bytes: &'a [u8],
    /// As much as was asked for: the stack may go on.
    is_full: bool,
}

impl<'a> Stack<'a> {
    pub(crate) fn new(base: u64, bytes: &'a [u8], is_full: bool) -> Stack<'a> {
        // Another CPU wrote it. Fetched all at once, a sample takes an eighth less than with one word after another.
        let fetched = bytes.chunks(64).take(FETCHED_LINES).fold(0, |sum, line| sum ^ line[0]);
        std::hint::black_box(fetched);
        Stack { base, bytes, is_full }
    }

    pub(crate) fn read(&self, address: u64) -> Option<u64> {
        let start = usize::try_from(address.checked_sub(self.base)?).ok()?;
        let word = self.bytes.get(start..start.checked_add(8)?)?;
        Some(u64::from_le_bytes(word.try_into().ok()?))
    }

    /// Why nothing could be read from this frame's address on.
    fn why_unreadable(&self, cfa: u64) -> CutReason {
        /// A thread's stack is seldom larger.
        const STACK_MAX: u64 = 64 << 20;
        let end = self.base.saturating_add(self.bytes.len() as u64);
        match cfa {
            // The return address is below the frame's.
            _ if (self.base..=end).contains(&cfa) => CutReason::NoUnwindTables,
            _ if self.is_full && cfa > end && cfa - end < STACK_MAX => CutReason::StackTooDeep,
            _ => CutReason::OtherStack,
        }
    }
}

/// What a register's value is, or where it is saved.
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

/// The registers of a frame, by the number that DWARF gives them.
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

/// So many frames of a stack are shown.
const FRAMES_MAX: usize = 1024;

/// What is known of a stack after it was walked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Complete,
    CutOff(CutReason, FileNumber),
}

/// The next frame, or the end.
enum Step {
    Caller { address: u64, is_exact: bool },
    End(Option<CutReason>),
}

/// Walks stacks. What it knows of functions and rules stays for the next.
pub(crate) struct Walker<'a> {
    pub(crate) files: &'a mut Files,
    pub(crate) functions: &'a mut Functions,
    pub(crate) process: u32,
    pub(crate) mappings: &'a [Mapping],
}

impl Walker<'_> {
    /// The functions on a stack, innermost first, without those that only start a process or thread.
    pub(crate) fn walk(
        &mut self,
        mut registers: Registers,
        stack: &Stack,
        frames: &mut Vec<FunctionId>,
    ) -> End {
        frames.clear();
        let pc = registers.get(machine::PC, stack).unwrap_or(0);
        let mut step = Step::Caller { address: pc, is_exact: true };
        let (mut file, mut has_python) = (0, false);
        let reason = loop {
            let (address, is_exact) = match step {
                Step::Caller { address, is_exact } => (address, is_exact),
                Step::End(reason) => break reason,
            };
            // A return address may be behind its function's end.
            let lookup = if is_exact { address } else { address.wrapping_sub(1) };
            let Some(mapping) = at(self.mappings, lookup) else {
                if frames.is_empty() {
                    frames.push(FunctionId(0));
                }
                break Some(CutReason::NoUnwindTables);
            };
            file = mapping.file;
            let is_first = frames.is_empty();
            let place = self.files.place(mapping, lookup, self.process, self.functions);
            frames.extend_from_slice(self.functions.chain(place.inlined));
            frames.push(place.function);
            has_python |= self.functions.get(place.function).role == Role::Python;
            if frames.len() >= FRAMES_MAX {
                frames.truncate(FRAMES_MAX);
                break Some(CutReason::StackTooDeep);
            }
            step = self.step(place.rule, mapping, lookup, is_first, &mut registers, stack);
        };
        if has_python {
            self.leave_out_interpreter(frames);
        }
        match reason {
            None => {
                self.leave_out_starts(frames);
                End::Complete
            }
            Some(reason) => End::CutOff(reason, file),
        }
    }

    /// Between two of Python's functions, and in the innermost, the interpreter's loop and calls are left out; and what calls one of
    /// Python's functions, which is the interpreter, by whatever name.
    fn leave_out_interpreter(&self, frames: &mut Vec<FunctionId>) {
        let role = |frames: &[FunctionId], at: usize| frames.get(at).map(|id| self.functions.get(*id).role);
        let (mut kept, mut in_python) = (Vec::with_capacity(frames.len()), false);
        for at in (0..frames.len()).rev() {
            let is_python = role(frames, at) == Some(Role::Python);
            let is_interpreter = role(frames, at) == Some(Role::Interpreter);
            let calls_python = at > 0 && role(frames, at - 1) == Some(Role::Python);
            if is_python || !(calls_python || is_interpreter && in_python) {
                kept.push(frames[at]);
                in_python = is_python;
            }
        }
        kept.reverse();
        *frames = kept;
    }

    fn leave_out_starts(&self, frames: &mut Vec<FunctionId>) {
        let starts = |id: &FunctionId| self.functions.get(*id).role == Role::Start;
        let shown = frames.iter().rposition(|id| !starts(id)).map_or(1, |last| last + 1);
        frames.truncate(shown);
    }

    fn step(
        &mut self,
        rule: Rule,
        mapping: &Mapping,
        lookup: u64,
        is_first: bool,
        registers: &mut Registers,
        stack: &Stack,
    ) -> Step {
        let sp = registers.get(machine::SP, stack).unwrap_or(0);
        let mut is_exact = false;
        let (frame, caller) = match rule {
            Rule::Outermost => return Step::End(None),
            Rule::Offsets { register, offset, saved } => {
                let base = registers.get(register, stack);
                let Some(cfa) = base.and_then(|base| base.checked_add_signed(offset.into())) else {
                    return Step::End(Some(CutReason::NoUnwindTables));
                };
                for (saved, register) in saved.into_iter().zip(RESTORED) {
                    if saved != UNSAVED {
                        registers.set(register, Place::At(cfa.wrapping_add_signed(i64::from(saved) * 8)));
                    }
                }
                registers.set(machine::SP, Place::Is(cfa));
                (cfa, registers.get(machine::RETURN, stack))
            }
            Rule::Table { is_signal } => {
                is_exact = is_signal;
                match self.files.follow(mapping, lookup, registers, stack) {
                    Some((frame, caller)) => (frame, Some(caller)),
                    None => return Step::End(Some(CutReason::NoUnwindTables)),
                }
            }
            Rule::FramePointer => {
                let fp = registers.get(machine::FRAME, stack).unwrap_or(0);
                if fp == 0 && !self.files.has_tables(mapping.file) {
                    return Step::End(None);
                }
                if fp < sp || !fp.is_multiple_of(8) {
                    return Step::End(Some(CutReason::NoUnwindTables));
                }
                registers.set(machine::RETURN, Place::At(fp.wrapping_add(8)));
                registers.set(machine::FRAME, Place::At(fp));
                registers.set(machine::SP, Place::Is(fp.wrapping_add(16)));
                (fp.wrapping_add(16), registers.get(machine::RETURN, stack))
            }
        };
        let Some(caller) = caller else { return Step::End(Some(stack.why_unreadable(frame))) };
        let caller = caller & machine::CODE_MASK;
        if caller == 0 {
            return Step::End(None);
        }
        // A function that calls none may have no frame; others have one, and it is further out.
        let may_stay = machine::RETURN_IN_REGISTER && is_first;
        if !is_exact && (frame < sp || frame == sp && !may_stay) {
            return Step::End(Some(CutReason::OtherStack));
        }
        Step::Caller { address: caller, is_exact }
    }
}
