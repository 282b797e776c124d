//! Safe versions of the host's functions.

use crate::interface::{
    ENTRY, Frame, GetInterface, Interface, Location, LocationHandle, Quality, Region, VERSION,
};
use std::ffi::{CStr, CString, OsStr, c_void};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::ptr::{null, null_mut};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// The properties by which a device is identified. Texts are empty if they are not known.
#[derive(Clone, Debug, Default)]
pub struct Device {
    /// The PCI address, such as `0000:c1:00.0`.
    pub pci: String,
    /// The UUID, such as `GPU-a70564cccd47836c`.
    pub uuid: String,
    /// The model, as the driver names it.
    pub model: String,
}

/// The measurement host, through the functions that it has passed to this library.
#[derive(Clone, Copy)]
pub struct Host(&'static Interface);

/// The time when the adapter started, by both clocks.
static START: OnceLock<(Instant, u64)> = OnceLock::new();
/// The shortest time over which the rate of the run's clock is measured.
const RATE_TIME_MIN: Duration = Duration::from_millis(5);
/// The number of readings of both clocks from which the best is used: on a busy machine, some are interrupted.
const READINGS: usize = 8;

/// Returns the directory of the adapter, which contains this function.
fn own_directory() -> Option<PathBuf> {
    let mut found =
        libc::Dl_info { dli_fname: null(), dli_fbase: null_mut(), dli_sname: null(), dli_saddr: null_mut() };
    // SAFETY: dladdr takes any address; the structure is ours.
    if unsafe { libc::dladdr(own_directory as *const c_void, &mut found) } == 0 || found.dli_fname.is_null() {
        return None;
    }
    // SAFETY: the loader's own string, which lives as long as this library is loaded.
    let name = unsafe { CStr::from_ptr(found.dli_fname) };
    Some(PathBuf::from(OsStr::from_bytes(name.to_bytes())).parent()?.to_owned())
}

impl Host {
    /// Opens the host in the adapter's directory. `runtime` is CUDA, HIP or OpenCL. `None` if nothing in this process is to be
    /// recorded: ampere, or its recording of GPUs, is switched off, the program was started without `ampere run`, or Score-P
    /// measures it. In the last case, a message is printed.
    pub fn open(runtime: &str) -> Option<Host> {
        if ampere_model::is_switched_off() || !are_gpus_recorded() {
            return None;
        }
        if is_scorep_linked() {
            print_that_scorep_records(runtime);
            return None;
        }
        let path =
            CString::new(own_directory()?.join("libampere_host.so").into_os_string().into_vec()).ok()?;
        // The preloaded library sees this call, and prepares the host for this process.
        // SAFETY: loading runs the library's constructors; it is the host that was installed with this library.
        let library =
            unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL | libc::RTLD_NODELETE) };
        if library.is_null() {
            return None;
        }
        // SAFETY: `library` is open; the symbol of this name has this type.
        let interface = unsafe {
            let entry = libc::dlsym(library, ENTRY.as_ptr());
            std::mem::transmute::<*mut c_void, Option<GetInterface>>(entry)?(VERSION).as_ref()
        };
        interface.map(Host)
    }

    /// Starts the measurement of this process if it has not started; see [`Interface::start`].
    pub fn start(&self, flush: extern "C" fn()) -> bool {
        START.get_or_init(|| self.both_clocks());
        // SAFETY: the host's function, with a function that lives as long as the process: adapters are never closed.
        unsafe { (self.0.start)(flush) }
    }

    /// Whether events are recorded now.
    pub fn is_recording(&self) -> bool {
        // SAFETY: the host's function.
        unsafe { (self.0.is_recording)() }
    }

    /// Returns the present time in ticks of the run's clock.
    #[inline]
    pub fn now(&self) -> u64 {
        // SAFETY: the host's function.
        unsafe { (self.0.now)() }
    }

    /// Returns the rate of the run's clock since the start. The longer ago the start is, the more exact is the rate; a call in
    /// the first milliseconds waits until these have passed.
    pub fn ticks_per_nanosecond(&self) -> f64 {
        let start = *START.get_or_init(|| self.both_clocks());
        std::thread::sleep(RATE_TIME_MIN.saturating_sub(start.0.elapsed()));
        let now = self.both_clocks();
        now.1.saturating_sub(start.1) as f64 / (now.0 - start.0).as_nanos().max(1) as f64
    }

    /// Returns the time by both clocks: the reading that took the least time of several.
    fn both_clocks(&self) -> (Instant, u64) {
        let read = || {
            let before = self.now();
            let time = Instant::now();
            let after = self.now();
            let took = after.saturating_sub(before);
            (took, (time, before + took / 2))
        };
        (1..READINGS).map(|_| read()).fold(read(), |best, next| if next.0 < best.0 { next } else { best }).1
    }

    /// Defines a GPU location.
    pub(crate) fn define_location(&self, name: &str, device: &Device) -> Option<LocationHandle> {
        let text = |text: &str| CString::new(text).unwrap_or_default();
        let [name, pci, uuid, model] = [name, &device.pci, &device.uuid, &device.model].map(text);
        let [name, pci, uuid, model] = [&name, &pci, &uuid, &model].map(|text| text.as_ptr());
        // SAFETY: the host's function; the texts live until the end of this function.
        let location = unsafe { (self.0.define_location)(&Location { name, pci, uuid, model }) };
        (!location.is_null()).then_some(location)
    }

    /// Returns the region with these properties; 0 if it cannot be defined. `region_type` and `paradigm` are values of
    /// [`scorep_abi::region_type`] and [`scorep_abi::paradigm`].
    pub fn region(&self, name: &[u8], region_type: i32, paradigm: i32) -> u32 {
        let region = Region { name: name.as_ptr(), bytes: name.len(), region_type, paradigm };
        // SAFETY: the host's function; the name lives during the call.
        unsafe { (self.0.region)(&region) }
    }

    /// Opens a frame of the calling thread; see [`Interface::enter`].
    #[inline]
    pub fn enter(&self, region: u32, correlation: u64) -> bool {
        // SAFETY: the host's function.
        unsafe { (self.0.enter)(region, correlation) }
    }

    /// Closes the frame of the calling thread with this region.
    #[inline]
    pub fn leave(&self, region: u32) {
        // SAFETY: the host's function.
        unsafe { (self.0.leave)(region) }
    }

    /// Records frames of a location; see [`Interface::record`].
    pub(crate) fn record(&self, location: LocationHandle, frames: &[Frame]) -> bool {
        // SAFETY: the host's function, with one of its locations; the frames live during the call.
        unsafe { (self.0.record)(location, frames.as_ptr(), frames.len()) }
    }

    /// Reports that all frames of a location that begin before this time have been recorded; see [`Interface::quiet_until`].
    pub(crate) fn quiet_until(&self, location: LocationHandle, time: u64) {
        // SAFETY: the host's function, with one of its locations.
        unsafe { (self.0.quiet_until)(location, time) };
    }

    /// Reports losses and clock errors; see [`Interface::report_quality`].
    pub fn report_quality(&self, quality: &Quality) {
        // SAFETY: the host's function; the structure lives during the call.
        unsafe { (self.0.report_quality)(quality) }
    }

    /// Sets the function that releases CUPTI; see [`Interface::set_release_cupti`].
    pub fn set_release_cupti(&self, release: extern "C" fn()) {
        // SAFETY: the host's function, with a function that lives as long as the process: adapters are never closed.
        unsafe { (self.0.set_release_cupti)(release) }
    }

    /// Writes `ampere: TEXT` on standard error, from the first process of the node.
    pub fn message(&self, text: &str) {
        // SAFETY: the host's function; the text lives during the call.
        unsafe { (self.0.message)(text.as_ptr(), text.len()) }
    }
}

