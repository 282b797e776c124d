//! The recent history of locations and views, which is recorded only if the caller wants that: which call path each location was
//! in, and what each view charged for it. It serves to find the joules and the call paths of an earlier time.

use crate::engine::Engine;
use crate::hint::Hint;
use crate::steps::{LocationIndex, Move, NodeIndex, ViewIndex};
use crate::view::View;
use ampere_model::{RegionRef, Timestamp};
use std::ops::Range;

/// From `start` to `end`, this call path was the innermost one of a location.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Stay {
    pub start: Timestamp,
    pub end: Timestamp,
    pub node: NodeIndex,
}

/// The times at which a call path became the innermost one of a location.
#[derive(Clone, Debug, Default)]
struct Moves {
    all: Vec<(Timestamp, NodeIndex)>,
    hint: Hint,
}

/// The moves of the locations that are recorded.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    /// The moves of each location; `None` if the location is not recorded.
    moves: Vec<Option<Moves>>,
    /// Everything from this time on is kept.
    kept_since: Timestamp,
}

impl History {
    #[inline]
    pub fn add(&mut self, location: LocationIndex, moves: &[Move]) {
        let Some(Some(Moves { all, .. })) = self.moves.get_mut(location.0 as usize) else { return };
        let mut last = all.last().map_or(0, |(time, _)| *time);
        all.extend(moves.iter().map(|to| {
            last = last.max(to.time);
            (last, to.node)
        }));
    }

    pub fn kept_since(&self) -> Timestamp {
        self.kept_since
    }

    fn of(&self, location: LocationIndex) -> Option<&Moves> {
        self.moves.get(location.0 as usize)?.as_ref()
    }
}

/// A history that is being made shorter.
struct Shortened {
    moves: Vec<(Timestamp, NodeIndex)>,
    /// The start of the current part.
    start: Timestamp,
    /// The ticks of each call path in the current part, in the order of their first stays.
    stays: Vec<(NodeIndex, u64)>,
}

impl Shortened {
    fn add(&mut self, start: Timestamp, end: Timestamp, node: NodeIndex) {
        if start == end {
            return;
        }
        if self.stays.is_empty() {
            self.start = start;
        }
        match self.stays.iter_mut().find(|(known, _)| *known == node) {
            Some((_, ticks)) => *ticks += end - start,
            None => self.stays.push((node, end - start)),
        }
    }

    /// Ends the current part.
    fn end(&mut self) {
        for (node, ticks) in self.stays.drain(..) {
            self.moves.push((self.start, node));
            self.start += ticks;
        }
    }
}

impl Engine {
    /// Records the moves of a location from now on, and all CPU times. [`Engine::forget_before`] must be called from time to
    /// time.
    pub fn record_moves(&mut self, location: LocationIndex) {
        let moves = &mut self.history.get_or_insert_default().moves;
        let at = location.0 as usize;
        moves.resize_with(moves.len().max(at + 1), || None);
        moves[at].get_or_insert_default();
    }

    /// Records what a view charges from now on.
    pub fn record_prices(&mut self, view: ViewIndex) {
        self.view_mut(view).prices.get_or_insert_default();
    }

    /// Returns the length of the history: the number of moves, prices and CPU times that are kept.
    pub fn history_kept(&self) -> usize {
        let all = self.history.iter().flat_map(|history| history.moves.iter().flatten());
        let moves: usize = all.map(|moves| moves.all.len()).sum();
        let prices: usize = self.views().map(View::prices_kept).sum();
        moves + prices + self.cpu_times().len()
    }

    /// Reduces the number of recorded prices and CPU times: between two of the times in `cuts`, which are in order, each
    /// location is charged the same, but evenly. Everything up to the last of them must have been charged.
    pub fn shorten_prices(&mut self, cuts: &[Timestamp]) {
        let mut settled: Vec<Range<Timestamp>> = cuts.windows(2).map(|part| part[0]..part[1]).collect();
        for view in 0..self.views().count() {
            self.shorten_prices_of(ViewIndex(view as u32), &mut settled);
        }
        settled.iter().for_each(|part| self.cpu_times_mut().release_between(part.start, part.end));
    }

