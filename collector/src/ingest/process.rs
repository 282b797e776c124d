//! One process of the run: its definitions log, and the rings of its locations.

use crate::ingest::location::LiveLocation;
use crate::ingest::own_functions::OwnFunctions;
use crate::live_timeline::LiveTimeline;
use crate::live_waits::Comms;
use ampere_attribution::NodeIndex;
use ampere_counters::{Stat, UsedGpus};
use ampere_figures::losses::{GpuClocks, RecordLosses};
use ampere_model::numbers::Handles;
use ampere_model::regions::Regions;
use ampere_model::text::printable;
use ampere_model::{
    Communicator, Definition, GpuRecords, LocalLocation, Location, LocationKind, Program, QUEUES,
    REPLAYED_HOST, Region, RegionRef, SAMPLED_HOST, STACK_PERIOD, StreamDevice, Timestamp,
};
use ampere_ring::LogReader;
use ampere_ring::process::{ProcessHandle, is_alive};
use ampere_timeline::linking::ThreadSeconds;
use ampere_timeline::topology::{Accelerator, Evidence};
use ampere_trace::replay::{Replay, ReplayedLocation, ReplayedProcess, ReplayedSamples};
use ampere_trace::spool::SpoolDirectory;
use ampere_trace::write::{TracedLocation, TracedProcess};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

/// A process records its own functions if it stays in one call of them for this time.
const FUNCTION_TIME_MIN: Duration = Duration::from_millis(300);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum State {
    #[default]
    Running,
    /// The process has ended its measurement properly.
    Finished,
    /// The process has ended without ending its measurement.
    Died,
    /// The process became another program (`exec`).
    Replaced,
}

/// Identifies a process of the kernel: its PID namespace, its pid and its start time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Identity(u64, u32, u64);

pub(crate) struct Process {
    log: LogReader,
    /// A descriptor of the process, if the kernel provides one.
    handle: Option<ProcessHandle>,
    /// The start of the names of the process' files: its pid, and a number if an earlier log has the same pid, as after `exec`.
    pub name: String,
    pub info: ampere_model::Process,
    /// The process' rank and the number of ranks, once known.
    pub rank: Option<(u32, u32)>,
    /// Whether the process has recorded a new rank since the last check, because it loaded MPI after its first event.
    pub has_new_rank: bool,
    pub regions: RegionHandles,
    pub communicators: Vec<Communicator>,
    /// The numbers of the communicators that were used, for the waits of ranks.
    pub comms: Comms,
    /// Whether the process has reported an event of communication.
    pub has_communicated: bool,
    program: Option<Program>,
    pub locations: Vec<LiveLocation>,
    /// The devices of GPU streams, by the streams' locations.
    stream_devices: BTreeMap<u32, Accelerator>,
    pub life: Life,
    pub losses: Losses,
    pub threads: Threads,
    /// The locations that later threads use, by the threads' IDs. A location's definition names only its first thread.
    later_threads: HashMap<u32, LocalLocation>,
    /// Whether locations are left out because there are too many.
    has_too_many_locations: bool,
    pub queues: QueueChecks,
    /// The process of the trace that this one plays in a replay.
    pub replayed: Option<ReplayedProcess>,
    /// For a process that is sampled: the rank that records its calls, and its group.
    pub sampled_rank: Option<(u32, String)>,
    functions: OwnFunctions,
}

/// Maps a process' region handles to regions of the run.
#[derive(Default)]
pub(crate) struct RegionHandles {
    /// Regions that the run does not know yet.
    new: Vec<Region>,
    /// Handles for the figures: see [`Regions::first_of_same_name`].
    pub figures: Handles,
    pub trace: Handles,
    /// The number of handles that were used without a definition.
    undefined: usize,
}

/// When a process ran and how it ended.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Life {
    pub state: State,
    /// When the measurement of the process ended, according to the process' own record.
    pub program_end: Option<Timestamp>,
    /// When the process was last seen alive.
    pub seen_alive: Option<Timestamp>,
    /// When the process ended, if it has not recorded its end.
    pub died_at: Option<Timestamp>,
    /// Whether the process became another program, which is not measured and still runs.
    pub runs_unmeasured: bool,
    /// Whether the process' log was locked when the process was found.
    holds_log: bool,
    /// Whether the process' descriptors are closed between reads.
    releases_descriptors: bool,
}