/// The variable that switches off the recording of GPUs.
pub const ENV_GPU: &str = "AMPERE_GPU";

/// Whether GPUs are recorded, by the variable [`ENV_GPU`].
fn are_gpus_recorded() -> bool {
    std::env::var(ENV_GPU).map_or(true, |value| value.trim() != "off")
}

/// Whether the real Score-P is linked into this process. `start.c` of crates/preload looks for the same functions.
pub fn is_scorep_linked() -> bool {
    [c"SCOREP_InitMeasurement", c"SCOREP_Location_GetId"].iter().any(|name| {
        // SAFETY: this is a lookup by name; nothing is called.
        unsafe { !libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()).is_null() }
    })
}

/// Prints that Score-P's own adapter records the kernels, or how to switch that on.
fn print_that_scorep_records(runtime: &str) {
    if !ampere_model::is_first_of_node() {
        return;
    }
    let variable = format!("SCOREP_{}_ENABLE", runtime.to_ascii_uppercase());
    let is_on =
        std::env::var(&variable).is_ok_and(|value| !matches!(value.trim(), "" | "no" | "false" | "0"));
    let line = match is_on {
        true => format!("ampere: Score-P's adapter records the work that {runtime} runs on GPUs\n"),
        false => format!(
            "ampere: work that {runtime} runs on GPUs is not recorded: set {variable}=yes for Score-P's adapter\n"
        ),
    };
    ampere_signal_safety::write_line(line.as_bytes());
}

