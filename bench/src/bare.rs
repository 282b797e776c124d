//! The yardstick for reading traces: OTF2's C library with callbacks that do nothing, as the library's own examples and
//! `otf2-print` use it. Like `ampere attribute`, it runs in a process of its own: this program, started with [`COMMAND`].

use crate::load::{MESSAGE, Pattern};
use ampere_ring::Kind;
use otf2_sys as sys;
use std::ffi::{CString, c_void};
use std::ptr::null_mut;

/// `ampere-bench read-with-otf2 merged|local TRACE`: prints the number of events.
pub const COMMAND: &str = "read-with-otf2";

pub fn main(order: &str, anchor: &str) {
    let anchor = CString::new(anchor).expect("a name without NUL");
    let mut locations = Vec::new();
    // SAFETY: all handles are used in the order that the library requires, and the reader is closed once; the vector has the type
    // that the callback for locations expects, and outlives the reading of definitions.
    let events = unsafe {
        let reader = sys::OTF2_Reader_Open(anchor.as_ptr());
        assert!(!reader.is_null(), "no trace");
        check(sys::OTF2_Reader_SetSerialCollectiveCallbacks(reader));
        read_definitions(reader, &mut locations);
        for location in &locations {
            check(sys::OTF2_Reader_SelectLocation(reader, *location));
        }
        // Traces need not have local definitions.
        let local_definitions = sys::OTF2_Reader_OpenDefFiles(reader) == success();
        check(sys::OTF2_Reader_OpenEvtFiles(reader));
        for location in locations.iter().filter(|_| local_definitions) {
            let definitions = sys::OTF2_Reader_GetDefReader(reader, *location);
            if !definitions.is_null() {
                check(sys::OTF2_Reader_ReadAllLocalDefinitions(reader, definitions, &mut 0));
                check(sys::OTF2_Reader_CloseDefReader(reader, definitions));
            }
        }
        let events = match order {
            "merged" => read_merged(reader, &locations),
            _ => read_local(reader, &locations),
        };
        check(sys::OTF2_Reader_Close(reader));
        events
    };
    println!("{events}");
}

/// # Safety
/// `reader` is open.
unsafe fn read_definitions(reader: *mut sys::OTF2_Reader, locations: &mut Vec<u64>) {
    // SAFETY: as in main.
    unsafe {
        let definitions = sys::OTF2_Reader_GetGlobalDefReader(reader);
        let callbacks = sys::OTF2_GlobalDefReaderCallbacks_New();
        check(sys::OTF2_GlobalDefReaderCallbacks_SetLocationCallback(callbacks, Some(on_location)));
        let user_data = std::ptr::from_mut(locations).cast();
        check(sys::OTF2_Reader_RegisterGlobalDefCallbacks(reader, definitions, callbacks, user_data));
        sys::OTF2_GlobalDefReaderCallbacks_Delete(callbacks);
        check(sys::OTF2_Reader_ReadAllGlobalDefinitions(reader, definitions, &mut 0));
    }
}

/// Reads all events in chronological order.
///
/// # Safety
/// `reader` is open, with its event files.
unsafe fn read_merged(reader: *mut sys::OTF2_Reader, locations: &[u64]) -> u64 {
    let mut read = 0;
    // SAFETY: as in main; the callbacks have the types that their events require.
    unsafe {
        for location in locations {
            assert!(!sys::OTF2_Reader_GetEvtReader(reader, *location).is_null(), "no events");
        }
        let events = sys::OTF2_Reader_GetGlobalEvtReader(reader);
        let callbacks = sys::OTF2_GlobalEvtReaderCallbacks_New();
        check(sys::OTF2_GlobalEvtReaderCallbacks_SetEnterCallback(callbacks, Some(on_region)));
        check(sys::OTF2_GlobalEvtReaderCallbacks_SetLeaveCallback(callbacks, Some(on_region)));
        check(sys::OTF2_GlobalEvtReaderCallbacks_SetMetricCallback(callbacks, Some(on_metric)));
        check(sys::OTF2_Reader_RegisterGlobalEvtCallbacks(reader, events, callbacks, null_mut()));
        sys::OTF2_GlobalEvtReaderCallbacks_Delete(callbacks);
        check(sys::OTF2_Reader_ReadAllGlobalEvents(reader, events, &mut read));
    }
    read
}

/// Reads one location after the other, so events of different locations are not in chronological order.
///
/// # Safety
/// `reader` is open, with its event files.
unsafe fn read_local(reader: *mut sys::OTF2_Reader, locations: &[u64]) -> u64 {
    let mut all = 0;
    for location in locations {
        let mut read = 0;
        // SAFETY: as in main; the callbacks have the types that their events require.
        unsafe {
            let events = sys::OTF2_Reader_GetEvtReader(reader, *location);
            let callbacks = sys::OTF2_EvtReaderCallbacks_New();
            check(sys::OTF2_EvtReaderCallbacks_SetEnterCallback(callbacks, Some(on_local_region)));
            check(sys::OTF2_EvtReaderCallbacks_SetLeaveCallback(callbacks, Some(on_local_region)));
            check(sys::OTF2_EvtReaderCallbacks_SetMetricCallback(callbacks, Some(on_local_metric)));
            check(sys::OTF2_Reader_RegisterEvtCallbacks(reader, events, callbacks, null_mut()));
            sys::OTF2_EvtReaderCallbacks_Delete(callbacks);
            check(sys::OTF2_Reader_ReadAllLocalEvents(reader, events, &mut read));
            check(sys::OTF2_Reader_CloseEvtReader(reader, events));
        }
        all += read;
    }
    all
}

fn success() -> sys::OTF2_ErrorCode {
    sys::OTF2_SUCCESS as sys::OTF2_ErrorCode
}

