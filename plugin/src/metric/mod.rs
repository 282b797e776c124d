//! The Score-P metric plugin: `libampere_plugin.so`, which is this library under another name, for
//! `SCOREP_METRIC_PLUGINS=ampere_plugin SCOREP_METRIC_AMPERE_PLUGIN='rocm_smi:::energy_count:device=*'`.
//!
//! It puts the counters that ampere samples into Score-P's own trace, under their usual names. It opens no counter itself: the
//! collector samples them, and keeps the series because this plugin asks it to ([`ampere_ring::samples`]). The metrics are
//! asynchronous and per host: Score-P asks one process of each node for them, once, at the end. While the program is running,
//! this plugin does nothing.
//!
//! ```text
//! initialize                 read the environment
//! get_event_info             find or start the node's collector, at the first call          node.rs
//!                            select counters by a pattern                                   selection.rs
//! add_counter                give a metric a number
//! synchronize                read Score-P's clock and ours, at the start and at the end
//! get_all_values             hand the series over, with converted times                     delivery.rs
//! finalize                   leave the session of a collector that was started for the metrics alone
//! ```
//!
//! A failure here is reported in one line. It does not affect the substrate plugin, nor does a failure of the substrate plugin
//! affect this one.

mod delivery;
mod node;
mod selection;

use crate::inert::{report, report_in_this_process};
use crate::{inert, strings};
use ampere_ring::clock::Moment;
use ampere_signal_safety::preserving_thread_state;
use delivery::End;
use node::Node;
use scorep_abi::metric::{
    ClockFunction, MetricPluginInfo, MetricProperties, TimeValuePair, metric_per, metric_synchronicity,
    metric_synchronization,
};
use selection::VARIABLE;
use std::ffi::{c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock};

/// The entry point, which Score-P calls first.
#[unsafe(no_mangle)]
pub extern "C" fn SCOREP_MetricPlugin_ampere_plugin_get_info() -> MetricPluginInfo {
    MetricPluginInfo {
        run_per: metric_per::HOST,
        sync: metric_synchronicity::ASYNC,
        initialize: Some(initialize),
        finalize: Some(finalize),
        get_event_info: Some(get_event_info),
        add_counter: Some(add_counter),
        set_clock_function: Some(set_clock_function),
        get_all_values: Some(get_all_values),
        synchronize: Some(synchronize),
        ..MetricPluginInfo::EMPTY
    }
}

/// The metric plugin's state in this process. The event path does not use it.
#[derive(Default)]
struct State {
    node: Option<Node>,
    /// The metrics that Score-P knows; its numbers are indices into this list.
    metrics: Vec<selection::Metric>,
    begin: Option<Moment>,
    end: Option<End>,
    /// Whether Score-P records the metrics of this node in this process.
    is_responsible: bool,
    /// Whether Score-P has asked for values.
    is_asked: bool,
}

static STATE: OnceLock<Mutex<State>> = OnceLock::new();
static CLOCK: OnceLock<ClockFunction> = OnceLock::new();
static INERT: AtomicBool = AtomicBool::new(false);
/// The process that the state belongs to, to recognise a forked child.
static PID: AtomicU32 = AtomicU32::new(0);

/// Gives up all metrics from now on. The first process of the node prints why.
fn give_up(why: &str) {
    if !INERT.swap(true, Ordering::Relaxed) {
        report(why);
    }
}

/// The boundary to Score-P: runs `body`, except after [`give_up`], if ampere is switched off, and in a forked child. Nothing
/// unwinds into Score-P.
fn guarded<T>(otherwise: T, body: impl FnOnce(&mut State) -> T) -> T {
    if INERT.load(Ordering::Relaxed) || PID.load(Ordering::Relaxed) != std::process::id() {
        return otherwise;
    }
    match preserving_thread_state(|| catch_unwind(AssertUnwindSafe(|| body(&mut state())))) {
        Ok(value) => value,
        Err(_) => {
            give_up("an internal error (please report it); the job continues without ampere's metrics");
            otherwise
        }
    }
}

fn state() -> MutexGuard<'static, State> {
    STATE.get_or_init(Mutex::default).lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Always succeeds: if this failed, Score-P would add a warning, and without metrics the plugin does nothing anyway.
