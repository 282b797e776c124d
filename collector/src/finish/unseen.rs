//! Finds programs whose MPI calls cannot be recorded: they have a static MPI library, or the loader starts them in secure mode
//! and preloads nothing. The programs' files show this.

use ampere_model::text::listed;
use ampere_stacks::foreign;
use object::read::elf::ElfFile64;
use object::{Endianness, Object as _, ObjectSymbol as _, ReadCache};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The note if Score-P was to record the run and no process was built with it.
pub const NO_SCORE_P: &str = "--recorder scorep: no process was built with Score-P, so neither ranks nor calls were recorded, only samples";

/// A note names at most this number of programs.
const NAMES_MAX: usize = 4;

/// Returns notes about programs whose MPI calls cannot be recorded. `ran`: the paths of the programs that ran, and whether each
/// was sampled. The programs that `command` names are checked, too, because the kernel does not let users sample a setuid
/// program.
pub(super) fn notes<'a>(ran: impl Iterator<Item = (&'a str, bool)>, command: &[String]) -> Vec<String> {
    let ran: BTreeSet<(PathBuf, bool)> = ran.map(|(path, sampled)| (PathBuf::from(path), sampled)).collect();
    let command = command.to_owned();
    foreign::in_time(move || notes_of_files(ran, &command)).unwrap_or_default()
}

