//! Counters that the user defines with `[[source]]` in the settings: a command prints the figure, or a file contains it.
//!
//! A thread for each of them reads the figure when it is due, so that no other counter waits for a slow command or file. Every
//! reading is passed on once; between two readings, [`ReadError::NotYet`] means that there is nothing new. A power is integrated
//! between readings, as the mean of the two. An energy is passed on unchanged.
//!
//! **A reading that fails** adds nothing. If no power is known for longer than the limit, the integral starts again, so that the
//! energy in between counts as unknown, as after the reset of a counter.
//!
//! **A command** runs in `sh -c`, on the collector's CPUs, in a process group of its own, without input, and without the
//! libraries that measure programs. The group is killed after three periods (but not before 2 s), and when the source is closed.
//! At most [`TEXT_BYTES_MAX`] bytes of its output are read.

use std::fmt;
use std::io::{ErrorKind, Read};
use std::os::fd::AsFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ampere_settings::{CustomSource, CustomUnit, Origin};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

use crate::integral::Integral;
use crate::{Device, Kind, LastReading, OpenErrors, Quality, ReadError, Reading, Settings, Source};

pub(crate) const NAME: &str = "custom";

/// The number of bytes of a text that are searched for the figure.
const TEXT_BYTES_MAX: u64 = 64 << 10;
/// The number of periods that a reading may take. If a power was not read for longer than that, there is a gap in its integral.
const PERIODS_MAX: u32 = 3;
/// The lower bound of the time that [`PERIODS_MAX`] allows.
const LIMIT_MIN: Duration = Duration::from_secs(2);
/// Units after a number that show that it is not in watts or joules. They are also recognised in upper or lower case.
const OTHER_UNITS: [&str; 21] = [
    "kW",
    "mW",
    "MW",
    "uW",
    "µW",
    "μW",
    "kJ",
    "mJ",
    "MJ",
    "uJ",
    "µJ",
    "μJ",
    "Wh",
    "kWh",
    "MWh",
    "kilowatt",
    "milliwatt",
    "megawatt",
    "kilojoule",
    "millijoule",
    "megajoule",
];
/// How often a thread that waits for a command checks whether it must stop.
const STOP_PERIOD: Duration = Duration::from_millis(20);
/// The longest time that the end of a run waits for a last reading.
const FINISH_LIMIT: Duration = Duration::from_secs(1);
/// The longest time that closing waits for a thread. Reading a file may hang.
const CLOSE_LIMIT: Duration = Duration::from_millis(500);
/// The period at which the sampler asks for new readings.
const PERIOD: Duration = Duration::from_millis(10);

/// Why a reading has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PollError {
    /// The command could not be started, or its output or the file could not be read.
    Io(ErrorKind),
    /// The command ended with this status.
    Exit(i32),
    /// A signal ended the command.
    Killed(i32),
    /// The command did not end in time.
    TimedOut(Duration),
    /// The pattern does not match the text.
    NoMatch,
    /// The text that the pattern found is not a number, or is negative.
    NoNumber,
    /// The text that the pattern found is a part of a longer number, such as the 1 of `1,234`, or of a name, as in `PSU1`.
    PartOfNumber,
    /// This unit follows the number, and the settings have no scale.
    OtherUnit(&'static str),
}

impl fmt::Display for PollError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PollError::Io(kind) => write!(f, "{kind}"),
            PollError::Exit(127) => write!(f, "its command was not found (exit status 127)"),
            PollError::Exit(status) => write!(f, "its command failed with status {status}"),
            PollError::Killed(signal) => write!(f, "its command was ended by signal {signal}"),
            PollError::TimedOut(limit) => {
                write!(f, "its command did not end within {} s and was killed", limit.as_secs_f64())
            }
            PollError::NoMatch => write!(f, "its pattern does not match the text"),
            PollError::NoNumber => write!(f, "what its pattern found is not a non-negative number"),
            PollError::PartOfNumber => {
                write!(f, "what its pattern found is part of a longer number or of a name")
            }
            PollError::OtherUnit(unit) => write!(f, "its number is in {unit}: `scale` has to convert it"),
        }
    }
}

pub(crate) struct Custom {
    devices: Vec<Device>,
    pollers: Vec<Poller>,
}

