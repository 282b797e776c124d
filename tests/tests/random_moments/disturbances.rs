//! Other disturbances of a run while it is running. `tests/tests/faults` checks what the results have then.

use crate::{Job, assert_undisturbed, usual_time};
use ampere_tests::counting_program::have_mpi;
use ampere_tests::jobs::signal;
use ampere_tests::random::{Random, rounds};
use rustix::process::Signal;
use std::time::{Duration, Instant};

/// The limit on the time that a run takes in addition to an undisturbed run.
const SLOWER: Duration = Duration::from_secs(20);

#[derive(Debug)]
enum Disturbance {
    CollectorIsStopped,
    CollectorIsTerminated,
    RankIsStopped,
    OutputIsRemoved,
    SessionIsRemoved,
}

use Disturbance::*;

#[test]
fn stops_and_removed_directories_do_not_disturb_the_program() {
    if have_mpi() {
        let usual = usual_time();
        rounds(5, |random| round(random, usual));
    }
}

fn round(random: &mut Random, usual: Duration) {
    let disturbance = random.choose(&[
        CollectorIsStopped,
        CollectorIsTerminated,
        RankIsStopped,
        OutputIsRemoved,
        SessionIsRemoved,
    ]);
    println!("{disturbance:?}");
    let mut job = Job::start();
    job.wait_for_calls();
    std::thread::sleep(Duration::from_micros(random.below(150_000)));
    let pause = Duration::from_micros(100_000 + random.below(500_000));
    let stop = |pids: &[u32]| {
        pids.iter().for_each(|pid| signal(*pid, Signal::STOP));
        let begun = Instant::now();
        std::thread::sleep(pause);
        pids.iter().for_each(|pid| signal(*pid, Signal::CONT));
        begun.elapsed()
    };
    let mut paused = Duration::ZERO;
    match disturbance {
        CollectorIsStopped => paused = stop(&job.place.collectors()),
        CollectorIsTerminated => job.place.collectors().iter().for_each(|pid| signal(*pid, Signal::TERM)),
        // The run may have just ended, and then has no ranks any more, nor these directories.
        RankIsStopped => paused = stop(job.ranks().get(..1).unwrap_or_default()),
        OutputIsRemoved => drop(std::fs::remove_dir_all(job.place.path("out"))),
        SessionIsRemoved => drop(std::fs::remove_dir_all(job.place.path("shm"))),
    }
    let (place, done) = job.wait();
    assert_undisturbed(&place, &done);
    assert!(done.took < usual + paused + SLOWER, "{:?}, {usual:?} undisturbed", done.took);
    place.no_process_left();
}
