//! `ampere`: the command line.
#![forbid(unsafe_code)]

#[macro_use]
mod words;

mod announced;
mod attribute;
mod calibrate;
mod compare;
mod doctor;
mod find;
mod keeper;
mod launched;
mod progress;
mod recover;
mod replay;
mod report;
mod run;
mod screen;
mod shipped;
mod signals;
mod top;
mod variables;
mod watch;

use clap::{CommandFactory, Parser, Subcommand};
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
    /// Run a command and measure it: `ampere run -- mpirun -n 4 ./xhpl`
    Run(run::RunArguments),
    /// Attribute the energy in an existing OTF2 trace
    Attribute(attribute::AttributeArguments),
    /// Measure how fast the counters are, how far they lag and how noisy they are
    Calibrate(calibrate::CalibrateArguments),
    /// Play an existing OTF2 trace as if it ran now, with live metrics and all
    Replay(replay::ReplayArguments),
    /// Show a run's summary: as a table, a page with pictures, rows for other programs
    Report(report::ReportArguments),
    /// Watch a run that goes on: the table that `ampere run` shows
    Top(top::TopArguments),
    /// Show runs beside each other, and where they differ most
    Compare(compare::CompareArguments),
    /// Finish a run that was killed together with its collector
    Recover(recover::RecoverArguments),
    /// Say what was found on this node, and what to do about what was not
    Doctor(doctor::DoctorArguments),
    /// Counters, or a library, in a process that may crash: a part of the doctor
    #[command(hide = true)]
    Probe(doctor::ProbeArguments),
    /// Says which signals it gets: a part of run
    #[command(hide = true)]
    Witness,
    /// Write manual pages and what shells complete: a part of make install
    #[command(hide = true)]
    Shipped(shipped::ShippedArguments),
    /// One process of a trace that is replayed
    #[command(hide = true)]
    ReplayRank(replay::RankArguments),
}

fn main() -> ExitCode {
    ampere_signal_safety::make_children_waitable();
    let arguments = Arguments::parse(); // wrong usage ends here, with status 2
    if !matches!(
        arguments.command,
        Command::Doctor(_) | Command::Probe(_) | Command::Witness | Command::ReplayRank(_)
    ) {
        variables::tell_of_misspelt(); // the doctor has it among its findings
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
        Command::Doctor(arguments) => doctor::doctor(arguments),
        Command::Probe(arguments) => doctor::probe(arguments),
        Command::Witness => signals::witness(),
        Command::Shipped(arguments) => shipped::write(arguments, &Arguments::command()),
        Command::ReplayRank(arguments) => replay::rank(arguments),
    };
    result.unwrap_or_else(|error| {
        say!("ampere: {}", ampere_model::text::one_line(&*error));
        ExitCode::FAILURE
    })
}
