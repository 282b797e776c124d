//! Manages the output directory: the run that it belongs to, and the files in it.
//!
//! A collector claims the directory by making `spool-<node>` in it. If the collectors of several nodes are started with the
//! same directory, the first one gets it, and each of the others gets a subdirectory with its node's name. The first node's
//! name is in the link `.ampere-owner`, which is removed when nothing remains to be finished.

use crate::run_directory::disk_space;
use crate::run_directory::files::{self, MANIFEST, PRIVATE_FILE_MODE, WriteError, file_name};
use crate::run_directory::manifest::{self, Manifest, ManifestError};
use ampere_endpoint::listen::{Listen, own_addresses};
use ampere_figures::clock_text;
use ampere_figures::summary::{Head, Run};
use ampere_model::text::printable;
use ampere_owned::is_without_rename;
use ampere_owned::{Held, PRIVATE_MODE};
use ampere_ring::process::own_name;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// An upper bound on the size of `collector.json`.
const ANNOUNCED_BYTES_MAX: u64 = 1 << 20;
const TRACE: [&str; 3] = ["traces.otf2", "traces.def", "traces"];
/// The result files other than the trace.
pub const RESULTS: [&str; 3] = ["summary.json", "summary.txt", PAGE];
/// The page. Its name is common: a foreign file of that name neither prevents a run nor is replaced.
pub const PAGE: &str = "report.html";
/// What to do if a directory cannot be used.
pub const ADVICE: &str = "choose another output directory with -o or AMPERE_OUTPUT";
/// The prefix of a claim's name; the node's name follows.
pub const CLAIM: &str = "spool-";

/// An upper bound on the number that is appended to a directory's name.
const NEXT_TO_MAX: u32 = 10_000;

/// A directory that a run has claimed.
#[derive(Clone, Debug)]
pub struct Output {
    pub directory: PathBuf,
    /// The directory in which records are kept until the trace is written.
    pub spool: PathBuf,
    /// Whether the directory was made by this claim, so that it is removed if there are no results.
    is_new: bool,
    /// Handles that keep all actions in the directory that was claimed, even if somebody has put another one in its place.
    _held: Arc<Vec<Held>>,
}

impl PartialEq for Output {
    fn eq(&self, other: &Output) -> bool {
        (&self.directory, &self.spool, self.is_new) == (&other.directory, &other.spool, other.is_new)
    }
}

/// Whether the group may write into new directories for results.
static GROUP_WRITES: AtomicBool = AtomicBool::new(false);

/// Sets whether the group may write into directories that are made for results from now on.
pub fn let_group_write(is_wanted: bool) {
    GROUP_WRITES.store(is_wanted, Ordering::Relaxed);
}

fn directory_mode() -> u32 {
    match GROUP_WRITES.load(Ordering::Relaxed) {
        true => ampere_owned::GROUP_DIRECTORY_MODE,
        false => ampere_owned::DIRECTORY_MODE,
    }
}

/// Why a directory cannot be used for results, as a message of one line.
#[derive(Debug, thiserror::Error)]
pub enum ClaimError {
    /// The directory cannot be found, made or written to.
    #[error("cannot {action} {}: {why}; {ADVICE}", .directory.display())]
    Unusable { action: &'static str, directory: PathBuf, why: String },
    /// The directory holds results, which are never overwritten.
    #[error("{} holds the results of another run ({result})", .directory.display())]
    HoldsResults { directory: PathBuf, result: &'static str },
    /// Another run has claimed it.
    #[error(
        "{} is in use by another run, or has the records of a killed one ({}; `ampere recover` finishes it)",
        .directory.display(),
        .spool.display()
    )]
    InUse { directory: PathBuf, spool: PathBuf },
}

impl ClaimError {
    /// Whether another run prevents the use of the directory: the next directory may be usable.
    pub fn is_of_another_run(&self) -> bool {
        !matches!(self, ClaimError::Unusable { .. })
    }

