//! The attribution engine: which call path on which location spent which device's joules.
//!
//! The engine is pure: it reads no clock, does no IO and calls no foreign code. It cannot fail: input that contradicts itself is
//! counted ([`Oddities`]). The live collector and the offline `ampere attribute` run this same code, and feed it the same events
//! in the same order.
//!
//! # How it works
//!
//! A *view* is one device seen by one kind of consumer (ranks, or GPU streams). Between two samples of its counter a view keeps a
//! *share clock*: the ticks that one active consumer has been due since the last sample. While n consumers are active it advances
//! by dt/n (policy *time sliced*), or by dt (policy *busy only*, and independent sharing). A frame that was the innermost one
//! from clock a to clock b is due b - a. So an enter or a leave costs one subtraction and one addition per view, whatever the
//! number of ranks that share the device. When the next sample comes, the interval's joules per due tick are known, and the call
//! paths touched in it are charged. This is the virtual time of fair queueing, used for energy. Samples before which no location
//! starts or stops running can be queued before the events that precede them ([`Engine::enqueue_sample`]): each location then
//! passes several of them in one visit.
//!
//! [`Counter`] decides what a counter's readings mean, and deals with resets, wraps, gaps and misreadings.
//!
//! The share clock starts at zero in every interval, so its precision does not depend on the length of the run.
//!
//! **Invariant**: attributed + idle (including what other jobs used) + lost = the counter's known increase, for every view,
//! after every sample. [`ViewTotals::conservation_error_joules`] is the error that rounding adds to it.
//!
//! ```text
//! engine.rs      locations, their stacks, and the views
//! view/          one view: what each frame is charged
//! counter.rs     readings to joules between two samples
//! tracker/       which readings can be true
//! callpaths.rs   one location's call paths
//! view_table.rs  a view as a table
//! policy.rs      how joules are divided
//! intervals.rs   the usual length of intervals
//! calls.rs       single calls, if they are recorded
//! history.rs     recent moves of locations, and what was charged for them, if they are recorded
//! hint.rs        where a search in such a history starts
//! steps.rs       steps of locations, and their numbers
//! cpu_time.rs    when locations used CPU time
//! ```
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod callpaths;
mod calls;
mod counter;
mod cpu_time;
mod engine;
mod hint;
mod history;
mod intervals;
mod policy;
mod steps;
mod tracker;
mod view;
mod view_table;

pub use counter::{Counter, CounterFigures, CounterKind, Increase, Limits, Sample};
pub use cpu_time::OtherJobs;
pub use engine::{Engine, Oddities};
pub use hint::Hint;
pub use history::Stay;
pub use policy::{Policy, Sharing};
pub use steps::{LocationIndex, NodeIndex, Step, ViewIndex};
pub use view::{Call, Charge, ChargedInterval, IdleIntervals, Spent, ViewTotals};
pub use view_table::{CallpathRow, RegionRow, ViewReport};
