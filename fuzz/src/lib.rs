//! Fuzz targets. Each one passes arbitrary bytes to one reader and asserts properties that hold for all inputs. A panic, a hang,
//! or unlimited use of memory is a defect of the reader.
//!
//! ```text
//! src/targets/    one file for each target
//! src/bytes.rs    bytes as numbers, for inputs with a structure
//! src/scratch.rs  a directory for inputs that are files
//! src/nesting.rs  checks for every stream of events
//! src/one.rs      runs single inputs, or random ones for the OTF2 library, which is built without coverage
//! src/guided.rs   libFuzzer's main: `scripts/fuzz` builds it, guided by coverage, with AddressSanitizer
//! src/mutate.rs   a simple mutator without guidance, for `tests/short.rs` and `src/one.rs`
//! seeds/          the first inputs, from real runs; make_seeds.rs takes them from a session and a trace
//! regressions/    inputs that once showed a defect
//! ```

pub mod bytes;
pub mod mutate;
pub mod nesting;
pub mod scratch;
pub mod targets;

pub struct Target {
    pub name: &'static str,
    pub run: fn(&[u8]),
    /// The largest useful size of an input: longer ones find nothing that shorter ones do not.
    pub bytes_max: usize,
    /// Whether the reader is, in part, the OTF2 library, which we cannot fix.
    pub foreign: bool,
}

const fn target(name: &'static str, bytes_max: usize, run: fn(&[u8])) -> Target {
    Target { name, run, bytes_max, foreign: false }
}

/// All targets, in the order in which they are run.
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
    Target { name: "otf2", run: targets::otf2::run, bytes_max: 512, foreign: true },
];

pub fn find(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}

/// Returns the target's seeds, and the inputs that once showed a defect.
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
