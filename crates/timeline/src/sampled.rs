//! Sampled call paths around the calls of a thread that are recorded exactly.
//!
//! A location of samples has the stack of a thread as it was sampled, with the program itself outermost. If calls of the same
//! thread, such as those of MPI, are recorded on another location, the sampled frames are put on that location while its
//! program runs. They are inside the program's frame, which is the outermost on both locations, and inside ranges that the
//! program marks, but around the recorded calls. The location of samples is empty in the meantime. If no frame is open on the
//! other location, the sampled frames are on the location of samples. All of this depends on the events alone, so that a trace
//! gives the same result as the run.
//!
//! A sample that was taken inside a recorded call shows where this call comes from, but nothing about the time outside calls.
//! That time is divided by the samples that were taken outside (`credits.rs`), so that samples inside the calls of a function do
//! not increase its share. No call is charged for the time before it. Most calls are too short for a sample. The time of the
//! calls of one function is divided among its callers by the samples that were taken inside such calls. Until a call of the
//! function was sampled, the program itself counts as the caller, because the function that was sampled last outside of calls may
//! never make this call. Each range that the program marks has its own samples, because it may be much shorter than the time
//! between two samples.
//!
//! The call paths of kernels begin with those of calls of a GPU's runtime. For such a call, only the part that all sampled calls
//! of the function have in common is assumed, because a program may launch different kernels with one function. A sample whose
//! outermost functions are unknown is used only as long as there is no complete sample. Earlier stacks without any frame in
//! common with the last one do not count.
//!
//! Regions that the program itself marks, or that a library reports to tools, are in no sample. A sample that was taken in one shows
//! nothing about the time outside, and the frame of the region contains no sampled functions.
//!
//! While a function of the program is recorded, its thread needs no samples: they are ignored, so that no time is counted
//! twice. The program may be recorded in parts, for example if one of its files is instrumented: between its recorded
//! functions, the samples that were taken outside of them are shown. A function may also be sampled and not recorded, because
//! the recording has ended or another function has the same name. A sample in a recorded function therefore counts as a sample
//! outside if nothing was recorded since the previous sample.
//!
//! If another collector continues the samples of a killed one, a thread has several locations of samples, one after the other.

use crate::credits::Credits;
use ampere_attribution::{LocationIndex, Step};
use ampere_model::{RegionRef, Timestamp};
use std::collections::HashMap;

#[derive(Default)]
pub(crate) struct SampledStacks {
    threads: Vec<Thread>,
    /// The thread of each location, by the engine's index.
    by_location: Vec<Option<u32>>,
}

struct Thread {
    samples: LocationIndex,
    recorded: Option<LocationIndex>,
    /// The sampled stack, the program first.
    stack: Vec<RegionRef>,
    /// Whether the thread was sampled inside a recorded call, which is not on `stack`.
    in_call: bool,
    /// Whether the thread was sampled in a recorded region that no sample shows.
    in_unsampled: bool,
    /// The number of frames of `stack` outside the first recorded function, if there is one.
    function_in_stack: Option<usize>,
    /// The stacks that were sampled outside of recorded functions and of calls of a GPU's runtime.
    credits: Credits,
    /// The time of the last sample.
    sampled: Timestamp,
    /// Whether `credits` has the last sample.
    is_counted: bool,
    /// Whether a call or function has begun, or a call has ended, since the last sample.
    has_called: bool,
    /// The time up to which the time outside of recorded functions and of calls of a GPU's runtime is counted. `None` while the
    /// thread is inside one.
    counted_until: Option<Moment>,
    /// Whether the thread has paused outside of calls, so that it is not known in which function it waits.
    waits_outside: bool,
    /// Whether a sample was taken inside the call that is open.
    caller_is_known: bool,
    /// Whether the outermost functions of the last sample inside a recorded call are not known.
    is_cut: bool,
    /// Whether the outermost open call is one of a GPU's runtime.
    is_of_runtime: bool,
    /// For each function of a GPU's runtime, the outermost frames that all its calls in which a sample was taken had in common.
    callers: HashMap<RegionRef, Caller>,
    /// The recorded frames that are open.
    own: Vec<RegionRef>,
    /// The number of frames of `own`, from the outermost on, that are around the sampled frames: the program's own and ranges.
    base: usize,
    /// 1 if the outermost frame of `own` is the program's, as in `stack`. 0 on further threads: their recorded locations have no
    /// frame of the program.
    program: usize,
    /// The sampled frames between `own[..base]` and the calls inside them. If `own` is empty, they are on the location of samples.
    shown: Vec<RegionRef>,
    /// The number of frames of `own` outside the first recorded function, while one is open. Samples are ignored then.
    function_in_own: Option<usize>,
}

/// A time, and the thread's CPU time up to then, if it is known.
#[derive(Clone, Copy)]
struct Moment {
    time: Timestamp,
    cpu_time: Option<f64>,
}

impl Moment {
    /// Returns the ticks of CPU time since an earlier moment, or the time that has passed if the CPU time of either is not known.
    fn since(self, earlier: Moment) -> f64 {
        let passed = (self.time - earlier.time) as f64;
        self.cpu_time.zip(earlier.cpu_time).map_or(passed, |(now, before)| now - before)
    }
}

/// What is known about regions and threads.
pub(crate) trait Known {
    fn role(&self, region: RegionRef) -> Role;
    /// Whether a sample that is taken in a recorded region does not show the region.
    fn is_unsampled(&self, region: RegionRef) -> bool;
    /// Returns the ticks of CPU time that a location has used up to a time.
    fn cpu_time(&self, location: LocationIndex, time: Timestamp) -> Option<f64>;
}

#[derive(Default)]
struct Caller {
    frames: Vec<RegionRef>,
    /// Whether functions outside of these are not known.
    is_cut: bool,
}

/// The role of a region in the stack of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// The region represents the program.
    Program,
    /// The region is a call of the program, for example of MPI.
    Call,
    /// The region is a call of a GPU's runtime.
    RuntimeCall,
    /// The region is a range that the program marks.
    Range,
    /// The region represents a recorded call in which a sample was taken.
    InCall,
    /// The region represents a recorded call in which a sample without its outermost functions was taken.
    InCutCall,
    /// The region is one of the program's functions.
    Function,
}

