//! The pipeline of a live run, which brings events and samples into the order of time and hands them to the engine.

use crate::live_waits::LiveWaits;
use crate::options::Options;
use crate::sampling::clock::SessionClock;
use ampere_model::Timestamp;
use ampere_ring::Session;
use ampere_timeline::attributor::Attributor;
use ampere_timeline::pipeline::{GpuStreams, Pipeline};
use ampere_trace::power;
use ampere_trace::spool::SpoolDirectory;
use std::time::{Duration, Instant};

/// An upper bound on waiting for a counter to confirm a rise before events are handed over.
const RISE_WAIT_MAX: Duration = Duration::from_millis(500);

/// The parts of a run that exist once its clock is known.
pub(crate) struct LiveTimeline {
    pub clock: SessionClock,
    /// Whether an event has confirmed the clock.
    pub clock_is_certain: bool,
    pub pipeline: Pipeline,
    pub waits: LiveWaits,
    /// The attributed power that the recorder has written, if power is recorded.
    pub power: power::Values,
    /// All events before this time are in the pipeline, except those that GPU streams have not reported yet.
    pub watermark: Timestamp,
    /// Everything before this time has been handed to the engine.
    pub done_until: Timestamp,
    /// If a ring had more records than can be taken at once: the time up to which its location has been read.
    pub behind: Option<Timestamp>,
    /// The last watermark, and the time since which it has not changed.
    waits_at: Option<(Timestamp, Instant)>,
    /// The fraction of `stream_lag` for which a silent GPU stream is waited for. It is 1 at first, and less after too many events
    /// had to wait.
    pub stream_lag_factor: f64,
}

impl LiveTimeline {
    /// Makes the pipeline. `spool` is the directory for the attributed power until the trace is written.
    pub fn new(
        clock: SessionClock,
        clock_is_certain: bool,
        options: &Options,
        spool: &SpoolDirectory,
    ) -> LiveTimeline {
        let config = &options.config;
        let mut attributor = Attributor::new(config.clone(), clock.ticks_per_second);
        attributor.knows_cpu_times = options.knows_cpu_times();
        // A kernel becomes known only when it has ended. The joules of functions do not wait for that during the run.
        attributor.divides_by_kernels = false;
        let power = power::Values::default();
        if config.trace_power && spool.wanted {
            attributor.record(power::recorder(spool, clock.ticks_per_second, 0, &power));
        }
        LiveTimeline {
            clock,
            clock_is_certain,
            pipeline: Pipeline::new(attributor, GpuStreams::Late),
            waits: LiveWaits::new(config.attribution.waits, options.replay.as_ref()),
            power,
            watermark: 0,
            done_until: 0,
            behind: None,
            waits_at: None,
            stream_lag_factor: 1.0,
        }
    }

    pub fn now(&self, session: &Session) -> Timestamp {
        self.clock.now(session)
    }

    /// Hands over everything before the watermark. `longest_lag` is the longest time for which a silent GPU stream is waited for
    /// (the setting `stream_lag`, or what a replayed trace needs). `awaits_streams`: a process may still define its first stream.
    pub fn advance(&mut self, longest_lag: u64, awaits_streams: bool) {
        let watermark = self.watermark.saturating_sub(self.pipeline.attributor.longest_delay_ticks());
        let watermark = self.decided_until(watermark);
        self.pipeline.advance_ranks(watermark);
        self.done_until = self.done_until.max(watermark);
        let longest_lag = (longest_lag as f64 * self.stream_lag_factor) as u64;
        self.pipeline.advance_late(watermark, longest_lag, awaits_streams);
        self.waits.settle(&mut self.pipeline.attributor, self.done_until);
    }

    /// Returns the time up to which everything may be handed over. It is not later than a sample that may still arrive, but live
    /// figures cannot wait long for a counter that rarely changes.
    fn decided_until(&mut self, watermark: Timestamp) -> Timestamp {
        // In a replay, time stops when everything has been played.
        if self.waits_at.is_none_or(|(at, _)| at != watermark) {
            self.waits_at = Some((watermark, Instant::now()));
        }
        let stands_still = self.waits_at.is_some_and(|(_, since)| since.elapsed() > RISE_WAIT_MAX);
        let must_not_wait = !self.clock.is_replayed() || stands_still;
        let wait = if stands_still { 0 } else { self.clock.ticks(RISE_WAIT_MAX) };
        let earliest = watermark.saturating_sub(wait);
        if must_not_wait && self.pipeline.attributor.undecided_since() < earliest {
            self.pipeline.decide_before(earliest);
        }
        let undecided = self.pipeline.attributor.undecided_since();
        let undecided = if must_not_wait { undecided.max(earliest) } else { undecided };
        watermark.min(undecided)
    }

    /// Hands over everything, because no more events will arrive.
    pub fn advance_to_the_end(&mut self) {
        self.pipeline.advance_to_the_end();
        self.waits.end(&mut self.pipeline.attributor);
        self.pipeline.attributor.learn_baselines();
        self.pipeline.conclude();
    }
}
