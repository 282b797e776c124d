//! One short MPI run under `ampere run`: a place for it, its processes, and what it leaves.

use serde_json::Value;
use std::collections::BTreeMap;
use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

pub const RANKS: u32 = 2;
/// Of the total: what rounding may leave.
pub const CONSERVED: f64 = 1e-9;
/// A run that takes longer hangs.
const LIMIT: Duration = Duration::from_secs(30);
/// Of the simulated counter.
pub const WATTS: f64 = 250.0;

const SOURCE: &str = include_str!("../../tests/programs/faults.c");

fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|directory| directory.join(name)).find(|file| file.is_file())
}

/// The programs that a round needs.
pub struct Tools {
    built: PathBuf,
    mpirun: PathBuf,
    program: PathBuf,
    _directory: tempfile::TempDir,
}

impl Tools {
    /// Compiles the program. The error says what is not here.
    pub fn find() -> Result<Tools, String> {
        let own = std::env::current_exe().map_err(|e| e.to_string())?;
        let built = own.parent().map(PathBuf::from).unwrap_or_default();
        if !built.join("ampere").is_file() {
            return Err(format!("no ampere in {}: run make build first", built.display()));
        }
        let either = |names: [&str; 2]| names.iter().find_map(|name| on_path(name));
        let mpirun = either(["mpirun.openmpi", "mpirun"]).ok_or("no mpirun here")?;
        let mpicc = either(["mpicc.openmpi", "mpicc"]).ok_or("no mpicc here")?;
        let directory =
            tempfile::Builder::new().prefix("ampere-soak-").tempdir().map_err(|e| e.to_string())?;
        let (source, program) = (directory.path().join("faults.c"), directory.path().join("soaked"));
        std::fs::write(&source, SOURCE).map_err(|e| e.to_string())?;
        let compiled = Command::new(mpicc)
            .args(["-O1", "-DWITH_MPI", "-finstrument-functions", "-pthread", "-o"])
            .arg(&program)
            .arg(&source)
            .arg("-ldl")
            .output()
            .map_err(|e| e.to_string())?;
        if !compiled.status.success() {
            return Err(format!(
                "the program does not compile: {}",
                String::from_utf8_lossy(&compiled.stderr)
            ));
        }
        Ok(Tools { built, mpirun, program, _directory: directory })
    }

    /// A run that makes `steps` calls a rank; `fault` is the program's own, such as `none`.
    pub fn start(&self, fault: &str, steps: u64, change: impl FnOnce(&mut Command, &Path)) -> Run {
        let directory = tempfile::Builder::new().prefix("ampere-soak-").tempdir().expect("a directory");
        std::fs::create_dir(directory.path().join("shm")).expect("a directory");
        let mut command = Command::new(self.built.join("ampere"));
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            let ours = ["AMPERE_", "SCOREP_", "OMPI_", "PMIX_", "SLURM_", "STAND_IN_"];
            if ours.iter().any(|prefix| text.starts_with(prefix)) {
                command.env_remove(&name);
            }
        }
        command
            .current_dir(directory.path())
            .env("AMPERE_SHM", directory.path().join("shm"))
            .env("AMPERE_LISTEN", "127.0.0.1:0")
            // Constant power by the machine's clock: what has to come out is known, whoever reads it.
            .env("AMPERE_COUNTERS", "rocm_smi")
            .env("AMPERE_ROCM_SMI_LIBRARY", self.built.join("libstand_in_rocm_smi64.so"))
            .env("STAND_IN_ROCM_SMI", format!("watts={WATTS}"))
            // Or mpirun waits for a second between asking the ranks that are left to end and ending them.
            .env("OMPI_MCA_odls_base_sigkill_timeout", "0")
            .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
            .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
            .args(["run", "-o", "out", "--"])
            .arg(&self.mpirun)
            .args(["--oversubscribe", "-n", &RANKS.to_string()])
            .arg(&self.program)
            .args([fault, &steps.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        change(&mut command, directory.path());
        let mut child = command.spawn().expect("ampere can be started");
        let read = |mut pipe: Box<dyn Read + Send>| {
            std::thread::spawn(move || {
                let mut bytes = Vec::new();
                let _ = pipe.read_to_end(&mut bytes);
                String::from_utf8_lossy(&bytes).into_owned()
            })
        };
        let stdout = read(Box::new(child.stdout.take().expect("piped")));
        let stderr = read(Box::new(child.stderr.take().expect("piped")));
        Run {
            directory,
            child,
            begun: Instant::now(),
            texts: Some([stdout, stderr]),
            program: self.program.clone(),
            ampere: self.built.join("ampere"),
        }
    }
}

pub struct Run {
    pub directory: tempfile::TempDir,
    child: Child,
    begun: Instant,
    texts: Option<[std::thread::JoinHandle<String>; 2]>,
    program: PathBuf,
    ampere: PathBuf,
}

/// How long mpirun may go on when none of its ranks does. Open MPI 4.1's hangs now and then when one is killed in MPI_Init, with
/// ampere or without: it waits for a lock.
const LAUNCHER_LIMIT: Duration = Duration::from_secs(8);

/// How a run ended.
#[derive(Debug)]
pub struct Ended {
    /// Its launcher hung, without any rank, and was killed.
    pub launcher_hung: bool,
    /// As a shell says it.
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
    pub took: Duration,
}

impl Run {
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Processes of this run by their command: they have its directory in their environment.
    fn processes(&self) -> Vec<(i32, String)> {
        let mark = self.directory.path().as_os_str().as_encoded_bytes().to_vec();
        let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        entries
            .filter_map(|entry| {
                let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
                let command = std::fs::read_to_string(entry.path().join("cmdline")).ok()?;
                let environment = std::fs::read(entry.path().join("environ")).ok()?;
                let is_ours = environment.windows(mark.len()).any(|window| window == mark);
                is_ours.then_some((pid, command))
            })
            .collect()
    }