impl SampledStacks {
    pub fn add(&mut self, samples: LocationIndex) {
        self.threads.push(Thread {
            samples,
            recorded: None,
            stack: Vec::new(),
            in_call: false,
            in_unsampled: false,
            function_in_stack: None,
            credits: Credits::default(),
            sampled: 0,
            is_counted: true,
            has_called: false,
            counted_until: None,
            waits_outside: false,
            caller_is_known: false,
            is_cut: false,
            is_of_runtime: false,
            callers: HashMap::new(),
            own: Vec::new(),
            base: 0,
            program: 0,
            shown: Vec::new(),
            function_in_own: None,
        });
        self.set_thread(samples, self.threads.len() as u32 - 1);
    }

    /// Connects two locations of the same thread. `own`: the frames that are open on `recorded`.
    pub fn put_on(
        &mut self,
        samples: LocationIndex,
        recorded: LocationIndex,
        own: Vec<RegionRef>,
        role: impl Fn(RegionRef) -> Role,
    ) {
        let Some(at) = self.thread(samples) else { return };
        if let Some(known) = self.thread(recorded).filter(|known| *known != at) {
            if self.threads[known].stack.is_empty() && !self.threads[at].stack.is_empty() {
                let of = &mut self.threads[at];
                let (stack, credits) = (std::mem::take(&mut of.stack), std::mem::take(&mut of.credits));
                let (in_call, function_in_stack) = (of.in_call, of.function_in_stack);
                let (sampled, is_counted) = (of.sampled, of.is_counted);
                let thread = &mut self.threads[known];
                (thread.samples, thread.stack, thread.credits) = (samples, stack, credits);
                (thread.in_call, thread.function_in_stack) = (in_call, function_in_stack);
                (thread.sampled, thread.is_counted) = (sampled, is_counted);
                thread.find_place();
                if thread.own.is_empty() {
                    thread.shown.clone_from(&thread.stack);
                }
            }
            return self.set_thread(samples, known as u32);
        }
        let thread = &mut self.threads[at];
        thread.program = usize::from(own.first().is_some_and(|first| role(*first) == Role::Program));
        let is_call = |region: &RegionRef| matches!(role(*region), Role::Call | Role::RuntimeCall);
        thread.base = own.iter().take_while(|region| !is_call(region)).count();
        thread.is_of_runtime = own.get(thread.base).is_some_and(|call| role(*call) == Role::RuntimeCall);
        thread.function_in_own = own.iter().position(|region| role(*region) == Role::Function);
        if own.is_empty() {
            thread.shown.clone_from(&thread.stack);
        }
        (thread.recorded, thread.own) = (Some(recorded), own);
        // When locations are connected depends on when they are found, and must not change which stack is shown.
        if !thread.own.is_empty() {
            thread.find_place();
        }
        self.set_thread(recorded, at as u32);
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

    /// Whether this is one of the locations of samples.
    pub fn is_sampled(&self, location: LocationIndex) -> bool {
        self.thread(location).is_some_and(|thread| self.threads[thread].recorded != Some(location))
    }

    /// Returns the location on which the frames of these samples are shown.
    pub fn shown_on(&self, samples: LocationIndex) -> LocationIndex {
        let thread = self.thread(samples).map(|thread| &self.threads[thread]);
        let recorded = thread.filter(|thread| !thread.own.is_empty()).and_then(|thread| thread.recorded);
        recorded.unwrap_or(samples)
    }

    /// Whether steps of this location are to be [passed](SampledStacks::pass).
    #[inline]
    pub fn has(&self, location: LocationIndex) -> bool {
        self.thread(location).is_some()
    }

    /// Translates a step of a location for the engine.
    pub fn pass(
        &mut self,
        location: LocationIndex,
        step: Step,
        known: &impl Known,
        each: &mut impl FnMut(LocationIndex, Step),
    ) {
        let Some(thread) = self.thread(location) else { return each(location, step) };
        let thread = &mut self.threads[thread];
        if thread.recorded == Some(location) {
            thread.call(location, step, known, each);
        } else {
            if location != thread.samples {
                if !step.is_enter() {
                    return; // it leaves a frame of the earlier location
                }
                thread.sample_at(location, step.time, each);
            }
            thread.sample(step, known, each);
        }
        thread.begin_or_end_count(step.time, known);
    }
}

impl Thread {
    /// Moves the thread's samples to another location, where they start with the whole stack.
    fn sample_at(
        &mut self,
        samples: LocationIndex,
        time: Timestamp,
        each: &mut impl FnMut(LocationIndex, Step),
    ) {
        let frames = if self.recorded.is_none() { self.stack.len() } else { self.shown.len() };
        if self.own.is_empty() {
            (0..frames).for_each(|_| each(self.samples, Step::leave(time)));
            self.shown.clear();
        }
        self.stack.clear();
        self.credits = Credits::default();
        self.find_place();
        (self.samples, self.in_call, self.function_in_stack) = (samples, false, None);
    }

    fn sample(&mut self, step: Step, known: &impl Known, each: &mut impl FnMut(LocationIndex, Step)) {
        let role = |region| known.role(region);
        self.count(step.time, known);
        if step.time > self.sampled {
            if !self.is_counted && !self.has_called && self.is_outside() && !self.stack.is_empty() {
                self.credits.add(None, &self.stack);
            }
            self.has_called = false;
        }
        (self.sampled, self.is_counted) = (step.time, false);
        self.in_unsampled = self.own.iter().any(|region| known.is_unsampled(*region));
        let was_in_call = self.in_call;
        // A recorded call has a caller, so the stack is not empty.
        let is_in_call =
            |region| !self.stack.is_empty() && matches!(role(region), Role::InCall | Role::InCutCall);
        self.in_call = step.region().is_some_and(is_in_call);
        if self.in_call {
            self.is_cut = step.region().is_some_and(|region| role(region) == Role::InCutCall);
        }
        match step.region() {
            Some(region) if !self.in_call => {
                if self.function_in_stack.is_none() && role(region) == Role::Function {
                    self.function_in_stack = Some(self.stack.len());
                }
                self.stack.push(region);
            }
            None if !was_in_call => {
                self.stack.pop();
                self.waits_outside = self.stack.is_empty() && self.is_outside();
                self.function_in_stack = self.function_in_stack.filter(|at| *at < self.stack.len());
            }
            _ => {}
        }
        let Some(recorded) = self.recorded else {
            if self.in_call == was_in_call {
                each(self.samples, step);
            }
            return;
        };
        let call = self.own.get(self.base).copied();
        self.caller_is_known |= call.is_some() && self.in_call;
        // Without any function, the sample shows nothing about the caller.
        if let Some(call) = self.counted_call().filter(|_| self.in_call && self.stack.len() > 1) {
            self.credits.add(Some(call), &self.stack);
        }
        // A sample outside of calls shows nothing about a call that was open before it.
        if call.is_none() || self.in_call {
            let location = if self.own.is_empty() { self.samples } else { recorded };
            self.show(call, step.time, location, each);
        }
    }

