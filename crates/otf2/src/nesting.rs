//! Matches leaves by name.
//!
//! OTF2 requires the enters and leaves of a location to be nested, but not every writer complies: kernels of one stream
//! overlap, and events of the same time are sorted in another order. A leave ends the region that it names:
//!
//! | the named region | the events that a handler receives |
//! | --- | --- |
//! | is the innermost one | its leave |
//! | is open further out | the leaves of all regions inside it and its own; then those inside are entered again, with the value 0 |
//! | is not open, and is entered at the same time | the enter and the leave of a call that took no time |
//! | is not open | nothing |
//!
//! If many regions continue in this way, the leaves of some are probably missing. Beyond [`CONTINUED_MAX`] the oldest of them
//! end, because each further leave would leave all of them and enter them again, as a new call path.
//!
//! A leave of a region other than the innermost one is held until the other events of its time are known, because they may
//! resolve it. A leave of the undefined region ends the innermost one.

use crate::handler::{EventHandler, Flow, Nesting};
use crate::table::{LocationRef, RegionRef};
use std::ops::ControlFlow;

/// The maximum number of regions of a location that continue after a region around them was left. If there are more, only the
/// innermost half of this number continue.
const CONTINUED_MAX: usize = 64;

const UNDEFINED: RegionRef = RegionRef(u32::MAX);

#[derive(Clone, Copy)]
struct Frame {
    region: RegionRef,
    /// Whether the region was entered again after a region around it was left.
    resumed: bool,
}

/// The regions that are open on a location.
pub(crate) struct Nest {
    location: LocationRef,
    open: Vec<Frame>,
    /// The leaves that are held. All have the same time.
    held: Vec<RegionRef>,
    held_at: u64,
    /// The time of the last enter, leave or sample.
    pub last: u64,
    pub found: Nesting,
}

impl Nest {
    pub fn new(location: LocationRef) -> Nest {
        Nest { location, open: Vec::new(), held: Vec::new(), held_at: 0, last: 0, found: Nesting::default() }
    }

    #[inline]
    pub fn is_holding(&self) -> bool {
        !self.held.is_empty()
    }

    /// Returns the time of the held leaves.
    pub fn held_at(&self) -> Option<u64> {
        self.is_holding().then_some(self.held_at)
    }

    #[inline]
    pub fn enter<H: EventHandler + ?Sized>(
        &mut self,
        time: u64,
        region: RegionRef,
        value: Option<u64>,
        handler: &mut H,
    ) -> Flow {
        self.last = time;
        handler.enter(self.location, time, region, value)?;
        if !self.held.is_empty() && self.remove_held_leave(region) {
            return handler.leave(self.location, time, region);
        }
        self.open.push(Frame { region, resumed: false });
        ControlFlow::Continue(())
    }

    #[inline]
    pub fn leave<H: EventHandler + ?Sized>(&mut self, time: u64, region: RegionRef, handler: &mut H) -> Flow {
        self.last = time;
        match self.open.last() {
            Some(frame) if frame.region == region => {
                self.open.pop();
                handler.leave(self.location, time, region)?;
                if self.held.is_empty() { ControlFlow::Continue(()) } else { self.leave_held(handler) }
            }
            innermost => {
                let innermost = innermost.map(|frame| frame.region);
                self.hold(time, region, innermost, handler)
            }
        }
    }

    #[cold]
    fn hold<H: EventHandler + ?Sized>(
        &mut self,
        time: u64,
        region: RegionRef,
        innermost: Option<RegionRef>,
        handler: &mut H,
    ) -> Flow {
        if let Some(innermost) = innermost.filter(|_| region == UNDEFINED) {
            return self.leave(time, innermost, handler);
        }
        self.held.push(region);
        self.held_at = time;
        ControlFlow::Continue(())
    }

    /// Called when a region is entered. If a leave of it is held, removes that leave, and returns `true`.
    #[cold]
    fn remove_held_leave(&mut self, region: RegionRef) -> bool {
        let Some(at) = self.held.iter().position(|held| *held == region) else { return false };
        self.held.remove(at);
        self.found.reversed += 1;
        true
    }

    /// Passes on held leaves that now match the innermost region.
    #[cold]
    fn leave_held<H: EventHandler + ?Sized>(&mut self, handler: &mut H) -> Flow {
        while let Some(Frame { region, .. }) = self.open.last().copied() {
            let Some(at) = self.held.iter().position(|held| *held == region) else { break };
            self.held.remove(at);
            self.open.pop();
            handler.leave(self.location, self.held_at, region)?;
        }
        ControlFlow::Continue(())
    }

