//! Means of several runs, and what the difference of two means can be: Welch's t-test, which does not suppose that both groups
//! scatter alike.

use statrs::distribution::{ContinuousCDF, StudentsT};

/// How sure an interval is.
pub const CONFIDENCE: f64 = 0.95;

/// The figure of each run of a group.
pub struct Sample {
    pub values: Vec<f64>,
    pub mean: f64,
    /// The sample's standard deviation; `None` of one run.
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

    /// The variance of the mean, and the degrees of freedom.
    fn of_mean(&self) -> Option<(f64, f64)> {
        let count = self.values.len() as f64;
        Some((self.deviation?.powi(2) / count, count - 1.0))
    }
}

/// How much the mean of one group is above that of another.
pub struct Difference {
    pub of_means: f64,
    /// In which the true difference is with [`CONFIDENCE`]; `None` where a group has one run.
    pub interval: Option<(f64, f64)>,
}

impl Difference {
    pub fn between(first: &Sample, other: &Sample) -> Difference {
        let of_means = other.mean - first.mean;
        let half = half_interval(first, other);
        Difference { of_means, interval: half.map(|half| (of_means - half, of_means + half)) }
    }

    /// Whether the runs' own scatter explains it: no difference is one of the likely ones.
    pub fn is_within_noise(&self) -> Option<bool> {
        self.interval.map(|(low, high)| low <= 0.0 && high >= 0.0)
    }
}

fn half_interval(first: &Sample, other: &Sample) -> Option<f64> {
    let ((a, a_freedom), (b, b_freedom)) = (first.of_mean()?, other.of_mean()?);
    let variance = a + b;
    if variance == 0.0 {
        return Some(0.0); // all runs of a group are alike
    }
    let freedom = variance.powi(2) / (a.powi(2) / a_freedom + b.powi(2) / b_freedom);
    let t = StudentsT::new(0.0, 1.0, freedom).ok()?;
    Some(t.inverse_cdf(0.5 + CONFIDENCE / 2.0) * variance.sqrt())
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
}
