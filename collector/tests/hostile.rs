//! A hostile application while the collector's loop reads: bytes that change at any moment, definitions without end, a call
//! tree that only grows. The run continues and ends, and its memory stays within bounds.

mod made_up_session;

use ampere_collector::live::LiveRun;

use ampere_model::{Definition, Process};
use ampere_ring::clock::usual;
use ampere_ring::{Kind, Record};
use made_up_session::{events, has_clock, location, log, region, ring, run, session, until};
use memmap2::MmapRaw;
use std::fs::OpenOptions;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// More than any step takes in a build without optimizations on a busy machine.
const HANG: Duration = Duration::from_secs(600);
/// Held by the tests that fill memory or look at that of this process, so that they run one after the other.
static MEMORY: Mutex<()> = Mutex::new(());

fn resident_megabytes() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    pages.split(' ').nth(1).and_then(|word| word.parse::<u64>().ok()).unwrap_or(0) * 4096 / (1 << 20)
}

/// All bytes of the ring, the session's page and the sampler's ring may change.
#[test]
fn bytes_that_change_while_they_are_read_do_no_harm() {
    let _alone = MEMORY.lock().unwrap_or_else(PoisonError::into_inner);
    let (root, session) = session("s-scribble");
    let directory = session.directory().to_owned();
    let mut log = log(&directory);
    (0..8).for_each(|handle| _ = log.append(&region(handle)));
    let (mut producer, name) = ring(&directory, 0, 4096);
    log.append(&location(0, &name));
    producer.push_with_room(Record::new(Kind::Enter, usual(), 1));
    let mut run = run(root.path(), session, true);
    until(&mut run, "the first event", |run| has_clock(run) && events(run) == 1);
    until(&mut run, "the sampler's ring", |_| directory.join("sampler.0.ring").exists());
    let paths = [name.as_str(), "session", "sampler.0.ring"].map(|name| directory.join(name)).to_vec();
    let (stop, written) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let scribblers: Vec<_> = (0..2)
        .map(|number| {
            let paths = paths.clone();
            let stop = stop.clone();
            let written = written.clone();
            std::thread::spawn(move || overwrite(&paths, 0x9e37_79b9 + number, &stop, &written))
        })
        .collect();
    let (begun, mut longest) = (Instant::now(), Duration::ZERO);
    while begun.elapsed() < Duration::from_secs(2) {
        let round = Instant::now();
        run.round();
        longest = longest.max(round.elapsed());
    }
    stop.store(true, Ordering::Relaxed);
    scribblers.into_iter().for_each(|thread| thread.join().expect("a scribbler"));
    assert!(written.load(Ordering::Relaxed) > 100_000, "bytes were changed");
    assert!(longest < Duration::from_secs(30), "a round took {longest:?}");
    let (summary, _) = run.finish(false).expect("results");
    assert!(root.path().join("out/summary.json").exists());
    let total = summary.devices.iter().map(|device| device.total_joules).sum::<f64>();
    assert!(summary.quality.conservation_error_joules <= 1e-6 * total.max(1.0));
    assert!(resident_megabytes() < 1500, "{} MB", resident_megabytes());
}

fn overwrite(paths: &[PathBuf], seed: u64, stop: &AtomicBool, written: &AtomicU64) {
    let open = |path: &PathBuf| OpenOptions::new().read(true).write(true).open(path).ok();
    let maps: Vec<MmapRaw> =
        paths.iter().filter_map(open).filter_map(|file| MmapRaw::map_raw(&file).ok()).collect();
    assert!(maps.len() >= 2);
    let mut state = seed;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    while !stop.load(Ordering::Relaxed) {
        let map = &maps[(next() % maps.len() as u64) as usize];
        // Sometimes a position is overwritten, and mostly a record, with a known kind or with a time of about now.
        let (at, value) = match next() % 16 {
            0 => ([128, 136, 256, 24, 16, 4072][(next() % 6) as usize], next() >> (next() % 64)),
            1 => (next() as usize % map.len(), next()),
            2..=8 => (next() as usize % map.len() / 16 * 16 + 8, ((next() % 12) << 32) | (next() % 10)),
            _ => (next() as usize % map.len() / 16 * 16, usual()),
        };
        let at = at.min(map.len() - 8) & !7;
        // SAFETY: within the mapping and aligned; other threads access these bytes only as atomics.
        unsafe { &*map.as_mut_ptr().add(at).cast::<AtomicU64>() }.store(value, Ordering::Relaxed);
        written.fetch_add(1, Ordering::Relaxed);
    }
}

