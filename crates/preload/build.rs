//! Compiles the preloaded library with the C compiler, and puts it next to cargo's libraries, in `target/release/ampere-preload`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

const SOURCES: [&str; 8] =
    ["start.c", "host.c", "calls.c", "programs.c", "patch.c", "limits.c", "objects.c", "rocm.c"];
const FILE: &str = "libampere_preload.so";
/// Values of the loader's `$PLATFORM` in 64-bit programs, by processor. The dot serves scripts whose shell has already
/// replaced `$PLATFORM` with an empty string.
const X86_64: [&str; 4] = ["x86_64", "haswell", "xeon_phi", "."];
const AARCH64: [&str; 2] = ["aarch64", "."];
/// Values of the loader's `$PLATFORM` in 32-bit programs on x86. AArch64's server processors run no 32-bit programs.
const PLATFORMS_32: [&str; 4] = ["i386", "i486", "i586", "i686"];

/// With these options, the library does not use the C library or anything that needs one, and has few pages.
const OPTIONS: &[&str] = &[
    "-std=gnu11",
    "-O2",
    "-shared",
    "-fPIC",
    "-ffreestanding",
    "-nostdlib",
    "-fno-stack-protector",
    "-fno-tree-loop-distribute-patterns",
    "-fvisibility=hidden",
    "-Wall",
    "-Wextra",
    "-Wno-parentheses",
    "-Wl,--no-undefined",
    "-Wl,--hash-style=both",
    "-Wl,--build-id=none",
    "-Wl,-z,now",
    "-Wl,-z,noexecstack",
    "-Wl,-z,noseparate-code",
    "-Wl,-s",
];
/// Options for one processor: landing pads for indirect jumps, and the size of its largest page.
const OPTIONS_X86_64: &[&str] = &["-fcf-protection=full", "-Wl,-z,max-page-size=4096"];
const OPTIONS_AARCH64: &[&str] = &["-mbranch-protection=standard", "-Wl,-z,max-page-size=65536"];

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    // OUT_DIR is target/release/build/<crate>/out.
    let built = out.ancestors().nth(3).expect("cargo's layout").join("ampere-preload");
    println!("cargo:rerun-if-changed=src");
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=CC");
    println!("cargo:rerun-if-env-changed={}", compiler_of_target());
    println!("cargo:rustc-env=PRELOAD_BUILT_IN={}", built.display());
    let architecture = env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_default();
    let (options, platforms): (_, &[&str]) = match architecture.as_str() {
        "x86_64" => (OPTIONS_X86_64, &X86_64),
        "aarch64" => (OPTIONS_AARCH64, &AARCH64),
        _ => return,
    };
    let made = out.join(FILE);
    let sources = SOURCES.iter().map(|source| Path::new("src").join(source));
    compile(&[OPTIONS, options].concat(), sources, &made);
    platforms.iter().for_each(|platform| install(&made, &built.join(platform)));
    if architecture != "x86_64" {
        return;
    }
    // An empty library, so that the loader of a 32-bit program finds one of its own class.
    let twin = out.join("twin.so");
    compile(
        &["-m32", "-shared", "-nostdlib", "-Wl,--hash-style=both", "-Wl,-s"],
        [PathBuf::from("src/twin.s")],
        &twin,
    );
    PLATFORMS_32.iter().for_each(|platform| install(&twin, &built.join(platform)));
}

/// The variable that names the C compiler for the target, as crates that compile C with `cc` read it.
fn compiler_of_target() -> String {
    format!("CC_{}", env::var("TARGET").expect("cargo sets it").replace('-', "_"))
}

fn compile(options: &[&str], sources: impl IntoIterator<Item = PathBuf>, to: &Path) {
    let compiler =
        env::var_os(compiler_of_target()).or_else(|| env::var_os("CC")).unwrap_or_else(|| "cc".into());
    let mut command = Command::new(&compiler);
    command.args(options).args(sources).arg("-o").arg(to);
    let status =
        command.status().unwrap_or_else(|error| panic!("{command:?}: {error}: a C compiler is needed"));
    assert!(status.success(), "{command:?}: {status}");
}

/// Replaces the file instead of overwriting it: running programs may have the old one mapped.
fn install(made: &Path, directory: &Path) {
    let (to, new) = (directory.join(FILE), directory.join("new.so"));
    let copied =
        fs::create_dir_all(directory).and_then(|()| fs::copy(made, &new)).and_then(|_| fs::rename(&new, &to));
    copied.unwrap_or_else(|error| panic!("{}: {error}", to.display()));
    println!("cargo:rerun-if-changed={}", to.display());
}
