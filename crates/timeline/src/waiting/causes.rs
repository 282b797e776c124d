//! The call paths that caused a wait.

use super::figures::Found;
use super::{LocationWaits, Wait, Waiting};
use ampere_attribution::{Engine, LocationIndex, Stay};
use ampere_model::Timestamp;

/// If there are more entries than this, the entries of each call path are merged into one.
const MANY: usize = 32;

impl LocationWaits {
    /// Returns the latest wait that overlaps the interval from `start` to `end` and that `is_wanted` accepts.
    fn at(&self, start: Timestamp, end: Timestamp, is_wanted: impl Fn(&Wait) -> bool) -> Option<&Wait> {
        let before = self.hint.partition_point(&self.all, |wait| wait.start < end);
        let recent = self.all[..before].iter().rev();
        let mut recent = recent.take_while(|wait| wait.latest_end > start);
        recent.find(|wait| wait.end > start && is_wanted(wait))
    }
}

/// The way from a wait to its causes.
struct Walk<'a> {
    waiting: &'a Waiting,
    engine: &'a Engine,
    found: &'a mut Found,
}

impl Waiting {
    /// Finds the call paths that caused the wait of a location, and the ticks of the wait that each caused.
    pub(super) fn find_causes(
        &self,
        engine: &Engine,
        location: LocationIndex,
        wait: Wait,
        found: &mut Found,
    ) {
        found.causes.clear();
        found.passed.clear();
        found.passed.extend(self.ranks.of(location));
        (found.ticks, found.not_on_cpu) = (0, 0.0);
        Walk { waiting: self, engine, found }.follow(wait.late, wait.start, wait.end);
        let causes = &mut found.causes;
        if causes.len() > MANY {
            causes.sort_unstable_by_key(|(cause, _)| *cause);
            causes.dedup_by(|(next, ticks), (cause, sum)| {
                let is_same = next == cause;
                *sum += if is_same { *ticks } else { 0 };
                is_same
            });
        }
    }
}

impl Walk<'_> {
    /// Adds the call paths in which a rank was from `start` to `end`.
    fn follow(&mut self, rank: u32, start: Timestamp, end: Timestamp) {
        let Some(location) = self.waiting.ranks.main(rank) else { return };
        self.found.passed.push(rank);
        self.engine.each_stay(location, start, end, |stay| {
            if !stay.node.is_root() {
                self.add(location, stay);
            }
        });
        self.found.passed.pop();
    }

    /// Adds a stay of a rank's main thread in a call path. Where it waited, the rank that it waited for is followed.
    fn add(&mut self, location: LocationIndex, stay: Stay) {
        let waits = self.waiting.waits.get(location.0 as usize);
        let is_in_stay = |wait: &Wait| self.waiting.is_in_frame(self.engine, location, stay.node, wait);
        let wait = waits.and_then(|waits| waits.at(stay.start, stay.end, is_in_stay));
        let waited = wait.map(|wait| {
            // The time before the frame was entered belongs to another stay, unless the start of the frame was moved.
            (wait.start.max(stay.start), wait.end.min(stay.end), wait.late)
        });
        let mut own = stay.end - stay.start;
        let mut on_cpu = self.engine.cpu_ticks(location, stay.start, stay.end).unwrap_or(own as f64);
        if let Some((start, end, late)) = waited.filter(|(_, _, late)| !self.found.passed.contains(late)) {
            own -= end - start;
            on_cpu -= self.engine.cpu_ticks(location, start, end).unwrap_or((end - start) as f64);
            self.follow(late, start, end);
        }
        if own > 0 {
            self.found.causes.push(((location, stay.node), own));
            self.found.ticks += own;
            self.found.not_on_cpu += (own as f64 - on_cpu).max(0.0);
        }
    }
}
