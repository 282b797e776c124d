//! Sessions and spools that a killed collector may have left: whether they are in use, and what is in them.
//!
//! A process is identified by pid, start time and boot; a living collector holds a lock, which the kernel releases at its
//! death.

use crate::run_directory::files::MANIFEST;
use crate::run_directory::manifest::{self, Manifest, ManifestError, NoRecords};
use crate::run_directory::output::{self, CLAIM, Output};
use ampere_model::Definition;
#[cfg(test)]
use ampere_ring::process::node_name;
use ampere_ring::process::{is_alive, names_of_this_node};
use ampere_ring::{LogReader, Session, session};
use ampere_trace::spool::RECORDS;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

/// Files of another node that are older than this are not in use, even if the nodes' clocks differ.
const UNUSED_AGE_MIN: Duration = Duration::from_secs(600);
/// A collector counts as dead if it has not touched its manifest for this long. One heartbeat may be missed, and the next one may
/// be late.
pub const SILENCE_MAX: Duration = manifest::HEARTBEAT.saturating_mul(5).checked_div(2).unwrap();
/// The time between two checks of [`watch`].
const CHECK_PERIOD: Duration = Duration::from_millis(200);

/// A session in shared memory, or a spool whose session is gone.
#[derive(Debug)]
pub struct Leftover {
    /// The session's directory in shared memory; `None` if only the spool is left.
    pub session: Option<PathBuf>,
    /// The output directory, if one was claimed.
    pub output: Option<Output>,
    pub manifest: Option<Manifest>,
    /// When it was last changed.
    pub changed: Option<SystemTime>,
    /// The number of processes that have joined.
    pub processes: usize,
    /// The greatest job size that a process reported; if that is at most 1, the number of processes with a rank.
    pub ranks: u32,
    /// The number of recorded events.
    pub events: u64,
    /// Whether the run's results are complete, because the collector was killed only while it cleaned up.
    pub is_done: bool,
    /// The reason why it must not be changed, in a few words; `None` if it may be.
    pub in_use: Option<String>,
    /// Whether this is from another node or from before a reboot, and was changed recently. Only [`watch`] can find out whether
    /// it is in use.
    pub may_be_written: bool,
}

impl Leftover {
    /// Returns what is in a session; `None` if the directory is not a session of this user's ampere.
    pub fn of_session(directory: &Path) -> Option<Leftover> {
        let session = Session::open(directory).ok()?;
        let claimed = session.output().and_then(|output| {
            names_of_this_node().iter().find_map(|node| output::claimed_by(directory, &output, node))
        });
        let (output, manifest) = claimed.unzip();
        let is_done = output.is_none()
            && session.output().is_some_and(|output| output::holds_results_of(&output, &run_id(directory)));
        let (processes, ranks, alive) = read_logs(directory, session.is_of_this_boot());
        let locks = session.locks();
        let in_use = if locks.collector {
            Some(format!("its collector, process {}, is running", session.collector_pid()))
        } else if session.is_of_this_boot() && session.has_waiter() {
            Some("its `ampere run` is running".to_owned())
        } else if locks.start {
            Some("its collector is being started".to_owned())
        } else {
            alive.map(|pid| format!("its process {pid} is running"))
        };
        // The rings of ended processes have been removed, and their records are only on disk.
        let spooled = output.as_ref().zip(manifest.as_ref()).filter(|_| in_use.is_none());
        let on_disk = spooled.map_or(0, |(output, manifest)| records_in_spool(&output.spool, manifest));
        Some(Leftover {
            events: records_in_rings(directory).max(on_disk),
            changed: changed(&directory.join("session")),
            session: Some(directory.to_owned()),
            is_done,
            output,
            manifest,
            processes,
            ranks,
            in_use,
            may_be_written: false,
        })
    }

    /// Returns the same leftover with an output directory that the session does not name.
    pub fn with_output(self, output: Output, manifest: Manifest) -> Leftover {
        let events = self.events.max(records_in_spool(&output.spool, &manifest));
        Leftover { events, output: Some(output), manifest: Some(manifest), is_done: false, ..self }
    }

