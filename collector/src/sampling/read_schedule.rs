//! Decides when a counter is read next. Times are ticks of the sampler's period.
//!
//! A counter that changes every 100 ms need not be read a hundred times in between, but the time of the change is the time of the
//! sample, and should be known to a tick. So the interval between changes is learned, for all devices of a source together (one
//! of them may draw so little that its counter changes less often than it could). Then a device is read tick by tick around the
//! time when its next change is due, and not in between.
//!
//! While some libraries read, they hold a lock that the program needs, too. A reading of NVML takes about 3 ms, and without a
//! pause between readings CUDA needs ten seconds to start instead of half a second. So a source is left alone after each
//! reading ([`Pause`]), and the time of a change then has an uncertainty of the length of this pause.
//!
//! A change before its window shows that the interval is different: the interval is then learned again, with a wider window. If
//! a device's counter does not change at all, it is read four times per interval.

/// The number of changes from which an interval is learned.
const LEARNED_FROM: usize = 8;
/// After this number of changes within their windows, one early change is no longer counted.
const FORGOTTEN_AFTER: usize = 64;
/// The shortest interval for which readings are left out. Counters with a shorter one are read every tick.
const INTERVAL_MIN: u64 = 8;
/// The longest interval that is learned: a second at 1 kHz.
const INTERVAL_MAX: u64 = 1000;
/// The window starts an eighth of an interval, but at least two ticks, before a change is due.
const WINDOWS_PER_INTERVAL: u64 = 8;
const WINDOW_MIN: u64 = 2;
/// This many early changes in a row widen the window even if the time of the change before them is uncertain.
const EARLY_MAX: u32 = 3;
/// The number of intervals without a change after which the time of the next one is unknown.
const STALLED_INTERVALS: u64 = 4;

/// After a reading, its source is left alone for this multiple of the time that a reading takes.
const PAUSE_FACTOR: u64 = 10;
/// The number of readings of which the shortest shows how long one takes: others may have waited for a core.
const COSTS_KEPT: usize = 4;

/// The pause after a reading, in which a source is left alone.
#[derive(Clone, Debug)]
pub struct Pause {
    /// The durations of the last readings, in nanoseconds.
    costs: [u64; COSTS_KEPT],
    count: usize,
    /// The tick until which the source is left alone.
    until: u64,
    /// The length of a tick in nanoseconds.
    period: u64,
}

impl Pause {
    /// Makes a pause that has not started. `period` is the length of a tick in nanoseconds.
    pub fn new(period: u64) -> Pause {
        Pause { costs: [0; COSTS_KEPT], count: 0, until: 0, period: period.max(1) }
    }

    /// Records that a reading at a tick took this long, in nanoseconds.
    pub fn add(&mut self, tick: u64, took: u64) {
        self.costs[self.count % COSTS_KEPT] = took;
        self.count += 1;
        self.until = tick + if self.ticks() > 1 { self.ticks() } else { 0 };
    }

    /// Returns the ticks from one reading of a device to the next, if the source has this number of devices.
    pub fn ticks_for_each(&self, devices: usize) -> u64 {
        if self.ticks() > 1 { self.ticks() * devices as u64 } else { 1 }
    }

    /// Returns the ticks from one reading to the next. With 1, all devices may be read in one tick.
    fn ticks(&self) -> u64 {
        let known = &self.costs[..self.count.min(COSTS_KEPT)];
        let cost = known.iter().min().copied().unwrap_or(0);
        (PAUSE_FACTOR * cost).div_ceil(self.period).max(1)
    }

    /// Returns the first tick at which the source may be read again.
    pub fn until(&self) -> u64 {
        self.until
    }
}

/// The learned interval between the changes of a source's counters.
#[derive(Clone, Debug, Default)]
pub struct UpdateInterval {
    /// The last intervals between changes.
    recent: [u64; LEARNED_FROM],
    /// The number of changes so far.
    count: usize,
    learned: Option<u64>,
    /// The number of early changes: each doubles the window, and many changes in their windows halve it.
    early_changes: u32,
}

