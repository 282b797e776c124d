//! A copied stack, frame by frame.

use std::cell::OnceCell;
use std::collections::HashMap;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use crate::figures::CutReason;
use crate::file::Files;
use crate::functions::{FunctionId, Functions, Role};
use crate::machine::{self, RECORDED, RESTORED, Register};
use crate::processes::{FileNumber, Mapping, at};
use crate::prologue::{Call, Prologue};
use crate::rules::{Rule, UNSAVED};

/// Most stacks' frames are in so many lines of the cache.
const FETCHED_LINES: usize = 64;

/// The part of a stack that the kernel copied.
pub(crate) struct Stack<'a> {
    base: u64,
    bytes: &'a [u8],
    /// As much as was asked for: the stack may go on.
    is_full: bool,
    /// A part further out, which was read later.
    later: OnceCell<(u64, Part)>,
}

/// So much of a stack is read later, where a frame is larger than what was copied.
const LATER_BYTES: usize = 8 << 10;
/// How far from the stack pointer a return address is looked for.
const LOOKED_THROUGH: u64 = 4 << 10;
/// So many such parts are kept.
const LATER_MAX: usize = 256;

/// Bytes of a stack.
type Part = Arc<[u8]>;

/// Parts of stacks that were read later than the samples were taken: once for all samples that are fetched together.
#[derive(Default)]
pub(crate) struct Later {
    fetched: u64,
    /// By process and address, with the number of the fetch: the last by which a stack was whole.
    parts: HashMap<(u32, u64), (u64, Part)>,
}

impl Later {
    /// Other samples are fetched.
    pub(crate) fn fetch(&mut self) {
        self.fetched += 1;
    }

    fn read(&self, process: u32, address: u64) -> Part {
        match self.parts.get(&(process, address)) {
            Some((fetched, part)) if *fetched == self.fetched => part.clone(),
            _ => {
                let mut bytes = vec![0; LATER_BYTES];
                let memory = std::fs::File::open(format!("/proc/{process}/mem"));
                let read = memory.and_then(|memory| memory.read_at(&mut bytes, address)).unwrap_or(0);
                bytes[..read].into()
            }
        }
    }

    /// Whether a stack was whole by a part that was read. If not, gives an earlier one to try.
    fn judge(&mut self, process: u32, (address, part): (u64, Part), is_whole: bool) -> Option<(u64, Part)> {
        if self.parts.len() >= LATER_MAX {
            self.parts.clear();
        }
        let fetched = self.fetched;
        let known = self.parts.entry((process, address)).or_insert_with(|| (fetched, part.clone()));
        let is_new = !Arc::ptr_eq(&known.1, &part);
        known.0 = fetched;
        if is_whole {
            known.1 = part;
        }
        (!is_whole && is_new).then(|| (address, known.1.clone()))
    }
}

