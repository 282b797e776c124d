//! What an application can make the collector hold, at most. No correct program reaches these numbers. One that is defective
//! or hostile loses its own figures, and the memory of the node is not used up.

/// Open frames of one location. Where nothing is attributed to it, there are no call paths that would tell.
const MOST_FRAMES: usize = 1 << 20;
/// Call paths of one location, and of all.
const MOST_CALLPATHS: usize = 1 << 19;
const MOST_CALLPATHS_OF_ALL: usize = 1 << 21;
/// Processes of one run.
pub const MOST_PROCESSES: usize = 1 << 16;
/// Processes that the collector holds descriptors for, two each. Looking at the others costs it a little more.
pub const MOST_WITH_DESCRIPTORS: usize = 64;
/// Events that wait for others in the order of time: 16 bytes each.
pub const MOST_WAITING: usize = 1 << 25;
/// Where so many wait, events that are further than this in the future are taken as damaged.
pub const FUTURE: std::time::Duration = std::time::Duration::from_secs(1);

/// Why a location with so many open frames is not to be read any further, if so.
pub fn too_deep(frames: usize) -> Option<String> {
    (frames > MOST_FRAMES).then(|| format!("has more than {MOST_FRAMES} open frames"))
}

/// Call paths so far.
#[derive(Debug, Default)]
pub struct CallPaths {
    all: usize,
}

impl CallPaths {
    /// A location had so many and has so many now. Why it is not to be read any further, if so.
    pub fn grew(&mut self, before: usize, after: usize) -> Option<String> {
        self.all += after.saturating_sub(before);
        if after > MOST_CALLPATHS {
            Some(format!("has more than {MOST_CALLPATHS} call paths"))
        } else if after > before && self.all > MOST_CALLPATHS_OF_ALL {
            Some(format!("has one call path more than the {MOST_CALLPATHS_OF_ALL} that a run can have"))
        } else {
            None
        }
    }
}
