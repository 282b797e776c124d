//! Counters that misbehave: timelines of readings, and the samples that are made of them.

use ampere_attribution::{Counter, CounterFigures, CounterKind, Engine, Increase, Limits, Policy, Sharing};
use ampere_model::RegionRef;

const JOULES: CounterKind = CounterKind::Cumulative { joules_per_unit: 1.0, wraps_at: None };
const WATTS: CounterKind = CounterKind::Instantaneous { watts_per_unit: 1.0, is_of_time_before: false };
/// Times below are in tenths of a second.
const LIMITS: Limits =
    Limits { ticks_per_second: 10.0, watts_max: 1000.0, gap: Some(4.0), stale_seconds: 3.0 };

fn read(counter: &mut Counter, time: u64, value: &str) {
    if let Ok(value) = value.parse() {
        counter.read_u64(time, value, 0);
    } else if let Ok(value) = value.parse() {
        counter.read_i64(time, value, 0);
    } else {
        counter.read_f64(time, value.parse().expect("a number"), 0);
    }
}

fn words(increase: Increase) -> String {
    match increase {
        Increase::First => "first".to_owned(),
        Increase::Joules(joules) => format!("+{joules}"),
        Increase::Lost(joules) => format!("lost {joules}"),
        Increase::Reset => "reset".to_owned(),
    }
}

/// `readings` and `samples`: "time value" and "time meaning", separated by commas or lines. A rank runs all the time, so what is
/// charged and lost must add up as well.
#[track_caller]
fn check(kind: CounterKind, limits: Limits, readings: &str, samples: &str) -> CounterFigures {
    let parts = |text: &str| -> Vec<String> {
        let parts = text.split([',', '\n']).map(|part| part.split_whitespace().collect::<Vec<_>>().join(" "));
        parts.filter(|part| !part.is_empty()).collect()
    };
    let mut counter = Counter::new(kind, limits);
    for reading in parts(readings) {
        let (time, value) = reading.split_once(' ').expect("a time and a value");
        read(&mut counter, time.parse().expect("a time"), value);
    }
    counter.end();
    let mut engine = Engine::new();
    let view = engine.add_view(Policy::TimeSliced, Sharing::Shared);
    let rank = engine.add_location();
    engine.bind(view, rank);
    engine.enter(rank, 0, RegionRef(0));
    let mut seen = Vec::new();
    let mut charged = 0.0;
    let mut lost = 0.0;
    while let Some(sample) = counter.sample() {
        match sample.increase {
            Increase::Joules(joules) => charged += joules,
            Increase::Lost(joules) => lost += joules,
            _ => {}
        }
        engine.sample(view, sample.time, sample.increase);
        seen.push(format!("{} {}", sample.time, words(sample.increase)));
    }
    assert_eq!(seen, parts(samples));
    let totals = engine.totals(view);
    assert_eq!((totals.attributed_joules, totals.lost_joules, totals.idle_joules), (charged, lost, 0.0));
    assert_eq!((totals.total_joules, totals.conservation_error_joules), (charged + lost, 0.0));
    assert_eq!(totals.counter_resets, seen.iter().filter(|line| line.ends_with("reset")).count() as u64);
    counter.figures()
}

#[test]
fn a_counter_that_continues_from_below_was_reset() {
    let figures = check(
        JOULES,
        LIMITS,
        "0 1000, 10 1100, 20 10, 30 15, 40 20",
        "0 first, 10 +100, 20 reset, 30 +5, 40 +5",
    );
    assert_eq!(figures.misreadings, 0);
    // If only zeros follow, nothing more is known, and the counter need not have been reset.
    let figures = check(JOULES, LIMITS, "0 1000, 10 1100, 20 0, 30 0", "0 first, 10 +100, 30 first");
    assert_eq!(figures.misreadings, 2);
}