impl UpdateInterval {
    /// Returns the ticks between two changes; `None` until that is learned.
    pub fn ticks(&self) -> Option<u64> {
        self.learned
    }

    /// Adds an interval between two changes. The time of each change has an uncertainty of `pause` ticks.
    fn add(&mut self, interval: u64, pause: u64) {
        self.recent[self.count % LEARNED_FROM] = interval;
        self.count += 1;
        if self.count.is_multiple_of(FORGOTTEN_AFTER) {
            self.early_changes = self.early_changes.saturating_sub(1);
        }
        if self.count.is_multiple_of(LEARNED_FROM) {
            let mean = self.recent.iter().sum::<u64>() / LEARNED_FROM as u64;
            let least = self.recent.iter().min().copied().unwrap_or(mean);
            let interval = if pause > 1 { mean } else { least };
            self.learned = Some(interval).filter(|interval| *interval <= INTERVAL_MAX);
        }
    }

    /// Counts an early change, after which the interval must be learned again.
    fn add_early_change(&mut self) {
        *self =
            UpdateInterval { early_changes: (self.early_changes + 1).min(8), ..UpdateInterval::default() };
    }

    /// Returns interval and window, if it is worth waiting for a change.
    fn worth_waiting(&self) -> Option<(u64, u64)> {
        let interval = self.learned.filter(|interval| *interval >= INTERVAL_MIN)?;
        let window = (interval / WINDOWS_PER_INTERVAL).max(WINDOW_MIN) << self.early_changes;
        (2 * window < interval).then_some((interval, window))
    }
}

/// The schedule of one device of a source.
#[derive(Clone, Debug, Default)]
pub struct ReadSchedule {
    /// The tick of the last reading that showed a change, and whether the change came right before it.
    changed: Option<(u64, bool)>,
    /// The tick of the last reading.
    read: Option<u64>,
    /// The number of changes in a row that came before their windows.
    early: u32,
}

impl ReadSchedule {
    /// Forgets the last change after a failed reading, because the next change may have come at any time since then.
    pub fn forget(&mut self) {
        *self = ReadSchedule::default();
    }

    /// Records a reading at a tick, and returns the tick of the next one. `late` means that the reading came after the tick
    /// that was planned, and `changed` that the value differs from the one before. `pause` is the least number of ticks from
    /// one reading to the next.
    pub fn next(
        &mut self,
        interval: &mut UpdateInterval,
        tick: u64,
        late: bool,
        changed: bool,
        pause: u64,
    ) -> u64 {
        let waited = self.read.replace(tick).is_some_and(|before| tick > before + pause);
        if changed {
            self.record_change(interval, tick, waited, late, pause);
        }
        let (Some((changed, _)), Some((ticks, window))) = (self.changed, interval.worth_waiting()) else {
            return tick + pause;
        };
        let since = tick - changed;
        if since >= STALLED_INTERVALS * ticks {
            return tick + (ticks / 4).max(1);
        }
        // The next change that may be due is the first whose window has not ended.
        let due = changed + ticks * ((since + ticks - window) / ticks).max(1);
        (due - window).max(tick + pause)
    }

