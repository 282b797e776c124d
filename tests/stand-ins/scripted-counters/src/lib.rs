//! The common parts of the stand-ins for vendors' libraries: counters that follow a [`script`], and the state between a library's
//! init and its shut-down.
//!
//! Energy is watts times `CLOCK_MONOTONIC`, so two processes with the same script read the same counters. Any call before init or
//! after the shut-down aborts the process, as a real library may (librocm_smi64 5.2.3 segfaults), so that a caller with this
//! mistake does not pass a test by luck.
//!
//! Note for those who run tests: `cargo test` puts the libraries' folder on `LD_LIBRARY_PATH`. A test that needs a real library
//! by name must remove that variable.

use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

pub mod gauges;
mod played;
pub mod script;

use played::Played;
use script::{Moment, Reading, Script};

/// A stand-in: its name in messages, and the variable that has its script.
pub struct StandIn {
    name: &'static str,
    variable: &'static str,
    running: Mutex<Option<Running>>,
}

/// The state of a library between init and shut-down.
pub struct Running {
    pub script: Script,
    /// CLOCK_MONOTONIC of the script's time zero, in seconds.
    epoch: f64,
    /// Number of energy reads by device.
    reads: Vec<u64>,
    /// The readings that are shown instead of those of the script.
    played: Option<Played>,
    /// Number of inits that were not yet undone.
    uses: u32,
}

/// Returns the time of CLOCK_MONOTONIC in seconds.
pub fn monotonic() -> f64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    t.tv_sec as f64 + t.tv_nsec as f64 * 1e-9
}

impl StandIn {
    pub const fn new(name: &'static str, variable: &'static str) -> StandIn {
        StandIn { name, variable, running: Mutex::new(None) }
    }

    fn state(&self) -> MutexGuard<'_, Option<Running>> {
        self.running.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Reads the script and starts the counters. Returns the script's `init` status, or `None` if the script is wrong.
    pub fn init(&self) -> Option<u32> {
        let text = std::env::var(self.variable).unwrap_or_default();
        let script = match Script::parse(&text) {
            Ok(script) => script,
            Err(wrong) => {
                eprintln!("{} stand-in: {}: {wrong}", self.name, self.variable);
                return None;
            }
        };
        fail_at(&script, Moment::Init);
        if script.init_status != 0 {
            return Some(script.init_status);
        }
        let mut guard = self.state();
        match guard.as_mut() {
            Some(state) => state.uses += 1,
            None => {
                let epoch = script.epoch.unwrap_or_else(monotonic);
                let open = |directory| Played::open(directory, script.devices.len()).expect("files to play");
                let played = script.play.as_deref().map(open);
                *guard =
                    Some(Running { reads: vec![0; script.devices.len()], played, script, epoch, uses: 1 });
            }
        }
        Some(0)
    }

    /// Undoes one init.
    pub fn shut_down(&self, function: &str) {
        let left = self.running(function, |state| {
            fail_at(&state.script, Moment::End);
            state.uses -= 1;
            state.uses
        });
        if left == 0 {
            *self.state() = None;
        }
    }

    /// Runs `body` on the running library, or aborts the process if it is not running.
    pub fn running<T>(&self, function: &str, body: impl FnOnce(&mut Running) -> T) -> T {
        match self.state().as_mut() {
            Some(state) => body(state),
            None => {
                eprintln!("{} stand-in: {function} was called without a successful init", self.name);
                std::process::abort();
            }
        }
    }

    /// Returns the number of devices in the script, or its `count` status.
    pub fn count(&self, function: &str) -> Result<u32, u32> {
        self.running(function, |state| match state.script.count_status {
            0 => Ok(state.script.devices.len() as u32),
            status => Err(status),
        })
    }

    /// Reads a counter according to the script, after the time that the script sets for a read. `None`: there is no such device.
    pub fn read(&self, function: &str, device: usize) -> Option<Reading> {
        let (reading, slow, busy) = self.running(function, |state| {
            let reads = state.reads.get_mut(device)?;
            *reads += 1;
            if *reads == 10 {
                fail_at(&state.script, Moment::Read);
            }
            let now = monotonic();
            let reading = match &mut state.played {
                Some(played) => {
                    let (ticks, timestamp_ns) = played.read(device);
                    Reading::Counter { ticks, timestamp_ns }
                }
                None => state.script.reading(device, now, now - state.epoch, *reads == 1),
            };
            Some((reading, state.script.slow_us, state.script.busy_us))
        })?;
        if slow > 0 {
            std::thread::sleep(Duration::from_micros(slow));
        }
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_micros(busy) {
            std::hint::spin_loop();
        }
        Some(reading)
    }
}

impl StandIn {
    /// Returns the present value of a gauge, or its status. `None`: there is no such device.
    pub fn gauge(&self, function: &str, device: usize, name: &str) -> Option<Result<f64, u32>> {
        let (value, slow) = self.running(function, |state| {
            let device = state.script.devices.get(device)?;
            let watts = device.wave.watts(monotonic());
            Some((device.gauges.get(name, watts), state.script.gauge_us))
        })?;
        if slow > 0 {
            std::thread::sleep(Duration::from_micros(slow));
        }
        Some(value)
    }
}

/// Crashes or hangs if the script asks for it at this moment.
fn fail_at(script: &Script, moment: Moment) {
    while script.crash == Some(moment) {
        // The signal is sent repeatedly: the handler of a Rust program handles the first one in its own way, and only the next
        // one ends it.
        let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::SEGV);
    }
    while script.hang == Some(moment) {
        std::thread::sleep(Duration::from_secs(1));
    }
}

/// Writes through a caller's pointer; false where it is null.
///
/// # Safety
/// `to` is null or points to memory of the caller that a `T` may be written to.
pub unsafe fn put<T>(to: *mut T, value: T) -> bool {
    if to.is_null() {
        return false;
    }
    // SAFETY: not null, and the caller of this function vouches for the rest. Unaligned, as C callers may do that.
    unsafe { to.write_unaligned(value) };
    true
}
