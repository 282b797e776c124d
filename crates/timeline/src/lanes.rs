//! Records which regions ran on each rank and GPU stream over the run, as a limited number of steps: when there are too many,
//! pairs of steps are merged, as in a power curve. A step has the regions with the most exclusive time.
//!
//! Steps begin at multiples of their length, on all locations. At the end of a step, the times that the engine keeps for each
//! call path are compared with those at its start, so that single events cost nothing more. A location with many call paths has
//! several steps between two such comparisons, over which the times are spread evenly.

use ampere_attribution::{Engine, LocationIndex};
use ampere_model::{RegionRef, Timestamp};

/// The maximum number of steps of a lane, except for one that is kept because it has no partner to be merged with.
pub const STEPS_MAX: usize = 512;
/// The resolution at the start of a run.
const STEPS_PER_SECOND: u64 = 100;
/// The number of regions that a step keeps.
const REGIONS: usize = 3;
/// A location with more call paths has several steps between two comparisons.
const CALLPATHS_PER_STEP: usize = 256;
/// The end of a step that never comes.
const NEVER: Timestamp = Timestamp::MAX;

/// The lanes of a run's locations.
#[derive(Default)]
pub(crate) struct Lanes {
    /// For each location, the time at which a step of its lane ends: 0 before its first event, [`NEVER`] if it has no lane.
    due: Vec<Timestamp>,
    lanes: Vec<Option<Lane>>,
}

/// What ran on a location.
#[derive(Clone, Debug)]
pub struct Lane {
    /// The length of a step in ticks.
    step: u64,
    /// The number of the first step: its start, divided by the length of a step.
    first: u64,
    steps: Vec<Step>,
    /// The exclusive ticks of each call path at the end of the last step.
    ticks: Vec<u64>,
}

/// The numbers of the regions with the most time in a step, and the fraction of the step for which each ran, in descending
/// order. Entries without time stand for no region.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Step([(u32, f32); REGIONS]);

impl Step {
    /// Returns the regions and their parts of the step.
    pub fn regions(&self) -> impl Iterator<Item = (RegionRef, f32)> {
        self.0.iter().filter(|(_, part)| *part > 0.0).map(|(region, part)| (RegionRef(*region), *part))
    }

    fn of(mut parts: Vec<(RegionRef, f32)>) -> Step {
        parts.sort_unstable_by_key(|(region, _)| *region);
        let mut sums: Vec<(RegionRef, f32)> = Vec::new();
        for (region, part) in parts {
            match sums.last_mut().filter(|(last, _)| *last == region) {
                Some((_, sum)) => *sum += part,
                None => sums.push((region, part)),
            }
        }
        sums.sort_by(|a, b| b.1.total_cmp(&a.1));
        let mut step = Step::default();
        step.0.iter_mut().zip(sums).for_each(|(place, (region, part))| *place = (region.0, part));
        step
    }

    /// Returns both steps as one of twice the length.
    fn with(self, other: Step) -> Step {
        Step::of(self.regions().chain(other.regions()).map(|(region, part)| (region, part / 2.0)).collect())
    }
}

impl Lanes {
    pub fn add_location(&mut self, has_lane: bool) {
        self.due.push(if has_lane { 0 } else { NEVER });
        self.lanes.push(None);
    }

    /// Whether a step of the location's lane ends at `time` or before.
    #[inline]
    pub fn is_due(&self, location: LocationIndex, time: Timestamp) -> bool {
        self.due[location.0 as usize] <= time && time != NEVER
    }

    /// Ends the steps up to `time`. All earlier events of the location have been handed to the engine.
    pub fn advance(&mut self, engine: &Engine, location: LocationIndex, time: Timestamp, per_second: u64) {
        let at = location.0 as usize;
        if self.is_due(location, time) {
            let lane = self.lanes[at].get_or_insert_with(|| Lane::new(time, per_second));
            self.due[at] = lane.advance(engine, location, time);
        }
    }

    /// Ends the lane of a location with its last event.
    pub fn end(&mut self, engine: &Engine, location: LocationIndex, per_second: u64) {
        let (at, last) = (location.0 as usize, engine.last_change(location));
        if self.due[at] != NEVER && engine.has_run(location) {
            self.advance(engine, location, last, per_second);
            self.lanes[at].iter_mut().for_each(|lane| lane.end_step(engine, location, last));
            self.due[at] = NEVER;
        }
    }

    pub fn of(&self, location: usize) -> Option<&Lane> {
        self.lanes.get(location)?.as_ref()
    }
}

