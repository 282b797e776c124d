//! Measures how long a tool's functions take, without the stopwatch's own time. The slowest tenth is left out, because other
//! processes have probably interrupted them.

use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Instant;

/// The durations of calls of one kind in nanoseconds, each with the number of events that the call handled.
pub struct Stopwatch(Mutex<Vec<(u64, usize)>>);

impl Stopwatch {
    pub const fn new() -> Stopwatch {
        Stopwatch(Mutex::new(Vec::new()))
    }

    /// Runs and times a function that handles this number of events.
    pub fn time<T>(&self, events: usize, run: impl FnOnce() -> T) -> T {
        let begun = Instant::now();
        let done = run();
        self.add(begun, events);
        done
    }

    /// Records that a function, which was called at this time and handled this number of events, has just returned.
    pub fn add(&self, begun: Instant, events: usize) {
        let took = begun.elapsed().as_nanos() as u64;
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((took, events));
    }

    /// Returns nanoseconds per event.
    pub fn mean(&self) -> f64 {
        static OWN: OnceLock<f64> = OnceLock::new();
        let own = *OWN.get_or_init(|| {
            let empty = Stopwatch::new();
            (0..10_000).for_each(|_| empty.time(1, || ()));
            empty.mean_of_fastest(0.0)
        });
        self.mean_of_fastest(own)
    }

    fn mean_of_fastest(&self, own: f64) -> f64 {
        let mut times = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        times.retain(|(_, events)| *events > 0);
        times.sort_by(|one, other| (one.0 * other.1 as u64).cmp(&(other.0 * one.1 as u64)));
        times.truncate(times.len() - times.len() / 10);
        let took: f64 = times.iter().map(|(took, _)| *took as f64 - own).sum();
        took / times.iter().map(|(_, events)| *events as f64).sum::<f64>().max(1.0)
    }
}
