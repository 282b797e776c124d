//! This process in its session: its definitions log, its rings, its beginning and its end.

use crate::events::{self, LocationData};
use crate::inert::{become_inert, become_inert_silently, is_inert, say, say_in_this_process};
use crate::ring_size::RingSize;
use crate::session_name::{is_of_this_process, session_name};
use crate::start::Purpose;
use crate::{inert, memory, start, strings};
use ampere_model::{
    Clocks, Definition, LAUNCHED, LOCAL_RANKS, LocalLocation, LocationKind, Process, Region, RegionHandle,
    VISIBLE_DEVICES,
};
use ampere_ring::clock;
use ampere_ring::session::{ENV_SESSION_BOOT, OUT_OF_REACH};
use ampere_ring::{
    CollectorState, Error, EventWriter, LogReader, LogWriter, OverloadPolicy, RingProducer, Session,
    SessionProbes, ToLeave,
};
use scorep_abi::{AnyHandle, Callbacks, Location, handle_type, location_type};
use std::ffi::c_int;
use std::mem::{offset_of, size_of};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};

/// How long the last process of a node waits for the collector to finish the trace.
const FINALIZE_LIMIT: Duration = Duration::from_secs(60);
/// So soon a collector that was killed is replaced by who started it.
const REPLACED_WITHIN: Duration = Duration::from_millis(500);
/// How often the last process does so.
const MOST_REPLACED: u32 = 2;
/// What is longer is no list of devices, and a definition that is too long would be left out.
const LONGEST_VARIABLE_BYTES: usize = 4096;

/// Made in `init`, never freed: events may come as long as the process lives. What events need of the
/// environment is not asked for again: reading that while a thread of the program's changes it is the end of the program.
struct State {
    session: Session,
    /// Taken by definitions and by the beginning and the end, never by an event.
    log: Mutex<LogWriter>,
    callbacks: OnceLock<Callbacks>,
    pid: u32,
    /// What the names of its files begin with.
    name: String,
    /// When this process joined.
    joined: Clocks,
    /// What is done with events that the collector cannot follow.
    overload_policy: OverloadPolicy,
    ring_size: RingSize,
    finalize_limit: Duration,
    /// A location found no room, and it was said.
    has_refused: AtomicBool,
    refused_locations: AtomicU64,
    ended: AtomicBool,
}

static STATE: OnceLock<State> = OnceLock::new();

/// Asked from the event path: neither blocks nor allocates.
const PROBES: SessionProbes = SessionProbes {
    ticks_per_second: |time| STATE.get().map_or(0, |state| clock::ticks_per_second(time, &state.joined)),
    collector_is_alive: || {
        // While it writes the results it reads no ring.
        let reads = |session: &Session| session.collector_seems_alive() && !session.is_finishing();
        !is_inert() && STATE.get().is_some_and(|state| reads(&state.session))
    },
    collector_rounds: || STATE.get().map_or(0, |state| state.session.beats()),
};

impl State {
    fn log(&self) -> MutexGuard<'_, LogWriter> {
        self.log.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Appends, and lets the collector know that there is something to read.
    fn define(&self, definition: &Definition) {
        self.log().append(definition);
        self.session.announce();
    }
}

impl State {
    /// A location gets no ring: its calls are counted from now on, and told at the end.
    fn refuse_location(&self) {
        self.refused_locations.fetch_add(1, Ordering::Relaxed);
        self.tell_unrecorded();
    }

    fn tell_unrecorded(&self) {
        let locations = self.refused_locations.load(Ordering::Relaxed);
        let calls = events::unrecorded_calls();
        if locations + calls > 0 {
            self.define(&Definition::Unrecorded { locations, calls });
        }
    }
}

