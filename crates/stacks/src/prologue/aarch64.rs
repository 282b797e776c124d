//! Decodes the instructions of AArch64, each of which has four bytes.

use super::{CALL_BYTES, Call, Prologue};
use crate::machine::{self, RESTORED, Register};
use crate::rules::UNSAVED;

impl Call {
    /// Decodes the bytes before an address.
    pub(crate) fn before(address: u64, bytes: &[u8; CALL_BYTES as usize]) -> Call {
        let [.., a, b, c, d] = *bytes;
        let code = u32::from_le_bytes([a, b, c, d]);
        // bl
        if code >> 26 == 0b100101 {
            let distance = i64::from((code << 6) as i32 >> 4);
            return Call::Of(address.wrapping_sub(4).wrapping_add_signed(distance));
        }
        // blr; blraaz and blrabz; blraa and blrab
        let is_call = code & 0xffff_fc1f == 0xd63f_0000
            || code & 0xffff_f81f == 0xd63f_081f
            || code & 0xffff_f800 == 0xd73f_0800;
        if is_call { Call::OfValue } else { Call::None }
    }
}

impl Prologue {
    /// Decodes the first `until` bytes of a function, up to its first jump or the first instruction that removes its frame.
    pub(crate) fn of(code: &[u8], until: u64) -> Prologue {
        let mut prologue = Prologue {
            register: machine::SP,
            offset: 0,
            saved: [UNSAVED; RESTORED.len()],
            // It stays false even if the function sets the frame pointer: the frame's distance from it is decoded here, which
            // shows more than the chain of frame pointers does.
            has_frame_pointer: false,
            has_frame: false,
        };
        // The distance of the stack pointer from the frame's address.
        let mut depth = 0;
        let (codes, _) = code[..code.len().min(until as usize)].as_chunks();
        for code in codes {
            match Instruction::of(u32::from_le_bytes(*code)) {
                Instruction::Other => continue,
                Instruction::End => break,
                Instruction::Lower(bytes) => depth += bytes,
                Instruction::Save { lowers, registers, at } => {
                    depth += lowers;
                    for (register, at) in registers.into_iter().zip([at, at + 8]) {
                        prologue.save(register, at - depth);
                    }
                    if lowers == 0 {
                        continue;
                    }
                }
                Instruction::SetFramePointer(above) => {
                    (prologue.register, prologue.offset) = (machine::FRAME, depth - above);
                    continue;
                }
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
    Lower(i32),
    /// Registers are stored at this offset from the stack pointer, after it was lowered by `lowers` bytes. Number 31 stands for a
    /// register that need not be restored.
    Save {
        lowers: i32,
        registers: [Register; 2],
        at: i32,
    },
    /// The frame pointer is set to this offset from the stack pointer.
    SetFramePointer(i32),
    /// A jump, or the first instruction that removes the frame.
    End,
    Other,
}

const NONE: Register = 31;

impl Instruction {
    fn of(code: u32) -> Instruction {
        let register = |at: u32| (code >> at & 31) as Register;
        // Signed offsets of pairs and of single registers.
        let pair = (code << 10) as i32 >> 25;
        let single = (code << 11) as i32 >> 23;
        let immediate = (code >> 10 & 0xfff) as i32;
        let shifted = immediate << (code >> 22 & 1) * 12;
        let lower = |lowers: i32, registers| Instruction::Save { lowers, registers, at: 0 };
        let is_on_stack = code >> 5 & 31 == 31;
        match code & 0xffc0_0000 {
            // sub sp, sp, immediate
            0xd100_0000 | 0xd140_0000 if code & 0x3ff == 0x3ff => Instruction::Lower(shifted),
            // add x29, sp, immediate, and mov x29, sp
            0x9100_0000 if code & 0x3ff == 0x3fd => Instruction::SetFramePointer(immediate),
            // add sp, ..., immediate
            0x9100_0000 | 0x9140_0000 if code & 31 == 31 => Instruction::End,
            // stp to [sp, immediate]! of 64-bit registers, and of vector registers of 64 and 128 bits
            0xa980_0000 if is_on_stack => lower(-pair * 8, [register(0), register(10)]),
            0x6d80_0000 if is_on_stack => lower(-pair * 8, [NONE; 2]),
            0xad80_0000 if is_on_stack => lower(-pair * 16, [NONE; 2]),
            // stp and str to [sp, immediate]
            0xa900_0000 if is_on_stack => {
                Instruction::Save { lowers: 0, registers: [register(0), register(10)], at: pair * 8 }
            }
            0xf900_0000 if is_on_stack => {
                Instruction::Save { lowers: 0, registers: [register(0), NONE], at: immediate * 8 }
            }
            // str to [sp, immediate]!
            0xf800_0000 if is_on_stack && code >> 10 & 3 == 3 && code >> 21 & 1 == 0 => {
                lower(-single, [register(0), NONE])
            }
            0xfc00_0000 if is_on_stack && code >> 10 & 3 == 3 && code >> 21 & 1 == 0 => {
                lower(-single, [NONE; 2])
            }
            // ldp and ldr from [sp], immediate
            0xa8c0_0000 | 0x6cc0_0000 | 0xacc0_0000 | 0xf840_0000 if is_on_stack => Instruction::End,
            _ if is_jump(code) => Instruction::End,
            _ => Instruction::Other,
        }
    }
}

/// Whether execution may continue elsewhere than at the following instruction.
fn is_jump(code: u32) -> bool {
    // b and bl; conditional ones; cbz, cbnz, tbz and tbnz; br, blr and ret
    code >> 26 & 0x1f == 0b00101
        || code >> 24 == 0x54
        || code >> 25 & 0x3e == 0b011010
        || code >> 25 == 0b1101011
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(codes: &[u32]) -> Vec<u8> {
        codes.iter().flat_map(|code| code.to_le_bytes()).collect()
    }

    fn saved_at(prologue: &Prologue, register: Register) -> i16 {
        prologue.saved[RESTORED.iter().position(|restored| *restored == register).unwrap()]
    }

    #[test]
    fn a_frame_is_known_by_a_functions_first_instructions() {
        // The start of a kernel of OpenBLAS: sub sp,sp,#0xb0; stp d8,d9,[sp]; stp d10,d11,[sp,#16]; stp x18,x19,[sp,#64];
        // stp x20,x21,[sp,#80]; str x28,[sp,#144]; fmov x14,d0; b.eq
        let code = bytes(&[
            0xd102c3ff, 0x6d0027e8, 0x6d012fea, 0xa9044ff2, 0xa90557f4, 0xf9004bfc, 0x9e66000e, 0x54000040,
            0xd102c3ff,
        ]);
        let whole = Prologue::of(&code, 1000);
        assert_eq!((whole.register, whole.offset, whole.has_frame), (machine::SP, 0xb0, true));
        assert_eq!(
            [19, 20, 21, 28, 22].map(|register| saved_at(&whole, register)),
            [-13, -12, -11, -4, UNSAVED]
        );
        assert_eq!(whole.return_place(), None, "the return address stays in its register");
        let first = Prologue::of(&code, 0);
        assert_eq!((first.offset, first.has_frame), (0, false));
        let begun = Prologue::of(&code, 4);
        assert_eq!((begun.offset, saved_at(&begun, 20)), (0xb0, UNSAVED));
    }

    #[test]
    fn frame_pointers_and_signed_return_addresses_are_known() {
        // paciasp; stp x29,x30,[sp,#-48]!; mov x29,sp; stp x19,x20,[sp,#16]; sub sp,sp,#1,lsl 12; bl
        let code = bytes(&[0xd503233f, 0xa9bd7bfd, 0x910003fd, 0xa90153f3, 0xd14007ff, 0x94000001]);
        let whole = Prologue::of(&code, 1000);
        assert_eq!((whole.register, whole.offset), (machine::FRAME, 48));
        assert_eq!([29, 30, 19, 20].map(|register| saved_at(&whole, register)), [-6, -5, -4, -3]);
        assert_eq!(whole.return_place(), Some(-5));
        // str x30,[sp,#-16]!; ldr x30,[sp],#16
        let end = bytes(&[0xf81f0ffe, 0xf84107fe, 0xd10043ff]);
        assert_eq!(
            (Prologue::of(&end, 1000).offset, Prologue::of(&end, 1000).return_place()),
            (16, Some(-2))
        );
    }

    #[test]
    fn a_return_address_follows_a_call() {
        let before = |code: u32| {
            let mut bytes = [0; 8];
            bytes[4..].copy_from_slice(&code.to_le_bytes());
            Call::before(0x1004, &bytes)
        };
        // bl forwards and backwards; blr x8; blraa x8, x9; ret; b
        assert_eq!(before(0x94000004), Call::Of(0x1010));
        assert_eq!(before(0x97fffffc), Call::Of(0xff0));
        assert_eq!([0xd63f0100, 0xd73f0909].map(before), [Call::OfValue; 2]);
        assert_eq!([0xd65f03c0, 0x14000004, 0].map(before), [Call::None; 3]);
    }
}
