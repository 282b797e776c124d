//! Checks shared memory: whether a session can be made there, how many rings fit, and which sessions were left there.

use super::bytes;
use super::findings::{Check, Group};
use ampere_collector::run_directory::leftover::Leftover;
use ampere_model::text::plural;
use ampere_ring::{Error, RING_RECORDS_MIN, RingProducer, Session};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The size of a main thread's ring, unless AMPERE_RING_BYTES sets another one.
const RING_BYTES: u64 = 8 << 20;
/// The size of the rings of all main threads of a node together: half of the memory that the node's rings may take.
const MAIN_RINGS_BYTES: u64 = 128 << 20;
const RECORD_BYTES: u64 = ampere_ring::RECORD_BYTES as u64;
const TMPFS_MAGIC: i128 = 0x0102_1994;
/// A session younger than this might not yet have a collector.
const YOUNG_AGE_MAX: Duration = Duration::from_secs(30);
/// The maximum number of old sessions that have a line each.
const NAMED_MAX: usize = 5;

pub fn check(cores: usize) -> Vec<Check> {
    let mut group = Group::new("shared memory");
    let root = std::env::var_os("AMPERE_SHM").map_or_else(|| PathBuf::from("/dev/shm"), PathBuf::from);
    let expected = root.join(format!("ampere-{}", rustix::process::geteuid().as_raw()));
    let was_there = expected.exists();
    // The base directory is made in the same way as in a run.
    let base = match Session::base_directory() {
        Ok(base) => base,
        Err(error) => {
            group.problem("directory", error.to_string(), advice(&error));
            return group.checks;
        }
    };
    let own = format!("s-doctor-{}", std::process::id());
    let made = Session::open_or_create(&own).and_then(|session| {
        let rings = try_rings(&mut group, session.directory(), cores);
        session.remove();
        rings
    });
    match made {
        Ok(()) => {
            space(&mut group, &root, cores);
            left_behind(&mut group, &base);
        }
        Err(error) => {
            let _ = std::fs::remove_dir_all(base.join(&own));
            group.problem("session", error.to_string(), advice(&error));
        }
    }
    if !was_there {
        let _ = std::fs::remove_dir(&base);
    }
    group.checks
}

/// Returns advice for errors whose messages contain none.
fn advice(error: &Error) -> &'static str {
    match error {
        Error::NoSpace { .. } | Error::NotOurs { .. } => "",
        _ => "make it writable, or set AMPERE_SHM to a directory in a tmpfs",
    }
}

/// Returns the size of a rank's ring in bytes: the one that AMPERE_RING_BYTES sets, or else the rank's share of
/// [`MAIN_RINGS_BYTES`] if there is a rank on each core.
fn wanted_bytes(cores: usize) -> u64 {
    let wanted = std::env::var("AMPERE_RING_BYTES").ok().and_then(|text| text.trim().parse::<u64>().ok());
    let share = MAIN_RINGS_BYTES / cores.max(1) as u64;
    let least = RING_RECORDS_MIN * RECORD_BYTES;
    wanted.map_or_else(|| (1 << share.max(1).ilog2()).clamp(least, RING_BYTES), |bytes| bytes.max(least))
}

/// Tries to make a ring of the size that a run wants, or else of the minimum size.
fn try_rings(group: &mut Group, session: &Path, cores: usize) -> Result<(), Error> {
    let path = session.join("0.0.ring");
    let wanted = wanted_bytes(cores);
    match RingProducer::create(&path, wanted / RECORD_BYTES, 0) {
        Ok(_) => Ok(()),
        Err(Error::NoSpace { .. }) => {
            RingProducer::create(&path, RING_RECORDS_MIN, 0)?;
            let found = format!(
                "no space for one ring of {}: a run makes smaller ones, and calls may be suppressed",
                bytes(wanted)
            );
            group.note("ring", found, Some(more_room()));
            Ok(())
        }
        Err(error) => Err(error),
    }
}

fn more_room() -> String {
    "free some of it, set AMPERE_RING_BYTES lower, or, in a container, give it more (--shm-size=1g)"
        .to_owned()
}

