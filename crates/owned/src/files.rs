//! Acts on a file or a directory by its path.

use crate::directory::{Directory, same};
use crate::{PRIVATE_MODE, Refusal, own_user};
use rustix::fs::{FileType, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// Opens the directory above the last name of a path, and returns it with that name. The directory must belong to this user.
fn in_own(path: &Path) -> io::Result<(Directory, &OsStr)> {
    let (above, name) = split(path)?;
    Ok((Directory::own(above)?, name))
}

/// Opens the directory above the last name of a path, and returns it with that name. The directory may belong to any user.
fn in_any(path: &Path) -> io::Result<(Directory, &OsStr)> {
    let (above, name) = split(path)?;
    Ok((Directory::open(above)?, name))
}

fn split(path: &Path) -> io::Result<(&Path, &OsStr)> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let above = path.parent().filter(|above| !above.as_os_str().is_empty());
    Ok((above.unwrap_or(Path::new(".")), name))
}

/// Makes a file with at most these permissions, in place of an existing one.
///
/// # Errors
/// A [`Refusal`], or the file system's error.
pub fn create(path: &Path, mode: u32) -> io::Result<File> {
    let (directory, name) = in_own(path)?;
    remove_if_there(&directory, name)?;
    directory.create(name, mode)
}

/// Opens an existing file of this user for reading and writing.
///
/// # Errors
/// A [`Refusal`], or the file system's error.
pub fn open_own(path: &Path) -> io::Result<File> {
    let (directory, name) = in_own(path)?;
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = rustix::fs::openat(&directory, name, flags, Mode::empty())?;
    let found = rustix::fs::fstat(&file)?;
    if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile {
        return Err(Refusal::NoRegularFile(path.to_owned()).into());
    }
    if found.st_uid != own_user() {
        return Err(Refusal::OfAnother { path: path.to_owned(), owner: found.st_uid }.into());
    }
    Ok(file.into())
}

/// Opens a file of this user for reading and writing, or makes it with at most these permissions.
///
/// # Errors
/// A [`Refusal`], or the file system's error.
pub fn open_or_create(path: &Path, mode: u32) -> io::Result<File> {
    match open_own(path) {
        Err(why) if why.kind() == io::ErrorKind::NotFound => {
            let (directory, name) = in_own(path)?;
            directory.create(name, mode)
        }
        opened => opened,
    }
}

/// Removes the permissions of a directory that are not in `mode`, except for the set-user-ID, set-group-ID and sticky bits.
///
/// # Errors
/// A [`Refusal`], or the file system's error.
pub fn limit_mode(path: &Path, mode: u32) -> io::Result<()> {
    let (above, name) = in_any(path)?;
    let readable = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let directory = rustix::fs::openat(&above, name, readable, Mode::empty())?;
    let found = rustix::fs::fstat(&directory)?;
    if found.st_uid != own_user() {
        return Err(Refusal::OfAnother { path: path.to_owned(), owner: found.st_uid }.into());
    }
    let left = found.st_mode & (0o7000 | mode);
    Ok(rustix::fs::fchmod(&directory, Mode::from_raw_mode(left))?)
}

/// Writes a file with at most these permissions under another name, and then renames it, so that it is never incomplete. Where
/// the file system cannot rename files, it is copied instead.
///
/// # Errors
/// A [`Refusal`], the file system's error, or that of `write`.
pub fn replace(
    path: &Path,
    mode: u32,
    write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
) -> io::Result<()> {
    let (directory, name) = in_own(path)?;
    replace_in(&directory, name, mode, write)
}

/// Like [`replace`], for a file that the user has named, in a directory of any user. Links of other users are not followed.
///
/// # Errors
/// A [`Refusal`], the file system's error, or that of `write`.
pub fn replace_named(
    path: &Path,
    mode: u32,
    write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
) -> io::Result<()> {
    let (directory, name) = in_any(path)?;
    replace_in(&directory, name, mode, write)
}

