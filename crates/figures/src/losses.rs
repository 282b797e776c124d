//! Counts of losses: events and readings that are missing in a run's figures, or are in them only in part. Every reader of these
//! counts uses the tables [`RecordLosses::ALL`] and [`ReadingLosses::ALL`]. So a new count needs only a row here, and a
//! statement where it is counted.

use ampere_model::digits;
use ampere_timeline::attributor::{Attributor, Device};
use serde::{Deserialize, Serialize};

/// A count, and its names where it is shown.
#[derive(Debug)]
pub struct Count<T> {
    /// The metric's name without `_total`. Without `ampere_`, it is the key in summary.json and /snapshot.json.
    pub metric: &'static str,
    /// The help text of the metric.
    pub help: &'static str,
    pub label: &'static str,
    /// The name of the count after a number, in summary.txt and `ampere top`.
    pub word: &'static str,
    /// Whether a count above 0 means that the figures are less complete.
    pub is_loss: bool,
    /// Whether summary.txt shows the count even if it is 0.
    pub is_always_shown: bool,
    /// Reads the count from the struct.
    pub get: fn(&T) -> u64,
}

/// The meaning of a count for the figures.
enum Kind {
    /// The count is not a loss.
    Normal,
    /// The count is not a loss, and it is rarely above 0.
    RareNormal,
    /// The count is a loss: something is missing, or charged to another region.
    Loss,
    /// The count is a loss, and it is rarely above 0.
    RareLoss,
}