    fn unusable(action: &'static str, directory: &Path, why: impl ToString) -> ClaimError {
        ClaimError::Unusable { action, directory: directory.to_owned(), why: why.to_string() }
    }

    fn holds_results(directory: &Path) -> ClaimError {
        // With a claim in the directory, the results are the figures of a run that is still running or was killed.
        if let Some(node) = others(directory, "").first() {
            let spool = directory.join(format!("{CLAIM}{node}"));
            return ClaimError::InUse { directory: directory.to_owned(), spool };
        }
        let result = result_in(directory).unwrap_or_default();
        ClaimError::HoldsResults { directory: directory.to_owned(), result }
    }
}

/// The file in the spool that marks the directory as new.
const IS_NEW: &str = "directory-is-new";

/// Returns the name of the default output directory, made from the date and the run.
pub fn default_directory(run_id: &str) -> PathBuf {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let hash = ampere_model::text::fnv1a(run_id.bytes());
    PathBuf::from(format!("ampere-{}_{:06x}", clock_text::compact(now.as_nanos() as u64), hash & 0xff_ffff))
}

/// Returns directories next to one that another run has: `out-2`, `out-3` and so on.
pub fn next_to(wanted: &Path) -> impl Iterator<Item = PathBuf> {
    let absolute = std::path::absolute(wanted).unwrap_or_else(|_| wanted.to_owned());
    // A path like `..` has no name.
    let name = absolute.file_name().map(ToOwned::to_owned);
    (2..NEXT_TO_MAX).map_while(move |number| {
        let mut name = name.clone()?;
        name.push(format!("-{number}"));
        Some(absolute.with_file_name(name))
    })
}

/// Claims a directory for a run on a node. `manifest` is the text of its [`Manifest`], which a claim always contains.
pub fn claim(wanted: &Path, node: &str, manifest: &str) -> Result<Output, ClaimError> {
    let node = file_name(node);
    let refuse = |why: std::io::Error| ClaimError::unusable("write to", wanted, why);
    if others(wanted, &node).is_empty() {
        let (directory, is_new, held) = enter(wanted)?;
        let is_owner = becomes_owner(&directory, &node).inspect_err(|_| remove_if_new(&directory, is_new));
        if is_owner.map_err(refuse)? {
            let claimed = claim_here(directory.clone(), (is_new, held), &node, manifest);
            if claimed.is_err() {
                release(&directory, &node);
                remove_if_new(&directory, is_new);
            }
            return claimed;
        }
    }
    let (directory, is_new, held) = enter(&wanted.join(&node))?;
    claim_here(directory.clone(), (is_new, held), &node, manifest)
        .inspect_err(|_| remove_if_new(&directory, is_new))
}

/// The link that names the node that has the directory: its target is the node's name. Making a link is atomic, even on network
/// file systems.
const OWNER: &str = ".ampere-owner";

/// Makes this node the owner of the directory, unless another node owns it. If several nodes try at the same moment, one
/// succeeds.
fn becomes_owner(directory: &Path, node: &str) -> std::io::Result<bool> {
    use rustix::io::Errno;
    match ampere_owned::symlink(node, &directory.join(OWNER)) {
        Ok(()) => Ok(true),
        Err(error) => match Errno::from_io_error(&error) {
            Some(Errno::EXIST) => Ok(is_owner(directory, node)),
            // A file system without links is probably not shared with other nodes.
            Some(Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS) => Ok(true),
            _ => Err(error),
        },
    }
}

fn is_owner(directory: &Path, node: &str) -> bool {
    std::fs::read_link(directory.join(OWNER)).is_ok_and(|owner| owner == Path::new(node))
}

/// Removes the link if it is this node's and its claim is gone.
fn release(directory: &Path, node: &str) {
    if is_owner(directory, node) && !exists(&directory.join(format!("{CLAIM}{node}"))) {
        let _ = ampere_owned::remove_file(&directory.join(OWNER));
    }
}

