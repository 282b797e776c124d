//! SIGKILL of a rank or of all at a random moment, from its first instruction on: the trace is readable, the summary is
//! conserved, and every call that had come back is in both.

use crate::random::Random;
use crate::run::{Run, Tools, rounds as all_rounds, signal};
use crate::{Row, Settings, Tally};
use rustix::process::Signal;
use serde_json::json;
use std::time::{Duration, Instant};

/// Some 0.3 s of calls.
const STEPS: u64 = 8000;
/// From when the ranks are processes: starting MPI takes some 0.2 s of it.
const LATEST: Duration = Duration::from_millis(600);
/// Whom nobody kills takes less.
const SLOW: Duration = Duration::from_secs(20);

pub fn rounds(settings: &Settings, tally: &mut Tally) -> Result<Row, String> {
    let tools = Tools::find()?;
    let (mut too_late, mut hung) = (0, 0);
    let (good, failures) = all_rounds("kills", settings.rounds, settings.seed, |_, seed| {
        let mut random = Random::new(seed);
        // Some moments come when the run is over: then another is tried.
        loop {
            let mut run = tools.start("none", STEPS, |_, _| {});
            match round(&mut run, &mut random, tally, &mut hung) {
                Ok(true) => return Ok(()),
                Ok(false) => too_late += 1,
                Err(why) => return Err(format!("{why}; kept in {}", run.keep().display())),
            }
        }
    });
    Ok(Row {
        what: "SIGKILL of a random rank or all at a random moment: readable trace and conserved summary"
            .to_owned(),
        found: format!("{good} of {}", settings.rounds),
        good: good == settings.rounds,
        details: json!({"rounds": settings.rounds, "good": good, "too_late_and_repeated": too_late, "launcher_hung": hung,
                         "failures": failures}),
    })
}

/// Whether somebody was killed.
fn round(run: &mut Run, random: &mut Random, tally: &mut Tally, hung: &mut u64) -> Result<bool, String> {
    if !run.wait_for_ranks() {
        return Err(format!("no ranks: {:?}", run.wait()));
    }
    let ranks = run.ranks();
    let moment = Duration::from_micros(random.below(LATEST.as_micros() as u64));
    let victims = match random.below(3) {
        0 => ranks.clone(),
        _ => vec![ranks[random.below(ranks.len() as u64) as usize]],
    };
    std::thread::sleep(moment);
    let alive = run.ranks();
    let killed = victims.iter().filter(|victim| alive.contains(victim)).count();
    victims.iter().for_each(|victim| signal(*victim, Signal::KILL));
    let at = Instant::now();
    let ended = run.wait().inspect_err(|_| tally.disturbed += 1)?;
    if at.elapsed() > SLOW && !ended.launcher_hung {
        tally.disturbed += 1;
        return Err(format!("{:?} from the kill to the end", at.elapsed()));
    }
    if ended.stderr.contains("panicked") {
        return Err(format!("a panic: {}", ended.stderr));
    }
    let summary = run.results()?;
    let missing = run.missing(&summary)?;
    tally.missing += missing;
    if missing > 0 {
        return Err(format!("{missing} calls are missing"));
    }
    let whole = summary["run"]["complete"] == true;
    if ended.code == 0 && !whole {
        return Err(format!("nobody was killed, and it is not complete: {}", summary["run"]));
    }
    *hung += u64::from(ended.launcher_hung);
    Ok(killed > 0 && ended.code != 0)
}
