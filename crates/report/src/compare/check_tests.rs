//! Tests of the checks of a comparison, and of the formats that show them.

use super::check::{CheckError, Finding, Wanted};
use super::{Comparison, Form, Named, Per};
use crate::tests::{HOSTILE, active_summary, varied};
use ampere_figures::summary::Work;

fn groups(first: &[f64], other: &[f64]) -> Vec<Vec<Named>> {
    [first, other].map(|group| group.iter().map(|more| varied("r", 2, *more)).collect()).into()
}

fn wanted(metric: &str, allowed_percent: f64) -> Wanted<'_> {
    Wanted { metric, region: None, allowed_percent }
}

fn checked(groups: Vec<Vec<Named>>, wanted: &Wanted) -> Result<(Finding, String), String> {
    let mut comparison = Comparison::of(groups, Per::Run);
    let checked = comparison.check(wanted).map(|checked| (checked.finding, checked.words.clone()));
    checked.map_err(|why| why.to_string())
}

#[test]
fn a_rise_counts_only_if_its_whole_range_is_above_the_limit() {
    const FIRST: [f64; 3] = [0.0, 0.1, 0.2]; // 10.1 J on average
    for (other, finding, words) in [
        (
            [0.9, 1.0, 1.1],
            Finding::Exceeded,
            "joules rose by 8.9 % (95 % range +6.6 to +11.3 %), more than the 5 % allowed",
        ),
        (
            [0.0, 0.8, 1.6],
            Finding::Unknown,
            "cannot tell whether joules rose by more than the 5 % allowed: joules rose by 6.9 % (95 % range -12.2 to +26.2 %); more runs narrow the range",
        ),
        (
            [0.1, 0.2, 0.3],
            Finding::Allowed,
            "joules rose by 1.0 % (95 % range -1.2 to +3.3 %), not more than the 5 % allowed",
        ),
        (
            [-3.1, -3.0, -2.9],
            Finding::Allowed,
            "joules fell by 30.7 % (95 % range -32.7 to -28.6 %), not more than the 5 % allowed",
        ),
    ] {
        assert_eq!(checked(groups(&FIRST, &other), &wanted("joules", 5.0)), Ok((finding, words.to_owned())));
    }
    // The noise of a single run is not known, so the change itself is compared with the limit.
    let single = |more: f64, allowed| checked(groups(&[0.0], &[more]), &wanted("joules", allowed));
    let words = "joules rose by 10.0 % (a single run shows no noise, so there is no range), more than the 5 % allowed";
    assert_eq!(single(1.0, 5.0), Ok((Finding::Exceeded, words.to_owned())));
    assert_eq!(single(1.0, 10.5).map(|of| of.0), Ok(Finding::Allowed));
    let words = "joules stayed the same (a single run shows no noise, so there is no range), not more than the 0 % allowed";
    assert_eq!(single(0.0, 0.0), Ok((Finding::Allowed, words.to_owned())));
}