    /// Resolves the held leaves, because there are no more events of their time.
    #[cold]
    pub fn resolve_held<H: EventHandler + ?Sized>(&mut self, handler: &mut H) -> Flow {
        let (location, time) = (self.location, self.held_at);
        for region in std::mem::take(&mut self.held) {
            let Some(at) = self.open.iter().rposition(|frame| frame.region == region) else {
                self.found.unmatched += 1;
                continue;
            };
            self.found.reordered += u64::from(at + 1 < self.open.len());
            let continued = self.open[..at].iter().filter(|frame| frame.resumed).count();
            let (from, mut to_end) = match continued + self.open.len() - at - 1 {
                all if all <= CONTINUED_MAX => (at, 0),
                all => {
                    let oldest = self.open.iter().position(|frame| frame.resumed);
                    (oldest.map_or(at, |oldest| oldest.min(at)), all - CONTINUED_MAX / 2)
                }
            };
            for frame in self.open[from..].iter().rev() {
                handler.leave(location, time, frame.region)?;
            }
            self.open.remove(at);
            self.open[at..].iter_mut().for_each(|frame| frame.resumed = true);
            self.found.unended += to_end as u64;
            for frame in self.open.split_off(from) {
                if frame.resumed && to_end > 0 {
                    to_end -= 1;
                    continue;
                }
                self.open.push(frame);
                handler.enter(location, time, frame.region, Some(0))?;
            }
        }
        ControlFlow::Continue(())
    }

