//! This process as a member of its session: it joins, and writes its definitions log and its rings.

use crate::error::Error;
use crate::guard::guarded;
use crate::inert::{become_inert, become_inert_silently, is_inert, report, report_in_this_process};
use crate::location_data::LocationData;
use crate::ring_size::{OtherProcesses, RingSizes};
use crate::{calling_contexts, communication, events, inert, known_locations, memory, start, strings};
use ampere_model::filter::ENV_FILTER;
use ampere_model::launcher::recorded_variables;
use ampere_model::{
    Clocks, Communicator, Definition, ENV_CUDA_INJECTION, GpuRecords, LOCAL_RANKS, LocalLocation,
    LocationKind, Process, Program, Region, RegionHandle, StreamDevice, VISIBLE_DEVICES,
};
use ampere_ring::clock;
use ampere_ring::session::ENV_SESSION_BOOT;
use ampere_ring::session_name::{is_of_this_process, session_name};
use ampere_ring::start::{Purpose, seconds_from};
use ampere_ring::{
    EventWriter, Headroom, LogReader, LogWriter, OverloadPolicy, RingProducer, Session, SessionProbes,
};
use scorep_abi::{AnyHandle, Callbacks, Location, handle_type, location_type};
use std::ffi::{c_char, c_int};
use std::mem::{offset_of, size_of};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock};
use std::time::Duration;

/// The default value of `AMPERE_FINALIZE_TIMEOUT`.
const FINALIZE_TIMEOUT: Duration = Duration::from_secs(60);
/// Longer environment variables are not recorded, because the size of a definition is limited. No list of devices is that long.
const VARIABLE_BYTES_MAX: usize = 4096;

/// The state of this process in its session. It is made in `init` and never freed: events may come as long as the process lives.
/// Settings are read from the environment once: reading it while a thread of the program changes it could crash the program.
pub struct State {
    /// The session of the run on this node.
    pub session: Session,
    /// The definitions log. The functions that write definitions lock it; the event path never does.
    log: Mutex<LogWriter>,
    callbacks: OnceLock<Callbacks>,
    pid: u32,
    /// The start of this process's file names.
    pub name: String,
    /// The time when this process joined.
    joined: Clocks,
    overload_policy: OverloadPolicy,
    ring_sizes: RingSizes,
    /// The maximum time for which the last process of a node waits for the collector to finish the trace.
    pub finalize_timeout: Duration,
    refused_locations: AtomicU64,
}

static STATE: OnceLock<State> = OnceLock::new();

const PROBES: SessionProbes = SessionProbes {
    ticks_per_second: |time| STATE.get().map_or(0, |state| clock::ticks_per_second(time, &state.joined)),
    collector_is_alive: || {
        // While it writes the results, a collector reads no ring.
        let reads = |session: &Session| session.collector_seems_alive() && !session.is_finishing();
        !is_inert() && STATE.get().is_some_and(|state| reads(&state.session))
    },
    collector_rounds: || STATE.get().map_or(0, |state| state.session.beats()),
};

impl State {
    /// Returns the state of this process. A forked child has none: it shares the memory with its parent.
    pub fn of_this_process() -> Option<&'static State> {
        STATE.get().filter(|state| state.pid == std::process::id())
    }

    /// Returns the definitions log, locked.
    pub fn log(&self) -> MutexGuard<'_, LogWriter> {
        self.log.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Writes a definition and wakes the collector to read it.
    pub fn define(&self, definition: &Definition) {
        self.log().append(definition);
        self.session.announce();
    }

    /// Records that a location gets no ring, and writes that to the log. From now on its calls are only counted; their number is
    /// written at the end.
    fn refuse_location(&self) {
        self.refused_locations.fetch_add(1, Ordering::Relaxed);
        self.define_unrecorded();
    }

    /// Writes how many locations and calls are not recorded, if there are any.
    pub fn define_unrecorded(&self) {
        let locations = self.refused_locations.load(Ordering::Relaxed);
        let calls = events::unrecorded_calls();
        if locations + calls > 0 {
            self.define(&Definition::Unrecorded { locations, calls });
        }
    }
}

