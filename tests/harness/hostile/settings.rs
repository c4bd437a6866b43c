//! The configuration file, and what stands in it: addresses, connection strings, schedules, prices.

use std::path::Path;
use std::sync::LazyLock;

use clap::{ArgMatches, Command};
use postonce_shared::config::{Config, add_settings};
use postonce_shared::domain::time::Timestamp;
use postonce_shared::oversight::scaling::{Schedule, TimeZone};

/// A command line without settings.
static NOTHING: LazyLock<ArgMatches> =
    LazyLock::new(|| add_settings(Command::new("test")).get_matches_from(["test"]));

/// Most characters of what is told about a file.
const TOLD_CHARS_MAX: usize = 16 * 1024;

/// Any bytes, as the file and as a schedule.
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
            let told = error.to_string();
            assert!(
                !told.is_empty() && told.len() <= TOLD_CHARS_MAX.max(text.len().saturating_mul(4)),
                "{told}"
            );
        }
    }
    let utc = TimeZone::named("UTC").expect("the zone of all zones");
    if let Ok(schedule) = Schedule::parse(text, &utc) {
        check_schedule(&schedule);
    }
}

/// Asked at any minute, a schedule answers, and never with more than its highest floor.
fn check_schedule(schedule: &Schedule) {
    for now in [0, 1_795_248_000_000, 1_709_210_096_789, 253_402_300_799_999] {
        let floor = schedule.floor(Timestamp::from_unix_ms(now));
        assert!(floor <= schedule.highest(), "{floor} workers at {now}");
    }
}
