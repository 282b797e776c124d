//! Words to the user: single lines on standard error, from one process of a node. Standard output is the program's.

use ampere_model::LOCAL_RANKS;
use std::fmt::{Arguments, Write};

/// Writes `ampere: ...` and a newline in one write, unless this process is known not to be its node's first.
pub fn say(message: Arguments) {
    // MPICH tells its rank in the job only.
    let rank = LOCAL_RANKS.iter().chain(&["PMI_RANK"]).find_map(std::env::var_os);
    if rank.is_some_and(|rank| rank != "0") {
        return;
    }
    let mut line = String::from("ampere: ");
    let _ = line.write_fmt(message);
    line.push('\n');
    ampere_quiet::tell(line.as_bytes());
}