#[test]
fn zeros_in_the_middle_add_nothing() {
    for zeros in ["20 0", "20 0, 21 0, 22 0, 29 0"] {
        let figures = check(
            JOULES,
            LIMITS,
            &format!("0 1000000, 10 1000010, {zeros}, 30 1000030, 40 1000040"),
            "0 first, 10 +10, 30 +20, 40 +10",
        );
        assert_eq!(figures.misreadings, zeros.split(',').count() as u64);
    }
}

#[test]
fn a_first_zero_is_no_start() {
    // The step exceeds the greatest power.
    check(
        JOULES,
        LIMITS,
        "0 0, 10 900000, 20 900100, 30 900200, 40 900300",
        "0 first, 10 first, 20 +100, 30 +100, 40 +100",
    );
    // The step is possible, but no later step is nearly as large.
    check(JOULES, LIMITS, "0 0, 1 90, 2 93, 3 96, 13 99", "0 first, 1 first, 2 +3, 3 +3, 13 +3");
    // This counter does start at 0.
    check(JOULES, LIMITS, "0 0, 10 3, 20 6, 30 8", "0 first, 10 +3, 20 +3, 30 +2");
    check(JOULES, LIMITS, "0 0, 10 1000", "0 first, 10 +1000");
}

/// The value is possible for the counter, and so is the step from it to the next reading.
#[test]
fn a_low_reading_adds_nothing() {
    for low in ["1", "0.001", "450"] {
        let readings = |at: u64| match at {
            40 => format!("40 {low}"),
            _ => format!("{at} {}", 500 + at),
        };
        let readings: Vec<String> = (0..100).map(readings).collect();
        let step = |at: u64| format!("{at} +{}", if at == 41 { 2 } else { 1 });
        let steps: Vec<String> = (1..100).filter(|at| *at != 40).map(step).collect();
        let expected = format!("0 first, {}", steps.join(","));
        assert_eq!(check(JOULES, LIMITS, &readings.join(","), &expected).misreadings, 1);
    }
    // In the first case, the first reading is almost 0. In the second case, the burst is real.
    check(JOULES, LIMITS, "0 0.5, 1 90, 2 93, 3 96, 13 99", "0 first, 1 first, 2 +3, 3 +3, 13 +3");
    check(JOULES, LIMITS, "0 10, 1 100, 2 103, 3 106, 13 109", "0 first, 1 +90, 2 +3, 3 +3, 13 +3");
    // This counter was reset.
    let readings = "0 500, 1 510, 2 520, 3 1, 4 11, 5 21, 15 40";
    check(JOULES, LIMITS, readings, "0 first, 1 +10, 2 +10, 3 reset, 4 +10, 5 +10, 15 +19");
}

#[test]
fn high_readings_add_nothing() {
    let figures = check(
        JOULES,
        LIMITS,
        "0 100, 10 200, 20 900000, 21 18446744073709551615, 22 18446744073709551615, 30 400, 40 500",
        "0 first, 10 +100, 30 +200, 40 +100",
    );
    assert_eq!(figures.misreadings, 3);
    // Such a value is accepted neither as the first nor as the last one.
    check(
        JOULES,
        LIMITS,
        "0 900000, 10 100, 20 200, 30 300, 40 400, 50 900000",
        "0 first, 10 first, 20 +100, 30 +100, 40 +100, 50 first",
    );
    // A high value does not become possible because time passes.
    check(
        JOULES,
        LIMITS,
        "0 100, 1 120, 2 9000, 50 9000, 100 9000, 200 9000, 201 300, 202 320",
        "0 first, 1 +20, 201 +180, 202 +20",
    );
}

