//! The event path as Score-P sees it: the built library, called through its function pointers, with a live collector;
//! against callbacks that count.

use crate::{Figure, alternate};
use scorep_abi::{
    AnyHandle, Callbacks, EventFunction, GetInfo, Location, RegionEvent, event, handle_type, mode,
};
use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

/// Small enough for the collector to follow on the other core.
const CALLS: u64 = 100_000;
/// Between rounds the collector catches up.
const PAUSE: std::time::Duration = std::time::Duration::from_millis(60);

static DATA: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
static COUNT: AtomicU64 = AtomicU64::new(0);

/// What this program is called with to measure folded calls: a process has one plugin.
pub const CHILD: &str = "--folded-calls";
/// Functions deep, as HPL_rand and those that it calls.
const DEEP: u32 = 4;
/// Of calls four deep.
const TREES: u64 = 1_000_000;

/// The same, for the event path beside a sampler, and for recorded calls.
pub const SAMPLED_CHILD: &str = "--events-sampled";
pub const RECORDED_CHILD: &str = "--events-recorded";

/// This program as such a child, with these variables: the numbers that it says.
fn numbers_of(child: &str, variables: &[(&str, &std::ffi::OsStr)]) -> Result<Vec<f64>, String> {
    let own = std::env::current_exe().map_err(|e| e.to_string())?;
    let ran = std::process::Command::new(own).arg(child).envs(variables.iter().copied()).output();
    let text = String::from_utf8(ran.map_err(|e| e.to_string())?.stdout).unwrap_or_default();
    let numbers: Vec<f64> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    if numbers.is_empty() {
        return Err(format!("the child said {text:?}"));
    }
    Ok(numbers)
}

/// Of a child: its session, its results, and the plugin.
struct Place {
    _shm: tempfile::TempDir,
    out: tempfile::TempDir,
    library: libloading::Library,
}

impl Place {
    fn prepare() -> Place {
        let shm = tempfile::tempdir_in("/dev/shm").expect("a directory in /dev/shm");
        let out = tempfile::tempdir().expect("a directory");
        // SAFETY: no other thread runs yet.
        unsafe {
            std::env::set_var("AMPERE_SHM", shm.path());
            std::env::set_var("AMPERE_OUTPUT", out.path().join("out"));
        }
        let library = crate::child::beside("libscorep_substrate_ampere.so");
        // SAFETY: our own library; its initialisers are Rust's.
        let library = unsafe { libloading::Library::new(&library) }.expect("the built plugin");
        Place { _shm: shm, out, library }
    }

    fn summary(&self) -> serde_json::Value {
        let summary = std::fs::read(self.out.path().join("out/summary.json")).unwrap_or_default();
        serde_json::from_slice(&summary).unwrap_or_default()
    }
}

pub fn figures() -> Result<Vec<Figure>, String> {
    let mut figures = recorded()?;
    figures.extend(folded()?);
    figures.extend(sampled()?);
    Ok(figures)
}

/// With and without a sampler that reads all the time, in turn, each in processes of their own: a process has one collector.
/// By the thread's CPU time it is what an event costs; by the wall clock there is also what the thread loses where the sampler
/// finds no core but its own.
fn sampled() -> Result<[Figure; 2], String> {
    const TURNS: usize = 4;
    let library = crate::child::beside("libfake_rocm_smi64.so");
    if !library.exists() {
        return Err(format!("no {}: cargo build --release --workspace", library.display()));
    }
    let measure = |counters: &str| -> Result<[Vec<f64>; 2], String> {
        let numbers = numbers_of(
            SAMPLED_CHILD,
            &[
                ("AMPERE_COUNTERS", counters.as_ref()),
                ("AMPERE_ROCM_SMI_LIBRARY", library.as_os_str()),
                ("FAKE_ROCM_SMI", "devices=8;busy_us=20".as_ref()),
            ],
        )?;
        // Pairs: by the wall clock, by the thread's CPU time.
        Ok([0, 1].map(|clock| numbers.iter().skip(clock).step_by(2).copied().collect()))
    };
    let (mut with, mut without) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
    for _ in 0..TURNS {
        for (all, counters) in [(&mut without, "none"), (&mut with, "rocm_smi")] {
            all.iter_mut().zip(measure(counters)?).for_each(|(all, more)| all.extend(more));
        }
    }
    let figure = |what, value, yardstick_value| Figure {
        what,
        value: crate::median(value),
        unit: "ns",
        yardstick: "the same without a counter",
        yardstick_value: crate::median(yardstick_value),
    };
    let ([wall, cpu], [wall_without, cpu_without]) = (with, without);
    Ok([
        figure("plugin: an enter or leave beside 8 devices at 1 kHz, CPU", cpu, cpu_without),
        figure("plugin: the same by the wall clock", wall, wall_without),
    ])
}

