//! `ampere doctor`: checks what a run needs on this node, and advises on what is missing.
//!
//! ```text
//! installation.rs  ampere's own files       counters.rs  the sources of energy, each asked in a process of its own
//! score_p.rs       Score-P and its loader   probe.rs     `ampere probe`, which opens a source
//! mpi.rs           launchers                child.rs     another program, asked within a time limit
//! traces.rs        OTF2                     memory.rs    shared memory, and sessions left in it
//! cores.rs         cores and clock          output.rs    the output directory and the port
//! settings.rs      the file and variables   batch.rs     which process of a batch job gets the signal before the time limit
//! stacks.rs        sampling of stacks       findings.rs  findings, one line each, and JSON
//! gpus.rs          runtimes of GPUs
//! ```
//!
//! The doctor does what a run does, where possible with the same code, and removes whatever it made. It continues even if a
//! vendor's library or an `mpirun` crashes or hangs.

mod batch;
mod child;
mod cores;
mod counters;
mod findings;
mod gpus;
mod installation;
mod memory;
mod mpi;
mod output;
mod probe;
mod score_p;
mod settings;
mod stacks;
mod traces;

pub use probe::{ProbeArguments, probe};

use crate::terminal::words::{given, path_parser, print_in_colour, screen_of};
use ampere_settings::SourceSettings;
use clap::Args;
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Args)]
pub struct DoctorArguments {
    /// The output directory of the planned run [default: AMPERE_OUTPUT, or a new one here]
    #[arg(short, long, value_parser = path_parser())]
    output: Option<PathBuf>,
    /// Settings of the run to check for [default: AMPERE_CONFIG]
    #[arg(long, value_parser = path_parser())]
    config: Option<PathBuf>,
    /// Where the run is to serve /metrics [default: AMPERE_LISTEN, or 127.0.0.1:9977]
    #[arg(long)]
    listen: Option<String>,
    /// Print everything as JSON
    #[arg(long)]
    json: bool,
}

/// The settings of the planned run. The environment is read here and not by clap, because mistakes in it are findings.
struct Wanted {
    output: Option<PathBuf>,
    config: Option<PathBuf>,
    listen: Option<String>,
}

impl Wanted {
    /// Takes each setting from its option, or else from its variable.
    fn by(arguments: &DoctorArguments) -> Wanted {
        let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let path =
            |option, name| given(option).map(ToOwned::to_owned).or_else(|| variable(name).map(PathBuf::from));
        let listen = arguments.listen.clone().filter(|text| !text.is_empty());
        Wanted {
            output: path(&arguments.output, "AMPERE_OUTPUT"),
            config: path(&arguments.config, "AMPERE_CONFIG"),
            listen: listen
                .or_else(|| variable("AMPERE_LISTEN").map(|text| text.to_string_lossy().into_owned())),
        }
    }
}

pub fn doctor(arguments: DoctorArguments) -> anyhow::Result<ExitCode> {
    let wanted = Wanted::by(&arguments);
    let program = counters::own_path();
    let root = SourceSettings::from_environment().sys_root;
    let cores = cores::Cores::count();
    // This is done before the counters are opened, because their threads would use the cores while the clock is measured.
    let cores_and_clock = cores::check(&cores, &root);
    let (mut checks, installation) = installation::check();
    let (found, sources) = counters::check(&program, wanted.config.as_deref());
    checks.extend(found);
    checks.extend(score_p::check(&program, installation.as_ref()));
    checks.extend(gpus::check(&program, installation.as_ref()));
    checks.extend(mpi::check());
    checks.extend(batch::check());
    checks.extend(traces::check());
    checks.extend(memory::check(cores.allowed));
    checks.extend(cores_and_clock);
    checks.extend(stacks::check());
    checks.extend(output::check(&wanted));
    checks.extend(settings::check(&wanted));
    let ok = findings::is_ok(&checks);
    let (version, node) = (env!("CARGO_PKG_VERSION"), ampere_ring::process::node_name());
    print_in_colour("the findings", |out| {
        if arguments.json {
            let report = serde_json::json!({
                "schema": "ampere-doctor/1", "version": version, "node": node, "ok": ok, "checks": checks,
                "sources": sources,
            });
            serde_json::to_writer_pretty(&mut *out, &report)?;
            return writeln!(out);
        }
        let terminal = std::io::stdout();
        let screen = terminal.is_terminal().then(|| screen_of(&terminal));
        findings::print(&checks, &format!("ampere {version} on {node}"), screen, out)
    })?;
    Ok(if ok { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Returns the first word that looks like a version, such as `4.1.4`, even after a `v`.
fn version_in(text: &str) -> Option<String> {
    let words = text.split(|c: char| c.is_whitespace() || ",()".contains(c));
    let words = words.map(|word| word.strip_prefix('v').unwrap_or(word));
    let mut versions =
        words.filter(|word| word.starts_with(|c: char| c.is_ascii_digit()) && word.contains('.'));
    versions.next().map(str::to_owned)
}

/// Formats a number of bytes: `8 MiB`, `23.4 GiB`.
fn bytes(number: u64) -> String {
    let (mut value, mut unit) = (number as f64, "bytes");
    for larger in ["KiB", "MiB", "GiB", "TiB"] {
        if value < 1024.0 {
            break;
        }
        (value, unit) = (value / 1024.0, larger);
    }
    format!("{} {unit}", (value * 10.0).round() / 10.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ampere_model::text::plural;

    #[test]
    fn versions_are_found_and_numbers_have_units() {
        assert_eq!(version_in("otf2-print: version 3.0.2"), Some("3.0.2".to_owned()));
        assert_eq!(version_in("scorep 8.4"), Some("8.4".to_owned()));
        assert_eq!(version_in("nothing"), None);
        assert_eq!(
            [plural(1, "ring"), plural(2, "ring"), plural(0, "process")],
            ["1 ring", "2 rings", "0 processes"]
        );
        assert_eq!([bytes(100), bytes(8 << 20), bytes(25_130_000_000)], ["100 bytes", "8 MiB", "23.4 GiB"]);
    }
}
