//! Reads what the processes of the run write: their definition logs and their rings.
//!
//! The decoded events go into the pipeline (`crates/timeline`), which sorts the events of all locations by time.
//!
//! ```text
//! process.rs        one process and its definitions log
//! location.rs       one location and its ring
//! ring_reader.rs    reads a location's or the sampler's ring, to disk and to a decoder
//! finding.rs        finds processes by their logs
//! own_functions.rs  finds out whether a process records its own functions
//! draining.rs       copies records out of the rings, decodes them
//! process_ends.rs   ends the open frames of processes that have ended or were killed
//! disk.rs           writes records elsewhere, or ends the trace, when a disk is nearly full
//! spooling.rs       writes records from the rings to disk, in large pieces
//! limits.rs         upper bounds on what a process can make the collector hold
//! reading_again.rs  a new collector reads the records of a killed one again
//! ```

mod disk;
mod draining;
pub(crate) mod finding;
pub(crate) mod limits;
pub(crate) mod location;
mod own_functions;
pub(crate) mod process;
pub(crate) mod process_ends;
pub(crate) mod reading_again;
pub(crate) mod ring_reader;
mod spooling;

use crate::options::{BATCH, LIVENESS_PERIOD};
use crate::run_directory::disk_space::DiskSpace;
use ampere_attribution::LocationIndex;
use ampere_model::Timestamp;
use ampere_model::launcher::local_rank_and_size;
use ampere_ring::cpu_time::CpuTotal;
use ampere_ring::process::is_alive;
use ampere_ring::session::Command;
use ampere_ring::{Record, Session};
use ampere_trace::spool::SpoolDirectory;
use limits::CallPaths;
use location::{LiveLocation, Place};
use process::{Identity, Process, State};
use spooling::Unspooled;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::ops::{Index, IndexMut};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// An upper bound on waiting for the other ranks that a launcher has started on the node, after all known ranks have ended.
const LATECOMERS: Duration = Duration::from_secs(5);

/// The processes of a run, and where their records are kept.
pub(crate) struct Ingest {
    pub processes: Vec<Process>,
    /// For each process that records its calls, the index of its last program.
    last_programs: HashMap<Identity, usize>,
    known_logs: HashSet<PathBuf>,
    /// The commands of `ampere run` processes that a launcher started, with their start times.
    commands: Vec<(Command, u64)>,
    /// The numbers of processes and commands that [`Ingest::take_found`] and [`Ingest::take_commands`] have returned.
    taken: usize,
    taken_commands: usize,
    /// The session's generation when the logs were last read.
    generation: u64,
    pub spool: SpoolDirectory,
    pub disk: DiskSpace,
    pub batch: Vec<Record>,
    /// The CPU time of each location, and records of it that are being read.
    cpu_totals: HashMap<LocationIndex, CpuTotal>,
    cpu_times: Vec<(Timestamp, u32, u64)>,
    unspooled: Unspooled,
    callpaths: CallPaths,
    /// Whether processes that had ended before this collector started have been checked.
    has_taken_over: bool,
    /// The time when all processes were first found to have ended.
    ended_since: Option<Instant>,
    /// This node's name in the run.
    node: String,
}

/// What is still expected from a run whose command has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StillExpected {
    /// The end of reading an earlier collector's records again.
    ReadAgain,
    /// The end of a process that the kernel is ending.
    Ending,
    /// The ends of ranks, whose launcher may end shortly before them, or of a process that is about to record.
    Ranks,
    /// The ends of ranks whose launcher was killed.
    OrphanedRanks,
    /// The ends of processes that nobody waits for.
    Others,
}

/// The result of one round of the loop.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Round {
    /// The records that were taken out of the rings.
    pub records: usize,
    /// The fill level of the fullest ring, between 0 and 1.
    pub fullest: f64,
    /// The size, in records, of the smallest ring that a program writes to.
    pub smallest: u64,
}

impl Index<Place> for Ingest {
    type Output = LiveLocation;

    fn index(&self, at: Place) -> &LiveLocation {
        &self.processes[at.process].locations[at.location]
    }
}

impl IndexMut<Place> for Ingest {
    fn index_mut(&mut self, at: Place) -> &mut LiveLocation {
        &mut self.processes[at.process].locations[at.location]
    }
}

impl Ingest {
    /// `begins`: whether this is the run's first collector. `node`: this node's name in the run.
    pub fn new(spool: SpoolDirectory, begins: bool, node: String) -> Ingest {
        Ingest {
            processes: Vec::new(),
            last_programs: HashMap::new(),
            known_logs: HashSet::new(),
            commands: Vec::new(),
            taken: 0,
            taken_commands: 0,
            generation: u64::MAX,
            disk: DiskSpace::reserve(&spool.directory),
            spool,
            batch: Vec::with_capacity(BATCH),
            cpu_totals: HashMap::new(),
            cpu_times: Vec::new(),
            unspooled: Unspooled::new(),
            callpaths: CallPaths::default(),
            has_taken_over: begins,
            ended_since: None,
            node,
        }
    }

    fn add_process(&mut self, process: Process) {
        if !process.is_sampled() {
            self.last_programs.insert(process.identity(), self.processes.len());
        }
        self.processes.push(process);
    }

    /// Returns the indices of all locations.
    fn places(&self) -> Vec<Place> {
        let of_process = |(process, of): (usize, &Process)| {
            (0..of.locations.len()).map(move |location| Place { process, location })
        };
        self.processes.iter().enumerate().flat_map(of_process).collect()
    }

    pub fn locations(&self) -> impl Iterator<Item = &LiveLocation> {
        self.processes.iter().flat_map(|process| &process.locations)
    }

    pub fn locations_mut(&mut self) -> impl Iterator<Item = &mut LiveLocation> {
        self.processes.iter_mut().flat_map(|process| &mut process.locations)
    }

