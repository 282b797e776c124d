//! Targets: each gives any bytes to one reader and asserts what holds for all of them. A panic, a hang, or memory without
//! end is a defect of the reader.
//!
//! ```text
//! src/targets/    one file each
//! src/bytes.rs    bytes as numbers, for inputs with a structure
//! src/scratch.rs  a directory for inputs that are files
//! src/nesting.rs  what every stream of events has to be
//! src/one.rs      a single input, or unguided ones: for OTF2, which is not built to be guided
//! src/guided.rs   libFuzzer's main: `scripts/fuzz` builds it, guided by coverage, with AddressSanitizer
//! src/mutate.rs   a simple mutator for `tests/short.rs`, which needs neither
//! seeds/          inputs to begin with, from real runs; make_seeds.rs takes them out of a session and a trace
//! regressions/    inputs that were once a defect
//! ```

pub mod bytes;
pub mod mutate;
pub mod nesting;
pub mod scratch;
pub mod targets;

/// One reader.
pub struct Target {
    pub name: &'static str,
    pub run: fn(&[u8]),
    /// Longer inputs find nothing that shorter ones do not.
    pub most_bytes: usize,
    /// Whether the reader is, in part, the OTF2 library, which is not ours to mend.
    pub foreign: bool,
}

const fn target(name: &'static str, most_bytes: usize, run: fn(&[u8])) -> Target {
    Target { name, run, most_bytes, foreign: false }
}

/// All of them, in the order in which they are run.
pub const TARGETS: &[Target] = &[
    target("ring", 4096, targets::ring::run),
    target("writer", 4096, targets::writer::run),
    target("log", 8192, targets::log::run),
    target("page", 8192, targets::page::run),
    target("spool", 8192, targets::spool::run),
    target("session", 8192, targets::session::run),
    target("samples", 4096, targets::samples::run),
    target("config", 4096, targets::config::run),
    target("stacks", 16384, targets::stacks::run),
    target("nodes", 4096, targets::nodes::run),
    target("http", 20000, targets::http::run),
    target("names", 2048, targets::names::run),
    target("engine", 4096, targets::engine::run),
    Target { name: "otf2", run: targets::otf2::run, most_bytes: 512, foreign: true },
];

pub fn find(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}

/// Its seeds, and what was once a defect.
pub fn inputs(target: &Target) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for kind in ["seeds", "regressions"] {
        let directory = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(kind).join(target.name);
        let mut paths: Vec<_> =
            std::fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
        paths.sort();
        all.extend(paths.iter().map(|path| std::fs::read(path).expect("a seed")));
    }
    all
}
