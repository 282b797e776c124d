//! Giving up without a trace but one line.

use crate::events;
use ampere_model::is_first_of_node;
use ampere_signal_safety::{remember_standard_error, write_line};
use std::sync::OnceLock;
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

/// Whether the launcher calls this the first process of the node; asked once, before the program can have threads that
/// change the environment.
static IS_FIRST: OnceLock<bool> = OnceLock::new();

/// Looks at the environment, and at standard error.
pub fn begin() {
    remember_standard_error();
    IS_FIRST.get_or_init(is_first_of_node);
}

/// One line on standard error, from the first process of the node only.
pub fn say(line: &str) {
    if *IS_FIRST.get_or_init(is_first_of_node) {
        say_as_the_only_one(line);
    }
}

/// One line on standard error, where the caller knows that no other process says it.
pub fn say_as_the_only_one(line: &str) {
    write_line(format!("ampere: {line}\n").as_bytes());
}
