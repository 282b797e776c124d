//! The output directory: whose it is, and what may be in it.
//!
//! A collector claims it by making `spool-<node>` there. Collectors of several nodes that are sent to one directory do
//! not mix their results: the first one has it, the others get a directory of their node's name in it. Which one is the first is
//! in the link `.ampere-owner`, which goes when there is nothing left to be finished.

use crate::run_directory::manifest::{self, Manifest};
use crate::serving::listen::Listen;
use ampere_report;
use ampere_report::clock_text;
use ampere_ring::files::write_private;
use ampere_ring::process::own_name;
use std::io::Read;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

const TRACE: [&str; 3] = ["traces.otf2", "traces.def", "traces"];
/// What is written of a run beside its trace.
pub const RESULTS: [&str; 3] = ["summary.json", "summary.txt", PAGE];
/// A common name: one that lies there is no reason not to measure, and stays.
pub const PAGE: &str = "report.html";
/// What to do about a directory that cannot be used.
pub const ADVICE: &str = "choose another output directory with -o or AMPERE_OUTPUT";
/// What a claim begins with.
pub const CLAIM: &str = "spool-";

/// A claimed directory.
#[derive(Debug, PartialEq)]
pub struct Output {
    pub directory: PathBuf,
    /// Where records lie until the trace is written.
    pub spool: PathBuf,
    /// The directory was made for this, and goes if nothing comes of it.
    is_new: bool,
}

/// In the spool of a run whose directory is new.
const IS_NEW: &str = "directory-is-new";

/// A new directory in the current one, named after now and the run.
pub fn default_directory(run_id: &str) -> PathBuf {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let hash = run_id.bytes().fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3) // FNV-1a
    });
    PathBuf::from(format!("ampere-{}_{:06x}", clock_text::compact(now.as_nanos() as u64), hash & 0xff_ffff))
}

/// Claims the directory that is wanted. `manifest`: what is needed to finish the run ([`crate::run_directory::manifest`]); a claim never
/// lacks it.
pub fn claim(wanted: &Path, node: &str, manifest: &str) -> Result<Output, String> {
    let node = file_name(node);
    let refuse = |why: std::io::Error| format!("cannot write to {}: {why}; {ADVICE}", wanted.display());
    if others(wanted, &node).is_empty() {
        let (directory, is_new) = enter(wanted)?;
        let is_owner = becomes_owner(&directory, &node).inspect_err(|_| remove_if_new(&directory, is_new));
        if is_owner.map_err(refuse)? {
            let claimed = claim_here(directory.clone(), is_new, &node, manifest);
            if claimed.is_err() {
                release(&directory, &node);
                remove_if_new(&directory, is_new);
            }
            return claimed;
        }
    }
    let (directory, is_new) = enter(&wanted.join(&node))?;
    claim_here(directory.clone(), is_new, &node, manifest).inspect_err(|_| remove_if_new(&directory, is_new))
}

/// Which node has a directory: a link that leads nowhere, and whose text is the node's name. A link is made with its text or
/// not at all, by one node, on file systems of networks as well.
const OWNER: &str = ".ampere-owner";

/// Whether the directory is this node's. One node becomes its owner, whoever else tries at the same moment.
fn becomes_owner(directory: &Path, node: &str) -> std::io::Result<bool> {
    use rustix::io::Errno;
    match rustix::fs::symlink(node, directory.join(OWNER)) {
        Ok(()) => Ok(true),
        Err(Errno::EXIST) => Ok(is_owner(directory, node)),
        // There are no links on this file system, and hardly another node that uses it.
        Err(Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS) => Ok(true),
        Err(error) => Err(error.into()),
    }
}

fn is_owner(directory: &Path, node: &str) -> bool {
    std::fs::read_link(directory.join(OWNER)).is_ok_and(|owner| owner == Path::new(node))
}

/// Gives up the directory, if nothing of this node's is left in it that is to be finished.
fn release(directory: &Path, node: &str) {
    if is_owner(directory, node) && !is_there(&directory.join(format!("{CLAIM}{node}"))) {
        let _ = std::fs::remove_file(directory.join(OWNER));
    }
}

fn remove_if_new(directory: &Path, is_new: bool) {
    if is_new {
        let _ = std::fs::remove_dir(directory); // fails where there is something in it
    }
}

/// What an earlier collector of this session has claimed, with the manifest of the run.
pub fn claimed_by(session: &Path, directory: &Path, node: &str) -> Option<(Output, Manifest)> {
    let node = file_name(node);
    let spool = format!("{CLAIM}{node}");
    // It may have been killed before it could say that another node has the directory, and that it has its own in it.
    [directory.join(&spool), directory.join(&node).join(&spool)].iter().find_map(|spool| {
        let manifest = Manifest::load(spool).ok().filter(|manifest| is_same(&manifest.session, session))?;
        Some((Output::of_spool(spool), manifest))
    })
}