    /// Returns what is in a spool whose session is gone from shared memory.
    pub fn of_spool(spool: &Path) -> Result<Leftover, ManifestError> {
        let manifest = Manifest::load(spool)?;
        if let Some(why) =
            manifest.why_no_records(spool).filter(|why| matches!(why, NoRecords::OnNode { .. }))
        {
            return Err(ManifestError::NoRecords { spool: spool.to_owned(), why });
        }
        let store = manifest.store(spool);
        let _ = store.unpack_logs(spool, |_| true); // otherwise no process of it is known
        let (processes, ranks, alive) = read_logs(spool, manifest.is_of_this_boot());
        let newest = written_files(spool, &manifest).filter_map(|path| changed(&path)).max();
        // Nodes' clocks differ: a time in the future counts as recent.
        let young = newest.is_some_and(|time| time.elapsed().map_or(true, |age| age < UNUSED_AGE_MIN));
        let may_be_written = young && !manifest.is_of_this_boot();
        let in_use = if manifest.collector_is_alive() {
            Some("its collector is running".to_owned())
        } else {
            alive.map(|pid| format!("its process {pid} is running"))
        };
        Ok(Leftover {
            session: None,
            output: Some(Output::of_spool(spool)),
            changed: newest,
            processes,
            ranks,
            events: records_in_spool(spool, &manifest),
            is_done: false,
            in_use,
            may_be_written,
            manifest: Some(manifest),
        })
    }

    /// Returns when a living collector last touched its manifest. Opening the file makes network file systems fetch its current
    /// modification time.
    fn stamp(&self) -> Option<SystemTime> {
        let path = self.output.as_ref()?.spool.join(MANIFEST);
        std::fs::File::open(path).and_then(|file| file.metadata()).and_then(|data| data.modified()).ok()
    }

    /// Whether there are events from which a summary can be made.
    pub fn has_events(&self) -> bool {
        self.events > 0 && !self.is_done
    }
}

/// Finds out which of the uncertain leftovers ([`Leftover::may_be_written`]) are in use: those whose manifest changes within
/// `limit`. This needs no comparison of clocks. Afterwards, none of them is uncertain.
pub fn watch(all: &mut [Leftover], limit: Duration) {
    let begun = Instant::now();
    let doubtful = all.iter_mut().filter(|left| left.may_be_written);
    let mut watched: Vec<_> = doubtful.map(|left| (left.stamp(), left)).collect();
    watched.iter_mut().for_each(|(_, left)| left.may_be_written = false);
    while !watched.is_empty() && begun.elapsed() < limit {
        std::thread::sleep(CHECK_PERIOD);
        watched.retain_mut(|(before, left)| {
            let changes = left.stamp() != *before;
            if changes {
                let node = left.manifest.as_ref().map_or("another node", |manifest| manifest.node.as_str());
                left.in_use = Some(format!("its files are changing, on {node}"));
            }
            !changes
        });
    }
}

/// Returns the spools in a directory and one level below it, where the other nodes of a run have theirs.
pub fn spools_in(directory: &Path) -> Vec<PathBuf> {
    spools_below(directory, 1, usize::MAX).0
}

/// Returns the spools in a directory and `levels` below it. Searches at most `directories_max` directories, and returns whether
/// these were all. Links and hidden directories are left out.
pub fn spools_below(directory: &Path, levels: usize, directories_max: usize) -> (Vec<PathBuf>, bool) {
    let is_spool = |path: &Path| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.starts_with(CLAIM)) && path.join(MANIFEST).exists()
    };
    let (mut found, mut searched) = (Vec::new(), 0);
    let mut level = vec![directory.to_owned()];
    for depth in 0..=levels {
        let mut next = Vec::new();
        for directory in &level {
            searched += 1;
            if searched > directories_max {
                found.sort();
                return (found, false);
            }
            for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
                let is_hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
                if is_hidden || !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    continue;
                }
                let path = entry.path();
                if is_spool(&path) {
                    found.push(path);
                } else if depth < levels {
                    next.push(path);
                }
            }
        }
        level = next;
    }
    found.sort();
    (found, true)
}

