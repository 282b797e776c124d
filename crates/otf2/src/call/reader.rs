//! Handles of the C library for reading: an archive, and the events of one location.

use super::batch::{BATCH, Batch, Event, Kind, Wanted, push};
use super::{
    Doing, SUCCESS, UNDEFINED_U64, capture_messages, check, communication_events, copy, failure,
    forget_message, other_events,
};
use crate::definitions::MetricValue;
use crate::error::{Error, Otf2Error};
use otf2_sys as sys;
use std::ffi::{CStr, c_char, c_void};
use std::ptr::NonNull;

/// An archive that is being read. It must not be shared between threads: no locking callbacks are set.
pub(crate) struct Reader {
    handle: NonNull<sys::OTF2_Reader>,
}

impl Reader {
    pub(crate) fn open(anchor: &CStr) -> Result<Reader, Otf2Error> {
        capture_messages();
        // SAFETY: the string lives during the call, which copies it.
        let handle = unsafe { sys::OTF2_Reader_Open(anchor.as_ptr()) };
        let handle = NonNull::new(handle).ok_or_else(|| failure(sys::OTF2_ERROR_INVALID_DATA))?;
        let reader = Reader { handle };
        // SAFETY: the handle is open until drop.
        check(unsafe { sys::OTF2_Reader_SetSerialCollectiveCallbacks(handle.as_ptr()) })?;
        Ok(reader)
    }

    /// Returns the bytes of a chunk of events, and of a chunk of definitions.
    pub(crate) fn chunk_sizes(&self) -> Result<(u64, u64), Otf2Error> {
        let (mut events, mut definitions) = (0, 0);
        // SAFETY: the handle is open until drop; both numbers outlive the call.
        check(unsafe { sys::OTF2_Reader_GetChunkSize(self.handle.as_ptr(), &mut events, &mut definitions) })?;
        Ok((events.max(1), definitions.max(1)))
    }

    /// Whether each location has files of its own.
    pub(crate) fn is_posix(&self) -> bool {
        let mut substrate = 0;
        // SAFETY: the handle is open until drop; the number outlives the call.
        let code = unsafe { sys::OTF2_Reader_GetFileSubstrate(self.handle.as_ptr(), &mut substrate) };
        code == SUCCESS && u32::from(substrate) == sys::OTF2_SUBSTRATE_POSIX
    }

    pub(crate) fn number_of_global_definitions(&self) -> Result<u64, Otf2Error> {
        let mut number = 0;
        // SAFETY: the handle is open until drop; the number outlives the call.
        check(unsafe { sys::OTF2_Reader_GetNumberOfGlobalDefinitions(self.handle.as_ptr(), &mut number) })?;
        Ok(number)
    }

    pub(crate) fn creator(&self) -> String {
        self.text(sys::OTF2_Reader_GetCreator)
    }

    pub(crate) fn machine_name(&self) -> String {
        self.text(sys::OTF2_Reader_GetMachineName)
    }

    pub(crate) fn description(&self) -> String {
        self.text(sys::OTF2_Reader_GetDescription)
    }

    /// Reads a text of the anchor file with one of the three functions above.
    fn text(
        &self,
        get: unsafe extern "C" fn(*mut sys::OTF2_Reader, *mut *mut c_char) -> sys::OTF2_ErrorCode,
    ) -> String {
        let mut text = std::ptr::null_mut();
        // SAFETY: the handle is open until drop; `get` is a function of the library that sets the pointer to a copy, which the
        // caller must free, or fails and does not change it.
        let code = unsafe { get(self.handle.as_ptr(), &mut text) };
        if code != SUCCESS {
            forget_message();
            return String::new();
        }
        let copied = copy(text);
        // SAFETY: the text was allocated with malloc and is no longer used.
        unsafe { sys::free(text.cast()) };
        copied
    }

    pub(super) fn handle(&self) -> *mut sys::OTF2_Reader {
        self.handle.as_ptr()
    }

