//! Watches the node while the run is running: CPU time of the run's processes and of all others, GPUs that processes use, and
//! other runs.

use crate::overhead;
use crate::run_directory::other_runs::Neighbours;
use ampere_counters::{ProcessCpu, Queues, RunCpu, Settings, SharedRunCpu, UsedGpus};
use ampere_figures::summary::NodeCpu;
use ampere_model::Quality;
use ampere_stacks::TaskClock;
use ampere_timeline::attributor::{Attributor, Device, Unit};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The time between two searches for other runs.
const NEIGHBOURS_PERIOD: Duration = Duration::from_secs(1);

pub struct NodeWatch {
    run_cpu: SharedRunCpu,
    queues: Option<Queues>,
    cpu: Option<NodeCpu>,
    neighbours: Neighbours,
    next_neighbours: Instant,
}

impl NodeWatch {
    /// Starts to count. `cpus`: the number of CPUs that the run may use. `launcher`: the `ampere run` that started the run.
    pub fn begin(session: &Path, settings: &Settings, cpus: usize, launcher: Option<u32>) -> NodeWatch {
        let mut run_cpu = RunCpu::new(settings, cpus);
        if let Some(launcher) = launcher {
            run_cpu.add_launcher(launcher);
            if let Some(clock) = TaskClock::of_commands(launcher) {
                run_cpu.add_total_clock(Box::new(move || clock.read()));
            }
        }
        NodeWatch {
            run_cpu: Arc::new(Mutex::new(run_cpu)),
            queues: Queues::open(&settings.sys_root),
            cpu: None,
            neighbours: Neighbours::of(session, launcher),
            next_neighbours: Instant::now(),
        }
    }

    /// Returns the CPU time for the estimate, which reads it in the sampler's thread.
    pub(crate) fn shared(&self) -> SharedRunCpu {
        self.run_cpu.clone()
    }

    pub(crate) fn add_process(&self, pid: u32, start_time: u64) {
        self.with(|run| run.add(pid, start_time));
    }

    /// Adds a process of the run in another PID namespace.
    pub(crate) fn add_foreign(&self, start_time: u64) {
        self.with(|run| run.add_foreign(start_time));
    }

    /// Whether the CPU time of some processes of the run is not known.
    pub(crate) fn is_partial(&self) -> bool {
        self.with(|run| run.is_partial())
    }

    /// Adds a process that waits until it may become a program of the run.
    pub(crate) fn add_command(&self, pid: u32, start_time: u64) {
        self.with(|run| run.add_command(pid, start_time));
    }

    /// Adds the CPU time of the command and of the children that it waited for.
    pub(crate) fn command_used(&self, cpu_ns: u64) {
        self.with(|run| run.command_used(cpu_ns));
    }

    /// Reads the CPU time of the run's processes.
    pub(crate) fn read_processes(&self) {
        self.with(|run| run.look());
    }

    pub(crate) fn processes(&self) -> Vec<ProcessCpu> {
        self.with(|run| run.processes().collect())
    }

    /// Returns the GPUs that a process uses now, if AMD's driver reports them.
    pub(crate) fn gpus_of(&self, pid: u32) -> UsedGpus {
        self.queues.as_ref().map_or(UsedGpus::Unknown, |queues| queues.of(pid))
    }

    pub(crate) fn cpu(&self) -> Option<NodeCpu> {
        self.cpu
    }

    /// Returns why the run's joules include those of other runs of the same command.
    pub(crate) fn loss(&self, attributor: &Attributor) -> Option<String> {
        let what = if are_estimated(attributor) {
            "the idle joules of the node"
        } else {
            "the joules of all of them"
        };
        self.neighbours.has_siblings().then(|| {
            format!(
                "the same ampere run was started several times at once on this node, as by a launcher whose variables are not known: each \
                 of these runs has {what}. Start ampere run once, before the launcher"
            )
        })
    }

    fn with<T>(&self, ask: impl FnOnce(&mut RunCpu) -> T) -> T {
        ask(&mut self.run_cpu.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn look(&mut self) {
        let (busy, (cpus, node_cpus)) = self.with(|run| (run.busy(), run.cpus()));
        self.cpu = busy.map(|busy| NodeCpu {
            seconds: busy.counted_ns as f64 * 1e-9,
            own_busy_seconds: busy.own_ns as f64 * 1e-9,
            collector_busy_seconds: overhead::cpu_seconds(),
            node_busy_seconds: busy.node_ns as f64 * 1e-9,
            cpus: cpus as u64,
            node_cpus: node_cpus as u64,
        });
        if self.next_neighbours <= Instant::now() {
            self.next_neighbours = Instant::now() + NEIGHBOURS_PERIOD;
            self.neighbours.look();
        }
    }

    /// Returns notes about other programs whose energy the counters include.
    pub(crate) fn notes(&self, attributor: &Attributor) -> Vec<String> {
        if energies(attributor).next().is_none() {
            return Vec::new();
        }
        let means = if are_estimated(attributor) {
            "this run's joules do not include them: they are estimated from its own CPU time and the idle watts of all CPUs that it \
             may use"
        } else {
            match attributor.shares_with_other_jobs() {
                true => {
                    "their share of the dynamic joules, by CPU time, counts as other jobs' energy, not as this run's"
                }
                false => "this run's joules include their energy",
            }
        };
        let others = self.neighbours.words();
        let others = others.map(|others| format!("other runs on this node at the same time: {others}"));
        let busy = self.cpu.filter(NodeCpu::has_others);
        // The CPU time that they used is shown next to the run's own.
        let busy = busy.map(|_| "other programs ran on the node".to_owned());
        let mut notes: Vec<String> = others.into_iter().chain(busy).collect();
        notes.iter_mut().take(1).for_each(|first| *first += &format!("; {means}"));
        notes
    }
}

fn energies(attributor: &Attributor) -> impl Iterator<Item = &Device> {
    attributor.devices.iter().filter(|device| device.info.unit == Unit::Joules)
}

fn are_estimated(attributor: &Attributor) -> bool {
    energies(attributor).all(|device| device.info.quality == Quality::Estimated)
}
