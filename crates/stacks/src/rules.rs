//! Unwinds a frame with DWARF's tables, which are converted to rules that can be cached.

use std::ops::Range;

use gimli::{
    BaseAddresses, CfaRule, CieOrFde, DebugFrame, EhFrame, EndianSlice, Evaluation, EvaluationResult,
    Expression, FrameDescriptionEntry, LittleEndian, Location, RegisterRule, UnwindContext, UnwindExpression,
    UnwindSection, UnwindTableRow, Value,
};

use crate::machine::{self, RESTORED, Register};
use crate::stack::{Place, Registers, Stack};

type Slice<'a> = EndianSlice<'a, LittleEndian>;
/// The memory that gimli needs while it reads a table.
pub(crate) type Context = UnwindContext<usize>;

/// The way to unwind a frame at one address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rule {
    /// The frame's address (CFA) is a register plus an offset, and registers are saved at offsets from it.
    Offsets {
        register: Register,
        offset: i32,
        /// The offset in words for each register of `RESTORED`, or `UNSAVED`.
        saved: [i16; RESTORED.len()],
    },
    /// The table must be read each time.
    Table {
        /// Whether the frame returns from a signal handler, so that the caller's address is exact.
        is_signal: bool,
    },
    /// The frame is the outermost one.
    Outermost,
    /// There is no table, but there may be a frame pointer.
    FramePointer,
}

pub(crate) const UNSAVED: i16 = i16::MIN;

impl Rule {
    /// Returns the rule of the code that Python generates around its functions.
    pub(crate) fn of_python() -> Rule {
        let Some(offset) = machine::PYTHON_FRAME else { return Rule::FramePointer };
        let saved = RESTORED.map(|register| if register == machine::RETURN { -1 } else { UNSAVED });
        Rule::Offsets { register: machine::SP, offset, saved }
    }
}

/// A frame description entry of a file.
struct Entry {
    start: u64,
    length: u32,
    offset: u32,
}

/// The unwind tables of a file.
pub(crate) struct Tables {
    bytes: Vec<u8>,
    /// Whether the section is `.debug_frame` and not `.eh_frame`.
    is_debug: bool,
    bases: BaseAddresses,
    entries: Vec<Entry>,
}

/// The maximum number of entries of a file that are read.
const ENTRIES_MAX: usize = 1 << 22;
/// The maximum number of steps of an expression that are evaluated.
const STEPS_MAX: u32 = 1000;

impl Tables {
    /// Returns the tables in these bytes, whose addresses are relative to `address`. `None` if there is no entry.
    pub(crate) fn new(bytes: Vec<u8>, is_debug: bool, address: u64, text: u64) -> Option<Tables> {
        let bases = BaseAddresses::default().set_eh_frame(address).set_text(text);
        let mut tables = Tables { bytes, is_debug, bases, entries: Vec::new() };
        tables.entries = match is_debug {
            true => entries_of(&tables.debug_frame(), &tables.bases),
            false => entries_of(&tables.eh_frame(), &tables.bases),
        };
        tables.entries.sort_unstable_by_key(|entry| entry.start);
        (!tables.entries.is_empty()).then_some(tables)
    }

