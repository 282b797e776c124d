//! The program that systemd starts for each connection. An argument, for tests, replaces the root of the file system.

use std::path::PathBuf;
use std::process::ExitCode;

fn main() -> ExitCode {
    let root = std::env::args_os().nth(1).map_or_else(|| PathBuf::from("/"), PathBuf::from);
    match ampere_counter_helper::serve(std::io::stdin(), &root) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("ampere-counter-helper: {why}");
            ExitCode::FAILURE
        }
    }
}