/// The definitions are of rings that do not exist, come twice, or name other processes' files.
#[test]
fn wrong_definitions_are_noted_and_ignored() {
    let (root, session) = session("s-definitions");
    let directory = session.directory().to_owned();
    let mut log = log(&directory);
    let (mut producer, name) = ring(&directory, 0, 4096);
    log.append(&Definition::Process(Process { pid: 1, ..Process::default() }));
    (0..3).for_each(|_| _ = log.append(&location(0, &name)));
    log.append(&location(1, &name));
    let last = format!("{}.{}.ring", std::process::id(), u32::MAX);
    log.append(&location(u32::MAX, &last));
    (2..2000).for_each(|id| _ = log.append(&location(id, "../../../../etc/passwd")));
    let own = directory.join(format!("{}.defs", std::process::id()));
    std::fs::copy(own, directory.join("1.defs")).expect("room");
    std::os::unix::fs::symlink("/etc/passwd", directory.join("2.defs")).expect("a link");
    let mut run = run(root.path(), session, true);
    until(&mut run, "the clock", has_clock);
    producer.push_with_room(Record::new(Kind::Enter, usual(), 1));
    run.session().announce();
    until(&mut run, "the event", |run| events(run) > 0);
    assert_eq!(run.processes_seen(), 1);
    let (summary, _) = run.finish(false).expect("results");
    let notes = summary.run.notes.join("\n");
    for words in [
        "claims to be the log of process",
        "is defined twice",
        "is not a valid name for ring",
        "further complaints of this kind are left out",
        "2.defs",
    ] {
        assert!(notes.contains(words), "{words}: {notes}");
    }
    assert!(summary.run.notes.len() < 200, "{}", summary.run.notes.len());
}

/// Writes to one location, two records from `next` at a time, until the collector gives it up with a note that contains `why`.
/// Returns the run.
fn until_given_up(
    name: &str,
    location_id: u32,
    why: &str,
    mut next: impl FnMut(u32) -> [u32; 2],
) -> (tempfile::TempDir, LiveRun) {
    let (root, session) = session(name);
    let directory = session.directory().to_owned();
    let mut log = log(&directory);
    let (mut producer, ring) = ring(&directory, location_id, 1 << 16);
    log.append(&location(location_id, &ring));
    let mut run = run(root.path(), session, false);
    let given_up = |run: &LiveRun| run.notes().iter().any(|note| note.contains(why));
    let (begun, mut step) = (Instant::now(), 0);
    while begun.elapsed() < HANG && !given_up(&run) {
        while producer.has_room(2) {
            for handle in next(step) {
                producer.push_with_room(Record::new(Kind::Enter, usual(), handle));
            }
            step += 1;
        }
        run.round();
    }
    assert!(given_up(&run), "{:?}", run.notes());
    (root, run)
}

/// The records enter regions that were never defined.
#[test]
fn a_stack_that_grows_without_end_is_given_up() {
    let _alone = MEMORY.lock().unwrap_or_else(PoisonError::into_inner);
    until_given_up("s-depth", 1, "it is no longer read", |_| [7, 7]);
}

#[test]
fn a_call_tree_that_grows_without_end_is_given_up() {
    let _alone = MEMORY.lock().unwrap_or_else(PoisonError::into_inner);
    // Each call is one level deeper, and in a new region.
    let new = |step: u32| [step % 4000, step.wrapping_mul(0x9e37_79b9)];
    let (_root, run) = until_given_up("s-growth", 0, "call paths: it is no longer read", new);
    assert!(resident_megabytes() < 1500, "{} MB", resident_megabytes());
    let begun = Instant::now();
    let (summary, _) = run.finish(false).expect("results");
    assert!(begun.elapsed() < HANG, "{:?}", begun.elapsed());
    assert!(summary.quality.records.events > 0 && !summary.run.complete);
    let missing = &summary.run.missing;
    assert!(missing.iter().any(|note| note.ends_with("it is no longer read")), "{missing:#?}");
}