#[test]
fn a_rise_that_is_taken_back_counts_nothing() {
    let figures = check(JOULES, LIMITS, "0 100, 1 110, 2 150, 3 120, 4 130", "0 first, 1 +10, 3 +10, 4 +10");
    assert_eq!(figures.misreadings, 1);
    // A rise that another reading has confirmed is emitted. Nothing more is counted until the counter has reached it again.
    let mut counter = Counter::new(JOULES, LIMITS);
    for (tag, (time, value)) in
        [(0, 100), (1, 110), (2, 150), (3, 155), (4, 130), (5, 140), (6, 160)].into_iter().enumerate()
    {
        counter.read_u64(time, value, tag as u64);
    }
    counter.end();
    let joules = std::iter::from_fn(|| counter.sample()).map(|sample| match sample.increase {
        Increase::Joules(joules) => joules,
        _ => 0.0,
    });
    assert_eq!(joules.sum::<f64>(), 60.0);
    assert_eq!((counter.taken_back(), counter.is_revised()), (&[(1, 4)][..], true));
    // A second pass can exclude the readings that were taken back.
    let mut counter = Counter::new(JOULES, LIMITS);
    counter.exclude(vec![(1, 4)]);
    for (tag, (time, value)) in [(0, 100), (1, 110), (2, 150), (3, 155), (4, 130)].into_iter().enumerate() {
        counter.read_u64(time, value, tag as u64);
    }
    counter.end();
    let last = std::iter::from_fn(|| counter.sample()).last().map(|sample| (sample.time, sample.increase));
    assert_eq!(last, Some((4, Increase::Joules(20.0))));
}

#[test]
fn a_negative_reading_is_an_error_code() {
    let figures =
        check(JOULES, LIMITS, "0 1000, 10 -1, 20 1100, 30 -0.5, 40 1150", "0 first, 20 +100, 40 +50");
    assert_eq!(figures.misreadings, 2);
    check(JOULES, LIMITS, "0 -100, 10 -50, 20 20", "0 first, 10 +50, 20 +70");
}

#[test]
fn readings_that_are_no_numbers_or_out_of_order_are_ignored() {
    let figures = check(JOULES, LIMITS, "5 10, 6 NaN, 7 inf, 4 20, 9 12, 9 13", "5 first, 9 +2, 9 +1");
    assert_eq!((figures.first, figures.last, figures.misreadings), (Some(5), Some(9), 3));
    assert_eq!(figures.unordered, 1);
}

#[test]
fn a_counter_that_declares_its_range_wraps() {
    let rapl = |wraps_at| CounterKind::Cumulative { joules_per_unit: 1.0, wraps_at: Some(wraps_at) };
    let figures =
        check(rapl(5000), LIMITS, "0 4900, 10 4950, 20 30, 30 100", "0 first, 10 +50, 20 +80, 30 +70");
    assert_eq!((figures.wraps, figures.misreadings), (1, 0));
    // 64-bit nanojoules: a node of 3 kW reaches the end of the range after 71 days.
    let nanojoules = CounterKind::Cumulative { joules_per_unit: 1e-9, wraps_at: None };
    check(
        nanojoules,
        LIMITS,
        "0 18446744073709551600, 10 18446744073709551610, 20 10, 30 20",
        "0 first, 10 +0.00000001, 20 +0.000000016, 30 +0.00000001",
    );
    // A value beyond its range, or its last value after others, is a misreading.
    check(
        rapl(5000),
        LIMITS,
        "0 4000, 10 4010, 20 5500, 30 4030, 40 4040, 50 7, 60 4999, 70 4070, 80 4080",
        "0 first, 10 +10, 30 +20, 40 +10, 70 +30, 80 +10",
    );
    // The step from the middle of the range to its start was a reset.
    let figures =
        check(rapl(50_000), LIMITS, "0 10000, 10 10010, 20 20, 30 40", "0 first, 10 +10, 20 reset, 30 +20");
    assert_eq!(figures.wraps, 0);
    // In a minute at the greatest power it may have passed its range unseen, once or several times.
    check(rapl(50_000), LIMITS, "0 100, 10 200, 810 400, 820 500", "0 first, 10 +100, 820 first");
}

