//! The joules of waits, and of their causes.

use ampere_attribution::{LocationIndex, NodeIndex, Stay, ViewIndex};
use ampere_model::Timestamp;

/// The kinds of waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A receive that waits for the start of the send.
    LateSender,
    /// A send that waits for the start of the receive.
    LateReceiver,
    /// A barrier that waits for the last rank.
    Barrier,
    /// A collective operation with data from all to all, which waits for the last rank.
    AllToAll,
    /// A collective operation with data from one rank to all, which waits for that rank.
    OneToAll,
    /// A collective operation with data from all to one rank, in which that rank waits for the last one.
    AllToOne,
}

impl Kind {
    /// All kinds, by their numbers.
    pub const ALL: [Kind; 6] =
        [Kind::LateSender, Kind::LateReceiver, Kind::Barrier, Kind::AllToAll, Kind::OneToAll, Kind::AllToOne];

    /// Returns the kind's position in the order of kinds. If several partners arrive at the same time, the wait of the first
    /// kind counts.
    pub(super) fn order(self) -> u8 {
        (self as u8).min(Kind::Barrier as u8)
    }

    /// Returns the name of the kind in summaries.
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::LateSender => "late sender",
            Kind::LateReceiver => "late receiver",
            Kind::Barrier => "barrier",
            Kind::AllToAll => "n-to-n",
            Kind::OneToAll => "1-to-n",
            Kind::AllToOne => "n-to-1",
        }
    }
}

/// Joules by the kind of wait.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ByKind([f64; Kind::ALL.len()]);

impl ByKind {
    pub(super) fn add(&mut self, kind: Kind, joules: f64) {
        self.0[kind as usize] += joules;
    }

    /// Returns the joules of a kind.
    pub fn get(&self, kind: Kind) -> f64 {
        self.0[kind as usize]
    }

    /// Returns the joules of all kinds.
    pub fn sum(&self) -> f64 {
        self.0.iter().sum()
    }
}

/// A call path of a location.
type Path = (LocationIndex, NodeIndex);

/// The joules of call paths.
#[derive(Clone, Debug, Default)]
pub struct ByPath {
    all: Vec<(Path, ByKind)>,
    /// By the numbers of the location and the call path: its index in `all` plus 1; 0 if it has no joules.
    places: Vec<Vec<u32>>,
}

impl ByPath {
    /// Adds joules to those of a call path.
    #[inline]
    pub(super) fn add(&mut self, path: Path, kind: Kind, joules: f64) {
        let [location, node] = [path.0.0, path.1.0].map(|number| number as usize);
        if location >= self.places.len() {
            self.places.resize_with(location + 1, Vec::new);
        }
        let places = &mut self.places[location];
        if node >= places.len() {
            places.resize(node + 1, 0);
        }
        if places[node] == 0 {
            self.all.push((path, ByKind::default()));
            places[node] = self.all.len() as u32;
        }
        self.all[places[node] as usize - 1].1.add(kind, joules);
    }

    /// Returns the joules of a call path, if it has any.
    pub fn get(&self, (location, node): Path) -> Option<&ByKind> {
        let place = *self.places.get(location.0 as usize)?.get(node.0 as usize)?;
        self.all.get((place as usize).checked_sub(1)?).map(|(_, joules)| joules)
    }

    /// Iterates over the call paths that have joules.
    pub fn iter(&self) -> impl Iterator<Item = (Path, &ByKind)> {
        self.all.iter().map(|(path, joules)| (*path, joules))
    }
}

/// The waits of one device. `waited`, `caused` and `pairs` have the same sum.
#[derive(Clone, Debug, Default)]
pub struct ViewWaits {
    /// The joules that MPI calls used while they waited.
    pub waited: ByPath,
    /// The same joules, at the call paths that caused the waits. They may be of ranks that do not draw from the device.
    pub caused: ByPath,
    /// The same joules, by the group of ranks that waited and the group of those that caused it. A group in which no rank has
    /// waited has an empty list.
    pub pairs: Vec<Vec<f64>>,
    /// The part of these joules that was caused while the late rank was not on a CPU, as far as CPU times are known.
    pub not_on_cpu: f64,
}

impl ViewWaits {
    /// Adds joules of a wait to a pair: the group of ranks that waited, and the group that caused the wait.
    pub(super) fn add_pair(&mut self, waiting: u32, cause: u32, joules: f64) {
        let [waiting, cause] = [waiting, cause].map(|group| group as usize);
        self.pairs.resize_with(self.pairs.len().max(waiting + 1), Vec::new);
        let causes = &mut self.pairs[waiting];
        causes.resize(causes.len().max(cause + 1), 0.0);
        causes[cause] += joules;
    }
}

/// A wait of one call path, over an interval in which the call path did not change.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    pub location: LocationIndex,
    pub view: ViewIndex,
    pub kind: Kind,
    pub start: Timestamp,
    pub end: Timestamp,
    pub joules: f64,
}

/// Numbers of matched and unmatched messages, and of calls and waits whose figures are inexact.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// The number of messages of which both sides are known.
    pub matched_messages: u64,
    /// The number of messages of which only one side is known.
    pub unmatched_messages: u64,
    /// The number of receives that completed after another receive with the same ranks and tag, although that one was started
    /// later. They are matched in the order of completion, so that the two may have each other's messages.
    pub reordered_receives: u64,
    /// The number of calls that took so long that their start was moved to a later time.
    pub cut_calls: u64,
    /// The number of waits whose call path was no longer known.
    pub forgotten_waits: u64,
}

/// The results so far.
#[derive(Default)]
pub(super) struct Figures {
    of_views: Vec<Option<ViewWaits>>,
    pub counts: Counts,
    /// The spans that were not taken yet, if they are recorded.
    pub spans: Option<Vec<Span>>,
    /// The length of the history at which waits are settled next.
    pub settle_at: usize,
    /// Used for one wait after the other, to save allocations.
    pub found: Found,
}

/// What is found about a wait.
#[derive(Default)]
pub(super) struct Found {
    /// The call paths that caused it, and the ticks that each caused. A call path may occur several times.
    pub causes: Vec<(Path, u64)>,
    /// The sum of these ticks.
    pub ticks: u64,
    /// The ranks on the way to these, which are not followed again.
    pub passed: Vec<u32>,
    /// The ticks of the causes in which the late rank was not on a CPU, as far as CPU times are known.
    pub not_on_cpu: f64,
    /// The stays in the frame of the wait, and their joules.
    pub own: Vec<(Stay, f64)>,
}

impl Figures {
    pub fn of(&self, view: ViewIndex) -> Option<&ViewWaits> {
        self.of_views.get(view.0 as usize)?.as_ref()
    }

    pub fn of_mut(&mut self, view: ViewIndex) -> &mut ViewWaits {
        let at = view.0 as usize;
        self.of_views.resize_with(self.of_views.len().max(at + 1), || None);
        self.of_views[at].get_or_insert_default()
    }
}
