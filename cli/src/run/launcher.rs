//! Adds options for launchers that do not pass on the whole environment to other nodes.
//!
//! The launchers of Slurm, Flux, MPICH and Intel MPI pass on the whole environment. Open MPI's launcher passes on only its own
//! variables. Other names can be listed in one of them, `OMPI_MCA_mca_base_env_list`. But all processes of the command
//! would inherit that variable, and a launcher that is also given `-x` would then refuse to start. So the option `-x` is added,
//! and only if the command is Open MPI's launcher.
//!
//! In a batch script, `srun` with `--export=NONE` or a list passes on the variables that SLURM_EXPORT_ENV names. The needed
//! names are added to that variable for every command. Other variables are not passed on, because the user chose that.

use crate::installation;
use crate::run::command;
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::process::Command;

const NAMES: [&str; 6] = ["mpirun", "mpiexec", "orterun", "prterun", "mpirun.openmpi", "mpiexec.openmpi"];
/// The MCA parameter with a list of variables. If the user has set it, Open MPI refuses the option `-x`.
const LIST: &str = "mca_base_env_list";
const ENV_LIST: &str = "OMPI_MCA_mca_base_env_list";
/// The variable that names the variables which `srun` passes on in addition to Slurm's own: ALL, NONE, or names and
/// `NAME=value`, separated by commas.
const SLURM_LIST: &str = "SLURM_EXPORT_ENV";
/// The variables of the measured command that other nodes need in addition to ampere's own.
const NEEDED: [&str; 4] =
    ["LD_PRELOAD", "LD_LIBRARY_PATH", "SCOREP_SUBSTRATE_PLUGINS", command::NVTX_LIBRARY];
/// At most this many bytes of a program are read, because launchers are small.
const BYTES_MAX: u64 = 1 << 20;

/// Returns the command with the options that its launcher needs.
pub fn with_launcher_options(mut command: Command) -> Command {
    if let Some(list) = std::env::var(SLURM_LIST).ok().and_then(|list| slurm_list(&list, needed(&command))) {
        command.env(SLURM_LIST, list);
    }
    if !is_open_mpi_launcher(command.get_program()) {
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
    command::with_words(&command, command.get_program(), &words)
}

/// Returns the names of variables that the command's processes on other nodes need.
fn needed(command: &Command) -> BTreeSet<String> {
    let set = command.get_envs().filter(|(_, value)| value.is_some()).map(|(name, _)| name.to_owned());
    let inherited = std::env::vars_os().map(|(name, _)| name);
    let names = set.chain(inherited).filter_map(|name| name.into_string().ok());
    let all = || NEEDED.iter().chain(&command::GPU_LIBRARIES).chain(&command::TOOL_LIBRARIES);
    names.filter(|name| all().any(|needed| needed == name) || name.starts_with("AMPERE_")).collect()
}

/// Adds the needed names that are missing in Slurm's list. Returns `None` if the list need not change. After NONE, `srun` reads
/// no further.
fn slurm_list(list: &str, needed: BTreeSet<String>) -> Option<String> {
    let is = |word: &str, one: &&str| one.eq_ignore_ascii_case(word);
    let own: Vec<&str> = list.split(',').take_while(|one| !is("NONE", one) && !is("NIL", one)).collect();
    if list.is_empty() || own.iter().any(|one| is("ALL", one)) {
        return None;
    }
    let lacks = |name: &String| !own.iter().any(|one| one.split('=').next() == Some(name));
    let names: Vec<String> = needed.into_iter().filter(lacks).collect();
    Some(own.into_iter().chain(names.iter().map(String::as_str)).collect::<Vec<_>>().join(","))
}

/// Returns the Slurm job if this is the shell of an `salloc` on a node outside of the job, such as a login node. slurmd sets
/// the variable with the node's name only on the job's nodes.
pub fn job_elsewhere(variable: impl Fn(&str) -> Option<String>, node: &str) -> Option<String> {
    let (job, list) = variable("SLURM_JOB_ID").zip(variable("SLURM_JOB_NODELIST"))?;
    (variable("SLURMD_NODENAME").is_none() && !may_be_in(&list, node)).then_some(job)
}

/// Whether a node may be in a list such as `n[1-3,7],gpu1`: if a name has numbers in brackets, only the text before them is
/// compared.
fn may_be_in(list: &str, node: &str) -> bool {
    let node = node.split('.').next().unwrap_or_default();
    list.split(',').any(|one| match one.split_once('[') {
        Some((begin, _)) => {
            node.strip_prefix(begin).is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
        }
        None => one == node,
    })
}

/// Whether the user passes a variable: `-x NAME` or `-x NAME=value`.
fn is_passed(words: &[OsString], name: &str) -> bool {
    words.windows(2).any(|pair| {
        let given = pair[1].to_string_lossy();
        pair[0] == "-x" && given.split('=').next() == Some(name)
    })
}

/// Whether a program is Open MPI's launcher. Other launchers have the same names, so the file that the name leads to is checked
/// as well.
fn is_open_mpi_launcher(program: &OsStr) -> bool {
    let has_name = Path::new(program).file_name().and_then(OsStr::to_str).is_some_and(|n| NAMES.contains(&n));
    let Some(path) = installation::program(program).ok().filter(|_| has_name) else { return false };
    let Ok(path) = std::fs::canonicalize(path) else { return false };
    if path.file_name().is_some_and(|name| name == "orterun" || name == "prterun") {
        return true;
    }
    let mut bytes = Vec::new();
    // Since version 5, the launcher starts `prterun`, so it contains that name.
    let starts = b"prterun";
    File::open(path).and_then(|file| file.take(BYTES_MAX).read_to_end(&mut bytes)).is_ok()
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
    fn srun_passes_on_needed_variables_and_those_that_the_user_lists() {
        let list = |list| slurm_list(list, ["A", "LD_PRELOAD"].map(str::to_owned).into());
        assert_eq!(list("NONE").as_deref(), Some("A,LD_PRELOAD"));
        assert_eq!(list("nil").as_deref(), Some("A,LD_PRELOAD"));
        assert_eq!(list("PATH,LD_PRELOAD=x.so").as_deref(), Some("PATH,LD_PRELOAD=x.so,A"));
        assert_eq!(list("PATH,NONE").as_deref(), Some("PATH,A,LD_PRELOAD"));
        assert_eq!([list("ALL"), list("B=c,all"), list("")], [None, None, None]);
    }

    #[test]
    fn a_login_node_does_not_belong_to_the_job() {
        let job = |list: &str, slurmd: Option<&str>, node| {
            let variable = |name: &str| match name {
                "SLURM_JOB_ID" => Some("17".to_owned()),
                "SLURM_JOB_NODELIST" => Some(list.to_owned()),
                _ => slurmd.map(str::to_owned),
            };
            job_elsewhere(variable, node).is_some()
        };
        assert!(job("n1,gpu[1-4,7]", None, "login1") && job("n[1-4]", None, "n-login.site.org"));
        assert!(!job("n[1-4]", Some("n1"), "vm"), "slurmd started it");
        assert!(!job("n1", None, "n1.site.org") && !job("a,gpu[1-4,7]", None, "gpu3"));
        assert_eq!(job_elsewhere(|_| None, "login1"), None);
    }

    #[test]
    fn other_programs_are_started_as_they_were_given() {
        for program in ["sh", "/bin/true", "mpiexec.hydra", "srun"] {
            let changed = with_launcher_options(Command::new(program));
            assert_eq!((changed.get_program(), changed.get_args().count()), (OsStr::new(program), 0));
        }
    }
}
