//! A location's own definitions.

/// Maps the numbers and times in a location's event file to those of the archive. By default nothing is mapped.
///
/// A table has the archive's number at the index of the location's own number. Numbers beyond the end of a table are not mapped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct LocalDefinitions {
    /// Times of the location, in ascending order, each with the offset that is added to it; offsets between them are
    /// interpolated.
    pub clock_offsets: Vec<(u64, i64)>,
    pub strings: Vec<u32>,
    pub attributes: Vec<u32>,
    pub regions: Vec<u32>,
    /// The numbers of metric classes and instances.
    pub metrics: Vec<u32>,
    pub comms: Vec<u32>,
}