extern "C" fn initialize() -> i32 {
    PID.store(std::process::id(), Ordering::Relaxed);
    guarded((), |_| {
        inert::prepare_messages();
        let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        if ampere_model::is_switched_off() {
            INERT.store(true, Ordering::Relaxed);
        } else if !is_set(VARIABLE) {
            give_up(&format!(
                "no metric of ampere_plugin is recorded: {VARIABLE} names none; set it to '*' for all of them"
            ));
        }
    });
    0
}

/// # Safety
/// `clock` is Score-P's clock function, or NULL.
unsafe extern "C" fn set_clock_function(clock: Option<ClockFunction>) {
    if let Some(clock) = clock {
        let _ = CLOCK.set(clock);
    }
}

/// Never returns NULL, which would end the application.
///
/// # Safety
/// `token` is NULL or a C string.
unsafe extern "C" fn get_event_info(token: *mut c_char) -> *mut MetricProperties {
    guarded(selection::none(), |state| {
        // SAFETY: by this function's contract.
        let pattern = unsafe { strings::owned(token) };
        if state.node.is_none() {
            match Node::find() {
                Ok(node) => state.node = Some(node),
                Err(why) => {
                    give_up(&format!("no metric of ampere_plugin is recorded: {why}"));
                    return selection::none();
                }
            }
        }
        let Some(node) = &state.node else { return selection::none() };
        match selection::select(&pattern, &node.devices, &node.notes, &state.metrics) {
            Ok(new) => {
                node.want_samples();
                let properties = selection::hand_over(&new);
                state.metrics.extend(new);
                properties
            }
            Err(why) => {
                report(&why.to_string());
                selection::none()
            }
        }
    })
}

/// # Safety
/// `name` is NULL or a C string.
unsafe extern "C" fn add_counter(name: *mut c_char) -> i32 {
    guarded(-1, |state| {
        // SAFETY: by this function's contract.
        let name = unsafe { strings::owned(name) };
        state.metrics.iter().position(|metric| metric.name == name).map_or(-1, |at| at as i32)
    })
}

/// Score-P calls this in every process, although only one of each node hands over metrics.
extern "C" fn synchronize(is_responsible: bool, mode: c_int) {
    guarded((), |state| match mode {
        metric_synchronization::BEGIN | metric_synchronization::BEGIN_MPP => state.begin = now(),
        metric_synchronization::END => {
            state.end = now().map(End::at);
            state.is_responsible = is_responsible;
        }
        _ => {}
    });
}

fn now() -> Option<Moment> {
    let clock = CLOCK.get()?;
    // SAFETY: ANY-TIME CLOCK.
    Some(Moment::now(|| unsafe { clock() }))
}

/// # Safety
/// `pairs` is NULL, or Score-P's variable for the list. Score-P frees the list.
unsafe extern "C" fn get_all_values(id: i32, pairs: *mut *mut TimeValuePair) -> u64 {
    if pairs.is_null() {
        return 0;
    }
    // SAFETY: by this function's contract. Score-P's variable is set in any case.
    unsafe { *pairs = null_mut() };
    let (list, length) = guarded((null_mut(), 0), |state| {
        state.is_asked = true;
        let metric = usize::try_from(id).ok().and_then(|at| state.metrics.get(at));
        let end = state.end.or_else(|| now().map(End::at));
        let (Some(node), Some(metric), Some(begin), Some(end)) = (&state.node, metric, state.begin, end)
        else {
            return (null_mut(), 0);
        };
        delivery::deliver(node, metric, begin, end)
    });
    // SAFETY: as above.
    unsafe { *pairs = list };
    length
}

extern "C" fn finalize() {
    guarded((), |state| {
        // With profiling enabled, the default, Score-P records no metrics of this kind.
        if state.is_responsible && !state.is_asked && !state.metrics.is_empty() {
            report_in_this_process(
                "Score-P did not record ampere_plugin's metrics: they need SCOREP_ENABLE_TRACING=true and \
                 SCOREP_ENABLE_PROFILING=false",
            );
        }
        // Score-P unloads the library next, unless something else has loaded it: memory that statics own would leak.
        let State { node, .. } = std::mem::take(state);
        if let Some(mut node) = node {
            node.leave();
        }
    });
}
