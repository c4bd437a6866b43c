//! The configuration file and its values: addresses, connection strings, schedules, prices.

use std::path::Path;
use std::sync::LazyLock;

use clap::{ArgMatches, Command};
use postonce_shared::config::{Config, add_settings};
use postonce_shared::domain::time::Timestamp;
use postonce_shared::oversight::scaling::{Schedule, TimeZone};

/// A command line without settings.
static NOTHING: LazyLock<ArgMatches> =
    LazyLock::new(|| add_settings(Command::new("test")).get_matches_from(["test"]));

/// Maximum length of a message about a file.
const MESSAGE_CHARS_MAX: usize = 16 * 1024;

/// Parses any bytes as a configuration file and as a schedule.
pub fn check(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    match Config::with_file(&NOTHING, Path::new("postonce.toml"), text) {
        Ok(config) => {
            assert!((1..=64).contains(&config.queue_count));
            assert!(config.receivers_min <= config.receivers_max);
            assert!(config.scaling.workers_min <= config.scaling.workers_max);
            check_schedule(&config.scaling.floors);
        }
        Err(error) => {
            let message = error.to_string();
            assert!(
                !message.is_empty() && message.len() <= MESSAGE_CHARS_MAX.max(text.len().saturating_mul(4)),
                "{message}"
            );
        }
    }
    let utc = TimeZone::named("UTC").expect("UTC is a known time zone");
    if let Ok(schedule) = Schedule::parse(text, &utc) {
        check_schedule(&schedule);
    }
}

/// Checks that a schedule has a floor at any time, and that no floor is above its maximum.
fn check_schedule(schedule: &Schedule) {
    for now in [0, 1_795_248_000_000, 1_709_210_096_789, 253_402_300_799_999] {
        let floor = schedule.floor(Timestamp::from_unix_ms(now));
        assert!(floor <= schedule.highest(), "{floor} workers at {now}");
    }
}
