//! Call paths that are sampled, around the calls of a thread that are recorded exactly.
//!
//! A location of samples has the stack of a thread as it was sampled, the program itself outermost. Where calls of the same thread
//! are recorded, as those of MPI are, on a location of its own, the frames that were sampled are put there as long as its program
//! runs: below the program's frame, which is the outermost on both, and above what was recorded. The location of samples is empty
//! meanwhile. All of this depends on the events alone, so that a trace gives the same as the run did.
//!
//! A thread whose own functions are recorded, too, has no need of samples: they are left out.

use ampere_attribution::{LocationIndex, Step};
use ampere_model::{RegionRef, Timestamp};

/// The threads whose stacks are sampled.
#[derive(Default)]
pub(crate) struct SampledStacks {
    threads: Vec<Thread>,
    /// By the engine's index of a location: its thread.
    by_location: Vec<Option<u32>>,
}

struct Thread {
    /// The location of its samples.
    samples: LocationIndex,
    /// The location where its calls are recorded, if they are.
    recorded: Option<LocationIndex>,
    /// As it was sampled, the program first.
    stack: Vec<RegionRef>,
    /// The frames that were recorded and are open, the program's first.
    own: Vec<RegionRef>,
    /// Its own functions are recorded: samples say nothing new.
    needs_no_samples: bool,
}

impl SampledStacks {
    /// A location whose frames are samples.
    pub fn add(&mut self, samples: LocationIndex) {
        let (stack, own) = (Vec::new(), Vec::new());
        self.threads.push(Thread { samples, recorded: None, stack, own, needs_no_samples: false });
        self.set_thread(samples, self.threads.len() as u32 - 1);
    }

    /// Both are of one thread. `own`: the frames that are open where calls are recorded.
    pub fn put_on(&mut self, samples: LocationIndex, recorded: LocationIndex, own: Vec<RegionRef>) {
        let Some(thread) = self.thread(samples) else { return };
        (self.threads[thread].recorded, self.threads[thread].own) = (Some(recorded), own);
        self.set_thread(recorded, thread as u32);
    }

    fn set_thread(&mut self, location: LocationIndex, thread: u32) {
        let at = location.0 as usize;
        if self.by_location.len() <= at {
            self.by_location.resize(at + 1, None);
        }
        self.by_location[at] = Some(thread);
    }

    fn thread(&self, location: LocationIndex) -> Option<usize> {
        self.by_location.get(location.0 as usize).copied().flatten().map(|thread| thread as usize)
    }

    /// Whether it is one of the locations of samples.
    pub fn is_sampled(&self, location: LocationIndex) -> bool {
        self.thread(location).is_some_and(|thread| self.threads[thread].samples == location)
    }

    /// Whether steps of this location are to be [passed](SampledStacks::pass).
    #[inline]
    pub fn has(&self, location: LocationIndex) -> bool {
        self.thread(location).is_some()
    }

    /// What a step of a location means to the engine. `is_of_program`: whether a region is one of the program's own functions.
    pub fn pass(
        &mut self,
        location: LocationIndex,
        step: Step,
        is_of_program: impl Fn(RegionRef) -> bool,
        each: &mut impl FnMut(LocationIndex, Step),
    ) {
        let Some(thread) = self.thread(location) else { return each(location, step) };
        let thread = &mut self.threads[thread];
        if location == thread.samples {
            thread.sample(step, each);
        } else {
            thread.call(location, step, is_of_program, each);
        }
    }
}

impl Thread {
    fn sample(&mut self, step: Step, each: &mut impl FnMut(LocationIndex, Step)) {
        match step.region() {
            Some(region) => self.stack.push(region),
            None => _ = self.stack.pop(),
        }
        let depth = self.stack.len() + usize::from(!step.is_enter());
        let Some(recorded) = self.recorded.filter(|_| !self.own.is_empty()) else {
            return each(self.samples, step);
        };
        if self.needs_no_samples || depth < 2 {
            return; // the program's own frame is there
        }
        self.under_calls(step.time, recorded, each, |each| each(recorded, step));
    }

    /// Calls that are open stay open above what changes, and are not counted again.
    fn under_calls<E: FnMut(LocationIndex, Step)>(
        &self,
        time: Timestamp,
        recorded: LocationIndex,
        each: &mut E,
        change: impl FnOnce(&mut E),
    ) {
        let calls = &self.own[1..];
        calls.iter().for_each(|_| each(recorded, Step::leave(time)));
        change(each);
        calls.iter().for_each(|region| each(recorded, Step::enter(time, *region, 0)));
    }

