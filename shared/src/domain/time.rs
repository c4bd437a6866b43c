//! Points in time in UTC, with a precision of one millisecond.

use std::fmt;
use std::time::Duration;

use ::time::OffsetDateTime;
use ::time::format_description::well_known::Rfc3339;

/// Milliseconds since 1970-01-01T00:00:00Z. Displayed as RFC 3339, always in UTC and with milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

/// The last millisecond that RFC 3339 can express: 9999-12-31T23:59:59.999Z.
const MILLISECONDS_MAX: i64 = 253_402_300_799_999;

/// Number of characters of an RFC 3339 date; the separator `T` follows.
const DATE_CHARS: usize = 10;

impl Timestamp {
    /// Creates a timestamp from milliseconds since 1970, clamped to the years 1970 to 9999.
    pub fn from_unix_ms(milliseconds: i64) -> Self {
        Self(milliseconds.clamp(0, MILLISECONDS_MAX))
    }

    /// Returns the milliseconds since 1970.
    pub const fn unix_ms(self) -> i64 {
        self.0
    }

    /// Returns the time from `earlier` to `self`; zero when `earlier` is not before `self`.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }

    /// Returns the timestamp `duration` later.
    pub fn after(self, duration: Duration) -> Self {
        let milliseconds = i64::try_from(duration.as_millis()).unwrap_or(MILLISECONDS_MAX);
        Self::from_unix_ms(self.0.saturating_add(milliseconds))
    }

    /// Returns the timestamp `duration` earlier.
    pub fn before(self, duration: Duration) -> Self {
        let milliseconds = i64::try_from(duration.as_millis()).unwrap_or(MILLISECONDS_MAX);
        Self::from_unix_ms(self.0.saturating_sub(milliseconds))
    }

    /// Parses RFC 3339 with any offset, and with `T` between date and time.
    pub fn parse(text: &str) -> Option<Self> {
        // The library accepts any separator.
        text.as_bytes().get(DATE_CHARS).filter(|separator| matches!(separator, b'T' | b't'))?;
        let parsed = OffsetDateTime::parse(text, &Rfc3339).ok()?;
        let milliseconds = parsed.unix_timestamp_nanos().checked_div(1_000_000)?;
        i64::try_from(milliseconds).ok().map(Self::from_unix_ms)
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.div_euclid(1000);
        // The constructor keeps the value within the range of the calendar.
        let date = OffsetDateTime::from_unix_timestamp(seconds).map_err(|_| fmt::Error)?;
        write!(
            f,
            "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z",
            date.year(),
            u8::from(date.month()),
            date.day(),
            date.hour(),
            date.minute(),
            date.second(),
            self.0.rem_euclid(1000)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_are_written_and_read_as_rfc_3339() {
        let timestamp = Timestamp::from_unix_ms(1_795_248_000_123);
        assert_eq!(timestamp.to_string(), "2026-11-21T08:00:00.123Z");
        assert_eq!(Timestamp::parse("2026-11-21T08:00:00.123Z"), Some(timestamp));
        assert_eq!(Timestamp::parse("2026-11-21T09:00:00.123+01:00"), Some(timestamp));
        assert_eq!(Timestamp::parse("2026-11-21t08:00:00.123z"), Some(timestamp));
        for wrong in [
            "",
            "yesterday",
            "2026-11-21",
            "2026-11-21 08:00:00.123Z",
            "2026-11-21x08:00:00.123Z",
            "2026-11-21T08:00:00.123",
            "2026-11-21T08:00:00,123Z",
            "2026-11-21T08:00:00.123Z ",
            "2026-11-21T8:00:00Z",
            "2026-11-31T08:00:00Z",
            "2026-11-21T24:00:00Z",
            "+2026-11-21T08:00:00Z",
        ] {
            assert_eq!(Timestamp::parse(wrong), None, "{wrong}");
        }
    }
}
