//! Randomly generated programs with and without ampere: exit status, standard output and standard error are the same.
//!
//! A round draws how a program is built: its language, C library, MPI and linking, and whether it is instrumented or has its own
//! hooks. It also draws what the program does (`actions.c`), and how it is started: by a shell, Python or a launcher, with
//! limits, as another user, or in another root directory. Each kind of program is built once.
//! `AMPERE_TEST_ROUNDS=1 AMPERE_TEST_SEED=...` repeats a round.

use ampere_tests::jobs::{Place, have, is_root, run};
use ampere_tests::random::{Random, rounds};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Number of rounds without `--long`.
const ROUNDS: u64 = 12;

const ACTIONS: &str = include_str!("actions.c");
const FORTRAN: &str = include_str!("main.f90");

/// Runs a program and prints its output, without ampere's lines.
const BY_PYTHON: &str = r#"
import subprocess, sys
done = subprocess.run(sys.argv[1:], capture_output=True)
lines = [line for line in done.stderr.splitlines() if not line.startswith(b"ampere:")]
print(done.returncode, done.stdout, lines)
"#;

/// How a program is built.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Build {
    compiler: &'static str,
    is_cpp: bool,
    is_fortran: bool,
    flags: Vec<&'static str>,
}

impl Build {
    fn has(&self, flag: &str) -> bool {
        self.flags.contains(&flag)
    }

    fn has_mpi(&self) -> bool {
        self.has("-DWITH_MPI")
    }

    fn is_static(&self) -> bool {
        self.has("-static")
    }

    /// Draws a way to build whose compilers are installed.
    fn draw(random: &mut Random) -> Build {
        const COMPILERS: [&str; 7] =
            ["cc", "cc", "g++", "musl-gcc", "gfortran", "mpicc.openmpi", "mpicc.mpich"];
        let here: Vec<&str> = COMPILERS.into_iter().filter(|compiler| have(&[compiler])).collect();
        let compiler = *random.choose(&here);
        let mut flags = vec![*random.choose(&["-O0", "-O2"])];
        let has_mpi = compiler.starts_with("mpicc");
        if has_mpi {
            flags.push("-DWITH_MPI");
        } else if random.below(3) == 0 {
            flags.push("-DWEAK");
        }
        if random.below(2) == 0 && compiler != "musl-gcc" {
            flags.push("-finstrument-functions");
        }
        let may_have_hooks = !flags.contains(&"-DWEAK");
        // musl has no hooks, so an instrumented program needs hooks of its own.
        if may_have_hooks && random.below(3) == 0 {
            flags.extend(["-finstrument-functions", "-DOWN_HOOKS"]);
        }
        match random.below(6) {
            0 if !has_mpi && compiler != "gfortran" => flags.push("-static"),
            1 if compiler == "cc" => flags.push("-m32"),
            2 => flags.push("-no-pie"),
            3 => flags.push("-Wl,-z,now"),
            4 => flags.push("-Wl,-z,lazy"),
            _ => {}
        }
        flags.dedup();
        Build { compiler, is_cpp: compiler == "g++", is_fortran: compiler == "gfortran", flags }
    }

    /// Builds the program; `None` if this machine cannot, for example without 32-bit libraries.
    fn make(&self, directory: &Path, number: usize) -> Option<PathBuf> {
        let program = directory.join(format!("program-{number}"));
        let source = directory.join(if self.is_cpp { "actions.cc" } else { "actions.c" });
        std::fs::write(&source, ACTIONS).expect("a source");
        let compile = |compiler: &str, source: &Path, more: &[&OsStr]| {
            let mut command = Command::new(compiler);
            command.args(["-w", "-g0"]).args(&self.flags).arg(source).args(more).args(["-pthread", "-ldl"]);
            command.output().is_ok_and(|done| done.status.success())
        };
        let made = match self.is_fortran {
            false => compile(self.compiler, &source, &["-o".as_ref(), program.as_ref()]),
            true => {
                let (object, main) = (directory.join("actions.o"), directory.join("main.f90"));
                std::fs::write(&main, FORTRAN).expect("a source");
                let as_function = ["-Dmain=actions", "-c", "-o"].map(AsRef::<OsStr>::as_ref);
                compile("cc", &source, &[&as_function[..], &[object.as_ref()]].concat())
                    && compile("gfortran", &main, &[object.as_ref(), "-o".as_ref(), program.as_ref()])
            }
        };
        made.then_some(program)
    }

