//! Counters that do what they should not: timelines of readings, each beside what it is to mean.

use ampere_attribution::{Counter, CounterFigures, CounterKind, Engine, Increase, Limits, Policy, Sharing};
use ampere_model::RegionRef;

const JOULES: CounterKind = CounterKind::Cumulative { joules_per_unit: 1.0, wraps_at: None };
const WATTS: CounterKind = CounterKind::Instantaneous { watts_per_unit: 1.0 };
/// Times below are in tenths of a second.
const LIMITS: Limits =
    Limits { ticks_per_second: 10.0, watts_max: 1000.0, gap: Some(4.0), stale_seconds: 3.0 };

fn read(counter: &mut Counter, time: u64, value: &str) -> Increase {
    if let Ok(value) = value.parse() {
        counter.read_u64(time, value)
    } else if let Ok(value) = value.parse() {
        counter.read_i64(time, value)
    } else {
        counter.read_f64(time, value.parse().expect("a number"))
    }
}

fn words(increase: Increase) -> String {
    match increase {
        Increase::First => "first".to_owned(),
        Increase::Joules(joules) => format!("+{joules}"),
        Increase::Lost(joules) => format!("lost {joules}"),
        Increase::Reset => "reset".to_owned(),
        Increase::Unusable => "unusable".to_owned(),
    }
}

/// Each line: time, reading, what it means. A rank runs all the while, so what is charged and lost must add up as well.
#[track_caller]
fn check(kind: CounterKind, limits: Limits, timeline: &str) -> CounterFigures {
    let mut counter = Counter::new(kind, limits);
    let mut engine = Engine::new();
    let view = engine.add_view(Policy::TimeSliced, Sharing::Shared);
    let rank = engine.add_location();
    engine.bind(view, rank);
    engine.enter(rank, 0, RegionRef(0));
    let (mut seen, mut wanted, mut charged, mut lost) = (Vec::new(), Vec::new(), 0.0, 0.0);
    for line in timeline.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let columns: Vec<&str> = line.split_whitespace().collect();
        let (time, value, meaning) = (columns[0], columns[1], columns[2..].join(" "));
        let increase = read(&mut counter, time.parse().expect("a time"), value);
        match increase {
            Increase::Joules(joules) => charged += joules,
            Increase::Lost(joules) => lost += joules,
            _ => {}
        }
        engine.sample(view, time.parse().expect("a time"), increase);
        seen.push(format!("{time} {value} {}", words(increase)));
        wanted.push(format!("{time} {value} {meaning}"));
    }
    assert_eq!(seen, wanted);
    let totals = engine.totals(view);
    assert_eq!((totals.attributed_joules, totals.lost_joules, totals.idle_joules), (charged, lost, 0.0));
    assert_eq!((totals.total_joules, totals.conservation_error_joules), (charged + lost, 0.0));
    let count = |word: &str| seen.iter().filter(|line| line.ends_with(word)).count() as u64;
    assert_eq!((totals.counter_resets, totals.unusable_samples), (count("reset"), count("unusable")));
    assert_eq!(totals.samples, seen.len() as u64 - count("unusable"));
    counter.figures()
}

#[test]
fn a_decrease_is_a_reset_and_never_a_wrap() {
    check(
        JOULES,
        LIMITS,
        "0  1000  first
         10 1100  +100
         20 10    reset
         30 15    +5",
    );
}

#[test]
fn one_reading_that_is_too_low_adds_nothing() {
    check(
        JOULES,
        Limits::none(10.0),
        "0  1000000 first
         10 1000010 +10
         20 0       reset
         30 1000030 lost 20
         40 1000040 +10",
    );
}

/// It rises as before: it was there before, too, for it had not counted for long.
#[test]
fn a_counter_that_is_soon_where_it_was_can_have_been_reset() {
    check(
        JOULES,
        LIMITS,
        "0  0   first
         10 100 +100
         20 0   reset
         30 150 +150
         40 250 +100",
    );
}

#[test]
fn a_negative_reading_is_an_error_code() {
    check(
        JOULES,
        LIMITS,
        "0  1000  first
         10 -1    unusable
         20 1100  +100
         30 -0.5  unusable
         40 1150  +50",
    );
}

#[test]
fn a_counter_may_begin_below_zero() {
    check(
        JOULES,
        LIMITS,
        "0  -100  first
         10 -50   +50
         20 20    +70",
    );
}

