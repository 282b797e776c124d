//! Numbers of locations, views and call paths, and the steps of a location.

use ampere_model::{RegionRef, Timestamp};

/// The number of a location, in the order of [`Engine::add_location`](crate::Engine::add_location).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LocationIndex(pub u32);

/// The number of a view, in the order of [`Engine::add_view`](crate::Engine::add_view) and [`Engine::fork`](crate::Engine::fork).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ViewIndex(pub u32);

/// A call path of one location.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeIndex(pub u32);

impl NodeIndex {
    /// The path without a frame.
    pub const ROOT: NodeIndex = NodeIndex(0);

    /// Whether this is the path without a frame.
    pub fn is_root(self) -> bool {
        self == NodeIndex::ROOT
    }
}

/// An enter or a leave of a location. It is small because very many may be waiting to be put in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The time at which it happens.
    pub time: Timestamp,
    pub(crate) region: u32,
    /// The number of calls that an enter stands for, or [`LEAVE`].
    pub(crate) calls: u32,
}

/// The number of calls of a step that leaves the innermost frame.
pub(crate) const LEAVE: u32 = u32::MAX;

impl Step {
    /// Makes an enter: see [`Engine::enter_calls`](crate::Engine::enter_calls).
    #[inline]
    pub fn enter(time: Timestamp, region: RegionRef, calls: u32) -> Step {
        Step { time, region: region.0, calls: calls.min(LEAVE - 1) }
    }

    /// Makes a leave: see [`Engine::leave`](crate::Engine::leave).
    #[inline]
    pub fn leave(time: Timestamp) -> Step {
        Step { time, region: 0, calls: LEAVE }
    }

    /// Whether this is an enter.
    pub fn is_enter(self) -> bool {
        self.calls != LEAVE
    }

    /// Returns the number of calls that an enter stands for; 0 if it continues a call that was counted before.
    pub fn calls(self) -> u32 {
        if self.is_enter() { self.calls } else { 0 }
    }

    /// Returns the region of the frame that is entered.
    pub fn region(self) -> Option<RegionRef> {
        self.is_enter().then_some(RegionRef(self.region))
    }
}

/// A change of a consumer's innermost frame, which becomes `node` at `time`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Move {
    pub time: Timestamp,
    pub node: NodeIndex,
    /// The number of calls that the entered frame stands for, or [`LEAVE`].
    pub calls: u32,
}
