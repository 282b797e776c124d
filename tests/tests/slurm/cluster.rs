//! A Slurm of this machine alone, with directories, ports and keys of its own, which ends with the test.

use ampere_tests::jobs::{Done, Place, have, is_root, run, until};
use std::io::Read;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Time limits are in minutes, and slurmctld checks them twice a minute.
const JOB_LIMIT: Duration = Duration::from_secs(200);
/// Seconds that processes have if they ignore SIGTERM.
const KILL_WAIT: u32 = 30;
const FREEZER: &str = "/sys/fs/cgroup/freezer";

/// The names of control groups contain the node's name, so there may be one cluster at a time.
static ONE: Mutex<()> = Mutex::new(());

/// How Slurm finds a job's processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tracking {
    /// By control groups: every process of a job is killed, including daemons.
    ControlGroups,
    /// By parents: a process that has left its parent survives.
    Parents,
}

pub struct Cluster {
    place: Place,
    daemons: Vec<Child>,
    has_control_groups: bool,
    _one: MutexGuard<'static, ()>,
}

fn node() -> String {
    rustix::system::uname().nodename().to_string_lossy().split('.').next().unwrap_or_default().to_owned()
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("its address").port()
}

impl Cluster {
    /// Starts Slurm; `None` if that is not possible here, with a printed reason.
    pub fn start(tracking: Tracking) -> Option<Cluster> {
        if !have(&["slurmctld", "slurmd", "sbatch", "munged"]) {
            return None;
        }
        if !is_root() {
            println!("skipped: needs root");
            return None;
        }
        let has_control_groups = tracking == Tracking::ControlGroups;
        if has_control_groups && !may_make_control_groups() {
            println!("skipped: no control groups can be made here");
            return None;
        }
        let one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        let place = Place::new();
        let mut cluster = Cluster { place, daemons: Vec::new(), has_control_groups, _one: one };
        cluster.configure();
        cluster.start_daemons();
        until("the node is ready", || cluster.control("sinfo", &["-h", "-o", "%T"]).stdout == "idle\n");
        Some(cluster)
    }

    fn path(&self, name: &str) -> String {
        self.place.path(name).display().to_string()
    }

    fn configure(&self) {
        for name in ["state", "spool", "munge"] {
            std::fs::create_dir(self.place.path(name)).expect("a directory");
        }
        let mut key = [0; 128];
        let mut random = std::fs::File::open("/dev/urandom").expect("random bytes");
        random.read_exact(&mut key).expect("random bytes");
        std::fs::write(self.place.path("munge/key"), key).expect("a key");
        for name in ["munge/key", "munge"] {
            use std::os::unix::fs::PermissionsExt;
            let mode = if name == "munge" { 0o711 } else { 0o400 };
            std::fs::set_permissions(self.place.path(name), std::fs::Permissions::from_mode(mode))
                .expect("chmod");
        }
        let (node, at) = (node(), |name: &str| self.path(name));
        let tracking = if self.has_control_groups { "cgroup" } else { "linuxproc" };
        let text = format!(
            "ClusterName=ampere\nSlurmctldHost={node}(127.0.0.1)\nSlurmctldPort={}\nSlurmdPort={}\n\
             SlurmUser=root\nSlurmdUser=root\nAuthType=auth/munge\nAuthInfo=socket={}\nCredType=cred/munge\n\
             StateSaveLocation={}\nSlurmdSpoolDir={}\nSlurmctldPidFile={}\nSlurmdPidFile={}\n\
             ProctrackType=proctrack/{tracking}\nTaskPlugin=task/none\nJobAcctGatherType=jobacct_gather/none\n\
             AccountingStorageType=accounting_storage/none\nSelectType=select/cons_tres\n\
             SelectTypeParameters=CR_CPU\nSchedulerParameters=sched_interval=1,bf_interval=1\nMpiDefault=pmix\n\
             KillWait={KILL_WAIT}\nReturnToService=2\nSlurmdTimeout=0\nInactiveLimit=0\nMailProg=/bin/true\n\
             SlurmdParameters=config_overrides\nNodeName={node} NodeAddr=127.0.0.1 CPUs=16 State=UNKNOWN\n\
             PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP\n",
            free_port(),
            free_port(),
            at("munge/socket"),
            at("state"),
            at("spool"),
            at("slurmctld.pid"),
            at("slurmd.pid"),
        );
        self.place.write("slurm.conf", &text);
        let groups = match Path::new(FREEZER).exists() {
            true => "CgroupPlugin=cgroup/v1\nCgroupAutomount=no\n",
            false => {
                // Slurm makes its groups below those of systemd, which is not installed everywhere.
                std::fs::create_dir_all("/sys/fs/cgroup/system.slice").expect("a control group");
                "CgroupPlugin=cgroup/v2\nIgnoreSystemd=yes\n"
            }
        };
        self.place.write("cgroup.conf", groups);
    }

