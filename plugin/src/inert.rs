//! Becoming inert, and the lines that say why.

use crate::events;
use ampere_model::is_first_of_node;
use ampere_signal_safety::{remember_standard_error, write_line};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

static INERT: AtomicBool = AtomicBool::new(false);

/// Whether the plugin does nothing any more.
pub fn is_inert() -> bool {
    INERT.load(Ordering::Relaxed)
}

/// From now on the plugin does nothing. The first process of the node says why.
pub fn become_inert(why: &str) {
    if !INERT.swap(true, Ordering::Relaxed) {
        events::stop();
        say(why);
    }
}

/// As [`become_inert`], without a message: another process prints it, or none is needed.
pub fn become_inert_silently() {
    INERT.store(true, Ordering::Relaxed);
    events::stop();
}

/// Whether this is the first process of the node, by the launcher's variables. Read once, before the program can have threads
/// that change the environment.
static IS_FIRST: OnceLock<bool> = OnceLock::new();

/// Reads what later messages need of the environment and of standard error.
pub fn begin() {
    remember_standard_error();
    IS_FIRST.get_or_init(is_first_of_node);
}

/// Prints a line on standard error in the first process of the node; in the others, nothing.
pub fn say(line: &str) {
    if *IS_FIRST.get_or_init(is_first_of_node) {
        say_in_this_process(line);
    }
}

/// Prints a line on standard error, for what concerns this process alone or is known to be printed by it only.
pub fn say_in_this_process(line: &str) {
    write_line(format!("ampere: {line}\n").as_bytes());
}
