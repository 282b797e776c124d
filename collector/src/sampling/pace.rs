//! When a counter is looked at next. Times are ticks of the sampler's period.
//!
//! A counter that moves every 100 ms need not be read a hundred times in between, but when it moves is the time of a sample,
//! and should be known to a tick. So the time from change to change is learned, of all devices of a source together (one may
//! hardly draw anything and change less often than it could), and then a device is looked at around the times when its
//! change is due, tick by tick, and not in between.
//!
//! A change that was there before it was looked for says that the counter has another pace than was thought: it is learned
//! anew, with a wider window. One that does not come at all is looked for four times in a period.

/// Changes that a pace is learned from.
const SEEN: usize = 8;
/// Changes in their windows after which a surprise is forgotten.
const FORGIVEN: usize = 64;
/// Counters with a shorter period are looked at every tick.
const LEAST_PERIOD: u64 = 8;
/// A second at 1 kHz: longer periods are not learned.
const LONGEST_PERIOD: u64 = 1000;
/// The window begins this part of a period before a change is due, but no later than so many ticks before.
const WINDOW: u64 = 8;
const LEAST_WINDOW: u64 = 2;
/// So many early changes are a surprise even if it was not known when the one before the first of them was.
const EARLY: u32 = 3;
/// After so many periods without a change it is no longer known when one is due.
const STALLED: u64 = 4;

/// The pace of a source.
#[derive(Clone, Debug, Default)]
pub struct Rhythm {
    /// The last times from change to change.
    seen: [u64; SEEN],
    count: usize,
    period: Option<u64>,
    /// How often a change came before its window: each doubles it, and many changes in their windows halve it.
    surprises: u32,
}

impl Rhythm {
    /// Ticks from change to change, as far as it is known.
    pub fn period(&self) -> Option<u64> {
        self.period
    }

    fn change(&mut self, interval: u64) {
        self.seen[self.count % SEEN] = interval;
        self.count += 1;
        if self.count.is_multiple_of(FORGIVEN) {
            self.surprises = self.surprises.saturating_sub(1);
        }
        if self.count.is_multiple_of(SEEN) {
            self.period = self.seen.iter().min().copied().filter(|least| *least <= LONGEST_PERIOD);
        }
    }

    fn surprise(&mut self) {
        *self = Rhythm { surprises: (self.surprises + 1).min(8), ..Rhythm::default() };
    }

    /// Period and window, if it is worth to wait for a change.
    fn worth_waiting(&self) -> Option<(u64, u64)> {
        let period = self.period.filter(|period| *period >= LEAST_PERIOD)?;
        let window = (period / WINDOW).max(LEAST_WINDOW) << self.surprises;
        (2 * window < period).then_some((period, window))
    }
}

/// One device's place in its source's rhythm.
#[derive(Clone, Debug, Default)]
pub struct Pace {
    /// When it was last seen to have changed, and whether that is when it did.
    changed: Option<(u64, bool)>,
    looked: Option<u64>,
    /// Changes, one after the other, that were there before they were looked for.
    early: u32,
}

impl Pace {
    /// It could not be read: what comes next says nothing of how it moves.
    pub fn forget(&mut self) {
        *self = Pace::default();
    }

    /// Its value was looked at, at a tick, as planned or late. The tick to look at next.
    pub fn next(&mut self, rhythm: &mut Rhythm, tick: u64, late: bool, changed: bool) -> u64 {
        let waited = self.looked.replace(tick).is_some_and(|before| tick > before + 1);
        if changed {
            self.seen(rhythm, tick, waited, late);
        }
        let (Some((changed, _)), Some((period, window))) = (self.changed, rhythm.worth_waiting()) else {
            return tick + 1;
        };
        let since = tick - changed;
        if since >= STALLED * period {
            return tick + (period / 4).max(1);
        }
        // The next change that may be due: the first whose window is not over.
        let due = changed + period * ((since + period - window) / period).max(1);
        (due - window).max(tick + 1)
    }

