//! The Score-P substrate plugin: `libscorep_substrate_ampere.so`, for `SCOREP_SUBSTRATE_PLUGINS=ampere`.
//!
//! It runs inside the measured program. For each enter and leave it writes one record into shared memory and returns; for a
//! sample by Score-P it writes one for each frame that was left or entered since the previous sample. On that path ([`events`])
//! it never blocks, allocates, locks or prints. It starts no thread, reads no counter and writes no results: the collector does
//! that ([`start`]). Nothing unwinds into Score-P ([`guard`]), and the first failure makes the plugin inert, with one line that
//! explains why and what to do ([`inert`]).
//!
//! ```text
//! init                     join the node's session, start its collector if there is none    process.rs, start.rs
//! new_definition_handle    write the region to the definitions log                          process.rs
//! create_location          make a ring and attach its writer to Score-P's location          process.rs
//! enter, leave             write one record                                                 events.rs
//! deactivate_cpu_location, delete_location
//!                          write the pending group of coalesced calls                       events.rs
//! init_mpp                 write rank and size to the log                                   process.rs
//! finalize                 leave the session; the last process waits for the collector      process.rs, finish.rs
//! mpi_send and others      messages, collectives, requests, for the trace                   communication.rs
//!
//! event_functions.rs               the events that are recorded; functions for rare events
//! calling_contexts.rs              events with unwinding and sampling, which carry the whole stack
//! location_data.rs                 a location's data, which one event at a time uses
//! known_locations.rs               finds a location's data by the location's address
//! ring_size.rs                     the size of a ring
//! work.rs                          units of work and ranges, for the embedded host
//! guard.rs  inert.rs  error.rs     nothing unwinds into Score-P; the inert state, and reasons for it
//! memory.rs  strings.rs            the allocator, with a reserve; C strings from Score-P
//! metric/  test_ring.rs            the metric plugin; a ring for unit tests
//! ```
//!
//! Under its other name, `libampere_plugin.so`, the library is a metric plugin as well: [`metric`].

mod calling_contexts;
mod communication;
mod error;
mod event_functions;
mod events;
mod finish;
mod guard;
mod inert;
mod known_locations;
mod location_data;
mod memory;
mod metric;
mod process;
mod ring_size;
mod start;
mod strings;
#[cfg(test)]
mod test_ring;
mod work;

use guard::{guarded, guarded_also_inert};
use scorep_abi::{AnyHandle, Callbacks, EventFunction, Location, SubstratePluginInfo};
use std::ffi::c_int;

#[global_allocator]
static MEMORY: memory::WithReserve = memory::WithReserve;

/// The entry point, which Score-P calls first.
#[unsafe(no_mangle)]
pub extern "C" fn SCOREP_SubstratePlugin_ampere_get_info() -> SubstratePluginInfo {
    SubstratePluginInfo {
        init: Some(init),
        assign_id: Some(assign_id),
        init_mpp: Some(init_mpp),
        finalize: Some(finalize),
        create_location: Some(create_location),
        activate_cpu_location: Some(activate_cpu_location),
        deactivate_cpu_location: Some(deactivate_cpu_location),
        delete_location: Some(delete_location),
        new_definition_handle: Some(new_definition_handle),
        get_event_functions: Some(get_event_functions),
        set_callbacks: Some(set_callbacks),
        get_requirement: Some(get_requirement),
        ..SubstratePluginInfo::EMPTY
    }
}

/// Always succeeds: Score-P would unload a plugin that fails here, and print a message in addition to ours.
extern "C" fn init() -> c_int {
    guarded((), process::begin);
    0
}

extern "C" fn assign_id(plugin_id: usize) {
    events::set_plugin_id(plugin_id);
}

/// # Safety
/// `callbacks` is Score-P's table of `size` bytes: CALLBACK TABLE in [`scorep_abi::guarantees`].
unsafe extern "C" fn set_callbacks(callbacks: *const Callbacks, size: usize) {
    // SAFETY: by this function's contract.
    guarded((), || unsafe { process::set_callbacks(callbacks, size) });
}

extern "C" fn init_mpp() {
    guarded((), process::init_mpp);
}

extern "C" fn activate_cpu_location(location: *const Location, _parent: *const Location, _fork: u32) {
    guarded((), || {
        process::thread_begins(location);
        events::activate_location(location);
    });
}

extern "C" fn deactivate_cpu_location(location: *const Location, _parent: *const Location) {
    guarded((), || events::deactivate_location(location));
}

extern "C" fn delete_location(location: *const Location) {
    guarded((), || events::delete_location(location));
}

extern "C" fn create_location(location: *const Location, _parent: *const Location) {
    guarded((), || process::new_location(location));
}

extern "C" fn new_definition_handle(handle: AnyHandle, handle_type: c_int) {
    guarded((), || process::new_definition(handle, handle_type));
}

extern "C" fn finalize() {
    guarded_also_inert((), finish::finalize);
}

/// Requires nothing, in particular no experiment directory: the collector makes the output directory.
extern "C" fn get_requirement(_flag: c_int) -> bool {
    false
}

/// # Safety
/// `functions` points to Score-P's variable for the array.
unsafe extern "C" fn get_event_functions(mode: c_int, functions: *mut *const EventFunction) -> u32 {
    let table = event_functions::table(mode);
    // SAFETY: by this function's contract.
    unsafe { *functions = table.as_ptr() };
    table.len() as u32
}