/// If the groups are exchanged, a fall becomes a rise by a different percentage, and the range of the ratio is inverted. A check
/// decides by the range that it shows.
#[test]
fn a_large_change_has_the_range_of_the_ratio_of_the_means() {
    let (less, more) = ([0.0, 1.0, 2.0, 1.0], [16.0, 18.0, 20.0, 18.0]); // 11 and 28 J on average
    let words = "joules fell by 60.7 % (95 % range -65.1 to -55.9 %), not more than the 0 % allowed";
    assert_eq!(
        checked(groups(&more, &less), &wanted("joules", 0.0)),
        Ok((Finding::Allowed, words.to_owned()))
    );
    // By the difference alone, the rise would be at least 132 %.
    let words = "cannot tell whether joules rose by more than the 130 % allowed: joules rose by 154.5 % (95 % range +127 to +187 %); more runs narrow the range";
    assert_eq!(
        checked(groups(&less, &more), &wanted("joules", 130.0)),
        Ok((Finding::Unknown, words.to_owned()))
    );
    let many = checked(groups(&less, &[160.0, 165.0, 170.0]), &wanted("joules", 5.0)).unwrap();
    assert!(
        many.1.starts_with("joules rose to 16 times as much (95 % range x 14 to x 18), more"),
        "{many:?}"
    );
    // Only one of the first group's three runs has the function, so its mean is not clearly above 0.
    let mut rare = groups(&[0.0, 0.0, 0.0], &[1.0, 1.1, 1.2]);
    for run in &mut rare[0][1..] {
        for view in run.summary.devices.iter_mut().flat_map(|device| &mut device.views) {
            view.regions.retain(|row| &*row.region != "work");
        }
    }
    let table = String::from_utf8(Comparison::of(rare, Per::Run).render(Form::Table)).unwrap();
    let row = table.lines().find(|line| line.ends_with("  work")).unwrap();
    assert!(row.contains(" ≥ "), "{table}");
    assert!(table.contains("(Fieller), without an end if the first mean is not clearly above 0."), "{table}");
}

#[test]
fn a_region_and_a_unit_of_work_are_checked_like_the_run() {
    let region = |metric, region| Wanted { metric, region: Some(region), allowed_percent: 5.0 };
    let runs = || groups(&[0.0, 0.1, 0.2], &[0.9, 1.0, 1.1]);
    let words = "joules of work rose by 29.0 % (95 % range +20.7 to +38.1 %), more than the 5 % allowed";
    assert_eq!(checked(runs(), &region("joules", "work")), Ok((Finding::Exceeded, words.to_owned())));
    assert_eq!(checked(runs(), &region("seconds", "work")).map(|of| of.0), Ok(Finding::Allowed));
    // The region exists only in the second group.
    let mut without = groups(&[0.0, 0.1, 0.2], &[0.0, 0.1, 0.2]);
    for run in &mut without[0] {
        for view in run.summary.devices.iter_mut().flat_map(|device| &mut device.views) {
            view.regions.retain(|row| &*row.region != "work");
        }
    }
    let words = "joules of work rose from 0 to 3.10 (95 % range 2.85 to 3.35), more than the 5 % allowed";
    assert_eq!(checked(without, &region("joules", "work")), Ok((Finding::Exceeded, words.to_owned())));
    let with_work = |units: [f64; 2]| {
        let mut groups = groups(&[0.0], &[0.0]);
        for (group, units) in groups.iter_mut().zip(units) {
            let joules_per_unit = Some(10.0 / units);
            group[0].summary.run.work = vec![Work { name: "steps".to_owned(), units, joules_per_unit }];
        }
        groups
    };
    let words = "joules per steps rose by 25.0 % (a single run shows no noise, so there is no range), more than the 5 % allowed";
    assert_eq!(
        checked(with_work([100.0, 80.0]), &wanted("steps", 5.0)),
        Ok((Finding::Exceeded, words.to_owned()))
    );
    let table = Comparison::of(with_work([1e9, 8e8]), Per::Run).render(Form::Table);
    let table = String::from_utf8(table).unwrap();
    assert!(table.contains("\njoules per unit by unit of work\n"), "{table}");
    assert!(table.contains("1.000e-8   1.250e-8  +25.0 %  steps\n"), "{table}");
}

