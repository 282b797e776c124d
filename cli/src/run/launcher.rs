//! Launchers that have to be told which variables are the other nodes'.
//!
//! Slurm's, Flux's, MPICH's and Intel's hand the whole environment on, Open MPI's only its own variables. A variable of its
//! for that (`OMPI_MCA_mca_base_env_list`) would be inherited by everything, and a launcher in a script that is given a `-x`
//! besides refuses to start: so the option is added where the command is Open MPI's launcher, and nowhere else.

use crate::installation;
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::process::Command;

const NAMES: [&str; 6] = ["mpirun", "mpiexec", "orterun", "prterun", "mpirun.openmpi", "mpiexec.openmpi"];
/// A list that the user has made: with it the option is refused, and without it the list is not read.
const LIST: &str = "mca_base_env_list";
const ENV_LIST: &str = "OMPI_MCA_mca_base_env_list";
/// What of the measured command's environment other nodes need, besides variables of ours.
const NEEDED: [&str; 4] =
    ["LD_PRELOAD", "LD_LIBRARY_PATH", "SCOREP_SUBSTRATE_PLUGINS", super::command::NVTX_LIBRARY];
/// Launchers are small programs.
const MOST_BYTES: u64 = 1 << 20;

/// The command, with what a launcher of Open MPI's has to be told.
pub fn told(mut command: Command) -> Command {
    if !is_open_mpis(command.get_program()) {
        return command;
    }
    let own: Vec<OsString> = command.get_args().map(OsStr::to_owned).collect();
    let needed = needed(&command);
    if let Some(list) = std::env::var(ENV_LIST).ok().filter(|list| !list.is_empty()) {
        let names = needed.into_iter().filter(|name| !list.split(';').any(|known| known == name));
        let list = std::iter::once(list.clone()).chain(names).collect::<Vec<_>>().join(";");
        command.env(ENV_LIST, list);
        return command;
    }
    if own.iter().any(|word| word.to_string_lossy().contains(LIST)) {
        return command;
    }
    let mut words: Vec<OsString> = Vec::new();
    for name in needed.into_iter().filter(|name| !is_passed(&own, name)) {
        words.extend(["-x".into(), name.into()]);
    }
    words.extend(own);
    super::command::with_words(&command, command.get_program(), &words)
}

/// Names of variables that the command's processes on other nodes need.
fn needed(command: &Command) -> BTreeSet<String> {
    let set = command.get_envs().filter(|(_, value)| value.is_some()).map(|(name, _)| name.to_owned());
    let inherited = std::env::vars_os().map(|(name, _)| name);
    let names = set.chain(inherited).filter_map(|name| name.into_string().ok());
    names.filter(|name| NEEDED.contains(&name.as_str()) || name.starts_with("AMPERE_")).collect()
}

/// Whether the user passes a variable: `-x NAME` or `-x NAME=value`.
fn is_passed(words: &[OsString], name: &str) -> bool {
    words.windows(2).any(|pair| {
        let given = pair[1].to_string_lossy();
        pair[0] == "-x" && given.split('=').next() == Some(name)
    })
}

/// By its name, and by that of the program that it is, or starts: others have launchers of these names, too.
fn is_open_mpis(program: &OsStr) -> bool {
    let has_name = Path::new(program).file_name().and_then(OsStr::to_str).is_some_and(|n| NAMES.contains(&n));
    let Some(path) = installation::program(program).ok().filter(|_| has_name) else { return false };
    let Ok(path) = std::fs::canonicalize(path) else { return false };
    if path.file_name().is_some_and(|name| name == "orterun" || name == "prterun") {
        return true;
    }
    let mut bytes = Vec::new();
    // Since version 5 it is a program that starts this one.
    let starts = b"prterun";
    File::open(path).and_then(|file| file.take(MOST_BYTES).read_to_end(&mut bytes)).is_ok()
        && bytes.windows(starts.len()).any(|part| part == starts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_that_the_user_passes_is_not_passed_twice() {
        let words: Vec<OsString> = ["-n", "2", "-x", "LD_PRELOAD", "-x", "A=b", "./x"].map(Into::into).into();
        assert!(is_passed(&words, "LD_PRELOAD") && is_passed(&words, "A"));
        assert!(!is_passed(&words, "LD") && !is_passed(&words, "AMPERE_SESSION"));
    }

    #[test]
    fn other_programs_are_started_as_they_were_given() {
        for program in ["sh", "/bin/true", "mpiexec.hydra", "srun"] {
            let told = told(Command::new(program));
            assert_eq!((told.get_program(), told.get_args().count()), (OsStr::new(program), 0));
        }
    }
}
