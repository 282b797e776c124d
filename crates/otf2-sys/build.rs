//! Finds the OTF2 library.
//!
//! An OTF2 that was built from source or came with Score-P has the program `otf2-config`; Debian's package has only pkg-config's
//! `otf2.pc`. Both are tried, in that order, so that an installation in PATH takes precedence over the system's.

use std::env;
use std::process::Command;

const NOT_FOUND: &str = "the OTF2 library was not found: neither `otf2-config` nor `pkg-config otf2` works; install \
                         it (Debian, Ubuntu: libopen-trace-format2-dev pkg-config; Fedora: otf2-devel), or put the \
                         bin directory of an OTF2 of your own into PATH";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    for variable in ["PATH", "PKG_CONFIG_PATH"] {
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
            // A binary that needs an rpath finds this as DEP_OTF2_LIBDIR in its build script.
            println!("cargo::metadata=libdir={directory}");
        } else if let Some(library) = flag.strip_prefix("-l") {
            println!("cargo::rustc-link-lib={library}");
        }
    }
    println!("cargo::rustc-env=OTF2_VERSION={}", flags.version);
    match flags.version.split('.').next().and_then(|major| major.parse::<u32>().ok()) {
        Some(major) if major < 3 => {
            Err(format!("OTF2 {} was found, but 3.0 or newer is needed", flags.version))
        }
        _ => Ok(()),
    }
}

struct Flags {
    link: Vec<String>,
    version: String,
}

impl Flags {
    /// `otf2-config` prints the answer to one flag per call; if given several, it uses only the last.
    fn of_otf2_config() -> Option<Flags> {
        let mut link = ask("otf2-config", &["--ldflags"])?;
        link.extend(ask("otf2-config", &["--libs"])?);
        // "otf2-config: version 3.0.3"
        let version = ask("otf2-config", &["--version"])?.pop()?;
        Some(Flags { link, version })
    }

    fn of_pkg_config() -> Option<Flags> {
        let program = env::var("PKG_CONFIG").unwrap_or_else(|_| "pkg-config".into());
        let link = ask(&program, &["--libs", "otf2"])?;
        let version = ask(&program, &["--modversion", "otf2"])?.pop()?;
        Some(Flags { link, version })
    }
}

/// Returns the words that a program prints; `None` if it is absent or fails.
fn ask(program: &str, arguments: &[&str]) -> Option<Vec<String>> {
    let output = Command::new(program).args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.split_whitespace().map(str::to_owned).collect())
}