/// Joins the session; starts the collector if nobody has.
pub fn begin() {
    inert::begin();
    if ampere_ring::session::is_switched_off() {
        return become_inert_silently();
    }
    match join() {
        Ok(state) => {
            let _ = STATE.set(state);
            // SAFETY: the handler is an async-signal-safe function without arguments.
            unsafe { libc::pthread_atfork(None, None, Some(forked)) };
        }
        Err(CannotJoin::Anybody(why)) => become_inert(&why),
        Err(CannotJoin::ThisProcess(why)) => {
            become_inert_silently();
            say_in_this_process(&why);
        }
    }
}

/// Why this process is not measured.
enum CannotJoin {
    /// So it is with all of the node: one of them says it.
    Anybody(String),
    ThisProcess(String),
}

impl From<String> for CannotJoin {
    fn from(why: String) -> CannotJoin {
        CannotJoin::Anybody(why)
    }
}

/// Stops measuring a process that the others take for measured: the results say so.
pub fn give_up(why: &str) {
    become_inert(why);
    if let Some(state) = STATE.get() {
        state.session.tell_unmeasured();
    }
}

/// A child that goes on without exec shares our rings: it must not write into them.
extern "C" fn forked() {
    become_inert_silently();
}

fn join() -> Result<State, CannotJoin> {
    let name = session_name();
    // On this node `ampere run` has made it.
    let is_node_of_run =
        std::env::var(ENV_SESSION_BOOT).is_ok_and(|boot| boot == ampere_ring::process::boot_text());
    if let Some(session) = Session::missing(&name).filter(|_| is_node_of_run) {
        return Err(CannotJoin::ThisProcess(format!(
            "this process does not find its run's session {}; energy is not measured: {OUT_OF_REACH}; or the run is over",
            session.display()
        )));
    }
    let session = Session::open_or_create(&name).map_err(|error| {
        let why = format!("{error}; energy is not measured");
        if error.is_a_limit() { CannotJoin::ThisProcess(why) } else { CannotJoin::Anybody(why) }
    })?;
    if let Err(why) = start::ensure_collector(&session, Purpose::Everything) {
        // Who comes when the results are being written belongs to another run of the job's.
        if !session.is_finishing() {
            session.tell_unmeasured();
        }
        if is_of_this_process(&name) {
            session.remove(); // nobody else would ever look at it
        }
        let is_alone = why.contains(OUT_OF_REACH);
        return Err(if is_alone { CannotJoin::ThisProcess(why) } else { CannotJoin::Anybody(why) });
    }
    tell_of_another_output(&session);
    let joined = clock::read_clocks();
    let OwnLog { log, name, is_another_program } =
        log_of_this_process(&session, joined).inspect_err(|_| session.tell_unmeasured())?;
    if is_another_program {
        session.announce(); // it has joined already
    } else {
        session.join();
    }
    let (ring_size, complaint) = RingSize::from_environment();
    complaint.iter().for_each(|line| say(line));
    Ok(State {
        session,
        name,
        log: Mutex::new(log),
        callbacks: OnceLock::new(),
        pid: std::process::id(),
        joined,
        overload_policy: overload_policy(),
        ring_size,
        finalize_limit: start::seconds_from("AMPERE_FINALIZE_TIMEOUT").unwrap_or(FINALIZE_LIMIT),
        has_refused: AtomicBool::new(false),
        refused_locations: AtomicU64::new(0),
        ended: AtomicBool::new(false),
    })
}

/// Programs that one job step starts without a launcher of their own, as by hand in `srun --pty bash`, are one run: the first
/// one's output directory is that of all.
fn tell_of_another_output(session: &Session) {
    let wanted = std::env::var_os("AMPERE_OUTPUT").filter(|path| !path.is_empty());
    let Some((wanted, output)) = wanted.map(std::path::PathBuf::from).zip(session.output()) else { return };
    // By its name alone: each process may be in a directory of its own, and each node but the first has one in it.
    let is_in =
        |path: &std::path::Path| path.file_name().is_none_or(|name| output.iter().any(|part| part == name));
    let is_named = is_in(&wanted) || std::fs::canonicalize(&wanted).is_ok_and(|path| is_in(&path));
    if !is_named {
        say(&format!(
            "this is a part of a run whose results go to {}, not to {}",
            output.display(),
            wanted.display()
        ));
    }
}

