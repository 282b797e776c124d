//! Ranks that are killed at any time from their first instruction on.

use crate::{Job, LATEST_MOMENT_US};
use ampere_tests::counting_program::{assert_every_call_recorded, assert_whole_results, have_mpi};
use ampere_tests::jobs::kill;
use ampere_tests::random::{Random, rounds};
use std::time::{Duration, Instant};

/// The limit on the time from the kill to the end of the run.
const LIMIT: Duration = Duration::from_secs(60);

#[test]
fn killed_ranks_leave_a_readable_trace_and_every_call() {
    if have_mpi() {
        // Some moments are after the end of the run: then another one is tried.
        rounds(3, |random| while !round(random) {});
    }
}

/// Returns whether a rank was killed.
fn round(random: &mut Random) -> bool {
    let mut job = Job::start();
    let mut victims = job.wait_for_ranks();
    let moment = Duration::from_micros(random.below(LATEST_MOMENT_US));
    if random.below(3) > 0 && !victims.is_empty() {
        victims = vec![*random.choose(&victims)];
    }
    std::thread::sleep(moment);
    let alive = job.ranks();
    let is_killed = victims.iter().any(|victim| alive.contains(victim));
    victims.into_iter().for_each(kill);
    let killed = Instant::now();
    let (place, done) = job.wait();
    assert!(killed.elapsed() < LIMIT, "{:?} from the kill to the end", killed.elapsed());
    let summary = assert_whole_results(&place, "out");
    assert_every_call_recorded(&place, &summary, crate::RANKS);
    assert!(done.code != 0 || summary["run"]["complete"] == true, "{}", summary["run"]);
    place.assert_clean();
    is_killed && done.code != 0
}