fn replace_in(
    directory: &Directory,
    name: &OsStr,
    mode: u32,
    write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
) -> io::Result<()> {
    let mut unfinished = std::ffi::OsString::from(".ampere-");
    unfinished.push(name);
    unfinished.push(".part");
    remove_if_there(directory, &unfinished)?;
    let busy = || io::Error::new(io::ErrorKind::ResourceBusy, "another process is writing the same file");
    let created = directory.create(&unfinished, mode);
    let mut out = BufWriter::new(created.map_err(|why| match why.kind() {
        io::ErrorKind::AlreadyExists => busy(),
        _ => why,
    })?);
    if let Err(why) = write(&mut out).and_then(|()| out.flush()) {
        let _ = directory.remove_file(&unfinished);
        return Err(why);
    }
    let written = rustix::fs::fstat(out.get_ref())?;
    if !directory.look(&unfinished).is_ok_and(|there| same(&there, &written)) {
        // Another process has removed the unfinished file, and begun its own under the same name.
        return Err(busy());
    }
    match rustix::fs::renameat(directory, &unfinished, directory, name).map_err(io::Error::from) {
        Err(why) if is_without_rename(&why) => copy(directory, &unfinished, name, mode),
        renamed => renamed.inspect_err(|_| _ = directory.remove_file(&unfinished)),
    }
}

/// Whether the error shows that the file system cannot rename files. Some object stores and FUSE file systems cannot.
pub fn is_without_rename(why: &io::Error) -> bool {
    let known = [Errno::NOSYS, Errno::OPNOTSUPP, Errno::PERM, Errno::XDEV, Errno::INVAL];
    why.raw_os_error().is_some_and(|code| known.iter().any(|errno| errno.raw_os_error() == code))
}

/// Copies the file `from` over `to`, and removes `from` only if that has succeeded, because the old `to` cannot be restored.
fn copy(directory: &Directory, from: &OsStr, to: &OsStr, mode: u32) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let mut whole = File::from(rustix::fs::openat(directory, from, flags, Mode::empty())?);
    remove_if_there(directory, to).inspect_err(|_| _ = directory.remove_file(from))?;
    let copied = directory.create(to, mode).and_then(|mut copy| io::copy(&mut whole, &mut copy));
    let failed = |why| {
        let whole = from.display();
        io::Error::other(format!(
            "this file system cannot rename files, and a copy failed: {why}; {whole}, next to it, is complete"
        ))
    };
    copied.map_err(failed)?;
    directory.remove_file(from)
}

fn remove_if_there(directory: &Directory, name: &OsStr) -> io::Result<()> {
    match directory.remove_file(name) {
        Err(why) if why.kind() != io::ErrorKind::NotFound => Err(why),
        _ => Ok(()),
    }
}

/// Makes a symbolic link whose target is a plain word, to store the word in a single atomic step.
///
/// # Errors
/// A [`Refusal`], or the file system's error.
pub fn symlink(word: &str, path: &Path) -> io::Result<()> {
    let (directory, name) = in_own(path)?;
    Ok(rustix::fs::symlinkat(word, &directory, name)?)
}

/// Removes a file, or a link itself.
///
/// # Errors
/// A [`Refusal`], or the file system's error.
pub fn remove_file(path: &Path) -> io::Result<()> {
    let (directory, name) = in_own(path)?;
    directory.remove_file(name)
}

/// Removes an empty directory of this user, even in a directory of another user.
///
/// # Errors
/// A [`Refusal`], or the file system's error.
pub fn remove_directory(path: &Path) -> io::Result<()> {
    let (above, name) = in_any(path)?;
    let empty = above.own_below(name)?;
    above.remove_emptied(name, &empty)
}

/// Removes a directory of this user with its contents, even in a directory of another user.
///
/// # Errors
/// A [`Refusal`], or the file system's error.
pub fn remove_tree(path: &Path) -> io::Result<()> {
    let (above, name) = in_any(path)?;
    match Directory::held(path) {
        // The directory may have been replaced by another one.
        Some(held) => held.remove_contents().and(above.remove_emptied(name, &held)),
        None => above.remove_tree(name),
    }
}