    /// Records a change. `waited` means that ticks were left out before the reading that showed it.
    fn record_change(
        &mut self,
        interval: &mut UpdateInterval,
        tick: u64,
        waited: bool,
        late: bool,
        pause: u64,
    ) {
        let before = self.changed.replace((tick, !waited && !late));
        let Some((before, certain)) = before else { return };
        if !waited {
            self.early = 0;
            if certain && !late {
                interval.add(tick - before, pause);
            }
            return;
        }
        // The change came at an unknown time since the last reading. A change does not count as early if the reading was late,
        // if the counter had stood still, or, for a few changes, if the time of the previous change is uncertain too.
        let stalled = tick >= before + STALLED_INTERVALS * interval.learned.unwrap_or(0);
        if late || stalled {
            return;
        }
        self.early += 1;
        if certain || self.early >= EARLY_MAX {
            self.early = 0;
            interval.add_early_change();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Samples a counter that moves at the ticks that `moves` accepts, for `ticks`. Returns the readings and the worst delay from
    /// a change to its reading, after `learning` ticks.
    fn sample(moves: impl Fn(u64) -> bool, ticks: u64, learning: u64) -> (u64, u64) {
        let (mut interval, mut schedule) = (UpdateInterval::default(), ReadSchedule::default());
        let mut due = 1;
        let mut readings = 0;
        let mut worst = 0;
        let mut unseen: Option<u64> = None;
        for tick in 0..ticks {
            if moves(tick) {
                unseen.get_or_insert(tick);
            }
            if tick < due {
                continue;
            }
            readings += u64::from(tick >= learning);
            let changed = unseen.take();
            if let Some(at) = changed.filter(|_| tick >= learning) {
                worst = worst.max(tick - at);
            }
            due = schedule.next(&mut interval, tick, false, changed.is_some(), 1);
            assert!(due > tick);
        }
        (readings, worst)
    }

    #[test]
    fn a_slow_counter_is_read_when_it_is_due() {
        let (readings, worst) = sample(|tick| tick.is_multiple_of(100), 10_000, 1_000);
        assert_eq!(worst, 0, "every change is seen in its tick");
        assert!(readings <= 9_000 / 100 * 14, "{readings} readings at 90 changes");
    }

    #[test]
    fn a_change_with_jitter_is_seen_in_its_tick() {
        // Intervals alternate irregularly between 15 and 16 ticks.
        let (mut at, mut moves) = (0, Vec::new());
        while at < 20_000 {
            at += 15 + (at / 7) % 2;
            moves.push(at);
        }
        let (readings, worst) = sample(|tick| moves.binary_search(&tick).is_ok(), 20_000, 1_000);
        assert_eq!(worst, 0);
        assert!(readings < 19_000 / 3, "{readings}");
    }

    #[test]
    fn a_counter_that_changes_irregularly_is_seen_in_its_tick() {
        // The counter moves every 100 ticks, up to 5 earlier or later.
        let moves = |tick: u64| {
            let nth = (tick + 50) / 100;
            tick + 5 == 100 * nth + (nth * 7) % 11
        };
        let (readings, worst) = sample(moves, 50_000, 1_200);
        assert_eq!(worst, 0, "every change is seen in its tick");
        assert!(readings < 49_000 / 3, "{readings}");
    }

    #[test]
    fn a_sampler_that_loses_its_core_learns_nothing_wrong() {
        // Every 50th reading of a counter that moves every 100 ticks comes 40 ticks late.
        let (mut interval, mut schedule) = (UpdateInterval::default(), ReadSchedule::default());
        let mut due = 1;
        let mut readings = 0u64;
        let mut seen = 0;
        while due < 100_000 {
            readings += 1;
            let lost = readings.is_multiple_of(50);
            let tick = if lost { due + 40 } else { due };
            let changed = tick / 100 != seen;
            seen = tick / 100;
            due = schedule.next(&mut interval, tick, lost, changed, 1);
        }
        assert_eq!(interval.ticks(), Some(100));
        assert!(readings < 100_000 / 4, "{readings}");
    }

    #[test]
    fn a_fast_counter_is_read_every_tick() {
        for period in 1..INTERVAL_MIN {
            let (readings, worst) = sample(|tick| tick.is_multiple_of(period), 5_000, 1_000);
            assert_eq!((readings, worst), (4_000, 0), "every {period} ticks");
        }
    }

    #[test]
    fn a_counter_that_becomes_faster_is_learned_again() {
        let moves = |tick: u64| tick.is_multiple_of(if tick < 5_000 { 100 } else { 20 });
        let (_, worst) = sample(moves, 10_000, 5_500);
        assert_eq!(worst, 0);
        let (_, worst) = sample(moves, 10_000, 1_000);
        assert!(worst < 100, "one change was late, by no more than a period: {worst}");
    }

    #[test]
    fn a_counter_that_becomes_slower_is_read_less_often() {
        let moves = |tick: u64| tick.is_multiple_of(if tick < 5_000 { 20 } else { 200 });
        let (readings, worst) = sample(moves, 20_000, 8_000);
        assert_eq!(worst, 0);
        assert!(readings < 12_000 / 4, "{readings}");
    }

    #[test]
    fn a_counter_that_stands_still_is_not_forgotten() {
        let moves = |tick: u64| tick.is_multiple_of(100) && !(5_000..9_000).contains(&tick);
        let (_, worst) = sample(moves, 20_000, 10_500);
        assert_eq!(worst, 0);
        let (readings, worst) = sample(moves, 20_000, 1_000);
        assert!(worst <= 25, "the first change after it is seen within a quarter of a period: {worst}");
        assert!(readings < 19_000 / 5, "{readings}");
    }

    #[test]
    fn a_device_that_draws_little_is_seen_when_it_draws_more() {
        // A node's counter moves every 100 ticks, and a part of it only every third time, at the same tick.
        let (mut interval, mut schedules) =
            (UpdateInterval::default(), [ReadSchedule::default(), ReadSchedule::default()]);
        let mut due = [1, 1];
        let mut unseen = [None, None];
        let mut worst = 0;
        for tick in 0..20_000u64 {
            let moves =
                [tick.is_multiple_of(100), tick.is_multiple_of(if tick < 10_000 { 300 } else { 100 })];
            for device in 0..2 {
                if moves[device] {
                    unseen[device].get_or_insert(tick);
                }
                if tick >= due[device] {
                    let changed = unseen[device].take();
                    if let Some(at) = changed.filter(|_| tick > 3_000) {
                        worst = worst.max(tick - at);
                    }
                    due[device] = schedules[device].next(&mut interval, tick, false, changed.is_some(), 1);
                }
            }
        }
        assert_eq!(worst, 0);
    }

    #[test]
    fn a_source_whose_readings_are_slow_is_left_alone_nine_tenths_of_the_time() {
        // A reading takes 2.7 ticks of 1 ms, and the first one waits for a core.
        let mut pause = Pause::new(1_000_000);
        let (mut interval, mut schedule) = (UpdateInterval::default(), ReadSchedule::default());
        let mut due = 0;
        let mut readings = 0;
        let mut seen = 0;
        let mut worst = 0;
        while due < 100_000 {
            let tick = due.max(pause.until());
            pause.add(tick, if readings == 0 { 40_000_000 } else { 2_700_000 });
            readings += 1;
            let changed = tick / 100 != seen;
            if changed && tick > 2_000 {
                worst = worst.max(tick % 100);
                assert_eq!(tick / 100, seen + 1, "a change is missed");
            }
            seen = tick / 100;
            due = schedule.next(&mut interval, tick, false, changed, pause.ticks_for_each(1));
        }
        assert_eq!(pause.ticks(), 27);
        assert!(readings as f64 * 2.7 < 100_000.0 / 10.0, "{readings} readings");
        assert!(worst <= 27, "a change is seen within the pause: {worst}");
        let learned = interval.ticks().unwrap();
        assert!((95..=105).contains(&learned), "{learned}");
    }

    #[test]
    fn all_devices_of_a_source_whose_readings_are_fast_are_read_every_tick() {
        let mut pause = Pause::new(1_000_000);
        // One of four readings waits for a core.
        for tick in 0..100 {
            pause.add(tick, if tick % 4 == 3 { 5_000_000 } else { 60_000 });
            assert_eq!(
                (pause.until(), pause.ticks_for_each(8)),
                (tick, 1),
                "all devices are read in each tick"
            );
        }
    }
}