fn remove_if_new(directory: &Path, is_new: bool) {
    if is_new {
        let _ = ampere_owned::remove_directory(directory); // fails if it is not empty
    }
}

/// Returns the claim of an earlier collector of this session, and its manifest.
pub fn claimed_by(session: &Path, directory: &Path, node: &str) -> Option<(Output, Manifest)> {
    let node = file_name(node);
    let spool = format!("{CLAIM}{node}");
    // Another node may own the directory: then the claim is in the subdirectory, which the session may not name yet.
    [directory.join(&spool), directory.join(&node).join(&spool)].iter().find_map(|spool| {
        let manifest = Manifest::load(spool).ok().filter(|manifest| is_same(&manifest.session, session))?;
        Some((Output::of_spool(spool), manifest))
    })
}

/// Whether both paths lead to the same directory, directly or through links.
pub fn is_same(one: &Path, other: &Path) -> bool {
    one == other
        || std::fs::canonicalize(one).is_ok_and(|one| std::fs::canonicalize(other).is_ok_and(|o| o == one))
}

/// Removes what remains of a finished run's spool. Returns `false` if the spool still has a manifest, so that it belongs to an
/// unfinished run.
pub fn remove_finished_spool(directory: &Path, node: &str) -> bool {
    let output = Output::of_spool(&directory.join(format!("{CLAIM}{}", file_name(node))));
    if exists(&output.spool.join(MANIFEST)) {
        return false;
    }
    manifest::remove_spool(&output.spool);
    output.release();
    true
}

/// Removes unfinished claims of killed collectors.
fn remove_unfinished_claims(directory: &Path, node: &str) {
    let prefix = format!(".{CLAIM}{node}.");
    let is_left = |name: &str| name.strip_prefix(&prefix).is_some_and(ampere_ring::process::is_gone);
    let _ = ampere_owned::remove_left(directory, is_left);
}

/// Removes a trace that a collector has started and not finished. Files with a trace's names that no collector has started are
/// the user's and are kept.
pub fn remove_unfinished_trace(directory: &Path, manifest: &mut Manifest) {
    if !std::mem::take(&mut manifest.progress.trace_begun) {
        return;
    }
    ampere_trace::write::remove(directory);
}

/// Whether the directory holds a run's results, which are never overwritten.
pub fn holds_results(directory: &Path) -> bool {
    result_in(directory).is_some()
}

fn result_in(directory: &Path) -> Option<&'static str> {
    let names = RESULTS.into_iter().filter(|name| *name != PAGE).chain(TRACE);
    names.into_iter().find(|name| exists(&directory.join(name)))
}

/// Whether the directory holds the final results of this run, and not only figures that were written while it ran.
pub fn holds_results_of(directory: &Path, run_id: &str) -> bool {
    run_in(directory).is_some_and(|run| run.id == run_id && !run.running)
}

/// Whether the directory holds results of a run that has ended.
pub fn holds_final_results(directory: &Path) -> bool {
    holds_results(directory) && run_in(directory).is_none_or(|run| !run.running)
}

fn is_of_run(directory: &Path, run_id: &str) -> bool {
    run_in(directory).is_some_and(|run| run.id == run_id)
}

fn run_in(directory: &Path) -> Option<Run> {
    Head::of(&directory.join("summary.json")).map(|head| head.run)
}

/// Whether the directory holds a `report.html` that is not this run's.
pub fn holds_foreign_page(directory: &Path, run_id: &str) -> bool {
    let path = directory.join(PAGE);
    let Ok(there) = path.symlink_metadata() else { return false };
    let beginning = if there.is_file() {
        ampere_owned::read_beginning(&path, 1024)
    } else {
        Err(std::io::ErrorKind::NotFound.into())
    };
    !beginning.is_ok_and(|beginning| {
        String::from_utf8_lossy(&beginning).contains(&ampere_report::page_mark(run_id).0)
    })
}

