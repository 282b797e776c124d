//! Commands into which the loader preloads nothing: those that get other rights than whoever starts them.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// One line about the first word of a command that is such a program.
pub(super) fn note(command: &[String]) -> Option<String> {
    let (user, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let mut programs = command.iter().enumerate().filter_map(|(at, word)| file_of(word, at == 0));
    let (why, program) = programs.find_map(|file| Some((why(&file, user, group)?, file)))?;
    Some(format!(
        "{} {why}: the loader preloads nothing into it, and its MPI calls and marked ranges are not recorded",
        program.display()
    ))
}

/// The file that a word names. The first word may be a name that is looked for.
fn file_of(word: &str, is_first: bool) -> Option<PathBuf> {
    if word.contains('/') {
        return Some(PathBuf::from(word)).filter(|path| path.is_file());
    }
    let path = std::env::var_os("PATH").filter(|_| is_first)?;
    std::env::split_paths(&path).map(|folder| folder.join(word)).find(|path| path.is_file())
}

/// Why a program of this user gets other rights, if it does.
fn why(program: &Path, user: u32, group: u32) -> Option<&'static str> {
    let data = std::fs::metadata(program).ok()?;
    let mode = data.permissions().mode();
    if mode & 0o111 == 0 {
        return None;
    }
    if mode & 0o4000 != 0 && data.uid() != user {
        return Some("is setuid");
    }
    if mode & 0o2010 == 0o2010 && data.gid() != group {
        return Some("is setgid");
    }
    let mut capabilities = [0u8; 64];
    let has_capabilities =
        user != 0 && rustix::fs::getxattr(program, c"security.capability", &mut capabilities).is_ok();
    has_capabilities.then_some("has file capabilities")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_with_other_rights_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("program");
        std::fs::write(&program, "").unwrap();
        let with = |mode| {
            std::fs::set_permissions(&program, std::fs::Permissions::from_mode(mode)).unwrap();
            let data = std::fs::metadata(&program).unwrap();
            [0, 1].map(|other| why(&program, data.uid() + other, data.gid() + other))
        };
        assert_eq!(with(0o4755), [None, Some("is setuid")]);
        assert_eq!(with(0o2755), [None, Some("is setgid")]);
        assert_eq!(with(0o755), [None, None]);
        assert_eq!(with(0o4644), [None, None], "no program");
        let words = |word: &Path| ["mpirun".to_owned(), word.display().to_string()];
        assert_eq!(note(&words(&program)), None);
    }
}
