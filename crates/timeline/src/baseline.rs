//! The power that a device draws without the job. Under the policy *active* the joules of this power are static, and all others
//! are dynamic.

use ampere_attribution::IdleIntervals;

/// The power that a device draws without the job.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Baseline {
    /// The power in watts.
    pub watts: f64,
    /// The origin of the power.
    pub kind: BaselineKind,
    /// The number of intervals whose mean it is.
    pub samples: u64,
}

/// The origin of a baseline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BaselineKind {
    /// The power that the settings state.
    Set,
    /// `ampere calibrate` measured it for the settings.
    Calibrated,
    /// The idle watts of the estimate.
    Estimate,
    /// The mean power of intervals in which nothing of the run was active.
    IdleIntervals,
}

/// The minimum number of intervals for a mean power.
const INTERVALS_MIN: u64 = 10;

impl Baseline {
    /// Returns a baseline of a known power.
    pub(crate) fn known(watts: f64, kind: BaselineKind) -> Baseline {
        Baseline { watts, kind, samples: 0 }
    }

    /// Returns the mean power in the intervals without activity, if there are enough of them.
    pub fn of_idle(intervals: IdleIntervals, ticks_per_second: u64) -> Option<Baseline> {
        let IdleIntervals { count, joules, ticks } = intervals;
        (count >= INTERVALS_MIN && ticks > 0).then(|| Baseline {
            watts: joules / (ticks as f64 / ticks_per_second as f64),
            kind: BaselineKind::IdleIntervals,
            samples: count,
        })
    }
}

impl BaselineKind {
    /// Returns the name in summaries and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            BaselineKind::Set => "set",
            BaselineKind::Calibrated => "calibrated",
            BaselineKind::Estimate => "estimate",
            BaselineKind::IdleIntervals => "idle intervals",
        }
    }
}
