//! Computes means of several runs, the interval of the difference of two means by Welch's t-test, and the interval of their ratio
//! by Fieller's theorem. Neither assumes that both groups have the same variance.

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

/// Returns the mean of these values, and half the width of its interval by Student's t; `None` for one value.
pub fn interval_of_mean(values: &[f64]) -> (f64, Option<f64>) {
    let sample = Sample::of(values.to_vec());
    let half = sample.of_mean().and_then(|(variance, freedom)| Some(quantile(freedom)? * variance.sqrt()));
    (sample.mean, half)
}

/// Returns half of an interval's width in standard errors, for a number of degrees of freedom.
fn quantile(freedom: f64) -> Option<f64> {
    Some(StudentsT::new(0.0, 1.0, freedom).ok()?.inverse_cdf(0.5 + CONFIDENCE / 2.0))
}

/// Returns the interval that contains the true ratio of the means, `other` to `first`, with [`CONFIDENCE`]. `None` if a group has
/// one run, or if the first mean is 0. Figures are never negative, so the interval begins at 0 or above. Its end is infinite if
/// the first mean is not clearly above 0. Exchanging the groups inverts the interval.
///
/// E. C. Fieller, Some Problems in Interval Estimation, Journal of the Royal Statistical Society B 16 (1954), 175-185: a ratio r
/// is in the interval if `other - r first` does not differ significantly from 0. The variances are not taken to be equal, so the
/// degrees of freedom are Welch's for that difference, with the estimated ratio as r, as in A. C. Tamhane and B. R. Logan, Finding
/// the Maximum Safe Dose Level for Heteroscedastic Data, Journal of Biopharmaceutical Statistics 14 (2004), 843-856, and in R's
/// `mratios::ttestratio`.
pub fn ratio(first: &Sample, other: &Sample) -> Option<(f64, f64)> {
    let ((a, a_freedom), (b, b_freedom)) = (first.of_mean()?, other.of_mean()?);
    let ratio = (first.mean > 0.0).then(|| other.mean / first.mean)?;
    let scaled = ratio * ratio * a;
    if scaled + b == 0.0 {
        return Some((ratio, ratio)); // all runs of a group are equal, or the figure is 0 in the second group
    }
    let t = quantile(freedom((scaled, a_freedom), (b, b_freedom)))?;
    let (a, b) = (t * t * a, t * t * b);
    // The ends are the roots r of (other - r first)^2 = b + r^2 a.
    let (product, leading) = (first.mean * other.mean, first.mean * first.mean - a);
    let last = other.mean * other.mean - b;
    let root = (product * product - leading * last).max(0.0).sqrt();
    let high = if leading > 0.0 { (product + root) / leading } else { f64::INFINITY };
    Some(((last / (product + root)).max(0.0), high))
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

    /// Whether the scatter of the runs alone may explain the difference, before the correction: its interval contains zero.
    pub fn is_within_noise(&self) -> Option<bool> {
        self.interval.map(|(low, high)| low <= 0.0 && high >= 0.0)
    }

    /// Whether the difference is significant after the correction; `None` if the row is not tested.
    pub fn is_significant(&self) -> Option<bool> {
        self.adjusted_p.map(|p| p < 1.0 - CONFIDENCE)
    }
}

/// Returns half the width of the interval, and the probability of such a difference by chance.
fn welch(first: &Sample, other: &Sample, of_means: f64) -> Option<(f64, f64)> {
    let ((a, a_freedom), (b, b_freedom)) = (first.of_mean()?, other.of_mean()?);
    let variance = a + b;
    if variance == 0.0 {
        return Some((0.0, if of_means == 0.0 { 1.0 } else { 0.0 })); // all runs of a group are equal
    }
    let freedom = freedom((a, a_freedom), (b, b_freedom));
    let error = variance.sqrt();
    let t = StudentsT::new(0.0, 1.0, freedom).ok()?;
    Some((quantile(freedom)? * error, 2.0 * t.sf(of_means.abs() / error)))
}

