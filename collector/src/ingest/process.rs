//! One process of the run: what its log says, and the rings of its locations.

use crate::ingest::location::LiveLocation;
use ampere_counters::{Stat, UsedGpus};
use ampere_figures::losses::RecordLosses;
use ampere_model::numbers::Handles;
use ampere_model::regions::Regions;
use ampere_model::text::printable;
use ampere_model::{
    Communicator, Definition, Location, LocationKind, Program, QUEUES, REPLAYED_HOST, Region, RegionRef,
    SAMPLED_HOST, STACK_PERIOD, Timestamp,
};
use ampere_ring::LogReader;
use ampere_ring::process::{ProcessHandle, is_alive};
use ampere_timeline::attributor::Attributor;
use ampere_timeline::linking::ThreadSeconds;
use ampere_timeline::topology::{Accelerator, Evidence};
use ampere_trace::replay::{Replay, ReplayedProcess};
use ampere_trace::spool::SpoolDirectory;
use ampere_trace::write::{TracedLocation, TracedProcess};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How far a process has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum State {
    #[default]
    Running,
    /// It has ended its measurement in order.
    Finished,
    /// It is gone without a word.
    Died,
    /// Its program is over, because the process became another one (`exec`).
    Replaced,
}

pub(crate) struct Process {
    log: LogReader,
    /// Where the kernel gives one.
    handle: Option<ProcessHandle>,
    /// What its files' names begin with: its pid. With a number behind it if there was another before with that pid, as
    /// when a program becomes another (`exec`).
    pub name: String,
    pub info: ampere_model::Process,
    /// Rank and size, once known.
    pub rank: Option<(u32, u32)>,
    pub regions: RegionHandles,
    /// For the trace.
    communicators: Vec<Communicator>,
    program: Option<Program>,
    pub locations: Vec<LiveLocation>,
    pub life: Life,
    pub losses: Losses,
    pub threads: Threads,
    pub queues: QueueLooks,
    /// In a replay, what it is in the trace.
    pub replayed: Option<ReplayedProcess>,
    /// Of a process that is sampled: the rank that records its calls, and its group.
    pub sampled_rank: Option<(u32, String)>,
    functions: FunctionLooks,
}

/// Whether a process records its own functions.
#[derive(Debug, Default, PartialEq, Eq)]
enum FunctionLooks {
    #[default]
    Unknown,
    /// In each of so many looks until now it was in one.
    In(u32),
    /// It does.
    Recorded,
    /// It did, and does not any more, or not always.
    Ended,
}

/// What a process' handles of regions mean in the run.
#[derive(Default)]
pub(crate) struct RegionHandles {
    /// Regions that the run does not know yet.
    new: Vec<Region>,
    /// For the figures: see `Regions::of_name`.
    pub figures: Handles,
    /// For the trace.
    pub trace: Handles,
    /// Handles that were used and never defined.
    undefined: usize,
}

/// When a process ran and how it ended.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Life {
    pub state: State,
    /// When its measurement ended, by its own word.
    pub program_end: Option<Timestamp>,
    /// When it was last seen alive.
    pub seen_alive: Option<Timestamp>,
    /// When it ended, where it did not say so itself.
    pub died_at: Option<Timestamp>,
    /// It became another program, and that one, which is not measured, still runs.
    pub runs_unmeasured: bool,
    /// Its log was locked when it was found.
    holds_log: bool,
    /// Whether it holds no descriptors between reads.
    releases_descriptors: bool,
}

/// What is not known of a process.
#[derive(Debug, Default)]
pub(crate) struct Losses {
    /// What it reports at its end; its locations have the other counts.
    pub records: RecordLosses,
    /// Locations that got no ring, as far as it has said.
    pub unrecorded_locations: u64,
    /// What it has recorded is not all read: a ring could not be opened.
    pub is_read_in_part: bool,
    /// Logs and rings that could not be read, one line each.
    pub complaints: Vec<String>,
    complaints_left_out: bool,
}

