//! Finds launchers of MPI programs and which MPI they belong to.

use super::child::{self, ANSWER_TIME_MAX, End};
use super::findings::{Check, Group};
use super::version_in;
use crate::installation;
use std::ffi::OsStr;
use std::process::Command;

const LAUNCHERS: [&str; 3] = ["mpirun", "mpiexec", "srun"];

/// Texts that only one kind of launcher prints, and the name of its MPI.
const KNOWN: [(&str, &str); 8] = [
    ("Open MPI", "Open MPI"),
    ("OpenRTE", "Open MPI"),
    ("Intel(R) MPI", "Intel MPI"),
    ("MVAPICH", "MVAPICH"),
    ("HYDRA", "MPICH"),
    ("PALS", "Cray PALS"),
    ("pals", "Cray PALS"),
    ("slurm", "Slurm"),
];

pub fn check() -> Vec<Check> {
    let mut group = Group::new("MPI");
    for name in LAUNCHERS {
        let Ok(path) = installation::program(OsStr::new(name)) else { continue };
        let shown = path.display();
        match child::run_within(Command::new(&path).arg("--version"), ANSWER_TIME_MAX) {
            Ok(finished) if finished.succeeded() => {
                group.ok(name, format!("{}, {shown}", mpi_of(&finished.stdout, finished.first_line())))
            }
            Ok(finished) if finished.end == End::TimedOut => group.note(
                name,
                format!("{shown} does not print its version within {} s", ANSWER_TIME_MAX.as_secs()),
                None,
            ),
            Ok(finished) => {
                group.note(name, format!("{shown} does not work here: {}", finished.first_line()), None)
            }
            Err(error) => group.note(name, format!("{shown} cannot be run: {error}"), None),
        }
    }
    if group.checks.is_empty() {
        group.note(
            "launcher",
            format!("none of {} is in PATH: MPI programs need another launcher", LAUNCHERS.join(", ")),
            Some("load the module of an MPI to measure MPI programs".to_owned()),
        );
    }
    group.checks
}

fn mpi_of(text: &str, first_line: &str) -> String {
    let known = KNOWN.iter().find(|(word, _)| text.contains(word)).map(|(_, name)| *name);
    match (known, version_in(text)) {
        (Some(name), Some(version)) => format!("{name} {version}"),
        (Some(name), None) => name.to_owned(),
        (None, _) => format!("{first_line:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launchers_are_recognised_by_their_output() {
        let cases = [
            ("mpirun (Open MPI) 4.1.4\n\nReport bugs to http://www.open-mpi.org/", "Open MPI 4.1.4"),
            ("mpiexec (OpenRTE) 4.1.4\n", "Open MPI 4.1.4"),
            ("mpirun (Open MPI) 5.0.3rc1\n", "Open MPI 5.0.3rc1"),
            ("HYDRA build details:\n    Version:           4.0.2\n", "MPICH 4.0.2"),
            ("Intel(R) MPI Library for Linux* OS, Version 2021.8 Build 20221129\n", "Intel MPI 2021.8"),
            ("slurm-wlm 22.05.8\n", "Slurm 22.05.8"),
            ("slurm 23.02.7\n", "Slurm 23.02.7"),
            ("PALS 1.2.12\n", "Cray PALS 1.2.12"),
            ("something else\n", "\"something else\""),
        ];
        for (text, expected) in cases {
            assert_eq!(mpi_of(text, text.lines().next().unwrap()), expected);
        }
    }
}