/// Returns Welch's degrees of freedom of the sum of two variances, each of which is given with its degrees of freedom.
fn freedom((a, a_freedom): (f64, f64), (b, b_freedom): (f64, f64)) -> f64 {
    (a + b).powi(2) / (a.powi(2) / a_freedom + b.powi(2) / b_freedom)
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

    /// Worked out by hand. The means are 10 and 20, their variances 1/3 and 4/3, and the degrees of freedom (8/3)^2 / (16/9) = 4,
    /// for which tables of Student's t have 2.776445. The ends are (200 ± 45.04697) / 97.430451.
    #[test]
    fn the_interval_of_a_ratio_is_fiellers() {
        let (first, other) = (Sample::of(vec![9.0, 10.0, 11.0]), Sample::of(vec![18.0, 20.0, 22.0]));
        let (low, high) = ratio(&first, &other).unwrap();
        assert!((low - 1.590_397).abs() < 1e-6 && (high - 2.515_096).abs() < 1e-6, "{low} {high}");
        let (reverse_low, reverse_high) = ratio(&other, &first).unwrap();
        assert!((reverse_low * high - 1.0).abs() < 1e-12 && (reverse_high * low - 1.0).abs() < 1e-12);
    }

    #[test]
    fn a_ratio_has_no_end_if_the_first_mean_may_be_0_and_is_never_negative() {
        let sample = |values: &[f64]| Sample::of(values.to_vec());
        let (noisy, near_0) = (sample(&[0.0, 0.0, 5.0]), sample(&[0.0, 0.5, 6.0]));
        let large = sample(&[100.0, 101.0, 102.0]);
        let (low, high) = ratio(&noisy, &large).unwrap();
        assert!(low > 1.0 && high.is_infinite(), "{low} {high}");
        assert_eq!(ratio(&noisy, &near_0), Some((0.0, f64::INFINITY)));
        let (low, high) = ratio(&large, &noisy).unwrap();
        assert!(low == 0.0 && high < 1.0, "{low} {high}");
        assert_eq!(ratio(&large, &sample(&[0.0, 0.0])), Some((0.0, 0.0)));
        assert_eq!(ratio(&sample(&[2.0, 2.0]), &sample(&[3.0, 3.0])), Some((1.5, 1.5)));
        assert_eq!((ratio(&sample(&[0.0, 0.0]), &large), ratio(&large, &sample(&[1.0]))), (None, None));
    }

    /// Welch's interval divided by the first mean would contain the true ratio in 72 to 99 % of these trials.
    #[test]
    fn intervals_of_ratios_contain_the_true_ratio_as_often_as_they_say() {
        let mut state = 1_u64;
        let mut uniform = || {
            // xorshift64*
            state ^= state >> 12;
            state ^= state << 25;
            state ^= state >> 27;
            (state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) as f64 / (1_u64 << 53) as f64
        };
        let mut normal = || (0..12).map(|_| uniform()).sum::<f64>() - 6.0;
        for (means, deviations, counts) in [
            ([100.0, 40.0], [5.0, 2.0], [4, 4]),
            ([40.0, 100.0], [2.0, 5.0], [4, 4]),
            ([40.0, 60.0], [2.0, 3.0], [3, 3]),
            ([40.0, 60.0], [2.0, 2.0], [3, 5]),
            ([40.0, 100.0], [3.0, 3.0], [4, 6]),
            ([100.0, 100.0], [5.0, 10.0], [6, 4]),
        ] {
            const TRIALS: usize = 4000;
            let mut group = |at: usize| -> Sample {
                Sample::of((0..counts[at]).map(|_| means[at] + deviations[at] * normal()).collect())
            };
            let contains = |(low, high): (f64, f64)| (low..=high).contains(&(means[1] / means[0]));
            let hits = (0..TRIALS).filter(|_| contains(ratio(&group(0), &group(1)).unwrap())).count();
            let percent = 100.0 * hits as f64 / TRIALS as f64;
            assert!((93.0..=97.0).contains(&percent), "{percent} % for {means:?}");
        }
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