    /// Makes the history of a location shorter: between two of the times in `cuts`, which are in order, the stays in each call
    /// path become one stay. A query from one of these times to another returns the same as before.
    pub fn shorten_moves(&mut self, location: LocationIndex, cuts: &[Timestamp]) {
        let moves = self.history.as_mut().and_then(|history| history.moves.get_mut(location.0 as usize));
        let Some(Some(Moves { all: moves, .. })) = moves else { return };
        let mut short = Shortened { moves: Vec::new(), start: 0, stays: Vec::new() };
        let mut cuts = cuts.iter().copied().peekable();
        for at in 0..moves.len().saturating_sub(1) {
            let ((mut start, node), (end, _)) = (moves[at], moves[at + 1]);
            while let Some(cut) = cuts.next_if(|cut| *cut < end) {
                if cut > start {
                    short.add(start, cut, node);
                    start = cut;
                }
                short.end();
            }
            short.add(start, end, node);
        }
        short.end();
        short.moves.extend(moves.last().copied());
        *moves = short.moves;
    }

    /// Forgets the history before `time`.
    pub fn forget_before(&mut self, time: Timestamp) {
        if let Some(history) = &mut self.history {
            history.kept_since = time;
            for Moves { all: moves, .. } in history.moves.iter_mut().flatten() {
                let next = moves.partition_point(|(start, _)| *start <= time);
                moves.drain(..next.saturating_sub(1)); // the last of these is the innermost one at `time`
            }
        }
        self.views_mut().for_each(|view| view.forget_prices_before(time));
    }

    /// Calls `each` with the call paths that a location was in from `start` to `end`, in order, as far as they are recorded. A
    /// time without an open frame is that of the root.
    pub fn each_stay(
        &self,
        location: LocationIndex,
        start: Timestamp,
        end: Timestamp,
        mut each: impl FnMut(Stay),
    ) {
        let recorded = self.history.as_ref().and_then(|history| history.of(location));
        let Some(Moves { all: moves, hint }) = recorded else { return };
        let first = hint.partition_point(moves, |(time, _)| *time <= start).saturating_sub(1);
        for (at, (from, node)) in (first..).zip(moves[first..].iter().copied()) {
            if from >= end {
                return;
            }
            let until = moves.get(at + 1).map_or(Timestamp::MAX, |(time, _)| *time);
            let stay = Stay { start: from.max(start), end: until.min(end), node };
            if stay.start < stay.end {
                each(stay);
            }
        }
    }

    /// Returns the call path of the frame of this region that a location entered at `time` or was in then, if the moves of that
    /// time are recorded.
    pub fn entered(&self, location: LocationIndex, time: Timestamp, region: RegionRef) -> Option<NodeIndex> {
        let Moves { all: moves, hint } = self.history.as_ref()?.of(location)?;
        let first = hint.partition_point(moves, |(at, _)| *at < time);
        let then = moves[first..].iter().take_while(|(at, _)| *at == time);
        let before = first.checked_sub(1).and_then(|before| moves.get(before));
        let paths = &self.location(location.0).paths;
        let is_it = |node: &NodeIndex| !node.is_root() && paths.node(*node).region == region;
        // If several calls were entered at this time, only the last one can have taken any time.
        let entered = then.map(|(_, node)| *node).filter(is_it).last();
        entered.or_else(|| before.map(|(_, node)| *node).filter(is_it))
    }

    /// Returns the joules that a view charged to a location, with its number there, from `start` to `end`, as far as they are
    /// recorded. The location must have had a frame open during all of that time. Joules between two samples with the same
    /// timestamp count for the time before.
    pub fn joules_during(
        &self,
        view: ViewIndex,
        consumer: u32,
        location: LocationIndex,
        start: Timestamp,
        end: Timestamp,
    ) -> f64 {
        self.view(view).joules_during(consumer, start, end, self.cpu_time_of(location))
    }

    /// Returns the ticks that a location was on a CPU from `start` to `end`, if its CPU time is known.
    pub fn cpu_ticks(&self, location: LocationIndex, start: Timestamp, end: Timestamp) -> Option<f64> {
        let cpu_time = self.cpu_time_of(location)?;
        Some(cpu_time.at(end).since(cpu_time.at(start)))
    }

    /// Returns the views in which a location is a consumer and of which prices are recorded, with the location's number in each.
    pub fn priced_views(&self, location: LocationIndex) -> impl Iterator<Item = (ViewIndex, u32)> + '_ {
        let views = self.location(location.0).draws_from();
        views.filter(|(view, _)| self.view(*view).prices.is_some())
    }
}