#[test]
fn power_is_held_until_the_next_sample() {
    let watts = CounterKind::Instantaneous { watts_per_unit: 1e-3, is_of_time_before: false };
    let readings = "0 2000, 5 8000, 15 -3, 20 1000001, 25 1000000, 30 0, 40 7";
    let figures = check(watts, LIMITS, readings, "0 first, 5 +1, 25 +16, 30 +500, 40 +0");
    assert_eq!(figures.misreadings, 2);
    let before = CounterKind::Instantaneous { watts_per_unit: 1e-3, is_of_time_before: true };
    check(before, LIMITS, "0 2000, 5 8000, 15 1000", "0 first, 5 +4, 15 +1");
}

#[test]
fn joules_of_a_gap_are_lost() {
    let usual = "0 1, 4 2, 8 3, 12 4, 16 5, 20 6";
    let steps = "0 first, 4 +1, 8 +1, 12 +1, 16 +1, 20 +1";
    let with = |more: &str, steps_more: &str, limits: Limits| {
        check(JOULES, limits, &format!("{usual}, {more}"), &format!("{steps}, {steps_more}"))
    };
    // The limit is four times the usual 0.4 s.
    assert_eq!(with("36 10", "36 +4", LIMITS).gaps, 0);
    let figures = with("37 10, 41 11", "37 lost 4, 41 +1", LIMITS);
    assert_eq!((figures.gaps, figures.longest_interval_ticks), (1, 17));
    // Without a setting nothing is a gap, and with fewer than five intervals no length is the usual one.
    assert_eq!(with("370 10", "370 +4", Limits { gap: None, ..LIMITS }).gaps, 0);
    check(JOULES, LIMITS, "0 1, 4 2, 8 3, 370 9", "0 first, 4 +1, 8 +1, 370 +6");
    // Less than a second is not a gap either.
    let fast = "0 1, 1 2, 2 3, 3 4, 4 5, 5 6";
    let steps = "0 first, 1 +1, 2 +1, 3 +1, 4 +1, 5 +1";
    check(JOULES, LIMITS, &format!("{fast}, 15 10"), &format!("{steps}, 15 +4"));
    check(JOULES, LIMITS, &format!("{fast}, 16 10"), &format!("{steps}, 16 lost 4"));
    // This holds for a power, too: the last known one would be held for too long.
    check(
        WATTS,
        LIMITS,
        "0 5, 4 5, 8 5, 12 5, 16 5, 20 5, 40 5",
        "0 first, 4 +2, 8 +2, 12 +2, 16 +2, 20 +2, 40 lost 10",
    );
}

#[test]
fn a_counter_that_does_not_change_is_stale() {
    let figures = |readings: &str| {
        let mut counter = Counter::new(JOULES, LIMITS);
        for reading in readings.split(", ") {
            let (time, value) = reading.split_once(' ').expect("a time and a value");
            read(&mut counter, time.parse().expect("a time"), value);
        }
        (counter.figures().longest_still_ticks, counter.figures().stale)
    };
    assert_eq!(figures("0 7, 10 9, 20 9, 39 9"), (29, false));
    assert_eq!(figures("0 7, 10 9, 20 9, 40 9"), (30, true));
    assert_eq!(figures("0 7, 10 9, 40 9, 41 10, 42 10"), (30, false));
    assert_eq!(figures("5 7, 35 7"), (30, true), "from its first reading on");
}

#[test]
fn large_counters_keep_their_last_digit() {
    let kind = CounterKind::Cumulative { joules_per_unit: 1e-9, wraps_at: None };
    let figures = check(
        kind,
        Limits::none(1.0),
        "1 18446744073709551608, 2 18446744073709551610",
        "1 first, 2 +0.000000002",
    );
    assert_eq!(figures.longest_still_ticks, 0);
}

/// The device exists only for a part of the run: the joules spent before and after are charged to no rank, and do not count as
/// unknown.
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
