//! Compiles programs, runs them under the host with a logging plugin, and reads the plugin's log.
#![allow(dead_code)]

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

/// The directory of one test, with the logging plugin in it.
pub struct Bench {
    pub dir: TempDir,
}

/// The commands of an MPI implementation.
pub struct Mpi {
    pub cc: &'static str,
    pub fortran: &'static str,
    pub run: &'static [&'static str],
}

pub const OPEN_MPI: Mpi = Mpi {
    cc: "mpicc.openmpi",
    fortran: "mpifort.openmpi",
    run: &["mpirun.openmpi", "--oversubscribe", "--mca", "btl_vader_single_copy_mechanism", "none"],
};
pub const MPICH: Mpi = Mpi { cc: "mpicc.mpich", fortran: "mpifort.mpich", run: &["mpirun.mpich"] };

/// Whether all these commands exist; prints "skipped" if not.
pub fn have(commands: &[&str]) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    for command in commands {
        if !std::env::split_paths(&path).any(|directory| directory.join(command).exists()) {
            println!("skipped: no {command}");
            return false;
        }
    }
    true
}

/// Returns the path of the library under test.
pub fn host() -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    let host = tests.parent().unwrap().join("libampere_host.so");
    assert!(host.exists(), "{} is not built", host.display());
    host
}

pub fn program(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(name)
}

pub fn must(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}\n{}", String::from_utf8_lossy(&output.stderr));
    output
}

impl Bench {
    pub fn new() -> Bench {
        let dir = TempDir::new().unwrap();
        let bench = Bench { dir };
        let preload = bench.path(ampere_preload::DIRECTORY);
        must(Command::new("cp").arg("-r").arg(ampere_preload::BUILT).arg(&preload));
        std::os::unix::fs::symlink(host(), bench.path("libampere_host.so")).unwrap();
        must(
            Command::new("cc")
                .args(["-shared", "-fPIC", "-O1", "-o"])
                .arg(bench.plugin())
                .arg(program("logger.c"))
                .arg("-lpthread"),
        );
        bench
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn plugin(&self) -> PathBuf {
        self.path("liblogger.so")
    }

    /// Returns the path of the preloaded library, from which it finds the host.
    pub fn preload(&self) -> PathBuf {
        let place = [ampere_preload::DIRECTORY, ampere_preload::PLATFORM, ampere_preload::FILE];
        self.path(&place.join("/"))
    }

    /// Compiles one source file; returns the program.
    pub fn compile(&self, compiler: &str, options: &[&str], source: &str) -> PathBuf {
        let out = self.path(&format!("{source}.out"));
        must(
            Command::new(compiler)
                .arg(program(source))
                .args(options)
                .arg("-o")
                .arg(&out)
                .current_dir(&self.dir),
        );
        out
    }

    /// Returns a command that runs the program under the host, with the logging plugin.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("timeout");
        command
            .arg("120")
            .arg(program)
            .current_dir(&self.dir)
            .env("LD_PRELOAD", self.preload())
            .env("AMPERE_HOST_PLUGIN", self.plugin())
            .env("LOGGER_DIR", self.dir.path())
            .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
            .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
            // Open MPI fails if two processes make its directory in the common place at the same time.
            .env("OMPI_MCA_orte_tmpdir_base", self.dir.path())
            .env_remove("SCOREP_TIMER");
        command
    }

    /// Returns a command that runs a program under mpirun and otherwise is like [`Bench::command`].
    pub fn mpi(&self, mpi: &Mpi, ranks: usize, program: &Path) -> Command {
        let mut command = self.command(mpi.run[0]);
        command.args(&mpi.run[1..]).args(["-n", &ranks.to_string()]).arg(program);
        command
    }

    /// Returns the plugin's logs, one per process, in order of ranks.
    pub fn logs(&self) -> Vec<Log> {
        let mut logs: Vec<Log> = std::fs::read_dir(&self.dir)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.extension().is_some_and(|extension| extension == "log"))
            .map(|path| Log {
                lines: std::fs::read_to_string(path).unwrap().lines().map(String::from).collect(),
            })
            .collect();
        logs.sort_by_key(|log| log.find("init_mpp").map(str::to_string));
        logs
    }
}

