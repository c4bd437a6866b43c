//! Schedules for known peaks: a minimum number of workers while a cron expression matches.

use std::fmt;

use cronexpr::{Crontab, MakeTimestamp};

use crate::domain::time::Timestamp;
use crate::text::whole_number;

/// Scheduled minimum numbers of workers, such as `* 7-9 * * MON = 4; * * 24-31 12 * = 6`.
#[derive(Debug, Clone, Default)]
pub struct Schedule(Vec<Floor>);

#[derive(Debug, Clone)]
struct Floor {
    minutes: Crontab,
    workers: u32,
}

/// A time zone of the IANA database, such as `Europe/Berlin`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimeZone(String);

/// Error for a part of a schedule that cannot be parsed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{part:?} {why}")]
pub struct ScheduleError {
    part: String,
    why: String,
}

impl TimeZone {
    /// Returns the time zone with this name; `None` if the database does not contain it.
    pub fn named(name: &str) -> Option<Self> {
        jiff::tz::TimeZone::get(name).ok()?;
        Some(Self(name.to_owned()))
    }
}

impl fmt::Display for TimeZone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Schedule {
    /// Parses entries of the form `cron expression = number`, separated by `;`. An expression has the five fields of
    /// cron (minute, hour, day of month, month, day of week), evaluated in the time zone.
    ///
    /// # Errors
    /// [`ScheduleError`] for the first invalid entry.
    pub fn parse(text: &str, zone: &TimeZone) -> Result<Self, ScheduleError> {
        let parts = text.split(';').map(str::trim).filter(|part| !part.is_empty());
        parts.map(|part| Floor::parse(part, zone)).collect::<Result<_, _>>().map(Self)
    }

    /// Returns the minimum number of workers at a time: the maximum of all matching entries, or 0.
    pub fn floor(&self, now: Timestamp) -> u32 {
        let matching = self.0.iter().filter(|floor| floor.holds(now));
        matching.map(|floor| floor.workers).max().unwrap_or(0)
    }

    /// Returns the highest number of all entries.
    pub fn highest(&self) -> u32 {
        self.0.iter().map(|floor| floor.workers).max().unwrap_or(0)
    }
}

impl Floor {
    fn parse(part: &str, zone: &TimeZone) -> Result<Self, ScheduleError> {
        let refuse = |why: &str| ScheduleError { part: part.to_owned(), why: why.to_owned() };
        let (expression, workers) =
            part.split_once('=').ok_or_else(|| refuse("is not of the form: cron expression = number"))?;
        let workers = whole_number(workers.trim()).filter(|workers| *workers > 0);
        let workers = workers.ok_or_else(|| {
            refuse("does not end with a whole number of workers above 0; several entries are separated by ;")
        })?;
        let fields: Vec<&str> = expression.split_whitespace().collect();
        if fields.len() != 5 {
            return Err(refuse("does not have five fields: minute, hour, day of month, month, day of week"));
        }
        let minutes = cronexpr::parse_crontab(&format!("{} {zone}", fields.join(" ")));
        let minutes = minutes.map_err(|error| {
            // The crate's message shows the position on a separate line. Only the last line is used.
            let text = error.to_string();
            let reason = text.rsplit_once("^ ").map_or(text.as_str(), |(_, reason)| reason);
            refuse(&format!("is not a cron expression: {reason}"))
        })?;
        Ok(Self { minutes, workers })
    }

    fn holds(&self, now: Timestamp) -> bool {
        // Cannot fail: every timestamp is within the range of the crate.
        let now = MakeTimestamp::from_millisecond(now.unix_ms());
        now.and_then(|now| self.minutes.matches(now)).unwrap_or(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zone(name: &str) -> TimeZone {
        TimeZone::named(name).unwrap()
    }

    #[test]
    fn a_floor_applies_to_each_minute_that_its_expression_matches() {
        let text = "0-59 7-9 * * MON = 4; * * 24-31 12 * = 6;30 8 * * 1=9;";
        let check = |zone_name: &str, now: &str, expected: u32| {
            let schedule = Schedule::parse(text, &zone(zone_name)).unwrap();
            assert_eq!(schedule.floor(Timestamp::parse(now).unwrap()), expected, "{now} in {zone_name}");
        };
        // 2026-11-23 is a Monday.
        check("UTC", "2026-11-23T06:59:59.999Z", 0);
        check("UTC", "2026-11-23T07:00:00Z", 4);
        check("UTC", "2026-11-23T08:30:59.999Z", 9);
        check("UTC", "2026-11-23T08:31:00Z", 4);
        check("UTC", "2026-11-23T09:59:59.999Z", 4);
        check("UTC", "2026-11-23T10:00:00Z", 0);
        check("UTC", "2026-11-24T08:00:00Z", 0);
        check("UTC", "2026-12-24T00:00:00Z", 6);
        check("UTC", "2026-12-28T08:00:00Z", 6);
        check("UTC", "2027-01-01T00:00:00Z", 0);
        // With daylight saving time, the hours are local: UTC+1 in winter, UTC+2 in summer.
        check("Europe/Berlin", "2026-11-23T06:00:00Z", 4);
        check("Europe/Berlin", "2026-11-23T05:59:00Z", 0);
        check("Europe/Berlin", "2026-07-06T05:00:00Z", 4);
        check("America/New_York", "2026-11-23T12:00:00Z", 4);
    }

    #[test]
    fn an_empty_schedule_has_no_floor() {
        let schedule = Schedule::parse("", &zone("UTC")).unwrap();
        assert_eq!((schedule.floor(Timestamp::from_unix_ms(0)), schedule.highest()), (0, 0));
    }

    #[test]
    fn an_invalid_part_is_reported_with_its_reason() {
        let check = |text: &str, words: &[&str]| {
            let message = Schedule::parse(text, &zone("UTC")).unwrap_err().to_string();
            for word in words {
                assert!(message.contains(word), "{message:?} lacks {word:?}");
            }
            assert!(!message.contains('\n'), "{message:?} is more than one line");
        };
        check("* 7 * * MON = 4; * 25 * * * = 2", &["\"* 25 * * * = 2\"", "range 0..=23", "25"]);
        check("* 7 * * MON", &["\"* 7 * * MON\"", "cron expression = number"]);
        check("* 7 * * MON = many", &["whole number of workers"]);
        check("* 7 * * MON = 0", &["above 0"]);
        check("* 7 * * MON = +4", &["above 0"]);
        check("* 7-9 * * MON = 4, * * 24-31 12 * = 6", &["above 0", "separated by ;"]);
        check("* 7 * * = 4", &["five fields"]);
        check("0 * 7 * * MON = 4", &["five fields"]);
        check("* 7 * * FUNDAY = 4", &["FUNDAY", "not a cron expression"]);
    }

    #[test]
    fn zones_come_from_the_database() {
        assert_eq!(TimeZone::named("Europe/Berlin").unwrap().to_string(), "Europe/Berlin");
        for unknown in ["", "Europe/Nowhere", "UTC+1 ", "Europe/Berlin UTC"] {
            assert_eq!(TimeZone::named(unknown), None, "{unknown:?}");
        }
    }
}