/// Joins the session, and starts the collector if there is none.
pub fn begin() {
    inert::prepare_messages();
    if ampere_model::is_switched_off() {
        return become_inert_silently();
    }
    communication::is_wanted(); // reads the setting
    match join() {
        Ok(state) => {
            let _ = STATE.set(state);
            // SAFETY: the handler is an async-signal-safe function without arguments.
            unsafe { libc::pthread_atfork(None, None, Some(forked)) };
        }
        Err(Error::RunHasEnded) => become_inert_silently(),
        Err(error) if error.is_of_this_process() => {
            become_inert_silently();
            report_in_this_process(&error.to_string());
        }
        Err(error) => become_inert(&error.to_string()),
    }
}

/// Stops measuring a process that has joined. The results will mention it.
pub fn give_up(why: &str) {
    become_inert(why);
    if let Some(state) = STATE.get() {
        state.session.count_unmeasured();
    }
}

/// Called in a forked child, which shares our rings and must not write into them.
extern "C" fn forked() {
    become_inert_silently();
}

/// Whether the results of this process's run have already been written. This happens if the run's command ended while this
/// process, or the one that started it, was still running.
fn run_has_ended() -> bool {
    let output = std::env::var_os("AMPERE_OUTPUT").filter(|path| !path.is_empty());
    let Some(output) = output.map(PathBuf::from) else { return false };
    output.join("summary.json").exists() && !output.join("collector.json").exists()
}

fn join() -> Result<State, Error> {
    let name = session_name();
    // On the node of `ampere run` the session must exist.
    let is_node_of_run =
        std::env::var(ENV_SESSION_BOOT).is_ok_and(|boot| boot == ampere_ring::process::boot_text());
    if let Some(session) = Session::missing(&name).filter(|_| is_node_of_run) {
        return Err(if run_has_ended() { Error::RunHasEnded } else { Error::SessionOutOfReach(session) });
    }
    let session = Session::open_or_create(&name)?;
    if let Err(error) = start::ensure_collector(&session, Purpose::Everything) {
        // A process that starts while the results are being written belongs to another run of the job.
        if !session.is_finishing() {
            session.count_unmeasured();
        }
        if is_of_this_process(&name) {
            session.remove(); // no other process would remove it
        }
        return Err(error);
    }
    report_other_output(&session);
    let joined = clock::read_clocks();
    let variable = |name: &str| std::env::var(name).ok();
    let (ring_sizes, complaint) = RingSizes::from_environment(variable, || {
        let (count, ring_bytes) = session.others();
        OtherProcesses { count, ring_bytes }
    });
    let OwnLog { log, name, is_another_program } =
        log_of_this_process(&session, joined).inspect_err(|_| session.count_unmeasured())?;
    if is_another_program {
        session.announce(); // it has joined already
    } else {
        session.join();
    }
    complaint.iter().for_each(|line| report(line));
    Ok(State {
        session,
        name,
        log: Mutex::new(log),
        callbacks: OnceLock::new(),
        pid: std::process::id(),
        joined,
        overload_policy: overload_policy(variable("AMPERE_EVENTS").as_deref()).unwrap_or_else(|why| {
            report(&why.to_string());
            OverloadPolicy::CoalesceUnderPressure
        }),
        ring_sizes,
        finalize_timeout: seconds_from("AMPERE_FINALIZE_TIMEOUT").unwrap_or(FINALIZE_TIMEOUT),
        refused_locations: AtomicU64::new(0),
    })
}

/// Reports the run's output directory if it is not the one that this process was given: that directory belongs to another run, or
/// this process has joined an existing run. Programs that are started in one job step without a launcher, such as by hand in
/// `srun --pty bash`, form one run, whose results go to the first program's output directory.
fn report_other_output(session: &Session) {
    let wanted = std::env::var_os("AMPERE_OUTPUT").filter(|path| !path.is_empty());
    let Some((wanted, output)) = wanted.map(PathBuf::from).zip(session.output()) else { return };
    let is_output = |path: &Path| names_output(path, &output);
    if !is_output(&wanted) && !std::fs::canonicalize(&wanted).is_ok_and(|path| is_output(&path)) {
        report(&format!(
            "the results go to {} and not to {}: that directory belongs to another run, or this process joined a run whose output directory is the first one",
            output.display(),
            wanted.display()
        ));
    }
}

