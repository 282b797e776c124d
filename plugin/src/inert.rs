//! Giving up without a trace but one line.

use crate::events;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};

static INERT: AtomicBool = AtomicBool::new(false);

pub fn is_inert() -> bool {
    INERT.load(Ordering::Relaxed)
}

/// From now on the plugin does nothing. Says why once per node, where the launcher tells which process is first.
pub fn become_inert(why: &str) {
    if !INERT.swap(true, Ordering::Relaxed) {
        events::stop();
        say(why);
    }
}

/// As [`become_inert`], without a word: another process says it, or nobody needs to know.
pub fn become_inert_quietly() {
    INERT.store(true, Ordering::Relaxed);
    events::stop();
}

/// One line on standard error, from the first process of the node only.
pub fn say(line: &str) {
    if is_first_on_node() {
        say_as_the_only_one(line);
    }
}

/// The same from whichever process it is that no other one of the node is like.
pub fn say_as_the_only_one(line: &str) {
    // One write, so that lines of several processes do not mix. Failing to print is not a failure.
    let _ = std::io::stderr().write_all(format!("ampere: {line}\n").as_bytes());
}

fn is_first_on_node() -> bool {
    const LOCAL_RANKS: [&str; 5] = [
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "MPI_LOCALRANKID",
        "SLURM_LOCALID",
        "PALS_LOCAL_RANKID",
        "FLUX_TASK_LOCAL_ID",
    ];
    match LOCAL_RANKS.iter().find_map(|name| std::env::var(name).ok()) {
        Some(rank) => rank == "0",
        None => std::env::var("PMI_RANK").map_or(true, |rank| rank == "0"),
    }
}
