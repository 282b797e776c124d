//! Programs that tests start and, whatever happens, end.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

/// How long a program that is asked to end may take.
const END_LIMIT: Duration = Duration::from_secs(60);

/// A child that does not outlive its test.
pub struct Running(Child);

impl Running {
    pub fn start(command: &mut Command) -> Running {
        Running(command.spawn().unwrap_or_else(|e| panic!("cannot start {command:?}: {e}")))
    }

    pub fn id(&self) -> u32 {
        self.0.id()
    }

    pub fn has_ended(&mut self) -> bool {
        !matches!(self.0.try_wait(), Ok(None))
    }

    /// Its status, or `None` if it still runs after `limit`.
    pub fn wait(&mut self, limit: Duration) -> Option<ExitStatus> {
        let begun = Instant::now();
        loop {
            match self.0.try_wait() {
                Ok(Some(status)) => return Some(status),
                Ok(None) if begun.elapsed() < limit => std::thread::sleep(Duration::from_millis(10)),
                _ => return None,
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.has_ended() {
            return;
        }
        // Asked first: a launcher passes it on to processes that are not our children.
        let pid = rustix::process::Pid::from_child(&self.0);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        if self.wait(END_LIMIT).is_none() {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }
}

/// Where a program is on the PATH.
pub fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|directory| directory.join(name)).find(|path| path.is_file())
}

/// Open MPI, under the names that it has beside another MPI or alone.
pub struct Mpi {
    pub mpirun: PathBuf,
    pub mpicc: PathBuf,
}

impl Mpi {
    pub fn find() -> Option<Mpi> {
        let pair = |mpirun, mpicc| Some(Mpi { mpirun: program(mpirun)?, mpicc: program(mpicc)? });
        pair("mpirun.openmpi", "mpicc.openmpi").or_else(|| pair("mpirun", "mpicc"))
    }

    /// Compiles `examples/mpi/stencil.c` into `directory`.
    pub fn stencil(&self, directory: &Path) -> PathBuf {
        let program = directory.join("stencil");
        let status = Command::new(&self.mpicc)
            .args(["-O2", "-g", "-finstrument-functions", "-o"])
            .arg(&program)
            .arg(crate::root().join("examples/mpi/stencil.c"))
            .arg("-lm")
            .status();
        assert!(status.is_ok_and(|status| status.success()), "the stencil does not compile");
        program
    }

    /// What goes before a program: as many ranks as wanted, on however few cores, also in a container as root.
    pub fn launch(&self, ranks: u32) -> Vec<String> {
        let mpirun = self.mpirun.display().to_string();
        vec![mpirun, "--oversubscribe".to_owned(), "-n".to_owned(), ranks.to_string()]
    }

    pub const ENVIRONMENT: [(&'static str, &'static str); 2] =
        [("OMPI_ALLOW_RUN_AS_ROOT", "1"), ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")];
}

/// Tries until there is something, or `limit` is over.
pub fn wait_for<T>(what: &str, limit: Duration, mut attempt: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = attempt() {
            return found;
        }
        assert!(begun.elapsed() < limit, "waited {limit:?} for {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