/// Whether a path names the run's output directory. The names are compared, because working directories may differ, and each node
/// except the first has its directory inside the first node's.
fn names_output(path: &Path, output: &Path) -> bool {
    path.file_name().is_none_or(|name| output.iter().any(|part| part == name))
}

/// A new definitions log of this process.
pub struct OwnLog {
    /// The log, which has the definition of this process as its first entry.
    pub log: LogWriter,
    /// The file's name without the extension.
    name: String,
    /// Whether this process was in the session before, with another program (`exec`).
    is_another_program: bool,
}

/// The largest number of logs with one pid: programs after `exec`, and processes of several pid namespaces.
const SAME_PID_MAX: u32 = 1000;

/// Makes the definitions log of this process in the session.
pub fn log_of_this_process(session: &Session, joined: Clocks) -> Result<OwnLog, Error> {
    let pid = std::process::id();
    let start_time = ampere_ring::process::start_time(pid).unwrap_or(0);
    let mut name = pid.to_string();
    let mut is_another_program = false;
    let mut number = 1;
    let mut log = loop {
        let path = session.directory().join(format!("{name}.defs"));
        let is_there = |source: &std::io::Error| source.kind() == std::io::ErrorKind::AlreadyExists;
        match LogWriter::create(&path) {
            Ok(log) => break log,
            // A log with our pid exists. It was written by this process before `exec`, by a process that has ended, or by one in
            // another pid namespace.
            Err(ampere_ring::Error::Io { source, .. }) if number < SAME_PID_MAX && is_there(&source) => {
                is_another_program |= is_log_of_earlier_program(&path, start_time);
            }
            Err(error) => return Err(error.into()),
        }
        number += 1;
        name = format!("{pid}-{number}");
    };
    let devices_and_ranks = VISIBLE_DEVICES.into_iter().chain(LOCAL_RANKS);
    let recorded = devices_and_ranks.chain(recorded_variables()).chain([ENV_FILTER, ENV_CUDA_INJECTION]);
    log.append(&Definition::Process(Process {
        pid,
        start_time,
        hostname: ampere_ring::process::node_name(),
        executable: std::env::current_exe().map_or_else(|_| String::new(), |p| p.display().to_string()),
        host: host_name().to_owned(),
        clocks: joined,
        environment: recorded
            .filter_map(|name| std::env::var(name).ok().map(|value| format!("{name}={value}")))
            .filter(|entry| entry.len() <= VARIABLE_BYTES_MAX)
            .collect(),
        pid_namespace: ampere_ring::process::pid_namespace(),
    }));
    Ok(OwnLog { log, name, is_another_program })
}

/// Whether this process wrote the log before `exec`.
fn is_log_of_earlier_program(path: &Path, start_time: u64) -> bool {
    let Ok(Some(mut log)) = LogReader::open(path) else { return false };
    let mut is_own = false;
    let read = log.read_new(|definition| {
        if let Definition::Process(process) = definition {
            is_own = process.start_time == start_time
                && process.pid_namespace == ampere_ring::process::pid_namespace();
        }
    });
    read.is_ok() && is_own
}

/// Whether the embedded host calls us, and not Score-P.
static IS_EMBEDDED: AtomicBool = AtomicBool::new(false);

/// An addition to Score-P's interface: the embedded host calls this before every other function.
#[unsafe(no_mangle)]
pub extern "C" fn ampere_is_called_by_the_embedded_host() {
    IS_EMBEDDED.store(true, Ordering::Relaxed);
}

/// Returns the name of the host that calls us.
fn host_name() -> &'static str {
    if IS_EMBEDDED.load(Ordering::Relaxed) { "embedded" } else { "score-p" }
}

