//! Score-P 8.4's metric plugin interface, version 1: what `SCOREP_MetricPlugin_<name>_get_info` returns, and what it calls.
//!
//! Memory that a plugin hands over (properties with their strings, time and value pairs) becomes Score-P's, which frees it
//! with `free`: it must come from `malloc`, each piece for itself.

use std::ffi::{c_char, c_int};

/// Metric plugin version of Score-P 8.4.
pub const METRIC_PLUGIN_VERSION: u32 = 1;

/// One metric, as `get_event_info` describes it. An array of these ends with one whose name is NULL.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct MetricProperties {
    pub name: *mut c_char,
    pub description: *mut c_char,
    /// See [`metric_mode`].
    pub mode: c_int,
    /// See [`metric_value_type`].
    pub value_type: c_int,
    /// See [`metric_base`].
    pub base: c_int,
    /// A value times base to this power is in `unit`.
    pub exponent: i64,
    pub unit: *mut c_char,
}

/// A value of an asynchronous metric.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeValuePair {
    /// By the clock that `set_clock_function` handed over.
    pub timestamp: u64,
    pub value: u64,
}

/// Score-P's clock: its ticks, now.
pub type ClockFunction = unsafe extern "C" fn() -> u64;

/// What `SCOREP_MetricPlugin_<name>_get_info` returns, by value.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct MetricPluginInfo {
    pub plugin_version: u32,
    /// See [`metric_per`].
    pub run_per: c_int,
    /// See [`metric_synchronicity`].
    pub sync: c_int,
    /// Least ticks between two readings.
    pub delta_t: u64,
    /// 0 if all is well.
    pub initialize: Option<unsafe extern "C" fn() -> i32>,
    pub finalize: Option<unsafe extern "C" fn()>,
    /// The metrics that a token of `SCOREP_METRIC_<NAME>` stands for. NULL ends the application.
    pub get_event_info: Option<unsafe extern "C" fn(token: *mut c_char) -> *mut MetricProperties>,
    /// A number for the metric, or one below 0.
    pub add_counter: Option<unsafe extern "C" fn(name: *mut c_char) -> i32>,
    pub get_current_value: Option<unsafe extern "C" fn(id: i32) -> u64>,
    pub get_optional_value: Option<unsafe extern "C" fn(id: i32, value: *mut u64) -> bool>,
    /// Called before `initialize`.
    pub set_clock_function: Option<unsafe extern "C" fn(clock: Option<ClockFunction>)>,
    pub get_all_values: Option<unsafe extern "C" fn(id: i32, pairs: *mut *mut TimeValuePair) -> u64>,
    /// See [`metric_synchronization`].
    pub synchronize: Option<unsafe extern "C" fn(is_responsible: bool, mode: c_int)>,
    /// For Score-P's future. Must be all 0.
    pub reserved: [u64; 92],
}

impl MetricPluginInfo {
    /// The plugin version and nothing else.
    pub const EMPTY: MetricPluginInfo = MetricPluginInfo {
        plugin_version: METRIC_PLUGIN_VERSION,
        run_per: 0,
        sync: 0,
        delta_t: 0,
        initialize: None,
        finalize: None,
        get_event_info: None,
        add_counter: None,
        get_current_value: None,
        get_optional_value: None,
        set_clock_function: None,
        get_all_values: None,
        synchronize: None,
        reserved: [0; 92],
    };
}

/// Who records a plugin's metrics. `SCOREP_MetricPer`.
pub mod metric_per {
    pub const THREAD: i32 = 0;
    pub const PROCESS: i32 = 1;
    pub const HOST: i32 = 2;
    pub const ONCE: i32 = 3;
}

/// When values are taken and asked for. `SCOREP_MetricSynchronicity`.
pub mod metric_synchronicity {
    pub const STRICTLY_SYNC: i32 = 0;
    pub const SYNC: i32 = 1;
    pub const ASYNC_EVENT: i32 = 2;
    pub const ASYNC: i32 = 3;
}

/// What moment `synchronize` is called at. `SCOREP_MetricSynchronizationMode`.
pub mod metric_synchronization {
    pub const BEGIN: i32 = 0;
    pub const BEGIN_MPP: i32 = 1;
    pub const END: i32 = 2;
}

/// What a value says, and of which time. `SCOREP_MetricMode`.
pub mod metric_mode {
    pub const ACCUMULATED_START: i32 = 0;
    pub const ACCUMULATED_POINT: i32 = 1;
    pub const ACCUMULATED_LAST: i32 = 2;
    pub const ACCUMULATED_NEXT: i32 = 3;
    pub const ABSOLUTE_POINT: i32 = 4;
    pub const ABSOLUTE_LAST: i32 = 5;
    pub const ABSOLUTE_NEXT: i32 = 6;
    pub const RELATIVE_POINT: i32 = 7;
    pub const RELATIVE_LAST: i32 = 8;
    pub const RELATIVE_NEXT: i32 = 9;
}

/// `SCOREP_MetricValueType`.
pub mod metric_value_type {
    pub const INT64: i32 = 0;
    pub const UINT64: i32 = 1;
    pub const DOUBLE: i32 = 2;
}

/// `SCOREP_MetricBase`.
pub mod metric_base {
    pub const BINARY: i32 = 0;
    pub const DECIMAL: i32 = 1;
}
