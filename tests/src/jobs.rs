//! A place for one test: a directory, programs, commands with a clean environment, what they did, and what they left behind. With
//! `AMPERE_TEST_KEEP` set, the directory of a test that fails is kept.

use crate::artifact;
use crate::runs::{may_mount, succeed};
use serde_json::Value;
use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// On an idle machine, no command of these tests takes a tenth of this.
const COMMAND_LIMIT: Duration = Duration::from_secs(180);
/// Shared memory that several tests at once may need.
const SHARED_BYTES_MIN: u64 = 1 << 30;
/// Limit on the time that processes may take to end when nothing waits for them.
const LEFT_LIMIT: Duration = Duration::from_secs(60);

/// A program that runs until there is a file "go".
pub const WAITS: &str = r#"
    #include <stdio.h>
    #include <unistd.h>
    __attribute__((noinline)) void step(void) { usleep(500); }
    int main(void) {
        while (access("go", F_OK)) step();
        puts("hello");
        return 7;
    }
"#;

/// Returns the folder with the built programs.
pub fn built() -> PathBuf {
    artifact("ampere").parent().expect("a directory").to_owned()
}

pub fn plugin() -> PathBuf {
    artifact("libscorep_substrate_ampere.so")
}

pub fn host() -> PathBuf {
    artifact("libampere_host.so")
}

/// Returns the library that is preloaded, and which loads the host.
pub fn preloaded() -> PathBuf {
    artifact("ampere-preload").join(ampere_preload::PLATFORM).join(ampere_preload::FILE)
}

/// Whether these commands exist. If one does not, prints which one; the test is then skipped.
pub fn have(commands: &[&str]) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let missing =
        commands.iter().find(|command| !std::env::split_paths(&path).any(|d| d.join(command).is_file()));
    if let Some(command) = missing {
        println!("skipped: no {command}");
    }
    missing.is_none()
}

/// Whether another user may run what is built here.
pub fn other_user_may_run() -> bool {
    let mut other = Command::new("setpriv");
    // `setpriv` executes this first command while it still has root's rights.
    other.args(["--reuid=65534", "--regid=65534", "--clear-groups", "env"]);
    other.arg(artifact("ampere")).arg("--version");
    other.output().is_ok_and(|done| done.status.success())
}

pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

pub struct Place {
    dir: TempDir,
}

/// The result of a command.
#[derive(Debug)]
pub struct Done {
    /// The exit status as a shell gives it: 128 + n for signal n.
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
    pub took: Duration,
}

impl Done {
    /// Returns ampere's lines on standard error, except those that are usual for a measured run. Among these are lines that only
    /// report that the end of a run takes more than two seconds: on a busy machine it may.
    pub fn said(&self) -> Vec<&str> {
        let usual = |line: &str| {
            line.starts_with("ampere: live page at http://127.0.0.1:")
                || line.starts_with("ampere: live metrics at unix:")
                || line.starts_with("ampere: energy summary in ")
                || (line.starts_with("ampere: ") && line.contains(" s  ") && line.contains("  top: "))
                || line.starts_with("ampere: the result on ")
                || line == "ampere: writing the trace and the summary ..."
                || line.starts_with("ampere: waiting for the collector to finish, ")
                || line.starts_with("ampere  ") // the first of the lines about a result
        };
        self.stderr.lines().filter(|line| line.starts_with("ampere") && !usual(line)).collect()
    }

    /// Checks that ampere printed exactly one line, and that it has these words.
    #[track_caller]
    pub fn said_once(&self, words: &[&str]) {
        let said = self.said();
        assert_eq!(said.len(), 1, "one line expected: {self:#?}");
        for word in words {
            assert!(said[0].contains(word), "{word:?} is not in {:?}", said[0]);
        }
        self.no_panic();
    }

    #[track_caller]
    pub fn said_nothing(&self) {
        assert!(self.said().is_empty(), "{self:#?}");
        self.no_panic();
    }

    #[track_caller]
    pub fn no_panic(&self) {
        assert!(!self.stderr.contains("panicked"), "{self:#?}");
    }

    /// Checks that the application's exit status and standard output are the same as without ampere.
    #[track_caller]
    pub fn as_without(&self, plain: &Done) {
        assert_eq!((self.code, &self.stdout), (plain.code, &plain.stdout), "{self:#?}");
    }
}