/// What the system says of a process' threads, if there are several.
#[derive(Debug, Default)]
pub(crate) struct Threads {
    pub seconds: Option<ThreadSeconds>,
    looks: Looks,
    /// CPU time of all but the main thread when the process ceased to be sampled, and at the last look.
    unsampled: Option<(f64, f64)>,
    unsampled_looks: Looks,
}

/// Whether the GPUs are known that it uses.
#[derive(Debug, Default)]
pub(crate) struct QueueLooks {
    looks: Looks,
    /// It has opened the driver.
    has_opened: bool,
    /// The attributor does not know all of them yet.
    are_new: bool,
}

/// How often something was looked at.
#[derive(Debug, Default)]
struct Looks(u64);

impl Looks {
    /// Counts one more. Of a process that has just begun it is always due, then every tenth time.
    fn is_due(&mut self) -> bool {
        const FIRST: u64 = 10;
        self.0 += 1;
        self.0 <= FIRST || self.0.is_multiple_of(FIRST)
    }
}

/// Handles that were used and never defined: more are damage, and their events are left out.
const MOST_UNDEFINED: usize = 4096;
/// A process cannot have so many locations.
const MOST_LOCATIONS: usize = 1 << 14;
/// So many complaints about a process are kept.
const MOST_COMPLAINTS: usize = 100;
/// From here on a trace has numbers of its own.
const FIRST_RESERVED_LOCATION: u32 = u32::MAX >> 1;

/// Why a log is not read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OpenError {
    #[error(transparent)]
    Log(#[from] ampere_ring::Error),
    #[error("{} is not the log of process {pid}, as it says: it is not read", log.display())]
    OfAnother { log: PathBuf, pid: u32 },
}

impl Process {
    /// `None` while the log has no first entry yet. `replay`: what is played.
    pub fn open(
        path: &Path,
        spool: &SpoolDirectory,
        replay: Option<&Replay>,
    ) -> Result<Option<Process>, OpenError> {
        let name = path.file_stem().map(|name| name.to_string_lossy().into_owned());
        let Some(mut log) = LogReader::open(path)? else { return Ok(None) };
        if let Some(copy) = spool.copy_of(path) {
            log.copy_to(copy);
        }
        let mut process = Process {
            log,
            handle: None,
            name: name.unwrap_or_default(),
            info: ampere_model::Process::default(),
            rank: None,
            regions: RegionHandles::default(),
            communicators: Vec::new(),
            program: None,
            locations: Vec::new(),
            life: Life::default(),
            losses: Losses::default(),
            threads: Threads::default(),
            queues: QueueLooks::default(),
            replayed: None,
            sampled_rank: None,
            functions: FunctionLooks::default(),
        };
        process.read_log(spool);
        process.replayed = replay.and_then(|replay| replay.process(process.info.pid)).cloned();
        let is_visible = process.has_pid_here();
        process.handle =
            ProcessHandle::open(process.info.pid, process.info.start_time).filter(|_| is_visible);
        process.life.holds_log = process.log.is_held();
        // Files are named after it.
        let named = path.file_stem().and_then(|stem| stem.to_str()?.split('-').next()?.parse::<u32>().ok());
        match process.info.pid {
            0 => Ok(None),
            pid if named == Some(pid) => Ok(Some(process)),
            pid => Err(OpenError::OfAnother { log: path.to_owned(), pid }),
        }
    }

    fn complain(&mut self, line: String) {
        if self.losses.complaints.len() < MOST_COMPLAINTS {
            self.losses.complaints.push(line);
        } else if !std::mem::replace(&mut self.losses.complaints_left_out, true) {
            self.losses.complaints.push(format!("process {}: more of the like", self.info.pid));
        }
    }