#[test]
fn what_is_no_number_or_out_of_order_is_left_out() {
    let figures = check(
        JOULES,
        LIMITS,
        "5  10   first
         6  NaN  unusable
         7  inf  unusable
         4  20   unusable
         9  12   +2
         9  13   +1",
    );
    assert_eq!((figures.first, figures.last), (Some(5), Some(9)));
}

#[test]
fn a_counter_that_declares_its_range_wraps() {
    let rapl = CounterKind::Cumulative { joules_per_unit: 1.0, wraps_at: Some(5000) };
    let figures = check(
        rapl,
        LIMITS,
        "0  4900 first
         10 4950 +50
         20 30   +80
         30 4600 unusable
         40 4700 reset
         50 4990 +290
         60 0    +10",
    );
    assert_eq!(figures.wraps, 2);
    let halves = CounterKind::Cumulative { joules_per_unit: 0.5, wraps_at: Some(1 << 32) };
    check(halves, LIMITS, "0 4294967290 first\n 10 4 +5");
}

#[test]
fn a_wrap_that_could_not_be_is_a_reset() {
    let rapl = CounterKind::Cumulative { joules_per_unit: 1.0, wraps_at: Some(50_000) };
    let figures = check(rapl, LIMITS, "0 10000 first\n 10 20 reset\n 20 40 +20");
    assert_eq!(figures.wraps, 0);
    // A reading beyond the range shows that the range is another one.
    check(rapl, Limits::none(10.0), "0 50000 first\n 10 50001 +1\n 20 3 reset");
    check(rapl, Limits::none(10.0), "0 50000 first\n 10 3 reset");
    check(rapl, Limits::none(10.0), "0 49999 first\n 10 3 +4");
}

#[test]
fn a_first_reading_of_zero_is_no_start() {
    let figures = check(
        JOULES,
        LIMITS,
        "0  0      first
         10 900000 first
         20 900100 +100",
    );
    assert_eq!(figures.first, Some(0));
    // A counter that does start at 0, as fast as its device can go: 1000 W for its interval and a second more.
    check(JOULES, LIMITS, "0 0 first\n 10 2000 +2000");
    check(JOULES, LIMITS, "0 0 first\n 10 2001 first");
    // After a reset it may read 0 as well, and only a first 0 is no start.
    check(JOULES, LIMITS, "0 500 first\n 10 0 reset\n 20 900000 first\n 30 900001 +1");
    check(JOULES, LIMITS, "0 0 first\n 10 0 +0\n 20 900000 unusable\n 30 10 +10");
    check(JOULES, LIMITS, "0 1 first\n 10 900000 unusable\n 20 10 +9");
}

#[test]
fn an_impossible_step_is_left_out_unless_the_counter_goes_on_from_there() {
    check(
        JOULES,
        LIMITS,
        "0  100    first
         10 200    +100
         20 900000 unusable
         30 400    +200
         40 900000 unusable
         50 900100 reset
         60 900200 +100",
    );
    // Two that have nothing to do with each other, and one from before the last good one.
    check(
        JOULES,
        LIMITS,
        "0  100      first
         10 900000   unusable
         20 99000000 unusable
         30 300      +200
         40 900000   unusable",
    );
}

#[test]
fn power_is_held_until_the_next_sample() {
    let watts = CounterKind::Instantaneous { watts_per_unit: 1e-3 };
    check(
        watts,
        LIMITS,
        "0  2000    first
         5  8000    +1
         15 -3      unusable
         20 1000001 unusable
         25 1000000 +16
         30 0       +500
         40 7       +0",
    );
}

#[test]
fn what_was_spent_in_a_gap_is_lost() {
    let usual = "0 0 first\n 4 1 +1\n 8 2 +1\n 12 3 +1\n 16 4 +1\n 20 5 +1\n";
    // Four times the usual 0.4 s, not more.
    assert_eq!(check(JOULES, LIMITS, &format!("{usual} 36 9 +4")).gaps, 0);
    let figures = check(JOULES, LIMITS, &format!("{usual} 37 9 lost 4\n 41 10 +1"));
    assert_eq!((figures.gaps, figures.longest_interval_ticks), (1, 17));
    // Unless it is asked for, nothing is a gap, and before five intervals nothing is usual.
    let off = Limits { gap: None, ..LIMITS };
    assert_eq!(check(JOULES, off, &format!("{usual} 370 9 +4")).gaps, 0);
    check(JOULES, LIMITS, "0 0 first\n 4 1 +1\n 8 2 +1\n 12 3 +1\n 16 4 +1\n 370 9 +5");
    // Less than a second is none either.
    let fast = "0 0 first\n 1 1 +1\n 2 2 +1\n 3 3 +1\n 4 4 +1\n 5 5 +1\n";
    check(JOULES, LIMITS, &format!("{fast} 15 9 +4"));
    check(JOULES, LIMITS, &format!("{fast} 16 9 lost 4"));
    // Of a power too: the last one known would be held for too long.
    check(WATTS, LIMITS, "0 5 first\n 4 5 +2\n 8 5 +2\n 12 5 +2\n 16 5 +2\n 20 5 +2\n 40 5 lost 10");
}

