//! Everything else that others do to a run that goes on: whatever it is, the application does what it does undisturbed, in
//! the time that it takes. `tests/tests/faults` has each of these and more, with what is to be in the results.

use crate::random::Random;
use crate::run::{RANKS, Run, Tools, rounds as all_rounds, signal};
use crate::{Row, Settings, Tally};
use rustix::process::Signal;
use serde_json::json;
use std::time::{Duration, Instant};

const STEPS: u64 = 8000;
/// Beyond the time that it takes undisturbed. Other jobs of the machine are in it.
const SLOW: Duration = Duration::from_secs(2);

const FAULTS: [&str; 8] = [
    "the collector is stopped",
    "the collector is told to end",
    "a rank is stopped",
    "the output directory is removed",
    "a ring is truncated",
    "the session's page is truncated",
    "the sampler's ring is truncated",
    "the session is removed",
];

/// The longest of some undisturbed runs.
pub fn usual_time(tools: &Tools, steps: u64) -> Result<Duration, String> {
    let mut longest = Duration::ZERO;
    for _ in 0..3 {
        let ended = tools.start("none", steps, |_, _| {}).wait()?;
        if ended.code != 0 {
            return Err(format!("an undisturbed run fails: {ended:?}"));
        }
        longest = longest.max(ended.took);
    }
    Ok(longest)
}

pub fn rounds(settings: &Settings, tally: &mut Tally) -> Result<Row, String> {
    let tools = Tools::find()?;
    let usual = usual_time(&tools, STEPS)?;
    let (good, failures) = all_rounds("faults", settings.rounds, settings.seed, |number, seed| {
        let mut random = Random::new(seed);
        let fault = if settings.rounds == 1 { random.below(FAULTS.len() as u64) } else { number };
        let fault = FAULTS[fault as usize % FAULTS.len()];
        let mut run = tools.start("none", STEPS, |_, _| {});
        round(&mut run, fault, &mut random, usual)
            .inspect_err(|_| tally.disturbed += 1)
            .map_err(|why| format!("{fault}: {why}; kept in {}", run.keep().display()))
    });
    Ok(Row {
        what: "stops, removed directories and truncated files: the application as undisturbed".to_owned(),
        found: format!("{good} of {}", settings.rounds),
        good: good == settings.rounds,
        details: json!({"rounds": settings.rounds, "good": good, "faults": FAULTS, "failures": failures}),
    })
}

fn round(run: &mut Run, fault: &str, random: &mut Random, usual: Duration) -> Result<(), String> {
    if !run.wait_for_calls() {
        return Err(format!("no calls: {:?}", run.wait()));
    }
    std::thread::sleep(Duration::from_micros(random.below(150_000)));
    let truncate = |files: Vec<std::path::PathBuf>, bytes: u64| {
        for file in files {
            // It may just have gone.
            let _ = std::fs::OpenOptions::new().write(true).open(file).and_then(|file| file.set_len(bytes));
        }
    };
    let pause = Duration::from_micros(100_000 + random.below(500_000));
    let stop = |pids: Vec<i32>| {
        pids.iter().for_each(|pid| signal(*pid, Signal::STOP));
        let begun = Instant::now();
        std::thread::sleep(pause);
        pids.iter().for_each(|pid| signal(*pid, Signal::CONT));
        begun.elapsed()
    };
    let mut paused = Duration::ZERO;
    match fault {
        "the collector is stopped" => paused = stop(run.collectors()),
        "the collector is told to end" => {
            run.collectors().iter().for_each(|pid| signal(*pid, Signal::TERM));
        }
        "a rank is stopped" => paused = stop(run.ranks().into_iter().take(1).collect()),
        "the output directory is removed" => drop(std::fs::remove_dir_all(run.path("out"))),
        "a ring is truncated" => {
            let mut rings = run.shared_files(".0.ring");
            rings.retain(|ring| !ring.ends_with("sampler.0.ring"));
            if !rings.is_empty() {
                let chosen = rings.swap_remove(random.below(rings.len() as u64) as usize);
                truncate(vec![chosen], 4096 * random.below(100));
            }
        }
        "the session's page is truncated" => truncate(run.shared_files("session"), 0),
        "the sampler's ring is truncated" => truncate(run.shared_files("sampler.0.ring"), 0),
        _ => drop(std::fs::remove_dir_all(run.path("shm"))),
    }
    let ended = run.wait()?;
    if (ended.code, ended.stdout.as_str()) != (0, &*format!("done {STEPS}\n")) {
        return Err(format!("not as undisturbed: {ended:?}"));
    }
    if let Some(rank) = (0..RANKS).find(|rank| run.counted(*rank) != STEPS) {
        return Err(format!("rank {rank} made {} calls", run.counted(rank)));
    }
    if ended.took > usual + paused + SLOW {
        return Err(format!("{:?}, {usual:?} undisturbed", ended.took));
    }
    Ok(())
}