    /// Regions that have been defined meanwhile become the run's.
    pub fn define_new_regions(&mut self, all: &mut Regions) {
        for region in std::mem::take(&mut self.regions.new) {
            let reference = all.add(&region);
            self.add_region(region.handle.0, reference, all);
        }
    }

    /// A region of the run is known by this handle in the process.
    pub fn add_region(&mut self, handle: u32, region: RegionRef, all: &Regions) {
        self.regions.trace.insert(handle, region);
        self.regions.figures.insert(handle, all.of_name(region));
    }

    /// Counts a handle that was used without a definition. Returns whether it may still be taken for a region.
    pub fn count_undefined(&mut self) -> bool {
        self.regions.undefined += 1;
        self.regions.undefined <= MOST_UNDEFINED
    }

    /// Whether another handle without a definition is worth a look into the log.
    pub fn looks_for_definitions(&self) -> bool {
        self.regions.undefined < MOST_UNDEFINED
    }

    /// Reads what is new in the log.
    pub fn read_log(&mut self, spool: &SpoolDirectory) {
        let mut new = Vec::new();
        if let Err(error) = self.log.read_new(|definition| new.push(definition)) {
            self.complain(error.to_string());
        }
        for definition in new {
            match definition {
                // Who it is does not change.
                Definition::Process(info) if self.info.pid == 0 => self.info = info,
                Definition::Process(_) => {}
                Definition::Rank { rank, size } => self.rank = Some((rank, size)),
                Definition::Region(region) => self.regions.new.push(region),
                Definition::Location(location) => self.open_location(location, spool),
                Definition::Finished { left_out } => {
                    self.life.state = State::Finished;
                    self.losses.records.left_out_definitions = left_out;
                }
                Definition::Unrecorded { locations, calls } => {
                    (self.losses.unrecorded_locations, self.losses.records.unrecorded_calls) =
                        (locations, calls)
                }
                Definition::Communicator(communicator) => self.communicators.push(communicator),
                Definition::Program(program) => self.program = Some(program),
                Definition::Device(_) => {}
            }
        }
    }

    fn open_location(&mut self, definition: Location, spool: &SpoolDirectory) {
        let id = definition.id.0;
        // The name comes from another process: nothing but its own file beside the log.
        let expected = format!("{}.{id}.ring", self.name);
        let wrong = if definition.ring != expected {
            Some(format!("{:?} is no name for ring {expected}", definition.ring))
        } else if id >= FIRST_RESERVED_LOCATION || self.locations.len() >= MOST_LOCATIONS {
            Some(format!("{expected} is one location more than a process can have"))
        } else if self.locations.iter().any(|known| known.definition.id.0 == id) {
            Some(format!("{expected} is defined twice"))
        } else {
            None
        };
        if let Some(wrong) = wrong {
            self.losses.is_read_in_part = true;
            return self.complain(wrong);
        }
        let directory = self.log.path().parent().unwrap_or(Path::new(".")).to_owned();
        let stream = self.stream_of(&definition);
        let mut complaints = Vec::new();
        let opened = LiveLocation::open(definition, &directory, &stream, spool, &mut complaints);
        self.losses.is_read_in_part |= opened.is_read_in_part;
        self.locations.extend(opened.location);
        complaints.into_iter().for_each(|line| self.complain(line));
    }

    /// What the system says of its threads, if there are several: the names that they have been given, and how long they ran.
    pub fn look_at_threads(&mut self) {
        let is_thread = |location: &LiveLocation| location.definition.kind == LocationKind::CpuThread;
        if !self.has_pid_here() || self.locations.iter().filter(|location| is_thread(location)).count() < 2 {
            return;
        }
        let pid = self.info.pid;
        if !self.threads.looks.is_due() {
            return;
        }
        let Some((whole, main)) = self.whole_and_main_thread() else { return };
        let seconds = |ns: u64| ns as f64 * 1e-9;
        self.threads.seconds = Some(ThreadSeconds {
            main: seconds(main.cpu_ns),
            others: seconds(whole.cpu_ns.saturating_sub(main.cpu_ns)),
        });
        for location in self.locations.iter_mut().filter(|location| is_thread(location)) {
            let LiveLocation { definition, is_named, .. } = location;
            if definition.id.0 == 0 || definition.thread == 0 || definition.thread == pid {
                continue;
            }
            // It has its maker's name until it is given one of its own.
            let Some(thread) = Stat::of_thread(pid, definition.thread) else { continue };
            if thread.name != main.name && !*is_named {
                definition.name = format!("{} ({})", thread.name, definition.name);
                *is_named = true;
            }
        }
    }