macro_rules! counts {
    ($(#[$doc:meta])* $name:ident { $($field:ident: $kind:expr, $word:literal, $label:literal, $help:literal;)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(default)]
        pub struct $name {
            $(#[doc = $help] pub $field: u64,)*
        }

        impl $name {
            /// The table of all counts of the struct.
            pub const ALL: &[Count<$name>] = &[$(Count {
                metric: concat!("ampere_", stringify!($field)),
                help: $help,
                label: $label,
                word: $word,
                is_loss: matches!($kind, Kind::Loss | Kind::RareLoss),
                is_always_shown: matches!($kind, Kind::Normal | Kind::Loss),
                get: |counts| counts.$field,
            },)*];

            /// Adds the counts of another process, device or node. Processes may report any number, so no sum overflows.
            pub fn add(&mut self, other: &$name) {
                $(self.$field = self.$field.saturating_add(other.$field);)*
            }

            /// Raises each count to that of another observer of the same process, device or node.
            pub fn raise(&mut self, other: &$name) {
                $(self.$field = self.$field.max(other.$field);)*
            }

            /// Iterates over the losses that occurred, with the words for them.
            pub fn occurred(&self) -> impl Iterator<Item = (u64, &'static str)> {
                let losses = $name::ALL.iter().filter(|count| count.is_loss);
                losses.map(|count| ((count.get)(self), count.word)).filter(|(number, _)| *number > 0)
            }
        }
    };
}

counts! {
    /// Counts about the events of a rank, of another process, or of all processes.
    RecordLosses {
        events: Kind::Normal, "events", "events",
            "Enter and leave events taken from the rings";
        coalesced_calls: Kind::Normal, "coalesced", "calls coalesced: recorded in groups",
            "Calls that were recorded together with others, without loss";
        suppressed_calls: Kind::Loss, "suppressed", "calls suppressed: left out because a ring was too full",
            "Calls whose enter and leave were left out because a ring was too full";
        unrecorded_calls: Kind::RareLoss, "unrecorded", "calls unrecorded: their threads had no ring",
            "Calls of locations without a ring, and of frames that were too deep; known when the process ends";
        unrecorded_kernels: Kind::RareLoss, "kernels not recorded", "kernels and copies not recorded",
            "Kernels and copies on GPUs that are not recorded, because their times could not be read";
        dropped_records: Kind::Loss, "dropped", "records dropped",
            "Records for which a ring had no space";
        late_events: Kind::Loss, "late", "events late",
            "Events that came after their time had been attributed; counted for the whole node, on its first process";
        repaired_events: Kind::RareLoss, "repaired events", "events repaired",
            "Frames that had to be closed, and leaves that had to be left out, because a stream did not nest";
        damaged_records: Kind::RareLoss, "damaged records", "records damaged",
            "Records that could not be decoded";
        kernels_without_launch: Kind::RareLoss, "kernels without a launch", "kernels without a launch",
            "Kernels, copies and fills whose launch is not known, although the launches of others on their stream are: \
             their call paths begin with themselves";
        left_out_definitions: Kind::RareLoss, "definitions left out", "definitions left out",
            "Definitions for which there was no space";
    }
}

counts! {
    /// Counts about the readings of a device, or of all devices.
    ReadingLosses {
        counter_resets: Kind::Loss, "counter resets", "counter resets",
            "How often a device's counter was reset";
        counter_wraps: Kind::RareNormal, "counter wraps", "counter wraps, which were corrected",
            "How often a device's counter wrapped, which was corrected";
        sampling_gaps: Kind::RareLoss, "gaps in sampling", "gaps in sampling",
            "Sample intervals that were so long that their energy is lost";
        unusable_samples: Kind::RareLoss, "misreadings", "readings that could not be true",
            "Readings that were not numbers, came out of order or were impossible";
    }
}

impl RecordLosses {
    /// Returns the counts that are in no record, and are lost when the rings are removed.
    pub fn only_in_rings(&self) -> RecordLosses {
        let RecordLosses { suppressed_calls, dropped_records, .. } = *self;
        RecordLosses { suppressed_calls, dropped_records, ..RecordLosses::default() }
    }

    /// Returns the number of calls and records that are lost.
    pub fn lost(&self) -> u64 {
        let RecordLosses { unrecorded_calls, unrecorded_kernels, dropped_records, damaged_records, .. } =
            *self;
        [unrecorded_calls, unrecorded_kernels, dropped_records, damaged_records]
            .into_iter()
            .fold(0, u64::saturating_add)
    }
}

impl ReadingLosses {
    /// Counts the losses among the readings of a device that the attributor has taken so far.
    pub fn of(attributor: &Attributor, device: &Device) -> ReadingLosses {
        let counter = device.counter_figures();
        ReadingLosses {
            counter_resets: attributor.engine.totals(device.views.ranks).counter_resets,
            counter_wraps: counter.wraps,
            sampling_gaps: counter.gaps,
            unusable_samples: counter.misreadings,
        }
    }
}

/// The errors of kernels' times that come from the clocks of GPUs. With several GPUs, each figure is the largest of all GPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GpuClocks {
    /// The largest error of such a time against the run's clock.
    pub error_seconds: f64,
    /// The largest drift of a GPU's clock against the run's, in seconds per second. `None` if it is not known: the runtime
    /// converts the times, or the run was too short.
    pub drift_ratio: Option<f64>,
}

impl GpuClocks {
    /// Returns the larger error and the larger drift of both.
    pub fn worst(one: Option<GpuClocks>, other: Option<GpuClocks>) -> Option<GpuClocks> {
        [one, other].into_iter().flatten().reduce(|one, other| GpuClocks {
            error_seconds: one.error_seconds.max(other.error_seconds),
            drift_ratio: [one.drift_ratio, other.drift_ratio].into_iter().flatten().reduce(f64::max),
        })
    }

    /// Whether the error is larger than 10 us, so that it matters for the times of short kernels.
    pub fn is_inexact(&self) -> bool {
        self.error_seconds > 10e-6
    }

    /// Describes the times of GPUs.
    pub fn text(&self) -> String {
        let drift =
            self.drift_ratio.map(|drift| format!("; their clocks drift by {:.1} us a second", drift * 1e6));
        format!("right to {:.0} us{}", (self.error_seconds * 1e6).ceil(), drift.unwrap_or_default())
    }
}

/// The counts of a node or of a run. As JSON, all groups of fields are flat.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Losses {
    /// The sum over all processes.
    #[serde(flatten)]
    pub records: RecordLosses,
    /// The sum over all devices.
    #[serde(flatten)]
    pub readings: ReadingLosses,
    /// Counters that stood still when last seen.
    #[serde(default)]
    pub stale_counters: u64,
    /// The largest difference between the energy of a device and the sum of its parts in a view.
    pub conservation_error_joules: f64,
    /// The times of kernels that were recorded without Score-P; `None` if there were none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_clocks: Option<GpuClocks>,
}

impl Losses {
    /// Adds the counts of another node.
    pub fn add(&mut self, other: &Losses) {
        self.gpu_clocks = GpuClocks::worst(self.gpu_clocks, other.gpu_clocks);
        self.records.add(&other.records);
        self.readings.add(&other.readings);
        self.stale_counters = self.stale_counters.saturating_add(other.stale_counters);
        self.conservation_error_joules = self.conservation_error_joules.max(other.conservation_error_joules);
    }

