//! Words to the user: single lines on standard error, from one process of a node. Standard output is the program's.

use std::fmt::{Arguments, Write};

/// Where launchers tell a process its rank on the node (the last one only its rank in the job).
const LOCAL_RANK: &[&str] = &[
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "MPI_LOCALRANKID",
    "MV2_COMM_WORLD_LOCAL_RANK",
    "PALS_LOCAL_RANKID",
    "SLURM_LOCALID",
    "PMI_RANK",
];

/// Writes `ampere: ...` and a newline in one write, unless this process is known not to be its node's first.
pub fn say(message: Arguments) {
    let rank = LOCAL_RANK.iter().find_map(std::env::var_os);
    if rank.is_some_and(|rank| rank != "0") {
        return;
    }
    let mut line = String::from("ampere: ");
    let _ = line.write_fmt(message);
    line.push('\n');
    // SAFETY: the pointer and the length are those of one live string. An error has nobody to go to.
    ampere_quiet::quietly(|| unsafe { libc::write(2, line.as_ptr().cast(), line.len()) });
}
