//! The cost of samples and records of switches for the measured program, and the resulting periods.

use super::UNEVEN_FACTOR;
use ampere_figures::summary::StacksOverhead;
use ampere_settings::StackPeriod;
use ampere_stacks::{Figures, Options};
use std::time::Duration;

/// The part of the program's CPU time that samples may cost.
const PART_MAX: f64 = 0.01;
/// The shortest and the longest period that is chosen. Chosen periods are multiples of [`STEP`], so that nodes of the same kind
/// choose the same period.
const PERIOD_MIN: Duration = Duration::from_millis(1);
const PERIOD_MAX: Duration = Duration::from_millis(10);
const STEP: Duration = Duration::from_micros(100);
/// A chosen period is doubled when a run has lasted for these times: by then there are many samples.
const DOUBLED_AFTER: [Duration; 3] =
    [Duration::from_secs(2), Duration::from_secs(10), Duration::from_secs(60)];
/// The whole cost of a sample, relative to the time for which it interrupts its thread: the copy of the stack also takes the place
/// of the program's data in the caches. Measured with LAMMPS on a virtual machine: an interruption of 15 microseconds costs 38
/// microseconds.
const WHOLE_COST_FACTOR: f64 = 2.5;
/// The assumed whole cost of a sample if it cannot be measured.
const SAMPLE_COST: Duration = Duration::from_micros(38);
/// The cost of a record of a switch. There are two for each time that a thread is on a CPU. Measured with two threads and a pipe,
/// on virtual machines.
const SWITCH_COST: Duration = Duration::from_nanos(500);

/// The cost of switches is checked when a run has lasted for this time, and again whenever its duration has doubled. The check
/// needs at least this much CPU time of the program.
const SWITCHES_AFTER: Duration = Duration::from_secs(2);
const SWITCHES_CPU_MIN: Duration = Duration::from_secs(1);
/// A period is changed only if it becomes longer by this factor.
const LONGER_MIN: f64 = 1.2;

/// The CPU time between two samples in the course of a run.
pub(super) struct Periods {
    pub now: Duration,
    /// When the cost of switches is checked next; `None` if the period was not chosen here.
    next_look: Option<Duration>,
    /// The remaining times after which the period is doubled.
    next: &'static [Duration],
    /// The number of samples before the last change, and their CPU time.
    before: (u64, Duration),
}

impl Periods {
    pub fn new(first: Duration, wanted: StackPeriod) -> Periods {
        let is_chosen = wanted == StackPeriod::Auto;
        let next = if is_chosen { &DOUBLED_AFTER[..] } else { &[] };
        let next_look = is_chosen.then_some(SWITCHES_AFTER);
        Periods { now: first, next_look, next, before: (0, Duration::ZERO) }
    }

    /// Returns the next period, if it is due in a run that has lasted for this time. It is returned once.
    pub fn due(&mut self, lasted: Duration) -> Option<Duration> {
        let (after, later) = self.next.split_first()?;
        if lasted < *after {
            return None;
        }
        self.next = later;
        Some(2 * self.now)
    }

    /// Returns a longer period if records of switches leave less of the budget for samples than was assumed. `switches` is their
    /// number in this CPU time of the program, and `cost` the cost of a sample.
    pub fn longer_for_switches(
        &mut self,
        lasted: Duration,
        (switches, cpu): (u64, Duration),
        cost: Option<Duration>,
    ) -> Option<Duration> {
        self.next_look = Some(2 * self.next_look.filter(|next| lasted >= *next)?.max(lasted));
        if cpu < SWITCHES_CPU_MIN {
            return None;
        }
        let spent = SWITCH_COST.mul_f64(switches as f64).div_duration_f64(cpu);
        let period = period_for(cost.unwrap_or(SAMPLE_COST), PART_MAX - spent);
        (period > self.now.mul_f64(LONGER_MIN)).then_some(period)
    }

    /// Sets a new period, from this number of samples on.
    pub fn change(&mut self, period: Duration, samples: u64) {
        self.before = (samples, self.sampled(samples));
        self.now = period;
    }