    fn eh_frame(&self) -> EhFrame<Slice<'_>> {
        let mut section = EhFrame::new(&self.bytes, LittleEndian);
        section.set_address_size(8);
        section.set_vendor(machine::VENDOR);
        section
    }

    fn debug_frame(&self) -> DebugFrame<Slice<'_>> {
        let mut section = DebugFrame::new(&self.bytes, LittleEndian);
        section.set_address_size(8);
        section.set_vendor(machine::VENDOR);
        section
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes.len() + self.entries.len() * size_of::<Entry>()
    }

    fn entry(&self, address: u64) -> Option<&Entry> {
        let after = self.entries.partition_point(|entry| entry.start <= address);
        let entry = self.entries.get(after.checked_sub(1)?)?;
        (address - entry.start < u64::from(entry.length)).then_some(entry)
    }

    /// Returns the range of addresses that the table for this address covers.
    pub(crate) fn range(&self, address: u64) -> Option<Range<u64>> {
        self.entry(address).map(|entry| entry.start..entry.start + u64::from(entry.length))
    }

    pub(crate) fn rule(&self, address: u64, context: &mut Context) -> Rule {
        let Some(entry) = self.entry(address) else { return Rule::FramePointer };
        let rule = match self.is_debug {
            true => with_row(&self.debug_frame(), &self.bases, entry, address, context, |row, fde| {
                compact(row, fde.is_signal_trampoline())
            }),
            false => with_row(&self.eh_frame(), &self.bases, entry, address, context, |row, fde| {
                compact(row, fde.is_signal_trampoline())
            }),
        };
        rule.unwrap_or(Rule::FramePointer)
    }

    /// Reads the table and unwinds with it. Returns the frame's address and the caller's.
    pub(crate) fn step(
        &self,
        address: u64,
        context: &mut Context,
        registers: &mut Registers,
        stack: &Stack,
    ) -> Option<(u64, u64)> {
        let entry = self.entry(address)?;
        match self.is_debug {
            true => {
                let section = self.debug_frame();
                with_row(&section, &self.bases, entry, address, context, |row, fde| {
                    follow(row, &section, fde, registers, stack)
                })?
            }
            false => {
                let section = self.eh_frame();
                with_row(&section, &self.bases, entry, address, context, |row, fde| {
                    follow(row, &section, fde, registers, stack)
                })?
            }
        }
    }
}

/// Returns all entries of a section, up to the first damaged one.
fn entries_of<'a, S: UnwindSection<Slice<'a>>>(section: &S, bases: &BaseAddresses) -> Vec<Entry> {
    let mut found = Vec::new();
    let mut common = None;
    let mut entries = section.entries(bases);
    while let Ok(Some(entry)) = entries.next() {
        let CieOrFde::Fde(partial) = entry else { continue };
        let parsed = partial.parse(|section, bases, offset| {
            // Most entries have the same common part as the previous one.
            match &common {
                Some((known, cie)) if *known == offset => Ok(Clone::clone(cie)),
                _ => {
                    let cie = section.cie_from_offset(bases, offset)?;
                    common = Some((offset, cie.clone()));
                    Ok(cie)
                }
            }
        });
        let Ok(fde) = parsed else { continue };
        let Ok(offset) = u32::try_from(fde.offset()) else { break };
        let length = fde.len().min(u64::from(u32::MAX)) as u32;
        if length > 0 && fde.initial_address() > 0 && fde.initial_address().checked_add(fde.len()).is_some() {
            found.push(Entry { start: fde.initial_address(), length, offset });
        }
        if found.len() >= ENTRIES_MAX {
            break;
        }
    }
    found
}

