//! Sums of joules and seconds.

/// Returns the sum of some figures. `Iterator::sum` makes -0 of no figures, and JSON and tables would show the sign.
pub fn sum(figures: impl IntoIterator<Item = f64>) -> f64 {
    figures.into_iter().fold(0.0, |sum, figure| sum + figure)
}
