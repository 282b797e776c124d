//! A stand-in for NVIDIA's libraries: `libcuda.so.1`, `libcudart.so.13` and `libcupti.so.13` in one, with a GPU on which a kernel
//! takes the time that the program asks for. It follows the headers of CUDA 13.0: the names and numbers of functions, the layouts
//! of records, and which functions call which others.
//!
//! | file | what it is |
//! | --- | --- |
//! | `cuda.rs` | the functions that a program calls |
//! | `cupti.rs` | those that a tool calls |
//! | `gpu.rs` | the streams, and CUPTI's buffers of records |
//!
//! The variable `STAND_IN_CUPTI` has entries `key=value` separated by `;`:
//!
//! | entry | meaning |
//! | --- | --- |
//! | `version=14` | CUPTI's version; by default that of CUDA 13.0 |
//! | `busy=1` | another tool has subscribed |
//! | `reverse=1` | the records in a buffer are in reverse order |
//! | `untimed=3` | every third record has no times; likewise `negative=3`: it ends before it begins, and `drop=3`: it is dropped |
//! | `early_us=40` | the GPU's clock is behind by this |
//! | `launch_us=2000` | a launch keeps its thread busy for this many microseconds of CPU time |
//! | `timed=1` | prints how long the tool's functions took for a launch and for a record |
//! | `gpus=2` | the number of devices. The default stream belongs to the first one. Streams that the program makes belong to all devices in turn, beginning with the second. `mig=1`: the devices are parts of one GPU; `swapped=1`: they are numbered in the opposite order to the counters |
#![allow(non_snake_case, clippy::missing_safety_doc)]

mod cuda;
mod cupti;
mod gpu;
#[path = "../../stopwatch.rs"]
mod stopwatch;

/// The value of an entry of the script, or 0.
fn entry(key: &str) -> u64 {
    text(key).and_then(|value| value.parse().ok()).unwrap_or(0)
}

fn text(key: &str) -> Option<String> {
    let script = std::env::var("STAND_IN_CUPTI").ok()?;
    script.split(';').find_map(|entry| Some(entry.trim().strip_prefix(key)?.strip_prefix('=')?.to_owned()))
}

/// CLOCK_MONOTONIC_RAW in nanoseconds.
fn now() -> u64 {
    read_clock(libc::CLOCK_MONOTONIC_RAW)
}

fn read_clock(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes the structure.
    unsafe { libc::clock_gettime(clock, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