    /// Returns the CPU time for which this many samples stand.
    fn sampled(&self, samples: u64) -> Duration {
        let (before, time) = self.before;
        time + self.now.mul_f64(samples.saturating_sub(before) as f64)
    }

    /// Returns the average period of this many samples, if the period has changed.
    pub fn average(&self, samples: u64) -> Option<Duration> {
        (self.before.0 > 0).then(|| self.sampled(samples).div_f64(samples.max(1) as f64))
    }
}

/// Returns the actual CPU time that must pass between two samples, so that samples take the fraction `part` of the program's CPU
/// time if each of them costs `cost`.
fn period_for(cost: Duration, part: f64) -> Duration {
    let steps = match cost.div_duration_f64(STEP) / part / UNEVEN_FACTOR {
        steps if part > 0.0 => steps.ceil(),
        _ => f64::MAX,
    };
    let steps = steps.min(PERIOD_MAX.div_duration_f64(STEP));
    STEP.mul_f64(steps).clamp(PERIOD_MIN, PERIOD_MAX).mul_f64(UNEVEN_FACTOR)
}

/// Returns the whole cost of a sample with these options for the sampled program; `None` if it cannot be measured.
pub(super) fn sample_cost(options: &Options) -> Option<Duration> {
    ampere_stacks::sample_cost(options).map(|interrupt| interrupt.mul_f64(WHOLE_COST_FACTOR))
}

/// Returns the actual CPU time between two samples, if stacks are sampled. `cost` is from [`sample_cost`].
pub(super) fn period(wanted: StackPeriod, cost: Option<Duration>) -> Option<Duration> {
    match wanted {
        StackPeriod::Off => None,
        StackPeriod::Every(period) => Some(period.mul_f64(UNEVEN_FACTOR)),
        StackPeriod::Auto => Some(period_for(cost.unwrap_or(SAMPLE_COST), PART_MAX)),
    }
}