    /// Raises each count to that of a later report of the same node.
    pub fn raise(&mut self, later: &Losses) {
        self.gpu_clocks = GpuClocks::worst(self.gpu_clocks, later.gpu_clocks);
        self.records.raise(&later.records);
        self.readings.raise(&later.readings);
        self.stale_counters = later.stale_counters;
        self.conservation_error_joules = self.conservation_error_joules.max(later.conservation_error_joules);
    }

    /// Iterates over the losses that occurred, with the words for them.
    pub fn occurred(&self) -> impl Iterator<Item = (u64, &'static str)> {
        let stale = (self.stale_counters, "stale counters");
        let stale = std::iter::once(stale).filter(|(number, _)| *number > 0);
        self.records.occurred().chain(self.readings.occurred()).chain(stale)
    }

    /// Returns all counts in one line.
    pub fn text(&self) -> String {
        let clocks = self.gpu_clocks.map(|clocks| format!("; times of GPUs {}", clocks.text()));
        format!(
            "{}; {}; conservation error {:.1e} J{}",
            words(RecordLosses::ALL, &self.records),
            words(ReadingLosses::ALL, &self.readings),
            self.conservation_error_joules,
            clocks.unwrap_or_default()
        )
    }
}

fn words<T>(all: &[Count<T>], of: &T) -> String {
    let shown = all.iter().map(|count| (count, (count.get)(of)));
    let shown = shown.filter(|(count, number)| count.is_always_shown || *number > 0);
    shown
        .map(|(kind, number)| format!("{} {}", digits::count(number), kind.word))
        .collect::<Vec<_>>()
        .join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn losses() -> Losses {
        let mut losses = Losses { conservation_error_joules: 2e-9, stale_counters: 1, ..Losses::default() };
        (losses.records.events, losses.records.late_events) = (7, u64::MAX);
        losses.readings.counter_resets = 2;
        losses
    }

    #[test]
    fn losses_of_nodes_are_added_without_overflow() {
        let mut sum = losses();
        sum.add(&losses());
        assert_eq!((sum.records.events, sum.records.late_events), (14, u64::MAX));
        assert_eq!((sum.readings.counter_resets, sum.stale_counters), (4, 2));
        assert_eq!(sum.conservation_error_joules, 2e-9, "the largest");
        let mut known = sum.records;
        known.raise(&RecordLosses { events: 3, dropped_records: 5, ..RecordLosses::default() });
        assert_eq!((known.events, known.dropped_records), (14, 5));
    }

    #[test]
    fn times_of_gpus_are_as_good_as_the_worst_of_them() {
        let with = |error_seconds, drift_ratio| Losses {
            gpu_clocks: Some(GpuClocks { error_seconds, drift_ratio }),
            ..Losses::default()
        };
        let mut sum = Losses::default();
        for node in [with(1.2e-6, None), Losses::default(), with(0.4e-6, Some(42e-6))] {
            sum.add(&node);
        }
        assert!(!sum.gpu_clocks.unwrap().is_inexact() && with(11e-6, None).gpu_clocks.unwrap().is_inexact());
        let shown = sum.text();
        let (_, shown) = shown.split_once(" J; ").unwrap();
        assert_eq!(shown, "times of GPUs right to 2 us; their clocks drift by 42.0 us a second");
        let json = serde_json::to_value(sum).unwrap();
        assert_eq!(json["gpu_clocks"], serde_json::json!({"error_seconds": 1.2e-6, "drift_ratio": 42e-6}));
        assert!(serde_json::to_value(Losses::default()).unwrap().get("gpu_clocks").is_none());
    }

    #[test]
    fn large_counts_are_in_groups_of_digits() {
        let records = RecordLosses { events: 57022, ..RecordLosses::default() };
        let text = Losses { records, ..Losses::default() }.text();
        assert!(text.starts_with("57 022 events, 0 coalesced"), "{text}");
    }

    #[test]
    fn losses_that_occurred_are_named_and_others_are_not() {
        let occurred: Vec<_> = losses().occurred().collect();
        assert_eq!(occurred, [(u64::MAX, "late"), (2, "counter resets"), (1, "stale counters")]);
        let quiet = Losses::default();
        assert_eq!(quiet.occurred().count(), 0);
        assert_eq!(
            quiet.text(),
            "0 events, 0 coalesced, 0 suppressed, 0 dropped, 0 late; 0 counter resets; \
             conservation error 0.0e0 J"
        );
    }
}
