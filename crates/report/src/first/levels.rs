//! Finds out when the power of a kernel changed while it ran.

use ampere_figures::lanes::NodeLanes;
use ampere_figures::summary::{Device, Summary};
use ampere_timeline::curve::PowerCurve;
use std::ops::Range;

/// The minimum percentage of each step that the kernel must have taken.
const PERCENT_MIN: u8 = 90;
/// The minimum number of steps of the power curve before the change, and after it.
const STEPS_MIN: usize = 3;
/// Two levels explain the power if they leave at most this fraction of its variance unexplained.
const UNEXPLAINED_MAX: f64 = 0.5;

/// The mean power of a kernel's only run in its first seconds, and after that.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Levels {
    pub before: f64,
    pub seconds: f64,
    pub after: f64,
}

/// Returns the two levels of power of a kernel on a device. `None` if the kernel ran several times, or if two levels do not
/// explain its power.
pub fn of(summary: &Summary, device: &Device, kernel: &str) -> Option<Levels> {
    let curve = device.power.as_ref()?;
    let node = summary.lanes.iter().find(|node| node.node == device.node)?;
    let watts = curve.watts.get(steps_of_run(node, curve, &device.name, kernel)?)?;
    let sums = |watts: &[f64]| {
        watts.iter().fold((0.0, 0.0), |(sum, squares), watts| (sum + watts, squares + watts * watts))
    };
    let squared_deviations = |(sum, squares): (f64, f64), count: usize| squares - sum * sum / count as f64;
    let (all, mut first) = (sums(watts), (0.0, 0.0));
    let mut best: Option<(f64, usize)> = None;
    for at in 1..watts.len().checked_sub(STEPS_MIN - 1)? {
        first = (first.0 + watts[at - 1], first.1 + watts[at - 1] * watts[at - 1]);
        let rest = (all.0 - first.0, all.1 - first.1);
        let residual = squared_deviations(first, at) + squared_deviations(rest, watts.len() - at);
        if at >= STEPS_MIN && best.is_none_or(|(least, _)| residual < least) {
            best = Some((residual, at));
        }
    }
    let (residual, at) = best?;
    let mean = |watts: &[f64]| watts.iter().sum::<f64>() / watts.len() as f64;
    let levels = Levels {
        before: mean(&watts[..at]),
        seconds: at as f64 * curve.step_seconds,
        after: mean(&watts[at..]),
    };
    (residual <= UNEXPLAINED_MAX * squared_deviations(all, watts.len())).then_some(levels)
}

/// Returns the steps of the power curve that contain the kernel's only run.
fn steps_of_run(node: &NodeLanes, curve: &PowerCurve, device: &str, kernel: &str) -> Option<Range<usize>> {
    // A lane of kernels belongs to one GPU, whose name is in `first`.
    let lane = node.lanes.iter().find(|lane| lane.view == "kernels" && lane.first == device)?;
    let number = node.names.iter().position(|name| **name == *kernel)?;
    let is_own = |step: &usize| lane.region[*step] == Some(number as u32);
    let steps = 0..lane.region.len();
    let (first, last) = (steps.clone().find(is_own)?, steps.rev().find(is_own)?);
    // The first step and the last one may have other kernels, too.
    let is_whole = |step: usize| is_own(&step) && lane.percent[step] >= PERCENT_MIN;
    if !(first + 1..last).all(is_whole) {
        return None;
    }
    let place = |step: usize| (lane.begin + step as f64 * lane.step) / curve.step_seconds;
    Some(place(first).ceil().max(0.0) as usize..place(last + 1).floor().max(0.0) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ampere_figures::lanes::Lane;

    /// Returns the levels of a kernel that starts at the third step, on a device with this power.
    fn levels(watts: &[f64], percent: &[u8]) -> Option<Levels> {
        let mut summary = crate::tests::summary();
        let device = &mut summary.devices[0];
        device.power =
            Some(PowerCurve { step_seconds: 0.1, watts: [&[50.0; 2], watts, &[50.0; 2]].concat() });
        let lane = Lane {
            view: "kernels".to_owned(),
            first: device.name.clone(),
            last: device.name.clone(),
            begin: 0.2,
            step: 0.1,
            region: percent.iter().map(|percent| (*percent > 0).then_some(0)).collect(),
            percent: percent.to_vec(),
        };
        let names = vec!["heavy".into()];
        summary.lanes = vec![NodeLanes { node: device.node.clone(), names, lanes: vec![lane] }];
        of(&summary, &summary.devices[0], "heavy")
    }

    #[test]
    fn the_time_at_which_the_power_changes_is_found_within_noise_and_dips() {
        let watts = [152.0, 148.0, 151.0, 149.0, 498.0, 300.0, 505.0, 499.0, 503.0, 500.0, 495.0, 500.0];
        let found = levels(&watts, &[100; 12]).expect("two levels");
        assert!((found.seconds - 0.4).abs() < 1e-9, "{found:?}");
        assert!((found.before - 150.0).abs() < 1e-9 && (found.after - 475.0).abs() < 1e-9, "{found:?}");
    }

    #[test]
    fn no_levels_are_reported_that_do_not_explain_the_power() {
        assert_eq!(levels(&[100.0, 500.0].repeat(8), &[100; 16]), None, "it alternates");
        assert_eq!(levels(&[100.0, 500.0, 500.0, 500.0], &[100; 4]), None, "it is too short");
        let twice = [&[100; 4][..], &[0; 4], &[100; 4]].concat();
        assert_eq!(levels(&[[100.0; 4], [50.0; 4], [500.0; 4]].concat(), &twice), None, "it ran twice");
    }
}
