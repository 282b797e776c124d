//! The joules to which shares refer. A share is always a part of the joules of the whole run: of its dynamic joules if they are
//! known, and otherwise of all its joules. Rows are sorted by the same kind of joules. The head of the column, or the text next
//! to the share, names it.

use crate::snapshot::Snapshot;
use crate::summary::{Summary, topmost, view};
use ampere_model::sum;

/// The heading of a column of shares of the run's dynamic joules.
pub const OF_DYNAMIC: &str = "of dynamic";
/// The heading of a column of shares of all joules of the run.
pub const OF_TOTAL: &str = "of total";
/// The heading of a column of shares of time, if a run has no joules.
pub const OF_TIME: &str = "of time";

/// The joules of a whole run: of the devices of all nodes that no other device contains.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Whole {
    pub total: f64,
    /// The dynamic joules, as far as they are known.
    pub dynamic: f64,
}

/// Returns the heading of a column of shares of joules.
pub fn head(is_dynamic: bool) -> &'static str {
    if is_dynamic { OF_DYNAMIC } else { OF_TOTAL }
}

impl Whole {
    pub fn of(summary: &Summary) -> Whole {
        let mut whole = Whole::default();
        for device in topmost(summary) {
            let active = ["ranks", "kernels"].iter().find_map(|name| view(device, name));
            let active = active.filter(|view| view.is_active());
            whole.total += device.total_joules;
            whole.dynamic +=
                active.map_or(device.dynamic_joules.unwrap_or_default(), |view| device.own_whole(view));
        }
        whole
    }

    pub fn of_snapshot(snapshot: &Snapshot) -> Whole {
        let known = snapshot.topmost().filter_map(|device| device.active.as_ref());
        Whole {
            total: sum(snapshot.topmost().map(|device| device.joules)),
            dynamic: sum(known.map(|active| active.dynamic_joules)),
        }
    }

    /// Returns the joules to which shares refer.
    pub fn joules(self, is_dynamic: bool) -> f64 {
        if is_dynamic { self.dynamic } else { self.total }
    }
}
