//! A percentage on the command line, such as `5%`.

/// A percentage that is not negative.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Percent(pub f64);

/// Parses a percentage for clap. The percent sign is required, because 0.05 could mean 5 % or 0.05 %.
pub fn percent(text: &str) -> Result<Percent, String> {
    let number = text.strip_suffix('%').and_then(|number| number.trim_end().parse::<f64>().ok());
    let number = number.filter(|number| number.is_finite() && *number >= 0.0);
    number.map(Percent).ok_or_else(|| "write a percentage, such as 5%".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentage_has_a_sign_and_is_not_negative() {
        assert_eq!(
            [percent("5%"), percent("0.5 %"), percent("0%")],
            [5.0, 0.5, 0.0].map(|number| Ok(Percent(number)))
        );
        for wrong in ["5", "0.05", "-1%", "%", "five%", "inf%", "nan%", ""] {
            assert!(percent(wrong).is_err(), "{wrong}");
        }
    }
}
