//! Finds the clock of the run's timestamps, and adds the devices, whose readings are timed by that clock.

use super::LiveRun;
use crate::ingest::Ingest;
use crate::live_timeline::LiveTimeline;
use crate::node_watch::NodeWatch;
use crate::sampling::clock::{CALIBRATION, CALIBRATION_MIN, SessionClock, Timer, best_reading, recognise};
use crate::sampling::samples::FoundSeries;
use ampere_model::Clocks;
use ampere_ring::Kind;

/// The number of records that are searched for the first event.
const FIRST_RECORDS: usize = 64;

/// In a replay, the clock and the devices are known from the start.
pub(super) fn begin_replay(run: &mut LiveRun) -> Result<(), ampere_ring::Error> {
    let Some(replay) = &run.options.replay else { return Ok(()) };
    let clock = SessionClock::replayed(replay.ticks_per_second, replay.first, replay.realtime_ns);
    let mut timeline = LiveTimeline::new(clock, true, &run.options, &run.ingest.spool);
    run.notes.extend(replay.notes.iter().chain(&replay.odd).cloned());
    let found = FoundSeries::replayed(replay);
    run.sampling.begin_replay(found, &run.ingest.spool, &mut timeline)?;
    run.timeline = Some(timeline);
    Ok(())
}

/// Continues with the clock in the manifest that an earlier collector has left, and with its sampler's ring.
pub(super) fn take_over(run: &mut LiveRun) {
    let Some((clock, is_certain)) = run.options.manifest.clock() else { return };
    if run.timeline.is_some() {
        return;
    }
    let mut timeline = LiveTimeline::new(clock, is_certain, &run.options, &run.ingest.spool);
    let run_cpu = run.node.as_ref().map(NodeWatch::shared);
    let (options, spool) = (&mut run.options, &run.ingest.spool);
    run.sampling.take_over(options, spool, run_cpu, &mut timeline, &mut run.notes);
    run.timeline = Some(timeline);
}

/// Starts the sampler, and finds the clock and the devices as far as that is possible now.
pub(super) fn find_clock_and_devices(run: &mut LiveRun) {
    run.sample_counters();
    if run.timeline.is_none() && run.began.instant.elapsed() >= CALIBRATION {
        set_clock(run, Timer::usual());
    }
    if !run.clock_is_certain() {
        run.read_definitions();
        if run.timeline.is_some() {
            find_clock(run);
        }
    }
    find_devices(run);
}

/// Starts the sampler, whose samples are timed by this clock.
pub(super) fn start_sampler(run: &mut LiveRun, timer: Timer) {
    let run_cpu = run.node.as_ref().map(NodeWatch::shared);
    run.sampling.start(timer, None, &run.options, run_cpu, &mut run.notes);
}

/// Adds the counters that the sampler has opened by now as devices.
pub(crate) fn find_devices(run: &mut LiveRun) {
    let Some(timeline) = &mut run.timeline else { return };
    let (options, spool) = (&run.options, &run.ingest.spool);
    run.sampling.find_devices(options, spool, timeline, &mut run.notes);
}

/// Finds the run's clock from an enter that a process has recorded; does nothing until there is one. Until then the usual clock
/// is assumed, so that sampling starts before the program does.
pub(crate) fn find_clock(run: &mut LiveRun) {
    let now = best_reading();
    let mut seen = None;
    let Ingest { processes, batch, .. } = &mut run.ingest;
    for process in processes {
        for location in &mut process.locations {
            batch.clear();
            let _ = location.reader.ring.copy_out(batch, FIRST_RECORDS);
            let first = batch.iter().find(|record| matches!(record.kind(), Some(Kind::Enter)));
            if let Some(record) = first {
                let joined = &process.info.clocks;
                seen = seen.or(Some(recognise(record.word0, &earlier(joined), joined, &now)));
            }
        }
    }
    let timer = match seen {
        Some(Some(timer)) => timer,
        Some(None) => {
            run.notes.add(
                "it is unknown which clock the events come from (SCOREP_TIMER): the attribution is probably wrong",
            );
            Timer::usual()
        }
        None => return,
    };
    if run.timeline.is_none() || timer != Timer::usual() {
        std::thread::sleep(CALIBRATION_MIN.saturating_sub(run.began.instant.elapsed()));
        set_clock(run, timer);
    }
    run.timeline.iter_mut().for_each(|timeline| timeline.clock_is_certain = true);
    remember_clock(run);
    run.add_new_definitions();
}

/// Uses this clock from now on. Samples with times of another clock are discarded; all of them are older than the first event.
pub(crate) fn set_clock(run: &mut LiveRun, timer: Timer) {
    let clock = SessionClock::calibrated(timer, &run.began.clocks);
    let is_certain = run.clock_is_certain();
    run.timeline = Some(LiveTimeline::new(clock, is_certain, &run.options, &run.ingest.spool));
    run.publisher.forget_power();
    if timer != Timer::usual() && run.sampling.forget(&mut run.notes) {
        run.options.manifest.progress.breaks.clear();
        start_sampler(run, timer);
    }
    remember_clock(run);
}

/// Saves the clock for a collector that takes over.
fn remember_clock(run: &mut LiveRun) {
    let Some(timeline) = run.timeline.as_ref().filter(|_| run.options.replay.is_none()) else { return };
    run.options.manifest.set_clock(&timeline.clock, timeline.clock_is_certain);
    run.options.save_manifest(&run.ingest.spool, &mut run.notes);
}

/// Returns the clocks ten seconds before a reading: Score-P takes the time of the program's start before it loads a plugin.
fn earlier(clocks: &Clocks) -> Clocks {
    const TEN_SECONDS: u64 = 10_000_000_000;
    Clocks {
        tsc: clocks.tsc.saturating_sub(5 * TEN_SECONDS), // at 5 GHz, which is faster than any TSC
        monotonic_ns: clocks.monotonic_ns.saturating_sub(TEN_SECONDS),
        monotonic_raw_ns: clocks.monotonic_raw_ns.saturating_sub(TEN_SECONDS),
        realtime_ns: clocks.realtime_ns.saturating_sub(TEN_SECONDS),
    }
}