/// A session has as many paths as there are links on the way to it.
pub fn is_same(one: &Path, other: &Path) -> bool {
    one == other
        || std::fs::canonicalize(one).is_ok_and(|one| std::fs::canonicalize(other).is_ok_and(|o| o == one))
}

/// Takes away what is left of the spool of a run that is finished. `false`: there are records that are to be finished yet,
/// those of another run then.
pub fn remove_rest(directory: &Path, node: &str) -> bool {
    let output = Output::of_spool(&directory.join(format!("{CLAIM}{}", file_name(node))));
    if is_there(&output.spool.join(manifest::FILE_NAME)) {
        return false; // which goes first where a run is finished
    }
    manifest::remove_spool(&output.spool);
    output.release();
    true
}

/// Claims that were killed in the making.
fn remove_half_claims(directory: &Path, node: &str) {
    let prefix = format!(".{CLAIM}{node}.");
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.strip_prefix(&prefix).is_some_and(ampere_ring::process::is_gone) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

/// Takes away the trace that a collector had begun to write of a run that is not finished. What has a trace's names and was
/// not begun by a collector is somebody else's, and stays.
pub fn remove_half_results(directory: &Path, manifest: &mut Manifest) {
    if !std::mem::take(&mut manifest.trace_begun) {
        return;
    }
    let _ = std::fs::remove_file(directory.join("traces.otf2"));
    let _ = std::fs::remove_file(directory.join("traces.def"));
    let _ = std::fs::remove_dir_all(directory.join("traces"));
}

/// Whether a run has left its results there: they are not written over.
pub fn holds_results(directory: &Path) -> bool {
    result_in(directory).is_some()
}

fn result_in(directory: &Path) -> Option<&'static str> {
    let names = RESULTS.into_iter().filter(|name| *name != PAGE).chain(TRACE);
    names.into_iter().find(|name| is_there(&directory.join(name)))
}

/// Whether they are this run's.
pub fn holds_results_of(directory: &Path, run_id: &str) -> bool {
    #[derive(serde::Deserialize)]
    struct Named {
        run: Id,
    }
    #[derive(serde::Deserialize)]
    struct Id {
        id: String,
    }
    let text = std::fs::read(directory.join("summary.json")).unwrap_or_default();
    serde_json::from_slice::<Named>(&text).is_ok_and(|named| named.run.id == run_id)
}

/// Whether a page lies there that is not this run's.
pub fn holds_foreign_page(directory: &Path, run_id: &str) -> bool {
    let path = directory.join(PAGE);
    let Ok(there) = path.symlink_metadata() else { return false };
    let mut beginning = Vec::new();
    // A pipe would be waited for.
    let is_read = there.is_file()
        && std::fs::File::open(&path).is_ok_and(|file| file.take(1024).read_to_end(&mut beginning).is_ok());
    !(is_read && String::from_utf8_lossy(&beginning).contains(&ampere_report::page_mark(run_id).0))
}

/// Whether something there has one of a trace's names.
pub fn holds_trace(directory: &Path) -> bool {
    TRACE.iter().any(|name| is_there(&directory.join(name)))
}

/// A link that leads nowhere is there, too: a trace would be written to where it leads.
fn is_there(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}

/// A directory of this user's that holds no results, by its whole path, and whether it was made for this.
fn enter(directory: &Path) -> Result<(PathBuf, bool), String> {
    let refuse = |what: &str, why: String| format!("cannot {what} {}: {why}; {ADVICE}", directory.display());
    if holds_results(directory) {
        return Err(held(directory));
    }
    let above = std::path::absolute(directory).ok().and_then(|path| path.parent().map(Path::to_owned));
    if let Some(above) = above.filter(|above| is_anybodys(above)) {
        return Err(refuse("use", format!("everybody may exchange what is in {}", above.display())));
    }
    let is_new = make(directory).map_err(|e| refuse("create", e.to_string()))?;
    let directory = std::fs::canonicalize(directory).map_err(|e| refuse("find", e.to_string()))?;
    if !is_new {
        is_ours(&directory)?;
    }
    Ok((directory, is_new))
}

/// It is somebody else's, and everybody may write there and put things in the place of other people's: it is not sticky.
fn is_anybodys(directory: &Path) -> bool {
    let own = rustix::process::geteuid().as_raw();
    std::fs::metadata(directory).is_ok_and(|data| data.uid() != own && data.mode() & 0o1002 == 0o002)
}

/// Who owns a directory can put links in the way of what is written there.
fn is_ours(directory: &Path) -> Result<(), String> {
    let refuse = |why: String| Err(format!("cannot use {}: {why}; {ADVICE}", directory.display()));
    match std::fs::metadata(directory) {
        Ok(data) if data.uid() == rustix::process::geteuid().as_raw() => Ok(()),
        Ok(data) => refuse(format!("it belongs to somebody else (user {})", data.uid())),
        Err(error) => refuse(error.to_string()),
    }
}