    fn call(
        &mut self,
        recorded: LocationIndex,
        step: Step,
        is_of_program: impl Fn(RegionRef) -> bool,
        each: &mut impl FnMut(LocationIndex, Step),
    ) {
        let time = step.time;
        let Some(region) = step.region() else {
            let is_last = self.own.len() == 1;
            if is_last && !self.needs_no_samples {
                self.frames().for_each(|_| each(recorded, Step::leave(time)));
            }
            self.own.pop();
            each(recorded, step);
            if is_last {
                self.stack.iter().for_each(|region| each(self.samples, Step::enter(time, *region, 0)));
            }
            return;
        };
        if self.own.is_empty() {
            self.stack.iter().for_each(|_| each(self.samples, Step::leave(time)));
            each(recorded, step);
            self.own.push(region);
            if !self.needs_no_samples {
                self.frames().for_each(|region| each(recorded, Step::enter(time, region, 0)));
            }
            return;
        }
        if !self.needs_no_samples && is_of_program(region) {
            self.under_calls(time, recorded, each, |each| {
                self.frames().for_each(|_| each(recorded, Step::leave(time)));
            });
            self.needs_no_samples = true;
        }
        each(recorded, step);
        self.own.push(region);
    }

    /// Those that were sampled, without the program's.
    fn frames(&self) -> impl Iterator<Item = RegionRef> {
        self.stack.iter().skip(1).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORDED: LocationIndex = LocationIndex(0);
    const SAMPLED: LocationIndex = LocationIndex(1);
    const PROGRAM: RegionRef = RegionRef(0);
    /// As the regions below: an MPI function.
    const MPI: RegionRef = RegionRef(9);

    /// Stacks of both locations after each step. `+3` enters region 3, `-` leaves; `s` is of the samples.
    fn stacks(steps: &str) -> Vec<[Vec<u32>; 2]> {
        let mut stacks = SampledStacks::default();
        stacks.add(SAMPLED);
        let mut seen = [Vec::new(), Vec::new()];
        let mut all = Vec::new();
        for (time, word) in (1..).zip(steps.split_whitespace()) {
            if word == "both" {
                let own = seen[0].iter().map(|region| RegionRef(*region)).collect();
                stacks.put_on(SAMPLED, RECORDED, own);
            } else {
                let (location, word) =
                    word.strip_prefix('s').map_or((RECORDED, word), |rest| (SAMPLED, rest));
                let step = match word.strip_prefix('+') {
                    Some(region) => Step::enter(time, RegionRef(region.parse().expect("a number")), 1),
                    None => Step::leave(time),
                };
                let is_of_program = |region| region != MPI && region != PROGRAM;
                stacks.pass(location, step, is_of_program, &mut |location, step| {
                    let stack = &mut seen[location.0 as usize];
                    match step.region() {
                        Some(region) => stack.push(region.0),
                        None => assert!(stack.pop().is_some(), "a leave too many"),
                    }
                });
            }
            all.push(seen.clone());
        }
        all
    }

    fn last(steps: &str) -> [Vec<u32>; 2] {
        stacks(steps).pop().expect("a step")
    }

    #[test]
    fn samples_of_a_thread_that_is_not_recorded_are_its_stack() {
        assert_eq!(last("s+0 s+1 s+2"), [vec![], vec![0, 1, 2]]);
        assert_eq!(last("s+0 s+1 s+2 s- s+3"), [vec![], vec![0, 1, 3]]);
    }

    #[test]
    fn sampled_frames_are_between_the_program_and_its_mpi_calls() {
        assert_eq!(last("both +0 s+0 s+1 s+2 +9"), [vec![0, 1, 2, 9], vec![]]);
        // The program calls MPI from another function than it was last seen in.
        assert_eq!(last("both +0 s+0 s+1 s+2 +9 s- s+3"), [vec![0, 1, 3, 9], vec![]]);
        assert_eq!(last("both +0 s+0 s+1 s+2 +9 s- s+3 -"), [vec![0, 1, 3], vec![]]);
        // Samples begin before the recording of calls, and end after it.
        assert_eq!(last("both s+0 s+1 +0 +9"), [vec![0, 1, 9], vec![]]);
        assert_eq!(last("both +0 s+0 s+1 - s+2"), [vec![], vec![0, 1, 2]]);
    }

    #[test]
    fn it_does_not_matter_when_both_are_known_to_be_of_one_thread() {
        let early = stacks("both s+0 s+1 s+2 +0 s- s+3 +9 s-");
        let late = stacks("s+0 s+1 s+2 both +0 s- s+3 +9 s-");
        assert_eq!(early[4..], late[4..]);
        assert_eq!(late[3..5], [[vec![], vec![0, 1, 2]], [vec![0, 1, 2], vec![]]]);
        assert_eq!(last("+0 both s+0 s+1 +9"), [vec![0, 1, 9], vec![]]);
    }

    #[test]
    fn a_thread_whose_functions_are_recorded_needs_no_samples() {
        assert_eq!(last("both +0 s+0 s+1 s+2 +4 s+3 +9"), [vec![0, 4, 9], vec![]]);
        assert_eq!(last("both +0 s+0 s+1 s+2 +4 - s+3"), [vec![0], vec![]]);
    }
}