/// Whether the directory holds a file with one of a trace's names.
pub fn holds_trace(directory: &Path) -> bool {
    TRACE.iter().any(|name| exists(&directory.join(name)))
}

/// Whether the path exists. A dangling link counts, because a trace would be written to its target.
fn exists(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}

/// Makes or opens a directory that must be this user's and hold no results. Returns its canonical path, whether it is new, and
/// the handle that holds it.
fn enter(directory: &Path) -> Result<(PathBuf, bool, Held), ClaimError> {
    let refuse = |action, why: String| ClaimError::unusable(action, directory, why);
    if holds_results(directory) {
        return Err(ClaimError::holds_results(directory));
    }
    let above = std::path::absolute(directory).ok().and_then(|path| path.parent().map(Path::to_owned));
    if let Some(above) = above.filter(|above| is_world_writable_without_sticky_bit(above)) {
        return Err(refuse("use", format!("every user may replace files in {}", above.display())));
    }
    let is_new = make(directory).map_err(|why| refuse("create", words_of(&why)))?;
    let (directory, held) = ampere_owned::hold(directory).map_err(|why| refuse("use", words_of(&why)))?;
    // This may be another directory than the one that was checked before.
    if holds_results(&directory) {
        return Err(ClaimError::holds_results(&directory));
    }
    Ok((directory, is_new, held))
}

/// Returns why a directory is not used, for a message that has already named it.
fn words_of(why: &std::io::Error) -> String {
    use ampere_owned::Refusal;
    let of = |owner: u32| user_text(owner);
    match ampere_owned::refusal(why) {
        Some(Refusal::OfAnother { owner, .. }) => format!("it belongs to another user ({})", of(*owner)),
        Some(Refusal::LinkOfAnother { owner, .. }) => {
            format!("it leads through a link of another user ({})", of(*owner))
        }
        _ => why.to_string(),
    }
}

/// Returns the line about an unfinished run of another user.
pub fn foreign_run(directory: &Path, owner: u32) -> String {
    let (shown, owner) = (directory.display(), user_text(owner));
    format!(
        "{shown} belongs to {owner}: only that user can finish the run if it was interrupted (ampere recover {shown})"
    )
}

/// Returns the user's name or else the number.
pub fn user_text(user: u32) -> String {
    let known = uzers::get_user_by_uid(user);
    known.map_or_else(|| user.to_string(), |known| printable(&known.name().to_string_lossy()))
}

/// Whether a directory belongs to another user and lets every user replace files of others in it.
fn is_world_writable_without_sticky_bit(directory: &Path) -> bool {
    let own = rustix::process::geteuid().as_raw();
    std::fs::metadata(directory).is_ok_and(|data| data.uid() != own && data.mode() & 0o1002 == 0o002)
}

/// Makes the directory again if it has been removed. An existing one must be this user's. While the result exists, all actions at
/// this path are done in that directory.
pub fn remake(directory: &Path, run_id: &str) -> Result<Option<Held>, ClaimError> {
    match make(directory) {
        Err(_) => Ok(None), // the error is reported when the directory is written to
        // Somebody has put another run's directory there.
        Ok(false) if holds_results(directory) && !is_of_run(directory, run_id) => {
            Err(ClaimError::holds_results(directory))
        }
        Ok(is_new) => match ampere_owned::hold_anew(directory) {
            Ok(held) => Ok(Some(held)),
            Err(_) if is_new => Ok(None),
            Err(why) => Err(ClaimError::unusable("use", directory, words_of(&why))),
        },
    }
}

/// Renames a claim. If the file system cannot rename, the claim is made again under its final name, and has no manifest for a
/// moment.
fn put_in_place(making: &Path, spool: &Path) -> std::io::Result<()> {
    match ampere_owned::rename(making, spool) {
        Err(why) if is_without_rename(&why) => {}
        renamed => return renamed,
    }
    ampere_owned::make(spool, PRIVATE_MODE)?;
    for entry in std::fs::read_dir(making)? {
        let file = entry?;
        let text = ampere_owned::read(&file.path(), manifest::BYTES_MAX)?;
        write_private(&spool.join(file.file_name()), &text)?;
    }
    ampere_owned::remove_tree(making)
}

