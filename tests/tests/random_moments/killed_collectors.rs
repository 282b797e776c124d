//! Collectors that are killed: the program's output and status do not change, another collector continues where the first one
//! stopped, and no joule and no call is lost or counted twice.

use crate::{Job, LATEST_MOMENT_US, RANKS, assert_undisturbed, usual_time};
use ampere_tests::counting_program::{assert_every_call_recorded, assert_whole_results, have_mpi};
use ampere_tests::jobs::kill;
use ampere_tests::random::{Random, rounds};
use ampere_tests::runs::{list, number};
use std::collections::BTreeMap;
use std::time::Duration;

/// The limit on the time that a run takes in addition to an undisturbed run.
const SLOWER: Duration = Duration::from_secs(20);
const WATTS: f64 = 250.0;
/// The sampling thread can be descheduled between reading a counter and reading the clock. The limit on the median
/// of the rounds allows one scheduler tick (4 ms at 250 Hz) for the first reading and one for the last.
const ENERGY_ERROR_JOULES: f64 = 0.008 * WATTS;
/// The limit for each round: a collector's first reading is not repeated, even if it was interrupted for longer.
const ENERGY_ERROR_JOULES_MAX: f64 = 0.1 * WATTS;
/// The smallest share of a rank's time in functions that must be measured.
const MEASURED_MIN: f64 = 0.95;

#[test]
fn a_killed_collector_is_replaced_and_the_program_runs_undisturbed() {
    if have_mpi() {
        let usual = usual_time();
        let mut errors = Vec::new();
        rounds(3, |random| {
            let error = loop {
                if let Some(error) = round(random, usual) {
                    break error;
                }
            };
            errors.push(error);
        });
        errors.sort_by(f64::total_cmp);
        let median = errors.get(errors.len() / 2);
        assert!(median.is_none_or(|error| *error < ENERGY_ERROR_JOULES), "{errors:?} J at {WATTS} W");
    }
}

/// Returns the longest time for which a rank was in functions.
fn longest_rank(summary: &serde_json::Value) -> f64 {
    let mut seconds = BTreeMap::<&str, f64>::new();
    for row in list(&summary["devices"][0]["views"][0], "callpaths") {
        let rank = row["location_group"].as_str().expect("a name");
        *seconds.entry(rank).or_default() += number(row, "exclusive_seconds");
    }
    seconds.into_values().fold(0.0, f64::max)
}

/// Returns the joules that are missing or too many, or `None` if no collector was killed.
fn round(random: &mut Random, usual: Duration) -> Option<f64> {
    let mut job = Job::start();
    job.wait_for_ranks();
    std::thread::sleep(Duration::from_micros(random.below(LATEST_MOMENT_US)));
    let collectors = job.place.collectors();
    collectors.iter().copied().for_each(kill);
    let (place, done) = job.wait();
    assert_undisturbed(&place, &done);
    assert!(done.took < usual + SLOWER, "{:?}, {usual:?} undisturbed", done.took);
    let summary = assert_whole_results(&place, "out");
    assert_every_call_recorded(&place, &summary, RANKS);
    let total = summary["devices"][0]["total_joules"].as_f64().expect("joules");
    let seconds = summary["run"]["seconds"].as_f64().expect("a time");
    let error = (total - WATTS * seconds).abs();
    assert!(error < ENERGY_ERROR_JOULES_MAX, "{total} J in {seconds} s of {WATTS} W");
    let ranks = longest_rank(&summary);
    assert!(seconds > MEASURED_MIN * ranks, "{seconds} s, of which a rank was in functions for {ranks} s");
    place.assert_clean();
    (!collectors.is_empty()).then_some(error)
}