    fn start_daemons(&mut self) {
        let at = |name: &str| self.path(name);
        let munged = [
            "--foreground".to_owned(),
            "--force".to_owned(),
            format!("--key-file={}", at("munge/key")),
            format!("--socket={}", at("munge/socket")),
            format!("--pid-file={}", at("munge/pid")),
            format!("--log-file={}", at("munge/log")),
            format!("--seed-file={}", at("munge/seed")),
        ];
        let conf = at("slurm.conf");
        self.start_daemon("munged", &munged);
        until("munge answers", || self.place.path("munge/socket").exists());
        self.start_daemon("slurmctld", &["-D".to_owned(), "-f".to_owned(), conf.clone()]);
        self.start_daemon("slurmd", &["-D".to_owned(), "-f".to_owned(), conf]);
    }

    fn start_daemon(&mut self, name: &str, arguments: &[String]) {
        let log = std::fs::File::create(self.place.path(format!("{name}.log"))).expect("a log");
        let mut command = self.with_configuration(Command::new(name));
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        self.daemons.push(command.spawn().expect("a daemon"));
    }

    fn with_configuration(&self, mut command: Command) -> Command {
        command.env("SLURM_CONF", self.place.path("slurm.conf"));
        command
    }

    /// Runs a command of Slurm.
    pub fn control(&self, name: &str, arguments: &[&str]) -> Done {
        let mut command = self.place.command(name);
        run(command.args(arguments).env("SLURM_CONF", self.place.path("slurm.conf")))
    }

    /// Returns a command whose processes use this cluster.
    pub fn command(&self, place: &Place, name: &str) -> Command {
        let path = format!(
            "{}:{}",
            ampere_tests::jobs::built().display(),
            std::env::var("PATH").unwrap_or_default()
        );
        let mut command = self.with_configuration(place.command(name));
        command.env("PATH", path).env("OMPI_MCA_plm_rsh_agent", "false");
        command
    }

    /// Submits a batch script, and returns the job's number.
    pub fn submit(&self, place: &Place, script: &Path) -> String {
        let done = run(self.command(place, "sbatch").args(["--parsable", "--output=job-%j.log"]).arg(script));
        assert_eq!(done.code, 0, "{done:#?}");
        done.stdout.trim().to_owned()
    }

    pub fn cancel(&self, job: &str, options: &[&str]) {
        assert_eq!(self.control("scancel", &[options, &[job]].concat()).code, 0);
        self.until_over(job);
    }

    /// Waits until all processes of a job have ended, or were killed.
    pub fn until_over(&self, job: &str) {
        let begun = Instant::now();
        loop {
            let state = self.control("squeue", &["-h", "-j", job, "-o", "%T"]);
            if state.stdout.is_empty() {
                return;
            }
            assert!(begun.elapsed() < JOB_LIMIT, "job {job} does not end: {state:#?}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for name in ["slurmctld.log", "slurmd.log"] {
                let log = std::fs::read_to_string(self.place.path(name)).unwrap_or_default();
                let lines: Vec<&str> = log.lines().collect();
                eprintln!("{name}:\n{}", lines[lines.len().saturating_sub(30)..].join("\n"));
            }
        }
        while let Some(mut daemon) = self.daemons.pop() {
            if let Some(pid) = rustix::process::Pid::from_raw(daemon.id() as i32) {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
            }
            let _ = daemon.wait();
        }
        if self.has_control_groups {
            remove_empty_groups(&PathBuf::from(FREEZER).join(format!("slurm_{}", node())));
        }
    }
}

fn may_make_control_groups() -> bool {
    let version_1 = Path::new(FREEZER);
    let root = if version_1.exists() { version_1 } else { Path::new("/sys/fs/cgroup") };
    let trial = root.join(format!("ampere-test-{}", std::process::id()));
    std::fs::create_dir(&trial).and_then(|()| std::fs::remove_dir(&trial)).is_ok()
}

fn remove_empty_groups(group: &Path) {
    for entry in std::fs::read_dir(group).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_empty_groups(&entry.path());
        }
    }
    let _ = std::fs::remove_dir(group);
}