    /// Looks whether it records its own functions: whether its main thread is in one, or, where no stacks are sampled, in any frame.
    /// Gives it where it has changed.
    pub fn find_recording(&mut self, attributor: &Attributor, has_samples: bool) -> Option<bool> {
        const LOOKS: u32 = 3;
        if self.is_sampled() || self.functions == FunctionLooks::Ended {
            return None;
        }
        let main = self.locations.iter().find(|location| location.definition.id.0 == 0);
        let is_in_function = self.life.state == State::Running
            && main.and_then(|main| main.index).is_some_and(|main| match has_samples {
                true => attributor.is_in_function(main),
                false => !attributor.engine.stack(main).is_empty(),
            });
        let (functions, news) = match (&self.functions, is_in_function) {
            (FunctionLooks::Unknown, true) if !has_samples => (FunctionLooks::Recorded, Some(true)),
            (FunctionLooks::Recorded, false) => (FunctionLooks::Ended, Some(false)),
            (FunctionLooks::Recorded, true) => (FunctionLooks::Recorded, None),
            (FunctionLooks::In(LOOKS), true) => (FunctionLooks::Recorded, Some(true)),
            (FunctionLooks::In(looks), true) => (FunctionLooks::In(looks + 1), None),
            (_, true) => (FunctionLooks::In(1), None),
            (_, false) => (FunctionLooks::Unknown, None),
        };
        self.functions = functions;
        news
    }

    /// While its main thread records its functions, it is not sampled: looks how long its other threads run meanwhile.
    pub fn look_at_unsampled_threads(&mut self) {
        let is_unsampled = self.functions == FunctionLooks::Recorded && self.replayed.is_none();
        if !is_unsampled || !self.has_pid_here() || !self.threads.unsampled_looks.is_due() {
            return;
        }
        if let Some((whole, main)) = self.whole_and_main_thread() {
            let others = whole.cpu_ns.saturating_sub(main.cpu_ns) as f64 * 1e-9;
            self.threads.unsampled.get_or_insert((others, others)).1 = others;
        }
    }

    /// The figures of the whole process and of its main thread, as long as it runs.
    fn whole_and_main_thread(&self) -> Option<(Stat, Stat)> {
        let pid = self.info.pid;
        let whole = Stat::of(pid).filter(|stat| stat.started == self.info.start_time)?;
        Some((whole, Stat::of_thread(pid, pid)?))
    }

    /// CPU time of all but the main thread while it was not sampled.
    pub fn unsampled_seconds(&self) -> f64 {
        self.threads.unsampled.map_or(0.0, |(begin, end)| end - begin)
    }

    /// Pid and start time, the same in all logs of a process.
    pub fn pid_and_start(&self) -> String {
        format!("{} {}", self.info.pid, self.info.start_time)
    }

    /// Whether to look which GPUs it uses: always until it opens the driver, as its first queue may come and go soon after.
    pub fn is_queue_look_due(&mut self) -> bool {
        self.has_pid_here() && (self.queues.looks.is_due() || !self.queues.has_opened)
    }

    /// Whether nobody has looked yet.
    pub fn is_first_queue_look_due(&mut self) -> bool {
        self.queues.looks.0 == 0 && self.is_queue_look_due()
    }