impl<'a> Stack<'a> {
    pub(crate) fn new(base: u64, bytes: &'a [u8], is_full: bool) -> Stack<'a> {
        // Another CPU wrote it. Fetched all at once, a sample takes an eighth less than with one word after another.
        let fetched = bytes.chunks(64).take(FETCHED_LINES).fold(0, |sum, line| sum ^ line[0]);
        std::hint::black_box(fetched);
        Stack { base, bytes, is_full, later: OnceCell::new() }
    }

    pub(crate) fn read(&self, address: u64) -> Option<u64> {
        match word(self.base, self.bytes, address) {
            None => self.later.get().and_then(|(base, bytes)| word(*base, bytes, address)),
            copied => copied,
        }
    }

    /// Reads from the process itself what is below a frame's address, beyond the copied part, and above. By now it may be something
    /// else.
    fn read_later(&self, process: u32, frame: u64, later: &Later) {
        /// Where a function saves registers.
        const BELOW: u64 = 256;
        let end = self.base.saturating_add(self.bytes.len() as u64);
        // Of pages that the program has not touched, nothing is copied either.
        if frame > end && frame - end <= STACK_MAX && self.later.get().is_none() {
            let from = frame.saturating_sub(BELOW).max(end);
            let _ = self.later.set((from, later.read(process, from)));
        }
    }

    fn was_read_later(&self) -> bool {
        self.later.get().is_some_and(|(_, bytes)| !bytes.is_empty())
    }

    /// Why nothing could be read from this frame's address on.
    fn why_unreadable(&self, cfa: u64) -> CutReason {
        let end = self.base.saturating_add(self.bytes.len() as u64);
        match cfa {
            // The return address is below the frame's.
            _ if (self.base..=end).contains(&cfa) => CutReason::NoUnwindTables,
            _ if self.is_full && cfa > end && cfa - end < STACK_MAX => CutReason::StackTooDeep,
            _ => CutReason::OtherStack,
        }
    }
}

/// A thread's stack is seldom larger.
const STACK_MAX: u64 = 64 << 20;

fn word(base: u64, bytes: &[u8], address: u64) -> Option<u64> {
    let start = usize::try_from(address.checked_sub(base)?).ok()?;
    let word = bytes.get(start..start.checked_add(8)?)?;
    Some(u64::from_le_bytes(word.try_into().ok()?))
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

/// What was found out about a stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Walked {
    pub(crate) end: End,
    /// The file that the innermost code is in, whose functions are not known.
    pub(crate) unnamed: Option<FileNumber>,
    /// The file of the first function whose caller was found by looking for a return address.
    pub(crate) guessed: Option<FileNumber>,
    /// The innermost code is nowhere, as far as known.
    pub(crate) is_unmapped: bool,
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
        registers: Registers,
        stack: &mut Stack,
        frames: &mut Vec<FunctionId>,
    ) -> Walked {
        let walked = self.walk_once(registers.clone(), stack, frames);
        let Some(later) = stack.later.take() else { return walked };
        match self.files.later.judge(self.process, later, walked.end == End::Complete) {
            Some(earlier) => {
                stack.later = earlier.into();
                self.walk_once(registers, stack, frames)
            }
            None => walked,
        }
    }