/// Returns the directory in which places are made: shared memory, if it is large enough and programs can be run from
/// it. In most containers, they cannot be run from shared memory.
fn base() -> PathBuf {
    use rustix::fs::{StatVfsMountFlags, statvfs};
    let shared = Path::new("/dev/shm");
    let is_fit = statvfs(shared).is_ok_and(|found| {
        found.f_bavail * found.f_frsize > SHARED_BYTES_MIN
            && !found.f_flag.contains(StatVfsMountFlags::NOEXEC)
    });
    if is_fit { shared.to_owned() } else { std::env::temp_dir() }
}

impl Default for Place {
    fn default() -> Place {
        Place::new()
    }
}

impl Place {
    pub fn new() -> Place {
        let dir = tempfile::Builder::new().prefix("ampere-test-").tempdir_in(base()).expect("a directory");
        for name in ["shm", "tmp"] {
            std::fs::create_dir(dir.path().join(name)).expect("a directory");
        }
        Place { dir }
    }

    pub fn directory(&self) -> &Path {
        self.dir.path()
    }

    /// Returns the path of a file or directory in this place.
    pub fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, text).expect("a file");
        path
    }

    pub fn script(&self, name: &str, text: &str) -> PathBuf {
        use std::os::unix::fs::PermissionsExt;
        let path = self.write(name, text);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("chmod");
        path
    }

    /// Returns a command in this place. Its environment has nothing that ampere, Score-P or a launcher would read.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            let ours = [
                "AMPERE_",
                "SCOREP_",
                "OMPI_",
                "PMIX_",
                "PMI_",
                "SLURM_",
                "FLUX_",
                "PALS_",
                "MPI_",
                "STAND_IN_",
            ];
            if ours.iter().any(|prefix| text.starts_with(prefix)) || text == "LD_PRELOAD" {
                command.env_remove(&name);
            }
        }
        command
            .current_dir(self.dir.path())
            // cargo adds the folders of its build, which have stand-ins for vendors' libraries.
            .env_remove("LD_LIBRARY_PATH")
            // By default, no counter of this machine is read. A test that needs counters names them.
            .env("AMPERE_COUNTERS", "estimate")
            .env("AMPERE_SHM", self.path("shm"))
            .env("AMPERE_LISTEN", "127.0.0.1:0")
            // Sampling would add rows for all processes of a command. `any_program` tests it.
            .env("AMPERE_SAMPLE", "off")
            // The temporary files that Open MPI and compilers leave when they are killed are removed with the place.
            .env("TMPDIR", self.path("tmp"))
            // The place is in memory, where ampere keeps no spool by default.
            .env("AMPERE_SPOOL_DIRECTORY", self.path("tmp/spool"))
            .env("OMPI_MCA_btl_vader_backing_directory", self.path("tmp"))
            .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
            .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        command
    }

    pub fn ampere<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> Command {
        let mut command = self.command(built().join("ampere"));
        command.args(arguments);
        command
    }

    /// Returns the command `ampere run -o <output> -- <command>`.
    pub fn ampere_run<A: AsRef<OsStr>>(
        &self,
        output: &str,
        measured: impl IntoIterator<Item = A>,
    ) -> Command {
        let mut command = self.ampere(["run", "-o", output, "--"]);
        command.args(measured);
        command
    }

    /// Returns a command that is measured without `ampere run`, only by the preloaded library.
    pub fn bare(&self, output: &str, program: &Path) -> Command {
        let mut command = self.command(program);
        command.env("LD_PRELOAD", preloaded()).env("AMPERE_OUTPUT", self.path(output));
        command
    }

    /// Returns a shell command that runs `command` as on another node, which has that name, another boot ID, and shared
    /// memory of its own.
    pub fn on_another_node(&self, node: &str, command: &str) -> String {
        let digits: String = node.bytes().map(|byte| format!("{byte:02x}")).collect();
        let boot = self.write(&format!("boot-of-{node}"), &format!("{digits:0>32}\n"));
        let shared = self.path(format!("shm-of-{node}"));
        std::fs::create_dir_all(&shared).expect("a directory");
        format!(
            "AMPERE_SHM='{}' unshare --uts --mount sh -c \"hostname {node} && mount --bind '{}' \
             /proc/sys/kernel/random/boot_id && exec {command}\"",
            shared.display(),
            boot.display()
        )
    }

    /// Returns a script that acts as `ssh HOST COMMAND...`. It ignores options, and passes only PATH from this environment to
    /// the other node.
    pub fn ssh(&self) -> PathBuf {
        for name in ["shm-b", "tmp-b"] {
            std::fs::create_dir(self.path(name)).expect("a directory");
        }
        let boot = self.write("boot-b", "22222222-2222-2222-2222-222222222222\n");
        let (shm, own) = (self.path("shm"), self.path("shm-b"));
        self.script(
            "ssh",
            &format!(
                "#!/bin/sh\nwhile [ \"${{1#-}}\" != \"$1\" ]; do shift; done\nhost=$1; shift\nprintf '%s\\n' \"$*\" > '{}'\n\
                 exec env -i PATH=\"$PATH\" HOME=/ OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 TMPDIR='{}' \
                 unshare --uts --mount sh -c \"hostname $host && mount --bind '{}' '{}' && \
                 mount --bind '{}' /proc/sys/kernel/random/boot_id && . '{}'\"\n",
                self.path("command").display(),
                self.path("tmp-b").display(),
                own.display(),
                shm.display(),
                boot.display(),
                self.path("command").display(),
            ),
        )
    }

    /// Returns the root of a made-up node that has CPU time but no counter, whatever this machine has.
    pub fn made_up_node(&self) -> PathBuf {
        let root = self.path("node");
        std::fs::create_dir_all(root.join("proc")).expect("a directory");
        std::fs::write(root.join("proc/stat"), "cpu  100 0 0 5000 0 0 0 0 0 0\n").expect("a file");
        root
    }

    /// Compiles a C program. Its instrumentation depends on the options.
    pub fn compile(&self, compiler: &str, name: &str, source: &str, options: &[&str]) -> PathBuf {
        let file = self.write(&format!("{name}.c"), source);
        let program = self.path(name);
        let done = Command::new(compiler).arg("-O1").arg(file).args(options).arg("-o").arg(&program).output();
        let done = done.expect("a C compiler");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        program
    }

    /// Returns an instrumented program that works for a moment, prints and returns 7.
    pub fn instrumented(&self) -> PathBuf {
        self.compile("cc", "instrumented", WORK, &["-finstrument-functions"])
    }

    /// Makes results like those of a run of two ranks, one of which has a stream on a GPU.
    pub fn gpu_run(&self, output: &str) {
        self.gpu_run_with(output, &[]);
    }

    /// Does the same with options of `ampere attribute`.
    pub fn gpu_run_with(&self, output: &str, options: &[&str]) {
        const TRACE: &str = "
            counter 0 model=MI250X pci=193
            metric cpu_energy
            rank node0 ROCR_VISIBLE_DEVICES=0
            stream HIP[0:0] tree=0 pci=193
            rank node0 ROCR_VISIBLE_DEVICES=
        ";
        let trace = crate::small_trace::write(&self.path(output), TRACE);
        let figures = self.path(format!("{output}-figures"));
        let done = run(self.ampere(["attribute"]).arg(&trace).arg("-o").arg(&figures).args(options));
        assert_eq!(done.code, 0, "{done:#?}");
        std::fs::rename(figures.join("summary.json"), trace.with_file_name("summary.json"))
            .expect("a summary");
        std::fs::remove_dir_all(figures).expect("a directory");
    }

    /// Returns the command that starts two ranks of a program, such as that of `mpi_program`. That program prints from rank 0
    /// and returns 5, or 0 with an argument: mpirun ends the other ranks as soon as one has returned another status than 0.
    pub fn mpi(&self, program: &Path) -> Vec<OsString> {
        let mut words: Vec<OsString> =
            ["mpirun.openmpi", "--oversubscribe", "-n", "2"].map(OsString::from).into();
        words.push(program.into());
        words
    }

    pub fn mpi_program(&self) -> PathBuf {
        self.mpi_program_by("mpicc.openmpi")
    }

    /// Compiles the same program with the compiler of another MPI.
    pub fn mpi_program_by(&self, compiler: &str) -> PathBuf {
        self.compile(compiler, "mpi", MPI, &[])
    }

    /// Returns the summary that a run has written. If it is incomplete, it has a reason.
    #[track_caller]
    pub fn summary(&self, output: &str) -> serde_json::Value {
        let path = self.path(output).join("summary.json");
        let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let summary = crate::runs::parse(&text).expect("JSON");
        let run = &summary["run"];
        let has_reason = run["complete"] == true || run["running"] == true || run["missing"].is_array();
        assert!(has_reason, "incomplete without a reason: {run}");
        summary
    }

    /// Checks that no process of ampere runs any more, and that nothing is left in shared memory.
    #[track_caller]
    pub fn assert_clean(&self) {
        self.no_process_left();
        let left = files_below(&self.path("shm"));
        assert!(left.is_empty(), "left in shared memory: {left:?}");
        let spools = files_below(&self.path("tmp")).into_iter().filter(|path| path.ends_with("records"));
        assert_eq!(spools.collect::<Vec<_>>(), [] as [PathBuf; 0], "left on the node's disk");
    }

    #[track_caller]
    pub fn no_process_left(&self) {
        let begun = Instant::now();
        while !self.processes().is_empty() {
            assert!(begun.elapsed() < LEFT_LIMIT, "still running: {:?}", self.processes());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    pub fn processes(&self) -> Vec<(u32, String)> {
        processes_of(self.dir.path())
    }

    /// Returns the collectors that run in this place.
    pub fn collectors(&self) -> Vec<u32> {
        let is_collector = |(pid, command): (u32, String)| {
            let starts = command.contains("--detach") || command.contains("--supervise");
            (command.contains("ampere-collector") && !starts).then_some(pid)
        };
        self.processes().into_iter().filter_map(is_collector).collect()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if std::thread::panicking() && std::env::var_os("AMPERE_TEST_KEEP").is_some() {
            self.dir.disable_cleanup(true);
            println!("kept in {}", self.dir.path().display());
        }
        // This matters after a failed test. Only processes with this place in their environment are killed, by their pids.
        for (pid, _) in self.processes() {
            if let Some(pid) = rustix::process::Pid::from_raw(pid as i32) {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
        }
    }
}

pub fn files_below(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(directory) else { return Vec::new() };
    entries
        .flatten()
        .flat_map(|entry| {
            let path = entry.path();
            if path.is_dir() && !path.is_symlink() { files_below(&path) } else { vec![path] }
        })
        .collect()
}

/// A tmpfs of a few megabytes, which is unmounted at the end.
pub struct Tiny {
    pub at: PathBuf,
}

impl Tiny {
    pub fn mount(at: PathBuf, size: &str) -> Option<Tiny> {
        if !may_mount() {
            println!("skipped: needs root, and to be allowed to mount");
            return None;
        }
        std::fs::create_dir(&at).expect("a directory");
        let options = format!("mode=0755,size={size}");
        succeed(Command::new("mount").args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(&at));
        Some(Tiny { at })
    }

    /// Fills all remaining space.
    pub fn fill(&self) {
        use std::io::Write;
        let mut file = std::fs::File::create(self.at.join("filler")).expect("a file");
        while file.write_all(&[1; 4096]).is_ok() {}
    }
}

impl Drop for Tiny {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.at).status();
    }
}