    /// Counts the last sample before a time, and the time up to then.
    fn count(&mut self, time: Timestamp, known: &impl Known) {
        // All changes at the same moment are one sample.
        if time > self.sampled && !self.is_counted && self.is_outside_sample() {
            self.is_counted = true;
            self.credits.add(None, &self.stack);
        }
        let location = self.recorded.unwrap_or(self.samples);
        if let Some(before) = &mut self.counted_until {
            // A late event counts as if it happened now.
            let time = time.max(before.time);
            let now = Moment { time, cpu_time: known.cpu_time(location, time) };
            self.credits.spend(now.since(*before));
            *before = now;
        }
    }

    /// Starts to count the time when the thread is outside of recorded functions and of calls of a GPU's runtime, and stops when
    /// it no longer is.
    fn begin_or_end_count(&mut self, time: Timestamp, known: &impl Known) {
        let is_in_function = !self.stack.is_empty() || self.has_paused_in_call();
        let is_counted = self.is_outside() && is_in_function || self.counted_call().is_some();
        if is_counted != self.counted_until.is_some() {
            let location = self.recorded.unwrap_or(self.samples);
            let cpu_time = || known.cpu_time(location, time);
            self.counted_until = is_counted.then(|| Moment { time, cpu_time: cpu_time() });
        }
    }

    /// Returns the open call if its time is divided among its callers.
    fn counted_call(&self) -> Option<RegionRef> {
        let is_counted = self.function_in_own.is_none() && !self.is_of_runtime;
        self.own.get(self.base).copied().filter(|_| is_counted)
    }

    /// Finds the credits of the ranges and the call that are open.
    fn find_place(&mut self) {
        let ranges = self.function_in_own.unwrap_or(self.base).min(self.base);
        self.credits.enter(&self.own[self.program.min(ranges)..ranges]);
        if let Some(call) = self.counted_call() {
            self.credits.begin(call);
        }
    }

    /// Whether no recorded call or function is open.
    fn is_outside(&self) -> bool {
        self.own.len() == self.base && self.function_in_own.is_none()
    }

    /// Whether the thread has paused in a call, after which it is in one of the functions that were sampled outside.
    fn has_paused_in_call(&self) -> bool {
        let has_samples = !self.own.is_empty() && !self.credits.shown(false).is_empty();
        self.stack.is_empty() && !self.waits_outside && has_samples
    }

    /// Whether the last sample was taken outside of recorded calls and functions.
    fn is_outside_sample(&self) -> bool {
        !self.in_call && !self.in_unsampled && self.function_in_stack.is_none() && !self.stack.is_empty()
    }

    /// Returns the sampled frames that are to be shown, around `call` if there is one.
    fn wanted(&self, call: Option<RegionRef>) -> &[RegionRef] {
        let is_new = !self.is_counted && self.is_outside_sample();
        let outside = match self.credits.shown(false) {
            _ if is_new || self.stack.is_empty() && !self.has_paused_in_call() => &self.stack,
            // No sample was taken outside yet: only the program is known to run.
            [] => &self.stack[..1],
            shown => shown,
        };
        let sampled = match call {
            _ if self.function_in_own.is_some() => return &[],
            None => outside,
            Some(_) if self.is_of_runtime && self.caller_is_known => &self.stack,
            Some(call) => match (self.callers.get(&call), self.credits.shown(true)) {
                (Some(before), _) if self.is_of_runtime => return &before.frames,
                (_, shown @ [_, ..]) if !self.is_of_runtime => shown,
                // If the recorded location has no frame of the program, the outermost sampled frame is kept: it is the program's.
                _ => return &outside[..outside.len().min(1 - self.program)],
            },
        };
        sampled.get(self.program..).unwrap_or_default()
    }

    /// Changes the sampled frames that are shown on a location. Open calls stay open inside them, and are not counted again.
    fn show(
        &mut self,
        call: Option<RegionRef>,
        time: Timestamp,
        location: LocationIndex,
        each: &mut impl FnMut(LocationIndex, Step),
    ) {
        let wanted = self.wanted(call);
        let same = self.shown.iter().zip(wanted).take_while(|(shown, wanted)| shown == wanted).count();
        if same == self.shown.len().max(wanted.len()) {
            return;
        }
        let calls = self.own.get(self.base..).unwrap_or_default();
        let left = calls.len() + self.shown.len() - same;
        (0..left).for_each(|_| each(location, Step::leave(time)));
        let entered = wanted[same..].iter().chain(calls);
        entered.for_each(|region| each(location, Step::enter(time, *region, 0)));
        let new = wanted[same..].to_vec();
        self.shown.truncate(same);
        self.shown.extend(new);
    }

    fn call(
        &mut self,
        recorded: LocationIndex,
        step: Step,
        known: &impl Known,
        each: &mut impl FnMut(LocationIndex, Step),
    ) {
        self.count(step.time, known);
        let Some(region) = step.region() else { return self.leave(recorded, step, each) };
        let role = known.role(region);
        self.waits_outside = false;
        self.has_called |= role != Role::Program;
        if self.own.is_empty() {
            self.shown.drain(..).for_each(|_| each(self.samples, Step::leave(step.time)));
            self.program = usize::from(role == Role::Program);
        }
        if role == Role::Function {
            self.function_in_own = self.function_in_own.or(Some(self.own.len()));
        }
        let is_base = !matches!(role, Role::Call | Role::RuntimeCall) && self.own.len() == self.base;
        if self.own.len() == self.base {
            self.is_of_runtime = role == Role::RuntimeCall;
        }
        if is_base {
            self.shown.drain(..).for_each(|_| each(recorded, Step::leave(step.time)));
            self.base += 1;
        } else {
            let call = self.own.get(self.base).copied();
            if call.is_none() && self.function_in_own.is_none() && !self.is_of_runtime {
                self.credits.begin(region);
            }
            self.show(call.or(Some(region)), step.time, recorded, each);
        }
        each(recorded, step);
        self.own.push(region);
        if is_base {
            if self.function_in_own.is_none() {
                self.find_place();
            }
            self.show(None, step.time, recorded, each);
        }
    }

