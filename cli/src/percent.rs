//! A percentage on the command line, such as `5%`.

/// A percentage that is not negative.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Percent(pub f64);

/// Parses a percentage for clap. Numbers below 1 need a percent sign, because 0.05 could mean 5 % or 0.05 %.
pub fn percent(text: &str) -> Result<Percent, String> {
    let number = text.strip_suffix('%').unwrap_or(text).trim_end().parse::<f64>().ok();
    match number.filter(|number| number.is_finite() && *number >= 0.0) {
        Some(number) if number > 0.0 && number < 1.0 && !text.ends_with('%') => Err(format!(
            "{text} could mean {text}% or {}%: write the percent sign",
            (1e5 * number).round() / 1e3
        )),
        Some(number) => Ok(Percent(number)),
        None => Err("write a percentage, such as 5%".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentage_is_clear_and_not_negative() {
        assert_eq!(
            [percent("5%"), percent("0.5 %"), percent("0%"), percent("5"), percent("1.5"), percent("0")],
            [5.0, 0.5, 0.0, 5.0, 1.5, 0.0].map(|number| Ok(Percent(number)))
        );
        for wrong in ["0.05", "-1", "-1%", "%", "five%", "inf%", "nan%", ""] {
            assert!(percent(wrong).is_err(), "{wrong}");
        }
    }
}