    /// Announces that a location's files will be read.
    pub(crate) fn select(&self, location: u64) -> Result<(), Otf2Error> {
        // SAFETY: the handle is open until drop.
        check(unsafe { sys::OTF2_Reader_SelectLocation(self.handle(), location) })
    }

    pub(crate) fn open_definition_files(&self) -> Result<(), Otf2Error> {
        // SAFETY: the handle is open until drop.
        check(unsafe { sys::OTF2_Reader_OpenDefFiles(self.handle()) })
    }

    pub(crate) fn close_definition_files(&self) -> Result<(), Otf2Error> {
        // SAFETY: the handle is open until drop.
        check(unsafe { sys::OTF2_Reader_CloseDefFiles(self.handle()) })
    }

    pub(crate) fn open_event_files(&self) -> Result<(), Otf2Error> {
        // SAFETY: the handle is open until drop.
        check(unsafe { sys::OTF2_Reader_OpenEvtFiles(self.handle()) })
    }

    /// Reads a location's own definitions, whose mappings and clock offsets OTF2 applies to its events. Must be called once for
    /// each location, because a second mapping is an error.
    pub(crate) fn read_local_definitions(&self, location: u64) -> Result<(), Otf2Error> {
        forget_message();
        // SAFETY: the handle is open until drop; the definition reader is used only if not null and closed once.
        unsafe {
            let reader = sys::OTF2_Reader_GetDefReader(self.handle(), location);
            if reader.is_null() {
                return Err(failure(sys::OTF2_ERROR_INVALID_DATA));
            }
            let mut number = 0;
            let read = check(sys::OTF2_Reader_ReadAllLocalDefinitions(self.handle(), reader, &mut number));
            let closed = check(sys::OTF2_Reader_CloseDefReader(self.handle(), reader));
            read.and(closed)
        }
    }

    /// Returns a reader of a location's events, which starts with the first event. A location must have only one reader at a
    /// time. OTF2's undefined location is refused, because OTF2 aborts for it.
    pub(crate) fn event_reader(
        &self,
        location: u64,
        kinds: WantedKinds,
        wanted: Wanted,
    ) -> Result<EventReader<'_>, Otf2Error> {
        forget_message();
        if location == UNDEFINED_U64 {
            return Err(failure(sys::OTF2_ERROR_INVALID_ARGUMENT));
        }
        // SAFETY: the handle is open until drop, which cannot happen during the borrow in the result.
        let handle = unsafe { sys::OTF2_Reader_GetEvtReader(self.handle(), location) };
        let handle = NonNull::new(handle).ok_or_else(|| failure(sys::OTF2_ERROR_INVALID_DATA))?;
        let mut reader = EventReader { handle, archive: self, wanted, batch: Box::default() };
        reader.register(kinds)?;
        Ok(reader)
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        // SAFETY: opened in open, closed only here; nothing borrows from it any more.
        unsafe { sys::OTF2_Reader_Close(self.handle.as_ptr()) };
        forget_message();
    }
}

/// Adds the name of the part that was being read to an error.
pub(crate) fn reading<T>(result: Result<T, Otf2Error>, what: &str) -> Result<T, Error> {
    result.doing(|| what.to_owned())
}

/// The kinds of events that are read in addition to enters, leaves and metrics.
#[derive(Clone, Copy)]
pub(crate) struct WantedKinds {
    pub communication: bool,
    pub others: bool,
}

/// OTF2's reader of one location's events.
pub(crate) struct EventReader<'a> {
    handle: NonNull<sys::OTF2_EvtReader>,
    archive: &'a Reader,
    wanted: Wanted,
    /// The batch has a fixed address, because OTF2 passes it to the callbacks.
    batch: Box<Batch>,
}

