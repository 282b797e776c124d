//! `ampere`: the command line. Each command has a file or a folder of its name.
//!
//! ```text
//! run/  recover.rs  attribute.rs  report.rs  compare.rs  top/  replay.rs  calibrate/  doctor/  work.rs      the commands
//! attribute_ranks.rs  shares the nodes of a trace among processes: `mpirun -n 8 ampere attribute`
//! calls.rs            `ampere attribute --calls`
//! timeline.rs         `ampere report -f timeline`
//! percent.rs          percentages of the command line
//! usage.rs            examples of each command, and messages about wrong usage
//! write_file.rs       writes a file that the user has named
//! collector/          starts the collector of `ampere run` and `ampere replay`, restarts it, and requests figures from it
//! terminal/           what people see on a terminal
//! installation.rs     finds ampere's other programs and libraries
//! shipped.rs          manual pages, completions and references for `make install`
//! ```
#![forbid(unsafe_code)]

#[macro_use]
mod terminal;

mod attribute;
mod attribute_ranks;
mod calibrate;
mod calls;
mod collector;
mod compare;
mod doctor;
mod installation;
mod percent;
mod recover;
mod replay;
mod report;
mod run;
#[cfg(feature = "manual")]
mod shipped;
mod timeline;
mod top;
mod usage;
mod work;
mod write_file;

use ampere_settings::{PREFIX, Setting, setting};
use clap::{FromArgMatches, Parser, Subcommand};
use std::process::ExitCode;

/// Joules per rank, call path and GPU kernel, while the job runs.
#[derive(Parser)]
#[command(name = "ampere", version, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run a command and measure it: `ampere run mpirun -n 4 ./xhpl`
    Run(run::RunArguments),
    /// Attribute the energy in an existing OTF2 trace
    Attribute(attribute::AttributeArguments),
    /// Measure how fast the counters are, how far they lag and how noisy they are
    Calibrate(calibrate::CalibrateArguments),
    /// Replay an existing OTF2 trace in real time, with live metrics
    Replay(replay::ReplayArguments),
    /// Show a run's summary: as a table, a page with pictures, data for other programs
    Report(report::ReportArguments),
    /// Watch a run while it is running, on the whole terminal, with keys as in htop
    Top(top::TopArguments),
    /// Compare runs, and show where they differ most
    Compare(compare::CompareArguments),
    /// Finish a run that was killed together with its collector
    Recover(recover::RecoverArguments),
    /// Count units of work for the run in which this is called: `ampere work steps 100`
    Work(work::WorkArguments),
    /// Check what this node has, and advise on what is missing
    Doctor(doctor::DoctorArguments),
    /// Opens counters, or a library, in a process that may crash: a part of the doctor
    #[command(hide = true)]
    Probe(doctor::ProbeArguments),
    /// Reports which signals it gets: a part of run
    #[command(hide = true)]
    Witness,
    /// Write manual pages, completions and references: a part of make install
    #[cfg(feature = "manual")]
    #[command(hide = true)]
    Shipped(shipped::ShippedArguments),
}

fn main() -> ExitCode {
    ampere_inherited::restore_sigchld();
    let matches = usage::command().try_get_matches_from(compare::with_marked_groups(std::env::args_os()));
    let arguments = matches.and_then(|mut matches| Arguments::from_arg_matches_mut(&mut matches));
    let arguments = arguments.unwrap_or_else(|why| usage::exit(why));
    if !matches!(arguments.command, Command::Doctor(_) | Command::Probe(_) | Command::Witness) {
        warn_of_misspelt_variables(); // the doctor reports them itself
    }
    let result = match arguments.command {
        Command::Run(arguments) => run::run(arguments),
        Command::Attribute(arguments) => attribute::attribute(arguments),
        Command::Calibrate(arguments) => calibrate::calibrate(arguments),
        Command::Replay(arguments) => replay::replay(arguments),
        Command::Report(arguments) => report::report(arguments),
        Command::Top(arguments) => top::top(arguments),
        Command::Compare(arguments) => compare::compare(arguments),
        Command::Recover(arguments) => recover::recover(arguments),
        Command::Work(arguments) => work::work(arguments),
        Command::Doctor(arguments) => doctor::doctor(arguments),
        Command::Probe(arguments) => doctor::probe(arguments),
        Command::Witness => run::witness(),
        #[cfg(feature = "manual")]
        Command::Shipped(arguments) => shipped::write(arguments, &usage::command()),
    };
    result.unwrap_or_else(|error| {
        say!("ampere: {}", ampere_model::text::one_line(&*error));
        error
            .downcast_ref::<installation::CannotRun>()
            .map_or(ExitCode::FAILURE, |why| ExitCode::from(why.status))
    })
}

/// Prints a line for each variable whose name looks like a misspelt name of ampere's variables. Other names with the same prefix
/// are ignored, because environment modules set them.
fn warn_of_misspelt_variables() {
    let names = std::env::vars_os().map(|(name, _)| name.to_string_lossy().into_owned());
    for name in names.filter(|name| name.starts_with(PREFIX) && setting(name).is_none()) {
        if let Some(meant) = Setting::meant_by(&name) {
            say!("ampere: {name} is not known and has no effect: did you mean {}?", meant.variable);
        }
    }
}