    /// Adds to the GPUs that it is known to have used, by pid and start time. Whether there is something new.
    pub fn find_gpus(&mut self, used: UsedGpus, known: &mut BTreeMap<String, BTreeSet<String>>) -> bool {
        let process = self.pid_and_start();
        let before = known.get(&process).map(BTreeSet::len);
        self.queues.has_opened |= before > Some(0) || used != UsedGpus::None;
        match used {
            UsedGpus::At(gpus) => known.entry(process.clone()).or_default().extend(gpus),
            UsedGpus::Unknown if before == Some(0) => _ = known.remove(&process),
            // What has ended before it was looked at may have.
            UsedGpus::None if !self.queues.has_opened && is_alive(self.info.pid, self.info.start_time) => {
                _ = known.entry(process.clone()).or_default();
            }
            UsedGpus::None | UsedGpus::Unknown => {}
        }
        let gpus = known.get(&process);
        if gpus.map(BTreeSet::len) == before {
            return false;
        }
        self.set_gpus(gpus);
        true
    }

    /// The GPUs where the driver has had queues of it, as far as they are known.
    pub fn set_gpus(&mut self, gpus: Option<&BTreeSet<String>>) {
        let entry = gpus.map(|gpus| {
            format!("{QUEUES}={}", gpus.iter().map(String::as_str).collect::<Vec<_>>().join(","))
        });
        let environment = &mut self.info.environment;
        let known = environment.iter().find(|entry| entry.starts_with(QUEUES));
        if known != entry.as_ref() {
            environment.retain(|entry| !entry.starts_with(QUEUES));
            environment.extend(entry);
            self.queues.are_new = true;
        }
    }

    /// Of one whose stacks are sampled: the CPU time from one sample to the next.
    pub fn set_stack_period(&mut self, period: Duration) {
        let of_period =
            |entry: &&mut String| entry.strip_prefix(STACK_PERIOD).is_some_and(|rest| rest.starts_with('='));
        if let Some(entry) = self.info.environment.iter_mut().find(of_period) {
            *entry = format!("{STACK_PERIOD}={}", period.as_nanos());
        }
    }

    /// Whether its variables have changed since this was last asked.
    pub fn take_new_queues(&mut self) -> bool {
        std::mem::take(&mut self.queues.are_new)
    }

    /// What the names of a location's files begin with.
    pub fn stream_of(&self, location: &Location) -> String {
        format!("{}.{}", self.name, location.id.0)
    }

    /// The process holds no descriptor from now on, and is looked at by its pid and its log's path.
    pub fn release_descriptors(&mut self) {
        self.handle = None;
        self.log.release_descriptor();
        self.life.releases_descriptors = true;
    }

    /// Finished processes must not hold descriptors: a run may have thousands of them.
    pub fn close_files(&mut self) {
        self.handle = None;
        self.log.close();
    }

    /// OTF2's location group of a location: the process, or the context of an accelerator.
    pub fn group_of(&self, location: &Location) -> String {
        let replayed = self.replayed.as_ref().and_then(|replayed| replayed.location(location.id));
        if let Some(replayed) = replayed {
            return replayed.group.clone();
        }
        match location.kind {
            LocationKind::Gpu => accelerator_context(&location.name),
            _ => self.group(),
        }
    }

    /// Score-P's names: "MPI Rank 3" in an MPI job, "Process" elsewhere.
    pub fn group(&self) -> String {
        if let Some(replayed) = &self.replayed {
            return replayed.group.clone();
        }
        if let Some((_, group)) = &self.sampled_rank {
            return group.clone();
        }
        match self.rank {
            Some((rank, size)) if size > 1 => format!("MPI Rank {rank}"),
            Some(_) => "Process".to_owned(),
            None if self.is_sampled() => {
                let program = Path::new(&self.info.executable).file_name().unwrap_or_default();
                format!("Process {} ({})", self.info.pid, program.to_string_lossy())
            }
            None => format!("Process {}", self.info.pid),
        }
    }

