//! Wall-clock time as text.

/// RFC 3339 in UTC, to the millisecond, of nanoseconds since 1970.
pub fn rfc3339(nanoseconds: u64) -> String {
    let seconds = nanoseconds / 1_000_000_000;
    let (year, month, day) = date(seconds / 86_400);
    let second = seconds % 86_400;
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{:03}Z",
        second / 3600,
        second / 60 % 60,
        second % 60,
        nanoseconds / 1_000_000 % 1000
    )
}

/// `20261120_095500`, UTC.
pub fn compact(nanoseconds: u64) -> String {
    let text = rfc3339(nanoseconds);
    let digits: String = text.chars().take(19).filter(char::is_ascii_digit).collect();
    format!("{}_{}", &digits[..8], &digits[8..])
}

/// Civil date of a day since 1970-01-01 (Howard Hinnant's days-to-civil).
fn date(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let of_era = shifted % 146_097;
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    (year_of_era + era * 400 + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_dates() {
        assert_eq!(rfc3339(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(rfc3339(1_709_210_096_789_000_000), "2024-02-29T12:34:56.789Z");
        assert_eq!(compact(1_709_210_096_000_000_000), "20240229_123456");
    }
}
