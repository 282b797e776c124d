//! Messages to the user: single lines on standard error, from the first process of a node.

use ampere_model::is_first_of_node;
use std::fmt::{Arguments, Write};

/// Writes `ampere: ...` and a newline in one write, unless this process is known not to be the first of its node.
pub fn report(message: Arguments) {
    if !is_first_of_node() {
        return;
    }
    let mut line = String::from("ampere: ");
    let _ = line.write_fmt(message);
    line.push('\n');
    ampere_signal_safety::write_line(line.as_bytes());
}
