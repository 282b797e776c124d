//! The receiver of a trace's events, and the result of reading them.

use crate::communication::Communication;
use crate::definitions::{MetricRef, MetricValue};
use crate::table::{AttributeRef, LocationRef, RegionRef};
use std::ops::ControlFlow;

/// Whether to continue with the next event.
pub type Flow = ControlFlow<()>;

/// Receives the events of a trace. All methods may stop the reading with [`ControlFlow::Break`].
///
/// Times are in ticks of the trace's clock, with the offsets in the location's definitions applied, as OTF2 does. Regions and
/// metrics are references into [`Trace::definitions`], which may be undefined there in a damaged trace. Enters and leaves of a
/// location are nested: each leave ends the innermost region. Leaves in a trace that do not match are resolved by the regions
/// that they name: see [`Nesting`].
pub trait EventHandler {
    /// Returns the attribute of enters that the handler wants. Called once, before the first event.
    fn attribute(&self) -> Option<AttributeRef> {
        None
    }

    /// Receives the enter of a location into a region. `_value` is the value of the wanted attribute, if the event has it. It
    /// is 0 if the region is entered again because a region around it was left.
    fn enter(&mut self, _location: LocationRef, _time: u64, _region: RegionRef, _value: Option<u64>) -> Flow {
        ControlFlow::Continue(())
    }

    /// Returns a second attribute of enters that the handler wants. Called once, before the first event.
    fn second_attribute(&self) -> Option<AttributeRef> {
        None
    }

    /// Called directly before [`enter`](EventHandler::enter) for the same location: that enter has this value of the second
    /// attribute, and no value of the first.
    fn second_value(&mut self, _location: LocationRef, _value: u64) -> Flow {
        ControlFlow::Continue(())
    }

    /// Receives the leave of a location from a region.
    fn leave(&mut self, _location: LocationRef, _time: u64, _region: RegionRef) -> Flow {
        ControlFlow::Continue(())
    }

    /// Receives the values of a metric that a location has recorded, one for each member of the class.
    fn metric(
        &mut self,
        _location: LocationRef,
        _time: u64,
        _metric: MetricRef,
        _values: &[MetricValue],
    ) -> Flow {
        ControlFlow::Continue(())
    }

    /// Called when no more events of a location can be read. This directly follows its last event, before any later event of
    /// another location. Frames that are still open were never left. They end at `_last`, the time of the location's last enter,
    /// leave or sample: a sample that finds the same frames as before calls no other method.
    fn end(&mut self, _location: LocationRef, _last: u64) -> Flow {
        ControlFlow::Continue(())
    }

    /// Whether to call [`communication`](EventHandler::communication). Called once, before the first event.
    fn wants_communication(&self) -> bool {
        false
    }

    /// Receives a message that a location has sent or received, or its part in a collective operation. Starts of collectives,
    /// tests of requests, and events of communicators and threads are not passed on.
    fn communication(&mut self, _location: LocationRef, _time: u64, _event: Communication) -> Flow {
        ControlFlow::Continue(())
    }

    /// Whether to call [`other`](EventHandler::other). Called once, before the first event.
    fn wants_other(&self) -> bool {
        false
    }

    /// Receives another event of a location; `name` is OTF2's, such as `MpiSend`. Events that are passed to
    /// [`communication`](EventHandler::communication) are not among these.
    fn other(&mut self, _location: LocationRef, _time: u64, _name: &'static str) -> Flow {
        ControlFlow::Continue(())
    }
}

/// The result of reading the events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadReport {
    /// The number of events that the handler received.
    pub delivered: u64,
    /// The number of events that were read, including those that the handler did not want.
    pub records: u64,
    /// The locations whose events were read only in part, or not at all, with the reason. Each appears at most once.
    pub truncated: Vec<(LocationRef, String)>,
    /// Whether the handler stopped the reading.
    pub stopped: bool,
    /// The leaves that did not match the innermost region.
    pub nesting: Nesting,
    /// The location of each region that is never left, once for each region. Regions that [`Nesting::unended`] counts are left
    /// out, and so are samples, which have no leave.
    pub unended: Vec<LocationRef>,
}

/// Leaves that did not match the innermost region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Nesting {
    /// Leaves of regions that were open further out.
    pub reordered: u64,
    /// Leaves of regions that were not open, which handlers do not receive.
    pub unmatched: u64,
    /// Calls that took no time, with the leave before the enter.
    pub reversed: u64,
    /// Regions that the trace never leaves although it leaves a region around them.
    pub unended: u64,
}

impl Nesting {
    /// Adds the counts of `other`.
    pub(crate) fn add(&mut self, other: Nesting) {
        self.reordered += other.reordered;
        self.unmatched += other.unmatched;
        self.reversed += other.reversed;
        self.unended += other.unended;
    }
}