/// A definitions log, just made.
pub struct OwnLog {
    pub log: LogWriter,
    /// Its file's name without the extension.
    name: String,
    /// This process was in the session before it became another program (`exec`).
    is_another_program: bool,
}

/// Programs in the place of others, or processes with the same pid, that a session may see.
const SAME_PID_MAX: u32 = 1000;

/// Its beginning says who this process is.
pub fn log_of_this_process(session: &Session, joined: Clocks) -> Result<OwnLog, String> {
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
            // Of a process with our pid: this one before it became another program, one that is over, or one that runs beside us
            // in another pid namespace.
            Err(Error::Io { source, .. }) if number < SAME_PID_MAX && is_there(&source) => {
                is_another_program |= is_log_of_earlier_program(&path, start_time);
            }
            Err(error) => return Err(format!("{error}; energy is not measured")),
        }
        number += 1;
        name = format!("{pid}-{number}");
    };
    let recorded = VISIBLE_DEVICES.iter().chain(&LOCAL_RANKS).chain(&LAUNCHED);
    log.append(&Definition::Process(Process {
        pid,
        start_time,
        hostname: ampere_ring::process::node_name(),
        executable: std::env::current_exe().map_or_else(|_| String::new(), |p| p.display().to_string()),
        host: host_name().to_owned(),
        clocks: joined,
        environment: recorded
            .filter_map(|name| std::env::var(name).ok().map(|value| format!("{name}={value}")))
            .filter(|entry| entry.len() <= LONGEST_VARIABLE_BYTES)
            .collect(),
        pid_namespace: ampere_ring::process::pid_namespace(),
    }));
    Ok(OwnLog { log, name, is_another_program })
}

/// Whether a log with this process' pid is its own, of the program that it was before.
fn is_log_of_earlier_program(path: &std::path::Path, start_time: u64) -> bool {
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

/// The embedded host says so itself.
fn host_name() -> &'static str {
    // SAFETY: a constant, NUL-terminated name.
    let symbol = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"ampere_host_is_active".as_ptr()) };
    if symbol.is_null() {
        return "score-p";
    }
    // SAFETY: the embedded host exports this name with this type.
    let active: extern "C" fn() -> c_int = unsafe { std::mem::transmute(symbol) };
    if active() != 0 { "embedded" } else { "score-p" }
}

/// # Safety
/// `callbacks` points to `size` bytes that outlive the plugin.
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
    // SAFETY: `size` bytes are readable, and no more than a table's are written.
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
    let _ = state.callbacks.set(table);
}

/// Calls one of Score-P's functions, if there is one, for a string.
macro_rules! text {
    ($callbacks:expr, $function:ident, $handle:expr) => {
        // SAFETY: the handle is Score-P's own, given for this purpose; it returns NULL or a string that it keeps.
        $callbacks.$function.map_or(&[][..], |f| unsafe { strings::bytes(f($handle)) })
    };
}

/// The same for a number.
macro_rules! number {
    ($callbacks:expr, $function:ident, $handle:expr) => {
        // SAFETY: the handle is Score-P's own, given for this purpose.
        $callbacks.$function.map_or(0, |f| unsafe { f($handle) })
    };
}

/// A region becomes known. May be called with Score-P's locks held, from any thread, before `init_mpp`.
///
/// With sampling also in a signal handler, which may have interrupted the program in `malloc`: no memory is taken here, nor
/// by anybody else who holds Score-P's lock or the log's. Score-P interrupts neither us nor itself.
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

