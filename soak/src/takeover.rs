//! SIGKILL of the collector at a random moment: the application's output and status are what they are, another collector
//! goes on where it stopped, and no joule and no call is lost or counted twice.

use crate::random::Random;
use crate::run::{RANKS, Run, Tools, WATTS, rounds as all_rounds, signal};
use crate::{Row, Settings, Tally};
use rustix::process::Signal;
use serde_json::json;
use std::time::Duration;

const STEPS: u64 = 8000;
/// From when the ranks are processes.
const LATEST: Duration = Duration::from_millis(600);
/// Beyond the time that it takes undisturbed.
const SLOW: Duration = Duration::from_secs(5);
/// Between the counter's reading and its time a thread can lose its core, at both ends.
const ENERGY_ERROR_JOULES: f64 = 0.008 * WATTS;
/// Of the time that the run takes, so much is measured at least.
const MEASURED: f64 = 0.6;

pub fn rounds(settings: &Settings, tally: &mut Tally) -> Result<Row, String> {
    let tools = Tools::find()?;
    let usual = crate::faults::usual_time(&tools, STEPS)?;
    let mut too_late = 0;
    let (good, failures) = all_rounds("takeover", settings.rounds, settings.seed, |_, seed| {
        let mut random = Random::new(seed);
        loop {
            let mut run = tools.start("none", STEPS, |_, _| {});
            match round(&mut run, &mut random, tally, usual) {
                Ok(true) => return Ok(()),
                Ok(false) => too_late += 1,
                Err(why) => return Err(format!("{why}; kept in {}", run.keep().display())),
            }
        }
    });
    Ok(Row {
        what: "SIGKILL of the collector at a random moment: output and status unchanged, energy conserved over the takeover"
            .to_owned(),
        found: format!("{good} of {}", settings.rounds),
        good: good == settings.rounds,
        details: json!({"rounds": settings.rounds, "good": good, "too_late_and_repeated": too_late, "failures": failures}),
    })
}

/// Whether a collector was killed.
fn round(run: &mut Run, random: &mut Random, tally: &mut Tally, usual: Duration) -> Result<bool, String> {
    if !run.wait_for_ranks() {
        return Err(format!("no ranks: {:?}", run.wait()));
    }
    std::thread::sleep(Duration::from_micros(random.below(LATEST.as_micros() as u64)));
    let collectors = run.collectors();
    collectors.iter().for_each(|collector| signal(*collector, Signal::KILL));
    let ended = run.wait().inspect_err(|_| tally.disturbed += 1)?;
    let as_ever = (ended.code, ended.stdout.as_str()) == (0, &*format!("done {STEPS}\n"));
    if !as_ever || ended.took > usual + SLOW {
        tally.disturbed += 1;
        return Err(format!("the application is not as without: {ended:?}"));
    }
    if let Some(rank) = (0..RANKS).find(|rank| run.counted(*rank) != STEPS) {
        tally.disturbed += 1;
        return Err(format!("rank {rank} made {} calls", run.counted(rank)));
    }
    if collectors.is_empty() {
        return Ok(false);
    }
    let summary = run.results()?;
    let missing = run.missing(&summary)?;
    tally.missing += missing;
    if missing > 0 {
        return Err(format!("{missing} calls are missing"));
    }
    let total = summary["devices"][0]["total_joules"].as_f64().unwrap_or(0.0);
    let seconds = summary["run"]["seconds"].as_f64().unwrap_or(0.0);
    if (total - WATTS * seconds).abs() > ENERGY_ERROR_JOULES || seconds < MEASURED * ended.took.as_secs_f64()
    {
        return Err(format!("{total} J in {seconds} s of {WATTS} W, {:?} in all", ended.took));
    }
    Ok(true)
}