impl Lane {
    fn new(time: Timestamp, ticks_per_second: u64) -> Lane {
        let step = (ticks_per_second / STEPS_PER_SECOND).max(1);
        Lane { step, first: time / step, steps: Vec::new(), ticks: Vec::new() }
    }

    /// Returns the length of a step in ticks.
    pub fn step_ticks(&self) -> u64 {
        self.step
    }

    /// Returns the time at which the first step begins.
    pub fn begin(&self) -> Timestamp {
        self.first.saturating_mul(self.step)
    }

    /// Returns the steps in time order.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Returns the lane with steps of at least this length.
    pub fn with_steps_of(mut self, ticks: u64) -> Lane {
        while self.step < ticks && self.step <= u64::MAX / 2 {
            self.merge_pairs();
        }
        self
    }

    /// Returns the time at which the last step ends.
    pub fn end(&self) -> Timestamp {
        (self.first + self.steps.len() as u64).saturating_mul(self.step)
    }

    /// Returns the time at which the call paths are compared next.
    fn due(&self) -> Timestamp {
        let steps = (self.ticks.len() / CALLPATHS_PER_STEP + 1).next_power_of_two() as u64;
        let length = self.step.saturating_mul(steps);
        (self.end() / length + 1).saturating_mul(length)
    }

    /// Ends the steps up to `time`, and returns the end of the next.
    fn advance(&mut self, engine: &Engine, location: LocationIndex, time: Timestamp) -> Timestamp {
        if self.due() <= time {
            self.end_steps(engine, location, self.due());
        }
        // No event came after the end of that step, so the frame that is open now has run in all steps since then.
        let open = engine.current(location);
        let region = open.map(|node| engine.caller_of(location, node).1);
        let whole = Step::of(region.map(|region| (region, 1.0)).into_iter().collect());
        let mut due = self.due();
        while due <= time && due != NEVER {
            let ticks = due - self.end();
            // Node 0 is the root, which has no ticks.
            if let Some(sum) = open.and_then(|node| self.ticks.get_mut(node.0 as usize - 1)) {
                *sum = sum.saturating_add(ticks);
            }
            self.push(whole, ticks / self.step);
            due = self.due();
        }
        due
    }

    fn end_steps(&mut self, engine: &Engine, location: LocationIndex, time: Timestamp) {
        let covered = time - self.end();
        let step = self.since_last(engine, location, time, covered);
        self.push(step, covered / self.step);
    }

    /// Ends a step before its time, because the lane ends.
    fn end_step(&mut self, engine: &Engine, location: LocationIndex, time: Timestamp) {
        let Some(covered) = time.checked_sub(self.end()).filter(|covered| *covered > 0) else { return };
        let step = self.since_last(engine, location, time, covered);
        self.push(step, covered.div_ceil(self.step));
    }

    /// Returns what ran from the end of the last step to `time`.
    fn since_last(&mut self, engine: &Engine, location: LocationIndex, time: u64, covered: u64) -> Step {
        let mut parts = Vec::new();
        let known = &mut self.ticks;
        let mut at = 0;
        engine.each_time_until(location, time, |region, _, ticks| {
            if known.len() == at {
                known.push(0);
            }
            let spent = ticks.saturating_sub(known[at]);
            known[at] = ticks.max(known[at]);
            if spent > 0 {
                parts.push((region, spent as f32 / covered as f32));
            }
            at += 1;
        });
        Step::of(parts)
    }

    fn push(&mut self, step: Step, count: u64) {
        self.steps.extend(std::iter::repeat_n(step, count as usize));
        // Steps are merged only if the last one has a partner. Otherwise half of the merged step would count as time without
        // regions.
        while self.steps.len() >= STEPS_MAX && (self.first + self.steps.len() as u64).is_multiple_of(2) {
            self.merge_pairs();
        }
    }

