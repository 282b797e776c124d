//! Chooses where a run's records are kept: on a disk of the node's own, so that thousands of nodes do not write to the file
//! system that they share. They are in the output directory only if no other place has enough space.

use crate::run_directory::disk_space::{Room, room_in};
use crate::run_directory::files::{MANIFEST, PRIVATE_FILE_MODE, file_name};
use ampere_owned::PRIVATE_MODE;
use ampere_ring::files::{read_text, write_private};
use ampere_trace::spool::RECORDS;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// The least free space for a spool.
const BYTES_MIN: u64 = 256 << 20;
/// The name of a file next to the records. It contains the path of their claim, which is in the output directory.
const CLAIM_FILE: &str = "claim";
/// An upper bound on the number of directories with one name that killed runs may have left.
const SAME_NAME_MAX: u32 = 1000;

/// The kind of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// The file system is on this node.
    Disk,
    /// The space of the file system is the node's memory.
    Memory,
    /// Other nodes may see the file system, too.
    Shared,
}

/// The types (`f_type`) of shared file systems in statfs(2): NFS, SMB, CIFS, SMB2, Lustre, GPFS, BeeGFS, Ceph, PanFS, FUSE,
/// OrangeFS, OCFS2, GFS2, AFS, 9P.
const SHARED: [u32; 15] = [
    0x6969,
    0x517b,
    0xff53_4d42,
    0xfe53_4d42,
    0x0bd0_0bd0,
    0x4750_4653,
    0x1983_0326,
    0x00c3_6400,
    0xaad7_aaea,
    0x6573_5546,
    0x2003_0528,
    0x7461_636f,
    0x0116_1970,
    0x5346_414f,
    0x0102_1997,
];
const MEMORY: [u32; 2] = [0x0102_1994, 0x8584_58f6]; // tmpfs, ramfs

fn kind_of(directory: &Path) -> io::Result<Kind> {
    let number = rustix::fs::statfs(directory)?.f_type as u32;
    Ok(match number {
        _ if SHARED.contains(&number) => Kind::Shared,
        _ if MEMORY.contains(&number) => Kind::Memory,
        _ => Kind::Disk,
    })
}

/// Makes the directory for the records of a run on a node; returns `None` if no directory can be used except the claim (the
/// directory `spool-<node>` in the output directory). Adds a note about each problem.
pub fn make(
    wanted: Option<&Path>,
    claim: &Path,
    (run_id, node): (&str, &str),
    notes: &mut Vec<String>,
) -> Option<PathBuf> {
    let uid = rustix::process::geteuid().as_raw();
    let name = format!("ampere-{uid}-{}-{}", file_name(run_id), file_name(node));
    let mut refused = None;
    if let Some(wanted) = wanted {
        match make_in(wanted, &name, claim) {
            Ok(directory) => {
                if kind_of(wanted).is_ok_and(|kind| kind == Kind::Shared) {
                    notes.push(format!(
                        "the spool directory {} may be shared by several nodes: this node's records are in {}",
                        wanted.display(),
                        directory.display()
                    ));
                }
                return Some(directory);
            }
            Err(why) => refused = Some((wanted, why)),
        }
    }
    let temporary = std::env::var_os("TMPDIR").filter(|path| !path.is_empty()).map(PathBuf::from);
    let candidates: Vec<PathBuf> = temporary.into_iter().chain([PathBuf::from("/tmp")]).collect();
    let make_on = |kind: Kind| {
        let mut of_kind =
            candidates.iter().filter(|path| path.is_dir() && kind_of(path).is_ok_and(|k| k == kind));
        of_kind.find_map(|path| make_in(path, &name, claim).ok())
    };
    let made = make_on(Kind::Disk).or_else(|| {
        let is_shared = kind_of(claim).is_ok_and(|kind| kind == Kind::Shared);
        if is_shared { make_on(Kind::Memory) } else { None }
    });
    notes.extend(refused.map(|(wanted, why)| {
        let place = made.as_deref().unwrap_or(claim);
        format!(
            "the spool directory {} cannot be used: {why}; records are written to {}",
            wanted.display(),
            place.display()
        )
    }));
    made
}