impl EventReader<'_> {
    fn register(&mut self, kinds: WantedKinds) -> Result<(), Otf2Error> {
        let user_data: *mut c_void = (&raw mut *self.batch).cast();
        // SAFETY: the table is made and deleted here, and OTF2 copies it; the callbacks have the required types; user_data
        // points to the batch, which lives as long as the reader: see read.
        unsafe {
            let callbacks = sys::OTF2_EvtReaderCallbacks_New();
            if callbacks.is_null() {
                return Err(failure(sys::OTF2_ERROR_MEM_FAULT));
            }
            sys::OTF2_EvtReaderCallbacks_SetEnterCallback(callbacks, Some(on_enter));
            sys::OTF2_EvtReaderCallbacks_SetLeaveCallback(callbacks, Some(on_leave::<false>));
            sys::OTF2_EvtReaderCallbacks_SetMetricCallback(callbacks, Some(on_metric));
            if kinds.others {
                other_events::register(callbacks);
            }
            if kinds.communication {
                communication_events::register(callbacks);
            }
            sys::OTF2_EvtReaderCallbacks_SetCallingContextEnterCallback(callbacks, Some(on_context_enter));
            sys::OTF2_EvtReaderCallbacks_SetCallingContextSampleCallback(callbacks, Some(on_sample));
            sys::OTF2_EvtReaderCallbacks_SetCallingContextLeaveCallback(callbacks, Some(on_leave::<true>));
            let code = sys::OTF2_Reader_RegisterEvtCallbacks(
                self.archive.handle(),
                self.handle.as_ptr(),
                callbacks,
                user_data,
            );
            sys::OTF2_EvtReaderCallbacks_Delete(callbacks);
            check(code)
        }
    }

    /// Replaces the batch by the next `count` events, at most [`BATCH`], and returns the number of events that were read. Events
    /// without a callback are counted but are not in the batch. After an error the batch has the events before it.
    pub(crate) fn read(&mut self, count: u64, batch: &mut Batch) -> Result<u64, Otf2Error> {
        // The allocations of the last batch are used for the next one.
        std::mem::swap(&mut *self.batch, batch);
        self.batch.events.clear();
        self.batch.values.clear();
        self.batch.communications.clear();
        self.batch.wanted = self.wanted;
        let mut read = 0;
        // SAFETY: both handles are open. The callbacks access self.batch through the registered pointer while self is borrowed
        // mutably here, and nothing else accesses it until the call returns.
        let code = unsafe {
            sys::OTF2_Reader_ReadLocalEvents(
                self.archive.handle(),
                self.handle.as_ptr(),
                count.min(BATCH as u64),
                &mut read,
            )
        };
        std::mem::swap(&mut *self.batch, batch);
        check(code).map(|()| read)
    }
}

impl Drop for EventReader<'_> {
    /// Closes the file and frees the two or three chunks that OTF2 keeps for it.
    fn drop(&mut self) {
        // SAFETY: the reader is one of the archive's open readers, made in event_reader and closed only here.
        unsafe { sys::OTF2_Reader_CloseEvtReader(self.archive.handle(), self.handle.as_ptr()) };
        forget_message();
    }
}

unsafe extern "C" fn on_enter(
    _location: sys::OTF2_LocationRef,
    time: sys::OTF2_TimeStamp,
    _position: u64,
    user_data: *mut c_void,
    attributes: *mut sys::OTF2_AttributeList,
    region: sys::OTF2_RegionRef,
) -> sys::OTF2_CallbackCode {
    // SAFETY: the user data is the batch, which only the callbacks access during read; the reference ends before push.
    let batch = unsafe { &mut *user_data.cast::<Batch>() };
    // SAFETY: OTF2 passes a list that lives during the call.
    let has_any = unsafe { sys::OTF2_AttributeList_GetNumberOfElements(attributes) > 0 };
    let value_of = |attribute: Option<u32>| {
        let mut value = 0;
        let attribute = attribute.filter(|_| has_any)?;
        // SAFETY: the list lives during the call; the number outlives it.
        let code = unsafe { sys::OTF2_AttributeList_GetUint64(attributes, attribute, &mut value) };
        (code == SUCCESS).then_some(value)
    };
    // An event has room for one wanted attribute: the first, or else the second.
    let first = value_of(batch.wanted.first).map(|value| (Kind::EnterWith, value));
    let with = first.or_else(|| Some((Kind::EnterWithSecond, value_of(batch.wanted.second)?)));
    let event = match with {
        Some((kind, value)) => Event::with_number(time, region, kind, value, &mut batch.values),
        None => Event::new(time, region, Kind::Enter),
    };
    // SAFETY: registered in EventReader::register and called only by OTF2.
    unsafe { push(user_data, event) }
}

