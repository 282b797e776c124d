//! Writes what `make install` installs in addition to programs. Manual pages and completions are made from the definition of
//! the command line, and the reference of settings from their table. The reference of metrics is a page of the book.

use crate::usage::EXAMPLES;
use ampere_settings::reference;
use anyhow::Context;
use clap::builder::Resettable;
use clap::{Args, Command};
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(Args)]
pub struct ShippedArguments {
    /// The directory in which `man/man1`, `completions` and `docs` are made
    directory: PathBuf,
}

const SOURCE: &str = concat!("ampere ", env!("CARGO_PKG_VERSION"));
/// Shells whose completions are installed.
const SHELLS: [Shell; 3] = [Shell::Bash, Shell::Zsh, Shell::Fish];

/// Sections of the manual page that apply to all commands.
const SECTIONS: [(&str, &str); 3] = [
    (
        "EXIT STATUS",
        "0; the command's own for ampere run, 127 if there is no such command and 126 if it cannot be run; 1 for a failure that \
         is explained in one line on standard error; 2 for wrong usage; 3 if a run exceeds the limit of ampere compare --fail-above.",
    ),
    (
        "FILES",
        "A run's output directory has traces.otf2 (with traces.def and traces/), summary.json, summary.txt and report.html; \
         collector.json has the address of /metrics during the run. Settings are read from the file that --config \
         names.",
    ),
    (
        "SEE ALSO",
        "ampere-run(1), ampere-report(1), ampere-recover(1), ampere-doctor(1); dashboards and examples in share/ampere.",
    ),
];

pub fn write(arguments: ShippedArguments, command: &Command) -> anyhow::Result<ExitCode> {
    let [pages, completions, docs] =
        ["man/man1", "completions", "docs"].map(|name| arguments.directory.join(name));
    for directory in [&pages, &completions, &docs] {
        ampere_owned::make_all(directory, ampere_owned::DIRECTORY_MODE)
            .with_context(|| format!("cannot create {}", directory.display()))?;
    }
    let mut command = shown(command);
    for shell in SHELLS {
        clap_complete::generate_to(shell, &mut command, "ampere", &completions)
            .with_context(|| format!("cannot write to {}", completions.display()))?;
    }
    complete_paths(&completions.join("ampere.bash"))
        .with_context(|| format!("cannot write to {}", completions.display()))?;
    write_pages(command, &pages).with_context(|| format!("cannot write to {}", pages.display()))?;
    let references = [
        ("settings.md", reference::markdown()),
        ("metrics.md", include_str!("../../docs/src/metrics.md").to_owned()),
    ];
    for (name, text) in references {
        std::fs::write(docs.join(name), text)
            .with_context(|| format!("cannot write to {}", docs.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Removes the commands that only ampere itself calls.
fn shown(command: &Command) -> Command {
    let about = command.get_about().cloned().unwrap_or_default();
    let visible = command.get_subcommands().filter(|command| !command.is_hide_set()).cloned();
    Command::new("ampere")
        .version(env!("CARGO_PKG_VERSION"))
        .about(about)
        .subcommand_required(true)
        .disable_help_subcommand(true)
        .subcommands(visible)
}

/// The completions of bash for the first argument of each command, as options of `compgen`.
const COMPLETED: [(&str, &str); 7] = [
    ("attribute", "-f"),
    ("compare", "-d"),
    ("recover", "-d"),
    ("replay", "-f"),
    ("report", "-d"),
    ("run", "-c"),
    ("top", "-d"),
];

/// Makes bash complete an argument with paths. Clap's completion offers only options there.
fn complete_paths(script: &Path) -> std::io::Result<()> {
    let mut text = std::fs::read_to_string(script)?;
    let words = "COMPREPLY=( $(compgen -W \"${opts}\" -- \"${cur}\") )";
    for (name, kind) in COMPLETED {
        let Some(start) = text.find(&format!("ampere__subcmd__{name})\n            opts=")) else { continue };
        let length = text[start..].find("\n            ;;\n").unwrap_or(text.len() - start);
        let block = text[start..start + length].replace(" || ${COMP_CWORD} -eq 2 ]]", " ]]");
        let Some((before, after)) = block.rsplit_once(words) else { continue };
        let paths = format!(
            "compopt -o filenames 2>/dev/null\n            COMPREPLY=( $(compgen {kind} -- \"${{cur}}\") )"
        );
        text.replace_range(start..start + length, &format!("{before}{paths}{after}"));
    }
    std::fs::write(script, text)
}

/// Writes the page of a command, with its examples in a section of their own.
fn write_page(command: &Command, directory: &Path) -> std::io::Result<()> {
    let man = Man::new(command.clone().after_help(Resettable::Reset)).source(SOURCE);
    let mut file = File::create(directory.join(man.get_filename()))?;
    man.render(&mut file)?;
    let mut examples = Roff::new();
    let own = EXAMPLES.iter().find(|(name, _)| *name == command.get_name()).map_or(&[][..], |(_, own)| own);
    if !own.is_empty() {
        examples.control("SH", ["EXAMPLES"]);
    }
    for (line, what) in own {
        examples.control("TP", []).text([bold(*line)]).text([roman(*what)]);
    }
    examples.to_writer(&mut file)
}

fn write_pages(mut command: Command, directory: &Path) -> std::io::Result<()> {
    command.build();
    for one in command.get_subcommands() {
        write_page(one, directory)?;
    }
    let mut file = File::create(directory.join("ampere.1"))?;
    Man::new(command).source(SOURCE).render(&mut file)?;
    let mut more = Roff::new();
    for (title, text) in SECTIONS {
        more.control("SH", [title]).text([roman(text)]);
    }
    // Names are not broken at the end of a line, because searches would not find them.
    more.control("nh", []).control("SH", ["ENVIRONMENT"]).text([roman(
        "Each setting has a variable, which takes precedence over the file; ampere doctor checks those that are set.",
    )]);
    for (variable, about) in reference::variables() {
        more.control("TP", []).text([roman(variable)]).text([roman(about.replace('`', ""))]);
    }
    more.to_writer(&mut file)
}
