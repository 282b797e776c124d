//! The run's events and samples in the order of time, on their way into the engine.

use crate::options::Options;
use crate::sampling::clock::SessionClock;
use ampere_model::Timestamp;
use ampere_ring::Session;
use ampere_timeline::attributor::Attributor;
use ampere_timeline::pipeline::{GpuStreams, Pipeline};
use ampere_trace::power;
use ampere_trace::spool::SpoolDirectory;
use std::time::{Duration, Instant};

/// What is handed over waits no longer than this for a counter to confirm a rise.
const RISE_WAIT_MAX: Duration = Duration::from_millis(500);

/// What exists once the run's clock is known.
pub(crate) struct LiveTimeline {
    pub clock: SessionClock,
    /// An event has shown that it is this clock.
    pub clock_is_certain: bool,
    pub pipeline: Pipeline,
    /// What its recorder leaves behind, if power is recorded.
    pub power: power::Values,
    /// Everything before this is in the pipeline, but for what GPU streams have not reported.
    pub watermark: Timestamp,
    /// What is before this has been handed to the engine.
    pub done_until: Timestamp,
    /// How far a location has been read whose ring had more than could be taken at once.
    pub behind: Option<Timestamp>,
    /// The last watermark, and since when it has been that.
    waits_at: Option<(Timestamp, Instant)>,
    /// A silent GPU stream is waited for this part of `stream_lag`: 1 at first, less once too many events wait.
    pub stream_lag_factor: f64,
}

impl LiveTimeline {
    /// `spool`: where the attributed power waits for the trace.
    pub fn new(
        clock: SessionClock,
        clock_is_certain: bool,
        options: &Options,
        spool: &SpoolDirectory,
    ) -> LiveTimeline {
        let config = &options.config;
        let mut attributor = Attributor::new(config.clone(), clock.ticks_per_second);
        attributor.knows_cpu_times = options.knows_cpu_times();
        let power = power::Values::default();
        if config.trace_power && spool.wanted {
            attributor.record(power::recorder(spool, clock.ticks_per_second, 0, &power));
        }
        LiveTimeline {
            clock,
            clock_is_certain,
            pipeline: Pipeline::new(attributor, GpuStreams::Late),
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

    /// Hands over what is before the watermark. `longest_lag` is how long a silent GPU stream is waited for (the setting
    /// `stream_lag`; in a replay, what the trace needs). `awaits_streams`: a process may still define its first stream.
    pub fn advance(&mut self, longest_lag: u64, awaits_streams: bool) {
        let watermark = self.watermark.saturating_sub(self.pipeline.attributor.longest_delay_ticks());
        let watermark = self.decided_until(watermark);
        self.pipeline.advance_ranks(watermark);
        self.done_until = self.done_until.max(watermark);
        let longest_lag = (longest_lag as f64 * self.stream_lag_factor) as u64;
        self.pipeline.advance_late(watermark, longest_lag, awaits_streams);
    }

    /// Up to when everything may be handed over: not beyond a sample that may still come. The live figures cannot wait for a
    /// counter that moves seldom.
    fn decided_until(&mut self, watermark: Timestamp) -> Timestamp {
        // In a replay, time stands still when all has been played.
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

    /// Hands over all that is there: nothing will come any more.
    pub fn advance_to_the_end(&mut self) {
        self.pipeline.advance_to_the_end();
        self.pipeline.attributor.learn_baselines();
        self.pipeline.conclude();
    }
}
