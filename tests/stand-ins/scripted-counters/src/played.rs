//! Counters that show recorded readings one after the other, at times that are known: see `play=` in [`crate::script`].
//!
//! The directory has a file `values.N` for device N, with one value on each line. The counters show their first values until
//! there is a file `start`. Each value is then shown for at least [`SHOWN_MIN`], and in any case until it has been read. The time
//! of each value's reading is in `times.N`: 8 bytes for each, nanoseconds of CLOCK_BOOTTIME. After the last value there are some
//! more times, so that whoever waits for a value can also wait for the next two. At the end there is a file `end`.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// The least time between the first readings of two values, in nanoseconds.
const SHOWN_MIN: u64 = 3_000_000;
/// A reading that took longer than this was interrupted. If the next reading starts within this time, it repeats the
/// interrupted one: it shows the same value, and its time replaces the earlier one.
const INTERRUPTION: u64 = 100_000;
/// Number of times after the last value.
const AFTER_LAST: usize = 4;

/// The counters of all devices.
pub struct Played {
    directory: PathBuf,
    is_started: bool,
    devices: Vec<Device>,
}

struct Device {
    values: Vec<u64>,
    times: File,
    /// Number of the value that is shown.
    at: usize,
    /// When it was read first, and when the last reading began and ended.
    shown: u64,
    last: (u64, u64),
}

/// Returns the time of CLOCK_BOOTTIME in nanoseconds.
fn now() -> u64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

impl Played {
    /// Opens the files of this number of devices.
    pub fn open(directory: &str, devices: usize) -> Result<Played, String> {
        let directory = Path::new(directory);
        let devices = (0..devices).map(|number| {
            let path = directory.join(format!("values.{number}"));
            let named = |error: std::io::Error| format!("{}: {error}", path.display());
            let text = std::fs::read_to_string(&path).map_err(named)?;
            let values = text.lines().map(super::script::number).collect::<Result<Vec<u64>, _>>()?;
            let times = File::create(directory.join(format!("times.{number}"))).map_err(named)?;
            if values.is_empty() {
                return Err(format!("{}: no values", path.display()));
            }
            Ok(Device { values, times, at: 0, shown: 0, last: (0, 0) })
        });
        let devices = devices.collect::<Result<_, String>>()?;
        Ok(Played { directory: directory.to_owned(), is_started: false, devices })
    }

    /// Returns the value that a device shows now, and its time.
    pub fn read(&mut self, device: usize) -> (u64, u64) {
        self.is_started = self.is_started || self.directory.join("start").exists();
        let is_started = self.is_started;
        let device = &mut self.devices[device];
        let begin = now();
        let (last_begin, last_end) = device.last;
        let is_repeated = last_end - last_begin > INTERRUPTION && begin - last_end < INTERRUPTION;
        let is_next = is_started
            && !is_repeated
            && begin - device.shown >= SHOWN_MIN
            && device.at < device.values.len() + AFTER_LAST;
        device.at += usize::from(is_next);
        if is_next || is_repeated || device.shown == 0 {
            device.shown = begin;
            let bytes = begin.to_le_bytes();
            device.times.write_all_at(&bytes, device.at as u64 * 8).expect("room for a time");
        }
        device.last = (begin, now());
        let shown = (device.values[device.at.min(device.values.len() - 1)], device.shown);
        if is_next && self.devices.iter().all(|device| device.at >= device.values.len() + AFTER_LAST) {
            File::create(self.directory.join("end")).expect("room for a file");
        }
        shown
    }
}