/// The losses of a process.
#[derive(Debug, Default)]
pub(crate) struct Losses {
    /// The losses that the process reports at its end; its locations have the other counts.
    pub records: RecordLosses,
    /// The reported number of locations that got no ring.
    pub unrecorded_locations: u64,
    /// How good the process' records of GPUs are, if it has any without Score-P.
    pub gpu_records: Option<GpuRecords>,
    /// Whether a ring could not be opened, so that not all of its records are read.
    pub is_read_in_part: bool,
    /// One line for each log or ring that could not be read.
    pub complaints: Vec<String>,
    complaints_left_out: bool,
}

/// What the kernel reports about a process' threads, if there are several.
#[derive(Debug, Default)]
pub(crate) struct Threads {
    pub seconds: Option<ThreadSeconds>,
    checks: Checks,
    /// The CPU time of all threads except the main one since sampling of the process stopped.
    unsampled: Option<Unsampled>,
    unsampled_checks: Checks,
}

#[derive(Debug)]
struct Unsampled {
    /// The thread that counts as the main thread.
    main: u32,
    /// The CPU time of the other threads that the last check found.
    others: f64,
    seconds: f64,
}

/// Checks for the GPUs that a process uses.
#[derive(Debug, Default)]
pub(crate) struct QueueChecks {
    checks: Checks,
    /// Whether the process has opened the driver.
    has_opened: bool,
    /// Whether the attributor does not know all GPUs of the process yet.
    are_new: bool,
}

/// The number of checks of one kind.
#[derive(Debug, Default)]
struct Checks(u64);

impl Checks {
    /// Counts one more check. Returns whether it is due: the first ten are, and later every tenth.
    fn count(&mut self) -> bool {
        const FIRST: u64 = 10;
        self.0 += 1;
        self.0 <= FIRST || self.0.is_multiple_of(FIRST)
    }
}

/// An upper bound on undefined handles that are accepted as regions. Events with further handles count as damaged and are left
/// out.
const UNDEFINED_MAX: usize = 4096;
/// An upper bound on the locations of a process.
const LOCATIONS_MAX: usize = 1 << 14;
/// An upper bound on the complaints about a process that are kept.
const COMPLAINTS_MAX: usize = 100;
/// The first of the location numbers that a trace uses for itself.
const FIRST_RESERVED_LOCATION: u32 = u32::MAX >> 1;

/// The reason for not reading a log.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OpenError {
    #[error(transparent)]
    Log(#[from] ampere_ring::Error),
    #[error("{} claims to be the log of process {pid}, but is not: it is not read", log.display())]
    OfAnother { log: PathBuf, pid: u32 },
}

impl OpenError {
    /// Whether the log cannot be opened because descriptors or memory are short, so that it may be opened later.
    pub fn is_a_limit(&self) -> bool {
        matches!(self, OpenError::Log(why) if why.is_a_limit())
    }
}