fn write_private(path: &Path, text: &[u8]) -> std::io::Result<()> {
    ampere_owned::create(path, PRIVATE_FILE_MODE)?.write_all(text)
}

/// Holds a claim that has just been renamed, after checking that it is still the one with this manifest.
fn hold_claim(spool: &Path, manifest: &str) -> std::io::Result<Held> {
    let (_, held) = ampere_owned::hold(spool)?;
    let found = ampere_owned::read(&spool.join(MANIFEST), manifest::BYTES_MAX)?;
    if found == manifest.as_bytes() { Ok(held) } else { Err(std::io::ErrorKind::AlreadyExists.into()) }
}

fn claim_here(
    directory: PathBuf,
    (is_new, held): (bool, Held),
    node: &str,
    manifest: &str,
) -> Result<Output, ClaimError> {
    let spool = directory.join(format!("{CLAIM}{node}"));
    // The claim is made under another name and renamed, so that it is never seen without its manifest. Renaming does not replace
    // a directory that is not empty.
    let making = directory.join(format!(".{CLAIM}{node}.{}", own_name()));
    remove_unfinished_claims(&directory, node);
    let claimed = ampere_owned::make(&making, PRIVATE_MODE)
        .and_then(|()| write_private(&making.join(MANIFEST), manifest.as_bytes()))
        .and_then(|()| if is_new { write_private(&making.join(IS_NEW), b"") } else { Ok(()) })
        .and_then(|()| put_in_place(&making, &spool))
        .and_then(|()| hold_claim(&spool, manifest));
    match claimed {
        // Another run may have ended here since the directory was entered.
        Ok(_held) if holds_results(&directory) => {
            manifest::remove_spool(&spool);
            Err(ClaimError::holds_results(&directory))
        }
        Ok(of_spool) => Ok(Output { directory, spool, is_new, _held: Arc::new(vec![held, of_spool]) }),
        Err(error) => {
            let _ = ampere_owned::remove_tree(&making);
            use std::io::ErrorKind::{AlreadyExists, DirectoryNotEmpty, NotADirectory};
            let in_use = [AlreadyExists, DirectoryNotEmpty, NotADirectory];
            if !in_use.contains(&error.kind()) {
                return Err(ClaimError::unusable("write to", &directory, error));
            }
            Err(ClaimError::InUse { directory, spool })
        }
    }
}

/// Makes a directory and those above it, unless it exists. Returns whether this call made it, because another process may do so
/// at any moment.
fn make(directory: &Path) -> std::io::Result<bool> {
    use std::io::ErrorKind;
    let create = || ampere_owned::make(directory, directory_mode());
    let made = create().or_else(|error| {
        let above = directory.parent().filter(|_| error.kind() == ErrorKind::NotFound).ok_or(error)?;
        ampere_owned::make_all(above, directory_mode())?;
        create()
    });
    let is_there = [ErrorKind::AlreadyExists, ErrorKind::InvalidInput]; // a path like `..` has no name
    match made {
        Ok(()) => Ok(true),
        Err(error) if is_there.contains(&error.kind()) && directory.is_dir() => Ok(false),
        Err(error) => Err(error),
    }
}

/// Returns the other nodes that have claimed the directory.
fn others(directory: &Path, node: &str) -> Vec<String> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().to_str().map(str::to_owned));
    names
        .filter_map(|name| name.strip_prefix(CLAIM).map(str::to_owned))
        .filter(|other| other != node)
        .collect()
}

impl Output {
    /// Returns the output of an earlier collector's claim.
    pub fn of_spool(spool: &Path) -> Output {
        let directory = spool.parent().unwrap_or(Path::new(".")).to_owned();
        let _held = Arc::default();
        Output { directory, spool: spool.to_owned(), is_new: exists(&spool.join(IS_NEW)), _held }
    }

