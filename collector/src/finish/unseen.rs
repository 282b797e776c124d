//! Programs whose MPI calls cannot be recorded, as their files show: those with a static MPI library, and those that the loader
//! starts in secure mode.

use ampere_stacks::foreign;
use object::read::elf::ElfFile64;
use object::{Endianness, Object as _, ObjectSymbol as _, ReadCache};
use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// A note names at most this number of programs.
const NAMES_MAX: usize = 4;

/// Notes about sampled programs, and about the programs that a command names: the kernel does not let other users sample a
/// setuid program.
pub(super) fn notes<'a>(sampled: impl Iterator<Item = &'a str>, command: &[String]) -> Vec<String> {
    let sampled: BTreeSet<PathBuf> = sampled.map(PathBuf::from).collect();
    let command = command.to_owned();
    foreign::in_time(move || notes_of_files(sampled, &command)).unwrap_or_default()
}

fn notes_of_files(sampled: BTreeSet<PathBuf>, command: &[String]) -> Vec<String> {
    let (user, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
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
            "linked with MPI statically: its MPI calls are not recorded, and only samples show them",
        ),
        note(
            privileged,
            "the loader preloads nothing into it, and its MPI calls and marked ranges are not recorded",
        ),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn note(programs: BTreeSet<String>, why: &str) -> Option<String> {
    let others = programs.len().saturating_sub(NAMES_MAX);
    let more = if others > 0 { format!(" and {others} more") } else { String::new() };
    let named: Vec<String> = programs.into_iter().take(NAMES_MAX).collect();
    (!named.is_empty()).then(|| format!("{}{more}: {why}", named.join(", ")))
}

fn name(path: &Path) -> String {
    ampere_model::text::printable(&path.file_name().unwrap_or_default().to_string_lossy())
}

/// The file that a word of a command names. The first word may be a name that is looked up in PATH.
fn file_of(word: &str, is_first: bool) -> Option<PathBuf> {
    if word.contains('/') {
        return Some(PathBuf::from(word)).filter(|path| path.is_file());
    }
    let path = std::env::var_os("PATH").filter(|_| is_first)?;
    std::env::split_paths(&path).map(|folder| folder.join(word)).find(|path| path.is_file())
}

/// Why a program that this user and group start gets other rights than theirs, if it does.
fn privilege(program: &Path, user: u32, group: u32) -> Option<&'static str> {
    let about = std::fs::metadata(program).ok().filter(std::fs::Metadata::is_file)?;
    let mode = about.permissions().mode();
    if mode & 0o111 == 0 {
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

/// Whether the program itself defines PMPI_Init. One that was stripped does not show it.
fn has_own_mpi(program: &Path) -> bool {
    let Ok(file) = File::open(program) else { return false };
    let cache = ReadCache::new(file);
    let Ok(file) = ElfFile64::<Endianness, _>::parse(&cache) else { return false };
    file.symbols().any(|symbol| symbol.is_definition() && symbol.name() == Ok("PMPI_Init"))
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
        let of = |names: [&str; 3]| notes(names.map(path).iter().map(String::as_str), &[]);
        assert_eq!(of(["other", "source.c", "absent"]), Vec::<String>::new());
        let found = of(["own", "other", "absent"]);
        assert!(found.len() == 1 && found[0].starts_with("own: linked with MPI statically"), "{found:?}");
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
        assert_eq!(with(0o4644), [None, None], "not executable");
    }
}
