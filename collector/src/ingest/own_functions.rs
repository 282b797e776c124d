//! Finds out whether a process records its own functions, so that its time is in rows even if it cannot be sampled.

use ampere_attribution::NodeIndex;
use ampere_model::Timestamp;

/// An open call: its call path, and how often that has been entered.
pub(super) type Call = (NodeIndex, u64);

/// Whether a process records its own functions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum OwnFunctions {
    #[default]
    Unknown,
    /// The process has been in this call of a function of its own since this time.
    In { call: Call, since: Timestamp },
    /// The process has been in this call long enough to conclude that it records all its functions, as when `main` is
    /// instrumented.
    Recorded(Call),
    /// The process recorded its functions, but no longer does, or not always.
    Ended,
}

impl OwnFunctions {
    /// Takes the outermost recorded call that is open at `time`. Returns whether the process records its functions, if that has
    /// changed. `long`: the time for which the same call must be open, in ticks. Many short calls, each of which is open when
    /// this function is called, show nothing about the time between them.
    pub fn update(&mut self, call: Option<Call>, time: Timestamp, long: u64) -> Option<bool> {
        let before = *self;
        *self = match (before, call) {
            (OwnFunctions::Ended, _) => OwnFunctions::Ended,
            (OwnFunctions::Recorded(known), Some(call)) if call == known => before,
            (OwnFunctions::Recorded(_), _) => OwnFunctions::Ended,
            (OwnFunctions::In { call: known, since }, Some(call)) if call == known => {
                if time.saturating_sub(since) >= long { OwnFunctions::Recorded(call) } else { before }
            }
            (_, Some(call)) if long == 0 => OwnFunctions::Recorded(call),
            (_, Some(call)) => OwnFunctions::In { call, since: time },
            (_, None) => OwnFunctions::Unknown,
        };
        (before.is_recorded() != self.is_recorded()).then(|| self.is_recorded())
    }

    pub fn is_recorded(self) -> bool {
        matches!(self, OwnFunctions::Recorded(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: u64 = 300;
    const PATH: NodeIndex = NodeIndex(1);

    #[test]
    fn a_call_that_is_open_for_long_shows_that_functions_are_recorded_until_it_ends() {
        let mut functions = OwnFunctions::default();
        let main = Some((PATH, 1));
        let news = [100, 200, 300, 400, 500].map(|time| functions.update(main, time, LONG));
        assert_eq!(news, [None, None, None, Some(true), None]);
        assert_eq!(functions.update(None, 600, LONG), Some(false));
        let news = [700, 1000, 2000].map(|time| functions.update(main, time, LONG));
        assert_eq!(news, [None; 3], "it is not found a second time");
    }

    #[test]
    fn short_calls_at_each_check_are_not_taken_for_a_long_one() {
        let mut functions = OwnFunctions::default();
        let news = (1..100).map(|number| functions.update(Some((PATH, number)), 100 * number, LONG));
        assert!(news.into_iter().all(|news| news.is_none()));
    }

    #[test]
    fn checks_of_one_moment_count_once() {
        let mut functions = OwnFunctions::default();
        assert!((0..10).all(|_| functions.update(Some((PATH, 1)), 100, LONG).is_none()));
    }

    #[test]
    fn another_call_ends_the_recording_like_the_end_of_the_first() {
        let mut functions = OwnFunctions::default();
        let news = [(1, 100), (1, 400), (2, 500)];
        let news = news.map(|(number, time)| functions.update(Some((PATH, number)), time, LONG));
        assert_eq!(news, [None, Some(true), Some(false)]);
    }
}