fn check(code: sys::OTF2_ErrorCode) {
    assert_eq!(code, success(), "an OTF2 call failed");
}

unsafe extern "C" fn on_location(
    user_data: *mut c_void,
    location: sys::OTF2_LocationRef,
    _: sys::OTF2_StringRef,
    _: sys::OTF2_LocationType,
    _: u64,
    _: sys::OTF2_LocationGroupRef,
) -> sys::OTF2_CallbackCode {
    // SAFETY: the callback is registered with a vector of this type, which nothing else uses while definitions are read.
    unsafe { (*user_data.cast::<Vec<u64>>()).push(location) };
    sys::OTF2_CALLBACK_SUCCESS
}

/// `ampere-bench write-with-otf2 LOCATIONS EVENTS CALLS_PER_MESSAGE DIRECTORY`: writes EVENTS enters and leaves on each location,
/// and the messages among them.
pub const WRITE_COMMAND: &str = "write-with-otf2";

/// Writes the events of the collector's load with OTF2's library alone.
pub fn write_main(locations: &str, events: &str, calls_per_message: &str, directory: &str) {
    let number = |text: &str| text.parse::<u64>().expect("a number");
    let (locations, events) = (number(locations), number(events));
    let directory = CString::new(directory).expect("a name without NUL");
    let pattern = Pattern::Walk { calls_per_message: number(calls_per_message) as usize }.records();
    let flush = sys::OTF2_FlushCallbacks { otf2_pre_flush: Some(flush), otf2_post_flush: None };
    // SAFETY: all handles are used in the order that the library requires; names and callbacks outlive the archive. It is
    // deliberately not closed: no anchor file is written, and the process exits.
    unsafe {
        let archive = sys::OTF2_Archive_Open(
            directory.as_ptr(),
            c"traces".as_ptr(),
            sys::OTF2_FILEMODE_WRITE as sys::OTF2_FileMode,
            1 << 20,
            4 << 20,
            sys::OTF2_SUBSTRATE_POSIX as sys::OTF2_FileSubstrate,
            sys::OTF2_COMPRESSION_NONE as sys::OTF2_Compression,
        );
        assert!(!archive.is_null(), "no archive");
        check(sys::OTF2_Archive_SetFlushCallbacks(archive, &flush, null_mut()));
        check(sys::OTF2_Archive_SetSerialCollectiveCallbacks(archive));
        check(sys::OTF2_Archive_OpenEvtFiles(archive));
        for location in 0..locations {
            let writer = sys::OTF2_Archive_GetEvtWriter(archive, location);
            let mut time = 1 << 50;
            let mut left = events;
            for record in pattern.iter().cycle() {
                let (kind, region) = (record.kind(), record.argument());
                time += if kind == Some(Kind::Payload) { 0 } else { 300 };
                check(match kind {
                    Some(Kind::Enter) => sys::OTF2_EvtWriter_Enter(writer, null_mut(), time, region),
                    Some(Kind::Leave) => sys::OTF2_EvtWriter_Leave(writer, null_mut(), time, region),
                    Some(Kind::Communication) => sys::OTF2_EvtWriter_MpiSend(
                        writer,
                        null_mut(),
                        time,
                        MESSAGE.peer,
                        MESSAGE.communicator,
                        MESSAGE.tag,
                        MESSAGE.bytes,
                    ),
                    _ => continue,
                });
                left -= u64::from(matches!(kind, Some(Kind::Enter | Kind::Leave)));
                if left == 0 {
                    break;
                }
            }
            check(sys::OTF2_Archive_CloseEvtWriter(archive, writer));
        }
        check(sys::OTF2_Archive_CloseEvtFiles(archive));
    }
}

unsafe extern "C" fn flush(
    _: *mut c_void,
    _: sys::OTF2_FileType,
    _: sys::OTF2_LocationRef,
    _: *mut c_void,
    _: bool,
) -> sys::OTF2_FlushType {
    sys::OTF2_FLUSH as sys::OTF2_FlushType
}

unsafe extern "C" fn on_region(
    _: sys::OTF2_LocationRef,
    _: sys::OTF2_TimeStamp,
    _: *mut c_void,
    _: *mut sys::OTF2_AttributeList,
    _: sys::OTF2_RegionRef,
) -> sys::OTF2_CallbackCode {
    sys::OTF2_CALLBACK_SUCCESS
}

unsafe extern "C" fn on_metric(
    _: sys::OTF2_LocationRef,
    _: sys::OTF2_TimeStamp,
    _: *mut c_void,
    _: *mut sys::OTF2_AttributeList,
    _: sys::OTF2_MetricRef,
    _: u8,
    _: *const sys::OTF2_Type,
    _: *const sys::OTF2_MetricValue,
) -> sys::OTF2_CallbackCode {
    sys::OTF2_CALLBACK_SUCCESS
}

unsafe extern "C" fn on_local_region(
    _: sys::OTF2_LocationRef,
    _: sys::OTF2_TimeStamp,
    _: u64,
    _: *mut c_void,
    _: *mut sys::OTF2_AttributeList,
    _: sys::OTF2_RegionRef,
) -> sys::OTF2_CallbackCode {
    sys::OTF2_CALLBACK_SUCCESS
}

unsafe extern "C" fn on_local_metric(
    _: sys::OTF2_LocationRef,
    _: sys::OTF2_TimeStamp,
    _: u64,
    _: *mut c_void,
    _: *mut sys::OTF2_AttributeList,
    _: sys::OTF2_MetricRef,
    _: u8,
    _: *const sys::OTF2_Type,
    _: *const sys::OTF2_MetricValue,
) -> sys::OTF2_CallbackCode {
    sys::OTF2_CALLBACK_SUCCESS
}