/// Stores Score-P's functions.
///
/// # Safety
/// CALLBACK TABLE.
pub unsafe fn set_callbacks(callbacks: *const Callbacks, size: usize) {
    let Some(state) = STATE.get() else { return };
    let needed = offset_of!(Callbacks, region_handle_get_paradigm_type) + size_of::<usize>();
    if callbacks.is_null() || size < needed {
        return give_up(&format!(
            "this Score-P hands over {size} bytes of callbacks and {needed} are needed; energy is not measured: \
             use Score-P 7 or later"
        ));
    }
    let mut table = Callbacks::EMPTY;
    // SAFETY: CALLBACK TABLE; at most our table's size is written.
    unsafe {
        std::ptr::copy_nonoverlapping(
            callbacks.cast::<u8>(),
            (&raw mut table).cast::<u8>(),
            size.min(size_of::<Callbacks>()),
        );
    }
    let complete = table.location_get_id.is_some()
        && table.location_get_type.is_some()
        && table.location_get_name.is_some()
        && table.location_set_data.is_some()
        && table.location_get_data.is_some()
        && table.region_handle_get_name.is_some();
    if !complete {
        return give_up(
            "this Score-P lacks callbacks that ampere needs; energy is not measured: use Score-P 7 or later",
        );
    }
    events::set_callbacks(&table);
    calling_contexts::set_callbacks(&table);
    let _ = state.callbacks.set(table);
}

/// Calls a function of Score-P that returns a string; the result is empty if Score-P lacks the function.
macro_rules! text {
    ($callbacks:expr, $function:ident, $handle:expr) => {
        // SAFETY: OWN HANDLES or LOCATION LIFE; KEPT STRINGS.
        $callbacks.$function.map_or(&[][..], |f| unsafe { strings::bytes(f($handle)) })
    };
}

/// Calls a function of Score-P that returns a number; the result is 0 if Score-P lacks the function.
macro_rules! number {
    ($callbacks:expr, $function:ident, $handle:expr) => {
        // SAFETY: OWN HANDLES or LOCATION LIFE.
        $callbacks.$function.map_or(0, |f| unsafe { f($handle) })
    };
}

/// Writes the definition of a new region into the log. Score-P may call this from any thread, before `init_mpp`, with its locks
/// held, and with sampling also in a signal handler, which may have interrupted `malloc`. So nothing is allocated here, nor
/// anywhere else under Score-P's lock or the log's. (Score-P's handler interrupts neither us nor Score-P.)
pub fn new_definition(handle: AnyHandle, kind: c_int) {
    if kind != handle_type::REGION {
        return;
    }
    let Some((state, callbacks)) = STATE.get().and_then(|s| s.callbacks.get().map(|c| (s, c))) else {
        return;
    };
    state.log().append_region(&Region {
        handle: RegionHandle(handle),
        name: text!(callbacks, region_handle_get_name, handle),
        canonical_name: text!(callbacks, region_handle_get_canonical_name, handle),
        source_file: text!(callbacks, region_handle_get_file_name, handle),
        begin_line: number!(callbacks, region_handle_get_begin_line, handle),
        end_line: number!(callbacks, region_handle_get_end_line, handle),
        region_type: number!(callbacks, region_handle_get_type, handle) as u8,
        paradigm: number!(callbacks, region_handle_get_paradigm_type, handle) as u8,
    });
    state.session.announce();
}

/// Writes the name and arguments of the measured program into the log.
pub fn new_program(name: AnyHandle, arguments: &[AnyHandle]) {
    let Some((state, callbacks)) = STATE.get().and_then(|s| s.callbacks.get().map(|c| (s, c))) else {
        return;
    };
    if callbacks.string_handle_get.is_none() {
        return;
    }
    let text = |handle| String::from_utf8_lossy(text!(callbacks, string_handle_get, handle)).into_owned();
    let arguments = arguments.iter().map(|argument| text(*argument)).collect();
    state.define(&Definition::Program(Program { name: text(name), arguments }));
}

/// An addition to Score-P's interface: the embedded host asks whether the stacks of the job's processes are sampled.
#[unsafe(no_mangle)]
pub extern "C" fn ampere_stacks_are_sampled() -> bool {
    State::of_this_process().is_some_and(|state| state.session.stacks_are_sampled())
}

/// Writes a communicator's definition into the log.
pub fn new_communicator(communicator: Communicator) {
    if let Some(state) = State::of_this_process() {
        state.define(&Definition::Communicator(communicator));
    }
}