/// Returns an estimate of the cost of all samples and records of switches. `period` is `None` if there were no samples.
pub(super) fn overhead(
    figures: &Figures,
    period: Option<Duration>,
    cost: Option<Duration>,
) -> StacksOverhead {
    let seconds = |count: u64, each: Duration| count as f64 * each.as_secs_f64();
    let sampled = period.map_or(0.0, |period| seconds(figures.samples, period));
    StacksOverhead {
        period_seconds: period.map(|period| period.as_secs_f64()),
        sample_seconds: cost.map(|cost| cost.as_secs_f64()),
        samples: figures.samples,
        switches: figures.switches,
        cost_seconds: seconds(figures.samples, cost.unwrap_or(SAMPLE_COST))
            + seconds(figures.switches, SWITCH_COST),
        program_seconds: sampled.max(figures.on_cpu_ns as f64 * 1e-9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_period_follows_the_cost_of_a_sample_and_samples_cost_at_most_one_percent() {
        let auto = |microseconds: f64| {
            period(StackPeriod::Auto, Some(Duration::from_secs_f64(microseconds * 1e-6))).unwrap()
        };
        let chosen = |microseconds| (auto(microseconds) * 1000).div_duration_f64(Duration::from_millis(983));
        for (microseconds, expected) in
            [(0.0, 1.0), (3.0, 1.0), (9.8, 1.0), (10.0, 1.1), (15.0, 1.6), (19.0, 2.0)]
        {
            assert!(
                (chosen(microseconds) - expected).abs() < 1e-5,
                "{microseconds}: {}",
                chosen(microseconds)
            );
            assert!(microseconds * 1e-6 / auto(microseconds).as_secs_f64() <= PART_MAX);
        }
        assert!((chosen(1000.0) - 10.0).abs() < 1e-5, "{}", chosen(1000.0));
        assert_eq!(period(StackPeriod::Auto, None), Some(auto(38.0)));
        let fixed = Duration::from_millis(1);
        assert_eq!(period(StackPeriod::Every(fixed), Some(fixed)), Some(Duration::from_micros(983)));
        assert_eq!(period(StackPeriod::Off, Some(fixed)), None);
    }

    #[test]
    fn a_chosen_period_is_doubled_in_a_long_run_and_the_average_is_that_of_the_samples() {
        let first = Duration::from_millis(2);
        let mut periods = Periods::new(first, StackPeriod::Auto);
        assert_eq!((periods.due(Duration::from_secs(1)), periods.average(10)), (None, None));
        assert_eq!(periods.due(Duration::from_secs(3)), Some(2 * first));
        periods.change(2 * first, 1000);
        assert_eq!(periods.due(Duration::from_secs(9)), None);
        assert_eq!(periods.average(3000), Some(Duration::from_secs(10).div_f64(3000.0)));
        assert_eq!(periods.due(Duration::from_secs(11)), Some(4 * first));
        periods.change(4 * first, 3000);
        assert_eq!(periods.average(4000), Some(Duration::from_secs(18).div_f64(4000.0)));
        assert_eq!(periods.due(Duration::from_secs(59)), None);
        assert_eq!(periods.due(Duration::from_secs(1000)), Some(8 * first));
        assert_eq!(periods.due(Duration::from_secs(10_000)), None);
        assert_eq!(Periods::new(first, StackPeriod::Every(first)).due(Duration::from_secs(1000)), None);
    }

    #[test]
    fn a_chosen_period_leaves_room_for_records_of_switches_in_the_budget() {
        let seconds = Duration::from_secs;
        let cost = Some(Duration::from_micros(15));
        let first = period(StackPeriod::Auto, cost).unwrap();
        let mut periods = Periods::new(first, StackPeriod::Auto);
        // 10,000 switches in a second of CPU time cost half of the budget.
        let often = |cpu: u64| (10_000 * cpu, seconds(cpu));
        assert_eq!(periods.longer_for_switches(seconds(1), often(1), cost), None, "it is too early");
        let longer = periods.longer_for_switches(seconds(2), often(2), cost).unwrap();
        let spent = 15e-6 / longer.as_secs_f64() + 10_000.0 * SWITCH_COST.as_secs_f64();
        assert!(spent <= PART_MAX && spent > 0.95 * PART_MAX, "{longer:?}: {spent}");
        periods.change(longer, 1000);
        assert_eq!(
            periods.longer_for_switches(seconds(3), often(3), cost),
            None,
            "the cost was checked just now"
        );
        assert_eq!(
            periods.longer_for_switches(seconds(4), often(4), cost),
            None,
            "the period is long enough"
        );
        let all = periods.longer_for_switches(seconds(8), (1_000_000, seconds(8)), cost);
        assert_eq!(all, Some(PERIOD_MAX.mul_f64(UNEVEN_FACTOR)), "nothing is left");
        let mut few = Periods::new(first, StackPeriod::Auto);
        assert_eq!(few.longer_for_switches(seconds(2), (500, seconds(2)), cost), None);
        assert_eq!(few.longer_for_switches(seconds(9), (1 << 20, Duration::from_millis(900)), cost), None);
        let mut fixed = Periods::new(first, StackPeriod::Every(first));
        assert_eq!(
            fixed.longer_for_switches(seconds(60), often(60), cost),
            None,
            "a requested period is kept"
        );
    }

    #[test]
    fn the_cost_is_that_of_samples_and_of_switches_as_a_part_of_the_cpu_time() {
        let mut figures = Figures::default();
        (figures.samples, figures.switches, figures.on_cpu_ns) = (1000, 20_000, 4_000_000_000);
        let cost = Some(Duration::from_micros(20));
        let both = overhead(&figures, Some(Duration::from_millis(2)), cost);
        assert!((both.cost_seconds - 0.03).abs() < 1e-12 && both.program_seconds == 4.0, "{both:?}");
        (figures.samples, figures.on_cpu_ns) = (3000, 0);
        let sampled = overhead(&figures, Some(Duration::from_millis(2)), cost);
        assert!((sampled.share().unwrap() - 0.07 / 6.0).abs() < 1e-12, "{sampled:?}");
        assert_eq!(overhead(&Figures::default(), None, None).share(), None);
    }
}
