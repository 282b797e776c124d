//! Writes OTF2 traces of runs, and reads any OTF2 trace.
//!
//! ```text
//! spool/               records on local disk until the trace is written
//! write.rs             the spool becomes an archive
//! join/                the archives of several nodes become one
//! index.rs             names of a trace's definitions
//! evidence.rs          which location draws from which device, according to a trace
//! places.rs            nodes, ranks, and what a metric's values are about
//! left_out.rs          metrics that look like energy but are not devices
//! parts.rs             which device is a part of which
//! series.rs            the samples of a counter
//! metrics.rs           which metrics are devices, and in which unit
//! devices.rs           devices, found with their first samples
//! metric_recorders.rs  locations that record the same counter
//! work.rs              units of work that were counted
//! sampled_events.rs    events that were counted with stack samples
//! cpu_times.rs         times on a CPU, from the metric that locations record
//! sensors.rs           powers that are recorded next to a counter
//! scorep_names.rs      Score-P's region types and paradigms as OTF2's
//! value_type.rs        a sample's 64 bits and their type
//! offline.rs           attribution of a trace: `ampere attribute`
//! locations.rs         a trace's locations as the attributor's
//! shares.rs            a trace's nodes, divided into shares that are attributed independently
//! share_figures.rs     the figures of these shares, and of the whole trace
//! waited_energy.rs     the energy that each location uses while it waits, for the trace
//! waits.rs             a trace's ranks and communicators, and its events of communication
//! power.rs             the power that is attributed to each location, recorded for the run's trace
//! meters.rs            Cray's freshness, and meters that several nodes have recorded
//! merged.rs            a trace's events with sampled frames around recorded calls
//! nesting.rs           leave events that did not match the innermost region
//! calls/               single calls with their joules
//! replay/              a trace that is played into a live collector: `ampere replay`
//! timeline.rs          joules over time, and the calls of one region
//! chrome.rs            a trace as single events, in Chrome's format
//! perfetto.rs          the same events in Perfetto's format
//! firefox.rs           a run as a profile for the Firefox Profiler
//! rpd/                 a run in rocmProfileData's tables, as an SQLite file
//! ```
#![forbid(unsafe_code)]

pub mod calls;
pub mod chrome;
mod cpu_times;
mod devices;
pub mod evidence;
pub mod firefox;
pub mod index;
pub mod join;
mod left_out;
mod locations;
mod merged;
mod meters;
mod metric_recorders;
mod metrics;
mod nesting;
pub mod offline;
mod parts;
pub mod perfetto;
mod places;
pub mod power;
pub mod replay;
#[cfg(feature = "sqlite")]
pub mod rpd;
mod sampled_events;
pub mod scorep_names;
mod sensors;
mod series;
pub mod share_figures;
pub mod shares;
pub mod spool;
pub mod timeline;
pub mod value_type;
mod waited_energy;
pub mod waits;
mod work;
pub mod write;
