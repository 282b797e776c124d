//! Only this crate makes, replaces, moves and removes files of runs. Other code of the workspace that acts on paths is listed
//! here, with the reason.

use std::path::{Path, PathBuf};

const ROOTS: [&str; 10] = [
    "collector/src",
    "server/src",
    "cli/src",
    "plugin/src",
    "crates/endpoint/src",
    "crates/figures/src",
    "crates/otf2/src",
    "crates/report/src",
    "crates/ring/src",
    "crates/trace/src",
];

/// The functions that act on a path.
const ACTS: [&str; 23] = [
    "fs::write(",
    "fs::remove_file(",
    "fs::remove_dir(",
    "fs::remove_dir_all(",
    "fs::rename(",
    "fs::create_dir(",
    "fs::create_dir_all(",
    "fs::copy(",
    "fs::hard_link(",
    "fs::set_permissions(",
    "fs::symlink(",
    "fs::mkdir(",
    "fs::unlink(",
    "fs::open(",
    "fs::utimensat(",
    "File::create(",
    "File::create_new(",
    "OpenOptions::new(",
    "DirBuilder",
    "files::create_",
    "files::write_private",
    "files::replace",
    "files::append_private",
];

const IN_SESSION: &str = "a session's directory is private, and in a root where nobody else can rename it";
const NAMED: &str = "a file or a directory that the user names on the command line or in a setting";
/// The files and folders whose code may act on paths, with the reasons.
const MAY: [(&str, &str); 22] = [
    ("crates/ring/src/", IN_SESSION),
    ("server/src/main.rs", IN_SESSION),
    ("server/src/main/launch.rs", IN_SESSION),
    ("collector/src/sampling/counters_only.rs", IN_SESSION),
    ("collector/src/sampling/sampler_thread.rs", IN_SESSION),
    ("cli/src/collector/keeper.rs", IN_SESSION),
    ("cli/src/doctor/memory.rs", IN_SESSION),
    ("crates/trace/src/spool/mod.rs", IN_SESSION),
    ("crates/trace/src/replay/mod.rs", IN_SESSION),
    (
        "crates/otf2/src/writer.rs",
        "OTF2 writes by path, into a directory that the caller has made for this user alone",
    ),
    (
        "crates/endpoint/src/token.rs",
        "the token's path is the user's setting; the file must be a plain file of this user",
    ),
    ("crates/endpoint/src/listen.rs", NAMED),
    ("server/src/targets.rs", NAMED),
    (
        "cli/src/doctor/output.rs",
        "an empty directory is made at an unused path, and removed while it is still empty",
    ),
    ("cli/src/terminal/interrupt.rs", NAMED),
    (
        "cli/src/run/work_from.rs",
        "a terminal that this process has just made, by the kernel's name for its other end",
    ),
    ("cli/src/calls.rs", NAMED),
    ("cli/src/attribute_ranks.rs", NAMED),
    ("cli/src/shipped.rs", NAMED),
    ("cli/src/write_file.rs", NAMED),
    ("crates/trace/src/calls/mod.rs", NAMED),
    ("crates/trace/src/rpd/", NAMED),
];

fn sources(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).unwrap_or_else(|why| panic!("{}: {why}", directory.display()));
    let below = |path: PathBuf| match path.is_dir() {
        true => sources(&path),
        false => vec![path],
    };
    let is_source = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        name.ends_with(".rs") && !name.ends_with("tests.rs")
    };
    entries.flatten().flat_map(|entry| below(entry.path())).filter(is_source).collect()
}

/// Returns the code of a file without its tests, which are at the end.
fn code(path: &Path) -> String {
    let text = std::fs::read_to_string(path).expect("readable");
    let end = text.find("#[cfg(test)]\nmod tests {").unwrap_or(text.len());
    text[..end].to_owned()
}

#[test]
fn nothing_else_acts_on_files_by_path_without_a_reason() {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let (mut found, mut needed) = (Vec::new(), vec![false; MAY.len()]);
    for path in ROOTS.iter().flat_map(|root| sources(&top.join(root))) {
        let name = path.strip_prefix(&top).expect("below it").display().to_string();
        for (number, line) in code(&path).lines().enumerate() {
            let is_act = ACTS.iter().any(|act| line.contains(act)) && !line.trim_start().starts_with("//");
            if !is_act || line.contains("ampere_owned::") {
                continue;
            }
            match MAY.iter().position(|(may, _)| name.starts_with(may)) {
                Some(at) => needed[at] = true,
                None => found.push(format!("{name}:{}: {}", number + 1, line.trim())),
            }
        }
    }
    assert!(found.is_empty(), "use ampere_owned, or give a reason in {}:\n{}", file!(), found.join("\n"));
    let unneeded: Vec<_> =
        MAY.iter().zip(needed).filter(|(_, needed)| !needed).map(|(may, _)| may.0).collect();
    assert!(unneeded.is_empty(), "these act on no path any more: {unneeded:?}");
}
