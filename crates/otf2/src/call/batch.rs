//! The events that OTF2's callbacks have read.

use crate::communication::Communication;
use crate::definitions::MetricValue;
use otf2_sys as sys;
use std::ffi::c_void;

/// The number of events that are read at once. With more events, the batches of many locations do not fit into the cache; with
/// fewer, the cost of the call into OTF2 is noticeable.
pub(crate) const BATCH: usize = 128;

/// An event that OTF2 has read and that waits for the merge.
#[derive(Clone, Copy)]
pub(crate) struct Event {
    pub time: u64,
    /// The number of the definition that the event names, such as a region or a metric.
    pub number: u32,
    /// The index of the first value of a metric.
    pub values_start: u16,
    pub values_len: u8,
    pub kind: Kind,
}

const _: () = assert!(size_of::<Event>() == 16 && BATCH * u8::MAX as usize <= u16::MAX as usize);

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Enter,
    /// An enter with a value of the first wanted attribute.
    EnterWith,
    /// An enter with a value of the second wanted attribute, but none of the first.
    EnterWithSecond,
    Leave,
    Metric,
    /// A context that was entered or found by a sample; the unwind distance is a value.
    Context,
    ContextLeave,
    /// An event of communication: the number is its index among those of the batch.
    Communication,
    Other,
}

/// The events that one call of [`EventReader::read`] found.
#[derive(Default)]
pub(crate) struct Batch {
    pub events: Vec<Event>,
    /// The values of metrics, and of the wanted attributes of enters.
    pub values: Vec<MetricValue>,
    pub communications: Vec<Communication>,
    pub wanted: Wanted,
}

/// The wanted attributes of enters.
#[derive(Clone, Copy, Default)]
pub(crate) struct Wanted {
    pub first: Option<u32>,
    pub second: Option<u32>,
}

impl Batch {
    /// Returns the first value of an event, as a number.
    pub(crate) fn number_of(&self, event: &Event) -> u64 {
        match self.values.get(usize::from(event.values_start)) {
            Some(MetricValue::U64(value)) => *value,
            _ => 0,
        }
    }
}

/// Adds an event to the batch that a callback's user data points to.
///
/// # Safety
/// Must be called only in a callback that OTF2 calls during [`EventReader::read`], with the user data of that reader.
#[inline(always)]
pub(super) unsafe fn push(user_data: *mut c_void, event: Event) -> sys::OTF2_CallbackCode {
    // SAFETY: the user data is the batch, which only the callbacks access during read.
    let batch = unsafe { &mut *user_data.cast::<Batch>() };
    batch.events.push(event);
    sys::OTF2_CALLBACK_SUCCESS
}

impl Event {
    #[inline(always)]
    pub(super) fn new(time: u64, number: u32, kind: Kind) -> Event {
        Event { time, number, values_start: 0, values_len: 0, kind }
    }

    /// Returns an event whose only value is a number, which is added to `values`.
    pub(super) fn with_number(
        time: u64,
        number: u32,
        kind: Kind,
        value: u64,
        values: &mut Vec<MetricValue>,
    ) -> Event {
        let values_start = values.len() as u16;
        values.push(MetricValue::U64(value));
        Event { time, number, values_start, values_len: 1, kind }
    }
}
