//! Decodes the instructions of x86-64.

use super::{CALL_BYTES, Call, Prologue};
use crate::machine::{self, RESTORED, Register};
use crate::rules::UNSAVED;

impl Call {
    /// Decodes the call instruction that ends at an address, from the bytes before it.
    pub(crate) fn before(address: u64, bytes: &[u8; CALL_BYTES as usize]) -> Call {
        if bytes[3] == 0xe8 {
            let distance = i32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
            return Call::Of(address.wrapping_add_signed(distance.into()));
        }
        let is_call = |length: usize| {
            let code = &bytes[bytes.len() - length..];
            code[0] == 0xff && code[1] >> 3 & 7 == 2 && 1 + operand_bytes(&code[1..]).unwrap_or(0) == length
        };
        if (2..=7).any(is_call) { Call::OfValue } else { Call::None }
    }
}

impl Prologue {
    /// Decodes the first `until` bytes of a function. Instructions after the first unknown one are assumed not to change the
    /// stack.
    pub(crate) fn of(code: &[u8], until: u64) -> Prologue {
        let mut prologue = Prologue {
            register: machine::SP,
            offset: 8,
            saved: RESTORED.map(|register| if register == machine::RETURN { -1 } else { UNSAVED }),
            // Go's functions first check the size of the stack; all of them have a frame pointer.
            has_frame_pointer: code.starts_with(&[0x49, 0x3b, 0x66, 0x10])
                || code.starts_with(&[0x4c, 0x8d, 0x64, 0x24]),
            has_frame: false,
        };
        // The distance of the stack pointer from the frame's address.
        let mut depth = 8;
        let mut at = 0;
        while at < code.len() && (at as u64) < until {
            let Some((instruction, bytes)) = Instruction::of(&code[at..]) else { break };
            at += bytes;
            // An instruction that ends after `until` has not been executed yet.
            if at as u64 > until {
                break;
            }
            match instruction {
                Instruction::Other => continue,
                Instruction::Push(register) => {
                    depth += 8;
                    prologue.save(register, -depth);
                }
                Instruction::Store(register, offset) => {
                    prologue.save(register, offset - depth);
                    continue;
                }
                Instruction::Lower(bytes) => depth = depth.saturating_add(bytes),
                Instruction::KeepIn(register) => {
                    (prologue.register, prologue.offset) = (register, depth);
                    prologue.has_frame_pointer |= register == machine::FRAME;
                    continue;
                }
                Instruction::Align => break,
            }
            prologue.has_frame = true;
            if prologue.register == machine::SP {
                prologue.offset = depth;
            }
        }
        prologue
    }
}

/// The effect of an instruction on the stack.
enum Instruction {
    Push(Register),
    /// A register is stored at this offset from the stack pointer.
    Store(Register, i32),
    Lower(i32),
    /// The stack pointer's value is kept in a register.
    KeepIn(Register),
    /// The stack pointer is lowered by an unknown amount.
    Align,
    Other,
}

/// The DWARF numbers of registers, by their numbers in instructions.
const REGISTERS: [Register; 16] = [0, 2, 1, 3, 7, 6, 4, 5, 8, 9, 10, 11, 12, 13, 14, 15];

impl Instruction {
    /// Decodes the first instruction and its length. `None` if it is not known.
    fn of(code: &[u8]) -> Option<(Instruction, usize)> {
        match code {
            // endbr64, vzeroupper
            [0xf3, 0x0f, 0x1e, 0xfa, ..] => return Some((Instruction::Other, 4)),
            [0xc5, 0xf8, 0x77, ..] => return Some((Instruction::Other, 3)),
            _ => {}
        }
        let (rex, code_at) = if code.first()? & 0xf0 == 0x40 { (code[0], 1) } else { (0, 0) };
        let (operation, operands) = (*code.get(code_at)?, code.get(code_at + 1..)?);
        let low = |number: u8| REGISTERS[usize::from(number & 7 | (rex & 1) << 3)];
        if operation & 0xf8 == 0x50 {
            return Some((Instruction::Push(low(operation)), code_at + 1));
        }
        let is_wide = rex & 8 != 0;
        let form = *operands.first()?;
        let middle = REGISTERS[usize::from(form >> 3 & 7 | (rex & 4) << 1)];
        let length = operand_bytes(operands)?;
        let rest = operands.get(length..)?;
        let end = code_at + 1 + length;
        let is_register = form >> 6 == 3;
        // The address is the stack pointer plus a displacement.
        let from_sp = (!is_register && rex & 3 == 0 && operands.get(1) == Some(&0x24) && form & 7 == 4)
            .then(|| displacement(form >> 6, &operands[2..length]))
            .flatten();
        let is_sp = |register: Register| is_wide && register == machine::SP;
        Some(match operation {
            0x89 if is_register && is_sp(middle) => (Instruction::KeepIn(low(form)), end),
            0x8b if is_register && is_sp(low(form)) => (Instruction::KeepIn(middle), end),
            0x89 if is_wide && from_sp.is_some() => (Instruction::Store(middle, from_sp?), end),
            0x8d if is_sp(middle) => (Instruction::Lower(from_sp?.checked_neg()?), end),
            0x83 | 0x81 if is_register && is_sp(low(form)) => {
                let (value, bytes) = match operation {
                    0x83 => (i32::from(*rest.first()? as i8), 1),
                    _ => (i32::from_le_bytes(rest.get(..4)?.try_into().ok()?), 4),
                };
                match form >> 3 & 7 {
                    5 => (Instruction::Lower(value), end + bytes),
                    0 => (Instruction::Lower(value.checked_neg()?), end + bytes),
                    4 => (Instruction::Align, end + bytes),
                    _ => return None,
                }
            }
            // Other moves are assumed not to change the stack pointer, except 0x89 with it as the destination.
            0x89 | 0x8b if !(is_register && low(form) == machine::SP && operation == 0x89) => {
                (Instruction::Other, end)
            }
            _ => return None,
        })
    }
}