fn space(group: &mut Group, root: &Path, cores: usize) {
    let (Ok(space), Ok(kind)) = (rustix::fs::statvfs(root), rustix::fs::statfs(root)) else {
        return group.note("space", format!("{}: its size cannot be read", root.display()), None);
    };
    let free = space.f_bavail.saturating_mul(space.f_frsize);
    let rings = free / wanted_bytes(cores).max(1);
    let found = format!(
        "{}: {} free, {} of {}",
        root.display(),
        bytes(free),
        plural(rings, "ring"),
        bytes(wanted_bytes(cores))
    );
    if i128::from(kind.f_type) != TMPFS_MAGIC {
        let advice = "set AMPERE_SHM to a directory in a tmpfs".to_owned();
        group.note(
            "space",
            format!("{found}; it is not a tmpfs, so events would be written to a disk"),
            Some(advice),
        );
    } else if (rings as usize) <= cores {
        // A node with a rank for each core needs a ring for each rank, and one for the sampler.
        group.note(
            "space",
            format!("{found}: fewer than ranks on {} and the sampler need", plural(cores as u64, "core")),
            Some(more_room()),
        );
    } else {
        group.ok("space", found);
    }
}

/// A session without a collector.
struct LeftSession {
    path: PathBuf,
    bytes: u64,
    age: Duration,
    /// The number of processes with a log, and how many of them seem to be running.
    processes: usize,
    running: usize,
}

/// Whether a run has ended without results, and has left records from which they can be made.
fn is_recoverable(session: &Path) -> bool {
    Leftover::of_session(session).is_some_and(|left| left.in_use.is_none() && left.has_events())
}

/// Reports the sessions of this user: how many are in use, and those whose collector has ended.
fn left_behind(group: &mut Group, base: &Path) {
    let entries = std::fs::read_dir(base).into_iter().flatten().flatten();
    let sessions = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("s-"));
    let (mut in_use, mut left) = (0, Vec::new());
    for entry in sessions {
        let path = entry.path();
        let age = entry.metadata().and_then(|data| data.modified()).ok().and_then(|time| time.elapsed().ok());
        let age = age.unwrap_or_default();
        let is_collected = Session::open(&path).is_ok_and(|session| session.collector_is_alive());
        if is_collected || (age < YOUNG_AGE_MAX && !is_recoverable(&path)) {
            in_use += 1;
            continue;
        }
        left.push(measure(path, age));
    }
    if in_use > 0 {
        group.ok("sessions", format!("{} in use or just started", plural(in_use, "session")));
    }
    left.sort_by_key(|session| std::cmp::Reverse(session.bytes));
    for session in left.iter().take(NAMED_MAX) {
        let name = session.path.file_name().unwrap_or_default().to_string_lossy();
        let since = format!("left {} ago, {}", age(session.age), bytes(session.bytes));
        if session.processes == 0 {
            group.ok(&name, format!("{since}, nothing was recorded; a later run removes it"));
            continue;
        }
        let records = plural(session.processes as u64, "process");
        let found = format!("{since}: records of {records} whose collector ended early");
        let path = session.path.display();
        let finish = format!("ampere recover {path} makes a trace and a summary of it; or rm -r {path}");
        if session.running > 0 {
            let found = format!("{found}; {} of them may still be running", session.running);
            group.note(&name, found, Some(format!("after the job has ended: {finish}")));
        } else {
            group.note(&name, format!("{found}; it is not removed automatically"), Some(finish));
        }
    }
    if left.len() > NAMED_MAX {
        let rest = &left[NAMED_MAX..];
        let size = rest.iter().map(|session| session.bytes).sum();
        let found = format!("{} more, {}", plural(rest.len() as u64, "session"), bytes(size));
        group.note(
            "more",
            found,
            Some(format!(
                "ampere recover makes a trace and a summary of each s-* in {}; or rm -r it",
                base.display()
            )),
        );
    }
    if in_use == 0 && left.is_empty() {
        group.ok("sessions", format!("no old sessions in {}", base.display()));
    }
}

fn measure(path: PathBuf, age: Duration) -> LeftSession {
    use std::os::unix::fs::MetadataExt;
    let mut size = 0;
    let mut processes = 0;
    let mut running = 0;
    // The session of a metric plugin has no records, even if it has logs.
    let may_have_records = !path.to_string_lossy().ends_with(ampere_ring::session::METRICS_ONLY);
    for file in std::fs::read_dir(&path).into_iter().flatten().flatten() {
        size += file.metadata().map_or(0, |data| data.blocks() * 512);
        let name = file.file_name().to_string_lossy().into_owned();
        let pid = name.strip_suffix(".defs").and_then(|pid| pid.parse::<u32>().ok());
        if let Some(pid) = pid.filter(|_| may_have_records) {
            processes += 1;
            running += usize::from(ampere_ring::process::start_time(pid).is_some());
        }
    }
    LeftSession { path, bytes: size, age, processes, running }
}

fn age(age: Duration) -> String {
    match age.as_secs() {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds @ 120..7200 => format!("{} min", seconds / 60),
        seconds @ 7200..172_800 => format!("{} h", seconds / 3600),
        seconds => format!("{} days", seconds / 86_400),
    }
}
