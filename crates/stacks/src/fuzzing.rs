//! Unwinds a sample that the kernel has recorded with the bytes of a file, for fuzz targets.

use crate::figures::End;
use crate::file::Files;
use crate::functions::{Function, FunctionId, Functions};
use crate::machine;
use crate::processes::Mapping;
use crate::records::Record;
use crate::stack::{Registers, Stack};
use crate::walker::Walker;

/// The address at which the process has mapped the file.
pub const FILE_AT: u64 = 0x40_0000;

/// The sampled stack of a process that has mapped one file from its start.
pub struct Sample<'a> {
    files: Files,
    functions: Functions,
    mappings: [Mapping; 1],
    registers: [u64; machine::RECORDED.len()],
    stack: &'a [u8],
}

impl<'a> Sample<'a> {
    /// Makes a sample; `None` if the record is damaged, or if it is not a sample with registers.
    pub fn of(record: &'a [u8], file: Vec<u8>) -> Option<Sample<'a>> {
        let Record::Sample { registers: Some(registers), stack, .. } = Record::parse(record, false)? else {
            return None;
        };
        let mut files = Files::new();
        let mappings = [Mapping::new(FILE_AT..u64::MAX, 0, files.add_bytes(file))];
        Some(Sample { files, functions: Functions::new(), mappings, registers, stack })
    }

    /// Returns the functions on the stack, innermost first, and whether the stack is complete. `address` replaces the instruction
    /// pointer of the record.
    pub fn walk(&mut self, address: Option<u64>) -> (Vec<&Function>, bool) {
        let mut registers = Registers::new(&self.registers);
        if let Some(address) = address {
            registers.set(machine::PC, crate::stack::Place::Is(address));
        }
        let mut stack = Stack::new(self.registers[machine::SP_RECORDED], self.stack, true);
        let mut frames: Vec<FunctionId> = Vec::new();
        let mut walker = Walker {
            files: &mut self.files,
            functions: &mut self.functions,
            process: 0,
            mappings: &self.mappings,
        };
        let walked = walker.walk(registers, &mut stack, &mut frames);
        (frames.iter().map(|id| self.functions.get(*id)).collect(), walked.end == End::Complete)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn the_debug_information_shows_inlined_functions_at_an_address() {
        let seed = include_bytes!("../../../fuzz/seeds/stacks/inlined");
        let (record, file) = seed[2..].split_at(u16::from_le_bytes([seed[0], seed[1]]).into());
        let mut sample = Sample::of(record, file.to_vec()).expect("a sample");
        let mut names = |address: u64| {
            let (functions, _) = sample.walk(Some(FILE_AT + address));
            functions.iter().map(|function| function.name.clone()).take(3).collect::<Vec<_>>()
        };
        let all: Vec<String> =
            (0..file.len() as u64).step_by(100).map(|address| names(address).join(" < ")).collect();
        for expected in ["innermost < between < around", "between < around"] {
            assert!(all.iter().any(|names| names.starts_with(expected)), "{all:?}");
        }
    }

    /// The seeds of the fuzz target are samples of small programs.
    #[cfg(target_arch = "x86_64")]
    #[test]
    fn a_sample_is_walked_by_tables_or_frame_pointers() {
        for seed in [
            &include_bytes!("../../../fuzz/seeds/stacks/eh-frame")[..],
            include_bytes!("../../../fuzz/seeds/stacks/debug-frame"),
            include_bytes!("../../../fuzz/seeds/stacks/frame-pointers"),
        ] {
            let (record, file) = seed[2..].split_at(u16::from_le_bytes([seed[0], seed[1]]).into());
            let mut sample = Sample::of(record, file.to_vec()).expect("a sample");
            let (functions, is_complete) = sample.walk(None);
            let names: Vec<&str> = functions.iter().map(|function| function.name.as_str()).collect();
            let expected = ["hpl::update(int)", "work::heavy", "mycrate::foo", "main", "begin"];
            assert_eq!((names.as_slice(), is_complete), (&expected[..], true));
        }
    }

    /// A program that writes its registers and its stack, from a function without a table, as the kernel would record them.
    #[cfg(target_arch = "aarch64")]
    const WRITES_ITS_STACK: &str = r#"
        __asm__(
            ".text\n.globl kernel\n.type kernel, %function\n"
            "kernel: sub sp, sp, #96\nstp x19, x20, [sp]\nstp d8, d9, [sp, #16]\n"
            "mov x19, #1\nmov x20, #2\n"
            "adrp x9, registers\nadd x9, x9, :lo12:registers\n"
            "stp x19, x20, [x9]\nstp x21, x22, [x9, #16]\nstp x23, x24, [x9, #32]\nstp x25, x26, [x9, #48]\n"
            "stp x27, x28, [x9, #64]\nstp x29, x30, [x9, #80]\nmov x10, sp\nadr x11, .\nstp x10, x11, [x9, #96]\n"
            "mov x0, #1\nmov x1, x9\nmov x2, #112\nmov x8, #64\nsvc #0\n"
            "mov x0, #1\nmov x1, sp\nmov x2, #600\nmov x8, #64\nsvc #0\n"
            "mov x0, #0\nmov x8, #93\nsvc #0\n.size kernel, . - kernel\n");
        long registers[14], sum;
        void kernel(void);
        __attribute__((noipa)) void calls(long n) { long many[n]; many[0] = n; sum += many[n - 1]; kernel(); sum += many[0]; }
        __attribute__((noipa)) void outer(long n) { calls(n + 1); sum++; }
        __attribute__((noipa)) void _start(void) { outer(20); sum++; for (;;); }
    "#;

    #[cfg(target_arch = "aarch64")]
    #[test]
    fn the_callers_of_a_function_without_a_table_are_found_on_aarch64() {
        let directory = tempfile::tempdir().unwrap();
        let [source, program] = ["program.c", "program"].map(|name| directory.path().join(name));
        std::fs::write(&source, WRITES_ITS_STACK).unwrap();
        for options in [
            &["-fomit-frame-pointer"][..],
            &["-fno-omit-frame-pointer"],
            // Return addresses are signed.
            &["-mbranch-protection=standard"],
            &["-fno-asynchronous-unwind-tables", "-fno-unwind-tables"],
        ] {
            let mut compile = std::process::Command::new("cc");
            compile.args(["-O2", "-w", "-static", "-no-pie", "-nostdlib", "-ffreestanding"]);
            compile.args(options).arg("-o").args([&program, &source]);
            assert!(compile.status().unwrap().success());
            let output = std::process::Command::new(&program).output().unwrap();
            assert!(output.status.success(), "{output:?}");
            let (registers, stack) = output.stdout.as_chunks::<8>().0.split_at(machine::RECORDED.len());
            let registers: Vec<u64> = registers.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect();
            let mut files = Files::new();
            let file = files.add_bytes(std::fs::read(&program).unwrap());
            let mut sample = Sample {
                files,
                functions: Functions::new(),
                mappings: [Mapping::new(FILE_AT..u64::MAX, 0, file)],
                registers: registers.try_into().unwrap(),
                stack: stack.as_flattened(),
            };
            let (functions, _) = sample.walk(None);
            let names: Vec<&str> = functions.iter().map(|function| function.name.as_str()).collect();
            assert_eq!(names, ["kernel", "calls", "outer"], "{options:?}");
        }
    }
}