    /// Called after the last event. Returns the number of open regions, except those that continued after a region around them
    /// was left. It is unknown when those ended, so they are counted as unended.
    pub fn end(&mut self) -> usize {
        let continued = self.open.iter().filter(|frame| frame.resumed).count();
        self.found.unended += continued as u64;
        self.open.len() - continued
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Seen(String);

    impl EventHandler for Seen {
        fn enter(&mut self, _: LocationRef, time: u64, region: RegionRef, value: Option<u64>) -> Flow {
            let value = value.map_or_else(String::new, |value| format!("x{value}"));
            self.0 += &format!("{time}+{region}{value} ");
            ControlFlow::Continue(())
        }

        fn leave(&mut self, _: LocationRef, time: u64, region: RegionRef) -> Flow {
            self.0 += &format!("{time}-{region} ");
            ControlFlow::Continue(())
        }
    }

    /// Events as `(time, region)`: a leave's region is negative.
    fn nested(events: &[(u64, i32)]) -> (String, Nesting) {
        let (mut nest, mut seen) = (Nest::new(LocationRef(0)), Seen::default());
        for (time, region) in events {
            if nest.held_at().is_some_and(|held_at| held_at != *time) {
                let _ = nest.resolve_held(&mut seen);
            }
            let named = RegionRef(region.unsigned_abs());
            let _ = match *region {
                i32::MIN => nest.leave(*time, UNDEFINED, &mut seen),
                _ if *region < 0 => nest.leave(*time, named, &mut seen),
                _ => nest.enter(*time, named, None, &mut seen),
            };
        }
        let _ = nest.resolve_held(&mut seen);
        nest.end();
        (seen.0.trim_end().to_owned(), nest.found)
    }

    fn found(reordered: u64, unmatched: u64, reversed: u64, unended: u64) -> Nesting {
        Nesting { reordered, unmatched, reversed, unended }
    }

    #[test]
    fn nested_events_pass_as_they_are() {
        assert_eq!(nested(&[(0, 1), (1, 2), (2, -2), (3, -1)]).0, "0+1 1+2 2-2 3-1");
        assert_eq!(nested(&[(0, 1), (1, 2), (2, i32::MIN), (3, i32::MIN)]).0, "0+1 1+2 2-2 3-1");
        assert_eq!(
            nested(&[(0, 1), (1, 1), (2, -1), (3, -1)]),
            ("0+1 1+1 2-1 3-1".to_owned(), found(0, 0, 0, 0))
        );
    }

    #[test]
    fn overlapping_regions_continue_without_the_region_that_was_left() {
        let (events, of) = nested(&[(0, 1), (1, 2), (2, -1), (3, -2)]);
        assert_eq!((events.as_str(), of), ("0+1 1+2 2-2 2-1 2+2x0 3-2", found(1, 0, 0, 0)));
        let (events, of) = nested(&[(0, 1), (1, 2), (2, 3), (3, -2), (4, -1), (5, -3)]);
        let expected = "0+1 1+2 2+3 3-3 3-2 3+3x0 4-3 4-1 4+3x0 5-3";
        assert_eq!((events.as_str(), of), (expected, found(2, 0, 0, 0)));
        let (_, of) = nested(&[(0, 1), (1, 2), (2, -1)]);
        assert_eq!(of, found(1, 0, 0, 1), "it was never left");
        assert_eq!(nested(&[(0, 1), (1, 2), (2, -2), (3, 4)]).1, found(0, 0, 0, 0), "it may not have ended");
    }

    /// Counts events and the deepest nesting.
    #[derive(Default)]
    struct Work {
        events: usize,
        depth: usize,
        deepest: usize,
    }

    impl EventHandler for Work {
        fn enter(&mut self, _: LocationRef, _: u64, _: RegionRef, _: Option<u64>) -> Flow {
            (self.events, self.depth) = (self.events + 1, self.depth + 1);
            self.deepest = self.deepest.max(self.depth);
            ControlFlow::Continue(())
        }

        fn leave(&mut self, _: LocationRef, _: u64, _: RegionRef) -> Flow {
            (self.events, self.depth) = (self.events + 1, self.depth - 1);
            ControlFlow::Continue(())
        }
    }

    #[test]
    fn many_regions_that_are_not_left_in_order_cost_a_limited_number_of_events_each() {
        const CALLS: u32 = 4000;
        // The leave of region 2 is always missing, as after an exception.
        let without_leave = (0..CALLS)
            .flat_map(|_| [(1, true), (2, true), (1, false)])
            .map(|(region, enters)| (RegionRef(region), enters));
        // Half of all regions are open at a time.
        let overlapping = (0..CALLS + CALLS / 2).flat_map(|at| {
            let left = at.checked_sub(CALLS / 2).map(|left| (RegionRef(left), false));
            let entered = (at < CALLS).then_some((RegionRef(at), true));
            entered.into_iter().chain(left)
        });
        let events: [Vec<(RegionRef, bool)>; 2] = [without_leave.collect(), overlapping.collect()];
        for events in events {
            let (mut nest, mut work) = (Nest::new(LocationRef(0)), Work::default());
            for (time, (region, enters)) in events.iter().enumerate() {
                let _ = match enters {
                    true => nest.enter(time as u64, *region, None, &mut work),
                    false => nest.leave(time as u64, *region, &mut work),
                };
                let _ = nest.resolve_held(&mut work);
                assert_eq!(work.depth, nest.open.len());
            }
            assert!(work.events < 64 * events.len(), "{} events from {}", work.events, events.len());
            assert!(work.deepest <= (CALLS / 2) as usize + CONTINUED_MAX, "{}", work.deepest);
            assert!(nest.found.unended > 0 && nest.found.reordered > 0, "{:?}", nest.found);
        }
    }

    #[test]
    fn leaves_of_one_time_have_no_order() {
        let (events, of) = nested(&[(0, 1), (1, 2), (2, -1), (2, -2), (3, 4), (3, -4)]);
        assert_eq!((events.as_str(), of), ("0+1 1+2 2-2 2-1 3+4 3-4", found(0, 0, 0, 0)));
    }

    #[test]
    fn a_call_without_time_may_be_left_before_it_is_entered() {
        let (events, of) = nested(&[(0, 1), (1, -2), (1, 2), (2, -1)]);
        assert_eq!((events.as_str(), of), ("0+1 1+2 1-2 2-1", found(0, 0, 1, 0)));
        let (events, of) = nested(&[(0, 1), (1, -3), (1, -2), (1, 2), (1, 3), (2, -1)]);
        assert_eq!((events.as_str(), of), ("0+1 1+2 1-2 1+3 1-3 2-1", found(0, 0, 2, 0)));
        // The function is also open further out, and the function around it is left at the same time.
        let (events, of) = nested(&[(0, 1), (1, 2), (2, -1), (2, 1), (3, -2), (4, -1)]);
        assert_eq!((events.as_str(), of), ("0+1 1+2 2+1 2-1 3-2 4-1", found(0, 0, 1, 0)));
        let (events, of) = nested(&[(0, 1), (1, -2), (1, -1), (1, 2)]);
        assert_eq!((events.as_str(), of), ("0+1 1-1 1+2 1-2", found(0, 0, 1, 0)));
    }

    #[test]
    fn a_leave_of_a_region_that_is_not_open_changes_nothing() {
        let (events, of) = nested(&[(0, 1), (1, -2), (2, -1), (3, -1), (4, i32::MIN)]);
        assert_eq!((events.as_str(), of), ("0+1 2-1", found(0, 3, 0, 0)));
    }
}