/// Returns the output directory that another living collector of the same run on the same machine has claimed in `wanted`. Such a
/// collector has a session that this process cannot see. This process must not have claimed a directory there yet.
pub fn collected_elsewhere(wanted: &Path, manifest: &Manifest) -> Option<PathBuf> {
    let lives = |spool: &PathBuf| {
        let age = changed(&spool.join(MANIFEST)).and_then(|time| time.elapsed().ok());
        // A time that is not known, or that is in the future because clocks differ, counts as recent.
        age.is_none_or(|age| age < SILENCE_MAX)
    };
    let is_same = |spool: &PathBuf| Manifest::load(spool).is_ok_and(|other| other.is_of_same_run(manifest));
    let found = spools_in(wanted).into_iter().find(|spool| is_same(spool) && lives(spool));
    found.and_then(|spool| spool.parent().map(Path::to_owned))
}

/// Whether another node of this run has the same name and writes to the directory.
pub fn has_namesake(wanted: &Path, manifest: &Manifest) -> bool {
    spools_in(wanted)
        .iter()
        .any(|spool| Manifest::load(spool).is_ok_and(|other| other.is_of_namesake(manifest)))
}

/// Returns all sessions in the user's directory in shared memory, including those in use.
pub fn sessions() -> Vec<Leftover> {
    let Ok(base) = Session::base_directory() else { return Vec::new() };
    let mut names: Vec<PathBuf> = files(&base).filter(|path| is_session_name(path)).collect();
    names.sort();
    names.iter().filter_map(|path| Leftover::of_session(path)).collect()
}

/// Removes what remains of a run whose results are complete.
pub fn remove_done(session: &Session) {
    for (output, node) in
        session.output().iter().flat_map(|output| names_of_this_node().map(|node| (output, node)))
    {
        output::remove_finished_spool(output, &node);
    }
    session.remove();
}

pub fn run_id(session: &Path) -> String {
    let name = session.file_name().map(|name| name.to_string_lossy().into_owned());
    name.unwrap_or_default().trim_start_matches("s-").to_owned()
}

/// Whether a directory has the name of a session with records. AMPERE_SHM may point to a directory with other things in it, and
/// a metric plugin's session has no records.
pub fn is_session_name(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name.starts_with("s-") && !name.ends_with(session::METRICS_ONLY)
}

fn files(directory: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    std::fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path())
}

/// Returns the files that a living collector changes: its manifest and records.
fn written_files(spool: &Path, manifest: &Manifest) -> impl Iterator<Item = PathBuf> + use<> {
    let records = manifest.directories(spool).into_iter().map(|directory| directory.join(RECORDS));
    records.chain([spool.join(MANIFEST)])
}

fn changed(path: &Path) -> Option<SystemTime> {
    std::fs::metadata(path).and_then(|data| data.modified()).ok()
}

/// Returns the logs of a session's processes.
pub fn logs_in(directory: &Path) -> Vec<PathBuf> {
    let is_log = |path: &PathBuf| {
        path.extension().is_some_and(|e| e == "defs") && !path.ends_with(crate::sampling::sampler::LOG_NAME)
    };
    let mut logs: Vec<PathBuf> = files(directory).filter(is_log).collect();
    // tmpfs lists the newest file first. By length and then by name, `7-2.defs` comes before `7-10.defs`.
    logs.sort_unstable_by(|one, other| (one.as_os_str().len(), one).cmp(&(other.as_os_str().len(), other)));
    logs
}

/// Returns the numbers of processes and ranks, and the pid of a living process.
fn read_logs(directory: &Path, is_this_boot: bool) -> (usize, u32, Option<u32>) {
    let mut processes = 0;
    let mut with_rank = 0;
    let mut size = 0;
    let mut alive = None;
    for path in logs_in(directory) {
        let Ok(Some(mut log)) = LogReader::open(&path) else { continue };
        processes += 1;
        let is_held = log.is_held(); // its process may be in another pid namespace
        // A damaged log is used up to the damage.
        let _ = log.read_new(|definition| match definition {
            Definition::Process(process)
                if is_this_boot && (is_held || is_alive(process.pid, process.start_time)) =>
            {
                alive = Some(process.pid);
            }
            Definition::Rank { size: job_size, .. } => {
                with_rank += 1;
                size = job_size.max(size);
            }
            _ => {}
        });
    }
    (processes, if size > 1 { size } else { with_rank }, alive)
}

fn is_of_sampler(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("sampler."))
}

fn records_in_rings(directory: &Path) -> u64 {
    let rings =
        files(directory).filter(|path| path.extension().is_some_and(|e| e == "ring") && !is_of_sampler(path));
    let gauges = rings.filter_map(|path| ampere_ring::RingGauge::open(&path).ok());
    gauges.map(|ring| ring.positions().0).fold(0, u64::saturating_add) // a process may write any number
}