/// An addition to Score-P's interface: the embedded host names the device of a GPU stream before it creates the location with
/// this id.
///
/// # Safety
/// The texts are NULL or C strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ampere_define_stream_device(
    location: u32,
    pci: *const c_char,
    uuid: *const c_char,
    model: *const c_char,
) {
    guarded((), || {
        // SAFETY: by this function's contract.
        let text = |text| String::from_utf8_lossy(unsafe { strings::bytes(text) }).into_owned();
        if let Some(state) = State::of_this_process() {
            let [pci, uuid, model] = [pci, uuid, model].map(text);
            let location = LocalLocation(location);
            state.define(&Definition::StreamDevice(StreamDevice { location, pci, uuid, model }));
        }
    });
}

/// An addition to Score-P's interface: the embedded host reports how many GPU commands could not be recorded so far, and the
/// errors of GPU clocks.
#[unsafe(no_mangle)]
pub extern "C" fn ampere_report_gpu_records(not_recorded: u64, clock_error: u64, clock_drift: u64) {
    guarded((), || {
        if let Some(state) = State::of_this_process() {
            state.define(&Definition::GpuRecords(GpuRecords { not_recorded, clock_error, clock_drift }));
        }
    });
}

/// Makes the ring of a new location and attaches its writer to it.
pub fn new_location(location: *const Location) {
    let Some((state, callbacks)) = STATE.get().and_then(|s| s.callbacks.get().map(|c| (s, c))) else {
        return;
    };
    let id = number!(callbacks, location_get_id, location);
    let kind = match number!(callbacks, location_get_type, location) {
        location_type::CPU_THREAD => LocationKind::CpuThread,
        location_type::GPU => LocationKind::Gpu,
        _ => return, // locations of metrics have no enters and leaves
    };
    let name = text!(callbacks, location_get_name, location);
    if !memory::is_left(name.len()) {
        return state.refuse_location();
    }
    let ring = format!("{}.{id}.ring", state.name);
    let bytes = state.ring_sizes.next(id, kind == LocationKind::Gpu);
    let producer = match make_ring(&state.session, &ring, bytes, id) {
        Ok(producer) => producer,
        // The other locations continue: if they stopped, their open frames would be charged for all energy from now on.
        Err(why) => {
            static IS_REPORTED: AtomicBool = AtomicBool::new(false);
            if !IS_REPORTED.swap(true, Ordering::Relaxed) {
                let what = if id == 0 { "the main thread is" } else { "threads without a ring are" };
                report(&format!("{why}; {what} not recorded"));
            }
            return state.refuse_location();
        }
    };
    let name = String::from_utf8_lossy(name).into_owned();
    let (id, thread) = (LocalLocation(id), own_thread());
    state.define(&Definition::Location(ampere_model::Location { id, kind, name, ring, thread }));
    // Never freed: events may come as long as the process lives.
    let writer = EventWriter::with_policy(producer, state.overload_policy, PROBES);
    let data: &'static LocationData = Box::leak(Box::new(LocationData::new(writer, id, thread)));
    if let Some(set_data) = callbacks.location_set_data {
        // SAFETY: LOCATION LIFE; the data is this plugin's.
        unsafe { set_data(location, events::plugin_id(), std::ptr::from_ref(data).cast_mut().cast()) };
        known_locations::remember(location, data);
    }
}

fn own_thread() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get() as u32
}

/// The maximum number of threads that are defined, because a log with very many definitions counts as damaged.
const DEFINED_THREADS_MAX: u32 = 1 << 18;

/// Records that this thread uses a location from now on, if another one has used it before.
pub fn thread_begins(location: *const Location) {
    let Some(data) = events::data_of(location) else { return };
    let thread = own_thread();
    if data.thread.swap(thread, Ordering::Relaxed) != thread
        && let Some(state) = State::of_this_process()
    {
        static DEFINED: AtomicU32 = AtomicU32::new(0);
        match DEFINED.fetch_add(1, Ordering::Relaxed) {
            ..DEFINED_THREADS_MAX => {}
            DEFINED_THREADS_MAX => {
                return report(&format!(
                    "more than {DEFINED_THREADS_MAX} threads followed others: the CPU time of further ones is in no function"
                ));
            }
            _ => return,
        }
        state.define(&Definition::Thread { location: data.id, thread });
    }
}

/// A value of `AMPERE_EVENTS` that is not known.
#[derive(Debug, thiserror::Error)]
#[error("AMPERE_EVENTS={0:?}: use all, auto or folded; continuing with auto")]
struct UnknownPolicy(String);

