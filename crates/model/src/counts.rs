//! What the processes of a run count by name: units of work, ranges that are not frames, and events. Each count is a series of
//! cumulative samples, which the trace has as a metric.

/// The interface and the name of the ranges in which a program had switched recording off.
pub const NOT_RECORDED: (&str, &str) = ("MPI_Pcontrol", "not recorded");

/// A kind of count. The numbers are those of the run's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Counted {
    /// Units of work.
    Work = 1,
    /// Ranges that have started. Their names are `INTERFACE::NAME`.
    RangesStarted = 2,
    /// Ranges that have ended.
    RangesEnded = 3,
    /// The seconds of the ranges that have ended.
    RangeSeconds = 4,
    /// Events of the processors or the kernel, such as instructions, in all threads that are sampled.
    Events = 5,
}

impl Counted {
    /// All kinds, by their numbers.
    pub const ALL: [Counted; 5] =
        [Counted::Work, Counted::RangesStarted, Counted::RangesEnded, Counted::RangeSeconds, Counted::Events];

    /// Returns the kind with this number.
    pub fn of_number(number: u32) -> Option<Counted> {
        Counted::ALL.into_iter().find(|kind| *kind as u32 == number)
    }

    /// Returns the prefix of the names of the metrics of this kind. The name of the work, the ranges or the event follows it.
    pub const fn prefix(self) -> &'static str {
        match self {
            Counted::Work => "ampere::work::",
            Counted::RangesStarted => "ampere::ranges_started::",
            Counted::RangesEnded => "ampere::ranges_ended::",
            Counted::RangeSeconds => "ampere::range_seconds::",
            Counted::Events => "ampere::events::",
        }
    }

    /// Returns the name of the metric for a name of this kind.
    pub fn metric(self, name: &str) -> String {
        format!("{}{name}", self.prefix())
    }

    /// Returns what a metric counts, and the name of the work, the ranges or the event.
    pub fn of_metric(metric: &str) -> Option<(Counted, &str)> {
        Counted::ALL.into_iter().find_map(|kind| Some((kind, metric.strip_prefix(kind.prefix())?)))
    }

    /// Returns a description and the unit, for the trace.
    pub const fn description(self) -> (&'static str, &'static str) {
        match self {
            Counted::Work => ("units of work that were counted", "1"),
            Counted::RangesStarted => ("ranges that have started", "1"),
            Counted::RangesEnded => ("ranges that have ended", "1"),
            Counted::RangeSeconds => ("seconds of the ranges that have ended", "s"),
            Counted::Events => ("events that were counted in the threads that are sampled", "1"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_has_the_kind_and_the_name_that_it_was_made_of() {
        for kind in Counted::ALL {
            let metric = kind.metric("NVTX::a::b");
            assert_eq!(Counted::of_metric(&metric), Some((kind, "NVTX::a::b")));
            assert_eq!(Counted::of_number(kind as u32), Some(kind));
        }
        assert_eq!((Counted::of_metric("ampere::power"), Counted::of_number(0)), (None, None));
    }
}