fn records_in_spool(spool: &Path, manifest: &Manifest) -> u64 {
    manifest.store(spool).records_of_all(|stream| !stream.starts_with("sampler."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logs_of_one_process_are_in_the_order_of_their_numbers() {
        let directory = tempfile::tempdir().unwrap();
        let names = ["7.defs", "7-2.defs", "7-10.defs", "7-s1.defs", "7-s9.defs", "7-s10.defs"];
        names.iter().for_each(|name| std::fs::write(directory.path().join(name), "").unwrap());
        let logs = logs_in(directory.path());
        let place = |name: &str| logs.iter().position(|log| log.ends_with(name)).unwrap();
        let [own, sampled] = [&names[..3], &names[3..]];
        assert!(own.is_sorted_by_key(|name| place(name)) && sampled.is_sorted_by_key(|name| place(name)));
    }

    #[test]
    fn a_spool_of_another_node_is_in_use_while_its_manifest_changes() {
        let spool = tempfile::tempdir().unwrap();
        let here = Manifest::new(Path::new("/dev/shm/ampere-1/s-x"), "x", &[], None).text();
        let me = std::process::id();
        let dead = here.replace(&format!(" {me},\n"), " 4294967,\n"); // its collector's pid
        let elsewhere = dead.replace(&format!("\"{}\"", node_name()), "\"another-node\"");
        let records = spool.path().join("1.0.records");
        std::fs::write(&records, [0; 32]).unwrap();
        let look = |manifest: &str, at: SystemTime| {
            std::fs::write(spool.path().join(MANIFEST), manifest).unwrap();
            for name in [MANIFEST, "1.0.records"] {
                std::fs::File::open(spool.path().join(name)).unwrap().set_modified(at).unwrap();
            }
            Leftover::of_spool(spool.path()).unwrap()
        };
        let (now, minute) = (SystemTime::now(), Duration::from_secs(60));
        let left = look(&here, now - 20 * minute);
        assert!(left.in_use.is_some_and(|why| why.contains("its collector is running")));
        let left = look(&dead, now);
        assert!(left.in_use.is_none() && !left.may_be_written, "the processes of this node are known");
        assert!(!look(&elsewhere, now - 20 * minute).may_be_written);
        // This must hold however the clocks differ.
        for time in [now - 5 * minute, now, now + minute, now + 20 * minute] {
            let mut all = [look(&elsewhere, time)];
            assert!(all[0].may_be_written && all[0].in_use.is_none());
            watch(&mut all, Duration::from_millis(300));
            assert!(!all[0].may_be_written && all[0].in_use.is_none());
        }
        // The records of a quiet run do not change; its manifest does.
        let mut all = [look(&elsewhere, now)];
        let watched = std::thread::spawn(move || {
            watch(&mut all, Duration::from_secs(10));
            all
        });
        std::thread::sleep(Duration::from_millis(100));
        let heart = manifest::Heartbeat::start(spool.path());
        let [left] = watched.join().unwrap();
        assert!(left.in_use.is_some_and(|why| why.contains("on another-node")));
        drop(heart);
    }

    #[test]
    fn spools_are_found_down_to_a_level_and_not_behind_links() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        for name in ["spool-a", "x/spool-a", "x/y/spool-a", ".hidden/spool-a", "x/spool-without"] {
            std::fs::create_dir_all(path(name)).unwrap();
            if !name.ends_with("without") {
                std::fs::write(path(name).join(MANIFEST), "").unwrap();
            }
        }
        std::os::unix::fs::symlink(path("x"), path("link")).unwrap();
        let below = |levels| spools_below(directory.path(), levels, 100);
        assert_eq!(spools_in(directory.path()), [path("spool-a"), path("x/spool-a")]);
        assert_eq!(below(0), (vec![path("spool-a")], true));
        assert_eq!(below(2), (vec![path("spool-a"), path("x/spool-a"), path("x/y/spool-a")], true));
        assert_eq!(below(9), below(2));
        for number in 0..100 {
            std::fs::create_dir(path(&format!("d{number}"))).unwrap();
        }
        let (found, is_all) = below(1);
        assert!(!is_all && found.contains(&path("spool-a")));
    }
}
