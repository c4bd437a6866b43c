//! Values of the field for the scheduled release. Browsers send them without a time zone; they are interpreted as UTC.

/// Length of a date and time with seconds, in characters.
const SECONDS_CHARS: usize = 19;

/// Converts a field value, such as `2026-11-23T06:00`, to RFC 3339. The API refuses the result of an invalid value.
pub fn rfc_3339(field: &str) -> String {
    let time = field.strip_suffix(['Z', 'z']).unwrap_or(field).replace(' ', "T");
    let seconds = if time.matches(':').count() == 1 { ":00" } else { "" };
    format!("{time}{seconds}Z")
}

/// Returns the value of a field for a time in RFC 3339 and UTC, without fractions of seconds.
pub fn field_value(rfc3339: &str) -> &str {
    rfc3339.get(..SECONDS_CHARS).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_browsers_send_is_in_utc() {
        let times = [
            ("2026-11-23T06:00", "2026-11-23T06:00:00Z"),
            ("2026-11-23T06:00:30", "2026-11-23T06:00:30Z"),
            ("2026-11-23T06:00:30.5", "2026-11-23T06:00:30.5Z"),
            ("2026-11-23 06:00", "2026-11-23T06:00:00Z"),
            ("2026-11-23T06:00Z", "2026-11-23T06:00:00Z"),
            ("tomorrow", "tomorrowZ"),
        ];
        for (field, time) in times {
            assert_eq!(rfc_3339(field), time);
        }
        assert_eq!(field_value("2026-11-23T06:00:30.123Z"), "2026-11-23T06:00:30");
        assert_eq!(field_value("soon"), "");
        assert_eq!(rfc_3339(field_value("2026-11-23T06:00:30.123Z")), "2026-11-23T06:00:30Z");
    }
}