    /// Returns the same output, with both directories held from now on.
    pub fn held(self) -> Output {
        let both =
            [&self.directory, &self.spool].into_iter().filter_map(|path| ampere_owned::hold(path).ok());
        let _held = Arc::new(both.map(|(_, held)| held).collect());
        Output { _held, ..self }
    }

    /// Whether both of its directories are held.
    pub fn is_held(&self) -> bool {
        self._held.len() == 2
    }

    /// Returns the output directory of the run's first node, if this one is another node's.
    pub fn first_nodes_directory(&self, node: &str) -> Option<PathBuf> {
        let node = file_name(node);
        let above = self
            .directory
            .parent()
            .filter(|_| self.directory.file_name().is_some_and(|own| *own == *node))?;
        let owner = std::fs::read_link(above.join(OWNER)).ok()?;
        (owner != Path::new(&node)).then(|| above.to_owned())
    }

    /// Writes `collector.json`, which contains the addresses at which this collector can be reached while the job runs.
    pub fn announce(&self, url: &str, node: &str, run: &str) -> Result<(), WriteError> {
        let is_any = ["http://0.0.0.0:", "http://[::]:"].iter().any(|any| url.starts_with(any));
        let addresses = if is_any { own_addresses() } else { Vec::new() };
        let pid = std::process::id();
        let text =
            serde_json::json!({ "pid": pid, "url": url, "node": node, "run": run, "addresses": addresses });
        let path = self.directory.join("collector.json");
        files::write_result_privately(&path, &format!("{text}\n"))
    }

    /// Returns where an earlier collector could be reached.
    pub fn announced(&self) -> Option<Listen> {
        let text = ampere_owned::read(&self.directory.join("collector.json"), ANNOUNCED_BYTES_MAX).ok()?;
        let json: serde_json::Value = serde_json::from_slice(&text).ok()?;
        let url = json.get("url")?.as_str()?;
        url.strip_prefix("http://").unwrap_or(url).parse().ok()
    }

    /// Frees the disk space that a killed collector may have reserved.
    pub fn release_reserve(&self) {
        disk_space::release_reserve(&self.spool);
    }

    /// Removes `collector.json`, because the collector can no longer be reached.
    pub fn end_announcement(&self) {
        let _ = ampere_owned::remove_file(&self.directory.join("collector.json"));
    }

    /// Removes the claim, and the directory if it is new and empty. A spool with records is kept.
    pub fn give_up(&self) {
        self.end_announcement();
        let has_records = match Manifest::load(&self.spool) {
            Ok(manifest) => manifest.store(&self.spool).records_of_all(|_| true) > 0,
            // It may have records.
            Err(ManifestError::Unreadable { why, .. }) => why.kind() != std::io::ErrorKind::NotFound,
            Err(_) => false,
        };
        if has_records {
            return;
        }
        manifest::remove_spool(&self.spool);
        self.release();
        remove_if_new(&self.directory, self.is_new);
    }