/// A location becomes known: it gets a ring, and its writer hangs on it from now on.
pub fn new_location(location: *const Location) {
    let Some((state, callbacks)) = STATE.get().and_then(|s| s.callbacks.get().map(|c| (s, c))) else {
        return;
    };
    let id = number!(callbacks, location_get_id, location);
    let kind = match number!(callbacks, location_get_type, location) {
        location_type::CPU_THREAD => LocationKind::CpuThread,
        location_type::GPU => LocationKind::Gpu,
        _ => return, // metric locations have no enters and leaves
    };
    let name = text!(callbacks, location_get_name, location);
    if !memory::is_left(name.len()) {
        return state.refuse_location();
    }
    let ring = format!("{}.{id}.ring", state.name);
    let bytes = state.ring_size.bytes(id, kind == LocationKind::Gpu);
    let producer = match make_ring(&state.session, &ring, bytes, id) {
        Ok(producer) => producer,
        // The others go on. Were they to stop, what they are in now would have the energy of all that follows.
        Err(why) => {
            if !state.has_refused.swap(true, Ordering::Relaxed) {
                let what = if id == 0 { "the main thread is" } else { "threads without a ring are" };
                say(&format!("{why}; {what} not recorded"));
            }
            return state.refuse_location();
        }
    };
    let name = String::from_utf8_lossy(name).into_owned();
    let thread = rustix::thread::gettid().as_raw_nonzero().get() as u32;
    let id = LocalLocation(id);
    state.define(&Definition::Location(ampere_model::Location { id, kind, name, ring, thread }));
    // Never freed: events may come as long as the process lives.
    let writer = EventWriter::with_policy(producer, state.overload_policy, PROBES);
    let data = Box::into_raw(Box::new(LocationData::new(writer)));
    if let Some(set_data) = callbacks.location_set_data {
        // SAFETY: the location is Score-P's, the slot is this plugin's.
        unsafe { set_data(location, events::plugin_id(), data.cast()) };
    }
}

/// `AMPERE_EVENTS`; a word that is none of them is said, and taken for `auto`.
fn overload_policy() -> OverloadPolicy {
    match std::env::var("AMPERE_EVENTS").ok().as_deref().map(str::trim) {
        None | Some("" | "auto") => OverloadPolicy::CoalesceUnderPressure,
        Some("all") => OverloadPolicy::Wait,
        Some("folded") => OverloadPolicy::Coalesce,
        Some(other) => {
            say(&format!("AMPERE_EVENTS={other:?}: use all, auto or folded; going on with auto"));
            OverloadPolicy::CoalesceUnderPressure
        }
    }
}

