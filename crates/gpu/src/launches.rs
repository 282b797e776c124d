//! The times of the latest launches. No kernel begins before its launch, so these times limit the error of the device's clock.

use std::sync::atomic::{AtomicU64, Ordering};

/// The number of launches that are remembered.
const LAUNCHES_MAX: usize = 4096;

/// The times of the latest launches, by their numbers.
pub struct Launches([Launched; LAUNCHES_MAX]);

struct Launched {
    number: AtomicU64,
    ticks: AtomicU64,
}

impl Launches {
    /// A list without launches.
    #[allow(clippy::new_without_default)]
    pub const fn new() -> Launches {
        Launches([const { Launched { number: AtomicU64::new(0), ticks: AtomicU64::new(0) } }; LAUNCHES_MAX])
    }

    /// Records that the launch with this number, which is not 0, is being made at this time, in ticks of the run's clock. Its
    /// kernel must not begin earlier.
    pub fn add(&self, number: u64, ticks: u64) {
        let launched = &self.0[number as usize % LAUNCHES_MAX];
        launched.number.store(0, Ordering::Relaxed);
        launched.ticks.store(ticks, Ordering::Release);
        launched.number.store(number, Ordering::Release);
    }

    /// Returns the time of the launch with this number, if it is among the latest ones.
    pub fn at(&self, number: u64) -> Option<u64> {
        let launched = &self.0[number as usize % LAUNCHES_MAX];
        let is_it = || launched.number.load(Ordering::Acquire) == number && number != 0;
        let ticks = is_it().then(|| launched.ticks.load(Ordering::Acquire));
        // A later launch may have taken its place in between.
        ticks.filter(|_| is_it())
    }
}
