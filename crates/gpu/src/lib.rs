//! The common part of the libraries that see GPU kernels ("adapters").
//!
//! ```text
//! program ── CUDA, HIP or OpenCL runtime ── the vendor's interface for tools
//!                                              │ loads, by a variable that `ampere run` sets
//!                                    libampere_cuda.so, libampere_hip.so, libampere_opencl.so
//!                                              │ crates/gpu
//!                                    libampere_host.so (crates/host/src/gpu)
//! ```
//!
//! An adapter is a separate library, which is loaded only into programs that use its runtime. It gets records of the work on the
//! GPU from the runtime, and calls the embedded host, which plays Score-P's role towards the plugin. An adapter does this:
//!
//! 1. When the runtime loads it, it calls [`Host::open`]. If the result is `None`, it does nothing: it registers nothing, and the
//!    program runs as if the adapter were not loaded.
//! 2. At the first context or queue, not when it is loaded, it calls [`Host::start`] with a function that delivers the records
//!    that are still in the runtime's buffers. The host calls this function once, before the measurement ends. Many programs that
//!    load a GPU runtime never use it. Loading it alone must not start the recording of calls.
//! 3. For each call of the runtime that matters (launch, copy, synchronise, allocate), it calls [`Host::enter`] and
//!    [`Host::leave`] around it, on the program's thread. A launch has a number, from [`next_correlation`]; the kernel's frame
//!    gets the same number later.
//! 4. For each stream or queue, it makes a [`Stream`] with the device's PCI address and UUID. From these, and never from an
//!    index, the collector finds the device's counter. A partition (CPX, MIG) has the PCI address of its socket or the UUID of
//!    its GPU.
//! 5. For each device, it has a [`DeviceClock`], which it feeds with readings of both clocks about once a second, and which
//!    converts the runtime's timestamps into the run's ticks. An adapter whose runtime can use our clock for timestamps needs
//!    none.
//! 6. A record of a kernel, a copy or a memset becomes a [`Frame`]: [`Stream::push`], and after each batch [`Stream::flush`].
//!    Records may come late, out of order and overlapping. If the adapter knows that all frames before a moment are recorded
//!    ([`Known`]), it reports that: [`Stream::quiet_until`]. Otherwise live figures wait for a silent stream, for at most the
//!    time that the setting `stream_lag` allows.
//! 7. Everything that is not recorded is counted, and reported by [`Host::report_quality`] ([`Losses`] does both).
//!
//! Regions are made by [`Host::region`], with `scorep_abi::region_type::KERNEL` for kernels, `KERNEL_LAUNCH` for launches, `RMA`
//! for copies and memsets on the GPU, and `FUNCTION` for other calls of the runtime. The host demangles names. It looks the
//! region up by its name at each call, so an adapter keeps the handle with the kernel if it can.
//!
//! ```text
//! call.rs       which calls of CUDA and HIP are recorded
//! clock.rs      converts times of a device's clock to the run's
//! host.rs       safe versions of the host's functions
//! interface.rs  the same functions, as C types
//! launches.rs   when the latest launches were
//! losses.rs     counts of commands that are not recorded
//! pending.rs    the time before which all frames are recorded
//! regular.rs    a thread for regular work
//! streams.rs    streams and their lanes
//! ```
//!
//! Rules: nothing unwinds into the runtime ([`guarded`]); a forked child records nothing ([`Host::is_recording`] is `false`
//! there); the libraries are linked so that they are never unloaded; an adapter blocks the program only for as long as it holds
//! its own locks, and makes no call that changes the program's results.
#![warn(missing_docs)]

mod call;
mod clock;
mod host;
pub mod interface;
mod launches;
mod losses;
mod pending;
mod regular;
mod streams;

pub use call::CallKind;
pub use clock::DeviceClock;
pub use host::{Device, ENV_GPU, Host, is_scorep_linked};
pub use interface::{Frame, Quality};
pub use launches::Launches;
pub use losses::Losses;
pub use pending::{Commands, Expected, Known, Pending};
pub use regular::regularly;
pub use streams::Stream;

use std::sync::atomic::{AtomicU64, Ordering};

/// Returns a UUID as NVML writes it.
pub fn nvml_uuid(uuid: &[u8; 16]) -> String {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let parts = [&uuid[..4], &uuid[4..6], &uuid[6..8], &uuid[8..10], &uuid[10..]].map(hex);
    format!("GPU-{}", parts.join("-"))
}

/// Returns a number for a launch. It is unique in this process among those of one adapter, and not 0. Adapters of
/// several runtimes in one process have different upper bits: `adapter` is the paradigm.
pub fn next_correlation(adapter: i32) -> u64 {
    (adapter as u64) << 56 | NEXT.fetch_add(1, Ordering::Relaxed)
}

static NEXT: AtomicU64 = AtomicU64::new(1);

/// Returns the number of the next launch, without the upper bits for the adapter.
pub fn next_launch() -> u64 {
    NEXT.load(Ordering::Relaxed)
}

/// Runs an adapter's code. If it panics, the panic is caught and the result is `otherwise`. `errno` is preserved.
pub fn guarded<T>(otherwise: T, body: impl FnOnce() -> T) -> T {
    // SAFETY: the address of this thread's errno, which lives as long as the thread.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let before = unsafe { *errno };
    let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
    // SAFETY: as above.
    unsafe { *errno = before };
    done.unwrap_or(otherwise)
}

#[cfg(test)]
mod tests {
    #[test]
    fn uuids_are_written_as_counters_have_them() {
        let uuid = [0xa7, 5, 0x64, 0xcc, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12];
        assert_eq!(super::nvml_uuid(&uuid), "GPU-a70564cc-0102-0304-0506-0708090a0b0c");
    }
}
