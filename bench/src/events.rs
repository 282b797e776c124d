//! Measures the event path as Score-P uses it: the built library is called through its function pointers while a collector runs.
//! Its yardsticks are a plugin in C that does as little as possible, and callbacks that only count.

use crate::{Figure, child, in_turn, least, median, medians};
use scorep_abi::{
    AnyHandle, Callbacks, EventFunction, GetInfo, Location, RegionEvent, SubstratePluginInfo, event,
    handle_type, mode,
};
use std::ffi::{OsStr, c_char, c_int, c_void};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Events per second of a program that works between its calls. At this rate a collector on the other core keeps up, and a main
/// thread's ring wraps about ten times a second.
const RATE: f64 = 5e6;

static DATA: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
static COUNT: AtomicU64 = AtomicU64::new(0);

/// The option that makes this program measure calls that are coalesced from the start (AMPERE_EVENTS=folded). This needs a
/// separate process, because a process has one plugin.
pub const CHILD: &str = "--folded-calls";
/// Depth of the calls: as many frames as HPL_rand and the functions that it calls.
const DEEP: u32 = 4;
/// Number of measured trees of calls, each four calls deep.
const TREES: u64 = 1_000_000;

/// The option that makes this program measure the event path while a sampler runs.
pub const SAMPLED_CHILD: &str = "--events-sampled";
/// The option that makes this program measure recorded calls.
pub const RECORDED_CHILD: &str = "--events-recorded";

const MINIMAL_C: &str = "C plugin that stores 16 bytes and a position";
const COUNTING: &str = "a callback that increments a counter";

/// Runs this program as a child with this option and these variables, and returns the numbers that it prints.
fn numbers_of(child: &str, variables: &[(&str, &OsStr)]) -> anyhow::Result<Vec<f64>> {
    let mut command = Command::new(std::env::current_exe()?);
    let ran = child::run(command.arg(child).envs(variables.iter().copied()))?;
    let text = String::from_utf8_lossy(&ran.output);
    Ok(text.split_whitespace().filter_map(|word| word.parse().ok()).collect())
}

/// A child's session, its results, and the plugin.
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
        Place { _shm: shm, out, library: open(&child::sibling("libscorep_substrate_ampere.so")) }
    }

    fn summary(&self) -> serde_json::Value {
        let summary = std::fs::read(self.out.path().join("out/summary.json")).unwrap_or_default();
        serde_json::from_slice(&summary).unwrap_or_default()
    }
}

fn open(library: &Path) -> libloading::Library {
    // SAFETY: our own libraries; their initialisers are Rust's, or none.
    unsafe { libloading::Library::new(library) }.expect("the built plugin")
}

pub fn figures() -> anyhow::Result<Vec<Figure>> {
    least::build_plugin()?;
    let mut figures = recorded()?;
    figures.extend(folded()?);
    figures.extend(sampled()?);
    Ok(figures)
}

/// The functions for enter and leave.
#[derive(Clone, Copy)]
struct Functions {
    enter: RegionEvent,
    leave: RegionEvent,
}

const COUNT_ONLY: Functions = Functions { enter: counting, leave: counting };