/// Removes, from a directory of this user, the subdirectories whose names `is_left` accepts, with their contents. If others
/// can rename the contents of the directory, nothing is removed, because they may have moved any directory of this user
/// into it.
///
/// # Errors
/// A [`Refusal`], or the file system's error.
pub fn remove_left(directory: &Path, is_left: impl Fn(&str) -> bool) -> io::Result<()> {
    let directory = Directory::own(directory)?;
    if directory.others_may_rename()? {
        return Ok(());
    }
    for name in directory.names()?.iter().filter(|name| is_left(&name.to_string_lossy())) {
        directory.remove_tree(name)?;
    }
    Ok(())
}

/// Removes a directory of this user with the files in it, but nothing if it has subdirectories. The files are emptied, so that
/// they use no space while they are still open.
///
/// # Errors
/// A [`Refusal`], or the file system's error.
pub fn remove_flat(path: &Path) -> io::Result<()> {
    let (above, name) = in_any(path)?;
    let flat = above.own_below(name)?;
    let names = flat.names()?;
    let is_directory = |name: &OsString| {
        flat.look(name).is_ok_and(|found| FileType::from_raw_mode(found.st_mode) == FileType::Directory)
    };
    if names.iter().any(is_directory) {
        return Err(io::ErrorKind::DirectoryNotEmpty.into());
    }
    for name in names {
        let flags = OFlags::WRONLY | OFlags::TRUNC | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let found = flat.look(&name)?;
        let is_own_alone = found.st_nlink == 1 && found.st_uid == own_user();
        if FileType::from_raw_mode(found.st_mode) == FileType::RegularFile && is_own_alone {
            let _ = rustix::fs::openat(&flat, &name, flags, Mode::empty());
        }
        flat.remove_file(&name)?;
    }
    above.remove_emptied(name, &flat)
}

/// Makes a directory with at most these permissions, independently of the umask and of the directory above. The directory above
/// may belong to another user, because a new directory replaces nothing.
///
/// # Errors
/// A [`Refusal`], or the file system's error.
pub fn make(path: &Path, mode: u32) -> io::Result<()> {
    let (above, name) = in_any(path)?;
    Ok(rustix::fs::mkdirat(&above, name, Mode::from_raw_mode(mode))?)
}

/// Makes a directory and those above it, with at most these permissions. Existing ones are not changed.
///
/// # Errors
/// A [`Refusal`], or the file system's error.
pub fn make_all(path: &Path, mode: u32) -> io::Result<()> {
    match make(path, mode) {
        Err(why) if why.kind() == io::ErrorKind::NotFound => {
            make_all(path.parent().ok_or(why)?, mode)?;
            match make(path, mode) {
                Err(why) if why.kind() == io::ErrorKind::AlreadyExists => Directory::open(path).map(drop),
                made => made,
            }
        }
        Err(why) if why.kind() == io::ErrorKind::InvalidInput => Directory::open(path).map(drop),
        Err(why) if why.kind() == io::ErrorKind::AlreadyExists => Directory::open(path).map(drop),
        made => made,
    }
}

/// Makes a directory for this user alone and those above it, or opens an existing one, which must belong to this user.
///
/// # Errors
/// A [`Refusal`], or the file system's error.
pub fn make_private(path: &Path) -> io::Result<Directory> {
    make_all(path, PRIVATE_MODE)?;
    Directory::own(path)
}

/// Renames within and between directories of this user. An existing `to` is replaced.
///
/// # Errors
/// A [`Refusal`], or the file system's error.
pub fn rename(from: &Path, to: &Path) -> io::Result<()> {
    let ((above, name), (to_above, to_name)) = (in_own(from)?, in_own(to)?);
    Ok(rustix::fs::renameat(&above, name, &to_above, to_name)?)
}

/// Renames a file in a directory of this user to a name that the user has chosen, in a directory of any user.
///
/// # Errors
/// A [`Refusal`], or the file system's error.
pub fn put(from: &Path, to: &Path) -> io::Result<()> {
    let ((above, name), (to_above, to_name)) = (in_own(from)?, in_any(to)?);
    Ok(rustix::fs::renameat(&above, name, &to_above, to_name)?)
}