/// Makes a directory with this name, or a variant of it that no other run uses.
fn make_in(directory: &Path, name: &str, claim: &Path) -> io::Result<PathBuf> {
    let directory = std::path::absolute(directory)?;
    ampere_owned::make_all(&directory, PRIVATE_MODE)?;
    if ampere_owned::Directory::open(&directory)?.others_may_rename()? {
        return Err(io::Error::other("other users may replace files in it"));
    }
    match room_in(&directory) {
        Some(Room { left, .. }) if left < BYTES_MIN => {
            return Err(io::Error::other(format!("it has only {} MB left", left / 1_000_000)));
        }
        _ => {}
    }
    let make = |path: &PathBuf| ampere_owned::make(path, PRIVATE_MODE);
    let mut number = 1;
    let mut path = directory.join(name);
    loop {
        match make(&path) {
            Ok(()) => {
                let named = ampere_owned::create(&path.join(CLAIM_FILE), PRIVATE_FILE_MODE);
                let named = named.and_then(|mut file| file.write_all(claim.as_os_str().as_encoded_bytes()));
                return named.inspect_err(|_| remove(&path)).map(|()| path);
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && number < SAME_NAME_MAX => {}
            Err(error) => return Err(error),
        }
        number += 1;
        path = directory.join(format!("{name}-{number}"));
    }
}

/// Whether a file system needs its remaining space for others. A spool on it then ends, and further records are written to the
/// output directory. If the space is memory, half of it is left to others.
pub fn is_full(directory: &Path) -> bool {
    let is_memory = || kind_of(directory).is_ok_and(|kind| kind == Kind::Memory);
    room_in(directory)
        .is_some_and(|room| room.left < room.all / 2 && (room.left < room.left_to_others() || is_memory()))
}

/// Whether the records belong to this claim, and not to another one of which it is a copy.
pub fn is_of(directory: &Path, claim: &Path) -> bool {
    let named = PathBuf::from(read_text(&directory.join(CLAIM_FILE)));
    // A claim that was moved is still the same one.
    named == claim || !named.join(MANIFEST).exists()
}

/// The file in a session that names the directory with its records, because the claim, which also names it, may be removed.
const RECORDS_OF_SESSION: &str = "records.path";

/// Stores in a session where its records are.
pub fn note_in_session(session: &Path, records: &Path) {
    let _ = write_private(&session.join(RECORDS_OF_SESSION), &records.display().to_string());
}

/// Removes the records of a session that is about to be removed, if their claim is gone.
pub fn remove_if_unclaimed(session: &Path) {
    let records = PathBuf::from(read_text(&session.join(RECORDS_OF_SESSION)));
    if records.as_os_str().is_empty() {
        return;
    }
    let names_claim = !read_text(&records.join(CLAIM_FILE)).is_empty();
    if names_claim && is_of(&records, Path::new("")) {
        remove(&records);
    }
}

/// Removes a directory that was made here, with its records.
pub fn remove(directory: &Path) {
    for name in [RECORDS, CLAIM_FILE] {
        let _ = ampere_owned::remove_file(&directory.join(name));
    }
    let _ = ampere_owned::remove_directory(directory);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_run_and_node_has_a_directory_of_its_own() {
        let place = tempfile::tempdir().unwrap();
        let wanted = place.path().join("spool");
        let mut notes = Vec::new();
        let mut make = |run, node| make(Some(&wanted), place.path(), (run, node), &mut notes).unwrap();
        let all = [make("a", "n1"), make("a", "n2"), make("a", "n1"), make("b/c", "n1")];
        assert!(notes.is_empty());
        for (at, directory) in all.iter().enumerate() {
            assert!(
                directory.is_dir() && !all[..at].contains(directory) && directory.parent() == Some(&wanted)
            );
        }
        std::fs::write(all[0].join(RECORDS), "x").unwrap();
        all.iter().for_each(|directory| remove(directory));
        assert!(std::fs::read_dir(&wanted).unwrap().next().is_none());
    }

    #[test]
    fn a_place_that_cannot_be_used_has_a_note() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("file");
        std::fs::write(&file, "").unwrap();
        let mut notes = Vec::new();
        let made = make(Some(&file), place.path(), ("run", "node"), &mut notes);
        made.iter().for_each(|directory| remove(directory));
        assert!(made.is_none_or(|directory| !directory.starts_with(place.path())));
        assert!(notes.len() == 1 && notes[0].contains("file cannot be used: "), "{notes:?}");
    }
}
