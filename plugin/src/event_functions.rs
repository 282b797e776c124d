//! The tables of event functions for Score-P, one for each kind of recording, and the functions for rare events.

use crate::calling_contexts::{context_enter, context_leave, sample};
use crate::communication::{self, is_wanted};
use crate::events::{EVENT_ARRAY_LENGTH, enter, entry, leave, report_last_dropped, with_data};
use crate::guard::guarded;
use crate::location_data::NO_CONTEXT;
use crate::{inert, process};
use scorep_abi::{AnyHandle, EventFunction, Location, event, mode};

unsafe extern "C" fn program_begin(
    location: *mut Location,
    timestamp: u64,
    name: AnyHandle,
    number_of_arguments: u32,
    arguments: *const AnyHandle,
    _program_region: AnyHandle,
    _process_id: u64,
    _thread_id: u64,
) {
    if is_wanted() {
        let count = if arguments.is_null() { 0 } else { number_of_arguments as usize };
        let arguments = std::ptr::NonNull::new(arguments.cast_mut()).unwrap_or(std::ptr::NonNull::dangling());
        // SAFETY: the event has `number_of_arguments` arguments; the slice is empty if there is no pointer.
        let arguments = unsafe { std::slice::from_raw_parts(arguments.as_ptr(), count) };
        guarded((), || process::new_program(name, arguments));
    }
    // SAFETY: ONE WRITER, LOCATION LIFE.
    unsafe { with_data(location, |inner| inner.writer.program_begin(timestamp)) };
}

unsafe extern "C" fn program_end(location: *mut Location, timestamp: u64, _status: i64, _region: AnyHandle) {
    // SAFETY: ONE WRITER, LOCATION LIFE.
    unsafe {
        report_last_dropped(location);
        with_data(location, |inner| {
            inner.writer.program_end(timestamp);
            inner.calling_context = NO_CONTEXT;
        })
    };
}

unsafe extern "C" fn task_begin(
    location: *mut Location,
    timestamp: u64,
    region: AnyHandle,
    metrics: *mut u64,
    _paradigm: i32,
    _thread_team: AnyHandle,
    _thread_id: u32,
    _generation_number: u32,
    _task: AnyHandle,
) {
    // SAFETY: Score-P makes the same promises for this event as for the events of the function that is called.
    unsafe { enter(location, timestamp, region, metrics) };
}

unsafe extern "C" fn task_end(
    location: *mut Location,
    timestamp: u64,
    region: AnyHandle,
    metrics: *mut u64,
    _paradigm: i32,
    _thread_team: AnyHandle,
    _thread_id: u32,
    _generation_number: u32,
    _task: AnyHandle,
) {
    // SAFETY: Score-P makes the same promises for this event as for the events of the function that is called.
    unsafe { leave(location, timestamp, region, metrics) };
}

/// The events that the energy figures need.
static RECORDING: [EventFunction; EVENT_ARRAY_LENGTH] = recording();
/// The events that the figures and the trace need.
static RECORDING_ALL: [EventFunction; EVENT_ARRAY_LENGTH] = communication::add_to(recording());

const fn recording() -> [EventFunction; EVENT_ARRAY_LENGTH] {
    let mut table: [EventFunction; EVENT_ARRAY_LENGTH] = [None; EVENT_ARRAY_LENGTH];
    // A thread that switches recording off is in a region of Score-P's until recording is on again.
    table[event::DISABLE_RECORDING] = entry!(enter: RegionEvent);
    table[event::ENABLE_RECORDING] = entry!(leave: RegionEvent);
    table[event::ENTER_REGION] = entry!(enter: RegionEvent);
    table[event::EXIT_REGION] = entry!(leave: RegionEvent);
    table[event::SAMPLE] = entry!(sample: SampleEvent);
    table[event::CALLING_CONTEXT_ENTER] = entry!(context_enter: CallingContextEvent);
    table[event::CALLING_CONTEXT_EXIT] = entry!(context_leave: CallingContextEvent);
    table[event::THREAD_FORK_JOIN_TASK_BEGIN] = entry!(task_begin: TaskRegionEvent);
    table[event::THREAD_FORK_JOIN_TASK_END] = entry!(task_end: TaskRegionEvent);
    table[event::PROGRAM_BEGIN] = entry!(program_begin: ProgramBeginEvent);
    table[event::PROGRAM_END] = entry!(program_end: ProgramEndEvent);
    table
}

/// While recording is switched off, only the program's end is needed.
static NOT_RECORDING: [EventFunction; EVENT_ARRAY_LENGTH] = {
    let mut table: [EventFunction; EVENT_ARRAY_LENGTH] = [None; EVENT_ARRAY_LENGTH];
    table[event::PROGRAM_END] = entry!(program_end: ProgramEndEvent);
    table
};

/// Returns the event functions for a [`mode`]; there are none when the plugin is inert.
pub fn table(recording_mode: i32) -> &'static [EventFunction] {
    if inert::is_inert() {
        return &[];
    }
    match recording_mode {
        mode::RECORDING_ENABLED if is_wanted() => &RECORDING_ALL,
        mode::RECORDING_ENABLED => &RECORDING,
        _ => &NOT_RECORDING,
    }
}