/// A host for unit tests, which keeps the frames that are recorded.
#[cfg(test)]
pub mod stand_in {
    use super::*;
    use std::collections::BTreeMap;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicU64, Ordering};

    type Recorded = BTreeMap<String, Vec<(u64, u64)>>;

    struct Kept(String, Mutex<Vec<(u64, u64)>>);

    static LOCATIONS: Mutex<Vec<&'static Kept>> = Mutex::new(Vec::new());
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

    unsafe extern "C" fn start(_: extern "C" fn()) -> bool {
        true
    }
    unsafe extern "C" fn yes() -> bool {
        true
    }
    /// Nanoseconds since the first call. Two of three calls are interrupted.
    unsafe extern "C" fn now() -> u64 {
        static FIRST: OnceLock<Instant> = OnceLock::new();
        static CALLS: AtomicU64 = AtomicU64::new(0);
        let first = FIRST.get_or_init(Instant::now);
        if !CALLS.fetch_add(1, Ordering::Relaxed).is_multiple_of(3) {
            std::thread::sleep(Duration::from_micros(200));
        }
        first.elapsed().as_nanos() as u64
    }
    unsafe extern "C" fn define_location(location: *const Location) -> LocationHandle {
        // SAFETY: the caller's structure and text.
        let name = unsafe { CStr::from_ptr((*location).name) }.to_string_lossy().into_owned();
        let kept: &'static Kept = Box::leak(Box::new(Kept(name, Mutex::default())));
        LOCATIONS.lock().unwrap().push(kept);
        std::ptr::from_ref(kept).cast_mut().cast()
    }
    unsafe extern "C" fn region(_: *const Region) -> u32 {
        1
    }
    unsafe extern "C" fn enter(_: u32, _: u64) -> bool {
        true
    }
    unsafe extern "C" fn leave(_: u32) {}
    unsafe extern "C" fn record(location: LocationHandle, frames: *const Frame, count: usize) -> bool {
        // SAFETY: a location of `define_location`, and the caller's frames.
        let (kept, frames) =
            unsafe { (&*location.cast::<Kept>(), std::slice::from_raw_parts(frames, count)) };
        kept.1.lock().unwrap().extend(frames.iter().map(|frame| (frame.begin, frame.end)));
        true
    }
    unsafe extern "C" fn quiet_until(_: LocationHandle, _: u64) {}
    unsafe extern "C" fn report_quality(_: *const Quality) {}
    unsafe extern "C" fn set_release_cupti(_: extern "C" fn()) {}
    unsafe extern "C" fn message(_: *const u8, _: usize) {}

    static INTERFACE: Interface = Interface {
        start,
        is_recording: yes,
        now,
        define_location,
        region,
        enter,
        leave,
        record,
        quiet_until,
        report_quality,
        set_release_cupti,
        message,
    };

    /// Returns the host, and a function that returns the frames recorded since this call, by their locations' names.
    pub fn host() -> (Host, impl FnOnce() -> Recorded) {
        let guard = ONE_AT_A_TIME.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        LOCATIONS.lock().unwrap().clear();
        (Host(&INTERFACE), move || {
            let _guard = guard;
            let all = LOCATIONS.lock().unwrap();
            all.iter().map(|kept| (kept.0.clone(), kept.1.lock().unwrap().clone())).collect()
        })
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_rate_of_the_runs_clock_is_that_of_readings_that_were_not_interrupted() {
        let (host, _) = super::stand_in::host();
        let rate = host.ticks_per_nanosecond();
        assert!((rate - 1.0).abs() < 0.01, "{rate}");
    }
}