/// Makes the ring, or a smaller one where there is no room for it.
fn make_ring(session: &Session, name: &str, bytes: u64, id: u32) -> Result<RingProducer, Error> {
    let path = &session.directory().join(name);
    let mut records = bytes / 16;
    loop {
        // The smallest ring of a main thread is what its process cannot be measured without.
        let is_least = id == 0 && records <= ampere_ring::SMALLEST_RING_RECORDS;
        let to_leave = if is_least { ToLeave::NOTHING } else { session.to_leave() };
        match RingProducer::create_leaving(path, records, id, to_leave) {
            // A quarter, so that there is something left for other locations.
            Err(Error::NoSpace { .. }) if records > ampere_ring::SMALLEST_RING_RECORDS => records /= 4,
            Ok(ring) => {
                static IS_TOLD: AtomicBool = AtomicBool::new(false);
                if ring.capacity_records() < bytes / 16 && !IS_TOLD.swap(true, Ordering::Relaxed) {
                    say(&format!(
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

/// MPI is up (or there is none): who we are in the job can be asked now, and not before.
pub fn rank_is_known() {
    let Some((state, callbacks)) = STATE.get().and_then(|s| s.callbacks.get().map(|c| (s, c))) else {
        return;
    };
    let (Some(rank), Some(size)) = (callbacks.ipc_get_rank, callbacks.ipc_get_size) else { return };
    // SAFETY: allowed since init_mpp.
    let (rank, size) = unsafe { (rank(), size()) };
    state.define(&Definition::Rank { rank: rank.max(0) as u32, size: size.max(1) as u32 });
}

/// The measurement is over. The last process of the node stays until the trace is written, but not for ever.
///
/// Also when the plugin is inert: a process that joined says goodbye, or the others would wait for it.
pub fn end() {
    // Not in a forked child, which shares the state with its parent.
    let Some(state) = STATE.get().filter(|state| state.pid == std::process::id()) else { return };
    if state.ended.swap(true, Ordering::Relaxed) {
        return;
    }
    events::stop();
    state.tell_unrecorded();
    let left_out = state.log().left_out();
    state.define(&Definition::Finished { left_out });
    let others = state.session.leave();
    if is_inert() || state.session.is_waited_for() {
        return; // `ampere run` also replaces a collector that is killed
    }
    let running =
        matches!(state.session.collector_state(), CollectorState::Starting | CollectorState::Running);
    let is_killed = running && !state.session.collector_is_alive();
    // Processes that were killed have not said goodbye: if nobody but this one is left to start another collector, it does.
    if others > 0 && !(is_killed && is_last(state)) {
        return;
    }
    wait_for_collector(&state.session, state.finalize_limit);
}

/// Whether no other program that has joined runs.
fn is_last(state: &State) -> bool {
    let own = format!("{}.defs", state.name);
    let Ok(entries) = std::fs::read_dir(state.session.directory()) else { return false };
    let logs = entries.flatten().filter(|entry| {
        let name = entry.file_name();
        name.as_encoded_bytes().ends_with(b".defs") && *name != *own && name != "sampler.defs"
    });
    let mut logs = logs.map(|entry| LogReader::open(&entry.path()));
    logs.all(|log| !matches!(log, Ok(Some(log)) if log.is_held()))
}

/// What comes of it is said by this process, the last one, whichever rank it is. If the collector is killed, and who
/// started it has not replaced it, this process does.
fn wait_for_collector(session: &Session, limit: Duration) {
    let output = session.output().unwrap_or_default();
    let begun = Instant::now();
    let (mut told, mut dead_since, mut replaced) = (false, None, 0);
    loop {
        match session.collector_state() {
            CollectorState::Finished => {
                return say_in_this_process(&format!(
                    "energy summary in {}",
                    output.join("summary.txt").display()
                ));
            }
            CollectorState::Failed => {
                let why = ampere_ring::files::read_text(&session.directory().join("failure"));
                return say_in_this_process(&format!("the collector failed: {}", why.trim()));
            }
            // It may have finished between the two looks.
            _ if !session.collector_is_alive() && session.collector_state() != CollectorState::Finished => {
                if session.is_removed() {
                    session.remove(); // it was killed when all was done but saying so
                    session.set_collector(0, CollectorState::Finished);
                    continue;
                }
                let since: Instant = *dead_since.get_or_insert_with(Instant::now);
                if since.elapsed() > REPLACED_WITHIN && replaced < MOST_REPLACED {
                    (replaced, dead_since) = (replaced + 1, None);
                    let _ = start::ensure_collector(session, Purpose::Everything); // what comes of it is seen here
                } else if since.elapsed() > REPLACED_WITHIN {
                    return say_in_this_process(&format!(
                        "the collector ended before its time; what is left can be finished: ampere recover {}",
                        output.display()
                    ));
                }
            }
            _ => dead_since = None,
        }
        if begun.elapsed() > limit {
            return say_in_this_process(&format!(
                "the collector is still writing to {} after {} s; not waiting any longer",
                output.display(),
                limit.as_secs()
            ));
        }
        if !told && begun.elapsed() > Duration::from_secs(2) {
            told = true;
            say_in_this_process(&format!(
                "waiting for the collector to finish, {} s at most",
                limit.as_secs()
            ));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}
