//! Parsers of times in command arguments.

use std::time::Duration;

use anyhow::ensure;
use clap::Args;
use postonce_shared::domain::time::Timestamp;

/// Maximum number of days until a key expires.
const DAYS_MAX: i64 = 36_500;
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Parses a time of RFC 3339.
///
/// # Errors
/// A message with the allowed form.
pub fn parse_time(text: &str) -> Result<Timestamp, &'static str> {
    Timestamp::parse(text).ok_or("must be a time of RFC 3339, such as 2026-11-23T06:00:00Z")
}

/// Options for the expiry of a key.
#[derive(Debug, Clone, Default, Args)]
pub struct Expiry {
    /// Time from which on the key is refused, such as 2027-11-23T06:00:00Z; by default it does not expire
    #[arg(long, value_name = "TIME", value_parser = parse_time, conflicts_with = "expires_in_days")]
    expires_at: Option<Timestamp>,
    /// Number of days until then
    #[arg(long, value_name = "DAYS", value_parser = clap::value_parser!(u32).range(1..=DAYS_MAX))]
    expires_in_days: Option<u32>,
}

impl Expiry {
    /// Returns the time at which the key expires; `None` if it does not.
    ///
    /// # Errors
    /// When `--expires-at` is not in the future.
    pub fn at(&self, now: Timestamp) -> anyhow::Result<Option<Timestamp>> {
        let Self { expires_at, expires_in_days } = self;
        ensure!(expires_at.is_none_or(|at| at > now), "--expires-at must be later than now, {now}");
        Ok(expires_at.or_else(|| expires_in_days.map(|days| now.after(DAY.saturating_mul(days)))))
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        expiry: Expiry,
    }

    #[test]
    fn an_expiry_is_a_later_time_or_a_number_of_days() {
        let now = Timestamp::parse("2026-11-23T06:00:00Z").unwrap();
        let read = |words: &[&str]| {
            let line =
                Line::try_parse_from(["keys"].iter().chain(words)).map_err(|error| error.to_string())?;
            let at = line.expiry.at(now).map_err(|error| error.to_string())?;
            Ok::<_, String>(at.map(|at| at.to_string()))
        };
        let check = |words: &[&str], expected: Option<&str>| {
            assert_eq!(read(words).unwrap().as_deref(), expected, "{words:?}");
        };
        check(&[], None);
        check(&["--expires-at", "2026-11-23T06:00:01Z"], Some("2026-11-23T06:00:01.000Z"));
        check(&["--expires-in-days", "7"], Some("2026-11-30T06:00:00.000Z"));
        for wrong in [
            &["--expires-at", "2026-11-23T06:00:00Z"][..],
            &["--expires-at", "tomorrow"],
            &["--expires-in-days", "0"],
            &["--expires-in-days", "36501"],
            &["--expires-in-days", "7", "--expires-at", "2027-11-23T06:00:00Z"],
        ] {
            let refused = read(wrong).unwrap_err();
            assert!(refused.contains("--expires-"), "{wrong:?}: {refused}");
        }
    }
}
