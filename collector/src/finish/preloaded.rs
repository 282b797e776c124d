//! Reports processes in which nothing is recorded. For each one, the preloaded library leaves an empty file in the session's
//! directory. Its name starts with [`PREFIX`] and a letter for the reason (`crates/preload/src/stub.h`).

use std::path::Path;

const PREFIX: &str = "unrecorded-";

const REASONS: [(char, &str); 5] = [
    (
        'm',
        "not recorded, because limits on memory (ulimit -v, -d, or -l in a program that calls mlockall) leave no room for ampere's \
         measurement library: the calls there are known only from samples",
    ),
    (
        'h',
        "not recorded, because ampere's measurement library cannot be loaded there, as with an older C library: the calls there are \
         known only from samples",
    ),
    ('p', "not recorded in full, because the system does not let ampere put wrappers in front of some calls"),
    (
        'k',
        "recorded without GPU kernels, because the ROCm in use has no librocprofiler-sdk.so; install the package \
         rocprofiler-sdk of the same ROCm",
    ),
    (
        'o',
        "recorded without OpenCL kernels, if there were any, because the OpenCL loader in use opens no layers; use ocl-icd 2.3 \
         or later, or Khronos' loader",
    ),
];

/// Returns a note for each reason.
pub(super) fn notes(session: &Path) -> Vec<String> {
    let files = std::fs::read_dir(session).into_iter().flatten().flatten();
    let reasons: Vec<char> =
        files.filter_map(|file| file.file_name().to_str()?.strip_prefix(PREFIX)?.chars().next()).collect();
    let count = |reason: char| reasons.iter().filter(|one| **one == reason).count();
    let counted = REASONS.iter().map(|(reason, why)| (count(*reason), why)).filter(|(count, _)| *count > 0);
    counted
        .map(|(count, why)| match count {
            1 => format!("1 process was {why}"),
            many => format!("{many} processes were {why}"),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_are_counted_by_reason() {
        let session = tempfile::tempdir().expect("a directory");
        assert_eq!(notes(session.path()), Vec::<String>::new());
        for name in [
            "unrecorded-m12",
            "unrecorded-m7",
            "unrecorded-h7",
            "unrecorded-k1",
            "unrecorded-k2",
            "7.defs",
            "unrecorded-",
        ] {
            std::fs::write(session.path().join(name), "").expect("a file");
        }
        let notes = notes(session.path());
        assert_eq!(notes.len(), 3);
        assert!(notes[0].starts_with("2 processes were not recorded, because limits"), "{notes:?}");
        assert!(notes[1].starts_with("1 process was not recorded, because ampere"), "{notes:?}");
        let without_kernels = "2 processes were recorded without GPU kernels, because the ROCm in use has no";
        assert!(notes[2].starts_with(without_kernels), "{notes:?}");
    }
}
