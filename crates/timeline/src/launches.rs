//! Finds who launched the work on a GPU: keeps the call path of a thread at an enter with a correlation id, for the kernels with
//! that id.
//!
//! An id belongs to one process. The thread's call path is the one that it has just after the enter of the launch, with the
//! sampled frames around it; frames of samples that are taken later do not change it. A launch counts only for work that begins
//! after it. Therefore a live run, which gets the events of GPU streams late, and a trace, which has all of them in time order,
//! find the same launches.
//!
//! The memory is bounded: at least the latest [`LAUNCHES_KEPT`] launches of each process are remembered.

use ampere_attribution::{Engine, LocationIndex, NodeIndex};
use ampere_model::Timestamp;
use std::collections::HashMap;

/// A call that launches work on a GPU.
#[derive(Clone, Copy)]
struct Launch {
    location: LocationIndex,
    /// The call path in the tree of `location`.
    path: NodeIndex,
    time: Timestamp,
}

/// At least this number of launches of a process is remembered, and at most twice as many.
pub(crate) const LAUNCHES_KEPT: usize = 1 << 17;

/// The launches of one process, in two halves; the older half is forgotten as a whole.
#[derive(Default)]
struct Launches {
    latest: HashMap<u64, Launch>,
    before: HashMap<u64, Launch>,
}

impl Launches {
    fn add(&mut self, id: u64, launch: Launch) {
        if self.latest.len() >= LAUNCHES_KEPT {
            // The memory of the older half is used again.
            std::mem::swap(&mut self.latest, &mut self.before);
            self.latest.clear();
        }
        self.latest.insert(id, launch);
    }

    fn find(&self, id: u64) -> Option<&Launch> {
        self.latest.get(&id).or_else(|| self.before.get(&id))
    }
}

/// The launches of all processes.
#[derive(Default)]
pub(crate) struct AllLaunches {
    by_process: HashMap<u64, Launches>,
    /// For each stream and call path of a thread, the same call path in the tree of the stream.
    paths: HashMap<(LocationIndex, LocationIndex, NodeIndex), NodeIndex>,
}

impl AllLaunches {
    /// Adds the launch with this id. A thread of the process must have just entered the call.
    pub fn add(
        &mut self,
        process: u64,
        id: u64,
        (location, time): (LocationIndex, Timestamp),
        engine: &Engine,
    ) {
        let launch = Launch { location, path: engine.current_path(location), time };
        self.by_process.entry(process).or_default().add(id, launch);
    }

    /// Returns the call path of the launch with this id, in the tree of the stream on which the launched work begins. `None` if
    /// the launch is not known.
    pub fn path_on(
        &mut self,
        stream: LocationIndex,
        process: u64,
        (id, begins): (u64, Timestamp),
        engine: &mut Engine,
    ) -> Option<NodeIndex> {
        let launch = self.by_process.get(&process)?.find(id).filter(|launch| launch.time < begins)?;
        let key = (stream, launch.location, launch.path);
        Some(*self.paths.entry(key).or_insert_with(|| engine.same_path(stream, launch.location, launch.path)))
    }
}
