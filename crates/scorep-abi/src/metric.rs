//! Score-P 8.4's metric plugin interface, version 1: the structure that a plugin's `SCOREP_MetricPlugin_<name>_get_info` returns.
//!
//! Memory that a plugin hands over (properties with their strings, lists of values) belongs to Score-P, which frees it with
//! `free`: each piece must come from `malloc` ([`crate::guarantees`], FREES WITH FREE).

use crate::Unused;
use crate::c::{c_enum, c_struct};
use std::ffi::{c_char, c_int};
use std::ptr::null_mut;

/// The version of Score-P 8.4's interface for metric plugins.
pub const METRIC_PLUGIN_VERSION: u32 = 1;

c_struct! {
    /// One metric, as `get_event_info` describes it: `mode` is a [`metric_mode`], `value_type` a [`metric_value_type`], `base` a
    /// [`metric_base`]; a value times `base` to the power of `exponent` is the quantity in `unit`. An array of these ends with
    /// one whose name is NULL.
    MetricProperties = "SCOREP_Metric_Plugin_MetricProperties", 48 bytes {
        0 name: *mut c_char = null_mut(), "name";
        8 description: *mut c_char = null_mut(), "description";
        16 mode: c_int = 0, "mode";
        20 value_type: c_int = 0, "value_type";
        24 base: c_int = 0, "base";
        32 exponent: i64 = 0, "exponent";
        40 unit: *mut c_char = null_mut(), "unit";
    }
}

c_struct! {
    /// A value of an asynchronous metric. The timestamp is from the clock that `set_clock_function` passed to the plugin.
    TimeValuePair = "SCOREP_MetricTimeValuePair", 16 bytes {
        0 timestamp: u64 = 0, "timestamp";
        8 value: u64 = 0, "value";
    }
}

/// Score-P's clock, which returns the present time in ticks.
pub type ClockFunction = unsafe extern "C" fn() -> u64;

c_struct! {
    /// The structure that `SCOREP_MetricPlugin_<name>_get_info` returns by value. `run_per` is a [`metric_per`], `sync` a
    /// [`metric_synchronicity`], `delta_t` the smallest number of ticks between two readings. `initialize` returns 0 for success;
    /// `get_event_info` returns the metrics that a token of `SCOREP_METRIC_<NAME>` selects (NULL ends the application);
    /// `add_counter` returns a number for the metric, or a negative number on failure. `set_clock_function` is called before
    /// `initialize`. `reserved` must be 0.
    MetricPluginInfo = "SCOREP_Metric_Plugin_Info", 832 bytes {
        0 plugin_version: u32 = METRIC_PLUGIN_VERSION, "plugin_version";
        4 run_per: c_int = 0, "run_per";
        8 sync: c_int = 0, "sync";
        16 delta_t: u64 = 0, "delta_t";
        24 initialize: Option<unsafe extern "C" fn() -> i32> = None, "initialize";
        32 finalize: Option<unsafe extern "C" fn()> = None, "finalize";
        40 get_event_info: Option<unsafe extern "C" fn(token: *mut c_char) -> *mut MetricProperties> = None, "get_event_info";
        48 add_counter: Option<unsafe extern "C" fn(name: *mut c_char) -> i32> = None, "add_counter";
        56 get_current_value: Unused = None, "get_current_value";
        64 get_optional_value: Unused = None, "get_optional_value";
        72 set_clock_function: Option<unsafe extern "C" fn(clock: Option<ClockFunction>)> = None, "set_clock_function";
        80 get_all_values: Option<unsafe extern "C" fn(id: i32, pairs: *mut *mut TimeValuePair) -> u64> = None, "get_all_values";
        88 synchronize: Option<unsafe extern "C" fn(is_responsible: bool, mode: c_int)> = None, "synchronize";
        96 reserved: [u64; 92] = [0; 92], "reserved";
    }
}

c_enum! {
    /// The processes that record a plugin's metrics.
    metric_per: i32 = "SCOREP_MetricPer", "SCOREP_METRIC_PER_" {
        HOST = 2,
    }
}

c_enum! {
    /// The times at which values are measured and requested.
    metric_synchronicity: i32 = "SCOREP_MetricSynchronicity", "SCOREP_METRIC_" {
        ASYNC = 3,
    }
}

c_enum! {
    /// The moment at which `synchronize` is called.
    metric_synchronization: i32 = "SCOREP_MetricSynchronizationMode", "SCOREP_METRIC_SYNCHRONIZATION_MODE_" {
        BEGIN = 0,
        BEGIN_MPP = 1,
        END = 2,
    }
}

c_enum! {
    /// The meaning of a value, and the time for which it is valid.
    metric_mode: i32 = "SCOREP_MetricMode", "SCOREP_METRIC_MODE_" {
        ACCUMULATED_START = 0,
    }
}

c_enum! {
    /// The type of a value.
    metric_value_type: i32 = "SCOREP_MetricValueType", "SCOREP_METRIC_VALUE_" {
        UINT64 = 1,
    }
}

c_enum! {
    /// The base of a value's exponent.
    metric_base: i32 = "SCOREP_MetricBase", "SCOREP_METRIC_BASE_" {
        DECIMAL = 1,
    }
}
