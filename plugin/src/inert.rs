//! The plugin's inert state, in which it does nothing, and its messages to the user.

use crate::events;
use ampere_model::is_first_of_node;
use ampere_signal_safety::{remember_standard_error, write_line};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

static INERT: AtomicBool = AtomicBool::new(false);

/// Whether the plugin has become inert.
pub fn is_inert() -> bool {
    INERT.load(Ordering::Relaxed)
}

/// Makes the plugin do nothing from now on. The first process of the node prints why.
pub fn become_inert(why: &str) {
    if !INERT.swap(true, Ordering::Relaxed) {
        events::stop();
        report(why);
    }
}

/// Like [`become_inert`], but without a message: another process prints it, or none is needed.
pub fn become_inert_silently() {
    INERT.store(true, Ordering::Relaxed);
    events::stop();
}

/// Whether this is the first process of the node, by the launcher's variables. They are read once, before the program can have
/// threads that change the environment.
static IS_FIRST: OnceLock<bool> = OnceLock::new();

/// Remembers what later messages need to know about the environment and standard error.
pub fn prepare_messages() {
    remember_standard_error();
    IS_FIRST.get_or_init(is_first_of_node);
}

/// Prints a line on standard error in the first process of the node; the others print nothing.
pub fn report(line: &str) {
    if *IS_FIRST.get_or_init(is_first_of_node) {
        report_in_this_process(line);
    }
}

/// Prints a line on standard error that concerns only this process, or that no other process prints.
pub fn report_in_this_process(line: &str) {
    write_line(format!("ampere: {line}\n").as_bytes());
}