/// The callback for leaves of a region and of a calling context, which have the same arguments.
unsafe extern "C" fn on_leave<const OF_CONTEXT: bool>(
    _location: sys::OTF2_LocationRef,
    time: sys::OTF2_TimeStamp,
    _position: u64,
    user_data: *mut c_void,
    _attributes: *mut sys::OTF2_AttributeList,
    number: u32,
) -> sys::OTF2_CallbackCode {
    let event = Event::new(time, number, if OF_CONTEXT { Kind::ContextLeave } else { Kind::Leave });
    // SAFETY: registered in EventReader::register and called only by OTF2.
    unsafe { push(user_data, event) }
}

unsafe extern "C" fn on_context_enter(
    _location: sys::OTF2_LocationRef,
    time: sys::OTF2_TimeStamp,
    _position: u64,
    user_data: *mut c_void,
    _attributes: *mut sys::OTF2_AttributeList,
    context: sys::OTF2_CallingContextRef,
    distance: u32,
) -> sys::OTF2_CallbackCode {
    // SAFETY: the user data is the batch, which only the callbacks access during read; the reference ends before push.
    let values = unsafe { &mut (*user_data.cast::<Batch>()).values };
    let event = Event::with_number(time, context, Kind::Context, distance.into(), values);
    // SAFETY: registered in EventReader::register and called only by OTF2.
    unsafe { push(user_data, event) }
}

/// The callback for samples, which show the current context like an enter.
unsafe extern "C" fn on_sample(
    location: sys::OTF2_LocationRef,
    time: sys::OTF2_TimeStamp,
    position: u64,
    user_data: *mut c_void,
    attributes: *mut sys::OTF2_AttributeList,
    context: sys::OTF2_CallingContextRef,
    distance: u32,
    _generator: sys::OTF2_InterruptGeneratorRef,
) -> sys::OTF2_CallbackCode {
    // SAFETY: the arguments are passed on.
    unsafe { on_context_enter(location, time, position, user_data, attributes, context, distance) }
}

unsafe extern "C" fn on_metric(
    _location: sys::OTF2_LocationRef,
    time: sys::OTF2_TimeStamp,
    _position: u64,
    user_data: *mut c_void,
    _attributes: *mut sys::OTF2_AttributeList,
    metric: sys::OTF2_MetricRef,
    count: u8,
    types: *const sys::OTF2_Type,
    values: *const sys::OTF2_MetricValue,
) -> sys::OTF2_CallbackCode {
    // SAFETY: the user data is the batch, which only the callbacks access during read; the reference ends before push.
    let all = unsafe { &mut (*user_data.cast::<Batch>()).values };
    let values_start = all.len() as u16;
    let event = Event { values_start, values_len: count, ..Event::new(time, metric, Kind::Metric) };
    for i in 0..usize::from(count) {
        // SAFETY: OTF2 passes arrays of `count` elements; every field of the union has 8 bytes, for which any bits are valid.
        all.push(unsafe {
            let (kind, value) = (u32::from(*types.add(i)), *values.add(i));
            match kind {
                sys::OTF2_TYPE_INT64 => MetricValue::I64(value.signed_int),
                sys::OTF2_TYPE_DOUBLE => MetricValue::F64(value.floating_point),
                _ => MetricValue::U64(value.unsigned_int),
            }
        });
    }
    // SAFETY: registered in EventReader::register and called only by OTF2.
    unsafe { push(user_data, event) }
}