/// The child's side: nanoseconds an event, by round.
pub fn sampled_child() {
    const ROUNDS: usize = 11;
    let place = Place::prepare();
    let host = Host::start(&place.library);
    // Until the counters are open and sampled.
    std::thread::sleep(std::time::Duration::from_millis(500));
    let rounds: Vec<(f64, f64)> = (0..ROUNDS).map(|_| host.round()).collect();
    host.end();
    rounds.iter().for_each(|(wall, cpu)| println!("{wall} {cpu}"));
}

/// Folded from the start, in a process of its own.
fn folded() -> Result<Vec<Figure>, String> {
    let [ours, counting, exact] = numbers_of(CHILD, &[("AMPERE_EVENTS", "folded".as_ref())])?[..] else {
        return Err("the child did not say three numbers".to_owned());
    };
    Ok(vec![
        Figure {
            what: "plugin: an enter or leave of folded calls, 4 deep",
            value: ours,
            unit: "ns",
            yardstick: "a callback that increments a counter; to reach: + 6",
            yardstick_value: counting,
        },
        Figure {
            what: "plugin: calls of that run in its summary",
            value: exact,
            unit: "calls",
            yardstick: "that were made",
            yardstick_value: (u64::from(DEEP) * TREES * FOLDED_ROUNDS) as f64,
        },
    ])
}

const FOLDED_ROUNDS: u64 = 15;

/// The child's side: nanoseconds an event, of the yardstick, and how many calls the summary has.
pub fn child() {
    let place = Place::prepare();
    let host = Host::start(&place.library);
    let (mut ours, mut counting_only) = (Vec::new(), Vec::new());
    for _ in 0..FOLDED_ROUNDS {
        let time = |enter: RegionEvent, leave: RegionEvent| {
            let begun = std::time::Instant::now();
            trees(enter, leave);
            begun.elapsed().as_nanos() as f64 / (2 * u64::from(DEEP) * TREES) as f64
        };
        ours.push(time(host.enter, host.leave));
        counting_only.push(time(counting, counting));
    }
    host.end();
    let summary = place.summary();
    let regions = summary["devices"][0]["views"][0]["regions"].as_array().cloned().unwrap_or_default();
    let calls: f64 = regions.iter().filter_map(|region| region["calls"].as_f64()).sum();
    println!("{} {} {calls}", crate::median(ours), crate::median(counting_only));
}

/// Both sides look at the clock once for each tree of calls.
fn trees(enter: RegionEvent, leave: RegionEvent) {
    let (enter, leave) = std::hint::black_box((enter, leave));
    for _ in 0..TREES {
        let now = ampere_ring::clock::ticks();
        for depth in 0..DEEP {
            // SAFETY: the plugin's own functions, called as Score-P does, or ones that take anything.
            unsafe { enter(std::ptr::null_mut(), now + u64::from(depth), 1 + depth, std::ptr::null_mut()) };
        }
        for depth in (0..DEEP).rev() {
            // SAFETY: as above.
            unsafe {
                leave(std::ptr::null_mut(), now + u64::from(8 - depth), 1 + depth, std::ptr::null_mut())
            };
        }
    }
}

fn recorded() -> Result<Vec<Figure>, String> {
    let [ours, counting, suppressed] = numbers_of(RECORDED_CHILD, &[])?[..] else {
        return Err("the child did not say three numbers".to_owned());
    };
    Ok(vec![
        Figure {
            what: "plugin: an enter or leave through the .so, live collector",
            value: ours,
            unit: "ns",
            yardstick: "a callback that increments a counter",
            yardstick_value: counting,
        },
        Figure {
            what: "plugin: calls suppressed in that run",
            value: suppressed,
            unit: "calls",
            yardstick: "to reach",
            yardstick_value: 0.0,
        },
    ])
}

/// The child's side: nanoseconds an event, of the yardstick, and how many calls were suppressed.
pub fn recorded_child() {
    let place = Place::prepare();
    let host = Host::start(&place.library);
    let (mut ours, mut counting_only) = (Vec::new(), Vec::new());
    for _ in 0..25 {
        ours.push(host.round().0);
        let (counted, _) = alternate(2 * CALLS, count_calls, || {});
        counting_only.push(counted);
    }
    host.end();
    let suppressed = place.summary()["quality"]["suppressed_calls"].as_f64().unwrap_or(f64::NAN);
    println!("{} {} {suppressed}", crate::median(ours), crate::median(counting_only));
}

