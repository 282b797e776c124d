//! Programs whose calls of MPI cannot be recorded, which their files show: they were sampled only.

use object::read::elf::ElfFile64;
use object::{Endianness, Object as _, ObjectSymbol as _, ReadCache};
use std::collections::BTreeSet;
use std::fs::{File, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// A note names so many programs.
const NAMES_MAX: usize = 4;

/// `programs`: paths of sampled ones.
pub(super) fn notes<'a>(programs: impl Iterator<Item = &'a str>) -> Vec<String> {
    let programs: BTreeSet<&Path> = programs.map(Path::new).collect();
    let of = |is_one: fn(&Path) -> bool, why: &str| {
        let names: Vec<String> = programs.iter().filter(|path| is_one(path)).map(|path| name(path)).collect();
        (!names.is_empty()).then(|| {
            let others = names.len().saturating_sub(NAMES_MAX);
            let more = if others > 0 { format!(" and {others} more") } else { String::new() };
            format!("{}{more}: {why}", names[..names.len().min(NAMES_MAX)].join(", "))
        })
    };
    [
        of(has_own_mpi, "linked with MPI statically, so that MPI's calls are not recorded and known by samples alone"),
        of(
            is_privileged,
            "started with privileges of its file (setuid, setgid or capabilities), so that nothing of ampere is loaded: its calls are \
             known by samples alone",
        ),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn name(path: &Path) -> String {
    ampere_model::text::printable(&path.file_name().unwrap_or_default().to_string_lossy())
}

fn is_privileged(program: &Path) -> bool {
    let has_bits = |about: Metadata| about.is_file() && about.mode() & 0o6000 != 0;
    let has_capabilities =
        || rustix::fs::getxattr(program, "security.capability", &mut [0u8; 64][..]).is_ok();
    std::fs::metadata(program).is_ok_and(has_bits) || has_capabilities()
}

/// Whether the program itself defines MPI_Init. One that was stripped does not show it.
fn has_own_mpi(program: &Path) -> bool {
    let Ok(file) = File::open(program) else { return false };
    let cache = ReadCache::new(file);
    let Ok(file) = ElfFile64::<Endianness, _>::parse(&cache) else { return false };
    file.symbols().any(|symbol| symbol.is_definition() && symbol.name() == Ok("PMPI_Init"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use std::process::Command;

    #[test]
    fn programs_with_an_mpi_of_their_own_and_privileged_ones_are_named() {
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
        let of = |names: [&str; 3]| notes(names.map(|name| path(name)).iter().map(String::as_str));
        assert_eq!(of(["other", "source.c", "absent"]), Vec::<String>::new());
        let found = of(["own", "other", "absent"]);
        assert!(found.len() == 1 && found[0].starts_with("own: linked with MPI statically"), "{found:?}");
        std::fs::set_permissions(path("other"), PermissionsExt::from_mode(0o4755)).expect("its mode");
        let found = of(["own", "other", "absent"]);
        assert!(found.len() == 2 && found[1].starts_with("other: started with privileges"), "{found:?}");
    }
}
