//! A location's own definitions.

/// What makes the numbers and times in a location's event file those of the archive. By default they are already.
///
/// Tables have the archive's number in the place of the location's own; numbers that a table is too short for stay as they are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct LocalDefinitions {
    /// The location's time, and what is added to it then, in ascending order of time; in between in proportion.
    pub clock_offsets: Vec<(u64, i64)>,
    pub strings: Vec<u32>,
    pub attributes: Vec<u32>,
    pub regions: Vec<u32>,
    /// Of classes and instances.
    pub metrics: Vec<u32>,
    pub comms: Vec<u32>,
}
