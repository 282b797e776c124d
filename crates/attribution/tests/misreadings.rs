//! A random search for joules that nobody spent: counters whose true course is known, read with misreadings, sleeps,
//! resets and wraps. The seed of a failure is printed; `AMPERE_TEST_SEED=N` repeats it, `AMPERE_TEST_SEEDS=500000` tries more.

use ampere_attribution::{Counter, CounterKind, Increase, Limits, Sample};

/// The resolution of times: microseconds.
const TICKS_PER_SECOND: u64 = 1_000_000;

/// SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    fn between(&mut self, from: u64, to: u64) -> u64 {
        from + self.below(to - from + 1)
    }

    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    fn chance(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Misreading {
    Zero,
    AllOnes,
    High,
    Stuck,
    Low,
    Noise,
}

/// The true course of a counter, and how it is read.
#[derive(Debug)]
struct Case {
    watts_max: f64,
    joules_per_unit: f64,
    wraps_at: Option<u64>,
    /// For each reading: time, raw value as read, joules spent since the start as the counter knows them, whether it is wrong.
    readings: Vec<(u64, u64, f64, bool)>,
    /// The times at which the counter was reset.
    resets: Vec<u64>,
    /// The most joules that one update of the counter had.
    update_joules: f64,
}

fn case(seed: u64) -> Case {
    let mut random = Random(seed);
    let (watts_max, wraps_at, joules_per_unit) = match random.below(4) {
        0 => (2e3, None, 1e-9),
        1 => (2e3, None, 15.259e-6),
        // These are two ranges of RAPL, and a small one that is passed often.
        2 => (1e3, Some(random.of(&[262_143_328_850, 65_712_999_613, 1u64 << 32])), 1e-6),
        _ => (20e3, None, 1.0),
    };
    let mut update = random.of(&[1_000, 15_000, 100_000, 1_000_000, 60_000_000]);
    // A counter that may pass its range unseen is useless.
    if wraps_at.is_some_and(|range| range as f64 * joules_per_unit < watts_max * 20e-6 * update as f64) {
        update = 15_000;
    }
    // Slow counters get few readings.
    let updates = random.between(3, 400).min(if update > 10_000_000 { 30 } else { 400 });
    let period = if random.chance(0.5) { update } else { (update / random.between(1, 20)).max(1_000) };
    let period = period.min(1_000_000);
    let length = update * updates;
    let units = |joules: f64| (joules / joules_per_unit).floor();
    // The counter starts with a value from before the run.
    let range = wraps_at.map_or(1e15 * joules_per_unit, |range| range as f64 * joules_per_unit);
    let mut base = match random.below(3) {
        0 => 0.0,
        1 => range * random.unit(),
        _ => range - watts_max * 1e-6 * length as f64 * 0.3 * random.unit(),
    }
    .max(0.0);
    let mut case = Case {
        watts_max,
        joules_per_unit,
        wraps_at,
        readings: Vec::new(),
        resets: Vec::new(),
        update_joules: 0.0,
    };
    let mut spent = 0.0;
    let mut shown = 0.0;
    let mut updated = 0;
    let mut watts = watts_max * 0.6 * random.unit();
    let (mut time, mut wrong): (u64, Option<(Misreading, u64, u64)>) = (random.between(1, 1 << 40), None);
    let start = time;
    let trouble = random.unit() * 0.1;
    let mut stuck = 0;
    let mut right = vec![(start, 0)];
    let mut misread_before = Vec::new();
    while time < start + length {
        let passed =
            period + if random.chance(0.1) { random.below(period) } else { random.below(period / 10 + 1) };
        time += passed;
        spent += watts * passed as f64 / TICKS_PER_SECOND as f64;
        if random.chance(0.02) {
            watts = if random.chance(0.1) { 0.0 } else { watts_max * 0.6 * random.unit() };
        }
        if case.resets.len() < 3 && random.chance(trouble * 0.1) && wraps_at.is_none() {
            // Some of the joules that were spent since the last update are never seen.
            case.resets.push(time);
            right.push((time, 0));
            base = -spent;
            shown = spent;
            updated = (time - start) / update;
        }
        if (time - start) / update > updated {
            updated = (time - start) / update;
            case.update_joules = case.update_joules.max(spent - shown);
            shown = spent;
        }
        let true_units = units(base + shown);
        let raw = wraps_at.map_or(true_units as u64, |range| (true_units as u128 % u128::from(range)) as u64);
        let beyond = units(watts_max * (length as f64 / TICKS_PER_SECOND as f64 + 1000.0)) as u64;
        if wrong.is_none() && random.chance(if case.readings.is_empty() { 0.2 } else { trouble }) {
            let kind = random.of(&[
                Misreading::Zero,
                Misreading::AllOnes,
                Misreading::High,
                Misreading::Stuck,
                Misreading::Low,
                Misreading::Noise,
            ]);
            let count = if random.chance(0.6) { 1 } else { random.between(1, 300) };
            wrong = Some((kind, count, random.next()));
            stuck = random.next();
        }
        let misread = wrong.map(|(kind, ..)| match kind {
            Misreading::Zero => 0,
            Misreading::AllOnes => wraps_at.map_or(u64::MAX, |range| range - 1),
            Misreading::High => raw.saturating_add(beyond).saturating_add(random.below(beyond)),
            Misreading::Stuck => stuck % (1 << random.between(1, 63).min(62)).max(1),
            Misreading::Low => raw.saturating_sub(beyond / 2 + random.below(raw.max(1))),
            Misreading::Noise => random.next() >> random.below(20),
        });
        // A value is a misreading only if the counter cannot have reached it: neither from its last correct reading, nor from its
        // value before any reset. The counter's usual time between changes is known only as exactly as readings show it, which
        // may come late.
        let seen = update.max(2 * period) as f64;
        let window = (10.0 * seen).max(1e6) + 2.0 * seen;
        let is_beyond = |value: u64, (then, from): &(u64, u64)| {
            let reach = units(watts_max * ((time - then) as f64 + window) / TICKS_PER_SECOND as f64 + 1.0);
            let distance = value.abs_diff(*from);
            wraps_at.map_or(distance, |range| distance.min(range.abs_diff(distance))) as f64 > reach
        };
        let misread = misread.filter(|value| {
            let apart = |other: &(u64, u64)| other.1 == *value || is_beyond(*value, other);
            is_beyond(*value, &(time, raw))
                && right.iter().all(|right| is_beyond(*value, right))
                && misread_before.iter().all(apart)
        });
        if let Some(value) = misread {
            misread_before.push((time, value));
        }
        if let Some((_, left, _)) = &mut wrong {
            *left -= 1;
        }
        wrong = wrong.filter(|(_, left, _)| *left > 0);
        if misread.is_none() {
            *right.last_mut().expect("one since the last reset") = (time, raw);
        }
        case.readings.push((time, misread.unwrap_or(raw), shown, misread.is_some()));
    }
    case
}

fn counter(case: &Case) -> Counter {
    let kind = CounterKind::Cumulative { joules_per_unit: case.joules_per_unit, wraps_at: case.wraps_at };
    let limits = Limits { watts_max: case.watts_max, ..Limits::none(TICKS_PER_SECOND as f64) };
    Counter::new(kind, limits)
}

fn take(counter: &mut Counter, samples: &mut Vec<Sample>) {
    while let Some(sample) = counter.sample() {
        samples.push(sample);
    }
}

fn joules_of(samples: &[Sample]) -> f64 {
    samples.iter().map(|s| if let Increase::Joules(joules) = s.increase { joules } else { 0.0 }).sum()
}

/// Reads as a trace is read: to the end, and again as long as something is found to be wrong.
fn samples_of(case: &Case, seed: u64) -> Vec<Sample> {
    let mut wrong = Vec::new();
    loop {
        let mut counter = counter(case);
        counter.exclude(wrong.clone());
        let mut samples = Vec::new();
        for (tag, (time, raw, ..)) in case.readings.iter().enumerate() {
            counter.read_u64(*time, *raw, tag as u64);
            take(&mut counter, &mut samples);
            let undecided = counter.undecided_since().unwrap_or(u64::MAX);
            assert!(samples.last().is_none_or(|last| last.time <= undecided));
        }
        counter.end();
        take(&mut counter, &mut samples);
        assert!(samples.is_sorted_by_key(|sample| sample.time), "seed {seed}: samples in order");
        if counter.taken_back().is_empty() || wrong.len() > 20 {
            return samples;
        }
        wrong.extend(counter.taken_back());
    }
}

/// Returns the joules that the counter had shown by its last reading at that time.
fn shown_at(case: &Case, time: u64) -> f64 {
    let at = case.readings.partition_point(|(t, ..)| *t <= time);
    case.readings[..at].last().map_or(case.readings[0].2, |(_, _, shown, _)| *shown)
}

fn check(seed: u64) {
    let case = case(seed);
    let samples = samples_of(&case, seed);
    let counted = joules_of(&samples);
    let (first, last) = (case.readings[0], case.readings[case.readings.len() - 1]);
    let spent = last.2 - first.2;
    let tick = case.joules_per_unit * 2.0;
    assert!(
        counted <= spent + case.update_joules + tick,
        "seed {seed}: {counted} J were counted and {spent} J spent, an update has {} J",
        case.update_joules
    );
    // Joules that are missing were spent in times that are reported as unknown.
    let mut covered = 0.0;
    for pair in samples.windows(2) {
        // A reset hides joules if misreadings come right before it, or if the counter's new value is not below the last value
        // that was believed. These joules cannot be known: the result is then too small, and never too large.
        let was_reset = case.resets.iter().any(|reset| (pair[0].time..=pair[1].time).contains(reset));
        let is_misread = |sample: &Sample| {
            case.readings.iter().any(|(time, _, _, is_wrong)| *time == sample.time && *is_wrong)
        };
        match pair[1].increase {
            Increase::Joules(_) if !was_reset && !pair.iter().any(is_misread) => {
                covered += shown_at(&case, pair[1].time) - shown_at(&case, pair[0].time);
            }
            Increase::Joules(joules) => covered += joules,
            _ => {}
        }
    }
    assert_eq!(samples[0].time, first.0, "seed {seed}");
    assert!(samples[samples.len() - 1].time == last.0, "seed {seed}: ends early");
    // A reset hides the joules that the counter had not shown before it.
    let hidden = case.update_joules * (1.0 + case.resets.len() as f64);
    assert!(
        counted >= covered - hidden - tick,
        "seed {seed}: {counted} J were counted in times in which the counter rose by {covered} J"
    );
    // A live caller cannot wait for long.
    let mut live = counter(&case);
    let mut samples = Vec::new();
    let mut counted = 0.0;
    let mut random = Random(seed);
    let mut patience = random.between(0, 2 * TICKS_PER_SECOND);
    for (tag, (time, raw, shown, _)) in case.readings.iter().enumerate() {
        live.read_u64(*time, *raw, tag as u64);
        if live.undecided_since().is_some_and(|since| since + patience < *time) {
            live.decide_before(time - patience);
            patience = random.between(0, 2 * TICKS_PER_SECOND);
        }
        samples.clear();
        take(&mut live, &mut samples);
        counted += joules_of(&samples);
        assert!(
            counted <= shown - first.2 + case.update_joules + tick,
            "seed {seed}: live, {counted} J were counted when {} J had been spent",
            shown - first.2
        );
    }
    live.end();
    samples.clear();
    take(&mut live, &mut samples);
    assert!(
        counted + joules_of(&samples) <= spent + case.update_joules + tick,
        "seed {seed}: live, at the end"
    );
}

#[test]
fn no_misreading_becomes_joules() {
    if let Ok(seed) = std::env::var("AMPERE_TEST_SEED") {
        return check(seed.parse().expect("AMPERE_TEST_SEED is a number"));
    }
    let number = |name: &str, default| std::env::var(name).map_or(default, |n| n.parse().expect("a number"));
    let first = number("AMPERE_TEST_FIRST_SEED", 0);
    (first..first + number("AMPERE_TEST_SEEDS", 300)).for_each(check);
}
