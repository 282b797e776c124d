//! The names of the programs of compared runs. A sampled call path begins with the name of the program's file. If two versions of a
//! program have different file names, none of their call paths would match without a common name. The same is true of the functions
//! of a Python script, which have the script's name after their own.

use super::figures::{By, SEPARATOR};
use ampere_figures::summary::Summary;
use ampere_model::text::printable;
use std::collections::BTreeSet;

/// The name that stands for the program of each run.
const PROGRAM: &str = "(program)";

/// The file name of a run's program.
pub(super) struct Program(String);

/// Returns the program of each run, if in each run exactly one program is not in all other runs. Otherwise returns an empty vector,
/// as it does if all runs have the same programs.
pub(super) fn of<'a>(summaries: impl Iterator<Item = &'a Summary>) -> Vec<Program> {
    let runs: Vec<BTreeSet<&str>> = summaries.map(programs).collect();
    let in_all = |name: &str| runs.iter().all(|names| names.contains(name));
    let own = |names: &BTreeSet<&str>| -> Option<Program> {
        let mut own = names.iter().filter(|name| !in_all(name));
        own.next().filter(|_| own.next().is_none()).map(|name| Program((*name).to_owned()))
    };
    runs.iter().map(own).collect::<Option<Vec<Program>>>().unwrap_or_default()
}

/// Returns the names of the outermost frames that are also the names of files in the command, and the Python scripts there.
fn programs(summary: &Summary) -> BTreeSet<&str> {
    let words = summary.run.command.iter().flat_map(|word| word.split_whitespace());
    let files: BTreeSet<&str> = words.map(crate::first::file_name).collect();
    let roots = summary.paths.parent.iter().zip(&summary.paths.name).filter(|(parent, _)| parent.is_none());
    let roots: BTreeSet<&str> = roots.map(|(_, name)| summary.name(*name)).collect();
    files.into_iter().filter(|file| roots.contains(file) || file.ends_with(".py")).collect()
}

/// Explains the name that stands for these programs; `None` if there are none.
pub(super) fn note(programs: &[Program]) -> Option<String> {
    let names: BTreeSet<&str> = programs.iter().map(|Program(name)| name.as_str()).collect();
    let names: Vec<&str> = names.into_iter().collect();
    (!names.is_empty())
        .then(|| format!("{PROGRAM} is the program of each run: {}", printable(&names.join(", "))))
}

/// Whether a reader of the text `shown` needs a note. The note about [`PROGRAM`] is needed only if the text contains that name.
pub(super) fn is_needed(note: &str, shown: &str) -> bool {
    !note.starts_with(PROGRAM) || shown.contains(PROGRAM)
}

impl Program {
    /// Replaces the program's name in the name of a row.
    pub(super) fn replace_name(&self, (by, name): &mut (By, String)) {
        let Program(program) = self;
        *name = name.replace(&format!(" ({program})"), &format!(" {PROGRAM}"));
        match by {
            By::Function if *name == *program => *name = PROGRAM.to_owned(),
            By::CallPath => {
                let below = name.strip_prefix(program.as_str());
                let below = below.filter(|below| below.is_empty() || below.starts_with(SEPARATOR));
                if let Some(below) = below {
                    *name = format!("{PROGRAM}{below}");
                }
            }
            _ => {}
        }
    }
}