    /// What is known of who uses which device. `number`: of this process among those of the run.
    pub fn evidence(&self, location: usize, number: u64) -> Evidence {
        let location = &self.locations[location].definition;
        match &self.replayed {
            Some(replayed) => {
                let of = replayed.location(location.id);
                Evidence {
                    process: of.is_none_or(|of| of.is_of_process).then_some(number),
                    environment: self.environment().into(),
                    accelerator: of.map_or_else(Default::default, |of| of.accelerator.clone()),
                }
            }
            None => Evidence {
                process: Some(number),
                environment: self.environment().into(),
                accelerator: Accelerator::default(),
            },
        }
    }

    /// What its trace has of it.
    pub fn as_traced(&self) -> TracedProcess<'_> {
        let locations = self.locations.iter().enumerate().map(|(at, location)| TracedLocation {
            definition: &location.definition,
            number: location.index,
            group: self.group_of(&location.definition),
            evidence: self.evidence(at, 0),
            samples: location.samples,
            spool: location.spool.as_ref(),
        });
        TracedProcess {
            node: self.info.hostname.clone(),
            group: self.group(),
            rank: self.rank,
            is_mpi_rank: self.rank_number().is_some(),
            is_sampled: self.is_sampled(),
            environment: self.environment(),
            thread_seconds: self.threads.seconds,
            regions: &self.regions.trace,
            communicators: &self.communicators,
            program: self.program.as_ref(),
            locations: locations.collect(),
        }
    }

    /// Its environment variables.
    pub fn environment(&self) -> &[String] {
        &self.info.environment
    }

    /// The node that a location is on.
    pub fn node_of(&self, location: &Location) -> String {
        let replayed = self.replayed.as_ref().and_then(|replayed| replayed.location(location.id));
        replayed.map_or_else(|| self.info.hostname.clone(), |replayed| replayed.node.clone())
    }

    /// Its rank, where it has one: what processes of a replay call their rank may be only a number.
    pub fn rank_number(&self) -> Option<u32> {
        match &self.replayed {
            Some(replayed) => replayed.rank,
            None => self.rank.map(|(rank, _)| rank).or(self.sampled_rank.as_ref().map(|(rank, _)| *rank)),
        }
    }

    /// It has ended in order, and all that happened in it is known.
    pub fn is_whole(&self) -> bool {
        let is_over = self.life.state == State::Finished
            || self.life.state == State::Replaced && !self.may_have_lost_calls()
            || self.lost_its_sampler();
        is_over
            && !self.losses.is_read_in_part
            && !self.is_damaged()
            && self.losses.unrecorded_locations == 0
            && self.losses.records.unrecorded_calls == 0
    }

    /// The collector that sampled it was killed. What is missing for that is said of all together: `note_killed_sampler`.
    pub fn lost_its_sampler(&self) -> bool {
        self.is_sampled() && matches!(self.life.state, State::Died | State::Replaced)
    }

    /// Coalesced calls that it had not written yet were lost with its memory when it became another program.
    fn may_have_lost_calls(&self) -> bool {
        self.locations.iter().any(|location| location.decoder.coalesced_calls > 0)
    }

    /// What of it is not known, in one line.
    pub fn note_of_replaced(&self) -> Option<String> {
        let is_replaced = self.life.state == State::Replaced && !self.is_sampled();
        (is_replaced && self.may_have_lost_calls()).then(|| {
            format!(
                "{}, process {}, became another program (exec): short calls of its last milliseconds, which were still being \
                 counted, are missing below",
                self.group(),
                self.info.pid
            )
        })
    }

    /// Some of what it has recorded could not be read.
    pub fn is_damaged(&self) -> bool {
        self.locations.iter().any(|location| location.given_up)
    }

    /// What is missing of its events.
    pub fn record_losses(&self) -> RecordLosses {
        let mut sum = self.losses.records;
        self.locations.iter().for_each(|location| sum.add(&location.losses()));
        sum
    }

    /// What it has not recorded, in one line.
    pub fn note_of_unrecorded(&self) -> Option<String> {
        let (locations, calls) = (self.losses.unrecorded_locations, self.losses.records.unrecorded_calls);
        let has_calls = calls > 0;
        let calls = match calls {
            0 if self.life.state == State::Finished => "no calls".to_owned(),
            0 => "how many calls is not known".to_owned(),
            calls => format!("{calls} calls"),
        };
        let group = self.group();
        match locations {
            0 if !has_calls => None,
            0 => Some(format!("{group}: {calls} could not be recorded")),
            1 => Some(format!("{group}: 1 location could not be recorded, for want of memory: {calls}")),
            many => {
                Some(format!("{group}: {many} locations could not be recorded, for want of memory: {calls}"))
            }
        }
    }

    /// Which of the programs it is that one process was, one after the other.
    pub fn program_number(&self) -> u32 {
        let number = self.name.split_once('-').map(|(_, number)| number.trim_start_matches('s'));
        number.and_then(|number| number.parse().ok()).unwrap_or(1)
    }

    /// Whether the kernel knows both as one process.
    pub fn is_same_process(&self, other: &Process) -> bool {
        let identity = |of: &Process| (of.info.pid_namespace, of.info.pid, of.info.start_time);
        identity(self) == identity(other)
    }

    /// Its log and its rings are those of the samples of its stacks.
    pub fn is_sampled(&self) -> bool {
        self.info.host == SAMPLED_HOST
    }

    /// Its program is over: another one of the same process has begun.
    pub fn is_before(&self, other: &Process) -> bool {
        self.is_same_process(other)
            && self.is_sampled() == other.is_sampled()
            && self.program_number() < other.program_number()
    }

    /// Whether its pid means something here.
    pub fn has_pid_here(&self) -> bool {
        if self.info.host == REPLAYED_HOST {
            return false;
        }
        let (its, ours) = (self.info.pid_namespace, ampere_ring::process::pid_namespace());
        its == 0 || ours == 0 || its == ours
    }

    /// The process lives, and its program is over, which holds its log as long as it runs. The kernel takes that from a process
    /// that dies, too; but then it has no program any more.
    pub fn is_another_program(&self) -> bool {
        let has_program = || std::fs::read_link(format!("/proc/{}/exe", self.info.pid)).is_ok();
        self.life.holds_log
            && !self.is_sampled()
            && (self.handle.is_some() || self.life.releases_descriptors && self.has_pid_here())
            && !self.log.is_held()
            && has_program()
            && self.is_alive()
    }

    /// Whether all of its threads are about to end: the kernel is taking the process down.
    pub fn is_ending(&self) -> bool {
        self.has_pid_here() && ampere_ring::process::is_ending(self.info.pid)
    }

    /// The name of its program, and its pid.
    pub fn program_and_pid(&self) -> String {
        let program = Path::new(&self.info.executable).file_name().unwrap_or_default().to_string_lossy();
        format!("{} (process {})", printable(&program), self.info.pid)
    }

    /// In another pid namespace, as in a container, a process is known by its log: it is locked as long as the program runs.
    pub fn is_alive(&self) -> bool {
        match &self.handle {
            // Samples of it are written until the sampler knows that it has ended.
            _ if self.is_sampled() => self.log.is_held(),
            Some(handle) => handle.is_alive(),
            None if self.has_pid_here() => is_alive(self.info.pid, self.info.start_time),
            None => self.log.is_held(),
        }
    }
}

/// `HIP[1:0]` belongs to "HIP Context 1".
fn accelerator_context(stream: &str) -> String {
    let split = stream.split_once('[').and_then(|(kind, rest)| Some((kind, rest.split([':', ']']).next()?)));
    split
        .map_or_else(|| "Accelerator Context".to_owned(), |(kind, device)| format!("{kind} Context {device}"))
}