    fn walk_once(&mut self, mut registers: Registers, stack: &Stack, frames: &mut Vec<FunctionId>) -> Walked {
        frames.clear();
        let mut walked = Walked { end: End::Complete, unnamed: None, guessed: None, is_unmapped: false };
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
                    (walked.is_unmapped, walked.unnamed) = (true, Some(0));
                }
                break Some(CutReason::NoUnwindTables);
            };
            // Only memory where a file was has one below.
            let below = mapping.below.and_then(|_| self.files.below(mapping, lookup, self.process));
            let mapping = below.as_ref().unwrap_or(mapping);
            file = mapping.file;
            let is_first = frames.is_empty();
            let place = self.files.place(mapping, lookup, self.process, self.functions);
            frames.extend_from_slice(self.functions.chain(place.inlined));
            frames.push(place.function);
            if is_first && self.files.is_unknown(file, place.function) {
                walked.unnamed = Some(file);
            }
            has_python |= self.functions.get(place.function).role == Role::Python;
            if frames.len() >= FRAMES_MAX {
                frames.truncate(FRAMES_MAX);
                break Some(CutReason::StackTooDeep);
            }
            step = match place.rule {
                Rule::FramePointer if self.files.has_image(file) => {
                    let (step, is_guessed) =
                        self.without_table(mapping, lookup, is_exact, &mut registers, stack);
                    if is_guessed {
                        walked.guessed.get_or_insert(file);
                    }
                    step
                }
                rule => self.step(rule, mapping, lookup, is_first, &mut registers, stack),
            };
        };
        if has_python {
            self.leave_out_interpreter(frames);
        }
        match reason {
            None => self.leave_out_starts(frames),
            Some(reason) => walked.end = End::CutOff(reason, file),
        }
        walked
    }

    /// The caller of a function without an unwind table: by its first instructions, by a frame pointer, or by looking for a return
    /// address. Whether it is a guess.
    fn without_table(
        &mut self,
        mapping: &Mapping,
        lookup: u64,
        is_exact: bool,
        registers: &mut Registers,
        stack: &Stack,
    ) -> (Step, bool) {
        let sp = registers.get(machine::SP, stack).unwrap_or(0);
        let fp = registers.get(machine::FRAME, stack).unwrap_or(0);
        let (start, prologue) = self.files.prologue(mapping, lookup, is_exact).unzip();
        let is_chained = fp >= sp && fp.is_multiple_of(8);
        let is_chained =
            is_chained && stack.read(fp.wrapping_add(8)).is_some_and(|caller| self.call(caller).is_some());
        let by_pointer = prologue.as_ref().is_none_or(|prologue| prologue.has_frame_pointer)
            || is_chained && !self.files.has_tables(mapping.file);
        let is_end = fp == 0 && !self.files.has_tables(mapping.file);
        if let Some(prologue) = prologue.filter(|_| !by_pointer && !is_end)
            && let Some((frame, is_known)) = self.by_prologue(&prologue, start, registers, stack)
        {
            let saved = prologue.saved.into_iter().zip(RESTORED);
            return (restore(frame, saved, sp, registers, stack), !is_known || stack.was_read_later());
        }
        // Its own return address is further in than what the frame pointer of a caller leads to.
        let until = if is_chained { (fp - sp).min(LOOKED_THROUGH) } else { LOOKED_THROUGH };
        let is_followed = is_end || by_pointer && is_chained;
        if !is_followed && let Some(frame) = self.look_through(sp, until, stack) {
            let saved =
                RESTORED.map(|register| (if register == machine::RETURN { -1 } else { UNSAVED }, register));
            return (restore(frame, saved.into_iter(), sp, registers, stack), true);
        }
        (self.step(Rule::FramePointer, mapping, lookup, false, registers, stack), false)
    }

    /// The frame's address, if a return address is there; and whether it returns from a call of just this function.
    fn by_prologue(
        &mut self,
        prologue: &Prologue,
        start: Option<u64>,
        registers: &Registers,
        stack: &Stack,
    ) -> Option<(u64, bool)> {
        let base = registers.get(prologue.register, stack)?;
        let frame = base.checked_add_signed(prologue.offset.into())?;
        if stack.read(frame.checked_sub(8)?).is_none() {
            stack.read_later(self.process, frame, &self.files.later);
        }
        let call = self.call(stack.read(frame - 8)?)?;
        Some((frame, call == Call::Of(start?)))
    }

    /// The call in front of an address, where functions are called: as addresses of the process.
    fn call(&mut self, address: u64) -> Option<Call> {
        let mapping = at(self.mappings, address.checked_sub(1)?)?;
        Some(self.files.call_before(mapping, address)).filter(|call| *call != Call::None)
    }

    /// The address of the frame of the first return address on the stack.
    fn look_through(&mut self, sp: u64, bytes: u64, stack: &Stack) -> Option<u64> {
        let words = (0..bytes).step_by(8).map(|offset| sp.wrapping_add(offset));
        words
            .take_while(|at| stack.read(*at).is_some())
            .find_map(|at| self.call(stack.read(at)?).map(|_| at.wrapping_add(8)))
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
                set_saved(cfa, saved.into_iter().zip(RESTORED), registers);
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

/// What a function has saved below its frame's address is its caller's.
fn set_saved(frame: u64, saved: impl Iterator<Item = (i16, Register)>, registers: &mut Registers) {
    for (saved, register) in saved.filter(|(saved, _)| *saved != UNSAVED) {
        registers.set(register, Place::At(frame.wrapping_add_signed(i64::from(saved) * 8)));
    }
    registers.set(machine::SP, Place::Is(frame));
}

/// The caller, whose return address is below a frame's address.
fn restore(
    frame: u64,
    saved: impl Iterator<Item = (i16, Register)>,
    sp: u64,
    registers: &mut Registers,
    stack: &Stack,
) -> Step {
    set_saved(frame, saved, registers);
    match registers.get(machine::RETURN, stack) {
        Some(caller) if frame > sp => Step::Caller { address: caller, is_exact: false },
        _ => Step::End(Some(CutReason::NoUnwindTables)),
    }
}