    pub fn last_event(&self) -> Option<Timestamp> {
        self.locations().map(|location| location.reader.decoder.last_time()).max()
    }

    /// Whether further GPU streams may be defined. A stream is defined with its first batch of events: by Score-P, and by the
    /// embedded host if a library for GPUs has reported to it. A replay defines all of them at once.
    pub fn awaits_streams(&self) -> bool {
        let may_define = |process: &Process| {
            let has_gpus = process.info.host == "score-p" || process.losses.gpu_records.is_some();
            has_gpus && process.life.state == State::Running
        };
        self.processes.iter().any(may_define)
    }

    /// Returns the processes that write their own log. The end of a run does not wait for the others, which are sampled.
    fn recorded_processes(&self) -> impl Iterator<Item = &Process> {
        self.processes.iter().filter(|process| !process.is_sampled())
    }

    /// Returns the pids of new processes of this node that write logs and are alive.
    pub fn take_found(&mut self) -> impl Iterator<Item = u32> {
        let new = &self.processes[std::mem::replace(&mut self.taken, self.processes.len())..];
        let is_there =
            |process: &&Process| !process.is_sampled() && process.has_pid_here() && process.is_alive();
        new.iter().filter(is_there).map(|process| process.info.pid)
    }

    /// Returns the new commands of this node.
    pub fn take_commands(&mut self) -> impl Iterator<Item = Command> {
        let new = &self.commands[std::mem::replace(&mut self.taken_commands, self.commands.len())..];
        new.iter().map(|(command, _)| command.clone())
    }

    /// Returns the number of processes and commands so far.
    pub fn processes_seen(&self) -> usize {
        self.processes.len() + self.commands.len()
    }

    fn commands_have_ended(&self) -> bool {
        self.commands.iter().all(|(command, started)| !is_alive(command.pid, *started))
    }

    fn awaits_commands(&self) -> bool {
        !self.commands.is_empty() && self.commands.len() < expected_commands() as usize
    }

    /// Returns a note if no process has recorded and some ranks of the launcher did not use `ampere run`.
    pub fn note_of_missing_commands(&self) -> Option<String> {
        let is_missing = self.recorded_processes().next().is_none() && self.awaits_commands();
        is_missing.then(|| {
            format!(
                "{} of {} ranks that the launcher started on this node used ampere run: the joules of the others are idle, and the run is {} s \
                 longer because it waited for them",
                self.commands.len(),
                expected_commands(),
                LATECOMERS.as_secs()
            )
        })
    }

    /// Returns what is still expected after the command of `ampere run` has ended. Nothing is expected from processes that are
    /// sampled. `was_killed`: the command was ended by a signal.
    pub fn still_expected(&self, session: &Session, was_killed: bool) -> Option<StillExpected> {
        let is_left =
            |process: &&Process| process.life.state == State::Running || process.life.runs_unmeasured;
        let left: Vec<&Process> = self.recorded_processes().filter(is_left).collect();
        let may_join =
            (session.joined() as usize) > self.recorded_processes().count() || !self.commands_have_ended();
        let has_ranks = left.iter().any(|process| process.rank.is_some_and(|(_, size)| size > 1));
        if left.iter().any(|process| process.is_ending()) {
            Some(StillExpected::Ending)
        } else if has_ranks && was_killed {
            Some(StillExpected::OrphanedRanks)
        } else if has_ranks || may_join {
            Some(StillExpected::Ranks)
        } else {
            (!left.is_empty()).then_some(StillExpected::Others)
        }
    }

    /// Returns programs and pids of the processes that are alive and that the kernel is not ending.
    pub fn still_running(&self) -> BTreeSet<String> {
        let has_ended = |process: &Process| {
            let recorded = self.recorded_processes().filter(|other| process.is_same_process(other));
            let mut recorded =
                recorded.filter(|other| process.is_sampled() && other.life.state == State::Finished);
            recorded.next().is_some() || self.processes.iter().any(|other| process.is_before(other))
        };
        let runs = |process: &&Process| {
            process.has_pid_here()
                && is_alive(process.info.pid, process.info.start_time)
                && (process.is_sampled()
                    || process.life.state == State::Running
                    || process.life.runs_unmeasured)
                && !has_ended(process)
                && !process.is_ending()
        };
        self.processes.iter().filter(runs).map(Process::program_and_pid).collect()
    }

    /// Whether there were processes and all of them have ended. A run without a process that records lasts as long as its
    /// commands.
    pub fn have_all_ended(&mut self, session: &Session) -> bool {
        let has_ended =
            |process: &Process| process.life.state != State::Running && !process.life.runs_unmeasured;
        let has_recorded = self.recorded_processes().next().is_some();
        let over = self.processes_seen() > 0
            && self.recorded_processes().all(has_ended)
            && (has_recorded || self.commands_have_ended());
        if !over {
            self.ended_since = None;
        }
        // MPI lets no rank end before all have joined. With other processes, the run continues for a moment, because one may be
        // about to join.
        let are_ranks =
            self.recorded_processes().all(|process| process.rank.is_some_and(|(_, size)| size > 1));
        let are_all = session.joined() as usize <= self.recorded_processes().count();
        let are_ranks = are_ranks && (has_recorded || self.commands.is_empty());
        let wait = if !has_recorded && self.awaits_commands() { LATECOMERS } else { LIVENESS_PERIOD };
        over && (are_all && are_ranks || self.ended_since.get_or_insert_with(Instant::now).elapsed() > wait)
    }
}

/// Returns the number of ranks that the launcher has started on this node; 0 if it is not known.
fn expected_commands() -> u32 {
    local_rank_and_size(|name| std::env::var(name).ok()).map_or(0, |(_, size)| size)
}
