//! Walks a stack, frame by frame.

use crate::figures::{CutReason, End, Walked};
use crate::file::{Files, UNKNOWN_FILE};
use crate::functions::{FunctionId, Functions, Role};
use crate::machine::{self, RESTORED, Register};
use crate::processes::{Mapping, at};
use crate::prologue::{Call, Prologue};
use crate::rules::{Rule, UNSAVED};
use crate::stack::{Place, Registers, Stack};

/// The maximum distance from the stack pointer at which a return address is searched for.
const SEARCHED_BYTES_MAX: u64 = 4 << 10;
/// The maximum number of frames of a stack that are shown.
const FRAMES_MAX: usize = 1024;

/// The next frame, or the end of the stack.
enum Step {
    Caller { address: u64, is_exact: bool },
    End(Option<CutReason>),
}

/// Walks stacks. Functions and rules are cached for the next stack.
pub(crate) struct Walker<'a> {
    pub(crate) files: &'a mut Files,
    pub(crate) functions: &'a mut Functions,
    pub(crate) process: u32,
    pub(crate) mappings: &'a [Mapping],
}

impl Walker<'_> {
    /// Finds the functions on a stack, innermost first, without those that only start a process or thread.
    pub(crate) fn walk(
        &mut self,
        registers: Registers,
        stack: &mut Stack,
        frames: &mut Vec<FunctionId>,
    ) -> Walked {
        loop {
            let walked = self.walk_once(registers.clone(), stack, frames);
            let Some((address, part)) = stack.later.take() else { return walked };
            let is_whole = walked.end == End::Complete;
            match self.files.later.keep_or_replace(self.process, address, part, is_whole) {
                Some(other) => stack.later = (address, other).into(),
                None => return walked,
            }
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
            // A return address may be after the end of its function.
            let lookup = if is_exact { address } else { address.wrapping_sub(1) };
            let Some(mapping) = at(self.mappings, lookup) else {
                if frames.is_empty() {
                    frames.push(FunctionId(0));
                    (walked.is_unmapped, walked.unnamed) = (true, Some(UNKNOWN_FILE));
                }
                break Some(CutReason::NoUnwindTables);
            };
            // Memory may contain a copy of the file that was mapped there before.
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
            self.remove_interpreter(frames);
        }
        match reason {
            None => self.remove_starts(frames),
            Some(reason) => walked.end = End::CutOff(reason, file),
        }
        walked
    }

    /// Finds the caller of a function without an unwind table: from its first instructions, from a frame pointer, or by searching
    /// for a return address. Also returns whether the caller is a guess.
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
            || is_chained && !machine::RETURN_IN_REGISTER && !self.files.has_tables(mapping.file);
        let is_end = fp == 0 && !self.files.has_tables(mapping.file);
        if let Some(prologue) = prologue.filter(|_| !by_pointer && !is_end)
            && let Some((frame, is_known)) = self.by_prologue(&prologue, start, is_exact, registers, stack)
        {
            let saved = prologue.saved.into_iter().zip(RESTORED);
            return (
                restore(frame, saved, sp, is_exact, registers, stack),
                !is_known || stack.was_read_later(),
            );
        }
        // The function's own return address lies below the frame to which the caller's frame pointer points.
        let until = if is_chained { (fp - sp).min(SEARCHED_BYTES_MAX) } else { SEARCHED_BYTES_MAX };
        let is_followed = is_end || is_chained && (by_pointer || machine::RETURN_IN_REGISTER);
        if !is_followed && let Some(frame) = self.find_return_address(sp, until, stack) {
            let saved =
                RESTORED.map(|register| (if register == machine::RETURN { -1 } else { UNSAVED }, register));
            return (restore(frame, saved.into_iter(), sp, false, registers, stack), true);
        }
        (self.step(Rule::FramePointer, mapping, lookup, false, registers, stack), false)
    }

    /// Returns the frame's address, and whether its return address follows a direct call of this function. `None` if the frame
    /// has no return address.
    fn by_prologue(
        &mut self,
        prologue: &Prologue,
        start: Option<u64>,
        is_exact: bool,
        registers: &Registers,
        stack: &Stack,
    ) -> Option<(u64, bool)> {
        let base = registers.get(prologue.register, stack)?;
        let frame = base.checked_add_signed(prologue.offset.into())?;
        let caller = match prologue.return_place() {
            Some(words) => {
                let place = frame.checked_add_signed(i64::from(words) * 8)?;
                if stack.read(place).is_none() {
                    stack.read_later(self.process, frame, &self.files.later);
                }
                stack.read(place)?
            }
            // Only the innermost function can have its return address in a register.
            None if is_exact => registers.get(machine::RETURN, stack)?,
            None => return None,
        };
        let call = self.call(caller)?;
        Some((frame, call == Call::Of(start?)))
    }

    /// Returns the call instruction before an address of the process, if there is one.
    fn call(&mut self, address: u64) -> Option<Call> {
        let address = address & machine::CODE_MASK;
        let mapping = at(self.mappings, address.checked_sub(1)?)?;
        Some(self.files.call_before(mapping, address)).filter(|call| *call != Call::None)
    }

    /// Returns the address of the frame with the first return address on the stack.
    fn find_return_address(&mut self, sp: u64, bytes: u64, stack: &Stack) -> Option<u64> {
        let words = (0..bytes).step_by(8).map(|offset| sp.wrapping_add(offset));
        words
            .take_while(|at| stack.read(*at).is_some())
            .find_map(|at| self.call(stack.read(at)?).map(|_| at.wrapping_add(8)))
    }

    /// Removes the interpreter's functions between two Python functions and inside the innermost one. A function that directly
    /// calls a Python function belongs to the interpreter, whatever its name.
    fn remove_interpreter(&self, frames: &mut Vec<FunctionId>) {
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

    fn remove_starts(&self, frames: &mut Vec<FunctionId>) {
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
        // Only the innermost function may have no frame, if its return address is in a register. The frame of a caller is always
        // further out.
        let may_stay = machine::RETURN_IN_REGISTER && is_first;
        if !is_exact && (frame < sp || frame == sp && !may_stay) {
            return Step::End(Some(CutReason::OtherStack));
        }
        Step::Caller { address: caller, is_exact }
    }
}

/// Restores the caller's registers, which a function has saved below its frame's address.
fn set_saved(frame: u64, saved: impl Iterator<Item = (i16, Register)>, registers: &mut Registers) {
    for (saved, register) in saved.filter(|(saved, _)| *saved != UNSAVED) {
        registers.set(register, Place::At(frame.wrapping_add_signed(i64::from(saved) * 8)));
    }
    registers.set(machine::SP, Place::Is(frame));
}

/// Restores the caller's registers and returns the caller. `is_innermost`: the function may have no frame, if the return address
/// is in a register.
fn restore(
    frame: u64,
    saved: impl Iterator<Item = (i16, Register)>,
    sp: u64,
    is_innermost: bool,
    registers: &mut Registers,
    stack: &Stack,
) -> Step {
    set_saved(frame, saved, registers);
    let may_stay = machine::RETURN_IN_REGISTER && is_innermost;
    match registers.get(machine::RETURN, stack) {
        Some(caller) if frame > sp || frame == sp && may_stay => {
            Step::Caller { address: caller & machine::CODE_MASK, is_exact: false }
        }
        _ => Step::End(Some(CutReason::NoUnwindTables)),
    }
}
