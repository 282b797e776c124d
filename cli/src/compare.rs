//! `ampere compare`: runs beside each other.

use crate::report::summary_of;
use crate::terminal::words::{path_parser, print};
use ampere_report::compare::{Named, render};
use clap::Args;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Args)]
pub struct CompareArguments {
    /// Output directories of two runs or more; changes are relative to the first
    #[arg(required = true, num_args = 2.., value_parser = path_parser())]
    directories: Vec<PathBuf>,
}

pub fn compare(arguments: CompareArguments) -> anyhow::Result<ExitCode> {
    let named = |directory: &PathBuf| -> anyhow::Result<Named> {
        Ok(Named { name: directory.display().to_string(), summary: summary_of(directory)? })
    };
    let runs = arguments.directories.iter().map(named).collect::<anyhow::Result<Vec<Named>>>()?;
    print("the comparison", |out| out.write_all(render(&runs).as_bytes()))?;
    Ok(ExitCode::SUCCESS)
}