/// A running command in a process group of its own.
pub struct Running {
    child: Child,
    readers: Vec<std::thread::JoinHandle<String>>,
    begun: Instant,
}

pub fn start(command: &mut Command) -> Running {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let pipes: [Box<dyn Read + Send>; 2] =
        [Box::new(child.stdout.take().expect("piped")), Box::new(child.stderr.take().expect("piped"))];
    let readers = pipes.map(|mut pipe| {
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            let _ = pipe.read_to_end(&mut bytes);
            String::from_utf8_lossy(&bytes).into_owned()
        })
    });
    Running { child, readers: readers.into(), begun: Instant::now() }
}

/// Returns the signals that a process ignores, signal n as bit n - 1, from the line of its `/proc/PID/status`. The
/// signals of the C library are left out, because it ignores them in some ways of starting a program.
pub fn ignored_signals(status: &str) -> Option<u64> {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"))?;
    Some(u64::from_str_radix(mask.trim(), 16).ok()? & 0x7fff_ffff)
}

/// Sends a signal to a process that may have just ended.
pub fn signal(pid: u32, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(pid as i32).expect("a pid");
    let _ = rustix::process::kill_process(pid, signal);
}

pub fn kill(pid: u32) {
    signal(pid, rustix::process::Signal::KILL);
}

