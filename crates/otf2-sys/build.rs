//! Finds the OTF2 library and generates its bindings.
//!
//! An OTF2 built from source, or one that comes with Score-P, brings the program `otf2-config`; Debian's package brings
//! only pkg-config's `otf2.pc`. Both are asked, in that order, so that an own install in PATH wins over the system's.

use std::env;
use std::path::PathBuf;
use std::process::Command;

const NOT_FOUND: &str = "the OTF2 library was not found: neither `otf2-config` nor `pkg-config otf2` answers; install \
                         it (Debian, Ubuntu: libopen-trace-format2-dev pkg-config; Fedora: otf2-devel), or put the \
                         bin directory of an OTF2 of your own into PATH";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=wrapper.h");
    for variable in ["PATH", "PKG_CONFIG_PATH", "LIBCLANG_PATH"] {
        println!("cargo::rerun-if-env-changed={variable}");
    }
    if let Err(message) = run() {
        println!("cargo::error={message}");
    }
}

fn run() -> Result<(), String> {
    let flags = Flags::of_otf2_config().or_else(Flags::of_pkg_config).ok_or(NOT_FOUND)?;
    for flag in &flags.link {
        if let Some(directory) = flag.strip_prefix("-L") {
            println!("cargo::rustc-link-search=native={directory}");
            // For a binary that wants an rpath: DEP_OTF2_LIBDIR in the build script of a crate that depends on this one.
            println!("cargo::metadata=libdir={directory}");
        } else if let Some(library) = flag.strip_prefix("-l") {
            println!("cargo::rustc-link-lib={library}");
        }
    }
    let bindings = bindgen::Builder::default()
        .header("wrapper.h")
        .clang_args(&flags.compile)
        .allowlist_item("OTF2_.*")
        .allowlist_function("vsnprintf|free")
        // Snapshots, thumbnails and markers are of no use here, and a third of the library.
        .blocklist_function("OTF2_.*(Snap|Thumb|Marker).*")
        .prepend_enum_name(false)
        .generate_comments(false)
        .generate_cstr(true)
        .layout_tests(true)
        .generate()
        .map_err(|error| one_line(&format!("bindgen cannot read the OTF2 headers: {error}")))?;
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("OUT_DIR is not set: run by cargo only")?);
    bindings
        .write_to_file(out.join("otf2.rs"))
        .map_err(|error| format!("cannot write the OTF2 bindings: {error}"))
}

struct Flags {
    compile: Vec<String>,
    link: Vec<String>,
}

impl Flags {
    /// `otf2-config` answers one flag a call; of several it takes only the last.
    fn of_otf2_config() -> Option<Flags> {
        let compile = ask("otf2-config", &["--cflags"])?;
        let mut link = ask("otf2-config", &["--ldflags"])?;
        link.extend(ask("otf2-config", &["--libs"])?);
        Some(Flags { compile, link })
    }

    fn of_pkg_config() -> Option<Flags> {
        let program = env::var("PKG_CONFIG").unwrap_or_else(|_| "pkg-config".into());
        let compile = ask(&program, &["--cflags", "otf2"])?;
        let link = ask(&program, &["--libs", "otf2"])?;
        Some(Flags { compile, link })
    }
}

/// The words that a program prints, or nothing if it is absent or fails.
fn ask(program: &str, arguments: &[&str]) -> Option<Vec<String>> {
    let output = Command::new(program).args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.split_whitespace().map(str::to_owned).collect())
}

/// Cargo takes one line for one message.
fn one_line(message: &str) -> String {
    message.split_whitespace().collect::<Vec<_>>().join(" ")
}
