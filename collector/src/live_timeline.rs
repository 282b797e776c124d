//! The run's events and samples in the order of time, on their way into the engine.

use crate::sampling::clock::SessionClock;
use ampere_model::Timestamp;
use ampere_ring::Session;
use ampere_settings::Config;
use ampere_timeline::attributor::Attributor;
use ampere_timeline::merger::{Merger, QueueIndex};
use ampere_trace::power;
use ampere_trace::spool::SpoolDirectory;
use std::time::{Duration, Instant};

/// The merger of the ranks views. The others are those of GPUs' kernels views.
pub(crate) const RANKS: usize = 0;
/// What is handed over waits no longer than this for a counter to confirm a rise.
const LONGEST_WAIT: Duration = Duration::from_millis(500);

/// What exists once the run's clock is known.
pub(crate) struct LiveTimeline {
    pub clock: SessionClock,
    /// An event has shown that it is this clock.
    pub clock_is_certain: bool,
    pub attributor: Attributor,
    /// What its recorder leaves behind, if power is recorded.
    pub power: power::Values,
    pub mergers: Vec<Merger>,
    /// Everything before this is in the mergers, but for what GPU streams have not reported.
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

/// A GPU stream, as far as its merger has to wait for it.
pub(crate) struct StreamProgress {
    pub merger: usize,
    /// The time of its last event.
    pub heard: Timestamp,
}

impl LiveTimeline {
    /// `spool`: where the attributed power waits for the trace.
    pub fn new(
        clock: SessionClock,
        clock_is_certain: bool,
        config: &Config,
        spool: &SpoolDirectory,
    ) -> LiveTimeline {
        let mut attributor = Attributor::new(config.clone(), clock.ticks_per_second);
        let power = power::Values::default();
        if config.trace_power && spool.wanted {
            attributor.record(power::recorder(spool, clock.ticks_per_second, 0, &power));
        }
        LiveTimeline {
            clock,
            clock_is_certain,
            attributor,
            power,
            mergers: vec![Merger::default()],
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

    /// Events that came after the watermark had passed their time.
    pub fn late(&self) -> u64 {
        self.mergers.iter().map(Merger::late).sum()
    }

    pub fn waiting(&self) -> usize {
        self.mergers.iter().map(Merger::waiting).sum()
    }

    /// Hands over what is before the watermark.
    ///
    /// - `queue_samples` puts samples that have become known into the mergers.
    /// - `streams` are the streams that are still read.
    /// - `longest_lag` is how long a silent stream is waited for (the setting `stream_lag`; in a replay, what the trace needs).
    /// - `awaits_streams`: a process may still define its first stream.
    pub fn advance(
        &mut self,
        queue_samples: impl FnOnce(&mut Attributor, &mut [Merger]),
        streams: &[StreamProgress],
        longest_lag: u64,
        awaits_streams: bool,
    ) {
        let watermark = self.watermark.saturating_sub(self.attributor.longest_delay_ticks());
        let watermark = self.decided_until(watermark, queue_samples);
        self.mergers[RANKS].advance(watermark, &mut self.attributor);
        self.done_until = self.done_until.max(watermark);
        let longest_lag = (longest_lag as f64 * self.stream_lag_factor) as u64;
        for merger in 1..self.mergers.len() {
            let feeding = streams.iter().filter(|stream| stream.merger == merger);
            // A stream that was never heard of yet keeps its merger waiting, but not for ever.
            let unheard = if awaits_streams { 0 } else { watermark };
            let heard = feeding.map(|stream| stream.heard).min().unwrap_or(unheard);
            let until = heard.max(watermark.saturating_sub(longest_lag)).min(watermark);
            self.mergers[merger].advance(until, &mut self.attributor);
        }
    }

    /// Up to when everything may be handed over: not beyond a sample that may still come. The live figures cannot wait for a
    /// counter that moves seldom.
    fn decided_until(
        &mut self,
        watermark: Timestamp,
        queue_samples: impl FnOnce(&mut Attributor, &mut [Merger]),
    ) -> Timestamp {
        // Of a replay, time stands still when all has been played.
        if self.waits_at.is_none_or(|(at, _)| at != watermark) {
            self.waits_at = Some((watermark, Instant::now()));
        }
        let stands_still = self.waits_at.is_some_and(|(_, since)| since.elapsed() > LONGEST_WAIT);
        let must_not_wait = !self.clock.is_replayed() || stands_still;
        let wait = if stands_still { 0 } else { self.clock.ticks(LONGEST_WAIT) };
        let earliest = watermark.saturating_sub(wait);
        if must_not_wait && self.attributor.undecided_since() < earliest {
            for device in &mut self.attributor.devices {
                device.counter_mut().decide_before(earliest);
            }
            queue_samples(&mut self.attributor, &mut self.mergers);
        }
        let undecided = self.attributor.undecided_since();
        let undecided = if must_not_wait { undecided.max(earliest) } else { undecided };
        watermark.min(undecided)
    }

    /// Hands over all that is there: nothing will come any more.
    pub fn advance_to_the_end(&mut self) {
        for merger in &mut self.mergers {
            merger.advance(Timestamp::MAX, &mut self.attributor);
        }
        self.attributor.end_time();
        self.attributor.learn_silence();
        self.attributor.learn_rises();
        self.attributor.judge_devices(true);
    }

    /// Makes one merger of several: a stream that draws from several devices can be handed over only once. `queues`: all places in
    /// mergers that are kept elsewhere.
    pub fn join_mergers<'a>(
        &mut self,
        first: usize,
        other: usize,
        queues: impl Iterator<Item = &'a mut (usize, QueueIndex)>,
    ) {
        let absorbed = std::mem::take(&mut self.mergers[other]);
        let by = self.mergers[first].absorb(absorbed);
        for (merger, queue) in queues.filter(|(merger, _)| *merger == other) {
            (*merger, *queue) = (first, queue.further(by));
        }
    }
}