    /// Lets another node own the directory, if nothing in it remains to be finished.
    pub fn release(&self) {
        let spool = self.spool.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        release(&self.directory, spool.strip_prefix(CLAIM).unwrap_or_default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ampere_ring::{Kind, Record};
    use ampere_trace::spool::SpoolDirectory;

    #[test]
    fn each_node_that_is_sent_to_one_directory_gets_its_own() {
        let place = tempfile::tempdir().unwrap();
        let wanted = place.path().join("out");
        let first = claim(&wanted, "frontier2", "{}").unwrap();
        let second = claim(&wanted, "frontier1", "{}").unwrap();
        assert_eq!(first.directory, wanted.canonicalize().unwrap());
        assert_eq!(second.directory, first.directory.join("frontier1"));
        assert!(first.spool.is_dir() && second.spool.is_dir());
        second.give_up();
        assert!(!second.directory.exists() && first.spool.is_dir());
        assert_eq!(std::fs::read_link(wanted.join(OWNER)).unwrap(), Path::new("frontier2"));
        first.release();
        assert!(wanted.join(OWNER).symlink_metadata().is_ok(), "an unfinished run keeps its directory");
        manifest::remove_spool(&first.spool);
        first.release();
        assert!(std::fs::read_dir(&wanted).unwrap().next().is_none());
    }

    #[test]
    fn only_one_of_many_nodes_that_claim_at_once_gets_the_directory() {
        let place = tempfile::tempdir().unwrap();
        for round in 0..20 {
            let wanted = place.path().join(round.to_string());
            let claims: Vec<Output> = std::thread::scope(|scope| {
                let claim = |node: i32| {
                    let wanted = &wanted;
                    scope.spawn(move || claim(wanted, &format!("node{node}"), "{}").unwrap())
                };
                let threads: Vec<_> = (0..6).map(claim).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            let above = wanted.canonicalize().unwrap();
            let winners: Vec<_> = claims.iter().filter(|output| output.directory == above).collect();
            assert_eq!(winners.len(), 1, "{claims:?}");
            for (node, output) in claims.iter().enumerate().filter(|(_, output)| output.directory != above) {
                assert_eq!(output.directory, above.join(format!("node{node}")));
            }
        }
    }

    #[test]
    fn a_claim_below_another_nodes_directory_is_found_from_it() {
        let place = tempfile::tempdir().unwrap();
        let session = Path::new("/dev/shm/ampere-1/s-job");
        let manifest = Manifest::new(session, "job", &[], None);
        claim(place.path(), "first", "{}").unwrap();
        let second = claim(place.path(), "second", &manifest.text()).unwrap();
        assert_eq!(claimed_by(session, place.path(), "second").unwrap(), (second, manifest));
    }

    #[test]
    fn a_directory_with_results_or_of_a_running_run_is_refused() {
        let place = tempfile::tempdir().unwrap();
        claim(place.path(), "node", "{}").unwrap();
        let refused = claim(place.path(), "node", "{}").unwrap_err().to_string();
        assert!(refused.contains("in use by another run"), "{refused}");
        for name in TRACE.into_iter().chain(["summary.json", "summary.txt"]) {
            let place = tempfile::tempdir().unwrap();
            std::fs::create_dir(place.path().join(name)).unwrap();
            let refused = claim(place.path(), "node", "{}").unwrap_err().to_string();
            assert!(refused.contains("results of another run"), "{refused}");
        }
    }

    #[test]
    fn a_foreign_page_is_recognised() {
        let place = tempfile::tempdir().unwrap();
        let page = place.path().join(PAGE);
        assert!(!holds_foreign_page(place.path(), "run-1"));
        std::fs::write(&page, "<html><title>coverage</title>").unwrap();
        assert!(holds_foreign_page(place.path(), "run-1") && !holds_results(place.path()));
        let empty = ampere_figures::summary::Summary::new(
            &ampere_timeline::attributor::Attributor::new(ampere_settings::Config::default(), 1),
            None,
            ampere_figures::summary::Run { id: "run-1".to_owned(), ..Default::default() },
            Default::default(),
        );
        let ours = ampere_report::render(
            &empty,
            ampere_report::Format::Html,
            ampere_report::first::screen::Screen::FILE,
        )
        .unwrap();
        std::fs::write(&page, ours).unwrap();
        assert!(!holds_foreign_page(place.path(), "run-1") && holds_foreign_page(place.path(), "run-2"));
        std::fs::remove_file(&page).unwrap();
        std::fs::create_dir(&page).unwrap();
        assert!(holds_foreign_page(place.path(), "run-1"));
    }

    #[test]
    fn a_collector_that_takes_over_finds_the_claim_of_its_own_session() {
        let place = tempfile::tempdir().unwrap();
        let session = Path::new("/dev/shm/ampere-1/s-job");
        let manifest = Manifest::new(session, "job", &[], None);
        let output = claim(place.path(), "node", &manifest.text()).unwrap();
        let found = claimed_by(session, &output.directory, "node").unwrap();
        assert_eq!(found, (output, manifest));
        assert_eq!(claimed_by(Path::new("/dev/shm/ampere-1/s-other"), &found.0.directory, "node"), None);
        assert_eq!(claimed_by(session, &found.0.directory, "other"), None);
    }

    #[test]
    fn a_session_is_recognised_through_a_link() {
        let place = tempfile::tempdir().unwrap();
        let (shm, link) = (place.path().join("shm"), place.path().join("link"));
        std::fs::create_dir_all(shm.join("s-job")).unwrap();
        std::os::unix::fs::symlink(&shm, &link).unwrap();
        let manifest = Manifest::new(&link.join("s-job"), "job", &[], None);
        let output = claim(&place.path().join("out"), "node", &manifest.text()).unwrap();
        assert!(claimed_by(&shm.join("s-job"), &output.directory, "node").is_some());
        assert!(claimed_by(&shm.join("s-other"), &output.directory, "node").is_none());
    }

    #[test]
    fn a_directory_that_exists_is_not_new() {
        let place = tempfile::tempdir().unwrap();
        let wanted = place.path().join("a/b/out");
        assert!(make(&wanted).unwrap());
        assert!(!make(&wanted).unwrap());
        assert!(!make(Path::new(".")).unwrap() && !make(Path::new("/")).unwrap());
        assert!(!make(&place.path().join("a/b/..")).unwrap());
        std::os::unix::fs::symlink(&wanted, place.path().join("link")).unwrap();
        assert!(!make(&place.path().join("link")).unwrap());
        std::fs::write(place.path().join("file"), "").unwrap();
        assert!(make(&place.path().join("file")).is_err() && make(&place.path().join("file/out")).is_err());
    }

    #[test]
    fn only_a_trace_that_a_collector_has_begun_is_removed() {
        let place = tempfile::tempdir().unwrap();
        let theirs = ["traces/week.dat", "traces.def", "traces.otf2"];
        for name in theirs {
            let path = place.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "theirs").unwrap();
        }
        let mut manifest = Manifest::new(Path::new("/dev/shm/ampere-1/s-job"), "job", &[], None);
        remove_unfinished_trace(place.path(), &mut manifest);
        assert!(theirs.iter().all(|name| place.path().join(name).exists()));
        manifest.progress.trace_begun = true;
        remove_unfinished_trace(place.path(), &mut manifest);
        assert!(!manifest.progress.trace_begun && std::fs::read_dir(place.path()).unwrap().next().is_none());
    }

    #[test]
    fn giving_up_keeps_records() {
        let place = tempfile::tempdir().unwrap();
        let manifest = Manifest::new(place.path(), "run", &[], None);
        let output = claim(place.path(), "node", &manifest.text()).unwrap();
        let spool = SpoolDirectory::new(&output.spool, manifest.store(&output.spool), true, false);
        spool.open("1.0", 0).unwrap().write(0, &[Record::new(Kind::Enter, 1, 1)]).unwrap();
        spool.store().flush().unwrap();
        output.give_up();
        assert!(output.spool.join(MANIFEST).exists());
    }

    #[test]
    fn giving_up_keeps_the_users_files() {
        let place = tempfile::tempdir().unwrap();
        claim(place.path(), "node", "{}").unwrap().give_up();
        assert!(place.path().exists(), "it existed before");
        let made = claim(&place.path().join("out"), "node", "{}").unwrap();
        Output::of_spool(&made.spool).give_up();
        assert!(!made.directory.exists());
        std::fs::write(place.path().join("notes.txt"), "mine").unwrap();
        claim(place.path(), "../node", "{}").unwrap().give_up();
        assert!(place.path().join("notes.txt").exists());
    }
}