    fn merge_pairs(&mut self) {
        let before = (self.first % 2 == 1).then(Step::default);
        let steps: Vec<Step> = before.into_iter().chain(self.steps.iter().copied()).collect();
        self.steps =
            steps.chunks(2).map(|pair| pair[0].with(pair.get(1).copied().unwrap_or_default())).collect();
        self.first /= 2;
        self.step *= 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCATION: LocationIndex = LocationIndex(0);
    const PER_SECOND: u64 = 1000;

    /// A location with a lane. `step` adds an event at a time: a region that is entered, or `None` for a leave.
    struct Run {
        engine: Engine,
        lanes: Lanes,
    }

    impl Run {
        fn new() -> Run {
            let mut run = Run { engine: Engine::new(), lanes: Lanes::default() };
            run.engine.add_location();
            run.lanes.add_location(true);
            run
        }

        fn step(&mut self, time: u64, region: Option<u32>) {
            self.lanes.advance(&self.engine, LOCATION, time, PER_SECOND);
            match region {
                Some(region) => self.engine.enter(LOCATION, time, RegionRef(region)),
                None => self.engine.leave(LOCATION, time),
            }
        }

        fn end(mut self) -> Lane {
            self.lanes.end(&self.engine, LOCATION, PER_SECOND);
            self.lanes.of(0).cloned().expect("a lane")
        }
    }

    fn parts(lane: &Lane) -> Vec<Vec<(u32, u32)>> {
        let percent = |(region, part): (RegionRef, f32)| (region.0, (100.0 * part).round() as u32);
        lane.steps().iter().map(|step| step.regions().map(percent).collect()).collect()
    }

    #[test]
    fn a_step_has_the_regions_that_ran_in_it_with_their_parts() {
        let mut run = Run::new();
        run.step(100, Some(1));
        run.step(107, Some(2));
        run.step(112, None);
        run.step(140, None);
        run.step(148, Some(3));
        run.step(155, None);
        let lane = run.end();
        assert_eq!((lane.begin(), lane.step_ticks()), (100, 10));
        let whole = vec![(1, 100)];
        let expected = [
            vec![(1, 70), (2, 30)],
            vec![(1, 80), (2, 20)],
            whole.clone(),
            whole,
            vec![(3, 20)],
            vec![(3, 100)],
        ];
        assert_eq!(parts(&lane), expected, "the last step is shorter");
    }

    #[test]
    fn a_long_run_has_few_steps_of_the_same_parts() {
        let mut run = Run::new();
        run.step(0, Some(0));
        for at in 0..20_000u64 {
            run.step(10 * at + 3, Some(1));
            run.step(10 * at + 9, None);
        }
        run.step(200_000, None);
        let lane = run.end();
        assert!(lane.steps().len() <= STEPS_MAX, "{}", lane.steps().len());
        let inner = &parts(&lane)[1..lane.steps().len() - 1];
        assert!(inner.iter().all(|step| *step == [(1, 60), (0, 40)]), "{inner:?}");
        assert_eq!(lane.begin(), 0);
        assert!(lane.steps().len() as u64 * lane.step_ticks() >= 200_000);
    }

    #[test]
    fn a_pause_and_times_at_the_end_of_the_clock_cost_no_more_than_the_steps() {
        let mut run = Run::new();
        run.step(0, Some(0));
        run.step(u64::MAX / 2, Some(1));
        run.step(u64::MAX - 1, None);
        run.step(u64::MAX, None);
        let lane = run.end();
        assert!(lane.steps().len() <= STEPS_MAX);
        let [first, last] = [1, lane.steps().len() - 2].map(|at| parts(&lane)[at].clone());
        assert_eq!([first, last], [[(0, 100)], [(1, 100)]]);
    }

    /// The lane does not depend on the number of times that it was read, even with more call paths than are compared in each
    /// step.
    #[test]
    fn a_lane_does_not_depend_on_when_it_is_read() {
        let of = |every: u64| {
            let mut run = Run::new();
            run.step(0, Some(0));
            let mut time = 0;
            for at in 0..3000u64 {
                time += at * 7919 % 23;
                run.step(time, Some((at % 700) as u32 + 1));
                if every > 0 && at % every == 0 {
                    run.lanes.advance(&run.engine, LOCATION, time, PER_SECOND);
                }
                time += at * 104_729 % 37;
                run.step(time, None);
                if every > 0 && at % every == 1 {
                    // Nothing happens in the meantime.
                    run.lanes.advance(&run.engine, LOCATION, time + 300, PER_SECOND);
                }
                time += if at % 50 == 0 {
                    400
                } else if every > 0 && at % every == 1 {
                    300
                } else {
                    0
                };
                time += if every == 0 && at % 5 == 1 { 300 } else { 0 };
            }
            run.step(time, None);
            parts(&run.end())
        };
        assert_eq!(of(5), of(0));
    }

    #[test]
    fn coarser_steps_have_the_same_times() {
        let mut run = Run::new();
        run.step(10, Some(1));
        run.step(30, Some(2));
        run.step(50, None);
        run.step(60, None);
        let lane = run.end().with_steps_of(40);
        assert_eq!((lane.begin(), lane.step_ticks()), (0, 40));
        assert_eq!(parts(&lane), [vec![(1, 50), (2, 25)], vec![(1, 25), (2, 25)]]);
    }
}
