//! The handling of calls when the collector cannot keep up, and the data about the session that a writer needs for it.

/// The policy that applies when the ring fills faster than the collector empties it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OverloadPolicy {
    /// The calls are left out and counted.
    Suppress,
    /// The program waits until there is space.
    Wait,
    /// The calls are coalesced while there is no room, or while they come too fast to record each of them.
    CoalesceUnderPressure,
    /// The calls are coalesced from the start.
    Coalesce,
}

/// Functions that provide data about the session for coalescing and waiting. They are called rarely, but on the event path, so
/// they must neither block nor allocate.
#[derive(Clone, Copy)]
pub struct SessionProbes {
    /// Returns the tick rate, in Hz, of the clock that produced this timestamp; 0 if it is not known.
    pub ticks_per_second: fn(u64) -> u64,
    /// Whether the collector is alive and reads rings.
    pub collector_is_alive: fn() -> bool,
    /// The number of times that the collector has looked at all rings.
    pub collector_rounds: fn() -> u64,
}
