//! Upper bounds on what an application can make the collector hold. A defective or hostile program loses its own figures, but
//! does not use up the memory of the node. Correct programs reach only the bound on descriptors, which loses nothing.

use crate::files_max;

/// An upper bound on the open frames of one location, which also holds where nothing is attributed and there are no call paths.
const FRAMES_MAX: usize = 1 << 20;
/// Upper bounds on the call paths of one location and of all locations.
const CALLPATHS_MAX: usize = 1 << 19;
const ALL_CALLPATHS_MAX: usize = 1 << 21;
/// An upper bound on the processes of one run.
pub const PROCESSES_MAX: usize = 1 << 16;
/// An upper bound on the processes that the collector holds descriptors for, two each: see [`with_descriptors_max`].
const WITH_DESCRIPTORS_MAX: usize = 64;
/// An upper bound on the events that wait for earlier events of other locations; each takes 16 bytes.
pub const WAITING_MAX: usize = 1 << 25;
/// While more events wait than [`WAITING_MAX`], events that are further than this in the future count as damaged.
pub const FUTURE: std::time::Duration = std::time::Duration::from_secs(1);

/// Returns the number of processes that the collector may hold descriptors for: they take at most an eighth of the files that may
/// be open. Checks of further processes cost a little more.
pub fn with_descriptors_max() -> usize {
    WITH_DESCRIPTORS_MAX.min(files_max() / 16)
}

/// Returns the reason to stop reading a location with this number of open frames, if there is one.
pub fn too_deep(frames: usize) -> Option<String> {
    (frames > FRAMES_MAX).then(|| format!("has more than {FRAMES_MAX} open frames"))
}

/// Counts call paths, and compares their numbers with the limits.
#[derive(Debug, Default)]
pub struct CallPaths {
    /// The number of call paths of all locations.
    all: usize,
}

impl CallPaths {
    /// Counts the new call paths of a location, from its former and present number. Returns the reason to stop reading it, if
    /// there is one.
    pub fn grew(&mut self, before: usize, after: usize) -> Option<String> {
        self.all += after.saturating_sub(before);
        if after > CALLPATHS_MAX {
            Some(format!("has more than {CALLPATHS_MAX} call paths"))
        } else if after > before && self.all > ALL_CALLPATHS_MAX {
            Some(format!("has one call path more than the {ALL_CALLPATHS_MAX} that a run may have"))
        } else {
            None
        }
    }
}