    /// Draws the program's actions, in their order.
    fn draw_actions(&self, random: &mut Random) -> Vec<String> {
        let mut actions = Vec::new();
        if self.has_mpi() {
            actions.push("mpi:init".to_owned());
        }
        for _ in 0..=random.below(5) {
            actions.extend(self.draw_action(random));
        }
        if self.has_mpi() {
            actions.push("mpi:finalize".to_owned());
        }
        for _ in 0..random.below(2) {
            actions.extend(self.draw_action(random).filter(|action| !action.starts_with("mpi")));
        }
        actions.extend(self.draw_end(random));
        actions
    }

    fn draw_action(&self, random: &mut Random) -> Option<String> {
        let n = random.below(9);
        let may_load = !self.is_static();
        // MPI forbids much in a rank that forks, so ranks are treated separately from other programs.
        let may_fork = !self.has_mpi();
        Some(match random.below(17) {
            0 => format!("out:{}", random.draw()),
            1 => format!("err:{}", random.draw()),
            2 => format!("work:{}", 200 * n),
            3 => format!("deeper:{}", 20 * n),
            4 => format!("threads:{n}"),
            5 if may_load => "names:".to_owned(),
            6 if may_load => {
                format!("names:{}", random.choose(&["libm.so.6", "libmpi.so.40", "libmpich.so.12"]))
            }
            7 if may_load => "deep".to_owned(),
            8 => "surroundings".to_owned(),
            9 => format!("malloc:{}", 300 * n),
            10 => format!("catch:{}", random.choose(&[1, 10, 12, 13, 15])),
            11 if may_fork => format!("fork:{n}"),
            12 if may_fork => "vfork".to_owned(),
            13 if may_fork => "empty".to_owned(),
            14 if self.has("-DWEAK") => "weak".to_owned(),
            15 if self.has("-DOWN_HOOKS") => "hooks".to_owned(),
            _ if self.has_mpi() => {
                format!("mpi:{}", random.choose(&["bcast", "pbcast", "allreduce", "dlsym"]))
            }
            _ => return None,
        })
    }

    /// Draws how the program ends: by its return, or otherwise.
    fn draw_end(&self, random: &mut Random) -> Vec<String> {
        let words: &[&str] = match random.below(8) {
            // If one rank fails, the launcher ends the others at any point in their work.
            _ if self.has_mpi() => &["exit:0"],
            0 => &["exit:17"],
            1 => &["_exit:18"],
            2 => &["raise:15"],
            3 => &["raise:9"],
            // In this case Fortran prints addresses, which are different each time.
            4 if !self.is_fortran => &["abort"],
            5 => &["exec:0", "out:became another", "work:100", "exit:19"],
            6 => &["exec:1", "out:and forgot all", "exit:20"],
            _ => &[],
        };
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    fn draw_start(
        &self,
        random: &mut Random,
        place: &Place,
        program: &Path,
        actions: &[String],
    ) -> Vec<String> {
        let program_name = program.display().to_string();
        let direct: Vec<String> = std::iter::once(program_name).chain(actions.iter().cloned()).collect();
        let quoted =
            |words: &[String]| words.iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" ");
        let by = |words: &[&str]| -> Vec<String> { words.iter().map(|word| (*word).to_owned()).collect() };
        if self.has_mpi() {
            let launcher: Vec<String> = match self.compiler {
                "mpicc.openmpi" => by(&["mpirun.openmpi", "--oversubscribe", "-q", "-n"]),
                _ => by(&["mpirun.mpich", "-n"]),
            };
            let ranks = (1 + random.below(2)).to_string();
            return match random.below(4) {
                0 => direct,
                _ => [launcher, vec![ranks], direct].concat(),
            };
        }
        match random.below(12) {
            0 => by(&["sh", "-c", &format!("{}; echo status $?", quoted(&direct))]),
            1 => by(&["bash", "-c", &format!("set -o pipefail; {} | cat", quoted(&direct))]),
            2 => by(&["bash", "-c", &format!("({}) & wait $!", quoted(&direct))]),
            3 if have(&["python3"]) => [by(&["python3", "-S", "-c", BY_PYTHON]), direct].concat(),
            4 => [by(&["env", "-i"]), direct].concat(),
            5 => {
                let limits = [
                    "-v 4500",
                    "-v 9000",
                    "-v 40000",
                    "-v 200000",
                    "-d 500",
                    "-d 4000",
                    "-l 64",
                    "-l 8192",
                    "-n 8",
                    "-n 20",
                    "-u 40000",
                    "-s 512",
                    "-c 0",
                    "-f 100000",
                ];
                by(&["bash", "-c", &format!("ulimit {} && exec {}", random.choose(&limits), quoted(&direct))])
            }
            6 if is_root() => {
                let user = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"];
                let locked = ["bash", "-c"];
                let script =
                    format!("ulimit -l 8192; exec {} mlockall malloc:1500 threads:2", quoted(&direct[..1]));
                match random.below(2) {
                    0 => [by(&user), direct].concat(),
                    _ => [by(&user), by(&locked), vec![script]].concat(),
                }
            }
            7 if is_root() && self.is_static() => {
                let root = place.path("root");
                std::fs::create_dir_all(&root).expect("a directory");
                std::fs::copy(program, root.join("program")).expect("a copy");
                [by(&["chroot", &root.display().to_string(), "/program"]), actions.to_vec()].concat()
            }
            8 => [by(&["timeout", "60"]), direct].concat(),
            9 => [by(&["setsid", "--fork", "--wait"]), direct].concat(),
            _ => direct,
        }
    }
}