    /// It had changed when it was looked at, after a while or right after the tick before.
    fn seen(&mut self, rhythm: &mut Rhythm, tick: u64, waited: bool, late: bool) {
        let before = self.changed.replace((tick, !waited && !late));
        let Some((before, certain)) = before else { return };
        if !waited {
            self.early = 0;
            if certain && !late {
                rhythm.change(tick - before);
            }
            return;
        }
        // When it changed while nobody looked is not known. If that was not the plan, it says nothing; nor does it where the
        // counter had stood still, or, for a while, where it was not known when the change before this one was.
        let stalled = tick >= before + STALLED * rhythm.period.unwrap_or(0);
        if late || stalled {
            return;
        }
        self.early += 1;
        if certain || self.early >= EARLY {
            self.early = 0;
            rhythm.surprise();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A counter that moves at the ticks that `moves` says, sampled for so long: (looks, the worst delay from a change to
    /// its being seen, after a while for learning).
    fn sample(moves: impl Fn(u64) -> bool, ticks: u64, learning: u64) -> (u64, u64) {
        let (mut rhythm, mut pace) = (Rhythm::default(), Pace::default());
        let (mut due, mut looks, mut worst) = (1, 0, 0);
        let mut unseen: Option<u64> = None;
        for tick in 0..ticks {
            if moves(tick) {
                unseen.get_or_insert(tick);
            }
            if tick < due {
                continue;
            }
            looks += u64::from(tick >= learning);
            let changed = unseen.take();
            if let Some(at) = changed.filter(|_| tick >= learning) {
                worst = worst.max(tick - at);
            }
            due = pace.next(&mut rhythm, tick, false, changed.is_some());
            assert!(due > tick);
        }
        (looks, worst)
    }

    #[test]
    fn a_slow_counter_is_looked_at_when_it_is_due() {
        let (looks, worst) = sample(|tick| tick.is_multiple_of(100), 10_000, 1_000);
        assert_eq!(worst, 0, "every change is seen in its tick");
        assert!(looks <= 9_000 / 100 * 14, "{looks} looks at 90 changes");
    }

    #[test]
    fn jitter_costs_no_time_stamp() {
        // 15 to 16 ticks, by turns that are not even.
        let (mut at, mut moves) = (0, Vec::new());
        while at < 20_000 {
            at += 15 + (at / 7) % 2;
            moves.push(at);
        }
        let (looks, worst) = sample(|tick| moves.binary_search(&tick).is_ok(), 20_000, 1_000);
        assert_eq!(worst, 0);
        assert!(looks < 19_000 / 3, "{looks}");
    }

    #[test]
    fn a_controller_that_is_not_punctual_is_waited_for() {
        // Every 100 ticks, up to 5 earlier or later.
        let moves = |tick: u64| {
            let nth = (tick + 50) / 100;
            tick + 5 == 100 * nth + (nth * 7) % 11
        };
        let (looks, worst) = sample(moves, 50_000, 1_200);
        assert_eq!(worst, 0, "every change is seen in its tick");
        assert!(looks < 49_000 / 3, "{looks}");
    }

    #[test]
    fn a_sampler_that_loses_its_core_learns_nothing_wrong() {
        // Every 50th look comes 40 ticks late, of a counter that moves every 100 ticks.
        let (mut rhythm, mut pace) = (Rhythm::default(), Pace::default());
        let (mut due, mut looks, mut seen) = (1, 0u64, 0);
        while due < 100_000 {
            looks += 1;
            let lost = looks.is_multiple_of(50);
            let tick = if lost { due + 40 } else { due };
            let changed = tick / 100 != seen;
            seen = tick / 100;
            due = pace.next(&mut rhythm, tick, lost, changed);
        }
        assert_eq!(rhythm.period(), Some(100));
        assert!(looks < 100_000 / 4, "{looks}");
    }

    #[test]
    fn a_fast_counter_is_looked_at_every_tick() {
        for period in 1..LEAST_PERIOD {
            let (looks, worst) = sample(|tick| tick.is_multiple_of(period), 5_000, 1_000);
            assert_eq!((looks, worst), (4_000, 0), "every {period} ticks");
        }
    }

    #[test]
    fn one_that_becomes_faster_is_learned_anew() {
        let moves = |tick: u64| tick.is_multiple_of(if tick < 5_000 { 100 } else { 20 });
        let (_, worst) = sample(moves, 10_000, 5_500);
        assert_eq!(worst, 0);
        let (_, worst) = sample(moves, 10_000, 1_000);
        assert!(worst < 100, "one change was late, by no more than a period: {worst}");
    }

    #[test]
    fn one_that_becomes_slower_is_looked_at_less() {
        let moves = |tick: u64| tick.is_multiple_of(if tick < 5_000 { 20 } else { 200 });
        let (looks, worst) = sample(moves, 20_000, 8_000);
        assert_eq!(worst, 0);
        assert!(looks < 12_000 / 4, "{looks}");
    }

    #[test]
    fn one_that_stands_still_is_not_forgotten() {
        let moves = |tick: u64| tick.is_multiple_of(100) && !(5_000..9_000).contains(&tick);
        let (_, worst) = sample(moves, 20_000, 10_500);
        assert_eq!(worst, 0);
        let (looks, worst) = sample(moves, 20_000, 1_000);
        assert!(worst <= 25, "the first change after it is seen within a quarter of a period: {worst}");
        assert!(looks < 19_000 / 5, "{looks}");
    }

    #[test]
    fn a_device_that_draws_little_is_seen_when_it_draws_more() {
        // A node's counter moves every 100 ticks; a part of it every third time only, and then each time.
        let (mut rhythm, mut paces) = (Rhythm::default(), [Pace::default(), Pace::default()]);
        let (mut due, mut unseen, mut worst) = ([1, 1], [None, None], 0);
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
                    due[device] = paces[device].next(&mut rhythm, tick, false, changed.is_some());
                }
            }
        }
        assert_eq!(worst, 0);
    }
}
