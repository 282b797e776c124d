//! Formats figures with few digits.

/// The number of digits of a measured figure.
pub const MEASURED: usize = 4;
/// The number of digits of an estimated figure.
pub const ESTIMATED: usize = 3;
/// The maximum number of decimals in a column.
const DECIMALS_MAX: usize = 3;

/// Returns the number of digits in which joules are shown. `energy` is the summary's word for their origin, such as `estimated`.
pub fn of_energy(energy: &str) -> usize {
    if energy == "estimated" { ESTIMATED } else { MEASURED }
}

/// Formats joules with three digits and a unit: `2.03 kJ`.
pub fn energy(joules: f64) -> String {
    let units = [(1e9, "GJ"), (1e6, "MJ"), (1e3, "kJ")];
    let (size, unit) =
        units.into_iter().find(|(size, _)| joules.abs() >= 0.9995 * size).unwrap_or((1.0, "J"));
    format!("{} {unit}", significant(joules / size, 3))
}

/// Formats joules as watt-hours: `0.56 Wh`, `1.20 kWh`; `None` below a hundredth of a watt-hour.
pub fn watt_hours(joules: f64) -> Option<String> {
    let hours = joules / 3600.0;
    match hours {
        less if less < 0.01 => None,
        small if small < 1.0 => Some(format!("{small:.2} Wh")),
        hours if hours < 999.5 => Some(format!("{} Wh", significant(hours, 3))),
        many => Some(format!("{} kWh", significant(many / 1000.0, 3))),
    }
}

/// Returns a figure in this many digits, without an exponent.
pub fn significant(value: f64, digits: usize) -> String {
    if value.abs() < 1e-3 {
        return if value == 0.0 { "0" } else { "<0.001" }.to_owned();
    }
    let value = rounded(value, digits);
    format!("{value:.*}", decimals(value, digits))
}

/// Returns the figures of a column, with the same decimals: those of its largest figure.
pub fn column(values: &[f64], digits: usize) -> Vec<String> {
    let largest = values.iter().fold(0.0f64, |most, value| most.max(value.abs()));
    let decimals = decimals(rounded(largest, digits), digits);
    let least = 0.5 * 10f64.powi(-(decimals as i32));
    let text = |value: &f64| match value.abs() {
        0.0 => "0".to_owned(),
        small if small < least => format!("<{:.decimals$}", 2.0 * least),
        // A figure is rounded only once.
        large if large >= 10f64.powi(digits as i32) => format!("{:.0}", rounded(*value, digits)),
        _ => format!("{value:.decimals$}"),
    };
    values.iter().map(text).collect()
}

/// Like [`column`], if some of the figures are not known. Figures that are not known have the text `unknown`.
pub fn known_column(values: &[Option<f64>], unknown: &str, digits: usize) -> Vec<String> {
    let figures: Vec<f64> = values.iter().map(|value| value.unwrap_or_default()).collect();
    let texts = column(&figures, digits).into_iter().zip(values);
    texts.map(|(text, value)| if value.is_some() { text } else { unknown.to_owned() }).collect()
}

/// Formats a count in groups of three digits: `16 210`.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let parts: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().filter_map(|part| std::str::from_utf8(part).ok()).collect();
    parts.join(" ")
}

/// Formats a fraction in percent: `31.2 %`, or with two decimals, as in `0.03 %`, if it would be `0.0 %` with one.
pub fn percent(part: f64, whole: f64) -> String {
    match 100.0 * part / whole {
        _ if whole <= 0.0 || whole.is_nan() => "-".to_owned(),
        small if (0.005..0.05).contains(&small) => format!("{small:.2} %"),
        percent => format!("{percent:.1} %"),
    }
}

/// Returns the exponent of the first digit.
fn magnitude(value: f64) -> i32 {
    if value.abs() > 0.0 { value.abs().log10().floor() as i32 } else { 0 }
}

fn rounded(value: f64, digits: usize) -> f64 {
    let step = 10f64.powi(magnitude(value) + 1 - digits as i32);
    if value.is_finite() && step > 0.0 { (value / step).round() * step } else { value }
}

fn decimals(value: f64, digits: usize) -> usize {
    (digits as i32 - 1 - magnitude(value)).clamp(0, DECIMALS_MAX as i32) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn energies_have_three_digits_and_a_unit() {
        for (joules, expected) in [
            (0.0, "0 J"),
            (0.0004, "<0.001 J"),
            (2.56, "2.56 J"),
            (202.31, "202 J"),
            (999.6, "1.00 kJ"),
            (2030.4, "2.03 kJ"),
            (5897.6, "5.90 kJ"),
            (45_678.0, "45.7 kJ"),
            (1.5e6, "1.50 MJ"),
            (7.25e10, "72.5 GJ"),
        ] {
            assert_eq!(energy(joules), expected);
        }
        let hours = [20.0, 2030.0, 5897.6, 50_000.0, 4.32e6].map(watt_hours);
        assert_eq!(hours.map(Option::unwrap_or_default), ["", "0.56 Wh", "1.64 Wh", "13.9 Wh", "1.20 kWh"]);
    }

    #[test]
    fn parts_of_a_large_whole_have_two_decimals() {
        let parts = [1000.0, 31.24, 0.06, 0.03, 0.001, 0.0].map(|part| percent(part, 100.0));
        assert_eq!(parts, ["1000.0 %", "31.2 %", "0.1 %", "0.03 %", "0.0 %", "0.0 %"]);
        assert_eq!(percent(0.0, 0.0), "-");
    }

    #[test]
    fn a_column_has_the_decimals_of_its_largest_figure() {
        assert_eq!(
            column(&[1550.3, 240.2, 130.0, 23.4, 0.2, 0.0], ESTIMATED),
            ["1550", "240", "130", "23", "<1", "0"]
        );
        assert_eq!(column(&[1842.49, 1119.3, 3.04], MEASURED), ["1842", "1119", "3"]);
        assert_eq!(column(&[1095.2, 899.48], MEASURED), ["1095", "899"], "rounded only once");
        assert_eq!(column(&[9.996, 0.5], ESTIMATED), ["10.0", "0.5"]);
        assert_eq!(column(&[28.68, 2.5, 0.004], ESTIMATED), ["28.7", "2.5", "<0.1"]);
        assert_eq!(column(&[0.0004], MEASURED), ["<0.001"]);
        assert_eq!(column(&[123_456.0, 7.0], ESTIMATED), ["123000", "7"]);
        assert_eq!([0, 7, 1234, 16_210, 1_000_000].map(count), ["0", "7", "1 234", "16 210", "1 000 000"]);
    }
}
