//! Disturbances of a run at random moments. Every test run does a few rounds of each; `make soak` does hundreds by
//! `AMPERE_TEST_ROUNDS`. The seed of a round that fails is printed, and repeats it.

mod disturbances;
mod killed_collectors;
mod killed_ranks;

use ampere_tests::counting_program::{build_mpi, counted, mpirun, ranks};
use ampere_tests::jobs::{Done, Place, Running, kill, start};
use ampere_tests::stand_ins::with_rocm_smi;
use std::path::PathBuf;
use std::time::{Duration, Instant};

const RANKS: u32 = 2;
/// Number of calls of each rank, which take about 0.3 s.
const STEPS: u64 = 8000;
/// The latest moment, measured from the time when the processes of all ranks exist. The start of MPI takes some 0.2 s of it.
const LATEST_MOMENT_US: u64 = 600_000;
/// How long mpirun may run after all of its ranks have ended. When a rank is killed in MPI_Init, Open MPI 4.1's mpirun sometimes
/// hangs, with ampere or without: it waits for a lock.
const LAUNCHER_LIMIT: Duration = Duration::from_secs(8);

/// A run of two ranks that make calls.
struct Job {
    place: Place,
    program: PathBuf,
    running: Running,
}

/// Returns the time that such a run takes undisturbed, as the longest of three runs.
fn usual_time() -> Duration {
    let times = (0..3).map(|_| {
        let Job { place, running, .. } = Job::start();
        let done = running.wait();
        assert_eq!(done.code, 0, "{done:#?}");
        place.assert_clean();
        done.took
    });
    times.max().expect("three of them")
}

impl Job {
    fn start() -> Job {
        let place = Place::new();
        let program = build_mpi(&place);
        let words = mpirun(RANKS, &program, &["none", &STEPS.to_string()]);
        let mut command = place.ampere_run("out", words);
        // Without this, mpirun waits for a second between asking the remaining ranks to end and killing them.
        command.env("OMPI_MCA_odls_base_sigkill_timeout", "0");
        let running = start(with_rocm_smi(&mut command, "watts=250"));
        Job { place, program, running }
    }

    fn ranks(&self) -> Vec<u32> {
        let mut ranks = ranks(&self.place, &self.program);
        ranks.sort_unstable();
        ranks
    }

    /// Waits until the processes of all ranks exist, and returns them. If this process gets no CPU for a while, the run may end
    /// without being seen to have ranks; then there are none.
    fn wait_for_ranks(&mut self) -> Vec<u32> {
        loop {
            let (has_ended, ranks) = (self.running.has_ended(), self.ranks());
            if has_ended || ranks.len() == RANKS as usize {
                return ranks;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Waits until every rank has made a call.
    #[track_caller]
    fn wait_for_calls(&mut self) {
        loop {
            // The end is checked before the counts, which remain after the run has ended.
            let has_ended = self.running.has_ended();
            if (0..RANKS).all(|rank| counted(&self.place, &rank.to_string()) > 0) {
                return;
            }
            assert!(!has_ended, "the run ended before its ranks had started");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Waits for the end of the run, and kills a launcher that hangs.
    fn wait(mut self) -> (Place, Done) {
        let mut alone_since: Option<Instant> = None;
        while !self.running.has_ended() {
            std::thread::sleep(Duration::from_millis(10));
            if !self.ranks().is_empty() {
                alone_since = None;
            } else if alone_since.get_or_insert_with(Instant::now).elapsed() > LAUNCHER_LIMIT {
                let processes = self.place.processes();
                let launcher = processes.iter().find(|(_, command)| command.starts_with("mpirun"));
                launcher.into_iter().for_each(|(pid, _)| kill(*pid));
                break;
            }
        }
        let Job { place, running, .. } = self;
        let done = running.wait();
        done.no_panic();
        (place, done)
    }
}

/// Checks that the program did what it does undisturbed.
#[track_caller]
fn assert_undisturbed(place: &Place, done: &Done) {
    assert_eq!((done.code, done.stdout.as_str()), (0, &*format!("done {STEPS}\n")), "{done:#?}");
    for rank in 0..RANKS {
        assert_eq!(counted(place, &rank.to_string()), STEPS, "rank {rank}");
    }
}
