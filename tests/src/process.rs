//! Programs that are started by tests and end with them, whatever happens.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

/// Limit on the time that a program takes when it is asked to end.
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

    /// Waits for the status; `None` if the program still runs after `limit`.
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
        // It is asked to end first: a launcher passes the signal on to processes that are not our children.
        let pid = rustix::process::Pid::from_child(&self.0);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        if self.wait(END_LIMIT).is_none() {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }
}

pub fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|directory| directory.join(name)).find(|path| path.is_file())
}

/// Open MPI's commands. Their names depend on whether another MPI is installed as well.
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

    /// Returns the command in front of a program. It allows any number of ranks on any number of cores, even as root in a
    /// container.
    pub fn launch(&self, ranks: u32) -> Vec<String> {
        let mpirun = self.mpirun.display().to_string();
        vec![mpirun, "--oversubscribe".to_owned(), "-n".to_owned(), ranks.to_string()]
    }

    pub const ENVIRONMENT: [(&'static str, &'static str); 2] =
        [("OMPI_ALLOW_RUN_AS_ROOT", "1"), ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")];
}

/// Repeats `attempt` until it returns something. Panics after `limit`.
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