unsafe extern "C" fn counting(_: *mut Location, _: u64, _: AnyHandle, _: *mut u64) {
    COUNT.store(COUNT.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}

fn count_calls() {
    let function: RegionEvent = std::hint::black_box(counting);
    for i in 0..CALLS {
        // SAFETY: the function takes anything.
        unsafe {
            function(std::ptr::null_mut(), i, 1, std::ptr::null_mut());
            function(std::ptr::null_mut(), i, 1, std::ptr::null_mut());
        }
    }
}

/// Just enough of a Score-P.
pub struct Host {
    info: scorep_abi::SubstratePluginInfo,
    enter: RegionEvent,
    leave: RegionEvent,
}

extern "C" fn number(_: *const Location) -> u32 {
    0
}
extern "C" fn cpu_thread(_: *const Location) -> c_int {
    0
}
extern "C" fn location_name(_: *const Location) -> *const c_char {
    c"Master thread".as_ptr()
}
extern "C" fn set_data(_: *const Location, _: usize, data: *mut c_void) {
    DATA.store(data, Ordering::Relaxed);
}
extern "C" fn get_data(_: *const Location, _: usize) -> *mut c_void {
    DATA.load(Ordering::Relaxed)
}
extern "C" fn region_name(_: AnyHandle) -> *const c_char {
    c"empty".as_ptr()
}
extern "C" fn zero(_: AnyHandle) -> u32 {
    0
}
extern "C" fn zero_int(_: AnyHandle) -> c_int {
    0
}
extern "C" fn rank() -> c_int {
    0
}
extern "C" fn size() -> c_int {
    1
}

static CALLBACKS: Callbacks = Callbacks {
    ipc_get_rank: Some(rank),
    ipc_get_size: Some(size),
    location_get_type: Some(cpu_thread),
    location_get_name: Some(location_name),
    location_get_id: Some(number),
    location_set_data: Some(set_data),
    location_get_data: Some(get_data),
    region_handle_get_name: Some(region_name),
    region_handle_get_canonical_name: Some(region_name),
    region_handle_get_file_name: Some(region_name),
    region_handle_get_begin_line: Some(zero),
    region_handle_get_end_line: Some(zero),
    region_handle_get_type: Some(zero_int),
    region_handle_get_paradigm_type: Some(zero_int),
    ..Callbacks::EMPTY
};

impl Host {
    pub fn start(library: &libloading::Library) -> Host {
        // SAFETY: the plugin's entry point has this type; the calls are made in Score-P's order.
        unsafe {
            let get_info: libloading::Symbol<GetInfo> =
                library.get(b"SCOREP_SubstratePlugin_ampere_get_info").expect("the plugin's entry point");
            let info = get_info();
            info.init.expect("init")();
            info.set_callbacks.expect("set_callbacks")(&CALLBACKS, size_of::<Callbacks>());
            let mut table: *const EventFunction = std::ptr::null();
            let length =
                info.get_event_functions.expect("get_event_functions")(mode::RECORDING_ENABLED, &mut table);
            assert!(length as usize > event::EXIT_REGION, "the plugin is inert");
            let entry = |at: usize| {
                let function = (*table.add(at)).expect("an event function");
                std::mem::transmute::<unsafe extern "C" fn(), RegionEvent>(function)
            };
            let host = Host { info, enter: entry(event::ENTER_REGION), leave: entry(event::EXIT_REGION) };
            for region in 1..=DEEP {
                info.new_definition_handle.expect("definitions")(region, handle_type::REGION);
            }
            info.assign_id.expect("assign_id")(0);
            info.create_location.expect("create_location")(std::ptr::null(), std::ptr::null());
            info.init_mpp.expect("init_mpp")();
            host
        }
    }

    /// Nanoseconds an event, of many after a pause: by the wall clock, and by the thread's CPU time.
    fn round(&self) -> (f64, f64) {
        let cpu = || {
            let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
            time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
        };
        std::thread::sleep(PAUSE);
        let (begun, used) = (std::time::Instant::now(), cpu());
        self.some_calls(CALLS);
        let (wall, used) = (begun.elapsed().as_nanos() as f64, cpu() - used);
        (wall / (2 * CALLS) as f64, used / (2 * CALLS) as f64)
    }

    pub fn some_calls(&self, calls: u64) {
        let (enter, leave) = std::hint::black_box((self.enter, self.leave));
        for _ in 0..calls {
            let now = ampere_ring::clock::ticks();
            // SAFETY: the plugin's own functions, called as Score-P does.
            unsafe {
                enter(std::ptr::null_mut(), now, 1, std::ptr::null_mut());
                leave(std::ptr::null_mut(), now, 1, std::ptr::null_mut());
            }
        }
    }

    pub fn end(&self) {
        // SAFETY: as Score-P does.
        unsafe {
            self.info.delete_location.expect("delete_location")(std::ptr::null());
            self.info.finalize.expect("finalize")();
        }
    }
}
