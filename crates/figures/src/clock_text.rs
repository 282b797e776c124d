//! Wall-clock time as text.

use std::time::{Duration, SystemTime};

/// Formats nanoseconds since 1970 by RFC 3339, in UTC and to the millisecond.
pub fn rfc3339(nanoseconds: u64) -> String {
    humantime::format_rfc3339_millis(SystemTime::UNIX_EPOCH + Duration::from_nanos(nanoseconds)).to_string()
}

/// Formats nanoseconds since 1970 as `20261120_095500`, in UTC.
pub fn compact(nanoseconds: u64) -> String {
    let digits: String = rfc3339(nanoseconds).chars().filter(char::is_ascii_digit).collect();
    let (date, time) = digits.split_at(8);
    format!("{date}_{}", &time[..6])
}

/// Returns the seconds since 1970 of an RFC 3339 text.
pub fn seconds(rfc3339: &str) -> Option<f64> {
    let time = humantime::parse_rfc3339(rfc3339).ok()?;
    time.duration_since(SystemTime::UNIX_EPOCH).ok().map(|since| since.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_in_utc_and_milliseconds_are_cut_not_rounded() {
        for (nanoseconds, expected) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (1_709_210_096_789_000_000, "2024-02-29T12:34:56.789Z"),
            (1_709_210_096_999_999_999, "2024-02-29T12:34:56.999Z"),
            (1_709_251_199_000_500_000, "2024-02-29T23:59:59.000Z"),
            (951_868_799_001_000_000, "2000-02-29T23:59:59.001Z"),
            (u64::MAX, "2554-07-21T23:34:33.709Z"),
        ] {
            assert_eq!(rfc3339(nanoseconds), expected);
        }
        assert_eq!(compact(1_709_210_096_000_000_000), "20240229_123456");
    }
}
