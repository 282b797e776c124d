//! Computes means of several runs, and the interval of the difference of two means, by Welch's t-test, which does not assume that
//! both groups have the same variance.

use statrs::distribution::{ContinuousCDF, StudentsT};

/// The confidence level of intervals.
pub const CONFIDENCE: f64 = 0.95;

/// The figure of each run of a group.
pub struct Sample {
    pub values: Vec<f64>,
    pub mean: f64,
    /// The sample's standard deviation; `None` for one run.
    pub deviation: Option<f64>,
}

impl Sample {
    pub fn of(values: Vec<f64>) -> Sample {
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let deviation = (values.len() > 1).then(|| (squares / (count - 1.0)).sqrt());
        Sample { values, mean, deviation }
    }

    /// Returns the variance of the mean, and the degrees of freedom.
    fn of_mean(&self) -> Option<(f64, f64)> {
        let count = self.values.len() as f64;
        Some((self.deviation?.powi(2) / count, count - 1.0))
    }
}

/// Returns the mean of these values, and half of its interval by Student's t; `None` for one value.
pub fn interval_of_mean(values: &[f64]) -> (f64, Option<f64>) {
    let sample = Sample::of(values.to_vec());
    let half = sample.of_mean().and_then(|(variance, freedom)| {
        let t = StudentsT::new(0.0, 1.0, freedom).ok()?;
        Some(t.inverse_cdf(0.5 + CONFIDENCE / 2.0) * variance.sqrt())
    });
    (sample.mean, half)
}

/// The difference between the means of two groups.
pub struct Difference {
    pub of_means: f64,
    /// The interval that contains the true difference with [`CONFIDENCE`]; `None` if a group has one run.
    pub interval: Option<(f64, f64)>,
    /// The probability of a difference at least this large if there is no true difference; `None` if a group has one run.
    pub p: Option<f64>,
    /// `p`, corrected for the number of rows that are tested together; `None` if this row is not tested.
    pub adjusted_p: Option<f64>,
}

impl Difference {
    pub fn between(first: &Sample, other: &Sample) -> Difference {
        let of_means = other.mean - first.mean;
        let (half, p) = welch(first, other, of_means).unzip();
        let interval = half.map(|half| (of_means - half, of_means + half));
        Difference { of_means, interval, p, adjusted_p: None }
    }

    /// Whether the scatter of the runs alone may explain this row, taken by itself: its interval contains zero.
    pub fn is_within_noise(&self) -> Option<bool> {
        self.interval.map(|(low, high)| low <= 0.0 && high >= 0.0)
    }

    /// Whether the difference is significant after the correction; `None` if the row is not tested.
    pub fn is_significant(&self) -> Option<bool> {
        self.adjusted_p.map(|p| p < 1.0 - CONFIDENCE)
    }
}

/// Returns half of the interval, and the probability of such a difference by chance.
fn welch(first: &Sample, other: &Sample, of_means: f64) -> Option<(f64, f64)> {
    let ((a, a_freedom), (b, b_freedom)) = (first.of_mean()?, other.of_mean()?);
    let variance = a + b;
    if variance == 0.0 {
        return Some((0.0, if of_means == 0.0 { 1.0 } else { 0.0 })); // all runs of a group are equal
    }
    let freedom = variance.powi(2) / (a.powi(2) / a_freedom + b.powi(2) / b_freedom);
    let t = StudentsT::new(0.0, 1.0, freedom).ok()?;
    let error = variance.sqrt();
    Some((t.inverse_cdf(0.5 + CONFIDENCE / 2.0) * error, 2.0 * t.sf(of_means.abs() / error)))
}

/// Sets `adjusted_p` of these differences by the method of Benjamini and Hochberg, so that on average at most 5 % of those called
/// significant are not true differences.
pub fn correct(mut differences: Vec<&mut Difference>) {
    differences.sort_by(|a, b| b.p.unwrap_or(1.0).total_cmp(&a.p.unwrap_or(1.0)));
    let (count, mut least) = (differences.len(), 1.0_f64);
    for (at, difference) in differences.into_iter().enumerate() {
        let Some(p) = difference.p else { continue };
        least = least.min(p * count as f64 / (count - at) as f64);
        difference.adjusted_p = Some(least);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The values of R's and SciPy's documentation of Welch's test: R's `sleep`, groups 1 and 2.
    #[test]
    fn an_interval_is_welchs() {
        let first = Sample::of(vec![0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0]);
        let second = Sample::of(vec![1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4]);
        let difference = Difference::between(&second, &first);
        let (low, high) = difference.interval.unwrap();
        let close = |a: f64, b: f64| (a - b).abs() < 1e-6;
        assert!(close(low, -3.3654832) && close(high, 0.2054832), "{low} {high}");
        assert!(close(difference.of_means, -1.58) && difference.is_within_noise() == Some(true));
    }

    #[test]
    fn one_run_has_no_noise_and_equal_runs_have_none() {
        let (one, two) = (Sample::of(vec![1.0]), Sample::of(vec![2.0, 2.0]));
        assert_eq!((one.deviation, two.deviation), (None, Some(0.0)));
        assert!(Difference::between(&one, &two).interval.is_none());
        let more = Sample::of(vec![3.0, 3.0, 3.0]);
        let difference = Difference::between(&two, &more);
        assert_eq!((difference.interval, difference.is_within_noise()), (Some((1.0, 1.0)), Some(false)));
        assert_eq!(Difference::between(&two, &two).is_within_noise(), Some(true));
    }

    /// R: `t.test(sleep$extra[sleep$group == 1])$conf.int` is -0.5297804 to 2.0297804.
    #[test]
    fn the_interval_of_a_mean_is_students() {
        let (mean, half) = interval_of_mean(&[0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0]);
        let half = half.unwrap();
        assert!((mean - 0.75).abs() < 1e-9 && (half - 1.279_780_4).abs() < 1e-6, "{mean} {half}");
        assert_eq!(interval_of_mean(&[1.0]), (1.0, None));
    }

    /// R: `t.test(extra ~ group, data = sleep)$p.value`, and `p.adjust(c(0.01, 0.045, 0.03, 0.005, 0.5), "BH")`.
    #[test]
    fn probabilities_are_welchs_and_their_correction_is_that_of_benjamini_and_hochberg() {
        let first = Sample::of(vec![0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0]);
        let second = Sample::of(vec![1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4]);
        let p = Difference::between(&first, &second).p.unwrap();
        assert!((p - 0.079_394_14).abs() < 1e-7, "{p}");
        let of = |p| Difference { of_means: 1.0, interval: None, p: Some(p), adjusted_p: None };
        let mut all = [0.01, 0.045, 0.03, 0.005, 0.5].map(of);
        correct(all.iter_mut().collect());
        let adjusted = all.each_ref().map(|difference| difference.adjusted_p.unwrap());
        let wanted = [0.025, 0.05625, 0.05, 0.025, 0.5];
        assert!(adjusted.iter().zip(wanted).all(|(a, b)| (a - b).abs() < 1e-12), "{adjusted:?}");
        assert_eq!(all[1].is_significant(), Some(false), "0.045 alone would be");
        assert_eq!(all[0].is_significant(), Some(true));
    }
}