/// Returns the length of an instruction's operand bytes (ModRM, SIB and displacement), without an immediate value.
fn operand_bytes(operands: &[u8]) -> Option<usize> {
    let form = *operands.first()?;
    let (mode, register) = (form >> 6, form & 7);
    let with_index = usize::from(mode != 3 && register == 4);
    let is_absolute = mode == 0 && (register == 5 || register == 4 && operands.get(1)? & 7 == 5);
    Some(
        1 + with_index
            + if mode == 1 {
                1
            } else if mode == 2 || is_absolute {
                4
            } else {
                0
            },
    )
}

fn displacement(mode: u8, bytes: &[u8]) -> Option<i32> {
    match (mode, bytes) {
        (0, []) => Some(0),
        (1, [byte]) => Some(i32::from(*byte as i8)),
        (2, bytes) => Some(i32::from_le_bytes(bytes.try_into().ok()?)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn saved_at(prologue: &Prologue, register: Register) -> i16 {
        prologue.saved[RESTORED.iter().position(|restored| *restored == register).unwrap()]
    }

    #[test]
    fn a_frame_is_known_by_a_functions_first_instructions() {
        // The start of a kernel of OpenBLAS: sub $0x60,%rsp; mov %rbx,(%rsp); mov %rbp,0x8(%rsp); mov %r15,0x28(%rsp);
        // vzeroupper; mov 0x68(%rsp),%r10; mov %rsp,%rbx; sub $0x7080,%rsp; and $-4096,%rsp; cmp $0x0,%rdi
        let code = [
            0x48, 0x83, 0xec, 0x60, 0x48, 0x89, 0x1c, 0x24, 0x48, 0x89, 0x6c, 0x24, 0x08, 0x4c, 0x89, 0x7c,
            0x24, 0x28, 0xc5, 0xf8, 0x77, 0x4c, 0x8b, 0x54, 0x24, 0x68, 0x48, 0x89, 0xe3, 0x48, 0x81, 0xec,
            0x80, 0x70, 0, 0, 0x48, 0x81, 0xe4, 0, 0xf0, 0xff, 0xff, 0x48, 0x83, 0xff, 0,
        ];
        let whole = Prologue::of(&code, 1000);
        assert_eq!((whole.register, whole.offset, whole.has_frame), (3, 0x68, true));
        assert_eq!([3, 6, 15, 12].map(|register| saved_at(&whole, register)), [-13, -12, -8, UNSAVED]);
        let begun = Prologue::of(&code, 4);
        assert_eq!((begun.register, begun.offset, saved_at(&begun, 3)), (machine::SP, 0x68, UNSAVED));
        let first = Prologue::of(&code, 0);
        assert_eq!((first.register, first.offset, first.has_frame), (machine::SP, 8, false));
    }

    #[test]
    fn pushes_and_frame_pointers_are_known() {
        // endbr64; push %rbp; mov %rsp,%rbp; push %r12; sub $0x10,%rsp
        let code = [0xf3, 0x0f, 0x1e, 0xfa, 0x55, 0x48, 0x89, 0xe5, 0x41, 0x54, 0x48, 0x83, 0xec, 0x10];
        let whole = Prologue::of(&code, 14);
        assert_eq!((whole.register, whole.offset, whole.has_frame_pointer), (machine::FRAME, 16, true));
        assert_eq!([6, 12].map(|register| saved_at(&whole, register)), [-2, -3]);
        assert_eq!(Prologue::of(&code, 5).offset, 16);
    }

    #[test]
    fn a_return_address_follows_a_call() {
        assert_eq!(Call::before(0x1000, &[0, 0, 0, 0xe8, 0x10, 0, 0, 0]), Call::Of(0x1010));
        for of_value in [
            [0, 0, 0, 0, 0, 0, 0xff, 0xd0],
            [0, 0, 0, 0, 0x41, 0xff, 0x54, 0x24],
            [0, 0xff, 0x94, 0x24, 1, 2, 3, 4],
            [0, 0, 0xff, 0x15, 1, 2, 3, 4],
        ] {
            let expected = if of_value[5] == 0xff { Call::None } else { Call::OfValue };
            assert_eq!(Call::before(0x1000, &of_value), expected, "{of_value:x?}");
        }
        assert_eq!(Call::before(0x1000, &[0x90; 8]), Call::None);
    }

    #[test]
    fn arbitrary_bytes_do_no_harm() {
        let mut random = 88172645463325252_u64;
        for _ in 0..100_000 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let code: Vec<u8> = (0..3).flat_map(|turn| random.rotate_left(turn * 9).to_le_bytes()).collect();
            Prologue::of(&code, 24);
        }
    }
}