/// Runs a command, which must succeed, and returns standard output and standard error.
pub fn ok(command: &mut Command) -> (String, String) {
    let output = must(command);
    (
        String::from_utf8_lossy(&output.stdout).into_owned(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    )
}

/// The log of one process's plugin.
pub struct Log {
    pub lines: Vec<String>,
}

impl Log {
    pub fn find(&self, start: &str) -> Option<&str> {
        self.lines.iter().find(|line| line.starts_with(start)).map(String::as_str)
    }

    pub fn position(&self, start: &str) -> usize {
        self.lines
            .iter()
            .position(|line| line.starts_with(start))
            .unwrap_or_else(|| panic!("no {start}\n{self}"))
    }

    /// Returns the number of enters of a region, on all locations.
    pub fn enters(&self, region: &str) -> usize {
        let tail = format!(" '{region}'");
        self.lines.iter().filter(|line| line.starts_with("enter ") && line.ends_with(&tail)).count()
    }

    /// Returns the line that defines a region.
    pub fn region(&self, name: &str) -> &str {
        let part = format!(" '{name}' canonical");
        self.lines
            .iter()
            .find(|line| line.starts_with("region ") && line.contains(&part))
            .unwrap_or_else(|| panic!("no region {name}\n{self}"))
    }

    /// Returns the events of one location, as "+name" and "-name".
    pub fn events(&self, location: u32) -> Vec<String> {
        let (enter, exit) = (format!("enter {location} "), format!("exit {location} "));
        self.lines
            .iter()
            .filter_map(|line| {
                let sign = if line.starts_with(&enter) {
                    '+'
                } else if line.starts_with(&exit) {
                    '-'
                } else {
                    return None;
                };
                Some(format!("{sign}{}", line.split('\'').nth(1)?))
            })
            .collect()
    }

    /// Returns the names of all calls in the log except events, counts of events and definitions.
    pub fn life(&self) -> Vec<&str> {
        self.lines
            .iter()
            .map(|line| line.split(' ').next().unwrap_or_default())
            .filter(|word| {
                !matches!(*word, "enter" | "exit" | "region" | "definition" | "entered" | "missed")
            })
            .collect()
    }

    /// Checks what holds for every log: definitions come before their use, frames nest, time does not go back, and locations
    /// exist while they have events.
    pub fn check(&self) {
        let (mut defined, mut live) = (HashSet::new(), HashSet::new());
        let mut open: std::collections::HashMap<String, Vec<String>> = Default::default();
        let mut last: std::collections::HashMap<String, u64> = Default::default();
        for line in &self.lines {
            let words: Vec<&str> = line.split(' ').collect();
            let name = line.split('\'').nth(1).unwrap_or_default().to_string();
            match words[0] {
                "region" => {
                    defined.insert(name);
                }
                "activate" => assert!(live.insert(words[1].to_string()), "{line}\n{self}"),
                "deactivate" => {
                    assert!(live.remove(words[1]), "{line}\n{self}");
                    assert!(line.ends_with("data=ok"), "{line}");
                }
                "enter" | "exit" => {
                    let (location, time) = (words[1].to_string(), words[2].parse::<u64>().unwrap());
                    assert!(live.contains(&location), "{line}\n{self}");
                    assert!(defined.contains(&name), "{line}: not defined\n{self}");
                    let previous = last.insert(location.clone(), time).unwrap_or(0);
                    assert!(previous <= time, "{line}: time went back");
                    let frames = open.entry(location).or_default();
                    if words[0] == "enter" {
                        frames.push(name);
                    } else {
                        assert_eq!(frames.pop().as_ref(), Some(&name), "{line}\n{self}");
                    }
                }
                _ => {}
            }
        }
        assert!(live.is_empty(), "never deactivated: {live:?}\n{self}");
    }
}

impl std::fmt::Display for Log {
    fn fmt(&self, out: &mut std::fmt::Formatter) -> std::fmt::Result {
        for line in &self.lines {
            writeln!(out, "{line}")?;
        }
        Ok(())
    }
}