impl Running {
    pub fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    pub fn pid(&self) -> rustix::process::Pid {
        rustix::process::Pid::from_child(&self.child)
    }

    pub fn signal(&self, signal: rustix::process::Signal) {
        rustix::process::kill_process(self.pid(), signal).expect("a signal");
    }

    /// Sends a signal to the process group, as a terminal does.
    pub fn signal_group(&self, signal: rustix::process::Signal) {
        rustix::process::kill_process_group(self.pid(), signal).expect("a signal");
    }

    #[track_caller]
    pub fn wait(mut self) -> Done {
        let status: ExitStatus = loop {
            if let Some(status) = self.child.try_wait().expect("wait") {
                break status;
            }
            if self.begun.elapsed() > COMMAND_LIMIT {
                let _ = rustix::process::kill_process_group(self.pid(), rustix::process::Signal::KILL);
                let _ = self.child.wait();
                panic!("a command did not end within {COMMAND_LIMIT:?}");
            }
            std::thread::sleep(Duration::from_millis(2));
        };
        let took = self.begun.elapsed();
        // Processes that the command left running may hold its output open: the test waits for these, too.
        while !self.readers.iter().all(|reader| reader.is_finished()) {
            if self.begun.elapsed() > COMMAND_LIMIT {
                let _ = rustix::process::kill_process_group(self.pid(), rustix::process::Signal::KILL);
                panic!(
                    "{status}, but its output stayed open for {COMMAND_LIMIT:?}: a process of the command still runs"
                );
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        use std::os::unix::process::ExitStatusExt;
        let code = status.code().or_else(|| status.signal().map(|n| 128 + n)).unwrap_or(-1);
        let mut texts = self.readers.drain(..).map(|reader| reader.join().expect("a reader"));
        let (stdout, stderr) = (texts.next().expect("stdout"), texts.next().expect("stderr"));
        Done { code, stdout, stderr, took }
    }
}

#[track_caller]
pub fn run(command: &mut Command) -> Done {
    start(command).wait()
}

/// Waits until a condition holds.
#[track_caller]
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < COMMAND_LIMIT, "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A program without instrumentation and MPI.
pub const PLAIN: &str = r#"
#include <stdio.h>
int main(void) { puts("hello"); return 7; }
"#;

const WORK: &str = r#"
#include <stdio.h>
__attribute__((noinline)) void work(void) { for (volatile int i = 0; i < 5000000; i++); }
int main(void) { for (int i = 0; i < 3; i++) work(); puts("hello"); return 7; }
"#;

const MPI: &str = r#"
#include <mpi.h>
#include <stdio.h>
int main(int argc, char **argv) {
    int rank, sum = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int i = 0; i < 200; i++) MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) printf("sum %d\n", sum);
    MPI_Finalize();
    return argc > 1 ? 0 : 5;
}
"#;

/// Returns the processes that have this directory in their environment, with their command lines.
pub fn processes_of(directory: &Path) -> Vec<(u32, String)> {
    let mark = directory.as_os_str().as_encoded_bytes().to_vec();
    let entries = std::fs::read_dir("/proc").expect("/proc").flatten();
    entries
        .filter_map(|entry| {
            let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
            let environment = std::fs::read(entry.path().join("environ")).ok()?;
            let is_ours =
                pid != std::process::id() && environment.windows(mark.len()).any(|window| window == mark);
            let command = std::fs::read_to_string(entry.path().join("cmdline")).unwrap_or_default();
            is_ours.then(|| (pid, command.replace('\0', " ")))
        })
        .collect()
}

/// Repeats a run that writes its results to `out` if records were lost because the collector got no CPU for a while, at most
/// four times. `measured` returns the run's summary, and what else the test needs.
pub fn until_no_record_is_lost<T>(place: &Place, mut measured: impl FnMut() -> (Value, T)) -> (Value, T) {
    let mut again = || {
        let _ = std::fs::remove_dir_all(place.path("out"));
        measured()
    };
    for _ in 0..4 {
        let run = again();
        if !run.0["run"].to_string().contains("were lost") {
            return run;
        }
    }
    again()
}