fn notes_of_files(ran: BTreeSet<(PathBuf, bool)>, command: &[String]) -> Vec<String> {
    let (user, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let sampled: BTreeSet<PathBuf> =
        ran.into_iter().filter(|(_, is_sampled)| *is_sampled).map(|(path, _)| path).collect();
    let static_mpi: BTreeSet<String> =
        sampled.iter().filter(|path| has_own_mpi(path)).map(|path| name(path)).collect();
    let words = command.iter().enumerate().filter_map(|(at, word)| file_of(word, at == 0));
    let privileged: BTreeSet<String> = sampled
        .into_iter()
        .chain(words)
        .filter_map(|path| Some(format!("{} {}", name(&path), privilege(&path, user, group)?)))
        .collect();
    [
        note(
            static_mpi,
            "MPI is linked statically, so MPI calls are not recorded, and only samples show them",
        ),
        note(
            privileged,
            "the loader preloads nothing into such a program, and its MPI calls and marked ranges are not recorded",
        ),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn note(programs: BTreeSet<String>, why: &str) -> Option<String> {
    (!programs.is_empty()).then(|| format!("{}: {why}", listed(programs.iter(), NAMES_MAX)))
}

fn name(path: &Path) -> String {
    ampere_model::text::printable(&path.file_name().unwrap_or_default().to_string_lossy())
}

/// Returns the file that a word of a command names. The first word may be a name that is looked up in PATH.
fn file_of(word: &str, is_first: bool) -> Option<PathBuf> {
    if word.contains('/') {
        return Some(PathBuf::from(word)).filter(|path| path.is_file());
    }
    let path = std::env::var_os("PATH").filter(|_| is_first)?;
    std::env::split_paths(&path).map(|folder| folder.join(word)).find(|path| path.is_file())
}

/// Returns the reason if a program gets more rights than this user and group.
fn privilege(program: &Path, user: u32, group: u32) -> Option<&'static str> {
    let about = std::fs::metadata(program).ok().filter(std::fs::Metadata::is_file)?;
    let mode = about.permissions().mode();
    if mode & 0o111 == 0 || is_script(program) {
        return None;
    }
    if mode & 0o4000 != 0 && about.uid() != user {
        return Some("is setuid");
    }
    if mode & 0o2010 == 0o2010 && about.gid() != group {
        return Some("is setgid");
    }
    let mut capabilities = [0u8; 64];
    let has_capabilities =
        user != 0 && rustix::fs::getxattr(program, c"security.capability", &mut capabilities).is_ok();
    has_capabilities.then_some("has file capabilities")
}

fn is_script(program: &Path) -> bool {
    let mut begin = [0u8; 2];
    File::open(program).is_ok_and(|mut file| file.read_exact(&mut begin).is_ok()) && begin == *b"#!"
}

/// Whether the program itself defines PMPI_Init. A stripped program does not show it.
fn has_own_mpi(program: &Path) -> bool {
    has_symbol(program, |name, is_defined| is_defined && name == "PMPI_Init")
}

fn has_symbol(program: &Path, is_it: impl Fn(&str, bool) -> bool) -> bool {
    let Ok(file) = File::open(program) else { return false };
    let cache = ReadCache::new(file);
    let Ok(file) = ElfFile64::<Endianness, _>::parse(&cache) else { return false };
    let mut symbols = file.symbols().chain(file.dynamic_symbols());
    symbols.any(|symbol| symbol.name().is_ok_and(|name| is_it(name, symbol.is_definition())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_program_with_an_mpi_of_its_own_is_named() {
        let place = tempfile::tempdir().expect("a directory");
        let path = |name: &str| place.path().join(name).to_string_lossy().into_owned();
        for (name, text) in
            [("own", "int PMPI_Init(void) { return 0; }"), ("other", "int PMPI_Init(void); void *p;")]
        {
            let source = format!("{text}\nint main(void) {{ return 0; }}");
            std::fs::write(path("source.c"), source).expect("a file");
            let built = Command::new("cc").args(["-o", &path(name), &path("source.c")]).status();
            assert!(built.expect("a C compiler").success());
        }
        let of = |names: [&str; 3]| notes(names.map(path).iter().map(|path| (path.as_str(), true)), &[]);
        assert_eq!(of(["other", "source.c", "absent"]), Vec::<String>::new());
        let found = of(["own", "other", "absent"]);
        assert!(found.len() == 1 && found[0].starts_with("own: MPI is linked statically"), "{found:?}");
    }

    #[test]
    fn a_program_with_file_capabilities_is_named_to_users_without_them() {
        let folder = tempfile::tempdir().expect("a directory");
        let program = folder.path().join("program");
        std::fs::write(&program, "").expect("a file");
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).expect("its mode");
        // CAP_NET_RAW, effective: VFS_CAP_REVISION_2 and the permitted and inheritable sets.
        let mut capability = [0u8; 20];
        capability[..8].copy_from_slice(&[1, 0, 0, 2, 0, 0x20, 0, 0]);
        let flags = rustix::fs::XattrFlags::empty();
        if rustix::fs::setxattr(&program, c"security.capability", &capability, flags).is_err() {
            println!("skipped: needs root");
            return;
        }
        assert_eq!(privilege(&program, 1000, 1000), Some("has file capabilities"));
        assert_eq!(privilege(&program, 0, 0), None, "root has all rights anyway");
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o644)).expect("its mode");
        assert_eq!(privilege(&program, 1000, 1000), None, "not executable");
    }

    #[test]
    fn a_program_with_other_rights_is_named() {
        let folder = tempfile::tempdir().expect("a directory");
        let program = folder.path().join("program");
        std::fs::write(&program, "").expect("a file");
        let with = |mode| {
            std::fs::set_permissions(&program, std::fs::Permissions::from_mode(mode)).expect("its mode");
            let about = std::fs::metadata(&program).expect("its owner");
            [0, 1].map(|other| privilege(&program, about.uid() + other, about.gid() + other))
        };
        assert_eq!(with(0o4755), [None, Some("is setuid")]);
        assert_eq!(with(0o2755), [None, Some("is setgid")]);
        assert_eq!(with(0o755), [None, None]);
        assert_eq!(with(0o6755), [None, Some("is setuid")]);
        assert_eq!(with(0o4644), [None, None], "not executable");
        // If the group may not execute the file, this bit means mandatory locking.
        assert_eq!(with(0o2745), [None, None]);
        // The kernel ignores these bits of a script.
        std::fs::write(&program, "#!/bin/sh\n").expect("a file");
        assert_eq!(with(0o6755), [None, None]);
    }
}