#[test]
fn the_usual_interval_is_that_of_the_last_ones() {
    // Slow for long, then fast for 15: two seconds are a gap now.
    let mut timeline = "0 0 first\n".to_owned();
    let mut time = 0;
    for step in [20; 20].into_iter().chain([2; 15]) {
        time += step;
        timeline += &format!("{time} 0 +0\n");
    }
    check(JOULES, LIMITS, &format!("{timeline} {} 1 lost 1", time + 20));
    let mut half = "0 0 first\n".to_owned();
    let mut time = 0;
    for step in [20; 20].into_iter().chain([2; 7]) {
        time += step;
        half += &format!("{time} 0 +0\n");
    }
    check(JOULES, LIMITS, &format!("{half} {} 1 +1", time + 20));
}

#[test]
fn a_counter_that_stands_still_is_stale() {
    let figures = check(JOULES, LIMITS, "0 7 first\n 10 9 +2\n 20 9 +0\n 39 9 +0");
    assert_eq!((figures.longest_still_ticks, figures.stale), (29, false));
    let figures = check(JOULES, LIMITS, "0 7 first\n 10 9 +2\n 20 9 +0\n 40 9 +0");
    assert_eq!((figures.longest_still_ticks, figures.stale), (30, true));
    let figures = check(JOULES, LIMITS, "0 7 first\n 10 9 +2\n 40 9 +0\n 41 10 +1\n 42 10 +0");
    assert_eq!((figures.longest_still_ticks, figures.stale), (30, false));
    // From its first reading on, and anew after a reset.
    let figures = check(JOULES, LIMITS, "5 7 first\n 35 7 +0");
    assert_eq!((figures.longest_still_ticks, figures.stale), (30, true));
    let figures = check(JOULES, LIMITS, "0 7 first\n 40 7 +0\n 41 2 reset\n 42 2 +0");
    assert_eq!((figures.longest_still_ticks, figures.stale), (40, false));
    let figures = check(JOULES, LIMITS, "0 7 first\n 40 7 +0\n 41 2 reset");
    assert!(!figures.stale, "a reset is a change");
}

#[test]
fn large_counters_keep_their_last_digit() {
    let kind = CounterKind::Cumulative { joules_per_unit: 1e-9, wraps_at: None };
    let mut counter = Counter::new(kind, Limits::none(1.0));
    assert_eq!(counter.read_u64(1, u64::MAX - 3), Increase::First);
    assert_eq!(counter.read_u64(2, u64::MAX - 1), Increase::Joules(2e-9));
    assert_eq!(counter.read_i64(3, i64::MAX), Increase::Reset);
    assert_eq!(counter.figures().longest_still_ticks, 0);
}

/// A device that is there only for a part of the run: what was spent before and after is nobody's, and not unknown.
#[test]
fn a_device_appears_late_and_goes_early() {
    let mut engine = Engine::new();
    let rank = engine.add_location();
    engine.enter(rank, 0, RegionRef(0));
    engine.enter(rank, 100, RegionRef(1));
    let view = engine.add_view(Policy::TimeSliced, Sharing::Shared);
    engine.bind(view, rank);
    engine.bind(view, rank);
    engine.sample(view, 200, Increase::First);
    engine.leave(rank, 205);
    engine.sample(view, 210, Increase::Joules(10.0));
    engine.leave(rank, 5000);
    let report = engine.report(view);
    let rows: Vec<_> = report.callpaths.iter().map(|r| (r.path.len(), r.exclusive_joules)).collect();
    assert_eq!(rows, [(1, 5.0), (2, 5.0)]);
    assert_eq!((report.totals.total_joules, report.totals.unknown_ticks), (10.0, 0));
    assert_eq!(report.totals.idle_joules, 0.0);
}