/// The thread that reads a counter, and the state that it shares with the source.
struct Poller {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    source: CustomSource,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// The result of the last reading, until it is passed on.
    new: Option<Result<Reading, PollError>>,
    integral: Integral,
    /// The number of readings that were begun, and of those that have ended.
    begun: u64,
    ended: u64,
    /// Whether a reading is due now.
    is_wanted: bool,
    is_stopping: bool,
}

/// Starts to read the user's own counters. Returns `None` if there is none.
pub(crate) fn open(settings: &Settings, errors: &mut OpenErrors) -> Option<Custom> {
    if settings.custom.is_empty() {
        errors.absent(format!("{NAME}: the settings have no [[source]]"));
        return None;
    }
    let mut found = Custom { devices: Vec::new(), pollers: Vec::new() };
    for source in &settings.custom {
        match Poller::start(source) {
            Ok(poller) => {
                found.devices.push(device_of(source));
                found.pollers.push(poller);
            }
            Err(error) => errors.unreadable(format!("{NAME}: {}: {error}; it is not used", source.name)),
        }
    }
    (!found.devices.is_empty()).then_some(found)
}

fn device_of(source: &CustomSource) -> Device {
    let (quality, resolution) = match source.unit {
        CustomUnit::Watts => (Quality::Integrated, 1e-9),
        CustomUnit::Joules => (Quality::Measured, source.scale),
    };
    let origin = match &source.origin {
        Origin::Command(command) => command.clone(),
        Origin::File(file) => file.display().to_string(),
    };
    let how = if quality == Quality::Integrated { "integrated from power, " } else { "" };
    Device {
        name: source.name.clone(),
        metric: format!("{NAME}:::energy:{}", source.name),
        source: NAME,
        quality,
        // A source that contains other devices is taken for a node; nothing is known about other sources.
        kind: if source.contains.is_empty() { Kind::Unknown } else { Kind::Node },
        contains: Vec::new(),
        wraps_at_nanojoules: None,
        baseline_microwatts: None,
        resolution_joules: resolution,
        description: format!("{how}every {:?}: {origin}", source.every),
        pci: None,
    }
}

impl Poller {
    fn start(source: &CustomSource) -> std::io::Result<Poller> {
        let state = State::default();
        let shared =
            Arc::new(Shared { source: source.clone(), state: Mutex::new(state), changed: Condvar::new() });
        let of_thread = shared.clone();
        let thread = std::thread::Builder::new().name("ampere-source".to_owned());
        let thread = Some(thread.spawn(move || of_thread.run())?);
        Ok(Poller { shared, thread })
    }
}