/// Like [`rename`], but fails if `to` exists, even as a link.
///
/// # Errors
/// [`io::ErrorKind::AlreadyExists`], a [`Refusal`], or the file system's error.
pub fn move_new(from: &Path, to: &Path) -> io::Result<()> {
    let ((above, name), (to_above, to_name)) = (in_own(from)?, in_own(to)?);
    match rustix::fs::renameat_with(&above, name, &to_above, to_name, RenameFlags::NOREPLACE) {
        // Network file systems and old kernels do not support this flag.
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {}
        renamed => return Ok(renamed?),
    }
    match to_above.look(to_name) {
        Ok(_) => Err(io::ErrorKind::AlreadyExists.into()),
        Err(_) => Ok(rustix::fs::renameat(&above, name, &to_above, to_name)?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{hold, refusal};
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink as link};

    fn place() -> tempfile::TempDir {
        tempfile::tempdir().unwrap()
    }

    #[test]
    fn symbolic_and_hard_links_are_replaced_and_not_written_to() {
        let place = place();
        let (precious, path) = (place.path().join("precious"), place.path().join("file"));
        std::fs::write(&precious, "mine").unwrap();
        let put: [&dyn Fn(); 2] =
            [&|| link(&precious, &path).unwrap(), &|| std::fs::hard_link(&precious, &path).unwrap()];
        for put in put {
            put();
            assert!(open_own(&path).is_err() || path.metadata().unwrap().nlink() == 2);
            create(&path, 0o600).unwrap().write_all(b"new").unwrap();
            assert_eq!(std::fs::read_to_string(&path).unwrap(), "new");
            std::fs::remove_file(&path).unwrap();
            put();
            replace(&path, 0o644, |file| file.write_all(b"newer")).unwrap();
            assert_eq!(std::fs::read_to_string(&path).unwrap(), "newer");
            remove_file(&path).unwrap();
            put();
            assert_eq!(move_new(&precious, &path).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
            remove_file(&path).unwrap();
            assert_eq!(std::fs::read_to_string(&precious).unwrap(), "mine");
        }
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 1, "nothing else remains");
    }

    #[test]
    fn a_file_is_replaced_completely_or_not_at_all() {
        let place = place();
        let path = place.path().join("file");
        std::fs::write(&path, "old").unwrap();
        let interrupted = replace(&path, 0o644, |file| {
            file.write_all(b"ne")?;
            Err(io::Error::other("interrupted"))
        });
        assert!(interrupted.is_err());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "old");
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 1, "nothing else remains");
    }

    #[test]
    fn of_two_writers_of_a_file_one_is_told_and_the_file_is_complete() {
        let place = place();
        let path = place.path().join("file");
        let other = || replace(&path, 0o644, |file| file.write_all(b"whole"));
        let outcome = replace(&path, 0o644, |file| {
            file.write_all(b"half")?;
            other()
        });
        assert_eq!(outcome.unwrap_err().kind(), io::ErrorKind::ResourceBusy);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "whole");
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 1, "nothing else remains");
    }

    #[test]
    fn a_tree_is_removed_without_the_targets_of_links_in_it() {
        let place = place();
        let (tree, other) = (place.path().join("tree"), place.path().join("other"));
        make_all(&tree.join("a/b"), 0o755).unwrap();
        std::fs::create_dir(&other).unwrap();
        std::fs::write(other.join("precious"), "mine").unwrap();
        std::fs::write(tree.join("a/b/file"), "").unwrap();
        link(&other, tree.join("a/link")).unwrap();
        link(other.join("precious"), tree.join("file")).unwrap();
        remove_tree(&tree).unwrap();
        assert!(!tree.exists() && other.join("precious").exists());
        link(&other, &tree).unwrap();
        assert!(
            remove_tree(&tree).is_err() && remove_flat(&tree).is_err() && other.join("precious").exists()
        );
        assert!(
            remove_directory(&tree).is_err() && make_private(&tree).is_ok(),
            "a link of one's own is followed"
        );
        let nested = place.path().join("nested");
        make_all(&nested.join("sub"), 0o755).unwrap();
        std::fs::write(nested.join("sub/file"), "").unwrap();
        assert!(remove_flat(&nested).is_err() && nested.join("sub/file").exists());
    }

    #[test]
    fn remains_of_killed_processes_are_removed_only_where_no_other_user_can_rename() {
        let place = place();
        let remove = |mode: u32| {
            for name in ["left-1/sub", "left-2", "thesis"] {
                std::fs::create_dir_all(place.path().join(name)).unwrap();
            }
            std::fs::write(place.path().join("left-1/sub/file"), "mine").unwrap();
            std::fs::set_permissions(place.path(), std::fs::Permissions::from_mode(mode)).unwrap();
            remove_left(place.path(), |name| name.starts_with("left-")).unwrap();
            ["left-1/sub/file", "left-2", "thesis"].map(|name| place.path().join(name).exists())
        };
        for mode in [0o775, 0o2775, 0o777] {
            assert_eq!(remove(mode), [true; 3], "{mode:o}");
        }
        for mode in [0o755, 0o1777] {
            assert_eq!(remove(mode), [false, false, true], "{mode:o}");
        }
        link(place.path().join("thesis"), place.path().join("left-3")).unwrap();
        assert!(remove_left(place.path(), |name| name.starts_with("left-")).is_err());
        assert!(place.path().join("thesis").exists());
    }

    #[test]
    fn a_file_that_the_user_names_may_be_in_another_users_directory_but_not_behind_their_links() {
        let place = place();
        let (theirs, own) = (place.path().join("theirs"), place.path().join("own"));
        make(&theirs, 0o777).unwrap();
        make(&own, 0o755).unwrap();
        link(&own, theirs.join("link")).unwrap();
        let write = |path: &Path| replace_named(path, 0o644, |file| file.write_all(b"new"));
        write(&theirs.join("link/file")).unwrap();
        assert_eq!(std::fs::read_to_string(own.join("file")).unwrap(), "new");
        let follow = || Directory::open(&theirs).unwrap().follow("link".as_ref());
        assert_eq!(follow().unwrap(), Some(own.clone()));
        assert_eq!(Directory::open(&own).unwrap().follow("file".as_ref()).unwrap(), None);
        if own_user() != 0 {
            println!("skipped: needs root");
            return;
        }
        std::fs::remove_file(own.join("file")).unwrap();
        std::os::unix::fs::chown(&theirs, Some(65534), None).unwrap();
        std::os::unix::fs::lchown(theirs.join("link"), Some(65534), None).unwrap();
        write(&theirs.join("file")).unwrap();
        std::fs::write(own.join("database"), "whole").unwrap();
        let refused = [
            write(&theirs.join("link/file")),
            put(&own.join("database"), &theirs.join("link/file")),
            follow().map(drop),
        ];
        for done in refused {
            let why = done.unwrap_err();
            assert!(matches!(refusal(&why), Some(Refusal::LinkOfAnother { owner: 65534, .. })), "{why}");
        }
        put(&own.join("database"), &theirs.join("file")).unwrap();
        assert_eq!(std::fs::read_to_string(theirs.join("file")).unwrap(), "whole");
        assert_eq!(std::fs::read_dir(&own).unwrap().count(), 0);
    }

    #[test]
    fn actions_at_the_path_of_a_held_directory_apply_to_that_directory() {
        let place = place();
        let place = place.path().canonicalize().unwrap();
        let [out, moved, other] = ["out", "moved", "other"].map(|name| place.join(name));
        make(&out, 0o755).unwrap();
        make(&other, 0o755).unwrap();
        std::fs::write(other.join("file"), "mine").unwrap();
        let (real, held) = hold(&out).unwrap();
        assert_eq!(real, out);
        std::fs::rename(&out, &moved).unwrap();
        link(&other, &out).unwrap();
        replace(&out.join("file"), 0o644, |file| file.write_all(b"ours")).unwrap();
        make_private(&out.join("sub/sub")).unwrap();
        remove_file(&out.join("absent")).unwrap_err();
        assert_eq!(std::fs::read_to_string(moved.join("file")).unwrap(), "ours");
        assert_eq!(std::fs::read_to_string(other.join("file")).unwrap(), "mine");
        assert!(moved.join("sub/sub").is_dir() && !other.join("sub").exists());
        // A directory that was removed is no longer held.
        std::fs::remove_dir_all(&moved).unwrap();
        std::fs::remove_file(&out).unwrap();
        make_all(&out, 0o755).unwrap();
        create(&out.join("file"), 0o644).unwrap();
        assert!(out.join("file").exists());
        drop(held);
        create(&out.join("file"), 0o644).unwrap();
    }

    #[test]
    fn a_held_directory_is_removed_and_not_its_replacement() {
        let place = place();
        let place = place.path().canonicalize().unwrap();
        let [spool, moved, other] = ["spool", "moved", "other"].map(|name| place.join(name));
        make(&spool, 0o700).unwrap();
        make(&other, 0o755).unwrap();
        std::fs::write(spool.join("file"), "ours").unwrap();
        std::fs::write(other.join("file"), "mine").unwrap();
        let (_, _held) = hold(&spool).unwrap();
        std::fs::rename(&spool, &moved).unwrap();
        std::fs::rename(&other, &spool).unwrap();
        assert_eq!(crate::read(&spool.join("file"), 10).unwrap(), b"ours");
        remove_tree(&spool).unwrap_err();
        assert_eq!(std::fs::read_to_string(spool.join("file")).unwrap(), "mine");
        assert_eq!(std::fs::read_dir(&moved).unwrap().count(), 0);
    }

    #[test]
    fn a_directory_has_no_more_permissions_than_requested() {
        let place = place();
        let path = place.path().join("a");
        make(&path, 0o755).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o2777)).unwrap();
        let refused = Directory::own_alone(&path).unwrap_err();
        assert!(matches!(refusal(&refused), Some(Refusal::OpenToOthers { mode: 0o2777, .. })), "{refused}");
        limit_mode(&path, 0o755).unwrap();
        assert_eq!(path.metadata().unwrap().mode() & 0o7777, 0o2755);
        Directory::own_alone(&path).unwrap();
    }

    #[test]
    fn files_of_another_user_are_not_changed() {
        if own_user() != 0 {
            println!("skipped: needs root");
            return;
        }
        let place = place();
        let theirs = place.path().join("theirs");
        make_all(&theirs.join("sub"), 0o755).unwrap();
        std::fs::write(theirs.join("file"), "theirs").unwrap();
        std::fs::write(theirs.join("sub/file"), "theirs").unwrap();
        for path in [&theirs, &theirs.join("sub")] {
            std::os::unix::fs::chown(path, Some(65534), Some(65534)).unwrap();
        }
        let file = theirs.join("file");
        let tried = [
            create(&file, 0o600).map(drop),
            open_own(&file).map(drop),
            replace(&file, 0o600, |_| Ok(())),
            remove_file(&file),
            rename(&file, &place.path().join("mine")),
            move_new(&file, &place.path().join("mine")),
            remove_tree(&theirs),
            remove_flat(&theirs.join("sub")),
            remove_directory(&theirs.join("sub")),
            limit_mode(&theirs, 0o700),
            symlink("word", &theirs.join("link")),
            make_private(&theirs).map(drop),
            hold(&theirs).map(drop),
        ];
        for (number, tried) in tried.into_iter().enumerate() {
            let why = tried.expect_err(&number.to_string());
            assert!(
                matches!(refusal(&why), Some(Refusal::OfAnother { owner: 65534, .. })),
                "{number}: {why}"
            );
        }
        assert_eq!(std::fs::read_to_string(theirs.join("sub/file")).unwrap(), "theirs");
        // No action follows links of another user either, wherever they are in the path.
        link(place.path(), theirs.join("link")).unwrap();
        std::os::unix::fs::lchown(theirs.join("link"), Some(65534), None).unwrap();
        for way in ["link/x", "link/../x", "sub/../link/x", "./link/./x"] {
            let why = create(&theirs.join(way), 0o600).expect_err(way);
            assert!(
                matches!(refusal(&why), Some(Refusal::LinkOfAnother { owner: 65534, .. })),
                "{way}: {why}"
            );
        }
    }

    #[test]
    fn a_circle_of_links_is_an_error() {
        let place = place();
        link("b", place.path().join("a")).unwrap();
        link("a", place.path().join("b")).unwrap();
        assert!(create(&place.path().join("a/file"), 0o600).is_err());
    }
}