impl Process {
    /// Returns `None` while the log has no first entry yet.
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
            has_new_rank: false,
            regions: RegionHandles::default(),
            communicators: Vec::new(),
            comms: Comms::default(),
            has_communicated: false,
            program: None,
            locations: Vec::new(),
            stream_devices: BTreeMap::new(),
            life: Life::default(),
            losses: Losses::default(),
            threads: Threads::default(),
            later_threads: HashMap::new(),
            has_too_many_locations: false,
            queues: QueueChecks::default(),
            replayed: None,
            sampled_rank: None,
            functions: OwnFunctions::default(),
        };
        process.read_log(spool);
        process.replayed = replay.and_then(|replay| replay.process(process.info.pid)).cloned();
        // A sampled process is alive while its log is held: see `is_alive`.
        if process.has_pid_here() && !process.is_sampled() {
            process.handle = ProcessHandle::open(process.info.pid, process.info.start_time);
        }
        process.life.holds_log = process.log.is_held();
        let named = path.file_stem().and_then(|stem| stem.to_str()?.split('-').next()?.parse::<u32>().ok());
        match process.info.pid {
            0 => Ok(None),
            pid if named == Some(pid) => Ok(Some(process)),
            pid => Err(OpenError::OfAnother { log: path.to_owned(), pid }),
        }
    }

    fn complain(&mut self, line: String) {
        if self.losses.complaints.len() < COMPLAINTS_MAX {
            self.losses.complaints.push(line);
        } else if !std::mem::replace(&mut self.losses.complaints_left_out, true) {
            self.losses
                .complaints
                .push(format!("process {}: further complaints of this kind are left out", self.info.pid));
        }
    }

    /// Adds the regions that were defined since the last call to those of the run.
    pub fn define_new_regions(&mut self, all: &mut Regions) {
        for region in std::mem::take(&mut self.regions.new) {
            let reference = all.add(&region);
            self.add_region(region.handle.0, reference, all);
        }
    }

    /// Maps a handle of the process to a region of the run.
    pub fn add_region(&mut self, handle: u32, region: RegionRef, all: &Regions) {
        self.regions.trace.insert(handle, region);
        self.regions.figures.insert(handle, all.first_of_same_name(region));
    }

    /// Counts a handle that was used without a definition. Returns whether it may still be accepted as a region.
    pub fn count_undefined(&mut self) -> bool {
        self.regions.undefined += 1;
        self.regions.undefined <= UNDEFINED_MAX
    }

    /// Whether a handle without a definition is still looked up in the log.
    pub fn looks_for_definitions(&self) -> bool {
        self.regions.undefined < UNDEFINED_MAX
    }

    pub fn read_log(&mut self, spool: &SpoolDirectory) {
        let mut new = Vec::new();
        if let Err(error) = self.log.read_new(|definition| new.push(definition)) {
            self.complain(error.to_string());
        }
        for definition in new {
            match definition {
                Definition::Process(info) if self.info.pid == 0 => self.info = info,
                Definition::Process(_) => {}
                Definition::Rank { rank, size } => {
                    self.has_new_rank |= self.rank.is_some();
                    self.rank = Some((rank, size));
                }
                Definition::Region(region) => self.regions.new.push(region),
                Definition::Location(location) => {
                    // A GPU's stream has the thread that made it.
                    if location.kind == LocationKind::CpuThread {
                        self.later_threads.remove(&location.thread);
                    }
                    self.open_location(location, spool);
                }
                Definition::Finished { left_out } => {
                    self.life.state = State::Finished;
                    self.losses.records.left_out_definitions = left_out;
                }
                Definition::Unrecorded { locations, calls } => {
                    (self.losses.unrecorded_locations, self.losses.records.unrecorded_calls) =
                        (locations, calls)
                }
                Definition::Thread { location: id, thread } => {
                    self.later_threads.insert(thread, id);
                }
                Definition::StreamDevice(device) => self.take_device_of_stream(device),
                Definition::GpuRecords(records) => {
                    self.losses.records.unrecorded_kernels = records.not_recorded;
                    self.losses.gpu_records = Some(records);
                }
                Definition::Communicator(communicator) => self.communicators.push(communicator),
                Definition::Program(program) => self.program = Some(program),
                Definition::Device(_) => {}
            }
        }
    }

    fn take_device_of_stream(&mut self, device: StreamDevice) {
        if self.stream_devices.len() < LOCATIONS_MAX {
            let text = |text: String| Some(text).filter(|text| !text.is_empty());
            let accelerator = Accelerator {
                number: None,
                pci: text(device.pci),
                uuid: text(device.uuid),
                model: device.model,
            };
            self.stream_devices.insert(device.location.0, accelerator);
        }
    }

    fn open_location(&mut self, definition: Location, spool: &SpoolDirectory) {
        let id = definition.id.0;
        // The name comes from another process: only the file that belongs to this location, next to the log, is opened.
        let expected = format!("{}.{id}.ring", self.name);
        let is_too_many = id >= FIRST_RESERVED_LOCATION || self.locations.len() >= LOCATIONS_MAX;
        if is_too_many && std::mem::replace(&mut self.has_too_many_locations, true) {
            return;
        }
        let wrong = if definition.ring != expected {
            Some(format!("{:?} is not a valid name for ring {expected}", definition.ring))
        } else if is_too_many {
            Some(format!(
                "{expected} and later rings are not read: a process can have {LOCATIONS_MAX} locations"
            ))
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

    /// Returns the location where a thread's calls are recorded. If the kernel has given the thread's ID to several threads, the
    /// location of the last one is returned.
    pub fn location_of(&self, thread: u32) -> Option<&LiveLocation> {
        let later = self.later_threads.get(&thread);
        self.locations.iter().rfind(|location| {
            let Location { id, kind, thread: first, .. } = &location.definition;
            *kind == LocationKind::CpuThread && later.map_or(*first == thread, |later| later == id)
        })
    }

    /// Asks the kernel for the names and the CPU time of the process' threads, if there are several.
    pub fn look_at_threads(&mut self) {
        let is_thread = |location: &LiveLocation| location.definition.kind == LocationKind::CpuThread;
        if !self.has_pid_here() || self.locations.iter().filter(|location| is_thread(location)).count() < 2 {
            return;
        }
        let pid = self.info.pid;
        if !self.threads.checks.count() {
            return;
        }
        let Some((whole, _, main)) = self.whole_and_main_thread() else { return };
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
            // A thread has its creator's name until it is given one of its own.
            let Some(thread) = Stat::of_thread(pid, definition.thread) else { continue };
            if thread.name != main.name && !*is_named {
                // The location of a sampled thread may have been named after it.
                if !definition.name.starts_with(&thread.name) {
                    definition.name = format!("{} ({})", thread.name, definition.name);
                }
                *is_named = true;
            }
        }
    }

    /// Checks whether the process records its own functions: whether its main thread stays in one or, if no stacks are sampled,
    /// is in any frame. Returns the new state if it has changed.
    pub fn find_recording(&mut self, timeline: &LiveTimeline, has_samples: bool) -> Option<bool> {
        if self.is_sampled() {
            return None;
        }
        let attributor = &timeline.pipeline.attributor;
        let main = self.locations.iter().find(|location| location.definition.id.0 == 0);
        let main = main.and_then(|main| main.index).filter(|_| self.life.state == State::Running);
        let (call, long) = match has_samples {
            true => (
                main.and_then(|main| attributor.open_function(main)),
                timeline.clock.ticks(FUNCTION_TIME_MIN),
            ),
            false => (main.and_then(|main| attributor.engine.current(main)).map(|_| (NodeIndex::ROOT, 0)), 0),
        };
        self.functions.update(call, timeline.done_until, long)
    }

    /// Reads the CPU time of the other threads while the process is not sampled because its main thread records its functions.
    pub fn look_at_unsampled_threads(&mut self) {
        let is_unsampled = self.functions.is_recorded() && self.replayed.is_none();
        if !is_unsampled || !self.has_pid_here() || !self.threads.unsampled_checks.count() {
            return;
        }
        if let Some((whole, thread, main)) = self.whole_and_main_thread() {
            let others = whole.cpu_ns.saturating_sub(main.cpu_ns) as f64 * 1e-9;
            let begin = Unsampled { main: thread, others, seconds: 0.0 };
            let unsampled = self.threads.unsampled.get_or_insert(begin);
            // If another thread has become the main thread, the CPU time of the others includes that of the previous one.
            if unsampled.main == thread {
                unsampled.seconds += (others - unsampled.others).max(0.0);
            }
            (unsampled.main, unsampled.others) = (thread, others);
        }
    }

    /// Returns the figures of the whole process and of the thread that counts as its main thread while the process exists.
    fn whole_and_main_thread(&self) -> Option<(Stat, u32, Stat)> {
        let pid = self.info.pid;
        let whole = Stat::of(pid).filter(|stat| stat.started == self.info.start_time)?;
        // The main thread is the one whose calls are on the first location. When it has ended, a later thread may continue this
        // location.
        let later = self.later_threads.iter().filter(|(_, id)| id.0 == 0).map(|(thread, _)| *thread);
        let first = self.locations.iter().map(|location| &location.definition).filter(|of| of.id.0 == 0);
        let known = later.chain(first.map(|of| of.thread)).filter(|thread| *thread > 0);
        let (thread, main) =
            known.chain([pid]).find_map(|thread| Some((thread, Stat::of_thread(pid, thread)?)))?;
        Some((whole, thread, main))
    }

    /// Returns the CPU time of all threads except the main one while the process was not sampled.
    pub fn unsampled_seconds(&self) -> f64 {
        self.threads.unsampled.as_ref().map_or(0.0, |unsampled| unsampled.seconds)
    }

    /// Returns pid and start time, which are the same in all logs of a process.
    pub fn pid_and_start(&self) -> String {
        format!("{} {}", self.info.pid, self.info.start_time)
    }

    /// Counts a check of which GPUs the process uses. Returns whether to make the check. It is always made until the process
    /// opens the driver, because the process' first queue may end soon after that.
    pub fn count_queue_check(&mut self) -> bool {
        self.has_pid_here() && (self.queues.checks.count() || !self.queues.has_opened)
    }

    /// Counts the first check, unless it was counted before. Returns whether to make it.
    pub fn count_first_queue_check(&mut self) -> bool {
        self.queues.checks.0 == 0 && self.count_queue_check()
    }

    /// Adds the GPUs that this process uses to `known`, which has the GPUs of each process by pid and start time. Returns whether
    /// the known GPUs of this process have changed.
    pub fn find_gpus(&mut self, used: UsedGpus, known: &mut BTreeMap<String, BTreeSet<String>>) -> bool {
        let process = self.pid_and_start();
        let before = known.get(&process).map(BTreeSet::len);
        self.queues.has_opened |= before > Some(0) || used != UsedGpus::None;
        match used {
            UsedGpus::At(gpus) => known.entry(process.clone()).or_default().extend(gpus),
            UsedGpus::Unknown if before == Some(0) => _ = known.remove(&process),
            // A process that has ended before it was checked may have opened the driver.
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

    /// Returns the GPUs of the process among those known. The start time of a process that had ended when its log was made is
    /// unknown.
    pub fn gpus_among<'a>(
        &self,
        known: &'a BTreeMap<String, BTreeSet<String>>,
    ) -> Option<&'a BTreeSet<String>> {
        let pid = format!("{} ", self.info.pid);
        let of_pid = || known.iter().rfind(|(process, _)| process.starts_with(&pid)).map(|(_, gpus)| gpus);
        known.get(&self.pid_and_start()).or_else(|| of_pid().filter(|_| self.info.start_time == 0))
    }

    /// Sets the GPUs on which the driver has had queues of the process, if they are known.
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

    /// Sets the CPU time from one stack sample to the next, if the process is sampled.
    pub fn set_stack_period(&mut self, period: Duration) {
        let of_period =
            |entry: &&mut String| entry.strip_prefix(STACK_PERIOD).is_some_and(|rest| rest.starts_with('='));
        if let Some(entry) = self.info.environment.iter_mut().find(of_period) {
            *entry = format!("{STACK_PERIOD}={}", period.as_nanos());
        }
    }

    /// Whether the GPUs have changed since the last call.
    pub fn take_new_queues(&mut self) -> bool {
        std::mem::take(&mut self.queues.are_new)
    }

    /// Returns the start of the names of a location's files.
    pub fn stream_of(&self, location: &Location) -> String {
        format!("{}.{}", self.name, location.id.0)
    }

    /// Closes the descriptors: from now on, the process is checked by its pid and its log's path.
    pub fn release_descriptors(&mut self) {
        self.handle = None;
        self.log.release_descriptor();
        self.life.releases_descriptors = true;
    }

    /// Closes the files of a process that has ended, because a run may have thousands of processes.
    pub fn close_files(&mut self) {
        self.handle = None;
        self.log.close();
    }

    /// Returns the location of the trace that one of the process' locations plays in a replay.
    pub fn replayed_location(&self, id: LocalLocation) -> Option<&ReplayedLocation> {
        self.replayed.as_ref()?.location(id)
    }

    /// Whether the frames of one of the process' locations are samples.
    pub fn has_samples_on(&self, id: LocalLocation) -> bool {
        let played = self.replayed_location(id).map(|of| of.samples);
        self.is_sampled() || played.is_some_and(|samples| samples != ReplayedSamples::None)
    }

    /// Returns the OTF2 location group of a location: the process, or the context of an accelerator.
    pub fn group_of(&self, location: &Location) -> String {
        if let Some(replayed) = self.replayed_location(location.id) {
            return replayed.group.clone();
        }
        match location.kind {
            LocationKind::Gpu => accelerator_context(&location.name),
            _ => self.group(),
        }
    }

    /// Returns the process' group by Score-P's names: "MPI Rank 3" in an MPI job, "Process" elsewhere.
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

    /// Returns the evidence about the devices that a location uses. `number` is the process' number in the run.
    pub fn evidence(&self, location: usize, number: u64) -> Evidence {
        let location = &self.locations[location].definition;
        match &self.replayed {
            Some(replayed) => {
                let of = replayed.location(location.id);
                let is_of_process = of.is_none_or(|of| of.is_of_process);
                Evidence {
                    process: is_of_process.then_some(number),
                    owner: if is_of_process { replayed.owner.clone() } else { String::new() },
                    environment: self.environment().into(),
                    accelerator: of.map_or_else(Default::default, |of| of.accelerator.clone()),
                }
            }
            None => Evidence {
                accelerator: self.stream_devices.get(&location.id.0).cloned().unwrap_or_default(),
                ..self.evidence_of_thread(number)
            },
        }
    }

    /// Returns the evidence about a thread without a location of its own.
    pub fn evidence_of_thread(&self, number: u64) -> Evidence {
        Evidence {
            process: Some(number),
            owner: String::new(),
            environment: self.environment().into(),
            accelerator: Accelerator::default(),
        }
    }

    pub fn as_traced(&self) -> TracedProcess<'_> {
        let locations = self.locations.iter().enumerate().map(|(at, location)| TracedLocation {
            definition: &location.definition,
            number: location.index,
            group: self.group_of(&location.definition),
            evidence: self.evidence(at, 0),
            samples: location.samples,
            cpu_time_of: location.cpu_time_of,
            spool: location.reader.spool.as_ref(),
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

    pub fn environment(&self) -> &[String] {
        &self.info.environment
    }

    pub fn node_of(&self, location: &Location) -> String {
        let replayed = self.replayed_location(location.id);
        replayed.map_or_else(|| self.info.hostname.clone(), |replayed| replayed.node.clone())
    }

    /// Returns the process' rank, if it has one. In a replay, the number of a process need not be a rank.
    pub fn rank_number(&self) -> Option<u32> {
        match &self.replayed {
            Some(replayed) => replayed.rank,
            None => self.rank.map(|(rank, _)| rank).or(self.sampled_rank.as_ref().map(|(rank, _)| *rank)),
        }
    }

    /// Whether the process has ended properly, and no records of it are lost.
    pub fn is_whole(&self) -> bool {
        let has_ended = self.life.state == State::Finished
            || self.life.state == State::Replaced && !self.may_have_lost_calls()
            || self.lost_its_sampler();
        has_ended
            && !self.losses.is_read_in_part
            && !self.is_damaged()
            && self.losses.unrecorded_locations == 0
            && self.losses.records.unrecorded_calls == 0
            && self.losses.records.unrecorded_kernels == 0
    }

    /// Whether the collector that sampled the process was killed. One note covers all such processes: `note_killed_sampler`.
    pub fn lost_its_sampler(&self) -> bool {
        self.is_sampled() && matches!(self.life.state, State::Died | State::Replaced)
    }

    /// Whether coalesced calls may have been lost with the process' memory when it became another program.
    fn may_have_lost_calls(&self) -> bool {
        self.locations.iter().any(|location| location.reader.decoder.coalesced_calls > 0)
    }

    /// Returns the note about calls that were lost when the process became another program.
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

    /// Whether some of the process' records could not be read.
    pub fn is_damaged(&self) -> bool {
        self.locations.iter().any(|location| location.given_up)
    }

    /// Returns the losses of the process' events.
    pub fn record_losses(&self) -> RecordLosses {
        let mut sum = self.losses.records;
        self.locations.iter().for_each(|location| sum.add(&location.losses()));
        sum
    }

    /// Returns the note about calls and locations that were not recorded.
    pub fn note_of_unrecorded(&self) -> Option<String> {
        let (locations, calls) = (self.losses.unrecorded_locations, self.losses.records.unrecorded_calls);
        let has_calls = calls > 0;
        let calls = match calls {
            0 if self.life.state == State::Finished => "no calls".to_owned(),
            0 => "the number of calls is unknown".to_owned(),
            calls => format!("{calls} calls"),
        };
        let group = self.group();
        match locations {
            0 if !has_calls => None,
            0 => Some(format!("{group}: {calls} could not be recorded")),
            1 => {
                Some(format!("{group}: 1 location could not be recorded, because memory was short: {calls}"))
            }
            many => Some(format!(
                "{group}: {many} locations could not be recorded, because memory was short: {calls}"
            )),
        }
    }

    /// Returns how exact the times of the process' kernels are, if they are from the GPUs' own clocks.
    pub fn gpu_clocks(&self) -> Option<GpuClocks> {
        let GpuRecords { clock_error, clock_drift, .. } = self.losses.gpu_records?;
        let drift_ratio = (clock_drift > 0).then_some(clock_drift as f64 / 1e9);
        (clock_error > 0).then_some(GpuClocks { error_seconds: clock_error as f64 / 1e9, drift_ratio })
    }

    /// Returns the note about kernels that were not recorded, or whose times are inexact.
    pub fn note_of_gpu_records(&self) -> Option<String> {
        let (group, times) = (self.group(), self.gpu_clocks());
        match self.losses.gpu_records?.not_recorded {
            0 => times
                .filter(GpuClocks::is_inexact)
                .map(|times| format!("{group}: times of its GPUs are {}", times.text())),
            1 => Some(format!("{group}: 1 kernel or copy on a GPU could not be recorded")),
            many => Some(format!("{group}: {many} kernels and copies on GPUs could not be recorded")),
        }
    }

    /// Returns the number of this program among those that the process ran, one after the other.
    pub fn program_number(&self) -> u32 {
        let number = self.name.split_once('-').map(|(_, number)| number.trim_start_matches('s'));
        number.and_then(|number| number.parse().ok()).unwrap_or(1)
    }

    /// Whether both are the same process of the kernel.
    pub fn is_same_process(&self, other: &Process) -> bool {
        self.identity() == other.identity()
    }

    /// Returns what identifies a process of the kernel.
    pub fn identity(&self) -> Identity {
        Identity(self.info.pid_namespace, self.info.pid, self.info.start_time)
    }

    /// Whether the log and the rings contain samples of the process' stacks, written by the collector.
    pub fn is_sampled(&self) -> bool {
        self.info.host == SAMPLED_HOST
    }

    /// Whether there are samples of the process' stacks, and not only its CPU time.
    pub fn has_samples(&self) -> bool {
        self.is_sampled()
            && self.locations.iter().any(|location| location.definition.kind == LocationKind::CpuThread)
    }

    /// Whether the process has become the program of `other`.
    pub fn is_before(&self, other: &Process) -> bool {
        self.is_same_process(other)
            && self.is_sampled() == other.is_sampled()
            && self.program_number() < other.program_number()
    }

    /// Whether the pid is valid in this collector's pid namespace.
    pub fn has_pid_here(&self) -> bool {
        if self.info.host == REPLAYED_HOST {
            return false;
        }
        // A process stays in its pid namespace.
        static OURS: OnceLock<u64> = OnceLock::new();
        let (its, ours) = (self.info.pid_namespace, *OURS.get_or_init(ampere_ring::process::pid_namespace));
        its == 0 || ours == 0 || its == ours
    }

    /// Whether the process is alive as another program: its log is no longer locked. The lock of a dying process is released,
    /// too, but then it no longer has a program.
    pub fn is_another_program(&self) -> bool {
        let has_program = || std::fs::read_link(format!("/proc/{}/exe", self.info.pid)).is_ok();
        self.life.holds_log
            && !self.is_sampled()
            && (self.handle.is_some() || self.life.releases_descriptors && self.has_pid_here())
            && !self.log.is_held()
            && has_program()
            && self.is_alive()
    }

    /// Whether the kernel is ending the process.
    pub fn is_ending(&self) -> bool {
        self.has_pid_here() && ampere_ring::process::is_ending(self.info.pid)
    }

    pub fn program_and_pid(&self) -> String {
        let program = Path::new(&self.info.executable).file_name().unwrap_or_default().to_string_lossy();
        format!("{} (process {})", printable(&program), self.info.pid)
    }

    /// Whether the process is alive. If it is in another pid namespace, as in a container, only the lock on its log shows this,
    /// because the lock is held while the program runs.
    pub fn is_alive(&self) -> bool {
        match &self.handle {
            // The process' samples are written until the sampler knows that it has ended.
            _ if self.is_sampled() => self.log.is_held(),
            Some(handle) => handle.is_alive(),
            None if self.has_pid_here() => is_alive(self.info.pid, self.info.start_time),
            None => self.log.is_held(),
        }
    }
}

/// Returns the context of a stream: `HIP[1:0]` belongs to "HIP Context 1".
fn accelerator_context(stream: &str) -> String {
    let split = stream.split_once('[').and_then(|(kind, rest)| Some((kind, rest.split([':', ']']).next()?)));
    split
        .map_or_else(|| "Accelerator Context".to_owned(), |(kind, device)| format!("{kind} Context {device}"))
}