    pub fn ranks(&self) -> Vec<i32> {
        let name = self.program.to_string_lossy().into_owned();
        let mut ranks: Vec<i32> =
            self.processes().into_iter().filter(|(_, c)| c.starts_with(&name)).map(|(pid, _)| pid).collect();
        ranks.sort_unstable();
        ranks
    }

    fn launcher(&self) -> Option<i32> {
        let all = self.processes().into_iter();
        all.filter(|(_, c)| c.split('\0').next().is_some_and(|name| name.contains("mpirun")))
            .map(|(pid, _)| pid)
            .next()
    }

    pub fn collectors(&self) -> Vec<i32> {
        let all = self.processes().into_iter();
        all.filter(|(_, c)| c.contains("ampere-collector")).map(|(pid, _)| pid).collect()
    }

    /// Until its ranks are processes; `false` if they never are.
    pub fn wait_for_ranks(&mut self) -> bool {
        while self.ranks().len() < RANKS as usize {
            if self.begun.elapsed() > LIMIT || !matches!(self.child.try_wait(), Ok(None)) {
                return false;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        true
    }

    /// Until every rank has made a call; `false` if one never does.
    pub fn wait_for_calls(&mut self) -> bool {
        while (0..RANKS).any(|rank| self.counted(rank) == 0) {
            if self.begun.elapsed() > LIMIT || !matches!(self.child.try_wait(), Ok(None)) {
                return false;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        true
    }

    /// Calls that have come back, as the rank has written it down.
    pub fn counted(&self, rank: u32) -> u64 {
        let bytes = std::fs::read(self.path(&format!("calls.{rank}"))).unwrap_or_default();
        bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
    }

    /// Files in shared memory whose names end so.
    pub fn shared_files(&self, ending: &str) -> Vec<PathBuf> {
        let mut found = Vec::new();
        let mut open = vec![self.path("shm")];
        while let Some(directory) = open.pop() {
            for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
                let path = entry.path();
                if path.is_dir() {
                    open.push(path);
                } else if path.to_string_lossy().ends_with(ending) {
                    found.push(path);
                }
            }
        }
        found.sort();
        found
    }

    /// Its end. An error if it hangs; it is killed then.
    pub fn wait(&mut self) -> Result<Ended, String> {
        let (mut alone_since, mut looked, mut launcher_hung) = (None, Instant::now(), false);
        let status = loop {
            if !launcher_hung && looked.elapsed() > Duration::from_millis(500) {
                looked = Instant::now();
                let launcher = self.launcher().filter(|_| self.ranks().is_empty());
                alone_since = launcher.and(alone_since.or(Some(looked)));
                if let (Some(pid), Some(since)) = (launcher, alone_since)
                    && since.elapsed() > LAUNCHER_LIMIT
                {
                    launcher_hung = true;
                    signal(pid, rustix::process::Signal::KILL);
                }
            }
            match self.child.try_wait() {
                Ok(Some(status)) => break status,
                Ok(None) if self.begun.elapsed() < LIMIT => std::thread::sleep(Duration::from_millis(2)),
                _ => {
                    let left = self.processes().into_iter().map(|(pid, command)| doing(pid, &command));
                    let left = left.collect::<Vec<_>>().join("; ");
                    self.kill_all();
                    return Err(format!("it did not end within {LIMIT:?}: {left}"));
                }
            }
        };
        let took = self.begun.elapsed();
        let code = status.code().or_else(|| status.signal().map(|n| 128 + n)).unwrap_or(-1);
        let [stdout, stderr] =
            self.texts.take().ok_or("waited for twice")?.map(|t| t.join().unwrap_or_default());
        Ok(Ended { code, stdout, stderr, took, launcher_hung })
    }

    fn kill_all(&self) {
        for (pid, _) in self.processes() {
            signal(pid, rustix::process::Signal::KILL);
        }
    }

    /// The summary and the trace: readable, conserved, and in agreement. Gives the summary.
    pub fn results(&self) -> Result<Value, String> {
        let path = self.path("out/summary.json");
        let text = std::fs::read(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        let summary: Value = serde_json::from_slice(&text).map_err(|e| format!("{}: {e}", path.display()))?;
        conserved(&summary).map_err(|why| format!("summary: {why}"))?;
        let traced = Command::new(&self.ampere)
            .args(["attribute", "--json"])
            .arg(self.path("out/traces.otf2"))
            .env_remove("AMPERE_CONFIG")
            .output()
            .map_err(|e| e.to_string())?;
        if !traced.status.success() {
            return Err(format!("the trace cannot be read: {}", String::from_utf8_lossy(&traced.stderr)));
        }
        let again: Value = serde_json::from_slice(&traced.stdout).map_err(|e| e.to_string())?;
        conserved(&again).map_err(|why| format!("trace: {why}"))?;
        let (one, other) = (calls(&summary), calls(&again));
        if one != other {
            return Err(format!("calls in the summary {one:?}, in the trace {other:?}"));
        }
        let total = |of: &Value| of["devices"][0]["total_joules"].as_f64();
        if total(&summary) != total(&again) {
            return Err(format!("joules: {:?} and {:?} in the trace", total(&summary), total(&again)));
        }
        Ok(summary)
    }

    /// Calls that had come back and are not in the summary; an error if there are more than were made.
    pub fn missing(&self, summary: &Value) -> Result<u64, String> {
        let calls = calls(summary);
        let mut missing = 0;
        for rank in 0..RANKS {
            let did = self.counted(rank);
            let told = calls.get(&format!("MPI Rank {rank}")).copied().unwrap_or(0);
            missing += did.saturating_sub(told);
            if told > did + 1 {
                return Err(format!("rank {rank} made {did} calls, {told} are told"));
            }
        }
        Ok(missing)
    }

    /// Keeps what is there, to be looked at.
    pub fn keep(self) -> PathBuf {
        let Run { directory, .. } = self;
        directory.keep()
    }
}

/// What a process that should have ended does.
fn doing(pid: i32, command: &str) -> String {
    let word = |name: &str| std::fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap_or_default();
    let status = word("status");
    let state = status.lines().find_map(|line| line.strip_prefix("State:")).unwrap_or_default();
    let command = command.replace('\0', " ");
    format!("{pid} {} {} in {}", command.chars().take(60).collect::<String>(), state.trim(), word("wchan"))
}

pub fn signal(pid: i32, signal: rustix::process::Signal) {
    if let Some(pid) = rustix::process::Pid::from_raw(pid) {
        let _ = rustix::process::kill_process(pid, signal); // it may just have ended
    }
}

/// Calls of `step` by rank.
fn calls(summary: &Value) -> BTreeMap<String, u64> {
    let mut calls = BTreeMap::new();
    let view = &summary["devices"][0]["views"][0];
    for row in view["callpaths"].as_array().into_iter().flatten() {
        let last = row["path"].as_array().and_then(|path| path.last()).and_then(Value::as_str);
        if last == Some("step") {
            let group = row["location_group"].as_str().unwrap_or_default().to_owned();
            *calls.entry(group).or_insert(0) += row["calls"].as_u64().unwrap_or(0);
        }
    }
    calls
}

/// Every joule of every device is somebody's, idle or lost.
fn conserved(summary: &Value) -> Result<(), String> {
    let devices = summary["devices"].as_array().filter(|devices| !devices.is_empty());
    for device in devices.ok_or_else(|| format!("no devices: {}", summary["run"]))? {
        let total = device["total_joules"].as_f64().ok_or("no total")?;
        for view in device["views"].as_array().into_iter().flatten() {
            let parts = ["attributed_joules", "idle_joules", "lost_joules"];
            let sum: f64 = parts.iter().filter_map(|part| view[part].as_f64()).sum();
            if (sum - total).abs() > CONSERVED * total {
                return Err(format!("{sum} J of {total} J are accounted for"));
            }
        }
    }
    Ok(())
}

/// Rounds with progress on the terminal. `round` gets its seed; those that failed are told with it.
pub fn rounds(
    name: &str,
    count: u64,
    seed: u64,
    mut round: impl FnMut(u64, u64) -> Result<(), String>,
) -> (u64, Vec<String>) {
    use std::io::{IsTerminal, Write};
    let terminal = std::io::stderr().is_terminal();
    let (mut good, mut failures) = (0, Vec::new());
    let begun = Instant::now();
    for number in 0..count {
        let own = crate::random::of_round(seed, number);
        match round(number, own) {
            Ok(()) => good += 1,
            Err(why) => {
                let line = format!("{name} SOAK_SEED={own}: {why}");
                eprintln!("{}{line}", if terminal { "\r\x1b[K" } else { "" });
                failures.push(line);
            }
        }
        let done = number + 1;
        let seconds = begun.elapsed().as_secs_f64();
        if terminal {
            eprint!("\r\x1b[K{name}: {done} of {count}, {} failed, {seconds:.0} s", failures.len());
            let _ = std::io::stderr().flush();
        } else if done.is_multiple_of(50) || done == count {
            eprintln!("{name}: {done} of {count}, {} failed, {seconds:.0} s", failures.len());
        }
    }
    if terminal {
        eprintln!();
    }
    (good, failures)
}
