//! How joules are divided.

/// How the joules of a sample interval go to the frames that ran in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Policy {
    /// Evenly over time; where no consumer is active they are idle.
    #[default]
    TimeSliced,
    /// All to the frames that ran, by exclusive run time; idle only where none ran at all.
    BusyOnly,
}

/// Whether consumers that are active at once split the energy or each get all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Sharing {
    /// They split it.
    #[default]
    Shared,
    /// Each gets all of it: energy counts twice, on purpose.
    Independent,
}

impl Policy {
    /// As settings and the summary write it.
    pub fn as_str(self) -> &'static str {
        match self {
            Policy::TimeSliced => "time_sliced",
            Policy::BusyOnly => "busy_only",
        }
    }
}

impl Sharing {
    /// As settings and the summary write it.
    pub fn as_str(self) -> &'static str {
        match self {
            Sharing::Shared => "shared",
            Sharing::Independent => "independent",
        }
    }
}