/// Makes it again where it has been removed. What is in its place by now has to be this user's.
pub fn remake(directory: &Path) -> Result<(), String> {
    match make(directory) {
        Ok(false) => is_ours(directory),
        _ => Ok(()), // what cannot be made is told when it is written to
    }
}

fn held(directory: &Path) -> String {
    let name = result_in(directory).unwrap_or_default();
    format!("{} holds the results of another run ({name}); {ADVICE}", directory.display())
}

fn claim_here(directory: PathBuf, is_new: bool, node: &str, manifest: &str) -> Result<Output, String> {
    let spool = directory.join(format!("{CLAIM}{node}"));
    // Made under another name and renamed, so that who finds it finds it whole. Renaming replaces no directory with
    // something in it.
    let making = directory.join(format!(".{CLAIM}{node}.{}", own_name()));
    remove_half_claims(&directory, node);
    let claimed = std::fs::DirBuilder::new()
        .mode(0o700)
        .create(&making)
        .and_then(|()| write_private(&making.join(manifest::FILE_NAME), manifest))
        .and_then(|()| if is_new { write_private(&making.join(IS_NEW), "") } else { Ok(()) })
        .and_then(|()| std::fs::rename(&making, &spool));
    match claimed {
        // The run that had it may have ended since that was looked at.
        Ok(()) if holds_results(&directory) => {
            manifest::remove_spool(&spool);
            Err(held(&directory))
        }
        Ok(()) => Ok(Output { directory, spool, is_new }),
        Err(error) => {
            let _ = std::fs::remove_dir_all(&making);
            let in_use = [std::io::ErrorKind::AlreadyExists, std::io::ErrorKind::DirectoryNotEmpty];
            if !in_use.contains(&error.kind()) {
                return Err(format!("cannot write to {}: {error}; {ADVICE}", directory.display()));
            }
            Err(format!(
                "{} is in use by another run, or holds one that was killed ({}; `ampere recover` finishes it); {ADVICE}",
                directory.display(),
                spool.display()
            ))
        }
    }
}

/// Makes a directory if it is not there, with those above it. Whether it was this that made it: somebody else may do so at
/// any moment, where he may write.
fn make(directory: &Path) -> std::io::Result<bool> {
    use std::io::ErrorKind;
    // Not for everybody to write to, whatever the umask lets.
    let create = || std::fs::DirBuilder::new().mode(0o775).create(directory);
    let made = create().or_else(|error| {
        let above = directory.parent().filter(|_| error.kind() == ErrorKind::NotFound).ok_or(error)?;
        std::fs::create_dir_all(above)?;
        create()
    });
    match made {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::AlreadyExists && directory.is_dir() => Ok(false),
        Err(error) => Err(error),
    }
}

/// Nodes other than this that have claimed the directory.
fn others(directory: &Path, node: &str) -> Vec<String> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().to_str().map(str::to_owned));
    names
        .filter_map(|name| name.strip_prefix(CLAIM).map(str::to_owned))
        .filter(|other| other != node)
        .collect()
}

pub(crate) fn file_name(node: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '_' };
    let name: String = node.chars().map(plain).collect();
    let name = name.trim_start_matches('.');
    if name.is_empty() { "node".to_owned() } else { name.to_owned() }
}

impl Output {
    /// One that an earlier collector has claimed.
    pub fn of_spool(spool: &Path) -> Output {
        let directory = spool.parent().unwrap_or(Path::new(".")).to_owned();
        Output { directory, spool: spool.to_owned(), is_new: is_there(&spool.join(IS_NEW)) }
    }

    /// `collector.json`: where we can be found while the job runs.
    pub fn announce(&self, url: &str, node: &str, run: &str) -> Result<(), String> {
        let text = serde_json::json!({ "pid": std::process::id(), "url": url, "node": node, "run": run });
        // Whole or not at all, and nobody else's business.
        let (path, making) = (self.directory.join("collector.json"), self.directory.join("collector.part"));
        write_private(&making, &format!("{text}\n"))
            .and_then(|()| std::fs::rename(&making, &path))
            .map_err(|e| format!("cannot write {}: {e}", path.display()))
    }

    /// Where the collector before this one was to be found.
    pub fn announced(&self) -> Option<Listen> {
        let text = std::fs::read(self.directory.join("collector.json")).ok()?;
        let json: serde_json::Value = serde_json::from_slice(&text).ok()?;
        let url = json.get("url")?.as_str()?;
        url.strip_prefix("http://").unwrap_or(url).parse().ok()
    }