#[test]
fn a_figure_that_cannot_be_checked_is_named() {
    let runs = || groups(&[0.0], &[1.0]);
    let region = |metric, region| Wanted { metric, region: Some(region), allowed_percent: 5.0 };
    assert_eq!(
        checked(runs(), &wanted("dynamic", 5.0)),
        Err("not all of these runs have dynamic joules: name another --metric".to_owned())
    );
    assert_eq!(
        checked(runs(), &wanted("stepz", 5.0)),
        Err("not all of these runs count \"stepz\" as work: --metric is joules, dynamic, seconds".to_owned())
    );
    assert_eq!(
        checked(runs(), &region("joules", "absent")),
        Err("none of these runs has a region \"absent\": ampere compare -f csv lists all".to_owned())
    );
    assert_eq!(
        checked(runs(), &region("steps", "work")),
        Err("work is counted for the run as a whole, so \"steps\" has no figure of a region".to_owned())
    );
    let mut estimated = runs();
    estimated[1][0].summary.run.energy = "estimated".to_owned();
    let mut comparison = Comparison::of(estimated, Per::Run);
    let refused = comparison.check(&wanted("joules", 5.0)).err();
    assert!(matches!(refused, Some(CheckError::Incomparable(_))), "{refused:?}");
    assert!(comparison.check(&wanted("seconds", 5.0)).is_ok(), "time is of one kind");
    // Dynamic joules are checked if all runs have them.
    let active = |baseline: &str| vec![Named { name: "r".to_owned(), summary: active_summary(baseline) }];
    let mut comparison = Comparison::of(vec![active(crate::tests::BASELINE), active("")], Per::Run);
    assert_eq!(comparison.check(&wanted("dynamic", 5.0)).unwrap().finding, Finding::Exceeded);
    let of_work = region("dynamic", "work");
    assert!(comparison.check(&of_work).unwrap().words.starts_with("dynamic joules of work rose by 60.0 %"));
}

#[test]
fn markdown_has_the_checks_first_and_no_markup_of_names() {
    let mut comparison = Comparison::of(groups(&[0.0, 0.1, 0.2], &[0.9, 1.0, 1.1]), Per::Run);
    comparison.check(&wanted("joules", 5.0)).unwrap();
    comparison.check(&Wanted { metric: "joules", region: Some(HOSTILE), allowed_percent: 5.0 }).unwrap();
    let text = String::from_utf8(comparison.render(Form::Markdown)).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines[0],
        "❌ **joules rose by 8.9 % (95 % range +6.6 to +11.3 %), more than the 5 % allowed**"
    );
    assert!(lines[2].starts_with("✅ **joules of \\<script\\>alert(1)\\</script\\>"), "{text}");
    assert_eq!(lines[4], "energy +8.9 %; work +29 %");
    assert_eq!(lines[6..8], ["| the runs | 1 | 2 | change |", "| --- | --: | --: | --: |"]);
    assert!(lines.contains(&"| joules | 10.10 | 11.00 | +8.9 % (+6.6..+11.3 %) |"), "{text}");
    assert!(lines.contains(&"| `work` | 3.100 | 4.000 | +29.0 % (+21..+38 %) |"), "{text}");
    assert!(text.ends_with("do so by chance (Benjamini and Hochberg)\n"), "{text}");
}

#[test]
fn junit_has_a_test_case_for_each_check() {
    let mut comparison = Comparison::of(groups(&[0.0, 0.1, 0.2], &[0.9, 1.0, 1.1]), Per::Run);
    comparison.check(&wanted("joules", 5.0)).unwrap();
    comparison.check(&wanted("seconds", 5.0)).unwrap();
    let text = String::from_utf8(comparison.render(Form::Junit)).unwrap();
    expect_test::expect![[r#"
        <?xml version="1.0" encoding="UTF-8"?>
        <testsuites name="ampere compare" tests="2" failures="1" errors="0" skipped="0">
          <testsuite name="r r r -- r r r" tests="2" failures="1" errors="0" skipped="0">
            <testcase classname="ampere.compare" name="joules at most +5 %"><failure type="exceeded" message="joules rose by 8.9 % (95 % range +6.6 to +11.3 %), more than the 5 % allowed"/></testcase>
            <testcase classname="ampere.compare" name="seconds at most +5 %"><system-out>seconds stayed the same (95 % range 0.0 to 0.0 %), not more than the 5 % allowed</system-out></testcase>
            <system-out>energy +8.9 %; work +29 %</system-out>
          </testsuite>
        </testsuites>
    "#]].assert_eq(&text);
}
