//! Checks that the callers of functions without unwind tables are found, such as functions written in assembly. The functions
//! here are for x86-64; a unit test in `src/fuzzing.rs` has those for AArch64.
#![cfg(target_arch = "x86_64")]

mod sampled;

use std::path::Path;
use std::process::Command;

use ampere_stacks::Options;
use sampled::run_with;

/// Kernels like those of linear algebra: a loop that runs `rdi` times.
const KERNELS: &str = r#"
    .text
    .macro kernel name, before, after
    .globl \name
    .type \name, @function
    \name:
    \before
    1: mov $100000, %ecx
    2: add %rdi, %rax
    dec %ecx
    jnz 2b
    dec %rdi
    jnz 1b
    \after
    ret
    .size \name, . - \name
    .endm
    .macro saves
    push %rbx
    push %rbp
    sub $0x228, %rsp
    mov %r12, (%rsp)
    xor %ebp, %ebp
    .endm
    .macro restores
    mov (%rsp), %r12
    add $0x228, %rsp
    pop %rbp
    pop %rbx
    .endm
    .macro lowers bytes
    sub $0x60, %rsp
    mov %rbx, (%rsp)
    mov %rbp, 0x8(%rsp)
    mov %rsp, %rbx
    sub $\bytes, %rsp
    and $-4096, %rsp
    mov %rdi, %rbp
    .endm
    .macro raises
    mov %rbx, %rsp
    mov (%rsp), %rbx
    mov 0x8(%rsp), %rbp
    add $0x60, %rsp
    .endm
    .macro small
    lowers 4096
    .endm
    .macro large
    lowers 40000
    .endm
    .macro odd
    lea -0x40(%rsp), %rax
    mov %rax, %r11
    xchg %r11, %rsp
    .endm
    .macro even
    add $0x40, %rsp
    .endm
    .macro nothing
    .endm
    kernel leaf, nothing, nothing
    kernel with_saved, saves, restores
    kernel with_buffer, small, raises
    kernel with_large_buffer, large, raises
    kernel with_odd_frame, odd, even
    .section .note.GNU-stack,"",@progbits
"#;

const CALLER: &str = r#"
    void leaf(long), with_saved(long), with_buffer(long), with_large_buffer(long), with_odd_frame(long);
    void (*volatile by_value[])(long) = {leaf, with_saved, with_buffer, with_large_buffer, with_odd_frame};
    volatile long sum;
    __attribute__((noipa)) void calls(int which) {
        for (int i = 0; i < 100; i++) { by_value[which](60); sum += i; }
    }
    __attribute__((noipa)) void calls_leaf(int which) { for (int i = 0; i < 100; i++) { leaf(60); sum += i; } }
    __attribute__((noipa)) void outer(void (*call)(int), int which) { call(which); sum++; }
    int main(int argc, char **argv) {
        int which = argv[1][0] - '0';
        outer(which == 9 ? calls_leaf : calls, which);
        return 0;
    }
"#;

fn compile(directory: &Path, options: &[&str]) -> String {
    let paths = ["kernels.s", "caller.c", "program"].map(|name| directory.join(name));
    std::fs::write(&paths[0], KERNELS).unwrap();
    std::fs::write(&paths[1], CALLER).unwrap();
    let mut compile = Command::new("cc");
    compile.args(["-O2", "-w"]).args(options).arg("-o").arg(&paths[2]).args([&paths[0], &paths[1]]);
    assert!(compile.status().unwrap().success());
    paths[2].to_str().unwrap().to_owned()
}

#[test]
fn callers_of_functions_without_unwind_tables_are_found_and_counted_as_guessed() {
    let directory = tempfile::tempdir().unwrap();
    for options in [&["-fomit-frame-pointer"][..], &["-fno-omit-frame-pointer"]] {
        let program = compile(directory.path(), options);
        for (which, name) in
            ["leaf", "with_saved", "with_buffer", "with_large_buffer", "with_odd_frame"].iter().enumerate()
        {
            let Some(run) = run_with(&[&program, &which.to_string()], &Options::default()) else { return };
            let expected = format!("main;outer;calls;{name}");
            assert!(run.percent(&expected) > 90.0, "{options:?}: {:?}, {:?}", run.stacks, run.figures);
            let (file, guessed) = &run.figures.guessed[0];
            assert!(
                &**file == program.as_str() && *guessed * 10 > run.figures.samples * 8,
                "{:?}",
                run.figures
            );
        }
        // A caller with a direct call of this function is not a guess.
        let Some(run) = run_with(&[&program, "9"], &Options::default()) else { return };
        assert!(run.percent("main;outer;calls_leaf;leaf") > 90.0, "{:?}", run.stacks);
        assert_eq!(run.figures.guessed.len(), 0, "{:?}", run.figures);
    }
}

/// OpenBLAS lowers the stack pointer by more than is copied.
#[test]
fn callers_of_openblas_are_found() {
    const MULTIPLY: &str = r#"
        #include <stdlib.h>
        void cblas_dgemm(int, int, int, int, int, int, double, double *, int, double *, int, double, double *, int);
        __attribute__((noipa)) void multiply(int n, double *a, double *b, double *c) {
            cblas_dgemm(101, 111, 111, n, n, n, 1, a, n, b, n, 0, c, n);
            __asm__("");
        }
        int main(void) {
            int n = 700;
            double *a = calloc(n * n, 8), *b = calloc(n * n, 8), *c = calloc(n * n, 8);
            for (int i = 0; i < n * n; i++) a[i] = b[i] = i % 7;
            for (int round = 0; round < 20; round++) multiply(n, a, b, c);
            return c[5] > 1e300;
        }
    "#;
    let directory = tempfile::tempdir().unwrap();
    let [source, program] = ["multiply.c", "multiply"].map(|name| directory.path().join(name));
    std::fs::write(&source, MULTIPLY).unwrap();
    let compiled =
        Command::new("cc").args(["-O2", "-w", "-o"]).arg(&program).arg(&source).arg("-lopenblas").output();
    if !compiled.unwrap().status.success() {
        println!("skipped: no OpenBLAS");
        return;
    }
    for kernels in ["Haswell", "Nehalem"] {
        let core = format!("OPENBLAS_CORETYPE={kernels}");
        let command = ["env", "OPENBLAS_NUM_THREADS=1", &core, program.to_str().unwrap()];
        let Some(run) = run_with(&command, &Options::default()) else { return };
        let of_kernel = run.percent("dgemm_kernel");
        let whole = run.percent("main;multiply;cblas_dgemm;");
        assert!(of_kernel > 60.0 && whole > 90.0, "{kernels}: {of_kernel} %, {whole} % of {:?}", run.stacks);
    }
}