impl Drop for Poller {
    fn drop(&mut self) {
        self.shared.lock().is_stopping = true;
        self.shared.changed.notify_all();
        let begun = Instant::now();
        let Some(thread) = self.thread.take() else { return };
        while !thread.is_finished() && begun.elapsed() < CLOSE_LIMIT {
            std::thread::sleep(Duration::from_millis(1));
        }
        if thread.is_finished() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The longest time that a reading may take, and the longest time without a reading of a power.
    fn limit(&self) -> Duration {
        (self.source.every * PERIODS_MAX).max(LIMIT_MIN)
    }

    /// Reads the figure whenever it is due, until the source is closed.
    fn run(&self) {
        let mut due = Instant::now();
        while self.wait_until(due) {
            let figure = self.figure();
            let now = Instant::now();
            let mut state = self.lock();
            let result = figure.map(|figure| self.reading(&mut state.integral, figure, now));
            state.new = Some(result);
            state.ended = state.begun;
            drop(state);
            self.changed.notify_all();
            due = (due + self.source.every).max(now);
        }
    }

    /// Waits until a reading is due, and returns `false` if there will be no more.
    fn wait_until(&self, due: Instant) -> bool {
        let mut state = self.lock();
        loop {
            let left = due.saturating_duration_since(Instant::now());
            if state.is_stopping {
                return false;
            }
            if left.is_zero() || state.is_wanted {
                state.is_wanted = false;
                state.begun += 1;
                return true;
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn reading(&self, integral: &mut Integral, figure: f64, now: Instant) -> Reading {
        match self.source.unit {
            CustomUnit::Watts => {
                let microwatts = (figure * 1e6).round() as u64;
                let nanojoules = integral.add(now, microwatts, self.limit());
                Reading { nanojoules, raw: microwatts, counter_timestamp_ns: None }
            }
            CustomUnit::Joules => {
                // It wraps at 2^64 nJ (5 MWh), which is then taken for a reset of the meter.
                let nanojoules = (figure * 1e9).round() as u128 as u64;
                Reading { nanojoules, raw: nanojoules, counter_timestamp_ns: None }
            }
        }
    }

    /// If there is no new reading of a power, the last one counts until now, unless it is too old.
    fn hold_power(&self, state: &mut State) {
        let (now, limit) = (Instant::now(), self.limit());
        let last = state.integral.last().filter(|_| !state.integral.has_gap(now, limit));
        if let (None, CustomUnit::Watts, Some((_, microwatts))) = (state.new, self.source.unit, last) {
            let nanojoules = state.integral.add(now, microwatts, limit);
            state.new = Some(Ok(Reading { nanojoules, raw: microwatts, counter_timestamp_ns: None }));
        }
    }

    /// Returns the figure, in watts or joules.
    fn figure(&self) -> Result<f64, PollError> {
        let text = match &self.source.origin {
            Origin::Command(command) => self.output_of(command)?,
            Origin::File(file) => {
                let mut text = Vec::new();
                let opened = std::fs::File::open(file);
                let read = opened.and_then(|file| file.take(TEXT_BYTES_MAX).read_to_end(&mut text));
                read.map_err(|error| PollError::Io(error.kind()))?;
                text
            }
        };
        self.figure_in(&text)
    }

    fn figure_in(&self, text: &[u8]) -> Result<f64, PollError> {
        let text = String::from_utf8_lossy(text);
        let found = self.source.pattern.captures(&text).ok_or(PollError::NoMatch)?;
        let figure = found.get(1).ok_or(PollError::NoMatch)?;
        let whole = found.get_match();
        let after = &text[figure.end()..];
        // If the pattern also matches text next to the number, it decides what may be there, and that side is not checked.
        let before = if figure.start() == whole.start() { &text[..figure.start()] } else { "" };
        let behind = if figure.end() == whole.end() { after } else { "" };
        if is_part_of_number(before, figure.as_str(), behind) {
            return Err(PollError::PartOfNumber);
        }
        let number: f64 = figure.as_str().trim().parse().map_err(|_| PollError::NoNumber)?;
        let after = after.trim_start_matches(' ');
        let word = after.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
        let singular = word.strip_suffix('s').filter(|word| word.len() > 3).unwrap_or(word);
        let is_one = |unit: &&&str| unit.eq_ignore_ascii_case(singular);
        let unit = OTHER_UNITS.iter().find(|unit| **unit == word).or_else(|| OTHER_UNITS.iter().find(is_one));
        if let Some(unit) = unit.filter(|_| self.source.scale == 1.0) {
            return Err(PollError::OtherUnit(unit));
        }
        let figure = number * self.source.scale;
        // No real figure is larger. The range does not contain NaN.
        let is_possible = (0.0..1e18).contains(&figure);
        is_possible.then_some(figure).ok_or(PollError::NoNumber)
    }

    /// Runs a command and returns the start of its output.
    fn output_of(&self, command: &str) -> Result<Vec<u8>, PollError> {
        let io = |error: std::io::Error| PollError::Io(error.kind());
        let mut shell = Command::new("/bin/sh");
        shell.arg("-c").arg(command).process_group(0);
        shell.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        shell.env_remove("LD_PRELOAD").env(ampere_model::ENV_DISABLE, "1");
        let mut child = shell.spawn().map_err(io)?;
        let read = self.read_output(&mut child);
        let has_ended = has_ended(&child);
        // Processes that the command has started end with it.
        let _ = kill_process_group(Pid::from_child(&child), Signal::KILL);
        let status = child.wait().map_err(io)?;
        let text = read?;
        // A number in the message of a command that failed is not the figure.
        match (status.code(), status.signal()) {
            (Some(code), _) if code != 0 => Err(PollError::Exit(code)),
            (None, Some(signal)) if has_ended || signal != Signal::KILL.as_raw() => {
                Err(PollError::Killed(signal))
            }
            _ => Ok(text),
        }
    }

    /// Reads until the output and the command have ended, or until the output has the maximum length.
    fn read_output(&self, child: &mut Child) -> Result<Vec<u8>, PollError> {
        let io = |error: std::io::Error| PollError::Io(error.kind());
        let limit = self.limit();
        let deadline = Instant::now() + limit;
        let mut text = Vec::new();
        let mut output = child.stdout.take().ok_or(PollError::NoMatch)?.take(TEXT_BYTES_MAX);
        let mut has_more = true;
        loop {
            if self.lock().is_stopping || Instant::now() >= deadline {
                return Err(PollError::TimedOut(limit));
            }
            if !has_more {
                if has_ended(child) {
                    return Ok(text);
                }
                std::thread::sleep(Duration::from_millis(1));
                continue;
            }
            let time = Timespec { tv_sec: 0, tv_nsec: STOP_PERIOD.as_nanos() as i64 };
            let is_ready = {
                let mut fds = [PollFd::from_borrowed_fd(output.get_ref().as_fd(), PollFlags::IN)];
                poll(&mut fds, Some(&time)).is_ok_and(|ready| ready > 0)
            };
            if is_ready {
                let mut bytes = [0; 4096];
                let length = output.read(&mut bytes).map_err(io)?;
                text.extend_from_slice(&bytes[..length]);
                has_more = length > 0;
            } else if has_ended(child) {
                // A process that the command has left behind keeps the output open.
                return Ok(text);
            }
            // The rest of a long output is not waited for.
            if output.limit() == 0 {
                return Ok(text);
            }
        }
    }
}

/// Whether a figure between two texts is part of a longer number, such as `0x64`, `1,234`, `85,3` or `1 234`, or of a name, such
/// as `PSU1`.
fn is_part_of_number(before: &str, figure: &str, after: &str) -> bool {
    let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    let digits_at_end = |text: &str| text.bytes().rev().take_while(u8::is_ascii_digit).count();
    let separates = |c: char| [',', '\'', ' ', '\u{a0}', '\u{202f}'].contains(&c);
    let (has_point, group) = (figure.contains('.'), digits(figure));
    let goes_on = digits(after) > 0
        || figure == "0" && after.starts_with(['x', 'X'])
        || after.strip_prefix(',').is_some_and(|rest| digits(rest) > 0)
        || !has_point && after.strip_prefix('.').is_some_and(|rest| digits(rest) > 0)
        || !has_point && group <= 3 && after.strip_prefix(separates).is_some_and(|rest| digits(rest) == 3);
    let began = digits_at_end(before) > 0
        || before.ends_with(|c: char| c.is_alphabetic() || c == '_')
        || before.strip_suffix('.').is_some_and(|rest| digits_at_end(rest) > 0)
        || group == 3
            && before.strip_suffix(separates).is_some_and(|rest| (1..=3).contains(&digits_at_end(rest)));
    goes_on || began
}

/// Whether a command has ended. It is not reaped yet: its process group, which is killed later, keeps its number until then.
fn has_ended(child: &Child) -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    !matches!(waitid(WaitId::Pid(Pid::from_child(child)), options), Ok(None))
}

impl Source for Custom {
    fn name(&self) -> &'static str {
        NAME
    }

    fn devices(&self) -> &[Device] {
        &self.devices
    }

    fn devices_mut(&mut self) -> &mut [Device] {
        &mut self.devices
    }

    fn shortest_period(&self, _device: usize) -> Duration {
        PERIOD
    }

    fn read(&mut self, device: usize) -> Result<Reading, ReadError> {
        let poller = self.pollers.get(device).ok_or(ReadError::NoSuchDevice)?;
        match poller.shared.lock().new.take() {
            Some(Ok(reading)) => Ok(reading),
            Some(Err(error)) => Err(ReadError::Poll(error)),
            None => Err(ReadError::NotYet),
        }
    }

    fn resume(&mut self, device: usize, last: LastReading) {
        if let Some(poller) = self.pollers.get(device)
            && poller.shared.source.unit == CustomUnit::Watts
        {
            poller.shared.lock().integral = Integral::resume(last, Instant::now());
        }
    }

    fn is_polled(&self) -> bool {
        true
    }

    fn finish(&mut self) {
        let wanted: Vec<u64> = self
            .pollers
            .iter()
            .map(|poller| {
                let mut state = poller.shared.lock();
                state.is_wanted = true;
                let wanted = state.begun + 1;
                poller.shared.changed.notify_all();
                wanted
            })
            .collect();
        let deadline = Instant::now() + FINISH_LIMIT;
        for (poller, wanted) in self.pollers.iter().zip(wanted) {
            let left = deadline.saturating_duration_since(Instant::now());
            let waits = |state: &mut State| state.ended < wanted;
            let state = poller.shared.changed.wait_timeout_while(poller.shared.lock(), left, waits);
            poller.shared.hold_power(&mut state.unwrap_or_else(PoisonError::into_inner).0);
        }
    }
}