unsafe extern "C" fn counting(_: *mut Location, _: u64, _: AnyHandle, _: *mut u64) {
    COUNT.store(COUNT.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}

impl Functions {
    /// # Safety
    /// `info` belongs to a plugin whose `init` has returned.
    unsafe fn of(info: &SubstratePluginInfo) -> Functions {
        // SAFETY: the calls are made in Score-P's order, and the entries have these types.
        unsafe {
            let mut table: *const EventFunction = std::ptr::null();
            let length =
                info.get_event_functions.expect("get_event_functions")(mode::RECORDING_ENABLED, &mut table);
            assert!(length as usize > event::EXIT_REGION, "the plugin is inert");
            let entry = |at: usize| {
                let function = (*table.add(at)).expect("an event function");
                std::mem::transmute::<unsafe extern "C" fn(), RegionEvent>(function)
            };
            Functions { enter: entry(event::ENTER_REGION), leave: entry(event::EXIT_REGION) }
        }
    }

    /// Loads the C plugin, which stays loaded.
    fn least() -> Functions {
        let library = std::mem::ManuallyDrop::new(open(&least::plugin()));
        // SAFETY: the plugin's entry point has this type; the calls are made in Score-P's order.
        unsafe {
            let get_info: libloading::Symbol<GetInfo> =
                library.get(b"SCOREP_SubstratePlugin_least_get_info").expect("its entry point");
            let info = get_info();
            assert_eq!(info.init.expect("init")(), 0);
            Functions::of(&info)
        }
    }

    fn calls(self, calls: u64) {
        let Functions { enter, leave } = std::hint::black_box(self);
        for _ in 0..calls {
            let now = ampere_ring::clock::ticks();
            // SAFETY: these are a plugin's functions, called as Score-P calls them, or functions that accept any arguments.
            unsafe {
                enter(std::ptr::null_mut(), now, 1, std::ptr::null_mut());
                leave(std::ptr::null_mut(), now, 1, std::ptr::null_mut());
            }
        }
    }

    /// Makes calls in batches at the usual rate. Returns nanoseconds per event in each batch, by each of the clocks.
    fn batches<const N: usize>(
        self,
        calls: u64,
        duration: Duration,
        clocks: impl Fn() -> [f64; N],
    ) -> [Vec<f64>; N] {
        let period = Duration::from_secs_f64(2.0 * calls as f64 / RATE);
        let mut all = [const { Vec::new() }; N];
        let (begun, mut due) = (Instant::now(), Instant::now());
        while begun.elapsed() < duration {
            while Instant::now() < due {
                std::hint::spin_loop();
            }
            due = Instant::now() + period;
            let before = clocks();
            self.calls(calls);
            let after = clocks();
            for clock in 0..N {
                all[clock].push((after[clock] - before[clock]) / (2 * calls) as f64);
            }
        }
        all
    }

    /// Makes trees of calls, each [`DEEP`] calls deep. The clock is read once for each tree, for ampere and the yardstick alike.
    fn trees(self) {
        let Functions { enter, leave } = std::hint::black_box(self);
        for _ in 0..TREES {
            let now = ampere_ring::clock::ticks();
            for depth in 0..DEEP {
                let time = now + u64::from(depth);
                // SAFETY: as in `calls`.
                unsafe { enter(std::ptr::null_mut(), time, 1 + depth, std::ptr::null_mut()) };
            }
            for depth in (0..DEEP).rev() {
                let time = now + u64::from(8 - depth);
                // SAFETY: as in `calls`.
                unsafe { leave(std::ptr::null_mut(), time, 1 + depth, std::ptr::null_mut()) };
            }
        }
    }
}

fn nanoseconds(clock: rustix::time::ClockId) -> f64 {
    let time = rustix::time::clock_gettime(clock);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

fn wall() -> f64 {
    nanoseconds(rustix::time::ClockId::Monotonic)
}

fn recorded() -> anyhow::Result<Vec<Figure>> {
    let [ours, least, counting, percent] = numbers_of(RECORDED_CHILD, &[])?[..] else {
        anyhow::bail!("the child did not print four numbers");
    };
    let figure = Figure::new;
    const RECORDED: &str = "plugin: an enter or leave recorded, in a ring that wraps, live collector";
    Ok(vec![
        figure(RECORDED, ours, "ns", MINIMAL_C, least),
        figure("plugin: the same", ours, "ns", COUNTING, counting),
        figure("plugin: calls of that run that were not recorded", percent, "%", "at most", 0.0),
    ])
}

/// Runs in the child. Prints nanoseconds per event of ampere and of the yardsticks, and the percentage of the calls that were
/// coalesced or suppressed.
pub fn recorded_child() {
    const ROUNDS: usize = 9;
    const CALLS: u64 = 500;
    let place = Place::prepare();
    let host = Host::start(&place.library);
    let all = [host.functions, Functions::least(), COUNT_ONLY];
    // Runs until the collector knows its clock and each ring has been filled once.
    for functions in all {
        functions.batches(CALLS, Duration::from_secs(1), || [wall()]);
    }
    let measured = medians(ROUNDS, |which| {
        let [batches] = all[which].batches(CALLS, Duration::from_millis(300), || [wall()]);
        Ok(median(batches))
    });
    host.end();
    let [ours, least, counting]: [f64; 3] = measured.expect("figures");
    let summary = place.summary();
    let of = |name: &str| summary["quality"][name].as_f64().unwrap_or(f64::NAN);
    let unrecorded = of("coalesced_calls") + of("suppressed_calls");
    println!("{ours} {least} {counting} {}", 100.0 * unrecorded / (unrecorded + of("events") / 2.0));
}

/// Measures with and without a sampler that reads continuously, in turn. Each measurement runs in separate processes, because a
/// process has one collector. The thread's CPU time is the cost of an event. The wall-clock time also includes the time that the
/// thread loses if the sampler must share its core.
fn sampled() -> anyhow::Result<[Figure; 2]> {
    const TURNS: usize = 5;
    let library = child::stand_in()?;
    let mut cpu = [const { Vec::new() }; 2];
    let [wall, wall_without] = medians(TURNS, |which| {
        let numbers = numbers_of(
            SAMPLED_CHILD,
            &[
                ("AMPERE_COUNTERS", ["rocm_smi", "none"][which].as_ref()),
                ("AMPERE_ROCM_SMI_LIBRARY", library.as_os_str()),
                ("STAND_IN_ROCM_SMI", "devices=8;busy_us=20".as_ref()),
            ],
        )?;
        let [wall, used] = numbers[..] else { anyhow::bail!("the child did not print two numbers") };
        cpu[which].push(used);
        Ok(wall)
    })?;
    let [cpu, cpu_without] = cpu.map(median);
    let figure = |what, value, yardstick_value| Figure {
        what,
        value,
        unit: "ns",
        yardstick: "the same without a counter",
        yardstick_value,
    };
    Ok([
        figure("plugin: a recorded event with 8 devices at 1 kHz, CPU", cpu, cpu_without),
        figure("plugin: the same, wall", wall, wall_without),
    ])
}

/// Runs in the child. Prints nanoseconds per event, by the wall clock and by the thread's CPU time.
pub fn sampled_child() {
    /// With this number of calls, the cost of reading the kernel's clock of a thread is negligible.
    const CALLS: u64 = 10_000;
    let place = Place::prepare();
    let host = Host::start(&place.library);
    // Runs until the counters are open and sampled, and the ring has been filled once.
    host.functions.batches(CALLS, Duration::from_millis(700), || [wall()]);
    let cpu = || nanoseconds(rustix::time::ClockId::ThreadCPUTime);
    let [wall, cpu] = host.functions.batches(CALLS, Duration::from_secs(1), || [wall(), cpu()]);
    host.end();
    let mean = |values: Vec<f64>| values.iter().sum::<f64>() / values.len() as f64;
    println!("{} {}", mean(wall), mean(cpu));
}

/// Measures calls that are coalesced from the start, in a process of its own.
fn folded() -> anyhow::Result<Vec<Figure>> {
    let [ours, least, counting, calls] = numbers_of(CHILD, &[("AMPERE_EVENTS", "folded".as_ref())])?[..]
    else {
        anyhow::bail!("the child did not print four numbers");
    };
    let figure = Figure::new;
    let made = (u64::from(DEEP) * TREES) as f64 * FOLDED_ROUNDS as f64;
    Ok(vec![
        figure("plugin: an enter or leave of coalesced calls, 4 deep", ours, "ns", MINIMAL_C, least),
        figure("plugin: the same", ours, "ns", COUNTING, counting),
        figure("plugin: calls of that run in its summary", 100.0 * calls / made, "%", "of those made", 100.0),
    ])
}

const FOLDED_ROUNDS: usize = 15;

/// Runs in the child. Prints nanoseconds per event of ampere and of the yardsticks, and the number of calls in the summary.
pub fn folded_child() {
    let place = Place::prepare();
    let host = Host::start(&place.library);
    let (ours, least) = (host.functions, Functions::least());
    let works: [&mut dyn FnMut(); 3] =
        [&mut || ours.trees(), &mut || least.trees(), &mut || COUNT_ONLY.trees()];
    let [ours, least, counting] = in_turn(FOLDED_ROUNDS, 2 * u64::from(DEEP) * TREES, works);
    host.end();
    let summary = place.summary();
    let regions = summary["devices"][0]["views"][0]["regions"].as_array().cloned().unwrap_or_default();
    let calls: f64 = regions.iter().filter_map(|region| region["calls"].as_f64()).sum();
    println!("{ours} {least} {counting} {calls}");
}

/// The part of Score-P that the plugin needs.
pub struct Host {
    info: SubstratePluginInfo,
    functions: Functions,
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
            let host = Host { info, functions: Functions::of(&info) };
            for region in 1..=DEEP {
                info.new_definition_handle.expect("definitions")(region, handle_type::REGION);
            }
            info.assign_id.expect("assign_id")(0);
            info.create_location.expect("create_location")(std::ptr::null(), std::ptr::null());
            info.init_mpp.expect("init_mpp")();
            host
        }
    }

    pub fn some_calls(&self, calls: u64) {
        self.functions.calls(calls);
    }

    pub fn end(&self) {
        // SAFETY: the calls are made as Score-P makes them.
        unsafe {
            self.info.delete_location.expect("delete_location")(std::ptr::null());
            self.info.finalize.expect("finalize")();
        }
    }
}