    pub fn end_announcement(&self) {
        let _ = std::fs::remove_file(self.directory.join("collector.json"));
    }

    /// Gives the directory back if nothing came of it. Records that there are stay, and nothing goes that is not ours.
    pub fn give_up(&self) {
        self.end_announcement();
        let mut files = std::fs::read_dir(&self.spool).into_iter().flatten().flatten();
        let has_records = |file: std::fs::DirEntry| {
            file.path().extension().is_some_and(|e| e == "records")
                && file.metadata().is_ok_and(|m| m.len() > 0)
        };
        if files.any(has_records) {
            return;
        }
        manifest::remove_spool(&self.spool);
        self.release();
        remove_if_new(&self.directory, self.is_new);
    }

    /// Other nodes may have the directory from now on, if there is nothing in it that is to be finished.
    pub fn release(&self) {
        let spool = self.spool.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        release(&self.directory, spool.strip_prefix(CLAIM).unwrap_or_default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_that_are_sent_to_one_directory_do_not_mix() {
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
        assert!(wanted.join(OWNER).symlink_metadata().is_ok(), "there is something to be finished");
        manifest::remove_spool(&first.spool);
        first.release();
        assert!(std::fs::read_dir(&wanted).unwrap().next().is_none());
    }

    #[test]
    fn of_many_nodes_at_the_same_moment_one_has_the_directory() {
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
        let refused = claim(place.path(), "node", "{}").unwrap_err();
        assert!(refused.contains("in use by another run"), "{refused}");
        for name in TRACE.into_iter().chain(["summary.json", "summary.txt"]) {
            let place = tempfile::tempdir().unwrap();
            std::fs::create_dir(place.path().join(name)).unwrap();
            let refused = claim(place.path(), "node", "{}").unwrap_err();
            assert!(refused.contains("results of another run"), "{refused}");
        }
    }

    #[test]
    fn a_page_of_somebody_elses_is_known() {
        let place = tempfile::tempdir().unwrap();
        let page = place.path().join(PAGE);
        assert!(!holds_foreign_page(place.path(), "run-1"));
        std::fs::write(&page, "<html><title>coverage</title>").unwrap();
        assert!(holds_foreign_page(place.path(), "run-1") && !holds_results(place.path()));
        let empty = ampere_report::summary::Summary::new(
            &ampere_timeline::attributor::Attributor::new(ampere_settings::Config::default(), 1),
            None,
            ampere_report::summary::Run { id: "run-1".to_owned(), ..Default::default() },
            Default::default(),
        );
        let ours = ampere_report::render(&empty, ampere_report::Format::Html, false).unwrap();
        std::fs::write(&page, ours).unwrap();
        assert!(!holds_foreign_page(place.path(), "run-1") && holds_foreign_page(place.path(), "run-2"));
        std::fs::remove_file(&page).unwrap();
        std::fs::create_dir(&page).unwrap();
        assert!(holds_foreign_page(place.path(), "run-1"));
    }

    #[test]
    fn who_takes_over_finds_the_claim_of_its_own_session() {
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
    fn a_session_is_known_through_a_link() {
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
    fn what_somebody_has_made_first_was_not_made_by_us() {
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
    fn only_a_trace_that_a_collector_has_begun_is_taken_away() {
        let place = tempfile::tempdir().unwrap();
        let theirs = ["traces/week.dat", "traces.def", "traces.otf2"];
        for name in theirs {
            let path = place.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "theirs").unwrap();
        }
        let mut manifest = Manifest::new(Path::new("/dev/shm/ampere-1/s-job"), "job", &[], None);
        remove_half_results(place.path(), &mut manifest);
        assert!(theirs.iter().all(|name| place.path().join(name).exists()));
        manifest.trace_begun = true;
        remove_half_results(place.path(), &mut manifest);
        assert!(!manifest.trace_begun && std::fs::read_dir(place.path()).unwrap().next().is_none());
    }

    #[test]
    fn records_are_not_given_up() {
        let place = tempfile::tempdir().unwrap();
        let output = claim(place.path(), "node", "{}").unwrap();
        std::fs::write(output.spool.join("1.0.records"), "something").unwrap();
        output.give_up();
        assert!(output.spool.join(manifest::FILE_NAME).exists());
    }

    #[test]
    fn what_is_the_users_stays() {
        let place = tempfile::tempdir().unwrap();
        claim(place.path(), "node", "{}").unwrap().give_up();
        assert!(place.path().exists(), "an empty directory is the user's, too");
        let made = claim(&place.path().join("out"), "node", "{}").unwrap();
        Output::of_spool(&made.spool).give_up();
        assert!(!made.directory.exists());
        std::fs::write(place.path().join("notes.txt"), "mine").unwrap();
        claim(place.path(), "../node", "{}").unwrap().give_up();
        assert!(place.path().join("notes.txt").exists());
    }
}