fn with_row<'a, S: UnwindSection<Slice<'a>>, T>(
    section: &S,
    bases: &BaseAddresses,
    entry: &Entry,
    address: u64,
    context: &mut Context,
    use_it: impl FnOnce(&UnwindTableRow<usize>, &FrameDescriptionEntry<Slice<'a>>) -> T,
) -> Option<T> {
    let offset = S::Offset::from(entry.offset as usize);
    let fde = section.fde_from_offset(bases, offset, S::cie_from_offset).ok()?;
    let row = fde.unwind_info_for_address(section, bases, context, address).ok()?;
    Some(use_it(row, &fde))
}

fn dwarf(register: Register) -> gimli::Register {
    gimli::Register(register.into())
}

/// Converts a row to a rule that can be cached, if it has the usual form.
fn compact(row: &UnwindTableRow<usize>, is_signal: bool) -> Rule {
    let returns = row.register(dwarf(machine::RETURN));
    let is_outermost = match returns {
        Some(RegisterRule::Undefined) => true,
        None => !machine::RETURN_IN_REGISTER,
        _ => false,
    };
    if is_outermost {
        return Rule::Outermost;
    }
    let offsets = || {
        let CfaRule::RegisterAndOffset { register, offset } = row.cfa() else { return None };
        let register = Register::try_from(register.0).ok()?;
        let mut saved = [UNSAVED; RESTORED.len()];
        for (saved, register) in saved.iter_mut().zip(RESTORED) {
            *saved = match row.register(dwarf(register)) {
                None | Some(RegisterRule::Undefined | RegisterRule::SameValue) => UNSAVED,
                Some(RegisterRule::Offset(offset)) if offset % 8 == 0 => i16::try_from(offset / 8).ok()?,
                _ => return None,
            };
        }
        Some(Rule::Offsets { register, offset: i32::try_from(*offset).ok()?, saved })
    };
    match offsets() {
        Some(rule) if !is_signal => rule,
        _ => Rule::Table { is_signal },
    }
}

/// Unwinds with a row of any form. Returns the frame's address and the caller's.
fn follow<'a, S: UnwindSection<Slice<'a>>>(
    row: &UnwindTableRow<usize>,
    section: &S,
    fde: &FrameDescriptionEntry<Slice<'a>>,
    registers: &mut Registers,
    stack: &Stack,
) -> Option<(u64, u64)> {
    let evaluate = |expression: &UnwindExpression<usize>, first: Option<u64>| {
        evaluate(expression.get(section).ok()?, fde.cie().encoding(), first, registers, stack)
    };
    let cfa = match row.cfa() {
        CfaRule::RegisterAndOffset { register, offset } => {
            registers.get(u8::try_from(register.0).ok()?, stack)?.checked_add_signed(*offset)?
        }
        CfaRule::Expression(expression) => evaluate(expression, None)?,
    };
    let mut sp = cfa;
    let mut places = [None; RESTORED.len()];
    let restored = RESTORED.into_iter().map(Some).chain([None]);
    for (index, register) in restored.enumerate() {
        let place = match row.register(dwarf(register.unwrap_or(machine::SP))) {
            None | Some(RegisterRule::Undefined | RegisterRule::SameValue) => continue,
            Some(RegisterRule::Offset(offset)) => Place::At(cfa.checked_add_signed(offset)?),
            Some(RegisterRule::ValOffset(offset)) => Place::Is(cfa.checked_add_signed(offset)?),
            Some(RegisterRule::Register(other)) => {
                Place::Is(registers.get(u8::try_from(other.0).ok()?, stack)?)
            }
            Some(RegisterRule::Expression(expression)) => Place::At(evaluate(&expression, Some(cfa))?),
            Some(RegisterRule::ValExpression(expression)) => Place::Is(evaluate(&expression, Some(cfa))?),
            _ => Place::Lost,
        };
        match places.get_mut(index) {
            Some(slot) => *slot = Some(place),
            None => sp = place.value(stack)?,
        }
    }
    for (place, register) in places.into_iter().zip(RESTORED) {
        if let Some(place) = place {
            registers.set(register, place);
        }
    }
    let caller = registers.get(machine::RETURN, stack)?;
    registers.set(machine::SP, Place::Is(sp));
    Some((sp, caller))
}

fn evaluate(
    expression: Expression<Slice>,
    encoding: gimli::Encoding,
    first: Option<u64>,
    registers: &Registers,
    stack: &Stack,
) -> Option<u64> {
    let mut evaluation: Evaluation<Slice> = expression.evaluation(encoding);
    evaluation.set_max_iterations(STEPS_MAX);
    if let Some(first) = first {
        evaluation.set_initial_value(first);
    }
    let mut result = evaluation.evaluate().ok()?;
    loop {
        result = match result {
            EvaluationResult::Complete => break,
            EvaluationResult::RequiresRegister { register, .. } => {
                let value = registers.get(u8::try_from(register.0).ok()?, stack)?;
                evaluation.resume_with_register(Value::Generic(value)).ok()?
            }
            EvaluationResult::RequiresMemory { address, size: 8, space: None, .. } => {
                evaluation.resume_with_memory(Value::Generic(stack.read(address)?)).ok()?
            }
            _ => return None,
        };
    }
    match evaluation.as_result().last()?.location {
        Location::Address { address } => Some(address),
        _ => None,
    }
}