/// Returns the program's lines of standard error, without those of ampere: these start with its name or come with the
/// summary at the end.
fn theirs(stderr: &str) -> Vec<String> {
    let lines = stderr.lines().take_while(|line| !line.starts_with("ampere  "));
    let lines = lines.filter(|line| !line.trim().is_empty() && !line.starts_with("ampere:"));
    lines.map(without_pids).collect()
}

/// Removes the process ID of a failed process, which a launcher and a shell print.
fn without_pids(line: &str) -> String {
    // Bash pads a process ID to five characters, so the number of spaces depends on the ID, too.
    let words = line.split_ascii_whitespace().map(|word| {
        // Fortran's runtime prints the addresses at which the program failed.
        if word.starts_with("0x") {
            return "ADDRESS";
        }
        let number = word.trim_matches(|c: char| !c.is_ascii_digit());
        if number.len() > 2 && number.len() < 8 && number.bytes().all(|c| c.is_ascii_digit()) {
            "PID"
        } else {
            word
        }
    });
    words.collect::<Vec<_>>().join(" ")
}

#[test]
fn a_program_does_the_same_with_ampere() {
    let programs = Place::new();
    std::fs::set_permissions(programs.directory(), PermissionsExt::from_mode(0o755)).expect("ours");
    let mut built: HashMap<Build, Option<PathBuf>> = HashMap::new();
    rounds(ROUNDS, |random| {
        let place = Place::new();
        std::fs::set_permissions(place.directory(), PermissionsExt::from_mode(0o777)).expect("ours");
        let build = Build::draw(random);
        let number = built.len();
        let program = built.entry(build.clone()).or_insert_with(|| build.make(programs.directory(), number));
        let Some(program) = program.clone() else { return println!("cannot be built here: {build:?}") };
        let actions = build.draw_actions(random);
        let command = build.draw_start(random, &place, &program, &actions);
        let plain = run(place.command(&command[0]).args(&command[1..]));
        let mut measured = place.ampere_run("out", &command);
        if random.below(2) == 0 {
            measured.env_remove("AMPERE_SAMPLE");
        }
        let measured = run(&mut measured);
        let what = format!("{}\n{build:?}", command.join(" "));
        assert_eq!(
            (measured.code, &measured.stdout),
            (plain.code, &plain.stdout),
            "{what}\n{}",
            measured.stderr
        );
        assert_eq!(theirs(&measured.stderr), theirs(&plain.stderr), "{what}");
    });
}