/// Returns the policy for a value of `AMPERE_EVENTS`.
fn overload_policy(value: Option<&str>) -> Result<OverloadPolicy, UnknownPolicy> {
    match value.map(str::trim) {
        None | Some("" | "auto") => Ok(OverloadPolicy::CoalesceUnderPressure),
        Some("all") => Ok(OverloadPolicy::Wait),
        Some("folded") => Ok(OverloadPolicy::Coalesce),
        Some(other) => Err(UnknownPolicy(other.to_owned())),
    }
}

/// Makes a ring, or a smaller one if there is no space for it.
fn make_ring(session: &Session, name: &str, bytes: u64, id: u32) -> Result<RingProducer, ampere_ring::Error> {
    let path = &session.directory().join(name);
    let mut records = bytes / 16;
    loop {
        // The smallest ring of the main thread may use the last space, because without it a process cannot be measured.
        let is_least = id == 0 && records <= ampere_ring::RING_RECORDS_MIN;
        let headroom = if is_least { Headroom::NONE } else { session.headroom() };
        match RingProducer::create_with_headroom(path, records, id, headroom) {
            // The next size to be tried is a quarter of this one, so that space remains for other locations.
            Err(ampere_ring::Error::NoSpace { .. }) if records > ampere_ring::RING_RECORDS_MIN => {
                records /= 4
            }
            Ok(ring) => {
                static IS_REPORTED: AtomicBool = AtomicBool::new(false);
                if ring.capacity_records() < bytes / 16 && !IS_REPORTED.swap(true, Ordering::Relaxed) {
                    report(&format!(
                        "{} has room for a ring of {} records only, not {}: more events may be suppressed",
                        path.display(),
                        ring.capacity_records(),
                        bytes / 16
                    ));
                }
                return Ok(ring);
            }
            Err(error) => return Err(error),
        }
    }
}

/// Writes rank and size, when MPI has been initialized or when there is no MPI.
pub fn init_mpp() {
    let Some((state, callbacks)) = STATE.get().and_then(|s| s.callbacks.get().map(|c| (s, c))) else {
        return;
    };
    let (Some(rank), Some(size)) = (callbacks.ipc_get_rank, callbacks.ipc_get_size) else { return };
    // SAFETY: AFTER INIT_MPP.
    let (rank, size) = unsafe { (rank(), size()) };
    state.define(&Definition::Rank { rank: rank.max(0) as u32, size: size.max(1) as u32 });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_names_the_output_directory_by_its_last_part() {
        let output = Path::new("/scratch/job/ampere-out/node-2");
        for (path, expected) in
            [("ampere-out", true), ("../elsewhere/ampere-out", true), ("/", true), ("out", false)]
        {
            assert_eq!(names_output(Path::new(path), output), expected, "{path}");
        }
    }

    #[test]
    fn the_users_policy_for_events_is_used_and_an_unknown_value_is_reported() {
        use OverloadPolicy::{Coalesce, CoalesceUnderPressure, Wait};
        let known = [None, Some(""), Some(" auto\n"), Some("all"), Some("folded")];
        let policies = known.map(|value| overload_policy(value).unwrap());
        assert_eq!(
            policies,
            [CoalesceUnderPressure, CoalesceUnderPressure, CoalesceUnderPressure, Wait, Coalesce]
        );
        assert!(overload_policy(Some("most")).unwrap_err().to_string().contains("AMPERE_EVENTS=\"most\""));
    }

    /// This process may have been started with another program, as by `exec`, and other processes may have had its pid.
    #[test]
    fn a_log_of_this_process_is_distinguished_from_that_of_another_process_with_its_pid() {
        let directory = tempfile::tempdir().unwrap();
        let session = Session::open_or_create_in(directory.path()).unwrap();
        let first = log_of_this_process(&session, clock::read_clocks()).unwrap();
        assert_eq!((first.name.clone(), first.is_another_program), (std::process::id().to_string(), false));
        let second = log_of_this_process(&session, clock::read_clocks()).unwrap();
        assert_eq!((second.name, second.is_another_program), (format!("{}-2", first.name), true));
        let path = session.directory().join(format!("{}.defs", first.name));
        assert!(!is_log_of_earlier_program(&path, 1));
    }
}