    /// Keeps the frames that are shown around a call of this function of a GPU's runtime, in which a sample was taken.
    fn learn_caller(&mut self, call: RegionRef) {
        // Without any function, the sample shows nothing about the caller.
        let of_program = 1 - self.program;
        if self.shown.len() <= of_program {
            return;
        }
        let is_cut = self.is_cut;
        let Caller { frames: caller, is_cut: was_cut } = self.callers.entry(call).or_default();
        match (*was_cut, is_cut) {
            (false, true) if !caller.is_empty() => return,
            (true, false) => caller.clear(),
            _ => {}
        }
        *was_cut = is_cut;
        let same = caller.iter().zip(&self.shown).take_while(|(one, other)| one == other).count();
        caller.truncate(same);
        if same <= of_program {
            caller.extend_from_slice(&self.shown[same..]);
        }
    }

    fn leave(&mut self, recorded: LocationIndex, step: Step, each: &mut impl FnMut(LocationIndex, Step)) {
        let time = step.time;
        let is_call = self.own.len() > self.base;
        let was_in_function = self.function_in_own.is_some();
        self.has_called |= is_call || was_in_function;
        if !is_call {
            // The shown frames are inside the one that is left.
            self.shown.drain(..).for_each(|_| each(recorded, Step::leave(time)));
            self.base = self.base.saturating_sub(1);
        }
        let left = self.own.pop();
        self.function_in_own = self.function_in_own.filter(|at| *at < self.own.len());
        each(recorded, step);
        if self.own.len() != self.base {
            return;
        }
        if let Some(call) = left.filter(|_| self.caller_is_known && self.is_of_runtime) {
            self.learn_caller(call);
        }
        self.caller_is_known = false;
        match left {
            _ if self.function_in_own.is_some() => {}
            Some(left) if is_call || was_in_function => self.credits.end(left),
            _ => self.find_place(),
        }
        let mut location = recorded;
        if self.own.is_empty() {
            self.shown.drain(..).for_each(|_| each(recorded, Step::leave(time)));
            (self.program, location) = (0, self.samples);
        }
        self.show(None, time, location, each);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORDED: LocationIndex = LocationIndex(0);
    const SAMPLED: LocationIndex = LocationIndex(1);
    /// The location of another sampler, which continues the first one's samples.
    const SAMPLED_ON: LocationIndex = LocationIndex(2);
    const PROGRAM: RegionRef = RegionRef(0);
    const IN_CALL: RegionRef = RegionRef(49);
    const IN_CUT_CALL: RegionRef = RegionRef(48);

    struct Numbered;

    impl Known for Numbered {
        fn role(&self, region: RegionRef) -> Role {
            match region {
                PROGRAM => Role::Program,
                IN_CALL => Role::InCall,
                IN_CUT_CALL => Role::InCutCall,
                RegionRef(30..40) => Role::RuntimeCall,
                RegionRef(40..48) => Role::Function,
                RegionRef(50..) => Role::Range,
                // These are MPI functions, and functions that are only sampled.
                _ => Role::Call,
            }
        }

        fn is_unsampled(&self, region: RegionRef) -> bool {
            matches!(region, RegionRef(28 | 29 | 46 | 47))
        }

        fn cpu_time(&self, _: LocationIndex, _: Timestamp) -> Option<f64> {
            None
        }
    }

    /// Returns the stacks of all locations after each step. `+3` enters region 3, `-` leaves. `s` marks a step of the samples,
    /// `t` a step of another sampler's samples. `both` connects the samples with the recorded location, and `on` does so with
    /// those of the other sampler. Steps that are joined by a comma happen at one moment.
    fn stacks_of_all(steps: &str) -> Vec<[Vec<u32>; 3]> {
        let mut stacks = SampledStacks::default();
        stacks.add(SAMPLED);
        stacks.add(SAMPLED_ON);
        let mut seen = [const { Vec::new() }; 3];
        let mut all = Vec::new();
        let moments = (1..).zip(steps.split_whitespace());
        for (time, word) in moments.flat_map(|(time, words)| words.split(',').map(move |word| (time, word))) {
            if let Some(samples) =
                [("both", SAMPLED), ("on", SAMPLED_ON)].iter().find(|known| known.0 == word)
            {
                let own: Vec<RegionRef> = seen[0].iter().map(|region| RegionRef(*region)).collect();
                stacks.put_on(samples.1, RECORDED, own, |region| Numbered.role(region));
            } else {
                let samples = [("s", SAMPLED), ("t", SAMPLED_ON)].into_iter();
                let mut samples =
                    samples.filter_map(|(of, location)| Some((location, word.strip_prefix(of)?)));
                let (location, word) = samples.next().unwrap_or((RECORDED, word));
                let step = match word.strip_prefix('+') {
                    Some(region) => Step::enter(time, RegionRef(region.parse().expect("a number")), 1),
                    None => Step::leave(time),
                };
                stacks.pass(location, step, &Numbered, &mut |location, step| {
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

    fn stacks(steps: &str) -> Vec<[Vec<u32>; 2]> {
        stacks_of_all(steps).into_iter().map(|[recorded, sampled, _]| [recorded, sampled]).collect()
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
        assert_eq!(last("both +0 s+0 s+1 s+2"), [vec![0, 1, 2], vec![]]);
        // The caller of MPI is not known.
        assert_eq!(last("both +0 s+0 s+1 s+2 +9"), [vec![0, 9], vec![]]);
        assert_eq!(last("both +0 s+0 s+1 s+2 +9 -"), [vec![0, 1, 2], vec![]]);
        // Samples outside of calls do not belong to the call.
        assert_eq!(last("both +0 s+0 s+1 s+2 +9 s- s+3"), [vec![0, 9], vec![]]);
        assert_eq!(last("both +0 s+0 s+1 s+2 +9 s- s+3 -"), [vec![0, 1, 3], vec![]]);
        // Samples start before the recording of calls, and end after it.
        assert_eq!(last("both s+0 s+1 +0 +9"), [vec![0, 9], vec![]]);
        assert_eq!(last("both +0 s+0 s+1 - s+2"), [vec![], vec![0, 1, 2]]);
    }

    /// Passes the steps of a program that is in function 2 and then in function 3 for `each` ticks, and then makes a call of
    /// `in_call` ticks. A sample is taken every 10 ticks, or only of the ticks outside calls if the calls wait, and is written as
    /// the collector writes it. Returns the ticks by region.
    fn ticks_of(each: u64, in_call: u64, waits: bool) -> HashMap<u32, f64> {
        let mut stacks = SampledStacks::default();
        stacks.add(SAMPLED);
        stacks.put_on(SAMPLED, RECORDED, Vec::new(), |region| Numbered.role(region));
        let (mut shown, mut times, mut until) = ([const { Vec::new() }; 2], HashMap::new(), 0);
        let mut pass = |location, step: Step| {
            let innermost = shown.iter().find_map(|stack: &Vec<u32>| stack.last().copied());
            *times.entry(innermost.unwrap_or(0)).or_insert(0.0) += (step.time - until) as f64;
            until = step.time;
            stacks.pass(location, step, &Numbered, &mut |location, step| {
                let stack = &mut shown[location.0 as usize];
                match step.region() {
                    Some(region) => stack.push(region.0),
                    None => assert!(stack.pop().is_some(), "a leave too many"),
                }
            });
        };
        let enter = |time, region| Step::enter(time, RegionRef(region), 1);
        pass(RECORDED, enter(0, 0));
        let (mut sampled, mut used) = (0, 0);
        for time in 1..1000 * (2 * each + in_call) {
            let place = time % (2 * each + in_call);
            let is_in_call = place >= 2 * each;
            match place {
                0 => pass(RECORDED, Step::leave(time)),
                _ if place == 2 * each => pass(RECORDED, enter(time, 9)),
                // The thread waits, and its functions end.
                _ if place == 2 * each + 1 && waits => {
                    (0..sampled).for_each(|_| pass(SAMPLED, Step::leave(time)));
                    sampled = 0;
                }
                _ => {}
            }
            used += u64::from(!waits || !is_in_call);
            if used == 10 {
                used = 0;
                let function = if is_in_call { IN_CALL.0 } else { 2 + u32::from(place >= each) };
                (0..sampled.min(1)).for_each(|_| pass(SAMPLED, Step::leave(time)));
                let stack = [0, 1, function];
                stack[2.min(sampled)..].iter().for_each(|region| pass(SAMPLED, enter(time, *region)));
                sampled = 3;
            }
        }
        times
    }

    #[test]
    fn functions_around_a_call_have_their_time() {
        for (each, in_call, waits) in [(13, 13, false), (4, 300, true), (12, 300, true)] {
            let times = ticks_of(each, in_call, waits);
            let expected = [(2, each as f64), (3, each as f64), (9, in_call as f64), (1, 0.0)];
            for (region, expected) in expected {
                let is = times.get(&region).copied().unwrap_or(0.0) / 1000.0;
                assert!(
                    (is - expected).abs() < 0.04 * each as f64 + 0.002 * expected,
                    "{region}: {is} and not {expected}: {times:?}"
                );
            }
        }
    }

    #[test]
    fn a_sample_inside_a_call_belongs_only_to_that_call() {
        let sampled = "both +0 s+0,s+1,s+2 +9 s-,s+3,s+49";
        assert_eq!(last(sampled), [vec![0, 1, 3, 9], vec![]]);
        // The time outside belongs to samples outside.
        assert_eq!(last(&format!("{sampled} -")), [vec![0, 1, 2], vec![]]);
        // The next call is assumed to come from the same caller; a call of another function is not.
        assert_eq!(last(&format!("{sampled} - +9")), [vec![0, 1, 3, 9], vec![]]);
        assert_eq!(last(&format!("{sampled} - +8")), [vec![0, 8], vec![]]);
        // The next sample outside does not belong to the call.
        assert_eq!(last(&format!("{sampled} s-,s-,s+4")), [vec![0, 1, 3, 9], vec![]]);
        assert_eq!(last(&format!("{sampled} s-,s-,s+4 -")), [vec![0, 1, 4], vec![]]);
        assert_eq!(last(&format!("{sampled} s-,s-,s+4 - +9")), [vec![0, 1, 3, 9], vec![]]);
        // Calls inside the call stay there.
        assert_eq!(last(&format!("{sampled} +8")), [vec![0, 1, 3, 9, 8], vec![]]);
        // Samples are taken inside two consecutive calls.
        assert_eq!(last(&format!("{sampled} - +9 s-,s-,s+5,s+49 -")), [vec![0, 1, 2], vec![]]);
        // The calls of this thread are not recorded.
        assert_eq!(last("s+0,s+1,s+49"), [vec![], vec![0, 1]]);
        assert_eq!(last("s+0,s+1,s+49 s-,s-"), [vec![], vec![0]]);
    }

    /// Region 46 is one of ampere.h, which counts as a function, and 28 is one of Kokkos, which counts as a call.
    #[test]
    fn a_sample_inside_a_marked_region_shows_nothing_about_the_time_outside() {
        for region in [46, 28] {
            let inside = format!("both +0 s+0,s+1,s+2 +{region} s-,s+3");
            assert_eq!(last(&format!("{inside} -")), [vec![0, 1, 2], vec![]], "{region}");
            assert_eq!(last(&format!("{inside} - s-,s+4")), [vec![0, 1, 4], vec![]], "{region}");
        }
    }

    #[test]
    fn a_runtime_call_is_assumed_to_come_from_the_common_part_of_all_sampled_ones() {
        let one = "both +0 s+0,s+1,s+2 +31 s-,s+3,s+4,s+49 -";
        assert_eq!(last(&format!("{one} +31")), [vec![0, 1, 3, 4, 31], vec![]]);
        let other = format!("{one} +31 s-,s-,s+5,s+49");
        assert_eq!(last(&other), [vec![0, 1, 3, 5, 31], vec![]]);
        assert_eq!(last(&format!("{other} - +31")), [vec![0, 1, 3, 31], vec![]]);
        // A caller that was seen again does not become the only one.
        assert_eq!(last(&format!("{other} - +31 s-,s-,s+5,s+49 - +31")), [vec![0, 1, 3, 31], vec![]]);
    }

    #[test]
    fn a_runtime_call_keeps_its_known_caller_when_the_outer_functions_of_a_sample_are_unknown() {
        let one = "both +0 s+0,s+1,s+2 +31 s-,s+3,s+4,s+49 -";
        let without_functions = format!("{one} +31 s-,s-,s-,s-,s+49 -");
        assert_eq!(last(&format!("{without_functions} +31")), [vec![0, 1, 3, 4, 31], vec![]]);
        // A sample without its outermost functions shows where the sampled call itself comes from, and nothing about other calls.
        let cut = format!("{one} +31 s-,s-,s-,s-,s+4,s+48");
        assert_eq!(last(&cut), [vec![0, 4, 31], vec![]]);
        assert_eq!(last(&format!("{cut} - +31")), [vec![0, 1, 3, 4, 31], vec![]]);
        // A sample without its outermost functions is used as long as there is no complete one.
        let all_cut = "both +0 s+0,s+4,s+48 +31 s-,s+48 - +31";
        assert_eq!(last(all_cut), [vec![0, 4, 31], vec![]]);
        let whole = format!("{all_cut} s-,s-,s+1,s+5,s+49 - +31");
        assert_eq!(last(&whole), [vec![0, 1, 5, 31], vec![]]);
        assert_eq!(last(&format!("{whole} s-,s-,s-,s+4,s+48 - +31")), [vec![0, 1, 5, 31], vec![]]);
        // A call of MPI is assumed to come from the same place as the last sampled one.
        assert_eq!(last("both +0 s+0,s+4 +9 s+48 - +9"), [vec![0, 4, 9], vec![]]);
        // The next sample with all functions counts again.
        let only_inner = format!("{one} +31 s-,s-,s-,s-,s+4,s+49 -");
        let whole = format!("{only_inner} +31 s-,s-,s+1,s+3,s+4,s+49 -");
        assert_eq!(last(&format!("{whole} +31")), [vec![0, 1, 3, 4, 31], vec![]]);
    }

    #[test]
    fn a_runtime_call_has_a_known_caller_although_the_first_sample_came_just_before_it() {
        let before = "both +0 s+0,s+1,s+2,s+49 +31";
        assert_eq!(last(before), [vec![0, 31], vec![]]);
        assert_eq!(last(&format!("{before} - +31 s-,s+49")), [vec![0, 1, 2, 31], vec![]]);
        assert_eq!(last(&format!("{before} - +31 s-,s+49 - +31")), [vec![0, 1, 2, 31], vec![]]);
    }

    #[test]
    fn ranges_are_around_sampled_frames_and_these_around_calls() {
        assert_eq!(last("both +0 s+0 s+1 s+2 +50"), [vec![0, 50, 1, 2], vec![]]);
        assert_eq!(last("both +0 s+0 s+1 s+2 +50 +51 s- +9"), [vec![0, 50, 51, 9], vec![]]);
        assert_eq!(last("both +0 s+0 s+1 s+2 +50 +51 +9 - - s+3"), [vec![0, 50, 1, 2, 3], vec![]]);
        assert_eq!(last("both +0 s+0 s+1 +50 -"), [vec![0, 1], vec![]]);
        // The program of this thread has no frame.
        assert_eq!(last("both s+0 s+1 +50"), [vec![50, 0, 1], vec![]]);
        assert_eq!(last("both s+0 s+1 +50 -"), [vec![], vec![0, 1]]);
        // It becomes known late that both belong to the same thread.
        assert_eq!(last("+0 +50 both s+0 s+1 s+2"), [vec![0, 50, 1, 2], vec![]]);
    }

    #[test]
    fn frames_do_not_depend_on_when_both_are_known_to_be_of_one_thread() {
        let early = stacks("both s+0 s+1 s+2 +0 s- s+3 +9 s-");
        let late = stacks("s+0 s+1 s+2 both +0 s- s+3 +9 s-");
        assert_eq!(early[4..], late[4..]);
        assert_eq!(late[3..5], [[vec![], vec![0, 1, 2]], [vec![0, 1, 2], vec![]]]);
        assert_eq!(last("+0 both s+0 s+1 +9"), [vec![0, 9], vec![]]);
    }

    #[test]
    fn a_thread_needs_no_samples_while_one_of_its_functions_is_recorded() {
        assert_eq!(last("both +0 s+0 s+20 s+21 +40 s+22 +9"), [vec![0, 40, 9], vec![]]);
        // The program has no frame.
        assert_eq!(last("both s+0 s+20 +40 s+21 +9"), [vec![40, 9], vec![]]);
        // It becomes known late that both belong to the same thread.
        assert_eq!(last("+0 +40 both s+0 s+20"), [vec![0, 40], vec![]]);
    }

    #[test]
    fn samples_are_shown_between_the_recorded_functions_of_a_program_that_is_instrumented_in_parts() {
        assert_eq!(last("both +0 s+0,s+20,s+21 +40 -"), [vec![0, 20, 21], vec![]]);
        assert_eq!(last("both +0 s+0,s+20,s+21 +40 +41 - s- s+22 -"), [vec![0, 20, 22], vec![]]);
        // Samples inside a recorded function give no information about the time outside.
        assert_eq!(last("both +0 s+0,s+20,s+21 +40 s-,s+40,s+22 -"), [vec![0, 20, 21], vec![]]);
        assert_eq!(last("both +0 s+0,s+20,s+21 +40 s-,s+40,s+22 - s-,s-,s+23"), [vec![0, 20, 23], vec![]]);
        // The recording ends and samples continue: the first of them could have been taken in a recorded function.
        let ended = "both +0 s+0,s+20 +40 s+40,s+22 - -";
        assert_eq!(last(ended), [vec![], vec![0, 20]]);
        assert_eq!(last(&format!("{ended} s-,s+23")), [vec![], vec![0, 20]]);
        assert_eq!(last(&format!("{ended} s-,s+23 s-,s-,s+24")), [vec![], vec![0, 20, 24]]);
        assert_eq!(last(&format!("{ended} s-,s+23 s-,s+25")), [vec![], vec![0, 20, 40, 23]]);
        // The program has no recorded frame. It is sampled in function 40 before a call of that function is recorded.
        let without_frame = "both s+0,s+20 s-,s+40";
        assert_eq!(last(without_frame), [vec![], vec![0, 20]]);
        assert_eq!(last(&format!("{without_frame} +40 - s-,s+21")), [vec![], vec![0, 21]]);
        assert_eq!(last(&format!("{without_frame} +40 - s-,s+40")), [vec![], vec![0, 20]]);
        assert_eq!(last("both s+0,s+40"), [vec![], vec![0]]);
    }

    #[test]
    fn sampled_frames_are_around_the_calls_of_a_thread_without_a_frame_of_the_program() {
        assert_eq!(last("both s+0 s+5 +9"), [vec![0, 9], vec![]]);
        assert_eq!(last("both s+0 s+5 +9 s-,s+6,s+49"), [vec![0, 6, 9], vec![]]);
        assert_eq!(last("both s+0 s+5 +9 -"), [vec![], vec![0, 5]]);
    }

    #[test]
    fn a_waiting_call_keeps_its_caller() {
        assert_eq!(last("both +0 s+0 s+1 s+2 +9 s- s- s-"), [vec![0, 9], vec![]]);
        assert_eq!(last("both +0 s+0 s+1 s+2 +9 s- s- s- -"), [vec![0], vec![]]);
        assert_eq!(last("both +0 s+0 s+1 s+2 s- s- s-"), [vec![0], vec![]]);
    }

    /// A thread that is sampled while it runs.
    struct Sampled {
        stacks: SampledStacks,
        time: Timestamp,
        next_sample: Timestamp,
        period: Timestamp,
        sampled: Vec<u32>,
        /// The recorded location's frames as they are shown, the time of the last step, and the time in each path.
        open: Vec<u32>,
        since: Timestamp,
        shown: HashMap<Vec<u32>, Timestamp>,
    }

    impl Sampled {
        fn new(period: Timestamp) -> Sampled {
            let mut stacks = SampledStacks::default();
            stacks.add(SAMPLED);
            stacks.put_on(SAMPLED, RECORDED, Vec::new(), |region| Numbered.role(region));
            let (time, next_sample) = (2, period);
            let (sampled, open, since, shown) = (Vec::new(), Vec::new(), 0, HashMap::new());
            let mut thread = Sampled { stacks, time, next_sample, period, sampled, open, since, shown };
            thread.pass(RECORDED, Step::enter(0, PROGRAM, 1));
            thread.sample(1, &[0, 1]);
            thread
        }

        fn pass(&mut self, location: LocationIndex, step: Step) {
            let Sampled { stacks, open, since, shown, .. } = self;
            stacks.pass(location, step, &Numbered, &mut |location, step| {
                assert_eq!(location, RECORDED);
                assert!(*since <= step.time, "a step back");
                match shown.get_mut(open) {
                    Some(of) => *of += step.time - *since,
                    None => _ = shown.insert(open.clone(), step.time - *since),
                }
                *since = step.time;
                match step.region() {
                    Some(region) => open.push(region.0),
                    None => drop(open.pop()),
                }
            });
        }

        fn sample(&mut self, time: Timestamp, stack: &[u32]) {
            let same = self.sampled.iter().zip(stack).take_while(|(one, other)| one == other).count();
            let same = same.min(stack.len() - 1);
            (same..self.sampled.len()).for_each(|_| self.pass(SAMPLED, Step::leave(time)));
            stack[same..]
                .iter()
                .for_each(|region| self.pass(SAMPLED, Step::enter(time, RegionRef(*region), 1)));
            self.sampled = stack.to_vec();
        }

        fn run(&mut self, function: u32, length: Timestamp) {
            self.run_in(&[0, function], length);
        }

        fn run_in(&mut self, stack: &[u32], length: Timestamp) {
            let end = self.time + length;
            while self.next_sample < end {
                let time = self.next_sample;
                self.sample(time, stack);
                // The period is varied so that the program's rounds do not follow it.
                self.next_sample += 4 * self.period / 5 + time * 7_919 % (2 * self.period / 5 + 3);
            }
            self.time = end;
        }

        fn call(&mut self, caller: u32, length: Timestamp) {
            self.call_of(CALLED, caller, length);
        }

        fn call_of(&mut self, called: u32, caller: u32, length: Timestamp) {
            self.pass(RECORDED, Step::enter(self.time, RegionRef(called), 1));
            self.run_in(&[0, caller, IN_CALL.0], length);
            self.pass(RECORDED, Step::leave(self.time));
        }

        fn range(&mut self, range: u32, inside: impl FnOnce(&mut Sampled)) {
            self.pass(RECORDED, Step::enter(self.time, RegionRef(range), 1));
            inside(self);
            self.pass(RECORDED, Step::leave(self.time));
        }

        /// Returns the share of the paths that begin and end like this.
        fn share(&self, begin: &[u32], end: &[u32]) -> f64 {
            let of = self.shown.iter().filter(|(path, _)| path.starts_with(begin) && path.ends_with(end));
            of.map(|(_, time)| *time).sum::<Timestamp>() as f64 / self.time as f64
        }
    }

    const CALLED: u32 = 9;

    #[test]
    fn a_function_without_calls_gets_as_much_for_a_sample_as_one_between_calls() {
        let mut thread = Sampled::new(5_000);
        for _ in 0..20_000 {
            for _ in 0..20 {
                thread.run(1, 200);
                thread.call(1, 800);
            }
            thread.run(2, 3_600);
        }
        let [of_1, of_2] = [1, 2].map(|region| thread.share(&[0], &[region]));
        assert!((of_1 / of_2 * 3_600.0 / 4_000.0 - 1.0).abs() < 0.03, "{of_1} and {of_2}");
    }

    #[test]
    fn ranges_that_are_shorter_than_a_period_have_the_functions_that_were_sampled_in_them() {
        let mut thread = Sampled::new(5_000);
        for _ in 0..100_000 {
            thread.range(50, |thread| {
                thread.run(1, 400);
                thread.range(52, |thread| thread.run(2, 100));
            });
            thread.range(51, |thread| {
                thread.run(3, 200);
                thread.call(3, 50);
                thread.run(1, 50);
                thread.range(52, |thread| thread.run(4, 100));
            });
            thread.run(5, 100);
        }
        for (path, expected) in [
            (&[0, 50, 1][..], 0.4),
            (&[0, 50, 52, 2], 0.1),
            (&[0, 51, 3], 0.2),
            (&[0, 51, 1], 0.05),
            (&[0, 51, 52, 4], 0.1),
            (&[0, 51, 3, CALLED], 0.05),
            (&[0, 5], 0.1),
        ] {
            let share = thread.share(path, path);
            assert!((share - expected).abs() < 0.01, "{share} of {path:?}: {:?}", thread.shown);
        }
    }

    #[test]
    fn ranges_that_are_entered_once_share_their_samples_by_their_innermost_ranges() {
        let mut thread = Sampled::new(1_000);
        for number in 0..50_000 {
            thread.range(100 + number, |thread| {
                thread.run(1, 300);
                thread.call(1, 50);
                thread.run(2, 100);
                thread.call(1, 50);
                thread.range(50, |thread| thread.run(3, 200));
                thread.run(5, 100);
                thread.range(51, |thread| thread.run(4, 200));
            });
        }
        for (end, expected) in
            [(&[1][..], 0.3), (&[2], 0.1), (&[5], 0.1), (&[50, 3], 0.2), (&[51, 4], 0.2), (&[CALLED], 0.1)]
        {
            let share = thread.share(&[0], end);
            assert!((share - expected).abs() < 0.01, "{share} of {end:?}");
        }
    }

    #[test]
    fn a_function_that_is_open_when_samples_begin_is_no_range() {
        let learnt = "+50 s-,s+2 - s-,s+3";
        assert_eq!(last(&format!("both +0 s+0,s+1 {learnt} +50"))[0], [0, 50, 2]);
        assert_eq!(last(&format!("+0 +40 s+0,s+1 both - {learnt} +50"))[0], [0, 50, 2]);
    }

    #[test]
    fn a_function_that_always_runs_after_the_same_call_is_shown_there() {
        let mut thread = Sampled::new(5_000);
        let mut in_time = 0;
        for _ in 0..20_000 {
            thread.run(1, 1_000);
            thread.call_of(8, 1, 50);
            let before = thread.shown.get(&[0, 2][..]).copied().unwrap_or(0);
            thread.run(2, 500);
            thread.call_of(9, 2, 50);
            in_time += thread.shown.get(&[0, 2][..]).copied().unwrap_or(0) - before;
        }
        let right = in_time as f64 / (20_000.0 * 500.0);
        assert!(right > 0.98, "{right} of the time of function 2 is shown when it ran");
    }

    #[test]
    fn a_recorded_function_has_no_time_outside_of_its_calls() {
        for period in [5_000, 4_000, 1_000] {
            let mut thread = Sampled::new(period);
            for _ in 0..20_000 {
                thread.pass(RECORDED, Step::enter(thread.time, RegionRef(40), 1));
                thread.run_in(&[0, 40], 2_000);
                thread.pass(RECORDED, Step::leave(thread.time));
                thread.run(1, 2_000);
            }
            let share = thread.share(&[0], &[40]);
            assert!((share - 0.5).abs() < 0.01, "{period}: {share}: {:?}", thread.shown);
        }
    }

    #[test]
    fn the_time_of_a_called_function_is_divided_among_its_callers() {
        let mut thread = Sampled::new(4_000);
        for _ in 0..10_000 {
            thread.run(1, 2_000);
            thread.call(2, 3_000);
            thread.run(1, 2_000);
            thread.call(3, 1_000);
        }
        for (path, expected) in [([0, 1].as_slice(), 0.5), (&[0, 2, CALLED], 0.375), (&[0, 3, CALLED], 0.125)]
        {
            let share = thread.share(path, path);
            assert!((share - expected).abs() < 0.01, "{share} of {path:?}: {:?}", thread.shown);
        }
    }

    #[test]
    fn samples_of_another_sampler_continue_those_of_the_first() {
        let last = |steps: &str| stacks_of_all(steps).pop().expect("a step");
        for end in ["s-,s-,s- t+0,t+1,t+3", "t+0,t+1,t+3 s-,s-,s-"] {
            for (linked, late) in [("both on", ""), ("both", "on")] {
                let taken_over = format!("{linked} +0 s+0,s+1,s+2 {late} {end}");
                assert_eq!(last(&taken_over), [vec![0, 1, 3], vec![], vec![]], "{taken_over}");
                let more = format!("{taken_over} t-,t-,t+4,t+49 +9");
                assert_eq!(last(&more), [vec![0, 9], vec![], vec![]], "{more}");
                assert_eq!(last(&format!("{taken_over} +9 t-,t+5,t+49")), [vec![0, 1, 5, 9], vec![], vec![]]);
                assert_eq!(last(&format!("{taken_over} -")), [vec![], vec![], vec![0, 1, 3]]);
            }
            // Another sampler continues before calls are recorded, and after.
            assert_eq!(last(&format!("both on s+0,s+1,s+2 {end}")), [vec![], vec![], vec![0, 1, 3]]);
            assert_eq!(last(&format!("both on +0 s+0,s+1,s+2 - {end}")), [vec![], vec![], vec![0, 1, 3]]);
        }
        // It becomes known late that all belong to the same thread.
        let late = "s+0,s+1 s-,s- t+0,t+1 both on +0";
        assert_eq!(last(late), [vec![0, 1], vec![], vec![]]);
        // The first sampler ended inside a call.
        let in_call = "both on +0 s+0,s+1 +9 s+2,s+49 t+0,t+1,t+3 s-";
        assert_eq!(last(&format!("{in_call} -")), [vec![0, 1, 3], vec![], vec![]]);
    }
}
